// SPDX-License-Identifier: MPL-2.0
/* An open file or block device, with the threads that may block on it.
 *
 * Anything that can hang with the device (a blocking I/O, a discard, a look at the path, even the
 * close) is done by a thread that belongs to this handle alone, never by the loop and never by a
 * thread that other disks need. So a disk that hangs costs its own threads and nothing else.
 *
 * Opening is done by the loop's own thread, but what it asks of the file system by way of an I/O is
 * asked by a thread as well, and not waited for long: a disk that hangs is found out by its next
 * I/O, which has a deadline.
 *
 * The handle is counted: the disk, each worker and a running probe hold one reference; the last one
 * closes the descriptor. When that is the disk's, a thread is made to do it. Until the closing is
 * done the file's lock or the device's claim may still be held, so opening waits a little while
 * closings are under way. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "env/linux/internal.h"

enum {
    UNIT_BYTES = 4096,
    THREAD_STACK_BYTES = 256 << 10,
    PROBE_PATIENCE_MS = 20,
    CLOSE_PATIENCE_MS = 500,
    QUESTION_PATIENCE_S = 2,
};

struct fd_handle {
    atomic_uint refs;
    int fd;
    bool is_block;
    bool can_punch;
    enum disk_way way;
    char path[256];
    uint64_t size_bytes;
    uint64_t end_bytes;
    dev_t device, rdev;
    ino_t inode;
    uint32_t threads_max;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work;
    struct env_io *first;
    struct env_io **end;
    uint32_t threads, idle, queued;
    bool is_stopping;
    pthread_cond_t probed;
    bool probe_is_running;
    struct errmsg probe_result; /* of the last one that came back */
};

static atomic_uint closings;

/* ---- threads ---- */

static bool thread_start(void *(*run)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    bool started = pthread_create(&thread, &attr, run, arg) == 0;
    (void)pthread_attr_destroy(&attr);
    return started;
}

/* ---- questions that may hang with the disk ---- */

struct question {
    bool (*ask)(int fd, uint64_t bytes);
    int fd;
    uint64_t bytes;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t answered;
    bool answer, is_answered, is_given_up;
};

