// SPDX-License-Identifier: MPL-2.0
/* What the files of the engine share. Everything here is owned by the engine thread.
 *
 *     request.c     volume requests: admission, log, overlay
 *     about.c       requests about a volume: what front ends keep beside it, what it holds
 *     read.c        reads: overlay, tree, map, cache, disks
 *     readahead.c   sequential readers find the next piece in the cache
 *     space.c       what may be promised, and what is there
 *     checkpoint.c  overlays into rows and trees, one new root
 *     merge.c       one volume's layer into its tree; damaged volumes
 *     reclaim.c        what a deleted volume gives back
 *     build.c       rows under construction in a checkpoint
 *     cleaner.c     room out of segments that are mostly dead: how much, and when
 *     victims.c     … of which
 *     mover.c       … by moving what survives to new rows
 *     rebuild.c     columns of lost and leaving disks elsewhere
 *     member.c      disks that are added, removed, replaced, and come back
 *     relocate.c    a volume's blocks in the order of the volume, or in another profile
 *     meta.c        metadata segments: map nodes, table pages, catalog, directory
 *     catalog.c     volumes and configuration records
 *     scrub.c       reading everything before somebody needs it
 *     slow.c        disks that are slower than their peers
 *     import.c      from disks to a running engine
 *     check.c       the same, reading only, doubting everything
 */
#ifndef HOLDFAST_ENGINE_PRIVATE_H
#define HOLDFAST_ENGINE_PRIVATE_H

#include "base/list.h"
#include "engine/engine.h"
#include "engine/scrub.h"
#include "engine/slow.h"
#include "log/log.h"
#include "map/map.h"
#include "segment/room.h"
#include "tree/cache.h"
#include "tree/tree.h"
#include "volume/overlay.h"

/* ---- log records (types are on disk) ---- */

enum record_type {
    RECORD_WRITE = 1,         /* record_range, data */
    RECORD_REF = 2,           /* record_ref, crc[count] */
    RECORD_UNMAP = 3,         /* record_range */
    RECORD_SEGMENT = 4,       /* record_segment: opened since the checkpoint */
    RECORD_VOLUME = 5,        /* volume_phys: created or changed */
    RECORD_VOLUME_DELETE = 6, /* volume id */
    RECORD_CONFIG = 7,        /* config_phys, blob as data */
    RECORD_CONFIG_DELETE = 8, /* config_phys */
    RECORD_VOLUME_SET = 9,    /* record_volume_set */
};

enum { REORDER_STAYS, REORDER_BEGINS, REORDER_ENDS };

struct record_volume_set {
    uint64_t id;
    uint16_t profile; /* from now on */
    uint16_t reorder;
    uint32_t reserved;
};

struct record_range {
    uint64_t volume, block, count;
};

struct record_ref {
    uint64_t volume, block, vba, segment_uid;
    uint32_t count, segment, offset, height, header_blocks, reserved;
    uint32_t crc[];
};

struct record_segment {
    uint64_t slot;
    struct segment_phys segment;
};

#define SHARE_ONE (1ull << 48)
#define VOLUME_ID_END (1ull << 32)

/* In the catalog and in log records. */
enum {
    VOLUME_FLAG_THICK = 1,
    VOLUME_FLAG_SYNC_STANDARD = 2,
    VOLUME_FLAG_DELETING = 4,
    VOLUME_FLAG_DAMAGED = 8, /* nodes of its tree are lost: it takes no changes (merge.c) */
    VOLUME_FLAG_BROKEN = 16, /* and it lacks what was acknowledged: it answers nothing */
    VOLUME_FLAG_SWEEPING =
        32, /* deleted, its tree is gone, and something of it is left (reclaim.c) */
    VOLUME_FLAG_REORDER = 64, /* its blocks are being put in order (relocate.c) */
};

