// SPDX-License-Identifier: MPL-2.0
/* Asymmetric logical unit access (SPC-4 §5.8; REPORT TARGET PORT GROUPS §6.37, SET §6.45).
 *
 * One box: all target ports form one group, which is active/optimized, whatever anybody asks for.
 * That is what lets hosts spread I/O over all paths. A second box becomes a second group here, with
 * the state it has; everything else is the same already: ports know their group (struct scsi_port),
 * and page 83h tells it. */
#include <string.h>

#include "scsi/internal.h"

enum { ACTIVE_OPTIMIZED = 0, AO_SUPPORTED = 0x01, STATUS_BY_COMMAND = 1 };
enum { GROUP = 1, LENGTH_ONLY = 0, EXTENDED = 1 };

void report_groups_check(struct scsi_task *task) {
    if (task->cdb[1] >> 5 > EXTENDED) {
        scsi_fail_cdb(task, 1, 7);
    }
}

void report_groups_run(struct scsi_task *task) {
    const struct scsi_target *target = task->nexus->target;
    uint8_t bytes[SMALL_RESPONSE_BYTES] = {0};
    uint16_t ports[SCSI_PORTS_MAX];
    uint32_t count = scsi_target_port_list(target, ports);
    uint32_t at = 4;
    if (task->cdb[1] >> 5 == EXTENDED) {
        bytes[4] = EXTENDED << 4;
        at = 8; /* no implicit transition takes longer than a host's default */
    }
    uint8_t *group = bytes + at;
    group[0] = ACTIVE_OPTIMIZED;
    group[1] = AO_SUPPORTED;
    put_be16(group + 2, GROUP);
    group[5] = task->lun->group_was_set ? STATUS_BY_COMMAND : 0;
    group[7] = (uint8_t)count;
    at += 8;
    for (uint32_t i = 0; i < count; i++) {
        put_be16(bytes + at + 2, ports[i]);
        at += 4;
    }
    put_be32(bytes, at - 4);
    scsi_respond(task, bytes, at);
}

/* Every descriptor is looked at before any takes effect; the only effect there can be is that it
 * is remembered who set the state. */
void set_groups_run(struct scsi_task *task) {
    uint32_t length = task->data_out_bytes;
    if (task->transfer_bytes == 0) {
        scsi_task_end(task);
        return;
    }
    if (length != task->transfer_bytes || length < 4 || length % 4 != 0) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
    }
    for (uint32_t at = 4; at + 4 <= length && !task->failed; at += 4) {
        const uint8_t *descriptor = task->data_out + at;
        if ((descriptor[0] & 0x0f) != ACTIVE_OPTIMIZED) {
            scsi_fail_parameter(task, at, 3);
        } else if (get_be16(descriptor + 2) != GROUP) {
            scsi_fail_parameter(task, at + 2, NO_BIT);
        }
    }
    task->lun->group_was_set |= !task->failed && length > 4;
    scsi_task_end(task);
}
