// SPDX-License-Identifier: MPL-2.0
/* Import: from disks to a running engine.
 *
 *     open     labels and superblocks under quorum                 (pool)
 *     load     directory, segment table, map, catalog: all resident
 *     replay   the log since the last checkpoint, into the overlays
 *     take     the next mount generation, durable: the fence
 *     commit   a checkpoint of what was replayed
 *     serve
 *
 * The checkpoint before serving is a deliberate difference from the plan, which served first: it
 * means that a replay always meets the rows of one mount only, that nothing is answered before the
 * end of the replay is durable (invariant 4), and that rows which a cut left on fewer disks than
 * promised are redundant again before anybody relies on them. The price is the time of one
 * checkpoint at the dirty limit. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "engine/relocate.h"

#define PROBE_NS (4 * NS_PER_S)
#define HUNG_NS (25 * NS_PER_S)

/* ---- records ---- */

static struct volume *record_volume(struct engine *e, uint64_t id) {
    return engine_volume(e, id); /* NULL: deleted since; its writes do not matter */
}

static int range_validate(const struct volume *v, uint64_t block, uint64_t count) {
    return count > 0 && range_is_within(block, count, v->phys.size_bytes / BLOCK_BYTES)
               ? OK
               : ERR_CORRUPT;
}

/* A WRITE (row: where its data is) or an UNMAP (row: NULL). */
static int replay_range(struct engine *e, const void *header, uint32_t bytes, struct buf *row,
                        size_t data_offset, uint32_t data_bytes) {
    struct record_range r;
    if (bytes != sizeof(r)) {
        return ERR_CORRUPT;
    }
    memcpy(&r, header, sizeof(r));
    struct volume *v = record_volume(e, r.volume);
    if (v == NULL) {
        return OK;
    }
    if (range_validate(v, r.block, r.count) != OK ||
        data_bytes != (row != NULL ? r.count * BLOCK_BYTES : 0)) {
        return ERR_CORRUPT;
    }
    if (row == NULL) {
        apply_unmap(v, r.block, r.count);
        return OK;
    }
    apply_write(v, r.block, r.count, row, data_offset);
    v->dirty_blocks += r.count;
    e->dirty_bytes += data_bytes;
    return OK;
}

static int replay_segment(struct engine *e, const void *header, uint32_t bytes) {
    struct record_segment r;
    if (bytes != sizeof(r)) {
        return ERR_CORRUPT;
    }
    memcpy(&r, header, sizeof(r));
    struct segment *s;
    if (r.slot > UINT32_MAX) {
        return ERR_CORRUPT;
    }
    int err = segment_restore(&e->table, (uint32_t)r.slot, &r.segment, &s);
    if (err == OK) {
        e->table.page_dirty[s->slot / e->table.slots_per_page] = true;
    }
    return err == ERR_EXISTS ? OK : err;
}

static int replay_ref(struct engine *e, const void *header, uint32_t bytes) {
    const struct record_ref *r = header; /* records are aligned to 8 */
    if (bytes < sizeof(*r) || r->count == 0 || r->count > ROW_DATA_MAX ||
        bytes != sizeof(*r) + r->count * sizeof(uint32_t) || r->vba == 0 || r->vba >= COUNTER_END ||
        r->vba % RUN_BLOCKS != 0 ||
        map_find(&e->map, r->vba >> RUN_SHIFT) != NULL) { /* given out once (invariant 9) */
        return ERR_CORRUPT;
    }
    struct segment *s = segment_get(&e->table, r->segment);
    if (s == NULL || s->uid != r->segment_uid || s->kind != SEGMENT_DATA || r->height == 0 ||
        !range_is_within(r->offset, r->height, e->pool->super.geometry.chunk_blocks) ||
        !range_is_within(r->header_blocks, r->count, (uint64_t)r->height * s->shape.data)) {
        return ERR_CORRUPT;
    }
    s->used_blocks = MAX(s->used_blocks, r->offset + r->height);
    e->vba_next = MAX(e->vba_next, r->vba + RUN_BLOCKS);
    segment_mark_dirty(&e->table, s);
    struct volume *v = record_volume(e, r->volume);
    if (v == NULL) {
        return OK;
    }
    if (range_validate(v, r->block, r->count) != OK) {
        return ERR_CORRUPT;
    }
    struct placed_row *placed = placed_row_new(s, r->count);
    placed->offset = r->offset;
    placed->height = r->height;
    placed->header_blocks = r->header_blocks;
    placed->vba = r->vba;
    memcpy(placed->crc, r->crc, r->count * sizeof(uint32_t));
    apply_ref(v, r->block, placed, r->count);
    placed_row_unref(placed);
    v->dirty_blocks += r->count;
    return OK;
}

