// SPDX-License-Identifier: MPL-2.0
/* LUNs: records of a pool, and what is served of them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "control/answer.h"
#include "control/api.h"

static const struct volume_info *find_volume(const struct served_snapshot *snapshot,
                                             const char *name) {
    for (uint32_t i = 0; snapshot != NULL && i < snapshot->volume_count; i++) {
        if (strcmp(snapshot->volumes[i].name, name) == 0 && !snapshot->volumes[i].deleting) {
            return &snapshot->volumes[i];
        }
    }
    return NULL;
}

static json_t *lun_json(struct serve *serve, const struct served_view *view,
                        const struct lun_record *lun) {
    const struct volume_info *volume = find_volume(view->snapshot, lun->volume);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:i, s:b, s:b, s:o, s:o}", "pool", view->name, "name",
        lun->name, "volume", lun->volume, "target", lun->target, "lun", (int)lun->number,
        "size_bytes", (json_int_t)(volume != NULL ? volume->size_bytes : 0), "block_bytes",
        (int)(volume != NULL ? volume->block_bytes : 0), "served",
        (int)targets_serves(serve_targets(serve), view->name, lun), "open", (int)lun->open,
        "access", lun_rules_json(lun), "portals", targets_portals(serve_targets(serve)));
}

static void append_luns(struct serve *serve, struct served *served, json_t *list) {
    struct served_view view;
    served_look(served, &view);
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->lun_count; i++) {
        (void)json_array_append_new(list, lun_json(serve, &view, &view.snapshot->luns[i]));
    }
    served_view_done(&view);
}

int api_luns(struct serve *serve, const struct api_request *request, json_t **ret_answer,
             struct errmsg *reterr) {
    json_t *list = json_array();
    if (request->pool[0] != '\0') {
        struct served *served = serve_find(serve, request->pool, reterr);
        if (served == NULL) {
            json_decref(list);
            return ERR_NOT_FOUND;
        }
        append_luns(serve, served, list);
        served_unref(served);
    } else {
        struct served *pools[SERVE_POOLS_MAX];
        uint32_t count = serve_list(serve, pools);
        for (uint32_t i = 0; i < count; i++) {
            append_luns(serve, pools[i], list);
            served_unref(pools[i]);
        }
    }
    *ret_answer = json_pack("{s:o}", "luns", list);
    return OK;
}

static int check_user(const struct served_snapshot *snapshot, const char *pool,
                      const struct lun_rule *rule, struct errmsg *reterr) {
    bool found = rule->user[0] == '\0';
    for (uint32_t i = 0; i < snapshot->user_count; i++) {
        found |= strcmp(snapshot->users[i].name, rule->user) == 0;
    }
    return found
               ? OK
               : errmsg_set(reterr, ERR_NOT_FOUND,
                            "pool %s has no CHAP user %s; make one first (holdfast chap set %s/%s "
                            "--secret-file FILE)",
                            pool, rule->user, pool, rule->user);
}

/* ---- create ---- */

/* Fills in what the request leaves out, and refuses what does not go together. */
static int complete_record(const struct api_request *request, const struct served_view *view,
                           struct lun_record *ret_record, struct errmsg *reterr) {
    const json_t *body = request->body;
    const struct served_snapshot *snapshot = view->snapshot;
    struct lun_record record = {0};
    const char *volume = schema_text(body, "volume", "");
    (void)snprintf(record.volume, sizeof(record.volume), "%s", volume);
    (void)snprintf(record.name, sizeof(record.name), "%s", schema_text(body, "name", volume));
    const char *target = schema_text(body, "target", NULL);
    if (target != NULL) {
        (void)snprintf(record.target, sizeof(record.target), "%s", target);
    } else {
        lun_default_target(request->pool, record.target);
    }
    if (find_volume(snapshot, volume) == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND,
                          "pool %s has no volume %s; create it first (holdfast volume create %s/%s "
                          "--size …)",
                          request->pool, volume, request->pool, volume);
    }
    bool taken[LUN_NUMBER_MAX + 1] = {false};
    const char *twin = NULL; /* the volume as another LUN */
    for (uint32_t i = 0; i < snapshot->lun_count; i++) {
        const struct lun_record *other = &snapshot->luns[i];
        if (strcmp(other->name, record.name) == 0) {
            return errmsg_set(reterr, ERR_EXISTS,
                              "pool %s has a LUN %s already; choose another --name", request->pool,
                              record.name);
        }
        twin = strcmp(other->volume, record.volume) == 0 ? other->name : twin;
        taken[other->number] |= strcmp(other->target, record.target) == 0;
    }
    uint64_t number = schema_uint(body, "lun", LUN_NUMBER_MAX + 1);
    if (number <= LUN_NUMBER_MAX && taken[number]) {
        return errmsg_set(reterr, ERR_EXISTS, "target %s has a LUN number %u already",
                          record.target, (unsigned)number);
    }
    if (twin != NULL) {
        return errmsg_set(reterr, ERR_EXISTS,
                          "volume %s is LUN %s already; a second one would know nothing of the "
                          "reservations of the first: reach it through more portals instead",
                          record.volume, twin);
    }
    for (uint32_t free = 0; number > LUN_NUMBER_MAX && free <= LUN_NUMBER_MAX; free++) {
        number = taken[free] ? number : free;
    }
    if (number > LUN_NUMBER_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "target %s has %d LUNs, which is all it may have",
                          record.target, LUN_NUMBER_MAX + 1);
    }
    record.number = (uint32_t)number;
    struct lun_rule rule = lun_rule_of(body);
    record.rule_count = lun_rule_is_empty(&rule) ? 0 : 1;
    record.rules[0] = rule;
    record.open = record.rule_count == 0 && !schema_bool(body, "closed");
    *ret_record = record;
    return check_user(snapshot, request->pool, &rule, reterr);
}

