// SPDX-License-Identifier: MPL-2.0
/* A pool's configuration as one object: what has to be made again to have the same volumes, LUNs
 * and CHAP users elsewhere. `holdfast config import` makes them by the other routes. */
#include "control/api.h"

#include <string.h>

#include "control/answer.h"

static json_t *volume_json(const struct volume_info *volume) {
    return json_pack("{s:o, s:I, s:s, s:i, s:b, s:b}", "name", answer_text(volume->name),
                     "size_bytes", (json_int_t)volume->size_bytes, "profile",
                     profile_name(volume->profile), "block_bytes", (int)volume->block_bytes,
                     "thick", (int)volume->thick, "sync_standard", (int)!volume->sync_always);
}

static json_t *lun_json(const struct lun_record *lun) {
    return json_pack("{s:s, s:s, s:s, s:i, s:b, s:o}", "name", lun->name, "volume", lun->volume,
                     "target", lun->target, "lun", (int)lun->number, "open", (int)lun->open,
                     "access", lun_rules_json(lun));
}

static json_t *user_json(const struct chap_record *user, bool secrets) {
    json_t *object = json_pack("{s:s}", "name", user->name);
    if (user->mutual_name[0] != '\0') {
        (void)json_object_set_new(object, "mutual_name", json_string(user->mutual_name));
    }
    if (secrets) {
        (void)json_object_set_new(object, "secret", json_string(user->secret));
    }
    if (secrets && user->mutual_name[0] != '\0') {
        (void)json_object_set_new(object, "mutual_secret", json_string(user->mutual_secret));
    }
    return object;
}

static json_t *pool_json(const struct served_view *view, bool secrets) {
    const struct served_snapshot *snapshot = view->snapshot;
    json_t *volumes = json_array(), *luns = json_array(), *users = json_array();
    for (uint32_t i = 0; i < snapshot->volume_count; i++) {
        if (!snapshot->volumes[i].deleting) {
            (void)json_array_append_new(volumes, volume_json(&snapshot->volumes[i]));
        }
    }
    for (uint32_t i = 0; i < snapshot->lun_count; i++) {
        (void)json_array_append_new(luns, lun_json(&snapshot->luns[i]));
    }
    for (uint32_t i = 0; i < snapshot->user_count; i++) {
        (void)json_array_append_new(users, user_json(&snapshot->users[i], secrets));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "name", view->name, "volumes", volumes, "users", users,
                     "luns", luns);
}

int api_config(struct serve *serve, const struct api_request *request, json_t **ret_answer,
               struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct served_view view;
    served_look(served, &view);
    int error = OK;
    if (view.snapshot == NULL || view.stale || view.stage != SERVED_RUNNING) {
        error = errmsg_set(reterr, ERR_AGAIN, "pool %s does not answer just now", view.name);
    } else {
        *ret_answer = pool_json(&view, schema_bool(request->body, "secrets"));
    }
    served_view_done(&view);
    served_unref(served);
    return error;
}
