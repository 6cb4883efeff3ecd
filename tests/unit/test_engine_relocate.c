// SPDX-License-Identifier: MPL-2.0
/* Volumes that are put in order, and that get another profile: their content stays, they lie as
 * they should in the end, also when hosts write meanwhile and the pool is closed in between. What a
 * crash does to it is for the simulator. And the cleaner in a pool that nobody uses. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "volume_client.h"

enum {
    DISKS = 5,
    BLOCKS = 6000,
    DISK_BYTES = 40 << 20,
    LARGE_BYTES = 80 << 20,
    SMALL_BYTES = 16 << 20,
    WRITES = 12000
};

struct world {
    struct env *env;
    const char *paths[DISKS];
    uint32_t disks;
    struct engine *engine;
    uint64_t id;
    struct rng rng;
    uint32_t version[BLOCKS];
    void (*life)(struct world *w);
    bool done;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void fill(uint8_t *data, uint64_t block, uint32_t version) {
    memset(data, (int)(version + block), 4096);
    memcpy(data, &block, sizeof(block));
    memcpy(data + 8, &version, sizeof(version));
}

static void write(struct world *w, uint64_t block) {
    uint8_t data[4096];
    fill(data, block, ++w->version[block]);
    assert_int_equal(
        volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, block * 4096, 4096, data), OK);
}

static void overwrite(struct world *w, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        write(w, rng_below(&w->rng, BLOCKS));
    }
}

static void judge(struct world *w) {
    uint8_t data[4096], want[4096];
    for (uint64_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(
            volume_run(engine_door(w->engine), w->id, VOLUME_READ, b * 4096, 4096, data), OK);
        if (w->version[b] == 0) {
            memset(want, 0, sizeof(want));
        } else {
            fill(want, b, w->version[b]);
        }
        assert_memory_equal(data, want, sizeof(want));
    }
}

static void import(struct world *w) {
    struct errmsg e = {0};
    struct engine_import_options options = {
        .pool = {.paths = w->paths, .path_count = w->disks},
        .limits = {.dirty_bytes = 2 << 20, .reorder_bytes = 4 << 20, .read_cache_bytes = 1 << 20}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
}

static void reopen(struct world *w) {
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
    import(w);
}

static void begin(struct world *w, enum profile profile) {
    static const struct geometry geometry = {
        .chunk_blocks = 64, .ring_blocks = 512, .row_blocks = 16, .node_blocks = 1};
    struct errmsg e = {0};
    struct pool_options pool = {
        .name = "order", .paths = w->paths, .path_count = w->disks, .geometry = geometry};
    must(engine_create_pool(w->env, &pool, &e), &e);
    import(w);
    struct volume_options v = {.name = "v", .size_bytes = BLOCKS * 4096ull, .profile = profile};
    must(engine_volume_create(w->engine, &v, &w->id, &e), &e);
}

static void sleep_s(struct world *w, uint32_t seconds) {
    fiber_sleep_until(env_now_ns(w->env) + seconds * NS_PER_S);
}

static struct volume_info info_of(struct world *w) {
    struct volume_info info;
    assert_int_equal(engine_volume_find(w->engine, "v", &info), OK);
    return info;
}

static void wait_until_moved(struct world *w) {
    for (int i = 0; info_of(w).reordering || info_of(w).profile_moves; i++) {
        assert_true(i < 600);
        sleep_s(w, 1);
    }
}

static void in_order_life(struct world *w) {
    struct errmsg e = {0};
    begin(w, PROFILE_RAID5);
    overwrite(w, WRITES);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    sleep_s(w, 40);
    uint32_t before = info_of(w).extents_per_gib;
    must(engine_volume_reorder(w->engine, "v", false, &e), &e);
    overwrite(w, 300); /* while it goes on */
    wait_until_moved(w);
    judge(w);
    for (uint64_t b = 0; b < BLOCKS; b += 16) { /* an eighth of it changes: it is looked at again */
        write(w, b);
        write(w, b + 1);
    }
    must(engine_volume_reorder(w->engine, "v", false, &e), &e);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    wait_until_moved(w);
    reopen(w);
    sleep_s(w, 40);
    uint32_t after = info_of(w).extents_per_gib;
    if (after * 2 > before) {
        fail_msg("%u extents a GiB before, %u after", before, after);
    }
    judge(w);
}

static void stop_life(struct world *w) {
    struct errmsg e = {0};
    begin(w, PROFILE_SINGLE);
    overwrite(w, WRITES);
    must(engine_volume_reorder(w->engine, "v", false, &e), &e);
    must(engine_volume_reorder(w->engine, "v", true, &e), &e);
    assert_false(info_of(w).reordering);
    reopen(w);
    assert_false(info_of(w).reordering);
    judge(w);
}

