// SPDX-License-Identifier: MPL-2.0
/* Merging one volume's frozen layer into its tree, and what becomes of a volume whose tree is
 * damaged.
 *
 * A merge takes effect as a whole or not at all. While it goes, live bits of what it takes out are
 * only marked to be cleared (map_free_later()), what it wrote or took from REFs is noted (`made`),
 * and freed nodes are counted from where the list stood. When it has succeeded the marks become
 * true; when it has failed they are dropped, and what was made is freed instead.
 *
 * A merge fails where it must read a node that is lost beyond redundancy. That is the misfortune of
 * one volume, and nobody else's: the volume becomes *damaged*. Its writes are refused from then on,
 * what can be read is read. What is acknowledged and still in its frozen layer becomes a delta run
 * on top of its tree, which is written without reading anything below it. So the checkpoint goes
 * on, the log need not be kept, nothing acknowledged is lost, and the run is all that a later merge
 * needs.
 *
 * Whoever was damaged may be well again: disks that did not answer for a while come back. So the
 * whole of the tree's runs is merged into its base now and then, at each import first; where that
 * succeeds, nothing that this volume's merges need is missing any more.
 *
 * Where not even a run can be written (an unmapped range too wide to be spelled out in tombstones,
 * or as many runs as there may be and the newest of them lost) the layer is dropped, and the volume
 * is *broken*: it no longer holds what was acknowledged, so it answers nothing at all until it is
 * deleted. Deleting needs no tree (reclaim.c). */
#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "engine/private.h"

enum { PACE_RUNS = 64, FOLD_NODES = 512 };

#define RETRY_LEAST_NS (60 * NS_PER_S)
#define RETRY_MOST_NS (3600 * NS_PER_S)

/* ---- nodes of volume trees: blocks with vbas ---- */

static void freed_add(struct engine *e, uint64_t vba, uint32_t count) {
    if (e->freed_count + count > e->freed_room) {
        e->freed_room = MAX(e->freed_room * 2, e->freed_count + count + 1024);
        e->freed = mem_realloc(e->freed, e->freed_room * sizeof(*e->freed));
    }
    for (uint32_t i = 0; i < count; i++) {
        e->freed[e->freed_count++] = vba + i;
    }
}

/* What the merge under way has given a live bit, or will when its rows are written. */
static void made_add(struct engine *e, uint64_t vba, uint32_t count, bool ref) {
    struct made *last = e->made_count > 0 ? &e->made[e->made_count - 1] : NULL;
    if (last != NULL && last->ref == ref && last->vba + last->count == vba) {
        last->count += count;
        return;
    }
    if (e->made_count == e->made_room) {
        e->made_room = e->made_room * 2 + 256;
        e->made = mem_realloc(e->made, e->made_room * sizeof(*e->made));
    }
    e->made[e->made_count++] = (struct made){.vba = vba, .count = count, .ref = ref};
}

static bool node_is_cached(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct engine *e = CONTAINER_OF(store, struct volume, store)->engine;
    return cache_has(e->fresh_nodes, ptr->address) || cache_has(e->node_cache, ptr->address);
}

/* A node that its own columns did not give, from redundancy: the checksums of its single blocks are
 * in the row's header. */
static int node_rescue(struct engine *e, const struct tree_ptr_phys *ptr, uint32_t blocks,
                       struct buf **buf) {
    struct row_place place;
    struct row_check checks[4];
    struct buf *header = NULL;
    if (!map_lookup(&e->map, ptr->address, &place)) {
        return ERR_NOT_FOUND; /* freed meanwhile */
    }
    struct segment *s = place.segment;
    s->pins++;
    int err = row_read_header(&e->table, s, place.offset, place.height, &e->row_counters, &header);
    if (err == OK) {
        const struct row_phys *h = (const struct row_phys *)(const void *)header->data;
        if (place.index < h->header_blocks ||
            !range_is_within(place.index - h->header_blocks, blocks, h->blocks)) {
            err = ERR_CORRUPT;
        }
        for (uint32_t i = 0; i < blocks && err == OK; i++) {
            checks[i] =
                (struct row_check){.vba = ptr->address + i,
                                   .crc = row_header_crcs(h)[place.index - h->header_blocks + i]};
        }
        if (err == OK) {
            err = row_read(&e->table, &place, blocks, checks, buf, 0, &e->row_counters, NULL);
        }
    }
    s->pins--;
    buf_unref(header);
    if (err == OK && crc32c_seeded(ptr->address, (*buf)->data, (*buf)->bytes) != ptr->crc) {
        err = ERR_CHECKSUM;
    }
    return err;
}

