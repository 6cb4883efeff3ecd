// SPDX-License-Identifier: MPL-2.0
/* The thread that measures, against a target that writes down what it is asked: what goes where and
 * in which order, that everything is counted and nothing twice, and how it ends when the target
 * fails. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/clock.h"
#include "bench/worker.h"

enum { BLOCK = 4096, LOG_MAX = 1 << 16, HELD_MAX = 64 };

struct entry {
    bool is_write;
    uint64_t offset, stamp;
};

/* Completes what it holds at each service, last come first served. */
struct recorder {
    struct bench_target target;
    uint32_t held_count, deepest;
    struct bench_io *held[HELD_MAX];
    uint32_t count;
    struct entry log[LOG_MAX];
    uint32_t fail_at;  /* this many completions from the start an I/O fails; 0: none does */
    uint32_t break_at; /* … the target is lost, with what it holds */
    uint32_t completions;
};

static int record_submit(struct bench_target *target, struct bench_io *io) {
    struct recorder *r = target->own;
    if (r->held_count == HELD_MAX) {
        return ERR_LIMIT;
    }
    r->held[r->held_count++] = io;
    r->deepest = MAX(r->deepest, r->held_count);
    if (r->count < LOG_MAX) {
        struct entry *entry = &r->log[r->count++];
        *entry = (struct entry){.is_write = io->is_write, .offset = io->offset};
        memcpy(&entry->stamp, io->data, sizeof(entry->stamp));
    }
    return OK;
}

static int record_service(struct bench_target *target, uint32_t wait_ms) {
    struct recorder *r = target->own;
    const struct timespec nap = {0, 100000};
    (void)wait_ms;
    (void)nanosleep(&nap, NULL);
    while (r->held_count > 0) {
        r->completions++;
        if (r->break_at != 0 && r->completions >= r->break_at) {
            return bench_target_fail(target, ERR_CLOSED, "the cable was cut.\n");
        }
        int error = r->completions == r->fail_at ? ERR_NO_SPACE : OK;
        bench_target_done(r->held[--r->held_count], error);
    }
    return OK;
}

static void record_close(struct bench_target *target) {
    (void)target;
}

static const struct bench_target_ops record_ops = {
    .kind = "recorder", .submit = record_submit, .service = record_service, .close = record_close};

static struct recorder *recorder_new(void) {
    struct recorder *r = MEM_NEW(struct recorder);
    r->target.ops = &record_ops;
    r->target.own = r;
    r->target.size_bytes = 1 << 30;
    r->target.block_bytes = 512;
    r->target.ended_tail = &r->target.ended;
    return r;
}

static struct bench_worker_options options_of(struct recorder *r, struct bench_clock *clock) {
    uint64_t now = bench_now_ns();
    atomic_store(&clock->from_ns, now);
    atomic_store(&clock->until_ns, now + NS_PER_S / 20);
    return (struct bench_worker_options){.target = &r->target,
                                         .clock = clock,
                                         .operation = JOB_READ,
                                         .block_bytes = BLOCK,
                                         .depth = 4,
                                         .streams = 1,
                                         .offset = 1 << 20,
                                         .bytes = 64 * BLOCK,
                                         .seed = 7};
}

/* Runs it to its end; the worker is the caller's to free. */
static struct bench_worker *run(const struct bench_worker_options *options,
                                struct bench_worker_report *report) {
    struct bench_worker *worker = bench_worker_new(options);
    assert_int_equal(bench_worker_start(worker), OK);
    bench_worker_join(worker);
    assert_true(bench_worker_has_ended(worker));
    bench_worker_report(worker, report);
    return worker;
}

static void random_stays_inside_and_is_counted(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.operation = JOB_MIXED;
    options.is_random = true;
    options.read_percent = 70;
    struct bench_worker *worker = run(&options, &report);
    uint32_t writes = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct entry *e = &r->log[i];
        assert_true(e->offset >= 1 << 20 && e->offset < (1 << 20) + 64 * BLOCK);
        assert_int_equal(e->offset % BLOCK, 0);
        writes += e->is_write;
    }
    assert_int_equal(report.error, OK);
    assert_int_equal(r->deepest, 4);
    assert_true(r->count > 100 && r->count - report.operations <= 8);
    assert_in_range(writes * 100 / r->count, 15, 45);
    assert_int_equal(report.histogram->count, report.operations);
    for (uint32_t s = 0; s < report.second_count; s++) {
        sum += report.seconds[s];
    }
    assert_int_equal(sum, report.operations);
    assert_int_equal(r->target.in_flight, 0);
    bench_worker_free(worker);
    mem_free(r);
}

