// SPDX-License-Identifier: MPL-2.0
/* Theory. Every I/O of a caller (struct disk_io) is carried by an operation (struct disk_op) that
 * belongs to the disk. The operation owns what the environment may still touch: the iovec and a
 * reference to the buffer. When a deadline passes, the caller's I/O is cut off and answered; the
 * operation stays until the environment hands it back, however late, and counts as late meanwhile.
 *
 *   in time:  submit ──> waiting list ──> env done ──> caller's done, operation freed
 *   late:     submit ──> waiting list ──> deadline ──> caller's done ... env done ──> freed
 *   refused:  submit ──> answer list ──> task of the loop ──> caller's done
 *             (the disk holds too much that is late, or was abandoned)
 *
 * The waiting list is ordered by deadline. Nearly all I/Os use the disk's default, so that new ones
 * go to the tail at once. One timer serves the whole list: it is armed for a deadline that was once
 * the earliest, and when it fires it expires what is due and arms itself for the new head; an I/O
 * that completes in time never touches it.
 *
 * What is known of latencies is measured from the submission until the environment hands an
 * operation back, whoever still waited for it.
 *
 * A closed disk lives on until its last operation is back. */
#include "disk/disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/fiber.h"

#define DEADLINE_DEFAULT_NS (5 * NS_PER_S)
#define LATE_BYTES_DEFAULT (64ull << 20)
#define BACKLOG_MOST_NS (10 * NS_PER_S)
enum { LATE_LOOKED_AT_MAX = 64 };

struct disk_op {
    struct list link;  /* in waiting or answers, or alone (late) */
    struct list order; /* in the disk's order, while the environment has it */
    struct env_io env_io;
    struct iovec iov;
    struct disk *disk;
    struct disk_io *io; /* NULL: answered already */
    struct buf *buf;    /* our reference */
    uint64_t submitted_ns, deadline_ns;
    uint64_t slow_at_ns, late_at_ns; /* by the yardstick; UINT64_MAX: not known */
    struct disk_op *next_free;
};

struct disk {
    struct env *env;
    struct env_disk *env_disk;
    struct list waiting; /* operations with a caller, earliest deadline first */
    struct list answers; /* operations that never went out; answered by answer_task */
    struct list order;   /* operations with the environment, oldest first */
    struct env_task answer_task;
    struct env_timer timer;
    struct disk_op *free_ops;
    uint64_t deadline_ns, late_bytes_limit;
    uint32_t outstanding; /* with the environment */
    uint32_t calling;     /* depth of callers' done() under way */
    bool answering;       /* answer_task is queued */
    bool closed, abandoned, suspect;
    uint64_t shunned_until_ns;
    uint64_t busy_since_ns;  /* while something is outstanding */
    uint64_t modelled_to_ns; /* when a disk like its peers would have done all it was given */
    struct disk_latency latency;
    struct disk_window window;
    struct disk_yardstick yardstick;
    struct disk_counters counters;
    struct env_disk_info info; /* a copy: outlives env_disk */
};

/* What an operation counts for while it is late: the memory it holds, and never nothing. */
static bool op_is_change(const struct disk_op *op) {
    return op->env_io.op == ENV_IO_WRITE || op->env_io.op == ENV_IO_DISCARD;
}

static uint64_t op_late_bytes(const struct disk_op *op) {
    return op->buf != NULL ? op->iov.iov_len : BLOCK_BYTES;
}

static void count_late(struct disk *disk, const struct disk_op *op, int sign) {
    struct disk_counters *c = &disk->counters;
    bool durable = op->env_io.op == ENV_IO_WRITE && op->env_io.durable;
    c->late_bytes += (uint64_t)sign * op_late_bytes(op);
    c->late_changes += (uint64_t)sign * op_is_change(op);
    c->late_durable += (uint64_t)sign * durable;
}

static void disk_free_if_idle(struct disk *disk) {
    if (disk->closed && disk->outstanding == 0 && disk->calling == 0 && !disk->answering) {
        mem_free(disk);
    }
}

