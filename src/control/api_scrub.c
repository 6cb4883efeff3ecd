// SPDX-License-Identifier: MPL-2.0
/* The scrub of a pool: beginning and stopping it, its schedule, its report. */
#include "base/mem.h"
#include "control/answer.h"
#include "control/api.h"
#include "format/layout.h"

static const char *volume_name(const struct served_snapshot *snapshot, uint64_t id) {
    for (uint32_t i = 0; i < snapshot->volume_count; i++) {
        if (snapshot->volumes[i].id == id) {
            return snapshot->volumes[i].name;
        }
    }
    return "";
}

/* Of no volume's data (parity, metadata) is what has no name. */
static json_t *ranges_json(const struct served_snapshot *snapshot,
                           const struct engine_range *ranges, uint32_t count, bool disks) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_range *r = &ranges[i];
        json_t *range =
            json_pack("{s:o, s:I, s:I}", "volume", answer_text(volume_name(snapshot, r->volume)),
                      "offset_bytes", (json_int_t)(r->block * BLOCK_BYTES), "length_bytes",
                      (json_int_t)(r->count * BLOCK_BYTES));
        if (disks && r->member < snapshot->status.disk_count) {
            (void)json_object_set_new(range, "disk",
                                      answer_text(snapshot->status.disks[r->member].path));
        }
        (void)json_array_append_new(list, range);
    }
    return list;
}

static json_t *disks_json(const struct served_snapshot *snapshot) {
    json_t *list = json_array();
    for (uint32_t m = 0; m < snapshot->status.disk_count && m < POOL_DISKS_MAX; m++) {
        if (snapshot->scrub.repaired_on[m] > 0) {
            (void)json_array_append_new(
                list, json_pack("{s:o, s:I}", "path", answer_text(snapshot->status.disks[m].path),
                                "repaired_blocks", (json_int_t)snapshot->scrub.repaired_on[m]));
        }
    }
    return list;
}

json_t *api_scrub_json(const struct served_snapshot *snapshot) {
    const struct engine_scrub_status *st = &snapshot->scrub;
    uint64_t percent = st->rows_total == 0 ? 100 : st->rows_done * 100 / st->rows_total;
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"every_days", st->days},
        {"started_unix", st->started_wall_ns / NS_PER_S},
        {"ended_unix", st->ended_wall_ns / NS_PER_S},
        {"percent", percent > 100 ? 100 : percent},
        {"remaining_seconds", st->remaining_ns / NS_PER_S},
        {"read_bytes", st->bytes_read},
        {"wrong_blocks", st->wrong},
        {"repaired_blocks", st->repaired},
        {"lost_blocks", st->lost_blocks},
        {"lost_headers", st->headers_lost},
        {"lost_metadata", st->meta_lost},
        {"skipped_columns", st->skipped_columns},
    };
    json_t *object = json_object();
    (void)json_object_set_new(object, "running", json_boolean(st->running));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void)json_object_set_new(object, numbers[i].key,
                                  json_integer((json_int_t)numbers[i].value));
    }
    (void)json_object_set_new(object, "disks", disks_json(snapshot));
    (void)json_object_set_new(object, "touched",
                              ranges_json(snapshot, st->touched, st->touched_count, true));
    (void)json_object_set_new(object, "lost",
                              ranges_json(snapshot, st->lost, st->lost_count, false));
    return object;
}

struct wish {
    bool stop, schedule;
    uint32_t days;
    struct errmsg *reterr;
    int result;
};

static void wish_run(struct engine *engine, void *arg) {
    struct wish *w = arg;
    w->result = w->schedule ? engine_scrub_schedule(engine, w->days, w->reterr)
                            : engine_scrub(engine, w->stop, w->reterr);
}

int api_pool_scrub(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr) {
    struct wish w = {.stop = schema_bool(request->body, "stop"), .reterr = reterr};
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    w.schedule = json_object_get(request->body, "every_days") != NULL;
    w.days = (uint32_t)schema_uint(request->body, "every_days", 0);
    int error = served_change_begin(served, "scrub", reterr);
    if (error == OK) {
        served_change(served, wish_run, &w);
        served_change_end(served);
        error = w.result;
    }
    if (error == OK) {
        struct served_view view;
        served_look(served, &view);
        *ret_answer = api_pool_json(&view);
        served_view_done(&view);
    }
    served_unref(served);
    return error;
}
