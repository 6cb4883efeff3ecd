// SPDX-License-Identifier: MPL-2.0
/* Disks in plain memory: "mem:NAME:SIZE", for benchmarks and tests of the real loop.
 *
 * The content belongs to the process, by name, so that a pool can be closed and imported again. It
 * is mapped, so pages exist only once written. Each transfer is one copy, made by the loop in the
 * turn after the submission. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/linux/internal.h"

enum {
    NAME_MAX_BYTES = 63,
    DISCARD_MAP_BYTES = 64 << 10, /* from here on giving pages back is cheaper than clearing */
};

struct memory_object {
    struct list link;
    char name[NAME_MAX_BYTES + 1];
    uint8_t *data;
    uint64_t size_bytes;
    uint32_t opens;
    bool is_exclusive;
};

static struct {
    pthread_mutex_t lock;
    struct list objects;
} registry = {PTHREAD_MUTEX_INITIALIZER, {&registry.objects, &registry.objects}};

static struct memory_object *find(const char *name) {
    LIST_FOR_EACH(it, &registry.objects) {
        struct memory_object *object = CONTAINER_OF(it, struct memory_object, link);
        if (strcmp(object->name, name) == 0) {
            return object;
        }
    }
    return NULL;
}

static int parse(const char *path, char *ret_name, uint64_t *ret_bytes, struct errmsg *reterr) {
    const char *name = path + strlen("mem:");
    const char *colon = strchr(name, ':');
    if (colon == NULL || colon == name || colon - name > NAME_MAX_BYTES ||
        size_parse(colon + 1, ret_bytes) != OK || *ret_bytes < 4096 || *ret_bytes % 4096 != 0 ||
        *ret_bytes > SIZE_MAX / 2) {
        return errmsg_set(reterr, ERR_INVALID,
                          "%s: a memory disk is written mem:NAME:SIZE, the size in whole units of "
                          "4 KiB",
                          path);
    }
    (void)snprintf(ret_name, NAME_MAX_BYTES + 1, "%.*s", (int)(colon - name), name);
    return OK;
}

static struct memory_object *create(const char *name, uint64_t size_bytes) {
    void *data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(data, size_bytes, MADV_HUGEPAGE); /* fewer TLB misses; a hint */
    struct memory_object *object = MEM_NEW(struct memory_object);
    (void)snprintf(object->name, sizeof(object->name), "%s", name);
    object->data = data;
    object->size_bytes = size_bytes;
    list_append(&registry.objects, &object->link);
    return object;
}

static int open_locked(const char *path, const char *name, uint64_t size_bytes, bool exclusive,
                       struct memory_object **ret_object, struct errmsg *reterr) {
    struct memory_object *object = find(name);
    if (object == NULL) {
        object = create(name, size_bytes);
        if (object == NULL) {
            return errmsg_set(reterr, ERR_NO_MEMORY, "%s: no memory for it: %s", path,
                              strerror(errno));
        }
    }
    if (object->size_bytes != size_bytes) {
        return errmsg_set(reterr, ERR_INVALID, "%s exists with another size", path);
    }
    if (object->is_exclusive || (exclusive && object->opens > 0)) {
        return errmsg_set(reterr, ERR_BUSY, "%s is in use", path);
    }
    object->opens++;
    object->is_exclusive = exclusive;
    *ret_object = object;
    return OK;
}

int memory_open(const char *path, bool exclusive, struct memory_object **ret_object,
                struct errmsg *reterr) {
    char name[NAME_MAX_BYTES + 1];
    uint64_t size_bytes = 0;
    int error = parse(path, name, &size_bytes, reterr);
    if (error == OK) {
        (void)pthread_mutex_lock(&registry.lock);
        error = open_locked(path, name, size_bytes, exclusive, ret_object, reterr);
        (void)pthread_mutex_unlock(&registry.lock);
    }
    return error;
}

uint64_t memory_size_bytes(const struct memory_object *object) {
    return object->size_bytes;
}

void memory_release(struct memory_object *object) {
    (void)pthread_mutex_lock(&registry.lock);
    object->opens--;
    object->is_exclusive = false; /* it was, only if this was the one */
    (void)pthread_mutex_unlock(&registry.lock);
}

int env_linux_memory_disk_drop(const char *name) {
    (void)pthread_mutex_lock(&registry.lock);
    struct memory_object *object = find(name);
    int error = object == NULL ? ERR_NOT_FOUND : object->opens > 0 ? ERR_BUSY : OK;
    if (error == OK) {
        list_remove(&object->link);
        (void)munmap(object->data, object->size_bytes);
        mem_free(object);
    }
    (void)pthread_mutex_unlock(&registry.lock);
    return error;
}

/* ---- I/O ---- */

void memory_perform(struct memory_object *object, uint64_t offset_bytes, struct env_io *io) {
    uint8_t *at = object->data + offset_bytes;
    switch (io->op) {
    case ENV_IO_READ:
        for (uint32_t i = 0; i < io->iov_count; i++) {
            memcpy(io->iov[i].iov_base, at, io->iov[i].iov_len);
            at += io->iov[i].iov_len;
        }
        break;
    case ENV_IO_WRITE:
        for (uint32_t i = 0; i < io->iov_count; i++) {
            memcpy(at, io->iov[i].iov_base, io->iov[i].iov_len);
            at += io->iov[i].iov_len;
        }
        break;
    case ENV_IO_FLUSH:
        break;
    case ENV_IO_DISCARD:
        if (io->length_bytes < DISCARD_MAP_BYTES ||
            madvise(at, io->length_bytes, MADV_DONTNEED) != 0) {
            memset(at, 0, io->length_bytes);
        }
        break;
    }
}
