// SPDX-License-Identifier: MPL-2.0
/* Requests: drawn in phases, submitted through the block door, judged when they are answered.
 *
 * When an error is right:
 * - NO_SPACE on a thin volume, when what the oracle says the volumes hold (the most within the last
 *   minute, because freed space may take that long to come back), with each profile's overhead,
 *   takes more than SPACE_FULL of what is left when the pool's own reserve (space_reserve()) is
 *   taken off. On a thick volume never, unless disks were lost.
 * - IO, CHECKSUM, DATA_LOSS on a volume that has seen more bad disks than its profile tolerates, or
 *   lost nodes of its tree (ruin.c).
 * - SHUTDOWN while the engine closes, NOT_FOUND while the volume is deleted.
 * - RANGE or NOT_FOUND where the request asked for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "world.h"

enum { VERIFY_DEPTH = 8, VERIFY_SECTORS = 512, COMPARE_SECTORS = 24, FAR_BYTES = 64 << 20 };

static const double SPACE_FULL = 0.8;
static const uint64_t ANSWER_NS = 60 * NS_PER_S;

/* ---- space ---- */

static uint64_t chunks_of(struct world *w, uint32_t lost, uint32_t disk) {
    uint64_t blocks = sim_disk_size_bytes(w->disks[disk]) / BLOCK_BYTES;
    return (lost >> disk & 1) != 0 ? 0 : layout_chunk_count(&w->geometry, blocks);
}

/* Segments of `columns` columns that the disks which are not lost could hold. */
static uint64_t usable_segments(struct world *w, uint32_t lost, uint32_t columns) {
    uint64_t low = 0, high = 1 << 20;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2, sum = 0;
        for (uint32_t i = 0; i < w->disk_count; i++) {
            sum += MIN(chunks_of(w, lost, i), middle);
        }
        if (sum >= middle * columns) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Chunks for metadata: the map has an item of 88 bytes for a row, which holds two blocks at least,
 * in nodes that are not full; it may lie in twice the segments it needs, and be written anew. */
static uint64_t meta_kept(const struct world *w, uint32_t in_sync) {
    uint64_t blocks = 8 + 4 * w->geometry.node_blocks + w->limits.dirty_bytes / BLOCK_BYTES / 32;
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        const struct world_volume *v = &w->volumes[i];
        blocks += v->state == VOL_NONE ? 0 : v->oracle.used_blocks / 64;
    }
    uint64_t segments = 1 + div_round_up(blocks * 5 / 4, w->geometry.chunk_blocks);
    return (3 + 3 * segments) * MIN(3u, in_sync);
}

/* What a pool may keep for itself: an eighth, or, if more, three chunks for each column of each
 * profile in use (written to, being cleaned, cold), its metadata, and room for what is dirty. */
static double space_reserve(struct world *w, uint32_t lost) {
    bool in_use[PROFILE_COUNT] = {[PROFILE_RAID1] = true, [PROFILE_RAID1_3] = true};
    uint32_t in_sync = w->disk_count - (uint32_t)__builtin_popcount(lost);
    uint64_t chunks = 0, kept = meta_kept(w, in_sync), widest = 1;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        chunks += chunks_of(w, lost, i);
    }
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        for (int p = 0; p < PROFILE_COUNT && w->volumes[i].state != VOL_NONE; p++) {
            in_use[p] |= world_volume_had(&w->volumes[i], (enum profile)p);
        }
    }
    for (int p = 0; p < PROFILE_COUNT; p++) {
        uint64_t columns = shape_columns(profile_shape((enum profile)p, MAX(1u, in_sync)));
        kept += in_use[p] ? 3 * columns : 0;
        widest = in_use[p] ? MAX(widest, columns) : widest;
    }
    uint64_t chunk_bytes = (uint64_t)w->geometry.chunk_blocks * BLOCK_BYTES;
    kept += 2 * widest + 3 * div_round_up(w->limits.dirty_bytes, chunk_bytes);
    return chunks == 0 ? 1 : MAX(0.12, (double)kept / (double)chunks + 0.06);
}

/* Of the blocks of a chunk, the part that is data at worst: rows have headers and are as tall as
 * the geometry (and a tree node) wants, and what is left of a run of `n` blocks is not divided. */
