// SPDX-License-Identifier: MPL-2.0
/* One seed is one world: disks, a pool on them, volumes, a workload, faults and power cuts, all
 * drawn from it, and the oracle that watches. world.c makes it and leads it from import to import,
 * workload.c issues requests and judges the answers, faults.c breaks disks within the budget.
 *
 * The world's own code runs between calls of env_sim_run_until() and in completions; it is no fiber
 * and lives outside the engine's mem scope. A power cut can come in any of those calls: then
 * w->engine is NULL afterwards, and whoever notices returns to world_run(), which imports again. */
#ifndef HOLDFAST_SIM_WORLD_H
#define HOLDFAST_SIM_WORLD_H

#include "base/mem.h"
#include "engine/engine.h"
#include "env/sim/sim.h"
#include "oracle.h"
#include "stats.h"

enum {
    WORLD_DISKS_MAX = 10,
    WORLD_VOLUMES_MAX = 4,
    WORLD_RECORDS_MAX = 12,
    WORLD_DEPTH_MAX = 32,
    WORLD_REQUEST_BYTES_MAX = 512 << 10,
    WORLD_OP_IOVECS = 6,
    WORLD_RUIN_BLOCKS_MAX = 64,
    SPACE_PEAKS = 6,
    LARGE_VOLUME_BYTES = 400 << 20,
};

/* Freed space must be back within a minute (lessons: "Space"). */
#define SPACE_PEAK_NS (15 * NS_PER_S)

struct world_options {
    uint64_t seed;
    uint64_t ops; /* 0: drawn */
    bool trace;
    bool cramped; /* see draw_cramped() */
    bool slow;    /* see slow.c */
};

struct world_result {
    bool failed;
    char why[1000];
    uint64_t virtual_ns, ops, trace_hash;
    struct sim_stats stats;
};

/* Never fails itself; what the oracle saw is in the result. */
void world_run(const struct world_options *options, struct world_result *ret_result);

/* ---- what follows is for the files of this folder ---- */

enum volume_state { VOL_NONE, VOL_CREATING, VOL_LIVE, VOL_DELETING };

struct world_volume {
    enum volume_state state;
    char name[16];
    uint64_t id; /* 0: not known yet */
    uint64_t size_bytes;
    uint64_t resize_bytes;              /* 0: none under way */
    enum profile profile, profile_next; /* next: being set */
    uint32_t profiles; /* mask of all it ever had: any of it may still lie in them */
    bool thick, sync_standard;
    bool harmed; /* more disks were bad than the profile tolerates, some time; or ruin.c did it */
    uint32_t created_bad; /* mask of the disks that were bad when it was created */
    uint32_t in_flight;
    struct oracle_volume oracle;
};

struct world_record { /* a configuration record; version 0: absent */
    uint32_t version, pending;
    bool is_pending;
};

enum op_kind {
    OP_READ,
    OP_WRITE,
    OP_FLUSH,
    OP_UNMAP,
    OP_ZEROES,
    OP_COMPARE,
    OP_VERIFY,
    OP_WRONG, /* must be refused */
    OP_KINDS
};

struct op {
    struct volume_request request;
    struct world *world;
    enum op_kind kind;
    bool busy;
    struct world_volume *volume;
    uint64_t volume_id;
    uint64_t first_sector, sectors; /* written (unmap: whole blocks only) or read */
    uint32_t version, submitted;
    uint64_t started_ns;
    bool spoilt;      /* compare: one byte of what is compared never was there */
    bool undisturbed; /* compare: no other write overlaps it in time and place */
    bool known;       /* compare: all of the range could hold one thing only */
    uint64_t spoilt_at;
    struct iovec iov[WORLD_OP_IOVECS];
    uint8_t *bytes;
};

struct phase {
    struct world_volume *volume; /* NULL: all */
    uint32_t weights[OP_KINDS];
    uint32_t depth, ops;
    uint32_t sectors_min, sectors_max;
    uint32_t align_sectors;
    uint32_t fua_pct, zero_pct;
    bool sequential;
    uint64_t window_start, window_bytes; /* of the volume */
    uint64_t next;
};

enum control_kind {
    CONTROL_CREATE_POOL,
    CONTROL_IMPORT,
    CONTROL_CLOSE,
    CONTROL_CHECKPOINT,
    CONTROL_VOLUME_CREATE,
    CONTROL_VOLUME_DELETE,
    CONTROL_VOLUME_RESIZE,
    CONTROL_VOLUME_REORDER,
    CONTROL_VOLUME_PROFILE,
    CONTROL_CONFIG_SET,
    CONTROL_CONFIG_DELETE,
    CONTROL_CHECK,
    CONTROL_DISK_ADD,
    CONTROL_DISK_REPLACE,
    CONTROL_DISK_REMOVE,
    CONTROL_DISK_KEEP,
    CONTROL_KINDS
};

