// SPDX-License-Identifier: MPL-2.0
/* The engine's life, its volumes and configuration records, and its status. */
#include "engine/engine.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "engine/relocate.h"
#include "tree/node.h"

struct volume_door *engine_door(struct engine *engine) {
    return &engine->door;
}

struct volume *engine_volume(struct engine *e, uint64_t id) {
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (v->phys.id == id) {
            return (v->phys.flags & VOLUME_FLAG_DELETING) != 0 ? NULL : v;
        }
    }
    return NULL;
}

static struct volume *volume_by_name(struct engine *e, const char *name) {
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (strcmp(v->phys.name, name) == 0 && (v->phys.flags & VOLUME_FLAG_DELETING) == 0) {
            return v;
        }
    }
    return NULL;
}

uint64_t engine_take_vba_run(struct engine *e) {
    uint64_t vba = e->vba_next;
    if (vba > COUNTER_END - RUN_BLOCKS) {
        return 0;
    }
    e->vba_next += RUN_BLOCKS;
    return vba;
}

/* Stops writes for good: what was acknowledged is in the log, and the next import replays it. */
void engine_fail(struct engine *e, int error, const char *what) {
    if (e->state == ENGINE_FAILED) {
        return;
    }
    e->state = ENGINE_FAILED;
    e->failure = error;
    (void)snprintf(e->failure_text, sizeof(e->failure_text), "%s (%s)", what, error_text(error));
    log_fail(e->log, error);
    fiber_queue_wake_all(&e->space_waiters);
    fiber_queue_wake_all(&e->work);
    fiber_queue_wake_all(&e->probe);
    fiber_queue_wake_all(&e->rebuild.work);
    fiber_queue_wake_all(&e->relocate_work);
    fiber_queue_wake_all(&e->checkpoint_waiters);
    scrub_wake(e->scrub);
}

int engine_checkpoint(struct engine *e) {
    uint64_t started = e->checkpoint_started;
    checkpoint_want(e);
    uint64_t postponements = e->postponements;
    while (e->state == ENGINE_RUNNING && e->checkpoint_ended <= started) {
        if (e->postponements != postponements) {
            return ERR_NO_SPACE;
        }
        fiber_queue_wait(&e->checkpoint_waiters);
    }
    return e->state == ENGINE_FAILED ? e->failure : e->state == ENGINE_CLOSING ? ERR_SHUTDOWN : OK;
}

int engine_close(struct engine *e, bool exported, uint64_t deadline_ns, struct errmsg *reterr) {
    bool failed = e->state == ENGINE_FAILED;
    int err = OK;
    if (!failed) {
        e->state = ENGINE_CLOSING;
    }
    requests_refuse(e, ERR_SHUTDOWN);
    fiber_queue_wake_all(&e->work);
    /* Writers that wait for room need the checkpoint loop, which ends with its current turn. */
    fiber_queue_wake_all(&e->probe);
    scrub_wake(e->scrub);
    fiber_queue_wake_all(&e->rebuild.work);
    fiber_queue_wake_all(&e->relocate_work);
    while (!e->checkpoint_fiber_gone || !e->probe_fiber_gone || !e->rebuild.fiber_gone ||
           !e->relocate_fiber_gone || !scrub_is_gone(e->scrub)) {
        (void)fiber_queue_wait_until(&e->idle, env_now_ns(e->env) + 10 * NS_PER_MS);
    }
    log_no_room(e->log, ERR_SHUTDOWN); /* nor does anybody trim the log any more */
    while (e->running > 0 || e->read_aheads > 0) {
        fiber_queue_wake_all(&e->space_waiters);
        (void)fiber_queue_wait_until(&e->idle, env_now_ns(e->env) + 10 * NS_PER_MS);
        if (env_now_ns(e->env) >= deadline_ns) {
            log_fail(e->log, ERR_SHUTDOWN);
        }
    }
    if (!failed && e->state != ENGINE_FAILED) {
        err = checkpoint_run(e, SUPER_FLAG_CLEAN | (exported ? SUPER_FLAG_EXPORTED : 0));
    }
    if (e->state == ENGINE_FAILED) {
        err = errmsg_set(reterr, e->failure,
                         "pool %s was closed without a last checkpoint: %s; what was acknowledged "
                         "is in its log and comes back with the next import",
                         e->pool->super.name, e->failure_text);
    }
    struct pool *pool = e->pool;
    e->pool->expelled = NULL;
    slow_stop(e->slow);
    log_quiesce(e->log);
    pool_close(pool);
    engine_free(e);
    return err;
}

/* ---- changes: logged, applied at the commit ---- */

struct change {
    struct log_entry log;
    struct engine *e;
    const void *blob;
    int result;
};

