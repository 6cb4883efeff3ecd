// SPDX-License-Identifier: MPL-2.0
/* Calls into the engine that need a fiber: one at a time, while requests go on beside it.
 *
 * What a call changes is acknowledged when it returns OK. If the power goes first it may have
 * happened or not, and control_reconcile() looks which, after the next import. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "env/fiber.h"
#include "world.h"

static const uint64_t CONTROL_NS = 120 * NS_PER_S;
static const uint64_t IMPORT_NS = 900 * NS_PER_S; /* and everything else that reads a whole pool */

static const char *const kind_names[CONTROL_KINDS] = {
    [CONTROL_CREATE_POOL] = "pool create",
    [CONTROL_IMPORT] = "import",
    [CONTROL_CLOSE] = "close",
    [CONTROL_CHECKPOINT] = "checkpoint",
    [CONTROL_VOLUME_CREATE] = "volume create",
    [CONTROL_VOLUME_DELETE] = "volume delete",
    [CONTROL_VOLUME_RESIZE] = "volume resize",
    [CONTROL_VOLUME_REORDER] = "volume reorder",
    [CONTROL_VOLUME_PROFILE] = "volume set profile",
    [CONTROL_CONFIG_SET] = "config set",
    [CONTROL_CONFIG_DELETE] = "config delete",
    [CONTROL_CHECK] = "check",
    [CONTROL_DISK_ADD] = "disk add",
    [CONTROL_DISK_REPLACE] = "disk replace",
    [CONTROL_DISK_REMOVE] = "disk remove",
    [CONTROL_DISK_KEEP] = "disk keep",
};

const char *control_name(enum control_kind kind) {
    return kind_names[kind];
}

/* ---- records ---- */

static uint32_t record_blob(uint32_t record, uint32_t version, uint8_t *ret_blob) {
    struct rng rng;
    rng_init(&rng, (uint64_t)record << 32 | version);
    uint32_t most = rng_chance(&rng, 1, 8) ? CONFIG_BLOB_MAX : 300;
    uint32_t bytes = (uint32_t)rng_between(&rng, 0, most);
    rng_fill(&rng, ret_blob, bytes);
    return bytes;
}

static void record_name(uint32_t record, const char **ret_kind, char *ret_id, size_t id_bytes) {
    *ret_kind = record % 3 == 0 ? "lun" : "unknown.to.you";
    (void)snprintf(ret_id, id_bytes, "record-%02u", record);
}

/* ---- on the fiber ---- */

static int run_create_pool(struct world *w, struct control *c) {
    struct pool_options options = {.name = "tank",
                                   .paths = c->paths,
                                   .path_count = c->path_count,
                                   .geometry = w->geometry,
                                   .force = true};
    return engine_create_pool(w->env, &options, &c->err);
}

static int run_import(struct world *w, struct control *c) {
    struct engine_import_options options = {
        .pool = {.name = rng_chance(&w->rng, 1, 2) ? "tank" : NULL,
                 .paths = c->paths,
                 .path_count = c->path_count},
        .limits = w->limits,
    };
    return engine_import(w->env, &options, NULL, NULL, &c->engine, &c->err);
}

static void check_problem(void *owner, const char *text) {
    struct control *c = owner;
    if (c->problem[0] == '\0') {
        (void)snprintf(c->problem, sizeof(c->problem), "%s", text);
    }
    env_sim_note(c->world->env, 3, "check: %s", text);
}

static int run_check(struct world *w, struct control *c) {
    struct pool_open_options options = {
        .name = "tank", .paths = c->paths, .path_count = c->path_count, .read_only = true};
    return engine_check(w->env, &options, check_problem, c, &c->check, &c->err);
}

static int run_volume(struct world *w, struct control *c) {
    struct world_volume *v = c->volume;
    switch (c->kind) {
    case CONTROL_VOLUME_CREATE: {
        struct volume_options options = {.name = v->name,
                                         .size_bytes = v->size_bytes,
                                         .profile = v->profile,
                                         .thick = v->thick,
                                         .sync_standard = v->sync_standard};
        return engine_volume_create(w->engine, &options, &c->volume_id, &c->err);
    }
    case CONTROL_VOLUME_DELETE:
        return engine_volume_delete(w->engine, v->name, &c->err);
    case CONTROL_VOLUME_REORDER:
        return engine_volume_reorder(w->engine, v->name, c->stop, &c->err);
    case CONTROL_VOLUME_PROFILE: {
        struct engine_profile_change change;
        return engine_volume_set_profile(w->engine, v->name, v->profile_next, c->stop, &change,
                                         &c->err);
    }
    default:
        return engine_volume_resize(w->engine, v->name, c->size_bytes, &c->err);
    }
}

