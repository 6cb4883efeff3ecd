// SPDX-License-Identifier: MPL-2.0
/* Scrub: reads everything that lives in the pool, on every disk, before somebody needs it, and puts
 * right what is wrong.
 *
 * Rows. A row's header says which vbas it holds, whose they are, and the checksum of each block, so
 * a row can be verified by itself: header, data (each copy), padding, and parity, which is computed
 * from the data and compared. Rows are never changed, so what is right is known to the byte, and is
 * written over what differs (invariant 7). A segment is pinned while its rows are read: its chunks
 * are not used again meanwhile.
 *
 * Metadata. Map nodes, table pages, catalog and directory have copies and checksums. The pointers
 * to them are those of one committed checkpoint; when another has committed, it is begun again.
 * What is under a pin stays what it is, so a repair never overwrites anything newer.
 *
 * Disks that are missing are left out, and counted; a scrub of a degraded pool verifies what is
 * there. Suspects are read: a disk with unreadable blocks is slow because of them. Nobody waits for
 * what a scrub reads, so even a suspect has the whole deadline to say that a block is bad; a column
 * that is late as a whole is read block by block, and if that is late, too, it is counted as left
 * out. A block that no redundancy brings back is lost: which volume's it was and where is kept and
 * shown, until a later scrub finds it no more.
 *
 * Pace. After each row the fiber sleeps so long that reading takes its share of the time. The more
 * others have to do, the longer a row takes, and the longer the sleep.
 *
 * When. On request, and when the last one ended as many days ago as the pool's setting says.
 * Setting, last end and what is lost are a configuration record of the pool. A scrub that was
 * interrupted by the end of service begins anew. */
#include "engine/scrub.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "codec/parity.h"
#include "engine/private.h"

enum {
    SHARE_PCT = 25,
    DAYS_DEFAULT = 30,
    RECORD_VERSION = 1,
    META_ATTEMPTS = 5,
};
#define SLEEP_MOST_NS (2 * (uint64_t)NS_PER_S)
#define DAY_NS (86400 * (uint64_t)NS_PER_S)
#define LOOK_NS (3600 * (uint64_t)NS_PER_S)
#define RECORD_ID "pool"

struct scrub_phys { /* the configuration record */
    uint32_t version, days;
    uint64_t ended_wall_ns;
    uint32_t lost_count, reserved;
    struct engine_range lost[];
};

struct scrub {
    struct engine *e;
    struct fiber_queue queue;
    bool gone, wanted, stop;
    uint32_t days;
    uint64_t began_ns;
    struct engine_scrub_status st;              /* of the last one, or the one that runs */
    struct engine_range lost[SCRUB_RANGES_MAX]; /* as found by the one before, while one runs */
    uint32_t lost_count;
};

/* ---- what is remembered ---- */

static void record_take(void *ctx, const char *kind, const char *id, const void *blob,
                        uint32_t bytes) {
    struct scrub *sc = ctx;
    const struct scrub_phys *p = blob;
    (void)kind;
    if (strcmp(id, RECORD_ID) != 0 || bytes < sizeof(*p) || p->version != RECORD_VERSION ||
        p->lost_count > SCRUB_RANGES_MAX ||
        bytes != sizeof(*p) + p->lost_count * sizeof(p->lost[0])) {
        return; /* it is written anew */
    }
    sc->days = p->days;
    sc->st.ended_wall_ns = p->ended_wall_ns;
    sc->lost_count = p->lost_count;
    memcpy(sc->lost, p->lost, p->lost_count * sizeof(p->lost[0]));
}

static int record_write(struct scrub *sc, struct errmsg *reterr) {
    size_t bytes = sizeof(struct scrub_phys) + sc->lost_count * sizeof(sc->lost[0]);
    struct scrub_phys *p = mem_alloc(bytes);
    p->version = RECORD_VERSION;
    p->days = sc->days;
    p->ended_wall_ns = sc->st.ended_wall_ns;
    p->lost_count = sc->lost_count;
    memcpy(p->lost, sc->lost, sc->lost_count * sizeof(sc->lost[0]));
    int err = engine_config_set(sc->e, SCRUB_RECORD_KIND, RECORD_ID, p, (uint32_t)bytes, reterr);
    mem_free(p);
    return err;
}

