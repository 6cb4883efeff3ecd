// SPDX-License-Identifier: MPL-2.0
/* Reading rows: verify, reconstruct, repair.
 *
 * A read first takes each block from its own column. A block that cannot be read, or whose checksum
 * is wrong, is then looked for in this order: the same block of another copy; computed from the
 * other columns of a copy, with the columns that could not be read taken as lost; and, where there
 * is parity to spare, with one more column taken as lying, each in turn. Whatever is found must
 * verify. The bad place is rewritten with the bytes it should have held (invariant 7), unless its
 * disk was only late.
 *
 * Slow disks. A disk that is to be avoided (disk.h) is not asked where there is a way around it
 * (detour.h). A disk that is late by its peers' measure gets company: a detour is taken at the same
 * time, and whichever has an answer first that verifies is taken; the other is given up, and its
 * buffer left to whoever still writes into it. Such hedges are for outliers: one in HEDGE_PRICE
 * reads may be one, so that disks that are all busy do not get more to do for it. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "codec/parity.h"
#include "segment/detour.h"
#include "segment/row.h"

/* Long reads are for other cores, and would push out all that this one's cache holds. */
enum { AWAY_BLOCKS = 32 };

enum { DETOURS_MAX = 2, HEDGE_PRICE = 32, HEDGE_CREDIT_MOST = 64 * HEDGE_PRICE };
#define HEDGE_RETRY_NS (50 * (uint64_t)NS_PER_MS)

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

static void rescue_renew(struct rescue *r) {
    size_t bytes = r->scratch->bytes;
    buf_unref(r->scratch);
    r->scratch = buf_new(bytes);
}

/* Reads the block of every column of `copy` except the wanted one; with `avoid` also except those
 * on disks that are to be avoided. */
