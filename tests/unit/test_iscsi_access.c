// SPDX-License-Identifier: MPL-2.0
/* Access lists and CHAP: who gets in, what he sees, and what happens to him when that changes. */
#include "iscsi_host.h"

#include "iscsi/access.h"
#include "iscsi/chap.h"

#define ALICE "alice"
#define ALICE_SECRET "a secret of alice"
#define OUR_NAME "storage"
#define OUR_SECRET "a secret of ours"
#define BOB "iqn.1998-01.com.vmware:bob"
#define BOB_SECRET "a secret of bob"
#define NAMES_OTHER "InitiatorName=" INITIATOR "\0TargetName=" OTHER "\0"

static const struct iscsi_user users[] = {
    {ALICE, ALICE_SECRET, OUR_NAME, OUR_SECRET},
    {BOB, BOB_SECRET, NULL, NULL},
};

static void allow(struct world *w, const char *target, const struct iscsi_rule *rules,
                  uint32_t count) {
    struct errmsg message = {0};
    const struct iscsi_access access = {"tank", rules, count, users, 2};
    int error = iscsi_target_set_access(w->server, target, &access, &message);
    assert_string_equal(message.text, "");
    assert_int_equal(error, OK);
}

/* ---- the parts ---- */

static void addresses(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",      "192.0.2", "192.0.2.7/33",   "192.0.2.7/", "192.0.2.7/x",
        "[::1]", "::1/129", "192.0.2.7:3260", "host",       "192.0.2.7 "};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(iscsi_address_check(bad[i], NULL), ERR_INVALID);
    }
    static const struct {
        const char *prefix, *peer;
        bool holds;
    } cases[] = {
        {"192.0.2.7", "192.0.2.7:1", true},          {"192.0.2.7", "192.0.2.8:1", false},
        {"192.0.2.0/24", "192.0.2.255:1", true},     {"192.0.2.99/24", "192.0.2.1:1", true},
        {"192.0.2.0/24", "192.0.3.1:1", false},      {"192.0.2.128/25", "192.0.2.127:1", false},
        {"0.0.0.0/0", "192.0.2.1:1", true},          {"0.0.0.0/0", "[2001:db8::1]:1", false},
        {"192.0.2.7", "[::ffff:192.0.2.7]:1", true}, {"2001:db8::/32", "[2001:db8:1::7]:1", true},
        {"2001:db8::/32", "[2001:db9::7]:1", false}, {"fe80::1", "[fe80::1%eth0]:1", true},
        {"::/0", "[2001:db8::7]:1", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct net_prefix prefix, peer;
        assert_int_equal(prefix_parse(cases[i].prefix, &prefix), OK);
        assert_int_equal(prefix_of_peer(cases[i].peer, &peer), OK);
        assert_int_equal(prefix_holds(&prefix, &peer), cases[i].holds);
    }
}

static void binary_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int error;
        size_t length;
        uint8_t bytes[8];
    } cases[] = {
        {"0x0aFf", OK, 2, {0x0a, 0xff}},
        {"0XaFf", OK, 2, {0x0a, 0xff}}, /* half a byte in front */
        {"0bSGVsbG8=", OK, 5, {'H', 'e', 'l', 'l', 'o'}},
        {"0BSGVsbA==", OK, 4, {'H', 'e', 'l', 'l'}},
        {"0x", ERR_INVALID},
        {"0b", ERR_INVALID},
        {"0b=", ERR_INVALID},
        {"0bSGVs=", ERR_INVALID},
        {"0bSG*s", ERR_INVALID},
        {"0x1g", ERR_INVALID},
        {"12", ERR_INVALID},
        {"", ERR_INVALID},
        {"0", ERR_INVALID},
        {"0x112233445566778899", ERR_LIMIT},
        {"0bSGVsbG9IZWxsbw==", ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[8];
        size_t length = 99;
        assert_int_equal(chap_binary(cases[i].text, bytes, sizeof(bytes), &length), cases[i].error);
        if (cases[i].error == OK) {
            assert_int_equal(length, cases[i].length);
            assert_memory_equal(bytes, cases[i].bytes, length);
        }
    }
    char text[8];
    chap_binary_text((const uint8_t[]){0x0a, 0xff}, 2, text);
    assert_string_equal(text, "0x0aff");
}

