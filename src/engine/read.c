// SPDX-License-Identifier: MPL-2.0
/* Reads: the overlay's layers newest first, then the tree, then the map, the cache and the disks.
 *
 * What the overlay holds in memory is copied at once. For the rest, vbas and checksums are gathered
 * and the blocks are read in pieces that lie next to each other. Between looking a vba up in the
 * tree and finding its place in the map the fiber may have waited for a node; if by then the vba is
 * gone (it was overwritten, and that was committed), the whole range is looked up again. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

enum {
    BATCH_BLOCKS = 256,
    LOOKUPS_MAX = 1000,
    LOOKUPS_AT_ONCE = 100,
    LONG_BLOCKS = 64,
    STRETCH_BLOCKS = 8
};

enum block_state { BLOCK_UNKNOWN, BLOCK_DONE, BLOCK_STORED };

struct read_block {
    enum block_state state;
    struct row_check check;
    struct row_place place; /* found through the map, or given by … */
    struct placed_row *row; /* … the row, where only the log knows it: held, so that its segment is
                               neither cleaned nor freed while the tree is read */
};

struct read_batch {
    struct engine *e;
    struct volume *v;
    uint64_t block;
    uint32_t count;
    uint8_t *data; /* where block i goes: data + i × 4096; NULL: only into the cache (read-ahead) */
    struct fiber_group group;
    int error;
    uint32_t bad;          /* first block that failed */
    struct read_block b[]; /* most requests are short: only as many as there are blocks */
};

static void batch_zero(struct read_batch *r, uint32_t i) {
    if (r->data != NULL) {
        memset(r->data + (size_t)i * BLOCK_BYTES, 0, BLOCK_BYTES);
    }
    r->b[i].state = BLOCK_DONE;
}

static void batch_copy(struct read_batch *r, uint32_t i, const void *from) {
    if (r->data != NULL) {
        memcpy(r->data + (size_t)i * BLOCK_BYTES, from, BLOCK_BYTES);
    }
    r->b[i].state = BLOCK_DONE;
}

static void batch_take_extent(struct read_batch *r, const struct overlay_extent *x, uint32_t i) {
    uint64_t within = r->block + i - x->start;
    if (x->kind == OVERLAY_HOLE) {
        batch_zero(r, i);
    } else if (x->kind == OVERLAY_DATA) {
        batch_copy(r, i, x->buf->data + x->offset + within * BLOCK_BYTES);
    } else {
        uint32_t index = x->index + (uint32_t)within;
        struct placed_row *row = x->row;
        r->b[i].state = BLOCK_STORED;
        r->b[i].row = placed_row_ref(row);
        r->b[i].check = (struct row_check){.vba = row->vba + index, .crc = row->crc[index]};
        r->b[i].place = (struct row_place){.segment = row->segment,
                                           .offset = row->offset,
                                           .height = row->height,
                                           .index = row->header_blocks + index};
    }
}

static void batch_from_overlay(struct read_batch *r, const struct overlay *o) {
    if (overlay_is_empty(o)) {
        return;
    }
    for (uint32_t i = 0; i < r->count;) {
        const struct overlay_extent *x = overlay_find(o, r->block + i);
        if (x == NULL || x->start >= r->block + r->count) {
            return;
        }
        i = x->start > r->block + i ? (uint32_t)(x->start - r->block) : i;
        for (; i < r->count && r->block + i < x->start + x->count; i++) {
            if (r->b[i].state == BLOCK_UNKNOWN) {
                batch_take_extent(r, x, i);
            }
        }
    }
}

static int batch_visit(void *ctx, uint64_t key, const void *value) {
    struct read_batch *r = ctx;
    const struct tree_extent *x = value;
    struct read_block *b = &r->b[key - r->block];
    if (b->state == BLOCK_UNKNOWN) {
        b->state = BLOCK_STORED;
        b->check = (struct row_check){.vba = x->vba, .crc = x->crc};
    }
    return OK;
}

static void batch_let_go(struct read_batch *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        placed_row_unref(r->b[i].row);
        r->b[i].row = NULL;
    }
}

