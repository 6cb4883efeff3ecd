// SPDX-License-Identifier: MPL-2.0
/* Charts as inline SVG. Sizes are in units of the view box; the page scales it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "bench/reference.h"
#include "bench/report_html.h"

enum { WIDTH = 560, LEFT = 26, RIGHT = 92, BAR = 22, STEP = 30, TOP = 6 };

/* Reference systems are drawn as long as they do not squash what was measured. */
static const double reference_reach = 4;

const char *html_colour(uint32_t index) {
    static const char *const classes[HTML_COLOURS] = {"c0", "c1", "c2", "c3",
                                                      "c4", "c5", "c6", "c7"};
    return classes[index % HTML_COLOURS];
}

double axis_round(double most, double *ret_step) {
    double step = pow(10, floor(log10(MAX(most, 1e-6) / 4)));
    static const double nice[] = {1, 2, 2.5, 5, 10};
    for (uint32_t i = 0; i < ARRAY_COUNT(nice); i++) {
        if (step * nice[i] * 5 >= most) {
            step *= nice[i];
            break;
        }
    }
    *ret_step = step;
    return ceil(most / step - 1e-9) * step;
}

static void text_at(FILE *out, const char *classes, double x, double y, const char *anchor,
                    const char *text) {
    (void)fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", classes, x,
                  y, anchor);
    put_html(out, text);
    (void)fputs("</text>", out);
}

static void line_at(FILE *out, const char *classes, double x1, double y1, double x2, double y2) {
    (void)fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                  classes, x1, y1, x2, y2);
}

/* Steps are round numbers: "10,000", "50", "2.5". */
const char *axis_number(double value, char ret_text[NUMBER_BYTES]) {
    if (value >= 100) {
        return report_number(value, ret_text);
    }
    (void)snprintf(ret_text, NUMBER_BYTES, "%.3g", value);
    return ret_text;
}

/* ---- bars ---- */

static double most_of(const struct report *report, const struct report_row *row) {
    double most = 0;
    for (uint32_t i = 0; i < report->document_count; i++) {
        most = row->results[i] == NULL ? most : MAX(most, row->results[i]->value);
    }
    double with_references = most;
    for (uint32_t i = 0; i < reference_system_count && row->corner >= 0; i++) {
        double value = reference_systems[i].corners[row->corner];
        if (value <= most * reference_reach) {
            with_references = MAX(with_references, value);
        }
    }
    return MAX(with_references, 1e-6);
}

/* Grey lines behind the bars; the fastest one that is drawn has its name below. */
static void references(FILE *out, const struct report_row *row, double end, double bottom) {
    const struct reference_system *best = NULL;
    double scale = (WIDTH - LEFT - RIGHT) / end, best_x = 0;
    for (uint32_t i = 0; i < reference_system_count && row->corner >= 0; i++) {
        const struct reference_system *s = &reference_systems[i];
        double value = s->corners[row->corner];
        char number[NUMBER_BYTES];
        if (value <= 0 || value > end) {
            continue;
        }
        double x = LEFT + value * scale;
        (void)fprintf(out, "<g><title>");
        put_html(out, s->system);
        (void)fprintf(out, ": %s</title>", report_number(value, number));
        line_at(out, "r", x, TOP, x, bottom);
        (void)fputs("</g>", out);
        if (best == NULL || value > best->corners[row->corner]) {
            best = s;
            best_x = x;
        }
    }
    if (best != NULL) {
        char number[NUMBER_BYTES], text[120];
        (void)snprintf(text, sizeof(text), "%s: %s", best->system,
                       report_number(best->corners[row->corner], number));
        bool left = best_x > WIDTH / 2.0;
        text_at(out, "rt", best_x, bottom + 30, left ? "end" : "start", text);
    }
}

static void axis(FILE *out, double end, double step, double bottom) {
    char number[NUMBER_BYTES];
    double scale = (WIDTH - LEFT - RIGHT) / end;
    for (double at = 0; at <= end + step / 2; at += step) {
        double x = LEFT + at * scale;
        line_at(out, at == 0 ? "a" : "g", x, TOP, x, bottom);
        text_at(out, "t", x, bottom + 15, "middle", axis_number(at, number));
    }
}

void svg_bars(FILE *out, const struct report *report, const struct report_row *row) {
    double step, end = axis_round(most_of(report, row), &step);
    uint32_t bars = 0;
    for (uint32_t i = 0; i < report->document_count; i++) {
        bars += row->results[i] != NULL;
    }
    double bottom = TOP + bars * STEP + 2;
    (void)fprintf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\"><title>", WIDTH, bottom + 38);
    char title[160];
    report_row_title(row, title, sizeof(title));
    put_html(out, title);
    (void)fputs("</title>", out);
    axis(out, end, step, bottom);
    references(out, row, end, bottom);
    double y = TOP + 4;
    for (uint32_t i = 0; i < report->document_count; i++) {
        const struct bench_result *r = row->results[i];
        char number[NUMBER_BYTES];
        if (r == NULL) {
            continue;
        }
        double width = MAX(r->value / end * (WIDTH - LEFT - RIGHT), 1.0);
        (void)fprintf(out, "<g class=\"%s\"><title>", html_colour(i));
        put_html(out, report->labels[i]);
        (void)fprintf(out,
                      "</title><rect class=\"b\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"%d\" rx=\"3\"/></g>",
                      LEFT, y, width, BAR);
        text_at(out, "v", LEFT + width + 6, y + 15.5, "start", report_number(r->value, number));
        (void)snprintf(number, sizeof(number), "%c", i < 26 ? (char)('A' + i) : '+');
        text_at(out, "t", LEFT - 8, y + 15.5, "end", number);
        y += STEP;
    }
    (void)fputs("</svg>", out);
}

