// SPDX-License-Identifier: MPL-2.0
#include "tree/feed.h"

#include "base/assert.h"

/* Keys end at UINT64_MAX - 1, so that a key + 1 always exists. */
static void batch_pull(struct feed *f) {
    const struct tree_batch *b = f->batch;
    for (;;) {
        f->batch_valid = b->next(b->ctx, &f->batch_op);
        if (!f->batch_valid) {
            return;
        }
        struct tree_op *op = &f->batch_op;
        ASSERT_LE(f->batch_floor, op->key);
        if (op->kind == TREE_PUT) {
            ASSERT_LT(op->key, UINT64_MAX);
            f->batch_end = op->key + 1;
        } else {
            f->batch_end = op->count > UINT64_MAX - op->key ? UINT64_MAX : op->key + op->count;
        }
        if (f->batch_end > op->key) { /* not an empty range */
            f->batch_floor = f->batch_end;
            return;
        }
    }
}

/* Drops the current item of a run because something newer takes its place. */
static int run_overtaken(struct feed *f, struct cursor *c) {
    if (!cursor_is_tombstone(c) && f->batch->freed != NULL) {
        f->batch->freed(f->batch->ctx, c->key, c->value);
    }
    return cursor_next(c);
}

/* Drops what the runs from number `from` on hold before `end`. */
static int runs_overtaken(struct feed *f, uint32_t from, uint64_t end) {
    for (uint32_t i = from; i < f->runs; i++) {
        struct cursor *c = &f->run[i];
        while (c->valid && c->key < end) {
            int rc = run_overtaken(f, c);
            if (rc != OK) {
                return rc;
            }
        }
    }
    return OK;
}

static int feed_settle(struct feed *f) {
    struct cursor *least = NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; i < f->runs; i++) {
        if (f->run[i].valid && (least == NULL || f->run[i].key < least->key)) {
            least = &f->run[i];
            number = i;
        }
    }
    f->valid = true;
    f->source = NULL;
    if (least != NULL && (!f->batch_valid || least->key < f->batch_op.key)) {
        f->source = least;
        f->kind = cursor_is_tombstone(least) ? TREE_DELETE : TREE_PUT;
        f->key = least->key;
        f->end = f->key + 1;
        f->value = least->value;
        return runs_overtaken(f, number + 1, f->end);
    }
    if (f->batch_valid) {
        f->kind = f->batch_op.kind;
        f->key = f->batch_op.key;
        f->end = f->batch_end;
        f->value = f->batch_op.value;
        return runs_overtaken(f, 0, f->end);
    }
    f->valid = false;
    return OK;
}

int feed_start(struct feed *f, struct tree *tree, const struct tree_root_phys *root, uint32_t runs,
               const struct tree_batch *batch) {
    f->batch = batch;
    f->batch_floor = 0;
    f->valid = false;
    f->runs = 0;
    while (f->runs < runs) {
        struct cursor *c = &f->run[f->runs];
        int rc = cursor_start(c, tree, &root->level[f->runs++], true, 0, UINT64_MAX, true);
        if (rc != OK) {
            return rc;
        }
    }
    batch_pull(f);
    return feed_settle(f);
}

int feed_next(struct feed *f) {
    ASSERT(f->valid);
    if (f->source == NULL) {
        batch_pull(f);
    } else {
        int rc = cursor_next(f->source);
        if (rc != OK) {
            return rc;
        }
    }
    return feed_settle(f);
}

int feed_skip_to(struct feed *f, uint64_t key) {
    if (f->end <= key) {
        return feed_next(f);
    }
    f->key = key;
    return OK;
}

void feed_stop(struct feed *f) {
    for (uint32_t i = 0; i < f->runs; i++) {
        cursor_stop(&f->run[i]);
    }
    f->runs = 0;
}