/* Where the tree is damaged, block by block: what newer levels hold can still be read. */
static int batch_from_tree(struct read_batch *r, uint32_t first, uint32_t end) {
    int err = tree_range(&r->v->tree, r->block + first, end - first, batch_visit, r);
    if (err == OK || err == ERR_NOT_FOUND || !error_is_loss(err)) {
        return err;
    }
    for (uint32_t i = first; i < end; i++) {
        if (r->b[i].state == BLOCK_UNKNOWN) {
            err = tree_find(&r->v->tree, r->block + i, batch_visit, r);
            if (err != OK) {
                r->error = err == ERR_NOT_FOUND ? OK : err; /* that is looked up again */
                r->bad = i;
                return err;
            }
        }
    }
    return OK;
}

/* Finds what each block is. ERR_AGAIN: something moved meanwhile. */
static int batch_resolve(struct read_batch *r) {
    batch_let_go(r);
    memset(r->b, 0, r->count * sizeof(r->b[0]));
    batch_from_overlay(r, &r->v->active);
    batch_from_overlay(r, &r->v->frozen);
    uint32_t first = 0, end = r->count;
    while (first < end && r->b[first].state != BLOCK_UNKNOWN) {
        first++;
    }
    while (end > first && r->b[end - 1].state != BLOCK_UNKNOWN) {
        end--;
    }
    if (first < end) {
        int err = batch_from_tree(r, first, end);
        if (err != OK) {
            return err == ERR_NOT_FOUND ? ERR_AGAIN : err;
        }
    }
    for (uint32_t i = 0; i < r->count; i++) {
        struct read_block *b = &r->b[i];
        if (b->state == BLOCK_UNKNOWN) {
            batch_zero(r, i);
        } else if (b->state == BLOCK_STORED && b->place.segment == NULL &&
                   !map_lookup(&r->e->map, b->check.vba, &b->place)) {
            return ERR_AGAIN;
        }
    }
    return OK;
}

/* ---- the blocks themselves ---- */

struct read_piece {
    struct read_batch *r;
    uint32_t first, count;
};

/* What could not be had may be there all the same. */
static bool somebody_is_late(const struct engine *e) {
    for (uint32_t m = 0; m < e->pool->super.member_count; m++) {
        const struct disk *disk = e->pool->disks[m];
        if (pool_member_in_sync(e->pool, m) && disk != NULL &&
            (disk_is_avoided(disk) || disk_counters(disk)->late_bytes > 0)) {
            return true;
        }
    }
    return false;
}

static void piece_read(struct read_batch *r, uint32_t first, uint32_t count) {
    struct engine *e = r->e;
    struct buf *buf = buf_new((size_t)count * BLOCK_BYTES);
    struct row_check checks[BATCH_BLOCKS];
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        checks[i] = r->b[first + i].check;
    }
    uint8_t *to = r->data == NULL ? NULL : r->data + (size_t)first * BLOCK_BYTES;
    int err = row_read_copy(&e->table, &r->b[first].place, count, checks, &buf, 0, to,
                            &e->row_counters, &bad);
    if (err != OK) {
        if (error_is_loss(err) && !somebody_is_late(e)) {
            scrub_note_lost(e->scrub, r->v->phys.id, r->block + first + bad);
        }
        if (r->error == OK || first + bad < r->bad) {
            r->error = err;
            r->bad = first + bad;
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            r->b[first + i].state = BLOCK_DONE;
            if (count == 1) {
                cache_put(e->data_cache, checks[i].vba, buf);
            } else if (r->data == NULL || count <= 16) { /* long streams stay out */
                struct buf *block = buf_new(BLOCK_BYTES);
                memcpy(block->data, buf->data + (size_t)i * BLOCK_BYTES, BLOCK_BYTES);
                cache_put(e->data_cache, checks[i].vba, block);
                buf_unref(block);
            }
        }
    }
    buf_unref(buf);
}

static void piece_fiber(void *arg) {
    struct read_piece *p = arg;
    struct read_batch *r = p->r;
    piece_read(r, p->first, p->count);
    mem_free(p);
    fiber_group_done(&r->group, OK);
}

static bool block_follows(const struct read_block *a, const struct read_block *b) {
    return b->state == BLOCK_STORED && b->place.segment == a->place.segment &&
           b->place.offset == a->place.offset && b->place.index == a->place.index + 1;
}

/* Of a long read only stretches whose first block is there are looked up: looking takes a miss of
 * the processor's cache each time, and leaving out a single block saves its disk nothing. */
