// SPDX-License-Identifier: MPL-2.0
/* A classic array, for comparison: every block has its place on the disks and is overwritten there.
 * A volume door on simulated disks; it models time only, reads return what the memory held.
 *
 * It is a strong one: what is written is acknowledged from memory (of which a power cut would take
 * everything), sorted by place, and parity is computed with the fewest reads that do. inplace.c
 * says how. */
#ifndef HOLDFAST_BENCH_INPLACE_H
#define HOLDFAST_BENCH_INPLACE_H

#include "volume/volume.h"

enum { INPLACE_STRIP_BLOCKS = 16 }; /* 64 KiB of one disk after the other */

struct inplace_options {
    const char *const *paths; /* disks, opened and owned until inplace_free() */
    uint32_t path_count;      /* those the profile has no use for stay idle */
    enum profile profile;
    uint64_t size_bytes;       /* of the volume */
    uint64_t write_back_bytes; /* 0: none, then it must not be written to */
    uint64_t read_cache_bytes; /* 0: none, and no read-ahead: the bare disks */
};

struct inplace;

/* ERR_RANGE: the disks are too few or too small. Fiber not needed. */
HF_MUST_CHECK int inplace_new(struct env *env, const struct inplace_options *options,
                              struct inplace **ret_array, struct errmsg *reterr);
void inplace_free(struct inplace *array); /* after inplace_settle() */
struct volume_door *inplace_door(struct inplace *array);

/* Fiber: parks until everything is on the disks. */
void inplace_settle(struct inplace *array);
/* Disk `index` is gone from now on; one at most. ERR_RANGE when the profile does not bear it. */
HF_MUST_CHECK int inplace_lose(struct inplace *array, uint32_t index, struct errmsg *reterr);

/* Disk `index` is lost, and a blank one in its place is filled again: the volume's part of it, a
 * MiB at a time, in at most so much of the time. Fiber: parks until that is done.
 * Returns the bytes that were written to it. Errors as of inplace_lose(). */
HF_MUST_CHECK int inplace_rebuild(struct inplace *array, uint32_t index, uint32_t share_pct,
                                  uint64_t *ret_bytes, struct errmsg *reterr);

struct inplace_counters {
    uint64_t disk_reads, disk_read_bytes, disk_writes, disk_write_bytes;
};
void inplace_counters(const struct inplace *array, struct inplace_counters *ret_counters);

#endif
