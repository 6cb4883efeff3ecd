// SPDX-License-Identifier: MPL-2.0
#include "oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"

enum { SECTORS_PER_BLOCK = 8, WORDS = ORACLE_SECTOR_BYTES / 8 };

static const uint32_t OPEN = 0x80000000u;
static const uint32_t NEVER = UINT32_MAX;

/* ---- content ---- */

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The first word names the version, the second the sector; the rest follows from a hash of all
 * three numbers, so that a sector of another place, volume or version never passes. */
void oracle_fill(const struct oracle_volume *volume, uint64_t sector, uint32_t version,
                 void *ret_bytes) {
    uint64_t words[WORDS];
    if (version == 0) {
        memset(ret_bytes, 0, ORACLE_SECTOR_BYTES);
        return;
    }
    uint64_t h =
        mix(volume->identity * 0x9e3779b97f4a7c15u ^ mix(sector) ^ (uint64_t)version << 32);
    words[0] = (h & 0xffffffff00000000u) | version;
    words[1] = sector;
    for (int i = 2; i < WORDS; i++) {
        words[i] = h * (uint64_t)(2 * i + 1) ^ (h >> i);
    }
    memcpy(ret_bytes, words, sizeof(words));
}

/* ---- nodes ---- */

void oracle_init(struct oracle *oracle) {
    *oracle = (struct oracle){.oldest_read = NEVER};
}

void oracle_done(struct oracle *oracle) {
    mem_free(oracle->nodes);
}

uint32_t oracle_tick(struct oracle *oracle) {
    return ++oracle->sequence;
}

/* Index + 1. */
static uint32_t node_new(struct oracle *oracle, struct oracle_node node) {
    uint32_t at = oracle->free_node;
    if (at != 0) {
        oracle->free_node = oracle->nodes[at - 1].next;
    } else {
        if (oracle->node_count == oracle->node_capacity) {
            oracle->node_capacity = MAX(1024u, oracle->node_capacity * 2);
            oracle->nodes =
                mem_realloc(oracle->nodes, oracle->node_capacity * sizeof(struct oracle_node));
        }
        at = ++oracle->node_count;
    }
    oracle->nodes[at - 1] = node;
    return at;
}

static struct oracle_node *node_at(const struct oracle *oracle, uint32_t at) {
    return at == 0 ? NULL : &oracle->nodes[at - 1];
}

static void node_free(struct oracle *oracle, uint32_t at) {
    oracle->nodes[at - 1].next = oracle->free_node;
    oracle->free_node = at;
}

/* ---- pages ---- */

void oracle_volume_init(struct oracle_volume *volume, struct oracle *oracle, uint64_t identity,
                        bool sync_always) {
    *volume =
        (struct oracle_volume){.oracle = oracle, .identity = identity, .sync_always = sync_always};
}

static void list_free(struct oracle *oracle, uint32_t at) {
    while (at != 0) {
        uint32_t next = node_at(oracle, at)->next;
        node_free(oracle, at);
        at = next;
    }
}

void oracle_volume_done(struct oracle_volume *volume) {
    for (uint32_t b = 0; b < ORACLE_BUCKETS; b++) {
        struct oracle_page *page = volume->buckets[b];
        while (page != NULL) {
            struct oracle_page *next = page->next_in_bucket;
            for (uint32_t s = 0; s < ORACLE_PAGE_SECTORS; s++) {
                if ((page->sector[s] & OPEN) != 0) {
                    list_free(volume->oracle, page->sector[s] & ~OPEN);
                }
            }
            mem_free(page);
            page = next;
        }
        volume->buckets[b] = NULL;
    }
}

static struct oracle_page *page_find(const struct oracle_volume *volume, uint64_t sector) {
    uint64_t index = sector / ORACLE_PAGE_SECTORS;
    struct oracle_page *page = volume->buckets[index % ORACLE_BUCKETS];
    while (page != NULL && page->index != index) {
        page = page->next_in_bucket;
    }
    return page;
}

static struct oracle_page *page_need(struct oracle_volume *volume, uint64_t sector) {
    struct oracle_page *page = page_find(volume, sector);
    if (page == NULL) {
        page = MEM_NEW(struct oracle_page);
        page->index = sector / ORACLE_PAGE_SECTORS;
        page->next_in_bucket = volume->buckets[page->index % ORACLE_BUCKETS];
        volume->buckets[page->index % ORACLE_BUCKETS] = page;
    }
    return page;
}

