// SPDX-License-Identifier: MPL-2.0
#include "tree/node.h"

#include "base/assert.h"
#include "base/math.h"

struct node_shape node_shape_of(const struct tree *tree, bool delta) {
    return (struct node_shape){.kind = tree->kind,
                               .node_bytes = tree->store->node_bytes,
                               .value_bytes = tree->value_bytes,
                               .owner = tree->owner,
                               .delta = delta};
}

/* ---- reading ---- */

static int open_extents(const struct node_shape *shape, struct node_view *v) {
    const struct node_phys *h = v->head;
    if (h->runs == 0 || h->runs > h->count || h->vba_bytes < NODE_VBA_BYTES_MIN ||
        h->vba_bytes > NODE_VBA_BYTES_MAX || h->value_bytes != 0) {
        return ERR_CORRUPT;
    }
    v->runs = h->runs;
    v->stride = h->vba_bytes + 4u;
    uint64_t bytes =
        NODE_HEAD_BYTES + (uint64_t)v->runs * NODE_RUN_BYTES + (uint64_t)v->count * v->stride;
    if (bytes > shape->node_bytes) {
        return ERR_CORRUPT;
    }
    v->bytes = (uint32_t)bytes;
    v->vba_mask = UINT64_MAX >> (64 - 8 * h->vba_bytes);
    v->run_keys = (const uint32_t *)(const void *)(h + 1);
    v->run_index = (const uint16_t *)(v->run_keys + v->runs);
    v->values = (const uint8_t *)(v->run_index + v->runs);
    return OK;
}

static int open_fixed(const struct node_shape *shape, struct node_view *v) {
    const struct node_phys *h = v->head;
    uint32_t value_bytes = sizeof(struct tree_ptr_phys);
    if (h->height == 0) {
        value_bytes = h->value_bytes;
        if (value_bytes == 0 || value_bytes > TREE_VALUE_MAX ||
            (shape->value_bytes != 0 && value_bytes != shape->value_bytes)) {
            return ERR_CORRUPT;
        }
    } else if (h->value_bytes != 0) {
        return ERR_CORRUPT;
    }
    uint64_t bytes = NODE_HEAD_BYTES + (uint64_t)v->count * (sizeof(uint64_t) + value_bytes);
    if (bytes > shape->node_bytes || h->runs != 0 || h->vba_bytes != 0 || h->vba_base != 0) {
        return ERR_CORRUPT;
    }
    v->bytes = (uint32_t)bytes;
    v->stride = value_bytes;
    v->keys = (const uint64_t *)(const void *)(h + 1);
    v->values = (const uint8_t *)(v->keys + v->count);
    v->children = (const struct tree_ptr_phys *)(v->keys + v->count);
    return OK;
}

int node_open(const struct node_shape *shape, const void *node, struct node_view *ret_view) {
    const struct node_phys *h = node;
    if (shape->node_bytes < sizeof(*h) || h->header.type != PHYS_NODE) {
        return ERR_CORRUPT;
    }
    if (h->header.version != NODE_VERSION || h->encoding != 0 || h->key_id != 0 ||
        (h->flags & ~NODE_FLAG_DELTA) != 0) {
        return ERR_UNSUPPORTED;
    }
    bool delta = (h->flags & NODE_FLAG_DELTA) != 0;
    if (h->header.length_bytes != shape->node_bytes || h->header.reserved != 0 ||
        h->header.crc != 0 || h->kind != shape->kind || h->owner != shape->owner ||
        (!shape->any_level && delta != shape->delta) || h->height > TREE_HEIGHT_MAX ||
        h->count == 0 || h->end_key <= h->first_key) {
        return ERR_CORRUPT;
    }
    struct node_view v = {.head = h, .count = h->count};
    int rc =
        h->height == 0 && h->kind == TREE_EXTENTS ? open_extents(shape, &v) : open_fixed(shape, &v);
    if (rc == OK) {
        *ret_view = v;
    }
    return rc;
}