static double data_part(const struct world *w, struct shape shape) {
    const struct geometry *g = &w->geometry;
    uint32_t height = MAX(g->row_blocks, (uint32_t)div_round_up(g->node_blocks + 1, shape.data));
    uint32_t half = MIN(g->chunk_blocks / 2, 256u), most = MIN(height * shape.data, half);
    uint32_t capacity = most - (uint32_t)div_round_up(64 + 36 * most, BLOCK_BYTES);
    double least = 1;
    for (uint32_t n = 1; n <= capacity; n++) {
        uint32_t blocks = capacity / n * n;
        uint32_t header = (uint32_t)div_round_up(64 + 36 * blocks, BLOCK_BYTES);
        uint32_t rows = g->chunk_blocks / (uint32_t)div_round_up(blocks + header, shape.data);
        least = MIN(least, (double)(rows * blocks) / (g->chunk_blocks * shape.data));
    }
    return least;
}

/* Relative to what may be sold: 1 is when the pool must be full. */
static double space_need_of(struct world *w, uint32_t lost) {
    uint32_t in_sync = w->disk_count - (uint32_t)__builtin_popcount(lost);
    double need = 0, sold = 1 - space_reserve(w, lost);
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        struct world_volume *v = &w->volumes[i];
        if (v->state == VOL_NONE) {
            continue;
        }
        uint64_t blocks =
            v->thick ? MAX(v->size_bytes, v->resize_bytes) / BLOCK_BYTES : v->oracle.used_blocks;
        double most = 0;
        for (int p = 0; p < PROFILE_COUNT; p++) {
            if (!world_volume_had(v, (enum profile)p)) {
                continue;
            }
            struct shape shape = profile_shape((enum profile)p, MAX(1u, in_sync));
            uint64_t segments = usable_segments(w, lost, shape_columns(shape));
            double usable =
                (double)(segments * shape.data * w->geometry.chunk_blocks) * data_part(w, shape);
            most = MAX(most, usable == 0 ? 1 : (double)blocks / usable);
        }
        need += most;
    }
    return sold <= 0.05 ? 10 : need / sold;
}

/* A disk that is bad may or may not have been shut out yet. Either can need more: the fewer disks,
 * the less room, but also the narrower the segments. */
double workload_space_need_without(struct world *w, uint32_t disks) {
    uint32_t out = w->missing | w->idle | disks;
    double shut_out = space_need_of(w, faults_bad(w) | out);
    double need = MAX(space_need_of(w, out), shut_out);
    return w->fresh == 0 ? need : MAX(need, space_need_of(w, faults_bad(w) | out | w->fresh));
}

double workload_space_need(struct world *w) {
    uint64_t slot = env_now_ns(w->env) / SPACE_PEAK_NS;
    while (w->space_slot < slot) {
        w->space_slot = slot - w->space_slot > SPACE_PEAKS ? slot - SPACE_PEAKS : w->space_slot + 1;
        w->space_peak[w->space_slot % SPACE_PEAKS] = 0;
    }
    double *now = &w->space_peak[slot % SPACE_PEAKS];
    double need = workload_space_need_without(w, 0);
    *now = MAX(*now, need);
    for (uint32_t i = 0; i < SPACE_PEAKS; i++) {
        need = MAX(need, w->space_peak[i]);
    }
    return need;
}

static bool space_may_be_out(struct world *w, const struct world_volume *v) {
    if (v->thick) {
        return (w->missing | w->idle | v->created_bad) != 0;
    }
    return workload_space_need(w) > SPACE_FULL;
}

/* ---- answers ---- */

static void oldest_read_update(struct world *w) {
    w->oracle.oldest_read = UINT32_MAX;
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        const struct op *op = &w->ops[i];
        if (op->busy && (op->kind == OP_READ || op->kind == OP_COMPARE)) {
            w->oracle.oldest_read = MIN(w->oracle.oldest_read, op->submitted);
        }
    }
}

static const char *op_name(const struct op *op) {
    static const char *const names[OP_KINDS] = {"read",   "write",   "flush",  "unmap",
                                                "zeroes", "compare", "verify", "wrong request"};
    return names[op->kind];
}

