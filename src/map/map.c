// SPDX-License-Identifier: MPL-2.0
/* The resident map: see map.h. */
#include "map/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"

enum { BUCKETS_LEAST = 64 };

struct map_dying {
    struct list link;
    struct map_run *run;
    uint64_t bits[4];
};

static uint64_t hash(uint64_t number) {
    number *= 0x9e3779b97f4a7c15u;
    return number ^ number >> 32;
}

void map_init(struct map *map, struct segment_table *table) {
    *map = (struct map){.table = table, .bucket_count = BUCKETS_LEAST};
    map->buckets = MEM_NEW_ARRAY(struct map_run *, map->bucket_count);
    list_init(&map->dirty);
    list_init(&map->dying);
}

void map_done(struct map *map) {
    while (map_free_never(map)) {
    }
    for (uint64_t i = 0; i < map->bucket_count; i++) {
        mem_free(map->buckets[i]);
    }
    mem_free(map->buckets);
    *map = (struct map){0};
}

uint64_t map_memory_bytes(const struct map *map) {
    return map->bucket_count * sizeof(void *) + map->run_count * (sizeof(struct map_run) + 32);
}

static uint64_t bucket_find(const struct map *map, uint64_t number) {
    uint64_t i = hash(number) & (map->bucket_count - 1);
    while (map->buckets[i] != NULL && map->buckets[i]->number != number) {
        i = (i + 1) & (map->bucket_count - 1);
    }
    return i;
}

struct map_run *map_find(const struct map *map, uint64_t number) {
    return map->buckets[bucket_find(map, number)];
}

static void map_grow(struct map *map) {
    struct map_run **old = map->buckets;
    uint64_t old_count = map->bucket_count;
    map->bucket_count *= 2;
    map->buckets = MEM_NEW_ARRAY(struct map_run *, map->bucket_count);
    for (uint64_t i = 0; i < old_count; i++) {
        if (old[i] != NULL) {
            map->buckets[bucket_find(map, old[i]->number)] = old[i];
        }
    }
    mem_free(old);
}

static struct map_run *run_insert(struct map *map, uint64_t number) {
    if ((map->run_count + 1) * 4 > map->bucket_count * 3) {
        map_grow(map);
    }
    uint64_t i = bucket_find(map, number);
    INVARIANT(9, map->buckets[i] == NULL);
    struct map_run *run = MEM_NEW(struct map_run);
    run->number = number;
    list_init(&run->in_segment);
    list_init(&run->in_dirty);
    map->buckets[i] = run;
    map->run_count++;
    return run;
}

/* Linear probing: closes the hole by moving back what probed past it. */
static void run_remove(struct map *map, uint64_t number) {
    uint64_t mask = map->bucket_count - 1;
    uint64_t hole = bucket_find(map, number);
    map->buckets[hole] = NULL;
    map->run_count--;
    for (uint64_t i = (hole + 1) & mask; map->buckets[i] != NULL; i = (i + 1) & mask) {
        uint64_t home = hash(map->buckets[i]->number) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->buckets[hole] = map->buckets[i];
            map->buckets[i] = NULL;
            hole = i;
        }
    }
}

static void run_enter(struct map_run *run, struct segment *s) {
    run->segment = s;
    list_append(&s->runs, &run->in_segment);
    s->run_count++;
    s->birth_sum += run->number;
}

static void run_leave(struct map_run *run) {
    list_remove(&run->in_segment);
    run->segment->run_count--;
    run->segment->birth_sum -= run->number;
}

static void run_mark_dirty(struct map *map, struct map_run *run) {
    if (list_is_empty(&run->in_dirty)) {
        list_append(&map->dirty, &run->in_dirty);
        map->dirty_count++;
    }
}

static bool bit_get(const uint64_t bits[4], uint32_t bit) {
    return (bits[bit / 64] >> (bit % 64)) & 1;
}

