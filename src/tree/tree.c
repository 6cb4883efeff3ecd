// SPDX-License-Identifier: MPL-2.0
/* Which levels a batch is merged into.
 *
 * Merging into the base reads and writes every leaf that the batch touches. For a batch that hits
 * most leaves several times that is the best there is: sequential, and everything in its final
 * place. For a batch thinly spread over a large tree it is the worst: a random read and a write of
 * a node for every item. Such a batch becomes a delta run instead: a small tree of its own, above
 * the others, written in a row and without reading anything. Reads then look into one more tree,
 * and what the run overwrites stays allocated until the run reaches the base.
 *
 * The rules, with n = nodes of the base, p = puts of the batch, d = items in delta runs:
 *   1. n < 8, or p + d ≥ 8 n: merge all runs and the batch into the base. (At 8 items a leaf the
 *      reads are sequential in effect, and 1/8 of a leaf is written for an item.)
 *   2. p + d ≥ 4 n, and of 32 leaves sampled 3/4 are cached: the same, as there is next to nothing
 *      to read. (Earlier it would write more than a quarter of a leaf for each item.)
 *   3. Otherwise a new run. It takes in the runs that follow it, newest first, as long as each
 *      has at most 4 times the items gathered so far: so the sizes of runs grow geometrically and
 *      an item is written into runs about log4(8 n / p) times before it reaches the base. When the
 *      most runs are there already it takes in one at least.
 *
 * A delete of more than 1024 keys never becomes tombstones: it is applied to every level at once,
 * where it touches the nodes of its range and no others. A narrow one becomes a tombstone for each
 * key. (So does a wide one in a batch that must go on top of a damaged tree.) The map of a pool has
 * no delta runs (its values have no room for a tombstone; it is resident by preference, so that
 * rule 2 would hold anyway). */
#include "tree/tree.h"

#include "base/math.h"
#include "base/mem.h"
#include "tree/merge.h"

enum {
    BASE_NODES_LEAST = 8,
    ITEMS_A_LEAF = 8,
    ITEMS_A_CACHED_LEAF = 4,
    RUN_GROWTH = 4,
    WIDE_KEYS = 1024,
    ON_TOP_KEYS = 1 << 18,
    SAMPLES = 32,
    RUNS_MAX = TREE_LEVELS_MAX - 1,
};

struct plan {
    bool to_base;
    uint32_t fold; /* how many of the newest runs take part */
};

/* Looks at a leaf of the base, chosen by `sample`, from the root down as far as nodes are
 * cached. */
static int sample_is_cached(struct tree *tree, const struct tree_level_phys *base, uint32_t sample,
                            bool *ret_cached) {
    struct node_shape shape = node_shape_of(tree, false);
    struct tree_ptr_phys ptr = base->root;
    for (uint32_t height = base->height; height > 0; height--) {
        struct buf *node;
        struct node_view v;
        int rc = node_read(tree->store, &shape, &ptr, height, NULL, UINT64_MAX, &node, &v);
        if (rc != OK) {
            return rc;
        }
        /* The first step spreads the samples, those below it scatter them. */
        uint64_t at = height == base->height ? (uint64_t)sample * v.count / SAMPLES
                                             : (sample * 2654435761u >> 8) % v.count;
        ptr = v.children[at];
        buf_unref(node);
        if (!tree->store->is_cached(tree->store, &ptr)) {
            *ret_cached = false;
            return OK;
        }
    }
    *ret_cached = true;
    return OK;
}

static int base_is_cached(struct tree *tree, const struct tree_level_phys *base, bool *ret_mostly) {
    uint32_t cached = 0;
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        bool hit;
        int rc = sample_is_cached(tree, base, sample, &hit);
        if (rc != OK) {
            return rc;
        }
        cached += hit;
    }
    *ret_mostly = cached >= SAMPLES / 4 * 3;
    return OK;
}

static int plan_make(struct tree *tree, const struct tree_root_phys *root,
                     const struct tree_batch *batch, struct plan *ret_plan) {
    uint32_t runs = root->levels == 0 ? 0 : root->levels - 1;
    *ret_plan = (struct plan){.to_base = true, .fold = runs};
    if (batch->on_top && root->levels > 0) {
        *ret_plan = (struct plan){.fold = root->levels == TREE_LEVELS_MAX};
        return OK;
    }
    if (!batch->delta_allowed || tree->kind != TREE_EXTENTS || root->levels == 0) {
        return OK;
    }
    const struct tree_level_phys *base = &root->level[runs];
    uint64_t items = batch->put_count;
    for (uint32_t i = 0; i < runs; i++) {
        items += root->level[i].items;
    }
    if (base->present == 0 || base->nodes < BASE_NODES_LEAST ||
        items / ITEMS_A_LEAF >= base->nodes) {
        return OK;
    }
    if (items / ITEMS_A_CACHED_LEAF >= base->nodes) {
        bool cached;
        int rc = base_is_cached(tree, base, &cached);
        if (rc != OK || cached) {
            return rc;
        }
    }
    ret_plan->to_base = false;
    ret_plan->fold = 0;
    uint64_t gathered = MAX(batch->put_count, 1u);
    while (ret_plan->fold < runs) {
        uint64_t next = root->level[ret_plan->fold].items;
        bool full = runs - ret_plan->fold == RUNS_MAX;
        if (!full && next / RUN_GROWTH > gathered) {
            break;
        }
        gathered += next;
        ret_plan->fold++;
    }
    return OK;
}

