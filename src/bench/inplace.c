// SPDX-License-Identifier: MPL-2.0
/* The yardstick: an array that overwrites in place, as strong as such an array gets without memory
 * that survives a power cut.
 *
 * Layout. A stripe is one strip of 64 KiB on each disk of the profile's shape; parity moves by one
 * disk from stripe to stripe, mirrored strips lie on neighbouring disks.
 *
 * Writes are acknowledged as soon as they are in memory (`write_back_bytes`, 256 MiB by default)
 * and wait there until half of it is used; a writer waits only when all of it is. Then stripes are
 * written in the order of the disk, round and round, many at a time. Of a stripe all that is dirty
 * goes at once. For each row of 4 KiB across the disks that has parity the cheaper way is taken:
 * read the old data and the old parity (read-modify-write), or read the data that is not being
 * written (reconstruct), or nothing, when the whole row is new. The stripe at
 * which a stream is writing is left until it is whole, unless nothing else would make room.
 *
 * Reads look in memory first, then go to the disks, of mirrors to the one with less to do. A stream
 * is read ahead, twice as far each time. What was read or written stays until the room is needed
 * (second chance).
 *
 * With a disk lost, its strips are read from the mirror, or computed from all others of the row;
 * rows are written without it. A rebuild fills a blank disk from the first stripe to the last; what
 * it has passed is not lost any more.
 *
 * Where it is too good: acknowledged writes are lost at a power cut, and parity that was being
 * written is then wrong (no journal, no bitmap is paid for); processors take no time beyond the
 * link's; nothing is ever synchronised. */
#include "bench/inplace.h"

#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/fiber.h"

enum {
    DISKS_MAX = SEGMENT_COLUMNS_MAX,
    STRIP = INPLACE_STRIP_BLOCKS,
    STRIPES_AT_ONCE = 64,
    REBUILD_STRIPES = 16, /* at once */
    STREAMS = 8,
    STREAM_SLACK = 2, /* requests of a stream that several paths brought out of order */
    AHEAD_MIN_BLOCKS = 32,
    AHEAD_MAX_BLOCKS = 1024,
    SCRATCH_BYTES = 2 << 20,
};

enum { CLEAN = 1, DIRTY = 2, WRITING = 4, READING = 8, USED = 16 }; /* of a page */

struct stripe {
    uint16_t dirty;
    bool busy;
};

struct stream {
    uint64_t next, ahead_end, used; /* blocks; used: when, for replacing the oldest */
    uint32_t window;                /* blocks; 0: seen once */
};

struct inplace {
    struct volume_door door;
    struct env *env;
    struct shape shape;
    uint32_t columns;
    struct env_disk *disks[DISKS_MAX];
    uint32_t outstanding[DISKS_MAX];
    uint32_t lost;    /* UINT32_MAX: none */
    uint64_t rebuilt; /* stripes of it, from the first on, that are there again */
    bool bare;
    uint64_t blocks, stripe_blocks, stripe_count;
    uint8_t *pages;
    struct stripe *stripes;
    uint64_t dirty, waiting; /* pages in memory for writing; those that no write has taken yet */
    uint64_t dirty_limit, cached, cached_limit, hand, sweep;
    uint32_t flushing, blocked;
    bool settling;
    struct fiber_queue room, arrived, idle;
    struct stream readers[STREAMS], writers[STREAMS];
    uint64_t stream_clock;
    struct mem_pages *scratch; /* zeroes, of all writes and for all reads */
    struct inplace_counters counters;
};

/* ---- places ---- */

static uint32_t disk_of(const struct inplace *a, uint64_t stripe, uint32_t column, uint32_t copy) {
    if (a->shape.parity > 0) {
        return (uint32_t)((stripe + column) % a->columns);
    }
    return column * a->shape.copies + copy;
}

static uint32_t column_of(const struct inplace *a, uint64_t block) {
    return (uint32_t)(block / STRIP % a->shape.data);
}

