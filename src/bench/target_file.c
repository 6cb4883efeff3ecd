// SPDX-License-Identifier: MPL-2.0
/* Local files and block devices: io_uring, past the page cache.
 *
 * A file that is made for the measurement has no name (O_TMPFILE, or unlinked as soon as it is
 * open), so nothing is left behind however the program ends. Queues for other threads are rings of
 * their own on the same open file. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/clock.h"
#include "bench/kinds.h"

struct file {
    int fd;
    struct io_uring ring;
    bool has_ring;
};

/* ---- opening ---- */

static int refuse(const char *what, struct errmsg *reterr) {
    return errmsg_set(reterr, error_from_errno(errno), "%s: %s", what, strerror(errno));
}

static int make_ring(struct file *file, struct errmsg *reterr) {
    int error = io_uring_queue_init(TARGET_DEPTH_MAX, &file->ring, IORING_SETUP_COOP_TASKRUN);
    if (error == -EINVAL) { /* before Linux 5.19 */
        error = io_uring_queue_init(TARGET_DEPTH_MAX, &file->ring, 0);
    }
    file->has_ring = error == 0;
    return error == 0 ? OK
                      : errmsg_set(reterr, error_from_errno(error),
                                   "io_uring is not to be had here (%s); a container or a sysctl "
                                   "may forbid it",
                                   strerror(-error));
}

static int open_direct(struct bench_target *target, const char *path, int flags,
                       struct errmsg *reterr) {
    struct file *file = target->own;
    bool writes = target->options->writes;
    file->fd = open(path, (writes ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC | flags, 0600);
    if (file->fd >= 0) {
        return OK;
    }
    switch (errno) {
    case EBUSY:
        return errmsg_set(reterr, ERR_BUSY,
                          "is in use: it, or a partition on it, is mounted or part of a RAID, LVM "
                          "or a pool; free it first");
    case EINVAL:
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "cannot be used past the page cache (O_DIRECT), and what is in memory is "
                          "not measured");
    case ENOENT:
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no such file, device or folder");
    case ENOSPC:
        return errmsg_set(reterr, ERR_NO_SPACE, "there is no space left on the file system");
    default:
        return refuse("cannot be opened", reterr);
    }
}

/* The smallest unit that O_DIRECT takes. */
static uint32_t direct_block(int fd) {
    struct mem_pages *pages = mem_pages_new(4096);
    bool fits = pread(fd, pages->data, 512, 512) >= 0 || errno != EINVAL;
    mem_pages_free(pages);
    return fits ? 512 : 4096;
}

