// SPDX-License-Identifier: MPL-2.0
/* Free space at its end: how dense rows are packed at worst, a disk that is lost when the others
 * have hardly a free chunk, and a checkpoint that finds no room at all. Chunks are taken here by
 * hand (ballast), to get there by the shortest way. */
#include "unit.h"

#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/private.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "segment/room.h"
#include "volume_client.h"

enum { DISKS = 4, BLOCKS = 256, DISK_BYTES = 12 << 20, DIRTY_BLOCKS = 40, LEFT_CHUNKS = 14 };

static const struct geometry geometry = {
    .chunk_blocks = 32, .ring_blocks = 512, .row_blocks = 4, .node_blocks = 1};

struct world {
    struct env *env;
    struct sim_disk *disks[DISKS];
    const char *paths[DISKS];
    struct engine *engine;
    uint64_t id, other;
    enum profile profile;
    uint32_t version[BLOCKS]; /* 0: unmapped */
    bool done;
};

static void must(int err, const struct errmsg *e) {
    if (err != OK) {
        fail_msg("%s: %s", error_name(err), e->text);
    }
}

/* ---- rows ---- */

/* Runs of random length into rows, as the cleaner packs them: blocks in `chunks` chunks. */
static uint64_t packed(struct rng *rng, const struct segment_table *table, uint32_t columns,
                       uint32_t chunks) {
    struct segment s = {.shape = {.copies = 1, .data = (uint8_t)columns}};
    uint32_t capacity = row_capacity(table, &s, true, true);
    uint32_t most = (uint32_t)rng_between(rng, 1, capacity);
    uint32_t next = (uint32_t)rng_between(rng, 1, most);
    uint64_t blocks = 0;
    for (uint32_t c = 0; c < chunks;) {
        uint32_t in_row = 0;
        while (in_row + next <= capacity) {
            in_row += next;
            next = (uint32_t)rng_between(rng, 1, most);
        }
        uint32_t header = (uint32_t)div_round_up(sizeof(struct row_phys) + in_row * 36u, 4096);
        uint32_t height = (uint32_t)div_round_up(in_row + header, columns);
        if (height > table->pool->super.geometry.chunk_blocks - s.used_blocks) {
            s.used_blocks = 0;
            c++;
        }
        s.used_blocks += height;
        blocks += c < chunks ? in_row : 0;
    }
    return blocks;
}

static void rows_are_never_less_dense(void **state) {
    static const uint32_t chunks[] = {32, 48, 64, 96, 128, 256, 4096};
    static const uint32_t rows[] = {4, 8, 16, 32, 64};
    struct pool *pool = mem_alloc(sizeof(*pool));
    struct rng rng;
    (void)state;
    rng_init(&rng, 1);
    for (uint32_t i = 0; i < ARRAY_COUNT(chunks) * ARRAY_COUNT(rows) * 3; i++) {
        uint32_t chunk = chunks[i % ARRAY_COUNT(chunks)];
        uint32_t row = rows[i / ARRAY_COUNT(chunks) % ARRAY_COUNT(rows)];
        pool->super.geometry = (struct geometry){.chunk_blocks = chunk,
                                                 .row_blocks = MIN(row, chunk / 4),
                                                 .node_blocks = 1u << rng_below(&rng, 3)};
        struct segment_table table = {.pool = pool};
        for (uint32_t columns = 1; columns <= SEGMENT_COLUMNS_MAX; columns++) {
            uint32_t claimed = row_density(&table, columns);
            uint64_t room = 100ull * chunk * columns;
            assert_in_range(claimed, 200, 1023);
            /* A mixture may be a little worse than the worst of equal runs. */
            assert_true(packed(&rng, &table, columns, 100) * 1024 * 20 >= room * claimed * 19);
        }
    }
    mem_free(pool);
}

/* ---- worlds ---- */

static void fill(uint8_t *data, uint64_t block, uint32_t version) {
    memset(data, 0, 4096);
    if (version > 0) {
        memset(data, (int)version, 4096);
        memcpy(data, &block, sizeof(block));
    }
}

static int write_block(struct world *w, uint64_t block) {
    uint8_t data[4096];
    fill(data, block, w->version[block] + 1);
    int err =
        volume_run(engine_door(w->engine), w->id, VOLUME_WRITE, block * 4096, sizeof(data), data);
    w->version[block] += err == OK;
    return err;
}

static void unmap_block(struct world *w, uint64_t block) {
    assert_int_equal(
        volume_run(engine_door(w->engine), w->id, VOLUME_UNMAP, block * 4096, 4096, NULL), OK);
    w->version[block] = 0;
}

