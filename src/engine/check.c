// SPDX-License-Identifier: MPL-2.0
/* `check`: reads a stopped pool, doubts everything, changes nothing.
 *
 * It loads the tables as an import would, then reads every copy of every metadata object, the
 * header and all columns of every row that holds something live (each block against its checksum,
 * parity and copies against the data), every node of every volume, and the log. It proves the
 * invariants that can be seen at rest: 5 (rows are complete), 10 (live ⇔ reached from a root,
 * exactly once), 11 (live counts and chunks), 12 (columns on distinct disks; at decoding). A pool
 * that was not stopped cleanly is fine as long as its log can be replayed. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "codec/crc.h"
#include "engine/private.h"

struct check {
    struct engine *e;
    void (*problem)(void *owner, const char *text);
    void *owner;
    struct engine_check_result r;
    struct volume *volume; /* whose tree is walked */
    uint64_t volume_items;
};

static void HF_PRINTF(3, 4) found(struct check *c, bool repairable, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    c->r.problems++;
    c->r.repairable += repairable;
    c->problem(c->owner, text);
}

static const char *disk_path(const struct engine *e, uint32_t member) {
    return e->pool->disks[member] != NULL ? disk_info(e->pool->disks[member])->path
                                          : e->pool->super.members[member].path_hint;
}

/* ---- disks that hang ---- */

/* A disk that has let a read pass its deadline is not waited for again: from here on it is taken
 * for absent. (Until somebody comes by here its reads are answered at once, for what it owes is
 * above its limit: see engine_check().) */
static void leave_out_hung(struct check *c) {
    struct pool *pool = c->e->pool;
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        if (pool->disks[m] != NULL && pool_member_in_sync(pool, m) &&
            disk_counters(pool->disks[m])->errors[DISK_ERROR_TIMEOUT] > 0) {
            pool->super.members[m].state = MEMBER_MISSING; /* in memory; nothing is written */
            found(c, false, "%s does not answer in time: the rest is checked without it",
                  disk_path(c->e, m));
        }
    }
}

/* ---- metadata: each copy by itself ---- */

static void check_copy(struct check *c, struct disk *disk, uint32_t member, uint64_t block,
                       uint32_t bytes, uint64_t seed, uint32_t crc, const char *what) {
    struct buf *buf = buf_new(bytes);
    int err = disk_read(disk, block * BLOCK_BYTES, buf->bytes, buf, 0);
    c->r.blocks_read += buf->bytes / BLOCK_BYTES;
    if (err == OK && crc32c_seeded(seed, buf->data, bytes) != crc) {
        err = ERR_CHECKSUM;
    }
    leave_out_hung(c);
    if (err != OK && err != ERR_TIMEOUT) {
        found(c, true, "%s: the copy of %s at block %" PRIu64 " is bad (%s)",
              disk_path(c->e, member), what, block, error_text(err));
    }
    buf_unref(buf);
}

static void check_direct(struct check *c, const struct direct_phys *d, const char *what) {
    for (int i = 0; i < DIRECT_COPIES; i++) {
        struct disk *disk = d->disk[i] == 0xffff ? NULL : c->e->pool->disks[d->disk[i]];
        const struct segment *s = segment_get(&c->e->table, d->segment);
        if (disk != NULL && s != NULL &&
            segment_column_disk(&c->e->table, s, (uint32_t)i) != NULL) {
            uint64_t block = layout_chunk_block(&c->e->pool->super.geometry, d->chunk_copy[i]);
            check_copy(c, disk, d->disk[i], block + d->offset_blocks, d->length_bytes,
                       d->checkpoint, d->crc, what);
        }
    }
}

static void check_map_node(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct check *c = ctx;
    struct segment *s = segment_get(&c->e->table, (uint32_t)(ptr->address >> 32));
    (void)height;
    c->r.nodes_read++;
    for (uint32_t column = 0; s != NULL && column < shape_columns(s->shape); column++) {
        struct disk *disk = segment_column_disk(&c->e->table, s, column);
        if (disk != NULL) {
            check_copy(c, disk, s->column[column].disk,
                       segment_column_block(&c->e->table, s, column, (uint32_t)ptr->address),
                       c->e->map_store.node_bytes, ptr->address, ptr->crc, "a map node");
        }
    }
}

