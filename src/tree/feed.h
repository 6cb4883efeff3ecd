// SPDX-License-Identifier: MPL-2.0
/* What goes into a merge: the operations of a batch, over the items of the newest few delta runs
 * of the tree, which are consumed. One stream of operations in key order without overlap, in which
 * a newer one has already replaced the older ones of the same key: what was replaced is reported
 * freed here, once. */
#ifndef HOLDFAST_TREE_FEED_H
#define HOLDFAST_TREE_FEED_H

#include "tree/cursor.h"

struct feed {
    const struct tree_batch *batch;
    /* The current operation. */
    bool valid;
    enum tree_op_kind kind;
    uint64_t key, end; /* put: end = key + 1 */
    const void *value;
    /* Where it comes from: a run's cursor, or NULL for the batch. */
    struct cursor *source;
    bool batch_valid;
    struct tree_op batch_op;
    uint64_t batch_end;   /* of batch_op */
    uint64_t batch_floor; /* the next one begins here or later */
    uint32_t runs;
    struct cursor run[TREE_LEVELS_MAX];
};

/* Over the first `runs` levels of `root`, which are delta runs. On the first operation when it
 * returns. */
HF_MUST_CHECK int feed_start(struct feed *f, struct tree *tree, const struct tree_root_phys *root,
                             uint32_t runs, const struct tree_batch *batch);
HF_MUST_CHECK int feed_next(struct feed *f);
/* Does with the current operation, a delete, up to `key`: goes on to its rest, or to the next. */
HF_MUST_CHECK int feed_skip_to(struct feed *f, uint64_t key);
void feed_stop(struct feed *f);

#endif
