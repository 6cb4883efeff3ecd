// SPDX-License-Identifier: MPL-2.0
/* A short world with real threads: the engine on its loop, clients on loops of their own that
 * submit requests through the volume door, and a control thread that calls into the engine
 * meanwhile; once on disks in memory, once on files with a few threads a disk, as where io_uring is
 * refused. Small enough for ThreadSanitizer; what it proves is that the door, the queues between
 * the loops and with the disks' threads, and fiber_call() are all that threads share. */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "env/fiber.h"
#include "env/linux/linux.h"
#include "volume_client.h"

enum { DISKS = 4, CLIENTS = 2, STEPS = 300, CLIENT_BYTES = 2 << 20 };

struct shared {
    struct env *env; /* the engine's */
    char state_dir[64];
    char path[DISKS][96];
    struct engine *engine;
    uint64_t volume;
    struct errmsg e;
    int error;
};

struct client {
    struct shared *s;
    struct env *env;
    pthread_t thread;
    uint64_t base; /* its own part of the volume */
    uint8_t *shadow;
    uint64_t seed;
    int differences, errors;
};

static int run(struct client *c, enum volume_op op, uint64_t offset, uint64_t length, void *data) {
    return volume_run(engine_door(c->s->engine), c->s->volume, op, c->base + offset, length, data);
}

static void client_fiber(void *arg) {
    struct client *c = arg;
    struct rng rng;
    uint8_t *data = mem_alloc(256 << 10);
    rng_init(&rng, c->seed);
    for (int i = 0; i < STEPS; i++) {
        uint64_t most = rng_chance(&rng, 1, 10) ? 512 : 16;
        uint64_t length = (1 + rng_below(&rng, most)) * 512;
        uint64_t offset = rng_below(&rng, (CLIENT_BYTES - length) / 512 + 1) * 512;
        if (rng_chance(&rng, 1, 2)) {
            c->errors += run(c, VOLUME_READ, offset, length, data) != OK;
            c->differences += memcmp(data, c->shadow + offset, length) != 0;
        } else {
            rng_fill(&rng, data, length);
            c->errors += run(c, VOLUME_WRITE, offset, length, data) != OK;
            memcpy(c->shadow + offset, data, length);
        }
    }
    mem_free(data);
    env_stop(c->env);
}

static void *client_thread(void *arg) {
    struct client *c = arg;
    fiber_start(c->env, client_fiber, c);
    env_run(c->env);
    return NULL;
}

static void *engine_thread(void *arg) {
    env_run(((struct shared *)arg)->env);
    return NULL;
}

static void bring_up(void *arg) {
    struct shared *s = arg;
    const char *paths[DISKS];
    for (int i = 0; i < DISKS; i++) {
        paths[i] = s->path[i];
    }
    struct pool_options create = {
        .name = "threads", .paths = paths, .path_count = DISKS, .force = true};
    struct engine_import_options import = {.pool = {.paths = paths, .path_count = DISKS},
                                           .limits = {.dirty_bytes = 1 << 20}};
    struct volume_options volume = {
        .name = "v", .size_bytes = (uint64_t)CLIENTS * CLIENT_BYTES, .profile = PROFILE_RAID6};
    s->error = engine_create_pool(s->env, &create, &s->e);
    if (s->error == OK) {
        s->error = engine_import(s->env, &import, NULL, NULL, &s->engine, &s->e);
    }
    if (s->error == OK) {
        s->error = engine_volume_create(s->engine, &volume, &s->volume, &s->e);
    }
}

static void change(void *arg) {
    struct shared *s = arg;
    s->error = engine_config_set(s->engine, "test", "record", "blob", 4, &s->e);
    if (s->error == OK) {
        s->error = engine_checkpoint(s->engine);
    }
}

static void take_down(void *arg) {
    struct shared *s = arg;
    s->error = engine_close(s->engine, true, env_now_ns(s->env) + 10 * NS_PER_S, &s->e);
    env_stop(s->env);
}

static void must_succeed(const struct shared *s) {
    if (s->error != OK) {
        fail_msg("%s: %s", error_name(s->error), s->e.text);
    }
}

static void name_disks(struct shared *s, bool files) {
    for (int i = 0; i < DISKS; i++) {
        if (!files) {
            (void)snprintf(s->path[i], sizeof(s->path[i]), "mem:threads-%d:64M", i);
            continue;
        }
        (void)snprintf(s->path[i], sizeof(s->path[i]), "%s/disk-%d", s->state_dir, i);
        int fd = open(s->path[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && ftruncate(fd, 64 << 20) == 0);
        assert_int_equal(close(fd), 0);
    }
}

static void threads_share(bool files) {
    struct shared s = {0};
    struct client clients[CLIENTS];
    pthread_t engine;
    (void)snprintf(s.state_dir, sizeof(s.state_dir), "/tmp/holdfast-test-XXXXXX");
    assert_non_null(mkdtemp(s.state_dir));
    name_disks(&s, files);
    struct env_linux_options options = {
        .state_dir = s.state_dir,
        .ring = files ? ENV_LINUX_RING_OFF : ENV_LINUX_RING_AUTO,
        .disk_workers = 3,
    };
    assert_int_equal(env_linux_new(&options, &s.env, &s.e), OK);
    assert_int_equal(pthread_create(&engine, NULL, engine_thread, &s), 0);
    fiber_call(s.env, bring_up, &s);
    must_succeed(&s);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.s = &s,
                                     .base = (uint64_t)i * CLIENT_BYTES,
                                     .shadow = mem_alloc(CLIENT_BYTES),
                                     .seed = (uint64_t)i + 1};
        assert_int_equal(env_linux_new(&options, &clients[i].env, &s.e), OK);
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_thread, &clients[i]), 0);
    }
    for (int i = 0; i < 10; i++) { /* the control plane, meanwhile */
        fiber_call(s.env, change, &s);
        must_succeed(&s);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        mem_free(clients[i].shadow);
        assert_int_equal(clients[i].errors, 0);
        assert_int_equal(clients[i].differences, 0);
    }
    fiber_call(s.env, take_down, &s);
    must_succeed(&s);
    assert_int_equal(pthread_join(engine, NULL), 0);
    for (int i = 0; i < CLIENTS; i++) { /* not before the engine, which posts to them, has ended */
        env_linux_free(clients[i].env);
    }
    env_linux_free(s.env);
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -r %s", s.state_dir);
    assert_int_equal(system(command), 0);
}

static void threads_share_a_pool(void **state) {
    (void)state;
    threads_share(false);
}

static void threads_share_a_pool_of_files(void **state) {
    (void)state;
    threads_share(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(threads_share_a_pool_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
