// SPDX-License-Identifier: MPL-2.0
/* hung-files MOUNT COUNT HUNG : lets f1..fHUNG of a faultfs hang, discards blocks of them through
 * the real environment, and writes to f1..fCOUNT. Fails unless the writes to all others come back
 * within five seconds: one disk's hanging I/O must not stand before another disk's, in the kernel
 * neither. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "env/linux/linux.h"

enum { PAGE_BYTES = 4096, FILES_MAX = 256 };

static struct env *env;
static struct file {
    struct env_disk *disk;
    struct env_io discard, write;
    struct iovec iov;
} files[FILES_MAX];
static unsigned count, hung, back, failed;

static void discarded(struct env_io *io) {
    (void)io;
}

static void wrote(struct env_io *io) {
    back++;
    failed += io->result != OK;
    if (back == count - hung) {
        env_stop(env);
    }
}

static void patience_ends(struct env_timer *timer) {
    (void)timer;
    env_stop(env);
}

static bool open_file(const char *mount, unsigned i) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/f%u", mount, i + 1);
    struct errmsg errmsg = {0};
    if (env_disk_open(env, path, &(struct env_disk_options){0}, &files[i].disk, &errmsg) != OK) {
        (void)fprintf(stderr, "hung-files: %s\n", errmsg.text);
        return false;
    }
    return true;
}

static bool hang(const char *mount, unsigned i) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/.faultfs", mount);
    FILE *control = fopen(path, "w");
    return control != NULL && fprintf(control, "hang f%u all\n", i + 1) > 0 && fclose(control) == 0;
}

static void start(unsigned i, void *page) {
    struct file *file = &files[i];
    file->iov = (struct iovec){page, PAGE_BYTES};
    file->write = (struct env_io){.op = ENV_IO_WRITE,
                                  .length_bytes = PAGE_BYTES,
                                  .iov = &file->iov,
                                  .iov_count = 1,
                                  .done = wrote};
    file->discard =
        (struct env_io){.op = ENV_IO_DISCARD, .length_bytes = PAGE_BYTES, .done = discarded};
    if (i < hung) {
        env_disk_submit(file->disk, &file->discard);
    }
    env_disk_submit(file->disk, &file->write);
}

int main(int argc, char **argv) {
    count = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
    hung = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
    if (count == 0 || count > FILES_MAX || hung >= count) {
        (void)fprintf(stderr, "usage: hung-files MOUNT COUNT HUNG\n");
        return 2;
    }
    struct errmsg errmsg = {0};
    if (env_linux_new(NULL, &env, &errmsg) != OK) {
        (void)fprintf(stderr, "hung-files: %s\n", errmsg.text);
        return 2;
    }
    void *page = mem_pages_new(PAGE_BYTES)->data;
    for (unsigned i = 0; i < count; i++) {
        if (!open_file(argv[1], i)) {
            return 2;
        }
    }
    for (unsigned i = 0; i < hung; i++) { /* now: opening a file that hangs hangs */
        if (!hang(argv[1], i)) {
            return 2;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        start(i, page);
    }
    struct env_timer patience = {.fire = patience_ends};
    env_timer_arm(env, &patience, env_now_ns(env) + 5 * NS_PER_S);
    env_run(env);
    printf("%u of %u writes came back, %u of them failed\n", back, count - hung, failed);
    return back == count - hung && failed == 0 ? 0 : 1; /* the hung ones end with the process */
}
