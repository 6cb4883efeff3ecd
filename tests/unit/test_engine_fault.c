// SPDX-License-Identifier: MPL-2.0
/* Volumes that lose nodes of their trees beyond redundancy: the pool goes on, the volume reads what
 * it can, what it had acknowledged is kept or refused, and deleting it gives all of its space
 * back. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "volume_client.h"

enum { DISKS = 5, BLOCKS = 3000, PLACES_KEPT = ENGINE_PLACES_MAX };
static const uint64_t VOLUME_BYTES = 4ull << 30;

struct world {
    struct env *env;
    struct sim_disk *disks[DISKS];
    const char *paths[DISKS];
    enum profile profile;
    struct engine *engine;
    uint64_t hurt, other; /* volumes */
    uint32_t version[BLOCKS];
    uint64_t live_before; /* blocks, before the first write to what gets hurt */
    char problems[4096];
    uint64_t problem_count;
    struct engine_place places[PLACES_KEPT]; /* that were destroyed */
    uint8_t good[PLACES_KEPT][4096];
    uint32_t place_count;
    bool done;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static int run(struct world *w, uint64_t id, enum volume_op op, uint64_t block, uint64_t count,
               void *data) {
    return volume_run(engine_door(w->engine), id, op, block * 4096, count * 4096, data);
}

static void import(struct world *w) {
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = w->paths, .path_count = DISKS},
                                            .limits = {.dirty_bytes = 16 << 20}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
}

static void close(struct world *w) {
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 10 * NS_PER_S, &e), &e);
    w->engine = NULL;
}

static void report(void *owner, const char *text) {
    struct world *w = owner;
    size_t used = strlen(w->problems);
    (void)snprintf(w->problems + used, sizeof(w->problems) - used, "%s\n", text);
}

static void check(struct world *w) {
    struct errmsg e = {0};
    struct engine_check_result result;
    struct pool_open_options options = {.paths = w->paths, .path_count = DISKS};
    w->problems[0] = '\0';
    must(engine_check(w->env, &options, report, w, &result, &e), &e);
    w->problem_count = result.problems;
}

static void fill(uint32_t *data, uint64_t block, uint32_t version) {
    for (uint32_t i = 0; i < 1024; i++) {
        data[i] = (uint32_t)block * 2654435761u + version;
    }
}

static int write(struct world *w, uint64_t id, uint64_t block, uint32_t version) {
    uint32_t data[1024];
    fill(data, block, version);
    return run(w, id, VOLUME_WRITE, block, 1, data);
}

/* Right, or refused: the error. */
static int read(struct world *w, uint64_t id, uint64_t block, uint32_t version) {
    uint32_t data[1024], want[1024] = {0};
    int err = run(w, id, VOLUME_READ, block, 1, data);
    if (version > 0) {
        fill(want, block, version);
    }
    if (err == OK && memcmp(data, want, sizeof(data)) != 0) {
        fail_msg("block %llu holds what it must not", (unsigned long long)block);
    }
    return err;
}

static uint32_t unreadable(struct world *w) {
    uint32_t count = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        count += read(w, w->hurt, b, w->version[b]) != OK;
    }
    return count;
}

static enum volume_health health(struct world *w, const char *name) {
    struct volume_info info;
    assert_int_equal(engine_volume_find(w->engine, name, &info), OK);
    return info.health;
}

