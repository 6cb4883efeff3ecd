// SPDX-License-Identifier: MPL-2.0
/* The overlay's interval map: see overlay.h. */
#include "volume/overlay.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"

enum { LEAF_EXTENTS = 64 };

struct overlay_leaf {
    uint32_t count;
    struct overlay_extent e[LEAF_EXTENTS];
};

void overlay_init(struct overlay *o) {
    *o = (struct overlay){0};
}

bool overlay_is_empty(const struct overlay *o) {
    return o->extent_count == 0;
}

static void extent_ref(const struct overlay_extent *e) {
    if (e->kind == OVERLAY_DATA) {
        (void)buf_ref(e->buf);
    } else if (e->kind == OVERLAY_REF) {
        (void)placed_row_ref(e->row);
    }
}

static void extent_unref(const struct overlay_extent *e) {
    if (e->kind == OVERLAY_DATA) {
        buf_unref(e->buf);
    } else if (e->kind == OVERLAY_REF) {
        placed_row_unref(e->row);
    }
}

/* Before an extent changes (-1), and when it has (1). */
static void count(struct overlay *o, const struct overlay_extent *e, int sign) {
    o->data_blocks += (uint64_t)sign * (e->kind == OVERLAY_HOLE ? 0 : e->count);
    o->unplaced_blocks += (uint64_t)sign * (e->kind == OVERLAY_DATA ? e->count : 0);
}

void overlay_clear(struct overlay *o) {
    for (uint32_t l = 0; l < o->leaf_count; l++) {
        for (uint32_t i = 0; i < o->leaves[l]->count; i++) {
            extent_unref(&o->leaves[l]->e[i]);
        }
        mem_free(o->leaves[l]);
    }
    mem_free(o->leaves);
    overlay_init(o);
}

static uint64_t extent_end(const struct overlay_extent *e) {
    return e->start + e->count;
}

/* The first position whose extent ends behind `block`; one past the last leaf's end otherwise. */
static struct overlay_cursor position_find(const struct overlay *o, uint64_t block) {
    uint32_t lo = 0, hi = o->leaf_count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const struct overlay_leaf *leaf = o->leaves[mid];
        if (extent_end(&leaf->e[leaf->count - 1]) > block) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    struct overlay_cursor c = {.leaf = lo};
    if (lo == o->leaf_count) {
        return c;
    }
    const struct overlay_leaf *leaf = o->leaves[lo];
    uint32_t a = 0, b = leaf->count;
    while (a < b) {
        uint32_t mid = (a + b) / 2;
        if (extent_end(&leaf->e[mid]) > block) {
            b = mid;
        } else {
            a = mid + 1;
        }
    }
    c.at = a;
    return c;
}

const struct overlay_extent *overlay_next(const struct overlay *o, struct overlay_cursor *cursor) {
    if (cursor->leaf >= o->leaf_count) {
        return NULL;
    }
    const struct overlay_leaf *leaf = o->leaves[cursor->leaf];
    const struct overlay_extent *e = &leaf->e[cursor->at];
    if (++cursor->at == leaf->count) {
        cursor->leaf++;
        cursor->at = 0;
    }
    return e;
}

const struct overlay_extent *overlay_find(const struct overlay *o, uint64_t block) {
    struct overlay_cursor c = position_find(o, block);
    return overlay_next(o, &c);
}

static void leaf_insert_at(struct overlay *o, uint32_t at, struct overlay_leaf *leaf) {
    if (o->leaf_count == o->leaf_room) {
        o->leaf_room = MAX(16u, o->leaf_room * 2);
        o->leaves = mem_realloc(o->leaves, o->leaf_room * sizeof(*o->leaves));
    }
    memmove(&o->leaves[at + 1], &o->leaves[at], (o->leaf_count - at) * sizeof(*o->leaves));
    o->leaves[at] = leaf;
    o->leaf_count++;
}

