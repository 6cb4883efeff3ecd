// SPDX-License-Identifier: MPL-2.0
/* The engine on disks of plain memory: every profile, random requests against a shadow copy,
 * checkpoints, close, check, import. What fails under faults is the simulator's business. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/linux/linux.h"
#include "volume_client.h"

enum { DISKS = 6, VOLUME_BYTES = 8 << 20, STEPS = 800, STATE_DIR_BYTES = 64 };

struct rig {
    struct env *env;
    char state_dir[STATE_DIR_BYTES];
    const char *paths[DISKS];
    char path_text[DISKS][64];
    uint8_t *shadow;
    struct rng rng;
    enum profile profile;
    bool ok;
};

static int run(struct engine *e, uint64_t id, enum volume_op op, uint64_t offset, uint64_t length,
               void *data) {
    return volume_run(engine_door(e), id, op, offset, length, data);
}

static int ask(struct engine *e, uint64_t id, enum volume_op op, uint64_t offset, uint64_t length,
               void *data, size_t data_bytes) {
    return volume_ask(engine_door(e), id, op, offset, length, data, data_bytes);
}

static void report(void *owner, const char *text) {
    (void)owner;
    print_error("check: %s\n", text);
}

static void verify_all(struct rig *r, struct engine *e, uint64_t id) {
    uint8_t *have = mem_alloc(1 << 20);
    for (uint64_t at = 0; at < VOLUME_BYTES; at += 1 << 20) {
        assert_int_equal(run(e, id, VOLUME_READ, at, 1 << 20, have), OK);
        for (uint64_t b = 0; b < 1 << 20; b += 4096) {
            if (memcmp(have + b, r->shadow + at + b, 4096) != 0) {
                fail_msg("block %llu differs", (unsigned long long)(at + b) / 4096);
            }
        }
    }
    mem_free(have);
}

static void random_steps(struct rig *r, struct engine *e, uint64_t id) {
    uint8_t *data = mem_alloc(1 << 20);
    for (int i = 0; i < STEPS; i++) {
        uint64_t most = rng_chance(&r->rng, 1, 20)  ? 1 << 20
                        : rng_chance(&r->rng, 1, 2) ? 16384
                                                    : 4096;
        uint64_t length = (1 + rng_below(&r->rng, most / 512)) * 512;
        uint64_t offset = rng_below(&r->rng, (VOLUME_BYTES - length) / 512 + 1) * 512;
        if (rng_chance(&r->rng, 1, 2)) {
            offset = round_down(offset, 4096);
            length = MIN(round_up(length, 4096), (uint64_t)VOLUME_BYTES - offset);
        }
        switch (rng_below(&r->rng, 8)) {
        case 0:
        case 1:
            assert_int_equal(run(e, id, VOLUME_READ, offset, length, data), OK);
            assert_memory_equal(data, r->shadow + offset, length);
            break;
        case 2: {
            assert_int_equal(run(e, id, VOLUME_UNMAP, offset, length, NULL), OK);
            uint64_t first = round_up(offset, 4096), end = round_down(offset + length, 4096);
            if (first < end) {
                memset(r->shadow + first, 0, end - first);
            }
            break;
        }
        case 3:
            assert_int_equal(run(e, id, VOLUME_WRITE_ZEROES, offset, length, NULL), OK);
            memset(r->shadow + offset, 0, length);
            break;
        default:
            rng_fill(&r->rng, data, length);
            assert_int_equal(run(e, id, VOLUME_WRITE, offset, length, data), OK);
            memcpy(r->shadow + offset, data, length);
        }
        if (rng_chance(&r->rng, 1, 300)) {
            assert_int_equal(engine_checkpoint(e), OK);
        }
    }
    mem_free(data);
}

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

/* Front to back in single blocks, from disk: the cache is new. */
static void read_in_sequence(struct rig *r, struct engine *e, uint64_t id) {
    uint8_t have[4096];
    struct engine_counters counters;
    for (uint64_t at = 0; at < VOLUME_BYTES; at += sizeof(have)) {
        assert_int_equal(run(e, id, VOLUME_READ, at, sizeof(have), have), OK);
        assert_memory_equal(have, r->shadow + at, sizeof(have));
    }
    engine_counters(e, &counters);
    assert_true(counters.read_ahead_blocks > VOLUME_BYTES / 4096 / 2);
}

