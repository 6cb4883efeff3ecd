// SPDX-License-Identifier: MPL-2.0
/* The HTML page: one file, no script, nothing from elsewhere, so that it can be sent to somebody.
 * What it shows is in it once more as JSON (script type="application/json"), for whoever wants the
 * numbers. */
#include "bench/report_html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/matrix.h"
#include "bench/reference.h"

static void letter_put(FILE *out, uint32_t index) {
    if (index < 26) {
        (void)fputc('A' + (int)index, out);
    } else {
        (void)fprintf(out, "%c%c", (char)('A' + index / 26 - 1), (char)('A' + index % 26));
    }
}

static void legend(FILE *out, const struct report *report) {
    (void)fputs("<ul class=\"legend\">", out);
    for (uint32_t i = 0; i < report->document_count; i++) {
        const struct bench_document *d = &report->documents[i];
        (void)fprintf(out, "<li><span class=\"key %s\"></span><span><b>", html_colour(i));
        letter_put(out, i);
        (void)fputs("</b> &nbsp;", out);
        put_html(out, report->labels[i]);
        (void)fputs(" <span class=\"soft\">", out);
        put_html(out, d->when);
        (void)fputs(d->settings.complete ? "" : " (stopped before its end)", out);
        (void)fputs("</span></span></li>", out);
    }
    (void)fputs("</ul>", out);
}

static void cards(FILE *out, const struct report *report) {
    (void)fputs("<h2>Corners</h2><p class=\"soft small\">Grey lines are published figures of other "
                "systems (the names appear when you point at them; the list is below). Curves: "
                "latency of that share of the requests.</p><div class=\"grid\">",
                out);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct report_row *row = &report->rows[i];
        char title[160];
        report_row_title(row, title, sizeof(title));
        (void)fputs("<section class=\"card\"><h3>", out);
        put_html(out, title);
        (void)fprintf(out, "</h3><p class=\"soft small\">%s, more is better</p>",
                      bench_unit_text(row->unit));
        svg_bars(out, report, row);
        svg_latency(out, report, row);
        (void)fputs("</section>", out);
    }
    (void)fputs("</div>", out);
}

static void number_cell(FILE *out, double value, const char *text, const char *classes) {
    (void)fprintf(out, "<td class=\"%s\" data-value=\"%.3f\">%s</td>", classes, value, text);
}

static void value_cells(FILE *out, const struct report_row *row, uint32_t document) {
    const struct bench_result *r = row->results[document], *first = row->results[0];
    char number[NUMBER_BYTES], remark[NUMBER_BYTES];
    if (r == NULL) {
        (void)fprintf(out, "<td class=\"first\">&ndash;</td>%s",
                      document > 0 ? "<td>&ndash;</td>" : "");
        return;
    }
    (void)fprintf(out, "<td class=\"first\" data-value=\"%.3f\">%s", r->value,
                  report_number(r->value, number));
    if (r->run_count > 1) {
        (void)fprintf(out, " <span class=\"soft small\">&plusmn;%.1f %%</span>", r->spread * 50);
    }
    (void)fprintf(out, "<span class=\"soft small\">%s</span></td>", report_remark(row, r, remark));
    if (document > 0 && first != NULL && first->value > 0) {
        double times = r->value / first->value;
        char text[NUMBER_BYTES + 16];
        (void)snprintf(text, sizeof(text), "&times; %s", report_number(times, number));
        number_cell(out, times, text, times >= 1.05 ? "good" : times < 0.95 ? "warn" : "");
    } else if (document > 0) {
        (void)fputs("<td>&ndash;</td>", out);
    }
}

