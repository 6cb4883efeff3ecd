// SPDX-License-Identifier: MPL-2.0
/* Fibers.
 *
 * A fiber is one mapping: a guard page, the stack, and at its end `struct fiber`. So starting one
 * takes no allocation beside the stack, and stacks are kept and used again: a fiber that ends goes
 * to its loop's list of idle ones (last in, first out: the warmest stack next), and a loop that
 * ends gives them to a small cache of the process. They are outside every memory scope: a power cut
 * in the simulator forgets fibers in mid-flight (fibers_drop), and their stacks serve the next
 * life.
 *
 * States:
 *
 *     IDLE ──start──▶ READY ──loop──▶ RUNNING ──park──▶ PARKED ──fiber_wake──▶ READY
 *       ▲                                │  └──any other wait──▶ WAITING ──its event──▶ READY
 *       └──────────── fn returns ────────┘
 *
 * PARKED and WAITING are apart so that a wake meant for the user's own park which arrives while the
 * fiber waits for something else (a lock, a timer) does not end that wait, and is not lost by it:
 * it is remembered until the next park.
 *
 * Every READY fiber is a task in the loop's queue, so the order is the loop's: first in, first out.
 * A fiber switches to the loop and the loop to the next fiber; never from one fiber to another. */
#include "env/fiber.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "env/backend.h"
#include "env/fiber_switch.h"

enum {
    PAGE_BYTES = 4096,
#if defined(FIBER_ASAN) || defined(FIBER_TSAN)
    STACK_BYTES = 256 << 10, /* red zones and shadows are hungry */
#else
    STACK_BYTES = 64 << 10,
#endif
    HEAD_BYTES = 2 * PAGE_BYTES, /* struct fiber and the colour */
    MAPPING_BYTES = PAGE_BYTES + STACK_BYTES + HEAD_BYTES,
    COLOURS = 16,       /* stacks end at different offsets in a page, or their hot ends would all */
    COLOUR_BYTES = 192, /* compete for the same few cache sets */
    CACHE_MAX = 256,
    SLICE_NS = 1000 * 1000,
};

enum fiber_state { FIBER_IDLE, FIBER_READY, FIBER_RUNNING, FIBER_PARKED, FIBER_WAITING };

struct fiber {
    struct fiber_context context; /* while not running */
    struct fiber_context loop;    /* where it was resumed from, while running */
    struct env *env;
    void (*fn)(void *arg);
    void *arg;
    struct env_task task;
    enum fiber_state state;
    bool wake_is_pending;
    bool timed_out;
    uint64_t slice_began_ns; /* 0: nobody has asked since it was resumed */
    struct env_timer timer;
    struct list link;   /* env->fibers or env->idle_fibers or the cache */
    struct list waiter; /* in a struct fiber_queue */
    void *mapping;
    void *stack;
    size_t stack_bytes;
#ifdef FIBER_ASAN
    void *fake_stack; /* ASan's own, for use-after-return */
    const void *loop_stack;
    size_t loop_stack_bytes;
#endif
#ifdef FIBER_TSAN
    void *tsan;
    void *tsan_loop;
#endif
};

_Static_assert(sizeof(struct fiber) + 64 + COLOURS * COLOUR_BYTES <= HEAD_BYTES,
               "the head must leave the stack its size");

static _Thread_local struct fiber *current;

static struct {
    pthread_mutex_t lock;
    struct list fibers;
    uint32_t count;
    uint32_t mapped; /* ever: chooses the colour */
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .fibers = {&cache.fibers, &cache.fibers}};

/* ---- stacks ---- */

static void stack_prepare(struct fiber *fiber);

static struct fiber *stack_map(uint32_t colour) {
    char *mapping = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || mprotect(mapping, PAGE_BYTES, PROT_NONE) != 0) {
        /* As with mem_alloc(): control structures come or the process stops. */
        (void)fprintf(stderr, "holdfast: no memory for the stack of a fiber\n");
        abort();
    }
    size_t head_bytes = (sizeof(struct fiber) + 63) / 64 * 64 + (size_t)colour * COLOUR_BYTES;
    struct fiber *fiber = (struct fiber *)(void *)(mapping + MAPPING_BYTES - head_bytes);
    memset(fiber, 0, sizeof(*fiber));
    fiber->mapping = mapping;
    fiber->stack = mapping + PAGE_BYTES;
    fiber->stack_bytes = (size_t)((char *)fiber - (char *)fiber->stack);
    list_init(&fiber->waiter);
    list_init(&fiber->link);
    stack_prepare(fiber);
    return fiber;
}

