// SPDX-License-Identifier: MPL-2.0
/* The segment table: see segment.h for the theory. */
#include "segment/segment.h"

#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "segment/row.h"

enum { CHUNK_FREE = 0, CHUNK_USED = 1 };
enum { SLOTS_MOST = 1 << 24 };

struct page_phys {
    struct header_phys header; /* seed: page number */
    uint32_t page;
    uint32_t slots;
    uint8_t reserved[40];
    struct segment_phys segment[];
};
_Static_assert(sizeof(struct page_phys) == SEGMENT_PAGE_HEADER_BYTES, "on disk");

enum { TABLE_VERSION = 1 };

uint32_t segment_page_bytes(const struct segment_table *table) {
    return table->pool->super.geometry.node_blocks * BLOCK_BYTES;
}

void segment_table_init(struct segment_table *table, struct pool *pool) {
    *table = (struct segment_table){.pool = pool, .uid_next = 1};
    list_init(&table->freeing);
    table->slots_per_page = (uint32_t)((segment_page_bytes(table) - sizeof(struct page_phys)) /
                                       sizeof(struct segment_phys));
    for (uint32_t d = 1; d <= SEGMENT_COLUMNS_MAX; d++) {
        table->density[d] = row_density(table, d);
    }
    for (uint32_t m = 0; m < pool->super.member_count; m++) {
        if (pool->super.members[m].state != MEMBER_NONE) {
            segment_member_added(table, m);
        }
    }
}

static void slots_count(struct segment_table *table) {
    uint64_t most = 0;
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        most += table->chunk_count[m];
    }
    most = MAX(most, (uint64_t)table->pages_committed * table->slots_per_page);
    table->slots_most = (uint32_t)MIN(most, (uint64_t)SLOTS_MOST);
}

void segment_pages_committed(struct segment_table *table, uint32_t pages) {
    table->pages_committed = pages;
    slots_count(table);
}

bool segment_member_keeps_slots(const struct segment_table *table, uint32_t member) {
    uint64_t chunks = 0;
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        chunks += m == member ? 0 : table->chunk_count[m];
    }
    return table->page_count > table->pages_committed &&
           (uint64_t)table->page_count * table->slots_per_page > chunks;
}

void segment_member_added(struct segment_table *table, uint32_t member) {
    uint32_t chunks = table->pool->super.members[member].chunks;
    ASSERT(table->chunk_used[member] == NULL);
    table->chunk_count[member] = chunks;
    table->chunk_free[member] = chunks;
    table->chunk_used[member] = MEM_NEW_ARRAY(uint8_t, chunks + 1);
    table->chunk_hint[member] = 0;
    slots_count(table);
    table->changes++;
}

bool segment_member_is_empty(const struct segment_table *table, uint32_t member) {
    return table->chunk_free[member] == table->chunk_count[member];
}

void segment_member_dropped(struct segment_table *table, uint32_t member) {
    ASSERT(segment_member_is_empty(table, member));
    mem_free(table->chunk_used[member]);
    table->chunk_used[member] = NULL;
    table->chunk_count[member] = table->chunk_free[member] = 0;
    slots_count(table);
    table->changes++;
}

void segment_member_leaves(struct segment_table *table, uint32_t member) {
    for (uint32_t i = 0; i < table->slot_count; i++) {
        struct segment *s = table->slots[i];
        for (uint32_t c = 0; s != NULL && c < shape_columns(s->shape); c++) {
            if (s->column[c].disk == member) {
                segment_seal(table, s);
            }
        }
    }
}

void segment_table_done(struct segment_table *table) {
    for (uint32_t i = 0; i < table->slot_count; i++) {
        mem_free(table->slots[i]);
    }
    struct list *link;
    while ((link = list_pop(&table->freeing)) != NULL) {
        mem_free(CONTAINER_OF(link, struct segment, freeing_link));
    }
    for (uint32_t m = 0; m < POOL_DISKS_MAX; m++) {
        mem_free(table->chunk_used[m]);
    }
    mem_free(table->slots);
    mem_free(table->page_dirty);
    mem_free(table->slot_taken);
    *table = (struct segment_table){0};
}