struct volume_phys {
    uint64_t id;
    struct uuid uuid;
    char name[64];
    uint64_t size_bytes;
    uint32_t block_bytes;
    uint16_t profile;
    uint16_t flags;
    uint64_t allocated_blocks; /* items in the tree */
    struct tree_root_phys tree;
    uint16_t former; /* mask: profiles in which something of it may still lie, besides its own */
    uint16_t reserved0;
    uint32_t
        extents_per_gib;   /* as last sampled: places of blocks that do not follow the one before */
    uint64_t relocated_to; /* block at which a reordering, or a change of profile, goes on */
    uint8_t reserved[48];
};
_Static_assert(sizeof(struct volume_phys) == 504, "on disk");

struct config_phys {
    char kind[CONFIG_KIND_MAX + 1];
    char id[CONFIG_ID_MAX + 1];
    uint32_t blob_bytes;
    uint32_t reserved;
};
_Static_assert(sizeof(struct config_phys) == 168, "on disk");

/* ---- volumes ---- */

/* A write under way; see request.c. */
struct range_lock {
    struct list link;
    uint64_t start, end; /* blocks */
    bool exclusive;
};

enum { READ_STREAMS = 4 };

struct read_stream { /* somebody who reads front to back; see readahead.c */
    uint64_t next;   /* block where the next read is expected */
    uint64_t ahead;  /* read ahead up to here */
    uint64_t used;   /* when, by the volume's clock; 0: never */
    uint32_t window; /* blocks */
    uint32_t proven; /* reads that came as expected */
    bool busy;       /* a fiber is reading ahead */
};

struct volume {
    struct engine *engine;
    struct list link;
    struct volume_phys phys; /* phys.tree is tree.root as committed */
    struct tree tree;
    struct tree_store store;
    struct overlay active, frozen;
    struct list locks;
    uint32_t exclusive_locks;
    struct fiber_queue lock_waiters;
    /* Blocks charged by admission: of writes under way, of the active layer, of the frozen one. */
    uint64_t admitted_blocks, dirty_blocks, frozen_blocks;
    uint64_t admitted_bytes; /* of data under way that a checkpoint will have to write */
    uint32_t users;          /* requests at work on it: it is not freed before they end */
    uint64_t retry_at_ns, retry_pause_ns; /* damaged: when all of it is merged, or swept, again */
    struct sweep *sweep;                  /* reclaim.c */
    /* relocate.c: checkpoints that had ended when the pass began, and had begun when the profile
     * was set; blocks that could not be moved before the pass; when to try again. */
    uint64_t sets; /* how often it was told to move */
    uint64_t pass_from, profile_set_at, unrelocated_before, relocate_at_ns;
    uint64_t unmapped; /* blocks of ranges that may still be tombstones, and hold space */
    uint64_t puts;     /* since its extents were sampled, … */
    bool sampled;      /* … in this mount */
    bool settles;      /* the next merge folds its runs and moves its nodes to its profile */
    struct read_stream stream[READ_STREAMS];
    uint64_t stream_clock;
};

struct config_record {
    struct list link;
    struct config_phys phys;
    void *blob;
};

/* ---- rows under construction (build.c) ---- */

struct build_block {
    const void *data;
    uint64_t vba;
    uint32_t crc;
};

/* One row's worth of content, complete in memory, on its way to disk. */
struct row_job {
    struct list link;
    enum profile profile;
    enum row_owner_kind kind;
    bool cold, relocates;
    uint32_t blocks, run_count;
    struct build_block block[ROW_DATA_MAX];
    struct row_run_phys run[ROW_DATA_MAX];
    /* who keeps the data alive until the row is written */
    struct buf *hold[ROW_DATA_MAX];
    uint32_t hold_count;
    /* moved runs (cleaner): which live bits went along; NULL: a new run */
    struct {
        struct map_run *run;
        uint64_t bits[4];
    } * moved;
};

struct builder {
    enum profile profile;
    enum row_owner_kind kind;
    bool cold, relocates; /* for what is moved; by relocate.c */
    struct row_job *job;  /* being filled; NULL: none */
    uint32_t room;        /* blocks it may take */
    uint64_t vba_next;    /* in its run */
};

struct stream { /* an open segment that rows are appended to */
    struct segment *segment;
};

/* ---- the engine ---- */

struct meta_object { /* something in a metadata segment */
    struct segment *segment;
    uint32_t offset, blocks;
};

