// SPDX-License-Identifier: MPL-2.0
/* Writing the log: see log.h. Reading it back is in replay.c. */
#include "log/log.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"

enum { LOG_VERSION = 1, GATHER_BYTES = 16 << 10, SETTLE_ATTEMPTS = 60 };
/* One in so many copies may be a second one because the first is slow. */
enum { EXTRA_PRICE = 16, EXTRA_CREDIT_MOST = 32 * EXTRA_PRICE };
#define SETTLE_PAUSE_NS (250 * (uint64_t)NS_PER_MS)

struct ring_slot { /* a row on a ring, oldest first */
    struct list link;
    uint64_t lsn;
    uint32_t start;
    uint32_t blocks; /* with what was skipped at the ring's end before it */
    bool busy;       /* being written: its place is not used again before that has ended */
};

struct ring {
    uint32_t head; /* next block to write */
    uint32_t used;
    struct list slots;
    uint32_t rows_in_flight;
    uint64_t turn; /* when it was chosen last */
};

struct log_row;

struct row_copy {
    struct disk_io io;
    struct log_row *row;
    struct ring_slot *slot;
    uint32_t member;
    uint64_t slow_at_ns; /* UINT64_MAX: it is known to be, or nobody knows */
    bool pending;
};

struct log_row {
    struct list link; /* in log->rows, by LSN */
    struct log *log;
    uint64_t lsn;
    struct buf *buf;
    uint32_t blocks;
    struct list entries;
    uint32_t copies_pending;
    uint64_t done;  /* members that have this row */
    uint64_t tried; /* members that have, or had, or may get this row */
    uint64_t late;  /* members whose copy did not come back in time */
    bool durable;
    uint32_t copy_count, copy_room;
    struct row_copy copies[]; /* one for each member: it is tried once */
};

struct log {
    struct log_options options;
    struct pool *pool;
    struct ring rings[POOL_DISKS_MAX];
    struct list open; /* entries waiting for a row */
    size_t open_bytes;
    uint32_t open_hurried;  /* entries that are not patient */
    uint32_t expected;      /* patient entries that will come soon */
    uint64_t open_since_ns; /* when the first of the open entries came */
    bool rotating;          /* a disk seeks for each row */
    struct env_timer hurry; /* patience has ended */
    struct env_timer slow;  /* a copy may be slow by now */
    uint32_t extra_credit;
    struct list rows; /* under way */
    uint32_t row_count;
    uint64_t next_lsn, committed_lsn;
    uint64_t trimmed_lsn; /* rows below it are not needed */
    uint64_t turn;
    uint32_t live_rows; /* whose memory is still needed, in rows or not */
    bool close_queued, settling, space_short;
    struct env_task close_task;
    int error;
    int no_room; /* what those get who would have to wait for room; OK: they wait */
    struct log_counters counters;
};

static void log_close_row(struct log *log);
static void log_commit(struct log *log);

static uint32_t ring_blocks(const struct log *log) {
    return log->pool->super.geometry.ring_blocks;
}

static size_t row_bytes_max(const struct log *log) {
    return MIN((size_t)LOG_ROW_BYTES_MAX, (size_t)ring_blocks(log) / 4 * BLOCK_BYTES);
}

static size_t entry_bytes(const struct log_entry *e) {
    return sizeof(struct log_record_phys) + round_up(e->header_bytes, 8) +
           round_up(e->data_bytes, 8);
}

uint32_t log_data_max(const struct log *log, uint32_t header_bytes) {
    size_t fixed =
        sizeof(struct log_row_phys) + sizeof(struct log_record_phys) + round_up(header_bytes, 8);
    return (uint32_t)round_down(row_bytes_max(log) - fixed, BLOCK_BYTES);
}

static void close_task_run(struct env_task *task) {
    struct log *log = CONTAINER_OF(task, struct log, close_task);
    log->close_queued = false;
    log_close_row(log);
}

static void close_soon(struct log *log);

static void hurry_fired(struct env_timer *timer) {
    close_soon(CONTAINER_OF(timer, struct log, hurry));
}

static void slow_fired(struct env_timer *timer);

static void close_soon(struct log *log) {
    if (!log->close_queued) {
        log->close_queued = true;
        env_defer(log->pool->env, &log->close_task);
    }
}

