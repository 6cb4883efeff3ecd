// SPDX-License-Identifier: MPL-2.0
/* Names, text keys, logins, discovery: everything up to the full feature phase, its limits, and the
 * ways in and out of a session. Access lists and CHAP are test_iscsi_access.c's. */
#include "iscsi_host.h"

enum { LOGIN_SEGMENT = 8192 };

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

struct key_case {
    const char *offer, *answer; /* NULL: nothing is answered */
};

/* One offer each, in a negotiation of its own. */
static void negotiate(enum keys_stage stage, const char *before, const struct key_case *cases,
                      size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct keys_negotiation keys;
        uint8_t bytes[512];
        struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
        keys_init(&keys);
        if (before != NULL) {
            assert_int_equal(keys_negotiate(&keys, KEYS_OPERATIONAL, (const uint8_t *)before,
                                            strlen(before) + 1, &answer, NULL, NULL, NULL),
                             OK);
        }
        bool send_targets = false;
        struct text_pair pair;
        assert_int_equal(keys_negotiate(&keys, stage, (const uint8_t *)cases[i].offer,
                                        strlen(cases[i].offer) + 1, &answer, &send_targets, &pair,
                                        NULL),
                         OK);
        if (cases[i].answer == NULL) {
            assert_int_equal(answer.length, 0);
            continue;
        }
        assert_int_equal(answer.length, strlen(cases[i].answer) + 1);
        assert_string_equal((char *)bytes, cases[i].answer);
    }
}
#define NEGOTIATE(stage, before, cases)                                                            \
    negotiate(stage, before, cases, sizeof(cases) / sizeof((cases)[0]))