static void question_free(struct question *q) {
    (void)close(q->fd);
    (void)pthread_cond_destroy(&q->answered);
    (void)pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

static void *asker(void *arg) {
    struct question *q = arg;
    bool answer = q->ask(q->fd, q->bytes);
    (void)pthread_mutex_lock(&q->lock);
    q->answer = answer;
    q->is_answered = true;
    bool given_up = q->is_given_up;
    (void)pthread_cond_signal(&q->answered);
    (void)pthread_mutex_unlock(&q->lock);
    if (given_up) {
        question_free(q);
    }
    return NULL;
}

/* False also when no answer comes. */
static bool ask_patiently(bool (*ask)(int fd, uint64_t bytes), int fd, uint64_t bytes) {
    struct question *q = MEM_NEW(struct question);
    pthread_condattr_t attr;
    struct timespec until;
    *q = (struct question){.ask = ask, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .bytes = bytes};
    ASSERT(pthread_condattr_init(&attr) == 0 &&
           pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
           pthread_mutex_init(&q->lock, NULL) == 0 && pthread_cond_init(&q->answered, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
    if (q->fd < 0 || !thread_start(asker, q)) {
        question_free(q);
        return false;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += QUESTION_PATIENCE_S;
    (void)pthread_mutex_lock(&q->lock);
    while (!q->is_answered && pthread_cond_timedwait(&q->answered, &q->lock, &until) == 0) {
    }
    bool answered = q->is_answered, answer = answered && q->answer;
    q->is_given_up = !answered;
    (void)pthread_mutex_unlock(&q->lock);
    if (answered) {
        question_free(q);
    }
    return answer;
}

static void sleep_ms(long ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * NS_PER_MS};
    (void)nanosleep(&ts, NULL);
}

/* ---- opening ---- */

static int open_error(const char *path, int errnum, struct errmsg *reterr) {
    switch (errnum) {
    case EBUSY:
    case EWOULDBLOCK:
        return errmsg_set(reterr, ERR_BUSY,
                          "%s is in use: another program, a mount or an array holds it", path);
    case ENOENT:
    case ENOTDIR:
        return errmsg_set(reterr, ERR_NOT_FOUND, "%s does not exist", path);
    case EACCES:
    case EPERM:
        return errmsg_set(reterr, ERR_PERMISSION, "no permission to open %s", path);
    default:
        return errmsg_set(reterr, error_from_errno(errnum), "cannot open %s: %s", path,
                          strerror(errnum));
    }
}

/* Whether O_DIRECT really works here: some file systems take the flag and refuse the I/O. */
static bool direct_is_refused(int fd, uint64_t bytes) {
    (void)bytes;
    void *page = aligned_alloc(UNIT_BYTES, UNIT_BYTES);
    bool refused = page != NULL && pread(fd, page, UNIT_BYTES, 0) < 0 && errno == EINVAL;
    free(page);
    return refused;
}

/* The descriptor, or -errno. */
static int open_and_claim(const char *path, const struct env_disk_options *options, bool is_block) {
    int flags = (options->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY;
    flags |= options->exclusive && is_block ? O_EXCL : 0;
    int fd = open(path, flags | O_DIRECT);
    if (fd < 0 && errno == EINVAL) {
        fd = open(path, flags);
    }
    if (fd < 0) {
        return -errno;
    }
    if (options->exclusive && !is_block && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int errnum = errno;
        (void)close(fd);
        return -errnum;
    }
    return fd;
}

static int open_patiently(const char *path, const struct env_disk_options *options, bool is_block) {
    /* Looked at before the attempt: what ends in between makes the next attempt succeed. */
    bool may_free = atomic_load(&closings) > 0;
    int fd = open_and_claim(path, options, is_block);
    for (int ms = 0; ms < CLOSE_PATIENCE_MS && (fd == -EBUSY || fd == -EWOULDBLOCK) && may_free;
         ms++) {
        sleep_ms(1);
        may_free = atomic_load(&closings) > 0;
        fd = open_and_claim(path, options, is_block);
    }
    return fd;
}

/* What is known of file systems. Others wait without saying so: in FUSE, whoever submits a write
 * stands still for as long as a hole is being punched in the same file, which in one that hangs is
 * for ever. tmpfs refuses RWF_NOWAIT, but all it does is to copy memory, for which
 * changing threads costs more than the copy. */
static enum disk_way file_way(int fd) {
    static const struct {
        uint32_t magic;
        enum disk_way way;
    } known[] = {{EXT4_SUPER_MAGIC, WAY_RING_NOWAIT},
                 {XFS_SUPER_MAGIC, WAY_RING_NOWAIT},
                 {BTRFS_SUPER_MAGIC, WAY_RING_NOWAIT},
                 {TMPFS_MAGIC, WAY_LOOP}};
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0) {
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            if ((uint32_t)fs.f_type == known[i].magic) {
                return known[i].way;
            }
        }
    }
    return WAY_THREADS;
}

/* Beyond the end of the file a hole changes nothing, but tells whether there are any. */
static bool holes_are_there(int fd, uint64_t bytes) {
    off_t beyond = (off_t)((bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES);
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, beyond, UNIT_BYTES) == 0;
}

static int learn(struct fd_handle *h, const struct stat *st, const struct env_disk_options *options,
                 struct errmsg *reterr) {
    h->is_block = S_ISBLK(st->st_mode);
    h->device = st->st_dev;
    h->rdev = st->st_rdev;
    h->inode = st->st_ino;
    h->size_bytes = (uint64_t)st->st_size;
    h->way = h->is_block ? WAY_RING : file_way(h->fd);
    if (h->is_block) {
        if (ioctl(h->fd, BLKGETSIZE64, &h->size_bytes) != 0) {
            return open_error(h->path, errno, reterr);
        }
    } else if (!options->read_only &&
               (uint64_t)st->st_blocks * 512 < h->size_bytes - h->size_bytes / 128) {
        /* A file that somebody allocated in full keeps what it has: holes would cost the file
         * system work twice, and the next write of the place an allocation, and with it a journal
         * commit. A sparse one gives back what is not used. (A pool never fills its disks to the
         * last percent.) */
        h->can_punch = ask_patiently(holes_are_there, h->fd, h->size_bytes);
    }
    return OK;
}

static int open_inside(struct fd_handle *h, const struct env_disk_options *options,
                       struct errmsg *reterr) {
    struct stat st;
    if (stat(h->path, &st) != 0) {
        return open_error(h->path, errno, reterr);
    }
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
        return errmsg_set(reterr, ERR_INVALID, "%s is neither a regular file nor a block device",
                          h->path);
    }
    bool is_block = S_ISBLK(st.st_mode);
    int fd = open_patiently(h->path, options, is_block);
    if (fd < 0) {
        return open_error(h->path, -fd, reterr);
    }
    h->fd = fd;
    /* Asked when the disk is ours, and once: of one that hangs and is busy, each attempt would have
     * to be waited for. */
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0 && ask_patiently(direct_is_refused, fd, 0) &&
        fcntl(fd, F_SETFL, flags & ~O_DIRECT) != 0) {
        return open_error(h->path, errno, reterr);
    }
    if (fstat(fd, &st) != 0) {
        return open_error(h->path, errno, reterr);
    }
    if (S_ISBLK(st.st_mode) != is_block || !(is_block || S_ISREG(st.st_mode))) {
        return errmsg_set(reterr, ERR_BUSY, "%s was replaced while it was opened: try again",
                          h->path);
    }
    return learn(h, &st, options, reterr);
}

