// SPDX-License-Identifier: MPL-2.0
/* The oracle must be able to fail: each rule of sim/oracle.h, kept and broken. */
#include "../unit/unit.h"

#include <string.h>

#include "base/mem.h"
#include "oracle.h"

enum { SECTOR = 7, COUNT = 3 };

struct bench {
    struct oracle oracle;
    struct oracle_volume volume;
};

static struct bench *bench_new(bool sync_always) {
    struct bench *b = MEM_NEW(struct bench);
    oracle_init(&b->oracle);
    oracle_volume_init(&b->volume, &b->oracle, 1, sync_always);
    return b;
}

static void bench_free(struct bench *b) {
    oracle_volume_done(&b->volume);
    oracle_done(&b->oracle);
    mem_free(b);
    assert_int_equal(mem_in_use_bytes(), 0);
}

static uint32_t begin(struct bench *b, uint32_t version) {
    return oracle_write_begin(&b->volume, SECTOR, COUNT, version);
}

static void end(struct bench *b, uint32_t submitted, enum oracle_outcome outcome, bool fua) {
    oracle_write_end(&b->volume, SECTOR, COUNT, submitted, outcome, fua);
}

static void write_done(struct bench *b, uint32_t version) {
    end(b, begin(b, version), ORACLE_DONE, false);
}

/* Whether a read that was submitted at `submitted` may return `version` throughout. */
static bool may_read_since(struct bench *b, uint32_t submitted, uint32_t version) {
    uint8_t bytes[COUNT * ORACLE_SECTOR_BYTES];
    char why[500];
    for (uint32_t i = 0; i < COUNT; i++) {
        oracle_fill(&b->volume, SECTOR + i, version, bytes + i * ORACLE_SECTOR_BYTES);
    }
    return oracle_read(&b->volume, SECTOR, COUNT, submitted, bytes, why, sizeof(why));
}

static bool may_read(struct bench *b, uint32_t version) {
    return may_read_since(b, oracle_tick(&b->oracle), version);
}

static void test_last_write_only(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    assert_true(may_read(b, 0));
    assert_false(may_read(b, 1));
    write_done(b, 1);
    write_done(b, 2);
    assert_false(may_read(b, 0));
    assert_false(may_read(b, 1));
    assert_true(may_read(b, 2));
    write_done(b, 0); /* an unmap */
    assert_false(may_read(b, 2));
    assert_true(may_read(b, 0));
    bench_free(b);
}

static void test_other_places_and_damage(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    write_done(b, 1);
    uint8_t bytes[ORACLE_SECTOR_BYTES];
    char why[500];
    oracle_fill(&b->volume, SECTOR + 1, 1, bytes); /* of the sector beside it */
    assert_false(oracle_read(&b->volume, SECTOR, 1, oracle_tick(&b->oracle), bytes, why, 500));
    oracle_fill(&b->volume, SECTOR, 1, bytes);
    bytes[300] ^= 1;
    assert_false(oracle_read(&b->volume, SECTOR, 1, oracle_tick(&b->oracle), bytes, why, 500));
    bytes[300] ^= 1;
    assert_true(oracle_read(&b->volume, SECTOR, 1, oracle_tick(&b->oracle), bytes, why, 500));
    bench_free(b);
}

static void test_concurrent_writes(void **state) {
    (void)state;
    for (uint32_t last = 1; last <= 2; last++) {
        struct bench *b = bench_new(true);
        uint32_t one = begin(b, 1), two = begin(b, 2);
        assert_true(may_read(b, 0)); /* neither need have happened */
        end(b, one, ORACLE_DONE, false);
        assert_false(may_read(b, 0));
        end(b, two, ORACLE_DONE, false);
        /* Either may have come last, but once it is read it is settled. */
        assert_true(may_read(b, last));
        assert_false(may_read(b, 3 - last));
        bench_free(b);
    }
}

static void test_read_during_write(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    write_done(b, 1);
    uint32_t read = oracle_tick(&b->oracle);
    b->oracle.oldest_read = read;
    write_done(b, 2);
    assert_true(may_read_since(b, read, 1)); /* it began before 2 was answered */
    assert_false(may_read(b, 1));            /* this one did not */
    b->oracle.oldest_read = UINT32_MAX;
    /* What a read has seen of a write on its way stays seen. */
    uint32_t three = begin(b, 3);
    assert_true(may_read(b, 2));
    assert_true(may_read(b, 3));
    assert_false(may_read(b, 2));
    end(b, three, ORACLE_DONE, false);
    bench_free(b);
}

