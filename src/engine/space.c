// SPDX-License-Identifier: MPL-2.0
/* Admission: what is admitted can be flushed (invariant 15).
 *
 * There are two measures, and a write must pass both.
 *
 * What may be sold is counted in shares of the pool: a block of a profile costs 1 / (blocks the
 * whole pool could hold in that profile, with rows packed at worst: row_density()). What is used is
 * the sum over volumes of what they hold (thick ones: of what they were promised) and of the nodes
 * of their trees; what is dirty is charged as if every block were new, because a write reads no
 * metadata. About an eighth of the pool, or what a small pool needs for open segments and metadata
 * if that is more, is never sold: checkpoints, deletes and the cleaner live on it. Because segments
 * that are less dense than row_density() can always be packed, the cleaner always gets that part of
 * the chunks back.
 *
 * What is free are chunks. They must hold what a checkpoint writes before it frees anything: the
 * rows of what is dirty, and besides, whatever is admitted, what a checkpoint that only frees may
 * have to write (room_holds()): all nodes and all metadata once, and a segment for the cleaner. And
 * they must still do so when disks are lost, in the protection that older segments then have.
 *
 * When the worst case would pass the limit, or chunks are few, the writer first waits for a
 * checkpoint, which turns guesses into facts and cleans; then, near the end, it looks up which of
 * its blocks are really new. Only if those do not fit there is no space. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "engine/relocate.h"

enum { RESERVE_PERCENT = 12, IDLE_CHECKPOINTS_MAX = 8, PROOF_AHEAD_BLOCKS = 1024 };

uint64_t volume_promised_blocks(const struct volume *v) {
    uint64_t size = v->phys.size_bytes / BLOCK_BYTES;
    bool thick =
        (v->phys.flags & VOLUME_FLAG_THICK) != 0 && (v->phys.flags & VOLUME_FLAG_DELETING) == 0;
    return thick ? MAX(size, v->phys.allocated_blocks) : v->phys.allocated_blocks;
}

static uint64_t node_blocks(const struct engine *e, const struct volume *v) {
    uint64_t nodes = 0;
    for (uint32_t l = 0; l < MIN(v->tree.root.levels, (uint32_t)TREE_LEVELS_MAX); l++) {
        nodes += v->tree.root.level[l].nodes;
    }
    return nodes * e->pool->super.geometry.node_blocks;
}

static uint64_t chunk_bytes(const struct engine *e) {
    return (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
}

/* Profiles that are written to, by volumes or for the nodes of their trees. */
static uint32_t profiles_in_use(const struct engine *e) {
    uint32_t in_use = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        for (int p = 0; p < PROFILE_COUNT; p++) {
            if (p == v->phys.profile || (v->phys.former >> p & 1) != 0) {
                in_use |= 1u << p | 1u << node_profile(e, (enum profile)p);
            }
        }
    }
    return in_use;
}

/* ---- what a checkpoint may need besides the rows of data ---- */

enum profile meta_profile(const struct engine *e) {
    static const enum profile by_copies[] = {PROFILE_SINGLE, PROFILE_SINGLE, PROFILE_RAID1};
    uint32_t copies = e->pool->meta_copies;
    return copies < ARRAY_COUNT(by_copies) ? by_copies[copies] : PROFILE_RAID1_3;
}

/* Segments for all metadata written once: what there is, what the map grows by (at worst a run for
 * two blocks), and the ends of chunks. */
static uint32_t meta_segments(const struct engine *e, uint64_t live_blocks) {
    const struct geometry *g = &e->pool->super.geometry;
    uint64_t growth = e->limits.dirty_bytes / BLOCK_BYTES / 32 + 4ull * g->node_blocks;
    return (uint32_t)div_round_up((live_blocks + growth) * 5 / 4, g->chunk_blocks) + 1;
}

/* Segments for that, and for all nodes and the cleaner, at most: what the cleaner makes free. */
static uint32_t keep_segments(const struct engine *e) {
    uint64_t segments = e->meta_keep;
    uint64_t each = MAX(1u, e->pool->super.geometry.chunk_blocks * e->table.density[1] / 1024);
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if ((e->profiles_in_use >> p & 1) != 0) {
            segments += 2 + div_round_up(e->keep_nodes[p], each);
        }
    }
    return (uint32_t)MIN(segments, (uint64_t)UINT32_MAX);
}

