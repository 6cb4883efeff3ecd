// SPDX-License-Identifier: MPL-2.0
/* Disk I/O by io_uring.
 *
 * I/Os are prepared as they come and submitted once a turn, with the wait if there is one. What
 * does not fit the submission queue stays in a list of our own, in order. The number in flight is
 * not limited here: the kernel keeps completions that do not fit their queue (FEAT_NODROP), and a
 * limit would let one hung disk use up what the others need.
 *
 * Only reads and writes come here. What the kernel cannot do without blocking it gives to threads
 * that all disks share, or, where a file system does not say so, it lets the loop stand still. So
 * I/O of files is asked for with RWF_NOWAIT, and what comes back is done by threads of its disk;
 * and file systems that are not known to keep to that get nothing by the ring.
 *
 * Kernels and containers differ in what they allow, so ring_open() tries: the flags that suit one
 * thread best first, then fewer; and a ring that opens must also pass a no-op before it is trusted
 * (some sandboxes let one set up rings that then do nothing). */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/assert.h"
#include "env/linux/internal.h"

enum {
    /* Threads of the kernel for I/O it cannot do without blocking. Its default, four a core, could
     * all hang on one disk. */
    KERNEL_WORKERS = 256,
};

static const unsigned features_needed =
    IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_SUBMIT_STABLE;

static const unsigned flags_to_try[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_R_DISABLED,                                                     /* 6.1 */
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED, /* 5.19 */
    IORING_SETUP_R_DISABLED,                                                         /* 5.10 */
};

/* ---- opening ---- */

static bool operations_are_known(struct io_uring *ring) {
    static const int needed[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READV, IORING_OP_WRITEV,
                                 IORING_OP_POLL_ADD};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool known = probe != NULL;
    for (size_t i = 0; known && i < sizeof(needed) / sizeof(needed[0]); i++) {
        known = io_uring_opcode_supported(probe, needed[i]);
    }
    if (probe != NULL) {
        io_uring_free_probe(probe);
    }
    return known;
}

