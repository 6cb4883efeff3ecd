// SPDX-License-Identifier: MPL-2.0
/* An engine without disks, for decoders whose output goes into one: a pool of six members that
 * nobody can read, an empty segment table, an empty map. */
#ifndef HOLDFAST_TESTS_FUZZ_ENGINE_SHELL_H
#define HOLDFAST_TESTS_FUZZ_ENGINE_SHELL_H

#include "base/assert.h"
#include "engine/private.h"
#include "env/sim/sim.h"

enum { SHELL_MEMBERS = 6, SHELL_CHUNKS = 200 };

static inline void shell_pool_init(struct pool *pool, uint32_t node_blocks) {
    *pool = (struct pool){.super = {.geometry = {.chunk_blocks = 64,
                                                 .ring_blocks = 256,
                                                 .row_blocks = 8,
                                                 .node_blocks = node_blocks},
                                    .member_count = SHELL_MEMBERS,
                                    .meta_copies = 3}};
    for (uint32_t m = 0; m < SHELL_MEMBERS; m++) {
        pool->super.members[m] =
            (struct member_phys){.state = MEMBER_IN_SYNC, .chunks = SHELL_CHUNKS};
    }
}

/* One environment serves all inputs: nothing is left in it between them. */
static inline struct env *shell_env(void) {
    static struct env *env;
    if (env == NULL) {
        env = env_sim_new(&(struct env_sim_options){.seed = 1});
    }
    return env;
}

static inline struct engine *shell_engine_new(struct pool *pool) {
    struct engine_limits limits = {.read_cache_bytes = 1 << 20, .node_cache_bytes = 1 << 20};
    return engine_alloc(shell_env(), pool, &limits);
}

#endif
