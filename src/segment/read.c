// SPDX-License-Identifier: MPL-2.0
/* Reading rows: verify, reconstruct, repair.
 *
 * A read first takes each block from its own column. A block that cannot be read, or whose checksum
 * is wrong, is then looked for in this order: the same block of another copy; computed from the
 * other columns of a copy, with the columns that could not be read taken as lost; and, where there
 * is parity to spare, with one more column taken as lying, each in turn. Whatever is found must
 * verify. The bad place is rewritten with the bytes it should have held (invariant 7). */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "codec/parity.h"
#include "segment/row.h"

/* Long reads are for other cores, and would push out all that this one's cache holds. */
enum { AWAY_BLOCKS = 32 };

struct piece { /* a contiguous part of a read, in one column */
    struct disk_io io;
    struct fiber_group *group;
};

static void piece_done(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct piece, io)->group, OK);
}

static void piece_submit(struct piece *p, struct fiber_group *group, struct disk *disk,
                         uint64_t block, uint32_t blocks, struct buf *buf, size_t buf_offset) {
    *p = (struct piece){.io = {.op = ENV_IO_READ,
                               .offset_bytes = block * BLOCK_BYTES,
                               .length_bytes = (uint64_t)blocks * BLOCK_BYTES,
                               .buf = buf,
                               .buf_offset = buf_offset,
                               .done = piece_done},
                        .group = group};
    fiber_group_add(group);
    disk_submit(disk, &p->io);
}

static bool block_verifies(const void *block, const struct row_check *check) {
    return SABOTAGE(checksum_unchecked) ||
           crc32c_seeded(check->vba, block, BLOCK_BYTES) == check->crc;
}

static bool block_verifies_copied(const void *block, const struct row_check *check, void *to,
                                  bool away) {
    if (to == NULL) {
        return block_verifies(block, check);
    }
    return crc32c_seeded_copy(check->vba, to, block, BLOCK_BYTES, away) == check->crc ||
           SABOTAGE(checksum_unchecked);
}

struct rescue {
    struct segment_table *table;
    struct segment *s;
    uint32_t column; /* within a copy */
    uint32_t block;  /* offset in the column's chunk */
    const struct row_check *check;
    struct buf *scratch; /* one block for each column of a copy */
    uint32_t lost;       /* columns (within the copy) that could not be read */
};

