// SPDX-License-Identifier: MPL-2.0
/* Trees against a plain sorted array, over a store in memory that knows which nodes live.
 *
 * Every value ever put carries a number of its own. After each merge: the tree reads like the
 * model; each number is either met once in a walk over all levels or was reported freed once; the
 * nodes that live in the store are those the walk meets. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "env/fiber.h"
#include "tree/node.h"
#include "tree_world.h"

/* Stands in for the loop: trees need nothing else of it. */
static uint64_t paces;
bool fiber_pace(void) {
    paces++;
    return false;
}

static uint32_t base_height(const struct world *w) {
    return w->tree.root.levels == 0 ? 0 : w->tree.root.level[w->tree.root.levels - 1].height;
}

/* A batch of one of several styles. */
static void script_random(struct script *s) {
    struct world *w = s->world;
    struct rng *rng = &w->rng;
    static const uint32_t gaps[] = {1, 2, 10, 200, 1500};
    uint32_t gap = gaps[rng_below(rng, ARRAY_COUNT(gaps))];
    uint32_t longest = (uint32_t)(rng_chance(rng, 1, 4) ? 300 : 4);
    if (w->thin && rng_chance(rng, 7, 8)) {
        gap = w->slots / (uint32_t)rng_between(rng, 2, 80);
        longest = rng_chance(rng, 1, 6) ? 3000 : 3;
    }
    uint32_t deletes_pct = (uint32_t)(rng_chance(rng, 1, 4) ? 60 : rng_below(rng, 20));
    uint32_t slot = (uint32_t)rng_below(rng, gap * 2 + 1);
    script_reset(s);
    while (slot < w->slots) {
        uint32_t count = 1 + (uint32_t)rng_below(rng, longest);
        count = MIN(count, w->slots - slot);
        if (rng_below(rng, 100) < deletes_pct) {
            script_delete(s, slot, count);
        } else {
            for (uint32_t i = 0; i < count; i++) {
                script_put(s, slot + i);
            }
        }
        slot += count + (uint32_t)rng_below(rng, gap * 2);
    }
    if (rng_chance(rng, 1, 8)) {
        w->generation += 1 + rng_below(rng, 1 << rng_below(rng, 20));
    }
    if (rng_chance(rng, 1, w->thin ? 80 : 40)) { /* all gone */
        script_reset(s);
        script_delete(s, 0, w->slots);
    }
}

static void run_random(struct world *w, uint32_t rounds, uint32_t delta_pct) {
    struct script s = {.world = w};
    uint32_t highest = 0, most_levels = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        script_random(&s);
        bool delta = rng_below(&w->rng, 100) < delta_pct;
        w->store.cached_pct = (uint32_t)rng_below(&w->rng, 101);
        assert_int_equal(script_run(&s, delta), OK);
        assert_true(delta || w->tree.root.levels == 1);
        check_world(w);
        highest = MAX(highest, base_height(w));
        most_levels = MAX(most_levels, w->tree.root.levels);
    }
    assert_true(highest >= 2);
    assert_true(!w->thin || most_levels >= 3);
    script_free(&s);
}

static void extents_are_like_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct world *w = world_new(TREE_EXTENTS, 512, seed);
        w->slots = 4000;
        w->cluster = seed % 2 == 0 ? 7 : 1;
        w->stride = seed == 3 ? 5 : seed == 4 ? 1ull << 31 : w->cluster;
        run_random(w, 40, 0);
        world_free(w);
    }
}

static void delta_runs_are_like_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct world *w = world_new(TREE_EXTENTS, 512, 100 + seed);
        struct script s = {.world = w};
        w->slots = seed % 2 == 0 ? 20000 : 8000;
        w->stride = seed % 3 == 0 ? 5 : 1;
        w->thin = true;
        for (uint32_t i = 0; i < w->slots; i++) {
            script_put(&s, i);
        }
        assert_int_equal(script_run(&s, true), OK);
        run_random(w, 40, 95);
        script_free(&s);
        world_free(w);
    }
}

