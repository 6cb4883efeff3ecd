// SPDX-License-Identifier: MPL-2.0
/* A small initiator for the tests of the target: it builds PDUs as RFC 7143 writes them, over a
 * stream in memory, and takes the answers apart. A world is a server with two targets that share
 * one unit; everybody may use TARGET, only "somebody" OTHER. */
#ifndef HOLDFAST_TESTS_ISCSI_HOST_H
#define HOLDFAST_TESTS_ISCSI_HOST_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codec/crc.h"
#include "fake_env.h"
#include "fake_net.h"
#include "iscsi/iscsi.h"
#include "iscsi/keys.h"
#include "iscsi/pdu.h"
#include "memory_volume.h"

#define PORTAL "192.0.2.1:3260"
#define TARGET "iqn.2025-01.org.example:one"
#define OTHER "iqn.2025-01.org.example:two"
#define INITIATOR "iqn.2025-01.org.example:host"

enum { LUN_BYTES = 32 << 20, DATA_MAX = 4 << 20 };

struct world {
    struct fake_env fake;
    struct memory_volume volume;
    struct scsi_target *scsi;
    struct iscsi_server *server;
    bool stopped;
    char event[1024];
};

/* An initiator: what it must count, and the last PDU it got. */
struct host {
    struct world *w;
    struct fake_env *loop; /* of its connection */
    struct fake_peer peer;
    uint32_t cmd_sn, itt, exp_stat_sn;
    bool digests;
    uint8_t isid;
    uint16_t tsih, cid;
    uint8_t bhs[BHS_BYTES];
    uint8_t *data;
    uint32_t data_bytes;
};

static inline void on_event(void *owner, enum iscsi_event kind, const char *text) {
    (void)kind;
    struct world *w = owner;
    assert_null(strstr(text, "secret of")); /* as all secrets of the tests are called */
    (void)snprintf(w->event, sizeof(w->event), "%s", text);
}

static inline void on_stopped(void *owner) {
    ((struct world *)owner)->stopped = true;
}

static inline int world_setup(void **state) {
    struct world *w = MEM_NEW(struct world);
    fake_env_init(&w->fake);
    memory_volume_init(&w->volume, &w->fake.env, LUN_BYTES, 512);
    w->scsi = scsi_target_new(&w->fake.env);
    assert_int_equal(scsi_lun_add(w->scsi, 0, &w->volume.door, &w->volume.info, NULL), OK);
    struct iscsi_options options = {.event = on_event, .event_owner = w};
    w->server = iscsi_server_new(&w->fake.env, &options);
    assert_int_equal(iscsi_portal_add(w->server, PORTAL, NULL), OK);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, NULL), OK);
    const struct iscsi_rule allowed = {.initiator = "iqn.2025-01.org.example:somebody"};
    const struct iscsi_access access = {.rules = &allowed, .rule_count = 1};
    assert_int_equal(iscsi_target_add(w->server, OTHER, w->scsi, &access, NULL), OK);
    *state = w;
    return 0;
}

static inline int world_teardown(void **state) {
    struct world *w = *state;
    if (!w->stopped) {
        iscsi_server_stop(w->server, w->fake.now_ns + NS_PER_S, on_stopped, w);
        fake_env_advance(&w->fake, 2 * NS_PER_S);
    }
    assert_true(w->stopped);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    iscsi_server_free(w->server);
    assert_int_equal(scsi_target_outstanding(w->scsi), 0);
    scsi_target_free(w->scsi);
    memory_volume_done(&w->volume);
    fake_env_done(&w->fake);
    mem_free(w);
    return 0;
}

/* ---- PDUs ---- */

static inline void host_connect_at(struct host *h, struct world *w, struct fake_env *loop,
                                   const char *portal, const char *from) {
    *h = (struct host){.w = w, .loop = loop, .cmd_sn = 100, .itt = 1, .isid = 1};
    h->data = mem_alloc(DATA_MAX);
    fake_net_connect_from(&loop->env, portal, from, &h->peer);
}

static inline void host_connect_from(struct host *h, struct world *w, const char *from) {
    host_connect_at(h, w, &w->fake, PORTAL, from);
}

