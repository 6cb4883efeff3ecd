// SPDX-License-Identifier: MPL-2.0
/* S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction",
 * SOSP 2023).
 *
 * Three queues, all first in, first out. What is new enters `small` (a tenth of the bytes). At the
 * end of it, what was used meanwhile moves to `main`, and the rest is dropped but its key is kept
 * in `ghost`. A key found there when it is put again goes to `main` at once. At the end of `main`,
 * what was used since goes round again, with one use less (at most 3 are counted); the rest is
 * dropped. So a scan, whose items are used once, passes through `small` only, and a hit moves
 * nothing: it adds one to a count.
 *
 * Differences from the paper: items have sizes, so limits are in bytes. One use in `small` is
 * enough to be promoted (the paper asks for more than one for traces in which a miss is followed
 * by an immediate second look; our callers look once for each use). The ghost remembers as many
 * keys as there are items in the cache, in a ring that shares the hash table. */
#include "tree/cache.h"

#include "base/assert.h"
#include "base/list.h"
#include "base/mem.h"

enum { USES_MAX = 3, SMALL_SHARE = 10, GHOSTS_LEAST = 64, BUCKETS_LEAST = 256 };

enum entry_place { PLACE_SMALL, PLACE_MAIN, PLACE_GHOST, PLACES };

struct cache_entry {
    struct cache_entry *next; /* in its bucket */
    struct list link;         /* in its queue, the newest first */
    uint64_t key;
    struct buf *buf; /* NULL: a ghost */
    uint8_t place;
    uint8_t uses;
};

struct cache {
    uint64_t limit_bytes;
    struct list queue[PLACES];
    uint64_t bytes[PLACES]; /* ghosts: none */
    uint64_t count[PLACES];
    struct cache_entry **bucket;
    uint64_t buckets;          /* a power of two */
    struct cache_entry *spare; /* the last one forgotten: a full cache forgets one for each new */
    struct cache_counters counters;
};

/* ---- table ---- */

static uint64_t bucket_of(const struct cache *cache, uint64_t key) {
    /* splitmix64's last steps: keys are mostly consecutive. */
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    return (key ^ key >> 31) & (cache->buckets - 1);
}

static struct cache_entry *entry_find(const struct cache *cache, uint64_t key) {
    struct cache_entry *e = cache->bucket[bucket_of(cache, key)];
    while (e != NULL && e->key != key) {
        e = e->next;
    }
    return e;
}

static void table_grow(struct cache *cache) {
    struct cache_entry **old = cache->bucket;
    uint64_t old_buckets = cache->buckets;
    cache->buckets = old_buckets == 0 ? BUCKETS_LEAST : old_buckets * 2;
    cache->bucket = MEM_NEW_ARRAY(struct cache_entry *, cache->buckets);
    for (uint64_t i = 0; i < old_buckets; i++) {
        struct cache_entry *e = old[i];
        while (e != NULL) {
            struct cache_entry *next = e->next;
            uint64_t at = bucket_of(cache, e->key);
            e->next = cache->bucket[at];
            cache->bucket[at] = e;
            e = next;
        }
    }
    mem_free(old);
}

static void table_remove(struct cache *cache, struct cache_entry *entry) {
    struct cache_entry **at = &cache->bucket[bucket_of(cache, entry->key)];
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
}

/* ---- queues ---- */

static uint64_t entry_bytes(const struct cache_entry *e) {
    return e->buf == NULL ? 0 : e->buf->bytes;
}

static void queue_leave(struct cache *cache, struct cache_entry *e) {
    list_remove(&e->link);
    cache->bytes[e->place] -= entry_bytes(e);
    cache->count[e->place]--;
}

static void queue_enter(struct cache *cache, struct cache_entry *e, enum entry_place place) {
    e->place = (uint8_t)place;
    e->uses = 0;
    list_prepend(&cache->queue[place], &e->link);
    cache->bytes[place] += entry_bytes(e);
    cache->count[place]++;
}

static void entry_forget(struct cache *cache, struct cache_entry *e) {
    queue_leave(cache, e);
    table_remove(cache, e);
    buf_unref(e->buf);
    mem_free(cache->spare);
    cache->spare = e;
}

static struct cache_entry *queue_oldest(struct cache *cache, enum entry_place place) {
    return CONTAINER_OF(cache->queue[place].prev, struct cache_entry, link);
}

static void ghosts_limit(struct cache *cache) {
    uint64_t most = cache->count[PLACE_SMALL] + cache->count[PLACE_MAIN];
    most = most < GHOSTS_LEAST ? GHOSTS_LEAST : most;
    while (cache->count[PLACE_GHOST] > most) {
        entry_forget(cache, queue_oldest(cache, PLACE_GHOST));
    }
}

