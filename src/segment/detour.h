// SPDX-License-Identifier: MPL-2.0
/* Detours: the content of a range of one column without asking its disk, from another copy or
 * computed from the other columns of its own. One round of reads, all at once; disks that are to be
 * avoided are not asked. Whoever needs more (a peer that lies, several columns that fail) takes the
 * long way of read.c.
 *
 * A detour lies on the stack of the fiber that takes it, and is ended or dropped there. */
#ifndef HOLDFAST_SEGMENT_DETOUR_H
#define HOLDFAST_SEGMENT_DETOUR_H

#include "env/fiber.h"
#include "segment/row.h"

struct piece { /* a contiguous part of a read, in one column */
    struct disk_io io;
    struct fiber_group *group;
};

/* Ends before the disk's own deadline, so that whoever asked is answered within that. */
void piece_submit(struct piece *p, struct fiber_group *group, struct disk *disk, uint64_t block,
                  uint32_t blocks, struct buf *buf, size_t buf_offset);

/* Gives it up, if it has not come yet: see disk_leave(). */
void piece_leave(struct piece *p);

struct detour {
    struct segment_table *table;
    struct segment *s;
    uint32_t column;       /* of copy 0: what is wanted */
    uint32_t block, count; /* its range, in blocks of the chunk */
    bool from_copy;        /* one read from another copy; else each column of copy 0 … */
    uint32_t unread;       /* … but these (mask) */
    uint32_t lost;         /* columns that could not be asked */
    struct fiber_group *group;
    struct buf *buf; /* a range for each column; where the wanted one is in the end */
    struct piece piece[SEGMENT_COLUMNS_MAX]; /* by column of the copy */
    bool asked[SEGMENT_COLUMNS_MAX];
};

/* Begins the reads, in `group`. `avoid`: columns of copy 0 not to be asked, `column` apart. False:
 * there is no way around. */
bool detour_begin(struct detour *d, struct segment_table *table, struct segment *s, uint32_t column,
                  uint32_t block, uint32_t count, uint32_t avoid, struct fiber_group *group);
/* All has come: computes what was wanted, and returns it (valid until the drop); NULL: it did not
 * come, or is not what the checks (may be NULL: nobody knows) ask for. */
const uint8_t *detour_end(struct detour *d, const struct row_check *checks);
/* Gives up what has not come, and frees. */
void detour_drop(struct detour *d);

#endif