static void verify(struct world *w) {
    for (uint64_t b = 0; b < BLOCKS; b++) {
        uint8_t have[4096], want[4096];
        fill(want, b, w->version[b]);
        assert_int_equal(
            volume_run(engine_door(w->engine), w->id, VOLUME_READ, b * 4096, sizeof(have), have),
            OK);
        assert_memory_equal(have, want, sizeof(want));
    }
}

static void import(struct world *w, uint32_t first_disk) {
    struct errmsg e = {0};
    struct engine_import_options options = {
        .pool = {.paths = w->paths + first_disk, .path_count = DISKS - first_disk},
        .limits = {.dirty_bytes = 1 << 20, .checkpoint_ms = 3600 * 1000}};
    must(engine_import(w->env, &options, NULL, NULL, &w->engine, &e), &e);
}

static void begin(struct world *w) {
    struct errmsg e = {0};
    struct pool_options pool = {
        .name = "space", .paths = w->paths, .path_count = DISKS, .geometry = geometry};
    must(engine_create_pool(w->env, &pool, &e), &e);
    import(w, 0);
    struct volume_options v = {.name = "v", .size_bytes = BLOCKS * 4096, .profile = w->profile};
    must(engine_volume_create(w->engine, &v, &w->id, &e), &e);
    v.name = "other";
    must(engine_volume_create(w->engine, &v, &w->other, &e), &e);
    uint8_t data[4096] = {1};
    for (uint64_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(write_block(w, b), OK);
        assert_int_equal(volume_run(engine_door(w->engine), w->other, VOLUME_WRITE, b * 4096,
                                    sizeof(data), data),
                         OK);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
}

/* Takes free chunks of a disk until `left` are left; how many. */
static uint32_t ballast_take(struct world *w, uint32_t disk, uint32_t left) {
    struct segment_table *table = &w->engine->table;
    uint32_t taken = 0;
    for (uint32_t c = table->chunk_count[disk]; c-- > 0 && table->chunk_free[disk] > left;) {
        if (table->chunk_used[disk][c] == 0) {
            table->chunk_used[disk][c] = 1;
            table->chunk_free[disk]--;
            table->changes++;
            taken++;
        }
    }
    return taken;
}

static uint64_t free_chunks(struct world *w) {
    uint64_t sum = 0;
    for (uint32_t d = 1; d < DISKS; d++) {
        sum += w->engine->table.chunk_free[d];
    }
    return sum;
}

static void finish(struct world *w) {
    struct errmsg e = {0};
    must(engine_close(w->engine, false, env_now_ns(w->env) + 10 * NS_PER_S, &e), &e);
    w->done = true;
}

/* One disk goes; of the others only as many have room as the profile could still lose, and one. */
static void life_with_a_loss(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    begin(w);
    for (uint64_t b = 0; b < DIRTY_BLOCKS; b++) {
        assert_int_equal(write_block(w, b * 3), OK);
    }
    uint32_t with_room = profile_losses(w->profile);
    for (uint32_t d = 1; d < DISKS; d++) {
        (void)ballast_take(w, d, d <= with_room ? LEFT_CHUNKS : 0);
    }
    pool_expel(w->engine->pool, 0, "it was pulled");
    assert_int_equal(engine_checkpoint(w->engine), OK);
    struct engine_counters counters;
    engine_counters(w->engine, &counters);
    assert_true(counters.degraded_segments > 0);
    verify(w);
    for (uint64_t b = 0; b < BLOCKS; b += 2) {
        unmap_block(w, b);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
    uint64_t before = free_chunks(w);
    must(engine_volume_delete(w->engine, "other", &e), &e);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_true(free_chunks(w) > before);
    verify(w);
    must(engine_close(w->engine, false, env_now_ns(w->env) + 10 * NS_PER_S, &e), &e);
    import(w, 1);
    verify(w);
    for (int i = 0; i < 3; i++) { /* there is room again */
        assert_int_equal(write_block(w, 1), OK);
        assert_int_equal(engine_checkpoint(w->engine), OK);
    }
    for (uint32_t i = 0; i < w->engine->table.slot_count; i++) {
        const struct segment *s = w->engine->table.slots[i];
        if (s != NULL && s->live_blocks > 0) {
            assert_int_equal(shape_losses(s->shape), profile_losses(w->profile));
        }
    }
    verify(w);
    finish(w);
}

/* No chunk is free at all: writes are refused, the rest works, and it ends by itself. */
static void life_without_room(void *arg) {
    struct world *w = arg;
    begin(w);
    struct segment_table *table = &w->engine->table;
    uint32_t disks = DISKS;
    for (uint64_t b = 0; b < DIRTY_BLOCKS; b++) {
        assert_int_equal(write_block(w, b), OK);
    }
    uint8_t *then[DISKS];
    for (uint32_t d = 0; d < disks; d++) {
        then[d] = mem_alloc(table->chunk_count[d]);
        memcpy(then[d], table->chunk_used[d], table->chunk_count[d]);
        (void)ballast_take(w, d, 0);
    }
    assert_int_equal(engine_checkpoint(w->engine), ERR_NO_SPACE);
    uint64_t at_ns = env_now_ns(w->env);
    assert_int_equal(write_block(w, 7), ERR_NO_SPACE);
    assert_true(env_now_ns(w->env) - at_ns < NS_PER_S);
    unmap_block(w, 8);
    verify(w);
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(w->engine, status);
    assert_string_equal(status->health, "degraded");
    assert_non_null(strstr(status->advice, "no room for a checkpoint"));
    uint64_t checkpoints = status->checkpoints;
    for (uint32_t d = 0; d < disks; d++) {
        for (uint32_t c = 0; c < table->chunk_count[d]; c++) {
            table->chunk_free[d] += table->chunk_used[d][c] != 0 && then[d][c] == 0;
            table->chunk_used[d][c] = then[d][c];
        }
        table->changes++;
        mem_free(then[d]);
    }
    fiber_sleep_until(env_now_ns(w->env) + 40 * NS_PER_S); /* nobody asks for it */
    engine_status(w->engine, status);
    assert_true(status->checkpoints > checkpoints);
    assert_string_equal(status->health, "ok");
    mem_free(status);
    assert_int_equal(write_block(w, 7), OK);
    verify(w);
    finish(w);
}

/* What has become free is held back (by a late disk, say) while the checkpoint after that finds no
 * room: it is no reason to wait any more when it no longer is. */
static void life_with_chunks_held_back(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    begin(w);
    struct segment_table *table = &w->engine->table;
    must(engine_volume_delete(w->engine, "other", &e), &e);
    for (uint64_t b = 0; b < BLOCKS; b++) {
        unmap_block(w, b);
    }
    for (uint32_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i] != NULL) {
            table->slots[i]->pins++;
        }
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_false(list_is_empty(&table->freeing));
    assert_int_equal(write_block(w, 3), OK);
    for (uint32_t d = 0; d < DISKS; d++) {
        (void)ballast_take(w, d, 0);
    }
    assert_int_equal(engine_checkpoint(w->engine), ERR_NO_SPACE);
    for (uint32_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i] != NULL && table->slots[i]->pins > 0) {
            table->slots[i]->pins--;
        }
    }
    LIST_FOR_EACH(link, &table->freeing) {
        CONTAINER_OF(link, struct segment, freeing_link)->pins--;
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
    assert_int_equal(write_block(w, 3), OK);
    verify(w);
    finish(w);
}

