// SPDX-License-Identifier: MPL-2.0
/* One layer of a volume's overlay: what was written since a cut, as an interval map from block of
 * the volume to where its content is. Later entries replace what they overlap; nothing is looked up
 * below. A layer takes writes until a checkpoint freezes it; then it is read only until the
 * checkpoint has committed its content, and is dropped.
 *
 * A two-level sorted array: leaves of up to 64 extents under one array of leaves. An insert costs a
 * binary search in each and a short move.
 *
 * Owned by the engine thread. */
#ifndef HOLDFAST_VOLUME_OVERLAY_H
#define HOLDFAST_VOLUME_OVERLAY_H

#include <stdbool.h>

#include "base/buf.h"
#include "segment/row.h"

enum overlay_kind {
    OVERLAY_DATA, /* block i of the extent is at buf->data + offset + i × 4096 */
    OVERLAY_REF,  /* … is block index + i of a placed row */
    OVERLAY_HOLE, /* reads as zero */
};

struct overlay_extent {
    uint64_t start; /* block of the volume */
    uint64_t count;
    enum overlay_kind kind;
    uint32_t index; /* REF */
    union {
        struct buf *buf;        /* DATA: the layer holds a reference */
        struct placed_row *row; /* REF: likewise */
    };
    uint64_t offset; /* DATA: bytes */
};

struct overlay {
    struct overlay_leaf **leaves;
    uint32_t leaf_count, leaf_room;
    uint64_t extent_count;
    uint64_t data_blocks;     /* in DATA and REF extents */
    uint64_t unplaced_blocks; /* in DATA extents: they are in no row yet */
};

void overlay_init(struct overlay *o);
void overlay_clear(struct overlay *o); /* drops all extents and their references */
bool overlay_is_empty(const struct overlay *o);

/* Replaces [start, start + count). Takes a new reference to buf or row. */
void overlay_set(struct overlay *o, const struct overlay_extent *extent);

/* The first extent that ends behind `block`, NULL at the end. Valid until the next set. */
const struct overlay_extent *overlay_find(const struct overlay *o, uint64_t block);

/* In order: position starts at zero. */
struct overlay_cursor {
    uint32_t leaf, at;
};
const struct overlay_extent *overlay_next(const struct overlay *o, struct overlay_cursor *cursor);

#endif
