// SPDX-License-Identifier: MPL-2.0
/* The basic header segment (RFC 7143 §11): where fields lie, and what must hold of any PDU before
 * anything else is looked at. */
#ifndef HOLDFAST_ISCSI_PDU_H
#define HOLDFAST_ISCSI_PDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "scsi/bytes.h"

enum {
    BHS_BYTES = 48,
    AHS_BYTES_MAX = 255 * 4,
    DIGEST_BYTES = 4,
};
#define ISCSI_TAG_NONE 0xffffffffu

enum iscsi_opcode {
    OP_NOP_OUT = 0x00,
    OP_SCSI_COMMAND = 0x01,
    OP_TASK_MANAGEMENT = 0x02,
    OP_LOGIN = 0x03,
    OP_TEXT = 0x04,
    OP_DATA_OUT = 0x05,
    OP_LOGOUT = 0x06,
    OP_SNACK = 0x10,
    OP_NOP_IN = 0x20,
    OP_SCSI_RESPONSE = 0x21,
    OP_TASK_MANAGEMENT_RESPONSE = 0x22,
    OP_LOGIN_RESPONSE = 0x23,
    OP_TEXT_RESPONSE = 0x24,
    OP_DATA_IN = 0x25,
    OP_LOGOUT_RESPONSE = 0x26,
    OP_R2T = 0x31,
    OP_ASYNC = 0x32,
    OP_REJECT = 0x3f,
};

/* Byte 0 and 1. */
enum {
    BHS_IMMEDIATE = 0x40,
    BHS_OPCODE = 0x3f,
    BHS_FINAL = 0x80,
    COMMAND_READ = 0x40,
    COMMAND_WRITE = 0x20,
    RESIDUAL_OVERFLOW = 0x04,
    RESIDUAL_UNDERFLOW = 0x02,
    DATA_IN_STATUS = 0x01,
    TEXT_CONTINUE = 0x40,
    LOGIN_TRANSIT = 0x80,
    LOGIN_CONTINUE = 0x40,
};

/* Offsets of fields that several PDUs share, then of single ones. */
enum {
    AT_FLAGS = 1,
    AT_AHS_LENGTH = 4,
    AT_DATA_LENGTH = 5,
    AT_LUN = 8,
    AT_ITT = 16,
    AT_TTT = 20,
    AT_CMDSN = 24,
    AT_EXP_STATSN = 28,
    /* target to initiator */
    AT_STATSN = 24,
    AT_EXP_CMDSN = 28,
    AT_MAX_CMDSN = 32,

    AT_COMMAND_LENGTH = 20, /* expected data transfer length */
    AT_CDB = 32,
    AT_RESPONSE = 2,
    AT_STATUS = 3,
    AT_DATA_SN = 36,
    AT_BUFFER_OFFSET = 40,
    AT_RESIDUAL = 44,
    AT_R2T_LENGTH = 44,
    AT_REFERENCED_TASK = 20,
    AT_REF_CMDSN = 32,
    AT_LOGIN_VERSION_MAX = 2,
    AT_LOGIN_VERSION_MIN = 3,
    AT_ISID = 8,
    AT_TSIH = 14,
    AT_CID = 20,
    AT_LOGIN_STATUS = 36,
    AT_ASYNC_EVENT = 36,
    AT_ASYNC_PARAMETER1 = 38,
    AT_LOGOUT_TIME2WAIT = 40,
    AT_LOGOUT_TIME2RETAIN = 42,
};

enum reject_reason {
    REJECT_PROTOCOL_ERROR = 0x04,
    REJECT_NOT_SUPPORTED = 0x05,
    REJECT_TOO_MANY_IMMEDIATE = 0x06,
    REJECT_TASK_IN_PROGRESS = 0x07,
    REJECT_INVALID_FIELD = 0x09,
    REJECT_OUT_OF_RESOURCES = 0x0a,
};

static inline uint8_t bhs_opcode(const uint8_t *bhs) {
    return bhs[0] & BHS_OPCODE;
}

static inline bool bhs_is_immediate(const uint8_t *bhs) {
    return (bhs[0] & BHS_IMMEDIATE) != 0;
}

static inline uint32_t bhs_ahs_bytes(const uint8_t *bhs) {
    return bhs[AT_AHS_LENGTH] * 4u;
}

static inline uint32_t bhs_data_bytes(const uint8_t *bhs) {
    return get_be24(bhs + AT_DATA_LENGTH);
}

static inline uint32_t pad_bytes(uint32_t data_bytes) {
    return -data_bytes & 3u;
}

/* Serial number arithmetic (RFC 1982) on CmdSN and its like. */
static inline bool serial_is_before(uint32_t a, uint32_t b) {
    return (int32_t)(a - b) < 0;
}

/* What must hold of a header an initiator sends: a known opcode, the I bit only where it is
 * allowed, AHS only behind a SCSI command, a data segment no longer than `segment_bytes_max` and
 * only where there can be one. ERR_PROTOCOL. The text may be NULL. */
HF_MUST_CHECK int bhs_check(const uint8_t bhs[BHS_BYTES], uint32_t segment_bytes_max,
                            struct errmsg *reterr);

/* Digest of a header with its AHS, or of data with its padding: little-endian on the wire. */
static inline uint32_t get_digest(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline void put_digest(uint8_t *bytes, uint32_t crc) {
    bytes[0] = (uint8_t)crc;
    bytes[1] = (uint8_t)(crc >> 8);
    bytes[2] = (uint8_t)(crc >> 16);
    bytes[3] = (uint8_t)(crc >> 24);
}

#endif
