// SPDX-License-Identifier: MPL-2.0
/* The life of a pool: create, open, take, commit, expel, export; damage and refusals. Who may
 * import what is in test_quorum.c, power cuts are in test_pool_crash.c. */
#include "pool_rig.h"

/* A host and `count` disks with a pool "tank" on them. */
struct fixture {
    struct rig rig;
    struct fake_env host;
    uint64_t memory_before;
};

static void begin(struct fixture *f, uint32_t count) {
    f->memory_before = mem_in_use_bytes();
    rig_init(&f->rig, count);
    fake_init(&f->host, &f->rig.world, 1);
    struct call c = call_on(&f->host, &f->rig);
    assert_int_equal(run(&c, do_create), OK);
}

static void end(struct fixture *f) {
    for (uint32_t i = 0; i < f->rig.world.media_count; i++) {
        assert_int_equal(f->rig.world.media[i].opened, 0);
    }
    fake_power_cut(&f->host);
    rig_done(&f->rig);
    assert_int_equal(mem_in_use_bytes(), f->memory_before);
}

static void create_open_take_commit(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run(&c, do_open), OK);
    assert_int_equal(c.pool->super.sequence, 1);
    assert_int_equal(c.pool->super.mount_generation, 0);
    assert_int_equal(c.pool->super.meta_copies, 2);
    assert_string_equal(c.pool->super.name, "tank");
    assert_int_equal(pool_in_sync_count(c.pool), 3);
    static const struct roots_phys empty;
    assert_memory_equal(&c.pool->super.roots, &empty, sizeof(empty));
    assert_int_equal(run(&c, do_take), OK);
    assert_int_equal(c.pool->super.mount_generation, 1);
    assert_int_equal(c.pool->super.config_epoch, 1);
    assert_int_equal(c.pool->super.flags, 0);
    c.roots.log_start = 77;
    assert_int_equal(run(&c, do_commit), OK);
    assert_int_equal(c.pool->super.checkpoint, 1);
    c.roots.log_start = 78;
    c.flags = SUPER_FLAG_CLEAN;
    assert_int_equal(run(&c, do_commit), OK);
    run_close(&c);
    assert_int_equal(run(&c, do_open), OK);
    assert_int_equal(c.pool->super.sequence, 4);
    assert_int_equal(c.pool->super.checkpoint, 2);
    assert_int_equal(c.pool->super.roots.log_start, 78);
    assert_int_equal(c.pool->super.flags, SUPER_FLAG_CLEAN);
    assert_string_equal(c.pool->super.members[1].path_hint, "d1");
    assert_int_equal(c.pool->blocks[1], RIG_DISK_BYTES / 4096);
    run_close(&c);
    end(&f);
}

static void sizes_are_chosen_and_rounded_down(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        uint32_t chunk_blocks, ring_blocks;
    } cases[] = {
        {(112 << 20) + 57 * 4096, 256, 448},
        {9 << 20, 32, 64},
        {(1 << 20) + 4096, 32, 64}, /* fewer than 64 chunks */
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct rig rig;
        struct fake_env host;
        rig_init(&rig, 0);
        fake_init(&host, &rig.world, 1);
        fake_media_add(&rig.world, "d0", cases[i].bytes);
        rig.paths[0] = "d0";
        rig.count = 1;
        struct call c = call_on(&host, &rig);
        c.geometry = (struct geometry){0};
        assert_int_equal(run(&c, do_create), OK);
        assert_int_equal(run(&c, do_open), OK);
        const struct geometry *g = &c.pool->super.geometry;
        assert_int_equal(c.pool->blocks[0], cases[i].bytes >> 20 << 8);
        assert_int_equal(g->chunk_blocks, cases[i].chunk_blocks);
        assert_int_equal(g->ring_blocks, cases[i].ring_blocks);
        assert_int_equal(c.pool->super.members[0].chunks, layout_chunk_count(g, c.pool->blocks[0]));
        assert_int_equal(c.pool->super.meta_copies, 1);
        run_close(&c);
        fake_power_cut(&host);
        rig_done(&rig);
    }
}