/* Batches that get smaller pile up as runs, to the most there may be; then they go to the base. */
static void runs_pile_up_and_fold(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 4);
    struct script s = {.world = w};
    w->slots = 300000;
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, true), OK);
    static const uint32_t puts[] = {36000, 6600, 1200, 215, 40, 8, 1};
    for (uint32_t i = 0; i < ARRAY_COUNT(puts); i++) {
        uint32_t gap = w->slots / puts[i];
        script_reset(&s);
        for (uint32_t k = 0; k < puts[i]; k++) {
            script_put(&s, k * gap + (uint32_t)rng_below(&w->rng, gap));
        }
        uint64_t reads = w->store.reads, writes = w->store.writes;
        assert_int_equal(script_run(&s, true), OK);
        assert_int_equal(w->tree.root.levels, i + 2);
        assert_int_equal(w->tree.root.level[0].items, puts[i]);
        /* The base is only sampled. */
        assert_true(w->store.reads - reads <= 100);
        assert_true(w->store.writes - writes <= puts[i] / 25 + 3);
    }
    check_world(w);
    assert_int_equal(w->tree.root.levels, TREE_LEVELS_MAX);
    for (uint32_t i = 0; i < 3; i++) {
        script_reset(&s);
        script_put(&s, (uint32_t)rng_below(&w->rng, w->slots));
        assert_int_equal(script_run(&s, true), OK);
        assert_true(w->tree.root.levels <= TREE_LEVELS_MAX);
    }
    check_world(w);
    /* One wide delete goes through all levels at once, and leaves no tombstone. */
    script_reset(&s);
    script_delete(&s, 1000, 100000);
    assert_int_equal(script_run(&s, true), OK);
    assert_true(w->tree.root.levels > 2);
    assert_int_equal(w->tree.root.level[w->tree.root.levels - 1].items, w->slots - 100000);
    check_world(w);
    script_reset(&s);
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->tree.root.levels, 1);
    assert_int_equal(w->tree.root.level[0].items, w->slots - 100000);
    check_world(w);
    script_free(&s);
    world_free(w);
}

/* When there are as many runs as there may be, the next batch takes one in, whatever its size. */
static void the_most_runs_are_not_exceeded(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 4);
    struct script s = {.world = w};
    w->slots = 20000;
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, true), OK);
    s.claim = 1;
    for (uint32_t i = 0; i < 12; i++) {
        script_reset(&s);
        for (uint32_t k = 0; k < 20; k++) {
            script_put(&s, 1000 * k + (uint32_t)rng_below(&w->rng, 1000));
        }
        assert_int_equal(script_run(&s, true), OK);
        /* Once they are taken in, runs of the same size all are. */
        assert_true(i > 6 ? w->tree.root.levels <= TREE_LEVELS_MAX : w->tree.root.levels == i + 2);
        check_world(w);
    }
    script_free(&s);
    world_free(w);
}

static int find_visit(void *ctx, uint64_t key, const void *value) {
    struct reading *r = ctx;
    assert_int_equal(key, r->end);
    assert_int_equal(value_id(r->world, value), r->world->model[r->slot]);
    r->items++;
    return OK;
}

static void check_find(struct world *w, uint32_t slot) {
    struct reading r = {.world = w, .slot = slot, .end = slot_key(w, slot)};
    assert_int_equal(tree_find(&w->tree, r.end, find_visit, &r), OK);
    assert_int_equal(r.items, w->model[slot] != 0);
}

/* What is put on top of a damaged tree reads nothing of it, and is found without reading it. */
static void damaged_trees_take_runs_on_top(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 5);
    struct script s = {.world = w};
    w->slots = 300000;
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, true), OK);
    s.on_top = true;
    for (uint32_t i = 0; i < TREE_LEVELS_MAX + 2; i++) {
        script_reset(&s);
        script_put(&s, 100 * i);
        script_delete(&s, 100 * i + 1, 3);
        script_delete(&s, 10000, 5000); /* wide */
        script_put(&s, 200000 + i);
        bool full = w->tree.root.levels == TREE_LEVELS_MAX;
        w->store.fail_read = full ? 0 : 1;
        assert_int_equal(script_run(&s, true), OK);
        assert_int_equal(w->store.fail_read, full ? 0 : 1); /* nothing was read */
        w->store.fail_read = 0;
        assert_int_equal(w->tree.root.levels, full ? TREE_LEVELS_MAX : i + 2);
        uint64_t reads = w->store.reads;
        check_find(w, 100 * i);
        check_find(w, 100 * i + 1);
        check_find(w, 10000 + 777 * i % 5000);
        assert_true(w->store.reads - reads <= 3 * 4); /* of one run */
        check_find(w, 250000 + i);
    }
    check_world(w);
    /* More than can be spelled out: refused, and nothing has changed. */
    script_reset(&s);
    script_delete(&s, 0, 150000);
    script_put(&s, 160000);
    script_delete(&s, 170000, 120000);
    assert_int_equal(script_run(&s, true), ERR_LIMIT);
    check_world(w);
    s.on_top = false;
    assert_int_equal(script_run(&s, false), OK);
    check_world(w);
    script_free(&s);
    world_free(w);
}

