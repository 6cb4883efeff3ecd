// SPDX-License-Identifier: MPL-2.0
/* Superblocks of a pool that is open: taking it, committing, expelling.
 *
 * Theory. All superblock writes go through pool_super_write(), one at a time (the lock). It writes
 * priv->next to every member that is in sync, at the front and the back at once, into the slots of
 * its sequence's parity; the slots of the other parity hold the superblock before it, which all
 * these members have, so that a tear leaves the old one. Only when all of them have it is it done.
 * A member that fails is expelled: the superblock then names it MISSING, in a new config epoch, and
 * takes the next sequence; the one just written is its parent, and the remaining members have it.
 * Expulsions that arrive meanwhile join the next round.
 *
 *   asked ──round──> all wrote it? ──yes──> expulsions meanwhile? ──no──> witness (if new epoch)
 *     ^                  no │                        yes │                        │
 *     └───── expel, epoch + 1 ─ sequence + 1 ────────────┘                      done
 *
 * Before each round the quorum is checked: the remaining members and the witness must decide
 * against those that were lost since the last configuration that became durable, and fewer may be
 * lost at once than the log has copies. Otherwise nothing more is written ever (failed): the disks
 * keep the configuration they have, and when the others come back nothing was acknowledged without
 * them.
 *
 * Invariant 13 rests on this and on choose.c; invariant 1 on pool_settle(). */
#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "pool/internal.h"

/* ---- members ---- */

bool pool_member_in_sync(const struct pool *pool, uint32_t member) {
    ASSERT_LT(member, POOL_DISKS_MAX);
    return pool->super.members[member].state == MEMBER_IN_SYNC;
}

static uint32_t in_sync_count(const struct super_phys *s) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < s->member_count; m++) {
        count += s->members[m].state == MEMBER_IN_SYNC;
    }
    return count;
}

static uint64_t in_sync_mask(const struct super_phys *s) {
    uint64_t mask = 0;
    for (uint32_t m = 0; m < s->member_count; m++) {
        mask |= s->members[m].state == MEMBER_IN_SYNC ? 1ull << m : 0;
    }
    return mask;
}

uint32_t pool_in_sync_count(const struct pool *pool) {
    return in_sync_count(&pool->super);
}

bool pool_member_stores(const struct pool *pool, uint32_t member) {
    return pool_member_in_sync(pool, member) && pool->super.members[member].role == MEMBER_NORMAL;
}

uint32_t pool_storing_count(const struct pool *pool) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        count += pool_member_stores(pool, m);
    }
    return count;
}

bool pool_member_is_leaving(const struct pool *pool, uint32_t member) {
    const struct member_phys *m = &pool->super.members[member];
    return m->state != MEMBER_NONE && m->role == MEMBER_LEAVING;
}

/* ---- writing copies ---- */

struct member_write {
    struct disk_io io[2];
    struct fiber_group *group;
    int error;
};

static void copy_written(struct disk_io *io) {
    struct member_write *w = io->owner;
    if (io->result != OK) {
        w->error = io->result;
    }
    fiber_group_done(w->group, OK);
}

void super_write_copies(struct disk *const *disks, const struct super_phys *super,
                        const uint8_t *copies, uint64_t *ret_failed) {
    struct member_write *writes = MEM_NEW_ARRAY(struct member_write, super->member_count);
    struct fiber_group group = FIBER_GROUP_INIT;
    for (uint32_t m = 0; m < super->member_count; m++) {
        struct member_write *w = &writes[m];
        w->group = &group;
        for (uint32_t copy = 0; copy < 2; copy++) {
            if ((copies[m] & (1u << copy)) == 0) {
                continue;
            }
            const struct member_phys *member = &super->members[m];
            uint64_t block =
                layout_super_block(2 * copy + (uint32_t)(super->sequence & 1), member->disk_blocks);
            struct buf *buf = buf_new(SUPER_BYTES);
            memset(buf->data, 0, SUPER_BYTES);
            memcpy(buf->data, super, sizeof(*super));
            super_seal((struct super_phys *)(void *)buf->data, &member->disk, block);
            w->io[copy] = (struct disk_io){.op = ENV_IO_WRITE,
                                           .durable = true,
                                           .offset_bytes = block * BLOCK_BYTES,
                                           .length_bytes = SUPER_BYTES,
                                           .buf = buf,
                                           .done = copy_written,
                                           .owner = w};
            fiber_group_add(&group);
            disk_submit(disks[m], &w->io[copy]);
            buf_unref(buf);
        }
    }
    int ignored = fiber_group_wait(&group); /* each member has its own error */
    (void)ignored;
    *ret_failed = 0;
    for (uint32_t m = 0; m < super->member_count; m++) {
        *ret_failed |= writes[m].error != OK ? 1ull << m : 0;
    }
    mem_free(writes);
}

