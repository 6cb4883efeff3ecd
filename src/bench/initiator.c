// SPDX-License-Identifier: MPL-2.0
/* See initiator.h. PDUs are those of RFC 7143 §11, commands READ(16) and WRITE(16) of SBC-3.
 *
 *     door ─> waiting ─> tags (in the window) ─> tx ─> stream
 *                          ^                            │
 *                          └── Data-In, R2T, Response ──┘
 *
 * A command lives from the door to its status. While the target knows it it stands in `tags`, and
 * its place there is its task tag. Data-In is read straight into the request's memory, written data
 * is sent straight from it; so a session that ends gives its commands back only when its stream is
 * closed. Everything that arrives is checked against what the command has asked for; what does not
 * fit ends the session. */
#include "bench/initiator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/fiber.h"
#include "iscsi/limits.h"
#include "iscsi/pdu.h"
#include "scsi/scsi.h"

enum {
    TAGS = ISCSI_COMMANDS_MAX,
    ANSWER_BYTES = 8192, /* of text and sense: MaxRecvDataSegmentLength of a login */
    AGAIN_MS = 1,
    LOGIN_S = 15,
    TO_FULL_FEATURE = LOGIN_TRANSIT | 1 << 2 | 3, /* from the operational stage */
    ATTRIBUTE_SIMPLE = 1,
    CDB_READ16 = 0x88,
    CDB_WRITE16 = 0x8a,
    SENSE_UNIT_ATTENTION = 6,
    SENSE_DATA_PROTECT = 7,
};

/* What Linux's initiator offers; the target's answers hold. */
#define KEYS                                                                                       \
    "InitiatorName=iqn.2026-01.io.holdfast:model\0SessionType=Normal\0HeaderDigest=None\0"         \
    "DataDigest=None\0InitialR2T=No\0ImmediateData=Yes\0MaxRecvDataSegmentLength=262144\0"         \
    "MaxBurstLength=16776192\0FirstBurstLength=262144\0MaxOutstandingR2T=1\0ErrorRecoveryLevel=0"
enum { OUR_SEGMENT_BYTES = 262144, OUR_BURST_BYTES = 16776192, OUR_FIRST_BURST_BYTES = 262144 };

struct command {
    struct list in_waiting;
    struct env_timer again;
    struct session *session;
    struct volume_request *request;
    uint32_t come_bytes; /* of Data-In */
    uint32_t sending;    /* PDUs that are not yet the stream's */
};

/* A PDU on its way out. */
struct tx {
    struct list in_queue;
    struct command *command; /* whose data it carries; NULL */
    uint8_t bhs[BHS_BYTES];
    uint32_t iov_count;
    struct iovec iov[INITIATOR_IOV_MAX + 2];
};

struct session {
    struct initiator *initiator;
    struct net_stream *stream;
    struct list waiting, tx;
    struct tx *writing;
    struct command *tags[TAGS];
    uint32_t cmd_sn, max_cmd_sn, exp_stat_sn;
    uint32_t segment_bytes, first_burst_bytes; /* what the target takes */
    bool logged_in, closed;
    int error; /* it has ended */
    /* Receiving: a header, then what it announces. */
    uint8_t bhs[BHS_BYTES], answer[ANSWER_BYTES + 4];
    bool has_header;
    struct iovec in[INITIATOR_IOV_MAX + 2];
    uint32_t in_first, in_count;
    struct fiber_queue changed;
};

struct initiator {
    struct volume_door door;
    char target[ISCSI_NAME_BYTES_MAX + 1];
    struct session *sessions[INITIATOR_SESSIONS_MAX];
    uint32_t session_count, next_session;
    struct errmsg why; /* of the first session that ended */
};

/* ---- the end ---- */

static void command_end(struct command *command, int status) {
    struct volume_request *request = command->request;
    env_timer_cancel(command->session->initiator->door.env, &command->again);
    list_remove(&command->in_waiting);
    mem_free(command);
    volume_complete(request, status);
}

