// SPDX-License-Identifier: MPL-2.0
/* Merging a stream of operations into one level of a tree.
 *
 * The old level is walked in key order from its root, together with the operations. A child whose
 * key range holds no operation is passed on as it is, unread; every other one is read, once, and
 * its items or children go, changed, to the output (build.h), which packs them into new nodes. A
 * node whose content went to the output is freed. What is held at any time is one path of old
 * nodes and what the output holds back: that does not depend on the size of the batch.
 *
 * Three cases keep the cost low:
 *   - overwriting blocks of a leaf, by far the most common: a copy of the leaf is patched in place
 *     as long as the operations put what is there already and the values fit; the copy becomes
 *     the new leaf without being unpacked;
 *   - deleting where nothing is (UNMAP of what was never written): the nodes on the way are read,
 *     found unchanged, and kept;
 *   - a part of a tree that goes away takes its parents with it, and a root with one child gives
 *     way to that child. */
#include "tree/merge.h"

#include "base/assert.h"
#include "base/mem.h"
#include "env/fiber.h"
#include "tree/build.h"

struct merge {
    struct tree_store *store;
    struct feed *feed;
    struct node_shape shape;
    struct build out;
    bool dense;
    uint64_t tombstones;
    uint64_t items_put, items_gone, nodes_freed;
};

struct merge_leaf {
    const struct tree_ptr_phys *ptr;
    struct buf *node; /* as read, or the patched copy */
    struct node_view view;
    bool copied;
};

static void node_freed(struct merge *m, const struct tree_ptr_phys *ptr) {
    m->store->free(m->store, ptr);
    m->nodes_freed++;
}

static void item_gone(struct merge *m, const struct node_view *v, const struct node_pos *pos) {
    struct tree_extent scratch;
    const void *value = node_value(v, pos->index, &scratch);
    bool tombstone = value == &scratch && scratch.vba == 0;
    m->items_gone++;
    if (!tombstone && m->feed->batch->freed != NULL) {
        m->feed->batch->freed(m->feed->batch->ctx, pos->key, value);
    }
}

/* ---- leaves ---- */

/* Puts a value in the place of another in a copy of the leaf. False if its packing has no room. */
static bool leaf_patch_one(struct merge *m, struct merge_leaf *leaf, const struct node_pos *pos) {
    if (!leaf->copied) {
        struct buf *copy = buf_new(m->shape.node_bytes);
        memcpy(copy->data, leaf->node->data, m->shape.node_bytes);
        buf_unref(leaf->node);
        leaf->node = copy;
        leaf->copied = true;
        int rc = node_open(&m->shape, copy->data, &leaf->view);
        ASSERT_EQ(rc, OK);
    }
    struct tree_extent scratch;
    union {
        struct tree_extent extent;
        uint8_t bytes[TREE_VALUE_MAX];
    } old;
    memcpy(&old, node_value(&leaf->view, pos->index, &scratch), m->shape.value_bytes);
    if (!node_patch(&leaf->view, pos->index, m->feed->value)) {
        return false;
    }
    m->items_put++;
    m->items_gone++;
    if (m->feed->batch->freed != NULL) {
        m->feed->batch->freed(m->feed->batch->ctx, pos->key, &old);
    }
    return true;
}

/* Operations before `hi`, as long as they leave the keys of the leaf as they are. */
static int leaf_patch(struct merge *m, struct merge_leaf *leaf, uint64_t hi) {
    struct feed *f = m->feed;
    while (f->valid && f->key < hi) {
        struct node_pos pos;
        int rc = node_seek(&leaf->view, f->key, &pos);
        if (rc != OK) {
            return rc;
        }
        bool found = pos.index < leaf->view.count && pos.key < f->end;
        if (f->kind == TREE_DELETE) {
            if (found) {
                return OK;
            }
            rc = feed_skip_to(f, hi);
        } else {
            if (!found || !leaf_patch_one(m, leaf, &pos)) {
                return OK;
            }
            rc = feed_next(f);
        }
        if (rc != OK) {
            return rc;
        }
    }
    return OK;
}

/* Operations before `hi`, item by item into the output. */
static int leaf_pour(struct merge *m, const struct merge_leaf *leaf, uint64_t hi) {
    struct feed *f = m->feed;
    const struct node_view *v = &leaf->view;
    struct node_pos pos;
    int rc = node_seek(v, 0, &pos);
    while (rc == OK && f->valid && f->key < hi) {
        rc = build_items(&m->out, v, &pos, f->key);
        while (rc == OK && pos.index < v->count && pos.key < f->end) {
            item_gone(m, v, &pos);
            rc = node_step(v, &pos);
        }
        if (rc == OK && f->kind == TREE_PUT) {
            m->items_put++;
            rc = build_item(&m->out, f->key, f->value);
        }
        if (rc == OK) {
            rc = feed_skip_to(f, hi);
        }
    }
    return rc == OK ? build_items(&m->out, v, &pos, UINT64_MAX) : rc;
}

