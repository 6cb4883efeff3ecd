// SPDX-License-Identifier: MPL-2.0
/* A world in virtual time: modelled disks, and a pool on them with one volume, by the real engine.
 * What predicts (model.c) and what measures the engine itself (tests/perf) are built on it.
 *
 * What runs in it lives in a mem scope, which is dropped with it: engines need not be closed. */
#ifndef HOLDFAST_BENCH_MODEL_WORLD_H
#define HOLDFAST_BENCH_MODEL_WORLD_H

#include "base/mem.h"
#include "engine/engine.h"
#include "env/sim/sim.h"

enum { MODEL_WORLD_DISKS_MAX = 24 };
#define MODEL_WORLD_VOLUME "lun"

struct model_world {
    struct env *env;
    struct mem_scope scope;
    /* In the places of the pool; one that is replaced gets another path. */
    uint32_t disk_count, disks_made;
    struct sim_disk *disks[MODEL_WORLD_DISKS_MAX];
    char path[MODEL_WORLD_DISKS_MAX][16];
    const char *paths[MODEL_WORLD_DISKS_MAX];
    struct engine *engine; /* NULL: none */
    uint64_t volume;
    bool done; /* the fiber has ended */
    /* Looked at after each turn of the loop. NULL. */
    void (*look)(void *owner);
    void *owner;
};

void model_world_init(struct model_world *world, const struct env_sim_options *options);
void model_world_drop(struct model_world *world);
/* `like` without its path. A place beyond the last one is a new one. */
HF_MUST_CHECK int model_world_set_disk(struct model_world *world, uint32_t place,
                                       const struct sim_disk_options *like, struct errmsg *reterr);
/* Runs it as a fiber in the world's scope until it ends. ERR_TIMEOUT: nothing would ever happen. */
HF_MUST_CHECK int model_world_run(struct model_world *world, void (*fn)(void *arg), void *arg);

/* Fiber: a pool on all disks, not imported; its import. */
HF_MUST_CHECK int model_world_create(struct model_world *world, const struct geometry *geometry,
                                     struct errmsg *reterr);
HF_MUST_CHECK int model_world_import(struct model_world *world, const struct engine_limits *limits,
                                     struct errmsg *reterr);
HF_MUST_CHECK int model_world_add_volume(struct model_world *world, uint64_t size_bytes,
                                         enum profile profile, struct errmsg *reterr);

#endif
