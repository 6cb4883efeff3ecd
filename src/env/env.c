// SPDX-License-Identifier: MPL-2.0
/* The loop: queues of tasks, timers, and the checking wrappers around the backend's operations.
 *
 * Order. A turn runs a batch: everything queued before it began, first in first out; what the batch
 * itself queues makes the next batch. So no task can starve another, and one seed gives one order.
 * Posted tasks join the end of the queue when a turn begins.
 *
 * Posting. A lock-free stack (Treiber 1986): posters push, the loop takes the whole stack at once
 * and reverses it, which restores each poster's order. As nothing is ever popped singly there is no
 * ABA problem. Only the post that finds the stack empty wakes the loop.
 *
 * Timers. A binary heap by (deadline, sequence of arming). A deadline in the past counts as now, so
 * that a timer which arms itself again at once comes after all that are already due. */
#include "env/backend.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

enum { TIMERS_FIRST = 64, STATE_NAME_MAX = 80, IO_ALIGN = 4096, IOV_COUNT_MAX = 1024 };

void env_init(struct env *env, const struct env_ops *ops) {
    memset(env, 0, sizeof(*env));
    env->ops = ops;
    env->ready_end = &env->ready;
    list_init(&env->fibers);
    list_init(&env->idle_fibers);
    atomic_init(&env->posted, NULL);
}

void env_reset(struct env *env) {
    env->running = NULL;
    env->ready = NULL;
    env->ready_end = &env->ready;
    env->timer_count = 0;
    atomic_store(&env->posted, NULL);
    fibers_drop(env);
}

void env_done(struct env *env) {
    env_reset(env);
    fibers_done(env);
    mem_free(env->heap);
    env->heap = NULL;
}

/* ---- clocks, randomness ---- */

uint64_t env_now_ns(struct env *env) {
    return env->ops->now(env);
}

uint64_t env_wall_ns(struct env *env) {
    return env->ops->wall(env);
}

void env_random(struct env *env, void *ret_bytes, size_t bytes) {
    env->ops->random(env, ret_bytes, bytes);
}

/* ---- tasks ---- */

void env_defer(struct env *env, struct env_task *task) {
    task->next = NULL;
    *env->ready_end = task;
    env->ready_end = &task->next;
}

