// SPDX-License-Identifier: MPL-2.0
/* A disk as the pool sees it: asynchronous read, write, flush, discard, identity, and deadlines.
 *
 * Nothing here depends on a file descriptor or on more alignment than 4096, so that another node's
 * disk can be one more kind. A disk I/O completes exactly once, at the latest at its deadline: then
 * with ERR_TIMEOUT, while the real I/O stays outstanding. Its buffer is kept alive by a reference
 * of the disk layer until the environment gives the memory back; what such I/Os hold is counted
 * (late_bytes) and bounded: a disk that holds more than its limit answers ERR_TIMEOUT at once.
 *
 * Owned by the pool's engine thread. */
#ifndef HOLDFAST_DISK_DISK_H
#define HOLDFAST_DISK_DISK_H

#include "base/buf.h"
#include "base/error.h"
#include "disk/latency.h"
#include "env/env.h"
#include "format/phys.h"

struct disk;

struct disk_io {
    enum env_io_op op;
    bool durable;          /* write: on stable media before done() */
    uint64_t offset_bytes; /* multiples of 4096 */
    uint64_t length_bytes;
    struct buf *buf; /* one slice of one buffer; NULL for flush and discard */
    size_t buf_offset;
    uint64_t deadline_ns; /* absolute; 0: the disk's default from now */
    int result;           /* OK, ERR_IO, ERR_TIMEOUT, ERR_DISK_GONE, ERR_NO_SPACE */
    uint64_t latency_ns;  /* from submit to done */
    void (*done)(struct disk_io *io);
    void *owner;
    void *private_op;
};

enum disk_error_kind {
    DISK_ERROR_READ,
    DISK_ERROR_WRITE,
    DISK_ERROR_FLUSH,
    DISK_ERROR_TIMEOUT,
    DISK_ERROR_CHECKSUM,
    DISK_ERROR_REPAIRED,
    DISK_ERROR_KINDS
};

struct disk_event { /* one of the last ten, for `pool status` */
    uint64_t wall_ns;
    enum disk_error_kind kind;
    uint64_t offset_bytes, length_bytes;
    char text[96];
};

enum { DISK_EVENTS_KEPT = 10 };

struct disk_counters {
    uint64_t reads, read_bytes, writes, write_bytes, flushes, discards;
    uint64_t errors[DISK_ERROR_KINDS];
    uint64_t answered, latency_ns; /* I/Os, and the sum of what they took */
    uint64_t late_bytes, in_flight;
    uint64_t late_changes; /* writes and discards given up that may still be carried out */
    uint64_t late_durable; /* of these, durable writes */
    uint64_t slow_ios;     /* ever: took much longer than they would have on its peers */
    uint64_t left;         /* given up by disk_leave() */
    uint64_t event_count;  /* ever; the last DISK_EVENTS_KEPT are events[i % DISK_EVENTS_KEPT] */
    struct disk_event events[DISK_EVENTS_KEPT];
};

struct disk_options {
    struct env_disk_options env;
    uint64_t deadline_ns;      /* of an I/O that names none; 0: 5 s */
    uint64_t late_bytes_limit; /* 0: 64 MiB */
};

HF_MUST_CHECK int disk_open(struct env *env, const char *path, const struct disk_options *options,
                            struct disk **ret_disk, struct errmsg *reterr);
/* Outstanding I/Os of callers complete with ERR_CANCELLED from the loop; memory that the kernel
 * still holds is freed when it comes back. */
void disk_close(struct disk *disk);

/* Of a disk that was given up: what it has not answered completes with ERR_DISK_GONE from the loop,
 * and so does what is submitted from now on. Nothing waits for it any more. */
void disk_abandon(struct disk *disk);

/* Of an abandoned disk: closes what lies under it. Harmless twice. */
void disk_let_go(struct disk *disk);
/* Nothing of it is with the environment any more. */
bool disk_is_drained(const struct disk *disk);
/* An abandoned disk that was let go and is drained goes on as `other`, which has no I/O under way
 * and ends. */