static void stream_closed(void *owner) {
    struct session *s = owner;
    struct list *node;
    s->closed = true;
    while ((node = list_pop(&s->tx)) != NULL) {
        mem_free(CONTAINER_OF(node, struct tx, in_queue));
    }
    for (uint32_t i = 0; i < TAGS; i++) {
        if (s->tags[i] != NULL) {
            command_end(s->tags[i], s->error);
            s->tags[i] = NULL;
        }
    }
    while ((node = list_pop(&s->waiting)) != NULL) {
        command_end(CONTAINER_OF(node, struct command, in_waiting), s->error);
    }
    fiber_queue_wake_all(&s->changed);
}

static void session_end(struct session *s, int error, const char *what) {
    if (s->error == OK) {
        s->error = error;
        (void)errmsg_set(&s->initiator->why, error, "an iSCSI session ended: %s", what);
        net_stream_close(s->stream, stream_closed, s);
    }
}

static void breach(struct session *s, const char *what) {
    session_end(s, ERR_PROTOCOL, what);
}

/* ---- sending ---- */

/* [offset, offset + bytes) of an iovec; returns in how many pieces. */
static uint32_t slice(const struct volume_request *request, uint64_t offset, uint64_t bytes,
                      struct iovec *ret_iov) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < request->iov_count && bytes > 0; i++) {
        const struct iovec *iov = &request->iov[i];
        uint64_t skip = MIN(offset, (uint64_t)iov->iov_len);
        uint64_t take = MIN(iov->iov_len - skip, bytes);
        offset -= skip;
        bytes -= take;
        if (take > 0) {
            ret_iov[count++] = (struct iovec){(uint8_t *)iov->iov_base + skip, take};
        }
    }
    ASSERT_EQ(bytes, 0);
    return count;
}

static void session_write(struct session *s);

static void written(void *owner, int64_t result) {
    struct session *s = owner;
    if (s->writing->command != NULL) {
        s->writing->command->sending--;
    }
    mem_free(s->writing);
    s->writing = NULL;
    if (result != OK) {
        session_end(s, (int)result, "the connection broke");
    }
    session_write(s);
}

/* One PDU at a time: so it is known which requests' memory the stream still needs. */
static void session_write(struct session *s) {
    struct list *node;
    if (s->writing == NULL && s->error == OK && (node = list_pop(&s->tx)) != NULL) {
        s->writing = CONTAINER_OF(node, struct tx, in_queue);
        net_stream_writev(s->stream, s->writing->iov, s->writing->iov_count, written, s);
    }
}

/* Adds what every PDU says. Data are the command's from `offset` on, or a text. */
static void send_pdu(struct session *s, const uint8_t *bhs, struct command *command,
                     uint64_t offset, const char *text, uint32_t bytes) {
    static uint8_t zeroes[4];
    struct tx *tx = MEM_NEW(struct tx);
    tx->command = command;
    memcpy(tx->bhs, bhs, BHS_BYTES);
    put_be24(tx->bhs + AT_DATA_LENGTH, bytes);
    put_be32(tx->bhs + AT_EXP_STATSN, s->exp_stat_sn);
    tx->iov[tx->iov_count++] = (struct iovec){tx->bhs, BHS_BYTES};
    if (command != NULL) {
        command->sending++;
        tx->iov_count += slice(command->request, offset, bytes, tx->iov + tx->iov_count);
    } else if (bytes > 0) {
        tx->iov[tx->iov_count++] = (struct iovec){(void *)(uintptr_t)text, bytes};
    }
    if (pad_bytes(bytes) > 0) {
        tx->iov[tx->iov_count++] = (struct iovec){zeroes, pad_bytes(bytes)};
    }
    list_append(&s->tx, &tx->in_queue);
    session_write(s);
}