static int run_config(struct world *w, struct control *c) {
    uint8_t blob[CONFIG_BLOB_MAX];
    const char *kind;
    char id[32];
    record_name(c->record, &kind, id, sizeof(id));
    if (c->kind == CONTROL_CONFIG_DELETE) {
        return engine_config_delete(w->engine, kind, id, &c->err);
    }
    uint32_t bytes = record_blob(c->record, c->version, blob);
    return engine_config_set(w->engine, kind, id, blob, bytes, &c->err);
}

static int control_call(struct world *w, struct control *c) {
    switch (c->kind) {
    case CONTROL_CREATE_POOL:
        return run_create_pool(w, c);
    case CONTROL_IMPORT:
        return run_import(w, c);
    case CONTROL_CLOSE:
        return engine_close(w->engine, c->exported, env_now_ns(w->env) + 30 * NS_PER_S, &c->err);
    case CONTROL_CHECKPOINT:
        return engine_checkpoint(w->engine);
    case CONTROL_VOLUME_CREATE:
    case CONTROL_VOLUME_DELETE:
    case CONTROL_VOLUME_RESIZE:
    case CONTROL_VOLUME_REORDER:
    case CONTROL_VOLUME_PROFILE:
        return run_volume(w, c);
    case CONTROL_CONFIG_SET:
    case CONTROL_CONFIG_DELETE:
        return run_config(w, c);
    case CONTROL_CHECK:
        return run_check(w, c);
    case CONTROL_DISK_ADD:
    case CONTROL_DISK_REPLACE:
    case CONTROL_DISK_REMOVE:
    case CONTROL_DISK_KEEP:
        return moves_run(w, c);
    case CONTROL_KINDS:
        break;
    }
    return ERR_INVALID;
}

static void control_run(void *arg) {
    struct world *w = arg;
    int result = control_call(w, &w->control);
    if (!env_sim_is_cut(w->env)) { /* an answer after the cut is none */
        w->control.result = result;
        w->control.done = true;
    }
}

/* ---- from the world ---- */

void control_start(struct world *w, struct control control) {
    w->control = control;
    w->control.active = true;
    w->control.world = w;
    w->control.started_ns = env_now_ns(w->env);
    env_sim_note(w->env, control.kind, "control %s %s", kind_names[control.kind],
                 control.volume == NULL ? "" : control.volume->name);
    fiber_start(w->env, control_run, w);
}

static void volume_gone(struct world *w, struct world_volume *v) {
    ruin_deleted(w, v);
    v->state = VOL_NONE; /* answers may still come; the slot is free when none is in flight */
    oracle_volume_done(&v->oracle);
}

static void volume_is_there(struct world *w, struct world_volume *v) {
    v->state = VOL_LIVE;
    if (w->deep && v->created_bad == 0) {
        w->tolerance = MAX(w->tolerance, MIN(profile_losses(v->profile), w->disk_count - 1));
    }
}

static void judge_create(struct world *w, struct control *c) {
    struct world_volume *v = c->volume;
    if (c->result == OK) {
        v->id = c->volume_id;
        volume_is_there(w, v);
        world_count(w, STAT_volumes_created, 1);
        return;
    }
    faults_poll(w); /* a disk may just have been given up */
    bool degraded = (v->created_bad | faults_bad(w)) != 0;
    bool space = c->result == ERR_NO_SPACE && (v->thick || degraded || workload_space_need(w) > 0);
    if (!space && !degraded) {
        world_fail(w, "volume create %s (%s, %" PRIu64 " bytes%s): %s: %s", v->name,
                   profile_name(v->profile), v->size_bytes, v->thick ? ", thick" : "",
                   error_name(c->result), c->err.text);
    }
    world_count(w, STAT_out_of_space, c->result == ERR_NO_SPACE);
    volume_gone(w, v);
}

/* A checkpoint without room is put off: in a pool that was full when it lost a disk, or while a
 * disk that owes an answer keeps chunks from returning. */