static struct disk_op *op_new(struct disk *disk) {
    struct disk_op *op = disk->free_ops;
    if (op == NULL) {
        op = MEM_NEW(struct disk_op);
        op->disk = disk;
    } else {
        disk->free_ops = op->next_free;
    }
    list_init(&op->link);
    list_init(&op->order);
    return op;
}

static void op_free(struct disk_op *op) {
    buf_unref(op->buf);
    op->buf = NULL;
    if (op->disk->closed) {
        mem_free(op);
        return;
    }
    op->next_free = op->disk->free_ops;
    op->disk->free_ops = op;
}

/* ---- events ---- */

void disk_note(struct disk *disk, enum disk_error_kind kind, uint64_t offset_bytes,
               uint64_t length_bytes, const char *text) {
    ASSERT_LT(kind, DISK_ERROR_KINDS);
    struct disk_counters *c = &disk->counters;
    c->errors[kind]++;
    struct disk_event *e = &c->events[c->event_count++ % DISK_EVENTS_KEPT];
    e->wall_ns = env_wall_ns(disk->env);
    e->kind = kind;
    e->offset_bytes = offset_bytes;
    e->length_bytes = length_bytes;
    (void)snprintf(e->text, sizeof(e->text), "%s", text);
}

static const char *op_name(enum env_io_op op) {
    static const char *const names[] = {[ENV_IO_READ] = "read",
                                        [ENV_IO_WRITE] = "write",
                                        [ENV_IO_FLUSH] = "flush",
                                        [ENV_IO_DISCARD] = "discard"};
    return names[op];
}

static void note_failure(struct disk *disk, const struct disk_io *io) {
    enum disk_error_kind kind = io->op == ENV_IO_READ    ? DISK_ERROR_READ
                                : io->op == ENV_IO_FLUSH ? DISK_ERROR_FLUSH
                                                         : DISK_ERROR_WRITE;
    char text[sizeof(disk->counters.events[0].text)], length[16];
    if (io->result == ERR_TIMEOUT) {
        kind = DISK_ERROR_TIMEOUT;
    }
    if (io->op == ENV_IO_FLUSH) {
        (void)snprintf(text, sizeof(text), "flush: %s", error_text(io->result));
    } else {
        size_format(io->length_bytes, length, sizeof(length));
        (void)snprintf(text, sizeof(text), "%s of %s at byte %" PRIu64 ": %s", op_name(io->op),
                       length, io->offset_bytes, error_text(io->result));
    }
    disk_note(disk, kind, io->offset_bytes, io->length_bytes, text);
}

/* The caller may submit, close the disk, or free `io` in done(). */
static void answer(struct disk *disk, struct disk_op *op, int result) {
    struct disk_io *io = op->io;
    op->io = NULL;
    io->private_op = NULL;
    io->result = result;
    io->latency_ns = env_now_ns(disk->env) - op->submitted_ns;
    disk->counters.in_flight--;
    disk->counters.answered++;
    disk->counters.latency_ns += io->latency_ns;
    if (result != OK && result != ERR_CANCELLED && !disk->abandoned) {
        note_failure(disk, io);
    }
    disk->calling++;
    io->done(io);
    disk->calling--;
}

/* ---- measuring ---- */

static enum latency_kind kind_of(enum env_io_op op, bool durable) {
    return op == ENV_IO_READ    ? LATENCY_READ
           : op == ENV_IO_FLUSH ? LATENCY_FLUSH
           : durable            ? LATENCY_DURABLE
                                : LATENCY_WRITE;
}

static uint64_t backlog_ns(const struct disk *disk, uint64_t now) {
    return disk->modelled_to_ns > now ? MIN(disk->modelled_to_ns - now, BACKLOG_MOST_NS) : 0;
}

static uint64_t allowed_until(uint64_t from_ns, uint64_t allowed_ns) {
    return allowed_ns == 0 ? UINT64_MAX : from_ns + allowed_ns;
}