static void creation_refuses(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run(&c, do_create), ERR_EXISTS);
    assert_says(&c, "d0 is disk 0 of pool tank");
    c.name = "0tank";
    assert_int_equal(run(&c, do_create), ERR_INVALID);
    c.name = "tank2";
    const char *twice[] = {"d0", "d1", "d0"};
    c.paths = twice;
    c.force = true;
    assert_int_equal(run(&c, do_create), ERR_INVALID);
    assert_says(&c, "d0 is named twice");
    const char *unknown[] = {"d0", "nowhere"};
    c.paths = unknown;
    c.path_count = 2;
    assert_int_equal(run(&c, do_create), ERR_NOT_FOUND);
    fake_media_add(&f.rig.world, "small", 600 << 10);
    const char *small[] = {"small"};
    c.paths = small;
    c.path_count = 1;
    assert_int_equal(run(&c, do_create), ERR_RANGE);
    assert_says(&c, "small is too small");
    c.paths = f.rig.paths;
    c.geometry.node_blocks = 3;
    assert_int_equal(run(&c, do_create), ERR_RANGE);
    c.geometry = rig_geometry;
    c.meta_copies = 2;
    assert_int_equal(run(&c, do_create), ERR_RANGE);
    c.meta_copies = 0;

    /* In use: nothing is destroyed. */
    struct call user = call_on(&f.host, &f.rig);
    assert_int_equal(run(&user, do_open), OK);
    assert_int_equal(run(&c, do_create), ERR_BUSY);
    run_close(&user);
    c.path_count = 3;
    assert_int_equal(run(&c, do_create), OK); /* forced */
    user.name = "tank";
    assert_int_equal(run(&user, do_open), ERR_NOT_FOUND);
    assert_says(&user, "d1 belongs to pool tank2");
    end(&f);
}

static void a_host_that_cannot_write_says_so(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run(&c, do_open), OK);
    f.host.state_fails = true;
    assert_int_equal(run(&c, do_take), ERR_NO_SPACE);
    assert_says(&c, "cannot keep its state");
    run_close(&c);
    f.host.state_fails = false;
    assert_int_equal(run_open_and_take(&c), OK);
    run_close(&c);
    end(&f);
}

/* ---- damage ---- */

static uint64_t errors_of(const struct call *c, uint32_t member, enum disk_error_kind kind) {
    return disk_counters(c->pool->disks[member])->errors[kind];
}

/* Each copy of a label or superblock, one byte flipped: found, used around, repaired, noted. */
static void one_damaged_copy_is_found_and_repaired(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(run(&c, do_commit), OK); /* sequence 3: all four slots are used */
    run_close(&c);
    uint64_t blocks = RIG_DISK_BYTES / 4096;
    const uint64_t places[] = {0,
                               blocks - 1,
                               layout_super_block(0, blocks),
                               layout_super_block(1, blocks),
                               layout_super_block(2, blocks),
                               layout_super_block(3, blocks)};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        for (uint32_t offset = 0; offset < 152; offset += 30) {
            f.rig.world.media[1].bytes[places[i] * 4096 + offset] ^= 0x10;
            uint64_t sequence;
            assert_int_equal(run(&c, do_open), OK);
            sequence = c.pool->super.sequence;
            assert_int_equal(pool_in_sync_count(c.pool), 2);
            assert_int_equal(errors_of(&c, 1, DISK_ERROR_CHECKSUM), 1);
            assert_int_equal(run(&c, do_take), OK);
            assert_int_equal(c.pool->super.sequence, sequence + 1);
            assert_int_equal(pool_in_sync_count(c.pool), 2);
            bool of_parent = i >= 2 && (i - 2) % 2 != (sequence & 1);
            assert_int_equal(errors_of(&c, 1, DISK_ERROR_REPAIRED), of_parent ? 0 : 1);
            run_close(&c);
            assert_int_equal(run(&c, do_open), OK);
            assert_int_equal(errors_of(&c, 1, DISK_ERROR_CHECKSUM), 0);
            run_close(&c);
        }
    }
    end(&f);
}

