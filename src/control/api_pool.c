// SPDX-License-Identifier: MPL-2.0
/* Pools: what they are, and how they come and go. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/size.h"
#include "control/answer.h"
#include "control/api.h"
#include "control/erase.h"
#include "control/smart.h"
#include "pool/host.h"

static const char *const error_kinds[DISK_ERROR_KINDS] = {
    [DISK_ERROR_READ] = "read",         [DISK_ERROR_WRITE] = "write",
    [DISK_ERROR_FLUSH] = "flush",       [DISK_ERROR_TIMEOUT] = "timeout",
    [DISK_ERROR_CHECKSUM] = "checksum", [DISK_ERROR_REPAIRED] = "repaired",
};

static void set_uint(json_t *object, const char *key, uint64_t value) {
    (void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *key, const char *value) {
    (void)json_object_set_new(object, key, answer_text(value));
}

void api_uuid_text(const struct uuid *uuid, char ret_text[37]) {
    char *at = ret_text;
    for (int i = 0; i < 16; i++) {
        at += snprintf(at, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       uuid->bytes[i]);
    }
}

/* ---- status ---- */

static json_t *events_json(const struct disk_counters *counters) {
    json_t *events = json_array();
    uint64_t count = counters->event_count;
    for (uint64_t i = count > DISK_EVENTS_KEPT ? count - DISK_EVENTS_KEPT : 0; i < count; i++) {
        const struct disk_event *event = &counters->events[i % DISK_EVENTS_KEPT];
        json_t *object = json_object();
        set_uint(object, "at_unix_ns", event->wall_ns);
        set_text(object, "kind",
                 event->kind < DISK_ERROR_KINDS ? error_kinds[event->kind] : "unknown");
        set_uint(object, "offset_bytes", event->offset_bytes);
        set_uint(object, "length_bytes", event->length_bytes);
        set_text(object, "text", event->text);
        (void)json_array_append_new(events, object);
    }
    return events;
}

const char *api_disk_state(const struct engine_disk_status *disk) {
    return disk->state != MEMBER_IN_SYNC ? "missing" : disk->slow.suspect ? "suspect" : "in sync";
}

/* Microseconds up to which, and how many reads took so long: those of the disk, those of its peers.
 */
static json_t *histogram_json(const struct engine_disk_slow *slow) {
    json_t *list = json_array();
    for (uint32_t b = 0; b < LATENCY_BUCKETS; b++) {
        if (slow->own[b] != 0 || slow->peers[b] != 0) {
            (void)json_array_append_new(list, json_pack("{s:I, s:I, s:I}", "up_to_us",
                                                        (json_int_t)(latency_bucket_ns(b) / 1000),
                                                        "own", (json_int_t)slow->own[b], "peers",
                                                        (json_int_t)slow->peers[b]));
        }
    }
    return list;
}

/* How it compares with its peers; after a suspicion, what was seen then. */
static json_t *slow_json(const struct engine_disk_status *disk) {
    const struct engine_disk_slow *slow = &disk->slow;
    json_t *object = json_object();
    set_uint(object, "read_median_us", slow->read_median_ns / 1000);
    set_uint(object, "read_p99_us", slow->read_tail_ns / 1000);
    set_uint(object, "write_median_us", slow->write_median_ns / 1000);
    set_uint(object, "write_p99_us", slow->write_tail_ns / 1000);
    set_uint(object, "late_ios", disk->counters.slow_ios);
    set_uint(object, "given_up", disk->counters.left);
    set_uint(object, "held_bytes", disk->counters.late_bytes);
    (void)json_object_set_new(object, "suspect", json_boolean(slow->suspect));
    (void)json_object_set_new(object, "held", json_boolean(slow->held));
    set_uint(object, "suspect_seconds", slow->suspect_ns / NS_PER_S);
    if (slow->why[0] != '\0') {
        set_text(object, "why", slow->why);
        set_uint(object, "seen_unix_ns", slow->at_wall_ns);
        (void)json_object_set_new(object, "reads", histogram_json(slow));
    }
    return object;
}