static void table_grow(struct segment_table *table, uint32_t pages) {
    if (pages <= table->page_count) {
        return;
    }
    uint32_t slots = pages * table->slots_per_page;
    table->slots = mem_realloc(table->slots, slots * sizeof(struct segment *));
    table->slot_taken = mem_realloc(table->slot_taken, slots * sizeof(bool));
    table->page_dirty = mem_realloc(table->page_dirty, pages * sizeof(bool));
    table->slot_count = slots;
    for (uint32_t p = table->page_count; p < pages; p++) {
        table->page_dirty[p] = true;
    }
    table->page_count = pages;
}

void segment_mark_dirty(struct segment_table *table, const struct segment *s) {
    if (s->state != SEGMENT_FREEING) {
        table->page_dirty[s->slot / table->slots_per_page] = true;
    }
}

struct segment *segment_get(const struct segment_table *table, uint32_t slot) {
    return slot < table->slot_count ? table->slots[slot] : NULL;
}

static void chunk_take(struct segment_table *table, uint32_t disk, uint32_t chunk) {
    INVARIANT(11, table->chunk_used[disk][chunk] == CHUNK_FREE);
    table->chunk_used[disk][chunk] = CHUNK_USED;
    table->chunk_free[disk]--;
    table->changes++;
}

/* The first that is free: on a rotating disk it is nearest to the ring, which every write visits,
 * and where the disk is fastest. */
static uint32_t chunk_find(struct segment_table *table, uint32_t disk) {
    ASSERT_LT(0, table->chunk_free[disk]);
    uint32_t c = table->chunk_hint[disk];
    while (table->chunk_used[disk][c] != CHUNK_FREE) {
        c++;
    }
    table->chunk_hint[disk] = c + 1;
    return c;
}

/* ---- phys ---- */

void segment_to_phys(const struct segment *s, struct segment_phys *ret_phys) {
    bool meta = s->kind == SEGMENT_META;
    *ret_phys = (struct segment_phys){
        .uid = s->uid,
        .kind = (uint8_t)s->kind,
        .state = (uint8_t)s->state,
        .profile = (uint8_t)s->profile,
        .copies = s->shape.copies,
        .data = s->shape.data,
        .parity = s->shape.parity,
        .degraded = s->degraded,
        .used_blocks = meta ? 0 : s->used_blocks,
        .live_blocks = meta ? 0 : s->live_blocks,
        .lost = s->lost,
    };
    memcpy(ret_phys->column, s->column, sizeof(ret_phys->column));
}

int segment_phys_validate(const struct segment_table *table, const struct segment_phys *p) {
    struct shape shape = {.copies = p->copies, .data = p->data, .parity = p->parity};
    if (p->uid == 0 || p->uid >= COUNTER_END ||
        (p->kind != SEGMENT_DATA && p->kind != SEGMENT_META) ||
        (p->state != SEGMENT_OPEN && p->state != SEGMENT_SEALED) || p->profile >= PROFILE_COUNT ||
        p->copies == 0 || p->data == 0 || p->parity > 2 || p->copies > 8 ||
        shape_columns(shape) > SEGMENT_COLUMNS_MAX ||
        p->used_blocks > table->pool->super.geometry.chunk_blocks) {
        return ERR_CORRUPT;
    }
    uint64_t seen = 0;
    for (uint32_t c = 0; c < shape_columns(shape); c++) {
        uint32_t disk = p->column[c].disk;
        if (disk >= table->pool->super.member_count || ((seen >> disk) & 1) != 0 ||
            p->column[c].chunk >= table->chunk_count[disk]) {
            return ERR_CORRUPT;
        }
        seen |= 1ull << disk;
    }
    return p->lost >> shape_columns(shape) == 0 ? OK : ERR_CORRUPT;
}

