// SPDX-License-Identifier: MPL-2.0
/* The pool's own structures: map nodes, segment table pages, the catalog, the directory.
 *
 * They lie in metadata segments, which have as many copies as the pool's metadata needs, and are
 * addressed physically: a map node by (slot, offset), the others by places that are spelled out
 * (struct direct_phys), so that the table can be read before the table is known. A checkpoint
 * appends new versions; how much of a metadata segment is live is not stored but counted at import.
 *
 * Order within a checkpoint: map nodes first; then segments that became empty leave the table; then
 * room is taken for all pages that changed, for the catalog and the directory (taking room may open
 * a segment, which changes one more page: so until nothing changes); only then are the pages
 * encoded.
 */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "engine/private.h"

enum { DIRECTORY_VERSION = 1 };

struct directory_phys {
    struct header_phys header; /* seed: checkpoint */
    uint32_t pages;
    uint32_t reserved;
    struct direct_phys page[];
};

int meta_alloc(struct engine *e, uint32_t blocks, struct meta_object *ret_object) {
    if (blocks > e->pool->super.geometry.chunk_blocks) {
        return ERR_LIMIT;
    }
    for (;;) {
        int err = OK;
        struct segment *s = stream_segment(e, &e->meta, SEGMENT_META, PROFILE_RAID1, 0, &err);
        if (s == NULL) {
            return err;
        }
        if (blocks <= e->pool->super.geometry.chunk_blocks - s->used_blocks) {
            *ret_object =
                (struct meta_object){.segment = s, .offset = s->used_blocks, .blocks = blocks};
            s->used_blocks += blocks;
            s->live_blocks += blocks;
            return OK;
        }
        segment_seal(&e->table, s);
    }
}

/* ---- writing: each object to every copy; one that fails costs its disk, not the object ---- */

struct meta_copy {
    struct disk_io io;
    struct meta_job *job;
    uint32_t member;
};

struct meta_job {
    struct engine *e;
    uint32_t pending, good;
    struct meta_copy copy[SEGMENT_COLUMNS_MAX];
};

static void meta_copy_done(struct disk_io *io) {
    struct meta_copy *copy = CONTAINER_OF(io, struct meta_copy, io);
    struct meta_job *job = copy->job;
    struct engine *e = job->e;
    if (io->result == OK) {
        job->good++;
    } else if (pool_member_in_sync(e->pool, copy->member)) {
        pool_expel(e->pool, copy->member, "a write of metadata failed");
    }
    if (--job->pending == 0) {
        if (job->good == 0 && e->meta_error == OK) {
            e->meta_error = ERR_IO;
        }
        fiber_group_done(&e->meta_group, OK);
        mem_free(job);
    }
}

void meta_write(struct engine *e, const struct meta_object *object, struct buf *buf) {
    struct meta_job *job = MEM_NEW(struct meta_job);
    struct segment *s = object->segment;
    job->e = e;
    job->pending = 1; /* this function's own */
    fiber_group_add(&e->meta_group);
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        if (disk == NULL) {
            continue;
        }
        job->copy[c] = (struct meta_copy){
            .io = {.op = ENV_IO_WRITE,
                   .offset_bytes =
                       segment_column_block(&e->table, s, c, object->offset) * BLOCK_BYTES,
                   .length_bytes = (uint64_t)object->blocks * BLOCK_BYTES,
                   .buf = buf,
                   .done = meta_copy_done},
            .job = job,
            .member = s->column[c].disk};
        s->unflushed |= 1u << c;
        job->pending++;
        e->bytes_meta += job->copy[c].io.length_bytes;
        disk_submit(disk, &job->copy[c].io);
    }
    if (--job->pending == 0) {
        e->meta_error = ERR_IO;
        fiber_group_done(&e->meta_group, OK);
        mem_free(job);
    }
}

int meta_write_wait(struct engine *e) {
    int err = fiber_group_wait(&e->meta_group);
    return err != OK ? err : e->meta_error;
}

/* ---- reading ---- */

