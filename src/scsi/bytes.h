// SPDX-License-Identifier: MPL-2.0
/* Big-endian fields, as SCSI and iSCSI lay them out. */
#ifndef HOLDFAST_SCSI_BYTES_H
#define HOLDFAST_SCSI_BYTES_H

#include <stdint.h>

static inline uint16_t get_be16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static inline uint32_t get_be24(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
}

static inline uint32_t get_be32(const uint8_t *bytes) {
    return (uint32_t)get_be16(bytes) << 16 | get_be16(bytes + 2);
}

static inline uint64_t get_be64(const uint8_t *bytes) {
    return (uint64_t)get_be32(bytes) << 32 | get_be32(bytes + 4);
}

static inline void put_be16(uint8_t *bytes, uint16_t value) {
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static inline void put_be24(uint8_t *bytes, uint32_t value) {
    bytes[0] = (uint8_t)(value >> 16);
    put_be16(bytes + 1, (uint16_t)value);
}

static inline void put_be32(uint8_t *bytes, uint32_t value) {
    put_be16(bytes, (uint16_t)(value >> 16));
    put_be16(bytes + 2, (uint16_t)value);
}

static inline void put_be64(uint8_t *bytes, uint64_t value) {
    put_be32(bytes, (uint32_t)(value >> 32));
    put_be32(bytes + 4, (uint32_t)value);
}

#endif
