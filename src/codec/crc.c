// SPDX-License-Identifier: MPL-2.0
#include "codec/crc.h"

#include <isa-l/crc.h>

uint32_t crc32c_more(uint32_t crc, const void *data, size_t bytes) {
    unsigned char *p = (unsigned char *)(uintptr_t)data; /* ISA-L does not write to it */
    crc = ~crc;
    while (bytes > 0) {
        int n = bytes > (1u << 30) ? (1 << 30) : (int)bytes;
        crc = crc32_iscsi(p, n, crc);
        p += n;
        bytes -= (size_t)n;
    }
    return ~crc;
}

uint32_t crc32c(const void *data, size_t bytes) {
    return crc32c_more(0, data, bytes);
}

uint32_t crc32c_seeded(uint64_t seed, const void *data, size_t bytes) {
    return crc32c_more(crc32c_more(0, &seed, sizeof(seed)), data, bytes);
}
