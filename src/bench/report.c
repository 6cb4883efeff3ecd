// SPDX-License-Identifier: MPL-2.0
/* What all forms of a report share: which test stands where, what documents are called, and how
 * numbers and foreign texts are written. */
#include "bench/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/model.h"

/* ---- numbers ---- */

static void commas(char *digits, char ret_text[NUMBER_BYTES]) {
    size_t length = strlen(digits), used = 0;
    for (size_t i = 0; i < length && used + 2 < NUMBER_BYTES; i++) {
        ret_text[used++] = digits[i];
        if ((length - i - 1) % 3 == 0 && i + 1 < length) {
            ret_text[used++] = ',';
        }
    }
    ret_text[used] = '\0';
}

const char *report_number(double value, char ret_text[NUMBER_BYTES]) {
    if (!isfinite(value) || value < 0) {
        value = 0;
    }
    if (value >= 1e15) {
        (void)snprintf(ret_text, NUMBER_BYTES, "%.3g", value);
    } else if (value >= 100) {
        char digits[NUMBER_BYTES];
        (void)snprintf(digits, sizeof(digits), "%.0f", value);
        commas(digits, ret_text);
    } else {
        (void)snprintf(ret_text, NUMBER_BYTES, "%.*f", value >= 10 ? 1 : 2, value);
    }
    return ret_text;
}

const char *report_latency(double us, char ret_text[NUMBER_BYTES]) {
    double value = us >= 1e6 ? us / 1e6 : us >= 1e3 ? us / 1e3 : us;
    char number[NUMBER_BYTES];
    (void)snprintf(ret_text, NUMBER_BYTES, "%s %s", report_number(value, number),
                   us >= 1e6   ? "s"
                   : us >= 1e3 ? "ms"
                               : "us");
    return ret_text;
}

/* ---- texts ---- */

static char harmless(char c) {
    return (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
}

void put_html(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            (void)fputs("&amp;", out);
            break;
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '"':
            (void)fputs("&quot;", out);
            break;
        case '\'':
            (void)fputs("&#39;", out);
            break;
        default:
            (void)fputc(harmless(*text), out);
        }
    }
}

void put_markdown(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '<') {
            (void)fputs("&lt;", out);
            continue;
        }
        if (strchr("\\`*_{}[]|#!~>&", *text) != NULL) {
            (void)fputc('\\', out);
        }
        (void)fputc(harmless(*text), out);
    }
}

void put_plain(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        (void)fputc(harmless(*text), out);
    }
}

/* ---- rows ---- */

static int corner_of(const char *test) {
    for (int i = 0; i < MODEL_CORNERS; i++) {
        if (strcmp(test, model_test_name((enum model_test)i)) == 0) {
            return i;
        }
    }
    return -1;
}

void report_row_title(const struct report_row *row, char *ret_text, size_t bytes) {
    const char *text = row->test;
    for (int i = 0; i < MODEL_TESTS; i++) {
        if (strcmp(row->test, model_test_name((enum model_test)i)) == 0) {
            text = model_test_text((enum model_test)i);
        }
    }
    if (row->queue_depth > 0) {
        (void)snprintf(ret_text, bytes, "%s, depth %" PRIu32, text, row->queue_depth);
    } else {
        (void)snprintf(ret_text, bytes, "%s", text);
    }
}

static struct report_row *row_of(struct report *r, const struct bench_result *result) {
    for (uint32_t i = 0; i < r->row_count; i++) {
        if (strcmp(r->rows[i].test, result->test) == 0 &&
            r->rows[i].queue_depth == result->queue_depth && r->rows[i].unit == result->unit) {
            return &r->rows[i];
        }
    }
    if (r->row_count == REPORT_ROWS_MAX) {
        return NULL;
    }
    r->rows = mem_realloc(r->rows, (r->row_count + 1) * sizeof(r->rows[0]));
    struct report_row *row = &r->rows[r->row_count++];
    *row = (struct report_row){.queue_depth = result->queue_depth,
                               .block_bytes = result->block_bytes,
                               .unit = result->unit,
                               .corner = corner_of(result->test)};
    (void)snprintf(row->test, sizeof(row->test), "%s", result->test);
    row->results = MEM_NEW_ARRAY(const struct bench_result *, r->document_count);
    return row;
}

