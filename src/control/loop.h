// SPDX-License-Identifier: MPL-2.0
/* An event loop of the real environment on a thread of its own. */
#ifndef HOLDFAST_CONTROL_LOOP_H
#define HOLDFAST_CONTROL_LOOP_H

#include <pthread.h>
#include <stdbool.h>

#include "env/env.h"

struct loop {
    struct env *env;
    pthread_t thread;
    bool running; /* as the owner sees it: started and not stopped */
    struct env_task stop_task;
};

/* `name` is what the thread is called in ps and perf (15 characters count). */
HF_MUST_CHECK int loop_start(struct loop *loop, const char *name, const char *state_dir,
                             struct errmsg *reterr);

/* Stops and joins the thread and frees the environment; not from the loop itself. Harmless on a
 * loop that does not run. */
void loop_stop(struct loop *loop);
/* Its two halves, for loops that post to each other: the thread; then the environment. */
void loop_end(struct loop *loop);
void loop_free(struct loop *loop);

#endif
