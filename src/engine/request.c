// SPDX-License-Identifier: MPL-2.0
/* Volume requests. Each runs as a fiber.
 *
 * A write is admitted (space.c), logged, applied to the overlay at its commit, and answered. Blocks
 * that are written only in part are read, completed and logged whole, under a lock on their range
 * that excludes all other writes to it; whole blocks need no lock among each other. Long writes go
 * straight into rows: the row is durable on every column first, then a REF record is logged
 * (invariant 2). UNMAP is a log record and a hole in the overlay; it looks nothing up. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "engine/private.h"

enum { REF_COLUMN_BLOCKS = 16 };

/* ---- locks on block ranges ---- */

/* Whether a conflicting lock stands before this one in the queue, held or waiting: so nobody is
 * overtaken for ever. */
static bool range_must_wait(const struct volume *v, const struct range_lock *want) {
    if (v->exclusive_locks == 0) {
        return false;
    }
    for (struct list *it = v->locks.next; it != &want->link; it = it->next) {
        const struct range_lock *other = CONTAINER_OF(it, struct range_lock, link);
        if ((want->exclusive || other->exclusive) && other->start < want->end &&
            want->start < other->end) {
            return true;
        }
    }
    return false;
}

static void range_take(struct volume *v, struct range_lock *lock) {
    if (SABOTAGE(rmw_unlocked)) {
        list_init(&lock->link);
        return;
    }
    list_append(&v->locks, &lock->link);
    v->exclusive_locks += lock->exclusive;
    while (range_must_wait(v, lock)) {
        fiber_queue_wait(&v->lock_waiters);
    }
}

void range_take_all(struct volume *v, struct range_lock *lock) {
    *lock = (struct range_lock){.end = UINT64_MAX, .exclusive = true};
    range_take(v, lock);
}

void range_release(struct volume *v, struct range_lock *lock) {
    if (!list_is_empty(&lock->link)) {
        list_remove(&lock->link);
        v->exclusive_locks -= lock->exclusive;
    }
    fiber_queue_wake_all(&v->lock_waiters);
}

/* ---- applying, at the commit or in replay ---- */

void apply_write(struct volume *v, uint64_t block, uint64_t count, struct buf *row,
                 size_t data_offset) {
    struct overlay_extent x = {
        .start = block, .count = count, .kind = OVERLAY_DATA, .buf = row, .offset = data_offset};
    overlay_set(&v->active, &x);
}

void apply_unmap(struct volume *v, uint64_t block, uint64_t count) {
    struct overlay_extent x = {.start = block, .count = count, .kind = OVERLAY_HOLE};
    if (!SABOTAGE(unmap_forgotten)) {
        overlay_set(&v->active, &x);
    }
}

void apply_ref(struct volume *v, uint64_t block, struct placed_row *row, uint32_t count) {
    struct overlay_extent x = {.start = block, .count = count, .kind = OVERLAY_REF, .row = row};
    overlay_set(&v->active, &x);
}

void apply_volume_set(struct volume *v, const struct record_volume_set *set) {
    struct volume_phys *p = &v->phys;
    if (set->profile != p->profile) {
        p->former |= (uint16_t)(1u << p->profile);
        p->profile = set->profile;
        p->relocated_to = 0;
        v->profile_set_at = v->engine->checkpoint_started;
        v->settles = false;
    }
    if (set->reorder == REORDER_BEGINS) {
        p->flags |= VOLUME_FLAG_REORDER;
        p->relocated_to = 0;
    } else if (set->reorder == REORDER_ENDS) {
        p->flags &= (uint16_t)~VOLUME_FLAG_REORDER;
    }
    v->sets++;
    v->relocate_at_ns = 0;
    v->engine->catalog_dirty = true;
    fiber_queue_wake_all(&v->engine->relocate_work);
}

/* ---- a write, piece by piece ---- */

struct write_entry {
    struct log_entry log;
    struct volume *v;
    union {
        struct record_range range;
        struct record_ref *ref;
    } record;
    struct placed_row *row; /* REF */
    struct charge charge;
};

/* The volume may have been deleted since; its struct lives until its requests have ended. */
static void entry_applied(struct write_entry *w) {
    space_release(w->v->engine, w->v, &w->charge, true);
    w->charge = (struct charge){0};
}

