// SPDX-License-Identifier: MPL-2.0
/* Admission: what is admitted can be flushed (invariant 15).
 *
 * Space is counted in shares of the pool: a data block of a profile costs 1 / (blocks the whole
 * pool could hold in that profile). What is used is the sum over volumes of what they hold (thick
 * ones: of what they were promised); what is dirty is charged as if every block were new, because a
 * write reads no metadata. About an eighth of the pool, or what a small pool needs for open
 * segments and metadata if that is more, is never sold: checkpoints, deletes and the cleaner live
 * on it.
 *
 * When the worst case would pass the limit, the writer first waits for a checkpoint, which turns
 * guesses into facts; then, near the end, it looks up which of its blocks are really new. Only if
 * those do not fit there is no space.
 *
 * Besides, free chunks must hold what a checkpoint writes before it frees anything. When they are
 * few, writers wait for a checkpoint, which also cleans. */
#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "engine/private.h"

enum { RESERVE_PERCENT = 12, IDLE_CHECKPOINTS_MAX = 8 };

uint64_t volume_promised_blocks(const struct volume *v) {
    uint64_t size = v->phys.size_bytes / BLOCK_BYTES;
    bool thick =
        (v->phys.flags & VOLUME_FLAG_THICK) != 0 && (v->phys.flags & VOLUME_FLAG_DELETING) == 0;
    return thick ? MAX(size, v->phys.allocated_blocks) : v->phys.allocated_blocks;
}

/* Chunks that a pool with these volumes keeps for itself. */
static uint64_t reserved_chunks(const struct engine *e) {
    bool in_use[PROFILE_COUNT] = {false};
    uint32_t widest = 1;
    uint64_t chunks = 6ull * e->pool->meta_copies;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        in_use[v->phys.profile] = true;
        in_use[node_profile(e, (enum profile)v->phys.profile)] = true;
    }
    uint32_t disks = MAX(1u, pool_in_sync_count(e->pool));
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if (in_use[p]) {
            uint32_t columns = shape_columns(profile_shape((enum profile)p, disks));
            chunks += 3ull * columns; /* hot, cold, and one being cleaned */
            widest = MAX(widest, columns);
        }
    }
    uint64_t dirty = div_round_up(e->limits.dirty_bytes,
                                  (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES);
    return chunks + 2 * widest + 3 * dirty;
}

/* Of what rows occupy, how much is data: the rest is headers and padding. In 1/1024. */
static uint64_t row_efficiency(struct engine *e, enum profile p, uint32_t disks) {
    const struct geometry *g = &e->pool->super.geometry;
    struct segment fresh = {.shape = profile_shape(p, disks)};
    uint32_t capacity = row_capacity(&e->table, &fresh, true, true);
    uint32_t tallest =
        MAX(g->row_blocks, (uint32_t)div_round_up(g->node_blocks + 1, fresh.shape.data));
    uint32_t blocks = MIN(tallest * fresh.shape.data, g->chunk_blocks / 2); /* as row_capacity() */
    blocks = MIN(blocks, capacity + 3);                                     /* the largest header */
    uint32_t height = (uint32_t)div_round_up(blocks, fresh.shape.data);
    uint64_t in_chunk = (uint64_t)(g->chunk_blocks / height) * capacity;
    return in_chunk * 1024 / ((uint64_t)g->chunk_blocks * fresh.shape.data);
}

void space_recount(struct engine *e) {
    uint64_t chunks = 0;
    uint32_t disks = MAX(1u, pool_in_sync_count(e->pool));
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        chunks += pool_member_in_sync(e->pool, m) ? e->table.chunk_count[m] : 0;
    }
    for (int p = 0; p < PROFILE_COUNT; p++) {
        uint64_t usable = segment_usable_blocks(&e->table, (enum profile)p, false);
        usable = usable * row_efficiency(e, (enum profile)p, disks) / 1024;
        e->share[p] = usable == 0 ? 0 : SHARE_ONE / usable + 1;
        e->free_changes[p] = UINT64_MAX;
    }
    uint64_t reserved = reserved_chunks(e);
    uint64_t percent = chunks == 0 ? 100 : reserved * 100 / chunks + 5;
    percent = MIN(MAX(percent, (uint64_t)RESERVE_PERCENT), (uint64_t)100);
    e->limit_share = SHARE_ONE / 100 * (100 - percent);
    /* What checkpoints may need of one disk at worst, but not more than a quarter of it. */
    uint64_t dirty_chunks =
        e->limits.dirty_bytes / BLOCK_BYTES * 3 / 2 / e->pool->super.geometry.chunk_blocks;
    e->ref_keep_free = (uint32_t)MIN(dirty_chunks + 5, chunks / disks / 4);
}