static void rescue_read_peers(struct rescue *r, uint32_t copy, bool avoid) {
    struct piece pieces[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    r->lost = 1u << r->column;
    for (uint32_t c = 0; c < per_copy; c++) {
        struct disk *disk = segment_column_disk(r->table, r->s, copy * per_copy + c);
        pieces[c].io.result = ERR_DISK_GONE;
        if (c != r->column && disk != NULL && !(avoid && disk_is_avoided(disk))) {
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

static bool rescue_meets_avoided(const struct rescue *r, uint32_t copy) {
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    for (uint32_t c = 0; c < per_copy; c++) {
        struct disk *disk = segment_column_disk(r->table, r->s, copy * per_copy + c);
        if (c != r->column && disk != NULL && disk_is_avoided(disk)) {
            return true;
        }
    }
    return false;
}

/* Computes the wanted block from its peers in `copy`; true when it verifies. */
static bool rescue_from_parity(struct rescue *r, uint32_t copy, struct row_counters *counters) {
    uint32_t per_copy = (uint32_t)r->s->shape.data + r->s->shape.parity;
    if (rescue_meets_avoided(r, copy)) {
        rescue_read_peers(r, copy, true);
        if (rescue_compute(r, r->lost)) {
            counters->reconstructed_two++;
            return true;
        }
        rescue_renew(r); /* what was given up may still come */
    }
    rescue_read_peers(r, copy, false);
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

/* From that copy's own column; *ret_bad: it holds something else, or cannot be read. */
static bool rescue_from_copy(struct rescue *r, uint32_t copy, struct row_counters *counters,
                             bool *ret_bad) {
    uint32_t column = copy * ((uint32_t)r->s->shape.data + r->s->shape.parity) + r->column;
    struct disk *disk = segment_column_disk(r->table, r->s, column);
    size_t at = (size_t)r->column * BLOCK_BYTES;
    if (disk == NULL) {
        return false;
    }
    int err = disk_read(disk, segment_column_block(r->table, r->s, column, r->block) * BLOCK_BYTES,
                        BLOCK_BYTES, r->scratch, at);
    if (err != OK) {
        rescue_renew(r); /* it may still come */
        *ret_bad = err != ERR_TIMEOUT;
        return false;
    }
    if (!block_verifies(r->scratch->data + at, r->check)) {
        counters->checksum_errors++;
        *ret_bad = true;
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

/* Finds a block that its own column did not give. `bad`: it is wrong there, and is put right. */
static int block_rescue(struct segment_table *table, const struct row_place *place, uint32_t index,
                        const struct row_check *check, bool bad, struct row_counters *counters,
                        void *out) {
    struct segment *s = place->segment;
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    struct rescue r = {.table = table,
                       .s = s,
                       .column = index / place->height,
                       .block = place->offset + index % place->height,
                       .check = check,
                       .scratch = buf_new(((size_t)per_copy + 1) * BLOCK_BYTES)};
    uint32_t bad_copies = bad; /* copy 0 has been tried */
    bool found = false;
    for (uint32_t copy = 1; copy < s->shape.copies && !found; copy++) {
        bool this_bad = false;
        found = rescue_from_copy(&r, copy, counters, &this_bad);
        bad_copies |= this_bad ? 1u << copy : 0;
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

/* ---- the straight way, and the way around ---- */

/* Around: verified, if there are checksums; not: late, or no disk; wrong: a read error. */
enum block_came { CAME, CAME_AROUND, CAME_NOT, CAME_WRONG };

struct straight { /* what is wanted of one column */
    struct piece piece;
    uint32_t first, count; /* blocks, of those wanted */
    uint32_t column, block;
    bool submitted;
    int detour; /* -1: none */
    const uint8_t *found;
};

struct reading {
    struct segment_table *table;
    struct segment *s;
    struct straight straight[SEGMENT_COLUMNS_MAX];
    uint32_t count;
    struct detour detour[DETOURS_MAX];
    uint32_t detours;
    bool judged; /* what the detours brought has been looked at */
    struct fiber_group direct, around;
    struct buf *buf;
    size_t buf_offset;
    const struct row_check *checks; /* may be NULL */
    struct row_counters *counters;
    uint64_t hedge_at_ns;
};

static void straight_submit(struct reading *r, struct straight *t, struct disk *disk) {
    piece_submit(&t->piece, &r->direct, disk,
                 segment_column_block(r->table, r->s, t->column, t->block), t->count, r->buf,
                 r->buf_offset + (size_t)t->first * BLOCK_BYTES);
    t->submitted = true;
}

static bool straight_pending(const struct straight *t) {
    return t->submitted && t->piece.io.private_op != NULL;
}

/* Columns that detours are better off without: those that are being waited for. */
static uint32_t pending_columns(const struct reading *r) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        mask |= straight_pending(&r->straight[i]) ? 1u << r->straight[i].column : 0;
    }
    return mask;
}

static bool straight_detour(struct reading *r, struct straight *t, uint32_t avoid) {
    if (r->detours == DETOURS_MAX || r->judged ||
        !detour_begin(&r->detour[r->detours], r->table, r->s, t->column, t->block, t->count, avoid,
                      &r->around)) {
        return false;
    }
    t->detour = (int)r->detours++;
    return true;
}

static void reading_begin(struct reading *r, const struct row_place *place, uint32_t count) {
    uint64_t hedge_ns = 0;
    for (uint32_t done = 0; done < count; r->count++) {
        uint32_t index = place->index + done, in_column = index % place->height;
        struct straight *t = &r->straight[r->count];
        *t = (struct straight){.first = done,
                               .count = MIN(count - done, place->height - in_column),
                               .column = index / place->height,
                               .block = place->offset + in_column,
                               .detour = -1};
        t->piece.io.result = ERR_DISK_GONE;
        done += t->count;
        struct disk *disk = segment_column_disk(r->table, r->s, t->column);
        if ((disk == NULL || disk_is_avoided(disk)) && straight_detour(r, t, 0)) {
            r->counters->detoured += disk != NULL;
        } else if (disk != NULL) {
            uint64_t bytes = (uint64_t)t->count * BLOCK_BYTES;
            hedge_ns = MAX(hedge_ns, disk_hedge_ns(disk, ENV_IO_READ, false, bytes));
            straight_submit(r, t, disk);
        }
    }
    uint64_t now = env_now_ns(fiber_env());
    r->hedge_at_ns = hedge_ns >= UINT64_MAX - now ? UINT64_MAX : now + hedge_ns;
    r->counters->hedge_credit = MIN(r->counters->hedge_credit + 1, (uint32_t)HEDGE_CREDIT_MOST);
}

/* Some are late: a way around those, if it is worth it. */
static void reading_hedge(struct reading *r) {
    uint32_t late = pending_columns(r);
    bool begun = false;
    for (uint32_t i = 0; i < r->count; i++) {
        struct straight *t = &r->straight[i];
        struct disk *disk = segment_column_disk(r->table, r->s, t->column);
        bool avoided = disk == NULL || disk_is_avoided(disk);
        if (!straight_pending(t) || t->detour >= 0 ||
            (!avoided && r->counters->hedge_credit < HEDGE_PRICE) || !straight_detour(r, t, late)) {
            continue;
        }
        r->counters->hedge_credit -= avoided ? 0 : HEDGE_PRICE;
        r->counters->hedged++;
        begun = true;
    }
    r->hedge_at_ns = begun ? UINT64_MAX : env_now_ns(fiber_env()) + HEDGE_RETRY_NS;
}

/* All detours have come. Where one brought nothing, the straight way is left. */
static void reading_judge(struct reading *r) {
    r->judged = true;
    r->hedge_at_ns = UINT64_MAX;
    for (uint32_t i = 0; i < r->count; i++) {
        struct straight *t = &r->straight[i];
        if (t->detour < 0) {
            continue;
        }
        t->found =
            detour_end(&r->detour[t->detour], r->checks == NULL ? NULL : &r->checks[t->first]);
        struct disk *disk = segment_column_disk(r->table, r->s, t->column);
        if (t->found != NULL) {
            r->counters->hedges_won += straight_pending(t);
            *(r->detour[t->detour].lost > 1 ? &r->counters->reconstructed_two
                                            : &r->counters->reconstructed_one) += t->count;
            if (t->submitted) {
                piece_leave(&t->piece);
            }
        } else if (!t->submitted && disk != NULL) {
            straight_submit(r, t, disk);
        }
    }
}

/* Detours for want of anything else are waited for; those that are hedges are not. */
static bool needs_detours(const struct reading *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->straight[i].detour >= 0 && !r->straight[i].submitted) {
            return true;
        }
    }
    return false;
}

static void reading_wait(struct reading *r) {
    for (;;) {
        bool around = r->detours > 0 && !r->judged;
        if (around && r->around.pending == 0) {
            reading_judge(r);
            continue;
        }
        if (r->direct.pending == 0 && !(around && needs_detours(r))) {
            return;
        }
        struct fiber_group *first = r->direct.pending > 0 ? &r->direct : &r->around;
        struct fiber_group *second = around && first == &r->direct ? &r->around : NULL;
        if (fiber_group_wait_any(first, second, r->hedge_at_ns) == ERR_TIMEOUT) {
            reading_hedge(r);
        }
    }
}

/* What was given up may still come, at any time, into the buffer that it was to come into: that one
 * is left alone from now on. */
static bool reading_end(struct reading *r, struct buf **buf, enum block_came *came) {
    bool late = false, complete = true;
    for (uint32_t i = 0; i < r->count; i++) {
        late |= r->straight[i].submitted && r->straight[i].piece.io.result != OK;
    }
    if (late) {
        struct buf *fresh = buf_new((*buf)->bytes);
        memcpy(fresh->data, (*buf)->data, fresh->bytes);
        buf_unref(*buf);
        *buf = fresh;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        const struct straight *t = &r->straight[i];
        int result = t->piece.io.result;
        enum block_came how = CAME;
        if (result != OK && t->found != NULL) {
            memcpy((*buf)->data + r->buf_offset + (size_t)t->first * BLOCK_BYTES, t->found,
                   (size_t)t->count * BLOCK_BYTES);
            how = CAME_AROUND;
        } else if (result != OK) {
            how = result == ERR_TIMEOUT || !t->submitted ? CAME_NOT : CAME_WRONG;
            complete = false;
        }
        for (uint32_t b = 0; b < t->count; b++) {
            came[t->first + b] = how;
        }
    }
    for (uint32_t i = 0; i < r->detours; i++) {
        detour_drop(&r->detour[i]);
    }
    return complete;
}

/* Reads `count` blocks from `place` on; came[] says of each how. False: some did not come. */
static bool row_read_direct(struct segment_table *table, const struct row_place *place,
                            uint32_t count, const struct row_check *checks, struct buf **buf,
                            size_t buf_offset, struct row_counters *counters,
                            enum block_came *came) {
    struct reading r = {.table = table,
                        .s = place->segment,
                        .buf = *buf,
                        .buf_offset = buf_offset,
                        .checks = checks,
                        .counters = counters};
    reading_begin(&r, place, count);
    reading_wait(&r);
    return reading_end(&r, buf, came);
}

static void note_wrong_block(struct segment_table *table, const struct row_place *place,
                             uint32_t index, struct row_counters *counters) {
    uint32_t column = index / place->height;
    struct disk *disk = segment_column_disk(table, place->segment, column);
    counters->checksum_errors++;
    if (disk != NULL) {
        disk_note(disk, DISK_ERROR_CHECKSUM,
                  segment_column_block(table, place->segment, column,
                                       place->offset + index % place->height) *
                      BLOCK_BYTES,
                  BLOCK_BYTES, "content does not match its checksum");
    }
}

int row_read_copy(struct segment_table *table, const struct row_place *place, uint32_t count,
                  const struct row_check *checks, struct buf **buf, size_t buf_offset,
                  void *ret_data, struct row_counters *counters, uint32_t *ret_bad) {
    enum block_came came[ROW_DATA_MAX];
    ASSERT_LE(count, ROW_DATA_MAX);
    ASSERT_LE(place->index + count, place->height * place->segment->shape.data);
    int error = OK;
    place->segment->pins++;
    (void)row_read_direct(table, place, count, checks, buf, buf_offset, counters, came);
    for (uint32_t i = 0; i < count; i++) {
        void *block = (*buf)->data + buf_offset + (size_t)i * BLOCK_BYTES;
        void *to = ret_data == NULL ? NULL : (uint8_t *)ret_data + (size_t)i * BLOCK_BYTES;
        if (came[i] == CAME && block_verifies_copied(block, &checks[i], to, count >= AWAY_BLOCKS)) {
            continue;
        }
        if (came[i] == CAME_AROUND) {
            if (to != NULL) {
                memcpy(to, block, BLOCK_BYTES);
            }
            continue;
        }
        if (came[i] == CAME) {
            note_wrong_block(table, place, place->index + i, counters);
        }
        int err = block_rescue(table, place, place->index + i, &checks[i], came[i] != CAME_NOT,
                               counters, block);
        if (err == OK && to != NULL) {
            memcpy(to, block, BLOCK_BYTES);
        }
        if (err != OK && error == OK) {
            error = came[i] == CAME ? ERR_CHECKSUM : ERR_DATA_LOSS;
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
                        struct buf **buf, size_t buf_offset, struct row_counters *counters) {
    enum block_came came[ROW_TOTAL_MAX];
    ASSERT_LE(count, ROW_TOTAL_MAX);
    ASSERT_LE(place->index + count, place->height * place->segment->shape.data);
    place->segment->pins++;
    bool complete = row_read_direct(table, place, count, NULL, buf, buf_offset, counters, came);
    place->segment->pins--;
    return complete ? OK : ERR_IO;
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

struct header_attempt {
    struct segment_table *table;
    struct segment *s;
    uint32_t offset, height;
    uint32_t copy;
    uint32_t lost; /* column taken as lost, + 1; 0: none */
    bool avoid;    /* disks that are to be avoided are not asked */
};

/* One block of the header, into `out`. */
static bool header_block(const struct header_attempt *a, uint32_t b, void *out) {
    struct segment *s = a->s;
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    struct row_check unchecked = {0};
    struct rescue r = {.table = a->table,
                       .s = s,
                       .column = b / a->height,
                       .block = a->offset + b % a->height,
                       .check = &unchecked,
                       .scratch = buf_new(((size_t)per_copy + 1) * BLOCK_BYTES)};
    uint32_t column = a->copy * per_copy + r.column;
    struct disk *disk = segment_column_disk(a->table, s, column);
    /* A header may lie in several columns: only the one taken as lost is computed. */
    bool ask = a->lost != r.column + 1 && disk != NULL && !(a->avoid && disk_is_avoided(disk));
    bool have =
        ask && disk_read(disk, segment_column_block(a->table, s, column, r.block) * BLOCK_BYTES,
                         BLOCK_BYTES, r.scratch, (size_t)r.column * BLOCK_BYTES) == OK;
    if (!have && s->shape.parity > 0) {
        if (ask) {
            rescue_renew(&r); /* it may still come */
        }
        rescue_read_peers(&r, a->copy, a->avoid);
        uint32_t lost = r.lost | (a->lost > 0 ? 1u << (a->lost - 1) : 0);
        void *columns[SEGMENT_COLUMNS_MAX];
        for (uint32_t c = 0; c < per_copy; c++) {
            columns[c] = r.scratch->data + (size_t)c * BLOCK_BYTES;
        }
        have = (uint32_t)__builtin_popcount(lost) <= s->shape.parity &&
               parity_reconstruct(s->shape.data, s->shape.parity, BLOCK_BYTES, columns, lost) == OK;
    }
    if (have) {
        memcpy(out, r.scratch->data + (size_t)r.column * BLOCK_BYTES, BLOCK_BYTES);
    }
    buf_unref(r.scratch);
    return have;
}

/* The header's own checksum is inside it, so what verifies is known only after assembling it: tries
 * as read, then with each column that parity or another copy can replace; all that without disks
 * that are to be avoided, before they are asked. */
int row_read_header(struct segment_table *table, struct segment *s, uint32_t offset,
                    uint32_t height, struct row_counters *counters, struct buf **ret_header) {
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    uint32_t blocks = MIN((uint32_t)ROW_HEADER_MAX, height * s->shape.data);
    uint32_t attempts = s->shape.copies * (1u + per_copy);
    struct buf *out = buf_new((size_t)blocks * BLOCK_BYTES);
    struct header_attempt a = {
        .table = table, .s = s, .offset = offset, .height = height, .avoid = true};
    bool avoided = false;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(table, s, c);
        avoided |= disk != NULL && disk_is_avoided(disk);
    }
    int error = ERR_DATA_LOSS;
    s->pins++;
    for (uint32_t i = avoided ? 0 : attempts; i < 2 * attempts && error != OK; i++) {
        uint32_t attempt = i % attempts;
        a.copy = attempt % s->shape.copies;
        a.lost = attempt / s->shape.copies;
        a.avoid = i < attempts;
        bool complete = true;
        for (uint32_t b = 0; b < blocks && complete; b++) {
            complete = header_block(&a, b, out->data + (size_t)b * BLOCK_BYTES);
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
