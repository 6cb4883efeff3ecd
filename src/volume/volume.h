// SPDX-License-Identifier: MPL-2.0
/* The block door: what front ends (SCSI, benchmarks, the simulator's clients) see of a volume.
 *
 * A request is asynchronous and may be submitted from any thread. It is the caller's memory and
 * must live until done() runs, once, on the loop `client`. Data is not copied on the way: the iovec
 * must stay valid as well.
 *
 * Reads return the last acknowledged or a concurrent write, verified, or an error (invariant 14).
 * A completed write is durable when the volume's sync is `always` or the request says `fua`;
 * otherwise after the next completed FLUSH. Requests are not ordered among each other. Each
 * 512-byte sector is written atomically; COMPARE AND WRITE is atomic as a whole. */
#ifndef HOLDFAST_VOLUME_VOLUME_H
#define HOLDFAST_VOLUME_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "env/env.h"
#include "format/phys.h"
#include "format/profile.h"

enum volume_op {
    VOLUME_READ,
    VOLUME_WRITE,
    VOLUME_FLUSH,        /* everything completed before it is durable */
    VOLUME_UNMAP,        /* blocks wholly inside the range read as zero and are given back */
    VOLUME_WRITE_ZEROES, /* the whole range reads as zero; space is given back where it can be */
    VOLUME_COMPARE_AND_WRITE, /* iovec: length_bytes to compare, then length_bytes to write */
    VOLUME_VERIFY,            /* reads and verifies, transfers nothing */
    /* About the volume, not to its blocks: */
    VOLUME_KEEP,   /* a record that the front end wants back after a restart (reservations): durable
                      when answered; replaces the one before; length 0 removes it */
    VOLUME_RECALL, /* that record, zeros behind it; nothing but zeros when there is none */
    VOLUME_QUERY, /* what of the range holds something: one iovec of struct volume_run, filled front
                     to back as far as there is room (or patience); length 0 ends them */
    VOLUME_SPACE, /* one iovec of struct volume_space; length 0 */
    VOLUME_OPS
};

enum {
    VOLUME_REQUEST_BYTES_MAX = 8 << 20,
    VOLUME_COMPARE_BYTES_MAX = 128 << 10,
    VOLUME_RECORD_BYTES_MAX = 16 << 10,
};

struct volume_door;

struct volume_request {
    struct env_task task; /* private: carries the request between threads */
    struct env *client;
    struct volume_door *door;
    uint64_t volume_id;
    enum volume_op op;
    bool fua;
    uint64_t offset_bytes, length_bytes; /* multiples of 512; read, write ≤
                                            VOLUME_REQUEST_BYTES_MAX; unmap, zeroes, verify: any */
    const struct iovec *iov; /* any alignment; sums to length_bytes (twice that for compare) */
    uint32_t iov_count;
    /* OK, ERR_NOT_FOUND (volume gone), ERR_RANGE, ERR_INVALID, ERR_NO_SPACE, ERR_MISCOMPARE,
     * ERR_IO / ERR_CHECKSUM / ERR_DATA_LOSS (error_bytes tells where), ERR_TIMEOUT, ERR_SHUTDOWN,
     * ERR_READ_ONLY. */
    int status;
    uint64_t error_bytes; /* miscompare: offset of the first difference from the start of the
                             request; read errors: likewise, of the first bad byte's block */
    void (*done)(struct volume_request *request);
    void *owner;
};

/* A part of a volume that is alike: in whole blocks of 4096 bytes but for the ends of the range
 * that was asked about. */
struct volume_run {
    uint64_t length_bytes;
    bool mapped; /* false: reads as zero and takes no space */
};

struct volume_space {
    uint64_t used_bytes;              /* by the volume, logical */
    uint64_t free_bytes, total_bytes; /* of the pool, for volumes of this profile, logical */
};

/* Who answers requests: an engine, or a test's stand-in. */
struct volume_door {
    struct env *env; /* loop on which dispatch() runs */
    void (*dispatch)(struct volume_door *door, struct volume_request *request);
};

/* Any thread. */
void volume_submit(struct volume_request *request);
/* For doors: hands the request back to its client with `status`. Door's loop only. */
void volume_complete(struct volume_request *request, int status);

/* What a loss beyond redundancy has done to a volume's own metadata. */
enum volume_health {
    VOLUME_WHOLE,
    VOLUME_DAMAGED, /* reads what it can, refuses changes with ERR_DATA_LOSS */
    VOLUME_BROKEN,  /* lacks what it had acknowledged: refuses everything */
};

/* What a front end needs to know about a volume; a copy, plain data. */
struct volume_info {
    uint64_t id; /* never reused within a pool */
    char name[64];
    struct uuid uuid;     /* for NAA and other designators; survives renames */
    uint64_t size_bytes;  /* multiple of 4096 */
    uint32_t block_bytes; /* logical block of LUNs by default: 512 or 4096 */
    enum profile profile;
    bool thick;
    bool sync_always;         /* acknowledged = durable; false: durable at flush and FUA */
    uint64_t allocated_bytes; /* logical, as of the last checkpoint plus what is dirty */
    bool deleting;
    enum volume_health health;
    bool reordering;             /* its blocks are being put in order */
    bool profile_moves;          /* some of it is still in another profile */
    enum profile profile_former; /* that one */
    uint32_t moved_pct;          /* how far either has come */
    uint32_t extents_per_gib;    /* of its data; 0: not known yet. 1024 is whole */
    uint64_t lost_bytes; /* that no redundancy brings back, as far as reads and scrubs have seen */
};

#endif
