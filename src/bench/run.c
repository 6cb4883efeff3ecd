// SPDX-License-Identifier: MPL-2.0
#include "bench/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/clock.h"
#include "bench/content.h"
#include "bench/machine.h"
#include "bench/worker.h"

enum {
    TICK_MS = 50,
    SHOW_EVERY_TICKS = 5,
    ESTIMATE_AFTER_S = 2,
    FILL_BLOCK = 512 << 10,
    FILL_DEPTH = 16
};
#define MEMORY_MAX (1ull << 30) /* of a run's data */

/* What the runs of one job have come to, at one queue depth. */
struct tally {
    struct bench_histogram *histogram;
    double *seconds; /* whole ones, of all runs */
    uint32_t second_count;
    double cpu_percent, busy;
    uint32_t run_count;
    double runs[BENCH_RUNS_MAX];
};

/* One job of a group, with what it needs of its threads. */
struct member {
    const struct bench_job *job;
    uint32_t block_bytes, depth, threads;
    uint32_t point; /* the queue depth that its result stands under: that of the group */
    uint64_t offset, bytes;
    struct bench_worker *workers[JOB_THREADS_MAX];
    struct tally tally;
};

struct group {
    uint32_t count, threads;
    uint32_t ramp_seconds, seconds;
    bool once;
    struct member members[JOBS_MAX];
};

struct bench {
    const struct bench_options *options;
    const struct bench_plan *plan;
    const struct bench_watcher *watcher;
    struct bench_document *document;
    struct errmsg *reterr;
    uint64_t span_bytes;
    struct bench_target *targets[JOBS_MAX]; /* one a thread, as many as any group needs */
    uint32_t target_count;
    uint64_t planned_seconds; /* of runs that are still to come */
    struct bench_progress progress;
};

/* One run as it goes. */
struct round {
    struct bench_clock clock;
    uint64_t began_ns, from_ns, until_ns; /* as planned; `until` 0: when it is done */
    uint64_t total;                       /* operations of all, where it is done when they are */
    uint64_t cpu_ns, cpu_at_ns, cpu_until_ns, cpu_end_ns;
    uint64_t rate_ns, rate_operations;
    bool is_stopped;
};

void bench_options_init(struct bench_options *options, bool quick) {
    *options = (struct bench_options){.depth_count = 2,
                                      .depths = {1, 32},
                                      .seconds = quick ? BENCH_QUICK_SECONDS : BENCH_SECONDS,
                                      .ramp_seconds =
                                          quick ? BENCH_QUICK_RAMP_SECONDS : BENCH_RAMP_SECONDS,
                                      .runs = quick ? BENCH_QUICK_RUNS : BENCH_RUNS,
                                      .threads = 1,
                                      .streams = 1};
}

double bench_steadiness(const double *seconds, uint32_t count) {
    if (count < 2) {
        return 1;
    }
    double slowest = seconds[0], median = bench_median(seconds, count);
    for (uint32_t i = 1; i < count; i++) {
        slowest = MIN(slowest, seconds[i]);
    }
    return median > 0 ? MIN(slowest / median, 1.0) : 0;
}

static uint64_t extent_bytes(const struct bench_extent *extent, uint64_t span_bytes) {
    return extent->percent > 0 ? span_bytes / 100 * extent->percent : extent->bytes;
}

int bench_extent_place(const struct bench_extent *offset, const struct bench_extent *size,
                       uint64_t span_bytes, uint32_t block_bytes, uint64_t *ret_offset,
                       uint64_t *ret_bytes) {
    uint64_t from = round_down(extent_bytes(offset, span_bytes), block_bytes);
    uint64_t wanted = extent_bytes(size, span_bytes);
    if (from >= span_bytes) {
        return ERR_RANGE;
    }
    uint64_t bytes = wanted > 0 ? MIN(wanted, span_bytes - from) : span_bytes - from;
    bytes = round_down(bytes, block_bytes);
    if (bytes == 0) {
        return ERR_RANGE;
    }
    *ret_offset = from;
    *ret_bytes = bytes;
    return OK;
}

