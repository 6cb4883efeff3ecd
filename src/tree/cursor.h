// SPDX-License-Identifier: MPL-2.0
/* A walk over the items of one level of a tree, in order. Holds references to the nodes of its
 * path. A cursor that *releases* tells the store, as it leaves each node, that the node is not
 * part of the tree any more: so a delta run is consumed. */
#ifndef HOLDFAST_TREE_CURSOR_H
#define HOLDFAST_TREE_CURSOR_H

#include "tree/node.h"

struct cursor_step {
    struct buf *node; /* NULL: not entered */
    struct node_view view;
    struct tree_ptr_phys ptr;
    uint32_t index; /* of the child below */
};

struct cursor {
    struct tree_store *store;
    struct node_shape shape;
    bool release;
    uint32_t height;
    uint64_t end;   /* items at or past it are not visited */
    uint64_t nodes; /* entered so far */
    struct node_pos pos;
    struct cursor_step step[TREE_HEIGHT_MAX + 1];
    /* The item it stands on. */
    bool valid;
    uint64_t key;
    const void *value;
    struct tree_extent extent;
};

/* The node, read, opened, and found to be what its parent says: at `height`, beginning at
 * *first_key (NULL: any), with nothing at or past `end_key`. */
HF_MUST_CHECK int node_read(struct tree_store *store, const struct node_shape *shape,
                            const struct tree_ptr_phys *ptr, uint32_t height,
                            const uint64_t *first_key, uint64_t end_key, struct buf **ret_node,
                            struct node_view *ret_view);

/* Tells the store which children come next, if it wants to know, some ahead of each time: to be
 * called before each child is read, in order. */
void node_announce(struct tree_store *store, const struct node_view *view, uint32_t index);

/* Stands on the first item in [key, end), if there is one. */
HF_MUST_CHECK int cursor_start(struct cursor *c, struct tree *tree,
                               const struct tree_level_phys *level, bool delta, uint64_t key,
                               uint64_t end, bool release);
HF_MUST_CHECK int cursor_next(struct cursor *c);
/* Drops its references. After any outcome of cursor_start(). */
void cursor_stop(struct cursor *c);

static inline bool cursor_is_tombstone(const struct cursor *c) {
    return c->shape.delta && c->value == &c->extent && c->extent.vba == 0;
}

#endif