static int change_log(struct engine *e, enum record_type type, const void *header, size_t bytes,
                      const void *blob, uint32_t blob_bytes,
                      void (*apply)(struct log_entry *, struct buf *, size_t)) {
    struct iovec iov = {.iov_base = (void *)(uintptr_t)blob, .iov_len = blob_bytes};
    struct change c = {.log = {.type = (uint16_t)type,
                               .header = header,
                               .header_bytes = (uint16_t)bytes,
                               .iov = &iov,
                               .iov_count = blob_bytes > 0,
                               .data_bytes = blob_bytes,
                               .apply = apply},
                       .e = e,
                       .blob = blob};
    int err = log_append(e->log, &c.log);
    return err != OK ? err : c.result;
}

static bool name_is_valid(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > POOL_NAME_MAX || !isalpha((unsigned char)name[0])) {
        return false;
    }
    for (const char *p = name; *p != '\0'; p++) {
        if (!isalnum((unsigned char)*p) && strchr("_.-", *p) == NULL) {
            return false;
        }
    }
    return true;
}

static int running(const struct engine *e, struct errmsg *reterr) {
    if (e->state == ENGINE_FAILED) {
        return errmsg_set(reterr, ERR_READ_ONLY, "pool %s takes no more changes: %s",
                          e->pool->super.name, e->failure_text);
    }
    if (e->state == ENGINE_CLOSING) {
        return errmsg_set(reterr, ERR_SHUTDOWN, "pool %s is being closed", e->pool->super.name);
    }
    return OK;
}

/* The catalog is one blob in one chunk. */
static int catalog_has_room(struct engine *e, size_t more, struct errmsg *reterr) {
    uint32_t bytes = 0;
    struct buf *blob = catalog_encode(e, &bytes);
    buf_unref(blob);
    size_t room = (size_t)e->pool->super.geometry.chunk_blocks * BLOCK_BYTES / 2;
    return bytes + more <= room ? OK
                                : errmsg_set(reterr, ERR_LIMIT,
                                             "pool %s holds as many volumes and configuration "
                                             "records as it can",
                                             e->pool->super.name);
}

static void volume_created(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    const struct volume_phys *p = log->header;
    (void)row;
    (void)data_offset;
    if (volume_by_name(c->e, p->name) != NULL) {
        c->result = ERR_EXISTS; /* two creations at once; a replay makes the same choice, … */
        /* … also with a catalog in which the other one has been deleted since. */
        c->e->volume_id_next = MAX(c->e->volume_id_next, p->id + 1);
        return;
    }
    (void)volume_add(c->e, p);
    space_recount(c->e);
}

static int profile_has_disks(const struct engine *e, enum profile p, struct errmsg *reterr) {
    uint32_t disks = pool_storing_count(e->pool);
    bool known = (uint32_t)p < PROFILE_COUNT;
    return known && profile_min_disks(p) <= disks
               ? OK
               : errmsg_set(reterr, ERR_INVALID,
                            "%s needs at least %u disks, pool %s has %u in use",
                            known ? profile_name(p) : "this", known ? profile_min_disks(p) : 0,
                            e->pool->super.name, disks);
}

/* The pool's metadata first becomes as strong as the strongest volume. */
static int metadata_strengthen_for(struct engine *e, enum profile p, struct errmsg *reterr) {
    uint32_t copies = MAX(2u, 1 + profile_losses(p));
    if (copies <= e->pool->super.meta_copies || pool_storing_count(e->pool) < copies) {
        return OK;
    }
    int err = meta_strengthen(e, copies);
    return err == OK ? OK
                     : errmsg_set(reterr, err,
                                  "the pool's metadata could not be made redundant enough "
                                  "for %s (%s)",
                                  profile_name(p), error_text(err));
}

static int volume_options_check(struct engine *e, const struct volume_options *o, uint64_t size,
                                struct errmsg *reterr) {
    if (!name_is_valid(o->name)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "'%s' is not a volume name: a letter, then letters, digits, '_', '.' or "
                          "'-', at most %d characters",
                          o->name, POOL_NAME_MAX);
    }
    if (volume_by_name(e, o->name) != NULL) {
        return errmsg_set(reterr, ERR_EXISTS, "volume %s exists already", o->name);
    }
    if (size < 1ull << 20 || size > 64ull << 40) {
        return errmsg_set(reterr, ERR_RANGE, "a volume is 1 MiB to 64 TiB large");
    }
    if (o->block_bytes != 0 && o->block_bytes != 512 && o->block_bytes != 4096) {
        return errmsg_set(reterr, ERR_INVALID, "the block size of a volume is 512 or 4096");
    }
    int err = profile_has_disks(e, o->profile, reterr);
    if (err != OK) {
        return err;
    }
    if (o->thick && space_can_promise(e, o->profile, size / BLOCK_BYTES) != OK) {
        return errmsg_set(
            reterr, ERR_NO_SPACE,
            "pool %s has no room to reserve all of volume %s: make it smaller or thin",
            e->pool->super.name, o->name);
    }
    return OK;
}

