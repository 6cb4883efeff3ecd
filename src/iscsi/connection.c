// SPDX-License-Identifier: MPL-2.0
/* One TCP connection: taking PDUs off the wire, putting PDUs on it, its timers and its end.
 *
 * Receiving. Bytes are read into a buffer, from which headers are taken; as soon as a header says
 * where its data segment belongs, the rest of the segment is read straight there, with what follows
 * it going to the buffer in the same call: little behind a long segment, for what follows is likely
 * to be a long one again. Small writes thus cost one copy and share system calls, large ones cost
 * next to none. A session that fills its buffer gets a larger one. One read is outstanding at all
 * times, so that the end of the stream is noticed, unless too many answers wait to be sent: then
 * reading stops until they have been taken.
 *
 * Sending. Items queue up until the loop has run what was ready, so that commands that end together
 * are answered together; one writev takes what fits 32 PDUs or 2 MiB. Serial numbers are stamped
 * when a PDU is put into a batch, so StatSN has the order of the wire and MaxCmdSN is the newest.
 * A long read lets others in between its batches. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "codec/crc.h"
#include "iscsi/internal.h"

static void rx_read(struct iscsi_connection *connection);
static void rx_process(struct iscsi_connection *connection);

/* ---- sending ---- */

struct iscsi_tx *tx_new(uint8_t opcode, uint8_t flags) {
    struct iscsi_tx *tx = MEM_NEW(struct iscsi_tx);
    list_init(&tx->in_queue);
    tx->is_own_memory = true;
    tx->bhs[0] = opcode;
    tx->bhs[AT_FLAGS] = flags;
    tx->stat_sn = STAT_ADVANCE;
    return tx;
}

/* Sent, or never to be sent: whoever lent memory gets it back. */
static void tx_release(struct iscsi_tx *tx) {
    struct iscsi_command *command = tx->command;
    list_remove(&tx->in_queue);
    tx->command = NULL;
    if (tx->is_own_memory) {
        mem_free(tx->payload);
        mem_free(tx);
    }
    if (command != NULL) {
        command_unref(command);
    }
}

static void stamp(struct iscsi_connection *connection, uint8_t *bhs, enum stat_sn stat_sn) {
    const struct iscsi_session *session = connection->session;
    uint32_t exp_cmd_sn = session != NULL ? session->exp_cmd_sn : connection->login.cmd_sn;
    uint32_t max_cmd_sn = session != NULL            ? session_max_cmd_sn(session)
                          : connection->is_dismissed ? connection->last_max_cmd_sn
                                                     : exp_cmd_sn;
    put_be32(bhs + AT_STATSN, stat_sn == STAT_NONE ? 0 : connection->stat_sn);
    put_be32(bhs + AT_EXP_CMDSN, exp_cmd_sn);
    put_be32(bhs + AT_MAX_CMDSN, max_cmd_sn);
    connection->stat_sn += stat_sn == STAT_ADVANCE;
}

/* The next Data-In PDU of a read (RFC 7143 §11.7): as long as the initiator takes, ending at the
 * burst, with the status in the last one. */
static uint32_t data_in_piece(struct iscsi_connection *connection, struct iscsi_tx *tx,
                              uint8_t *bhs, enum stat_sn *ret_stat_sn) {
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    uint32_t bytes = MIN(tx->data_bytes - tx->sent_bytes, parameters->initiator_segment_bytes);
    bytes = MIN(bytes, parameters->max_burst_bytes - tx->burst_sent_bytes);
    bool last = tx->sent_bytes + bytes == tx->data_bytes;
    tx->burst_sent_bytes += bytes;
    bool burst_ends = last || tx->burst_sent_bytes == parameters->max_burst_bytes;
    if (burst_ends) {
        tx->burst_sent_bytes = 0;
    }
    *ret_stat_sn = last ? STAT_ADVANCE : STAT_NONE;
    if (!last) {
        bhs[AT_FLAGS] = 0;
        bhs[AT_STATUS] = 0;
        put_be32(bhs + AT_RESIDUAL, 0);
    }
    bhs[AT_FLAGS] |= burst_ends ? BHS_FINAL : 0;
    put_be32(bhs + AT_DATA_SN, tx->data_sn++);
    put_be32(bhs + AT_BUFFER_OFFSET, tx->sent_bytes);
    return bytes;
}