static int replay_volume(struct engine *e, const void *header, uint32_t bytes) {
    struct volume_phys p;
    if (bytes != sizeof(p)) {
        return ERR_CORRUPT;
    }
    memcpy(&p, header, sizeof(p));
    if (volume_phys_validate(&p) != OK) {
        return ERR_CORRUPT;
    }
    bool name_taken = false;
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (v->phys.id == p.id) {
            v->phys.size_bytes = MAX(v->phys.size_bytes, p.size_bytes);
            e->catalog_dirty = true;
            return OK;
        }
        name_taken |=
            (v->phys.flags & VOLUME_FLAG_DELETING) == 0 && strcmp(v->phys.name, p.name) == 0;
    }
    if (p.id < e->volume_id_next) {
        return OK; /* the catalog is newer: it was created and deleted again since */
    }
    if (name_taken) { /* it was refused when it was logged, too: see volume_created() */
        e->volume_id_next = p.id + 1;
        return OK;
    }
    p.tree = (struct tree_root_phys){0};
    p.allocated_blocks = 0;
    p.flags &= VOLUME_FLAG_THICK | VOLUME_FLAG_SYNC_STANDARD;
    (void)volume_add(e, &p);
    return OK;
}

static int replay_volume_delete(struct engine *e, const void *header, uint32_t bytes) {
    uint64_t id;
    if (bytes != sizeof(id)) {
        return ERR_CORRUPT;
    }
    memcpy(&id, header, sizeof(id));
    struct volume *v = engine_volume(e, id);
    if (v != NULL) {
        v->phys.flags |= VOLUME_FLAG_DELETING;
        overlay_clear(&v->active);
        about_forget(e, id);
        e->catalog_dirty = true;
    }
    return OK;
}

static int replay_volume_set(struct engine *e, const void *header, uint32_t bytes) {
    struct record_volume_set set;
    if (bytes != sizeof(set)) {
        return ERR_CORRUPT;
    }
    memcpy(&set, header, sizeof(set));
    if (set.profile >= PROFILE_COUNT || set.reorder > REORDER_ENDS) {
        return ERR_CORRUPT;
    }
    struct volume *v = engine_volume(e, set.id);
    if (v != NULL) {
        apply_volume_set(v, &set);
    }
    return OK;
}

static int replay_config(struct engine *e, bool set, const void *header, uint32_t bytes,
                         const void *blob, uint32_t blob_bytes) {
    struct config_phys p;
    if (bytes != sizeof(p)) {
        return ERR_CORRUPT;
    }
    memcpy(&p, header, sizeof(p));
    int err = config_phys_validate(&p, blob_bytes);
    if (err == OK && set) {
        config_put(e, &p, blob);
    } else if (err == OK) {
        config_remove(e, p.kind, p.id);
    }
    return err;
}