static void an_unreadable_copy_is_used_around(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    uint64_t blocks = RIG_DISK_BYTES / 4096;
    struct fake_media *m = &f.rig.world.media[0];
    const uint64_t places[] = {0, blocks - 1, layout_super_block(1, blocks),
                               layout_super_block(3, blocks)};
    struct call c = call_on(&f.host, &f.rig);
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        m->fail_reads = ERR_IO;
        m->fail_read_at = places[i] * 4096;
        m->fail_read_bytes = 4096;
        assert_int_equal(run(&c, do_open), OK);
        assert_int_equal(pool_in_sync_count(c.pool), 2);
        assert_non_null(c.pool->disks[0]);
        run_close(&c);
    }
    end(&f);
}

/* ---- refusals ---- */

static void a_truncated_disk_is_refused(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    run_close(&c);
    f.rig.world.media[1].size_bytes -= 4096;
    assert_int_equal(run_open_and_take(&c), OK); /* goes on without it */
    assert_null(c.pool->disks[1]);
    assert_int_equal(c.pool->super.members[1].state, MEMBER_MISSING);
    assert_non_null(strstr(c.pool->why[1], "d1 (disk 1 of pool tank) is cut off"));
    run_close(&c);
    end(&f);
}

static void a_clone_is_refused_by_both_names(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct fake_media *copy = fake_media_add(&f.rig.world, "copy", RIG_DISK_BYTES);
    memcpy(copy->bytes, f.rig.world.media[1].bytes, RIG_DISK_BYTES);
    const char *paths[] = {"d0", "d1", "copy"};
    struct call c = call_on(&f.host, &f.rig);
    c.paths = paths;
    c.path_count = 3;
    assert_int_equal(run(&c, do_open), ERR_FOREIGN);
    assert_says(&c, "d1 and copy are the same disk twice");
    end(&f);
}

static void foreign_and_absent_disks_are_named(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    fake_media_add(&f.rig.world, "blank", RIG_DISK_BYTES);
    fake_media_add(&f.rig.world, "other", RIG_DISK_BYTES);
    const char *other[] = {"other"};
    struct call c = call_on(&f.host, &f.rig);
    c.paths = other;
    c.path_count = 1;
    c.name = "barn";
    assert_int_equal(run(&c, do_create), OK);
    const char *all[] = {"blank", "other", "d0", "d1"};
    c.paths = all;
    c.path_count = 4;
    c.name = NULL;
    assert_int_equal(run(&c, do_open), ERR_INVALID);
    assert_says(&c, "more than one pool");
    c.name = "silo";
    assert_int_equal(run(&c, do_open), ERR_NOT_FOUND);
    assert_says(&c, "blank carries no Holdfast label");
    assert_says(&c, "d0 belongs to pool tank");
    c.name = "barn";
    assert_int_equal(run(&c, do_open), OK);
    assert_string_equal(c.pool->super.name, "barn");
    run_close(&c);
    end(&f);
}

static void features_are_refused(uint64_t features) {
    struct fixture f;
    begin(&f, 2);
    uint64_t blocks = RIG_DISK_BYTES / 4096;
    for (uint32_t slot = 1; slot < 4; slot += 2) {
        uint64_t at = layout_super_block(slot, blocks);
        struct super_phys *s = MEM_NEW(struct super_phys);
        memcpy(s, f.rig.world.media[0].bytes + at * 4096, sizeof(*s));
        s->features_incompat = features;
        s->member_count = 9999; /* its meaning may have changed: not looked at */
        super_seal(s, &s->members[0].disk, at);
        memcpy(f.rig.world.media[0].bytes + at * 4096, s, sizeof(*s));
        mem_free(s);
    }
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run(&c, do_open), ERR_UNSUPPORTED);
    assert_says(&c, "d0 (disk 0 of pool tank) was written by a newer holdfast");
    end(&f);
}

static void an_unknown_feature_is_refused(void **state) {
    (void)state;
    features_are_refused(SUPER_INCOMPAT_KNOWN | 1ull << 40);
    features_are_refused(SUPER_INCOMPAT_KNOWN >> 1); /* the revision before */
    features_are_refused(0);
}

