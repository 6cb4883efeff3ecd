// SPDX-License-Identifier: MPL-2.0
/* The target over a stream in memory, driven with PDUs written out from RFC 7143.
 *
 * (Long because every test needs the small initiator at the head of the file.) */
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
    struct fake_peer peer;
    uint32_t cmd_sn, itt, exp_stat_sn;
    bool digests;
    uint8_t isid;
    uint8_t bhs[BHS_BYTES];
    uint8_t *data;
    uint32_t data_bytes;
};

static void on_event(void *owner, const char *text) {
    struct world *w = owner;
    (void)snprintf(w->event, sizeof(w->event), "%s", text);
}

static void on_stopped(void *owner) {
    ((struct world *)owner)->stopped = true;
}

static int world_setup(void **state) {
    struct world *w = MEM_NEW(struct world);
    fake_env_init(&w->fake);
    memory_volume_init(&w->volume, &w->fake.env, LUN_BYTES, 512);
    w->scsi = scsi_target_new(&w->fake.env);
    assert_int_equal(scsi_lun_add(w->scsi, 0, &w->volume.door, &w->volume.info, NULL), OK);
    struct iscsi_options options = {.event = on_event, .event_owner = w};
    w->server = iscsi_server_new(&w->fake.env, &options);
    assert_int_equal(iscsi_portal_add(w->server, PORTAL, NULL), OK);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, 0, NULL), OK);
    const char *allowed[] = {"iqn.2025-01.org.example:somebody"};
    assert_int_equal(iscsi_target_add(w->server, OTHER, w->scsi, allowed, 1, NULL), OK);
    *state = w;
    return 0;
}

static int world_teardown(void **state) {
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

static void host_connect(struct host *h, struct world *w) {
    *h = (struct host){.w = w, .cmd_sn = 100, .itt = 1, .isid = 1};
    h->data = mem_alloc(DATA_MAX);
    fake_net_connect(&w->fake.env, PORTAL, &h->peer);
}

static void host_free(struct host *h) {
    fake_peer_hang_up(&h->peer);
    fake_env_settle(&h->w->fake);
    assert_true(h->peer.closed);
    fake_peer_free(&h->peer);
    mem_free(h->data);
}

static void send_pdu(struct host *h, uint8_t *bhs, const void *data, uint32_t bytes) {
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
    fake_env_settle(&h->w->fake);
}

/* Takes the next PDU; false: none is there. */
static bool try_receive(struct host *h) {
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

static void receive(struct host *h, uint8_t opcode) {
    assert_true(try_receive(h));
    assert_int_equal(bhs_opcode(h->bhs), opcode);
}

/* ---- login ---- */

static void send_login(struct host *h, uint8_t flags, const char *text, size_t length) {
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, flags};
    bhs[AT_ISID] = 0x80;
    bhs[AT_ISID + 5] = h->isid;
    put_be32(bhs + AT_ITT, 0x77);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    send_pdu(h, bhs, text, (uint32_t)length);
}

#define TEXT(...) __VA_ARGS__, sizeof(__VA_ARGS__)
#define NAMES "InitiatorName=" INITIATOR "\0TargetName=" TARGET "\0SessionType=Normal\0"

/* What the target says of `key` in the last answer; NULL when nothing. */
static const char *answer_of(const struct host *h, const char *key) {
    for (uint32_t at = 0; at < h->data_bytes; at += (uint32_t)strlen((char *)h->data + at) + 1) {
        const char *pair = (const char *)h->data + at;
        if (strncmp(pair, key, strlen(key)) == 0 && pair[strlen(key)] == '=') {
            return pair + strlen(key) + 1;
        }
    }
    return NULL;
}

static uint32_t login_status(struct host *h, uint8_t flags, const char *text, size_t length) {
    send_login(h, flags, text, length);
    receive(h, OP_LOGIN_RESPONSE);
    return get_be16(h->bhs + AT_LOGIN_STATUS);
}

static void login_with(struct host *h, struct world *w, uint8_t isid, const char *text,
                       size_t length) {
    host_connect(h, w);
    h->isid = isid;
    assert_int_equal(login_status(h, 0x87, text, length), 0);
    assert_int_equal(h->bhs[AT_FLAGS], 0x87);
    assert_int_not_equal(get_be16(h->bhs + AT_TSIH), 0);
}

/* ---- commands ---- */

static uint32_t send_command(struct host *h, uint8_t flags, const uint8_t *cdb, size_t cdb_bytes,
                             uint32_t expected, const void *data, uint32_t bytes) {
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, flags};
    put_be32(bhs + AT_ITT, h->itt);
    put_be32(bhs + AT_COMMAND_LENGTH, expected);
    put_be32(bhs + AT_CMDSN, h->cmd_sn++);
    memcpy(bhs + AT_CDB, cdb, cdb_bytes);
    send_pdu(h, bhs, data, bytes);
    return h->itt++;
}

static void send_data_out(struct host *h, uint32_t itt, uint32_t ttt, uint32_t data_sn,
                          uint32_t offset, const uint8_t *data, uint32_t bytes, bool final) {
    uint8_t bhs[BHS_BYTES] = {OP_DATA_OUT, final ? BHS_FINAL : 0};
    put_be32(bhs + AT_ITT, itt);
    put_be32(bhs + AT_TTT, ttt);
    put_be32(bhs + AT_DATA_SN, data_sn);
    put_be32(bhs + AT_BUFFER_OFFSET, offset);
    send_pdu(h, bhs, data, bytes);
}