int engine_volume_create(struct engine *e, const struct volume_options *o, uint64_t *ret_id,
                         struct errmsg *reterr) {
    uint64_t size = round_up(o->size_bytes, BLOCK_BYTES);
    int err = running(e, reterr);
    if (err == OK) {
        err = volume_options_check(e, o, size, reterr);
    }
    if (err == OK) {
        err = catalog_has_room(e, sizeof(struct volume_phys), reterr);
    }
    if (err == OK) {
        err = metadata_strengthen_for(e, o->profile, reterr);
    }
    if (err != OK) {
        return err;
    }
    e->volume_id_issued = MAX(e->volume_id_issued + 1, e->volume_id_next);
    if (e->volume_id_issued >= VOLUME_ID_END) {
        e->volume_id_issued = VOLUME_ID_END;
        return errmsg_set(reterr, ERR_LIMIT,
                          "pool %s has had 4294967295 volumes, and no more can be created in it: "
                          "each has a number, which is never used again",
                          e->pool->super.name);
    }
    struct volume_phys p = {.id = e->volume_id_issued,
                            .size_bytes = size,
                            .block_bytes = o->block_bytes != 0 ? o->block_bytes : SECTOR_BYTES,
                            .profile = (uint16_t)o->profile,
                            .flags =
                                (uint16_t)((o->thick ? VOLUME_FLAG_THICK : 0) |
                                           (o->sync_standard ? VOLUME_FLAG_SYNC_STANDARD : 0))};
    env_random(e->env, &p.uuid, sizeof(p.uuid));
    (void)snprintf(p.name, sizeof(p.name), "%s", o->name);
    err = change_log(e, RECORD_VOLUME, &p, sizeof(p), NULL, 0, volume_created);
    if (err != OK) {
        return errmsg_set(reterr, err, "volume %s could not be created (%s)", o->name,
                          error_text(err));
    }
    *ret_id = p.id;
    return OK;
}

static void volume_deleted(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    (void)row;
    (void)data_offset;
    uint64_t id;
    memcpy(&id, log->header, sizeof(id));
    struct volume *v = engine_volume(c->e, id);
    if (v == NULL) {
        c->result = ERR_NOT_FOUND;
        return;
    }
    v->phys.flags |= VOLUME_FLAG_DELETING;
    about_forget(c->e, id);
    c->e->catalog_dirty = true;
}

int engine_volume_delete(struct engine *e, const char *name, struct errmsg *reterr) {
    int err = running(e, reterr);
    if (err != OK) {
        return err;
    }
    struct volume *v = volume_by_name(e, name);
    if (v == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no volume %s", e->pool->super.name,
                          name);
    }
    uint64_t id = v->phys.id;
    err = change_log(e, RECORD_VOLUME_DELETE, &id, sizeof(id), NULL, 0, volume_deleted);
    if (err != OK) {
        return errmsg_set(reterr, err, "volume %s could not be deleted (%s)", name,
                          error_text(err));
    }
    checkpoint_want(e); /* its space comes back with this one */
    return OK;
}

static void volume_resized(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    const struct volume_phys *p = log->header;
    (void)row;
    (void)data_offset;
    struct volume *v = engine_volume(c->e, p->id);
    if (v == NULL) {
        c->result = ERR_NOT_FOUND;
        return;
    }
    v->phys.size_bytes = MAX(v->phys.size_bytes, p->size_bytes);
    c->e->catalog_dirty = true;
}

int engine_volume_resize(struct engine *e, const char *name, uint64_t size_bytes,
                         struct errmsg *reterr) {
    int err = running(e, reterr);
    if (err != OK) {
        return err;
    }
    struct volume *v = volume_by_name(e, name);
    if (v == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no volume %s", e->pool->super.name,
                          name);
    }
    size_bytes = round_up(size_bytes, BLOCK_BYTES);
    if (size_bytes < v->phys.size_bytes || size_bytes > 64ull << 40) {
        return errmsg_set(reterr, ERR_RANGE,
                          "a volume can only grow, to at most 64 TiB: %s is %" PRIu64
                          " bytes large",
                          name, v->phys.size_bytes);
    }
    uint64_t more = (size_bytes - v->phys.size_bytes) / BLOCK_BYTES;
    if ((v->phys.flags & VOLUME_FLAG_THICK) != 0 &&
        space_can_promise(e, (enum profile)v->phys.profile, more) != OK) {
        return errmsg_set(reterr, ERR_NO_SPACE, "pool %s has no room to reserve the larger size",
                          e->pool->super.name);
    }
    struct volume_phys p = v->phys;
    p.size_bytes = size_bytes;
    err = change_log(e, RECORD_VOLUME, &p, sizeof(p), NULL, 0, volume_resized);
    return err == OK ? OK
                     : errmsg_set(reterr, err, "volume %s could not be resized (%s)", name,
                                  error_text(err));
}

