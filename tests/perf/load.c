// SPDX-License-Identifier: MPL-2.0
#include "load.h"

#include <inttypes.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"

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

void figure_print(FILE *out, bool json, const char *labels, const struct model_load_result *r,
                  const struct activity *a, double cpu_seconds) {
    double seconds = MAX((double)r->elapsed_ns / 1e9, 1e-9);
    double iops = (double)r->requests / seconds, mb_s = mb(r->bytes) / seconds;
    const struct bench_histogram *h = &r->latencies;
    double us[] = {(double)h->sum_ns / 1e3 / (double)MAX(h->count, (uint64_t)1),
                   (double)bench_histogram_quantile_ns(h, 0.5) / 1e3,
                   (double)bench_histogram_quantile_ns(h, 0.99) / 1e3,
                   (double)bench_histogram_quantile_ns(h, 0.999) / 1e3, (double)h->worst_ns / 1e3};
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
