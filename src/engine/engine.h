// SPDX-License-Identifier: MPL-2.0
/* The engine: imports a pool and drives everything below it (log, overlay, checkpoints, cleaner).
 *
 * One engine is one pool on one loop. All functions here run on that loop's thread and, unless they
 * say otherwise, in a fiber (they park); other threads use fiber_call(). Data goes through
 * engine_door() with volume_submit() from any thread. */
#ifndef HOLDFAST_ENGINE_ENGINE_H
#define HOLDFAST_ENGINE_ENGINE_H

#include "pool/pool.h"
#include "volume/volume.h"

struct engine;

/* Zero fields take the defaults in brackets. */
struct engine_limits {
    uint64_t read_cache_bytes;  /* data [256 MiB] */
    uint64_t node_cache_bytes;  /* volume tree nodes [64 MiB] */
    uint64_t dirty_bytes;       /* overlay data not yet in segments [256 MiB] */
    uint32_t checkpoint_ms;     /* [30,000] */
    uint32_t requests;          /* volume requests worked on at once, others wait [512] */
    uint32_t rebuild_grace_ms;  /* a disk that is gone is waited for before its data is rebuilt [10
                                    minutes]; one that failed is not */
    uint32_t rebuild_share_pct; /* of the time, at most, while the pool is in use [30] */
    uint64_t disk_deadline_ns;  /* [5 s] */
    uint64_t reorder_bytes;     /* memory, while a volume is reordered [512 MiB] */
    uint32_t idle_ms;           /* without a request: the cleaner works ahead [500] */
};

struct engine_import_options {
    struct pool_open_options pool;
    struct engine_limits limits;
    bool force_data_loss; /* go on although acknowledged log rows cannot be read; says what is lost
                           */
};

/* Progress of an import, for people; called now and then. May be NULL. */
typedef void engine_progress_fn(void *owner, const char *stage, uint32_t percent);

/* pool_create() plus the first, empty checkpoint. */
HF_MUST_CHECK int engine_create_pool(struct env *env, const struct pool_options *options,
                                     struct errmsg *reterr);

/* Opens, replays the log, checkpoints, serves. */
HF_MUST_CHECK int engine_import(struct env *env, const struct engine_import_options *options,
                                engine_progress_fn *progress, void *progress_owner,
                                struct engine **ret_engine, struct errmsg *reterr);

/* Stops serving (new requests get ERR_SHUTDOWN, running ones are finished or given up at
 * `deadline_ns`, absolute), checkpoints, and closes. `exported`: marks the pool free for any host.
 */
HF_MUST_CHECK int engine_close(struct engine *engine, bool exported, uint64_t deadline_ns,
                               struct errmsg *reterr);

struct volume_door *engine_door(struct engine *engine); /* any thread; no fiber needed */

/* Forces a checkpoint and waits for it. */
HF_MUST_CHECK int engine_checkpoint(struct engine *engine);

/* ---- volumes ---- */

struct volume_options {
    const char *name;    /* as pool names */
    uint64_t size_bytes; /* 1 MiB .. 64 TiB, rounded up to 4096 */
    enum profile profile;
    uint32_t block_bytes; /* 512 (default when 0) or 4096 */
    bool thick;           /* the whole size is reserved now: writes never run out of space */
    bool sync_standard;
};

HF_MUST_CHECK int engine_volume_create(struct engine *engine, const struct volume_options *options,
                                       uint64_t *ret_id, struct errmsg *reterr);
/* Gone from sight at once; its space comes back in the background. */
HF_MUST_CHECK int engine_volume_delete(struct engine *engine, const char *name,
                                       struct errmsg *reterr);
/* Larger only. */
HF_MUST_CHECK int engine_volume_resize(struct engine *engine, const char *name, uint64_t size_bytes,
                                       struct errmsg *reterr);
