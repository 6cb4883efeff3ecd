// SPDX-License-Identifier: MPL-2.0
#include "bench/model_world.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/math.h"
#include "env/fiber.h"

void model_world_init(struct model_world *w, const struct env_sim_options *options) {
    *w = (struct model_world){.env = env_sim_new(options)};
    mem_scope_init(&w->scope);
}

void model_world_drop(struct model_world *w) {
    mem_scope_drop(&w->scope);
    env_sim_free(w->env);
}

int model_world_set_disk(struct model_world *w, uint32_t place, const struct sim_disk_options *like,
                         struct errmsg *reterr) {
    struct sim_disk_options disk = *like;
    ASSERT(place < MODEL_WORLD_DISKS_MAX && place <= w->disk_count);
    (void)snprintf(w->path[place], sizeof(w->path[place]), "disk%u", w->disks_made++);
    w->paths[place] = disk.path = w->path[place];
    w->disk_count = MAX(w->disk_count, place + 1);
    return env_sim_disk_add(w->env, &disk, &w->disks[place], reterr);
}

struct run {
    struct model_world *world;
    void (*fn)(void *arg);
    void *arg;
};

static void run_fiber(void *arg) {
    const struct run *run = arg;
    run->fn(run->arg);
    run->world->done = true;
}

static bool is_done(void *ctx) {
    struct model_world *w = ctx;
    if (w->look != NULL) {
        w->look(w->owner);
    }
    return w->done;
}

int model_world_run(struct model_world *w, void (*fn)(void *arg), void *arg) {
    struct run run = {.world = w, .fn = fn, .arg = arg};
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    w->done = false;
    fiber_start(w->env, run_fiber, &run);
    enum sim_stop stop = env_sim_run_until(w->env, UINT64_MAX, is_done, w);
    mem_scope_enter(outer);
    return stop == SIM_DONE ? OK : ERR_TIMEOUT;
}

int model_world_create(struct model_world *w, const struct geometry *geometry,
                       struct errmsg *reterr) {
    struct pool_options create = {.name = "model",
                                  .paths = w->paths,
                                  .path_count = w->disk_count,
                                  .geometry = *geometry,
                                  .force = true};
    return engine_create_pool(w->env, &create, reterr);
}

int model_world_import(struct model_world *w, const struct engine_limits *limits,
                       struct errmsg *reterr) {
    struct engine_import_options import = {.pool = {.paths = w->paths, .path_count = w->disk_count},
                                           .limits = *limits};
    return engine_import(w->env, &import, NULL, NULL, &w->engine, reterr);
}

int model_world_add_volume(struct model_world *w, uint64_t size_bytes, enum profile profile,
                           struct errmsg *reterr) {
    struct volume_options volume = {
        .name = MODEL_WORLD_VOLUME, .size_bytes = size_bytes, .profile = profile};
    return engine_volume_create(w->engine, &volume, &w->volume, reterr);
}