static int check_extents(const struct node_view *v) {
    const struct node_phys *h = v->head;
    uint64_t key = 0; /* after the run before, relative */
    for (uint32_t r = 0; r < v->runs; r++) {
        uint32_t end = r + 1 < v->runs ? v->run_index[r + 1] : v->count;
        if ((r == 0 ? v->run_keys[0] != 0 || v->run_index[0] != 0 : v->run_keys[r] <= key) ||
            end <= v->run_index[r] || end > v->count) {
            return ERR_CORRUPT;
        }
        key = (uint64_t)v->run_keys[r] + (end - v->run_index[r]);
    }
    if (h->end_key - h->first_key != key) {
        return ERR_CORRUPT;
    }
    /* Of the fields less one: a tombstone's becomes the greatest. */
    bool delta = (h->flags & NODE_FLAG_DELTA) != 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        uint64_t field = node_vba_field(v, i);
        most = MAX(most, delta && field == 0 ? 0 : field - 1);
    }
    if (h->vba_base == 0 ? !delta || most != 0 : most > UINT64_MAX - h->vba_base) {
        return ERR_CORRUPT;
    }
    for (uint32_t i = 0; delta && i < v->count; i++) {
        struct tree_extent e = node_extent(v, i);
        if (e.vba == 0 && (e.crc != 0 || node_vba_field(v, i) != 0)) {
            return ERR_CORRUPT;
        }
    }
    return OK;
}

static int check_fixed(const struct node_view *v) {
    const struct node_phys *h = v->head;
    uint64_t last = v->keys[v->count - 1];
    if (v->keys[0] != h->first_key || last >= h->end_key ||
        (h->height == 0 && last != h->end_key - 1)) {
        return ERR_CORRUPT;
    }
    for (uint32_t i = 1; i < v->count; i++) {
        if (v->keys[i] <= v->keys[i - 1]) {
            return ERR_CORRUPT;
        }
    }
    for (uint32_t i = 0; i < v->count && h->height != 0; i++) {
        if (v->children[i].reserved != 0) {
            return ERR_CORRUPT;
        }
    }
    return OK;
}

int node_check(const struct node_shape *shape, const struct node_view *view) {
    int rc = node_is_extents_leaf(view) ? check_extents(view) : check_fixed(view);
    const uint8_t *tail = (const uint8_t *)view->head + view->bytes;
    uint32_t tail_bytes = shape->node_bytes - view->bytes;
    if (rc == OK && tail_bytes > 0 &&
        (tail[0] != 0 || memcmp(tail, tail + 1, tail_bytes - 1) != 0)) {
        rc = ERR_CORRUPT;
    }
    return rc;
}

int tree_node_validate(const void *node, uint32_t node_bytes, enum tree_kind kind, uint64_t owner) {
    struct node_shape shape = {
        .kind = kind, .node_bytes = node_bytes, .owner = owner, .any_level = true};
    struct node_view v;
    int rc = node_open(&shape, node, &v);
    return rc == OK ? node_check(&shape, &v) : rc;
}

/* How many of the ascending keys are ≤ key. */
static uint32_t keys_up_to(const uint64_t *keys, uint32_t count, uint64_t key) {
    uint32_t lo = 0;
    while (count > 0) {
        uint32_t half = count / 2;
        bool right = keys[lo + half] <= key;
        lo = right ? lo + half + 1 : lo;
        count = right ? count - half - 1 : half;
    }
    return lo;
}

static uint32_t runs_up_to(const uint32_t *keys, uint32_t count, uint32_t key) {
    uint32_t lo = 0;
    while (count > 0) {
        uint32_t half = count / 2;
        bool right = keys[lo + half] <= key;
        lo = right ? lo + half + 1 : lo;
        count = right ? count - half - 1 : half;
    }
    return lo;
}

uint32_t node_child(const struct node_view *view, uint64_t key) {
    uint32_t n = keys_up_to(view->keys, view->count, key);
    return n == 0 ? 0 : n - 1;
}

/* At the first entry of run `run`, which must be number `index`, or at the end. */
static int enter_run(const struct node_view *v, uint32_t run, uint32_t index,
                     struct node_pos *ret_pos) {
    if (run == v->runs ? index != v->count
                       : v->run_index[run] != index || v->run_index[run] >= v->count) {
        return ERR_CORRUPT;
    }
    *ret_pos = (struct node_pos){.index = index, .run = run};
    ret_pos->key = run == v->runs ? UINT64_MAX : v->head->first_key + v->run_keys[run];
    return OK;
}