/* Inserts `e` (its reference is the caller's gift) at `c`, which must be its place in order. */
static void extent_insert(struct overlay *o, struct overlay_cursor c,
                          const struct overlay_extent *e) {
    if (c.leaf == o->leaf_count) {
        if (c.leaf > 0) { /* append to the last leaf */
            c = (struct overlay_cursor){.leaf = c.leaf - 1, .at = o->leaves[c.leaf - 1]->count};
        } else {
            leaf_insert_at(o, 0, MEM_NEW(struct overlay_leaf));
        }
    }
    struct overlay_leaf *leaf = o->leaves[c.leaf];
    if (leaf->count == LEAF_EXTENTS) {
        /* Appending (sequential writes) leaves full leaves behind, else an even split. */
        bool append = c.leaf + 1 == o->leaf_count && c.at == LEAF_EXTENTS;
        uint32_t keep = append ? LEAF_EXTENTS : LEAF_EXTENTS / 2;
        struct overlay_leaf *next = MEM_NEW(struct overlay_leaf);
        next->count = LEAF_EXTENTS - keep;
        memcpy(next->e, &leaf->e[keep], next->count * sizeof(*e));
        leaf->count = keep;
        leaf_insert_at(o, c.leaf + 1, next);
        if (c.at > keep || append) {
            c = (struct overlay_cursor){.leaf = c.leaf + 1, .at = c.at - keep};
            leaf = next;
        }
    }
    memmove(&leaf->e[c.at + 1], &leaf->e[c.at], (leaf->count - c.at) * sizeof(*e));
    leaf->e[c.at] = *e;
    leaf->count++;
    o->extent_count++;
    count(o, e, 1);
}

static void extent_remove(struct overlay *o, struct overlay_cursor c) {
    struct overlay_leaf *leaf = o->leaves[c.leaf];
    count(o, &leaf->e[c.at], -1);
    o->extent_count--;
    extent_unref(&leaf->e[c.at]);
    leaf->count--;
    memmove(&leaf->e[c.at], &leaf->e[c.at + 1], (leaf->count - c.at) * sizeof(leaf->e[0]));
    if (leaf->count == 0) {
        mem_free(leaf);
        o->leaf_count--;
        memmove(&o->leaves[c.leaf], &o->leaves[c.leaf + 1],
                (o->leaf_count - c.leaf) * sizeof(*o->leaves));
    }
}

/* Cuts the first `blocks` off. */
static void extent_trim_front(struct overlay_extent *e, uint64_t blocks) {
    e->start += blocks;
    e->count -= blocks;
    if (e->kind == OVERLAY_DATA) {
        e->offset += blocks * BLOCK_BYTES;
    } else if (e->kind == OVERLAY_REF) {
        e->index += (uint32_t)blocks;
    }
}

static void range_clear(struct overlay *o, uint64_t start, uint64_t end) {
    for (;;) {
        struct overlay_cursor c = position_find(o, start);
        if (c.leaf == o->leaf_count || o->leaves[c.leaf]->e[c.at].start >= end) {
            return;
        }
        struct overlay_extent *e = &o->leaves[c.leaf]->e[c.at];
        if (e->start >= start && extent_end(e) <= end) {
            extent_remove(o, c);
        } else if (e->start < start) {
            struct overlay_extent tail = *e;
            uint64_t old_end = extent_end(e);
            count(o, e, -1);
            e->count = start - e->start;
            count(o, e, 1);
            if (old_end > end) {
                extent_trim_front(&tail, end - tail.start);
                extent_ref(&tail);
                extent_insert(o, position_find(o, end), &tail);
                return;
            }
        } else {
            count(o, e, -1);
            extent_trim_front(e, end - e->start);
            count(o, e, 1);
            return;
        }
    }
}

void overlay_set(struct overlay *o, const struct overlay_extent *extent) {
    ASSERT_LT(0, extent->count);
    extent_ref(extent);
    struct overlay_cursor c = position_find(o, extent->start);
    if (c.leaf < o->leaf_count) {
        struct overlay_extent *old = &o->leaves[c.leaf]->e[c.at];
        if (old->start == extent->start && old->count == extent->count) { /* the common overwrite */
            count(o, old, -1);
            extent_unref(old);
            *old = *extent;
            count(o, old, 1);
            return;
        }
        if (old->start < extent_end(extent)) {
            range_clear(o, extent->start, extent_end(extent));
            c = position_find(o, extent->start);
        }
    }
    extent_insert(o, c, extent);
}
