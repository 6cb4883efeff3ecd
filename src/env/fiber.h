// SPDX-License-Identifier: MPL-2.0
/* Fibers: straight-line code over an event loop.
 *
 * Every request and every long job of the engine (a read that misses, a checkpoint, a merge, the
 * cleaner, an import) is a fiber: it waits where it stands, and the loop goes on. Fibers of one
 * loop never run at the same time, and switch only inside the calls of this header that say
 * "parks", so between those calls a fiber owns all of the loop's data.
 *
 * Rules: whoever parks has arranged for somebody to wake it; a wait on a disk is bounded by the
 * disk layer's deadlines. A fiber never returns to a loop other than the one it started on.
 * Stacks are 64 KiB with a guard page and are reused.
 */
#ifndef HOLDFAST_ENV_FIBER_H
#define HOLDFAST_ENV_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "env/env.h"

struct fiber;

/* Runs fn(arg) on a fiber of `env`'s loop, from the loop (not at once). Loop thread only. */
void fiber_start(struct env *env, void (*fn)(void *arg), void *arg);

struct fiber *fiber_self(void); /* NULL outside fibers */
struct env *fiber_env(void);    /* of the running fiber */

void fiber_park(void);                  /* parks until fiber_wake() */
void fiber_wake(struct fiber *fiber);   /* loop thread; runs it from the loop; a wake that comes
                                           before the park is remembered (one) */
void fiber_yield(void);                 /* parks for one turn of the loop */
void fiber_sleep_until(uint64_t at_ns); /* parks */

/* Parks for a turn if this fiber has run for more than a slice (1 ms) since it was last resumed:
 * to be called in every loop of a long job (invariant 16). True if it parked. */
bool fiber_pace(void);

/* ---- waiting ---- */

/* A queue of fibers. Zero-initialise with fiber_queue_init(). */
struct fiber_queue {
    struct list waiters;
};

void fiber_queue_init(struct fiber_queue *q);
void fiber_queue_wait(struct fiber_queue *q); /* parks */
/* Parks at most until `at_ns`; ERR_TIMEOUT when nobody woke it by then. */
int fiber_queue_wait_until(struct fiber_queue *q, uint64_t at_ns);
bool fiber_queue_wake_one(struct fiber_queue *q); /* false: nobody waited */
void fiber_queue_wake_all(struct fiber_queue *q);
bool fiber_queue_is_empty(const struct fiber_queue *q);

/* Counts things that are under way; one fiber waits for all of them, and learns the first error. */
struct fiber_group {
    uint32_t pending;
    int error;
    struct fiber *waiter;
};

#define FIBER_GROUP_INIT ((struct fiber_group){0})
void fiber_group_add(struct fiber_group *g);
void fiber_group_done(struct fiber_group *g, int error);
HF_MUST_CHECK int fiber_group_wait(struct fiber_group *g); /* parks until none is pending */
/* Parks until one of the two has nothing pending (`b` may be NULL), or until `at_ns` (UINT64_MAX:
 * for as long as it takes): ERR_TIMEOUT. */
HF_MUST_CHECK int fiber_group_wait_any(struct fiber_group *a, struct fiber_group *b,
                                       uint64_t at_ns);

/* A mutex between fibers of one loop, first come first served. */
struct fiber_lock {
    struct fiber *holder;
    struct fiber_queue queue;
};

void fiber_lock_init(struct fiber_lock *lock);
void fiber_lock_take(struct fiber_lock *lock); /* parks */
void fiber_lock_release(struct fiber_lock *lock);

/* ---- from other threads ---- */

/* Runs fn(arg) as a fiber of `env` and blocks the calling thread (which must not be env's own)
 * until it has returned. For control-plane calls into an engine. */
void fiber_call(struct env *env, void (*fn)(void *arg), void *arg);

#endif
