// SPDX-License-Identifier: MPL-2.0
/* The table of keys.
 *
 * A line says in which stages an initiator may send the key, whether it means anything in a
 * discovery session, the rule that makes one value out of its offer and ours, the legal range, our
 * own value and where the outcome goes. Rules (RFC 7143 §6.2):
 *
 *   declare    the initiator says something about itself; no answer
 *   and, or    boolean functions of the offer and our value
 *   min, max   of the offer and our value
 *   list       the first value of the offer that we know
 *   no         keys of RFC 3720 that RFC 7143 dropped: markers are off
 *   security   taken down for login.c, which knows what to answer
 *
 * An offer that is not understood is answered NotUnderstood, one that is out of range Reject, and
 * the default stays; a key that comes twice in one negotiation ends it (§6.2). */
#include "iscsi/keys.h"

#include <string.h>

#include "base/math.h"

enum rule {
    RULE_DECLARE_TEXT,
    RULE_DECLARE_NUMBER,
    RULE_AND,
    RULE_OR,
    RULE_MIN,
    RULE_MAX,
    RULE_LIST,
    RULE_NO,
    RULE_IRRELEVANT,
    RULE_SESSION_TYPE,
    RULE_SECURITY_TEXT,
    RULE_SECURITY_NUMBER,
    RULE_SECURITY_BINARY,
    RULE_SEND_TARGETS,
    RULE_TARGET_ONLY, /* only a target may say it */
};

struct key {
    const char *name;
    enum rule rule;
    uint32_t stages;
    bool irrelevant_in_discovery;
    uint32_t least, most;
    uint32_t ours;
    const char *known; /* list: our values, separated by commas; bit n of the outcome: which */
    size_t at;         /* in struct iscsi_parameters, or keys_security */
    size_t room;       /* of a text there */
};

#define AT(field) offsetof(struct iscsi_parameters, field)
#define TEXT(field) AT(field), sizeof(((struct iscsi_parameters *)0)->field)
#define SAID(field)                                                                                \
    offsetof(struct keys_security, field), sizeof(((struct keys_security *)0)->field)
#define SEC KEYS_SECURITY
#define OPER KEYS_OPERATIONAL
#define LOGIN (KEYS_SECURITY | KEYS_OPERATIONAL)
#define FULL KEYS_FULL_FEATURE
#define LENGTH_MAX 0xffffffu
#define NOWHERE SIZE_MAX