/* Long because it is a table. */
static void every_key_has_its_rule(void **state) {
    (void)state;
    static const struct key_case operational[] = {
        {"HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"},
        {"HeaderDigest=None,CRC32C", "HeaderDigest=None"},
        {"DataDigest=MD5,CRC32C", "DataDigest=CRC32C"},
        {"DataDigest=MD5", "DataDigest=Reject"},
        {"DataDigest=", "DataDigest=Reject"},
        {"DataDigest=CRC32C ", "DataDigest=Reject"},
        {"DataDigest=crc32c", "DataDigest=Reject"},
        {"MaxConnections=1", "MaxConnections=1"},
        {"MaxConnections=65535", "MaxConnections=1"},
        {"MaxConnections=0", "MaxConnections=Reject"},
        {"MaxConnections=65536", "MaxConnections=Reject"},
        {"InitialR2T=Yes", "InitialR2T=Yes"},
        {"InitialR2T=No", "InitialR2T=No"},
        {"InitialR2T=yes", "InitialR2T=Reject"},
        {"ImmediateData=No", "ImmediateData=No"},
        {"ImmediateData=Yes", "ImmediateData=Yes"},
        {"ImmediateData=maybe", "ImmediateData=Reject"},
        {"MaxRecvDataSegmentLength=512", NULL},
        {"MaxRecvDataSegmentLength=16777215", NULL},
        {"MaxRecvDataSegmentLength=511", "MaxRecvDataSegmentLength=Reject"},
        {"MaxRecvDataSegmentLength=16777216", "MaxRecvDataSegmentLength=Reject"},
        {"MaxBurstLength=512", "MaxBurstLength=512"},
        {"MaxBurstLength=0x400", "MaxBurstLength=1024"},
        {"MaxBurstLength=16777215", "MaxBurstLength=1048576"},
        {"MaxBurstLength=511", "MaxBurstLength=Reject"},
        {"MaxBurstLength=16777216", "MaxBurstLength=Reject"},
        {"MaxBurstLength=4294967296", "MaxBurstLength=Reject"},
        {"MaxBurstLength=1K", "MaxBurstLength=Reject"},
        {"MaxBurstLength=-1", "MaxBurstLength=Reject"},
        {"MaxBurstLength=", "MaxBurstLength=Reject"},
        {"FirstBurstLength=512", "FirstBurstLength=512"},
        {"FirstBurstLength=65536", "FirstBurstLength=65536"},
        {"FirstBurstLength=16777215", "FirstBurstLength=262144"},
        {"FirstBurstLength=0", "FirstBurstLength=Reject"},
        {"DefaultTime2Wait=5", "DefaultTime2Wait=5"},
        {"DefaultTime2Wait=0", "DefaultTime2Wait=2"},
        {"DefaultTime2Wait=3600", "DefaultTime2Wait=3600"},
        {"DefaultTime2Wait=3601", "DefaultTime2Wait=Reject"},
        {"DefaultTime2Retain=0", "DefaultTime2Retain=0"},
        {"DefaultTime2Retain=3600", "DefaultTime2Retain=20"},
        {"DefaultTime2Retain=3601", "DefaultTime2Retain=Reject"},
        {"MaxOutstandingR2T=1", "MaxOutstandingR2T=1"},
        {"MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"},
        {"MaxOutstandingR2T=0", "MaxOutstandingR2T=Reject"},
        {"MaxOutstandingR2T=65536", "MaxOutstandingR2T=Reject"},
        {"DataPDUInOrder=No", "DataPDUInOrder=Yes"},
        {"DataSequenceInOrder=No", "DataSequenceInOrder=Yes"},
        {"ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"},
        {"ErrorRecoveryLevel=3", "ErrorRecoveryLevel=Reject"},
        {"IFMarker=Yes", "IFMarker=No"},
        {"OFMarker=No", "OFMarker=No"},
        {"IFMarkInt=2048~8192", "IFMarkInt=Irrelevant"},
        {"OFMarkInt=2048~8192", "OFMarkInt=Irrelevant"},
        {"TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"},
        {"TaskReporting=FastAbort", "TaskReporting=Reject"},
        {"iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"},
        {"iSCSIProtocolLevel=0", "iSCSIProtocolLevel=0"},
        {"iSCSIProtocolLevel=32", "iSCSIProtocolLevel=Reject"},
        {"InitiatorAlias=a host", NULL},
        {"X-org.example.colour=blue", "X-org.example.colour=NotUnderstood"},
        {"maxburstlength=1024", "maxburstlength=NotUnderstood"}, /* case counts */
        /* answers to what we have declared, from initiators that answer everything */
        {"MaxRecvDataSegmentLength=NotUnderstood", NULL},
        {"HeaderDigest=Reject", NULL},
        {"MaxBurstLength=Irrelevant", NULL},
        /* the wrong stage */
        {"AuthMethod=None", "AuthMethod=Reject"},
        {"CHAP_A=5", "CHAP_A=Reject"},
        {"SendTargets=All", "SendTargets=Reject"},
    };
    NEGOTIATE(KEYS_OPERATIONAL, NULL, operational);
    static const struct key_case security[] = {
        {"AuthMethod=None", NULL}, /* answered by who knows the access lists */
        {"CHAP_A=5", NULL},
        {"HeaderDigest=None", "HeaderDigest=Reject"},
        {"InitialR2T=No", "InitialR2T=Reject"},
        {"MaxRecvDataSegmentLength=8192", NULL},
        {"InitiatorAlias=a host", NULL},
        {"X-what=ever", "X-what=NotUnderstood"},
    };
    NEGOTIATE(KEYS_SECURITY, NULL, security);
    static const struct key_case full[] = {
        {"SendTargets=All", NULL},
        {"MaxRecvDataSegmentLength=8192", NULL},
        {"InitiatorAlias=another", NULL},
        {"HeaderDigest=CRC32C", "HeaderDigest=Reject"},
        {"MaxBurstLength=1024", "MaxBurstLength=Reject"},
        {"InitiatorName=iqn.2025-01.a:b", "InitiatorName=Reject"},
        {"SessionType=Normal", "SessionType=Reject"},
    };
    NEGOTIATE(KEYS_FULL_FEATURE, NULL, full);
    static const struct key_case in_discovery[] = {
        {"MaxConnections=1", "MaxConnections=Irrelevant"},
        {"InitialR2T=No", "InitialR2T=Irrelevant"},
        {"ImmediateData=Yes", "ImmediateData=Irrelevant"},
        {"MaxBurstLength=1", "MaxBurstLength=Irrelevant"},
        {"FirstBurstLength=512", "FirstBurstLength=Irrelevant"},
        {"MaxOutstandingR2T=1", "MaxOutstandingR2T=Irrelevant"},
        {"DataPDUInOrder=Yes", "DataPDUInOrder=Irrelevant"},
        {"DataSequenceInOrder=Yes", "DataSequenceInOrder=Irrelevant"},
        {"HeaderDigest=CRC32C", "HeaderDigest=CRC32C"},
        {"DefaultTime2Wait=3", "DefaultTime2Wait=3"},
        {"ErrorRecoveryLevel=1", "ErrorRecoveryLevel=0"},
    };
    NEGOTIATE(KEYS_OPERATIONAL, "SessionType=Discovery", in_discovery);
}