static uint32_t send_management(struct host *h, uint8_t function, uint32_t referenced,
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
static void ready(struct host *h) {
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

static void login(struct host *h, struct world *w) {
    login_with(h, w, 1, TEXT(NAMES "InitialR2T=No\0MaxRecvDataSegmentLength=65536"));
    ready(h);
}

static void fill(uint8_t *bytes, size_t length, uint32_t seed) {
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

/* ---- tests: names, text, keys ---- */

static void names(void **state) {
    (void)state;
    static const char *const good[] = {"iqn.2025-01.org.example", "iqn.2025-12.org.example:a.b-c:d",
                                       "eui.02004567A425678D", "naa.52004567ba64678d",
                                       "naa.62004567ba64678d0123456789abcdef"};
    static const char *const bad[] = {"",
                                      "iqn.",
                                      "iqn.2025-13.org.example",
                                      "iqn.2025-00.org",
                                      "iqn.2025-1.org.example",
                                      "iqn.2025-01.ORG.example",
                                      "iqn.2025-01.org example",
                                      "iqn.2025-01.:x",
                                      "eui.0200",
                                      "naa.52004567ba64678",
                                      "eui.02004567A425678G",
                                      "disk1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(iscsi_name_check(good[i], NULL), OK);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(iscsi_name_check(bad[i], NULL), ERR_INVALID);
    }
    char name[300] = "iqn.2025-01.org.example:";
    memset(name + strlen(name), 'a', sizeof(name) - strlen(name) - 1);
    name[223] = 0;
    assert_int_equal(iscsi_name_check(name, NULL), OK);
    name[223] = 'a';
    name[224] = 0;
    assert_int_equal(iscsi_name_check(name, NULL), ERR_INVALID);
}

static void text_pairs(void **state) {
    (void)state;
    struct text_pair pair;
    size_t at = 0;
    static const uint8_t good[] = "A=1\0\0B=x=y\0C=";
    assert_int_equal(text_next(good, sizeof(good), &at, &pair), OK);
    assert_string_equal(pair.key, "A");
    assert_int_equal(text_next(good, sizeof(good), &at, &pair), OK);
    assert_string_equal(pair.value, "x=y");
    assert_int_equal(text_next(good, sizeof(good), &at, &pair), OK);
    assert_string_equal(pair.value, "");
    assert_int_equal(text_next(good, sizeof(good), &at, &pair), ERR_NOT_FOUND);
    static const char *const bad[] = {"A", "=x", "A B=1", "\x80=1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        at = 0;
        assert_int_equal(text_next((const uint8_t *)bad[i], strlen(bad[i]) + 1, &at, &pair),
                         ERR_PROTOCOL);
    }
    at = 0;
    assert_int_equal(text_next((const uint8_t *)"A=1", 3, &at, &pair), ERR_PROTOCOL); /* no zero */
    uint32_t number;
    assert_int_equal(text_number("0x1fF", &number), OK);
    assert_int_equal(number, 511);
    assert_int_equal(text_number("4294967295", &number), OK);
    assert_int_equal(text_number("4294967296", &number), ERR_RANGE);
    assert_int_equal(text_number("12a", &number), ERR_INVALID);
    assert_int_equal(text_number("0x", &number), ERR_INVALID);
    assert_int_equal(text_number("-1", &number), ERR_INVALID);
}

static void every_key_has_its_rule(void **state) {
    (void)state;
    static const struct {
        const char *offer, *answer;
    } cases[] = {
        {"HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"},
        {"HeaderDigest=None,CRC32C", "HeaderDigest=None"},
        {"DataDigest=MD5,CRC32C", "DataDigest=CRC32C"},
        {"DataDigest=MD5", "DataDigest=Reject"},
        {"MaxConnections=8", "MaxConnections=1"},
        {"InitialR2T=Yes", "InitialR2T=Yes"},
        {"InitialR2T=No", "InitialR2T=No"},
        {"ImmediateData=No", "ImmediateData=No"},
        {"ImmediateData=Yes", "ImmediateData=Yes"},
        {"ImmediateData=maybe", "ImmediateData=Reject"},
        {"MaxBurstLength=16776192", "MaxBurstLength=1048576"},
        {"MaxBurstLength=511", "MaxBurstLength=Reject"},
        {"FirstBurstLength=65536", "FirstBurstLength=65536"},
        {"DefaultTime2Wait=5", "DefaultTime2Wait=5"},
        {"DefaultTime2Wait=0", "DefaultTime2Wait=2"},
        {"DefaultTime2Retain=0", "DefaultTime2Retain=0"},
        {"DefaultTime2Retain=3601", "DefaultTime2Retain=Reject"},
        {"MaxOutstandingR2T=1", "MaxOutstandingR2T=1"},
        {"MaxOutstandingR2T=16", "MaxOutstandingR2T=8"},
        {"DataPDUInOrder=No", "DataPDUInOrder=Yes"},
        {"DataSequenceInOrder=No", "DataSequenceInOrder=Yes"},
        {"ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"},
        {"IFMarker=Yes", "IFMarker=No"},
        {"OFMarkInt=2048~8192", "OFMarkInt=Irrelevant"},
        {"TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"},
        {"X-org.example.colour=blue", "X-org.example.colour=NotUnderstood"},
        {"AuthMethod=None", "AuthMethod=Reject"}, /* the wrong stage */
        {"SendTargets=All", "SendTargets=Reject"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct keys_negotiation keys;
        uint8_t bytes[512];
        struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
        keys_init(&keys);
        assert_int_equal(keys_negotiate(&keys, KEYS_OPERATIONAL, (const uint8_t *)cases[i].offer,
                                        strlen(cases[i].offer) + 1, &answer, NULL, NULL, NULL),
                         OK);
        assert_int_equal(answer.length, strlen(cases[i].answer) + 1);
        assert_string_equal((char *)bytes, cases[i].answer);
    }
    struct keys_negotiation keys;
    uint8_t bytes[64];
    struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
    keys_init(&keys);
    static const uint8_t twice[] = "InitialR2T=No\0InitialR2T=No";
    assert_int_equal(
        keys_negotiate(&keys, KEYS_OPERATIONAL, twice, sizeof(twice), &answer, NULL, NULL, NULL),
        ERR_PROTOCOL);
}

static void headers_are_checked(void **state) {
    (void)state;
    uint8_t bhs[BHS_BYTES] = {OP_DATA_OUT | BHS_IMMEDIATE};
    assert_int_equal(bhs_check(bhs, 8192, NULL), ERR_PROTOCOL);
    bhs[0] = OP_LOGOUT;
    assert_int_equal(bhs_check(bhs, 8192, NULL), OK);
    put_be24(bhs + AT_DATA_LENGTH, 1);
    assert_int_equal(bhs_check(bhs, 8192, NULL), ERR_PROTOCOL);
    bhs[0] = OP_TEXT;
    put_be24(bhs + AT_DATA_LENGTH, 8192);
    assert_int_equal(bhs_check(bhs, 8192, NULL), OK);
    put_be24(bhs + AT_DATA_LENGTH, 8193);
    assert_int_equal(bhs_check(bhs, 8192, NULL), ERR_PROTOCOL);
    put_be24(bhs + AT_DATA_LENGTH, 0);
    bhs[AT_AHS_LENGTH] = 1;
    assert_int_equal(bhs_check(bhs, 8192, NULL), ERR_PROTOCOL);
    bhs[0] = OP_SCSI_COMMAND;
    assert_int_equal(bhs_check(bhs, 8192, NULL), OK);
    bhs[0] = 0x1f;
    assert_int_equal(bhs_check(bhs, 8192, NULL), ERR_PROTOCOL);
}

/* ---- tests: login ---- */

static void login_stages(void **state) {
    struct world *w = *state;
    struct host h;
    host_connect(&h, w);
    /* security, operational, full feature, one request each */
    assert_int_equal(login_status(&h, 0x81, TEXT(NAMES "AuthMethod=CHAP,None")), 0);
    assert_int_equal(h.bhs[AT_FLAGS], 0x81);
    assert_string_equal(answer_of(&h, "AuthMethod"), "None");
    assert_string_equal(answer_of(&h, "TargetPortalGroupTag"), "1");
    assert_int_equal(get_be16(h.bhs + AT_TSIH), 0);
    assert_int_equal(login_status(&h, 0x04, TEXT("HeaderDigest=None\0ErrorRecoveryLevel=0")), 0);
    assert_int_equal(h.bhs[AT_FLAGS], 0x04);
    assert_string_equal(answer_of(&h, "HeaderDigest"), "None");
    assert_string_equal(answer_of(&h, "MaxRecvDataSegmentLength"), "262144");
    assert_int_equal(login_status(&h, 0x87, NULL, 0), 0);
    assert_int_equal(h.bhs[AT_FLAGS], 0x87);
    assert_null(answer_of(&h, "MaxRecvDataSegmentLength")); /* said once */
    ready(&h);
    struct iscsi_session_status status;
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
    assert_string_equal(status.initiator, INITIATOR);
    assert_string_equal(status.target, TARGET);
    host_free(&h);
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 0);
}

static void names_of_initiators_are_taken_as_they_come(void **state) {
    struct world *w = *state;
    struct host h;
    login_with(&h, w, 1, TEXT("InitiatorName=iqn.2008-11.org.linux-kvm:My VM\0TargetName=" TARGET));
    host_free(&h);
    host_connect(&h, w);
    assert_int_equal(login_status(&h, 0x87,
                                  TEXT("InitiatorName=IQN.2025-01.org.example:Somebody\0"
                                       "TargetName=" OTHER)),
                     0);
    host_free(&h);
}

static void login_in_pieces(void **state) {
    struct world *w = *state;
    struct host h;
    host_connect(&h, w);
    h.peer.read_bytes_max = 7;
    static const char text[] = NAMES "InitialR2T=No";
    send_login(&h, 0x44, text, 20);
    receive(&h, OP_LOGIN_RESPONSE);
    assert_int_equal(h.bhs[AT_FLAGS], 0x04);
    assert_int_equal(h.data_bytes, 0);
    assert_int_equal(login_status(&h, 0x87, text + 20, sizeof(text) - 20), 0);
    assert_string_equal(answer_of(&h, "InitialR2T"), "No");
    ready(&h);
    host_free(&h);
}

static void logins_that_are_refused(void **state) {
    struct world *w = *state;
#define CASE(flags, status, ...)                                                                   \
    { flags, status, __VA_ARGS__, sizeof(__VA_ARGS__) }
    static const struct {
        uint8_t flags;
        uint32_t status;
        const char *text;
        size_t length;
    } cases[] = {
        CASE(0x87, 0x0207, "TargetName=" TARGET),
        CASE(0x87, 0x0207, "InitiatorName=" INITIATOR),
        CASE(0x87, 0x0203, "InitiatorName=" INITIATOR "\0TargetName=iqn.2025-01.org.example:no"),
        CASE(0x87, 0x0202, "InitiatorName=" INITIATOR "\0TargetName=" OTHER),
        CASE(0x87, 0x0200, "InitiatorName=me\0TargetName=" TARGET),
        CASE(0x87, 0x0200, "InitiatorName=iqn.2025-01.a\tb\0TargetName=" TARGET),
        CASE(0x81, 0x0201, NAMES "AuthMethod=CHAP"),
        CASE(0x87, 0x0200, NAMES "InitialR2T=No\0InitialR2T=No"),
        CASE(0x87, 0x0200, NAMES "nonsense"),
        CASE(0x86, 0x0200, NAMES), /* next stage 2 does not exist */
        CASE(0x85, 0x0200, NAMES), /* from operational to operational */
        CASE(0x84, 0x0200, NAMES), /* backwards */
        CASE(0xc7, 0x0200, NAMES), /* both T and C */
        CASE(0x8f, 0x0200, NAMES), /* already in full feature phase */
        CASE(0x87, 0x0200, NAMES "TargetAlias=x"),
        CASE(0x87, 0x0200, NAMES "SessionType=Strange"),
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct host h;
        host_connect(&h, w);
        assert_int_equal(login_status(&h, cases[i].flags, cases[i].text, cases[i].length),
                         cases[i].status);
        assert_true(h.peer.closed);
        assert_non_null(strstr(w->event, "refused"));
        host_free(&h);
    }
    /* a session that does not exist; another version; something else than a login */
    struct host h;
    host_connect(&h, w);
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, 0x87};
    bhs[AT_LOGIN_VERSION_MIN] = 1;
    send_pdu(&h, bhs, TEXT(NAMES));
    receive(&h, OP_LOGIN_RESPONSE);
    assert_int_equal(get_be16(h.bhs + AT_LOGIN_STATUS), 0x0205);
    host_free(&h);
    host_connect(&h, w);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    assert_true(h.peer.closed);
    assert_int_equal(h.peer.out_bytes, 0);
    host_free(&h);
}

static void a_login_that_does_not_come(void **state) {
    struct world *w = *state;
    struct host hosts[ISCSI_LOGINS_MAX + 1];
    for (size_t i = 0; i < ISCSI_LOGINS_MAX + 1; i++) {
        host_connect(&hosts[i], w);
        fake_env_settle(&w->fake);
        assert_int_equal(hosts[0].peer.closed, i == ISCSI_LOGINS_MAX);
    }
    fake_env_advance(&w->fake, (ISCSI_LOGIN_S - 1) * NS_PER_S);
    assert_false(hosts[1].peer.closed);
    fake_env_advance(&w->fake, 2 * NS_PER_S);
    for (size_t i = 0; i < ISCSI_LOGINS_MAX + 1; i++) {
        assert_true(hosts[i].peer.closed);
        host_free(&hosts[i]);
    }
}

static void logging_in_again_takes_the_session_over(void **state) {
    struct world *w = *state;
    struct host a, b, c;
    login(&a, w);
    w->volume.hold = true;
    send_command(&a, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    login_with(&b, w, 2, TEXT(NAMES)); /* another ISID: beside it */
    assert_false(a.peer.closed);
    login_with(&c, w, 1, TEXT(NAMES));
    assert_true(a.peer.closed && !b.peer.closed);
    struct iscsi_session_status status[4];
    assert_int_equal(iscsi_session_list(w->server, status, 4), 2);
    assert_int_not_equal(status[0].tsih, status[1].tsih);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    host_free(&a);
    host_free(&b);
    host_free(&c);
}

static void sessions_are_limited(void **state) {
    struct world *w = *state;
    static struct host hosts[ISCSI_SESSIONS_PER_INITIATOR_MAX + 1];
    for (uint32_t i = 0; i < ISCSI_SESSIONS_PER_INITIATOR_MAX; i++) {
        login_with(&hosts[i], w, (uint8_t)(10 + i), TEXT(NAMES));
    }
    struct host *last = &hosts[ISCSI_SESSIONS_PER_INITIATOR_MAX];
    host_connect(last, w);
    assert_int_equal(login_status(last, 0x87, TEXT(NAMES)), 0x0302);
    for (uint32_t i = 0; i <= ISCSI_SESSIONS_PER_INITIATOR_MAX; i++) {
        host_free(&hosts[i]);
    }
}

static void discovery(void **state) {
    struct world *w = *state;
    struct host h;
    host_connect(&h, w);
    assert_int_equal(
        login_status(&h, 0x87, TEXT("InitiatorName=" INITIATOR "\0SessionType=Discovery")), 0);
    uint8_t bhs[BHS_BYTES] = {OP_TEXT, BHS_FINAL};
    put_be32(bhs + AT_ITT, 5);
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    put_be32(bhs + AT_CMDSN, h.cmd_sn++);
    send_pdu(&h, bhs, TEXT("SendTargets=All"));
    receive(&h, OP_TEXT_RESPONSE);
    assert_int_equal(h.bhs[AT_FLAGS], BHS_FINAL);
    static const char expected[] = "TargetName=" TARGET "\0TargetAddress=192.0.2.1:3260,1";
    assert_int_equal(h.data_bytes, sizeof(expected)); /* the other one is not for it */
    assert_memory_equal(h.data, expected, sizeof(expected));
    /* no commands here */
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    receive(&h, OP_REJECT);
    uint8_t out[BHS_BYTES] = {OP_LOGOUT | BHS_IMMEDIATE, BHS_FINAL};
    put_be32(out + AT_CMDSN, h.cmd_sn);
    send_pdu(&h, out, NULL, 0);
    receive(&h, OP_LOGOUT_RESPONSE);
    assert_int_equal(h.bhs[AT_RESPONSE], 0);
    assert_true(h.peer.closed);
    host_free(&h);
}

/* Many targets, an initiator that takes 512 bytes at once: the answer comes in pieces. */
static void a_long_list_of_targets(void **state) {
    struct world *w = *state;
    char name[64];
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "iqn.2025-01.org.example:many%d", i);
        assert_int_equal(iscsi_target_add(w->server, name, w->scsi, NULL, 0, NULL), OK);
    }
    struct host h;
    host_connect(&h, w);
    assert_int_equal(login_status(&h, 0x87,
                                  TEXT("InitiatorName=" INITIATOR "\0SessionType=Discovery\0"
                                       "MaxRecvDataSegmentLength=512")),
                     0);
    uint32_t ttt = ISCSI_TAG_NONE, total = 0, pieces = 0;
    static char all[16384];
    do {
        uint8_t bhs[BHS_BYTES] = {OP_TEXT, BHS_FINAL};
        put_be32(bhs + AT_ITT, 5);
        put_be32(bhs + AT_TTT, ttt);
        put_be32(bhs + AT_CMDSN, h.cmd_sn++);
        if (pieces == 0) {
            send_pdu(&h, bhs, TEXT("SendTargets=All"));
        } else {
            send_pdu(&h, bhs, NULL, 0);
        }
        receive(&h, OP_TEXT_RESPONSE);
        memcpy(all + total, h.data, h.data_bytes);
        total += h.data_bytes;
        ttt = get_be32(h.bhs + AT_TTT);
        pieces++;
        assert_int_equal((h.bhs[AT_FLAGS] & TEXT_CONTINUE) != 0, ttt != ISCSI_TAG_NONE);
    } while (ttt != ISCSI_TAG_NONE);
    assert_true(pieces > 4);
    uint32_t names_found = 0;
    for (uint32_t at = 0; at < total; at += (uint32_t)strlen(all + at) + 1) {
        names_found += strncmp(all + at, "TargetName=", 11) == 0;
    }
    assert_int_equal(names_found, 41);
    host_free(&h);
}

/* ---- tests: data ---- */

static void reads_in_bursts(void **state) {
    struct world *w = *state;
    struct host h;
    login_with(&h, w, 1,
               TEXT(NAMES "MaxRecvDataSegmentLength=4096\0MaxBurstLength=10240\0"
                          "HeaderDigest=CRC32C\0DataDigest=CRC32C"));
    h.digests = true;
    ready(&h);
    fill(w->volume.data, 1 << 20, 9);
    uint32_t itt = send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 3, 0, 0, 50, 0), 25600, NULL, 0);
    uint32_t at = 0, in_burst = 0;
    for (uint32_t data_sn = 0; at < 25600; data_sn++) {
        receive(&h, OP_DATA_IN);
        assert_int_equal(get_be32(h.bhs + AT_ITT), itt);
        assert_int_equal(get_be32(h.bhs + AT_DATA_SN), data_sn);
        assert_int_equal(get_be32(h.bhs + AT_BUFFER_OFFSET), at);
        assert_true(h.data_bytes <= 4096);
        assert_memory_equal(h.data, w->volume.data + 3 * 512 + at, h.data_bytes);
        at += h.data_bytes;
        in_burst += h.data_bytes;
        bool ends = in_burst == 10240 || at == 25600;
        assert_int_equal((h.bhs[AT_FLAGS] & BHS_FINAL) != 0, ends);
        assert_int_equal((h.bhs[AT_FLAGS] & DATA_IN_STATUS) != 0, at == 25600);
        in_burst = ends ? 0 : in_burst;
    }
    assert_false(try_receive(&h));
    host_free(&h);
}

