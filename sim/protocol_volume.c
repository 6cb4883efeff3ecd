// SPDX-License-Identifier: MPL-2.0
/* The volume of the protocol model: plain memory behind the block door, whose answers take as long
 * as the seed says: microseconds, seconds, or until the world lets go. What it does to its content
 * it does when it answers, so a write that its initiator has long given up still lands. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "protocol.h"

struct pending {
    struct list in_volume;
    struct env_timer timer;
    struct protocol_volume *volume;
    struct volume_request *request;
};

static void move(struct protocol_volume *volume, const struct volume_request *request) {
    uint8_t *at = volume->data + request->offset_bytes;
    for (uint32_t i = 0; i < request->iov_count; i++) {
        if (request->op == VOLUME_READ) {
            memcpy(request->iov[i].iov_base, at, request->iov[i].iov_len);
        } else {
            memcpy(at, request->iov[i].iov_base, request->iov[i].iov_len);
        }
        at += request->iov[i].iov_len;
    }
}

/* A write that fails may have been done in part, or not. */
static int carry_out(struct protocol_volume *volume, struct volume_request *request) {
    struct protocol_world *w = volume->world;
    bool moves = request->op == VOLUME_READ || request->op == VOLUME_WRITE;
    ASSERT(range_is_within(request->offset_bytes, request->length_bytes, volume->info.size_bytes));
    if (moves && volume->errors != 0 && rng_chance(&w->rng, 1, volume->errors)) {
        if (request->op == VOLUME_WRITE && rng_chance(&w->rng, 1, 2)) {
            move(volume, request);
        }
        request->error_bytes = 0;
        return request->op == VOLUME_READ ? ERR_CHECKSUM : ERR_IO;
    }
    if (moves) {
        move(volume, request);
    } else if (request->op == VOLUME_RECALL) {
        memset(request->iov[0].iov_base, 0, request->iov[0].iov_len);
    } else if (request->op == VOLUME_SPACE) {
        const struct volume_space space = {0, 1ull << 40, 1ull << 40};
        memcpy(request->iov[0].iov_base, &space, sizeof(space));
    }
    return OK;
}

static void answer(struct pending *pending) {
    struct volume_request *request = pending->request;
    struct protocol_volume *volume = pending->volume;
    env_timer_cancel(volume->world->env, &pending->timer);
    list_remove(&pending->in_volume);
    mem_free(pending);
    volume_complete(request, carry_out(volume, request));
}

static void fired(struct env_timer *timer) {
    answer(CONTAINER_OF(timer, struct pending, timer));
}

static void dispatch(struct volume_door *door, struct volume_request *request) {
    struct protocol_volume *volume = CONTAINER_OF(door, struct protocol_volume, door);
    struct protocol_world *w = volume->world;
    uint64_t delay_ns = rng_below(&w->rng, volume->delay_us_max + 1) * NS_PER_US;
    if (request->op == VOLUME_RECALL || request->op == VOLUME_SPACE) {
        volume_complete(request, carry_out(volume, request));
        return;
    }
    struct pending *pending = MEM_NEW(struct pending);
    pending->volume = volume;
    pending->request = request;
    pending->timer.fire = fired;
    list_append(&volume->pending, &pending->in_volume);
    env_timer_arm(w->env, &pending->timer,
                  MAX(env_now_ns(w->env) + delay_ns, volume->hangs_until_ns));
}

void protocol_volume_let_go(struct protocol_volume *volume) {
    volume->hangs_until_ns = 0;
    while (!list_is_empty(&volume->pending)) {
        answer(CONTAINER_OF(volume->pending.next, struct pending, in_volume));
    }
}

void protocol_volume_init(struct protocol_volume *volume, struct protocol_world *world,
                          uint64_t id) {
    *volume = (struct protocol_volume){
        .door = {.env = world->env, .dispatch = dispatch},
        .info = {.id = id,
                 .size_bytes = (uint64_t)LUN_SECTORS * ORACLE_SECTOR_BYTES,
                 .block_bytes = ORACLE_SECTOR_BYTES,
                 .sync_always = true},
        .world = world,
        .delay_us_max = (uint32_t)rng_between(&world->rng, 0, 4000),
    };
    (void)snprintf(volume->info.name, sizeof(volume->info.name), "volume%u", (unsigned)id);
    memset(volume->info.uuid.bytes, (int)(16 + id), sizeof(volume->info.uuid.bytes));
    list_init(&volume->pending);
    volume->data = mem_alloc(volume->info.size_bytes);
    oracle_volume_init(&volume->oracle, &world->oracle, id, true);
}

void protocol_volume_done(struct protocol_volume *volume) {
    ASSERT(list_is_empty(&volume->pending));
    oracle_volume_done(&volume->oracle);
    mem_free(volume->data);
}
