// SPDX-License-Identifier: MPL-2.0
/* The loop by itself: order of tasks, timers, posting from threads. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "env_manual.h"

struct note_task {
    struct env_task task;
    struct env *env;
    char letter;
    struct env_task *defers;
};

static char noted[256];
static size_t noted_count;

static void note(char letter) {
    noted[noted_count++] = letter;
    noted[noted_count] = 0;
}

static void note_run(struct env_task *task) {
    struct note_task *n = CONTAINER_OF(task, struct note_task, task);
    note(n->letter);
    if (n->defers != NULL) {
        env_defer(n->env, n->defers);
    }
}

static void tasks_run_in_order_and_in_batches(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    noted_count = 0;
    struct note_task d = {{NULL, note_run}, &m.env, 'd', NULL};
    struct note_task a = {{NULL, note_run}, &m.env, 'a', &d.task};
    struct note_task b = {{NULL, note_run}, &m.env, 'b', NULL};
    struct note_task c = {{NULL, note_run}, &m.env, 'c', NULL};
    env_defer(&m.env, &a.task);
    env_post(&m.env, &b.task);
    env_post(&m.env, &c.task);
    assert_int_equal(atomic_load(&m.wakes), 1); /* the second found the first one waiting */
    assert_true(env_is_ready(&m.env));
    assert_int_equal(noted_count, 0);
    assert_true(env_turn(&m.env));
    assert_string_equal(noted, "abc"); /* d was deferred meanwhile: next turn */
    assert_true(env_is_ready(&m.env));
    assert_true(env_turn(&m.env));
    assert_string_equal(noted, "abcd");
    assert_false(env_is_ready(&m.env));
    assert_false(env_turn(&m.env));
    env_done(&m.env);
}

struct note_timer {
    struct env_timer timer;
    struct env *env;
    char letter;
    bool again;
};

static void note_fire(struct env_timer *timer) {
    struct note_timer *n = CONTAINER_OF(timer, struct note_timer, timer);
    note(n->letter);
    if (n->again) {
        n->again = false;
        env_timer_arm(n->env, timer, 0);
    }
}

static void timers_fire_by_deadline_then_by_arming(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    noted_count = 0;
    struct note_timer t[6];
    static const uint64_t at_ns[6] = {3000, 2000, 3000, 1500, 3000, 9000};
    for (size_t i = 0; i < ARRAY_COUNT(t); i++) {
        t[i] = (struct note_timer){{.fire = note_fire}, &m.env, (char)('a' + i), false};
        env_timer_arm(&m.env, &t[i].timer, at_ns[i]);
    }
    env_timer_arm(&m.env, &t[0].timer, 3000); /* again: now after c and e */
    env_timer_cancel(&m.env, &t[5].timer);
    env_timer_cancel(&m.env, &t[5].timer);
    assert_int_equal(env_next_timer_ns(&m.env), 1500);
    manual_settle(&m);
    assert_int_equal(noted_count, 0);
    manual_advance(&m, 2500);
    assert_string_equal(noted, "db");
    manual_advance(&m, 10000);
    assert_string_equal(noted, "dbcea");
    assert_int_equal(env_next_timer_ns(&m.env), UINT64_MAX);
    env_done(&m.env);
}

static void a_timer_in_the_past_does_not_overtake(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    m.now_ns = 5000;
    noted_count = 0;
    struct note_timer a = {{.fire = note_fire}, &m.env, 'a', true};
    struct note_timer b = {{.fire = note_fire}, &m.env, 'b', false};
    env_timer_arm(&m.env, &a.timer, 0);
    env_timer_arm(&m.env, &b.timer, 5000);
    assert_true(env_turn(&m.env));
    assert_string_equal(noted, "ab"); /* a armed itself again, which must wait a turn */
    assert_true(env_turn(&m.env));
    assert_string_equal(noted, "aba");
    assert_false(env_turn(&m.env));
    env_done(&m.env);
}

enum { MANY = 500 };

static struct env_timer many[MANY];
static uint64_t many_last_ns, many_last_sequence, many_fired;

static void many_fire(struct env_timer *timer) {
    assert_true(timer->at_ns > many_last_ns ||
                (timer->at_ns == many_last_ns && timer->sequence > many_last_sequence));
    assert_int_equal(timer->heap_index, 0);
    many_last_ns = timer->at_ns;
    many_last_sequence = timer->sequence;
    many_fired++;
}