struct log *log_new(const struct log_options *options) {
    struct log *log = MEM_NEW(struct log);
    log->options = *options;
    log->pool = options->pool;
    list_init(&log->open);
    list_init(&log->rows);
    log->next_lsn = options->generation << 32 | 1;
    log->committed_lsn = log->next_lsn - 1;
    log->close_task.run = close_task_run;
    log->hurry.fire = hurry_fired;
    log->slow.fire = slow_fired;
    for (uint32_t m = 0; m < log->pool->super.member_count; m++) {
        struct disk *disk = log->pool->disks[m];
        log->rotating |= disk != NULL && disk_info(disk)->rotational;
    }
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        list_init(&log->rings[m].slots);
        log->rings[m].head = (uint32_t)(options->ring_heads[m] % ring_blocks(log));
    }
    return log;
}

static void ring_pop(struct ring *ring) {
    struct ring_slot *slot = CONTAINER_OF(list_pop(&ring->slots), struct ring_slot, link);
    ring->used -= slot->blocks;
    mem_free(slot);
}

static void ring_trim(const struct log *log, struct ring *ring) {
    while (!list_is_empty(&ring->slots)) {
        const struct ring_slot *oldest = CONTAINER_OF(ring->slots.next, struct ring_slot, link);
        if (oldest->lsn >= log->trimmed_lsn || oldest->busy) {
            break;
        }
        ring_pop(ring);
    }
}

void log_quiesce(struct log *log) {
    while (log != NULL && (log->close_queued || log->settling || log->live_rows > 0)) {
        fiber_sleep_until(env_now_ns(log->pool->env) + NS_PER_MS);
    }
    if (log != NULL) { /* it may still be armed for a row that has closed since */
        env_timer_cancel(log->pool->env, &log->hurry);
        env_timer_cancel(log->pool->env, &log->slow);
    }
}

void log_free(struct log *log) {
    if (log == NULL) {
        return;
    }
    ASSERT(list_is_empty(&log->open) && log->live_rows == 0 && !log->close_queued);
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        while (!list_is_empty(&log->rings[m].slots)) {
            ring_pop(&log->rings[m]);
        }
    }
    mem_free(log);
}

/* ---- rings ---- */

/* Blocks a row takes on the ring, with the skip at the end; 0: no room. */
static uint32_t ring_room(const struct log *log, uint32_t member, uint32_t blocks) {
    const struct ring *ring = &log->rings[member];
    uint32_t skip = ring->head + blocks > ring_blocks(log) ? ring_blocks(log) - ring->head : 0;
    if (ring->used + skip + blocks > ring_blocks(log) && !SABOTAGE(ring_overrun)) {
        return 0;
    }
    return skip + blocks;
}

static bool ring_is_suspended(const struct log *log, uint32_t member) {
    return disk_counters(log->pool->disks[member])->late_durable > 0;
}

static bool ring_is_avoided(const struct log *log, uint32_t member) {
    return disk_is_avoided(log->pool->disks[member]);
}

static uint32_t unsuspended_count(const struct log *log) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < log->pool->super.member_count; m++) {
        count += pool_member_stores(log->pool, m) && !ring_is_suspended(log, m);
    }
    return count;
}

static bool ring_is_better(const struct log *log, uint32_t m, uint32_t than) {
    const struct ring *r = &log->rings[m], *b = &log->rings[than];
    bool avoided = ring_is_avoided(log, m), other = ring_is_avoided(log, than);
    if (avoided != other) {
        return other;
    }
    return r->rows_in_flight != b->rows_in_flight ? r->rows_in_flight < b->rows_in_flight
                                                  : r->turn < b->turn;
}

/* The least busy ring that is not in `tried`, of those that need not be avoided if there is one;
 * POOL_DISKS_MAX: none. */
static uint32_t ring_choose(const struct log *log, uint64_t tried, uint32_t blocks) {
    uint32_t best = POOL_DISKS_MAX;
    for (uint32_t m = 0; m < log->pool->super.member_count; m++) {
        if (((tried >> m) & 1) != 0 || !pool_member_stores(log->pool, m) ||
            ring_is_suspended(log, m) || ring_room(log, m, blocks) == 0) {
            continue;
        }
        if (best == POOL_DISKS_MAX || ring_is_better(log, m, best)) {
            best = m;
        }
    }
    return best;
}

static void copy_done(struct disk_io *io);

