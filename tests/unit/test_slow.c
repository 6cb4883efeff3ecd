// SPDX-License-Identifier: MPL-2.0
/* Slow disks: histograms, I/Os that are left, and what an engine makes of a disk that is slower
 * than its peers: it is asked no more, expelled when it stays so, cleared when it does not, and
 * never suspected when all are slow alike. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "disk/disk.h"
#include "engine/engine.h"
#include "env/sim/sim.h"
#include "env_fake.h"
#include "volume_client.h"

/* ---- histograms ---- */

static void a_quantile_is_the_end_of_its_bucket(void **state) {
    (void)state;
    struct latency_histogram h = {0};
    assert_int_equal(latency_quantile(&h, 500, 1), 0);
    for (uint32_t b = 0; b + 1 < LATENCY_BUCKETS; b++) {
        struct latency_histogram one = {0};
        latency_add(&one, latency_bucket_ns(b));
        assert_int_equal(latency_quantile(&one, 500, 1), latency_bucket_ns(b));
        latency_add(&one, latency_bucket_ns(b) + 1);
        latency_add(&one, latency_bucket_ns(b) + 1);
        assert_int_equal(latency_quantile(&one, 990, 1), latency_bucket_ns(b + 1));
        assert_int_equal(latency_quantile(&one, 990, 4), 0); /* too few */
    }
    for (int i = 0; i < 99; i++) {
        latency_add(&h, NS_PER_MS);
    }
    latency_add(&h, 1000 * NS_PER_S);
    assert_in_range(latency_quantile(&h, 500, 1), NS_PER_MS, NS_PER_MS * 3 / 2);
    assert_in_range(latency_quantile(&h, 990, 1), NS_PER_MS, NS_PER_MS * 3 / 2);
    assert_true(latency_quantile(&h, 1000, 1) > 100 * NS_PER_S);
}

static void what_is_long_ago_fades(void **state) {
    (void)state;
    struct disk_latency l = {.busy_ns = 1000, .units = 100};
    for (int i = 0; i < 100; i++) {
        latency_add(&l.of[LATENCY_READ][LATENCY_SMALL], NS_PER_S);
    }
    for (int i = 0; i < 30; i++) {
        latency_fade(&l);
    }
    assert_int_equal(latency_quantile(&l.of[LATENCY_READ][LATENCY_SMALL], 500, 1), 0);
    for (int i = 0; i < 20; i++) {
        latency_add(&l.of[LATENCY_READ][LATENCY_SMALL], NS_PER_MS);
    }
    assert_true(latency_quantile(&l.of[LATENCY_READ][LATENCY_SMALL], 990, 16) < 2 * NS_PER_MS);
}

/* ---- I/Os that are left ---- */

static void never_called(struct disk_io *io) {
    (void)io;
    fail_msg("the caller was told of an I/O that it had left");
}

static void what_is_left_stays_accounted(void **state) {
    (void)state;
    struct fake_world world = {0};
    struct fake_env fake = {0};
    uint64_t memory = mem_in_use_bytes();
    struct fake_media *media = fake_media_add(&world, "a", 1 << 20);
    fake_init(&fake, &world, 1);
    struct disk *disk;
    assert_int_equal(disk_open(&fake.env, "a", &(struct disk_options){0}, &disk, NULL), OK);
    struct buf *b = buf_new(8192);
    media->hang = true;
    struct disk_io read = {.op = ENV_IO_READ, .length_bytes = 8192, .buf = b, .done = never_called};
    struct disk_io write = read;
    write.op = ENV_IO_WRITE;
    write.durable = true;
    disk_submit(disk, &read);
    disk_submit(disk, &write);
    buf_unref(b); /* the disk layer has its own */
    fake_advance(&fake, fake.now_ns + NS_PER_S);
    assert_int_equal(disk_oldest_ns(disk), NS_PER_S);
    assert_false(disk_may_change(disk, 4096, 4096)); /* its caller waits */
    disk_leave(&read);
    assert_false(disk_may_change(disk, 4096, 4096)); /* a read changes nothing */
    disk_leave(&write);
    disk_leave(&write); /* harmless */
    assert_true(disk_may_change(disk, 4096, 1 << 16));
    assert_true(disk_may_change(disk, 0, 4096));
    assert_false(disk_may_change(disk, 8192, 4096)); /* it does not reach there */
    assert_int_equal(read.result, ERR_TIMEOUT);
    const struct disk_counters *c = disk_counters(disk);
    assert_int_equal(c->late_bytes, 16384);
    assert_int_equal(c->late_changes, 1);
    assert_int_equal(c->late_durable, 1);
    assert_int_equal(c->in_flight, 0);
    assert_int_equal(c->left, 2);
    assert_int_equal(c->errors[DISK_ERROR_TIMEOUT], 0);
    media->hang = false;
    fake_release(&fake);
    fake_settle(&fake);
    assert_int_equal(c->late_bytes + c->late_changes + c->late_durable, 0);
    assert_false(disk_may_change(disk, 0, 8192));
    assert_int_equal(disk_oldest_ns(disk), 0);
    disk_close(disk);
    fake_settle(&fake);
    fake_power_cut(&fake);
    fake_world_done(&world);
    assert_int_equal(mem_in_use_bytes(), memory);
}