static const struct key keys[] = {
    {"AuthMethod", RULE_SECURITY_TEXT, SEC, false, 0, 0, GIVEN_AUTH_METHOD, NULL, SAID(methods)},
    {"CHAP_A", RULE_SECURITY_TEXT, SEC, false, 0, 0, GIVEN_CHAP_A, NULL, SAID(algorithms)},
    {"CHAP_N", RULE_SECURITY_TEXT, SEC, false, 0, 0, GIVEN_CHAP_N, NULL, SAID(name)},
    {"CHAP_R", RULE_SECURITY_BINARY, SEC, false, 0, 0, GIVEN_CHAP_R, NULL, SAID(response)},
    {"CHAP_I", RULE_SECURITY_NUMBER, SEC, false, 0, 255, GIVEN_CHAP_I, NULL, SAID(id)},
    {"CHAP_C", RULE_SECURITY_BINARY, SEC, false, 0, 0, GIVEN_CHAP_C, NULL, SAID(challenge)},
    {"HeaderDigest", RULE_LIST, OPER, false, 0, 0, 0, "None,CRC32C", AT(header_digest), 0},
    {"DataDigest", RULE_LIST, OPER, false, 0, 0, 0, "None,CRC32C", AT(data_digest), 0},
    {"MaxConnections", RULE_MIN, OPER, true, 1, 65535, 1, NULL, AT(max_connections), 0},
    {"SendTargets", RULE_SEND_TARGETS, FULL, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"TargetName", RULE_DECLARE_TEXT, LOGIN, false, 0, 0, 0, NULL, TEXT(target_name)},
    {"InitiatorName", RULE_DECLARE_TEXT, LOGIN, false, 0, 0, 0, NULL, TEXT(initiator_name)},
    {"TargetAlias", RULE_TARGET_ONLY, LOGIN | FULL, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"InitiatorAlias", RULE_DECLARE_TEXT, LOGIN | FULL, false, 0, 0, 0, NULL,
     TEXT(initiator_alias)},
    {"TargetAddress", RULE_TARGET_ONLY, LOGIN | FULL, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"TargetPortalGroupTag", RULE_TARGET_ONLY, LOGIN | FULL, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"InitialR2T", RULE_OR, OPER, true, 0, 0, 0, NULL, AT(initial_r2t), 0},
    {"ImmediateData", RULE_AND, OPER, true, 0, 0, 1, NULL, AT(immediate_data), 0},
    {"MaxRecvDataSegmentLength", RULE_DECLARE_NUMBER, LOGIN | FULL, false, 512, LENGTH_MAX, 0, NULL,
     AT(initiator_segment_bytes), 0},
    {"MaxBurstLength", RULE_MIN, OPER, true, 512, LENGTH_MAX, ISCSI_BURST_BYTES_MAX, NULL,
     AT(max_burst_bytes), 0},
    {"FirstBurstLength", RULE_MIN, OPER, true, 512, LENGTH_MAX, ISCSI_FIRST_BURST_BYTES_MAX, NULL,
     AT(first_burst_bytes), 0},
    {"DefaultTime2Wait", RULE_MAX, OPER, false, 0, 3600, 2, NULL, AT(time2wait_s), 0},
    {"DefaultTime2Retain", RULE_MIN, OPER, false, 0, 3600, 20, NULL, AT(time2retain_s), 0},
    {"MaxOutstandingR2T", RULE_MIN, OPER, true, 1, 65535, ISCSI_R2T_MAX, NULL,
     AT(max_outstanding_r2t), 0},
    {"DataPDUInOrder", RULE_OR, OPER, true, 0, 0, 1, NULL, AT(data_pdu_in_order), 0},
    {"DataSequenceInOrder", RULE_OR, OPER, true, 0, 0, 1, NULL, AT(data_sequence_in_order), 0},
    {"ErrorRecoveryLevel", RULE_MIN, OPER, false, 0, 2, 0, NULL, AT(error_recovery_level), 0},
    {"SessionType", RULE_SESSION_TYPE, LOGIN, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"IFMarker", RULE_NO, OPER, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"OFMarker", RULE_NO, OPER, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"IFMarkInt", RULE_IRRELEVANT, OPER, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"OFMarkInt", RULE_IRRELEVANT, OPER, false, 0, 0, 0, NULL, NOWHERE, 0},
    {"TaskReporting", RULE_LIST, OPER, true, 0, 0, 0, "RFC3720", NOWHERE, 0},
    {"iSCSIProtocolLevel", RULE_MIN, OPER, true, 0, 31, 1, NULL, AT(protocol_level), 0},
};
_Static_assert(ARRAY_COUNT(keys) <= 64, "one bit each in keys_negotiation.seen");

void keys_init(struct keys_negotiation *negotiation) {
    memset(negotiation, 0, sizeof(*negotiation));
    negotiation->parameters = (struct iscsi_parameters){
        .initial_r2t = true,
        .immediate_data = true,
        .data_pdu_in_order = true,
        .data_sequence_in_order = true,
        .max_connections = 1,
        .initiator_segment_bytes = 8192,
        .max_burst_bytes = 262144,
        .first_burst_bytes = 65536,
        .time2wait_s = 2,
        .time2retain_s = 20,
        .max_outstanding_r2t = 1,
    };
}

static void store_number(struct keys_negotiation *negotiation, const struct key *key,
                         uint32_t number) {
    if (key->at != NOWHERE) {
        memcpy((uint8_t *)&negotiation->parameters + key->at, &number, sizeof(number));
    }
}

static void store_bool(struct keys_negotiation *negotiation, const struct key *key, bool value) {
    if (key->at != NOWHERE) {
        memcpy((uint8_t *)&negotiation->parameters + key->at, &value, sizeof(value));
    }
}