/* An operation goes out: what it may take is decided by what is known now. */
static void measure_begin(struct disk *disk, struct disk_op *op) {
    const struct env_io *io = &op->env_io;
    const struct disk_yardstick *y = &disk->yardstick;
    uint64_t now = op->submitted_ns, from = now + backlog_ns(disk, now);
    op->slow_at_ns = op->late_at_ns = UINT64_MAX;
    if (io->op != ENV_IO_DISCARD) {
        enum latency_kind kind = kind_of(io->op, io->durable);
        enum latency_class class = latency_class_of(io->length_bytes);
        op->slow_at_ns = allowed_until(from, y->slow_ns[kind][class]);
        op->late_at_ns = allowed_until(from, y->late_ns[kind][class]);
    }
    /* The model is a little faster than its peers: else chance alone would let its backlog grow
     * when they are always busy. */
    disk->modelled_to_ns =
        MAX(disk->modelled_to_ns, now) + latency_units(io->length_bytes) * y->unit_ns * 3 / 4;
    if (list_is_empty(&disk->order)) {
        disk->busy_since_ns = now;
    }
    list_append(&disk->order, &op->order);
}

static void measure_busy(struct disk *disk, uint64_t now) {
    disk->latency.busy_ns += now - disk->busy_since_ns;
    disk->busy_since_ns = now;
}

static void measure_end(struct disk *disk, struct disk_op *op) {
    const struct env_io *io = &op->env_io;
    uint64_t now = env_now_ns(disk->env);
    measure_busy(disk, now);
    list_remove(&op->order);
    if (io->op == ENV_IO_DISCARD || io->result == ERR_DISK_GONE) {
        return;
    }
    enum latency_kind kind = kind_of(io->op, io->durable);
    latency_add(&disk->latency.of[kind][latency_class_of(io->length_bytes)],
                now - op->submitted_ns);
    disk->latency.units += latency_units(io->length_bytes);
    disk->window.done++;
    disk->window.of[kind].done++;
    disk->window.of[kind].slow += now > op->slow_at_ns;
    disk->window.late += now > op->late_at_ns;
    disk->counters.slow_ios += now > op->late_at_ns;
}

uint64_t disk_oldest_ns(const struct disk *disk) {
    if (list_is_empty(&disk->order)) {
        return 0;
    }
    return env_now_ns(disk->env) -
           CONTAINER_OF(disk->order.next, struct disk_op, order)->submitted_ns;
}

struct disk_window disk_window_take(struct disk *disk) {
    uint64_t now = env_now_ns(disk->env);
    struct disk_window w = disk->window;
    int looked_at = 0;
    w.oldest_ns = disk_oldest_ns(disk);
    LIST_FOR_EACH(link, &disk->order) {
        if (looked_at++ == LATE_LOOKED_AT_MAX) {
            break;
        }
        w.late_out += now > CONTAINER_OF(link, struct disk_op, order)->late_at_ns;
    }
    if (!list_is_empty(&disk->order)) {
        measure_busy(disk, now);
    }
    disk->window = (struct disk_window){0};
    return w;
}

struct disk_latency *disk_latency(struct disk *disk) {
    return &disk->latency;
}

void disk_set_yardstick(struct disk *disk, const struct disk_yardstick *yardstick) {
    disk->yardstick = *yardstick;
}

uint64_t disk_hedge_ns(const struct disk *disk, enum env_io_op op, bool durable,
                       uint64_t length_bytes) {
    uint64_t ns = disk->yardstick.hedge_ns[kind_of(op, durable)][latency_class_of(length_bytes)];
    return ns == 0 ? UINT64_MAX : ns + backlog_ns(disk, env_now_ns(disk->env));
}

void disk_set_suspect(struct disk *disk, bool suspect) {
    disk->suspect = suspect;
}

void disk_shun(struct disk *disk, uint64_t until_ns) {
    disk->shunned_until_ns = until_ns;
}

bool disk_is_avoided(const struct disk *disk) {
    return disk->suspect ||
           (disk->shunned_until_ns != 0 && env_now_ns(disk->env) < disk->shunned_until_ns);
}