static void write_apply(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct write_entry *w = CONTAINER_OF(log, struct write_entry, log);
    apply_write(w->v, w->record.range.block, w->record.range.count, row, data_offset);
    entry_applied(w);
}

static void unmap_apply(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct write_entry *w = CONTAINER_OF(log, struct write_entry, log);
    (void)row;
    (void)data_offset;
    apply_unmap(w->v, w->record.range.block, w->record.range.count);
}

static void ref_apply(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct write_entry *w = CONTAINER_OF(log, struct write_entry, log);
    (void)row;
    (void)data_offset;
    apply_ref(w->v, w->record.ref->block, w->row, w->record.ref->count);
    w->row->segment->ref_round = w->v->engine->checkpoint_started;
    entry_applied(w);
}

/* The content of whole blocks as a scatter list over the request and completed edge blocks. */
struct content {
    const struct iovec *iov;
    uint32_t iov_count;
};

/* Bytes [at, at + bytes) of `from`, into ret_iov; returns the elements used. */
static uint32_t content_slice(const struct content *from, uint64_t at, uint64_t bytes,
                              struct iovec *ret_iov, uint32_t room) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < from->iov_count && bytes > 0; i++) {
        if (at >= from->iov[i].iov_len) {
            at -= from->iov[i].iov_len;
            continue;
        }
        size_t n = MIN((uint64_t)from->iov[i].iov_len - at, bytes);
        ASSERT_LT(used, room);
        ret_iov[used++] =
            (struct iovec){.iov_base = (uint8_t *)from->iov[i].iov_base + at, .iov_len = n};
        bytes -= n;
        at = 0;
    }
    ASSERT_EQ(bytes, 0);
    return used;
}

/* Admits a piece of a write, unless that was done for `all` of it. Nobody waits for room and holds
 * some: the head of the queue of writers would wait for it to become facts, for ever. */
static int admit_piece(struct engine *e, struct volume *v, uint64_t block, uint32_t count,
                       struct charge *all, struct charge *ret_charge) {
    if (all->bytes < (uint64_t)count * BLOCK_BYTES) {
        space_release(e, v, all, false);
        *all = (struct charge){0};
        return space_admit(e, v, block, count, ret_charge);
    }
    *ret_charge = (struct charge){.blocks = MIN(all->blocks, (uint64_t)count),
                                  .bytes = (uint64_t)count * BLOCK_BYTES};
    all->blocks -= ret_charge->blocks;
    all->bytes -= ret_charge->bytes;
    return OK;
}

/* Gives back to `all` what a piece of `count` blocks does not need. */
static void charge_keep(struct charge *charge, uint32_t count, struct charge *all) {
    uint64_t blocks = MIN(charge->blocks, (uint64_t)count), bytes = (uint64_t)count * BLOCK_BYTES;
    all->blocks += charge->blocks - blocks;
    all->bytes += charge->bytes - bytes;
    *charge = (struct charge){.blocks = blocks, .bytes = bytes};
}

/* Logs `count` blocks inline. */
static int write_inline(struct engine *e, struct volume *v, uint64_t block, uint32_t count,
                        const struct content *content, uint64_t at, struct charge *all) {
    struct iovec *iov = MEM_NEW_ARRAY(struct iovec, content->iov_count + 1);
    struct write_entry w = {.log = {.type = RECORD_WRITE,
                                    .header_bytes = sizeof(struct record_range),
                                    .iov = iov,
                                    .data_bytes = count * BLOCK_BYTES,
                                    .apply = write_apply},
                            .v = v,
                            .record.range = {.volume = v->phys.id, .block = block, .count = count}};
    w.log.header = &w.record.range;
    w.log.iov_count =
        content_slice(content, at, (uint64_t)count * BLOCK_BYTES, iov, content->iov_count + 1);
    int err = admit_piece(e, v, block, count, all, &w.charge);
    if (err == OK) {
        /* It may have waited for the checkpoint that found the volume damaged. */
        bool damaged = (v->phys.flags & VOLUME_FLAG_DAMAGED) != 0;
        err = damaged ? ERR_DATA_LOSS : log_append(e->log, &w.log);
        space_release(e, v, &w.charge, false); /* nothing if it was applied */
    }
    mem_free(iov);
    return err;
}

