// SPDX-License-Identifier: MPL-2.0
/* A world from its first disk to its last check. */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

enum {
    OPS_MEAN = 2600,
    IMPORTS_MAX = 12, /* in a row that a power cut may spoil */
    CREATE_TRIES = 3,
    PHASES_MAX = 200,
    SCRUB_TRIES = 3,
    SCRUB_WAITS = 6,
};

static const uint64_t ANSWER_NS = 60 * NS_PER_S;

void world_fail(struct world *w, const char *fmt, ...) {
    if (w->result->failed) {
        return;
    }
    w->result->failed = true;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(w->result->why, sizeof(w->result->why), fmt, args);
    va_end(args);
    env_sim_note(w->env, 1, "FAILED: %s", w->result->why);
}

/* ---- drawing ---- */

static void draw_geometry(struct world *w) {
    struct rng *rng = &w->rng;
    static const uint32_t chunks[] = {32, 48, 64, 96, 128, 256};
    static const uint32_t rows[] = {4, 8, 16, 32, 64};
    static const uint32_t nodes[] = {1, 1, 2, 4};
    w->geometry.chunk_blocks = chunks[rng_below(rng, ARRAY_COUNT(chunks))];
    w->geometry.row_blocks = rows[rng_below(rng, ARRAY_COUNT(rows))];
    w->geometry.row_blocks = MIN(w->geometry.row_blocks, w->geometry.chunk_blocks / 4);
    w->geometry.node_blocks = nodes[rng_below(rng, ARRAY_COUNT(nodes))];
    /* Small rings fill up between checkpoints. */
    w->geometry.ring_blocks = (uint32_t)rng_between(rng, 1, rng_chance(rng, 1, 3) ? 4 : 20) * 64;
}

/* Some worlds are cramped: rows so small that headers and nodes take much of them, few disks, full
 * nearly all the time, and disks are lost even so. */
static void draw_cramped(struct world *w) {
    static const uint32_t chunks[] = {32, 48, 64};
    w->geometry.chunk_blocks = chunks[rng_below(&w->rng, ARRAY_COUNT(chunks))];
    w->geometry.row_blocks = rng_chance(&w->rng, 2, 3) ? 4 : 8;
}

static void draw_limits(struct world *w) {
    struct rng *rng = &w->rng;
    w->limits = (struct engine_limits){
        .read_cache_bytes = (uint64_t)rng_between(rng, 1, 32) << 17,
        .node_cache_bytes = (uint64_t)rng_between(rng, 2, 32) << 16,
        .checkpoint_ms = (uint32_t)rng_between(rng, 1, 30) * 1000,
        .requests = (uint32_t)rng_between(rng, 2, 40),
        .disk_deadline_ns = rng_between(rng, 4, 6) * NS_PER_S,
        .idle_ms = rng_chance(rng, 1, 2) ? (uint32_t)rng_between(rng, 1, 50) : 500,
    };
    /* Drawn apart, so that other worlds are what they were. */
    struct rng apart;
    rng_init(&apart, w->options.seed ^ 0x72656275696c64u);
    w->limits.rebuild_grace_ms = (uint32_t)rng_between(&apart, 1, 40) * 1000;
    w->limits.rebuild_share_pct = (uint32_t)rng_between(&apart, 10, 100);
}

