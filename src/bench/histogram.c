// SPDX-License-Identifier: MPL-2.0
#include "bench/histogram.h"

#include <math.h>

#include "base/math.h"
#include "base/mem.h"

static uint32_t bucket_of(uint64_t ns) {
    if (ns < 1u << HISTOGRAM_BITS) {
        return (uint32_t)ns;
    }
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - HISTOGRAM_BITS;
    return ((shift + 1) << HISTOGRAM_BITS) +
           (uint32_t)((ns >> shift) & ((1u << HISTOGRAM_BITS) - 1));
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_upper(uint32_t bucket) {
    uint32_t power = bucket >> HISTOGRAM_BITS, low = bucket & ((1u << HISTOGRAM_BITS) - 1);
    if (power == 0) {
        return low;
    }
    uint32_t shift = power - 1;
    return ((uint64_t)(low + (1u << HISTOGRAM_BITS)) << shift) + ((1ull << shift) - 1);
}

void bench_histogram_add(struct bench_histogram *histogram, uint64_t ns) {
    histogram->count++;
    histogram->sum_ns += ns;
    histogram->worst_ns = MAX(histogram->worst_ns, ns);
    histogram->buckets[bucket_of(ns)]++;
}

void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from) {
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    into->worst_ns = MAX(into->worst_ns, from->worst_ns);
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

uint64_t bench_histogram_quantile_ns(const struct bench_histogram *histogram, double part) {
    uint64_t seen = 0, wanted = (uint64_t)ceil(part * (double)histogram->count);
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && seen >= wanted) {
            return MIN(bucket_upper(i), histogram->worst_ns);
        }
    }
    return histogram->worst_ns;
}

void bench_histogram_report(const struct bench_histogram *h, struct bench_result *result) {
    uint32_t used = 0;
    result->mean_us = h->count > 0 ? (double)h->sum_ns / (double)h->count / 1e3 : 0;
    result->p50_us = (double)bench_histogram_quantile_ns(h, 0.5) / 1e3;
    result->p99_us = (double)bench_histogram_quantile_ns(h, 0.99) / 1e3;
    result->p999_us = (double)bench_histogram_quantile_ns(h, 0.999) / 1e3;
    result->p9999_us = (double)bench_histogram_quantile_ns(h, 0.9999) / 1e3;
    result->worst_us = (double)h->worst_ns / 1e3;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        used += h->buckets[i] > 0;
    }
    mem_free(result->buckets);
    result->buckets = used > 0 ? MEM_NEW_ARRAY(struct bench_bucket, used) : NULL;
    result->bucket_count = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (h->buckets[i] > 0) {
            result->buckets[result->bucket_count++] = (struct bench_bucket){
                (double)MIN(bucket_upper(i), h->worst_ns) / 1e3, h->buckets[i]};
        }
    }
}