/* Reads the block of every column of `copy` except the wanted one. */
static void rescue_read_peers(struct rescue *r, uint32_t copy) {
    struct piece pieces[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    r->lost = 1u << r->column;
    for (uint32_t c = 0; c < per_copy; c++) {
        struct disk *disk = segment_column_disk(r->table, r->s, copy * per_copy + c);
        pieces[c].io.result = ERR_DISK_GONE;
        if (c != r->column && disk != NULL) {
            piece_submit(&pieces[c], &group, disk,
                         segment_column_block(r->table, r->s, copy * per_copy + c, r->block), 1,
                         r->scratch, (size_t)c * BLOCK_BYTES);
        }
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK); /* results are per piece */
    for (uint32_t c = 0; c < per_copy; c++) {
        if (pieces[c].io.result != OK) {
            r->lost |= 1u << c;
        }
    }
}

static bool rescue_compute(struct rescue *r, uint32_t lost) {
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    void *columns[SEGMENT_COLUMNS_MAX];
    if ((uint32_t)__builtin_popcount(lost) > r->s->shape.parity) {
        return false;
    }
    /* Only the wanted column is written: others taken as lost keep what was read, for the next
     * attempt, by being computed into spare blocks. */
    for (uint32_t c = 0; c < per_copy; c++) {
        bool spare = c != r->column && ((lost >> c) & 1) != 0;
        columns[c] = r->scratch->data + (size_t)(spare ? per_copy : c) * BLOCK_BYTES;
    }
    return parity_reconstruct(r->s->shape.data, r->s->shape.parity, BLOCK_BYTES, columns, lost) ==
               OK &&
           block_verifies(columns[r->column], r->check);
}

/* Computes the wanted block from its peers in `copy`; true when it verifies. */
static bool rescue_from_parity(struct rescue *r, uint32_t copy, struct row_counters *counters) {
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    rescue_read_peers(r, copy);
    if (rescue_compute(r, r->lost)) {
        if (__builtin_popcount(r->lost) > 1) {
            counters->reconstructed_two++;
        } else {
            counters->reconstructed_one++;
        }
        return true;
    }
    for (uint32_t c = 0; c < per_copy; c++) { /* one of the peers lies */
        if (((r->lost >> c) & 1) == 0 && rescue_compute(r, r->lost | 1u << c)) {
            counters->reconstructed_two++;
            return true;
        }
    }
    return false;
}

static bool rescue_from_copy(struct rescue *r, uint32_t copy, struct row_counters *counters) {
    uint32_t column = copy * ((uint32_t)r->s->shape.data + r->s->shape.parity) + r->column;
    struct disk *disk = segment_column_disk(r->table, r->s, column);
    size_t at = (size_t)r->column * BLOCK_BYTES;
    if (disk == NULL) {
        return false;
    }
    if (disk_read(disk, segment_column_block(r->table, r->s, column, r->block) * BLOCK_BYTES,
                  BLOCK_BYTES, r->scratch, at) != OK) {
        size_t bytes = r->scratch->bytes;
        buf_unref(r->scratch); /* it may still come */
        r->scratch = buf_new(bytes);
        return false;
    }
    if (!block_verifies(r->scratch->data + at, r->check)) {
        counters->checksum_errors++;
        return false;
    }
    counters->reconstructed_one++;
    return true;
}

/* Puts right what a readable disk holds wrongly. */
static void rescue_repair(struct rescue *r, uint32_t bad_copies, struct row_counters *counters) {
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    for (uint32_t copy = 0; copy < r->s->shape.copies; copy++) {
        uint32_t column = copy * per_copy + r->column;
        struct disk *disk = segment_column_disk(r->table, r->s, column);
        if (((bad_copies >> copy) & 1) == 0 || disk == NULL || r->table->pool->read_only) {
            continue;
        }
        uint64_t at = segment_column_block(r->table, r->s, column, r->block) * BLOCK_BYTES;
        int err =
            disk_write(disk, at, BLOCK_BYTES, r->scratch, (size_t)r->column * BLOCK_BYTES, false);
        if (err == OK) {
            counters->repairs++;
            disk_note(disk, DISK_ERROR_REPAIRED, at, BLOCK_BYTES, "rewritten from redundancy");
        } else if (pool_member_in_sync(r->table->pool, r->s->column[column].disk)) {
            pool_expel(r->table->pool, r->s->column[column].disk, "a repair could not be written");
        }
    }
}

/* Finds a block that its own column did not give; `own_readable`: the bytes in `out` are what the
 * column of copy 0 holds, and they are wrong. */
static int block_rescue(struct segment_table *table, const struct row_place *place, uint32_t index,
                        const struct row_check *check, struct row_counters *counters, void *out) {
    struct segment *s = place->segment;
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    struct rescue r = {.table = table,
                       .s = s,
                       .column = index / place->height,
                       .block = place->offset + index % place->height,
                       .check = check,
                       .scratch = buf_new(((size_t)per_copy + 1) * BLOCK_BYTES)};
    uint32_t bad_copies = 1; /* copy 0 has been tried */
    bool found = false;
    for (uint32_t copy = 1; copy < s->shape.copies && !found; copy++) {
        found = rescue_from_copy(&r, copy, counters);
        bad_copies |= found ? 0 : 1u << copy;
    }
    for (uint32_t copy = 0; copy < s->shape.copies && s->shape.parity > 0 && !found; copy++) {
        found = rescue_from_parity(&r, copy, counters);
    }
    if (found) {
        memcpy(out, r.scratch->data + (size_t)r.column * BLOCK_BYTES, BLOCK_BYTES);
        rescue_repair(&r, bad_copies, counters);
    } else {
        counters->lost++;
    }
    buf_unref(r.scratch);
    return found ? OK : ERR_DATA_LOSS;
}

/* Reads [first, first + count) of the row's blocks, each from its own column of copy 0; sets a bit
 * in unreadable[] for those that did not come. */
static void row_read_direct(struct segment_table *table, const struct row_place *place,
                            uint32_t first, uint32_t count, struct buf *buf, size_t buf_offset,
                            bool *unreadable) {
    struct piece pieces[SEGMENT_COLUMNS_MAX];
    uint32_t piece_first[SEGMENT_COLUMNS_MAX], piece_count = 0;
    struct fiber_group group = FIBER_GROUP_INIT;
    for (uint32_t done = 0; done < count; piece_count++) {
        uint32_t index = first + done, column = index / place->height;
        uint32_t in_column = index % place->height;
        uint32_t n = MIN(count - done, place->height - in_column);
        struct disk *disk = segment_column_disk(table, place->segment, column);
        struct piece *p = &pieces[piece_count];
        piece_first[piece_count] = done;
        p->io.result = ERR_DISK_GONE;
        p->io.length_bytes = (uint64_t)n * BLOCK_BYTES;
        if (disk != NULL) {
            piece_submit(
                p, &group, disk,
                segment_column_block(table, place->segment, column, place->offset + in_column), n,
                buf, buf_offset + (size_t)done * BLOCK_BYTES);
        }
        done += n;
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK); /* results are per piece */
    for (uint32_t i = 0; i < piece_count; i++) {
        for (uint32_t b = 0;
             pieces[i].io.result != OK && b < pieces[i].io.length_bytes / BLOCK_BYTES; b++) {
            unreadable[piece_first[i] + b] = true;
        }
    }
}

/* What was given up may still come, at any time, into the buffer that it was to come into: that one
 * is left alone from now on. */
static void leave_if_late(struct buf **buf, const bool *unreadable, uint32_t count) {
    if (memchr(unreadable, true, count) != NULL) {
        struct buf *fresh = buf_new((*buf)->bytes);
        memcpy(fresh->data, (*buf)->data, fresh->bytes);
        buf_unref(*buf);
        *buf = fresh;
    }
}

int row_read_copy(struct segment_table *table, const struct row_place *place, uint32_t count,
                  const struct row_check *checks, struct buf **buf, size_t buf_offset,
                  void *ret_data, struct row_counters *counters, uint32_t *ret_bad) {
    bool unreadable[ROW_DATA_MAX] = {false};
    ASSERT_LE(count, ROW_DATA_MAX);
    ASSERT_LE(place->index + count, place->height * place->segment->shape.data);
    int error = OK;
    place->segment->pins++;
    row_read_direct(table, place, place->index, count, *buf, buf_offset, unreadable);
    leave_if_late(buf, unreadable, count);
    for (uint32_t i = 0; i < count; i++) {
        void *block = (*buf)->data + buf_offset + (size_t)i * BLOCK_BYTES;
        void *to = ret_data == NULL ? NULL : (uint8_t *)ret_data + (size_t)i * BLOCK_BYTES;
        if (!unreadable[i] && block_verifies_copied(block, &checks[i], to, count >= AWAY_BLOCKS)) {
            continue;
        }
        if (!unreadable[i]) {
            uint32_t column = (place->index + i) / place->height;
            struct disk *disk = segment_column_disk(table, place->segment, column);
            counters->checksum_errors++;
            if (disk != NULL) {
                disk_note(disk, DISK_ERROR_CHECKSUM,
                          segment_column_block(table, place->segment, column,
                                               place->offset + (place->index + i) % place->height) *
                              BLOCK_BYTES,
                          BLOCK_BYTES, "content does not match its checksum");
            }
        }
        int err = block_rescue(table, place, place->index + i, &checks[i], counters, block);
        if (err == OK && to != NULL) {
            memcpy(to, block, BLOCK_BYTES);
        }
        if (err != OK && error == OK) {
            error = unreadable[i] ? ERR_DATA_LOSS : ERR_CHECKSUM;
            if (ret_bad != NULL) {
                *ret_bad = i;
            }
        }
    }
    place->segment->pins--;
    return error;
}

int row_read(struct segment_table *table, const struct row_place *place, uint32_t count,
             const struct row_check *checks, struct buf **buf, size_t buf_offset,
             struct row_counters *counters, uint32_t *ret_bad) {
    return row_read_copy(table, place, count, checks, buf, buf_offset, NULL, counters, ret_bad);
}

int row_read_unverified(struct segment_table *table, const struct row_place *place, uint32_t count,
                        struct buf *buf, size_t buf_offset) {
    bool unreadable[ROW_TOTAL_MAX] = {false};
    ASSERT_LE(count, ROW_TOTAL_MAX);
    ASSERT_LE(place->index + count, place->height * place->segment->shape.data);
    int error = OK;
    place->segment->pins++;
    row_read_direct(table, place, place->index, count, buf, buf_offset, unreadable);
    place->segment->pins--;
    for (uint32_t i = 0; i < count; i++) {
        error = unreadable[i] ? ERR_IO : error;
    }
    return error;
}

/* ---- headers ---- */

int row_header_validate(const void *header, size_t bytes, uint64_t uid, uint32_t offset,
                        uint32_t height, uint32_t data_columns) {
    const struct row_phys *h = header;
    int err = phys_check(h, PHYS_ROW, sizeof(*h), bytes, uid ^ (uint64_t)offset << 40);
    if (err != OK) {
        return err;
    }
    if (h->header.version != 1) {
        return ERR_UNSUPPORTED;
    }
    uint64_t length = sizeof(*h) + (uint64_t)h->runs * sizeof(struct row_run_phys) +
                      (uint64_t)h->blocks * sizeof(uint32_t);
    if (h->uid != uid || h->offset != offset || (height != 0 && h->height != height) ||
        h->blocks == 0 || h->blocks > ROW_DATA_MAX || h->runs == 0 || h->runs > h->blocks ||
        round_up(length, 8) != h->header.length_bytes ||
        h->header_blocks != div_round_up(h->header.length_bytes, BLOCK_BYTES) || h->height == 0 ||
        h->header_blocks + h->blocks > (uint64_t)h->height * data_columns) {
        return ERR_CORRUPT;
    }
    uint32_t total = 0;
    for (uint32_t i = 0; i < h->runs; i++) {
        total += row_header_runs(h)[i].count;
    }
    return total == h->blocks ? OK : ERR_CORRUPT;
}

/* The header's own checksum is inside it, so what verifies is known only after assembling it: tries
 * as read, then with each column that parity or another copy can replace. */
int row_read_header(struct segment_table *table, struct segment *s, uint32_t offset,
                    uint32_t height, struct row_counters *counters, struct buf **ret_header) {
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    uint32_t blocks = MIN((uint32_t)ROW_HEADER_MAX, height * s->shape.data);
    struct buf *out = buf_new((size_t)blocks * BLOCK_BYTES);
    int error = ERR_DATA_LOSS;
    s->pins++;
    for (uint32_t attempt = 0; attempt < s->shape.copies * (1u + per_copy) && error != OK;
         attempt++) {
        /* attempt: copy, and which column is taken as lost (per_copy: none) */
        uint32_t copy = attempt % s->shape.copies;
        uint32_t suspect = attempt / s->shape.copies; /* 0: none, else column suspect - 1 */
        bool complete = true;
        for (uint32_t b = 0; b < blocks && complete; b++) {
            struct rescue r = {.table = table,
                               .s = s,
                               .column = b / height,
                               .block = offset + b % height,
                               .scratch = buf_new(((size_t)per_copy + 1) * BLOCK_BYTES)};
            struct row_check unchecked = {0};
            uint32_t column = copy * per_copy + r.column;
            struct disk *disk = segment_column_disk(table, s, column);
            /* A header may lie in several columns: only the suspect one is computed. */
            bool have =
                suspect != r.column + 1 && disk != NULL &&
                disk_read(disk, segment_column_block(table, s, column, r.block) * BLOCK_BYTES,
                          BLOCK_BYTES, r.scratch, (size_t)r.column * BLOCK_BYTES) == OK;
            if (!have && s->shape.parity > 0) {
                r.check = &unchecked;
                rescue_read_peers(&r, copy);
                uint32_t lost = r.lost | (suspect > 0 ? 1u << (suspect - 1) : 0);
                void *columns[SEGMENT_COLUMNS_MAX];
                for (uint32_t c = 0; c < per_copy; c++) {
                    columns[c] = r.scratch->data + (size_t)c * BLOCK_BYTES;
                }
                have = (uint32_t)__builtin_popcount(lost) <= s->shape.parity &&
                       parity_reconstruct(s->shape.data, s->shape.parity, BLOCK_BYTES, columns,
                                          lost) == OK;
            }
            if (have) {
                memcpy(out->data + (size_t)b * BLOCK_BYTES,
                       r.scratch->data + (size_t)r.column * BLOCK_BYTES, BLOCK_BYTES);
            }
            complete = have;
            buf_unref(r.scratch);
        }
        if (complete) {
            error =
                row_header_validate(out->data, out->bytes, s->uid, offset, height, s->shape.data);
            counters->checksum_errors += error != OK;
        }
        if (error == OK && attempt > 0) {
            counters->reconstructed_one++;
        }
    }
    s->pins--;
    if (error != OK) {
        buf_unref(out);
        return error;
    }
    *ret_header = out;
    return OK;
}

/* ---- scrub ---- */

int row_scrub(struct segment_table *table, struct segment *s, uint32_t offset, uint32_t height,
              uint32_t *ret_bad_columns) {
    uint32_t columns = shape_columns(s->shape),
             per_copy = (uint32_t)s->shape.data + s->shape.parity;
    size_t bytes = (size_t)height * BLOCK_BYTES;
    struct buf *have = buf_new(columns * bytes);
    struct buf *want = buf_new((size_t)per_copy * bytes);
    struct piece pieces[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    uint32_t bad = 0;
    s->pins++;
    for (uint32_t c = 0; c < columns; c++) {
        struct disk *disk = segment_column_disk(table, s, c);
        pieces[c].io.result = ERR_DISK_GONE;
        if (disk != NULL) {
            piece_submit(&pieces[c], &group, disk, segment_column_block(table, s, c, offset),
                         height, have, c * bytes);
        }
    }
    int err = fiber_group_wait(&group);
    s->pins--;
    for (uint32_t c = 0; c < columns; c++) {
        bad |= pieces[c].io.result != OK ? 1u << c : 0;
    }
    void *data[SEGMENT_COLUMNS_MAX];
    bool data_complete = true;
    for (uint32_t c = 0; c < per_copy; c++) { /* data from the first copy that has it */
        data[c] = want->data + c * bytes;
        bool found = c >= s->shape.data;
        for (uint32_t copy = 0; copy < s->shape.copies && !found; copy++) {
            if (((bad >> (copy * per_copy + c)) & 1) == 0) {
                memcpy(data[c], have->data + (copy * per_copy + c) * bytes, bytes);
                found = true;
            }
        }
        data_complete &= found;
    }
    if (data_complete && err == OK) {
        if (s->shape.parity > 0) {
            parity_generate(s->shape.data, s->shape.parity, bytes, data);
        }
        for (uint32_t c = 0; c < columns; c++) {
            if (((bad >> c) & 1) == 0 &&
                memcmp(have->data + c * bytes, data[c % per_copy], bytes) != 0) {
                bad |= 1u << c;
            }
        }
    }
    buf_unref(have);
    buf_unref(want);
    *ret_bad_columns = bad;
    return err;
}
