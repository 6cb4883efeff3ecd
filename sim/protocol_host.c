// SPDX-License-Identifier: MPL-2.0
/* What a host of the protocol model does: one thing after another, drawn from what is possible
 * where it stands. Whatever it does wrong it knows to be wrong, and says so in `may_end` or
 * `may_reject`, so that the judge can tell a right answer from a wrong one. */
#include <string.h>

#include "base/math.h"
#include "protocol.h"

enum { LOGOUT_SESSION = 0, LOGOUT_CONNECTION = 1, LOGOUT_RECOVERY = 2 };
enum { FLOOD_CONNECTIONS = 40, SILENCE_S = 95 };

/* ---- breaking ---- */

void host_break_later(struct host_conn *conn) {
    struct rng *rng = &conn->host->rng;
    enum protocol_break how = (enum protocol_break)rng_below(rng, BREAKS);
    static const uint32_t within[] = {1, 100, 3000};
    conn_break(conn, how, rng_below(rng, within[rng_below(rng, ARRAY_COUNT(within))]));
}

/* The connection has ended: nothing will be answered on it any more, and what its commands have
 * done is known at the next login at the earliest. */
static void session_lost(struct host *host) {
    if (host->conn != NULL) {
        conn_free(host->conn);
        host->conn = NULL;
    }
    tasks_to_limbo(host);
}

/* A host that has gone silent: sometimes it waits until the target must have noticed. */
static void lie_silent(struct host *host) {
    struct protocol_world *w = host->world;
    if (!rng_chance(&host->rng, 1, 3)) {
        return;
    }
    fiber_sleep_until(env_now_ns(w->env) + SILENCE_S * NS_PER_S);
    if (protocol_has_failed(w)) {
        return;
    }
    LIST_FOR_EACH(it, &w->server->connections) {
        const struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other->session != NULL && strcmp(other->session->initiator, host->name) == 0) {
            protocol_fail(w, "host %u: silent for %u s, and its session goes on", host->index,
                          SILENCE_S);
        }
    }
    COUNT(w, silences_noticed);
}

static void break_session(struct host *host) {
    static const enum protocol_task_event events[] = {TASK_EVENT_cut_reset, TASK_EVENT_cut_shutdown,
                                                      TASK_EVENT_silence};
    struct host_conn *conn = host->conn;
    enum protocol_break how = (enum protocol_break)rng_below(&host->rng, BREAKS);
    uint64_t bytes = rng_chance(&host->rng, 1, 2) ? 0 : rng_below(&host->rng, 20000);
    if (conn->cut) {
        return;
    }
    tasks_cover(host, events[how % 3]);
    conn_break(conn, how, bytes);
    if (conn->silent && bytes == 0) {
        lie_silent(host);
        session_lost(host);
    }
}

void host_login_failed(struct host *host, struct host_conn *conn, enum login_aim aim,
                       uint32_t status) {
    struct protocol_world *w = host->world;
    if (w->stopping || protocol_has_failed(w)) {
        return;
    }
    /* The session that was to go on may have ended meanwhile. */
    bool gone = aim == LOGIN_CONNECTION && status == 0x020a && host->session_uncertain;
    if (!conn->cut && !conn->ended && status == 0) {
        return; /* it has stopped by itself */
    }
    if (!conn->cut && !gone && conn->may_end == NULL) {
        protocol_fail(w, "host %u: a login fails with status 0x%04x", host->index, status);
    }
    if (status != 0 && !gone) {
        protocol_fail(w, "host %u: a right login (aim %u) is refused with status 0x%04x",
                      host->index, aim, status);
    }
    host->session_uncertain = true;
    if (gone) {
        host->in_session = false;
    }
    if (host->conn != NULL) { /* it may have been taken over before the answer was lost */
        host->conn->may_end = "another login was cut";
    }
}

/* ---- what is answered at once ---- */

static bool exchange(struct host *host, uint8_t *bhs, const void *data, uint32_t bytes,
                     uint8_t opcode) {
    struct protocol_world *w = host->world;
    struct host_conn *conn = host->conn;
    host->waited_itt = ++host->itt;
    put_be32(bhs + AT_ITT, host->waited_itt);
    if (bhs_is_immediate(bhs)) {
        put_be32(bhs + AT_CMDSN, host->cmd_sn);
    } else {
        put_be32(bhs + AT_CMDSN, host->cmd_sn++);
    }
    conn_send(conn, bhs, data, bytes);
    if (!conn_receive(conn, MANAGEMENT_NS)) {
        if (!conn->cut && !conn->ended && !protocol_has_failed(w)) {
            protocol_fail(w, "host %u: opcode 0x%02x is not answered", host->index,
                          bhs_opcode(bhs));
        }
        return false;
    }
    if (bhs_opcode(conn->bhs) != opcode) {
        protocol_fail(w, "host %u: opcode 0x%02x is answered with 0x%02x", host->index,
                      bhs_opcode(bhs), bhs_opcode(conn->bhs));
        return false;
    }
    return true;
}

