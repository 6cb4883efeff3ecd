// SPDX-License-Identifier: MPL-2.0
/* Disks of a pool that come and go. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "control/answer.h"
#include "control/api.h"
#include "pool/host.h"

const char *api_disk_role(const struct engine_disk_status *disk) {
    return disk->role == MEMBER_LEAVING ? "leaving"
           : disk->role == MEMBER_SPARE ? "spare"
                                        : "normal";
}

/* ---- which disk ---- */

static bool is_named(const struct engine_disk_status *disk, const char *name) {
    char uuid[37], *end;
    const char *base = strrchr(disk->path, '/');
    api_uuid_text(&disk->uuid, uuid);
    if (isdigit((unsigned char)name[0])) {
        unsigned long member = strtoul(name, &end, 10);
        if (*end == '\0') {
            return member == disk->member;
        }
    }
    return strcmp(name, disk->path) == 0 || strcmp(name, uuid) == 0 ||
           (base != NULL && strcmp(name, base + 1) == 0);
}

/* By its number, its path, the last part of it, or its uuid. */
static int find_disk(struct served *served, const char *name, struct engine_disk_status *ret_disk,
                     struct errmsg *reterr) {
    struct served_view view;
    uint32_t found = 0;
    served_look(served, &view);
    uint32_t count = view.snapshot == NULL ? 0 : view.snapshot->status.disk_count;
    for (uint32_t i = 0; i < count && i < POOL_DISKS_MAX; i++) {
        const struct engine_disk_status *disk = &view.snapshot->status.disks[i];
        if (disk->state != MEMBER_NONE && is_named(disk, name)) {
            *ret_disk = *disk;
            found++;
        }
    }
    served_view_done(&view);
    if (found == 1) {
        return OK;
    }
    return found == 0 ? errmsg_set(reterr, ERR_NOT_FOUND,
                                   "pool %s has no disk \"%.100s\"; holdfast pool status %s lists "
                                   "them",
                                   served_name(served), name, served_name(served))
                      : errmsg_set(reterr, ERR_INVALID,
                                   "pool %s has %u disks \"%.100s\"; give the number or the whole "
                                   "path",
                                   served_name(served), found, name);
}

/* ---- on the pool's loop ---- */

enum change_kind { CHANGE_ADD, CHANGE_REPLACE, CHANGE_REMOVE, CHANGE_KEEP, CHANGE_RETURN };

struct change {
    enum change_kind kind;
    struct engine_disk_add_options add;
    struct engine_disk_remove_options remove;
    uint32_t member;
    struct engine_disk_change result;
    struct errmsg *reterr;
    int error;
};

static void change_on_loop(struct engine *engine, void *arg) {
    struct change *c = arg;
    switch (c->kind) {
    case CHANGE_ADD:
        c->error = engine_disk_add(engine, &c->add, &c->result, c->reterr);
        break;
    case CHANGE_REPLACE:
        c->error = engine_disk_replace(engine, c->member, &c->add, &c->result, c->reterr);
        break;
    case CHANGE_REMOVE:
        c->error = engine_disk_remove(engine, &c->remove, &c->result, c->reterr);
        break;
    case CHANGE_KEEP:
        c->error = engine_disk_keep(engine, c->member, c->reterr);
        break;
    case CHANGE_RETURN:
        c->error = engine_disk_return(engine, c->member, c->add.path, c->reterr);
        break;
    }
}

