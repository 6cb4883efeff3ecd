// SPDX-License-Identifier: MPL-2.0
/* The matrix on the HTML page: one chart and one table a corner, then reasons, prices, caveats. */
#include <inttypes.h>
#include <string.h>

#include "base/math.h"
#include "base/size.h"
#include "bench/matrix.h"
#include "bench/report_html.h"

enum { WIDTH = 560, LEFT = 128, RIGHT = 20, STEP = 21, TOP = 8 };

static const char *unit_of(enum model_test test) {
    return test <= MODEL_RAND_WRITE_4K ? "IOPS" : "MB/s";
}

static void dot(FILE *out, const char *classes, double x, double y, const char *what,
                double value) {
    char number[NUMBER_BYTES];
    (void)fprintf(out,
                  "<g class=\"%s\"><circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>%s: "
                  "%s</title></circle></g>",
                  classes, classes[0] == 'c' ? "p" : "pub", x, y, what,
                  report_number(value, number));
}

static void chart(FILE *out, const struct matrix *matrix, enum model_test test) {
    double most = 0, step;
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_cell *c = &matrix->rows[i].cells[test];
        most = MAX(most, c->published);
        most = MAX(most, c->holdfast);
        most = MAX(most, c->classic);
    }
    double end = axis_round(MAX(most, 1e-6), &step), scale = (WIDTH - LEFT - RIGHT) / end;
    double bottom = TOP + matrix->row_count * STEP + 2;
    (void)fprintf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\"><title>%s</title>", WIDTH,
                  bottom + 22, model_test_text(test));
    for (double at = 0; at <= end + step / 2; at += step) {
        char number[NUMBER_BYTES];
        double x = LEFT + at * scale;
        (void)fprintf(out,
                      "<line class=\"%s\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/><text "
                      "class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                      at == 0 ? "a" : "g", x, TOP, x, bottom, x, bottom + 16,
                      axis_number(at, number));
    }
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_cell *c = &matrix->rows[i].cells[test];
        double y = TOP + (i + 0.5) * STEP;
        char title[40];
        matrix_row_title(&matrix->rows[i], title, sizeof(title));
        (void)fprintf(out,
                      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text><line class=\"r\" "
                      "stroke-opacity=\".5\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                      LEFT - 10, y + 4, title, LEFT + MIN(c->published, c->holdfast) * scale, y,
                      LEFT + MAX(c->published, c->holdfast) * scale, y);
        if (c->published > 0) {
            dot(out, "pub", LEFT + c->published * scale, y,
                c->cache ? "published, from memory" : "published", c->published);
        }
        if (c->classic > 0) {
            dot(out, "c1", LEFT + c->classic * scale, y, "classic array, modelled", c->classic);
        }
        if (c->holdfast > 0) {
            dot(out, "c0", LEFT + c->holdfast * scale, y, "Holdfast, modelled", c->holdfast);
        }
    }
    (void)fputs("</svg>", out);
}

static void number(FILE *out, double value, const char *classes, const char *tag) {
    char text[NUMBER_BYTES];
    (void)fprintf(out, "<td class=\"%s\" data-value=\"%.3f\">%s%s</td>", classes, value,
                  value > 0 ? report_number(value, text) : "&ndash;", tag);
}

static void big_table(FILE *out, const struct matrix *matrix) {
    (void)fputs("<h2>All cells</h2><div class=\"card wide tight\"><table><thead><tr><th></th>"
                "<th class=\"text\">Link</th>",
                out);
    for (int test = 0; test < MODEL_CORNERS; test++) {
        (void)fprintf(out, "<th class=\"first\" colspan=\"3\">%s, %s</th>",
                      model_test_text((enum model_test)test), unit_of((enum model_test)test));
    }
    (void)fputs("</tr><tr><th></th><th></th>", out);
    for (int test = 0; test < MODEL_CORNERS; test++) {
        (void)fputs("<th class=\"first\">published</th><th class=\"c0\">Holdfast</th>"
                    "<th class=\"c1\">classic</th>",
                    out);
    }
    (void)fputs("</tr></thead><tbody>", out);
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_row *row = &matrix->rows[i];
        char title[40];
        matrix_row_title(row, title, sizeof(title));
        (void)fprintf(out, "<tr><td>%s</td><td class=\"name\">%s</td>", title, row->link.text);
        for (int test = 0; test < MODEL_CORNERS; test++) {
            const struct matrix_cell *c = &row->cells[test];
            number(out, c->published, "first", c->cache ? "<span class=\"tag\">cache</span>" : "");
            number(out, c->holdfast, c->better ? "good" : "warn", "");
            number(out, c->classic, "", "");
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div><p class=\"soft small\"><span class=\"tag\">cache</span> "
                "beyond what these disks give for this span and depth: it came from memory. "
                "<span class=\"good\">Green</span>: better than published.</p>",
                out);
}