static void op_fail(struct op *op, const char *what) {
    struct world *w = op->world;
    engine_status(w->engine, &w->status);
    world_fail(w,
               "%s of %s (%s%s%s) at sector %" PRIu64 "+%" PRIu64 ", version %u: %s; %.3f s after "
               "it was sent, bad disks %x, missing %x; the pool: %s %s",
               op_name(op), op->volume->name, profile_name(op->volume->profile),
               op->volume->thick ? ", thick" : "", op->volume->sync_standard ? ", standard" : "",
               op->request.offset_bytes / SECTOR_BYTES, op->request.length_bytes / SECTOR_BYTES,
               op->version, what, (double)(env_now_ns(w->env) - op->started_ns) / 1e9,
               faults_bad(w), w->missing, w->status.health, w->status.advice);
}

static bool error_is_right(struct op *op, int status) {
    struct world *w = op->world;
    struct world_volume *v = op->volume;
    switch (status) {
    case ERR_NO_SPACE:
        if (op->kind == OP_READ || op->kind == OP_FLUSH || op->kind == OP_VERIFY) {
            return false;
        }
        world_count(w, STAT_out_of_space, 1);
        w->space_ran_out = true;
        faults_poll(w); /* the pool may just have become smaller */
        return v->harmed || space_may_be_out(w, v);
    case ERR_IO:
    case ERR_CHECKSUM:
    case ERR_DATA_LOSS:
        faults_poll(w); /* a disk may just have been given up */
        world_count(w, STAT_errors_beyond_redundancy, v->harmed);
        return v->harmed;
    case ERR_SHUTDOWN:
        return w->closing;
    case ERR_NOT_FOUND:
        return v->state != VOL_LIVE;
    case ERR_MISCOMPARE:
        return op->kind == OP_COMPARE;
    default:
        return false;
    }
}

static void judge_wrong(struct op *op) {
    int status = op->request.status;
    const struct world_volume *v = op->volume;
    uint64_t end = op->request.offset_bytes + op->request.length_bytes;
    if (status == OK && op->request.op == VOLUME_READ &&
        end <= MAX(v->size_bytes, v->resize_bytes)) {
        return; /* it has grown meanwhile */
    }
    bool refused = status == ERR_RANGE || status == ERR_NOT_FOUND || status == ERR_INVALID;
    if (!refused && !error_is_right(op, status)) {
        op_fail(op,
                status == OK ? "accepted, though it lies outside the volume" : error_name(status));
    }
    world_count(op->world, STAT_ops_refused, refused);
}

static void judge_compare(struct op *op) {
    struct world *w = op->world;
    char why[500];
    if (op->request.status == ERR_MISCOMPARE) {
        if (op->undisturbed && op->known && !op->spoilt) {
            op_fail(op, "miscompared with what must be there");
        } else if (op->undisturbed && op->known && op->request.error_bytes != op->spoilt_at) {
            (void)snprintf(why, sizeof(why),
                           "miscompared at byte %" PRIu64 ", the difference is at %" PRIu64,
                           op->request.error_bytes, op->spoilt_at);
            op_fail(op, why);
        }
        world_count(w, STAT_ops_miscompare, 1);
        return;
    }
    if (op->spoilt) {
        op_fail(op, "matched what never was there");
    } else if (!oracle_read(&op->volume->oracle, op->first_sector, op->sectors, op->submitted,
                            op->bytes, why, sizeof(why))) {
        op_fail(op, why);
    }
    world_count(w, STAT_ops_compare_and_write, 1);
}

static void judge_read(struct op *op) {
    char why[600];
    if (!oracle_read(&op->volume->oracle, op->first_sector, op->sectors, op->submitted, op->bytes,
                     why, sizeof(why))) {
        op_fail(op, why);
    }
}

static enum oracle_outcome outcome_of(int status) {
    switch (status) {
    case OK:
        return ORACLE_DONE;
    case ERR_MISCOMPARE:
    case ERR_RANGE:
    case ERR_INVALID:
    case ERR_NOT_FOUND:
        return ORACLE_NOTHING;
    default:
        return ORACLE_UNKNOWN;
    }
}

static bool op_writes(const struct op *op) {
    return op->kind == OP_WRITE || op->kind == OP_UNMAP || op->kind == OP_ZEROES ||
           op->kind == OP_COMPARE;
}

