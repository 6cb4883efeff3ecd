// SPDX-License-Identifier: MPL-2.0
/* The power goes. For each block of a disk there is what is on the medium, above it the versions
 * in the volatile cache, and above these the writes that were on their way. Each write's fate is
 * drawn: it lands, it does not, it lands up to a sector, or in any subset of its sectors; and as a
 * later write may be missing where an earlier one landed, every order of arrival is covered. Some
 * cuts are of one piece (everything lands, nothing does), because those find other mistakes. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/private.h"

enum cut_mode { CUT_ALL, CUT_NONE, CUT_MIXED, CUT_SECTORS, CUT_MODES };
enum fate { FATE_LANDS, FATE_DROPPED, FATE_PREFIX, FATE_SUBSET, FATES };

enum { SECTORS = SIM_BLOCK_BYTES / SIM_SECTOR_BYTES };

struct cut {
    enum cut_mode mode;
    uint64_t salt;
};

static uint64_t coin(const struct cut *cut, uint64_t a, uint64_t b) {
    uint64_t z = cut->salt ^ (a * 0x9e3779b97f4a7c15u) ^ (b * 0xd1b54a32d192ed03u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Which sectors of this block of the write land. */
static uint32_t landing_mask(const struct cut *cut, const struct sim_version *version) {
    uint64_t draw = coin(cut, version->sequence, 0);
    enum fate fate = (enum fate)(draw % FATES);
    if (cut->mode == CUT_ALL) {
        fate = FATE_LANDS;
    } else if (cut->mode == CUT_NONE) {
        fate = FATE_DROPPED;
    } else if (cut->mode == CUT_SECTORS) {
        fate = FATE_SUBSET;
    }
    uint32_t whole = (1u << SECTORS) - 1;
    switch (fate) {
    case FATE_LANDS:
        return whole;
    case FATE_PREFIX: {
        uint64_t sectors = (draw >> 8) % ((uint64_t)version->count * SECTORS + 1);
        uint64_t first = (uint64_t)version->index * SECTORS;
        uint64_t here = sectors <= first ? 0 : MIN(sectors - first, (uint64_t)SECTORS);
        return (1u << here) - 1;
    }
    case FATE_SUBSET:
        return (uint32_t)coin(cut, version->sequence, version->index + 1) & whole;
    case FATE_DROPPED:
    case FATES:
        break;
    }
    return 0;
}

static struct sim_version *reversed(struct sim_version *version) {
    struct sim_version *oldest = NULL;
    while (version != NULL) {
        struct sim_version *older = version->older;
        version->older = oldest; /* points at the next newer one from here on */
        oldest = version;
        version = older;
    }
    return oldest;
}

static struct sim_block *mixed(struct sim *sim, const struct sim_block *below,
                               const struct sim_block *above, uint32_t mask) {
    struct sim_block *block = sim_block_new(sim);
    for (uint32_t s = 0; s < SECTORS; s++) {
        const struct sim_block *from = (mask >> s & 1) != 0 ? above : below;
        uint8_t *to = block->data + s * SIM_SECTOR_BYTES;
        if (from == NULL) {
            memset(to, 0, SIM_SECTOR_BYTES);
        } else {
            memcpy(to, from->data + s * SIM_SECTOR_BYTES, SIM_SECTOR_BYTES);
        }
    }
    return block;
}

static void block_cut(struct sim_disk *disk, const struct cut *cut, uint64_t block) {
    struct sim_store *store = &disk->store;
    uint32_t whole = (1u << SECTORS) - 1;
    struct sim_version *version = reversed(store_take_versions(store, block));
    struct sim_block *now = sim_block_ref(store_stable(store, block));
    uint64_t sequence = 0;
    bool changed = false;
    while (version != NULL) {
        struct sim_version *newer = version->older;
        uint32_t mask = landing_mask(cut, version);
        if (mask == whole) {
            sim_block_unref(disk->sim, now);
            now = sim_block_ref(version->content);
            sequence = version->sequence;
        } else if (mask != 0) {
            struct sim_block *torn = mixed(disk->sim, now, version->content, mask);
            sim_block_unref(disk->sim, now);
            now = torn;
            disk->counts[SIM_FAULT_TORN]++;
        } else {
            disk->counts[SIM_FAULT_DROPPED] += version->answered && version->index == 0;
        }
        changed |= mask != 0;
        sim_block_unref(disk->sim, version->content);
        mem_free(version);
        store->versions--;
        version = newer;
    }
    if (changed) {
        store_land(store, block, now, sequence);
    } else {
        sim_block_unref(disk->sim, now);
    }
}

void sim_disk_drop_cache(struct sim_disk *disk) {
    struct cut cut = {.mode = (enum cut_mode)rng_below(&disk->rng, CUT_MODES + 2),
                      .salt = rng_next(&disk->rng)};
    if (cut.mode >= CUT_MODES) {
        cut.mode = CUT_MIXED;
    }
    for (uint64_t block = store_next_dirty(&disk->store, 0); block != UINT64_MAX;
         block = store_next_dirty(&disk->store, block)) {
        block_cut(disk, &cut, block);
    }
    ASSERT_EQ(disk->store.versions, 0);
}

/* What was on its way joins the versions, on top, in the order of submission. */
static void outstanding_join(struct sim_disk *disk) {
    struct list *node;
    while ((node = list_pop(&disk->outstanding)) != NULL) {
        struct sim_io *io = CONTAINER_OF(node, struct sim_io, outstanding);
        sim_unschedule(disk->sim, &io->event);
        list_remove(&io->link);
        bool may_land = (io->op == ENV_IO_WRITE || io->op == ENV_IO_DISCARD) && !io->lost &&
                        !io->misdirected && io->result != ERR_DISK_GONE;
        uint64_t sequence = ++disk->sim->write_sequence;
        for (uint64_t i = 0; may_land && i < io->count; i++) {
            store_put(&disk->store, io->block + i, sim_block_ref(io->content[i]), sequence,
                      (uint32_t)i, (uint32_t)io->count, false);
        }
        io_free(io);
    }
}

void sim_disk_power_cut(struct sim_disk *disk) {
    outstanding_join(disk);
    sim_disk_drop_cache(disk);
    struct list *node;
    while ((node = list_pop(&disk->handles)) != NULL) {
        mem_free(CONTAINER_OF(node, struct sim_handle, link));
    }
    disk->admitted = 0;
    disk->bus_free_ns = 0;
    for (uint32_t i = 0; i < ARRAY_COUNT(disk->channel_free_ns); i++) {
        disk->channel_free_ns[i] = 0;
    }
    disk->stalled_until_ns = 0;
    sim_unschedule(disk->sim, &disk->stall_end);
    if (disk->model->rotational) {
        rotation_reset(disk);
    }
    disk->counts[SIM_FAULT_CUT]++;
}