/* Serves first and records then: a record that cannot be served is never made. */
static int create(struct serve *serve, struct served *served, const struct api_request *request,
                  struct lun_record *ret_record, struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    int error =
        view.snapshot == NULL || view.stale
            ? errmsg_set(reterr, ERR_AGAIN, "pool %s does not answer just now", request->pool)
            : complete_record(request, &view, ret_record, reterr);
    if (error == OK) {
        error = targets_add(serve_targets(serve), request->pool, ret_record,
                            find_volume(view.snapshot, ret_record->volume), served_door(served),
                            reterr);
    }
    served_view_done(&view);
    if (error != OK) {
        return error;
    }
    char *blob = lun_record_encode(ret_record);
    error = served_record(served, LUN_RECORD_KIND, ret_record->name, blob, reterr);
    mem_free(blob);
    if (error != OK) {
        targets_remove(serve_targets(serve), request->pool, ret_record->name);
    }
    return error;
}

int api_lun_create(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct lun_record record;
    int error = served_change_begin(served, "create a LUN", reterr);
    if (error == OK) {
        error = create(serve, served, request, &record, reterr);
        served_change_end(served);
    }
    if (error == OK) {
        struct served_view view;
        served_look(served, &view);
        *ret_answer = lun_json(serve, &view, &record);
        served_view_done(&view);
    }
    served_unref(served);
    return error;
}

/* What initiators reserved goes with the LUN. */
struct forget {
    uint64_t volume_id; /* 0: the LUN's volume is not there */
};

static void forget_on_loop(struct engine *engine, void *arg) {
    const struct forget *forget = arg;
    char id[24];
    (void)snprintf(id, sizeof(id), "%" PRIu64, forget->volume_id);
    if (forget->volume_id != 0) {
        (void)!engine_config_delete(engine, VOLUME_RECORD_KIND, id, NULL);
    }
}

static uint64_t volume_of(struct served *served, const char *lun) {
    struct served_view view;
    uint64_t id = 0;
    served_look(served, &view);
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->lun_count; i++) {
        const struct lun_record *record = &view.snapshot->luns[i];
        const struct volume_info *volume = find_volume(view.snapshot, record->volume);
        if (strcmp(record->name, lun) == 0 && volume != NULL) {
            id = volume->id;
        }
    }
    served_view_done(&view);
    return id;
}

int api_lun_delete(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct forget forget = {.volume_id = volume_of(served, request->name)};
    int error = served_change_begin(served, "delete a LUN", reterr);
    if (error == OK) {
        error = served_record(served, LUN_RECORD_KIND, request->name, NULL, reterr);
        if (error == OK) {
            targets_remove(serve_targets(serve), request->pool, request->name);
            served_change(served, forget_on_loop, &forget);
        }
        served_change_end(served);
    }
    served_unref(served);
    if (error == OK) {
        *ret_answer = json_pack("{s:s}", "deleted", request->name);
    }
    return error;
}

/* ---- map, unmap ---- */