static void draw_disks(struct world *w) {
    struct rng *rng = &w->rng;
    static const char *const models[] = {"hdd", "ssd", "nvme", "nvme-plp", "hdd-large"};
    w->disk_count = (uint32_t)rng_between(rng, 1, WORLD_DISKS_MAX);
    if (w->disk_count == 1 && rng_chance(rng, 2, 3)) {
        w->disk_count = (uint32_t)rng_between(rng, 3, 6);
    }
    if (w->cramped) {
        w->disk_count = (uint32_t)rng_between(rng, 1, 5);
    }
    bool alike = rng_chance(rng, 1, 2);
    /* Few disks need more each, for what the engine keeps for itself. */
    uint64_t chunks = rng_between(rng, 40, 140) + 120 / w->disk_count;
    const char *model = models[rng_below(rng, ARRAY_COUNT(models))];
    for (uint32_t i = 0; i < w->disk_count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "slot%u", i);
        uint64_t fixed = layout_chunk_start(&w->geometry) + TAIL_BLOCKS;
        uint64_t least = w->cramped ? chunks / 3 : chunks * 2 / 3;
        uint64_t mine = alike ? chunks : rng_between(rng, least, chunks * 3 / 2);
        struct sim_disk_options options = {
            .model = alike ? model : models[rng_below(rng, ARRAY_COUNT(models))],
            .path = path,
            .size_bytes =
                (fixed + mine * w->geometry.chunk_blocks + rng_below(rng, 8)) * BLOCK_BYTES,
            .scale = 256,
            .cache_off = rng_chance(rng, 1, 3),
        };
        ASSERT_EQ(env_sim_disk_add(w->env, &options, &w->disks[i], NULL), OK);
    }
}

/* A few worlds are large, because a tree has more than two levels only above some 85,000 blocks:
 * they begin with one volume that is written from end to end. */
static void draw_large(struct world *w) {
    w->geometry = (struct geometry){
        .chunk_blocks = 256, .ring_blocks = 1024, .row_blocks = 64, .node_blocks = 1};
    w->disk_count = (uint32_t)rng_between(&w->rng, 2, 4);
    for (uint32_t i = 0; i < w->disk_count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "slot%u", i);
        struct sim_disk_options options = {.model = i == 0 ? "nvme" : "ssd",
                                           .path = path,
                                           .size_bytes = ((uint64_t)640 << 20) / w->disk_count,
                                           .scale = 256};
        ASSERT_EQ(env_sim_disk_add(w->env, &options, &w->disks[i], NULL), OK);
    }
}

static void trace_line(void *owner, const char *line) {
    (void)owner;
    printf("%s\n", line);
}

/* Drawn apart, so that it changes nothing for the others. */
static bool seed_is_cramped(uint64_t seed) {
    struct rng rng;
    rng_init(&rng, seed ^ 0x6372616d706564u);
    return rng_chance(&rng, 1, 10);
}

static void world_draw(struct world *w) {
    rng_init(&w->rng, w->options.seed ^ 0x686f6c6466617374u);
    struct env_sim_options options = {.seed = w->options.seed};
    if (w->options.trace) {
        options.trace = trace_line;
    }
    w->env = env_sim_new(&options);
    mem_scope_init(&w->scope);
    oracle_init(&w->oracle);
    draw_geometry(w);
    draw_limits(w);
    rng_init(&w->slow_rng, w->options.seed ^ 0x736c6f776573u);
    w->slow = w->options.slow || (slow_seed(w->options.seed) && !w->options.cramped);
    w->large = rng_chance(&w->rng, 1, 40) && !w->options.cramped && !w->slow;
    w->cramped = !w->slow && !w->large && (w->options.cramped || seed_is_cramped(w->options.seed));
    if (w->cramped) {
        draw_cramped(w);
    }
    if (w->slow) {
        slow_draw(w);
    } else if (w->large) {
        draw_large(w);
    } else {
        draw_disks(w);
    }
    struct sim_disk_options stranger = {.model = "ssd", .path = "stranger", .size_bytes = 4 << 20};
    ASSERT_EQ(env_sim_disk_add(w->env, &stranger, &w->stranger, NULL), OK);
    uint64_t pool_bytes = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        pool_bytes += sim_disk_size_bytes(w->disks[i]);
    }
    if (!w->slow) {
        w->limits.dirty_bytes = MAX((uint64_t)1 << 20, pool_bytes / rng_between(&w->rng, 20, 80));
    }
    w->deep = w->disk_count >= 4 && !w->large && rng_chance(&w->rng, 1, 2);
    w->faults = rng_chance(&w->rng, 3, 4) && !w->slow;
    w->tolerance = MIN(1u, w->disk_count - 1);
    w->ops_target =
        w->options.ops != 0 ? w->options.ops : rng_between(&w->rng, OPS_MEAN / 2, OPS_MEAN * 3 / 2);
    workload_init(w);
    ruin_init(w);
    w->ruin = w->ruin && !w->slow;
    moves_init(w);
}