static void maps_are_like_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct world *w = world_new(TREE_MAP, seed == 1 ? 512 : 1024, seed);
        w->stride = seed == 1 ? 1 : 1ull << 40;
        run_random(w, 40, 50);
        world_free(w);
    }
}

static void failures_leave_the_old_tree(void **state) {
    (void)state;
    for (int kind = TREE_EXTENTS; kind <= TREE_MAP; kind++) {
        struct world *w = world_new((enum tree_kind)kind, 512, 9);
        struct script s = {.world = w};
        uint32_t most_levels = 0;
        uint64_t failures = 0;
        w->slots = 1500;
        for (uint32_t i = 0; i < w->slots; i++) {
            script_put(&s, i);
        }
        for (uint32_t round = 0; round < 12; round++) {
            bool delta = round % 6 != 5;
            w->thin = round >= 3;
            if (round > 0) {
                script_random(&s);
            }
            uint64_t before = mem_in_use_bytes();
            for (uint64_t n = 1;; n++) {
                w->store.fail_read = round % 2 == 0 ? n : 0;
                w->store.fail_write = n;
                int rc = script_run(&s, delta);
                w->store.fail_read = w->store.fail_write = 0;
                if (rc == OK) {
                    failures += n - 1;
                    break;
                }
                assert_true(rc == ERR_IO || rc == ERR_NO_SPACE);
                assert_int_equal(mem_in_use_bytes(), before);
                if (n % 8 == 1) {
                    check_world(w);
                }
            }
            most_levels = MAX(most_levels, w->tree.root.levels);
            check_world(w);
        }
        assert_true(kind == TREE_MAP || most_levels >= 3);
        assert_true(failures > 100);
        script_free(&s);
        world_free(w);
    }
}

/* Of a merge that touches one leaf in a large tree only one path is read and written. */
static void a_small_merge_touches_one_path(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 1);
    struct script s = {.world = w};
    w->slots = 20000;
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, false), OK);
    check_world(w);
    uint32_t height = base_height(w);
    assert_true(height >= 2);
    /* Filled in order: no leaf but the last has room for another item. */
    uint64_t leaf_room = (512 - NODE_HEAD_BYTES - NODE_RUN_BYTES) / 8;
    uint64_t leaves = div_round_up(w->slots, leaf_room);
    assert_true(w->tree.root.level[0].nodes <= leaves + leaves / 17 + leaves / 200 + 2);

    script_reset(&s);
    script_put(&s, 11111);
    w->store.reads = w->store.writes = w->store.frees = 0;
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.reads, height + 1);
    assert_int_equal(w->store.writes, height + 1);
    assert_int_equal(w->store.frees, height + 1);
    check_world(w);

    /* Deleting what is not there changes nothing, and an empty batch does not even look. */
    script_reset(&s);
    script_add(&s, (struct script_op){TREE_DELETE, w->slots + 5, UINT64_MAX, 0});
    w->store.reads = w->store.writes = w->store.frees = 0;
    struct tree_root_phys before = w->tree.root;
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.writes + w->store.frees, 0);
    assert_memory_equal(&before, &w->tree.root, sizeof(before));
    script_reset(&s);
    w->store.reads = 0;
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.reads, 0);

    /* All but the first few: the tree becomes one leaf. */
    script_delete(&s, 10, w->slots - 10);
    assert_int_equal(script_run(&s, false), OK);
    check_world(w);
    assert_int_equal(base_height(w), 0);
    assert_int_equal(w->tree.root.level[0].nodes, 1);
    assert_int_equal(w->tree.root.level[0].items, 10);
    script_reset(&s);
    script_add(&s, (struct script_op){TREE_DELETE, 0, UINT64_MAX, 0});
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->tree.root.level[0].present, 0);
    check_world(w);
    script_free(&s);
    world_free(w);
}

/* An interior node with one child, as a tree filled in order has at its right end, does not stay
 * the root. */
