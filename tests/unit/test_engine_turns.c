// SPDX-License-Identifier: MPL-2.0
/* What durable writes cost on modelled disks that rotate, in rows of the log: the REFs of long
 * writes that are under way together share them, and a short write is not kept waiting by those. */
#include "unit.h"

#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "volume_client.h"

enum { DISKS = 4, WRITERS = 12, LONG_BYTES = 512 << 10, VOLUME_BYTES = 32 << 20 };

struct world {
    struct env *env;
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id, rows, long_done_ns, short_done_ns;
    uint32_t running;
    bool done;
};

struct writer {
    struct world *w;
    uint64_t offset, bytes, delay_ns;
    uint64_t *done_ns;
};

static uint64_t log_rows(const struct world *w) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    engine_status(w->engine, st);
    uint64_t rows = st->log_rows;
    mem_free(st);
    return rows;
}

static void writer_fiber(void *arg) {
    struct writer *me = arg;
    struct world *w = me->w;
    void *data = mem_alloc(me->bytes);
    if (me->delay_ns > 0) {
        fiber_sleep_until(env_now_ns(w->env) + me->delay_ns);
    }
    assert_int_equal(
        volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, me->offset, me->bytes, data), OK);
    *me->done_ns = MAX(*me->done_ns, env_now_ns(w->env));
    mem_free(data);
    w->running--;
}

static void import_and_create(struct world *w) {
    struct errmsg e = {0};
    struct pool_options options = {.name = "turns",
                                   .paths = w->paths,
                                   .path_count = DISKS,
                                   .geometry = {.chunk_blocks = 1024, .ring_blocks = 2048}};
    struct engine_import_options import = {.pool = {.paths = w->paths, .path_count = DISKS}};
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_RAID5};
    if (engine_create_pool(w->env, &options, &e) != OK ||
        engine_import(w->env, &import, NULL, NULL, &w->engine, &e) != OK ||
        engine_volume_create(w->engine, &volume, &w->id, &e) != OK) {
        fail_msg("%s", e.text);
    }
}

static void writers_run(struct world *w, struct writer *writers, uint32_t count) {
    w->rows = log_rows(w);
    for (uint32_t i = 0; i < count; i++) {
        w->running++;
        fiber_start(w->env, writer_fiber, &writers[i]);
    }
    while (w->running > 0) {
        fiber_sleep_until(env_now_ns(w->env) + NS_PER_MS);
    }
    w->rows = log_rows(w) - w->rows;
}

static void world_fiber(void *arg) {
    struct world *w = arg;
    struct writer writers[WRITERS + 1];
    struct errmsg e = {0};
    import_and_create(w);
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.w = w,
                                     .offset = (uint64_t)i * LONG_BYTES,
                                     .bytes = LONG_BYTES,
                                     .done_ns = &w->long_done_ns};
    }
    /* A short one comes while the first rows of the long ones are being written. */
    writers[WRITERS] = (struct writer){
        .w = w, .bytes = 4096, .delay_ns = 20 * NS_PER_MS, .done_ns = &w->short_done_ns};
    writers_run(w, writers, WRITERS);
    uint64_t rows = w->rows;
    writers_run(w, writers, WRITERS + 1);
    w->rows = rows;
    assert_int_equal(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), OK);
    w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void world_run(struct world *w) {
    static const char *const paths[DISKS] = {"d0", "d1", "d2", "d3"};
    struct env_sim_options options = {.seed = 1};
    struct errmsg e = {0};
    struct mem_scope scope;
    *w = (struct world){.env = env_sim_new(&options)};
    memcpy(w->paths, paths, sizeof(paths));
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "hdd", .path = paths[i], .size_bytes = 512 << 20, .cache_off = true};
        struct sim_disk *added;
        assert_int_equal(env_sim_disk_add(w->env, &disk, &added, &e), OK);
    }
    mem_scope_init(&scope);
    struct mem_scope *outer = mem_scope_enter(&scope);
    fiber_start(w->env, world_fiber, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
    mem_scope_enter(outer);
    mem_scope_drop(&scope);
    env_sim_free(w->env);
}

static void test_long_writes_share(void **state) {
    (void)state;
    struct world w;
    world_run(&w);
    assert_in_range(w.rows, 1, 3); /* of twelve writes */
    assert_true(w.short_done_ns < w.long_done_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_writes_share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