int engine_replay_record(void *engine, uint16_t type, const void *header, uint16_t header_bytes,
                         struct buf *row, size_t data_offset, uint32_t data_bytes) {
    struct engine *e = engine;
    switch (type) {
    case RECORD_WRITE:
        return replay_range(e, header, header_bytes, row, data_offset, data_bytes);
    case RECORD_REF:
        return replay_ref(e, header, header_bytes);
    case RECORD_UNMAP:
        return replay_range(e, header, header_bytes, NULL, 0, data_bytes);
    case RECORD_SEGMENT:
        return replay_segment(e, header, header_bytes);
    case RECORD_VOLUME:
        return replay_volume(e, header, header_bytes);
    case RECORD_VOLUME_DELETE:
        return replay_volume_delete(e, header, header_bytes);
    case RECORD_VOLUME_SET:
        return replay_volume_set(e, header, header_bytes);
    case RECORD_CONFIG:
    case RECORD_CONFIG_DELETE:
        return replay_config(e, type == RECORD_CONFIG, header, header_bytes,
                             row->data + data_offset, data_bytes);
    default:
        return ERR_UNSUPPORTED;
    }
}

/* ---- loading ---- */

static void load_item(void *ctx, uint64_t key, const void *value) {
    struct engine *e = ctx;
    int err = map_load(&e->map, key, value);
    if (err != OK && e->failure == OK) {
        e->failure = err;
    }
}

static void load_node(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct engine *e = ctx;
    (void)height;
    struct segment *s = segment_get(&e->table, (uint32_t)(ptr->address >> 32));
    if (s != NULL) {
        s->live_blocks += e->map_store.node_bytes / BLOCK_BYTES;
    }
}

static int load_map(struct engine *e, struct errmsg *reterr) {
    struct tree_walk walk = {.node = load_node, .item = load_item, .ctx = e};
    int err = tree_walk(&e->map_tree, &walk);
    if (err == OK) {
        err = e->failure;
        e->failure = OK;
    }
    if (err != OK) {
        return errmsg_set(
            reterr, err,
            "the map of pool %s, which says where every block is, cannot be read from "
            "any disk that is here (%s): import it with the disks that are missing; "
            "if there are none, restore from a backup to a new pool",
            e->pool->super.name, error_text(err));
    }
    if (e->map.live_blocks != e->roots.live_blocks) {
        return errmsg_set(
            reterr, ERR_CORRUPT, "the map holds %llu live blocks where the superblock says %llu",
            (unsigned long long)e->map.live_blocks, (unsigned long long)e->roots.live_blocks);
    }
    return OK;
}

int engine_load(struct engine *e, struct errmsg *reterr) {
    if (e->roots.directory.length_bytes == 0) {
        return OK; /* a pool before its first checkpoint */
    }
    int err = meta_load_tables(e, reterr);
    if (err == OK) {
        err = load_map(e, reterr);
    }
    if (err != OK) {
        return err;
    }
    struct buf *catalog = NULL;
    err = meta_read_direct(e, &e->roots.catalog, &catalog);
    if (err == OK) {
        err = catalog_decode(e, catalog->data, e->roots.catalog.length_bytes);
        buf_unref(catalog);
    }
    if (err != OK) {
        return errmsg_set(reterr, err,
                          "the catalog of the volumes of pool %s cannot be read from any disk that "
                          "is here (%s): import it with the disks that are missing; if there are "
                          "none, restore from a backup to a new pool",
                          e->pool->super.name, error_text(err));
    }
    return OK;
}

/* ---- the engine's memory ---- */

static void defaults(struct engine_limits *l) {
    l->read_cache_bytes = l->read_cache_bytes ? l->read_cache_bytes : 256ull << 20;
    l->node_cache_bytes = l->node_cache_bytes ? l->node_cache_bytes : 64ull << 20;
    l->dirty_bytes = l->dirty_bytes ? l->dirty_bytes : 256ull << 20;
    l->checkpoint_ms = l->checkpoint_ms ? l->checkpoint_ms : 30000;
    l->requests = l->requests ? l->requests : 512;
    l->rebuild_grace_ms = l->rebuild_grace_ms ? l->rebuild_grace_ms : 600 * 1000;
    l->rebuild_share_pct = l->rebuild_share_pct ? MIN(l->rebuild_share_pct, 100u) : 30;
    l->reorder_bytes = l->reorder_bytes ? l->reorder_bytes : 512ull << 20;
    l->idle_ms = l->idle_ms ? l->idle_ms : 500;
}

