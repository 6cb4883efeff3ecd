// SPDX-License-Identifier: MPL-2.0
#include "load.h"

#include <inttypes.h>
#include <string.h>

#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/fiber.h"

/* ---- latencies ---- */

static uint32_t bucket_of(uint64_t ns) {
    if (ns < SPREAD_SUB) {
        return (uint32_t)ns;
    }
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ns);
    uint32_t sub = (uint32_t)(ns >> (octave - 4)) & (SPREAD_SUB - 1);
    return (octave - 3) * SPREAD_SUB + sub;
}

static uint64_t bucket_end(uint32_t bucket) {
    if (bucket < SPREAD_SUB) {
        return bucket;
    }
    uint32_t octave = bucket / SPREAD_SUB + 3;
    return ((uint64_t)(SPREAD_SUB + bucket % SPREAD_SUB + 1) << (octave - 4)) - 1;
}

void spread_add(struct spread *s, uint64_t ns) {
    s->count++;
    s->sum_ns += ns;
    s->worst_ns = MAX(s->worst_ns, ns);
    s->bucket[bucket_of(ns)]++;
}

uint64_t spread_at(const struct spread *s, uint32_t per_mille) {
    uint64_t wanted = div_round_up(s->count * per_mille, 1000), seen = 0;
    for (uint32_t i = 0; i < SPREAD_BUCKETS; i++) {
        seen += s->bucket[i];
        if (seen >= wanted && seen > 0) {
            return MIN(bucket_end(i), s->worst_ns);
        }
    }
    return s->worst_ns;
}

/* ---- loads ---- */

struct load {
    const struct load_options *o;
    struct load_result *result;
    struct fiber *waiter;
    struct rng rng;
    uint64_t at; /* sequential: the next offset */
    uint64_t started, end_ns, sent;
    uint32_t in_flight;
};

struct slot {
    struct volume_request request;
    struct load *load;
    uint64_t sent_ns;
    struct iovec iov;
};

static void slot_done(struct volume_request *request);

static void slot_send(struct slot *s, uint64_t now) {
    struct load *l = s->load;
    uint64_t places = l->o->volume_bytes / l->o->request_bytes;
    uint64_t offset = 0;
    if (l->o->random) {
        offset = rng_below(&l->rng, places) * l->o->request_bytes;
    } else {
        offset = l->at;
        l->at = (l->at + l->o->request_bytes) % (places * l->o->request_bytes);
    }
    if (l->o->op == VOLUME_WRITE && !l->o->zeroes) {
        memcpy(s->iov.iov_base, &l->sent, sizeof(l->sent)); /* no two alike */
    }
    s->request = (struct volume_request){.client = l->o->env,
                                         .door = engine_door(l->o->engine),
                                         .volume_id = l->o->volume_id,
                                         .op = l->o->op,
                                         .offset_bytes = offset,
                                         .length_bytes = l->o->request_bytes,
                                         .iov = &s->iov,
                                         .iov_count = 1,
                                         .done = slot_done};
    s->sent_ns = now;
    l->sent++;
    l->in_flight++;
    volume_submit(&s->request);
}

static void slot_done(struct volume_request *request) {
    struct slot *s = CONTAINER_OF(request, struct slot, request);
    struct load *l = s->load;
    struct load_result *r = l->result;
    uint64_t now = env_now_ns(l->o->env);
    l->in_flight--;
    r->requests++;
    r->bytes += request->length_bytes;
    spread_add(&r->spread, now - s->sent_ns);
    if (request->status != OK) {
        r->first_error = r->failed++ == 0 ? request->status : r->first_error;
    }
    if (now < l->end_ns && (l->o->requests == 0 || l->sent < l->o->requests) && r->failed == 0) {
        slot_send(s, now);
    } else if (l->in_flight == 0) {
        r->elapsed_ns = now - l->started;
        fiber_wake(l->waiter);
    }
}

void load_run(const struct load_options *o, struct load_result *ret_result) {
    struct load l = {.o = o, .result = ret_result, .waiter = fiber_self()};
    struct slot *slots = MEM_NEW_ARRAY(struct slot, o->depth);
    uint8_t *memory = mem_alloc((size_t)o->depth * o->request_bytes);
    *ret_result = (struct load_result){0};
    rng_init(&l.rng, o->seed + 1);
    if (!o->zeroes) {
        rng_fill(&l.rng, memory, (size_t)o->depth * o->request_bytes);
    }
    l.started = env_now_ns(o->env);
    l.end_ns = o->time_ns == 0 ? UINT64_MAX : l.started + o->time_ns;
    for (uint32_t i = 0; i < o->depth && (o->requests == 0 || l.sent < o->requests); i++) {
        slots[i].load = &l;
        slots[i].iov = (struct iovec){.iov_base = memory + (size_t)i * o->request_bytes,
                                      .iov_len = o->request_bytes};
        slot_send(&slots[i], l.started);
    }
    while (l.in_flight > 0) {
        fiber_park();
    }
    mem_free(memory);
    mem_free(slots);
}

/* ---- activity ---- */