static void send_command(struct session *s, uint32_t tag, struct command *command) {
    const struct volume_request *request = command->request;
    bool writes = request->op == VOLUME_WRITE;
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND};
    uint32_t at_once = MIN(s->first_burst_bytes, s->segment_bytes);
    bhs[AT_FLAGS] =
        (uint8_t)(BHS_FINAL | (writes ? COMMAND_WRITE : COMMAND_READ) | ATTRIBUTE_SIMPLE);
    put_be32(bhs + AT_ITT, tag);
    put_be32(bhs + AT_COMMAND_LENGTH, (uint32_t)request->length_bytes);
    put_be32(bhs + AT_CMDSN, s->cmd_sn++);
    bhs[AT_CDB] = writes ? CDB_WRITE16 : CDB_READ16;
    put_be64(bhs + AT_CDB + 2, request->offset_bytes / SECTOR_BYTES);
    put_be32(bhs + AT_CDB + 10, (uint32_t)(request->length_bytes / SECTOR_BYTES));
    send_pdu(s, bhs, command, 0, NULL,
             writes ? (uint32_t)MIN(request->length_bytes, (uint64_t)at_once) : 0);
}

/* Sends what waits, as far as the window and the tags go. */
static void session_go_on(struct session *s) {
    uint32_t tag = 0;
    while (s->error == OK && !list_is_empty(&s->waiting) &&
           !serial_is_before(s->max_cmd_sn, s->cmd_sn)) {
        while (tag < TAGS && s->tags[tag] != NULL) {
            tag++;
        }
        if (tag == TAGS) {
            return;
        }
        struct list *node = list_pop(&s->waiting);
        struct command *command = CONTAINER_OF(node, struct command, in_waiting);
        command->come_bytes = 0;
        s->tags[tag] = command;
        send_command(s, tag, command);
    }
}

static void try_again(struct env_timer *timer) {
    struct command *command = CONTAINER_OF(timer, struct command, again);
    session_go_on(command->session);
}

/* ---- what comes ---- */

static struct command *command_of(struct session *s) {
    uint32_t tag = get_be32(s->bhs + AT_ITT);
    if (tag < TAGS && s->tags[tag] != NULL) {
        return s->tags[tag];
    }
    breach(s, "the target answered a command that there is not");
    return NULL;
}

/* What a status means; OK also for what is to be tried again. */
static int status_error(struct session *s, uint8_t status, bool *ret_again) {
    uint32_t sense_bytes = bhs_data_bytes(s->bhs);
    uint8_t key = sense_bytes >= 2 + 3 ? s->answer[2 + 2] & 0xf : 0;
    if (sense_bytes >= 2 + 2 && (s->answer[2] & 0x7f) >= 0x72) { /* descriptor format */
        key = s->answer[2 + 1] & 0xf;
    }
    *ret_again = status == SCSI_BUSY || status == SCSI_TASK_SET_FULL ||
                 (status == SCSI_CHECK_CONDITION && key == SENSE_UNIT_ATTENTION);
    return status == SCSI_GOOD || *ret_again ? OK
           : key == SENSE_DATA_PROTECT       ? ERR_NO_SPACE
                                             : ERR_IO;
}

static void status_came(struct session *s, uint8_t status, bool has_sense) {
    struct command *command = command_of(s);
    bool again = false;
    if (command == NULL) {
        return;
    }
    if (command->sending > 0) {
        breach(s, "the target answered before it had all data");
        return;
    }
    int error = has_sense ? status_error(s, status, &again) : status == SCSI_GOOD ? OK : ERR_IO;
    s->tags[get_be32(s->bhs + AT_ITT)] = NULL;
    if (again) {
        struct env *env = s->initiator->door.env;
        list_prepend(&s->waiting, &command->in_waiting);
        if (status != SCSI_CHECK_CONDITION) {
            command->again.fire = try_again;
            env_timer_arm(env, &command->again, env_now_ns(env) + AGAIN_MS * NS_PER_MS);
            return;
        }
    } else if (error == OK && command->request->op == VOLUME_READ &&
               command->come_bytes != command->request->length_bytes) {
        breach(s, "the target left out data");
        command_end(command, ERR_PROTOCOL);
    } else {
        command_end(command, error);
    }
    session_go_on(s);
}

