// SPDX-License-Identifier: MPL-2.0
/* Logins of the protocol model (RFC 7143 §6.3, §11.12, §13): the keys a host offers, in any order
 * and cut into any requests, what must come of them, CHAP both ways, and logins that are wrong in
 * one thing and must be refused. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "iscsi/chap.h"
#include "protocol.h"

enum { STAGE_SECURITY = 0, STAGE_OPERATIONAL = 1, STAGE_FULL = 3 };
enum { PAIRS_MAX = 24, TEXT_MAX = 4096, LOGIN_PATIENCE_S = 5 };

/* What is wrong with a login, and the status it must bring (0: any refusal). */
#define WRONGS(X)                                                                                  \
    X(NOTHING, 0)                                                                                  \
    X(NO_TARGET, 0x0203)                                                                           \
    X(NO_NAME, 0x0207)                                                                             \
    X(STRANGER, 0x0202)                                                                            \
    X(STAGE_JUMPED, 0x0200)                                                                        \
    X(TRANSIT_AND_MORE, 0x0200)                                                                    \
    X(VERSION, 0x0205)                                                                             \
    X(NO_SESSION, 0x020a)                                                                          \
    X(SECOND_CONNECTION, 0x0206)                                                                   \
    X(TAG_CHANGED, 0x020b)                                                                         \
    X(KEY_TWICE, 0x0200)                                                                           \
    X(NO_PAIR, 0x0200)                                                                             \
    X(BAD_NAME, 0x0200)                                                                            \
    X(NO_END, 0x0200)                                                                              \
    X(NO_PROOF, 0)                                                                                 \
    X(WRONG_SECRET, 0x0201)                                                                        \
    X(UNKNOWN_USER, 0x0201)                                                                        \
    X(NO_METHOD, 0x0201)

#define X(name, status) WRONG_##name,
enum wrong { WRONGS(X) WRONG_COUNT };
#undef X
#define X(name, status) status,
static const uint16_t wrong_status[] = {WRONGS(X)};
#undef X
#define X(name, status) #name,
static const char *const wrong_names[] = {WRONGS(X)};
#undef X

struct login {
    struct host *host;
    struct host_conn *conn;
    enum login_aim aim;
    enum wrong wrong;
    bool needs_chap, mutual, stops_midway, breaks;
    uint8_t stage;
    uint16_t tsih, cid;
    uint32_t itt, cmd_sn, status;
    char pairs[PAIRS_MAX][300];
    uint32_t pair_count;
    struct host_parameters offered;
    char asked_digest[2][40];
    bool offers_digest[2], offers_r2t, offers_immediate, offers_burst, offers_first, offers_max_r2t,
        offers_segment;
};

/* ---- requests ---- */

static void pair(struct login *l, const char *format, ...) HF_PRINTF(2, 3);
static void pair(struct login *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ASSERT(l->pair_count < PAIRS_MAX);
    (void)vsnprintf(l->pairs[l->pair_count++], sizeof(l->pairs[0]), format, args);
    va_end(args);
}

static void shuffle(struct login *l) {
    for (uint32_t i = l->pair_count; i > 1; i--) {
        uint32_t j = (uint32_t)rng_below(&l->host->rng, i);
        char swap[sizeof(l->pairs[0])];
        memcpy(swap, l->pairs[i - 1], sizeof(swap));
        memcpy(l->pairs[i - 1], l->pairs[j], sizeof(swap));
        memcpy(l->pairs[j], swap, sizeof(swap));
    }
}

/* Takes the pairs collected. */
static uint32_t join(struct login *l, uint8_t *text) {
    uint32_t length = 0;
    for (uint32_t i = 0; i < l->pair_count; i++) {
        uint32_t bytes = (uint32_t)strlen(l->pairs[i]) + 1;
        ASSERT(length + bytes <= TEXT_MAX);
        memcpy(text + length, l->pairs[i], bytes);
        length += bytes;
    }
    l->pair_count = 0;
    return length;
}

static void send_request(struct login *l, uint8_t flags, const uint8_t *text, uint32_t bytes) {
    struct host *host = l->host;
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, flags};
    bhs[AT_LOGIN_VERSION_MIN] = l->wrong == WRONG_VERSION ? 1 : 0;
    memcpy(bhs + AT_ISID, host->isid, sizeof(host->isid));
    put_be16(bhs + AT_TSIH, l->tsih);
    put_be16(bhs + AT_CID, l->cid);
    put_be32(bhs + AT_ITT, l->itt);
    put_be32(bhs + AT_CMDSN, l->cmd_sn);
    conn_send(l->conn, bhs, text, bytes);
}

