// SPDX-License-Identifier: MPL-2.0
/* Members that come and go while a pool is in use.
 *
 * Every change is a superblock, written like any other (pool.c), in a new configuration epoch where
 * it changes who decides. The steps, and what a crash between them finds:
 *
 *     add      wipe, label        a disk with a label of the pool, which no superblock knows: it
 *                                 may be added again
 *              listed as MISSING  the same; the disk has this superblock, too: it was *told*
 *              IN_SYNC, epoch+1   a member, or not yet
 *     return   told               still MISSING
 *              IN_SYNC, epoch+1   a member again, or not yet
 *     drop     MISSING, epoch+1   a member that holds nothing, or the same, shut out
 *              no member          gone
 *              wiped              its number is free for others, in a later mount
 *     role     epoch+1            the old or the new one
 *
 * Being told matters for elections (choose.c): a member has a vote for a superblock when it carries
 * that one or the one before. So a disk is told before it is admitted; and one that is dropped is
 * told, so that it cannot vote for the past.
 *
 * A disk that comes back is taken back only if what it carries is this pool's past, and no older
 * than what it certainly had when it was left out: it must be the same disk of the same pool; its
 * superblock must not be of a mount that those who left it out know nothing of (the other side of a
 * split); and its number must be at least state_sequence (an image that was set back, a clone of
 * earlier times). Then its chunks hold what the table says of them: nothing was written to them
 * since, and nothing that was given up may still be on its way there. */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "pool/internal.h"

static int refuse_failed(const struct pool *pool, struct errmsg *reterr) {
    return errmsg_set(reterr, ERR_QUORUM,
                      "pool %s: too few of its disks are left to decide about its disks",
                      pool->super.name);
}

/* ---- roles ---- */

int pool_member_set_role(struct pool *pool, uint32_t member, enum member_role role,
                         struct errmsg *reterr) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    int error = p->failed ? ERR_QUORUM : OK;
    if (error == OK) {
        pool_super_begin(pool)->members[member].role = (uint8_t)role;
        p->new_epoch = true;
        error = pool_super_write(pool);
    }
    fiber_lock_release(&p->lock);
    return error == OK ? OK : refuse_failed(pool, reterr);
}

/* It is no disk of the pool any more; what was given up on it may still come. */
static void bury(struct pool *pool, uint32_t member) {
    struct disk *disk = pool->disks[member];
    pool->disks[member] = NULL;
    disk_abandon(disk);
    disk_let_go(disk);
    ASSERT_LT(pool->grave_count, POOL_DISKS_MAX); /* each number is given once in a mount */
    pool->graves[pool->grave_count++] = disk;
}

/* ---- a superblock that lists a member as missing, on its own disk as well ---- */

static int tell(struct pool *pool, uint32_t member, const struct member_phys *entry,
                struct errmsg *reterr) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    int error = p->failed ? ERR_QUORUM : OK;
    if (error == OK) {
        struct super_phys *next = pool_super_begin(pool);
        next->member_count = MAX(next->member_count, member + 1);
        if (entry != NULL) {
            next->members[member] = *entry;
            next->members[member].state_epoch = p->point.epoch; /* no part of what is settled */
            p->used |= 1ull << member;
        }
        next->members[member].state_generation = next->mount_generation;
        next->members[member].state_mount_id = next->mount_id;
        p->informed_disks[member] = pool->disks[member];
        error = pool_super_write(pool);
        p->informed_disks[member] = NULL;
    }
    bool told = (p->round_failed >> member & 1) == 0;
    fiber_lock_release(&p->lock);
    if (error != OK) {
        return refuse_failed(pool, reterr);
    }
    return told ? OK
                : errmsg_set(reterr, ERR_IO, "%s: writing a superblock to it failed",
                             disk_info(pool->disks[member])->path);
}