/* What ends a negotiation. */
static void keys_that_break_it(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        {TEXT("InitialR2T=No\0InitialR2T=No")}, /* twice */
        {TEXT("InitialR2T=No\0MaxBurstLength=512\0InitialR2T=Yes")},
        {TEXT("InitiatorName=iqn.2025-01.a:b\0InitiatorName=iqn.2025-01.a:b")},
        {TEXT("TargetAlias=x")}, /* the target's to say */
        {TEXT("TargetAddress=192.0.2.1")},
        {TEXT("TargetPortalGroupTag=1")},
        {TEXT("SessionType=Other")},
        {TEXT("InitialR2T")},
        {TEXT("=Yes")},
        {TEXT("Initial R2T=Yes")},
        {"InitialR2T=Yes", 14}, /* no zero at the end */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct keys_negotiation keys;
        uint8_t bytes[512];
        struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
        struct errmsg message = {0};
        keys_init(&keys);
        assert_int_equal(keys_negotiate(&keys, KEYS_OPERATIONAL, (const uint8_t *)cases[i].text,
                                        cases[i].length, &answer, NULL, NULL, &message),
                         ERR_PROTOCOL);
        assert_true(message.text[0] != 0);
    }
    /* FirstBurstLength never exceeds MaxBurstLength in the end */
    struct keys_negotiation keys;
    uint8_t bytes[512];
    struct text_buffer answer = {bytes, 0, sizeof(bytes), false};
    static const uint8_t bursts[] = "MaxBurstLength=1024\0FirstBurstLength=65536";
    keys_init(&keys);
    assert_int_equal(
        keys_negotiate(&keys, KEYS_OPERATIONAL, bursts, sizeof(bursts), &answer, NULL, NULL, NULL),
        OK);
    keys_settle(&keys);
    assert_int_equal(keys.parameters.first_burst_bytes, 1024);
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

/* Connections that say nothing: those of one address push out each other only; all together they
 * have a limit, too; none stays for long, and none holds more than is stated. */
static void logins_that_do_not_come(void **state) {
    struct world *w = *state;
    static struct host hosts[ISCSI_LOGINS_MAX + 1];
    static char from[ISCSI_LOGINS_MAX + 1][32];
    struct host other, session;
    login(&session, w);
    host_connect_from(&other, w, "198.51.100.1:1000");
    uint64_t before = mem_in_use_bytes();
    for (size_t i = 0; i < ISCSI_LOGINS_PER_ADDRESS_MAX; i++) {
        host_connect(&hosts[i], w);
        static const uint8_t text[LOGIN_SEGMENT];
        send_login(&hosts[i], 0x44, (const char *)text, sizeof(text)); /* more is to come */
        receive(&hosts[i], OP_LOGIN_RESPONSE);
    }
    /* the test's own: what a host gathers, and its stream's bytes on the way */
    uint64_t of_test = ISCSI_LOGINS_PER_ADDRESS_MAX * (DATA_MAX + 2ull * LOGIN_SEGMENT + 2048);
    assert_true(mem_in_use_bytes() - before - of_test <
                (uint64_t)ISCSI_LOGINS_PER_ADDRESS_MAX * ISCSI_LOGIN_MEMORY_BYTES);
    struct host late;
    host_connect(&late, w);
    fake_env_settle(&w->fake);
    assert_true(hosts[0].peer.closed && !hosts[1].peer.closed && !other.peer.closed);
    host_free(&late);
    fake_env_advance(&w->fake, (ISCSI_LOGIN_S - 1) * NS_PER_S);
    assert_false(hosts[1].peer.closed || other.peer.closed);
    fake_env_advance(&w->fake, 2 * NS_PER_S);
    assert_true(other.peer.closed && !session.peer.closed);
    for (size_t i = 0; i < ISCSI_LOGINS_PER_ADDRESS_MAX; i++) {
        assert_true(hosts[i].peer.closed);
        host_free(&hosts[i]);
    }
    for (size_t i = 0; i <= ISCSI_LOGINS_MAX; i++) {
        (void)snprintf(from[i], sizeof(from[i]), "[2001:db8::%zx]:1000", i + 1);
        host_connect_from(&hosts[i], w, from[i]);
        fake_env_settle(&w->fake);
        assert_int_equal(hosts[0].peer.closed, i == ISCSI_LOGINS_MAX);
        mem_free(hosts[i].data); /* there are many */
        hosts[i].data = NULL;
    }
    for (size_t i = 0; i <= ISCSI_LOGINS_MAX; i++) {
        host_free(&hosts[i]);
    }
    host_free(&other);
    host_free(&session);
}