static void copy_watch(struct row_copy *copy) {
    struct log *log = copy->row->log;
    uint64_t now = env_now_ns(log->pool->env);
    uint64_t ns =
        disk_hedge_ns(log->pool->disks[copy->member], ENV_IO_WRITE, true, copy->io.length_bytes);
    copy->pending = true;
    copy->slow_at_ns = ns >= LOG_LATE_NS ? UINT64_MAX : now + ns;
    if (copy->slow_at_ns != UINT64_MAX &&
        (log->slow.heap_index == 0 || log->slow.at_ns > copy->slow_at_ns)) {
        env_timer_arm(log->pool->env, &log->slow, copy->slow_at_ns);
    }
}

static void row_send(struct log_row *row, uint32_t member) {
    struct log *log = row->log;
    struct ring *ring = &log->rings[member];
    struct ring_slot *slot = MEM_NEW(struct ring_slot);
    slot->blocks = ring_room(log, member, row->blocks);
    if (slot->blocks == 0) { /* only a sabotaged log gets here without room */
        slot->blocks = row->blocks;
    }
    if (ring->head + row->blocks > ring_blocks(log)) {
        ring->head = 0;
        log->counters.wraps++;
    }
    slot->lsn = row->lsn;
    slot->start = ring->head;
    list_append(&ring->slots, &slot->link);
    ring->used += slot->blocks;
    ring->head = (ring->head + row->blocks) % ring_blocks(log);
    ring->turn = ++log->turn;
    ring->rows_in_flight++;
    row->tried |= 1ull << member;
    row->copies_pending++;
    ASSERT_LT(row->copy_count, row->copy_room);
    struct row_copy *copy = &row->copies[row->copy_count++];
    *copy =
        (struct row_copy){.io = {.op = ENV_IO_WRITE,
                                 .durable = true,
                                 .offset_bytes = (RING_START + (uint64_t)slot->start) * BLOCK_BYTES,
                                 .length_bytes = (uint64_t)row->blocks * BLOCK_BYTES,
                                 .buf = row->buf,
                                 .deadline_ns = env_now_ns(log->pool->env) + LOG_LATE_NS,
                                 .done = copy_done},
                          .row = row,
                          .slot = slot,
                          .member = member};
    slot->busy = true;
    log->counters.bytes += copy->io.length_bytes;
    log->extra_credit = MIN(log->extra_credit + 1, (uint32_t)EXTRA_CREDIT_MOST);
    copy_watch(copy);
    disk_submit(log->pool->disks[member], &copy->io);
}

/* ---- copies that are slow ---- */

/* Gives each row that has a slow copy another one beside it, if some ring can take it that is none
 * of the slow ones. */
static void slow_pursue(struct log_row *row, uint64_t now) {
    struct log *log = row->log;
    for (uint32_t i = 0; i < row->copy_count; i++) {
        struct row_copy *copy = &row->copies[i];
        if (!copy->pending || copy->slow_at_ns > now) {
            continue;
        }
        uint32_t other = ring_choose(log, row->tried, row->blocks);
        bool avoided = ring_is_avoided(log, copy->member);
        if (other == POOL_DISKS_MAX || ring_is_avoided(log, other) || row->durable ||
            (!avoided && log->extra_credit < EXTRA_PRICE)) {
            copy->slow_at_ns = UINT64_MAX;
            continue;
        }
        log->extra_credit -= avoided ? 0 : EXTRA_PRICE;
        log->counters.slow_copies++;
        copy->slow_at_ns = UINT64_MAX;
        row_send(row, other);
    }
}

static void slow_arm(struct log *log) {
    uint64_t next = UINT64_MAX;
    LIST_FOR_EACH(link, &log->rows) {
        const struct log_row *row = CONTAINER_OF(link, struct log_row, link);
        for (uint32_t i = 0; i < row->copy_count; i++) {
            if (row->copies[i].pending) {
                next = MIN(next, row->copies[i].slow_at_ns);
            }
        }
    }
    if (next != UINT64_MAX) {
        env_timer_arm(log->pool->env, &log->slow, next);
    }
}

static void slow_fired(struct env_timer *timer) {
    struct log *log = CONTAINER_OF(timer, struct log, slow);
    uint64_t now = env_now_ns(log->pool->env);
    LIST_FOR_EACH(link, &log->rows) {
        slow_pursue(CONTAINER_OF(link, struct log_row, link), now);
    }
    slow_arm(log);
}

/* ---- closing rows ---- */

