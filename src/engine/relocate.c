// SPDX-License-Identifier: MPL-2.0
/* Relocating: a volume's blocks are read and written anew, in the order of the volume. There are
 * two reasons: random overwrites have scattered them (*reorder*), or the volume has another profile
 * now and they still lie in segments of the old one.
 *
 * A fiber goes through the volume in windows. It collects what must move from the tree (stretches
 * that lie together stay where they are), sorts it by where it lies, and reads it in that order,
 * several pieces at once, in whatever leisure requests leave. A window holds as much as memory
 * allows: after random overwrites each checkpoint has left a sorted run on the disks, and the
 * larger the window, the longer the pieces that it finds in each of them; reading is a merge of all
 * these runs. When all of it is in memory, the next checkpoint takes it like a second frozen layer
 * that lies below the real one: it is written to the cold stream with new vbas, and replaces what
 * the tree has for these blocks (tree_replace()); the frozen layer is merged on top. So a crash
 * finds all of a window or nothing.
 *
 * What hosts write meanwhile counts, not what was read before: whatever is frozen while a window is
 * being read is marked as changed, and left out. A block whose old place cannot be read stays where
 * it is; so does everything of a damaged volume.
 *
 * The old places lose their live bits only after the cleaner has run: readers who still use the old
 * tree must find them (the cleaner forgets what is not live).
 *
 * How far a volume has come is in the catalog, so a pass goes on after an import. A profile changes
 * for new data at once. When a pass has come to the end, and began after the last row of the old
 * profile was in the tree, the runs are merged into the base, nodes that lie in segments of the old
 * profile are written anew, and the volume is done. Blocks that could not be moved keep it from
 * being done; then the pass is repeated later. */
#include "engine/relocate.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "segment/room.h"

enum {
    STRETCH_BLOCKS = 64, /* what lies together like that is not scattered */
    GAP_BLOCKS = 16,     /* … and what lies between two blocks is read, too */
    READERS_MAX = 96,
    READERS_BUSY = 2,     /* … that do not wait for ever while there are requests */
    RAW_BLOCKS = 1 << 18, /* looked at in one go */
    LOOKS_MAX = 8,
    SAMPLES = 32,
    SAMPLE_BLOCKS = 512,
    SAMPLE_PART = 8, /* so much of it may change before it is looked at again */
};

#define WINDOW_LEAST_BYTES ((uint64_t)1 << 20)
#define ROOM_WAIT_NS (5 * NS_PER_S)
#define YIELD_NS (5 * NS_PER_MS)
#define YIELDS_MAX 4
#define AGAIN_NS (600 * NS_PER_S)

bool volume_is_relocating(const struct volume *v) {
    uint32_t never = VOLUME_FLAG_DELETING | VOLUME_FLAG_DAMAGED | VOLUME_FLAG_BROKEN;
    bool wanted = v->phys.former != 0 || (v->phys.flags & VOLUME_FLAG_REORDER) != 0;
    return wanted && (v->phys.flags & never) == 0;
}

uint64_t volume_share(const struct engine *e, const struct volume *v) {
    uint64_t share = e->share[v->phys.profile];
    for (int p = 0; p < PROFILE_COUNT; p++) {
        if ((v->phys.former >> p & 1) != 0) {
            share = MAX(share, e->share[p]);
        }
    }
    return share;
}

/* ---- collecting ---- */

struct collect {
    struct engine *e;
    struct relocation *r;
    uint64_t wanted, seen;
    uint64_t stretch;      /* index of its first item */
    uint64_t stretch_long; /* blocks that make a stretch */
    uint64_t last_vba, last_key;
    bool reorder;
};

/* The stretch that ends here stays if it is long, and of the right profile. */
static void stretch_end(struct collect *c) {
    struct relocation *r = c->r;
    bool stays = !c->reorder || r->count - c->stretch >= c->stretch_long;
    uint64_t keep = c->stretch;
    for (uint64_t i = c->stretch; i < r->count; i++) {
        const struct map_run *run = map_find(&c->e->map, r->item[i].old.vba >> RUN_SHIFT);
        bool right = run != NULL && run->segment->profile == (enum profile)r->volume->phys.profile;
        if (!stays || !right) {
            r->item[keep++] = r->item[i];
        }
    }
    r->count = keep;
    c->stretch = keep;
}