static void writes_in_every_way(void **state) {
    struct world *w = *state;
    static uint8_t data[64 << 10];
    fill(data, sizeof(data), 3);
    for (uint32_t fragment = 0; fragment < 3; fragment++) {
        struct host h;
        login_with(&h, w, 1,
                   TEXT(NAMES "InitialR2T=No\0FirstBurstLength=8192\0MaxBurstLength=16384\0"
                              "MaxOutstandingR2T=2\0DataDigest=CRC32C\0HeaderDigest=CRC32C"));
        h.digests = true;
        h.peer.read_bytes_max = fragment == 0 ? 0 : fragment * 37;
        ready(&h);
        memset(w->volume.data, 0, sizeof(data));
        /* 4096 immediate, 4096 unsolicited, the rest asked for, two sequences at a time */
        uint32_t itt = send_command(&h, WRITES_MORE, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 128, 0),
                                    sizeof(data), data, 4096);
        assert_false(try_receive(&h));
        send_data_out(&h, itt, ISCSI_TAG_NONE, 0, 4096, data + 4096, 4096, true);
        uint32_t next = 8192;
        for (uint32_t r2t_sn = 0; next < sizeof(data);) {
            uint32_t ttt[2], offset[2], length[2], count = 0;
            while (try_receive(&h)) {
                assert_int_equal(bhs_opcode(h.bhs), OP_R2T);
                assert_int_equal(get_be32(h.bhs + AT_DATA_SN), r2t_sn++);
                ttt[count] = get_be32(h.bhs + AT_TTT);
                offset[count] = get_be32(h.bhs + AT_BUFFER_OFFSET);
                length[count] = get_be32(h.bhs + AT_R2T_LENGTH);
                assert_int_equal(offset[count], next);
                assert_true(length[count] <= 16384);
                next += length[count];
                count++;
                assert_true(count <= 2);
            }
            assert_true(count > 0);
            for (uint32_t i = 0; i < count; i++) {
                uint32_t half = length[i] / 2;
                send_data_out(&h, itt, ttt[i], 0, offset[i], data + offset[i], half, false);
                send_data_out(&h, itt, ttt[i], 1, offset[i] + half, data + offset[i] + half,
                              length[i] - half, true);
            }
        }
        receive(&h, OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
        assert_int_equal(h.bhs[AT_FLAGS], BHS_FINAL);
        assert_memory_equal(w->volume.data, data, sizeof(data));
        host_free(&h);
    }
}

