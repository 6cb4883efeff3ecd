// SPDX-License-Identifier: MPL-2.0
#include "segment/room.h"

#include "base/math.h"

struct segment_room segment_room_all(const struct segment_table *table) {
    struct segment_room room = {.table = table};
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        if (pool_member_stores(table->pool, m)) {
            room.chunks[room.count++] = table->chunk_count[m];
        }
    }
    return room;
}

struct segment_room segment_room_without(const struct segment_table *table, uint64_t members,
                                         uint32_t keep_free) {
    struct segment_room room = {.table = table};
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        if (((members >> m) & 1) == 0 && pool_member_stores(table->pool, m)) {
            uint32_t chunks = table->chunk_free[m];
            room.chunks[room.count++] = chunks > keep_free ? chunks - keep_free : 0;
        }
    }
    return room;
}

struct segment_room segment_room_free(const struct segment_table *table, uint32_t keep_free) {
    return segment_room_without(table, 0, keep_free);
}

void segment_room_lose(struct segment_room *room, uint32_t disks) {
    for (; disks > 0 && room->count > 1; disks--) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < room->count; i++) {
            most = room->chunks[i] > room->chunks[most] ? i : most;
        }
        room->chunks[most] = room->chunks[--room->count];
        room->lost++;
    }
}

/* Takes segments of one shape from the disks with most room, several at a time where there is
 * plenty, but no more than `segments`, and no more than `blocks` need. Returns how many: 0 when
 * there is no room for one. */
static uint64_t take_step(struct segment_room *room, enum profile profile, uint64_t segments,
                          uint64_t blocks, uint64_t *ret_blocks) {
    uint32_t with_room = 0;
    for (uint32_t i = 0; i < room->count; i++) {
        with_room += room->chunks[i] > 0;
    }
    if (with_room == 0 || segments == 0 || blocks == 0) {
        return 0;
    }
    uint32_t losses = profile_losses(profile);
    losses = losses > room->lost ? losses - room->lost : 0;
    struct shape shape = profile_shape_for(profile, with_room, losses);
    if (shape_losses(shape) < MIN(losses, room->count - 1)) {
        return 0;
    }
    uint32_t chosen[SEGMENT_COLUMNS_MAX], columns = shape_columns(shape);
    uint64_t used = 0;
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t best = room->count;
        for (uint32_t i = 0; i < room->count; i++) {
            if (((used >> i) & 1) == 0 && room->chunks[i] > 0 &&
                (best == room->count || room->chunks[i] > room->chunks[best])) {
                best = i;
            }
        }
        used |= 1ull << best;
        chosen[c] = best;
    }
    uint64_t each = (uint64_t)room->table->pool->super.geometry.chunk_blocks * shape.data *
                    room->table->density[shape.data] / 1024;
    uint64_t step = MAX(1u, room->chunks[chosen[columns - 1]] / 64);
    uint64_t needed = blocks / MAX(each, (uint64_t)1) + 1;
    step = MIN(step, segments);
    step = MIN(step, needed);
    for (uint32_t c = 0; c < columns; c++) {
        room->chunks[chosen[c]] -= (uint32_t)step;
    }
    *ret_blocks = step * each;
    return step;
}

uint64_t segment_room_take(struct segment_room *room, enum profile profile, uint64_t blocks) {
    uint64_t held = 0, more;
    while (held < blocks && take_step(room, profile, UINT64_MAX, blocks - held, &more) > 0) {
        held += more;
    }
    return MIN(held, blocks);
}

bool segment_room_take_segments(struct segment_room *room, enum profile profile,
                                uint64_t segments) {
    uint64_t step = 1, ignored;
    while (segments > 0 && step > 0) {
        step = take_step(room, profile, segments, UINT64_MAX, &ignored);
        segments -= step;
    }
    return segments == 0;
}