static bool checkpoint_may_wait(struct world *w) {
    bool late = w->missing != 0 && workload_space_need(w) > 0.8;
    engine_status(w->engine, &w->status);
    for (uint32_t m = 0; m < w->status.disk_count; m++) {
        late |= w->status.disks[m].counters.late_changes > 0;
    }
    return late;
}

static void judge_other(struct world *w, struct control *c) {
    struct world_volume *v = c->volume;
    struct world_record *r = &w->records[c->record];
    /* A larger thick volume may not fit; deletions must always work (lessons: "Space"). */
    bool space = c->result == ERR_NO_SPACE &&
                 ((c->kind == CONTROL_VOLUME_RESIZE && v->thick) ||
                  (c->kind == CONTROL_CHECKPOINT && checkpoint_may_wait(w)) ||
                  c->kind == CONTROL_VOLUME_PROFILE ||
                  (c->kind == CONTROL_CONFIG_SET && workload_space_need(w) > 0.8));
    /* Disks may have been lost since it was drawn. */
    bool disks = c->result == ERR_INVALID && c->kind == CONTROL_VOLUME_PROFILE;
    if (c->result != OK && !space && !disks) {
        world_fail(w, "%s %s: %s: %s", kind_names[c->kind], v == NULL ? "" : v->name,
                   error_name(c->result), c->err.text);
        return;
    }
    switch (c->kind) {
    case CONTROL_VOLUME_DELETE:
        world_count(w, STAT_volumes_deleted, 1);
        volume_gone(w, v);
        break;
    case CONTROL_VOLUME_RESIZE:
        v->size_bytes = c->result == OK ? v->resize_bytes : v->size_bytes;
        v->resize_bytes = 0;
        world_count(w, STAT_volumes_resized, c->result == OK);
        break;
    case CONTROL_VOLUME_REORDER:
        world_count(w, STAT_reorders, !c->stop);
        break;
    case CONTROL_VOLUME_PROFILE:
        v->profile = c->result == OK && !c->stop ? v->profile_next : v->profile;
        v->profile_next = v->profile;
        world_count(w, STAT_profiles_set, c->result == OK && !c->stop);
        break;
    case CONTROL_CONFIG_SET:
    case CONTROL_CONFIG_DELETE:
        r->version = c->result == OK ? r->pending : r->version;
        r->is_pending = false;
        world_count(w, c->kind == CONTROL_CONFIG_SET ? STAT_config_set : STAT_config_deleted,
                    c->result == OK);
        break;
    default:
        break;
    }
}

void control_poll(struct world *w) {
    struct control *c = &w->control;
    if (!c->active || !c->done) {
        return;
    }
    c->active = false;
    env_sim_note(w->env, (uint64_t)(int64_t)c->result, "control %s: %s %s", kind_names[c->kind],
                 c->result == OK ? "OK" : error_name(c->result), c->err.text);
    switch (c->kind) {
    case CONTROL_CREATE_POOL:
    case CONTROL_IMPORT:
    case CONTROL_CLOSE:
    case CONTROL_CHECK:
        break; /* judged by who asked */
    case CONTROL_VOLUME_CREATE:
        judge_create(w, c);
        break;
    case CONTROL_DISK_ADD:
    case CONTROL_DISK_REPLACE:
    case CONTROL_DISK_REMOVE:
    case CONTROL_DISK_KEEP:
        moves_judge(w, c);
        break;
    default:
        judge_other(w, c);
        break;
    }
}

static bool control_is_done(void *ctx) {
    const struct world *w = ctx;
    return w->control.done || !w->control.active;
}

/* False: the power went, or the world failed. */
bool control_wait(struct world *w) {
    if (!w->control.active) {
        return world_goes_on(w);
    }
    bool reads_all = w->control.kind <= CONTROL_CLOSE || w->control.kind == CONTROL_CHECK;
    uint64_t deadline_ns = w->control.started_ns + (reads_all ? IMPORT_NS : CONTROL_NS);
    if (!world_wait(w, control_is_done, w, deadline_ns, false)) {
        return false;
    }
    control_poll(w);
    return world_goes_on(w);
}