void env_post(struct env *env, struct env_task *task) {
    struct env_task *head = atomic_load_explicit(&env->posted, memory_order_relaxed);
    do {
        task->next = head;
        /* Sequentially consistent: a backend that is going to sleep says so first and looks at
         * `posted` then; we push first and look in wake() whether it sleeps. One of the two sees
         * the other. */
    } while (!atomic_compare_exchange_weak_explicit(&env->posted, &head, task, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (head == NULL) {
        env->ops->wake(env);
    }
}

static void posted_take(struct env *env) {
    if (atomic_load_explicit(&env->posted, memory_order_relaxed) == NULL) {
        return;
    }
    struct env_task *newest = atomic_exchange_explicit(&env->posted, NULL, memory_order_acquire);
    struct env_task *oldest = NULL;
    while (newest != NULL) {
        struct env_task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct env_task *next = oldest->next;
        env_defer(env, oldest);
        oldest = next;
    }
}

bool env_is_ready(struct env *env) {
    return env->ready != NULL || atomic_load_explicit(&env->posted, memory_order_seq_cst) != NULL;
}

/* ---- timers ---- */

static bool timer_is_before(const struct env_timer *a, const struct env_timer *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static void heap_put(struct env *env, uint32_t index, struct env_timer *timer) {
    env->heap[index] = timer;
    timer->heap_index = index;
}

static void heap_rise(struct env *env, uint32_t index, struct env_timer *timer) {
    while (index > 1 && timer_is_before(timer, env->heap[index / 2])) {
        heap_put(env, index, env->heap[index / 2]);
        index /= 2;
    }
    heap_put(env, index, timer);
}

static void heap_sink(struct env *env, uint32_t index, struct env_timer *timer) {
    for (;;) {
        uint32_t child = index * 2;
        if (child > env->timer_count) {
            break;
        }
        if (child < env->timer_count && timer_is_before(env->heap[child + 1], env->heap[child])) {
            child++;
        }
        if (!timer_is_before(env->heap[child], timer)) {
            break;
        }
        heap_put(env, index, env->heap[child]);
        index = child;
    }
    heap_put(env, index, timer);
}

/* The heap belongs to the environment, not to whatever scope arms a timer. */
static void heap_grow(struct env *env) {
    if (env->timer_count + 1 < env->timer_capacity) {
        return;
    }
    struct mem_scope *scope = mem_scope_enter(NULL);
    env->timer_capacity = env->timer_capacity == 0 ? TIMERS_FIRST : env->timer_capacity * 2;
    env->heap = mem_realloc(env->heap, env->timer_capacity * sizeof(struct env_timer *));
    mem_scope_enter(scope);
}

void env_timer_arm(struct env *env, struct env_timer *timer, uint64_t at_ns) {
    env_timer_cancel(env, timer);
    heap_grow(env);
    uint64_t now_ns = env_now_ns(env);
    timer->at_ns = at_ns > now_ns ? at_ns : now_ns;
    timer->sequence = ++env->timer_sequence;
    env->timer_count++;
    heap_rise(env, env->timer_count, timer);
}

void env_timer_cancel(struct env *env, struct env_timer *timer) {
    uint32_t index = timer->heap_index;
    if (index == 0) {
        return;
    }
    ASSERT(index <= env->timer_count && env->heap[index] == timer);
    timer->heap_index = 0;
    struct env_timer *last = env->heap[env->timer_count--];
    if (last == timer) {
        return;
    }
    if (index > 1 && timer_is_before(last, env->heap[index / 2])) {
        heap_rise(env, index, last);
    } else {
        heap_sink(env, index, last);
    }
}

uint64_t env_next_timer_ns(const struct env *env) {
    return env->timer_count == 0 ? UINT64_MAX : env->heap[1]->at_ns;
}

static bool timers_fire(struct env *env) {
    if (env->timer_count == 0) {
        return false;
    }
    uint64_t now_ns = env_now_ns(env);
    uint64_t newest = env->timer_sequence;
    bool fired = false;
    while (env->timer_count > 0) {
        struct env_timer *timer = env->heap[1];
        if (timer->at_ns > now_ns || timer->sequence > newest) {
            break;
        }
        env_timer_cancel(env, timer);
        timer->fire(timer);
        fired = true;
    }
    return fired;
}

/* ---- the loop ---- */

bool env_turn(struct env *env) {
    ASSERT(env->running == NULL);
    posted_take(env);
    env->running = env->ready;
    env->ready = NULL;
    env->ready_end = &env->ready;
    bool ran = env->running != NULL;
    while (env->running != NULL) {
        struct env_task *task = env->running;
        env->running = task->next;
        task->run(task);
    }
    return timers_fire(env) || ran;
}

void env_run(struct env *env) {
    ASSERT(env->ops->run != NULL);
    env->ops->run(env);
}

void env_stop(struct env *env) {
    env->stopping = true;
}

/* ---- host state ---- */

static bool state_name_is_valid(const char *name) {
    size_t length = strlen(name);
    return length >= 1 && length <= STATE_NAME_MAX && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0 &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               length;
}

int env_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                   size_t *ret_length) {
    if (!state_name_is_valid(name)) {
        return ERR_INVALID;
    }
    return env->ops->state_read(env, name, ret_bytes, bytes, ret_length);
}

int env_state_write(struct env *env, const char *name, const void *bytes, size_t length) {
    if (!state_name_is_valid(name)) {
        return ERR_INVALID;
    }
    return env->ops->state_write(env, name, bytes, length);
}

/* ---- disks ---- */

int env_disk_open(struct env *env, const char *path, const struct env_disk_options *options,
                  struct env_disk **ret_disk, struct errmsg *reterr) {
    if (options->offset_bytes % IO_ALIGN != 0 || options->length_bytes % IO_ALIGN != 0) {
        return errmsg_set(reterr, ERR_INVALID, "%s: a window must be whole units of 4096 bytes",
                          path);
    }
    return env->ops->disk_open(env, path, options, ret_disk, reterr);
}

void env_disk_close(struct env_disk *disk) {
    if (disk != NULL) {
        disk->env->ops->disk_close(disk);
    }
}

const struct env_disk_info *env_disk_info(const struct env_disk *disk) {
    return disk->env->ops->disk_info(disk);
}

void env_disk_submit(struct env_disk *disk, struct env_io *io) {
    ASSERT(io->done != NULL);
    ASSERT((io->offset_bytes | io->length_bytes) % IO_ALIGN == 0);
    if (io->op == ENV_IO_READ || io->op == ENV_IO_WRITE) {
        ASSERT(io->iov_count > 0 && io->iov_count <= IOV_COUNT_MAX);
        uint64_t sum_bytes = 0;
        for (uint32_t i = 0; i < io->iov_count; i++) {
            ASSERT(((uintptr_t)io->iov[i].iov_base | io->iov[i].iov_len) % IO_ALIGN == 0);
            sum_bytes += io->iov[i].iov_len;
        }
        ASSERT_EQ(sum_bytes, io->length_bytes);
    }
    io->result = OK;
    io->backend_next = NULL;
    disk->env->ops->disk_submit(disk, io);
}

int env_disk_probe(struct env_disk *disk, struct errmsg *reterr) {
    return disk->env->ops->disk_probe(disk, reterr);
}