uint64_t disk_deadline_ns(const struct disk *disk) {
    return disk->deadline_ns;
}

bool disk_may_change(const struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes) {
    if (disk->counters.late_changes == 0) {
        return false;
    }
    LIST_FOR_EACH(link, &disk->order) {
        const struct disk_op *op = CONTAINER_OF(link, struct disk_op, order);
        if (op->io == NULL && op_is_change(op) &&
            op->env_io.offset_bytes < offset_bytes + length_bytes &&
            offset_bytes < op->env_io.offset_bytes + op->env_io.length_bytes) {
            return true;
        }
    }
    return false;
}

/* ---- answering ---- */

static void env_done(struct env_io *env_io) {
    struct disk_op *op = env_io->owner;
    struct disk *disk = op->disk;
    disk->outstanding--;
    measure_end(disk, op);
    if (op->io == NULL) { /* late: somebody else was told already */
        count_late(disk, op, -1);
        op_free(op);
    } else {
        list_remove(&op->link);
        answer(disk, op, env_io->result);
        op_free(op);
    }
    disk_free_if_idle(disk);
}

/* Answers an operation that the environment still works on. */
static void cut_off(struct disk *disk, struct disk_op *op, int result) {
    list_remove(&op->link);
    count_late(disk, op, 1);
    answer(disk, op, result);
}

void disk_leave(struct disk_io *io) {
    struct disk_op *op = io->private_op;
    if (op == NULL) {
        return;
    }
    struct disk *disk = op->disk;
    list_remove(&op->link);
    op->io = NULL;
    io->private_op = NULL;
    io->result = ERR_TIMEOUT;
    disk->counters.in_flight--;
    disk->counters.left++;
    if (list_is_empty(&op->order)) { /* it never went out */
        op_free(op);
    } else {
        count_late(disk, op, 1);
    }
}

static void timer_fired(struct env_timer *timer) {
    struct disk *disk = CONTAINER_OF(timer, struct disk, timer);
    uint64_t now = env_now_ns(disk->env);
    disk->calling++; /* keeps `disk` while callers may close it */
    while (!disk->closed && !list_is_empty(&disk->waiting)) {
        struct disk_op *op = CONTAINER_OF(disk->waiting.next, struct disk_op, link);
        if (op->deadline_ns > now) {
            env_timer_arm(disk->env, &disk->timer, op->deadline_ns);
            break;
        }
        cut_off(disk, op, ERR_TIMEOUT);
    }
    disk->calling--;
    disk_free_if_idle(disk);
}

/* What whoever waits is told when the environment is not asked, or not waited for. */
static int refusal(const struct disk *disk) {
    return disk->closed ? ERR_CANCELLED : disk->abandoned ? ERR_DISK_GONE : ERR_TIMEOUT;
}

static void answer_task_run(struct env_task *task) {
    struct disk *disk = CONTAINER_OF(task, struct disk, answer_task);
    disk->answering = false;
    disk->calling++;
    struct list *node;
    while ((node = list_pop(&disk->answers)) != NULL) {
        struct disk_op *op = CONTAINER_OF(node, struct disk_op, link);
        answer(disk, op, refusal(disk));
        op_free(op);
    }
    while ((disk->closed || disk->abandoned) && !list_is_empty(&disk->waiting)) {
        cut_off(disk, CONTAINER_OF(disk->waiting.next, struct disk_op, link), refusal(disk));
    }
    disk->calling--;
    disk_free_if_idle(disk);
}

static void answer_soon(struct disk *disk) {
    if (!disk->answering) {
        disk->answering = true;
        env_defer(disk->env, &disk->answer_task);
    }
}

/* ---- submitting ---- */

