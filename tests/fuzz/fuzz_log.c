// SPDX-License-Identifier: MPL-2.0
/* Log rows as a replay finds them, and the records in them.
 *
 * The input is a row. It is validated as it is, and again with type, version, length and checksum
 * set right. A row that is called valid is gone through as replay does: its records must lie inside
 * it, and each is handed to the engine, which takes or refuses it. Whatever the bytes: no access
 * outside, no assert. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "engine_shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { SEED = 7, VOLUMES = 3 };

/* Three volumes, as a catalog would have brought them; what segments there are, the row says. */
static struct engine *engine_with_volumes(struct pool *pool) {
    struct engine *e = shell_engine_new(pool);
    for (uint32_t i = 1; i <= VOLUMES; i++) {
        struct volume_phys p = {.id = i,
                                .name = "v",
                                .size_bytes = 16 << 20,
                                .block_bytes = SECTOR_BYTES,
                                .profile = PROFILE_RAID6};
        (void)volume_add(e, &p);
    }
    return e;
}

static void check_layers(struct engine *e) {
    LIST_FOR_EACH(link, &e->volumes) {
        const struct volume *v = CONTAINER_OF(link, struct volume, link);
        struct overlay_cursor cursor = {0};
        const struct overlay_extent *x;
        uint64_t end = 0;
        while ((x = overlay_next(&v->active, &cursor)) != NULL) {
            ASSERT_LE(end, x->start);
            end = x->start + x->count;
            ASSERT_LE(end, v->phys.size_bytes / BLOCK_BYTES);
            if (x->kind == OVERLAY_DATA) {
                ASSERT(range_is_within(x->offset, x->count * BLOCK_BYTES, x->buf->bytes));
            } else if (x->kind == OVERLAY_REF) {
                ASSERT(range_is_within(x->index, x->count, x->row->blocks));
                ASSERT(range_is_within(x->row->header_blocks, x->row->blocks,
                                       (uint64_t)x->row->height * x->row->segment->shape.data));
            }
        }
    }
}

static void replay(const uint8_t *bytes, size_t length) {
    struct pool pool;
    shell_pool_init(&pool, 1);
    struct engine *e = engine_with_volumes(&pool);
    struct buf *row = buf_new(length);
    memcpy(row->data, bytes, length);
    const struct log_row_phys *h = (const struct log_row_phys *)(const void *)row->data;
    size_t at = sizeof(*h);
    for (uint32_t i = 0; i < h->records; i++) {
        struct log_record_phys record;
        ASSERT(range_is_within(at, sizeof(record), length));
        memcpy(&record, row->data + at, sizeof(record));
        at += sizeof(record);
        const void *header = row->data + at;
        at += round_up(record.header_bytes, 8);
        ASSERT(range_is_within(at, round_up(record.data_bytes, 8), length));
        if (engine_replay_record(e, record.type, header, record.header_bytes, row, at,
                                 record.data_bytes) != OK) {
            break; /* a replay ends here */
        }
        at += round_up(record.data_bytes, 8);
    }
    buf_unref(row); /* what the overlay took holds references of its own */
    check_layers(e);
    engine_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < sizeof(struct log_row_phys)) {
        const struct uuid none = {{0}};
        ASSERT_EQ(log_row_validate(data, bytes, &none, SEED), ERR_CORRUPT);
        return 0;
    }
    uint8_t *row = malloc(bytes); /* aligned, and exactly as long */
    ASSERT(row != NULL);
    memcpy(row, data, bytes);
    struct log_row_phys *h = (struct log_row_phys *)(void *)row;
    const struct uuid pool = h->pool, other = {{(uint8_t)~pool.bytes[0]}};
    int error = log_row_validate(row, bytes, &pool, SEED);
    uint32_t length = MIN(MAX(h->header.length_bytes, (uint32_t)sizeof(*h)), (uint32_t)bytes);
    phys_seal(row, PHYS_LOG_ROW, 1, length, SEED);
    error = log_row_validate(row, bytes, &pool, SEED);
    ASSERT(error == OK || error == ERR_CORRUPT);
    if (error == OK) {
        ASSERT_EQ(log_row_validate(row, bytes, &pool, SEED + 1), ERR_CHECKSUM);
        ASSERT_EQ(log_row_validate(row, bytes, &other, SEED), ERR_FOREIGN);
        replay(row, length);
    }
    free(row);
    return 0;
}
