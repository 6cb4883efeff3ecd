// SPDX-License-Identifier: MPL-2.0
#include "tree/build.h"

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"

/* Room of a queue, in nodes (and a piece, below): what is held back, and as much again, so that the
 * items are moved to the front only once in a few nodes. */
enum { QUEUE_NODES = 8 };

/* Extents unpacked at once. */
enum { PIECE_ITEMS = 64 };

void build_init(struct build *b, struct tree *tree, bool delta) {
    *b = (struct build){.store = tree->store, .shape = node_shape_of(tree, delta)};
    for (uint32_t h = 0; h < ARRAY_COUNT(b->queue); h++) {
        struct build_queue *q = &b->queue[h];
        uint32_t node_bytes = b->shape.node_bytes, most;
        if (h > 0) {
            q->item_bytes = sizeof(struct entry_item);
            q->fixed_room =
                node_fixed_room(node_bytes, sizeof(uint64_t) + sizeof(struct tree_ptr_phys));
            most = q->fixed_room;
        } else if (tree->kind == TREE_MAP) {
            q->item_bytes = (uint32_t)(sizeof(uint64_t) + round_up(tree->value_bytes, 8));
            q->fixed_room = node_fixed_room(node_bytes, sizeof(uint64_t) + tree->value_bytes);
            most = q->fixed_room;
        } else {
            q->item_bytes = sizeof(struct extent_item);
            most = node_fixed_room(node_bytes, NODE_VBA_BYTES_MIN + 4);
        }
        ASSERT_LE(2, most);
        q->room = most * QUEUE_NODES + PIECE_ITEMS;
    }
}

void build_done(struct build *b) {
    for (uint32_t h = 0; h < ARRAY_COUNT(b->queue); h++) {
        mem_free(b->queue[h].items);
        b->queue[h].items = NULL;
    }
}

static void *queue_item(const struct build_queue *q, uint32_t index) {
    return q->items + (size_t)(q->head + index) * q->item_bytes;
}

static bool queue_fits(const struct build *b, struct build_queue *q, uint64_t key, uint64_t vba) {
    if (q->fixed_room == 0) {
        return packing_add_one(&q->open, b->shape.node_bytes, key, vba);
    }
    if (q->open.count == q->fixed_room) {
        return false;
    }
    q->open.count++;
    return true;
}

static int queue_write_first(struct build *b, uint32_t height, uint32_t items);

/* Counts one more item to the node that is open, or to the next one; then the first may have to be
 * written. */
static int queue_admit(struct build *b, uint32_t height, uint64_t key, uint64_t vba) {
    struct build_queue *q = &b->queue[height];
    if (queue_fits(b, q, key, vba)) {
        return OK;
    }
    q->cut[q->cuts++] = q->open.count;
    q->open = (struct packing){0};
    bool fits = queue_fits(b, q, key, vba);
    ASSERT(fits);
    if (q->cuts < BUILD_CUTS) {
        return OK;
    }
    int rc = queue_write_first(b, height, q->cut[0]);
    memmove(&q->cut[0], &q->cut[1], sizeof(q->cut[0]) * --q->cuts);
    return rc;
}

/* Memory for `count` more items behind the last one. It stays where it is until the next call. */
static void *queue_tail(struct build_queue *q, uint32_t count) {
    if (q->items == NULL) {
        q->items = mem_alloc((size_t)q->room * q->item_bytes);
    }
    if (q->head + q->count + count > q->room) {
        memmove(q->items, queue_item(q, 0), (size_t)q->count * q->item_bytes);
        q->head = 0;
    }
    ASSERT_LE(q->count + count, q->room);
    return queue_item(q, q->count);
}

/* One more item at the end of the queue. */
static int queue_push(struct build *b, uint32_t height, uint64_t key, uint64_t vba,
                      void **ret_item) {
    struct build_queue *q = &b->queue[height];
    int rc = queue_admit(b, height, key, vba);
    if (rc == OK) {
        *ret_item = queue_tail(q, 1);
        q->count++;
    }
    return rc;
}

static int entry_push(struct build *b, uint32_t height, uint64_t key, uint64_t end_key,
                      const struct tree_ptr_phys *ptr) {
    void *item;
    if (height >= ARRAY_COUNT(b->queue)) {
        return ERR_LIMIT;
    }
    int rc = queue_push(b, height, key, 0, &item);
    if (rc == OK) {
        *(struct entry_item *)item =
            (struct entry_item){.key = key, .end_key = end_key, .ptr = *ptr};
    }
    return rc;
}

