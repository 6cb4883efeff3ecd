// SPDX-License-Identifier: MPL-2.0
/* The record of a unit's reservations as recalled from the pool.
 *
 * The input is a record. It is decoded as it is, and again with type, version, length and checksum
 * set right. What is accepted must be written again as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/phys.h"
#include "scsi/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition) {
    if (!condition) {
        abort();
    }
}

static void decode(const uint8_t *record, size_t room) {
    struct reservations *state = NULL;
    if (reservations_decode(record, room, 7, &state) != OK) {
        return;
    }
    uint8_t *again = mem_alloc(VOLUME_RECORD_BYTES_MAX);
    struct reservations *same = NULL;
    need(reservations_record_bytes(state) <= room || state->count == 0);
    (void)reservations_encode(state, 7, again);
    need(reservations_decode(again, VOLUME_RECORD_BYTES_MAX, 7, &same) == OK);
    need(same->count == state->count && same->type == state->type);
    for (uint32_t i = 0; i < state->count; i++) {
        need(strcmp(same->registrants[i].initiator, state->registrants[i].initiator) == 0);
        need(same->registrants[i].key == state->registrants[i].key);
        need(same->registrants[i].holder == state->registrants[i].holder);
    }
    mem_free(same);
    mem_free(state);
    mem_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t room = (bytes < VOLUME_RECORD_BYTES_MAX ? bytes : VOLUME_RECORD_BYTES_MAX) & ~7ul;
    uint8_t *record = mem_alloc(room + 8);
    memcpy(record, data, room);
    decode(record, room);
    if (room >= 24) {
        phys_seal(record, PHYS_RESERVATIONS, 1, (uint32_t)room, 7);
        decode(record, room);
    }
    mem_free(record);
    need(mem_in_use_bytes() == 0);
    return 0;
}
