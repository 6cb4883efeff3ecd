// SPDX-License-Identifier: MPL-2.0
/* What an environment is made of: for the environments themselves (linux, simulated) and nobody
 * else. Queues, timers and fibers are the same in both, so they are here; the rest is a table of
 * operations, called through the checking wrappers of env.c.
 *
 * A backend embeds `struct env` first in its own struct, calls env_init(), and drives the loop:
 *
 *     for (;;) {
 *         while (env_turn(env)) {
 *         }
 *         wait until env_next_timer_ns(), a completion, or ops->wake();
 *         env_defer() or run what has completed;
 *     }
 */
#ifndef HOLDFAST_ENV_BACKEND_H
#define HOLDFAST_ENV_BACKEND_H

#include <stdatomic.h>

#include "base/list.h"
#include "env/env.h"
#include "env/net.h"

/* Sockets. What net.c has checked is not checked again. */
struct net_ops {
    int (*listen)(struct env *env, const char *address,
                  void (*accepted)(void *owner, struct net_stream *stream), void *owner,
                  struct net_listener **ret_listener, struct errmsg *reterr);
    void (*listener_close)(struct net_listener *listener);
    void (*readv)(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                  void (*done)(void *owner, int64_t result), void *owner);
    void (*writev)(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                   void (*done)(void *owner, int64_t result), void *owner);
    void (*stream_close)(struct net_stream *stream, void (*closed)(void *owner), void *owner);
};

struct env_ops {
    uint64_t (*now)(struct env *env); /* always fresh */
    uint64_t (*wall)(struct env *env);
    void (*random)(struct env *env, void *ret_bytes, size_t bytes);
    /* Any thread: something was posted. Called for the first task after the loop last looked. */
    void (*wake)(struct env *env);
    /* env_run(). NULL where somebody else drives the loop. */
    void (*run)(struct env *env);
    /* fiber_pace(): whether a fiber that has run since `since_ns` should let others run. NULL: when
     * that is 1 ms ago. (Virtual time stands still while code runs, so the simulator decides
     * otherwise.) */
    bool (*slice_is_over)(struct env *env, uint64_t since_ns);

    /* Names are valid when these are called. */
    int (*state_read)(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                      size_t *ret_length);
    int (*state_write)(struct env *env, const char *name, const void *bytes, size_t length);

    int (*disk_open)(struct env *env, const char *path, const struct env_disk_options *options,
                     struct env_disk **ret_disk, struct errmsg *reterr);
    void (*disk_close)(struct env_disk *disk);
    const struct env_disk_info *(*disk_info)(const struct env_disk *disk);
    /* Alignment and the sum of the iovec are checked; the range is not. io->result is OK. */
    void (*disk_submit)(struct env_disk *disk, struct env_io *io);
    int (*disk_probe)(struct env_disk *disk, struct errmsg *reterr);

    const struct net_ops *net; /* NULL: it has no sockets */
};

/* First in every backend's own structs. */
struct env_disk {
    struct env *env;
};

enum { NET_ADDRESS_MAX = 128 };

struct net_listener {
    struct env *env;
    char address[NET_ADDRESS_MAX];
};

struct net_stream {
    struct env *env;
    char peer[NET_ADDRESS_MAX], local[NET_ADDRESS_MAX];
};

struct env {
    const struct env_ops *ops;

    /* Loop thread only. */
    struct env_task *running;    /* rest of the batch of this turn */
    struct env_task *ready;      /* next turn's, in order */
    struct env_task **ready_end; /* where the next one is linked */
    struct env_timer **heap;     /* 1-based binary heap by (at_ns, sequence) */
    uint32_t timer_count;
    uint32_t timer_capacity;
    uint64_t timer_sequence;
    bool stopping; /* env_stop() was called; whoever drives the loop clears it */
    struct list fibers;
    struct list idle_fibers; /* ended; their stacks are used again, last one first */

    /* Any thread: a stack, newest first; away from what the loop touches all the time (padding,
     * because _Alignas would bind whoever allocates a struct env). */
    char pad[64];
    _Atomic(struct env_task *) posted;
    char pad_after[64];
};

void env_init(struct env *env, const struct env_ops *ops);
void env_done(struct env *env); /* drops what is left; runs nothing */

/* One turn: runs what was posted and deferred before it began, in that order, then the timers that
 * are due. What these start waits for the next turn. True if anything ran. */
bool env_turn(struct env *env);
bool env_is_ready(struct env *env);                /* a turn now would run a task; timers apart */
uint64_t env_next_timer_ns(const struct env *env); /* UINT64_MAX: none is armed */

/* A power cut: forgets every task, timer and fiber, running none of them. Their memory is looked at
 * no more, so that it may be dropped before or after. Not from inside a fiber of `env`. */
void env_reset(struct env *env);

/* ---- fiber.c ---- */

/* Forgets the fibers only (tasks and timers of others stay) and keeps their stacks for new ones.
 * Before the memory of anything that is still queued or armed is dropped. */
void fibers_drop(struct env *env);
void fibers_done(struct env *env); /* of env_done(): gives the stacks back */

#endif
