// SPDX-License-Identifier: MPL-2.0
/* Rebuild: what lies on disks that are lost, or that are to leave, is written elsewhere.
 *
 * A column of a segment is *due* when it cannot be read (it is marked lost, or its disk is missing,
 * and the time for which that disk may still come back is over), or when its disk is leaving. There
 * are two ways to get it off there:
 *
 *   relocate   Where a disk that the segment does not use has a chunk to spare, the one column is
 *              written there: read from the leaving disk, or computed from the others; the columns
 *              that are well are only read. Rows without live blocks are left out. This goes on
 *              beside everything else; the table of the next checkpoint moves the column.
 *   restripe   Otherwise the segment is a victim for the cleaner, which writes what lives in it to
 *              new segments of the shape that the disks there are allow: narrower, but whole.
 *
 * Segments with the least redundancy left come first. A relocation in four states:
 *
 *     state      the table says   in memory   a crash, or the loss of the new disk, finds
 *     copying    old place        old         the old place; the new chunk is free again
 *     ready      old place        old         the same
 *     switched   old place        new         the same: if the new disk is lost before the commit,
 *                                             the column goes back (invariant 17)
 *     old        new place        new         the new place; the old chunk is given back when the
 *                                             last reader has left and its disk was told
 *
 * The switch is made just before the table pages are written, and the flush that follows covers
 * what was copied. The pool's own metadata is not relocated but written again (meta.c).
 *
 * The pool is *whole* when nothing due or not is unreadable any more, as of a checkpoint that began
 * after the last disk was lost: then the log, too, has all its copies on disks that are there. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "engine/private.h"

enum { WORKERS = 4, ROUND_COLUMNS = 128 };

#define ROUND_NS (20 * NS_PER_S)
#define IDLE_NS (10 * NS_PER_S)       /* between looks when nothing is to be done */
#define STUCK_LEAST_NS (2 * NS_PER_S) /* … when what is to be done finds no room; then more */
#define STUCK_MOST_NS (60 * NS_PER_S)
#define BUSY_NS (100 * (uint64_t)NS_PER_MS) /* after a request the pool counts as in use */

enum relocation_state { COPYING, READY, SWITCHED, OLD };

struct column_move {
    struct list link;
    struct segment *segment; /* pinned */
    uint32_t column;
    struct segment_column_phys from, to;
    bool was_lost;
    bool failed; /* the new disk was lost */
    bool is_discarded;
    enum relocation_state state;
    uint64_t bytes;
};

struct candidate {
    struct segment *segment;
    uint64_t uid;
    uint32_t slot, column;
    uint32_t margin; /* losses that the segment still bears */
};

struct round {
    struct engine *e;
    struct candidate *candidates;
    uint32_t count, next;
    uint64_t until_ns;
    struct fiber_group group;
    uint32_t copied;
};

/* ---- what is due ---- */

static bool member_is_due(const struct engine *e, uint32_t m) {
    return pool_member_is_leaving(e->pool, m) || env_now_ns(e->env) >= e->rebuild.due_at_ns[m];
}

static bool column_is_due(const struct engine *e, const struct segment *s, uint32_t c) {
    uint32_t m = s->column[c].disk;
    if (pool_member_in_sync(e->pool, m)) {
        return ((s->lost >> c) & 1) != 0 || pool_member_is_leaving(e->pool, m);
    }
    return member_is_due(e, m);
}

static bool is_in_use(const struct segment *s) {
    return s->live_blocks > 0 || s->pending > 0;
}

/* Such that its content stays as it is, on stable media. */
static bool is_settled(const struct segment *s) {
    return s->kind == SEGMENT_DATA && s->state == SEGMENT_SEALED && s->pending == 0 &&
           s->live_blocks > 0 && s->unflushed == 0;
}

static uint32_t margin_of(const struct engine *e, const struct segment *s) {
    uint32_t unreadable = (uint32_t)__builtin_popcount(segment_unreadable(&e->table, s));
    uint32_t losses = shape_losses(s->shape);
    return losses > unreadable ? losses - unreadable : 0;
}