/* ---- telling ---- */

static bool is_stopped(const struct bench *b) {
    return b->watcher->stop != NULL && atomic_load(b->watcher->stop);
}

static void HF_PRINTF(2, 3) note(const struct bench *b, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (b->watcher->note != NULL) {
        b->watcher->note(b->watcher->owner, text);
    }
}

static void format_time(uint64_t seconds, char *ret_text, size_t room) {
    if (seconds < 120) {
        (void)snprintf(ret_text, room, "%" PRIu64 " s", seconds);
    } else if (seconds < 7200) {
        (void)snprintf(ret_text, room, "%" PRIu64 " min", (seconds + 30) / 60);
    } else {
        (void)snprintf(ret_text, room, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
                       seconds / 60 % 60);
    }
}

/* ---- groups ---- */

static int place_member(struct bench *b, struct member *m, uint32_t depth) {
    const struct bench_target *target = b->targets[0];
    const struct bench_job *job = m->job;
    m->block_bytes =
        job->block_is_least ? MAX(job->block_bytes, target->block_bytes) : job->block_bytes;
    m->depth = job->depth > 0 ? job->depth : depth;
    m->point = b->plan->fixed_depths ? m->depth : depth;
    m->threads = job->once ? 1 : job->threads > 0 ? job->threads : b->options->threads;
    if (m->block_bytes % target->block_bytes != 0) {
        return errmsg_set(b->reterr, ERR_INVALID,
                          "%s: %s asks for blocks of %" PRIu32 " bytes; this target has %" PRIu32,
                          target->address, job->name, m->block_bytes, target->block_bytes);
    }
    int error = bench_extent_place(&job->offset, &job->size, b->span_bytes, m->block_bytes,
                                   &m->offset, &m->bytes);
    uint64_t parts = (uint64_t)m->threads * (job->operation == JOB_COPY ? 2 : 1);
    if (error != OK || m->bytes / parts < m->block_bytes) {
        return errmsg_set(b->reterr, ERR_RANGE, "%s: %s does not fit into the span",
                          target->address, job->name);
    }
    if ((uint64_t)m->depth * m->threads * m->block_bytes > MEMORY_MAX) {
        return errmsg_set(
            b->reterr, ERR_LIMIT,
            "%s: blocks, queue depth and jobs of %s come to more than 1 GiB of memory",
            target->address, job->name);
    }
    return OK;
}

/* The group that begins with job `first`, at a queue depth. */
static int form_group(struct bench *b, uint32_t first, uint32_t depth, struct group *group) {
    const struct bench_plan *plan = b->plan;
    int error = OK;
    memset(group, 0, sizeof(*group));
    for (uint32_t i = first; error == OK && i < plan->count && (i == first || plan->jobs[i].beside);
         i++) {
        struct member *m = &group->members[group->count++];
        m->job = &plan->jobs[i];
        error = place_member(b, m, depth);
        uint32_t seconds = m->job->seconds > 0 ? m->job->seconds : b->options->seconds;
        uint32_t ramp =
            m->job->ramp_seconds >= 0 ? (uint32_t)m->job->ramp_seconds : b->options->ramp_seconds;
        group->threads += m->threads;
        group->seconds = MAX(group->seconds, seconds);
        group->ramp_seconds = MAX(group->ramp_seconds, ramp);
        group->once |= m->job->once;
    }
    if (error == OK && group->threads > JOB_THREADS_MAX) {
        error = errmsg_set(b->reterr, ERR_LIMIT, "more than %d threads at once", JOB_THREADS_MAX);
    }
    if (group->once) {
        group->ramp_seconds = 0;
    }
    return error;
}

static uint32_t runs_of(const struct bench *b, const struct group *group) {
    return group->once ? 1 : b->options->runs;
}

/* ---- a run ---- */

