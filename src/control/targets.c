// SPDX-License-Identifier: MPL-2.0
/* Everything here is the first iSCSI loop's; the public functions go there with fiber_call(). The
 * others have portals and what comes by them, and nothing of this file: portals are opened on their
 * loop, one at a time, under a lock that a loop never takes.
 *
 * A target that lost its last LUN is taken down: initiators see it no more. Its scsi_target may
 * still have commands in a volume; it is kept as `ended` until they have come back, and reaped
 * then. */
#include "control/targets.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "control/answer.h"
#include "control/event.h"
#include "control/loop.h"
#include "env/fiber.h"
#include "iscsi/iscsi.h"

struct unit { /* a served LUN */
    struct list link;
    struct lun_record record;
    uint64_t volume_id;
};

struct users { /* CHAP users of a pool */
    struct list link;
    char pool[64];
    struct chap_record *records;
    uint32_t count;
    bool in_force;
};

struct target {
    struct list link;
    char iqn[224];
    char pool[64];
    struct scsi_target *scsi;
    struct list units;
};

struct targets {
    struct loop loops[ISCSI_LOOPS_MAX];
    uint32_t loop_count;
    bool has_guest; /* a pool lives on the first loop */
    struct iscsi_server *server;
    struct list live, ended; /* struct target */
    struct list users;       /* struct users */

    pthread_mutex_t portals_lock;
    bool ends;                                       /* no portal is opened any more */
    char portals[CONFIG_LIST_MAX][CONFIG_VALUE_MAX]; /* addresses bound; empty: not open */
};

enum { POLL_NS = 5 * NS_PER_MS };

/* Up to so many cores the first pool has no thread of its own but is a guest on the loop that
 * speaks iSCSI. Each command would otherwise change threads twice, which costs more than the
 * engine's whole work for it, and the initiator, or another pool, has a use for the other core. */
enum { SHARING_CORES_MAX = 2 };

static void event_tell(void *owner, enum iscsi_event kind, const char *text) {
    static const enum event_kind kinds[] = {[ISCSI_LOGIN] = EVENT_LOGIN,
                                            [ISCSI_LOGIN_REFUSED] = EVENT_LOGIN_REFUSED,
                                            [ISCSI_CONNECTION_ENDED] = EVENT_CONNECTION_ENDED,
                                            [ISCSI_SESSION_ENDED] = EVENT_SESSION_LOST,
                                            [ISCSI_EVENTS_UNTOLD] = EVENT_CONNECTION_ENDED};
    (void)owner;
    event_note(kinds[kind], NULL, "iscsi: %s", text);
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
            if (strcmp(target->pool, pool) == 0 && strcmp(unit->record.name, name) == 0) {
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
        if (scsi_target_is_idle(target->scsi)) {
            list_remove(&target->link);
            scsi_target_free(target->scsi);
            mem_free(target);
        }
    }
}

/* ---- access lists ----
 *
 * A target's list is made anew from the records of its units and the users of its pool whenever one
 * of them changes. */

static struct users *find_users(struct targets *targets, const char *pool) {
    LIST_FOR_EACH(it, &targets->users) {
        struct users *users = CONTAINER_OF(it, struct users, link);
        if (strcmp(users->pool, pool) == 0) {
            return users;
        }
    }
    return NULL;
}

static const char *given(const char *text) {
    return text[0] != '\0' ? text : NULL;
}

/* An open LUN has one rule that fits everybody. Returns how many there are now. */
static uint32_t add_rules(const struct lun_record *record, struct iscsi_rule *rules,
                          uint32_t count) {
    if (record->open) {
        rules[count++] = (struct iscsi_rule){.lun = record->number};
    }
    for (uint32_t i = 0; i < record->rule_count; i++) {
        const struct lun_rule *rule = &record->rules[i];
        rules[count++] = (struct iscsi_rule){record->number, given(rule->initiator),
                                             given(rule->address), given(rule->user)};
    }
    return count;
}

/* What the target's list would be with `record` in the place of the one of its name. The texts
 * belong to the records; access_done() frees the arrays. */
