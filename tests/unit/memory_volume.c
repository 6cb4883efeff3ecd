// SPDX-License-Identifier: MPL-2.0
#include "memory_volume.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"

struct pending {
    struct list in_held;
    struct env_timer timer;
    struct memory_volume *volume;
    struct volume_request *request;
};

/* Copies between the iovec and memory, from byte `skip` of the iovec on. */
static void copy(const struct volume_request *request, uint64_t skip, uint8_t *memory,
                 uint64_t bytes, bool to_iovec) {
    for (uint32_t i = 0; i < request->iov_count && bytes > 0; i++) {
        const struct iovec *iov = &request->iov[i];
        if (skip >= iov->iov_len) {
            skip -= iov->iov_len;
            continue;
        }
        uint64_t part = MIN((uint64_t)iov->iov_len - skip, bytes);
        if (to_iovec) {
            memcpy((uint8_t *)iov->iov_base + skip, memory, part);
        } else {
            memcpy(memory, (const uint8_t *)iov->iov_base + skip, part);
        }
        memory += part;
        bytes -= part;
        skip = 0;
    }
    ASSERT_EQ(bytes, 0);
}

static int compare_and_write(struct volume_request *request, uint8_t *at) {
    uint8_t *expected = mem_alloc(request->length_bytes);
    int status = OK;
    copy(request, 0, expected, request->length_bytes, false);
    for (uint64_t i = 0; i < request->length_bytes && status == OK; i++) {
        if (expected[i] != at[i]) {
            request->error_bytes = i;
            status = ERR_MISCOMPARE;
        }
    }
    if (status == OK) {
        copy(request, request->length_bytes, at, request->length_bytes, false);
    }
    mem_free(expected);
    return status;
}

/* Blocks of zeros count as unmapped. */
static void query(const struct memory_volume *volume, const struct volume_request *request) {
    static const uint8_t zeros[4096];
    struct volume_run *runs = request->iov[0].iov_base;
    size_t room = request->iov[0].iov_len / sizeof(runs[0]), count = 0;
    memset(runs, 0, request->iov[0].iov_len);
    uint64_t at = request->offset_bytes, end = at + request->length_bytes;
    while (at < end) {
        uint64_t block = round_down(at, 4096), next = MIN(block + 4096, end);
        bool mapped = memcmp(volume->data + block, zeros, sizeof(zeros)) != 0;
        if (count == 0 || runs[count - 1].mapped != mapped) {
            if (count == room) {
                return;
            }
            runs[count++].mapped = mapped;
        }
        runs[count - 1].length_bytes += next - at;
        at = next;
    }
}

static int carry_out(struct memory_volume *volume, struct volume_request *request) {
    uint64_t offset = request->offset_bytes, length = request->length_bytes;
    uint8_t *at = volume->data + offset;
    if (request->volume_id != volume->info.id) {
        return ERR_NOT_FOUND;
    }
    if (!range_is_within(offset, length, volume->info.size_bytes) || offset % 512 != 0 ||
        length % 512 != 0) {
        return ERR_RANGE;
    }
    volume->counts[request->op]++;
    volume->fua_count += request->fua;
    if (volume->fail_status != OK && volume->fail_op == request->op) {
        request->error_bytes = volume->fail_error_bytes;
        return volume->fail_status;
    }
    switch (request->op) {
    case VOLUME_READ:
        ASSERT_LE(length, VOLUME_REQUEST_BYTES_MAX);
        copy(request, 0, at, length, true);
        break;
    case VOLUME_WRITE:
        ASSERT_LE(length, VOLUME_REQUEST_BYTES_MAX);
        copy(request, 0, at, length, false);
        break;
    case VOLUME_UNMAP: {
        uint64_t first = round_up(offset, 4096), last = round_down(offset + length, 4096);
        if (first < last) {
            memset(volume->data + first, 0, last - first);
        }
        break;
    }
    case VOLUME_WRITE_ZEROES:
        memset(at, 0, length);
        break;
    case VOLUME_COMPARE_AND_WRITE:
        ASSERT_LE(length, VOLUME_COMPARE_BYTES_MAX);
        return compare_and_write(request, at);
    case VOLUME_KEEP:
        ASSERT_LE(length, VOLUME_RECORD_BYTES_MAX);
        memset(volume->record, 0, sizeof(volume->record));
        copy(request, 0, volume->record, length, false);
        break;
    case VOLUME_RECALL:
        copy(request, 0, volume->record, length, true);
        break;
    case VOLUME_QUERY:
        query(volume, request);
        break;
    case VOLUME_SPACE:
        memcpy(request->iov[0].iov_base, &volume->space, sizeof(volume->space));
        break;
    case VOLUME_FLUSH:
    case VOLUME_VERIFY:
    case VOLUME_OPS:
        break;
    }
    return OK;
}

static void fired(struct env_timer *timer) {
    struct pending *pending = CONTAINER_OF(timer, struct pending, timer);
    struct volume_request *request = pending->request;
    struct memory_volume *volume = pending->volume;
    mem_free(pending);
    volume_complete(request, carry_out(volume, request));
}

static void dispatch(struct volume_door *door, struct volume_request *request) {
    struct memory_volume *volume = CONTAINER_OF(door, struct memory_volume, door);
    if (!volume->hold && volume->delay_ns == 0) {
        volume_complete(request, carry_out(volume, request));
        return;
    }
    struct pending *pending = MEM_NEW(struct pending);
    pending->volume = volume;
    pending->request = request;
    list_init(&pending->in_held);
    if (volume->hold) {
        list_append(&volume->held, &pending->in_held);
        return;
    }
    pending->timer.fire = fired;
    uint32_t more = volume->disorder != 0 ? volume->requests++ * 5 % (volume->disorder + 1) : 0;
    env_timer_arm(door->env, &pending->timer,
                  env_now_ns(door->env) + volume->delay_ns * (1 + more));
}

void memory_volume_let_go(struct memory_volume *volume) {
    struct list *node;
    volume->hold = false;
    while ((node = list_pop(&volume->held)) != NULL) {
        struct pending *pending = CONTAINER_OF(node, struct pending, in_held);
        struct volume_request *request = pending->request;
        mem_free(pending);
        volume_complete(request, carry_out(volume, request));
    }
}

void memory_volume_init(struct memory_volume *volume, struct env *env, uint64_t size_bytes,
                        uint32_t block_bytes) {
    *volume = (struct memory_volume){
        .door = {.env = env, .dispatch = dispatch},
        .info = {.id = 7,
                 .size_bytes = size_bytes,
                 .block_bytes = block_bytes,
                 .sync_always = true},
    };
    snprintf(volume->info.name, sizeof(volume->info.name), "memory");
    for (uint32_t i = 0; i < 16; i++) {
        volume->info.uuid.bytes[i] = (uint8_t)(0x11 * i + 3);
    }
    volume->space = (struct volume_space){0, 1ull << 40, 1ull << 40};
    list_init(&volume->held);
    volume->data = mem_alloc(size_bytes);
}

void memory_volume_done(struct memory_volume *volume) {
    ASSERT(list_is_empty(&volume->held));
    mem_free(volume->data);
}
