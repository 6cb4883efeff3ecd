// SPDX-License-Identifier: MPL-2.0
/* The server: portals, targets, SendTargets, status, stop. internal.h says what its lock guards. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/math.h"
#include "iscsi/internal.h"

enum { ASYNC_DROPS_ALL = 3 }; /* RFC 7143 §11.9.1: all connections of the session will be dropped */
enum { CACHED_BYTES_MAX = 32 << 20 }; /* free data buffers that are kept, all loops together */

static void retry_waiters(struct env_task *task);
static void stop_arrived(struct env_task *task);
static void deadline_arrived(struct env_task *task);

static void loop_init(struct iscsi_loop *loop, struct iscsi_server *server, struct env *env) {
    loop->server = server;
    loop->env = env;
    list_init(&loop->connections);
    list_init(&loop->memory_waiters);
    memory_init(&loop->memory, &server->memory);
    loop->retry_task.run = retry_waiters;
    loop->stop_task.run = stop_arrived;
    loop->deadline_task.run = deadline_arrived;
}

struct iscsi_server *iscsi_server_new(struct env *env, const struct iscsi_options *options) {
    struct iscsi_server *server = MEM_NEW(struct iscsi_server);
    ASSERT(options->loop_count < ISCSI_LOOPS_MAX);
    server->env = env;
    server->options = *options;
    server->options.loops = NULL;
    atomic_init(&server->holders, 1);
    lock_init(&server->lock);
    lock_init(&server->events_lock);
    struct iscsi_options *o = &server->options;
    o->sessions_max = o->sessions_max != 0 ? o->sessions_max : ISCSI_SESSIONS_MAX;
    o->commands_max = o->commands_max != 0 ? o->commands_max : ISCSI_COMMANDS_MAX;
    o->memory_bytes = o->memory_bytes != 0 ? o->memory_bytes : ISCSI_MEMORY_BYTES;
    o->keepalive_s = o->keepalive_s != 0 ? o->keepalive_s : ISCSI_KEEPALIVE_S;
    o->keepalive_answer_s =
        o->keepalive_answer_s != 0 ? o->keepalive_answer_s : ISCSI_KEEPALIVE_ANSWER_S;
    o->login_s = o->login_s != 0 ? o->login_s : ISCSI_LOGIN_S;
    list_init(&server->portals);
    list_init(&server->closed_portals);
    list_init(&server->targets);
    list_init(&server->connections);
    server->loop_count = 1 + options->loop_count;
    server->memory.limit_bytes = o->memory_bytes;
    server->memory.cached_bytes_max = CACHED_BYTES_MAX / server->loop_count;
    for (uint32_t i = 0; i < server->loop_count; i++) {
        loop_init(&server->loops[i], server, i == 0 ? env : options->loops[i - 1]);
    }
    return server;
}

void server_lock(struct iscsi_server *server) {
    lock_take(&server->lock);
}

void server_unlock(struct iscsi_server *server) {
    lock_release(&server->lock);
}

void server_hold(struct iscsi_server *server) {
    (void)atomic_fetch_add(&server->holders, 1);
}

void server_release(struct iscsi_server *server) {
    if (atomic_fetch_sub(&server->holders, 1) != 1) {
        return;
    }
    for (uint32_t i = 0; i < server->loop_count; i++) {
        memory_done(&server->loops[i].memory);
    }
    struct list *node;
    while ((node = list_pop(&server->closed_portals)) != NULL) {
        mem_free(CONTAINER_OF(node, struct iscsi_portal, in_server));
    }
    lock_done(&server->lock);
    lock_done(&server->events_lock);
    mem_free(server);
}

/* So many that nobody would read them are not told: somebody who connects all day long must not
 * fill a log. How many there were is told with the next one that is. */
static bool event_is_told(struct iscsi_server *server) {
    uint64_t now = env_now_ns(server->env);
    if (now - server->events_since_ns >= ISCSI_EVENTS_S * NS_PER_S) {
        uint32_t untold = server->event_count - MIN(server->event_count, ISCSI_EVENTS_MAX + 0u);
        server->events_since_ns = now;
        server->event_count = 0;
        if (untold != 0) {
            char text[64];
            snprintf(text, sizeof(text), "%u more events that were not told", untold);
            server->options.event(server->options.event_owner, ISCSI_EVENTS_UNTOLD, text);
        }
    }
    return server->event_count++ < ISCSI_EVENTS_MAX;
}

