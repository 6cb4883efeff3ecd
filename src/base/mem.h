// SPDX-License-Identifier: MPL-2.0
/* Checked allocation.
 *
 * mem_alloc() never returns NULL: running out of memory for control structures stops the process
 * (nothing acknowledged is lost by that). Bulk data lives in `struct buf` and in caches that are
 * sized by limits, so that their use is bounded.
 *
 * A *scope* collects every allocation made by this thread while it is current. The simulator puts
 * one around an engine and drops it whole at a power cut, which frees what suspended fibers held.
 * Outside the simulator there is no scope. Freeing is allowed from any thread; memory allocated
 * inside a scope must be freed by the thread that owns the scope. */
#ifndef HOLDFAST_BASE_MEM_H
#define HOLDFAST_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

void *mem_alloc(size_t bytes); /* zeroed */
void *mem_realloc(void *old, size_t bytes);
char *mem_strdup(const char *text);
void mem_free(void *ptr); /* NULL is allowed */

#define MEM_NEW(type) ((type *)mem_alloc(sizeof(type)))
#define MEM_NEW_ARRAY(type, count) ((type *)mem_alloc(sizeof(type) * (size_t)(count)))

/* Memory aligned to 4096, contents undefined; `bytes` is rounded up to whole pages. */
struct mem_pages {
    void *data;
    size_t bytes;
};

struct mem_pages *mem_pages_new(size_t bytes);
/* The handle is the first of handle_bytes zeroed bytes, for a larger struct that begins with it. */
struct mem_pages *mem_pages_new_in(size_t bytes, size_t handle_bytes);
void mem_pages_free(struct mem_pages *pages); /* NULL is allowed */

/* Bytes handed out by this process and not yet freed (both kinds). Any thread. */
uint64_t mem_in_use_bytes(void);

struct mem_scope {
    struct list allocations;
};

void mem_scope_init(struct mem_scope *scope);
/* Makes `scope` (or none: NULL) current for this thread; returns the previous one. */
struct mem_scope *mem_scope_enter(struct mem_scope *scope);
/* Frees all that was allocated in the scope and not freed. */
void mem_scope_drop(struct mem_scope *scope);

#endif
