// SPDX-License-Identifier: MPL-2.0
/* The engine on modelled disks, in virtual time: what rotating disks make of it, whatever machine
 * this runs on; and what leaves of a tree cost.
 *
 * Scale. A pool of six disks that a LUN of 1 TiB fills by half is modelled smaller: its capacity,
 * the LUN, chunk, ring, limit of dirty data and caches are all divided by one factor. Seeks go by
 * the fraction of the stroke, rotation and transfer stay as they are (src/env/sim/rotation.c). So
 * what a checkpoint writes for each block stays the same, but the fixed times of a checkpoint (a
 * few rotations for superblocks) come `factor` times as often: figures at a smaller factor are
 * nearer to the truth, and if two factors agree the fixed times do not matter. Checkpoints that are
 * due by time alone come every 2 s: by the scale it would be 30 s divided by the factor; at 30 s a
 * sequential writer would be through half of a small LUN before the first chunk returns.
 *
 * Content is zeroes, which the simulated disks need not store; it is checksummed, logged and
 * protected like any other. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/fiber.h"
#include "env/sim/sim.h"
#include "load.h"

enum { DISKS = 6, REAL_CHUNK_BYTES = 64 << 20, REAL_RING_BYTES = 512 << 20, CHECKPOINT_MS = 2000 };
static const uint64_t real_lun_bytes = 1ull << 40, real_cache_bytes = 1ull << 30;

enum { STAGES_MAX = 16 };

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
    struct env *env;
    struct mem_scope scope;
    struct engine *engine;
    struct engine_limits limits;
    struct geometry geometry;
    char path[DISKS][16];
    const char *paths[DISKS];
    enum profile profile;
    uint64_t lun_bytes, volume;
    bool done;
    struct load_options load;
    struct load_result *result;
    int status;
};

static _Noreturn void die(const char *what, const char *why) {
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

static bool is_done(void *ctx) {
    struct model *m = ctx;
    if (m->engine != NULL && m->measuring) {
        stages_note(&m->stages, engine_stage(m->engine), env_now_ns(m->env));
    }
    return m->done;
}

static void stages_print(const struct stages *s) {
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

static void model_run(struct model *m, void (*fn)(void *arg)) {
    m->done = false;
    struct mem_scope *outer = mem_scope_enter(&m->scope);
    fiber_start(m->env, fn, m);
    enum sim_stop stop = env_sim_run_until(m->env, UINT64_MAX, is_done, m);
    mem_scope_enter(outer);
    if (stop != SIM_DONE) {
        die("the model", "nothing left to happen");
    }
}

static void import(struct model *m) {
    struct errmsg e = {0};
    struct engine_import_options options = {.pool = {.paths = m->paths, .path_count = DISKS},
                                            .limits = m->limits};
    if (engine_import(m->env, &options, NULL, NULL, &m->engine, &e) != OK) {
        die("import", e.text);
    }
}

static void import_fiber(void *arg) {
    struct model *m = arg;
    import(m);
    m->done = true;
}

static void load_fiber(void *arg) {
    struct model *m = arg;
    load_run(&m->load, m->result);
    m->done = true;
}

static struct load_options load_of(struct model *m, enum volume_op op, uint32_t bytes,
                                   uint32_t depth, bool random) {
    return (struct load_options){.env = m->env,
                                 .engine = m->engine,
                                 .volume_id = m->volume,
                                 .volume_bytes = m->lun_bytes,
                                 .op = op,
                                 .request_bytes = bytes,
                                 .depth = depth,
                                 .random = random,
                                 .zeroes = true};
}

static void birth_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    struct pool_options create = {.name = "model",
                                  .paths = m->paths,
                                  .path_count = DISKS,
                                  .geometry = m->geometry,
                                  .force = true};
    struct volume_options volume = {
        .name = "lun", .size_bytes = m->lun_bytes, .profile = m->profile};
    if (engine_create_pool(m->env, &create, &e) != OK) {
        die("create", e.text);
    }
    import(m);
    if (engine_volume_create(m->engine, &volume, &m->volume, &e) != OK) {
        die("volume", e.text);
    }
    m->load = load_of(m, VOLUME_WRITE, 512 << 10, 16, false);
    m->load.requests = m->lun_bytes / m->load.request_bytes;
    load_run(&m->load, m->result);
    if (m->result->failed > 0 || engine_checkpoint(m->engine) != OK) {
        die("filling the LUN", error_text(m->result->first_error));
    }
    m->done = true;
}

static void close_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    if (engine_close(m->engine, false, env_now_ns(m->env) + 600 * NS_PER_S, &e) != OK) {
        die("close", e.text);
    }
    m->done = true;
}

static void reimport(struct model *m) {
    model_run(m, close_fiber);
    model_run(m, import_fiber);
}

static void birth(struct model *m, const char *disk, uint64_t disk_bytes) {
    struct env_sim_options options = {.seed = 1};
    if (m->trace != NULL) {
        options.trace = trace_line;
        options.trace_owner = m;
    }
    m->env = env_sim_new(&options);
    mem_scope_init(&m->scope);
    for (uint32_t i = 0; i < DISKS; i++) {
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
            die("disks", e.text);
        }
    }
    model_run(m, birth_fiber);
}

static void death(struct model *m) {
    mem_scope_drop(&m->scope);
    env_sim_free(m->env);
}

/* ---- tests ---- */

