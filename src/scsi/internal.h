// SPDX-License-Identifier: MPL-2.0
/* What the files of the device server share. Loop of the target throughout. */
#ifndef HOLDFAST_SCSI_INTERNAL_H
#define HOLDFAST_SCSI_INTERNAL_H

#include "scsi/bytes.h"
#include "scsi/scsi.h"

enum { UA_QUEUE_MAX = 8 };

/* Unit attentions of one nexus at one unit, oldest first. A condition that is already queued is not
 * queued again (SAM-5 §5.14: one report of it is enough). */
struct ua_queue {
    enum scsi_sense_code codes[UA_QUEUE_MAX];
    uint32_t count;
};

struct scsi_target {
    struct env *env;
    struct scsi_lun *luns[SCSI_LUNS_MAX];
    struct list nexuses;
    struct list removed_luns; /* still with tasks */
};

struct scsi_lun {
    struct scsi_target *target; /* NULL when the target has gone before the last task */
    struct list in_removed;
    uint32_t number;
    bool removed;
    struct env *env;
    struct volume_door *door;
    struct volume_info info;
    uint32_t block_bytes, block_shift;
    uint64_t blocks;
    /* Control mode page: what initiators may change. */
    bool descriptor_sense, software_write_protect;

    struct list tasks;   /* begun or running; dropped ones are not in it */
    struct list dropped; /* dropped while in the volume */
    struct list waiting; /* running, but a dropped task overlaps them */
    uint32_t task_count, dropped_count;
    uint64_t reads, writes, read_bytes, write_bytes, errors;
};

struct scsi_nexus {
    struct scsi_target *target;
    struct list in_target;
    struct list tasks;
    struct scsi_port port;
    uint8_t hidden[SCSI_LUNS_MAX / 8]; /* a bit for each number it may not use */
    struct ua_queue attentions[SCSI_LUNS_MAX];
};

static inline bool nexus_may_use(const struct scsi_nexus *nexus, uint32_t number) {
    return (nexus->hidden[number / 8] >> number % 8 & 1) == 0;
}

/* The unit of this number as this nexus sees it: NULL when there is none for it. */
static inline struct scsi_lun *nexus_lun(const struct scsi_nexus *nexus, uint32_t number) {
    return nexus_may_use(nexus, number) ? nexus->target->luns[number] : NULL;
}

/* ---- commands ---- */

enum {
    COMMAND_ANY_LUN = 1 << 0,         /* also for a number that has no unit */
    COMMAND_KEEPS_ATTENTION = 1 << 1, /* neither reports nor clears unit attentions */
    COMMAND_IN = 1 << 2,              /* moves data to the initiator */
    COMMAND_OUT = 1 << 3,             /* moves data from it */
    COMMAND_WRITES = 1 << 4,          /* changes the medium */
    COMMAND_SERVICE_ACTION = 1 << 5,
};

struct scsi_command {
    uint8_t opcode;
    uint8_t cdb_bytes;
    uint16_t service_action;
    uint32_t flags;
    const char *name;
    uint8_t usage[SCSI_CDB_BYTES_MAX]; /* SPC-4 §6.35.3 CDB usage data: bits that are looked at */
    /* Of commands that answer with parameter data: where the ALLOCATION LENGTH lies; of those that
     * take some: the PARAMETER LIST LENGTH. 0 bytes wide: neither, check() sets the lengths. */
    uint8_t length_at, length_bytes;
    /* Validates the CDB and sets what run() needs; scsi_fail…() refuses. May be NULL. */
    void (*check)(struct scsi_task *task);
    /* Starts; ends the task at once or later with scsi_task_end(). */
    void (*run)(struct scsi_task *task);
};

extern const struct scsi_command scsi_commands[];
extern const uint32_t scsi_command_count;

/* ---- ending tasks ---- */