static bool is_lost(const struct inplace *a, uint64_t stripe, uint32_t disk) {
    return disk == a->lost && stripe >= a->rebuilt;
}

/* Of a column's copies that are there, the one whose disk has less to do; UINT32_MAX: none is. */
static uint32_t disk_to_read(const struct inplace *a, uint64_t stripe, uint32_t column) {
    uint32_t best = UINT32_MAX;
    for (uint32_t copy = 0; copy < a->shape.copies; copy++) {
        uint32_t disk = disk_of(a, stripe, column, copy);
        if (!is_lost(a, stripe, disk) &&
            (best == UINT32_MAX || a->outstanding[disk] < a->outstanding[best])) {
            best = disk;
        }
    }
    return best;
}

/* ---- I/O ---- */

struct batch { /* I/Os that belong together */
    struct inplace *array;
    uint32_t pending;
    int error;
    uint64_t first, count; /* the pages that have been read when it ends */
    struct fiber *waiter;
    bool on_heap; /* nobody waits for it: it frees itself */
};

struct op {
    struct env_io io;
    struct iovec iov;
    struct batch *batch;
    uint32_t disk;
};

static void pages_arrive(struct inplace *a, uint64_t first, uint64_t count);

static void batch_end(struct batch *b) {
    if (--b->pending > 0) {
        return;
    }
    pages_arrive(b->array, b->first, b->count);
    if (b->on_heap) {
        mem_free(b);
    } else if (b->waiter != NULL) {
        fiber_wake(b->waiter);
    }
}

static void op_done(struct env_io *io) {
    struct op *op = CONTAINER_OF(io, struct op, io);
    struct batch *b = op->batch;
    b->array->outstanding[op->disk]--;
    b->error = b->error == OK ? io->result : b->error;
    mem_free(op);
    batch_end(b);
}

static void issue(struct batch *b, bool write, uint32_t disk, uint64_t block, uint64_t count) {
    struct inplace *a = b->array;
    while (count > 0) {
        uint64_t bytes = MIN(count * BLOCK_BYTES, (uint64_t)SCRATCH_BYTES);
        struct op *op = MEM_NEW(struct op);
        op->batch = b;
        op->disk = disk;
        op->iov = (struct iovec){.iov_base = a->scratch->data, .iov_len = bytes};
        op->io = (struct env_io){.op = write ? ENV_IO_WRITE : ENV_IO_READ,
                                 .offset_bytes = block * BLOCK_BYTES,
                                 .length_bytes = bytes,
                                 .iov = &op->iov,
                                 .iov_count = 1,
                                 .done = op_done};
        a->outstanding[disk]++;
        a->counters.disk_reads += !write;
        a->counters.disk_writes += write;
        a->counters.disk_read_bytes += write ? 0 : bytes;
        a->counters.disk_write_bytes += write ? bytes : 0;
        b->pending++;
        block += bytes / BLOCK_BYTES;
        count -= bytes / BLOCK_BYTES;
        env_disk_submit(a->disks[disk], &op->io);
    }
}

/* `pending` began at 1, so that it could not end while it was being filled. */
static int batch_wait(struct batch *b) {
    batch_end(b);
    while (b->pending > 0) {
        b->waiter = fiber_self();
        fiber_park();
    }
    return b->error;
}

/* ---- reading ---- */

struct piece { /* of one disk, grows as long as blocks follow each other there */
    uint64_t block, count;
};

static void piece_add(struct batch *b, struct piece *piece, uint32_t disk, uint64_t block,
                      uint64_t count) {
    if (piece->count > 0 && piece->block + piece->count != block) {
        issue(b, false, disk, piece->block, piece->count);
        piece->count = 0;
    }
    piece->block = piece->count == 0 ? block : piece->block;
    piece->count += count;
}