/* ---- changes that move what is there ---- */

static void volume_set_applied(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    const struct record_volume_set *set = log->header;
    (void)row;
    (void)data_offset;
    struct volume *v = engine_volume(c->e, set->id);
    if (v == NULL) {
        c->result = ERR_NOT_FOUND;
        return;
    }
    apply_volume_set(v, set);
    space_recount(c->e);
}

static int volume_to_change(struct engine *e, const char *name, struct volume **ret_volume,
                            struct errmsg *reterr) {
    int err = running(e, reterr);
    if (err != OK) {
        return err;
    }
    *ret_volume = volume_by_name(e, name);
    return *ret_volume != NULL ? OK
                               : errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no volume %s",
                                            e->pool->super.name, name);
}

static uint64_t free_bytes(const struct engine *e, uint64_t used, uint64_t share) {
    return used < e->limit_share && share > 0 ? (e->limit_share - used) / share * BLOCK_BYTES : 0;
}

static void profile_preview(const struct engine *e, const struct volume *v, enum profile to,
                            struct engine_profile_change *ret) {
    enum profile from = (enum profile)v->phys.profile;
    uint32_t disks = pool_storing_count(e->pool);
    struct shape before = profile_shape(from, disks), after = profile_shape(to, disks);
    uint64_t blocks = volume_promised_blocks(v) + v->admitted_blocks + v->dirty_blocks;
    uint64_t used = space_used_share(e, true), share = e->share[to];
    uint64_t rest = used - MIN(used, blocks * volume_share(e, v));
    *ret = (struct engine_profile_change){
        .from = from,
        .to = to,
        .raw_before_bytes = blocks * shape_columns(before) / before.data * BLOCK_BYTES,
        .raw_after_bytes = blocks * shape_columns(after) / after.data * BLOCK_BYTES,
        .free_before_bytes = free_bytes(e, used, share),
        .free_meanwhile_bytes =
            free_bytes(e, rest + blocks * MAX(share, volume_share(e, v)), share),
        .free_after_bytes = free_bytes(e, rest + blocks * share, share)};
}

/* All writes to the volume have ended, and none begins. */
static int profile_set_locked(struct engine *e, struct volume *v, enum profile profile,
                              struct errmsg *reterr) {
    struct record_volume_set set = {.id = v->phys.id, .profile = (uint16_t)profile};
    struct volume_phys before = v->phys;
    if (engine_volume(e, set.id) == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "volume %s is being deleted", v->phys.name);
    }
    /* What is dirty will be written in the new profile: it must fit (invariant 15). */
    v->phys.former |= (uint16_t)(1u << v->phys.profile);
    v->phys.profile = (uint16_t)profile;
    space_recount(e);
    bool fits = space_used_share(e, true) <= e->limit_share && !space_is_short(e);
    v->phys = before;
    space_recount(e);
    if (!fits) {
        return errmsg_set(
            reterr, ERR_NO_SPACE,
            "pool %s has no room for volume %s in %s and what is there of it already: "
            "free some first",
            e->pool->super.name, v->phys.name, profile_name(profile));
    }
    int err = change_log(e, RECORD_VOLUME_SET, &set, sizeof(set), NULL, 0, volume_set_applied);
    return err == OK ? OK
                     : errmsg_set(reterr, err, "the profile of volume %s could not be set (%s)",
                                  v->phys.name, error_text(err));
}

int engine_volume_set_profile(struct engine *e, const char *name, enum profile profile,
                              bool dry_run, struct engine_profile_change *ret_change,
                              struct errmsg *reterr) {
    struct volume *v;
    int err = volume_to_change(e, name, &v, reterr);
    if (err == OK) {
        err = profile_has_disks(e, profile, reterr);
    }
    if (err != OK) {
        return err;
    }
    profile_preview(e, v, profile, ret_change);
    if (dry_run || profile == (enum profile)v->phys.profile) {
        return OK;
    }
    struct range_lock lock;
    v->users++; /* it is not freed meanwhile */
    err = metadata_strengthen_for(e, profile, reterr);
    if (err == OK && (err = engine_checkpoint(e)) != OK) {
        err = errmsg_set(reterr, err, "a checkpoint before the change was not possible (%s)",
                         error_text(err));
    }
    if (err == OK) {
        range_take_all(v, &lock);
        err = profile_set_locked(e, v, profile, reterr);
        range_release(v, &lock);
    }
    v->users--;
    return err;
}