/* The answer to one request PDU. False: there is none, or it is a refusal (l->status). */
static bool take_answer(struct login *l, uint8_t flags) {
    struct host *host = l->host;
    struct protocol_world *w = host->world;
    struct host_conn *conn = l->conn;
    if (!conn_receive(conn, LOGIN_PATIENCE_S * NS_PER_S)) {
        if (!conn->ended && !conn->cut && !protocol_has_failed(w)) {
            protocol_fail(w, "host %u: a login request is not answered", host->index);
        }
        return false;
    }
    const uint8_t *bhs = conn->bhs;
    l->status = get_be16(bhs + AT_LOGIN_STATUS);
    if (bhs_opcode(bhs) != OP_LOGIN_RESPONSE ||
        memcmp(bhs + AT_ISID, host->isid, sizeof(host->isid)) != 0 ||
        (l->status == 0 && get_be32(bhs + AT_ITT) != l->itt)) {
        protocol_fail(w, "host %u: opcode 0x%02x answers a login", host->index, bhs_opcode(bhs));
        return false;
    }
    if (l->status != 0) {
        conn->may_end = "its login was refused";
        return false;
    }
    bool granted = (bhs[AT_FLAGS] & LOGIN_TRANSIT) != 0;
    if (get_be32(bhs + AT_EXP_CMDSN) != l->cmd_sn || (bhs[AT_FLAGS] & LOGIN_CONTINUE) != 0 ||
        (granted && (bhs[AT_FLAGS] & 0x8f) != (flags & 0x8f)) ||
        (bhs[AT_FLAGS] >> 2 & 3) != (flags >> 2 & 3)) {
        protocol_fail(w, "host %u: a login answer with flags 0x%02x to 0x%02x, ExpCmdSN %u of %u",
                      host->index, bhs[AT_FLAGS], flags, get_be32(bhs + AT_EXP_CMDSN), l->cmd_sn);
        return false;
    }
    return true;
}

/* Sends the pairs collected, in one PDU or several, and takes the answer. */
static bool request(struct login *l, uint8_t next, bool transit) {
    struct host *host = l->host;
    uint8_t text[TEXT_MAX];
    uint32_t length = join(l, text), sent = 0;
    uint8_t flags = (uint8_t)(l->stage << 2 | (transit ? LOGIN_TRANSIT | next : 0));
    if (l->breaks && rng_chance(&host->rng, 1, 3)) {
        host_break_later(l->conn);
    }
    bool splits = length > 1 && rng_chance(&host->rng, 1, 4);
    if (splits) {
        COUNT(host->world, logins_split);
    }
    while (splits && length - sent > 1 && rng_chance(&host->rng, 2, 3)) {
        uint32_t bytes = (uint32_t)rng_between(&host->rng, 1, length - sent - 1);
        uint8_t more = (uint8_t)(l->stage << 2 | LOGIN_CONTINUE);
        send_request(l, more, text + sent, bytes);
        sent += bytes;
        if (!take_answer(l, more)) {
            return false;
        }
    }
    if (l->wrong == WRONG_TRANSIT_AND_MORE) {
        flags |= LOGIN_CONTINUE | LOGIN_TRANSIT | STAGE_FULL;
    }
    if (l->stops_midway) { /* and says nothing more: the target's patience ends it */
        l->conn->may_end = "its login does not go on";
        if (!conn_wait_end(l->conn, 20 * NS_PER_S) && !l->conn->cut &&
            !protocol_has_failed(host->world)) {
            protocol_fail(host->world, "host %u: a login that stopped is not ended", host->index);
        }
        COUNT(host->world, logins_timed_out);
        return false;
    }
    send_request(l, flags, text + sent, length - sent);
    return take_answer(l, flags);
}

/* ---- answers ---- */

static const char *answer_of(const struct login *l, const char *key) {
    const struct host_conn *conn = l->conn;
    size_t length = strlen(key);
    for (uint32_t at = 0; at < conn->data_bytes;
         at += (uint32_t)strlen((const char *)conn->data + at) + 1) {
        const char *text = (const char *)conn->data + at;
        if (strncmp(text, key, length) == 0 && text[length] == '=') {
            return text + length + 1;
        }
    }
    return NULL;
}