static inline void host_connect(struct host *h, struct world *w) {
    host_connect_from(h, w, "192.0.2.7:50000");
}

static inline void host_free(struct host *h) {
    fake_peer_hang_up(&h->peer);
    fake_env_settle(h->loop);
    assert_true(h->peer.closed);
    fake_peer_free(&h->peer);
    mem_free(h->data);
}

static inline void send_pdu(struct host *h, uint8_t *bhs, const void *data, uint32_t bytes) {
    static const uint8_t zeros[4];
    uint8_t digest[4];
    put_be24(bhs + AT_DATA_LENGTH, bytes);
    fake_peer_feed(&h->peer, bhs, BHS_BYTES);
    if (h->digests) {
        put_digest(digest, crc32c(bhs, BHS_BYTES));
        fake_peer_feed(&h->peer, digest, 4);
    }
    if (bytes != 0) {
        fake_peer_feed(&h->peer, data, bytes);
        fake_peer_feed(&h->peer, zeros, pad_bytes(bytes));
        if (h->digests) {
            put_digest(digest, crc32c_more(crc32c(data, bytes), zeros, pad_bytes(bytes)));
            fake_peer_feed(&h->peer, digest, 4);
        }
    }
    fake_env_settle(h->loop);
}

/* Takes the next PDU; false: none is there. */
static inline bool try_receive(struct host *h) {
    struct fake_peer *peer = &h->peer;
    size_t header = BHS_BYTES + (h->digests ? 4u : 0u);
    if (peer->out_bytes < header) {
        assert_int_equal(peer->out_bytes, 0);
        return false;
    }
    memcpy(h->bhs, peer->out, BHS_BYTES);
    if (h->digests) {
        assert_int_equal(get_digest(peer->out + BHS_BYTES), crc32c(h->bhs, BHS_BYTES));
    }
    h->data_bytes = bhs_data_bytes(h->bhs);
    size_t padded = h->data_bytes + pad_bytes(h->data_bytes);
    size_t total = header + padded + (h->digests && h->data_bytes != 0 ? 4u : 0u);
    assert_true(peer->out_bytes >= total && h->data_bytes <= DATA_MAX);
    memcpy(h->data, peer->out + header, h->data_bytes);
    if (h->digests && h->data_bytes != 0) {
        assert_int_equal(get_digest(peer->out + header + padded),
                         crc32c(peer->out + header, padded));
    }
    fake_peer_take(peer, total);
    uint8_t opcode = bhs_opcode(h->bhs);
    bool has_status =
        (opcode != OP_DATA_IN || (h->bhs[AT_FLAGS] & DATA_IN_STATUS) != 0) && opcode != OP_R2T;
    if (has_status) {
        if (h->exp_stat_sn != 0) {
            assert_int_equal(get_be32(h->bhs + AT_STATSN), h->exp_stat_sn);
        }
        h->exp_stat_sn = get_be32(h->bhs + AT_STATSN) + 1;
    }
    return true;
}

static inline void receive(struct host *h, uint8_t opcode) {
    assert_true(try_receive(h));
    assert_int_equal(bhs_opcode(h->bhs), opcode);
}

/* ---- login ---- */

static inline void send_login(struct host *h, uint8_t flags, const char *text, size_t length) {
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, flags};
    bhs[AT_ISID] = 0x80;
    bhs[AT_ISID + 5] = h->isid;
    put_be16(bhs + AT_TSIH, h->tsih);
    put_be16(bhs + AT_CID, h->cid);
    put_be32(bhs + AT_ITT, 0x77);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    send_pdu(h, bhs, text, (uint32_t)length);
}

#define TEXT(...) __VA_ARGS__, sizeof(__VA_ARGS__)
#define NAMES "InitiatorName=" INITIATOR "\0TargetName=" TARGET "\0SessionType=Normal\0"

/* What the target says of `key` in the last answer; NULL when nothing. */
static inline const char *answer_of(const struct host *h, const char *key) {
    for (uint32_t at = 0; at < h->data_bytes; at += (uint32_t)strlen((char *)h->data + at) + 1) {
        const char *pair = (const char *)h->data + at;
        if (strncmp(pair, key, strlen(key)) == 0 && pair[strlen(key)] == '=') {
            return pair + strlen(key) + 1;
        }
    }
    return NULL;
}

