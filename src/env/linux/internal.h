// SPDX-License-Identifier: MPL-2.0
/* Between the files of env/linux.
 *
 * There is one place where a loop waits: io_uring, or epoll where io_uring is refused. Sockets and
 * the eventfd of env_post() are in an epoll set in both cases; with a ring, the ring watches the
 * set. Reads and writes go to the ring; what can only block (flushes, discards, and all where there
 * is no ring) to worker threads of the disk, so that a disk that hangs takes no other disk's
 * threads with it. */
#ifndef HOLDFAST_ENV_LINUX_INTERNAL_H
#define HOLDFAST_ENV_LINUX_INTERNAL_H

#include <liburing.h>

#include "env/backend.h"
#include "env/linux/linux.h"

/* What a completion queue entry's user_data points at. */
struct ring_op {
    void (*complete)(struct ring_op *op, int result);
};

/* What an epoll event's data points at. Only notes what has happened and defers the rest, so that
 * nothing can be freed while a batch of events is gone through. */
struct epoll_client {
    void (*notify)(struct epoll_client *client, uint32_t events);
};

/* I/Os by backend_next, first in first out. */
struct io_queue {
    struct env_io *first, **end;
};

struct linux_env {
    struct env env;
    char state_dir[256];
    uint32_t disk_workers;
    uint64_t spin_ns, no_spin_until_ns;
    bool spins; /* the last wait was short */

    int epoll_fd;
    int wake_fd;         /* in the set edge-triggered, so it is never read */
    uint64_t sockets_ns; /* when sockets were looked at and read last */
    struct list readers; /* streams that have something to be read, by in_readers */
    atomic_bool is_sleeping;
    /* Threads inside env_post(), which touches the environment after the loop can see the task. */
    atomic_uint posters;

    bool has_ring;
    uint32_t ring_ios; /* that it, or its backlog, has in hand */
    bool ring_is_enabled;
    struct io_uring ring;
    struct ring_op epoll_op;
    bool epoll_is_armed;
    bool epoll_has_events;
    struct env_io *backlog; /* did not fit the submission queue */
    struct env_io **backlog_end;

    uint64_t outstanding;                /* I/Os of all disks */
    struct io_queue own_short, own_long; /* those that the loop does itself */
    struct env_task own_task;
    bool own_task_is_queued;
};

static inline struct linux_env *linux_env_of(struct env *env) {
    return CONTAINER_OF(env, struct linux_env, env);
}

struct fd_handle;
struct memory_object;

/* Which way reads and writes go, so that the loop never stands still for a device. */
enum disk_way {
    WAY_RING,        /* block devices: the kernel never waits there in the thread that submits */
    WAY_RING_NOWAIT, /* with RWF_NOWAIT; what would wait comes back, and is done by the threads */
    WAY_LOOP,        /* it is memory: the loop copies */
    WAY_THREADS,     /* it may wait, and nobody can tell */
};

struct linux_disk {
    struct env_disk disk;
    struct env_disk_info info;
    uint64_t window_bytes; /* where the disk begins in the file, device or memory */
    uint32_t outstanding;
    bool is_closed;
    enum disk_way way;
    int fd;
    struct fd_handle *handle;     /* files and block devices */
    struct memory_object *memory; /* memory disks */
};

static inline struct linux_disk *linux_disk_of(struct env_disk *disk) {
    return CONTAINER_OF(disk, struct linux_disk, disk);
}

static inline struct linux_env *linux_disk_env(struct linux_disk *disk) {
    return linux_env_of(disk->disk.env);
}

/* In env_io.backend. */
struct linux_io {
    union {
        struct env_task task; /* on its way back from a worker, or failed at once */
        struct ring_op op;    /* in the ring */
    };
    struct linux_disk *disk;
};
_Static_assert(sizeof(struct linux_io) <= sizeof(((struct env_io *)0)->backend), "fits");

static inline struct linux_io *linux_io_of(struct env_io *io) {
    return (struct linux_io *)(void *)io->backend;
}