static int direct_validate(const struct engine *e, const struct direct_phys *d) {
    const struct geometry *g = &e->pool->super.geometry;
    uint64_t blocks = div_round_up(d->length_bytes, BLOCK_BYTES);
    if (d->length_bytes == 0 || !range_is_within(d->offset_blocks, blocks, g->chunk_blocks)) {
        return ERR_CORRUPT;
    }
    for (int i = 0; i < DIRECT_COPIES; i++) {
        if (d->disk[i] != 0xffff && (d->disk[i] >= e->pool->super.member_count ||
                                     d->chunk_copy[i] >= e->table.chunk_count[d->disk[i]])) {
            return ERR_CORRUPT;
        }
    }
    return OK;
}

int meta_read_direct(struct engine *e, const struct direct_phys *direct, struct buf **ret_buf) {
    int error = direct_validate(e, direct);
    if (error != OK) {
        return error;
    }
    struct buf *buf = buf_new(direct->length_bytes);
    error = ERR_DATA_LOSS;
    uint32_t bad_copies = 0;
    for (int i = 0; i < DIRECT_COPIES && error != OK; i++) {
        struct disk *disk = direct->disk[i] == 0xffff ? NULL : e->pool->disks[direct->disk[i]];
        if (disk == NULL) {
            continue;
        }
        uint64_t at = (layout_chunk_block(&e->pool->super.geometry, direct->chunk_copy[i]) +
                       direct->offset_blocks) *
                      BLOCK_BYTES;
        error = disk_read(disk, at, buf->bytes, buf, 0);
        if (error == OK &&
            crc32c_seeded(direct->checkpoint, buf->data, direct->length_bytes) != direct->crc) {
            disk_note(disk, DISK_ERROR_CHECKSUM, at, buf->bytes,
                      "metadata does not match its checksum");
            e->row_counters.checksum_errors++;
            error = ERR_CHECKSUM;
        }
        if (error != OK) {
            bad_copies |= 1u << i;
            buf_unref(buf); /* what is late may still come */
            buf = buf_new(direct->length_bytes);
        }
    }
    for (int i = 0; i < DIRECT_COPIES && error == OK && !e->pool->read_only; i++) {
        if ((bad_copies >> i) & 1) { /* put right what was read wrongly */
            struct disk *disk = e->pool->disks[direct->disk[i]];
            uint64_t at = (layout_chunk_block(&e->pool->super.geometry, direct->chunk_copy[i]) +
                           direct->offset_blocks) *
                          BLOCK_BYTES;
            if (disk_write(disk, at, buf->bytes, buf, 0, false) == OK) {
                e->row_counters.repairs++;
                disk_note(disk, DISK_ERROR_REPAIRED, at, buf->bytes,
                          "metadata rewritten from a copy");
            }
        }
    }
    if (error != OK) {
        buf_unref(buf);
        return error;
    }
    *ret_buf = buf;
    return OK;
}

void meta_direct(const struct engine *e, const struct meta_object *object, const void *bytes,
                 uint32_t length_bytes, struct direct_phys *ret_direct) {
    *ret_direct = (struct direct_phys){.offset_blocks = object->offset,
                                       .length_bytes = length_bytes,
                                       .segment = object->segment->slot,
                                       .checkpoint = e->pool->super.checkpoint + 1};
    ret_direct->crc = crc32c_seeded(ret_direct->checkpoint, bytes, length_bytes);
    for (uint32_t i = 0; i < DIRECT_COPIES; i++) {
        bool there = i < shape_columns(object->segment->shape);
        ret_direct->disk[i] = there ? object->segment->column[i].disk : 0xffff;
        ret_direct->chunk_copy[i] = there ? object->segment->column[i].chunk : 0;
    }
}

static uint32_t direct_blocks(const struct direct_phys *d) {
    return (uint32_t)div_round_up(d->length_bytes, BLOCK_BYTES);
}

void meta_free_direct(struct engine *e, const struct direct_phys *direct) {
    struct segment *s = segment_get(&e->table, direct->segment);
    if (direct->length_bytes != 0 && s != NULL) {
        ASSERT_LE(direct_blocks(direct), s->live_blocks);
        s->live_blocks -= direct_blocks(direct);
    }
}

