// SPDX-License-Identifier: MPL-2.0
/* Fibers on a clock that stands still: every order below is exact. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "env/fiber.h"
#include "env_manual.h"

static struct manual_env m;
static char noted[512];
static size_t noted_count;

static void note(const char *text) {
    size_t bytes = strlen(text);
    assert_true(noted_count + bytes < sizeof(noted));
    memcpy(noted + noted_count, text, bytes + 1);
    noted_count += bytes;
}

static int setup(void **state) {
    (void)state;
    manual_init(&m);
    noted_count = 0;
    noted[0] = 0;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    env_done(&m.env);
    return 0;
}

static void note_and_yield(void *arg) {
    note(arg);
    fiber_yield();
    note(arg);
}

static void starter(void *arg) {
    note(arg);
    fiber_start(&m.env, note_and_yield, "x");
    assert_ptr_equal(fiber_env(), &m.env);
    assert_non_null(fiber_self());
    note("s");
}

static void fibers_start_from_the_loop_in_order(void **state) {
    (void)state;
    fiber_start(&m.env, note_and_yield, "a");
    fiber_start(&m.env, starter, "b");
    fiber_start(&m.env, note_and_yield, "c");
    assert_string_equal(noted, "");
    assert_null(fiber_self());
    manual_settle(&m);
    assert_string_equal(noted, "abscaxcx");
    assert_null(fiber_self());
}

/* ---- park and wake ---- */

static struct fiber *parked;

static void park_twice(void *arg) {
    (void)arg;
    parked = fiber_self();
    fiber_wake(parked); /* before the park: remembered, once */
    fiber_wake(parked);
    fiber_park();
    note("1");
    fiber_park();
    note("2");
}

static void a_wake_before_the_park_is_remembered_once(void **state) {
    (void)state;
    fiber_start(&m.env, park_twice, NULL);
    manual_settle(&m);
    assert_string_equal(noted, "1");
    fiber_wake(parked);
    assert_string_equal(noted, "1"); /* from the loop, not from here */
    manual_settle(&m);
    assert_string_equal(noted, "12");
}

static void sleep_then_park(void *arg) {
    (void)arg;
    parked = fiber_self();
    fiber_sleep_until(5000);
    assert_int_equal(env_now_ns(&m.env), 5000);
    note("s");
    fiber_park();
    note("p");
}

static void a_wake_does_not_end_another_wait(void **state) {
    (void)state;
    fiber_start(&m.env, sleep_then_park, NULL);
    manual_settle(&m);
    fiber_wake(parked); /* meant for the park to come: neither ends the sleep nor is lost */
    manual_settle(&m);
    assert_string_equal(noted, "");
    manual_advance(&m, 6000);
    assert_string_equal(noted, "sp");
}

/* ---- queues ---- */

static struct fiber_queue queue;

static void wait_in_queue(void *arg) {
    fiber_queue_wait(&queue);
    note(arg);
}

static void wait_until_5000(void *arg) {
    int error = fiber_queue_wait_until(&queue, 5000);
    note(error == ERR_TIMEOUT ? "T" : "W");
    note(arg);
}

static void queues_wake_first_come_first_served(void **state) {
    (void)state;
    fiber_queue_init(&queue);
    assert_false(fiber_queue_wake_one(&queue));
    fiber_start(&m.env, wait_in_queue, "a");
    fiber_start(&m.env, wait_until_5000, "b");
    fiber_start(&m.env, wait_until_5000, "c");
    fiber_start(&m.env, wait_in_queue, "d");
    manual_settle(&m);
    assert_false(fiber_queue_is_empty(&queue));
    assert_true(fiber_queue_wake_one(&queue));
    assert_true(fiber_queue_wake_one(&queue));
    manual_settle(&m);
    assert_string_equal(noted, "aWb");
    manual_advance(&m, 4999);
    assert_string_equal(noted, "aWb");
    manual_advance(&m, 5001);
    assert_string_equal(noted, "aWbTc");
    fiber_queue_wake_all(&queue);
    assert_true(fiber_queue_is_empty(&queue));
    manual_advance(&m, 9000);
    assert_string_equal(noted, "aWbTcd");
}

