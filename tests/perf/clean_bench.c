// SPDX-License-Identifier: MPL-2.0
/* What cleaning costs, on modelled disks in virtual time: blocks written to segments for each block
 * that hosts write, in a pool as full as asked for; sequential writes into an aged pool that is
 * idle half of the time; random writes into an aged pool that is not.
 *
 * Scale. Chunks, rows and the limit of dirty data are small, so that a LUN of a few GiB has
 * thousands of chunks, as one of a TiB has with chunks of 64 MiB. `--factor` scales the disks'
 * capacity (seeks go by the fraction of the stroke). Rows are as tall as fills chunks well: 25
 * blocks in chunks of 256 lose as little as 64 in chunks of 16,384. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/fiber.h"
#include "model_rig.h"

enum { AGE_OVERWRITES = 2, HALF_SECONDS = 30 };

struct options {
    const char *tests, *disk;
    uint64_t lun_bytes, chunk_bytes, dirty_bytes, window_bytes;
    uint32_t full_pct, overwrites, cycles, factor;
    double seconds;
    enum profile profile;
};

struct cost { /* blocks */
    uint64_t host, data, refs, nodes, moved, ahead;
    uint64_t log_bytes, row_bytes, meta_bytes, disk_bytes;
};

static struct cost cost_read(struct model *m) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    struct engine_counters c;
    engine_status(m->world.engine, st);
    engine_counters(m->world.engine, &c);
    struct cost cost = {.host = st->write_bytes / BLOCK_BYTES,
                        .data = c.data_blocks,
                        .refs = c.ref_blocks,
                        .nodes = c.node_blocks,
                        .moved = c.cleaner_moved_blocks,
                        .ahead = c.cleaner_ahead_blocks,
                        .log_bytes = st->bytes_written_log,
                        .row_bytes = st->bytes_written_rows,
                        .meta_bytes = st->bytes_written_meta};
    for (uint32_t d = 0; d < st->disk_count; d++) {
        cost.disk_bytes += st->disks[d].counters.write_bytes;
    }
    mem_free(st);
    return cost;
}

static void cost_print(const struct cost *a, const struct cost *b) {
    double host = (double)MAX(b->host - a->host, (uint64_t)1);
    double bytes = host * BLOCK_BYTES;
    printf("    blocks to segments for each of a host: %.2f (its own %.2f, moved %.2f, of that "
           "ahead %.2f); nodes %.2f beside it\n",
           (double)(b->data - a->data + b->refs - a->refs + b->moved - a->moved) / host,
           (double)(b->data - a->data + b->refs - a->refs) / host,
           (double)(b->moved - a->moved) / host, (double)(b->ahead - a->ahead) / host,
           (double)(b->nodes - a->nodes) / host);
    printf("    bytes to disks for each of a host: %.2f (rows with parity and nodes %.2f, log "
           "%.2f, metadata %.2f)\n",
           (double)(b->disk_bytes - a->disk_bytes) / bytes,
           (double)(b->row_bytes - a->row_bytes) / bytes,
           (double)(b->log_bytes - a->log_bytes) / bytes,
           (double)(b->meta_bytes - a->meta_bytes) / bytes);
    (void)fflush(stdout);
}

/* What is live, with its parity, of all there is. */
static double live_pct(struct model *m) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    engine_status(m->world.engine, st);
    uint32_t disks = MODEL_DISKS;
    struct shape shape = profile_shape(m->profile, disks);
    double live = (double)st->live_blocks * BLOCK_BYTES * shape_columns(shape) / shape.data;
    double raw = (double)st->raw_bytes;
    mem_free(st);
    return live * 100 / raw;
}

static void setup(struct model *m, const struct options *o) {
    uint32_t disks = MODEL_DISKS;
    struct shape shape = profile_shape(o->profile, disks);
    m->factor = o->factor;
    m->profile = o->profile;
    m->lun_bytes = o->lun_bytes;
    m->geometry =
        (struct geometry){.chunk_blocks = (uint32_t)(o->chunk_bytes / BLOCK_BYTES),
                          .ring_blocks = (uint32_t)(8 * o->dirty_bytes / BLOCK_BYTES / 4),
                          .row_blocks = (uint32_t)MIN(o->chunk_bytes / BLOCK_BYTES / 10, 64u),
                          .node_blocks = 4};
    m->limits = (struct engine_limits){.read_cache_bytes = 4 << 20,
                                       .node_cache_bytes = o->lun_bytes / 64,
                                       .dirty_bytes = o->dirty_bytes,
                                       .reorder_bytes = o->window_bytes,
                                       .checkpoint_ms = 30000};
    /* Chunks that hold the LUN and its parity to so many per cent, and besides, the ring. */
    uint64_t each = o->lun_bytes / shape.data * shape_columns(shape) / MODEL_DISKS;
    uint64_t chunks = each * 100 / o->full_pct;
    model_birth(m, o->disk,
                round_up(chunks, o->chunk_bytes) + 3 * o->chunk_bytes +
                    (uint64_t)m->geometry.ring_blocks * BLOCK_BYTES);
    printf("pool: %s, LUN %" PRIu64 " MiB, chunks of %" PRIu64
           " KiB, %.1f %% of raw capacity live, "
           "with parity\n",
           profile_name(o->profile), o->lun_bytes >> 20, o->chunk_bytes >> 10, live_pct(m));
    (void)fflush(stdout);
}

