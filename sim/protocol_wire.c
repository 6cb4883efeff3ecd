// SPDX-License-Identifier: MPL-2.0
/* PDUs of a host: cut out of the stream and put into it, digests, and what must hold of every PDU
 * that a target sends, whatever it says (RFC 7143 §11, serial numbers §4.2.2). */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "codec/crc.h"
#include "protocol.h"

static void parse(struct host_conn *conn);

/* ---- sending ---- */

static void conn_write(struct host_conn *conn);

static void written(void *owner, int64_t result) {
    struct host_conn *conn = owner;
    conn->is_writing = false;
    mem_free(conn->writing);
    conn->writing = NULL;
    if (result == OK && !conn->closing) {
        conn_write(conn);
    }
}

static void conn_write(struct host_conn *conn) {
    if (conn->is_writing || conn->out_bytes == 0 || conn->ended || conn->closing) {
        return;
    }
    conn->writing = conn->out;
    struct iovec iov = {conn->out, conn->out_bytes};
    conn->out = NULL;
    conn->out_bytes = conn->out_room = 0;
    conn->is_writing = true;
    net_stream_writev(conn->stream, &iov, 1, written, conn);
}

static void out_put(struct host_conn *conn, const void *bytes, uint32_t length) {
    if (conn->out_bytes + length > conn->out_room) {
        conn->out_room = 2 * (conn->out_bytes + length) + 4096;
        conn->out = mem_realloc(conn->out, conn->out_room);
    }
    memcpy(conn->out + conn->out_bytes, bytes, length);
    conn->out_bytes += length;
}

void conn_send(struct host_conn *conn, uint8_t *bhs, const void *data, uint32_t bytes) {
    static const uint8_t zeros[4];
    uint8_t digest[DIGEST_BYTES];
    bool full = conn->state != CONN_LOGIN;
    env_sim_note(conn->host->world->env, (uint64_t)bhs[0] << 32 | bytes,
                 "host %u > 0x%02x flags %02x itt %x, %u bytes", conn->host->index, bhs_opcode(bhs),
                 bhs[AT_FLAGS], get_be32(bhs + AT_ITT), bytes);
    put_be24(bhs + AT_DATA_LENGTH, bytes);
    put_be32(bhs + AT_EXP_STATSN, conn->exp_stat_sn);
    out_put(conn, bhs, BHS_BYTES);
    if (full && conn->now.header_digest) {
        put_digest(digest, crc32c(bhs, BHS_BYTES));
        out_put(conn, digest, DIGEST_BYTES);
    }
    if (bytes != 0) {
        out_put(conn, data, bytes);
        out_put(conn, zeros, pad_bytes(bytes));
        if (full && conn->now.data_digest) {
            put_digest(digest, crc32c_more(crc32c(data, bytes), zeros, pad_bytes(bytes)));
            out_put(conn, digest, DIGEST_BYTES);
        }
    }
    conn_write(conn);
}

/* ---- what must hold of every PDU ---- */

static bool carries_status(const uint8_t *bhs) {
    switch (bhs_opcode(bhs)) {
    case OP_DATA_IN:
        return (bhs[AT_FLAGS] & DATA_IN_STATUS) != 0;
    case OP_R2T:
        return false;
    case OP_NOP_IN:
        return get_be32(bhs + AT_ITT) != ISCSI_TAG_NONE;
    default:
        return true;
    }
}

static void check_stat_sn(struct host_conn *conn, const uint8_t *bhs) {
    uint32_t stat_sn = get_be32(bhs + AT_STATSN);
    if (bhs_opcode(bhs) == OP_DATA_IN && !carries_status(bhs)) {
        return;
    }
    if (conn->knows_stat_sn && stat_sn != conn->exp_stat_sn) {
        protocol_fail(conn->host->world, "host %u: StatSN %u where %u is due (opcode 0x%02x)",
                      conn->host->index, stat_sn, conn->exp_stat_sn, bhs_opcode(bhs));
    }
    conn->knows_stat_sn = true;
    conn->exp_stat_sn = stat_sn + carries_status(bhs);
}

