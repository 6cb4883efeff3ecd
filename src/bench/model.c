// SPDX-License-Identifier: MPL-2.0
/* Predicting what an array does: a whole one in virtual time.
 *
 * What runs. Holdfast is its own engine, unchanged: log, overlay, checkpoints, cleaner, map, trees,
 * parity. It sees modelled disks (env/sim) through the environment as it would see real ones. The
 * classic array is a model (inplace.c). Both answer at a volume door; in front of it run the SCSI
 * device server and the iSCSI target, unchanged too, and over simulated cables an initiator
 * (link.c); in front of that a client keeps `depth` requests under way (model_load.c). What only
 * prepares (filling, overwriting) goes to the array's door at once.
 *
 * Scale. Disks, span, memory, chunks and rings are all made smaller by one factor, so that hours
 * fit into seconds. Seeks go by the fraction of the stroke, turns and transfers stay what they are
 * (env/sim/rotation.c), so an I/O takes as long as on the full disk. What does not scale is what
 * comes once a checkpoint, which comes `factor` times as often: figures of a smaller factor are
 * nearer to the truth, and where two factors agree it does not matter. Each figure has its factor.
 *
 * Order. Fill the span in order; [lose a disk]; read in order (512 KiB, 512 B), read at random;
 * write in order, write at random; overwrite at random until each block has been once, on average;
 * read in order; [Holdfast: put it in order; read in order]. The aged pool is another world: small
 * disks, filled to 70 %, 60 % of that overwritten at random (so that the cleaner has work), then
 * written once from front to end.
 *
 * While rebuilding each corner has a rebuild of its own: a disk is lost, another put in its place,
 * and the load runs until all is redundant again, or its time is over. Only what the volume takes
 * is rebuilt, by both arrays, in at most 30 % of the time.
 *
 * Content is zeroes, which modelled disks need not store; the engine checksums, logs and protects
 * them like anything else. */
#include "bench/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/inplace.h"
#include "bench/model_load.h"
#include "bench/model_world.h"
#include "env/fiber.h"

#define MIB (1ull << 20)

enum {
    FILL_BYTES = 512 << 10,
    FILL_DEPTH = 16,
    OVERWRITE_DEPTH = 32,
    REAL_CHUNK_BYTES = 64 << 20,
    REAL_RING_BYTES = 512 << 20,
    REAL_REORDER_BYTES = 512 << 20,
    ROW_BLOCKS = 64,
    NODE_BLOCKS = 4,
    CHECKPOINT_MS = 30000,
    SECONDS_ROTATING = 20,
    SECONDS_FLASH = 4,
    LOSS_SETTLES_S = 15, /* a disk that is gone is noticed within four seconds */
    LOOK_MS = 50,
    RAMP_PART = 4, /* of a test's time */
    REBUILD_SHARE_PCT = 30,
};

/* A disk's write cache shrinks with everything else, but not below what lets writes follow each
 * other without losing a turn. */
static const uint32_t disk_cache_scale_max = 16;
static const uint32_t chunk_blocks_min = 64, ring_blocks_min = 256, checkpoint_ms_min = 2000;

/* The span a run works on when the factor is chosen for it. */
static const uint64_t span_worked_on_bytes = 320 * MIB;
static const uint64_t aged_raw_bytes = 2048 * MIB;
enum { AGED_FULL_PCT = 70, AGED_OVERWRITTEN_PCT = 60, AGED_CHUNK_BLOCKS = 256 };

