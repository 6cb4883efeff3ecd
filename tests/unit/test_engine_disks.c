// SPDX-License-Identifier: MPL-2.0
/* Disks that come and go, on disks of plain memory: what is added is used, what leaves is empty
 * first and no member afterwards, spares wait; and whatever happens the content stays, and the pool
 * is whole. What happens when the power goes in between is the simulator's business. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/linux/linux.h"
#include "volume_client.h"

enum { DISKS = 5, VOLUME_BYTES = 4 << 20, PATH_BYTES = 64 };

struct rig {
    struct env *env;
    char state_dir[PATH_BYTES];
    char path_text[DISKS][PATH_BYTES];
    const char *paths[DISKS];
    uint8_t *shadow;
    struct engine *engine;
    struct engine_status *status;
    uint64_t id;
    bool ok;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static void report(void *owner, const char *text) {
    (void)owner;
    print_error("check: %s\n", text);
}

static const struct engine_disk_status *disk_at(struct rig *r, const char *path) {
    engine_status(r->engine, r->status);
    for (uint32_t i = 0; i < r->status->disk_count; i++) {
        if (r->status->disks[i].state != MEMBER_NONE &&
            strcmp(r->status->disks[i].path, path) == 0) {
            return &r->status->disks[i];
        }
    }
    return NULL;
}

static uint32_t disk_count(struct rig *r) {
    uint32_t count = 0;
    engine_status(r->engine, r->status);
    for (uint32_t i = 0; i < r->status->disk_count; i++) {
        count += r->status->disks[i].state != MEMBER_NONE;
    }
    return count;
}

static void write_all(struct rig *r, uint64_t seed) {
    struct rng rng;
    rng_init(&rng, seed);
    rng_fill(&rng, r->shadow, VOLUME_BYTES);
    for (uint64_t at = 0; at < VOLUME_BYTES; at += 1 << 20) {
        assert_int_equal(
            volume_run(engine_door(r->engine), r->id, VOLUME_WRITE, at, 1 << 20, r->shadow + at),
            OK);
    }
    assert_int_equal(engine_checkpoint(r->engine), OK);
}

static void verify_all(struct rig *r) {
    uint8_t *have = mem_alloc(1 << 20);
    for (uint64_t at = 0; at < VOLUME_BYTES; at += 1 << 20) {
        assert_int_equal(volume_run(engine_door(r->engine), r->id, VOLUME_READ, at, 1 << 20, have),
                         OK);
        assert_memory_equal(have, r->shadow + at, 1 << 20);
    }
    mem_free(have);
}

static void wait_until_gone(struct rig *r, const char *path) {
    for (int i = 0; i < 600 && (disk_at(r, path) != NULL || !r->status->rebuild.whole); i++) {
        fiber_sleep_until(env_now_ns(r->env) + 20 * NS_PER_MS);
    }
    assert_null(disk_at(r, path));
    assert_true(r->status->rebuild.whole);
}

/* Closes, checks at rest, imports again with the disks there are. */
static void reopen(struct rig *r, const char *const *paths, uint32_t count) {
    struct errmsg e = {0};
    struct engine_import_options import = {.pool = {.paths = paths, .path_count = count},
                                           .limits = {.dirty_bytes = 1 << 20}};
    struct engine_check_result result;
    must(engine_close(r->engine, false, env_now_ns(r->env) + 10 * NS_PER_S, &e), &e);
    must(engine_check(r->env, &import.pool, report, NULL, &result, &e), &e);
    assert_int_equal(result.problems, 0);
    must(engine_import(r->env, &import, NULL, NULL, &r->engine, &e), &e);
}

