// SPDX-License-Identifier: MPL-2.0
/* From paths to an open pool, and the list of what could be opened.
 *
 * A disk that somebody else holds (a `check` that scans, udev, another service) is not absent: to
 * open the pool without it would shut it out for good. So an open waits a while for such disks, and
 * then refuses. Labels are read of busy disks too, so that only those of this pool matter. */
#include <inttypes.h>
#include <stdio.h>

#include "base/math.h"
#include "base/mem.h"
#include "pool/internal.h"

#define BUSY_PATIENCE_NS (5 * NS_PER_S)
#define BUSY_PAUSE_NS (100 * (uint64_t)NS_PER_MS)

/* ---- which pool ---- */

static void list_paths(const struct probe *probes, uint32_t count, char *text, size_t room) {
    size_t used = 0;
    for (uint32_t i = 0; i < count && used < room; i++) {
        if (probes[i].labelled) {
            used += (size_t)snprintf(text + used, room - used, "; %s belongs to pool %s",
                                     probes[i].path, probes[i].label.pool_name);
        } else {
            used += (size_t)snprintf(text + used, room - used, "; %s", probes[i].problem.text);
        }
    }
}

static int find_pool(const struct probe *probes, uint32_t count, const char *name,
                     struct uuid *ret_pool, struct errmsg *reterr) {
    const struct label_phys *found = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct label_phys *label = &probes[i].label;
        if (!probes[i].labelled || (name != NULL && strcmp(name, label->pool_name) != 0)) {
            continue;
        }
        if (found != NULL && !uuid_equal(&found->pool, &label->pool)) {
            char a[UUID_TEXT_BYTES], b[UUID_TEXT_BYTES];
            uuid_format(&found->pool, a);
            uuid_format(&label->pool, b);
            return errmsg_set(reterr, ERR_INVALID,
                              "the disks hold more than one pool (%s %s, %s %s); name one, or "
                              "give only its disks",
                              found->pool_name, a, label->pool_name, b);
        }
        found = label;
    }
    if (found == NULL) {
        char text[400] = "";
        list_paths(probes, count, text, sizeof(text));
        return errmsg_set(
            reterr, ERR_NOT_FOUND, "no disk of %s%s was found among %" PRIu32 " looked at%s",
            name != NULL ? "pool " : "any pool", name != NULL ? name : "", count, text);
    }
    *ret_pool = found->pool;
    return OK;
}

/* ---- opening ---- */

/* Which copies of the superblock and the label pool_take() has to write again. */
static void note_repairs(const struct probe *p, const struct super_phys *s,
                         struct pool_private *private_state) {
    uint32_t m = p->label.member;
    for (uint32_t copy = 0; copy < 2; copy++) {
        uint32_t slot = 2 * copy + (uint32_t)(s->sequence & 1);
        if (p->slots[slot] != COPY_GOOD || p->slot_sequence[slot] != s->sequence ||
            p->slot_mount_id[slot] != s->mount_id) {
            private_state->repair_super[m] |= (uint8_t)(1u << copy);
        }
        if (p->label_copies[copy] != COPY_GOOD) {
            private_state->repair_label[m] |= (uint8_t)(1u << copy);
        }
    }
    private_state->labels[m] = p->label;
}

/* Where members that are missing are: they are no part of the pool, but may be taken back. */
static void note_missing(struct pool *pool, const struct probe *probes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const struct label_phys *label = &probes[i].label;
        const struct member_phys *m = &pool->super.members[label->member % POOL_DISKS_MAX];
        if (probes[i].labelled && uuid_equal(&label->pool, &pool->super.pool) &&
            m->state != MEMBER_NONE && uuid_equal(&m->disk, &label->disk)) {
            (void)snprintf(pool->found_path[label->member], sizeof(pool->found_path[0]), "%s",
                           probes[i].path);
        }
    }
}