static void a_root_with_one_child_gives_way(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 1);
    struct script s = {.world = w};
    const uint32_t leaf_room = (512 - NODE_HEAD_BYTES - NODE_RUN_BYTES) / 8, fanout = 18;
    w->slots = leaf_room * (3 * fanout + 1);
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->tree.root.level[0].nodes, 3 * fanout + 1 + 4 + 1);
    assert_int_equal(base_height(w), 2);
    script_reset(&s);
    script_delete(&s, 0, leaf_room * 3 * fanout);
    assert_int_equal(script_run(&s, false), OK);
    check_world(w);
    assert_int_equal(base_height(w), 0);
    script_free(&s);
    world_free(w);
}

/* Appending in small batches leaves full leaves behind. */
static void appending_packs_tight(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 1);
    struct script s = {.world = w};
    w->slots = 9000;
    for (uint32_t i = 0; i < w->slots; i += 30) {
        script_reset(&s);
        for (uint32_t k = 0; k < 30; k++) {
            script_put(&s, i + k);
        }
        assert_int_equal(script_run(&s, false), OK);
    }
    check_world(w);
    const struct tree_level_phys *base = &w->tree.root.level[0];
    assert_true(base->nodes * (512 - NODE_HEAD_BYTES) <= base->items * 8 * 120 / 100);
    script_free(&s);
    world_free(w);
}

/* Leaves that lose items here and there are joined. */
static void small_leaves_are_joined(void **state) {
    (void)state;
    for (int kind = TREE_EXTENTS; kind <= TREE_MAP; kind++) {
        struct world *w = world_new((enum tree_kind)kind, 1024, 1);
        struct script s = {.world = w};
        w->slots = 10000;
        w->stride = 2; /* no runs to speak of: each item has the same size */
        for (uint32_t i = 0; i < w->slots; i++) {
            script_put(&s, i);
        }
        assert_int_equal(script_run(&s, false), OK);
        uint64_t full_nodes = w->tree.root.level[0].nodes;
        /* Each batch takes something out of leaves that lie apart. */
        uint32_t leaf_items = (uint32_t)(w->slots / full_nodes);
        for (uint32_t round = 0; round < 60; round++) {
            script_reset(&s);
            uint32_t slot = (uint32_t)rng_below(&w->rng, leaf_items * 8);
            while (slot + leaf_items < w->slots) {
                uint32_t count = 1 + (uint32_t)rng_below(&w->rng, leaf_items / 2);
                script_delete(&s, slot, count);
                slot += leaf_items * (4 + (uint32_t)rng_below(&w->rng, 8));
            }
            assert_int_equal(script_run(&s, false), OK);
        }
        check_world(w);
        const struct tree_level_phys *base = &w->tree.root.level[0];
        assert_true(base->items < w->slots / 2);
        /* Two thirds at least, but for what was deleted since and the edges. */
        assert_true(base->nodes * w->slots <= full_nodes * base->items * 16 / 10);
        script_free(&s);
        world_free(w);
    }
}

struct one_item {
    uint64_t count;
    int answer;
};

static int one_visit(void *ctx, uint64_t key, const void *value) {
    struct one_item *one = ctx;
    (void)key;
    (void)value;
    one->count++;
    return one->answer;
}

static void ranges_end_where_they_should(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 1);
    struct script s = {.world = w};
    struct one_item one = {0};
    assert_int_equal(tree_range(&w->tree, 0, UINT64_MAX, one_visit, &one), OK); /* empty */
    assert_int_equal(one.count, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(tree_range(&w->tree, 5, UINT64_MAX, one_visit, &one), OK);
    assert_int_equal(one.count, 995);
    assert_int_equal(tree_range(&w->tree, 5, 0, one_visit, &one), OK);
    assert_int_equal(one.count, 995);
    one = (struct one_item){.answer = 42};
    assert_int_equal(tree_range(&w->tree, 5, 10, one_visit, &one), 42);
    assert_int_equal(one.count, 1);
    /* One block is read from one leaf, also at the leaf's end. */
    one = (struct one_item){0};
    w->store.reads = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(tree_range(&w->tree, i, 1, one_visit, &one), OK);
    }
    assert_int_equal(one.count, 1000);
    assert_int_equal(w->store.reads, 1000 * (base_height(w) + 1));
    w->store.fail_read = 2;
    assert_int_equal(tree_range(&w->tree, 5, 1, one_visit, &one), ERR_IO);
    script_free(&s);
    world_free(w);
}

/* Blocks per byte, for a volume written in some order and then overwritten at random three times,
 * in batches that hit each leaf a few times, by several mounts. */