/* ---- engines ---- */

enum { DISKS = 6, VOLUME_BYTES = 24 << 20, DISK_BYTES = 64 << 20, READERS = 8 };

struct world {
    struct env *env;
    struct sim_disk *disk[DISKS];
    const char *paths[DISKS];
    struct engine *engine;
    struct engine_status status;
    struct engine_counters counters;
    uint64_t id, worst_ns, since_ns;
    uint32_t reads, errors, running;
    bool done, stop;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void fill(uint8_t *data, uint64_t block) {
    struct rng rng;
    rng_init(&rng, block);
    rng_fill(&rng, data, 4096);
}

static void begin(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct pool_options create = {
        .name = "slow",
        .paths = w->paths,
        .path_count = DISKS,
        .geometry = {.chunk_blocks = 128, .ring_blocks = 128, .row_blocks = 16, .node_blocks = 1}};
    struct engine_import_options options = {
        .pool = {.paths = w->paths, .path_count = DISKS},
        .limits = {.dirty_bytes = 16 << 20, .read_cache_bytes = 1 << 17}};
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_RAID5};
    must(engine_create_pool(w->env, &create, &e), &e);
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
    must(engine_volume_create(w->engine, &volume, &w->id, &e), &e);
    uint8_t *data = mem_alloc(64 << 10);
    for (uint64_t at = 0; at < VOLUME_BYTES; at += 64 << 10) {
        for (uint64_t b = 0; b < 16; b++) {
            fill(data + b * 4096, at / 4096 + b);
        }
        assert_int_equal(
            volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, at, 64 << 10, data), OK);
    }
    mem_free(data);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    w->done = true;
}

static void close_pool(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
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

static void reader(void *arg) {
    struct world *w = arg;
    struct rng rng;
    uint8_t *data = mem_alloc(4096), *want = mem_alloc(4096);
    rng_init(&rng, 7 + w->running++);
    while (!w->stop) {
        uint64_t block = rng_below(&rng, VOLUME_BYTES / 4096), start = env_now_ns(w->env);
        int err = volume_run(engine_door(w->engine), w->id, VOLUME_READ, block * 4096, 4096, data);
        fill(want, block);
        w->errors += err != OK || memcmp(data, want, 4096) != 0;
        w->reads++;
        if (start >= w->since_ns) {
            uint64_t took = env_now_ns(w->env) - start;
            w->worst_ns = took > w->worst_ns ? took : w->worst_ns;
        }
        fiber_sleep_until(env_now_ns(w->env) + 20 * NS_PER_MS);
    }
    mem_free(data);
    mem_free(want);
    w->running--;
}

static void pass(struct world *w, uint64_t ms) {
    (void)env_sim_run_until(w->env, env_now_ns(w->env) + ms * NS_PER_MS, NULL, NULL);
    engine_status(w->engine, &w->status);
    engine_counters(w->engine, &w->counters);
}

static void world_new(struct world *w, const char *model) {
    static const char *const names[DISKS] = {"d0", "d1", "d2", "d3", "d4", "d5"};
    struct errmsg e = {0};
    memset(w, 0, sizeof(*w));
    w->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = model, .path = names[i], .size_bytes = DISK_BYTES, .scale = 256};
        w->paths[i] = names[i];
        must(env_sim_disk_add(w->env, &disk, &w->disk[i], &e), &e);
    }
    call(w, begin);
    for (int i = 0; i < READERS; i++) {
        fiber_start(w->env, reader, w);
    }
    pass(w, 4000);
    assert_int_equal(w->counters.disks_suspected, 0);
    w->since_ns = env_now_ns(w->env) + 2 * NS_PER_S;
}