static struct bench_worker *make_worker(const struct bench *b, const struct member *m,
                                        uint32_t index, struct bench_target *target,
                                        struct bench_clock *clock) {
    uint64_t offset = m->offset, bytes = m->bytes;
    if (m->job->operation == JOB_COPY) {
        bytes = round_down(bytes / 2, m->block_bytes);
        offset += bytes;
    }
    struct bench_worker_options options = {.target = target,
                                           .clock = clock,
                                           .operation = m->job->operation,
                                           .is_random = m->job->is_random,
                                           .once = m->job->once,
                                           .read_percent = m->job->read_percent,
                                           .block_bytes = m->block_bytes,
                                           .depth = m->depth,
                                           .streams = m->job->once ? 1 : b->options->streams,
                                           .offset = offset,
                                           .bytes = bytes,
                                           .source_offset = m->offset,
                                           .source_bytes = bytes,
                                           .seed = bench_now_ns() + index};
    if (!m->job->is_random) { /* each thread has its own part */
        options.bytes = round_down(bytes / m->threads, m->block_bytes);
        options.offset = offset + index * options.bytes;
    }
    return bench_worker_new(&options);
}

static void make_workers(struct bench *b, struct group *group, struct bench_clock *clock) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        struct member *m = &group->members[i];
        for (uint32_t t = 0; t < m->threads; t++) {
            m->workers[t] = make_worker(b, m, t, b->targets[at++], clock);
        }
    }
}

static void free_workers(struct group *group) {
    for (uint32_t i = 0; i < group->count; i++) {
        for (uint32_t t = 0; t < group->members[i].threads; t++) {
            bench_worker_free(group->members[i].workers[t]);
            group->members[i].workers[t] = NULL;
        }
    }
}

/* How many have ended, and operations of all; failed: whether any has. */
static uint32_t look(const struct group *group, uint64_t *ret_operations, bool *ret_failed) {
    uint32_t ended = 0;
    *ret_operations = 0;
    *ret_failed = false;
    for (uint32_t i = 0; i < group->count; i++) {
        for (uint32_t t = 0; t < group->members[i].threads; t++) {
            const struct bench_worker *worker = group->members[i].workers[t];
            ended += bench_worker_has_ended(worker);
            *ret_operations += bench_worker_completed(worker);
            *ret_failed |= bench_worker_has_failed(worker);
        }
    }
    return ended;
}

static void show(struct bench *b, const struct group *group, struct round *round, uint64_t now,
                 uint64_t operations) {
    struct bench_progress *p = &b->progress;
    if (now >= round->rate_ns + NS_PER_S) {
        double rate = (double)(operations - round->rate_operations) * NS_PER_S /
                      (double)(now - round->rate_ns);
        p->rate = p->unit == BENCH_IOPS ? rate : rate * group->members[0].block_bytes / 1e6;
        round->rate_ns = now;
        round->rate_operations = operations;
    }
    bool measuring = now >= round->from_ns;
    uint64_t left = 0;
    if (round->until_ns == 0) {
        p->done = (double)operations / (double)MAX(round->total, 1ull);
        double passed = (double)(now - round->began_ns) / 1e9;
        left = p->done > 0 ? (uint64_t)(passed / p->done * (1 - p->done)) : 0;
    } else {
        uint64_t from = measuring ? round->from_ns : round->began_ns;
        uint64_t until = measuring ? round->until_ns : round->from_ns;
        p->phase = measuring ? "measuring" : "warming up";
        p->done = MIN((double)(now - from) / (double)MAX(until - from, 1ull), 1.0);
        left = now < round->until_ns ? (round->until_ns - now) / NS_PER_S : 0;
    }
    p->left_seconds = left + b->planned_seconds;
    if (b->watcher->progress != NULL) {
        b->watcher->progress(b->watcher->owner, p);
    }
}

static void sample_cpu(struct round *round, uint64_t now) {
    uint64_t cpu = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (round->cpu_at_ns == 0 && now >= round->from_ns) {
        round->cpu_at_ns = now;
        round->cpu_ns = cpu;
    }
    if (round->until_ns == 0 || now <= round->until_ns + NS_PER_S / 10) {
        round->cpu_until_ns = now;
        round->cpu_end_ns = cpu;
    }
}