static void read_model(struct bench_target *target, dev_t device) {
    static const char *const places[] = {"device/model", "../device/model"};
    for (size_t i = 0; i < ARRAY_COUNT(places) && target->name[0] == '\0'; i++) {
        char path[96];
        (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device),
                       places[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd >= 0 ? read(fd, target->name, sizeof(target->name) - 1) : 0;
        if (fd >= 0) {
            (void)close(fd);
        }
        length = MAX(length, 0);
        while (length > 0 && strchr(" \n", target->name[length - 1]) != NULL) {
            length--;
        }
        target->name[length] = '\0';
    }
}

static int open_device(struct bench_target *target, const struct stat *st, struct errmsg *reterr) {
    struct file *file = target->own;
    int sector = 0;
    /* Exclusive for writers only: reading a disk that is in use harms nobody. */
    int error =
        open_direct(target, target->options->address, target->options->writes ? O_EXCL : 0, reterr);
    if (error != OK) {
        return error;
    }
    if (ioctl(file->fd, BLKGETSIZE64, &target->size_bytes) != 0 ||
        ioctl(file->fd, BLKSSZGET, &sector) != 0) {
        return refuse("its size cannot be read", reterr);
    }
    target->kind = "disk";
    target->block_bytes = (uint32_t)sector;
    read_model(target, st->st_rdev);
    return OK;
}

static int open_existing(struct bench_target *target, const struct stat *st,
                         struct errmsg *reterr) {
    int error = open_direct(target, target->options->address, 0, reterr);
    if (error == OK) {
        target->is_file = true;
        target->size_bytes = (uint64_t)st->st_size;
        target->block_bytes = direct_block(((struct file *)target->own)->fd);
        target->size_bytes = round_down(target->size_bytes, target->block_bytes);
    }
    return error;
}

/* ---- files of our own ---- */

static int no_space(uint64_t wanted, uint64_t available, struct errmsg *reterr) {
    char want[24], have[24];
    size_format(wanted, want, sizeof(want));
    size_format(available, have, sizeof(have));
    return errmsg_set(reterr, ERR_NO_SPACE,
                      "%s are wanted and %s are free on the file system; give a smaller --span",
                      want, have);
}

static int give_size(struct bench_target *target, struct errmsg *reterr) {
    const struct bench_target_options *options = target->options;
    struct file *file = target->own;
    struct statvfs fs;
    if (fstatvfs(file->fd, &fs) != 0) {
        return refuse("its free space cannot be read", reterr);
    }
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t size = options->file_bytes;
    if (!options->file_bytes_wanted) {
        size = round_down(MIN(size, available / 2), 1 << 20);
    }
    if (size > available || size < 1 << 20) {
        return no_space(MAX(size, 1ull << 20), available, reterr);
    }
    /* Space that is taken now cannot be missing later. */
    if (fallocate(file->fd, 0, 0, (off_t)size) != 0 &&
        (errno != EOPNOTSUPP || ftruncate(file->fd, (off_t)size) != 0)) {
        return errno == ENOSPC ? no_space(size, available, reterr)
                               : refuse("a file in it cannot be given its size", reterr);
    }
    target->is_own_file = true;
    target->size_bytes = size;
    target->block_bytes = direct_block(file->fd);
    return OK;
}

static int open_own(struct bench_target *target, bool is_folder, struct errmsg *reterr) {
    const char *path = target->options->address;
    char name[4200];
    int error;
    if (!target->options->writes) {
        return errmsg_set(reterr, ERR_INVALID,
                          "has to hold a file for --read-only: one that is made now has nothing to "
                          "read");
    }
    if (is_folder) {
        error = open_direct(target, path, O_TMPFILE | O_EXCL, NULL);
        if (error == OK) {
            return give_size(target, reterr);
        }
        (void)snprintf(name, sizeof(name), "%s/.holdfast-bench.%d", path, (int)getpid());
        path = name;
    }
    error = open_direct(target, path, O_CREAT | O_EXCL, reterr);
    if (error != OK) {
        /* A file system without O_DIRECT makes the file before it refuses. */
        if (error == ERR_UNSUPPORTED) {
            (void)unlink(path);
        }
        return error;
    }
    (void)unlink(path);
    return give_size(target, reterr);
}

static int file_open(struct bench_target *target, struct errmsg *reterr) {
    const char *path = target->options->address;
    struct file *file = target->own = MEM_NEW(struct file);
    struct stat st;
    file->fd = -1;
    if (target->options->path_count > 0) {
        return errmsg_set(reterr, ERR_INVALID, "has one path; --path is for iSCSI");
    }
    int error;
    if (stat(path, &st) != 0) {
        error = errno == ENOENT && path[0] != '\0' && path[strlen(path) - 1] != '/'
                    ? open_own(target, false, reterr)
                    : refuse("cannot be used", reterr);
    } else if (S_ISBLK(st.st_mode)) {
        error = open_device(target, &st, reterr);
    } else if (S_ISREG(st.st_mode)) {
        error = open_existing(target, &st, reterr);
    } else if (S_ISDIR(st.st_mode)) {
        error = open_own(target, true, reterr);
    } else {
        error = errmsg_set(reterr, ERR_INVALID, "is neither a device, a file nor a folder");
    }
    return error == OK ? make_ring(file, reterr) : error;
}

static int file_join(struct bench_target *target, struct bench_target *first,
                     struct errmsg *reterr) {
    struct file *file = target->own = MEM_NEW(struct file);
    file->fd = dup(((struct file *)first->own)->fd);
    return file->fd >= 0 ? make_ring(file, reterr) : refuse("cannot be opened again", reterr);
}

/* ---- I/O ---- */

static int file_submit(struct bench_target *target, struct bench_io *io) {
    struct file *file = target->own;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&file->ring);
    if (sqe == NULL) {
        return ERR_LIMIT;
    }
    if (io->is_write) {
        io_uring_prep_write(sqe, file->fd, io->data, io->length, io->offset);
    } else {
        io_uring_prep_read(sqe, file->fd, io->data, io->length, io->offset);
    }
    io_uring_sqe_set_data(sqe, io);
    return OK;
}

static void complete(struct bench_io *io, int result) {
    if (result == (int)io->length) {
        bench_target_done(io, OK);
        return;
    }
    char where[24];
    size_format(io->offset, where, sizeof(where));
    int error = result < 0 ? error_from_errno(result) : ERR_IO;
    (void)bench_target_fail(io->target, error, "a %s at %s failed: %s",
                            io->is_write ? "write" : "read", where,
                            result < 0 ? strerror(-result) : "it ended early");
    bench_target_done(io, error);
}

static int file_service(struct bench_target *target, uint32_t wait_ms) {
    struct file *file = target->own;
    struct __kernel_timespec wait = {wait_ms / 1000, (long long)(wait_ms % 1000) * NS_PER_MS};
    struct io_uring_cqe *cqe;
    int error = io_uring_submit_and_wait_timeout(&file->ring, &cqe, 1, &wait, NULL);
    if (error < 0 && error != -ETIME && error != -EINTR && error != -EAGAIN && error != -EBUSY) {
        return bench_target_fail(target, error_from_errno(error), "io_uring failed: %s",
                                 strerror(-error));
    }
    while (io_uring_peek_cqe(&file->ring, &cqe) == 0) {
        struct bench_io *io = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&file->ring, cqe);
        complete(io, result);
    }
    return OK;
}

static int file_flush(struct bench_target *target) {
    if (fdatasync(((struct file *)target->own)->fd) == 0 || errno == EROFS || errno == EINVAL) {
        return OK;
    }
    return bench_target_fail(target, error_from_errno(errno),
                             "what was written cannot be flushed: %s", strerror(errno));
}

static void file_close(struct bench_target *target) {
    struct file *file = target->own;
    if (file == NULL) {
        return;
    }
    if (file->has_ring) {
        io_uring_queue_exit(&file->ring);
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    mem_free(file);
}

const struct bench_target_ops bench_file_ops = {.kind = "file",
                                                .open = file_open,
                                                .join = file_join,
                                                .submit = file_submit,
                                                .service = file_service,
                                                .flush = file_flush,
                                                .close = file_close};