static void world_end(struct world *w) {
    w->stop = true;
    pass(w, 1000);
    assert_int_equal(w->running, 0);
    assert_int_equal(w->errors, 0);
    assert_true(w->reads > 200);
    call(w, close_pool);
    env_sim_free(w->env);
}

static void a_slow_disk_is_avoided_then_expelled(void **state) {
    (void)state;
    static const struct {
        const char *model;
        uint32_t factor, delay_ms;
    } cases[] = {
        {"hdd", 10, 0}, {"hdd", 1, 1000}, {"ssd", 10, 0}, {"ssd", 100, 0}, {"ssd", 1, 1000}};
    struct world w;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        world_new(&w, cases[i].model);
        sim_disk_slow(w.disk[2], cases[i].factor, cases[i].delay_ms * (uint64_t)NS_PER_MS);
        pass(&w, 3000);
        assert_true(w.status.disks[2].slow.suspect);
        assert_string_equal(w.status.health, "degraded");
        assert_non_null(strstr(w.status.advice, "is slow"));
        pass(&w, 27000);
        assert_int_equal(w.status.disks[2].state, MEMBER_MISSING);
        assert_non_null(strstr(w.status.disks[2].why, "it is slow"));
        assert_true(w.status.disks[2].slow.expelled);
        assert_int_equal(w.counters.disks_expelled_slow, 1);
        assert_true(w.counters.detoured > 0 && w.counters.hedged > 0);
        assert_in_range(w.worst_ns, 1, 250 * NS_PER_MS); /* nobody waited for it */
        world_end(&w);
    }
}

static void a_disk_that_recovers_is_cleared(void **state) {
    (void)state;
    struct world w;
    world_new(&w, "ssd");
    sim_disk_slow(w.disk[1], 50, 0);
    pass(&w, 3000);
    assert_true(w.status.disks[1].slow.suspect);
    sim_disk_slow(w.disk[1], 1, 0);
    pass(&w, 12000);
    assert_false(w.status.disks[1].slow.suspect);
    assert_int_equal(w.counters.suspects_cleared, 1);
    assert_int_equal(w.status.disks[1].state, MEMBER_IN_SYNC);
    assert_string_equal(w.status.health, "ok");
    world_end(&w);
}

static void disks_that_are_slow_alike_are_not_suspected(void **state) {
    (void)state;
    struct world w;
    world_new(&w, "hdd");
    for (int i = 0; i < DISKS; i++) {
        sim_disk_slow(w.disk[i], 10, 200 * (uint64_t)NS_PER_MS);
    }
    pass(&w, 40000);
    assert_int_equal(w.counters.disks_suspected, 0);
    for (int i = 0; i < DISKS; i++) {
        assert_int_equal(w.status.disks[i].state, MEMBER_IN_SYNC);
    }
    world_end(&w);
}

/* The second slow disk of a pool that bears one loss stays, and is shown, until it is whole again.
 */
static void no_more_are_expelled_than_redundancy_bears(void **state) {
    (void)state;
    struct world w;
    world_new(&w, "ssd");
    sim_disk_slow(w.disk[4], 100, 0);
    sim_disk_slow(w.disk[0], 100, 0);
    pass(&w, 60000);
    bool first = w.status.disks[0].state == MEMBER_MISSING;
    const struct engine_disk_status *gone = &w.status.disks[first ? 0 : 4];
    const struct engine_disk_status *held = &w.status.disks[first ? 4 : 0];
    assert_int_equal(gone->state, MEMBER_MISSING);
    if (held->state == MEMBER_IN_SYNC) {
        assert_true(held->slow.suspect && held->slow.held);
        assert_non_null(strstr(w.status.advice, "It stays in use"));
    } else { /* what the first one held was made anew before */
        assert_true(w.counters.columns_rebuilt + w.counters.segments_restriped > 0);
    }
    world_end(&w); /* nothing was lost */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quantile_is_the_end_of_its_bucket),
        cmocka_unit_test(what_is_long_ago_fades),
        cmocka_unit_test(what_is_left_stays_accounted),
        cmocka_unit_test(a_slow_disk_is_avoided_then_expelled),
        cmocka_unit_test(a_disk_that_recovers_is_cleared),
        cmocka_unit_test(disks_that_are_slow_alike_are_not_suspected),
        cmocka_unit_test(no_more_are_expelled_than_redundancy_bears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
