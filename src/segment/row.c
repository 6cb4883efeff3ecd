// SPDX-License-Identifier: MPL-2.0
/* Building and writing rows: see row.h. Reading is in read.c. */
#include "segment/row.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/parity.h"

enum { ROW_VERSION = 1, LATE_MOVES_MAX = 2 };

#define ROW_LATE_NS NS_PER_S
#define ROW_SHUN_NS (10 * NS_PER_S)

static uint32_t header_bytes(uint32_t blocks, uint32_t runs) {
    return (uint32_t)round_up(sizeof(struct row_phys) +
                                  (uint64_t)runs * sizeof(struct row_run_phys) +
                                  (uint64_t)blocks * sizeof(uint32_t),
                              8);
}

static uint32_t header_blocks_for(uint32_t blocks, uint32_t runs) {
    return (uint32_t)div_round_up(header_bytes(blocks, runs), BLOCK_BYTES);
}

uint32_t row_capacity(const struct segment_table *table, const struct segment *s, bool many_runs,
                      bool movable) {
    const struct geometry *g = &table->pool->super.geometry;
    uint32_t remaining = g->chunk_blocks - s->used_blocks;
    /* Tall enough for a tree node and a header, however narrow the segment. */
    uint32_t height = MAX(g->row_blocks, (uint32_t)div_round_up(g->node_blocks + 1, s->shape.data));
    uint32_t total = MIN(height, remaining) * s->shape.data;
    if (movable) { /* half a chunk always fits into a segment of one data column */
        total = MIN(total, g->chunk_blocks / 2);
    }
    uint32_t header = header_blocks_for(MIN(total, (uint32_t)ROW_DATA_MAX),
                                        many_runs ? MIN(total, (uint32_t)ROW_DATA_MAX) : 1);
    return total <= header ? 0 : MIN(total - header, (uint32_t)ROW_DATA_MAX);
}

static uint32_t row_height(const struct segment *s, uint32_t total) {
    return (uint32_t)div_round_up(total, s->shape.data);
}

/* Rows are filled with what is left of runs, which cannot be divided. The worst is a size of which
 * one more would just not have fitted, into the row or into the rest of the chunk. */
uint32_t row_density(const struct segment_table *table, uint32_t data_columns) {
    const struct geometry *g = &table->pool->super.geometry;
    struct segment fresh = {.shape = {.copies = 1, .data = (uint8_t)data_columns}};
    uint32_t capacity = row_capacity(table, &fresh, true, true), least = UINT32_MAX;
    for (uint32_t n = 1; n <= capacity; n++) {
        uint32_t blocks = capacity / n * n;
        uint32_t height = row_height(&fresh, blocks + header_blocks_for(blocks, blocks));
        least = MIN(least, g->chunk_blocks / height * blocks);
    }
    return capacity == 0 ? 0 : least * 1024 / (g->chunk_blocks * data_columns);
}

bool row_fits(const struct segment_table *table, struct shape shape, uint32_t blocks) {
    uint32_t total = blocks + header_blocks_for(blocks, blocks);
    return shape.data > 0 &&
           div_round_up(total, shape.data) <= table->pool->super.geometry.chunk_blocks;
}

static size_t column_bytes(const struct row *row) {
    return (size_t)row->height * BLOCK_BYTES;
}

/* Takes [used, used + height) of every column. */
static int row_take_room(struct row *row, struct segment *s) {
    uint32_t height = row_height(s, row->blocks + row->header_blocks);
    if (s->state != SEGMENT_OPEN ||
        height > row->table->pool->super.geometry.chunk_blocks - s->used_blocks) {
        return ERR_NO_SPACE;
    }
    row->segment = s;
    row->height = height;
    row->offset = s->used_blocks;
    s->used_blocks += height;
    s->pending++;
    segment_mark_dirty(row->table, s);
    return OK;
}

int row_new(struct segment_table *table, struct segment *s, uint32_t blocks, uint32_t run_count,
            uint64_t generation, struct row **ret_row) {
    ASSERT(blocks > 0 && blocks <= ROW_DATA_MAX && run_count > 0 && run_count <= blocks);
    struct row *row = MEM_NEW(struct row);
    row->table = table;
    row->blocks = blocks;
    row->run_count = run_count;
    row->generation = generation;
    row->header_blocks = header_blocks_for(blocks, run_count);
    int err = row_take_room(row, s);
    if (err != OK) {
        mem_free(row);
        return err;
    }
    row->runs = MEM_NEW_ARRAY(struct row_run_phys, run_count);
    row->crc = MEM_NEW_ARRAY(uint32_t, blocks);
    row->vba = MEM_NEW_ARRAY(uint64_t, blocks);
    row->buf = buf_new((s->shape.data + (size_t)s->shape.parity) * column_bytes(row));
    *ret_row = row;
    return OK;
}