static void overwrite(struct model *m, uint64_t seed, uint64_t blocks) {
    m->load = model_load_of(m, VOLUME_WRITE, 4096, 64, true);
    m->load.requests = blocks;
    m->load.seed = seed;
    model_run(m, model_load_fiber);
    if (m->result->failed > 0) {
        model_die("overwriting", error_text(m->result->first_error));
    }
}

/* ---- tests ---- */

static void amplify(struct model *m, const struct options *o) {
    setup(m, o);
    struct cost first = cost_read(m), last = first;
    for (uint32_t i = 1; i <= o->overwrites; i++) {
        struct cost before = last;
        overwrite(m, i, o->lun_bytes / BLOCK_BYTES);
        last = cost_read(m);
        printf("overwritten at random %u times\n", i);
        cost_print(&before, &last);
    }
    printf("all together\n");
    cost_print(&first, &last);
    model_death(m);
}

static double sequential(struct model *m, double seconds) {
    m->load = model_load_of(m, VOLUME_WRITE, 512 << 10, 16, false);
    m->load.time_ns = (uint64_t)(seconds * 1e9);
    model_run(m, model_load_fiber);
    return (double)m->result->bytes / 1e6 / ((double)m->result->elapsed_ns / 1e9);
}

static void rest_fiber(void *arg) {
    struct model *m = arg;
    fiber_sleep_until(env_now_ns(m->world.env) + HALF_SECONDS * NS_PER_S);
}

static void half_idle(struct model *m, const struct options *o) {
    struct options fresh = *o;
    fresh.full_pct = 20;
    setup(m, &fresh);
    double best = sequential(m, o->seconds);
    printf("sequential writes, fresh pool: %.0f MB/s\n", best);
    model_death(m);
    setup(m, o);
    overwrite(m, 7, o->lun_bytes / BLOCK_BYTES * AGE_OVERWRITES);
    double sum = 0;
    for (uint32_t i = 0; i < o->cycles; i++) {
        struct cost before = cost_read(m);
        double speed = sequential(m, HALF_SECONDS);
        struct cost after = cost_read(m);
        printf("cycle %u: %.0f MB/s, %.2f of fresh\n", i + 1, speed, speed / best);
        cost_print(&before, &after);
        sum += speed;
        model_run(m, rest_fiber);
    }
    printf("half idle: %.2f of fresh\n", sum / o->cycles / best);
    model_death(m);
}

static void aged(struct model *m, const struct options *o) {
    setup(m, o);
    overwrite(m, 7, o->lun_bytes / BLOCK_BYTES * AGE_OVERWRITES);
    struct cost before = cost_read(m);
    char more[64];
    m->load = model_load_of(m, VOLUME_WRITE, 4096, 32, true);
    m->load.time_ns = (uint64_t)(o->seconds * 1e9);
    m->load.seed = 8;
    (void)snprintf(more, sizeof(more), " full=%u", o->full_pct);
    model_figure(m, "aged-randwrite-qd32", more);
    struct cost after = cost_read(m);
    cost_print(&before, &after);
    model_death(m);
}

static struct volume_info lun_info(struct model *m) {
    struct volume_info info;
    if (engine_volume_find(m->world.engine, "lun", &info) != OK) {
        model_die("the LUN", "it is gone");
    }
    return info;
}

static void reorder_fiber(void *arg) {
    struct model *m = arg;
    struct errmsg e = {0};
    if (engine_checkpoint(m->world.engine) != OK ||
        engine_volume_reorder(m->world.engine, "lun", false, &e) != OK) {
        model_die("reorder", e.text);
    }
    while (lun_info(m).reordering) {
        fiber_sleep_until(env_now_ns(m->world.env) + NS_PER_S / 10);
    }
}

static void read_all(struct model *m, const char *name) {
    m->load = model_load_of(m, VOLUME_READ, 512 << 10, 16, false);
    m->load.requests = m->lun_bytes / m->load.request_bytes;
    m->load.time_ns = 120 * NS_PER_S;
    model_run(m, model_load_fiber);
    double seconds = (double)m->result->elapsed_ns / 1e9;
    printf("sequential read, %s: %.0f MB/s (%u extents a GiB)\n", name,
           (double)m->result->bytes / 1e6 / seconds, lun_info(m).extents_per_gib);
    (void)fflush(stdout);
}

/* What counts is how long the pieces are that a window finds in each of the runs that checkpoints
 * have left: window × half the dirty limit / LUN. That is what is said of a TiB with a limit of 256
 * MiB, where there are more pieces, nearer to each other. */