static bool leaf_is_decent(const struct merge *m, const struct merge_leaf *leaf) {
    return (leaf->view.bytes - NODE_HEAD_BYTES) * 3 >= (m->shape.node_bytes - NODE_HEAD_BYTES) * 2;
}

static int merge_leaf(struct merge *m, struct merge_leaf *leaf, uint64_t hi) {
    int rc = leaf_patch(m, leaf, hi);
    bool done = !m->feed->valid || m->feed->key >= hi, empty = false;
    if (rc == OK && done && (!leaf->copied || leaf_is_decent(m, leaf))) {
        rc = build_settle(&m->out, 0, &empty);
    }
    if (rc == OK && empty && !leaf->copied) {
        const struct node_phys *h = leaf->view.head;
        return build_keep(&m->out, 0, h->first_key, h->end_key, leaf->ptr);
    }
    if (rc == OK) {
        rc = empty ? build_leaf(&m->out, leaf->node) : leaf_pour(m, leaf, hi);
    }
    if (rc == OK) {
        node_freed(m, leaf->ptr);
    }
    return rc;
}

/* ---- the way down ---- */

static int merge_children(struct merge *m, const struct tree_ptr_phys *ptr,
                          const struct node_view *v, uint64_t hi);

/* `hi` is where the next node of this height begins: operations before it are this one's. */
static int merge_node(struct merge *m, const struct tree_ptr_phys *ptr, uint32_t height,
                      const uint64_t *first_key, uint64_t end_key, uint64_t hi) {
    struct merge_leaf leaf = {.ptr = ptr};
    int rc =
        node_read(m->store, &m->shape, ptr, height, first_key, end_key, &leaf.node, &leaf.view);
    if (rc != OK) {
        return rc;
    }
    rc = node_check(&m->shape, &leaf.view);
    if (rc == OK) {
        rc = height == 0 ? merge_leaf(m, &leaf, hi) : merge_children(m, ptr, &leaf.view, hi);
    }
    buf_unref(leaf.node);
    (void)fiber_pace();
    return rc;
}

static int merge_child(struct merge *m, const struct node_view *v, uint32_t i, uint64_t hi) {
    uint32_t height = v->head->height - 1u;
    uint64_t end_key = i + 1 < v->count ? v->keys[i + 1] : v->head->end_key;
    if (i + 1 < v->count) {
        hi = v->keys[i + 1];
    }
    if (!m->feed->valid || m->feed->key >= hi) {
        bool empty;
        int rc = build_settle(&m->out, height, &empty);
        if (rc != OK) {
            return rc;
        }
        if (empty) {
            return build_keep(&m->out, height, v->keys[i], end_key, &v->children[i]);
        }
    }
    return merge_node(m, &v->children[i], height, &v->keys[i], end_key, hi);
}

static int merge_children(struct merge *m, const struct tree_ptr_phys *ptr,
                          const struct node_view *v, uint64_t hi) {
    const struct node_phys *h = v->head;
    bool empty = build_is_empty(&m->out, h->height);
    uint64_t freed = m->nodes_freed;
    for (uint32_t i = 0; i < v->count; i++) {
        if (m->dense) {
            node_announce(m->store, v, i);
        }
        int rc = merge_child(m, v, i, hi);
        if (rc != OK) {
            return rc;
        }
    }
    if (empty && freed == m->nodes_freed) {
        /* Nothing below has changed: what lies in the output is this node's children. */
        build_forget(&m->out, h->height, v->count);
        return build_keep(&m->out, h->height, h->first_key, h->end_key, ptr);
    }
    node_freed(m, ptr);
    return OK;
}

/* A root that was there before may have one child only. */
static int merge_collapse(struct merge *m, struct tree_level_phys *level) {
    while (level->present != 0 && level->height > 0) {
        struct buf *node;
        struct node_view v;
        int rc = node_read(m->store, &m->shape, &level->root, level->height, NULL, UINT64_MAX,
                           &node, &v);
        if (rc != OK) {
            return rc;
        }
        bool one = v.count == 1;
        if (one) {
            node_freed(m, &level->root);
            level->root = v.children[0];
            level->height--;
        }
        buf_unref(node);
        if (!one) {
            break;
        }
    }
    return OK;
}

