// SPDX-License-Identifier: MPL-2.0
/* Sessions and the PDUs of the full feature phase.
 *
 * The CmdSN window (RFC 7143 §4.2.2.1) bounds what an initiator may have in hand: MaxCmdSN grows as
 * responses leave. A command outside the window is ignored, as the standard demands; a gap inside
 * it cannot happen on the single connection of a session, so it ends the connection. Immediate
 * commands stand beside the window and have a limit of their own. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/math.h"
#include "iscsi/internal.h"

enum { LOGOUT_SESSION = 0, LOGOUT_CONNECTION = 1 };

uint32_t session_max_cmd_sn(const struct iscsi_session *session) {
    return session->exp_cmd_sn + session->server->options.commands_max - session->command_count - 1;
}

/* ---- beginning and end ---- */

static bool is_same_initiator(const struct iscsi_connection *connection,
                              const struct iscsi_session *session) {
    return memcmp(session->isid, connection->login.isid, sizeof(session->isid)) == 0 &&
           strcasecmp(session->initiator, connection->keys.parameters.initiator_name) == 0;
}

static bool is_same_user(const struct iscsi_connection *connection,
                         const struct iscsi_session *session) {
    return strcmp(connection->login.user, session->user) == 0 &&
           strcmp(connection->login.realm, session->realm) == 0;
}

/* The connection whose session a login with the same name, ISID and portal group takes the place of
 * (RFC 7143 §6.3.5): the initiator has lost it, whatever it looks like from here. */
static struct iscsi_connection *session_in_the_way(const struct iscsi_connection *connection,
                                                   const struct iscsi_target *target) {
    LIST_FOR_EACH(it, &connection->server->connections) {
        struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other->session != NULL && other != connection && other->session->target == target &&
            other->portal_tag == connection->portal_tag &&
            is_same_initiator(connection, other->session)) {
            return other;
        }
    }
    return NULL;
}

struct iscsi_connection *session_meant(const struct iscsi_connection *connection) {
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    const struct iscsi_target *target =
        parameters->discovery ? NULL
                              : server_find_target(connection->server, parameters->target_name);
    LIST_FOR_EACH(it, &connection->server->connections) {
        struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other->session != NULL && other->session->tsih == connection->login.tsih &&
            other->session->target == target && other->portal_tag == connection->portal_tag &&
            is_same_initiator(connection, other->session)) {
            return other;
        }
    }
    return NULL;
}

static bool is_within_limits(const struct iscsi_connection *connection) {
    const struct iscsi_server *server = connection->server;
    uint32_t of_initiator = 0, of_address = 0;
    LIST_FOR_EACH(it, &server->connections) {
        const struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other->session != NULL) {
            of_initiator += strcasecmp(other->session->initiator,
                                       connection->keys.parameters.initiator_name) == 0;
            of_address += prefix_holds(&connection->address, &other->address);
        }
    }
    return server->session_count < server->options.sessions_max &&
           of_initiator < ISCSI_SESSIONS_PER_INITIATOR_MAX &&
           of_address < ISCSI_SESSIONS_PER_ADDRESS_MAX;
}

static bool tsih_is_used(const struct iscsi_server *server, uint16_t tsih) {
    LIST_FOR_EACH(it, &server->connections) {
        const struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other->session != NULL && other->session->tsih == tsih) {
            return true;
        }
    }
    return false;
}

/* A session between two connections is not in the register, but so few are that a number comes
 * round much later. */
static uint16_t tsih_new(struct iscsi_server *server) {
    do {
        server->last_tsih++;
    } while (server->last_tsih == 0 || tsih_is_used(server, server->last_tsih));
    return server->last_tsih;
}

