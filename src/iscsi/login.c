// SPDX-License-Identifier: MPL-2.0
/* The login phase (RFC 7143 §6.3, §11.12, §11.13).
 *
 *     first request ──> security ──> operational ──> full feature
 *          CSG 0 or 1      │   CSG 0, NSG 3 (nothing operational to say)   ▲
 *                          └────────────────────────────────────────────────┘
 *
 * A request names the stage it speaks in and, with the T bit, the one it wants to go to. We agree
 * unless authentication (auth.c) is still under way. Keys may be spread over several requests with
 * the C bit; they are collected and taken as a whole. A refusal is one response with a status, then
 * the connection ends. Where the session that a login replaces lives on another loop, its last
 * answer waits until that has been given up (order.c). */
#include <string.h>
#include <strings.h>

#include "base/math.h"
#include "iscsi/internal.h"

enum { STAGE_SECURITY = 0, STAGE_OPERATIONAL = 1, STAGE_FULL_FEATURE = 3, STAGE_NONE = 0xff };

static struct iscsi_tx *response_new(struct iscsi_connection *connection, uint8_t flags) {
    struct iscsi_tx *tx = tx_new(OP_LOGIN_RESPONSE, flags);
    memcpy(tx->bhs + AT_ISID, connection->login.isid, 6);
    put_be16(tx->bhs + AT_TSIH, connection->login.tsih);
    put_be32(tx->bhs + AT_ITT, connection->login.itt);
    return tx;
}

static void refuse(struct iscsi_connection *connection, uint32_t status, const char *why) {
    struct iscsi_tx *tx = response_new(connection, 0);
    put_be16(tx->bhs + AT_LOGIN_STATUS, (uint16_t)status);
    const char *name = connection->keys.parameters.initiator_name;
    server_event(connection->server, ISCSI_LOGIN_REFUSED, "login of %s from %s to %s refused: %s",
                 name[0] != 0 ? name : "an initiator", net_stream_peer(connection->stream),
                 connection->keys.parameters.target_name[0] != 0
                     ? connection->keys.parameters.target_name
                     : "no target",
                 why);
    tx_queue(connection, tx);
    connection_flush_and_close(connection);
}

/* What must hold of the header, whatever the keys say. Returns false after a refusal. */
static bool header_is_good(struct iscsi_connection *connection) {
    struct iscsi_login *login = &connection->login;
    const uint8_t *bhs = connection->rx.bhs;
    uint32_t current = bhs[AT_FLAGS] >> 2 & 3;
    uint32_t next = bhs[AT_FLAGS] & 3;
    bool transit = (bhs[AT_FLAGS] & LOGIN_TRANSIT) != 0;
    bool continues = (bhs[AT_FLAGS] & LOGIN_CONTINUE) != 0;
    if (login->stage == STAGE_NONE) {
        memcpy(login->isid, bhs + AT_ISID, 6);
        login->tsih = get_be16(bhs + AT_TSIH);
        login->cid = get_be16(bhs + AT_CID);
        login->itt = get_be32(bhs + AT_ITT);
        login->cmd_sn = get_be32(bhs + AT_CMDSN);
        login->stage = current <= STAGE_OPERATIONAL ? (uint8_t)current : STAGE_SECURITY;
    } else if (memcmp(login->isid, bhs + AT_ISID, 6) != 0 || login->itt != get_be32(bhs + AT_ITT) ||
               login->cid != get_be16(bhs + AT_CID)) {
        refuse(connection, LOGIN_INVALID_REQUEST, "ISID, CID or task tag changed on the way");
        return false;
    }
    if (bhs[AT_LOGIN_VERSION_MIN] != 0) {
        refuse(connection, LOGIN_UNSUPPORTED_VERSION, "it wants another version of the protocol");
        return false;
    }
    if (current != login->stage || (transit && continues) ||
        (transit && (next <= current || next == 2))) {
        refuse(connection, LOGIN_INITIATOR_ERROR, "it left the order of the login stages");
        return false;
    }
    if (++login->pdu_count > ISCSI_LOGIN_PDUS_MAX) {
        refuse(connection, LOGIN_INITIATOR_ERROR, "it does not come to an end");
        return false;
    }
    return true;
}

/* Adds the data segment to the keys collected so far; false after a refusal. */
static bool collect(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    struct iscsi_rx *rx = &connection->rx;
    if (text->request_bytes + rx->segment_bytes > ISCSI_TEXT_BYTES_MAX) {
        refuse(connection, LOGIN_OUT_OF_RESOURCES, "its keys are too long");
        return false;
    }
    if (rx->segment_bytes != 0) {
        text->request = mem_realloc(text->request, text->request_bytes + rx->segment_bytes);
        memcpy(text->request + text->request_bytes, rx->dest, rx->segment_bytes);
        text->request_bytes += rx->segment_bytes;
    }
    return true;
}