static void op_count(const struct op *op) {
    static const enum sim_stat stats[OP_KINDS] = {
        STAT_ops_read,         STAT_ops_write, STAT_ops_flush,  STAT_ops_unmap,
        STAT_ops_write_zeroes, STAT_ops,       STAT_ops_verify, STAT_ops,
    };
    struct world *w = op->world;
    world_count(w, STAT_ops, 1);
    if (stats[op->kind] != STAT_ops) {
        world_count(w, stats[op->kind], op->request.status == OK);
    }
    if (op->kind == OP_WRITE && op->request.status == OK) {
        uint64_t either = op->request.offset_bytes | op->request.length_bytes;
        world_count(w, STAT_ops_write_fua, op->request.fua);
        world_count(w, STAT_ops_write_unaligned, either % BLOCK_BYTES != 0);
        world_count(w, STAT_degraded_writes, w->missing != 0);
        world_count(w, STAT_out_of_space_left, w->space_ran_out);
        w->space_ran_out = false;
    }
}

static void op_judge(struct op *op) {
    struct world_volume *v = op->volume;
    int status = op->request.status;
    if (op->kind == OP_WRONG) {
        judge_wrong(op);
        return;
    }
    if (status != OK && !error_is_right(op, status)) {
        char what[200];
        (void)snprintf(what, sizeof(what), "%s (needed %.3f of the pool)", error_name(status),
                       workload_space_need(op->world));
        op_fail(op, what);
    }
    if (v->state == VOL_NONE) {
        return; /* deleted meanwhile: there is nothing to hold it against */
    }
    if (op->kind == OP_COMPARE && (status == OK || status == ERR_MISCOMPARE)) {
        judge_compare(op);
    } else if (op->kind == OP_READ && status == OK) {
        judge_read(op);
        world_count(op->world, STAT_reads_of_harmed, v->harmed);
    } else if (op->kind == OP_FLUSH && status == OK) {
        oracle_flushed(&v->oracle, op->submitted);
    }
    if (op_writes(op) && op->sectors > 0) {
        oracle_write_end(&v->oracle, op->first_sector, op->sectors, op->submitted,
                         outcome_of(status), op->request.fua);
    }
}

static void op_done(struct volume_request *request) {
    struct op *op = request->owner;
    struct world *w = op->world;
    struct mem_scope *scope = mem_scope_enter(NULL);
    ASSERT(op->busy);
    env_sim_note(w->env, (uint64_t)(op - w->ops) << 8 | (uint8_t)-request->status,
                 "op %td %s %s: %s", op - w->ops, op_name(op), op->volume->name,
                 request->status == OK ? "OK" : error_name(request->status));
    op->busy = false;
    w->in_flight--;
    op->volume->in_flight--;
    oldest_read_update(w);
    if (world_goes_on(w) && env_now_ns(w->env) - op->started_ns > ANSWER_NS) {
        op_fail(op, "answered too late");
    }
    if (world_goes_on(w) && w->slow) {
        slow_judge(w, op->volume, op->started_ns, request->status);
    }
    if (world_goes_on(w)) {
        op_count(op);
        op_judge(op);
    }
    w->ops_answered++;
    mem_scope_enter(scope);
}

/* ---- submission ---- */

/* Splits `bytes` of memory into a few elements at odd places. */
static uint32_t iovec_split(struct op *op, uint64_t bytes) {
    struct rng *rng = &op->world->rng;
    uint32_t count = rng_chance(rng, 2, 3) ? 1 : (uint32_t)rng_between(rng, 2, WORLD_OP_IOVECS);
    uint8_t *at = op->bytes;
    uint32_t used = 0;
    while (bytes > 0) {
        uint64_t piece = used + 1 == count ? bytes : rng_between(rng, 1, bytes);
        op->iov[used++] = (struct iovec){at, piece};
        at += piece;
        bytes -= piece;
    }
    return used;
}

static void fill_write(struct op *op, uint8_t *bytes) {
    for (uint64_t i = 0; i < op->sectors; i++) {
        oracle_fill(&op->volume->oracle, op->first_sector + i, op->version,
                    bytes + i * ORACLE_SECTOR_BYTES);
    }
}