void server_event(struct iscsi_server *server, enum iscsi_event kind, const char *format, ...) {
    if (server->options.event == NULL) {
        return;
    }
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    lock_take(&server->events_lock);
    if (event_is_told(server)) {
        server->options.event(server->options.event_owner, kind, text);
    }
    lock_release(&server->events_lock);
}

/* ---- memory that commands wait for ---- */

static void retry_waiters(struct env_task *task) {
    struct iscsi_loop *loop = CONTAINER_OF(task, struct iscsi_loop, retry_task);
    atomic_store(&loop->retry_queued, false);
    LIST_FOR_EACH_SAFE(it, &loop->memory_waiters) {
        command_retry_memory(CONTAINER_OF(it, struct iscsi_command, in_waiters));
    }
    if (list_is_empty(&loop->memory_waiters) && atomic_exchange(&loop->has_waiters, false)) {
        (void)atomic_fetch_sub(&loop->server->memory.waiting_loops, 1);
    }
    server_release(loop->server);
}

/* A loop whose command finds no memory says so first and then tries once more; we have given back
 * first and look then whether one has said so: one of the two sees the other. */
void server_memory_freed(struct iscsi_server *server) {
    if (atomic_load(&server->memory.waiting_loops) == 0) {
        return;
    }
    for (uint32_t i = 0; i < server->loop_count; i++) {
        struct iscsi_loop *loop = &server->loops[i];
        if (atomic_load(&loop->has_waiters) && !atomic_exchange(&loop->retry_queued, true)) {
            server_hold(server);
            env_post(loop->env, &loop->retry_task);
        }
    }
}

/* ---- portals ---- */

/* Too many that have not logged in: the oldest has had the most time, of those of the address if it
 * is that address that has too many. */
static void make_room(struct iscsi_loop *loop, const struct net_prefix *address) {
    struct iscsi_server *server = loop->server;
    struct iscsi_connection *oldest = NULL, *oldest_of_address = NULL;
    struct iscsi_order *order = NULL;
    uint32_t of_address = 0;
    server_lock(server);
    LIST_FOR_EACH(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (!connection->logging_in) {
            continue;
        }
        oldest = oldest == NULL ? connection : oldest;
        if (prefix_holds(address, &connection->address)) {
            of_address++;
            oldest_of_address = oldest_of_address == NULL ? connection : oldest_of_address;
        }
    }
    if (of_address >= ISCSI_LOGINS_PER_ADDRESS_MAX) {
        order = order_close(oldest_of_address, "too many logins at once from its address");
    } else if (server->login_count >= ISCSI_LOGINS_MAX) {
        order = order_close(oldest, "too many logins at once");
    }
    server_unlock(server);
    if (order != NULL) {
        order_go(order, loop);
    }
}

static void accepted(void *owner, struct net_stream *stream) {
    struct iscsi_portal *portal = owner;
    struct net_prefix address = {.bits = 128}; /* ::, if the peer has no address that we know */
    (void)!prefix_of_peer(net_stream_peer(stream), &address);
    make_room(portal->loop, &address);
    connection_accept(portal, stream, &address);
}

/* "ADDR:PORT,TAG" into its parts; 0: no tag is given. */
static int split_tag(const char *given, char *ret_address, size_t room, uint16_t *ret_tag,
                     struct errmsg *reterr) {
    const char *comma = strrchr(given, ',');
    size_t length = comma != NULL ? (size_t)(comma - given) : strlen(given);
    uint32_t tag = 0;
    if (length >= room ||
        (comma != NULL && (text_number(comma + 1, &tag) != OK || tag < 1 || tag > UINT16_MAX))) {
        return errmsg_set(reterr, ERR_INVALID,
                          "portal %.200s: a portal group tag is a number from 1 to 65535", given);
    }
    memcpy(ret_address, given, length);
    ret_address[length] = 0;
    *ret_tag = (uint16_t)tag;
    return OK;
}

static uint16_t free_portal_tag(const struct iscsi_server *server) {
    uint16_t tag = 1;
    bool used;
    do {
        used = false;
        LIST_FOR_EACH(it, &server->portals) {
            used |= CONTAINER_OF(it, struct iscsi_portal, in_server)->tag == tag;
        }
        tag += used;
    } while (used);
    return tag;
}