/* Puts the next PDU of `tx` into a slot; returns the number of iovec elements. */
static uint32_t slot_fill(struct iscsi_connection *connection, struct iscsi_tx *tx,
                          struct tx_slot *slot, struct iovec *iov) {
    uint8_t *bhs = slot->header;
    memcpy(bhs, tx->bhs, BHS_BYTES);
    enum stat_sn stat_sn = tx->stat_sn;
    uint32_t bytes = tx->is_data_in ? data_in_piece(connection, tx, bhs, &stat_sn) : tx->data_bytes;
    const uint8_t *data = tx->data != NULL ? tx->data + tx->sent_bytes : NULL;
    tx->sent_bytes += bytes;
    bool finished = tx->sent_bytes == tx->data_bytes;
    slot->finished = finished ? tx : NULL;
    slot->command = tx->command;
    if (tx->command != NULL) {
        tx->command->refs++;
    }
    if (finished && tx->ends_command) {
        command_leaves(tx->command);
    }
    put_be24(bhs + AT_DATA_LENGTH, bytes);
    stamp(connection, bhs, stat_sn);

    uint32_t header_bytes = BHS_BYTES, trailer_bytes = pad_bytes(bytes), count = 0;
    if (connection->header_digest) {
        put_digest(bhs + BHS_BYTES, crc32c(bhs, BHS_BYTES));
        header_bytes += DIGEST_BYTES;
    }
    iov[count++] = (struct iovec){bhs, header_bytes};
    if (bytes == 0) {
        trailer_bytes = 0;
    }
    memset(slot->trailer, 0, sizeof(slot->trailer));
    if (connection->data_digest && bytes != 0) {
        uint32_t crc = crc32c_more(crc32c(data, bytes), slot->trailer, trailer_bytes);
        put_digest(slot->trailer + trailer_bytes, crc);
        trailer_bytes += DIGEST_BYTES;
    }
    union {
        const void *given;
        void *taken;
    } base = {.given = data};
    if (bytes != 0) {
        iov[count++] = (struct iovec){base.taken, bytes};
    }
    if (trailer_bytes != 0) {
        iov[count++] = (struct iovec){slot->trailer, trailer_bytes};
    }
    if (tx->starts_digests) {
        connection->header_digest = connection->keys.parameters.header_digest;
        connection->data_digest = connection->keys.parameters.data_digest;
    }
    return count;
}

static void tx_written(void *owner, int64_t result);

static void tx_write(struct iscsi_connection *connection) {
    struct iovec iov[3 * TX_SLOTS];
    uint32_t iov_count = 0;
    uint64_t batch_bytes = 0;
    if (connection->writing || connection->stage == CONNECTION_CLOSING) {
        return;
    }
    connection->slots_used = 0;
    while (!list_is_empty(&connection->tx_queue) && connection->slots_used < TX_SLOTS &&
           batch_bytes < TX_BATCH_BYTES) {
        struct iscsi_tx *tx = CONTAINER_OF(connection->tx_queue.next, struct iscsi_tx, in_queue);
        struct tx_slot *slot = &connection->slots[connection->slots_used++];
        uint32_t before = tx->sent_bytes;
        iov_count += slot_fill(connection, tx, slot, iov + iov_count);
        batch_bytes += tx->sent_bytes - before;
        if (slot->finished != NULL) {
            list_remove(&tx->in_queue);
            connection->tx_count--;
        }
    }
    if (connection->slots_used == 0) {
        if (connection->close_when_sent) {
            connection_close(connection, NULL);
        }
        return;
    }
    if (!list_is_empty(&connection->tx_queue)) {
        /* Whoever is at the head has had its share of this batch. */
        struct list *head = connection->tx_queue.next;
        list_remove(head);
        if (CONTAINER_OF(head, struct iscsi_tx, in_queue)->sent_bytes != 0) {
            list_append(&connection->tx_queue, head);
        } else {
            list_prepend(&connection->tx_queue, head);
        }
    }
    connection->writing = true;
    connection->writing_since_ns = env_now_ns(connection->loop->env);
    net_stream_writev(connection->stream, iov, iov_count, tx_written, connection);
}

