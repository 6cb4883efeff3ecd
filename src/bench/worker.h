// SPDX-License-Identifier: MPL-2.0
/* One thread that keeps a queue to a target full, and measures.
 *
 * Theory. Closed loop: as many commands are under way as the queue is deep; when one completes, its
 * slot begins the next. What completes in [from, until) is counted, with the latency since it was
 * begun, so the figure is exactly what was completed in the measured time, and commands begun while
 * warming up are not lost. The clock is shared by all threads of a run, so their figures add up.
 *
 * Data that is written is random, and each 4 KiB of it begins with a number never used twice by
 * this process, so that it neither compresses nor deduplicates.
 *
 * Owned by the thread that made it, but while its own thread runs only the atomics may be read. */
#ifndef HOLDFAST_BENCH_WORKER_H
#define HOLDFAST_BENCH_WORKER_H

#include <stdatomic.h>

#include "bench/histogram.h"
#include "bench/job.h"
#include "bench/target.h"

/* When to measure; shared by the workers of a run. */
struct bench_clock {
    _Atomic uint64_t from_ns, until_ns;
};

struct bench_worker_options {
    struct bench_target *target; /* its alone while it runs */
    struct bench_clock *clock;
    enum bench_operation operation;
    bool is_random, once;
    uint32_t read_percent, block_bytes, depth;
    uint32_t streams;
    uint64_t offset, bytes;               /* its part; of a copy: where it writes */
    uint64_t source_offset, source_bytes; /* of a copy: where it reads */
    uint64_t seed;
};

struct bench_worker;

struct bench_worker *bench_worker_new(const struct bench_worker_options *options);
/* ERR_AGAIN when no thread can be had. */
HF_MUST_CHECK int bench_worker_start(struct bench_worker *worker);
/* Operations completed so far, measured or not; whether it has ended (or failed). */
uint64_t bench_worker_completed(const struct bench_worker *worker);
bool bench_worker_has_ended(const struct bench_worker *worker);
bool bench_worker_has_failed(const struct bench_worker *worker);
void bench_worker_join(struct bench_worker *worker);

/* After bench_worker_join(). */
struct bench_worker_report {
    int error; /* the target's `why` tells more */
    uint64_t operations;
    uint64_t last_ns; /* when the last one that counts completed */
    double busy;      /* share of the time that the thread ran or waited for a core */
    const struct bench_histogram *histogram;
    const uint64_t *seconds; /* operations in each second, the last of which may be a part of one */
    uint32_t second_count;
};

void bench_worker_report(const struct bench_worker *worker, struct bench_worker_report *ret);
/* Also while commands are under way that the target does not end: their memory then stays. NULL is
 * allowed. */
void bench_worker_free(struct bench_worker *worker);

#endif
