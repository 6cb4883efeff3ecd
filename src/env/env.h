// SPDX-License-Identifier: MPL-2.0
/* The environment: everything the array needs from outside, and the event loop of one thread.
 *
 * There are two environments. `env/linux` is the real one. `env/sim` runs whole pools in virtual
 * time from one seed, with modelled disks that fail in every way we know. All other code sees only
 * this header, so the same objects run in both.
 *
 * A `struct env` is one loop and belongs to the thread that runs it. Only env_post() may be called
 * from other threads. Callbacks (timers, tasks, completions) run from the loop, one at a time,
 * never from inside the call that started them.
 */
#ifndef HOLDFAST_ENV_ENV_H
#define HOLDFAST_ENV_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

#define NS_PER_US 1000u
#define NS_PER_MS 1000000u
#define NS_PER_S 1000000000ull

struct env;

/* ---- clocks, randomness ---- */

uint64_t env_now_ns(struct env *env);  /* monotonic; read once per turn of the loop or fresher */
uint64_t env_wall_ns(struct env *env); /* since 1970, for people and labels only */
void env_random(struct env *env, void *ret_bytes, size_t bytes); /* fit for secrets */

/* ---- tasks and timers: memory is the caller's, embedded in its own structs ---- */

struct env_task {
    struct env_task *next;
    void (*run)(struct env_task *task);
};

/* Runs `task` from the loop, after what is already queued. A task is queued at most once at a
 * time. env_defer: this thread only. env_post: any thread, lock-free, wakes the loop if it sleeps;
 * tasks of one poster keep their order. A loop is freed only after the threads that post to it have
 * ended: one may still be inside env_post() when its task has already run. */
void env_defer(struct env *env, struct env_task *task);
void env_post(struct env *env, struct env_task *task);

struct env_timer {
    uint64_t at_ns;
    uint64_t sequence;   /* equal deadlines fire in the order they were armed */
    uint32_t heap_index; /* 0: not armed */
    void (*fire)(struct env_timer *timer);
};

void env_timer_arm(struct env *env, struct env_timer *timer, uint64_t at_ns); /* re-arms too */
void env_timer_cancel(struct env *env, struct env_timer *timer);              /* harmless twice */

/* ---- the loop ---- */

void env_run(struct env *env);  /* until env_stop(); the simulator drives its loop itself */
void env_stop(struct env *env); /* this thread only; the loop returns after this turn */

/* ---- host state: a few small named records that belong to this node, not to a pool ---- */

/* Reads at most `bytes`; ERR_NOT_FOUND. Blocks briefly. Names are [A-Za-z0-9._-]{1,80}. */
HF_MUST_CHECK int env_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                                 size_t *ret_length);
/* Atomic and durable when it returns (write aside, sync, rename, sync the folder). */
HF_MUST_CHECK int env_state_write(struct env *env, const char *name, const void *bytes,
                                  size_t length);

/* ---- disks ---- */

enum env_io_op { ENV_IO_READ, ENV_IO_WRITE, ENV_IO_FLUSH, ENV_IO_DISCARD };

/* One raw I/O. Owned by the caller until done() runs, which happens exactly once, however late (the
 * deadlines are the disk layer's). Offsets, lengths and memory are multiples of 4096 (iovec
 * elements too). */
struct env_io {
    enum env_io_op op;
    bool durable; /* write: on stable media before done(), whatever the disk's cache (FUA) */
    uint64_t offset_bytes;
    uint64_t length_bytes; /* sum of the iovec for read and write */
    struct iovec *iov;     /* array is the caller's, valid until done() */
    uint32_t iov_count;    /* ≤ 1024 */
    int result; /* OK or ERR_IO, ERR_DISK_GONE, ERR_NO_SPACE; a short transfer is ERR_IO */
    void (*done)(struct env_io *io);
    void *owner;
    struct env_io *backend_next; /* private to the environment */
    uint64_t backend[4];
};

struct env_disk;

enum env_disk_kind { ENV_DISK_FILE, ENV_DISK_BLOCK, ENV_DISK_MEMORY, ENV_DISK_SIMULATED };

struct env_disk_info {
    enum env_disk_kind kind;
    uint64_t size_bytes; /* rounded down to 4096 */
    bool rotational;
    bool discards;  /* ENV_IO_DISCARD gives space back (a hole, in files that were sparse) */
    char path[256]; /* as opened */
    char model[64], serial[64], wwn[64]; /* empty when unknown */
};

struct env_disk_options {
    bool read_only;
    bool exclusive;        /* refuse (ERR_BUSY) when anybody else holds it: O_EXCL, flock */
    uint64_t offset_bytes; /* the disk is this window of the device (a partition) … */
    uint64_t length_bytes; /* … 0: to the end */
};

/* Paths: a regular file, a block device, or "mem:NAME:SIZE" (plain memory, for benchmarks).
 * Blocks the calling thread briefly; ERR_NOT_FOUND, ERR_BUSY, ERR_PERMISSION, ERR_INVALID. */
HF_MUST_CHECK int env_disk_open(struct env *env, const char *path,
                                const struct env_disk_options *options, struct env_disk **ret_disk,
                                struct errmsg *reterr);
/* With I/O outstanding it only marks the disk: it is freed when the last I/O has come back. */
void env_disk_close(struct env_disk *disk);
const struct env_disk_info *env_disk_info(const struct env_disk *disk);
void env_disk_submit(struct env_disk *disk, struct env_io *io);
/* Looks whether the thing behind the path is still what was opened (a file that was unlinked,
 * replaced or truncated, a device that went). Must not block on the device. OK or ERR_DISK_GONE. */
HF_MUST_CHECK int env_disk_probe(struct env_disk *disk, struct errmsg *reterr);

#endif