static void stack_unmap(struct fiber *fiber) {
#ifdef FIBER_TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
#ifdef FIBER_ASAN
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#endif
    (void)munmap(fiber->mapping, MAPPING_BYTES);
}

static struct fiber *stack_take(struct env *env) {
    struct list *link = list_pop(&env->idle_fibers);
    if (link == NULL) {
        (void)pthread_mutex_lock(&cache.lock);
        link = list_pop(&cache.fibers);
        cache.count -= link != NULL;
        uint32_t colour = cache.mapped % COLOURS;
        cache.mapped += link == NULL;
        (void)pthread_mutex_unlock(&cache.lock);
        if (link == NULL) {
            return stack_map(colour);
        }
    }
    return CONTAINER_OF(link, struct fiber, link);
}

void fibers_done(struct env *env) {
    ASSERT(list_is_empty(&env->fibers));
    struct list *link;
    while ((link = list_pop(&env->idle_fibers)) != NULL) {
        (void)pthread_mutex_lock(&cache.lock);
        bool kept = cache.count < CACHE_MAX;
        if (kept) {
            list_prepend(&cache.fibers, link);
            cache.count++;
        }
        (void)pthread_mutex_unlock(&cache.lock);
        if (!kept) {
            stack_unmap(CONTAINER_OF(link, struct fiber, link));
        }
    }
}

/* ---- switching ---- */

static void resume(struct fiber *fiber) {
    struct fiber *outer = current; /* a loop may be driven from a fiber of another one */
    current = fiber;
    fiber->state = FIBER_RUNNING;
    fiber->slice_began_ns = 0;
#ifdef FIBER_ASAN
    void *fake_stack = NULL;
    __sanitizer_start_switch_fiber(&fake_stack, fiber->stack, fiber->stack_bytes);
#endif
#ifdef FIBER_TSAN
    fiber->tsan_loop = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->tsan, 0);
#endif
    fiber_context_switch(&fiber->loop, &fiber->context);
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
    current = outer;
}

static void suspend(struct fiber *fiber, enum fiber_state state) {
    fiber->state = state;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_stack, fiber->loop_stack, fiber->loop_stack_bytes);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(fiber->tsan_loop, 0);
#endif
    fiber_context_switch(&fiber->context, &fiber->loop);
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &fiber->loop_stack,
                                    &fiber->loop_stack_bytes);
#endif
}

/* The bottom of every fiber's stack. It never returns: between two lives it is suspended here, so a
 * start is no more than a switch. */
static void fiber_main(void) {
    struct fiber *fiber = current;
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &fiber->loop_stack,
                                    &fiber->loop_stack_bytes);
#endif
    for (;;) {
        fiber->fn(fiber->arg);
        list_remove(&fiber->link);
        list_prepend(&fiber->env->idle_fibers, &fiber->link);
        suspend(fiber, FIBER_IDLE);
    }
}

/* A stack on which the next resume begins fiber_main() anew. */
static void stack_prepare(struct fiber *fiber) {
#ifdef FIBER_ASAN
    /* Frames that were dropped have left their red zones behind. */
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#endif
#ifdef FIBER_TSAN
    if (fiber->tsan != NULL) {
        __tsan_destroy_fiber(fiber->tsan);
    }
    fiber->tsan = __tsan_create_fiber(0);
#endif
    fiber_context_init(&fiber->context, fiber->stack, fiber->stack_bytes, fiber_main);
    fiber->state = FIBER_IDLE;
}

static void fiber_run(struct env_task *task) {
    resume(CONTAINER_OF(task, struct fiber, task));
}

static void fiber_make_ready(struct fiber *fiber) {
    fiber->state = FIBER_READY;
    env_defer(fiber->env, &fiber->task);
}

void fiber_start(struct env *env, void (*fn)(void *arg), void *arg) {
    struct fiber *fiber = stack_take(env);
    ASSERT(fiber->state == FIBER_IDLE);
    fiber->env = env;
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->task.run = fiber_run;
    fiber->wake_is_pending = false;
    list_append(&env->fibers, &fiber->link);
    fiber_make_ready(fiber);
}

