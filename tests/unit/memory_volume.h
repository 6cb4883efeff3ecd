// SPDX-License-Identifier: MPL-2.0
/* A stand-in for an engine: one volume in plain memory behind the block door. It can be told to be
 * slow, to fail, or to keep requests until it is told to let go of them. */
#ifndef HOLDFAST_TESTS_MEMORY_VOLUME_H
#define HOLDFAST_TESTS_MEMORY_VOLUME_H

#include "base/list.h"
#include "volume/volume.h"

struct memory_volume {
    struct volume_door door;
    struct volume_info info;
    uint8_t *data;
    uint64_t delay_ns; /* of every request … */
    uint32_t disorder; /* … and up to so many times more, so that they overtake each other */
    uint32_t requests;
    bool hold;        /* keep requests … */
    struct list held; /* … here */
    int fail_status;  /* of the next requests of fail_op; OK: none */
    enum volume_op fail_op;
    uint64_t fail_error_bytes;
    uint64_t counts[VOLUME_OPS];
    uint64_t fua_count;
    struct volume_space space;               /* VOLUME_SPACE */
    uint8_t record[VOLUME_RECORD_BYTES_MAX]; /* VOLUME_KEEP */
};

void memory_volume_init(struct memory_volume *volume, struct env *env, uint64_t size_bytes,
                        uint32_t block_bytes);
/* Nothing may be outstanding. */
void memory_volume_done(struct memory_volume *volume);
/* Carries out what is held, in order, and holds no more. */
void memory_volume_let_go(struct memory_volume *volume);

#endif
