// SPDX-License-Identifier: MPL-2.0
/* What the files of this module share: looking at disks (probe.c), deciding what they add up to
 * (choose.c), the host's own records (witness.c), writing superblocks (pool.c). */
#ifndef HOLDFAST_POOL_INTERNAL_H
#define HOLDFAST_POOL_INTERNAL_H

#include "pool/pool.h"

enum { HOST_BYTES = 64, WHY_BYTES = sizeof(((struct pool *)NULL)->why[0]) };

/* ---- probe.c: one path, as found ---- */

enum copy_state {
    COPY_EMPTY,       /* nothing was ever written there */
    COPY_GOOD,        /* valid, and this disk's */
    COPY_DAMAGED,     /* unreadable, or its checksum is wrong */
    COPY_UNSUPPORTED, /* of a newer version */
};

struct probe {
    char *path;
    struct disk *disk;     /* NULL: could not be opened */
    struct errmsg problem; /* code OK: a disk of some pool that can be used */
    bool busy;             /* somebody else holds it: only its label was looked at */
    bool labelled;         /* `label` is valid */
    struct label_phys label;
    enum copy_state label_copies[2];
    enum copy_state slots[SUPER_SLOTS];
    uint64_t slot_sequence[SUPER_SLOTS], slot_mount_id[SUPER_SLOTS];
    struct super_phys *super; /* the newest valid one of this disk; NULL: none */
};

/* Opens every path (exclusively, or it is refused) and reads labels and superblocks, all paths at
 * once. What is wrong with a path is in its `problem`. Fiber. */
struct probe *probe_paths(struct env *env, const char *const *paths, uint32_t count,
                          const struct disk_options *options, bool read_only);
/* Tries those that were busy once more. Fiber. */
void probe_again(struct env *env, struct probe *probes, uint32_t count,
                 const struct disk_options *options, bool read_only);
void probes_free(struct probe *probes, uint32_t count);

/* The size a disk is used with: rounded down, so that a slightly smaller spare fits. */
uint64_t usable_blocks(uint64_t size_bytes);

/* ---- choose.c: what the probed disks add up to ---- */

/* Whether `present` of the `in_sync` members of a configuration, and perhaps the witness, decide
 * for it. All members present need nobody else's word: no other side is left. */
bool quorum_reached(uint32_t in_sync, uint32_t present, bool witness);

/* Members of a configuration (a bit each), and whether this host is its witness. */
struct electorate {
    uint64_t members;
    bool witness;
};

/* What is known to be settled when a superblock and the witness are put together. */
struct settled_point {
    uint64_t epoch, generation, mount_id;
    bool witness; /* this host's is the one that settled it */
};

struct choice {
    const struct super_phys *super;       /* points into the probes */
    struct probe *voters[POOL_DISKS_MAX]; /* by member; NULL: absent, stale or not in sync */
    /* Members that are here without a vote: to be told by the next superblock that they are out. */
    struct probe *informed[POOL_DISKS_MAX];
    struct electorate current; /* in sync by `super`; decided by voters */
    struct electorate settled; /* of the last configuration known settled; by all that are here */
    struct settled_point point;
    uint64_t voter_mask, here_mask;
    bool forced;
    uint64_t epoch_floor, generation_floor; /* highest seen anywhere */
    char why[POOL_DISKS_MAX][WHY_BYTES];    /* of members without a voter */
};

/* Whether `other` was written by a mount that those who left the member out know nothing of. */
bool super_went_on(const struct super_phys *other, const struct member_phys *m);

bool electorate_decides(const struct electorate *e, uint64_t here);

struct choose_options {
    struct uuid pool;
    const char *host; /* this one; "" before it has a name */
    bool read_only, force_quorum, force_host;
};

/* Fills ret_choice (as far as it came) also on failure. */
HF_MUST_CHECK int choose(struct env *env, struct probe *probes, uint32_t count,
                         const struct choose_options *options, struct choice *ret_choice,
                         struct errmsg *reterr);