/* The checksum in the pointer is of the whole node, so it is read without the row's header first:
 * one read, where the header would add another on another track. */
static int node_read(struct tree_store *store, const struct tree_ptr_phys *ptr,
                     struct buf **ret_node) {
    struct engine *e = CONTAINER_OF(store, struct volume, store)->engine;
    uint32_t blocks = store->node_bytes / BLOCK_BYTES;
    *ret_node = cache_get(e->fresh_nodes, ptr->address);
    if (*ret_node == NULL) {
        *ret_node = cache_get(e->node_cache, ptr->address);
    }
    if (*ret_node != NULL) {
        return OK;
    }
    struct row_place place;
    if (!map_lookup(&e->map, ptr->address, &place)) {
        return ERR_NOT_FOUND; /* freed since the pointer was read */
    }
    struct buf *buf = buf_new(store->node_bytes);
    int err = ERR_CORRUPT;
    if (range_is_within(place.index, blocks, (uint64_t)place.height * place.segment->shape.data)) {
        err = row_read_unverified(&e->table, &place, blocks, &buf, 0, &e->row_counters);
    }
    if (err == ERR_IO ||
        (err == OK && crc32c_seeded(ptr->address, buf->data, buf->bytes) != ptr->crc)) {
        buf_unref(buf); /* what is late may still come */
        buf = buf_new(store->node_bytes);
        err = node_rescue(e, ptr, blocks, &buf);
    }
    if (err != OK) {
        buf_unref(buf);
        return err;
    }
    cache_put(e->node_cache, ptr->address, buf);
    *ret_node = buf;
    return OK;
}

static int node_write(struct tree_store *store, struct buf *node, struct tree_ptr_phys *ret_ptr) {
    struct volume *v = CONTAINER_OF(store, struct volume, store);
    struct engine *e = v->engine;
    uint32_t crcs[4];
    enum profile p = node_profile(e, (enum profile)v->phys.profile);
    int err = builder_add(e, &e->builders[p][1], node->data, node, v->phys.id, 0,
                          store->node_bytes / BLOCK_BYTES, &ret_ptr->address, crcs);
    if (err != OK) {
        return err;
    }
    made_add(e, ret_ptr->address, store->node_bytes / BLOCK_BYTES, false);
    ret_ptr->reserved = 0;
    ret_ptr->crc = crc32c_seeded(ret_ptr->address, node->data, node->bytes);
    cache_put(e->fresh_nodes, ret_ptr->address, node);
    cache_put(e->node_cache, ret_ptr->address, node);
    return OK;
}

static void node_free(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct engine *e = CONTAINER_OF(store, struct volume, store)->engine;
    freed_add(e, ptr->address, store->node_bytes / BLOCK_BYTES);
    if (e->freed_node_count == e->freed_node_room) {
        e->freed_node_room = e->freed_node_room * 2 + 256;
        e->freed_nodes = mem_realloc(e->freed_nodes, e->freed_node_room * sizeof(*e->freed_nodes));
    }
    e->freed_nodes[e->freed_node_count++] = ptr->address;
}

void volume_store_init(struct volume *v) {
    v->store = (struct tree_store){.read = node_read,
                                   .is_cached = node_is_cached,
                                   .write = node_write,
                                   .free = node_free,
                                   .node_bytes =
                                       v->engine->pool->super.geometry.node_blocks * BLOCK_BYTES};
    v->tree = (struct tree){.root = v->phys.tree,
                            .kind = TREE_EXTENTS,
                            .value_bytes = sizeof(struct tree_extent),
                            .owner = v->phys.id,
                            .store = &v->store};
}

/* ---- merging one volume ---- */

struct volume_batch {
    struct volume *v;
    struct overlay_cursor cursor;
    const struct overlay_extent *x; /* current */
    uint64_t done;                  /* blocks of it */
    struct tree_extent value;
    uint64_t puts, freed;
    int error;
};

static void row_enter_map(struct engine *e, const struct placed_row *row) {
    if (map_find(&e->map, row->vba >> RUN_SHIFT) == NULL) {
        (void)map_add(&e->map, row->vba, row->segment, row->offset, row->height, row->header_blocks,
                      row->blocks);
    }
}