/* ---- running ---- */

static void crash_count(struct world *w) {
    static const struct {
        const char *stage;
        enum sim_stat stat;
    } stages[] = {
        {"checkpoint: merge", STAT_cut_checkpoint_merge},
        {"checkpoint: clean", STAT_cut_checkpoint_clean},
        {"checkpoint: map", STAT_cut_checkpoint_map},
        {"checkpoint: tables", STAT_cut_checkpoint_tables},
        {"checkpoint: flush", STAT_cut_checkpoint_flush},
        {"checkpoint: commit", STAT_cut_checkpoint_commit},
        {"checkpoint: release", STAT_cut_checkpoint_release},
    };
    const char *stage = w->engine == NULL ? "" : engine_stage(w->engine);
    for (uint32_t i = 0; i < ARRAY_COUNT(stages); i++) {
        world_count(w, stages[i].stat, strcmp(stages[i].stage, stage) == 0);
    }
    env_sim_note(w->env, 4, "cut at stage \"%s\"", stage);
}

/* The disk that was the last to answer a durable write, if others were still at work. */
static uint32_t ahead_now(const struct world *w) {
    uint32_t first = 0, busy = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        bool later =
            sim_disk_last_durable_ns(w->disks[i]) > sim_disk_last_durable_ns(w->disks[first]);
        first = later ? i : first;
        busy |= sim_disk_outstanding(w->disks[i]) > 0 ? 1u << i : 0;
    }
    return (busy & ~(1u << first)) != 0 ? 1u << first : 0;
}

static void world_crashed(struct world *w) {
    crash_count(w);
    w->ahead_at_cut = ahead_now(w);
    uint64_t boundaries = env_sim_boundaries(w->env);
    bool again = boundaries - w->boundaries_last_cut < 200 && w->boundaries_last_cut != 0;
    world_count(w, STAT_crash_again, again);
    w->boundaries_last_cut = boundaries;
    world_count(w, STAT_crashes, 1);
    env_sim_power_cut(w->env);
    control_crashed(w);
    mem_scope_drop(&w->scope);
    w->engine = NULL;
    /* What it had given up need not be durable yet; the next import tells. */
    w->suspect |= w->missing & ~w->missing_durable;
    w->missing = w->missing_durable;
    w->closing = false;
    w->crashed_before = true;
    w->closed_clean = false;
    workload_forget(w, false);
    memset(&w->counted, 0, sizeof(w->counted));
}

/* True when the world goes on and the predicate holds (or time was allowed to pass). */
bool world_wait(struct world *w, bool (*until)(void *ctx), void *ctx, uint64_t deadline_ns,
                bool may_idle) {
    if (!world_goes_on(w)) {
        return false;
    }
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    enum sim_stop stop = env_sim_run_until(w->env, deadline_ns, until, ctx);
    mem_scope_enter(outer);
    if (stop == SIM_CUT) {
        world_crashed(w);
        return false;
    }
    if ((stop == SIM_DEADLINE || stop == SIM_IDLE) && !may_idle) {
        world_fail(w, "never answered: %s%s%s, %u requests in flight%s",
                   w->control.active ? "control " : "",
                   w->control.active ? control_name(w->control.kind) : "requests",
                   w->control.active && w->control.done ? " (done)" : "", w->in_flight,
                   stop == SIM_IDLE ? ", nothing left to happen" : "");
    }
    return world_goes_on(w);
}

void world_let_pass(struct world *w, uint64_t ns) {
    (void)world_wait(w, NULL, NULL, env_now_ns(w->env) + ns, true);
}

static bool nothing_in_flight(void *ctx) {
    return ((struct world *)ctx)->in_flight == 0;
}

bool world_drain(struct world *w) {
    return world_wait(w, nothing_in_flight, w, env_now_ns(w->env) + ANSWER_NS, false);
}

