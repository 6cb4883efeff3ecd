// SPDX-License-Identifier: MPL-2.0
/* What the benchmarks share: a load on a volume (so many requests of one kind kept in flight), the
 * spread of its latencies, and how figures are printed.
 *
 * A load runs on the engine's own loop: its requests are made from completions, without fibers, so
 * that what is measured is the engine and little else. */
#ifndef HOLDFAST_PERF_LOAD_H
#define HOLDFAST_PERF_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/rng.h"
#include "engine/engine.h"

/* ---- latencies: buckets of 1/16 of an octave ---- */

enum { SPREAD_SUB = 16, SPREAD_BUCKETS = 64 * SPREAD_SUB };

struct spread {
    uint64_t count, sum_ns, worst_ns;
    uint32_t bucket[SPREAD_BUCKETS];
};

void spread_add(struct spread *spread, uint64_t ns);
/* Upper edge of the bucket below which `per_mille` of all lie. */
uint64_t spread_at(const struct spread *spread, uint32_t per_mille);

/* ---- loads ---- */

struct load_options {
    struct env *env;
    struct engine *engine;
    uint64_t volume_id, volume_bytes;
    enum volume_op op; /* VOLUME_READ, VOLUME_WRITE */
    uint32_t request_bytes, depth;
    bool random;       /* else from the start of the volume, going round */
    bool zeroes;       /* what is written; else noise */
    uint64_t time_ns;  /* 0: no limit */
    uint64_t requests; /* 0: no limit */
    uint64_t seed;
};

struct load_result {
    uint64_t requests, bytes, failed, elapsed_ns;
    int first_error;
    struct spread spread;
};

/* Fiber: parks until the last request has come back. */
void load_run(const struct load_options *options, struct load_result *ret_result);

/* ---- what the engine did meanwhile ---- */

struct activity {
    uint64_t log_bytes, row_bytes, meta_bytes, cleaned_blocks, disk_written, disk_read;
    uint64_t checkpoints, checkpoint_last_ms, log_waits;
};

void activity_read(struct engine *engine, struct activity *ret_activity);
struct activity activity_since(const struct activity *now, const struct activity *before);

/* ---- printing ---- */

/* One figure: a line for people or, with `json`, an object on one line. `labels` is text for the
 * front of the line, "a=b c=d"; in JSON each becomes a string. */
void figure_print(FILE *out, bool json, const char *labels, const struct load_result *result,
                  const struct activity *activity, double cpu_seconds);

#endif
