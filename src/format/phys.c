// SPDX-License-Identifier: MPL-2.0
#include "format/phys.h"

#include "base/assert.h"
#include "codec/crc.h"

static uint32_t phys_crc(const void *structure, uint32_t length_bytes, uint64_t seed) {
    static const uint32_t zero = 0;
    const uint8_t *p = structure;
    size_t at = offsetof(struct header_phys, crc);
    uint32_t crc = crc32c(&seed, sizeof(seed));
    crc = crc32c_more(crc, p, at);
    crc = crc32c_more(crc, &zero, sizeof(zero));
    return crc32c_more(crc, p + at + sizeof(zero), length_bytes - at - sizeof(zero));
}

void phys_seal(void *structure, enum phys_type type, uint16_t version, uint32_t length_bytes,
               uint64_t seed) {
    struct header_phys *h = structure;
    ASSERT_LE(sizeof(*h), length_bytes);
    *h = (struct header_phys){.type = type, .version = version, .length_bytes = length_bytes};
    h->crc = phys_crc(structure, length_bytes, seed);
}

int phys_check(const void *structure, enum phys_type type, uint32_t least_bytes, size_t room_bytes,
               uint64_t seed) {
    const struct header_phys *h = structure;
    if (room_bytes < sizeof(*h) || h->type != type || h->length_bytes < least_bytes ||
        h->length_bytes < sizeof(*h) || h->length_bytes > room_bytes) {
        return ERR_CORRUPT;
    }
    return phys_crc(structure, h->length_bytes, seed) == h->crc ? OK : ERR_CHECKSUM;
}
