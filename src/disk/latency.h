// SPDX-License-Identifier: MPL-2.0
/* How long a disk takes, by kind of I/O and size class, in the last seconds.
 *
 * A histogram has buckets of half an octave from 16 µs to minutes. Each I/O adds LATENCY_ONE to one
 * of them, and now and then everything is made smaller by a quarter, so that what is long ago
 * fades; nothing is allocated. Beside the histograms a disk counts the time in which it had
 * something to do and the work it did in it: what a unit of work takes when there is always some.
 * Plain data. */
#ifndef HOLDFAST_DISK_LATENCY_H
#define HOLDFAST_DISK_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

enum latency_kind { LATENCY_READ, LATENCY_WRITE, LATENCY_DURABLE, LATENCY_FLUSH, LATENCY_KINDS };
enum latency_class { LATENCY_SMALL, LATENCY_MEDIUM, LATENCY_LARGE, LATENCY_CLASSES };

enum { LATENCY_BUCKETS = 48, LATENCY_ONE = 16 };

struct latency_histogram {
    uint32_t count[LATENCY_BUCKETS]; /* in units of 1 / LATENCY_ONE I/Os */
    uint32_t total;
};

struct disk_latency {
    struct latency_histogram of[LATENCY_KINDS][LATENCY_CLASSES];
    uint64_t busy_ns; /* with I/Os outstanding */
    uint64_t units;   /* latency_units() of what came back */
};

/* Up to 16 KiB, up to 128 KiB, more. */
static inline enum latency_class latency_class_of(uint64_t bytes) {
    return bytes <= 16 << 10 ? LATENCY_SMALL : bytes <= 128 << 10 ? LATENCY_MEDIUM : LATENCY_LARGE;
}

/* Work, roughly: what a disk transfers in the time in which it finds a place. */
static inline uint64_t latency_units(uint64_t bytes) {
    return 1 + (bytes >> 16);
}

const char *latency_kind_name(enum latency_kind kind);

uint64_t latency_bucket_ns(uint32_t bucket); /* where it ends */
void latency_add(struct latency_histogram *h, uint64_t ns);
void latency_fade(struct disk_latency *l); /* by a quarter */
/* What `per_mille` of the I/Os took at most; 0: fewer than `least` I/Os are known. */
uint64_t latency_quantile(const struct latency_histogram *h, uint32_t per_mille, uint32_t least);

#endif