struct control {
    enum control_kind kind;
    bool active, done;
    int result;
    struct errmsg err;
    uint64_t started_ns;
    struct world *world;
    /* arguments */
    struct world_volume *volume;
    uint32_t record, version;
    uint64_t size_bytes;
    bool exported, spare;
    bool stop; /* a reordering; of a profile: a dry run */
    uint32_t disk, member;
    char path[64];
    const char *paths[WORLD_DISKS_MAX + 1];
    uint32_t path_count;
    struct engine *engine; /* result of an import */
    uint64_t volume_id;
    struct engine_check_result check;
    char problem[300];
};

struct world_counted {
    uint64_t checkpoints, reconstructions, checksum_errors, repairs, timeouts;
    struct engine_counters more;
    uint64_t scrub_ended_ns, scrub_repaired;
};

struct world {
    struct world_options options;
    struct world_result *result;
    struct rng rng;
    struct env *env;
    struct mem_scope scope;
    struct engine *engine;
    uint64_t boundaries_last_cut;

    /* the pool */
    uint32_t disk_count;
    struct sim_disk *disks[WORLD_DISKS_MAX];
    struct sim_disk *stranger; /* a disk of nobody, offered at imports */
    struct geometry geometry;
    struct engine_limits limits;
    bool large; /* one volume so large that its tree has three levels; see draw_large() */
    bool large_filled;
    bool cramped;          /* small rows, always full; see draw_cramped() */
    bool deep;             /* only profiles that tolerate two losses: two disks may be bad */
    uint32_t tolerance;    /* disks that may be bad at once */
    bool slow, slow_alike; /* nothing happens but slow disks; see slow.c */
    uint64_t slow_at_ns;   /* since when one is; 0: none */
    bool closing, crashed_before, closed_clean, exported;
    struct engine_status status;  /* as last polled */
    struct world_counted counted; /* of it, what has gone into the statistics */
    uint32_t member_disk[POOL_DISKS_MAX];
    struct uuid member_uuid[POOL_DISKS_MAX];

    /* disks that come and go: see moves.c */
    struct rng move_rng; /* of its own, so that other worlds are what they were */
    bool moving;
    uint32_t extras;                                                 /* disks made later */
    uint32_t outside, idle, spares, fresh, asked_to_leave, set_back; /* masks */
    uint8_t *image; /* an old copy of a disk; NULL: none */
    uint32_t image_disk;
    uint64_t image_mount, image_checkpoint;
    bool image_is_old;

    /* faults */
    bool ruin;           /* some volumes lose nodes of their trees beyond redundancy: see ruin.c */
    struct rng ruin_rng; /* of its own, so that other worlds are what they were */
    struct ruin_block {  /* destroyed, and may come back */
        struct sim_disk *disk;
        uint64_t offset_bytes;
        uint32_t at; /* the byte that was changed */
        uint8_t *good;
    } ruin_blocks[WORLD_RUIN_BLOCKS_MAX];
    uint32_t ruin_block_count;
    struct rng slow_rng; /* of disks that become slow: of its own, too */
    bool faults;
    uint32_t missing; /* mask: the engine has given these up */
    uint32_t lost;    /* mask: it has not rebuilt yet what was on them: their loss is still felt */
    uint32_t missing_durable; /* mask: those it had given up when it was last imported */
    uint32_t excused;         /* mask: we gave it a reason to */
    uint32_t suspect;         /* mask: it may have given these up, we have not looked yet */
    uint64_t suspect_until_ns[WORLD_DISKS_MAX];
    uint64_t given_up_ns[WORLD_DISKS_MAX]; /* when we heard of it */
    uint32_t ahead_at_cut; /* mask: the last to answer before the power cut, while others wrote */
    bool space_ran_out;
    double space_peak[SPACE_PEAKS]; /* most that was needed, a slot for each SPACE_PEAK_NS */
    uint64_t space_slot;

    /* volumes and records */
    struct oracle oracle;
    struct world_volume volumes[WORLD_VOLUMES_MAX];
    uint32_t volumes_ever;
    struct world_record records[WORLD_RECORDS_MAX];
    uint32_t versions; /* handed out */

    /* requests */
    struct op ops[WORLD_DEPTH_MAX];
    uint32_t in_flight, depth;
    uint64_t ops_answered, ops_target;
    struct control control;
};