static bool window_is_open(const struct host *host) {
    return !serial_is_before(host->max_cmd_sn, host->cmd_sn);
}

static void ping(struct host *host) {
    uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT, BHS_FINAL}, data[64];
    uint32_t bytes = (uint32_t)rng_below(&host->rng, sizeof(data));
    rng_fill(&host->rng, data, sizeof(data));
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    if (!window_is_open(host) || rng_chance(&host->rng, 1, 2)) {
        bhs[0] |= BHS_IMMEDIATE;
    }
    if (rng_chance(&host->rng, 1, 5)) { /* wants no answer */
        bhs[0] |= BHS_IMMEDIATE;
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_CMDSN, host->cmd_sn);
        conn_send(host->conn, bhs, data, bytes);
        return;
    }
    if (exchange(host, bhs, data, bytes, OP_NOP_IN)) {
        if (host->conn->data_bytes != bytes || memcmp(host->conn->data, data, bytes) != 0) {
            protocol_fail(host->world, "host %u: a NOP brings other bytes back", host->index);
        }
        COUNT(host->world, pings);
    }
}

static void text(struct host *host) {
    uint8_t bhs[BHS_BYTES] = {OP_TEXT | BHS_IMMEDIATE, BHS_FINAL};
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    if (exchange(host, bhs, "SendTargets=", sizeof("SendTargets="), OP_TEXT_RESPONSE)) {
        if (strstr((const char *)host->conn->data, host->target) == NULL) {
            protocol_fail(host->world, "host %u: its target is not in a text response",
                          host->index);
        }
        COUNT(host->world, texts);
    }
}

/* ---- leaving ---- */

static void logout(struct host *host) {
    struct host_conn *conn = host->conn;
    struct protocol_world *w = host->world;
    uint32_t reason = (uint32_t)rng_below(&host->rng, 3);
    bool wrong_cid = reason == LOGOUT_CONNECTION && rng_chance(&host->rng, 1, 3);
    bool ends = reason != LOGOUT_RECOVERY && !wrong_cid;
    uint8_t bhs[BHS_BYTES] = {OP_LOGOUT | BHS_IMMEDIATE, (uint8_t)(0x80 | reason)};
    put_be16(bhs + AT_CID, (uint16_t)(host->cid + wrong_cid));
    if (ends) {
        tasks_cover(host, TASK_EVENT_logout);
        conn->may_end = "it logs out";
        conn->state = CONN_LOGOUT;
        if (rng_chance(&host->rng, 1, 4)) {
            host_break_later(conn);
        }
    }
    if (!exchange(host, bhs, NULL, 0, OP_LOGOUT_RESPONSE)) {
        return;
    }
    uint8_t due = reason == LOGOUT_RECOVERY ? 2 : wrong_cid ? 1 : 0;
    if (conn->bhs[AT_RESPONSE] != due) {
        protocol_fail(w, "host %u: a logout for reason %u is answered with %u, not %u", host->index,
                      reason, conn->bhs[AT_RESPONSE], due);
    }
    if (!ends) {
        COUNT(w, logouts_refused);
        return;
    }
    COUNT(w, logouts);
    if (!conn_wait_end(conn, NS_PER_S) && !conn->cut && !protocol_has_failed(w)) {
        protocol_fail(w, "host %u: the connection goes on after a logout", host->index);
    }
    tasks_forget(host);
    host->in_session = false;
    session_lost(host);
}

/* ---- breaking the protocol ---- */

static void put_ready(struct host *host, uint8_t *bhs, uint32_t cmd_sn) {
    bhs[0] = OP_SCSI_COMMAND;
    bhs[AT_FLAGS] = BHS_FINAL;
    bhs[AT_LUN + 1] = (uint8_t)host->lun;
    put_be32(bhs + AT_ITT, ++host->itt);
    put_be32(bhs + AT_CMDSN, cmd_sn);
}