static void keep_recount(struct engine *e) {
    uint64_t meta = 0;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        meta += s != NULL && s->kind == SEGMENT_META ? s->live_blocks : 0;
    }
    e->meta_blocks = meta;
    e->meta_keep = SABOTAGE(reserve_sold) ? 0 : meta_segments(e, meta);
    e->profiles_in_use = profiles_in_use(e);
    memset(e->keep_nodes, 0, sizeof(e->keep_nodes));
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        e->keep_nodes[node_profile(e, (enum profile)v->phys.profile)] += node_blocks(e, v);
    }
    e->keep_segments = SABOTAGE(reserve_sold) ? 0 : keep_segments(e);
    memset(&e->room_proof, 0, sizeof(e->room_proof));
}

/* ---- what may be sold ---- */

/* Chunks that a pool with these volumes keeps for itself. */
static uint64_t reserved_chunks(const struct engine *e, uint32_t disks) {
    uint32_t widest = 1;
    uint64_t chunks = 0;
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if ((e->profiles_in_use >> p & 1) != 0) {
            struct shape shape = profile_shape((enum profile)p, disks);
            uint32_t columns = shape_columns(shape);
            uint64_t each = (uint64_t)e->pool->super.geometry.chunk_blocks * shape.data *
                            e->table.density[shape.data] / 1024;
            chunks += 3ull * columns; /* hot, cold, and one being cleaned */
            chunks += div_round_up(e->keep_nodes[p], MAX(each, (uint64_t)1)) * columns;
            widest = MAX(widest, columns);
        }
    }
    /* Metadata lies in twice the segments it needs, and may be written once more: meta_clean(). */
    chunks += (META_SPARSE_SEGMENTS + 3ull * meta_segments(e, e->meta_blocks)) *
              MIN(e->pool->meta_copies, disks);
    return chunks + 2 * widest + 3 * div_round_up(e->limits.dirty_bytes, chunk_bytes(e));
}

static uint64_t room_chunks(const struct segment_room *room) {
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < room->count; i++) {
        chunks += room->chunks[i];
    }
    return chunks;
}

/* Of one block; 0: the profile cannot be stored. */
static uint64_t share_in(const struct segment_room *all, enum profile p) {
    struct segment_room room = *all;
    uint64_t usable = segment_room_take(&room, p, UINT64_MAX);
    return usable == 0 ? 0 : SHARE_ONE / usable + 1;
}

/* What may be sold of all of it. */
static uint64_t limit_in(const struct engine *e, const struct segment_room *all) {
    uint64_t chunks = room_chunks(all);
    uint64_t reserved = SABOTAGE(reserve_sold) ? 0 : reserved_chunks(e, MAX(1u, all->count));
    uint64_t percent = chunks == 0 ? 100 : reserved * 100 / chunks + 1;
    percent = MIN(MAX(percent, (uint64_t)RESERVE_PERCENT), (uint64_t)100);
    return SHARE_ONE / 100 * (100 - percent);
}

void space_forecast(const struct engine *e, const struct segment_room *all,
                    struct space_forecast *ret) {
    uint64_t limit = limit_in(e, all), used = 0, strongest = share_in(all, PROFILE_SINGLE);
    ret->storable = true;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        enum profile p = (enum profile)v->phys.profile;
        uint64_t share = share_in(all, p), node_share = share_in(all, node_profile(e, p));
        uint64_t blocks =
            volume_promised_blocks(v) + v->admitted_blocks + v->dirty_blocks + v->frozen_blocks;
        uint64_t more = 0;
        bool fits = share != 0 && node_share != 0 &&
                    !__builtin_mul_overflow(blocks, share, &more) &&
                    !__builtin_add_overflow(used, more, &used) &&
                    !__builtin_mul_overflow(node_blocks(e, v), node_share, &more) &&
                    !__builtin_add_overflow(used, more, &used);
        ret->storable &=
            fits && shape_losses(profile_shape(p, MAX(1u, all->count))) >= profile_losses(p);
        strongest = MAX(strongest, share);
    }
    ret->fits = ret->storable && used <= limit;
    ret->usable_bytes = strongest == 0 ? 0 : limit / strongest * BLOCK_BYTES;
    ret->used_bytes = strongest == 0 ? 0 : used / strongest * BLOCK_BYTES;
}