static inline struct env_io *env_io_of(struct linux_io *lio) {
    return CONTAINER_OF(lio, struct env_io, backend);
}

/* ---- loop.c ---- */

/* Takes what the epoll set holds, waiting at most `timeout_ns` (UINT64_MAX: as long as it takes).
 * True if it held anything. */
bool epoll_collect(struct linux_env *l, uint64_t timeout_ns);

/* ---- stream.c ---- */

/* Lets those that have something to be read read it, in the next turn. */
void streams_read(struct linux_env *l);

/* ---- ring.c ---- */

HF_MUST_CHECK int ring_open(struct linux_env *l, uint32_t depth, struct errmsg *reterr);
void ring_close(struct linux_env *l);
void ring_submit(struct linux_env *l, struct env_io *io);
/* Submits what is queued, waits, runs completions. */
void ring_wait(struct linux_env *l, uint64_t timeout_ns);
bool ring_has_completions(struct linux_env *l);

/* ---- disk.c ---- */

extern const struct env_ops linux_ops;     /* loop.c */
extern const struct net_ops linux_net_ops; /* listener.c */

int linux_disk_open(struct env *env, const char *path, const struct env_disk_options *options,
                    struct env_disk **ret_disk, struct errmsg *reterr);
void linux_disk_close(struct env_disk *disk);
const struct env_disk_info *linux_disk_info(const struct env_disk *disk);
void linux_disk_submit(struct env_disk *disk, struct env_io *io);
int linux_disk_probe(struct env_disk *disk, struct errmsg *reterr);

/* The end of every I/O: `result` is what the system call returned, or -errno. Frees the disk if
 * this was its last one and it is closed. */
void linux_io_finish(struct env_io *io, int64_t result);
/* The same, from the loop's next turn. */
void linux_io_fail(struct env_io *io, int errnum);
/* linux_io_finish() with the errno's place taken by a code of base/error.h. */
void linux_io_return(struct env_io *io, int error);
/* Does what is queued for the loop itself, as far as a turn may take. */
void linux_own_run(struct env_task *task);

/* ---- handle.c: a file descriptor that threads share ---- */

HF_MUST_CHECK int handle_open(const char *path, const struct env_disk_options *options,
                              uint32_t workers, struct fd_handle **ret_handle,
                              struct errmsg *reterr);
int handle_fd(const struct fd_handle *handle);
bool handle_is_block(const struct fd_handle *handle);
bool handle_can_punch(const struct fd_handle *handle);
enum disk_way handle_way(const struct fd_handle *handle);
/* The system call itself: what it returned, or -errno. */
int64_t handle_perform(struct fd_handle *handle, struct env_io *io);
uint64_t handle_size_bytes(const struct fd_handle *handle);
uint64_t handle_device(const struct fd_handle *handle); /* dev_t of, or under, it */
/* The disk's last byte: a file that becomes shorter is no longer what was opened. */
void handle_set_end(struct fd_handle *handle, uint64_t end_bytes);
/* Never blocks: the descriptor is closed by a thread, when nobody uses it any more. */
void handle_release(struct fd_handle *handle);
/* Hands `io` to the disk's worker threads; it comes back by env_post(). */
void handle_work(struct fd_handle *handle, struct env_io *io);
int handle_probe(struct fd_handle *handle, struct errmsg *reterr);

/* ---- sysfs.c ---- */

/* What the kernel says about a block device, or the one under a file (then only whether it
 * rotates). Fields it does not know stay empty. */
void sysfs_describe(uint64_t device, bool is_block, struct env_disk_info *info);

/* ---- memory.c ---- */

HF_MUST_CHECK int memory_open(const char *path, bool exclusive, struct memory_object **ret_object,
                              struct errmsg *reterr);
uint64_t memory_size_bytes(const struct memory_object *object);
void memory_release(struct memory_object *object);
void memory_perform(struct memory_object *object, uint64_t offset_bytes, struct env_io *io);

/* ---- state.c ---- */

int linux_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                     size_t *ret_length);
int linux_state_write(struct env *env, const char *name, const void *bytes, size_t length);

#endif