static bool expect(struct login *l, const char *key, const char *value) {
    const char *answer = answer_of(l, key);
    if (answer == NULL || strcmp(answer, value) != 0) {
        protocol_fail(l->host->world, "host %u: %s is answered with %s, not %s", l->host->index,
                      key, answer != NULL ? answer : "nothing", value);
        return false;
    }
    return true;
}

static bool expect_number(struct login *l, const char *key, uint32_t value) {
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", value);
    return expect(l, key, text);
}

/* ---- operational keys ---- */

static uint32_t draw_length(struct rng *rng, uint32_t lo_log2, uint32_t hi_log2) {
    uint32_t bits = (uint32_t)rng_between(rng, lo_log2, hi_log2);
    return (1u << bits) + (uint32_t)rng_below(rng, 1u << bits) / 4 * 4;
}

static void draw_parameters(struct login *l) {
    struct rng *rng = &l->host->rng;
    static const char *const digests[] = {"None", "CRC32C", "CRC32C,None", "None,CRC32C"};
    for (int i = 0; i < 2; i++) {
        l->offers_digest[i] = rng_chance(rng, 1, 2);
        (void)snprintf(l->asked_digest[i], sizeof(l->asked_digest[i]), "%s",
                       digests[rng_below(rng, 4)]);
    }
    l->offered.header_digest = l->offers_digest[0] && l->asked_digest[0][0] == 'C';
    l->offered.data_digest = l->offers_digest[1] && l->asked_digest[1][0] == 'C';
    l->offers_r2t = rng_chance(rng, 2, 3);
    l->offered.initial_r2t = !l->offers_r2t || rng_chance(rng, 1, 3);
    l->offers_immediate = rng_chance(rng, 1, 2);
    l->offered.immediate_data = !l->offers_immediate || rng_chance(rng, 2, 3);
    l->offers_segment = rng_chance(rng, 3, 4);
    l->offered.our_segment_bytes = l->offers_segment ? draw_length(rng, 9, 15) : 8192;
    l->offers_burst = rng_chance(rng, 1, 2);
    l->offered.max_burst = l->offers_burst ? draw_length(rng, 11, 21) : 262144;
    l->offers_first = rng_chance(rng, 1, 2);
    l->offered.first_burst =
        MIN(l->offers_first ? draw_length(rng, 9, 17) : 65536u, l->offered.max_burst);
    l->offers_max_r2t = rng_chance(rng, 1, 2);
    l->offered.max_r2t = l->offers_max_r2t ? (uint32_t)rng_between(rng, 1, 12) : 1;
}

static void put_operational(struct login *l) {
    static const char *const names[] = {"HeaderDigest", "DataDigest"};
    for (int i = 0; i < 2; i++) {
        if (l->offers_digest[i]) {
            pair(l, "%s=%s", names[i], l->asked_digest[i]);
        }
    }
    if (l->offers_r2t) {
        pair(l, "InitialR2T=%s", l->offered.initial_r2t ? "Yes" : "No");
    }
    if (l->offers_immediate) {
        pair(l, "ImmediateData=%s", l->offered.immediate_data ? "Yes" : "No");
    }
    if (l->offers_segment) {
        pair(l, "MaxRecvDataSegmentLength=%u", l->offered.our_segment_bytes);
    }
    if (l->offers_burst) {
        pair(l, "MaxBurstLength=%u", l->offered.max_burst);
    }
    if (l->offers_first) {
        pair(l, "FirstBurstLength=%u", l->offered.first_burst);
    }
    if (l->offers_max_r2t) {
        pair(l, "MaxOutstandingR2T=%u", l->offered.max_r2t);
    }
    if (l->wrong == WRONG_KEY_TWICE) {
        pair(l, "MaxConnections=1");
        pair(l, "MaxConnections=1");
    } else if (l->wrong == WRONG_NO_PAIR) {
        pair(l, "ThisIsNoPair");
    } else if (rng_chance(&l->host->rng, 1, 4)) {
        pair(l, "X-com.example.key=%u", (uint32_t)rng_below(&l->host->rng, 9));
    }
}

