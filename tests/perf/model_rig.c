// SPDX-License-Identifier: MPL-2.0
/* Modelled pools: see model_rig.h. */
#include "model_rig.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "env/fiber.h"

_Noreturn void model_die(const char *what, const char *why) {
    (void)fprintf(stderr, "model_bench: %s: %s\n", what, why);
    exit(1);
}

/* ---- running in virtual time ---- */

static void stages_note(struct stages *s, const char *stage, uint64_t now) {
    if (s->count > 0) {
        if (s->name[s->now] == stage) {
            return;
        }
        uint64_t took = now - s->since_ns;
        s->ns[s->now] += took;
        s->longest_ns[s->now] = MAX(s->longest_ns[s->now], took);
    }
    s->since_ns = now;
    for (s->now = 0; s->now < s->count && s->name[s->now] != stage; s->now++) {
    }
    if (s->now == s->count && s->count < STAGES_MAX) {
        s->name[s->count++] = stage;
    }
}

bool model_is_done(void *ctx) {
    struct model *m = ctx;
    if (m->engine != NULL && m->measuring) {
        stages_note(&m->stages, engine_stage(m->engine), env_now_ns(m->env));
    }
    return m->done;
}

void model_stages_print(const struct stages *s) {
    printf("    time by stage, all and longest, ms:");
    for (uint32_t i = 0; i < s->count; i++) {
        printf("%s %s %" PRIu64 " %" PRIu64, i > 0 ? "," : "", s->name[i], s->ns[i] / NS_PER_MS,
               s->longest_ns[i] / NS_PER_MS);
    }
    printf("\n");
}

static void trace_line(void *ctx, const char *line) {
    struct model *m = ctx;
    if (m->trace != NULL && m->measuring) {
        (void)fprintf(m->trace, "%s\n", line);
    }
}

void model_run(struct model *m, void (*fn)(void *arg)) {
    m->done = false;
    struct mem_scope *outer = mem_scope_enter(&m->scope);
    fiber_start(m->env, fn, m);
    enum sim_stop stop = env_sim_run_until(m->env, UINT64_MAX, model_is_done, m);
    mem_scope_enter(outer);
    if (stop != SIM_DONE) {
        model_die("the model", "nothing left to happen");
    }
}

static void import(struct model *m) {
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = m->paths, .path_count = MODEL_DISKS},
                                            .limits = m->limits};
    if (engine_import(m->env, &options, NULL, NULL, &m->engine, &e) != OK) {
        model_die("import", e.text);
    }
}

void model_import_fiber(void *arg) {
    struct model *m = arg;
    import(m);
    m->done = true;
}

void model_load_fiber(void *arg) {
    struct model *m = arg;
    model_load_run(&m->load, m->result);
    m->done = true;
}

struct model_load model_load_of(struct model *m, enum volume_op op, uint32_t bytes, uint32_t depth,
                                bool random) {
    return (struct model_load){.door = engine_door(m->engine),
                               .volume_id = m->volume,
                               .span_bytes = m->lun_bytes,
                               .op = op,
                               .request_bytes = bytes,
                               .depth = depth,
                               .random = random};
}

static void birth_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    struct pool_options create = {.name = "model",
                                  .paths = m->paths,
                                  .path_count = MODEL_DISKS,
                                  .geometry = m->geometry,
                                  .force = true};
    struct volume_options volume = {
        .name = "lun", .size_bytes = m->lun_bytes, .profile = m->profile};
    if (engine_create_pool(m->env, &create, &e) != OK) {
        model_die("create", e.text);
    }
    import(m);
    if (engine_volume_create(m->engine, &volume, &m->volume, &e) != OK) {
        model_die("volume", e.text);
    }
    m->load = model_load_of(m, VOLUME_WRITE, 512 << 10, 16, false);
    m->load.requests = m->lun_bytes / m->load.request_bytes;
    model_load_run(&m->load, m->result);
    if (m->result->failed > 0 || engine_checkpoint(m->engine) != OK) {
        model_die("filling the LUN", error_text(m->result->first_error));
    }
    m->done = true;
}

static void close_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    if (engine_close(m->engine, false, env_now_ns(m->env) + 600 * NS_PER_S, &e) != OK) {
        model_die("close", e.text);
    }
    m->done = true;
}

void model_reimport(struct model *m) {
    model_run(m, close_fiber);
    model_run(m, model_import_fiber);
}

void model_birth(struct model *m, const char *disk, uint64_t disk_bytes) {
    struct env_sim_options options = {.seed = 1};
    if (m->trace != NULL) {
        options.trace = trace_line;
        options.trace_owner = m;
    }
    m->env = env_sim_new(&options);
    mem_scope_init(&m->scope);
    for (uint32_t i = 0; i < MODEL_DISKS; i++) {
        struct errmsg e = {0};
        struct sim_disk *added;
        struct sim_disk_options o = {.model = disk,
                                     .path = m->path[i],
                                     .size_bytes = disk_bytes,
                                     .scale = m->factor,
                                     .cache_off = true};
        (void)snprintf(m->path[i], sizeof(m->path[i]), "disk%u", i);
        m->paths[i] = m->path[i];
        if (env_sim_disk_add(m->env, &o, &added, &e) != OK) {
            model_die("disks", e.text);
        }
    }
    model_run(m, birth_fiber);
}

void model_death(struct model *m) {
    mem_scope_drop(&m->scope);
    env_sim_free(m->env);
}

void model_figure(struct model *m, const char *name, const char *more) {
    struct activity before, after;
    char labels[200];
    activity_read(m->engine, &before);
    m->stages = (struct stages){0};
    m->measuring = true;
    model_run(m, model_load_fiber);
    m->measuring = false;
    activity_read(m->engine, &after);
    after = activity_since(&after, &before);
    (void)snprintf(labels, sizeof(labels), "test=%s factor=%u disks=6-hdd profile=%s%s", name,
                   m->factor, profile_name(m->profile), more);
    figure_print(stdout, m->json, labels, m->result, &after, 0);
    if (!m->json) {
        model_stages_print(&m->stages);
    }
    m->status |= m->result->failed > 0;
}
