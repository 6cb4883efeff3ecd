// SPDX-License-Identifier: MPL-2.0
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "cmd/bench_show.h"
#include "cmd/table.h"

enum { BAR = 20, LOG_EVERY_S = 30 };

static uint64_t now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec;
}

void bench_show_init(struct bench_show *show) {
    *show = (struct bench_show){.terminal = isatty(STDERR_FILENO) != 0};
}

void bench_show_done(struct bench_show *show) {
    if (show->line_is_open) {
        (void)fputs("\r\033[K", stderr);
        show->line_is_open = false;
    }
}

void bench_show_note(void *owner, const char *text) {
    bench_show_done(owner);
    (void)fprintf(stderr, "%s\n", text);
}

/* ---- how far it is ---- */

static void format_where(const struct bench_progress *p, char *ret_text, size_t room) {
    if (p->run == 0) {
        (void)snprintf(ret_text, room, "%s", p->phase);
    } else {
        (void)snprintf(ret_text, room,
                       "%s, queue depth %" PRIu32 ", run %" PRIu32 " of %" PRIu32 ", %s", p->test,
                       p->queue_depth, p->run, p->runs, p->phase);
    }
}

static void show_line(struct bench_show *show, const struct bench_progress *p, const char *where) {
    char bar[BAR + 1];
    int full = (int)(p->done * BAR + 0.5);
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR] = '\0';
    (void)fprintf(stderr, "\r[%s] %s: ", bar, where);
    if (p->rate > 0) { /* known after a second */
        (void)fprintf(stderr, "%.*f %s, ", p->unit == BENCH_IOPS ? 0 : 1, p->rate,
                      bench_unit_text(p->unit));
    }
    (void)fprintf(stderr, "%" PRIu64 ":%02" PRIu64 " left\033[K", p->left_seconds / 60,
                  p->left_seconds % 60);
    (void)fflush(stderr);
    show->line_is_open = true;
}

void bench_show_progress(void *owner, const struct bench_progress *p) {
    struct bench_show *show = owner;
    char where[160];
    format_where(p, where, sizeof(where));
    if (show->terminal) {
        show_line(show, p, where);
        return;
    }
    uint64_t now = now_s();
    if (strcmp(where, show->last) != 0) {
        (void)fprintf(stderr, "%s\n", where);
        (void)snprintf(show->last, sizeof(show->last), "%s", where);
    } else if (now >= show->next_tick) {
        (void)fprintf(stderr, "%s: %.0f %%, %.*f %s, %" PRIu64 " s left\n", where, p->done * 100,
                      p->unit == BENCH_IOPS ? 0 : 1, p->rate, bench_unit_text(p->unit),
                      p->left_seconds);
    } else {
        return;
    }
    show->next_tick = now + LOG_EVERY_S;
}

/* ---- what it found ---- */

static void HF_PRINTF(2, 3) cell(struct table *table, const char *fmt, ...) {
    char text[64];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    table_text(table, text);
}

static void latency(struct table *table, double us) {
    if (us < 1000) {
        cell(table, "%.0f us", us);
    } else if (us < 1e6) {
        cell(table, us < 10000 ? "%.2f ms" : "%.1f ms", us / 1e3);
    } else {
        cell(table, "%.2f s", us / 1e6);
    }
}

static void add_row(struct table *table, const struct bench_result *r) {
    table_text(table, r->test);
    table_number(table, r->queue_depth);
    cell(table, r->unit == BENCH_IOPS ? "%.0f %s" : "%.1f %s", r->value, bench_unit_text(r->unit));
    cell(table, "%.0f %%", r->spread * 100);
    latency(table, r->mean_us);
    latency(table, r->p50_us);
    latency(table, r->p99_us);
    latency(table, r->p999_us);
    latency(table, r->p9999_us);
    latency(table, r->worst_us);
    cell(table, "%.2f", r->steady);
    cell(table, "%.0f %%%s", r->cpu_percent, r->client_limited ? " *" : "");
}

void bench_show_results(const struct bench_document *document) {
    static const char *const heads[] = {"TEST",    ">QD",  ">RESULT", ">SPREAD", ">MEAN",
                                        ">P50",    ">P99", ">P99.9",  ">P99.99", ">WORST",
                                        ">STEADY", ">CPU", NULL};
    struct table *table = table_new(heads);
    bool limited = false;
    char span[24], size[24];
    for (uint32_t i = 0; i < document->result_count; i++) {
        add_row(table, &document->results[i]);
        limited |= document->results[i].client_limited;
    }
    size_format(document->settings.span_bytes, span, sizeof(span));
    size_format(document->target.size_bytes, size, sizeof(size));
    (void)printf("%s%s%s: %s, span %s, %s%s%s\n", document->target.address,
                 document->target.name[0] != '\0' ? ", " : "", document->target.name, size, span,
                 document->settings.prepared ? "filled before" : "not filled before",
                 document->settings.during[0] != '\0' ? ", during: " : "",
                 document->settings.during);
    table_print(table, "nothing was measured");
    if (limited) {
        (void)printf("* this side had no processor time to spare: the target might do better with "
                     "a faster client, or with --jobs\n");
    }
}
