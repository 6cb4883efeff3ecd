// SPDX-License-Identifier: MPL-2.0
/* The mover: what is live in some segments, into new rows.
 *
 * It is what the cleaner, and whoever else wants segments to be empty, works with. It runs in a
 * checkpoint, between the merges and the map: live bits do not change meanwhile, and the checkpoint
 * commits the moves. Blocks keep their vbas, so only the map learns of it, and the blocks of a run
 * stay together.
 *
 * Rows are read in the order in which they lie on the disks, whole where much of them is live (a
 * disk that rotates passes over the rest in no time), several at once; each block is verified, and
 * looked for in redundancy if it is not what it should be. What survives gathers in memory up to a
 * limit. Then it is sorted by owner, volume by volume in the order of their blocks, nodes apart,
 * and written to the cold stream of its profile: so what belongs together and is not overwritten
 * comes to lie together, whichever victims it came from. Rows are filled across victims and
 * windows; only the end of a whole batch leaves a part-filled one.
 *
 * A segment with a block that cannot be read, or a run too large for today's segments, is left
 * alone from then on. Where there is no room the rest stays where it is.
 *
 * Until the commit the old places are still there. That matters where the new ones have no
 * redundancy (single, raid0): if a disk is lost before the commit, what was moved to it goes back
 * to where it was (invariant 17: the move must not lose what the loss of that disk would not have
 * lost), and the checkpoint merges the map again. */
#include "engine/mover.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"

enum { READERS_MAX = 12, JOBS_QUEUED_MAX = 16, WHOLE_ROW_PART = 4 };

#define WINDOW_LEAST_BYTES ((uint64_t)4 << 20)
#define WINDOW_MOST_BYTES ((uint64_t)64 << 20)

struct moving { /* what survived of a run: read, verified, and its owners */
    struct map_run *run;
    uint64_t bits[4];
    uint32_t count, owner_count;
    uint32_t *index; /* of each block in its row */
    struct row_check *check;
    struct row_run_phys *owner;
    struct buf *data;
};

struct mover {
    struct engine *e;
    const struct mover_options *options;
    struct map_run **run; /* all there is to move: victim by victim, as they lie there */
    uint64_t run_count, run_at;
    struct moving **gathered;
    uint64_t gathered_count, gathered_room, gathered_bytes, window_bytes;
    struct fiber_group readers;
    bool full, stopped; /* no chunk to spare any more; told to stop */
};

/* ---- owners ---- */

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

static void moving_add_owner(struct moving *m, struct row_run_phys owner) {
    struct row_run_phys *last = m->owner_count > 0 ? &m->owner[m->owner_count - 1] : NULL;
    if (last != NULL && last->kind == owner.kind && last->volume == owner.volume &&
        last->vba + last->count == owner.vba &&
        (owner.kind == ROW_OWNER_NODE || last->offset + last->count == owner.offset)) {
        last->count++;
    } else {
        m->owner[m->owner_count++] = owner;
    }
}

/* ---- reading one run ---- */

static void moving_free(struct moving *m) {
    if (m != NULL) {
        buf_unref(m->data);
        mem_free(m->index);
        mem_free(m->check);
        mem_free(m->owner);
        mem_free(m);
    }
}

/* What is live of the run, as the row's header describes it; NULL: the header does not know it. */
static struct moving *moving_new(const struct engine *e, struct map_run *run,
                                 const struct row_phys *h) {
    struct moving *m = MEM_NEW(struct moving);
    m->run = run;
    memcpy(m->bits, run->live, sizeof(m->bits));
    m->index = MEM_NEW_ARRAY(uint32_t, run->live_count);
    m->check = MEM_NEW_ARRAY(struct row_check, run->live_count);
    m->owner = MEM_NEW_ARRAY(struct row_run_phys, run->live_count);
    for (uint32_t i = 0; i < RUN_BLOCKS; i++) {
        if (((run->live[i / 64] >> (i % 64)) & 1) == 0) {
            continue;
        }
        uint64_t vba = (run->number << RUN_SHIFT) + i;
        struct row_place place;
        bool there = map_lookup(&e->map, vba, &place);
        ASSERT(there);
        uint32_t block = place.index - h->header_blocks;
        if (place.index < h->header_blocks || block >= h->blocks) {
            moving_free(m);
            return NULL;
        }
        m->index[m->count] = place.index;
        m->check[m->count++] = (struct row_check){.vba = vba, .crc = row_header_crcs(h)[block]};
        moving_add_owner(m, row_owner(h, block));
    }
    ASSERT_EQ(m->count, run->live_count);
    m->data = buf_new((size_t)m->count * BLOCK_BYTES);
    return m;
}

