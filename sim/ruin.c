// SPDX-License-Identifier: MPL-2.0
/* Worlds in which volumes lose nodes of their trees beyond redundancy, in one of two ways:
 *
 * - A node is destroyed wherever it or what it could be computed from lies. Only in profiles
 *   without parity, so that nothing of another volume is destroyed with it.
 * - In deep worlds volumes are weaker than what the disks go through: two disks are bad, and such a
 *   volume tolerates none or one.
 *
 * Such a volume is *harmed*: it may answer errors, but never wrong data. All others must go on as
 * if nothing had happened; so must checkpoints, imports, and the deletion of the harmed one, after
 * which its space is back: `check` finds nothing that belongs to nobody, unless the engine says
 * that it is still looking. */
#include <string.h>

#include "base/math.h"
#include "world.h"

void ruin_init(struct world *w) {
    rng_init(&w->ruin_rng, w->options.seed ^ 0x7275696e);
    w->ruin = w->disk_count >= 2 && !w->large && rng_chance(&w->ruin_rng, 1, 4);
}

static bool has_no_parity(enum profile p) {
    return p != PROFILE_RAID5 && p != PROFILE_RAID6;
}

static void destroy(struct world *w, const struct engine_place *place) {
    struct ruin_block block = {.disk = w->disks[w->member_disk[place->member]],
                               .offset_bytes = place->offset_bytes,
                               .at = (uint32_t)rng_below(&w->ruin_rng, BLOCK_BYTES),
                               .good = mem_alloc(BLOCK_BYTES)};
    uint8_t bad[BLOCK_BYTES];
    sim_disk_peek(block.disk, block.offset_bytes, block.good);
    memcpy(bad, block.good, sizeof(bad));
    bad[block.at] ^= 0x10;
    sim_disk_poke(block.disk, block.offset_bytes, bad);
    if (w->ruin_block_count < WORLD_RUIN_BLOCKS_MAX) {
        w->ruin_blocks[w->ruin_block_count++] = block;
    } else {
        mem_free(block.good);
    }
}

/* Some of what was destroyed is there again, unless something else has been written there. */
static void come_back(struct world *w) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->ruin_block_count; i++) {
        struct ruin_block *block = &w->ruin_blocks[i];
        uint8_t bytes[BLOCK_BYTES];
        sim_disk_peek(block->disk, block->offset_bytes, bytes);
        bytes[block->at] ^= 0x10;
        if (memcmp(bytes, block->good, sizeof(bytes)) != 0) {
            mem_free(block->good);
        } else if (rng_chance(&w->ruin_rng, 1, 2)) {
            sim_disk_poke(block->disk, block->offset_bytes, block->good);
            mem_free(block->good);
        } else {
            w->ruin_blocks[kept++] = *block;
        }
    }
    w->ruin_block_count = kept;
}

void ruin_done(struct world *w) {
    for (uint32_t i = 0; i < w->ruin_block_count; i++) {
        mem_free(w->ruin_blocks[i].good);
    }
}

void ruin_event(struct world *w) {
    faults_poll(w); /* who is who */
    struct engine_place places[ENGINE_PLACES_MAX];
    if (rng_chance(&w->ruin_rng, 1, 3)) {
        come_back(w);
        return;
    }
    struct world_volume *v = &w->volumes[rng_below(&w->ruin_rng, WORLD_VOLUMES_MAX)];
    if (v->state != VOL_LIVE || v->id == 0 || !has_no_parity(v->profile)) {
        return;
    }
    uint32_t count = engine_node_places(w->engine, v->id, rng_next(&w->ruin_rng), places);
    for (uint32_t i = 0; i < count; i++) {
        destroy(w, &places[i]);
    }
    if (count > 0) {
        v->harmed = true;
        world_count(w, STAT_nodes_destroyed, 1);
        env_sim_note(w->env, count, "a node of %s is destroyed in %u places", v->name, count);
    }
}

void ruin_judge(struct world *w) {
    struct volume_info *infos = NULL;
    uint32_t count = 0;
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    engine_volume_list(w->engine, &infos, &count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < WORLD_VOLUMES_MAX; k++) {
            const struct world_volume *v = &w->volumes[k];
            if (infos[i].health != VOLUME_WHOLE && v->state != VOL_NONE && v->id == infos[i].id &&
                !v->harmed) {
                world_fail(w, "volume %s is %s without a reason", v->name,
                           infos[i].health == VOLUME_DAMAGED ? "damaged" : "broken");
            }
        }
    }
    mem_free(infos);
    mem_scope_enter(outer);
}

void ruin_deleted(struct world *w, const struct world_volume *v) {
    world_count(w, STAT_harmed_volumes_deleted, v->harmed);
}
