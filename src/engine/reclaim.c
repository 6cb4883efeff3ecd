// SPDX-License-Identifier: MPL-2.0
/* Giving back what a deleted volume holds.
 *
 * The checkpoint after the deletion walks the tree and clears the live bit of all that it refers
 * to; the volume's root becomes an empty one. Unlike those of a merge the bits need not be
 * collected first: nobody reads the volume any more, and what cannot be reached now will not be
 * missed by it.
 *
 * It is missed by the pool, however: blocks below a node that is lost stay live. They are found by
 * a *sweep*, which needs no tree: the header of each row says whose its blocks are. Volume ids are
 * never used twice and blocks are not shared, so whatever is live and belongs to a deleted volume
 * is nobody's. A sweep reads the header of every row of the profiles the volume may have used. It
 * remembers runs of vbas, which the cleaner may move but does not change, and looks at some of them
 * in each checkpoint; the volume stays in the catalog until its end, and after an import the sweep
 * begins again.
 *
 * A row whose header is lost as well is nobody's if no volume is left that could own it: rows are
 * of one profile. If there is one, nobody knows; then the volume stays in the catalog, being
 * deleted, and the sweep is repeated now and then: until the last such volume has gone, too, or
 * disks have come back. */
#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

#define SWEEP_NS (500 * NS_PER_MS)

struct sweep {
    uint64_t *numbers; /* of the runs it looks at */
    uint64_t count, room, at;
    uint64_t unknown; /* runs whose owner could not be told */
};

/* It may have no item of its own and yet a run of tombstones. */
bool tree_is_gone(const struct tree_root_phys *root) {
    for (uint32_t i = 0; i < MIN(root->levels, (uint32_t)TREE_LEVELS_MAX); i++) {
        if (root->level[i].present != 0) {
            return false;
        }
    }
    return true;
}

static bool give_back(struct volume *v, uint64_t vba) {
    struct map *map = &v->engine->map;
    bool live = map_is_live(map, vba); /* what a damaged tree says need not be true */
    if (live) {
        map_clear_live(map, vba);
    }
    return live;
}

static void reclaim_node(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct volume *v = ctx;
    (void)height;
    for (uint32_t i = 0; i < v->store.node_bytes / BLOCK_BYTES; i++) {
        (void)give_back(v, ptr->address + i);
    }
    cache_drop(v->engine->node_cache, ptr->address);
}

static void reclaim_item(void *ctx, uint64_t key, const void *value) {
    struct volume *v = ctx;
    (void)key;
    if (give_back(v, ((const struct tree_extent *)value)->vba) && v->phys.allocated_blocks > 0) {
        v->phys.allocated_blocks--;
    }
}

/* ---- sweeping ---- */

/* Data has the volume's profile; so have nodes, but where that has no redundancy. */
static bool may_be_of(const struct volume *v, const struct segment *s) {
    for (int p = 0; p < PROFILE_COUNT; p++) {
        bool its_own = p == v->phys.profile || (v->phys.former >> p & 1) != 0;
        bool nodes_apart = profile_losses((enum profile)p) == 0;
        if (its_own &&
            (s->profile == (enum profile)p ||
             (nodes_apart && (s->profile == PROFILE_RAID1 || s->profile == PROFILE_SINGLE)))) {
            return true;
        }
    }
    return false;
}

static bool may_be_of_others(const struct engine *e, const struct segment *s) {
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *other = CONTAINER_OF(link, struct volume, link);
        if ((other->phys.flags & VOLUME_FLAG_SWEEPING) == 0 && may_be_of(other, s)) {
            return true;
        }
    }
    return false;
}

/* By the header of the row at its place; NULL: it is lost. */
static bool is_of(const struct volume *v, uint64_t vba, const struct row_phys *h,
                  struct row_run_phys *ret_owner) {
    struct row_place place;
    if (!map_is_live(&v->engine->map, vba) || !map_lookup(&v->engine->map, vba, &place)) {
        return false;
    }
    if (h == NULL) {
        *ret_owner = (struct row_run_phys){.kind = ROW_OWNER_DATA};
        return !may_be_of_others(v->engine, place.segment);
    }
    uint32_t block = place.index - h->header_blocks;
    if (place.index < h->header_blocks || block >= h->blocks) {
        return false;
    }
    *ret_owner = row_owner(h, block);
    return ret_owner->volume == v->phys.id;
}