static void used_set(struct oracle_volume *volume, struct oracle_page *page, uint64_t sector,
                     bool used) {
    uint64_t block = sector % ORACLE_PAGE_SECTORS / SECTORS_PER_BLOCK;
    uint64_t mask = (uint64_t)1 << (block % 64);
    uint64_t *word = &page->used[block / 64];
    if (((*word & mask) != 0) == used) {
        return;
    }
    *word ^= mask;
    volume->used_blocks = used ? volume->used_blocks + 1 : volume->used_blocks - 1;
}

/* ---- lists of candidates ---- */

static uint32_t list_of(const struct oracle_page *page, uint32_t s) {
    return (page->sector[s] & OPEN) != 0 ? page->sector[s] & ~OPEN : 0;
}

static bool is_durable(const struct oracle_volume *volume, const struct oracle_node *node) {
    return node->durable ||
           (node->answered != NEVER && (volume->sync_always || node->answered < volume->flushed));
}

/* One that is gone from the list was itself finally overwritten. */
static bool killer_is_durable(const struct oracle_volume *volume, uint32_t list, uint32_t killer) {
    for (uint32_t at = list; at != 0; at = node_at(volume->oracle, at)->next) {
        const struct oracle_node *node = node_at(volume->oracle, at);
        if (node->submitted == killer) {
            return volume->sync_always || is_durable(volume, node);
        }
    }
    return true;
}

/* Dead, and no crash brings it back: something durable was written after it. */
static bool is_finally_dead(const struct oracle_volume *volume, uint32_t list,
                            const struct oracle_node *dead) {
    if (dead->dead == NEVER) {
        return false;
    }
    if (dead->killer != NEVER && killer_is_durable(volume, list, dead->killer)) {
        return true;
    }
    for (uint32_t at = list; at != 0; at = node_at(volume->oracle, at)->next) {
        const struct oracle_node *node = node_at(volume->oracle, at);
        if (node->done && node->submitted > dead->answered && is_durable(volume, node)) {
            return true;
        }
    }
    return false;
}

static void list_open(struct oracle_volume *volume, struct oracle_page *page, uint32_t s) {
    if (list_of(page, s) != 0) {
        return;
    }
    uint32_t at =
        node_new(volume->oracle,
                 (struct oracle_node){.version = page->sector[s], .dead = NEVER, .durable = true});
    page->sector[s] = OPEN | at;
    page->open++;
}

/* Forgets what can matter no more: dead before any read on its way began, and finally so. A sector
 * with one settled candidate becomes a plain number again. */
static void list_tidy(struct oracle_volume *volume, struct oracle_page *page, uint32_t s) {
    struct oracle *oracle = volume->oracle;
    uint32_t list = list_of(page, s);
    uint32_t kept = 0, last = 0;
    for (uint32_t at = list, next; at != 0; at = next) {
        struct oracle_node *node = node_at(oracle, at);
        next = node->next;
        if (node->dead < oracle->oldest_read && is_finally_dead(volume, list, node)) {
            if (last == 0) {
                list = next;
            } else {
                node_at(oracle, last)->next = next;
            }
            node_free(oracle, at);
            continue;
        }
        kept++;
        last = at;
    }
    page->sector[s] = OPEN | list;
    ASSERT(list != 0);
    const struct oracle_node *node = node_at(oracle, list);
    if (kept == 1 && node->dead == NEVER && node->answered != NEVER && is_durable(volume, node)) {
        page->sector[s] = node->version;
        page->open--;
        node_free(oracle, list);
    }
}

#define FOR_EACH_NODE(oracle_, list_, node_)                                                       \
    for (struct oracle_node *node_ = node_at(oracle_, list_); node_ != NULL;                       \
         node_ = node_at(oracle_, node_->next))

/* ---- writes ---- */

uint32_t oracle_write_begin(struct oracle_volume *volume, uint64_t sector, uint64_t count,
                            uint32_t version) {
    uint32_t now = oracle_tick(volume->oracle);
    ASSERT_LT(version, OPEN);
    for (uint64_t i = sector; i < sector + count; i++) {
        struct oracle_page *page = page_need(volume, i);
        uint32_t s = (uint32_t)(i % ORACLE_PAGE_SECTORS);
        list_open(volume, page, s);
        uint32_t at = node_new(volume->oracle, (struct oracle_node){.next = list_of(page, s),
                                                                    .version = version,
                                                                    .submitted = now,
                                                                    .answered = NEVER,
                                                                    .dead = NEVER,
                                                                    .killer = NEVER});
        page->sector[s] = OPEN | at;
        if (version != 0) {
            used_set(volume, page, i, true);
        }
    }
    return now;
}

