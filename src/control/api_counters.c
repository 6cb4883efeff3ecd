// SPDX-License-Identifier: MPL-2.0
/* What has been done, ever since the start, by each pool, LUN and disk: rates are differences of
 * two answers. Plain copies of counters; nothing is reset, and no engine waits for it. */
#include "control/api.h"

#include <string.h>

#include "control/answer.h"

static json_int_t number_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

/* A pool's operations are those of its LUNs. */
static json_t *pool_json(const char *name, const json_t *luns) {
    static const char *const keys[] = {"reads",      "writes",     "read_bytes", "write_bytes",
                                       "operations", "latency_ns", "queue"};
    json_t *object = json_pack("{s:s}", "name", name), *lun;
    size_t index;
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        json_int_t sum = 0;
        json_array_foreach((json_t *)luns, index, lun) {
            const char *pool = json_string_value(json_object_get(lun, "pool"));
            sum += strcmp(pool, name) == 0 ? number_of(lun, keys[k]) : 0;
        }
        (void)json_object_set_new(object, keys[k], json_integer(sum));
    }
    return object;
}

static void append_disks(const struct served_view *view, json_t *list) {
    uint32_t count = view->snapshot == NULL ? 0 : view->snapshot->status.disk_count;
    for (uint32_t i = 0; i < count && i < POOL_DISKS_MAX; i++) {
        const struct engine_disk_status *disk = &view->snapshot->status.disks[i];
        const struct disk_counters *c = &disk->counters;
        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "pool", view->name, "name",
                      answer_text(disk->path), "reads", (json_int_t)c->reads, "writes",
                      (json_int_t)c->writes, "read_bytes", (json_int_t)c->read_bytes, "write_bytes",
                      (json_int_t)c->write_bytes, "operations", (json_int_t)c->answered,
                      "latency_ns", (json_int_t)c->latency_ns, "queue", (json_int_t)c->in_flight));
    }
}

int api_counters(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                 struct errmsg *reterr) {
    struct served *served[SERVE_POOLS_MAX];
    uint32_t count = serve_list(serve, served);
    json_t *pools = json_array(), *disks = json_array();
    (void)request;
    (void)reterr;
    json_t *luns = targets_counters(serve_targets(serve));
    uint64_t at_ns = served_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        struct served_view view;
        served_look(served[i], &view);
        (void)json_array_append_new(pools, pool_json(view.name, luns));
        append_disks(&view, disks);
        served_view_done(&view);
        served_unref(served[i]);
    }
    *ret_answer = json_pack("{s:I, s:o, s:o, s:o}", "at_ns", (json_int_t)at_ns, "pools", pools,
                            "luns", luns, "disks", disks);
    return OK;
}
