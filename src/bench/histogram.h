// SPDX-License-Identifier: MPL-2.0
/* A histogram of latencies: exact enough at every scale, and small.
 *
 * Buckets are linear within each power of two (the idea of Gil Tene's HdrHistogram): the 7 bits
 * after the highest one tell buckets apart, so a bucket is at most 1/128 = 0.8 % wide, from one
 * nanosecond to five centuries, in 7,424 counters. Count, sum and worst are kept exactly. */
#ifndef HOLDFAST_BENCH_HISTOGRAM_H
#define HOLDFAST_BENCH_HISTOGRAM_H

#include <stdint.h>

#include "bench/result.h"

enum { HISTOGRAM_BITS = 7, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS };

struct bench_histogram {
    uint64_t count, sum_ns, worst_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void bench_histogram_add(struct bench_histogram *histogram, uint64_t ns);
void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from);
/* The upper end of the bucket that holds the value below or at which `part` (0 to 1) of all lie;
 * never more than the worst. 0 when there are none. */
uint64_t bench_histogram_quantile_ns(const struct bench_histogram *histogram, double part);
/* Mean, percentiles, worst, and the buckets that are not empty. */
void bench_histogram_report(const struct bench_histogram *histogram, struct bench_result *result);

#endif