struct made { /* blocks that a merge has made or taken over */
    uint64_t vba;
    uint32_t count;
    bool ref; /* of a row that the log knew: its live bits are set */
};

struct move { /* where a run was before the cleaner moved it to a row without redundancy */
    uint64_t number;
    struct segment *segment;
    uint32_t offset;
    uint16_t height, index;
    uint64_t present[4];
};

struct rebuild {             /* rebuild.c */
    struct list relocations; /* columns on their way elsewhere */
    struct fiber_queue work; /* the fiber sleeps here */
    bool fiber_gone;
    uint64_t due_at_ns[POOL_DISKS_MAX]; /* missing: from when on it is not waited for */
    uint64_t wait_ns[POOL_DISKS_MAX];   /* of one that was taken out: how long it is waited for */
    uint64_t lost_round;                /* checkpoints begun when the last disk was lost */
    uint64_t pause_ns;                  /* after a round that found no room */
    /* As of the last checkpoint. */
    bool whole, waiting;
    uint32_t disks; /* in sync then */
    bool working;   /* something was left since the pool was whole */
    uint64_t exposed, left_bytes;
    uint64_t done_bytes, since_ns; /* of this rebuild */
    /* Ever. */
    uint64_t columns, evacuated, restriped, finished, bytes_written;
    uint64_t added, removed, returned, spares_used;
    /* Missing members: it was gone, and did not fail; when it is looked for again. */
    bool gone[POOL_DISKS_MAX];
    uint64_t return_at_ns[POOL_DISKS_MAX], return_pause_ns[POOL_DISKS_MAX];
    bool needs_disk; /* columns of a lost disk found no place in the last round */
};

enum engine_state { ENGINE_RUNNING, ENGINE_CLOSING, ENGINE_FAILED };

/* What a checkpoint was found to have room for, with so many chunks free (space.c). */
struct room_proof {
    struct segment_room room;
    uint32_t meta_copies;
    uint64_t blocks[PROFILE_COUNT]; /* of data, by profile; all 0: nothing known */
};

struct engine {
    struct volume_door door;
    struct env *env;
    struct pool *pool;
    struct engine_limits limits;
    enum engine_state state;
    int failure; /* why it failed */
    char failure_text[160];
    const char *stage; /* of the import or checkpoint, for the simulator's statistics */

    struct segment_table table;
    struct map map;
    struct tree map_tree;
    struct tree_store map_store;
    struct log *log;
    struct cache *data_cache, *node_cache, *map_cache;
    struct cache *fresh_nodes; /* written by the running checkpoint: kept until it commits */
    struct row_counters row_counters;

    struct list volumes;
    struct list configs;
    bool catalog_dirty;
    uint64_t volume_id_next;   /* above every volume whose creation was applied */
    uint64_t volume_id_issued; /* the last one given to a creation, applied or not */
    uint64_t vba_next;         /* of the next run; generation << 32 | counter */

    struct stream hot[PROFILE_COUNT], cold[PROFILE_COUNT], nodes[PROFILE_COUNT], meta;

    /* requests */
    uint32_t running;     /* requests at work: others wait in the queue for one of them to end */
    uint32_t read_aheads; /* fibers that read ahead */
    struct volume_request *queue_head, *queue_tail;
    struct fiber_queue idle;          /* waits for running == 0 */
    struct fiber_queue space_waiters; /* writers waiting for a checkpoint */
    uint64_t admitted_bytes, dirty_bytes, frozen_bytes;