static void residuals(void **state) {
    struct world *w = *state;
    struct host h;
    uint8_t data[4096];
    fill(data, sizeof(data), 4);
    login(&h, w);
    static const struct {
        uint8_t flags, opcode;
        uint32_t expected, blocks, residual_flag, residual, moved;
    } cases[] = {
        {READS, 0x28, 1024, 2, 0, 0, 1024},
        {READS, 0x28, 2000, 2, RESIDUAL_UNDERFLOW, 976, 1024},
        {READS, 0x28, 700, 2, RESIDUAL_OVERFLOW, 324, 700},
        {READS, 0x28, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {NEITHER, 0x28, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {WRITES, 0x2a, 1024, 2, 0, 0, 1024},
        {WRITES, 0x2a, 2000, 2, RESIDUAL_UNDERFLOW, 976, 1024},
        {WRITES, 0x2a, 700, 2, RESIDUAL_OVERFLOW, 324, 512},
        {WRITES, 0x2a, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {READS, 0x00, 512, 0, RESIDUAL_UNDERFLOW, 512, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(w->volume.data, 0x77, 4096);
        bool writes = cases[i].opcode == 0x2a;
        send_command(&h, cases[i].flags,
                     CDB(cases[i].opcode, 0, 0, 0, 0, 0, 0, 0, (uint8_t)cases[i].blocks, 0),
                     cases[i].expected, data, writes ? cases[i].expected : 0);
        assert_true(try_receive(&h));
        bool data_in = !writes && cases[i].moved != 0;
        assert_int_equal(bhs_opcode(h.bhs), data_in ? OP_DATA_IN : OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
        assert_int_equal(h.bhs[AT_FLAGS] & 6, cases[i].residual_flag);
        assert_int_equal(get_be32(h.bhs + AT_RESIDUAL), cases[i].residual);
        if (data_in) {
            assert_int_equal(h.data_bytes, cases[i].moved);
        }
        if (writes) {
            assert_memory_equal(w->volume.data, data, cases[i].moved);
            assert_int_equal(w->volume.data[cases[i].moved], 0x77);
        }
    }
    host_free(&h);
}

static void data_that_do_not_come_as_agreed(void **state) {
    struct world *w = *state;
    static uint8_t data[128 << 10];
    struct host h;
    login_with(&h, w, 1, TEXT(NAMES "MaxBurstLength=65536")); /* InitialR2T=Yes */
    ready(&h);
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 0, 0, 0, 128};
    /* unsolicited although not allowed; what follows for it is ignored */
    uint32_t itt = send_command(&h, WRITES_MORE, write, 10, 65536, data, 512);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(get_be16(h.data + 2 + 12), 0x0c0c);
    send_data_out(&h, itt, ISCSI_TAG_NONE, 0, 512, data, 512, true);
    assert_false(try_receive(&h));
    static const struct {
        uint32_t data_sn, offset, bytes;
        bool final;
    } bad[] = {
        {1, 0, 512, false},
        {0, 512, 512, false},
        {0, 0, 65540, true},
        {0, 0, 512, true},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        itt = send_command(&h, WRITES, write, 10, 65536, NULL, 0);
        receive(&h, OP_R2T);
        assert_int_equal(get_be32(h.bhs + AT_R2T_LENGTH), 65536);
        send_data_out(&h, itt, get_be32(h.bhs + AT_TTT), bad[i].data_sn, bad[i].offset, data,
                      bad[i].bytes, bad[i].final);
        receive(&h, OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_CHECK_CONDITION);
        assert_int_equal(h.data[2 + 2], 0x0b);
    }
    assert_int_equal(w->volume.counts[VOLUME_WRITE], 0);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
    host_free(&h);
}

static void digest_errors_end_the_connection(void **state) {
    struct world *w = *state;
    for (int kind = 0; kind < 2; kind++) {
        struct host h, other;
        login_with(&other, w, 2, TEXT(NAMES));
        login_with(&h, w, 1, TEXT(NAMES "HeaderDigest=CRC32C\0DataDigest=CRC32C"));
        h.digests = true;
        ready(&h);
        uint8_t pdu[BHS_BYTES + 4 + 512 + 4] = {OP_SCSI_COMMAND, WRITES};
        put_be24(pdu + AT_DATA_LENGTH, 512);
        put_be32(pdu + AT_ITT, 99);
        put_be32(pdu + AT_COMMAND_LENGTH, 512);
        put_be32(pdu + AT_CMDSN, h.cmd_sn);
        pdu[AT_CDB] = 0x2a;
        pdu[AT_CDB + 8] = 1;
        put_digest(pdu + BHS_BYTES, crc32c(pdu, BHS_BYTES) ^ (kind == 0));
        put_digest(pdu + BHS_BYTES + 4 + 512, crc32c(pdu + BHS_BYTES + 4, 512) ^ (kind == 1));
        fake_peer_feed(&h.peer, pdu, sizeof(pdu));
        fake_env_settle(&w->fake);
        assert_true(h.peer.closed && !other.peer.closed);
        assert_int_equal(w->volume.counts[VOLUME_WRITE], 0);
        host_free(&h);
        host_free(&other);
    }
}

/* ---- tests: the window ---- */

static void the_window_holds(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    for (uint32_t i = 0; i < ISCSI_COMMANDS_MAX; i++) {
        send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    }
    assert_int_equal(w->volume.counts[VOLUME_READ], 0);
    struct iscsi_session_status status;
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
    assert_int_equal(status.commands, ISCSI_COMMANDS_MAX);
    /* beyond the window, and behind it: ignored */
    uint32_t next = h.cmd_sn;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    h.cmd_sn = next - 5;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < ISCSI_COMMANDS_MAX; i++) {
        receive(&h, OP_DATA_IN);
        assert_int_equal(get_be32(h.bhs + AT_EXP_CMDSN), next);
    }
    assert_int_equal(get_be32(h.bhs + AT_MAX_CMDSN), next + ISCSI_COMMANDS_MAX - 1);
    assert_false(try_receive(&h));
    /* one left out: that connection ends */
    h.cmd_sn = next + 1;
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    assert_true(h.peer.closed);
    host_free(&h);
}

static void immediate_commands_and_duplicates(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    for (uint32_t i = 0; i <= ISCSI_IMMEDIATE_MAX; i++) {
        uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND | BHS_IMMEDIATE, READS};
        put_be32(bhs + AT_ITT, 1000 + i);
        put_be32(bhs + AT_COMMAND_LENGTH, 512);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        bhs[AT_CDB] = 0x28;
        bhs[AT_CDB + 8] = 1;
        send_pdu(&h, bhs, NULL, 0);
    }
    receive(&h, OP_REJECT);
    assert_int_equal(h.bhs[AT_RESPONSE], REJECT_TOO_MANY_IMMEDIATE);
    h.itt = 1000;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    receive(&h, OP_REJECT);
    assert_int_equal(h.bhs[AT_RESPONSE], REJECT_TASK_IN_PROGRESS);
    assert_int_equal(h.data_bytes, BHS_BYTES);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < ISCSI_IMMEDIATE_MAX; i++) {
        receive(&h, OP_DATA_IN);
    }
    assert_false(try_receive(&h));
    host_free(&h);
}

/* An initiator that takes nothing and asks for ever more holds up only itself. */
static void answers_do_not_pile_up(void **state) {
    struct world *w = *state;
    struct host h, other;
    login(&h, w);
    login_with(&other, w, 2, TEXT(NAMES));
    h.peer.stalled = true;
    uint64_t before = mem_in_use_bytes();
    for (uint32_t i = 0; i < 5 * ISCSI_TX_QUEUE_MAX; i++) {
        uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
        put_be32(bhs + AT_ITT, 7);
        put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        send_pdu(&h, bhs, "ping", 4);
    }
    assert_true(mem_in_use_bytes() - before < 2000 * (sizeof(void *) * 40) + (1 << 20));
    ready(&other);
    fake_peer_unstall(&h.peer);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < 5 * ISCSI_TX_QUEUE_MAX; i++) {
        receive(&h, OP_NOP_IN);
        assert_memory_equal(h.data, "ping", 4);
    }
    host_free(&h);
    host_free(&other);
}

