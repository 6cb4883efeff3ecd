// SPDX-License-Identifier: MPL-2.0
/* VOLUME_QUERY beside checkpoints: blocks are written and given back all the time, checkpoints run
 * all the time, and nodes are read from disk at each lookup. Whatever a query says about a block
 * that was left alone while it ran must be true: a copy that takes a block for a hole loses it. */
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

enum { DISKS = 3, BLOCKS = 2048, CHANGERS = 8, QUERIERS = 4, CHECKPOINTS = 100, RUNS = 2048 };

struct world {
    struct env *env;
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id;
    uint32_t epoch[BLOCKS]; /* odd while somebody changes it; … */
    bool mapped[BLOCKS];    /* … what it is otherwise */
    uint32_t queries, told;
    bool done;
    struct rng rng;
    struct mem_scope scope;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void create(struct world *w) {
    struct errmsg e = {0};
    struct pool_options options = {
        .name = "query",
        .paths = w->paths,
        .path_count = DISKS,
        .geometry = {.chunk_blocks = 32, .ring_blocks = 512, .row_blocks = 16, .node_blocks = 1}};
    must(engine_create_pool(w->env, &options, &e), &e);
    struct engine_import_options import = {
        .pool = {.paths = w->paths, .path_count = DISKS},
        .limits = {.dirty_bytes = 4 << 20, .node_cache_bytes = 1, .read_cache_bytes = 1}};
    must(engine_import(w->env, &import, NULL, NULL, &w->engine, &e), &e);
    struct volume_options volume = {
        .name = "v", .size_bytes = BLOCKS * 4096, .profile = PROFILE_RAID1};
    must(engine_volume_create(w->engine, &volume, &w->id, &e), &e);
}

/* Each changes blocks of its own: number, number + CHANGERS, … */
static void changer(struct world *w, uint32_t number) {
    uint8_t *data = mem_alloc(4096);
    while (!w->done) {
        uint32_t block =
            (uint32_t)rng_below(&w->rng, BLOCKS / CHANGERS) * (uint32_t)CHANGERS + number;
        bool map = !w->mapped[block];
        w->epoch[block]++;
        assert_int_equal(volume_run(engine_door(w->engine), w->id,
                                    map ? VOLUME_WRITE : VOLUME_UNMAP, block * 4096ull, 4096,
                                    map ? data : NULL),
                         OK);
        w->mapped[block] = map;
        w->epoch[block]++;
    }
}

static void check(struct world *w, const uint32_t *epoch, const struct volume_run *runs) {
    uint32_t block = 0;
    for (uint32_t i = 0; i < RUNS && runs[i].length_bytes != 0; i++) {
        assert_int_equal(runs[i].length_bytes % 4096, 0);
        for (uint64_t n = runs[i].length_bytes / 4096; n > 0; n--, block++) {
            if (epoch[block] == w->epoch[block] && epoch[block] % 2 == 0) {
                w->told++;
                if (runs[i].mapped != w->mapped[block]) {
                    fail_msg("query %u: block %u is %s", w->queries, block,
                             w->mapped[block] ? "mapped" : "a hole");
                }
            }
        }
    }
    assert_int_equal(block, BLOCKS);
}

static void querier(void *arg) {
    struct world *w = arg;
    struct volume_run *runs = mem_alloc(RUNS * sizeof(*runs));
    uint32_t *epoch = mem_alloc(sizeof(w->epoch));
    while (!w->done) {
        memcpy(epoch, w->epoch, sizeof(w->epoch));
        assert_int_equal(volume_ask(engine_door(w->engine), w->id, VOLUME_QUERY, 0, BLOCKS * 4096,
                                    runs, RUNS * sizeof(*runs)),
                         OK);
        check(w, epoch, runs);
        w->queries++;
        fiber_sleep_until(env_now_ns(w->env) + 50 * NS_PER_US); /* virtual time stands still else */
    }
}

static void checkpoints(void *arg) {
    struct world *w = arg;
    for (uint32_t i = 0; i < CHECKPOINTS; i++) {
        assert_int_equal(engine_checkpoint(w->engine), OK);
    }
    w->done = true;
}

struct changer {
    struct world *w;
    uint32_t number;
};

static void changer_fiber(void *arg) {
    struct changer me = *(struct changer *)arg;
    changer(me.w, me.number);
}

static struct changer changers[CHANGERS];

static void begin(void *arg) {
    struct world *w = arg;
    create(w);
    for (uint32_t i = 0; i < CHANGERS; i++) {
        changers[i] = (struct changer){w, i};
        fiber_start(w->env, changer_fiber, &changers[i]);
    }
    for (uint32_t i = 0; i < QUERIERS; i++) {
        fiber_start(w->env, querier, w);
    }
    fiber_start(w->env, checkpoints, w);
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void queries_beside_checkpoints(void **state) {
    (void)state;
    static const char *const paths[DISKS] = {"d0", "d1", "d2"};
    static struct world w;
    struct errmsg e = {0};
    w.env = env_sim_new(&(struct env_sim_options){.seed = 1});
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme-plp", .path = paths[i], .size_bytes = 64 << 20};
        struct sim_disk *ignored;
        w.paths[i] = paths[i];
        must(env_sim_disk_add(w.env, &disk, &ignored, &e), &e);
    }
    rng_init(&w.rng, 1);
    mem_scope_init(&w.scope);
    struct mem_scope *outer = mem_scope_enter(&w.scope);
    fiber_start(w.env, begin, &w);
    assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, is_done, &w), SIM_DONE);
    assert_true(w.queries > CHECKPOINTS);
    assert_true(w.told > w.queries * BLOCKS / 2); /* most was left alone while they ran */
    env_sim_power_cut(w.env);
    (void)mem_scope_enter(outer);
    mem_scope_drop(&w.scope);
    env_sim_free(w.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(queries_beside_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