/* Starts all reads for blocks [first, first + count). */
static void read_start(struct batch *b, uint64_t first, uint64_t count) {
    struct inplace *a = b->array;
    struct piece pieces[DISKS_MAX] = {0};
    uint32_t choice[DISKS_MAX]; /* of a mirrored column: one copy for all of the request */
    memset(choice, 0xff, sizeof(choice));
    for (uint64_t at = first, n; at < first + count; at += n) {
        n = MIN(STRIP - at % STRIP, first + count - at);
        uint64_t stripe = at / a->stripe_blocks, block = stripe * STRIP + at % STRIP;
        uint32_t column = column_of(a, at);
        uint32_t disk = a->shape.copies > 1 && choice[column] != UINT32_MAX
                            ? choice[column]
                            : disk_to_read(a, stripe, column);
        choice[column] = disk;
        if (disk != UINT32_MAX) {
            piece_add(b, &pieces[disk], disk, block, n);
            continue;
        }
        for (uint32_t other = 0; other < a->columns; other++) {
            /* One parity is enough: with two, the last column is not needed. */
            bool spare = a->shape.parity == 2 && other == a->columns - 1;
            uint32_t from = disk_of(a, stripe, other, 0);
            if (!is_lost(a, stripe, from) && !spare) {
                piece_add(b, &pieces[from], from, block, n);
            }
        }
    }
    for (uint32_t disk = 0; disk < a->columns; disk++) {
        if (pieces[disk].count > 0) {
            issue(b, false, disk, pieces[disk].block, pieces[disk].count);
        }
    }
}

static void make_room(struct inplace *a) {
    while (a->cached > a->cached_limit) {
        uint8_t *page = &a->pages[a->hand];
        a->hand = (a->hand + 1) % a->blocks;
        if ((*page & CLEAN) != 0 && (*page & USED) == 0) {
            *page = (uint8_t)(*page & ~CLEAN);
            a->cached--;
        }
        *page = (uint8_t)(*page & ~USED);
    }
}

static void page_clean(struct inplace *a, uint64_t block) {
    if ((a->pages[block] & (CLEAN | DIRTY)) == 0) {
        a->pages[block] |= CLEAN;
        a->cached++;
    }
}

static void pages_arrive(struct inplace *a, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) {
        a->pages[i] = (uint8_t)(a->pages[i] & ~READING);
        page_clean(a, i);
    }
    if (count > 0) {
        make_room(a);
        fiber_queue_wake_all(&a->arrived);
    }
}

/* Starts reads of what is not in memory and not on its way. */
static void fetch(struct inplace *a, uint64_t first, uint64_t end) {
    uint64_t at = first;
    while (at < end) {
        uint64_t from = at;
        while (at < end && (a->pages[at] & (CLEAN | DIRTY | WRITING | READING)) == 0) {
            a->pages[at++] |= READING;
        }
        if (at > from) {
            struct batch *b = MEM_NEW(struct batch);
            *b = (struct batch){
                .array = a, .pending = 1, .first = from, .count = at - from, .on_heap = true};
            read_start(b, from, at - from);
            batch_end(b);
        }
        at += at == from;
    }
}

/* The stream that goes on with [first, end), or a new one in place of the oldest, whose window is
 * 0. */
static struct stream *stream_of(struct inplace *a, struct stream *streams, uint64_t first,
                                uint64_t end) {
    struct stream *oldest = &streams[0];
    uint64_t slack = (end - first) * STREAM_SLACK;
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (s->used > 0 && first + slack >= s->next && first <= s->next + slack) {
            s->used = ++a->stream_clock;
            s->next = MAX(s->next, end);
            s->window = MAX(s->window * 2, (uint32_t)AHEAD_MIN_BLOCKS);
            s->window = MIN(s->window, (uint32_t)AHEAD_MAX_BLOCKS);
            return s;
        }
        oldest = s->used < oldest->used ? s : oldest;
    }
    *oldest = (struct stream){.next = end, .used = ++a->stream_clock};
    return oldest;
}