static void slots_release(struct iscsi_connection *connection) {
    for (uint32_t i = 0; i < connection->slots_used; i++) {
        if (connection->slots[i].finished != NULL) {
            tx_release(connection->slots[i].finished);
        }
        if (connection->slots[i].command != NULL) {
            command_unref(connection->slots[i].command);
        }
    }
    connection->slots_used = 0;
}

static void tx_written(void *owner, int64_t result) {
    struct iscsi_connection *connection = owner;
    connection->writing = false;
    slots_release(connection);
    if (connection->stage == CONNECTION_CLOSING) {
        return;
    }
    if (result < 0) {
        connection_close(connection, error_text((int)result));
        return;
    }
    tx_write(connection);
    server_session_idle(connection);
    connection_rx_resume(connection);
}

static void connection_free(struct iscsi_connection *connection);

static void tx_run(struct env_task *task) {
    struct iscsi_connection *connection = CONTAINER_OF(task, struct iscsi_connection, tx_task);
    connection->tx_task_queued = false;
    if (connection->closed) {
        connection_free(connection);
        return;
    }
    tx_write(connection);
}

void tx_queue(struct iscsi_connection *connection, struct iscsi_tx *tx) {
    list_append(&connection->tx_queue, &tx->in_queue);
    connection->tx_count++;
    if (tx->starts_digests) { /* they hold for what comes in from now on, too */
        tx_write(connection);
    } else if (!connection->writing && !connection->tx_task_queued) {
        connection->tx_task_queued = true;
        env_defer(connection->loop->env, &connection->tx_task);
    }
}

void tx_withdraw(struct iscsi_connection *connection, struct iscsi_command *command) {
    LIST_FOR_EACH_SAFE(it, &connection->tx_queue) {
        struct iscsi_tx *tx = CONTAINER_OF(it, struct iscsi_tx, in_queue);
        if (tx->command == command) {
            connection->tx_count--;
            tx_release(tx);
        }
    }
}

void connection_flush_and_close(struct iscsi_connection *connection) {
    connection->close_when_sent = true;
    connection->reads_no_more = true;
    tx_write(connection);
}

/* RFC 7143 §11.17: the header of the refused PDU is the data. */
void connection_reject(struct iscsi_connection *connection, enum reject_reason reason) {
    struct iscsi_tx *tx = tx_new(OP_REJECT, BHS_FINAL);
    tx->bhs[AT_RESPONSE] = (uint8_t)reason;
    put_be32(tx->bhs + AT_ITT, ISCSI_TAG_NONE);
    tx->payload = mem_alloc(BHS_BYTES);
    memcpy(tx->payload, connection->rx.bhs, BHS_BYTES);
    tx->data = tx->payload;
    tx->data_bytes = BHS_BYTES;
    tx_queue(connection, tx);
}

/* ---- receiving ---- */

static void rx_forget(struct iscsi_rx *rx) {
    mem_free(rx->small);
    rx->small = NULL;
    if (rx->command != NULL) {
        struct iscsi_command *command = rx->command;
        rx->command = NULL;
        command_unref(command);
    }
}