void row_free(struct row *row) {
    if (row == NULL) {
        return;
    }
    row->segment->pending--;
    buf_unref(row->buf);
    mem_free(row->runs);
    mem_free(row->crc);
    mem_free(row->vba);
    mem_free(row);
}

void *row_block(const struct row *row, uint32_t i) {
    ASSERT_LT(i, row->blocks);
    return row->buf->data + ((size_t)row->header_blocks + i) * BLOCK_BYTES;
}

static void row_write_header(struct row *row) {
    struct row_phys *h = (struct row_phys *)(void *)row->buf->data;
    uint32_t length = header_bytes(row->blocks, row->run_count);
    memset(h, 0, (size_t)row->header_blocks * BLOCK_BYTES);
    h->uid = row->segment->uid;
    h->generation = row->generation;
    h->offset = row->offset;
    h->height = row->height;
    h->blocks = row->blocks;
    h->header_blocks = row->header_blocks;
    h->runs = row->run_count;
    memcpy((void *)(uintptr_t)row_header_runs(h), row->runs, row->run_count * sizeof(*row->runs));
    memcpy((void *)(uintptr_t)row_header_crcs(h), row->crc, row->blocks * sizeof(*row->crc));
    phys_seal(h, PHYS_ROW, ROW_VERSION, length, row->segment->uid ^ (uint64_t)row->offset << 40);
}

void row_finish(struct row *row) {
    const struct shape *shape = &row->segment->shape;
    size_t used = ((size_t)row->header_blocks + row->blocks) * BLOCK_BYTES;
    size_t data = shape->data * column_bytes(row);
    row_write_header(row);
    memset(row->buf->data + used, 0, data - used);
    if (shape->parity > 0) {
        void *columns[SEGMENT_COLUMNS_MAX];
        uint32_t total = (uint32_t)shape->data + shape->parity;
        for (uint32_t c = 0; c < total; c++) {
            columns[c] = row->buf->data + c * column_bytes(row);
        }
        if (SABOTAGE(parity_swapped) && shape->parity == 2) {
            void *p = columns[total - 2];
            columns[total - 2] = columns[total - 1];
            columns[total - 1] = p;
        }
        parity_generate(shape->data, shape->parity, column_bytes(row), columns);
    }
}

struct column_write {
    struct disk_io io;
    struct fiber_group *group;
};

static void column_written(struct disk_io *io) {
    struct column_write *w = CONTAINER_OF(io, struct column_write, io);
    fiber_group_done(w->group, OK); /* each column's result is looked at one by one */
}

static void columns_submit(struct row *row, bool durable, struct column_write *writes,
                           struct fiber_group *group) {
    struct segment *s = row->segment;
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(row->table, s, c);
        writes[c].io = (struct disk_io){.result = ERR_DISK_GONE};
        if (disk == NULL) {
            continue;
        }
        writes[c] = (struct column_write){
            .io = {.op = ENV_IO_WRITE,
                   .durable = durable,
                   .offset_bytes =
                       segment_column_block(row->table, s, c, row->offset) * BLOCK_BYTES,
                   .length_bytes = column_bytes(row),
                   .buf = row->buf,
                   .buf_offset = (c % per_copy) * column_bytes(row),
                   .done = column_written},
            .group = group};
        if (!durable) {
            s->unflushed |= 1u << c;
        }
        fiber_group_add(group);
        disk_submit(disk, &writes[c].io);
    }
}

/* The columns of a row are the same write on different disks, at the same time: the fairest
 * comparison there is. Late are those that are still out when all others came back in a quarter of
 * the time; or, where there are no others, when it takes several times what it takes their peers.
 * Two at most: more is not the fault of one disk. */
