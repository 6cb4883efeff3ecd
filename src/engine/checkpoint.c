// SPDX-License-Identifier: MPL-2.0
/* The checkpoint: overlays into rows and trees, one new root.
 *
 *     state        what a crash finds
 *     freeze       the old root and the whole log
 *     merge        the same: rows and nodes go to places that nothing refers to
 *     clean        the same: survivors are copied, their old places stay
 *     map          the same
 *     tables       the same; segments nothing refers to leave the table, their chunks stay taken
 *     flush        the same; every row, node and page is on stable media when it ends
 *     commit       the old or the new root, whichever superblock is newest
 *     release      the new root; the log below the freeze is free, and the chunks return
 *
 * At the freeze each volume's active layer becomes the frozen one, and a new one takes writes; the
 * log's start becomes the LSN behind the last one applied. A merge reads the frozen layer in order:
 * data becomes blocks of new rows with new vbas, REFs keep theirs, holes delete. What a merge takes
 * out of a tree loses its live bit when the merge has succeeded (merge.c); that of nodes is cleared
 * when all rows are on disk.
 *
 * A checkpoint that would find no space is not begun (postpone()). If one fails all the same, or
 * because the pool's own metadata is lost beyond redundancy, nothing of it counts: the engine takes
 * no more writes, and what is acknowledged is in the log. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "engine/mover.h"
#include "engine/relocate.h"

#define POSTPONED_LEAST_NS (1 * NS_PER_S)
#define POSTPONED_MOST_NS (30 * NS_PER_S)
#define DISCARDS_NS (1 * NS_PER_S) /* of a checkpoint that are for discards */

enum { RING_FORCES_PCT = 60 };

/* ---- the map ---- */

struct map_batch {
    struct map_run **runs;
    uint64_t count, at;
    struct map_value_phys value;
};

static bool map_batch_next(void *ctx, struct tree_op *ret_op) {
    struct map_batch *b = ctx;
    while (b->at < b->count) {
        struct map_run *run = b->runs[b->at++];
        if (run->live_count > 0) {
            map_value_encode(run, &b->value);
            run->in_tree = true;
            *ret_op = (struct tree_op){
                .kind = TREE_PUT, .key = run->number, .count = 1, .value = &b->value};
            return true;
        }
        if (run->in_tree) {
            *ret_op = (struct tree_op){.kind = TREE_DELETE, .key = run->number, .count = 1};
            return true;
        }
    }
    return false;
}

static void map_batch_freed(void *ctx, uint64_t key, const void *value) {
    (void)ctx;
    (void)key;
    (void)value;
}

static bool every_node(void *ctx, const struct tree_ptr_phys *ptr) {
    (void)ctx;
    (void)ptr;
    return true;
}

/* Nodes of the map at new places: every one after the number of copies was raised or a disk was
 * lost, otherwise those in segments that are to be emptied. */
static int rewrite_map(struct engine *e, bool all, struct tree_root_phys *root) {
    struct tree_root_phys before = e->map_tree.root;
    e->map_tree.root = *root;
    int err = tree_rewrite(&e->map_tree, all ? every_node : meta_must_move, e, root);
    e->map_tree.root = before;
    e->rewrite_map &= !all || err != OK;
    return err;
}

/* What has changed since the last merge into *root: of a checkpoint before it, or of this one. */
static int merge_map(struct engine *e, struct tree_root_phys *root) {
    struct map_batch b = {0};
    b.runs = map_take_dirty(&e->map, &b.count);
    struct tree_batch batch = {
        .next = map_batch_next, .freed = map_batch_freed, .ctx = &b, .put_count = b.count};
    struct tree_root_phys before = e->map_tree.root;
    e->map_tree.root = *root;
    int err = tree_merge(&e->map_tree, &batch, root);
    e->map_tree.root = before;
    /* Dead runs stay until the commit: readers of the old roots still look their nodes up. */
    e->dead_runs =
        mem_realloc(e->dead_runs, (e->dead_count + b.count + 1) * sizeof(e->dead_runs[0]));
    for (uint64_t i = 0; i < b.count; i++) {
        if (b.runs[i]->live_count == 0) {
            e->dead_runs[e->dead_count++] = b.runs[i];
        }
    }
    mem_free(b.runs);
    return err;
}