static struct pool *pool_new(struct env *env, struct choice *choice, const char *host,
                             bool read_only) {
    struct pool *pool = MEM_NEW(struct pool);
    struct pool_private *p = MEM_NEW(struct pool_private);
    pool->env = env;
    pool->super = *choice->super;
    pool->meta_copies = choice->super->meta_copies;
    pool->read_only = read_only;
    pool->private_state = p;
    p->pool = pool;
    p->next = *choice->super;
    p->parent_mount_id = choice->super->mount_id;
    p->current = choice->current;
    p->settled = choice->settled;
    p->point = choice->point;
    p->epoch_floor = choice->epoch_floor;
    p->generation_floor = choice->generation_floor;
    p->forced = choice->forced;
    (void)snprintf(p->host, sizeof(p->host), "%s", host);
    fiber_lock_init(&p->lock);
    fiber_queue_init(&p->settle_queue);
    pool_notify_init(p);
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        struct probe *voter = choice->voters[m], *informed = choice->informed[m];
        bool exists = pool->super.members[m].state != MEMBER_NONE;
        p->used |= exists ? 1ull << m : 0;
        /* All members have the parent of the superblock that was chosen. */
        p->has_sequence[m] = pool->super.sequence - 1;
        pool->blocks[m] = pool->super.members[m].disk_blocks;
        memcpy(pool->why[m], choice->why[m], sizeof(pool->why[m]));
        if (voter != NULL) {
            note_repairs(voter, choice->super, p);
            pool->disks[m] = voter->disk;
            voter->disk = NULL; /* is the pool's now */
        } else if (informed != NULL && !read_only) {
            p->informed_disks[m] = informed->disk;
            p->informed |= choice->here_mask & (1ull << m);
            informed->disk = NULL;
        }
    }
    return pool;
}

/* Names the busy disks that the pool would go on without; false: there are none. */
static bool lacks_busy(const struct probe *probes, uint32_t count, const struct uuid *pool,
                       const struct choice *choice, char *ret_names, size_t room) {
    const struct super_phys *s = choice->super;
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct label_phys *label = &probes[i].label;
        if (!probes[i].busy || !probes[i].labelled || !uuid_equal(&label->pool, pool)) {
            continue;
        }
        bool lacks = s == NULL || (label->member < s->member_count &&
                                   s->members[label->member].state == MEMBER_IN_SYNC &&
                                   uuid_equal(&s->members[label->member].disk, &label->disk) &&
                                   choice->voters[label->member] == NULL);
        if (lacks && used < room) {
            used += (size_t)snprintf(ret_names + used, room - used, "%s%s (disk %" PRIu32 " of %s)",
                                     used == 0 ? "" : ", ", probes[i].path, label->member,
                                     label->pool_name);
        }
    }
    return used > 0;
}

/* choose(), and whether it should be asked again in a while because disks are busy. */
static int choose_all(struct env *env, struct probe *probes, uint32_t count,
                      const struct choose_options *options, struct choice *ret_choice,
                      bool *ret_busy, struct errmsg *reterr) {
    char names[256];
    struct errmsg message = {0};
    *ret_choice = (struct choice){0};
    int error = choose(env, probes, count, options, ret_choice, &message);
    *ret_busy = lacks_busy(probes, count, &options->pool, ret_choice, names, sizeof(names));
    if (*ret_busy && (!options->force_quorum || ret_choice->super == NULL)) {
        return errmsg_set(reterr, ERR_BUSY,
                          "in use by another program, a mount or an array: %s. End that and try "
                          "again; opened without what is in use, the pool would leave it behind "
                          "for good (--force-quorum does that)",
                          names);
    }
    return error == OK ? OK : errmsg_set(reterr, error, "%s", message.text);
}

