// SPDX-License-Identifier: MPL-2.0
/* Cursors, and tree_range(), which merges one cursor a level: of items with the same key the one
 * of the newest level counts, and a tombstone hides what is below it. */
#include "tree/cursor.h"

#include "base/assert.h"
#include "base/math.h"
#include "env/fiber.h"

enum { RANGE_PACE_NODES = 64, ANNOUNCE_NODES = 32 };

int node_read(struct tree_store *store, const struct node_shape *shape,
              const struct tree_ptr_phys *ptr, uint32_t height, const uint64_t *first_key,
              uint64_t end_key, struct buf **ret_node, struct node_view *ret_view) {
    struct buf *node;
    int rc = store->read(store, ptr, &node);
    if (rc != OK) {
        return rc;
    }
    rc = node->bytes < shape->node_bytes ? ERR_CORRUPT : node_open(shape, node->data, ret_view);
    if (rc == OK && (ret_view->head->height != height || ret_view->head->end_key > end_key ||
                     (first_key != NULL && ret_view->head->first_key != *first_key))) {
        rc = ERR_CORRUPT;
    }
    if (rc != OK) {
        buf_unref(node);
        return rc;
    }
    *ret_node = node;
    return OK;
}

/* In pieces, each announced when the one before it begins. */
void node_announce(struct tree_store *store, const struct node_view *view, uint32_t index) {
    if (store->prefetch == NULL || index % ANNOUNCE_NODES != 0) {
        return;
    }
    uint32_t from = index == 0 ? 0 : index + ANNOUNCE_NODES;
    uint32_t end = MIN(index + 2 * ANNOUNCE_NODES, view->count);
    if (from < end) {
        store->prefetch(store, &view->children[from], end - from);
    }
}

static int step_enter(struct cursor *c, uint32_t height, const struct tree_ptr_phys *ptr,
                      const uint64_t *first_key, uint64_t end_key) {
    struct cursor_step *s = &c->step[height];
    c->nodes++;
    int rc = node_read(c->store, &c->shape, ptr, height, first_key, end_key, &s->node, &s->view);
    if (rc == OK) {
        s->ptr = *ptr;
        /* Who consumes a run packs its items anew, and relies on their order. */
        rc = c->release ? node_check(&c->shape, &s->view) : OK;
    }
    return rc;
}

static void step_leave(struct cursor *c, uint32_t height) {
    struct cursor_step *s = &c->step[height];
    if (c->release) {
        c->store->free(c->store, &s->ptr);
    }
    buf_unref(s->node);
    s->node = NULL;
}

/* Enters the child at s->index of the step at `height`. */
static int step_down(struct cursor *c, uint32_t height) {
    const struct cursor_step *s = &c->step[height];
    const struct node_view *v = &s->view;
    uint64_t end = s->index + 1 < v->count ? v->keys[s->index + 1] : v->head->end_key;
    if (c->release) {
        node_announce(c->store, v, s->index);
    }
    return step_enter(c, height - 1, &v->children[s->index], &v->keys[s->index], end);
}

/* From a leaf that has no more items to the first item of the next leaf, if that lies before the
 * end: which the parents know, so that nothing is read in vain. */
static int next_leaf(struct cursor *c) {
    uint32_t h = 0;
    for (;;) {
        if (h == c->height) {
            step_leave(c, h); /* the root has been left: that is all */
            return OK;
        }
        step_leave(c, h++);
        struct cursor_step *s = &c->step[h];
        if (s->index + 1 < s->view.count) {
            s->index++;
            if (s->view.keys[s->index] >= c->end) {
                return OK;
            }
            break;
        }
    }
    while (h > 0) {
        int rc = step_down(c, h--);
        if (rc != OK) {
            return rc;
        }
        c->step[h].index = 0;
    }
    return node_seek(&c->step[0].view, 0, &c->pos);
}

/* Makes the item at `pos` the current one, going on to the next leaf where this one has ended. */
static int settle(struct cursor *c) {
    if (c->step[0].node != NULL && c->pos.index == c->step[0].view.count) {
        int rc = next_leaf(c);
        if (rc != OK) {
            return rc;
        }
    }
    if (c->step[0].node == NULL || c->pos.key >= c->end) {
        return OK;
    }
    c->key = c->pos.key;
    c->value = node_value(&c->step[0].view, c->pos.index, &c->extent);
    if (c->value == &c->extent && c->extent.vba == 0 && !c->shape.delta) {
        return ERR_CORRUPT;
    }
    c->valid = true;
    return OK;
}