/* What is expected to be there, as far as it is known, one byte of it spoilt now and then. */
static void fill_compare(struct op *op) {
    op->known = true;
    for (uint64_t i = 0; i < op->sectors; i++) {
        uint32_t version = 0;
        op->known &= oracle_known(&op->volume->oracle, op->first_sector + i, &version);
        oracle_fill(&op->volume->oracle, op->first_sector + i, version,
                    op->bytes + i * ORACLE_SECTOR_BYTES);
    }
    op->spoilt = rng_chance(&op->world->rng, 1, 4);
    if (op->spoilt) {
        op->spoilt_at = rng_below(&op->world->rng, op->sectors * ORACLE_SECTOR_BYTES);
        op->bytes[op->spoilt_at] ^= 0x40;
    }
    fill_write(op, op->bytes + op->sectors * ORACLE_SECTOR_BYTES);
}

static bool overlaps(const struct op *a, const struct op *b) {
    return a->volume == b->volume && a->first_sector < b->first_sector + b->sectors &&
           b->first_sector < a->first_sector + a->sectors;
}

static void disturb(struct op *op) {
    struct world *w = op->world;
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        struct op *other = &w->ops[i];
        if (other != op && other->busy && op_writes(other) && overlaps(op, other)) {
            other->undisturbed = false;
            op->undisturbed = false;
        }
    }
}

static void op_prepare(struct op *op) {
    struct volume_request *r = &op->request;
    op->first_sector = r->offset_bytes / SECTOR_BYTES;
    op->sectors = r->length_bytes / SECTOR_BYTES;
    op->undisturbed = true;
    uint64_t bytes = r->length_bytes;
    switch (op->kind) {
    case OP_WRITE:
        fill_write(op, op->bytes);
        break;
    case OP_COMPARE:
        fill_compare(op);
        bytes *= 2;
        break;
    case OP_UNMAP: {
        /* Only blocks wholly inside the range are promised to read as zeros. */
        uint64_t end = r->offset_bytes + r->length_bytes;
        uint64_t first = round_up(r->offset_bytes, BLOCK_BYTES);
        end = round_down(end, BLOCK_BYTES);
        op->first_sector = first / SECTOR_BYTES;
        op->sectors = end > first ? (end - first) / SECTOR_BYTES : 0;
        bytes = 0;
        break;
    }
    case OP_READ:
    case OP_WRONG:
        break;
    default:
        bytes = 0;
        break;
    }
    r->iov = op->iov;
    r->iov_count = bytes == 0 ? 0 : iovec_split(op, bytes);
}

static struct op *op_free(struct world *w) {
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        if (!w->ops[i].busy) {
            return &w->ops[i];
        }
    }
    return NULL;
}

static enum volume_op door_op(enum op_kind kind, bool wrong_write) {
    static const enum volume_op ops[OP_KINDS] = {
        VOLUME_READ,   VOLUME_WRITE,        VOLUME_FLUSH,
        VOLUME_UNMAP,  VOLUME_WRITE_ZEROES, VOLUME_COMPARE_AND_WRITE,
        VOLUME_VERIFY, VOLUME_READ,
    };
    return wrong_write ? VOLUME_WRITE : ops[kind];
}

static void op_submit(struct world *w, struct world_volume *v, enum op_kind kind,
                      uint64_t offset_bytes, uint64_t length_bytes, bool fua, bool zeros) {
    /* A write that must be refused lies far outside. */
    bool wrong_write = kind == OP_WRONG && offset_bytes > v->size_bytes + FAR_BYTES / 2;
    struct op *op = op_free(w);
    ASSERT(op != NULL);
    op->kind = kind;
    op->volume = v;
    op->version = zeros || kind == OP_UNMAP || kind == OP_ZEROES ? 0 : ++w->versions;
    op->request = (struct volume_request){.client = w->env,
                                          .door = engine_door(w->engine),
                                          .volume_id = v->id,
                                          .op = door_op(kind, wrong_write),
                                          .fua = fua,
                                          .offset_bytes = offset_bytes,
                                          .length_bytes = length_bytes,
                                          .done = op_done,
                                          .owner = op};
    op_prepare(op);
    if (kind == OP_WRONG && rng_chance(&w->rng, 1, 3)) {
        op->request.volume_id = v->id + 1000000;
    }
    op->busy = true;
    op->started_ns = env_now_ns(w->env);
    w->in_flight++;
    v->in_flight++;
    if (op_writes(op)) {
        disturb(op);
        op->submitted = oracle_write_begin(&v->oracle, op->first_sector, op->sectors, op->version);
    } else {
        op->submitted = oracle_tick(&w->oracle);
    }
    oldest_read_update(w);
    env_sim_note(w->env, offset_bytes ^ length_bytes << 40 ^ (uint64_t)kind << 60,
                 "op %td %s%s %s %" PRIu64 "+%" PRIu64 " version %u", op - w->ops, op_name(op),
                 fua ? "!" : "", v->name, offset_bytes / SECTOR_BYTES, length_bytes / SECTOR_BYTES,
                 op->version);
    volume_submit(&op->request);
}