uint64_t space_free_blocks(struct engine *e, enum profile profile) {
    if (e->free_changes[profile] != e->table.changes) {
        e->free_blocks[profile] = segment_usable_blocks(&e->table, profile, true);
        e->free_changes[profile] = e->table.changes;
    }
    return e->free_blocks[profile];
}

uint64_t space_used_share(const struct engine *e, bool with_dirty) {
    uint64_t used = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        uint64_t share = e->share[v->phys.profile];
        uint64_t dirty = v->admitted_blocks + v->dirty_blocks + v->frozen_blocks;
        used += volume_promised_blocks(v) * share;
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

/* Free chunks hold the rows of what is dirty, the nodes it will touch, and segments for the cleaner
 * and the metadata, which is written last. */
static bool chunks_have_room(struct engine *e, const struct volume *v, uint64_t count) {
    enum profile p = (enum profile)v->phys.profile;
    const struct geometry *g = &e->pool->super.geometry;
    uint32_t disks = MAX(1u, pool_in_sync_count(e->pool));
    uint64_t dirty = dirty_total_bytes(e) / BLOCK_BYTES + count;
    uint64_t rows = dirty * 1024 / MAX((uint64_t)256, row_efficiency(e, p, disks));
    uint64_t spare = 4ull * profile_shape(p, disks).data * g->chunk_blocks;
    return space_free_blocks(e, p) >= rows + rows / 4 + spare;
}

static int wait_for_checkpoint(struct engine *e) {
    if (!e->checkpoint_fiber_gone && e->state != ENGINE_FAILED) {
        checkpoint_want(e);
        fiber_queue_wait(&e->space_waiters);
    }
    if (e->state == ENGINE_FAILED) {
        return e->failure;
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
    return space_used_share(e, true) + blocks * e->share[v->phys.profile] <= e->limit_share;
}

static uint64_t charged_blocks(const struct engine *e) {
    uint64_t blocks = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        blocks += v->admitted_blocks + v->dirty_blocks + v->frozen_blocks;
    }
    return blocks;
}

/* The head of the queue of writers: waits until its blocks fit, or certainly do not. */
static int admit_wait(struct engine *e, struct volume *v, uint64_t block, struct charge *charge) {
    uint64_t count = charge->blocks;
    for (int idle_checkpoints = 0; idle_checkpoints < IDLE_CHECKPOINTS_MAX;) {
        bool settled = charged_blocks(e) == 0; /* nothing that a checkpoint would turn into facts */
        int err = OK;
        if (dirty_has_room(e, charge->bytes) && promise_has_room(e, v, charge->blocks) &&
            chunks_have_room(e, v, count)) {
            return OK;
        }
        if (settled && !promise_has_room(e, v, charge->blocks)) {
            charge->blocks = count;
            err = read_count_unmapped(v, block, count, &charge->blocks);
            if (err == OK && !promise_has_room(e, v, charge->blocks)) {
                return ERR_NO_SPACE;
            }
            if (err == OK && chunks_have_room(e, v, count)) {
                return OK;
            }
        }
        if (err == OK) {
            idle_checkpoints += settled;
            err = wait_for_checkpoint(e);
        }
        if (err != OK && err != ERR_AGAIN) { /* again: a checkpoint committed meanwhile */
            return err;
        }
    }
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
        e->admitted_bytes += charge.bytes;
        *ret_charge = charge;
    }
    if (!SABOTAGE(admission_off)) {
        fiber_lock_release(&e->admission);
    }
    return err;
}

void space_release(struct engine *e, struct volume *v, const struct charge *charge, bool applied) {
    ASSERT_LE(charge->blocks, v->admitted_blocks);
    ASSERT_LE(charge->bytes, e->admitted_bytes);
    v->admitted_blocks -= charge->blocks;
    e->admitted_bytes -= charge->bytes;
    if (applied) {
        v->dirty_blocks += charge->blocks;
        e->dirty_bytes += charge->bytes;
    }
}
