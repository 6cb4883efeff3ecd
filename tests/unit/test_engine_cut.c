// SPDX-License-Identifier: MPL-2.0
/* Power cuts while a few long writes go to the same blocks over and over and checkpoints run all
 * the time: rows are named by the log, overwritten, and their small segments freed and used again
 * within one checkpoint. Whatever the moment of the cut, the pool is imported again and gives the
 * last acknowledged content or the one that was under way. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "volume_client.h"

enum { DISKS = 3, WRITERS = 3, WRITE_BYTES = 15 * 4096, FILLERS = 16 };
enum { VOLUME_BYTES = 8 << 20, CUTS = 40, PERIOD_MS = 5 };

struct world {
    struct env *env;
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id;
    uint32_t asked[WRITERS], answered[WRITERS]; /* what each writer wrote last: a number */
    bool done;
    struct rng rng;
    struct mem_scope scope, *outer;
};

struct writer {
    struct world *w;
    uint32_t number;
};

static int run(struct world *w, enum volume_op op, uint64_t offset, uint64_t length, void *data) {
    return volume_run(engine_door(w->engine), w->id, op, offset, length, data);
}

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void import(struct world *w) {
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS},
                                            .limits = {.dirty_bytes = 4 << 20}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
}

static void create(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct pool_options options = {
        .name = "cut",
        .paths = w->paths,
        .path_count = DISKS,
        .geometry = {.chunk_blocks = 32, .ring_blocks = 512, .row_blocks = 16, .node_blocks = 1}};
    must(engine_create_pool(w->env, &options, &e), &e);
    import(w);
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_RAID1};
    must(engine_volume_create(w->engine, &volume, &w->id, &e), &e);
    w->done = true;
}

static void writer_fiber(void *arg) {
    struct writer me = *(struct writer *)arg;
    struct world *w = me.w;
    uint32_t *data = mem_alloc(WRITE_BYTES);
    for (;;) {
        w->asked[me.number]++;
        for (uint32_t i = 0; i < WRITE_BYTES / 4; i++) {
            data[i] = w->asked[me.number];
        }
        assert_int_equal(run(w, VOLUME_WRITE, (uint64_t)me.number * WRITE_BYTES, WRITE_BYTES, data),
                         OK);
        w->answered[me.number] = w->asked[me.number];
    }
}

/* Work for the checkpoint, so that it takes a while. */
static void filler_fiber(void *arg) {
    struct world *w = arg;
    uint8_t *data = mem_alloc(4096);
    for (;;) {
        uint64_t block = 128 + rng_below(&w->rng, VOLUME_BYTES / 4096 - 128);
        assert_int_equal(run(w, VOLUME_WRITE, block * 4096, 4096, data), OK);
    }
}

static void checkpoint_fiber(void *arg) {
    struct world *w = arg;
    for (;;) {
        fiber_sleep_until(env_now_ns(w->env) + PERIOD_MS * (uint64_t)NS_PER_MS);
        assert_int_equal(engine_checkpoint(w->engine), OK);
    }
}

static void look(void *arg) {
    struct world *w = arg;
    uint32_t *data = mem_alloc(WRITE_BYTES);
    import(w);
    for (uint32_t n = 0; n < WRITERS; n++) {
        assert_int_equal(run(w, VOLUME_READ, (uint64_t)n * WRITE_BYTES, WRITE_BYTES, data), OK);
        for (uint32_t i = 0; i < WRITE_BYTES / 4; i++) {
            if (data[i] != w->answered[n] && data[i] != w->asked[n]) {
                fail_msg("writer %u: found %u, not %u or %u", n, data[i], w->answered[n],
                         w->asked[n]);
            }
        }
        w->asked[n] = w->answered[n] = data[0];
    }
    mem_free(data);
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

static void power_on(struct world *w) {
    mem_scope_init(&w->scope);
    w->outer = mem_scope_enter(&w->scope);
}

static void power_off(struct world *w) {
    env_sim_power_cut(w->env);
    (void)mem_scope_enter(w->outer);
    mem_scope_drop(&w->scope);
}

static void long_writes_in_one_place(void **state) {
    (void)state;
    static const char *const paths[DISKS] = {"d0", "d1", "d2"};
    struct world w = {.env = env_sim_new(&(struct env_sim_options){.seed = 1})};
    struct errmsg e = {0};
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme-plp", .path = paths[i], .size_bytes = 64 << 20};
        struct sim_disk *ignored;
        w.paths[i] = paths[i];
        must(env_sim_disk_add(w.env, &disk, &ignored, &e), &e);
    }
    rng_init(&w.rng, 1);
    power_on(&w);
    call(&w, create);
    for (uint32_t cut = 0; cut < CUTS; cut++) {
        struct writer writers[WRITERS];
        for (uint32_t n = 0; n < WRITERS; n++) {
            writers[n] = (struct writer){.w = &w, .number = n};
            fiber_start(w.env, writer_fiber, &writers[n]);
        }
        for (uint32_t n = 0; n < FILLERS; n++) {
            fiber_start(w.env, filler_fiber, &w);
        }
        fiber_start(w.env, checkpoint_fiber, &w);
        env_sim_arm_cut(w.env, 3000 + 57 * cut);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, NULL, NULL), SIM_CUT);
        power_off(&w);
        power_on(&w);
        call(&w, look);
    }
    power_off(&w);
    env_sim_free(w.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_writes_in_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