/* ---- the engine's life ---- */

static void all_paths(struct world *w, struct control *c, uint32_t absent) {
    c->path_count = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        if ((absent >> i & 1) == 0) {
            c->paths[c->path_count++] = sim_disk_path(w->disks[i]);
        }
    }
}

static void paths_shuffle(struct world *w, struct control *c) {
    if (rng_chance(&w->rng, 1, 3)) {
        return;
    }
    if (c->kind == CONTROL_IMPORT && rng_chance(&w->rng, 1, 4)) {
        c->paths[c->path_count++] = sim_disk_path(w->stranger);
    }
    for (uint32_t i = c->path_count; i > 1; i--) {
        uint64_t j = rng_below(&w->rng, i);
        const char *path = c->paths[i - 1];
        c->paths[i - 1] = c->paths[j];
        c->paths[j] = path;
    }
    world_count(w, STAT_imports_paths_shuffled, c->kind == CONTROL_IMPORT);
}

/* Member i is the disk at path i. */
static void members_note(struct world *w, const struct control *c) {
    for (uint32_t i = 0; i < c->path_count; i++) {
        for (uint32_t d = 0; d < w->disk_count; d++) {
            if (strcmp(c->paths[i], sim_disk_path(w->disks[d])) == 0) {
                w->member_disk[i] = d;
            }
        }
    }
}

/* Cables change places between two imports. */
static void paths_swap(struct world *w) {
    struct sim_disk *a = w->disks[rng_below(&w->rng, w->disk_count)];
    struct sim_disk *b = w->disks[rng_below(&w->rng, w->disk_count)];
    char path_a[64], path_b[64];
    (void)snprintf(path_a, sizeof(path_a), "%s", sim_disk_path(a));
    (void)snprintf(path_b, sizeof(path_b), "%s", sim_disk_path(b));
    sim_disk_set_path(a, path_b);
    sim_disk_set_path(b, path_a);
}

static bool world_create_pool(struct world *w) {
    for (int try = 0; try < CREATE_TRIES && world_goes_on(w); try++) {
        struct control c = {.kind = CONTROL_CREATE_POOL};
        all_paths(w, &c, 0);
        paths_shuffle(w, &c);
        if (try == 0 && rng_chance(&w->rng, 1, 6)) {
            env_sim_arm_cut(w->env, rng_between(&w->rng, 1, 60));
        }
        members_note(w, &c);
        control_start(w, c);
        if (control_wait(w)) {
            if (w->control.result != OK) {
                world_fail(w, "pool create: %s: %s", error_name(w->control.result),
                           w->control.err.text);
            }
            env_sim_arm_cut(w->env, 0);
            return world_goes_on(w);
        }
    }
    return false;
}

/* Something was written durably to a disk after it was given up: a superblock, as it is when one is
 * taken back, perhaps after we last looked. */
static bool may_be_back(const struct world *w) {
    for (uint32_t i = 0; i < w->disk_count; i++) {
        if ((w->missing >> i & 1) != 0 &&
            sim_disk_last_durable_ns(w->disks[i]) > w->given_up_ns[i]) {
            return true;
        }
    }
    return false;
}

/* An import that must be refused: with too few disks, or only with such as the pool has given up.
 */