static void drop_dead_runs(struct engine *e) {
    for (uint64_t i = 0; i < e->dead_count; i++) {
        map_drop(&e->map, e->dead_runs[i]);
        (void)fiber_pace();
    }
    mem_free(e->dead_runs);
    e->dead_runs = NULL;
    e->dead_count = 0;
}

/* ---- stages ---- */

static void freeze(struct engine *e) {
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        ASSERT(overlay_is_empty(&v->frozen));
        v->frozen = v->active;
        overlay_init(&v->active);
        v->frozen_blocks = v->dirty_blocks;
        v->dirty_blocks = 0;
    }
    e->frozen_bytes = e->dirty_bytes;
    e->dirty_bytes = 0;
    relocate_freeze(e);
}

static void unfreeze(struct engine *e) {
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        overlay_clear(&v->frozen);
        v->frozen_blocks = 0;
    }
    e->frozen_bytes = 0;
}

struct new_roots { /* of the volumes, until the commit */
    struct volume **volume;
    struct tree_root_phys *root;
    uint32_t count;
};

static int merge_volumes(struct engine *e, struct new_roots *roots) {
    int err = OK;
    uint32_t count = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        count++;
    }
    roots->volume = MEM_NEW_ARRAY(struct volume *, count + 1);
    roots->root = MEM_NEW_ARRAY(struct tree_root_phys, count + 1);
    LIST_FOR_EACH(link, &e->volumes) {
        roots->volume[roots->count++] = CONTAINER_OF(link, struct volume, link);
    }
    for (uint32_t i = 0; i < roots->count && err == OK; i++) {
        struct volume *v = roots->volume[i];
        bool deleting = (v->phys.flags & VOLUME_FLAG_DELETING) != 0;
        roots->root[i] = v->tree.root;
        if (deleting) {
            err = volume_reclaim(v, &roots->root[i]);
            continue;
        }
        err = SABOTAGE(relocate_overtakes) ? volume_merge(v, &roots->root[i])
                                           : relocate_merge(v, &roots->root[i]);
        if (err == OK) {
            err = SABOTAGE(relocate_overtakes) ? relocate_merge(v, &roots->root[i])
                                               : volume_merge(v, &roots->root[i]);
        }
    }
    int flushed = builders_flush(e);
    return err != OK ? err : flushed;
}

static void apply_frees(struct engine *e) {
    for (uint64_t i = 0; i < e->freed_count; i++) {
        map_clear_live(&e->map, e->freed[i]);
    }
    e->freed_count = 0;
}

struct flush_job {
    struct disk_io io;
    struct fiber_group *group;
};

static void flush_done(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct flush_job, io)->group, OK);
}

/* All disks in parallel; one that fails is expelled. True if one was. One that joins meanwhile
 * holds nothing of this checkpoint. */
static bool flush_disks(struct engine *e) {
    struct flush_job jobs[POOL_DISKS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    bool expelled = false;
    uint32_t count = e->pool->super.member_count;
    for (uint32_t m = 0; m < count; m++) {
        jobs[m].io.result = OK;
        if (pool_member_in_sync(e->pool, m) && !SABOTAGE(flush_omitted)) {
            jobs[m] =
                (struct flush_job){.io = {.op = ENV_IO_FLUSH, .done = flush_done}, .group = &group};
            fiber_group_add(&group);
            disk_submit(e->pool->disks[m], &jobs[m].io);
        }
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK);
    for (uint32_t m = 0; m < count; m++) {
        if (jobs[m].io.result != OK && pool_member_in_sync(e->pool, m)) {
            pool_expel(e->pool, m, "a flush failed");
            expelled = true;
        }
    }
    return expelled;
}

static void after_flush(struct engine *e) {
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        if (e->table.slots[i] != NULL) {
            e->table.slots[i]->unflushed = 0;
        }
    }
}

static uint64_t members_in_sync(const struct engine *e) {
    uint64_t mask = 0;
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        mask |= pool_member_in_sync(e->pool, m) ? 1ull << m : 0;
    }
    return mask;
}

