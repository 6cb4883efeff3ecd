// SPDX-License-Identifier: MPL-2.0
#include "stats.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name;
    bool must;
} stats_list[SIM_STAT_COUNT] = {
#define X(name, must, what) {#name, must},
    SIM_STATS(X)
#undef X
};

void stats_add(struct sim_stats *total, const struct sim_stats *part) {
    for (int i = 0; i < SIM_STAT_COUNT; i++) {
        total->count[i] += part->count[i];
    }
}

void stats_print(const struct sim_stats *stats) {
    for (int i = 0; i < SIM_STAT_COUNT; i++) {
        printf("%s %" PRIu64 "\n", stats_list[i].name, stats->count[i]);
    }
}

bool stats_require(const struct sim_stats *stats) {
    bool complete = true;
    for (int i = 0; i < SIM_STAT_COUNT; i++) {
        if (stats_list[i].must && stats->count[i] == 0) {
            printf("%s is 0: these seeds never met it\n", stats_list[i].name);
            complete = false;
        }
    }
    return complete;
}
