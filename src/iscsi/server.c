// SPDX-License-Identifier: MPL-2.0
/* The server: portals, targets, SendTargets, status, stop. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/math.h"
#include "iscsi/internal.h"

enum { ASYNC_DROPS_ALL = 3 }; /* RFC 7143 §11.9.1: all connections of the session will be dropped */

struct iscsi_server *iscsi_server_new(struct env *env, const struct iscsi_options *options) {
    struct iscsi_server *server = MEM_NEW(struct iscsi_server);
    server->env = env;
    server->options = *options;
    struct iscsi_options *o = &server->options;
    o->sessions_max = o->sessions_max != 0 ? o->sessions_max : ISCSI_SESSIONS_MAX;
    o->commands_max = o->commands_max != 0 ? o->commands_max : ISCSI_COMMANDS_MAX;
    o->memory_bytes = o->memory_bytes != 0 ? o->memory_bytes : ISCSI_MEMORY_BYTES;
    o->keepalive_s = o->keepalive_s != 0 ? o->keepalive_s : ISCSI_KEEPALIVE_S;
    o->keepalive_answer_s =
        o->keepalive_answer_s != 0 ? o->keepalive_answer_s : ISCSI_KEEPALIVE_ANSWER_S;
    o->login_s = o->login_s != 0 ? o->login_s : ISCSI_LOGIN_S;
    list_init(&server->portals);
    list_init(&server->targets);
    list_init(&server->connections);
    list_init(&server->memory_waiters);
    memory_init(&server->memory, o->memory_bytes);
    return server;
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
            server->options.event(server->options.event_owner, text);
        }
    }
    return server->event_count++ < ISCSI_EVENTS_MAX;
}

void server_event(struct iscsi_server *server, const char *format, ...) {
    if (server->options.event == NULL || !event_is_told(server)) {
        return;
    }
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    server->options.event(server->options.event_owner, text);
}

static void server_release(struct iscsi_server *server) {
    if (server->freed && server->command_count == 0 && !server->waiters_queued) {
        memory_done(&server->memory);
        mem_free(server);
    }
}

static void retry_waiters(struct env_task *task) {
    struct iscsi_server *server = CONTAINER_OF(task, struct iscsi_server, waiters_task);
    server->waiters_queued = false;
    LIST_FOR_EACH_SAFE(it, &server->memory_waiters) {
        command_retry_memory(CONTAINER_OF(it, struct iscsi_command, in_waiters));
    }
    server_release(server);
}

void server_memory_freed(struct iscsi_server *server) {
    if (!list_is_empty(&server->memory_waiters) && !server->waiters_queued) {
        server->waiters_queued = true;
        server->waiters_task.run = retry_waiters;
        env_defer(server->env, &server->waiters_task);
    }
}

/* ---- portals ---- */

/* Too many that have not logged in: the oldest has had the most time, of those of the address if it
 * is that address that has too many. */
static void make_room(struct iscsi_server *server, const struct net_prefix *address) {
    struct iscsi_connection *oldest = NULL, *oldest_of_address = NULL;
    uint32_t of_address = 0;
    LIST_FOR_EACH(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (connection->stage != CONNECTION_LOGIN) {
            continue;
        }
        oldest = oldest == NULL ? connection : oldest;
        if (prefix_holds(address, &connection->address)) {
            of_address++;
            oldest_of_address = oldest_of_address == NULL ? connection : oldest_of_address;
        }
    }
    if (of_address >= ISCSI_LOGINS_PER_ADDRESS_MAX) {
        connection_close(oldest_of_address, "too many logins at once from its address");
    } else if (server->login_count >= ISCSI_LOGINS_MAX) {
        connection_close(oldest, "too many logins at once");
    }
}

static void accepted(void *owner, struct net_stream *stream) {
    struct iscsi_portal *portal = owner;
    struct iscsi_server *server = portal->server;
    struct net_prefix address = {.bits = 128}; /* ::, if the peer has no address that we know */
    (void)!prefix_of_peer(net_stream_peer(stream), &address);
    make_room(server, &address);
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

int iscsi_portal_add(struct iscsi_server *server, const char *address, struct errmsg *reterr) {
    if (server->portal_count >= ISCSI_PORTALS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "portal %s: there are %u portals, more are not allowed", address,
                          server->portal_count);
    }
    struct iscsi_portal *portal = MEM_NEW(struct iscsi_portal);
    portal->server = server;
    int error = split_tag(address, portal->given, sizeof(portal->given), &portal->tag, reterr);
    if (error != OK) {
        mem_free(portal);
        return error;
    }
    portal->tag = portal->tag != 0 ? portal->tag : free_portal_tag(server);
    address = portal->given;
    error = net_listen(server->env, address, accepted, portal, &portal->listener, reterr);
    if (error != OK) {
        mem_free(portal);
        return error;
    }
    /* In order of tags, which is the order of target ports. */
    struct list *at = server->portals.next;
    while (at != &server->portals &&
           CONTAINER_OF(at, struct iscsi_portal, in_server)->tag <= portal->tag) {
        at = at->next;
    }
    list_insert_before(at, &portal->in_server);
    server->portal_count++;
    portals_changed(server);
    return OK;
}

