// SPDX-License-Identifier: MPL-2.0
/* Which segments the cleaner empties: see victims.c for the theory. Engine thread; nothing parks.
 */
#ifndef HOLDFAST_ENGINE_VICTIMS_H
#define HOLDFAST_ENGINE_VICTIMS_H

#include "engine/private.h"

enum { VICTIMS_MAX = 256 };

struct victims {
    struct segment *segment[VICTIMS_MAX];
    uint32_t count;
    uint64_t net; /* chunks that are free in the end, besides what the survivors take */
};

struct victims_wanted {
    const uint32_t *on; /* chunks wanted, by member: a victim has one on at least one of these */
    uint64_t chunks;    /* all together */
    uint32_t keep_free; /* chunks of each disk that survivors must not take */
    bool urgent;        /* writers wait: the emptiest, however full they are */
    bool last_resort;   /* also those that only disks can give that are to be avoided */
};

/* Of one profile: as many as yield what is wanted; none if nothing is gained. */
void victims_choose(struct engine *e, enum profile p, const struct victims_wanted *wanted,
                    struct victims *ret_victims);
/* Of one profile: with less protection than there is room for now, and what rebuild.c wants moved.
 */
void victims_choose_weak(struct engine *e, enum profile p, uint32_t keep_free,
                         struct victims *ret_victims);

#endif