static void figure(struct model *m, const char *name, const char *more) {
    struct activity before, after;
    char labels[200];
    activity_read(m->engine, &before);
    m->stages = (struct stages){0};
    m->measuring = true;
    model_run(m, load_fiber);
    m->measuring = false;
    activity_read(m->engine, &after);
    after = activity_since(&after, &before);
    (void)snprintf(labels, sizeof(labels), "test=%s factor=%u disks=6-hdd profile=%s%s", name,
                   m->factor, profile_name(m->profile), more);
    figure_print(stdout, m->json, labels, m->result, &after, 0);
    if (!m->json) {
        stages_print(&m->stages);
    }
    m->status |= m->result->failed > 0;
}

static void random_write(struct model *m, const char *name, uint32_t depth, const char *more) {
    m->load = load_of(m, VOLUME_WRITE, 4096, depth, true);
    m->load.time_ns = (uint64_t)(m->seconds * 1e9);
    m->load.seed = depth;
    figure(m, name, more);
}

static void sequential(struct model *m, const char *name, enum volume_op op) {
    m->load = load_of(m, op, 512 << 10, 16, false);
    m->load.time_ns = (uint64_t)(m->seconds * 1e9);
    figure(m, name, "");
}

static void leaves_cached(struct model *m, const char *name) {
    struct engine_counters c;
    engine_counters(m->engine, &c);
    uint64_t all = c.tree_nodes * m->geometry.node_blocks * BLOCK_BYTES;
    uint64_t before = m->limits.node_cache_bytes;
    char more[64];
    m->limits.node_cache_bytes = all / 10;
    reimport(m);
    (void)snprintf(more, sizeof(more), " node_cache=%" PRIu64 "K_of_%" PRIu64 "K", all / 10240,
                   all / 1024);
    random_write(m, name, 32, more);
    m->limits.node_cache_bytes = before;
    reimport(m);
}

static uint64_t dirty_now(struct model *m) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    engine_status(m->engine, st);
    uint64_t dirty = st->dirty_bytes;
    mem_free(st);
    return dirty;
}

/* Cuts the power when there is as much dirty data as there was at most in a minute before. */
static void power_cut(struct model *m) {
    uint64_t most = 0, dirty = 0, start = env_now_ns(m->env);
    m->load = load_of(m, VOLUME_WRITE, 4096, 256, true);
    m->done = false;
    struct mem_scope *outer = mem_scope_enter(&m->scope);
    fiber_start(m->env, load_fiber, m);
    for (;;) {
        uint64_t now = env_now_ns(m->env);
        (void)env_sim_run_until(m->env, now + 5 * NS_PER_MS, is_done, m);
        dirty = dirty_now(m);
        bool peak = dirty * 100 >= m->limits.dirty_bytes * 98 || dirty * 100 >= most * 98;
        if (now > start + 60 * NS_PER_S && peak) {
            break;
        }
        most = MAX(most, dirty);
    }
    mem_scope_enter(outer);
    env_sim_power_cut(m->env);
    mem_scope_drop(&m->scope);
    start = env_now_ns(m->env);
    model_run(m, import_fiber);
    double took = (double)(env_now_ns(m->env) - start) / 1e9;
    printf(m->json ? "{\"test\": \"import-after-cut\", \"factor\": \"%u\", \"seconds\": %.3f, "
                     "\"dirty_mb\": %.2f, \"limit_mb\": %.2f}\n"
                   : "test=import-after-cut factor=%u\n    %.2f s of virtual time, %.1f MB were "
                     "dirty, the limit is %.1f MB\n",
           m->factor, took, (double)dirty / 1e6, (double)m->limits.dirty_bytes / 1e6);
}

static bool is_chosen(const struct model *m, const char *name) {
    char list[256], wanted[64];
    (void)snprintf(list, sizeof(list), ",%s,", m->tests);
    (void)snprintf(wanted, sizeof(wanted), ",%s,", name);
    return strcmp(m->tests, "all") == 0 || strstr(list, wanted) != NULL;
}