static void import_in_vain(struct world *w) {
    uint32_t bad = faults_bad(w);
    uint32_t all = (1u << w->disk_count) - 1;
    if ((w->excused & ~w->missing_durable) != 0 || may_be_back(w)) {
        return; /* it may have given up more than we know, and then less is enough; or taken back */
    }
    uint32_t in_sync = (uint32_t)__builtin_popcount(all & ~w->missing);
    struct control c = {.kind = CONTROL_IMPORT};
    bool stale = w->missing != 0 && rng_chance(&w->rng, 1, 2);
    if (stale) {
        all_paths(w, &c, all & ~w->missing);
    } else {
        /* One vote too few even with the witness: 2 × (present + 1) < votes. */
        uint32_t present = in_sync < 2 ? 0 : (in_sync - 2) / 2;
        uint32_t keep = 0;
        for (uint32_t i = 0; i < w->disk_count && present > 0; i++) {
            if (((w->missing | bad) >> i & 1) == 0) {
                keep |= 1u << i;
                present--;
            }
        }
        all_paths(w, &c, all & ~keep);
    }
    bool disks_gone = false;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        disks_gone |= sim_disk_is_gone(w->disks[i]);
    }
    if (c.path_count == 0 || disks_gone) {
        return;
    }
    control_start(w, c);
    if (!control_wait(w)) {
        return;
    }
    if (w->control.result == OK) {
        world_fail(w, "an import of %u of %u disks (%s) succeeded", c.path_count, w->disk_count,
                   stale ? "all of them given up before" : "no majority");
        return;
    }
    world_count(w, stale ? STAT_refusals_stale : STAT_refusals_quorum, 1);
    env_sim_note(w->env, 2, "import refused: %s", w->control.err.text);
}

static void import_judge(struct world *w, uint32_t absent) {
    if (w->control.result != OK) {
        world_fail(w, "import refused with %u of %u disks, %u of them bad: %s: %s",
                   w->control.path_count, w->disk_count,
                   (uint32_t)__builtin_popcount(faults_bad(w)), error_name(w->control.result),
                   w->control.err.text);
        return;
    }
    w->engine = w->control.engine;
    world_count(w, w->closed_clean ? STAT_imports_clean : STAT_replays, 1);
    world_count(w, STAT_imports_exported, w->closed_clean && w->exported);
    world_count(w, STAT_imports_disk_absent, absent != 0);
    w->closed_clean = false;
    /* What an import says of a member is the truth, and durable. */
    for (uint32_t i = 0; i < w->disk_count; i++) {
        w->suspect_until_ns[i] = 0;
    }
    faults_poll(w);
    w->missing_durable = w->missing;
    control_reconcile(w);
}

static bool world_import(struct world *w) {
    for (int try = 0; try < IMPORTS_MAX && world_goes_on(w); try++) {
        if (w->crashed_before && rng_chance(&w->rng, 1, w->missing_durable != 0 ? 3 : 10)) {
            import_in_vain(w);
        }
        uint32_t absent = faults_absent(w);
        if (rng_chance(&w->rng, 1, 4)) {
            paths_swap(w);
        }
        struct control c = {.kind = CONTROL_IMPORT};
        all_paths(w, &c, absent);
        paths_shuffle(w, &c);
        bool cut = try + 2 < IMPORTS_MAX && rng_chance(&w->rng, 1, 5);
        if (cut) {
            uint64_t most = rng_chance(&w->rng, 1, 2) ? 40 : 400;
            env_sim_arm_cut(w->env, rng_between(&w->rng, 1, most));
        }
        control_start(w, c);
        if (control_wait(w)) {
            env_sim_arm_cut(w->env, 0);
            import_judge(w, absent);
            return world_goes_on(w);
        }
    }
    return false;
}

/* Whatever the closed engine kept is a leak: a pool may be opened and closed a thousand times. But
 * memory of I/Os that hang in a disk is kept until they come back. */
static void leaks_look(struct world *w) {
    uint32_t hanging = 0, kept = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        hanging += sim_disk_outstanding(w->disks[i]);
    }
    LIST_FOR_EACH(it, &w->scope.allocations) {
        kept++;
    }
    if (kept > 0 && hanging == 0) {
        world_fail(w, "the closed engine left %u allocations", kept);
    }
}

bool world_close(struct world *w, bool exported) {
    if (!control_wait(w)) {
        return false;
    }
    faults_poll(w);
    w->closing = true;
    control_start(w, (struct control){.kind = CONTROL_CLOSE, .exported = exported});
    bool went = control_wait(w) && world_drain(w);
    w->closing = false;
    if (!went) {
        return false;
    }
    if (w->control.result != OK) {
        world_fail(w, "close: %s: %s", error_name(w->control.result), w->control.err.text);
        return false;
    }
    w->engine = NULL;
    w->closed_clean = true;
    w->exported = exported;
    memset(&w->counted, 0, sizeof(w->counted));
    workload_forget(w, true);
    leaks_look(w);
    return world_goes_on(w);
}