static int seek_extents(const struct node_view *v, uint64_t key, struct node_pos *ret_pos) {
    uint64_t first = v->head->first_key;
    if (key <= first) {
        return enter_run(v, 0, 0, ret_pos);
    }
    uint32_t relative = key - first > UINT32_MAX ? UINT32_MAX : (uint32_t)(key - first);
    uint32_t run = runs_up_to(v->run_keys, v->runs, relative);
    if (run == 0) {
        return ERR_CORRUPT; /* the first run is at 0 */
    }
    run--;
    uint32_t start = v->run_index[run];
    uint32_t end = run + 1 < v->runs ? v->run_index[run + 1] : v->count;
    if (start >= end || end > v->count) {
        return ERR_CORRUPT;
    }
    uint64_t past = key - first - v->run_keys[run];
    if (past >= end - start) {
        return enter_run(v, run + 1, end, ret_pos);
    }
    *ret_pos = (struct node_pos){.index = start + (uint32_t)past, .run = run, .key = key};
    return OK;
}

int node_seek(const struct node_view *view, uint64_t key, struct node_pos *ret_pos) {
    if (node_is_extents_leaf(view)) {
        return seek_extents(view, key, ret_pos);
    }
    uint32_t index = key == 0 ? 0 : keys_up_to(view->keys, view->count, key - 1);
    *ret_pos = (struct node_pos){.index = index};
    ret_pos->key = index < view->count ? view->keys[index] : UINT64_MAX;
    return OK;
}

uint32_t node_run_length(const struct node_view *view, const struct node_pos *pos) {
    ASSERT_LT(pos->index, view->count);
    if (!node_is_extents_leaf(view)) {
        return 1;
    }
    uint32_t end = pos->run + 1 < view->runs ? view->run_index[pos->run + 1] : view->count;
    return end > pos->index && end <= view->count ? end - pos->index : 1;
}

int node_skip(const struct node_view *view, struct node_pos *pos, uint32_t count) {
    uint32_t left = node_run_length(view, pos);
    ASSERT_LE(count, left);
    pos->index += count;
    if (!node_is_extents_leaf(view)) {
        pos->key = pos->index < view->count ? view->keys[pos->index] : UINT64_MAX;
        return OK;
    }
    if (count < left) {
        pos->key += count;
        return OK;
    }
    return enter_run(view, pos->run + 1, pos->index, pos);
}

int node_step(const struct node_view *view, struct node_pos *pos) {
    return node_skip(view, pos, 1);
}

/* ---- making ---- */

uint32_t packing_width(uint64_t lo, uint64_t hi) {
    if (lo > hi) {
        return NODE_VBA_BYTES_MIN;
    }
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(hi - lo + 1);
    return MAX((uint32_t)NODE_VBA_BYTES_MIN, (bits + 7) / 8);
}

struct packing packing_of(const struct extent_item *items, uint32_t count) {
    uint64_t lo = UINT64_MAX, hi = 0;
    uint32_t runs = 1;
    for (uint32_t i = 0; i < count; i++) {
        lo = MIN(lo, items[i].vba - 1); /* a tombstone's 0 becomes the greatest */
        hi = MAX(hi, items[i].vba);
    }
    for (uint32_t i = 1; i < count; i++) {
        runs += items[i].key != items[i - 1].key + 1;
    }
    lo += hi != 0;
    return (struct packing){.count = count,
                            .runs = runs,
                            .vba_bytes = packing_width(lo, hi),
                            .first_key = items[0].key,
                            .last_key = items[count - 1].key,
                            .lo = lo,
                            .hi = hi};
}

static struct node_phys *head_fill(const struct node_shape *shape, uint32_t height, uint32_t count,
                                   uint64_t first_key, uint64_t end_key, void *node) {
    struct node_phys *h = node;
    *h = (struct node_phys){
        .header = {.type = PHYS_NODE, .version = NODE_VERSION, .length_bytes = shape->node_bytes},
        .owner = shape->owner,
        .first_key = first_key,
        .end_key = end_key,
        .count = count,
        .kind = (uint8_t)shape->kind,
        .height = (uint8_t)height,
        .flags = shape->delta ? NODE_FLAG_DELTA : 0,
    };
    return h;
}

