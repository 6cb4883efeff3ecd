// SPDX-License-Identifier: MPL-2.0
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tree/cache.h"

enum { PAGE = 4096 };

static void put(struct cache *cache, uint64_t key, size_t bytes) {
    struct buf *b = buf_new(bytes);
    memcpy(b->data, &key, sizeof(key));
    cache_put(cache, key, b);
    buf_unref(b);
}

static bool get(struct cache *cache, uint64_t key) {
    struct buf *b = cache_get(cache, key);
    if (b == NULL) {
        return false;
    }
    uint64_t found;
    memcpy(&found, b->data, sizeof(found));
    assert_int_equal(found, key);
    buf_unref(b);
    return true;
}

/* As a caller uses it. True: it was there. */
static bool use(struct cache *cache, uint64_t key) {
    bool hit = get(cache, key);
    if (!hit) {
        put(cache, key, PAGE);
    }
    return hit;
}

static void what_is_put_is_found(void **state) {
    (void)state;
    uint64_t before = mem_in_use_bytes();
    struct cache *cache = cache_new(10 * PAGE);
    for (uint64_t key = 0; key < 10; key++) {
        put(cache, key, PAGE);
    }
    assert_int_equal(cache_bytes(cache), 10 * PAGE);
    for (uint64_t key = 0; key < 10; key++) {
        assert_true(cache_has(cache, key));
        assert_true(get(cache, key));
    }
    assert_false(cache_has(cache, 11));
    assert_false(get(cache, 11));
    struct cache_counters c = cache_counters(cache);
    assert_int_equal(c.hits, 10);
    assert_int_equal(c.misses, 1);
    assert_int_equal(c.inserted, 10);
    assert_int_equal(c.dropped, 0);
    put(cache, 3, 2 * PAGE); /* replaced: one more page than there is room for */
    assert_true(cache_bytes(cache) <= 10 * PAGE);
    cache_drop(cache, 3);
    cache_drop(cache, 3);
    assert_false(get(cache, 3));
    put(cache, 99, 11 * PAGE); /* larger than all: it does not stay, nor does it hang */
    assert_false(cache_has(cache, 99));
    assert_true(cache_bytes(cache) <= 10 * PAGE);
    cache_set_limit(cache, 0);
    assert_int_equal(cache_bytes(cache), 0);
    put(cache, 5, PAGE);
    assert_false(get(cache, 5));
    cache_free(cache);
    cache_free(NULL);
    assert_int_equal(mem_in_use_bytes(), before);
}

static void a_held_buffer_outlives_its_entry(void **state) {
    (void)state;
    struct cache *cache = cache_new(PAGE);
    put(cache, 1, PAGE);
    struct buf *b = cache_get(cache, 1);
    put(cache, 2, PAGE);
    put(cache, 3, PAGE);
    cache_drop(cache, 1);
    cache_free(cache);
    uint64_t key;
    memcpy(&key, b->data, sizeof(key));
    assert_int_equal(key, 1);
    buf_unref(b);
}

/* A set that is used again and again stays while ten times the cache passes by once. */
static void a_scan_does_not_flush_what_is_used(void **state) {
    (void)state;
    struct cache *cache = cache_new(1000 * PAGE);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint64_t key = 0; key < 500; key++) {
            (void)use(cache, key);
        }
    }
    uint64_t hits = 0, uses = 0;
    for (uint64_t key = 0; key < 10000; key++) {
        (void)use(cache, 1000000 + key);
        if (key % 10 == 0) {
            hits += use(cache, key / 10 % 500);
            uses++;
        }
    }
    assert_true(hits >= uses * 99 / 100);
    cache_free(cache);
}

/* A loop over a little more than the cache still hits; the least recently used rule never would. */
static void a_loop_hits_in_part(void **state) {
    (void)state;
    struct cache *cache = cache_new(1000 * PAGE);
    uint64_t hits = 0, uses = 0;
    for (uint32_t round = 0; round < 20; round++) {
        for (uint64_t key = 0; key < 1200; key++) {
            hits += use(cache, key);
            uses++;
        }
    }
    assert_true(hits > uses / 4);
    cache_free(cache);
}

static void skew_is_recognised(void **state) {
    (void)state;
    struct cache *cache = cache_new(1000 * PAGE);
    struct rng rng;
    rng_init(&rng, 1);
    uint64_t hits = 0, uses = 200000;
    for (uint64_t i = 0; i < uses; i++) {
        /* 80 % of uses on 800 keys of 20,000, which ideally all hit. */
        bool hot = rng_chance(&rng, 8, 10);
        hits += use(cache, hot ? rng_below(&rng, 800) : 800 + rng_below(&rng, 19200));
    }
    assert_true(hits >= uses * 70 / 100);
    cache_free(cache);
}

/* Against a model that knows only what may be there at all. */
static void random_use_keeps_its_word(void **state) {
    (void)state;
    uint64_t before = mem_in_use_bytes();
    struct rng rng;
    rng_init(&rng, 7);
    uint64_t limit = 100 * PAGE;
    struct cache *cache = cache_new(limit);
    uint64_t had[500] = {0}; /* bytes of the last put; 0: dropped since */
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t key = rng_below(&rng, ARRAY_COUNT(had));
        switch (rng_below(&rng, 10)) {
        case 0:
            cache_drop(cache, key);
            had[key] = 0;
            break;
        case 1:
            limit = rng_below(&rng, 200) * PAGE;
            if (rng_chance(&rng, 1, 100)) {
                cache_set_limit(cache, limit);
            } else {
                limit = 0; /* not set */
            }
            break;
        case 2:
        case 3:
        case 4:
            had[key] = (1 + rng_below(&rng, 3)) * PAGE;
            put(cache, key, had[key]);
            break;
        default: {
            bool has = cache_has(cache, key);
            assert_true(!has || had[key] != 0);
            assert_int_equal(get(cache, key), has);
            break;
        }
        }
        assert_true(cache_bytes(cache) <= 200 * PAGE);
        uint64_t sum = 0;
        for (uint64_t k = 0; i % 1000 == 0 && k < ARRAY_COUNT(had); k++) {
            sum += cache_has(cache, k) ? had[k] : 0;
        }
        assert_true(i % 1000 != 0 || sum == cache_bytes(cache));
    }
    struct cache_counters c = cache_counters(cache);
    assert_true(c.hits > 0 && c.misses > 0 && c.dropped > 0);
    cache_free(cache);
    assert_int_equal(mem_in_use_bytes(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_found),
        cmocka_unit_test(a_held_buffer_outlives_its_entry),
        cmocka_unit_test(a_scan_does_not_flush_what_is_used),
        cmocka_unit_test(a_loop_hits_in_part),
        cmocka_unit_test(skew_is_recognised),
        cmocka_unit_test(random_use_keeps_its_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
