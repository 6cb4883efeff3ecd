// SPDX-License-Identifier: MPL-2.0
/* The ends of the counters on disk (docs/FORMAT.md, "How long the counters last"): what lies behind
 * them is refused when it is read, and nobody counts past them. */
#include "pool_rig.h"

#include "../fuzz/engine_shell.h"

/* ---- superblocks ---- */

static void edit_super(struct fake_media *media, const struct label_phys *label, uint32_t slot,
                       void (*edit)(struct super_phys *)) {
    uint64_t block = layout_super_block(slot, label->disk_blocks);
    struct super_phys s;
    if (super_decode(media->bytes + block * BLOCK_BYTES, SUPER_BYTES, &label->disk, block, &s) ==
        OK) {
        edit(&s);
        super_seal(&s, &label->disk, block);
        memcpy(media->bytes + block * BLOCK_BYTES, &s, sizeof(s));
    }
}

static void edit_supers(struct rig *rig, void (*edit)(struct super_phys *)) {
    for (uint32_t i = 0; i < rig->count; i++) {
        struct fake_media *media = &rig->world.media[i];
        struct label_phys label;
        assert_int_equal(label_decode(media->bytes, BLOCK_BYTES, LABEL_BLOCK, &label), OK);
        for (uint32_t slot = 0; slot < SUPER_SLOTS; slot++) {
            edit_super(media, &label, slot, edit);
        }
    }
}

static void generation_last_but_one(struct super_phys *s) {
    s->mount_generation = GENERATION_END - 2;
}

static void generation_last(struct super_phys *s) {
    s->mount_generation = GENERATION_END - 1;
}

static void generation_end(struct super_phys *s) {
    s->mount_generation = GENERATION_END;
}

static void sequence_far(struct super_phys *s) {
    s->sequence = COUNTER_END / 2 + (s->sequence & 1); /* its slot goes by that bit */
}

static void epoch_far(struct super_phys *s) {
    s->config_epoch = COUNTER_END / 2;
}

static void checkpoint_end(struct super_phys *s) {
    s->checkpoint = COUNTER_END;
}

static void vba_end(struct super_phys *s) {
    s->roots.vba_next = COUNTER_END + 1;
}

static void log_end(struct super_phys *s) {
    s->roots.log_start = COUNTER_END;
}

static void acknowledged_end(struct super_phys *s) {
    s->roots.log_acknowledged = COUNTER_END;
}

static void log_of_the_future(struct super_phys *s) {
    s->roots.log_generation = s->mount_generation + 1;
}

