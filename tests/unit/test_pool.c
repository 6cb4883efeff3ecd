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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_open_take_commit),
        cmocka_unit_test(sizes_are_chosen_and_rounded_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