/* Every target can be reached through every portal. */
static void tell_ports(const struct iscsi_server *server, struct scsi_target *scsi) {
    uint16_t ids[ISCSI_PORTALS_MAX];
    uint32_t count = 0;
    LIST_FOR_EACH(it, &server->portals) { /* in order of tags; those of a group are one port */
        uint16_t tag = CONTAINER_OF(it, struct iscsi_portal, in_server)->tag;
        if (count == 0 || ids[count - 1] != tag) {
            ids[count++] = tag;
        }
    }
    scsi_target_set_ports(scsi, ids, count);
}

static void portals_changed(struct iscsi_server *server) {
    LIST_FOR_EACH(it, &server->targets) {
        tell_ports(server, CONTAINER_OF(it, struct iscsi_target, in_server)->scsi);
    }
}

static int portal_open(struct iscsi_portal *portal, const char *address, struct errmsg *reterr) {
    struct iscsi_server *server = portal->loop->server;
    server_lock(server);
    int error = OK;
    if (server->portal_count >= ISCSI_PORTALS_MAX) {
        error =
            errmsg_set(reterr, ERR_LIMIT, "portal %s: there are %u portals, more are not allowed",
                       address, server->portal_count);
    }
    if (error == OK) {
        error = split_tag(address, portal->given, sizeof(portal->given), &portal->tag, reterr);
    }
    if (error == OK && portal->tag == 0) {
        portal->tag = free_portal_tag(server);
    }
    server_unlock(server);
    if (error == OK) {
        error = net_listen(portal->loop->env, portal->given, accepted, portal, &portal->listener,
                           reterr);
    }
    if (error == OK) {
        snprintf(portal->bound, sizeof(portal->bound), "%s",
                 net_listener_address(portal->listener));
    }
    return error;
}

int iscsi_portal_add_on(struct iscsi_server *server, uint32_t loop, const char *address,
                        struct errmsg *reterr) {
    ASSERT(loop < server->loop_count);
    struct iscsi_portal *portal = MEM_NEW(struct iscsi_portal);
    portal->loop = &server->loops[loop];
    int error = portal_open(portal, address, reterr);
    if (error != OK) {
        mem_free(portal);
        return error;
    }
    server_lock(server);
    /* In order of tags, which is the order of target ports. */
    struct list *at = server->portals.next;
    while (at != &server->portals &&
           CONTAINER_OF(at, struct iscsi_portal, in_server)->tag <= portal->tag) {
        at = at->next;
    }
    list_insert_before(at, &portal->in_server);
    server->portal_count++;
    portals_changed(server);
    server_unlock(server);
    return OK;
}

int iscsi_portal_add(struct iscsi_server *server, const char *address, struct errmsg *reterr) {
    return iscsi_portal_add_on(server, 0, address, reterr);
}

/* With the lock; the portal's loop closes its listener then. */
static void portal_take_out(struct iscsi_server *server, struct iscsi_portal *portal) {
    list_remove(&portal->in_server);
    list_append(&server->closed_portals, &portal->in_server);
    server->portal_count--;
}

int iscsi_portal_remove(struct iscsi_server *server, const char *address, struct errmsg *reterr) {
    struct iscsi_portal *found = NULL;
    server_lock(server);
    LIST_FOR_EACH(it, &server->portals) {
        struct iscsi_portal *portal = CONTAINER_OF(it, struct iscsi_portal, in_server);
        if (found == NULL &&
            (strcmp(portal->given, address) == 0 || strcmp(portal->bound, address) == 0)) {
            found = portal;
        }
    }
    if (found != NULL) {
        portal_take_out(server, found);
        portals_changed(server);
    }
    server_unlock(server);
    if (found == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no portal %s", address);
    }
    net_listener_close(found->listener);
    return OK;
}

static const struct iscsi_portal *portal_at(struct iscsi_server *server, uint32_t index) {
    const struct iscsi_portal *found = NULL;
    server_lock(server);
    LIST_FOR_EACH(it, &server->portals) {
        if (index-- == 0) {
            found = CONTAINER_OF(it, struct iscsi_portal, in_server);
        }
    }
    server_unlock(server);
    return found;
}

const char *iscsi_portal_address(struct iscsi_server *server, uint32_t index) {
    const struct iscsi_portal *portal = portal_at(server, index);
    return portal != NULL ? portal->bound : NULL;
}

uint16_t iscsi_portal_tag(struct iscsi_server *server, uint32_t index) {
    const struct iscsi_portal *portal = portal_at(server, index);
    return portal != NULL ? portal->tag : 0;
}

/* ---- targets ----
 *
 * Names are compared without regard to case: their normal form is lower case, and not every
 * initiator brings its own into it. */