/* What was offered in the answer just taken, by the rules of §13: what holds now. */
static bool judge_operational(struct login *l) {
    bool right = true;
    struct host_parameters *p = &l->offered;
    const char *segment = answer_of(l, "MaxRecvDataSegmentLength");
    p->their_segment_bytes = segment != NULL ? (uint32_t)strtoul(segment, NULL, 10) : 8192;
    if (l->offers_digest[0]) {
        right &= expect(l, "HeaderDigest", p->header_digest ? "CRC32C" : "None");
    }
    if (l->offers_digest[1]) {
        right &= expect(l, "DataDigest", p->data_digest ? "CRC32C" : "None");
    }
    if (l->aim == LOGIN_DISCOVERY) { /* the rest is irrelevant there, and may be said to be so */
        return right;
    }
    if (l->offers_r2t) {
        right &= expect(l, "InitialR2T", p->initial_r2t ? "Yes" : "No");
    }
    if (l->offers_immediate) {
        right &= expect(l, "ImmediateData", p->immediate_data ? "Yes" : "No");
    }
    p->max_burst = MIN(p->max_burst, (uint32_t)ISCSI_BURST_BYTES_MAX);
    p->first_burst = MIN(p->first_burst, (uint32_t)ISCSI_FIRST_BURST_BYTES_MAX);
    p->max_r2t = MIN(p->max_r2t, (uint32_t)ISCSI_R2T_MAX);
    if (l->offers_burst) {
        right &= expect_number(l, "MaxBurstLength", p->max_burst);
    }
    if (l->offers_first) {
        right &= expect_number(l, "FirstBurstLength", p->first_burst);
    }
    if (l->offers_max_r2t) {
        right &= expect_number(l, "MaxOutstandingR2T", p->max_r2t);
    }
    p->first_burst = MIN(p->first_burst, p->max_burst);
    return right;
}

/* ---- CHAP ---- */

static bool mutual_is_right(struct login *l, enum digest digest, uint8_t id,
                            const uint8_t *challenge, size_t challenge_bytes) {
    struct protocol_world *w = l->host->world;
    uint8_t given[DIGEST_RESULT_BYTES_MAX], due[DIGEST_RESULT_BYTES_MAX];
    size_t length = 0;
    const char *name = answer_of(l, "CHAP_N"), *text = answer_of(l, "CHAP_R");
    if (name == NULL || text == NULL || strcmp(name, "target") != 0 ||
        chap_binary(text, given, sizeof(given), &length) != OK ||
        chap_response(digest, id, "target-secret-0", challenge, challenge_bytes, due) != OK ||
        length != digest_bytes(digest) || memcmp(given, due, length) != 0) {
        protocol_fail(w, "host %u: the target did not prove who it is", l->host->index);
        return false;
    }
    COUNT(w, sessions_mutual);
    return true;
}

static bool chap(struct login *l, uint8_t next) {
    struct host *host = l->host;
    static const char *const lists[] = {"5", "5,6", "7", "7,5", "8,7,5", "99,5"};
    pair(l, "CHAP_A=%s", lists[rng_below(&host->rng, ARRAY_COUNT(lists))]);
    if (!request(l, 0, false)) {
        return false;
    }
    const char *algorithm = answer_of(l, "CHAP_A"), *id_text = answer_of(l, "CHAP_I");
    const char *text = answer_of(l, "CHAP_C");
    enum digest digest;
    uint32_t number, id;
    uint8_t challenge[CHAP_CHALLENGE_BYTES_MAX], response[DIGEST_RESULT_BYTES_MAX];
    size_t bytes = 0;
    if (algorithm == NULL || id_text == NULL || text == NULL ||
        chap_choose(algorithm, &digest, &number) != OK ||
        chap_binary(text, challenge, sizeof(challenge), &bytes) != OK || bytes < 16) {
        protocol_fail(host->world, "host %u: no challenge comes", host->index);
        return false;
    }
    l->conn->login_place = PLACE_challenged;
    id = (uint32_t)strtoul(id_text, NULL, 0);
    const char *secret =
        l->wrong == WRONG_WRONG_SECRET ? "not-the-secret-of-it" : "host-secret-of-it";
    if (chap_response(digest, (uint8_t)id, secret, challenge, bytes, response) != OK) {
        protocol_fail(host->world, "CHAP cannot be computed");
        return false;
    }
    char hex[2 * DIGEST_RESULT_BYTES_MAX + 3];
    chap_binary_text(response, digest_bytes(digest), hex);
    pair(l, "CHAP_N=%s", l->wrong == WRONG_UNKNOWN_USER ? "nobody" : "alice");
    pair(l, "CHAP_R=%s", hex);
    uint8_t ours[16];
    if (l->mutual) {
        char ours_hex[2 * sizeof(ours) + 3];
        rng_fill(&host->rng, ours, sizeof(ours));
        chap_binary_text(ours, sizeof(ours), ours_hex);
        pair(l, "CHAP_I=%u", 77u);
        pair(l, "CHAP_C=%s", ours_hex);
    }
    shuffle(l);
    return request(l, next, true) &&
           (!l->mutual || mutual_is_right(l, digest, 77, ours, sizeof(ours)));
}