static uint32_t target_of(struct engine *e, const struct segment *s, uint32_t c) {
    uint32_t m = s->uncopyable ? POOL_DISKS_MAX : segment_column_target(&e->table, s, c, 0);
    return m != POOL_DISKS_MAX && space_spares_chunk(e, m) ? m : POOL_DISKS_MAX;
}

bool rebuild_must_restripe(struct engine *e, const struct segment *s) {
    if (!is_settled(s) || s->relocating) {
        return false;
    }
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        if (column_is_due(e, s, c) && target_of(e, s, c) == POOL_DISKS_MAX) {
            return true;
        }
    }
    return false;
}

bool rebuild_meta_must_move(const struct engine *e, const struct segment *s) {
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        uint32_t m = s->column[c].disk;
        if (segment_column_disk(&e->table, s, c) == NULL || pool_member_is_leaving(e->pool, m)) {
            return true;
        }
    }
    return false;
}

static int compare_candidates(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->margin != y->margin) {
        return x->margin < y->margin ? -1 : 1;
    }
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* One column a segment, and whether there is anything for the cleaner. */
static void collect(struct round *r, bool *ret_restripe, bool *ret_meta) {
    struct engine *e = r->e;
    e->rebuild.needs_disk = false;
    uint32_t room = e->table.slot_count;
    r->candidates = MEM_NEW_ARRAY(struct candidate, room + 1);
    for (uint32_t i = 0; i < room; i++) {
        (void)fiber_pace();
        struct segment *s = e->table.slots[i];
        if (s == NULL || s->relocating) {
            continue;
        }
        if (s->kind == SEGMENT_META) {
            *ret_meta |= s->live_blocks > 0 && rebuild_meta_must_move(e, s);
            continue;
        }
        if (!is_settled(s)) {
            continue;
        }
        bool restripe = false;
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            if (!column_is_due(e, s, c)) {
                continue;
            }
            if (!s->unmovable && target_of(e, s, c) != POOL_DISKS_MAX) {
                r->candidates[r->count++] = (struct candidate){
                    .segment = s, .uid = s->uid, .slot = i, .column = c, .margin = margin_of(e, s)};
                restripe = false;
                break;
            }
            restripe = true;
            e->rebuild.needs_disk |= segment_column_disk(&e->table, s, c) == NULL && !s->uncopyable;
        }
        *ret_restripe |= restripe && !s->unmovable;
    }
    qsort(r->candidates, r->count, sizeof(*r->candidates), compare_candidates);
    r->count = MIN(r->count, (uint32_t)ROUND_COLUMNS);
}

/* ---- copying a column ---- */

/* So much of the time as the share says, while others want the disks. */
static void yield_share(struct engine *e, uint64_t since_ns) {
    uint64_t now = env_now_ns(e->env);
    uint32_t share = e->limits.rebuild_share_pct;
    bool busy = e->running > 0 || now - e->request_at_ns < BUSY_NS;
    if (busy && share < 100 && now > since_ns) {
        fiber_sleep_until(now + (now - since_ns) * (100 - share) / share);
    } else {
        (void)fiber_pace();
    }
}

struct place {
    uint32_t offset, height;
};

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The rows of the segment in which something lives. */
static struct place *live_rows(const struct segment *s, uint32_t *ret_count) {
    uint32_t room = 0, count = 0, kept = 0;
    LIST_FOR_EACH(link, &s->runs) {
        room++;
    }
    struct place *places = MEM_NEW_ARRAY(struct place, room + 1);
    LIST_FOR_EACH(link, &s->runs) {
        const struct map_run *run = CONTAINER_OF(link, struct map_run, in_segment);
        if (run->live_count > 0) {
            places[count++] = (struct place){.offset = run->offset, .height = run->height};
        }
    }
    qsort(places, count, sizeof(*places), compare_places);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || places[kept - 1].offset != places[i].offset) {
            places[kept++] = places[i];
        }
    }
    *ret_count = kept;
    return places;
}

