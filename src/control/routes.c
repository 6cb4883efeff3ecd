// SPDX-License-Identifier: MPL-2.0
#include "control/routes.h"

#include <stdio.h>
#include <string.h>

#include "bench/run.h"
#include "control/chap.h"
#include "control/event.h"
#include "format/layout.h"

#define MIB (1ull << 20)
#define TIB (1ull << 40)

static const struct field fields_none[] = {{NULL}};

static const struct field fields_paths[] = {{"paths", FIELD_PATHS, true, 1, 256}, {NULL}};

static const struct field fields_pool_create[] = {
    {"name", FIELD_NAME, true},
    {"disks", FIELD_PATHS, false, 1, POOL_DISKS_MAX}, /* block devices, or files that exist */
    {"files", FIELD_PATHS, false, 1, POOL_DISKS_MAX}, /* made sparse when they do not exist */
    {"file_size_bytes", FIELD_SIZE, false, 16 * MIB, 1024 * TIB},
    {"force", FIELD_BOOL, false},
    {NULL}};

static const struct field fields_pool_destroy[] = {{"confirm", FIELD_NAME, true}, {NULL}};

static const struct field fields_pool_import[] = {{"paths", FIELD_PATHS, false, 1, 256},
                                                  {"force_quorum", FIELD_BOOL, false},
                                                  {"force_host", FIELD_BOOL, false},
                                                  {"force_data_loss", FIELD_BOOL, false},
                                                  {NULL}};

/* Nothing: begin one. */
static const struct field fields_pool_scrub[] = {
    {"stop", FIELD_BOOL, false}, {"every_days", FIELD_UINT, false, 0, 3650}, {NULL}};
/* A disk of the pool: its number, its path or the last part of it, or its uuid. */
#define DISK                                                                                       \
    { "disk", FIELD_TEXT, true, 1, 255 }
#define ONE_PATH(required)                                                                         \
    { "paths", FIELD_PATHS, required, 1, 1 }

static const struct field fields_disk_add[] = {ONE_PATH(true),
                                               {"spare", FIELD_BOOL, false},
                                               {"force", FIELD_BOOL, false},
                                               {"dry_run", FIELD_BOOL, false},
                                               {NULL}};

static const struct field fields_disk_replace[] = {
    DISK, ONE_PATH(true), {"force", FIELD_BOOL, false}, {"dry_run", FIELD_BOOL, false}, {NULL}};

static const struct field fields_disk_remove[] = {
    DISK, {"force", FIELD_BOOL, false}, {"dry_run", FIELD_BOOL, false}, {NULL}};

static const struct field fields_disk_keep[] = {DISK, {NULL}};

static const struct field fields_disk_return[] = {DISK, ONE_PATH(false), {NULL}};

static const struct field fields_volume_create[] = {
    {"name", FIELD_NAME, true},
    {"size_bytes", FIELD_SIZE, true, 1 * MIB, 64 * TIB},
    {"profile", FIELD_PROFILE, false},
    {"block_bytes", FIELD_UINT, false, 512, 4096},
    {"thick", FIELD_BOOL, false},
    {"sync_standard", FIELD_BOOL, false},
    {NULL}};

static const struct field fields_volume_resize[] = {
    {"size_bytes", FIELD_SIZE, true, 1 * MIB, 64 * TIB}, {NULL}};

static const struct field fields_volume_profile[] = {
    {"profile", FIELD_PROFILE, true}, {"dry_run", FIELD_BOOL, false}, {NULL}};

static const struct field fields_volume_reorder[] = {{"stop", FIELD_BOOL, false}, {NULL}};

static const struct field fields_bench_depth[] = {{"depth", FIELD_UINT, true, 1, JOB_DEPTH_MAX},
                                                  {NULL}};
static const struct field fields_bench_line[] = {{"line", FIELD_TEXT, true, 0, 4096}, {NULL}};
/* As the options of `holdfast bench`. */
static const struct field fields_bench[] = {
    {"workload", FIELD_NAME, false},
    {"job_lines", FIELD_OBJECTS, false, 1, 4096, fields_bench_line}, /* instead: a job file */
    {"queue_depths", FIELD_OBJECTS, false, 1, BENCH_DEPTHS_MAX, fields_bench_depth},
    {"seconds", FIELD_UINT, false, 1, JOB_SECONDS_MAX},
    {"ramp_seconds", FIELD_UINT, false, 0, JOB_SECONDS_MAX},
    {"runs", FIELD_UINT, false, 1, BENCH_RUNS_MAX},
    {"jobs", FIELD_UINT, false, 1, JOB_THREADS_MAX},
    {"streams", FIELD_UINT, false, 1, 256},
    {"span_bytes", FIELD_SIZE, false, 1 * MIB, 64 * TIB},
    {"read_only", FIELD_BOOL, false},
    {"prepared", FIELD_BOOL, false},
    {"destroy_data", FIELD_BOOL, false},
    {"during", FIELD_NAME, false}, /* degraded, rebuild */
    {NULL}};