static void check_bad_node(void *ctx, const struct tree_ptr_phys *ptr, int error) {
    struct check *c = ctx;
    found(c, false, "%s%s: the node at %016" PRIx64 " cannot be read (%s)",
          c->volume != NULL ? "volume " : "the map", c->volume != NULL ? c->volume->phys.name : "",
          ptr->address, error_text(error));
}

static void check_metadata(struct check *c) {
    struct engine *e = c->e;
    check_direct(c, &e->roots.directory, "the directory");
    check_direct(c, &e->roots.catalog, "the catalog");
    for (uint32_t p = 0; p < e->table.page_count; p++) {
        check_direct(c, &e->pages[p], "a segment table page");
    }
    struct tree_walk walk = {.node = check_map_node, .bad = check_bad_node, .ctx = c};
    int err = tree_walk(&e->map_tree, &walk);
    (void)err; /* each bad node has been reported */
}

/* ---- live counts as the table says against those of the map (invariant 11) ---- */

static void check_live_counts(struct check *c) {
    struct engine *e = c->e;
    for (uint32_t p = 0; p < e->table.page_count; p++) {
        struct buf *buf = NULL;
        if (meta_read_direct(e, &e->pages[p], &buf) != OK) {
            continue;
        }
        const struct segment_phys *phys =
            (const struct segment_phys *)(const void *)(buf->data + SEGMENT_PAGE_HEADER_BYTES);
        for (uint32_t i = 0; i < e->table.slots_per_page; i++) {
            const struct segment *s = segment_get(&e->table, p * e->table.slots_per_page + i);
            if (s != NULL && s->kind == SEGMENT_DATA && phys[i].live_blocks != s->live_blocks) {
                found(c, false, "segment %u: its table entry counts %u live blocks, the map %u",
                      s->slot, phys[i].live_blocks, s->live_blocks);
            }
        }
        buf_unref(buf);
    }
}

/* ---- rows ---- */

static int compare_place(const void *a, const void *b) {
    const struct map_run *x = *(struct map_run *const *)a, *y = *(struct map_run *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void check_row_blocks(struct check *c, struct map_run *const *runs, uint32_t count,
                             const struct row_phys *h) {
    struct engine *e = c->e;
    struct buf *buf = buf_new(BLOCK_BYTES);
    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t bit = 0; bit < RUN_BLOCKS; bit++) {
            uint64_t vba = (runs[r]->number << RUN_SHIFT) + bit;
            struct row_place place;
            if (!((runs[r]->live[bit / 64] >> (bit % 64)) & 1) ||
                !map_lookup(&e->map, vba, &place)) {
                continue;
            }
            uint32_t index = place.index - h->header_blocks;
            if (place.index < h->header_blocks || index >= h->blocks) {
                found(c, false, "block %016" PRIx64 " lies outside its row", vba);
                continue;
            }
            struct row_check check = {.vba = vba, .crc = row_header_crcs(h)[index]};
            uint64_t before = e->row_counters.checksum_errors;
            int err = row_read(&e->table, &place, 1, &check, &buf, 0, &e->row_counters, NULL);
            c->r.blocks_read++;
            if (err != OK) {
                found(c, false, "segment %u: block %016" PRIx64 " is lost (%s)",
                      place.segment->slot, vba, error_text(err));
            } else if (e->row_counters.checksum_errors != before) {
                found(c, true, "segment %u: block %016" PRIx64 " is bad on one disk",
                      place.segment->slot, vba);
            }
        }
    }
    buf_unref(buf);
}

/* All runs of one row. */
static void check_row(struct check *c, struct segment *s, struct map_run *const *runs,
                      uint32_t count) {
    struct engine *e = c->e;
    struct buf *header = NULL;
    uint64_t before = e->row_counters.checksum_errors;
    int err =
        row_read_header(&e->table, s, runs[0]->offset, runs[0]->height, &e->row_counters, &header);
    c->r.rows_read++;
    if (err != OK) {
        found(c, false, "segment %u: the header of the row at %u is lost (%s)", s->slot,
              runs[0]->offset, error_text(err));
        return;
    }
    if (e->row_counters.checksum_errors != before) {
        found(c, true, "segment %u: the header of the row at %u is bad on one disk", s->slot,
              runs[0]->offset);
    }
    check_row_blocks(c, runs, count, (const struct row_phys *)(const void *)header->data);
    buf_unref(header);
    leave_out_hung(c);
    uint32_t bad = 0, known_lost = 0;
    err = row_scrub(&e->table, s, runs[0]->offset, runs[0]->height, &bad);
    leave_out_hung(c);
    for (uint32_t column = 0; column < shape_columns(s->shape); column++) {
        known_lost |= segment_column_disk(&e->table, s, column) == NULL ? 1u << column : 0;
    }
    if (err == OK && (bad & ~known_lost) != 0) { /* invariant 5 */
        found(c, true, "segment %u: columns %x of the row at %u do not agree with the others",
              s->slot, bad & ~known_lost, runs[0]->offset);
    }
}

