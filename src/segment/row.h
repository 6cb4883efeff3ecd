// SPDX-License-Identifier: MPL-2.0
/* Rows: how data lies in a data segment.
 *
 * A row is the same range [offset, offset + height) in each column of a segment. Its blocks are
 * numbered column after column: block j lies in data column j / height, at offset + j % height.
 * The first header_blocks blocks are the header: which vbas the row holds, whose they are, and a
 * checksum of each block. Parity is column-wise, byte by byte, so any range of a column can be
 * computed from the same range of the others. A row is complete on every column before anything
 * refers to it (invariant 5), and is never written again except by equal bytes (invariant 7).
 *
 * A row holds at most ROW_DATA_MAX blocks of data. A new row holds one run of consecutive vbas; a
 * row written by the cleaner holds what survived of several runs.
 *
 * Owned by the engine thread. Functions marked "fiber" park. */
#ifndef HOLDFAST_SEGMENT_ROW_H
#define HOLDFAST_SEGMENT_ROW_H

#include "base/buf.h"
#include "segment/segment.h"

enum {
    RUN_BLOCKS = 256,
    RUN_SHIFT = 8,
    ROW_DATA_MAX = RUN_BLOCKS,
    ROW_HEADER_MAX = 3,
    ROW_TOTAL_MAX = ROW_DATA_MAX + ROW_HEADER_MAX, /* from the header to the last block of data */
};

enum row_owner_kind { ROW_OWNER_DATA = 1, ROW_OWNER_NODE = 2 }; /* on disk */

struct row_run_phys {
    uint64_t vba;    /* of the first block */
    uint64_t offset; /* block of the volume (data), 0 (nodes): where it was when written */
    uint64_t inode;  /* 0: the volume's only file */
    uint32_t volume;
    uint16_t count;
    uint16_t kind; /* enum row_owner_kind */
};
_Static_assert(sizeof(struct row_run_phys) == 32, "on disk");

struct row_phys {
    struct header_phys header; /* length: with runs[] and crc[]; seed: segment uid ^ offset << 40 */
    uint64_t uid;              /* of the segment */
    uint64_t generation;       /* mount that wrote it */
    uint32_t offset, height;   /* blocks */
    uint32_t blocks;           /* of data, header not counted */
    uint32_t header_blocks;
    uint32_t runs;
    uint32_t reserved;
    uint64_t reserved2;
    /* struct row_run_phys run[runs]; uint32_t crc[blocks]; */
};
_Static_assert(sizeof(struct row_phys) == 64, "on disk");

/* A row as it is built and written. */
struct row {
    struct segment_table *table;
    struct segment *segment;
    uint32_t offset, height, header_blocks, blocks;
    uint32_t run_count;
    struct buf *buf; /* data columns, then parity columns */
    struct row_run_phys *runs;
    uint32_t *crc; /* of each data block; by the caller, before row_finish() */
    uint64_t *vba; /* of each data block */
    uint64_t generation;
    uint32_t late_moves; /* how often a column was late: it is not moved for that for ever */
};

/* Most data blocks of a new row in what is left of `s`, when the header must describe one run, or
 * at worst a run a block. `movable`: no more than row_move() can place in any other segment,
 * however narrow; for those who cannot do without the row. 0: full. */
uint32_t row_capacity(const struct segment_table *table, const struct segment *s, bool many_runs,
                      bool movable);

/* Of what rows occupy in segments of so many data columns, how much is data, in 1/1024, when they
 * are packed at worst. The rest is headers, padding, and the ends of chunks. */
uint32_t row_density(const struct segment_table *table, uint32_t data_columns);
/* Whether a row with so many blocks, at worst a run each, fits into an empty segment. */
bool row_fits(const struct segment_table *table, struct shape shape, uint32_t blocks);

/* Takes room for `blocks` data blocks and allocates memory; `pending` of the segment is raised
 * until row_free(). The caller fills runs[], vba[], crc[] and the blocks. ERR_NO_SPACE: does not
 * fit. */
HF_MUST_CHECK int row_new(struct segment_table *table, struct segment *s, uint32_t blocks,
                          uint32_t run_count, uint64_t generation, struct row **ret_row);
void *row_block(const struct row *row, uint32_t i);
/* Header, padding, parity. */
void row_finish(struct row *row);
/* Writes all columns; OK when every one has it (durable: on stable media). A disk that fails, or
 * passes its deadline, is expelled; one that is late by what the others take is shunned, and the
 * segment sealed. Then the row is nowhere, and the caller writes it elsewhere with row_move().
 * ERR_IO. Fiber. */