/* ---- latency curves ---- */

enum { CURVE_HEIGHT = 210, CURVE_LEFT = 58, CURVE_RIGHT = 14, CURVE_BOTTOM = 30 };

static const double share_end = 0.9999;

/* 0 at none of the requests, 1 at 99.99 %: nines are as wide as each other. */
static double share_place(double share) {
    return log10(1 / (1 - MIN(share, share_end))) / log10(1 / (1 - share_end));
}

struct curves {
    double low_us, high_us; /* powers of ten */
};

static double latency_y(const struct curves *c, double us) {
    double height = CURVE_HEIGHT - CURVE_BOTTOM - TOP;
    double place = log10(MAX(us, c->low_us) / c->low_us) / log10(c->high_us / c->low_us);
    return TOP + height * (1 - MIN(place, 1.0));
}

static double share_x(double share) {
    return CURVE_LEFT + share_place(share) * (WIDTH - CURVE_LEFT - CURVE_RIGHT);
}

/* A file may say anything. */
static double latency_of(const struct bench_bucket *bucket) {
    return MIN(MAX(bucket->upper_us, 1e-3), 1e12);
}

static uint64_t requests_of(const struct bench_result *r) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < r->bucket_count; i++) {
        all += MIN(r->buckets[i].count, UINT64_MAX - all);
    }
    return all;
}

/* false: there is no curve to draw. */
static bool curves_fit(const struct report *report, const struct report_row *row,
                       struct curves *ret) {
    double low = INFINITY, high = 0;
    for (uint32_t i = 0; i < report->document_count; i++) {
        const struct bench_result *r = row->results[i];
        uint64_t all = r == NULL ? 0 : requests_of(r), seen = 0;
        for (uint32_t b = 0; all > 0 && b < r->bucket_count; b++) {
            double us = latency_of(&r->buckets[b]);
            if (r->buckets[b].count == 0 || (double)seen / (double)all > share_end) {
                continue;
            }
            seen += r->buckets[b].count;
            low = MIN(low, us);
            high = MAX(high, us);
        }
    }
    if (high <= 0) {
        return false;
    }
    ret->low_us = pow(10, floor(log10(low)));
    ret->high_us = pow(10, ceil(log10(MAX(high, ret->low_us * 1.01))));
    return true;
}

static void curve(FILE *out, const struct curves *c, const struct bench_result *r) {
    uint64_t all = requests_of(r), seen = 0;
    double before_x = -100, before_y = -100;
    (void)fputs("<path class=\"l\" d=\"", out);
    bool first = true;
    for (uint32_t b = 0; b < r->bucket_count && all > 0; b++) {
        if (r->buckets[b].count == 0) {
            continue;
        }
        double y = latency_y(c, latency_of(&r->buckets[b]));
        double from = share_x((double)seen / (double)all);
        seen += MIN(r->buckets[b].count, UINT64_MAX - seen);
        double to = share_x((double)seen / (double)all);
        if (!first && to - before_x < 0.4 && fabs(y - before_y) < 0.4) {
            continue; /* closer than anybody sees */
        }
        (void)fprintf(out, "%s%.1f %.1f", first ? "M" : "L", first ? from : before_x, y);
        (void)fprintf(out, "L%.1f %.1f", to, y);
        before_x = to;
        before_y = y;
        first = false;
        if ((double)seen / (double)all >= share_end) {
            break;
        }
    }
    (void)fputs("\"/>", out);
}

void svg_latency(FILE *out, const struct report *report, const struct report_row *row) {
    static const struct {
        double share;
        const char *text;
    } ticks[] = {{0, "0"},     {0.5, "50 %"},   {0.9, "90"},
                 {0.99, "99"}, {0.999, "99.9"}, {0.9999, "99.99 %"}};
    struct curves c;
    if (!curves_fit(report, row, &c)) {
        return;
    }
    double bottom = CURVE_HEIGHT - CURVE_BOTTOM;
    (void)fprintf(out,
                  "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>latency over the share of "
                  "requests</title>",
                  WIDTH, CURVE_HEIGHT);
    for (double us = c.low_us; us <= c.high_us * 1.01; us *= 10) {
        double whole = us >= 1e6 ? us / 1e6 : us >= 1e3 ? us / 1e3 : us;
        const char *unit = us >= 1e6 ? "s" : us >= 1e3 ? "ms" : "us";
        char number[NUMBER_BYTES], text[NUMBER_BYTES + 4];
        (void)snprintf(text, sizeof(text), "%s %s", axis_number(whole, number), unit);
        line_at(out, "g", CURVE_LEFT, latency_y(&c, us), WIDTH - CURVE_RIGHT, latency_y(&c, us));
        text_at(out, "t", CURVE_LEFT - 6, latency_y(&c, us) + 4, "end", text);
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(ticks); i++) {
        double x = share_x(ticks[i].share);
        line_at(out, i == 0 ? "a" : "g", x, TOP, x, bottom);
        text_at(out, "t", x, bottom + 16, i + 1 == ARRAY_COUNT(ticks) ? "end" : "middle",
                ticks[i].text);
    }
    for (uint32_t i = 0; i < report->document_count; i++) {
        if (row->results[i] != NULL && row->results[i]->bucket_count > 0) {
            (void)fprintf(out, "<g class=\"%s\"><title>", html_colour(i));
            put_html(out, report->labels[i]);
            (void)fputs("</title>", out);
            curve(out, &c, row->results[i]);
            (void)fputs("</g>", out);
        }
    }
    (void)fputs("</svg>", out);
}