static void leaves_stay_dense(void **state) {
    (void)state;
    for (uint32_t sequential = 0; sequential < 2; sequential++) {
        struct world *w = world_new(TREE_EXTENTS, 4096, 5 + sequential);
        struct script s = {.world = w};
        w->slots = 65535;
        for (uint32_t i = 0; sequential && i < w->slots; i++) {
            script_put(&s, i);
        }
        assert_int_equal(script_run(&s, false), OK);
        uint64_t written = 0;
        while (written < 3ull * w->slots) {
            script_reset(&s);
            uint32_t slot = 0;
            /* Every fourth batch falls on a part only: its leaves have neighbours that are kept. */
            uint32_t first =
                (uint32_t)(rng_chance(&w->rng, 1, 4) ? rng_below(&w->rng, w->slots) : 0);
            for (slot = first; slot < w->slots; slot += 1 + (uint32_t)rng_below(&w->rng, 100)) {
                script_put(&s, slot);
            }
            written += s.count;
            w->generation += rng_chance(&w->rng, 1, 20);
            assert_int_equal(script_run(&s, false), OK);
        }
        check_world(w);
        const struct tree_level_phys *base = &w->tree.root.level[0];
        uint64_t bytes = base->nodes * 4096, blocks = base->items;
        print_message("%s: %.2f bytes a block, %lu nodes\n", sequential ? "filled" : "sparse",
                      (double)bytes / (double)blocks, (unsigned long)base->nodes);
        assert_true(bytes <= 16 * blocks);
        script_free(&s);
        world_free(w);
    }
}

/* Of a merge that reads most leaves the store is told all of them ahead, once; of a small one
 * nothing. */
static void dense_merges_announce_reads(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 1);
    struct script s = {.world = w};
    w->slots = 20000;
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.announced, 0);
    script_reset(&s);
    for (uint32_t i = 0; i < w->slots; i += 10) {
        script_put(&s, i);
    }
    w->store.reads = 0;
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.announced, w->store.reads - 1); /* all but the root */
    script_reset(&s);
    script_put(&s, 7);
    w->store.announced = 0;
    assert_int_equal(script_run(&s, false), OK);
    assert_int_equal(w->store.announced, 0);
    script_free(&s);
    world_free(w);
}

static bool move_some(void *ctx, const struct tree_ptr_phys *ptr) {
    const struct world *w = ctx;
    return ptr->address % 10 == w->freed;
}

static bool move_none(void *ctx, const struct tree_ptr_phys *ptr) {
    (void)ctx;
    (void)ptr;
    return false;
}

static void rewriting_moves_what_it_should(void **state) {
    (void)state;
    struct world *w = world_new(TREE_MAP, 512, 3);
    struct script s = {.world = w};
    for (uint32_t i = 0; i < w->slots; i++) {
        script_put(&s, i);
    }
    assert_int_equal(script_run(&s, false), OK);
    struct tree_root_phys root;
    w->store.writes = w->store.frees = 0;
    assert_int_equal(tree_rewrite(&w->tree, move_none, w, &root), OK);
    assert_memory_equal(&root, &w->tree.root, sizeof(root));
    assert_int_equal(w->store.writes + w->store.frees, 0);
    for (w->freed = 0; w->freed < 10; w->freed++) {
        uint64_t old_next = w->store.next;
        for (uint64_t n = 1;; n += 7) {
            w->store.fail_read = w->store.fail_write = n;
            int rc = tree_rewrite(&w->tree, move_some, w, &root);
            w->store.fail_read = w->store.fail_write = 0;
            memory_end(&w->store, rc == OK);
            if (rc == OK) {
                break;
            }
            check_world(w);
        }
        w->tree.root = root;
        check_world(w);
        for (uint64_t i = 1; i < old_next; i++) {
            assert_true(w->store.node[i] == NULL || i % 10 != w->freed);
        }
    }
    script_free(&s);
    world_free(w);
}

/* ---- hostile nodes ---- */

static void walk_on_bad(void *ctx, const struct tree_ptr_phys *ptr, int error) {
    (void)ptr;
    assert_true(error == ERR_CORRUPT || error == ERR_UNSUPPORTED || error == ERR_DATA_LOSS);
    (*(uint64_t *)ctx)++;
}

