// SPDX-License-Identifier: MPL-2.0
/* What would still fit: reckoning with chunks, without taking any.
 *
 * A room is how many chunks of each disk there are to use. Segments are taken out of it as
 * segment_open() would take them, on the disks with most chunks; what they hold is reckoned at the
 * worst packing of rows (row_density()). Pure arithmetic. */
#ifndef HOLDFAST_SEGMENT_ROOM_H
#define HOLDFAST_SEGMENT_ROOM_H

#include "segment/segment.h"

struct segment_room {
    const struct segment_table *table;
    uint32_t chunks[POOL_DISKS_MAX]; /* of the members that store, in no order */
    uint32_t count;
    uint32_t lost; /* so many losses less must segments bear: see segment_room_lose() */
};

/* All chunks of the members that store; or the free ones, without `keep_free` of each disk; or
 * those, of all members but these (a mask). */
struct segment_room segment_room_all(const struct segment_table *table);
struct segment_room segment_room_free(const struct segment_table *table, uint32_t keep_free);
struct segment_room segment_room_without(const struct segment_table *table, uint64_t members,
                                         uint32_t keep_free);

/* As if these many members were lost, those with most room, and as if segments were then written
 * with just that much less protection. */
void segment_room_lose(struct segment_room *room, uint32_t disks);

/* Takes segments of the profile until they hold `blocks` of data; blocks that
 * found room. */
uint64_t segment_room_take(struct segment_room *room, enum profile profile, uint64_t blocks);
/* Takes `segments` segments; false: there are not so many. */
bool segment_room_take_segments(struct segment_room *room, enum profile profile, uint64_t segments);

#endif