/* Unlinks the fibers' tasks from a queue; returns where its last link is. */
static struct env_task **queue_forget_fibers(struct env_task **link) {
    while (*link != NULL) {
        if ((*link)->run == fiber_run) {
            *link = (*link)->next;
        } else {
            link = &(*link)->next;
        }
    }
    return link;
}

void fibers_drop(struct env *env) {
    ASSERT(current == NULL || current->env != env);
    (void)queue_forget_fibers(&env->running);
    env->ready_end = queue_forget_fibers(&env->ready);
    struct list *link;
    while ((link = list_pop(&env->fibers)) != NULL) {
        struct fiber *fiber = CONTAINER_OF(link, struct fiber, link);
        if (env->timer_count > 0) {
            env_timer_cancel(env, &fiber->timer);
        }
        fiber->timer.heap_index = 0;
        list_init(&fiber->waiter); /* the queue it stood in may be gone already */
        stack_prepare(fiber);
        list_prepend(&env->idle_fibers, &fiber->link);
    }
}

struct fiber *fiber_self(void) {
    return current;
}

struct env *fiber_env(void) {
    ASSERT(current != NULL);
    return current->env;
}

/* ---- parking ---- */

void fiber_park(void) {
    ASSERT(current != NULL);
    if (current->wake_is_pending) {
        current->wake_is_pending = false;
        return;
    }
    suspend(current, FIBER_PARKED);
}

void fiber_wake(struct fiber *fiber) {
    ASSERT(fiber->state != FIBER_IDLE);
    if (fiber->state == FIBER_PARKED) {
        fiber_make_ready(fiber);
    } else {
        fiber->wake_is_pending = true;
    }
}

static void wait_end(struct fiber *fiber) {
    ASSERT(fiber->state == FIBER_WAITING);
    fiber_make_ready(fiber);
}

void fiber_yield(void) {
    ASSERT(current != NULL);
    env_defer(current->env, &current->task);
    suspend(current, FIBER_READY);
}

static void timer_fired(struct env_timer *timer) {
    struct fiber *fiber = CONTAINER_OF(timer, struct fiber, timer);
    list_remove(&fiber->waiter);
    fiber->timed_out = true;
    wait_end(fiber);
}

void fiber_sleep_until(uint64_t at_ns) {
    ASSERT(current != NULL);
    current->timer.fire = timer_fired;
    env_timer_arm(current->env, &current->timer, at_ns);
    suspend(current, FIBER_WAITING);
}

bool fiber_pace(void) {
    struct fiber *fiber = current;
    ASSERT(fiber != NULL);
    struct env *env = fiber->env;
    uint64_t now_ns = env_now_ns(env);
    if (fiber->slice_began_ns == 0) {
        /* Most fibers never ask, so resuming them does not read the clock. The first question of a
         * slice starts its time; long jobs ask in every round, so little goes uncounted. */
        fiber->slice_began_ns = now_ns;
    }
    bool over = env->ops->slice_is_over != NULL
                    ? env->ops->slice_is_over(env, fiber->slice_began_ns)
                    : now_ns - fiber->slice_began_ns >= SLICE_NS;
    if (over) {
        fiber_yield();
    }
    return over;
}

/* ---- queues ---- */

void fiber_queue_init(struct fiber_queue *q) {
    list_init(&q->waiters);
}

void fiber_queue_wait(struct fiber_queue *q) {
    ASSERT(current != NULL);
    list_append(&q->waiters, &current->waiter);
    suspend(current, FIBER_WAITING);
}

int fiber_queue_wait_until(struct fiber_queue *q, uint64_t at_ns) {
    struct fiber *fiber = current;
    ASSERT(fiber != NULL);
    fiber->timed_out = false;
    fiber->timer.fire = timer_fired;
    env_timer_arm(fiber->env, &fiber->timer, at_ns);
    list_append(&q->waiters, &fiber->waiter);
    suspend(fiber, FIBER_WAITING);
    env_timer_cancel(fiber->env, &fiber->timer);
    return fiber->timed_out ? ERR_TIMEOUT : OK;
}

bool fiber_queue_wake_one(struct fiber_queue *q) {
    struct list *waiter = list_pop(&q->waiters);
    if (waiter == NULL) {
        return false;
    }
    struct fiber *fiber = CONTAINER_OF(waiter, struct fiber, waiter);
    /* Now, not when it runs: in between its timer could fire. */
    env_timer_cancel(fiber->env, &fiber->timer);
    wait_end(fiber);
    return true;
}