int pool_member_admit(struct pool *pool, uint32_t member, struct errmsg *reterr) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    int error = p->failed ? ERR_QUORUM : OK;
    if (error == OK) {
        struct super_phys *next = pool_super_begin(pool);
        struct member_phys *m = &next->members[member];
        m->state = MEMBER_IN_SYNC;
        m->state_epoch = next->config_epoch + 1;
        (void)snprintf(m->path_hint, sizeof(m->path_hint), "%.55s",
                       disk_info(pool->disks[member])->path);
        p->new_epoch = true;
        p->admitting = 1ull << member;
        error = pool_super_write(pool);
        p->admitting = 0;
    }
    if (!pool_member_in_sync(pool, member)) {
        disk_abandon(pool->disks[member]); /* so that it can be let go */
    }
    fiber_lock_release(&p->lock);
    if (error == OK && !pool_member_in_sync(pool, member)) {
        return errmsg_set(reterr, ERR_IO, "%s: writing a superblock to it failed",
                          disk_info(pool->disks[member])->path);
    }
    if (error != OK) {
        return refuse_failed(pool, reterr);
    }
    pool->why[member][0] = '\0';
    return OK;
}

/* ---- adding ---- */

static int check_new_disk(const struct pool *pool, const struct pool_add_options *o,
                          const struct probe *p, struct errmsg *reterr) {
    if (p->disk == NULL) {
        return errmsg_set(reterr, p->problem.code, "%s", p->problem.text);
    }
    bool ours = p->labelled && uuid_equal(&p->label.pool, &pool->super.pool);
    for (uint32_t m = 0; ours && m < pool->super.member_count; m++) {
        const struct member_phys *member = &pool->super.members[m];
        if (member->state != MEMBER_NONE && uuid_equal(&member->disk, &p->label.disk) &&
            !o->force) {
            return errmsg_set(reterr, ERR_EXISTS,
                              "%s is disk %" PRIu32 " of this pool, which is missing: it is taken "
                              "back by itself; to use it as a new disk, remove disk %" PRIu32
                              " and add it with --force",
                              p->path, m, m);
        }
    }
    if (o->force || ours) { /* what an add that was broken off has left */
        return OK;
    }
    if (p->labelled) {
        return errmsg_set(reterr, ERR_EXISTS,
                          "%s is disk %" PRIu32 " of pool %s; --force destroys what it holds",
                          p->path, p->label.member, p->label.pool_name);
    }
    if (p->problem.code == ERR_UNSUPPORTED || p->label_copies[0] == COPY_UNSUPPORTED) {
        return errmsg_set(reterr, ERR_EXISTS,
                          "%s belongs to a pool of a newer holdfast; --force destroys it", p->path);
    }
    return p->problem.code == ERR_FOREIGN
               ? OK /* that is: no label, but readable */
               : errmsg_set(reterr, p->problem.code, "%s", p->problem.text);
}

/* Numbers of members that went in this mount stay unused until the next: rows of the log that are
 * under way know members by their number. */
static uint32_t free_number(const struct pool *pool) {
    uint32_t m = 0;
    while (m < POOL_DISKS_MAX && ((pool->private_state->used >> m) & 1) != 0) {
        m++;
    }
    return m;
}

static int make_entry(struct pool *pool, const struct pool_add_options *o, const struct probe *p,
                      struct member_phys *ret_entry, struct errmsg *reterr) {
    const struct geometry *g = &pool->super.geometry;
    *ret_entry = (struct member_phys){.state = MEMBER_MISSING, .role = (uint8_t)o->role};
    env_random(pool->env, &ret_entry->disk, sizeof(ret_entry->disk));
    ret_entry->disk_blocks = usable_blocks(disk_info(p->disk)->size_bytes);
    ret_entry->chunks = layout_chunk_count(g, ret_entry->disk_blocks);
    ret_entry->device_class = disk_info(p->disk)->rotational ? 0 : 1;
    (void)snprintf(ret_entry->path_hint, sizeof(ret_entry->path_hint), "%.55s", p->path);
    return disk_check_size(g, p, ret_entry->chunks, reterr);
}