static uint8_t *rx_surplus(struct iscsi_rx *rx) {
    if (rx->surplus == NULL) {
        rx->surplus = mem_alloc(ISCSI_SEGMENT_BYTES_MAX);
    }
    return rx->surplus;
}

/* Takes a header off the buffer; false: not all of it is there, or the connection has ended. */
static bool rx_take_header(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    const uint8_t *bytes = rx->buffer + rx->start;
    uint32_t have = rx->end - rx->start;
    if (have < BHS_BYTES) {
        return false;
    }
    uint32_t covered = BHS_BYTES + bhs_ahs_bytes(bytes);
    uint32_t need = covered + (connection->header_digest ? DIGEST_BYTES : 0);
    if (have < need) {
        return false;
    }
    memcpy(rx->bhs, bytes, BHS_BYTES);
    rx->start += need;
    if (connection->header_digest && crc32c(bytes, covered) != get_digest(bytes + covered)) {
        connection_broken(connection, "header digest error");
        return false;
    }
    struct errmsg message = {0};
    if (bhs_check(rx->bhs, connection->segment_bytes_max, &message) != OK) {
        connection_broken(connection, message.text);
        return false;
    }
    rx->dest = NULL;
    rx->segment_bytes = bhs_data_bytes(rx->bhs);
    rx->wanted_bytes = 0;
    rx->got_bytes = 0;
    rx->ignored = false;
    if (connection->stage == CONNECTION_FULL) {
        session_header(connection);
        if (connection->stage == CONNECTION_CLOSING) {
            return false;
        }
    } else {
        rx->small = mem_alloc(rx->segment_bytes + 1);
        rx->dest = rx->small;
        rx->wanted_bytes = rx->segment_bytes;
    }
    ASSERT_LE(rx->wanted_bytes, rx->segment_bytes);
    rx->stage = rx->segment_bytes != 0 ? RX_DATA : RX_TAIL;
    return true;
}

/* Where the rest of the segment goes: up to two pieces. */
static uint32_t rx_places(struct iscsi_rx *rx, struct iovec *ret_iov) {
    uint32_t count = 0;
    if (rx->got_bytes < rx->wanted_bytes) {
        ret_iov[count++] =
            (struct iovec){rx->dest + rx->got_bytes, rx->wanted_bytes - rx->got_bytes};
    }
    uint32_t surplus_got = rx->got_bytes - MIN(rx->got_bytes, rx->wanted_bytes);
    uint32_t surplus_bytes = rx->segment_bytes - rx->wanted_bytes;
    if (surplus_got < surplus_bytes) {
        ret_iov[count++] =
            (struct iovec){rx_surplus(rx) + surplus_got, surplus_bytes - surplus_got};
    }
    return count;
}

static void rx_copy_data(struct iscsi_rx *rx) {
    struct iovec iov[2];
    uint32_t count = rx_places(rx, iov);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = (uint32_t)MIN(iov[i].iov_len, (size_t)(rx->end - rx->start));
        memcpy(iov[i].iov_base, rx->buffer + rx->start, bytes);
        rx->start += bytes;
        rx->got_bytes += bytes;
    }
}

static bool rx_data_is_good(const struct iscsi_rx *rx, const uint8_t *pad) {
    uint32_t crc = 0;
    if (rx->wanted_bytes != 0) {
        crc = crc32c(rx->dest, rx->wanted_bytes);
    }
    if (rx->segment_bytes != rx->wanted_bytes) {
        uint32_t bytes = rx->segment_bytes - rx->wanted_bytes;
        crc = rx->wanted_bytes != 0 ? crc32c_more(crc, rx->surplus, bytes)
                                    : crc32c(rx->surplus, bytes);
    }
    uint32_t padding = pad_bytes(rx->segment_bytes);
    crc = crc32c_more(crc, pad, padding);
    return crc == get_digest(pad + padding);
}

