// SPDX-License-Identifier: MPL-2.0
/* Disks that come and go: in some worlds disks are added, as spares too, removed, kept after all,
 * and replaced, at any time and with power cuts in between; and those that were only gone return by
 * themselves, which all worlds see. What a call must not do is fail while nothing is wrong. What a
 * disk is for the pool the world learns from the engine's status: by its number and its uuid, and
 * by its path when it is new.
 *
 * Masks of disks: `missing` are those that nothing goes to (given up, removed, or never members);
 * `lost` those whose loss is still felt; `idle` members that hold nothing new (leaving, spares);
 * `fresh` those that were added: what can be written to them is not reckoned with. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "world.h"

enum { MEMBER_UNKNOWN = UINT32_MAX, EXTRAS_MAX = 4 };

void moves_init(struct world *w) {
    rng_init(&w->move_rng, w->options.seed ^ 0x6d6f766573u);
    w->moving = !w->large && rng_chance(&w->move_rng, 1, 2);
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        w->member_disk[m] = MEMBER_UNKNOWN;
    }
}

/* ---- who is who ---- */

static uint32_t disk_at(const struct world *w, const char *path) {
    for (uint32_t i = 0; i < w->disk_count; i++) {
        if (strcmp(sim_disk_path(w->disks[i]), path) == 0) {
            return i;
        }
    }
    return MEMBER_UNKNOWN;
}

static void forget_removed(struct world *w, uint32_t member) {
    uint32_t index = w->member_disk[member], bit = 1u << index;
    w->member_disk[member] = MEMBER_UNKNOWN;
    if ((w->outside & bit) != 0) {
        w->asked_to_leave &= ~bit;
        return; /* it was listed, could not be admitted, and has left again */
    }
    if ((w->asked_to_leave & bit) == 0) {
        world_fail(w, "disk %u (member %u) is no member any more, and nobody removed it", index,
                   member);
    }
    env_sim_note(w->env, index, "disk %u is removed", index);
    w->missing |= bit;
    w->missing_durable |= bit;
    w->outside |= bit;
    w->lost &= ~bit;
    w->idle &= ~bit;
    w->fresh &= ~bit;
    w->asked_to_leave &= ~bit;
    world_count(w, STAT_disks_removed, 1);
}

/* The disk behind a member of the status; false: not known (yet). */
bool moves_member(struct world *w, const struct engine_disk_status *d, uint32_t *ret_index) {
    uint32_t *mine = &w->member_disk[d->member];
    bool known = *mine != MEMBER_UNKNOWN;
    bool named = !uuid_equal(&w->member_uuid[d->member], &(struct uuid){0});
    if (known && named && !uuid_equal(&w->member_uuid[d->member], &d->uuid)) {
        forget_removed(w, d->member); /* and the number is another's, or nobody's */
        known = false;
    }
    if (d->state == MEMBER_NONE) {
        w->member_uuid[d->member] = (struct uuid){0};
        return false;
    }
    if (!known && d->present) {
        *mine = disk_at(w, d->path);
    }
    if (*mine == MEMBER_UNKNOWN) {
        return false;
    }
    w->member_uuid[d->member] = d->uuid;
    *ret_index = *mine;
    return true;
}

/* A member that was missing is in sync. */
void moves_came(struct world *w, uint32_t index, const struct engine_disk_status *d) {
    uint32_t bit = 1u << index;
    bool joins = (w->outside & bit) != 0;
    w->missing &= ~bit;
    w->missing_durable &= ~bit;
    w->outside &= ~bit;
    if (joins) {
        w->set_back &= ~bit;
        w->fresh |= bit;
        env_sim_note(w->env, index, "disk %u is member %u", index, d->member);
        world_count(w, STAT_disks_added, 1);
        return;
    }
    if ((w->set_back & bit) != 0) {
        world_fail(w, "disk %u (member %u) was set back, and is taken for good", index, d->member);
    }
    w->lost |= bit; /* what was written without it is not on it */
    env_sim_note(w->env, index, "disk %u has returned", index);
    world_count(w, STAT_disks_returned, 1);
    if (sim_disk_is_gone(w->disks[index])) {
        world_fail(w, "disk %u (member %u) is in sync again, and it is gone", index, d->member);
    }
}

void moves_role(struct world *w, uint32_t index, const struct engine_disk_status *d) {
    uint32_t bit = 1u << index;
    bool was_spare = (w->spares & bit) != 0;
    w->idle = d->role == MEMBER_NORMAL ? w->idle & ~bit : w->idle | bit;
    w->spares = d->role == MEMBER_SPARE ? w->spares | bit : w->spares & ~bit;
    world_count(w, STAT_spares_used, was_spare && d->role == MEMBER_NORMAL);
}

