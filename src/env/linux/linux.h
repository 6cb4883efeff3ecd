// SPDX-License-Identifier: MPL-2.0
/* The real environment: Linux. One `struct env` a thread that runs a loop. */
#ifndef HOLDFAST_ENV_LINUX_LINUX_H
#define HOLDFAST_ENV_LINUX_LINUX_H

#include "env/env.h"

enum env_linux_ring {
    ENV_LINUX_RING_AUTO, /* io_uring where the kernel lets us, else threads */
    ENV_LINUX_RING_ON,   /* io_uring or ERR_UNSUPPORTED */
    ENV_LINUX_RING_OFF,  /* epoll and worker threads */
};

/* Zero fields take the defaults in brackets. */
struct env_linux_options {
    enum env_linux_ring ring;
    uint32_t queue_depth;  /* submission queue entries, one turn's batch [512] */
    uint32_t disk_workers; /* threads a disk, where they do its I/O [16] */
    const char *state_dir; /* ["/var/lib/holdfast"] */
    uint64_t
        spin_ns; /* look for work this long before sleeping, if the last wait was shorter [0] */
};

/* ERR_UNSUPPORTED, ERR_LIMIT (no file descriptors left). `options` may be NULL. May be called by
 * any thread; env_run() must then always be called by the same one. */
HF_MUST_CHECK int env_linux_new(const struct env_linux_options *options, struct env **ret_env,
                                struct errmsg *reterr);
/* After env_run() has returned, with streams and disks closed. Where an I/O is still outstanding (a
 * hung disk at the end of the process) the environment is left as it is, because the kernel may
 * still write to it. NULL is allowed. */
void env_linux_free(struct env *env);

bool env_linux_has_ring(const struct env *env);

/* Forgets the content of a memory disk that nobody has open: ERR_NOT_FOUND, ERR_BUSY. */
HF_MUST_CHECK int env_linux_memory_disk_drop(const char *name);

#endif
