// SPDX-License-Identifier: MPL-2.0
/* Disks that come and go while the pool serves.
 *
 *     add      a member from the next segment on; what was weaker for want of disks becomes strong
 *     remove   the member is *leaving*: nothing new goes to it, rebuild.c moves what it holds, and
 *              when nothing is left on it, neither chunks nor rows of the log, it is dropped. A
 *              missing one is dropped when what it held was rebuilt. Until then it can be kept.
 *     replace  add, then remove: what the old disk still gives is copied from it
 *     spare    a member that holds nothing; when columns of a lost disk find no place it becomes a
 *              normal one
 *     fail     a member is expelled although nothing is wrong with it, if the pool can spare it
 *     return   a missing member that is there again, and has not failed, is taken back
 *
 * Roles are in the superblock, so all of that goes on after a crash (pool/member.c has the steps).
 * One change at a time (the lock `members`). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "engine/private.h"

#define RETURN_LEAST_NS (2 * NS_PER_S)
#define RETURN_MOST_NS (60 * NS_PER_S)

/* What is rebuilt, and what may be promised, has changed. */
static void members_changed(struct engine *e) {
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        if (e->table.slots[i] != NULL) {
            e->table.slots[i]->unmovable = e->table.slots[i]->uncopyable = false;
        }
    }
    space_recount(e);
    rebuild_wake(e);
    log_reconsider(e->log);
    checkpoint_want(e);
}

/* ---- forecasts ---- */

static struct segment_room room_of_others(const struct engine *e, uint32_t except) {
    struct segment_room room = segment_room_all(&e->table);
    room.count = 0;
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (pool_member_stores(e->pool, m) && m != except) {
            room.chunks[room.count++] = e->table.chunk_count[m];
        }
    }
    return room;
}

static void forecast(const struct engine *e, const struct segment_room *after,
                     struct engine_disk_change *ret) {
    struct space_forecast now, then;
    struct segment_room all = segment_room_all(&e->table);
    space_forecast(e, &all, &now);
    space_forecast(e, after, &then);
    ret->usable_before_bytes = now.usable_bytes;
    ret->usable_after_bytes = then.usable_bytes;
    ret->used_bytes = then.used_bytes;
    ret->storable = then.storable;
    ret->fits = then.fits;
}

/* Columns of the member without which their segments cannot be had. */
static uint64_t only_there(const struct engine *e, uint32_t member) {
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        bool holds = false;
        if (s == NULL || s->kind != SEGMENT_DATA || s->live_blocks + s->pending == 0) {
            continue;
        }
        uint32_t gone = segment_unreadable(&e->table, s);
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            holds |= s->column[c].disk == member;
        }
        if (holds && (uint32_t)__builtin_popcount(gone) > shape_losses(s->shape)) {
            blocks += s->live_blocks;
        }
    }
    return blocks * BLOCK_BYTES;
}

/* ---- adding ---- */

static int check_running(const struct engine *e, struct errmsg *reterr) {
    if (e->state == ENGINE_FAILED) {
        return errmsg_set(reterr, ERR_READ_ONLY, "pool %s takes no more changes: %s",
                          e->pool->super.name, e->failure_text);
    }
    return e->state == ENGINE_RUNNING
               ? OK
               : errmsg_set(reterr, ERR_SHUTDOWN, "pool %s is being closed", e->pool->super.name);
}

/* Copies of the pool's own metadata that its strongest volume wants, as the disks allow. */
static uint32_t copies_due(const struct engine *e) {
    uint32_t copies = 2;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        copies = MAX(copies, 1 + profile_losses((enum profile)v->phys.profile));
    }
    return MIN(copies, pool_storing_count(e->pool));
}

/* So many, if there were too few disks for them so far. */
static int strengthen(struct engine *e, struct errmsg *reterr) {
    uint32_t copies = copies_due(e);
    int err = copies > e->pool->super.meta_copies ? meta_strengthen(e, copies) : OK;
    return err == OK ? OK
                     : errmsg_set(reterr, err,
                                  "the disk was added, but the pool's metadata could not be made "
                                  "more redundant (%s)",
                                  error_text(err));
}

static int add_member(struct engine *e, const struct pool_add_options *options,
                      uint32_t *ret_member, struct errmsg *reterr) {
    int err = pool_member_add(e->pool, options, ret_member, reterr);
    if (err != OK) {
        return err;
    }
    segment_member_added(&e->table, *ret_member);
    err = pool_member_admit(e->pool, *ret_member, reterr);
    if (err != OK) {
        struct errmsg ignored = {0}; /* then it is a missing member, which leaves again at once */
        int leaves = pool_member_set_role(e->pool, *ret_member, MEMBER_LEAVING, &ignored);
        (void)leaves;
        return err;
    }
    log_member_added(e->log, *ret_member);
    e->rebuild.added++;
    members_changed(e);
    return strengthen(e, reterr);
}