/* What a target must ignore or reject, and go on. */
static void misbehave(struct host *host) {
    struct protocol_world *w = host->world;
    struct host_conn *conn = host->conn;
    struct host_command *command = task_any(host);
    uint8_t bhs[BHS_BYTES] = {0};
    switch (rng_below(&host->rng, 4)) {
    case 0: /* a command number that has been, or that is too high */
        put_ready(host, bhs,
                  rng_chance(&host->rng, 1, 2) ? host->cmd_sn - 1
                                               : host->cmd_sn + w->commands_max + 1);
        conn_send(conn, bhs, NULL, 0);
        COUNT(w, ignored);
        break;
    case 1: /* a task tag that is in use: once it is rejected its number is used up */
        if (command != NULL && !command->may_vanish && task_state(command) != TASK_running &&
            task_state(command) != TASK_answering && window_is_open(host)) {
            conn->may_reject = true;
            put_ready(host, bhs, host->cmd_sn++);
            put_be32(bhs + AT_ITT, command->itt);
            conn_send(conn, bhs, NULL, 0);
        }
        break;
    case 2:
        conn->may_reject = true;
        bhs[0] = OP_SNACK;
        bhs[AT_FLAGS] = BHS_FINAL;
        conn_send(conn, bhs, NULL, 0);
        break;
    default:
        conn->may_reject = true;
        bhs[0] = OP_LOGIN | BHS_IMMEDIATE;
        bhs[AT_FLAGS] = 0x87;
        conn_send(conn, bhs, NULL, 0);
        break;
    }
}

/* What a target can only end the connection for. */
static void break_the_protocol(struct host *host) {
    struct host_conn *conn = host->conn;
    uint8_t bhs[BHS_BYTES] = {0}, zeros[8] = {0};
    struct host_parameters now = conn->now;
    conn->may_end = "it broke the protocol";
    switch (rng_below(&host->rng, 4)) {
    case 0: /* a gap */
        put_ready(host, bhs, host->cmd_sn + 1);
        if (serial_is_before(host->max_cmd_sn, host->cmd_sn + 1)) {
            return;
        }
        break;
    case 1: /* no opcode */
        bhs[0] = 0x1f;
        break;
    case 2: /* no digests where there are some; else no opcode again */
        conn->now.header_digest = conn->now.data_digest = false;
        bhs[0] = OP_NOP_OUT | BHS_IMMEDIATE;
        bhs[AT_FLAGS] = BHS_FINAL;
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
        if (now.header_digest) {
            conn_send(conn, bhs, zeros, sizeof(zeros));
        }
        conn->now = now;
        bhs[0] = 0x1f;
        break;
    default: /* a segment that is too long */
        bhs[0] = OP_NOP_OUT | BHS_IMMEDIATE;
        bhs[AT_FLAGS] = BHS_FINAL;
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
        conn_send(conn, bhs, NULL, 0);
        return; /* not wrong at all: nobody notices */
    }
    tasks_cover(host, TASK_EVENT_cut_reset);
    conn_send(conn, bhs, NULL, 0);
    if (!conn_wait_end(conn, 2 * NS_PER_S) && !conn->cut && !protocol_has_failed(host->world)) {
        protocol_fail(host->world, "host %u: it broke the protocol, and the connection goes on",
                      host->index);
    }
    COUNT(host->world, broken);
}

/* Many connections that say nothing: they must not keep anybody from logging in. */
static void flood(struct host *host) {
    struct protocol_world *w = host->world;
    struct host_conn *conns[FLOOD_CONNECTIONS];
    for (uint32_t i = 0; i < FLOOD_CONNECTIONS; i++) {
        conns[i] = conn_new(host);
        conns[i]->may_end = "it never logs in";
    }
    fiber_sleep_until(env_now_ns(w->env) + rng_below(&host->rng, 100) * NS_PER_MS);
    protocol_check_limits(w);
    for (uint32_t i = 0; i < FLOOD_CONNECTIONS; i++) {
        conn_free(conns[i]);
    }
    COUNT(w, floods);
}

/* ---- one thing after another ---- */

/* Data that are not as agreed: the command fails at once, whatever the volume does. */
static void feed_wrongly(struct host *host) {
    struct protocol_world *w = host->world;
    uint64_t until_ns = env_now_ns(w->env) + MANAGEMENT_NS;
    struct host_conn *conn = host->conn;
    if (!task_feed(host, true)) {
        return;
    }
    while (task_is_refused(host) && !conn->ended && !conn->cut && !protocol_has_failed(w)) {
        if (env_now_ns(w->env) > until_ns) {
            protocol_fail(w, "host %u: a command goes on after wrong data", host->index);
        }
        fiber_sleep_until(env_now_ns(w->env) + NS_PER_MS);
    }
}

