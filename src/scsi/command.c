// SPDX-License-Identifier: MPL-2.0
/* The table of commands, and REPORT SUPPORTED OPERATION CODES, which prints it.
 *
 * One line says everything about a command that is not its work: length, direction, which bits of
 * the CDB are looked at (all others but those of the control byte must be zero), where its length
 * field lies. A command that is not here is answered INVALID COMMAND OPERATION CODE. */
#include <string.h>

#include "base/math.h"
#include "scsi/internal.h"

#define IN COMMAND_IN
#define OUT COMMAND_OUT
#define WRITES (COMMAND_OUT | COMMAND_WRITES)
#define QUIET COMMAND_KEEPS_ATTENTION
#define ANY COMMAND_ANY_LUN
#define SA COMMAND_SERVICE_ACTION
/* Conflicts: commands that only look are let through a WRITE EXCLUSIVE reservation; those marked
 * OLD are refused under RESERVE alone. */
#define READS (CONFLICT_EXCLUSIVE_ACCESS | CONFLICT_RESERVE)
#define CHANGES (CONFLICT_WRITE_EXCLUSIVE | READS)
#define OLD CONFLICT_RESERVE
#define F4 0xff, 0xff, 0xff, 0xff
#define F8 F4, F4

/* clang-format off */
const struct scsi_command scsi_commands[] = {
    {0x00, 6, 0, 0, OLD, "TEST UNIT READY",
     {0x00}, 0, 0, NULL, test_unit_ready_run},
    {0x03, 6, 0, IN | QUIET | ANY, 0, "REQUEST SENSE",
     {0x03, 0x01, 0, 0, 0xff}, 4, 1, NULL, request_sense_run},
    {0x08, 6, 0, IN, READS, "READ(6)",
     {0x08, 0xff, 0xff, 0xff, 0xff}, 0, 0, read_check, medium_run},
    {0x0a, 6, 0, WRITES, CHANGES, "WRITE(6)",
     {0x0a, 0xff, 0xff, 0xff, 0xff}, 0, 0, write_check, medium_run},
    {0x12, 6, 0, IN | QUIET | ANY, 0, "INQUIRY",
     {0x12, 0x01, 0xff, 0xff, 0xff}, 3, 2, inquiry_check, inquiry_run},
    {0x15, 6, 0, OUT, CHANGES, "MODE SELECT(6)",
     {0x15, 0x11, 0, 0, 0xff}, 4, 1, mode_select_check, mode_select_run},
    {0x16, 6, 0, 0, OLD, "RESERVE(6)",
     {0x16, 0, 0xff, 0, 0}, 0, 0, NULL, reserve_run},
    {0x17, 6, 0, 0, 0, "RELEASE(6)",
     {0x17, 0, 0xff, 0, 0}, 0, 0, NULL, release_run},
    {0x1a, 6, 0, IN, READS, "MODE SENSE(6)",
     {0x1a, 0x08, 0xff, 0xff, 0xff}, 4, 1, mode_sense_check, mode_sense_run},
    {0x1b, 6, 0, 0, CHANGES, "START STOP UNIT",
     {0x1b, 0x01, 0x00, 0x0f, 0xf7}, 0, 0, start_stop_check, nothing_run},
    {0x1e, 6, 0, 0, CHANGES, "PREVENT ALLOW MEDIUM REMOVAL",
     {0x1e, 0, 0, 0, 0x03}, 0, 0, prevent_allow_check, nothing_run},
    {0x25, 10, 0, IN, 0, "READ CAPACITY(10)",
     {0x25, 0x01, F4, 0, 0, 0x01}, 0, 0, read_capacity_10_check, read_capacity_10_run},
    {0x28, 10, 0, IN, READS, "READ(10)",
     {0x28, 0x18, F4, 0x1f, 0xff, 0xff}, 0, 0, read_check, medium_run},
    {0x2a, 10, 0, WRITES, CHANGES, "WRITE(10)",
     {0x2a, 0x18, F4, 0x1f, 0xff, 0xff}, 0, 0, write_check, medium_run},
    {0x2e, 10, 0, WRITES, CHANGES, "WRITE AND VERIFY(10)",
     {0x2e, 0x16, F4, 0x1f, 0xff, 0xff}, 0, 0, write_and_verify_check, medium_run},
    {0x2f, 10, 0, OUT, READS, "VERIFY(10)",
     {0x2f, 0x16, F4, 0x1f, 0xff, 0xff}, 0, 0, verify_check, medium_run},
    {0x34, 10, 0, 0, READS, "PRE-FETCH(10)",
     {0x34, 0x02, F4, 0x1f, 0xff, 0xff}, 0, 0, prefetch_check, nothing_run},
    {0x35, 10, 0, 0, CHANGES, "SYNCHRONIZE CACHE(10)",
     {0x35, 0x06, F4, 0x1f, 0xff, 0xff}, 0, 0, synchronize_check, synchronize_run},
    {0x37, 10, 0, IN, READS, "READ DEFECT DATA(10)",
     {0x37, 0x00, 0x1f, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, read_defects_check, read_defects_run},
    {0x41, 10, 0, WRITES, CHANGES, "WRITE SAME(10)",
     {0x41, 0x18, F4, 0x1f, 0xff, 0xff}, 0, 0, write_same_check, medium_run},
    {0x42, 10, 0, WRITES, CHANGES, "UNMAP",
     {0x42, 0x00, 0, 0, 0, 0, 0x1f, 0xff, 0xff}, 7, 2, unmap_check, unmap_run},
    {0x4d, 10, 0, IN, 0, "LOG SENSE",
     {0x4d, 0x00, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff}, 7, 2, log_sense_check, log_sense_run},
    {0x55, 10, 0, OUT, CHANGES, "MODE SELECT(10)",
     {0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, mode_select_check, mode_select_run},
    {0x56, 10, 0, 0, OLD, "RESERVE(10)",
     {0x56, 0, 0xff, 0, 0, 0, 0, 0, 0}, 0, 0, NULL, reserve_run},
    {0x57, 10, 0, 0, 0, "RELEASE(10)",
     {0x57, 0, 0xff, 0, 0, 0, 0, 0, 0}, 0, 0, NULL, release_run},
    {0x5a, 10, 0, IN, READS, "MODE SENSE(10)",
     {0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff}, 7, 2, mode_sense_check, mode_sense_run},
    {0x5e, 10, 0x00, IN | SA, 0, "PERSISTENT RESERVE IN, READ KEYS",
     {0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, NULL, persistent_in_run},
    {0x5e, 10, 0x01, IN | SA, 0, "PERSISTENT RESERVE IN, READ RESERVATION",
     {0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, NULL, persistent_in_run},
    {0x5e, 10, 0x02, IN | SA, 0, "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
     {0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, NULL, persistent_in_run},
    {0x5e, 10, 0x03, IN | SA, 0, "PERSISTENT RESERVE IN, READ FULL STATUS",
     {0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff}, 7, 2, NULL, persistent_in_run},
    {0x5f, 10, 0x00, OUT | SA, 0, "PERSISTENT RESERVE OUT, REGISTER",
     {0x5f, 0x00, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x01, OUT | SA, 0, "PERSISTENT RESERVE OUT, RESERVE",
     {0x5f, 0x01, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x02, OUT | SA, 0, "PERSISTENT RESERVE OUT, RELEASE",
     {0x5f, 0x02, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x03, OUT | SA, 0, "PERSISTENT RESERVE OUT, CLEAR",
     {0x5f, 0x03, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x04, OUT | SA, 0, "PERSISTENT RESERVE OUT, PREEMPT",
     {0x5f, 0x04, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x05, OUT | SA, 0, "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
     {0x5f, 0x05, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x06, OUT | SA, 0, "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
     {0x5f, 0x06, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x5f, 10, 0x07, OUT | SA, 0, "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
     {0x5f, 0x07, 0xff, 0, 0, F4}, 5, 4, persistent_out_check, persistent_out_run},
    {0x83, 16, 0x00, OUT | SA, CHANGES, "EXTENDED COPY(LID1)",
     {0x83, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, F4, 0}, 10, 4, NULL, extended_copy_run},
    {0x83, 16, 0x1c, SA, CHANGES, "COPY OPERATION ABORT",
     {0x83, 0x1c, F4, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, NULL, copy_abort_run},
    {0x84, 16, 0x00, IN | SA, READS, "RECEIVE COPY RESULTS, COPY STATUS",
     {0x84, 0x00, 0xff, 0, 0, 0, 0, 0, 0, 0, F4, 0}, 10, 4, NULL, copy_status_run},
    {0x84, 16, 0x03, IN | SA, READS, "RECEIVE COPY RESULTS, OPERATING PARAMETERS",
     {0x84, 0x03, 0xff, 0, 0, 0, 0, 0, 0, 0, F4, 0}, 10, 4, NULL, copy_parameters_run},
    {0x84, 16, 0x04, IN | SA, READS, "RECEIVE COPY RESULTS, FAILED SEGMENT DETAILS",
     {0x84, 0x04, 0xff, 0, 0, 0, 0, 0, 0, 0, F4, 0}, 10, 4, NULL, copy_details_run},
    {0x88, 16, 0, IN, READS, "READ(16)",
     {0x88, 0x18, F8, F4, 0x1f}, 0, 0, read_check, medium_run},
    {0x89, 16, 0, WRITES, CHANGES, "COMPARE AND WRITE",
     {0x89, 0x18, F8, 0, 0, 0, 0xff, 0x1f}, 0, 0, compare_and_write_check, medium_run},
    {0x8a, 16, 0, WRITES, CHANGES, "WRITE(16)",
     {0x8a, 0x18, F8, F4, 0x1f}, 0, 0, write_check, medium_run},
    {0x8b, 16, 0, WRITES, CHANGES, "ORWRITE(16)",
     {0x8b, 0x18, F8, F4, 0x1f}, 0, 0, write_check, or_write_run},
    {0x8e, 16, 0, WRITES, CHANGES, "WRITE AND VERIFY(16)",
     {0x8e, 0x16, F8, F4, 0x1f}, 0, 0, write_and_verify_check, medium_run},
    {0x8f, 16, 0, OUT, READS, "VERIFY(16)",
     {0x8f, 0x16, F8, F4, 0x1f}, 0, 0, verify_check, medium_run},
    {0x90, 16, 0, 0, READS, "PRE-FETCH(16)",
     {0x90, 0x02, F8, F4, 0x1f}, 0, 0, prefetch_check, nothing_run},
    {0x91, 16, 0, 0, CHANGES, "SYNCHRONIZE CACHE(16)",
     {0x91, 0x06, F8, F4, 0x1f}, 0, 0, synchronize_check, synchronize_run},
    {0x93, 16, 0, WRITES, CHANGES, "WRITE SAME(16)",
     {0x93, 0x19, F8, F4, 0x1f}, 0, 0, write_same_check, medium_run},
    {0x9e, 16, 0x10, IN | SA, 0, "READ CAPACITY(16)",
     {0x9e, 0x10, F8, F4, 0x01}, 10, 4, NULL, read_capacity_16_run},
    {0x9e, 16, 0x12, IN | SA, READS, "GET LBA STATUS",
     {0x9e, 0x12, F8, F4}, 10, 4, lba_status_check, lba_status_run},
    {0xa0, 12, 0, IN | QUIET | ANY, 0, "REPORT LUNS",
     {0xa0, 0, 0xff, 0, 0, 0, F4, 0}, 6, 4, report_luns_check, report_luns_run},
    {0xa3, 12, 0x0a, IN | SA, 0, "REPORT TARGET PORT GROUPS",
     {0xa3, 0xea, 0, 0, 0, 0, F4, 0}, 6, 4, report_groups_check, report_groups_run},
    {0xa3, 12, 0x0c, IN | SA, READS, "REPORT SUPPORTED OPERATION CODES",
     {0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, F4, 0}, 6, 4, report_opcodes_check, report_opcodes_run},
    {0xa3, 12, 0x0d, IN | SA, READS, "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
     {0xa3, 0x0d, 0x80, 0, 0, 0, F4, 0}, 6, 4, NULL, report_functions_run},
    {0xa4, 12, 0x0a, OUT | SA, CHANGES, "SET TARGET PORT GROUPS",
     {0xa4, 0x0a, 0, 0, 0, 0, F4, 0}, 6, 4, NULL, set_groups_run},
    {0xa8, 12, 0, IN, READS, "READ(12)",
     {0xa8, 0x18, F4, F4, 0x1f}, 0, 0, read_check, medium_run},
    {0xaa, 12, 0, WRITES, CHANGES, "WRITE(12)",
     {0xaa, 0x18, F4, F4, 0x1f}, 0, 0, write_check, medium_run},
    {0xae, 12, 0, WRITES, CHANGES, "WRITE AND VERIFY(12)",
     {0xae, 0x16, F4, F4, 0x1f}, 0, 0, write_and_verify_check, medium_run},
    {0xaf, 12, 0, OUT, READS, "VERIFY(12)",
     {0xaf, 0x16, F4, F4, 0x1f}, 0, 0, verify_check, medium_run},
    {0xb7, 12, 0, IN, READS, "READ DEFECT DATA(12)",
     {0xb7, 0x1f, F4, F4, 0}, 6, 4, read_defects_check, read_defects_run},
};
/* clang-format on */

const uint32_t scsi_command_count = ARRAY_COUNT(scsi_commands);

/* The table is in order of operation codes (a test looks at that). */
const struct scsi_command *scsi_command_find(const uint8_t *cdb) {
    uint32_t first = 0, end = scsi_command_count;
    while (first < end) {
        uint32_t middle = (first + end) / 2;
        if (scsi_commands[middle].opcode < cdb[0]) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    for (uint32_t i = first; i < scsi_command_count && scsi_commands[i].opcode == cdb[0]; i++) {
        const struct scsi_command *command = &scsi_commands[i];
        if ((command->flags & COMMAND_SERVICE_ACTION) == 0 ||
            command->service_action == (cdb[1] & 0x1f)) {
            return command;
        }
    }
    return NULL;
}

/* ---- REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35) ---- */

enum { REPORT_ALL = 0, REPORT_OPCODE = 1, REPORT_SERVICE_ACTION = 2, REPORT_EITHER = 3 };

int scsi_opcode_has_service_actions(uint8_t opcode) {
    for (uint32_t i = 0; i < scsi_command_count; i++) {
        if (scsi_commands[i].opcode == opcode) {
            return (scsi_commands[i].flags & COMMAND_SERVICE_ACTION) != 0;
        }
    }
    return -1;
}

void report_opcodes_check(struct scsi_task *task) {
    uint32_t option = task->cdb[2] & 7;
    int has = scsi_opcode_has_service_actions(task->cdb[3]);
    if (option > REPORT_EITHER) {
        scsi_fail_cdb(task, 2, 2);
    } else if (option == REPORT_OPCODE && has == 1) {
        scsi_fail_cdb(task, 2, 2);
    } else if (option == REPORT_SERVICE_ACTION && has == 0) {
        scsi_fail_cdb(task, 2, 2);
    }
}

/* Command timeouts descriptor: nothing is promised, all zero but its length. */
static uint32_t put_timeouts(uint8_t *bytes) {
    put_be16(bytes, 10);
    return 12;
}

static uint32_t report_all(bool timeouts, uint8_t *bytes) {
    uint32_t length = 4;
    for (uint32_t i = 0; i < scsi_command_count; i++) {
        const struct scsi_command *command = &scsi_commands[i];
        bool has_action = (command->flags & COMMAND_SERVICE_ACTION) != 0;
        bytes[length] = command->opcode;
        put_be16(bytes + length + 2, command->service_action);
        bytes[length + 5] = (uint8_t)((timeouts ? 2 : 0) | (has_action ? 1 : 0));
        put_be16(bytes + length + 6, command->cdb_bytes);
        length += 8;
        if (timeouts) {
            length += put_timeouts(bytes + length);
        }
    }
    put_be32(bytes, length - 4);
    return length;
}

static uint32_t report_one(struct scsi_task *task, bool timeouts, uint8_t *bytes) {
    uint32_t option = task->cdb[2] & 7;
    uint16_t action = get_be16(task->cdb + 4);
    const struct scsi_command *command = NULL;
    uint8_t cdb[SCSI_CDB_BYTES_MAX] = {task->cdb[3], (uint8_t)(action & 0x1f)};
    /* An action wider than the field cannot be one of ours; with option 1 it is not looked at, with
     * option 3 it must be zero where the opcode has none. */
    if (option == REPORT_OPCODE || action <= 0x1f) {
        command = scsi_command_find(cdb);
    }
    if (command != NULL && option == REPORT_EITHER &&
        (command->flags & COMMAND_SERVICE_ACTION) == 0 && action != 0) {
        command = NULL;
    }
    if (command == NULL) {
        bytes[1] = 1; /* not supported */
        return 4;
    }
    bytes[1] = (uint8_t)(3 | (timeouts ? 0x80 : 0)); /* in conformance with the standard */
    put_be16(bytes + 2, command->cdb_bytes);
    memcpy(bytes + 4, command->usage, command->cdb_bytes);
    uint32_t length = 4u + command->cdb_bytes;
    return timeouts ? length + put_timeouts(bytes + length) : length;
}

void report_opcodes_run(struct scsi_task *task) {
    uint8_t bytes[SMALL_RESPONSE_BYTES] = {0};
    _Static_assert(4 + ARRAY_COUNT(scsi_commands) * 20 <= sizeof(bytes), "the whole table fits");
    bool timeouts = (task->cdb[2] & 0x80) != 0;
    uint32_t length = (task->cdb[2] & 7) == REPORT_ALL ? report_all(timeouts, bytes)
                                                       : report_one(task, timeouts, bytes);
    scsi_respond(task, bytes, length);
}