void space_recount(struct engine *e) {
    e->room_proof.room.count = 0; /* as many disks may be missing no longer, or more */
    uint32_t disks = MAX(1u, pool_storing_count(e->pool));
    struct segment_room all = segment_room_all(&e->table);
    uint64_t chunks = room_chunks(&all);
    for (int p = 0; p < PROFILE_COUNT; p++) {
        e->share[p] = share_in(&all, (enum profile)p);
    }
    keep_recount(e);
    e->limit_share = limit_in(e, &all);
    /* What checkpoints may need of one disk at worst, but not more than a quarter of it. */
    uint64_t dirty_chunks = e->limits.dirty_bytes * 3 / 2 / chunk_bytes(e);
    e->ref_keep_free = (uint32_t)MIN(dirty_chunks + 5, chunks / disks / 4);
}

uint64_t space_used_share(const struct engine *e, bool with_dirty) {
    uint64_t used = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        uint64_t share = volume_share(e, v);
        uint64_t dirty = v->admitted_blocks + v->dirty_blocks + v->frozen_blocks;
        used += volume_promised_blocks(v) * share;
        used += node_blocks(e, v) * e->share[node_profile(e, (enum profile)v->phys.profile)];
        if (with_dirty && (v->phys.flags & VOLUME_FLAG_THICK) == 0) {
            used += dirty * share;
        }
    }
    return used;
}

int space_can_promise(struct engine *e, enum profile profile, uint64_t blocks) {
    uint64_t cost;
    if (e->share[profile] == 0 || __builtin_mul_overflow(blocks, e->share[profile], &cost) ||
        cost > e->limit_share || space_used_share(e, true) + cost > e->limit_share) {
        return ERR_NO_SPACE;
    }
    return OK;
}

static uint64_t dirty_total_bytes(const struct engine *e) {
    return e->admitted_bytes + e->dirty_bytes + e->frozen_bytes;
}

static bool dirty_has_room(const struct engine *e, uint64_t bytes) {
    uint64_t dirty = dirty_total_bytes(e);
    return dirty == 0 || dirty + bytes <= e->limits.dirty_bytes;
}

/* Blocks of each profile that a checkpoint has yet to write, at most. */
static void unwritten_blocks(const struct engine *e, uint64_t ret_blocks[PROFILE_COUNT]) {
    memset(ret_blocks, 0, PROFILE_COUNT * sizeof(ret_blocks[0]));
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        uint64_t *blocks = &ret_blocks[v->phys.profile];
        *blocks += v->admitted_bytes / BLOCK_BYTES;
        *blocks += v->active.unplaced_blocks + v->frozen.unplaced_blocks;
    }
    const struct relocation *r = e->relocation; /* a window that is being written */
    if (r != NULL && r->taken && !r->done) {
        ret_blocks[r->volume->phys.profile] += r->count;
    }
}

/* Whether a checkpoint finds room for all metadata, all nodes, and these blocks of data of each
 * profile; with `cleaning`, for a segment a profile that the cleaner fills, too. */
static bool room_holds(const struct engine *e, struct segment_room room,
                       const uint64_t data_blocks[PROFILE_COUNT], bool cleaning) {
    bool fits = segment_room_take_segments(&room, meta_profile(e), e->meta_keep);
    for (int i = 0; i < PROFILE_COUNT && fits; i++) {
        bool in_use = (e->profiles_in_use >> i & 1) != 0 && !SABOTAGE(reserve_sold);
        uint64_t blocks = data_blocks[i];
        blocks = in_use ? MAX(blocks + e->keep_nodes[i], (uint64_t)1) : blocks;
        fits = segment_room_take(&room, (enum profile)i, blocks) == blocks &&
               segment_room_take_segments(&room, (enum profile)i, in_use && cleaning);
    }
    return fits;
}