int engine_volume_reorder(struct engine *e, const char *name, bool stop, struct errmsg *reterr) {
    struct volume *v;
    int err = volume_to_change(e, name, &v, reterr);
    if (err != OK) {
        return err;
    }
    struct record_volume_set set = {.id = v->phys.id,
                                    .profile = v->phys.profile,
                                    .reorder = stop ? REORDER_ENDS : REORDER_BEGINS};
    err = change_log(e, RECORD_VOLUME_SET, &set, sizeof(set), NULL, 0, volume_set_applied);
    return err == OK ? OK
                     : errmsg_set(reterr, err, "volume %s: that could not be stored (%s)", name,
                                  error_text(err));
}

static void volume_describe(const struct volume *v, struct volume_info *ret) {
    *ret = (struct volume_info){
        .id = v->phys.id,
        .uuid = v->phys.uuid,
        .size_bytes = v->phys.size_bytes,
        .block_bytes = v->phys.block_bytes,
        .profile = (enum profile)v->phys.profile,
        .thick = (v->phys.flags & VOLUME_FLAG_THICK) != 0,
        .sync_always = (v->phys.flags & VOLUME_FLAG_SYNC_STANDARD) == 0,
        .allocated_bytes =
            (v->phys.allocated_blocks + v->dirty_blocks + v->frozen_blocks) * BLOCK_BYTES,
        .deleting = (v->phys.flags & VOLUME_FLAG_DELETING) != 0,
        .health = (v->phys.flags & VOLUME_FLAG_BROKEN) != 0    ? VOLUME_BROKEN
                  : (v->phys.flags & VOLUME_FLAG_DAMAGED) != 0 ? VOLUME_DAMAGED
                                                               : VOLUME_WHOLE,
        .reordering = (v->phys.flags & VOLUME_FLAG_REORDER) != 0,
        .profile_moves = v->phys.former != 0,
        .profile_former = v->phys.former != 0 ? (enum profile)__builtin_ctz(v->phys.former)
                                              : (enum profile)v->phys.profile,
        .moved_pct = (uint32_t)(v->phys.relocated_to * 100 / (v->phys.size_bytes / BLOCK_BYTES)),
        .extents_per_gib = v->phys.extents_per_gib};
    ret->allocated_bytes = MIN(ret->allocated_bytes, ret->size_bytes);
    ret->lost_bytes = scrub_lost_blocks(v->engine->scrub, v->phys.id) * BLOCK_BYTES;
    (void)snprintf(ret->name, sizeof(ret->name), "%s", v->phys.name);
}

void engine_volume_list(struct engine *e, struct volume_info **ret_volumes, uint32_t *ret_count) {
    uint32_t count = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        count++;
    }
    *ret_volumes = MEM_NEW_ARRAY(struct volume_info, count + 1);
    *ret_count = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        volume_describe(CONTAINER_OF(link, struct volume, link), &(*ret_volumes)[(*ret_count)++]);
    }
}

int engine_volume_find(struct engine *e, const char *name, struct volume_info *ret_volume) {
    struct volume *v = volume_by_name(e, name);
    if (v == NULL) {
        return ERR_NOT_FOUND;
    }
    volume_describe(v, ret_volume);
    return OK;
}

/* ---- configuration ---- */

static void config_set_applied(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    config_put(c->e, log->header, row->data + data_offset);
}

static void config_deleted(struct log_entry *log, struct buf *row, size_t data_offset) {
    struct change *c = CONTAINER_OF(log, struct change, log);
    const struct config_phys *p = log->header;
    (void)row;
    (void)data_offset;
    config_remove(c->e, p->kind, p->id);
}

static int config_name(const char *kind, const char *id, uint32_t bytes, struct config_phys *ret,
                       struct errmsg *reterr) {
    if (kind[0] == '\0' || strlen(kind) > CONFIG_KIND_MAX || strlen(id) > CONFIG_ID_MAX ||
        bytes > CONFIG_BLOB_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "configuration record %.40s/%.40s is too large",
                          kind, id);
    }
    *ret = (struct config_phys){.blob_bytes = bytes};
    (void)snprintf(ret->kind, sizeof(ret->kind), "%s", kind);
    (void)snprintf(ret->id, sizeof(ret->id), "%s", id);
    return OK;
}

int engine_config_set(struct engine *e, const char *kind, const char *id, const void *blob,
                      uint32_t bytes, struct errmsg *reterr) {
    struct config_phys p;
    int err = running(e, reterr);
    if (err == OK) {
        err = config_name(kind, id, bytes, &p, reterr);
    }
    if (err == OK) {
        err = catalog_has_room(e, sizeof(p) + bytes, reterr);
    }
    if (err != OK) {
        return err;
    }
    err = change_log(e, RECORD_CONFIG, &p, sizeof(p), blob, bytes, config_set_applied);
    return err == OK
               ? OK
               : errmsg_set(reterr, err, "the change could not be stored (%s)", error_text(err));
}

