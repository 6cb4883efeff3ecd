// SPDX-License-Identifier: MPL-2.0
/* faultfs BACKING MOUNT [CACHE_BYTES] : shows the regular files of the folder BACKING in MOUNT,
 * each as a disk with a volatile write cache (store.h) that fails on command (control.h). Runs in
 * the foreground until it is unmounted or gets SIGTERM; then every unflushed write is written.
 *
 * Files are opened with direct I/O: every read and write of a program arrives here, O_DIRECT or
 * not, and nothing stays in the kernel's page cache. The kernel passes O_DSYNC and RWF_DSYNC on in
 * the flags of the write request; they make a durable write. Closing a file flushes nothing.
 *
 * One thread serves requests. One that must wait (delayed, hung) is set aside with a copy of its
 * data and answered by the ticker thread, so a hung file does not hold up the others. A process
 * that is killed while its request hangs sends an interrupt: the request is then answered with EIO.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"
#include "control.h"
#include "store.h"

enum { CONTROL_INO = 1 << 20, TICK_NS = 5 * 1000 * 1000, CACHE_BYTES_DEFAULT = 32 << 20 };

struct request {
    struct list link;
    fuse_req_t req;
    struct file *file;
    enum file_op op;
    bool durable, hangs;
    atomic_bool interrupted;
    uint64_t offset, bytes, due_ns;
    uint8_t data[]; /* of a write */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around store, faults and waiting */
static struct list waiting;
static int backing_fd;
static uint64_t cache_bytes = CACHE_BYTES_DEFAULT;
static atomic_bool stopping;

static uint64_t now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- requests to files: carried out now, later or never ---- */

static void carry_out_read(struct request *r) {
    uint8_t *data = malloc(r->bytes ? r->bytes : 1);
    size_t got = 0;
    int error = data ? file_read(r->file, r->offset, data, r->bytes, &got) : ENOMEM;
    if (error) {
        (void)fuse_reply_err(r->req, error);
    } else {
        (void)fuse_reply_buf(r->req, (const char *)data, got);
    }
    free(data);
}

/* Answers the request and frees it. `error`: instead of doing it. Under the lock. */
static void answer(struct request *r, int error) {
    fuse_req_interrupt_func(r->req, NULL, NULL); /* from here on nobody looks at r */
    switch (error ? OP_COUNT : r->op) {
    case OP_READ:
        carry_out_read(r);
        break;
    case OP_WRITE:
        error = file_write(r->file, r->offset, r->data, r->bytes, r->durable);
        if (error) {
            (void)fuse_reply_err(r->req, error);
        } else {
            (void)fuse_reply_write(r->req, r->bytes);
        }
        break;
    case OP_FLUSH:
        (void)fuse_reply_err(r->req, file_flush(r->file));
        break;
    case OP_DISCARD:
        (void)fuse_reply_err(r->req, file_discard(r->file, r->offset, r->bytes));
        break;
    default:
        (void)fuse_reply_err(r->req, error);
        break;
    }
    free(r);
}

static void note_interrupt(fuse_req_t req, void *data) {
    (void)req;
    atomic_store(&((struct request *)data)->interrupted, true);
}

static void set_aside(struct request *r, const struct fault *fault) {
    r->hangs = fault->kind == FAULT_HANG;
    r->due_ns = now_ns() + fault->delay_ms * 1000000;
    list_append(&waiting, &r->link);
    fuse_req_interrupt_func(r->req, note_interrupt, r);
}

static void arrive(fuse_req_t req, fuse_ino_t ino, enum file_op op, uint64_t offset, uint64_t bytes,
                   const void *data, bool durable) {
    struct request *r = calloc(1, sizeof(*r) + (data ? bytes : 0));
    (void)pthread_mutex_lock(&lock);
    struct file *file = store_by_ino(ino);
    if (!r || !file) {
        (void)pthread_mutex_unlock(&lock);
        free(r);
        (void)fuse_reply_err(req, r ? ENOENT : ENOMEM);
        return;
    }
    r->req = req, r->file = file, r->op = op, r->durable = durable;
    r->offset = offset, r->bytes = bytes;
    if (data) {
        memcpy(r->data, data, bytes);
    }
    file->counts[op]++;
    file->durable_writes += durable;
    struct fault *fault = &file->faults[op];
    enum fault_kind kind = fault->count > 0 ? fault->kind : FAULT_NONE;
    if (kind != FAULT_NONE) {
        file->faulted++;
        fault->count -= fault->count != UINT64_MAX;
    }
    if (kind == FAULT_DELAY || kind == FAULT_HANG) {
        set_aside(r, fault);
    } else {
        answer(r, kind == FAULT_FAIL ? EIO : 0);
    }
    (void)pthread_mutex_unlock(&lock);
}