static int collect_visit(void *ctx, uint64_t key, const void *value) {
    struct collect *c = ctx;
    struct relocation *r = c->r;
    const struct tree_extent *x = value;
    bool breaks = x->vba != c->last_vba + 1;
    bool enough = r->count >= c->wanted + c->stretch_long; /* however long it is */
    if (r->count > c->stretch && (breaks || enough)) {
        stretch_end(c);
    }
    if (c->stretch >= c->wanted || c->seen >= RAW_BLOCKS) {
        return ERR_LIMIT; /* enough: the window ends in front of this one */
    }
    if (r->count == r->room) {
        r->room = r->room * 2 + 256;
        r->item = mem_realloc(r->item, r->room * sizeof(*r->item));
    }
    r->item[r->count++] = (struct relocated){.key = key, .old = *x};
    c->seen++;
    c->last_vba = x->vba;
    c->last_key = key;
    return OK;
}

/* From the committed tree; what a checkpoint that is under way has frozen is marked. ERR_AGAIN: one
 * has committed meanwhile, so that what was found may be out of date without being marked: it may
 * still have to end, as it waits for disks once more after that. */
static int collect_once(struct engine *e, struct relocation *r, uint64_t wanted) {
    struct volume *v = r->volume;
    uint64_t ended = e->checkpoint_ended, blocks = v->phys.size_bytes / BLOCK_BYTES;
    struct tree_root_phys root = v->tree.root;
    struct segment fresh = {.shape = profile_shape((enum profile)v->phys.profile,
                                                   MAX(1u, pool_storing_count(e->pool)))};
    struct collect c = {.e = e, .r = r, .wanted = wanted};
    c.reorder = (v->phys.flags & VOLUME_FLAG_REORDER) != 0;
    c.stretch_long =
        MIN((uint64_t)STRETCH_BLOCKS, MAX(2u, row_capacity(&e->table, &fresh, true, true) / 2));
    r->count = 0;
    int err = r->start < blocks
                  ? tree_range(&v->tree, r->start, blocks - r->start, collect_visit, &c)
                  : OK;
    r->last = err == OK;
    if (err == OK || err == ERR_LIMIT) {
        r->end = r->last ? blocks : c.last_key + 1;
        stretch_end(&c);
        err = OK;
    }
    if (e->checkpoint_ended != ended || memcmp(&root, &v->tree.root, sizeof(root)) != 0) {
        return ERR_AGAIN;
    }
    return err == ERR_NOT_FOUND ? ERR_AGAIN : err;
}

/* ---- what is written meanwhile ---- */

static uint64_t item_at(const struct relocation *r, uint64_t key) {
    uint64_t lo = 0, hi = r->count;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        *(r->item[mid].key < key ? &lo : &hi) = r->item[mid].key < key ? mid + 1 : mid;
    }
    return lo;
}

static void mark_changed(struct relocation *r, const struct overlay *o) {
    if (r->count == 0 || overlay_is_empty(o) || SABOTAGE(relocate_overtakes)) {
        return;
    }
    uint64_t at = r->item[0].key, last = r->item[r->count - 1].key;
    while (at <= last) {
        const struct overlay_extent *x = overlay_find(o, at);
        if (x == NULL || x->start > last) {
            break;
        }
        uint64_t end = x->start + x->count;
        for (uint64_t i = item_at(r, x->start); i < r->count && r->item[i].key < end; i++) {
            r->item[i].changed = true;
        }
        at = end;
    }
}

/* Chunks of each disk that are needed to write the window. */
static uint32_t chunks_for(const struct engine *e, enum profile p, uint64_t blocks) {
    struct shape shape = segment_shape(&e->table, p, 0, profile_losses(p));
    uint64_t each = (uint64_t)e->pool->super.geometry.chunk_blocks * shape.data *
                    e->table.density[MAX(shape.data, 1)] / 1024;
    return (uint32_t)(blocks / MAX(each, (uint64_t)1) + 2);
}

uint32_t relocate_keep_free(const struct engine *e) {
    return MAX(cleaner_asks(e), e->ref_keep_free) + 1;
}

static bool has_room(const struct engine *e, const struct relocation *r) {
    enum profile p = (enum profile)r->volume->phys.profile;
    struct segment_room room = segment_room_free(&e->table, relocate_keep_free(e));
    return segment_room_take(&room, p, r->count + 1) == r->count + 1;
}

