// SPDX-License-Identifier: MPL-2.0
/* Pages of the segment table as read from a metadata segment.
 *
 * The first byte of the input chooses the size of a page and its number; the rest is laid over a
 * zeroed page. It is decoded as it is, and again with what would end the matter at once set right
 * (header, number, slots, checksum). Of what is accepted: columns lie on distinct disks (invariant
 * 12), a chunk belongs to one segment (invariant 11), no segment is open (invariant 6); and what is
 * written from it decodes to the same. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "engine_shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_entries(const struct pool *pool, const struct segment_table *table) {
    uint32_t used[SHELL_MEMBERS] = {0};
    for (uint32_t i = 0; i < table->slot_count; i++) {
        const struct segment *s = segment_get(table, i);
        uint64_t disks = 0;
        if (s == NULL) {
            continue;
        }
        ASSERT_EQ(s->state, SEGMENT_SEALED);
        ASSERT(s->uid != 0 && s->uid < table->uid_next);
        ASSERT_LE(s->used_blocks, pool->super.geometry.chunk_blocks);
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            ASSERT_LT(s->column[c].disk, SHELL_MEMBERS);
            ASSERT_LT(s->column[c].chunk, SHELL_CHUNKS);
            ASSERT_EQ((disks >> s->column[c].disk) & 1, 0);
            disks |= 1ull << s->column[c].disk;
            ASSERT_EQ(table->chunk_used[s->column[c].disk][s->column[c].chunk], 1);
            used[s->column[c].disk]++;
        }
    }
    for (uint32_t m = 0; m < SHELL_MEMBERS; m++) {
        ASSERT_EQ(used[m] + table->chunk_free[m], SHELL_CHUNKS);
    }
}

static void decode_again(struct pool *pool, const struct segment_table *table, uint32_t page) {
    struct segment_table other;
    uint8_t *first = calloc(1, segment_page_bytes(table));
    uint8_t *second = calloc(1, segment_page_bytes(table));
    ASSERT(first != NULL && second != NULL);
    segment_table_init(&other, pool);
    segment_page_encode(table, page, first);
    ASSERT_EQ(segment_page_decode(&other, page, first), OK);
    check_entries(pool, &other);
    segment_page_encode(&other, page, second);
    /* Live blocks are counted from the map, not kept from the page. */
    ASSERT_EQ(memcmp(first, second, segment_page_bytes(table)), 0);
    segment_table_done(&other);
    free(first);
    free(second);
}

static int decode(struct pool *pool, uint32_t page, const uint8_t *bytes) {
    struct segment_table table;
    segment_table_init(&table, pool);
    int error = segment_page_decode(&table, page, bytes);
    check_entries(pool, &table);
    if (error == OK) {
        decode_again(pool, &table, page);
    }
    segment_table_done(&table);
    return error;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) {
        return 0;
    }
    struct pool *pool = calloc(1, sizeof(*pool));
    ASSERT(pool != NULL);
    shell_pool_init(pool, 1u << (data[0] % 3));
    uint32_t page = data[0] / 16;
    uint32_t length = pool->super.geometry.node_blocks * BLOCK_BYTES;
    uint8_t *bytes_page = calloc(1, length);
    ASSERT(bytes_page != NULL);
    memcpy(bytes_page, data + 1, MIN(bytes - 1, (size_t)length));
    int error = decode(pool, page, bytes_page);
    uint32_t slots = (length - SEGMENT_PAGE_HEADER_BYTES) / (uint32_t)sizeof(struct segment_phys);
    const uint32_t fields[2] = {page, slots};
    memcpy(bytes_page + sizeof(struct header_phys), fields, sizeof(fields));
    phys_seal(bytes_page, PHYS_TABLE_PAGE, 1, length, page);
    error = decode(pool, page, bytes_page);
    ASSERT(error == OK || error == ERR_CORRUPT);
    ASSERT_EQ(decode(pool, page + 1, bytes_page), ERR_CHECKSUM); /* found in another's place */
    free(bytes_page);
    free(pool);
    return 0;
}