struct iscsi_target *server_find_target(const struct iscsi_server *server, const char *iqn) {
    LIST_FOR_EACH(it, &server->targets) {
        struct iscsi_target *target = CONTAINER_OF(it, struct iscsi_target, in_server);
        if (strcasecmp(target->iqn, iqn) == 0) {
            return target;
        }
    }
    return NULL;
}

static int target_add(struct iscsi_server *server, const char *iqn, struct scsi_target *scsi,
                      struct access *access, struct errmsg *reterr) {
    if (server_find_target(server, iqn) != NULL) {
        return errmsg_set(reterr, ERR_EXISTS, "target %s exists already", iqn);
    }
    if (server->target_count >= ISCSI_TARGETS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "target %s: at most %u targets are possible", iqn,
                          ISCSI_TARGETS_MAX);
    }
    struct iscsi_target *target = MEM_NEW(struct iscsi_target);
    memcpy(target->iqn, iqn, strlen(iqn) + 1);
    target->users = 1;
    target->scsi = scsi;
    target->access = access;
    list_append(&server->targets, &target->in_server);
    server->target_count++;
    tell_ports(server, scsi);
    return OK;
}

int iscsi_target_add(struct iscsi_server *server, const char *iqn, struct scsi_target *scsi,
                     const struct iscsi_access *given, struct errmsg *reterr) {
    struct access *access = NULL;
    int error = iscsi_name_check(iqn, reterr);
    if (error == OK && given != NULL) {
        error = access_new(given, &access, reterr);
    }
    if (error != OK) {
        return error;
    }
    server_lock(server);
    error = target_add(server, iqn, scsi, access, reterr);
    server_unlock(server);
    if (error != OK) {
        access_free(access);
    }
    return error;
}

void server_target_unref(struct iscsi_target *target) {
    if (--target->users == 0) {
        mem_free(target);
    }
}

static bool uses(const struct iscsi_connection *connection, const struct iscsi_target *target) {
    return connection->session != NULL && connection->session->target == target;
}

int iscsi_target_set_access(struct iscsi_server *server, const char *iqn,
                            const struct iscsi_access *given, struct errmsg *reterr) {
    struct access *access = NULL;
    struct list orders;
    list_init(&orders);
    int error = given != NULL ? access_new(given, &access, reterr) : OK;
    if (error != OK) {
        return error;
    }
    server_lock(server);
    struct iscsi_target *target = server_find_target(server, iqn);
    if (target != NULL) {
        struct access *before = target->access;
        target->access = access;
        access = before;
    }
    LIST_FOR_EACH(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (target != NULL && uses(connection, target) && !session_recheck(connection)) {
            order_add(&orders, order_close(connection, "no LUN is for it any more"));
        }
    }
    server_unlock(server);
    access_free(access);
    orders_go(&orders, &server->loops[0]);
    return target != NULL ? OK : errmsg_set(reterr, ERR_NOT_FOUND, "there is no target %s", iqn);
}

static void target_take_out(struct iscsi_server *server, struct iscsi_target *target,
                            struct list *orders) {
    LIST_FOR_EACH(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (uses(connection, target)) {
            order_add(orders, order_close(connection, "its target was removed"));
        }
    }
    access_free(target->access);
    target->access = NULL;
    list_remove(&target->in_server);
    server->target_count--;
    server_target_unref(target);
}

int iscsi_target_remove(struct iscsi_server *server, const char *iqn, struct errmsg *reterr) {
    struct list orders;
    list_init(&orders);
    server_lock(server);
    struct iscsi_target *target = server_find_target(server, iqn);
    bool found = target != NULL;
    if (found) {
        target_take_out(server, target, &orders);
    }
    server_unlock(server);
    orders_go(&orders, &server->loops[0]);
    return found ? OK : errmsg_set(reterr, ERR_NOT_FOUND, "there is no target %s", iqn);
}

/* ---- SendTargets (RFC 7143 §C) ---- */