/* Initiators name themselves after virtual machines and hosts, in whatever characters these have:
 * what can be told apart and shown is good enough. */
static bool initiator_name_is_usable(const char *name) {
    if (strncasecmp(name, "iqn.", 4) != 0 && strncasecmp(name, "eui.", 4) != 0 &&
        strncasecmp(name, "naa.", 4) != 0) {
        return false;
    }
    for (; *name != 0; name++) {
        if ((unsigned char)*name < 0x20 || *name == 0x7f) {
            return false;
        }
    }
    return true;
}

/* The first request must say who wants to go where (RFC 7143 §6.3.1 and §13.4 to 13.6, §13.21). */
static bool leading_is_good(struct iscsi_connection *connection) {
    struct iscsi_parameters *parameters = &connection->keys.parameters;
    if (parameters->initiator_name[0] == 0) {
        refuse(connection, LOGIN_MISSING_PARAMETER, "it did not give its InitiatorName");
        return false;
    }
    if (!initiator_name_is_usable(parameters->initiator_name)) {
        refuse(connection, LOGIN_INITIATOR_ERROR, "its InitiatorName is no iSCSI name");
        return false;
    }
    if (parameters->discovery) {
        return true;
    }
    if (parameters->target_name[0] == 0) {
        refuse(connection, LOGIN_MISSING_PARAMETER, "it did not give a TargetName");
        return false;
    }
    struct access_peer peer = connection_peer(connection);
    server_lock(connection->server);
    const struct iscsi_target *target =
        server_find_target(connection->server, parameters->target_name);
    bool found = target != NULL;
    bool allowed = found && access_methods(target->access, &peer) != 0;
    server_unlock(connection->server);
    if (!found) {
        refuse(connection, LOGIN_NOT_FOUND, "there is no such target");
    } else if (!allowed) {
        refuse(connection, LOGIN_FORBIDDEN, "it is not on the target's access list");
    }
    return allowed;
}

/* What we say of ourselves, once each. */
static void declare(struct iscsi_connection *connection, bool leading, uint32_t stage,
                    struct text_buffer *answer) {
    if (leading && !connection->keys.parameters.discovery) {
        text_put_number(answer, "TargetPortalGroupTag", connection->portal_tag);
    }
    if (stage == STAGE_OPERATIONAL && !connection->keys.segment_declared) {
        connection->keys.segment_declared = true;
        text_put_number(answer, "MaxRecvDataSegmentLength", ISCSI_SEGMENT_BYTES_MAX);
    }
}

static void enter_full_feature(struct iscsi_connection *connection) {
    struct iscsi_server *server = connection->server;
    connection->stage = CONNECTION_FULL;
    server_lock(server);
    connection->logging_in = false;
    server->login_count--;
    server_unlock(server);
    /* What we declared holds from here on; without a declaration 8192 stays (§13.12). */
    connection->segment_bytes_max =
        connection->keys.segment_declared ? ISCSI_SEGMENT_BYTES_MAX : LOGIN_SEGMENT_BYTES;
    connection->keys.seen = 0;
    connection->keys.count = 0;
    struct env *env = connection->loop->env;
    env_timer_arm(env, &connection->timer,
                  env_now_ns(env) + server->options.keepalive_s * NS_PER_S);
}

static struct iscsi_tx *send_answer(struct iscsi_connection *connection, const uint8_t *bytes,
                                    size_t length, uint8_t flags) {
    struct iscsi_tx *tx = response_new(connection, flags);
    tx->payload = mem_alloc(length + 1);
    memcpy(tx->payload, bytes, length);
    tx->data = tx->payload;
    tx->data_bytes = (uint32_t)length;
    return tx;
}

/* The last answer, when it is known what became of the session. */
static void end_login(struct iscsi_connection *connection, uint32_t status) {
    struct iscsi_login *login = &connection->login;
    if (status == LOGIN_WAITS) {
        login->waits = true;
        return;
    }
    if (status != LOGIN_GOOD) {
        refuse(connection, status,
               status == LOGIN_OUT_OF_RESOURCES  ? "there are too many sessions"
               : status == LOGIN_UNAVAILABLE     ? "the target is stopping"
               : status == LOGIN_FORBIDDEN       ? "no LUN is for it, or the session is another's"
               : status == LOGIN_NO_SUCH_SESSION ? "the session it names has ended"
                                                 : "the target has gone");
        return;
    }
    login->tsih = connection->session->tsih;
    struct iscsi_tx *tx =
        send_answer(connection, login->answer, login->answer_bytes,
                    (uint8_t)(login->last_stage << 2 | LOGIN_TRANSIT | STAGE_FULL_FEATURE));
    tx->starts_digests = true;
    login->stage = STAGE_FULL_FEATURE;
    mem_free(login->answer);
    login->answer = NULL;
    tx_queue(connection, tx);
    enter_full_feature(connection);
}

