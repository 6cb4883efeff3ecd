// SPDX-License-Identifier: MPL-2.0
/* The small commands that every unit answers (SPC-4 §6, SBC-3 §5), INQUIRY and modes apart. */
#include <string.h>

#include "base/math.h"
#include "scsi/internal.h"

void test_unit_ready_run(struct scsi_task *task) {
    scsi_task_end(task);
}

/* Commands for movable or spinning media: accepted, there is nothing to move or spin. A unit that
 * one initiator could stop would be gone for all the others, so STOP changes nothing either. */
void nothing_run(struct scsi_task *task) {
    scsi_task_end(task);
}

void start_stop_check(struct scsi_task *task) {
    uint32_t power_condition = task->cdb[4] >> 4;
    bool load_eject = (task->cdb[4] & 0x02) != 0;
    /* No power condition is supported but START_VALID and LU_CONTROL (SBC-3 §5.25). */
    if (power_condition != 0 && power_condition != 7) {
        scsi_fail_cdb(task, 4, 7);
    } else if (load_eject && power_condition == 0 && (task->cdb[4] & 0x01) == 0) {
        scsi_fail_cdb(task, 4, 1); /* ejecting what cannot be ejected */
    }
}

void prevent_allow_check(struct scsi_task *task) {
    if (task->cdb[4] & 0x02) {
        scsi_fail_cdb(task, 4, 1);
    }
}

/* SPC-4 §6.39: the pending unit attention is the answer, and is cleared by it. */
void request_sense_run(struct scsi_task *task) {
    struct scsi_sense sense = {.code = SENSE_NONE};
    if (task->lun == NULL) {
        sense.code = SENSE_LUN_NOT_SUPPORTED;
    } else {
        sense.code = ua_pop(&task->nexus->attentions[task->lun->number]);
    }
    uint8_t bytes[SCSI_SENSE_BYTES_MAX];
    uint32_t length = scsi_sense_encode(&sense, (task->cdb[1] & 1) != 0, bytes);
    scsi_respond(task, bytes, length);
}

/* READ CAPACITY (10) has no allocation length: the answer is 8 bytes. PMI and its LBA are obsolete;
 * SBC-2 wants the LBA zero without PMI. */
void read_capacity_10_check(struct scsi_task *task) {
    if ((task->cdb[8] & 1) == 0 && get_be32(task->cdb + 2) != 0) {
        scsi_fail_cdb(task, 2, NO_BIT);
        return;
    }
    task->data_in_bytes = 8;
}

void read_capacity_10_run(struct scsi_task *task) {
    uint8_t bytes[8];
    put_be32(bytes, (uint32_t)MIN(task->lun->blocks - 1, (uint64_t)UINT32_MAX));
    put_be32(bytes + 4, task->lun->block_bytes);
    task->transfer_bytes = sizeof(bytes);
    task->data_in_ready_bytes = (uint32_t)MIN(task->transfer_bytes, task->expected_in_bytes);
    if (task->data_in_ready_bytes != 0) {
        memcpy(task->data_in, bytes, task->data_in_ready_bytes);
    }
    scsi_task_end(task);
}

void read_capacity_16_run(struct scsi_task *task) {
    uint8_t bytes[32] = {0};
    put_be64(bytes, task->lun->blocks - 1);
    put_be32(bytes + 8, task->lun->block_bytes);
    bytes[13] = (uint8_t)(12 - task->lun->block_shift); /* 2^n logical blocks in 4 KiB */
    bytes[14] = 0xc0; /* LBPME, LBPRZ: blocks are managed, unmapped ones read as zero */
    scsi_respond(task, bytes, sizeof(bytes));
}

/* PRE-FETCH (SBC-3 §5.9): a hint. GOOD says that not all of it may be in a cache, and the cache
 * knows better: it has seen who reads front to back. */
void prefetch_check(struct scsi_task *task) {
    bool ten = task->cdb[0] == 0x34;
    uint64_t lba = ten ? get_be32(task->cdb + 2) : get_be64(task->cdb + 2);
    uint32_t blocks = ten ? get_be16(task->cdb + 7) : get_be32(task->cdb + 10);
    if (!range_is_within(lba, blocks, task->lun->blocks)) {
        scsi_fail(task, SENSE_LBA_OUT_OF_RANGE);
    }
}

/* READ DEFECT DATA (SBC-3 §5.16): both lists, in any format, are empty. */
void read_defects_check(struct scsi_task *task) {
    uint32_t at = task->cdb[0] == 0x37 ? 2 : 1;
    if ((task->cdb[at] & 0x07) == 7) {
        scsi_fail_cdb(task, at, 2); /* reserved */
    }
}

void read_defects_run(struct scsi_task *task) {
    uint8_t bytes[8] = {0};
    bool ten = task->cdb[0] == 0x37;
    bytes[1] = task->cdb[ten ? 2 : 1] & 0x1f; /* the lists asked for, the format */
    scsi_respond(task, bytes, ten ? 4 : 8);
}

void report_luns_check(struct scsi_task *task) {
    if (task->cdb[2] > 2) {
        scsi_fail_cdb(task, 2, NO_BIT);
    }
}

/* SPC-4 §6.33. The list is what the inventory attention was about, so it clears that attention at
 * every unit. */
void report_luns_run(struct scsi_task *task) {
    uint8_t bytes[8 + 8 * SCSI_LUNS_MAX] = {0};
    uint32_t length = 8;
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        ua_remove(&task->nexus->attentions[i], SENSE_REPORTED_LUNS_CHANGED);
        /* SELECT REPORT 1 asks for well-known units only; there are none. */
        if (nexus_lun(task->nexus, i) != NULL && task->cdb[2] != 1) {
            bytes[length + 1] = (uint8_t)i;
            length += 8;
        }
    }
    put_be32(bytes, length - 8);
    scsi_respond(task, bytes, length);
}

/* SPC-4 §6.36 */
void report_functions_run(struct scsi_task *task) {
    uint8_t bytes[16] = {0};
    bytes[0] =
        0x80 | 0x40 | 0x10 | 0x08; /* ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LUN RESET */
    bytes[0] |= 0x02;              /* TARGET RESET */
    bool extended = (task->cdb[2] & 0x80) != 0;
    bytes[3] = extended ? 12 : 0;
    scsi_respond(task, bytes, extended ? 16 : 4);
}