static struct iscsi_access access_of(struct targets *targets, const struct target *target,
                                     const struct lun_record *record) {
    const struct users *users = find_users(targets, target->pool);
    uint32_t user_count = users != NULL ? users->count : 0, rule_count = 0;
    struct iscsi_user *iscsi_users = MEM_NEW_ARRAY(struct iscsi_user, user_count + 1);
    struct iscsi_rule *rules =
        MEM_NEW_ARRAY(struct iscsi_rule, (LUN_NUMBER_MAX + 2) * (LUN_RULES_MAX + 1));
    for (uint32_t i = 0; i < user_count; i++) {
        iscsi_users[i] = chap_user(&users->records[i]);
    }
    LIST_FOR_EACH(it, &target->units) {
        const struct unit *unit = CONTAINER_OF(it, struct unit, link);
        if (record == NULL || strcmp(unit->record.name, record->name) != 0) {
            rule_count = add_rules(&unit->record, rules, rule_count);
        }
    }
    if (record != NULL) {
        rule_count = add_rules(record, rules, rule_count);
    }
    return (struct iscsi_access){target->pool, rules, rule_count, iscsi_users, user_count};
}

static void access_done(struct iscsi_access *access) {
    union {
        const void *given;
        void *taken;
    } rules = {.given = access->rules}, users = {.given = access->users};
    mem_free(rules.taken);
    mem_free(users.taken);
}

static int apply_access(struct targets *targets, struct target *target,
                        const struct lun_record *record, struct errmsg *reterr) {
    struct iscsi_access access = access_of(targets, target, record);
    int error = iscsi_target_set_access(targets->server, target->iqn, &access, reterr);
    access_done(&access);
    return error;
}

static void users_free(struct users *users) {
    if (users != NULL) {
        list_remove(&users->link);
        chap_records_free(users->records, users->count);
        mem_free(users);
    }
}

/* ---- units and targets ---- */

static void end_unit(struct target *target, struct unit *unit) {
    (void)!scsi_lun_remove(target->scsi, unit->record.number, NULL);
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
    uint32_t index;
    const struct chap_record *users;
    uint32_t user_count;
    uint64_t deadline_ns;
    struct errmsg *reterr;
    int result;
    bool opened;
    enum targets_state state;
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
    target->scsi = scsi_target_new(targets->loops[0].env);
    struct iscsi_access access = access_of(targets, target, call->record);
    int error = iscsi_target_add(targets->server, target->iqn, target->scsi, &access, call->reterr);
    access_done(&access);
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
    /* The list first: a unit is never there without it. */
    int error = target == NULL ? new_target(targets, call, &target)
                               : apply_access(targets, target, record, call->reterr);
    if (error != OK) {
        return error;
    }
    error = scsi_lun_add(target->scsi, record->number, call->door, call->volume, call->reterr);
    if (error != OK) {
        if (list_is_empty(&target->units)) {
            end_target(targets, target);
        } else {
            (void)!apply_access(targets, target, NULL, NULL);
        }
        return error;
    }
    struct unit *unit = MEM_NEW(struct unit);
    unit->record = *record;
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
        } else {
            (void)!apply_access(call->targets, target, NULL, NULL);
        }
    }
}

static void map_fiber(void *arg) {
    struct call *call = arg;
    struct target *target;
    struct unit *unit = find_unit(call->targets, call->pool, call->record->name, &target);
    if (unit != NULL) {
        call->result = apply_access(call->targets, target, call->record, call->reterr);
    }
    if (unit != NULL && call->result == OK) {
        unit->record = *call->record;
    }
}