static void count_submit(struct disk *disk, const struct disk_io *io) {
    struct disk_counters *c = &disk->counters;
    c->in_flight++;
    switch (io->op) {
    case ENV_IO_READ:
        c->reads++;
        c->read_bytes += io->length_bytes;
        break;
    case ENV_IO_WRITE:
        c->writes++;
        c->write_bytes += io->length_bytes;
        break;
    case ENV_IO_FLUSH:
        c->flushes++;
        break;
    case ENV_IO_DISCARD:
        c->discards++;
        break;
    }
}

static void check_request(const struct disk *disk, const struct disk_io *io) {
    ASSERT(!disk->closed);
    if (io->op == ENV_IO_FLUSH) {
        return;
    }
    ASSERT_EQ(io->offset_bytes % BLOCK_BYTES, 0);
    ASSERT_EQ(io->length_bytes % BLOCK_BYTES, 0);
    ASSERT_LT(0, io->length_bytes);
    ASSERT(range_is_within(io->offset_bytes, io->length_bytes, disk->info.size_bytes));
    if (io->op != ENV_IO_DISCARD) {
        ASSERT_EQ(io->buf_offset % BLOCK_BYTES, 0);
        ASSERT(range_is_within(io->buf_offset, io->length_bytes, io->buf->bytes));
    }
}

static void wait_for(struct disk *disk, struct disk_op *op) {
    struct list *at = &disk->waiting;
    while (at->prev != &disk->waiting &&
           CONTAINER_OF(at->prev, struct disk_op, link)->deadline_ns > op->deadline_ns) {
        at = at->prev;
    }
    list_insert_before(at, &op->link);
    if (disk->timer.heap_index == 0 || disk->timer.at_ns > op->deadline_ns) {
        env_timer_arm(disk->env, &disk->timer, op->deadline_ns);
    }
}

void disk_submit(struct disk *disk, struct disk_io *io) {
    check_request(disk, io);
    count_submit(disk, io);
    bool moves_data = io->op == ENV_IO_READ || io->op == ENV_IO_WRITE;
    struct disk_op *op = op_new(disk);
    op->io = io;
    op->submitted_ns = env_now_ns(disk->env);
    op->deadline_ns = io->deadline_ns != 0
                          ? io->deadline_ns
                          : op->submitted_ns + disk->deadline_ns / (disk->suspect ? 2 : 1);
    io->private_op = op;
    if (disk->abandoned || disk->counters.late_bytes > disk->late_bytes_limit) {
        list_append(&disk->answers, &op->link);
        answer_soon(disk);
        return;
    }
    op->env_io = (struct env_io){.op = io->op,
                                 .durable = io->durable,
                                 .offset_bytes = io->op == ENV_IO_FLUSH ? 0 : io->offset_bytes,
                                 .length_bytes = io->op == ENV_IO_FLUSH ? 0 : io->length_bytes,
                                 .done = env_done,
                                 .owner = op};
    if (moves_data) {
        op->buf = buf_ref(io->buf);
        op->iov =
            (struct iovec){.iov_base = io->buf->data + io->buf_offset, .iov_len = io->length_bytes};
        op->env_io.iov = &op->iov;
        op->env_io.iov_count = 1;
    }
    wait_for(disk, op);
    measure_begin(disk, op);
    disk->outstanding++;
    env_disk_submit(disk->env_disk, &op->env_io);
}

/* ---- opening and closing ---- */

int disk_open(struct env *env, const char *path, const struct disk_options *options,
              struct disk **ret_disk, struct errmsg *reterr) {
    struct env_disk *env_disk;
    int error = env_disk_open(env, path, &options->env, &env_disk, reterr);
    if (error != OK) {
        return error;
    }
    struct disk *disk = MEM_NEW(struct disk);
    disk->env = env;
    disk->env_disk = env_disk;
    disk->info = *env_disk_info(env_disk);
    disk->deadline_ns = options->deadline_ns != 0 ? options->deadline_ns : DEADLINE_DEFAULT_NS;
    disk->late_bytes_limit =
        options->late_bytes_limit != 0 ? options->late_bytes_limit : LATE_BYTES_DEFAULT;
    list_init(&disk->waiting);
    list_init(&disk->answers);
    list_init(&disk->order);
    disk->answer_task.run = answer_task_run;
    disk->timer.fire = timer_fired;
    *ret_disk = disk;
    return OK;
}

