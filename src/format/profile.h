// SPDX-License-Identifier: MPL-2.0
/* Protection profiles, and the shape a profile takes on the disks that are there. */
#ifndef HOLDFAST_FORMAT_PROFILE_H
#define HOLDFAST_FORMAT_PROFILE_H

#include <stdint.h>

#include "base/error.h"

/* Values are on disk. */
enum profile {
    PROFILE_SINGLE = 0,
    PROFILE_RAID0 = 1,
    PROFILE_RAID1 = 2,   /* two copies */
    PROFILE_RAID1_3 = 3, /* three copies */
    PROFILE_RAID10 = 4,
    PROFILE_RAID5 = 5,
    PROFILE_RAID6 = 6,
    PROFILE_COUNT
};

enum { SEGMENT_COLUMNS_MAX = 24 };

/* W = copies × (data + parity) columns, each on its own disk (invariant 12).
 * Column c holds copy c / (data + parity), column c % (data + parity) of that copy; within a copy
 * the data columns come first, then P, then Q. */
struct shape {
    uint8_t copies, data, parity;
};

static inline uint32_t shape_columns(struct shape s) {
    return (uint32_t)s.copies * ((uint32_t)s.data + s.parity);
}

const char *profile_name(enum profile profile);
HF_MUST_CHECK int profile_parse(const char *name, enum profile *ret_profile);
uint32_t profile_losses(enum profile profile);    /* disks that may be lost: 0, 1 or 2 */
uint32_t profile_min_disks(enum profile profile); /* to create a volume */

/* Columns that may be lost. */
static inline uint32_t shape_losses(struct shape shape) {
    return shape.copies == 0 ? 0 : (uint32_t)shape.copies - 1 + shape.parity;
}

/* The widest shape of `profile` on `disks` disks (≤ SEGMENT_COLUMNS_MAX columns). With fewer disks
 * than the profile needs, the best that can be had (never less than one copy on one disk): the
 * caller marks such a segment degraded. disks ≥ 1. */
struct shape profile_shape(enum profile profile, uint32_t disks);
/* The same as if so many more columns were missing that only `losses` more can be borne: as much
 * data on fewer disks. */
struct shape profile_shape_for(enum profile profile, uint32_t disks, uint32_t losses);

#endif
