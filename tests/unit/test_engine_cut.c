// SPDX-License-Identifier: MPL-2.0
/* Power cuts at awkward moments.
 *
 * While a few long writes go to the same blocks over and over and checkpoints run all
 * the time: rows are named by the log, overwritten, and their small segments freed and used again
 * within one checkpoint. Whatever the moment of the cut, the pool is imported again and gives the
 * last acknowledged content or the one that was under way.
 *
 * While metadata gets more copies because a stronger volume is created: when the pool says that it
 * has three, any two of four disks may be absent; as long as it says two, they may not. */
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

/* ---- more copies ---- */

enum { STRONG_DISKS = 4, STRONG_CUTS = 96 };

struct strong {
    struct env *env;
    const char *paths[STRONG_DISKS];
    struct engine *engine;
    uint32_t copies; /* as two disks say */
    uint32_t acknowledged;
    bool done;
};

static int config_put_number(struct strong *s, uint32_t number) {
    struct errmsg e = {0};
    return engine_config_set(s->engine, "test", "number", &number, sizeof(number), &e);
}

static void strong_begin(void *arg) {
    struct strong *s = arg;
    struct errmsg e = {0};
    struct pool_options create = {
        .name = "strong",
        .paths = s->paths,
        .path_count = STRONG_DISKS,
        .geometry = {.chunk_blocks = 32, .ring_blocks = 512, .row_blocks = 16, .node_blocks = 1}};
    struct engine_import_options options = {.pool = {.paths = s->paths, .path_count = STRONG_DISKS},
                                            .limits = {.dirty_bytes = 4 << 20}};
    must(engine_create_pool(s->env, &create, &e), &e);
    must(engine_import(s->env, &options, NULL, NULL, &s->engine, &e), &e);
    assert_int_equal(config_put_number(s, 1), OK);
    assert_int_equal(engine_checkpoint(s->engine), OK);
    s->acknowledged = 1;
    s->done = true;
}

static void strong_create(void *arg) {
    struct strong *s = arg;
    struct errmsg e = {0};
    uint64_t id;
    struct volume_options volume = {.name = "v", .size_bytes = 1 << 20, .profile = PROFILE_RAID6};
    must(engine_volume_create(s->engine, &volume, &id, &e), &e);
}

static void strong_write(void *arg) {
    struct strong *s = arg;
    for (uint32_t number = 2;; number++) {
        assert_int_equal(config_put_number(s, number), OK);
        s->acknowledged = number;
    }
}

static void strong_ask(void *arg) {
    struct strong *s = arg;
    struct errmsg e = {0};
    struct pool *pool;
    struct pool_open_options options = {.paths = s->paths, .path_count = 2, .read_only = true};
    must(pool_open(s->env, &options, &pool, &e), &e);
    s->copies = pool->super.meta_copies;
    pool_close(pool);
    s->done = true;
}

static void see_number(void *ctx, const char *kind, const char *id, const void *blob,
                       uint32_t bytes) {
    uint32_t number;
    (void)kind;
    (void)id;
    assert_int_equal(bytes, sizeof(number));
    memcpy(&number, blob, sizeof(number));
    assert_in_range(number, ((struct strong *)ctx)->acknowledged, UINT32_MAX);
}

static void strong_import_two(void *arg) {
    struct strong *s = arg;
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = s->paths, .path_count = 2}};
    int error = engine_import(s->env, &options, NULL, NULL, &s->engine, &e);
    if (s->copies == 2) {
        assert_int_equal(error, ERR_DATA_LOSS);
        assert_non_null(strstr(e.text, "more than it can lose"));
    } else {
        must(error, &e);
        engine_config_each(s->engine, "test", see_number, s);
    }
    s->done = true;
}

static bool strong_is_done(void *ctx) {
    return ((struct strong *)ctx)->done;
}

static void strong_call(struct strong *s, void (*fn)(void *)) {
    s->done = false;
    fiber_start(s->env, fn, s);
    assert_int_equal(env_sim_run_until(s->env, UINT64_MAX, strong_is_done, s), SIM_DONE);
}

/* One pool, one cut, and two of its disks afterwards. Returns how many copies it said it had. */
static uint32_t cut_while_strengthening(uint32_t number) {
    static const char *const names[STRONG_DISKS] = {"d0", "d1", "d2", "d3"};
    static const uint8_t order[6][STRONG_DISKS] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2},
                                                   {1, 2, 0, 3}, {1, 3, 0, 2}, {2, 3, 0, 1}};
    struct strong s = {.env = env_sim_new(&(struct env_sim_options){.seed = number + 1})};
    struct world memory = {.env = s.env};
    struct errmsg e = {0};
    for (int i = 0; i < STRONG_DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme-plp", .path = names[i], .size_bytes = 16 << 20};
        struct sim_disk *ignored;
        s.paths[i] = names[order[number % 6][i]];
        must(env_sim_disk_add(s.env, &disk, &ignored, &e), &e);
    }
    power_on(&memory);
    strong_call(&s, strong_begin);
    fiber_start(s.env, strong_write, &s);
    fiber_start(s.env, strong_create, &s);
    env_sim_arm_cut(s.env, 1 + number);
    assert_int_equal(env_sim_run_until(s.env, UINT64_MAX, NULL, NULL), SIM_CUT);
    power_off(&memory);
    power_on(&memory);
    strong_call(&s, strong_ask);
    strong_call(&s, strong_import_two);
    power_off(&memory);
    env_sim_free(s.env);
    return s.copies;
}

static void copies_are_there_when_the_pool_says_so(void **state) {
    (void)state;
    uint32_t two = 0, three = 0;
    for (uint32_t cut = 0; cut < STRONG_CUTS; cut++) {
        uint32_t copies = cut_while_strengthening(cut);
        two += copies == 2;
        three += copies == 3;
    }
    assert_true(two > STRONG_CUTS / 8 && three > STRONG_CUTS / 8 && two + three == STRONG_CUTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_writes_in_one_place),
        cmocka_unit_test(copies_are_there_when_the_pool_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