/* The engine hears of an expulsion from the loop, perhaps after the tables have been written. */
static void note_lost_members(struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (!pool_member_in_sync(e->pool, m)) {
            segment_member_lost(&e->table, m);
        }
    }
}

/* Tables and flush, again for as long as a disk is lost in between: what the table says about lost
 * columns, and the map about places, must be true when it commits. */
static int write_tables_and_flush(struct engine *e, struct roots_phys *roots) {
    for (int attempt = 0; attempt < POOL_DISKS_MAX; attempt++) {
        uint64_t before = members_in_sync(e);
        e->stage = "checkpoint: tables";
        note_lost_members(e);
        int err = mover_take_back(e) ? merge_map(e, &roots->map) : OK;
        (void)rebuild_switch(e);
        if (err == OK) {
            err = meta_write_tables(e, roots);
        }
        if (err != OK) {
            return err;
        }
        e->stage = "checkpoint: flush";
        (void)flush_disks(e);
        if ((before & ~members_in_sync(e)) == 0) {
            return OK;
        }
    }
    return ERR_IO;
}

static void install(struct engine *e, const struct new_roots *roots,
                    const struct roots_phys *super) {
    for (uint32_t i = 0; i < roots->count; i++) {
        roots->volume[i]->tree.root = roots->root[i];
    }
    e->roots = *super;
    segment_pages_committed(&e->table, e->pages_written);
    e->map_tree.root = super->map;
    cache_set_limit(e->fresh_nodes, 0);
    cache_set_limit(e->fresh_nodes, UINT64_MAX);
    /* Nodes of the old roots would push those of the new ones out of the cache. */
    for (uint64_t i = 0; i < e->freed_node_count; i++) {
        cache_drop(e->node_cache, e->freed_nodes[i]);
    }
    e->freed_node_count = 0;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        if (e->table.slots[i] != NULL) {
            e->table.slots[i]->announced |= e->table.slots[i]->encoded;
        }
    }
}

/* Volumes that were being deleted and are empty now go for good, with the next catalog. */
static void drop_deleted(struct engine *e) {
    LIST_FOR_EACH_SAFE(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if ((v->phys.flags & VOLUME_FLAG_SWEEPING) != 0) {
            if (volume_reclaim_is_due(v)) {
                checkpoint_want(e); /* the next one sweeps on */
            }
        } else if ((v->phys.flags & VOLUME_FLAG_DELETING) != 0 && tree_is_gone(&v->tree.root) &&
                   v->users == 0 && overlay_is_empty(&v->active)) {
            volume_remove(v);
            e->catalog_dirty = true;
        }
    }
}

struct discard_job {
    struct disk_io io;
    struct fiber_group *group;
};

static void discard_done(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct discard_job, io)->group, OK);
}

/* Nothing that was given up is still under way to one of its chunks: a late write or discard could
 * land on what is written next. */
static bool segment_is_drained(const struct engine *e, const struct segment *s) {
    uint64_t bytes = (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        if (disk != NULL &&
            disk_may_change(disk, segment_column_block(&e->table, s, c, 0) * BLOCK_BYTES, bytes)) {
            return false;
        }
    }
    return true;
}

/* Tells the disks that what the segment holds is not needed; not those that are to be avoided, for
 * writers may be waiting for the chunks. A discard that fails, or is not made, loses nothing. */