/* Digests computed with Python's hashlib: id 7, challenge 0, 1, … 15. */
static void responses(void **state) {
    (void)state;
    static const struct {
        const char *list, *response;
        uint32_t number;
    } cases[] = {
        {"5", "0x3566f85052b1c6de43bd9bf1441278bf", 5},
        {"99,6", "0xedf2a50b5ac21478786928dd1fb7df7992c2becc", 6},
        {"7,5", "0xa1bc0d80f9f74c8ddcf73abd11f763817ec97ada08101994512b8b0a7effccbf", 7},
        {"8,7", "0xa66e3bc035cf47f47a781c34d9c07ba3db982e0cb6f7a592ca467c2e0dbfb6b4", 8},
    };
    uint8_t challenge[16], right[64];
    size_t length;
    for (uint8_t i = 0; i < sizeof(challenge); i++) {
        challenge[i] = i;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum digest digest;
        uint32_t number;
        assert_int_equal(chap_choose(cases[i].list, &digest, &number), OK);
        assert_int_equal(number, cases[i].number);
        assert_int_equal(chap_binary(cases[i].response, right, sizeof(right), &length), OK);
        assert_true(chap_is_right(digest, 7, ALICE_SECRET, challenge, 16, right, length));
        assert_false(chap_is_right(digest, 8, ALICE_SECRET, challenge, 16, right, length));
        assert_false(chap_is_right(digest, 7, BOB_SECRET, challenge, 16, right, length));
        assert_false(chap_is_right(digest, 7, ALICE_SECRET, challenge, 15, right, length));
        assert_false(chap_is_right(digest, 7, ALICE_SECRET, challenge, 16, right, length - 1));
        right[0] ^= 1;
        assert_false(chap_is_right(digest, 7, ALICE_SECRET, challenge, 16, right, length));
    }
    static const char *const unknown[] = {"", "4", "5x", ",5", "5,", "0x5", "55555"};
    enum digest digest;
    uint32_t number;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        bool fifth = strcmp(unknown[i], "5,") == 0; /* found before the end is seen */
        assert_int_equal(chap_choose(unknown[i], &digest, &number), fifth ? OK : ERR_UNSUPPORTED);
    }
}

static void lists_that_are_refused(void **state) {
    struct world *w = *state;
    static const struct iscsi_user bad[] = {
        {"", ALICE_SECRET, NULL, NULL},
        {ALICE, "a secret of", NULL, NULL}, /* 11 characters */
        {ALICE, ALICE_SECRET, OUR_NAME, NULL},
        {ALICE, ALICE_SECRET, NULL, OUR_SECRET},
        {ALICE, ALICE_SECRET, OUR_NAME, "short"},
        {ALICE, ALICE_SECRET, OUR_NAME, ALICE_SECRET}, /* the same for both directions */
    };
    struct host h;
    login(&h, w);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct iscsi_access access = {.users = &bad[i], .user_count = 1};
        assert_int_equal(iscsi_target_set_access(w->server, TARGET, &access, NULL), ERR_INVALID);
    }
    static const struct {
        struct iscsi_rule rule;
        int error;
    } rules[] = {
        {{.initiator = "disk"}, ERR_INVALID},
        {{.address = "192.0.2"}, ERR_INVALID},
        {{.user = "carol"}, ERR_NOT_FOUND},
        {{.lun = 256}, ERR_RANGE},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct iscsi_access access = {"tank", &rules[i].rule, 1, users, 2};
        assert_int_equal(iscsi_target_set_access(w->server, TARGET, &access, NULL), rules[i].error);
    }
    const struct iscsi_user twice[] = {users[0], users[0]};
    const struct iscsi_access access = {.users = twice, .user_count = 2};
    assert_int_equal(iscsi_target_set_access(w->server, TARGET, &access, NULL), ERR_EXISTS);
    assert_int_equal(iscsi_target_set_access(w->server, "iqn.2025-01.a:b", NULL, NULL),
                     ERR_NOT_FOUND);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0); /* nothing has changed */
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
    host_free(&h);
}