static bool batch_put(struct volume_batch *b, struct tree_op *ret_op) {
    const struct overlay_extent *x = b->x;
    struct engine *e = b->v->engine;
    if (x->kind == OVERLAY_REF) {
        uint32_t index = x->index + (uint32_t)b->done;
        b->value = (struct tree_extent){.vba = x->row->vba + index, .crc = x->row->crc[index]};
        row_enter_map(e, x->row);
        map_set_live(&e->map, b->value.vba);
        made_add(e, b->value.vba, 1, true);
    } else {
        int err = builder_add(e, &e->builders[b->v->phys.profile][0],
                              x->buf->data + x->offset + b->done * BLOCK_BYTES, x->buf,
                              b->v->phys.id, x->start + b->done, 1, &b->value.vba, &b->value.crc);
        if (err != OK) {
            b->error = err;
            return false;
        }
        made_add(e, b->value.vba, 1, false);
    }
    *ret_op = (struct tree_op){
        .kind = TREE_PUT, .key = x->start + b->done, .count = 1, .value = &b->value};
    b->puts++;
    b->done++;
    return true;
}

static bool batch_next(void *ctx, struct tree_op *ret_op) {
    struct volume_batch *b = ctx;
    if (b->error != OK) {
        return false;
    }
    if (b->x == NULL || b->done == b->x->count) {
        b->x = overlay_next(&b->v->frozen, &b->cursor);
        b->done = 0;
        if (b->x == NULL) {
            return false;
        }
        if (b->x->kind == OVERLAY_HOLE) {
            b->done = b->x->count;
            b->v->unmapped += b->x->count;
            *ret_op =
                (struct tree_op){.kind = TREE_DELETE, .key = b->x->start, .count = b->x->count};
            return true;
        }
    }
    return batch_put(b, ret_op);
}

/* Items are of the committed tree, so the map knows them. */
static void batch_freed(void *ctx, uint64_t key, const void *value) {
    struct volume_batch *b = ctx;
    struct map *map = &b->v->engine->map;
    uint64_t vba = ((const struct tree_extent *)value)->vba;
    (void)key;
    map_free_later(map, vba);
    if (SABOTAGE(free_twice) && b->freed % 64 == 63 && map_is_live(map, vba ^ 1)) {
        map_clear_live(map, vba ^ 1);
    }
    b->freed++;
}

/* ---- all or nothing ---- */

struct merge_mark merge_begin(struct engine *e) {
    e->made_count = 0;
    return (struct merge_mark){.freed = e->freed_count, .freed_nodes = e->freed_node_count};
}

void merge_note_made(struct engine *e, uint64_t vba) {
    made_add(e, vba, 1, false);
}

void merge_undo(struct engine *e, const struct merge_mark *mark) {
    if (SABOTAGE(fault_half_done)) {
        while (map_free_now(&e->map)) {
        }
    }
    while (map_free_never(&e->map)) {
        (void)fiber_pace();
    }
    e->freed_count = mark->freed;
    e->freed_node_count = mark->freed_nodes;
    for (uint64_t i = 0; i < e->made_count; i++) {
        const struct made *made = &e->made[i];
        for (uint32_t k = 0; made->ref && k < made->count; k++) {
            map_clear_live(&e->map, made->vba + k);
        }
        if (!made->ref) { /* it gets its live bits when its row is written, and loses them then */
            freed_add(e, made->vba, made->count);
        }
        (void)fiber_pace();
    }
}

enum merge_how {
    MERGE_PLANNED, /* as the tree thinks best */
    MERGE_WHOLE,   /* all runs into the base */
    MERGE_ON_TOP,  /* as one more run */
};

static int merge_try(struct volume *v, enum merge_how how, struct tree_root_phys *ret_root) {
    struct engine *e = v->engine;
    struct volume_batch b = {.v = v};
    struct tree_batch batch = {.next = batch_next,
                               .freed = batch_freed,
                               .ctx = &b,
                               .put_count = v->frozen.data_blocks,
                               .delta_allowed = how != MERGE_WHOLE,
                               .on_top = how == MERGE_ON_TOP};
    struct merge_mark mark = merge_begin(e);
    struct tree tree = v->tree;
    tree.root = *ret_root; /* relocate.c may have had a go at it */
    int err = tree_merge(&tree, &batch, ret_root);
    if (err == OK) {
        err = b.error;
    }
    if (err != OK) {
        merge_undo(e, &mark);
        return err;
    }
    for (uint32_t runs = 1; map_free_now(&e->map); runs++) {
        if (runs % PACE_RUNS == 0) { /* one is next to nothing */
            (void)fiber_pace();
        }
    }
    v->phys.allocated_blocks = v->phys.allocated_blocks + b.puts - b.freed;
    v->puts += b.puts;
    v->unmapped = ret_root->levels > 1 ? v->unmapped : 0;
    return OK;
}

