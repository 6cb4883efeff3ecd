// SPDX-License-Identifier: MPL-2.0
/* Nobody waits longer than need be: a check with a disk that hangs (from the beginning, from some
 * moment on, or again and again) ends within a minute and says which disk it was; an import reads
 * around bad places of a slow disk, and does without disks that hang, but not without what only
 * they have; a pool that is closed while writers wait for room in its log is closed at once. And
 * what comes late changes nothing any more. */
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

enum {
    DISKS = 6,
    DISK_BYTES = 32 << 20,
    VOLUME_BYTES = 24 << 20,
    PIECE_BYTES = 64 << 10,
    WRITERS = 100
};

static const struct geometry geometry = {
    .chunk_blocks = 64, .ring_blocks = 64, .row_blocks = 16, .node_blocks = 1};

struct world {
    struct env *env;
    struct sim_disk *disk[DISKS];
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id;
    struct engine_check_result result;
    char findings[4096];
    uint32_t writers, written, refused, others;
    bool done, checking;
    uint64_t took_ns;
    struct mem_scope scope, *outer; /* of an engine whose power is cut */
    uint32_t stalls;                /* disks that hang while an import replays the log */
    uint8_t content;
    int import;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void begin(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct pool_options create = {
        .name = "hang", .paths = w->paths, .path_count = DISKS, .geometry = geometry};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS},
                                            .limits = {.dirty_bytes = 16 << 20}};
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_RAID6};
    must(engine_create_pool(w->env, &create, &e), &e);
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
    must(engine_volume_create(w->engine, &volume, &w->id, &e), &e);
    w->done = true;
}

static void fill_and_close(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct rng rng;
    uint8_t *data = mem_alloc(PIECE_BYTES);
    rng_init(&rng, 1);
    for (uint64_t at = 0; at < VOLUME_BYTES; at += PIECE_BYTES) {
        rng_fill(&rng, data, PIECE_BYTES);
        assert_int_equal(
            volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, at, PIECE_BYTES, data), OK);
    }
    mem_free(data);
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
    w->done = true;
}

static void finding(void *owner, const char *text) {
    struct world *w = owner;
    size_t used = strlen(w->findings);
    (void)snprintf(w->findings + used, sizeof(w->findings) - used, "%s\n", text);
}

static void check(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct pool_open_options options = {.paths = w->paths, .path_count = DISKS};
    uint64_t started = env_now_ns(w->env);
    w->findings[0] = '\0';
    w->checking = true;
    must(engine_check(w->env, &options, finding, w, &w->result, &e), &e);
    w->checking = false;
    w->took_ns = env_now_ns(w->env) - started;
    w->done = true;
}