/* Joins ranges that touch; beyond what there is room for they are only counted. */
static void range_add(struct engine_range *list, uint32_t *count, uint64_t volume, uint64_t block,
                      uint32_t member) {
    for (uint32_t i = 0; i < *count; i++) {
        struct engine_range *r = &list[i];
        if (r->volume != volume || r->member != member || block + 1 < r->block ||
            block > r->block + r->count) {
            continue;
        }
        if (block + 1 == r->block) {
            r->block--;
            r->count++;
        } else {
            r->count += block == r->block + r->count;
        }
        return;
    }
    if (*count < SCRUB_RANGES_MAX) {
        list[(*count)++] =
            (struct engine_range){.volume = volume, .block = block, .count = 1, .member = member};
    }
}

void scrub_note_lost(struct scrub *sc, uint64_t volume, uint64_t block) {
    range_add(sc->lost, &sc->lost_count, volume, block, 0);
    if (sc->st.running) {
        range_add(sc->st.lost, &sc->st.lost_count, volume, block, 0);
    }
}

uint64_t scrub_lost_blocks(const struct scrub *sc, uint64_t volume) {
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < sc->lost_count; i++) {
        blocks += sc->lost[i].volume == volume ? sc->lost[i].count : 0;
    }
    return blocks;
}

/* ---- reading ---- */

struct column_read {
    struct disk_io io;
    struct fiber_group *group;
};

static void column_came(struct disk_io *io) {
    fiber_group_done(CONTAINER_OF(io, struct column_read, io)->group, OK);
}

static void read_begin(struct scrub *sc, struct column_read *read, struct fiber_group *group,
                       struct disk *disk, uint64_t offset_bytes, size_t bytes, struct buf *buf,
                       size_t buf_offset) {
    *read =
        (struct column_read){.io = {.op = ENV_IO_READ,
                                    .offset_bytes = offset_bytes,
                                    .length_bytes = bytes,
                                    .buf = buf,
                                    .buf_offset = buf_offset,
                                    .deadline_ns = env_now_ns(sc->e->env) + disk_deadline_ns(disk),
                                    .done = column_came},
                             .group = group};
    sc->st.bytes_read += bytes;
    fiber_group_add(group);
    disk_submit(disk, &read->io);
}

/* All of a buffer. */
static int read_one(struct scrub *sc, struct disk *disk, uint64_t offset_bytes, struct buf *buf) {
    struct column_read read;
    struct fiber_group group = FIBER_GROUP_INIT;
    read_begin(sc, &read, &group, disk, offset_bytes, buf->bytes, buf, 0);
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK);
    return read.io.result;
}

/* ---- one row ---- */

struct row_scan {
    struct scrub *sc;
    struct segment *s;
    uint32_t offset, height, per_copy;
    struct buf *header;
    const struct row_phys *h;
    uint64_t vba[ROW_DATA_MAX];
    struct buf *have, *want;
    uint32_t came, unclear; /* columns: read; asked for, and not had as a whole */
    bool *unknown;          /* of the data columns' blocks: no redundancy brings it back */
};

static void scan_read(struct row_scan *r) {
    struct column_read reads[SEGMENT_COLUMNS_MAX];
    struct fiber_group group = FIBER_GROUP_INIT;
    struct segment_table *t = &r->sc->e->table;
    uint32_t columns = shape_columns(r->s->shape), asked = 0;
    size_t bytes = (size_t)r->height * BLOCK_BYTES;
    r->have = buf_new(columns * bytes);
    for (uint32_t c = 0; c < columns; c++) {
        struct disk *disk = segment_column_disk(t, r->s, c);
        if (disk == NULL) {
            r->sc->st.skipped_columns++;
            continue;
        }
        asked |= 1u << c;
        read_begin(r->sc, &reads[c], &group, disk,
                   segment_column_block(t, r->s, c, r->offset) * BLOCK_BYTES, bytes, r->have,
                   c * bytes);
    }
    int err = fiber_group_wait(&group);
    ASSERT_EQ(err, OK); /* results are per column */
    for (uint32_t c = 0; c < columns; c++) {
        r->came |= ((asked >> c) & 1) != 0 && reads[c].io.result == OK ? 1u << c : 0;
    }
    r->unclear = asked & ~r->came;
}

