// SPDX-License-Identifier: MPL-2.0
/* What a simulated disk holds: sparse, in blocks of 4 KiB that are shared and never changed once
 * filled, so that a write costs one copy and everything else moves pointers. A radix of two levels
 * (leaves of 512 blocks) finds them; zeros are not stored.
 *
 * A block is *faulty* from the moment a fault keeps what was written last from being there until a
 * later write lands; the right content is kept beside it, so that faults can be counted exactly
 * and healed. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/private.h"

enum { FIFO_FIRST = 256 };

/* ---- blocks ---- */

struct sim_block *sim_block_new(struct sim *sim) {
    struct sim_block *block = sim->free_blocks;
    if (block != NULL) {
        sim->free_blocks = block->next_free;
    } else {
        block = sim_alloc(sizeof(*block));
    }
    block->refs = 1;
    sim->blocks_in_use++;
    return block;
}

struct sim_block *sim_block_ref(struct sim_block *block) {
    if (block != NULL) {
        block->refs++;
    }
    return block;
}

void sim_block_unref(struct sim *sim, struct sim_block *block) {
    if (block != NULL && --block->refs == 0) {
        block->next_free = sim->free_blocks;
        sim->free_blocks = block;
        sim->blocks_in_use--;
    }
}

/* ---- leaves ---- */

static struct sim_leaf *leaf_at(const struct sim_store *store, uint64_t block) {
    ASSERT_LT(block, store->blocks);
    return store->leaves[block / SIM_LEAF_BLOCKS];
}

static struct sim_leaf *leaf_need(struct sim_store *store, uint64_t block) {
    struct sim_leaf *leaf = leaf_at(store, block);
    if (leaf == NULL) {
        leaf = sim_alloc(sizeof(*leaf));
        store->leaves[block / SIM_LEAF_BLOCKS] = leaf;
    }
    return leaf;
}

static bool bit_get(const uint64_t *bits, uint64_t index) {
    return (bits[index / 64] >> (index % 64) & 1) != 0;
}

static void bit_set(uint64_t *bits, uint64_t index, bool value) {
    uint64_t mask = (uint64_t)1 << (index % 64);
    bits[index / 64] = value ? bits[index / 64] | mask : bits[index / 64] & ~mask;
}

void store_init(struct sim_store *store, struct sim *sim, uint64_t blocks) {
    *store = (struct sim_store){.sim = sim, .blocks = blocks};
    store->leaf_count = div_round_up(blocks, SIM_LEAF_BLOCKS);
    store->leaves = sim_alloc(store->leaf_count * sizeof(struct sim_leaf *));
    store->leaf_dirty = sim_alloc(div_round_up(store->leaf_count, 64) * sizeof(uint64_t));
}

static void versions_free(struct sim_store *store, struct sim_version *version) {
    while (version != NULL) {
        struct sim_version *older = version->older;
        sim_block_unref(store->sim, version->content);
        mem_free(version);
        store->versions--;
        version = older;
    }
}

void store_done(struct sim_store *store) {
    for (uint64_t i = 0; i < store->leaf_count; i++) {
        struct sim_leaf *leaf = store->leaves[i];
        for (uint32_t k = 0; leaf != NULL && k < SIM_LEAF_BLOCKS; k++) {
            versions_free(store, leaf->newest[k]);
            sim_block_unref(store->sim, leaf->stable[k]);
        }
        mem_free(leaf);
    }
    for (uint32_t i = 0; i < store->faulty_count; i++) {
        sim_block_unref(store->sim, store->faulty[i].good);
    }
    mem_free(store->leaves);
    mem_free(store->leaf_dirty);
    mem_free(store->fifo);
    mem_free(store->faulty);
}

const struct sim_block *store_visible(const struct sim_store *store, uint64_t block) {
    const struct sim_leaf *leaf = leaf_at(store, block);
    if (leaf == NULL) {
        return NULL;
    }
    const struct sim_version *version = leaf->newest[block % SIM_LEAF_BLOCKS];
    return version != NULL ? version->content : leaf->stable[block % SIM_LEAF_BLOCKS];
}

struct sim_block *store_stable(const struct sim_store *store, uint64_t block) {
    const struct sim_leaf *leaf = leaf_at(store, block);
    return leaf == NULL ? NULL : leaf->stable[block % SIM_LEAF_BLOCKS];
}

bool store_is_dirty(const struct sim_store *store, uint64_t block) {
    const struct sim_leaf *leaf = leaf_at(store, block);
    return leaf != NULL && leaf->newest[block % SIM_LEAF_BLOCKS] != NULL;
}

/* Whether a read of the block would meet the latent error: not while the cache has it. */
bool store_is_latent(const struct sim_store *store, uint64_t block) {
    const struct sim_leaf *leaf = leaf_at(store, block);
    return leaf != NULL && bit_get(leaf->latent, block % SIM_LEAF_BLOCKS) &&
           leaf->newest[block % SIM_LEAF_BLOCKS] == NULL;
}