static json_t *disk_json(const struct engine_disk_status *disk, const char *probe) {
    const struct disk_counters *counters = &disk->counters;
    char uuid[37];
    api_uuid_text(&disk->uuid, uuid);
    json_t *object = json_object();
    set_uint(object, "member", disk->member);
    set_text(object, "uuid", uuid);
    set_text(object, "path", disk->path);
    set_text(object, "state", api_disk_state(disk));
    set_text(object, "role", api_disk_role(disk));
    (void)json_object_set_new(object, "present", json_boolean(disk->present));
    set_text(object, "problem",
             probe[0] != '\0'     ? probe
             : disk->slow.suspect ? disk->slow.why
                                  : disk->why);
    set_uint(object, "size_bytes", disk->size_bytes);
    set_uint(object, "used_bytes", disk->used_bytes);
    set_uint(object, "reads", counters->reads);
    set_uint(object, "read_bytes", counters->read_bytes);
    set_uint(object, "writes", counters->writes);
    set_uint(object, "write_bytes", counters->write_bytes);
    set_uint(object, "flushes", counters->flushes);
    set_uint(object, "discards", counters->discards);
    json_t *errors = json_object();
    for (int kind = 0; kind < DISK_ERROR_KINDS; kind++) {
        set_uint(errors, error_kinds[kind], counters->errors[kind]);
    }
    (void)json_object_set_new(object, "errors", errors);
    (void)json_object_set_new(object, "events", events_json(counters));
    (void)json_object_set_new(object, "latency", slow_json(disk));
    json_t *smart = smart_look(disk->path, disk->slow.suspect);
    if (smart != NULL) {
        (void)json_object_set_new(object, "smart", smart);
    }
    return object;
}

static json_t *rebuild_json(const struct engine_rebuild_status *r) {
    json_t *object = json_object();
    (void)json_object_set_new(object, "whole", json_boolean(r->whole));
    (void)json_object_set_new(object, "waiting", json_boolean(r->waiting));
    set_uint(object, "exposed_segments", r->exposed_segments);
    set_uint(object, "left_bytes", r->left_bytes);
    set_uint(object, "done_bytes", r->done_bytes);
    set_uint(object, "bytes_per_second", r->bytes_per_s);
    set_uint(object, "seconds_left", r->left_s);
    set_uint(object, "grace_seconds", r->grace_s);
    return object;
}

static void set_counters(json_t *object, const struct engine_status *s) {
    const struct {
        const char *key;
        uint64_t value;
    } counters[] = {
        {"raw_bytes", s->raw_bytes},
        {"chunk_bytes", s->chunk_bytes},
        {"usable_bytes", s->usable_bytes},
        {"used_bytes", s->used_bytes},
        {"free_bytes", s->free_bytes},
        {"live_blocks", s->live_blocks},
        {"dirty_bytes", s->dirty_bytes},
        {"segments", s->segments},
        {"free_chunks", s->segments_free_chunks},
        {"checkpoints", s->checkpoints},
        {"checkpoint_last_ms", s->checkpoint_last_ms},
        {"mount_generation", s->mount_generation},
        {"config_epoch", s->config_epoch},
        {"log_rows", s->log_rows},
        {"log_bytes", s->log_bytes},
        {"ring_used_pct", s->ring_used_pct},
        {"cleaner_moved_blocks", s->cleaner_moved_blocks},
        {"cleaner_freed_segments", s->cleaner_freed_segments},
        {"reads", s->reads},
        {"writes", s->writes},
        {"read_bytes", s->read_bytes},
        {"write_bytes", s->write_bytes},
        {"unmaps", s->unmaps},
        {"reconstructions", s->reconstructions},
        {"checksum_errors", s->checksum_errors},
        {"repairs", s->repairs},
        {"map_memory_bytes", s->map_memory_bytes},
        {"node_cache_bytes", s->node_cache_bytes},
        {"read_cache_bytes", s->read_cache_bytes},
        {"written_log_bytes", s->bytes_written_log},
        {"written_row_bytes", s->bytes_written_rows},
        {"written_meta_bytes", s->bytes_written_meta},
        {"written_rebuild_bytes", s->bytes_written_rebuild},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        set_uint(object, counters[i].key, counters[i].value);
    }
}

