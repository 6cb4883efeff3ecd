// SPDX-License-Identifier: MPL-2.0
#include "bench/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/clock.h"

enum { STREAMS_MAX = 256, STAMP_BYTES = 4096, DRAIN_S = 2, SECONDS_GROW = 64 };

struct slot {
    struct bench_io io;
    struct bench_worker *worker;
    uint64_t began_ns;
    uint64_t copy_to; /* of a copy that is reading: where it goes */
};

struct sample {
    uint64_t now_ns, busy_ns;
};

struct bench_worker {
    struct bench_worker_options options;
    pthread_t thread;
    atomic_bool has_ended, has_failed;
    _Atomic uint64_t completed;
    struct rng rng;
    bool is_ending, is_started;
    int error;
    struct mem_pages *memory;
    struct slot *slots;
    uint32_t stream_count, next_stream;
    uint64_t stream_bytes, cursors[STREAMS_MAX];
    uint64_t operations, last_ns, last_completion_ns;
    struct sample begin, end; /* of the measured time */
    struct bench_histogram histogram;
    uint32_t second_count, second_room;
    uint64_t *seconds;
};

static _Atomic uint64_t stamps;

/* ---- processor time ---- */

/* Running, or ready to run and not let: both keep the next command from being sent. The second is
 * the second number of /proc/thread-self/schedstat; where there is none, it counts as nothing. */
static struct sample sample_now(void) {
    struct sample sample = {bench_now_ns(), bench_clock_ns(CLOCK_THREAD_CPUTIME_ID)};
    char text[96] = "";
    unsigned long long ran = 0, waited = 0;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof(text) - 1) > 0 && sscanf(text, "%llu %llu", &ran, &waited) == 2) {
            sample.busy_ns += waited;
        }
        (void)close(fd);
    }
    return sample;
}

/* ---- where to ---- */

/* The next piece of one of the sequential streams. False: there is none left. */
static bool next_in_order(struct bench_worker *w, uint64_t *ret_offset) {
    const struct bench_worker_options *o = &w->options;
    uint32_t stream = w->next_stream++ % w->stream_count;
    uint64_t *cursor = &w->cursors[stream];
    if (*cursor + o->block_bytes > w->stream_bytes) {
        if (o->once) {
            return false;
        }
        *cursor = 0;
    }
    *ret_offset = o->offset + stream * w->stream_bytes + *cursor;
    *cursor += o->block_bytes;
    return true;
}

static uint64_t anywhere(struct bench_worker *w, uint64_t offset, uint64_t bytes) {
    uint32_t block = w->options.block_bytes;
    return offset + rng_below(&w->rng, bytes / block) * block;
}

static void stamp(uint8_t *data, uint32_t bytes) {
    uint64_t first =
        atomic_fetch_add_explicit(&stamps, div_round_up(bytes, STAMP_BYTES), memory_order_relaxed);
    for (uint32_t at = 0; at < bytes; at += STAMP_BYTES) {
        uint64_t number = first++ * 0x9e3779b97f4a7c15ull; /* odd: stays unique */
        memcpy(data + at, &number, sizeof(number));
    }
}

/* ---- the loop ---- */

static void fail(struct bench_worker *w, int error) {
    w->error = w->error == OK ? error : w->error;
    w->is_ending = true;
    atomic_store(&w->has_failed, true);
}

static void submit(struct slot *slot) {
    int error = bench_target_submit(slot->worker->options.target, &slot->io);
    if (error != OK) {
        fail(slot->worker, error);
    }
}

static void begin(struct slot *slot) {
    struct bench_worker *w = slot->worker;
    const struct bench_worker_options *o = &w->options;
    slot->io.is_write = o->operation == JOB_WRITE;
    if (o->operation == JOB_MIXED) {
        slot->io.is_write = rng_below(&w->rng, 100) >= o->read_percent;
    }
    if (o->operation == JOB_COPY) {
        if (!next_in_order(w, &slot->copy_to)) {
            return;
        }
        slot->io.offset = anywhere(w, o->source_offset, o->source_bytes);
    } else if (o->is_random) {
        slot->io.offset = anywhere(w, o->offset, o->bytes);
    } else if (!next_in_order(w, &slot->io.offset)) {
        return;
    }
    if (slot->io.is_write) {
        stamp(slot->io.data, slot->io.length);
    }
    slot->began_ns = bench_now_ns();
    submit(slot);
}

static void count_second(struct bench_worker *w, uint64_t second) {
    if (second >= w->second_room) {
        uint32_t room = (uint32_t)second + SECONDS_GROW;
        w->seconds = mem_realloc(w->seconds, room * sizeof(w->seconds[0]));
        memset(w->seconds + w->second_room, 0, (room - w->second_room) * sizeof(w->seconds[0]));
        w->second_room = room;
    }
    w->second_count = MAX(w->second_count, (uint32_t)second + 1);
    w->seconds[second]++;
}