/* ---- CHAP ---- */

struct exchange {
    const char *algorithms; /* CHAP_A */
    const char *name, *secret;
    const char *challenge; /* ours to the target, as text; NULL: one way; "" : send its own back */
};

/* From AuthMethod to the last request of the security stage; its status. */
static uint32_t chap(struct host *h, const char *names, size_t names_bytes,
                     const struct exchange *e) {
    char text[1024];
    size_t at = names_bytes - 1;
    memcpy(text, names, at);
    at += (size_t)snprintf(text + at, sizeof(text) - at, "AuthMethod=CHAP,None") + 1;
    uint32_t status = login_status(h, 0x81, text, at);
    if (status != 0) {
        return status;
    }
    assert_string_equal(answer_of(h, "AuthMethod"), "CHAP");
    assert_int_equal(h->bhs[AT_FLAGS], 0x00); /* it stays in the security stage */
    at = (size_t)snprintf(text, sizeof(text), "CHAP_A=%s", e->algorithms) + 1;
    status = login_status(h, 0x00, text, at);
    if (status != 0) {
        return status;
    }
    enum digest digest;
    uint32_t number, id;
    assert_int_equal(chap_choose(e->algorithms, &digest, &number), OK);
    assert_int_equal(atoi(answer_of(h, "CHAP_A")), (int)number);
    assert_int_equal(text_number(answer_of(h, "CHAP_I"), &id), OK);
    uint8_t challenge[64], response[DIGEST_RESULT_BYTES_MAX];
    size_t length = 0;
    char own[160], hex[80];
    (void)snprintf(own, sizeof(own), "%s", answer_of(h, "CHAP_C"));
    assert_int_equal(chap_binary(own, challenge, sizeof(challenge), &length), OK);
    assert_int_equal(length, digest_bytes(digest));
    assert_int_equal(chap_response(digest, (uint8_t)id, e->secret, challenge, length, response),
                     OK);
    chap_binary_text(response, digest_bytes(digest), hex);
    at = (size_t)snprintf(text, sizeof(text), "CHAP_N=%s", e->name) + 1;
    at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_R=%s", hex) + 1;
    if (e->challenge != NULL) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_I=9") + 1;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_C=%s",
                               e->challenge[0] != 0 ? e->challenge : own) +
              1;
    }
    return login_status(h, 0x81, text, at);
}

static void operational(struct host *h) {
    assert_int_equal(h->bhs[AT_FLAGS], 0x81);
    assert_int_equal(login_status(h, 0x87, TEXT("HeaderDigest=None")), 0);
    assert_int_equal(h->bhs[AT_FLAGS], 0x87);
}

static void one_way(void **state) {
    struct world *w = *state;
    static const char *const lists[] = {"5", "6", "7", "8", "7,6,5", "77,5"};
    const struct iscsi_rule rule = {.user = ALICE};
    allow(w, OTHER, &rule, 1);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct host h;
        host_connect(&h, w);
        const struct exchange e = {lists[i], ALICE, ALICE_SECRET, NULL};
        assert_int_equal(chap(&h, NAMES_OTHER, sizeof(NAMES_OTHER), &e), 0);
        assert_null(answer_of(&h, "CHAP_R"));
        operational(&h);
        ready(&h);
        struct iscsi_session_status status;
        assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
        assert_string_equal(status.user, ALICE);
        host_free(&h);
    }
}