/* ---- the whole way ---- */

static void put_leading(struct login *l) {
    struct host *host = l->host;
    if (l->wrong == WRONG_STRANGER) {
        pair(l, "InitiatorName=iqn.2025-01.org.example:stranger");
    } else if (l->wrong == WRONG_BAD_NAME) {
        pair(l, "InitiatorName=somebody");
    } else if (l->wrong != WRONG_NO_NAME) {
        pair(l, "InitiatorName=%s", host->name);
    }
    if (l->aim == LOGIN_DISCOVERY) {
        pair(l, "SessionType=Discovery");
        return;
    }
    pair(l, "TargetName=%s",
         l->wrong == WRONG_NO_TARGET ? "iqn.2025-01.org.example:none" : host->target);
    if (rng_chance(&host->rng, 1, 2)) {
        pair(l, "SessionType=Normal");
    }
}

/* The security stage, or what is left of it; `next` is where it wants to go. */
static bool security(struct login *l, uint8_t next) {
    if (l->needs_chap && l->wrong != WRONG_NO_PROOF) {
        pair(l, "AuthMethod=%s", rng_chance(&l->host->rng, 1, 2) ? "CHAP" : "KRB5,CHAP,None");
        shuffle(l);
        return request(l, 0, false) && expect(l, "AuthMethod", "CHAP") && chap(l, next);
    }
    if (l->wrong == WRONG_NO_METHOD) {
        pair(l, "AuthMethod=KRB5");
    } else if (rng_chance(&l->host->rng, 2, 3) || l->wrong == WRONG_NO_PROOF) {
        pair(l, "AuthMethod=None");
    }
    shuffle(l);
    return request(l, next, true);
}

static bool operational(struct login *l) {
    bool judged = false;
    put_operational(l);
    shuffle(l);
    if (l->wrong == WRONG_TAG_CHANGED) {
        if (!request(l, 0, false)) {
            return false;
        }
        l->itt++;
        (void)request(l, STAGE_FULL, true);
        return false;
    }
    if (l->wrong == WRONG_NO_END) {
        while (request(l, 0, false)) {
        }
        return false;
    }
    if (rng_chance(&l->host->rng, 1, 4)) { /* first the keys, then on */
        if (!request(l, 0, false) || !judge_operational(l)) {
            return false;
        }
        judged = true;
    }
    return request(l, STAGE_FULL, true) && (judged || judge_operational(l));
}

static bool walk(struct login *l) {
    struct host *host = l->host;
    bool by_security = l->needs_chap || l->wrong == WRONG_STAGE_JUMPED ||
                       l->wrong == WRONG_NO_METHOD || rng_chance(&host->rng, 1, 2);
    bool by_operational = l->wrong != WRONG_NOTHING || rng_chance(&host->rng, 5, 6);
    if (l->wrong == WRONG_NO_PROOF) {
        by_security = rng_chance(&host->rng, 1, 2);
    }
    put_leading(l);
    l->stage = by_security ? STAGE_SECURITY : STAGE_OPERATIONAL;
    if (by_security) {
        l->conn->login_place = PLACE_security;
        bool jumps = !by_operational && l->wrong == WRONG_NOTHING;
        if (l->wrong == WRONG_STAGE_JUMPED) {
            if (!request(l, 0, false)) {
                return false;
            }
            l->stage = STAGE_OPERATIONAL; /* nobody has agreed to that */
            return request(l, STAGE_FULL, true);
        }
        if (!security(l, jumps ? STAGE_FULL : STAGE_OPERATIONAL)) {
            return false;
        }
        if (jumps) { /* straight on: the defaults hold */
            l->offered = (struct host_parameters){.initial_r2t = true,
                                                  .immediate_data = true,
                                                  .our_segment_bytes = 8192,
                                                  .their_segment_bytes = 8192,
                                                  .max_burst = 262144,
                                                  .first_burst = 65536,
                                                  .max_r2t = 1};
            return true;
        }
        l->stage = STAGE_OPERATIONAL;
    }
    l->conn->login_place = PLACE_operational;
    return operational(l);
}

