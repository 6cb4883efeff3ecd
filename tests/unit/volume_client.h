// SPDX-License-Identifier: MPL-2.0
/* A volume as a fiber of a test sees it: one request, its answer awaited where it is asked. */
#ifndef HOLDFAST_TESTS_VOLUME_CLIENT_H
#define HOLDFAST_TESTS_VOLUME_CLIENT_H

#include "base/list.h"
#include "env/fiber.h"
#include "volume/volume.h"

struct volume_wait {
    struct volume_request request;
    struct fiber *fiber;
    bool done;
};

static inline void volume_wait_done(struct volume_request *q) {
    struct volume_wait *w = CONTAINER_OF(q, struct volume_wait, request);
    w->done = true;
    fiber_wake(w->fiber);
}

/* Parks until the answer, which comes in an iovec that is not as long as the range. */
static inline int volume_ask(struct volume_door *door, uint64_t id, enum volume_op op,
                             uint64_t offset, uint64_t length, void *data, size_t data_bytes) {
    struct iovec iov = {.iov_base = data, .iov_len = data_bytes};
    struct volume_wait w = {.request = {.client = fiber_env(),
                                        .door = door,
                                        .volume_id = id,
                                        .op = op,
                                        .offset_bytes = offset,
                                        .length_bytes = length,
                                        .iov = &iov,
                                        .iov_count = data != NULL,
                                        .done = volume_wait_done},
                            .fiber = fiber_self()};
    volume_submit(&w.request);
    while (!w.done) {
        fiber_park();
    }
    return w.request.status;
}

/* Parks until the answer; data may be NULL where nothing is transferred. */
static inline int volume_run(struct volume_door *door, uint64_t id, enum volume_op op,
                             uint64_t offset, uint64_t length, void *data) {
    return volume_ask(door, id, op, offset, length, data, length);
}

#endif
