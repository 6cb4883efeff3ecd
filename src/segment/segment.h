// SPDX-License-Identifier: MPL-2.0
/* Segments: which chunks of which disks belong together, and how much of them is used and live.
 *
 * A segment is W chunks on W different disks (invariant 12). It is filled from the front, row by
 * row, in one mount only (invariant 6), and never overwritten. Data segments hold rows (row.h);
 * metadata segments hold the pool's own structures, `copies` times, and are addressed physically.
 *
 * The table is resident. On disk it is pages of segment_phys, written at each checkpoint; free
 * chunks are derived from it. Life of a segment:
 *
 *     open --(full, a disk expelled, the mount ends)--> sealed --(live = 0)--> freeing --> gone
 *
 * `freeing` means: absent from the table of the checkpoint being written. Its chunks return when
 * that checkpoint has committed, no reader pins the segment, no I/O is outstanding on it, and the
 * disks have been told (discard): invariant 8.
 *
 * live counts data blocks that some root references (invariant 11; kept by the map). pending counts
 * rows that only the log references yet. Both must be zero before a segment goes.
 *
 * Owned by the engine thread. Nothing here parks. */
#ifndef HOLDFAST_SEGMENT_SEGMENT_H
#define HOLDFAST_SEGMENT_SEGMENT_H

#include <stdbool.h>

#include "base/list.h"
#include "format/profile.h"
#include "pool/pool.h"

enum segment_kind { SEGMENT_DATA = 1, SEGMENT_META = 2 }; /* on disk */
enum segment_state { SEGMENT_GONE = 0, SEGMENT_OPEN = 1, SEGMENT_SEALED = 2, SEGMENT_FREEING = 3 };

struct segment_column_phys {
    uint16_t disk; /* member */
    uint16_t reserved;
    uint32_t chunk;
};

struct segment_phys {
    uint64_t uid; /* never reused; 0: empty slot */
    uint8_t kind, state, profile, copies;
    uint8_t data, parity;
    uint8_t degraded; /* was opened with fewer disks than its profile wants */
    uint8_t reserved0;
    uint32_t used_blocks; /* rows fill [0, used) of each column; not kept for metadata */
    uint32_t live_blocks; /* not kept for metadata: derived at import */
    uint32_t lost;        /* bit c: column c does not hold what it should */
    uint32_t reserved1;
    struct segment_column_phys column[SEGMENT_COLUMNS_MAX];
    uint8_t reserved2[32];
};
_Static_assert(sizeof(struct segment_phys) == 256, "on disk");

struct segment {
    uint32_t slot;
    uint64_t uid;
    enum segment_kind kind;
    enum segment_state state;
    enum profile profile;
    struct shape shape;
    bool degraded;
    uint32_t used_blocks; /* of each column */
    uint32_t live_blocks;
    uint32_t lost;      /* column mask */
    uint32_t pending;   /* rows only the log knows; and rows being written */
    uint32_t pins;      /* reads under way */
    uint64_t ref_round; /* checkpoint that was running, or the last, when a REF to it was logged */
    uint32_t unflushed; /* column mask: written since the disk's last flush */
    bool encoded;       /* in a table page that was written (perhaps not committed yet) */
    bool announced;     /* a log record or a committed table knows it */
    bool unmovable;     /* the cleaner could not read all of it */
    bool emptied;       /* metadata: what is live in it is being written elsewhere */
    bool uncopyable;    /* not all of a row of it can be had, dead blocks included */
    bool relocating;    /* a column of it is being written elsewhere (engine/rebuild.c) */
    struct segment_column_phys column[SEGMENT_COLUMNS_MAX];
    struct list runs; /* map runs that live here */
    uint32_t run_count;
    uint64_t birth_sum; /* of their numbers, modulo 2^64: how old its content is */
    struct list freeing_link;
};

struct segment_table {
    struct pool *pool;
    struct segment **slots; /* NULL: empty */
    uint32_t slot_count;    /* multiple of a page's */
    uint32_t slots_per_page;
    uint32_t page_count;
    uint32_t pages_committed;
    uint32_t slots_most; /* as many segments as there are chunks, or were when the pages that are
                            committed were made; at most 2^24 */
    bool
        *slot_taken; /* by a segment, or by one that is freeing: the committed table still has it */
    bool *page_dirty;
    uint64_t uid_next;
    uint8_t *chunk_used[POOL_DISKS_MAX]; /* a byte a chunk: 0 free, 1 in use, 2 returning */
    uint32_t chunk_free[POOL_DISKS_MAX];
    uint32_t chunk_count[POOL_DISKS_MAX];
    uint32_t chunk_hint[POOL_DISKS_MAX]; /* none below is free */
    struct list freeing;
    uint64_t changes;   /* counts chunks taken and returned */
    uint64_t late_rows; /* that were written elsewhere, because a column was late */
    /* Whether all that is to be written has room without the members of that mask; the engine's.
     * NULL: it has not. */
    bool (*fits_without)(const struct segment_table *table, uint64_t members);
    uint32_t density[SEGMENT_COLUMNS_MAX + 1]; /* row_density(), by data columns */
};

