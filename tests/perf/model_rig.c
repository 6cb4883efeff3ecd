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

void model_look(void *ctx) {
    struct model *m = ctx;
    if (m->world.engine != NULL && m->measuring) {
        stages_note(&m->stages, engine_stage(m->world.engine), env_now_ns(m->world.env));
    }
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
    if (model_world_run(&m->world, fn, m) != OK) {
        model_die("the model", "nothing left to happen");
    }
}

static void import(struct model *m) {
    struct errmsg e = {0};
    if (model_world_import(&m->world, &m->limits, &e) != OK) {
        model_die("import", e.text);
    }
}

void model_import_fiber(void *arg) {
    struct model *m = arg;
    import(m);
}

void model_load_fiber(void *arg) {
    struct model *m = arg;
    model_load_run(&m->load, m->result);
}

struct model_load model_load_of(struct model *m, enum volume_op op, uint32_t bytes, uint32_t depth,
                                bool random) {
    return (struct model_load){.door = engine_door(m->world.engine),
                               .volume_id = m->world.volume,
                               .span_bytes = m->lun_bytes,
                               .op = op,
                               .request_bytes = bytes,
                               .depth = depth,
                               .random = random};
}

static void birth_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    if (model_world_create(&m->world, &m->geometry, &e) != OK) {
        model_die("create", e.text);
    }
    import(m);
    if (model_world_add_volume(&m->world, m->lun_bytes, m->profile, &e) != OK) {
        model_die("volume", e.text);
    }
    m->load = model_load_of(m, VOLUME_WRITE, 512 << 10, 16, false);
    m->load.requests = m->lun_bytes / m->load.request_bytes;
    model_load_run(&m->load, m->result);
    if (m->result->failed > 0 || engine_checkpoint(m->world.engine) != OK) {
        model_die("filling the LUN", error_text(m->result->first_error));
    }
}

static void close_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    if (engine_close(m->world.engine, false, env_now_ns(m->world.env) + 600 * NS_PER_S, &e) != OK) {
        model_die("close", e.text);
    }
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
    model_world_init(&m->world, &options);
    m->world.look = model_look;
    m->world.owner = m;
    for (uint32_t i = 0; i < MODEL_DISKS; i++) {
        struct errmsg e = {0};
        const struct sim_disk_options like = {
            .model = disk, .size_bytes = disk_bytes, .scale = m->factor, .cache_off = true};
        if (model_world_set_disk(&m->world, i, &like, &e) != OK) {
            model_die("disks", e.text);
        }
    }
    model_run(m, birth_fiber);
}

void model_death(struct model *m) {
    model_world_drop(&m->world);
}

void model_figure(struct model *m, const char *name, const char *more) {
    struct activity before, after;
    char labels[200];
    activity_read(m->world.engine, &before);
    m->stages = (struct stages){0};
    m->measuring = true;
    model_run(m, model_load_fiber);
    m->measuring = false;
    activity_read(m->world.engine, &after);
    after = activity_since(&after, &before);
    (void)snprintf(labels, sizeof(labels), "test=%s factor=%u disks=6-hdd profile=%s%s", name,
                   m->factor, profile_name(m->profile), more);
    figure_print(stdout, m->json, labels, m->result, &after, 0);
    if (!m->json) {
        model_stages_print(&m->stages);
    }
    m->status |= m->result->failed > 0;
}
