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

/* Fiber conveniences: park until done. */
HF_MUST_CHECK int disk_read(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes,
                            struct buf *buf, size_t buf_offset);
HF_MUST_CHECK int disk_write(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes,
                             struct buf *buf, size_t buf_offset, bool durable);
HF_MUST_CHECK int disk_flush(struct disk *disk);
HF_MUST_CHECK int disk_discard(struct disk *disk, uint64_t offset_bytes, uint64_t length_bytes);

const struct env_disk_info *disk_info(const struct disk *disk);
const struct disk_counters *disk_counters(const struct disk *disk);
struct env_disk *disk_env(struct disk *disk);
uint32_t disk_in_flight(const struct disk *disk); /* I/Os whose done() has not run */

/* Notes something that a layer above found (a bad checksum, a repair). */
void disk_note(struct disk *disk, enum disk_error_kind kind, uint64_t offset_bytes,
               uint64_t length_bytes, const char *text);

#endif
