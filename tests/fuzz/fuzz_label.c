// SPDX-License-Identifier: MPL-2.0
/* Labels, superblocks, witness records and partition tables as read from a disk or a host.
 *
 * The first byte of the input says which; the rest is laid over a zeroed structure. It is decoded
 * as it is, and again with its checksum set right, so that the fields behind the checksum are
 * reached. Whatever the bytes: no access outside, no assert; and what is called valid can be used
 * as an index everywhere its fields are used so. */
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "format/super.h"
#include "pool/gpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_label(const uint8_t *data, size_t bytes) {
    _Alignas(8) uint8_t block[BLOCK_BYTES] = {0};
    struct label_phys label;
    memcpy(block, data, MIN(bytes, sizeof(block)));
    int error = label_decode(block, MIN(bytes, sizeof(block)), 0, &label);
    label_seal((struct label_phys *)(void *)block, 7);
    error = label_decode(block, sizeof(block), 7, &label);
    if (error != OK) {
        return;
    }
    ASSERT_LT(strlen(label.pool_name), sizeof(label.pool_name));
    ASSERT_LT(label.member, POOL_DISKS_MAX);
    ASSERT_LT(0, layout_chunk_count(&label.geometry, label.disk_blocks));
    ASSERT_LT(TAIL_BLOCKS, label.disk_blocks);
    ASSERT_EQ(label_decode(block, sizeof(block), 8, &label), ERR_CHECKSUM);
}

static void use_direct(const struct super_phys *s, const struct direct_phys *d) {
    for (uint32_t i = 0; d->length_bytes != 0 && i < DIRECT_COPIES; i++) {
        if (d->disk[i] == 0xffff) {
            continue;
        }
        ASSERT_LT(d->disk[i], s->member_count);
        const struct member_phys *m = &s->members[d->disk[i]];
        uint64_t end = layout_chunk_block(&s->geometry, d->chunk_copy[i]) + d->offset_blocks +
                       div_round_up(d->length_bytes, BLOCK_BYTES);
        ASSERT_LE(end, m->disk_blocks - TAIL_BLOCKS);
    }
}

static void try_super(const uint8_t *data, size_t bytes) {
    struct super_phys *in = calloc(1, SUPER_BYTES), *s = calloc(1, sizeof(*s));
    const struct uuid disk = {{1, 2, 3}};
    memcpy(in, data, MIN(bytes, (size_t)SUPER_BYTES));
    int error = super_decode(in, MIN(bytes, (size_t)SUPER_BYTES), &disk, 4, s);
    super_seal(in, &disk, 4);
    error = super_decode(in, SUPER_BYTES, &disk, 4, s);
    if (error == OK) {
        ASSERT_LT(strlen(s->name), sizeof(s->name));
        ASSERT_LT(strlen(s->host), sizeof(s->host));
        ASSERT_LE(s->member_count, POOL_DISKS_MAX);
        for (uint32_t i = 0; i < s->member_count; i++) {
            const struct member_phys *m = &s->members[i];
            if (m->state != MEMBER_NONE) {
                ASSERT_LT(strlen(m->path_hint), sizeof(m->path_hint));
                ASSERT_LE(layout_chunk_block(&s->geometry, m->chunks),
                          m->disk_blocks - TAIL_BLOCKS);
            }
        }
        use_direct(s, &s->roots.directory);
        use_direct(s, &s->roots.catalog);
    }
    free(in);
    free(s);
}

static void try_witness(const uint8_t *data, size_t bytes) {
    _Alignas(8) uint8_t record[256] = {0};
    struct witness_phys witness;
    memcpy(record, data, MIN(bytes, sizeof(record)));
    struct witness_phys *w = (struct witness_phys *)(void *)record;
    const struct uuid pool = w->pool;
    int error = witness_decode(record, MIN(bytes, sizeof(record)), &pool, &witness);
    witness_seal(w);
    error = witness_decode(record, sizeof(record), &pool, &witness);
    ASSERT(error == OK || error == ERR_CORRUPT);
}

/* Sets the two checksums of a header at `at` right, if its array lies in the area. */
static void seal_table(uint8_t *area, size_t at, uint32_t sector_bytes) {
    uint64_t lba;
    uint32_t count, crc = 0;
    memcpy(&lba, area + at + 72, sizeof(lba));
    memcpy(&count, area + at + 80, sizeof(count));
    if (lba < GPT_AREA_BYTES && count <= 128 &&
        range_is_within(lba * sector_bytes, (uint64_t)count * 128, GPT_AREA_BYTES)) {
        crc = crc32_gzip_refl(0, area + lba * sector_bytes, (uint64_t)count * 128);
        memcpy(area + at + 88, &crc, sizeof(crc));
    }
    memset(area + at + 16, 0, 4);
    crc = crc32_gzip_refl(0, area + at, 92);
    memcpy(area + at + 16, &crc, sizeof(crc));
}

static void try_table(const uint8_t *data, size_t bytes) {
    uint8_t *front = calloc(1, GPT_AREA_BYTES), *back = calloc(1, GPT_AREA_BYTES);
    const uint64_t disk_bytes = 64ull << 20;
    size_t half = MIN(bytes, (size_t)GPT_AREA_BYTES);
    memcpy(front, data, half);
    memcpy(back + GPT_AREA_BYTES - half, data, half);
    static const uint32_t sectors[] = {512, 4096};
    for (size_t i = 0; i <= ARRAY_COUNT(sectors); i++) {
        struct gpt_window window = {0};
        if (gpt_find(front, back, disk_bytes, &window) == OK) {
            ASSERT(range_is_within(window.offset_bytes, window.length_bytes, disk_bytes));
            ASSERT_EQ(window.offset_bytes % BLOCK_BYTES, 0);
            ASSERT_EQ(window.length_bytes % BLOCK_BYTES, 0);
            ASSERT_LT(0, window.length_bytes);
        }
        if (i < ARRAY_COUNT(sectors)) {
            seal_table(front, sectors[i], sectors[i]);
        }
    }
    free(front);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static void (*const tries[])(const uint8_t *, size_t) = {try_label, try_super, try_witness,
                                                             try_table};
    if (bytes != 0) {
        tries[data[0] % ARRAY_COUNT(tries)](data + 1, bytes - 1);
    }
    return 0;
}
