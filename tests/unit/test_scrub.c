// SPDX-License-Identifier: MPL-2.0
/* A scrub finds what disks hold wrongly, puts it right where redundancy allows, names what it
 * cannot, and leaves nothing for a check to find. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "format/layout.h"
#include "volume_client.h"

enum { DISKS = 6, VOLUME_BYTES = 6 << 20, DISK_BYTES = 32 << 20, PIECE_BYTES = 64 << 10 };

static const struct geometry geometry = {
    .chunk_blocks = 64, .ring_blocks = 64, .row_blocks = 16, .node_blocks = 1};

struct world {
    struct env *env;
    struct sim_disk *disk[DISKS];
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id[4];
    struct engine_scrub_status st;
    struct engine_check_result check;
    char finding[400];
    bool raid5_only, done;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void import(struct world *w) {
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS},
                                            .limits = {.dirty_bytes = 16 << 20}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
}

static void begin(void *arg) {
    static const enum profile all[] = {PROFILE_RAID6, PROFILE_RAID10, PROFILE_RAID5,
                                       PROFILE_SINGLE};
    static const enum profile raid5[] = {PROFILE_RAID5};
    struct world *w = arg;
    const enum profile *profiles = w->raid5_only ? raid5 : all;
    struct errmsg e = {0};
    struct pool_options create = {
        .name = "scrub", .paths = w->paths, .path_count = DISKS, .geometry = geometry};
    must(engine_create_pool(w->env, &create, &e), &e);
    import(w);
    struct rng rng;
    uint8_t *data = mem_alloc(PIECE_BYTES);
    rng_init(&rng, 1);
    for (int i = 0; i < (w->raid5_only ? 1 : 4); i++) {
        char name[] = {'v', (char)('0' + i), '\0'};
        struct volume_options volume = {
            .name = name, .size_bytes = VOLUME_BYTES, .profile = profiles[i]};
        must(engine_volume_create(w->engine, &volume, &w->id[i], &e), &e);
        for (uint64_t at = 0; at < VOLUME_BYTES; at += PIECE_BYTES) {
            rng_fill(&rng, data, PIECE_BYTES);
            uint64_t bytes = at % (3 * PIECE_BYTES) == 0 ? 4096 : PIECE_BYTES;
            assert_int_equal(
                volume_run(engine_door(w->engine), w->id[i], VOLUME_WRITE, at, bytes, data), OK);
        }
    }
    mem_free(data);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    w->done = true;
}

static void close_pool(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
    w->engine = NULL;
    w->done = true;
}

static void found(void *owner, const char *text) {
    struct world *w = owner;
    if (w->finding[0] == '\0') {
        (void)snprintf(w->finding, sizeof(w->finding), "%s", text);
    }
}

static void check(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct pool_open_options options = {.paths = w->paths, .path_count = DISKS};
    w->finding[0] = '\0';
    must(engine_check(w->env, &options, found, w, &w->check, &e), &e);
    w->done = true;
}

static void reimport(void *arg) {
    struct world *w = arg;
    import(w);
    w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void call(struct world *w, void (*fn)(void *)) {
    w->done = false;
    fiber_start(w->env, fn, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
}

static bool scrub_ended(void *ctx) {
    struct world *w = ctx;
    engine_scrub_status(w->engine, &w->st);
    return w->st.complete && !w->st.running;
}

static void scrub(struct world *w) {
    struct errmsg e = {0};
    must(engine_scrub(w->engine, false, &e), &e);
    assert_int_equal(engine_scrub(w->engine, false, &e), ERR_BUSY);
    (void)env_sim_run_until(w->env, env_now_ns(w->env) + 10 * NS_PER_MS, NULL, NULL);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, scrub_ended, w), SIM_DONE);
    assert_int_equal(w->st.rows_done, w->st.rows_total);
    assert_true(w->st.rows_total > (w->raid5_only ? 10 : 50));
}

static void world_new(struct world *w, const struct sim_model *custom) {
    static const char *const names[DISKS] = {"d0", "d1", "d2", "d3", "d4", "d5"};
    struct errmsg e = {0};
    w->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {.model = "ssd",
                                        .custom = custom,
                                        .path = names[i],
                                        .size_bytes = DISK_BYTES,
                                        .cache_off = true};
        w->paths[i] = names[i];
        must(env_sim_disk_add(w->env, &disk, &w->disk[i], &e), &e);
    }
    call(w, begin);
}

/* Flips bits in, and makes unreadable, every so many blocks that hold something in the chunks. */
static uint32_t damage(struct world *w, uint32_t disk, uint32_t every) {
    uint64_t at = layout_chunk_block(&geometry, 0) * BLOCK_BYTES, next = 0;
    uint64_t end = DISK_BYTES - (TAIL_BLOCKS + 1) * BLOCK_BYTES;
    uint32_t seen = 0, done = 0;
    while (sim_disk_find_written(w->disk[disk], at, &next) && next >= at && next < end) {
        if (seen++ % every == 0) {
            done += seen / every % 2 == 0 ? sim_disk_rot(w->disk[disk], next, seen)
                                          : sim_disk_make_latent(w->disk[disk], next);
        }
        at = next + BLOCK_BYTES;
    }
    return done;
}

