// SPDX-License-Identifier: MPL-2.0
/* The bytes of a tree node (docs/FORMAT.md, "Tree nodes").
 *
 * A node is node_bytes long: a head of 64 bytes, then arrays, then zeros. A node never says where
 * it lies, so the crc of its header is zero: what protects it is the crc in the pointer to it,
 * which is seeded with its address and covers the whole node.
 *
 *   interior       u64 first_key[count], tree_ptr_phys child[count]
 *   leaf, map      u64 key[count], value[count] of value_bytes each
 *   leaf, extents  u32 run_key[runs], u16 run_index[runs], entry[count]
 *
 * Extents are kept as runs of consecutive keys: run r begins at key first_key + run_key[r] and its
 * first entry is number run_index[r]. An entry is the vba, as vba - vba_base + 1 in vba_bytes bytes
 * (4 to 8, the least that serves the whole leaf), and the crc32c in 4; a vba field of 0 is a
 * tombstone, which only delta runs may hold. So a block costs 8 to 12 bytes, and 6 more where a
 * run begins.
 *
 * Two depths of checking. node_open() looks at the head and costs nothing; after it every access
 * made by this file stays inside the node whatever its bytes are, and what is seen to be wrong on
 * the way is ERR_CORRUPT. node_check() looks at everything. */
#ifndef HOLDFAST_TREE_NODE_H
#define HOLDFAST_TREE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tree/tree.h"

enum { NODE_VERSION = 1, NODE_FLAG_DELTA = 1, NODE_HEAD_BYTES = 64 };
enum { NODE_RUN_BYTES = 6, NODE_VBA_BYTES_MIN = 4, NODE_VBA_BYTES_MAX = 8 };

struct node_phys {
    struct header_phys header; /* length: node_bytes; crc: zero, see above */
    uint64_t owner;
    uint64_t first_key; /* the key of the first item below */
    uint64_t end_key;   /* leaf: last key + 1; interior: at least that */
    uint32_t count;     /* items or children, ≥ 1 */
    uint8_t kind;
    uint8_t height;   /* 0: leaf */
    uint8_t flags;    /* NODE_FLAG_DELTA: may hold tombstones */
    uint8_t encoding; /* 0: plain; others are not supported */
    uint32_t key_id;  /* 0: not encrypted */
    uint16_t runs;    /* leaf of extents */
    uint8_t vba_bytes;
    uint8_t value_bytes; /* leaf of the map */
    uint64_t vba_base;   /* ≤ every vba of the leaf */
};
_Static_assert(sizeof(struct node_phys) == NODE_HEAD_BYTES, "on disk");

/* What a node must be to belong to a tree. */
struct node_shape {
    enum tree_kind kind;
    uint32_t node_bytes;
    uint32_t value_bytes; /* 0: any (validation without a tree) */
    uint64_t owner;
    bool delta;
    bool any_level; /* delta or not */
};

struct node_view {
    const struct node_phys *head;
    const uint64_t *keys;                 /* interior and map */
    const struct tree_ptr_phys *children; /* interior */
    const uint8_t *values;                /* map: values; extents: entries */
    const uint32_t *run_keys;
    const uint16_t *run_index;
    uint64_t vba_mask;
    uint32_t count;
    uint32_t stride; /* of values */
    uint32_t runs;
    uint32_t bytes; /* in use */
};

/* An item of a leaf; index == count is the end. */
struct node_pos {
    uint32_t index, run;
    uint64_t key;
};

struct node_shape node_shape_of(const struct tree *tree, bool delta);

/* `node` is aligned to 8 bytes. ERR_CORRUPT, ERR_UNSUPPORTED. */
HF_MUST_CHECK int node_open(const struct node_shape *shape, const void *node,
                            struct node_view *ret_view);
/* Everything else, of an opened node. */
HF_MUST_CHECK int node_check(const struct node_shape *shape, const struct node_view *view);

static inline bool node_is_extents_leaf(const struct node_view *v) {
    return v->run_keys != NULL;
}

/* The child that covers `key`: the last one that begins at or before it, or the first. */
uint32_t node_child(const struct node_view *view, uint64_t key);

/* The first item at or after `key`. */
HF_MUST_CHECK int node_seek(const struct node_view *view, uint64_t key, struct node_pos *ret_pos);
/* Moves on by `count` items of the same run, or to its end and so to what follows. */
HF_MUST_CHECK int node_skip(const struct node_view *view, struct node_pos *pos, uint32_t count);
/* How many items have consecutive keys from `pos` on, which is not the end. */
uint32_t node_run_length(const struct node_view *view, const struct node_pos *pos);
/* The item after `pos`, which is not the end. */
HF_MUST_CHECK int node_step(const struct node_view *view, struct node_pos *pos);