static void world_check(struct world *w) {
    struct control c = {.kind = CONTROL_CHECK};
    all_paths(w, &c, 0);
    bool bad = faults_bad(w) != 0, harmed = false;
    control_start(w, c);
    if (!control_wait(w)) {
        return;
    }
    for (uint32_t v = 0; v < WORLD_VOLUMES_MAX; v++) {
        harmed |= w->volumes[v].state != VOL_NONE && w->volumes[v].harmed;
    }
    if (w->control.result != OK) {
        world_fail(w, "check: %s: %s", error_name(w->control.result), w->control.err.text);
    } else if (w->control.check.problems != 0 && !bad && !harmed &&
               w->control.check.volumes_sweeping == 0) {
        world_fail(w, "check found %" PRIu64 " problems in a pool that has none, first: %s",
                   w->control.check.problems, w->control.problem);
    } else if (w->control.check.problems == 0) {
        world_count(w, STAT_checks_clean, 1);
    }
}

/* ERR_BUSY: one is running. */
static int world_scrub(struct world *w) {
    struct errmsg ignored = {0};
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    int err = engine_scrub(w->engine, false, &ignored);
    mem_scope_enter(outer);
    return err;
}

/* What happens between phases. */
static void world_interlude(struct world *w) {
    if (rng_chance(&w->slow_rng, 1, 6)) {
        int err = world_scrub(w);
        (void)err;
    }
    if (w->moving && rng_chance(&w->move_rng, 1, 3)) {
        if (!control_wait(w)) {
            return;
        }
        moves_event(w);
    }
    switch (rng_below(&w->rng, 8)) {
    case 0:
        if (world_drain(w)) {
            world_let_pass(w, rng_between(&w->rng, 1, 40) * NS_PER_S);
        }
        break;
    case 1:
        if (rng_chance(&w->rng, 1, 3)) {
            env_sim_arm_cut(w->env, rng_between(&w->rng, 1, 300));
        }
        if (rng_chance(&w->rng, 1, 2) && !world_drain(w)) {
            break;
        }
        if (world_close(w, rng_chance(&w->rng, 1, 2))) {
            env_sim_arm_cut(w->env, 0);
            if (rng_chance(&w->rng, 1, 4)) {
                world_check(w);
            }
        }
        break;
    case 2:
        workload_verify(w, false);
        break;
    default:
        break;
    }
}

static void world_serve(struct world *w) {
    if (w->slow) {
        if (world_import(w)) {
            slow_run(w);
        }
        return;
    }
    /* A world in which little is possible any more (a pool that is full, say) ends as well. */
    for (int phase = 0; world_goes_on(w) && w->ops_answered < w->ops_target && phase < PHASES_MAX;
         phase++) {
        if (w->engine == NULL && !world_import(w)) {
            return;
        }
        workload_phase(w);
        if (w->engine != NULL && world_goes_on(w)) {
            world_interlude(w);
        }
        faults_poll(w);
    }
}

static bool scrub_has_ended(void *ctx) {
    struct world *w = ctx;
    struct engine_scrub_status st;
    engine_scrub_status(w->engine, &st);
    return !st.running;
}

/* False: the world is over, or a scrub never is. */
static bool scrub_wait(struct world *w) {
    if (!world_wait(w, scrub_has_ended, w, env_now_ns(w->env) + 4000 * NS_PER_S, true)) {
        return false;
    }
    if (!scrub_has_ended(w)) {
        world_fail(w, "a scrub of an idle pool does not end");
        return false;
    }
    faults_poll(w);
    return world_goes_on(w);
}

static bool any_is_harmed(const struct world *w) {
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        if (w->volumes[i].state != VOL_NONE && w->volumes[i].harmed) {
            return true;
        }
    }
    return false;
}

/* Idle, and whole, whatever disks it has lost before; and a scrub that is under way has ended: what
 * is to be damaged must not be behind it already. */