/* What a change of profile does to the space of a pool: logical bytes, and those of all disks. */
struct engine_profile_change {
    enum profile from, to;
    uint64_t raw_before_bytes, raw_after_bytes; /* what the volume takes, with copies and parity */
    uint64_t free_before_bytes, free_after_bytes; /* for volumes of the new profile */
    uint64_t free_meanwhile_bytes;                /* while it moves */
};
/* Any to any: what is written from now on has the new profile, the rest is moved in the background.
 * `dry_run`: only says what it would do. */
HF_MUST_CHECK int engine_volume_set_profile(struct engine *engine, const char *name,
                                            enum profile profile, bool dry_run,
                                            struct engine_profile_change *ret_change,
                                            struct errmsg *reterr);
/* Begins to put the volume's blocks in order, from its start on, in the background; or stops it. */
HF_MUST_CHECK int engine_volume_reorder(struct engine *engine, const char *name, bool stop,
                                        struct errmsg *reterr);
/* No fiber needed. The array is the caller's (mem_free). */
void engine_volume_list(struct engine *engine, struct volume_info **ret_volumes,
                        uint32_t *ret_count);
HF_MUST_CHECK int engine_volume_find(struct engine *engine, const char *name,
                                     struct volume_info *ret_volume);

/* ---- disks (member.c) ---- */

/* What a change of disks does to the room there is; filled by dry runs as well. */
struct engine_disk_change {
    uint32_t member; /* added, or removed */
    uint64_t size_bytes;
    uint64_t usable_before_bytes, usable_after_bytes; /* when all that follows is done */
    uint64_t used_bytes;
    uint64_t move_bytes; /* what lies on a disk that is to be removed */
    uint64_t lost_bytes; /* that only a missing disk holds */
    bool storable;       /* every volume's profile is possible then */
    bool fits;
};

struct engine_disk_add_options {
    const char *path;
    bool spare, force, dry_run;
};
HF_MUST_CHECK int engine_disk_add(struct engine *engine,
                                  const struct engine_disk_add_options *options,
                                  struct engine_disk_change *ret_change, struct errmsg *reterr);
struct engine_disk_remove_options {
    uint32_t member;
    bool force, dry_run;
};
/* It is leaving when this returns OK; it is gone when it is no longer listed. */
HF_MUST_CHECK int engine_disk_remove(struct engine *engine,
                                     const struct engine_disk_remove_options *options,
                                     struct engine_disk_change *ret_change, struct errmsg *reterr);
/* Ends a removal that is not over yet. */
HF_MUST_CHECK int engine_disk_keep(struct engine *engine, uint32_t member, struct errmsg *reterr);
HF_MUST_CHECK int engine_disk_replace(struct engine *engine, uint32_t member,
                                      const struct engine_disk_add_options *options,
                                      struct engine_disk_change *ret_change, struct errmsg *reterr);
/* Takes a member out at once, as if it had failed: the pool is degraded until it is taken back
 * (engine_disk_return()) or what it held is rebuilt, which begins after `wait_ns`. Only from a pool
 * that is fully redundant, and only if everything can still be had without it: ERR_INVALID. */
HF_MUST_CHECK int engine_disk_fail(struct engine *engine, uint32_t member, uint64_t wait_ns,
                                   struct errmsg *reterr);
/* Takes a missing member back that is at `path`. Those that were only gone are taken back from
 * where they were last without being asked. */
HF_MUST_CHECK int engine_disk_return(struct engine *engine, uint32_t member, const char *path,
                                     struct errmsg *reterr);

/* ---- configuration records: (kind, id) -> blob, kept in the pool, durable when set returns ----
 */

enum { CONFIG_KIND_MAX = 31, CONFIG_ID_MAX = 127, CONFIG_BLOB_MAX = 16 << 10 };

/* What VOLUME_KEEP stores; the id is the volume's in decimal. */
#define VOLUME_RECORD_KIND "front-end"
/* What the scrub remembers. */
#define SCRUB_RECORD_KIND "scrub"

HF_MUST_CHECK int engine_config_set(struct engine *engine, const char *kind, const char *id,
                                    const void *blob, uint32_t bytes, struct errmsg *reterr);