/* A seek to the ring and back takes the time in which a rotating disk writes a dozen columns of
 * long rows. So the REFs of long writes that are under way together share one. */
static bool log_is_patient(struct log *log) {
    uint64_t until = log->open_since_ns + LOG_PATIENCE_NS;
    if (!log->rotating || log->expected == 0 || log->open_hurried > 0 ||
        env_now_ns(log->pool->env) >= until) {
        return false;
    }
    env_timer_arm(log->pool->env, &log->hurry, until);
    return true;
}

/* A row closes at once when none is under way, unless all of its entries are patient. While one is,
 * a few small entries (REFs, above all) wait for it to come back and share the next.
 */
static bool log_may_close(struct log *log) {
    if (log->row_count == 0) {
        return !log_is_patient(log);
    }
    return log->row_count < LOG_ROWS_IN_FLIGHT && log->open_bytes >= GATHER_BYTES;
}

static void *put_padded(uint8_t *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    memset(at + count, 0, round_up(count, 8) - count);
    return at + round_up(count, 8);
}

static void row_fill(struct log_row *row, size_t bytes) {
    struct log *log = row->log;
    struct log_row_phys *h = (struct log_row_phys *)(void *)row->buf->data;
    *h = (struct log_row_phys){.pool = log->pool->super.pool,
                               .generation = log->options.generation,
                               .lsn = row->lsn,
                               .acknowledged = log->committed_lsn,
                               .blocks = row->blocks};
    uint8_t *at = row->buf->data + sizeof(*h);
    LIST_FOR_EACH(link, &row->entries) {
        struct log_entry *e = CONTAINER_OF(link, struct log_entry, link);
        struct log_record_phys record = {
            .type = e->type, .header_bytes = e->header_bytes, .data_bytes = e->data_bytes};
        at = put_padded(at, &record, sizeof(record));
        at = put_padded(at, e->header, e->header_bytes);
        e->data_offset = (size_t)(at - row->buf->data);
        for (uint32_t i = 0; i < e->iov_count; i++) {
            memcpy(at, e->iov[i].iov_base, e->iov[i].iov_len);
            at += e->iov[i].iov_len;
        }
        ASSERT_EQ((size_t)(at - row->buf->data), e->data_offset + e->data_bytes);
        size_t pad = round_up(e->data_bytes, 8) - e->data_bytes;
        memset(at, 0, pad);
        at += pad;
        h->records++;
    }
    ASSERT_EQ((size_t)(at - row->buf->data), bytes);
    memset(at, 0, (size_t)row->blocks * BLOCK_BYTES - bytes);
    phys_seal(h, PHYS_LOG_ROW, LOG_VERSION, (uint32_t)bytes, log->options.seed);
}

/* Whether enough rings have room for a row. */
static bool log_has_room(struct log *log, uint32_t blocks, uint32_t copies) {
    uint64_t tried = 0;
    for (uint32_t i = 0; i < copies; i++) {
        uint32_t m = ring_choose(log, tried, blocks);
        if (m == POOL_DISKS_MAX) {
            return false;
        }
        tried |= 1ull << m;
    }
    return true;
}

/* A ring that is needed and suspended is not waited for: its disk has been late for long enough.
 * True if one was expelled. */
static bool expel_a_suspended(struct log *log, uint64_t tried) {
    for (uint32_t m = 0; m < log->pool->super.member_count; m++) {
        if (((tried >> m) & 1) == 0 && pool_member_stores(log->pool, m) &&
            ring_is_suspended(log, m)) {
            pool_expel(log->pool, m, "it does not answer, and the log needs it");
            return true;
        }
    }
    return false;
}

static void entries_fail(struct list *entries, int error) {
    struct list *link;
    while ((link = list_pop(entries)) != NULL) {
        struct log_entry *e = CONTAINER_OF(link, struct log_entry, link);
        e->result = error;
        e->done = true;
        if (e->waiter != NULL) {
            fiber_wake(e->waiter);
        }
    }
}

static uint32_t copies_wanted(const struct log *log) {
    uint32_t wanted = MIN(log->pool->meta_copies, (uint32_t)LOG_COPIES_MAX);
    return MAX(1u, MIN(wanted, pool_storing_count(log->pool)));
}