/* ---- long writes: a row, then a REF ---- */

struct announcement {
    struct log_entry log;
    struct record_segment record;
    struct segment *segment; /* held by the row that waits to be referred to */
};

static void announced_apply(struct log_entry *entry, struct buf *row, size_t data_offset) {
    (void)row;
    (void)data_offset;
    CONTAINER_OF(entry, struct announcement, log)->segment->announced = true;
}

/* A log record that makes the segment known to a replay, unless something already does: a record
 * that is only under way may still fail for want of room, so others have one of their own; a replay
 * takes the first. */
static void announce(struct engine *e, struct segment *s, struct announcement *a) {
    a->log.done = true;
    a->log.result = OK;
    if (s->announced) {
        return;
    }
    a->record = (struct record_segment){.slot = s->slot};
    segment_to_phys(s, &a->record.segment);
    a->log = (struct log_entry){.type = RECORD_SEGMENT,
                                .header = &a->record,
                                .header_bytes = sizeof(a->record),
                                .patient = true,
                                .apply = announced_apply};
    a->segment = s;
    log_start(e->log, &a->log);
}

/* Data blocks of the largest row in a new segment of the volume's profile. */
static uint32_t fresh_row_blocks(struct engine *e, const struct volume *v) {
    uint32_t disks = MAX(1u, pool_storing_count(e->pool));
    struct segment fresh = {.shape = profile_shape((enum profile)v->phys.profile, disks)};
    return row_capacity(&e->table, &fresh, false, false);
}

/* Writes of at least this many blocks go straight into rows. */
static uint32_t ref_least_blocks(struct engine *e, const struct volume *v) {
    uint32_t disks = MAX(1u, pool_storing_count(e->pool));
    struct shape shape = profile_shape((enum profile)v->phys.profile, disks);
    uint32_t stripe = shape.data * (uint32_t)REF_COLUMN_BLOCKS;
    uint32_t fresh = fresh_row_blocks(e, v);
    return MAX(2u, MIN(stripe, fresh / 2));
}

/* Whether the end of a segment, with room for fewer than the `count` blocks that are left of a
 * write, is given up: where it would be a short row; or where the blocks that do not fit would be
 * too few for a row of their own, and take one more turn of the log, if it is an eighth of the
 * segment at most and chunks are plenty. */
static bool segment_rest_is_small(struct engine *e, const struct volume *v, const struct segment *s,
                                  uint32_t room, uint32_t count) {
    const struct segment_table *t = &e->table;
    uint32_t least = ref_least_blocks(e, v);
    uint64_t data_blocks = (uint64_t)e->pool->super.geometry.chunk_blocks * s->shape.data;
    if (room < least || count - room >= least || room > data_blocks / 8) {
        return room < least;
    }
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        uint32_t disk = s->column[c].disk;
        if (t->chunk_free[disk] < t->chunk_count[disk] / 4) {
            return false;
        }
    }
    return true;
}

/* Copies and checksums the blocks, each in one pass if it lies in one piece. */
static void row_take_content(struct row *row, uint64_t vba, const struct iovec *iov, uint32_t n) {
    size_t within = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < row->blocks; i++) {
        uint8_t *to = row_block(row, i);
        row->vba[i] = vba + i;
        for (size_t have = 0; have < BLOCK_BYTES;) {
            ASSERT_LT(at, n);
            const uint8_t *from = (const uint8_t *)iov[at].iov_base + within;
            size_t bytes = MIN(iov[at].iov_len - within, BLOCK_BYTES - have);
            if (bytes == BLOCK_BYTES) {
                row->crc[i] = crc32c_seeded_copy(vba + i, to, from, BLOCK_BYTES, false);
            } else {
                memcpy(to + have, from, bytes);
            }
            have += bytes;
            within += bytes;
            if (have == BLOCK_BYTES && bytes < BLOCK_BYTES) {
                row->crc[i] = crc32c_seeded(vba + i, to, BLOCK_BYTES);
            }
            if (within == iov[at].iov_len) {
                within = 0;
                at++;
            }
        }
    }
}