static void batch_from_cache(struct read_batch *r) {
    bool all = r->count <= LONG_BLOCKS;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->b[i].state != BLOCK_STORED) {
            continue;
        }
        if (!all && i % STRETCH_BLOCKS == 0 && !cache_has(r->e->data_cache, r->b[i].check.vba)) {
            i += STRETCH_BLOCKS - 1;
            continue;
        }
        struct buf *hit = cache_get(r->e->data_cache, r->b[i].check.vba);
        if (hit != NULL) {
            batch_copy(r, i, hit->data);
            buf_unref(hit);
        }
    }
}

static int batch_fetch(struct read_batch *r) {
    /* The pieces' segments are pinned from now on: a fiber starts later. */
    struct segment *pins[BATCH_BLOCKS];
    uint32_t pin_count = 0;
    for (uint32_t i = 0; i < r->count;) {
        if (r->b[i].state != BLOCK_STORED) {
            i++;
            continue;
        }
        uint32_t n = 1;
        while (i + n < r->count && block_follows(&r->b[i + n - 1], &r->b[i + n])) {
            n++;
        }
        pins[pin_count] = r->b[i].place.segment;
        pins[pin_count++]->pins++;
        bool last = true;
        for (uint32_t j = i + n; j < r->count && last; j++) {
            last = r->b[j].state != BLOCK_STORED;
        }
        if (last) { /* this fiber reads the last piece itself */
            piece_read(r, i, n);
        } else {
            struct read_piece *p = MEM_NEW(struct read_piece);
            *p = (struct read_piece){.r = r, .first = i, .count = n};
            fiber_group_add(&r->group);
            fiber_start(r->e->env, piece_fiber, p);
        }
        i += n;
    }
    int err = fiber_group_wait(&r->group);
    for (uint32_t i = 0; i < pin_count; i++) {
        pins[i]->pins--;
    }
    return err != OK ? err : r->error;
}

/* What is looked for may be gone from the map, but not yet from the tree, for as long as the
 * running checkpoint takes. */
static void let_move(struct engine *e, int attempt) {
    if (attempt >= LOOKUPS_AT_ONCE && e->checkpoint_running) {
        fiber_queue_wait(&e->checkpoint_waiters);
    } else {
        fiber_yield();
    }
}

static int batch_read(struct read_batch *r) {
    int err = ERR_AGAIN;
    for (int attempt = 0; err == ERR_AGAIN && attempt < LOOKUPS_MAX; attempt++) {
        if (attempt > 0) {
            let_move(r->e, attempt);
        }
        err = batch_resolve(r);
    }
    if (err == ERR_AGAIN) {
        err = ERR_IO;
    }
    if (err == OK) {
        batch_from_cache(r);
        err = batch_fetch(r);
    }
    batch_let_go(r);
    return err;
}

int read_blocks(struct engine *e, struct volume *v, uint64_t block, uint32_t count, void *ret_data,
                uint64_t *ret_bad_block) {
    uint32_t room = MIN(count, (uint32_t)BATCH_BLOCKS);
    struct read_batch *r = mem_alloc(sizeof(*r) + room * sizeof(r->b[0]));
    int err = OK;
    for (uint32_t done = 0; done < count && err == OK; done += r->count) {
        r->e = e;
        r->v = v;
        r->block = block + done;
        r->count = MIN(count - done, (uint32_t)BATCH_BLOCKS);
        r->data = ret_data == NULL ? NULL : (uint8_t *)ret_data + (size_t)done * BLOCK_BYTES;
        r->group = FIBER_GROUP_INIT;
        r->error = OK;
        err = batch_read(r);
        if (err != OK && ret_bad_block != NULL) {
            *ret_bad_block = r->block + (r->error != OK ? r->bad : 0);
        }
    }
    mem_free(r);
    return err;
}

/* ---- requests ---- */

static void iov_copy_out(const struct volume_request *q, uint64_t at, const void *from,
                         size_t bytes) {
    const uint8_t *p = from;
    for (uint32_t i = 0; i < q->iov_count && bytes > 0; i++) {
        if (at >= q->iov[i].iov_len) {
            at -= q->iov[i].iov_len;
            continue;
        }
        size_t n = MIN(bytes, q->iov[i].iov_len - (size_t)at);
        memcpy((uint8_t *)q->iov[i].iov_base + at, p, n);
        p += n;
        bytes -= n;
        at = 0;
    }
}