void disk_close(struct disk *disk) {
    if (disk == NULL) {
        return;
    }
    ASSERT(!disk->closed);
    disk->closed = true;
    env_timer_cancel(disk->env, &disk->timer);
    if (disk->env_disk != NULL) {
        env_disk_close(disk->env_disk);
        disk->env_disk = NULL;
    }
    while (disk->free_ops != NULL) {
        struct disk_op *op = disk->free_ops;
        disk->free_ops = op->next_free;
        mem_free(op);
    }
    if (!list_is_empty(&disk->waiting)) {
        answer_soon(disk);
    }
    disk_free_if_idle(disk);
}

void disk_abandon(struct disk *disk) {
    ASSERT(!disk->closed);
    disk->abandoned = true;
    if (!list_is_empty(&disk->waiting)) {
        answer_soon(disk);
    }
}

void disk_let_go(struct disk *disk) {
    ASSERT(disk->abandoned && !disk->closed);
    if (disk->env_disk != NULL) {
        env_disk_close(disk->env_disk);
        disk->env_disk = NULL;
    }
}

bool disk_is_drained(const struct disk *disk) {
    return disk->outstanding == 0 && !disk->answering && list_is_empty(&disk->waiting) &&
           list_is_empty(&disk->answers);
}

void disk_take_over(struct disk *disk, struct disk *other) {
    ASSERT(disk->abandoned && disk->env_disk == NULL && disk_is_drained(disk));
    disk->env_disk = other->env_disk;
    disk->info = other->info;
    disk->abandoned = false;
    other->env_disk = NULL;
    disk_close(other);
}

/* ---- fibers ---- */

struct disk_wait {
    struct disk_io io;
    struct fiber *fiber;
    bool done;
};

static void wait_done(struct disk_io *io) {
    struct disk_wait *wait = io->owner;
    wait->done = true;
    fiber_wake(wait->fiber);
}

static int wait_submit(struct disk *disk, struct disk_wait *wait) {
    wait->fiber = fiber_self();
    ASSERT(wait->fiber != NULL);
    wait->io.done = wait_done;
    wait->io.owner = wait;
    disk_submit(disk, &wait->io);
    while (!wait->done) {
        fiber_park();
    }
    return wait->io.result;
}

int disk_read(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes, struct buf *buf,
              size_t buf_offset) {
    struct disk_wait wait = {.io = {.op = ENV_IO_READ,
                                    .offset_bytes = offset_bytes,
                                    .length_bytes = length_bytes,
                                    .buf = buf,
                                    .buf_offset = buf_offset}};
    return wait_submit(disk, &wait);
}

int disk_write(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes, struct buf *buf,
               size_t buf_offset, bool durable) {
    struct disk_wait wait = {.io = {.op = ENV_IO_WRITE,
                                    .durable = durable,
                                    .offset_bytes = offset_bytes,
                                    .length_bytes = length_bytes,
                                    .buf = buf,
                                    .buf_offset = buf_offset}};
    return wait_submit(disk, &wait);
}

int disk_flush(struct disk *disk) {
    struct disk_wait wait = {.io = {.op = ENV_IO_FLUSH}};
    return wait_submit(disk, &wait);
}

int disk_discard(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes) {
    struct disk_wait wait = {
        .io = {.op = ENV_IO_DISCARD, .offset_bytes = offset_bytes, .length_bytes = length_bytes}};
    return wait_submit(disk, &wait);
}

/* ---- looking ---- */

const struct env_disk_info *disk_info(const struct disk *disk) {
    return &disk->info;
}

const struct disk_counters *disk_counters(const struct disk *disk) {
    return &disk->counters;
}

struct env_disk *disk_env(struct disk *disk) {
    return disk->env_disk;
}

uint32_t disk_in_flight(const struct disk *disk) {
    return (uint32_t)disk->counters.in_flight;
}