/* Of the connection that the host works with, in the full feature phase. */
static void check_window(struct host_conn *conn, const uint8_t *bhs) {
    struct host *host = conn->host;
    struct protocol_world *w = host->world;
    uint32_t exp = get_be32(bhs + AT_EXP_CMDSN), max = get_be32(bhs + AT_MAX_CMDSN);
    if (serial_is_before(exp, host->exp_cmd_sn) || serial_is_before(host->cmd_sn, exp)) {
        protocol_fail(w, "host %u: ExpCmdSN %u after %u, with %u the next to be sent", host->index,
                      exp, host->exp_cmd_sn, host->cmd_sn);
    }
    if (serial_is_before(max, host->max_cmd_sn) || max - exp + 1 > w->commands_max) {
        protocol_fail(w, "host %u: MaxCmdSN %u after %u, with ExpCmdSN %u", host->index, max,
                      host->max_cmd_sn, exp);
    }
    host->exp_cmd_sn = exp;
    host->max_cmd_sn = max;
}

/* When nothing is in hand the window must be open again. */
static void check_idle_window(struct host_conn *conn) {
    struct host *host = conn->host;
    uint32_t window = host->max_cmd_sn - host->exp_cmd_sn + 1;
    if (host->in_hand == 0 && host->exp_cmd_sn == host->cmd_sn &&
        window != host->world->commands_max) {
        protocol_fail(host->world, "host %u: nothing is in hand and the window is %u, not %u",
                      host->index, window, host->world->commands_max);
    }
}

/* ---- receiving ---- */

static void pong(struct host_conn *conn, const uint8_t *in) {
    uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
    COUNT(conn->host->world, pings_of_target);
    put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
    memcpy(bhs + AT_TTT, in + AT_TTT, 4);
    put_be32(bhs + AT_CMDSN, conn->host->cmd_sn);
    conn_send(conn, bhs, NULL, 0);
}

static void async_message(struct host_conn *conn, const uint8_t *bhs) {
    struct protocol_world *w = conn->host->world;
    uint8_t event = bhs[AT_ASYNC_EVENT];
    if (event == 3 && (w->stopping || conn->may_end != NULL)) {
        COUNT(w, farewells);
        conn->may_end = "the target said so";
        return;
    }
    protocol_fail(w, "host %u: an asynchronous message %u without reason", conn->host->index,
                  event);
}

static void store(struct host_conn *conn, const uint8_t *bhs, const uint8_t *data, uint32_t bytes) {
    struct host *host = conn->host;
    if (conn->has_pdu ||
        (conn->state != CONN_LOGIN && get_be32(bhs + AT_ITT) != host->waited_itt)) {
        protocol_fail(host->world, "host %u: an answer that nobody asked for (opcode 0x%02x)",
                      host->index, bhs_opcode(bhs));
        return;
    }
    memcpy(conn->bhs, bhs, BHS_BYTES);
    conn->data = mem_realloc(conn->data, bytes + 1);
    memcpy(conn->data, data, bytes);
    conn->data[bytes] = 0;
    conn->data_bytes = bytes;
    conn->has_pdu = true;
    fiber_queue_wake_all(&conn->waiters);
}

static void pdu_received(struct host_conn *conn, const uint8_t *bhs, const uint8_t *data,
                         uint32_t bytes) {
    struct host *host = conn->host;
    bool current = conn == host->conn && conn->state != CONN_LOGIN;
    env_sim_note(host->world->env, (uint64_t)bhs[0] << 32 | bytes,
                 "host %u < 0x%02x flags %02x itt %x, %u bytes", host->index, bhs_opcode(bhs),
                 bhs[AT_FLAGS], get_be32(bhs + AT_ITT), bytes);
    check_stat_sn(conn, bhs);
    if (current) {
        check_window(conn, bhs);
    }
    switch (bhs_opcode(bhs)) {
    case OP_SCSI_RESPONSE:
    case OP_DATA_IN:
    case OP_R2T:
        if (current) { /* else its session is another's by now, or is being left */
            task_received(conn, bhs, data, bytes);
            check_idle_window(conn);
        }
        break;
    case OP_NOP_IN:
        if (get_be32(bhs + AT_ITT) == ISCSI_TAG_NONE) {
            pong(conn, bhs);
            break;
        }
        store(conn, bhs, data, bytes);
        break;
    case OP_ASYNC:
        async_message(conn, bhs);
        break;
    case OP_REJECT:
        if (!conn->may_reject) {
            protocol_fail(host->world, "host %u: rejected for reason 0x%02x: opcode 0x%02x",
                          host->index, bhs[AT_RESPONSE], bytes != 0 ? data[0] & 0x3f : 0xff);
        }
        COUNT(host->world, rejects);
        break;
    default:
        if (current || conn->state == CONN_LOGIN || conn->is_discovery) {
            store(conn, bhs, data, bytes);
        }
        break;
    }
}

