// SPDX-License-Identifier: MPL-2.0
/* Everything here is the iSCSI loop's; the public functions go there with fiber_call().
 *
 * A target that lost its last LUN is taken down: initiators see it no more. Its scsi_target may
 * still have commands in a volume; it is kept as `ended` until they have come back, and reaped
 * then. */
#include "control/targets.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "control/log.h"
#include "control/loop.h"
#include "env/fiber.h"
#include "iscsi/iscsi.h"

struct unit { /* a served LUN */
    struct list link;
    char name[64];
    uint64_t volume_id;
    uint32_t number;
};

struct target {
    struct list link;
    char iqn[224];
    char pool[64];
    struct scsi_target *scsi;
    struct list units;
};

struct targets {
    struct loop loop;
    struct iscsi_server *server;
    struct list live, ended; /* struct target */
};

enum { POLL_NS = 5 * NS_PER_MS };

static void event_log(void *owner, const char *text) {
    (void)owner;
    log_line("iscsi: %s", text);
}

/* ---- on the loop ---- */

static struct target *find_target(struct targets *targets, const char *iqn) {
    LIST_FOR_EACH(it, &targets->live) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        if (strcmp(target->iqn, iqn) == 0) {
            return target;
        }
    }
    return NULL;
}

static struct unit *find_unit(struct targets *targets, const char *pool, const char *name,
                              struct target **ret_target) {
    LIST_FOR_EACH(it, &targets->live) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        LIST_FOR_EACH(unit_it, &target->units) {
            struct unit *unit = CONTAINER_OF(unit_it, struct unit, link);
            if (strcmp(target->pool, pool) == 0 && strcmp(unit->name, name) == 0) {
                *ret_target = target;
                return unit;
            }
        }
    }
    return NULL;
}

static void reap(struct targets *targets) {
    LIST_FOR_EACH_SAFE(it, &targets->ended) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        if (scsi_target_outstanding(target->scsi) == 0) {
            list_remove(&target->link);
            scsi_target_free(target->scsi);
            mem_free(target);
        }
    }
}

static void end_unit(struct target *target, struct unit *unit) {
    (void)!scsi_lun_remove(target->scsi, unit->number, NULL);
    list_remove(&unit->link);
    mem_free(unit);
}

static void end_target(struct targets *targets, struct target *target) {
    (void)!iscsi_target_remove(targets->server, target->iqn, NULL);
    LIST_FOR_EACH_SAFE(it, &target->units) {
        end_unit(target, CONTAINER_OF(it, struct unit, link));
    }
    list_remove(&target->link);
    list_append(&targets->ended, &target->link);
    reap(targets);
}

/* One call: what the public functions hand to the loop. */
struct call {
    struct targets *targets;
    const char *pool;
    const char *name;
    const struct lun_record *record;
    const struct volume_info *volume;
    struct volume_door *door;
    const struct config_list *listen;
    uint64_t deadline_ns;
    struct errmsg *reterr;
    int result;
    bool found;
    json_t *list;
    struct fiber_queue stopped;
    bool has_stopped;
};

static int new_target(struct targets *targets, const struct call *call,
                      struct target **ret_target) {
    struct target *target = MEM_NEW(struct target);
    list_init(&target->link);
    list_init(&target->units);
    (void)snprintf(target->iqn, sizeof(target->iqn), "%s", call->record->target);
    (void)snprintf(target->pool, sizeof(target->pool), "%s", call->pool);
    target->scsi = scsi_target_new(targets->loop.env);
    int error = iscsi_target_add(targets->server, target->iqn, target->scsi, NULL, call->reterr);
    if (error != OK) {
        scsi_target_free(target->scsi);
        mem_free(target);
        return error;
    }
    list_append(&targets->live, &target->link);
    *ret_target = target;
    return OK;
}

static int add_on_loop(struct call *call) {
    struct targets *targets = call->targets;
    const struct lun_record *record = call->record;
    if (targets->server == NULL) {
        return errmsg_set(call->reterr, ERR_SHUTDOWN, "the service is being stopped");
    }
    reap(targets);
    struct target *target = find_target(targets, record->target);
    if (target != NULL && strcmp(target->pool, call->pool) != 0) {
        return errmsg_set(call->reterr, ERR_EXISTS,
                          "target %s belongs to pool %s; choose another target name for LUN %s",
                          record->target, target->pool, record->name);
    }
    if (target == NULL) {
        int error = new_target(targets, call, &target);
        if (error != OK) {
            return error;
        }
    }
    int error = scsi_lun_add(target->scsi, record->number, call->door, call->volume, call->reterr);
    if (error != OK) {
        if (list_is_empty(&target->units)) {
            end_target(targets, target);
        }
        return error;
    }
    struct unit *unit = MEM_NEW(struct unit);
    (void)snprintf(unit->name, sizeof(unit->name), "%s", record->name);
    unit->number = record->number;
    unit->volume_id = call->volume->id;
    list_append(&target->units, &unit->link);
    return OK;
}

static void add_fiber(void *arg) {
    struct call *call = arg;
    call->result = add_on_loop(call);
}

static void remove_fiber(void *arg) {
    struct call *call = arg;
    struct target *target;
    struct unit *unit = find_unit(call->targets, call->pool, call->name, &target);
    if (unit != NULL) {
        end_unit(target, unit);
        if (list_is_empty(&target->units)) {
            end_target(call->targets, target);
        }
    }
}

static bool pool_has_commands(struct targets *targets, const char *pool) {
    reap(targets);
    LIST_FOR_EACH(it, &targets->ended) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        if (pool == NULL || strcmp(target->pool, pool) == 0) {
            return true;
        }
    }
    return false;
}

