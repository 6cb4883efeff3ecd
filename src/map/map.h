// SPDX-License-Identifier: MPL-2.0
/* The map: where each virtual block is.
 *
 * vbas are handed out in aligned runs of 256, a run to a row; bits say which vbas of a run the
 * place holds (present) and which are referenced by a root (live, invariant 10). Present blocks of
 * a run lie next to each other in one row, in order; so the cleaner can move what is left of a run
 * and close the gaps, and a lookup is an index plus a count of bits. A run whose live bits are all
 * clear is dropped.
 *
 * The map is resident: a hash from run number to run, about 170 bytes a run, that is 170 MiB for
 * each TiB of rows. On disk it is a tree of the pool (key: run number), updated at each checkpoint
 * with the runs that changed.
 *
 * Owned by the engine thread. Nothing here parks. */
#ifndef HOLDFAST_MAP_MAP_H
#define HOLDFAST_MAP_MAP_H

#include "segment/row.h"

struct map_value_phys {
    uint32_t segment; /* slot */
    uint32_t offset;  /* of the row */
    uint16_t height;
    uint16_t index; /* of the first present block in the row */
    uint32_t reserved;
    uint64_t present[4], live[4];
};
_Static_assert(sizeof(struct map_value_phys) == 80, "on disk");

struct map_run {
    uint64_t number; /* vba >> RUN_SHIFT */
    struct segment *segment;
    struct list in_segment;
    struct list in_dirty; /* alone: clean */
    uint32_t offset;
    uint16_t height, index;
    uint16_t live_count;
    bool in_tree;
    struct map_dying *dying; /* which live bits a merge under way will clear; NULL: none */
    uint64_t present[4], live[4];
};

struct map {
    struct segment_table *table;
    struct map_run **buckets;
    uint64_t bucket_count; /* a power of two; open addressing */
    uint64_t run_count;
    struct list dirty;
    uint64_t dirty_count;
    uint64_t live_blocks;
    struct list dying;
};

void map_init(struct map *map, struct segment_table *table);
void map_done(struct map *map);
uint64_t map_memory_bytes(const struct map *map);

/* False: no run holds this vba, or it does not hold it any more. */
bool map_lookup(const struct map *map, uint64_t vba, struct row_place *ret_place);
bool map_is_live(const struct map *map, uint64_t vba);

/* A new run for a row: present = the first `blocks` vbas of the run of `vba`; none live yet. */
struct map_run *map_add(struct map *map, uint64_t vba, struct segment *segment, uint32_t offset,
                        uint32_t height, uint32_t index, uint32_t blocks);
struct map_run *map_find(const struct map *map, uint64_t number);

/* Sets or clears the live bit; the run must hold the vba, and the bit must change (invariant 10).
 */
void map_set_live(struct map *map, uint64_t vba);
void map_clear_live(struct map *map, uint64_t vba);

/* Clearing many live bits, all or none: marks one to be cleared; clears, or forgets, those of one
 * run, false when there is no more. A bit is marked once, and not cleared meanwhile. */
void map_free_later(struct map *map, uint64_t vba);
bool map_free_now(struct map *map);
bool map_free_never(struct map *map);

/* The cleaner: what is live of the run is now at (segment, offset, height, index); present = live
 * as given in `moved` (a bit cleared from live since then stays present). */
void map_move(struct map *map, struct map_run *run, const uint64_t moved[4],
              struct segment *segment, uint32_t offset, uint32_t height, uint32_t index);

/* Forgets a run without live blocks (after its removal from the tree was prepared). */
void map_drop(struct map *map, struct map_run *run);

void map_value_encode(const struct map_run *run, struct map_value_phys *ret_value);
/* Adds a run read from the tree; validates it against the segment table. ERR_CORRUPT. */
HF_MUST_CHECK int map_load(struct map *map, uint64_t number, const struct map_value_phys *value);

/* The dirty runs in ascending order of number; the array is the caller's (mem_free). Marks all of
 * them clean. */
struct map_run **map_take_dirty(struct map *map, uint64_t *ret_count);

#endif
