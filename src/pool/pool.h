// SPDX-License-Identifier: MPL-2.0
/* A pool as a set of disks: labels, superblocks, membership, quorum. What is stored in the pool is
 * the business of the layers above; they hang their roots on the superblock.
 *
 * Votes. Every in-sync member has one vote, and the host's witness (a state record "pool-UUID":
 * config epoch, mount generation, mount id) has one if it is the one of the newest superblock found
 * (of the same mount, or the superblock was written by this host) and knows nothing newer. A
 * majority of the votes of that superblock's configuration decides; at a tie the side with the
 * witness wins; all in-sync members together need no witness, as no other side is left. Even with a
 * majority, when as many in-sync members are absent as there are copies of the log, what only they
 * hold may be lost: refuse (ERR_DATA_LOSS) unless forced. A witness that knows a newer
 * configuration than any disk present means that the disks present are stale: refuse. Members that
 * are absent or stale at an import become MISSING in a new config epoch, which is durable on a
 * majority (and then in the witness) before anything else is written: so two importers never both
 * succeed without force (invariant 13).
 *
 * Every change of membership while running (an expelled disk) is made durable on all remaining
 * members and in the witness before any write that went without the expelled disk is acknowledged.
 *
 * Owned by the engine thread. Functions marked "fiber" park. */
#ifndef HOLDFAST_POOL_POOL_H
#define HOLDFAST_POOL_POOL_H

#include "disk/disk.h"
#include "env/fiber.h"
#include "format/profile.h"
#include "format/super.h"

struct pool_options {         /* for creation */
    const char *name;         /* [A-Za-z][A-Za-z0-9_.-]{0,62} */
    const char *const *paths; /* files (made sparse beforehand or existing) or block devices */
    uint32_t path_count;
    struct geometry geometry; /* zero fields: chosen from the smallest disk */
    bool force;               /* overwrite what the disks hold */
    uint32_t meta_copies;     /* 0: 2 where there are two disks */
    struct disk_options disk;
};

struct pool {
    struct env *env;
    struct super_phys super; /* as last made durable */
    uint32_t meta_copies;    /* that metadata and log rows get from now on; the engine may raise it.
                                All of them have `super.meta_copies` */
    uint64_t blocks[POOL_DISKS_MAX];     /* size in use */
    struct disk *disks[POOL_DISKS_MAX];  /* by member; NULL: missing */
    struct disk *graves[POOL_DISKS_MAX]; /* of members that were dropped: closed with the pool */
    uint32_t grave_count;
    struct disk_options disk_options;     /* as given when it was opened */
    char found_path[POOL_DISKS_MAX][256]; /* where a MISSING member was seen then; may be empty */
    bool read_only;
    char why[POOL_DISKS_MAX][256]; /* why a member is MISSING or not used, for people */
    /* Called on the engine thread, once a member, as soon as it is expelled (its state in `super`
     * is already MISSING, its disk still open but no longer to be used); not from inside a call. */
    void (*expelled)(void *owner, uint32_t member, const char *why);
    void *owner;
    struct pool_private *private_state;
};

/* Writes labels and the first superblock; destroys what the disks held. Fiber. ERR_BUSY, ERR_EXISTS
 * (a disk holds something libblkid or we know and !force: the message names it), ERR_RANGE (too
 * small), … */
HF_MUST_CHECK int pool_create(struct env *env, const struct pool_options *options,
                              struct errmsg *reterr);

struct pool_open_options {
    const char *name;         /* or NULL: the paths must hold exactly one pool */
    const char *const *paths; /* where to look: every path is tried, those of other pools ignored */
    uint32_t path_count;
    bool read_only;    /* `check`: needs no quorum, takes nothing, may miss disks */
    bool force_quorum; /* go on without a majority: fences the rest by a new config epoch */
    bool force_host;   /* it was last used by another host and not exported */
    struct disk_options disk;
};

/* Opens disks, validates labels and superblocks, picks the newest under quorum. Writes nothing.
 * Waits up to 5 s for disks of the pool that somebody else holds; they are never taken for absent
 * (unless force_quorum). Fiber. ERR_NOT_FOUND, ERR_QUORUM (names the missing disks and offers
 * --force-quorum), ERR_STALE, ERR_FOREIGN, ERR_UNSUPPORTED (an unknown incompatible feature),
 * ERR_BUSY (disks in use, or the pool used by another host), ERR_DATA_LOSS. Two disks with the same
 * uuid (a clone) are refused, both named. */
HF_MUST_CHECK int pool_open(struct env *env, const struct pool_open_options *options,
                            struct pool **ret_pool, struct errmsg *reterr);

/* What could be imported from these paths, one entry a pool; for `pool import` without a name.
 * Fiber. The array is the caller's (mem_free). */