void relocate_freeze(struct engine *e) {
    struct relocation *r = e->relocation;
    if (r == NULL) {
        return;
    }
    mark_changed(r, &r->volume->frozen);
    r->taken = r->ready && !r->done && volume_is_relocating(r->volume) && !e->short_of_space &&
               has_room(e, r);
    if (r->taken) {
        e->relocating_chunks = chunks_for(e, (enum profile)r->volume->phys.profile, r->count);
    }
}

/* ---- the merge ---- */

struct replacing {
    struct engine *e;
    uint64_t gone;
};

static void replaced(void *ctx, uint64_t key, const void *value) {
    struct replacing *p = ctx;
    struct engine *e = p->e;
    (void)key;
    if (e->relocated_count == e->relocated_room) {
        e->relocated_room = e->relocated_room * 2 + 1024;
        e->relocated = mem_realloc(e->relocated, e->relocated_room * sizeof(*e->relocated));
    }
    e->relocated[e->relocated_count++] = ((const struct tree_extent *)value)->vba;
    p->gone++;
}

static int window_write(struct engine *e, struct relocation *r, struct tree_put *puts,
                        uint64_t *ret_count) {
    struct volume *v = r->volume;
    struct builder *b = &e->relocate_builders[v->phys.profile];
    for (uint64_t i = 0; i < r->count; i++) {
        const struct relocated *x = &r->item[i];
        if (x->changed || x->buf == NULL) {
            continue;
        }
        struct tree_put *put = &puts[(*ret_count)++];
        *put = (struct tree_put){.key = x->key};
        int err = builder_add(e, b, x->buf->data + (size_t)x->at * BLOCK_BYTES, x->buf, v->phys.id,
                              x->key, 1, &put->value.vba, &put->value.crc);
        if (err != OK) {
            return err;
        }
        merge_note_made(e, put->value.vba);
        (void)fiber_pace();
    }
    return OK;
}

int relocate_merge(struct volume *v, struct tree_root_phys *root) {
    struct engine *e = v->engine;
    struct relocation *r = e->relocation;
    if (r == NULL || !r->taken || r->volume != v) {
        return OK;
    }
    struct tree tree = v->tree;
    tree.root = *root;
    struct replacing p = {.e = e};
    struct tree_put *puts = MEM_NEW_ARRAY(struct tree_put, r->count + 1);
    struct merge_mark mark = merge_begin(e);
    uint64_t count = 0, freed = e->relocated_count;
    int err = window_write(e, r, puts, &count);
    if (err == OK) {
        err = tree_replace(&tree, puts, count, replaced, &p, root);
    }
    mem_free(puts);
    if (err != OK) {
        e->relocated_count = freed;
        merge_undo(e, &mark);
        /* What is lost is for merges to judge, who may not need it; and what finds no room, because
         * a disk was lost meanwhile, waits: nothing here is worth a failed checkpoint. */
        r->failed = error_is_loss(err) || err == ERR_NO_SPACE;
        return r->failed ? OK : err;
    }
    v->phys.allocated_blocks = v->phys.allocated_blocks + count - p.gone;
    if (r->sets == v->sets) { /* else it begins anew */
        v->phys.relocated_to = r->end;
    }
    v->puts += count;
    e->relocated_blocks += count;
    r->done = true;
    return OK;
}

void relocate_apply_frees(struct engine *e) {
    for (uint64_t i = 0; i < e->relocated_count; i++) {
        map_clear_live(&e->map, e->relocated[i]);
    }
    e->relocated_count = 0;
    e->relocating_chunks = 0;
}

/* ---- reading ---- */

struct piece { /* items of one run, near each other */
    struct relocated **item;
    uint32_t count;
};

struct reading {
    struct engine *e;
    struct relocation *r;
    struct relocated **order; /* as they lie */
    uint64_t at;
    uint32_t readers;
    struct fiber_group group;
};

struct sorted {
    uint64_t segment_offset, index;
    struct relocated *item;
};