static void count_record(void *ctx, const char *kind, const char *id, const void *blob,
                         uint32_t bytes) {
    (void)kind;
    (void)id;
    (void)blob;
    (void)bytes;
    ++*(uint32_t *)ctx;
}

/* What a front end keeps beside its volume: `round` is what it kept last. */
static void keep_and_recall(struct engine *e, uint64_t id, int round) {
    uint8_t record[VOLUME_RECORD_BYTES_MAX], zeros[VOLUME_RECORD_BYTES_MAX] = {0};
    assert_int_equal(run(e, id, VOLUME_RECALL, 0, sizeof(record), record), OK);
    for (size_t i = 0; i < sizeof(record); i++) {
        assert_int_equal(record[i], round > 0 && i < 512u * (unsigned)round ? round : 0);
    }
    memset(record, round + 1, sizeof(record));
    uint64_t bytes = 512u * (unsigned)(round + 1);
    assert_int_equal(run(e, id, VOLUME_KEEP, 0, sizeof(record), record), OK);
    assert_int_equal(run(e, id, VOLUME_KEEP, 0, 0, NULL), OK);
    assert_int_equal(run(e, id, VOLUME_RECALL, 0, sizeof(record), record), OK);
    assert_memory_equal(record, zeros, sizeof(record));
    memset(record, round + 1, sizeof(record));
    assert_int_equal(run(e, id, VOLUME_KEEP, 0, bytes, record), OK);
    assert_int_equal(run(e, id, VOLUME_KEEP, 0, 2 * sizeof(record), record), ERR_INVALID);
}

/* The runs tell what was written and what was given back since: in the overlay, in the tree. */
static void query_runs(struct engine *e, uint64_t id) {
    struct volume_run runs[8];
    struct volume_space before, after;
    uint8_t data[16384];
    memset(data, 7, sizeof(data));
    assert_int_equal(ask(e, id, VOLUME_SPACE, 0, 0, &before, sizeof(before)), OK);
    assert_true(before.free_bytes > 0 && before.free_bytes <= before.total_bytes);
    assert_int_equal(run(e, id, VOLUME_UNMAP, 0, 1 << 20, NULL), OK);
    assert_int_equal(run(e, id, VOLUME_WRITE, 65536, sizeof(data), data), OK);
    assert_int_equal(run(e, id, VOLUME_WRITE, 512 << 10, 4096, data), OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(ask(e, id, VOLUME_QUERY, 512, (1 << 20) - 512, runs, sizeof(runs)), OK);
        static const uint64_t expected[] = {
            65536 - 512, 16384, (512 << 10) - 65536 - 16384, 4096, (512 << 10) - 4096, 0};
        for (int i = 0; i < 6; i++) {
            assert_int_equal(runs[i].length_bytes, expected[i]);
            assert_int_equal(runs[i].mapped, i % 2 == 1 && i < 5);
        }
        /* with room for less it says less */
        assert_int_equal(ask(e, id, VOLUME_QUERY, 65536, 1 << 19, runs, sizeof(runs[0])), OK);
        assert_int_equal(runs[0].length_bytes, 16384);
        assert_int_equal(engine_checkpoint(e), OK);
    }
    assert_int_equal(ask(e, id, VOLUME_QUERY, VOLUME_BYTES, 512, runs, sizeof(runs)), ERR_RANGE);
    assert_int_equal(ask(e, id, VOLUME_SPACE, 0, 0, &after, sizeof(after)), OK);
    assert_true(after.used_bytes <= VOLUME_BYTES);
    assert_int_equal(run(e, id, VOLUME_WRITE_ZEROES, 0, 1 << 20, NULL), OK);
}