static void asked_for_data(struct session *s) {
    struct command *command = command_of(s);
    uint32_t at = get_be32(s->bhs + AT_BUFFER_OFFSET), left = get_be32(s->bhs + AT_R2T_LENGTH);
    if (command == NULL) {
        return;
    }
    if (command->request->op != VOLUME_WRITE || left == 0 ||
        !range_is_within(at, left, command->request->length_bytes)) {
        breach(s, "the target asked for data that there is not");
        return;
    }
    for (uint32_t data_sn = 0; left > 0; data_sn++) {
        uint32_t bytes = MIN(left, s->segment_bytes);
        uint8_t bhs[BHS_BYTES] = {OP_DATA_OUT, bytes == left ? BHS_FINAL : 0};
        memcpy(bhs + AT_ITT, s->bhs + AT_ITT, 4);
        memcpy(bhs + AT_TTT, s->bhs + AT_TTT, 4);
        put_be32(bhs + AT_DATA_SN, data_sn);
        put_be32(bhs + AT_BUFFER_OFFSET, at);
        send_pdu(s, bhs, command, at, NULL, bytes);
        at += bytes;
        left -= bytes;
    }
}

static void ping_came(struct session *s) {
    uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
    if (get_be32(s->bhs + AT_TTT) == ISCSI_TAG_NONE) {
        return;
    }
    put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
    memcpy(bhs + AT_TTT, s->bhs + AT_TTT, 4);
    put_be32(bhs + AT_CMDSN, s->cmd_sn);
    send_pdu(s, bhs, NULL, 0, NULL, 0);
}

static const char *answer_of(const struct session *s, const char *key) {
    uint32_t bytes = bhs_data_bytes(s->bhs);
    size_t length = strlen(key);
    for (uint32_t at = 0; at < bytes; at += (uint32_t)strlen((const char *)s->answer + at) + 1) {
        const char *pair = (const char *)s->answer + at;
        if (strncmp(pair, key, length) == 0 && pair[length] == '=') {
            return pair + length + 1;
        }
    }
    return NULL;
}

static uint32_t number_of(const struct session *s, const char *key, uint32_t missing) {
    const char *text = answer_of(s, key);
    return text == NULL ? missing : (uint32_t)strtoul(text, NULL, 0);
}

static void login_answered(struct session *s) {
    uint32_t status = get_be16(s->bhs + AT_LOGIN_STATUS);
    const char *immediate = answer_of(s, "ImmediateData");
    if (bhs_opcode(s->bhs) != OP_LOGIN_RESPONSE) {
        breach(s, "the target did not answer the login");
    } else if (status != 0) {
        session_end(s, ERR_PERMISSION, "the target refused the login");
    } else if (s->bhs[AT_FLAGS] != TO_FULL_FEATURE) {
        breach(s, "the target wants to negotiate on");
    }
    s->segment_bytes = number_of(s, "MaxRecvDataSegmentLength", ANSWER_BYTES);
    s->first_burst_bytes = number_of(s, "FirstBurstLength", OUR_FIRST_BURST_BYTES);
    s->first_burst_bytes =
        immediate != NULL && strcmp(immediate, "No") == 0 ? 0 : s->first_burst_bytes;
    if (s->segment_bytes < 512) {
        breach(s, "the target declared no usable segment length");
    }
    s->logged_in = s->error == OK;
    fiber_queue_wake_all(&s->changed);
}

