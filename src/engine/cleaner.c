// SPDX-License-Identifier: MPL-2.0
/* The cleaner: room out of segments that are mostly dead.
 *
 * It runs inside a checkpoint, after the merges have cleared live bits. Who is chosen is in
 * victims.c, how they are emptied in mover.c; here is how much.
 *
 * When it must: free chunks are fewer than admission and long writes ask for (space.c). It then
 * cleans no more than that: each block that dies before its segment is emptied need not be moved,
 * so the later, the cheaper. It leaves the chunks that the rest of the checkpoint needs for
 * metadata.
 *
 * When it may: nobody has asked for anything for a while. Then it works ahead, up to half of all
 * that is dead, as long as victims are worth it, and stops at once when a request comes; what it
 * has moved by then is committed. Checkpoints for that alone come one after another while nobody
 * asks, and end when nothing is left to gain; the next change of the pool makes it look again.
 *
 * Segments that were written degraded, for want of room, are moved as soon as there is room; so are
 * those that are not whole, or on a disk that is to leave, where rebuild.c cannot move the column.
 */
#include <string.h>

#include "base/math.h"
#include "base/sabotage.h"
#include "engine/mover.h"
#include "engine/victims.h"

enum { SPARE_CHUNKS = 2 };

#define AHEAD_SLICE_NS (4 * NS_PER_S)

uint32_t cleaner_asks(const struct engine *e) {
    uint64_t chunk_bytes = (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
    return (uint32_t)(e->keep_segments + e->limits.dirty_bytes / chunk_bytes);
}

/* Chunks that return, of each disk, when this checkpoint commits; and the part of all chunks that
 * holds nothing live, in 1/1024. */
static uint64_t count_dead(const struct engine *e, uint32_t *ret_returning) {
    uint64_t used = 0, all = 0;
    uint64_t chunk_blocks = e->pool->super.geometry.chunk_blocks;
    memset(ret_returning, 0, POOL_DISKS_MAX * sizeof(*ret_returning));
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        if (s == NULL) {
            continue;
        }
        uint32_t columns = shape_columns(s->shape);
        bool returns = s->state == SEGMENT_SEALED && s->live_blocks == 0 && s->pending == 0;
        for (uint32_t c = 0; c < columns && returns; c++) {
            ret_returning[s->column[c].disk]++;
        }
        used += s->kind == SEGMENT_META ? columns * chunk_blocks
                                        : (uint64_t)s->live_blocks * columns / s->shape.data;
    }
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        all += e->table.chunk_count[m] * chunk_blocks;
    }
    return all == 0 || used > all ? 0 : (all - used) * 1024 / all;
}

struct need {
    uint32_t on[POOL_DISKS_MAX]; /* chunks that are missing on each disk, … */
    uint64_t chunks;             /* … and all together */
    bool urgent;                 /* writers will wait */
};

/* On every disk, because a segment needs chunks on several. */
static void reckon(const struct engine *e, bool ahead, struct need *ret) {
    uint32_t returning[POOL_DISKS_MAX];
    uint64_t dead = count_dead(e, returning), asked = cleaner_asks(e);
    uint64_t must = MAX(asked + PROFILE_COUNT, (uint64_t)e->ref_keep_free) + SPARE_CHUNKS;
    *ret = (struct need){0};
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        uint64_t total = e->table.chunk_count[m];
        uint64_t unsold = total - (uint64_t)((uint128)total * e->limit_share / SHARE_ONE);
        uint64_t target = MIN(MAX(must, unsold / 16), unsold * 9 / 10);
        uint64_t have = e->table.chunk_free[m] + returning[m];
        target = ahead ? MAX(target, total * dead / 2048) : target;
        target = MAX(target, (uint64_t)2);
        if (pool_member_stores(e->pool, m) && have < target) {
            ret->on[m] = (uint32_t)(target - have);
            ret->chunks += ret->on[m];
        }
        ret->urgent |= pool_member_stores(e->pool, m) && have < asked;
    }
}

/* ---- ahead ---- */

static uint64_t idle_ns(const struct engine *e) {
    return e->limits.idle_ms * NS_PER_MS;
}

bool cleaner_is_idle(const struct engine *e) {
    return e->running == 0 && env_now_ns(e->env) >= e->request_at_ns + idle_ns(e);
}