static void superblocks_end(void **state) {
    (void)state;
    static const struct {
        void (*edit)(struct super_phys *);
        int open, take;
        const char *says;
    } cases[] = {
        {generation_last_but_one, OK, OK, ""},
        {generation_last, OK, ERR_LIMIT, "has been imported 2147483647 times"},
        {generation_end, ERR_CORRUPT, OK, "no superblock left that can be read"},
        {sequence_far, OK, ERR_LIMIT, "counted its superblocks to the end"},
        {epoch_far, OK, ERR_LIMIT, "counted its superblocks to the end"},
        {checkpoint_end, ERR_CORRUPT, OK, ""},
        {vba_end, ERR_CORRUPT, OK, ""},
        {log_end, ERR_CORRUPT, OK, ""},
        {acknowledged_end, ERR_CORRUPT, OK, ""},
        {log_of_the_future, ERR_CORRUPT, OK, ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct rig rig;
        struct fake_env host;
        rig_init(&rig, 2);
        fake_init(&host, &rig.world, 1);
        struct call c = call_on(&host, &rig);
        assert_int_equal(run(&c, do_create), OK);
        edit_supers(&rig, cases[i].edit);
        uint64_t writes = rig.world.writes;
        assert_int_equal(run(&c, do_open), cases[i].open);
        if (cases[i].open == OK) {
            assert_int_equal(run(&c, do_take), cases[i].take);
            assert_true((cases[i].take == OK) == (rig.world.writes > writes));
        }
        assert_says(&c, cases[i].says);
        run_close(&c);
        fake_power_cut(&host);
        rig_done(&rig);
    }
}

static void a_witness_ends(void **state) {
    (void)state;
    const struct uuid pool = {{1}};
    struct witness_phys w = {.pool = pool, .mount_generation = GENERATION_END - 1}, got;
    witness_seal(&w);
    assert_int_equal(witness_decode(&w, sizeof(w), &pool, &got), OK);
    w.mount_generation++;
    witness_seal(&w);
    assert_int_equal(witness_decode(&w, sizeof(w), &pool, &got), ERR_CORRUPT);
}

/* ---- records and tables, in an engine without disks ---- */

static struct record_segment a_segment(uint64_t slot, uint64_t uid, uint32_t chunk) {
    struct record_segment r = {.slot = slot,
                               .segment = {.uid = uid,
                                           .kind = SEGMENT_DATA,
                                           .state = SEGMENT_OPEN,
                                           .profile = PROFILE_RAID1,
                                           .copies = 2,
                                           .data = 1}};
    for (uint16_t c = 0; c < 2; c++) {
        r.segment.column[c] = (struct segment_column_phys){.disk = c, .chunk = chunk};
    }
    return r;
}

static int replay(struct engine *e, enum record_type type, const void *header, size_t bytes,
                  uint32_t data_bytes) {
    struct buf *row = buf_new(BLOCK_BYTES);
    int error =
        engine_replay_record(e, (uint16_t)type, header, (uint16_t)bytes, row, 0, data_bytes);
    buf_unref(row);
    return error;
}

static int replay_ref(struct engine *e, uint64_t vba) {
    uint32_t count = 2, bytes = (uint32_t)(sizeof(struct record_ref) + count * sizeof(uint32_t));
    struct record_ref *r = mem_alloc(bytes);
    r->volume = 1;
    r->vba = vba;
    r->segment_uid = 5;
    r->count = count;
    r->height = 4;
    r->header_blocks = 1;
    int error = replay(e, RECORD_REF, r, bytes, 0);
    mem_free(r);
    return error;
}

static void records_are_doubted(void **state) {
    (void)state;
    struct pool pool;
    shell_pool_init(&pool, 1);
    struct engine *e = shell_engine_new(&pool);
    struct volume_phys p = {
        .id = 1, .name = "v", .size_bytes = 1 << 20, .block_bytes = 512, .profile = PROFILE_RAID1};
    (void)volume_add(e, &p);

    /* There can be as many segments as there are chunks; the table does not grow for more. */
    const uint64_t most = (uint64_t)SHELL_MEMBERS * SHELL_CHUNKS;
    struct record_segment s = a_segment(most, 4, 0);
    for (int shift = 0; shift < 40; shift += 4) {
        s.slot = most << shift;
        assert_int_equal(replay(e, RECORD_SEGMENT, &s, sizeof(s), 0), ERR_CORRUPT);
    }
    assert_int_equal(e->table.slot_count, 0);
    s = a_segment(0, COUNTER_END, 0);
    assert_int_equal(replay(e, RECORD_SEGMENT, &s, sizeof(s), 0), ERR_CORRUPT);
    s = a_segment(most - 1, 4, 0);
    assert_int_equal(replay(e, RECORD_SEGMENT, &s, sizeof(s), 0), OK);
    s = a_segment(0, 5, 1);
    assert_int_equal(replay(e, RECORD_SEGMENT, &s, sizeof(s), 0), OK);

    assert_int_equal(replay_ref(e, 0), ERR_CORRUPT);
    assert_int_equal(replay_ref(e, 1ull << 32 | 1), ERR_CORRUPT);
    assert_int_equal(replay_ref(e, COUNTER_END), ERR_CORRUPT);
    assert_int_equal(replay_ref(e, COUNTER_END - RUN_BLOCKS), OK);
    (void)map_add(&e->map, 1ull << 32, segment_get(&e->table, 0), 8, 4, 1, 2);
    assert_int_equal(replay_ref(e, 1ull << 32), ERR_CORRUPT); /* it is in the map */
    assert_int_equal(replay_ref(e, 1ull << 33), OK);

    struct record_range range = {.volume = 1, .block = 0, .count = 1};
    assert_int_equal(replay(e, RECORD_UNMAP, &range, sizeof(range), 8), ERR_CORRUPT);
    assert_int_equal(replay(e, RECORD_UNMAP, &range, sizeof(range), 0), OK);
    assert_int_equal(replay(e, RECORD_WRITE, &range, sizeof(range), 0), ERR_CORRUPT);
    range.count = 1ull << 52; /* times 4096 is 0 */
    assert_int_equal(replay(e, RECORD_WRITE, &range, sizeof(range), 0), ERR_CORRUPT);
    engine_free(e);
}

static void runs_and_segments_end(void **state) {
    (void)state;
    struct pool pool;
    shell_pool_init(&pool, 1);
    struct engine *e = shell_engine_new(&pool);
    e->vba_next = COUNTER_END - RUN_BLOCKS;
    assert_true(engine_take_vba_run(e) == COUNTER_END - RUN_BLOCKS);
    assert_int_equal(engine_take_vba_run(e), 0);
    assert_int_equal(engine_take_vba_run(e), 0);

    const struct shape shape = {.copies = 2, .data = 1};
    struct segment *s;
    e->table.slots_most = 1;
    assert_int_equal(segment_open(&e->table, SEGMENT_DATA, PROFILE_RAID1, shape, 0, &s), OK);
    assert_int_equal(segment_open(&e->table, SEGMENT_DATA, PROFILE_RAID1, shape, 0, &s),
                     ERR_NO_SPACE);
    e->table.slots_most = 3;
    e->table.uid_next = COUNTER_END - 1;
    assert_int_equal(segment_open(&e->table, SEGMENT_DATA, PROFILE_RAID1, shape, 0, &s), OK);
    assert_int_equal(segment_open(&e->table, SEGMENT_DATA, PROFILE_RAID1, shape, 0, &s), ERR_LIMIT);
    s->used_blocks = 8;
    struct map_value_phys value = {
        .segment = s->slot, .height = 8, .index = 1, .present = {1}, .live = {1}};
    assert_int_equal(map_load(&e->map, COUNTER_END >> RUN_SHIFT, &value), ERR_CORRUPT);
    assert_int_equal(map_load(&e->map, (COUNTER_END >> RUN_SHIFT) - 1, &value), OK);
    engine_free(e);
}

static void log_rows_end(void **state) {
    (void)state;
    const struct uuid pool = {{1}};
    static const struct {
        uint64_t generation, lsn;
        int error;
    } cases[] = {
        {GENERATION_END - 1, COUNTER_END - 1, OK},
        {GENERATION_END - 1, COUNTER_END, ERR_CORRUPT},
        {GENERATION_END, COUNTER_END + 1, ERR_CORRUPT},
        {2, 1ull << 32, ERR_CORRUPT},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct log_row_phys h = {
            .pool = pool, .generation = cases[i].generation, .lsn = cases[i].lsn, .blocks = 1};
        phys_seal(&h, PHYS_LOG_ROW, 1, sizeof(h), 7);
        assert_int_equal(log_row_validate(&h, sizeof(h), &pool, 7), cases[i].error);
    }
}

/* ---- an engine at work ---- */

enum { DISKS = 2 };

struct world {
    struct env *env;
    bool done;
};

static const char *const paths[DISKS] = {"d0", "d1"};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

static int import(struct world *w, struct engine **ret_engine, struct errmsg *reterr) {
    struct engine_import_options options = {.pool = {.paths = paths, .path_count = DISKS}};
    *reterr = (struct errmsg){0};
    return engine_import(w->env, &options, NULL, NULL, ret_engine, reterr);
}

static void nothing(struct log_entry *entry, struct buf *row, size_t data_offset) {
    (void)entry;
    (void)row;
    (void)data_offset;
}

static void nobody_wants(void *owner) {
    (void)owner;
}

/* The row that would be the first behind the end is not written. */
static void log_stops(struct engine *e) {
    struct log_options options = {
        .pool = e->pool, .generation = COUNTER_END >> 32, .want_checkpoint = nobody_wants};
    struct log *log = log_new(&options);
    struct log_entry entry = {.type = RECORD_UNMAP, .apply = nothing};
    assert_int_equal(log_append(log, &entry), ERR_LIMIT);
    assert_int_equal(log_counters(log)->rows, 0);
    log_quiesce(log);
    log_free(log);
}

static void volume_ids_end(struct world *w, struct engine *e) {
    struct errmsg why = {0};
    uint64_t id;
    struct volume_options last = {.name = "last", .size_bytes = 1 << 20, .profile = PROFILE_RAID1};
    struct volume_options more = {.name = "more", .size_bytes = 1 << 20, .profile = PROFILE_RAID1};
    e->volume_id_next = VOLUME_ID_END - 1;
    must(engine_volume_create(e, &last, &id, &why), &why);
    assert_int_equal(id, VOLUME_ID_END - 1);
    for (int i = 0; i < 3; i++) {
        why = (struct errmsg){0};
        assert_int_equal(engine_volume_create(e, &more, &id, &why), ERR_LIMIT);
        assert_non_null(strstr(why.text, "has had 4294967295 volumes"));
    }
    must(engine_close(e, true, env_now_ns(w->env) + NS_PER_S, &why), &why);
    must(import(w, &e, &why), &why);
    assert_int_equal(engine_volume_create(e, &more, &id, &why), ERR_LIMIT);
    must(engine_close(e, true, env_now_ns(w->env) + NS_PER_S, &why), &why);
}

static void engine_ends(void *arg) {
    struct world *w = arg;
    struct errmsg why = {0};
    struct engine *e;
    struct pool_options create = {
        .name = "tank",
        .paths = paths,
        .path_count = DISKS,
        .geometry = {.chunk_blocks = 32, .ring_blocks = 128, .row_blocks = 16, .node_blocks = 1}};
    must(engine_create_pool(w->env, &create, &why), &why);
    must(import(w, &e, &why), &why);
    log_stops(e);
    volume_ids_end(w, e);
    must(import(w, &e, &why), &why);
    e->vba_next = COUNTER_END - (1ull << 32); /* the last mount that has as many as it may need */
    must(engine_close(e, true, env_now_ns(w->env) + NS_PER_S, &why), &why);
    must(import(w, &e, &why), &why);
    assert_true(e->vba_next == COUNTER_END - (1ull << 32));
    e->vba_next += RUN_BLOCKS;
    must(engine_close(e, true, env_now_ns(w->env) + NS_PER_S, &why), &why);
    assert_int_equal(import(w, &e, &why), ERR_LIMIT);
    assert_non_null(strstr(why.text, "has given out all 2^63 addresses of blocks"));
    w->done = true;
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void engines_stop_before_the_end(void **state) {
    (void)state;
    struct world w = {.env = env_sim_new(&(struct env_sim_options){.seed = 1})};
    struct errmsg why = {0};
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme-plp", .path = paths[i], .size_bytes = 16 << 20};
        struct sim_disk *ignored;
        must(env_sim_disk_add(w.env, &disk, &ignored, &why), &why);
    }
    fiber_start(w.env, engine_ends, &w);
    assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, is_done, &w), SIM_DONE);
    env_sim_free(w.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(superblocks_end),     cmocka_unit_test(a_witness_ends),
        cmocka_unit_test(records_are_doubted), cmocka_unit_test(runs_and_segments_end),
        cmocka_unit_test(log_rows_end),        cmocka_unit_test(engines_stop_before_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
