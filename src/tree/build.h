// SPDX-License-Identifier: MPL-2.0
/* The output of a merge: one level of a new tree, built from the bottom up while items and whole
 * old subtrees arrive in key order.
 *
 * There is a queue for every height. Queue 0 takes items, queue h entries for nodes of height
 * h - 1. What is in a queue is cut into nodes as it comes, as full as they get; the first is
 * written when three are complete. So two complete nodes and a part of a third are held back, and
 * whoever empties the queue can still spread them evenly.
 *
 * An old subtree is kept as it is (build_keep) only between nodes: the queues up to its height
 * must be emptied first. They may be if the nodes that come of it are at least two thirds full
 * together; if not, the caller opens the subtree and passes on its parts, so that small neighbours
 * are joined. As two complete nodes and anything are two thirds of three, that never needs more
 * than a few neighbours. What is left at the right end may be smaller, and it is not spread: a
 * tree that only grows at the end leaves full nodes behind. */
#ifndef HOLDFAST_TREE_BUILD_H
#define HOLDFAST_TREE_BUILD_H

#include "tree/node.h"

enum { BUILD_CUTS = 3 };

struct build_queue {
    uint8_t *items; /* item_bytes each, the key first; allocated when first used */
    uint32_t item_bytes;
    uint32_t room, head, count; /* in items */
    uint32_t cut[BUILD_CUTS];   /* how many items each complete node takes */
    uint32_t cuts;
    struct packing open; /* the items after those */
    uint32_t fixed_room; /* items a node, where all have the same size; else 0 */
};

struct build {
    struct tree_store *store;
    struct node_shape shape;
    uint64_t nodes_written;
    struct build_queue queue[TREE_HEIGHT_MAX + 2];
};

void build_init(struct build *b, struct tree *tree, bool delta);
void build_done(struct build *b);

/* All of these park where they write. */
HF_MUST_CHECK int build_item(struct build *b, uint64_t key, const void *value);
HF_MUST_CHECK int build_tombstone(struct build *b, uint64_t key);
/* The items of a leaf from `pos` to before `end_key`; moves pos. */
HF_MUST_CHECK int build_items(struct build *b, const struct node_view *leaf, struct node_pos *pos,
                              uint64_t end_key);
/* Whether the queues of the heights up to `height` are empty, after writing what they hold if that
 * makes decent nodes. */
HF_MUST_CHECK int build_settle(struct build *b, uint32_t height, bool *ret_empty);
/* Whether they are empty as it is. */
bool build_is_empty(const struct build *b, uint32_t height);
/* Passes on a node of `height` that exists already. The queues up to `height` are empty. */
HF_MUST_CHECK int build_keep(struct build *b, uint32_t height, uint64_t key, uint64_t end_key,
                             const struct tree_ptr_phys *ptr);
/* Writes a leaf that was made elsewhere. Queue 0 is empty. */
HF_MUST_CHECK int build_leaf(struct build *b, struct buf *node);
/* Forgets all `count` entries of the queue of `height`. */
void build_forget(struct build *b, uint32_t height, uint32_t count);
/* Writes what is left. ret_level: root, height, present. */
HF_MUST_CHECK int build_finish(struct build *b, struct tree_level_phys *ret_level);

#endif
