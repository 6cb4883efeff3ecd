// SPDX-License-Identifier: MPL-2.0
/* A bounded, scan-resistant cache of immutable things: key (64 bit, never reused for different
 * content) → struct buf. S3-FIFO (Yang et al., "FIFO queues are all you need", SOSP 2023): a small
 * queue filters what is seen once, a main queue keeps what is seen again, a ghost queue of keys
 * remembers what was dropped. One thread. */
#ifndef HOLDFAST_TREE_CACHE_H
#define HOLDFAST_TREE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct cache;

struct cache *cache_new(uint64_t limit_bytes);
void cache_free(struct cache *cache);
/* A new reference, or NULL. Counts as a use. */
struct buf *cache_get(struct cache *cache, uint64_t key);
/* Looks without counting as a use and without a reference. */
bool cache_has(const struct cache *cache, uint64_t key);
/* Keeps a reference of its own to `buf`; may drop others. An existing key is replaced. The bytes
 * counted are buf->bytes. */
void cache_put(struct cache *cache, uint64_t key, struct buf *buf);
void cache_drop(struct cache *cache, uint64_t key);
void cache_set_limit(struct cache *cache, uint64_t limit_bytes);
uint64_t cache_bytes(const struct cache *cache);

struct cache_counters {
    uint64_t hits, misses, inserted, dropped;
};
struct cache_counters cache_counters(const struct cache *cache);

#endif
