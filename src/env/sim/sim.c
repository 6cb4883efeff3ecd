// SPDX-License-Identifier: MPL-2.0
/* The simulated environment itself: virtual time, the loop, host records, the trace. */
#include "env/sim/sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/private.h"

/* 2026-01-01, so that times look like times. */
static const uint64_t WALL_START_NS = 1767225600ull * NS_PER_S;

void *sim_alloc(size_t bytes) {
    struct mem_scope *scope = mem_scope_enter(NULL);
    void *memory = mem_alloc(bytes);
    mem_scope_enter(scope);
    return memory;
}

void *sim_realloc(void *old, size_t bytes) {
    struct mem_scope *scope = mem_scope_enter(NULL);
    void *memory = mem_realloc(old, bytes);
    mem_scope_enter(scope);
    return memory;
}

/* ---- clocks, randomness, wake-ups ---- */

static uint64_t sim_now(struct env *env) {
    return sim_of(env)->now_ns;
}

static uint64_t sim_wall(struct env *env) {
    return WALL_START_NS + sim_of(env)->now_ns;
}

static void sim_random(struct env *env, void *ret_bytes, size_t bytes) {
    rng_fill(&sim_of(env)->random, ret_bytes, bytes);
}

static void sim_wake(struct env *env) {
    (void)env; /* one thread: whoever posts is the loop or stands before its next turn */
}

/* Virtual time stands still while a fiber runs, so whether its slice is over is drawn: that shakes
 * the order in which long jobs and requests meet. */
static bool sim_slice_is_over(struct env *env, uint64_t since_ns) {
    (void)since_ns;
    return rng_chance(&sim_of(env)->rng, 1, 16);
}

/* ---- trace ---- */

static void hash_mix(struct sim *sim, uint64_t value) {
    uint64_t h = (sim->hash ^ value) * 0x9fb21c651e98df25u;
    sim->hash = h ^ (h >> 28);
}

void sim_trace(struct sim *sim, const struct sim_disk *disk, char kind, const struct sim_io *io,
               int result) {
    uint64_t words[] = {sim->now_ns,
                        (uint64_t)kind << 32 | disk->index,
                        (uint64_t)io->op << 1 | io->durable,
                        io->block,
                        io->count,
                        (uint64_t)(int64_t)result};
    for (uint32_t i = 0; i < ARRAY_COUNT(words); i++) {
        hash_mix(sim, words[i]);
    }
    if (sim->options.trace != NULL) {
        static const char *const names[] = {"read", "write", "flush", "discard"};
        char line[200];
        (void)snprintf(line, sizeof(line),
                       "%" PRIu64 ".%09" PRIu64 " %" PRIu64 " disk %u %c %s%s %" PRIu64 "+%" PRIu64
                       " %s",
                       (uint64_t)(sim->now_ns / NS_PER_S), (uint64_t)(sim->now_ns % NS_PER_S),
                       sim->boundaries, disk->index, kind, names[io->op], io->durable ? "!" : "",
                       io->block, io->count, result == OK ? "" : error_name(result));
        sim->options.trace(sim->options.trace_owner, line);
    }
}

void env_sim_note(struct env *env, uint64_t value, const char *fmt, ...) {
    struct sim *sim = sim_of(env);
    hash_mix(sim, value);
    if (sim->options.trace == NULL) {
        return;
    }
    char line[400];
    int used = snprintf(line, sizeof(line), "%" PRIu64 ".%09" PRIu64 " ",
                        (uint64_t)(sim->now_ns / NS_PER_S), (uint64_t)(sim->now_ns % NS_PER_S));
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line + used, sizeof(line) - (size_t)used, fmt, args);
    va_end(args);
    sim->options.trace(sim->options.trace_owner, line);
}

uint64_t env_sim_trace_hash(const struct env *env) {
    return sim_of(env)->hash;
}

/* ---- cuts ---- */

uint64_t env_sim_boundaries(const struct env *env) {
    return sim_of(env)->boundaries;
}

void env_sim_arm_cut(struct env *env, uint64_t boundaries) {
    struct sim *sim = sim_of(env);
    sim->cut_at = boundaries == 0 ? 0 : sim->boundaries + boundaries;
}

bool env_sim_is_cut(const struct env *env) {
    return sim_of(env)->cut;
}

bool sim_boundary(struct sim *sim) {
    sim->boundaries++;
    if (sim->cut_at == 0 || sim->boundaries != sim->cut_at) {
        return sim->cut;
    }
    sim->cut = true;
    /* Nothing that was queued happens any more. */
    sim->env.running = NULL;
    return true;
}

void env_sim_power_cut(struct env *env) {
    struct sim *sim = sim_of(env);
    env_reset(env);
    sim_net_drop(sim);
    for (uint32_t i = 0; i < sim->disk_count; i++) {
        sim_disk_power_cut(sim->disks[i]);
    }
    sim->cut = false;
    sim->cut_at = 0;
    env_sim_note(env, sim->boundaries, "power cut after %" PRIu64 " boundaries", sim->boundaries);
}

/* ---- host records ---- */

static struct sim_record *record_find(struct sim *sim, const char *name) {
    LIST_FOR_EACH(it, &sim->records) {
        struct sim_record *record = CONTAINER_OF(it, struct sim_record, link);
        if (strcmp(record->name, name) == 0) {
            return record;
        }
    }
    return NULL;
}