/* Takes the oldest of `small`: to `main` or out. */
static void small_step(struct cache *cache) {
    struct cache_entry *e = queue_oldest(cache, PLACE_SMALL);
    queue_leave(cache, e);
    if (e->uses > 0) {
        queue_enter(cache, e, PLACE_MAIN);
        return;
    }
    buf_unref(e->buf);
    e->buf = NULL;
    cache->counters.dropped++;
    queue_enter(cache, e, PLACE_GHOST);
    ghosts_limit(cache);
}

static void main_step(struct cache *cache) {
    struct cache_entry *e = queue_oldest(cache, PLACE_MAIN);
    if (e->uses > 0) {
        uint8_t uses = e->uses;
        queue_leave(cache, e);
        queue_enter(cache, e, PLACE_MAIN);
        e->uses = uses - 1;
        return;
    }
    cache->counters.dropped++;
    entry_forget(cache, e);
    ghosts_limit(cache);
}

/* Ends: every step either drops something, moves it on to `main`, or takes a use off it. */
static void cache_shrink(struct cache *cache) {
    while (cache_bytes(cache) > cache->limit_bytes) {
        if (cache->count[PLACE_SMALL] > 0 &&
            (cache->bytes[PLACE_SMALL] >= cache->limit_bytes / SMALL_SHARE ||
             cache->count[PLACE_MAIN] == 0)) {
            small_step(cache);
        } else {
            main_step(cache);
        }
    }
}

/* ---- interface ---- */

struct cache *cache_new(uint64_t limit_bytes) {
    struct cache *cache = MEM_NEW(struct cache);
    cache->limit_bytes = limit_bytes;
    for (int place = 0; place < PLACES; place++) {
        list_init(&cache->queue[place]);
    }
    table_grow(cache);
    return cache;
}

void cache_free(struct cache *cache) {
    if (cache == NULL) {
        return;
    }
    for (int place = 0; place < PLACES; place++) {
        while (cache->count[place] > 0) {
            entry_forget(cache, queue_oldest(cache, (enum entry_place)place));
        }
    }
    mem_free(cache->spare);
    mem_free(cache->bucket);
    mem_free(cache);
}

struct buf *cache_get(struct cache *cache, uint64_t key) {
    struct cache_entry *e = entry_find(cache, key);
    if (e == NULL || e->buf == NULL) {
        cache->counters.misses++;
        return NULL;
    }
    cache->counters.hits++;
    e->uses += e->uses < USES_MAX;
    return buf_ref(e->buf);
}

bool cache_has(const struct cache *cache, uint64_t key) {
    const struct cache_entry *e = entry_find(cache, key);
    return e != NULL && e->buf != NULL;
}

void cache_put(struct cache *cache, uint64_t key, struct buf *buf) {
    struct cache_entry *e = entry_find(cache, key);
    enum entry_place place = PLACE_SMALL;
    (void)buf_ref(buf);
    cache->counters.inserted++;
    if (e != NULL) {
        /* A ghost has proved itself; a live one keeps its queue but is as new. */
        place = e->place == PLACE_GHOST ? PLACE_MAIN : (enum entry_place)e->place;
        queue_leave(cache, e);
        buf_unref(e->buf);
    } else {
        if (cache->count[PLACE_SMALL] + cache->count[PLACE_MAIN] + cache->count[PLACE_GHOST] >=
            cache->buckets) {
            table_grow(cache);
        }
        e = cache->spare != NULL ? cache->spare : MEM_NEW(struct cache_entry);
        cache->spare = NULL;
        *e = (struct cache_entry){.key = key};
        uint64_t at = bucket_of(cache, key);
        e->next = cache->bucket[at];
        cache->bucket[at] = e;
    }
    e->buf = buf;
    queue_enter(cache, e, place);
    cache_shrink(cache);
}

void cache_drop(struct cache *cache, uint64_t key) {
    struct cache_entry *e = entry_find(cache, key);
    if (e != NULL) {
        entry_forget(cache, e);
    }
}

void cache_set_limit(struct cache *cache, uint64_t limit_bytes) {
    cache->limit_bytes = limit_bytes;
    cache_shrink(cache);
}

uint64_t cache_bytes(const struct cache *cache) {
    return cache->bytes[PLACE_SMALL] + cache->bytes[PLACE_MAIN];
}

struct cache_counters cache_counters(const struct cache *cache) {
    return cache->counters;
}