/* A row with room for up to `count` blocks, filled from the content, not yet written. */
static int ref_build(struct engine *e, struct volume *v, uint64_t block, uint32_t count,
                     const struct content *content, uint64_t at, struct row **ret_row) {
    enum profile p = (enum profile)v->phys.profile;
    struct row *row = NULL;
    int err = ERR_NO_SPACE;
    for (int attempt = 0; attempt < 2 && err == ERR_NO_SPACE; attempt++) {
        struct segment *s = stream_segment(e, &e->hot[p], SEGMENT_DATA, p,
                                           e->ref_keep_free + e->relocating_chunks, &err);
        if (s == NULL) {
            return err;
        }
        uint32_t room = row_capacity(&e->table, s, false, false);
        if (room < count && s->used_blocks > 0 && segment_rest_is_small(e, v, s, room, count)) {
            segment_seal(&e->table, s);
            err = ERR_NO_SPACE;
            continue;
        }
        if (room == 0) {
            return ERR_NO_SPACE;
        }
        err = row_new(&e->table, s, MIN(count, room), 1, e->pool->super.mount_generation, &row);
    }
    if (err != OK) {
        return err;
    }
    uint64_t vba = engine_take_vba_run(e);
    *ret_row = row; /* the caller's in any case */
    if (vba == 0) {
        return ERR_LIMIT;
    }
    row->runs[0] = (struct row_run_phys){.vba = vba,
                                         .offset = block,
                                         .volume = (uint32_t)v->phys.id,
                                         .count = (uint16_t)row->blocks,
                                         .kind = ROW_OWNER_DATA};
    struct iovec *iov = MEM_NEW_ARRAY(struct iovec, content->iov_count + 1);
    uint32_t n = content_slice(content, at, (uint64_t)row->blocks * BLOCK_BYTES, iov,
                               content->iov_count + 1);
    row_take_content(row, vba, iov, n);
    mem_free(iov);
    row_finish(row);
    return OK;
}

static int ref_write_row(struct engine *e, struct volume *v, struct row *row) {
    enum profile p = (enum profile)v->phys.profile;
    int err = row_write(row, true);
    for (int moves = 0; err == ERR_IO && moves < 8; moves++) {
        struct segment *s = stream_segment(e, &e->hot[p], SEGMENT_DATA, p, 1, &err);
        err = s == NULL ? err : row_move(row, s);
        if (err == ERR_NO_SPACE && s != NULL) {
            segment_seal(&e->table, s);
            err = ERR_IO;
            continue;
        }
        if (err == OK) {
            err = row_write(row, true);
        }
    }
    return err;
}

static int ref_log(struct engine *e, struct volume *v, uint64_t block, const struct row *row,
                   struct charge *charge) {
    uint32_t bytes = (uint32_t)(sizeof(struct record_ref) + row->blocks * sizeof(uint32_t));
    struct record_ref *ref = mem_alloc(bytes);
    struct placed_row *placed = placed_row_new(row->segment, row->blocks);
    *ref = (struct record_ref){.volume = v->phys.id,
                               .block = block,
                               .vba = row->vba[0],
                               .segment_uid = row->segment->uid,
                               .count = row->blocks,
                               .segment = row->segment->slot,
                               .offset = row->offset,
                               .height = row->height,
                               .header_blocks = row->header_blocks};
    memcpy(ref->crc, row->crc, row->blocks * sizeof(uint32_t));
    memcpy(placed->crc, row->crc, row->blocks * sizeof(uint32_t));
    placed->offset = row->offset;
    placed->height = row->height;
    placed->header_blocks = row->header_blocks;
    placed->vba = row->vba[0];
    struct announcement a;
    announce(e, row->segment, &a);
    struct write_entry w = {.log = {.type = RECORD_REF,
                                    .header = ref,
                                    .header_bytes = (uint16_t)bytes,
                                    .patient = true,
                                    .apply = ref_apply},
                            .v = v,
                            .record.ref = ref,
                            .row = placed,
                            .charge = *charge};
    log_start(e->log, &w.log);
    log_expect(e->log, -1);
    int err = log_wait(e->log, &w.log);
    int announced = log_wait(e->log, &a.log);
    *charge = w.charge; /* cleared if it was applied */
    placed_row_unref(placed);
    mem_free(ref);
    return err != OK ? err : announced;
}

/* Writes up to `count` blocks as one row; *ret_done says how many. ERR_NO_SPACE: no chunk to spare,
 * the caller writes inline. */