/* Moves entries from the open list to a new row until it is full; returns the bytes used. */
static size_t row_gather(struct log *log, struct list *ret_entries) {
    size_t bytes = sizeof(struct log_row_phys);
    while (!list_is_empty(&log->open)) {
        struct log_entry *e = CONTAINER_OF(log->open.next, struct log_entry, link);
        if (bytes + entry_bytes(e) > row_bytes_max(log)) {
            break;
        }
        bytes += entry_bytes(e);
        log->open_bytes -= entry_bytes(e);
        log->open_hurried -= !e->patient;
        list_remove(&e->link);
        list_append(ret_entries, &e->link);
    }
    return bytes;
}

static size_t row_gather_bytes(const struct log *log) {
    size_t bytes = sizeof(struct log_row_phys);
    LIST_FOR_EACH(link, &log->open) {
        size_t more = entry_bytes(CONTAINER_OF(link, struct log_entry, link));
        if (bytes + more > row_bytes_max(log)) {
            break;
        }
        bytes += more;
    }
    return bytes;
}

static void log_close_row(struct log *log) {
    while (log->error == OK && !list_is_empty(&log->open) && log_may_close(log)) {
        if (log->next_lsn >= COUNTER_END) {
            log_fail(log, ERR_LIMIT);
            break;
        }
        uint32_t blocks = (uint32_t)div_round_up(row_gather_bytes(log), BLOCK_BYTES);
        uint32_t copies = copies_wanted(log);
        log->space_short = !log_has_room(log, blocks, copies);
        if (log->space_short && unsuspended_count(log) < copies && expel_a_suspended(log, 0)) {
            continue;
        }
        if (log->space_short) {
            log->counters.waits_for_space++;
            if (log->no_room != OK) {
                entries_fail(&log->open, log->no_room);
                log->open_bytes = 0;
                log->open_hurried = 0;
                return;
            }
            log->options.want_checkpoint(log->options.owner);
            return; /* log_trim() comes back here */
        }
        uint32_t members = log->pool->super.member_count;
        struct log_row *row = mem_alloc(sizeof(*row) + members * sizeof(row->copies[0]));
        row->log = log;
        row->copy_room = members;
        /* Members that join while it is under way are not for this row. */
        row->tried = members < POOL_DISKS_MAX ? UINT64_MAX << members : 0;
        log->live_rows++;
        list_init(&row->entries);
        size_t bytes = row_gather(log, &row->entries);
        row->lsn = log->next_lsn++;
        row->blocks = blocks;
        row->buf = buf_new((size_t)blocks * BLOCK_BYTES);
        row_fill(row, bytes);
        list_append(&log->rows, &row->link);
        log->row_count++;
        log->counters.rows++;
        for (uint32_t i = 0; i < copies; i++) {
            row_send(row, ring_choose(log, row->tried, blocks));
        }
        if (log_ring_used_pct(log) >= 40) {
            log->options.want_checkpoint(log->options.owner);
        }
    }
    if (log->error != OK) {
        entries_fail(&log->open, log->error);
    }
}

/* ---- completion ---- */

/* Copies on members that are still in sync: those of a disk that was expelled meanwhile are of no
 * use to a replay (invariant 1). */
static uint32_t copies_done(const struct log_row *row) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < row->log->pool->super.member_count; m++) {
        count += ((row->done >> m) & 1) != 0 && pool_member_in_sync(row->log->pool, m);
    }
    return count;
}

/* In-sync members that have not been asked to take this row: the ones whose rings are full. */
static bool row_has_candidates(const struct log_row *row) {
    for (uint32_t m = 0; m < row->log->pool->super.member_count; m++) {
        if (((row->tried >> m) & 1) == 0 && pool_member_stores(row->log->pool, m)) {
            return true;
        }
    }
    return false;
}

static bool row_expel_late(struct log_row *row) {
    for (uint32_t m = 0; m < row->log->pool->super.member_count; m++) {
        if (((row->late >> m) & 1) != 0 && pool_member_in_sync(row->log->pool, m)) {
            pool_expel(row->log->pool, m, "a log row was late and no other disk could take it");
            return true;
        }
    }
    return false;
}

/* Disks that joined while it was under way are not for it. */
static uint32_t row_wanted(const struct log_row *row) {
    uint32_t storing = 0;
    for (uint32_t m = 0; m < row->copy_room; m++) {
        storing += pool_member_stores(row->log->pool, m);
    }
    return MAX(1u, MIN(copies_wanted(row->log), storing));
}

/* Sees to it that the row gets the copies it wants: other rings in place of those that failed or
 * are late; if they are full, after the checkpoint that makes room; if there are none, without the
 * disk that is late. */
