// SPDX-License-Identifier: MPL-2.0
#include "bench/model_load.h"

#include <string.h>

#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "env/fiber.h"

struct run {
    const struct model_load *load;
    struct model_load_result *result;
    struct env *env;
    struct fiber *waiter;
    struct rng rng;
    uint64_t at; /* sequential: the next offset */
    uint64_t counted_from_ns, end_ns, sent;
    uint32_t in_flight;
};

struct slot {
    struct volume_request request;
    struct run *run;
    uint64_t sent_ns;
    struct iovec iov;
};

static void slot_done(struct volume_request *request);

static void slot_send(struct slot *s, uint64_t now) {
    struct run *r = s->run;
    const struct model_load *l = r->load;
    uint64_t places = l->span_bytes / l->request_bytes;
    uint64_t offset;
    if (l->random) {
        offset = rng_below(&r->rng, places) * l->request_bytes;
    } else {
        offset = r->at;
        r->at = (r->at + l->request_bytes) % (places * l->request_bytes);
    }
    if (l->op == VOLUME_WRITE && l->noise) {
        memcpy(s->iov.iov_base, &r->sent, sizeof(r->sent)); /* no two alike */
    }
    s->request = (struct volume_request){.client = r->env,
                                         .door = l->door,
                                         .volume_id = l->volume_id,
                                         .op = l->op,
                                         .offset_bytes = offset,
                                         .length_bytes = l->request_bytes,
                                         .iov = &s->iov,
                                         .iov_count = 1,
                                         .done = slot_done};
    s->sent_ns = now;
    r->sent++;
    r->in_flight++;
    volume_submit(&s->request);
}

static void count(struct run *r, const struct slot *s, uint64_t now) {
    struct model_load_result *result = r->result;
    if (now < r->counted_from_ns || now > r->end_ns) {
        return;
    }
    result->requests++;
    result->bytes += s->request.length_bytes;
    bench_histogram_add(&result->latencies, now - s->sent_ns);
    result->elapsed_ns = now - r->counted_from_ns;
    if (r->load->time_ns > 0) {
        uint64_t window = (now - r->counted_from_ns) * MODEL_WINDOWS / r->load->time_ns;
        result->window[MIN(window, (uint64_t)MODEL_WINDOWS - 1)]++;
    }
}

/* Moves the counted time by what the owner says. */
static void follow(struct run *r, uint64_t now) {
    const struct model_load *l = r->load;
    enum model_load_phase phase = l->phase == NULL ? LOAD_COUNTS : l->phase(l->owner);
    if (phase == LOAD_COUNTS && r->counted_from_ns == UINT64_MAX) {
        r->counted_from_ns = now;
        r->end_ns = now + l->time_ns;
    } else if (phase == LOAD_IS_OVER) {
        r->counted_from_ns = MIN(r->counted_from_ns, now);
        r->end_ns = MIN(r->end_ns, now);
    }
}

static void slot_done(struct volume_request *request) {
    struct slot *s = CONTAINER_OF(request, struct slot, request);
    struct run *r = s->run;
    uint64_t now = env_now_ns(r->env);
    r->in_flight--;
    follow(r, now);
    if (request->status == OK) {
        count(r, s, now);
    } else {
        r->result->first_error =
            r->result->failed++ == 0 ? request->status : r->result->first_error;
    }
    bool more = r->load->requests == 0 || r->sent < r->load->requests;
    if (now < r->end_ns && more && r->result->failed == 0) {
        slot_send(s, now);
    } else if (r->in_flight == 0) {
        fiber_wake(r->waiter);
    }
}

void model_load_run(const struct model_load *load, struct model_load_result *ret_result) {
    struct run run = {
        .load = load, .result = ret_result, .waiter = fiber_self(), .env = fiber_env()};
    struct slot *slots = MEM_NEW_ARRAY(struct slot, load->depth);
    uint8_t *memory = mem_alloc((size_t)load->depth * load->request_bytes);
    *ret_result = (struct model_load_result){0};
    rng_init(&run.rng, load->seed + 1);
    if (load->noise) {
        rng_fill(&run.rng, memory, (size_t)load->depth * load->request_bytes);
    }
    uint64_t now = env_now_ns(run.env);
    run.counted_from_ns = now + load->ramp_ns;
    run.end_ns = load->time_ns == 0 ? UINT64_MAX : run.counted_from_ns + load->time_ns;
    if (load->phase != NULL) {
        run.counted_from_ns = run.end_ns = UINT64_MAX;
    }
    for (uint32_t i = 0; i < load->depth && (load->requests == 0 || run.sent < load->requests);
         i++) {
        slots[i].run = &run;
        slots[i].iov = (struct iovec){.iov_base = memory + (size_t)i * load->request_bytes,
                                      .iov_len = load->request_bytes};
        slot_send(&slots[i], now);
    }
    while (run.in_flight > 0) {
        fiber_park();
    }
    /* Measured to the end of the time, not to the last answer in it: a stall at the end counts. */
    if (load->time_ns > 0 && ret_result->failed == 0) {
        ret_result->elapsed_ns = run.end_ns - run.counted_from_ns;
        ret_result->windows = (uint32_t)(ret_result->elapsed_ns * MODEL_WINDOWS / load->time_ns);
    }
    mem_free(memory);
    mem_free(slots);
}