/* ---- damage ---- */

bool error_is_loss(int error) {
    switch (error) {
    case ERR_IO:
    case ERR_CHECKSUM:
    case ERR_DATA_LOSS:
    case ERR_CORRUPT:
    case ERR_UNSUPPORTED:
    case ERR_NOT_FOUND: /* the map knows nothing of a node that the tree refers to */
        return true;
    default:
        return false;
    }
}

bool volume_merge_is_due(const struct volume *v) {
    uint32_t flags = v->phys.flags & (VOLUME_FLAG_DAMAGED | VOLUME_FLAG_BROKEN);
    return flags == VOLUME_FLAG_DAMAGED && env_now_ns(v->engine->env) >= v->retry_at_ns;
}

void volume_retry_later(struct volume *v) {
    v->retry_pause_ns = MIN(MAX(v->retry_pause_ns * 2, RETRY_LEAST_NS), RETRY_MOST_NS);
    v->retry_at_ns = env_now_ns(v->engine->env) + v->retry_pause_ns;
}

static bool node_is_misplaced(void *ctx, const struct tree_ptr_phys *ptr) {
    const struct volume *v = ctx;
    struct row_place place;
    return map_lookup(&v->engine->map, ptr->address, &place) &&
           place.segment->profile != node_profile(v->engine, (enum profile)v->phys.profile);
}

/* All data is in segments of the volume's profile, and all runs are in the base: the nodes follow.
 */
static int volume_settle(struct volume *v, struct tree_root_phys *root) {
    struct merge_mark mark = merge_begin(v->engine);
    struct tree tree = v->tree;
    tree.root = *root;
    int err = tree_rewrite(&tree, node_is_misplaced, v, root);
    if (err != OK) {
        merge_undo(v->engine, &mark);
        return err;
    }
    v->phys.former = 0;
    v->settles = false;
    v->engine->profiles_changed++;
    return OK;
}

/* A merge cannot stop for requests that come meanwhile, so it must not take long. */
bool volume_may_fold(const struct volume *v) {
    const struct tree_root_phys *root = &v->tree.root;
    uint32_t never = VOLUME_FLAG_DAMAGED | VOLUME_FLAG_BROKEN | VOLUME_FLAG_DELETING;
    uint64_t items = 0;
    if (root->levels < 2 || v->unmapped == 0 || (v->phys.flags & never) != 0) {
        return false;
    }
    for (uint32_t i = 0; i + 1 < root->levels; i++) {
        items += root->level[i].items;
    }
    return MIN(items, root->level[root->levels - 1].nodes) <= FOLD_NODES;
}

/* `root`: the tree as it is before the merge, and after it. */
int volume_merge(struct volume *v, struct tree_root_phys *ret_root) {
    bool damaged = (v->phys.flags & VOLUME_FLAG_DAMAGED) != 0;
    if ((v->phys.flags & VOLUME_FLAG_BROKEN) != 0) {
        overlay_clear(&v->frozen); /* of requests that were on their way */
        return OK;
    }
    bool folds = v->settles || (v->engine->ahead && volume_may_fold(v));
    if (damaged ? volume_merge_is_due(v) : !overlay_is_empty(&v->frozen) || folds) {
        bool whole = damaged || folds;
        int err = merge_try(v, whole ? MERGE_WHOLE : MERGE_PLANNED, ret_root);
        bool merged = err == OK;
        err = merged && v->settles ? volume_settle(v, ret_root) : err;
        if (err != OK && merged && error_is_loss(err)) {
            v->settles = false; /* the next pass comes to it again */
            return OK;
        }
        if (err == OK && damaged) {
            v->phys.flags &= (uint16_t)~VOLUME_FLAG_DAMAGED;
            v->retry_pause_ns = 0;
            v->engine->volumes_healed++;
        }
        if (!error_is_loss(err)) {
            return err;
        }
        v->phys.flags |= VOLUME_FLAG_DAMAGED;
        volume_retry_later(v);
    }
    if (overlay_is_empty(&v->frozen)) {
        return OK;
    }
    int err = merge_try(v, MERGE_ON_TOP, ret_root);
    if (error_is_loss(err) || err == ERR_LIMIT) {
        v->phys.flags |= VOLUME_FLAG_BROKEN;
        overlay_clear(&v->frozen);
        err = OK;
    }
    return err;
}