/* ---- the map tree's nodes ---- */

static uint64_t map_address(const struct meta_object *o) {
    return (uint64_t)o->segment->slot << 32 | o->offset;
}

static bool map_node_is_cached(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct engine *e = CONTAINER_OF(store, struct engine, map_store);
    return cache_has(e->map_cache, ptr->address) || cache_has(e->fresh_nodes, ptr->address);
}

static int map_node_read(struct tree_store *store, const struct tree_ptr_phys *ptr,
                         struct buf **ret_node) {
    struct engine *e = CONTAINER_OF(store, struct engine, map_store);
    *ret_node = cache_get(e->map_cache, ptr->address);
    if (*ret_node != NULL) {
        return OK;
    }
    struct segment *s = segment_get(&e->table, (uint32_t)(ptr->address >> 32));
    uint32_t offset = (uint32_t)ptr->address;
    if (s == NULL || s->kind != SEGMENT_META ||
        !range_is_within(offset, store->node_bytes / BLOCK_BYTES,
                         e->pool->super.geometry.chunk_blocks)) {
        return ERR_CORRUPT;
    }
    struct buf *buf = buf_new(store->node_bytes);
    int error = ERR_DATA_LOSS;
    uint32_t bad = 0;
    for (uint32_t c = 0; c < shape_columns(s->shape) && error != OK; c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        if (disk == NULL) {
            continue;
        }
        uint64_t at = segment_column_block(&e->table, s, c, offset) * BLOCK_BYTES;
        error = disk_read(disk, at, buf->bytes, buf, 0);
        if (error == OK && crc32c_seeded(ptr->address, buf->data, buf->bytes) != ptr->crc) {
            disk_note(disk, DISK_ERROR_CHECKSUM, at, buf->bytes,
                      "a map node does not match its checksum");
            e->row_counters.checksum_errors++;
            error = ERR_CHECKSUM;
        }
        if (error != OK) {
            bad |= 1u << c;
            buf_unref(buf); /* what is late may still come */
            buf = buf_new(store->node_bytes);
        }
    }
    for (uint32_t c = 0; c < shape_columns(s->shape) && error == OK && !e->pool->read_only; c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        uint64_t at = segment_column_block(&e->table, s, c, offset) * BLOCK_BYTES;
        if (((bad >> c) & 1) != 0 && disk != NULL &&
            disk_write(disk, at, buf->bytes, buf, 0, false) == OK) {
            e->row_counters.repairs++;
            disk_note(disk, DISK_ERROR_REPAIRED, at, buf->bytes,
                      "a map node was rewritten from a copy");
        }
    }
    if (error != OK) {
        buf_unref(buf);
        return error;
    }
    cache_put(e->map_cache, ptr->address, buf);
    *ret_node = buf;
    return OK;
}

static int map_node_write(struct tree_store *store, struct buf *node,
                          struct tree_ptr_phys *ret_ptr) {
    struct engine *e = CONTAINER_OF(store, struct engine, map_store);
    struct meta_object object;
    int err = meta_alloc(e, store->node_bytes / BLOCK_BYTES, &object);
    if (err != OK) {
        return err;
    }
    *ret_ptr = (struct tree_ptr_phys){.address = map_address(&object)};
    ret_ptr->crc = crc32c_seeded(ret_ptr->address, node->data, node->bytes);
    cache_put(e->map_cache, ret_ptr->address, node);
    meta_write(e, &object, node);
    return OK;
}

static void map_node_free(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct engine *e = CONTAINER_OF(store, struct engine, map_store);
    struct segment *s = segment_get(&e->table, (uint32_t)(ptr->address >> 32));
    ASSERT(s != NULL && s->kind == SEGMENT_META);
    ASSERT_LE(store->node_bytes / BLOCK_BYTES, s->live_blocks);
    s->live_blocks -= store->node_bytes / BLOCK_BYTES;
    cache_drop(e->map_cache, ptr->address);
}

