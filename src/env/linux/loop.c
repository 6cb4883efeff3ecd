// SPDX-License-Identifier: MPL-2.0
/* The loop of one thread.
 *
 * Sleeping and waking. Before it sleeps the loop sets `is_sleeping` and then looks once more at the
 * queue of posted tasks; a poster pushes and then looks at `is_sleeping`. Both in sequentially
 * consistent order, so at least one of them sees the other, and posting to a loop that is awake
 * costs no system call.
 *
 * Spinning. Waking a thread costs whoever wakes it a system call, and often an interrupt of another
 * processor, and then there is the time until it runs. So a loop that had to wait only a little the
 * last time looks for work for `spin_ns` before it sleeps; one that waits longer than that sleeps
 * at once the next time, so that nothing is burnt when little happens. A spinning loop that finds
 * that it stood still has taken a processor that others want, and does without for a while.
 *
 * The ring and the sockets. While I/Os are in the ring the loop waits there, and the ring watches
 * the epoll set; otherwise it waits for the epoll set itself, which saves a system call a wait. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <sched.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/linux/internal.h"

enum {
    QUEUE_DEPTH = 512,
    QUEUE_DEPTH_MAX = 16384,
    DISK_WORKERS = 16,
    EPOLL_BATCH = 64,
    SOCKETS_NS = 200 * NS_PER_US, /* a busy loop looks at its sockets every so often */
    SPIN_LOOKS = 16,              /* at what costs nothing, for each at the sockets */
    SPIN_GAP_NS = 50 * NS_PER_US, /* longer than a look takes: something else has run */
    SPIN_PENANCE_NS = 20 * NS_PER_MS,
};

/* ---- clocks, randomness ---- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec ts;
    ASSERT(clock_gettime(clock, &ts) == 0);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t linux_now(struct env *env) {
    (void)env;
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t linux_wall(struct env *env) {
    (void)env;
    return clock_ns(CLOCK_REALTIME);
}

static void linux_random(struct env *env, void *ret_bytes, size_t bytes) {
    (void)env;
    uint8_t *at = ret_bytes;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        ASSERT(got >= 0 || errno == EINTR);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        }
    }
}

/* ---- waking ---- */

static void linux_wake(struct env *env) {
    struct linux_env *l = linux_env_of(env);
    if (atomic_load(&l->is_sleeping) && atomic_exchange(&l->is_sleeping, false)) {
        const uint64_t one = 1;
        ssize_t written = write(l->wake_fd, &one, sizeof(one));
        ASSERT(written == sizeof(one) || errno == EAGAIN);
    }
}

