// SPDX-License-Identifier: MPL-2.0
/* Checked allocation: see mem.h.
 *
 * Aligned memory. An aligned allocation of a page costs the C library a larger one and the return
 * of what is left on both sides, and a read that misses the cache makes one and drops one. So each
 * thread keeps a few megabytes of freed pages, by size, and hands them out again. Not under
 * AddressSanitizer, which is to see every use after a free. */
#include "base/mem.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#define MEM_KEEPS_PAGES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEM_KEEPS_PAGES 0
#endif
#endif
#ifndef MEM_KEEPS_PAGES
#define MEM_KEEPS_PAGES 1
#endif

enum { PAGE_BYTES = 4096, SPARE_PAGES_MAX = 64, SPARE_BYTES_MAX = 8 << 20 };

/* Freed memory of 1 … SPARE_PAGES_MAX pages, each list linked through its first bytes. */
struct spare {
    struct spare *next;
};
static _Thread_local struct spare *spares[SPARE_PAGES_MAX + 1];
static _Thread_local size_t spare_bytes;

/* In front of every allocation. */
struct mem_header {
    struct list link; /* in the scope's list, or alone */
    size_t bytes;
    void *pages; /* of a struct mem_pages: freed with it */
};

_Static_assert(sizeof(struct mem_header) % alignof(max_align_t) == 0, "payload alignment");

static _Thread_local struct mem_scope *current_scope;
static atomic_uint_fast64_t in_use_bytes;

static _Noreturn void mem_exhausted(size_t bytes) {
    (void)fprintf(stderr, "holdfast: out of memory (%zu bytes asked for)\n", bytes);
    abort();
}

static void header_link(struct mem_header *header, size_t bytes) {
    list_init(&header->link);
    header->bytes = bytes;
    if (current_scope != NULL) {
        list_append(&current_scope->allocations, &header->link);
    }
    atomic_fetch_add_explicit(&in_use_bytes, bytes, memory_order_relaxed);
}

static void header_free(struct mem_header *header) {
    list_remove(&header->link);
    atomic_fetch_sub_explicit(&in_use_bytes, header->bytes, memory_order_relaxed);
    free(header->pages);
    free(header);
}

void *mem_alloc(size_t bytes) {
    struct mem_header *header = calloc(1, sizeof(*header) + bytes);
    if (header == NULL) {
        mem_exhausted(bytes);
    }
    header_link(header, bytes);
    return header + 1;
}

void *mem_realloc(void *old, size_t bytes) {
    if (old == NULL) {
        return mem_alloc(bytes);
    }
    size_t old_bytes = ((struct mem_header *)old - 1)->bytes;
    void *copy = mem_alloc(bytes);
    memcpy(copy, old, old_bytes < bytes ? old_bytes : bytes);
    mem_free(old);
    return copy;
}

char *mem_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(mem_alloc(bytes), text, bytes);
}

void mem_free(void *ptr) {
    if (ptr != NULL) {
        header_free((struct mem_header *)ptr - 1);
    }
}

static void *pages_take(size_t bytes) {
    size_t pages = bytes / PAGE_BYTES;
    void *data = NULL;
    if (pages <= SPARE_PAGES_MAX && spares[pages] != NULL) {
        data = spares[pages];
        spares[pages] = spares[pages]->next;
        spare_bytes -= bytes;
    } else if (posix_memalign(&data, PAGE_BYTES, bytes) != 0) {
        mem_exhausted(bytes);
    }
    return data;
}

/* False: it is to be freed. */
static bool pages_keep(void *data, size_t bytes) {
    size_t pages = bytes / PAGE_BYTES;
    if (!MEM_KEEPS_PAGES || pages == 0 || pages > SPARE_PAGES_MAX ||
        spare_bytes + bytes > SPARE_BYTES_MAX) {
        return false;
    }
    struct spare *spare = data;
    spare->next = spares[pages];
    spares[pages] = spare;
    spare_bytes += bytes;
    return true;
}

struct mem_pages *mem_pages_new_in(size_t bytes, size_t handle_bytes) {
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct mem_pages *handle = mem_alloc(handle_bytes);
    struct mem_header *header = (struct mem_header *)handle - 1;
    header->pages = pages_take(bytes);
    header->bytes += bytes;
    atomic_fetch_add_explicit(&in_use_bytes, bytes, memory_order_relaxed);
    *handle = (struct mem_pages){.data = header->pages, .bytes = bytes};
    return handle;
}

struct mem_pages *mem_pages_new(size_t bytes) {
    return mem_pages_new_in(bytes, sizeof(struct mem_pages));
}

void mem_pages_free(struct mem_pages *pages) {
    if (pages == NULL) {
        return;
    }
    struct mem_header *header = (struct mem_header *)pages - 1;
    if (pages_keep(header->pages, pages->bytes)) {
        header->pages = NULL;
    }
    header_free(header);
}

uint64_t mem_in_use_bytes(void) {
    return atomic_load_explicit(&in_use_bytes, memory_order_relaxed);
}

void mem_scope_init(struct mem_scope *scope) {
    list_init(&scope->allocations);
}

struct mem_scope *mem_scope_enter(struct mem_scope *scope) {
    struct mem_scope *previous = current_scope;
    current_scope = scope;
    return previous;
}

void mem_scope_drop(struct mem_scope *scope) {
    struct list *node;
    while ((node = list_pop(&scope->allocations)) != NULL) {
        header_free(CONTAINER_OF(node, struct mem_header, link));
    }
}