static void row_pursue(struct log_row *row) {
    struct log *log = row->log;
    row->durable = false;
    while (copies_done(row) + row->copies_pending < row_wanted(row)) {
        uint32_t other = ring_choose(log, row->tried, row->blocks);
        if (other != POOL_DISKS_MAX) {
            row_send(row, other);
        } else if (expel_a_suspended(log, row->tried)) {
            continue;
        } else if (row_has_candidates(row) && log->no_room != OK) {
            log_fail(log, log->no_room);
            return;
        } else if (row_has_candidates(row)) {
            log->options.want_checkpoint(log->options.owner); /* log_trim() comes back here */
            return;
        } else if (!row_expel_late(row)) {
            break;
        }
    }
    uint32_t done = copies_done(row);
    bool short_ack = SABOTAGE(ack_one_copy_short) && done > 0 && done + 1 >= row_wanted(row);
    row->durable = done >= row_wanted(row) || short_ack;
    if (!row->durable && row->copies_pending == 0) { /* nowhere left to write it */
        log_fail(log, ERR_IO);
    }
}

static void copy_failed(struct row_copy *copy, int error) {
    struct log *log = copy->row->log;
    if (error == ERR_TIMEOUT) {
        log->counters.late_copies++;
        copy->row->late |= 1ull << copy->member;
    } else {
        log->counters.failed_copies++;
        pool_expel(log->pool, copy->member, "a log row could not be written");
    }
}

static void row_free_if_over(struct log_row *row) {
    if (row->copies_pending == 0 && list_is_empty(&row->link) && list_is_empty(&row->entries)) {
        row->log->live_rows--;
        buf_unref(row->buf);
        mem_free(row);
    }
}

static void copy_done(struct disk_io *io) {
    struct row_copy *copy = CONTAINER_OF(io, struct row_copy, io);
    struct log_row *row = copy->row;
    struct log *log = row->log;
    log->rings[copy->member].rows_in_flight--;
    row->copies_pending--;
    copy->pending = false;
    copy->slot->busy = false; /* if it was given up, the ring is suspended */
    ring_trim(log, &log->rings[copy->member]);
    if (io->result == OK && pool_member_in_sync(log->pool, copy->member)) {
        row->done |= 1ull << copy->member;
    } else {
        copy_failed(copy, io->result == OK ? ERR_DISK_GONE : io->result);
    }
    if (!list_is_empty(&row->link)) {
        row_pursue(row);
        log_commit(log);
        close_soon(log);
    } else {
        row_free_if_over(row); /* already committed (sabotage) or failed */
    }
}

static void settle_fiber(void *arg) {
    struct log *log = arg;
    int err = pool_settle(log->pool);
    /* A host record that cannot be written just now (a full file system) is tried again. */
    for (uint32_t i = 0; err != OK && err != ERR_QUORUM && i < SETTLE_ATTEMPTS; i++) {
        fiber_sleep_until(env_now_ns(log->pool->env) + SETTLE_PAUSE_NS);
        err = pool_settle(log->pool);
    }
    log->settling = false;
    if (err != OK) {
        log_fail(log, err);
    }
    log_commit(log);
    close_soon(log);
}

static void row_commit(struct log_row *row) {
    struct log *log = row->log;
    list_remove(&row->link);
    log->row_count--;
    INVARIANT(1, SABOTAGE(ack_out_of_order) || row->lsn == log->committed_lsn + 1);
    log->committed_lsn = MAX(log->committed_lsn, row->lsn);
    struct list *link;
    while ((link = list_pop(&row->entries)) != NULL) {
        struct log_entry *e = CONTAINER_OF(link, struct log_entry, link);
        e->apply(e, row->buf, e->data_offset);
        log->counters.entries++;
        e->result = OK;
        e->done = true;
        if (e->waiter != NULL) {
            fiber_wake(e->waiter);
        }
    }
    row_free_if_over(row);
}

/* Commits what is durable, in order. What was written without an expelled disk waits until that
 * configuration is durable. */
static void log_commit(struct log *log) {
    if (log->error != OK) {
        return;
    }
    LIST_FOR_EACH_SAFE(link, &log->rows) {
        struct log_row *row = CONTAINER_OF(link, struct log_row, link);
        if (!row->durable) {
            if (SABOTAGE(ack_out_of_order)) {
                continue;
            }
            return;
        }
        if (!pool_is_settled(log->pool)) {
            if (!log->settling) {
                log->settling = true;
                fiber_start(log->pool->env, settle_fiber, log);
            }
            return;
        }
        row_commit(row);
    }
}