static const char *stage_text(enum served_stage stage) {
    switch (stage) {
    case SERVED_IMPORTING:
        return "importing";
    case SERVED_RUNNING:
        return "served";
    case SERVED_CLOSING:
        return "closing";
    case SERVED_CLOSED:
        return "closed";
    case SERVED_FAILED:
        return "failed";
    }
    return "unknown";
}

/* One truthful state: the engine's own word, and what the engine cannot know. */
const char *api_pool_health(const struct served_view *view, char *ret_advice, size_t advice_bytes) {
    const struct served_snapshot *snapshot = view->snapshot;
    ret_advice[0] = '\0';
    if (view->stage == SERVED_FAILED) {
        (void)snprintf(ret_advice, advice_bytes, "not imported: %s", view->failure.text);
        return "failed";
    }
    if (view->stage != SERVED_RUNNING || snapshot == NULL) {
        (void)snprintf(ret_advice, advice_bytes, "%s%s%s", stage_text(view->stage),
                       view->progress[0] != '\0' ? ": " : "", view->progress);
        return "busy";
    }
    if (view->stale) {
        (void)snprintf(ret_advice, advice_bytes,
                       "the pool's engine has not answered for %u s; what is shown is from then",
                       (unsigned)(view->age_ms / 1000));
        return "failed";
    }
    const char *health = snapshot->status.health;
    (void)snprintf(ret_advice, advice_bytes, "%s", snapshot->status.advice);
    for (uint32_t i = 0; i < snapshot->status.disk_count && i < POOL_DISKS_MAX; i++) {
        if (snapshot->probe[i][0] != '\0' && strcmp(health, "ok") == 0) {
            (void)snprintf(ret_advice, advice_bytes, "%s", snapshot->probe[i]);
            return "degraded";
        }
    }
    if (snapshot->bad_records[0] != '\0' && strcmp(health, "ok") == 0) {
        (void)snprintf(ret_advice, advice_bytes, "%s", snapshot->bad_records);
        return "degraded";
    }
    return health;
}

static json_t *summary_json(const struct served_view *view) {
    char advice[512];
    const char *health = api_pool_health(view, advice, sizeof(advice));
    json_t *object = json_object();
    set_text(object, "name", view->name);
    set_text(object, "stage", stage_text(view->stage));
    set_text(object, "health", health);
    set_text(object, "advice", advice);
    (void)json_object_set_new(object, "stale", json_boolean(view->stale));
    if (view->stage == SERVED_IMPORTING) {
        set_text(object, "progress", view->progress);
        set_uint(object, "percent", view->percent);
    }
    if (view->snapshot != NULL) {
        const struct engine_status *status = &view->snapshot->status;
        set_uint(object, "usable_bytes", status->usable_bytes);
        set_uint(object, "used_bytes", status->used_bytes);
        set_uint(object, "free_bytes", status->free_bytes);
        uint32_t disks = 0;
        for (uint32_t i = 0; i < status->disk_count && i < POOL_DISKS_MAX; i++) {
            disks += status->disks[i].state != MEMBER_NONE;
        }
        set_uint(object, "disk_count", disks);
        set_uint(object, "volume_count", view->snapshot->volume_count);
        set_uint(object, "lun_count", view->snapshot->lun_count);
    }
    return object;
}