/* The entry and the label; then it is listed, and told. */
static int add_probed(struct pool *pool, const struct pool_add_options *o, struct probe *p,
                      uint32_t member, struct errmsg *reterr) {
    struct member_phys entry;
    int error = make_entry(pool, o, p, &entry, reterr);
    if (error != OK) {
        return error;
    }
    struct super_phys *as = MEM_NEW(struct super_phys);
    *as = pool->super;
    as->members[member] = entry;
    error = disk_wipe(p->disk, entry.disk_blocks);
    if (error == OK) {
        error = disk_label(p->disk, as, member);
    }
    mem_free(as);
    if (error != OK) {
        return errmsg_set(reterr, error, "%s: writing to it failed: %s", p->path,
                          error_text(error));
    }
    pool->blocks[member] = entry.disk_blocks;
    pool->disks[member] = p->disk;
    p->disk = NULL; /* is the pool's now */
    error = tell(pool, member, &entry, reterr);
    if (error != OK && pool->super.members[member].state == MEMBER_NONE) {
        bury(pool, member);
    } else if (error != OK) {
        struct errmsg ignored = {0};
        int dropped = pool_member_drop(pool, member, &ignored);
        (void)dropped;
    }
    return error;
}

int pool_member_look(struct pool *pool, const struct pool_add_options *o, uint32_t *ret_chunks,
                     struct errmsg *reterr) {
    const char *paths[] = {o->path};
    struct probe *p = probe_paths(pool->env, paths, 1, &o->disk, true);
    struct member_phys entry;
    int error = check_new_disk(pool, o, p, reterr);
    if (error == OK) {
        error = make_entry(pool, o, p, &entry, reterr);
    }
    if (error == OK) {
        *ret_chunks = entry.chunks;
    }
    probes_free(p, 1);
    return error;
}

int pool_member_add(struct pool *pool, const struct pool_add_options *o, uint32_t *ret_member,
                    struct errmsg *reterr) {
    int error = pool_settle(pool);
    if (error != OK) {
        return refuse_failed(pool, reterr);
    }
    uint32_t member = free_number(pool);
    if (member == POOL_DISKS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "pool %s has had %d disks since it was imported, as many as it can name: "
                          "export and import it, then add more",
                          pool->super.name, POOL_DISKS_MAX);
    }
    const char *paths[] = {o->path};
    struct probe *p = probe_paths(pool->env, paths, 1, &o->disk, false);
    error = check_new_disk(pool, o, p, reterr);
    if (error == OK) {
        error = add_probed(pool, o, p, member, reterr);
    }
    if (error == OK) {
        *ret_member = member;
    }
    probes_free(p, 1);
    return error;
}

/* ---- coming back ---- */

const char *pool_member_path(const struct pool *pool, uint32_t member) {
    return pool->disks[member] != NULL           ? disk_info(pool->disks[member])->path
           : pool->found_path[member][0] != '\0' ? pool->found_path[member]
                                                 : pool->super.members[member].path_hint;
}

static int check_past(const struct pool *pool, uint32_t member, const struct probe *p,
                      struct errmsg *reterr) {
    const struct member_phys *m = &pool->super.members[member];
    const struct super_phys *s = p->super;
    if (p->problem.code != OK || s == NULL) {
        return errmsg_set(reterr, p->problem.code, "%s", p->problem.text);
    }
    if (p->label.member != member || !uuid_equal(&p->label.pool, &pool->super.pool) ||
        !uuid_equal(&p->label.disk, &m->disk) || p->label.disk_blocks != m->disk_blocks ||
        memcmp(&p->label.geometry, &pool->super.geometry, sizeof(pool->super.geometry)) != 0) {
        return errmsg_set(reterr, ERR_FOREIGN, "%s is not disk %" PRIu32 " of pool %s", p->path,
                          member, pool->super.name);
    }
    if (super_went_on(s, m)) {
        return errmsg_set(reterr, ERR_FOREIGN,
                          "%s was used by host %s without the rest of pool %s: it is not taken "
                          "back; wipe it and add it again",
                          p->path, s->host, pool->super.name);
    }
    if (s->sequence < m->state_sequence && !SABOTAGE(stale_returned)) {
        return errmsg_set(reterr, ERR_STALE,
                          "%s is older than disk %" PRIu32 " was when it was lost (its superblock "
                          "is number %" PRIu64 ", it had number %" PRIu64 "): an old copy was put "
                          "back? It is not taken back; wipe it and add it again",
                          p->path, member, s->sequence, m->state_sequence);
    }
    return OK;
}