int read_request(struct engine *e, struct volume *v, struct volume_request *q) {
    uint64_t first = q->offset_bytes / BLOCK_BYTES;
    uint64_t end = div_round_up(q->offset_bytes + q->length_bytes, BLOCK_BYTES);
    bool whole = q->op == VOLUME_READ && q->iov_count == 1 && q->offset_bytes % BLOCK_BYTES == 0 &&
                 q->length_bytes % BLOCK_BYTES == 0;
    struct buf *bounce = NULL;
    int err = OK;
    if (!whole) {
        bounce = buf_new((size_t)MIN(end - first, (uint64_t)BATCH_BLOCKS) * BLOCK_BYTES);
    }
    for (uint64_t b = first; b < end && err == OK;) {
        uint32_t n = (uint32_t)MIN(end - b, (uint64_t)BATCH_BLOCKS);
        uint64_t bad = b;
        uint8_t *to =
            whole ? (uint8_t *)q->iov[0].iov_base + (b - first) * BLOCK_BYTES : bounce->data;
        err = read_blocks(e, v, b, n, to, &bad);
        if (err != OK) {
            uint64_t at = bad * BLOCK_BYTES;
            q->error_bytes = at > q->offset_bytes ? at - q->offset_bytes : 0;
        } else if (q->op == VOLUME_READ && !whole) {
            uint64_t from = MAX(b * BLOCK_BYTES, q->offset_bytes);
            uint64_t to_end = MIN((b + n) * BLOCK_BYTES, q->offset_bytes + q->length_bytes);
            iov_copy_out(q, from - q->offset_bytes, bounce->data + (from - b * BLOCK_BYTES),
                         to_end - from);
        }
        b += n;
    }
    buf_unref(bounce);
    return err;
}

/* ---- what there is ---- */

static int count_visit(void *ctx, uint64_t key, const void *value) {
    (void)value;
    uint64_t **mapped = ctx; /* bit set, first block */
    uint64_t bit = key - *mapped[1];
    mapped[0][bit / 64] |= 1ull << (bit % 64);
    return OK;
}

static int read_mapped_once(struct volume *v, uint64_t block, uint64_t count, uint64_t *mapped) {
    uint64_t *ctx[2] = {mapped, &block};
    struct tree_root_phys root = v->tree.root;
    int err = tree_range(&v->tree, block, count, count_visit, ctx);
    /* What only the overlay holds is already charged: it counts as there. */
    const struct overlay *layers[] = {&v->frozen, &v->active};
    for (size_t l = 0; err == OK && l < ARRAY_COUNT(layers); l++) {
        for (uint64_t b = block; b < block + count;) {
            const struct overlay_extent *x = overlay_find(layers[l], b);
            if (x == NULL || x->start >= block + count) {
                break;
            }
            for (b = MAX(b, x->start); b < MIN(block + count, x->start + x->count); b++) {
                uint64_t bit = b - block;
                if (x->kind == OVERLAY_HOLE) {
                    mapped[bit / 64] &= ~(1ull << (bit % 64));
                } else {
                    mapped[bit / 64] |= 1ull << (bit % 64);
                }
            }
        }
    }
    /* The tree and the overlay must be of the same moment: a root that was committed meanwhile took
     * the frozen layer's place. */
    bool moved = memcmp(&root, &v->tree.root, sizeof(root)) != 0;
    return err == ERR_NOT_FOUND || moved ? ERR_AGAIN : err;
}

int read_mapped(struct volume *v, uint64_t block, uint64_t count, uint64_t *mapped) {
    int err = ERR_AGAIN;
    for (int attempt = 0; err == ERR_AGAIN && attempt < LOOKUPS_MAX; attempt++) {
        if (attempt > 0) {
            let_move(v->engine, attempt);
        }
        memset(mapped, 0, div_round_up(count, 64) * sizeof(*mapped));
        err = read_mapped_once(v, block, count, mapped);
    }
    return err == ERR_AGAIN ? ERR_IO : err; /* a node that never was */
}

int read_count_unmapped(struct volume *v, uint64_t block, uint64_t count, uint64_t *ret_unmapped) {
    uint64_t words = div_round_up(count, 64), there = 0;
    uint64_t *mapped = MEM_NEW_ARRAY(uint64_t, words + 1);
    int err = read_mapped(v, block, count, mapped);
    for (uint64_t w = 0; w < words; w++) {
        there += (uint64_t)__builtin_popcountll(mapped[w]);
    }
    mem_free(mapped);
    *ret_unmapped = count - there;
    return err;
}
