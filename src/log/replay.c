// SPDX-License-Identifier: MPL-2.0
/* Reading the log back after a stop of any kind: see log.h.
 *
 * Every ring is read once, front to back; rows of the generation in question at or above the start
 * are remembered with where they lie. Then they are taken in order, each from the first ring that
 * still gives it whole.
 *
 * No disk is waited for without end. What cannot be read of a ring is left out; and if it may be
 * where a row was that nobody else knows of (behind the last one that was found) the ring counts as
 * missing. The replay is good as long as fewer are missing than a row has copies. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "log/log.h"

enum { BAD_KEPT = 256, READERS_MAX = 16 };

/* A disk that takes longer for a read is asked last. */
#define SLOW_NS (1 * NS_PER_S)
/* One that has given nothing for so long is not waited for: as long as elsewhere (expel_hung()), or
 * longer if there is no other copy of what it holds. */
#define PATIENCE_NS (25 * NS_PER_S)
#define PATIENCE_ALONE_NS (600 * NS_PER_S)

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
    uint64_t avoided; /* mask of members: slow, or with errors */
    uint64_t unread;  /* mask: who may have a row that could not be read, behind all others */
    struct fiber_group group;
};

struct range {
    uint32_t at, blocks; /* of the piece */
};

struct ring_scan {
    struct scan *scan;
    uint32_t member;
    uint64_t last_lsn, read_ns; /* found; when something was last read */
    bool given_up;
    bool cut_short; /* a row, by blocks that cannot be read */
    bool *missing;  /* a block of the ring */
    /* the piece that is being read */
    uint32_t start; /* ring block */
    struct buf *buf;
    struct range *todo, *halves; /* to be read now; then */
    uint32_t count, next, half_count;
    struct fiber_group group;
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

/* ---- reading ---- */

/* With so many rings more that were not read (absent, or unread) an acknowledged row may be on none
 * of the others. */
static bool may_miss_rows(const struct scan *scan, uint32_t more) {
    const struct pool *pool = scan->replay->pool;
    uint32_t storing = pool_storing_count(pool);
    uint32_t copies = MIN(pool->super.meta_copies, (uint32_t)LOG_COPIES_MAX);
    copies = MIN(copies, storing);
    uint32_t without = more;
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        without += pool_member_in_sync(pool, m) &&
                   (pool->disks[m] == NULL || ((scan->unread >> m) & 1) != 0);
    }
    return without >= MAX(1u, copies);
}

static int timed_read(struct scan *scan, uint32_t member, uint32_t at, uint32_t blocks,
                      struct buf *buf, size_t buf_offset) {
    struct pool *pool = scan->replay->pool;
    uint64_t began = env_now_ns(pool->env);
    int err = disk_read(pool->disks[member], (RING_START + (uint64_t)at) * BLOCK_BYTES,
                        (uint64_t)blocks * BLOCK_BYTES, buf, buf_offset);
    if (err != OK || env_now_ns(pool->env) - began >= SLOW_NS) {
        scan->avoided |= 1ull << member;
    }
    return err;
}

/* Of the piece: what cannot be read as a whole is divided. */
static int range_read(struct ring_scan *rs, const struct range *r) {
    struct scan *scan = rs->scan;
    struct env *env = scan->replay->pool->env;
    int err = timed_read(scan, rs->member, rs->start + r->at, r->blocks, rs->buf,
                         (size_t)r->at * BLOCK_BYTES);
    uint64_t patience_ns = may_miss_rows(scan, 1) ? PATIENCE_ALONE_NS : PATIENCE_NS;
    if (err == OK) {
        memset(&rs->missing[rs->start + r->at], false, r->blocks * sizeof(rs->missing[0]));
        rs->read_ns = env_now_ns(env);
    } else if (err == ERR_DISK_GONE || env_now_ns(env) - rs->read_ns >= patience_ns) {
        rs->given_up = true;
    }
    return err;
}