/* In full protection now, and somehow if all disks go that may. */
static bool room_is_safe(const struct engine *e, const struct segment_room *room,
                         const uint64_t blocks[PROFILE_COUNT]) {
    struct segment_room after = *room;
    after.lost = segment_members_missing(&e->table);
    segment_room_lose(&after, segment_losses_least(&e->table, meta_profile(e)));
    return room_holds(e, *room, blocks, true) && room_holds(e, after, blocks, false);
}

/* What is known already: less than what has been found to fit fits into the same chunks, too. */
static bool room_is_proven(const struct engine *e, const struct segment_room *room,
                           const uint64_t blocks[PROFILE_COUNT]) {
    const struct room_proof *proof = &e->room_proof;
    bool proven =
        room->count == proof->room.count && e->pool->meta_copies == proof->meta_copies &&
        memcmp(room->chunks, proof->room.chunks, room->count * sizeof(room->chunks[0])) == 0;
    for (int i = 0; i < PROFILE_COUNT && proven; i++) {
        proven = blocks[i] <= proof->blocks[i];
    }
    return proven;
}

static bool chunks_have_room(struct engine *e, const struct volume *v, uint64_t count) {
    uint64_t blocks[PROFILE_COUNT];
    unwritten_blocks(e, blocks);
    blocks[v->phys.profile] += count;
    struct segment_room room = segment_room_free(&e->table, 0);
    if (room_is_proven(e, &room, blocks)) {
        return true;
    }
    if (!room_is_safe(e, &room, blocks)) {
        return false;
    }
    /* The reckoning costs more than all else that an admission does: once for many of them. */
    struct room_proof *proof = &e->room_proof;
    proof->room = room;
    proof->meta_copies = e->pool->meta_copies;
    memcpy(proof->blocks, blocks, sizeof(blocks));
    blocks[v->phys.profile] += PROOF_AHEAD_BLOCKS;
    if (room_is_safe(e, &room, blocks)) {
        memcpy(proof->blocks, blocks, sizeof(blocks));
    }
    return true;
}

static bool checkpoint_fits(const struct engine *e, uint32_t lost) {
    struct segment_room room = segment_room_free(&e->table, 0);
    uint64_t blocks[PROFILE_COUNT];
    room.lost = lost;
    unwritten_blocks(e, blocks);
    return room_holds(e, room, blocks, false);
}

/* And leaves the cleaner enough to bring things into balance again: it takes nothing of what is
 * kept for metadata. */
bool space_fits_without(const struct segment_table *table, uint64_t members) {
    const struct engine *e = CONTAINER_OF(table, struct engine, table);
    struct segment_room room = segment_room_without(table, members, e->meta_keep);
    uint64_t blocks[PROFILE_COUNT];
    unwritten_blocks(e, blocks);
    return room.count > 0 && room_is_safe(e, &room, blocks);
}

bool space_spares_chunk(struct engine *e, uint32_t member) {
    if (e->table.chunk_free[member] < 2) {
        return false;
    }
    e->table.chunk_free[member]--;
    struct segment_room room = segment_room_free(&e->table, 0);
    uint64_t blocks[PROFILE_COUNT];
    unwritten_blocks(e, blocks);
    bool spares = room_is_proven(e, &room, blocks) || room_is_safe(e, &room, blocks);
    e->table.chunk_free[member]++;
    return spares;
}

bool space_is_short(const struct engine *e) {
    return !checkpoint_fits(e, 0);
}

bool space_holds_checkpoint(const struct engine *e) {
    return checkpoint_fits(e, segment_members_missing(&e->table));
}

static int wait_for_checkpoint(struct engine *e) {
    if (!e->postponed && !e->checkpoint_fiber_gone && e->state != ENGINE_FAILED) {
        checkpoint_want(e);
        fiber_queue_wait(&e->space_waiters);
    }
    if (e->state == ENGINE_FAILED) {
        return e->failure;
    }
    if (e->postponed) {
        return ERR_NO_SPACE;
    }
    return e->checkpoint_fiber_gone ? ERR_SHUTDOWN : OK; /* nobody makes room any more */
}