int cursor_start(struct cursor *c, struct tree *tree, const struct tree_level_phys *level,
                 bool delta, uint64_t key, uint64_t end, bool release) {
    c->store = tree->store;
    c->shape = node_shape_of(tree, delta);
    c->release = release;
    c->height = level->height;
    c->end = end;
    c->nodes = 0;
    c->valid = false;
    for (uint32_t h = 0; h <= TREE_HEIGHT_MAX; h++) {
        c->step[h].node = NULL;
    }
    if (level->present == 0) {
        return OK;
    }
    if (level->height > TREE_HEIGHT_MAX) {
        return ERR_CORRUPT;
    }
    int rc = step_enter(c, level->height, &level->root, NULL, UINT64_MAX);
    for (uint32_t h = level->height; rc == OK && h > 0; h--) {
        c->step[h].index = node_child(&c->step[h].view, key);
        if (c->step[h].view.keys[c->step[h].index] >= end) {
            return OK; /* all of it lies behind the range */
        }
        rc = step_down(c, h);
    }
    if (rc == OK) {
        rc = node_seek(&c->step[0].view, key, &c->pos);
    }
    return rc == OK ? settle(c) : rc;
}

int cursor_next(struct cursor *c) {
    ASSERT(c->valid);
    c->valid = false;
    int rc = node_step(&c->step[0].view, &c->pos);
    return rc == OK ? settle(c) : rc;
}

void cursor_stop(struct cursor *c) {
    for (uint32_t h = 0; h <= TREE_HEIGHT_MAX; h++) {
        buf_unref(c->step[h].node);
        c->step[h].node = NULL;
    }
    c->valid = false;
}

/* ---- ranges ---- */

struct range_visit {
    int (*visit)(void *ctx, uint64_t key, const void *value);
    void *ctx;
};

static int range_pace(struct cursor *c) {
    if (c->nodes >= RANGE_PACE_NODES) {
        c->nodes = 0;
        (void)fiber_pace();
    }
    return cursor_next(c);
}

static int range_of_one(struct tree *tree, const struct tree_level_phys *level, uint64_t key,
                        uint64_t end, const struct range_visit *rv) {
    struct cursor c;
    int rc = cursor_start(&c, tree, level, false, key, end, false);
    while (rc == OK && c.valid) {
        rc = rv->visit(rv->ctx, c.key, c.value);
        if (rc == OK) {
            rc = range_pace(&c);
        }
    }
    cursor_stop(&c);
    return rc;
}

/* One item: the newest of those with the least key; all of that key are stepped over. */
static int range_of_many_step(struct cursor *cursors, uint32_t count, const struct range_visit *rv,
                              bool *ret_more) {
    struct cursor *least = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (cursors[i].valid && (least == NULL || cursors[i].key < least->key)) {
            least = &cursors[i];
        }
    }
    *ret_more = least != NULL;
    if (least == NULL) {
        return OK;
    }
    uint64_t key = least->key;
    int rc = cursor_is_tombstone(least) ? OK : rv->visit(rv->ctx, key, least->value);
    for (uint32_t i = 0; rc == OK && i < count; i++) {
        if (cursors[i].valid && cursors[i].key == key) {
            rc = range_pace(&cursors[i]);
        }
    }
    return rc;
}

static int range_of_many(struct tree *tree, uint64_t key, uint64_t end,
                         const struct range_visit *rv) {
    struct cursor cursors[TREE_LEVELS_MAX];
    /* A checkpoint may install a new root while we wait: all levels must be of one. */
    struct tree_root_phys root = tree->root;
    uint32_t count = root.levels, started = 0;
    int rc = OK;
    while (rc == OK && started < count) {
        rc = cursor_start(&cursors[started], tree, &root.level[started], started + 1 < count, key,
                          end, false);
        started++;
    }
    bool more = rc == OK;
    while (rc == OK && more) {
        rc = range_of_many_step(cursors, count, rv, &more);
    }
    for (uint32_t i = 0; i < started; i++) {
        cursor_stop(&cursors[i]);
    }
    return rc;
}

int tree_range(struct tree *tree, uint64_t key, uint64_t count,
               int (*visit)(void *ctx, uint64_t key, const void *value), void *ctx) {
    struct range_visit rv = {.visit = visit, .ctx = ctx};
    uint64_t end = count > UINT64_MAX - key ? UINT64_MAX : key + count;
    uint32_t levels = tree->root.levels;
    if (levels > TREE_LEVELS_MAX) {
        return ERR_CORRUPT;
    }
    if (levels == 0 || key >= end) {
        return OK;
    }
    /* A checkpoint may install a new root while we wait: this walk is of the one it began with. */
    struct tree_level_phys base = tree->root.level[0];
    return levels == 1 ? range_of_one(tree, &base, key, end, &rv)
                       : range_of_many(tree, key, end, &rv);
}

int tree_find(struct tree *tree, uint64_t key,
              int (*visit)(void *ctx, uint64_t key, const void *value), void *ctx) {
    struct tree_root_phys root = tree->root;
    bool found = false;
    int rc = root.levels > TREE_LEVELS_MAX ? ERR_CORRUPT : OK;
    for (uint32_t i = 0; rc == OK && !found && i < root.levels; i++) {
        struct cursor c;
        rc = cursor_start(&c, tree, &root.level[i], i + 1 < root.levels, key, key + 1, false);
        found = rc == OK && c.valid;
        if (found && !cursor_is_tombstone(&c)) {
            rc = visit(ctx, c.key, c.value);
        }
        cursor_stop(&c);
    }
    return rc;
}