/* ---- expulsion ---- */

static void notify_run(struct env_task *task) {
    struct pool_private *p = CONTAINER_OF(task, struct pool_private, notify_task);
    struct pool *pool = p->pool;
    p->notify_queued = false;
    uint64_t members = p->notify_members;
    p->notify_members = 0;
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        if ((members & (1ull << m)) != 0 && pool->expelled != NULL) {
            pool->expelled(pool->owner, m, pool->why[m]);
        }
    }
}

void pool_notify_init(struct pool_private *p) {
    p->notify_task.run = notify_run;
}

/* In memory only; whoever calls makes sure that pool_super_write() follows. */
static void mark_expelled(struct pool *pool, uint32_t member, const char *why) {
    struct pool_private *p = pool->private_state;
    pool->super.members[member].state = MEMBER_MISSING;
    (void)snprintf(pool->why[member], sizeof(pool->why[member]), "%s", why);
    if (pool->disks[member] != NULL) {
        disk_abandon(pool->disks[member]); /* who waits for it waits no longer than for the first */
    }
    p->expel_asked++;
    p->notify_members |= 1ull << member;
    if (!p->notify_queued) {
        p->notify_queued = true;
        env_defer(pool->env, &p->notify_task);
    }
}

static void mark_failed_writers(struct pool *pool, uint64_t failed) {
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        if ((failed & (1ull << m)) != 0 && pool_member_in_sync(pool, m)) {
            char why[128];
            (void)snprintf(why, sizeof(why), "%.96s: writing a superblock failed",
                           disk_info(pool->disks[m])->path);
            mark_expelled(pool, m, why);
        }
    }
}

/* ---- super_write ---- */

static int witness_update(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    p->witness_error = witness_write(pool->env, &pool->super);
    p->witness_due = p->witness_error != OK;
    if (p->witness_error == OK) {
        p->point = (struct settled_point){pool->super.config_epoch, pool->super.mount_generation,
                                          pool->super.mount_id, true};
        p->current = (struct electorate){in_sync_mask(&pool->super), true};
        p->settled = p->current;
    }
    return p->witness_error;
}

/* Members that were lost since go MISSING in `next`, in a new epoch. */
static void take_over_expulsions(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    struct super_phys *next = &p->next;
    bool changed = p->new_epoch;
    next->config_epoch += changed ? 1 : 0;
    p->new_epoch = false;
    for (uint32_t m = 0; m < next->member_count; m++) {
        if (next->members[m].state != MEMBER_IN_SYNC || pool_member_in_sync(pool, m) ||
            (p->admitting >> m & 1) != 0) {
            continue;
        }
        if (!changed) {
            changed = true;
            next->config_epoch++;
        }
        next->members[m].state = MEMBER_MISSING;
        next->members[m].state_epoch = next->config_epoch;
        /* It has nothing of this mount, nor will have. */
        bool absent = pool->disks[m] == NULL && p->informed_disks[m] == NULL;
        next->members[m].state_generation =
            absent ? pool->super.mount_generation : next->mount_generation;
        next->members[m].state_mount_id = absent ? pool->super.mount_id : next->mount_id;
        next->members[m].state_sequence = p->has_sequence[m];
    }
}

/* The elections of choose.c once more, with what is left now. While the pool is in use the two are
 * the same and this host is the witness. */
