// SPDX-License-Identifier: MPL-2.0
/* Results side by side, for people: on a terminal, as Markdown, as one HTML file that needs nothing
 * else (no network, no script). What documents say comes from anywhere: every text is escaped. */
#ifndef HOLDFAST_BENCH_REPORT_H
#define HOLDFAST_BENCH_REPORT_H

#include "bench/result.h"

enum { REPORT_DOCUMENTS_MAX = 256, REPORT_ROWS_MAX = 256, REPORT_LABEL_BYTES = 160 };

/* A test, in the documents that have it. */
struct report_row {
    char test[64];
    uint32_t queue_depth, factor; /* factor: of models, as of results */
    enum bench_unit unit;
    int corner;                          /* index into reference figures; -1: none of them */
    const struct bench_result **results; /* one a document; NULL: not measured */
};

struct report {
    const struct bench_document *documents; /* the caller's, outlives the report */
    uint32_t document_count;
    char (*labels)[REPORT_LABEL_BYTES]; /* one a document, no two alike */
    struct report_row *rows;
    uint32_t row_count;
};

/* ERR_LIMIT: more than REPORT_DOCUMENTS_MAX, or REPORT_ROWS_MAX; ERR_INVALID: none. */
HF_MUST_CHECK int report_init(const struct bench_document *documents, uint32_t count,
                              struct report *ret_report, struct errmsg *reterr);
void report_done(struct report *report);

void report_text(FILE *out, const struct report *report);     /* for a terminal */
void report_markdown(FILE *out, const struct report *report); /* for a forum */
void report_html(FILE *out, const struct report *report, const char *title);

/* ---- for those who print ---- */

enum { NUMBER_BYTES = 40 };

/* "16,364", "508", "93.4", "7.21": as exact as a person needs. */
const char *report_number(double value, char ret_text[NUMBER_BYTES]);
/* Microseconds as "87 us", "4.2 ms", "1.3 s". */
const char *report_latency(double us, char ret_text[NUMBER_BYTES]);
/* "4 KiB random read, depth 16"; a test that is not known by its name as it is. */
void report_row_title(const struct report_row *row, char *ret_text, size_t bytes);
/* First document that has it, as what ratios are taken of; NULL. */
const struct bench_result *report_base(const struct report *report, const struct report_row *row);

/* Text of documents, made harmless for where it goes; controls become '?'. */
void put_html(FILE *out, const char *text);
void put_markdown(FILE *out, const char *text);
void put_plain(FILE *out, const char *text);

#endif