static const struct {
    const char *name, *text;
    enum volume_op op;
    uint32_t bytes;
    bool random;
    enum bench_unit unit;
} tests[MODEL_TESTS] = {
    [MODEL_SEQ_READ_512B] = {"seq-read-512b", "512 B sequential read", VOLUME_READ, 512, false,
                             BENCH_IOPS},
    [MODEL_RAND_READ_4K] = {"rand-read-4k", "4 KiB random read", VOLUME_READ, 4096, true,
                            BENCH_IOPS},
    [MODEL_RAND_WRITE_4K] = {"rand-write-4k", "4 KiB random write", VOLUME_WRITE, 4096, true,
                             BENCH_IOPS},
    [MODEL_SEQ_WRITE_512K] = {"seq-write-512k", "512 KiB sequential write", VOLUME_WRITE, 512 << 10,
                              false, BENCH_MB_S},
    [MODEL_SEQ_READ_512K] = {"seq-read-512k", "512 KiB sequential read", VOLUME_READ, 512 << 10,
                             false, BENCH_MB_S},
    [MODEL_READ_OVERWRITTEN] = {"seq-read-512k-overwritten",
                                "512 KiB sequential read right after random overwrites",
                                VOLUME_READ, 512 << 10, false, BENCH_MB_S},
    [MODEL_READ_REORDERED] = {"seq-read-512k-reordered",
                              "512 KiB sequential read when that was put in order", VOLUME_READ,
                              512 << 10, false, BENCH_MB_S},
    [MODEL_REBUILD] = {"rebuild", "rebuild of a disk beside the corners (median)", VOLUME_WRITE, 0,
                       false, BENCH_MB_S},
    [MODEL_WRITE_AGED] = {"seq-write-512k-aged", "512 KiB sequential write into an aged pool",
                          VOLUME_WRITE, 512 << 10, false, BENCH_MB_S},
};

const char *const model_caveats[] = {
    "Processors take no time, but for one command after the other at the target (31 us each, what "
    "Holdfast's own takes). Checksums, parity and copies are free: on flash and fast links the "
    "figures are too good.",
    "Links lose nothing. The iSCSI target, the SCSI device server and an initiator really talk "
    "over "
    "them; TCP is a window, a rate and headers, without acknowledgements, loss and congestion.",
    "Flash collects no garbage beyond its tail of slow commands: it writes at random as fast as in "
    "order, for ever. Disks do not age, retry or vibrate.",
    "The classic array acknowledges from memory that a power cut would empty, pays for no journal "
    "or bitmap, and never synchronises. Holdfast's writes are on two disks when they are "
    "acknowledged (one where there is one).",
    "A factor of n: disks, span and memory were n times smaller than what is predicted. An I/O "
    "takes "
    "as long as on the full disk, but a checkpoint's fixed costs come n times as often, so that "
    "Holdfast is slightly too slow.",
    "The aged pool is one of small disks: its cleaner's work is to scale, seeks between its small "
    "chunks are more than on a real one.",
    NULL};

const char *model_test_name(enum model_test test) {
    return tests[test].name;
}

const char *model_test_text(enum model_test test) {
    return tests[test].text;
}

/* ---- a world ---- */

_Static_assert(ARRAY_COUNT(((struct bench_disk_list *)NULL)->disks) <= MODEL_WORLD_DISKS_MAX,
               "every list of disks must fit into a world");

struct model {
    const struct model_options *options;
    enum model_system system;
    uint64_t factor;
    uint64_t span_bytes, disk_bytes[MODEL_WORLD_DISKS_MAX];
    struct geometry geometry;
    struct engine_limits limits;
    uint64_t time_ns;
    struct model_world world;
    /* In its scope. */
    struct inplace *inplace;
    struct link *link;
    struct volume_door *door;       /* behind the link */
    struct model_load_result *load; /* of the last load */
    /* Results. */
    struct bench_document *document;
    uint64_t written_at_random;
    /* Of the rebuild that runs, and of all. */
    enum model_load_phase rebuild_phase;
    int rebuild_error;
    uint32_t rebuilt, victim; /* the disk to be lost next */
    double rebuild_mb_s[MODEL_CORNERS];
    int error;
    struct errmsg *reterr;
};

static bool wants(const struct model *m, enum model_test test) {
    return (m->options->tests == 0 ? MODEL_ALL_TESTS : m->options->tests) & 1u << test;
}

static void say(const struct model *m, const char *what) {
    if (m->options->progress != NULL) {
        m->options->progress(m->options->progress_owner, what);
    }
}

/* ---- loads ---- */

static struct model_load load_of(const struct model *m, enum volume_op op, uint32_t bytes,
                                 uint32_t depth, bool random) {
    return (struct model_load){.door = m->door,
                               .volume_id = m->world.volume,
                               .span_bytes = m->span_bytes,
                               .op = op,
                               .request_bytes = bytes,
                               .depth = depth,
                               .random = random,
                               .seed = m->options->seed + bytes + (uint32_t)op * 7};
}