static void node_remove(struct oracle_volume *volume, struct oracle_page *page, uint32_t s,
                        uint32_t submitted) {
    uint32_t last = 0;
    for (uint32_t at = list_of(page, s); at != 0; at = node_at(volume->oracle, at)->next) {
        if (node_at(volume->oracle, at)->submitted == submitted) {
            uint32_t next = node_at(volume->oracle, at)->next;
            if (last == 0) {
                page->sector[s] = OPEN | next;
            } else {
                node_at(volume->oracle, last)->next = next;
            }
            node_free(volume->oracle, at);
            return;
        }
        last = at;
    }
}

static void node_answer(struct oracle_volume *volume, struct oracle_page *page, uint32_t s,
                        uint32_t submitted, uint32_t now, bool done, bool durable) {
    FOR_EACH_NODE(volume->oracle, list_of(page, s), node) {
        if (node->submitted == submitted) {
            node->answered = now;
            node->done = done;
            node->durable = done && durable;
        } else if (done && node->answered < submitted) {
            node->dead = MIN(node->dead, now);
        }
    }
}

void oracle_write_end(struct oracle_volume *volume, uint64_t sector, uint64_t count,
                      uint32_t submitted, enum oracle_outcome outcome, bool durable) {
    uint32_t now = oracle_tick(volume->oracle);
    for (uint64_t i = sector; i < sector + count; i++) {
        struct oracle_page *page = page_need(volume, i);
        uint32_t s = (uint32_t)(i % ORACLE_PAGE_SECTORS);
        if (outcome == ORACLE_NOTHING) {
            node_remove(volume, page, s, submitted);
        } else {
            node_answer(volume, page, s, submitted, now, outcome == ORACLE_DONE,
                        durable || volume->sync_always);
        }
        list_tidy(volume, page, s);
        if (page->sector[s] == 0 && i % SECTORS_PER_BLOCK == 0 &&
            sector + count - i >= SECTORS_PER_BLOCK) {
            used_set(volume, page, i, false);
        }
    }
}

void oracle_flushed(struct oracle_volume *volume, uint32_t submitted) {
    volume->flushed = MAX(volume->flushed, submitted);
}

/* ---- reads ---- */

static int list_describe(const struct oracle_volume *volume, uint32_t list, char *ret_text,
                         size_t bytes) {
    size_t used = 0;
    FOR_EACH_NODE(volume->oracle, list, node) {
        if (used + 64 < bytes) {
            used += (size_t)snprintf(ret_text + used, bytes - used, " %u[%u,%d]%s", node->version,
                                     node->submitted, (int)node->answered,
                                     node->dead == NEVER ? "" : "x");
        }
    }
    return (int)used;
}

static void read_complains(const struct oracle_volume *volume, uint64_t sector, uint32_t list,
                           uint32_t plain, const uint8_t *bytes, char *ret_why, size_t why_bytes) {
    uint64_t words[2];
    memcpy(words, bytes, sizeof(words));
    uint8_t expected[ORACLE_SECTOR_BYTES];
    uint32_t version = (uint32_t)words[0];
    oracle_fill(volume, sector, version, expected);
    bool whole = memcmp(bytes, expected, sizeof(expected)) == 0;
    char may[300] = "";
    if (list != 0) {
        (void)list_describe(volume, list, may, sizeof(may));
    } else {
        (void)snprintf(may, sizeof(may), " %u", plain);
    }
    (void)snprintf(ret_why, why_bytes,
                   "sector %" PRIu64 " holds %s %u (says it is of sector %" PRIu64 "), may hold%s",
                   sector, whole ? "version" : "something like version", version, words[1], may);
}

/* Kills what was answered before the read began and is not what it returned. */
static bool list_read(struct oracle_volume *volume, uint32_t list, uint32_t submitted,
                      uint32_t version) {
    uint32_t now = volume->oracle->sequence;
    bool found = false;
    uint32_t settled = 0, killer = 0;
    FOR_EACH_NODE(volume->oracle, list, node) {
        if (node->version == version && (node->dead == NEVER || node->dead > submitted)) {
            found = true;
            settled = MAX(settled, node->answered);
            killer = node->submitted;
        }
    }
    if (!found) {
        return false;
    }
    FOR_EACH_NODE(volume->oracle, list, node) {
        if (node->version != version && node->answered < submitted && node->dead == NEVER) {
            node->dead = MIN(now, settled);
            node->killer = killer;
        }
    }
    return true;
}

