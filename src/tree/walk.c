// SPDX-License-Identifier: MPL-2.0
/* Walks over whole trees: to check them, and to move nodes.
 *
 * A walk over hostile bytes ends: heights fall by one at every step, and as a child must begin at
 * the key its parent gives and end before the next one, no node can be met twice in a level but
 * along a chain of single children. */
#include "base/mem.h"
#include "env/fiber.h"
#include "tree/cursor.h"

/* ---- checking ---- */

struct walk {
    const struct tree_walk *calls;
    struct tree_store *store;
    struct node_shape shape;
    uint64_t items, nodes;
    int error; /* the first one */
};

static void walk_bad(struct walk *w, const struct tree_ptr_phys *ptr, int error) {
    if (w->error == OK) {
        w->error = error;
    }
    if (w->calls->bad != NULL) {
        w->calls->bad(w->calls->ctx, ptr, error);
    }
}

static void walk_items(struct walk *w, const struct tree_ptr_phys *ptr, const struct node_view *v) {
    struct node_pos pos;
    int rc = node_seek(v, 0, &pos);
    while (rc == OK && pos.index < v->count) {
        struct tree_extent scratch;
        const void *value = node_value(v, pos.index, &scratch);
        bool tombstone = value == &scratch && scratch.vba == 0;
        if (!tombstone && w->calls->item != NULL) {
            w->calls->item(w->calls->ctx, pos.key, value);
        }
        rc = node_step(v, &pos);
    }
    w->items += v->count;
    if (rc != OK) {
        walk_bad(w, ptr, rc);
    }
}

static void walk_node(struct walk *w, const struct tree_ptr_phys *ptr, uint32_t height,
                      const uint64_t *first_key, uint64_t end_key) {
    struct buf *node;
    struct node_view v;
    (void)fiber_pace();
    if (ptr->reserved != 0) {
        walk_bad(w, ptr, ERR_CORRUPT);
        return;
    }
    int rc = node_read(w->store, &w->shape, ptr, height, first_key, end_key, &node, &v);
    if (rc != OK) {
        walk_bad(w, ptr, rc);
        return;
    }
    rc = node_check(&w->shape, &v);
    if (rc != OK) {
        walk_bad(w, ptr, rc);
        buf_unref(node);
        return;
    }
    w->nodes++;
    if (w->calls->node != NULL) {
        w->calls->node(w->calls->ctx, ptr, height);
    }
    if (height == 0) {
        walk_items(w, ptr, &v);
    }
    for (uint32_t i = 0; height > 0 && i < v.count; i++) {
        uint64_t end = i + 1 < v.count ? v.keys[i + 1] : v.head->end_key;
        node_announce(w->store, &v, i);
        walk_node(w, &v.children[i], height - 1, &v.keys[i], end);
    }
    buf_unref(node);
}

static int walk_level(struct tree *tree, const struct tree_walk *calls,
                      const struct tree_level_phys *level, bool delta) {
    struct walk w = {.calls = calls, .store = tree->store, .shape = node_shape_of(tree, delta)};
    if (level->present > 1 || level->height > TREE_HEIGHT_MAX) {
        walk_bad(&w, &level->root, ERR_CORRUPT);
        return w.error;
    }
    if (level->present != 0) {
        walk_node(&w, &level->root, level->height, NULL, UINT64_MAX);
    }
    if (w.error == OK && (w.items != level->items || w.nodes != level->nodes)) {
        walk_bad(&w, &level->root, ERR_CORRUPT);
    }
    return w.error;
}

int tree_walk(struct tree *tree, const struct tree_walk *walk) {
    const struct tree_root_phys root = tree->root;
    if (root.levels > TREE_LEVELS_MAX) {
        return ERR_CORRUPT;
    }
    int error = OK;
    for (uint32_t i = 0; i < root.levels; i++) {
        int rc = walk_level(tree, walk, &root.level[i], i + 1 < root.levels);
        error = error == OK ? rc : error;
    }
    return error;
}