int pool_member_return(struct pool *pool, uint32_t member, const char *path,
                       const struct disk_options *options, struct errmsg *reterr) {
    ASSERT_EQ(pool->super.members[member].state, MEMBER_MISSING);
    struct disk *old = pool->disks[member];
    if (old != NULL) {
        disk_let_go(old);
        if (!disk_is_drained(old)) { /* it may still write where new things will lie */
            return errmsg_set(reterr, ERR_BUSY, "%s still owes answers", disk_info(old)->path);
        }
    }
    struct probe *p = probe_paths(pool->env, &path, 1, options, false);
    int error = p->disk == NULL ? errmsg_set(reterr, p->problem.code, "%s", p->problem.text)
                                : check_past(pool, member, p, reterr);
    if (error == OK && pool->super.members[member].state != MEMBER_MISSING) {
        error = ERR_CANCELLED;
    }
    if (error == OK) {
        if (old == NULL) {
            pool->disks[member] = p->disk;
        } else {
            disk_take_over(old, p->disk);
        }
        p->disk = NULL;
        pool->private_state->labels[member] = p->label;
        error = tell(pool, member, NULL, reterr);
        if (error != OK) {
            disk_abandon(pool->disks[member]);
        }
    }
    probes_free(p, 1);
    return error;
}

/* ---- going ---- */

static int shut_out(struct pool *pool, uint32_t member) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    int error = p->failed ? ERR_QUORUM : OK;
    if (error == OK && pool_member_in_sync(pool, member)) {
        (void)pool_super_begin(pool);
        pool->super.members[member].state = MEMBER_MISSING; /* taken over by the write */
        p->emptied |= 1ull << member;
        p->informed_disks[member] = pool->disks[member];
        error = pool_super_write(pool);
        p->informed_disks[member] = NULL;
    }
    fiber_lock_release(&p->lock);
    return error == OK ? pool_settle(pool) : error;
}

static int strike_out(struct pool *pool, uint32_t member) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    int error = p->failed ? ERR_QUORUM : OK;
    if (error == OK) {
        struct super_phys *next = pool_super_begin(pool);
        next->members[member] = (struct member_phys){0};
        p->new_epoch = true;
        error = pool_super_write(pool);
    }
    fiber_lock_release(&p->lock);
    return error;
}

int pool_member_drop(struct pool *pool, uint32_t member, struct errmsg *reterr) {
    struct disk *disk = pool->disks[member];
    uint64_t blocks = pool->super.members[member].disk_blocks;
    bool answers = pool_member_in_sync(pool, member);
    ASSERT(pool->super.members[member].state != MEMBER_NONE);
    int error = shut_out(pool, member);
    if (error == OK) {
        error = strike_out(pool, member);
    }
    if (error != OK) {
        return refuse_failed(pool, reterr);
    }
    pool->why[member][0] = '\0';
    if (disk == NULL) {
        return OK;
    }
    if (answers) { /* so that nobody takes it for a disk of this pool; it is none all the same */
        error = disk_wipe(disk, blocks);
    }
    bury(pool, member);
    return error == OK ? OK
                       : errmsg_set(reterr, error,
                                    "disk %" PRIu32 " (%s) is no disk of the pool any more, but "
                                    "its label could not be erased: %s",
                                    member, disk_info(disk)->path, error_text(error));
}

void pool_graves_close(struct pool *pool) {
    for (uint32_t i = 0; i < pool->grave_count; i++) {
        disk_close(pool->graves[i]);
    }
}
