// SPDX-License-Identifier: MPL-2.0
/* One handler for each route, and the handlers that concern the node as a whole. */
#include "control/api.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "control/answer.h"
#include "control/compare.h"
#include "control/disks.h"
#include "control/event.h"

static int api_version(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                       struct errmsg *reterr) {
    (void)serve;
    (void)request;
    (void)reterr;
    *ret_answer =
        json_pack("{s:s, s:s, s:i}", "name", "holdfast", "version", HOLDFAST_VERSION, "api", 1);
    return OK;
}

/* Block devices, with the pool of ours that uses each: a node's `disk list`. */
static int api_disks(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                     struct errmsg *reterr) {
    struct served *pools[SERVE_POOLS_MAX];
    uint32_t count = serve_list(serve, pools);
    json_t *used = json_array(), *list = disks_list(), *disk;
    size_t index;
    (void)request;
    (void)reterr;
    for (uint32_t p = 0; p < count; p++) {
        struct served_view view;
        served_look(pools[p], &view);
        uint32_t disks = view.snapshot == NULL ? 0 : view.snapshot->status.disk_count;
        for (uint32_t i = 0; i < disks && i < POOL_DISKS_MAX; i++) {
            const struct engine_disk_status *status = &view.snapshot->status.disks[i];
            if (status->state == MEMBER_NONE) {
                continue;
            }
            (void)json_array_append_new(
                used, json_pack("{s:o, s:s, s:I, s:s}", "path", answer_text(status->path), "pool",
                                view.name, "size_bytes", (json_int_t)status->size_bytes, "state",
                                api_disk_state(status)));
        }
        served_view_done(&view);
        served_unref(pools[p]);
    }
    json_array_foreach(list, index, disk) {
        const char *path = json_string_value(json_object_get(disk, "path"));
        const char *pool = "", *state = "";
        json_t *member;
        size_t i;
        json_array_foreach(used, i, member) {
            if (strcmp(json_string_value(json_object_get(member, "path")), path) == 0) {
                pool = json_string_value(json_object_get(member, "pool"));
                state = json_string_value(json_object_get(member, "state"));
            }
        }
        (void)json_object_set_new(disk, "pool", json_string(pool));
        (void)json_object_set_new(disk, "state", json_string(state));
    }
    *ret_answer = json_pack("{s:o, s:o}", "disks", list, "members", used);
    return OK;
}

static void add_problem(json_t *problems, const char *pool, const char *text) {
    (void)json_array_append_new(problems,
                                json_pack("{s:s, s:o}", "pool", pool, "text", answer_text(text)));
}

static int api_sessions(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                        struct errmsg *reterr) {
    (void)request;
    (void)reterr;
    *ret_answer = json_pack("{s:o}", "sessions", targets_sessions(serve_targets(serve)));
    return OK;
}

static int api_events(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                      struct errmsg *reterr) {
    const json_t *body = request->body;
    const char *least = schema_text(body, "severity", "info");
    struct event_filter filter = {.pool = schema_text(body, "pool", NULL),
                                  .since_unix_s = (int64_t)schema_uint(body, "since_unix", 0),
                                  .after = schema_uint(body, "after", 0)};
    (void)serve;
    if (!event_severity_parse(least, &filter.least)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"severity\" must be info, warning or error, not \"%.40s\"", least);
    }
    uint64_t last = event_last();
    json_t *list = event_list(&filter, (uint32_t)schema_uint(body, "wait_seconds", 0));
    size_t count = json_array_size(list);
    const json_t *number = json_object_get(json_array_get(list, count - 1), "number");
    /* Where to go on: behind all that was looked at. */
    *ret_answer = json_pack("{s:o, s:I}", "events", list, "last",
                            count > 0 ? json_integer_value(number) : (json_int_t)last);
    return OK;
}

static const char *const severities[] = {"ok", "busy", "degraded", "failed"};

static int severity(const char *health) {
    for (int i = 0; i < 3; i++) {
        if (strcmp(health, severities[i]) == 0) {
            return i;
        }
    }
    return 3;
}