/* ---- wide deletes, as a batch of their own ---- */

struct wide_batch {
    const struct merge_ranges *ranges;
    const struct tree_batch *batch;
    uint32_t at;
};

static bool wide_next(void *ctx, struct tree_op *ret_op) {
    struct wide_batch *w = ctx;
    if (w->at == w->ranges->count) {
        return false;
    }
    const struct merge_range *range = &w->ranges->range[w->at++];
    *ret_op =
        (struct tree_op){.kind = TREE_DELETE, .key = range->key, .count = range->end - range->key};
    return true;
}

static void wide_freed(void *ctx, uint64_t key, const void *value) {
    struct wide_batch *w = ctx;
    if (w->batch->freed != NULL) {
        w->batch->freed(w->batch->ctx, key, value);
    }
}

static int wide_apply(struct tree *tree, struct feed *feed, const struct merge_ranges *ranges,
                      const struct tree_batch *batch, bool delta, struct tree_level_phys *level) {
    struct wide_batch wide = {.ranges = ranges, .batch = batch};
    struct tree_batch deletes = {.next = wide_next, .freed = wide_freed, .ctx = &wide};
    int rc = feed_start(feed, tree, NULL, 0, &deletes);
    if (rc == OK) {
        rc = merge_level(tree, feed, level, &(struct merge_options){.delta = delta}, level);
    }
    feed_stop(feed);
    return rc;
}

/* ---- the merge ---- */

static int merge_to_run(struct tree *tree, struct feed *feed, const struct tree_root_phys *root,
                        const struct plan *plan, const struct tree_batch *batch,
                        struct tree_root_phys *ret_root) {
    struct merge_ranges wide = {0};
    struct tree_root_phys new_root = {0};
    struct tree_level_phys run;
    int rc = feed_start(feed, tree, root, plan->fold, batch);
    if (rc == OK) {
        rc = batch->on_top ? merge_run(tree, feed, ON_TOP_KEYS, NULL, &run)
                           : merge_run(tree, feed, WIDE_KEYS, &wide, &run);
    }
    feed_stop(feed);
    if (rc == OK && run.present != 0) {
        new_root.level[new_root.levels++] = run;
    }
    for (uint32_t i = plan->fold; rc == OK && i < root->levels; i++) {
        struct tree_level_phys level = root->level[i];
        bool base = i + 1 == root->levels;
        if (wide.count > 0) {
            rc = wide_apply(tree, feed, &wide, batch, !base, &level);
        }
        if (rc == OK && (base || level.present != 0)) {
            new_root.level[new_root.levels++] = level;
        }
    }
    mem_free(wide.range);
    if (rc == OK) {
        *ret_root = new_root;
    }
    return rc;
}

static int merge_to_base(struct tree *tree, struct feed *feed, const struct tree_root_phys *root,
                         const struct tree_batch *batch, struct tree_root_phys *ret_root) {
    struct tree_root_phys new_root = {.levels = 1};
    uint32_t runs = 0;
    uint64_t items = batch->put_count;
    if (root->levels > 0) {
        runs = root->levels - 1;
        new_root.level[0] = root->level[runs];
    }
    for (uint32_t i = 0; i < runs; i++) {
        items += root->level[i].items;
    }
    struct merge_options options = {.dense = items >= 2 * new_root.level[0].nodes};
    int rc = feed_start(feed, tree, root, runs, batch);
    if (rc == OK) {
        rc = merge_level(tree, feed, &new_root.level[0], &options, &new_root.level[0]);
    }
    feed_stop(feed);
    if (rc == OK) {
        *ret_root = new_root;
    }
    return rc;
}

int tree_merge(struct tree *tree, const struct tree_batch *batch, struct tree_root_phys *ret_root) {
    const struct tree_root_phys root = tree->root;
    if (root.levels > TREE_LEVELS_MAX) {
        return ERR_CORRUPT;
    }
    struct plan plan;
    int rc = plan_make(tree, &root, batch, &plan);
    if (rc != OK) {
        return rc;
    }
    struct feed *feed = MEM_NEW(struct feed);
    rc = plan.to_base ? merge_to_base(tree, feed, &root, batch, ret_root)
                      : merge_to_run(tree, feed, &root, &plan, batch, ret_root);
    mem_free(feed);
    return rc;
}
