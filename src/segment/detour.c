// SPDX-License-Identifier: MPL-2.0
/* Detours: see detour.h. */
#include "segment/detour.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "codec/parity.h"

static void piece_done(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct piece, io)->group, OK);
}

void piece_submit(struct piece *p, struct fiber_group *group, struct disk *disk, uint64_t block,
                  uint32_t blocks, struct buf *buf, size_t buf_offset) {
    uint64_t now = env_now_ns(fiber_env());
    *p = (struct piece){.io = {.op = ENV_IO_READ,
                               .offset_bytes = block * BLOCK_BYTES,
                               .length_bytes = (uint64_t)blocks * BLOCK_BYTES,
                               .buf = buf,
                               .buf_offset = buf_offset,
                               .deadline_ns = now + disk_deadline_ns(disk) / 10 * 9,
                               .done = piece_done},
                        .group = group};
    fiber_group_add(group);
    disk_submit(disk, &p->io);
}

void piece_leave(struct piece *p) {
    if (p->io.private_op != NULL) {
        disk_leave(&p->io);
        fiber_group_done(p->group, OK);
    }
}

static void ask(struct detour *d, uint32_t c, uint32_t column) {
    piece_submit(&d->piece[c], d->group, segment_column_disk(d->table, d->s, column),
                 segment_column_block(d->table, d->s, column, d->block), d->count, d->buf,
                 (size_t)c * d->count * BLOCK_BYTES);
    d->asked[c] = true;
}

static bool may_ask(const struct detour *d, uint32_t column) {
    struct disk *disk = segment_column_disk(d->table, d->s, column);
    return disk != NULL && !disk_is_avoided(disk);
}

static bool begin_copy(struct detour *d, uint32_t per_copy) {
    for (uint32_t copy = 1; copy < d->s->shape.copies; copy++) {
        if (may_ask(d, copy * per_copy + d->column)) {
            d->buf = buf_new((size_t)per_copy * d->count * BLOCK_BYTES);
            d->from_copy = true;
            ask(d, d->column, copy * per_copy + d->column);
            return true;
        }
    }
    return false;
}

/* As many other columns as there are data columns, data first. */
static bool begin_parity(struct detour *d, uint32_t per_copy, uint32_t avoid) {
    uint32_t chosen = 0, count = 0;
    d->lost = 0;
    for (uint32_t c = 0; c < per_copy; c++) {
        if (c == d->column || ((avoid >> c) & 1) != 0 || !may_ask(d, c)) {
            d->lost++;
        } else if (count < d->s->shape.data) {
            chosen |= 1u << c;
            count++;
        }
    }
    if (d->s->shape.parity == 0 || count < d->s->shape.data) {
        return false;
    }
    d->buf = buf_new((size_t)per_copy * d->count * BLOCK_BYTES);
    d->unread = ((1u << per_copy) - 1) & ~chosen;
    for (uint32_t c = 0; c < per_copy; c++) {
        if (((chosen >> c) & 1) != 0) {
            ask(d, c, c);
        }
    }
    return true;
}

bool detour_begin(struct detour *d, struct segment_table *table, struct segment *s, uint32_t column,
                  uint32_t block, uint32_t count, uint32_t avoid, struct fiber_group *group) {
    uint32_t per_copy = (uint32_t)s->shape.data + s->shape.parity;
    d->table = table;
    d->s = s;
    d->column = column;
    d->block = block;
    d->count = count;
    d->from_copy = false;
    d->unread = 0;
    d->lost = 1;
    d->group = group;
    d->buf = NULL;
    memset(d->asked, 0, sizeof(d->asked));
    return begin_copy(d, per_copy) || begin_parity(d, per_copy, avoid);
}

static bool all_came(const struct detour *d, uint32_t per_copy) {
    for (uint32_t c = 0; c < per_copy; c++) {
        if (d->asked[c] && d->piece[c].io.result != OK) {
            return false;
        }
    }
    return true;
}

const uint8_t *detour_end(struct detour *d, const struct row_check *checks) {
    uint32_t per_copy = (uint32_t)d->s->shape.data + d->s->shape.parity;
    size_t bytes = (size_t)d->count * BLOCK_BYTES;
    void *columns[SEGMENT_COLUMNS_MAX];
    if (!all_came(d, per_copy)) {
        return NULL;
    }
    for (uint32_t c = 0; c < per_copy; c++) {
        columns[c] = d->buf->data + c * bytes;
    }
    if (!d->from_copy &&
        parity_reconstruct(d->s->shape.data, d->s->shape.parity, bytes, columns, d->unread) != OK) {
        return NULL;
    }
    const uint8_t *wanted = columns[d->column];
    for (uint32_t i = 0; checks != NULL && i < d->count && !SABOTAGE(detour_unverified); i++) {
        if (crc32c_seeded(checks[i].vba, wanted + (size_t)i * BLOCK_BYTES, BLOCK_BYTES) !=
            checks[i].crc) {
            return NULL;
        }
    }
    return wanted;
}

void detour_drop(struct detour *d) {
    for (uint32_t c = 0; c < SEGMENT_COLUMNS_MAX; c++) {
        if (d->asked[c]) {
            piece_leave(&d->piece[c]);
        }
    }
    buf_unref(d->buf);
    d->buf = NULL;
}