/* ---- old copies ---- */

enum { IMAGE_BYTES_MAX = 48 << 20, IMAGE_CHECKPOINTS = 2 };

/* A copy of a disk is made while it is in use, and put back in its place when it has been lost,
 * long after: what it holds is then no longer what it had acknowledged. */
static void image_take(struct world *w) {
    uint32_t index = (uint32_t)rng_below(&w->move_rng, w->disk_count);
    uint64_t bytes = sim_disk_size_bytes(w->disks[index]);
    uint32_t bit = 1u << index;
    if (w->image != NULL || bytes > IMAGE_BYTES_MAX || (faults_bad(w) & bit) != 0 ||
        (w->missing & bit) != 0) {
        return;
    }
    w->image = mem_alloc(bytes);
    w->image_disk = index;
    w->image_mount = w->status.mount_generation;
    w->image_checkpoint = w->status.checkpoints;
    w->image_is_old = false;
    sim_disk_image(w->disks[index], w->image);
}

/* As long as the disk is a member it goes on, and leaves the copy behind. */
void moves_poll(struct world *w) {
    if (w->image != NULL && (w->missing >> w->image_disk & 1) == 0) {
        w->image_is_old |= w->status.mount_generation == w->image_mount &&
                           w->status.checkpoints >= w->image_checkpoint + IMAGE_CHECKPOINTS;
    }
}

/* The disk is about to come back; or an old copy of it. */
void moves_returns(struct world *w, uint32_t index) {
    uint32_t bit = 1u << index;
    if (w->image == NULL || w->image_disk != index) {
        return;
    }
    if (w->image_is_old && (w->missing & bit) != 0) {
        env_sim_note(w->env, index, "disk %u is set back", index);
        sim_disk_set_back(w->disks[index], w->image);
        w->set_back |= bit;
        world_count(w, STAT_disks_set_back, 1);
    }
    mem_free(w->image);
    w->image = NULL;
}

/* Takes a copy; loses the disk when the copy is old; lets it come back as the copy. */
void moves_image(struct world *w) {
    faults_poll(w);
    if (w->image == NULL) {
        image_take(w);
    } else if (sim_disk_is_gone(w->disks[w->image_disk])) {
        uint32_t index = w->image_disk;
        if ((w->missing >> index & 1) != 0) {
            moves_returns(w, index);
            sim_disk_return(w->disks[index]);
        }
    } else if (w->image_is_old) {
        (void)faults_lose(w, w->image_disk);
    }
}

void moves_done(struct world *w) {
    mem_free(w->image);
}

/* ---- doing something ---- */

static uint32_t storing(const struct world *w) {
    return w->disk_count - (uint32_t)__builtin_popcount(w->missing | w->idle);
}

/* One that was removed, or a new one. */
static uint32_t fresh_disk(struct world *w) {
    for (uint32_t i = 0; i < w->disk_count; i++) {
        if ((w->outside >> i & 1) != 0 && !sim_disk_is_gone(w->disks[i]) &&
            !sim_disk_is_stalled(w->disks[i]) && rng_chance(&w->move_rng, 1, 2)) {
            return i;
        }
    }
    if (w->disk_count == WORLD_DISKS_MAX || w->extras == EXTRAS_MAX) {
        return MEMBER_UNKNOWN;
    }
    char path[16];
    (void)snprintf(path, sizeof(path), "extra%u", w->extras++);
    uint64_t fixed = layout_chunk_start(&w->geometry) + TAIL_BLOCKS;
    uint64_t blocks = fixed + rng_between(&w->move_rng, 30, 160) * w->geometry.chunk_blocks;
    struct sim_disk_options options = {.model = rng_chance(&w->move_rng, 1, 2) ? "ssd" : "hdd",
                                       .path = path,
                                       .size_bytes = MAX(blocks * BLOCK_BYTES, (uint64_t)2 << 20),
                                       .scale = 256,
                                       .cache_off = rng_chance(&w->move_rng, 1, 3)};
    if (env_sim_disk_add(w->env, &options, &w->disks[w->disk_count], NULL) != OK) {
        return MEMBER_UNKNOWN;
    }
    w->outside |= 1u << w->disk_count;
    w->missing |= 1u << w->disk_count;
    w->missing_durable |= 1u << w->disk_count;
    return w->disk_count++;
}

static uint32_t any_member(struct world *w, uint32_t among) {
    uint32_t from = (uint32_t)rng_below(&w->move_rng, POOL_DISKS_MAX);
    for (uint32_t i = 0; i < POOL_DISKS_MAX; i++) {
        uint32_t m = (from + i) % POOL_DISKS_MAX;
        if (w->member_disk[m] != MEMBER_UNKNOWN && (among >> w->member_disk[m] & 1) != 0) {
            return m;
        }
    }
    return MEMBER_UNKNOWN;
}