/* The initiator port as SCSI names it (RFC 7143 §4.7.1), in the normal form of names. */
static void put_initiator_port(struct scsi_port *port, const char *initiator,
                               const uint8_t isid[6]) {
    snprintf(port->initiator_port, sizeof(port->initiator_port), "%s,i,0x%02x%02x%02x%02x%02x%02x",
             initiator, isid[0], isid[1], isid[2], isid[3], isid[4], isid[5]);
    for (char *c = port->initiator_port; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
}

static struct scsi_nexus *nexus_open(const struct iscsi_connection *connection,
                                     const struct iscsi_target *target) {
    struct scsi_port port = {
        .relative_id = connection->portal_tag, .group = 1, .env = connection->loop->env};
    snprintf(port.port_name, sizeof(port.port_name), "%s,t,0x%04x", target->iqn,
             connection->portal_tag);
    memcpy(port.device_name, target->iqn, sizeof(target->iqn));
    put_initiator_port(&port, connection->keys.parameters.initiator_name, connection->login.isid);
    return scsi_nexus_open(target->scsi, &port);
}

static void drop_commands(struct iscsi_session *session) {
    while (!list_is_empty(&session->commands)) {
        command_drop(CONTAINER_OF(session->commands.next, struct iscsi_command, in_session));
    }
}

/* With the lock. */
static void session_attach(struct iscsi_session *session, struct iscsi_connection *connection) {
    session->connection = connection;
    session->header_digest = connection->keys.parameters.header_digest;
    session->data_digest = connection->keys.parameters.data_digest;
    connection->session = session;
}

static void session_new(struct iscsi_connection *connection, struct iscsi_target *target,
                        uint32_t cmd_sn) {
    struct iscsi_server *server = connection->server;
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    const struct iscsi_login *login = &connection->login;
    struct iscsi_session *session = MEM_NEW(struct iscsi_session);
    session->server = server;
    session->target = target;
    session->exp_cmd_sn = cmd_sn;
    session->tsih = tsih_new(server);
    session->cid = login->cid;
    memcpy(session->isid, login->isid, sizeof(session->isid));
    memcpy(session->initiator, parameters->initiator_name, sizeof(session->initiator));
    memcpy(session->user, login->user, sizeof(session->user));
    memcpy(session->realm, login->realm, sizeof(session->realm));
    list_init(&session->commands);
    for (uint32_t i = 0; i < COMMAND_BUCKETS; i++) {
        list_init(&session->by_itt[i]);
    }
    server->session_count++;
    if (target != NULL) {
        target->users++;
        session->nexus = nexus_open(connection, target);
    }
    session_attach(session, connection);
}

/* What a login leads to as things are now. With the lock. */
static uint32_t look(const struct iscsi_connection *connection, struct iscsi_target **ret_target,
                     uint8_t ret_numbers[SCSI_LUNS_MAX / 8], struct iscsi_connection **ret_other) {
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    struct access_peer peer = connection_peer(connection);
    struct iscsi_target *target = NULL;
    bool reinstates = connection->login.tsih != 0;
    if (atomic_load(&connection->server->stopping)) {
        return LOGIN_UNAVAILABLE;
    }
    if (!parameters->discovery) {
        target = server_find_target(connection->server, parameters->target_name);
        if (target == NULL) {
            return LOGIN_NOT_FOUND;
        }
        if (!access_numbers(target->access, &peer, ret_numbers)) {
            return LOGIN_FORBIDDEN;
        }
    }
    *ret_target = target;
    *ret_other = reinstates       ? session_meant(connection)
                 : target != NULL ? session_in_the_way(connection, target)
                                  : NULL;
    /* Names can be claimed: a session is taken from its owner only by himself. */
    return *ret_other != NULL && !is_same_user(connection, (*ret_other)->session) ? LOGIN_FORBIDDEN
                                                                                  : LOGIN_GOOD;
}

static void tell_login(const struct iscsi_connection *connection) {
    const struct iscsi_session *session = connection->session;
    if (session->target != NULL) {
        server_event(connection->server, ISCSI_LOGIN, "%s logged in to %s from %s%s%s",
                     session->initiator, session->target->iqn, net_stream_peer(connection->stream),
                     session->user[0] != 0 ? " as " : "", session->user);
    }
}

static const char moved[] = "the initiator moved its session to another connection";
static const char again[] = "the initiator logged in again in its place";

/* Makes the session, if nothing is in its way: *ret_other is. With the lock. */
static uint32_t open_new(struct iscsi_connection *connection, uint32_t cmd_sn,
                         struct iscsi_connection **ret_other) {
    struct iscsi_target *target = NULL;
    uint8_t numbers[SCSI_LUNS_MAX / 8];
    uint32_t status = look(connection, &target, numbers, ret_other);
    if (status != LOGIN_GOOD || *ret_other != NULL) {
        return status;
    }
    if (connection->login.tsih != 0) {
        return LOGIN_NO_SUCH_SESSION;
    }
    if (!is_within_limits(connection)) {
        return LOGIN_OUT_OF_RESOURCES;
    }
    session_new(connection, target, cmd_sn);
    if (target != NULL) {
        scsi_nexus_show(connection->session->nexus, numbers);
    }
    return LOGIN_GOOD;
}

uint32_t session_open(struct iscsi_connection *connection, uint32_t cmd_sn) {
    struct iscsi_server *server = connection->server;
    bool takes = connection->login.tsih != 0;
    const char *why = takes ? moved : again;
    for (;;) {
        struct iscsi_connection *other = NULL;
        struct iscsi_order *order = NULL;
        server_lock(server);
        uint32_t status = open_new(connection, cmd_sn, &other);
        if (status == LOGIN_GOOD && other != NULL && other->loop != connection->loop) {
            order = order_give_way(other, connection, takes, why);
        }
        server_unlock(server);
        if (order != NULL) {
            order_go(order, connection->loop);
            return LOGIN_WAITS;
        }
        if (status != LOGIN_GOOD || other == NULL) {
            if (status == LOGIN_GOOD) {
                tell_login(connection);
            }
            return status;
        }
        /* On our own loop nobody else can have touched it since. */
        struct iscsi_parameters was = other->keys.parameters;
        struct iscsi_session *session = takes ? session_give_up(other) : NULL;
        connection_close(other, why);
        if (takes) {
            return session_take_over(connection, session, &was, cmd_sn);
        }
    }
}

/* ---- connection reinstatement (RFC 7143 §6.3.4) ----
 *
 * The session goes on, on another connection. At ErrorRecoveryLevel 0 its tasks end with the old
 * one. What was negotiated for the session stays; the initiator says where it goes on counting. */

struct iscsi_session *session_give_up(struct iscsi_connection *connection) {
    struct iscsi_session *session = connection->session;
    drop_commands(session);
    server_lock(session->server);
    connection->session = NULL;
    session->connection = NULL;
    server_unlock(session->server);
    return session;
}

uint32_t session_take_over(struct iscsi_connection *connection, struct iscsi_session *session,
                           const struct iscsi_parameters *was, uint32_t cmd_sn) {
    struct iscsi_parameters parameters = *was;
    struct iscsi_parameters *now = &connection->keys.parameters;
    struct access_peer peer = connection_peer(connection);
    uint8_t numbers[SCSI_LUNS_MAX / 8];
    parameters.header_digest = now->header_digest;
    parameters.data_digest = now->data_digest;
    parameters.initiator_segment_bytes = now->initiator_segment_bytes;
    *now = parameters;
    if (serial_is_before(session->exp_cmd_sn, cmd_sn)) {
        session->exp_cmd_sn = cmd_sn;
    }
    server_lock(session->server);
    /* While it was on its way nobody could end it or change what it may use. */
    bool gone =
        session->target != NULL && (list_is_empty(&session->target->in_server) ||
                                    session_in_the_way(connection, session->target) != NULL);
    uint32_t status = atomic_load(&session->server->stopping) ? LOGIN_UNAVAILABLE
                      : gone                                  ? LOGIN_NO_SUCH_SESSION
                                                              : LOGIN_GOOD;
    if (status == LOGIN_GOOD && session->target != NULL) {
        status =
            access_numbers(session->target->access, &peer, numbers) ? LOGIN_GOOD : LOGIN_FORBIDDEN;
    }
    if (status == LOGIN_GOOD && session->target != NULL) {
        scsi_nexus_move(session->nexus, connection->loop->env);
        scsi_nexus_show(session->nexus, numbers);
    }
    if (status == LOGIN_GOOD) {
        session_attach(session, connection);
    }
    server_unlock(session->server);
    if (status != LOGIN_GOOD) {
        session_close(session);
    }
    return status;
}

bool session_recheck(const struct iscsi_connection *connection) {
    const struct iscsi_session *session = connection->session;
    struct access_peer peer = {.initiator = session->initiator,
                               .address = connection->address,
                               .realm = session->realm,
                               .user = session->user[0] != 0 ? session->user : NULL};
    uint8_t numbers[SCSI_LUNS_MAX / 8];
    bool any = access_numbers(session->target->access, &peer, numbers);
    scsi_nexus_show(session->nexus, numbers);
    return any;
}

/* The nexus goes first: whoever finds nothing in its way may rely on it. */
void session_close(struct iscsi_session *session) {
    struct iscsi_server *server = session->server;
    drop_commands(session);
    server_lock(server);
    scsi_nexus_close(session->nexus);
    if (session->connection != NULL) {
        session->connection->session = NULL;
    }
    if (session->target != NULL) {
        server_target_unref(session->target);
    }
    server->session_count--;
    server_unlock(server);
    mem_free(session);
}

/* ---- headers ---- */

enum window { IN_WINDOW, OUTSIDE_WINDOW, GAP };

/* Advances ExpCmdSN for a command that is the next one. */
static enum window take_cmd_sn(struct iscsi_session *session, const uint8_t *bhs) {
    uint32_t cmd_sn = get_be32(bhs + AT_CMDSN);
    if (bhs_is_immediate(bhs)) {
        return IN_WINDOW;
    }
    if (serial_is_before(cmd_sn, session->exp_cmd_sn) ||
        serial_is_before(session_max_cmd_sn(session), cmd_sn)) {
        return OUTSIDE_WINDOW;
    }
    if (cmd_sn != session->exp_cmd_sn) {
        return GAP;
    }
    session->exp_cmd_sn++;
    return IN_WINDOW;
}

static void small_segment(struct iscsi_rx *rx, uint32_t bytes_max) {
    rx->wanted_bytes = MIN(rx->segment_bytes, bytes_max);
    rx->small = mem_alloc(rx->wanted_bytes + 1);
    rx->dest = rx->small;
}

void session_header(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    struct iscsi_session *session = connection->session;
    uint8_t opcode = bhs_opcode(rx->bhs);
    if (opcode == OP_DATA_OUT) {
        data_out_header(connection);
        return;
    }
    if (opcode == OP_SNACK || opcode == OP_LOGIN) {
        return; /* refused as a whole by session_pdu() */
    }
    bool in_window = true;
    if (connection->no_new_commands && opcode == OP_SCSI_COMMAND) {
        rx->ignored = true; /* it will be sent again in the next session */
        return;
    }
    switch (take_cmd_sn(session, rx->bhs)) {
    case IN_WINDOW:
        break;
    case OUTSIDE_WINDOW:
        rx->ignored = true;
        in_window = false;
        break;
    case GAP:
        connection_broken(connection, "a CmdSN was left out");
        return;
    }
    if (opcode == OP_SCSI_COMMAND) {
        command_header(connection, in_window);
    } else if (opcode == OP_NOP_OUT) {
        small_segment(rx, connection->keys.parameters.initiator_segment_bytes);
    } else {
        small_segment(rx, ISCSI_TEXT_BYTES_MAX);
    }
}

/* ---- NOP, logout ---- */

static void nop_out(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    uint32_t itt = get_be32(rx->bhs + AT_ITT);
    uint32_t ttt = get_be32(rx->bhs + AT_TTT);
    if (ttt != ISCSI_TAG_NONE && connection->ping_sent && ttt == connection->ping_ttt) {
        connection->ping_sent = false;
    }
    if (itt == ISCSI_TAG_NONE) {
        return; /* an answer, or a sign of life that wants none */
    }
    struct iscsi_tx *tx = tx_new(OP_NOP_IN, BHS_FINAL);
    memcpy(tx->bhs + AT_LUN, rx->bhs + AT_LUN, 8);
    put_be32(tx->bhs + AT_ITT, itt);
    put_be32(tx->bhs + AT_TTT, ISCSI_TAG_NONE);
    tx->payload = rx->small;
    tx->data = rx->small;
    tx->data_bytes = rx->wanted_bytes;
    rx->small = NULL;
    tx_queue(connection, tx);
}

static void logout(struct iscsi_connection *connection) {
    const uint8_t *bhs = connection->rx.bhs;
    uint32_t reason = bhs[AT_FLAGS] & 0x7f;
    bool own_cid = get_be16(bhs + AT_CID) == connection->session->cid;
    bool ends = reason == LOGOUT_SESSION || (reason == LOGOUT_CONNECTION && own_cid);
    struct iscsi_tx *tx = tx_new(OP_LOGOUT_RESPONSE, BHS_FINAL);
    if (reason > LOGOUT_CONNECTION) {
        tx->bhs[AT_RESPONSE] = 2; /* connection recovery is not supported */
    } else if (!ends) {
        tx->bhs[AT_RESPONSE] = 1; /* CID not found */
    }
    put_be32(tx->bhs + AT_ITT, get_be32(bhs + AT_ITT));
    put_be16(tx->bhs + AT_LOGOUT_TIME2WAIT, (uint16_t)connection->keys.parameters.time2wait_s);
    if (ends) {
        drop_commands(connection->session);
    }
    tx_queue(connection, tx);
    if (ends) {
        connection_flush_and_close(connection);
    }
}

void session_pdu(struct iscsi_connection *connection) {
    switch (bhs_opcode(connection->rx.bhs)) {
    case OP_NOP_OUT:
        nop_out(connection);
        break;
    case OP_SCSI_COMMAND:
        command_arrived(connection);
        break;
    case OP_TASK_MANAGEMENT:
        management_request(connection);
        break;
    case OP_TEXT:
        text_request(connection);
        break;
    case OP_DATA_OUT:
        data_out_arrived(connection);
        break;
    case OP_LOGOUT:
        logout(connection);
        break;
    case OP_SNACK: /* ErrorRecoveryLevel 0 has none (RFC 7143 §11.16) */
    default:       /* a login inside a session */
        connection_reject(connection, REJECT_PROTOCOL_ERROR);
        break;
    }
}