static void reader_fiber(void *arg) {
    struct ring_scan *rs = arg;
    while (rs->next < rs->count && !rs->given_up) {
        struct range r = rs->todo[rs->next++];
        if (range_read(rs, &r) != OK && r.blocks > 1) {
            uint32_t half = r.blocks / 2;
            rs->halves[rs->half_count++] = (struct range){r.at, half};
            rs->halves[rs->half_count++] = (struct range){r.at + half, r.blocks - half};
        }
    }
    fiber_group_done(&rs->group, OK);
}

/* Reads a piece of the ring but for what cannot be read of it: that is found by halving, several
 * halves at once, so that a disk with bad places that takes seconds for each answer costs minutes
 * and not hours. A disk that gives nothing for too long is not read any further. */
static void piece_read(struct ring_scan *rs, uint32_t start, uint32_t blocks) {
    memset(&rs->missing[start], true, blocks * sizeof(rs->missing[0]));
    rs->start = start;
    rs->halves[0] = (struct range){0, blocks};
    rs->half_count = 1;
    while (rs->half_count > 0 && !rs->given_up) {
        struct range *todo = rs->halves;
        rs->halves = rs->todo;
        rs->todo = todo;
        rs->count = rs->half_count;
        rs->next = rs->half_count = 0;
        for (uint32_t i = 0; i < MIN(rs->count, (uint32_t)READERS_MAX); i++) {
            fiber_group_add(&rs->group);
            fiber_start(rs->scan->replay->pool->env, reader_fiber, rs);
        }
        int err = fiber_group_wait(&rs->group);
        ASSERT_EQ(err, OK);
    }
}

/* ---- finding rows ---- */

/* Finds rows by walking the blocks of a piece: a valid row is stepped over whole. Returns where the
 * next piece begins: behind this one, or with a row that is cut off by its end. */
static uint32_t piece_walk(struct ring_scan *rs, uint32_t blocks) {
    struct scan *scan = rs->scan;
    struct pool *pool = scan->replay->pool;
    uint32_t ring = pool->super.geometry.ring_blocks, at = rs->start;
    for (uint32_t i = 0; i < blocks;) {
        const uint8_t *head = rs->buf->data + (size_t)i * BLOCK_BYTES;
        const struct log_row_phys *h = (const struct log_row_phys *)(const void *)head;
        if (rs->missing[at + i] || !is_row_head(scan->replay, head)) {
            i++;
            continue;
        }
        if (i > 0 && i + h->blocks > blocks && at + i + h->blocks <= ring) {
            return at + i;
        }
        if (log_row_validate(head, (size_t)(blocks - i) * BLOCK_BYTES, &pool->super.pool,
                             scan->replay->seed) != OK) {
            if (scan->bad_count < BAD_KEPT) {
                scan->bad_lsn[scan->bad_count++] = h->lsn;
            }
            rs->cut_short |= memchr(&rs->missing[at + i], true, MIN(h->blocks, blocks - i)) != NULL;
            i++;
            continue;
        }
        scan_add(scan, h, rs->member, at + i);
        if (h->lsn > rs->last_lsn) {
            rs->last_lsn = h->lsn;
            scan->replay->ring_heads[rs->member] = (at + i + h->blocks) % ring;
        }
        i += h->blocks;
    }
    return at + blocks;
}

/* Whether a row behind the last one that was found would have been found. */
static bool end_is_known(const struct ring_scan *rs) {
    const struct log_replay *r = rs->scan->replay;
    uint64_t ring = r->pool->super.geometry.ring_blocks, head = r->ring_heads[rs->member] % ring;
    bool wraps = head + LOG_ROW_BYTES_MAX / BLOCK_BYTES > ring; /* perhaps */
    return !rs->cut_short && !rs->missing[head] && !(wraps && rs->missing[0]);
}