/* What a reordering leaves behind dies by itself. */
bool cleaner_is_curious(const struct engine *e) {
    return e->ahead_done != e->checkpoints && e->relocation == NULL;
}

uint64_t cleaner_next_look_ns(const struct engine *e) {
    uint64_t now = env_now_ns(e->env);
    return e->running > 0 ? now + idle_ns(e) : MAX(e->request_at_ns + idle_ns(e), now);
}

struct ahead {
    const struct engine *e;
    uint64_t until_ns;
};

static bool ahead_goes_on(void *ctx) {
    const struct ahead *a = ctx;
    return cleaner_is_idle(a->e) && a->e->state == ENGINE_RUNNING && !a->e->checkpoint_wanted &&
           env_now_ns(a->e->env) < a->until_ns;
}

bool cleaner_gains_ahead(struct engine *e) {
    struct need need;
    struct victims *v = MEM_NEW(struct victims);
    bool gains = false;
    LIST_FOR_EACH(link, &e->volumes) {
        gains |= volume_may_fold(CONTAINER_OF(link, struct volume, link));
    }
    reckon(e, true, &need);
    for (int p = 0; p < PROFILE_COUNT && !gains; p++) {
        struct victims_wanted wanted = {
            .on = need.on, .chunks = need.chunks, .keep_free = e->meta_keep};
        victims_choose_weak(e, (enum profile)p, cleaner_asks(e), v);
        gains = v->count > 0;
        if (!gains && need.chunks > 0) {
            victims_choose(e, (enum profile)p, &wanted, v);
            gains = v->count > 0;
        }
    }
    mem_free(v);
    return gains;
}

/* ---- a checkpoint's cleaning ---- */

static int clean_weak(struct engine *e) {
    struct mover_options all = {0};
    int err = OK;
    struct victims *v = MEM_NEW(struct victims);
    for (int p = 0; p < PROFILE_COUNT && err == OK && !e->short_of_space; p++) {
        victims_choose_weak(e, (enum profile)p, cleaner_asks(e), v);
        uint64_t freed = e->cleaner_freed_segments;
        err = v->count > 0 ? mover_run(e, v->segment, v->count, &all) : OK;
        e->rebuild.restriped += e->cleaner_freed_segments - freed;
    }
    mem_free(v);
    return err;
}

/* Of all profiles, until what is needed is gained. True if something was emptied. */
static bool clean_all(struct engine *e, struct need *need, const struct mover_options *options,
                      bool last_resort, struct victims *v, int *ret_error) {
    bool any = false;
    for (int p = 0; p < PROFILE_COUNT && need->chunks > 0 && *ret_error == OK; p++) {
        struct victims_wanted wanted = {.on = need->on,
                                        .chunks = need->chunks,
                                        .keep_free = e->meta_keep,
                                        .urgent = need->urgent,
                                        .last_resort = last_resort};
        victims_choose(e, (enum profile)p, &wanted, v);
        if (v->count > 0) {
            *ret_error = mover_run(e, v->segment, v->count, options);
            any = true;
        }
        need->chunks -= MIN(v->net, need->chunks);
    }
    return any;
}

int cleaner_run(struct engine *e, bool ahead) {
    struct ahead a = {.e = e, .until_ns = env_now_ns(e->env) + AHEAD_SLICE_NS};
    struct mover_options options = {.go_on = ahead ? ahead_goes_on : NULL, .ctx = &a};
    struct need need;
    struct victims *v = MEM_NEW(struct victims);
    uint64_t moved = e->cleaner_moved_blocks;
    e->move_count = 0;
    int err = clean_weak(e);
    reckon(e, ahead, &need);
    bool any = clean_all(e, &need, &options, false, v, &err);
    if (!any && need.urgent && err == OK) { /* nothing comes of waiting for the disk to be well */
        (void)clean_all(e, &need, &options, true, v, &err);
    }
    if (ahead && moved == e->cleaner_moved_blocks && cleaner_is_idle(e)) {
        e->ahead_done = e->checkpoints + 1; /* which this one will be: nothing can be moved */
    }
    e->cleaner_ahead_blocks += ahead ? e->cleaner_moved_blocks - moved : 0;
    mem_free(v);
    return err;
}