struct pool_found {
    char name[64];
    struct uuid uuid;
    char host[64]; /* that used it last */
    uint64_t wall_ns;
    bool exported;
    uint32_t members, present;
    char missing[512]; /* disks that are not there, as last seen; empty: complete */
    char problem[256]; /* why it could not be imported; empty: it could */
};
HF_MUST_CHECK int pool_scan(struct env *env, const char *const *paths, uint32_t path_count,
                            struct pool_found **ret_found, uint32_t *ret_count,
                            struct errmsg *reterr);

/* Takes the pool for writing: next mount generation, absent members marked MISSING in a new config
 * epoch, durable under the quorum rule, then the witness. Nobody may be served before the next
 * pool_commit() has returned OK: it records that this mount is settled. Fiber. */
HF_MUST_CHECK int pool_take(struct pool *pool, struct errmsg *reterr);

/* Makes `roots` (and everything else in `super`) durable as checkpoint + 1 on all in-sync members;
 * a member that fails is expelled and the superblock written again without it. Returns OK only when
 * the new superblock is durable on every member that is still in sync. Serialised with all other
 * superblock writes. Flushing data beforehand is the caller's. `flags` are SUPER_FLAG_…;
 * `meta_copies` is what all that the roots refer to has, the log from their start on included. As
 * many members less one may be absent when the pool is opened (or be lost at once). Fiber. */
HF_MUST_CHECK int pool_commit(struct pool *pool, const struct roots_phys *roots,
                              const uint64_t *ring_tails, uint64_t flags, uint32_t meta_copies);

/* Declares a member lost: at once no longer in sync; the new configuration is made durable in the
 * background. Safe to call twice. Any fiber or callback of the engine thread. */
void pool_expel(struct pool *pool, uint32_t member, const char *why);

/* Parks until every expulsion so far is durable (superblocks and witness): to be called before
 * acknowledging anything that was written without an expelled member. ERR_QUORUM when too few
 * members remain: then nothing may be acknowledged any more. */
HF_MUST_CHECK int pool_settle(struct pool *pool);
bool pool_is_settled(const struct pool *pool); /* nothing to wait for */

bool pool_member_in_sync(const struct pool *pool, uint32_t member);
uint32_t pool_in_sync_count(const struct pool *pool);
/* In sync, and new chunks and log rows may go there: neither leaving nor a spare. */
bool pool_member_stores(const struct pool *pool, uint32_t member);
uint32_t pool_storing_count(const struct pool *pool);
/* To be removed, whatever its state. */
bool pool_member_is_leaving(const struct pool *pool, uint32_t member);

/* ---- members that come and go (member.c) ---- */

struct pool_add_options {
    const char *path;
    enum member_role role;
    bool force; /* overwrite what the disk holds */
    struct disk_options disk;
};

/* Makes the disk at `path` a member that is listed as MISSING: destroys what it held. The caller
 * prepares for it, then calls pool_member_admit(), or pool_member_drop(). Fiber. */
HF_MUST_CHECK int pool_member_add(struct pool *pool, const struct pool_add_options *options,
                                  uint32_t *ret_member, struct errmsg *reterr);
/* A missing member is at `path` again: looks at what it carries, and tells it where the pool is
 * now; pool_member_admit() follows. ERR_BUSY: I/Os that were given up may still be under way.
 * ERR_STALE, ERR_FOREIGN: it is not to be trusted. Fiber. */
HF_MUST_CHECK int pool_member_return(struct pool *pool, uint32_t member, const char *path,
                                     const struct disk_options *options, struct errmsg *reterr);
/* Where a member is, or was last, or is to be looked for. */
const char *pool_member_path(const struct pool *pool, uint32_t member);
/* Whether the disk can be added, and how many chunks it would have. Changes nothing. Fiber. */
HF_MUST_CHECK int pool_member_look(struct pool *pool, const struct pool_add_options *options,
                                   uint32_t *ret_chunks, struct errmsg *reterr);
/* From MISSING to in sync, durably; it is in sync when this returns OK. Fiber. */
HF_MUST_CHECK int pool_member_admit(struct pool *pool, uint32_t member, struct errmsg *reterr);
HF_MUST_CHECK int pool_member_set_role(struct pool *pool, uint32_t member, enum member_role role,
                                       struct errmsg *reterr);
/* A member that holds nothing any more, neither chunks nor rows of the log: it is no member when
 * this returns OK, and its label is erased. Fiber. */
HF_MUST_CHECK int pool_member_drop(struct pool *pool, uint32_t member, struct errmsg *reterr);

/* Looks whether each disk in use is still what was opened, and expels those that are not (a file
 * that was unlinked or truncated, a device that went). Never waits for a disk. To be called every
 * few seconds while serving. */
void pool_probe(struct pool *pool);

/* Parks until superblock writes under way have ended, then closes the disks and frees. */
void pool_close(struct pool *pool);

#endif