static bool may_write(const struct pool *pool) {
    const struct pool_private *p = pool->private_state;
    uint64_t left = in_sync_mask(&p->next);
    if (p->unchecked) {
        return left != 0;
    }
    uint64_t lost = p->current.members & ~left & ~p->emptied;
    return electorate_decides(&p->current, left) &&
           electorate_decides(&p->settled, left | p->informed) &&
           (uint32_t)__builtin_popcountll(lost) < pool->super.meta_copies;
}

static int super_fail(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    p->failed = true;
    fiber_queue_wake_all(&p->settle_queue);
    return ERR_QUORUM;
}

/* Writes p->next to all that get it; expels those of its members that fail. */
static void super_round(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    const struct super_phys *next = &p->next;
    uint8_t copies[POOL_DISKS_MAX] = {0};
    struct disk *disks[POOL_DISKS_MAX];
    uint64_t failed;
    for (uint32_t m = 0; m < next->member_count; m++) {
        bool in_sync = next->members[m].state == MEMBER_IN_SYNC;
        disks[m] = in_sync ? pool->disks[m] : p->informed_disks[m];
        copies[m] = disks[m] != NULL ? 3 : 0;
    }
    super_write_copies(disks, next, copies, &failed);
    p->informed &= ~failed;
    p->round_failed |= failed;
    for (uint32_t m = 0; m < next->member_count; m++) {
        if (disks[m] != NULL && (failed >> m & 1) == 0) {
            p->has_sequence[m] = next->sequence;
        }
    }
    if ((failed & p->admitting) != 0) { /* it stays out: the next round says so */
        p->admitting &= ~failed;
        p->expel_asked++;
    }
    mark_failed_writers(pool, failed);
}

int pool_super_write(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    struct super_phys *next = &p->next;
    uint64_t asked;
    ASSERT(!pool->read_only);
    next->settled_epoch = p->point.epoch;
    next->settled_generation = p->point.generation;
    next->settled_mount_id = p->point.mount_id;
    p->round_failed = 0;
    do {
        asked = p->expel_asked;
        take_over_expulsions(pool);
        if (p->failed || !may_write(pool)) {
            return super_fail(pool);
        }
        next->sequence++;
        next->parent_mount_id = p->parent_mount_id;
        next->wall_ns = env_wall_ns(pool->env);
        ASSERT_EQ(super_validate(next), OK);
        super_round(pool);
        p->parent_mount_id = next->mount_id; /* the members that are left have it */
    } while (p->expel_asked != asked);
    if (!may_write(pool)) { /* one that was to be told could not be told */
        return super_fail(pool);
    }
    pool->super = *next;
    p->expel_durable = asked;
    int error = OK;
    if (next->config_epoch != p->point.epoch || p->witness_due) {
        p->witness_due = true;
        error = witness_update(pool);
    }
    fiber_queue_wake_all(&p->settle_queue);
    return error;
}

struct super_phys *pool_super_begin(struct pool *pool) {
    struct super_phys *next = &pool->private_state->next;
    ASSERT_EQ(next->sequence, pool->super.sequence);
    for (uint32_t m = 0; m < next->member_count; m++) {
        uint8_t state = next->members[m].state; /* the other fields of the state go with it */
        next->members[m] = pool->super.members[m];
        next->members[m].state = state;
    }
    next->meta_copies = pool->super.meta_copies;
    return next;
}

int pool_commit(struct pool *pool, const struct roots_phys *roots, const uint64_t *ring_tails,
                uint64_t flags, uint32_t meta_copies) {
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    ASSERT(p->taken);
    int error = ERR_QUORUM;
    if (!p->failed) {
        struct super_phys *next = pool_super_begin(pool);
        next->roots = *roots;
        next->flags = flags;
        next->meta_copies = meta_copies;
        next->checkpoint++;
        for (uint32_t m = 0; ring_tails != NULL && m < next->member_count; m++) {
            next->members[m].ring_tail = ring_tails[m];
        }
        error = pool_super_write(pool);
    }
    fiber_lock_release(&p->lock);
    return error;
}