/* ---- many long writes at the end of space ---- */

enum { WRITERS = 6, LONG_BLOCKS = 300 };

struct writer {
    struct world *w;
    uint64_t block;
    int result;
};

static void long_writer(void *arg) {
    struct writer *writer = arg;
    uint8_t *data = mem_alloc(LONG_BLOCKS * 4096);
    int err = OK;
    for (; err == OK; writer->block += LONG_BLOCKS) {
        memset(data, 1, LONG_BLOCKS * 4096);
        err = volume_run(engine_door(writer->w->engine), writer->w->other, VOLUME_WRITE,
                         writer->block * 4096, LONG_BLOCKS * 4096, data);
    }
    mem_free(data);
    writer->result = err;
}

/* Each is told that there is no space, and none waits for what another one holds. */
static void life_of_long_writers(void *arg) {
    struct world *w = arg;
    struct errmsg e = {0};
    struct writer writers[WRITERS] = {0};
    begin(w);
    struct volume_options v = {.name = "large", .size_bytes = 256 << 20, .profile = w->profile};
    must(engine_volume_create(w->engine, &v, &w->other, &e), &e);
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.w = w, .block = i * (65536ull / WRITERS)};
        fiber_start(w->env, long_writer, &writers[i]);
    }
    fiber_sleep_until(env_now_ns(w->env) + 600 * NS_PER_S);
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(writers[i].result, ERR_NO_SPACE);
    }
    verify(w);
    finish(w);
}

static uint64_t filled; /* blocks */

