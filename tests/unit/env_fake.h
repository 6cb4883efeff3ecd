// SPDX-License-Identifier: MPL-2.0
/* A host with disks that do what a test tells them: answer after a delay, fail, never answer, tear
 * a write at a power cut. The media (struct fake_media) belong to the test, so that several hosts
 * can see the same disks one after the other or at once. */
#ifndef HOLDFAST_TESTS_ENV_FAKE_H
#define HOLDFAST_TESTS_ENV_FAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/rng.h"
#include "env/backend.h"
#include "env/fiber.h"

enum { FAKE_MEDIA_MAX = 16, FAKE_RECORDS_MAX = 8, FAKE_SECTOR = 512 };

struct fake_media {
    char name[64];
    uint8_t *bytes;
    uint64_t size_bytes;
    bool absent;                 /* cannot be opened */
    bool gone;                   /* env_disk_probe() says so */
    bool hang;                   /* I/Os are kept until it is cleared and fake_release() called */
    uint64_t delay_ns;           /* of every I/O */
    int fail_reads, fail_writes; /* error code of those; OK: none */
    uint64_t fail_read_at, fail_read_bytes; /* only this range fails when bytes != 0 */
    struct env_disk *exclusive;             /* who holds it */
    uint32_t opened;                        /* handles not yet freed */
};

struct fake_record {
    char name[96];
    uint8_t bytes[256];
    size_t length;
};

struct fake_world {
    struct fake_media media[FAKE_MEDIA_MAX];
    uint32_t media_count;
    uint64_t writes; /* ever submitted */
    /* A power cut during write number `cut_at` (from 1; 0: none): of it, those sectors reach the
     * media that `cut_keep` says; of what is submitted later, nothing happens. */
    uint64_t cut_at;
    bool cut;
    enum { KEEP_NONE, KEEP_PREFIX, KEEP_SOME, KEEP_ALL } cut_keep;
    struct rng rng;
};

struct fake_env {
    struct env env;
    struct fake_world *world;
    uint64_t now_ns;
    struct fake_record records[FAKE_RECORDS_MAX];
    uint32_t record_count;
    bool state_fails;
    struct rng rng;
    struct list ios;     /* struct fake_io: all that are outstanding */
    struct list handles; /* struct fake_disk: all that are open */
};

struct fake_disk {
    struct env_disk disk;
    struct list link;
    struct fake_media *media;
    struct env_disk_info info;
    uint64_t offset_bytes;
    uint32_t outstanding;
    bool closed;
};

struct fake_io {
    struct env_timer timer;
    struct list link;
    struct env_io *io;
    struct fake_disk *disk;
};

static inline struct fake_env *fake_of(struct env *env) {
    return CONTAINER_OF(env, struct fake_env, env);
}

static inline uint64_t fake_now(struct env *env) {
    return fake_of(env)->now_ns;
}

static inline uint64_t fake_wall(struct env *env) {
    return 1700000000ull * NS_PER_S + fake_of(env)->now_ns;
}

static inline void fake_random(struct env *env, void *ret_bytes, size_t bytes) {
    rng_fill(&fake_of(env)->rng, ret_bytes, bytes);
}

static inline void fake_wake(struct env *env) {
    (void)env;
}

/* ---- host state ---- */

static inline struct fake_record *fake_record_find(struct fake_env *fake, const char *name) {
    for (uint32_t i = 0; i < fake->record_count; i++) {
        if (strcmp(fake->records[i].name, name) == 0) {
            return &fake->records[i];
        }
    }
    return NULL;
}

static inline int fake_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                                  size_t *ret_length) {
    struct fake_record *r = fake_record_find(fake_of(env), name);
    if (r == NULL) {
        return ERR_NOT_FOUND;
    }
    *ret_length = MIN(bytes, r->length);
    memcpy(ret_bytes, r->bytes, *ret_length);
    return OK;
}

static inline int fake_state_write(struct env *env, const char *name, const void *bytes,
                                   size_t length) {
    struct fake_env *fake = fake_of(env);
    if (fake->state_fails || fake->world->cut) {
        return ERR_NO_SPACE;
    }
    struct fake_record *r = fake_record_find(fake, name);
    if (r == NULL) {
        ASSERT_LT(fake->record_count, FAKE_RECORDS_MAX);
        r = &fake->records[fake->record_count++];
        (void)snprintf(r->name, sizeof(r->name), "%s", name);
    }
    ASSERT_LE(length, sizeof(r->bytes));
    memcpy(r->bytes, bytes, length);
    r->length = length;
    return OK;
}

/* ---- disks ---- */