static void both_ways(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rule = {.user = ALICE};
    allow(w, OTHER, &rule, 1);
    struct host h;
    host_connect(&h, w);
    const struct exchange e = {"5", ALICE, ALICE_SECRET, "0b/+7dzLuqmYh3ZlVEMyIRAA=="};
    assert_int_equal(chap(&h, NAMES_OTHER, sizeof(NAMES_OTHER), &e), 0);
    assert_string_equal(answer_of(&h, "CHAP_N"), OUR_NAME);
    uint8_t challenge[64], right[DIGEST_RESULT_BYTES_MAX];
    char hex[80];
    size_t length;
    assert_int_equal(chap_binary(e.challenge, challenge, sizeof(challenge), &length), OK);
    assert_int_equal(chap_response(DIGEST_MD5, 9, OUR_SECRET, challenge, length, right), OK);
    chap_binary_text(right, 16, hex);
    assert_string_equal(answer_of(&h, "CHAP_R"), hex);
    operational(&h);
    ready(&h);
    host_free(&h);
    /* a challenge as long as it may be, and one byte more */
    for (size_t extra = 0; extra < 2; extra++) {
        static char text[8192];
        host_connect(&h, w);
        assert_int_equal(login_status(&h, 0x00, TEXT(NAMES_OTHER "AuthMethod=CHAP")), 0);
        assert_int_equal(login_status(&h, 0x00, TEXT("CHAP_A=5")), 0);
        size_t at = (size_t)snprintf(text, sizeof(text), "CHAP_N=x") + 1;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_R=0x00") + 1;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_I=1") + 1;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "CHAP_C=0x%0*d",
                               (int)(2 * (1024 + extra)), 0) +
              1;
        assert_int_equal(login_status(&h, 0x81, text, at), extra == 0 ? 0x0201 : 0x0200);
        host_free(&h);
    }
}

static void chap_that_is_refused(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rules[] = {
        {.user = ALICE},
        {.user = BOB, .initiator = "iqn.2025-01.org.example:somebody"},
    };
    allow(w, OTHER, rules, 2);
    static const struct exchange cases[] = {
        {"5", ALICE, BOB_SECRET, NULL},     {"5", ALICE, "", NULL},
        {"5", "carol", ALICE_SECRET, NULL}, {"5", "", ALICE_SECRET, NULL},
        {"5", BOB, BOB_SECRET, NULL},   /* his rule is not for this initiator */
        {"5", ALICE, ALICE_SECRET, ""}, /* our own challenge */
        {"4,9", ALICE, ALICE_SECRET, NULL}, {"x", ALICE, ALICE_SECRET, NULL},
    };
    struct host h;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        host_connect(&h, w);
        assert_int_equal(chap(&h, NAMES_OTHER, sizeof(NAMES_OTHER), &cases[i]), 0x0201);
        assert_true(h.peer.closed);
        host_free(&h);
    }
    /* his rule is for him, but there is no mutual secret for him */
#define SOMEBODY "InitiatorName=iqn.2025-01.org.example:somebody\0TargetName=" OTHER "\0"
    host_connect(&h, w);
    const struct exchange mutual = {"5", BOB, BOB_SECRET, "0x00112233445566778899aabbccddeeff"};
    assert_int_equal(chap(&h, SOMEBODY, sizeof(SOMEBODY), &mutual), 0x0201);
    host_free(&h);
    host_connect(&h, w);
    const struct exchange his = {"5", BOB, BOB_SECRET, NULL};
    assert_int_equal(chap(&h, SOMEBODY, sizeof(SOMEBODY), &his), 0);
    host_free(&h);
}