static void an_old_image_of_a_disk_is_stale(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    uint8_t *old = malloc(RIG_DISK_BYTES);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    memcpy(old, f.rig.world.media[2].bytes, RIG_DISK_BYTES);
    assert_int_equal(run(&c, do_commit), OK);
    assert_int_equal(run(&c, do_commit), OK);
    run_close(&c);
    memcpy(f.rig.world.media[2].bytes, old, RIG_DISK_BYTES);
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(c.pool->super.members[2].state, MEMBER_MISSING);
    assert_non_null(strstr(c.pool->why[2], "d2 is stale"));
    assert_int_equal(c.pool->super.config_epoch, 2);
    run_close(&c);
    assert_int_equal(run(&c, do_open), OK);
    assert_non_null(strstr(c.pool->why[2], "d2 was shut out"));
    run_close(&c);
    free(old);
    end(&f);
}

/* Lets go of a disk after a while. */
struct holder {
    struct env *env;
    struct env_disk *disk;
    uint64_t ns;
};

static void hold_for(void *arg) {
    struct holder *h = arg;
    fiber_sleep_until(env_now_ns(h->env) + h->ns);
    env_disk_close(h->disk);
}

static struct env_disk *hold(struct fixture *f, const char *path) {
    const struct env_disk_options options = {.exclusive = true};
    struct env_disk *disk = NULL;
    assert_int_equal(env_disk_open(&f->host.env, path, &options, &disk, NULL), OK);
    return disk;
}

/* A pool that could do without d1 is not opened without it while somebody only holds it. */
static void a_busy_disk_is_not_absent(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    fake_media_add(&f.rig.world, "other", RIG_DISK_BYTES);
    f.rig.paths[3] = "other"; /* somebody's, and always in use */
    struct env_disk *other = hold(&f, "other");
    struct call c = call_on(&f.host, &f.rig);
    c.path_count = 4;
    struct holder holder = {.env = &f.host.env, .disk = hold(&f, "d1"), .ns = 3 * NS_PER_S};
    fiber_start(&f.host.env, hold_for, &holder);
    uint64_t started = f.host.now_ns;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(pool_in_sync_count(c.pool), 3);
    assert_in_range(f.host.now_ns - started, 2 * NS_PER_S, 4 * NS_PER_S);
    run_close(&c);

    struct env_disk *held = hold(&f, "d1");
    for (int read_only = 0; read_only < 2; read_only++) {
        c.read_only = read_only == 1;
        started = f.host.now_ns;
        assert_int_equal(run(&c, do_open), ERR_BUSY);
        assert_says(&c, "in use by another program, a mount or an array: d1 (disk 1 of tank).");
        assert_in_range(f.host.now_ns - started, 5 * NS_PER_S, 6 * NS_PER_S);
    }
    c.read_only = false;
    assert_int_equal(run(&c, do_scan), OK);
    assert_int_equal(c.found_count, 1);
    assert_non_null(strstr(c.found[0].problem, "in use"));
    mem_free(c.found);
    env_disk_close(held);
    started = f.host.now_ns;
    assert_int_equal(run_open_and_take(&c), OK); /* nothing was shut out */
    assert_int_equal(pool_in_sync_count(c.pool), 3);
    assert_in_range(f.host.now_ns - started, 0, NS_PER_S);
    run_close(&c);

    held = hold(&f, "d1");
    c.force_quorum = true;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(c.pool->super.members[1].state, MEMBER_MISSING);
    assert_non_null(strstr(c.pool->why[1], "in use"));
    run_close(&c);
    c.force_quorum = false;
    assert_int_equal(run_open_and_take(&c), OK); /* it is out, busy or not: nobody waits */
    run_close(&c);
    env_disk_close(held);
    env_disk_close(other);
    end(&f);
}

/* One is held by the other; that is no reason to refuse. */
static void two_paths_to_one_disk(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct call c = call_on(&f.host, &f.rig);
    const char *twice[] = {"d0", "d1", "d0"};
    c.paths = twice;
    c.path_count = 3;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(pool_in_sync_count(c.pool), 2);
    run_close(&c);
    end(&f);
}