static void portal_free(struct iscsi_portal *portal) {
    net_listener_close(portal->listener);
    list_remove(&portal->in_server);
    portal->server->portal_count--;
    mem_free(portal);
}

int iscsi_portal_remove(struct iscsi_server *server, const char *address, struct errmsg *reterr) {
    LIST_FOR_EACH(it, &server->portals) {
        struct iscsi_portal *portal = CONTAINER_OF(it, struct iscsi_portal, in_server);
        if (strcmp(portal->given, address) == 0 ||
            strcmp(net_listener_address(portal->listener), address) == 0) {
            portal_free(portal);
            portals_changed(server);
            return OK;
        }
    }
    return errmsg_set(reterr, ERR_NOT_FOUND, "there is no portal %s", address);
}

static const struct iscsi_portal *portal_at(const struct iscsi_server *server, uint32_t index) {
    LIST_FOR_EACH(it, &server->portals) {
        if (index-- == 0) {
            return CONTAINER_OF(it, struct iscsi_portal, in_server);
        }
    }
    return NULL;
}

const char *iscsi_portal_address(const struct iscsi_server *server, uint32_t index) {
    const struct iscsi_portal *portal = portal_at(server, index);
    return portal != NULL ? net_listener_address(portal->listener) : NULL;
}

uint16_t iscsi_portal_tag(const struct iscsi_server *server, uint32_t index) {
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

int iscsi_target_add(struct iscsi_server *server, const char *iqn, struct scsi_target *scsi,
                     const struct iscsi_access *given, struct errmsg *reterr) {
    struct access *access = NULL;
    int error = iscsi_name_check(iqn, reterr);
    if (error != OK) {
        return error;
    }
    if (server_find_target(server, iqn) != NULL) {
        return errmsg_set(reterr, ERR_EXISTS, "target %s exists already", iqn);
    }
    if (server->target_count >= ISCSI_TARGETS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "target %s: at most %u targets are possible", iqn,
                          ISCSI_TARGETS_MAX);
    }
    if (given != NULL) {
        error = access_new(given, &access, reterr);
        if (error != OK) {
            return error;
        }
    }
    struct iscsi_target *target = MEM_NEW(struct iscsi_target);
    memcpy(target->iqn, iqn, strlen(iqn) + 1);
    target->scsi = scsi;
    target->access = access;
    list_append(&server->targets, &target->in_server);
    server->target_count++;
    tell_ports(server, scsi);
    return OK;
}

static bool uses(const struct iscsi_connection *connection, const struct iscsi_target *target) {
    return connection->session != NULL && connection->session->target == target;
}

int iscsi_target_set_access(struct iscsi_server *server, const char *iqn,
                            const struct iscsi_access *given, struct errmsg *reterr) {
    struct iscsi_target *target = server_find_target(server, iqn);
    struct access *access = NULL;
    if (target == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no target %s", iqn);
    }
    int error = given != NULL ? access_new(given, &access, reterr) : OK;
    if (error != OK) {
        return error;
    }
    access_free(target->access);
    target->access = access;
    LIST_FOR_EACH_SAFE(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (uses(connection, target)) {
            session_recheck(connection);
        }
    }
    return OK;
}

static void target_free(struct iscsi_server *server, struct iscsi_target *target) {
    LIST_FOR_EACH_SAFE(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (uses(connection, target)) {
            connection_close(connection, "its target was removed");
        }
    }
    access_free(target->access);
    list_remove(&target->in_server);
    server->target_count--;
    mem_free(target);
}

int iscsi_target_remove(struct iscsi_server *server, const char *iqn, struct errmsg *reterr) {
    struct iscsi_target *target = server_find_target(server, iqn);
    if (target == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no target %s", iqn);
    }
    target_free(server, target);
    return OK;
}

/* ---- SendTargets (RFC 7143 §C) ---- */