void login_resume(struct iscsi_connection *connection, struct iscsi_session *session,
                  const struct iscsi_parameters *parameters) {
    uint32_t cmd_sn = connection->login.cmd_sn;
    connection->login.waits = false;
    end_login(connection, session != NULL
                              ? session_take_over(connection, session, parameters, cmd_sn)
                              : session_open(connection, cmd_sn));
    connection_rx_resume(connection);
}

/* Sends the answer; with `transit` to full feature phase the session begins. */
static void answer_request(struct iscsi_connection *connection, struct text_buffer *answer,
                           uint32_t current, uint32_t next, bool transit) {
    struct iscsi_login *login = &connection->login;
    if (transit && next == STAGE_FULL_FEATURE) {
        keys_settle(&connection->keys);
        login->answer = mem_alloc(answer->length + 1);
        memcpy(login->answer, answer->bytes, answer->length);
        login->answer_bytes = (uint32_t)answer->length;
        login->last_stage = current;
        end_login(connection, session_open(connection, login->cmd_sn));
        return;
    }
    tx_queue(connection,
             send_answer(connection, answer->bytes, answer->length,
                         (uint8_t)(current << 2 | (transit ? LOGIN_TRANSIT | next : 0))));
    if (transit) {
        login->stage = (uint8_t)next;
    }
}

/* The first request: who wants to go where. False after a refusal. */
static bool lead(struct iscsi_connection *connection) {
    if (!leading_is_good(connection)) {
        return false;
    }
    if (connection->login.tsih != 0) {
        server_lock(connection->server);
        const struct iscsi_connection *other = session_meant(connection);
        bool found = other != NULL;
        bool same_cid = found && other->session->cid == connection->login.cid;
        server_unlock(connection->server);
        if (!found) {
            refuse(connection, LOGIN_NO_SUCH_SESSION, "the session it names does not exist");
            return false;
        }
        if (!same_cid) {
            /* MaxConnections is 1. */
            refuse(connection, LOGIN_TOO_MANY_CONNECTIONS,
                   "sessions of more than one connection are not supported");
            return false;
        }
    }
    connection->login.leading_done = true;
    return true;
}

/* Authentication, as far as this request brings it. *transit is taken back while it goes on. False
 * after a refusal. */
static bool authenticate(struct iscsi_connection *connection, struct text_buffer *answer,
                         uint32_t current, bool *transit) {
    const char *why = "";
    enum auth_stage before = connection->login.auth;
    uint32_t status = auth_request(connection, answer, &why);
    enum auth_stage now = connection->login.auth;
    bool leaves = *transit || current != STAGE_SECURITY;
    if (status == LOGIN_GOOD && leaves && (now == AUTH_OPEN || now == AUTH_DONE)) {
        status = auth_leave(connection, &why);
    } else if (status == LOGIN_GOOD && leaves && now == before) {
        why = "it left the order of CHAP";
        status = LOGIN_INITIATOR_ERROR;
    } else if (leaves) {
        *transit = false;
    }
    if (status != LOGIN_GOOD) {
        refuse(connection, status, why);
        return false;
    }
    return true;
}

/* All keys of a request are there. */
static void take_request(struct iscsi_connection *connection, struct text_buffer *answer) {
    uint8_t flags = connection->rx.bhs[AT_FLAGS];
    uint32_t current = flags >> 2 & 3;
    bool transit = (flags & LOGIN_TRANSIT) != 0;
    struct errmsg message = {0};
    int error = keys_negotiate(
        &connection->keys, current == STAGE_SECURITY ? KEYS_SECURITY : KEYS_OPERATIONAL,
        connection->text.request, connection->text.request_bytes, answer, NULL, NULL, &message);
    text_reset(connection);
    if (error != OK) {
        refuse(connection, LOGIN_INITIATOR_ERROR, message.text);
        return;
    }
    bool leading = !connection->login.leading_done;
    if (leading && !lead(connection)) {
        return;
    }
    declare(connection, leading, current, answer);
    if (!authenticate(connection, answer, current, &transit)) {
        return;
    }
    if (answer->overflow) {
        refuse(connection, LOGIN_OUT_OF_RESOURCES, "it negotiates too many keys at once");
        return;
    }
    answer_request(connection, answer, current, flags & 3, transit);
}

void login_request(struct iscsi_connection *connection) {
    const uint8_t *bhs = connection->rx.bhs;
    if (bhs_opcode(bhs) != OP_LOGIN) {
        connection_broken(connection, "it sent something else before logging in");
        return;
    }
    if (connection->close_when_sent || !header_is_good(connection) || !collect(connection)) {
        return;
    }
    uint8_t bytes[LOGIN_SEGMENT_BYTES];
    struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
    if (bhs[AT_FLAGS] & LOGIN_CONTINUE) {
        answer_request(connection, &answer, bhs[AT_FLAGS] >> 2 & 3, 0, false);
        return;
    }
    take_request(connection, &answer);
}