void workload_submit(struct world *w, struct world_volume *v, enum op_kind kind,
                     uint64_t offset_bytes, uint64_t length_bytes) {
    op_submit(w, v, kind, offset_bytes, length_bytes, false, false);
}

/* ---- phases ---- */

static struct world_volume *live_volume(struct world *w, struct world_volume *wanted) {
    if (wanted != NULL) {
        return wanted->state == VOL_LIVE ? wanted : NULL;
    }
    uint32_t from = (uint32_t)rng_below(&w->rng, WORLD_VOLUMES_MAX);
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        struct world_volume *v = &w->volumes[(from + i) % WORLD_VOLUMES_MAX];
        if (v->state == VOL_LIVE) {
            return v;
        }
    }
    return NULL;
}

static enum op_kind draw_kind(struct world *w, const struct phase *p) {
    uint32_t sum = 0;
    for (int i = 0; i < OP_KINDS; i++) {
        sum += p->weights[i];
    }
    uint64_t draw = rng_below(&w->rng, sum);
    int kind = 0;
    while (draw >= p->weights[kind]) {
        draw -= p->weights[kind++];
    }
    return (enum op_kind)kind;
}

/* Small sizes are as likely as large ones. */
static uint64_t draw_sectors(struct world *w, const struct phase *p) {
    uint64_t low = p->sectors_min, high = p->sectors_max;
    while (high > low && rng_chance(&w->rng, 1, 2)) {
        high = MAX(low, (high + low) / 3);
    }
    uint64_t sectors = rng_between(&w->rng, low, high);
    return round_up(sectors, p->align_sectors);
}

static void phase_submit(struct world *w, struct phase *p, struct world_volume *v) {
    enum op_kind kind = draw_kind(w, p);
    uint64_t size = v->size_bytes / SECTOR_BYTES;
    uint64_t start = MIN(p->window_start, v->size_bytes) / SECTOR_BYTES;
    uint64_t window = MIN(p->window_bytes / SECTOR_BYTES, size - start);
    if (window == 0) {
        start = 0;
        window = MIN(size, p->window_bytes / SECTOR_BYTES);
    }
    uint64_t sectors = MIN(draw_sectors(w, p), window);
    if (kind == OP_COMPARE) {
        sectors = MIN(sectors, (uint64_t)COMPARE_SECTORS);
    } else if ((kind == OP_UNMAP || kind == OP_ZEROES) && rng_chance(&w->rng, 1, 3)) {
        sectors = MIN(sectors * 16, window);
    }
    uint64_t at = start + rng_below(&w->rng, window - sectors + 1);
    if (p->sequential && (kind == OP_WRITE || kind == OP_READ)) {
        at = start + (p->next + sectors > window ? 0 : p->next);
        p->next = at - start + sectors;
    }
    at = round_down(at, p->align_sectors);
    if (kind == OP_FLUSH) {
        at = sectors = 0;
    } else if (kind == OP_WRONG) {
        at = size - MIN(size, sectors) + 1 + rng_below(&w->rng, 100);
        /* A write must stay wrong if the volume is made larger meanwhile. */
        at += rng_chance(&w->rng, 1, 2) ? FAR_BYTES / SECTOR_BYTES : 0;
    }
    bool fua = rng_below(&w->rng, 100) < p->fua_pct && kind == OP_WRITE;
    bool zeros = rng_below(&w->rng, 100) < p->zero_pct;
    op_submit(w, v, kind, at * SECTOR_BYTES, sectors * SECTOR_BYTES, fua, zeros);
}