/* Corners first, in their usual order; the rest as it came. */
static int compare_rows(const void *a, const void *b) {
    const struct report_row *x = a, *y = b;
    int cx = x->corner < 0 ? MODEL_TESTS : x->corner, cy = y->corner < 0 ? MODEL_TESTS : y->corner;
    if (cx != cy) {
        return cx - cy;
    }
    return (x->queue_depth > y->queue_depth) - (x->queue_depth < y->queue_depth);
}

static void rows_sort(struct report *r) { /* stable, and there are few */
    for (uint32_t i = 1; i < r->row_count; i++) {
        struct report_row row = r->rows[i];
        uint32_t at = i;
        while (at > 0 && compare_rows(&r->rows[at - 1], &row) > 0) {
            r->rows[at] = r->rows[at - 1];
            at--;
        }
        r->rows[at] = row;
    }
}

const char *report_remark(const struct report_row *row, const struct bench_result *result,
                          char ret_text[NUMBER_BYTES]) {
    ret_text[0] = '\0';
    if (result->client_limited) {
        (void)snprintf(ret_text, NUMBER_BYTES, " (client)");
    } else if (result->block_bytes != row->block_bytes && result->block_bytes > 0) {
        (void)snprintf(ret_text, NUMBER_BYTES, " (%" PRIu32 " B)", result->block_bytes);
    }
    return ret_text;
}

/* ---- labels ---- */

/* Cut at a character, not inside one. */
static void text_cut(char *ret, size_t bytes, const char *text) {
    (void)snprintf(ret, bytes, "%s", text);
    size_t length = strlen(ret);
    if (strlen(text) > length) {
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) {
            length--;
        }
        ret[length] = '\0';
    }
}

static void label_make(struct report *r, uint32_t index) {
    const struct bench_document *d = &r->documents[index];
    char name[60], address[80];
    text_cut(name, sizeof(name), d->target.name);
    text_cut(address, sizeof(address), d->target.address);
    char *label = r->labels[index];
    (void)snprintf(label, REPORT_LABEL_BYTES, "%s%s%s%s%s", name,
                   name[0] != '\0' && address[0] != '\0' ? ", " : "", address,
                   d->settings.during[0] != '\0' ? ", " : "", d->settings.during);
    if (label[0] == '\0') {
        (void)snprintf(label, REPORT_LABEL_BYTES, "%s", d->target.kind);
    }
    uint32_t same = 0;
    for (uint32_t i = 0; i < index; i++) {
        const struct bench_document *other = &r->documents[i];
        same += strcmp(other->target.name, d->target.name) == 0 &&
                strcmp(other->target.address, d->target.address) == 0 &&
                strcmp(other->settings.during, d->settings.during) == 0;
    }
    size_t used = strlen(label);
    if (same > 0) {
        (void)snprintf(label + used, REPORT_LABEL_BYTES - used, " (%" PRIu32 ")", same + 1);
    }
}

int report_init(const struct bench_document *documents, uint32_t count, struct report *ret_report,
                struct errmsg *reterr) {
    if (count == 0 || count > REPORT_DOCUMENTS_MAX) {
        return errmsg_set(reterr, count == 0 ? ERR_INVALID : ERR_LIMIT,
                          "a report shows between 1 and %d results, not %" PRIu32,
                          REPORT_DOCUMENTS_MAX, count);
    }
    struct report r = {.documents = documents, .document_count = count};
    r.labels = mem_alloc(count * sizeof(r.labels[0]));
    for (uint32_t i = 0; i < count; i++) {
        label_make(&r, i);
        for (uint32_t j = 0; j < documents[i].result_count; j++) {
            const struct bench_result *result = &documents[i].results[j];
            struct report_row *row = row_of(&r, result);
            if (row == NULL) {
                report_done(&r);
                return errmsg_set(reterr, ERR_LIMIT, "a report shows at most %d different tests",
                                  REPORT_ROWS_MAX);
            }
            row->results[i] = row->results[i] == NULL ? result : row->results[i];
        }
    }
    rows_sort(&r);
    *ret_report = r;
    return OK;
}

void report_done(struct report *report) {
    for (uint32_t i = 0; i < report->row_count; i++) {
        mem_free(report->rows[i].results);
    }
    mem_free(report->rows);
    mem_free(report->labels);
    *report = (struct report){0};
}