static uint32_t late_columns(const struct row *row, const struct column_write *writes, bool durable,
                             uint64_t waited_ns) {
    uint32_t late = 0, columns = shape_columns(row->segment->shape);
    for (uint32_t c = 0; c < columns; c++) {
        if (writes[c].io.private_op != NULL) {
            late |= 1u << c;
        } else if (writes[c].io.result != OK || writes[c].io.latency_ns > waited_ns / 4) {
            return 0;
        }
    }
    if (columns == 1) {
        struct disk *disk = segment_column_disk(row->table, row->segment, 0);
        uint64_t allowed = disk == NULL
                               ? UINT64_MAX
                               : disk_hedge_ns(disk, ENV_IO_WRITE, durable, column_bytes(row));
        return allowed < waited_ns / 8 ? late : 0;
    }
    return __builtin_popcount(late) <= 2 && (uint32_t)__builtin_popcount(late) < columns ? late : 0;
}

static void columns_shun(const struct row *row, uint32_t columns, uint64_t until_ns) {
    for (uint32_t c = 0; c < shape_columns(row->segment->shape); c++) {
        struct disk *disk = segment_column_disk(row->table, row->segment, c);
        if (((columns >> c) & 1) != 0 && disk != NULL) {
            disk_shun(disk, until_ns);
        }
    }
}

/* Waits for all columns, or until some are late and there is another place for the row: those are
 * left, and their disks shunned for a while. Returns their mask. */
static uint32_t columns_wait(struct row *row, bool durable, struct column_write *writes,
                             struct fiber_group *group) {
    uint64_t start = env_now_ns(fiber_env());
    for (uint64_t waited = ROW_LATE_NS;; waited += ROW_LATE_NS / 4) {
        if (fiber_group_wait_any(group, NULL, start + waited) == OK) {
            return 0;
        }
        uint32_t late =
            row->late_moves < LATE_MOVES_MAX ? late_columns(row, writes, durable, waited) : 0;
        columns_shun(row, late, start + waited + ROW_SHUN_NS);
        if (late != 0 && !segment_has_better(row->table, row->segment)) {
            columns_shun(row, late, 0);
            late = 0;
        }
        for (uint32_t c = 0; c < shape_columns(row->segment->shape); c++) {
            if (((late >> c) & 1) != 0) {
                disk_leave(&writes[c].io);
            }
        }
        if (late != 0) {
            row->late_moves++;
            return late;
        }
    }
}

int row_write(struct row *row, bool durable) {
    struct segment *s = row->segment;
    struct column_write writes[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    int error = OK;
    columns_submit(row, durable, writes, &group);
    uint32_t late = columns_wait(row, durable, writes, &group);
    if (late != 0) { /* nothing refers to it: it is written elsewhere, and so is what follows */
        row->table->late_rows++;
        segment_seal(row->table, s);
        error = ERR_IO;
    }
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        bool in_sync = pool_member_in_sync(row->table->pool, s->column[c].disk);
        bool good = writes[c].io.result == OK || ((late >> c) & 1) != 0;
        if (!good || !in_sync) { /* or expelled meanwhile */
            error = ERR_IO;
            if (in_sync) {
                pool_expel(row->table->pool, s->column[c].disk,
                           writes[c].io.result == ERR_TIMEOUT ? "a write did not come back in time"
                                                              : "a write failed");
            }
        }
    }
    return error;
}

int row_move(struct row *row, struct segment *s) {
    struct segment *old = row->segment;
    struct buf *old_buf = row->buf;
    int err = row_take_room(row, s);
    if (err != OK) {
        return err;
    }
    old->pending--;
    row->buf = buf_new((s->shape.data + (size_t)s->shape.parity) * column_bytes(row));
    memcpy(row->buf->data + (size_t)row->header_blocks * BLOCK_BYTES,
           old_buf->data + (size_t)row->header_blocks * BLOCK_BYTES,
           (size_t)row->blocks * BLOCK_BYTES);
    buf_unref(old_buf); /* late writes of the old place hold their own references */
    row_finish(row);
    return OK;
}

struct placed_row *placed_row_new(struct segment *s, uint32_t blocks) {
    struct placed_row *row = mem_alloc(sizeof(*row) + blocks * sizeof(uint32_t));
    row->refs = 1;
    row->segment = s;
    row->blocks = blocks;
    s->pending++;
    return row;
}

struct placed_row *placed_row_ref(struct placed_row *row) {
    row->refs++;
    return row;
}

void placed_row_unref(struct placed_row *row) {
    if (row != NULL && --row->refs == 0) {
        row->segment->pending--;
        mem_free(row);
    }
}