static void reorder(struct model *m, const struct options *o) {
    setup(m, o);
    read_all(m, "fresh");
    overwrite(m, 7, o->lun_bytes / BLOCK_BYTES * o->overwrites);
    model_reimport(m);
    read_all(m, "overwritten at random");
    struct cost before = cost_read(m);
    uint64_t start = env_now_ns(m->world.env);
    m->stages = (struct stages){0};
    m->measuring = true;
    model_run(m, reorder_fiber);
    m->measuring = false;
    double seconds = (double)(env_now_ns(m->world.env) - start) / 1e9;
    struct cost after = cost_read(m);
    double piece = (double)o->window_bytes * (double)o->dirty_bytes / 2 / (double)o->lun_bytes;
    printf("reorder: %.1f s of virtual time, %.1f MB/s; a TiB at that rate: %.1f h; pieces of %.0f "
           "KiB, as in a TiB with %.0f MiB of memory\n",
           seconds, (double)o->lun_bytes / 1e6 / seconds,
           seconds * (double)(1ull << 40) / (double)o->lun_bytes / 3600, piece / 1024,
           piece * 8192 / (1 << 20));
    printf("    bytes written to disks for each of the LUN: %.2f\n",
           (double)(after.disk_bytes - before.disk_bytes) / (double)o->lun_bytes);
    model_stages_print(&m->stages);
    read_all(m, "reordered");
    model_death(m);
}

/* ---- options ---- */

static const char usage[] =
    "clean_bench [--tests amplify,halfidle,aged,reorder] [--lun SIZE] [--chunk SIZE] [--dirty "
    "SIZE]\n"
    "            [--full PCT] [--overwrites N] [--cycles N] [--seconds VIRTUAL] [--factor N]\n"
    "            [--disk MODEL] [--profile P] [--window SIZE]\n";

static bool is_chosen(const struct options *o, const char *name) {
    char list[256], wanted[64];
    (void)snprintf(list, sizeof(list), ",%s,", o->tests);
    (void)snprintf(wanted, sizeof(wanted), ",%s,", name);
    return strstr(list, wanted) != NULL;
}

static bool parse(int argc, char **argv, struct options *o) {
    static const struct option options[] = {{"tests", required_argument, NULL, 't'},
                                            {"lun", required_argument, NULL, 'l'},
                                            {"chunk", required_argument, NULL, 'c'},
                                            {"dirty", required_argument, NULL, 'd'},
                                            {"full", required_argument, NULL, 'f'},
                                            {"overwrites", required_argument, NULL, 'o'},
                                            {"cycles", required_argument, NULL, 'y'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"factor", required_argument, NULL, 'F'},
                                            {"disk", required_argument, NULL, 'D'},
                                            {"profile", required_argument, NULL, 'p'},
                                            {"window", required_argument, NULL, 'w'},
                                            {NULL, 0, NULL, 0}};
    int c;
    bool good = true;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint32_t number = optarg == NULL ? 0 : (uint32_t)strtoul(optarg, NULL, 10);
        switch (c) {
        case 't':
            o->tests = optarg;
            break;
        case 'l':
            good &= size_parse(optarg, &o->lun_bytes) == OK;
            break;
        case 'c':
            good &= size_parse(optarg, &o->chunk_bytes) == OK;
            break;
        case 'w':
            good &= size_parse(optarg, &o->window_bytes) == OK;
            break;
        case 'd':
            good &= size_parse(optarg, &o->dirty_bytes) == OK;
            break;
        case 'f':
            o->full_pct = number;
            break;
        case 'o':
            o->overwrites = number;
            break;
        case 'y':
            o->cycles = number;
            break;
        case 's':
            o->seconds = strtod(optarg, NULL);
            break;
        case 'F':
            o->factor = number;
            break;
        case 'D':
            o->disk = optarg;
            break;
        case 'p':
            good &= profile_parse(optarg, &o->profile) == OK;
            break;
        default:
            good = false;
        }
    }
    return good && optind == argc && o->factor > 0 && o->full_pct > 0 && o->full_pct < 100;
}

int main(int argc, char **argv) {
    struct options o = {.tests = "amplify",
                        .disk = "hdd",
                        .lun_bytes = 4ull << 30,
                        .chunk_bytes = 1 << 20,
                        .dirty_bytes = 8 << 20,
                        .window_bytes = 8 << 20,
                        .full_pct = 80,
                        .overwrites = 5,
                        .cycles = 4,
                        .factor = 128,
                        .seconds = 30,
                        .profile = PROFILE_RAID5};
    if (!parse(argc, argv, &o)) {
        (void)fprintf(stderr, "%s", usage);
        return 2;
    }
    struct model *m = MEM_NEW(struct model);
    m->result = MEM_NEW(struct model_load_result);
    if (is_chosen(&o, "amplify")) {
        amplify(m, &o);
    }
    if (is_chosen(&o, "halfidle")) {
        half_idle(m, &o);
    }
    if (is_chosen(&o, "aged")) {
        aged(m, &o);
    }
    if (is_chosen(&o, "reorder")) {
        reorder(m, &o);
    }
    int status = m->status;
    mem_free(m->result);
    mem_free(m);
    return status;
}