/* Padding and digest, then the whole PDU goes to whoever handles it. */
static bool rx_take_tail(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    bool digest = connection->data_digest && rx->segment_bytes != 0;
    uint32_t need = pad_bytes(rx->segment_bytes) + (digest ? DIGEST_BYTES : 0);
    if (rx->end - rx->start < need) {
        return false;
    }
    const uint8_t *pad = rx->buffer + rx->start;
    rx->start += need;
    if (digest && !rx_data_is_good(rx, pad)) {
        connection_broken(connection, "data digest error");
        return false;
    }
    rx->stage = RX_HEADER;
    connection->heard_ns = rx->arrived_ns;
    if (!rx->ignored) {
        if (connection->stage == CONNECTION_FULL) {
            session_pdu(connection);
        } else {
            login_request(connection);
        }
    }
    rx_forget(rx);
    return connection->stage != CONNECTION_CLOSING;
}

static bool rx_is_held_up(const struct iscsi_connection *connection) {
    return connection->reads_no_more || connection->stage == CONNECTION_CLOSING ||
           connection->login.waits || connection->tx_count > ISCSI_TX_QUEUE_MAX;
}

static void rx_process(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    bool going = true;
    while (going && !rx_is_held_up(connection)) {
        switch (rx->stage) {
        case RX_HEADER:
            going = rx_take_header(connection);
            break;
        case RX_DATA:
            rx_copy_data(rx);
            going = rx->got_bytes == rx->segment_bytes;
            rx->stage = going ? RX_TAIL : RX_DATA;
            break;
        case RX_TAIL:
            going = rx_take_tail(connection);
            break;
        }
    }
    rx_read(connection);
}

static void rx_arrived(void *owner, int64_t result) {
    struct iscsi_connection *connection = owner;
    struct iscsi_rx *rx = &connection->rx;
    rx->reading = false;
    if (connection->stage == CONNECTION_CLOSING) {
        return;
    }
    if (result <= 0) {
        connection_close(connection, result == 0 ? "the initiator closed the connection"
                                                 : error_text((int)result));
        return;
    }
    uint32_t bytes = (uint32_t)result;
    rx->arrived_ns = env_now_ns(connection->loop->env);
    if (rx->stage == RX_DATA) {
        uint32_t of_segment = MIN(bytes, rx->segment_bytes - rx->got_bytes);
        rx->got_bytes += of_segment;
        bytes -= of_segment;
    }
    rx->end += bytes;
    rx->fills = rx->end == rx->buffer_bytes;
    rx_process(connection);
}

enum { RX_LONG_BYTES = 32 << 10 };
#define RX_AHEAD_BYTES 4096u

static void rx_grow(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    rx->fills = false;
    if (connection->stage == CONNECTION_FULL && rx->buffer_bytes < RX_BUFFER_BYTES_MAX) {
        rx->buffer_bytes *= 2;
        rx->buffer = mem_realloc(rx->buffer, rx->buffer_bytes);
    }
}

static void rx_read(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    if (rx->reading || rx_is_held_up(connection)) {
        return;
    }
    if (rx->start != 0) {
        memmove(rx->buffer, rx->buffer + rx->start, rx->end - rx->start);
        rx->end -= rx->start;
        rx->start = 0;
    }
    if (rx->fills) {
        rx_grow(connection);
    }
    struct iovec iov[3];
    uint32_t count = rx->stage == RX_DATA ? rx_places(rx, iov) : 0;
    bool is_long = rx->stage == RX_DATA && rx->segment_bytes - rx->got_bytes >= RX_LONG_BYTES;
    uint32_t room = rx->buffer_bytes - rx->end;
    iov[count++] = (struct iovec){rx->buffer + rx->end, is_long ? MIN(room, RX_AHEAD_BYTES) : room};
    rx->reading = true;
    net_stream_readv(connection->stream, iov, count, rx_arrived, connection);
}