int engine_disk_add(struct engine *e, const struct engine_disk_add_options *o,
                    struct engine_disk_change *ret, struct errmsg *reterr) {
    struct pool_add_options options = {.path = o->path,
                                       .role = o->spare ? MEMBER_SPARE : MEMBER_NORMAL,
                                       .force = o->force,
                                       .disk = e->pool->disk_options};
    uint32_t chunks = 0;
    *ret = (struct engine_disk_change){0};
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = pool_member_look(e->pool, &options, &chunks, reterr);
    }
    if (err == OK) {
        struct segment_room after = segment_room_all(&e->table);
        if (!o->spare) {
            after.chunks[after.count++] = chunks;
        }
        forecast(e, &after, ret);
        ret->size_bytes = (uint64_t)chunks * e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
        err = o->dry_run ? OK : add_member(e, &options, &ret->member, reterr);
    }
    fiber_lock_release(&e->members);
    return err;
}

/* ---- removing ---- */

static int check_remove(struct engine *e, uint32_t member, bool force,
                        const struct engine_disk_change *change, struct errmsg *reterr) {
    const struct member_phys *m = &e->pool->super.members[member];
    if (m->role == MEMBER_SPARE && m->state == MEMBER_IN_SYNC) {
        return OK;
    }
    if (m->state == MEMBER_MISSING) {
        return change->lost_bytes == 0 || force
                   ? OK
                   : errmsg_set(reterr, ERR_DATA_LOSS,
                                "disk %" PRIu32 " is missing, and %" PRIu64
                                " bytes of data cannot be had without it: bring it back, or "
                                "remove it with --force and lose them",
                                member, change->lost_bytes);
    }
    if (pool_storing_count(e->pool) <= 1) {
        return errmsg_set(reterr, ERR_INVALID,
                          "disk %" PRIu32 " is the last one of pool %s: add another first", member,
                          e->pool->super.name);
    }
    if (!change->storable && !force) {
        return errmsg_set(reterr, ERR_INVALID,
                          "without disk %" PRIu32 " pool %s has too few disks for the profiles of "
                          "its volumes: add one first, or use --force to keep them with less "
                          "protection",
                          member, e->pool->super.name);
    }
    if (change->storable && !change->fits) {
        return errmsg_set(
            reterr, ERR_NO_SPACE,
            "what pool %s holds (%" PRIu64 " bytes) does not fit without disk %" PRIu32 " (%" PRIu64
            " bytes): add a disk first, or delete something",
            e->pool->super.name, change->used_bytes, member, change->usable_after_bytes);
    }
    return OK;
}

static int check_member(const struct engine *e, uint32_t member, struct errmsg *reterr) {
    if (member >= e->pool->super.member_count ||
        e->pool->super.members[member].state == MEMBER_NONE) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no disk %" PRIu32,
                          e->pool->super.name, member);
    }
    return OK;
}

static int start_leaving(struct engine *e, uint32_t member, struct errmsg *reterr) {
    int err = pool_member_set_role(e->pool, member, MEMBER_LEAVING, reterr);
    if (err == OK) {
        segment_member_leaves(&e->table, member);
        members_changed(e);
    }
    return err;
}

int engine_disk_remove(struct engine *e, const struct engine_disk_remove_options *o,
                       struct engine_disk_change *ret, struct errmsg *reterr) {
    *ret = (struct engine_disk_change){.member = o->member};
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = check_member(e, o->member, reterr);
    }
    if (err == OK) {
        struct segment_room after = room_of_others(e, o->member);
        forecast(e, &after, ret);
        ret->move_bytes =
            (uint64_t)(e->table.chunk_count[o->member] - e->table.chunk_free[o->member]) *
            e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
        ret->lost_bytes = e->pool->super.members[o->member].state == MEMBER_MISSING
                              ? only_there(e, o->member)
                              : 0;
        err = check_remove(e, o->member, o->force, ret, reterr);
    }
    if (err == OK && !o->dry_run && !pool_member_is_leaving(e->pool, o->member)) {
        err = start_leaving(e, o->member, reterr);
    }
    fiber_lock_release(&e->members);
    return err;
}

