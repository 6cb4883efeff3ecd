// SPDX-License-Identifier: MPL-2.0
/* What test_tree.c stands on: a store in memory that knows which nodes live, and a world: a tree,
 * its model (a plain array), and the fate of every value ever put, each of which carries a number
 * of its own. */
#ifndef HOLDFAST_TESTS_TREE_WORLD_H
#define HOLDFAST_TESTS_TREE_WORLD_H

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "codec/crc.h"
#include "tree/tree.h"

/* ---- a store in memory ---- */

enum { NODES_MAX = 1 << 20 };

struct memory_store {
    struct tree_store store;
    struct buf **node; /* by address; NULL: not live */
    uint8_t *pending;  /* freed by the merge under way */
    uint64_t next, committed_next;
    uint64_t reads, writes, frees, announced;
    uint64_t fail_read, fail_write; /* 0: never; n: the n-th from now */
    uint32_t cached_pct;
    bool verify;
};

static int memory_read(struct tree_store *store, const struct tree_ptr_phys *ptr,
                       struct buf **ret_node) {
    struct memory_store *m = (struct memory_store *)store;
    m->reads++;
    if (m->fail_read != 0 && --m->fail_read == 0) {
        return ERR_IO;
    }
    if (ptr->address >= m->next || m->node[ptr->address] == NULL) {
        return ERR_DATA_LOSS;
    }
    struct buf *node = m->node[ptr->address];
    if (m->verify && crc32c_seeded(ptr->address, node->data, store->node_bytes) != ptr->crc) {
        return ERR_CHECKSUM;
    }
    *ret_node = buf_ref(node);
    return OK;
}

static bool memory_is_cached(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct memory_store *m = (struct memory_store *)store;
    return ptr->address * 2654435761u / 256 % 100 < m->cached_pct;
}

static int memory_write(struct tree_store *store, struct buf *node, struct tree_ptr_phys *ret_ptr) {
    struct memory_store *m = (struct memory_store *)store;
    m->writes++;
    if (m->fail_write != 0 && --m->fail_write == 0) {
        return ERR_NO_SPACE;
    }
    assert_true(m->next < NODES_MAX);
    uint64_t address = m->next++;
    m->node[address] = buf_ref(node);
    *ret_ptr = (struct tree_ptr_phys){.address = address};
    if (m->verify) {
        ret_ptr->crc = crc32c_seeded(address, node->data, store->node_bytes);
    }
    return OK;
}

static void memory_free_node(struct tree_store *store, const struct tree_ptr_phys *ptr) {
    struct memory_store *m = (struct memory_store *)store;
    m->frees++;
    assert_true(ptr->address < m->committed_next); /* never one written by this merge */
    assert_non_null(m->node[ptr->address]);
    assert_int_equal(m->pending[ptr->address], 0); /* once */
    m->pending[ptr->address] = 1;
}

static void memory_prefetch(struct tree_store *store, const struct tree_ptr_phys *ptrs,
                            uint32_t count) {
    struct memory_store *m = (struct memory_store *)store;
    m->announced += count;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(!m->verify || (ptrs[i].address < m->next && m->node[ptrs[i].address] != NULL));
    }
}

static void memory_init(struct memory_store *m, uint32_t node_bytes) {
    *m = (struct memory_store){
        .store = {.read = memory_read,
                  .is_cached = memory_is_cached,
                  .write = memory_write,
                  .free = memory_free_node,
                  .prefetch = memory_prefetch,
                  .node_bytes = node_bytes},
        .next = 1,
        .committed_next = 1,
        .verify = true,
    };
    m->node = MEM_NEW_ARRAY(struct buf *, NODES_MAX);
    m->pending = mem_alloc(NODES_MAX);
}

/* What the caller of a merge does with it. */
static void memory_end(struct memory_store *m, bool commit) {
    uint64_t first = commit ? 1 : m->committed_next;
    for (uint64_t i = first; i < m->next; i++) {
        if (m->node[i] != NULL && (!commit || m->pending[i])) {
            buf_unref(m->node[i]);
            m->node[i] = NULL;
        }
    }
    memset(m->pending, 0, m->next);
    m->next = commit ? m->next : m->committed_next;
    m->committed_next = m->next;
}

static void memory_done(struct memory_store *m) {
    for (uint64_t i = 1; i < m->next; i++) {
        buf_unref(m->node[i]);
    }
    mem_free(m->node);
    mem_free(m->pending);
}

/* ---- a world: a tree, its model, and the numbers of all values ---- */

enum { SLOTS_MAX = 1 << 19, IDS_MAX = 1 << 22, MAP_VALUE = 88, ID_BITS = 40 };
enum { ID_LIVE = 1, ID_FREED = 2, ID_FREED_NOW = 3, ID_PUT_NOW = 4, ID_MET = 8 };