/* From the row as it was read, whole; false: a block is not what it should be. */
static bool moving_take(struct moving *m, const struct buf *row) {
    for (uint32_t i = 0; i < m->count; i++) {
        uint8_t *to = m->data->data + (size_t)i * BLOCK_BYTES;
        const uint8_t *from = row->data + (size_t)m->index[i] * BLOCK_BYTES;
        if (crc32c_seeded_copy(m->check[i].vba, to, from, BLOCK_BYTES, false) != m->check[i].crc &&
            !SABOTAGE(rebuild_unverified)) {
            return false;
        }
    }
    return true;
}

/* Block by block, from redundancy where it must be. */
static int moving_read(struct engine *e, struct moving *m) {
    const struct map_run *run = m->run;
    for (uint32_t i = 0; i < m->count;) {
        uint32_t n = 1;
        while (i + n < m->count && m->index[i + n] == m->index[i] + n) {
            n++;
        }
        struct row_place place = {.segment = run->segment,
                                  .offset = run->offset,
                                  .height = run->height,
                                  .index = m->index[i]};
        int err = row_read(&e->table, &place, n, &m->check[i], &m->data, (size_t)i * BLOCK_BYTES,
                           &e->row_counters, NULL);
        if (err != OK) {
            return err;
        }
        i += n;
    }
    return OK;
}

/* ---- reading one row ---- */

static void gather(struct mover *mv, struct moving *m) {
    if (SABOTAGE(cleaner_drops_block) && m->count > 1) {
        memcpy(m->data->data + (size_t)(m->count - 1) * BLOCK_BYTES, m->data->data, BLOCK_BYTES);
    }
    if (mv->gathered_count == mv->gathered_room) {
        mv->gathered_room = mv->gathered_room * 2 + 64;
        mv->gathered = mem_realloc(mv->gathered, mv->gathered_room * sizeof(*mv->gathered));
    }
    mv->gathered[mv->gathered_count++] = m;
    mv->gathered_bytes += (uint64_t)m->count * BLOCK_BYTES;
}

/* The row from its header to its last live block, in one piece; NULL: not to be had like that. */
static struct buf *row_read_whole(struct engine *e, struct map_run *const *runs, uint32_t count) {
    const struct map_run *first = runs[0], *last = runs[count - 1];
    uint32_t live = 0, present = 0;
    if (segment_unreadable(&e->table, first->segment) != 0) { /* not computed block by block */
        struct buf *columns = NULL;
        int read = row_read_columns(&e->table, first->segment, first->offset, first->height,
                                    &e->row_counters, &columns);
        return read == OK ? columns : NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        live += runs[i]->live_count;
    }
    for (int w = 0; w < 4; w++) {
        present += (uint32_t)__builtin_popcountll(last->present[w]);
    }
    struct row_place place = {
        .segment = first->segment, .offset = first->offset, .height = first->height};
    uint32_t blocks = last->index + present;
    if (live * WHOLE_ROW_PART < blocks || blocks > ROW_TOTAL_MAX) {
        return NULL;
    }
    struct buf *row = buf_new((size_t)blocks * BLOCK_BYTES);
    int err = row_read_unverified(&e->table, &place, blocks, &row, 0, &e->row_counters);
    if (err == OK) {
        err = row_header_validate(row->data, row->bytes, first->segment->uid, first->offset,
                                  first->height, first->segment->shape.data);
    }
    if (err != OK) {
        buf_unref(row);
        return NULL;
    }
    return row;
}

/* All runs of one row. */
static void row_gather(struct mover *mv, struct map_run *const *runs, uint32_t count) {
    struct engine *e = mv->e;
    struct segment *s = runs[0]->segment;
    struct buf *row = row_read_whole(e, runs, count), *header = row;
    int err = OK;
    if (row == NULL) {
        err = row_read_header(&e->table, s, runs[0]->offset, runs[0]->height, &e->row_counters,
                              &header);
    }
    for (uint32_t i = 0; i < count && err == OK; i++) {
        struct moving *m =
            moving_new(e, runs[i], (const struct row_phys *)(const void *)header->data);
        int read = m == NULL ? ERR_CORRUPT : OK;
        if (read == OK && (row == NULL || !moving_take(m, row))) {
            read = moving_read(e, m);
        }
        if (read == OK) {
            gather(mv, m);
        } else {
            s->unmovable = true;
            moving_free(m);
        }
        (void)fiber_pace();
    }
    s->unmovable |= err != OK;
    buf_unref(header);
}