json_t *api_pool_json(const struct served_view *view) {
    json_t *object = summary_json(view);
    if (view->snapshot == NULL) {
        return object;
    }
    const struct engine_status *status = &view->snapshot->status;
    char uuid[37];
    api_uuid_text(&status->uuid, uuid);
    set_text(object, "uuid", uuid);
    set_uint(object, "age_ms", view->age_ms);
    set_counters(object, status);
    json_t *disks = json_array();
    for (uint32_t i = 0; i < status->disk_count && i < POOL_DISKS_MAX; i++) {
        if (status->disks[i].state != MEMBER_NONE) {
            (void)json_array_append_new(disks,
                                        disk_json(&status->disks[i], view->snapshot->probe[i]));
        }
    }
    (void)json_object_set_new(object, "disks", disks);
    (void)json_object_set_new(object, "scrub", api_scrub_json(view->snapshot));
    (void)json_object_set_new(object, "rebuild", rebuild_json(&status->rebuild));
    return object;
}

static json_t *look_json(struct served *served) {
    struct served_view view;
    served_look(served, &view);
    json_t *object = api_pool_json(&view);
    served_view_done(&view);
    return object;
}

int api_pools(struct serve *serve, const struct api_request *request, json_t **ret_answer,
              struct errmsg *reterr) {
    struct served *pools[SERVE_POOLS_MAX];
    uint32_t count = serve_list(serve, pools);
    json_t *list = json_array();
    (void)request;
    (void)reterr;
    for (uint32_t i = 0; i < count; i++) {
        struct served_view view;
        served_look(pools[i], &view);
        (void)json_array_append_new(list, summary_json(&view));
        served_view_done(&view);
        served_unref(pools[i]);
    }
    *ret_answer = json_pack("{s:o}", "pools", list);
    return OK;
}

int api_pool_status(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    *ret_answer = look_json(served);
    served_unref(served);
    return OK;
}

/* ---- import, export ---- */

static int import(struct serve *serve, const char *name, const json_t *body, const json_t *paths,
                  json_t **ret_answer, struct errmsg *reterr) {
    struct path_list list = {0};
    serve_search_paths(serve, paths, &list);
    const struct config *config = serve_config(serve);
    const struct served_import_options options = {
        .paths = (const char *const *)list.paths,
        .path_count = list.count,
        .force_quorum = schema_bool(body, "force_quorum"),
        .force_host = schema_bool(body, "force_host"),
        .force_data_loss = schema_bool(body, "force_data_loss"),
        .limits = {.read_cache_bytes = config->read_cache_bytes,
                   .node_cache_bytes = config->node_cache_bytes,
                   .dirty_bytes = config->dirty_bytes,
                   .rebuild_grace_ms = (uint32_t)config->rebuild_grace_s * 1000,
                   .rebuild_share_pct = (uint32_t)config->rebuild_share_pct},
    };
    struct served *served = NULL;
    int error = serve_import(serve, name, &options, &served, reterr);
    path_list_free(&list);
    if (error == OK) {
        *ret_answer = look_json(served);
        served_unref(served);
    }
    return error;
}

int api_pool_import(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    return import(serve, request->pool, request->body, json_object_get(request->body, "paths"),
                  ret_answer, reterr);
}

int api_pool_export(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = served_change_begin(served, "export", reterr);
    if (error == OK) {
        error = serve_export(serve, served, reterr);
        served_change_end(served);
    }
    served_unref(served);
    if (error == OK) {
        *ret_answer = json_pack("{s:s}", "exported", request->pool);
    }
    return error;
}

/* ---- create ---- */

struct create {
    const struct pool_options *options;
    struct errmsg *reterr;
    int result;
};

static void create_fiber(struct env *env, void *arg) {
    struct create *create = arg;
    create->result = engine_create_pool(env, create->options, create->reterr);
}

static void random_fiber(struct env *env, void *arg) {
    env_random(env, arg, sizeof(struct uuid));
}