void meta_store_init(struct engine *e) {
    e->map_store =
        (struct tree_store){.read = map_node_read,
                            .is_cached = map_node_is_cached,
                            .write = map_node_write,
                            .free = map_node_free,
                            .node_bytes = e->pool->super.geometry.node_blocks * BLOCK_BYTES};
    e->map_tree = (struct tree){.root = e->roots.map,
                                .kind = TREE_MAP,
                                .value_bytes = sizeof(struct map_value_phys),
                                .store = &e->map_store};
}

/* ---- tables of a checkpoint ---- */

static void pages_grow(struct engine *e) {
    if (e->table.page_count > e->page_room) {
        e->pages = mem_realloc(e->pages, e->table.page_count * sizeof(*e->pages));
        e->page_room = e->table.page_count;
    }
}

static void streams_forget(struct engine *e, const struct segment *s) {
    for (int p = 0; p < PROFILE_COUNT; p++) {
        e->hot[p].segment = e->hot[p].segment == s ? NULL : e->hot[p].segment;
        e->cold[p].segment = e->cold[p].segment == s ? NULL : e->cold[p].segment;
        e->nodes[p].segment = e->nodes[p].segment == s ? NULL : e->nodes[p].segment;
    }
    e->meta.segment = e->meta.segment == s ? NULL : e->meta.segment;
}

/* Segments nothing refers to any more leave the table. One that the log has referred to since the
 * freeze stays until the next checkpoint, even if all of that is overwritten already: a replay
 * meets those records, and must find the segment, its slot and its chunks as they were. */
static void free_empty_segments(struct engine *e) {
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        struct segment *s = e->table.slots[i];
        if (s == NULL || s->live_blocks != 0 || s->pending != 0 ||
            s->ref_round == e->checkpoint_started) {
            continue;
        }
        if (s->state == SEGMENT_SEALED) {
            streams_forget(e, s);
            segment_start_freeing(&e->table, s);
            if (SABOTAGE(chunk_freed_early) && s->pins == 0) {
                segment_release(&e->table, s);
            }
        }
    }
}

/* Metadata segments empty as their contents are rewritten, but what is seldom rewritten may keep
 * many of them. When they are more than twice what metadata needs, all that are less than half full
 * are emptied, and at any time those with fewer copies than there is room for: by rewriting, like
 * everything here. */
bool meta_clean(struct engine *e) {
    uint32_t chunk = e->pool->super.geometry.chunk_blocks;
    uint64_t live = 0, segments = 0;
    bool weak = false;
    uint32_t copies = MIN(e->pool->super.meta_copies, pool_storing_count(e->pool));
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        struct segment *s = e->table.slots[i];
        if (s != NULL && s->kind == SEGMENT_META && s->live_blocks > 0) {
            live += s->live_blocks;
            segments++;
            weak |= s->shape.copies < copies || rebuild_meta_must_move(e, s);
        }
    }
    weak &= !e->short_of_space;
    if (!weak && segments <= 2 * div_round_up(live, chunk) + META_SPARSE_SEGMENTS) {
        return false;
    }
    if (weak && e->meta.segment != NULL && e->meta.segment->shape.copies < copies) {
        segment_seal(&e->table, e->meta.segment);
        e->meta.segment = NULL;
    }
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        struct segment *s = e->table.slots[i];
        if (s != NULL && s->kind == SEGMENT_META && s->state == SEGMENT_SEALED) {
            s->emptied = s->live_blocks * 2 < chunk ||
                         (weak && (s->shape.copies < copies || rebuild_meta_must_move(e, s)));
        }
    }
    for (uint32_t p = 0; p < e->table.page_count; p++) {
        struct segment *s = p < e->page_room ? segment_get(&e->table, e->pages[p].segment) : NULL;
        if (s != NULL && s->emptied && e->pages[p].length_bytes != 0) {
            e->table.page_dirty[p] = true;
        }
    }
    return true;
}

bool meta_must_move(void *engine, const struct tree_ptr_phys *ptr) {
    const struct engine *e = engine;
    const struct segment *s = segment_get(&e->table, (uint32_t)(ptr->address >> 32));
    return s != NULL && s->emptied;
}

