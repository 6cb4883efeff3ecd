// SPDX-License-Identifier: MPL-2.0
#include "base/mem.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { PAGE_BYTES = 4096 };

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

struct mem_pages *mem_pages_new(size_t bytes) {
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct mem_pages *handle = mem_alloc(sizeof(*handle));
    struct mem_header *header = (struct mem_header *)handle - 1;
    if (posix_memalign(&header->pages, PAGE_BYTES, bytes) != 0) {
        mem_exhausted(bytes);
    }
    header->bytes += bytes;
    atomic_fetch_add_explicit(&in_use_bytes, bytes, memory_order_relaxed);
    *handle = (struct mem_pages){.data = header->pages, .bytes = bytes};
    return handle;
}

void mem_pages_free(struct mem_pages *pages) {
    mem_free(pages);
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