    /* checkpoint */
    struct env_timer tick;
    struct fiber_queue work; /* the checkpoint fiber sleeps here */
    bool checkpoint_wanted, checkpoint_running, checkpoint_fiber_gone;
    struct fiber_queue probe; /* the fiber that looks after the disks sleeps here */
    bool probe_fiber_gone;
    struct slow *slow;
    struct scrub *scrub;
    uint64_t disks_suspected, suspects_cleared, disks_expelled_slow;
    uint64_t checkpoint_started, checkpoint_ended; /* counts */
    struct fiber_queue checkpoint_waiters;
    bool postponed; /* the last checkpoint was not begun, for want of room: see checkpoint_loop() */
    uint64_t postponements, postponed_pause_ns;
    uint64_t last_checkpoint_ns, last_checkpoint_ms;
    uint64_t *freed; /* vbas freed by the running checkpoint's merges */
    uint64_t freed_count, freed_room;
    uint64_t *freed_nodes; /* addresses of those that were nodes: they leave the cache with it */
    uint64_t freed_node_count, freed_node_room;
    struct made *made; /* by the merge under way */
    uint64_t made_count, made_room;
    struct map_run **dead_runs; /* without live blocks: dropped when it has committed */
    uint64_t dead_count;
    struct builder builders[PROFILE_COUNT][2]; /* data, nodes */
    struct builder cold_builders[PROFILE_COUNT], relocate_builders[PROFILE_COUNT];
    struct list jobs; /* rows waiting for a writer */
    uint32_t writers;
    struct fiber_group writer_group;
    struct fiber_queue job_room;
    uint32_t job_count;
    int job_error;
    struct fiber_group meta_group;
    int meta_error;
    struct roots_phys roots;   /* as committed */
    struct direct_phys *pages; /* where each table page is; by page */
    uint32_t page_room;
    uint32_t pages_written; /* by the running checkpoint */
    struct move *moves;     /* of the running checkpoint */
    uint64_t move_count, move_room;

    struct rebuild rebuild;
    struct fiber_lock members; /* one change of disks at a time */
    uint64_t last_request_ns;  /* when one ended */
    /* relocate.c */
    struct fiber_queue relocate_work; /* its fiber sleeps here */
    bool relocate_fiber_gone;
    struct relocation *relocation; /* the window under way */
    uint32_t relocate_shrink;      /* windows are 2^this smaller, for want of room */
    uint32_t relocating_chunks; /* of each disk, that the running checkpoint writes a window to */
    uint64_t *relocated;        /* vbas whose live bits it clears when the cleaner has run */
    uint64_t relocated_count, relocated_room;
    uint64_t relocated_blocks, unrelocated_blocks; /* moved; unreadable */

    struct fiber_lock admission; /* held by the writer that is next to be admitted */

    /* space (space.c): shares of the pool, in units of 2^-48 */
    uint64_t share[PROFILE_COUNT]; /* of one data block; 0: profile cannot be stored */
    uint64_t limit_share;
    bool short_of_space;      /* the running checkpoint writes segments degraded, … */
    uint32_t short_for_disks; /* … as was found with so many disks */
    uint64_t full_since; /* checkpoints when the cleaner could make no room for a write; 0: never */
    uint32_t ref_keep_free; /* chunks of each disk that long writes leave to checkpoints */
    /* What a checkpoint may need besides the rows of data. */
    uint64_t meta_blocks;               /* live */
    uint32_t meta_keep, keep_segments;  /* segments: for all metadata; for all */
    uint64_t keep_nodes[PROFILE_COUNT]; /* blocks, by the profile they are stored in */
    uint32_t profiles_in_use;           /* mask */
    struct room_proof room_proof;       /* anew after each recount */

    uint64_t reads, writes, read_bytes, write_bytes, unmaps;
    bool rewrite_map; /* the next checkpoint writes all of the map again */
    uint64_t checkpoints, cleaner_moved_blocks, cleaner_freed_segments;
    uint64_t data_blocks, ref_blocks, node_blocks; /* written to rows */
    uint64_t cleaner_ahead_blocks;                 /* of those moved: ahead of need */
    bool ahead;                                    /* the running checkpoint is for that */
    uint64_t ahead_done;    /* checkpoints when there was nothing to gain ahead */
    uint64_t request_at_ns; /* when the last request came */
    uint64_t read_ahead_blocks;
    uint64_t volumes_healed, swept_blocks, profiles_changed;
    uint64_t bytes_rows, bytes_meta;
    uint64_t degraded_segments; /* opened with less than the disks in sync could give */
    char expelled_why[POOL_DISKS_MAX][256];
};

/* engine.c */
struct volume *engine_volume(struct engine *e, uint64_t id); /* NULL: gone or being deleted */
void engine_fail(struct engine *e, int error, const char *what);
uint64_t engine_take_vba_run(struct engine *e); /* 0: there are no more */