static void another_host_asks_first(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct fake_env second;
    fake_init(&second, &f.rig.world, 2);
    struct call a = call_on(&f.host, &f.rig), b = call_on(&second, &f.rig);
    assert_int_equal(run_open_and_take(&a), OK);
    assert_int_equal(run(&b, do_open), ERR_BUSY); /* each disk is in use */
    assert_says(&b, "in use");
    assert_int_equal(run(&b, do_scan), OK);
    assert_int_equal(b.found_count, 0);
    mem_free(b.found);
    run_close(&a);
    assert_int_equal(run(&b, do_open), ERR_BUSY);
    assert_says(&b, "last used by host host-");
    b.force_host = true;
    assert_int_equal(run_open_and_take(&b), OK);
    b.flags = SUPER_FLAG_EXPORTED;
    assert_int_equal(run(&b, do_commit), OK);
    run_close(&b);
    assert_int_equal(run_open_and_take(&a), OK); /* exported */
    run_close(&a);
    fake_power_cut(&second);
    end(&f);
}

static void scanning_lists_pools(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    fake_media_add(&f.rig.world, "other", RIG_DISK_BYTES);
    const char *all[] = {"other", "d0", "d1", "nothing"};
    struct call c = call_on(&f.host, &f.rig);
    c.paths = all;
    c.path_count = 1;
    c.name = "barn";
    assert_int_equal(run(&c, do_create), OK);
    f.rig.world.media[0].absent = true;
    f.host.record_count = 1; /* the name stays, the witnesses are gone */
    c.path_count = 4;
    assert_int_equal(run(&c, do_scan), OK);
    assert_int_equal(c.found_count, 2);
    assert_string_equal(c.found[0].name, "barn");
    assert_string_equal(c.found[0].problem, "");
    assert_string_equal(c.found[0].missing, "");
    assert_true(c.found[0].exported);
    assert_string_equal(c.found[1].name, "tank");
    assert_int_equal(c.found[1].members, 2);
    assert_int_equal(c.found[1].present, 1);
    assert_non_null(strstr(c.found[1].missing, "last seen as d0"));
    assert_non_null(strstr(c.found[1].problem, "no majority"));
    mem_free(c.found);
    end(&f);
}

/* ---- losing members ---- */

static uint32_t expelled_calls;
static uint32_t expelled_member;
static char expelled_why[256];

static void on_expelled(void *owner, uint32_t member, const char *why) {
    assert_int_equal(*(int *)owner, 42);
    expelled_calls++;
    expelled_member = member;
    (void)snprintf(expelled_why, sizeof(expelled_why), "%s", why);
}

/* A member fails, or never answers, in the middle of a commit. */
static void a_member_that_fails_a_commit_is_expelled(void **state) {
    (void)state;
    for (int hangs = 0; hangs < 2; hangs++) {
        struct fixture f;
        begin(&f, 3);
        int owner = 42;
        expelled_calls = 0;
        struct fake_media *bad = &f.rig.world.media[1];
        struct call c = call_on(&f.host, &f.rig);
        assert_int_equal(run_open_and_take(&c), OK);
        c.pool->expelled = on_expelled;
        c.pool->owner = &owner;
        uint64_t sequence = c.pool->super.sequence;
        if (hangs) {
            bad->hang = true;
        } else {
            bad->fail_writes = ERR_IO;
        }
        c.roots.log_start = 5;
        assert_int_equal(run(&c, do_commit), OK);
        fake_settle(&f.host);
        assert_int_equal(expelled_calls, 1);
        assert_int_equal(expelled_member, 1);
        assert_non_null(strstr(expelled_why, "d1"));
        assert_false(pool_member_in_sync(c.pool, 1));
        assert_true(pool_is_settled(c.pool));
        assert_int_equal(c.pool->super.sequence, sequence + 2);
        assert_int_equal(c.pool->super.config_epoch, 2);
        assert_int_equal(c.pool->super.members[1].state_epoch, 2);
        bad->hang = false;
        bad->fail_writes = OK;
        fake_release(&f.host); /* the late write lands on it: it is stale all the same */
        fake_settle(&f.host);
        run_close(&c);
        assert_int_equal(run_open_and_take(&c), OK);
        assert_null(c.pool->disks[1]);
        assert_int_equal(c.pool->super.roots.log_start, 5);
        run_close(&c);
        rig_present(&f.rig, 2); /* and by itself it is nothing, by no force */
        c.force_quorum = true;
        assert_int_equal(run(&c, do_open), ERR_QUORUM);
        assert_says(&c, "shut out");
        assert_says(&c, "last seen as d0");
        end(&f);
    }
}

