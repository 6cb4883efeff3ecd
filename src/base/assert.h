// SPDX-License-Identifier: MPL-2.0
/* Asserts that stay on in release builds. A programmer error stops the process before it can reach
 * a disk; bytes from a disk, a wire or a person are never asserted on, they are validated.
 * An assert that guards one of the design's invariants cites it: INVARIANT(8, …). */
#ifndef HOLDFAST_BASE_ASSERT_H
#define HOLDFAST_BASE_ASSERT_H

#include <stdint.h>

_Noreturn void assert_failed(const char *file, int line, const char *what);
_Noreturn void assert_compare_failed(const char *file, int line, const char *what, uint64_t a,
                                     uint64_t b);

#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) {                                                        \
            assert_failed(__FILE__, __LINE__, #cond);                                              \
        }                                                                                          \
    } while (0)

#define ASSERT_CMP(a, op, b)                                                                       \
    do {                                                                                           \
        uint64_t assert_a_ = (uint64_t)(a), assert_b_ = (uint64_t)(b);                             \
        if (__builtin_expect(!(assert_a_ op assert_b_), 0)) {                                      \
            assert_compare_failed(__FILE__, __LINE__, #a " " #op " " #b, assert_a_, assert_b_);    \
        }                                                                                          \
    } while (0)

#define ASSERT_EQ(a, b) ASSERT_CMP(a, ==, b)
#define ASSERT_LE(a, b) ASSERT_CMP(a, <=, b)
#define ASSERT_LT(a, b) ASSERT_CMP(a, <, b)

/* `number` is that of docs/ARCHITECTURE.md, "Invariants". */
#define INVARIANT(number, cond)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) {                                                        \
            assert_failed(__FILE__, __LINE__, "invariant " #number ": " #cond);                    \
        }                                                                                          \
    } while (0)

#endif