/* ---- create.c: what a disk gets when it joins a pool ---- */

enum { CHUNKS_LEAST = 4 }; /* below that a disk is too small */
/* Zeros where labels, superblocks and the head of the log lie on a disk of `blocks`. Fiber. */
HF_MUST_CHECK int disk_wipe(struct disk *disk, uint64_t blocks);
/* Both copies of the label of that member. Fiber. */
HF_MUST_CHECK int disk_label(struct disk *disk, const struct super_phys *s, uint32_t member);
HF_MUST_CHECK int disk_check_size(const struct geometry *g, const struct probe *probe,
                                  uint32_t chunks, struct errmsg *reterr);

/* ---- witness.c: state records of this host ---- */

/* ERR_NOT_FOUND also when the record is damaged: it is then as good as none. */
HF_MUST_CHECK int witness_read(struct env *env, const struct uuid *pool,
                               struct witness_phys *ret_witness);
HF_MUST_CHECK int witness_write(struct env *env, const struct super_phys *super);
/* Name of this host; "" when it has none yet. */
void host_read(struct env *env, char *ret_host);
/* Gives it one if it has none. */
HF_MUST_CHECK int host_ensure(struct env *env, char *ret_host);

/* ---- pool.c ---- */

struct pool_private {
    struct pool *pool;
    char host[HOST_BYTES];
    struct fiber_lock lock;             /* one superblock write at a time; holds `next` */
    struct super_phys next;             /* the one being written */
    uint64_t parent_mount_id;           /* of the superblock all members have now */
    struct electorate current, settled; /* what a superblock write has to win: see may_write() */
    uint64_t informed;                  /* members written to although not in sync */
    struct disk *informed_disks[POOL_DISKS_MAX];
    struct settled_point point; /* the next superblock tells it: what is known here must not be lost
                                   when the next host does not know it */
    bool unchecked;             /* forced: the write under way needs no quorum */
    bool taken, failed;
    bool witness_due; /* members know an epoch that the witness does not */
    int witness_error;
    uint64_t expel_asked, expel_durable; /* counts of expulsions */
    bool settling;                       /* the background fiber exists */
    struct fiber_queue settle_queue;
    struct env_task notify_task;
    bool notify_queued;
    uint64_t notify_members; /* a bit a member whose expelled() is to be called */
    uint64_t admitting;      /* members that are in sync in `next`, and not in `super` yet */
    uint64_t emptied;        /* members that were dropped, when nothing was on them any more */
    uint64_t round_failed;   /* members that did not get a superblock of the last write */
    uint64_t used; /* members there were in this mount: their numbers are not given again */
    uint64_t has_sequence[POOL_DISKS_MAX]; /* the last superblock that it certainly has */
    uint64_t epoch_floor, generation_floor;
    bool forced;
    bool new_epoch; /* the next superblock begins one even if no member is lost */
    uint8_t repair_super[POOL_DISKS_MAX]; /* bits: front, back copy of `super` is not there */
    uint8_t repair_label[POOL_DISKS_MAX];
    struct label_phys labels[POOL_DISKS_MAX];
};

void pool_notify_init(struct pool_private *p);
void pool_graves_close(struct pool *pool);

/* With the lock held: what is to be written starts from what is there. The states stay as last
 * written, so that pool_super_write() sees which members were expelled since. */
struct super_phys *pool_super_begin(struct pool *pool);
/* Writes what pool_super_begin() returned to all that get it: the caller has set all but sequence,
 * epoch, parent, states and what is settled. Fiber. */
HF_MUST_CHECK int pool_super_write(struct pool *pool);

/* Writes `super` to the copies named in copies[member] (bit 0 front, bit 1 back), durably and all
 * at once; ret_failed: a bit a member. Fiber. */
void super_write_copies(struct disk *const *disks, const struct super_phys *super,
                        const uint8_t *copies, uint64_t *ret_failed);

#endif