/* Each I/O of the disk takes six seconds: every one comes back, and each too late. */
static void stutter(void *arg) {
    struct world *w = arg;
    while (w->checking) {
        sim_disk_stall(w->disk[2], env_now_ns(w->env) + 6 * NS_PER_S);
        fiber_sleep_until(env_now_ns(w->env) + 6 * NS_PER_S + NS_PER_MS);
    }
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void call(struct world *w, void (*fn)(void *)) {
    w->done = false;
    fiber_start(w->env, fn, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
}

static void world_disks(struct world *w) {
    static const char *const names[DISKS] = {"d0", "d1", "d2", "d3", "d4", "d5"};
    struct errmsg e = {0};
    *w = (struct world){.env = env_sim_new(&(struct env_sim_options){.seed = 1})};
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {.model = "ssd", .path = names[i], .size_bytes = DISK_BYTES};
        w->paths[i] = names[i];
        must(env_sim_disk_add(w->env, &disk, &w->disk[i], &e), &e);
    }
}

static void world_new(struct world *w) {
    world_disks(w);
    call(w, begin);
}

static void assert_found(const struct world *w, const char *words) {
    if (strstr(w->findings, words) == NULL) {
        fail_msg("\"%s\" is not among \"%s\"", words, w->findings);
    }
}

static void checks_leave_out_what_hangs(void **state) {
    (void)state;
    struct world w;
    world_new(&w);
    call(&w, fill_and_close);
    call(&w, check);
    assert_int_equal(w.result.problems, 0);
    assert_true(w.result.rows_read > 100);
    const struct engine_check_result clean = w.result;
    const uint64_t whole_ns = w.took_ns;
    for (uint32_t eighth = 0; eighth < 8; eighth++) {
        w.done = false;
        fiber_start(w.env, check, &w);
        (void)env_sim_run_until(w.env, env_now_ns(w.env) + eighth * whole_ns / 8, is_done, &w);
        sim_disk_stall(w.disk[2], UINT64_MAX);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, is_done, &w), SIM_DONE);
        sim_disk_stall(w.disk[2], 0);
        assert_found(&w, eighth == 0 ? "disk 2 was not checked: d2 does not answer"
                                     : "d2 does not answer in time");
        assert_int_equal(w.result.problems, 1); /* and nothing that follows from it */
        assert_int_equal(w.result.rows_read, clean.rows_read);
        assert_in_range(w.took_ns, 5 * NS_PER_S, 30 * NS_PER_S);
    }
    w.done = false;
    fiber_start(w.env, check, &w);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + whole_ns / 4, is_done, &w);
    fiber_start(w.env, stutter, &w);
    assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, is_done, &w), SIM_DONE);
    assert_found(&w, "d2 does not answer in time");
    assert_in_range(w.took_ns, 5 * NS_PER_S, 60 * NS_PER_S);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + 10 * NS_PER_S, NULL,
                            NULL); /* it comes back */
    env_sim_free(w.env);
}

/* ---- importing ---- */

enum { CHANGES = 30 };

static void change(void *arg) {
    struct world *w = arg;
    uint8_t data[4096];
    w->content++;
    for (uint64_t at = 0; at < CHANGES; at++) {
        memset(data, w->content + (int)at, sizeof(data));
        assert_int_equal(volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, at * sizeof(data),
                                    sizeof(data), data),
                         OK);
    }
    w->done = true;
}

static void stall_those(void *owner, const char *stage, uint32_t percent) {
    struct world *w = owner;
    (void)percent;
    for (uint32_t i = 0; i < w->stalls && strcmp(stage, "replaying the log") == 0; i++) {
        sim_disk_stall(w->disk[i], UINT64_MAX);
    }
}

static void import_and_judge(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS}};
    uint64_t started = env_now_ns(w->env);
    w->import = engine_import(w->env, &options, stall_those, w, &w->engine, &e);
    w->took_ns = env_now_ns(w->env) - started;
    uint8_t data[4096];
    for (uint64_t at = 0; at < CHANGES && w->import == OK; at++) {
        assert_int_equal(
            volume_run(engine_door(w->engine), w->id, VOLUME_READ, at * 4096, 4096, data), OK);
        assert_int_equal(data[0], w->content + at);
        assert_int_equal(data[4095], w->content + at);
    }
    w->done = true;
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

/* Changes that are acknowledged, and in the log only. */
static void change_and_cut(struct world *w) {
    call(w, change);
    power_off(w);
    power_on(w);
}

static void imports_do_without_what_others_have(void **state) {
    (void)state;
    struct world w;
    world_disks(&w);
    power_on(&w);
    call(&w, begin);
    change_and_cut(&w);
    uint32_t bad = 0;
    for (uint64_t b = RING_START; b < RING_START + geometry.ring_blocks; b += 7) {
        bad += sim_disk_make_latent(w.disk[5], b * 4096);
    }
    assert_in_range(bad, 3, 10);
    sim_disk_slow(w.disk[5], 1, 4800 * NS_PER_MS);
    call(&w, import_and_judge);
    assert_int_equal(w.import, OK);
    assert_in_range(w.took_ns, 5 * NS_PER_S, 180 * NS_PER_S);
    sim_disk_slow(w.disk[5], 1, 0);
    sim_disk_heal(w.disk[5]);
    /* A row has three copies: on three disks that hang may be all of them. */
    change_and_cut(&w);
    w.stalls = 3;
    call(&w, import_and_judge);
    assert_int_equal(w.import, ERR_TIMEOUT);
    assert_in_range(w.took_ns, 25 * NS_PER_S, 120 * NS_PER_S);
    for (uint32_t i = 0; i < w.stalls; i++) {
        sim_disk_stall(w.disk[i], 0);
    }
    w.stalls = 2;
    call(&w, import_and_judge);
    assert_int_equal(w.import, OK);
    assert_in_range(w.took_ns, 25 * NS_PER_S, 120 * NS_PER_S);
    power_off(&w);
    env_sim_free(w.env);
}