HF_MUST_CHECK int engine_config_delete(struct engine *engine, const char *kind, const char *id,
                                       struct errmsg *reterr);
/* Calls visit for each record of a kind (NULL: of all), in order of id. No fiber needed; visit must
 * not park or change the configuration. */
void engine_config_each(struct engine *engine, const char *kind,
                        void (*visit)(void *ctx, const char *kind, const char *id, const void *blob,
                                      uint32_t bytes),
                        void *ctx);

/* ---- status (no fiber needed, never waits for disks) ---- */

/* How a disk compares with its peers; and what was seen when it was suspected last. */
struct engine_disk_slow {
    bool suspect, held; /* held: redundancy does not let it go */
    bool expelled;      /* for being slow */
    uint64_t suspect_ns;
    char why[200]; /* of the last suspicion; empty: there was none */
    uint64_t at_wall_ns;
    uint32_t own[LATENCY_BUCKETS], peers[LATENCY_BUCKETS]; /* reads, by latency_bucket_ns() */
    uint64_t read_median_ns, read_tail_ns;   /* up to 16 KiB, in the last seconds; 0: too few */
    uint64_t write_median_ns, write_tail_ns; /* durable ones */
};

struct engine_disk_status {
    uint32_t member;
    struct uuid uuid;
    char path[256];
    enum member_state state;
    enum member_role role;
    bool present;
    uint64_t size_bytes, used_bytes; /* used: in chunks that belong to segments */
    struct disk_counters counters;
    char why[256]; /* expelled: the reason */
    struct engine_disk_slow slow;
};

struct engine_rebuild_status {
    bool whole;                /* everything has all the redundancy it was written with */
    bool waiting;              /* for a disk that may come back: see grace_s */
    uint64_t exposed_segments; /* with less redundancy than they should have */
    uint64_t left_bytes, done_bytes;
    uint64_t bytes_per_s, left_s; /* as it went so far; 0: not known */
    uint64_t grace_s;
};

struct engine_status {
    char name[64];
    struct uuid uuid;
    char health[16];  /* "ok", "degraded", "failed" */
    char advice[512]; /* what is wrong and what to do; empty when ok */
    uint64_t raw_bytes, chunk_bytes;
    uint64_t usable_bytes, used_bytes, free_bytes; /* logical; usable for the pool's strongest
                                                      profile in use, raid-less otherwise */
    uint64_t live_blocks, dirty_bytes;
    uint64_t segments, segments_free_chunks;
    uint64_t checkpoints, checkpoint_last_ms, mount_generation, config_epoch;
    uint64_t log_rows, log_bytes, ring_used_pct;
    uint64_t cleaner_moved_blocks, cleaner_freed_segments;
    uint64_t reads, writes, read_bytes, write_bytes, unmaps;
    uint64_t reconstructions, checksum_errors, repairs;
    uint64_t map_memory_bytes, node_cache_bytes, read_cache_bytes;
    uint64_t bytes_written_log, bytes_written_rows, bytes_written_meta; /* to disks */
    uint64_t bytes_written_rebuild;
    struct engine_rebuild_status rebuild;
    uint32_t disk_count;
    struct engine_disk_status disks[POOL_DISKS_MAX];
};

void engine_status(struct engine *engine, struct engine_status *ret_status);

/* ---- scrub: reads and verifies all that lives in the pool, and puts right what is wrong ---- */

enum { SCRUB_RANGES_MAX = 200 };

struct engine_range {
    uint64_t volume; /* id; 0: of no volume's data (parity, metadata) */
    uint64_t block, count;
    uint32_t member; /* where it was put right; 0 for what is lost */
    uint32_t reserved;
};