static void expulsion_settles_in_the_background(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    assert_true(pool_is_settled(c.pool));
    pool_expel(c.pool, 2, "it was slow");
    pool_expel(c.pool, 2, "again");
    assert_false(pool_member_in_sync(c.pool, 2));
    assert_false(pool_is_settled(c.pool));
    assert_int_equal(c.pool->super.config_epoch, 1);
    assert_int_equal(run(&c, do_settle), OK);
    assert_true(pool_is_settled(c.pool));
    assert_int_equal(c.pool->super.config_epoch, 2);
    assert_string_equal(c.pool->why[2], "it was slow");
    pool_expel(c.pool, 1, "two slow disks"); /* nobody waits: done all the same */
    fake_advance(&f.host, f.host.now_ns + NS_PER_S);
    assert_true(pool_is_settled(c.pool));
    run_close(&c);
    rig_present(&f.rig, 1);
    assert_int_equal(run_open_and_take(&c), OK); /* all that is in sync */
    run_close(&c);
    rig_present(&f.rig, 6);
    assert_int_equal(run(&c, do_open), ERR_STALE);
    end(&f);
}

static void an_expulsion_meanwhile_joins_the_commit(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 4);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    for (uint32_t i = 0; i < 4; i++) {
        f.rig.world.media[i].delay_ns = NS_PER_MS;
    }
    c.roots.log_start = 9;
    struct fake_call commit = {.fn = do_commit, .arg = &c};
    c.error = ERR_AGAIN;
    fiber_start(&f.host.env, fake_call_main, &commit);
    fake_settle(&f.host); /* the writes are out */
    pool_expel(c.pool, 3, "pulled");
    fake_advance(&f.host, f.host.now_ns + NS_PER_S);
    assert_true(commit.returned);
    assert_int_equal(c.error, OK);
    assert_true(pool_is_settled(c.pool));
    assert_int_equal(c.pool->super.config_epoch, 2);
    assert_int_equal(c.pool->super.members[3].state, MEMBER_MISSING);
    assert_int_equal(c.pool->super.checkpoint, 1);
    run_close(&c);
    end(&f);
}

/* More at once than the log has copies: nothing more is acknowledged, and nothing is written that
 * would shut them out, so that they are all there when they come back. */
static void too_many_lost_at_once_stop_the_pool(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 4);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    for (uint32_t i = 0; i < 3; i++) {
        pool_expel(c.pool, i, "the cable");
    }
    assert_int_equal(run(&c, do_settle), ERR_QUORUM);
    assert_int_equal(run(&c, do_commit), ERR_QUORUM);
    assert_false(pool_is_settled(c.pool));
    run_close(&c);
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(pool_in_sync_count(c.pool), 4);
    assert_int_equal(c.pool->super.config_epoch, 1);
    run_close(&c);
    end(&f);
}

static void nothing_is_settled_without_the_witness(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    f.host.state_fails = true;
    pool_expel(c.pool, 1, "slow");
    assert_int_equal(run(&c, do_settle), ERR_NO_SPACE);
    assert_false(pool_is_settled(c.pool));
    assert_int_equal(run(&c, do_commit), ERR_NO_SPACE);
    f.host.state_fails = false;
    assert_int_equal(run(&c, do_settle), OK);
    assert_true(pool_is_settled(c.pool));
    run_close(&c);
    rig_present(&f.rig, 2);
    assert_int_equal(run(&c, do_open), ERR_STALE);
    c.force_quorum = true;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_true(c.pool->super.config_epoch > 2); /* newer than what it shuts out */
    run_close(&c);
    end(&f);
}

static void a_probe_expels_what_is_gone(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    pool_probe(c.pool);
    assert_int_equal(pool_in_sync_count(c.pool), 3);
    f.rig.world.media[0].gone = true;
    pool_probe(c.pool);
    assert_int_equal(pool_in_sync_count(c.pool), 2);
    assert_string_equal(c.pool->why[0], "d0 was unlinked");
    assert_int_equal(run(&c, do_settle), OK);
    run_close(&c);
    end(&f);
}

