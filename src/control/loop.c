// SPDX-License-Identifier: MPL-2.0
#include "control/loop.h"

#include "base/assert.h"
#include "base/list.h"
#include "env/linux/linux.h"

/* Longer than an initiator that waits for each answer takes to come back with the next command. */
enum { SPIN_NS = 100 * NS_PER_US };

static void *loop_run(void *arg) {
    struct loop *loop = arg;
    env_run(loop->env);
    return NULL;
}

static void loop_stop_run(struct env_task *task) {
    struct loop *loop = CONTAINER_OF(task, struct loop, stop_task);
    env_stop(loop->env);
}

int loop_start(struct loop *loop, const char *name, const char *state_dir, struct errmsg *reterr) {
    const struct env_linux_options options = {.state_dir = state_dir, .spin_ns = SPIN_NS};
    int error = env_linux_new(&options, &loop->env, reterr);
    if (error != OK) {
        return error;
    }
    loop->stop_task.run = loop_stop_run;
    int errnum = pthread_create(&loop->thread, NULL, loop_run, loop);
    if (errnum != 0) {
        env_linux_free(loop->env);
        loop->env = NULL;
        return errmsg_set(reterr, error_from_errno(errnum), "cannot start a thread for %s", name);
    }
    (void)pthread_setname_np(loop->thread, name);
    loop->running = true;
    return OK;
}

void loop_end(struct loop *loop) {
    if (!loop->running) {
        return;
    }
    ASSERT(!pthread_equal(pthread_self(), loop->thread));
    env_post(loop->env, &loop->stop_task);
    ASSERT(pthread_join(loop->thread, NULL) == 0);
    loop->running = false;
}

void loop_free(struct loop *loop) {
    env_linux_free(loop->env);
    loop->env = NULL;
}

void loop_stop(struct loop *loop) {
    loop_end(loop);
    loop_free(loop);
}