static int load_run(struct model *m, const struct model_load *load, const char *what) {
    model_load_run(load, m->load);
    if (m->load->failed > 0) {
        return errmsg_set(m->reterr, m->load->first_error, "the modelled array failed at %s: %s",
                          what, error_text(m->load->first_error));
    }
    return OK;
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The slowest tenth of the time beside the middle one. */
static double steadiness(const struct model_load_result *r) {
    uint64_t windows[MODEL_WINDOWS];
    memcpy(windows, r->window, sizeof(windows));
    qsort(windows, r->windows, sizeof(windows[0]), compare_u64);
    uint64_t middle = windows[r->windows / 2];
    return r->windows == 0 || middle == 0 ? 0 : (double)windows[0] / (double)middle;
}

static void figure(struct model *m, enum model_test test) {
    const struct model_load_result *r = m->load;
    /* The document outlives the world. */
    struct mem_scope *scope = mem_scope_enter(NULL);
    struct bench_result *result = bench_document_add(m->document);
    double seconds = (double)r->elapsed_ns / 1e9;
    (void)snprintf(result->test, sizeof(result->test), "%s", tests[test].name);
    result->unit = tests[test].unit;
    result->queue_depth = m->options->depth;
    result->block_bytes = tests[test].bytes;
    result->factor = (uint32_t)m->factor;
    result->run_count = 1;
    result->runs[0] = seconds <= 0                 ? 0
                      : result->unit == BENCH_IOPS ? (double)r->requests / seconds
                                                   : (double)r->bytes / 1e6 / seconds;
    bench_result_settle(result);
    bench_histogram_report(&r->latencies, result);
    result->steady = steadiness(r);
    mem_scope_enter(scope);
}

/* ---- making an array ---- */

static int settle(struct model *m) {
    if (m->world.engine != NULL) {
        int error = engine_checkpoint(m->world.engine);
        return error == OK ? OK : errmsg_set(m->reterr, error, "a checkpoint failed");
    }
    inplace_settle(m->inplace);
    return OK;
}

static int fill(struct model *m) {
    if (m->system == MODEL_BARE) {
        return OK;
    }
    say(m, "filling");
    struct model_load load = load_of(m, VOLUME_WRITE, FILL_BYTES, FILL_DEPTH, false);
    load.requests = m->span_bytes / FILL_BYTES;
    int error = load_run(m, &load, "filling the volume");
    return error == OK ? settle(m) : error;
}

static int birth_engine(struct model *m) {
    int error = model_world_create(&m->world, &m->geometry, m->reterr);
    if (error == OK) {
        error = model_world_import(&m->world, &m->limits, m->reterr);
    }
    if (error == OK && m->span_bytes == 0) { /* the aged pool: as much as fills it so far */
        struct engine_status *status = MEM_NEW(struct engine_status);
        engine_status(m->world.engine, status);
        struct shape shape = profile_shape(m->options->profile, m->options->disks.count);
        m->span_bytes = round_down(status->usable_bytes / 100 * AGED_FULL_PCT * shape.data /
                                       shape_columns(shape),
                                   FILL_BYTES);
        mem_free(status);
    }
    if (error == OK) {
        error = model_world_add_volume(&m->world, m->span_bytes, m->options->profile, m->reterr);
        m->door = engine_door(m->world.engine);
    }
    return error;
}

static int birth_inplace(struct model *m) {
    uint64_t memory = m->options->memory_bytes / m->factor;
    if (m->span_bytes == 0) {
        struct shape shape = profile_shape(m->options->profile, m->options->disks.count);
        m->span_bytes = round_down(m->disk_bytes[0] / 100 * AGED_FULL_PCT * shape.data, FILL_BYTES);
        memory = MAX(memory, 4 * m->limits.dirty_bytes);
    }
    bool bare = m->system == MODEL_BARE;
    struct inplace_options options = {.paths = m->world.paths,
                                      .path_count = m->options->disks.count,
                                      .profile = m->options->profile,
                                      .size_bytes = m->span_bytes,
                                      .write_back_bytes = bare ? 0 : memory / 4,
                                      .read_cache_bytes = bare ? 0 : memory / 2};
    int error = inplace_new(m->world.env, &options, &m->inplace, m->reterr);
    if (error == OK) {
        m->door = inplace_door(m->inplace);
    }
    return error;
}

static int birth(struct model *m) {
    int error = m->system == MODEL_HOLDFAST ? birth_engine(m) : birth_inplace(m);
    if (error == OK) {
        error = link_new(m->door, m->world.volume, m->span_bytes, &m->options->link, &m->link,
                         m->reterr);
    }
    return error == OK ? fill(m) : error;
}

/* ---- losing disks ---- */

static int check_loss(const struct model *m) {
    struct shape shape = profile_shape(m->options->profile, m->options->disks.count);
    return shape_losses(shape) > 0
               ? OK
               : errmsg_set(m->reterr, ERR_INVALID, "%s does not bear the loss of a disk",
                            profile_name(m->options->profile));
}

/* The last disk that holds some of it goes; the array notices, and goes on without. */
static int lose_disk(struct model *m) {
    say(m, "losing a disk");
    if (m->inplace != NULL) {
        struct shape shape = profile_shape(m->options->profile, m->options->disks.count);
        return inplace_lose(m->inplace, shape_columns(shape) - 1, m->reterr);
    }
    sim_disk_vanish(m->world.disks[m->options->disks.count - 1], true);
    fiber_sleep_until(env_now_ns(m->world.env) + LOSS_SETTLES_S * NS_PER_S);
    return settle(m);
}

/* Which member is at a path, in what state; and whether everything is redundant. */
struct look {
    uint32_t member;
    bool in_sync, is_whole;
    uint64_t rebuilt_bytes;
};

static void look(const struct model *m, const char *path, struct look *ret_look) {
    struct engine_status *status = mem_alloc(sizeof(*status));
    engine_status(m->world.engine, status);
    *ret_look = (struct look){.is_whole = status->rebuild.whole,
                              .rebuilt_bytes = status->bytes_written_rebuild};
    for (uint32_t i = 0; i < status->disk_count; i++) {
        const struct engine_disk_status *disk = &status->disks[i];
        if (disk->state != MEMBER_NONE && strcmp(disk->path, path) == 0) {
            ret_look->member = disk->member;
            ret_look->in_sync = disk->state == MEMBER_IN_SYNC;
        }
        /* One that is to leave goes when nothing is left on it. */
        ret_look->is_whole &= disk->state == MEMBER_NONE || disk->role != MEMBER_LEAVING;
    }
    mem_free(status);
}

static int make_disk(struct model *m, uint32_t place) {
    const struct sim_disk_options disk = {.model = m->options->disks.disks[place]->name,
                                          .size_bytes = m->disk_bytes[place],
                                          .scale = MIN((uint32_t)m->factor, disk_cache_scale_max)};
    return model_world_set_disk(&m->world, place, &disk, m->reterr);
}

/* A disk goes, and as soon as that is noticed there is another for it. */
static int replace_disk(struct model *m, uint32_t place) {
    struct look now;
    struct engine_disk_change change;
    sim_disk_vanish(m->world.disks[place], true);
    for (look(m, m->world.path[place], &now); now.in_sync; look(m, m->world.path[place], &now)) {
        fiber_sleep_until(env_now_ns(m->world.env) + LOOK_MS * NS_PER_MS);
    }
    int error = make_disk(m, place);
    struct engine_disk_add_options add = {.path = m->world.path[place], .force = true};
    return error == OK ? engine_disk_replace(m->world.engine, now.member, &add, &change, m->reterr)
                       : error;
}

/* Waits for the end of a rebuild that has begun; returns what was written for it. */
static uint64_t await_rebuild(struct model *m, uint32_t place) {
    struct look before, now;
    look(m, m->world.path[place], &before);
    for (now = before; !now.is_whole; look(m, m->world.path[place], &now)) {
        fiber_sleep_until(env_now_ns(m->world.env) + LOOK_MS * NS_PER_MS);
    }
    return now.rebuilt_bytes - before.rebuilt_bytes;
}

/* Beside a corner: lets it warm up, then loses a disk and waits until it is rebuilt. */
static void rebuild_fiber(void *arg) {
    struct model *m = arg;
    uint32_t place = m->victim++ % m->options->disks.count;
    uint64_t bytes = 0;
    int error = OK;
    fiber_sleep_until(env_now_ns(m->world.env) + m->time_ns / RAMP_PART);
    if (m->world.engine != NULL) {
        error = replace_disk(m, place);
    }
    uint64_t from_ns = env_now_ns(m->world.env);
    m->rebuild_phase = LOAD_COUNTS;
    if (m->world.engine == NULL) {
        error = inplace_rebuild(m->inplace, place, REBUILD_SHARE_PCT, &bytes, m->reterr);
    } else if (error == OK) {
        bytes = await_rebuild(m, place);
    }
    double seconds = (double)(env_now_ns(m->world.env) - from_ns) / 1e9;
    m->rebuild_mb_s[m->rebuilt++] = seconds > 0 ? (double)bytes / 1e6 / seconds : 0;
    m->rebuild_error = error;
    m->rebuild_phase = LOAD_IS_OVER;
}

static enum model_load_phase rebuild_phase(void *owner) {
    return ((const struct model *)owner)->rebuild_phase;
}

static void rebuild_begin(struct model *m, struct model_load *load) {
    m->rebuild_phase = LOAD_WARMS_UP;
    load->phase = rebuild_phase;
    load->owner = m;
    fiber_start(m->world.env, rebuild_fiber, m);
}

static int rebuild_wait(struct model *m) {
    while (m->rebuild_phase != LOAD_IS_OVER) {
        fiber_sleep_until(env_now_ns(m->world.env) + LOOK_MS * NS_PER_MS);
    }
    return m->rebuild_error;
}

/* A figure that no load made: the median of the rebuilds. */
static void rebuild_figure(struct model *m) {
    struct mem_scope *scope = mem_scope_enter(NULL);
    struct bench_result *result = bench_document_add(m->document);
    (void)snprintf(result->test, sizeof(result->test), "%s", tests[MODEL_REBUILD].name);
    result->unit = tests[MODEL_REBUILD].unit;
    result->factor = (uint32_t)m->factor;
    result->run_count = m->rebuilt;
    memcpy(result->runs, m->rebuild_mb_s, m->rebuilt * sizeof(m->rebuild_mb_s[0]));
    bench_result_settle(result);
    mem_scope_enter(scope);
}

/* ---- the order of things ---- */

/* One test through the link; `once`: until the span's end, else for the time. */
static int test_run(struct model *m, enum model_test test, bool once) {
    if (!wants(m, test)) {
        return OK;
    }
    say(m, tests[test].text);
    struct model_load load =
        load_of(m, tests[test].op, tests[test].bytes, m->options->depth, tests[test].random);
    load.door = link_door(m->link);
    load.time_ns = once ? 0 : m->time_ns;
    load.ramp_ns = once ? 0 : m->time_ns / RAMP_PART;
    load.requests = once ? m->span_bytes / load.request_bytes : 0;
    if (m->options->state == MODEL_REBUILDING) {
        rebuild_begin(m, &load);
    }
    int error = load_run(m, &load, tests[test].text);
    int failed = rebuild_wait(m);
    error = error == OK ? failed : error;
    if (error == OK) {
        figure(m, test);
        m->written_at_random += test == MODEL_RAND_WRITE_4K ? m->load->requests : 0;
    }
    return error;
}

static int overwrite(struct model *m, uint64_t requests) {
    struct model_load load = load_of(m, VOLUME_WRITE, BLOCK_BYTES, OVERWRITE_DEPTH, true);
    load.requests = requests;
    load.seed++;
    say(m, "overwriting at random");
    return requests == 0 ? OK : load_run(m, &load, "overwriting at random");
}

static int run_overwritten(struct model *m) {
    uint64_t blocks = m->span_bytes / BLOCK_BYTES;
    if (!wants(m, MODEL_READ_OVERWRITTEN) || m->system == MODEL_BARE) {
        return OK;
    }
    int error = overwrite(m, blocks - MIN(blocks, m->written_at_random));
    error = error == OK ? settle(m) : error;
    return error == OK ? test_run(m, MODEL_READ_OVERWRITTEN, false) : error;
}

/* Puts the volume in order, as `holdfast volume reorder` does, and waits until it is. */
static int run_reordered(struct model *m) {
    struct volume_info volume = {0};
    if (!wants(m, MODEL_READ_REORDERED) || m->world.engine == NULL) {
        return OK;
    }
    say(m, "putting it in order");
    int error = engine_volume_reorder(m->world.engine, MODEL_WORLD_VOLUME, false, m->reterr);
    do {
        fiber_sleep_until(env_now_ns(m->world.env) + NS_PER_S);
        error =
            error == OK ? engine_volume_find(m->world.engine, MODEL_WORLD_VOLUME, &volume) : error;
    } while (error == OK && volume.reordering);
    error = error == OK ? settle(m) : error;
    return error == OK ? test_run(m, MODEL_READ_REORDERED, false) : error;
}

static int run_corners(struct model *m) {
    static const enum model_test order[] = {MODEL_SEQ_READ_512K, MODEL_SEQ_READ_512B,
                                            MODEL_RAND_READ_4K, MODEL_SEQ_WRITE_512K,
                                            MODEL_RAND_WRITE_4K};
    int error = birth(m);
    if (error == OK && m->options->state != MODEL_WHOLE) {
        error = check_loss(m);
    }
    if (error == OK && m->options->state == MODEL_DEGRADED) {
        error = lose_disk(m);
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(order) && error == OK; i++) {
        if (m->system != MODEL_BARE || tests[order[i]].op == VOLUME_READ) {
            error = test_run(m, order[i], false);
        }
    }
    if (error == OK && m->rebuilt > 0) {
        rebuild_figure(m);
    }
    if (error != OK || m->options->state == MODEL_REBUILDING) {
        return error;
    }
    error = run_overwritten(m);
    return error == OK ? run_reordered(m) : error;
}

static int run_aged(struct model *m) {
    int error = birth(m);
    if (error == OK) {
        error = overwrite(m, m->span_bytes / BLOCK_BYTES / 100 * AGED_OVERWRITTEN_PCT);
    }
    return error == OK ? test_run(m, MODEL_WRITE_AGED, true) : error;
}

static void corners_fiber(void *arg) {
    struct model *m = arg;
    m->error = run_corners(m);
}

static void aged_fiber(void *arg) {
    struct model *m = arg;
    m->error = run_aged(m);
}

/* Makes the disks, runs `fiber` on them to its end, takes everything down. */
static int world_run(struct model *m, void (*fiber)(void *arg)) {
    int error = OK;
    model_world_init(&m->world, &(struct env_sim_options){.seed = m->options->seed + 1});
    m->inplace = NULL;
    m->rebuild_phase = LOAD_IS_OVER;
    for (uint32_t i = 0; i < m->options->disks.count && error == OK; i++) {
        error = make_disk(m, i);
    }
    if (error == OK) {
        error = model_world_run(&m->world, fiber, m) == OK
                    ? m->error
                    : errmsg_set(m->reterr, ERR_TIMEOUT, "the modelled array stands still");
    }
    model_world_drop(&m->world);
    return error;
}

/* ---- scale ---- */

static bool all_flash(const struct bench_disk_list *list) {
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->disks[i]->rotational) {
            return false;
        }
    }
    return true;
}