static bool is_zero(const uint8_t *block) {
    return block[0] == 0 && memcmp(block, block + 1, BLOCK_BYTES - 1) == 0;
}

/* Whether these bytes are block j of the row. */
static bool is_right(const struct row_scan *r, uint32_t j, const uint8_t *bytes) {
    uint32_t i = j - r->h->header_blocks;
    if (j < r->h->header_blocks) {
        return memcmp(bytes, r->header->data + (size_t)j * BLOCK_BYTES, BLOCK_BYTES) == 0;
    }
    if (i >= r->h->blocks) {
        return is_zero(bytes);
    }
    return crc32c_seeded(r->vba[i], bytes, BLOCK_BYTES) == row_header_crcs(r->h)[i];
}

static void note_touched(struct row_scan *r, uint32_t column, uint32_t j, uint32_t member) {
    struct engine_scrub_status *st = &r->sc->st;
    uint32_t i = j - r->h->header_blocks;
    st->repaired_on[member]++;
    if (column % r->per_copy < r->s->shape.data && j >= r->h->header_blocks && i < r->h->blocks) {
        struct row_run_phys owner = row_owner(r->h, i);
        range_add(st->touched, &st->touched_count, owner.kind == ROW_OWNER_DATA ? owner.volume : 0,
                  owner.offset, member);
    } else {
        range_add(st->touched, &st->touched_count, 0, 0, member); /* parity, headers */
    }
}

/* Block j by the long way, computed and verified. */
static bool rescue(struct row_scan *r, uint32_t j, uint8_t *to) {
    struct engine *e = r->sc->e;
    uint32_t i = j - r->h->header_blocks;
    if (j < r->h->header_blocks) {
        memcpy(to, r->header->data + (size_t)j * BLOCK_BYTES, BLOCK_BYTES);
        return true;
    }
    if (i >= r->h->blocks) {
        memset(to, 0, BLOCK_BYTES);
        return true;
    }
    struct row_place place = {
        .segment = r->s, .offset = r->offset, .height = r->height, .index = j};
    struct row_check check = {.vba = r->vba[i], .crc = row_header_crcs(r->h)[i]};
    struct buf *buf = buf_new(BLOCK_BYTES);
    uint64_t before = e->row_counters.repairs;
    uint32_t c = j / r->height;
    int err = row_read(&e->table, &place, 1, &check, &buf, 0, &e->row_counters, NULL);
    if (err == OK) {
        memcpy(to, buf->data, BLOCK_BYTES);
        if (((r->came >> c) & 1) == 0 && e->row_counters.repairs != before) {
            r->sc->st.wrong++; /* put right on the way */
            r->sc->st.repaired++;
            note_touched(r, c, j, r->s->column[c].disk);
        }
    }
    buf_unref(buf);
    return err == OK;
}

static void note_lost_block(struct row_scan *r, uint32_t j) {
    struct row_run_phys owner = row_owner(r->h, j - r->h->header_blocks);
    struct row_place now;
    bool here = map_is_live(&r->sc->e->map, owner.vba) &&
                map_lookup(&r->sc->e->map, owner.vba, &now) && now.segment == r->s;
    if (here) { /* else nobody refers to it */
        r->sc->st.lost_blocks++;
        range_add(r->sc->st.lost, &r->sc->st.lost_count,
                  owner.kind == ROW_OWNER_DATA ? owner.volume : 0, owner.offset, 0);
    }
}

enum block_state { BLOCK_RIGHT, BLOCK_WRONG, BLOCK_UNKNOWN };