/* The power went while it ran. */
void control_crashed(struct world *w) {
    struct control *c = &w->control;
    if (!c->active) {
        world_count(w, STAT_crash_serving, 1);
        return;
    }
    c->active = false;
    static const enum sim_stat stats[CONTROL_KINDS] = {
        [CONTROL_CREATE_POOL] = STAT_crash_create,
        [CONTROL_IMPORT] = STAT_crash_import,
        [CONTROL_CLOSE] = STAT_crash_close,
        [CONTROL_CHECKPOINT] = STAT_crash_checkpoint,
        [CONTROL_VOLUME_CREATE] = STAT_crash_volume_change,
        [CONTROL_VOLUME_DELETE] = STAT_crash_volume_change,
        [CONTROL_VOLUME_RESIZE] = STAT_crash_volume_change,
        [CONTROL_VOLUME_REORDER] = STAT_crash_volume_change,
        [CONTROL_VOLUME_PROFILE] = STAT_crash_volume_change,
        [CONTROL_CONFIG_SET] = STAT_crash_config,
        [CONTROL_CONFIG_DELETE] = STAT_crash_config,
        [CONTROL_CHECK] = STAT_crash_close,
        [CONTROL_DISK_ADD] = STAT_crash_disk_change,
        [CONTROL_DISK_REPLACE] = STAT_crash_disk_change,
        [CONTROL_DISK_REMOVE] = STAT_crash_disk_change,
        [CONTROL_DISK_KEEP] = STAT_crash_disk_change,
    };
    world_count(w, stats[c->kind], 1);
    /* A call that had returned but was not yet looked at was acknowledged. */
    if (c->done) {
        c->active = true;
        control_poll(w);
    }
}

/* ---- after an import ---- */

static void reconcile_volume(struct world *w, struct world_volume *v,
                             const struct volume_info *info) {
    if (info == NULL) {
        if (v->state == VOL_LIVE) {
            world_fail(w, "volume %s is gone", v->name);
        }
        volume_gone(w, v);
        return;
    }
    if (v->id != 0 && v->id != info->id) {
        world_fail(w, "volume %s has id %" PRIu64 ", had %" PRIu64, v->name, info->id, v->id);
    }
    v->id = info->id;
    if (info->size_bytes == v->resize_bytes && v->resize_bytes != 0) {
        v->size_bytes = v->resize_bytes;
    }
    v->resize_bytes = 0;
    v->profile = info->profile == v->profile_next ? v->profile_next : v->profile;
    v->profile_next = v->profile;
    if (info->size_bytes != v->size_bytes || info->profile != v->profile ||
        info->thick != v->thick || info->sync_always == v->sync_standard) {
        world_fail(w, "volume %s has come back different (size %" PRIu64 ", was %" PRIu64 ")",
                   v->name, info->size_bytes, v->size_bytes);
    }
    volume_is_there(w, v);
}

static void reconcile_volumes(struct world *w) {
    struct volume_info *infos = NULL;
    uint32_t count = 0;
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    engine_volume_list(w->engine, &infos, &count);
    mem_scope_enter(outer);
    uint32_t known = 0;
    for (uint32_t k = 0; k < WORLD_VOLUMES_MAX; k++) {
        struct world_volume *v = &w->volumes[k];
        if (v->state == VOL_NONE) {
            continue;
        }
        const struct volume_info *found = NULL;
        for (uint32_t i = 0; i < count; i++) {
            if (!infos[i].deleting && strcmp(infos[i].name, v->name) == 0) {
                found = &infos[i];
                known++;
            }
        }
        reconcile_volume(w, v, found);
    }
    for (uint32_t i = 0; i < count; i++) {
        known += infos[i].deleting;
    }
    if (known != count) {
        world_fail(w, "%u volumes are listed, %u are known", count, known);
    }
    mem_free(infos);
}

struct record_visit {
    struct world *w;
    uint32_t seen[WORLD_RECORDS_MAX];
    uint32_t strange;
};