/* build.c */
struct segment *stream_segment(struct engine *e, struct stream *s, enum segment_kind kind,
                               enum profile profile, uint32_t keep_free, int *ret_error);
/* Adds a block to the row under construction; the row goes to the writers when it is full. `hold`
 * keeps `data` alive (a reference is taken; may be NULL). Must be followed by builders_flush(). */
HF_MUST_CHECK int builder_add(struct engine *e, struct builder *b, const void *data,
                              struct buf *hold, uint64_t volume, uint64_t offset, uint32_t count,
                              uint64_t *ret_vba, uint32_t *ret_crcs);
HF_MUST_CHECK int builder_add_moved(struct engine *e, struct builder *b, struct map_run *run,
                                    struct buf *data, const struct row_check *checks,
                                    uint32_t count, const uint64_t bits[4],
                                    const struct row_run_phys *owners, uint32_t owner_count);
/* Sends all part-filled rows to the writers and waits until every row is on disk. Parks. */
HF_MUST_CHECK int builders_flush(struct engine *e);
void builders_init(struct engine *e);
void builders_drop(struct engine *e); /* after a failure */
enum profile node_profile(const struct engine *e, enum profile profile);

/* meta.c */
HF_MUST_CHECK int meta_alloc(struct engine *e, uint32_t blocks, struct meta_object *ret_object);
void meta_write(struct engine *e, const struct meta_object *object, struct buf *buf);
HF_MUST_CHECK int meta_write_wait(struct engine *e); /* parks */
HF_MUST_CHECK int meta_read_direct(struct engine *e, const struct direct_phys *direct,
                                   struct buf **ret_buf);
void meta_direct(const struct engine *e, const struct meta_object *object, const void *bytes,
                 uint32_t length_bytes, struct direct_phys *ret_direct);
void meta_store_init(struct engine *e);
void meta_free_direct(struct engine *e, const struct direct_phys *direct);
/* Metadata segments that may be sparse, besides as many as metadata needs: see meta_clean(). */
enum { META_SPARSE_SEGMENTS = 3 };
/* Marks metadata segments to be emptied when too many are sparse: true if the map's nodes in them
 * must be written again (tree_rewrite() with meta_must_move()). */
bool meta_clean(struct engine *e);
bool meta_must_move(void *engine, const struct tree_ptr_phys *ptr);
/* Table pages, catalog and directory of a checkpoint; fills in roots. Parks. */
HF_MUST_CHECK int meta_write_tables(struct engine *e, struct roots_phys *roots);
/* Raises the number of copies of metadata: all of it is written again, in a checkpoint, and the
 * superblock of that says so. Parks. */
HF_MUST_CHECK int meta_strengthen(struct engine *e, uint32_t copies);
HF_MUST_CHECK int meta_load_tables(struct engine *e, struct errmsg *reterr);

/* catalog.c */
struct volume *volume_add(struct engine *e, const struct volume_phys *phys);
void volume_remove(struct volume *v);
HF_MUST_CHECK int volume_phys_validate(const struct volume_phys *phys);
HF_MUST_CHECK int config_phys_validate(const struct config_phys *phys, uint32_t blob_bytes);
void config_put(struct engine *e, const struct config_phys *phys, const void *blob);
void config_remove(struct engine *e, const char *kind, const char *id);
struct buf *catalog_encode(const struct engine *e, uint32_t *ret_bytes);
HF_MUST_CHECK int catalog_decode(struct engine *e, const void *bytes, size_t length);
void catalog_clear(struct engine *e);

/* merge.c */
void volume_store_init(struct volume *v);
/* The volume's frozen layer into a new root (untouched if nothing changes). A damaged tree is no
 * failure: the volume's flags tell. ERR_NO_SPACE. Parks. */
HF_MUST_CHECK int volume_merge(struct volume *v, struct tree_root_phys *ret_root);
/* All or nothing: where the lists stood when a merge began, and what undoes all it did since. */
struct merge_mark {
    uint64_t freed, freed_nodes;
};
struct merge_mark merge_begin(struct engine *e);
void merge_note_made(struct engine *e, uint64_t vba); /* a block of a row to be written */
void merge_undo(struct engine *e, const struct merge_mark *mark);
/* What has been unmapped in it still holds space below its runs, and would come back cheaply. */
bool volume_may_fold(const struct volume *v);
bool volume_merge_is_due(const struct volume *v); /* a damaged one may be well again */
void volume_retry_later(struct volume *v);
bool error_is_loss(int error); /* of something that was to be read */