/* False: whose it is cannot be told. */
static bool sweep_run(struct volume *v, uint64_t number) {
    struct engine *e = v->engine;
    struct map_run *run = map_find(&e->map, number);
    struct buf *header = NULL;
    if (run == NULL || run->live_count == 0 || !may_be_of(v, run->segment)) {
        return true;
    }
    int err = row_read_header(&e->table, run->segment, run->offset, run->height, &e->row_counters,
                              &header);
    const struct row_phys *h = err == OK ? (const void *)header->data : NULL;
    for (uint32_t i = 0; i < RUN_BLOCKS; i++) {
        uint64_t vba = (number << RUN_SHIFT) + i;
        struct row_run_phys owner;
        if (is_of(v, vba, h, &owner) && give_back(v, vba)) {
            bool data = owner.kind == ROW_OWNER_DATA && v->phys.allocated_blocks > 0;
            v->phys.allocated_blocks -= data;
            e->swept_blocks++;
        }
    }
    buf_unref(header);
    run = map_find(&e->map, number);
    return h != NULL || run->live_count == 0;
}

void sweep_free(struct volume *v) {
    if (v->sweep != NULL) {
        mem_free(v->sweep->numbers);
        mem_free(v->sweep);
        v->sweep = NULL;
    }
}

static struct sweep *sweep_new(const struct volume *v) {
    struct engine *e = v->engine;
    struct sweep *s = MEM_NEW(struct sweep);
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *segment = e->table.slots[i];
        if (segment == NULL || !may_be_of(v, segment)) {
            continue;
        }
        LIST_FOR_EACH(link, &segment->runs) {
            if (s->count == s->room) {
                s->room = s->room * 2 + 256;
                s->numbers = mem_realloc(s->numbers, s->room * sizeof(*s->numbers));
            }
            s->numbers[s->count++] = CONTAINER_OF(link, struct map_run, in_segment)->number;
        }
        (void)fiber_pace();
    }
    return s;
}

static void sweep_on(struct volume *v) {
    uint64_t started = env_now_ns(v->engine->env);
    if (v->sweep == NULL) {
        v->sweep = sweep_new(v);
    }
    struct sweep *s = v->sweep;
    while (s->at < s->count && env_now_ns(v->engine->env) - started < SWEEP_NS) {
        s->unknown += !sweep_run(v, s->numbers[s->at++]);
        (void)fiber_pace();
    }
    if (s->at < s->count) {
        return;
    }
    if (s->unknown > 0) {
        volume_retry_later(v);
    } else {
        v->phys.flags &= (uint16_t)~VOLUME_FLAG_SWEEPING;
    }
    sweep_free(v);
}

bool volume_reclaim_is_due(const struct volume *v) {
    uint32_t flags = v->phys.flags;
    return (flags & VOLUME_FLAG_DELETING) != 0 && v->users == 0 &&
           ((flags & VOLUME_FLAG_SWEEPING) == 0 || env_now_ns(v->engine->env) >= v->retry_at_ns);
}

int volume_reclaim(struct volume *v, struct tree_root_phys *ret_root) {
    overlay_clear(&v->frozen); /* nobody can see it any more */
    if (!tree_is_gone(&v->tree.root)) {
        struct tree_walk walk = {.node = reclaim_node, .item = reclaim_item, .ctx = v};
        int err = tree_walk(&v->tree, &walk);
        if (err != OK && !error_is_loss(err)) {
            return err;
        }
        v->phys.flags |= err != OK ? VOLUME_FLAG_SWEEPING : 0;
        v->retry_at_ns = v->retry_pause_ns = 0;
        *ret_root = (struct tree_root_phys){0};
    } else if ((v->phys.flags & VOLUME_FLAG_SWEEPING) != 0 && volume_reclaim_is_due(v)) {
        sweep_on(v);
    }
    return OK;
}