int engine_config_delete(struct engine *e, const char *kind, const char *id,
                         struct errmsg *reterr) {
    struct config_phys p;
    int err = running(e, reterr);
    if (err == OK) {
        err = config_name(kind, id, 0, &p, reterr);
    }
    if (err != OK) {
        return err;
    }
    err = change_log(e, RECORD_CONFIG_DELETE, &p, sizeof(p), NULL, 0, config_deleted);
    return err == OK
               ? OK
               : errmsg_set(reterr, err, "the change could not be stored (%s)", error_text(err));
}

void engine_config_each(struct engine *e, const char *kind,
                        void (*visit)(void *ctx, const char *kind, const char *id, const void *blob,
                                      uint32_t bytes),
                        void *ctx) {
    LIST_FOR_EACH(link, &e->configs) {
        const struct config_record *r = CONTAINER_OF(link, struct config_record, link);
        if (kind == NULL || strcmp(r->phys.kind, kind) == 0) {
            visit(ctx, r->phys.kind, r->phys.id, r->blob, r->phys.blob_bytes);
        }
    }
}

/* ---- status ---- */

static void status_disks(const struct engine *e, struct engine_status *st) {
    uint64_t chunk = st->chunk_bytes;
    st->disk_count = e->pool->super.member_count;
    for (uint32_t m = 0; m < st->disk_count; m++) {
        struct engine_disk_status *d = &st->disks[m];
        const struct member_phys *member = &e->pool->super.members[m];
        struct disk *disk = e->pool->disks[m];
        d->member = m;
        d->uuid = member->disk;
        d->state = (enum member_state)member->state;
        d->role = (enum member_role)member->role;
        d->present = disk != NULL;
        d->size_bytes = (uint64_t)e->table.chunk_count[m] * chunk;
        d->used_bytes = (uint64_t)(e->table.chunk_count[m] - e->table.chunk_free[m]) * chunk;
        (void)snprintf(d->path, sizeof(d->path), "%s",
                       disk != NULL ? disk_info(disk)->path : member->path_hint);
        (void)snprintf(d->why, sizeof(d->why), "%s", e->expelled_why[m]);
        if (disk != NULL) {
            d->counters = *disk_counters(disk);
        }
        slow_status(e->slow, m, &d->slow);
        st->raw_bytes += d->state == MEMBER_IN_SYNC ? d->size_bytes : 0;
    }
}

static void HF_PRINTF(2, 3) advise(struct engine_status *st, const char *fmt, ...) {
    size_t used = strlen(st->advice);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(st->advice + used, sizeof(st->advice) - used, fmt, args);
    va_end(args);
}

/* Names the first volume that is harmed, and says how many more there are. */
static uint32_t status_volumes(const struct engine *e, struct engine_status *st) {
    const struct volume *first = NULL;
    uint32_t harmed = 0;
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        uint32_t flags = v->phys.flags;
        if ((flags & VOLUME_FLAG_DELETING) == 0 &&
            (flags & (VOLUME_FLAG_DAMAGED | VOLUME_FLAG_BROKEN)) != 0) {
            first = first == NULL ? v : first;
            harmed++;
        }
    }
    if (first == NULL) {
        return 0;
    }
    bool broken = (first->phys.flags & VOLUME_FLAG_BROKEN) != 0;
    advise(st, "%sVolume %s is %s%s", st->advice[0] != '\0' ? ". " : "", first->phys.name,
           broken ? "broken: part of its metadata, and with it writes it had acknowledged, are "
                    "lost; restore it from a backup and delete it"
                  : "damaged: part of its metadata cannot be read from any disk, so it takes no "
                    "writes; bring back missing disks and import again, or copy what can be read "
                    "of it and delete it",
           harmed > 1 ? "; others, too: see volume list" : "");
    return harmed;
}

static uint32_t status_suspects(struct engine_status *st) {
    uint32_t suspects = 0;
    for (uint32_t m = 0; m < st->disk_count; m++) {
        const struct engine_disk_status *d = &st->disks[m];
        if (d->slow.suspect && suspects++ == 0) {
            advise(st, "%sDisk %u (%s) is slow: %s%s", st->advice[0] != '\0' ? ". " : "", m,
                   d->path, d->slow.why,
                   d->slow.held
                       ? ". It stays in use, because data would be lost without it: replace "
                         "it, or give its volumes redundancy"
                       : "");
        }
    }
    return suspects;
}

/* What is being done about disks that are missing. Without figures: each new text is an event. */
static void advise_rebuild(struct engine_status *st) {
    const struct engine_rebuild_status *r = &st->rebuild;
    advise(st, "%s",
           r->whole ? ". What it held has been rebuilt on the others: replace it, or remove it"
           : r->waiting && r->grace_s > 0
               ? ". It is waited for, and then what it held is rebuilt on the others"
           : r->left_bytes > 0 ? ". What it held is being rebuilt on the others"
                               : "");
}