/* Whether the comma-separated list `known` holds value[0, bytes); returns its place or -1. */
static int list_place(const char *known, const char *value, size_t bytes) {
    for (int place = 0; known != NULL; place++) {
        const char *comma = strchr(known, ',');
        size_t length = comma != NULL ? (size_t)(comma - known) : strlen(known);
        if (length == bytes && memcmp(known, value, bytes) == 0) {
            return place;
        }
        known = comma != NULL ? comma + 1 : NULL;
    }
    return -1;
}

static void negotiate_list(struct keys_negotiation *negotiation, const struct key *key,
                           const char *value, struct text_buffer *answer) {
    while (value != NULL) {
        const char *comma = strchr(value, ',');
        size_t length = comma != NULL ? (size_t)(comma - value) : strlen(value);
        int place = list_place(key->known, value, length);
        if (place >= 0) {
            char chosen[ISCSI_VALUE_BYTES_MAX + 1];
            memcpy(chosen, value, length);
            chosen[length] = 0;
            store_bool(negotiation, key, place != 0);
            text_put(answer, key->name, chosen);
            return;
        }
        value = comma != NULL ? comma + 1 : NULL;
    }
    text_put(answer, key->name, "Reject");
}

static void negotiate_bool(struct keys_negotiation *negotiation, const struct key *key,
                           const char *value, struct text_buffer *answer) {
    bool yes = strcmp(value, "Yes") == 0;
    if (!yes && strcmp(value, "No") != 0) {
        text_put(answer, key->name, "Reject");
        return;
    }
    bool outcome = false;
    if (key->rule == RULE_AND) {
        outcome = yes && key->ours != 0;
    } else if (key->rule == RULE_OR) {
        outcome = yes || key->ours != 0;
    }
    store_bool(negotiation, key, outcome);
    text_put(answer, key->name, outcome ? "Yes" : "No");
}

static void negotiate_number(struct keys_negotiation *negotiation, const struct key *key,
                             const char *value, struct text_buffer *answer) {
    uint32_t number = 0;
    if (text_number(value, &number) != OK || number < key->least || number > key->most) {
        text_put(answer, key->name, "Reject");
        return;
    }
    if (key->rule == RULE_DECLARE_NUMBER) {
        store_number(negotiation, key, number);
        return;
    }
    number = key->rule == RULE_MIN ? MIN(number, key->ours) : MAX(number, key->ours);
    store_number(negotiation, key, number);
    text_put_number(answer, key->name, number);
}

static int negotiate_declaration(struct keys_negotiation *negotiation, const struct key *key,
                                 const char *value, struct errmsg *reterr) {
    size_t length = strlen(value);
    if (length >= key->room) {
        return errmsg_set(reterr, ERR_PROTOCOL, "the value of %s is too long", key->name);
    }
    memcpy((uint8_t *)&negotiation->parameters + key->at, value, length + 1);
    return OK;
}

/* Texts and numbers lie behind their offset; of binary values there are two, each with its length
 * behind it. */
static int take_security(struct keys_negotiation *negotiation, const struct key *key,
                         const char *value, struct errmsg *reterr) {
    struct keys_security *security = &negotiation->security;
    uint8_t *at = (uint8_t *)security + key->at;
    size_t length = strlen(value);
    int error = OK;
    if (key->rule == RULE_SECURITY_TEXT) {
        memcpy(at, value, length + 1); /* as long as any value may be */
    } else if (key->rule == RULE_SECURITY_NUMBER) {
        uint32_t number = 0;
        error = text_number(value, &number);
        error = error == OK && number > key->most ? ERR_RANGE : error;
        memcpy(at, &number, sizeof(number));
    } else {
        error = chap_binary(value, at, key->room,
                            key->ours == GIVEN_CHAP_R ? &security->response_bytes
                                                      : &security->challenge_bytes);
    }
    if (error != OK) {
        return errmsg_set(reterr, ERR_PROTOCOL, "the value of %s is malformed", key->name);
    }
    security->given |= key->ours;
    return OK;
}

static int negotiate_session_type(struct keys_negotiation *negotiation, const char *value,
                                  struct errmsg *reterr) {
    bool discovery = strcmp(value, "Discovery") == 0;
    if (!discovery && strcmp(value, "Normal") != 0) {
        return errmsg_set(reterr, ERR_PROTOCOL, "there is no SessionType %s", value);
    }
    negotiation->parameters.discovery = discovery;
    negotiation->parameters.session_type_given = true;
    return OK;
}