/* Block j where it should be, in columns that did not come as a whole; who rescues waits less long.
 * Unknown: a disk is late even so, and what it holds may be right; it is not asked again. */
static enum block_state read_again(struct row_scan *r, uint32_t j, uint8_t *to) {
    struct segment_table *t = &r->sc->e->table;
    struct buf *buf = buf_new(BLOCK_BYTES);
    enum block_state state = BLOCK_WRONG;
    for (uint32_t copy = 0; copy < r->s->shape.copies && state != BLOCK_RIGHT; copy++) {
        uint32_t column = copy * r->per_copy + j / r->height;
        uint64_t block = segment_column_block(t, r->s, column, r->offset + j % r->height);
        struct disk *disk = segment_column_disk(t, r->s, column);
        if (disk == NULL || ((r->unclear >> column) & 1) == 0) {
            continue;
        }
        int err = read_one(r->sc, disk, block * BLOCK_BYTES, buf);
        if (err == OK && is_right(r, j, buf->data)) {
            memcpy(to, buf->data, BLOCK_BYTES);
            state = BLOCK_RIGHT;
        } else if (err != OK && err != ERR_IO) {
            r->unclear &= ~(1u << column);
            r->sc->st.skipped_columns++;
            state = BLOCK_UNKNOWN;
        }
        if (err != OK) { /* it may still come */
            buf_unref(buf);
            buf = buf_new(BLOCK_BYTES);
        }
    }
    buf_unref(buf);
    return state;
}

/* What the data columns should hold, from whichever copy verifies. */
static void scan_know(struct row_scan *r) {
    size_t bytes = (size_t)r->height * BLOCK_BYTES;
    r->want = buf_new(r->per_copy * bytes);
    r->unknown = MEM_NEW_ARRAY(bool, r->height * r->s->shape.data);
    for (uint32_t j = 0; j < r->height * r->s->shape.data; j++) {
        uint32_t c = j / r->height;
        size_t at = c * bytes + (size_t)(j % r->height) * BLOCK_BYTES;
        bool found = false;
        for (uint32_t copy = 0; copy < r->s->shape.copies && !found; copy++) {
            const uint8_t *block = r->have->data + copy * r->per_copy * bytes + at;
            if (((r->came >> (copy * r->per_copy + c)) & 1) != 0 && is_right(r, j, block)) {
                memcpy(r->want->data + at, block, BLOCK_BYTES);
                found = true;
            }
        }
        if (!found && !rescue(r, j, r->want->data + at)) {
            enum block_state state = read_again(r, j, r->want->data + at);
            r->unknown[j] = state != BLOCK_RIGHT;
            if (state == BLOCK_WRONG) {
                note_lost_block(r, j);
            }
        }
    }
    if (r->s->shape.parity > 0) {
        void *columns[SEGMENT_COLUMNS_MAX];
        for (uint32_t c = 0; c < r->per_copy; c++) {
            columns[c] = r->want->data + c * bytes;
        }
        parity_generate(r->s->shape.data, r->s->shape.parity, bytes, columns);
    }
}

/* Block b of a column: if the disk holds something else, it is written over. */
static void block_correct(struct row_scan *r, uint32_t column, uint32_t b) {
    struct engine *e = r->sc->e;
    struct disk *disk = segment_column_disk(&e->table, r->s, column);
    uint32_t c = column % r->per_copy, j = c * r->height + b, member = r->s->column[column].disk;
    size_t bytes = (size_t)r->height * BLOCK_BYTES, at = (size_t)b * BLOCK_BYTES;
    uint64_t place = segment_column_block(&e->table, r->s, column, r->offset + b) * BLOCK_BYTES;
    if (disk == NULL) {
        return;
    }
    r->sc->st.wrong++;
    disk_note(disk, DISK_ERROR_CHECKSUM, place, BLOCK_BYTES, "found wrong by the scrub");
    int err = disk_write(disk, place, BLOCK_BYTES, r->want, c * bytes + at, false);
    if (err == OK) {
        r->sc->st.repaired++;
        e->row_counters.repairs++;
        disk_note(disk, DISK_ERROR_REPAIRED, place, BLOCK_BYTES, "rewritten by the scrub");
        note_touched(r, column, j, member);
    } else if (pool_member_in_sync(e->pool, member)) {
        pool_expel(e->pool, member, "a repair could not be written");
    }
}

