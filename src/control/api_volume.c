// SPDX-License-Identifier: MPL-2.0
/* Volumes of a pool. */
#include <string.h>

#include "base/mem.h"
#include "control/answer.h"
#include "control/api.h"
#include "control/measure.h"

static const char *const healths[] = {
    [VOLUME_WHOLE] = "ok", [VOLUME_DAMAGED] = "damaged", [VOLUME_BROKEN] = "broken"};

static json_t *volume_json(const char *pool, const struct volume_info *volume) {
    char uuid[37];
    api_uuid_text(&volume->uuid, uuid);
    json_t *json = json_pack("{s:s, s:o, s:I, s:s, s:I, s:I, s:i, s:s, s:b, s:b, s:b, s:s}", "pool",
                             pool, "name", answer_text(volume->name), "id", (json_int_t)volume->id,
                             "uuid", uuid, "size_bytes", (json_int_t)volume->size_bytes,
                             "allocated_bytes", (json_int_t)volume->allocated_bytes, "block_bytes",
                             (int)volume->block_bytes, "profile", profile_name(volume->profile),
                             "thick", (int)volume->thick, "sync_always", (int)volume->sync_always,
                             "deleting", (int)volume->deleting, "health", healths[volume->health]);
    (void)json_object_set_new(json, "lost_bytes", json_integer((json_int_t)volume->lost_bytes));
    (void)json_object_set_new(json, "extents_per_gib",
                              json_integer((json_int_t)volume->extents_per_gib));
    (void)json_object_set_new(json, "reordering", json_boolean(volume->reordering));
    if (volume->profile_moves) {
        (void)json_object_set_new(json, "profile_former",
                                  json_string(profile_name(volume->profile_former)));
    }
    if (volume->reordering || volume->profile_moves) {
        (void)json_object_set_new(json, "moved_pct", json_integer((json_int_t)volume->moved_pct));
    }
    return json;
}

static const struct volume_info *find(const struct served_snapshot *snapshot, const char *name) {
    for (uint32_t i = 0; snapshot != NULL && i < snapshot->volume_count; i++) {
        if (strcmp(snapshot->volumes[i].name, name) == 0 && !snapshot->volumes[i].deleting) {
            return &snapshot->volumes[i];
        }
    }
    return NULL;
}

int api_volumes(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct served_view view;
    served_look(served, &view);
    json_t *list = json_array();
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->volume_count; i++) {
        (void)json_array_append_new(list, volume_json(view.name, &view.snapshot->volumes[i]));
    }
    *ret_answer = json_pack("{s:o, s:b}", "volumes", list, "stale", (int)view.stale);
    served_view_done(&view);
    served_unref(served);
    return OK;
}

static int answer_volume(struct served *served, const char *name, json_t **ret_answer,
                         struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    const struct volume_info *volume = find(view.snapshot, name);
    int error = OK;
    if (volume == NULL) {
        error = errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no volume %s", view.name, name);
    } else {
        *ret_answer = volume_json(view.name, volume);
    }
    served_view_done(&view);
    return error;
}

int api_volume(struct serve *serve, const struct api_request *request, json_t **ret_answer,
               struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = answer_volume(served, request->name, ret_answer, reterr);
    served_unref(served);
    return error;
}

/* ---- changes: what runs on the pool's loop ---- */

struct change {
    struct volume_options options;
    const char *name;
    uint64_t size_bytes;
    struct volume_info info;
    struct errmsg *reterr;
    int result;
};

static void create_on_loop(struct engine *engine, void *arg) {
    struct change *change = arg;
    uint64_t id;
    change->result = engine_volume_create(engine, &change->options, &id, change->reterr);
}

static void resize_on_loop(struct engine *engine, void *arg) {
    struct change *change = arg;
    change->result = engine_volume_resize(engine, change->name, change->size_bytes, change->reterr);
    if (change->result == OK) {
        change->result = engine_volume_find(engine, change->name, &change->info);
    }
}

static void delete_on_loop(struct engine *engine, void *arg) {
    struct change *change = arg;
    change->result = engine_volume_delete(engine, change->name, change->reterr);
}

/* The strongest profile that the disks carry and most people mean: it can always be said. */
static enum profile default_profile(struct served *served) {
    struct served_view view;
    served_look(served, &view);
    uint32_t disks = view.snapshot == NULL ? 1 : view.snapshot->status.disk_count;
    served_view_done(&view);
    return disks >= profile_min_disks(PROFILE_RAID6) + 1 ? PROFILE_RAID6
           : disks >= profile_min_disks(PROFILE_RAID5)   ? PROFILE_RAID5
           : disks >= profile_min_disks(PROFILE_RAID1)   ? PROFILE_RAID1
                                                         : PROFILE_SINGLE;
}

