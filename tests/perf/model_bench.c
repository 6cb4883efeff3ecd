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
#include "model_rig.h"

enum { REAL_CHUNK_BYTES = 64 << 20, REAL_RING_BYTES = 512 << 20, CHECKPOINT_MS = 2000 };
static const uint64_t real_lun_bytes = 1ull << 40, real_cache_bytes = 1ull << 30;

/* ---- tests ---- */

static void random_write(struct model *m, const char *name, uint32_t depth, const char *more) {
    m->load = model_load_of(m, VOLUME_WRITE, 4096, depth, true);
    m->load.time_ns = (uint64_t)(m->seconds * 1e9);
    m->load.seed = depth;
    model_figure(m, name, more);
}

static void sequential(struct model *m, const char *name, enum volume_op op) {
    m->load = model_load_of(m, op, 512 << 10, 16, false);
    m->load.time_ns = (uint64_t)(m->seconds * 1e9);
    model_figure(m, name, "");
}

static void leaves_cached(struct model *m, const char *name) {
    struct engine_counters c;
    engine_counters(m->world.engine, &c);
    uint64_t all = c.tree_nodes * m->geometry.node_blocks * BLOCK_BYTES;
    uint64_t before = m->limits.node_cache_bytes;
    char more[64];
    m->limits.node_cache_bytes = all / 10;
    model_reimport(m);
    (void)snprintf(more, sizeof(more), " node_cache=%" PRIu64 "K_of_%" PRIu64 "K", all / 10240,
                   all / 1024);
    random_write(m, name, 32, more);
    m->limits.node_cache_bytes = before;
    model_reimport(m);
}

static uint64_t dirty_now(struct model *m) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    engine_status(m->world.engine, st);
    uint64_t dirty = st->dirty_bytes;
    mem_free(st);
    return dirty;
}

/* Cuts the power when there is as much dirty data as there was at most in a minute before. */
static void power_cut(struct model *m) {
    uint64_t most = 0, dirty = 0, start = env_now_ns(m->world.env);
    m->load = model_load_of(m, VOLUME_WRITE, 4096, 256, true);
    m->world.done = false;
    struct mem_scope *outer = mem_scope_enter(&m->world.scope);
    fiber_start(m->world.env, model_load_fiber, m);
    for (;;) {
        uint64_t now = env_now_ns(m->world.env);
        (void)env_sim_run_until(m->world.env, now + 5 * NS_PER_MS, NULL, NULL);
        dirty = dirty_now(m);
        bool peak = dirty * 100 >= m->limits.dirty_bytes * 98 || dirty * 100 >= most * 98;
        if (now > start + 60 * NS_PER_S && peak) {
            break;
        }
        most = MAX(most, dirty);
    }
    mem_scope_enter(outer);
    env_sim_power_cut(m->world.env);
    mem_scope_drop(&m->world.scope);
    start = env_now_ns(m->world.env);
    model_run(m, model_import_fiber);
    double took = (double)(env_now_ns(m->world.env) - start) / 1e9;
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
    model_birth(m, "hdd", round_up(m->lun_bytes * 2 / (MODEL_DISKS - 1), BLOCK_BYTES));
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
    model_death(m);
}

/* A LUN overwritten at random three times, on flash and not to scale: what its tree takes. */
static void leaves(struct model *m) {
    uint32_t factor = m->factor;
    m->factor = 1;
    m->geometry = (struct geometry){.node_blocks = 4};
    m->lun_bytes = m->leaves_lun_bytes;
    m->limits = (struct engine_limits){.node_cache_bytes = m->lun_bytes / 64};
    m->profile = PROFILE_SINGLE;
    model_birth(m, "nvme-plp", round_up(m->lun_bytes / 2, BLOCK_BYTES));
    uint64_t blocks = m->lun_bytes / BLOCK_BYTES;
    struct engine_counters c;
    m->load = model_load_of(m, VOLUME_WRITE, 4096, 256, true);
    for (int time = 0; time <= 3; time++) {
        if (time > 0) {
            m->load.requests = blocks;
            m->load.seed = (uint64_t)time;
            model_run(m, model_load_fiber);
            model_reimport(m);
            m->load.door = engine_door(m->world.engine);
        }
        engine_counters(m->world.engine, &c);
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
    model_death(m);
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
    m->result = MEM_NEW(struct model_load_result);
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
        model_die("the trace", "it cannot be written");
    }
    mem_free(m->result);
    mem_free(m);
    return status;
}
