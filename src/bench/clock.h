// SPDX-License-Identifier: MPL-2.0
/* Real time, for what is really measured. */
#ifndef HOLDFAST_BENCH_CLOCK_H
#define HOLDFAST_BENCH_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "env/env.h"

static inline uint64_t bench_clock_ns(clockid_t clock) {
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline uint64_t bench_now_ns(void) {
    return bench_clock_ns(CLOCK_MONOTONIC);
}

#endif
