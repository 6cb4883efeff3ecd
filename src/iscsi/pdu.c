// SPDX-License-Identifier: MPL-2.0
/* Checks that need nothing but the header. */
#include "iscsi/pdu.h"

static const struct {
    uint8_t opcode;
    bool immediate_allowed, data_allowed;
    const char *name;
} kinds[] = {
    {OP_NOP_OUT, true, true, "NOP-Out"},
    {OP_SCSI_COMMAND, true, true, "SCSI Command"},
    {OP_TASK_MANAGEMENT, true, false, "Task Management Request"},
    {OP_LOGIN, true, true, "Login Request"},
    {OP_TEXT, true, true, "Text Request"},
    {OP_DATA_OUT, false, true, "SCSI Data-Out"},
    {OP_LOGOUT, true, false, "Logout Request"},
    {OP_SNACK, false, false, "SNACK Request"},
};

int bhs_check(const uint8_t bhs[BHS_BYTES], uint32_t segment_bytes_max, struct errmsg *reterr) {
    uint32_t data_bytes = bhs_data_bytes(bhs);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].opcode != bhs_opcode(bhs)) {
            continue;
        }
        if (bhs_is_immediate(bhs) && !kinds[i].immediate_allowed) {
            return errmsg_set(reterr, ERR_PROTOCOL, "%s cannot be immediate", kinds[i].name);
        }
        if (data_bytes != 0 && !kinds[i].data_allowed) {
            return errmsg_set(reterr, ERR_PROTOCOL, "%s has a data segment", kinds[i].name);
        }
        if (data_bytes > segment_bytes_max) {
            return errmsg_set(reterr, ERR_PROTOCOL,
                              "%s has a data segment of %u bytes; at most %u were declared",
                              kinds[i].name, data_bytes, segment_bytes_max);
        }
        if (bhs_ahs_bytes(bhs) != 0 && bhs_opcode(bhs) != OP_SCSI_COMMAND) {
            return errmsg_set(reterr, ERR_PROTOCOL, "%s has an additional header", kinds[i].name);
        }
        return OK;
    }
    return errmsg_set(reterr, ERR_PROTOCOL, "unknown opcode 0x%02x", bhs_opcode(bhs));
}
