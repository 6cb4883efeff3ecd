// SPDX-License-Identifier: MPL-2.0
/* Merging a stream of operations into one level: see merge.c. */
#ifndef HOLDFAST_TREE_MERGE_H
#define HOLDFAST_TREE_MERGE_H

#include "tree/feed.h"

/* Key ranges [key, end), ascending. */
struct merge_ranges {
    struct merge_range {
        uint64_t key, end;
    } * range;
    uint32_t count, room;
};

struct merge_options {
    bool delta; /* the level is a delta run: keeps its tombstones; deletes only */
    bool dense; /* most of its nodes will be read */
};

/* Applies all operations of the feed to `level` and writes what changes. */
HF_MUST_CHECK int merge_level(struct tree *tree, struct feed *feed,
                              const struct tree_level_phys *level,
                              const struct merge_options *options,
                              struct tree_level_phys *ret_level);

/* Writes the operations of the feed as a new delta run. A deleted range becomes tombstones, key by
 * key; one of more than `wide_keys` keys is instead added to `wide` (its array is the caller's to
 * free), to be applied to the older levels. NULL: none is too wide, but `wide_keys` is the most
 * that may be deleted in all, else ERR_LIMIT. */
HF_MUST_CHECK int merge_run(struct tree *tree, struct feed *feed, uint64_t wide_keys,
                            struct merge_ranges *wide, struct tree_level_phys *ret_level);

#endif
