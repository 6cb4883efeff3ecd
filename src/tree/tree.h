// SPDX-License-Identifier: MPL-2.0
/* Immutable trees.
 *
 * A tree maps a 64-bit key to a small value. It is a short stack of levels, newest first; each
 * level is a B+-tree of immutable nodes; the last level is the base. The only writer is
 * tree_merge(tree, sorted batch) -> new root, freed references. Readers of the old root are not
 * disturbed. Where nodes live is the business of the owner's `struct tree_store`; how items are
 * packed into a leaf follows from `enum tree_kind`: the volume trees (block -> vba and checksum,
 * nodes addressed by vba) and the pool's map (run of vbas -> place, nodes addressed physically).
 *
 * A level above the base (a *delta run*) also holds tombstones. What a delta overwrites is freed
 * when the delta is merged into the base. Only trees of extents have delta runs.
 *
 * The empty tree is a root of zeros, or one level with present = 0. Keys end at UINT64_MAX - 1. No
 * vba is 0.
 *
 * All functions that take a store park (they read nodes) and pace themselves; they belong to the
 * engine thread. */
#ifndef HOLDFAST_TREE_TREE_H
#define HOLDFAST_TREE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "format/super.h"

enum { TREE_VALUE_MAX = 96, TREE_HEIGHT_MAX = 8 };

struct tree_store {
    /* The node at `ptr`, verified against ptr->crc (seeded with the address) by the callee; a new
     * reference. May park. ERR_IO, ERR_CHECKSUM, ERR_DATA_LOSS. */
    int (*read)(struct tree_store *store, const struct tree_ptr_phys *ptr, struct buf **ret_node);
    /* Whether read() would return without I/O. */
    bool (*is_cached)(struct tree_store *store, const struct tree_ptr_phys *ptr);
    /* Gives a finished node an address and takes a reference to it; fills in ret_ptr, crc included.
     * The node is readable at once. May park (flow control). ERR_NO_SPACE. */
    int (*write)(struct tree_store *store, struct buf *node, struct tree_ptr_phys *ret_ptr);
    /* The node is not part of the new root any more (to be freed when that is committed). */
    void (*free)(struct tree_store *store, const struct tree_ptr_phys *ptr);
    /* These nodes will be read soon, in this order (addresses as they stand in the node above: not
     * yet validated). A hint: may be NULL, must not park, may do nothing. Comes from merges that
     * read most leaves, and from walks. */
    void (*prefetch)(struct tree_store *store, const struct tree_ptr_phys *ptrs, uint32_t count);
    uint32_t node_bytes; /* ≥ 512 */
};

/* Items as callers see them. For extents the value is struct tree_extent; for the map, opaque. */
struct tree_extent {
    uint64_t vba;
    uint32_t crc; /* crc32c of the block, seeded with its vba */
    uint32_t reserved;
};

enum tree_kind { TREE_EXTENTS = 1, TREE_MAP = 2 }; /* on disk, in each node */

struct tree {
    struct tree_root_phys root;
    enum tree_kind kind;
    uint32_t value_bytes; /* as unpacked: sizeof(struct tree_extent) for TREE_EXTENTS */
    uint64_t owner;       /* volume id, or 0: stored in each node and checked */
    struct tree_store *store;
};

/* ---- reading ---- */

/* Calls visit(ctx, key, value) for each item in [key, key + count), in order, levels merged. A
 * non-zero return of visit ends the walk and is returned. Nodes are pinned while visited.
 * Fast when all nodes are cached: no parking, no allocation. */
HF_MUST_CHECK int tree_range(struct tree *tree, uint64_t key, uint64_t count,
                             int (*visit)(void *ctx, uint64_t key, const void *value), void *ctx);

/* The same for one key, reading no more levels than it must: the newest one that has it. For trees
 * with damaged levels. */
HF_MUST_CHECK int tree_find(struct tree *tree, uint64_t key,
                            int (*visit)(void *ctx, uint64_t key, const void *value), void *ctx);

/* ---- merging ---- */

enum tree_op_kind { TREE_PUT, TREE_DELETE };

struct tree_op {
    enum tree_op_kind kind;
    uint64_t key;
    uint64_t count;    /* delete: the range [key, key + count); put: 1 */
    const void *value; /* put: value_bytes, valid until the next call of next() */
};

struct tree_batch {
    /* The next operation in ascending key order without overlap; false at the end. Must not park.
     */
    bool (*next)(void *ctx, struct tree_op *ret_op);
    /* Every item that is replaced or deleted by the merge (of the base and of deltas), once, in no
     * order that means anything. Must not park. May be NULL. */
    void (*freed)(void *ctx, uint64_t key, const void *value);
    void *ctx;
    uint64_t put_count; /* how many puts will come, about: for the choice of strategy */
    bool delta_allowed; /* false: always merge into the base (also folds all deltas) */
    /* One more delta run, whatever it costs later: no other level is read (but the newest run, if
     * there are as many as there may be). For trees with damaged levels. ERR_LIMIT: wants too many
     * tombstones. */
    bool on_top;
};

/* Builds the new root in *ret_root; tree->root is unchanged (the caller installs it when its
 * checkpoint commits). On failure nothing is freed, but nodes may have been written: the caller
 * forgets them. */
HF_MUST_CHECK int tree_merge(struct tree *tree, const struct tree_batch *batch,
                             struct tree_root_phys *ret_root);

struct tree_put {
    uint64_t key;
    struct tree_extent value;
};

/* Gives items of a tree of extents that are there other values: `puts` in ascending order of key.
 * They end up in the base, whichever levels they were in; all other items stay where they are. So
 * what changes are the leaves that hold these items, and nothing stays allocated until a later
 * merge. Rules as for tree_merge(). */
HF_MUST_CHECK int tree_replace(struct tree *tree, const struct tree_put *puts, uint64_t count,
                               void (*freed)(void *ctx, uint64_t key, const void *value), void *ctx,
                               struct tree_root_phys *ret_root);

/* Writes every node for which `must_move` returns true, and its ancestors, again at new addresses
 * (the cleaner, for physically addressed trees). */
HF_MUST_CHECK int tree_rewrite(struct tree *tree,
                               bool (*must_move)(void *ctx, const struct tree_ptr_phys *ptr),
                               void *ctx, struct tree_root_phys *ret_root);

/* ---- checking ---- */

/* Reads every node of every level, validates structure, order, bounds and counts, and calls
 * node(ctx, ptr, height) and item(ctx, key, value) (either may be NULL) for all that is allocated:
 * items that a newer level hides too, tombstones not. Goes on after a bad node: bad(ctx, ptr,
 * error). Returns the first error. */
struct tree_walk {
    void (*node)(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height);
    void (*item)(void *ctx, uint64_t key, const void *value);
    void (*bad)(void *ctx, const struct tree_ptr_phys *ptr, int error);
    void *ctx;
};
HF_MUST_CHECK int tree_walk(struct tree *tree, const struct tree_walk *walk);

/* Validates one node's bytes as read from disk, aligned to 8 (fuzz target). OK, ERR_CORRUPT,
 * ERR_UNSUPPORTED. */
HF_MUST_CHECK int tree_node_validate(const void *node, uint32_t node_bytes, enum tree_kind kind,
                                     uint64_t owner);

#endif