static int write_ref(struct engine *e, struct volume *v, uint64_t block, uint32_t count,
                     const struct content *content, uint64_t at, struct charge *all,
                     uint32_t *ret_done) {
    struct row *row = NULL;
    struct charge charge = {0};
    int err = admit_piece(e, v, block, MIN(count, (uint32_t)ROW_DATA_MAX), all, &charge);
    if (err != OK) {
        return err;
    }
    err = (v->phys.flags & VOLUME_FLAG_DAMAGED) != 0
              ? ERR_DATA_LOSS
              : ref_build(e, v, block, count, content, at, &row);
    if (err == OK) { /* its data takes no memory, and the room on disk is taken */
        charge_keep(&charge, row->blocks, all);
        space_forgive_bytes(v, &charge);
        log_expect(e->log, 1);
    }
    if (err == OK && SABOTAGE(ref_before_row)) {
        err = ref_log(e, v, block, row, &charge);
        *ret_done = row->blocks;
        if (err == OK) {
            err = ref_write_row(e, v, row);
        }
    } else if (err == OK) {
        err = ref_write_row(e, v, row);
        if (err == OK) {
            err = ref_log(e, v, block, row, &charge);
            *ret_done = row->blocks;
            e->ref_blocks += row->blocks;
            e->bytes_rows += row->buf->bytes * row->segment->shape.copies;
        } else {
            log_expect(e->log, -1);
        }
    }
    if (err == ERR_NO_SPACE) { /* or a disk was lost, and nowhere else is a chunk to spare */
        *ret_done = 0;
        err = OK;
        charge_keep(&charge, 0, all); /* inline it needs that, too */
    }
    space_release(e, v, &charge, false);
    row_free(row);
    return err;
}

/* Writes whole blocks from `content`, as rows where they are long enough. Near the end of space all
 * of it is admitted together, because each admission may wait for a checkpoint. */
static int write_whole(struct engine *e, struct volume *v, uint64_t block, uint64_t count,
                       const struct content *content) {
    uint32_t inline_max = log_data_max(e->log, sizeof(struct record_range)) / BLOCK_BYTES;
    uint32_t ref_least = ref_least_blocks(e, v);
    struct charge all = {0};
    int err = space_is_plenty(e, v, count) ? OK : space_admit(e, v, block, count, &all);
    for (uint64_t done = 0; done < count && err == OK;) {
        uint32_t n = 0;
        if (count - done >= ref_least) {
            err = write_ref(e, v, block + done, (uint32_t)MIN(count - done, (uint64_t)ROW_DATA_MAX),
                            content, done * BLOCK_BYTES, &all, &n);
        }
        if (err == OK && n == 0) {
            n = (uint32_t)MIN(count - done, (uint64_t)inline_max);
            err = write_inline(e, v, block + done, n, content, done * BLOCK_BYTES, &all);
        }
        done += n;
    }
    space_release(e, v, &all, false);
    return err;
}

/* ---- requests ---- */

struct edges { /* first and last block of a range that covers them only in part */
    struct buf *buf;
    struct iovec *iov; /* edge, request, edge */
};

/* Completes the edge blocks with what they hold. The range is locked. */
static int edges_read(struct engine *e, struct volume *v, struct volume_request *q, struct edges *x,
                      struct content *ret_content) {
    uint64_t start = q->offset_bytes, end = q->offset_bytes + q->length_bytes;
    size_t head = start % BLOCK_BYTES,
           tail = end % BLOCK_BYTES ? BLOCK_BYTES - end % BLOCK_BYTES : 0;
    int err = OK;
    x->buf = buf_new(2 * BLOCK_BYTES);
    x->iov = MEM_NEW_ARRAY(struct iovec, q->iov_count + 2);
    if (head > 0) {
        err = read_blocks(e, v, start / BLOCK_BYTES, 1, x->buf->data, NULL);
    }
    if (tail > 0 && err == OK) {
        err = read_blocks(e, v, end / BLOCK_BYTES, 1, x->buf->data + BLOCK_BYTES, NULL);
    }
    uint32_t n = 0;
    if (head > 0) {
        x->iov[n++] = (struct iovec){.iov_base = x->buf->data, .iov_len = head};
    }
    memcpy(&x->iov[n], q->iov, q->iov_count * sizeof(*q->iov));
    n += q->iov_count;
    if (tail > 0) {
        x->iov[n++] =
            (struct iovec){.iov_base = x->buf->data + 2 * BLOCK_BYTES - tail, .iov_len = tail};
    }
    *ret_content = (struct content){.iov = x->iov, .iov_count = n};
    return err;
}