static void scale(struct model *m, uint64_t factor) {
    const struct model_options *o = m->options;
    m->factor = factor;
    uint64_t f = factor;
    for (uint32_t i = 0; i < o->disks.count; i++) {
        m->disk_bytes[i] = round_down(o->disks.disks[i]->capacity_bytes / f, BLOCK_BYTES);
    }
    m->geometry = (struct geometry){
        .chunk_blocks = MAX((uint32_t)(REAL_CHUNK_BYTES / BLOCK_BYTES / f), chunk_blocks_min),
        .ring_blocks = MAX((uint32_t)(REAL_RING_BYTES / BLOCK_BYTES / f), ring_blocks_min),
        .row_blocks = ROW_BLOCKS,
        .node_blocks = NODE_BLOCKS};
    m->limits = (struct engine_limits){.read_cache_bytes = o->memory_bytes / 2 / f,
                                       .node_cache_bytes = MAX(o->memory_bytes / 8 / f, MIB),
                                       .dirty_bytes = o->memory_bytes / 4 / f,
                                       .rebuild_share_pct = REBUILD_SHARE_PCT,
                                       .reorder_bytes = MAX(REAL_REORDER_BYTES / f, MIB),
                                       .checkpoint_ms =
                                           (uint32_t)MAX(CHECKPOINT_MS / f, checkpoint_ms_min)};
}

