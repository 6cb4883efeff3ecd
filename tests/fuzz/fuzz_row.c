// SPDX-License-Identifier: MPL-2.0
/* Row headers as read from a segment.
 *
 * The input is a header. It is validated as it is, and again with type, version, length and
 * checksum set right, against the place it claims and against others. Of a header that is called
 * valid every run and every checksum must lie inside it, and its runs account for each block
 * exactly once: readers and the cleaner index by them without looking again. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "segment/row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t seed_of(const struct row_phys *h) {
    return h->uid ^ (uint64_t)h->offset << 40;
}

static void use(const struct row_phys *h, size_t bytes, uint32_t data_columns) {
    uint32_t blocks = 0;
    uint64_t sum = 0;
    for (uint32_t r = 0; r < h->runs; r++) {
        blocks += row_header_runs(h)[r].count;
        sum += row_header_runs(h)[r].vba;
    }
    ASSERT_EQ(blocks, h->blocks);
    for (uint32_t i = 0; i < h->blocks; i++) {
        sum += row_header_crcs(h)[i];
    }
    ASSERT_LE((size_t)((const uint8_t *)(row_header_crcs(h) + h->blocks) - (const uint8_t *)h),
              bytes);
    ASSERT_LE(h->blocks, ROW_DATA_MAX);
    ASSERT_LE(h->header_blocks + (uint64_t)h->blocks, (uint64_t)h->height * data_columns);
    volatile uint64_t sink = sum; /* every byte was read */
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < sizeof(struct row_phys)) {
        ASSERT_EQ(row_header_validate(data, bytes, 0, 0, 0, 1), ERR_CORRUPT);
        return 0;
    }
    struct row_phys *h = malloc(bytes); /* aligned, and exactly as long */
    ASSERT(h != NULL);
    memcpy(h, data, bytes);
    int error = row_header_validate(h, bytes, h->uid, h->offset, 0, 4);
    uint32_t length = MIN(MAX(h->header.length_bytes, (uint32_t)sizeof(*h)), (uint32_t)bytes);
    phys_seal(h, PHYS_ROW, 1, length, seed_of(h));
    for (uint32_t columns = 1; columns <= SEGMENT_COLUMNS_MAX; columns++) {
        error = row_header_validate(h, bytes, h->uid, h->offset, h->height, columns);
        ASSERT(error == OK || error == ERR_CORRUPT);
        if (error != OK) {
            continue;
        }
        use(h, bytes, columns);
        ASSERT_EQ(row_header_validate(h, bytes, h->uid + 1, h->offset, 0, columns), ERR_CHECKSUM);
        ASSERT_EQ(row_header_validate(h, bytes, h->uid, h->offset + 1, 0, columns), ERR_CHECKSUM);
        ASSERT_EQ(row_header_validate(h, bytes, h->uid, h->offset, h->height + 1, columns),
                  h->height + 1 == 0 ? OK : ERR_CORRUPT);
    }
    free(h);
    return 0;
}