/* Sets the clock to now, so that all threads end. */
static void end_round(struct round *round) {
    uint64_t now = bench_now_ns();
    if (now < atomic_load(&round->clock.until_ns)) {
        atomic_store(&round->clock.until_ns, now);
    }
}

/* How long filling takes is known when a part of it is done. */
static void say_estimate(const struct bench *b, const struct round *round, uint64_t now,
                         uint64_t operations) {
    char all[32], then[32];
    double passed = (double)(now - round->began_ns) / 1e9;
    format_time((uint64_t)(passed * (double)round->total / (double)operations + 0.5), all,
                sizeof(all));
    format_time(b->planned_seconds, then, sizeof(then));
    note(b, "%s at this speed takes about %s%s%s", b->progress.phase, all,
         b->planned_seconds > 0 ? "; measuring then takes " : "",
         b->planned_seconds > 0 ? then : "");
}

static void wait_for_round(struct bench *b, struct group *group, struct round *round) {
    uint64_t estimate_ns = round->began_ns + ESTIMATE_AFTER_S * (uint64_t)NS_PER_S;
    bool failed = false;
    uint32_t ticks = 0;
    for (uint64_t operations = 0; look(group, &operations, &failed) < group->threads; ticks++) {
        const struct timespec tick = {0, TICK_MS * NS_PER_MS};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &tick, NULL);
        uint64_t now = bench_now_ns();
        sample_cpu(round, now);
        if (failed || is_stopped(b)) {
            round->is_stopped |= !failed;
            end_round(round);
        }
        if (ticks % SHOW_EVERY_TICKS == 0) {
            show(b, group, round, now, operations);
        }
        if (round->until_ns == 0 && estimate_ns != 0 && now >= estimate_ns && operations > 0) {
            say_estimate(b, round, now, operations);
            estimate_ns = 0;
        }
    }
}

static int error_of_round(struct bench *b, struct group *group) {
    uint32_t at = 0;
    int error = OK;
    for (uint32_t i = 0; i < group->count; i++) {
        for (uint32_t t = 0; t < group->members[i].threads; t++, at++) {
            struct bench_worker_report report;
            bench_worker_report(group->members[i].workers[t], &report);
            const struct errmsg *why = &b->targets[at]->why;
            if (report.error != OK && error == OK) {
                error = errmsg_set(b->reterr, report.error, "%s: %s", b->targets[0]->address,
                                   why->code != 0 ? why->text : error_text(report.error));
            }
        }
    }
    return error;
}

static void tally_round(struct member *m, const struct round *round, bool once) {
    struct tally *tally = &m->tally;
    uint64_t operations = 0, last_ns = 0, from = round->from_ns;
    uint64_t until = atomic_load(&round->clock.until_ns);
    double busy = 0, value;
    struct bench_worker_report report = {0};
    for (uint32_t t = 0; t < m->threads; t++) {
        bench_worker_report(m->workers[t], &report);
        operations += report.operations;
        last_ns = MAX(last_ns, report.last_ns);
        busy = MAX(busy, report.busy);
        bench_histogram_merge(tally->histogram, report.histogram);
    }
    until = once ? MAX(last_ns, from + 1) : until;
    double seconds = (double)(until - from) / 1e9;
    uint32_t whole = (uint32_t)seconds;
    tally->seconds =
        mem_realloc(tally->seconds, (tally->second_count + whole + 1) * sizeof(tally->seconds[0]));
    for (uint32_t s = 0; s < whole; s++) {
        double *sum = &tally->seconds[tally->second_count++];
        *sum = 0;
        for (uint32_t t = 0; t < m->threads; t++) {
            bench_worker_report(m->workers[t], &report);
            *sum += s < report.second_count ? (double)report.seconds[s] : 0;
        }
    }
    value = (double)operations / seconds;
    value = m->job->unit == BENCH_IOPS ? value : value * m->block_bytes / 1e6;
    tally->runs[tally->run_count++] = value;
    tally->busy = MAX(tally->busy, busy);
    if (round->cpu_until_ns > round->cpu_at_ns && round->cpu_at_ns != 0) {
        double cpu = 100.0 * (double)(round->cpu_end_ns - round->cpu_ns) /
                     (double)(round->cpu_until_ns - round->cpu_at_ns);
        tally->cpu_percent += (cpu - tally->cpu_percent) / tally->run_count;
    }
}