int api_volume_create(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                      struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    const json_t *body = request->body;
    struct change change = {.reterr = reterr};
    change.options = (struct volume_options){
        .name = schema_text(body, "name", ""),
        .size_bytes = schema_uint(body, "size_bytes", 0),
        .block_bytes = (uint32_t)schema_uint(body, "block_bytes", 512),
        .thick = schema_bool(body, "thick"),
        .sync_standard = schema_bool(body, "sync_standard"),
    };
    const char *profile = schema_text(body, "profile", NULL);
    int error = OK;
    if (change.options.block_bytes != 512 && change.options.block_bytes != 4096) {
        error = errmsg_set(reterr, ERR_INVALID, "\"block_bytes\" must be 512 or 4096, not %u",
                           change.options.block_bytes);
    } else if (profile == NULL) {
        change.options.profile = default_profile(served);
    } else {
        error = profile_parse(profile, &change.options.profile);
    }
    if (error == OK) {
        error = served_change_begin(served, "create a volume", reterr);
    }
    if (error == OK) {
        served_change(served, create_on_loop, &change);
        served_change_end(served);
        error = change.result;
    }
    if (error == OK) {
        error = answer_volume(served, change.options.name, ret_answer, reterr);
    }
    served_unref(served);
    return error;
}

int api_volume_resize(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                      struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct change change = {.name = request->name,
                            .size_bytes = schema_uint(request->body, "size_bytes", 0),
                            .reterr = reterr};
    int error = served_change_begin(served, "resize a volume", reterr);
    if (error == OK) {
        served_change(served, resize_on_loop, &change);
        error = change.result;
        if (error == OK) {
            targets_resized(serve_targets(serve), request->pool, &change.info);
        }
        served_change_end(served);
    }
    if (error == OK) {
        error = answer_volume(served, request->name, ret_answer, reterr);
    }
    served_unref(served);
    return error;
}

/* A volume that a LUN shows is not deleted: the LUN has to go first, so that nobody deletes under
 * an initiator by mistake. Inside a change. */
static int refuse_mapped(struct served *served, const char *name, struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    int error = OK;
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->lun_count; i++) {
        const struct lun_record *lun = &view.snapshot->luns[i];
        if (strcmp(lun->volume, name) == 0) {
            error = errmsg_set(reterr, ERR_BUSY,
                               "volume %s is served as LUN %s; delete the LUN first (holdfast lun "
                               "delete %s/%s)",
                               name, lun->name, view.name, lun->name);
            break;
        }
    }
    served_view_done(&view);
    return error;
}

int api_volume_delete(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                      struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct change change = {.name = request->name, .reterr = reterr};
    int error = served_change_begin(served, "delete a volume", reterr);
    if (error == OK) {
        error = refuse_mapped(served, request->name, reterr);
        if (error == OK && measure_uses(serve_measure(serve), request->pool, request->name)) {
            error = errmsg_set(reterr, ERR_BUSY,
                               "volume %s is being measured (holdfast bench); stop that first",
                               request->name);
        }
        if (error == OK) {
            served_change(served, delete_on_loop, &change);
            error = change.result;
        }
        served_change_end(served);
    }
    served_unref(served);
    if (error == OK) {
        *ret_answer = json_pack("{s:s}", "deleted", request->name);
    }
    return error;
}

/* ---- moving what is there ---- */

struct move {
    const char *name;
    enum profile profile;
    bool dry_run, stop;
    struct engine_profile_change change;
    struct errmsg *reterr;
    int result;
};

static void profile_on_loop(struct engine *engine, void *arg) {
    struct move *move = arg;
    move->result = engine_volume_set_profile(engine, move->name, move->profile, move->dry_run,
                                             &move->change, move->reterr);
}

static void reorder_on_loop(struct engine *engine, void *arg) {
    struct move *move = arg;
    move->result = engine_volume_reorder(engine, move->name, move->stop, move->reterr);
}

static json_t *change_json(const struct engine_profile_change *c, bool dry_run) {
    return json_pack(
        "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "from", profile_name(c->from), "to",
        profile_name(c->to), "dry_run", (int)dry_run, "raw_before_bytes",
        (json_int_t)c->raw_before_bytes, "raw_after_bytes", (json_int_t)c->raw_after_bytes,
        "free_before_bytes", (json_int_t)c->free_before_bytes, "free_meanwhile_bytes",
        (json_int_t)c->free_meanwhile_bytes, "free_after_bytes", (json_int_t)c->free_after_bytes);
}

int api_volume_profile(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                       struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct move move = {
        .name = request->name, .dry_run = schema_bool(request->body, "dry_run"), .reterr = reterr};
    int error = profile_parse(schema_text(request->body, "profile", ""), &move.profile);
    if (error == OK) {
        error = served_change_begin(served, "change the profile of a volume", reterr);
    }
    if (error == OK) {
        served_change(served, profile_on_loop, &move);
        served_change_end(served);
        error = move.result;
    }
    if (error == OK) {
        *ret_answer = change_json(&move.change, move.dry_run);
    }
    served_unref(served);
    return error;
}

int api_volume_reorder(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                       struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct move move = {
        .name = request->name, .stop = schema_bool(request->body, "stop"), .reterr = reterr};
    int error = served_change_begin(served, "reorder a volume", reterr);
    if (error == OK) {
        served_change(served, reorder_on_loop, &move);
        served_change_end(served);
        error = move.result;
    }
    if (error == OK) {
        error = answer_volume(served, request->name, ret_answer, reterr);
    }
    served_unref(served);
    return error;
}