/* Each to the next one, and back; the pool is closed in the middle. */
static void profiles_life(struct world *w) {
    static const enum profile order[] = {PROFILE_RAID1, PROFILE_RAID6,  PROFILE_SINGLE,
                                         PROFILE_RAID5, PROFILE_RAID10, PROFILE_RAID0};
    struct errmsg e = {0};
    struct engine_profile_change change;
    begin(w, PROFILE_RAID5);
    overwrite(w, WRITES / 2);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        enum profile was = info_of(w).profile;
        must(engine_volume_set_profile(w->engine, "v", order[i], true, &change, &e), &e);
        assert_int_equal(info_of(w).profile, was);
        assert_int_equal(change.from, was);
        must(engine_volume_set_profile(w->engine, "v", order[i], false, &change, &e), &e);
        assert_int_equal(info_of(w).profile, order[i]);
        assert_true(info_of(w).profile_moves);
        overwrite(w, 200);
        if (i % 2 == 0) {
            reopen(w);
        }
        wait_until_moved(w);
        judge(w);
    }
    struct engine_counters counters;
    engine_counters(w->engine, &counters);
    assert_true(counters.profiles_changed > 0 && counters.relocated_blocks > 0);
}

/* One disk is much smaller than the other: what is moved must leave room on it for what has two
 * copies, nodes and metadata. */
static void uneven_life(struct world *w) {
    struct errmsg e = {0};
    struct engine_profile_change change;
    begin(w, PROFILE_SINGLE);
    for (uint64_t b = 0; b < BLOCKS; b++) {
        write(w, b);
    }
    must(engine_volume_set_profile(w->engine, "v", PROFILE_RAID0, false, &change, &e), &e);
    wait_until_moved(w);
    overwrite(w, 300);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    reopen(w);
    judge(w);
}

static void no_room_life(struct world *w) {
    struct errmsg e = {0};
    struct engine_profile_change change;
    begin(w, PROFILE_SINGLE);
    struct volume_options big = {
        .name = "big", .size_bytes = 110 << 20, .profile = PROFILE_SINGLE, .thick = true};
    uint64_t id;
    must(engine_volume_create(w->engine, &big, &id, &e), &e);
    must(engine_volume_set_profile(w->engine, "big", PROFILE_RAID1, true, &change, &e), &e);
    assert_int_equal(change.free_meanwhile_bytes, 0);
    assert_int_equal(engine_volume_set_profile(w->engine, "big", PROFILE_RAID1, false, &change, &e),
                     ERR_NO_SPACE);
    assert_int_equal(
        engine_volume_set_profile(w->engine, "gone", PROFILE_RAID1, false, &change, &e),
        ERR_NOT_FOUND);
}

/* Nobody asks for anything: what random overwrites have left half dead becomes free chunks. */
static void idle_life(struct world *w) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    begin(w, PROFILE_RAID5);
    overwrite(w, WRITES * 2);
    engine_status(w->engine, st);
    uint64_t before = st->segments_free_chunks;
    sleep_s(w, 60);
    engine_status(w->engine, st);
    struct engine_counters counters;
    engine_counters(w->engine, &counters);
    assert_true(counters.cleaner_ahead_blocks > 0);
    assert_true(st->segments_free_chunks > before);
    uint64_t checkpoints = st->checkpoints;
    sleep_s(w, 600); /* and then there is peace */
    engine_status(w->engine, st);
    assert_true(st->checkpoints <= checkpoints + 2);
    judge(w);
    mem_free(st);
}

static void life_fiber(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    w->life(w);
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
    w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void world_of(void (*life)(struct world *w), uint32_t disks, const uint64_t *bytes) {
    static const char *const paths[DISKS] = {"d0", "d1", "d2", "d3", "d4"};
    struct world *w = mem_alloc(sizeof(*w));
    struct errmsg e = {0};
    w->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    w->life = life;
    w->disks = disks;
    rng_init(&w->rng, 1);
    for (uint32_t i = 0; i < disks; i++) {
        struct sim_disk *added;
        struct sim_disk_options disk = {.model = "nvme", .path = paths[i], .size_bytes = bytes[i]};
        w->paths[i] = paths[i];
        must(env_sim_disk_add(w->env, &disk, &added, &e), &e);
    }
    fiber_start(w->env, life_fiber, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
    env_sim_free(w->env);
    mem_free(w);
}

static void a_world(void (*life)(struct world *w)) {
    static const uint64_t bytes[DISKS] = {DISK_BYTES, DISK_BYTES, DISK_BYTES, DISK_BYTES,
                                          DISK_BYTES};
    world_of(life, DISKS, bytes);
}

static void blocks_are_put_in_order(void **state) {
    (void)state;
    a_world(in_order_life);
}

static void a_reordering_can_be_stopped(void **state) {
    (void)state;
    a_world(stop_life);
}

static void any_profile_becomes_any_other(void **state) {
    (void)state;
    a_world(profiles_life);
}

static void a_small_disk_keeps_room_for_nodes(void **state) {
    (void)state;
    world_of(uneven_life, 2, (const uint64_t[]){LARGE_BYTES, SMALL_BYTES});
}

static void a_profile_that_does_not_fit_is_refused(void **state) {
    (void)state;
    a_world(no_room_life);
}

static void the_cleaner_works_ahead(void **state) {
    (void)state;
    a_world(idle_life);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_put_in_order),
        cmocka_unit_test(a_reordering_can_be_stopped),
        cmocka_unit_test(any_profile_becomes_any_other),
        cmocka_unit_test(a_small_disk_keeps_room_for_nodes),
        cmocka_unit_test(a_profile_that_does_not_fit_is_refused),
        cmocka_unit_test(the_cleaner_works_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