struct world {
    struct memory_store store;
    struct tree tree;
    struct rng rng;
    uint32_t slots;
    uint64_t stride; /* key of slot i: i / cluster * stride + i % cluster */
    uint32_t cluster;
    bool thin;           /* batches spread thinly: what delta runs are for */
    uint64_t generation; /* high bits of vbas */
    uint64_t next_id;
    uint64_t model[SLOTS_MAX]; /* id of the slot, 0: none */
    uint8_t id[IDS_MAX];
    uint64_t generation_of[IDS_MAX];
    /* of the merge under way */
    uint64_t puts, freed;
    uint64_t nodes_met;
    uint64_t items_met;
};

static uint64_t slot_key(const struct world *w, uint32_t slot) {
    return slot / w->cluster * w->stride + slot % w->cluster;
}

/* The slot of a key; UINT32_MAX when there is none. */
static uint32_t key_slot(const struct world *w, uint64_t key) {
    uint64_t slot = key / w->stride * w->cluster + key % w->stride;
    return key % w->stride < w->cluster && slot < w->slots ? (uint32_t)slot : UINT32_MAX;
}

struct value {
    union {
        struct tree_extent extent;
        uint64_t map[MAP_VALUE / 8];
    };
};

static void value_make(const struct world *w, uint64_t id, struct value *ret_value) {
    memset(ret_value, 0, sizeof(*ret_value));
    if (w->tree.kind == TREE_EXTENTS) {
        ret_value->extent.vba = w->generation_of[id] << ID_BITS | id;
        ret_value->extent.crc = (uint32_t)(id * 2654435761u);
        return;
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(ret_value->map); i++) {
        ret_value->map[i] = id + i * 1000003u;
    }
}

static uint64_t value_id(const struct world *w, const void *bytes) {
    struct value v, want;
    memcpy(&v, bytes, w->tree.value_bytes);
    uint64_t id = w->tree.kind == TREE_EXTENTS ? v.extent.vba & ((1ull << ID_BITS) - 1) : v.map[0];
    assert_true(id > 0 && id < w->next_id);
    value_make(w, id, &want);
    assert_memory_equal(&v, &want, w->tree.value_bytes);
    return id;
}

static struct world *world_new(enum tree_kind kind, uint32_t node_bytes, uint64_t seed) {
    struct world *w = calloc(1, sizeof(*w));
    memory_init(&w->store, node_bytes);
    rng_init(&w->rng, seed);
    w->tree = (struct tree){
        .kind = kind,
        .value_bytes = kind == TREE_EXTENTS ? sizeof(struct tree_extent) : MAP_VALUE,
        .owner = 77,
        .store = &w->store.store,
    };
    w->slots = 3000;
    w->cluster = 1;
    w->stride = 1;
    w->generation = 1;
    w->next_id = 1;
    return w;
}

static void world_free(struct world *w) {
    memory_done(&w->store);
    free(w);
}

/* ---- batches ---- */

struct script_op {
    enum tree_op_kind kind;
    uint64_t key, count;
    uint64_t id;
};

struct script {
    struct world *world;
    struct script_op *op;
    uint32_t count, room, at;
    uint64_t claim; /* put_count as told to the merge; 0: the truth */
    bool on_top;
    struct value value;
};

static void script_add(struct script *s, struct script_op op) {
    if (s->count == s->room) {
        s->room = s->room * 2 + 64;
        s->op = realloc(s->op, s->room * sizeof(s->op[0]));
    }
    s->op[s->count++] = op;
}

static void script_put(struct script *s, uint32_t slot) {
    struct world *w = s->world;
    uint64_t id = w->next_id++;
    assert_true(id < IDS_MAX);
    w->generation_of[id] = w->generation;
    script_add(s, (struct script_op){TREE_PUT, slot_key(w, slot), 1, id});
}

/* Slots [slot, slot + count). */
static void script_delete(struct script *s, uint32_t slot, uint32_t count) {
    uint64_t key = slot_key(s->world, slot);
    uint64_t last = slot_key(s->world, slot + count - 1);
    script_add(s, (struct script_op){TREE_DELETE, key, last - key + 1, 0});
}

static bool script_next(void *ctx, struct tree_op *ret_op) {
    struct script *s = ctx;
    memset(&s->value, 0xee, sizeof(s->value)); /* the old value is gone */
    if (s->at == s->count) {
        return false;
    }
    const struct script_op *op = &s->op[s->at++];
    *ret_op = (struct tree_op){.kind = op->kind, .key = op->key, .count = op->count};
    if (op->kind == TREE_PUT) {
        value_make(s->world, op->id, &s->value);
        ret_op->value = &s->value;
    }
    return true;
}

static void script_freed(void *ctx, uint64_t key, const void *value) {
    struct script *s = ctx;
    struct world *w = s->world;
    uint64_t id = value_id(w, value);
    assert_true(key_slot(w, key) != UINT32_MAX);
    assert_int_equal(w->id[id], ID_LIVE);
    w->id[id] = ID_FREED_NOW;
    w->freed++;
}