/* What grows while somebody logs in has an end. */
static void logins_that_do_not_end(void **state) {
    struct world *w = *state;
    static char text[LOGIN_SEGMENT];
    struct host h;
    host_connect(&h, w);
    memset(text, 'k', sizeof(text));
    assert_int_equal(login_status(&h, 0x44, text, sizeof(text)), 0);
    assert_int_equal(login_status(&h, 0x44, text, sizeof(text)), 0);
    assert_int_equal(login_status(&h, 0x44, text, 1), 0x0302); /* 16 KiB of keys */
    host_free(&h);
    host_connect(&h, w);
    assert_int_equal(login_status(&h, 0x00, TEXT(NAMES)), 0);
    for (uint32_t i = 1; i < ISCSI_LOGIN_PDUS_MAX; i++) {
        assert_int_equal(login_status(&h, 0x00, NULL, 0), 0);
    }
    assert_int_equal(login_status(&h, 0x00, NULL, 0), 0x0200);
    host_free(&h);
    host_connect(&h, w); /* a segment longer than 8192 bytes is not even read */
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, 0x87};
    send_pdu(&h, bhs, text, sizeof(text) - 1);
    put_be24(bhs + AT_DATA_LENGTH, LOGIN_SEGMENT + 1);
    host_free(&h);
    host_connect(&h, w);
    fake_peer_feed(&h.peer, bhs, BHS_BYTES);
    fake_env_settle(&w->fake);
    assert_true(h.peer.closed);
    host_free(&h);
    uint32_t at = 0; /* keys without end: more than 64 */
    host_connect(&h, w);
    for (uint32_t i = 0; i <= ISCSI_KEYS_MAX; i++) {
        at += (uint32_t)snprintf(text + at, sizeof(text) - at, "X-%u=1", i) + 1;
    }
    assert_int_equal(login_status(&h, 0x87, text, at), 0x0200);
    host_free(&h);
    host_connect(&h, w); /* a value longer than 255 bytes */
    at = (uint32_t)snprintf(text, sizeof(text), "InitiatorAlias=%0256d", 0) + 1;
    assert_int_equal(login_status(&h, 0x87, text, at), 0x0200);
    host_free(&h);
    host_connect(&h, w); /* a key longer than 63 */
    at = (uint32_t)snprintf(text, sizeof(text), "X-%062d=1", 0) + 1;
    assert_int_equal(login_status(&h, 0x87, text, at), 0x0200);
    host_free(&h);
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