static int api_health(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                      struct errmsg *reterr) {
    struct served *pools[SERVE_POOLS_MAX];
    uint32_t count = serve_list(serve, pools);
    json_t *list = json_array(), *problems = json_array();
    int worst = 0;
    (void)request;
    (void)reterr;
    if (!serve_is_ready(serve)) {
        add_problem(problems, "", "the service is starting: pools are being imported");
        worst = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct served_view view;
        char advice[512];
        served_look(pools[i], &view);
        int health = severity(api_pool_health(&view, advice, sizeof(advice)));
        if (health > 0) {
            add_problem(problems, view.name, advice);
        }
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", view.name, "health", severities[health]));
        worst = health > worst ? health : worst;
        served_view_done(&view);
        served_unref(pools[i]);
    }
    json_t *differences = compare_list(serve_compare(serve));
    worst = json_array_size(differences) > 0 && worst < 2 ? 2 : worst;
    (void)json_array_extend(problems, differences);
    json_decref(differences);
    *ret_answer = json_pack("{s:s, s:o, s:o}", "health", severities[worst], "pools", list,
                            "problems", problems);
    return OK;
}

static api_fn *const handlers[ROUTE_COUNT] = {
    [ROUTE_VERSION] = api_version,
    [ROUTE_HEALTH] = api_health,
    [ROUTE_DISKS] = api_disks,
    [ROUTE_IMPORTABLE] = api_importable,
    [ROUTE_IMPORTABLE_IN] = api_importable,
    [ROUTE_POOLS] = api_pools,
    [ROUTE_POOL_CREATE] = api_pool_create,
    [ROUTE_POOL_STATUS] = api_pool_status,
    [ROUTE_POOL_DESTROY] = api_pool_destroy,
    [ROUTE_POOL_IMPORT] = api_pool_import,
    [ROUTE_POOL_EXPORT] = api_pool_export,
    [ROUTE_POOL_SCRUB] = api_pool_scrub,
    [ROUTE_DISK_ADD] = api_disk_add,
    [ROUTE_DISK_REPLACE] = api_disk_replace,
    [ROUTE_DISK_REMOVE] = api_disk_remove,
    [ROUTE_DISK_KEEP] = api_disk_keep,
    [ROUTE_DISK_RETURN] = api_disk_return,
    [ROUTE_VOLUMES] = api_volumes,
    [ROUTE_VOLUME_CREATE] = api_volume_create,
    [ROUTE_VOLUME] = api_volume,
    [ROUTE_VOLUME_RESIZE] = api_volume_resize,
    [ROUTE_VOLUME_PROFILE] = api_volume_profile,
    [ROUTE_VOLUME_REORDER] = api_volume_reorder,
    [ROUTE_VOLUME_DELETE] = api_volume_delete,
    [ROUTE_VOLUME_BENCH] = api_bench_start,
    [ROUTE_BENCH] = api_bench,
    [ROUTE_BENCH_STOP] = api_bench_stop,
    [ROUTE_LUNS_ALL] = api_luns,
    [ROUTE_LUNS] = api_luns,
    [ROUTE_LUN_CREATE] = api_lun_create,
    [ROUTE_LUN_DELETE] = api_lun_delete,
    [ROUTE_LUN_MAP] = api_lun_map,
    [ROUTE_LUN_UNMAP] = api_lun_unmap,
    [ROUTE_CHAP_LIST] = api_chap_list,
    [ROUTE_CHAP_SET] = api_chap_set,
    [ROUTE_CHAP_DELETE] = api_chap_delete,
    [ROUTE_SESSIONS] = api_sessions,
    [ROUTE_CONFIG] = api_config,
    [ROUTE_CONFIG_SECRETS] = api_config,
    [ROUTE_COUNTERS] = api_counters,
    [ROUTE_EVENTS] = api_events,
    [ROUTE_EVENTS_OF] = api_events,
};

int api_answer(struct serve *serve, const char *method, const char *path, const char *body,
               size_t length, unsigned *ret_status, json_t **ret_answer, struct errmsg *reterr) {
    struct api_request request;
    json_t *answer = NULL;
    int error = routes_parse(method, path, body, length, &request, reterr);
    if (error != OK) {
        return error;
    }
    error = handlers[request.route->id](serve, &request, &answer, reterr);
    if (error == OK) {
        ASSERT(answer != NULL);
        *ret_status = request.route->status;
        *ret_answer = answer;
    }
    api_request_done(&request);
    return error;
}
