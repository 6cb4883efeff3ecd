// SPDX-License-Identifier: MPL-2.0
/* A volume through its own door, from inside the service that has the pool: no protocol, no socket,
 * no copy. What is measured is the engine.
 *
 * Requests are submitted from the measuring thread and end on the pool's loop, which only notes
 * them under a lock and wakes the thread up. Requests that never end keep what they need: the queue
 * is then not freed. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/mem.h"
#include "bench/clock.h"
#include "bench/kinds.h"
#include "volume/volume.h"

struct queue;

struct submission {
    struct volume_request request;
    struct iovec iov;
    struct bench_io *io; /* NULL: a flush */
    struct queue *queue;
    struct submission *next;
};

struct queue {
    struct bench_volume volume; /* a copy */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct submission *ended, **ended_tail; /* under the lock */
    uint32_t pending;                       /* the thread's: submitted, not yet taken */
    struct submission *free;
    bool flushed;
    int flush_error;
};

static struct queue *queue_of(const struct bench_target *target) {
    return target->own;
}

static void queue_make(struct bench_target *target) {
    struct queue *q = MEM_NEW(struct queue);
    pthread_condattr_t attributes;
    q->volume = *target->options->volume;
    q->ended_tail = &q->ended;
    ASSERT(pthread_mutex_init(&q->lock, NULL) == 0);
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&q->changed, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    target->own = q;
}

static int volume_open(struct bench_target *target, struct errmsg *reterr) {
    if (target->options->volume == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "is measured by the service that has its pool");
    }
    queue_make(target);
    target->size_bytes = queue_of(target)->volume.size_bytes;
    target->block_bytes = queue_of(target)->volume.block_bytes;
    (void)snprintf(target->name, sizeof(target->name), "Holdfast %s",
                   queue_of(target)->volume.profile);
    return OK;
}

static int volume_join(struct bench_target *target, struct bench_target *first,
                       struct errmsg *reterr) {
    (void)first;
    (void)reterr;
    queue_make(target);
    return OK;
}

/* On the pool's loop. */
static void ended(struct volume_request *request) {
    struct submission *s = CONTAINER_OF(request, struct submission, request);
    struct queue *q = s->queue;
    ASSERT(pthread_mutex_lock(&q->lock) == 0);
    s->next = NULL;
    *q->ended_tail = s;
    q->ended_tail = &s->next;
    ASSERT(pthread_cond_signal(&q->changed) == 0);
    ASSERT(pthread_mutex_unlock(&q->lock) == 0);
}

static void submit(struct queue *q, struct bench_io *io, enum volume_op op) {
    struct submission *s = q->free;
    if (s != NULL) {
        q->free = s->next;
    } else {
        s = MEM_NEW(struct submission);
    }
    s->io = io;
    s->queue = q;
    s->request = (struct volume_request){.client = q->volume.door->env,
                                         .door = q->volume.door,
                                         .volume_id = q->volume.id,
                                         .op = op,
                                         .done = ended};
    if (io != NULL) {
        s->iov = (struct iovec){io->data, io->length};
        s->request.offset_bytes = io->offset;
        s->request.length_bytes = io->length;
        s->request.iov = &s->iov;
        s->request.iov_count = 1;
    }
    q->pending++;
    volume_submit(&s->request);
}

static int volume_io_submit(struct bench_target *target, struct bench_io *io) {
    if (io->length > VOLUME_REQUEST_BYTES_MAX) {
        return bench_target_fail(target, ERR_RANGE, "volumes take at most 8 MiB at a time");
    }
    submit(queue_of(target), io, io->is_write ? VOLUME_WRITE : VOLUME_READ);
    return OK;
}

static struct submission *take_ended(struct queue *q, uint32_t wait_ms) {
    uint64_t until_ns = bench_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                   .tv_nsec = (long)(until_ns % NS_PER_S)};
    ASSERT(pthread_mutex_lock(&q->lock) == 0);
    while (q->ended == NULL && wait_ms > 0 && q->pending > 0 &&
           pthread_cond_timedwait(&q->changed, &q->lock, &until) == 0) {
    }
    struct submission *list = q->ended;
    q->ended = NULL;
    q->ended_tail = &q->ended;
    ASSERT(pthread_mutex_unlock(&q->lock) == 0);
    return list;
}

static int volume_service(struct bench_target *target, uint32_t wait_ms) {
    struct queue *q = queue_of(target);
    for (struct submission *s = take_ended(q, wait_ms), *next; s != NULL; s = next) {
        next = s->next;
        if (s->io != NULL) {
            bench_target_done(s->io, s->request.status);
        } else {
            q->flushed = true;
            q->flush_error = s->request.status;
        }
        s->next = q->free;
        q->free = s;
        q->pending--;
    }
    return OK;
}

static int volume_flush(struct bench_target *target) {
    struct queue *q = queue_of(target);
    uint64_t deadline = bench_now_ns() + (uint64_t)TARGET_COMMAND_S * NS_PER_S;
    q->flushed = false;
    submit(q, NULL, VOLUME_FLUSH);
    while (!q->flushed && bench_now_ns() < deadline) {
        (void)volume_service(target, 100);
    }
    return q->flushed ? q->flush_error
                      : bench_target_fail(target, ERR_TIMEOUT, "a flush is not answered");
}

static void volume_close(struct bench_target *target) {
    struct queue *q = queue_of(target);
    if (q == NULL || q->pending > 0) {
        return;
    }
    for (struct submission *s = q->free, *next; s != NULL; s = next) {
        next = s->next;
        mem_free(s);
    }
    (void)pthread_cond_destroy(&q->changed);
    (void)pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

const struct bench_target_ops bench_volume_ops = {
    .kind = "volume",
    .open = volume_open,
    .join = volume_join,
    .submit = volume_io_submit,
    .service = volume_service,
    .flush = volume_flush,
    .close = volume_close,
};