/* Notes the first failure; later ones are its consequences. */
void world_fail(struct world *w, const char *fmt, ...) HF_PRINTF(2, 3);
static inline void world_count(struct world *w, enum sim_stat stat, uint64_t n) {
    w->result->stats.count[stat] += n;
}
static inline bool world_goes_on(const struct world *w) {
    return !w->result->failed;
}

/* Lets the world run until `until`; false when the engine is gone (power cut) or the world has
 * failed. Virtual time ends at `deadline_ns`, which is fine when `may_idle`, and otherwise means
 * that something was never answered. */
bool world_wait(struct world *w, bool (*until)(void *ctx), void *ctx, uint64_t deadline_ns,
                bool may_idle);
void world_let_pass(struct world *w, uint64_t ns);
bool world_drain(struct world *w); /* until nothing is in flight */
bool world_close(struct world *w, bool exported);

/* control.c: the engine's fiber calls, one at a time. */
void control_start(struct world *w, struct control control);
/* Judges the answer if it has come. */
void control_poll(struct world *w);
bool control_wait(struct world *w);
void control_crashed(struct world *w);
/* After an import: what is there must be what was acknowledged, or was under way. */
void control_reconcile(struct world *w);
void control_event(struct world *w); /* draws and starts one */
/* A thin volume in this place. */
bool control_volume(struct world *w, uint32_t slot, enum profile profile, uint64_t size_bytes);
const char *control_name(enum control_kind kind);

/* workload.c */
void workload_init(struct world *w);
void workload_done(struct world *w);
void workload_phase(struct world *w); /* draws one and runs it */
void workload_verify(struct world *w, bool everything);
void workload_forget(struct world *w, bool clean); /* the engine is gone */
/* One request; there must be room for it. */
void workload_submit(struct world *w, struct world_volume *v, enum op_kind kind,
                     uint64_t offset_bytes, uint64_t length_bytes);
/* Share of the pool that is needed by what the volumes hold: the most within the last minute. */
double workload_space_need(struct world *w);
/* What it would be now if these disks (a mask) were lost too. */
double workload_space_need_without(struct world *w, uint32_t disks);

/* slow.c: worlds of their own */
bool slow_seed(uint64_t seed);
void slow_draw(struct world *w); /* the disks */
void slow_run(struct world *w);
void slow_judge(struct world *w, const struct world_volume *v, uint64_t started_ns, int status);
/* moves.c */
void moves_init(struct world *w);
void moves_done(struct world *w);
void moves_poll(struct world *w);
void moves_image(struct world *w); /* an old copy of a disk takes its place, in steps */
void moves_returns(struct world *w, uint32_t index); /* before sim_disk_return() */
void moves_event(struct world *w);                   /* draws one and starts it */
int moves_run(struct world *w, struct control *c);   /* on the fiber */
void moves_judge(struct world *w, struct control *c);
bool moves_member(struct world *w, const struct engine_disk_status *d, uint32_t *ret_index);
void moves_came(struct world *w, uint32_t index, const struct engine_disk_status *d);
void moves_role(struct world *w, uint32_t index, const struct engine_disk_status *d);
static inline bool world_volume_had(const struct world_volume *v, enum profile p) {
    return (v->profiles >> p & 1) != 0;
}
/* Disks that may be lost without harm to it, wherever it lies. */
uint32_t world_volume_losses(const struct world_volume *v);

/* ruin.c */
void ruin_init(struct world *w);
void ruin_done(struct world *w);
void ruin_event(struct world *w); /* draws a volume and harms it */
void ruin_judge(struct world *w); /* who is damaged must be harmed */
void ruin_deleted(struct world *w, const struct world_volume *v); /* that volume is gone */

/* faults.c */
uint32_t faults_bad(struct world *w); /* mask of the disks that do not count now */
void faults_event(struct world *w);   /* draws one and does it, within the budget */
void faults_rot_other(struct world *w, uint32_t except); /* much of some other disk, if it may be */
bool faults_rot(struct world *w);  /* a disk holds wrong content, if none is bad; false: none */
void faults_slow(struct world *w); /* a disk becomes slow, or as fast as it should be */
void faults_end(struct world *w);  /* everything that can be well again is */
bool faults_lose(struct world *w, uint32_t index); /* it vanishes, if the budget allows that */
void faults_poll(struct world *w);  /* looks at the engine's status; counts; judges expulsions */
void faults_count(struct world *w); /* at the end: what the disks have been through */
uint32_t faults_absent(struct world *w); /* mask of disks to leave out at this import */

#endif