static void users_fiber(void *arg) {
    struct call *call = arg;
    struct targets *targets = call->targets;
    struct users *before = find_users(targets, call->pool);
    if (before != NULL && before->in_force && before->count == call->user_count &&
        (before->count == 0 ||
         memcmp(before->records, call->users, before->count * sizeof(before->records[0])) == 0)) {
        return;
    }
    users_free(before);
    struct users *users = MEM_NEW(struct users);
    list_init(&users->link);
    (void)snprintf(users->pool, sizeof(users->pool), "%s", call->pool);
    users->records = MEM_NEW_ARRAY(struct chap_record, call->user_count + 1);
    users->count = call->user_count;
    for (uint32_t i = 0; i < call->user_count; i++) {
        users->records[i] = call->users[i];
    }
    list_append(&targets->users, &users->link);
    LIST_FOR_EACH(it, &targets->live) {
        struct target *target = CONTAINER_OF(it, struct target, link);
        if (strcmp(target->pool, call->pool) == 0 && call->result == OK) {
            call->result = apply_access(targets, target, NULL, call->reterr);
        }
    }
    users->in_force = call->result == OK;
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
    struct env *env = call->targets->loops[0].env;
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
    users_free(find_users(call->targets, call->pool));
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
                scsi_lun_update(target->scsi, unit->record.number, call->volume, &why) != OK) {
                event_note(EVENT_LUN_NOT_SERVED, call->pool,
                           "LUN %s does not show its new size: %s", unit->record.name, why.text);
            }
        }
    }
}

static void serves_fiber(void *arg) {
    struct call *call = arg;
    struct target *target;
    struct unit *unit = find_unit(call->targets, call->pool, call->record->name, &target);
    call->state = unit == NULL                                       ? TARGETS_NOT_SERVED
                  : lun_record_is_equal(&unit->record, call->record) ? TARGETS_AS_RECORDED
                                                                     : TARGETS_OTHERWISE;
}

static void sessions_fiber(void *arg) {
    struct call *call = arg;
    struct iscsi_server *server = call->targets->server;
    uint32_t count = server != NULL ? iscsi_session_list(server, NULL, 0) : 0;
    struct iscsi_session_status *list = MEM_NEW_ARRAY(struct iscsi_session_status, count + 1);
    count = server != NULL ? MIN(count, iscsi_session_list(server, list, count)) : 0;
    call->list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct iscsi_session_status *s = &list[i];
        (void)json_array_append_new(
            call->list,
            json_pack("{s:o, s:o, s:o, s:s, s:s, s:b, s:b, s:i, s:I, s:I, s:I, s:I}", "initiator",
                      answer_text(s->initiator), "user", answer_text(s->user), "target",
                      answer_text(s->target), "address", s->peer, "portal", s->portal,
                      "header_digest", (int)s->header_digest, "data_digest", (int)s->data_digest,
                      "commands", (int)s->commands, "commands_total", (json_int_t)s->commands_total,
                      "read_bytes", (json_int_t)s->read_bytes, "write_bytes",
                      (json_int_t)s->write_bytes, "age_seconds",
                      (json_int_t)(s->age_ns / NS_PER_S)));
    }
    mem_free(list);
}

static void append_counters(const struct target *target, struct scsi_lun_status *room,
                            json_t *list) {
    uint32_t count = scsi_lun_list(target->scsi, room, SCSI_LUNS_MAX);
    LIST_FOR_EACH(it, &target->units) {
        const struct lun_record *record = &CONTAINER_OF(it, struct unit, link)->record;
        for (uint32_t i = 0; i < count; i++) {
            const struct scsi_lun_status *s = &room[i];
            if (s->number == record->number) {
                (void)json_array_append_new(
                    list,
                    json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "pool",
                              target->pool, "name", record->name, "volume", record->volume, "reads",
                              (json_int_t)s->reads, "writes", (json_int_t)s->writes, "read_bytes",
                              (json_int_t)s->read_bytes, "write_bytes", (json_int_t)s->write_bytes,
                              "operations", (json_int_t)(s->reads + s->writes), "latency_ns",
                              (json_int_t)s->latency_ns, "queue", (json_int_t)s->tasks));
            }
        }
    }
}

static void counters_fiber(void *arg) {
    struct call *call = arg;
    struct scsi_lun_status *room = MEM_NEW_ARRAY(struct scsi_lun_status, SCSI_LUNS_MAX);
    call->list = json_array();
    LIST_FOR_EACH(it, &call->targets->live) {
        append_counters(CONTAINER_OF(it, struct target, link), room, call->list);
    }
    mem_free(room);
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
    struct targets *targets = call->targets;
    struct env *others[ISCSI_LOOPS_MAX];
    for (uint32_t i = 1; i < targets->loop_count; i++) {
        others[i - 1] = targets->loops[i].env;
    }
    const struct iscsi_options options = {
        .event = event_tell, .loops = others, .loop_count = targets->loop_count - 1};
    targets->server = iscsi_server_new(targets->loops[0].env, &options);
}