static bool may_go_on(struct mover *mv) {
    const struct mover_options *o = mv->options;
    mv->stopped = mv->stopped || (o->go_on != NULL && !o->go_on(o->ctx));
    return !mv->stopped && !mv->full && mv->e->job_error == OK;
}

static void reader_fiber(void *arg) {
    struct mover *mv = arg;
    while (mv->run_at < mv->run_count && mv->gathered_bytes < mv->window_bytes && may_go_on(mv)) {
        struct map_run *const *first = &mv->run[mv->run_at];
        uint32_t count = 1;
        while (mv->run_at + count < mv->run_count && first[count]->segment == first[0]->segment &&
               first[count]->offset == first[0]->offset) {
            count++;
        }
        mv->run_at += count;
        row_gather(mv, first, count);
    }
    fiber_group_done(&mv->readers, OK);
}

/* ---- writing ---- */

static int compare_owner(const void *a, const void *b) {
    const struct moving *x = *(struct moving *const *)a, *y = *(struct moving *const *)b;
    const struct row_run_phys *l = x->owner, *r = y->owner;
    if (l->kind != r->kind) {
        return l->kind < r->kind ? -1 : 1;
    }
    if (l->volume != r->volume) {
        return l->volume < r->volume ? -1 : 1;
    }
    if (l->offset != r->offset) {
        return l->offset < r->offset ? -1 : 1;
    }
    return (l->vba > r->vba) - (l->vba < r->vba);
}

static void write_gathered(struct mover *mv) {
    struct engine *e = mv->e;
    if (mv->gathered_count > 0) { /* there may be no array */
        qsort(mv->gathered, mv->gathered_count, sizeof(*mv->gathered), compare_owner);
    }
    for (uint64_t i = 0; i < mv->gathered_count; i++) {
        struct moving *m = mv->gathered[i];
        while (e->job_count > JOBS_QUEUED_MAX) {
            fiber_queue_wait(&e->job_room);
        }
        if (!mv->full && e->job_error == OK) {
            int err =
                builder_add_moved(e, &e->cold_builders[m->run->segment->profile], m->run, m->data,
                                  m->check, m->count, m->bits, m->owner, m->owner_count);
            mv->full |= err == ERR_NO_SPACE; /* what there is no place for stays where it is */
            m->run->segment->unmovable |= err != OK && err != ERR_NO_SPACE;
        }
        moving_free(m);
        (void)fiber_pace();
    }
    mv->gathered_count = 0;
    mv->gathered_bytes = 0;
    int err = fiber_group_wait(&e->writer_group); /* their memory is needed for the next window */
    ASSERT_EQ(err, OK);                           /* what failed is in job_error */
}

/* ---- a batch ---- */

static int compare_place(const void *a, const void *b) {
    const struct map_run *x = *(struct map_run *const *)a, *y = *(struct map_run *const *)b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static void mover_add_victim(struct mover *mv, const struct segment *s) {
    uint64_t first = mv->run_count, more = 0;
    LIST_FOR_EACH(link, &s->runs) {
        more++;
    }
    mv->run = mem_realloc(mv->run, (mv->run_count + more + 1) * sizeof(*mv->run));
    LIST_FOR_EACH(link, &s->runs) {
        struct map_run *run = CONTAINER_OF(link, struct map_run, in_segment);
        if (run->live_count > 0) {
            mv->run[mv->run_count++] = run;
        }
    }
    qsort(&mv->run[first], mv->run_count - first, sizeof(*mv->run), compare_place);
    (void)fiber_pace();
}

int mover_run(struct engine *e, struct segment *const *victims, uint32_t count,
              const struct mover_options *options) {
    struct mover *mv = MEM_NEW(struct mover);
    mv->e = e;
    mv->options = options;
    mv->window_bytes = MIN(MAX(e->limits.dirty_bytes / 4, WINDOW_LEAST_BYTES), WINDOW_MOST_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        mover_add_victim(mv, victims[i]);
    }
    while (mv->run_at < mv->run_count && may_go_on(mv)) {
        for (uint32_t i = 0; i < READERS_MAX; i++) {
            fiber_group_add(&mv->readers);
            fiber_start(e->env, reader_fiber, mv);
        }
        int err = fiber_group_wait(&mv->readers);
        ASSERT_EQ(err, OK);
        write_gathered(mv);
    }
    int err = builders_flush(e);
    for (uint32_t i = 0; i < count; i++) {
        e->cleaner_freed_segments += victims[i]->live_blocks == 0;
    }
    mem_free(mv->gathered);
    mem_free(mv->run);
    mem_free(mv);
    return err;
}

/* ---- the way back ---- */

void mover_note(struct engine *e, const struct map_run *run, const struct segment *to) {
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

bool mover_take_back(struct engine *e) {
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