void scsi_fail(struct scsi_task *task, enum scsi_sense_code code);
void scsi_fail_sense(struct scsi_task *task, const struct scsi_sense *sense);
/* ILLEGAL REQUEST with a field pointer; bit 8: no bit pointer. */
enum { NO_BIT = 8 };
void scsi_fail_cdb(struct scsi_task *task, uint32_t byte, uint32_t bit);
void scsi_fail_parameter(struct scsi_task *task, uint32_t byte, uint32_t bit);
void scsi_fail_error(struct scsi_task *task, int error);
/* The task is over (good unless it failed before); done() follows from the loop. */
void scsi_task_end(struct scsi_task *task);
/* Parameter data for the initiator, cut to the allocation length; ends the task. */
void scsi_respond(struct scsi_task *task, const void *bytes, uint32_t length);

/* ---- unit attentions ---- */

void ua_push(struct ua_queue *queue, enum scsi_sense_code code);
enum scsi_sense_code ua_pop(struct ua_queue *queue); /* SENSE_NONE when empty */
void ua_remove(struct ua_queue *queue, enum scsi_sense_code code);
/* To every nexus but `except` (may be NULL). */
void ua_establish(struct scsi_lun *lun, enum scsi_sense_code code, const struct scsi_nexus *except);

/* ERR_RANGE: a form of LUN we do not use, or too large (SAM-5 §4.7.7). */
int scsi_lun_decode(const uint8_t field[8], uint32_t *ret_number);
void scsi_lun_release(struct scsi_lun *lun); /* frees a removed unit that has no task left */

/* ---- files of commands ---- */

void inquiry_check(struct scsi_task *task);
void inquiry_run(struct scsi_task *task);

void mode_sense_check(struct scsi_task *task);
void mode_sense_run(struct scsi_task *task);
void mode_select_check(struct scsi_task *task);
void mode_select_run(struct scsi_task *task);

void test_unit_ready_run(struct scsi_task *task);
void request_sense_run(struct scsi_task *task);
void read_capacity_10_check(struct scsi_task *task);
void read_capacity_10_run(struct scsi_task *task);
void read_capacity_16_run(struct scsi_task *task);
void lba_status_check(struct scsi_task *task);
void lba_status_run(struct scsi_task *task);
void report_luns_check(struct scsi_task *task);
void report_luns_run(struct scsi_task *task);
void start_stop_check(struct scsi_task *task);
void prevent_allow_check(struct scsi_task *task);
void nothing_run(struct scsi_task *task);
void report_opcodes_check(struct scsi_task *task);
void report_opcodes_run(struct scsi_task *task);
void report_functions_run(struct scsi_task *task);

void read_check(struct scsi_task *task);
void write_check(struct scsi_task *task);
void write_and_verify_check(struct scsi_task *task);
void verify_check(struct scsi_task *task);
void compare_and_write_check(struct scsi_task *task);
void synchronize_check(struct scsi_task *task);
void write_same_check(struct scsi_task *task);
void medium_run(struct scsi_task *task);
void synchronize_run(struct scsi_task *task);
void unmap_check(struct scsi_task *task);
void unmap_run(struct scsi_task *task);

/* Sends task->op for [cursor, cursor + length) to the volume; step() runs again when it is done,
 * the cursor moved on. `data` NULL: no transfer. */
void scsi_volume_submit(struct scsi_task *task, enum volume_op op, uint64_t offset_bytes,
                        uint64_t length_bytes, void *data, uint64_t data_bytes);

/* Limits told in VPD page B0h and enforced by the commands. */
enum {
    UNMAP_BYTES_MAX = 512 << 20, /* 1,048,576 blocks of 512 bytes: hosts distrust more */
    WRITE_SAME_BYTES_MAX = SCSI_TRANSFER_BYTES_MAX, /* so that it can be read back in one go */
    COMPARE_BLOCKS_MAX = 255,
};
uint32_t scsi_compare_blocks_max(const struct scsi_lun *lun);

#endif
