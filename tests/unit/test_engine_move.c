// SPDX-License-Identifier: MPL-2.0
/* A disk that is lost between a move of the cleaner and the commit: in profiles without redundancy
 * it takes what it held before with it, but nothing that was on another disk then. */
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

enum { DISKS = 4, BLOCKS = 4000, ROUNDS_MAX = 60, WRITES = 150, SEEDS = 12, DISK_BYTES = 12 << 20 };

static const struct geometry geometry = {
    .chunk_blocks = 32, .ring_blocks = 512, .row_blocks = 8, .node_blocks = 1};

struct world {
    struct env *env;
    struct sim_disk *disks[DISKS];
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id;
    struct rng rng;
    enum profile profile;
    uint32_t version[BLOCKS];
    uint8_t on[BLOCKS]; /* mask of the disks where the block is, or may be */
    uint64_t moved;     /* by the checkpoint in which the disk was lost */
    bool done;
};

struct content {
    char mark[16];
    uint64_t block;
    uint32_t version, reserved;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void fill(uint8_t *data, uint64_t block, uint32_t version) {
    struct content c = {.mark = "moving block", .block = block, .version = version};
    memset(data, (int)version, 4096);
    memcpy(data, &c, sizeof(c));
}

static int access_block(struct world *w, enum volume_op op, uint64_t block, uint8_t *data) {
    return volume_run(engine_door(w->engine), w->id, op, block * 4096, 4096, data);
}

static void write(struct world *w, uint64_t block) {
    uint8_t data[4096];
    fill(data, block, ++w->version[block]);
    assert_int_equal(access_block(w, VOLUME_WRITE, block, data), OK);
}

/* Which disks hold each block as it is now, anywhere in their chunks. */
static void look_where(struct world *w) {
    memset(w->on, 0, sizeof(w->on));
    for (int d = 0; d < DISKS; d++) {
        uint64_t end = sim_disk_size_bytes(w->disks[d]), start = 0;
        start = layout_chunk_start(&geometry) * 4096ull;
        for (uint64_t at = start; at < end; at += 4096) {
            uint8_t data[4096];
            struct content c;
            sim_disk_peek(w->disks[d], at, data);
            memcpy(&c, data, sizeof(c));
            if (strcmp(c.mark, "moving block") == 0 && c.block < BLOCKS &&
                c.version == w->version[c.block]) {
                w->on[c.block] |= (uint8_t)(1u << d);
            }
        }
    }
}

static uint64_t moved(struct world *w) {
    struct engine_counters counters;
    engine_counters(w->engine, &counters);
    return counters.cleaner_moved_blocks;
}

static void begin(struct world *w) {
    struct errmsg e = {0};
    struct pool_options pool = {
        .name = "move", .paths = w->paths, .path_count = DISKS, .geometry = geometry};
    must(engine_create_pool(w->env, &pool, &e), &e);
    struct engine_import_options options = {
        .pool = {.paths = w->paths, .path_count = DISKS},
        .limits = {.dirty_bytes = 4 << 20, .checkpoint_ms = 3600 * 1000}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
    struct volume_options v = {.name = "v", .size_bytes = BLOCKS * 4096ull, .profile = w->profile};
    must(engine_volume_create(w->engine, &v, &w->id, &e), &e);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        write(w, b);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
}

/* A checkpoint in which a flush of the disk fails. How many blocks it moved. */
static uint64_t lose_at_flush(struct world *w, uint32_t disk) {
    uint64_t before = moved(w);
    assert_int_equal(engine_checkpoint(w->engine), OK); /* nothing is only in memory */
    look_where(w);
    for (int i = 0; i < WRITES; i++) {
        write(w, rng_below(&w->rng, BLOCKS));
    }
    before = moved(w);
    sim_disk_arm(w->disks[disk], SIM_FAULT_FLUSH_ERROR, 0, 1, 0);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    return moved(w) - before;
}

/* What was written in the last checkpoint may have gone to the lost disk at once: not judged. */
static void judge(struct world *w, uint32_t disk, const uint32_t *version_then) {
    uint32_t lost = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint8_t data[4096], want[4096];
        int err = access_block(w, VOLUME_READ, b, data);
        fill(want, b, w->version[b]);
        if (err == OK) {
            assert_memory_equal(data, want, sizeof(want));
        } else if (version_then[b] == w->version[b] && (w->on[b] >> disk & 1) == 0) {
            lost++;
        }
    }
    if (lost > 0) {
        fail_msg("%u blocks are lost that were not on the disk", lost);
    }
}

static void life(void *arg) {
    struct world *w = arg;
    uint32_t *then = mem_alloc(sizeof(w->version));
    begin(w);
    /* Until the cleaner has work in each checkpoint. */
    for (int round = 0; round < ROUNDS_MAX; round++) {
        for (int i = 0; i < WRITES; i++) {
            write(w, rng_below(&w->rng, BLOCKS));
        }
        uint64_t before = moved(w);
        assert_int_equal(engine_checkpoint(w->engine), OK);
        if (round > 10 && moved(w) > before) {
            break;
        }
    }
    look_where(w);
    memcpy(then, w->version, sizeof(w->version));
    w->moved = lose_at_flush(w, 1);
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(w->engine, status);
    assert_int_equal(status->disks[1].state, MEMBER_MISSING);
    mem_free(status);
    judge(w, 1, then);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    judge(w, 1, then);
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 10 * NS_PER_S, &e), &e);
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
    judge(w, 1, then);
    must(engine_close(w->engine, false, env_now_ns(w->env) + 10 * NS_PER_S, &e), &e);
    mem_free(then);
    w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static uint64_t a_world(enum profile profile, uint64_t seed) {
    static const char *const paths[DISKS] = {"d0", "d1", "d2", "d3"};
    struct world *w = mem_alloc(sizeof(*w));
    struct errmsg e = {0};
    w->env = env_sim_new(&(struct env_sim_options){.seed = seed});
    w->profile = profile;
    rng_init(&w->rng, seed);
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme", .path = paths[i], .size_bytes = DISK_BYTES};
        w->paths[i] = paths[i];
        must(env_sim_disk_add(w->env, &disk, &w->disks[i], &e), &e);
    }
    fiber_start(w->env, life, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
    uint64_t count = w->moved;
    env_sim_free(w->env);
    mem_free(w);
    return count;
}

/* Whether the cleaner is at work in that very checkpoint is a matter of chance. */
static void a_disk_is_lost_before_the_commit(void **state) {
    uint32_t met = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t count = a_world((enum profile)(uintptr_t)*state, seed);
        met += count > 0;
    }
    assert_true(met >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {.name = "a disk is lost before the commit, single",
         .test_func = a_disk_is_lost_before_the_commit,
         .initial_state = (void *)(uintptr_t)PROFILE_SINGLE},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
