// SPDX-License-Identifier: MPL-2.0
/* The catalog as read from a metadata segment, and what follows from it.
 *
 * The input is a catalog. It is decoded as it is, and again with type, version, length and checksum
 * set right. What is accepted is written again and must then decode to the same; and each volume's
 * tree is read, of which no node is there: roots are data from disk as well. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "engine_shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int ignore_item(void *ctx, uint64_t key, const void *value) {
    (void)ctx;
    (void)key;
    (void)value;
    return OK;
}

struct reading {
    struct engine *engine;
    bool done;
};

static void read_trees(void *arg) {
    struct reading *reading = arg;
    LIST_FOR_EACH(link, &reading->engine->volumes) {
        struct volume *v = CONTAINER_OF(link, struct volume, link);
        int error = tree_range(&v->tree, 0, v->phys.size_bytes / BLOCK_BYTES, ignore_item, NULL);
        bool empty = true;
        for (uint32_t i = 0; i < v->tree.root.levels; i++) {
            empty = empty && v->tree.root.level[i].present == 0;
        }
        ASSERT(empty || error != OK);
        error = tree_walk(&v->tree, &(struct tree_walk){0});
        ASSERT(empty || error != OK);
    }
    reading->done = true;
}

static bool is_done(void *ctx) {
    return ((struct reading *)ctx)->done;
}

/* Bytes of the catalog written from what was decoded; the caller's to unref. */
static struct buf *decoded_and_written(struct pool *pool, const void *bytes, size_t length,
                                       uint32_t *ret_bytes) {
    struct engine *e = shell_engine_new(pool);
    struct buf *out = NULL;
    int error = catalog_decode(e, bytes, length);
    if (error == OK) {
        struct reading reading = {.engine = e};
        out = catalog_encode(e, ret_bytes);
        fiber_start(e->env, read_trees, &reading);
        enum sim_stop stop = env_sim_run_until(e->env, UINT64_MAX, is_done, &reading);
        ASSERT_EQ(stop, SIM_DONE);
    }
    engine_free(e);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct pool *pool = calloc(1, sizeof(*pool));
    uint8_t *in = malloc(bytes + 1); /* aligned */
    ASSERT(pool != NULL && in != NULL);
    shell_pool_init(pool, 1);
    memcpy(in, data, bytes);
    uint32_t first_bytes = 0, second_bytes = 0;
    struct buf *first = decoded_and_written(pool, in, bytes, &first_bytes);
    buf_unref(first);
    if (bytes >= 2 * sizeof(struct header_phys)) {
        phys_seal(in, PHYS_CATALOG, 1, (uint32_t)bytes, 0);
        first = decoded_and_written(pool, in, bytes, &first_bytes);
        if (first != NULL) {
            struct buf *second = decoded_and_written(pool, first->data, first_bytes, &second_bytes);
            ASSERT(second != NULL);
            ASSERT_EQ(first_bytes, second_bytes);
            ASSERT_EQ(memcmp(first->data, second->data, first_bytes), 0);
            buf_unref(second);
            buf_unref(first);
        }
    }
    free(in);
    free(pool);
    return 0;
}
