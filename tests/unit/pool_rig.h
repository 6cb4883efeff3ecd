// SPDX-License-Identifier: MPL-2.0
/* Hosts, disks and pools for the tests of src/pool: each call runs as a fiber of a host until it
 * returns (or the power goes). */
#ifndef HOLDFAST_TESTS_POOL_RIG_H
#define HOLDFAST_TESTS_POOL_RIG_H

#include "unit.h"

#include "base/mem.h"
#include "env_fake.h"
#include "pool/pool.h"

enum { RIG_DISKS_MAX = 8, RIG_DISK_BYTES = 1 << 20 };

static const struct geometry rig_geometry = {32, 64, 8, 1};

struct rig {
    struct fake_world world;
    const char *paths[RIG_DISKS_MAX]; /* of all disks */
    uint32_t count;
};

static inline void rig_init(struct rig *rig, uint32_t count) {
    static const char *const names[RIG_DISKS_MAX] = {"d0", "d1", "d2", "d3",
                                                     "d4", "d5", "d6", "d7"};
    memset(rig, 0, sizeof(*rig));
    rig->count = count;
    rng_init(&rig->world.rng, 7);
    for (uint32_t i = 0; i < count; i++) {
        rig->paths[i] = names[i];
        fake_media_add(&rig->world, names[i], RIG_DISK_BYTES);
    }
}

static inline void rig_done(struct rig *rig) {
    fake_world_done(&rig->world);
}

static inline void rig_present(struct rig *rig, uint32_t mask) {
    for (uint32_t i = 0; i < rig->count; i++) {
        rig->world.media[i].absent = (mask & (1u << i)) == 0;
    }
}

/* One call and what came of it. */
struct call {
    struct fake_env *host;
    const char *name;
    const char *const *paths;
    uint32_t path_count;
    bool force, read_only, force_quorum, force_host;
    uint32_t meta_copies;
    uint64_t deadline_ns;
    struct geometry geometry;
    struct pool *pool; /* in, or out of open */
    struct roots_phys roots;
    uint64_t flags;
    struct pool_found *found;
    uint32_t found_count;
    int error;
    struct errmsg message;
};

static inline struct call call_on(struct fake_env *host, struct rig *rig) {
    return (struct call){
        .host = host, .paths = rig->paths, .path_count = rig->count, .geometry = rig_geometry};
}

static inline void do_create(void *arg) {
    struct call *c = arg;
    struct pool_options options = {.name = c->name != NULL ? c->name : "tank",
                                   .paths = c->paths,
                                   .path_count = c->path_count,
                                   .geometry = c->geometry,
                                   .force = c->force,
                                   .meta_copies = c->meta_copies};
    c->error = pool_create(&c->host->env, &options, &c->message);
}

static inline void do_open(void *arg) {
    struct call *c = arg;
    struct pool_open_options options = {.name = c->name,
                                        .paths = c->paths,
                                        .path_count = c->path_count,
                                        .read_only = c->read_only,
                                        .force_quorum = c->force_quorum,
                                        .force_host = c->force_host,
                                        .disk = {.deadline_ns = c->deadline_ns}};
    c->pool = NULL;
    c->error = pool_open(&c->host->env, &options, &c->pool, &c->message);
}

static inline void do_take(void *arg) {
    struct call *c = arg;
    c->error = pool_take(c->pool, &c->message);
}

static inline void do_commit(void *arg) {
    struct call *c = arg;
    c->error = pool_commit(c->pool, &c->roots, NULL, c->flags, c->pool->meta_copies);
}

static inline void do_settle(void *arg) {
    struct call *c = arg;
    c->error = pool_settle(c->pool);
}

static inline void do_close(void *arg) {
    struct call *c = arg;
    pool_close(c->pool);
    c->pool = NULL;
}

static inline void do_scan(void *arg) {
    struct call *c = arg;
    c->error =
        pool_scan(&c->host->env, c->paths, c->path_count, &c->found, &c->found_count, &c->message);
}

/* Runs it; it must return. The code. */
static inline int run(struct call *c, void (*fn)(void *arg)) {
    c->error = OK;
    c->message = (struct errmsg){0};
    assert_true(fake_run(c->host, fn, c));
    if (c->error == OK) {
        assert_int_equal(c->message.code, OK);
    }
    return c->error;
}

static inline int run_open_and_take(struct call *c) {
    int error = run(c, do_open);
    if (error == OK && (error = run(c, do_take)) != OK) {
        struct errmsg message = c->message;
        assert_int_equal(run(c, do_close), OK);
        c->error = error;
        c->message = message;
    }
    return error;
}

/* As a program that is killed: nothing more is written, all is closed. */
static inline void run_close(struct call *c) {
    if (c->pool != NULL) {
        assert_int_equal(run(c, do_close), OK);
    }
}

static inline void assert_says(const struct call *c, const char *words) {
    if (strstr(c->message.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", c->message.text, words);
    }
}

#endif