static void status_says(struct world *w, const char *how, const char *words) {
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(w->engine, status);
    assert_string_equal(status->health, how);
    if (strstr(status->advice, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", status->advice, words);
    }
    mem_free(status);
}

static uint64_t live_blocks(struct world *w) {
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(w->engine, status);
    uint64_t live = status->live_blocks;
    mem_free(status);
    return live;
}

/* ---- destroying ---- */

static void restore(struct world *w) {
    while (w->place_count > 0) {
        const struct engine_place *p = &w->places[--w->place_count];
        sim_disk_poke(w->disks[p->member], p->offset_bytes, w->good[w->place_count]);
    }
}

static bool destroy(struct world *w, uint64_t which) {
    w->place_count = engine_node_places(w->engine, w->hurt, which, w->places);
    for (uint32_t i = 0; i < w->place_count; i++) {
        uint8_t bad[4096];
        sim_disk_peek(w->disks[w->places[i].member], w->places[i].offset_bytes, w->good[i]);
        memcpy(bad, w->good[i], sizeof(bad));
        bad[17 * i] ^= 1;
        sim_disk_poke(w->disks[w->places[i].member], w->places[i].offset_bytes, bad);
    }
    return w->place_count > 0;
}

/* A leaf: some of the volume cannot be read, but not all. */
static uint32_t destroy_a_leaf(struct world *w) {
    for (uint64_t which = 1; which < 50; which++) {
        assert_true(destroy(w, which * 0x9e3779b97f4a7c15u));
        close(w);
        import(w);
        uint32_t lost = unreadable(w);
        if (lost > 0 && lost < BLOCKS / 2) {
            return lost;
        }
        restore(w);
        close(w);
        import(w);
    }
    fail_msg("no leaf found");
    return 0;
}

static uint64_t a_lost_block(struct world *w) {
    uint64_t block = 0;
    while (read(w, w->hurt, block, w->version[block]) == OK) {
        block++;
    }
    return block;
}

/* ---- the cases; each begins with two volumes of BLOCKS blocks ---- */

static void begin(struct world *w) {
    struct errmsg e = {0};
    struct pool_options pool = {
        .name = "fault",
        .paths = w->paths,
        .path_count = DISKS,
        .geometry = {.chunk_blocks = 128, .ring_blocks = 512, .row_blocks = 16, .node_blocks = 1}};
    must(engine_create_pool(w->env, &pool, &e), &e);
    import(w);
    struct volume_options v = {.name = "other", .size_bytes = VOLUME_BYTES, .profile = w->profile};
    must(engine_volume_create(w->engine, &v, &w->other, &e), &e);
    v.name = "hurt";
    must(engine_volume_create(w->engine, &v, &w->hurt, &e), &e);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(write(w, w->other, b, 1), OK);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
    w->live_before = live_blocks(w);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        w->version[b] = 1;
        assert_int_equal(write(w, w->hurt, b, 1), OK);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
}

static void the_other_is_fine(struct world *w) {
    for (uint32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(read(w, w->other, b, 1), OK);
    }
    assert_int_equal(write(w, w->other, 7, 1), OK);
    assert_int_equal(health(w, "other"), VOLUME_WHOLE);
}

/* Until the last of its blocks is found, and its entry is gone. */
static void delete_it(struct world *w) {
    struct errmsg e = {0};
    must(engine_volume_delete(w->engine, "hurt", &e), &e);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(engine_checkpoint(w->engine), OK);
        fiber_sleep_until(env_now_ns(w->env) + NS_PER_S);
    }
    the_other_is_fine(w);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    status_says(w, "ok", "");
    close(w);
    check(w); /* also whether something is live that belongs to nobody */
    if (w->problem_count != 0) {
        fail_msg("after the deletion: %s", w->problems);
    }
    import(w);
    the_other_is_fine(w);
    close(w);
}

/* The checkpoint finds the lost leaf because of one acknowledged write below it. */
static uint64_t damage(struct world *w) {
    uint32_t lost = destroy_a_leaf(w);
    uint64_t block = a_lost_block(w);
    assert_int_equal(health(w, "hurt"), VOLUME_WHOLE);
    w->version[block] = 2;
    w->version[BLOCKS - 1 - block] = 2;
    assert_int_equal(write(w, w->hurt, block, 2), OK);
    assert_int_equal(write(w, w->hurt, BLOCKS - 1 - block, 2), OK);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_int_equal(health(w, "hurt"), VOLUME_DAMAGED);
    assert_int_equal(unreadable(w), lost - 1);
    assert_int_equal(read(w, w->hurt, block, 2), OK);
    return block;
}

/* What front ends need to serve it at all, if only for reading. */
static void keeps_records(struct world *w) {
    uint8_t record[512] = {7}, have[512];
    struct volume_door *door = engine_door(w->engine);
    assert_int_equal(volume_run(door, w->hurt, VOLUME_KEEP, 0, sizeof(record), record), OK);
    assert_int_equal(volume_run(door, w->hurt, VOLUME_RECALL, 0, sizeof(have), have), OK);
    assert_memory_equal(have, record, sizeof(have));
    struct volume_space space;
    assert_int_equal(volume_ask(door, w->hurt, VOLUME_SPACE, 0, 0, &space, sizeof(space)), OK);
}

static void refuses_changes(struct world *w) {
    keeps_records(w);
    assert_int_equal(write(w, w->hurt, 1, 3), ERR_DATA_LOSS);
    assert_int_equal(run(w, w->hurt, VOLUME_UNMAP, 1, 1, NULL), ERR_DATA_LOSS);
    assert_int_equal(run(w, w->hurt, VOLUME_WRITE_ZEROES, 1, 1, NULL), ERR_DATA_LOSS);
    assert_int_equal(run(w, w->hurt, VOLUME_FLUSH, 0, 0, NULL), OK);
}

static void damaged_case(struct world *w) {
    begin(w);
    uint64_t block = damage(w);
    uint32_t lost = unreadable(w);
    refuses_changes(w);
    the_other_is_fine(w);
    status_says(w, "degraded", "Volume hurt is damaged");
    close(w);
    check(w);
    assert_non_null(strstr(w->problems, "volume hurt is damaged"));
    assert_non_null(strstr(w->problems, "volume hurt: the node at"));
    assert_null(strstr(w->problems, "volume other"));
    import(w);
    assert_int_equal(health(w, "hurt"), VOLUME_DAMAGED);
    assert_int_equal(read(w, w->hurt, block, 2), OK);
    assert_int_equal(unreadable(w), lost);
    refuses_changes(w);
    the_other_is_fine(w);
    delete_it(w);
}

