// SPDX-License-Identifier: MPL-2.0
/* Reading the log back after a stop of any kind: see log.h.
 *
 * Every ring is read once from its recorded tail on, all the way round; rows of the generation in
 * question at or above the start are remembered with where they lie. Then they are taken in order,
 * each from the first ring that still gives it whole. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "log/log.h"

enum { BAD_KEPT = 256 };

struct found_row {
    uint64_t lsn;
    uint32_t member;
    uint32_t start; /* ring block */
    uint32_t blocks;
};

struct scan {
    struct log_replay *replay;
    struct found_row *rows;
    uint64_t count, room;
    uint64_t bad_lsn[BAD_KEPT]; /* of copies that are damaged, or were torn by the stop */
    uint32_t bad_count;
    struct fiber_group group;
};

struct ring_scan {
    struct scan *scan;
    uint32_t member;
};

int log_row_validate(const void *bytes, size_t room_bytes, const struct uuid *pool, uint64_t seed) {
    const struct log_row_phys *h = bytes;
    int err = phys_check(h, PHYS_LOG_ROW, sizeof(*h), room_bytes, seed);
    if (err != OK) {
        return err;
    }
    if (h->header.version != 1) {
        return ERR_UNSUPPORTED;
    }
    if (memcmp(&h->pool, pool, sizeof(*pool)) != 0) {
        return ERR_FOREIGN;
    }
    if (h->blocks != div_round_up(h->header.length_bytes, BLOCK_BYTES) ||
        h->generation >= GENERATION_END || h->lsn >= COUNTER_END ||
        h->lsn >> 32 < h->generation) { /* above it after 2^32 rows of one mount */
        return ERR_CORRUPT;
    }
    size_t at = sizeof(*h);
    for (uint32_t i = 0; i < h->records; i++) {
        struct log_record_phys record;
        if (!range_is_within(at, sizeof(record), h->header.length_bytes)) {
            return ERR_CORRUPT;
        }
        memcpy(&record, (const uint8_t *)bytes + at, sizeof(record));
        at += sizeof(record);
        uint64_t length = round_up(record.header_bytes, 8) + round_up(record.data_bytes, 8);
        if (!range_is_within(at, length, h->header.length_bytes)) {
            return ERR_CORRUPT;
        }
        at += length;
    }
    return at == h->header.length_bytes ? OK : ERR_CORRUPT;
}

static bool is_row_head(const struct log_replay *r, const void *bytes) {
    const struct log_row_phys *h = bytes;
    return h->header.type == PHYS_LOG_ROW && h->generation == r->generation &&
           h->lsn >= r->start_lsn && h->blocks > 0 &&
           (size_t)h->blocks * BLOCK_BYTES <= LOG_ROW_BYTES_MAX;
}

static void scan_add(struct scan *scan, const struct log_row_phys *h, uint32_t member,
                     uint32_t start) {
    if (scan->count == scan->room) {
        scan->room = MAX((uint64_t)256, scan->room * 2);
        scan->rows = mem_realloc(scan->rows, scan->room * sizeof(*scan->rows));
    }
    scan->rows[scan->count++] =
        (struct found_row){.lsn = h->lsn, .member = member, .start = start, .blocks = h->blocks};
    scan->replay->promised_lsn = MAX(scan->replay->promised_lsn, h->acknowledged);
}

/* A buffer that could not be read into is replaced: what is late may still come. */
static int scan_read(const struct ring_scan *rs, uint32_t at, uint32_t blocks, struct buf **buf) {
    int err = disk_read(rs->scan->replay->pool->disks[rs->member],
                        (RING_START + (uint64_t)at) * BLOCK_BYTES, (uint64_t)blocks * BLOCK_BYTES,
                        *buf, 0);
    if (err != OK) {
        size_t bytes = (*buf)->bytes;
        buf_unref(*buf);
        *buf = buf_new(bytes);
    }
    return err;
}

/* Reads a ring front to back in pieces that overlap by the largest row, and finds rows by walking
 * its blocks: a valid row is stepped over whole. */
static void ring_scan_fiber(void *arg) {
    struct ring_scan *rs = arg;
    struct scan *scan = rs->scan;
    struct pool *pool = scan->replay->pool;
    uint32_t ring = pool->super.geometry.ring_blocks;
    uint32_t overlap = MIN(ring / 4, (uint32_t)(LOG_ROW_BYTES_MAX / BLOCK_BYTES));
    uint32_t piece = MIN(ring, overlap * 4);
    struct buf *buf = buf_new((size_t)piece * BLOCK_BYTES);
    uint64_t last_lsn = 0;
    for (uint32_t at = 0; at < ring;) {
        uint32_t blocks = MIN(piece, ring - at);
        int err = scan_read(rs, at, blocks, &buf);
        if (err != OK) { /* block by block, and row by row, around the bad place */
            blocks = 1;
            err = scan_read(rs, at, blocks, &buf);
            const struct log_row_phys *h = (const struct log_row_phys *)(const void *)buf->data;
            if (err == OK && is_row_head(scan->replay, h) && h->blocks <= piece &&
                at + h->blocks <= ring && h->blocks > 1) {
                uint32_t row_blocks = h->blocks;
                err = scan_read(rs, at, row_blocks, &buf);
                blocks = err == OK ? row_blocks : 1;
            }
        }
        uint32_t next = at + blocks;
        for (uint32_t i = 0; err == OK && i < blocks;) {
            const uint8_t *head = buf->data + (size_t)i * BLOCK_BYTES;
            const struct log_row_phys *h = (const struct log_row_phys *)(const void *)head;
            if (!is_row_head(scan->replay, head)) {
                i++;
                continue;
            }
            if (i > 0 && i + h->blocks > blocks && at + i + h->blocks <= ring) {
                next = at + i; /* cut off by the piece: read again from here */
                break;
            }
            if (log_row_validate(head, (size_t)(blocks - i) * BLOCK_BYTES, &pool->super.pool,
                                 scan->replay->seed) != OK) {
                if (scan->bad_count < BAD_KEPT) {
                    scan->bad_lsn[scan->bad_count++] = h->lsn;
                }
                i++;
                continue;
            }
            scan_add(scan, h, rs->member, at + i);
            if (h->lsn > last_lsn) {
                last_lsn = h->lsn;
                scan->replay->ring_heads[rs->member] = (at + i + h->blocks) % ring;
            }
            i += h->blocks;
        }
        at = next;
        (void)fiber_pace();
    }
    buf_unref(buf);
    fiber_group_done(&scan->group, OK);
}