uint32_t connection_new_ttt(struct iscsi_connection *connection) {
    uint32_t ttt = connection->next_ttt++;
    connection->next_ttt += connection->next_ttt == ISCSI_TAG_NONE;
    return ttt;
}

void connection_rx_resume(struct iscsi_connection *connection) {
    if (!connection->rx.reading && !rx_is_held_up(connection)) {
        connection->rx.arrived_ns = env_now_ns(connection->loop->env);
        rx_process(connection);
    }
}

/* ---- timers ---- */

static void send_ping(struct iscsi_connection *connection) {
    struct iscsi_tx *tx = tx_new(OP_NOP_IN, BHS_FINAL);
    tx->stat_sn = STAT_CURRENT;
    connection->ping_sent = true;
    connection->ping_ttt = connection_new_ttt(connection);
    put_be32(tx->bhs + AT_ITT, ISCSI_TAG_NONE);
    put_be32(tx->bhs + AT_TTT, connection->ping_ttt);
    tx_queue(connection, tx);
}

/* Whoever is heard may be stuck all the same: he takes no answers, or owes data. */
static bool is_stalled(const struct iscsi_connection *connection, uint64_t now) {
    uint64_t before = now - MIN(now, ISCSI_STALL_S * NS_PER_S);
    if (connection->writing && connection->writing_since_ns < before) {
        return true;
    }
    LIST_FOR_EACH(it, &connection->session->commands) {
        if (command_is_stalled(CONTAINER_OF(it, struct iscsi_command, in_session), before)) {
            return true;
        }
    }
    return false;
}

static void timer_fired(struct env_timer *timer) {
    struct iscsi_connection *connection = CONTAINER_OF(timer, struct iscsi_connection, timer);
    const struct iscsi_options *options = &connection->server->options;
    struct env *env = connection->loop->env;
    uint64_t now = env_now_ns(env);
    uint64_t silence = options->keepalive_s * NS_PER_S;
    uint64_t patience = options->keepalive_answer_s * NS_PER_S;
    if (connection->stage == CONNECTION_LOGIN) {
        connection_close(connection, "the login took too long");
        return;
    }
    if (connection->is_dismissed) {
        connection_close(connection, NULL);
        return;
    }
    if (is_stalled(connection, now)) {
        connection_close(connection, "the initiator takes no answers or sends no data");
        return;
    }
    if (connection->heard_ns + silence > now) {
        connection->ping_sent = false;
        env_timer_arm(env, timer, connection->heard_ns + silence);
    } else if (connection->ping_sent) {
        connection_close(connection, "the initiator does not answer");
    } else {
        env_timer_arm(env, timer, now + patience);
        send_ping(connection);
    }
}

/* ---- beginning and end ---- */

void connection_accept(struct iscsi_portal *portal, struct net_stream *stream,
                       const struct net_prefix *address) {
    struct iscsi_loop *loop = portal->loop;
    struct iscsi_server *server = loop->server;
    struct iscsi_connection *connection = MEM_NEW(struct iscsi_connection);
    connection->server = server;
    connection->loop = loop;
    connection->stream = stream;
    connection->portal_tag = portal->tag;
    connection->address = *address;
    connection->stage = CONNECTION_LOGIN;
    connection->since_ns = env_now_ns(loop->env);
    connection->heard_ns = connection->since_ns;
    connection->segment_bytes_max = LOGIN_SEGMENT_BYTES;
    connection->login.stage = 0xff;
    connection->stat_sn = 1;
    connection->next_ttt = 1;
    connection->text.ttt = ISCSI_TAG_NONE;
    connection->memory = MEM_NEW(struct memory_account);
    connection->rx.buffer_bytes = RX_BUFFER_BYTES;
    connection->rx.buffer = mem_alloc(RX_BUFFER_BYTES);
    connection->tx_task.run = tx_run;
    connection->timer.fire = timer_fired;
    list_init(&connection->tx_queue);
    keys_init(&connection->keys);
    list_append(&loop->connections, &connection->in_loop);
    connection->logging_in = true;
    server_lock(server);
    list_append(&server->connections, &connection->in_server);
    server->login_count++;
    bool stopping = atomic_load(&server->stopping);
    server_unlock(server);
    if (stopping) { /* our loop has still to hear of it */
        connection_close(connection, NULL);
        return;
    }
    env_timer_arm(loop->env, &connection->timer,
                  connection->since_ns + server->options.login_s * NS_PER_S);
    rx_read(connection);
}