static void status_health(const struct engine *e, struct engine_status *st) {
    uint32_t missing = 0, first = 0, disks = 0;
    for (uint32_t m = st->disk_count; m-- > 0;) {
        disks += st->disks[m].state != MEMBER_NONE;
        if (st->disks[m].state == MEMBER_MISSING) {
            missing++;
            first = m;
        }
    }
    bool failed = e->state == ENGINE_FAILED;
    if (failed) {
        advise(st, "no writes are taken: %s; stop and import the pool again", e->failure_text);
    } else if (missing > 0) {
        advise(st,
               "%u of %u disks are missing or were expelled; data with redundancy is served. Disk "
               "%u (%s): %s",
               missing, disks, first, st->disks[first].path, e->pool->why[first]);
        advise_rebuild(st);
    }
    bool exposed = !failed && missing == 0 && st->rebuild.exposed_segments > 0;
    if (exposed) {
        advise(st, "part of the data has less redundancy than it should have; it is written again "
                   "as soon as there is room");
    }
    uint32_t suspects = failed ? 0 : status_suspects(st);
    bool full = e->postponed && !failed;
    if (full) {
        advise(st, "there is no room for a checkpoint: no writes are taken until something is "
                   "unmapped or deleted");
    }
    uint32_t harmed = status_volumes(e, st);
    (void)snprintf(st->health, sizeof(st->health), "%s",
                   failed                                                         ? "failed"
                   : missing > 0 || suspects > 0 || exposed || harmed > 0 || full ? "degraded"
                                                                                  : "ok");
}

/* Logical space as the volumes' profiles see it: in blocks of the strongest profile in use. */
static void status_space(struct engine *e, struct engine_status *st) {
    enum profile strongest = PROFILE_SINGLE;
    LIST_FOR_EACH(link, &e->volumes) {
        enum profile p = (enum profile)CONTAINER_OF(link, struct volume, link)->phys.profile;
        strongest = e->share[p] > e->share[strongest] ? p : strongest;
    }
    uint64_t share = e->share[strongest];
    uint64_t used = space_used_share(e, true);
    if (share > 0) {
        st->usable_bytes = e->limit_share / share * BLOCK_BYTES;
        st->used_bytes = used / share * BLOCK_BYTES;
        st->free_bytes = used < e->limit_share ? (e->limit_share - used) / share * BLOCK_BYTES : 0;
    }
}

void engine_status(struct engine *e, struct engine_status *ret_status) {
    const struct super_phys *super = &e->pool->super;
    struct engine_status *st = ret_status;
    *st = (struct engine_status){
        .uuid = super->pool,
        .chunk_bytes = (uint64_t)super->geometry.chunk_blocks * BLOCK_BYTES,
        .live_blocks = e->map.live_blocks,
        .dirty_bytes = e->dirty_bytes + e->frozen_bytes,
        .checkpoints = e->checkpoints,
        .checkpoint_last_ms = e->last_checkpoint_ms,
        .mount_generation = super->mount_generation,
        .config_epoch = super->config_epoch,
        .ring_used_pct = e->log != NULL ? log_ring_used_pct(e->log) : 0,
        .log_rows = e->log != NULL ? log_counters(e->log)->rows : 0,
        .log_bytes = e->log != NULL ? log_counters(e->log)->bytes : 0,
        .cleaner_moved_blocks = e->cleaner_moved_blocks,
        .cleaner_freed_segments = e->cleaner_freed_segments,
        .reads = e->reads,
        .writes = e->writes,
        .read_bytes = e->read_bytes,
        .write_bytes = e->write_bytes,
        .unmaps = e->unmaps,
        .reconstructions = e->row_counters.reconstructed_one + e->row_counters.reconstructed_two,
        .checksum_errors = e->row_counters.checksum_errors,
        .repairs = e->row_counters.repairs,
        .map_memory_bytes = map_memory_bytes(&e->map),
        .node_cache_bytes = cache_bytes(e->node_cache),
        .read_cache_bytes = cache_bytes(e->data_cache),
        .bytes_written_rows = e->bytes_rows,
        .bytes_written_meta = e->bytes_meta,
        .bytes_written_rebuild = e->rebuild.bytes_written};
    rebuild_status(e, &st->rebuild);
    st->bytes_written_log = st->log_bytes;
    (void)snprintf(st->name, sizeof(st->name), "%s", super->name);
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        st->segments += e->table.slots[i] != NULL;
    }
    status_disks(e, st);
    for (uint32_t m = 0; m < st->disk_count; m++) {
        st->segments_free_chunks += e->table.chunk_free[m];
    }
    status_health(e, st);
    status_space(e, st);
}

const char *engine_stage(const struct engine *e) {
    return e->stage;
}