int segment_restore(struct segment_table *table, uint32_t slot, const struct segment_phys *phys,
                    struct segment **ret_segment) {
    int err = segment_phys_validate(table, phys);
    if (err != OK) {
        return err;
    }
    if (slot >= table->slots_most) {
        return ERR_CORRUPT;
    }
    table_grow(table, slot / table->slots_per_page + 1);
    if (table->slots[slot] != NULL) {
        *ret_segment = table->slots[slot];
        return table->slots[slot]->uid == phys->uid ? ERR_EXISTS : ERR_CORRUPT;
    }
    struct shape shape = {.copies = phys->copies, .data = phys->data, .parity = phys->parity};
    for (uint32_t c = 0; c < shape_columns(shape); c++) {
        if (table->chunk_used[phys->column[c].disk][phys->column[c].chunk] != CHUNK_FREE) {
            return ERR_CORRUPT;
        }
    }
    struct segment *s = MEM_NEW(struct segment);
    *s = (struct segment){.slot = slot,
                          .uid = phys->uid,
                          .kind = (enum segment_kind)phys->kind,
                          .state = SEGMENT_SEALED, /* invariant 6 */
                          .profile = (enum profile)phys->profile,
                          .shape = shape,
                          .degraded = phys->degraded != 0,
                          .used_blocks = phys->used_blocks,
                          .lost = phys->lost,
                          .announced = true};
    memcpy(s->column, phys->column, sizeof(s->column));
    list_init(&s->runs);
    list_init(&s->freeing_link);
    for (uint32_t c = 0; c < shape_columns(shape); c++) {
        chunk_take(table, s->column[c].disk, s->column[c].chunk);
    }
    table->slots[slot] = s;
    table->slot_taken[slot] = true;
    table->page_dirty[slot / table->slots_per_page] |= phys->state != SEGMENT_SEALED;
    table->uid_next = MAX(table->uid_next, s->uid + 1);
    *ret_segment = s;
    return OK;
}

void segment_page_encode(const struct segment_table *table, uint32_t page, void *ret_bytes) {
    struct page_phys *p = ret_bytes;
    memset(p, 0, segment_page_bytes(table));
    p->page = page;
    p->slots = table->slots_per_page;
    for (uint32_t i = 0; i < table->slots_per_page; i++) {
        const struct segment *s = table->slots[page * table->slots_per_page + i];
        if (s != NULL) {
            segment_to_phys(s, &p->segment[i]);
        }
    }
    phys_seal(p, PHYS_TABLE_PAGE, TABLE_VERSION, segment_page_bytes(table), page);
}

int segment_page_decode(struct segment_table *table, uint32_t page, const void *bytes) {
    const struct page_phys *p = bytes;
    uint32_t length = segment_page_bytes(table);
    int err = phys_check(p, PHYS_TABLE_PAGE, length, length, page);
    if (err != OK) {
        return err;
    }
    if (p->header.version != TABLE_VERSION) {
        return ERR_UNSUPPORTED;
    }
    if (p->page != page || p->slots != table->slots_per_page) {
        return ERR_CORRUPT;
    }
    table_grow(table, page + 1);
    for (uint32_t i = 0; i < table->slots_per_page; i++) {
        struct segment *s;
        if (p->segment[i].uid == 0) {
            continue;
        }
        err = segment_restore(table, page * table->slots_per_page + i, &p->segment[i], &s);
        if (err != OK) {
            return err == ERR_EXISTS ? ERR_CORRUPT : err;
        }
    }
    table->page_dirty[page] = false;
    for (uint32_t i = 0; i < table->slots_per_page; i++) { /* what was open is sealed now */
        table->page_dirty[page] |= p->segment[i].state == SEGMENT_OPEN;
    }
    return OK;
}

/* ---- allocation ---- */

static bool disk_has_room(const struct segment_table *table, uint32_t m, uint32_t keep_free) {
    return pool_member_stores(table->pool, m) && table->chunk_free[m] > keep_free;
}

uint32_t segment_members_missing(const struct segment_table *table) {
    uint32_t count = 0;
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        count += table->pool->super.members[m].state == MEMBER_MISSING &&
                 table->chunk_free[m] < table->chunk_count[m];
    }
    return count;
}

uint32_t segment_losses_least(const struct segment_table *table, enum profile profile) {
    uint32_t losses = profile_losses(profile), storing = pool_storing_count(table->pool);
    uint32_t missing = segment_members_missing(table);
    return losses > missing ? MIN(losses - missing, MAX(1u, storing) - 1) : 0;
}

static bool member_is_avoided(const struct segment_table *table, uint32_t m) {
    return table->pool->disks[m] != NULL && disk_is_avoided(table->pool->disks[m]);
}

/* With or without the disks that are to be avoided. */
static struct shape shape_with(const struct segment_table *table, enum profile profile,
                               uint32_t keep_free, uint32_t losses, bool avoid) {
    uint32_t with_room = 0;
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        with_room += disk_has_room(table, m, keep_free) && !(avoid && member_is_avoided(table, m));
    }
    if (with_room == 0) {
        return (struct shape){0};
    }
    struct shape shape = profile_shape_for(profile, with_room, losses);
    return shape_losses(shape) < MIN(losses, pool_storing_count(table->pool) - 1)
               ? (struct shape){0}
               : shape;
}