/* ---- before and after ---- */

static enum wrong draw_wrong(struct host *host, bool needs_chap) {
    for (;;) {
        enum wrong wrong = (enum wrong)rng_between(&host->rng, 1, WRONG_COUNT - 1);
        bool of_chap =
            wrong == WRONG_NO_PROOF || wrong == WRONG_WRONG_SECRET || wrong == WRONG_UNKNOWN_USER;
        if ((!of_chap || needs_chap) &&
            (wrong != WRONG_SECOND_CONNECTION || (host->in_session && !host->session_uncertain))) {
            return wrong;
        }
    }
}

static void login_init(struct login *l, struct host *host, enum login_aim aim) {
    *l = (struct login){.host = host,
                        .aim = aim,
                        .needs_chap = host->index % 2 == 1 && aim != LOGIN_DISCOVERY,
                        .itt = ++host->itt,
                        .cmd_sn = host->cmd_sn,
                        .cid = host->cid};
    if (aim == LOGIN_WRONG) {
        l->wrong = draw_wrong(host, l->needs_chap);
    }
    l->needs_chap &= l->wrong != WRONG_NO_METHOD && l->wrong != WRONG_STRANGER;
    l->mutual = l->needs_chap && rng_chance(&host->rng, 1, 2);
    if (aim == LOGIN_CONNECTION || l->wrong == WRONG_SECOND_CONNECTION) {
        l->tsih = host->tsih;
    } else if (l->wrong == WRONG_NO_SESSION) {
        l->tsih = 0xfffe;
    } else {
        l->cid = (uint16_t)rng_below(&host->rng, 4);
        l->cmd_sn = (uint32_t)rng_next(&host->rng);
    }
    if (l->wrong == WRONG_SECOND_CONNECTION) {
        l->cid = (uint16_t)(host->cid + 1);
    }
    draw_parameters(l);
}

/* A login that may not succeed has ended. */
static void judge_refusal(struct login *l) {
    struct protocol_world *w = l->host->world;
    uint32_t due = wrong_status[l->wrong];
    if ((l->conn->cut && l->status == 0) || l->stops_midway || protocol_has_failed(w)) {
        return; /* it was cut before anybody could answer */
    }
    if (l->status >> 8 != 2 || (due != 0 && l->status != due)) {
        protocol_fail(w, "host %u: a login with %s wrong is answered with status 0x%04x",
                      l->host->index, wrong_names[l->wrong], l->status);
        return;
    }
    COUNT(w, logins_refused);
    w->result->stats.count[PSTAT_logins_refused_chap] += l->wrong >= WRONG_NO_PROOF;
    if (!conn_wait_end(l->conn, NS_PER_S) && !l->conn->cut) {
        protocol_fail(w, "host %u: a refused login's connection goes on", l->host->index);
    }
}