/* A whole PDU is there. */
static void pdu_came(struct session *s) {
    uint8_t opcode = bhs_opcode(s->bhs);
    bool has_status = opcode != OP_DATA_IN || (s->bhs[AT_FLAGS] & DATA_IN_STATUS) != 0;
    if (has_status && opcode != OP_R2T && get_be32(s->bhs + AT_ITT) != ISCSI_TAG_NONE) {
        s->exp_stat_sn = get_be32(s->bhs + AT_STATSN) + 1;
    }
    if (!serial_is_before(get_be32(s->bhs + AT_MAX_CMDSN), s->max_cmd_sn)) {
        s->max_cmd_sn = get_be32(s->bhs + AT_MAX_CMDSN);
    }
    if (!s->logged_in) {
        login_answered(s);
        return;
    }
    switch (opcode) {
    case OP_DATA_IN:
        if (has_status) {
            status_came(s, s->bhs[AT_STATUS], false);
        }
        break;
    case OP_SCSI_RESPONSE:
        status_came(s, s->bhs[AT_RESPONSE] == 0 ? s->bhs[AT_STATUS] : SCSI_TASK_ABORTED, true);
        break;
    case OP_R2T:
        asked_for_data(s);
        break;
    case OP_NOP_IN:
        ping_came(s);
        break;
    default:
        breach(s, "the target sent something that nobody asked for");
    }
    session_go_on(s);
}

/* ---- receiving ---- */

/* The header is there: where to with what follows it. False: the session has ended. */
static bool expect_data(struct session *s) {
    uint32_t bytes = bhs_data_bytes(s->bhs);
    s->in_first = s->in_count = 0;
    if (bhs_opcode(s->bhs) == OP_DATA_IN && s->logged_in) {
        struct command *command = command_of(s);
        uint32_t at = get_be32(s->bhs + AT_BUFFER_OFFSET);
        if (command == NULL) {
            return false;
        }
        if (command->request->op != VOLUME_READ || at != command->come_bytes ||
            bytes > OUR_SEGMENT_BYTES ||
            !range_is_within(at, bytes, command->request->length_bytes)) {
            breach(s, "the target sent data that were not asked for");
            return false;
        }
        command->come_bytes += bytes;
        s->in_count = slice(command->request, at, bytes, s->in);
    } else if (bytes > ANSWER_BYTES) {
        breach(s, "the target sent a segment that is too long");
        return false;
    } else {
        s->answer[bytes] = 0;
        s->in[s->in_count++] = (struct iovec){s->answer, bytes};
    }
    if (pad_bytes(bytes) > 0) {
        s->in[s->in_count++] = (struct iovec){s->answer + ANSWER_BYTES, pad_bytes(bytes)};
    }
    return true;
}

static void expect_header(struct session *s) {
    s->in[0] = (struct iovec){s->bhs, BHS_BYTES};
    s->in_first = 0;
    s->in_count = 1;
    s->has_header = false;
}

static void session_read(struct session *s);

static void came(void *owner, int64_t result) {
    struct session *s = owner;
    if (s->error != OK) {
        return;
    }
    if (result <= 0) {
        session_end(s, result == 0 ? ERR_CLOSED : (int)result, "the target closed the connection");
        return;
    }
    for (size_t left = (size_t)result; left > 0;) {
        struct iovec *iov = &s->in[s->in_first];
        size_t step = MIN(left, iov->iov_len);
        iov->iov_base = (uint8_t *)iov->iov_base + step;
        iov->iov_len -= step;
        left -= step;
        s->in_first += iov->iov_len == 0;
    }
    if (s->in_first == s->in_count && !s->has_header) {
        s->has_header = true;
        if (bhs_ahs_bytes(s->bhs) != 0) {
            breach(s, "the target sent an additional header");
            return;
        }
        if (bhs_data_bytes(s->bhs) != 0 && !expect_data(s)) {
            return;
        }
    }
    if (s->in_first == s->in_count) {
        pdu_came(s);
        expect_header(s);
    }
    if (s->error == OK) {
        session_read(s);
    }
}

static void session_read(struct session *s) {
    net_stream_readv(s->stream, s->in + s->in_first, s->in_count - s->in_first, came, s);
}