static void read_ahead(struct inplace *a, uint64_t first, uint64_t end) {
    struct stream *s = stream_of(a, a->readers, first, end);
    s->ahead_end = MAX(s->ahead_end, s->next);
    if (s->window > 0 && s->ahead_end - s->next < s->window / 2) {
        uint64_t to = MIN(s->next + s->window, a->blocks);
        fetch(a, MIN(s->ahead_end, to), to);
        s->ahead_end = to;
    }
}

static bool is_any(const struct inplace *a, uint64_t first, uint64_t end, uint8_t flags) {
    for (uint64_t i = first; i < end; i++) {
        if ((a->pages[i] & flags) != 0) {
            return true;
        }
    }
    return false;
}

static uint64_t first_of(const struct volume_request *r) {
    return r->offset_bytes / BLOCK_BYTES;
}

static uint64_t end_of(const struct volume_request *r) {
    return div_round_up(r->offset_bytes + r->length_bytes, BLOCK_BYTES);
}

static void read_fiber(void *arg) {
    struct volume_request *r = arg;
    struct inplace *a = CONTAINER_OF(r->door, struct inplace, door);
    uint64_t first = first_of(r), end = end_of(r);
    int error = OK;
    if (a->bare) {
        struct batch b = {.array = a, .pending = 1};
        read_start(&b, first, end - first);
        error = batch_wait(&b);
    } else {
        fetch(a, first, end);
        while (is_any(a, first, end, READING)) {
            fiber_queue_wait(&a->arrived);
        }
    }
    volume_complete(r, error);
}

/* ---- writing back ---- */

struct masks { /* by disk: which of its strip's blocks */
    uint32_t read[DISKS_MAX], write[DISKS_MAX];
};

/* What one row of a stripe with parity has to read. `dirty` says which data columns change. */
static void plan_row(const struct inplace *a, uint64_t stripe, uint32_t row, uint32_t dirty,
                     struct masks *m) {
    uint32_t data = a->shape.data, all = (1u << data) - 1, bit = 1u << row;
    uint32_t changed = (uint32_t)__builtin_popcount(dirty), parities = a->shape.parity;
    bool data_lost = false, old_data_lost = false;
    for (uint32_t c = 0; a->lost != UINT32_MAX && c < a->columns; c++) {
        if (is_lost(a, stripe, disk_of(a, stripe, c, 0))) {
            data_lost = c < data && (dirty & 1u << c) == 0;
            old_data_lost = c < data && !data_lost;
            parities -= c >= data;
        }
    }
    for (uint32_t c = data; c < a->columns; c++) {
        m->write[disk_of(a, stripe, c, 0)] |= bit;
    }
    if (dirty == all || parities == 0) {
        return;
    }
    bool modify = changed + parities < data - changed;
    modify = (modify && !old_data_lost) || data_lost;
    for (uint32_t c = 0; c < a->columns; c++) {
        bool is_dirty = c < data && (dirty & 1u << c) != 0;
        if (modify ? is_dirty || c >= data : c < data && !is_dirty) {
            m->read[disk_of(a, stripe, c, 0)] |= bit;
        }
    }
}

/* Takes all that is dirty in the stripe; returns how many pages. */
static uint64_t plan_stripe(struct inplace *a, uint64_t stripe, struct masks *m) {
    uint64_t taken = 0;
    for (uint32_t row = 0; row < STRIP; row++) {
        uint32_t dirty = 0;
        for (uint32_t c = 0; c < a->shape.data; c++) {
            uint64_t block = stripe * a->stripe_blocks + (uint64_t)c * STRIP + row;
            if (block >= a->blocks || (a->pages[block] & DIRTY) == 0) {
                continue;
            }
            a->pages[block] = (uint8_t)((a->pages[block] & ~DIRTY) | WRITING);
            dirty |= 1u << c;
            taken++;
            for (uint32_t copy = 0; copy < a->shape.copies; copy++) {
                m->write[disk_of(a, stripe, c, copy)] |= 1u << row;
            }
        }
        if (dirty != 0 && a->shape.parity > 0) {
            plan_row(a, stripe, row, dirty, m);
        }
    }
    return taken;
}