static bool is_ready_for_scrub(struct world *w) {
    if (w->slow || w->ruin || any_is_harmed(w) || (w->engine == NULL && !world_import(w)) ||
        !control_wait(w) || !world_drain(w)) {
        return false;
    }
    for (int i = 0; i < SCRUB_WAITS && faults_bad(w) != 0 && world_goes_on(w); i++) {
        world_let_pass(w, 20 * NS_PER_S);
        faults_poll(w);
    }
    return world_goes_on(w) && scrub_wait(w) && faults_bad(w) == 0 && !any_is_harmed(w);
}

/* A disk holds wrong content: a scrub must find it, and leave nothing for a check to find. What it
 * could not look at it must say; then it is begun again, for no disk is late for ever. */
static void world_prove_scrub(struct world *w) {
    struct engine_scrub_status st = {.skipped_columns = 1};
    if (!is_ready_for_scrub(w)) {
        return;
    }
    bool damaged = faults_rot(w);
    for (int try = 0; try < SCRUB_TRIES && st.skipped_columns > 0; try++) {
        int err = world_scrub(w);
        if (err != OK) {
            world_fail(w, "a scrub cannot begin: %s", error_name(err));
        }
        if (!scrub_wait(w)) {
            return;
        }
        engine_scrub_status(w->engine, &st);
    }
    if (w->lost == 0 && (!st.complete || st.skipped_columns > 0)) {
        world_fail(w, "a scrub %s, with nothing missing",
                   st.complete ? "leaves columns out" : "is not complete");
    }
    bool sound = !any_is_harmed(w);
    if (!world_close(w, false) || w->lost != 0 || !sound) {
        return;
    }
    struct control c = {.kind = CONTROL_CHECK};
    all_paths(w, &c, 0);
    control_start(w, c);
    if (control_wait(w) && (w->control.result != OK || (w->control.check.problems != 0 &&
                                                        w->control.check.volumes_sweeping == 0))) {
        world_fail(w, "after a scrub check found %" PRIu64 " problems, first: %s",
                   w->control.check.problems, w->control.problem);
    }
    world_count(w, STAT_scrubs_proven, damaged && world_goes_on(w));
}

/* Everything is well again, everything is read, the pool is checked at rest, and read once more. */
static void world_end(struct world *w) {
    env_sim_arm_cut(w->env, 0);
    faults_end(w);
    w->faults = false;
    world_prove_scrub(w);
    faults_end(w);
    for (int round = 0; round < 2 && world_goes_on(w); round++) {
        if (w->engine == NULL && !world_import(w)) {
            /* world_import() cuts now and then, but not for ever */
            return;
        }
        if (!control_wait(w) || !world_drain(w)) {
            round--;
            continue;
        }
        workload_verify(w, true);
        if (world_close(w, round == 1)) {
            world_check(w);
        }
    }
}

static void world_free(struct world *w) {
    w->result->virtual_ns = env_now_ns(w->env);
    w->result->ops = w->ops_answered;
    w->result->trace_hash = env_sim_trace_hash(w->env);
    faults_count(w);
    for (uint32_t v = 0; v < WORLD_VOLUMES_MAX; v++) {
        oracle_volume_done(&w->volumes[v].oracle);
    }
    oracle_done(&w->oracle);
    workload_done(w);
    ruin_done(w);
    moves_done(w);
    env_sim_power_cut(w->env);
    mem_scope_drop(&w->scope);
    env_sim_free(w->env);
    mem_free(w);
}

void world_run(const struct world_options *options, struct world_result *ret_result) {
    memset(ret_result, 0, sizeof(*ret_result));
    struct world *w = MEM_NEW(struct world);
    w->options = *options;
    w->result = ret_result;
    world_draw(w);
    world_count(w, STAT_worlds, 1);
    world_count(w, STAT_worlds_cramped, w->cramped);
    world_count(w, STAT_worlds_slow, w->slow);
    if (world_create_pool(w)) {
        world_serve(w);
        if (world_goes_on(w)) {
            world_end(w);
        }
    }
    world_free(w);
}