HF_MUST_CHECK int row_write(struct row *row, bool durable);
/* Gives the content a new place in segment `s`. ERR_NO_SPACE: does not fit. */
HF_MUST_CHECK int row_move(struct row *row, struct segment *s);
void row_free(struct row *row);

/* ---- a row that only the log refers to ---- */

struct placed_row {
    uint32_t refs;
    struct segment *segment; /* its `pending` is held */
    uint32_t offset, height, header_blocks, blocks;
    uint64_t vba; /* of block 0; a multiple of RUN_BLOCKS */
    uint32_t crc[];
};

struct placed_row *placed_row_new(struct segment *s, uint32_t blocks);
struct placed_row *placed_row_ref(struct placed_row *row);
void placed_row_unref(struct placed_row *row);

/* ---- reading ---- */

struct row_place {
    struct segment *segment;
    uint32_t offset, height;
    uint32_t index; /* block of the row, header included in the numbering */
};

struct row_counters {
    uint64_t reconstructed_one, reconstructed_two; /* blocks, by number of columns that were lost */
    uint64_t checksum_errors, repairs, lost;
    uint64_t hedged, hedges_won; /* reads that were late, and tried elsewhere; with success */
    uint64_t detoured;           /* reads that never asked a disk that is to be avoided */
    uint32_t hedge_credit;       /* what may still be hedged: see HEDGE_PRICE */
};

/* What a block must be. */
struct row_check {
    uint64_t vba;
    uint32_t crc;
};

/* Reads `count` blocks from `place` on into buf, verifies each, computes what cannot be read from
 * the other columns, and rewrites what was bad in place. On an error *ret_bad (may be NULL) is the
 * first block that could not be had: ERR_DATA_LOSS, ERR_CHECKSUM, ERR_IO. Fiber; pins the segment.
 * If a read was given up *buf becomes another buffer with the same content: what is late may still
 * come, into the old one. */
HF_MUST_CHECK int row_read(struct segment_table *table, const struct row_place *place,
                           uint32_t count, const struct row_check *checks, struct buf **buf,
                           size_t buf_offset, struct row_counters *counters, uint32_t *ret_bad);
/* The same; unless ret_data is NULL each block that verifies is copied there, too, in the same pass
 * over memory. */
HF_MUST_CHECK int row_read_copy(struct segment_table *table, const struct row_place *place,
                                uint32_t count, const struct row_check *checks, struct buf **buf,
                                size_t buf_offset, void *ret_data, struct row_counters *counters,
                                uint32_t *ret_bad);

/* The same without looking at what comes, of up to ROW_TOTAL_MAX blocks: for readers who have
 * checksums of their own. ERR_IO: a block could not be had from its own column or around it in one
 * step. Fiber. */
HF_MUST_CHECK int row_read_unverified(struct segment_table *table, const struct row_place *place,
                                      uint32_t count, struct buf **buf, size_t buf_offset,
                                      struct row_counters *counters);

/* Reads and validates the header of the row at (s, offset, height): the caller frees *ret_header
 * (buf). Falls back on redundancy like row_read. Fiber. */
HF_MUST_CHECK int row_read_header(struct segment_table *table, struct segment *s, uint32_t offset,
                                  uint32_t height, struct row_counters *counters,
                                  struct buf **ret_header);
HF_MUST_CHECK int row_header_validate(const void *header, size_t bytes, uint64_t uid,
                                      uint32_t offset, uint32_t height, uint32_t data_columns);
static inline const struct row_run_phys *row_header_runs(const struct row_phys *h) {
    return (const struct row_run_phys *)(h + 1);
}
static inline const uint32_t *row_header_crcs(const struct row_phys *h) {
    return (const uint32_t *)(row_header_runs(h) + h->runs);
}

/* The whole row, verified: the columns of one copy, data then parity, `height` blocks each, as they
 * are on disk or should be. The caller's to buf_unref(). ERR_DATA_LOSS, ERR_CHECKSUM, ERR_CORRUPT.
 * Fiber. (column.c) */
HF_MUST_CHECK int row_read_columns(struct segment_table *table, struct segment *s, uint32_t offset,
                                   uint32_t height, struct row_counters *counters,
                                   struct buf **ret_columns);

/* Compares the parity and copies of a whole row with its data: number of columns that differ or
 * cannot be read, through *ret_bad_columns (mask). Fiber. For `check` and scrub. */
HF_MUST_CHECK int row_scrub(struct segment_table *table, struct segment *s, uint32_t offset,
                            uint32_t height, uint32_t *ret_bad_columns);

#endif
