// SPDX-License-Identifier: MPL-2.0
#include "fake_env.h"

#include <string.h>

static uint64_t fake_now(struct env *env) {
    return CONTAINER_OF(env, struct fake_env, env)->now_ns;
}

static void fake_random(struct env *env, void *ret_bytes, size_t bytes) {
    struct fake_env *fake = CONTAINER_OF(env, struct fake_env, env);
    memset(ret_bytes, 0x5a + (int)fake->random_calls++, bytes); /* never twice in a row the same */
}

static void fake_wake(struct env *env) {
    (void)env;
}

static const struct env_ops fake_ops = {
    .now = fake_now,
    .wall = fake_now,
    .random = fake_random,
    .wake = fake_wake,
};

void fake_env_init(struct fake_env *fake) {
    env_init(&fake->env, &fake_ops);
    fake->now_ns = NS_PER_S;
}

void fake_env_done(struct fake_env *fake) {
    env_done(&fake->env);
}

void fake_env_settle(struct fake_env *fake) {
    while (env_turn(&fake->env)) {
    }
}

void fake_env_advance(struct fake_env *fake, uint64_t ns) {
    uint64_t until = fake->now_ns + ns;
    fake_env_settle(fake);
    while (env_next_timer_ns(&fake->env) <= until) {
        uint64_t next = env_next_timer_ns(&fake->env);
        fake->now_ns = next > fake->now_ns ? next : fake->now_ns;
        fake_env_settle(fake);
    }
    fake->now_ns = until;
    fake_env_settle(fake);
}