static inline int fake_disk_open(struct env *env, const char *path,
                                 const struct env_disk_options *options, struct env_disk **ret_disk,
                                 struct errmsg *reterr) {
    struct fake_world *world = fake_of(env)->world;
    for (uint32_t i = 0; i < world->media_count; i++) {
        struct fake_media *media = &world->media[i];
        if (media->absent || strcmp(media->name, path) != 0) {
            continue;
        }
        if (options->exclusive && media->exclusive != NULL) {
            return errmsg_set(reterr, ERR_BUSY, "%s is in use", path);
        }
        struct fake_disk *d = calloc(1, sizeof(*d));
        d->disk.env = env;
        d->media = media;
        d->offset_bytes = options->offset_bytes;
        d->info.kind = ENV_DISK_MEMORY;
        d->info.size_bytes = options->length_bytes != 0
                                 ? options->length_bytes
                                 : round_down(media->size_bytes - options->offset_bytes, 4096);
        (void)snprintf(d->info.path, sizeof(d->info.path), "%s", path);
        if (options->exclusive) {
            media->exclusive = &d->disk;
        }
        media->opened++;
        list_append(&fake_of(env)->handles, &d->link);
        *ret_disk = &d->disk;
        return OK;
    }
    return errmsg_set(reterr, ERR_NOT_FOUND, "%s does not exist", path);
}

static inline void fake_disk_put(struct fake_disk *d) {
    if (d->closed && d->outstanding == 0) {
        d->media->opened--;
        list_remove(&d->link);
        free(d);
    }
}

static inline void fake_disk_close(struct env_disk *disk) {
    struct fake_disk *d = CONTAINER_OF(disk, struct fake_disk, disk);
    if (d->media->exclusive == disk) {
        d->media->exclusive = NULL;
    }
    d->closed = true;
    fake_disk_put(d);
}

static inline const struct env_disk_info *fake_disk_info(const struct env_disk *disk) {
    return &CONTAINER_OF(disk, struct fake_disk, disk)->info;
}

/* Which of `count` sectors of the write under the power cut arrive. */
static inline bool fake_keeps(struct fake_world *w, uint64_t sector, uint64_t first_lost) {
    switch (w->cut_keep) {
    case KEEP_NONE:
        return false;
    case KEEP_PREFIX:
        return sector < first_lost;
    case KEEP_SOME:
        return rng_chance(&w->rng, 1, 2);
    case KEEP_ALL:
        break;
    }
    return true;
}

static inline void fake_write(struct fake_world *w, struct fake_media *m, uint64_t at,
                              const struct env_io *io) {
    uint64_t first_lost = 0;
    bool torn = w->cut_at != 0 && w->writes == w->cut_at;
    if (torn) {
        first_lost = rng_below(&w->rng, io->length_bytes / FAKE_SECTOR + 1);
    }
    uint64_t sector = 0;
    for (uint32_t i = 0; i < io->iov_count; i++) {
        const uint8_t *from = io->iov[i].iov_base;
        for (size_t o = 0; o < io->iov[i].iov_len; o += FAKE_SECTOR, sector++) {
            if (!torn || fake_keeps(w, sector, first_lost)) {
                memcpy(m->bytes + at + sector * FAKE_SECTOR, from + o, FAKE_SECTOR);
            }
        }
    }
    w->cut = w->cut || torn;
}

static inline int fake_transfer(struct fake_disk *d, const struct env_io *io) {
    struct fake_media *m = d->media;
    struct fake_world *w = fake_of(d->disk.env)->world;
    uint64_t at = d->offset_bytes + io->offset_bytes;
    if (io->op == ENV_IO_READ) {
        bool hit = m->fail_read_bytes == 0 || (at < m->fail_read_at + m->fail_read_bytes &&
                                               m->fail_read_at < at + io->length_bytes);
        if (m->fail_reads != OK && hit) {
            return m->fail_reads;
        }
        for (uint32_t i = 0; i < io->iov_count; i++) {
            memcpy(io->iov[i].iov_base, m->bytes + at, io->iov[i].iov_len);
            at += io->iov[i].iov_len;
        }
    } else if (io->op == ENV_IO_WRITE) {
        if (m->fail_writes != OK) {
            return m->fail_writes;
        }
        w->writes++;
        fake_write(w, m, at, io);
    } else if (m->fail_writes != OK) {
        return m->fail_writes;
    }
    return OK;
}

static inline void fake_complete(struct env_timer *timer) {
    struct fake_io *f = CONTAINER_OF(timer, struct fake_io, timer);
    struct fake_disk *d = f->disk;
    struct fake_env *fake = fake_of(d->disk.env);
    if (fake->world->cut) { /* no power: never answered */
        return;
    }
    f->io->result = fake_transfer(d, f->io);
    if (fake->world->cut) {
        return;
    }
    struct env_io *io = f->io;
    list_remove(&f->link);
    free(f);
    d->outstanding--;
    io->done(io);
    fake_disk_put(d);
}

