// SPDX-License-Identifier: MPL-2.0
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/rng.h"

struct unflushed {
    struct list link;
    uint64_t offset;
    uint64_t bytes;
    uint8_t *data; /* NULL: a discard */
};

static struct file files[FILES_MAX];
static unsigned file_count;

/* ---- the table ---- */

int store_file(int folder, const char *name, uint64_t cache_limit_bytes, struct file **ret_file) {
    struct stat there, ours;
    if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno;
    }
    if (!S_ISREG(there.st_mode) || strlen(name) >= sizeof(files[0].name)) {
        return EPERM;
    }
    for (unsigned i = 0; i < file_count; i++) {
        if (strcmp(files[i].name, name) == 0 && fstat(files[i].fd, &ours) == 0 &&
            ours.st_ino == there.st_ino) {
            *ret_file = &files[i];
            return 0;
        }
    }
    if (file_count == FILES_MAX) {
        return ENFILE;
    }
    struct file *file = &files[file_count];
    *file =
        (struct file){.ino = file_count + FILES_FIRST_INO, .cache_limit_bytes = cache_limit_bytes};
    file->fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file->fd < 0) {
        return errno;
    }
    memcpy(file->name, name, strlen(name) + 1);
    list_init(&file->writes);
    file_count++;
    *ret_file = file;
    return 0;
}

struct file *store_by_ino(uint64_t ino) {
    return ino >= FILES_FIRST_INO && ino - FILES_FIRST_INO < file_count
               ? &files[ino - FILES_FIRST_INO]
               : NULL;
}

struct file *store_next(struct file *after) {
    struct file *next = after ? after + 1 : files;
    while (next < files + file_count && next->name[0] == '\0') {
        next++;
    }
    return next < files + file_count ? next : NULL;
}

void store_forget_name(struct file *file) {
    file->name[0] = '\0';
}

/* ---- the list of unflushed writes ---- */

static void unflushed_free(struct file *file, struct unflushed *w) {
    list_remove(&w->link);
    file->cached_bytes -= w->data ? w->bytes : 0;
    free(w->data);
    free(w);
}

static int unflushed_insert(struct file *file, struct list *before, uint64_t offset, uint64_t bytes,
                            const uint8_t *data) {
    struct unflushed *w = calloc(1, sizeof(*w));
    if (!w) {
        return ENOMEM;
    }
    w->offset = offset;
    w->bytes = bytes;
    if (data) {
        w->data = malloc(bytes);
        if (!w->data) {
            free(w);
            return ENOMEM;
        }
        memcpy(w->data, data, bytes);
        file->cached_bytes += bytes;
    }
    list_insert_before(before, &w->link);
    return 0;
}

/* Takes [offset, offset + bytes) out of every unflushed write. */
static int cut(struct file *file, uint64_t offset, uint64_t bytes) {
    uint64_t end = offset + bytes;
    LIST_FOR_EACH_SAFE(it, &file->writes) {
        struct unflushed *w = CONTAINER_OF(it, struct unflushed, link);
        uint64_t w_end = w->offset + w->bytes;
        if (w_end <= offset || w->offset >= end) {
            continue;
        }
        int error = 0;
        if (w->offset < offset) {
            error = unflushed_insert(file, it, w->offset, offset - w->offset, w->data);
        }
        if (!error && w_end > end) {
            error = unflushed_insert(file, it, end, w_end - end,
                                     w->data ? w->data + (end - w->offset) : NULL);
        }
        if (error) {
            return error;
        }
        unflushed_free(file, w);
    }
    return 0;
}