void store_set_latent(struct sim_store *store, uint64_t block) {
    bit_set(leaf_need(store, block)->latent, block % SIM_LEAF_BLOCKS, true);
}

/* ---- the volatile cache ---- */

static void leaf_mark(struct sim_store *store, uint64_t block, struct sim_leaf *leaf) {
    uint64_t index = block % SIM_LEAF_BLOCKS;
    bool dirty = leaf->newest[index] != NULL;
    if (bit_get(leaf->dirty, index) == dirty) {
        return;
    }
    bit_set(leaf->dirty, index, dirty);
    leaf->dirty_count = dirty ? leaf->dirty_count + 1 : leaf->dirty_count - 1;
    bit_set(store->leaf_dirty, block / SIM_LEAF_BLOCKS, leaf->dirty_count > 0);
}

static void fifo_push(struct sim_store *store, uint64_t block, uint64_t sequence) {
    if (store->fifo_count == store->fifo_capacity) {
        uint64_t capacity = store->fifo_capacity == 0 ? FIFO_FIRST : store->fifo_capacity * 2;
        struct sim_fifo_entry *grown = sim_alloc(capacity * sizeof(*grown));
        for (uint64_t i = 0; i < store->fifo_count; i++) {
            grown[i] = store->fifo[(store->fifo_head + i) % store->fifo_capacity];
        }
        mem_free(store->fifo);
        store->fifo = grown;
        store->fifo_head = 0;
        store->fifo_capacity = capacity;
    }
    uint64_t at = (store->fifo_head + store->fifo_count++) % store->fifo_capacity;
    store->fifo[at] = (struct sim_fifo_entry){block, sequence};
}

void store_put(struct sim_store *store, uint64_t block, struct sim_block *content,
               uint64_t sequence, uint32_t index, uint32_t count, bool answered) {
    struct sim_leaf *leaf = leaf_need(store, block);
    struct sim_version *version = sim_alloc(sizeof(*version));
    *version = (struct sim_version){.older = leaf->newest[block % SIM_LEAF_BLOCKS],
                                    .content = content,
                                    .sequence = sequence,
                                    .index = index,
                                    .count = count,
                                    .answered = answered};
    leaf->newest[block % SIM_LEAF_BLOCKS] = version;
    store->versions++;
    leaf_mark(store, block, leaf);
    fifo_push(store, block, sequence);
}

static void stable_set(struct sim_store *store, uint64_t block, struct sim_block *content,
                       uint64_t sequence) {
    struct sim_leaf *leaf = leaf_need(store, block);
    sim_block_unref(store->sim, leaf->stable[block % SIM_LEAF_BLOCKS]);
    leaf->stable[block % SIM_LEAF_BLOCKS] = content;
    bit_set(leaf->latent, block % SIM_LEAF_BLOCKS, false);
    struct sim_faulty *faulty = store_faulty(store, block);
    if (faulty != NULL && sequence > faulty->sequence) {
        sim_block_unref(store->sim, faulty->good);
        *faulty = store->faulty[--store->faulty_count];
    }
}

void store_land(struct sim_store *store, uint64_t block, struct sim_block *content,
                uint64_t sequence) {
    struct sim_leaf *leaf = leaf_need(store, block);
    versions_free(store, leaf->newest[block % SIM_LEAF_BLOCKS]);
    leaf->newest[block % SIM_LEAF_BLOCKS] = NULL;
    leaf_mark(store, block, leaf);
    stable_set(store, block, content, sequence);
}

/* Everything below the newest version that is old enough goes with it. */
void store_destage(struct sim_store *store, uint64_t block, uint64_t sequence) {
    struct sim_leaf *leaf = leaf_at(store, block);
    if (leaf == NULL) {
        return;
    }
    struct sim_version **link = &leaf->newest[block % SIM_LEAF_BLOCKS];
    while (*link != NULL && (*link)->sequence > sequence) {
        link = &(*link)->older;
    }
    struct sim_version *version = *link;
    if (version == NULL) {
        return;
    }
    *link = NULL;
    stable_set(store, block, sim_block_ref(version->content), version->sequence);
    versions_free(store, version);
    leaf_mark(store, block, leaf);
}

static bool has_version(const struct sim_store *store, uint64_t block, uint64_t sequence) {
    const struct sim_leaf *leaf = leaf_at(store, block);
    const struct sim_version *version = leaf->newest[block % SIM_LEAF_BLOCKS];
    while (version != NULL && version->sequence != sequence) {
        version = version->older;
    }
    return version != NULL;
}