static void act_badly(struct host *host) {
    struct rng *rng = &host->rng;
    switch (rng_below(rng, 14)) {
    case 0:
    case 1:
        (void)host_login(host, LOGIN_SESSION);
        break;
    case 2:
    case 3:
        (void)host_login(host, LOGIN_CONNECTION);
        break;
    case 4:
        (void)host_login(host, LOGIN_WRONG);
        break;
    case 5:
        (void)host_login(host, LOGIN_DISCOVERY);
        break;
    case 6:
    case 7:
        logout(host);
        break;
    case 8:
    case 9:
        break_session(host);
        break;
    case 10:
        misbehave(host);
        break;
    case 11:
        break_the_protocol(host);
        break;
    case 12:
        if (rng_chance(rng, 1, 6)) {
            flood(host);
        }
        break;
    default:
        feed_wrongly(host);
        break;
    }
}

static void act(struct host *host) {
    struct rng *rng = &host->rng;
    uint64_t what = rng_below(rng, 100);
    if (what < 45) {
        task_start(host);
    } else if (what < 80 || (host->behaves && what < 95)) {
        if (!task_feed(host, false)) {
            task_start(host);
        }
    } else if (host->behaves) {
        ping(host);
    } else if (what < 84) {
        struct host_command *command = rng_chance(rng, 5, 6) ? task_any(host) : NULL;
        uint32_t function = rng_chance(rng, 1, 2) ? 1 : (uint32_t)rng_between(rng, 1, 8);
        task_manage(host, function, command);
    } else if (what < 88) {
        rng_chance(rng, 1, 2) ? ping(host) : text(host);
    } else if (what < 92) {
        act_badly(host);
    } else {
        task_start(host);
    }
}

/* Without a session: logs in, in one way or another. */
static void come(struct host *host) {
    uint64_t what = host->behaves ? 9 : rng_below(&host->rng, 10);
    if (what == 0) {
        (void)host_login(host, LOGIN_WRONG);
    } else if (what == 1) {
        (void)host_login(host, LOGIN_DISCOVERY);
    } else if (what <= 3 && host->in_session) {
        host->session_uncertain = true; /* the target may have noticed, and ended it */
        (void)host_login(host, LOGIN_CONNECTION);
    } else {
        (void)host_login(host, LOGIN_SESSION);
    }
}

static void pause(struct host *host) {
    struct protocol_world *w = host->world;
    uint64_t us = rng_chance(&host->rng, 1, 3) ? 0 : rng_below(&host->rng, 3000);
    fiber_sleep_until(env_now_ns(w->env) + us * NS_PER_US);
}

/* Waits for what is in hand, feeding it. */
static void finish(struct host *host) {
    struct protocol_world *w = host->world;
    while (task_any(host) != NULL && host->conn != NULL && !host->conn->ended &&
           !host->conn->silent && !protocol_has_failed(w)) {
        if (!task_feed(host, false)) {
            fiber_sleep_until(env_now_ns(w->env) + 100 * NS_PER_MS);
        }
        if (!host->conn->ended) {
            tasks_look_after(host);
        }
    }
}

void host_main(void *arg) {
    struct host *host = arg;
    struct protocol_world *w = host->world;
    while (host->actions-- > 0 && !protocol_has_failed(w) && !w->stopping) {
        if (host->conn != NULL && host->conn->ended) {
            session_lost(host);
        }
        w->result->ops++;
        if (host->conn == NULL) {
            come(host);
        } else {
            act(host);
        }
        if (host->conn != NULL && !host->conn->ended) {
            tasks_look_after(host);
        }
        pause(host);
    }
    if (rng_chance(&host->rng, 1, 2) || host->behaves) {
        finish(host);
    }
    if (host->conn != NULL && !host->conn->ended && task_any(host) != NULL) {
        host->conn->may_end = "it does nothing more";
    }
    host->is_running = false;
    w->hosts_running--;
    /* Whoever is left sees the server stop. */
    while (!w->stopped && !protocol_has_failed(w)) {
        fiber_sleep_until(env_now_ns(w->env) + 10 * NS_PER_MS);
        if (host->conn != NULL && host->conn->ended) {
            session_lost(host);
        }
    }
    session_lost(host);
    tasks_forget(host);
    w->hosts_left--;
}