static int masks_run(struct inplace *a, uint64_t stripe, const uint32_t *masks, bool write) {
    struct batch b = {.array = a, .pending = 1};
    for (uint32_t disk = 0; disk < a->columns; disk++) {
        uint32_t mask = is_lost(a, stripe, disk) ? 0 : masks[disk];
        while (mask != 0) {
            uint32_t from = (uint32_t)__builtin_ctz(mask);
            uint32_t count = (uint32_t)__builtin_ctz(~(mask >> from));
            issue(&b, write, disk, stripe * STRIP + from, count);
            mask &= ~(((1u << count) - 1) << from);
        }
    }
    return batch_wait(&b);
}

struct flush {
    struct inplace *array;
    uint64_t stripe, taken;
    struct masks masks;
};

static void flush_kick(struct inplace *a);

static void flush_fiber(void *arg) {
    struct flush *f = arg;
    struct inplace *a = f->array;
    int error = masks_run(a, f->stripe, f->masks.read, false);
    error = error == OK ? masks_run(a, f->stripe, f->masks.write, true) : error;
    ASSERT_EQ(error, OK); /* modelled disks of this array do not fail, but for the one it lost */
    uint64_t first = f->stripe * a->stripe_blocks;
    for (uint64_t i = first; i < MIN(first + a->stripe_blocks, a->blocks); i++) {
        if ((a->pages[i] & WRITING) != 0) {
            a->pages[i] = (uint8_t)(a->pages[i] & ~WRITING);
            page_clean(a, i);
        }
    }
    make_room(a);
    a->dirty -= f->taken;
    a->flushing--;
    a->stripes[f->stripe].busy = false;
    mem_free(f);
    fiber_queue_wake_all(&a->room);
    flush_kick(a);
    if (a->dirty == 0) {
        fiber_queue_wake_all(&a->idle);
    }
}

/* Whether somebody who writes in order has got to just here. */
static bool is_being_written(const struct inplace *a, uint64_t stripe) {
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (a->writers[i].window > 0 && a->writers[i].next / a->stripe_blocks == stripe) {
            return true;
        }
    }
    return false;
}

/* The next one in the order of the disk; not where a stream is, unless nothing else makes room. */
static uint64_t stripe_next(struct inplace *a) {
    uint64_t tail = UINT64_MAX;
    for (uint64_t i = 0; i < a->stripe_count; i++) {
        uint64_t at = (a->sweep + i) % a->stripe_count;
        const struct stripe *s = &a->stripes[at];
        if (s->dirty == 0 || s->busy) {
            continue;
        }
        if (s->dirty == a->stripe_blocks || !is_being_written(a, at)) {
            return at;
        }
        tail = at;
    }
    return a->settling || (a->blocked > 0 && a->flushing == 0) ? tail : UINT64_MAX;
}

static void flush_kick(struct inplace *a) {
    uint64_t most = a->settling || a->blocked > 0 ? 0 : a->dirty_limit / 2;
    while (a->flushing < STRIPES_AT_ONCE && a->waiting > most) {
        uint64_t stripe = stripe_next(a);
        if (stripe == UINT64_MAX) {
            return;
        }
        struct flush *f = MEM_NEW(struct flush);
        f->array = a;
        f->stripe = stripe;
        f->taken = plan_stripe(a, stripe, &f->masks);
        a->waiting -= f->taken;
        a->stripes[stripe].dirty = 0;
        a->stripes[stripe].busy = true;
        a->sweep = (stripe + 1) % a->stripe_count;
        a->flushing++;
        fiber_start(a->env, flush_fiber, f);
    }
}