/* Connection reinstatement: the session goes on, its tasks do not. */
static void a_session_moves_to_another_connection(void **state) {
    struct world *w = *state;
    struct host a, b;
    login(&a, w);
    uint16_t tsih = get_be16(a.bhs + AT_TSIH);
    struct iscsi_session_status status;
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
    tsih = status.tsih;
    w->volume.hold = true;
    send_command(&a, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    static const struct {
        uint16_t tsih_off, cid;
        uint8_t isid;
        uint32_t status;
        const char *text;
        size_t length;
    } refused[] = {
        {1, 0, 1, 0x020a, NAMES, sizeof(NAMES)},
        {0, 0, 2, 0x020a, NAMES, sizeof(NAMES)},
        {0, 1, 1, 0x0206, NAMES, sizeof(NAMES)},
        {0, 0, 1, 0x020a, TEXT("InitiatorName=iqn.2025-01.org.example:x\0TargetName=" TARGET)},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        host_connect(&b, w);
        b.tsih = (uint16_t)(tsih + refused[i].tsih_off);
        b.cid = refused[i].cid;
        b.isid = refused[i].isid;
        assert_int_equal(login_status(&b, 0x87, refused[i].text, refused[i].length),
                         refused[i].status);
        host_free(&b);
    }
    assert_false(a.peer.closed);
    host_connect(&b, w);
    b.tsih = tsih;
    b.cmd_sn = a.cmd_sn;
    assert_int_equal(login_status(&b, 0x87, TEXT(NAMES)), 0);
    assert_true(a.peer.closed);
    assert_int_equal(get_be16(b.bhs + AT_TSIH), tsih);
    assert_int_equal(get_be32(b.bhs + AT_EXP_CMDSN), b.cmd_sn);
    memory_volume_let_go(&w->volume);
    w->volume.hold = false;
    fake_env_settle(&w->fake);
    assert_false(try_receive(&b)); /* the read ended with the old connection */
    b.exp_stat_sn = 0;
    send_command(&b, NEITHER, CDB(0), 0, NULL, 0); /* and no attention: it is the same nexus */
    receive(&b, OP_SCSI_RESPONSE);
    assert_int_equal(b.bhs[AT_STATUS], SCSI_GOOD);
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
    host_free(&a);
    host_free(&b);
}

static uint32_t send_logout(struct host *h, uint8_t reason, uint16_t cid) {
    uint8_t bhs[BHS_BYTES] = {OP_LOGOUT | BHS_IMMEDIATE, (uint8_t)(BHS_FINAL | reason)};
    put_be32(bhs + AT_ITT, h->itt++);
    put_be16(bhs + AT_CID, cid);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    send_pdu(h, bhs, NULL, 0);
    receive(h, OP_LOGOUT_RESPONSE);
    return h->bhs[AT_RESPONSE];
}

static void logout_in_every_form(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    assert_int_equal(send_logout(&h, 1, 9), 1); /* another CID */
    assert_int_equal(send_logout(&h, 2, 0), 2); /* for recovery: not at this level */
    assert_int_equal(send_logout(&h, 3, 0), 2); /* no such reason */
    assert_false(h.peer.closed);
    w->volume.hold = true;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    assert_int_equal(send_logout(&h, 1, 0), 0); /* the only connection: the session, too */
    assert_true(h.peer.closed);
    assert_int_equal(iscsi_session_list(w->server, NULL, 0), 0);
    host_free(&h);
    memory_volume_let_go(&w->volume);
    login_with(&h, w, 1, TEXT(NAMES));
    assert_int_equal(send_logout(&h, 0, 9), 0); /* the session, whatever the CID */
    assert_true(h.peer.closed);
    host_free(&h);
}

/* Portals: each its own group, or some in one; a session is told apart by group and ISID. */
static void portal_groups(void **state) {
    struct world *w = *state;
    static const char *const bad[] = {"192.0.2.2:3260,0", "192.0.2.2:3260,65536", "192.0.2.2:3260,",
                                      "192.0.2.2:3260,x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(iscsi_portal_add(w->server, bad[i], NULL), ERR_INVALID);
    }
    assert_int_equal(iscsi_portal_add(w->server, "192.0.2.2:3260,7", NULL), OK);
    assert_int_equal(iscsi_portal_add(w->server, "[2001:db8::1]:3260", NULL), OK);
    assert_int_equal(iscsi_portal_add(w->server, "[2001:db8::2]:3260,7", NULL), OK);
    static const uint16_t tags[] = {1, 2, 7, 7, 0};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(iscsi_portal_tag(w->server, i), tags[i]);
    }
    struct host first, other_group, same_group;
    login(&first, w);
    static const char *const portals[] = {"192.0.2.2:3260", "[2001:db8::2]:3260"};
    struct host *hosts[] = {&other_group, &same_group};
    for (size_t i = 0; i < 2; i++) {
        struct host *h = hosts[i];
        *h = (struct host){.w = w,
                           .loop = &w->fake,
                           .cmd_sn = 100,
                           .itt = 1,
                           .isid = 1,
                           .data = mem_alloc(DATA_MAX)};
        fake_net_connect(&w->fake.env, portals[i], &h->peer);
        assert_int_equal(login_status(h, 0x87, TEXT(NAMES)), 0);
        assert_string_equal(answer_of(h, "TargetPortalGroupTag"), "7");
    }
    assert_false(first.peer.closed);
    assert_true(other_group.peer.closed); /* the same ISID in the same group: its place is taken */
    assert_int_equal(iscsi_session_list(w->server, NULL, 0), 2);
    host_free(&first);
    host_free(&other_group);
    host_free(&same_group);
    /* on all addresses: shown as the one that the host came by, an IPv4 one */
    assert_int_equal(iscsi_portal_add(w->server, "0.0.0.0:3261,8", NULL), OK);
    assert_int_equal(iscsi_portal_add(w->server, "[::]:3262,9", NULL), OK);
    struct host h;
    login_with(&h, w, 1, TEXT("InitiatorName=" INITIATOR "\0SessionType=Discovery"));
    uint8_t bhs[BHS_BYTES] = {OP_TEXT, BHS_FINAL};
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    put_be32(bhs + AT_CMDSN, h.cmd_sn++);
    send_pdu(&h, bhs, TEXT("SendTargets=All"));
    receive(&h, OP_TEXT_RESPONSE);
    static const char expected[] = "TargetName=" TARGET "\0TargetAddress=192.0.2.1:3260,1\0"
                                   "TargetAddress=[2001:db8::1]:3260,2\0"
                                   "TargetAddress=192.0.2.2:3260,7\0"
                                   "TargetAddress=[2001:db8::2]:3260,7\0"
                                   "TargetAddress=192.0.2.1:3261,8";
    assert_int_equal(h.data_bytes, sizeof(expected));
    assert_memory_equal(h.data, expected, sizeof(expected));
    host_free(&h);
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
        assert_int_equal(iscsi_target_add(w->server, name, w->scsi, NULL, NULL), OK);
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

/* As many targets as there may be, with the longest names, on as many portals as there may be. */
static void the_longest_list_of_targets(void **state) {
    struct world *w = *state;
    char name[ISCSI_NAME_BYTES_MAX + 1], portal[64];
    for (uint32_t i = 0; i < ISCSI_TARGETS_MAX - 2; i++) {
        memset(name, 'x', ISCSI_NAME_BYTES_MAX);
        name[ISCSI_NAME_BYTES_MAX] = 0;
        (void)snprintf(name, sizeof(name), "iqn.2025-01.org.example:%03u", i);
        name[strlen(name)] = 'x';
        assert_int_equal(strlen(name), ISCSI_NAME_BYTES_MAX);
        assert_int_equal(iscsi_target_add(w->server, name, w->scsi, NULL, NULL), OK);
    }
    assert_int_equal(iscsi_target_add(w->server, "iqn.2025-01.a:b", w->scsi, NULL, NULL),
                     ERR_LIMIT);
    for (uint32_t i = 0; i < ISCSI_PORTALS_MAX - 1; i++) {
        (void)snprintf(portal, sizeof(portal), "[2001:0db8:1111:2222:3333:4444:5555:%04x]:13260,%u",
                       i, 60000 + i);
        assert_int_equal(iscsi_portal_add(w->server, portal, NULL), OK);
    }
    assert_int_equal(iscsi_portal_add(w->server, "192.0.2.77:3260", NULL), ERR_LIMIT);
    struct host h;
    login_with(&h, w, 1,
               TEXT("InitiatorName=" INITIATOR "\0SessionType=Discovery\0"
                    "MaxRecvDataSegmentLength=16777215"));
    uint8_t bhs[BHS_BYTES] = {OP_TEXT, BHS_FINAL};
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    put_be32(bhs + AT_CMDSN, h.cmd_sn++);
    send_pdu(&h, bhs, TEXT("SendTargets=All"));
    receive(&h, OP_TEXT_RESPONSE);
    assert_true(h.data_bytes > 512 << 10);
    uint32_t addresses = 0;
    for (uint32_t at = 0; at < h.data_bytes; at += (uint32_t)strlen((char *)h.data + at) + 1) {
        addresses += strncmp((char *)h.data + at, "TargetAddress=", 14) == 0;
    }
    assert_int_equal(addresses, (ISCSI_TARGETS_MAX - 1) * ISCSI_PORTALS_MAX);
    host_free(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(text_pairs),
        cmocka_unit_test(every_key_has_its_rule),
        cmocka_unit_test(keys_that_break_it),
        cmocka_unit_test(headers_are_checked),
        IN_WORLD(login_stages),
        IN_WORLD(names_of_initiators_are_taken_as_they_come),
        IN_WORLD(login_in_pieces),
        IN_WORLD(logins_that_are_refused),
        IN_WORLD(logins_that_do_not_come),
        IN_WORLD(logins_that_do_not_end),
        IN_WORLD(logging_in_again_takes_the_session_over),
        IN_WORLD(a_session_moves_to_another_connection),
        IN_WORLD(logout_in_every_form),
        IN_WORLD(sessions_are_limited),
        IN_WORLD(portal_groups),
        IN_WORLD(discovery),
        IN_WORLD(a_long_list_of_targets),
        IN_WORLD(the_longest_list_of_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