static void edges_free(struct edges *x) {
    buf_unref(x->buf);
    mem_free(x->iov);
}

static struct range_lock range_of(const struct volume_request *q, bool exclusive) {
    return (struct range_lock){.start = q->offset_bytes / BLOCK_BYTES,
                               .end = div_round_up(q->offset_bytes + q->length_bytes, BLOCK_BYTES),
                               .exclusive = exclusive};
}

static bool is_whole(const struct volume_request *q) {
    return q->offset_bytes % BLOCK_BYTES == 0 && q->length_bytes % BLOCK_BYTES == 0;
}

static int write_locked(struct engine *e, struct volume *v, struct volume_request *q) {
    struct range_lock range = range_of(q, false);
    struct content content = {.iov = q->iov, .iov_count = q->iov_count};
    struct edges x = {0};
    int err = OK;
    if (!is_whole(q)) {
        err = edges_read(e, v, q, &x, &content);
    }
    if (err == OK) {
        err = write_whole(e, v, range.start, range.end - range.start, &content);
    }
    edges_free(&x);
    return err;
}

static int write_request(struct engine *e, struct volume *v, struct volume_request *q) {
    struct range_lock lock = range_of(q, !is_whole(q));
    e->writes++;
    e->write_bytes += q->length_bytes;
    range_take(v, &lock);
    int err = write_locked(e, v, q);
    range_release(v, &lock);
    return err;
}

static int unmap_blocks(struct engine *e, struct volume *v, uint64_t block, uint64_t count) {
    struct write_entry w = {.log = {.type = RECORD_UNMAP,
                                    .header_bytes = sizeof(struct record_range),
                                    .apply = unmap_apply},
                            .v = v,
                            .record.range = {.volume = v->phys.id, .block = block, .count = count}};
    w.log.header = &w.record.range;
    int err = log_append(e->log, &w.log);
    if (err == OK && e->postponed) {
        checkpoint_want(e); /* perhaps it fits now */
    }
    return err;
}

static int unmap_request(struct engine *e, struct volume *v, struct volume_request *q) {
    uint64_t first = div_round_up(q->offset_bytes, BLOCK_BYTES);
    uint64_t end = (q->offset_bytes + q->length_bytes) / BLOCK_BYTES;
    e->unmaps++;
    if (first >= end) {
        return OK;
    }
    struct range_lock lock = {.start = first, .end = end};
    range_take(v, &lock);
    int err = unmap_blocks(e, v, first, end - first);
    range_release(v, &lock);
    return err;
}

/* Part of a block at either end is written as zeroes; the blocks between are unmapped. */
static int zeroes_request(struct engine *e, struct volume *v, struct volume_request *q) {
    static const uint8_t zeroes[BLOCK_BYTES];
    uint64_t start = q->offset_bytes, end = start + q->length_bytes;
    uint64_t first = round_up(start, BLOCK_BYTES), last = round_down(end, BLOCK_BYTES);
    struct {
        uint64_t start, end;
    } edge[2] = {{start, MIN(first, end)}, {MAX(last, MIN(first, end)), end}};
    struct range_lock lock = range_of(q, !is_whole(q));
    int err = OK;
    range_take(v, &lock);
    for (int i = 0; i < 2 && err == OK; i++) {
        if (edge[i].end > edge[i].start) {
            struct iovec iov = {.iov_base = (void *)(uintptr_t)zeroes,
                                .iov_len = edge[i].end - edge[i].start};
            struct volume_request part = *q;
            part.offset_bytes = edge[i].start;
            part.length_bytes = iov.iov_len;
            part.iov = &iov;
            part.iov_count = 1;
            err = write_locked(e, v, &part);
        }
    }
    if (err == OK && first < last) {
        err = unmap_blocks(e, v, first / BLOCK_BYTES, (last - first) / BLOCK_BYTES);
    }
    range_release(v, &lock);
    return err;
}