static void remove_and_replace(struct rig *r) {
    struct errmsg e = {0};
    struct engine_disk_change change;
    struct engine_disk_remove_options leave = {.member = 0, .dry_run = true};
    must(engine_disk_remove(r->engine, &leave, &change, &e), &e);
    assert_true(change.usable_after_bytes < change.usable_before_bytes);
    assert_true(change.move_bytes > 0 && change.fits && change.storable);
    assert_int_equal(disk_at(r, r->paths[0])->role, MEMBER_NORMAL);
    leave.dry_run = false;
    must(engine_disk_remove(r->engine, &leave, &change, &e), &e);
    wait_until_gone(r, r->paths[0]);
    verify_all(r);
    struct engine_counters counters;
    engine_counters(r->engine, &counters);
    assert_int_equal(counters.disks_removed, 1);
    assert_true(counters.columns_evacuated > 0); /* disk 3 had room for them */

    leave.member = 0;
    assert_int_equal(engine_disk_remove(r->engine, &leave, &change, &e), ERR_NOT_FOUND);
    leave = (struct engine_disk_remove_options){.member = 1, .dry_run = true};
    must(engine_disk_remove(r->engine, &leave, &change, &e), &e); /* two would do for raid5 */
    assert_true(change.storable);
    assert_int_equal(engine_disk_keep(r->engine, 1, &e), ERR_INVALID);
    struct engine_disk_add_options add = {.path = r->paths[0]};
    must(engine_disk_replace(r->engine, 1, &add, &change, &e), &e);
    wait_until_gone(r, r->paths[1]);
    verify_all(r);
}

static void wait_until_whole(struct rig *r) {
    for (int i = 0; i < 600 && (engine_status(r->engine, r->status), !r->status->rebuild.whole);
         i++) {
        fiber_sleep_until(env_now_ns(r->env) + 20 * NS_PER_MS);
    }
    assert_true(r->status->rebuild.whole);
}

/* A disk is taken out for a while, and what is not redundant keeps it. Four disks, one a spare. */
static void take_out_and_back(struct rig *r) {
    struct errmsg e = {0};
    const struct engine_disk_status *disk;
    uint32_t member = disk_at(r, r->paths[2])->member;
    struct volume_options single = {.name = "s", .size_bytes = 1 << 20, .profile = PROFILE_SINGLE};
    uint64_t id;
    must(engine_volume_create(r->engine, &single, &id, &e), &e);
    assert_int_equal(engine_disk_fail(r->engine, member, 60 * NS_PER_S, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "without redundancy"));
    must(engine_volume_delete(r->engine, "s", &e), &e);
    assert_int_equal(engine_checkpoint(r->engine), OK);
    assert_int_equal(engine_disk_fail(r->engine, 77, 0, &e), ERR_NOT_FOUND);

    must(engine_disk_fail(r->engine, member, 3600 * NS_PER_S, &e), &e);
    assert_int_equal(engine_checkpoint(r->engine), OK);
    disk = disk_at(r, r->paths[2]);
    assert_int_equal(disk->state, MEMBER_MISSING);
    assert_string_equal(r->status->health, "degraded");
    assert_non_null(strstr(disk->why, "on request"));
    assert_false(r->status->rebuild.whole);
    assert_in_range(r->status->rebuild.grace_s, 3500, 3601);
    verify_all(r);
    write_all(r, 3);
    fiber_sleep_until(env_now_ns(r->env) + 6 * NS_PER_S); /* nobody fetches it back by itself */
    assert_int_equal(disk_at(r, r->paths[2])->state, MEMBER_MISSING);
    uint32_t other = disk_at(r, r->paths[3])->member; /* one is out already */
    assert_int_equal(engine_disk_fail(r->engine, other, 0, &e), ERR_INVALID);
    must(engine_disk_return(r->engine, member, r->paths[2], &e), &e);
    wait_until_whole(r);
    assert_int_equal(disk_at(r, r->paths[2])->state, MEMBER_IN_SYNC);
    verify_all(r);

    /* Not waited for: what it held is rebuilt, and it may still come back. */
    must(engine_disk_fail(r->engine, member, 0, &e), &e);
    wait_until_whole(r);
    assert_int_equal(disk_at(r, r->paths[2])->state, MEMBER_MISSING);
    verify_all(r);
    must(engine_disk_return(r->engine, member, r->paths[2], &e), &e);
    wait_until_whole(r);
    verify_all(r);
}