static void life(void *arg) {
    struct rig *r = arg;
    struct errmsg e = {0};
    struct engine *engine;
    struct volume_info info;
    struct pool_options create = {
        .name = "unit", .paths = r->paths, .path_count = DISKS, .force = true};
    must(engine_create_pool(r->env, &create, &e), &e);
    struct engine_import_options import = {.pool = {.paths = r->paths, .path_count = DISKS},
                                           .limits = {.dirty_bytes = 4 << 20}};
    must(engine_import(r->env, &import, NULL, NULL, &engine, &e), &e);
    uint64_t id;
    struct volume_options volume = {.name = "v", .size_bytes = VOLUME_BYTES, .profile = r->profile};
    must(engine_volume_create(engine, &volume, &id, &e), &e);
    must(engine_config_set(engine, "lun", "v", "{}", 2, &e), &e);
    query_runs(engine, id);
    for (int round = 0; round < 3; round++) {
        random_steps(r, engine, id);
        verify_all(r, engine, id);
        keep_and_recall(engine, id, round);
        must(engine_close(engine, round == 1, env_now_ns(r->env) + 10 * NS_PER_S, &e), &e);
        struct engine_check_result result;
        must(engine_check(r->env, &import.pool, report, NULL, &result, &e), &e);
        assert_int_equal(result.problems, 0);
        assert_true(result.rows_read > 0);
        must(engine_import(r->env, &import, NULL, NULL, &engine, &e), &e);
        must(engine_volume_find(engine, "v", &info), &e);
        assert_int_equal(info.id, id);
        read_in_sequence(r, engine, id);
        verify_all(r, engine, id);
    }
    uint32_t kept = 0;
    engine_config_each(engine, VOLUME_RECORD_KIND, count_record, &kept);
    assert_int_equal(kept, 1);
    must(engine_volume_delete(engine, "v", &e), &e);
    engine_config_each(engine, VOLUME_RECORD_KIND, count_record, &kept);
    assert_int_equal(kept, 1); /* it went with the volume */
    must(engine_checkpoint(engine), &e);
    must(engine_checkpoint(engine), &e);
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(engine, status);
    assert_int_equal(status->live_blocks, 0);
    mem_free(status);
    must(engine_close(engine, true, env_now_ns(r->env) + 10 * NS_PER_S, &e), &e);
    r->ok = true;
    env_stop(r->env);
}

static void lives_and_dies(void **state) {
    enum profile profile = (enum profile)(uintptr_t)*state;
    struct rig *r = mem_alloc(sizeof(*r));
    struct errmsg e = {0};
    uint64_t before = mem_in_use_bytes();
    r->profile = profile;
    rng_init(&r->rng, profile + 1);
    r->shadow = mem_alloc(VOLUME_BYTES);
    (void)snprintf(r->state_dir, sizeof(r->state_dir), "/tmp/holdfast-test-XXXXXX");
    assert_non_null(mkdtemp(r->state_dir));
    struct env_linux_options options = {.state_dir = r->state_dir};
    must(env_linux_new(&options, &r->env, &e), &e);
    for (int i = 0; i < DISKS; i++) {
        (void)snprintf(r->path_text[i], sizeof(r->path_text[i]), "mem:engine-%d-%d:64M", profile,
                       i);
        r->paths[i] = r->path_text[i];
    }
    fiber_start(r->env, life, r);
    env_run(r->env);
    assert_true(r->ok);
    env_linux_free(r->env);
    mem_free(r->shadow);
    assert_true(mem_in_use_bytes() <= before + (1 << 20)); /* the memory disks themselves remain */
    mem_free(r);
}

int main(void) {
    struct CMUnitTest tests[PROFILE_COUNT];
    for (uintptr_t p = 0; p < PROFILE_COUNT; p++) {
        tests[p] = (struct CMUnitTest){.name = profile_name((enum profile)p),
                                       .test_func = lives_and_dies,
                                       .initial_state = (void *)p};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
