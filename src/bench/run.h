// SPDX-License-Identifier: MPL-2.0
/* Measuring one target by a plan: look whether it may be overwritten, fill the span, then for each
 * group of jobs that run at once, for each queue depth: warm up, measure, again, median. */
#ifndef HOLDFAST_BENCH_RUN_H
#define HOLDFAST_BENCH_RUN_H

#include <stdatomic.h>

#include "bench/job.h"
#include "bench/target.h"

enum {
    BENCH_DEPTHS_MAX = 8,
    BENCH_SECONDS = 60,
    BENCH_RAMP_SECONDS = 15,
    BENCH_RUNS = 3,
    BENCH_QUICK_SECONDS = 5,
    BENCH_QUICK_RAMP_SECONDS = 1,
    BENCH_QUICK_RUNS = 1,
};
#define BENCH_SPAN_BYTES (16ull << 30)

struct bench_options {
    struct bench_target_options target; /* file_bytes, writes: set by bench_run() */
    uint32_t depth_count, depths[BENCH_DEPTHS_MAX];
    uint32_t seconds, ramp_seconds, runs, threads, streams;
    uint64_t span_bytes; /* 0: the default */
    bool read_only, prepared, destroy_data;
    const char *during; /* for the results: what the pool goes through meanwhile; NULL */
};

/* The published defaults. */
void bench_options_init(struct bench_options *options, bool quick);

struct bench_progress {
    const char *phase; /* "preparing", "warming up", "measuring" */
    const char *test;
    uint32_t queue_depth, run, runs; /* run: from 1; 0 while preparing */
    enum bench_unit unit;
    double rate;           /* of the last second */
    double done;           /* of this phase, 0 to 1 */
    uint64_t left_seconds; /* until all of this target is measured; an estimate */
};

struct bench_watcher {
    void (*note)(void *owner, const char *text); /* a sentence for people */
    void (*progress)(void *owner, const struct bench_progress *progress);
    /* When the span is filled and before anything is measured; may refuse. NULL. */
    int (*prepared)(void *owner, struct errmsg *reterr);
    void *owner;
    const atomic_bool *stop; /* set by anybody, also by a signal: end in good order */
};

/* Measures, on this thread and others. The document holds what was measured also when it fails or
 * is stopped (ERR_CANCELLED); done with bench_document_done() in every case. Errors name the
 * target. */
HF_MUST_CHECK int bench_run(const struct bench_options *options, const struct bench_plan *plan,
                            const struct bench_watcher *watcher,
                            struct bench_document *ret_document, struct errmsg *reterr);

/* The slowest whole second divided by the median of all whole seconds; 1 for fewer than two. */
double bench_steadiness(const double *seconds, uint32_t count);
/* `extent` of [0, span) in whole blocks. ERR_RANGE when nothing is left. */
HF_MUST_CHECK int bench_extent_place(const struct bench_extent *offset,
                                     const struct bench_extent *size, uint64_t span_bytes,
                                     uint32_t block_bytes, uint64_t *ret_offset,
                                     uint64_t *ret_bytes);

#endif