int pool_open(struct env *env, const struct pool_open_options *options, struct pool **ret_pool,
              struct errmsg *reterr) {
    char host[HOST_BYTES];
    host_read(env, host);
    struct choose_options choose_options = {.host = host,
                                            .read_only = options->read_only,
                                            .force_quorum = options->force_quorum,
                                            .force_host = options->force_host};
    struct probe *probes =
        probe_paths(env, options->paths, options->path_count, &options->disk, options->read_only);
    struct choice *choice = MEM_NEW(struct choice);
    uint64_t until = env_now_ns(env) + BUSY_PATIENCE_NS;
    int error = find_pool(probes, options->path_count, options->name, &choose_options.pool, reterr);
    for (bool busy = error == OK; busy;) {
        struct errmsg message = {0};
        error =
            choose_all(env, probes, options->path_count, &choose_options, choice, &busy, &message);
        if (busy && env_now_ns(env) < until) {
            fiber_sleep_until(env_now_ns(env) + BUSY_PAUSE_NS);
            probe_again(env, probes, options->path_count, &options->disk, options->read_only);
            continue;
        }
        busy = false;
        if (error != OK) {
            (void)errmsg_set(reterr, error, "%s", message.text);
        }
    }
    if (error == OK) {
        *ret_pool = pool_new(env, choice, host, options->read_only);
        (*ret_pool)->disk_options = options->disk;
        note_missing(*ret_pool, probes, options->path_count);
    }
    mem_free(choice);
    probes_free(probes, options->path_count);
    return error;
}

/* ---- scanning ---- */

static void describe(struct env *env, struct probe *probes, uint32_t count, const struct uuid *pool,
                     const char *host, struct pool_found *found) {
    struct choose_options options = {.pool = *pool, .host = host};
    struct choice *choice = MEM_NEW(struct choice);
    struct errmsg problem = {0};
    bool busy;
    int error = choose_all(env, probes, count, &options, choice, &busy, &problem);
    found->uuid = *pool;
    if (error != OK) {
        (void)snprintf(found->problem, sizeof(found->problem), "%.255s", problem.text);
    }
    const struct super_phys *s = choice->super;
    if (s != NULL) {
        size_t used = 0;
        memcpy(found->name, s->name, sizeof(found->name));
        memcpy(found->host, s->host, sizeof(found->host));
        found->wall_ns = s->wall_ns;
        found->exported = (s->flags & SUPER_FLAG_EXPORTED) != 0;
        found->present = (uint32_t)__builtin_popcountll(choice->voter_mask);
        for (uint32_t m = 0; m < s->member_count; m++) {
            if (s->members[m].state == MEMBER_NONE) {
                continue;
            }
            found->members++;
            if (choice->voters[m] == NULL && used < sizeof(found->missing)) {
                used += (size_t)snprintf(found->missing + used, sizeof(found->missing) - used,
                                         "%sdisk %" PRIu32 ": %s", used == 0 ? "" : "; ", m,
                                         choice->why[m]);
            }
        }
    }
    mem_free(choice);
}

int pool_scan(struct env *env, const char *const *paths, uint32_t path_count,
              struct pool_found **ret_found, uint32_t *ret_count, struct errmsg *reterr) {
    (void)reterr; /* what is wrong with one path is no failure of the scan */
    char host[HOST_BYTES];
    host_read(env, host);
    struct disk_options disk = {0};
    struct probe *probes = probe_paths(env, paths, path_count, &disk, true);
    struct pool_found *found = MEM_NEW_ARRAY(struct pool_found, path_count + 1);
    uint32_t pools = 0;
    for (uint32_t i = 0; i < path_count; i++) {
        const struct label_phys *label = &probes[i].label;
        if (!probes[i].labelled || probes[i].busy) { /* with all disks in use it is no offer */
            continue;
        }
        uint32_t j = 0;
        while (j < pools && !uuid_equal(&found[j].uuid, &label->pool)) {
            j++;
        }
        if (j == pools) {
            memcpy(found[pools].name, label->pool_name, sizeof(found[pools].name));
            describe(env, probes, path_count, &label->pool, host, &found[pools]);
            pools++;
        }
    }
    probes_free(probes, path_count);
    *ret_found = found;
    *ret_count = pools;
    return OK;
}
