// SPDX-License-Identifier: MPL-2.0
/* Text requests in full feature phase (RFC 7143 §11.10, §11.11): SendTargets, and the few keys that
 * may be declared again.
 *
 * A request may come in pieces (C bit), each but the last answered by an empty response; an answer
 * longer than the initiator takes at once goes out in pieces, each fetched by an empty request that
 * carries our target transfer tag. One exchange at a time: a new request forgets an unfinished one.
 */
#include <string.h>

#include "base/math.h"
#include "iscsi/internal.h"

enum { ANSWER_FIRST_BYTES = 4096 };

void text_reset(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    mem_free(text->request);
    mem_free(text->answer);
    *text = (struct iscsi_text){.ttt = ISCSI_TAG_NONE};
}

static void respond(struct iscsi_connection *connection, bool final, bool continues,
                    const uint8_t *data, uint32_t bytes) {
    struct iscsi_text *text = &connection->text;
    struct iscsi_tx *tx = tx_new(
        OP_TEXT_RESPONSE, (uint8_t)((final ? BHS_FINAL : 0) | (continues ? TEXT_CONTINUE : 0)));
    put_be32(tx->bhs + AT_ITT, text->itt);
    put_be32(tx->bhs + AT_TTT, final ? ISCSI_TAG_NONE : text->ttt);
    if (bytes != 0) {
        tx->payload = mem_alloc(bytes);
        memcpy(tx->payload, data, bytes);
        tx->data = tx->payload;
        tx->data_bytes = bytes;
    }
    tx_queue(connection, tx);
}

static void send_piece(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    uint32_t left = text->answer_bytes - text->answer_sent;
    uint32_t bytes = MIN(left, connection->keys.parameters.initiator_segment_bytes);
    bool last = bytes == left;
    const uint8_t *data = text->answer + text->answer_sent;
    text->answer_sent += bytes;
    if (text->ttt == ISCSI_TAG_NONE) {
        text->ttt = connection_new_ttt(connection);
    }
    respond(connection, last, !last, data, bytes);
    if (last) {
        text_reset(connection);
    }
}

/* Collects the request; false when it is refused. */
static bool collect(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    const struct iscsi_rx *rx = &connection->rx;
    if (rx->wanted_bytes != rx->segment_bytes ||
        text->request_bytes + rx->segment_bytes > ISCSI_TEXT_BYTES_MAX) {
        text_reset(connection);
        connection_reject(connection, REJECT_OUT_OF_RESOURCES);
        return false;
    }
    if (rx->segment_bytes != 0) {
        text->request = mem_realloc(text->request, text->request_bytes + rx->segment_bytes);
        memcpy(text->request + text->request_bytes, rx->dest, rx->segment_bytes);
        text->request_bytes += rx->segment_bytes;
    }
    return true;
}

static void answer_all(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    struct text_buffer answer = {mem_alloc(ISCSI_ANSWER_BYTES_MAX), 0, ISCSI_ANSWER_BYTES_MAX,
                                 false};
    bool send_targets = false;
    struct text_pair pair;
    struct errmsg message = {0};
    connection->keys.seen = 0;
    connection->keys.count = 0;
    int error = keys_negotiate(&connection->keys, KEYS_FULL_FEATURE, text->request,
                               text->request_bytes, &answer, &send_targets, &pair, &message);
    if (error == OK && send_targets) {
        server_send_targets(connection, pair.value, &answer);
    }
    if (error != OK || answer.overflow) {
        mem_free(answer.bytes);
        text_reset(connection);
        connection_reject(connection,
                          error != OK ? REJECT_PROTOCOL_ERROR : REJECT_OUT_OF_RESOURCES);
        return;
    }
    text->answer = mem_realloc(answer.bytes, answer.length + 1); /* it may wait to be fetched */
    text->answer_bytes = (uint32_t)answer.length;
    send_piece(connection);
}

void text_request(struct iscsi_connection *connection) {
    struct iscsi_text *text = &connection->text;
    const uint8_t *bhs = connection->rx.bhs;
    uint32_t itt = get_be32(bhs + AT_ITT), ttt = get_be32(bhs + AT_TTT);
    bool continues = (bhs[AT_FLAGS] & TEXT_CONTINUE) != 0;
    if (ttt != ISCSI_TAG_NONE) {
        if (ttt != text->ttt || itt != text->itt) {
            connection_reject(connection, REJECT_PROTOCOL_ERROR);
            return;
        }
        if (text->answer != NULL) {
            send_piece(connection);
            return;
        }
    } else {
        text_reset(connection);
        text->itt = itt;
    }
    if (continues && (bhs[AT_FLAGS] & BHS_FINAL) != 0) {
        connection_reject(connection, REJECT_PROTOCOL_ERROR);
        return;
    }
    if (!collect(connection)) {
        return;
    }
    if (continues) {
        text->ttt = text->ttt == ISCSI_TAG_NONE ? connection_new_ttt(connection) : text->ttt;
        respond(connection, false, false, NULL, 0);
        return;
    }
    answer_all(connection);
}
