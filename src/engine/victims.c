// SPDX-License-Identifier: MPL-2.0
/* Whom to empty.
 *
 * Emptying a segment that is live to a part u reads 1, writes u and frees 1 - u. What is gained
 * stays gained for as long as the survivors live, which is the longer the older they are: what has
 * not been overwritten for long will not be soon. So victims are taken by benefit over cost,
 *
 *     (1 - u) × age / (1 + u)            (Rosenblum and Ousterhout, TOCS 1992)
 *
 * which empties old segments earlier than young ones that are equally full: those are still losing
 * blocks by themselves. Age is the mean distance of a segment's runs from the newest vba, because
 * vbas are handed out in order, and the cleaner leaves them as they are. It counts up to the size
 * of the pool's content (what has lain still while the whole pool was written once is old;
 * distances of other mounts mean nothing beyond that), and from a sixteenth of it on, so that a
 * young segment that is nearly empty is taken all the same. Where there is no time for that, when
 * writers wait or the pool is nearly full, the emptiest are taken.
 *
 * Several at once, and only as many as leave most chunks net: survivors fill fewer segments than
 * they leave, so each batch frees at least one. (Closing a part-filled row after each victim would
 * go round for ever.) */
#include "engine/victims.h"

#include <stdlib.h>

#include "base/math.h"
#include "base/mem.h"
#include "segment/room.h"

enum { WEAK_MAX = 64, AGE_ONE = 1024, AGE_LEAST = 64, NEARLY_FULL_PCT = 90 };

struct candidate {
    struct segment *segment;
    uint64_t score; /* higher is better */
};

static bool segment_helps(const struct segment *s, const uint32_t *wanted_on) {
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        if (wanted_on[s->column[c].disk] > 0) {
            return true;
        }
    }
    return false;
}

static bool may_be_emptied(const struct segment *s, enum profile p) {
    return s != NULL && s->kind == SEGMENT_DATA && s->state == SEGMENT_SEALED && s->profile == p &&
           s->pending == 0 && s->live_blocks > 0 && !s->unmovable;
}

/* What lives in it can be had only from a disk that is to be avoided: a checkpoint that empties it
 * takes as long as that disk does, and so does every writer who waits for it. */
static bool needs_avoided(const struct engine *e, const struct segment *s) {
    uint32_t without = 0;
    bool avoided = false;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        const struct disk *disk = segment_column_disk(&e->table, s, c);
        bool avoid = disk != NULL && disk_is_avoided(disk);
        avoided |= avoid;
        without += disk == NULL || avoid;
    }
    return avoided && without > shape_losses(s->shape);
}

static uint64_t age_of(const struct engine *e, const struct segment *s) {
    uint64_t now = e->vba_next >> RUN_SHIFT;
    uint64_t mean = (s->run_count * now - s->birth_sum) / MAX(1u, s->run_count);
    uint64_t whole = MAX(e->map.run_count, (uint64_t)1);
    return MAX(MIN(mean, whole) * AGE_ONE / whole, (uint64_t)AGE_LEAST);
}

static uint64_t score_of(const struct engine *e, const struct segment *s, bool greedy) {
    uint64_t all = (uint64_t)e->pool->super.geometry.chunk_blocks * s->shape.data;
    uint64_t live = MIN((uint64_t)s->live_blocks, all);
    if (greedy) {
        return (all - live) * AGE_ONE * AGE_ONE / all;
    }
    return (all - live) * AGE_ONE / (all + live) * age_of(e, s);
}

static int compare_score(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->segment->slot > y->segment->slot) - (x->segment->slot < y->segment->slot);
}

/* Chunks that return when it has been emptied. */
static uint32_t segment_chunks(const struct engine *e, const struct segment *s) {
    uint32_t chunks = 0;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        chunks += pool_member_stores(e->pool, s->column[c].disk);
    }
    return chunks;
}

/* All that come into question, best first. `yield`: blocks that a new segment holds. */
static struct candidate *candidates_sorted(const struct engine *e, enum profile p,
                                           const struct victims_wanted *w, struct shape shape,
                                           uint64_t yield, uint32_t *ret_count) {
    struct candidate *list = MEM_NEW_ARRAY(struct candidate, e->table.slot_count + 1);
    bool nearly_full = space_used_share(e, false) > e->limit_share / 100 * NEARLY_FULL_PCT;
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        struct segment *s = e->table.slots[i];
        if (!may_be_emptied(s, p) || !segment_helps(s, w->on) ||
            (!w->last_resort && needs_avoided(e, s))) {
            continue;
        }
        uint64_t moved = (uint64_t)s->live_blocks * shape.data;
        if (!w->urgent && moved * 4 > yield * 3 * s->shape.data) {
            continue; /* much work for little */
        }
        list[count++] =
            (struct candidate){.segment = s, .score = score_of(e, s, w->urgent || nearly_full)};
    }
    qsort(list, count, sizeof(*list), compare_score);
    *ret_count = count;
    return list;
}

void victims_choose(struct engine *e, enum profile p, const struct victims_wanted *w,
                    struct victims *ret) {
    struct segment_room room = segment_room_free(&e->table, w->keep_free);
    struct shape shape = segment_shape(&e->table, p, w->keep_free, profile_losses(p));
    uint64_t yield = (uint64_t)e->pool->super.geometry.chunk_blocks * shape.data *
                     e->table.density[shape.data] / 1024;
    ret->count = 0;
    ret->net = 0;
    if (yield == 0) {
        return;
    }
    uint32_t count;
    struct candidate *list = candidates_sorted(e, p, w, shape, yield, &count);
    uint64_t budget = segment_room_take(&room, p, UINT64_MAX);
    uint64_t live = 0, chunks = 0;
    for (uint32_t i = 0; i < count && i < VICTIMS_MAX; i++) {
        live += list[i].segment->live_blocks;
        if (live > budget || (ret->net >= w->chunks && ret->net > 0)) {
            break;
        }
        chunks += segment_chunks(e, list[i].segment);
        ret->segment[i] = list[i].segment;
        uint64_t needs = div_round_up(live, yield) * shape_columns(shape);
        if (chunks > needs && chunks - needs > ret->net) {
            ret->net = chunks - needs;
            ret->count = i + 1;
        }
    }
    mem_free(list);
}

void victims_choose_weak(struct engine *e, enum profile p, uint32_t keep_free,
                         struct victims *ret) {
    struct shape shape = segment_shape(&e->table, p, keep_free, profile_losses(p));
    struct segment_room room = segment_room_free(&e->table, keep_free);
    uint64_t live = 0, budget = 0, most = e->limits.dirty_bytes / BLOCK_BYTES;
    ret->count = 0;
    ret->net = 0;
    for (uint32_t i = 0; i < e->table.slot_count && ret->count < WEAK_MAX; i++) {
        struct segment *s = e->table.slots[i];
        bool weak =
            may_be_emptied(s, p) && s->degraded && shape_losses(s->shape) < shape_losses(shape);
        if (!may_be_emptied(s, p) || (!weak && (shape.data == 0 || !rebuild_must_restripe(e, s)))) {
            continue;
        }
        budget = budget > 0 ? budget : segment_room_take(&room, p, UINT64_MAX);
        live += s->live_blocks;
        if (live > budget || (live > most && ret->count > 0)) { /* a checkpoint has to end */
            break;
        }
        ret->segment[ret->count++] = s;
    }
}