/* ---- the door ---- */

static void initiator_dispatch(struct volume_door *door, struct volume_request *request) {
    struct initiator *initiator = CONTAINER_OF(door, struct initiator, door);
    if ((request->op != VOLUME_READ && request->op != VOLUME_WRITE) ||
        request->length_bytes % SECTOR_BYTES != 0 || request->offset_bytes % SECTOR_BYTES != 0 ||
        request->length_bytes == 0 || request->length_bytes > OUR_BURST_BYTES ||
        request->iov_count > INITIATOR_IOV_MAX || initiator->session_count == 0) {
        volume_complete(request, ERR_UNSUPPORTED);
        return;
    }
    struct session *s = initiator->sessions[initiator->next_session];
    initiator->next_session = (initiator->next_session + 1) % initiator->session_count;
    if (s->error != OK) {
        volume_complete(request, s->error);
        return;
    }
    struct command *command = MEM_NEW(struct command);
    command->session = s;
    command->request = request;
    list_init(&command->in_waiting);
    list_append(&s->waiting, &command->in_waiting);
    session_go_on(s);
}

struct initiator *initiator_new(struct env *env, const char *iqn) {
    struct initiator *initiator = MEM_NEW(struct initiator);
    initiator->door = (struct volume_door){.env = env, .dispatch = initiator_dispatch};
    (void)snprintf(initiator->target, sizeof(initiator->target), "%s", iqn);
    return initiator;
}

struct volume_door *initiator_door(struct initiator *initiator) {
    return &initiator->door;
}

static void log_in(struct session *s, const char *text, uint32_t bytes) {
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, TO_FULL_FEATURE};
    bhs[AT_ISID] = 0x80; /* each session is a port of its own */
    bhs[AT_ISID + 5] = (uint8_t)s->initiator->session_count;
    put_be32(bhs + AT_CMDSN, s->cmd_sn);
    send_pdu(s, bhs, NULL, 0, text, bytes);
}

int initiator_add_session(struct initiator *initiator, struct net_stream *stream,
                          struct errmsg *reterr) {
    char text[sizeof(KEYS) + sizeof("TargetName=") + sizeof(initiator->target)];
    ASSERT_LE(initiator->session_count, INITIATOR_SESSIONS_MAX - 1);
    struct session *s = MEM_NEW(struct session);
    s->initiator = initiator;
    s->stream = stream;
    s->cmd_sn = s->max_cmd_sn = 1;
    list_init(&s->waiting);
    list_init(&s->tx);
    fiber_queue_init(&s->changed);
    initiator->sessions[initiator->session_count++] = s;
    memcpy(text, KEYS, sizeof(KEYS));
    int more = snprintf(text + sizeof(KEYS), sizeof(text) - sizeof(KEYS), "TargetName=%s",
                        initiator->target);
    log_in(s, text, (uint32_t)sizeof(KEYS) + (uint32_t)more + 1);
    expect_header(s);
    session_read(s);
    uint64_t until_ns = env_now_ns(initiator->door.env) + LOGIN_S * NS_PER_S;
    while (s->error == OK && !s->logged_in) {
        if (fiber_queue_wait_until(&s->changed, until_ns) != OK && !s->logged_in) {
            session_end(s, ERR_TIMEOUT, "the target does not answer the login");
        }
    }
    while (s->error != OK && !s->closed) { /* the text above is still being sent from here */
        fiber_queue_wait(&s->changed);
    }
    return s->error == OK ? OK : errmsg_set(reterr, s->error, "%s", initiator->why.text);
}

void initiator_free(struct initiator *initiator) {
    for (uint32_t i = 0; i < initiator->session_count; i++) {
        struct session *s = initiator->sessions[i];
        session_end(s, ERR_CLOSED, "it is not needed any more");
        while (!s->closed) {
            fiber_queue_wait(&s->changed);
        }
        mem_free(s);
    }
    mem_free(initiator);
}