/* A pool that can be filled: its disks are smaller than by any factor that would be to scale. */
static void scale_aged(struct model *m) {
    uint64_t raw = 0;
    for (uint32_t i = 0; i < m->options->disks.count; i++) {
        raw += m->options->disks.disks[i]->capacity_bytes;
    }
    scale(m, MAX(raw / aged_raw_bytes, (uint64_t)1));
    m->geometry.chunk_blocks = AGED_CHUNK_BLOCKS;
    m->geometry.ring_blocks = 4 * AGED_CHUNK_BLOCKS;
    m->limits.read_cache_bytes = 8 * MIB;
    m->limits.node_cache_bytes = 8 * MIB;
    m->limits.dirty_bytes = 8 * MIB;
    m->span_bytes = 0; /* by what is usable */
}

static uint64_t factor_of(const struct model_options *o) {
    uint64_t factor = 1;
    while (o->factor == 0 && factor < 64 && o->span_bytes / factor > span_worked_on_bytes) {
        factor *= 2;
    }
    return o->factor == 0 ? factor : o->factor;
}

/* ---- the document ---- */

static void describe(const struct model *m) {
    static const char *const names[] = {"Holdfast", "classic array", "bare disks"};
    static const char *const states[] = {"", ", degraded", ", rebuilding"};
    const struct model_options *o = m->options;
    struct bench_document *d = m->document;
    (void)snprintf(d->machine.cpu, sizeof(d->machine.cpu), "none: a model in virtual time");
    (void)snprintf(d->target.kind, sizeof(d->target.kind), "model");
    (void)snprintf(d->target.address, sizeof(d->target.address), "%s, %s over %s%s", o->disks.text,
                   profile_name(o->profile), o->link.text, states[o->state]);
    (void)snprintf(d->target.name, sizeof(d->target.name), "%s", names[m->system]);
    d->target.size_bytes = o->span_bytes;
    d->machine.memory_bytes = o->memory_bytes;
    d->settings.span_bytes = o->span_bytes;
    d->settings.seconds = (uint32_t)(m->time_ns / NS_PER_S);
    d->settings.ramp_seconds = d->settings.seconds / RAMP_PART;
    d->settings.runs = 1;
    d->settings.paths = o->link.paths;
    d->settings.prepared = true;
    d->settings.complete = true;
    (void)snprintf(d->settings.workload, sizeof(d->settings.workload), "corners");
}