/* Refuses what holds somebody's data, makes partition tables, creates. */
static int create_on(struct serve *serve, const struct pool_options *options,
                     struct errmsg *reterr) {
    struct pool_host_options host = {
        .paths = options->paths, .path_count = options->path_count, .force = options->force};
    struct create create = {.options = options, .reterr = reterr};
    serve_node_call(serve, random_fiber, &host.random);
    int error = serve_disks_lock(serve, false, reterr);
    if (error != OK) {
        return error;
    }
    error = pool_host_prepare(&host, reterr);
    if (error == OK) {
        serve_node_call(serve, create_fiber, &create);
        error = create.result;
    }
    serve_disks_unlock(serve);
    return error;
}

/* Makes the files that do not exist yet; ret_made[i] tells which. */
static int make_files(const json_t *files, uint64_t size_bytes, bool *ret_made,
                      struct errmsg *reterr) {
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *path = json_string_value(json_array_get(files, i));
        struct stat st;
        if (stat(path, &st) == 0) {
            if (size_bytes != 0 && (uint64_t)st.st_size != size_bytes) {
                return errmsg_set(reterr, ERR_EXISTS,
                                  "%s exists with another size than --file-size; remove it, or "
                                  "leave --file-size out to use it as it is",
                                  path);
            }
            continue;
        }
        if (size_bytes == 0) {
            return errmsg_set(reterr, ERR_INVALID,
                              "%s does not exist; give a size (--file-size 10G) to have it made",
                              path);
        }
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ret_made[i] = fd >= 0;
        if (fd < 0 || ftruncate(fd, (off_t)size_bytes) != 0) {
            int error = error_from_errno(errno);
            (void)errmsg_set(reterr, error, "cannot make %s: %s", path, strerror(errno));
            if (fd >= 0) {
                close(fd);
            }
            return error;
        }
        close(fd);
    }
    return OK;
}

static json_t *all_paths(const json_t *body) {
    json_t *paths = json_array();
    (void)json_array_extend(paths, json_object_get(body, "disks"));
    (void)json_array_extend(paths, json_object_get(body, "files"));
    return paths;
}

static int create(struct serve *serve, const struct api_request *request, const json_t *paths,
                  struct errmsg *reterr) {
    const char *c_paths[POOL_DISKS_MAX];
    bool made[POOL_DISKS_MAX] = {false};
    size_t count = json_array_size(paths);
    if (count == 0 || count > POOL_DISKS_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "a pool needs 1 to %d disks or files, not %zu",
                          POOL_DISKS_MAX, count);
    }
    for (size_t i = 0; i < count; i++) {
        c_paths[i] = json_string_value(json_array_get(paths, i));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(c_paths[i], c_paths[j]) == 0) {
                return errmsg_set(reterr, ERR_INVALID, "%s is given twice", c_paths[i]);
            }
        }
    }
    const json_t *files = json_object_get(request->body, "files");
    int error = make_files(files, schema_uint(request->body, "file_size_bytes", 0), made, reterr);
    if (error == OK) {
        const struct pool_options options = {.name = schema_text(request->body, "name", ""),
                                             .paths = c_paths,
                                             .path_count = (uint32_t)count,
                                             .force = schema_bool(request->body, "force")};
        error = create_on(serve, &options, reterr);
    }
    for (size_t i = 0; error != OK && i < json_array_size(files); i++) {
        if (made[i]) {
            (void)unlink(json_string_value(json_array_get(files, i)));
        }
    }
    return error;
}

int api_pool_create(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    const char *name = schema_text(request->body, "name", "");
    struct served *there = serve_find(serve, name, NULL);
    if (there != NULL) {
        served_unref(there);
        return errmsg_set(reterr, ERR_EXISTS,
                          "there is a pool %s here already; choose another name", name);
    }
    json_t *paths = all_paths(request->body);
    int error = create(serve, request, paths, reterr);
    if (error == OK) {
        error = import(serve, name, NULL, paths, ret_answer, reterr);
        if (error != OK) {
            (void)errmsg_prefix(reterr, "pool %s was created but could not be imported: ", name);
        }
    }
    json_decref(paths);
    return error;
}