static void a_wake_beats_a_timeout_of_the_same_turn(void **state) {
    (void)state;
    fiber_queue_init(&queue);
    fiber_start(&m.env, wait_until_5000, "a");
    manual_settle(&m);
    m.now_ns = 5000;
    assert_true(fiber_queue_wake_one(&queue));
    manual_settle(&m);
    assert_string_equal(noted, "Wa");
}

/* ---- groups ---- */

static struct fiber_group group;

static void member(void *arg) {
    fiber_sleep_until(*(uint64_t *)arg);
    fiber_group_done(&group, *(uint64_t *)arg == 3000   ? ERR_IO
                             : *(uint64_t *)arg == 4000 ? ERR_TIMEOUT
                                                        : OK);
}

static void wait_for_group(void *arg) {
    (void)arg;
    static uint64_t at_ns[] = {4000, 3000, 2000};
    group = FIBER_GROUP_INIT;
    assert_int_equal(fiber_group_wait(&group), OK); /* nothing pending: at once */
    for (int i = 0; i < 3; i++) {
        fiber_group_add(&group);
        fiber_start(&m.env, member, &at_ns[i]);
    }
    assert_int_equal(fiber_group_wait(&group), ERR_IO); /* the first error */
    assert_int_equal(env_now_ns(&m.env), 4000);
    note("g");
}

static void groups_wait_for_all_and_keep_the_first_error(void **state) {
    (void)state;
    fiber_start(&m.env, wait_for_group, NULL);
    manual_advance(&m, 3500);
    assert_string_equal(noted, "");
    manual_advance(&m, 5000);
    assert_string_equal(noted, "g");
}

/* ---- locks ---- */

static struct fiber_lock lock;

static void lock_note_sleep(void *arg) {
    fiber_lock_take(&lock);
    note(arg);
    fiber_sleep_until(env_now_ns(&m.env) + 100);
    note(arg);
    fiber_lock_release(&lock);
    fiber_lock_take(&lock); /* goes behind those who wait */
    note("+");
    note(arg);
    fiber_lock_release(&lock);
}

static void locks_are_fair(void **state) {
    (void)state;
    fiber_lock_init(&lock);
    fiber_start(&m.env, lock_note_sleep, "a");
    fiber_start(&m.env, lock_note_sleep, "b");
    fiber_start(&m.env, lock_note_sleep, "c");
    manual_advance(&m, 100000);
    assert_string_equal(noted, "aabbcc+a+b+c");
    assert_null(lock.holder);
}

/* ---- slices ---- */

static void long_job(void *arg) {
    (void)arg;
    assert_false(fiber_pace());
    m.now_ns += 999999;
    assert_false(fiber_pace());
    m.now_ns += 1;
    note("l");
    assert_true(fiber_pace());
    note("l");
    assert_false(fiber_pace());
}

static void pace_yields_after_a_slice(void **state) {
    (void)state;
    fiber_start(&m.env, long_job, NULL);
    fiber_start(&m.env, note_and_yield, "o");
    manual_settle(&m);
    assert_string_equal(noted, "lolo");
}

/* ---- stacks ---- */

static void deep(void *arg) {
    volatile char frame[48 << 10];
    for (size_t i = 0; i < sizeof(frame); i += 512) {
        frame[i] = (char)i;
    }
    fiber_yield();
    for (size_t i = 0; i < sizeof(frame); i += 512) {
        assert_int_equal(frame[i], (char)i);
    }
    (*(uint32_t *)arg)++;
}

static void many_fibers_keep_their_stacks_apart(void **state) {
    (void)state;
    uint32_t finished = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 50; i++) {
            fiber_start(&m.env, deep, &finished);
        }
        manual_settle(&m);
    }
    assert_int_equal(finished, 1000);
}

static double float_work(double x) {
    for (int i = 0; i < 10; i++) {
        x = x * 1.5 + 1;
        if (fiber_self() != NULL) {
            fiber_yield();
        }
    }
    return x;
}

static void float_fiber(void *arg) {
    double *x = arg;
    *x = float_work(*x);
}