static bool is_wildcard(const char *address) {
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

/* A portal that listens on every address is reached through the one the initiator came by, if that
 * is of its family; if not, we do not know an address of it. */
static void put_portal(const struct iscsi_portal *portal, const char *local,
                       struct text_buffer *answer) {
    const char *bound = portal->bound;
    char value[ISCSI_VALUE_BYTES_MAX + 1];
    if (is_wildcard(bound)) {
        const char *host_end = strrchr(local, ':');
        const char *port = strrchr(bound, ':');
        if (host_end == NULL || port == NULL || (local[0] == '[') != (bound[0] == '[')) {
            return;
        }
        snprintf(value, sizeof(value), "%.*s%s,%u", (int)(host_end - local), local, port,
                 portal->tag);
    } else {
        snprintf(value, sizeof(value), "%s,%u", bound, portal->tag);
    }
    text_put(answer, "TargetAddress", value);
}

void server_send_targets(struct iscsi_connection *connection, const char *which,
                         struct text_buffer *answer) {
    struct iscsi_server *server = connection->server;
    const struct iscsi_session *session = connection->session;
    struct access_peer peer = connection_peer(connection);
    const char *local = net_stream_local(connection->stream);
    bool all = strcmp(which, "All") == 0;
    server_lock(server);
    LIST_FOR_EACH(it, &server->targets) {
        const struct iscsi_target *target = CONTAINER_OF(it, struct iscsi_target, in_server);
        bool wanted =
            all || strcmp(which, target->iqn) == 0 || (which[0] == 0 && session->target == target);
        /* Inside a normal session only its own target may be asked about. */
        if (!wanted || (session->target != NULL && session->target != target) ||
            !access_shows(target->access, &peer)) {
            continue;
        }
        text_put(answer, "TargetName", target->iqn);
        LIST_FOR_EACH(jt, &server->portals) {
            put_portal(CONTAINER_OF(jt, struct iscsi_portal, in_server), local, answer);
        }
    }
    server_unlock(server);
}

/* ---- status ---- */

static struct iscsi_session_status status_of(const struct iscsi_connection *connection) {
    const struct iscsi_session *session = connection->session;
    uint64_t total = counter_get(&session->commands_total);
    uint64_t ended = counter_get(&session->commands_ended);
    struct iscsi_session_status status = {
        .tsih = session->tsih,
        .header_digest = session->header_digest,
        .data_digest = session->data_digest,
        .commands = (uint32_t)(total - MIN(total, ended)),
        .commands_total = total,
        .read_bytes = counter_get(&session->read_bytes),
        .write_bytes = counter_get(&session->write_bytes),
        .age_ns = env_now_ns(connection->server->env) - connection->since_ns,
    };
    memcpy(status.isid, session->isid, sizeof(status.isid));
    memcpy(status.initiator, session->initiator, sizeof(status.initiator));
    memcpy(status.user, session->user, sizeof(status.user));
    if (session->target != NULL) {
        memcpy(status.target, session->target->iqn, sizeof(status.target));
    }
    snprintf(status.peer, sizeof(status.peer), "%s", net_stream_peer(connection->stream));
    snprintf(status.portal, sizeof(status.portal), "%s", net_stream_local(connection->stream));
    return status;
}

uint32_t iscsi_session_list(struct iscsi_server *server, struct iscsi_session_status *ret_sessions,
                            uint32_t room) {
    uint32_t count = 0;
    server_lock(server);
    LIST_FOR_EACH(it, &server->connections) {
        const struct iscsi_connection *connection =
            CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (connection->session == NULL) {
            continue;
        }
        if (count++ < room) {
            ret_sessions[count - 1] = status_of(connection);
        }
    }
    server_unlock(server);
    return count;
}

/* ---- stop ----
 *
 * No new command is taken; only data of those that have begun still are. A session whose commands
 * have all been answered is told that it will be dropped and may come back (an initiator then waits
 * and logs in again, instead of taking its disks for gone), and closed. At the deadline all the
 * rest is closed. Each loop does its part; the stop is over when all have, and no connection and no
 * order is left. */

static void stop_report(struct env_task *task) {
    struct iscsi_server *server = CONTAINER_OF(task, struct iscsi_server, stopped_task);
    env_timer_cancel(server->env, &server->stop_timer);
    server->stopped(server->stopped_owner);
}

void server_something_gone(struct iscsi_server *server) {
    server_lock(server);
    bool over = atomic_load(&server->stopping) && !server->stopped_called &&
                server->stops_pending == 0 && server->orders == 0 &&
                list_is_empty(&server->connections);
    server->stopped_called |= over;
    server_unlock(server);
    if (over) {
        env_post(server->env, &server->stopped_task);
    }
}

void server_say_goodbye(struct iscsi_connection *connection) {
    struct iscsi_tx *tx = tx_new(OP_ASYNC, BHS_FINAL);
    put_be32(tx->bhs + AT_ITT, ISCSI_TAG_NONE);
    tx->bhs[AT_ASYNC_EVENT] = ASYNC_DROPS_ALL;
    put_be16(tx->bhs + AT_ASYNC_PARAMETER1 + 2, (uint16_t)connection->keys.parameters.time2wait_s);
    put_be16(tx->bhs + AT_ASYNC_PARAMETER1 + 4,
             (uint16_t)connection->keys.parameters.time2retain_s);
    tx_queue(connection, tx);
    connection_flush_and_close(connection);
}

void server_session_idle(struct iscsi_connection *connection) {
    if (connection->no_new_commands && connection->session != NULL &&
        !connection->close_when_sent && list_is_empty(&connection->session->commands)) {
        server_say_goodbye(connection);
    }
}

/* A loop's part of something is done. */
static void stop_part_done(struct iscsi_server *server) {
    server_lock(server);
    server->stops_pending--;
    server_unlock(server);
    server_something_gone(server);
    server_release(server);
}

static void close_portals(struct iscsi_loop *loop) {
    struct iscsi_server *server = loop->server;
    server_lock(server);
    LIST_FOR_EACH_SAFE(it, &server->portals) {
        struct iscsi_portal *portal = CONTAINER_OF(it, struct iscsi_portal, in_server);
        if (portal->loop == loop) {
            portal_take_out(server, portal);
            net_listener_close(portal->listener);
        }
    }
    server_unlock(server);
}

static void stop_arrived(struct env_task *task) {
    struct iscsi_loop *loop = CONTAINER_OF(task, struct iscsi_loop, stop_task);
    close_portals(loop);
    LIST_FOR_EACH_SAFE(it, &loop->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_loop);
        if (connection->session == NULL) {
            connection_close(connection, NULL);
            continue;
        }
        connection->no_new_commands = true;
        server_session_idle(connection);
    }
    stop_part_done(loop->server);
}