static void what_is_wrong_is_put_right(void **state) {
    (void)state;
    struct world w = {0};
    world_new(&w, NULL);
    scrub(&w);
    assert_int_equal(w.st.wrong + w.st.repaired + w.st.lost_blocks, 0);
    uint32_t damaged = damage(&w, 2, 9); /* one disk: what single has there is lost */
    assert_true(damaged > 50);
    scrub(&w);
    assert_true(w.st.repaired > 30);
    assert_int_equal(w.st.wrong, w.st.repaired);
    assert_true(w.st.repaired_on[2] > 30 && w.st.touched_count > 0 && w.st.meta_lost == 0);
    for (uint32_t i = 0; i < w.st.lost_count; i++) {
        assert_int_equal(w.st.lost[i].volume, w.id[3]);
    }
    uint64_t lost = w.st.lost_blocks, headers = w.st.headers_lost;
    scrub(&w);
    assert_int_equal(w.st.repaired, 0);
    assert_int_equal(w.st.lost_blocks, lost);
    call(&w, close_pool);
    call(&w, check);
    if (w.check.problems == 0 || w.check.problems > 2 * (lost + headers)) { /* those, and no more */
        fail_msg("%d problems, first: %s", (int)w.check.problems, w.finding);
    }
    call(&w, reimport);
    struct volume_info v;
    assert_int_equal(engine_volume_find(w.engine, "v3", &v), OK);
    assert_int_equal(v.lost_bytes, lost * BLOCK_BYTES); /* remembered */
    assert_int_equal(engine_volume_find(w.engine, "v0", &v), OK);
    assert_int_equal(v.lost_bytes, 0);
    call(&w, close_pool);
    env_sim_free(w.env);
}

/* The first blocks that hold something in the chunks, so many of them. */
static void make_latent(struct world *w, uint32_t disk, uint32_t count) {
    uint64_t at = layout_chunk_block(&geometry, 0) * BLOCK_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(sim_disk_find_written(w->disk[disk], at, &at));
        assert_true(sim_disk_make_latent(w->disk[disk], at));
        at += 3 * BLOCK_BYTES;
    }
}

/* A disk that tries long before it says that a block is bad is a suspect soon, and gets half the
 * time from those who wait; not from a scrub. */
static void it_waits_for_a_disk_that_tries_long(void **state) {
    (void)state;
    struct world w = {0};
    struct sim_model model = *sim_model_find("ssd");
    model.error_retry_ms = 3500;
    world_new(&w, &model);
    make_latent(&w, 2, 4);
    scrub(&w);
    assert_int_equal(w.st.skipped_columns, 0);
    assert_int_equal(w.st.wrong, 4);
    assert_int_equal(w.st.repaired, 4);
    assert_int_equal(sim_disk_faulty_blocks(w.disk[2]), 0);
    call(&w, close_pool);
    call(&w, check);
    assert_int_equal(w.check.problems, 0);
    env_sim_free(w.env);
}

/* Longer than anybody waits: it is said. */
static void it_says_what_it_has_left_out(void **state) {
    (void)state;
    struct world w = {0};
    struct sim_model model = *sim_model_find("ssd");
    model.error_retry_ms = 12000;
    world_new(&w, &model);
    make_latent(&w, 2, 1);
    scrub(&w);
    assert_true(w.st.skipped_columns > 0);
    assert_int_equal(w.st.lost_blocks, 0);
    call(&w, close_pool);
    /* What was given up still comes back, and is freed then. */
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 30 * NS_PER_S, NULL, NULL);
    env_sim_free(w.env);
}

/* What is lost of a row does not keep the scrub from putting the rest of it right. */
static void what_is_left_of_a_row_is_put_right(void **state) {
    (void)state;
    struct world w = {.raid5_only = true};
    world_new(&w, NULL);
    assert_true(damage(&w, 2, 1) > 100);
    scrub(&w);
    assert_int_equal(w.st.lost_blocks, 0);
    uint32_t dead = sim_disk_faulty_blocks(w.disk[2]); /* of which nothing lives */
    assert_true(damage(&w, 2, 1) > 100 && damage(&w, 3, 29) > 5);
    scrub(&w);
    assert_true(w.st.lost_blocks > 5 && w.st.headers_lost == 0);
    assert_true(sim_disk_faulty_blocks(w.disk[2]) <= dead + w.st.lost_blocks);
    call(&w, close_pool);
    env_sim_free(w.env);
}

static void schedule(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    must(engine_scrub_schedule(w->engine, 2, &e), &e);
    w->done = true;
}

static void it_comes_by_itself_and_can_be_stopped(void **state) {
    (void)state;
    struct world w = {0};
    struct errmsg e = {0};
    world_new(&w, NULL);
    assert_int_equal(engine_scrub(w.engine, true, &e), ERR_NOT_FOUND);
    must(engine_scrub(w.engine, false, &e), &e);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 20 * NS_PER_MS, NULL, NULL);
    engine_scrub_status(w.engine, &w.st);
    assert_true(w.st.running && w.st.rows_done < w.st.rows_total);
    must(engine_scrub(w.engine, true, &e), &e);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 3 * NS_PER_S, NULL, NULL);
    engine_scrub_status(w.engine, &w.st);
    assert_true(!w.st.running && !w.st.complete);
    call(&w, schedule);
    call(&w, close_pool);
    call(&w, reimport);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 47 * 3600 * NS_PER_S, NULL, NULL);
    assert_false(scrub_ended(&w));
    assert_int_equal(w.st.days, 2);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 3 * 3600 * NS_PER_S, NULL, NULL);
    assert_true(scrub_ended(&w));
    call(&w, close_pool);
    env_sim_free(w.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_put_right),
        cmocka_unit_test(it_waits_for_a_disk_that_tries_long),
        cmocka_unit_test(it_says_what_it_has_left_out),
        cmocka_unit_test(what_is_left_of_a_row_is_put_right),
        cmocka_unit_test(it_comes_by_itself_and_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