/* As stored: 0 for a tombstone, else vba - vba_base + 1. */
static inline uint64_t node_vba_field(const struct node_view *v, uint32_t index) {
    uint64_t field;
    memcpy(&field, v->values + (size_t)index * v->stride, sizeof(field)); /* a stride is ≥ 8 */
    return field & v->vba_mask;
}

static inline struct tree_extent node_extent(const struct node_view *v, uint32_t index) {
    uint64_t field = node_vba_field(v, index);
    struct tree_extent e = {.vba = field == 0 ? 0 : v->head->vba_base + (field - 1)};
    memcpy(&e.crc, v->values + (size_t)(index + 1) * v->stride - sizeof(e.crc), sizeof(e.crc));
    return e;
}

/* The value of an item, in `scratch` or in the node. */
static inline const void *node_value(const struct node_view *v, uint32_t index,
                                     struct tree_extent *scratch) {
    if (!node_is_extents_leaf(v)) {
        return v->values + (size_t)index * v->stride;
    }
    *scratch = node_extent(v, index);
    return scratch;
}

/* ---- making nodes ---- */

struct extent_item {
    uint64_t key, vba; /* vba 0: a tombstone */
    uint32_t crc, reserved;
};

struct entry_item {
    uint64_t key, end_key;
    struct tree_ptr_phys ptr;
};

/* How much room extents take in one leaf: grown an item at a time. */
struct packing {
    uint32_t count, runs, vba_bytes;
    uint64_t first_key, last_key;
    uint64_t lo, hi; /* of the vbas; lo > hi when there is none */
};

static inline uint32_t packing_bytes(const struct packing *p) {
    return NODE_HEAD_BYTES + p->runs * NODE_RUN_BYTES + p->count * (p->vba_bytes + 4);
}

/* The least width for the vbas from lo to hi. */
uint32_t packing_width(uint64_t lo, uint64_t hi);

/* Adds `count` items with consecutive keys and vbas from lo to hi (lo > hi: all tombstones). False,
 * and `p` unchanged, when they do not fit in the same node. */
static inline bool packing_add(struct packing *p, uint32_t node_bytes, uint64_t key, uint32_t count,
                               uint64_t lo, uint64_t hi) {
    bool first = p->count == 0;
    uint32_t runs = p->runs + (first || key != p->last_key + 1);
    uint64_t all_lo = first || lo < p->lo ? lo : p->lo;
    uint64_t all_hi = first || hi > p->hi ? hi : p->hi;
    uint32_t vba_bytes = p->vba_bytes;
    if (first || all_lo != p->lo || all_hi != p->hi) {
        vba_bytes = packing_width(all_lo, all_hi);
    }
    uint64_t first_key = first ? key : p->first_key;
    if (NODE_HEAD_BYTES + runs * NODE_RUN_BYTES + (p->count + count) * (vba_bytes + 4) >
            node_bytes ||
        key + (count - 1) - first_key > UINT32_MAX) {
        return false;
    }
    *p = (struct packing){.count = p->count + count,
                          .runs = runs,
                          .vba_bytes = vba_bytes,
                          .first_key = first_key,
                          .last_key = key + (count - 1),
                          .lo = all_lo,
                          .hi = all_hi};
    return true;
}

/* Of one item: lo > hi for a tombstone. */
static inline bool packing_add_one(struct packing *p, uint32_t node_bytes, uint64_t key,
                                   uint64_t vba) {
    return packing_add(p, node_bytes, key, 1, vba == 0 ? UINT64_MAX : vba, vba);
}

/* Of items, whether they fit in a node or not. */
struct packing packing_of(const struct extent_item *items, uint32_t count);

/* Items of a map leaf and entries of an interior node that fit in one node. */
static inline uint32_t node_fixed_room(uint32_t node_bytes, uint32_t item_bytes) {
    return (node_bytes - NODE_HEAD_BYTES) / item_bytes;
}

/* Fill in all node_bytes at `ret_node`. The items fit (the caller has seen to that). */
void node_pack_extents(const struct node_shape *shape, const struct extent_item *items,
                       uint32_t count, void *ret_node);
/* Items of `item_bytes` each: key, then value. */
void node_pack_map(const struct node_shape *shape, const void *items, uint32_t item_bytes,
                   uint32_t count, void *ret_node);
void node_pack_interior(const struct node_shape *shape, uint32_t height,
                        const struct entry_item *items, uint32_t count, void *ret_node);

/* Replaces the value of an item of a leaf in memory, if its packing has room for it. `view` is of
 * memory that may be written. */
bool node_patch(const struct node_view *view, uint32_t index, const void *value);

#endif