static int backing_write(const struct file *file, uint64_t offset, const uint8_t *data,
                         uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(file->fd, data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

/* Applies a part of an unflushed write to the backing file. */
static int apply(const struct file *file, const struct unflushed *w, uint64_t from,
                 uint64_t bytes) {
    if (w->data) {
        return backing_write(file, w->offset + from, w->data + from, bytes);
    }
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return fallocate(file->fd, mode, (off_t)(w->offset + from), (off_t)bytes) == 0 ? 0 : errno;
}

int file_write_back(struct file *file) {
    LIST_FOR_EACH_SAFE(it, &file->writes) {
        struct unflushed *w = CONTAINER_OF(it, struct unflushed, link);
        int error = apply(file, w, 0, w->bytes);
        if (error) {
            return error;
        }
        unflushed_free(file, w);
    }
    return 0;
}

/* ---- what programs ask for ---- */

uint64_t file_size(const struct file *file) {
    struct stat st;
    uint64_t size = fstat(file->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    LIST_FOR_EACH(it, &file->writes) {
        const struct unflushed *w = CONTAINER_OF(it, struct unflushed, link);
        if (w->data) {
            size = MAX(size, w->offset + w->bytes);
        }
    }
    return size;
}

int file_read(const struct file *file, uint64_t offset, uint8_t *ret_data, size_t bytes,
              size_t *ret_bytes) {
    uint64_t size = file_size(file);
    bytes = offset >= size ? 0 : (size_t)MIN((uint64_t)bytes, size - offset);
    memset(ret_data, 0, bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(file->fd, ret_data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n == 0) {
            break; /* the rest exists only in unflushed writes */
        }
        done += n > 0 ? (size_t)n : 0;
    }
    LIST_FOR_EACH(it, &file->writes) {
        const struct unflushed *w = CONTAINER_OF(it, struct unflushed, link);
        uint64_t from = MAX(w->offset, offset);
        uint64_t to = MIN(w->offset + w->bytes, offset + bytes);
        if (from < to && w->data) {
            memcpy(ret_data + (from - offset), w->data + (from - w->offset), to - from);
        } else if (from < to) {
            memset(ret_data + (from - offset), 0, to - from);
        }
    }
    *ret_bytes = bytes;
    return 0;
}

int file_write(struct file *file, uint64_t offset, const uint8_t *data, size_t bytes,
               bool durable) {
    if (durable && !file->ignore_flush) {
        int error = cut(file, offset, bytes);
        return error ? error : backing_write(file, offset, data, bytes);
    }
    int error = unflushed_insert(file, &file->writes, offset, bytes, data);
    /* A disk's cache is bounded: the oldest writes go to the platter by themselves. */
    while (!error && file->cached_bytes > file->cache_limit_bytes) {
        struct unflushed *oldest = CONTAINER_OF(file->writes.next, struct unflushed, link);
        error = apply(file, oldest, 0, oldest->bytes);
        if (!error) {
            unflushed_free(file, oldest);
        }
    }
    return error;
}

int file_discard(struct file *file, uint64_t offset, uint64_t bytes) {
    return unflushed_insert(file, &file->writes, offset, bytes, NULL);
}

int file_flush(struct file *file) {
    return file->ignore_flush ? 0 : file_write_back(file);
}

int file_truncate(struct file *file, uint64_t size) {
    int error = cut(file, size, UINT64_MAX - size);
    return error ? error : ftruncate(file->fd, (off_t)size) == 0 ? 0 : errno;
}

int file_flip(struct file *file, uint64_t offset, uint8_t mask) {
    uint8_t byte = 0;
    size_t got = 0;
    int error = file_read(file, offset, &byte, 1, &got);
    if (error || got != 1) {
        return error ? error : EINVAL;
    }
    byte ^= mask;
    return file_write(file, offset, &byte, 1, true);
}

/* ---- the power cut ---- */

int file_drop(struct file *file, uint64_t seed, unsigned keep_pct, bool by_sector) {
    struct rng rng;
    rng_init(&rng, seed);
    int error = 0;
    LIST_FOR_EACH_SAFE(it, &file->writes) {
        struct unflushed *w = CONTAINER_OF(it, struct unflushed, link);
        uint64_t piece = by_sector && w->data ? SECTOR : w->bytes;
        bool lost = false;
        for (uint64_t from = 0; from < w->bytes && !error; from += piece) {
            if (rng_chance(&rng, keep_pct, 100)) {
                error = apply(file, w, from, MIN(piece, w->bytes - from));
            } else {
                lost = true;
            }
        }
        file->dropped_writes += lost;
        file->kept_writes += !lost;
        unflushed_free(file, w);
    }
    return error;
}
