// SPDX-License-Identifier: MPL-2.0
#include "format/profile.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

static const struct {
    const char *name;
    uint8_t losses;
    uint8_t min_disks;
} profiles[PROFILE_COUNT] = {
    [PROFILE_SINGLE] = {"single", 0, 1}, [PROFILE_RAID0] = {"raid0", 0, 2},
    [PROFILE_RAID1] = {"raid1", 1, 2},   [PROFILE_RAID1_3] = {"raid1-3", 2, 3},
    [PROFILE_RAID10] = {"raid10", 1, 4}, [PROFILE_RAID5] = {"raid5", 1, 3},
    [PROFILE_RAID6] = {"raid6", 2, 4},
};

const char *profile_name(enum profile profile) {
    ASSERT_LT(profile, PROFILE_COUNT);
    return profiles[profile].name;
}

int profile_parse(const char *name, enum profile *ret_profile) {
    for (int i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(name, profiles[i].name) == 0) {
            *ret_profile = (enum profile)i;
            return OK;
        }
    }
    return ERR_INVALID;
}

uint32_t profile_losses(enum profile profile) {
    ASSERT_LT(profile, PROFILE_COUNT);
    return profiles[profile].losses;
}

uint32_t profile_min_disks(enum profile profile) {
    ASSERT_LT(profile, PROFILE_COUNT);
    return profiles[profile].min_disks;
}

static struct shape shape_parity(uint32_t disks, uint32_t parity) {
    if (disks <= parity) { /* too few: copies instead, as many as there are disks */
        return (struct shape){.copies = (uint8_t)disks, .data = 1, .parity = 0};
    }
    return (struct shape){
        .copies = 1, .data = (uint8_t)(disks - parity), .parity = (uint8_t)parity};
}

struct shape profile_shape_for(enum profile profile, uint32_t disks, uint32_t losses) {
    ASSERT_LT(0, disks);
    disks = MIN(disks, (uint32_t)SEGMENT_COLUMNS_MAX);
    losses = MIN(losses, profile_losses(profile));
    switch (profile) {
    case PROFILE_SINGLE:
    case PROFILE_RAID1:
    case PROFILE_RAID1_3:
        return (struct shape){.copies = (uint8_t)MIN(disks, 1 + losses), .data = 1, .parity = 0};
    case PROFILE_RAID10:
        if (disks >= 2 && losses > 0) {
            return (struct shape){.copies = 2, .data = (uint8_t)(disks / 2), .parity = 0};
        }
        return (struct shape){.copies = 1, .data = (uint8_t)disks, .parity = 0};
    case PROFILE_RAID0:
    case PROFILE_RAID5:
    case PROFILE_RAID6:
        return shape_parity(disks, losses);
    case PROFILE_COUNT:
        break;
    }
    ASSERT(false);
    return (struct shape){0};
}

struct shape profile_shape(enum profile profile, uint32_t disks) {
    return profile_shape_for(profile, disks, profile_losses(profile));
}