static void deadline_arrived(struct env_task *task) {
    struct iscsi_loop *loop = CONTAINER_OF(task, struct iscsi_loop, deadline_task);
    LIST_FOR_EACH_SAFE(it, &loop->connections) {
        connection_close(CONTAINER_OF(it, struct iscsi_connection, in_loop), NULL);
    }
    stop_part_done(loop->server);
}

/* To all loops; to our own at once. */
static void tell_loops(struct iscsi_server *server, bool deadline) {
    server_lock(server);
    server->stops_pending += server->loop_count;
    server_unlock(server);
    for (uint32_t i = server->loop_count; i-- > 0;) {
        struct iscsi_loop *loop = &server->loops[i];
        struct env_task *task = deadline ? &loop->deadline_task : &loop->stop_task;
        server_hold(server);
        if (i == 0) {
            task->run(task);
        } else {
            env_post(loop->env, task);
        }
    }
}

static void stop_deadline(struct env_timer *timer) {
    struct iscsi_server *server = CONTAINER_OF(timer, struct iscsi_server, stop_timer);
    server_lock(server);
    bool over = server->stopped_called;
    server_unlock(server);
    if (!over) {
        tell_loops(server, true);
    }
}

void iscsi_server_stop(struct iscsi_server *server, uint64_t deadline_ns,
                       void (*stopped)(void *owner), void *owner) {
    ASSERT(!atomic_load(&server->stopping));
    server->stopped = stopped;
    server->stopped_owner = owner;
    server->stopped_task.run = stop_report;
    server->stop_timer.fire = stop_deadline;
    server_lock(server);
    atomic_store(&server->stopping, true);
    server_unlock(server);
    env_timer_arm(server->env, &server->stop_timer, deadline_ns);
    tell_loops(server, false);
}

void server_command_new(struct iscsi_loop *loop) {
    if (loop->command_count++ == 0) {
        server_hold(loop->server);
    }
}

void server_command_gone(struct iscsi_loop *loop) {
    if (--loop->command_count == 0) {
        server_release(loop->server);
    }
}

void iscsi_server_free(struct iscsi_server *server) {
    if (server == NULL) {
        return;
    }
    struct list none;
    list_init(&none);
    server_lock(server);
    ASSERT(list_is_empty(&server->connections) && list_is_empty(&server->portals));
    while (!list_is_empty(&server->targets)) {
        target_take_out(server, CONTAINER_OF(server->targets.next, struct iscsi_target, in_server),
                        &none);
    }
    server_unlock(server);
    server_release(server);
}