void moves_event(struct world *w) {
    struct control c = {.kind = CONTROL_DISK_ADD, .disk = MEMBER_UNKNOWN};
    uint32_t what = (uint32_t)rng_below(&w->move_rng, 10);
    uint32_t leaving = w->asked_to_leave & w->idle;
    c.member = any_member(w, UINT32_MAX);
    if (what < 4) {
        c.spare = rng_chance(&w->move_rng, 1, 4);
        c.disk = fresh_disk(w);
    } else if (what < 6) {
        c.kind = CONTROL_DISK_REPLACE;
        c.disk = fresh_disk(w);
    } else if (what < 9) {
        c.kind = CONTROL_DISK_REMOVE;
    } else {
        c.kind = CONTROL_DISK_KEEP;
    }
    if (leaving != 0 && rng_chance(&w->move_rng, 1, 3)) {
        c.kind = CONTROL_DISK_KEEP;
        c.member = any_member(w, leaving);
    }
    if ((c.kind != CONTROL_DISK_ADD && c.member == MEMBER_UNKNOWN) ||
        (c.kind <= CONTROL_DISK_REPLACE && c.disk == MEMBER_UNKNOWN)) {
        return;
    }
    if (c.kind == CONTROL_DISK_REMOVE || c.kind == CONTROL_DISK_REPLACE) {
        uint32_t bit = 1u << w->member_disk[c.member];
        if ((w->lost | w->suspect) != 0 && (w->missing & bit) == 0) {
            return; /* one trouble at a time is enough: what leaves is as good as bad to others */
        }
        w->asked_to_leave |= bit;
        if (rng_chance(&w->move_rng, 3, 4)) {
            faults_rot_other(w, w->member_disk[c.member]); /* what is copied must be looked at */
        }
    }
    if (c.disk != MEMBER_UNKNOWN) {
        (void)snprintf(c.path, sizeof(c.path), "%s", sim_disk_path(w->disks[c.disk]));
    }
    if (rng_chance(&w->move_rng, 1, 3)) {
        env_sim_arm_cut(w->env, rng_between(&w->move_rng, 1, 150));
    }
    control_start(w, c);
}

/* ---- judging ---- */

static int run_add(struct world *w, struct control *c) {
    struct engine_disk_add_options options = {.path = c->path, .spare = c->spare, .force = true};
    struct engine_disk_change change;
    if (c->kind == CONTROL_DISK_ADD) {
        return engine_disk_add(w->engine, &options, &change, &c->err);
    }
    options.spare = false;
    return engine_disk_replace(w->engine, c->member, &options, &change, &c->err);
}

int moves_run(struct world *w, struct control *c) {
    if (c->kind == CONTROL_DISK_ADD || c->kind == CONTROL_DISK_REPLACE) {
        return run_add(w, c);
    }
    if (c->kind == CONTROL_DISK_KEEP) {
        return engine_disk_keep(w->engine, c->member, &c->err);
    }
    struct engine_disk_remove_options options = {.member = c->member};
    struct engine_disk_change change;
    return engine_disk_remove(w->engine, &options, &change, &c->err);
}

/* A new disk that is well is added, whatever the pool looks like; only making metadata more
 * redundant may find no room, and one that was removed just now may still owe answers. Removals may
 * be refused: too little room, too few disks. */
void moves_judge(struct world *w, struct control *c) {
    bool adds = c->kind == CONTROL_DISK_ADD || c->kind == CONTROL_DISK_REPLACE;
    bool refusal = c->result == ERR_NO_SPACE || c->result == ERR_INVALID ||
                   c->result == ERR_NOT_FOUND || c->result == ERR_DATA_LOSS;
    faults_poll(w);
    if (c->result != OK && !(refusal && (!adds || c->kind == CONTROL_DISK_REPLACE)) &&
        !(adds && (c->result == ERR_NO_SPACE || c->result == ERR_BUSY)) &&
        (faults_bad(w) >> c->disk % 32 & 1) == 0) {
        world_fail(w, "%s of member %u, %s: %s: %s", control_name(c->kind), c->member, c->path,
                   error_name(c->result), c->err.text);
    }
    world_count(w, STAT_removals_begun, c->kind == CONTROL_DISK_REMOVE && c->result == OK);
    world_count(w, STAT_disks_replaced, c->kind == CONTROL_DISK_REPLACE && c->result == OK);
    world_count(w, STAT_disks_kept, c->kind == CONTROL_DISK_KEEP && c->result == OK);
    if (adds && c->result == OK && storing(w) >= 2) {
        w->tolerance = MAX(w->tolerance, 1u); /* of the pool's own metadata, too, from now on */
    }
}