static void member_expelled(void *owner, uint32_t member, const char *why) {
    struct engine *e = owner;
    strncpy(e->expelled_why[member], why, sizeof(e->expelled_why[member]) - 1);
    segment_member_lost(&e->table, member);
    /* What the lost disk held of the pool's own structures gets its full number of copies again
     * with the next checkpoint, which follows at once. */
    memset(e->table.page_dirty, true, e->table.page_count * sizeof(bool));
    e->rewrite_map = true;
    rebuild_member_lost(e, member);
    if (e->log != NULL) {
        log_reconsider(e->log);
        checkpoint_want(e); /* rows of the log that it had a copy of have one copy fewer */
    }
    space_recount(e);
}

static void tick(struct env_timer *timer) {
    struct engine *e = CONTAINER_OF(timer, struct engine, tick);
    fiber_queue_wake_all(&e->work);
}

struct engine *engine_alloc(struct env *env, struct pool *pool,
                            const struct engine_limits *limits) {
    struct engine *e = MEM_NEW(struct engine);
    e->door = (struct volume_door){.env = env, .dispatch = request_dispatch};
    e->env = env;
    e->pool = pool;
    e->limits = *limits;
    e->stage = "import";
    e->tick.fire = tick;
    defaults(&e->limits);
    e->roots = pool->super.roots;
    list_init(&e->volumes);
    list_init(&e->configs);
    list_init(&e->jobs);
    fiber_queue_init(&e->idle);
    fiber_queue_init(&e->space_waiters);
    fiber_queue_init(&e->work);
    fiber_queue_init(&e->checkpoint_waiters);
    fiber_queue_init(&e->job_room);
    fiber_queue_init(&e->probe);
    fiber_queue_init(&e->relocate_work);
    fiber_lock_init(&e->admission);
    fiber_lock_init(&e->members);
    rebuild_init(e);
    e->checkpoint_fiber_gone = true; /* until it serves */
    e->probe_fiber_gone = true;
    e->relocate_fiber_gone = true;
    e->volume_id_next = 1;
    segment_table_init(&e->table, pool);
    e->table.fits_without = space_fits_without;
    map_init(&e->map, &e->table);
    e->data_cache = cache_new(e->limits.read_cache_bytes);
    e->node_cache = cache_new(e->limits.node_cache_bytes);
    e->map_cache = cache_new(UINT64_MAX); /* as large as the map, which is resident anyway */
    e->fresh_nodes = cache_new(UINT64_MAX);
    meta_store_init(e);
    builders_init(e);
    e->slow = slow_new(e);
    e->scrub = scrub_new(e);
    pool->owner = e;
    pool->expelled = member_expelled;
    return e;
}

void engine_free(struct engine *e) {
    if (e == NULL) {
        return;
    }
    env_timer_cancel(e->env, &e->tick);
    builders_drop(e);
    slow_free(e->slow);
    scrub_free(e->scrub);
    rebuild_done(e);
    catalog_clear(e);
    log_free(e->log);
    map_done(&e->map);
    segment_table_done(&e->table);
    cache_free(e->data_cache);
    cache_free(e->node_cache);
    cache_free(e->map_cache);
    cache_free(e->fresh_nodes);
    mem_free(e->freed);
    mem_free(e->freed_nodes);
    mem_free(e->made);
    mem_free(e->moves);
    mem_free(e->relocated);
    mem_free(e->dead_runs);
    mem_free(e->pages);
    mem_free(e);
}

/* ---- import ---- */

struct import_progress {
    engine_progress_fn *fn;
    void *owner;
};

static void say(const struct import_progress *p, const char *stage, uint32_t percent) {
    if (p->fn != NULL) {
        p->fn(p->owner, stage, percent);
    }
}

