// SPDX-License-Identifier: MPL-2.0
/* A client on a loop, in virtual time or real: so many requests of one kind kept in flight at a
 * volume door, with their latencies. Requests are made from completions, without fibers. */
#ifndef HOLDFAST_BENCH_MODEL_LOAD_H
#define HOLDFAST_BENCH_MODEL_LOAD_H

#include "bench/histogram.h"
#include "volume/volume.h"

enum { MODEL_WINDOWS = 10 };

enum model_load_phase { LOAD_WARMS_UP, LOAD_COUNTS, LOAD_IS_OVER };

struct model_load {
    struct volume_door *door;
    uint64_t volume_id;
    uint64_t span_bytes; /* from the start of the volume */
    enum volume_op op;   /* VOLUME_READ, VOLUME_WRITE */
    bool noise;          /* what is written; else zeroes */
    uint32_t request_bytes, depth;
    bool random;       /* else from the start of the span, going round */
    uint64_t ramp_ns;  /* not counted; 0 with `requests` */
    uint64_t time_ns;  /* 0: no limit */
    uint64_t requests; /* 0: no limit */
    uint64_t seed;
    /* When to count instead of after ramp_ns, looked at after each request; NULL. */
    enum model_load_phase (*phase)(void *owner);
    void *owner;
};

struct model_load_result {
    uint64_t requests, bytes, failed, elapsed_ns; /* after the ramp */
    int first_error;
    struct bench_histogram latencies;
    uint64_t window[MODEL_WINDOWS]; /* requests in each tenth of time_ns … */
    uint32_t windows;               /* … as many as there were whole ones */
};

/* Fiber: parks until the last request has come back. */
void model_load_run(const struct model_load *load, struct model_load_result *ret_result);

#endif