static void commands_wait_for_memory(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    /* 16 MiB each: four fit */
    for (uint32_t i = 0; i < 6; i++) {
        send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0x80, 0, 0), 16 << 20, NULL, 0);
    }
    /* a write whose data are on their way cannot wait */
    uint8_t data[512] = {0};
    send_command(&h, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, data, 512);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(h.bhs[AT_STATUS], SCSI_TASK_SET_FULL);
    w->volume.hold = false;
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    uint32_t finished = 0;
    while (try_receive(&h)) {
        assert_int_equal(bhs_opcode(h.bhs), OP_DATA_IN);
        finished += h.bhs[AT_FLAGS] & DATA_IN_STATUS;
    }
    assert_int_equal(finished, 6);
    host_free(&h);
}

/* ---- tests: task management ---- */

static void aborts_are_answered_at_once(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    uint8_t data[1024] = {1};
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 0, 0, 0, 2};
    uint32_t cmd_sn = h.cmd_sn;
    uint32_t itt = send_command(&h, WRITES, write, 10, 1024, data, 1024);
    assert_int_equal(send_management(&h, 1, itt, cmd_sn), 0);
    /* again: it has ended; one that has not been sent yet: there is none */
    assert_int_equal(send_management(&h, 1, itt, cmd_sn), 0);
    assert_int_equal(send_management(&h, 1, 4711, h.cmd_sn + 3), 1);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_false(try_receive(&h)); /* no answer to the write */
    /* waiting for data: dropped, and the data that come are ignored */
    itt = send_command(&h, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 4, 0, 0), 1024 * 512, NULL, 0);
    receive(&h, OP_R2T);
    uint32_t ttt = get_be32(h.bhs + AT_TTT);
    assert_int_equal(send_management(&h, 1, itt, h.cmd_sn - 1), 0);
    send_data_out(&h, itt, ttt, 0, 0, data, 1024, false);
    assert_false(try_receive(&h));
    assert_int_equal(send_management(&h, 8, itt, 0), 4); /* TASK REASSIGN */
    assert_int_equal(send_management(&h, 3, itt, 0), 5); /* CLEAR ACA */
    assert_int_equal(send_management(&h, 77, itt, 0), 255);
    host_free(&h);
}