static int check(const struct model_options *o, struct errmsg *reterr) {
    if (o->disks.count == 0 || o->depth == 0 || o->depth > 1024 || o->factor > 512) {
        return errmsg_set(reterr, ERR_INVALID,
                          "give disks, a queue depth of 1 to 1024 and a factor of at most 512");
    }
    if (o->disks.count < profile_min_disks(o->profile)) {
        return errmsg_set(reterr, ERR_RANGE, "%s needs at least %u disks", profile_name(o->profile),
                          profile_min_disks(o->profile));
    }
    if (o->span_bytes / factor_of(o) < 32 * MIB || o->memory_bytes / factor_of(o) < 4 * MIB) {
        return errmsg_set(reterr, ERR_RANGE, "span or memory is too small at a factor of %" PRIu64,
                          factor_of(o));
    }
    return OK;
}

int model_run(const struct model_options *options, enum model_system system,
              struct bench_document *ret_document, struct errmsg *reterr) {
    int error = check(options, reterr);
    if (error != OK) {
        return error;
    }
    struct bench_document document = {0};
    struct model *m = MEM_NEW(struct model);
    uint32_t seconds = all_flash(&options->disks) ? SECONDS_FLASH : SECONDS_ROTATING;
    *m = (struct model){
        .options = options, .system = system, .document = &document, .reterr = reterr};
    m->load = MEM_NEW(struct model_load_result);
    m->time_ns = (options->seconds > 0 ? options->seconds : seconds) * NS_PER_S;
    m->span_bytes = round_down(options->span_bytes / factor_of(options), FILL_BYTES);
    scale(m, factor_of(options));
    describe(m);
    error = world_run(m, corners_fiber);
    if (error == OK && wants(m, MODEL_WRITE_AGED) && system != MODEL_BARE &&
        options->state == MODEL_WHOLE) {
        scale_aged(m);
        error = world_run(m, aged_fiber);
    }
    mem_free(m->load);
    mem_free(m);
    if (error != OK) {
        bench_document_done(&document);
        return error;
    }
    *ret_document = document;
    return OK;
}

const struct bench_result *model_result(const struct bench_document *document,
                                        enum model_test test) {
    for (uint32_t i = 0; i < document->result_count; i++) {
        if (strcmp(document->results[i].test, tests[test].name) == 0) {
            return &document->results[i];
        }
    }
    return NULL;
}