/* Requests that leave the order: what was said so far, then the one that is refused. */
static void chap_out_of_order(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rule = {.user = ALICE};
    allow(w, OTHER, &rule, 1);
    static const struct {
        uint32_t before; /* how many of: AuthMethod, CHAP_A */
        uint8_t flags;
        uint32_t status;
        const char *text;
        size_t length;
    } cases[] = {
        {0, 0x87, 0x0201, TEXT(NAMES_OTHER)}, /* straight to the operational stage */
        {0, 0x81, 0x0201, TEXT(NAMES_OTHER)},
        {0, 0x83, 0x0201, TEXT(NAMES_OTHER "AuthMethod=None")},
        {0, 0x81, 0x0201, TEXT(NAMES_OTHER "AuthMethod=KRB5,SRP")},
        {0, 0x00, 0x0200, TEXT(NAMES_OTHER "CHAP_A=5")},
        {0, 0x00, 0x0200, TEXT(NAMES_OTHER "AuthMethod=CHAP\0CHAP_N=alice\0CHAP_R=0x00")},
        {1, 0x81, 0x0200, NULL, 0},
        {1, 0x00, 0x0200, TEXT("CHAP_N=alice\0CHAP_R=0x00")},
        {1, 0x00, 0x0200, TEXT("AuthMethod=None")}, /* twice */
        {2, 0x81, 0x0200, NULL, 0},
        {2, 0x83, 0x0200, NULL, 0},
        {2, 0x87, 0x0200, NULL, 0}, /* the stage is still security */
        {2, 0x81, 0x0200, TEXT("CHAP_N=alice")},
        {2, 0x81, 0x0200, TEXT("CHAP_R=0x00")},
        {2, 0x81, 0x0200, TEXT("CHAP_N=alice\0CHAP_R=0x00\0CHAP_I=1")},
        {2, 0x81, 0x0200, TEXT("CHAP_N=alice\0CHAP_R=0x00\0CHAP_C=0x00")},
        {2, 0x81, 0x0200, TEXT("CHAP_N=alice\0CHAP_R=0x00\0CHAP_I=256\0CHAP_C=0x00")},
        {2, 0x81, 0x0200, TEXT("CHAP_N=alice\0CHAP_R=zz")},
        {2, 0x81, 0x0200, TEXT("CHAP_A=5")},
        {2, 0x81, 0x0201, TEXT("CHAP_N=alice\0CHAP_R=0x00")},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct host h;
        host_connect(&h, w);
        if (cases[i].before > 0) {
            assert_int_equal(login_status(&h, 0x81, TEXT(NAMES_OTHER "AuthMethod=CHAP,None")), 0);
        }
        if (cases[i].before > 1) {
            assert_int_equal(login_status(&h, 0x00, TEXT("CHAP_A=5")), 0);
        }
        assert_int_equal(login_status(&h, cases[i].flags, cases[i].text, cases[i].length),
                         cases[i].status);
        assert_true(h.peer.closed);
        host_free(&h);
    }
    assert_int_equal(iscsi_session_list(w->server, NULL, 0), 0);
}

/* What another connection is waiting for an answer to is not answered for it; and no challenge
 * comes twice. */
static void challenges_are_not_reflected_or_reused(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rule = {.user = ALICE};
    allow(w, OTHER, &rule, 1);
    struct host a, b;
    char first[160];
    host_connect(&a, w);
    assert_int_equal(login_status(&a, 0x00, TEXT(NAMES_OTHER "AuthMethod=CHAP")), 0);
    assert_int_equal(login_status(&a, 0x00, TEXT("CHAP_A=5")), 0);
    (void)snprintf(first, sizeof(first), "%s", answer_of(&a, "CHAP_C"));
    host_connect(&b, w);
    const struct exchange e = {"5", ALICE, ALICE_SECRET, first};
    assert_int_equal(chap(&b, NAMES_OTHER, sizeof(NAMES_OTHER), &e), 0x0201);
    assert_non_null(strstr(w->event, "challenge"));
    host_free(&b);
    host_connect(&b, w);
    assert_int_equal(login_status(&b, 0x00, TEXT(NAMES_OTHER "AuthMethod=CHAP")), 0);
    assert_int_equal(login_status(&b, 0x00, TEXT("CHAP_A=5")), 0);
    assert_string_not_equal(answer_of(&b, "CHAP_C"), first);
    host_free(&b);
    host_free(&a);
}