static int import_replay(struct engine *e, const struct engine_import_options *options,
                         struct log_replay *ret_replay, struct errmsg *reterr) {
    *ret_replay = (struct log_replay){.pool = e->pool,
                                      .generation = e->roots.log_generation,
                                      .start_lsn = e->roots.log_start,
                                      .acknowledged_lsn = e->roots.log_acknowledged,
                                      .seed = e->roots.log_seed,
                                      .record = engine_replay_record,
                                      .ctx = e};
    e->stage = "import: replay";
    int err = log_replay(ret_replay);
    if ((err == ERR_DATA_LOSS || err == ERR_TIMEOUT) && options->force_data_loss) {
        return OK;
    }
    if (err == ERR_TIMEOUT) {
        return errmsg_set(reterr, err,
                          "so many disks of pool %s do not answer that changes which were "
                          "acknowledged may be in the logs of these only: import again when they "
                          "do, or with --force-data-loss to go on without those changes",
                          e->pool->super.name);
    }
    if (err == ERR_DATA_LOSS) {
        return errmsg_set(reterr, err,
                          "%llu log rows that were acknowledged cannot be read from the disks that "
                          "are here: import again with the missing disks, or with "
                          "--force-data-loss to go on without what those rows held",
                          (unsigned long long)(ret_replay->promised_lsn - ret_replay->end_lsn + 1));
    }
    return err == OK ? OK
                     : errmsg_set(reterr, err, "the log cannot be replayed (%s)", error_text(err));
}

/* vbas are generation << 32 | counter. A long mount may count on into what would be the next
 * generation's: then this mount begins behind all that the roots and the log know. */
static uint64_t first_vba(const struct engine *e) {
    uint64_t known = MAX(e->roots.vba_next, e->vba_next);
    uint64_t generation = e->pool->super.mount_generation;
    return MAX(generation, known == 0 ? 0 : (known - 1) / (1ull << 32) + 1) << 32;
}

/* After the replay, before anything is written. */
static int refuse_last_vba(const struct engine *e, struct errmsg *reterr) {
    return first_vba(e) < COUNTER_END
               ? OK
               : errmsg_set(reterr, ERR_LIMIT,
                            "pool %s has given out all 2^63 addresses of blocks that there are: it "
                            "can be checked, but not imported any more",
                            e->pool->super.name);
}

static void start_log(struct engine *e, const struct log_replay *replay) {
    struct log_options options = {.pool = e->pool,
                                  .generation = e->pool->super.mount_generation,
                                  .seed = e->roots.log_seed,
                                  .want_checkpoint = (void (*)(void *))checkpoint_want,
                                  .owner = e};
    memcpy(options.ring_heads, replay->ring_heads, sizeof(options.ring_heads));
    e->log = log_new(&options);
    e->vba_next = SABOTAGE(vba_reused) ? 1ull << 32 : first_vba(e);
    /* Segments of which no table and no record is left must not lend their uids either. */
    e->table.uid_next = MAX(e->table.uid_next, e->pool->super.mount_generation << 32);
}

/* A disk that has owed an answer for HUNG_NS is not waited for any longer: what was given up on it
 * keeps memory, and chunks from returning. */
static void expel_hung(struct engine *e) {
    if (rebuild_log_is_thin(e) && !e->postponed) {
        return; /* its ring may have the only copy */
    }
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (pool_member_in_sync(e->pool, m) && e->pool->disks[m] != NULL &&
            disk_oldest_ns(e->pool->disks[m]) >= HUNG_NS) {
            pool_expel(e->pool, m, "it has owed an answer for 25 seconds");
        }
    }
}

/* A file that was unlinked or truncated, or a device that went, is noticed while nobody uses it;
 * and so is a disk that is slower than its peers. */
