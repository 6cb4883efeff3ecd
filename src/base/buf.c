// SPDX-License-Identifier: MPL-2.0
#include "base/buf.h"

#include "base/assert.h"
#include "base/mem.h"

struct buf *buf_new(size_t bytes) {
    struct buf *b = CONTAINER_OF(mem_pages_new_in(bytes, sizeof(*b)), struct buf, pages);
    b->data = b->pages.data;
    b->bytes = b->pages.bytes;
    atomic_init(&b->refs, 1);
    return b;
}

struct buf *buf_ref(struct buf *b) {
    unsigned before = atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    ASSERT_LT(0, before);
    return b;
}

void buf_unref(struct buf *b) {
    if (b == NULL) {
        return;
    }
    unsigned before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    ASSERT_LT(0, before);
    if (before == 1) {
        mem_pages_free(&b->pages);
    }
}