static void rotating(struct model *m) {
    uint64_t f = m->factor;
    m->geometry = (struct geometry){.chunk_blocks = (uint32_t)(REAL_CHUNK_BYTES / BLOCK_BYTES / f),
                                    .ring_blocks = (uint32_t)(REAL_RING_BYTES / BLOCK_BYTES / f),
                                    .row_blocks = 64,
                                    .node_blocks = 4};
    m->geometry.row_blocks = MIN(m->geometry.row_blocks, m->geometry.chunk_blocks);
    m->lun_bytes = real_lun_bytes / f;
    m->limits = (struct engine_limits){.read_cache_bytes = real_cache_bytes / f,
                                       .node_cache_bytes = m->lun_bytes / 64,
                                       .dirty_bytes = m->real_dirty_bytes / f,
                                       .checkpoint_ms = CHECKPOINT_MS};
    m->profile = PROFILE_RAID5;
    /* Half full: twice the LUN and its parity, on six disks. */
    birth(m, "hdd", round_up(m->lun_bytes * 2 / (DISKS - 1), BLOCK_BYTES));
    if (is_chosen(m, "seqread")) { /* before anything is overwritten */
        sequential(m, "seqread", VOLUME_READ);
    }
    if (is_chosen(m, "seqwrite")) {
        sequential(m, "seqwrite", VOLUME_WRITE);
    }
    if (is_chosen(m, "randwrite1")) {
        random_write(m, "randwrite-qd1", 1, "");
    }
    if (is_chosen(m, "randwrite32")) {
        random_write(m, "randwrite-qd32", 32, "");
    }
    if (is_chosen(m, "randwrite32cold")) {
        leaves_cached(m, "randwrite-qd32");
    }
    if (is_chosen(m, "import")) {
        power_cut(m);
    }
    death(m);
}

/* A LUN overwritten at random three times, on flash and not to scale: what its tree takes. */
static void leaves(struct model *m) {
    uint32_t factor = m->factor;
    m->factor = 1;
    m->geometry = (struct geometry){.node_blocks = 4};
    m->lun_bytes = m->leaves_lun_bytes;
    m->limits = (struct engine_limits){.node_cache_bytes = m->lun_bytes / 64};
    m->profile = PROFILE_SINGLE;
    birth(m, "nvme-plp", round_up(m->lun_bytes / 2, BLOCK_BYTES));
    uint64_t blocks = m->lun_bytes / BLOCK_BYTES;
    struct engine_counters c;
    m->load = load_of(m, VOLUME_WRITE, 4096, 256, true);
    for (int time = 0; time <= 3; time++) {
        if (time > 0) {
            m->load.requests = blocks;
            m->load.seed = (uint64_t)time;
            model_run(m, load_fiber);
            reimport(m);
            m->load.engine = m->engine;
        }
        engine_counters(m->engine, &c);
        double each = (double)(c.tree_nodes * 16384) / (double)blocks;
        printf(m->json ? "{\"test\": \"leaves\", \"lun_gib\": %.2f, \"overwritten\": %d, "
                         "\"bytes_a_block\": %.3f, \"nodes\": %" PRIu64 ", \"gib_a_tib\": %.3f}\n"
                       : "test=leaves lun_gib=%.2f overwritten=%d\n    %.2f bytes of tree for each "
                         "block of 4 KiB, %" PRIu64 " nodes; extrapolated to 1 TiB: %.2f GiB\n",
               (double)m->lun_bytes / (1 << 30), time, each, c.tree_nodes,
               each * 268435456 / (1 << 30));
        (void)fflush(stdout);
    }
    m->status |= m->result->failed > 0;
    death(m);
    m->factor = factor;
}

/* ---- options ---- */

static const char usage[] =
    "model_bench [--factor N] [--seconds VIRTUAL] [--dirty REAL_SIZE] [--leaves-lun SIZE] "
    "[--json]\n"
    "            [--trace FILE]\n"
    "            [--tests all|seqread,seqwrite,randwrite1,randwrite32,randwrite32cold,import,"
    "leaves]\n";

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"factor", required_argument, NULL, 'f'},     {"seconds", required_argument, NULL, 's'},
        {"dirty", required_argument, NULL, 'd'},      {"tests", required_argument, NULL, 't'},
        {"leaves-lun", required_argument, NULL, 'l'}, {"json", no_argument, NULL, 'j'},
        {"trace", required_argument, NULL, 'T'},      {NULL, 0, NULL, 0}};
    struct model *m = MEM_NEW(struct model);
    m->factor = 256;
    m->seconds = 600;
    m->tests = "all";
    m->real_dirty_bytes = 256 << 20;
    m->leaves_lun_bytes = 2ull << 30;
    m->result = MEM_NEW(struct load_result);
    int c;
    bool good = true;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            m->factor = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            m->seconds = strtod(optarg, NULL);
            break;
        case 'd':
            good = size_parse(optarg, &m->real_dirty_bytes) == OK && good;
            break;
        case 'l':
            good = size_parse(optarg, &m->leaves_lun_bytes) == OK && good;
            break;
        case 't':
            m->tests = optarg;
            break;
        case 'T':
            m->trace = fopen(optarg, "w");
            good = m->trace != NULL && good;
            break;
        case 'j':
            m->json = true;
            break;
        default:
            good = false;
        }
    }
    if (!good || optind < argc || m->factor == 0 || m->factor > 512 || m->seconds <= 0) {
        (void)fprintf(stderr, "%s", usage);
        return 2;
    }
    if (strcmp(m->tests, "leaves") != 0) {
        rotating(m);
    }
    if (is_chosen(m, "leaves")) {
        leaves(m);
    }
    int status = m->status;
    if (m->trace != NULL && fclose(m->trace) != 0) {
        die("the trace", "it cannot be written");
    }
    mem_free(m->result);
    mem_free(m);
    return status;
}
