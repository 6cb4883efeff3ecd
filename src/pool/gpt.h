// SPDX-License-Identifier: MPL-2.0
/* The partition table that Holdfast writes on whole block devices, and finds again (UEFI 2.10
 * §5.3): a protective MBR and a GPT with one partition of Holdfast's own type, so that every other
 * program sees that the disk is in use and by whom. Pure: bytes in, bytes out. */
#ifndef HOLDFAST_POOL_GPT_H
#define HOLDFAST_POOL_GPT_H

#include <stdint.h>

#include "base/error.h"
#include "format/phys.h"

enum {
    GPT_AREA_BYTES = 64 << 10, /* from each end of the disk; holds all of a table, sectors of 512
                                  or 4096 */
    GPT_ALIGN_BYTES = 1 << 20, /* partition bounds */
};

struct gpt_window {
    uint64_t offset_bytes, length_bytes;
};

/* Type of our partition: "3f6d9c42-8a1e-4b7d-9e25-c0a7f15b84d3". */
extern const char *const gpt_type_text;

/* Lays out a table for a disk of `disk_bytes` with sectors of `sector_bytes` (512 or 4096): fills
 * front[GPT_AREA_BYTES], to be written at 0, and back[GPT_AREA_BYTES], to be written at
 * disk_bytes - GPT_AREA_BYTES. ERR_RANGE when the disk is too small. */
HF_MUST_CHECK int gpt_encode(uint64_t disk_bytes, uint32_t sector_bytes,
                             const struct uuid *disk_guid, const struct uuid *partition_guid,
                             uint8_t *ret_front, uint8_t *ret_back, struct gpt_window *ret_window);

/* Finds our partition in the first and last GPT_AREA_BYTES of a disk; the table at the end is used
 * when the one at the front is damaged. Untrusted bytes. ERR_NOT_FOUND: no table, or none with
 * exactly one partition of ours. */
HF_MUST_CHECK int gpt_find(const uint8_t *front, const uint8_t *back, uint64_t disk_bytes,
                           struct gpt_window *ret_window);

#endif