int engine_disk_keep(struct engine *e, uint32_t member, struct errmsg *reterr) {
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = check_member(e, member, reterr);
    }
    if (err == OK && !pool_member_is_leaving(e->pool, member)) {
        err = errmsg_set(reterr, ERR_INVALID, "disk %" PRIu32 " is not being removed", member);
    }
    if (err == OK) {
        err = pool_member_set_role(e->pool, member, MEMBER_NORMAL, reterr);
    }
    if (err == OK) {
        members_changed(e);
    }
    fiber_lock_release(&e->members);
    return err;
}

/* ---- replacing ---- */

int engine_disk_replace(struct engine *e, uint32_t member, const struct engine_disk_add_options *o,
                        struct engine_disk_change *ret, struct errmsg *reterr) {
    struct pool_add_options options = {
        .path = o->path, .force = o->force, .disk = e->pool->disk_options};
    uint32_t chunks = 0;
    *ret = (struct engine_disk_change){0};
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = check_member(e, member, reterr);
    }
    if (err == OK) {
        err = pool_member_look(e->pool, &options, &chunks, reterr);
    }
    if (err == OK) {
        struct segment_room after = room_of_others(e, member);
        after.chunks[after.count++] = chunks;
        forecast(e, &after, ret);
        ret->size_bytes = (uint64_t)chunks * e->pool->super.geometry.chunk_blocks * BLOCK_BYTES;
        if (!ret->fits && e->pool->super.members[member].state == MEMBER_IN_SYNC) {
            err = errmsg_set(reterr, ERR_NO_SPACE,
                             "what pool %s holds does not fit with %s in place of disk %" PRIu32
                             ": use a larger disk",
                             e->pool->super.name, o->path, member);
        }
    }
    if (err == OK && !o->dry_run) {
        err = add_member(e, &options, &ret->member, reterr);
        if (err == OK && !pool_member_is_leaving(e->pool, member)) {
            err = start_leaving(e, member, reterr);
        }
    }
    fiber_lock_release(&e->members);
    return err;
}

/* ---- taking out ---- */

/* Whether every segment can be read without the member, and the log and the pool's own structures
 * have another copy. */
static bool can_spare(struct engine *e, uint32_t member) {
    bool spared = pool_storing_count(e->pool) > 1 && e->pool->super.meta_copies > 1;
    for (uint32_t i = 0; i < e->table.slot_count && spared; i++) {
        const struct segment *s = e->table.slots[i];
        if (s == NULL) {
            continue;
        }
        uint32_t gone = segment_unreadable(&e->table, s);
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            gone |= s->column[c].disk == member ? 1u << c : 0;
        }
        spared = (uint32_t)__builtin_popcount(gone) <= shape_losses(s->shape);
    }
    LIST_FOR_EACH(link, &e->volumes) { /* what is in memory only, or written from now on */
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        spared &= profile_losses((enum profile)v->phys.profile) > 0;
    }
    return spared;
}

static int check_fail(struct engine *e, uint32_t member, struct errmsg *reterr) {
    const char *name = e->pool->super.name;
    struct engine_rebuild_status status;
    rebuild_status(e, &status);
    if (!status.whole || pool_in_sync_count(e->pool) < 2) {
        return errmsg_set(reterr, ERR_INVALID,
                          "pool %s is not fully redundant now: no disk can be taken out", name);
    }
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        const struct member_phys *other = &e->pool->super.members[m];
        if (other->state != MEMBER_NONE &&
            (other->state != MEMBER_IN_SYNC || other->role == MEMBER_LEAVING)) {
            return errmsg_set(reterr, ERR_INVALID,
                              "disk %" PRIu32 " of pool %s is missing or leaving: no other can be "
                              "taken out",
                              m, name);
        }
    }
    return can_spare(e, member)
               ? OK
               : errmsg_set(reterr, ERR_INVALID,
                            "pool %s holds data or volumes without redundancy: disk %" PRIu32
                            " cannot be taken out",
                            name, member);
}

int engine_disk_fail(struct engine *e, uint32_t member, uint64_t wait_ns, struct errmsg *reterr) {
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = check_member(e, member, reterr);
    }
    if (err == OK) {
        err = check_fail(e, member, reterr);
    }
    if (err == OK) {
        e->rebuild.wait_ns[member] = wait_ns;
        pool_expel(e->pool, member, "it was taken out on request");
        err = pool_settle(e->pool);
        err = err == OK ? OK
                        : errmsg_set(reterr, err,
                                     "pool %s could not record that disk %" PRIu32 " is out (%s)",
                                     e->pool->super.name, member, error_text(err));
    }
    fiber_lock_release(&e->members);
    return err;
}