static void draw_window(struct world *w, struct phase *p) {
    const struct world_volume *v = p->volume;
    uint64_t size = v == NULL ? UINT64_MAX : v->size_bytes;
    p->window_start = 0;
    p->window_bytes = MIN(size, (uint64_t)16 << 20);
    if (size > (uint64_t)64 << 20) { /* a few far places of a huge volume */
        p->window_start = round_down(size / 5 * rng_below(&w->rng, 5), BLOCK_BYTES);
        p->window_bytes = (uint64_t)1 << rng_between(&w->rng, 20, 22);
    } else if (rng_chance(&w->rng, 1, 3)) {
        p->window_bytes = MIN(size, (uint64_t)4096 << rng_below(&w->rng, 8));
        p->window_start = rng_below(&w->rng, MIN(size, (uint64_t)64 << 20) - p->window_bytes + 1);
        p->window_start = round_down(p->window_start, SECTOR_BYTES);
    }
}

enum phase_kind {
    PHASE_MIXED,
    PHASE_BLOCKS,
    PHASE_SEQUENTIAL,
    PHASE_HOT,
    PHASE_FILL,
    PHASE_FREE,
    PHASE_READS,
    PHASES
};

static struct phase draw_phase(struct world *w) {
    struct rng *rng = &w->rng;
    enum phase_kind kind = (enum phase_kind)rng_below(rng, PHASES);
    if (w->cramped && rng_chance(rng, 1, 2)) {
        kind = PHASE_FILL;
    }
    struct phase p = {
        .volume = rng_chance(rng, 1, 2) ? NULL : live_volume(w, NULL),
        .weights = {[OP_READ] = 30,
                    [OP_WRITE] = 45,
                    [OP_FLUSH] = 3,
                    [OP_UNMAP] = 5,
                    [OP_ZEROES] = 4,
                    [OP_COMPARE] = 4,
                    [OP_VERIFY] = 2,
                    [OP_WRONG] = 1},
        .depth = (uint32_t)rng_between(rng, 1, WORLD_DEPTH_MAX),
        .ops = (uint32_t)rng_between(rng, 40, 400),
        .sectors_min = 1,
        .sectors_max = 64,
        .align_sectors = 1,
        .fua_pct = (uint32_t)rng_below(rng, 30),
        .zero_pct = (uint32_t)rng_below(rng, 8),
    };
    draw_window(w, &p);
    switch (kind) {
    case PHASE_BLOCKS:
        p.align_sectors = p.sectors_min = p.sectors_max = 8;
        break;
    case PHASE_SEQUENTIAL:
    case PHASE_FILL:
        p.sequential = true;
        p.align_sectors = rng_chance(rng, 3, 4) ? 8 : 1;
        p.sectors_min = 64;
        p.sectors_max = WORLD_REQUEST_BYTES_MAX / SECTOR_BYTES;
        p.ops = (uint32_t)rng_between(rng, 20, kind == PHASE_FILL ? 120 : 60);
        p.weights[OP_READ] = 5;
        p.weights[OP_WRITE] = 90;
        if (kind == PHASE_FILL && p.volume != NULL) {
            p.window_start = 0;
            p.window_bytes = MIN(p.volume->size_bytes, (uint64_t)64 << 20);
        }
        break;
    case PHASE_HOT:
        p.window_bytes = MIN(p.window_bytes, (uint64_t)BLOCK_BYTES << rng_below(rng, 5));
        p.sectors_max = 16;
        break;
    case PHASE_FREE:
        p.weights[OP_UNMAP] = 60;
        p.weights[OP_ZEROES] = 30;
        p.sectors_max = 512;
        p.ops = 100;
        break;
    case PHASE_READS:
        p.weights[OP_READ] = 200;
        p.weights[OP_VERIFY] = 30;
        p.sectors_max = 256;
        break;
    case PHASE_MIXED:
    case PHASES:
        break;
    }
    return p;
}

/* Writes the large volume of a large world from end to end. */
static struct phase large_phase(struct world *w) {
    w->large_filled = true;
    return (struct phase){.volume = live_volume(w, NULL),
                          .weights = {[OP_WRITE] = 1},
                          .depth = 8,
                          .ops = LARGE_VOLUME_BYTES / WORLD_REQUEST_BYTES_MAX,
                          .sectors_min = WORLD_REQUEST_BYTES_MAX / SECTOR_BYTES,
                          .sectors_max = WORLD_REQUEST_BYTES_MAX / SECTOR_BYTES,
                          .align_sectors = 8,
                          .sequential = true,
                          .window_bytes = LARGE_VOLUME_BYTES};
}

static bool has_room(void *ctx) {
    struct world *w = ctx;
    return w->in_flight < w->depth || (w->control.active && w->control.done);
}