/* The first method of the offer that leads to something. */
static void the_offer_has_an_order(void **state) {
    struct world *w = *state;
    const struct iscsi_rule both[] = {{.user = ALICE}, {.lun = 1}};
    allow(w, OTHER, both, 2);
    static const struct {
        const char *method, *text;
        size_t length;
    } cases[] = {
        {"None", TEXT(NAMES_OTHER "AuthMethod=None,CHAP")},
        {"CHAP", TEXT(NAMES_OTHER "AuthMethod=SRP,CHAP,None")},
        {"None", TEXT(NAMES_OTHER "AuthMethod=KRB5,None")},
        {"None", TEXT(NAMES "AuthMethod=CHAP,None")}, /* nobody needs it there */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct host h;
        host_connect(&h, w);
        assert_int_equal(login_status(&h, 0x00, cases[i].text, cases[i].length), 0);
        assert_string_equal(answer_of(&h, "AuthMethod"), cases[i].method);
        host_free(&h);
    }
}

/* ---- what is seen ---- */

static uint32_t units(struct host *h) {
    send_command(h, READS, CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0), 2048, NULL, 0);
    receive(h, OP_DATA_IN);
    uint32_t bits = 0;
    for (uint32_t at = 8; at < h->data_bytes; at += 8) {
        bits |= 1u << h->data[at + 1];
    }
    return bits;
}

/* TEST UNIT READY at a unit: sense key << 16 | ASC and ASCQ; 0: good. */
static uint32_t test_unit(struct host *h, uint8_t number) {
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, NEITHER};
    bhs[AT_LUN + 1] = number;
    put_be32(bhs + AT_ITT, h->itt++);
    put_be32(bhs + AT_CMDSN, h->cmd_sn++);
    send_pdu(h, bhs, NULL, 0);
    receive(h, OP_SCSI_RESPONSE);
    return h->bhs[AT_STATUS] == SCSI_GOOD ? 0
                                          : (uint32_t)h->data[4] << 16 | get_be16(h->data + 2 + 12);
}

enum { POWER_ON = 0x062900, NO_UNIT = 0x052500, UNITS_CHANGED = 0x063f0e };

static void three_units(struct world *w) {
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(scsi_lun_add(w->scsi, i, &w->volume.door, &w->volume.info, NULL), OK);
    }
}

static void units_are_hidden(void **state) {
    struct world *w = *state;
    three_units(w);
    const struct iscsi_rule rules[] = {
        {.lun = 0, .initiator = "iqn.2025-01.org.example:host"},
        {.lun = 1, .initiator = "iqn.2025-01.org.example:other", .address = "192.0.2.0/24"},
        {.lun = 2, .address = "192.0.2.7"},
        {.lun = 2, .initiator = "iqn.2025-01.org.example:other"},
    };
    allow(w, TARGET, rules, 4);
    struct host a, b, c;
    login_with(&a, w, 1, TEXT(NAMES));
    assert_int_equal(units(&a), 1 << 0 | 1 << 2);
    assert_int_equal(test_unit(&a, 0), POWER_ON);
    assert_int_equal(test_unit(&a, 0), 0);
    assert_int_equal(test_unit(&a, 1), NO_UNIT);
#define OF_OTHER "InitiatorName=iqn.2025-01.org.example:other\0TargetName=" TARGET "\0"
    login_with(&b, w, 1, TEXT(OF_OTHER));
    assert_int_equal(units(&b), 1 << 1 | 1 << 2);
    host_connect_from(&c, w, "198.51.100.7:1"); /* the same name from elsewhere */
    c.isid = 2;
    assert_int_equal(login_status(&c, 0x87, TEXT(OF_OTHER)), 0);
    assert_int_equal(units(&c), 1 << 2);
    host_free(&c);
    host_connect_from(&c, w, "198.51.100.7:1");
    assert_int_equal(login_status(&c, 0x87,
                                  TEXT("InitiatorName=iqn.2025-01.org.example:third\0"
                                       "TargetName=" TARGET)),
                     0x0202);
    host_free(&c);
    host_free(&a);
    host_free(&b);
}