static void copies_of_metadata_can_be_raised(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 4);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(c.pool->meta_copies, 2);
    c.pool->meta_copies = 3;
    pool_expel(c.pool, 3, "it is slow");
    assert_int_equal(run(&c, do_settle), OK);
    assert_int_equal(c.pool->super.meta_copies, 2); /* not before a checkpoint has given them */
    assert_int_equal(run(&c, do_commit), OK);
    assert_int_equal(c.pool->super.meta_copies, 3);
    run_close(&c);
    assert_int_equal(run(&c, do_open), OK);
    assert_int_equal(c.pool->super.meta_copies, 3);
    assert_int_equal(c.pool->meta_copies, 3);
    run_close(&c);
    end(&f);
}

static void do_drop_first(void *arg) {
    struct call *c = arg;
    c->error = pool_member_drop(c->pool, 0, &c->message);
}

/* As many disks as there are copies of the log are no loss when nothing is on them any more. */
static void an_empty_member_is_no_loss(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    c.pool->meta_copies = 1; /* it had one disk, and the power failed when it got another */
    assert_int_equal(run(&c, do_commit), OK);
    assert_int_equal(c.pool->super.meta_copies, 1);
    assert_int_equal(run(&c, do_drop_first), OK);
    assert_int_equal(c.pool->super.members[0].state, MEMBER_NONE);
    assert_int_equal(run(&c, do_commit), OK);
    run_close(&c);
    assert_int_equal(run_open_and_take(&c), OK);
    pool_expel(c.pool, 1, "it is slow"); /* but this one is */
    assert_int_equal(run(&c, do_settle), ERR_QUORUM);
    run_close(&c);
    end(&f);
}

static void reading_only_needs_no_quorum(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    struct call c = call_on(&f.host, &f.rig);
    assert_int_equal(run_open_and_take(&c), OK);
    run_close(&c);
    rig_present(&f.rig, 4);
    uint64_t writes = f.rig.world.writes;
    c.read_only = true;
    assert_int_equal(run(&c, do_open), OK);
    assert_null(c.pool->disks[0]);
    assert_non_null(c.pool->disks[2]);
    assert_non_null(strstr(c.pool->why[0], "not found; last seen as d0"));
    run_close(&c);
    assert_int_equal(f.rig.world.writes, writes);
    end(&f);
}

static void a_hung_disk_does_not_stop_an_import(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 3);
    f.rig.world.media[1].hang = true;
    struct call c = call_on(&f.host, &f.rig);
    uint64_t start = f.host.now_ns;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_true(f.host.now_ns - start < 11 * NS_PER_S);
    assert_false(pool_member_in_sync(c.pool, 1));
    f.rig.world.media[1].hang = false;
    fake_release(&f.host);
    run_close(&c);
    fake_settle(&f.host);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_open_take_commit),
        cmocka_unit_test(sizes_are_chosen_and_rounded_down),
        cmocka_unit_test(creation_refuses),
        cmocka_unit_test(a_host_that_cannot_write_says_so),
        cmocka_unit_test(one_damaged_copy_is_found_and_repaired),
        cmocka_unit_test(an_unreadable_copy_is_used_around),
        cmocka_unit_test(a_truncated_disk_is_refused),
        cmocka_unit_test(a_clone_is_refused_by_both_names),
        cmocka_unit_test(foreign_and_absent_disks_are_named),
        cmocka_unit_test(an_unknown_feature_is_refused),
        cmocka_unit_test(an_old_image_of_a_disk_is_stale),
        cmocka_unit_test(a_busy_disk_is_not_absent),
        cmocka_unit_test(two_paths_to_one_disk),
        cmocka_unit_test(another_host_asks_first),
        cmocka_unit_test(scanning_lists_pools),
        cmocka_unit_test(a_member_that_fails_a_commit_is_expelled),
        cmocka_unit_test(expulsion_settles_in_the_background),
        cmocka_unit_test(an_expulsion_meanwhile_joins_the_commit),
        cmocka_unit_test(too_many_lost_at_once_stop_the_pool),
        cmocka_unit_test(nothing_is_settled_without_the_witness),
        cmocka_unit_test(a_probe_expels_what_is_gone),
        cmocka_unit_test(copies_of_metadata_can_be_raised),
        cmocka_unit_test(an_empty_member_is_no_loss),
        cmocka_unit_test(reading_only_needs_no_quorum),
        cmocka_unit_test(a_hung_disk_does_not_stop_an_import),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