/* Parity of what is not known is not known. */
static bool is_known(const struct row_scan *r, uint32_t column, uint32_t b) {
    uint32_t c = column % r->per_copy, data = r->s->shape.data;
    bool unknown = c < data && r->unknown[c * r->height + b];
    for (uint32_t d = 0; c >= data && d < data; d++) {
        unknown |= r->unknown[d * r->height + b];
    }
    return !unknown;
}

/* A column that did not come says nothing of its single blocks: they are read one by one. */
static enum block_state block_look(struct row_scan *r, uint32_t column, uint32_t b) {
    struct engine *e = r->sc->e;
    struct disk *disk = segment_column_disk(&e->table, r->s, column);
    size_t bytes = (size_t)r->height * BLOCK_BYTES, at = (size_t)b * BLOCK_BYTES;
    const uint8_t *want = r->want->data + (column % r->per_copy) * bytes + at;
    if (((r->came >> column) & 1) != 0) {
        bool same = memcmp(r->have->data + column * bytes + at, want, BLOCK_BYTES) == 0;
        return same ? BLOCK_RIGHT : BLOCK_WRONG;
    }
    if (disk == NULL) {
        return BLOCK_UNKNOWN;
    }
    struct buf *buf = buf_new(BLOCK_BYTES);
    uint64_t place = segment_column_block(&e->table, r->s, column, r->offset + b) * BLOCK_BYTES;
    int err = read_one(r->sc, disk, place, buf);
    bool same = err == OK && memcmp(buf->data, want, BLOCK_BYTES) == 0;
    buf_unref(buf);
    return same ? BLOCK_RIGHT : err == OK || err == ERR_IO ? BLOCK_WRONG : BLOCK_UNKNOWN;
}

static void column_correct(struct row_scan *r, uint32_t column) {
    for (uint32_t b = 0; b < r->height; b++) {
        enum block_state state = is_known(r, column, b) ? block_look(r, column, b) : BLOCK_RIGHT;
        if (state == BLOCK_WRONG) {
            block_correct(r, column, b);
        } else if (state == BLOCK_UNKNOWN) { /* a disk that hangs is not asked for every block */
            r->sc->st.skipped_columns++;
            return;
        }
    }
}

static void scan_correct(struct row_scan *r) {
    for (uint32_t c = 0; c < shape_columns(r->s->shape); c++) {
        bool parity = c % r->per_copy >= r->s->shape.data;
        uint32_t looked_at = r->came | (SABOTAGE(scrub_skips_unread) ? 0 : r->unclear);
        if (((looked_at >> c) & 1) != 0 && !(parity && SABOTAGE(scrub_skips_parity))) {
            column_correct(r, c);
        }
    }
}

static void scan_vbas(struct row_scan *r) {
    uint32_t i = 0;
    for (uint32_t k = 0; k < r->h->runs; k++) {
        const struct row_run_phys *run = &row_header_runs(r->h)[k];
        for (uint32_t n = 0; n < run->count; n++) {
            r->vba[i++] = run->vba + n;
        }
    }
}

static void scrub_row(struct scrub *sc, struct segment *s, uint32_t offset, uint32_t height) {
    struct engine *e = sc->e;
    struct row_scan *r = MEM_NEW(struct row_scan);
    *r = (struct row_scan){.sc = sc,
                           .s = s,
                           .offset = offset,
                           .height = height,
                           .per_copy = (uint32_t)s->shape.data + s->shape.parity};
    int err = row_read_header(&e->table, s, offset, height, &e->row_counters, &r->header);
    if (err != OK) {
        sc->st.headers_lost++;
    } else {
        r->h = (const struct row_phys *)(const void *)r->header->data;
        /* Nothing vouches for what lies behind it, where every column has zeros. */
        size_t used = r->h->header.length_bytes, room = (size_t)r->h->header_blocks * BLOCK_BYTES;
        memset(r->header->data + used, 0, room - used);
        scan_vbas(r);
        scan_read(r);
        scan_know(r);
        scan_correct(r);
        buf_unref(r->have);
        buf_unref(r->want);
        buf_unref(r->header);
        mem_free(r->unknown);
    }
    sc->st.rows_done++;
    mem_free(r);
}

