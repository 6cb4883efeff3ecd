// SPDX-License-Identifier: MPL-2.0
/* Checksum and copy in one pass.
 *
 * Both are bound by memory, so who wants both should read the source once. The processor's CRC-32C
 * instruction takes eight bytes a cycle, but its result comes after three: a block is therefore cut
 * into three stretches whose checksums run side by side, and that of a stretch is moved over the n
 * bytes behind it by a multiplication with x^(8n) modulo the polynomial. With bits reflected, as
 * the instruction has them, a carry-less product of two words is the product times x, and reducing
 * it by the instruction multiplies by x^32: so the factor is x^(8n - 33).
 *
 * What goes `away` is stored around the processor's cache: the cache need not fetch the memory that
 * is written, and keeps what it has.
 *
 * Other processors, and lengths other than a block's, copy and then look. */
#include <string.h>

#include "codec/crc.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { BLOCK = 4096, STRETCH = 1360 };                   /* 3 × 1360 + 16 */
enum { SHIFT_ONE = 0x3f70cc6f, SHIFT_TWO = 0x5aa1f3cf }; /* over one stretch, and over two */

__attribute__((target("sse4.2,pclmul"))) static uint64_t crc_shift(uint64_t crc, int64_t factor) {
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128(factor), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

typedef void store_fn(__m128i *to, __m128i value);

static inline void store_near(__m128i *to, __m128i value) {
    _mm_storeu_si128(to, value);
}

static inline void store_away(__m128i *to, __m128i value) {
    _mm_stream_si128(to, value);
}

__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t
step(uint64_t crc, const uint8_t *from, uint8_t *to, store_fn *store) {
    uint64_t low, high;
    memcpy(&low, from, sizeof(low));
    memcpy(&high, from + sizeof(low), sizeof(high));
    store((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)(const void *)from));
    return _mm_crc32_u64(_mm_crc32_u64(crc, low), high);
}

__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint32_t
block_copy(uint64_t seed, const uint8_t *from, uint8_t *to, store_fn *store) {
    uint64_t a = _mm_crc32_u64(UINT32_MAX, seed), b = 0, c = 0;
    for (size_t i = 0; i < STRETCH; i += 16) {
        __builtin_prefetch(from + BLOCK +
                           3 * i); /* the next block: the processor sees no page ahead */
        a = step(a, from + i, to + i, store);
        b = step(b, from + STRETCH + i, to + STRETCH + i, store);
        c = step(c, from + 2 * STRETCH + i, to + 2 * STRETCH + i, store);
    }
    c ^= crc_shift(a, SHIFT_TWO) ^ crc_shift(b, SHIFT_ONE);
    c = step(c, from + 3 * STRETCH, to + 3 * STRETCH, store);
    return ~(uint32_t)c;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
block_copy_near(uint64_t seed, const uint8_t *from, uint8_t *to) {
    return block_copy(seed, from, to, store_near);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
block_copy_away(uint64_t seed, const uint8_t *from, uint8_t *to) {
    uint32_t crc = block_copy(seed, from, to, store_away);
    _mm_sfence(); /* whoever is told next, on whatever core, sees it */
    return crc;
}

static bool has_instructions(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#endif

uint32_t crc32c_seeded_copy(uint64_t seed, void *to, const void *from, size_t bytes, bool away) {
#if defined(__x86_64__)
    if (bytes == BLOCK && has_instructions()) {
        return away && (uintptr_t)to % sizeof(__m128i) == 0 ? block_copy_away(seed, from, to)
                                                            : block_copy_near(seed, from, to);
    }
#endif
    (void)away;
    memcpy(to, from, bytes);
    return crc32c_seeded(seed, to, bytes);
}
