// SPDX-License-Identifier: MPL-2.0
/* Published figures of other arrays: facts, for comparison. */
#ifndef HOLDFAST_BENCH_REFERENCE_H
#define HOLDFAST_BENCH_REFERENCE_H

#include <stdint.h>

#include "format/profile.h"

/* The corners in the order of tables of the time: 512 B sequential read, 4 KiB random read, 4 KiB
 * random write (IOPS), 512 KiB sequential write, read (MB/s). */
enum { REFERENCE_CORNERS = 5 };

struct reference_raid {
    const char *protocol; /* "iSCSI", "NFS" */
    enum profile profile;
    uint32_t disks;
    double corners[REFERENCE_CORNERS]; /* 0: not measured */
};

struct reference_system {
    const char *system, *disks;
    double corners[REFERENCE_CORNERS]; /* 0: not measured */
};

extern const struct reference_raid reference_raids[];
extern const uint32_t reference_raid_count;
extern const struct reference_system reference_systems[];
extern const uint32_t reference_system_count;

#endif