static void reasons(FILE *out, const struct matrix *matrix) {
    (void)fputs("<h2>Where Holdfast is not better than published</h2><div class=\"card wide\">"
                "<table><thead><tr><th>Profile</th><th class=\"text\">Test</th><th>Holdfast</th>"
                "<th>published</th><th class=\"text\">Why</th></tr></thead><tbody>",
                out);
    for (int test = 0; test < MODEL_CORNERS; test++) {
        for (uint32_t i = 0; i < matrix->row_count; i++) {
            const struct matrix_cell *c = &matrix->rows[i].cells[test];
            char title[40];
            if (c->why[0] == '\0') {
                continue;
            }
            matrix_row_title(&matrix->rows[i], title, sizeof(title));
            (void)fprintf(out, "<tr><td>%s</td><td class=\"name\">%s</td>", title,
                          model_test_text((enum model_test)test));
            number(out, c->holdfast, "", "");
            number(out, c->published, "", c->cache ? "<span class=\"tag\">cache</span>" : "");
            (void)fputs("<td class=\"text\">", out);
            put_html(out, c->why);
            (void)fputs("</td></tr>", out);
        }
    }
    (void)fputs("</tbody></table></div>", out);
}

static void price(FILE *out, const struct bench_document *document, enum model_test test,
                  const char *classes) {
    const struct bench_result *r = document == NULL ? NULL : model_result(document, test);
    number(out, r == NULL ? 0 : r->value, classes, "");
}

static void prices(FILE *out, const struct matrix *matrix) {
    (void)fputs("<h2>The prices of writing nothing in place</h2><div class=\"card wide\"><table>"
                "<thead><tr><th>MB/s</th><th class=\"first\" colspan=\"4\">512 KiB sequential read"
                "</th><th class=\"first\" colspan=\"4\">512 KiB sequential write</th></tr><tr>"
                "<th></th><th class=\"first c0\">fresh</th><th class=\"c0\">overwritten at random"
                "</th><th class=\"c0\">reordered</th><th class=\"c1\">classic, overwritten</th><th "
                "class=\"first c0\">fresh</th>"
                "<th class=\"c0\">into an aged pool</th><th class=\"c1\">classic, aged</th>"
                "<th>factor, aged</th></tr></thead><tbody>",
                out);
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct matrix_row *row = &matrix->rows[i];
        char title[40];
        matrix_row_title(row, title, sizeof(title));
        (void)fprintf(out, "<tr><td>%s</td>", title);
        price(out, row->holdfast, MODEL_SEQ_READ_512K, "first");
        price(out, row->holdfast, MODEL_READ_OVERWRITTEN, "");
        price(out, row->holdfast, MODEL_READ_REORDERED, "");
        price(out, row->classic, MODEL_READ_OVERWRITTEN, "");
        price(out, row->holdfast, MODEL_SEQ_WRITE_512K, "first");
        price(out, row->holdfast, MODEL_WRITE_AGED, "");
        price(out, row->classic, MODEL_WRITE_AGED, "");
        const struct bench_result *aged =
            row->holdfast == NULL ? NULL : model_result(row->holdfast, MODEL_WRITE_AGED);
        (void)fprintf(out, "<td>%" PRIu32 "</td>", aged == NULL ? 0 : aged->factor);
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div>", out);
}

static const struct bench_result *any_result(const struct matrix *matrix, enum model_test test) {
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        const struct bench_document *d = matrix->rows[i].holdfast;
        const struct bench_result *r = d == NULL ? NULL : model_result(d, test);
        if (r != NULL) {
            return r;
        }
    }
    return NULL;
}

void matrix_html(FILE *out, const struct matrix *matrix) {
    const struct matrix_row *first = &matrix->rows[0];
    const struct bench_document *any = first->holdfast != NULL  ? first->holdfast
                                       : first->classic != NULL ? first->classic
                                                                : first->bare;
    const struct bench_result *corner = any_result(matrix, MODEL_RAND_READ_4K);
    char span[32], memory[32];
    size_format(any->settings.span_bytes, span, sizeof(span));
    size_format(any->machine.memory_bytes, memory, sizeof(memory));
    (void)fputs("<p class=\"soft\">RAID levels on modelled ", out);
    put_html(out, first->disks.disks[0]->what);
    (void)fprintf(out,
                  " disks: span %s, depth %" PRIu32 ", memory %s, %" PRIu32 " s of virtual time; "
                  "factor %" PRIu32 "</p>",
                  span, corner == NULL ? 0 : corner->queue_depth, memory, any->settings.seconds,
                  corner == NULL ? 0 : corner->factor);
    (void)fputs(
        "<ul class=\"legend\"><li><span class=\"key c0\"></span>Holdfast: the real engine, "
        "in virtual time</li><li><span class=\"key c1\"></span>classic array: overwrites in "
        "place, 256 MiB of sorted write-back at 1 GiB of memory, modelled</li><li><span "
        "class=\"key\" style=\"color:var(--ref)\"></span>published: one box of six bays, "
        "over iSCSI</li></ul><h2>By corner</h2><div class=\"grid\">",
        out);
    for (int test = 0; test < MODEL_CORNERS; test++) {
        (void)fprintf(out, "<section class=\"card\"><h3>%s</h3><p class=\"soft small\">%s</p>",
                      model_test_text((enum model_test)test), unit_of((enum model_test)test));
        chart(out, matrix, (enum model_test)test);
        (void)fputs("</section>", out);
    }
    (void)fputs("</div>", out);
    big_table(out, matrix);
    reasons(out, matrix);
    prices(out, matrix);
}