static inline uint32_t login_status(struct host *h, uint8_t flags, const char *text,
                                    size_t length) {
    send_login(h, flags, text, length);
    receive(h, OP_LOGIN_RESPONSE);
    return get_be16(h->bhs + AT_LOGIN_STATUS);
}

static inline void login_with(struct host *h, struct world *w, uint8_t isid, const char *text,
                              size_t length) {
    host_connect(h, w);
    h->isid = isid;
    assert_int_equal(login_status(h, 0x87, text, length), 0);
    assert_int_equal(h->bhs[AT_FLAGS], 0x87);
    assert_int_not_equal(get_be16(h->bhs + AT_TSIH), 0);
}

/* ---- commands ---- */

static inline uint32_t send_command(struct host *h, uint8_t flags, const uint8_t *cdb,
                                    size_t cdb_bytes, uint32_t expected, const void *data,
                                    uint32_t bytes) {
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, flags};
    put_be32(bhs + AT_ITT, h->itt);
    put_be32(bhs + AT_COMMAND_LENGTH, expected);
    put_be32(bhs + AT_CMDSN, h->cmd_sn++);
    memcpy(bhs + AT_CDB, cdb, cdb_bytes);
    send_pdu(h, bhs, data, bytes);
    return h->itt++;
}

static inline void send_data_out(struct host *h, uint32_t itt, uint32_t ttt, uint32_t data_sn,
                                 uint32_t offset, const uint8_t *data, uint32_t bytes, bool final) {
    uint8_t bhs[BHS_BYTES] = {OP_DATA_OUT, final ? BHS_FINAL : 0};
    put_be32(bhs + AT_ITT, itt);
    put_be32(bhs + AT_TTT, ttt);
    put_be32(bhs + AT_DATA_SN, data_sn);
    put_be32(bhs + AT_BUFFER_OFFSET, offset);
    send_pdu(h, bhs, data, bytes);
}

static inline uint32_t send_management(struct host *h, uint8_t function, uint32_t referenced,
                                       uint32_t ref_cmd_sn) {
    uint8_t bhs[BHS_BYTES] = {OP_TASK_MANAGEMENT | BHS_IMMEDIATE, (uint8_t)(0x80 | function)};
    put_be32(bhs + AT_ITT, h->itt++);
    put_be32(bhs + AT_REFERENCED_TASK, referenced);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    put_be32(bhs + AT_REF_CMDSN, ref_cmd_sn);
    send_pdu(h, bhs, NULL, 0);
    receive(h, OP_TASK_MANAGEMENT_RESPONSE);
    return h->bhs[AT_RESPONSE];
}

#define CDB(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
enum { READS = 0xc0, WRITES = 0xa0, WRITES_MORE = 0x20, NEITHER = 0x80 };

/* The first command of a session reports the power-on attention. */
static inline void ready(struct host *h) {
    send_command(h, NEITHER, CDB(0), 0, NULL, 0);
    receive(h, OP_SCSI_RESPONSE);
    assert_int_equal(h->bhs[AT_STATUS], SCSI_CHECK_CONDITION);
    assert_int_equal(get_be16(h->data), 18);
    assert_int_equal(h->data[2 + 2], 6);
    send_command(h, NEITHER, CDB(0), 0, NULL, 0);
    receive(h, OP_SCSI_RESPONSE);
    assert_int_equal(h->bhs[AT_STATUS], SCSI_GOOD);
    assert_int_equal(get_be32(h->bhs + AT_MAX_CMDSN) - get_be32(h->bhs + AT_EXP_CMDSN) + 1,
                     ISCSI_COMMANDS_MAX);
}

static inline void login(struct host *h, struct world *w) {
    login_with(h, w, 1, TEXT(NAMES "InitialR2T=No\0MaxRecvDataSegmentLength=65536"));
    ready(h);
}

static inline void fill(uint8_t *bytes, size_t length, uint32_t seed) {
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

#endif
