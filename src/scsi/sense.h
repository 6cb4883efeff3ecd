// SPDX-License-Identifier: MPL-2.0
/* Sense data (SPC-4 §4.5): codes, both formats, and the one table that turns errors of the array
 * into what a host can act on. */
#ifndef HOLDFAST_SCSI_SENSE_H
#define HOLDFAST_SCSI_SENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCSI_SENSE_BYTES_MAX = 48,
    SENSE_KEY_NONE = 0x0,
    SENSE_KEY_NOT_READY = 0x2,
    SENSE_KEY_MEDIUM_ERROR = 0x3,
    SENSE_KEY_HARDWARE_ERROR = 0x4,
    SENSE_KEY_ILLEGAL_REQUEST = 0x5,
    SENSE_KEY_UNIT_ATTENTION = 0x6,
    SENSE_KEY_DATA_PROTECT = 0x7,
    SENSE_KEY_COPY_ABORTED = 0xa,
    SENSE_KEY_ABORTED_COMMAND = 0xb,
    SENSE_KEY_MISCOMPARE = 0xe,
};

/* Sense key, additional sense code and qualifier as one number: 0xKKAAQQ. */
enum scsi_sense_code {
    SENSE_NONE = 0x000000,
    SENSE_NOT_READY_CAUSE_UNKNOWN = 0x020400,
    SENSE_NOT_READY_INTERVENTION = 0x020403, /* manual intervention required */
    SENSE_WRITE_ERROR = 0x030c00,
    SENSE_UNRECOVERED_READ_ERROR = 0x031100,
    SENSE_INTERNAL_TARGET_FAILURE = 0x044400,
    SENSE_PARAMETER_LIST_LENGTH = 0x051a00,
    SENSE_INVALID_OPCODE = 0x052000,
    SENSE_LBA_OUT_OF_RANGE = 0x052100,
    SENSE_INVALID_FIELD_IN_CDB = 0x052400,
    SENSE_LUN_NOT_SUPPORTED = 0x052500,
    SENSE_INVALID_FIELD_IN_PARAMETERS = 0x052600,
    SENSE_INVALID_FIELD_IN_UNIT = 0x050e03, /* in command information unit */
    SENSE_INVALID_RELEASE = 0x052604,       /* of a persistent reservation */
    SENSE_COPY_IN_PROGRESS = 0x050016,      /* the list identifier is in use */
    SENSE_TOO_MANY_CSCDS = 0x052606,
    SENSE_UNSUPPORTED_CSCD = 0x052607,
    SENSE_TOO_MANY_SEGMENTS = 0x052608,
    SENSE_UNSUPPORTED_SEGMENT = 0x052609,
    SENSE_INLINE_DATA_LENGTH = 0x05260b,
    SENSE_SAVING_NOT_SUPPORTED = 0x053900,
    SENSE_NO_REGISTRATION_RESOURCES = 0x055504,
    SENSE_POWER_ON = 0x062900,
    SENSE_BUS_DEVICE_RESET = 0x062903,
    SENSE_MODE_PARAMETERS_CHANGED = 0x062a01,
    SENSE_CAPACITY_CHANGED = 0x062a09,
    SENSE_RESERVATIONS_PREEMPTED = 0x062a03,
    SENSE_RESERVATIONS_RELEASED = 0x062a04,
    SENSE_REGISTRATIONS_PREEMPTED = 0x062a05,
    SENSE_COMMANDS_CLEARED = 0x062f00, /* by another initiator */
    SENSE_THIN_THRESHOLD = 0x063807,   /* soft threshold of thin provisioning reached */
    SENSE_REPORTED_LUNS_CHANGED = 0x063f0e,
    SENSE_WRITE_PROTECTED = 0x072700,
    SENSE_SOFTWARE_WRITE_PROTECTED = 0x072702,
    SENSE_SPACE_ALLOCATION_FAILED = 0x072707,
    SENSE_COPY_ABORTED = 0x0a0000,        /* and nothing more to say */
    SENSE_COPY_DEVICE_FAILURE = 0x0a0d01, /* third party device failure */
    SENSE_COPY_UNREACHABLE = 0x0a0d02,    /* copy target device not reachable */
    SENSE_COPY_INEXACT = 0x0a260a,        /* unexpected inexact segment */
    SENSE_COPY_WRITE_PROTECTED = 0x0a2702,
    SENSE_UNEXPECTED_UNSOLICITED_DATA = 0x0b0c0c,
    SENSE_NOT_ENOUGH_UNSOLICITED_DATA = 0x0b0c0d,
    SENSE_PROTOCOL_CRC = 0x0b4705,
    SENSE_MISCOMPARE_DURING_VERIFY = 0x0e1d00,
};

struct scsi_sense {
    enum scsi_sense_code code;
    bool info_valid, field_valid, field_in_cdb, bit_valid;
    uint8_t bit;
    uint16_t field; /* byte of the CDB or of the parameters that is wrong */
    uint64_t info;
};

/* Writes fixed (18 bytes) or descriptor format; returns the length. An INFORMATION that does not
 * fit the 4 bytes of the fixed format is left out there, as SPC-4 §4.5.3 demands. */
uint32_t scsi_sense_encode(const struct scsi_sense *sense, bool descriptor_format,
                           uint8_t ret_bytes[SCSI_SENSE_BYTES_MAX]);

/* What an error of a volume becomes on the wire. */
struct scsi_error {
    int error;
    uint8_t status; /* enum scsi_status */
    enum scsi_sense_code read_code, write_code;
    enum { SCSI_INFO_NONE, SCSI_INFO_LBA, SCSI_INFO_OFFSET } info;
};
/* Never NULL: an error that is not in the table is an internal target failure. */
const struct scsi_error *scsi_error_find(int error);

#endif