static void a_reset_reaches_all_sessions(void **state) {
    struct world *w = *state;
    struct host a, b;
    login(&a, w);
    login_with(&b, w, 2, TEXT(NAMES));
    ready(&b);
    w->volume.hold = true;
    const uint8_t read[10] = {0x28, 0, 0, 0, 0, 0, 0, 0, 1};
    send_command(&a, READS, read, 10, 512, NULL, 0);
    send_command(&b, READS, read, 10, 512, NULL, 0);
    assert_int_equal(send_management(&a, 5, ISCSI_TAG_NONE, 0), 0);
    w->volume.hold = false;
    ready(&a); /* the attention, then good */
    ready(&b);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_false(try_receive(&a) || try_receive(&b));
    /* cold: everybody has to come again */
    assert_int_equal(send_management(&a, 7, ISCSI_TAG_NONE, 0), 0);
    assert_true(a.peer.closed && b.peer.closed);
    host_free(&a);
    host_free(&b);
}

/* The connection goes in the middle of everything; the volume answers later. */
static void a_cut_at_any_byte(void **state) {
    struct world *w = *state;
    static uint8_t data[8192];
    for (uint32_t cut = 0; cut < 3 * BHS_BYTES + 8192; cut += 41) {
        struct host h;
        login(&h, w);
        w->volume.hold = true;
        uint8_t pdus[3 * BHS_BYTES + 8192] = {OP_SCSI_COMMAND, READS};
        put_be32(pdus + AT_ITT, 50);
        put_be32(pdus + AT_COMMAND_LENGTH, 512);
        put_be32(pdus + AT_CMDSN, h.cmd_sn);
        pdus[AT_CDB] = 0x28;
        pdus[AT_CDB + 8] = 1;
        uint8_t *write = pdus + BHS_BYTES;
        write[0] = OP_SCSI_COMMAND;
        write[1] = WRITES;
        put_be24(write + AT_DATA_LENGTH, 8192);
        put_be32(write + AT_ITT, 51);
        put_be32(write + AT_COMMAND_LENGTH, 16384);
        put_be32(write + AT_CMDSN, h.cmd_sn + 1);
        write[AT_CDB] = 0x2a;
        write[AT_CDB + 8] = 32;
        memcpy(write + BHS_BYTES, data, 8192);
        uint8_t *management = write + BHS_BYTES + 8192;
        management[0] = OP_TASK_MANAGEMENT | BHS_IMMEDIATE;
        management[1] = 0x85;
        put_be32(management + AT_CMDSN, h.cmd_sn + 2);
        fake_peer_feed(&h.peer, pdus, cut);
        fake_env_settle(&w->fake);
        h.peer.out_bytes = 0;
        host_free(&h);
        memory_volume_let_go(&w->volume);
        fake_env_settle(&w->fake);
        assert_int_equal(scsi_target_outstanding(w->scsi), 0);
    }
}