/* Gives the node an address and tells its parent's queue. */
static int node_write(struct build *b, uint32_t height, struct buf *node) {
    const struct node_phys *h = (const struct node_phys *)(const void *)node->data;
    struct tree_ptr_phys ptr = {0};
    int rc = b->store->write(b->store, node, &ptr);
    if (rc != OK) {
        return rc;
    }
    b->nodes_written++;
    return entry_push(b, height + 1, h->first_key, h->end_key, &ptr);
}

/* Makes a node of the first `items` items of the queue. */
static int queue_write_first(struct build *b, uint32_t height, uint32_t items) {
    struct build_queue *q = &b->queue[height];
    if (height > TREE_HEIGHT_MAX) {
        return ERR_LIMIT;
    }
    struct buf *node = buf_new(b->shape.node_bytes);
    if (height > 0) {
        node_pack_interior(&b->shape, height, queue_item(q, 0), items, node->data);
    } else if (b->shape.kind == TREE_MAP) {
        node_pack_map(&b->shape, queue_item(q, 0), q->item_bytes, items, node->data);
    } else {
        node_pack_extents(&b->shape, queue_item(q, 0), items, node->data);
    }
    q->head += items;
    q->count -= items;
    int rc = node_write(b, height, node);
    buf_unref(node);
    return rc;
}

static int extent_push(struct build *b, uint64_t key, uint64_t vba, uint32_t crc) {
    void *item;
    int rc = queue_push(b, 0, key, vba, &item);
    if (rc == OK) {
        *(struct extent_item *)item = (struct extent_item){.key = key, .vba = vba, .crc = crc};
    }
    return rc;
}

static int map_push(struct build *b, uint64_t key, const void *value) {
    void *item;
    int rc = queue_push(b, 0, key, 0, &item);
    if (rc == OK) {
        memcpy(item, &key, sizeof(key));
        memcpy((uint8_t *)item + sizeof(key), value, b->shape.value_bytes);
    }
    return rc;
}

int build_item(struct build *b, uint64_t key, const void *value) {
    if (b->shape.kind == TREE_MAP) {
        return map_push(b, key, value);
    }
    struct tree_extent e;
    memcpy(&e, value, sizeof(e));
    ASSERT_LT(0, e.vba); /* 0 is the tombstone's */
    return extent_push(b, key, e.vba, e.crc);
}

int build_tombstone(struct build *b, uint64_t key) {
    ASSERT(b->shape.delta && b->shape.kind == TREE_EXTENTS);
    return extent_push(b, key, 0, 0);
}

/* A piece of a run: unpacked as a whole, and mostly also admitted as a whole. */
static int extents_push(struct build *b, const struct node_view *leaf, struct node_pos *pos,
                        uint64_t end_key) {
    struct build_queue *q = &b->queue[0];
    uint64_t most = MIN(end_key - pos->key, (uint64_t)PIECE_ITEMS);
    uint32_t count = (uint32_t)MIN(most, (uint64_t)node_run_length(leaf, pos));
    struct extent_item *item = queue_tail(q, count);
    uint64_t lo = UINT64_MAX, hi = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct tree_extent e = node_extent(leaf, pos->index + i);
        item[i] = (struct extent_item){.key = pos->key + i, .vba = e.vba, .crc = e.crc};
        lo = MIN(lo, e.vba - 1); /* a tombstone's 0 becomes the greatest */
        hi = MAX(hi, e.vba);
    }
    lo += hi != 0;
    if (packing_add(&q->open, b->shape.node_bytes, pos->key, count, lo, hi)) {
        q->count += count;
        return node_skip(leaf, pos, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        int rc = queue_admit(b, 0, item[i].key, item[i].vba);
        if (rc != OK) {
            return rc;
        }
        q->count++;
    }
    return node_skip(leaf, pos, count);
}

int build_items(struct build *b, const struct node_view *leaf, struct node_pos *pos,
                uint64_t end_key) {
    int rc = OK;
    while (rc == OK && pos->index < leaf->count && pos->key < end_key) {
        if (node_is_extents_leaf(leaf)) {
            rc = extents_push(b, leaf, pos, end_key);
            continue;
        }
        rc = map_push(b, pos->key, node_value(leaf, pos->index, NULL));
        if (rc == OK) {
            rc = node_step(leaf, pos);
        }
    }
    return rc;
}

/* ---- emptying queues ---- */