static inline void fake_disk_submit(struct env_disk *disk, struct env_io *io) {
    struct fake_disk *d = CONTAINER_OF(disk, struct fake_disk, disk);
    struct fake_env *fake = fake_of(disk->env);
    struct fake_io *f = calloc(1, sizeof(*f));
    list_append(&fake->ios, &f->link);
    f->io = io;
    f->disk = d;
    f->timer.fire = fake_complete;
    d->outstanding++;
    if (!d->media->hang) {
        env_timer_arm(disk->env, &f->timer, fake->now_ns + d->media->delay_ns);
    }
}

static inline int fake_disk_probe(struct env_disk *disk, struct errmsg *reterr) {
    struct fake_disk *d = CONTAINER_OF(disk, struct fake_disk, disk);
    return d->media->gone ? errmsg_set(reterr, ERR_DISK_GONE, "%s was unlinked", d->info.path) : OK;
}

static const struct env_ops fake_ops = {
    .now = fake_now,
    .wall = fake_wall,
    .random = fake_random,
    .wake = fake_wake,
    .state_read = fake_state_read,
    .state_write = fake_state_write,
    .disk_open = fake_disk_open,
    .disk_close = fake_disk_close,
    .disk_info = fake_disk_info,
    .disk_submit = fake_disk_submit,
    .disk_probe = fake_disk_probe,
};

/* ---- for tests ---- */

static inline void fake_init(struct fake_env *fake, struct fake_world *world, uint64_t seed) {
    memset(fake, 0, sizeof(*fake));
    fake->world = world;
    fake->now_ns = NS_PER_S;
    rng_init(&fake->rng, seed);
    list_init(&fake->ios);
    list_init(&fake->handles);
    env_init(&fake->env, &fake_ops);
}

/* Hung I/Os of media that no longer hang come back now. */
static inline void fake_release(struct fake_env *fake) {
    LIST_FOR_EACH(node, &fake->ios) {
        struct fake_io *f = CONTAINER_OF(node, struct fake_io, link);
        if (f->timer.heap_index == 0 && !f->disk->media->hang) {
            env_timer_arm(&fake->env, &f->timer, fake->now_ns);
        }
    }
}

static inline void fake_settle(struct fake_env *fake) {
    while (env_turn(&fake->env)) {
    }
}

static inline void fake_advance(struct fake_env *fake, uint64_t to_ns) {
    fake_settle(fake);
    while (env_next_timer_ns(&fake->env) <= to_ns) {
        fake->now_ns = MAX(fake->now_ns, env_next_timer_ns(&fake->env));
        fake_settle(fake);
    }
    fake->now_ns = MAX(fake->now_ns, to_ns);
}

struct fake_call {
    void (*fn)(void *arg);
    void *arg;
    bool returned;
};

static inline void fake_call_main(void *arg) {
    struct fake_call *call = arg;
    call->fn(call->arg);
    call->returned = true;
}

/* Runs fn(arg) as a fiber, letting time pass as needed; false when it never returns. */
static inline bool fake_run(struct fake_env *fake, void (*fn)(void *arg), void *arg) {
    struct fake_call call = {.fn = fn, .arg = arg};
    fiber_start(&fake->env, fake_call_main, &call);
    fake_settle(fake);
    while (!call.returned && !fake->world->cut && env_next_timer_ns(&fake->env) != UINT64_MAX) {
        fake_advance(fake, env_next_timer_ns(&fake->env));
    }
    return call.returned;
}

static inline struct fake_media *fake_media_add(struct fake_world *world, const char *name,
                                                uint64_t size_bytes) {
    ASSERT_LT(world->media_count, FAKE_MEDIA_MAX);
    struct fake_media *m = &world->media[world->media_count++];
    memset(m, 0, sizeof(*m));
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
    m->size_bytes = size_bytes;
    m->bytes = calloc(1, size_bytes);
    return m;
}

static inline void fake_world_done(struct fake_world *world) {
    for (uint32_t i = 0; i < world->media_count; i++) {
        free(world->media[i].bytes);
    }
    world->media_count = 0;
}

/* The host loses power: what ran on it is forgotten, its state records stay. Memory of the program
 * is the caller's to drop (mem_scope). */
static inline void fake_power_cut(struct fake_env *fake) {
    struct list *node;
    while ((node = list_pop(&fake->ios)) != NULL) {
        free(CONTAINER_OF(node, struct fake_io, link));
    }
    while ((node = list_pop(&fake->handles)) != NULL) {
        free(CONTAINER_OF(node, struct fake_disk, link));
    }
    for (uint32_t i = 0; i < fake->world->media_count; i++) {
        fake->world->media[i].exclusive = NULL;
        fake->world->media[i].opened = 0;
    }
    env_done(&fake->env);
}

#endif
