// SPDX-License-Identifier: MPL-2.0
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "codec/crc.h"
#include "codec/parity.h"
#include "format/phys.h"
#include "format/profile.h"

static void errors_have_names_and_parents(void **state) {
    (void)state;
    assert_string_equal(error_name(ERR_NO_SPACE), "NO_SPACE");
    assert_int_equal(error_errno(ERR_NO_SPACE), ENOSPC);
    assert_int_equal(error_from_errno(-ENOSPC), ERR_NO_SPACE);
    assert_int_equal(error_from_errno(EXDEV), ERR_IO);
    assert_string_equal(error_name(12345), "UNKNOWN");
    assert_int_equal(error_errno(-9999), EIO);
}

static void errmsg_keeps_the_first_and_takes_prefixes(void **state) {
    (void)state;
    struct errmsg e = {0};
    assert_int_equal(errmsg_set(&e, ERR_BUSY, "disk %d is busy", 3), ERR_BUSY);
    assert_int_equal(errmsg_set(&e, ERR_IO, "later"), ERR_IO);
    assert_int_equal(errmsg_prefix(&e, "pool %s: ", "p"), ERR_BUSY);
    assert_string_equal(e.text, "pool p: disk 3 is busy");
    assert_int_equal(errmsg_set(NULL, ERR_IO, "nobody reads this"), ERR_IO);
}

static void sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int error;
        uint64_t bytes;
    } cases[] = {
        {"0", OK, 0},
        {"512", OK, 512},
        {"4K", OK, 4096},
        {"1.5T", OK, 3ull << 39},
        {"100GiB", OK, 100ull << 30},
        {"2 GB", OK, 2ull << 30},
        {"8E", OK, 8ull << 60},
        {"16E", ERR_RANGE, 0},
        {"99999999999999999999", ERR_RANGE, 0},
        {"", ERR_INVALID, 0},
        {"-1", ERR_INVALID, 0},
        {"1X", ERR_INVALID, 0},
        {"1Gi", ERR_INVALID, 0},
        {"1BB", ERR_INVALID, 0},
        {"0.25K", OK, 256},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t bytes = 0;
        assert_int_equal(size_parse(cases[i].text, &bytes), cases[i].error);
        assert_int_equal(bytes, cases[i].bytes);
    }
    char text[32];
    size_format(1536, text, sizeof(text));
    assert_string_equal(text, "1.50 KiB");
    size_format(10ull << 30, text, sizeof(text));
    assert_string_equal(text, "10.0 GiB");
    size_format(17, text, sizeof(text));
    assert_string_equal(text, "17 B");
}

static void scope_frees_what_was_left(void **state) {
    (void)state;
    uint64_t before = mem_in_use_bytes();
    struct mem_scope scope;
    mem_scope_init(&scope);
    struct mem_scope *previous = mem_scope_enter(&scope);
    mem_free(mem_alloc(100));
    (void)mem_alloc(200);
    struct buf *b = buf_new(5000);
    assert_int_equal(b->bytes, 8192);
    assert_int_equal((uintptr_t)b->data % 4096, 0);
    char *grown = mem_realloc(mem_strdup("abc"), 1000);
    assert_string_equal(grown, "abc");
    mem_scope_enter(previous);
    assert_true(mem_in_use_bytes() >= before + 200 + 8192 + 1000);
    mem_scope_drop(&scope);
    assert_int_equal(mem_in_use_bytes(), before);
}

static void crc_is_castagnoli(void **state) {
    (void)state;
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c_more(crc32c("1234", 4), "56789", 5), 0xe3069283);
    assert_int_not_equal(crc32c_seeded(1, "x", 1), crc32c_seeded(2, "x", 1));
    static uint8_t from[4096 + 8], to[sizeof(from)];
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(i * i >> 3 ^ i);
    }
    static const size_t lengths[] = {0, 1, 512, 4088, 4096, 4104};
    for (uint64_t seed = 1; seed != 0; seed <<= 7) {
        for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
            memset(to, 0, sizeof(to));
            assert_int_equal(crc32c_seeded_copy(seed, to, from, lengths[i], seed % 2 != i % 2),
                             crc32c_seeded(seed, from, lengths[i]));
            assert_memory_equal(to, from, lengths[i]);
        }
    }
}

