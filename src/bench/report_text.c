// SPDX-License-Identifier: MPL-2.0
/* Reports as plain text and as Markdown: the same tables, in two dresses. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "bench/matrix.h"
#include "bench/report.h"
#include "bench/text_table.h"

static void heading(FILE *out, bool markdown, const char *text) {
    (void)fprintf(out, markdown ? "\n## " : "\n");
    if (markdown) {
        put_markdown(out, text);
    } else {
        put_plain(out, text);
    }
    (void)fputs(markdown ? "\n\n" : "\n", out);
}

/* Columns are A, B, …; what they stand for is said once. */
static void letter(uint32_t index, char ret_text[8]) {
    if (index < 26) {
        (void)snprintf(ret_text, 8, "%c", (char)('A' + index));
    } else {
        (void)snprintf(ret_text, 8, "%c%c", (char)('A' + index / 26 - 1), (char)('A' + index % 26));
    }
}

static void legend(FILE *out, const struct report *report, bool markdown) {
    for (uint32_t i = 0; i < report->document_count; i++) {
        const struct bench_document *d = &report->documents[i];
        char name[8], span[32];
        letter(i, name);
        size_format(d->settings.span_bytes, span, sizeof(span));
        (void)fprintf(out, "%s%s: ", markdown ? "- " : "  ", name);
        if (markdown) {
            put_markdown(out, report->labels[i]);
        } else {
            put_plain(out, report->labels[i]);
        }
        (void)fprintf(out, "; span %s, %" PRIu32 " s", span, d->settings.seconds);
        (void)fputs(d->settings.complete ? "\n" : ", stopped before its end\n", out);
    }
}

static void table_heads(struct text_table *table, const struct report *report, const char *first) {
    text_table_add(table, "%s", first);
    for (uint32_t i = 0; i < report->document_count; i++) {
        char name[8];
        letter(i, name);
        text_table_add(table, "%s", name);
        if (i > 0) {
            text_table_add(table, "%s/A", name);
        }
    }
}

static uint32_t columns_of(const struct report *report) {
    return 1 + report->document_count * 2 - 1;
}

static void values(FILE *out, const struct report *report, bool markdown) {
    struct text_table *table = text_table_new(columns_of(report));
    table_heads(table, report, "test");
    for (uint32_t r = 0; r < report->row_count; r++) {
        const struct report_row *row = &report->rows[r];
        const struct bench_result *first = row->results[0];
        char title[160], number[NUMBER_BYTES], remark[NUMBER_BYTES];
        report_row_title(row, title, sizeof(title));
        text_table_add(table, "%s, %s", title, bench_unit_text(row->unit));
        for (uint32_t i = 0; i < report->document_count; i++) {
            const struct bench_result *result = row->results[i];
            if (result == NULL) {
                text_table_add(table, "-");
            } else {
                text_table_add(table, "%s%s", report_number(result->value, number),
                               report_remark(row, result, remark));
            }
            bool ratio = result != NULL && first != NULL && first->value > 0;
            if (i > 0 && ratio) {
                text_table_add(table, "%.2f", result->value / first->value);
            } else if (i > 0) {
                text_table_add(table, "-");
            }
        }
    }
    text_table_print(table, out, markdown);
}

static void latencies(FILE *out, const struct report *report, bool markdown) {
    struct text_table *table = text_table_new(8);
    static const char *const heads[] = {"latency", "mean",   "p50",   "p99",
                                        "p99.9",   "p99.99", "worst", "factor"};
    for (uint32_t i = 0; i < 8; i++) {
        text_table_add(table, "%s", heads[i]);
    }
    for (uint32_t r = 0; r < report->row_count; r++) {
        const struct report_row *row = &report->rows[r];
        char title[160], name[8], text[NUMBER_BYTES];
        report_row_title(row, title, sizeof(title));
        for (uint32_t i = 0; i < report->document_count; i++) {
            const struct bench_result *s = row->results[i];
            if (s == NULL || s->worst_us <= 0) { /* of no load: a rebuild */
                continue;
            }
            letter(i, name);
            text_table_add(table, "%s %s", name, title);
            const double us[] = {s->mean_us, s->p50_us,   s->p99_us,
                                 s->p999_us, s->p9999_us, s->worst_us};
            for (uint32_t j = 0; j < 6; j++) {
                text_table_add(table, "%s", report_latency(us[j], text));
            }
            (void)snprintf(text, sizeof(text), "%" PRIu32, s->factor);
            text_table_add(table, "%s", s->factor > 0 ? text : "-");
        }
    }
    text_table_print(table, out, markdown);
}

static void caveats(FILE *out, const struct report *report, bool markdown) {
    bool model = false;
    for (uint32_t i = 0; i < report->document_count; i++) {
        model = model || strcmp(report->documents[i].target.kind, "model") == 0;
    }
    if (model) {
        heading(out, markdown, "Where the model is generous");
    }
    for (uint32_t i = 0; model && model_caveats[i] != NULL; i++) {
        (void)fprintf(out, "%s%s\n", markdown ? "- " : "  ", model_caveats[i]);
    }
}

static void report_print(FILE *out, const struct report *report, bool markdown) {
    struct matrix matrix;
    matrix_of(report->documents, report->document_count, &matrix);
    if (matrix.row_count >= MATRIX_ROWS_MIN) {
        matrix_text(out, &matrix, markdown);
    } else {
        legend(out, report, markdown);
        heading(out, markdown, "Values");
        values(out, report, markdown);
        heading(out, markdown, "Latencies");
        latencies(out, report, markdown);
    }
    caveats(out, report, markdown);
    matrix_done(&matrix);
}

void report_text(FILE *out, const struct report *report) {
    report_print(out, report, false);
}

void report_markdown(FILE *out, const struct report *report) {
    (void)fputs("# holdfast bench\n\n", out);
    report_print(out, report, true);
}