static int compare_found(const void *a, const void *b) {
    const struct found_row *x = a, *y = b;
    if (x->lsn != y->lsn) {
        return x->lsn < y->lsn ? -1 : 1;
    }
    return (x->member > y->member) - (x->member < y->member);
}

static int replay_row(struct log_replay *r, struct buf *row) {
    const struct log_row_phys *h = (const struct log_row_phys *)(const void *)row->data;
    size_t at = sizeof(*h);
    for (uint32_t i = 0; i < h->records; i++) {
        struct log_record_phys record;
        memcpy(&record, row->data + at, sizeof(record));
        at += sizeof(record);
        const void *header = row->data + at;
        at += round_up(record.header_bytes, 8);
        int err =
            r->record(r->ctx, record.type, header, record.header_bytes, row, at, record.data_bytes);
        if (err != OK) {
            return err;
        }
        at += round_up(record.data_bytes, 8);
        r->records++;
    }
    r->rows++;
    r->bytes += (uint64_t)h->blocks * BLOCK_BYTES;
    return OK;
}

/* The row from whichever ring gives it whole; NULL: none does. */
static struct buf *found_read(struct log_replay *r, const struct found_row *rows, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        struct buf *buf = buf_new((size_t)rows[i].blocks * BLOCK_BYTES);
        int err = disk_read(r->pool->disks[rows[i].member],
                            (RING_START + (uint64_t)rows[i].start) * BLOCK_BYTES,
                            (uint64_t)rows[i].blocks * BLOCK_BYTES, buf, 0);
        if (err == OK) {
            err = log_row_validate(buf->data, buf->bytes, &r->pool->super.pool, r->seed);
        }
        if (err == OK &&
            ((const struct log_row_phys *)(const void *)buf->data)->lsn == rows[i].lsn) {
            return buf;
        }
        r->bad_copies++;
        buf_unref(buf);
    }
    return NULL;
}

static int replay_in_order(struct log_replay *r, const struct found_row *rows, uint64_t count) {
    r->end_lsn = r->start_lsn;
    for (uint64_t i = 0; i < count;) {
        uint64_t same = 1;
        while (i + same < count && rows[i + same].lsn == rows[i].lsn) {
            same++;
        }
        struct buf *row = rows[i].lsn == r->end_lsn ? found_read(r, &rows[i], same) : NULL;
        if (row == NULL) {
            break; /* a gap */
        }
        int err = SABOTAGE(log_row_skipped) && r->end_lsn % 16 == 15 ? OK : replay_row(r, row);
        buf_unref(row);
        if (err != OK) {
            return err;
        }
        r->end_lsn++;
        i += same;
        if (r->progress != NULL) {
            r->progress(r->ctx, (uint32_t)(i * 100 / count));
        }
        (void)fiber_pace();
    }
    return r->end_lsn <= r->promised_lsn ? ERR_DATA_LOSS : OK;
}

int log_replay(struct log_replay *replay) {
    struct scan scan = {.replay = replay};
    struct ring_scan rings[POOL_DISKS_MAX];
    struct pool *pool = replay->pool;
    replay->promised_lsn = replay->acknowledged_lsn;
    if (replay->generation == 0) { /* no mount has written a log yet */
        return OK;
    }
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        replay->ring_heads[m] = pool->super.members[m].ring_tail;
        if (pool->disks[m] == NULL || pool->super.members[m].state != MEMBER_IN_SYNC) {
            continue;
        }
        rings[m] = (struct ring_scan){.scan = &scan, .member = m};
        fiber_group_add(&scan.group);
        fiber_start(pool->env, ring_scan_fiber, &rings[m]);
    }
    int err = fiber_group_wait(&scan.group);
    ASSERT_EQ(err, OK);
    if (scan.count > 0) {
        qsort(scan.rows, scan.count, sizeof(*scan.rows), compare_found);
    }
    err = replay_in_order(replay, scan.rows, scan.count);
    for (uint32_t i = 0; i < scan.bad_count; i++) { /* a torn row behind the end is no damage */
        replay->bad_copies += scan.bad_lsn[i] < replay->end_lsn;
    }
    mem_free(scan.rows);
    return err;
}