static int map_rule(const struct lun_record *before, const struct lun_rule *rule, bool all,
                    struct lun_record *after, struct errmsg *reterr) {
    if (all == !lun_rule_is_empty(rule)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "say who may use LUN %s: an initiator, an address, a user, or all",
                          before->name);
    }
    if (all) {
        *after = (struct lun_record){.number = before->number, .open = true};
        return OK;
    }
    after->open = false;
    if (lun_rule_find(before, rule) < before->rule_count) {
        return OK;
    }
    if (before->rule_count == LUN_RULES_MAX) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "LUN %s has %d entries, which is all it may have; a network or a CHAP "
                          "user can stand for many initiators",
                          before->name, LUN_RULES_MAX);
    }
    after->rules[after->rule_count++] = *rule;
    return OK;
}

static int unmap_rule(const struct lun_record *before, const struct lun_rule *rule, bool all,
                      struct lun_record *after, struct errmsg *reterr) {
    if (all == !lun_rule_is_empty(rule)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "say which entry of LUN %s is to go: its initiator, address and user, or "
                          "all",
                          before->name);
    }
    uint32_t at = all ? 0 : lun_rule_find(before, rule);
    if (!all && at == before->rule_count) {
        return errmsg_set(reterr, ERR_NOT_FOUND,
                          "LUN %s has no such entry%s (holdfast lun list shows which it has)",
                          before->name, before->open ? ": everybody may use it" : "");
    }
    after->open = false;
    after->rule_count = all ? 0 : before->rule_count - 1;
    for (uint32_t i = at; !all && i < after->rule_count; i++) {
        after->rules[i] = before->rules[i + 1];
    }
    return OK;
}

static const struct lun_record *find_lun(const struct served_snapshot *snapshot, const char *name) {
    for (uint32_t i = 0; snapshot != NULL && i < snapshot->lun_count; i++) {
        if (strcmp(snapshot->luns[i].name, name) == 0) {
            return &snapshot->luns[i];
        }
    }
    return NULL;
}

/* What the record is and what it will be. Inside a change. */
static int plan_access(struct served *served, const struct api_request *request, bool map,
                       struct lun_record *ret_before, struct lun_record *ret_after,
                       struct errmsg *reterr) {
    struct served_view view;
    served_look(served, &view);
    const struct lun_record *lun = find_lun(view.snapshot, request->name);
    struct lun_rule rule = lun_rule_of(request->body);
    bool all = schema_bool(request->body, "all");
    int error = OK;
    if (view.snapshot == NULL || view.stale) {
        error = errmsg_set(reterr, ERR_AGAIN, "pool %s does not answer just now", request->pool);
    } else if (lun == NULL) {
        error = errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no LUN %s", request->pool,
                           request->name);
    } else if (map) {
        error = check_user(view.snapshot, request->pool, &rule, reterr);
    }
    if (error == OK) {
        *ret_before = *lun;
        *ret_after = *lun;
        error = map ? map_rule(lun, &rule, all, ret_after, reterr)
                    : unmap_rule(lun, &rule, all, ret_after, reterr);
        memcpy(ret_after->name, lun->name, sizeof(lun->name));
        memcpy(ret_after->volume, lun->volume, sizeof(lun->volume));
        memcpy(ret_after->target, lun->target, sizeof(lun->target));
    }
    served_view_done(&view);
    return error;
}

/* In force first and recorded then, as with create(); taken back when it cannot be recorded. */
static int change_access(struct serve *serve, struct served *served,
                         const struct api_request *request, bool map, struct errmsg *reterr) {
    struct lun_record before, after;
    int error = plan_access(served, request, map, &before, &after, reterr);
    if (error == OK) {
        error = targets_map(serve_targets(serve), request->pool, &after, reterr);
    }
    if (error != OK) {
        return error;
    }
    char *blob = lun_record_encode(&after);
    error = served_record(served, LUN_RECORD_KIND, after.name, blob, reterr);
    mem_free(blob);
    if (error != OK) {
        (void)!targets_map(serve_targets(serve), request->pool, &before, NULL);
    }
    return error;
}

static int answer_access(struct serve *serve, const struct api_request *request, bool map,
                         json_t **ret_answer, struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = served_change_begin(served, "change who may use a LUN", reterr);
    if (error == OK) {
        error = change_access(serve, served, request, map, reterr);
        served_change_end(served);
    }
    if (error == OK) {
        struct served_view view;
        served_look(served, &view);
        const struct lun_record *lun = find_lun(view.snapshot, request->name);
        *ret_answer = lun != NULL ? lun_json(serve, &view, lun) : json_object();
        served_view_done(&view);
    }
    served_unref(served);
    return error;
}

int api_lun_map(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                struct errmsg *reterr) {
    return answer_access(serve, request, true, ret_answer, reterr);
}

int api_lun_unmap(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                  struct errmsg *reterr) {
    return answer_access(serve, request, false, ret_answer, reterr);
}