/* Ends what could be started when not all could. */
static int start_workers(struct bench *b, struct group *group, struct round *round) {
    int error = OK;
    for (uint32_t i = 0; i < group->count; i++) {
        for (uint32_t t = 0; t < group->members[i].threads && error == OK; t++) {
            error = bench_worker_start(group->members[i].workers[t]);
        }
    }
    if (error != OK) {
        end_round(round);
        return errmsg_set(b->reterr, error, "%s: no more threads can be had; use fewer --jobs",
                          b->targets[0]->address);
    }
    return OK;
}

static void set_clock(struct round *round, const struct group *group) {
    uint64_t now = bench_now_ns();
    *round = (struct round){.began_ns = now, .rate_ns = now};
    round->from_ns = now + (uint64_t)group->ramp_seconds * NS_PER_S;
    if (!group->once) {
        round->until_ns = round->from_ns + (uint64_t)group->seconds * NS_PER_S;
    } else {
        round->total = group->members[0].bytes / group->members[0].block_bytes;
    }
    atomic_store(&round->clock.from_ns, round->from_ns);
    atomic_store(&round->clock.until_ns, round->until_ns != 0 ? round->until_ns : UINT64_MAX);
}

/* One run of all jobs of a group, tallied unless it was too short to say anything. ERR_CANCELLED:
 * it was stopped. */
static int run_once(struct bench *b, struct group *group) {
    struct round *round = MEM_NEW(struct round);
    make_workers(b, group, &round->clock);
    set_clock(round, group);
    int error = start_workers(b, group, round);
    if (error == OK) {
        wait_for_round(b, group, round);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        for (uint32_t t = 0; t < group->members[i].threads; t++) {
            bench_worker_join(group->members[i].workers[t]);
        }
    }
    if (error == OK) {
        error = error_of_round(b, group);
    }
    uint64_t until = atomic_load(&round->clock.until_ns);
    bool long_enough = until >= round->from_ns + NS_PER_S || !round->is_stopped;
    for (uint32_t i = 0; error == OK && long_enough && i < group->count; i++) {
        tally_round(&group->members[i], round, group->once && !round->is_stopped);
    }
    if (error == OK && round->is_stopped) {
        error = errmsg_set(b->reterr, ERR_CANCELLED, "%s: stopped", b->targets[0]->address);
    }
    free_workers(group);
    mem_free(round);
    return error;
}

/* ---- results ---- */

static void add_result(struct bench *b, struct member *m) {
    struct tally *tally = &m->tally;
    if (tally->run_count > 0) {
        struct bench_result *result = bench_document_add(b->document);
        (void)snprintf(result->test, sizeof(result->test), "%s", m->job->name);
        result->unit = m->job->unit;
        result->queue_depth = m->point;
        result->block_bytes = m->block_bytes;
        result->run_count = tally->run_count;
        memcpy(result->runs, tally->runs, sizeof(result->runs));
        bench_result_settle(result);
        bench_histogram_report(tally->histogram, result);
        result->cpu_percent = tally->cpu_percent;
        result->client_limited = tally->busy >= 0.9;
        result->steady = bench_steadiness(tally->seconds, tally->second_count);
    }
}