static uint32_t queue_open_bytes(const struct build_queue *q, uint32_t node_bytes) {
    uint32_t room = node_bytes - NODE_HEAD_BYTES;
    if (q->open.count == 0) {
        return 0;
    }
    if (q->fixed_room != 0) {
        return (uint32_t)((uint64_t)room * q->open.count / q->fixed_room);
    }
    return packing_bytes(&q->open) - NODE_HEAD_BYTES;
}

/* Two thirds, over all nodes that would be written. */
static bool queue_is_decent(const struct build *b, const struct build_queue *q) {
    uint32_t room = b->shape.node_bytes - NODE_HEAD_BYTES;
    uint32_t nodes = q->cuts + (q->open.count > 0);
    uint32_t used = q->cuts * room + queue_open_bytes(q, b->shape.node_bytes);
    return used * 3 >= 2 * nodes * room;
}

static bool extents_fit(const struct build *b, const struct extent_item *items, uint32_t count) {
    struct packing p = packing_of(items, count);
    return packing_bytes(&p) <= b->shape.node_bytes && p.last_key - p.first_key <= UINT32_MAX;
}

/* Cuts the queue into the same number of nodes with the same number of items, unless one of them
 * would not fit. */
static void queue_spread(const struct build *b, const struct build_queue *q, uint32_t *ret_sizes,
                         uint32_t nodes) {
    uint32_t sizes[BUILD_CUTS + 1], at = 0;
    for (uint32_t i = 0; i < nodes; i++) {
        sizes[i] = (q->count - at) / (nodes - i);
        if (q->fixed_room == 0 && !extents_fit(b, queue_item(q, at), sizes[i])) {
            return;
        }
        at += sizes[i];
    }
    memcpy(ret_sizes, sizes, sizeof(sizes[0]) * nodes);
}

static int queue_empty(struct build *b, uint32_t height, bool spread) {
    struct build_queue *q = &b->queue[height];
    uint32_t sizes[BUILD_CUTS + 1], nodes = q->cuts;
    memcpy(sizes, q->cut, sizeof(q->cut));
    if (q->open.count > 0) {
        sizes[nodes++] = q->open.count;
    }
    if (spread && nodes > 1) {
        queue_spread(b, q, sizes, nodes);
    }
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < nodes; i++) {
        rc = queue_write_first(b, height, sizes[i]);
    }
    q->cuts = 0;
    q->open = (struct packing){0};
    q->head = 0;
    return rc;
}

bool build_is_empty(const struct build *b, uint32_t height) {
    for (uint32_t h = 0; h <= height; h++) {
        if (b->queue[h].count > 0) {
            return false;
        }
    }
    return true;
}

int build_settle(struct build *b, uint32_t height, bool *ret_empty) {
    for (uint32_t h = 0; h <= height; h++) {
        struct build_queue *q = &b->queue[h];
        if (q->count == 0) {
            continue;
        }
        if (!queue_is_decent(b, q)) {
            *ret_empty = false;
            return OK;
        }
        int rc = queue_empty(b, h, true);
        if (rc != OK) {
            return rc;
        }
    }
    *ret_empty = true;
    return OK;
}

int build_keep(struct build *b, uint32_t height, uint64_t key, uint64_t end_key,
               const struct tree_ptr_phys *ptr) {
    ASSERT(build_is_empty(b, height));
    return entry_push(b, height + 1, key, end_key, ptr);
}

int build_leaf(struct build *b, struct buf *node) {
    ASSERT(build_is_empty(b, 0));
    return node_write(b, 0, node);
}

void build_forget(struct build *b, uint32_t height, uint32_t count) {
    struct build_queue *q = &b->queue[height];
    ASSERT_EQ(q->count, count);
    q->count = 0;
    q->cuts = 0;
    q->head = 0;
    q->open = (struct packing){0};
}

int build_finish(struct build *b, struct tree_level_phys *ret_level) {
    for (uint32_t h = 0; h < ARRAY_COUNT(b->queue); h++) {
        bool above = false;
        for (uint32_t up = h + 1; up < ARRAY_COUNT(b->queue); up++) {
            above |= b->queue[up].count > 0;
        }
        if (h > 0 && b->queue[h].count == 1 && !above) {
            const struct entry_item *root = queue_item(&b->queue[h], 0);
            ret_level->root = root->ptr;
            ret_level->height = h - 1;
            ret_level->present = 1;
            return OK;
        }
        int rc = queue_empty(b, h, false);
        if (rc != OK) {
            return rc;
        }
    }
    *ret_level = (struct tree_level_phys){0};
    return OK;
}
