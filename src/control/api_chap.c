// SPDX-License-Identifier: MPL-2.0
/* CHAP users of a pool. No answer holds a secret. */
#include <stdio.h>
#include <string.h>

#include "codec/digest.h"
#include "control/api.h"

static json_t *user_json(const struct served_view *view, const struct chap_record *user) {
    json_t *luns = json_array();
    for (uint32_t i = 0; i < view->snapshot->lun_count; i++) {
        const struct lun_record *lun = &view->snapshot->luns[i];
        bool uses = false;
        for (uint32_t r = 0; r < lun->rule_count; r++) {
            uses |= strcmp(lun->rules[r].user, user->name) == 0;
        }
        if (uses) {
            (void)json_array_append_new(luns, json_string(lun->name));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "pool", view->name, "name", user->name, "mutual_name",
                     user->mutual_name, "luns", luns);
}

static const struct chap_record *find_user(const struct served_snapshot *snapshot,
                                           const char *name) {
    for (uint32_t i = 0; snapshot != NULL && i < snapshot->user_count; i++) {
        if (strcmp(snapshot->users[i].name, name) == 0) {
            return &snapshot->users[i];
        }
    }
    return NULL;
}

int api_chap_list(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                  struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct served_view view;
    json_t *list = json_array();
    served_look(served, &view);
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->user_count; i++) {
        (void)json_array_append_new(list, user_json(&view, &view.snapshot->users[i]));
    }
    served_view_done(&view);
    served_unref(served);
    *ret_answer = json_pack("{s:o}", "users", list);
    return OK;
}

/* The users as recorded now are the users from now on. Inside a change. */
static int put_in_force(struct serve *serve, struct served *served, struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    int error = view.snapshot == NULL || view.stale
                    ? errmsg_set(reterr, ERR_AGAIN,
                                 "pool %s does not answer just now: what was "
                                 "changed is recorded and not yet in force",
                                 view.name)
                    : targets_users(serve_targets(serve), view.name, view.snapshot->users,
                                    view.snapshot->user_count, reterr);
    served_view_done(&view);
    return error;
}

/* ---- set ---- */

/* What proves us to one must not be what proves somebody to us: whoever knew the one could do the
 * other (RFC 7143 §9.2.1). */
static int check_secrets(const struct served_snapshot *snapshot, const struct chap_record *record,
                         struct errmsg *reterr) {
    for (uint32_t i = 0; i < snapshot->user_count; i++) {
        const struct chap_record *other = &snapshot->users[i];
        if (strcmp(other->name, record->name) != 0 &&
            (strcmp(other->secret, record->mutual_secret) == 0 ||
             strcmp(other->mutual_secret, record->secret) == 0)) {
            return errmsg_set(
                reterr, ERR_INVALID,
                "CHAP user %s: a secret that one side proves itself with is the other "
                "side's for user %s; choose different ones",
                record->name, other->name);
        }
    }
    return OK;
}

static int complete_record(const struct api_request *request, const struct served_view *view,
                           struct chap_record *ret_record, struct errmsg *reterr) {
    const json_t *body = request->body;
    struct chap_record record = {0};
    (void)snprintf(record.name, sizeof(record.name), "%s", schema_text(body, "name", ""));
    (void)snprintf(record.secret, sizeof(record.secret), "%s", schema_text(body, "secret", ""));
    (void)snprintf(record.mutual_name, sizeof(record.mutual_name), "%s",
                   schema_text(body, "mutual_name", ""));
    (void)snprintf(record.mutual_secret, sizeof(record.mutual_secret), "%s",
                   schema_text(body, "mutual_secret", ""));
    struct iscsi_user user = chap_user(&record);
    int error = iscsi_user_check(&user, reterr);
    if (error == OK && (record.mutual_name[0] != '\0') != (record.mutual_secret[0] != '\0')) {
        error = errmsg_set(reterr, ERR_INVALID,
                           "CHAP user %s: mutual authentication needs a name and a secret",
                           record.name);
    }
    if (error == OK && (view->snapshot == NULL || view->stale)) {
        error = errmsg_set(reterr, ERR_AGAIN, "pool %s does not answer just now", request->pool);
    }
    if (error == OK) {
        error = check_secrets(view->snapshot, &record, reterr);
    }
    if (error == OK && find_user(view->snapshot, record.name) == NULL &&
        view->snapshot->user_count >= ISCSI_USERS_MAX) {
        error = errmsg_set(reterr, ERR_LIMIT, "pool %s has %u CHAP users, which is all it may have",
                           request->pool, ISCSI_USERS_MAX);
    }
    if (error == OK) {
        *ret_record = record;
    }
    secret_wipe(&record, sizeof(record));
    return error;
}

static int set_user(struct serve *serve, struct served *served, const struct api_request *request,
                    struct errmsg *reterr) {
    struct chap_record record = {0};
    struct served_view view;
    served_look(served, &view);
    int error = complete_record(request, &view, &record, reterr);
    served_view_done(&view);
    if (error != OK) {
        return error;
    }
    char *blob = chap_record_encode(&record);
    error = served_record(served, CHAP_RECORD_KIND, record.name, blob, reterr);
    chap_text_free(blob);
    secret_wipe(&record, sizeof(record));
    return error == OK ? put_in_force(serve, served, reterr) : error;
}

int api_chap_set(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                 struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = served_change_begin(served, "set a CHAP user", reterr);
    if (error == OK) {
        error = set_user(serve, served, request, reterr);
        served_change_end(served);
    }
    if (error == OK) {
        struct served_view view;
        served_look(served, &view);
        const struct chap_record *user =
            find_user(view.snapshot, schema_text(request->body, "name", ""));
        *ret_answer = user != NULL ? user_json(&view, user) : json_object();
        served_view_done(&view);
    }
    served_unref(served);
    return error;
}

/* ---- delete ---- */

static int refuse_used(struct served *served, const char *name, struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    int error =
        find_user(view.snapshot, name) != NULL
            ? OK
            : errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no CHAP user %s", view.name, name);
    for (uint32_t i = 0; error == OK && view.snapshot != NULL && i < view.snapshot->lun_count;
         i++) {
        const struct lun_record *lun = &view.snapshot->luns[i];
        for (uint32_t r = 0; error == OK && r < lun->rule_count; r++) {
            if (strcmp(lun->rules[r].user, name) == 0) {
                error = errmsg_set(reterr, ERR_BUSY,
                                   "CHAP user %s is on the access list of LUN %s; take it off "
                                   "first (holdfast lun unmap %s/%s)",
                                   name, lun->name, view.name, lun->name);
            }
        }
    }
    served_view_done(&view);
    return error;
}

int api_chap_delete(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = served_change_begin(served, "delete a CHAP user", reterr);
    if (error == OK) {
        error = refuse_used(served, request->name, reterr);
        if (error == OK) {
            error = served_record(served, CHAP_RECORD_KIND, request->name, NULL, reterr);
        }
        error = error == OK ? put_in_force(serve, served, reterr) : error;
        served_change_end(served);
    }
    served_unref(served);
    if (error == OK) {
        *ret_answer = json_pack("{s:s}", "deleted", request->name);
    }
    return error;
}