static int run_group(struct bench *b, uint32_t first, uint32_t depth) {
    struct group *group = MEM_NEW(struct group);
    int error = form_group(b, first, depth, group);
    for (uint32_t i = 0; i < group->count; i++) {
        group->members[i].tally.histogram = MEM_NEW(struct bench_histogram);
    }
    uint32_t runs = error == OK ? runs_of(b, group) : 0;
    for (uint32_t run = 1; error == OK && run <= runs; run++) {
        const struct member *m = &group->members[0];
        b->progress = (struct bench_progress){.phase = group->once ? "filling" : "warming up",
                                              .test = m->job->name,
                                              .queue_depth = m->depth,
                                              .run = run,
                                              .runs = runs,
                                              .unit = m->job->unit};
        if (!group->once) {
            b->planned_seconds -= group->ramp_seconds + group->seconds;
        }
        error = is_stopped(b)
                    ? errmsg_set(b->reterr, ERR_CANCELLED, "%s: stopped", b->targets[0]->address)
                    : run_once(b, group);
    }
    for (uint32_t i = 0; i < group->count; i++) {
        add_result(b, &group->members[i]);
        mem_free(group->members[i].tally.histogram);
        mem_free(group->members[i].tally.seconds);
    }
    mem_free(group);
    return error;
}

/* ---- the whole ---- */

/* Calls `visit` for each group and queue depth, in the order of the plan. */
static int each_group(struct bench *b,
                      int (*visit)(struct bench *b, uint32_t first, uint32_t depth)) {
    uint32_t depths = b->plan->fixed_depths ? 1 : b->options->depth_count;
    int error = OK;
    for (uint32_t first = 0; error == OK && first < b->plan->count;) {
        uint32_t next = first + 1;
        while (next < b->plan->count && b->plan->jobs[next].beside) {
            next++;
        }
        bool same = b->plan->jobs[first].depth > 0;
        for (uint32_t d = 0; error == OK && d < (same ? 1 : depths); d++) {
            error = visit(b, first, b->options->depths[d]);
        }
        first = next;
    }
    return error;
}

/* Refuses what does not fit before anything is changed; counts threads and time. */
static int survey_group(struct bench *b, uint32_t first, uint32_t depth) {
    struct group *group = MEM_NEW(struct group);
    int error = form_group(b, first, depth, group);
    if (error == OK) {
        b->target_count = MAX(b->target_count, group->threads);
        b->planned_seconds +=
            group->once ? 0 : (uint64_t)runs_of(b, group) * (group->ramp_seconds + group->seconds);
    }
    mem_free(group);
    return error;
}

static int prepare(struct bench *b) {
    static const struct bench_job fill = {
        "fill", JOB_WRITE, false, BENCH_MB_S, 0, FILL_BLOCK, .depth = FILL_DEPTH, .once = true};
    struct group *group = MEM_NEW(struct group);
    group->count = group->threads = 1;
    group->once = true;
    group->members[0] = (struct member){.job = &fill,
                                        .block_bytes = FILL_BLOCK,
                                        .depth = FILL_DEPTH,
                                        .threads = 1,
                                        .bytes = b->span_bytes};
    group->members[0].tally.histogram = MEM_NEW(struct bench_histogram);
    b->progress = (struct bench_progress){
        .phase = "preparing", .test = "fill", .queue_depth = FILL_DEPTH, .unit = BENCH_MB_S};
    int error = run_once(b, group);
    if (error == OK) {
        error = bench_target_flush(b->targets[0], b->reterr);
        b->document->settings.prepared = error == OK;
    }
    mem_free(group->members[0].tally.histogram);
    mem_free(group->members[0].tally.seconds);
    mem_free(group);
    return error;
}

static void describe(struct bench *b) {
    const struct bench_target *target = b->targets[0];
    const struct bench_options *options = b->options;
    struct bench_document *document = b->document;
    struct bench_settings *settings = &document->settings;
    bench_document_stamp(document);
    (void)snprintf(document->target.kind, sizeof(document->target.kind), "%s", target->kind);
    (void)snprintf(document->target.address, sizeof(document->target.address), "%s",
                   target->address);
    (void)snprintf(document->target.name, sizeof(document->target.name), "%s", target->name);
    document->target.size_bytes = target->size_bytes;
    document->target.block_bytes = target->block_bytes;
    (void)snprintf(settings->workload, sizeof(settings->workload), "%s", b->plan->workload);
    settings->span_bytes = b->span_bytes;
    settings->prepared = options->prepared;
    settings->read_ahead_bytes = options->target.read_ahead_bytes;
    settings->seconds = options->seconds;
    settings->ramp_seconds = options->ramp_seconds;
    settings->runs = options->runs;
    settings->jobs = options->threads;
    settings->streams = options->streams;
    settings->paths = options->target.path_count + 1;
    (void)snprintf(settings->during, sizeof(settings->during), "%s",
                   options->during != NULL ? options->during : "");
}

