// SPDX-License-Identifier: MPL-2.0
/* Data buffers: page-aligned, in classes of size, a few free ones of each kept.
 *
 * A loop has a store of its own; what all have handed out is one number. Loops that look at it at
 * the same time may together go beyond the limit by a buffer each.
 *
 * Limits. All connections together get `limit_bytes`, each at most ISCSI_CONNECTION_MEMORY_BYTES.
 * A connection that holds less than ISCSI_CONNECTION_RESERVE_BYTES is served even beyond the common
 * limit, and one that holds nothing always gets its buffer: so however much others hold, everybody
 * can go on with at least one command. Nobody may come to hold more than half of what is free, so
 * that however many take as much as they can, a part stays free for who comes next (the dynamic
 * threshold of Choudhury and Hahne, 1998, for buffers of switches). */
#include "base/assert.h"
#include "base/math.h"
#include "iscsi/internal.h"

enum { CLASS_SHIFT_FIRST = 12 };

static uint64_t class_bytes(uint32_t class_index) {
    return 1ull << (CLASS_SHIFT_FIRST + 2 * class_index);
}

void memory_init(struct iscsi_memory *memory, struct memory_total *total) {
    *memory = (struct iscsi_memory){.total = total};
    for (uint32_t i = 0; i < BUFFER_CLASSES; i++) {
        list_init(&memory->free[i]);
    }
}

static void buffer_free(struct iscsi_buffer *buffer) {
    mem_pages_free(buffer->pages);
    mem_free(buffer);
}

void memory_done(struct iscsi_memory *memory) {
    for (uint32_t i = 0; i < BUFFER_CLASSES; i++) {
        struct list *node;
        while ((node = list_pop(&memory->free[i])) != NULL) {
            buffer_free(CONTAINER_OF(node, struct iscsi_buffer, in_free));
        }
    }
}

static bool is_allowed(const struct memory_total *total, uint64_t held, uint64_t bytes) {
    if (held == 0) {
        return true;
    }
    if (held + bytes > ISCSI_CONNECTION_MEMORY_BYTES) {
        return false;
    }
    uint64_t used_bytes = atomic_load(&total->used_bytes);
    uint64_t free_bytes = total->limit_bytes - MIN(total->limit_bytes, used_bytes);
    return held + bytes <= MAX((uint64_t)ISCSI_CONNECTION_RESERVE_BYTES, free_bytes / 2);
}

struct iscsi_buffer *memory_get(struct iscsi_memory *memory, struct memory_account *account,
                                uint64_t bytes) {
    uint32_t class_index = 0;
    while (class_bytes(class_index) < bytes) {
        class_index++;
    }
    ASSERT(class_index < BUFFER_CLASSES);
    uint64_t size = class_bytes(class_index);
    if (!is_allowed(memory->total, account->bytes, size)) {
        return NULL;
    }
    struct iscsi_buffer *buffer;
    struct list *node = list_pop(&memory->free[class_index]);
    if (node != NULL) {
        buffer = CONTAINER_OF(node, struct iscsi_buffer, in_free);
        memory->cached_bytes -= size;
    } else {
        buffer = MEM_NEW(struct iscsi_buffer);
        buffer->pages = mem_pages_new(size);
        buffer->class_index = class_index;
        list_init(&buffer->in_free);
    }
    buffer->account = account;
    account->bytes += size;
    (void)atomic_fetch_add(&memory->total->used_bytes, size);
    return buffer;
}

void memory_put(struct iscsi_memory *memory, struct iscsi_buffer *buffer) {
    uint64_t size = class_bytes(buffer->class_index);
    (void)atomic_fetch_sub(&memory->total->used_bytes, size);
    buffer->account->bytes -= size;
    if (buffer->account->closed && buffer->account->bytes == 0) {
        mem_free(buffer->account);
    }
    if (memory->cached_bytes + size > memory->total->cached_bytes_max) {
        buffer_free(buffer);
        return;
    }
    memory->cached_bytes += size;
    list_prepend(&memory->free[buffer->class_index], &buffer->in_free);
}

void memory_account_close(struct memory_account *account) {
    account->closed = true;
    if (account->bytes == 0) {
        mem_free(account);
    }
}