static void record_visited(void *ctx, const char *kind, const char *id, const void *blob,
                           uint32_t bytes) {
    if (strcmp(kind, SCRUB_RECORD_KIND) == 0) {
        return; /* the engine's own */
    }
    struct record_visit *visit = ctx;
    uint8_t expected[CONFIG_BLOB_MAX];
    for (uint32_t i = 0; i < WORLD_RECORDS_MAX; i++) {
        const char *my_kind;
        char my_id[32];
        record_name(i, &my_kind, my_id, sizeof(my_id));
        if (strcmp(my_kind, kind) != 0 || strcmp(my_id, id) != 0) {
            continue;
        }
        struct world_record *r = &visit->w->records[i];
        uint32_t candidates[] = {r->version, r->is_pending ? r->pending : r->version};
        for (int k = 0; k < 2; k++) {
            if (candidates[k] != 0 && record_blob(i, candidates[k], expected) == bytes &&
                memcmp(expected, blob, bytes) == 0) {
                visit->seen[i] = candidates[k];
                return;
            }
        }
    }
    visit->strange++;
}

static void reconcile_records(struct world *w) {
    struct record_visit visit = {.w = w};
    engine_config_each(w->engine, NULL, record_visited, &visit);
    if (visit.strange != 0) {
        world_fail(w, "%u configuration records hold what was never written", visit.strange);
    }
    for (uint32_t i = 0; i < WORLD_RECORDS_MAX; i++) {
        struct world_record *r = &w->records[i];
        bool good = visit.seen[i] == r->version || (r->is_pending && visit.seen[i] == r->pending);
        if (!good) {
            world_fail(w, "configuration record %u is version %u, was %u", i, visit.seen[i],
                       r->version);
        }
        r->version = visit.seen[i];
        r->is_pending = false;
    }
}

void control_reconcile(struct world *w) {
    reconcile_volumes(w);
    reconcile_records(w);
}

/* ---- drawing one ---- */

static uint64_t draw_size(struct world *w, struct world_volume *v) {
    uint64_t usable_bytes = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        usable_bytes += sim_disk_size_bytes(w->disks[i]);
    }
    struct shape shape = profile_shape(v->profile, w->disk_count);
    usable_bytes = usable_bytes / shape_columns(shape) * shape.data;
    if (v->thick) {
        return (1 << 20) + rng_below(&w->rng, usable_bytes / 4 + 1);
    }
    if (w->cramped) {
        return (1 << 20) + rng_below(&w->rng, usable_bytes * 2);
    }
    if (rng_chance(&w->rng, 1, 8)) {
        return (uint64_t)1 << rng_between(&w->rng, 30, 46); /* 1 GiB .. 64 TiB */
    }
    uint64_t most = rng_chance(&w->rng, 1, 4) ? usable_bytes * 2 : usable_bytes / 2;
    return (1 << 20) + rng_below(&w->rng, MIN(most, (uint64_t)32 << 20));
}

/* One that the disks left allow; in deep worlds one that tolerates two losses, if any does. */
static enum profile draw_profile(struct world *w) {
    enum profile possible[PROFILE_COUNT];
    uint32_t count = 0;
    uint32_t in_sync = w->disk_count - (uint32_t)__builtin_popcount(w->missing | w->idle);
    bool weak = w->ruin && rng_chance(&w->ruin_rng, 1, 2);
    for (int deep = w->deep && !weak; deep >= 0 && count == 0; deep--) {
        for (int p = 0; p < PROFILE_COUNT; p++) {
            if (profile_min_disks((enum profile)p) <= in_sync &&
                (deep == 0 || profile_losses((enum profile)p) == 2)) {
                possible[count++] = (enum profile)p;
            }
        }
    }
    return count == 0 ? PROFILE_SINGLE : possible[rng_below(&w->rng, count)];
}

static bool event_volume_create(struct world *w) {
    struct world_volume *v = NULL;
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX && v == NULL; i++) {
        if (w->volumes[i].state == VOL_NONE && w->volumes[i].in_flight == 0) {
            v = &w->volumes[i];
        }
    }
    if (v == NULL) {
        return false;
    }
    uint32_t slot = (uint32_t)(v - w->volumes);
    *v = (struct world_volume){.state = VOL_CREATING};
    (void)snprintf(v->name, sizeof(v->name), "vol%u", slot);
    v->profile = draw_profile(w);
    v->thick = rng_chance(&w->rng, 1, 5);
    v->sync_standard = rng_chance(&w->rng, 1, 3);
    v->size_bytes = round_up(draw_size(w, v), BLOCK_BYTES);
    if (w->large && w->volumes_ever == 0) {
        v->profile = PROFILE_SINGLE;
        v->thick = false;
        v->size_bytes = LARGE_VOLUME_BYTES;
    }
    v->profile_next = v->profile;
    v->profiles = 1u << v->profile;
    v->created_bad = faults_bad(w);
    oracle_volume_init(&v->oracle, &w->oracle, ++w->volumes_ever, !v->sync_standard);
    control_start(w, (struct control){.kind = CONTROL_VOLUME_CREATE, .volume = v});
    return true;
}