void activity_read(struct engine *engine, struct activity *ret) {
    struct engine_status *st = mem_alloc(sizeof(*st));
    struct engine_counters counters;
    engine_status(engine, st);
    engine_counters(engine, &counters);
    *ret = (struct activity){.log_bytes = st->bytes_written_log,
                             .row_bytes = st->bytes_written_rows,
                             .meta_bytes = st->bytes_written_meta,
                             .cleaned_blocks = st->cleaner_moved_blocks,
                             .checkpoints = st->checkpoints,
                             .checkpoint_last_ms = st->checkpoint_last_ms,
                             .log_waits = counters.log_waits_for_space};
    for (uint32_t m = 0; m < st->disk_count; m++) {
        ret->disk_written += st->disks[m].counters.write_bytes;
        ret->disk_read += st->disks[m].counters.read_bytes;
    }
    mem_free(st);
}

struct activity activity_since(const struct activity *now, const struct activity *before) {
    return (struct activity){.log_bytes = now->log_bytes - before->log_bytes,
                             .row_bytes = now->row_bytes - before->row_bytes,
                             .meta_bytes = now->meta_bytes - before->meta_bytes,
                             .cleaned_blocks = now->cleaned_blocks - before->cleaned_blocks,
                             .disk_written = now->disk_written - before->disk_written,
                             .disk_read = now->disk_read - before->disk_read,
                             .checkpoints = now->checkpoints - before->checkpoints,
                             .checkpoint_last_ms = now->checkpoint_last_ms,
                             .log_waits = now->log_waits - before->log_waits};
}

/* ---- printing ---- */

static void labels_print_json(FILE *out, const char *labels) {
    const char *at = labels;
    while (*at != '\0') {
        size_t length = strcspn(at, " ");
        const char *equals = memchr(at, '=', length);
        if (equals != NULL) {
            fprintf(out, "\"%.*s\": \"%.*s\", ", (int)(equals - at), at,
                    (int)(at + length - equals - 1), equals + 1);
        }
        at += length;
        at += *at == ' ';
    }
}

static double mb(uint64_t bytes) {
    return (double)bytes / 1e6;
}

void figure_print(FILE *out, bool json, const char *labels, const struct load_result *r,
                  const struct activity *a, double cpu_seconds) {
    double seconds = MAX((double)r->elapsed_ns / 1e9, 1e-9);
    double iops = (double)r->requests / seconds, mb_s = mb(r->bytes) / seconds;
    double us[] = {(double)r->spread.sum_ns / 1e3 / (double)MAX(r->spread.count, (uint64_t)1),
                   (double)spread_at(&r->spread, 500) / 1e3,
                   (double)spread_at(&r->spread, 990) / 1e3,
                   (double)spread_at(&r->spread, 999) / 1e3, (double)r->spread.worst_ns / 1e3};
    if (json) {
        fprintf(out, "{");
        labels_print_json(out, labels);
        fprintf(out,
                "\"seconds\": %.3f, \"requests\": %" PRIu64 ", \"failed\": %" PRIu64
                ", \"iops\": %.1f, \"mb_s\": %.2f, \"cpu_seconds\": %.3f, \"mean_us\": %.1f, "
                "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"worst_us\": %.1f, "
                "\"checkpoints\": %" PRIu64 ", \"log_mb\": %.1f, \"rows_mb\": %.1f, "
                "\"meta_mb\": %.1f, \"cleaned_mb\": %.1f, \"disk_written_mb\": %.1f, "
                "\"disk_read_mb\": %.1f}\n",
                seconds, r->requests, r->failed, iops, mb_s, cpu_seconds, us[0], us[1], us[2],
                us[3], us[4], a->checkpoints, mb(a->log_bytes), mb(a->row_bytes), mb(a->meta_bytes),
                mb(a->cleaned_blocks * BLOCK_BYTES), mb(a->disk_written), mb(a->disk_read));
        return;
    }
    fprintf(out, "%s\n", labels);
    fprintf(out, "    %.0f IOPS, %.1f MB/s in %.1f s", iops, mb_s, seconds);
    if (cpu_seconds > 0) {
        fprintf(out, "; %.0f requests, %.1f MB a second of its core (%.0f %% of it had)",
                (double)r->requests / cpu_seconds, mb(r->bytes) / cpu_seconds,
                100 * cpu_seconds / seconds);
    }
    fprintf(out, "\n    latency us: mean %.0f, p50 %.0f, p99 %.0f, p99.9 %.0f, worst %.0f\n", us[0],
            us[1], us[2], us[3], us[4]);
    fprintf(out,
            "    checkpoints %" PRIu64 " (last %" PRIu64 " ms), log full %" PRIu64
            "; to disks MB: log %.0f, rows %.0f, metadata %.0f (cleaned %.0f), all %.0f; read "
            "%.0f\n",
            a->checkpoints, a->checkpoint_last_ms, a->log_waits, mb(a->log_bytes), mb(a->row_bytes),
            mb(a->meta_bytes), mb(a->cleaned_blocks * BLOCK_BYTES), mb(a->disk_written),
            mb(a->disk_read));
    if (r->failed > 0) {
        fprintf(out, "    %" PRIu64 " FAILED: %s\n", r->failed, error_text(r->first_error));
    }
    (void)fflush(out);
}