/* ---- all of them ---- */

struct row_at {
    uint32_t offset, height;
};

static int compare_offset(const void *a, const void *b) {
    const struct row_at *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static uint32_t rows_of(const struct segment *s, struct row_at **ret_rows) {
    uint32_t room = 0, count = 0, unique = 0;
    LIST_FOR_EACH(link, &s->runs) {
        room++;
    }
    struct row_at *rows = MEM_NEW_ARRAY(struct row_at, room + 1);
    LIST_FOR_EACH(link, &s->runs) {
        const struct map_run *run = CONTAINER_OF(link, struct map_run, in_segment);
        if (run->live_count > 0) {
            rows[count++] = (struct row_at){run->offset, run->height};
        }
    }
    qsort(rows, count, sizeof(*rows), compare_offset);
    for (uint32_t i = 0; i < count; i++) {
        if (unique == 0 || rows[unique - 1].offset != rows[i].offset) {
            rows[unique++] = rows[i];
        }
    }
    *ret_rows = rows;
    return unique;
}

static bool goes_on(const struct scrub *sc) {
    return !sc->stop && sc->e->state == ENGINE_RUNNING;
}

static void pace(struct scrub *sc, uint64_t began_ns) {
    uint64_t now = env_now_ns(sc->e->env);
    uint64_t sleep = MIN((now - began_ns) * (100 - SHARE_PCT) / SHARE_PCT, SLEEP_MOST_NS);
    uint64_t left = sc->st.rows_total - MIN(sc->st.rows_total, sc->st.rows_done);
    sc->st.remaining_ns =
        sc->st.rows_done == 0 ? 0 : (now - sc->began_ns) / sc->st.rows_done * left;
    (void)fiber_queue_wait_until(&sc->queue, now + MAX(sleep, (uint64_t)NS_PER_US));
}

static void scrub_segment(struct scrub *sc, struct segment *s) {
    struct row_at *rows;
    uint32_t count = rows_of(s, &rows);
    s->pins++;
    for (uint32_t i = 0; i < count && goes_on(sc); i++) {
        uint64_t began = env_now_ns(sc->e->env);
        scrub_row(sc, s, rows[i].offset, rows[i].height);
        pace(sc, began);
    }
    s->pins--;
    mem_free(rows);
}

/* ---- metadata ---- */

struct meta_scan {
    struct scrub *sc;
    uint64_t checkpoint; /* whose pointers these are */
    bool over;           /* another has committed */
};

static void copy_correct(struct scrub *sc, struct segment *s, uint32_t c, uint32_t offset,
                         struct buf *good) {
    struct engine *e = sc->e;
    struct disk *disk = segment_column_disk(&e->table, s, c);
    uint64_t at = segment_column_block(&e->table, s, c, offset) * BLOCK_BYTES;
    uint32_t member = s->column[c].disk;
    if (disk == NULL) {
        return;
    }
    sc->st.wrong++;
    if (disk_write(disk, at, good->bytes, good, 0, false) == OK) {
        sc->st.repaired++;
        sc->st.repaired_on[member]++;
        e->row_counters.repairs++;
        disk_note(disk, DISK_ERROR_REPAIRED, at, good->bytes, "metadata rewritten by the scrub");
    } else if (pool_member_in_sync(e->pool, member)) {
        pool_expel(e->pool, member, "a repair could not be written");
    }
}

/* One object on all its copies: bad ones are written over from one that verifies. */
static void object_scrub(struct meta_scan *m, struct segment *s, uint32_t offset, uint32_t bytes,
                         uint64_t seed, uint32_t crc) {
    struct engine *e = m->sc->e;
    struct buf *good = NULL;
    uint32_t bad = 0, blocks = (uint32_t)div_round_up(bytes, BLOCK_BYTES);
    m->over |= e->checkpoints != m->checkpoint || e->checkpoint_running;
    if (m->over || s == NULL || s->kind != SEGMENT_META) {
        return;
    }
    s->pins++; /* what it points to is not used again before the pin has gone */
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        struct disk *disk = segment_column_disk(&e->table, s, c);
        if (disk == NULL) {
            m->sc->st.skipped_columns++;
            continue;
        }
        struct buf *buf = buf_new((size_t)blocks * BLOCK_BYTES);
        int err =
            read_one(m->sc, disk, segment_column_block(&e->table, s, c, offset) * BLOCK_BYTES, buf);
        bool right = err == OK && crc32c_seeded(seed, buf->data, bytes) == crc;
        bool unknown = err != OK && err != ERR_IO;
        bad |= !right && !unknown ? 1u << c : 0;
        m->sc->st.skipped_columns += unknown;
        if (right && good == NULL) {
            good = buf;
        } else {
            buf_unref(buf);
        }
    }
    for (uint32_t c = 0; c < shape_columns(s->shape) && good != NULL; c++) {
        if (((bad >> c) & 1) != 0) {
            copy_correct(m->sc, s, c, offset, good);
        }
    }
    m->sc->st.meta_lost += good == NULL && bad != 0;
    buf_unref(good);
    s->pins--;
}