static void tail_clear(const struct node_shape *shape, void *node, const uint8_t *end) {
    size_t used = (size_t)(end - (const uint8_t *)node);
    ASSERT_LE(used, shape->node_bytes);
    memset((uint8_t *)node + used, 0, shape->node_bytes - used);
}

void node_pack_extents(const struct node_shape *shape, const struct extent_item *items,
                       uint32_t count, void *ret_node) {
    struct packing p = packing_of(items, count);
    ASSERT_LE(packing_bytes(&p), shape->node_bytes);
    struct node_phys *h =
        head_fill(shape, 0, count, items[0].key, items[count - 1].key + 1, ret_node);
    h->runs = (uint16_t)p.runs;
    h->vba_bytes = (uint8_t)p.vba_bytes;
    const uint64_t base = p.lo > p.hi ? 0 : p.lo;
    const uint32_t vba_bytes = p.vba_bytes;
    h->vba_base = base;
    uint32_t *run_keys = (uint32_t *)(void *)(h + 1);
    uint16_t *run_index = (uint16_t *)(run_keys + p.runs);
    uint8_t *at = (uint8_t *)(run_index + p.runs);
    uint32_t run = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || items[i].key != items[i - 1].key + 1) {
            run_keys[run] = (uint32_t)(items[i].key - items[0].key);
            run_index[run++] = (uint16_t)i;
        }
        /* Eight bytes are written where vba_bytes are meant: the rest is overwritten by what
         * follows, and an entry is never shorter than eight. */
        uint64_t field = items[i].vba == 0 ? 0 : items[i].vba - base + 1;
        memcpy(at, &field, sizeof(field));
        memcpy(at + vba_bytes, &items[i].crc, 4);
        at += vba_bytes + 4;
    }
    tail_clear(shape, ret_node, at);
}

void node_pack_map(const struct node_shape *shape, const void *items, uint32_t item_bytes,
                   uint32_t count, void *ret_node) {
    const uint8_t *item = items;
    uint64_t first, last;
    memcpy(&first, item, sizeof(first));
    memcpy(&last, item + (size_t)(count - 1) * item_bytes, sizeof(last));
    struct node_phys *h = head_fill(shape, 0, count, first, last + 1, ret_node);
    h->value_bytes = (uint8_t)shape->value_bytes;
    uint64_t *keys = (uint64_t *)(void *)(h + 1);
    uint8_t *values = (uint8_t *)(keys + count);
    for (uint32_t i = 0; i < count; i++, item += item_bytes) {
        memcpy(&keys[i], item, sizeof(keys[i]));
        memcpy(values, item + sizeof(keys[i]), shape->value_bytes);
        values += shape->value_bytes;
    }
    tail_clear(shape, ret_node, values);
}

void node_pack_interior(const struct node_shape *shape, uint32_t height,
                        const struct entry_item *items, uint32_t count, void *ret_node) {
    struct node_phys *h =
        head_fill(shape, height, count, items[0].key, items[count - 1].end_key, ret_node);
    uint64_t *keys = (uint64_t *)(void *)(h + 1);
    struct tree_ptr_phys *children = (struct tree_ptr_phys *)(keys + count);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = items[i].key;
        children[i] = items[i].ptr;
        children[i].reserved = 0;
    }
    tail_clear(shape, ret_node, (const uint8_t *)(children + count));
}

bool node_patch(const struct node_view *view, uint32_t index, const void *value) {
    uint8_t *p = (uint8_t *)(uintptr_t)view->values + (size_t)index * view->stride;
    if (!node_is_extents_leaf(view)) {
        memcpy(p, value, view->stride);
        return true;
    }
    struct tree_extent e;
    memcpy(&e, value, sizeof(e));
    /* A leaf of nothing but tombstones has base 0; it packs better anew. */
    uint64_t base = view->head->vba_base;
    if (base == 0 || e.vba < base || e.vba - base >= view->vba_mask) {
        return false;
    }
    uint64_t field = e.vba - base + 1;
    memcpy(p, &field, view->head->vba_bytes);
    memcpy(p + view->head->vba_bytes, &e.crc, sizeof(e.crc));
    return true;
}