/* On a ring of its own, which this thread may use at once. */
static int try_no_op(void) {
    struct io_uring ring;
    int rc = io_uring_queue_init(2, &ring, 0);
    if (rc < 0) {
        return rc;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_nop(sqe);
    struct io_uring_cqe *cqe;
    rc = io_uring_submit(&ring);
    if (rc == 1) {
        rc = io_uring_wait_cqe(&ring, &cqe);
        rc = rc == 0 ? cqe->res : rc;
    } else if (rc == 0) {
        rc = -EIO;
    }
    if (rc == 0 && !operations_are_known(&ring)) {
        rc = -EOPNOTSUPP;
    }
    io_uring_queue_exit(&ring);
    return rc;
}

int ring_open(struct linux_env *l, uint32_t depth, struct errmsg *reterr) {
    int rc = try_no_op();
    if (rc < 0) {
        return errmsg_set(reterr, ERR_UNSUPPORTED, "io_uring cannot be used here: %s",
                          strerror(-rc));
    }
    for (size_t i = 0; i < sizeof(flags_to_try) / sizeof(flags_to_try[0]); i++) {
        struct io_uring_params params = {.flags = flags_to_try[i]};
        rc = io_uring_queue_init_params(depth, &l->ring, &params);
        if (rc < 0) {
            continue;
        }
        if ((params.features & features_needed) == features_needed) {
            return OK;
        }
        io_uring_queue_exit(&l->ring);
        rc = -EOPNOTSUPP;
    }
    return errmsg_set(reterr, ERR_UNSUPPORTED,
                      "io_uring refuses a queue of %u (%s): check the memlock limit, or run "
                      "without io_uring",
                      depth, strerror(-rc));
}

void ring_close(struct linux_env *l) {
    io_uring_queue_exit(&l->ring);
}

/* The ring may have been made by another thread than the one that runs the loop; whoever enables it
 * owns it. The rest is done for this thread and may be refused. */
static void ring_enable(struct linux_env *l) {
    /* io_uring_enable_rings() is declared but not exported by liburing 2.3. */
    int rc = io_uring_register((unsigned)l->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    ASSERT(rc == 0);
    l->ring_is_enabled = true;
    (void)io_uring_register_ring_fd(&l->ring);
    unsigned workers[2] = {KERNEL_WORKERS, 0};
    (void)io_uring_register_iowq_max_workers(&l->ring, workers);
}

/* ---- disk I/O ---- */

static void io_completed(struct ring_op *op, int result) {
    struct linux_io *lio = CONTAINER_OF(op, struct linux_io, op);
    struct env_io *io = env_io_of(lio);
    struct linux_disk *disk = lio->disk;
    bool is_file = disk->info.kind == ENV_DISK_FILE;
    linux_disk_env(disk)->ring_ios--;
    if (is_file && result == -EOPNOTSUPP) {
        disk->way = WAY_THREADS; /* this kernel's file system does not know RWF_NOWAIT */
    }
    bool would_block = result == -EAGAIN || result == -EINTR ||
                       (is_file && (result == -EOPNOTSUPP ||
                                    (result >= 0 && (uint64_t)result < io->length_bytes)));
    if (would_block) {
        handle_work(disk->handle, io);
    } else {
        linux_io_finish(io, result);
    }
}

static void prepare(struct io_uring_sqe *sqe, struct env_io *io) {
    struct linux_io *lio = linux_io_of(io);
    int fd = lio->disk->fd;
    uint64_t offset_bytes = lio->disk->window_bytes + io->offset_bytes;
    unsigned length_bytes = (unsigned)io->length_bytes;
    bool is_single = io->iov_count == 1 && io->length_bytes <= UINT32_MAX;
    ASSERT(io->op == ENV_IO_READ || io->op == ENV_IO_WRITE);
    if (io->op == ENV_IO_READ && is_single) {
        io_uring_prep_read(sqe, fd, io->iov->iov_base, length_bytes, offset_bytes);
    } else if (io->op == ENV_IO_READ) {
        io_uring_prep_readv(sqe, fd, io->iov, io->iov_count, offset_bytes);
    } else if (is_single) {
        io_uring_prep_write(sqe, fd, io->iov->iov_base, length_bytes, offset_bytes);
    } else {
        io_uring_prep_writev(sqe, fd, io->iov, io->iov_count, offset_bytes);
    }
    sqe->rw_flags = (io->op == ENV_IO_WRITE && io->durable ? RWF_DSYNC : 0) |
                    (lio->disk->way == WAY_RING_NOWAIT ? RWF_NOWAIT : 0);
    lio->op.complete = io_completed;
    io_uring_sqe_set_data(sqe, &lio->op);
}

void ring_submit(struct linux_env *l, struct env_io *io) {
    l->ring_ios++;
    struct io_uring_sqe *sqe = l->backlog == NULL ? io_uring_get_sqe(&l->ring) : NULL;
    if (sqe != NULL) {
        prepare(sqe, io);
    } else {
        *l->backlog_end = io;
        l->backlog_end = &io->backend_next;
    }
}

/* ---- waiting ---- */

static void epoll_ready(struct ring_op *op, int result) {
    struct linux_env *l = CONTAINER_OF(op, struct linux_env, epoll_op);
    (void)result;
    l->epoll_is_armed = false;
    l->epoll_has_events = true;
}

static void fill(struct linux_env *l) {
    struct io_uring_sqe *sqe;
    if (!l->epoll_is_armed && (sqe = io_uring_get_sqe(&l->ring)) != NULL) {
        io_uring_prep_poll_add(sqe, l->epoll_fd, POLLIN);
        l->epoll_op.complete = epoll_ready;
        io_uring_sqe_set_data(sqe, &l->epoll_op);
        l->epoll_is_armed = true;
    }
    while (l->backlog != NULL && (sqe = io_uring_get_sqe(&l->ring)) != NULL) {
        struct env_io *io = l->backlog;
        l->backlog = io->backend_next;
        if (l->backlog == NULL) {
            l->backlog_end = &l->backlog;
        }
        prepare(sqe, io);
    }
}

static bool kernel_has_work(struct linux_env *l) {
    return (__atomic_load_n(l->ring.sq.kflags, __ATOMIC_RELAXED) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

bool ring_has_completions(struct linux_env *l) {
    return io_uring_cq_ready(&l->ring) > 0 || kernel_has_work(l);
}

static void reap(struct linux_env *l) {
    struct io_uring_cqe *cqe;
    unsigned head, count;
    do {
        count = 0;
        io_uring_for_each_cqe(&l->ring, head, cqe) {
            struct ring_op *op = io_uring_cqe_get_data(cqe);
            op->complete(op, cqe->res);
            count++;
        }
        io_uring_cq_advance(&l->ring, count);
    } while (count > 0);
    if (l->epoll_has_events) {
        l->epoll_has_events = false;
        (void)epoll_collect(l, 0);
    }
}

static void check_entered(int rc) {
    /* ETIME, EINTR: nothing came. EBUSY: completions must be taken first. EAGAIN, ENOMEM: short of
     * memory for now. Anything else is ours. */
    ASSERT(rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EBUSY || rc == -EAGAIN ||
           rc == -ENOMEM);
}

void ring_wait(struct linux_env *l, uint64_t timeout_ns) {
    if (!l->ring_is_enabled) {
        ring_enable(l);
    }
    fill(l);
    /* More than one queue full in one turn. */
    while (l->backlog != NULL || !l->epoll_is_armed) {
        int rc = io_uring_submit_and_get_events(&l->ring);
        check_entered(rc);
        fill(l);
        if (rc <= 0) {
            break;
        }
    }
    if (l->backlog != NULL || !l->epoll_is_armed) {
        timeout_ns = 0; /* never asleep with I/Os in hand, or deaf */
    }
    if (timeout_ns > 0) {
        struct __kernel_timespec ts = {(long long)(timeout_ns / NS_PER_S),
                                       (long long)(timeout_ns % NS_PER_S)};
        struct io_uring_cqe *cqe;
        check_entered(io_uring_submit_and_wait_timeout(
            &l->ring, &cqe, 1, timeout_ns == UINT64_MAX ? NULL : &ts, NULL));
    } else if (io_uring_sq_ready(&l->ring) > 0 || kernel_has_work(l)) {
        check_entered(io_uring_submit_and_get_events(&l->ring));
    }
    reap(l);
}
