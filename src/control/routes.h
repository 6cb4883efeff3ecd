// SPDX-License-Identifier: MPL-2.0
/* The REST API as a table: method, path, what the body may hold. docs/man/holdfast-api.7 describes
 * it for people.
 *
 * This file knows nothing of pools: bytes go in, a checked request or an error comes out. So it can
 * be tested and fuzzed alone; api.c has one handler for each route. */
#ifndef HOLDFAST_CONTROL_ROUTES_H
#define HOLDFAST_CONTROL_ROUTES_H

#include "control/schema.h"

enum route_id {
    ROUTE_VERSION,
    ROUTE_HEALTH,
    ROUTE_DISKS,
    ROUTE_IMPORTABLE,
    ROUTE_IMPORTABLE_IN,
    ROUTE_POOLS,
    ROUTE_POOL_CREATE,
    ROUTE_POOL_STATUS,
    ROUTE_POOL_DESTROY,
    ROUTE_POOL_IMPORT,
    ROUTE_POOL_EXPORT,
    ROUTE_POOL_SCRUB,
    ROUTE_DISK_ADD,
    ROUTE_DISK_REPLACE,
    ROUTE_DISK_REMOVE,
    ROUTE_DISK_KEEP,
    ROUTE_DISK_RETURN,
    ROUTE_VOLUMES,
    ROUTE_VOLUME_CREATE,
    ROUTE_VOLUME,
    ROUTE_VOLUME_RESIZE,
    ROUTE_VOLUME_DELETE,
    ROUTE_VOLUME_PROFILE,
    ROUTE_VOLUME_REORDER,
    ROUTE_VOLUME_BENCH,
    ROUTE_BENCH,
    ROUTE_BENCH_STOP,
    ROUTE_LUNS_ALL,
    ROUTE_LUNS,
    ROUTE_LUN_CREATE,
    ROUTE_LUN_DELETE,
    ROUTE_LUN_MAP,
    ROUTE_LUN_UNMAP,
    ROUTE_CHAP_LIST,
    ROUTE_CHAP_SET,
    ROUTE_CHAP_DELETE,
    ROUTE_CONFIG,
    ROUTE_CONFIG_SECRETS,
    ROUTE_SESSIONS,
    ROUTE_COUNTERS,
    ROUTE_EVENTS,
    ROUTE_EVENTS_OF,
    ROUTE_COUNT
};

enum {
    ROUTE_BODY_MAX = 64 << 10, /* bytes of a request's body */
    ROUTE_PATH_MAX = 1024,
};

struct route {
    enum route_id id;
    const char *method;
    const char *path;           /* "{pool}" and "{name}" stand for one name each */
    const struct field *fields; /* of the body */
    unsigned status;            /* when it went well */
};

extern const struct route routes[ROUTE_COUNT];

struct api_request {
    const struct route *route;
    char pool[64], name[128]; /* from the path; empty when it has none */
    json_t *body;             /* checked; an empty object when there was none */
};

/* Finds the route and checks everything; api_request_done() afterwards, only if it returned OK. */
HF_MUST_CHECK int routes_parse(const char *method, const char *path, const char *body,
                               size_t length, struct api_request *ret_request,
                               struct errmsg *reterr);
void api_request_done(struct api_request *request);

#endif
