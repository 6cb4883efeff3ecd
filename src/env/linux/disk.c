// SPDX-License-Identifier: MPL-2.0
/* Disks of the real environment: which way an I/O goes, and how it comes back.
 *
 *     file or block device   the ring, or the disk's threads where there is no ring or the ring
 *                            would wait (enum disk_way)
 *     flushes, discards      always the disk's threads: they block
 *     memory, files of tmpfs copied by the loop itself
 *
 * Whichever way, linux_io_finish() is the end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/linux/internal.h"

enum { UNIT_BYTES = 4096, OWN_SHORT_BYTES = 64 << 10, OWN_TURN_BYTES = 256 << 10 };

/* ---- opening and closing ---- */

static int set_window(struct linux_disk *disk, const struct env_disk_options *options,
                      uint64_t whole_bytes, struct errmsg *reterr) {
    const char *path = disk->info.path;
    uint64_t length_bytes = options->length_bytes;
    if (length_bytes == 0 && options->offset_bytes < whole_bytes) {
        length_bytes = round_down(whole_bytes - options->offset_bytes, UNIT_BYTES);
    }
    if (length_bytes == 0 || !range_is_within(options->offset_bytes, length_bytes, whole_bytes)) {
        char size[32];
        size_format(whole_bytes, size, sizeof(size));
        return errmsg_set(reterr, ERR_INVALID, "%s is too small: it holds %s", path, size);
    }
    disk->window_bytes = options->offset_bytes;
    disk->info.size_bytes = length_bytes;
    return OK;
}

static int open_memory(struct linux_disk *disk, const struct env_disk_options *options,
                       struct errmsg *reterr) {
    int error = memory_open(disk->info.path, options->exclusive, &disk->memory, reterr);
    if (error != OK) {
        return error;
    }
    disk->info.kind = ENV_DISK_MEMORY;
    disk->info.discards = true;
    return set_window(disk, options, memory_size_bytes(disk->memory), reterr);
}

static int open_fd(struct linux_disk *disk, const struct env_disk_options *options,
                   struct errmsg *reterr) {
    int error = handle_open(disk->info.path, options, linux_disk_env(disk)->disk_workers,
                            &disk->handle, reterr);
    if (error != OK) {
        return error;
    }
    disk->fd = handle_fd(disk->handle);
    error = set_window(disk, options, handle_size_bytes(disk->handle), reterr);
    if (error != OK) {
        return error;
    }
    bool is_block = handle_is_block(disk->handle);
    disk->info.kind = is_block ? ENV_DISK_BLOCK : ENV_DISK_FILE;
    disk->way = handle_way(disk->handle);
    disk->info.discards = handle_can_punch(disk->handle);
    sysfs_describe(handle_device(disk->handle), is_block, &disk->info);
    handle_set_end(disk->handle, disk->window_bytes + disk->info.size_bytes);
    return OK;
}

static void disk_free(struct linux_disk *disk) {
    if (disk->handle != NULL) {
        handle_release(disk->handle);
    }
    if (disk->memory != NULL) {
        memory_release(disk->memory);
    }
    mem_free(disk);
}

int linux_disk_open(struct env *env, const char *path, const struct env_disk_options *options,
                    struct env_disk **ret_disk, struct errmsg *reterr) {
    struct linux_disk *disk = MEM_NEW(struct linux_disk);
    disk->disk.env = env;
    disk->fd = -1;
    int error = OK;
    if ((size_t)snprintf(disk->info.path, sizeof(disk->info.path), "%s", path) >=
        sizeof(disk->info.path)) {
        error = errmsg_set(reterr, ERR_INVALID, "this path of a disk is too long: %s", path);
    } else if (strncmp(path, "mem:", 4) == 0) {
        error = open_memory(disk, options, reterr);
    } else {
        error = open_fd(disk, options, reterr);
    }
    if (error != OK) {
        disk_free(disk);
        return error;
    }
    *ret_disk = &disk->disk;
    return OK;
}

void linux_disk_close(struct env_disk *base) {
    struct linux_disk *disk = linux_disk_of(base);
    ASSERT(!disk->is_closed);
    disk->is_closed = true;
    if (disk->outstanding == 0) {
        disk_free(disk);
    }
}

const struct env_disk_info *linux_disk_info(const struct env_disk *base) {
    return &CONTAINER_OF(base, const struct linux_disk, disk)->info;
}

int linux_disk_probe(struct env_disk *base, struct errmsg *reterr) {
    struct linux_disk *disk = linux_disk_of(base);
    return disk->handle != NULL ? handle_probe(disk->handle, reterr) : OK;
}

/* ---- I/O ---- */

static bool moves_data(const struct env_io *io) {
    return io->op == ENV_IO_READ || io->op == ENV_IO_WRITE;
}