/* As much as the pool takes; every checkpoint has room. */
static void life_that_fills(struct world *w, bool suspect) {
    struct errmsg e = {0};
    uint8_t *data = mem_alloc(4096);
    begin(w);
    struct volume_options v = {.name = "large", .size_bytes = 256 << 20, .profile = w->profile};
    must(engine_volume_create(w->engine, &v, &w->other, &e), &e);
    disk_set_suspect(w->engine->pool->disks[1], suspect);
    int err = OK;
    for (filled = 0; err == OK; filled += err == OK) {
        err = volume_run(engine_door(w->engine), w->other, VOLUME_WRITE, filled * 4096, 4096, data);
        if (filled % 64 == 0) {
            assert_int_equal(engine_checkpoint(w->engine), OK);
        }
    }
    assert_int_equal(err, ERR_NO_SPACE);
    for (uint32_t i = 0; i < 4 * BLOCKS; i++) { /* replaces what is there */
        assert_int_equal(write_block(w, i % BLOCKS), OK);
    }
    assert_int_equal(engine_checkpoint(w->engine), OK);
    disk_set_suspect(w->engine->pool->disks[1], false);
    mem_free(data);
    verify(w);
    finish(w);
}

static void life_that_fills_all(void *arg) {
    life_that_fills(arg, false);
}

static void life_that_fills_around_a_suspect(void *arg) {
    life_that_fills(arg, true);
}

/* A tree that refers to a node which the map knows nothing of is an error, not a wait. */
static void life_with_a_strange_tree(void *arg) {
    struct world *w = arg;
    begin(w);
    w->engine->limit_share = space_used_share(w->engine, true);
    LIST_FOR_EACH(link, &w->engine->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (v->phys.id == w->id) {
            struct tree_ptr_phys *root = &v->tree.root.level[0].root;
            root->address ^= 1ull << 60;
            assert_int_equal(write_block(w, 1), ERR_IO);
            root->address ^= 1ull << 60;
        }
    }
    space_recount(w->engine);
    assert_int_equal(write_block(w, 1), OK);
    verify(w);
    finish(w);
}

static bool is_done(void *ctx) {
    return ((struct world *)ctx)->done;
}

static void live(enum profile profile, void (*life)(void *arg)) {
    static const char *const paths[DISKS] = {"d0", "d1", "d2", "d3"};
    struct world *w = mem_alloc(sizeof(*w));
    struct errmsg e = {0};
    w->env = env_sim_new(&(struct env_sim_options){.seed = profile + 1});
    w->profile = profile;
    for (int i = 0; i < DISKS; i++) {
        struct sim_disk_options disk = {
            .model = "nvme", .path = paths[i], .size_bytes = DISK_BYTES};
        w->paths[i] = paths[i];
        must(env_sim_disk_add(w->env, &disk, &w->disks[i], &e), &e);
    }
    fiber_start(w->env, life, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, is_done, w), SIM_DONE);
    env_sim_free(w->env);
    mem_free(w);
}

static void a_loss_when_full_writes_degraded(void **state) {
    (void)state;
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if (profile_losses((enum profile)p) > 0) {
            live((enum profile)p, life_with_a_loss);
        }
    }
}

static void a_checkpoint_without_room_is_postponed(void **state) {
    (void)state;
    live(PROFILE_SINGLE, life_without_room);
    live(PROFILE_RAID5, life_without_room);
}

static void a_postponed_checkpoint_takes_what_returns(void **state) {
    (void)state;
    live(PROFILE_RAID5, life_with_chunks_held_back);
}

static void a_node_that_never_was_is_an_error(void **state) {
    (void)state;
    live(PROFILE_RAID1, life_with_a_strange_tree);
}

static void long_writes_do_not_wait_for_each_other(void **state) {
    (void)state;
    for (int p = 0; p < PROFILE_COUNT; p++) {
        live((enum profile)p, life_of_long_writers);
    }
}

static void a_suspect_takes_no_space(void **state) {
    (void)state;
    for (int p = 0; p < PROFILE_COUNT; p++) {
        live((enum profile)p, life_that_fills_all);
        uint64_t all = filled;
        live((enum profile)p, life_that_fills_around_a_suspect);
        assert_true(all > 1000 && filled >= all / 100 * 95);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_never_less_dense),
        cmocka_unit_test(a_loss_when_full_writes_degraded),
        cmocka_unit_test(a_checkpoint_without_room_is_postponed),
        cmocka_unit_test(a_postponed_checkpoint_takes_what_returns),
        cmocka_unit_test(a_node_that_never_was_is_an_error),
        cmocka_unit_test(long_writes_do_not_wait_for_each_other),
        cmocka_unit_test(a_suspect_takes_no_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