static void changes_take_effect_at_once(void **state) {
    struct world *w = *state;
    three_units(w);
    const struct iscsi_rule before[] = {
        {.lun = 0, .initiator = INITIATOR},
        {.lun = 1, .initiator = INITIATOR},
        {.lun = 2, .initiator = "iqn.2025-01.org.example:other"},
    };
    allow(w, TARGET, before, 3);
    struct host a, b;
    login_with(&a, w, 1, TEXT(NAMES));
    login_with(&b, w, 1, TEXT(OF_OTHER));
    assert_int_equal(test_unit(&a, 0), POWER_ON);
    assert_int_equal(test_unit(&a, 1), POWER_ON);
    assert_int_equal(test_unit(&b, 2), POWER_ON);
    /* a read of the unit that goes is dropped, one of the unit that stays is answered */
    w->volume.hold = true;
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, READS};
    for (uint8_t unit = 0; unit < 2; unit++) {
        bhs[AT_LUN + 1] = unit;
        put_be32(bhs + AT_ITT, 1000 + unit);
        put_be32(bhs + AT_COMMAND_LENGTH, 512);
        put_be32(bhs + AT_CMDSN, a.cmd_sn++);
        bhs[AT_CDB] = 0x28;
        bhs[AT_CDB + 8] = 1;
        send_pdu(&a, bhs, NULL, 0);
    }
    const struct iscsi_rule after[] = {
        {.lun = 0, .initiator = INITIATOR},
        {.lun = 2, .initiator = INITIATOR},
        {.lun = 2, .initiator = "iqn.2025-01.org.example:other"},
    };
    allow(w, TARGET, after, 3);
    w->volume.hold = false;
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    receive(&a, OP_DATA_IN);
    assert_int_equal(get_be32(a.bhs + AT_ITT), 1000);
    assert_false(try_receive(&a));
    assert_int_equal(test_unit(&a, 1), NO_UNIT);
    assert_int_equal(test_unit(&a, 0), UNITS_CHANGED);
    assert_int_equal(test_unit(&a, 0), 0);
    assert_int_equal(test_unit(&a, 2), POWER_ON);
    assert_int_equal(test_unit(&b, 2), 0); /* the other one has noticed nothing */
    /* nothing is left for it: its session ends, the other's does not */
    allow(w, TARGET, after + 2, 1);
    fake_env_settle(&w->fake);
    receive(&a, OP_ASYNC);
    assert_int_equal(a.bhs[AT_ASYNC_EVENT], 3); /* its session is dropped */
    assert_true(a.peer.closed && !b.peer.closed);
    assert_int_equal(test_unit(&b, 2), 0);
    host_free(&a);
    host_connect(&a, w);
    assert_int_equal(login_status(&a, 0x87, TEXT(NAMES)), 0x0202);
    host_free(&a);
    /* and everybody again */
    assert_int_equal(iscsi_target_set_access(w->server, TARGET, NULL, NULL), OK);
    assert_int_equal(test_unit(&b, 0), POWER_ON);
    login_with(&a, w, 1, TEXT(NAMES));
    host_free(&a);
    host_free(&b);
}

static const char *discovered(struct host *h) {
    uint8_t bhs[BHS_BYTES] = {OP_TEXT, BHS_FINAL};
    put_be32(bhs + AT_ITT, 5);
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    put_be32(bhs + AT_CMDSN, h->cmd_sn++);
    send_pdu(h, bhs, TEXT("SendTargets=All"));
    receive(h, OP_TEXT_RESPONSE);
    const char *name = answer_of(h, "TargetName");
    return name != NULL ? name : "";
}