/* Any byte of any node may be anything: nothing may crash, and what can be told is told. */
static void damaged_nodes_are_refused(void **state) {
    (void)state;
    for (int kind = TREE_EXTENTS; kind <= TREE_MAP; kind++) {
        struct world *w = world_new((enum tree_kind)kind, 512, 11);
        struct script s = {.world = w};
        w->cluster = 5;
        w->stride = 7;
        w->slots = 1000;
        for (uint32_t i = 0; i < w->slots; i++) {
            script_put(&s, i);
        }
        assert_int_equal(script_run(&s, false), OK);
        w->store.verify = false;
        uint64_t told = 0, trials = 0;
        for (uint64_t i = 1; i < w->store.next; i++) {
            if (w->store.node[i] == NULL) {
                continue;
            }
            uint8_t *data = w->store.node[i]->data, saved[512];
            memcpy(saved, data, 512);
            for (uint32_t n = 0; n < 40; n++) {
                uint64_t bad = 0;
                struct one_item one = {0};
                uint32_t reach = n % 3 == 0 ? 512 : NODE_HEAD_BYTES + 16;
                for (uint32_t k = 0; k <= n % 4; k++) {
                    data[rng_below(&w->rng, reach)] = (uint8_t)rng_next(&w->rng);
                }
                struct tree_walk walk = {.bad = walk_on_bad, .ctx = &bad};
                int rc = tree_walk(&w->tree, &walk);
                assert_true((rc == OK) == (bad == 0));
                told += rc != OK;
                trials++;
                int rc2 = tree_range(&w->tree, 0, UINT64_MAX, one_visit, &one);
                for (uint64_t key = 0; key < 1400; key += 37) {
                    rc2 = tree_range(&w->tree, key, 3, one_visit, &one);
                }
                (void)rc2;
                memcpy(data, saved, 512);
            }
        }
        /* A flipped value in a leaf is the pointer's crc to find; the rest is found here. */
        assert_true(told > trials / 2);
        w->store.verify = true;
        check_world(w);
        script_free(&s);
        world_free(w);
    }
}

static void nodes_of_others_are_refused(void **state) {
    (void)state;
    struct world *w = world_new(TREE_EXTENTS, 512, 2);
    struct script s = {.world = w};
    script_put(&s, 5);
    assert_int_equal(script_run(&s, false), OK);
    uint8_t node[512] __attribute__((aligned(8)));
    memcpy(node, w->store.node[w->tree.root.level[0].root.address]->data, sizeof(node));
    struct node_phys *h = (struct node_phys *)(void *)node;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), OK);
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 78), ERR_CORRUPT);
    assert_int_equal(tree_node_validate(node, 512, TREE_MAP, 77), ERR_CORRUPT);
    assert_int_equal(tree_node_validate(node, 1024, TREE_EXTENTS, 77), ERR_CORRUPT);
    h->encoding = 1;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), ERR_UNSUPPORTED);
    h->encoding = 0;
    h->key_id = 1;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), ERR_UNSUPPORTED);
    h->key_id = 0;
    h->header.version++;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), ERR_UNSUPPORTED);
    h->header.version--;
    node[511] = 1;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), ERR_CORRUPT);
    node[511] = 0;
    assert_int_equal(tree_node_validate(node, 512, TREE_EXTENTS, 77), OK);
    w->tree.root.level[0].items++; /* counts are checked too */
    assert_int_equal(tree_walk(&w->tree, &(struct tree_walk){0}), ERR_CORRUPT);
    script_free(&s);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_are_like_the_model),
        cmocka_unit_test(delta_runs_are_like_the_model),
        cmocka_unit_test(runs_pile_up_and_fold),
        cmocka_unit_test(the_most_runs_are_not_exceeded),
        cmocka_unit_test(damaged_trees_take_runs_on_top),
        cmocka_unit_test(maps_are_like_the_model),
        cmocka_unit_test(failures_leave_the_old_tree),
        cmocka_unit_test(a_small_merge_touches_one_path),
        cmocka_unit_test(a_root_with_one_child_gives_way),
        cmocka_unit_test(appending_packs_tight),
        cmocka_unit_test(small_leaves_are_joined),
        cmocka_unit_test(ranges_end_where_they_should),
        cmocka_unit_test(leaves_stay_dense),
        cmocka_unit_test(dense_merges_announce_reads),
        cmocka_unit_test(rewriting_moves_what_it_should),
        cmocka_unit_test(damaged_nodes_are_refused),
        cmocka_unit_test(nodes_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