/* What was lost is there again, as when disks come back. */
static void healed_case(struct world *w) {
    begin(w);
    (void)damage(w);
    uint64_t live = live_blocks(w);
    restore(w);
    close(w);
    import(w);
    assert_int_equal(health(w, "hurt"), VOLUME_WHOLE);
    assert_int_equal(unreadable(w), 0);
    assert_true(live_blocks(w) < live); /* what the run hid has gone */
    w->version[0] = 4;
    assert_int_equal(write(w, w->hurt, 0, 4), OK);
    status_says(w, "ok", "");
    close(w);
    check(w);
    if (w->problem_count != 0) {
        fail_msg("healed: %s", w->problems);
    }
    import(w);
    assert_int_equal(unreadable(w), 0);
    delete_it(w);
}

/* An unmap that is neither applied to a lost leaf nor spelled out. */
static void broken_case(struct world *w) {
    begin(w);
    (void)destroy_a_leaf(w);
    uint64_t block = a_lost_block(w);
    assert_int_equal(run(w, w->hurt, VOLUME_UNMAP, block, VOLUME_BYTES / 4096 - block, NULL), OK);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_int_equal(health(w, "hurt"), VOLUME_BROKEN);
    assert_int_equal(unreadable(w), BLOCKS);
    assert_int_equal(write(w, w->hurt, 1, 3), ERR_DATA_LOSS);
    assert_int_equal(run(w, w->hurt, VOLUME_FLUSH, 0, 0, NULL), ERR_DATA_LOSS);
    status_says(w, "degraded", "Volume hurt is broken");
    close(w);
    check(w);
    assert_non_null(strstr(w->problems, "volume hurt is broken"));
    import(w);
    assert_int_equal(health(w, "hurt"), VOLUME_BROKEN);
    the_other_is_fine(w);
    delete_it(w);
}

/* It was never noticed before it is deleted; and a stop in the middle of the sweep. */
static void deleted_case(struct world *w) {
    struct errmsg e = {0};
    begin(w);
    (void)destroy_a_leaf(w);
    must(engine_volume_delete(w->engine, "hurt", &e), &e);
    close(w);
    check(w); /* what is left is known to be nobody's */
    import(w);
    struct volume_info *list;
    uint32_t count;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(engine_checkpoint(w->engine), OK);
    }
    engine_volume_list(w->engine, &list, &count);
    assert_int_equal(count, 1);
    mem_free(list);
    assert_int_equal(live_blocks(w), w->live_before);
    close(w);
    check(w);
    assert_int_equal(w->problem_count, 0);
}

/* ---- running ---- */

struct test_case {
    void (*run)(struct world *w);
    enum profile profile;
};

struct call {
    struct world *w;
    const struct test_case *test;
};

static void case_fiber(void *arg) {
    struct call *c = arg;
    c->test->run(c->w);
    c->w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void run_case(void **state) {
    static const char *const paths[DISKS] = {"d0", "d1", "d2", "d3", "d4"};
    const struct test_case *test = *state;
    struct world *w = mem_alloc(sizeof(*w));
    struct errmsg e = {0};
    w->env = env_sim_new(&(struct env_sim_options){.seed = 3});
    w->profile = test->profile;
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme-plp", .path = paths[i], .size_bytes = 64 << 20};
        w->paths[i] = paths[i];
        must(env_sim_disk_add(w->env, &disk, &w->disks[i], &e), &e);
    }
    struct call call = {w, test};
    fiber_start(w->env, case_fiber, &call);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
    env_sim_free(w->env);
    mem_free(w);
}

int main(void) {
    static const struct {
        const char *name;
        struct test_case test;
    } cases[] = {
        {"damaged, single", {damaged_case, PROFILE_SINGLE}},
        {"damaged, raid5", {damaged_case, PROFILE_RAID5}},
        {"damaged, raid6", {damaged_case, PROFILE_RAID6}},
        {"damaged, raid10", {damaged_case, PROFILE_RAID10}},
        {"healed, raid1", {healed_case, PROFILE_RAID1}},
        {"healed, raid5", {healed_case, PROFILE_RAID5}},
        {"broken, raid1", {broken_case, PROFILE_RAID1}},
        {"deleted, raid1", {deleted_case, PROFILE_RAID1}},
        {"deleted, raid6", {deleted_case, PROFILE_RAID6}},
    };
    enum { CASES = sizeof(cases) / sizeof(cases[0]) };
    struct CMUnitTest tests[CASES];
    for (int i = 0; i < CASES; i++) {
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = run_case,
                                       .initial_state = (void *)(uintptr_t)&cases[i].test};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