/* How long the PDU at the front of `in` is; 0: not all of it is there. */
static uint32_t pdu_bytes(struct host_conn *conn) {
    const uint8_t *bhs = conn->in;
    bool full = conn->state != CONN_LOGIN;
    uint32_t header = BHS_BYTES + (full && conn->now.header_digest ? DIGEST_BYTES : 0);
    if (conn->in_bytes < header) {
        return 0;
    }
    uint32_t data = bhs_data_bytes(bhs), most = full ? conn->now.our_segment_bytes : 8192;
    if (bhs_ahs_bytes(bhs) != 0 || data > most) {
        protocol_fail(conn->host->world, "host %u: a data segment of %u bytes, %u allowed",
                      conn->host->index, data, most);
        return 0;
    }
    uint32_t tail = data != 0 && full && conn->now.data_digest ? DIGEST_BYTES : 0;
    uint32_t total = header + data + pad_bytes(data) + tail;
    return conn->in_bytes < total ? 0 : total;
}

static bool digests_are_right(const struct host_conn *conn) {
    bool full = conn->state != CONN_LOGIN;
    const uint8_t *at = conn->in + BHS_BYTES;
    uint32_t data = bhs_data_bytes(conn->in), padded = data + pad_bytes(data);
    bool right = true;
    if (full && conn->now.header_digest) {
        right &= get_digest(at) == crc32c(conn->in, BHS_BYTES);
        at += DIGEST_BYTES;
    }
    if (full && conn->now.data_digest && data != 0) {
        right &= get_digest(at + padded) == crc32c(at, padded);
    }
    return right;
}

static void parse(struct host_conn *conn) {
    uint32_t total;
    while (!(conn->state == CONN_LOGIN && conn->has_pdu) && !conn->closing &&
           !protocol_has_failed(conn->host->world) && (total = pdu_bytes(conn)) != 0) {
        bool full = conn->state != CONN_LOGIN;
        if (!digests_are_right(conn)) {
            protocol_fail(conn->host->world, "host %u: a wrong digest", conn->host->index);
            return;
        }
        const uint8_t *data =
            conn->in + BHS_BYTES + (full && conn->now.header_digest ? DIGEST_BYTES : 0);
        pdu_received(conn, conn->in, data, bhs_data_bytes(conn->in));
        conn->in_bytes -= total;
        memmove(conn->in, conn->in + total, conn->in_bytes);
    }
}

static void conn_read(struct host_conn *conn);

static void came(void *owner, int64_t result) {
    struct host_conn *conn = owner;
    struct host *host = conn->host;
    if (conn->closing) {
        return;
    }
    if (result <= 0) {
        conn->ended = true;
        conn->ended_how = result;
        host->session_uncertain |= conn == host->conn;
        env_sim_note(host->world->env, (uint64_t)result, "host %u < end %d", host->index,
                     (int)result);
        if (conn->may_end == NULL) {
            protocol_fail(host->world, "host %u: the target ended the connection (%d): %s",
                          host->index, (int)result, host->world->event);
        }
        fiber_queue_wake_all(&conn->waiters);
        return;
    }
    if (conn->in_bytes + (uint32_t)result > conn->in_room) {
        conn->in_room = 2 * (conn->in_bytes + (uint32_t)result);
        conn->in = mem_realloc(conn->in, conn->in_room);
    }
    memcpy(conn->in + conn->in_bytes, conn->rx, (size_t)result);
    conn->in_bytes += (uint32_t)result;
    parse(conn);
    conn_read(conn);
}