static void write_fiber(void *arg) {
    struct volume_request *r = arg;
    struct inplace *a = CONTAINER_OF(r->door, struct inplace, door);
    uint64_t first = first_of(r), end = end_of(r);
    while (a->dirty > 0 && a->dirty + (end - first) > a->dirty_limit) {
        a->blocked++;
        flush_kick(a);
        fiber_queue_wait(&a->room);
        a->blocked--;
    }
    (void)stream_of(a, a->writers, first, end);
    for (uint64_t i = first; i < end; i++) {
        struct stripe *s = &a->stripes[i / a->stripe_blocks];
        if ((a->pages[i] & DIRTY) == 0) {
            a->cached -= (a->pages[i] & CLEAN) != 0;
            a->pages[i] = (uint8_t)((a->pages[i] & ~CLEAN) | DIRTY);
            a->dirty++;
            a->waiting++;
            s->dirty++;
        }
    }
    flush_kick(a);
    volume_complete(r, OK);
}

/* ---- the door ---- */

/* Thick: all of it is taken, and more than that there is not. */
static void answer_space(const struct inplace *a, struct volume_space *ret_space) {
    uint64_t bytes = a->blocks * BLOCK_BYTES;
    *ret_space =
        (struct volume_space){.used_bytes = bytes, .free_bytes = bytes, .total_bytes = bytes};
}

static void inplace_dispatch(struct volume_door *door, struct volume_request *r) {
    struct inplace *a = CONTAINER_OF(door, struct inplace, door);
    if (!range_is_within(r->offset_bytes, r->length_bytes, a->blocks * BLOCK_BYTES)) {
        volume_complete(r, ERR_RANGE);
        return;
    }
    switch (r->op) {
    case VOLUME_READ:
        if (!a->bare) {
            read_ahead(a, first_of(r), end_of(r));
        }
        for (uint64_t i = first_of(r); i < end_of(r); i++) {
            if ((a->pages[i] & (CLEAN | DIRTY | WRITING)) == 0) {
                fiber_start(a->env, read_fiber, r);
                return;
            }
            a->pages[i] |= USED;
        }
        volume_complete(r, OK);
        return;
    case VOLUME_WRITE:
        if (a->dirty_limit > 0) {
            fiber_start(a->env, write_fiber, r);
            return;
        }
        volume_complete(r, ERR_READ_ONLY);
        return;
    case VOLUME_FLUSH: /* it answers from memory, whatever is asked: see the head */
        volume_complete(r, OK);
        return;
    case VOLUME_RECALL: /* nothing was ever kept */
        memset(r->iov[0].iov_base, 0, r->iov[0].iov_len);
        volume_complete(r, OK);
        return;
    case VOLUME_SPACE:
        answer_space(a, r->iov[0].iov_base);
        volume_complete(r, OK);
        return;
    default:
        volume_complete(r, ERR_UNSUPPORTED);
    }
}

/* ---- life ---- */

int inplace_new(struct env *env, const struct inplace_options *options, struct inplace **ret_array,
                struct errmsg *reterr) {
    if (options->path_count < profile_min_disks(options->profile)) {
        return errmsg_set(reterr, ERR_RANGE, "%s needs at least %u disks",
                          profile_name(options->profile), profile_min_disks(options->profile));
    }
    struct inplace *a = MEM_NEW(struct inplace);
    a->env = env;
    a->door = (struct volume_door){.env = env, .dispatch = inplace_dispatch};
    a->shape = profile_shape(options->profile, options->path_count);
    a->columns = shape_columns(a->shape);
    a->lost = UINT32_MAX;
    a->bare = options->read_cache_bytes == 0;
    a->blocks = options->size_bytes / BLOCK_BYTES;
    a->stripe_blocks = (uint64_t)a->shape.data * STRIP;
    a->stripe_count = div_round_up(a->blocks, a->stripe_blocks);
    a->pages = MEM_NEW_ARRAY(uint8_t, a->blocks);
    a->stripes = MEM_NEW_ARRAY(struct stripe, a->stripe_count);
    a->dirty_limit = options->write_back_bytes / BLOCK_BYTES;
    a->cached_limit = options->read_cache_bytes / BLOCK_BYTES;
    a->scratch = mem_pages_new(SCRATCH_BYTES);
    memset(a->scratch->data, 0, SCRATCH_BYTES);
    fiber_queue_init(&a->room);
    fiber_queue_init(&a->arrived);
    fiber_queue_init(&a->idle);
    int error = OK;
    for (uint32_t i = 0; i < a->columns && error == OK; i++) {
        error = env_disk_open(env, options->paths[i], &(struct env_disk_options){0}, &a->disks[i],
                              reterr);
        if (error == OK &&
            env_disk_info(a->disks[i])->size_bytes < a->stripe_count * STRIP * BLOCK_BYTES) {
            error = errmsg_set(reterr, ERR_RANGE, "%s is too small for its part of the volume",
                               options->paths[i]);
        }
    }
    if (error != OK) {
        inplace_free(a);
        return error;
    }
    *ret_array = a;
    return OK;
}