static void set_uint(json_t *object, const char *key, uint64_t value) {
    (void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *change_json(const struct change *c) {
    const struct engine_disk_change *r = &c->result;
    json_t *object = json_object();
    set_uint(object, "member", r->member);
    set_uint(object, "size_bytes", r->size_bytes);
    set_uint(object, "usable_before_bytes", r->usable_before_bytes);
    set_uint(object, "usable_after_bytes", r->usable_after_bytes);
    set_uint(object, "used_bytes", r->used_bytes);
    set_uint(object, "move_bytes", r->move_bytes);
    set_uint(object, "lost_bytes", r->lost_bytes);
    (void)json_object_set_new(object, "protected", json_boolean(r->storable));
    (void)json_object_set_new(object, "dry_run", json_boolean(c->add.dry_run || c->remove.dry_run));
    return object;
}

/* ---- a new disk: what it holds is looked at, and it gets its partition table ---- */

static void random_fiber(struct env *env, void *arg) {
    env_random(env, arg, sizeof(struct uuid));
}

static int prepare(struct serve *serve, const struct change *c, struct errmsg *reterr) {
    char holds[160] = "";
    if (c->add.dry_run) { /* looks, and changes nothing */
        int error = pool_host_content(c->add.path, holds, sizeof(holds), reterr);
        return error != OK || holds[0] == '\0' || c->add.force
                   ? error
                   : errmsg_set(reterr, ERR_EXISTS, "%s holds %s; --force destroys it", c->add.path,
                                holds);
    }
    struct pool_host_options host = {.paths = &c->add.path, .path_count = 1, .force = c->add.force};
    serve_node_call(serve, random_fiber, &host.random);
    return pool_host_prepare(&host, reterr);
}

static int run(struct serve *serve, struct served *served, const char *what, struct change *c,
               struct errmsg *reterr) {
    bool takes = c->kind == CHANGE_ADD || c->kind == CHANGE_REPLACE;
    int error = served_change_begin(served, what, reterr);
    if (error != OK) {
        return error;
    }
    c->reterr = reterr;
    if (takes) {
        error = serve_disks_lock(serve, false, reterr);
        if (error == OK) {
            error = prepare(serve, c, reterr);
        }
    }
    if (error == OK) {
        served_change(served, change_on_loop, c);
        error = c->error;
    }
    if (takes) {
        serve_disks_unlock(serve);
    }
    served_change_end(served);
    if (error == OK) {
        serve_remember_disks(serve, served);
    }
    return error;
}

/* ---- handlers ---- */

static int handle(struct serve *serve, const struct api_request *request, enum change_kind kind,
                  const char *what, json_t **ret_answer, struct errmsg *reterr) {
    const json_t *body = request->body;
    const char *name = schema_text(body, "disk", NULL);
    bool dry_run = schema_bool(body, "dry_run"), force = schema_bool(body, "force");
    struct engine_disk_status disk = {0};
    struct served *served = serve_find(serve, request->pool, reterr);
    if (served == NULL) {
        return ERR_NOT_FOUND;
    }
    int error = name == NULL ? OK : find_disk(served, name, &disk, reterr);
    struct change c = {
        .kind = kind,
        .add = {.path = json_string_value(json_array_get(json_object_get(body, "paths"), 0)),
                .spare = schema_bool(body, "spare"),
                .force = force,
                .dry_run = dry_run},
        .remove = {.member = disk.member, .force = force, .dry_run = dry_run},
        .member = disk.member};
    if (c.add.path == NULL) {
        c.add.path = disk.path; /* where it was last */
    }
    if (error == OK) {
        error = run(serve, served, what, &c, reterr);
    }
    served_unref(served);
    if (error == OK) {
        *ret_answer = change_json(&c);
    }
    return error;
}

int api_disk_add(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                 struct errmsg *reterr) {
    return handle(serve, request, CHANGE_ADD, "add a disk", ret_answer, reterr);
}

int api_disk_replace(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                     struct errmsg *reterr) {
    return handle(serve, request, CHANGE_REPLACE, "replace a disk", ret_answer, reterr);
}

int api_disk_remove(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    return handle(serve, request, CHANGE_REMOVE, "remove a disk", ret_answer, reterr);
}

int api_disk_keep(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                  struct errmsg *reterr) {
    return handle(serve, request, CHANGE_KEEP, "keep a disk", ret_answer, reterr);
}

int api_disk_return(struct serve *serve, const struct api_request *request, json_t **ret_answer,
                    struct errmsg *reterr) {
    return handle(serve, request, CHANGE_RETURN, "take a disk back", ret_answer, reterr);
}