/* ---- moving ---- */

struct rewrite {
    struct tree_store *store;
    struct node_shape shape;
    bool (*must_move)(void *ctx, const struct tree_ptr_phys *ptr);
    void *ctx;
};

static int rewrite_node(struct rewrite *rw, struct tree_ptr_phys *ptr, uint32_t height,
                        const uint64_t *first_key, uint64_t end_key, bool *ret_moved);

/* The children, whose new places go into a copy of the node, made when the first of them moves. */
static int rewrite_children(struct rewrite *rw, const struct node_view *v, struct buf *node,
                            struct buf **ret_copy) {
    for (uint32_t i = 0; i < v->count; i++) {
        struct tree_ptr_phys child = v->children[i];
        uint64_t end = i + 1 < v->count ? v->keys[i + 1] : v->head->end_key;
        bool moved;
        int rc = rewrite_node(rw, &child, v->head->height - 1u, &v->keys[i], end, &moved);
        if (rc != OK) {
            return rc;
        }
        if (moved && *ret_copy == NULL) {
            *ret_copy = buf_new(rw->shape.node_bytes);
            memcpy((*ret_copy)->data, node->data, rw->shape.node_bytes);
        }
        if (moved) {
            size_t at = (size_t)((const uint8_t *)&v->children[i] - node->data);
            memcpy((*ret_copy)->data + at, &child, sizeof(child));
        }
    }
    return OK;
}

static int rewrite_node(struct rewrite *rw, struct tree_ptr_phys *ptr, uint32_t height,
                        const uint64_t *first_key, uint64_t end_key, bool *ret_moved) {
    bool move = rw->must_move(rw->ctx, ptr);
    *ret_moved = false;
    if (height == 0 && !move) {
        return OK; /* its parent has said all about it that matters */
    }
    struct buf *node, *copy = NULL;
    struct node_view v;
    int rc = node_read(rw->store, &rw->shape, ptr, height, first_key, end_key, &node, &v);
    if (rc != OK) {
        return rc;
    }
    (void)fiber_pace();
    if (height > 0) {
        rc = rewrite_children(rw, &v, node, &copy);
    }
    if (rc == OK && (move || copy != NULL)) {
        struct tree_ptr_phys place = {0};
        if (copy == NULL) {
            /* A buffer of its own: the old one stays what the old address holds. */
            copy = buf_new(rw->shape.node_bytes);
            memcpy(copy->data, node->data, rw->shape.node_bytes);
        }
        rc = rw->store->write(rw->store, copy, &place);
        if (rc == OK) {
            rw->store->free(rw->store, ptr);
            *ptr = place;
            ptr->reserved = 0;
            *ret_moved = true;
        }
    }
    buf_unref(copy);
    buf_unref(node);
    return rc;
}

int tree_rewrite(struct tree *tree, bool (*must_move)(void *ctx, const struct tree_ptr_phys *ptr),
                 void *ctx, struct tree_root_phys *ret_root) {
    struct tree_root_phys root = tree->root;
    if (root.levels > TREE_LEVELS_MAX) {
        return ERR_CORRUPT;
    }
    for (uint32_t i = 0; i < root.levels; i++) {
        struct tree_level_phys *level = &root.level[i];
        struct rewrite rw = {.store = tree->store,
                             .shape = node_shape_of(tree, i + 1 < root.levels),
                             .must_move = must_move,
                             .ctx = ctx};
        if (level->present == 0) {
            continue;
        }
        bool moved;
        int rc = level->height > TREE_HEIGHT_MAX
                     ? ERR_CORRUPT
                     : rewrite_node(&rw, &level->root, level->height, NULL, UINT64_MAX, &moved);
        if (rc != OK) {
            return rc;
        }
    }
    *ret_root = root;
    return OK;
}