static void values(FILE *out, const struct report *report) {
    (void)fputs("<h2>Values</h2><div class=\"card wide\"><table><thead><tr><th>Test</th>"
                "<th class=\"text\">Unit</th>",
                out);
    for (uint32_t i = 0; i < report->document_count; i++) {
        (void)fprintf(out, "<th class=\"first\"><span class=\"%s\">", html_colour(i));
        letter_put(out, i);
        (void)fputs("</span></th>", out);
        (void)fputs(i > 0 ? "<th>of A</th>" : "", out);
    }
    (void)fputs("</tr></thead><tbody>", out);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct report_row *row = &report->rows[i];
        char title[160];
        report_row_title(row, title, sizeof(title));
        (void)fputs("<tr><td>", out);
        put_html(out, title);
        (void)fprintf(out, "</td><td class=\"text\">%s</td>", bench_unit_text(row->unit));
        for (uint32_t d = 0; d < report->document_count; d++) {
            value_cells(out, row, d);
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div>", out);
}

static void latencies(FILE *out, const struct report *report) {
    (void)fputs(
        "<h2>Latencies</h2><div class=\"card wide\"><table><thead><tr><th>Test</th><th></th>"
        "<th>mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>p99.99</th><th>worst</th>"
        "<th>steadiness</th><th>factor</th></tr></thead><tbody>",
        out);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct report_row *row = &report->rows[i];
        char title[160];
        report_row_title(row, title, sizeof(title));
        bool first = true;
        for (uint32_t d = 0; d < report->document_count; d++) {
            const struct bench_result *r = row->results[d];
            if (r == NULL || r->worst_us <= 0) { /* of no load: a rebuild */
                continue;
            }
            (void)fputs("<tr><td>", out);
            put_html(out, first ? title : "");
            (void)fprintf(out, "</td><td class=\"%s\">", html_colour(d));
            letter_put(out, d);
            (void)fputs("</td>", out);
            const double us[] = {r->mean_us, r->p50_us,   r->p99_us,
                                 r->p999_us, r->p9999_us, r->worst_us};
            for (uint32_t j = 0; j < ARRAY_COUNT(us); j++) {
                char text[NUMBER_BYTES];
                number_cell(out, us[j], report_latency(us[j], text), "");
            }
            (void)fprintf(out, "<td>%.2f</td>", r->steady);
            if (r->factor > 0) {
                (void)fprintf(out, "<td>%" PRIu32 "</td></tr>", r->factor);
            } else {
                (void)fputs("<td>&ndash;</td></tr>", out);
            }
            first = false;
        }
    }
    (void)fputs(
        "</tbody></table></div><p class=\"soft small\">Steadiness: the slowest part of the "
        "time beside the middle one; 1 is perfectly even. Factor: of models, how many times "
        "smaller they were than the real thing.</p>",
        out);
}

/* ---- machine and settings ---- */

static void fact_open(FILE *out, const char *name) {
    (void)fputs("<tr><td>", out);
    put_html(out, name);
    (void)fputs("</td>", out);
}

static void fact_text(FILE *out, const char *text) {
    (void)fputs("<td class=\"text\">", out);
    put_html(out, text);
    (void)fputs("</td>", out);
}

enum fact {
    FACT_TARGET,
    FACT_SIZE,
    FACT_SPAN,
    FACT_TIME,
    FACT_PATHS,
    FACT_MACHINE,
    FACT_MEMORY,
    FACT_KERNEL,
    FACT_COMMIT,
    FACTS
};

static void fact_of(const struct bench_document *d, enum fact fact, char *ret, size_t bytes) {
    char size[32];
    ret[0] = '\0';
    switch (fact) {
    case FACT_TARGET:
        (void)snprintf(ret, bytes, "%s %s", d->target.kind, d->target.address);
        break;
    case FACT_SIZE:
        size_format(d->target.size_bytes, ret, bytes);
        break;
    case FACT_SPAN:
        size_format(d->settings.span_bytes, size, sizeof(size));
        (void)snprintf(ret, bytes, "%s%s", size, d->settings.prepared ? ", filled before" : "");
        break;
    case FACT_TIME:
        (void)snprintf(ret, bytes, "%" PRIu32 " s after %" PRIu32 " s, %" PRIu32 " run%s",
                       d->settings.seconds, d->settings.ramp_seconds, d->settings.runs,
                       d->settings.runs == 1 ? "" : "s");
        break;
    case FACT_PATHS:
        (void)snprintf(ret, bytes, "%" PRIu32, d->settings.paths);
        break;
    case FACT_MACHINE:
        (void)snprintf(ret, bytes, "%s", d->machine.cpu);
        if (d->machine.cores > 0) {
            size_t used = strlen(ret);
            (void)snprintf(ret + used, bytes - used, ", %" PRIu32 " cores", d->machine.cores);
        }
        break;
    case FACT_MEMORY:
        size_format(d->machine.memory_bytes, ret, bytes);
        break;
    case FACT_KERNEL:
        (void)snprintf(ret, bytes, "%s", d->machine.kernel);
        break;
    case FACT_COMMIT:
        (void)snprintf(ret, bytes, "%s", d->commit);
        break;
    case FACTS:
        break;
    }
}