void fiber_queue_wake_all(struct fiber_queue *q) {
    while (fiber_queue_wake_one(q)) {
    }
}

bool fiber_queue_is_empty(const struct fiber_queue *q) {
    return list_is_empty(&q->waiters);
}

/* ---- groups ---- */

void fiber_group_add(struct fiber_group *g) {
    g->pending++;
}

void fiber_group_done(struct fiber_group *g, int error) {
    ASSERT(g->pending > 0);
    if (g->error == OK) {
        g->error = error;
    }
    if (--g->pending == 0 && g->waiter != NULL) {
        struct fiber *waiter = g->waiter;
        g->waiter = NULL;
        if (waiter->state == FIBER_WAITING) { /* else the other of two groups, or time, was first */
            env_timer_cancel(waiter->env, &waiter->timer);
            wait_end(waiter);
        }
    }
}

int fiber_group_wait(struct fiber_group *g) {
    ASSERT(current != NULL);
    while (g->pending > 0) {
        ASSERT(g->waiter == NULL);
        g->waiter = current;
        suspend(current, FIBER_WAITING);
    }
    return g->error;
}

int fiber_group_wait_any(struct fiber_group *a, struct fiber_group *b, uint64_t at_ns) {
    struct fiber *fiber = current;
    ASSERT(fiber != NULL && a->waiter == NULL && (b == NULL || b->waiter == NULL));
    if (a->pending == 0 || (b != NULL && b->pending == 0)) {
        return OK;
    }
    fiber->timed_out = false;
    if (at_ns != UINT64_MAX) {
        fiber->timer.fire = timer_fired;
        env_timer_arm(fiber->env, &fiber->timer, at_ns);
    }
    a->waiter = fiber;
    if (b != NULL) {
        b->waiter = fiber;
    }
    suspend(fiber, FIBER_WAITING);
    a->waiter = NULL;
    if (b != NULL) {
        b->waiter = NULL;
    }
    env_timer_cancel(fiber->env, &fiber->timer);
    return fiber->timed_out ? ERR_TIMEOUT : OK;
}

/* ---- locks ---- */

void fiber_lock_init(struct fiber_lock *lock) {
    lock->holder = NULL;
    fiber_queue_init(&lock->queue);
}

void fiber_lock_take(struct fiber_lock *lock) {
    ASSERT(current != NULL);
    ASSERT(lock->holder != current);
    if (lock->holder == NULL) {
        lock->holder = current;
        return;
    }
    fiber_queue_wait(&lock->queue);
    ASSERT(lock->holder == current); /* handed over: nobody can slip in between */
}

void fiber_lock_release(struct fiber_lock *lock) {
    ASSERT(current != NULL && lock->holder == current);
    struct list *next = lock->queue.waiters.next;
    lock->holder = NULL;
    if (next != &lock->queue.waiters) {
        lock->holder = CONTAINER_OF(next, struct fiber, waiter);
        (void)fiber_queue_wake_one(&lock->queue);
    }
}

/* ---- from other threads ---- */

struct fiber_call {
    struct env_task task;
    struct env *env;
    void (*fn)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t returned;
    bool has_returned;
};

static void call_main(void *arg) {
    struct fiber_call *call = arg;
    call->fn(call->arg);
    (void)pthread_mutex_lock(&call->lock);
    call->has_returned = true;
    (void)pthread_cond_signal(&call->returned); /* under the lock: `call` dies right after it */
    (void)pthread_mutex_unlock(&call->lock);
}

static void call_start(struct env_task *task) {
    struct fiber_call *call = CONTAINER_OF(task, struct fiber_call, task);
    fiber_start(call->env, call_main, call);
}

void fiber_call(struct env *env, void (*fn)(void *arg), void *arg) {
    struct fiber_call call = {
        .task.run = call_start,
        .env = env,
        .fn = fn,
        .arg = arg,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .returned = PTHREAD_COND_INITIALIZER,
    };
    env_post(env, &call.task);
    (void)pthread_mutex_lock(&call.lock);
    while (!call.has_returned) {
        (void)pthread_cond_wait(&call.returned, &call.lock);
    }
    (void)pthread_mutex_unlock(&call.lock);
    (void)pthread_cond_destroy(&call.returned);
    (void)pthread_mutex_destroy(&call.lock);
}