static void node_scrub(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct meta_scan *m = ctx;
    struct engine *e = m->sc->e;
    (void)height;
    object_scrub(m, segment_get(&e->table, (uint32_t)(ptr->address >> 32)), (uint32_t)ptr->address,
                 e->map_store.node_bytes, ptr->address, ptr->crc);
}

static void node_is_bad(void *ctx, const struct tree_ptr_phys *ptr, int error) {
    struct meta_scan *m = ctx;
    (void)ptr;
    (void)error;
    m->sc->st.meta_lost += !m->over;
}

static void direct_scrub(struct meta_scan *m, const struct direct_phys *d) {
    if (d->length_bytes != 0) {
        object_scrub(m, segment_get(&m->sc->e->table, d->segment), d->offset_blocks,
                     d->length_bytes, d->checkpoint, d->crc);
    }
}

/* False: checkpoints came in between each time. */
static bool scrub_metadata(struct scrub *sc) {
    struct engine *e = sc->e;
    for (int attempt = 0; attempt < META_ATTEMPTS && goes_on(sc); attempt++) {
        while (e->checkpoint_running && goes_on(sc)) {
            (void)fiber_queue_wait_until(&sc->queue, env_now_ns(e->env) + 100 * NS_PER_MS);
        }
        struct meta_scan m = {.sc = sc, .checkpoint = e->checkpoints};
        struct tree_walk walk = {.node = node_scrub, .bad = node_is_bad, .ctx = &m};
        direct_scrub(&m, &e->roots.directory);
        direct_scrub(&m, &e->roots.catalog);
        for (uint32_t p = 0; p < e->table.page_count && p < e->page_room && !m.over; p++) {
            direct_scrub(&m, &e->pages[p]);
        }
        int err = m.over ? OK : tree_walk(&e->map_tree, &walk);
        (void)err; /* each bad node has been counted */
        if (!m.over) {
            return true;
        }
    }
    return false;
}

/* ---- its life ---- */