static void check_segment(struct check *c, struct segment *s) {
    uint32_t count = 0, room = 0;
    LIST_FOR_EACH(link, &s->runs) {
        room++;
    }
    struct map_run **runs = MEM_NEW_ARRAY(struct map_run *, room + 1);
    LIST_FOR_EACH(link, &s->runs) {
        runs[count++] = CONTAINER_OF(link, struct map_run, in_segment);
    }
    qsort(runs, count, sizeof(*runs), compare_place);
    for (uint32_t i = 0; i < count;) {
        uint32_t n = 1;
        while (i + n < count && runs[i + n]->offset == runs[i]->offset) {
            n++;
        }
        if (i + n < count && runs[i]->offset + runs[i]->height > runs[i + n]->offset) {
            found(c, false, "segment %u: the rows at %u and %u overlap", s->slot, runs[i]->offset,
                  runs[i + n]->offset);
        }
        check_row(c, s, &runs[i], n);
        (void)fiber_pace();
        i += n;
    }
    mem_free(runs);
}

/* ---- volumes: live ⇔ reached exactly once (invariant 10) ---- */

static void reach(struct check *c, uint64_t vba, const char *what) {
    if (!map_is_live(&c->e->map, vba)) {
        found(c, false,
              "volume %s refers to %s %016" PRIx64 ", which is not live or is referred to "
              "twice",
              c->volume->phys.name, what, vba);
    } else {
        map_clear_live(&c->e->map, vba); /* in memory only: crossed off */
    }
}

static void check_volume_node(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct check *c = ctx;
    (void)height;
    c->r.nodes_read++;
    for (uint32_t i = 0; i < c->volume->store.node_bytes / BLOCK_BYTES; i++) {
        reach(c, ptr->address + i, "node block");
    }
}

static void check_volume_item(void *ctx, uint64_t key, const void *value) {
    struct check *c = ctx;
    const struct tree_extent *x = value;
    if (key >= c->volume->phys.size_bytes / BLOCK_BYTES) {
        found(c, false, "volume %s has a block %" PRIu64 " behind its end", c->volume->phys.name,
              key);
    }
    if (x->vba != 0) { /* not a tombstone */
        reach(c, x->vba, "block");
        c->volume_items++;
    }
}

/* What is known already is named, with what follows from it. */
static void check_volume_flags(struct check *c) {
    const struct volume_phys *p = &c->volume->phys;
    if ((p->flags & VOLUME_FLAG_DELETING) != 0) {
        return;
    }
    if ((p->flags & VOLUME_FLAG_BROKEN) != 0) {
        found(c, false, "volume %s is broken: writes that it had acknowledged are lost; delete it",
              p->name);
    } else if ((p->flags & VOLUME_FLAG_DAMAGED) != 0) {
        found(c, false,
              "volume %s is damaged: it takes no writes; copy what can be read of it, then delete "
              "it",
              p->name);
    }
}

/* False: not all that it refers to is known. */
static bool check_volume(struct check *c) {
    const struct volume_phys *p = &c->volume->phys;
    struct tree_walk walk = {
        .node = check_volume_node, .item = check_volume_item, .bad = check_bad_node, .ctx = c};
    c->volume_items = 0;
    check_volume_flags(c);
    c->r.volumes_sweeping += (p->flags & VOLUME_FLAG_SWEEPING) != 0;
    if (tree_walk(&c->volume->tree, &walk) != OK || (p->flags & VOLUME_FLAG_SWEEPING) != 0) {
        return false;
    }
    /* What a delta run hides in an older level is referred to until the levels are merged. */
    if (c->volume_items != p->allocated_blocks) {
        found(c, false, "volume %s: %" PRIu64 " blocks in its tree, %" PRIu64 " in the catalog",
              p->name, c->volume_items, p->allocated_blocks);
    }
    return true;
}