static void life(void *arg) {
    struct rig *r = arg;
    struct errmsg e = {0};
    struct engine_disk_change change;
    struct pool_options create = {
        .name = "unit", .paths = r->paths, .path_count = 3, .force = true};
    must(engine_create_pool(r->env, &create, &e), &e);
    struct engine_import_options import = {.pool = {.paths = r->paths, .path_count = 3},
                                           .limits = {.dirty_bytes = 1 << 20}};
    must(engine_import(r->env, &import, NULL, NULL, &r->engine, &e), &e);
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_RAID5};
    must(engine_volume_create(r->engine, &volume, &r->id, &e), &e);
    write_all(r, 1);

    struct engine_disk_add_options add = {.path = r->paths[3], .dry_run = true};
    must(engine_disk_add(r->engine, &add, &change, &e), &e);
    assert_true(change.usable_after_bytes > change.usable_before_bytes);
    assert_null(disk_at(r, r->paths[3]));
    add.dry_run = false;
    must(engine_disk_add(r->engine, &add, &change, &e), &e);
    assert_int_equal(change.member, 3);
    assert_int_equal(engine_disk_add(r->engine, &add, &change, &e), ERR_BUSY); /* it is in use */
    reopen(r, r->paths, 4);
    verify_all(r);

    remove_and_replace(r);
    add.path = r->paths[4];
    add.spare = true;
    must(engine_disk_add(r->engine, &add, &change, &e), &e);
    assert_int_equal(change.usable_after_bytes, change.usable_before_bytes);
    write_all(r, 2);
    assert_int_equal(disk_at(r, r->paths[4])->used_bytes, 0);
    reopen(r, r->paths, DISKS); /* disk 1 is blank now, and nobody misses it */
    assert_int_equal(disk_at(r, r->paths[4])->role, MEMBER_SPARE);
    assert_int_equal(disk_count(r), 4);
    verify_all(r);
    take_out_and_back(r);
    must(engine_close(r->engine, true, env_now_ns(r->env) + 10 * NS_PER_S, &e), &e);
    r->ok = true;
    env_stop(r->env);
}

/* The only disk of a pool: its successor has what it held, and the pool decides alone. */
static void life_of_one(void *arg) {
    struct rig *r = arg;
    struct errmsg e = {0};
    struct engine_disk_change change;
    struct pool_options create = {.name = "one", .paths = r->paths, .path_count = 1, .force = true};
    must(engine_create_pool(r->env, &create, &e), &e);
    struct engine_import_options import = {.pool = {.paths = r->paths, .path_count = 1},
                                           .limits = {.dirty_bytes = 1 << 20}};
    must(engine_import(r->env, &import, NULL, NULL, &r->engine, &e), &e);
    struct volume_options volume = {
        .name = "v", .size_bytes = VOLUME_BYTES, .profile = PROFILE_SINGLE};
    must(engine_volume_create(r->engine, &volume, &r->id, &e), &e);
    write_all(r, 3);
    struct engine_disk_add_options add = {.path = r->paths[1]};
    must(engine_disk_replace(r->engine, 0, &add, &change, &e), &e);
    wait_until_gone(r, r->paths[0]);
    assert_int_equal(disk_count(r), 1);
    write_all(r, 4);
    reopen(r, r->paths, 2);
    verify_all(r);
    must(engine_close(r->engine, true, env_now_ns(r->env) + 10 * NS_PER_S, &e), &e);
    r->ok = true;
    env_stop(r->env);
}

static void live(void (*life_of)(void *)) {
    struct rig *r = mem_alloc(sizeof(*r));
    struct errmsg e = {0};
    r->shadow = mem_alloc(VOLUME_BYTES);
    r->status = mem_alloc(sizeof(*r->status));
    (void)snprintf(r->state_dir, sizeof(r->state_dir), "/tmp/holdfast-test-XXXXXX");
    assert_non_null(mkdtemp(r->state_dir));
    struct env_linux_options options = {.state_dir = r->state_dir};
    must(env_linux_new(&options, &r->env, &e), &e);
    for (int i = 0; i < DISKS; i++) {
        (void)snprintf(r->path_text[i], sizeof(r->path_text[i]), "mem:disks-%d:%dM", i, 64 + 8 * i);
        r->paths[i] = r->path_text[i];
    }
    fiber_start(r->env, life_of, r);
    env_run(r->env);
    assert_true(r->ok);
    env_linux_free(r->env);
    mem_free(r->shadow);
    mem_free(r->status);
    mem_free(r);
}

static void disks_come_and_go(void **state) {
    (void)state;
    live(life);
}

static void the_only_disk_is_replaced(void **state) {
    (void)state;
    live(life_of_one);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(disks_come_and_go),
                                       cmocka_unit_test(the_only_disk_is_replaced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