static void conn_read(struct host_conn *conn) {
    struct iovec iov = {conn->rx, sizeof(conn->rx)};
    net_stream_readv(conn->stream, &iov, 1, came, conn);
}

bool conn_receive(struct host_conn *conn, uint64_t patience_ns) {
    struct protocol_world *w = conn->host->world;
    uint64_t until_ns = env_now_ns(w->env) + patience_ns;
    if (conn->state == CONN_LOGIN) {
        conn->has_pdu = false;
        parse(conn);
    }
    while (!conn->has_pdu && !conn->ended && !protocol_has_failed(w) &&
           env_now_ns(w->env) < until_ns) {
        (void)fiber_queue_wait_until(&conn->waiters, until_ns);
    }
    bool got = conn->has_pdu;
    if (conn->state != CONN_LOGIN) {
        conn->has_pdu = false;
        conn->host->waited_itt = ISCSI_TAG_NONE;
    }
    return got && !protocol_has_failed(w);
}

bool conn_wait_end(struct host_conn *conn, uint64_t patience_ns) {
    struct protocol_world *w = conn->host->world;
    uint64_t until_ns = env_now_ns(w->env) + patience_ns;
    while (!conn->ended && !protocol_has_failed(w) && env_now_ns(w->env) < until_ns) {
        (void)fiber_queue_wait_until(&conn->waiters, until_ns);
    }
    return conn->ended;
}

/* ---- beginning and end ---- */

struct host_conn *conn_new(struct host *host) {
    struct host_conn *conn = MEM_NEW(struct host_conn);
    conn->host = host;
    conn->login_place = PLACE_connecting;
    conn->now.our_segment_bytes = 8192;
    fiber_queue_init(&conn->waiters);
    char portal[32]; /* any of the group: sessions and their ends cross the target's loops */
    (void)snprintf(portal, sizeof(portal), PROTOCOL_PORTAL,
                   (uint32_t)rng_below(&host->rng, host->world->portal_count));
    conn->stream = env_sim_connect(host->world->env, host->world->link, portal, host->address);
    conn_read(conn);
    return conn;
}

static void closed(void *owner) {
    struct host_conn *conn = owner;
    conn->closed = true;
    fiber_queue_wake_all(&conn->waiters);
}

void conn_free(struct host_conn *conn) {
    if (conn == NULL) {
        return;
    }
    conn->closing = true;
    net_stream_close(conn->stream, closed, conn);
    while (!conn->closed) {
        fiber_queue_wait(&conn->waiters);
    }
    mem_free(conn->in);
    mem_free(conn->out);
    mem_free(conn->writing);
    mem_free(conn->data);
    mem_free(conn);
}

static enum protocol_place place_of(const struct host_conn *conn) {
    if (conn->state == CONN_LOGIN) {
        return conn->login_place;
    }
    return conn->state == CONN_LOGOUT ? PLACE_leaving
           : conn->host->in_hand == 0 ? PLACE_idle
                                      : PLACE_busy;
}

void conn_break(struct host_conn *conn, enum protocol_break how, uint64_t bytes) {
    static const enum sim_break breaks[] = {SIM_BREAK_RESET, SIM_BREAK_SHUTDOWN, SIM_BREAK_SILENCE};
    bool answers = how >= BREAK_answer_reset;
    struct net_stream *stream = answers ? sim_stream_other_end(conn->stream) : conn->stream;
    if (stream == NULL || conn->ended || conn->cut) {
        return;
    }
    conn->host->world->result->stats.breaks[place_of(conn)][how]++;
    conn->may_end = "it was cut";
    conn->cut = true;
    conn->host->session_uncertain |= conn == conn->host->conn;
    conn->silent = breaks[how % 3] == SIM_BREAK_SILENCE;
    sim_stream_break_after(stream, bytes, breaks[how % 3]);
}