struct table_write {          /* what one call of meta_write_tables() places */
    struct meta_object *page; /* by page; blocks 0: unchanged */
    uint32_t room;
    struct meta_object catalog, directory;
    struct buf *catalog_buf;
    uint32_t catalog_bytes;
};

static uint32_t directory_bytes(const struct engine *e) {
    return (uint32_t)(sizeof(struct directory_phys) +
                      e->table.page_count * sizeof(struct direct_phys));
}

static int tables_take_room(struct engine *e, struct table_write *w) {
    w->catalog_buf = catalog_encode(e, &w->catalog_bytes);
    int err = meta_alloc(e, (uint32_t)div_round_up(w->catalog_bytes, BLOCK_BYTES), &w->catalog);
    /* The directory may have to name a page more than there is now. */
    uint32_t spare = (uint32_t)sizeof(struct direct_phys) * 4;
    if (err == OK) {
        err = meta_alloc(e, (uint32_t)div_round_up(directory_bytes(e) + spare, BLOCK_BYTES),
                         &w->directory);
    }
    for (bool changed = true; changed && err == OK;) {
        changed = false;
        if (e->table.page_count > w->room) {
            w->page = mem_realloc(w->page, e->table.page_count * sizeof(*w->page));
            w->room = e->table.page_count;
            pages_grow(e);
        }
        for (uint32_t p = 0; p < w->room && err == OK; p++) {
            if (e->table.page_dirty[p] && w->page[p].blocks == 0) {
                err = meta_alloc(e, e->pool->super.geometry.node_blocks, &w->page[p]);
                changed =
                    true; /* perhaps a segment was opened, and the table has grown by a page */
            }
        }
    }
    if (err == OK && directory_bytes(e) > w->directory.blocks * BLOCK_BYTES) {
        err = ERR_LIMIT;
    }
    return err;
}

static void tables_write_pages(struct engine *e, struct table_write *w) {
    for (uint32_t p = 0; p < e->table.page_count; p++) {
        if (w->page[p].blocks == 0) {
            continue;
        }
        struct buf *buf = buf_new(segment_page_bytes(&e->table));
        segment_page_encode(&e->table, p, buf->data);
        for (uint32_t i = 0; i < e->table.slots_per_page; i++) {
            struct segment *s = e->table.slots[p * e->table.slots_per_page + i];
            if (s != NULL) {
                s->encoded = true;
            }
        }
        meta_free_direct(e, &e->pages[p]);
        meta_direct(e, &w->page[p], buf->data, segment_page_bytes(&e->table), &e->pages[p]);
        meta_write(e, &w->page[p], buf);
        buf_unref(buf);
        e->table.page_dirty[p] = false;
    }
}

static void tables_write_rest(struct engine *e, struct table_write *w, struct roots_phys *roots) {
    meta_free_direct(e, &roots->catalog);
    meta_direct(e, &w->catalog, w->catalog_buf->data, w->catalog_bytes, &roots->catalog);
    meta_write(e, &w->catalog, w->catalog_buf);

    struct buf *buf = buf_new((size_t)w->directory.blocks * BLOCK_BYTES);
    memset(buf->data, 0, buf->bytes);
    struct directory_phys *d = (struct directory_phys *)(void *)buf->data;
    d->pages = e->pages_written = e->table.page_count;
    memcpy(d->page, e->pages, e->table.page_count * sizeof(*e->pages));
    phys_seal(d, PHYS_DIRECTORY, DIRECTORY_VERSION, directory_bytes(e),
              e->pool->super.checkpoint + 1);
    meta_free_direct(e, &roots->directory);
    /* The whole of what was allocated is counted, so that freeing it balances. */
    meta_direct(e, &w->directory, buf->data, w->directory.blocks * BLOCK_BYTES, &roots->directory);
    meta_write(e, &w->directory, buf);
    buf_unref(buf);
}

int meta_write_tables(struct engine *e, struct roots_phys *roots) {
    struct table_write w = {0};
    free_empty_segments(e);
    int err = tables_take_room(e, &w);
    if (err == OK) {
        pages_grow(e);
        tables_write_pages(e, &w);
        tables_write_rest(e, &w, roots);
        err = meta_write_wait(e);
    }
    buf_unref(w.catalog_buf);
    mem_free(w.page);
    return err;
}