/* Compares bytes [at, …) of `have` with the first half of the request; offset of the first
 * difference, or UINT64_MAX. */
static uint64_t first_difference(const struct volume_request *q, const uint8_t *have) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < q->iov_count && at < q->length_bytes; i++) {
        size_t n = MIN((uint64_t)q->iov[i].iov_len, q->length_bytes - at);
        const uint8_t *want = q->iov[i].iov_base;
        if (memcmp(have + at, want, n) != 0) {
            for (size_t j = 0;; j++) {
                if (have[at + j] != want[j]) {
                    return at + j;
                }
            }
        }
        at += n;
    }
    return UINT64_MAX;
}

static int compare_and_write_request(struct engine *e, struct volume *v, struct volume_request *q) {
    struct range_lock lock = range_of(q, true);
    uint32_t count = (uint32_t)(lock.end - lock.start);
    if ((uint64_t)count * BLOCK_BYTES > log_data_max(e->log, sizeof(struct record_range))) {
        return ERR_INVALID; /* must fit one record to be atomic */
    }
    struct buf *buf = buf_new((size_t)count * BLOCK_BYTES);
    uint8_t *have = buf->data + q->offset_bytes % BLOCK_BYTES;
    uint64_t bad = 0;
    range_take(v, &lock);
    int err = read_blocks(e, v, lock.start, count, buf->data, &bad);
    if (err != OK) {
        q->error_bytes = bad > lock.start ? bad * BLOCK_BYTES - q->offset_bytes : 0;
    } else {
        uint64_t difference = first_difference(q, have);
        if (difference != UINT64_MAX) {
            q->error_bytes = difference;
            err = ERR_MISCOMPARE;
        }
    }
    if (err == OK) {
        struct content all = {.iov = q->iov, .iov_count = q->iov_count};
        struct iovec *iov = MEM_NEW_ARRAY(struct iovec, q->iov_count + 1);
        uint32_t n = content_slice(&all, q->length_bytes, q->length_bytes, iov, q->iov_count + 1);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(have, iov[i].iov_base, iov[i].iov_len);
            have += iov[i].iov_len;
        }
        struct iovec whole = {.iov_base = buf->data, .iov_len = (size_t)count * BLOCK_BYTES};
        struct content content = {.iov = &whole, .iov_count = 1};
        struct charge none = {0};
        err = write_inline(e, v, lock.start, count, &content, 0, &none);
        mem_free(iov);
    }
    range_release(v, &lock);
    buf_unref(buf);
    return err;
}

static int flush_request(struct engine *e, struct volume *v, struct volume_request *q) {
    (void)e;
    (void)v;
    (void)q;
    return OK; /* whatever has been answered is in the log, durably */
}

static int read_op(struct engine *e, struct volume *v, struct volume_request *q) {
    e->reads++;
    e->read_bytes += q->length_bytes;
    uint64_t first = q->offset_bytes / BLOCK_BYTES;
    uint64_t end = div_round_up(q->offset_bytes + q->length_bytes, BLOCK_BYTES);
    int err = read_request(e, v, q);
    if (err == OK && q->op == VOLUME_READ) {
        read_ahead_note(e, v, first, end - first);
    }
    return err;
}

static const struct {
    int (*run)(struct engine *e, struct volume *v, struct volume_request *q);
    uint64_t bytes_max;
    uint32_t iov_factor; /* iovec bytes per length byte */
    bool any_length;     /* runs with a length of 0, too */
    bool changes_nothing;
    bool touches_no_block; /* goes on whatever has become of the volume's own metadata */
} ops[VOLUME_OPS] = {
    [VOLUME_READ] = {read_op, VOLUME_REQUEST_BYTES_MAX, 1, .changes_nothing = true},
    [VOLUME_WRITE] = {write_request, VOLUME_REQUEST_BYTES_MAX, 1},
    [VOLUME_FLUSH] = {flush_request, UINT64_MAX, 0, .any_length = true},
    [VOLUME_UNMAP] = {unmap_request, UINT64_MAX, 0},
    [VOLUME_WRITE_ZEROES] = {zeroes_request, UINT64_MAX, 0},
    [VOLUME_COMPARE_AND_WRITE] = {compare_and_write_request, VOLUME_COMPARE_BYTES_MAX, 2},
    [VOLUME_VERIFY] = {read_op, UINT64_MAX, 0, .changes_nothing = true},
    [VOLUME_KEEP] = {about_keep, VOLUME_RECORD_BYTES_MAX, 1, .any_length = true,
                     .touches_no_block = true},
    [VOLUME_RECALL] = {about_recall, VOLUME_RECORD_BYTES_MAX, 1, .changes_nothing = true,
                       .touches_no_block = true},
    [VOLUME_QUERY] = {about_query, UINT64_MAX, 0, .changes_nothing = true},
    [VOLUME_SPACE] = {about_space, 0, 0, .any_length = true, .changes_nothing = true,
                      .touches_no_block = true},
};