/* Logged in: the new connection takes the place of the old one, whose commands have ended. */
static void enter(struct login *l) {
    struct host *host = l->host;
    struct protocol_world *w = host->world;
    struct host_conn *old = host->conn;
    bool goes_on = l->aim == LOGIN_CONNECTION;
    uint16_t tsih = get_be16(l->conn->bhs + AT_TSIH);
    if (tsih == 0 || (goes_on && tsih != host->tsih)) {
        protocol_fail(w, "host %u: TSIH %u after a login", host->index, tsih);
    }
    if (old != NULL) {
        tasks_cover(host, goes_on ? TASK_EVENT_new_connection : TASK_EVENT_new_session);
        old->may_end = "its session is elsewhere";
    }
    if (goes_on) { /* what was negotiated for the session stays (§6.3.4) */
        struct host_parameters was = host->of_session;
        was.header_digest = l->offered.header_digest;
        was.data_digest = l->offered.data_digest;
        was.our_segment_bytes = l->offered.our_segment_bytes;
        was.their_segment_bytes = l->offered.their_segment_bytes;
        l->offered = was;
        COUNT(w, connections_reinstated);
    } else {
        COUNT(w, sessions);
        w->result->stats.count[PSTAT_sessions_chap] += l->needs_chap;
        w->result->stats.count[PSTAT_sessions_reinstated] += host->in_session;
    }
    tasks_forget(host);
    host->attention_due |= !goes_on;
    host->conn = l->conn;
    host->in_session = true;
    host->session_uncertain = l->conn->cut;
    host->tsih = tsih;
    host->cid = l->cid;
    host->cmd_sn = l->cmd_sn;
    host->exp_cmd_sn = l->cmd_sn;
    host->max_cmd_sn = l->cmd_sn + w->commands_max - 1;
    l->conn->now = host->of_session = l->offered;
    l->conn->state = CONN_FULL;
    l->conn->has_pdu = false;
    l->conn->may_end = l->conn->cut               ? "it was cut"
                       : w->cold_resets_open != 0 ? "the target was reset"
                                                  : NULL;
    if (old != NULL) {
        if (!old->cut && !conn_wait_end(old, NS_PER_S) && !protocol_has_failed(w)) {
            protocol_fail(w, "host %u: the old connection goes on", host->index);
        }
        conn_free(old);
    }
}

/* SendTargets names what the host may use, and nothing else. */
static void discover(struct login *l) {
    struct host *host = l->host;
    struct host_conn *conn = l->conn;
    uint8_t bhs[BHS_BYTES] = {OP_TEXT | BHS_IMMEDIATE, BHS_FINAL};
    conn->now = l->offered;
    conn->state = CONN_FULL;
    conn->has_pdu = false;
    conn->may_end = conn->cut ? "it was cut" : NULL;
    host->waited_itt = ++host->itt;
    put_be32(bhs + AT_ITT, host->waited_itt);
    put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
    put_be32(bhs + AT_CMDSN, l->cmd_sn);
    conn->is_discovery = true;
    conn_send(conn, bhs, "SendTargets=All", sizeof("SendTargets=All"));
    if (!conn_receive(conn, LOGIN_PATIENCE_S * NS_PER_S)) {
        if (!conn->cut && !protocol_has_failed(host->world)) {
            protocol_fail(host->world, "host %u: SendTargets is not answered", host->index);
        }
        return;
    }
    const char *name = answer_of(l, "TargetName");
    if (bhs_opcode(conn->bhs) != OP_TEXT_RESPONSE || name == NULL ||
        strcmp(name, host->target) != 0) {
        protocol_fail(host->world, "host %u: SendTargets is answered with %s", host->index,
                      name != NULL ? name : "nothing");
    }
    COUNT(host->world, discoveries);
}

bool host_login(struct host *host, enum login_aim aim) {
    struct protocol_world *w = host->world;
    struct login login, *l = &login;
    login_init(l, host, aim);
    l->conn = conn_new(host);
    if (!host->behaves) {
        l->stops_midway = rng_chance(&host->rng, 1, 60);
        l->breaks = rng_chance(&host->rng, 1, 5);
        if (l->breaks && rng_chance(&host->rng, 1, 4)) {
            host_break_later(l->conn);
        }
    }
    if (host->conn != NULL && (aim == LOGIN_SESSION || aim == LOGIN_CONNECTION)) {
        host->conn->may_end = "its host logs in again";
    }
    l->conn->may_end = l->stops_midway ? "its login stops" : l->conn->may_end;
    bool in = walk(l);
    if (protocol_has_failed(w)) {
        conn_free(l->conn);
        return false;
    }
    if (in && aim != LOGIN_WRONG && (l->conn->bhs[AT_FLAGS] & LOGIN_TRANSIT) == 0) {
        protocol_fail(w, "host %u: the target does not end the login", host->index);
    }
    if (in && (aim == LOGIN_SESSION || aim == LOGIN_CONNECTION)) {
        enter(l);
        return true;
    }
    if (in && aim == LOGIN_DISCOVERY) {
        discover(l);
        l->conn->may_end = "the host leaves";
    } else if (in) {
        protocol_fail(w, "host %u: a login with %s wrong succeeded", host->index,
                      wrong_names[l->wrong]);
    } else if (aim == LOGIN_WRONG) {
        judge_refusal(l);
    } else {
        host_login_failed(host, l->conn, aim, l->status);
    }
    conn_free(l->conn);
    return false;
}
