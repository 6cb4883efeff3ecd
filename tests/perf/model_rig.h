// SPDX-License-Identifier: MPL-2.0
/* A pool of modelled disks in virtual time, with one LUN, for the benchmarks that need one: see
 * model_bench.c about scale. Every function dies with a message where something fails. */
#ifndef HOLDFAST_PERF_MODEL_RIG_H
#define HOLDFAST_PERF_MODEL_RIG_H

#include "bench/model_world.h"
#include "load.h"

enum { STAGES_MAX = 16, MODEL_DISKS = 6 };

struct stages { /* virtual time by what the engine was doing */
    const char *name[STAGES_MAX];
    uint64_t ns[STAGES_MAX], longest_ns[STAGES_MAX], since_ns;
    uint32_t count, now;
};

struct model {
    struct stages stages;
    uint32_t factor;
    double seconds; /* virtual */
    const char *tests;
    uint64_t real_dirty_bytes, leaves_lun_bytes;
    bool json, measuring;
    FILE *trace; /* every I/O while something is measured */
    struct model_world world;
    struct engine_limits limits;
    struct geometry geometry;
    enum profile profile;
    uint64_t lun_bytes;
    struct model_load load;
    struct model_load_result *result;
    int status;
};

_Noreturn void model_die(const char *what, const char *why);
void model_look(void *model); /* notes the stage the engine is in */
/* Runs the fiber to its end. */
void model_run(struct model *m, void (*fn)(void *arg));
void model_import_fiber(void *model);
/* The pool, imported, with its LUN filled in order. `disk`: a model of env/sim. */
void model_birth(struct model *m, const char *disk, uint64_t disk_bytes);
void model_reimport(struct model *m);
void model_death(struct model *m);
struct model_load model_load_of(struct model *m, enum volume_op op, uint32_t bytes, uint32_t depth,
                                bool random);
void model_load_fiber(void *model);                   /* m->load, into *m->result */
void model_stages_print(const struct stages *stages); /* of m->stages, while m->measuring */
/* The load, measured and printed under a name; `more`: labels, each with a space before it. */
void model_figure(struct model *m, const char *name, const char *more);

#endif