static int write_slice(struct column_move *r, struct engine *e, const struct place *p,
                       struct buf *row) {
    const struct segment *s = r->segment;
    uint32_t width = (uint32_t)s->shape.data + s->shape.parity;
    size_t bytes = (size_t)p->height * BLOCK_BYTES;
    uint64_t block = layout_chunk_block(&e->pool->super.geometry, r->to.chunk) + p->offset;
    if (r->failed || !pool_member_in_sync(e->pool, r->to.disk)) {
        return ERR_DISK_GONE;
    }
    int err = disk_write(e->pool->disks[r->to.disk], block * BLOCK_BYTES, bytes, row,
                         (r->column % width) * bytes, false);
    if (err != OK && pool_member_in_sync(e->pool, r->to.disk)) {
        pool_expel(e->pool, r->to.disk, "a column that was rebuilt could not be written");
    }
    e->rebuild.bytes_written += bytes;
    return err != OK ? ERR_DISK_GONE : OK;
}

/* ERR_DISK_GONE: the new disk was lost; ERR_CANCELLED: nobody needs it any more; else what is lost
 * of the segment. */
static int column_copy(struct engine *e, struct column_move *r) {
    struct segment *s = r->segment;
    uint32_t count;
    struct place *rows = live_rows(s, &count);
    int err = OK;
    for (uint32_t i = 0; i < count && err == OK; i++) {
        uint64_t started = env_now_ns(e->env);
        struct buf *row = NULL;
        if (e->state != ENGINE_RUNNING || s->state != SEGMENT_SEALED || s->live_blocks == 0) {
            err = ERR_CANCELLED;
            break;
        }
        err =
            row_read_columns(&e->table, s, rows[i].offset, rows[i].height, &e->row_counters, &row);
        if (err == OK) {
            err = write_slice(r, e, &rows[i], row);
            buf_unref(row);
            yield_share(e, started);
        }
    }
    mem_free(rows);
    return err;
}

static void relocation_drop(struct engine *e, struct column_move *r) {
    segment_give_chunk(&e->table, r->to.disk, r->to.chunk);
    r->segment->relocating = false;
    r->segment->pins--;
    list_remove(&r->link);
    mem_free(r);
}

static struct column_move *relocation_begin(struct engine *e, const struct candidate *c) {
    struct segment *s = c->segment;
    uint32_t member = target_of(e, s, c->column);
    if (member == POOL_DISKS_MAX) {
        return NULL;
    }
    struct column_move *r = MEM_NEW(struct column_move);
    r->segment = s;
    r->column = c->column;
    r->from = s->column[c->column];
    r->to = (struct segment_column_phys){.disk = (uint16_t)member};
    r->to.chunk = segment_take_chunk(&e->table, member);
    r->was_lost = ((s->lost >> c->column) & 1) != 0;
    r->bytes = (uint64_t)s->used_blocks * BLOCK_BYTES;
    s->relocating = true;
    s->pins++;
    list_append(&e->rebuild.relocations, &r->link);
    return r;
}

