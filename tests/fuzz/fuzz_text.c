// SPDX-License-Identifier: MPL-2.0
/* Text keys and names: the first byte picks the stage, the rest is the data segment. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "iscsi/iscsi.h"
#include "iscsi/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition) {
    if (!condition) {
        abort();
    }
}

/* What came out must be within what the rules allow, whatever went in. */
static void check_outcome(const struct iscsi_parameters *p) {
    need(p->max_connections == 1 && p->error_recovery_level == 0);
    need(p->initiator_segment_bytes >= 512 && p->initiator_segment_bytes <= 0xffffff);
    need(p->max_burst_bytes >= 512 && p->max_burst_bytes <= ISCSI_BURST_BYTES_MAX);
    need(p->first_burst_bytes <= p->max_burst_bytes);
    need(p->max_outstanding_r2t >= 1 && p->max_outstanding_r2t <= ISCSI_R2T_MAX);
    need(p->data_pdu_in_order && p->data_sequence_in_order);
    need(strlen(p->initiator_name) <= ISCSI_NAME_BYTES_MAX);
    need(strlen(p->target_name) <= ISCSI_NAME_BYTES_MAX);
    (void)!iscsi_name_check(p->initiator_name, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) {
        return 0;
    }
    static const enum keys_stage stages[] = {KEYS_SECURITY, KEYS_OPERATIONAL, KEYS_FULL_FEATURE};
    uint8_t room[2048];
    struct text_buffer answer = {room, 0, data[0] & 0x80 ? 64 : sizeof(room), false};
    struct keys_negotiation keys;
    struct errmsg message = {0};
    bool send_targets = false;
    struct text_pair pair = {0};
    keys_init(&keys);
    int error = keys_negotiate(&keys, stages[data[0] % 3], data + 1, bytes - 1, &answer,
                               &send_targets, &pair, &message);
    keys_settle(&keys);
    check_outcome(&keys.parameters);
    need(answer.length <= answer.room);
    need((error != OK) == (message.text[0] != 0));
    /* An answer is text keys itself. */
    size_t at = 0;
    int end = OK;
    while (end == OK) {
        end = text_next(room, answer.length, &at, &pair);
    }
    need(end == ERR_NOT_FOUND);
    return 0;
}