static void probe_loop(void *arg) {
    struct engine *e = arg;
    uint64_t probe_at = 0;
    while (e->state == ENGINE_RUNNING) {
        uint64_t now = env_now_ns(e->env);
        if (now >= probe_at) {
            pool_probe(e->pool);
            expel_hung(e);
            members_look_for_missing(e);
            probe_at = now + PROBE_NS;
        }
        slow_tick(e->slow);
        (void)fiber_queue_wait_until(&e->probe, now + SLOW_TICK_MS * (uint64_t)NS_PER_MS);
    }
    e->probe_fiber_gone = true;
    fiber_queue_wake_all(&e->idle);
}

/* Leaves the pool to the caller on failure. */
static int import_run(struct engine *e, const struct engine_import_options *options,
                      const struct import_progress *progress, struct errmsg *reterr) {
    struct log_replay replay;
    say(progress, "reading the segment table and the map", 10);
    e->stage = "import: load";
    e->pool->read_only = true; /* before the fence nothing is written, not even a repair */
    int err = engine_load(e, reterr);
    if (err == OK) {
        say(progress, "replaying the log", 30);
        err = import_replay(e, options, &replay, reterr);
    }
    e->pool->read_only = false;
    if (err == OK) {
        err = refuse_last_vba(e, reterr);
    }
    if (err == OK) {
        e->stage = "import: take";
        err = pool_take(e->pool, reterr);
    }
    if (err != OK) {
        return err;
    }
    env_random(e->env, &e->roots.log_seed, sizeof(e->roots.log_seed));
    start_log(e, &replay);
    rebuild_begin(e);
    space_recount(e);
    say(progress, "writing a checkpoint of what was replayed", 60);
    err = checkpoint_run(e, 0);
    if (err != OK) {
        return errmsg_set(reterr, err, "the checkpoint after the replay failed (%s)%s%s",
                          error_text(err), e->failure_text[0] != '\0' ? ": " : "", e->failure_text);
    }
    say(progress, "serving", 100);
    e->stage = "serving";
    e->probe_fiber_gone = false;
    e->checkpoint_fiber_gone = false;
    e->rebuild.fiber_gone = false;
    fiber_start(e->env, checkpoint_loop, e);
    fiber_start(e->env, probe_loop, e);
    scrub_begin(e->scrub);
    fiber_start(e->env, rebuild_loop, e);
    e->relocate_fiber_gone = false;
    fiber_start(e->env, relocate_loop, e);
    return OK;
}

int engine_import(struct env *env, const struct engine_import_options *options,
                  engine_progress_fn *progress, void *progress_owner, struct engine **ret_engine,
                  struct errmsg *reterr) {
    struct import_progress p = {.fn = progress, .owner = progress_owner};
    struct pool *pool = NULL;
    struct pool_open_options open = options->pool;
    if (options->limits.disk_deadline_ns != 0) {
        open.disk.deadline_ns = options->limits.disk_deadline_ns;
    }
    say(&p, "looking at the disks", 0);
    int err = pool_open(env, &open, &pool, reterr);
    if (err != OK) {
        return err;
    }
    struct engine *e = engine_alloc(env, pool, &options->limits);
    err = import_run(e, options, &p, reterr);
    if (err != OK) {
        pool->expelled = NULL;
        log_quiesce(e->log);
        pool_close(pool);
        engine_free(e);
        return err;
    }
    *ret_engine = e;
    return OK;
}

int engine_create_pool(struct env *env, const struct pool_options *options, struct errmsg *reterr) {
    int err = pool_create(env, options, reterr);
    if (err != OK) {
        return err;
    }
    struct engine *e = NULL;
    struct engine_import_options import = {.pool = {.name = options->name,
                                                    .paths = options->paths,
                                                    .path_count = options->path_count,
                                                    .disk = options->disk}};
    err = engine_import(env, &import, NULL, NULL, &e, reterr);
    if (err == OK) {
        err = engine_close(e, false, env_now_ns(env) + 60 * NS_PER_S, reterr);
    }
    return err;
}