/* ---- destroy ---- */

/* A disk that is gone does not keep a pool alive: what cannot be erased is named, and left. */
struct wipe {
    struct served_view view;
    json_t *left; /* disks that could not be erased, and why */
};

static void wipe_fiber(struct env *env, void *arg) {
    struct wipe *wipe = arg;
    const struct engine_status *status = &wipe->view.snapshot->status;
    for (uint32_t i = 0; i < status->disk_count && i < POOL_DISKS_MAX; i++) {
        const struct engine_disk_status *disk = &status->disks[i];
        struct errmsg why = {0};
        if (erase_disk(env, disk->path, &status->uuid, &why) != OK) {
            (void)json_array_append_new(wipe->left,
                                        json_pack("{s:o, s:o}", "path", answer_text(disk->path),
                                                  "message", answer_text(why.text)));
        }
    }
}

int api_pool_destroy(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                     struct errmsg *reterr) {
    if (strcmp(schema_text(request->body, "confirm", ""), request->pool) != 0) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"confirm\" must repeat the pool's name: everything in it will be lost");
    }
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    struct wipe wipe = {.left = json_array()};
    served_look(served, &wipe.view);
    int error = served_change_begin(served, "destroy", reterr);
    if (error == OK) {
        error = serve_export(serve, served, reterr);
        served_change_end(served);
    }
    if (error == OK && wipe.view.snapshot != NULL) {
        error = serve_disks_lock(serve, true, reterr); /* there is no way back from here */
        ASSERT(error == OK);
        serve_node_call(serve, wipe_fiber, &wipe);
        serve_disks_unlock(serve);
    }
    served_view_done(&wipe.view);
    served_unref(served);
    if (error == OK) {
        *ret_answer = json_pack("{s:s, s:O}", "destroyed", request->pool, "not_erased", wipe.left);
    }
    json_decref(wipe.left);
    return error;
}

/* ---- what could be imported ---- */

struct scan {
    const struct path_list *list;
    struct pool_found *found;
    uint32_t count;
    struct errmsg *reterr;
    int result;
};

static void scan_fiber(struct env *env, void *arg) {
    struct scan *scan = arg;
    scan->result = pool_scan(env, (const char *const *)scan->list->paths, scan->list->count,
                             &scan->found, &scan->count, scan->reterr);
}

static json_t *found_json(const struct pool_found *found) {
    char uuid[37];
    api_uuid_text(&found->uuid, uuid);
    json_t *object = json_object();
    set_text(object, "name", found->name);
    set_text(object, "uuid", uuid);
    set_text(object, "host", found->host);
    set_uint(object, "last_used_unix_ns", found->wall_ns);
    (void)json_object_set_new(object, "exported", json_boolean(found->exported));
    set_uint(object, "members", found->members);
    set_uint(object, "present", found->present);
    set_text(object, "missing", found->missing);
    set_text(object, "problem", found->problem);
    return object;
}

int api_importable(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                   struct errmsg *reterr) {
    struct path_list list = {0};
    serve_search_paths(serve, json_object_get(request->body, "paths"), &list);
    struct scan scan = {.list = &list, .reterr = reterr};
    if (list.count > 0) {
        scan.result = serve_disks_lock(serve, false, reterr);
        if (scan.result == OK) {
            serve_node_call(serve, scan_fiber, &scan);
            serve_disks_unlock(serve);
        }
    }
    if (scan.result == OK) {
        json_t *pools = json_array();
        for (uint32_t i = 0; i < scan.count; i++) {
            struct served *served = serve_find(serve, scan.found[i].name, NULL);
            if (served == NULL) {
                (void)json_array_append_new(pools, found_json(&scan.found[i]));
            }
            served_unref(served);
        }
        *ret_answer = json_pack("{s:o, s:i}", "pools", pools, "looked_at", (int)list.count);
    }
    mem_free(scan.found);
    path_list_free(&list);
    return scan.result;
}
