// SPDX-License-Identifier: MPL-2.0
/* The smallest environment: a clock that stands still until it is told, and no disks. */
#ifndef HOLDFAST_TESTS_ENV_MANUAL_H
#define HOLDFAST_TESTS_ENV_MANUAL_H

#include "base/list.h"
#include "env/backend.h"

struct manual_env {
    struct env env;
    uint64_t now_ns;
    atomic_uint wakes;
};

static inline uint64_t manual_now(struct env *env) {
    return CONTAINER_OF(env, struct manual_env, env)->now_ns;
}

static inline void manual_wake(struct env *env) {
    atomic_fetch_add(&CONTAINER_OF(env, struct manual_env, env)->wakes, 1);
}

static const struct env_ops manual_ops = {.now = manual_now, .wake = manual_wake};

static inline void manual_init(struct manual_env *manual) {
    manual->now_ns = 1000;
    atomic_init(&manual->wakes, 0);
    env_init(&manual->env, &manual_ops);
}

/* Everything that can happen now. */
static inline void manual_settle(struct manual_env *manual) {
    while (env_turn(&manual->env)) {
    }
}

/* Lets time pass, stopping at every timer on the way. */
static inline void manual_advance(struct manual_env *manual, uint64_t to_ns) {
    manual_settle(manual);
    while (env_next_timer_ns(&manual->env) <= to_ns) {
        manual->now_ns = env_next_timer_ns(&manual->env);
        manual_settle(manual);
    }
    manual->now_ns = to_ns;
}

#endif