static void floating_point_survives_switches(void **state) {
    (void)state;
    double a = 1, b = 2;
    double a_expected = float_work(a), b_expected = float_work(b);
    fiber_start(&m.env, float_fiber, &a);
    fiber_start(&m.env, float_fiber, &b);
    manual_settle(&m);
    assert_true(a == a_expected && b == b_expected);
}

/* ---- a power cut ---- */

static void hold_memory_and_wait(void *arg) {
    volatile char frame[256];
    memset((void *)frame, 1, sizeof(frame));
    struct fiber_queue *q = MEM_NEW(struct fiber_queue);
    fiber_queue_init(q);
    note(arg);
    (void)fiber_queue_wait_until(q, 5000);
    note("!");
}

static void dropped_fibers_never_run_again(void **state) {
    (void)state;
    for (int round = 0; round < 100; round++) {
        noted_count = 0;
        struct mem_scope scope;
        mem_scope_init(&scope);
        struct mem_scope *previous = mem_scope_enter(&scope);
        m.now_ns = 1000;
        fiber_start(&m.env, hold_memory_and_wait, "a");
        fiber_start(&m.env, hold_memory_and_wait, "b");
        fiber_start(&m.env, note_and_yield, "c");
        env_turn(&m.env); /* c stands in the ready queue now, a and b at timers */
        fiber_start(&m.env, note_and_yield, "d");
        assert_string_equal(noted, "abc");
        if (round % 2 == 0) {
            fibers_drop(&m.env);
            mem_scope_enter(previous);
            mem_scope_drop(&scope);
        } else {
            mem_scope_enter(previous);
            mem_scope_drop(&scope);
            env_reset(&m.env);
        }
        manual_advance(&m, 10000);
        assert_string_equal(noted, "abc");
    }
    noted_count = 0;
    fiber_start(&m.env, note_and_yield, "z");
    manual_settle(&m);
    assert_string_equal(noted, "zz");
}

static void dropping_keeps_other_tasks(void **state) {
    (void)state;
    struct manual_env other;
    manual_init(&other);
    fiber_start(&other.env, note_and_yield, "o");
    fiber_start(&m.env, note_and_yield, "a");
    env_turn(&other.env);
    env_turn(&m.env);
    fibers_drop(&m.env);
    fiber_start(&m.env, note_and_yield, "b"); /* the queue's end is where it should be */
    manual_settle(&m);
    manual_settle(&other);
    assert_string_equal(noted, "oabbo");
    env_done(&other.env);
}

/* ---- calls from other threads ---- */

static atomic_uint callers_done;

static void increment_slowly(void *arg) {
    uint32_t *value = arg;
    uint32_t old = *value;
    fiber_yield();
    *value = old + 1;
}

static void *caller_thread(void *arg) {
    (void)arg;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t value = i;
        fiber_call(&m.env, increment_slowly, &value);
        assert_int_equal(value, i + 1);
    }
    atomic_fetch_add(&callers_done, 1);
    return NULL;
}

static void threads_call_fibers(void **state) {
    (void)state;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, caller_thread, NULL), 0);
    }
    while (atomic_load(&callers_done) < 3) {
        if (!env_turn(&m.env)) {
            sched_yield();
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

#define FIBER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        FIBER_TEST(fibers_start_from_the_loop_in_order),
        FIBER_TEST(a_wake_before_the_park_is_remembered_once),
        FIBER_TEST(a_wake_does_not_end_another_wait),
        FIBER_TEST(queues_wake_first_come_first_served),
        FIBER_TEST(a_wake_beats_a_timeout_of_the_same_turn),
        FIBER_TEST(groups_wait_for_all_and_keep_the_first_error),
        FIBER_TEST(locks_are_fair),
        FIBER_TEST(pace_yields_after_a_slice),
        FIBER_TEST(many_fibers_keep_their_stacks_apart),
        FIBER_TEST(floating_point_survives_switches),
        FIBER_TEST(dropped_fibers_never_run_again),
        FIBER_TEST(dropping_keeps_other_tasks),
        FIBER_TEST(threads_call_fibers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