static void old_chunk_sabotaged(struct engine *e, struct column_move *r) {
    struct disk *disk = e->pool->disks[r->from.disk];
    if (SABOTAGE(old_chunk_early) && pool_member_in_sync(e->pool, r->from.disk)) {
        uint64_t block = layout_chunk_block(&e->pool->super.geometry, r->from.chunk);
        int ignored = disk_discard(disk, block * BLOCK_BYTES,
                                   (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES);
        (void)ignored;
    }
}

static void worker_fiber(void *arg) {
    struct round *round = arg;
    struct engine *e = round->e;
    while (round->next < round->count && env_now_ns(e->env) < round->until_ns &&
           e->state == ENGINE_RUNNING) {
        /* A copy that is begun while a checkpoint moves and frees would miss what that takes back,
         * or what readers of the old roots still look for. */
        while (e->checkpoint_running && e->state == ENGINE_RUNNING) {
            fiber_queue_wait(&e->checkpoint_waiters);
        }
        if (round->next >= round->count || e->state != ENGINE_RUNNING) {
            break;
        }
        const struct candidate *c = &round->candidates[round->next++];
        /* The list is some time old; the segment may be gone, and its memory with it. */
        bool there = segment_get(&e->table, c->slot) == c->segment && c->segment->uid == c->uid;
        struct column_move *r = there && is_settled(c->segment) && !c->segment->relocating &&
                                        column_is_due(e, c->segment, c->column)
                                    ? relocation_begin(e, c)
                                    : NULL;
        if (r == NULL) {
            continue;
        }
        int err = column_copy(e, r);
        if (err == OK && !r->failed) {
            r->state = READY;
            round->copied++;
            old_chunk_sabotaged(e, r);
            continue;
        }
        if (err != OK && err != ERR_DISK_GONE && err != ERR_CANCELLED && err != ERR_NO_SPACE) {
            r->segment->uncopyable = true; /* the cleaner may still move what lives in it */
        }
        relocation_drop(e, r);
    }
    fiber_group_done(&round->group, OK);
}

/* ---- with the checkpoint ---- */

bool rebuild_switch(struct engine *e) {
    bool any = false;
    LIST_FOR_EACH_SAFE(link, &e->rebuild.relocations) {
        struct column_move *r = CONTAINER_OF(link, struct column_move, link);
        struct segment *s = r->segment;
        bool lost = r->failed || !pool_member_in_sync(e->pool, r->to.disk);
        bool over = s->state != SEGMENT_SEALED || s->live_blocks == 0;
        if (r->state == READY && (lost || over)) {
            relocation_drop(e, r);
        } else if (r->state == READY) {
            segment_move_column(&e->table, s, r->column, r->to, false);
            s->unflushed |= 1u << r->column;
            r->state = SWITCHED;
            any = true;
        } else if (r->state == SWITCHED && lost && s->state == SEGMENT_SEALED) {
            segment_move_column(&e->table, s, r->column, r->from, r->was_lost);
            relocation_drop(e, r);
            any = true;
        }
    }
    return any;
}

static void discard_old(struct engine *e, const struct column_move *r) {
    struct disk *disk = e->pool->disks[r->from.disk];
    if (pool_member_in_sync(e->pool, r->from.disk) && disk_info(disk)->discards &&
        !disk_is_avoided(disk)) {
        uint64_t block = layout_chunk_block(&e->pool->super.geometry, r->from.chunk);
        int ignored = disk_discard(disk, block * BLOCK_BYTES,
                                   (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES);
        (void)ignored; /* a failed discard loses nothing */
    }
}

/* Whose old place nobody reads any more, and where nothing that was given up can still land. */
static struct column_move *find_releasable(struct engine *e) {
    LIST_FOR_EACH(link, &e->rebuild.relocations) {
        struct column_move *r = CONTAINER_OF(link, struct column_move, link);
        if (r->state != OLD) {
            continue;
        }
        uint64_t bytes = (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
        uint64_t at = layout_chunk_block(&e->pool->super.geometry, r->from.chunk) * BLOCK_BYTES;
        if (!pool_member_in_sync(e->pool, r->from.disk) ||
            (r->segment->pins == 1 && !disk_may_change(e->pool->disks[r->from.disk], at, bytes))) {
            return r;
        }
    }
    return NULL;
}

void rebuild_release(struct engine *e) {
    struct column_move *r;
    while ((r = find_releasable(e)) != NULL) {
        if (!r->is_discarded) { /* and looks again: a discard that was given up may still land */
            r->is_discarded = true;
            discard_old(e, r); /* parks: nobody else takes a relocation that is old off the list */
            continue;
        }
        segment_give_chunk(&e->table, r->from.disk, r->from.chunk);
        r->segment->pins--;
        list_remove(&r->link);
        mem_free(r);
    }
}

bool rebuild_relies_on(const struct engine *e, uint32_t member) {
    LIST_FOR_EACH(link, &e->rebuild.relocations) {
        const struct column_move *r = CONTAINER_OF(link, const struct column_move, link);
        if (r->state == SWITCHED && r->from.disk == member &&
            shape_losses(r->segment->shape) == 0) {
            return true;
        }
    }
    return false;
}

/* As far as the disks there are allow. */
static bool is_weak(const struct engine *e, const struct segment *s) {
    bool meta = s->kind == SEGMENT_META;
    uint32_t losses = meta ? MAX(1u, e->pool->super.meta_copies) - 1 : profile_losses(s->profile);
    return shape_losses(s->shape) < MIN(losses, MAX(1u, pool_storing_count(e->pool)) - 1);
}

/* As of now, which is just after a commit. */
static void look(struct engine *e) {
    uint64_t exposed = 0, left = 0;
    bool metadata = false, waiting = false;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        if (s == NULL || !is_in_use(s)) {
            continue;
        }
        uint32_t unreadable = segment_unreadable(&e->table, s);
        bool weak = unreadable != 0 || is_weak(e, s);
        exposed += weak && s->kind == SEGMENT_DATA;
        metadata |= weak && s->kind == SEGMENT_META;
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            bool leaves = pool_member_is_leaving(e->pool, s->column[c].disk);
            if (s->kind == SEGMENT_DATA && (leaves || ((unreadable >> c) & 1) != 0)) {
                left += (uint64_t)s->used_blocks * BLOCK_BYTES;
                waiting |= !column_is_due(e, s, c);
            }
        }
    }
    e->rebuild.exposed = exposed;
    e->rebuild.left_bytes = left;
    e->rebuild.waiting = waiting;
    bool whole = exposed == 0 && !metadata && e->checkpoint_started > e->rebuild.lost_round;
    e->rebuild.working |= left > 0;
    if (whole && left == 0 && e->rebuild.working) {
        e->rebuild.finished++;
        e->rebuild.working = false;
    }
    e->rebuild.whole = whole;
    e->rebuild.disks = pool_in_sync_count(e->pool);
    if (left == 0) {
        e->rebuild.done_bytes = 0;
        e->rebuild.since_ns = 0;
    }
}

void rebuild_committed(struct engine *e) {
    LIST_FOR_EACH(link, &e->rebuild.relocations) {
        struct column_move *r = CONTAINER_OF(link, struct column_move, link);
        if (r->state == SWITCHED) {
            r->state = OLD;
            r->segment->relocating = false;
            e->rebuild.columns++;
            e->rebuild.evacuated += !r->was_lost && pool_member_in_sync(e->pool, r->from.disk);
        }
    }
    uint64_t left = e->rebuild.left_bytes;
    look(e);
    if (e->rebuild.left_bytes < left) {
        e->rebuild.done_bytes += left - e->rebuild.left_bytes;
    }
    fiber_queue_wake_all(&e->rebuild.work);
}

void rebuild_member_lost(struct engine *e, uint32_t member) {
    struct errmsg ignored = {0};
    struct disk *disk = e->pool->disks[member];
    /* What was given up may have been let go by the time that this is heard of. */
    bool gone =
        disk == NULL || disk_env(disk) == NULL || env_disk_probe(disk_env(disk), &ignored) != OK;
    uint64_t grace = (uint64_t)e->limits.rebuild_grace_ms * NS_PER_MS;
    e->rebuild.due_at_ns[member] = env_now_ns(e->env) + (gone ? grace : e->rebuild.wait_ns[member]);
    e->rebuild.gone[member] = gone;
    e->rebuild.return_at_ns[member] = env_now_ns(e->env) + e->rebuild.return_pause_ns[member];
    e->rebuild.lost_round = e->checkpoint_started;
    e->rebuild.whole = false;
    LIST_FOR_EACH(link, &e->rebuild.relocations) {
        struct column_move *r = CONTAINER_OF(link, struct column_move, link);
        r->failed |= r->to.disk == member && r->state != OLD;
    }
    fiber_queue_wake_all(&e->rebuild.work);
}

/* Its columns can be read again; those that were written without it are rebuilt. */
void rebuild_member_back(struct engine *e, uint32_t member) {
    e->rebuild.due_at_ns[member] = e->rebuild.wait_ns[member] = 0;
    e->rebuild.pause_ns = 0;
}

void rebuild_wake(struct engine *e) {
    e->rebuild.pause_ns = 0;
    fiber_queue_wake_all(&e->rebuild.work);
}

bool rebuild_needs_disk(const struct engine *e) {
    return e->rebuild.needs_disk;
}

/* ---- the fiber ---- */

/* Columns copied beside everything else, then a checkpoint that moves them, and in which the
 * cleaner restripes. Returns how long to wait for the next round. */
static uint64_t rebuild_round(struct engine *e) {
    bool restripe = false, meta = false;
    struct round round = {.e = e, .until_ns = env_now_ns(e->env) + ROUND_NS};
    collect(&round, &restripe, &meta);
    members_tend(e);
    for (uint32_t i = 0; i < MIN(round.count, (uint32_t)WORKERS); i++) {
        fiber_group_add(&round.group);
        fiber_start(e->env, worker_fiber, &round);
    }
    int err = fiber_group_wait(&round.group);
    mem_free(round.candidates);
    if (round.count == 0 && !restripe && !meta && !members_wait_for_checkpoint(e)) {
        return IDLE_NS;
    }
    if (e->rebuild.since_ns == 0) {
        e->rebuild.since_ns = env_now_ns(e->env);
    }
    uint64_t moved = e->rebuild.columns + e->rebuild.restriped;
    if (err == OK && e->state == ENGINE_RUNNING) {
        err = engine_checkpoint(e);
    }
    if (err == OK && moved < e->rebuild.columns + e->rebuild.restriped) {
        e->rebuild.pause_ns = 0;
    } else {
        e->rebuild.pause_ns = MIN(MAX(e->rebuild.pause_ns * 2, STUCK_LEAST_NS), STUCK_MOST_NS);
    }
    return e->rebuild.pause_ns;
}

void rebuild_loop(void *arg) {
    struct engine *e = arg;
    while (e->state == ENGINE_RUNNING) {
        uint64_t pause = rebuild_round(e);
        if (pause > 0 && e->state == ENGINE_RUNNING) {
            (void)fiber_queue_wait_until(&e->rebuild.work, env_now_ns(e->env) + pause);
        }
    }
    e->rebuild.fiber_gone = true;
    fiber_queue_wake_all(&e->idle);
}

void rebuild_init(struct engine *e) {
    list_init(&e->rebuild.relocations);
    fiber_queue_init(&e->rebuild.work);
    e->rebuild.fiber_gone = true;
}

/* Before the first checkpoint of a mount. */
void rebuild_begin(struct engine *e) {
    e->rebuild.whole = true;
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (e->pool->super.members[m].state == MEMBER_MISSING) {
            rebuild_member_lost(e, m);
        }
    }
}

