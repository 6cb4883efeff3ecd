// SPDX-License-Identifier: MPL-2.0
/* The matrix as plain text and as Markdown: one table a corner, then what is not better and why,
 * the two prices, and where the model is generous. */
#include <inttypes.h>
#include <string.h>

#include "base/math.h"
#include "base/size.h"
#include "bench/matrix.h"
#include "bench/report.h"
#include "bench/text_table.h"

static void heading(FILE *out, bool markdown, const char *text) {
    (void)fprintf(out, markdown ? "\n## %s\n\n" : "\n%s\n", text);
}

static const struct bench_result *result_of(const struct bench_document *document,
                                            enum model_test test) {
    return document == NULL ? NULL : model_result(document, test);
}

static void number_or_dash(struct text_table *table, double value) {
    char number[NUMBER_BYTES];
    text_table_add(table, "%s", value > 0 ? report_number(value, number) : "-");
}

static void corner(FILE *out, const struct matrix *matrix, enum model_test test, bool markdown) {
    static const char *const heads[] = {"profile",  "link",    "published",          "from",
                                        "Holdfast", "classic", "Holdfast/published", "p99",
                                        "factor"};
    struct text_table *table = text_table_new(9);
    for (uint32_t i = 0; i < 9; i++) {
        text_table_add(table, "%s", heads[i]);
    }
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_row *row = &matrix->rows[i];
        const struct matrix_cell *cell = &row->cells[test];
        const struct bench_result *ours = result_of(row->holdfast, test);
        char title[40], text[NUMBER_BYTES];
        matrix_row_title(row, title, sizeof(title));
        text_table_add(table, "%s", title);
        text_table_add(table, "%s", row->link.text);
        number_or_dash(table, cell->published);
        text_table_add(table, "%s", cell->cache ? "cache" : "disks");
        number_or_dash(table, cell->holdfast);
        number_or_dash(table, cell->classic);
        if (cell->published > 0) {
            text_table_add(table, "%.2f%s", cell->holdfast / cell->published,
                           cell->better ? "" : " *");
        } else {
            text_table_add(table, "-");
        }
        text_table_add(table, "%s", ours == NULL ? "-" : report_latency(ours->p99_us, text));
        text_table_add(table, "%" PRIu32, ours == NULL ? 0 : ours->factor);
    }
    text_table_print(table, out, markdown);
}

static void reasons(FILE *out, const struct matrix *matrix, bool markdown) {
    uint32_t better = 0, cells = 0;
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        for (int test = 0; test < MODEL_CORNERS; test++) {
            better += matrix->rows[i].cells[test].better;
            cells++;
        }
    }
    heading(out, markdown, "Where Holdfast is not better than published (*)");
    (void)fprintf(out, "%" PRIu32 " of %" PRIu32 " cells are better. The others:\n%s", better,
                  cells, markdown ? "\n" : "");
    for (int test = 0; test < MODEL_CORNERS; test++) {
        for (uint32_t i = 0; i < matrix->row_count; i++) {
            const struct matrix_cell *cell = &matrix->rows[i].cells[test];
            char title[40], ours[NUMBER_BYTES], theirs[NUMBER_BYTES];
            if (cell->why[0] == '\0') {
                continue;
            }
            matrix_row_title(&matrix->rows[i], title, sizeof(title));
            (void)fprintf(out, "%s%s, %s: %s, published %s: %s\n", markdown ? "- " : "  ", title,
                          model_test_text((enum model_test)test),
                          report_number(cell->holdfast, ours),
                          report_number(cell->published, theirs), cell->why);
        }
    }
}

static void prices(FILE *out, const struct matrix *matrix, bool markdown) {
    static const char *const heads[] = {"MB/s",
                                        "read, fresh",
                                        "read, overwritten at random",
                                        "read, reordered",
                                        "classic, overwritten",
                                        "write, fresh",
                                        "write, aged",
                                        "classic, likewise",
                                        "factor, aged"};
    heading(out, markdown, "The prices of writing nothing in place");
    struct text_table *table = text_table_new(ARRAY_COUNT(heads));
    for (uint32_t i = 0; i < ARRAY_COUNT(heads); i++) {
        text_table_add(table, "%s", heads[i]);
    }
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_row *row = &matrix->rows[i];
        const struct {
            const struct bench_document *document;
            enum model_test test;
        } columns[] = {
            {row->holdfast, MODEL_SEQ_READ_512K},  {row->holdfast, MODEL_READ_OVERWRITTEN},
            {row->holdfast, MODEL_READ_REORDERED}, {row->classic, MODEL_READ_OVERWRITTEN},
            {row->holdfast, MODEL_SEQ_WRITE_512K}, {row->holdfast, MODEL_WRITE_AGED},
            {row->classic, MODEL_WRITE_AGED},
        };
        char title[40];
        matrix_row_title(row, title, sizeof(title));
        text_table_add(table, "%s", title);
        for (uint32_t c = 0; c < ARRAY_COUNT(columns); c++) {
            const struct bench_result *result = result_of(columns[c].document, columns[c].test);
            number_or_dash(table, result == NULL ? 0 : result->value);
        }
        const struct bench_result *aged = result_of(row->holdfast, MODEL_WRITE_AGED);
        text_table_add(table, "%" PRIu32, aged == NULL ? 0 : aged->factor);
    }
    text_table_print(table, out, markdown);
}

void matrix_text(FILE *out, const struct matrix *matrix, bool markdown) {
    const struct matrix_row *first = &matrix->rows[0];
    const struct bench_document *any = first->holdfast != NULL  ? first->holdfast
                                       : first->classic != NULL ? first->classic
                                                                : first->bare;
    char span[32];
    size_format(any->settings.span_bytes, span, sizeof(span));
    (void)fprintf(out,
                  "RAID levels on modelled %s, span %s: as published (iSCSI), Holdfast, and a "
                  "classic array that overwrites in place.\n",
                  first->disks.disks[0]->name, span);
    for (int test = 0; test < MODEL_CORNERS; test++) {
        char title[80];
        (void)snprintf(title, sizeof(title), "%s, %s", model_test_text((enum model_test)test),
                       test <= MODEL_RAND_WRITE_4K ? "IOPS" : "MB/s");
        heading(out, markdown, title);
        corner(out, matrix, (enum model_test)test, markdown);
    }
    reasons(out, matrix, markdown);
    prices(out, matrix, markdown);
}