bool control_volume(struct world *w, uint32_t slot, enum profile profile, uint64_t size_bytes) {
    struct world_volume *v = &w->volumes[slot];
    *v = (struct world_volume){.state = VOL_CREATING,
                               .profile = profile,
                               .profile_next = profile,
                               .profiles = 1u << profile,
                               .size_bytes = size_bytes};
    (void)snprintf(v->name, sizeof(v->name), "vol%u", slot);
    oracle_volume_init(&v->oracle, &w->oracle, ++w->volumes_ever, true);
    control_start(w, (struct control){.kind = CONTROL_VOLUME_CREATE, .volume = v});
    return control_wait(w) && v->state == VOL_LIVE;
}

static struct world_volume *any_live(struct world *w) {
    uint32_t from = (uint32_t)rng_below(&w->rng, WORLD_VOLUMES_MAX);
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        struct world_volume *v = &w->volumes[(from + i) % WORLD_VOLUMES_MAX];
        if (v->state == VOL_LIVE) {
            return v;
        }
    }
    return NULL;
}

static void event_volume(struct world *w) {
    struct world_volume *v = any_live(w);
    if (v == NULL || rng_chance(&w->rng, 1, 2)) {
        (void)event_volume_create(w);
        return;
    }
    if (rng_chance(&w->rng, 1, 2)) {
        v->state = VOL_DELETING;
        control_start(w, (struct control){.kind = CONTROL_VOLUME_DELETE, .volume = v});
        return;
    }
    uint64_t more = rng_between(&w->rng, 1, 1024) * BLOCK_BYTES;
    if (v->size_bytes + more <= (uint64_t)64 << 40) {
        v->resize_bytes = v->size_bytes + more;
        control_start(w, (struct control){.kind = CONTROL_VOLUME_RESIZE,
                                          .volume = v,
                                          .size_bytes = v->resize_bytes});
    }
}

static void event_reorder(struct world *w) {
    struct world_volume *v = any_live(w);
    control_start(w, (struct control){.kind = CONTROL_VOLUME_REORDER,
                                      .volume = v,
                                      .stop = rng_chance(&w->rng, 1, 8)});
}

static void event_profile(struct world *w) {
    struct world_volume *v = any_live(w);
    v->profile_next = draw_profile(w);
    v->profiles |= 1u << v->profile_next;
    control_start(w, (struct control){.kind = CONTROL_VOLUME_PROFILE,
                                      .volume = v,
                                      .stop = rng_chance(&w->rng, 1, 8)});
}

uint32_t world_volume_losses(const struct world_volume *v) {
    uint32_t least = UINT32_MAX;
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if (world_volume_had(v, (enum profile)p)) {
            least = MIN(least, profile_losses((enum profile)p));
        }
    }
    return least;
}

static void event_config(struct world *w) {
    uint32_t i = (uint32_t)rng_below(&w->rng, WORLD_RECORDS_MAX);
    struct world_record *r = &w->records[i];
    bool delete = r->version != 0 && rng_chance(&w->rng, 1, 3);
    r->is_pending = true;
    r->pending = delete ? 0 : ++w->versions;
    control_start(w, (struct control){.kind = delete ? CONTROL_CONFIG_DELETE : CONTROL_CONFIG_SET,
                                      .record = i,
                                      .version = r->pending});
}

void control_event(struct world *w) {
    bool cut = rng_chance(&w->rng, 1, 12);
    if (any_live(w) == NULL) {
        (void)event_volume_create(w);
    } else {
        switch (rng_below(&w->rng, 7)) {
        case 0:
            event_volume(w);
            break;
        case 1:
            event_config(w);
            break;
        case 2:
        case 3:
            event_reorder(w);
            break;
        case 4:
            event_profile(w);
            break;
        default:
            control_start(w, (struct control){.kind = CONTROL_CHECKPOINT});
            break;
        }
    }
    if (cut) {
        env_sim_arm_cut(w->env, rng_between(&w->rng, 1, 80));
    }
}
