// SPDX-License-Identifier: MPL-2.0
/* A whole row out of what is left of it, for those who write one of its columns elsewhere.
 *
 * A row is determined by its header and its data blocks: the rest of the data columns is zeros, and
 * parity follows. So all that is needed are the data columns. Each is read as a whole from the
 * first copy that can be read; those of which there is none are computed from the others and from
 * parity. Then the header must validate, and every block must match the header's checksum; one that
 * does not (a peer lied, or the computed column was computed from one that did) is looked for as
 * any read would do it (read.c), which also repairs it where it lies. Only then is parity computed.
 * So nothing that was not verified is ever written as the content of a column (invariant 5), and
 * what is written is, byte for byte, what the lost column held (invariant 7). */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "codec/parity.h"
#include "segment/row.h"

struct whole {
    struct segment_table *table;
    struct segment *s;
    uint32_t offset, height;
    struct row_counters *counters;
    struct buf *buf; /* data columns, then parity columns, of one copy */
    uint32_t have;   /* mask of the columns in it */
};

struct slice {
    struct disk_io io;
    struct fiber_group *group;
};

static void slice_done(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct slice, io)->group, OK);
}

static size_t slice_bytes(const struct whole *w) {
    return (size_t)w->height * BLOCK_BYTES;
}

static uint32_t per_copy(const struct whole *w) {
    return (uint32_t)w->s->shape.data + w->s->shape.parity;
}

/* Reads those of the `wanted` columns that `copy` can give. */
static void read_slices(struct whole *w, uint32_t copy, uint32_t wanted) {
    struct slice slices[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    uint32_t sent = 0, came = 0;
    for (uint32_t c = 0; c < per_copy(w); c++) {
        uint32_t column = copy * per_copy(w) + c;
        struct disk *disk = segment_column_disk(w->table, w->s, column);
        if (((wanted >> c) & 1) == 0 || disk == NULL) {
            continue;
        }
        slices[c] = (struct slice){
            .io = {.op = ENV_IO_READ,
                   .offset_bytes =
                       segment_column_block(w->table, w->s, column, w->offset) * BLOCK_BYTES,
                   .length_bytes = slice_bytes(w),
                   .buf = w->buf,
                   .buf_offset = c * slice_bytes(w),
                   .done = slice_done},
            .group = &group};
        sent |= 1u << c;
        fiber_group_add(&group);
        disk_submit(disk, &slices[c].io);
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK); /* results are per slice */
    for (uint32_t c = 0; c < per_copy(w); c++) {
        came |= ((sent >> c) & 1) != 0 && slices[c].io.result == OK ? 1u << c : 0;
    }
    w->have |= came;
    if (came != sent) { /* what is late may still come, into the old buffer */
        struct buf *fresh = buf_new(w->buf->bytes);
        memcpy(fresh->data, w->buf->data, fresh->bytes);
        buf_unref(w->buf);
        w->buf = fresh;
    }
}

static void columns_of(const struct whole *w, void **ret_columns) {
    for (uint32_t c = 0; c < per_copy(w); c++) {
        ret_columns[c] = w->buf->data + c * slice_bytes(w);
    }
}

/* All data columns, read or computed. */
static int gather(struct whole *w) {
    uint32_t data = (1u << w->s->shape.data) - 1, all = (1u << per_copy(w)) - 1;
    for (uint32_t copy = 0; copy < w->s->shape.copies && (w->have & data) != data; copy++) {
        read_slices(w, copy, data & ~w->have);
    }
    if ((w->have & data) == data) {
        return OK;
    }
    for (uint32_t copy = 0; copy < w->s->shape.copies && (w->have & all) != all; copy++) {
        read_slices(w, copy, all & ~data & ~w->have);
    }
    uint32_t missing = all & ~w->have;
    if ((uint32_t)__builtin_popcount(missing) > w->s->shape.parity) {
        return ERR_DATA_LOSS;
    }
    void *columns[SEGMENT_COLUMNS_MAX];
    columns_of(w, columns);
    w->counters->reconstructed_one += w->height;
    return parity_reconstruct(w->s->shape.data, w->s->shape.parity, slice_bytes(w), columns,
                              missing);
}

/* The header, and zeros where nothing is. */
static int settle_header(struct whole *w) {
    size_t room = (size_t)w->s->shape.data * slice_bytes(w);
    int err =
        row_header_validate(w->buf->data, room, w->s->uid, w->offset, w->height, w->s->shape.data);
    if (err != OK) {
        struct buf *header = NULL;
        w->counters->checksum_errors++;
        err = row_read_header(w->table, w->s, w->offset, w->height, w->counters, &header);
        if (err != OK) {
            return err;
        }
        memcpy(w->buf->data, header->data, MIN(header->bytes, room));
        buf_unref(header);
    }
    const struct row_phys *h = (const struct row_phys *)(const void *)w->buf->data;
    size_t length = h->header.length_bytes, first = (size_t)h->header_blocks * BLOCK_BYTES;
    size_t used = first + (size_t)h->blocks * BLOCK_BYTES;
    memset(w->buf->data + length, 0, first - length);
    memset(w->buf->data + used, 0, room - used);
    return OK;
}

static int verify_blocks(struct whole *w) {
    for (uint32_t i = 0;; i++) {
        const struct row_phys *h = (const struct row_phys *)(const void *)w->buf->data;
        if (i == h->blocks || SABOTAGE(rebuild_unverified)) {
            return OK;
        }
        const struct row_run_phys *runs = row_header_runs(h);
        uint32_t r = 0, within = i;
        while (within >= runs[r].count) { /* a valid header accounts for every block */
            within -= runs[r++].count;
        }
        struct row_check check = {.vba = runs[r].vba + within, .crc = row_header_crcs(h)[i]};
        uint32_t index = h->header_blocks + i;
        size_t at = (size_t)index * BLOCK_BYTES;
        if (crc32c_seeded(check.vba, w->buf->data + at, BLOCK_BYTES) == check.crc) {
            continue;
        }
        struct row_place place = {
            .segment = w->s, .offset = w->offset, .height = w->height, .index = index};
        int err = row_read(w->table, &place, 1, &check, &w->buf, at, w->counters, NULL);
        if (err != OK) {
            return err;
        }
    }
}

int row_read_columns(struct segment_table *table, struct segment *s, uint32_t offset,
                     uint32_t height, struct row_counters *counters, struct buf **ret_columns) {
    struct whole w = {
        .table = table, .s = s, .offset = offset, .height = height, .counters = counters};
    w.buf = buf_new(per_copy(&w) * slice_bytes(&w));
    s->pins++;
    int err = gather(&w);
    if (err == OK) {
        err = settle_header(&w);
    }
    if (err == OK) {
        err = verify_blocks(&w);
    }
    s->pins--;
    if (err != OK) {
        buf_unref(w.buf);
        return err;
    }
    if (s->shape.parity > 0) {
        void *columns[SEGMENT_COLUMNS_MAX];
        columns_of(&w, columns);
        parity_generate(s->shape.data, s->shape.parity, slice_bytes(&w), columns);
    }
    *ret_columns = w.buf;
    return OK;
}