static void phase_events(struct world *w, const struct phase *p) {
    if (w->large && p->window_bytes == LARGE_VOLUME_BYTES) {
        return; /* nothing else happens to a large volume before it is one */
    }
    if (!w->control.active && rng_chance(&w->rng, 1, 60)) {
        control_event(w);
    }
    if (w->faults && rng_chance(&w->rng, 1, w->cramped ? 80 : 150)) {
        faults_event(w);
    }
    if (w->faults && rng_chance(&w->slow_rng, 1, 500)) {
        faults_slow(w);
    }
    if (w->moving && rng_chance(&w->move_rng, 1, 150)) {
        moves_image(w);
    }
    if (w->ruin && rng_chance(&w->ruin_rng, 1, 250)) {
        ruin_event(w);
    }
    if (rng_chance(&w->rng, 1, 700)) {
        env_sim_arm_cut(w->env, rng_between(&w->rng, 1, 500));
    }
}

void workload_phase(struct world *w) {
    bool fill = w->large && !w->large_filled && live_volume(w, NULL) != NULL;
    struct phase p = fill ? large_phase(w) : draw_phase(w);
    w->depth = p.depth;
    env_sim_note(w->env, p.ops, "phase: %u ops, depth %u", p.ops, p.depth);
    for (uint32_t i = 0; i < p.ops && world_goes_on(w); i++) {
        control_poll(w);
        phase_events(w, &p);
        struct world_volume *v = live_volume(w, p.volume);
        if (v == NULL) {
            if (!w->control.active) {
                control_event(w);
            }
            if (!control_wait(w)) {
                return;
            }
            p.volume = NULL;
            continue;
        }
        if (i % 16 == 0) {
            (void)workload_space_need(w);
        }
        if (w->in_flight < p.depth) {
            phase_submit(w, &p, v);
        }
        if (!world_wait(w, has_room, w, env_now_ns(w->env) + ANSWER_NS, false)) {
            return;
        }
    }
    if (rng_chance(&w->rng, 1, 2)) {
        (void)world_drain(w);
    }
    control_poll(w);
}

/* ---- reading everything ---- */

struct verify {
    struct world *w;
    struct world_volume *volume;
    bool everything;
};

static void verify_page(void *ctx, uint64_t sector) {
    struct verify *verify = ctx;
    struct world *w = verify->w;
    uint64_t size = verify->volume->size_bytes / SECTOR_BYTES;
    for (uint64_t at = sector; at < sector + ORACLE_PAGE_SECTORS; at += VERIFY_SECTORS) {
        if (w->engine == NULL || !world_goes_on(w) || at >= size ||
            (!verify->everything && rng_chance(&w->rng, 3, 4))) {
            continue;
        }
        uint64_t count = MIN((uint64_t)VERIFY_SECTORS, size - at);
        op_submit(w, verify->volume, OP_READ, at * SECTOR_BYTES, count * SECTOR_BYTES, false,
                  false);
        (void)world_wait(w, has_room, w, env_now_ns(w->env) + ANSWER_NS, false);
    }
}

void workload_verify(struct world *w, bool everything) {
    if (!control_wait(w) || !world_drain(w)) {
        return;
    }
    w->depth = VERIFY_DEPTH;
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX && w->engine != NULL; i++) {
        struct verify verify = {w, &w->volumes[i], everything};
        if (w->volumes[i].state == VOL_LIVE) {
            oracle_each_page(&w->volumes[i].oracle, verify_page, &verify);
        }
    }
    if (w->engine != NULL) {
        (void)world_drain(w);
    }
}

/* ---- life ---- */

void workload_init(struct world *w) {
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        w->ops[i].world = w;
        w->ops[i].bytes = mem_alloc(WORLD_REQUEST_BYTES_MAX);
    }
}

void workload_done(struct world *w) {
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        mem_free(w->ops[i].bytes);
    }
}

void workload_forget(struct world *w, bool clean) {
    for (uint32_t i = 0; i < WORLD_DEPTH_MAX; i++) {
        w->ops[i].busy = false;
    }
    w->in_flight = 0;
    oldest_read_update(w);
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        w->volumes[i].in_flight = 0;
        if (w->volumes[i].state != VOL_NONE) {
            oracle_restart(&w->volumes[i].oracle, clean);
        }
    }
}