static void what_is_before_or_after_does_not_count(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.is_random = true;
    atomic_store(&clock.from_ns, bench_now_ns() + NS_PER_S);
    struct bench_worker *worker = run(&options, &report);
    assert_true(r->count > 100 && bench_worker_completed(worker) > 100);
    assert_int_equal(report.operations, 0);
    bench_worker_free(worker);
    mem_free(r);
}

static void streams_run_in_order_side_by_side(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.streams = 2;
    struct bench_worker *worker = run(&options, &report);
    assert_true(r->count > 200); /* several times around */
    for (uint32_t i = 0; i < r->count; i++) {
        uint64_t turn = i / 2 % 32, stream = i % 2;
        assert_int_equal(r->log[i].offset, (1 << 20) + (stream * 32 + turn) * BLOCK);
    }
    bench_worker_free(worker);
    mem_free(r);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = ((const struct entry *)a)->stamp, y = ((const struct entry *)b)->stamp;
    return (x > y) - (x < y);
}

static void once_is_once_and_never_the_same_data(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.operation = JOB_WRITE;
    options.once = true;
    options.bytes = 1000 * BLOCK + 100;
    atomic_store(&clock.until_ns, UINT64_MAX);
    struct bench_worker *worker = run(&options, &report);
    assert_int_equal(r->count, 1000);
    assert_int_equal(report.operations, 1000);
    for (uint32_t i = 0; i < r->count; i++) {
        assert_int_equal(r->log[i].offset, (1 << 20) + (uint64_t)i * BLOCK);
    }
    qsort(r->log, r->count, sizeof(r->log[0]), by_value);
    for (uint32_t i = 1; i < r->count; i++) {
        assert_true(r->log[i].stamp != r->log[i - 1].stamp);
    }
    bench_worker_free(worker);
    mem_free(r);
}

static void a_copy_reads_here_and_writes_there(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.operation = JOB_COPY;
    options.depth = 1;
    options.source_offset = 0;
    options.source_bytes = 16 * BLOCK;
    struct bench_worker *worker = run(&options, &report);
    assert_true(r->count > 50);
    for (uint32_t i = 0; i < r->count; i++) {
        assert_int_equal(r->log[i].is_write, i % 2);
        if (i % 2 == 0) {
            assert_true(r->log[i].offset < 16 * BLOCK);
        } else {
            assert_int_equal(r->log[i].offset, (1 << 20) + (uint64_t)(i / 2 % 64) * BLOCK);
        }
    }
    assert_true(report.operations <= r->count / 2 && report.operations + 1 >= r->count / 2);
    bench_worker_free(worker);
    mem_free(r);
}

static void an_error_ends_it_with_its_reason(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.is_random = true;
    r->fail_at = 50;
    atomic_store(&clock.until_ns, UINT64_MAX);
    struct bench_worker *worker = run(&options, &report);
    assert_int_equal(report.error, ERR_NO_SPACE);
    assert_true(bench_worker_has_failed(worker) && r->count < 60);
    assert_non_null(strstr(r->target.why.text, "failed: no space left"));
    assert_int_equal(r->target.in_flight, 0);
    bench_worker_free(worker);
    mem_free(r);
}

static void a_target_that_is_lost_ends_it_at_once(void **state) {
    (void)state;
    struct recorder *r = recorder_new();
    struct bench_clock clock;
    struct bench_worker_report report;
    struct bench_worker_options options = options_of(r, &clock);
    options.is_random = true;
    r->break_at = 50;
    atomic_store(&clock.until_ns, UINT64_MAX);
    uint64_t began = bench_now_ns();
    struct bench_worker *worker = run(&options, &report);
    assert_int_equal(report.error, ERR_CLOSED);
    assert_true(bench_now_ns() - began < 30ull * NS_PER_S);
    assert_string_equal(r->target.why.text, "the cable was cut");
    /* What the target never gave back must stay where it is; then it does. */
    assert_true(r->target.in_flight > 0);
    bench_worker_free(worker);
    while (r->held_count > 0) {
        bench_target_done(r->held[--r->held_count], ERR_CANCELLED);
    }
    r->break_at = 0;
    assert_int_equal(bench_target_service(&r->target, 0), OK);
    assert_int_equal(r->target.in_flight, 0);
    bench_worker_free(worker);
    mem_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_stays_inside_and_is_counted),
        cmocka_unit_test(what_is_before_or_after_does_not_count),
        cmocka_unit_test(streams_run_in_order_side_by_side),
        cmocka_unit_test(once_is_once_and_never_the_same_data),
        cmocka_unit_test(a_copy_reads_here_and_writes_there),
        cmocka_unit_test(an_error_ends_it_with_its_reason),
        cmocka_unit_test(a_target_that_is_lost_ends_it_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