static const struct field fields_lun_create[] = {{"volume", FIELD_NAME, true},
                                                 {"name", FIELD_NAME, false},
                                                 {"target", FIELD_IQN, false},
                                                 {"lun", FIELD_UINT, false, 0, 255},
                                                 {"closed", FIELD_BOOL, false},
                                                 {"initiator", FIELD_IQN, false},
                                                 {"address", FIELD_ADDRESS, false},
                                                 {"user", FIELD_USER, false},
                                                 {NULL}};

/* One entry of the access list; or all: everybody is let in, or nobody. */
static const struct field fields_lun_map[] = {{"all", FIELD_BOOL, false},
                                              {"initiator", FIELD_IQN, false},
                                              {"address", FIELD_ADDRESS, false},
                                              {"user", FIELD_USER, false},
                                              {NULL}};

#define SECRET ISCSI_SECRET_BYTES_MIN, ISCSI_SECRET_BYTES_MAX

static const struct field fields_chap_set[] = {{"name", FIELD_USER, true},
                                               {"secret", FIELD_TEXT, true, SECRET},
                                               {"mutual_name", FIELD_USER, false},
                                               {"mutual_secret", FIELD_TEXT, false, SECRET},
                                               {NULL}};

static const struct field fields_config[] = {{"secrets", FIELD_BOOL, false}, {NULL}};

/* Those that fit; waits for one if there is none. */
static const struct field fields_events[] = {
    {"pool", FIELD_NAME, false},
    {"severity", FIELD_TEXT, false, 1, 16},
    {"since_unix", FIELD_UINT, false, 0, INT64_MAX / 2},
    {"after", FIELD_UINT, false, 0, INT64_MAX},
    {"wait_seconds", FIELD_UINT, false, 0, EVENT_WAIT_S_MAX},
    {NULL}};

#define POOL "/v1/pools/{pool}"

const struct route routes[ROUTE_COUNT] = {
    {ROUTE_VERSION, "GET", "/v1/version", fields_none, 200},
    {ROUTE_HEALTH, "GET", "/v1/health", fields_none, 200},
    {ROUTE_DISKS, "GET", "/v1/disks", fields_none, 200},
    {ROUTE_IMPORTABLE, "GET", "/v1/importable", fields_none, 200},
    {ROUTE_IMPORTABLE_IN, "POST", "/v1/importable", fields_paths, 200},
    {ROUTE_POOLS, "GET", "/v1/pools", fields_none, 200},
    {ROUTE_POOL_CREATE, "POST", "/v1/pools", fields_pool_create, 201},
    {ROUTE_POOL_STATUS, "GET", POOL, fields_none, 200},
    {ROUTE_POOL_DESTROY, "DELETE", POOL, fields_pool_destroy, 200},
    {ROUTE_POOL_IMPORT, "POST", POOL "/import", fields_pool_import, 200},
    {ROUTE_POOL_EXPORT, "POST", POOL "/export", fields_none, 200},
    {ROUTE_POOL_SCRUB, "POST", POOL "/scrub", fields_pool_scrub, 200},
    {ROUTE_DISK_ADD, "POST", POOL "/disks", fields_disk_add, 201},
    {ROUTE_DISK_REPLACE, "POST", POOL "/disks/replace", fields_disk_replace, 200},
    {ROUTE_DISK_REMOVE, "POST", POOL "/disks/remove", fields_disk_remove, 200},
    {ROUTE_DISK_KEEP, "POST", POOL "/disks/keep", fields_disk_keep, 200},
    {ROUTE_DISK_RETURN, "POST", POOL "/disks/return", fields_disk_return, 200},
    {ROUTE_VOLUMES, "GET", POOL "/volumes", fields_none, 200},
    {ROUTE_VOLUME_CREATE, "POST", POOL "/volumes", fields_volume_create, 201},
    {ROUTE_VOLUME, "GET", POOL "/volumes/{name}", fields_none, 200},
    {ROUTE_VOLUME_RESIZE, "PATCH", POOL "/volumes/{name}", fields_volume_resize, 200},
    {ROUTE_VOLUME_DELETE, "DELETE", POOL "/volumes/{name}", fields_none, 200},
    {ROUTE_VOLUME_PROFILE, "POST", POOL "/volumes/{name}/profile", fields_volume_profile, 200},
    {ROUTE_VOLUME_REORDER, "POST", POOL "/volumes/{name}/reorder", fields_volume_reorder, 200},
    {ROUTE_VOLUME_BENCH, "POST", POOL "/volumes/{name}/bench", fields_bench, 200},
    {ROUTE_BENCH, "GET", "/v1/bench", fields_none, 200},
    {ROUTE_BENCH_STOP, "POST", "/v1/bench/stop", fields_none, 200},
    {ROUTE_LUNS_ALL, "GET", "/v1/luns", fields_none, 200},
    {ROUTE_LUNS, "GET", POOL "/luns", fields_none, 200},
    {ROUTE_LUN_CREATE, "POST", POOL "/luns", fields_lun_create, 201},
    {ROUTE_LUN_DELETE, "DELETE", POOL "/luns/{name}", fields_none, 200},
    {ROUTE_LUN_MAP, "POST", POOL "/luns/{name}/map", fields_lun_map, 200},
    {ROUTE_LUN_UNMAP, "POST", POOL "/luns/{name}/unmap", fields_lun_map, 200},
    {ROUTE_CHAP_LIST, "GET", POOL "/chap", fields_none, 200},
    {ROUTE_CHAP_SET, "POST", POOL "/chap", fields_chap_set, 200},
    {ROUTE_CHAP_DELETE, "DELETE", POOL "/chap/{name}", fields_none, 200},
    {ROUTE_CONFIG, "GET", POOL "/config", fields_none, 200},
    {ROUTE_CONFIG_SECRETS, "POST", POOL "/config", fields_config, 200},
    {ROUTE_SESSIONS, "GET", "/v1/sessions", fields_none, 200},
    {ROUTE_COUNTERS, "GET", "/v1/counters", fields_none, 200},
    {ROUTE_EVENTS, "GET", "/v1/events", fields_none, 200},
    {ROUTE_EVENTS_OF, "POST", "/v1/events", fields_events, 200},
};