static void discovery_shows_what_may_be_used(void **state) {
    struct world *w = *state;
#define DISCOVERY "InitiatorName=" INITIATOR "\0SessionType=Discovery\0"
    const struct iscsi_rule nobody = {.initiator = "iqn.2025-01.org.example:nobody"};
    const struct iscsi_rule named = {.initiator = INITIATOR, .user = ALICE};
    const struct iscsi_rule user_only = {.user = ALICE};
    const struct iscsi_rule elsewhere = {.address = "198.51.100.0/24"};
    static const struct {
        bool anonymous, proven;
    } seen[] = {{false, false}, {true, true}, {false, true}, {false, false}};
    const struct iscsi_rule *rules[] = {&nobody, &named, &user_only, &elsewhere};
    allow(w, TARGET, &nobody, 1);
    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        struct host h;
        allow(w, OTHER, rules[i], 1);
        login_with(&h, w, 1, TEXT(DISCOVERY));
        assert_string_equal(discovered(&h), seen[i].anonymous ? OTHER : "");
        host_free(&h);
        if (!seen[i].proven) {
            continue;
        }
        host_connect(&h, w);
        const struct exchange e = {"5", ALICE, ALICE_SECRET, NULL};
        assert_int_equal(chap(&h, DISCOVERY, sizeof(DISCOVERY), &e), 0);
        operational(&h);
        assert_string_equal(discovered(&h), OTHER);
        host_free(&h);
    }
}

/* The same name in another pool is somebody else, with another secret. */
static void users_belong_to_their_realm(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rule = {.user = ALICE};
    const struct iscsi_user alice = {ALICE, "another secret of alice", NULL, NULL};
    const struct iscsi_access access = {"dock", &rule, 1, &alice, 1};
    allow(w, OTHER, &rule, 1);
    assert_int_equal(iscsi_target_set_access(w->server, TARGET, &access, NULL), OK);
    struct host h;
    host_connect(&h, w);
    const struct exchange first = {"5", ALICE, "another secret of alice", NULL};
    assert_int_equal(chap(&h, DISCOVERY, sizeof(DISCOVERY), &first), 0);
    operational(&h);
    assert_string_equal(discovered(&h), TARGET);
    host_free(&h);
    host_connect(&h, w);
    const struct exchange second = {"5", ALICE, ALICE_SECRET, NULL};
    assert_int_equal(chap(&h, DISCOVERY, sizeof(DISCOVERY), &second), 0);
    operational(&h);
    assert_string_equal(discovered(&h), OTHER);
    host_free(&h);
    host_connect(&h, w);
    assert_int_equal(chap(&h, NAMES_OTHER, sizeof(NAMES_OTHER), &first), 0x0201);
    host_free(&h);
}

/* A name can be claimed; a session that was proven to be somebody's is not given to another. */
static void sessions_are_not_taken_by_others(void **state) {
    struct world *w = *state;
    const struct iscsi_rule rules[] = {{.user = ALICE}, {.user = BOB}};
    allow(w, OTHER, rules, 2);
    struct host a, b;
    host_connect(&a, w);
    const struct exchange alice = {"5", ALICE, ALICE_SECRET, NULL};
    assert_int_equal(chap(&a, NAMES_OTHER, sizeof(NAMES_OTHER), &alice), 0);
    operational(&a);
    host_connect(&b, w);
    const struct exchange bob = {"5", BOB, BOB_SECRET, NULL};
    assert_int_equal(chap(&b, NAMES_OTHER, sizeof(NAMES_OTHER), &bob), 0);
    assert_int_equal(login_status(&b, 0x87, NULL, 0), 0x0202);
    assert_false(a.peer.closed);
    host_free(&b);
    host_connect(&b, w);
    assert_int_equal(chap(&b, NAMES_OTHER, sizeof(NAMES_OTHER), &alice), 0);
    operational(&b);
    assert_true(a.peer.closed);
    host_free(&a);
    host_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(binary_values),
        cmocka_unit_test(responses),
        IN_WORLD(lists_that_are_refused),
        IN_WORLD(one_way),
        IN_WORLD(both_ways),
        IN_WORLD(chap_that_is_refused),
        IN_WORLD(chap_out_of_order),
        IN_WORLD(challenges_are_not_reflected_or_reused),
        IN_WORLD(the_offer_has_an_order),
        IN_WORLD(units_are_hidden),
        IN_WORLD(changes_take_effect_at_once),
        IN_WORLD(discovery_shows_what_may_be_used),
        IN_WORLD(users_belong_to_their_realm),
        IN_WORLD(sessions_are_not_taken_by_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