static void parity_rebuilds_every_pair(void **state) {
    (void)state;
    enum { BYTES = 512 };
    struct rng rng;
    rng_init(&rng, 1);
    for (uint32_t data = 1; data <= 10; data++) {
        for (uint32_t parity = 1; parity <= 2; parity++) {
            uint8_t *want[12], *have[12];
            uint32_t total = data + parity;
            for (uint32_t i = 0; i < total; i++) {
                want[i] = aligned_alloc(64, BYTES);
                have[i] = aligned_alloc(64, BYTES);
                rng_fill(&rng, want[i], BYTES);
            }
            parity_generate(data, parity, BYTES, (void **)want);
            for (uint32_t a = 0; a < total; a++) {
                for (uint32_t b = parity == 2 ? a : total; b <= total; b++) {
                    uint64_t missing = 1ull << a | (b < total ? 1ull << b : 0);
                    for (uint32_t i = 0; i < total; i++) {
                        memcpy(have[i], want[i], BYTES);
                        if ((missing >> i) & 1) {
                            memset(have[i], 0x5a, BYTES);
                        }
                    }
                    assert_int_equal(
                        parity_reconstruct(data, parity, BYTES, (void **)have, missing), OK);
                    for (uint32_t i = 0; i < total; i++) {
                        assert_memory_equal(have[i], want[i], BYTES);
                    }
                }
            }
            uint64_t too_many = parity == 1 ? 3 : 7;
            assert_int_equal(parity_reconstruct(data, parity, BYTES, (void **)have, too_many),
                             ERR_DATA_LOSS);
            for (uint32_t i = 0; i < total; i++) {
                free(want[i]);
                free(have[i]);
            }
        }
    }
}

static void phys_structures_know_their_place(void **state) {
    (void)state;
    uint64_t words[16] = {0};
    words[5] = 42;
    phys_seal(words, PHYS_LABEL, 1, sizeof(words), 7);
    assert_int_equal(phys_check(words, PHYS_LABEL, sizeof(words), sizeof(words), 7), OK);
    assert_int_equal(phys_check(words, PHYS_LABEL, sizeof(words), sizeof(words), 8), ERR_CHECKSUM);
    assert_int_equal(phys_check(words, PHYS_SUPER, sizeof(words), sizeof(words), 7), ERR_CORRUPT);
    assert_int_equal(phys_check(words, PHYS_LABEL, 16, 64, 7), ERR_CORRUPT);
    for (size_t byte = 12; byte < sizeof(words); byte++) {
        ((uint8_t *)words)[byte] ^= 1;
        assert_int_equal(phys_check(words, PHYS_LABEL, 16, sizeof(words), 7), ERR_CHECKSUM);
        ((uint8_t *)words)[byte] ^= 1;
    }
}

static void profiles_fit_the_disks(void **state) {
    (void)state;
    struct shape s = profile_shape(PROFILE_RAID6, 6);
    assert_int_equal(s.copies * 100 + s.data * 10 + s.parity, 142);
    s = profile_shape(PROFILE_RAID10, 7);
    assert_int_equal(s.copies * 100 + s.data * 10 + s.parity, 230);
    s = profile_shape(PROFILE_RAID6, 2);
    assert_int_equal(s.copies * 100 + s.data * 10 + s.parity, 210);
    for (int p = 0; p < PROFILE_COUNT; p++) {
        enum profile parsed;
        assert_int_equal(profile_parse(profile_name((enum profile)p), &parsed), OK);
        assert_int_equal(parsed, p);
        for (uint32_t disks = 1; disks <= 64; disks++) {
            s = profile_shape((enum profile)p, disks);
            assert_true(shape_columns(s) >= 1 && shape_columns(s) <= MIN(disks, 24u));
            if (disks >= profile_min_disks((enum profile)p)) {
                assert_int_equal((uint32_t)s.copies - 1 + s.parity,
                                 profile_losses((enum profile)p));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_names_and_parents),
        cmocka_unit_test(errmsg_keeps_the_first_and_takes_prefixes),
        cmocka_unit_test(sizes),
        cmocka_unit_test(scope_frees_what_was_left),
        cmocka_unit_test(crc_is_castagnoli),
        cmocka_unit_test(parity_rebuilds_every_pair),
        cmocka_unit_test(phys_structures_know_their_place),
        cmocka_unit_test(profiles_fit_the_disks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