/* reclaim.c: of a deleted volume; the same for everything it holds. */
HF_MUST_CHECK int volume_reclaim(struct volume *v, struct tree_root_phys *ret_root);
bool volume_reclaim_is_due(const struct volume *v);
bool tree_is_gone(const struct tree_root_phys *root); /* whether it has no nodes */
void sweep_free(struct volume *v);

/* space.c */
void space_recount(struct engine *e); /* after a change of membership or of volumes */
/* What the pool would be with these chunks, all else as it is. */
struct space_forecast {
    uint64_t usable_bytes, used_bytes; /* in blocks of the strongest profile in use */
    bool storable;                     /* every volume's profile can be had */
    bool fits;                         /* and all of them fit */
};
void space_forecast(const struct engine *e, const struct segment_room *all,
                    struct space_forecast *ret_forecast);
/* What a write under way has been promised; moves to the layer when it is applied. */
struct charge {
    uint64_t blocks, bytes;
};
/* Parks until the blocks may be written to `v`, and reserves what they may need. ERR_NO_SPACE. */
HF_MUST_CHECK int space_admit(struct engine *e, struct volume *v, uint64_t block, uint64_t count,
                              struct charge *ret_charge);
/* That would not have to wait for space. */
bool space_is_plenty(struct engine *e, const struct volume *v, uint64_t count);
/* What has its place on disk already needs no memory, and no room in a checkpoint. */
void space_forgive_bytes(struct volume *v, struct charge *charge);
void space_release(struct engine *e, struct volume *v, const struct charge *charge, bool applied);
/* Whether all that is promised still fits if a chunk of that member is used for something else. */
bool space_spares_chunk(struct engine *e, uint32_t member);
/* Whether it does if nothing more is written to those members (a mask): the table's fits_without.
 */
bool space_fits_without(const struct segment_table *table, uint64_t members);
/* A checkpoint of what is dirty does not fit in full protection: disks were lost. */
bool space_is_short(const struct engine *e);
/* It fits at all, in the protection that older segments still have. */
bool space_holds_checkpoint(const struct engine *e);
uint64_t space_used_share(const struct engine *e, bool with_dirty);
HF_MUST_CHECK int space_can_promise(struct engine *e, enum profile profile, uint64_t blocks);
enum profile meta_profile(const struct engine *e); /* whose shape metadata segments have */
uint64_t volume_promised_blocks(const struct volume *v);

/* checkpoint.c */
void checkpoint_want(struct engine *e);
bool checkpoint_is_due(const struct engine *e); /* there is something to write or to free */
void checkpoint_loop(void *engine);             /* a fiber */
HF_MUST_CHECK int checkpoint_run(struct engine *e, uint64_t flags);

/* cleaner.c: in a checkpoint; `ahead`: more than is needed, for as long as nobody asks. */
HF_MUST_CHECK int cleaner_run(struct engine *e, bool ahead);
uint32_t cleaner_asks(const struct engine *e);   /* chunks of each disk that should be free */
bool cleaner_is_idle(const struct engine *e);    /* nobody has asked for anything for a while */
bool cleaner_is_curious(const struct engine *e); /* something changed since nothing was to gain */
uint64_t cleaner_next_look_ns(const struct engine *e); /* when it might be idle */
bool cleaner_gains_ahead(struct engine *e);            /* there is something to do ahead */

/* mover.c */
/* Whose a block of a row was when it was written. */
struct row_run_phys row_owner(const struct row_phys *header, uint32_t block);

/* rebuild.c */
void rebuild_init(struct engine *e);
void rebuild_begin(struct engine *e); /* of a mount */
void rebuild_loop(void *engine);      /* a fiber */
void rebuild_done(struct engine *e);
void rebuild_member_lost(struct engine *e, uint32_t member);
/* The committed root still needs what a column has left behind on it. */
bool rebuild_relies_on(const struct engine *e, uint32_t member);
/* A disk was lost, and no checkpoint that began after that has ended: rows of the log may have one
 * copy only. */