/* One path element up to the next '/', without it. */
static size_t element(const char *path) {
    return strcspn(path, "/");
}

/* Whether `path` has the form of `pattern`; the names it has in the pattern's braces. A name that
 * is none (too long, odd characters) matches here and is refused by the caller, in words. */
static bool path_matches(const char *pattern, const char *path, const char *ret_name[2],
                         size_t ret_length[2]) {
    ret_name[0] = ret_name[1] = NULL;
    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        size_t want = element(pattern), have = element(path);
        if (*pattern == '{') {
            int which = pattern[1] == 'p' ? 0 : 1;
            ret_name[which] = path;
            ret_length[which] = have;
        } else if (want != have || memcmp(pattern, path, have) != 0) {
            return false;
        }
        pattern += want;
        path += have;
    }
    return *pattern == '\0' && *path == '\0';
}

static int take_name(const char *what, const char *name, size_t length, char *ret_name,
                     struct errmsg *reterr) {
    bool user = strcmp(what, "CHAP user") == 0;
    char copy[128] = "";
    if (length < sizeof(copy)) {
        memcpy(copy, name, length);
        copy[length] = '\0';
    }
    if (user ? !chap_name_is_valid(copy) : !schema_name_is_valid(copy)) {
        return errmsg_set(reterr, ERR_INVALID, "the path does not name a %s: a name is %s", what,
                          user ? "1 to 127 letters, digits, '.', ':', '_', '@' or '-'"
                               : "a letter, then up to 62 letters, digits, '.', '_' or '-'");
    }
    memcpy(ret_name, copy, strlen(copy) + 1);
    return OK;
}

static const char *what_is_named(const struct route *route) {
    return strstr(route->path, "luns") != NULL   ? "LUN"
           : strstr(route->path, "chap") != NULL ? "CHAP user"
                                                 : "volume";
}

static int refuse_path(const char *path, const char *method, const char *allowed,
                       struct errmsg *reterr) {
    if (allowed[0] != '\0') {
        return errmsg_set(reterr, ERR_NOT_FOUND, "%.100s knows %s, not %.16s", path, allowed,
                          method);
    }
    return errmsg_set(reterr, ERR_NOT_FOUND,
                      "the API has nothing at %.100s (see holdfast-api(7) for what it has)", path);
}

int routes_parse(const char *method, const char *path, const char *body, size_t length,
                 struct api_request *ret_request, struct errmsg *reterr) {
    if (length > ROUTE_BODY_MAX || strlen(path) > ROUTE_PATH_MAX) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "the request is too large (body at most %d bytes, path at most %d)",
                          ROUTE_BODY_MAX, ROUTE_PATH_MAX);
    }
    char allowed[64] = "";
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const struct route *route = &routes[i];
        struct api_request request = {.route = route};
        const char *name[2];
        size_t name_length[2];
        if (!path_matches(route->path, path, name, name_length)) {
            continue;
        }
        if (strcmp(route->method, method) != 0) {
            size_t used = strlen(allowed);
            (void)snprintf(allowed + used, sizeof(allowed) - used, "%s%s", used > 0 ? ", " : "",
                           route->method);
            continue;
        }
        int error = OK;
        if (name[0] != NULL) {
            error = take_name("pool", name[0], name_length[0], request.pool, reterr);
        }
        if (error == OK && name[1] != NULL) {
            error = take_name(what_is_named(route), name[1], name_length[1], request.name, reterr);
        }
        if (error == OK) {
            error = schema_parse(route->fields, body, length, &request.body, reterr);
        }
        if (error == OK) {
            *ret_request = request;
        }
        return error;
    }
    return refuse_path(path, method, allowed, reterr);
}

void api_request_done(struct api_request *request) {
    json_decref(request->body);
    request->body = NULL;
}
