// SPDX-License-Identifier: MPL-2.0
/* Small integer arithmetic. */
#ifndef HOLDFAST_BASE_MATH_H
#define HOLDFAST_BASE_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 uint128;

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                                                                                  \
    __extension__({                                                                                \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    __extension__({                                                                                \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })

static inline uint64_t div_round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit;
}

static inline uint64_t round_up(uint64_t value, uint64_t unit) {
    return div_round_up(value, unit) * unit;
}

static inline uint64_t round_down(uint64_t value, uint64_t unit) {
    return value / unit * unit;
}

static inline bool is_power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

/* Whether [offset, offset + length) lies within [0, size), without overflow. */
static inline bool range_is_within(uint64_t offset, uint64_t length, uint64_t size) {
    return offset <= size && length <= size - offset;
}

#endif