static uint32_t bits_below(const uint64_t bits[4], uint32_t bit) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < bit / 64; w++) {
        count += (uint32_t)__builtin_popcountll(bits[w]);
    }
    uint64_t mask = (1ull << (bit % 64)) - 1;
    return count + (uint32_t)__builtin_popcountll(bits[bit / 64] & mask);
}

static uint32_t bits_count(const uint64_t bits[4]) {
    return (uint32_t)(__builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]) +
                      __builtin_popcountll(bits[2]) + __builtin_popcountll(bits[3]));
}

bool map_lookup(const struct map *map, uint64_t vba, struct row_place *ret_place) {
    const struct map_run *run = map_find(map, vba >> RUN_SHIFT);
    uint32_t bit = vba % RUN_BLOCKS;
    if (run == NULL || !bit_get(run->present, bit)) {
        return false;
    }
    *ret_place = (struct row_place){.segment = run->segment,
                                    .offset = run->offset,
                                    .height = run->height,
                                    .index = run->index + bits_below(run->present, bit)};
    return true;
}

bool map_is_live(const struct map *map, uint64_t vba) {
    const struct map_run *run = map_find(map, vba >> RUN_SHIFT);
    return run != NULL && bit_get(run->live, vba % RUN_BLOCKS);
}

struct map_run *map_add(struct map *map, uint64_t vba, struct segment *segment, uint32_t offset,
                        uint32_t height, uint32_t index, uint32_t blocks) {
    ASSERT_EQ(vba % RUN_BLOCKS, 0);
    struct map_run *run = run_insert(map, vba >> RUN_SHIFT);
    run_enter(run, segment);
    run->offset = offset;
    run->height = (uint16_t)height;
    run->index = (uint16_t)index;
    for (uint32_t i = 0; i < blocks; i++) {
        run->present[i / 64] |= 1ull << (i % 64);
    }
    run_mark_dirty(map, run);
    return run;
}

static void live_add(struct map *map, struct map_run *run, int delta) {
    run->live_count = (uint16_t)(run->live_count + delta);
    run->segment->live_blocks += (uint32_t)delta;
    map->live_blocks += (uint64_t)(int64_t)delta;
    segment_mark_dirty(map->table, run->segment);
    run_mark_dirty(map, run);
}

void map_set_live(struct map *map, uint64_t vba) {
    struct map_run *run = map_find(map, vba >> RUN_SHIFT);
    uint32_t bit = vba % RUN_BLOCKS;
    INVARIANT(10, run != NULL && bit_get(run->present, bit) && !bit_get(run->live, bit));
    run->live[bit / 64] |= 1ull << (bit % 64);
    live_add(map, run, 1);
}

void map_clear_live(struct map *map, uint64_t vba) {
    struct map_run *run = map_find(map, vba >> RUN_SHIFT);
    uint32_t bit = vba % RUN_BLOCKS;
    INVARIANT(10, run != NULL && bit_get(run->live, bit));
    run->live[bit / 64] &= ~(1ull << (bit % 64));
    live_add(map, run, -1);
}

void map_free_later(struct map *map, uint64_t vba) {
    struct map_run *run = map_find(map, vba >> RUN_SHIFT);
    uint32_t bit = vba % RUN_BLOCKS;
    INVARIANT(10, run != NULL && bit_get(run->live, bit));
    if (run->dying == NULL) {
        run->dying = MEM_NEW(struct map_dying);
        run->dying->run = run;
        list_append(&map->dying, &run->dying->link);
    }
    INVARIANT(10, !bit_get(run->dying->bits, bit));
    run->dying->bits[bit / 64] |= 1ull << (bit % 64);
}

static struct map_dying *dying_pop(struct map *map) {
    struct list *link = list_pop(&map->dying);
    if (link == NULL) {
        return NULL;
    }
    struct map_dying *dying = CONTAINER_OF(link, struct map_dying, link);
    dying->run->dying = NULL;
    return dying;
}