static int sim_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                          size_t *ret_length) {
    const struct sim_record *record = record_find(sim_of(env), name);
    if (record == NULL) {
        return ERR_NOT_FOUND;
    }
    *ret_length = MIN(bytes, record->length);
    memcpy(ret_bytes, record->bytes, *ret_length);
    return OK;
}

static int sim_state_write(struct env *env, const char *name, const void *bytes, size_t length) {
    struct sim *sim = sim_of(env);
    if (sim->cut) {
        return OK; /* after the cut: nobody will hear the answer */
    }
    if (sim_boundary(sim) && rng_chance(&sim->rng, 1, 2)) {
        return OK; /* the cut came before the rename */
    }
    struct sim_record *record = record_find(sim, name);
    if (record != NULL) {
        list_remove(&record->link);
        mem_free(record);
    }
    record = sim_alloc(sizeof(*record) + length);
    (void)snprintf(record->name, sizeof(record->name), "%s", name);
    record->length = length;
    memcpy(record->bytes, bytes, length);
    list_append(&sim->records, &record->link);
    hash_mix(sim, length);
    return OK;
}

void env_sim_state_forget(struct env *env) {
    struct list *node;
    while ((node = list_pop(&sim_of(env)->records)) != NULL) {
        mem_free(CONTAINER_OF(node, struct sim_record, link));
    }
}

/* ---- life ---- */

static const struct env_ops sim_ops = {
    .now = sim_now,
    .wall = sim_wall,
    .random = sim_random,
    .wake = sim_wake,
    .slice_is_over = sim_slice_is_over,
    .state_read = sim_state_read,
    .state_write = sim_state_write,
    .disk_open = sim_disk_open,
    .disk_close = sim_disk_close,
    .disk_info = sim_disk_info,
    .disk_submit = sim_disk_submit,
    .disk_probe = sim_disk_probe,
    .net = &sim_net_ops,
};

struct sim *sim_of(const struct env *env) {
    ASSERT(env->ops == &sim_ops);
    return CONTAINER_OF((struct env *)(uintptr_t)env, struct sim, env);
}

struct env *env_sim_new(const struct env_sim_options *options) {
    struct sim *sim = sim_alloc(sizeof(*sim));
    env_init(&sim->env, &sim_ops);
    sim->options = *options;
    rng_init(&sim->rng, options->seed);
    rng_init(&sim->random, options->seed ^ 0x52414e444f4dull);
    rng_init(&sim->net_rng, options->seed ^ 0x4e4554ull);
    sim->now_ns = NS_PER_S;
    list_init(&sim->records);
    list_init(&sim->links);
    list_init(&sim->listeners);
    list_init(&sim->connections);
    return &sim->env;
}

void env_sim_free(struct env *env) {
    struct sim *sim = sim_of(env);
    env_sim_power_cut(env);
    sim_net_done(sim);
    for (uint32_t i = 0; i < sim->disk_count; i++) {
        sim_disk_free(sim->disks[i]);
    }
    env_sim_state_forget(env);
    env_done(env);
    ASSERT_EQ(sim->blocks_in_use, 0);
    while (sim->free_blocks != NULL) {
        struct sim_block *next = sim->free_blocks->next_free;
        mem_free(sim->free_blocks);
        sim->free_blocks = next;
    }
    mem_free(sim->disks);
    mem_free(sim->heap);
    mem_free(sim);
}

/* ---- the loop ---- */

enum sim_stop env_sim_run_until(struct env *env, uint64_t deadline_ns, bool (*until)(void *ctx),
                                void *ctx) {
    struct sim *sim = sim_of(env);
    for (;;) {
        if (sim->cut) {
            return SIM_CUT;
        }
        if (env->stopping || (until != NULL && until(ctx))) {
            env->stopping = false;
            return SIM_DONE;
        }
        if (env_turn(env)) {
            continue;
        }
        struct sim_event *event = sim_first_event(sim);
        uint64_t event_ns = event == NULL ? UINT64_MAX : event->at_ns;
        uint64_t next_ns = MIN(event_ns, env_next_timer_ns(env));
        if (next_ns > deadline_ns) {
            sim->now_ns = MAX(sim->now_ns, deadline_ns);
            return SIM_DEADLINE;
        }
        if (next_ns == UINT64_MAX) {
            return SIM_IDLE;
        }
        sim->now_ns = MAX(sim->now_ns, next_ns);
        if (event_ns <= sim->now_ns && !env_is_ready(env)) {
            sim_unschedule(sim, event);
            event->fire(event);
        }
    }
}

/* ---- for tests ---- */

void sim_disk_peek(const struct sim_disk *disk, uint64_t offset_bytes, void *ret_block) {
    const struct sim_block *block = store_visible(&disk->store, offset_bytes / SIM_BLOCK_BYTES);
    if (block == NULL) {
        memset(ret_block, 0, SIM_BLOCK_BYTES);
    } else {
        memcpy(ret_block, block->data, SIM_BLOCK_BYTES);
    }
}

void sim_disk_poke(struct sim_disk *disk, uint64_t offset_bytes, const void *bytes) {
    struct sim_block *block = sim_block_new(disk->sim);
    memcpy(block->data, bytes, SIM_BLOCK_BYTES);
    store_land(&disk->store, offset_bytes / SIM_BLOCK_BYTES, block, ++disk->sim->write_sequence);
}

uint64_t env_sim_content_bytes(const struct env *env) {
    return sim_of(env)->blocks_in_use * SIM_BLOCK_BYTES;
}
