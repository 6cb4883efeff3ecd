// SPDX-License-Identifier: MPL-2.0
/* Where things lie on a disk, in blocks of 4096 bytes:
 *
 *   0            label
 *   4, 8         superblock slots 0 and 1 (4 blocks each)
 *   16           log ring, ring_blocks
 *   chunk_start  chunks of chunk_blocks
 *   end - 12     superblock slots 2 and 3 (at end - 12 and end - 8)
 *   end - 1      copy of the label
 */
#ifndef HOLDFAST_FORMAT_LAYOUT_H
#define HOLDFAST_FORMAT_LAYOUT_H

#include "format/phys.h"

enum {
    LABEL_BLOCK = 0,
    SUPER_BLOCKS = 4,
    SUPER_BYTES = SUPER_BLOCKS * BLOCK_BYTES,
    SUPER_SLOTS = 4,
    RING_START = 16,
    TAIL_BLOCKS = 12,
    POOL_DISKS_MAX = 64,
    POOL_NAME_MAX = 63,
};

/* Every counter on disk ends here (docs/FORMAT.md, "How long the counters last"): readers refuse
 * what lies behind, writers stop before. The mount generation is the upper half of others. */
#define COUNTER_END (1ull << 63)
#define GENERATION_END (1ull << 31)

/* Pool parameters, fixed at creation and the same on every disk. */
struct geometry {
    uint32_t chunk_blocks; /* 4096..16384 on real pools; down to 32 in simulation */
    uint32_t ring_blocks;  /* ≥ 64 */
    uint32_t row_blocks;   /* h: most blocks of one row in one column, 1..64 */
    uint32_t node_blocks;  /* of a tree node: 1, 2 or 4 */
};

static inline uint64_t layout_chunk_start(const struct geometry *g) {
    return RING_START + (uint64_t)g->ring_blocks;
}

static inline uint32_t layout_chunk_count(const struct geometry *g, uint64_t disk_blocks) {
    uint64_t fixed = layout_chunk_start(g) + TAIL_BLOCKS;
    return disk_blocks <= fixed ? 0 : (uint32_t)((disk_blocks - fixed) / g->chunk_blocks);
}

static inline uint64_t layout_chunk_block(const struct geometry *g, uint32_t chunk) {
    return layout_chunk_start(g) + (uint64_t)chunk * g->chunk_blocks;
}

static inline uint64_t layout_super_block(uint32_t slot, uint64_t disk_blocks) {
    return slot < 2 ? 4 + 4 * (uint64_t)slot : disk_blocks - TAIL_BLOCKS + 4 * ((uint64_t)slot - 2);
}

#endif