int meta_strengthen(struct engine *e, uint32_t copies) {
    ASSERT_LE(copies, DIRECT_COPIES);
    e->pool->meta_copies = MAX(e->pool->meta_copies, copies);
    log_reconsider(e->log);
    if (e->meta.segment != NULL) {
        segment_seal(&e->table, e->meta.segment);
        e->meta.segment = NULL;
    }
    memset(e->table.page_dirty, true, e->table.page_count * sizeof(bool));
    e->rewrite_map = true;
    e->catalog_dirty = true;
    int err = engine_checkpoint(e);
    return err == OK && e->pool->super.meta_copies < copies ? ERR_NO_SPACE : err;
}

static void count_direct(struct engine *e, const struct direct_phys *d) {
    struct segment *s = segment_get(&e->table, d->segment);
    if (s != NULL) {
        s->live_blocks += direct_blocks(d);
    }
}

/* Every direct place must lie in the metadata segment it names. */
static int direct_matches(const struct engine *e, const struct direct_phys *d) {
    const struct segment *s = segment_get(&e->table, d->segment);
    if (s == NULL || s->kind != SEGMENT_META) {
        return ERR_CORRUPT;
    }
    for (uint32_t i = 0; i < MIN((uint32_t)DIRECT_COPIES, shape_columns(s->shape)); i++) {
        if (d->disk[i] != s->column[i].disk || d->chunk_copy[i] != s->column[i].chunk) {
            return ERR_CORRUPT;
        }
    }
    return OK;
}

static int tables_lost(const struct engine *e, int error, struct errmsg *reterr) {
    return errmsg_set(
        reterr, error,
        "the segment table of pool %s cannot be read from any disk that is here (%s): "
        "import it with the disks that are missing; if there are none, restore from a "
        "backup to a new pool",
        e->pool->super.name, error_text(error));
}

int meta_load_tables(struct engine *e, struct errmsg *reterr) {
    struct buf *buf = NULL;
    int err = meta_read_direct(e, &e->roots.directory, &buf);
    if (err != OK) {
        return tables_lost(e, err, reterr);
    }
    const struct directory_phys *d = (const struct directory_phys *)(const void *)buf->data;
    err = phys_check(d, PHYS_DIRECTORY, sizeof(*d), e->roots.directory.length_bytes,
                     e->roots.directory.checkpoint);
    if (err == OK &&
        (d->header.version != DIRECTORY_VERSION ||
         sizeof(*d) + (uint64_t)d->pages * sizeof(d->page[0]) != d->header.length_bytes)) {
        err = ERR_CORRUPT;
    }
    uint32_t pages = err == OK ? d->pages : 0;
    e->pages = MEM_NEW_ARRAY(struct direct_phys, pages + 1);
    e->page_room = pages;
    if (err == OK) {
        memcpy(e->pages, d->page, pages * sizeof(*e->pages));
    }
    buf_unref(buf);
    segment_pages_committed(&e->table, pages);
    for (uint32_t p = 0; p < pages && err == OK; p++) {
        if (e->pages[p].length_bytes != segment_page_bytes(&e->table)) {
            err = ERR_CORRUPT;
            break;
        }
        err = meta_read_direct(e, &e->pages[p], &buf);
        if (err == OK) {
            err = segment_page_decode(&e->table, p, buf->data);
            buf_unref(buf);
        }
    }
    for (uint32_t p = 0; p < pages && err == OK; p++) {
        err = direct_matches(e, &e->pages[p]);
        count_direct(e, &e->pages[p]);
    }
    if (err == OK) {
        err = direct_matches(e, &e->roots.directory);
        count_direct(e, &e->roots.directory);
    }
    if (err == OK) {
        err = direct_matches(e, &e->roots.catalog);
        count_direct(e, &e->roots.catalog);
    }
    if (err != OK) {
        return tables_lost(e, err, reterr);
    }
    return OK;
}