/* ---- what goes on by itself (from the rebuild fiber) ---- */

/* Members that are to leave and hold nothing any more. */
static void drop_empty(struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        bool in_sync = pool_member_in_sync(e->pool, m);
        if (!pool_member_is_leaving(e->pool, m) || !segment_member_is_empty(&e->table, m) ||
            segment_member_keeps_slots(&e->table, m) ||
            (in_sync && (!log_member_is_idle(e->log, m) || pool_storing_count(e->pool) == 0))) {
            continue;
        }
        struct errmsg why = {0};
        if (pool_member_drop(e->pool, m, &why) != OK &&
            e->pool->super.members[m].state != MEMBER_NONE) {
            continue; /* too few disks are left: nothing is written any more */
        }
        segment_member_dropped(&e->table, m);
        e->expelled_why[m][0] = '\0';
        e->rebuild.removed++;
        members_changed(e);
    }
}

/* A lost disk's columns find no place elsewhere: a spare takes some. */
static void use_spare(struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (pool_member_in_sync(e->pool, m) && e->pool->super.members[m].role == MEMBER_SPARE) {
            struct errmsg ignored = {0};
            if (pool_member_set_role(e->pool, m, MEMBER_NORMAL, &ignored) == OK) {
                e->rebuild.spares_used++;
                members_changed(e);
            }
            return;
        }
    }
}

bool members_wait_for_checkpoint(const struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (pool_member_is_leaving(e->pool, m) && segment_member_is_empty(&e->table, m)) {
            return true;
        }
    }
    return false;
}

void members_tend(struct engine *e) {
    fiber_lock_take(&e->members);
    if (e->state == ENGINE_RUNNING) {
        if (copies_due(e) > e->pool->meta_copies) { /* the power failed when a disk was added */
            struct errmsg ignored = {0};            /* tried again by the next mount */
            int weak = strengthen(e, &ignored);
            (void)weak;
        }
        drop_empty(e);
        if (rebuild_needs_disk(e)) {
            use_spare(e);
        }
    }
    fiber_lock_release(&e->members);
}

/* ---- coming back ---- */

static int take_back(struct engine *e, uint32_t m, const char *path, struct errmsg *reterr) {
    int err = pool_member_return(e->pool, m, path, &e->pool->disk_options, reterr);
    if (err == OK) {
        err = pool_member_admit(e->pool, m, reterr);
    }
    if (err == OK) {
        e->expelled_why[m][0] = '\0';
        e->rebuild.returned++;
        rebuild_member_back(e, m);
        members_changed(e);
    }
    return err;
}

/* Whether it may be taken back by itself: it was gone, and did not fail. */
static bool may_return(const struct engine *e, uint32_t m) {
    const struct member_phys *member = &e->pool->super.members[m];
    return member->state == MEMBER_MISSING && member->role != MEMBER_LEAVING &&
           e->rebuild.gone[m] && env_now_ns(e->env) >= e->rebuild.return_at_ns[m];
}

void members_look_for_missing(struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        if (!may_return(e, m) || e->state != ENGINE_RUNNING) {
            continue;
        }
        char path[256];
        struct errmsg why = {0};
        (void)snprintf(path, sizeof(path), "%s", pool_member_path(e->pool, m));
        fiber_lock_take(&e->members);
        int err = e->state == ENGINE_RUNNING && may_return(e, m) ? take_back(e, m, path, &why)
                                                                 : ERR_CANCELLED;
        fiber_lock_release(&e->members);
        e->rebuild.return_pause_ns[m] =
            MIN(MAX(e->rebuild.return_pause_ns[m] * 2, RETURN_LEAST_NS), RETURN_MOST_NS);
        e->rebuild.return_at_ns[m] = env_now_ns(e->env) + e->rebuild.return_pause_ns[m];
        if (err == ERR_STALE || err == ERR_FOREIGN) {
            (void)snprintf(e->pool->why[m], sizeof(e->pool->why[m]), "%.255s", why.text);
        }
    }
}

int engine_disk_return(struct engine *e, uint32_t member, const char *path, struct errmsg *reterr) {
    fiber_lock_take(&e->members);
    int err = check_running(e, reterr);
    if (err == OK) {
        err = check_member(e, member, reterr);
    }
    if (err == OK && e->pool->super.members[member].state != MEMBER_MISSING) {
        err = errmsg_set(reterr, ERR_INVALID, "disk %" PRIu32 " is not missing", member);
    }
    if (err == OK) {
        err = take_back(e, member, path, reterr);
    }
    fiber_lock_release(&e->members);
    return err;
}
