// SPDX-License-Identifier: MPL-2.0
/* CRC-32C (Castagnoli; RFC 3720 §B.4), by ISA-L. */
#ifndef HOLDFAST_CODEC_CRC_H
#define HOLDFAST_CODEC_CRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The finished checksum of `bytes`, as iSCSI digests define it (0xe3069283 for "123456789"). */
uint32_t crc32c(const void *data, size_t bytes);
/* Continues a finished checksum over more data. */
uint32_t crc32c_more(uint32_t crc, const void *data, size_t bytes);
/* The checksum of a block, seeded with its address, so that a block found in the wrong place does
 * not verify. */
uint32_t crc32c_seeded(uint64_t seed, const void *data, size_t bytes);
/* The same of what is copied. `away`: nobody on this core will look at the copy soon. */
uint32_t crc32c_seeded_copy(uint64_t seed, void *to, const void *from, size_t bytes, bool away);

#endif
