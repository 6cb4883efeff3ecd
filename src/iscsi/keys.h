// SPDX-License-Identifier: MPL-2.0
/* Negotiation of operational parameters (RFC 7143 §6.2, §13): one table of keys and their rules. */
#ifndef HOLDFAST_ISCSI_KEYS_H
#define HOLDFAST_ISCSI_KEYS_H

#include "iscsi/chap.h"
#include "iscsi/text.h"

/* The outcome. Lengths in bytes. */
struct iscsi_parameters {
    bool header_digest, data_digest;
    bool initial_r2t, immediate_data;
    bool data_pdu_in_order, data_sequence_in_order;
    uint32_t max_connections;
    uint32_t initiator_segment_bytes; /* MaxRecvDataSegmentLength it declared */
    uint32_t max_burst_bytes, first_burst_bytes;
    uint32_t time2wait_s, time2retain_s;
    uint32_t max_outstanding_r2t;
    uint32_t error_recovery_level;
    uint32_t protocol_level;
    /* Declarations of the leading login request. */
    bool discovery, session_type_given;
    char initiator_name[ISCSI_NAME_BYTES_MAX + 1];
    char target_name[ISCSI_NAME_BYTES_MAX + 1];
    char initiator_alias[ISCSI_VALUE_BYTES_MAX + 1];
};

/* What the initiator said about authentication; login.c answers. */
enum keys_given {
    GIVEN_AUTH_METHOD = 1 << 0,
    GIVEN_CHAP_A = 1 << 1,
    GIVEN_CHAP_N = 1 << 2,
    GIVEN_CHAP_R = 1 << 3,
    GIVEN_CHAP_I = 1 << 4,
    GIVEN_CHAP_C = 1 << 5,
    GIVEN_CHAP = GIVEN_CHAP_A | GIVEN_CHAP_N | GIVEN_CHAP_R | GIVEN_CHAP_I | GIVEN_CHAP_C,
};

struct keys_security {
    uint32_t given; /* in the request just taken; the caller clears it */
    char methods[ISCSI_VALUE_BYTES_MAX + 1];
    char algorithms[ISCSI_VALUE_BYTES_MAX + 1];
    char name[ISCSI_VALUE_BYTES_MAX + 1];
    uint32_t id;
    uint8_t response[DIGEST_RESULT_BYTES_MAX];
    size_t response_bytes;
    uint8_t challenge[CHAP_CHALLENGE_BYTES_MAX];
    size_t challenge_bytes;
};

enum keys_stage {
    KEYS_SECURITY = 1 << 0,
    KEYS_OPERATIONAL = 1 << 1,
    KEYS_FULL_FEATURE = 1 << 2,
};

struct keys_negotiation {
    struct iscsi_parameters parameters;
    struct keys_security security;
    uint64_t seen; /* bit per line of the table: a key is negotiated once */
    uint32_t count;
    bool segment_declared; /* ours has been sent */
};

/* Sets the defaults of RFC 7143 §13. */
void keys_init(struct keys_negotiation *negotiation);

/* Takes all pairs of a request, writes the answers. OK; ERR_PROTOCOL when the initiator broke the
 * rules so that the negotiation has failed (reterr says how); ERR_LIMIT: too many keys.
 * SendTargets is left to the caller: its value is returned (empty string allowed) and
 * ret_send_targets set, in full feature phase only. May be NULL elsewhere. */
HF_MUST_CHECK int keys_negotiate(struct keys_negotiation *negotiation, enum keys_stage stage,
                                 const uint8_t *bytes, size_t length, struct text_buffer *answer,
                                 bool *ret_send_targets, struct text_pair *ret_targets_pair,
                                 struct errmsg *reterr);

/* Reconciles what depends on each other when the login ends. */
void keys_settle(struct keys_negotiation *negotiation);

#endif