/* Reads a ring front to back in pieces that are much larger than the largest row. */
static void ring_scan_fiber(void *arg) {
    struct ring_scan *rs = arg;
    struct pool *pool = rs->scan->replay->pool;
    uint32_t ring = pool->super.geometry.ring_blocks;
    uint32_t piece = MIN(ring / 4, (uint32_t)(LOG_ROW_BYTES_MAX / BLOCK_BYTES)) * 4;
    rs->buf = buf_new((size_t)piece * BLOCK_BYTES);
    rs->missing = MEM_NEW_ARRAY(bool, ring);
    memset(rs->missing, true, ring * sizeof(rs->missing[0]));
    rs->todo = MEM_NEW_ARRAY(struct range, piece);
    rs->halves = MEM_NEW_ARRAY(struct range, piece);
    rs->read_ns = env_now_ns(pool->env);
    for (uint32_t at = 0; at < ring && !rs->given_up;) {
        uint32_t blocks = MIN(piece, ring - at);
        piece_read(rs, at, blocks);
        at = piece_walk(rs, blocks);
        if (((rs->scan->avoided >> rs->member) & 1) != 0) { /* what is late may still come */
            buf_unref(rs->buf);
            rs->buf = buf_new((size_t)piece * BLOCK_BYTES);
        }
        (void)fiber_pace();
    }
    rs->scan->unread |= end_is_known(rs) ? 0 : 1ull << rs->member;
    buf_unref(rs->buf);
    mem_free(rs->missing);
    mem_free(rs->todo);
    mem_free(rs->halves);
    fiber_group_done(&rs->scan->group, OK);
}

/* ---- replaying ---- */

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

static struct buf *copy_read(struct scan *scan, const struct found_row *row, int *ret_error) {
    struct log_replay *r = scan->replay;
    struct buf *buf = buf_new((size_t)row->blocks * BLOCK_BYTES);
    *ret_error = timed_read(scan, row->member, row->start, row->blocks, buf, 0);
    if (*ret_error == OK &&
        log_row_validate(buf->data, buf->bytes, &r->pool->super.pool, r->seed) == OK &&
        ((const struct log_row_phys *)(const void *)buf->data)->lsn == row->lsn) {
        return buf;
    }
    r->bad_copies++;
    buf_unref(buf);
    return NULL;
}

/* The row from whichever ring gives it whole, the prompt ones first; NULL: none does. */
static struct buf *found_read(struct scan *scan, const struct found_row *rows, uint64_t count) {
    uint64_t tried = 0, silent = 0; /* members */
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < count; i++) {
            uint64_t bit = 1ull << rows[i].member;
            if ((tried & bit) != 0 || (round == 0 && (scan->avoided & bit) != 0)) {
                continue;
            }
            tried |= bit;
            int err;
            struct buf *buf = copy_read(scan, &rows[i], &err);
            if (buf != NULL) {
                return buf;
            }
            silent |= err == ERR_TIMEOUT || err == ERR_DISK_GONE ? bit : 0;
        }
    }
    scan->unread |= silent;
    return NULL;
}

static int replay_in_order(struct scan *scan) {
    struct log_replay *r = scan->replay;
    const struct found_row *rows = scan->rows;
    uint64_t count = scan->count;
    r->end_lsn = r->start_lsn;
    for (uint64_t i = 0; i < count;) {
        uint64_t same = 1;
        while (i + same < count && rows[i + same].lsn == rows[i].lsn) {
            same++;
        }
        struct buf *row = rows[i].lsn == r->end_lsn ? found_read(scan, &rows[i], same) : NULL;
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
    err = replay_in_order(&scan);
    if ((err == OK || err == ERR_DATA_LOSS) && scan.unread != 0 && may_miss_rows(&scan, 0)) {
        err = ERR_TIMEOUT;
    }
    for (uint32_t i = 0; i < scan.bad_count; i++) { /* a torn row behind the end is no damage */
        replay->bad_copies += scan.bad_lsn[i] < replay->end_lsn;
    }
    mem_free(scan.rows);
    return err;
}