static void segment_discard(struct engine *e, const struct segment *s, uint64_t until_ns) {
    struct discard_job jobs[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    uint64_t bytes = (uint64_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        if (disk != NULL && disk_info(disk)->discards && !disk_is_avoided(disk)) {
            jobs[c] = (struct discard_job){
                .io = {.op = ENV_IO_DISCARD,
                       .offset_bytes = segment_column_block(&e->table, s, c, 0) * BLOCK_BYTES,
                       .length_bytes = bytes,
                       .deadline_ns = until_ns,
                       .done = discard_done},
                .group = &group};
            fiber_group_add(&group);
            disk_submit(disk, &jobs[c].io);
        }
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK);
}

/* Chunks return when their last reader has gone and the disks have been told, for as long as there
 * is time for that; if a disk is late, before or after a later checkpoint. */
static void release_segments(struct engine *e) {
    uint64_t until_ns = env_now_ns(e->env) + DISCARDS_NS;
    rebuild_release(e);
    LIST_FOR_EACH_SAFE(link, &e->table.freeing) {
        struct segment *s = CONTAINER_OF(link, struct segment, freeing_link);
        if ((s->pins > 0 && !SABOTAGE(pins_ignored)) || !segment_is_drained(e, s)) {
            continue;
        }
        if (env_now_ns(e->env) < until_ns) {
            segment_discard(e, s, until_ns);
        }
        if (segment_is_drained(e, s)) {
            segment_release(&e->table, s);
        }
    }
}

static int commit(struct engine *e, struct roots_phys *roots, uint64_t log_start, uint64_t flags,
                  uint32_t meta_copies) {
    uint64_t tails[POOL_DISKS_MAX];
    roots->vba_next = e->vba_next;
    roots->log_generation = e->pool->super.mount_generation;
    roots->log_start = log_start;
    roots->log_acknowledged = log_committed_lsn(e->log);
    roots->live_blocks = e->map.live_blocks;
    log_tails(e->log, log_start, tails);
    e->stage = "checkpoint: commit";
    return pool_commit(e->pool, roots, tails, flags, meta_copies);
}

static int checkpoint_stages(struct engine *e, struct new_roots *volumes, uint64_t flags) {
    struct roots_phys roots = e->roots;
    uint64_t log_start = log_committed_lsn(e->log) + 1;
    uint32_t copies = e->pool->meta_copies; /* if they are raised now, the next one has them all */
    e->stage = "checkpoint: merge";
    e->short_of_space = space_is_short(e);
    e->short_for_disks = pool_in_sync_count(e->pool);
    freeze(e);
    e->job_error = OK;
    e->meta_error = OK;
    int err = merge_volumes(e, volumes);
    if (err != OK) {
        return err;
    }
    apply_frees(e);
    e->stage = "checkpoint: clean";
    err = cleaner_run(e, e->ahead);
    if (err != OK) {
        return err;
    }
    relocate_apply_frees(e);
    for (uint32_t i = 0; i < volumes->count; i++) {
        volumes->volume[i]->phys.tree = volumes->root[i];
    }
    e->catalog_dirty = false;
    e->stage = "checkpoint: map";
    err = merge_map(e, &roots.map);
    if (err == OK && (meta_clean(e) || e->rewrite_map)) {
        err = rewrite_map(e, e->rewrite_map, &roots.map);
    }
    if (err == OK && SABOTAGE(super_before_rows)) {
        err = commit(e, &roots, log_start, flags, copies);
    }
    if (err == OK) {
        err = write_tables_and_flush(e, &roots);
    }
    if (err == OK) {
        err = commit(e, &roots, log_start, flags, copies);
    }
    if (err == OK) {
        after_flush(e);
        rebuild_committed(e);
        install(e, volumes, &roots);
        drop_dead_runs(e);
        unfreeze(e);
        e->stage = "checkpoint: release";
        log_trim(e->log, log_start);
        release_segments(e);
        drop_deleted(e);
    }
    return err;
}

int checkpoint_run(struct engine *e, uint64_t flags) {
    uint64_t started = env_now_ns(e->env);
    struct new_roots volumes = {0};
    e->checkpoint_wanted = false;
    e->checkpoint_running = true;
    e->checkpoint_started++;
    int err = checkpoint_stages(e, &volumes, flags);
    mem_free(volumes.volume);
    mem_free(volumes.root);
    e->stage = "serving";
    e->checkpoint_running = false;
    e->checkpoint_ended++;
    if (err == OK) {
        e->checkpoints++;
        e->last_checkpoint_ns = env_now_ns(e->env);
        e->last_checkpoint_ms = (e->last_checkpoint_ns - started) / NS_PER_MS;
        space_recount(e);
    } else {
        int ignored = meta_write_wait(e); /* what is under way refers to the engine */
        (void)ignored;
        engine_fail(e, err, "a checkpoint failed");
    }
    fiber_queue_wake_all(&e->space_waiters);
    fiber_queue_wake_all(&e->checkpoint_waiters);
    fiber_queue_wake_all(&e->relocate_work);
    return err;
}

/* ---- when ---- */

void checkpoint_want(struct engine *e) {
    e->checkpoint_wanted = true;
    fiber_queue_wake_all(&e->work);
}

bool checkpoint_is_due(const struct engine *e) {
    if (e->catalog_dirty) {
        return true;
    }
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (!overlay_is_empty(&v->active) || volume_merge_is_due(v) || volume_reclaim_is_due(v)) {
            return true;
        }
    }
    return false;
}