void disk_take_over(struct disk *disk, struct disk *other);

void disk_submit(struct disk *disk, struct disk_io *io);

/* Gives up an I/O before its deadline, because its caller has found what it wanted elsewhere: its
 * result is ERR_TIMEOUT now and done() is not called. What the environment still holds of it is
 * accounted like that of any other late I/O. Nothing happens if it is answered already. */
void disk_leave(struct disk_io *io);

/* Fiber conveniences: park until done. */
HF_MUST_CHECK int disk_read(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes,
                            struct buf *buf, size_t buf_offset);
HF_MUST_CHECK int disk_write(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes,
                             struct buf *buf, size_t buf_offset, bool durable);
HF_MUST_CHECK int disk_flush(struct disk *disk);
HF_MUST_CHECK int disk_discard(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes);

const struct env_disk_info *disk_info(const struct disk *disk);
const struct disk_counters *disk_counters(const struct disk *disk);
struct env_disk *disk_env(struct disk *disk);     /* NULL: it has been let go */
uint32_t disk_in_flight(const struct disk *disk); /* I/Os whose done() has not run */

/* ---- how it compares ----
 *
 * Whoever compares the disks of a pool (engine/slow.c) gives each a yardstick, made from what its
 * peers take. An I/O that takes longer is counted; and those who wait for it learn for how long
 * that is worth while. Because a disk that is given more to do than its peers may take longer, the
 * disk reckons with a model of itself: a disk that takes the peers' time for a unit of work, and
 * that gets the same I/Os. What that one would still have to do is its backlog, and is allowed on
 * top. A disk that is slow under the same load as its peers has none. */

struct disk_yardstick { /* 0: not known */
    /* An I/O is worth an attempt elsewhere after hedge, is slow (the median of its peers' times a
     * margin), is late (their 99th percentile times a margin). */
    uint64_t hedge_ns[LATENCY_KINDS][LATENCY_CLASSES];
    uint64_t slow_ns[LATENCY_KINDS][LATENCY_CLASSES];
    uint64_t late_ns[LATENCY_KINDS][LATENCY_CLASSES];
    uint64_t unit_ns; /* the peers' busy time for a unit of work */
};

void disk_set_yardstick(struct disk *disk, const struct disk_yardstick *yardstick);
/* How long an I/O submitted now may take before it is worth an attempt elsewhere; UINT64_MAX: not
 * known. */
uint64_t disk_hedge_ns(const struct disk *disk, enum env_io_op op, bool durable,
                       uint64_t length_bytes);

struct disk_window {     /* since the last look */
    uint32_t done, late; /* I/Os that came back; those that were late */
    struct {
        uint32_t done, slow; /* of them; those that were slow */
    } of[LATENCY_KINDS];
    uint32_t late_out;  /* outstanding, and late already */
    uint64_t oldest_ns; /* age of the oldest one that is outstanding */
};
struct disk_window disk_window_take(struct disk *disk);
struct disk_latency *disk_latency(struct disk *disk); /* to be faded by whoever compares */
uint64_t disk_oldest_ns(const struct disk *disk); /* age of the oldest I/O that is not back, or 0 */

/* To be avoided where there is another way. A suspect is so until it is none any more, and its I/Os
 * that name no deadline have half the time: who must wait for it (a checkpoint's flush) has waited
 * before. A disk that is shunned is to be avoided for a while. */
void disk_set_suspect(struct disk *disk, bool suspect);
void disk_shun(struct disk *disk, uint64_t until_ns);
bool disk_is_avoided(const struct disk *disk);
uint64_t disk_deadline_ns(const struct disk *disk);

/* A write or a discard that was given up may still change some of these bytes. */
bool disk_may_change(const struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes);

/* Notes something that a layer above found (a bad checksum, a repair). */
void disk_note(struct disk *disk, enum disk_error_kind kind, uint64_t offset_bytes,
               uint64_t length_bytes, const char *text);

#endif