static void check_volumes(struct check *c) {
    struct engine *e = c->e;
    bool all_known = true;
    LIST_FOR_EACH(link, &e->volumes) {
        c->volume = CONTAINER_OF(link, struct volume, link);
        all_known &= check_volume(c);
    }
    c->volume = NULL;
    if (all_known && e->map.live_blocks != 0) {
        found(c, false,
              "%" PRIu64 " live blocks are not referred to by any volume: their space cannot be "
              "used",
              e->map.live_blocks);
    }
}

/* ---- the log ---- */

static int count_record(void *ctx, uint16_t type, const void *header, uint16_t header_bytes,
                        struct buf *row, size_t data_offset, uint32_t data_bytes) {
    (void)ctx;
    (void)header;
    (void)header_bytes;
    (void)row;
    (void)data_offset;
    (void)data_bytes;
    return type >= RECORD_WRITE && type <= RECORD_CONFIG_DELETE ? OK : ERR_UNSUPPORTED;
}

static void check_log(struct check *c) {
    struct engine *e = c->e;
    struct log_replay replay = {.pool = e->pool,
                                .generation = e->roots.log_generation,
                                .start_lsn = e->roots.log_start,
                                .acknowledged_lsn = e->roots.log_acknowledged,
                                .seed = e->roots.log_seed,
                                .record = count_record,
                                .ctx = c};
    int err = log_replay(&replay);
    c->r.log_rows = replay.rows;
    if (err != OK) {
        found(c, false, "the log cannot be replayed to its acknowledged end (%s)", error_text(err));
    }
    if (replay.bad_copies > 0) {
        found(c, true, "%" PRIu64 " copies of log rows are bad", replay.bad_copies);
    }
}

/* What the layers below noted while the pool was opened: bad labels and superblock slots. */
static void check_disk_events(struct check *c) {
    for (uint32_t m = 0; m < c->e->pool->super.member_count; m++) {
        struct disk *disk = c->e->pool->disks[m];
        if (disk == NULL) {
            continue;
        }
        const struct disk_counters *n = disk_counters(disk);
        uint64_t kept = MIN(n->event_count, (uint64_t)DISK_EVENTS_KEPT);
        for (uint64_t i = n->event_count - kept; i < n->event_count; i++) {
            found(c, true, "%s: %s", disk_path(c->e, m), n->events[i % DISK_EVENTS_KEPT].text);
        }
    }
}

/* Disks that the pool counts on and that could not be looked at. */
static void check_absent(struct check *c) {
    const struct pool *pool = c->e->pool;
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        if (pool_member_in_sync(pool, m) && pool->disks[m] == NULL) {
            found(c, false, "disk %u was not checked: %s", m, pool->why[m]);
        }
    }
}

int engine_check(struct env *env, const struct pool_open_options *options,
                 void (*problem)(void *owner, const char *text), void *owner,
                 struct engine_check_result *ret_result, struct errmsg *reterr) {
    struct pool_open_options open = *options;
    struct pool *pool = NULL;
    struct engine_limits limits = {.read_cache_bytes = 1 << 20};
    open.read_only = true;
    open.disk.late_bytes_limit = 1; /* who owes an answer is not asked for more */
    int err = pool_open(env, &open, &pool, reterr);
    if (err != OK) {
        return err;
    }
    pool->read_only = true;
    struct engine *e = engine_alloc(env, pool, &limits);
    struct check c = {.e = e, .problem = problem, .owner = owner};
    check_disk_events(&c);
    check_absent(&c);
    struct errmsg why = {0};
    if (engine_load(e, &why) != OK) {
        found(&c, false, "%s", why.text);
    } else {
        leave_out_hung(&c);
        if (e->roots.directory.length_bytes != 0) {
            check_metadata(&c);
            check_live_counts(&c);
        }
        for (uint32_t i = 0; i < e->table.slot_count; i++) {
            if (e->table.slots[i] != NULL) {
                c.r.segments++;
                check_segment(&c, e->table.slots[i]);
            }
        }
        check_volumes(&c);
        leave_out_hung(&c);
        check_log(&c);
        leave_out_hung(&c);
    }
    *ret_result = c.r;
    pool->expelled = NULL;
    engine_free(e);
    pool_close(pool);
    return OK;
}