void segment_table_init(struct segment_table *table, struct pool *pool);
void segment_table_done(struct segment_table *table);

/* One page's worth of slots to and from its bytes (node_blocks blocks). Decoding validates: ranges,
 * distinct disks, no chunk in two segments (invariant 11). ERR_CORRUPT, ERR_CHECKSUM. */
enum { SEGMENT_PAGE_HEADER_BYTES = 64 }; /* in front of a page's entries */
uint32_t segment_page_bytes(const struct segment_table *table);
void segment_page_encode(const struct segment_table *table, uint32_t page, void *ret_bytes);
HF_MUST_CHECK int segment_page_decode(struct segment_table *table, uint32_t page,
                                      const void *bytes);
void segment_mark_dirty(struct segment_table *table, const struct segment *s);

/* Disks that are to be avoided (disk.h) get no new segments, where there are others for as much
 * protection, and those have room for all that is to be written (fits_without).
 *
 * Opens a segment on the disks with most room. ERR_NO_SPACE: fewer disks with a free chunk than the
 * profile's protection needs. keep_free: chunks that must stay free on each disk used. */
HF_MUST_CHECK int segment_open(struct segment_table *table, enum segment_kind kind,
                               enum profile profile, struct shape shape, uint32_t keep_free,
                               struct segment **ret_segment);
/* The shape a new segment of `profile` would get now that survives `losses` (or as many as there
 * are disks to lose); columns 0 when there is no room for one. */
struct shape segment_shape(const struct segment_table *table, enum profile profile,
                           uint32_t keep_free, uint32_t losses);
/* Losses that even a segment made for want of anything better must survive: as many as the older
 * ones still do, now that some members are missing. */
uint32_t segment_losses_least(const struct segment_table *table, enum profile profile);
/* Brings a segment that replay announces into the table. ERR_EXISTS when it is known already. */
HF_MUST_CHECK int segment_restore(struct segment_table *table, uint32_t slot,
                                  const struct segment_phys *phys, struct segment **ret_segment);
HF_MUST_CHECK int segment_phys_validate(const struct segment_table *table,
                                        const struct segment_phys *phys);
void segment_to_phys(const struct segment *s, struct segment_phys *ret_phys);

void segment_seal(struct segment_table *table, struct segment *s);
/* It lies on a disk that is to be avoided, and a new one would not. */
bool segment_has_better(const struct segment_table *table, const struct segment *s);
/* Takes it out of the table (state FREEING); the chunks stay taken until segment_release(). */
void segment_start_freeing(struct segment_table *table, struct segment *s);
/* As if it had not begun, in the same checkpoint: something lives there after all. */
void segment_stop_freeing(struct segment_table *table, struct segment *s);
/* Gives the chunks back and frees the struct. */
void segment_release(struct segment_table *table, struct segment *s);
/* A member was expelled: seals open segments on it, marks columns lost that it may not hold. */
void segment_member_lost(struct segment_table *table, uint32_t member);

/* Columns that cannot be read now (a mask): lost, or on a disk that is not there. */
uint32_t segment_unreadable(const struct segment_table *table, const struct segment *s);
/* Members that are missing and whose loss may still be felt: something lies on them. */
uint32_t segment_members_missing(const struct segment_table *table);

/* ---- one column elsewhere ----
 *
 * What a sealed segment holds in one column may be written to another chunk, and the column then
 * moved there: by the table of the checkpoint that commits it, and in memory just before that table
 * is written. */

/* The member with most room that may take a column of `s` in place of `column`, with more than
 * `keep_free` free chunks; POOL_DISKS_MAX: none. */
uint32_t segment_column_target(const struct segment_table *table, const struct segment *s,
                               uint32_t column, uint32_t keep_free);
uint32_t segment_take_chunk(struct segment_table *table, uint32_t member); /* one must be free */
void segment_give_chunk(struct segment_table *table, uint32_t member, uint32_t chunk);
void segment_move_column(struct segment_table *table, struct segment *s, uint32_t column,
                         struct segment_column_phys to, bool lost);

/* A member was added: it has no segments yet. */
void segment_member_added(struct segment_table *table, uint32_t member);
/* A member was dropped, on which nothing lies. */
void segment_member_dropped(struct segment_table *table, uint32_t member);
bool segment_member_is_empty(const struct segment_table *table, uint32_t member);
/* So many pages are committed: readers will know them. */
void segment_pages_committed(struct segment_table *table, uint32_t pages);
/* Without the member, readers of the committed table would refuse slots that are in use. */
bool segment_member_keeps_slots(const struct segment_table *table, uint32_t member);
/* Nothing more is to be written to that member: seals open segments on it. */
void segment_member_leaves(struct segment_table *table, uint32_t member);

struct segment *segment_get(const struct segment_table *table, uint32_t slot); /* or NULL */

/* The disk behind a column when it can be read (present, in sync or holding valid old data, column
 * not lost), else NULL; and where the column's block lies. */
struct disk *segment_column_disk(const struct segment_table *table, const struct segment *s,
                                 uint32_t column);
uint64_t segment_column_block(const struct segment_table *table, const struct segment *s,
                              uint32_t column, uint32_t block);

#endif
