// SPDX-License-Identifier: MPL-2.0
/* Histograms of latencies: see latency.h. */
#include "disk/latency.h"

#include "base/assert.h"
#include "base/math.h"

enum { FIRST_SHIFT = 14 }; /* the first bucket ends at 2^14 ns */

const char *latency_kind_name(enum latency_kind kind) {
    static const char *const names[LATENCY_KINDS] = {"read", "write", "durable write", "flush"};
    ASSERT_LT(kind, LATENCY_KINDS);
    return names[kind];
}

uint64_t latency_bucket_ns(uint32_t bucket) {
    uint64_t octave = 1ull << (FIRST_SHIFT + bucket / 2);
    return bucket % 2 == 0 ? octave : octave + octave / 2;
}

static uint32_t bucket_of(uint64_t ns) {
    if (ns <= 1ull << FIRST_SHIFT) {
        return 0;
    }
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ns - 1); /* 2^octave < ns ≤ 2^(octave + 1) */
    uint32_t half = ns - 1 >= (1ull << octave) + (1ull << octave) / 2;
    return MIN((octave - FIRST_SHIFT) * 2 + 1 + half, (uint32_t)LATENCY_BUCKETS - 1);
}

void latency_add(struct latency_histogram *h, uint64_t ns) {
    h->count[bucket_of(ns)] += LATENCY_ONE;
    h->total += LATENCY_ONE;
}

void latency_fade(struct disk_latency *l) {
    for (int k = 0; k < LATENCY_KINDS; k++) {
        for (int c = 0; c < LATENCY_CLASSES; c++) {
            struct latency_histogram *h = &l->of[k][c];
            if (h->total == 0) {
                continue;
            }
            h->total = 0;
            for (int b = 0; b < LATENCY_BUCKETS; b++) {
                h->count[b] = h->count[b] / 4 * 3;
                h->total += h->count[b];
            }
        }
    }
    l->busy_ns = l->busy_ns / 4 * 3;
    l->units = l->units / 4 * 3;
}

uint64_t latency_quantile(const struct latency_histogram *h, uint32_t per_mille, uint32_t least) {
    if (h->total < (uint64_t)least * LATENCY_ONE || h->total == 0) {
        return 0;
    }
    uint64_t wanted = (uint64_t)h->total * per_mille / 1000, sum = 0;
    for (uint32_t b = 0; b < LATENCY_BUCKETS; b++) {
        sum += h->count[b];
        if (sum > 0 && sum >= wanted) {
            return latency_bucket_ns(b);
        }
    }
    return latency_bucket_ns(LATENCY_BUCKETS - 1);
}