/* ---- closing ---- */

static void writer(void *arg) {
    struct world *w = arg;
    uint8_t *data = mem_alloc(4 * 4096);
    uint64_t at = (uint64_t)w->writers++ * 8 * 4096;
    int err = OK;
    while (err == OK) {
        err = volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, at, 4 * 4096, data);
        w->written += err == OK;
        w->refused += err == ERR_SHUTDOWN;
        w->others += err != OK && err != ERR_SHUTDOWN;
    }
    mem_free(data);
}

static void close_pool(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    uint64_t started = env_now_ns(w->env);
    must(engine_close(w->engine, false, started + 60 * NS_PER_S, &e), &e);
    w->took_ns = env_now_ns(w->env) - started;
    w->done = true;
}

static bool waits_for_room(void *ctx) {
    struct world *w = ctx;
    struct engine_counters counters;
    engine_counters(w->engine, &counters);
    return counters.log_waits_for_space > 20;
}

static void closing_ends_who_waits_for_room(void **state) {
    (void)state;
    struct world w;
    world_new(&w);
    for (int i = 0; i < WRITERS; i++) {
        fiber_start(w.env, writer, &w);
    }
    assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, waits_for_room, &w), SIM_DONE);
    call(&w, close_pool);
    (void)env_sim_run_until(w.env, env_now_ns(w.env) + NS_PER_S, NULL, NULL);
    assert_int_equal(w.refused, WRITERS);
    assert_int_equal(w.others, 0);
    assert_true(w.written > 20);
    assert_in_range(w.took_ns, 0, 5 * NS_PER_S);
    call(&w, check);
    assert_int_equal(w.result.problems, 0);
    env_sim_free(w.env);
}

/* ---- late reads ---- */

static void read_block(struct world *w, uint64_t block, void *ret_data) {
    assert_int_equal(
        volume_run(engine_door(w->engine), w->id, VOLUME_READ, block * 4096, 4096, ret_data), OK);
}

/* A block is computed from the others because its disk is late, and kept in the cache; what comes
 * from the disk in the end is something else. */
static void read_late(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS}};
    uint8_t data[4096], again[4096], garbage[4096] = {0};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
    sim_disk_arm(w->disk[0], SIM_FAULT_LATE, 0, 1, 20 * NS_PER_S);
    struct engine_counters counters = {0};
    uint64_t block = 0;
    while (counters.hedges_won == 0) {
        block += 11;
        read_block(w, block, data);
        engine_counters(w->engine, &counters);
    }
    for (uint64_t b = layout_chunk_block(&geometry, 0); b < DISK_BYTES / 4096 - 256; b++) {
        sim_disk_poke(w->disk[0], b * 4096, garbage);
    }
    fiber_sleep_until(env_now_ns(w->env) + 30 * NS_PER_S);
    read_block(w, block, again);
    assert_memory_equal(again, data, sizeof(data));
    must(engine_close(w->engine, false, env_now_ns(w->env) + 60 * NS_PER_S, &e), &e);
    w->done = true;
}

static void what_comes_late_changes_nothing(void **state) {
    (void)state;
    struct world w;
    world_new(&w);
    call(&w, fill_and_close);
    call(&w, read_late);
    env_sim_free(w.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_leave_out_what_hangs),
        cmocka_unit_test(imports_do_without_what_others_have),
        cmocka_unit_test(closing_ends_who_waits_for_room),
        cmocka_unit_test(what_comes_late_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