void log_reconsider(struct log *log) {
    LIST_FOR_EACH_SAFE(link, &log->rows) {
        struct log_row *row = CONTAINER_OF(link, struct log_row, link);
        row_pursue(row); /* also if it was durable, and waits for its turn */
        if (log->error != OK) {
            return; /* and the rows are gone */
        }
    }
    log_commit(log);
    close_soon(log);
}

void log_fail(struct log *log, int error) {
    if (log->error != OK) {
        return;
    }
    log->error = error;
    entries_fail(&log->open, error);
    LIST_FOR_EACH_SAFE(link, &log->rows) {
        struct log_row *row = CONTAINER_OF(link, struct log_row, link);
        entries_fail(&row->entries, error);
        list_remove(&row->link);
        log->row_count--;
        row_free_if_over(row);
    }
    log->options.want_checkpoint(log->options.owner);
}

void log_no_room(struct log *log, int error) {
    log->no_room = error;
    log_reconsider(log);
}

int log_error(const struct log *log) {
    return log->error;
}

/* ---- entries ---- */

void log_start(struct log *log, struct log_entry *entry) {
    ASSERT_LE(entry->header_bytes, LOG_HEADER_BYTES_MAX);
    ASSERT_LE(sizeof(struct log_row_phys) + entry_bytes(entry), row_bytes_max(log));
    entry->done = false;
    entry->waiter = NULL;
    entry->result = log->error;
    if (log->error != OK) {
        list_init(&entry->link);
        entry->done = true;
        return;
    }
    if (list_is_empty(&log->open)) {
        log->open_since_ns = env_now_ns(log->pool->env);
    }
    list_append(&log->open, &entry->link);
    log->open_bytes += entry_bytes(entry);
    log->open_hurried += !entry->patient;
    close_soon(log);
}

void log_expect(struct log *log, int32_t change) {
    ASSERT(change >= 0 || log->expected >= (uint32_t)-change);
    log->expected += (uint32_t)change;
    if (log->expected == 0) {
        close_soon(log);
    }
}

int log_wait(struct log *log, struct log_entry *entry) {
    (void)log;
    while (!entry->done) {
        entry->waiter = fiber_self();
        fiber_park();
    }
    return entry->result;
}

int log_append(struct log *log, struct log_entry *entry) {
    log_start(log, entry);
    return log_wait(log, entry);
}

/* ---- space ---- */

uint64_t log_committed_lsn(const struct log *log) {
    return log->committed_lsn;
}

void log_trim(struct log *log, uint64_t lsn) {
    log->trimmed_lsn = lsn;
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        ring_trim(log, &log->rings[m]);
    }
    LIST_FOR_EACH_SAFE(link, &log->rows) { /* those that wait for room on another ring */
        struct log_row *row = CONTAINER_OF(link, struct log_row, link);
        if (!row->durable) {
            row_pursue(row);
        }
        if (log->error != OK) {
            return; /* and the rows are gone */
        }
    }
    log_commit(log);
    close_soon(log);
}

void log_tails(const struct log *log, uint64_t lsn, uint64_t *ret_tails) {
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        const struct ring *ring = &log->rings[m];
        ret_tails[m] = ring->head;
        LIST_FOR_EACH(link, &ring->slots) {
            const struct ring_slot *slot = CONTAINER_OF(link, struct ring_slot, link);
            if (slot->lsn >= lsn) {
                ret_tails[m] = slot->start;
                break;
            }
        }
    }
}

uint32_t log_ring_used_pct(const struct log *log) {
    uint32_t used = 0;
    for (uint32_t m = 0; m < log->pool->super.member_count; m++) {
        used = MAX(used, log->rings[m].used);
    }
    return (uint32_t)((uint64_t)used * 100 / ring_blocks(log));
}

void log_member_added(struct log *log, uint32_t member) {
    log->rotating |= disk_info(log->pool->disks[member])->rotational;
    close_soon(log);
}

bool log_member_is_idle(const struct log *log, uint32_t member) {
    return list_is_empty(&log->rings[member].slots) && log->rings[member].rows_in_flight == 0;
}

const struct log_counters *log_counters(const struct log *log) {
    return &log->counters;
}
