// SPDX-License-Identifier: MPL-2.0
#include "protocol_stats.h"

#include <inttypes.h>
#include <stdio.h>

#define X(name, what) #name,
static const char *const names[] = {PROTOCOL_STATS(X)};
#undef X
#define X(name) #name,
static const char *const task_states[] = {PROTOCOL_TASK_STATES(X)};
static const char *const task_events[] = {PROTOCOL_TASK_EVENTS(X)};
static const char *const places[] = {PROTOCOL_PLACES(X)};
static const char *const breaks[] = {PROTOCOL_BREAKS(X)};
#undef X

static void add(uint64_t *total, const uint64_t *part, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        total[i] += part[i];
    }
}

void protocol_stats_add(struct protocol_stats *total, const struct protocol_stats *part) {
    add(total->count, part->count, PSTAT_COUNT);
    add(total->tasks[0], part->tasks[0], TASK_STATES * TASK_EVENTS);
    add(total->breaks[0], part->breaks[0], PLACES * BREAKS);
}

static void print_table(const char *what, const char *const *rows, uint32_t row_count,
                        const char *const *columns, uint32_t column_count, const uint64_t *counts) {
    printf("\n%-16s", what);
    for (uint32_t r = 0; r < row_count; r++) {
        printf(" %12s", rows[r]);
    }
    printf("\n");
    for (uint32_t c = 0; c < column_count; c++) {
        printf("%-16s", columns[c]);
        for (uint32_t r = 0; r < row_count; r++) {
            printf(" %12" PRIu64, counts[r * column_count + c]);
        }
        printf("\n");
    }
}

void protocol_stats_print(const struct protocol_stats *stats) {
    for (int i = 0; i < PSTAT_COUNT; i++) {
        printf("%s %" PRIu64 "\n", names[i], stats->count[i]);
    }
    print_table("tasks met", task_states, TASK_STATES, task_events, TASK_EVENTS, stats->tasks[0]);
    print_table("connections met", places, PLACES, breaks, BREAKS, stats->breaks[0]);
    printf("\n");
}

static bool require_table(const char *const *rows, uint32_t row_count, const char *const *columns,
                          uint32_t column_count, const uint64_t *counts) {
    bool complete = true;
    for (uint32_t i = 0; i < row_count * column_count; i++) {
        if (counts[i] == 0) {
            printf("%s × %s is 0: these seeds never met it\n", rows[i / column_count],
                   columns[i % column_count]);
            complete = false;
        }
    }
    return complete;
}

bool protocol_stats_require(const struct protocol_stats *stats) {
    bool complete = true;
    for (int i = 0; i < PSTAT_COUNT; i++) {
        if (stats->count[i] == 0) {
            printf("%s is 0: these seeds never met it\n", names[i]);
            complete = false;
        }
    }
    /* What cannot be met: wrong data of a task that has no data to send (any more), and breaks of
     * what comes back while nobody has taken the connection yet. */
    struct protocol_stats met = *stats;
    met.tasks[TASK_answering][TASK_EVENT_wrong_data] = 1;
    met.tasks[TASK_running][TASK_EVENT_wrong_data] = 1;
    for (int how = BREAK_answer_reset; how < BREAKS; how++) {
        met.breaks[PLACE_connecting][how] = 1;
    }
    complete &= require_table(task_states, TASK_STATES, task_events, TASK_EVENTS, met.tasks[0]);
    complete &= require_table(places, PLACES, breaks, BREAKS, met.breaks[0]);
    return complete;
}
