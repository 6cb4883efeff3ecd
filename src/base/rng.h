// SPDX-License-Identifier: MPL-2.0
/* A small deterministic generator (xoshiro256**, Blackman and Vigna 2018; seeded by splitmix64)
 * for simulation, tests and jitter. Never for secrets: those come from env_random(). */
#ifndef HOLDFAST_BASE_RNG_H
#define HOLDFAST_BASE_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_init(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound);             /* [0, bound), bound ≥ 1 */
uint64_t rng_between(struct rng *rng, uint64_t lo, uint64_t hi); /* [lo, hi] */
bool rng_chance(struct rng *rng, uint32_t numerator, uint32_t denominator);
void rng_fill(struct rng *rng, void *ret_bytes, size_t bytes);

#endif