bool map_free_now(struct map *map) {
    struct map_dying *dying = dying_pop(map);
    if (dying == NULL) {
        return false;
    }
    for (int w = 0; w < 4; w++) {
        INVARIANT(10, (dying->bits[w] & ~dying->run->live[w]) == 0);
        dying->run->live[w] &= ~dying->bits[w];
    }
    live_add(map, dying->run, -(int)bits_count(dying->bits));
    mem_free(dying);
    return true;
}

bool map_free_never(struct map *map) {
    struct map_dying *dying = dying_pop(map);
    mem_free(dying);
    return dying != NULL;
}

void map_move(struct map *map, struct map_run *run, const uint64_t moved[4],
              struct segment *segment, uint32_t offset, uint32_t height, uint32_t index) {
    run->segment->live_blocks -= run->live_count;
    segment_mark_dirty(map->table, run->segment);
    run_leave(run);
    for (int w = 0; w < 4; w++) {
        INVARIANT(10, (run->live[w] & ~moved[w]) == 0);
        run->present[w] = moved[w];
    }
    run_enter(run, segment);
    run->offset = offset;
    run->height = (uint16_t)height;
    run->index = (uint16_t)index;
    segment->live_blocks += run->live_count;
    segment_mark_dirty(map->table, segment);
    run_mark_dirty(map, run);
}

void map_drop(struct map *map, struct map_run *run) {
    INVARIANT(10, run->live_count == 0);
    run_leave(run);
    if (!list_is_empty(&run->in_dirty)) {
        list_remove(&run->in_dirty);
        map->dirty_count--;
    }
    run_remove(map, run->number);
    mem_free(run);
}

void map_value_encode(const struct map_run *run, struct map_value_phys *ret_value) {
    *ret_value = (struct map_value_phys){.segment = run->segment->slot,
                                         .offset = run->offset,
                                         .height = run->height,
                                         .index = run->index};
    memcpy(ret_value->present, run->present, sizeof(run->present));
    memcpy(ret_value->live, run->live, sizeof(run->live));
}

int map_load(struct map *map, uint64_t number, const struct map_value_phys *value) {
    struct segment *s = segment_get(map->table, value->segment);
    uint32_t present = bits_count(value->present);
    if (s == NULL || s->kind != SEGMENT_DATA || number >= COUNTER_END >> RUN_SHIFT ||
        value->height == 0 || !range_is_within(value->offset, value->height, s->used_blocks) ||
        !range_is_within(value->index, present, (uint64_t)value->height * s->shape.data) ||
        bits_count(value->live) == 0 || map_find(map, number) != NULL) {
        return ERR_CORRUPT;
    }
    for (int w = 0; w < 4; w++) {
        if ((value->live[w] & ~value->present[w]) != 0) {
            return ERR_CORRUPT;
        }
    }
    struct map_run *run = run_insert(map, number);
    run_enter(run, s);
    run->offset = value->offset;
    run->height = value->height;
    run->index = value->index;
    run->in_tree = true;
    memcpy(run->present, value->present, sizeof(run->present));
    memcpy(run->live, value->live, sizeof(run->live));
    run->live_count = (uint16_t)bits_count(run->live);
    s->live_blocks += run->live_count;
    map->live_blocks += run->live_count;
    return OK;
}

static int compare_runs(const void *a, const void *b) {
    const struct map_run *x = *(struct map_run *const *)a, *y = *(struct map_run *const *)b;
    return (x->number > y->number) - (x->number < y->number);
}

struct map_run **map_take_dirty(struct map *map, uint64_t *ret_count) {
    struct map_run **runs = MEM_NEW_ARRAY(struct map_run *, map->dirty_count + 1);
    uint64_t count = 0;
    struct list *link;
    while ((link = list_pop(&map->dirty)) != NULL) {
        runs[count++] = CONTAINER_OF(link, struct map_run, in_dirty);
    }
    ASSERT_EQ(count, map->dirty_count);
    map->dirty_count = 0;
    qsort(runs, count, sizeof(*runs), compare_runs);
    *ret_count = count;
    return runs;
}