/* ---- tests: life and end ---- */

static void keep_alive(void **state) {
    struct world *w = *state;
    struct host h, dead;
    login(&h, w);
    login_with(&dead, w, 2, TEXT(NAMES));
    for (int round = 0; round < 3; round++) {
        fake_env_advance(&w->fake, (ISCSI_KEEPALIVE_S + 1) * NS_PER_S);
        assert_true(try_receive(&h));
        assert_int_equal(bhs_opcode(h.bhs), OP_NOP_IN);
        h.exp_stat_sn--; /* it does not count */
        uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        memcpy(bhs + AT_TTT, h.bhs + AT_TTT, 4);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        send_pdu(&h, bhs, NULL, 0);
        assert_int_equal(dead.peer.closed, round >= 1);
        fake_env_advance(&w->fake, NS_PER_S);
    }
    assert_false(h.peer.closed);
    assert_true(dead.peer.closed);
    host_free(&h);
    host_free(&dead);
}

static void a_stop_lets_commands_finish(void **state) {
    struct world *w = *state;
    struct host idle, busy, stuck;
    login(&busy, w);
    login_with(&idle, w, 2, TEXT(NAMES));
    login_with(&stuck, w, 3, TEXT(NAMES));
    ready(&stuck);
    w->volume.hold = true;
    send_command(&busy, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    iscsi_server_stop(w->server, w->fake.now_ns + 5 * NS_PER_S, on_stopped, w);
    fake_env_settle(&w->fake);
    receive(&idle, OP_ASYNC);
    assert_int_equal(idle.bhs[AT_ASYNC_EVENT], 3);
    receive(&stuck, OP_ASYNC);
    assert_true(idle.peer.closed && !busy.peer.closed && !w->stopped);
    send_command(&busy, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    receive(&busy, OP_DATA_IN);
    receive(&busy, OP_ASYNC);
    assert_true(busy.peer.closed && w->stopped);
    host_free(&idle);
    host_free(&busy);
    host_free(&stuck);
}

static void a_stop_does_not_wait_for_ever(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    iscsi_server_stop(w->server, w->fake.now_ns + 5 * NS_PER_S, on_stopped, w);
    fake_env_advance(&w->fake, 4 * NS_PER_S);
    assert_false(w->stopped);
    fake_env_advance(&w->fake, 2 * NS_PER_S);
    assert_true(w->stopped && h.peer.closed);
    assert_int_equal(scsi_target_outstanding(w->scsi), 1);
    host_free(&h);
}

static void targets_and_portals_come_and_go(void **state) {
    struct world *w = *state;
    struct errmsg message = {0};
    struct host h;
    login(&h, w);
    assert_int_equal(iscsi_portal_add(w->server, PORTAL, &message), ERR_BUSY);
    assert_int_equal(iscsi_portal_add(w->server, "192.0.2.2:3260", NULL), OK);
    assert_string_equal(iscsi_portal_address(w->server, 1), "192.0.2.2:3260");
    assert_null(iscsi_portal_address(w->server, 2));
    assert_int_equal(iscsi_portal_remove(w->server, PORTAL, NULL), OK);
    assert_int_equal(iscsi_portal_remove(w->server, PORTAL, NULL), ERR_NOT_FOUND);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, 0, NULL), ERR_EXISTS);
    assert_int_equal(iscsi_target_add(w->server, "One", w->scsi, NULL, 0, NULL), ERR_INVALID);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(iscsi_target_remove(w->server, OTHER, NULL), OK);
    assert_false(h.peer.closed);
    assert_int_equal(iscsi_target_remove(w->server, TARGET, NULL), OK);
    fake_env_settle(&w->fake);
    assert_true(h.peer.closed);
    assert_int_equal(iscsi_target_remove(w->server, TARGET, NULL), ERR_NOT_FOUND);
    host_free(&h);
}