int handle_open(const char *path, const struct env_disk_options *options, uint32_t workers,
                struct fd_handle **ret_handle, struct errmsg *reterr) {
    struct fd_handle *h = MEM_NEW(struct fd_handle);
    (void)snprintf(h->path, sizeof(h->path), "%s", path);
    h->fd = -1;
    h->threads_max = workers;
    h->end = &h->first;
    int error = open_inside(h, options, reterr);
    if (error != OK) {
        if (h->fd >= 0) {
            (void)close(h->fd);
        }
        mem_free(h);
        return error;
    }
    atomic_init(&h->refs, 1);
    pthread_condattr_t attr;
    ASSERT(pthread_condattr_init(&attr) == 0 &&
           pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
           pthread_mutex_init(&h->lock, NULL) == 0 && pthread_cond_init(&h->work, &attr) == 0 &&
           pthread_cond_init(&h->probed, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
    *ret_handle = h;
    return OK;
}

int handle_fd(const struct fd_handle *h) {
    return h->fd;
}

bool handle_is_block(const struct fd_handle *h) {
    return h->is_block;
}

bool handle_can_punch(const struct fd_handle *h) {
    return h->can_punch;
}

enum disk_way handle_way(const struct fd_handle *h) {
    return h->way;
}

uint64_t handle_size_bytes(const struct fd_handle *h) {
    return h->size_bytes;
}

uint64_t handle_device(const struct fd_handle *h) {
    return h->is_block ? h->rdev : h->device;
}

void handle_set_end(struct fd_handle *h, uint64_t end_bytes) {
    h->end_bytes = end_bytes;
}

/* ---- closing ---- */

static void handle_destroy(struct fd_handle *h) {
    (void)close(h->fd);
    (void)pthread_cond_destroy(&h->work);
    (void)pthread_cond_destroy(&h->probed);
    (void)pthread_mutex_destroy(&h->lock);
    mem_free(h);
    atomic_fetch_sub(&closings, 1);
}

static void *closer(void *arg) {
    handle_destroy(arg);
    return NULL;
}

/* Of a thread that may block. */
static void handle_unref(struct fd_handle *h) {
    if (atomic_fetch_sub(&h->refs, 1) == 1) {
        handle_destroy(h);
    }
}

void handle_release(struct fd_handle *h) {
    atomic_fetch_add(&closings, 1);
    (void)pthread_mutex_lock(&h->lock);
    ASSERT(h->first == NULL);
    h->is_stopping = true;
    (void)pthread_cond_broadcast(&h->work);
    (void)pthread_mutex_unlock(&h->lock);
    if (atomic_fetch_sub(&h->refs, 1) == 1 && !thread_start(closer, h)) {
        handle_destroy(h); /* no thread to be had: better late than leaked */
    }
}

/* ---- blocking I/O ---- */

int64_t handle_perform(struct fd_handle *h, struct env_io *io) {
    uint64_t offset_bytes = linux_io_of(io)->disk->window_bytes + io->offset_bytes;
    ssize_t rc = -1;
    do {
        switch (io->op) {
        case ENV_IO_READ:
            rc = preadv(h->fd, io->iov, (int)io->iov_count, (off_t)offset_bytes);
            break;
        case ENV_IO_WRITE:
            rc = pwritev2(h->fd, io->iov, (int)io->iov_count, (off_t)offset_bytes,
                          io->durable ? RWF_DSYNC : 0);
            break;
        case ENV_IO_FLUSH:
            rc = fdatasync(h->fd);
            break;
        case ENV_IO_DISCARD:
            if (h->is_block) {
                uint64_t range[2] = {offset_bytes, io->length_bytes};
                rc = ioctl(h->fd, BLKDISCARD, range);
            } else {
                rc = fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               (off_t)offset_bytes, (off_t)io->length_bytes);
            }
            break;
        }
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : rc;
}

static void worked(struct env_task *task) {
    struct linux_io *lio = CONTAINER_OF(task, struct linux_io, task);
    linux_io_finish(env_io_of(lio), *(int64_t *)(void *)(lio + 1));
}
_Static_assert(sizeof(struct linux_io) + sizeof(int64_t) <= sizeof(((struct env_io *)0)->backend),
               "the result of a worker fits behind");

static void work_on(struct fd_handle *h, struct env_io *io) {
    struct linux_io *lio = linux_io_of(io);
    struct linux_env *l = linux_disk_env(lio->disk);
    *(int64_t *)(void *)(lio + 1) = handle_perform(h, io);
    lio->task.run = worked;
    atomic_fetch_add(&l->posters, 1);
    env_post(&l->env, &lio->task);
    atomic_fetch_sub(&l->posters, 1);
}

static void *worker(void *arg) {
    struct fd_handle *h = arg;
    (void)pthread_mutex_lock(&h->lock);
    for (;;) {
        while (h->first == NULL && !h->is_stopping) {
            h->idle++;
            (void)pthread_cond_wait(&h->work, &h->lock);
            h->idle--;
        }
        struct env_io *io = h->first;
        if (io == NULL) {
            break;
        }
        h->queued--;
        h->first = io->backend_next;
        if (h->first == NULL) {
            h->end = &h->first;
        }
        (void)pthread_mutex_unlock(&h->lock);
        work_on(h, io);
        (void)pthread_mutex_lock(&h->lock);
    }
    h->threads--;
    (void)pthread_mutex_unlock(&h->lock);
    handle_unref(h);
    return NULL;
}

void handle_work(struct fd_handle *h, struct env_io *io) {
    io->backend_next = NULL;
    (void)pthread_mutex_lock(&h->lock);
    if (h->queued >= h->idle && h->threads < h->threads_max) {
        h->threads++;
        atomic_fetch_add(&h->refs, 1);
        if (!thread_start(worker, h)) {
            h->threads--;
            atomic_fetch_sub(&h->refs, 1);
        }
    }
    bool has_worker = h->threads > 0;
    if (has_worker) {
        h->queued++;
        *h->end = io;
        h->end = &io->backend_next;
        (void)pthread_cond_signal(&h->work);
    }
    (void)pthread_mutex_unlock(&h->lock);
    if (!has_worker) {
        linux_io_fail(io, EIO); /* no threads to be had at all */
    }
}

/* ---- probing ---- */

static void look(struct fd_handle *h, struct errmsg *ret_result) {
    struct stat at_path, opened;
    if (stat(h->path, &at_path) != 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ENXIO || errno == ENODEV ||
            errno == ENOTCONN) {
            (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s is gone: %s", h->path, strerror(errno));
        }
        return; /* other errors say nothing about the disk */
    }
    if (h->is_block) {
        uint64_t size_bytes = 0;
        if (!S_ISBLK(at_path.st_mode) || at_path.st_rdev != h->rdev) {
            (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s is another device now", h->path);
        } else if (ioctl(h->fd, BLKGETSIZE64, &size_bytes) != 0 || size_bytes < h->end_bytes) {
            (void)errmsg_set(ret_result, ERR_DISK_GONE,
                             "%s: the device has left, or became smaller", h->path);
        }
        return;
    }
    if (fstat(h->fd, &opened) != 0) {
        if (errno == ESTALE || errno == ENOTCONN) {
            (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s is gone: %s", h->path, strerror(errno));
        }
        return;
    }
    if (opened.st_nlink == 0) {
        (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s was deleted", h->path);
    } else if (at_path.st_dev != h->device || at_path.st_ino != h->inode) {
        (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s was replaced by another file", h->path);
    } else if ((uint64_t)opened.st_size < h->end_bytes) {
        (void)errmsg_set(ret_result, ERR_DISK_GONE, "%s was truncated to %llu bytes", h->path,
                         (unsigned long long)opened.st_size);
    }
}

static void *prober(void *arg) {
    struct fd_handle *h = arg;
    struct errmsg result = {0};
    look(h, &result);
    (void)pthread_mutex_lock(&h->lock);
    h->probe_result = result;
    h->probe_is_running = false;
    (void)pthread_cond_signal(&h->probed);
    (void)pthread_mutex_unlock(&h->lock);
    handle_unref(h);
    return NULL;
}

/* Even a stat() can hang with what is below it, so a thread looks. It mostly answers at once; where
 * it does not, the answer is for the next probe, and this one says what the last one knew. */
int handle_probe(struct fd_handle *h, struct errmsg *reterr) {
    (void)pthread_mutex_lock(&h->lock);
    if (!h->probe_is_running) {
        atomic_fetch_add(&h->refs, 1);
        h->probe_is_running = thread_start(prober, h);
        if (!h->probe_is_running) {
            atomic_fetch_sub(&h->refs, 1);
        }
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PROBE_PATIENCE_MS * NS_PER_MS;
        until.tv_sec += until.tv_nsec / (long)NS_PER_S;
        until.tv_nsec %= (long)NS_PER_S;
        while (h->probe_is_running &&
               pthread_cond_timedwait(&h->probed, &h->lock, &until) != ETIMEDOUT) {
        }
    }
    struct errmsg result = h->probe_result;
    (void)pthread_mutex_unlock(&h->lock);
    return result.code == OK ? OK : errmsg_set(reterr, result.code, "%s", result.text);
}