static bool is_version(const struct oracle_volume *volume, uint64_t sector, const uint8_t *bytes,
                       uint32_t *ret_version) {
    uint64_t first;
    memcpy(&first, bytes, sizeof(first));
    uint8_t expected[ORACLE_SECTOR_BYTES];
    oracle_fill(volume, sector, (uint32_t)first, expected);
    *ret_version = (uint32_t)first;
    return memcmp(bytes, expected, sizeof(expected)) == 0;
}

bool oracle_read(struct oracle_volume *volume, uint64_t sector, uint64_t count, uint32_t submitted,
                 const void *bytes, char *ret_why, size_t why_bytes) {
    (void)oracle_tick(volume->oracle);
    const uint8_t *at = bytes;
    for (uint64_t i = sector; i < sector + count; i++, at += ORACLE_SECTOR_BYTES) {
        struct oracle_page *page = page_find(volume, i);
        uint32_t s = (uint32_t)(i % ORACLE_PAGE_SECTORS);
        uint32_t list = page == NULL ? 0 : list_of(page, s);
        uint32_t plain = page == NULL ? 0 : page->sector[s];
        uint32_t version;
        bool good = is_version(volume, i, at, &version) &&
                    (list == 0 ? version == plain : list_read(volume, list, submitted, version));
        if (!good) {
            read_complains(volume, i, list, plain, at, ret_why, why_bytes);
            return false;
        }
        if (list != 0) {
            list_tidy(volume, page, s);
        }
    }
    return true;
}

bool oracle_known(const struct oracle_volume *volume, uint64_t sector, uint32_t *ret_version) {
    const struct oracle_page *page = page_find(volume, sector);
    uint32_t s = (uint32_t)(sector % ORACLE_PAGE_SECTORS);
    if (page != NULL && list_of(page, s) != 0) {
        uint32_t alive = 0;
        FOR_EACH_NODE(volume->oracle, list_of(page, s), node) {
            alive += node->dead == NEVER;
            *ret_version = node->dead == NEVER ? node->version : *ret_version;
        }
        return alive == 1;
    }
    *ret_version = page == NULL ? 0 : page->sector[s];
    return true;
}

/* ---- the end of an engine ---- */

static void list_restart(struct oracle_volume *volume, struct oracle_page *page, uint32_t s,
                         uint32_t now) {
    uint32_t list = list_of(page, s);
    FOR_EACH_NODE(volume->oracle, list, node) {
        if (node->dead != NEVER && !is_finally_dead(volume, list, node)) {
            node->dead = NEVER;
        }
    }
    /* From here on each one that is left may be what the engine settles on. */
    FOR_EACH_NODE(volume->oracle, list, node) {
        if (node->dead == NEVER) {
            node->submitted = now;
            node->answered = now;
            node->done = true;
            node->durable = true;
        } else {
            node->killer = 0; /* final */
        }
    }
    list_tidy(volume, page, s);
}

void oracle_restart(struct oracle_volume *volume, bool clean) {
    uint32_t now = oracle_tick(volume->oracle);
    if (clean) {
        volume->flushed = now;
    }
    for (uint32_t b = 0; b < ORACLE_BUCKETS; b++) {
        for (struct oracle_page *page = volume->buckets[b]; page != NULL;
             page = page->next_in_bucket) {
            for (uint32_t s = 0; s < ORACLE_PAGE_SECTORS && page->open > 0; s++) {
                if (list_of(page, s) != 0) {
                    list_restart(volume, page, s, now);
                }
            }
        }
    }
    (void)oracle_tick(volume->oracle);
}

void oracle_each_page(struct oracle_volume *volume, void (*visit)(void *ctx, uint64_t sector),
                      void *ctx) {
    for (uint32_t b = 0; b < ORACLE_BUCKETS; b++) {
        for (struct oracle_page *page = volume->buckets[b]; page != NULL;
             page = page->next_in_bucket) {
            visit(ctx, page->index * ORACLE_PAGE_SECTORS);
        }
    }
}