#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(text_pairs),
        cmocka_unit_test(every_key_has_its_rule),
        cmocka_unit_test(headers_are_checked),
        IN_WORLD(login_stages),
        IN_WORLD(names_of_initiators_are_taken_as_they_come),
        IN_WORLD(login_in_pieces),
        IN_WORLD(logins_that_are_refused),
        IN_WORLD(a_login_that_does_not_come),
        IN_WORLD(logging_in_again_takes_the_session_over),
        IN_WORLD(sessions_are_limited),
        IN_WORLD(discovery),
        IN_WORLD(a_long_list_of_targets),
        IN_WORLD(reads_in_bursts),
        IN_WORLD(writes_in_every_way),
        IN_WORLD(residuals),
        IN_WORLD(data_that_do_not_come_as_agreed),
        IN_WORLD(digest_errors_end_the_connection),
        IN_WORLD(the_window_holds),
        IN_WORLD(immediate_commands_and_duplicates),
        IN_WORLD(answers_do_not_pile_up),
        IN_WORLD(commands_wait_for_memory),
        IN_WORLD(aborts_are_answered_at_once),
        IN_WORLD(a_reset_reaches_all_sessions),
        IN_WORLD(a_cut_at_any_byte),
        IN_WORLD(keep_alive),
        IN_WORLD(a_stop_lets_commands_finish),
        IN_WORLD(a_stop_does_not_wait_for_ever),
        IN_WORLD(targets_and_portals_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