static int compare_sorted(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    if (x->segment_offset != y->segment_offset) {
        return x->segment_offset < y->segment_offset ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

static struct relocated **order_by_place(struct engine *e, struct relocation *r) {
    struct sorted *s = MEM_NEW_ARRAY(struct sorted, r->count + 1);
    struct relocated **order = MEM_NEW_ARRAY(struct relocated *, r->count + 1);
    for (uint64_t i = 0; i < r->count; i++) {
        struct row_place place = {0};
        bool there = map_lookup(&e->map, r->item[i].old.vba, &place);
        s[i] = (struct sorted){.item = &r->item[i], .index = place.index};
        s[i].segment_offset =
            there ? (uint64_t)place.segment->slot << 32 | place.offset : UINT64_MAX;
        (void)fiber_pace();
    }
    qsort(s, r->count, sizeof(*s), compare_sorted);
    for (uint64_t i = 0; i < r->count; i++) {
        order[i] = s[i].item;
    }
    mem_free(s);
    return order;
}

/* Block by block, from redundancy where it must be; what cannot be had stays where it is. */
static void piece_rescue(struct engine *e, const struct piece *p, struct buf **data) {
    for (uint32_t i = 0; i < p->count; i++) {
        struct relocated *x = p->item[i];
        struct row_check check = {.vba = x->old.vba, .crc = x->old.crc};
        struct row_place place;
        if (map_lookup(&e->map, x->old.vba, &place) &&
            row_read(&e->table, &place, 1, &check, data, (size_t)i * BLOCK_BYTES, &e->row_counters,
                     NULL) == OK) {
            x->at = i;
        } else {
            x->changed = true;
            e->unrelocated_blocks++;
        }
    }
}

static bool piece_read(struct engine *e, const struct piece *p, struct buf *data) {
    struct row_place first, last;
    if (!map_lookup(&e->map, p->item[0]->old.vba, &first) ||
        !map_lookup(&e->map, p->item[p->count - 1]->old.vba, &last)) {
        return false;
    }
    uint32_t span = last.index - first.index + 1, index[RUN_BLOCKS];
    for (uint32_t i = 0; i < p->count; i++) {
        struct row_place place;
        if (!map_lookup(&e->map, p->item[i]->old.vba, &place)) {
            return false;
        }
        index[i] = place.index - first.index;
    }
    struct buf *all = buf_new((size_t)span * BLOCK_BYTES);
    bool good = row_read_unverified(&e->table, &first, span, &all, 0, &e->row_counters) == OK;
    for (uint32_t i = 0; i < p->count && good; i++) {
        const struct tree_extent *x = &p->item[i]->old;
        good = crc32c_seeded_copy(x->vba, data->data + (size_t)i * BLOCK_BYTES,
                                  all->data + (size_t)index[i] * BLOCK_BYTES, BLOCK_BYTES,
                                  false) == x->crc;
        p->item[i]->at = i;
    }
    buf_unref(all);
    return good;
}

static void piece_take(struct engine *e, const struct piece *p) {
    struct buf *data = buf_new((size_t)p->count * BLOCK_BYTES);
    if (!piece_read(e, p, data)) {
        piece_rescue(e, p, &data);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->item[i]->buf = buf_ref(data);
    }
    buf_unref(data);
}

/* Requests come first: readers wait for a moment without them, a few of them not for ever. False:
 * nobody wants the window any more. */
static bool give_way(const struct engine *e, const struct relocation *r, bool patient) {
    for (int i = 0; (patient || i < YIELDS_MAX) && e->running > 0; i++) {
        if (e->state != ENGINE_RUNNING || !volume_is_relocating(r->volume)) {
            break;
        }
        fiber_sleep_until(env_now_ns(e->env) + YIELD_NS);
    }
    return e->state == ENGINE_RUNNING && volume_is_relocating(r->volume);
}

static void reader_fiber(void *arg) {
    struct reading *rd = arg;
    bool patient = rd->readers++ >= READERS_BUSY;
    while (give_way(rd->e, rd->r, patient) && rd->at < rd->r->count) {
        struct piece p = {.item = &rd->order[rd->at], .count = 1};
        while (p.count < RUN_BLOCKS && rd->at + p.count < rd->r->count) {
            uint64_t a = p.item[p.count - 1]->old.vba, b = p.item[p.count]->old.vba;
            if (a >> RUN_SHIFT != b >> RUN_SHIFT || b <= a || b - a > GAP_BLOCKS) {
                break;
            }
            p.count++;
        }
        rd->at += p.count;
        piece_take(rd->e, &p);
        (void)fiber_pace();
    }
    fiber_group_done(&rd->group, OK);
}

static void window_read(struct engine *e, struct relocation *r) {
    struct reading rd = {.e = e, .r = r, .order = order_by_place(e, r)};
    for (int i = 0; i < READERS_MAX; i++) {
        fiber_group_add(&rd.group);
        fiber_start(e->env, reader_fiber, &rd);
    }
    int err = fiber_group_wait(&rd.group);
    ASSERT_EQ(err, OK);
    mem_free(rd.order);
}

/* ---- a window ---- */

static void relocation_drop(struct engine *e) {
    struct relocation *r = e->relocation;
    e->relocation = NULL;
    for (uint64_t i = 0; i < r->count; i++) {
        buf_unref(r->item[i].buf);
    }
    mem_free(r->item);
    r->volume->users--;
    mem_free(r);
}

static int window_collect(struct engine *e, struct relocation *r) {
    uint64_t bytes = MAX(e->limits.reorder_bytes >> e->relocate_shrink, WINDOW_LEAST_BYTES);
    int err = ERR_AGAIN;
    for (int i = 0; err == ERR_AGAIN && i < LOOKS_MAX; i++) {
        err = collect_once(e, r, bytes / BLOCK_BYTES);
    }
    if (err == OK) {
        mark_changed(r, &r->volume->frozen);
    }
    return err;
}

/* Waits until a checkpoint has taken the window; false: there is no room for it, or the end has
 * come. */
static bool window_commit(struct engine *e, struct relocation *r) {
    r->ready = true;
    while (e->state == ENGINE_RUNNING && !r->done && volume_is_relocating(r->volume)) {
        uint64_t ended = e->checkpoint_ended;
        if (r->failed || !has_room(e, r)) {
            break;
        }
        if (!r->taken) {
            checkpoint_want(e);
        }
        fiber_queue_wait(&e->relocate_work);
        if (e->postponed && e->checkpoint_ended == ended) {
            break;
        }
    }
    /* The next window is not read before this one is committed: disks that seek between reading and
     * writing get less done than disks that do one after the other. */
    while (r->taken && e->checkpoint_running) {
        fiber_queue_wait(&e->relocate_work);
    }
    return r->done;
}

/* The pass has come to its end. */
static void pass_end(struct engine *e, struct volume *v) {
    bool all = e->unrelocated_blocks == v->unrelocated_before;
    v->phys.relocated_to = 0;
    v->phys.flags &= (uint16_t)~VOLUME_FLAG_REORDER;
    e->catalog_dirty = true;
    if (v->phys.former != 0 && all && v->pass_from > v->profile_set_at) {
        v->settles = true; /* the next checkpoint sees to what is left: nodes, runs */
        checkpoint_want(e);
    } else if (!all) {
        v->relocate_at_ns = env_now_ns(e->env) + AGAIN_NS;
    }
    v->pass_from = 0;
}

/* A smaller one may find room; the smallest waits for it. */
static void window_shrink(struct engine *e, struct volume *v) {
    bool least = e->limits.reorder_bytes >> e->relocate_shrink <= WINDOW_LEAST_BYTES;
    e->relocate_shrink += !least;
    v->relocate_at_ns = env_now_ns(e->env) + (least ? ROOM_WAIT_NS : 0);
}

/* The window is done, or there is nothing to do in it. */
static bool window_run(struct engine *e, struct relocation *r) {
    struct volume *v = r->volume;
    int err = window_collect(e, r);
    if (err != OK) { /* a node is lost, or checkpoints come too fast for it */
        v->relocate_at_ns = env_now_ns(e->env) + (err == ERR_AGAIN ? ROOM_WAIT_NS : AGAIN_NS);
        return false;
    }
    if (r->count == 0 && r->sets == v->sets) {
        v->phys.relocated_to = r->end;
    }
    if (r->count == 0) {
        return true;
    }
    bool room = has_room(e, r);
    if (room) {
        window_read(e, r);
        room = window_commit(e, r);
    }
    if (r->failed) {
        v->relocate_at_ns = env_now_ns(e->env) + AGAIN_NS;
        return false;
    }
    if (!room) {
        window_shrink(e, v);
        return false;
    }
    e->relocate_shrink = 0;
    return true;
}

static void volume_run(struct engine *e, struct volume *v) {
    struct relocation *r = MEM_NEW(struct relocation);
    r->volume = v;
    r->start = v->phys.relocated_to;
    r->sets = v->sets;
    v->users++; /* it is not freed meanwhile */
    if (r->start == 0) {
        v->pass_from = e->checkpoint_ended;
        v->unrelocated_before = e->unrelocated_blocks;
    }
    e->relocation = r;
    if (window_run(e, r) && r->last && r->sets == v->sets && volume_is_relocating(v)) {
        pass_end(e, v);
    }
    relocation_drop(e);
}

/* ---- how scattered a volume is ---- */

struct sampling {
    uint64_t blocks, extents, last_vba, end;
};

static int sample_visit(void *ctx, uint64_t key, const void *value) {
    struct sampling *s = ctx;
    uint64_t vba = ((const struct tree_extent *)value)->vba;
    (void)key;
    s->extents += vba != s->last_vba + 1;
    s->blocks++;
    s->last_vba = vba;
    return s->blocks < s->end ? OK : ERR_LIMIT;
}

static bool sample_is_due(const struct volume *v) {
    bool never = !v->sampled && v->phys.extents_per_gib == 0 && v->phys.allocated_blocks > 0;
    return (v->phys.flags & (VOLUME_FLAG_DELETING | VOLUME_FLAG_BROKEN)) == 0 &&
           (never || v->puts * SAMPLE_PART > v->phys.allocated_blocks);
}

/* Looks at some stretches all over it. */
static void volume_sample(struct volume *v) {
    uint64_t blocks = v->phys.size_bytes / BLOCK_BYTES;
    struct sampling s = {0};
    v->users++;
    v->sampled = true;
    v->puts = 0;
    for (uint32_t i = 0; i < SAMPLES && v->engine->state == ENGINE_RUNNING; i++) {
        uint64_t from = blocks / SAMPLES * i;
        s.end = s.blocks + SAMPLE_BLOCKS;
        int err = tree_range(&v->tree, from, blocks - from, sample_visit, &s);
        if (err != OK && err != ERR_LIMIT) {
            break; /* lost, or overtaken by a checkpoint: what was seen will do */
        }
    }
    if (s.blocks > 0) {
        uint64_t gib = (1ull << 30) / BLOCK_BYTES;
        v->phys.extents_per_gib = (uint32_t)MAX(s.extents * gib / s.blocks, (uint64_t)1);
    }
    v->users--;
}

/* ---- which volume ---- */

/* The tree knows all that was written in the former profile. */
static bool pass_would_count(const struct engine *e, const struct volume *v) {
    return v->phys.former == 0 || e->checkpoint_ended > v->profile_set_at;
}

static struct volume *volume_choose(struct engine *e, uint64_t *ret_look_ns) {
    uint64_t now = env_now_ns(e->env);
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (!volume_is_relocating(v) || v->settles) {
            continue;
        }
        if (!pass_would_count(e, v)) {
            checkpoint_want(e); /* its end wakes us */
            continue;
        }
        if (now >= v->relocate_at_ns) {
            return v;
        }
        *ret_look_ns = MIN(*ret_look_ns, v->relocate_at_ns);
    }
    return NULL;
}

static struct volume *sample_choose(const struct engine *e) {
    LIST_FOR_EACH(link, &e->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        if (sample_is_due(v)) {
            return v;
        }
    }
    return NULL;
}

void relocate_loop(void *arg) {
    struct engine *e = arg;
    while (e->state == ENGINE_RUNNING) {
        uint64_t look_ns = UINT64_MAX;
        struct volume *v = volume_choose(e, &look_ns);
        struct volume *unknown = sample_choose(e);
        if (unknown != NULL) {
            volume_sample(unknown);
        } else if (v != NULL) {
            volume_run(e, v);
        } else if (look_ns == UINT64_MAX) {
            fiber_queue_wait(&e->relocate_work);
        } else {
            (void)fiber_queue_wait_until(&e->relocate_work, look_ns);
        }
        (void)fiber_pace();
    }
    e->relocate_fiber_gone = true;
    fiber_queue_wake_all(&e->idle);
}