void connection_unpin(struct iscsi_connection *connection) {
    struct iscsi_server *server = connection->server;
    server_lock(server);
    bool last = --connection->pins == 0 && connection->gone;
    server_unlock(server);
    if (last) {
        mem_free(connection);
    }
}

static void connection_free(struct iscsi_connection *connection) {
    struct iscsi_server *server = connection->server;
    slots_release(connection);
    while (!list_is_empty(&connection->tx_queue)) {
        tx_release(CONTAINER_OF(connection->tx_queue.next, struct iscsi_tx, in_queue));
    }
    rx_forget(&connection->rx);
    mem_free(connection->rx.buffer);
    mem_free(connection->rx.surplus);
    text_reset(connection);
    mem_free(connection->login.answer);
    memory_account_close(connection->memory);
    list_remove(&connection->in_loop);
    server_hold(server); /* once it is not in the register it keeps nobody from ending the server */
    server_lock(server);
    list_remove(&connection->in_server);
    connection->gone = true;
    bool last = connection->pins == 0;
    server_unlock(server);
    if (last) {
        mem_free(connection);
    }
    server_something_gone(server);
    server_release(server);
}

static void connection_closed(void *owner) {
    struct iscsi_connection *connection = owner;
    connection->closed = true;
    if (!connection->tx_task_queued) {
        connection_free(connection);
    }
}

void connection_close(struct iscsi_connection *connection, const char *why) {
    struct iscsi_server *server = connection->server;
    if (connection->stage == CONNECTION_CLOSING) {
        return;
    }
    if (why != NULL) {
        const char *who = connection->session != NULL ? connection->session->initiator
                                                      : connection->keys.parameters.initiator_name;
        server_event(server,
                     connection->session != NULL ? ISCSI_SESSION_ENDED : ISCSI_CONNECTION_ENDED,
                     "connection of %s%s%s ended: %s", net_stream_peer(connection->stream),
                     who[0] != 0 ? ", " : "", who, why);
    }
    if (connection->stage == CONNECTION_LOGIN) {
        server_lock(server);
        connection->logging_in = false;
        server->login_count--;
        server_unlock(server);
    }
    connection->stage = CONNECTION_CLOSING;
    env_timer_cancel(connection->loop->env, &connection->timer);
    if (connection->session != NULL) {
        session_close(connection->session);
    }
    net_stream_close(connection->stream, connection_closed, connection);
}

void connection_dismiss(struct iscsi_connection *connection, const char *why) {
    struct iscsi_session *session = connection->session;
    struct env *env = connection->loop->env;
    if (connection->stage != CONNECTION_FULL || session == NULL || connection->close_when_sent) {
        connection_close(connection, why);
        return;
    }
    server_event(connection->server, ISCSI_SESSION_ENDED, "connection of %s, %s ended: %s",
                 net_stream_peer(connection->stream), session->initiator, why);
    connection->is_dismissed = true;
    connection->login.cmd_sn = session->exp_cmd_sn;
    connection->last_max_cmd_sn = session_max_cmd_sn(session);
    session_close(session);
    env_timer_arm(env, &connection->timer, env_now_ns(env) + ISCSI_FAREWELL_S * NS_PER_S);
    server_say_goodbye(connection);
}

void connection_broken(struct iscsi_connection *connection, const char *why) {
    connection_close(connection, why);
}
