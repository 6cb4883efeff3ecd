// SPDX-License-Identifier: MPL-2.0
/* What all structures on disk have in common. docs/FORMAT.md describes every byte.
 *
 * Integers are little-endian, and so are the machines we run on (asserted below): the structs are
 * read and written as they lie in memory. Every structure begins with struct header_phys. Its
 * checksum covers the whole structure with the crc field taken as zero, and is seeded with where
 * the structure lies (disk and offset, or checkpoint), so that a structure found in the wrong place
 * is refused. */
#ifndef HOLDFAST_FORMAT_PHYS_H
#define HOLDFAST_FORMAT_PHYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structures on disk are little-endian");

enum {
    BLOCK_BYTES = 4096,
    BLOCK_SHIFT = 12,
    SECTOR_BYTES = 512,
};

enum phys_type { /* 'HF' + kind */
                 PHYS_LABEL = 0x4846004c,
                 PHYS_SUPER = 0x48460053,
                 PHYS_LOG_ROW = 0x48460052,
                 PHYS_ROW = 0x48460044,
                 PHYS_NODE = 0x4846004e,
                 PHYS_TABLE_PAGE = 0x48460054,
                 PHYS_DIRECTORY = 0x48460059,
                 PHYS_CATALOG = 0x48460043,
                 PHYS_WITNESS = 0x48460057,
                 PHYS_RESERVATIONS = 0x48460056,
};

struct header_phys {
    uint32_t type;
    uint16_t version;
    uint16_t reserved;
    uint32_t length_bytes; /* of the whole structure, this header included */
    uint32_t crc;
};
_Static_assert(sizeof(struct header_phys) == 16, "on disk");

struct uuid {
    uint8_t bytes[16];
};

/* Fills in the header and its checksum over `length_bytes` (a multiple of 8). */
void phys_seal(void *structure, enum phys_type type, uint16_t version, uint32_t length_bytes,
               uint64_t seed);
/* Checks type, length (≥ least, ≤ room), and checksum; not the version. ERR_CORRUPT when it is not
 * such a structure at all, ERR_CHECKSUM when it is one but damaged. */
HF_MUST_CHECK int phys_check(const void *structure, enum phys_type type, uint32_t least_bytes,
                             size_t room_bytes, uint64_t seed);

#endif
