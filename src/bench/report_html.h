// SPDX-License-Identifier: MPL-2.0
/* Parts of the HTML page. */
#ifndef HOLDFAST_BENCH_REPORT_HTML_H
#define HOLDFAST_BENCH_REPORT_HTML_H

#include "bench/report.h"

enum { HTML_COLOURS = 8 };

extern const char report_style[]; /* CSS, light and dark */

/* Colour class of a document, "c0" to "c7", again from the start when there are more. */
const char *html_colour(uint32_t index);

/* A bar for each document that has the row, reference systems as grey lines. Inline SVG. */
void svg_bars(FILE *out, const struct report *report, const struct report_row *row);
/* Latency over the share of requests, up to 99.99 %; nothing when no document has a histogram. */
void svg_latency(FILE *out, const struct report *report, const struct report_row *row);

/* An axis from 0 to at least `most`, with round steps: returns its end, and the step. */
double axis_round(double most, double *ret_step);
/* The number beside a step. */
const char *axis_number(double value, char ret_text[NUMBER_BYTES]);

#endif
