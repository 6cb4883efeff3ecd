// SPDX-License-Identifier: MPL-2.0
/* The cleaner: room out of segments that are mostly dead.
 *
 * It runs inside a checkpoint, after the merges have cleared live bits, when free chunks are fewer
 * than a part of what the pool keeps unsold, or than what admission asks for (space.c). It leaves
 * the chunks that the rest of the checkpoint needs for metadata. Greedy: the segments with the
 * fewest live blocks first, several at once, of one profile at a time, and only if what survives
 * needs fewer segments than it leaves (a batch frees at least one segment net: closing a
 * part-filled row after each victim would go round for ever). Survivors of a run stay together;
 * they keep their vbas, so only the map learns of the move, and the checkpoint commits it. Blocks
 * are verified before they are moved.
 *
 * Segments that were written degraded, for want of room, are moved as soon as there is room; so are
 * those that are not whole, or on a disk that is to leave, where rebuild.c cannot move the column.
 *
 * A segment with a block that cannot be read, or a run too large for today's segments, is left
 * alone.
 *
 * Until the commit the old places are still there. That matters where the new ones have no
 * redundancy (single, raid0): if a disk is lost before the commit, what was moved to it goes back
 * to where it was (invariant 17: the move must not lose what the loss of that disk would not have
 * lost), and the checkpoint merges the map again. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "engine/private.h"
#include "segment/room.h"

enum { VICTIMS_MAX = 256, WEAK_MAX = 64, READERS_MAX = 4, JOBS_QUEUED_MAX = 16 };

struct cleaning {
    struct engine *e;
    struct segment *victim[VICTIMS_MAX];
    uint32_t count, next;
    struct fiber_group group;
    bool full; /* no chunk to spare any more */
};

/* Chunks of each disk that admission asks for. */
static uint32_t chunks_asked(const struct engine *e) {
    uint64_t chunk_bytes = (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
    return (uint32_t)(e->keep_segments + e->limits.dirty_bytes / chunk_bytes);
}

/* What is missing on each disk: a part of what the pool keeps unsold should be free chunks, on
 * every disk, because a segment needs chunks on several. Returns the sum. Urgent: writers will
 * wait. */
static uint64_t chunks_wanted(const struct engine *e, uint32_t *ret_wanted, bool *ret_urgent) {
    uint64_t sum = 0;
    uint32_t returning[POOL_DISKS_MAX] = {0};
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        if (s != NULL && s->state == SEGMENT_SEALED && s->live_blocks == 0 && s->pending == 0) {
            for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
                returning[s->column[c].disk]++; /* when this checkpoint commits */
            }
        }
    }
    uint64_t asked = chunks_asked(e);
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        uint64_t total = e->table.chunk_count[m];
        uint64_t unsold = total - (uint64_t)((uint128)total * e->limit_share / SHARE_ONE);
        uint64_t target = MIN(MAX(unsold * 6 / 10, asked), unsold * 9 / 10);
        uint64_t have = e->table.chunk_free[m] + returning[m];
        target = MAX(target, (uint64_t)2);
        *ret_urgent |= pool_member_stores(e->pool, m) && have < asked;
        ret_wanted[m] =
            pool_member_stores(e->pool, m) && have < target ? (uint32_t)(target - have) : 0;
        sum += ret_wanted[m];
    }
    return sum;
}

static bool segment_helps(const struct segment *s, const uint32_t *wanted) {
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        if (wanted[s->column[c].disk] > 0) {
            return true;
        }
    }
    return false;
}

static int compare_live(const void *a, const void *b) {
    const struct segment *x = *(struct segment *const *)a, *y = *(struct segment *const *)b;
    uint64_t l = (uint64_t)x->live_blocks * y->shape.data,
             r = (uint64_t)y->live_blocks * x->shape.data;
    return l != r ? (l > r) - (l < r) : (x->slot > y->slot) - (x->slot < y->slot);
}

/* Chunks that return when it has been emptied. */
static uint32_t segment_chunks(const struct engine *e, const struct segment *s) {
    uint32_t chunks = 0;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        chunks += pool_member_stores(e->pool, s->column[c].disk);
    }
    return chunks;
}