static void *ticker(void *unused) {
    (void)unused;
    while (!atomic_load(&stopping)) {
        struct timespec tick = {.tv_nsec = TICK_NS};
        (void)nanosleep(&tick, NULL);
        (void)pthread_mutex_lock(&lock);
        uint64_t now = now_ns();
        LIST_FOR_EACH_SAFE(it, &waiting) {
            struct request *r = CONTAINER_OF(it, struct request, link);
            bool interrupted = atomic_load(&r->interrupted);
            if (interrupted || (!r->hangs && r->due_ns <= now)) {
                list_remove(it);
                answer(r, interrupted ? EIO : 0);
            }
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* For control.c, and at the end (file NULL: all). Under the lock. */
static void release(struct file *file, int error) {
    LIST_FOR_EACH_SAFE(it, &waiting) {
        struct request *r = CONTAINER_OF(it, struct request, link);
        if (!file || r->file == file) {
            list_remove(it);
            answer(r, error);
        }
    }
}

static void fs_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
                    struct fuse_file_info *info) {
    (void)info;
    if (ino != CONTROL_INO) {
        arrive(req, ino, OP_READ, (uint64_t)offset, bytes, NULL, false);
        return;
    }
    (void)pthread_mutex_lock(&lock);
    char *text = control_status();
    (void)pthread_mutex_unlock(&lock);
    size_t length = text ? strlen(text) : 0, from = MIN((size_t)offset, length);
    (void)fuse_reply_buf(req, text ? text + from : NULL, MIN(bytes, length - from));
    free(text);
}

static void fs_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t bytes, off_t offset,
                     struct fuse_file_info *info) {
    if (ino != CONTROL_INO) {
        /* O_SYNC contains O_DSYNC. */
        arrive(req, ino, OP_WRITE, (uint64_t)offset, bytes, data, info->flags & O_DSYNC);
        return;
    }
    const struct control_hooks hooks = {.release = release};
    (void)pthread_mutex_lock(&lock);
    int error = control_run(data, bytes, &hooks);
    (void)pthread_mutex_unlock(&lock);
    if (error) {
        (void)fuse_reply_err(req, error);
    } else {
        (void)fuse_reply_write(req, bytes);
    }
}

static void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info) {
    (void)datasync, (void)info;
    arrive(req, ino, OP_FLUSH, 0, 0, NULL, false);
}

static void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes,
                         struct fuse_file_info *info) {
    (void)info;
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
        arrive(req, ino, OP_DISCARD, (uint64_t)offset, (uint64_t)bytes, NULL, false);
        return;
    }
    struct file *file = store_by_ino(ino);
    int error = !file                                           ? ENOENT
                : mode != 0 && mode != FALLOC_FL_KEEP_SIZE      ? EOPNOTSUPP
                : fallocate(file->fd, mode, offset, bytes) != 0 ? errno
                                                                : 0;
    (void)fuse_reply_err(req, error);
}

/* ---- names and attributes: always at once ---- */

static int attributes(fuse_ino_t ino, struct stat *ret) {
    *ret = (struct stat){.st_ino = ino, .st_nlink = 1, .st_blksize = 4096};
    if (ino == FUSE_ROOT_ID) {
        ret->st_mode = S_IFDIR | 0755;
        ret->st_nlink = 2;
        return 0;
    }
    if (ino == CONTROL_INO) {
        ret->st_mode = S_IFREG | 0600;
        return 0;
    }
    struct file *file = store_by_ino(ino);
    if (!file || fstat(file->fd, ret) != 0) {
        return ENOENT;
    }
    ret->st_ino = ino;
    ret->st_size = (off_t)file_size(file);
    return 0;
}

static int entry_for(const char *name, struct fuse_entry_param *ret) {
    *ret = (struct fuse_entry_param){.ino = CONTROL_INO};
    if (strcmp(name, CONTROL_NAME) != 0) {
        struct file *file = NULL;
        int error = store_file(backing_fd, name, cache_bytes, &file);
        if (error) {
            return error;
        }
        ret->ino = file->ino;
    }
    return attributes(ret->ino, &ret->attr);
}

static void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    (void)parent;
    struct fuse_entry_param entry;
    (void)pthread_mutex_lock(&lock);
    int error = entry_for(name, &entry);
    (void)pthread_mutex_unlock(&lock);
    if (error) {
        (void)fuse_reply_err(req, error);
    } else {
        (void)fuse_reply_entry(req, &entry);
    }
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info) {
    (void)info;
    struct stat st;
    (void)pthread_mutex_lock(&lock);
    int error = attributes(ino, &st);
    (void)pthread_mutex_unlock(&lock);
    if (error) {
        (void)fuse_reply_err(req, error);
    } else {
        (void)fuse_reply_attr(req, &st, 0);
    }
}

static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *wanted, int which,
                       struct fuse_file_info *info) {
    struct file *file = store_by_ino(ino);
    if (file && (which & FUSE_SET_ATTR_SIZE)) {
        (void)pthread_mutex_lock(&lock);
        int error = file_truncate(file, (uint64_t)wanted->st_size);
        (void)pthread_mutex_unlock(&lock);
        if (error) {
            (void)fuse_reply_err(req, error);
            return;
        }
    }
    fs_getattr(req, ino, info); /* modes, owners and times do not matter to disks */
}

static void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info) {
    info->direct_io = 1;
    if (ino == CONTROL_INO || store_by_ino(ino)) {
        (void)fuse_reply_open(req, info);
    } else {
        (void)fuse_reply_err(req, ENOENT);
    }
}

