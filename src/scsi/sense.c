// SPDX-License-Identifier: MPL-2.0
/* Sense formats, and errors of the array as hosts understand them.
 *
 * The choice of codes decides what a host does next. Out of space: 27h/07h pauses a virtual machine
 * in ESXi and fails the write elsewhere; it must not look like a bad medium. A volume that could
 * not answer in time is BUSY: hosts retry that for as long as their own time-outs allow. A checksum
 * that could not be repaired is a medium error with the LBA, so that a host, or a person, can tell
 * which file is concerned. */
#include "scsi/sense.h"

#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "scsi/bytes.h"
#include "scsi/scsi.h"

static const struct scsi_error errors[] = {
    {ERR_IO, SCSI_CHECK_CONDITION, SENSE_UNRECOVERED_READ_ERROR, SENSE_WRITE_ERROR, SCSI_INFO_LBA},
    {ERR_CHECKSUM, SCSI_CHECK_CONDITION, SENSE_UNRECOVERED_READ_ERROR, SENSE_WRITE_ERROR,
     SCSI_INFO_LBA},
    {ERR_DATA_LOSS, SCSI_CHECK_CONDITION, SENSE_UNRECOVERED_READ_ERROR, SENSE_WRITE_ERROR,
     SCSI_INFO_LBA},
    {ERR_DISK_GONE, SCSI_CHECK_CONDITION, SENSE_UNRECOVERED_READ_ERROR, SENSE_WRITE_ERROR,
     SCSI_INFO_LBA},
    {ERR_NO_SPACE, SCSI_CHECK_CONDITION, SENSE_SPACE_ALLOCATION_FAILED,
     SENSE_SPACE_ALLOCATION_FAILED, SCSI_INFO_NONE},
    {ERR_MISCOMPARE, SCSI_CHECK_CONDITION, SENSE_MISCOMPARE_DURING_VERIFY,
     SENSE_MISCOMPARE_DURING_VERIFY, SCSI_INFO_OFFSET},
    {ERR_RANGE, SCSI_CHECK_CONDITION, SENSE_LBA_OUT_OF_RANGE, SENSE_LBA_OUT_OF_RANGE,
     SCSI_INFO_NONE},
    {ERR_NOT_FOUND, SCSI_CHECK_CONDITION, SENSE_LUN_NOT_SUPPORTED, SENSE_LUN_NOT_SUPPORTED,
     SCSI_INFO_NONE},
    {ERR_READ_ONLY, SCSI_CHECK_CONDITION, SENSE_WRITE_PROTECTED, SENSE_WRITE_PROTECTED,
     SCSI_INFO_NONE},
    {ERR_SHUTDOWN, SCSI_CHECK_CONDITION, SENSE_NOT_READY_CAUSE_UNKNOWN,
     SENSE_NOT_READY_CAUSE_UNKNOWN, SCSI_INFO_NONE},
    {ERR_TIMEOUT, SCSI_BUSY, SENSE_NONE, SENSE_NONE, SCSI_INFO_NONE},
    {ERR_AGAIN, SCSI_BUSY, SENSE_NONE, SENSE_NONE, SCSI_INFO_NONE},
    {ERR_BUSY, SCSI_BUSY, SENSE_NONE, SENSE_NONE, SCSI_INFO_NONE},
    {ERR_NO_MEMORY, SCSI_TASK_SET_FULL, SENSE_NONE, SENSE_NONE, SCSI_INFO_NONE},
    {ERR_LIMIT, SCSI_TASK_SET_FULL, SENSE_NONE, SENSE_NONE, SCSI_INFO_NONE},
};

const struct scsi_error *scsi_error_find(int error) {
    static const struct scsi_error other = {ERR_INVALID, SCSI_CHECK_CONDITION,
                                            SENSE_INTERNAL_TARGET_FAILURE,
                                            SENSE_INTERNAL_TARGET_FAILURE, SCSI_INFO_NONE};
    for (size_t i = 0; i < ARRAY_COUNT(errors); i++) {
        if (errors[i].error == error) {
            return &errors[i];
        }
    }
    return &other;
}

/* The sense key specific bytes of an ILLEGAL REQUEST (SPC-4 §4.5.2.4.2). */
static void put_field_pointer(const struct scsi_sense *sense, uint8_t *ret_bytes) {
    ret_bytes[0] = (uint8_t)(0x80 | (sense->field_in_cdb ? 0x40 : 0) |
                             (sense->bit_valid ? 0x08 | (sense->bit & 7) : 0));
    put_be16(ret_bytes + 1, sense->field);
}

static uint32_t encode_descriptors(const struct scsi_sense *sense, uint8_t *bytes) {
    uint32_t length = 8;
    bytes[0] = 0x72;
    bytes[1] = (uint8_t)(sense->code >> 16);
    bytes[2] = (uint8_t)(sense->code >> 8);
    bytes[3] = (uint8_t)sense->code;
    if (sense->info_valid) {
        bytes[length] = 0x00;
        bytes[length + 1] = 0x0a;
        bytes[length + 2] = 0x80;
        put_be64(bytes + length + 4, sense->info);
        length += 12;
    }
    if (sense->field_valid) {
        bytes[length] = 0x02;
        bytes[length + 1] = 0x06;
        put_field_pointer(sense, bytes + length + 4);
        length += 8;
    }
    bytes[7] = (uint8_t)(length - 8);
    return length;
}

uint32_t scsi_sense_encode(const struct scsi_sense *sense, bool descriptor_format,
                           uint8_t ret_bytes[SCSI_SENSE_BYTES_MAX]) {
    memset(ret_bytes, 0, SCSI_SENSE_BYTES_MAX);
    if (descriptor_format) {
        return encode_descriptors(sense, ret_bytes);
    }
    ret_bytes[0] = 0x70;
    if (sense->info_valid && sense->info <= UINT32_MAX) {
        ret_bytes[0] |= 0x80;
        put_be32(ret_bytes + 3, (uint32_t)sense->info);
    }
    ret_bytes[2] = (uint8_t)(sense->code >> 16);
    ret_bytes[7] = 18 - 8;
    ret_bytes[12] = (uint8_t)(sense->code >> 8);
    ret_bytes[13] = (uint8_t)sense->code;
    if (sense->field_valid) {
        put_field_pointer(sense, ret_bytes + 15);
    }
    return 18;
}