/* Chooses victims of one profile; the chunks they yield net, 0: not worth it. */
static uint64_t choose_victims(struct engine *e, enum profile p, const uint32_t *wanted_on,
                               uint64_t wanted, bool urgent, struct cleaning *c) {
    struct segment **candidates = MEM_NEW_ARRAY(struct segment *, e->table.slot_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        struct segment *s = e->table.slots[i];
        if (s != NULL && s->kind == SEGMENT_DATA && s->state == SEGMENT_SEALED && s->profile == p &&
            s->pending == 0 && s->live_blocks > 0 && !s->unmovable && segment_helps(s, wanted_on)) {
            candidates[count++] = s;
        }
    }
    qsort(candidates, count, sizeof(*candidates), compare_live);
    struct segment_room room = segment_room_free(&e->table, e->meta_keep);
    struct shape shape = segment_shape(&e->table, p, e->meta_keep, profile_losses(p));
    uint64_t yield = (uint64_t)e->pool->super.geometry.chunk_blocks * shape.data *
                     e->table.density[shape.data] / 1024;
    uint64_t budget = segment_room_take(&room, p, UINT64_MAX);
    uint64_t live = 0, chunks = 0, net = 0, best_net = 0;
    c->count = 0;
    for (uint32_t i = 0; i < count && i < VICTIMS_MAX && yield > 0; i++) {
        uint64_t moved = (uint64_t)candidates[i]->live_blocks * shape.data;
        if (!urgent && moved * 4 > yield * 3 * candidates[i]->shape.data) {
            break; /* much work for little */
        }
        live += candidates[i]->live_blocks;
        chunks += segment_chunks(e, candidates[i]);
        if (live > budget) {
            break;
        }
        uint64_t needs = div_round_up(live, yield) * shape_columns(shape);
        net = chunks > needs ? chunks - needs : 0;
        if (net > best_net) {
            best_net = net;
            c->count = i + 1;
        }
        if (best_net >= wanted && best_net > 0) {
            break;
        }
    }
    memcpy(c->victim, candidates, c->count * sizeof(*candidates));
    mem_free(candidates);
    return best_net;
}

/* ---- one run ---- */

static uint32_t live_vbas(const struct map_run *run, uint64_t *ret_vbas) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < RUN_BLOCKS; i++) {
        if ((run->live[i / 64] >> (i % 64)) & 1) {
            ret_vbas[count++] = (run->number << RUN_SHIFT) + i;
        }
    }
    return count;
}

struct row_run_phys row_owner(const struct row_phys *h, uint32_t block) {
    const struct row_run_phys *runs = row_header_runs(h);
    uint32_t first = 0;
    for (uint32_t r = 0; r < h->runs; r++) {
        if (block < first + runs[r].count) {
            struct row_run_phys owner = runs[r];
            owner.vba += block - first;
            owner.offset += owner.kind == ROW_OWNER_DATA ? block - first : 0;
            owner.count = 1;
            return owner;
        }
        first += runs[r].count;
    }
    return (struct row_run_phys){0}; /* not reached: a valid header accounts for every block */
}

struct survivors {
    uint64_t vba[RUN_BLOCKS];
    struct row_check check[RUN_BLOCKS];
    struct row_place place[RUN_BLOCKS];
    struct row_run_phys owner[RUN_BLOCKS];
    uint32_t count, owner_count;
    struct buf *data;
};

static void survivors_add_owner(struct survivors *s, struct row_run_phys owner) {
    struct row_run_phys *last = s->owner_count > 0 ? &s->owner[s->owner_count - 1] : NULL;
    if (last != NULL && last->kind == owner.kind && last->volume == owner.volume &&
        last->vba + last->count == owner.vba &&
        (owner.kind == ROW_OWNER_NODE || last->offset + last->count == owner.offset)) {
        last->count++;
    } else {
        s->owner[s->owner_count++] = owner;
    }
}

/* Reads and verifies what is live of the run, as one buffer; or takes it from `row`, the verified
 * content of all of the row. */