static void run(struct scrub *sc) {
    struct engine *e = sc->e;
    uint64_t ended = sc->st.ended_wall_ns;
    sc->stop = sc->wanted = false;
    sc->began_ns = env_now_ns(e->env);
    sc->st = (struct engine_scrub_status){
        .running = true, .started_wall_ns = env_wall_ns(e->env), .ended_wall_ns = ended};
    int known = engine_checkpoint(e); /* rows that only the log knew are in the map now */
    (void)known;                      /* without room for one they are left out */
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        if (e->table.slots[i] != NULL && e->table.slots[i]->kind == SEGMENT_DATA) {
            struct row_at *rows;
            sc->st.rows_total += rows_of(e->table.slots[i], &rows);
            mem_free(rows);
        }
    }
    bool metadata = scrub_metadata(sc);
    for (uint32_t i = 0; i < e->table.slot_count && goes_on(sc); i++) {
        struct segment *s = e->table.slots[i];
        if (s != NULL && s->kind == SEGMENT_DATA) {
            scrub_segment(sc, s);
        }
    }
    sc->st.skipped_columns += !metadata && !scrub_metadata(sc);
    sc->st.running = false;
    sc->st.complete = goes_on(sc);
    sc->st.remaining_ns = 0;
    if (sc->st.complete) {
        struct errmsg ignored = {0};
        sc->st.ended_wall_ns = env_wall_ns(e->env);
        sc->lost_count = sc->st.lost_count;
        memcpy(sc->lost, sc->st.lost, sizeof(sc->lost));
        int err = record_write(sc, &ignored); /* else it is due again after the next import */
        (void)err;
    }
}

static bool is_due(struct scrub *sc) {
    uint64_t now = env_wall_ns(sc->e->env), last = sc->st.ended_wall_ns;
    return sc->days > 0 && (now < last || now - last >= sc->days * DAY_NS);
}

static void scrub_loop(void *arg) {
    struct scrub *sc = arg;
    while (sc->e->state == ENGINE_RUNNING) {
        if (sc->wanted || is_due(sc)) {
            run(sc);
        } else {
            (void)fiber_queue_wait_until(&sc->queue, env_now_ns(sc->e->env) + LOOK_NS);
        }
    }
    sc->gone = true;
    fiber_queue_wake_all(&sc->e->idle);
}

void scrub_begin(struct scrub *sc) {
    engine_config_each(sc->e, SCRUB_RECORD_KIND, record_take, sc);
    if (sc->st.ended_wall_ns == 0) { /* a pool that never was: from now on */
        sc->st.ended_wall_ns = env_wall_ns(sc->e->env);
    }
    sc->gone = false;
    fiber_start(sc->e->env, scrub_loop, sc);
}

struct scrub *scrub_new(struct engine *e) {
    struct scrub *sc = MEM_NEW(struct scrub);
    sc->e = e;
    sc->gone = true;
    sc->days = DAYS_DEFAULT;
    fiber_queue_init(&sc->queue);
    return sc;
}

void scrub_free(struct scrub *sc) {
    mem_free(sc);
}

bool scrub_is_gone(const struct scrub *sc) {
    return sc->gone;
}

void scrub_wake(struct scrub *sc) {
    fiber_queue_wake_all(&sc->queue);
}

int engine_scrub(struct engine *e, bool stop, struct errmsg *reterr) {
    struct scrub *sc = e->scrub;
    if (stop ? !sc->st.running : sc->st.running || sc->wanted) {
        return errmsg_set(reterr, stop ? ERR_NOT_FOUND : ERR_BUSY, "pool %s is %s being scrubbed",
                          e->pool->super.name, stop ? "not" : "already");
    }
    sc->stop = stop;
    sc->wanted = !stop;
    sc->st.complete = false;
    scrub_wake(sc);
    return OK;
}

int engine_scrub_schedule(struct engine *e, uint32_t days, struct errmsg *reterr) {
    uint32_t before = e->scrub->days;
    e->scrub->days = days;
    int err = record_write(e->scrub, reterr);
    e->scrub->days = err == OK ? days : before;
    scrub_wake(e->scrub);
    return err;
}

void engine_scrub_status(const struct engine *e, struct engine_scrub_status *ret_status) {
    const struct scrub *sc = e->scrub;
    *ret_status = sc->st;
    ret_status->days = sc->days;
    ret_status->running = sc->st.running || sc->wanted;
    if (!sc->st.running) {
        ret_status->lost_count = sc->lost_count;
        memcpy(ret_status->lost, sc->lost, sizeof(sc->lost));
    }
}
