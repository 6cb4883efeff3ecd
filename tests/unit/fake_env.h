// SPDX-License-Identifier: MPL-2.0
/* An environment for unit tests: the real loop under a clock that jumps to the next timer, so that
 * nothing waits and every run is the same. No disks, no state records. */
#ifndef HOLDFAST_TESTS_FAKE_ENV_H
#define HOLDFAST_TESTS_FAKE_ENV_H

#include "env/backend.h"

struct fake_env {
    struct env env;
    uint64_t now_ns;
    uint32_t random_calls;
};

void fake_env_init(struct fake_env *fake);
void fake_env_done(struct fake_env *fake);
/* Runs what is ready, without letting time pass. */
void fake_env_settle(struct fake_env *fake);
/* Lets this much time pass, timers included. */
void fake_env_advance(struct fake_env *fake, uint64_t ns);

#endif