static bool promise_has_room(const struct engine *e, const struct volume *v, uint64_t blocks) {
    if ((v->phys.flags & VOLUME_FLAG_THICK) != 0) {
        return true; /* promised at its creation */
    }
    if (blocks == 0) {
        return true; /* replaces what is there */
    }
    return space_used_share(e, true) + blocks * volume_share(e, v) <= e->limit_share;
}

static uint64_t charged_blocks(const struct engine *e) {
    uint64_t blocks = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        blocks += v->admitted_blocks + v->dirty_blocks + v->frozen_blocks;
    }
    return blocks;
}

bool space_is_plenty(struct engine *e, const struct volume *v, uint64_t count) {
    return SABOTAGE(admission_off) ||
           (promise_has_room(e, v, count) && chunks_have_room(e, v, count));
}

static bool fits_now(struct engine *e, const struct volume *v, uint64_t count,
                     const struct charge *charge) {
    return dirty_has_room(e, charge->bytes) && promise_has_room(e, v, charge->blocks) &&
           chunks_have_room(e, v, count);
}

/* The head of the queue of writers: waits until its blocks fit, or certainly do not. */
static int admit_wait(struct engine *e, struct volume *v, uint64_t block, struct charge *charge) {
    uint64_t count = charge->blocks;
    for (int idle_checkpoints = 0; idle_checkpoints < IDLE_CHECKPOINTS_MAX;) {
        bool settled = charged_blocks(e) == 0; /* nothing that a checkpoint would turn into facts */
        int err = OK;
        charge->blocks = count;
        if (!promise_has_room(e, v, count)) {
            err = read_count_unmapped(v, block, count, &charge->blocks);
            if (err == OK && settled && !promise_has_room(e, v, charge->blocks)) {
                return ERR_NO_SPACE;
            }
        }
        if (err == OK && fits_now(e, v, count, charge)) {
            return OK;
        }
        if (err == OK) {
            if (settled && e->full_since == e->checkpoints && !checkpoint_is_due(e)) {
                return ERR_NO_SPACE; /* as somebody has just found out */
            }
            idle_checkpoints += settled;
            err = wait_for_checkpoint(e);
        }
        if (err != OK) {
            return err;
        }
    }
    e->full_since = e->checkpoints;
    return ERR_NO_SPACE; /* the cleaner cannot make room */
}

int space_admit(struct engine *e, struct volume *v, uint64_t block, uint64_t count,
                struct charge *ret_charge) {
    struct charge charge = {.blocks = count, .bytes = count * BLOCK_BYTES};
    int err = OK;
    if (e->share[v->phys.profile] == 0 && !SABOTAGE(admission_off)) {
        return ERR_NO_SPACE;
    }
    if (!SABOTAGE(admission_off)) { /* first come, first served: who waits is not overtaken */
        fiber_lock_take(&e->admission);
        err = admit_wait(e, v, block, &charge);
    }
    if (err == OK) {
        v->admitted_blocks += charge.blocks;
        v->admitted_bytes += charge.bytes;
        e->admitted_bytes += charge.bytes;
        *ret_charge = charge;
    }
    if (!SABOTAGE(admission_off)) {
        fiber_lock_release(&e->admission);
    }
    return err;
}

void space_forgive_bytes(struct volume *v, struct charge *charge) {
    v->admitted_bytes -= charge->bytes;
    v->engine->admitted_bytes -= charge->bytes;
    charge->bytes = 0;
}

void space_release(struct engine *e, struct volume *v, const struct charge *charge, bool applied) {
    ASSERT_LE(charge->blocks, v->admitted_blocks);
    ASSERT_LE(charge->bytes, v->admitted_bytes);
    v->admitted_blocks -= charge->blocks;
    v->admitted_bytes -= charge->bytes;
    e->admitted_bytes -= charge->bytes;
    if (applied) {
        v->dirty_blocks += charge->blocks;
        e->dirty_bytes += charge->bytes;
    }
}