struct engine_scrub_status { /* of the one that runs, or of the last one */
    bool running, complete;  /* complete: it was not stopped */
    uint32_t days;           /* from the end of one to the next; 0: only on request */
    uint64_t started_wall_ns, ended_wall_ns; /* ended: the last one that was complete */
    uint64_t remaining_ns;                   /* an estimate; 0: none yet */
    uint64_t rows_done, rows_total, bytes_read;
    uint64_t wrong, repaired; /* blocks that a disk held wrongly */
    uint64_t lost_blocks, headers_lost, meta_lost;
    uint64_t skipped_columns; /* of rows and metadata, on disks that are missing or do not answer */
    uint64_t repaired_on[POOL_DISKS_MAX];
    uint32_t touched_count, lost_count;
    struct engine_range touched[SCRUB_RANGES_MAX], lost[SCRUB_RANGES_MAX];
};

/* Begins one, or stops the one that runs. ERR_BUSY, ERR_NOT_FOUND. Neither waits. */
HF_MUST_CHECK int engine_scrub(struct engine *engine, bool stop, struct errmsg *reterr);
/* A setting of the pool. Fiber. */
HF_MUST_CHECK int engine_scrub_schedule(struct engine *engine, uint32_t days,
                                        struct errmsg *reterr);
/* No fiber needed. */
void engine_scrub_status(const struct engine *engine, struct engine_scrub_status *ret_status);

/* ---- for the simulator and tests (no fiber needed) ---- */

/* What the engine is doing: "import: replay", "checkpoint: merge", "serving", … A constant. */
const char *engine_stage(const struct engine *engine);

struct engine_counters {
    uint64_t ring_wraps, late_log_copies, failed_log_copies, log_waits_for_space;
    uint64_t reconstructed_one, reconstructed_two;
    /* Written to segments, without headers, parity and copies: hosts' data, by a checkpoint or as
     * rows of their own; nodes of volume trees; what the cleaner moved, and of that, ahead of need.
     */
    uint64_t data_blocks, ref_blocks, node_blocks;
    uint64_t cleaner_moved_blocks, cleaner_ahead_blocks, cleaner_freed_segments;
    uint64_t read_ahead_blocks;
    uint64_t degraded_segments;        /* opened with less than the disks in sync could give */
    uint32_t tree_height, tree_levels; /* of the tallest volume tree */
    uint64_t tree_nodes, tree_items;   /* of all volume trees, as last committed */
    uint32_t volumes_damaged, volumes_broken;
    uint64_t volumes_healed, swept_blocks;
    uint64_t hedged, hedges_won, detoured; /* see struct row_counters */
    uint64_t slow_log_copies, late_rows;
    uint64_t disks_suspected, suspects_cleared, disks_expelled_slow;
    uint64_t columns_rebuilt, columns_evacuated, segments_restriped, rebuilds_finished;
    uint64_t disks_added, disks_removed, disks_returned, spares_used;
    uint64_t relocated_blocks; /* by reordering, and by changes of profile */
    uint64_t profiles_changed; /* changes of profile that have come to their end */
};
void engine_counters(const struct engine *engine, struct engine_counters *ret_counters);

/* Where to destroy blocks (4096 bytes each) so that one node of a volume's tree is lost beyond
 * redundancy; `which` chooses it, and it is forgotten by the cache. Returns how many places there
 * are, 0: the volume has no node. */
enum { ENGINE_PLACES_MAX = 4 * SEGMENT_COLUMNS_MAX };
struct engine_place {
    uint32_t member;
    uint64_t offset_bytes;
};
uint32_t engine_node_places(struct engine *engine, uint64_t volume_id, uint64_t which,
                            struct engine_place ret_places[ENGINE_PLACES_MAX]);

/* ---- check: reads a stopped pool, changes nothing ---- */

struct engine_check_result {
    uint64_t blocks_read, nodes_read, rows_read, segments, log_rows;
    uint64_t problems;
    uint64_t repairable;
    uint32_t volumes_sweeping; /* deleted, and not all of what they held is found yet */
};

/* Verifies every checksum and every invariant that can be seen at rest; problem(owner, text) is
 * called for each finding. OK when the pool could be read at all; see the result for findings. */
HF_MUST_CHECK int engine_check(struct env *env, const struct pool_open_options *options,
                               void (*problem)(void *owner, const char *text), void *owner,
                               struct engine_check_result *ret_result, struct errmsg *reterr);

#endif