static void test_failed_write(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    write_done(b, 1);
    end(b, begin(b, 2), ORACLE_NOTHING, false);
    assert_false(may_read(b, 2));
    end(b, begin(b, 3), ORACLE_UNKNOWN, false);
    assert_true(may_read(b, 3));
    assert_false(may_read(b, 1));
    bench_free(b);
}

static void test_crash_keeps_what_was_acknowledged(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    write_done(b, 1);
    write_done(b, 2);
    uint32_t three = begin(b, 3);
    (void)three;
    oracle_restart(&b->volume, false);
    assert_false(may_read(b, 1));
    assert_false(may_read(b, 0));
    assert_true(may_read(b, 3));  /* was on its way: it may have happened, */
    assert_false(may_read(b, 2)); /* and then it has happened for good */
    oracle_restart(&b->volume, false);
    assert_false(may_read(b, 2));
    assert_true(may_read(b, 3));
    bench_free(b);
}

static void test_crash_of_a_volume_with_a_cache(void **state) {
    (void)state;
    for (uint32_t survivor = 1; survivor <= 3; survivor++) {
        struct bench *b = bench_new(false);
        write_done(b, 1);
        oracle_flushed(&b->volume, oracle_tick(&b->oracle));
        write_done(b, 2);
        write_done(b, 3);
        assert_false(may_read(b, 2)); /* before the crash it reads as written */
        assert_true(may_read(b, 3));
        oracle_restart(&b->volume, false);
        assert_false(may_read(b, 0)); /* flushed over */
        assert_true(may_read(b, survivor));
        for (uint32_t other = 1; other <= 3; other++) {
            assert_int_equal(may_read(b, other), other == survivor);
        }
        bench_free(b);
    }
}

static void test_flush_fua_and_close_are_durable(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct bench *b = bench_new(false);
        write_done(b, 1);
        end(b, begin(b, 2), ORACLE_DONE, how == 0);
        if (how == 1) {
            oracle_flushed(&b->volume, oracle_tick(&b->oracle));
        }
        oracle_restart(&b->volume, how == 2);
        assert_false(may_read(b, 1));
        assert_false(may_read(b, 0));
        assert_true(may_read(b, 2));
        bench_free(b);
    }
}

/* A flush covers only what had been answered before it was submitted. */
static void test_flush_does_not_cover_later_answers(void **state) {
    (void)state;
    struct bench *b = bench_new(false);
    write_done(b, 1);
    oracle_flushed(&b->volume, oracle_tick(&b->oracle));
    uint32_t two = begin(b, 2);
    uint32_t flush = oracle_tick(&b->oracle);
    end(b, two, ORACLE_DONE, false);
    oracle_flushed(&b->volume, flush);
    oracle_restart(&b->volume, false);
    assert_true(may_read(b, 1));
    bench_free(b);
}

static void test_known(void **state) {
    (void)state;
    struct bench *b = bench_new(true);
    uint32_t version = 9;
    assert_true(oracle_known(&b->volume, SECTOR, &version));
    assert_int_equal(version, 0);
    write_done(b, 4);
    assert_true(oracle_known(&b->volume, SECTOR, &version));
    assert_int_equal(version, 4);
    uint32_t five = begin(b, 5);
    assert_false(oracle_known(&b->volume, SECTOR, &version));
    end(b, five, ORACLE_DONE, false);
    assert_true(oracle_known(&b->volume, SECTOR, &version));
    assert_int_equal(version, 5);
    bench_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_write_only),
        cmocka_unit_test(test_other_places_and_damage),
        cmocka_unit_test(test_concurrent_writes),
        cmocka_unit_test(test_read_during_write),
        cmocka_unit_test(test_failed_write),
        cmocka_unit_test(test_crash_keeps_what_was_acknowledged),
        cmocka_unit_test(test_crash_of_a_volume_with_a_cache),
        cmocka_unit_test(test_flush_fua_and_close_are_durable),
        cmocka_unit_test(test_flush_does_not_cover_later_answers),
        cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