static int negotiate_key(struct keys_negotiation *negotiation, const struct key *key,
                         const char *value, struct text_buffer *answer, struct errmsg *reterr) {
    if (key->irrelevant_in_discovery && negotiation->parameters.discovery) {
        text_put(answer, key->name, "Irrelevant");
        return OK;
    }
    switch (key->rule) {
    case RULE_DECLARE_TEXT:
        return negotiate_declaration(negotiation, key, value, reterr);
    case RULE_AND:
    case RULE_OR:
    case RULE_NO:
        negotiate_bool(negotiation, key, value, answer);
        return OK;
    case RULE_MIN:
    case RULE_MAX:
    case RULE_DECLARE_NUMBER:
        negotiate_number(negotiation, key, value, answer);
        return OK;
    case RULE_LIST:
        negotiate_list(negotiation, key, value, answer);
        return OK;
    case RULE_IRRELEVANT:
        text_put(answer, key->name, "Irrelevant");
        return OK;
    case RULE_SESSION_TYPE:
        return negotiate_session_type(negotiation, value, reterr);
    case RULE_SECURITY_TEXT:
    case RULE_SECURITY_NUMBER:
    case RULE_SECURITY_BINARY:
        return take_security(negotiation, key, value, reterr);
    case RULE_TARGET_ONLY:
        return errmsg_set(reterr, ERR_PROTOCOL, "%s is not the initiator's to say", key->name);
    case RULE_SEND_TARGETS:
        break;
    }
    return OK;
}

/* Answers to what we said ourselves come back as keys too: our MaxRecvDataSegmentLength is a
 * declaration, so there are none; but old initiators answer with a state word. */
static bool is_state_word(const char *value) {
    return strcmp(value, "NotUnderstood") == 0 || strcmp(value, "Irrelevant") == 0 ||
           strcmp(value, "Reject") == 0;
}

static int find_key(const char *name) {
    for (uint32_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int keys_negotiate(struct keys_negotiation *negotiation, enum keys_stage stage,
                   const uint8_t *bytes, size_t length, struct text_buffer *answer,
                   bool *ret_send_targets, struct text_pair *ret_targets_pair,
                   struct errmsg *reterr) {
    size_t at = 0;
    for (;;) {
        struct text_pair pair;
        int error = text_next(bytes, length, &at, &pair);
        if (error == ERR_NOT_FOUND) {
            return OK;
        }
        if (error != OK) {
            return errmsg_set(reterr, error, "malformed text keys");
        }
        if (++negotiation->count > ISCSI_KEYS_MAX) {
            return errmsg_set(reterr, ERR_LIMIT, "more than %u keys", ISCSI_KEYS_MAX);
        }
        int index = find_key(pair.key);
        if (index < 0) {
            text_put(answer, pair.key, "NotUnderstood");
            continue;
        }
        const struct key *key = &keys[index];
        if (is_state_word(pair.value) && key->rule != RULE_DECLARE_TEXT) {
            continue;
        }
        if (strlen(pair.value) > ISCSI_VALUE_BYTES_MAX && key->rule != RULE_SECURITY_BINARY) {
            return errmsg_set(reterr, ERR_PROTOCOL, "the value of %s is too long", key->name);
        }
        if ((negotiation->seen >> index & 1) != 0) {
            return errmsg_set(reterr, ERR_PROTOCOL, "%s was negotiated twice", key->name);
        }
        negotiation->seen |= 1ull << index;
        if ((key->stages & stage) == 0) {
            text_put(answer, pair.key, "Reject");
        } else if (key->rule == RULE_SEND_TARGETS) {
            *ret_send_targets = true;
            *ret_targets_pair = pair;
        } else {
            error = negotiate_key(negotiation, key, pair.value, answer, reterr);
            if (error != OK) {
                return error;
            }
        }
    }
}

void keys_settle(struct keys_negotiation *negotiation) {
    struct iscsi_parameters *parameters = &negotiation->parameters;
    /* RFC 7143 §13.14: FirstBurstLength must not exceed MaxBurstLength. */
    parameters->first_burst_bytes = MIN(parameters->first_burst_bytes, parameters->max_burst_bytes);
}