static inline bool rebuild_log_is_thin(const struct engine *e) {
    return e->checkpoint_ended <= e->rebuild.lost_round;
}
void rebuild_member_back(struct engine *e, uint32_t member);
void rebuild_wake(struct engine *e);
bool rebuild_needs_disk(const struct engine *e); /* a spare, if there is one */
/* The cleaner is to write what lives in it to new segments. */
bool rebuild_must_restripe(struct engine *e, const struct segment *s);
/* A metadata segment that is not whole, or on a leaving disk. */
bool rebuild_meta_must_move(const struct engine *e, const struct segment *s);
/* Before tables are written: moves the columns that were copied; takes back those whose new disk
 * was lost. True if any was. */
bool rebuild_switch(struct engine *e);
void rebuild_committed(struct engine *e);
/* Gives back chunks that columns have left. Parks. */
void rebuild_release(struct engine *e);
void rebuild_status(const struct engine *e, struct engine_rebuild_status *ret_status);

/* member.c */
void members_tend(struct engine *e); /* drops, spares; parks */
/* One that is to leave holds nothing but rows of the log, or is still in a committed table. */
bool members_wait_for_checkpoint(const struct engine *e);
void members_look_for_missing(struct engine *e); /* parks */

/* request.c */
void request_dispatch(struct volume_door *door, struct volume_request *request);
void requests_refuse(struct engine *e, int error); /* all that wait */
void apply_write(struct volume *v, uint64_t block, uint64_t count, struct buf *row,
                 size_t data_offset);
void apply_unmap(struct volume *v, uint64_t block, uint64_t count);
/* Its profile, and whether it is to be reordered. */
void apply_volume_set(struct volume *v, const struct record_volume_set *set);
/* Waits for all writes under way, and keeps others out. */
void range_take_all(struct volume *v, struct range_lock *lock);
void range_release(struct volume *v, struct range_lock *lock);
void apply_ref(struct volume *v, uint64_t block, struct placed_row *row, uint32_t count);

/* about.c: requests about a volume, not to its blocks */
HF_MUST_CHECK int about_keep(struct engine *e, struct volume *v, struct volume_request *request);
HF_MUST_CHECK int about_recall(struct engine *e, struct volume *v, struct volume_request *request);
HF_MUST_CHECK int about_query(struct engine *e, struct volume *v, struct volume_request *request);
HF_MUST_CHECK int about_space(struct engine *e, struct volume *v, struct volume_request *request);
void about_forget(struct engine *e, uint64_t volume_id); /* the volume has been deleted */

/* read.c */
HF_MUST_CHECK int read_blocks(struct engine *e, struct volume *v, uint64_t block, uint32_t count,
                              void *ret_data, uint64_t *ret_bad_block);
HF_MUST_CHECK int read_request(struct engine *e, struct volume *v, struct volume_request *request);
/* Sets the bits of blocks that have content, clears those of others. What a checkpoint's end
 * overtook is looked up again. Parks. */
HF_MUST_CHECK int read_mapped(struct volume *v, uint64_t block, uint64_t count, uint64_t *bits);
/* How many blocks of the range have no content of their own (only near a full pool). Parks. */
HF_MUST_CHECK int read_count_unmapped(struct volume *v, uint64_t block, uint64_t count,
                                      uint64_t *ret_unmapped);

/* readahead.c: a read of `count` blocks has been answered. */
void read_ahead_note(struct engine *e, struct volume *v, uint64_t block, uint64_t count);

/* import.c */
void engine_free(struct engine *e);
HF_MUST_CHECK int engine_load(struct engine *e, struct errmsg *reterr);
HF_MUST_CHECK int engine_replay_record(void *engine, uint16_t type, const void *header,
                                       uint16_t header_bytes, struct buf *row, size_t data_offset,
                                       uint32_t data_bytes);
struct engine *engine_alloc(struct env *env, struct pool *pool, const struct engine_limits *limits);

#endif