/* ---- I/Os that the loop does itself ----
 *
 * To memory: each is a copy. A checkpoint hands over so many long ones at once that requests would
 * wait for all of them, 10 ms and more; so a turn does all that are short, whenever they came, and
 * then long ones until it has moved its share, at least one. */

static void own_defer(struct linux_env *l) {
    if (!l->own_task_is_queued) {
        l->own_task_is_queued = true;
        env_defer(&l->env, &l->own_task);
    }
}

static void own_submit(struct linux_env *l, struct env_io *io) {
    struct io_queue *queue = io->length_bytes <= OWN_SHORT_BYTES ? &l->own_short : &l->own_long;
    io->backend_next = NULL;
    *queue->end = io;
    queue->end = &io->backend_next;
    own_defer(l);
}

static struct env_io *queue_take(struct io_queue *queue) {
    struct env_io *io = queue->first;
    if (io != NULL) {
        queue->first = io->backend_next;
        if (queue->first == NULL) {
            queue->end = &queue->first;
        }
    }
    return io;
}

static void own_perform(struct env_io *io) {
    struct linux_disk *disk = linux_io_of(io)->disk;
    if (disk->memory != NULL) {
        memory_perform(disk->memory, disk->window_bytes + io->offset_bytes, io);
        linux_io_return(io, OK);
    } else {
        linux_io_finish(io, handle_perform(disk->handle, io));
    }
}

void linux_own_run(struct env_task *task) {
    struct linux_env *l = CONTAINER_OF(task, struct linux_env, own_task);
    struct io_queue now = l->own_short; /* what done() submits is for the next turn */
    l->own_task_is_queued = false;
    l->own_short.first = NULL;
    l->own_short.end = &l->own_short.first;
    struct env_io *io;
    while ((io = queue_take(&now)) != NULL) {
        own_perform(io);
    }
    for (uint64_t bytes = 0; bytes < OWN_TURN_BYTES && (io = queue_take(&l->own_long)) != NULL;) {
        bytes += io->length_bytes;
        own_perform(io);
    }
    if (l->own_long.first != NULL) {
        own_defer(l);
    }
}

void linux_disk_submit(struct env_disk *base, struct env_io *io) {
    struct linux_disk *disk = linux_disk_of(base);
    struct linux_env *l = linux_disk_env(disk);
    ASSERT(!disk->is_closed);
    struct linux_io *lio = linux_io_of(io);
    lio->disk = disk;
    disk->outstanding++;
    l->outstanding++;
    if (io->op != ENV_IO_FLUSH &&
        !range_is_within(io->offset_bytes, io->length_bytes, disk->info.size_bytes)) {
        linux_io_fail(io, EIO);
    } else if (io->op == ENV_IO_DISCARD && (!disk->info.discards || io->length_bytes == 0)) {
        linux_io_fail(io, 0); /* discards are hints: nothing to do is no failure */
    } else if (disk->memory != NULL || (disk->way == WAY_LOOP && moves_data(io))) {
        own_submit(l, io);
    } else if (l->has_ring && disk->way != WAY_THREADS && moves_data(io)) {
        ring_submit(l, io);
    } else {
        handle_work(disk->handle, io);
    }
}

static int error_of(int errnum) {
    switch (errnum) {
    case ENODEV:
    case ENXIO:
    case ESTALE:       /* NFS: the file is gone */
    case ENOTCONN:     /* FUSE: its server is gone */
    case ECONNABORTED: /* FUSE: aborted */
        return ERR_DISK_GONE;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ERR_NO_SPACE;
    default:
        return ERR_IO;
    }
}

void linux_io_return(struct env_io *io, int error) {
    struct linux_disk *disk = linux_io_of(io)->disk;
    struct linux_env *l = linux_disk_env(disk);
    io->result = error;
    io->done(io); /* may close the disk, so it is still counted */
    l->outstanding--;
    if (--disk->outstanding == 0 && disk->is_closed) {
        disk_free(disk);
    }
}

void linux_io_finish(struct env_io *io, int64_t result) {
    int error = OK;
    if (result < 0) {
        error = error_of((int)-result);
        if (io->op == ENV_IO_DISCARD && (result == -EOPNOTSUPP || result == -ENOSYS)) {
            error = OK;
        }
    } else if (moves_data(io) && (uint64_t)result != io->length_bytes) {
        error = ERR_IO; /* the end of a truncated file, or worse */
    }
    linux_io_return(io, error);
}

static void io_failed(struct env_task *task) {
    struct env_io *io = env_io_of(CONTAINER_OF(task, struct linux_io, task));
    linux_io_return(io, io->result);
}

void linux_io_fail(struct env_io *io, int errnum) {
    struct linux_io *lio = linux_io_of(io);
    io->result = errnum == 0 ? OK : error_of(errnum);
    lio->task.run = io_failed;
    env_defer(lio->disk->disk.env, &lio->task);
}