void inplace_free(struct inplace *a) {
    ASSERT_EQ(a->dirty, 0);
    for (uint32_t i = 0; i < a->columns && a->disks[i] != NULL; i++) {
        env_disk_close(a->disks[i]);
    }
    mem_pages_free(a->scratch);
    mem_free(a->stripes);
    mem_free(a->pages);
    mem_free(a);
}

struct volume_door *inplace_door(struct inplace *a) {
    return &a->door;
}

void inplace_settle(struct inplace *a) {
    a->settling = true;
    while (a->dirty > 0) {
        flush_kick(a);
        fiber_queue_wait(&a->idle);
    }
    a->settling = false;
}

int inplace_lose(struct inplace *a, uint32_t index, struct errmsg *reterr) {
    if (shape_losses(a->shape) == 0 || a->lost != UINT32_MAX) {
        return errmsg_set(reterr, ERR_RANGE, "the array does not bear the loss of a disk");
    }
    a->lost = index % a->columns;
    a->rebuilt = 0;
    return OK;
}

/* The strips of `count` stripes of the lost disk: read what they are made of, write them. */
static int rebuild_stripes(struct inplace *a, uint64_t first, uint64_t count) {
    struct batch reads = {.array = a, .pending = 1}, write = {.array = a, .pending = 1};
    for (uint32_t disk = 0; disk < a->columns; disk++) {
        bool mirror = disk / a->shape.copies == a->lost / a->shape.copies;
        if (disk != a->lost && (a->shape.parity > 0 || mirror)) {
            issue(&reads, false, disk, first * STRIP, count * STRIP);
        }
    }
    int error = batch_wait(&reads);
    if (error == OK) {
        issue(&write, true, a->lost, first * STRIP, count * STRIP);
        error = batch_wait(&write);
    }
    return error;
}

int inplace_rebuild(struct inplace *a, uint32_t index, uint32_t share_pct, uint64_t *ret_bytes,
                    struct errmsg *reterr) {
    int error = inplace_lose(a, index, reterr);
    while (error == OK && a->rebuilt < a->stripe_count) {
        uint64_t from_ns = env_now_ns(a->env);
        uint64_t count = MIN(a->stripe_count - a->rebuilt, (uint64_t)REBUILD_STRIPES);
        error = rebuild_stripes(a, a->rebuilt, count);
        a->rebuilt += count;
        uint64_t now_ns = env_now_ns(a->env);
        fiber_sleep_until(now_ns + (now_ns - from_ns) * (100 - share_pct) / share_pct);
    }
    if (error == OK) {
        a->lost = UINT32_MAX;
        *ret_bytes = a->stripe_count * STRIP * BLOCK_BYTES;
    }
    return error;
}

void inplace_counters(const struct inplace *a, struct inplace_counters *ret_counters) {
    *ret_counters = a->counters;
}