static bool is_wildcard(const char *address) {
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

/* A portal that listens on every address is reached through the one the initiator came by, if that
 * is of its family; if not, we do not know an address of it. */
static void put_portal(const struct iscsi_portal *portal, const char *local,
                       struct text_buffer *answer) {
    const char *bound = net_listener_address(portal->listener);
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
}

/* ---- status ---- */

uint32_t iscsi_session_list(const struct iscsi_server *server,
                            struct iscsi_session_status *ret_sessions, uint32_t room) {
    uint32_t count = 0;
    LIST_FOR_EACH(it, &server->connections) {
        const struct iscsi_connection *connection =
            CONTAINER_OF(it, struct iscsi_connection, in_server);
        const struct iscsi_session *session = connection->session;
        if (session == NULL) {
            continue;
        }
        if (count++ >= room) {
            continue;
        }
        struct iscsi_session_status *status = &ret_sessions[count - 1];
        *status = (struct iscsi_session_status){
            .tsih = session->tsih,
            .header_digest = connection->header_digest,
            .data_digest = connection->data_digest,
            .commands = session->command_count + session->immediate_count,
            .commands_total = session->commands_total,
            .read_bytes = session->read_bytes,
            .write_bytes = session->write_bytes,
            .age_ns = env_now_ns(server->env) - connection->since_ns,
        };
        memcpy(status->isid, session->isid, sizeof(status->isid));
        memcpy(status->initiator, session->initiator, sizeof(status->initiator));
        memcpy(status->user, connection->login.user, sizeof(status->user));
        if (session->target != NULL) {
            memcpy(status->target, session->target->iqn, sizeof(status->target));
        }
        snprintf(status->peer, sizeof(status->peer), "%s", net_stream_peer(connection->stream));
        snprintf(status->portal, sizeof(status->portal), "%s",
                 net_stream_local(connection->stream));
    }
    return count;
}

/* ---- stop ----
 *
 * No new command is taken; only data of those that have begun still are. A session whose commands
 * have all been answered is told that it will be dropped and may come back (an initiator then waits
 * and logs in again, instead of taking its disks for gone), and closed. At the deadline all the
 * rest is closed. */

static void stop_report(struct env_task *task) {
    struct iscsi_server *server = CONTAINER_OF(task, struct iscsi_server, stopped_task);
    server->stopped(server->stopped_owner);
}

void server_connection_gone(struct iscsi_server *server) {
    if (server->stopping && !server->stopped_called && list_is_empty(&server->connections)) {
        server->stopped_called = true;
        env_timer_cancel(server->env, &server->stop_timer);
        server->stopped_task.run = stop_report;
        env_defer(server->env, &server->stopped_task);
    }
}

static void say_goodbye(struct iscsi_connection *connection) {
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
    if (connection->server->stopping && connection->session != NULL &&
        !connection->close_when_sent && list_is_empty(&connection->session->commands)) {
        say_goodbye(connection);
    }
}

static void close_all(struct iscsi_server *server) {
    LIST_FOR_EACH_SAFE(it, &server->connections) {
        connection_close(CONTAINER_OF(it, struct iscsi_connection, in_server), NULL);
    }
}

static void stop_deadline(struct env_timer *timer) {
    close_all(CONTAINER_OF(timer, struct iscsi_server, stop_timer));
}

void iscsi_server_stop(struct iscsi_server *server, uint64_t deadline_ns,
                       void (*stopped)(void *owner), void *owner) {
    ASSERT(!server->stopping);
    server->stopping = true;
    server->stopped = stopped;
    server->stopped_owner = owner;
    while (!list_is_empty(&server->portals)) {
        portal_free(CONTAINER_OF(server->portals.next, struct iscsi_portal, in_server));
    }
    server->stop_timer.fire = stop_deadline;
    env_timer_arm(server->env, &server->stop_timer, deadline_ns);
    LIST_FOR_EACH_SAFE(it, &server->connections) {
        struct iscsi_connection *connection = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (connection->session == NULL) {
            connection_close(connection, NULL);
            continue;
        }
        connection->no_new_commands = true;
        server_session_idle(connection);
    }
    server_connection_gone(server);
}

void server_command_gone(struct iscsi_server *server) {
    server->command_count--;
    server_release(server);
}

void iscsi_server_free(struct iscsi_server *server) {
    if (server == NULL) {
        return;
    }
    ASSERT(list_is_empty(&server->connections));
    while (!list_is_empty(&server->portals)) {
        portal_free(CONTAINER_OF(server->portals.next, struct iscsi_portal, in_server));
    }
    while (!list_is_empty(&server->targets)) {
        target_free(server, CONTAINER_OF(server->targets.next, struct iscsi_target, in_server));
    }
    server->freed = true;
    server_release(server);
}