static int wait_commands(struct call *call, const char *pool) {
    struct env *env = call->targets->loop.env;
    while (pool_has_commands(call->targets, pool)) {
        if (env_now_ns(env) >= call->deadline_ns) {
            return ERR_TIMEOUT;
        }
        fiber_sleep_until(env_now_ns(env) + POLL_NS);
    }
    return OK;
}

static void remove_pool_fiber(void *arg) {
    struct call *call = arg;
    LIST_FOR_EACH_SAFE(it, &call->targets->live) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        if (strcmp(target->pool, call->pool) == 0) {
            end_target(call->targets, target);
        }
    }
    call->result = wait_commands(call, call->pool);
}

static void resized_fiber(void *arg) {
    struct call *call = arg;
    LIST_FOR_EACH(it, &call->targets->live) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        LIST_FOR_EACH(unit_it, &target->units) {
            struct unit *unit = CONTAINER_OF(unit_it, struct unit, link);
            struct errmsg why = {0};
            if (strcmp(target->pool, call->pool) == 0 && unit->volume_id == call->volume->id &&
                scsi_lun_update(target->scsi, unit->number, call->volume, &why) != OK) {
                log_line("pool %s: LUN %s does not show its new size: %s", call->pool, unit->name,
                         why.text);
            }
        }
    }
}

static void serves_fiber(void *arg) {
    struct call *call = arg;
    struct target *target;
    call->found = find_unit(call->targets, call->pool, call->name, &target) != NULL;
}

static void portals_fiber(void *arg) {
    struct call *call = arg;
    const char *address;
    call->list = json_array();
    for (uint32_t i = 0; call->targets->server != NULL &&
                         (address = iscsi_portal_address(call->targets->server, i)) != NULL;
         i++) {
        (void)json_array_append_new(call->list, json_string(address));
    }
}

static void start_fiber(void *arg) {
    struct call *call = arg;
    const struct iscsi_options options = {.event = event_log};
    struct targets *targets = call->targets;
    targets->server = iscsi_server_new(targets->loop.env, &options);
}

static void listen_fiber(void *arg) {
    struct call *call = arg;
    for (uint32_t i = 0; call->result == OK && i < call->listen->count; i++) {
        call->result =
            iscsi_portal_add(call->targets->server, call->listen->values[i], call->reterr);
    }
}

static void server_stopped(void *owner) {
    struct call *call = owner;
    call->has_stopped = true;
    fiber_queue_wake_all(&call->stopped);
}

static void quiesce_fiber(void *arg) {
    struct call *call = arg;
    struct targets *targets = call->targets;
    fiber_queue_init(&call->stopped);
    iscsi_server_stop(targets->server, call->deadline_ns, server_stopped, call);
    while (!call->has_stopped) {
        fiber_queue_wait(&call->stopped);
    }
    while (!list_is_empty(&targets->live)) {
        end_target(targets, CONTAINER_OF(targets->live.next, struct target, link));
    }
    call->result = wait_commands(call, NULL);
    if (call->result == OK) {
        iscsi_server_free(targets->server);
        targets->server = NULL;
    }
}

/* ---- from other threads ---- */

int targets_start(const char *state_dir, struct targets **ret_targets, struct errmsg *reterr) {
    struct targets *targets = MEM_NEW(struct targets);
    list_init(&targets->live);
    list_init(&targets->ended);
    int error = loop_start(&targets->loop, "iscsi", state_dir, reterr);
    if (error != OK) {
        mem_free(targets);
        return error;
    }
    struct call call = {.targets = targets};
    fiber_call(targets->loop.env, start_fiber, &call);
    *ret_targets = targets;
    return OK;
}

int targets_listen(struct targets *targets, const struct config_list *listen,
                   struct errmsg *reterr) {
    struct call call = {.targets = targets, .listen = listen, .reterr = reterr};
    fiber_call(targets->loop.env, listen_fiber, &call);
    return call.result;
}

int targets_quiesce(struct targets *targets, uint64_t deadline_ns) {
    struct call call = {.targets = targets, .deadline_ns = deadline_ns};
    fiber_call(targets->loop.env, quiesce_fiber, &call);
    return call.result;
}

void targets_free(struct targets *targets) {
    ASSERT(targets->server == NULL);
    loop_stop(&targets->loop);
    mem_free(targets);
}

int targets_add(struct targets *targets, const char *pool, const struct lun_record *record,
                const struct volume_info *volume, struct volume_door *door, struct errmsg *reterr) {
    struct call call = {.targets = targets,
                        .pool = pool,
                        .record = record,
                        .volume = volume,
                        .door = door,
                        .reterr = reterr};
    fiber_call(targets->loop.env, add_fiber, &call);
    return call.result;
}

void targets_remove(struct targets *targets, const char *pool, const char *lun) {
    struct call call = {.targets = targets, .pool = pool, .name = lun};
    fiber_call(targets->loop.env, remove_fiber, &call);
}

int targets_remove_pool(struct targets *targets, const char *pool, uint64_t deadline_ns) {
    struct call call = {.targets = targets, .pool = pool, .deadline_ns = deadline_ns};
    fiber_call(targets->loop.env, remove_pool_fiber, &call);
    return call.result;
}

void targets_resized(struct targets *targets, const char *pool, const struct volume_info *volume) {
    struct call call = {.targets = targets, .pool = pool, .volume = volume};
    fiber_call(targets->loop.env, resized_fiber, &call);
}

bool targets_serves(struct targets *targets, const char *pool, const char *lun) {
    struct call call = {.targets = targets, .pool = pool, .name = lun};
    fiber_call(targets->loop.env, serves_fiber, &call);
    return call.found;
}

json_t *targets_portals(struct targets *targets) {
    struct call call = {.targets = targets};
    fiber_call(targets->loop.env, portals_fiber, &call);
    return call.list;
}
