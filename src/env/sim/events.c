// SPDX-License-Identifier: MPL-2.0
/* The queue of things that will happen: a 1-based binary heap by (time, sequence), so that two
 * things of one instant happen in the order in which they were planned. */
#include "base/assert.h"
#include "base/mem.h"
#include "env/sim/private.h"

enum { EVENTS_FIRST = 256 };

static bool is_before(const struct sim_event *a, const struct sim_event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static void put(struct sim *sim, uint32_t index, struct sim_event *event) {
    sim->heap[index] = event;
    event->heap_index = index;
}

static void rise(struct sim *sim, uint32_t index, struct sim_event *event) {
    while (index > 1 && is_before(event, sim->heap[index / 2])) {
        put(sim, index, sim->heap[index / 2]);
        index /= 2;
    }
    put(sim, index, event);
}

static void sink(struct sim *sim, uint32_t index, struct sim_event *event) {
    for (uint32_t child = index * 2; child <= sim->event_count; child = index * 2) {
        if (child < sim->event_count && is_before(sim->heap[child + 1], sim->heap[child])) {
            child++;
        }
        if (!is_before(sim->heap[child], event)) {
            break;
        }
        put(sim, index, sim->heap[child]);
        index = child;
    }
    put(sim, index, event);
}

void sim_schedule(struct sim *sim, struct sim_event *event, uint64_t at_ns) {
    sim_unschedule(sim, event);
    if (sim->event_count + 2 > sim->event_capacity) {
        sim->event_capacity = sim->event_capacity == 0 ? EVENTS_FIRST : sim->event_capacity * 2;
        sim->heap = sim_realloc(sim->heap, sim->event_capacity * sizeof(struct sim_event *));
    }
    event->at_ns = at_ns > sim->now_ns ? at_ns : sim->now_ns;
    event->sequence = ++sim->event_sequence;
    sim->event_count++;
    rise(sim, sim->event_count, event);
}

void sim_unschedule(struct sim *sim, struct sim_event *event) {
    uint32_t index = event->heap_index;
    if (index == 0) {
        return;
    }
    ASSERT(index <= sim->event_count && sim->heap[index] == event);
    event->heap_index = 0;
    struct sim_event *last = sim->heap[sim->event_count--];
    if (last == event) {
        return;
    }
    if (index > 1 && is_before(last, sim->heap[index / 2])) {
        rise(sim, index, last);
    } else {
        sink(sim, index, last);
    }
}

struct sim_event *sim_first_event(const struct sim *sim) {
    return sim->event_count == 0 ? NULL : sim->heap[1];
}