static void settle_fiber(void *arg) {
    struct pool *pool = arg;
    struct pool_private *p = pool->private_state;
    fiber_lock_take(&p->lock);
    if (!p->failed && !pool_is_settled(pool)) {
        pool_super_begin(pool);
        int error = pool_super_write(pool); /* pool_settle() finds out by itself */
        (void)error;
    }
    p->settling = false;
    fiber_queue_wake_all(&p->settle_queue);
    fiber_lock_release(&p->lock);
}

static void settle_start(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    if (p->taken && !p->failed && !p->settling) {
        p->settling = true;
        fiber_start(pool->env, settle_fiber, pool);
    }
}

void pool_expel(struct pool *pool, uint32_t member, const char *why) {
    if (pool->read_only || !pool_member_in_sync(pool, member)) {
        return;
    }
    mark_expelled(pool, member, why);
    settle_start(pool);
}

bool pool_is_settled(const struct pool *pool) {
    const struct pool_private *p = pool->private_state;
    return !p->failed && !p->witness_due && p->expel_durable == p->expel_asked;
}

int pool_settle(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    const uint64_t asked = p->expel_asked;
    bool tried = false;
    ASSERT(p->taken);
    while (!p->failed && (p->expel_durable < asked || p->witness_due)) {
        if (!p->settling && tried && p->witness_due) {
            return p->witness_error; /* the next call tries again */
        }
        tried = true;
        settle_start(pool);
        fiber_queue_wait(&p->settle_queue);
    }
    return p->failed ? ERR_QUORUM : OK;
}

void pool_probe(struct pool *pool) {
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        struct errmsg why = {0};
        if (pool_member_in_sync(pool, m) && pool->disks[m] != NULL) {
            int error = env_disk_probe(disk_env(pool->disks[m]), &why);
            if (error != OK) {
                errmsg_set(&why, error, "%s is gone", disk_info(pool->disks[m])->path);
                disk_note(pool->disks[m], DISK_ERROR_READ, 0, 0, why.text);
                pool_expel(pool, m, why.text);
            }
        }
    }
}

/* ---- taking ---- */

/* Completes the superblock that was chosen on every voter, and restores damaged copies of it. */
static void complete_supers(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    uint64_t failed;
    super_write_copies(pool->disks, &pool->super, p->repair_super, &failed);
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        if (p->repair_super[m] == 0) {
            continue;
        }
        if ((failed & (1ull << m)) == 0) {
            disk_note(pool->disks[m], DISK_ERROR_REPAIRED, 0, SUPER_BYTES,
                      "superblock written again");
        }
        p->repair_super[m] = 0;
    }
    mark_failed_writers(pool, failed);
}

static void repair_labels(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        for (uint32_t copy = 0; copy < 2; copy++) {
            if ((p->repair_label[m] & (1u << copy)) == 0 || !pool_member_in_sync(pool, m)) {
                continue;
            }
            struct buf *buf = buf_new(BLOCK_BYTES);
            uint64_t block = copy == 0 ? LABEL_BLOCK : p->labels[m].disk_blocks - 1;
            memset(buf->data, 0, BLOCK_BYTES);
            memcpy(buf->data, &p->labels[m], sizeof(p->labels[m]));
            label_seal((struct label_phys *)(void *)buf->data, block);
            if (disk_write(pool->disks[m], block * BLOCK_BYTES, BLOCK_BYTES, buf, 0, true) == OK) {
                disk_note(pool->disks[m], DISK_ERROR_REPAIRED, block * BLOCK_BYTES, BLOCK_BYTES,
                          "label written again");
            } else if (pool_member_in_sync(pool, m)) {
                mark_expelled(pool, m, "writing its label failed");
            }
            buf_unref(buf);
        }
        p->repair_label[m] = 0;
    }
}

