// SPDX-License-Identifier: MPL-2.0
/* Tree nodes as read from a disk.
 *
 * The input is a node. It is validated as it is; then lookups, walks and merges are run over a
 * tree whose root it is, with the fields that would end the matter at once set right (length,
 * owner, kind, checksum). Whatever the bytes: no access outside the node, no endless loop, no
 * assert; and of a node that is called valid every item can be found by its key. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/math.h"
#include "env/fiber.h"
#include "tree/node.h"
#include "tree/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { OWNER = 3, ADDRESS_INPUT = 1 };

bool fiber_pace(void) {
    return false;
}

static struct buf *input;

/* Every address holds the input: a node below itself, if it says so. */
static int input_read(struct tree_store *store, const struct tree_ptr_phys *ptr,
                      struct buf **ret_node) {
    (void)store;
    (void)ptr;
    *ret_node = buf_ref(input);
    return OK;
}

static bool input_is_cached(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    (void)store;
    return ptr->address % 2 == 0;
}

/* What a merge makes of bad input must still be good. */
static int output_write(struct tree_store *store, struct buf *node, struct tree_ptr_phys *ret_ptr) {
    const struct node_phys *h = (const struct node_phys *)(const void *)node->data;
    int rc = tree_node_validate(node->data, store->node_bytes, (enum tree_kind)h->kind, OWNER);
    ASSERT_EQ(rc, OK);
    *ret_ptr = (struct tree_ptr_phys){.address = ADDRESS_INPUT};
    return OK;
}

static void ignore_ptr(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    (void)store;
    (void)ptr;
}

static int count_item(void *ctx, uint64_t key, const void *value) {
    uint64_t *sum = ctx;
    uint8_t first;
    memcpy(&first, value, 1);
    *sum += key + first;
    return OK;
}

struct ops {
    uint64_t key[4];
    uint32_t at;
    uint8_t value[TREE_VALUE_MAX];
};

static bool ops_next(void *ctx, struct tree_op *ret_op) {
    struct ops *ops = ctx;
    if (ops->at == ARRAY_COUNT(ops->key)) {
        return false;
    }
    bool put = ops->at % 2 == 0;
    *ret_op = (struct tree_op){.kind = put ? TREE_PUT : TREE_DELETE,
                               .key = ops->key[ops->at++],
                               .count = 1,
                               .value = ops->value};
    return true;
}

static void ops_freed(void *ctx, uint64_t key, const void *value) {
    uint64_t sum = 0;
    (void)ctx;
    (void)count_item(&sum, key, value);
}

static void run_tree(struct tree *tree, uint64_t first, uint64_t last) {
    uint64_t sum = 0;
    int rc = tree_range(tree, 0, UINT64_MAX, count_item, &sum);
    for (uint64_t i = 0; i < 8; i++) {
        rc = tree_range(tree, first + (last - first) / 8 * i, 1 + i, count_item, &sum);
    }
    rc = tree_walk(tree, &(struct tree_walk){0});
    for (uint32_t delta = 0; delta < 2; delta++) {
        struct ops ops = {.key = {first / 2, first / 2 + 1, first / 2 + 2 + (last - first) / 4,
                                  first / 2 + 3 + (last - first) / 2},
                          .value = {1, 2, 3}};
        struct tree_batch batch = {.next = ops_next,
                                   .freed = ops_freed,
                                   .ctx = &ops,
                                   .put_count = 2,
                                   .delta_allowed = delta != 0};
        struct tree_root_phys root;
        rc = tree_merge(tree, &batch, &root);
    }
    (void)rc;
}

static void run_valid(const struct tree *tree, bool delta) {
    struct node_shape shape = node_shape_of(tree, delta);
    struct node_view v;
    struct node_pos pos, found;
    int rc = node_open(&shape, input->data, &v);
    ASSERT_EQ(rc, OK);
    rc = node_seek(&v, 0, &pos);
    for (uint32_t i = 0; v.head->height == 0 && i < v.count; i++) {
        ASSERT_EQ(rc, OK);
        ASSERT_EQ(pos.index, i);
        rc = node_seek(&v, pos.key, &found);
        ASSERT_EQ(rc, OK);
        ASSERT_EQ(found.index, i);
        ASSERT_LT(pos.key, v.head->end_key);
        rc = node_step(&v, &pos);
    }
    ASSERT_EQ(rc, OK);
}

static void run_as_it_is(const uint8_t *data, size_t bytes) {
    uint64_t *aligned = malloc(bytes);
    if (aligned == NULL) {
        abort();
    }
    memcpy(aligned, data, bytes);
    int rc = tree_node_validate(aligned, (uint32_t)bytes, TREE_EXTENTS, OWNER);
    rc = tree_node_validate(aligned, (uint32_t)bytes, TREE_MAP, OWNER);
    (void)rc;
    free(aligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct node_phys h;
    bytes &= ~(size_t)7;
    if (bytes < 512 || bytes > 16384) {
        return 0;
    }
    run_as_it_is(data, bytes);
    memcpy(&h, data, sizeof(h));
    h.header = (struct header_phys){
        .type = PHYS_NODE, .version = NODE_VERSION, .length_bytes = (uint32_t)bytes};
    h.owner = OWNER;
    h.kind = h.kind % 2 == 0 ? TREE_MAP : TREE_EXTENTS;
    input = buf_new(bytes);
    memcpy(input->data, data, bytes);
    memcpy(input->data, &h, sizeof(h));
    bool delta = h.flags == NODE_FLAG_DELTA;
    uint32_t value_bytes = h.height == 0 && h.value_bytes > 0 ? h.value_bytes : 88u;
    struct tree_store store = {.read = input_read,
                               .is_cached = input_is_cached,
                               .write = output_write,
                               .free = ignore_ptr,
                               .node_bytes = (uint32_t)bytes};
    struct tree tree = {.kind = (enum tree_kind)h.kind,
                        .value_bytes = h.kind == TREE_EXTENTS
                                           ? sizeof(struct tree_extent)
                                           : MIN(value_bytes, TREE_VALUE_MAX + 0u),
                        .owner = OWNER,
                        .store = &store};
    tree.root.levels = delta ? 2 : 1;
    tree.root.level[0] = (struct tree_level_phys){.root = {.address = ADDRESS_INPUT},
                                                  .height = h.height % (TREE_HEIGHT_MAX + 2),
                                                  .present = 1,
                                                  .items = h.count,
                                                  .nodes = 1 + h.count % 100};
    run_tree(&tree, h.first_key, MAX(h.first_key, h.end_key));
    int rc = tree_node_validate(input->data, (uint32_t)bytes, tree.kind, OWNER);
    if (rc == OK) {
        run_valid(&tree, delta);
    }
    buf_unref(input);
    return 0;
}