/* Some disk is to be avoided, and all that is to be written fits on the others. */
static bool may_avoid(const struct segment_table *table) {
    uint64_t avoided = 0;
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        bool avoid = pool_member_in_sync(table->pool, m) && member_is_avoided(table, m);
        avoided |= avoid ? 1ull << m : 0;
    }
    return avoided != 0 && table->fits_without != NULL && table->fits_without(table, avoided);
}

struct shape segment_shape(const struct segment_table *table, enum profile profile,
                           uint32_t keep_free, uint32_t losses) {
    struct shape shape = {0};
    if (may_avoid(table)) {
        shape = shape_with(table, profile, keep_free, losses, true);
    }
    return shape.data > 0 && shape_losses(shape) >= losses
               ? shape
               : shape_with(table, profile, keep_free, losses, false);
}

bool segment_has_better(const struct segment_table *table, const struct segment *s) {
    uint32_t losses = shape_losses(s->shape);
    bool on_avoided = false;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        on_avoided |= member_is_avoided(table, s->column[c].disk);
    }
    struct shape other = {0};
    if (on_avoided && may_avoid(table)) {
        other = shape_with(table, s->profile, 0, losses, true);
    }
    return other.data > 0 && shape_losses(other) >= losses;
}

/* slots_most and above: there are no more. */
static uint32_t slot_find(struct segment_table *table) {
    for (uint32_t i = 0; i < table->slot_count; i++) {
        if (!table->slot_taken[i]) {
            return i;
        }
    }
    uint32_t slot = table->slot_count;
    if (slot < table->slots_most) {
        table_grow(table, table->page_count + 1);
    }
    return slot;
}

/* Where disks cannot be avoided for want of room they are taken like all others: admission has
 * reckoned with those that have most room. */
static bool is_better(const struct segment_table *table, uint32_t m, uint32_t than, bool avoid) {
    bool avoided = avoid && member_is_avoided(table, m);
    bool other = avoid && member_is_avoided(table, than);
    return avoided != other ? other : table->chunk_free[m] > table->chunk_free[than];
}

int segment_open(struct segment_table *table, enum segment_kind kind, enum profile profile,
                 struct shape shape, uint32_t keep_free, struct segment **ret_segment) {
    uint32_t columns = shape_columns(shape);
    struct segment_column_phys chosen[SEGMENT_COLUMNS_MAX] = {0};
    uint64_t taken = 0;
    bool avoid = may_avoid(table);
    for (uint32_t c = 0; c < columns; c++) { /* the disk with most room that is not taken yet */
        uint32_t best = POOL_DISKS_MAX;
        for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
            if (((taken >> m) & 1) == 0 && disk_has_room(table, m, keep_free) &&
                (best == POOL_DISKS_MAX || is_better(table, m, best, avoid))) {
                best = m;
            }
        }
        if (best == POOL_DISKS_MAX) {
            return ERR_NO_SPACE;
        }
        taken |= 1ull << best;
        chosen[c].disk = (uint16_t)best;
    }
    uint32_t slot = slot_find(table);
    if (columns == 0 || slot >= table->slots_most) {
        return ERR_NO_SPACE;
    }
    if (table->uid_next >= COUNTER_END) {
        return ERR_LIMIT;
    }
    struct segment *s = MEM_NEW(struct segment);
    *s = (struct segment){.slot = slot,
                          .uid = table->uid_next++,
                          .kind = kind,
                          .state = SEGMENT_OPEN,
                          .profile = profile,
                          .shape = shape};
    s->degraded = shape_losses(shape) < profile_losses(profile);
    /* Columns rotate with the slot, so that parity and row headers spread over the disks. */
    for (uint32_t c = 0; c < columns; c++) {
        s->column[c] = chosen[(c + s->uid) % columns];
        s->column[c].chunk = chunk_find(table, s->column[c].disk);
        chunk_take(table, s->column[c].disk, s->column[c].chunk);
    }
    list_init(&s->runs);
    list_init(&s->freeing_link);
    table->slots[s->slot] = s;
    table->slot_taken[s->slot] = true;
    segment_mark_dirty(table, s);
    *ret_segment = s;
    return OK;
}