/* Everything of the new mount's first superblock but what pool_super_write() fills in. */
static void prepare_mount(struct pool *pool) {
    struct pool_private *p = pool->private_state;
    struct super_phys *next = &p->next;
    next->mount_generation = MAX(next->mount_generation, p->generation_floor) + 1;
    do {
        env_random(pool->env, &next->mount_id, sizeof(next->mount_id));
    } while (next->mount_id == 0);
    next->flags = 0;
    memcpy(next->host, p->host, sizeof(next->host));
    bool tells = false;
    for (uint32_t m = 0; m < next->member_count; m++) {
        tells = tells || p->informed_disks[m] != NULL;
    }
    if (p->forced || tells) { /* newer than whatever they carry */
        next->config_epoch = MAX(next->config_epoch, p->epoch_floor);
        p->new_epoch = true;
    }
    for (uint32_t m = 0; m < next->member_count; m++) {
        if (pool->disks[m] != NULL) {
            (void)snprintf(next->members[m].path_hint, sizeof(next->members[m].path_hint), "%.55s",
                           disk_info(pool->disks[m])->path);
            memcpy(pool->super.members[m].path_hint, next->members[m].path_hint,
                   sizeof(next->members[m].path_hint));
        } else if (pool_member_in_sync(pool, m)) {
            pool->super.members[m].state = MEMBER_MISSING; /* absent; its `why` is set */
        }
    }
}

static void close_informed(struct pool_private *p) {
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        disk_close(p->informed_disks[m]);
        p->informed_disks[m] = NULL;
    }
    p->informed = 0;
}

/* Nothing is written near the end of a counter. A mount may write as many superblocks as it likes:
 * half of what there is to count is left for it. */
static int refuse_last_counters(const struct pool *pool, struct errmsg *reterr) {
    const struct pool_private *p = pool->private_state;
    const struct super_phys *s = &pool->super;
    if (MAX(s->mount_generation, p->generation_floor) + 1 >= GENERATION_END) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "pool %s has been imported 2147483647 times, as often as a pool can be: "
                          "it can be checked, but not imported any more",
                          s->name);
    }
    uint64_t epoch = MAX(s->config_epoch, p->epoch_floor);
    uint64_t count = MAX(s->sequence, s->checkpoint);
    if (MAX(epoch, count) >= COUNTER_END / 2) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "pool %s has counted its superblocks to the end: it can be checked, but "
                          "not imported any more",
                          s->name);
    }
    return OK;
}

int pool_take(struct pool *pool, struct errmsg *reterr) {
    struct pool_private *p = pool->private_state;
    ASSERT(!pool->read_only && !p->taken);
    int error = refuse_last_counters(pool, reterr);
    if (error != OK) {
        return error;
    }
    error = host_ensure(pool->env, p->host);
    if (error != OK) {
        return errmsg_set(reterr, error,
                          "pool %s: this host cannot keep its state (%s); check its state folder",
                          pool->super.name, error_text(error));
    }
    fiber_lock_take(&p->lock);
    complete_supers(pool);
    repair_labels(pool);
    prepare_mount(pool);
    p->unchecked = p->forced;
    p->witness_due = true;
    error = pool_super_write(pool);
    p->unchecked = false;
    p->taken = error == OK;
    close_informed(p);
    fiber_lock_release(&p->lock);
    if (error == ERR_QUORUM) {
        return errmsg_set(reterr, error,
                          "pool %s: too many of its disks failed while it was taken; look at the "
                          "disks and import again",
                          pool->super.name);
    }
    return error == OK ? OK
                       : errmsg_set(reterr, error,
                                    "pool %s: this host cannot keep its state (%s); check its "
                                    "state folder",
                                    pool->super.name, error_text(error));
}

/* ---- closing ---- */

void pool_close(struct pool *pool) {
    if (pool == NULL) {
        return;
    }
    struct pool_private *p = pool->private_state;
    while (p->settling) {
        fiber_queue_wait(&p->settle_queue);
    }
    while (p->notify_queued) {
        fiber_yield(); /* it is in the loop's queue already */
    }
    fiber_lock_take(&p->lock);
    fiber_lock_release(&p->lock);
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        disk_close(pool->disks[m]);
    }
    close_informed(p);
    pool_graves_close(pool);
    mem_free(p);
    mem_free(pool);
}