static struct merge *merge_new(struct tree *tree, struct feed *feed, bool delta) {
    struct merge *m = MEM_NEW(struct merge);
    m->store = tree->store;
    m->feed = feed;
    m->shape = node_shape_of(tree, delta);
    build_init(&m->out, tree, delta);
    return m;
}

/* Counts, exactly: they are checked by whoever walks the tree. */
static int merge_count(const struct merge *m, const struct tree_level_phys *old,
                       struct tree_level_phys *level) {
    uint64_t items = old->items + m->items_put, nodes = old->nodes + m->out.nodes_written;
    if (m->items_gone > items || m->nodes_freed > nodes) {
        return ERR_CORRUPT;
    }
    level->items = items - m->items_gone;
    level->nodes = nodes - m->nodes_freed;
    return (level->items == 0) == (level->present == 0) ? OK : ERR_CORRUPT;
}

/* Operations on a level that holds nothing. */
static int merge_into_nothing(struct merge *m) {
    int rc = OK;
    while (rc == OK && m->feed->valid) {
        if (m->feed->kind == TREE_PUT) {
            m->items_put++;
            rc = build_item(&m->out, m->feed->key, m->feed->value);
        }
        if (rc == OK) {
            rc = feed_next(m->feed);
        }
        (void)fiber_pace();
    }
    return rc;
}

int merge_level(struct tree *tree, struct feed *feed, const struct tree_level_phys *level,
                const struct merge_options *options, struct tree_level_phys *ret_level) {
    if (!feed->valid) {
        *ret_level = *level;
        return OK;
    }
    if (level->present != 0 && level->height > TREE_HEIGHT_MAX) {
        return ERR_CORRUPT;
    }
    struct merge *m = merge_new(tree, feed, options->delta);
    m->dense = options->dense;
    struct tree_level_phys result = {0};
    int rc = level->present != 0
                 ? merge_node(m, &level->root, level->height, NULL, UINT64_MAX, UINT64_MAX)
                 : merge_into_nothing(m);
    if (rc == OK) {
        rc = build_finish(&m->out, &result);
    }
    if (rc == OK && m->out.nodes_written == 0 && m->nodes_freed > 0) {
        rc = merge_collapse(m, &result);
    }
    if (rc == OK) {
        rc = merge_count(m, level, &result);
    }
    if (rc == OK) {
        *ret_level = result;
    }
    build_done(&m->out);
    mem_free(m);
    return rc;
}

/* ---- delta runs ---- */

static void ranges_add(struct merge_ranges *ranges, uint64_t key, uint64_t end) {
    if (ranges->count > 0 && ranges->range[ranges->count - 1].end == key) {
        ranges->range[ranges->count - 1].end = end;
        return;
    }
    if (ranges->count == ranges->room) {
        ranges->room = ranges->room == 0 ? 16 : ranges->room * 2;
        ranges->range = mem_realloc(ranges->range, (size_t)ranges->room * sizeof(ranges->range[0]));
    }
    ranges->range[ranges->count++] = (struct merge_range){.key = key, .end = end};
}

static int run_delete(struct merge *m, uint64_t wide_keys, struct merge_ranges *wide) {
    const struct feed *f = m->feed;
    if (wide == NULL && f->end - f->key > wide_keys - m->tombstones) {
        return ERR_LIMIT;
    }
    if (wide != NULL && f->end - f->key > wide_keys) {
        ranges_add(wide, f->key, f->end);
        return OK;
    }
    m->tombstones += f->end - f->key;
    for (uint64_t key = f->key; key < f->end; key++) {
        int rc = build_tombstone(&m->out, key);
        if (rc != OK) {
            return rc;
        }
        m->items_put++;
    }
    return OK;
}

int merge_run(struct tree *tree, struct feed *feed, uint64_t wide_keys, struct merge_ranges *wide,
              struct tree_level_phys *ret_level) {
    struct merge *m = merge_new(tree, feed, true);
    struct tree_level_phys result = {0};
    int rc = OK;
    while (rc == OK && feed->valid) {
        if (feed->kind == TREE_PUT) {
            m->items_put++;
            rc = build_item(&m->out, feed->key, feed->value);
        } else {
            rc = run_delete(m, wide_keys, wide);
        }
        if (rc == OK) {
            rc = feed_next(feed);
        }
        (void)fiber_pace();
    }
    if (rc == OK) {
        rc = build_finish(&m->out, &result);
    }
    if (rc == OK) {
        rc = merge_count(m, &(struct tree_level_phys){0}, &result);
    }
    if (rc == OK) {
        *ret_level = result;
    }
    build_done(&m->out);
    mem_free(m);
    return rc;
}