/* Merges; the model and the numbers change only when it succeeds. */
static int script_run(struct script *s, bool delta_allowed) {
    struct world *w = s->world;
    struct tree_batch batch = {.next = script_next,
                               .freed = script_freed,
                               .ctx = s,
                               .delta_allowed = delta_allowed,
                               .on_top = s->on_top};
    struct tree_root_phys root;
    uint64_t puts = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        puts += s->op[i].kind == TREE_PUT;
    }
    batch.put_count = s->claim != 0 ? s->claim : puts;
    s->at = 0;
    w->freed = 0;
    int rc = tree_merge(&w->tree, &batch, &root);
    memory_end(&w->store, rc == OK);
    for (uint64_t id = 1; id < w->next_id; id++) {
        if (w->id[id] == ID_FREED_NOW) {
            w->id[id] = rc == OK ? ID_FREED : ID_LIVE;
        }
    }
    if (rc != OK) {
        return rc;
    }
    assert_int_equal(s->at, s->count);
    w->tree.root = root;
    uint32_t slot = 0; /* operations ascend, and so do slots */
    for (uint32_t i = 0; i < s->count; i++) {
        const struct script_op *op = &s->op[i];
        if (op->kind == TREE_PUT) {
            w->model[key_slot(w, op->key)] = op->id;
            w->id[op->id] = ID_LIVE;
            continue;
        }
        while (slot < w->slots && slot_key(w, slot) < op->key) {
            slot++;
        }
        while (slot < w->slots && slot_key(w, slot) - op->key < op->count) {
            w->model[slot++] = 0;
        }
    }
    return OK;
}

static void script_reset(struct script *s) {
    s->count = s->at = 0;
}

static void script_free(struct script *s) {
    free(s->op);
}

/* ---- checks ---- */

struct reading {
    struct world *world;
    uint32_t slot;
    uint64_t end, items;
};

static int reading_visit(void *ctx, uint64_t key, const void *value) {
    struct reading *r = ctx;
    struct world *w = r->world;
    uint32_t slot = key_slot(w, key);
    assert_true(slot != UINT32_MAX && slot >= r->slot && key < r->end);
    for (; r->slot < slot; r->slot++) {
        assert_int_equal(w->model[r->slot], 0);
    }
    assert_int_equal(value_id(w, value), w->model[slot]);
    r->slot++;
    r->items++;
    return OK;
}

static void check_range(struct world *w, uint32_t slot, uint32_t count) {
    uint64_t key = slot_key(w, slot), end = slot_key(w, slot + count);
    struct reading r = {.world = w, .slot = slot, .end = end};
    assert_int_equal(tree_range(&w->tree, key, end - key, reading_visit, &r), OK);
    for (; r.slot < slot + count && r.slot < w->slots; r.slot++) {
        assert_int_equal(w->model[r.slot], 0);
    }
}

static void walk_on_node(void *ctx, const struct tree_ptr_phys *ptr, uint32_t height) {
    struct world *w = ctx;
    (void)height;
    assert_non_null(w->store.node[ptr->address]);
    assert_int_equal(w->store.pending[ptr->address], 0);
    w->store.pending[ptr->address] = 1; /* met */
    w->nodes_met++;
    assert_int_equal(tree_node_validate(w->store.node[ptr->address]->data,
                                        w->store.store.node_bytes, w->tree.kind, w->tree.owner),
                     OK);
}

static void walk_on_item(void *ctx, uint64_t key, const void *value) {
    struct world *w = ctx;
    uint64_t id = value_id(w, value);
    assert_true(key_slot(w, key) != UINT32_MAX);
    assert_int_equal(w->id[id], ID_LIVE);
    w->id[id] |= ID_MET;
    w->items_met++;
}

static void check_world(struct world *w) {
    check_range(w, 0, w->slots);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t slot = (uint32_t)rng_below(&w->rng, w->slots);
        check_range(w, slot, 1 + (uint32_t)rng_below(&w->rng, MIN(w->slots - slot, 100u)));
    }
    w->nodes_met = w->items_met = 0;
    struct tree_walk walk = {.node = walk_on_node, .item = walk_on_item, .ctx = w};
    assert_int_equal(tree_walk(&w->tree, &walk), OK);
    uint64_t live = 0;
    for (uint64_t i = 1; i < w->store.next; i++) {
        live += w->store.node[i] != NULL;
        w->store.pending[i] = 0;
    }
    assert_int_equal(live, w->nodes_met); /* nothing unreachable lives on */
    for (uint64_t id = 1; id < w->next_id; id++) {
        assert_int_not_equal(w->id[id], ID_LIVE); /* live but not met */
        w->id[id] &= (uint8_t)~ID_MET;
    }
}

#endif