static int survivors_read(struct engine *e, const struct map_run *run, const struct row_phys *h,
                          const struct buf *row, struct survivors *s) {
    s->count = live_vbas(run, s->vba);
    s->owner_count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        bool there = map_lookup(&e->map, s->vba[i], &s->place[i]);
        ASSERT(there);
        uint32_t block = s->place[i].index - h->header_blocks;
        if (s->place[i].index < h->header_blocks || block >= h->blocks) {
            return ERR_CORRUPT;
        }
        s->check[i] = (struct row_check){.vba = s->vba[i], .crc = row_header_crcs(h)[block]};
        survivors_add_owner(s, row_owner(h, block));
    }
    s->data = buf_new((size_t)s->count * BLOCK_BYTES);
    for (uint32_t i = 0; row != NULL && i < s->count; i++) {
        memcpy(s->data->data + (size_t)i * BLOCK_BYTES,
               row->data + (size_t)s->place[i].index * BLOCK_BYTES, BLOCK_BYTES);
    }
    for (uint32_t i = 0; row == NULL && i < s->count;) {
        uint32_t n = 1;
        while (i + n < s->count && s->place[i + n].index == s->place[i].index + n) {
            n++;
        }
        int err = row_read(&e->table, &s->place[i], n, &s->check[i], &s->data,
                           (size_t)i * BLOCK_BYTES, &e->row_counters, NULL);
        if (err != OK) {
            return err;
        }
        i += n;
    }
    return OK;
}

static int run_move(struct engine *e, struct map_run *run, const struct row_phys *h,
                    const struct buf *row) {
    struct survivors *s = MEM_NEW(struct survivors);
    enum profile p = run->segment->profile;
    int err = survivors_read(e, run, h, row, s);
    if (err == OK) {
        uint32_t count = s->count;
        uint64_t bits[4];
        memcpy(bits, run->live, sizeof(bits));
        if (SABOTAGE(cleaner_drops_block) && count > 1) {
            memcpy(s->data->data + (size_t)(count - 1) * BLOCK_BYTES, s->data->data, BLOCK_BYTES);
        }
        err = builder_add_moved(e, &e->cold_builders[p], run, s->data, s->check, count, bits,
                                s->owner, s->owner_count);
    }
    buf_unref(s->data);
    mem_free(s);
    return err;
}

static int compare_place(const void *a, const void *b) {
    const struct map_run *x = *(struct map_run *const *)a, *y = *(struct map_run *const *)b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

struct row_source { /* the row that survivors are read from */
    struct segment *segment;
    uint32_t offset;
    int error;
    struct buf *header;
    struct buf *whole; /* all of it, in one piece: where blocks would have to be computed one by
                          one. NULL: not read, or it cannot be had */
};

static void source_close(struct row_source *from) {
    buf_unref(from->header);
    buf_unref(from->whole);
    from->header = from->whole = NULL;
}

static int source_open(struct engine *e, struct row_source *from, const struct map_run *run) {
    if (run->offset == from->offset) {
        return from->error;
    }
    source_close(from);
    from->offset = run->offset;
    if (segment_unreadable(&e->table, from->segment) != 0 &&
        row_read_whole(&e->table, from->segment, run->offset, run->height, &e->row_counters,
                       &from->whole) == OK) {
        from->header = buf_ref(from->whole);
        from->error = OK;
    } else {
        from->error = row_read_header(&e->table, from->segment, run->offset, run->height,
                                      &e->row_counters, &from->header);
    }
    return from->error;
}

static void victim_move(struct cleaning *c, struct segment *victim) {
    struct engine *e = c->e;
    uint32_t count = 0, room = 0;
    LIST_FOR_EACH(link, &victim->runs) {
        room++;
    }
    struct map_run **runs = MEM_NEW_ARRAY(struct map_run *, room + 1);
    LIST_FOR_EACH(link, &victim->runs) {
        struct map_run *run = CONTAINER_OF(link, struct map_run, in_segment);
        if (run->live_count > 0) {
            runs[count++] = run;
        }
    }
    qsort(runs, count, sizeof(*runs), compare_place);
    struct row_source from = {.segment = victim, .offset = UINT32_MAX};
    for (uint32_t i = 0; i < count && e->job_error == OK && !c->full; i++) {
        while (e->job_count > JOBS_QUEUED_MAX) {
            fiber_queue_wait(&e->job_room);
        }
        int err = source_open(e, &from, runs[i]);
        if (err == OK) {
            err = run_move(e, runs[i], (const struct row_phys *)(const void *)from.header->data,
                           from.whole);
        }
        if (err == ERR_NO_SPACE) {
            c->full = true; /* what there is no place for stays where it is */
        } else if (err != OK) {
            victim->unmovable = true;
        }
    }
    source_close(&from);
    mem_free(runs);
}

static void reader_fiber(void *arg) {
    struct cleaning *c = arg;
    while (c->next < c->count) {
        victim_move(c, c->victim[c->next++]);
    }
    fiber_group_done(&c->group, OK);
}

/* ---- the way back ---- */

void cleaner_note_move(struct engine *e, const struct map_run *run, const struct segment *to) {
    if (to->shape.copies > 1 || to->shape.parity > 0) {
        return;
    }
    if (e->move_count == e->move_room) {
        e->move_room = e->move_room * 2 + 64;
        e->moves = mem_realloc(e->moves, e->move_room * sizeof(*e->moves));
    }
    struct move *m = &e->moves[e->move_count++];
    *m = (struct move){.number = run->number,
                       .segment = run->segment,
                       .offset = run->offset,
                       .height = run->height,
                       .index = run->index};
    memcpy(m->present, run->present, sizeof(m->present));
}

static bool is_whole(const struct engine *e, const struct segment *s) {
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        if (segment_column_disk(&e->table, s, c) == NULL) {
            return false;
        }
    }
    return true;
}