static void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *info) {
    (void)parent;
    struct fuse_entry_param entry;
    int fd = openat(backing_fd, name, O_CREAT | O_RDWR | O_CLOEXEC | (info->flags & O_EXCL), mode);
    int error = fd < 0 ? errno : 0;
    (void)pthread_mutex_lock(&lock);
    error = error ? error : entry_for(name, &entry);
    (void)pthread_mutex_unlock(&lock);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (error) {
        (void)fuse_reply_err(req, error);
        return;
    }
    info->direct_io = 1;
    (void)fuse_reply_create(req, &entry, info);
}

static void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
    (void)parent;
    struct fuse_entry_param entry;
    (void)pthread_mutex_lock(&lock);
    int error = entry_for(name, &entry);
    if (!error && unlinkat(backing_fd, name, 0) != 0) {
        error = errno;
    }
    if (!error && entry.ino != CONTROL_INO) {
        store_forget_name(store_by_ino(entry.ino));
    }
    (void)pthread_mutex_unlock(&lock);
    (void)fuse_reply_err(req, error);
}

static void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
                       struct fuse_file_info *info) {
    (void)ino, (void)info;
    char *buffer = malloc(bytes);
    size_t used = 0;
    (void)pthread_mutex_lock(&lock);
    for (struct file *f = store_next(NULL); buffer && f; f = store_next(f)) {
        struct stat st = {.st_ino = f->ino, .st_mode = S_IFREG};
        off_t next = (off_t)(f->ino - FILES_FIRST_INO + 1);
        struct stat there;
        if (next <= offset || fstatat(backing_fd, f->name, &there, AT_SYMLINK_NOFOLLOW) != 0) {
            continue; /* listed, or moved away behind our back */
        }
        size_t need = fuse_add_direntry(req, buffer + used, bytes - used, f->name, &st, next);
        if (need > bytes - used) {
            break;
        }
        used += need;
    }
    (void)pthread_mutex_unlock(&lock);
    (void)fuse_reply_buf(req, buffer, used);
    free(buffer);
}

static void fs_statfs(fuse_req_t req, fuse_ino_t ino) {
    (void)ino;
    struct statvfs st;
    if (fstatvfs(backing_fd, &st) != 0) {
        (void)fuse_reply_err(req, errno);
    } else {
        (void)fuse_reply_statfs(req, &st);
    }
}

static void fs_init(void *unused, struct fuse_conn_info *connection) {
    (void)unused;
    /* Requests that hang count as background ones; they must not use up the mount's share. */
    connection->max_background = UINT16_MAX;
    connection->congestion_threshold = UINT16_MAX;
}

static const struct fuse_lowlevel_ops operations = {
    .init = fs_init,
    .lookup = fs_lookup,
    .getattr = fs_getattr,
    .setattr = fs_setattr,
    .open = fs_open,
    .create = fs_create,
    .read = fs_read,
    .write = fs_write,
    .fsync = fs_fsync,
    .fallocate = fs_fallocate,
    .unlink = fs_unlink,
    .readdir = fs_readdir,
    .statfs = fs_statfs,
};

/* Files that exist are known from the start, so that commands and readdir see them. */
static int take_stock(const char *folder) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        struct file *file = NULL;
        if (entries[i]->d_type == DT_REG) {
            (void)store_file(backing_fd, entries[i]->d_name, cache_bytes, &file);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free((void *)entries);
    }
    return count < 0 ? -1 : 0;
}

static int serve(struct fuse_session *session, const char *mount) {
    pthread_t ticker_thread;
    if (fuse_set_signal_handlers(session) != 0) {
        return 1;
    }
    if (fuse_session_mount(session, mount) != 0) {
        fuse_remove_signal_handlers(session);
        return 1;
    }
    int result = 1;
    if (pthread_create(&ticker_thread, NULL, ticker, NULL) == 0) {
        result = fuse_session_loop(session) < 0;
        atomic_store(&stopping, true);
        (void)pthread_join(ticker_thread, NULL);
        release(NULL, EIO);
    }
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    for (struct file *f = store_next(NULL); f; f = store_next(f)) {
        int error = file_write_back(f);
        if (error) {
            (void)fprintf(stderr, "faultfs: %s: %s\n", f->name, strerror(error));
            result = 1;
        }
    }
    return result;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) {
        (void)fprintf(stderr, "usage: faultfs BACKING MOUNT [CACHE_BYTES]\n");
        return 2;
    }
    if (argc == 4) {
        cache_bytes = strtoull(argv[3], NULL, 0);
    }
    list_init(&waiting);
    backing_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (backing_fd < 0 || take_stock(argv[1]) != 0) {
        perror(argv[1]);
        return 1;
    }
    char *options[] = {argv[0], "-ofsname=faultfs,default_permissions", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(2, options);
    struct fuse_session *session =
        fuse_session_new(&arguments, &operations, sizeof(operations), NULL);
    if (!session) {
        return 1;
    }
    int result = serve(session, argv[2]);
    fuse_session_destroy(session);
    return result;
}