static void announce(struct bench *b) {
    const struct bench_target *target = b->targets[0];
    char size[24], span[24], takes[32];
    size_format(target->size_bytes, size, sizeof(size));
    size_format(b->span_bytes, span, sizeof(span));
    format_time(b->planned_seconds, takes, sizeof(takes));
    note(b, "%s%s%s%s: %s%s, span %s%s%s%s", target->address, target->name[0] != '\0' ? " (" : "",
         target->name, target->name[0] != '\0' ? ")" : "", target->is_own_file ? "a file of " : "",
         size, span, b->planned_seconds > 0 ? "; measuring takes " : "",
         b->planned_seconds > 0 ? takes : "",
         b->plan->prepare ? ", and filling the span before" : "");
}

static int measure(struct bench *b) {
    uint64_t span = b->options->span_bytes > 0 ? b->options->span_bytes : BENCH_SPAN_BYTES;
    b->span_bytes = round_down(MIN(span, b->targets[0]->size_bytes), 1 << 20);
    int error = each_group(b, survey_group);
    if (error == OK && b->options->prepared && b->targets[0]->is_own_file) {
        error = errmsg_set(b->reterr, ERR_INVALID,
                           "%s: --prepared: the file that is made now holds nothing yet",
                           b->targets[0]->address);
    }
    bool overwrites = bench_plan_writes(b->plan) || b->plan->prepare;
    if (error == OK && overwrites && !b->options->destroy_data) {
        error = bench_content_refuse(b->targets[0], b->reterr);
    }
    for (uint32_t i = 1; error == OK && i < b->target_count; i++) {
        error = bench_target_join(b->targets[0], &b->targets[i], b->reterr);
    }
    if (error != OK) {
        return error;
    }
    describe(b);
    announce(b);
    error = b->plan->prepare ? prepare(b) : OK;
    if (error == OK && b->watcher->prepared != NULL) {
        error = b->watcher->prepared(b->watcher->owner, b->reterr);
    }
    if (error == OK) {
        error = each_group(b, run_group);
    }
    b->document->settings.complete = error == OK;
    return error;
}

int bench_run(const struct bench_options *options, const struct bench_plan *plan,
              const struct bench_watcher *watcher, struct bench_document *ret_document,
              struct errmsg *reterr) {
    struct bench_options *own = MEM_NEW(struct bench_options);
    struct bench_plan *jobs = MEM_NEW(struct bench_plan);
    struct errmsg why = {0};
    *own = *options;
    *jobs = *plan;
    struct bench b = {
        .options = own, .plan = jobs, .watcher = watcher, .document = ret_document, .reterr = &why};
    *ret_document = (struct bench_document){0};
    int error = own->read_only ? bench_plan_only_reads(jobs, &why) : OK;
    jobs->prepare = jobs->prepare && !own->prepared;
    own->target.writes = !own->read_only;
    own->target.file_bytes = own->span_bytes > 0 ? own->span_bytes : BENCH_SPAN_BYTES;
    own->target.file_bytes_wanted = own->span_bytes > 0;
    if (error == OK) {
        error = bench_target_open(&own->target, &b.targets[0], &why);
    }
    if (error == OK) {
        error = measure(&b);
    }
    for (uint32_t i = JOBS_MAX; i > 0; i--) { /* the first, which removes files, last */
        (void)bench_target_close(b.targets[i - 1]);
    }
    mem_free(own);
    mem_free(jobs);
    return error == OK ? OK : errmsg_set(reterr, error, "%s", why.text);
}