void rebuild_done(struct engine *e) {
    struct list *link;
    while ((link = list_pop(&e->rebuild.relocations)) != NULL) {
        mem_free(CONTAINER_OF(link, struct column_move, link));
    }
}

void rebuild_status(const struct engine *e, struct engine_rebuild_status *ret_status) {
    const struct rebuild *r = &e->rebuild;
    uint64_t now = env_now_ns(e->env);
    uint64_t took = r->since_ns == 0 ? 0 : (now - r->since_ns) / NS_PER_MS;
    *ret_status =
        (struct engine_rebuild_status){.whole = r->whole && r->disks == pool_in_sync_count(e->pool),
                                       .waiting = r->waiting,
                                       .exposed_segments = r->exposed,
                                       .left_bytes = r->left_bytes,
                                       .done_bytes = r->done_bytes};
    if (took > 0) {
        ret_status->bytes_per_s = r->done_bytes * 1000 / took;
    }
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (e->pool->super.members[m].state == MEMBER_MISSING && r->due_at_ns[m] > now) {
            uint64_t wait = (r->due_at_ns[m] - now) / NS_PER_S + 1;
            ret_status->grace_s = MAX(ret_status->grace_s, wait);
        }
    }
    if (ret_status->bytes_per_s > 0) {
        ret_status->left_s = r->left_bytes / ret_status->bytes_per_s;
    }
}