/* A checkpoint that would find no room is not begun: then it need not be undone. Writes are refused
 * meanwhile (nothing more is admitted), deletes and unmaps are taken, and it is tried again when
 * one of them has come, a disk has gone, or some time has passed. Only when the log fills up it is
 * tried in any case: the reckoning is for the worst. */
static bool postpone(struct engine *e) {
    release_segments(e); /* those that waited for a late disk, or a reader */
    if (space_holds_checkpoint(e) || log_ring_used_pct(e->log) >= RING_FORCES_PCT) {
        e->postponed = false;
        e->postponed_pause_ns = 0;
        return false;
    }
    e->checkpoint_wanted = false;
    e->postponed = true;
    e->postponements++;
    e->postponed_pause_ns =
        MIN(MAX(e->postponed_pause_ns * 2, POSTPONED_LEAST_NS), POSTPONED_MOST_NS);
    fiber_queue_wake_all(&e->space_waiters);
    fiber_queue_wake_all(&e->checkpoint_waiters);
    fiber_queue_wake_all(&e->relocate_work);
    (void)fiber_queue_wait_until(&e->work, env_now_ns(e->env) + e->postponed_pause_ns);
    return true;
}

static bool half_full(const struct engine *e) {
    return e->dirty_bytes * 2 > e->limits.dirty_bytes;
}

/* Until somebody wants a checkpoint, time is up, or there may be leisure to work ahead. */
static void checkpoint_sleep(struct engine *e, uint64_t due_ns) {
    uint64_t until = cleaner_is_curious(e) ? MIN(due_ns, cleaner_next_look_ns(e)) : due_ns;
    if (!e->checkpoint_wanted && !half_full(e) && !e->postponed) {
        (void)fiber_queue_wait_until(&e->work, until);
    }
}

/* Whether there is a reason for a checkpoint now; e->ahead: that the pool is idle, and nothing
 * else. */
static bool checkpoint_has_reason(struct engine *e, uint64_t due_ns) {
    bool due = env_now_ns(e->env) >= due_ns;
    if (due && !checkpoint_is_due(e)) {
        e->last_checkpoint_ns = env_now_ns(e->env);
        due = false;
    }
    e->ahead = false;
    if (e->checkpoint_wanted || due || e->postponed || half_full(e)) {
        return true;
    }
    if (cleaner_is_curious(e) && cleaner_is_idle(e)) {
        e->ahead = cleaner_gains_ahead(e) && space_holds_checkpoint(e);
        e->ahead_done = e->ahead ? e->ahead_done : e->checkpoints;
    }
    return e->ahead;
}

void checkpoint_loop(void *arg) {
    struct engine *e = arg;
    uint64_t period = (uint64_t)e->limits.checkpoint_ms * NS_PER_MS;
    while (e->state == ENGINE_RUNNING) {
        checkpoint_sleep(e, e->last_checkpoint_ns + period);
        if (e->state != ENGINE_RUNNING) {
            break;
        }
        if (log_error(e->log) != OK) {
            engine_fail(e, log_error(e->log), "the log could not be written");
            break;
        }
        if (!checkpoint_has_reason(e, e->last_checkpoint_ns + period) || postpone(e)) {
            continue;
        }
        if (checkpoint_run(e, 0) != OK) {
            break; /* engine_fail() has noted why */
        }
    }
    e->ahead = false;
    e->checkpoint_fiber_gone = true;
    fiber_queue_wake_all(&e->idle);
    fiber_queue_wake_all(&e->checkpoint_waiters);
    fiber_queue_wake_all(&e->space_waiters);
}