/* The tag the entry has: what it names, or the lowest that none before it has. */
static uint32_t tag_of(const struct config_list *listen, uint32_t index) {
    uint32_t tags[CONFIG_LIST_MAX];
    for (uint32_t i = 0; i <= index; i++) {
        const char *comma = strchr(listen->values[i], ',');
        tags[i] = comma != NULL ? (uint32_t)strtoul(comma + 1, NULL, 10) : 1;
        for (uint32_t k = 0; comma == NULL && k < i;) {
            bool taken = tags[k] == tags[i];
            tags[i] += taken;
            k = taken ? 0 : k + 1;
        }
    }
    return tags[index];
}

static void listen_fiber(void *arg) {
    struct call *call = arg;
    struct targets *targets = call->targets;
    const char *wanted = call->listen->values[call->index], *bound;
    char address[CONFIG_VALUE_MAX + 16], *portal = targets->portals[call->index];
    uint32_t tag = tag_of(call->listen, call->index);
    (void)snprintf(address, sizeof(address), "%.*s,%u", (int)strcspn(wanted, ","), wanted, tag);
    call->result = iscsi_portal_add_on(targets->server, call->index % targets->loop_count, address,
                                       call->reterr);
    call->opened = call->result == OK;
    /* Portals stand in order of their tags, a new one behind those of the same. */
    for (uint32_t i = 0; call->opened && (bound = iscsi_portal_address(targets->server, i)) != NULL;
         i++) {
        if (iscsi_portal_tag(targets->server, i) == tag) {
            (void)snprintf(portal, CONFIG_VALUE_MAX, "%s", bound);
        }
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
    while (!list_is_empty(&targets->users)) {
        users_free(CONTAINER_OF(targets->users.next, struct users, link));
    }
    if (call->result == OK) {
        iscsi_server_free(targets->server);
        targets->server = NULL;
    }
}

/* ---- from other threads ---- */

/* All threads end before any loop is freed: they post to each other. */
static void end_loops(struct targets *targets) {
    for (uint32_t i = 0; i < targets->loop_count; i++) {
        loop_end(&targets->loops[i]);
    }
    for (uint32_t i = 0; i < targets->loop_count; i++) {
        loop_free(&targets->loops[i]);
    }
    (void)pthread_mutex_destroy(&targets->portals_lock);
    mem_free(targets);
}

static uint64_t core_count(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
}

/* 0: as many as this process may use cores; one if that is taken by a pool as well. */
static uint32_t threads_wanted(uint64_t threads, bool has_guest) {
    if (threads == 0) {
        threads = has_guest ? 1 : core_count();
    }
    return (uint32_t)MAX(MIN(threads, (uint64_t)ISCSI_LOOPS_MAX), (uint64_t)1);
}

int targets_start(const char *state_dir, uint64_t threads, struct targets **ret_targets,
                  struct errmsg *reterr) {
    struct targets *targets = MEM_NEW(struct targets);
    list_init(&targets->live);
    list_init(&targets->ended);
    list_init(&targets->users);
    (void)pthread_mutex_init(&targets->portals_lock, NULL);
    targets->has_guest = threads == 0 && core_count() <= SHARING_CORES_MAX;
    uint32_t wanted = threads_wanted(threads, targets->has_guest);
    int error = OK;
    while (error == OK && targets->loop_count < wanted) {
        char name[16] = "iscsi";
        if (targets->loop_count > 0) {
            (void)snprintf(name, sizeof(name), "iscsi-%u", targets->loop_count + 1);
        }
        error = loop_start(&targets->loops[targets->loop_count], name, state_dir, reterr);
        targets->loop_count += error == OK;
    }
    if (error != OK) {
        end_loops(targets);
        return error;
    }
    struct call call = {.targets = targets};
    fiber_call(targets->loops[0].env, start_fiber, &call);
    *ret_targets = targets;
    return OK;
}

struct env *targets_env(struct targets *targets) {
    return targets->has_guest ? targets->loops[0].env : NULL;
}

int targets_listen(struct targets *targets, const struct config_list *listen, uint32_t index,
                   bool *ret_opened, struct errmsg *reterr) {
    struct call call = {.targets = targets, .listen = listen, .index = index, .reterr = reterr};
    pthread_mutex_lock(&targets->portals_lock);
    if (!targets->ends && targets->portals[index][0] == '\0') {
        fiber_call(targets->loops[index % targets->loop_count].env, listen_fiber, &call);
    }
    pthread_mutex_unlock(&targets->portals_lock);
    *ret_opened = call.opened;
    return call.result;
}

void targets_portal(struct targets *targets, uint32_t index, char ret_address[CONFIG_VALUE_MAX]) {
    pthread_mutex_lock(&targets->portals_lock);
    (void)snprintf(ret_address, CONFIG_VALUE_MAX, "%s", targets->portals[index]);
    pthread_mutex_unlock(&targets->portals_lock);
}

int targets_quiesce(struct targets *targets, uint64_t deadline_ns) {
    struct call call = {.targets = targets, .deadline_ns = deadline_ns};
    pthread_mutex_lock(&targets->portals_lock);
    targets->ends = true;
    pthread_mutex_unlock(&targets->portals_lock);
    fiber_call(targets->loops[0].env, quiesce_fiber, &call);
    return call.result;
}

void targets_free(struct targets *targets) {
    ASSERT(targets->server == NULL);
    end_loops(targets);
}

int targets_add(struct targets *targets, const char *pool, const struct lun_record *record,
                const struct volume_info *volume, struct volume_door *door, struct errmsg *reterr) {
    struct call call = {.targets = targets,
                        .pool = pool,
                        .record = record,
                        .volume = volume,
                        .door = door,
                        .reterr = reterr};
    fiber_call(targets->loops[0].env, add_fiber, &call);
    return call.result;
}

void targets_remove(struct targets *targets, const char *pool, const char *lun) {
    struct call call = {.targets = targets, .pool = pool, .name = lun};
    fiber_call(targets->loops[0].env, remove_fiber, &call);
}

int targets_remove_pool(struct targets *targets, const char *pool, uint64_t deadline_ns) {
    struct call call = {.targets = targets, .pool = pool, .deadline_ns = deadline_ns};
    fiber_call(targets->loops[0].env, remove_pool_fiber, &call);
    return call.result;
}

void targets_resized(struct targets *targets, const char *pool, const struct volume_info *volume) {
    struct call call = {.targets = targets, .pool = pool, .volume = volume};
    fiber_call(targets->loops[0].env, resized_fiber, &call);
}

int targets_map(struct targets *targets, const char *pool, const struct lun_record *record,
                struct errmsg *reterr) {
    struct call call = {.targets = targets, .pool = pool, .record = record, .reterr = reterr};
    fiber_call(targets->loops[0].env, map_fiber, &call);
    return call.result;
}

int targets_users(struct targets *targets, const char *pool, const struct chap_record *users,
                  uint32_t count, struct errmsg *reterr) {
    struct call call = {
        .targets = targets, .pool = pool, .users = users, .user_count = count, .reterr = reterr};
    fiber_call(targets->loops[0].env, users_fiber, &call);
    return call.result;
}

json_t *targets_sessions(struct targets *targets) {
    struct call call = {.targets = targets};
    fiber_call(targets->loops[0].env, sessions_fiber, &call);
    return call.list;
}

enum targets_state targets_state(struct targets *targets, const char *pool,
                                 const struct lun_record *record) {
    struct call call = {.targets = targets, .pool = pool, .record = record};
    fiber_call(targets->loops[0].env, serves_fiber, &call);
    return call.state;
}

bool targets_serves(struct targets *targets, const char *pool, const struct lun_record *record) {
    return targets_state(targets, pool, record) == TARGETS_AS_RECORDED;
}

json_t *targets_counters(struct targets *targets) {
    struct call call = {.targets = targets};
    fiber_call(targets->loops[0].env, counters_fiber, &call);
    return call.list;
}

json_t *targets_portals(struct targets *targets) {
    struct call call = {.targets = targets};
    fiber_call(targets->loops[0].env, portals_fiber, &call);
    return call.list;
}