static void settings(FILE *out, const struct report *report) {
    static const char *const names[FACTS] = {"Target",  "Size",   "Span",   "Time",  "Paths",
                                             "Machine", "Memory", "Kernel", "Commit"};
    (void)fputs("<h2>Machine and settings</h2><div class=\"card wide\"><table><thead><tr><th></th>",
                out);
    for (uint32_t i = 0; i < report->document_count; i++) {
        (void)fprintf(out, "<th class=\"text %s\">", html_colour(i));
        letter_put(out, i);
        (void)fputs("</th>", out);
    }
    (void)fputs("</tr></thead><tbody>", out);
    for (int fact = 0; fact < FACTS; fact++) {
        fact_open(out, names[fact]);
        for (uint32_t i = 0; i < report->document_count; i++) {
            char text[640];
            fact_of(&report->documents[i], (enum fact)fact, text, sizeof(text));
            fact_text(out, text);
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div>", out);
}

static void reference_table(FILE *out) {
    (void)fputs("<details><summary>Published figures of other systems (the grey lines)</summary>"
                "<div class=\"card wide\"><table><thead><tr><th>System</th><th class=\"text\">Disks"
                "</th><th>512 B seq. read</th><th>4 KiB rand. read</th><th>4 KiB rand. write</th>"
                "<th>seq. write, MB/s</th><th>seq. read, MB/s</th></tr></thead><tbody>",
                out);
    for (uint32_t i = 0; i < reference_system_count; i++) {
        const struct reference_system *s = &reference_systems[i];
        fact_open(out, s->system);
        fact_text(out, s->disks);
        for (uint32_t c = 0; c < REFERENCE_CORNERS; c++) {
            char number[NUMBER_BYTES];
            (void)fprintf(out, "<td>%s</td>",
                          s->corners[c] > 0 ? report_number(s->corners[c], number) : "&ndash;");
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div></details>", out);
}

/* Of models: what to believe. */
static void caveats(FILE *out, const struct report *report) {
    bool model = false;
    for (uint32_t i = 0; i < report->document_count; i++) {
        model = model || strcmp(report->documents[i].target.kind, "model") == 0;
    }
    if (!model) {
        return;
    }
    (void)fputs("<h2>Where the model is generous</h2><div class=\"card\"><ul>", out);
    for (uint32_t i = 0; model_caveats[i] != NULL; i++) {
        (void)fputs("<li>", out);
        put_html(out, model_caveats[i]);
        (void)fputs("</li>", out);
    }
    (void)fputs("</ul></div>", out);
}

/* ---- the data itself ---- */

static void data(FILE *out, const struct report *report) {
    json_t *all = json_array();
    for (uint32_t i = 0; i < report->document_count; i++) {
        (void)json_array_append_new(all, bench_document_json(&report->documents[i]));
    }
    char *text = json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII);
    (void)fputs("<script type=\"application/json\" id=\"results\">", out);
    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        /* Inside a string, the only place for it, this is the same character; so nothing in it ends
         * the element. */
        (void)fputs(*c == '<' ? "\\u003c" : (char[]){*c, '\0'}, out);
    }
    (void)fputs("</script>", out);
    free(text);
    json_decref(all);
}

void report_html(FILE *out, const struct report *report, const char *title) {
    struct matrix matrix;
    matrix_of(report->documents, report->document_count, &matrix);
    (void)fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
                out);
    put_html(out, title);
    (void)fprintf(out, "</title><style>%s</style></head><body><main><h1>", report_style);
    put_html(out, title);
    (void)fputs("</h1>", out);
    if (matrix.row_count >= MATRIX_ROWS_MIN) {
        matrix_html(out, &matrix);
    } else {
        (void)fprintf(out, "<p class=\"soft\">%" PRIu32 " result%s, side by side</p>",
                      report->document_count, report->document_count == 1 ? "" : "s");
        legend(out, report);
        cards(out, report);
        values(out, report);
        latencies(out, report);
        settings(out, report);
    }
    caveats(out, report);
    reference_table(out);
    data(out, report);
    (void)fputs("<footer>Made by holdfast bench. This page needs no network; the results are in it "
                "as JSON.</footer></main></body></html>\n",
                out);
    matrix_done(&matrix);
}
