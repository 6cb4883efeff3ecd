// SPDX-License-Identifier: MPL-2.0
#include "base/rng.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

void rng_init(struct rng *rng, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        rng->state[i] = splitmix64(&seed);
    }
}

uint64_t rng_next(struct rng *rng) {
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* Lemire's multiplication; the bias of bound / 2^64 does not matter here. */
uint64_t rng_below(struct rng *rng, uint64_t bound) {
    ASSERT_LT(0, bound);
    return (uint64_t)(((uint128)rng_next(rng) * bound) >> 64);
}

uint64_t rng_between(struct rng *rng, uint64_t lo, uint64_t hi) {
    ASSERT_LE(lo, hi);
    return hi - lo == UINT64_MAX ? rng_next(rng) : lo + rng_below(rng, hi - lo + 1);
}

bool rng_chance(struct rng *rng, uint32_t numerator, uint32_t denominator) {
    return rng_below(rng, denominator) < numerator;
}

void rng_fill(struct rng *rng, void *ret_bytes, size_t bytes) {
    uint8_t *out = ret_bytes;
    while (bytes > 0) {
        uint64_t word = rng_next(rng);
        size_t n = bytes < sizeof(word) ? bytes : sizeof(word);
        memcpy(out, &word, n);
        out += n;
        bytes -= n;
    }
}