bool epoll_collect(struct linux_env *l, uint64_t timeout_ns) {
    struct epoll_event events[EPOLL_BATCH];
    bool any = false;
    struct timespec ts = {(time_t)(timeout_ns / NS_PER_S), (long)(timeout_ns % NS_PER_S)};
    for (;;) {
        int count = timeout_ns == 0 ? epoll_wait(l->epoll_fd, events, EPOLL_BATCH, 0)
                                    : epoll_pwait2(l->epoll_fd, events, EPOLL_BATCH,
                                                   timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
        if (count < 0 && errno == ENOSYS) { /* before Linux 5.11; rounded up, or it would spin */
            uint64_t ms = timeout_ns / NS_PER_MS + 1;
            count = epoll_wait(l->epoll_fd, events, EPOLL_BATCH,
                               timeout_ns == UINT64_MAX ? -1 : (int)(ms < 60000 ? ms : 60000));
        }
        ASSERT(count >= 0 || errno == EINTR);
        any |= count > 0;
        for (int i = 0; i < count; i++) {
            struct epoll_client *client = events[i].data.ptr;
            if (client != NULL) { /* NULL: the eventfd, whose work was to end the wait */
                client->notify(client, events[i].events);
            }
        }
        if (count < EPOLL_BATCH) {
            return any;
        }
        timeout_ns = 0;
    }
}

/* ---- running ---- */

static uint64_t sleep_ns(struct linux_env *l, uint64_t now_ns) {
    if (env_is_ready(&l->env)) {
        return 0;
    }
    uint64_t at_ns = env_next_timer_ns(&l->env);
    if (at_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

static bool ring_is_used(const struct linux_env *l) {
    return l->has_ring && l->ring_ios > 0;
}

/* Of a ring that is not used nobody takes what may lie there: that the epoll set has events. */
static bool has_work(struct linux_env *l) {
    return atomic_load_explicit(&l->env.posted, memory_order_relaxed) != NULL ||
           (ring_is_used(l) && ring_has_completions(l));
}

/* Looks for work for so long. True if some turned up. */
static bool spin(struct linux_env *l, uint64_t began_ns, uint64_t span_ns) {
    for (uint64_t before_ns = began_ns, now_ns;; before_ns = now_ns) {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (has_work(l)) {
                return true;
            }
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        if (epoll_collect(l, 0)) {
            return true;
        }
        now_ns = linux_now(&l->env);
        if (now_ns - before_ns > SPIN_GAP_NS) {
            l->no_spin_until_ns = now_ns + SPIN_PENANCE_NS;
            return false;
        }
        if (now_ns - began_ns >= span_ns) {
            return false;
        }
    }
}

static void sleep_for(struct linux_env *l, uint64_t timeout_ns) {
    atomic_store(&l->is_sleeping, true);
    if (atomic_load(&l->env.posted) != NULL) {
        timeout_ns = 0;
    }
    if (ring_is_used(l)) {
        ring_wait(l, timeout_ns);
    } else {
        (void)epoll_collect(l, timeout_ns);
    }
    atomic_store_explicit(&l->is_sleeping, false, memory_order_relaxed);
}

/* With tasks in hand: sockets are looked at every so often. */
static void look_at_sockets(struct linux_env *l, uint64_t now_ns) {
    if (now_ns - l->sockets_ns >= SOCKETS_NS) {
        l->sockets_ns = now_ns;
        if (!ring_is_used(l)) {
            (void)epoll_collect(l, 0);
        }
        streams_read(l);
    }
}

static void wait_for_work(struct linux_env *l) {
    uint64_t now_ns = linux_now(&l->env), timeout_ns = sleep_ns(l, now_ns);
    if (ring_is_used(l) && (timeout_ns == 0 || l->spins)) {
        ring_wait(l, 0); /* what is queued is under way while we are busy, or spin */
        timeout_ns = sleep_ns(l, now_ns);
    }
    if (timeout_ns == 0) {
        look_at_sockets(l, now_ns);
        return;
    }
    if (list_is_empty(&l->readers)) {
        uint64_t spun_ns = l->spins ? MIN(l->spin_ns, timeout_ns) : 0;
        if (spun_ns == 0 || !spin(l, now_ns, spun_ns)) {
            sleep_for(l, timeout_ns - spun_ns);
        }
        uint64_t woke_ns = linux_now(&l->env);
        l->spins = woke_ns - now_ns < l->spin_ns && woke_ns >= l->no_spin_until_ns;
    }
    l->sockets_ns = now_ns;
    streams_read(l);
}

static void linux_run(struct env *env) {
    struct linux_env *l = linux_env_of(env);
    env->stopping = false;
    for (;;) {
        (void)env_turn(env);
        if (env->stopping) {
            return;
        }
        wait_for_work(l);
        if (env->stopping) { /* a completion said so */
            return;
        }
    }
}

const struct env_ops linux_ops = {
    .now = linux_now,
    .wall = linux_wall,
    .random = linux_random,
    .wake = linux_wake,
    .run = linux_run,
    .state_read = linux_state_read,
    .state_write = linux_state_write,
    .disk_open = linux_disk_open,
    .disk_close = linux_disk_close,
    .disk_info = linux_disk_info,
    .disk_submit = linux_disk_submit,
    .disk_probe = linux_disk_probe,
    .net = &linux_net_ops,
};

/* ---- birth and death ---- */

static int open_waiting_place(struct linux_env *l, struct errmsg *reterr) {
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (l->epoll_fd < 0 || l->wake_fd < 0 ||
        epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->wake_fd, &event) != 0) {
        return errmsg_set(reterr, ERR_LIMIT, "cannot make an event loop: %s", strerror(errno));
    }
    return OK;
}

static void close_waiting_place(struct linux_env *l) {
    if (l->epoll_fd >= 0) {
        (void)close(l->epoll_fd);
    }
    if (l->wake_fd >= 0) {
        (void)close(l->wake_fd);
    }
}

int env_linux_new(const struct env_linux_options *options, struct env **ret_env,
                  struct errmsg *reterr) {
    static const struct env_linux_options defaults;
    if (options == NULL) {
        options = &defaults;
    }
    if (options->queue_depth > QUEUE_DEPTH_MAX) {
        return errmsg_set(reterr, ERR_RANGE, "a queue depth of %u is beyond the limit of %u",
                          options->queue_depth, (unsigned)QUEUE_DEPTH_MAX);
    }
    struct linux_env *l = MEM_NEW(struct linux_env);
    env_init(&l->env, &linux_ops);
    l->disk_workers = options->disk_workers != 0 ? options->disk_workers : DISK_WORKERS;
    l->spin_ns = options->spin_ns;
    list_init(&l->readers);
    l->own_short.end = &l->own_short.first;
    l->own_long.end = &l->own_long.first;
    l->own_task.run = linux_own_run;
    l->backlog_end = &l->backlog;
    const char *state_dir = options->state_dir != NULL ? options->state_dir : "/var/lib/holdfast";
    int error = OK;
    if ((size_t)snprintf(l->state_dir, sizeof(l->state_dir), "%s", state_dir) >=
        sizeof(l->state_dir)) {
        error = errmsg_set(reterr, ERR_INVALID, "the state directory's name is too long: %s",
                           state_dir);
    }
    l->epoll_fd = l->wake_fd = -1;
    if (error == OK) {
        error = open_waiting_place(l, reterr);
    }
    if (error == OK && options->ring != ENV_LINUX_RING_OFF) {
        struct errmsg why = {0};
        int refused =
            ring_open(l, options->queue_depth != 0 ? options->queue_depth : QUEUE_DEPTH, &why);
        l->has_ring = refused == OK;
        if (refused != OK && options->ring == ENV_LINUX_RING_ON) {
            error = errmsg_set(reterr, refused, "%s", why.text);
        }
    }
    if (error != OK) {
        close_waiting_place(l);
        env_done(&l->env);
        mem_free(l);
        return error;
    }
    *ret_env = &l->env;
    return OK;
}

void env_linux_free(struct env *env) {
    if (env == NULL) {
        return;
    }
    struct linux_env *l = linux_env_of(env);
    if (l->outstanding > 0) {
        return;
    }
    while (atomic_load(&l->posters) > 0) {
        (void)sched_yield();
    }
    if (l->has_ring) {
        ring_close(l);
    }
    close_waiting_place(l);
    env_done(&l->env);
    mem_free(l);
}

bool env_linux_has_ring(const struct env *env) {
    return CONTAINER_OF(env, const struct linux_env, env)->has_ring;
}