uint64_t store_oldest(struct sim_store *store, uint64_t *ret_block) {
    while (store->fifo_count > 0) {
        struct sim_fifo_entry entry = store->fifo[store->fifo_head];
        if (has_version(store, entry.block, entry.sequence)) {
            *ret_block = entry.block;
            return entry.sequence;
        }
        store->fifo_head = (store->fifo_head + 1) % store->fifo_capacity;
        store->fifo_count--;
    }
    return UINT64_MAX;
}

struct sim_version *store_take_versions(struct sim_store *store, uint64_t block) {
    struct sim_leaf *leaf = leaf_at(store, block);
    struct sim_version *version = leaf->newest[block % SIM_LEAF_BLOCKS];
    leaf->newest[block % SIM_LEAF_BLOCKS] = NULL;
    leaf_mark(store, block, leaf);
    return version;
}

/* The first set bit at or after `from`, below `count`; `count` when there is none. */
static uint64_t bits_next(const uint64_t *bits, uint64_t from, uint64_t count) {
    while (from < count) {
        uint64_t word = bits[from / 64] >> (from % 64);
        if (word != 0) {
            from += (uint64_t)__builtin_ctzll(word);
            return from < count ? from : count;
        }
        from = (from / 64 + 1) * 64;
    }
    return count;
}

static uint64_t next_dirty_below(const struct sim_store *store, uint64_t from) {
    while (from < store->blocks) {
        const struct sim_leaf *leaf = store->leaves[from / SIM_LEAF_BLOCKS];
        if (leaf != NULL && leaf->dirty_count > 0) {
            uint64_t index = bits_next(leaf->dirty, from % SIM_LEAF_BLOCKS, SIM_LEAF_BLOCKS);
            if (index < SIM_LEAF_BLOCKS) {
                return from / SIM_LEAF_BLOCKS * SIM_LEAF_BLOCKS + index;
            }
        }
        uint64_t next = bits_next(store->leaf_dirty, from / SIM_LEAF_BLOCKS + 1, store->leaf_count);
        from = next * SIM_LEAF_BLOCKS;
    }
    return UINT64_MAX;
}

uint64_t store_next_dirty(const struct sim_store *store, uint64_t from) {
    uint64_t found = next_dirty_below(store, from);
    return found == UINT64_MAX && from > 0 ? next_dirty_below(store, 0) : found;
}

uint64_t store_next_written(const struct sim_store *store, uint64_t from) {
    for (uint64_t n = 0; n < store->blocks; n++) {
        uint64_t block = (from + n) % store->blocks;
        const struct sim_leaf *leaf = leaf_at(store, block);
        if (leaf == NULL) {
            n += SIM_LEAF_BLOCKS - 1 - block % SIM_LEAF_BLOCKS;
        } else if (leaf->stable[block % SIM_LEAF_BLOCKS] != NULL &&
                   leaf->newest[block % SIM_LEAF_BLOCKS] == NULL) {
            return block;
        }
    }
    return UINT64_MAX;
}

/* ---- faulty blocks ---- */

struct sim_faulty *store_faulty(struct sim_store *store, uint64_t block) {
    for (uint32_t i = 0; i < store->faulty_count; i++) {
        if (store->faulty[i].block == block) {
            return &store->faulty[i];
        }
    }
    return NULL;
}

void store_mark_faulty(struct sim_store *store, uint64_t block, struct sim_block *good,
                       uint64_t sequence) {
    struct sim_faulty *faulty = store_faulty(store, block);
    if (faulty != NULL) {
        /* The later write is what ought to be there; damage upon damage changes nothing. */
        struct sim_block *other = good;
        if (sequence > faulty->sequence) {
            other = faulty->good;
            faulty->good = good;
            faulty->sequence = sequence;
        }
        sim_block_unref(store->sim, other);
        return;
    }
    if (store->faulty_count == store->faulty_capacity) {
        store->faulty_capacity = MAX(16u, store->faulty_capacity * 2);
        store->faulty =
            sim_realloc(store->faulty, store->faulty_capacity * sizeof(struct sim_faulty));
    }
    store->faulty[store->faulty_count++] = (struct sim_faulty){block, sequence, good};
}

void store_heal(struct sim_store *store) {
    while (store->faulty_count > 0) {
        struct sim_faulty faulty = store->faulty[store->faulty_count - 1];
        struct sim_leaf *leaf = leaf_need(store, faulty.block);
        const struct sim_version *newest = leaf->newest[faulty.block % SIM_LEAF_BLOCKS];
        bool newer_above = newest != NULL && newest->sequence > faulty.sequence;
        if (newer_above) {
            stable_set(store, faulty.block, sim_block_ref(faulty.good), faulty.sequence + 1);
        } else {
            store_land(store, faulty.block, sim_block_ref(faulty.good), faulty.sequence + 1);
        }
    }
}