void segment_seal(struct segment_table *table, struct segment *s) {
    if (s->state == SEGMENT_OPEN) {
        s->state = SEGMENT_SEALED;
        segment_mark_dirty(table, s);
    }
}

void segment_start_freeing(struct segment_table *table, struct segment *s) {
    ASSERT_EQ(s->state, SEGMENT_SEALED);
    INVARIANT(8, s->live_blocks == 0 && s->pending == 0);
    segment_mark_dirty(table, s);
    table->slots[s->slot] = NULL;
    s->state = SEGMENT_FREEING;
    list_append(&table->freeing, &s->freeing_link);
}

void segment_stop_freeing(struct segment_table *table, struct segment *s) {
    ASSERT_EQ(s->state, SEGMENT_FREEING);
    list_remove(&s->freeing_link);
    table->slots[s->slot] = s;
    s->state = SEGMENT_SEALED;
    segment_mark_dirty(table, s);
}

void segment_release(struct segment_table *table, struct segment *s) {
    INVARIANT(8, s->state == SEGMENT_FREEING && s->pins == 0 && s->pending == 0 &&
                     list_is_empty(&s->runs));
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        segment_give_chunk(table, s->column[c].disk, s->column[c].chunk);
    }
    list_remove(&s->freeing_link);
    table->slot_taken[s->slot] = false;
    mem_free(s);
}

/* ---- one column elsewhere ---- */

uint32_t segment_column_target(const struct segment_table *table, const struct segment *s,
                               uint32_t column, uint32_t keep_free) {
    uint32_t best = POOL_DISKS_MAX;
    uint64_t taken = 0;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        taken |= c == column ? 0 : 1ull << s->column[c].disk;
    }
    for (uint32_t m = 0; m < table->pool->super.member_count; m++) {
        if (((taken >> m) & 1) == 0 && disk_has_room(table, m, keep_free) &&
            (best == POOL_DISKS_MAX || table->chunk_free[m] > table->chunk_free[best])) {
            best = m;
        }
    }
    return best;
}

uint32_t segment_take_chunk(struct segment_table *table, uint32_t member) {
    uint32_t chunk = chunk_find(table, member);
    chunk_take(table, member, chunk);
    return chunk;
}

void segment_give_chunk(struct segment_table *table, uint32_t member, uint32_t chunk) {
    ASSERT_EQ(table->chunk_used[member][chunk], CHUNK_USED);
    table->chunk_used[member][chunk] = CHUNK_FREE;
    table->chunk_hint[member] = MIN(table->chunk_hint[member], chunk);
    table->chunk_free[member]++;
    table->changes++;
}

void segment_move_column(struct segment_table *table, struct segment *s, uint32_t column,
                         struct segment_column_phys to, bool lost) {
    ASSERT_EQ(s->state, SEGMENT_SEALED);
    s->column[column] = to;
    s->lost = (s->lost & ~(1u << column)) | (lost ? 1u << column : 0);
    segment_mark_dirty(table, s);
}

void segment_member_lost(struct segment_table *table, uint32_t member) {
    for (uint32_t i = 0; i < table->slot_count; i++) {
        struct segment *s = table->slots[i];
        if (s == NULL) {
            continue;
        }
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            if (s->column[c].disk != member) {
                continue;
            }
            if (s->state == SEGMENT_OPEN || ((s->unflushed >> c) & 1) != 0) {
                s->lost |= 1u << c;
                segment_mark_dirty(table, s);
            }
            segment_seal(table, s);
        }
    }
}

/* ---- places ---- */

struct disk *segment_column_disk(const struct segment_table *table, const struct segment *s,
                                 uint32_t column) {
    uint32_t member = s->column[column].disk;
    if (((s->lost >> column) & 1) != 0 || !pool_member_in_sync(table->pool, member)) {
        return NULL;
    }
    return table->pool->disks[member];
}

uint32_t segment_unreadable(const struct segment_table *table, const struct segment *s) {
    uint32_t mask = 0;
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        mask |= segment_column_disk(table, s, c) == NULL ? 1u << c : 0;
    }
    return mask;
}

uint64_t segment_column_block(const struct segment_table *table, const struct segment *s,
                              uint32_t column, uint32_t block) {
    return layout_chunk_block(&table->pool->super.geometry, s->column[column].chunk) + block;
}