static void completed(struct bench_io *io, int error) {
    struct slot *slot = CONTAINER_OF(io, struct slot, io);
    struct bench_worker *w = slot->worker;
    struct bench_clock *clock = w->options.clock;
    if (error != OK) {
        fail(w, error);
        return;
    }
    uint64_t now = io->done_ns;
    w->last_completion_ns = now;
    if (w->options.operation == JOB_COPY && !io->is_write) {
        io->is_write = true;
        io->offset = slot->copy_to;
        stamp(io->data, io->length);
        submit(slot);
        return;
    }
    uint64_t from = atomic_load_explicit(&clock->from_ns, memory_order_relaxed);
    uint64_t until = atomic_load_explicit(&clock->until_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->completed, 1, memory_order_relaxed);
    if (now >= from && now < until) {
        bench_histogram_add(&w->histogram, now - slot->began_ns);
        count_second(w, (now - from) / NS_PER_S);
        w->operations++;
        w->last_ns = now;
    }
    w->is_ending |= now >= until;
    if (!w->is_ending) {
        begin(slot);
    }
}

/* What is still under way completes, or is given up: what is lost stays lost. */
static void drain(struct bench_worker *w) {
    struct bench_target *target = w->options.target;
    uint64_t deadline =
        bench_now_ns() + (w->error != OK ? (uint64_t)DRAIN_S : TARGET_COMMAND_S) * NS_PER_S;
    while (target->in_flight > 0) {
        int error = bench_target_service(target, 100);
        if (error == OK && target->in_flight > 0 && bench_now_ns() > deadline) {
            error = bench_target_fail(target, ERR_TIMEOUT, "does not answer any more");
        }
        if (error != OK) {
            fail(w, error);
            return;
        }
    }
}

static void check_stall(struct bench_worker *w, uint64_t now) {
    if (now > w->last_completion_ns + (uint64_t)TARGET_COMMAND_S * NS_PER_S) {
        fail(w, bench_target_fail(w->options.target, ERR_TIMEOUT, "nothing was answered for %d s",
                                  TARGET_COMMAND_S));
    }
}

static void *work(void *arg) {
    struct bench_worker *w = arg;
    struct bench_target *target = w->options.target;
    struct bench_clock *clock = w->options.clock;
    w->last_completion_ns = bench_now_ns();
    for (uint32_t i = 0; i < w->options.depth && !w->is_ending; i++) {
        begin(&w->slots[i]);
    }
    while (!w->is_ending && target->in_flight > 0) {
        int error = bench_target_service(target, 100);
        uint64_t now = bench_now_ns();
        if (error != OK) {
            fail(w, error);
        }
        if (w->begin.now_ns == 0 && now >= atomic_load(&clock->from_ns)) {
            w->begin = sample_now();
        }
        w->is_ending |= now >= atomic_load(&clock->until_ns);
        check_stall(w, now);
    }
    w->end = sample_now();
    w->is_ending = true;
    drain(w);
    atomic_store(&w->has_ended, true);
    return NULL;
}

/* ---- making and ending ---- */

struct bench_worker *bench_worker_new(const struct bench_worker_options *options) {
    struct bench_worker *w = MEM_NEW(struct bench_worker);
    w->options = *options;
    uint64_t pieces = options->bytes / options->block_bytes;
    ASSERT(options->depth > 0 && options->block_bytes > 0 && pieces > 0);
    rng_init(&w->rng, options->seed);
    uint64_t streams = MIN(MAX(options->streams, 1u), (uint32_t)STREAMS_MAX);
    w->stream_count = (uint32_t)MIN(streams, pieces);
    w->stream_bytes = pieces / w->stream_count * options->block_bytes;
    size_t slot_bytes = round_up(options->block_bytes, 4096);
    w->memory = mem_pages_new(slot_bytes * options->depth);
    rng_fill(&w->rng, w->memory->data, w->memory->bytes);
    w->slots = MEM_NEW_ARRAY(struct slot, options->depth);
    for (uint32_t i = 0; i < options->depth; i++) {
        w->slots[i] = (struct slot){.worker = w,
                                    .io = {.length = options->block_bytes,
                                           .data = (uint8_t *)w->memory->data + slot_bytes * i,
                                           .done = completed}};
    }
    return w;
}

int bench_worker_start(struct bench_worker *w) {
    w->is_started = pthread_create(&w->thread, NULL, work, w) == 0;
    return w->is_started ? OK : ERR_AGAIN;
}

uint64_t bench_worker_completed(const struct bench_worker *w) {
    return atomic_load_explicit(&w->completed, memory_order_relaxed);
}

bool bench_worker_has_ended(const struct bench_worker *w) {
    return atomic_load(&w->has_ended);
}

bool bench_worker_has_failed(const struct bench_worker *w) {
    return atomic_load(&w->has_failed);
}

void bench_worker_join(struct bench_worker *w) {
    if (w->is_started) {
        (void)pthread_join(w->thread, NULL);
        w->is_started = false;
    }
}

void bench_worker_report(const struct bench_worker *w, struct bench_worker_report *ret) {
    uint64_t wall = w->end.now_ns - w->begin.now_ns;
    *ret = (struct bench_worker_report){.error = w->error,
                                        .operations = w->operations,
                                        .last_ns = w->last_ns,
                                        .histogram = &w->histogram,
                                        .seconds = w->seconds,
                                        .second_count = w->second_count};
    if (w->begin.now_ns != 0 && wall > 0) {
        ret->busy = (double)(w->end.busy_ns - w->begin.busy_ns) / (double)wall;
    }
}

void bench_worker_free(struct bench_worker *w) {
    if (w == NULL || w->options.target->in_flight > 0) {
        return;
    }
    mem_pages_free(w->memory);
    mem_free(w->slots);
    mem_free(w->seconds);
    mem_free(w);
}