static int request_validate(const struct volume *v, const struct volume_request *q) {
    if (q->op >= VOLUME_OPS || q->offset_bytes % SECTOR_BYTES != 0 ||
        q->length_bytes % SECTOR_BYTES != 0 || q->length_bytes > ops[q->op].bytes_max) {
        return ERR_INVALID;
    }
    if (!range_is_within(q->offset_bytes, q->length_bytes, v->phys.size_bytes)) {
        return ERR_RANGE;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < q->iov_count; i++) {
        bytes += q->iov[i].iov_len;
    }
    return bytes == q->length_bytes * ops[q->op].iov_factor || ops[q->op].iov_factor == 0
               ? OK
               : ERR_INVALID;
}

/* Part of its metadata is lost: see merge.c. What a front end keeps beside it is not. */
static int volume_fault(const struct volume *v, enum volume_op op) {
    bool changes = !ops[op].changes_nothing && op != VOLUME_FLUSH;
    uint32_t flags = VOLUME_FLAG_BROKEN | (changes ? VOLUME_FLAG_DAMAGED : 0);
    return !ops[op].touches_no_block && (v->phys.flags & flags) != 0 ? ERR_DATA_LOSS : OK;
}

static int request_run(struct engine *e, struct volume_request *q) {
    struct volume *v = engine_volume(e, q->volume_id);
    if (v == NULL) {
        return ERR_NOT_FOUND;
    }
    int err = request_validate(v, q);
    if (err == OK && e->state == ENGINE_FAILED && !ops[q->op].changes_nothing) {
        err = ERR_READ_ONLY;
    }
    if (err == OK) {
        err = volume_fault(v, q->op);
    }
    if (err != OK || (q->length_bytes == 0 && !ops[q->op].any_length)) {
        return err;
    }
    v->users++;
    err = ops[q->op].run(e, v, q);
    v->users--;
    return err;
}

static struct volume_request *queue_pop(struct engine *e) {
    struct volume_request *q = e->queue_head;
    if (q != NULL) {
        e->queue_head =
            q->task.next == NULL ? NULL : CONTAINER_OF(q->task.next, struct volume_request, task);
        if (e->queue_head == NULL) {
            e->queue_tail = NULL;
        }
        q->task.next = NULL;
    }
    return q;
}

static void request_fiber(void *arg) {
    struct volume_request *q = arg;
    struct engine *e = CONTAINER_OF(q->door, struct engine, door);
    while (q != NULL) {
        volume_complete(q, request_run(e, q));
        q = queue_pop(e);
    }
    e->running--;
    if (e->running == 0) {
        fiber_queue_wake_all(&e->idle);
    }
}

void request_dispatch(struct volume_door *door, struct volume_request *q) {
    struct engine *e = CONTAINER_OF(door, struct engine, door);
    if (e->state == ENGINE_CLOSING) {
        volume_complete(q, ERR_SHUTDOWN);
        return;
    }
    e->request_at_ns = env_now_ns(e->env);
    if (e->running >= e->limits.requests) {
        q->task.next = NULL;
        if (e->queue_tail != NULL) {
            e->queue_tail->task.next = &q->task;
        } else {
            e->queue_head = q;
        }
        e->queue_tail = q;
        return;
    }
    e->running++;
    fiber_start(e->env, request_fiber, q);
}

void requests_refuse(struct engine *e, int error) {
    struct volume_request *q;
    while ((q = queue_pop(e)) != NULL) {
        volume_complete(q, error);
    }
}