static void many_timers_in_a_random_order(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    struct rng rng;
    rng_init(&rng, 7);
    bool armed[MANY] = {false};
    for (size_t i = 0; i < MANY; i++) {
        many[i] = (struct env_timer){.fire = many_fire};
    }
    for (int step = 0; step < 20000; step++) {
        size_t i = rng_below(&rng, MANY);
        armed[i] = rng_chance(&rng, 2, 3);
        if (armed[i]) {
            env_timer_arm(&m.env, &many[i], 2000 + rng_below(&rng, 300));
        } else {
            env_timer_cancel(&m.env, &many[i]);
        }
    }
    size_t expected = 0;
    for (size_t i = 0; i < MANY; i++) {
        expected += armed[i];
        assert_int_equal(armed[i], many[i].heap_index != 0);
    }
    manual_advance(&m, 10000);
    assert_int_equal(many_fired, expected);
    env_done(&m.env);
}

static void reset_forgets_everything(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    noted_count = 0;
    struct mem_scope scope;
    mem_scope_init(&scope);
    struct mem_scope *previous = mem_scope_enter(&scope);
    struct note_task *a = MEM_NEW(struct note_task), *b = MEM_NEW(struct note_task);
    *a = (struct note_task){{NULL, note_run}, &m.env, 'a', NULL};
    *b = *a;
    struct note_timer *t = MEM_NEW(struct note_timer);
    *t = (struct note_timer){{.fire = note_fire}, &m.env, 't', false};
    env_defer(&m.env, &a->task);
    env_post(&m.env, &b->task);
    env_timer_arm(&m.env, &t->timer, 1);
    mem_scope_enter(previous);
    mem_scope_drop(&scope);
    env_reset(&m.env);
    manual_advance(&m, 5000);
    assert_int_equal(noted_count, 0);
    struct note_timer u = {{.fire = note_fire}, &m.env, 'u', false};
    env_timer_arm(&m.env, &u.timer, 6000);
    manual_advance(&m, 7000);
    assert_string_equal(noted, "u"); /* the heap itself outlives the scope */
    env_done(&m.env);
}

/* ---- many posters ---- */

enum { POSTERS = 4, POSTS = 5000 };

struct post_task {
    struct env_task task;
    uint32_t poster, number;
};

struct poster {
    pthread_t thread;
    struct env *env;
    struct post_task tasks[POSTS];
};

static uint32_t post_next[POSTERS];
static uint32_t post_count;

static void post_run(struct env_task *task) {
    struct post_task *p = CONTAINER_OF(task, struct post_task, task);
    assert_int_equal(p->number, post_next[p->poster]);
    post_next[p->poster]++;
    post_count++;
}

static void *post_thread(void *arg) {
    struct poster *poster = arg;
    for (uint32_t i = 0; i < POSTS; i++) {
        env_post(poster->env, &poster->tasks[i].task);
    }
    return NULL;
}

static void posters_keep_their_order(void **state) {
    (void)state;
    struct manual_env m;
    manual_init(&m);
    struct poster *posters = MEM_NEW_ARRAY(struct poster, POSTERS);
    for (uint32_t p = 0; p < POSTERS; p++) {
        posters[p].env = &m.env;
        for (uint32_t i = 0; i < POSTS; i++) {
            posters[p].tasks[i] = (struct post_task){{NULL, post_run}, p, i};
        }
        assert_int_equal(pthread_create(&posters[p].thread, NULL, post_thread, &posters[p]), 0);
    }
    while (post_count < POSTERS * POSTS) {
        if (!env_turn(&m.env)) {
            sched_yield();
        }
    }
    for (uint32_t p = 0; p < POSTERS; p++) {
        assert_int_equal(pthread_join(posters[p].thread, NULL), 0);
        assert_int_equal(post_next[p], POSTS);
    }
    assert_true(atomic_load(&m.wakes) >= 1);
    mem_free(posters);
    env_done(&m.env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_in_order_and_in_batches),
        cmocka_unit_test(timers_fire_by_deadline_then_by_arming),
        cmocka_unit_test(a_timer_in_the_past_does_not_overtake),
        cmocka_unit_test(many_timers_in_a_random_order),
        cmocka_unit_test(reset_forgets_everything),
        cmocka_unit_test(posters_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