void engine_counters(const struct engine *e, struct engine_counters *ret_counters) {
    const struct log_counters *log = log_counters(e->log);
    *ret_counters = (struct engine_counters){
        .ring_wraps = log->wraps,
        .late_log_copies = log->late_copies,
        .failed_log_copies = log->failed_copies,
        .log_waits_for_space = log->waits_for_space,
        .reconstructed_one = e->row_counters.reconstructed_one,
        .reconstructed_two = e->row_counters.reconstructed_two,
        .data_blocks = e->data_blocks,
        .ref_blocks = e->ref_blocks,
        .node_blocks = e->node_blocks,
        .cleaner_moved_blocks = e->cleaner_moved_blocks,
        .cleaner_ahead_blocks = e->cleaner_ahead_blocks,
        .cleaner_freed_segments = e->cleaner_freed_segments,
        .read_ahead_blocks = e->read_ahead_blocks,
        .degraded_segments = e->degraded_segments,
        .relocated_blocks = e->relocated_blocks,
        .profiles_changed = e->profiles_changed,
        .volumes_healed = e->volumes_healed,
        .swept_blocks = e->swept_blocks,
        .hedged = e->row_counters.hedged,
        .hedges_won = e->row_counters.hedges_won,
        .detoured = e->row_counters.detoured,
        .slow_log_copies = log->slow_copies,
        .late_rows = e->table.late_rows,
        .disks_suspected = e->disks_suspected,
        .suspects_cleared = e->suspects_cleared,
        .disks_expelled_slow = e->disks_expelled_slow,
        .columns_rebuilt = e->rebuild.columns - e->rebuild.evacuated,
        .columns_evacuated = e->rebuild.evacuated,
        .segments_restriped = e->rebuild.restriped,
        .rebuilds_finished = e->rebuild.finished,
        .disks_added = e->rebuild.added,
        .disks_removed = e->rebuild.removed,
        .disks_returned = e->rebuild.returned,
        .spares_used = e->rebuild.spares_used,
    };
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        ret_counters->volumes_damaged += (v->phys.flags & VOLUME_FLAG_DAMAGED) != 0;
        ret_counters->volumes_broken += (v->phys.flags & VOLUME_FLAG_BROKEN) != 0;
        for (uint32_t l = 0; l < v->tree.root.levels; l++) {
            ret_counters->tree_height =
                MAX(ret_counters->tree_height, v->tree.root.level[l].height + 1);
            ret_counters->tree_levels = MAX(ret_counters->tree_levels, v->tree.root.levels);
            ret_counters->tree_nodes += v->tree.root.level[l].nodes;
            ret_counters->tree_items += v->tree.root.level[l].items;
        }
    }
}

/* From the root of some level down, as far as nodes are cached and chance has it. */
static bool node_choose(struct engine *e, struct volume *v, uint64_t which,
                        struct tree_ptr_phys *ret_ptr) {
    const struct tree_root_phys *root = &v->tree.root;
    uint32_t number = root->levels == 0 ? 0 : (uint32_t)(which % root->levels);
    if (root->levels == 0 || root->level[number].present == 0) {
        return false;
    }
    struct node_shape shape = node_shape_of(&v->tree, number + 1 < root->levels);
    *ret_ptr = root->level[number].root;
    for (uint32_t h = root->level[number].height; h > 0; h--) {
        struct buf *node = cache_get(e->node_cache, ret_ptr->address);
        struct node_view view;
        which = which * 6364136223846793005u + 1442695040888963407u;
        bool down = node != NULL && which >> 61 != 0 && node_open(&shape, node->data, &view) == OK;
        if (down) {
            *ret_ptr = view.children[(which >> 32) % view.count];
        }
        buf_unref(node);
        if (!down) {
            break;
        }
    }
    return true;
}

uint32_t engine_node_places(struct engine *e, uint64_t volume_id, uint64_t which,
                            struct engine_place ret_places[ENGINE_PLACES_MAX]) {
    struct volume *v = engine_volume(e, volume_id);
    struct tree_ptr_phys ptr;
    struct row_place at;
    if (v == NULL || !node_choose(e, v, which, &ptr) || !map_lookup(&e->map, ptr.address, &at)) {
        return 0;
    }
    uint32_t count = 0;
    struct shape shape = at.segment->shape;
    uint32_t width = (uint32_t)shape.data + shape.parity;
    for (uint32_t i = at.index; i < at.index + v->store.node_bytes / BLOCK_BYTES; i++) {
        for (uint32_t c = 0; c < shape_columns(shape); c++) {
            if ((c % width == i / at.height || c % width >= shape.data) &&
                segment_column_disk(&e->table, at.segment, c) != NULL) {
                uint64_t block =
                    segment_column_block(&e->table, at.segment, c, at.offset + i % at.height);
                ASSERT_LT(count, ENGINE_PLACES_MAX);
                ret_places[count++] = (struct engine_place){.member = at.segment->column[c].disk,
                                                            .offset_bytes = block * BLOCK_BYTES};
            }
        }
    }
    cache_drop(e->node_cache, ptr.address);
    return count;
}