bool cleaner_take_back(struct engine *e) {
    bool any = false;
    for (uint64_t i = 0; i < e->move_count; i++) {
        const struct move *m = &e->moves[i];
        struct map_run *run = map_find(&e->map, m->number);
        if (is_whole(e, run->segment) || !is_whole(e, m->segment)) {
            continue;
        }
        if (m->segment->state == SEGMENT_FREEING) {
            segment_stop_freeing(&e->table, m->segment);
        }
        map_move(&e->map, run, m->present, m->segment, m->offset, m->height, m->index);
        any = true;
    }
    return any;
}

/* Segments that have less protection than there is room for now, and those that must leave a disk,
 * as far as writers do not have to wait for it. No more than a checkpoint writes anyway at most: it
 * must come to an end. */
static void choose_weak(struct engine *e, enum profile p, struct cleaning *c) {
    uint64_t most = e->limits.dirty_bytes / BLOCK_BYTES;
    uint32_t keep_free = chunks_asked(e);
    struct shape shape = segment_shape(&e->table, p, keep_free, profile_losses(p));
    struct segment_room room = segment_room_free(&e->table, keep_free);
    uint64_t live = 0, budget = 0;
    c->count = 0;
    for (uint32_t i = 0; i < e->table.slot_count && c->count < WEAK_MAX; i++) {
        struct segment *s = e->table.slots[i];
        if (s == NULL || s->kind != SEGMENT_DATA || s->state != SEGMENT_SEALED || s->profile != p ||
            s->pending > 0 || s->live_blocks == 0 || s->unmovable) {
            continue;
        }
        bool weak = s->degraded && shape_losses(s->shape) < shape_losses(shape);
        if (!weak && (shape.data == 0 || !rebuild_must_restripe(e, s))) {
            continue;
        }
        budget = budget > 0 ? budget : segment_room_take(&room, p, UINT64_MAX);
        live += s->live_blocks;
        if (live > budget || (live > most && c->count > 0)) {
            break;
        }
        c->victim[c->count++] = s;
    }
}

static int victims_move(struct cleaning *c) {
    struct engine *e = c->e;
    for (uint32_t i = 0; i < MIN(c->count, (uint32_t)READERS_MAX); i++) {
        fiber_group_add(&c->group);
        fiber_start(e->env, reader_fiber, c);
    }
    int err = fiber_group_wait(&c->group);
    int flushed = builders_flush(e);
    for (uint32_t i = 0; i < c->count; i++) {
        e->cleaner_freed_segments += c->victim[i]->live_blocks == 0;
    }
    return err != OK ? err : flushed;
}

int cleaner_run(struct engine *e) {
    uint32_t wanted_on[POOL_DISKS_MAX];
    int err = OK;
    e->move_count = 0;
    for (int p = 0; p < PROFILE_COUNT && err == OK && !e->short_of_space; p++) {
        struct cleaning c = {.e = e};
        choose_weak(e, (enum profile)p, &c);
        uint64_t freed = e->cleaner_freed_segments;
        err = c.count > 0 ? victims_move(&c) : OK;
        e->rebuild.restriped += e->cleaner_freed_segments - freed;
    }
    bool urgent = false;
    uint64_t wanted = chunks_wanted(e, wanted_on, &urgent);
    for (int p = 0; p < PROFILE_COUNT && wanted > 0 && err == OK; p++) {
        struct cleaning c = {.e = e};
        uint64_t net = choose_victims(e, (enum profile)p, wanted_on, wanted, urgent, &c);
        err = net > 0 ? victims_move(&c) : OK;
        wanted -= MIN(net, wanted);
    }
    return err;
}
