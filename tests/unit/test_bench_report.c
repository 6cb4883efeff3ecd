// SPDX-License-Identifier: MPL-2.0
/* Reports: what goes in comes out again, whatever names there are, and nothing is fetched from
 * anywhere. The matrix: what is said of a cell. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/matrix.h"
#include "bench/report.h"

static const char hostile[] =
    "\"><script>alert(1)</script><img src=x onerror='a'>|`*_[x](y)\x1b[31m&";

static void result_add(struct bench_document *d, const char *test, enum bench_unit unit,
                       double value) {
    struct bench_result *r = bench_document_add(d);
    (void)snprintf(r->test, sizeof(r->test), "%s", test);
    r->unit = unit;
    r->queue_depth = 16;
    r->block_bytes = unit == BENCH_IOPS ? 4096 : 512 << 10;
    r->run_count = 1;
    r->runs[0] = value;
    bench_result_settle(r);
    r->mean_us = 812.25;
    r->p50_us = 700;
    r->p99_us = 4200;
    r->p999_us = 9100;
    r->p9999_us = 12000;
    r->worst_us = 1500000;
    r->bucket_count = 3;
    r->buckets = MEM_NEW_ARRAY(struct bench_bucket, 3);
    r->buckets[0] = (struct bench_bucket){500, 40};
    r->buckets[1] = (struct bench_bucket){900, 50};
    r->buckets[2] = (struct bench_bucket){1500000, 10};
}

static struct bench_document document_of(const char *name, const char *address) {
    struct bench_document d = {.settings.complete = true};
    (void)snprintf(d.target.kind, sizeof(d.target.kind), "model");
    (void)snprintf(d.target.name, sizeof(d.target.name), "%s", name);
    (void)snprintf(d.target.address, sizeof(d.target.address), "%s", address);
    d.settings.span_bytes = 5000000000;
    d.settings.seconds = 20;
    return d;
}

/* Not inlined: gcc 12 would take the stream's text for the variable that points to it. */
__attribute__((noinline)) static char *printed(const struct report *report, char form) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (form == 'h') {
        report_html(out, report, hostile);
    } else if (form == 'm') {
        report_markdown(out, report);
    } else {
        report_text(out, report);
    }
    (void)fclose(out);
    return text;
}

static size_t count_of(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        count++;
    }
    return count;
}

static void two_documents(struct bench_document *documents) {
    documents[0] = document_of("Holdfast", "one");
    documents[1] = document_of("other", "two");
    result_add(&documents[0], "seq-write-512k", BENCH_MB_S, 117.25);
    result_add(&documents[0], "rand-read-4k", BENCH_IOPS, 16364.5);
    result_add(&documents[0], "rand-write-4k", BENCH_IOPS, 508);
    result_add(&documents[1], "rand-read-4k", BENCH_IOPS, 32729);
}

static void numbers_come_back_from_every_form(void **state) {
    (void)state;
    struct bench_document documents[2];
    struct report report;
    two_documents(documents);
    assert_int_equal(report_init(documents, 2, &report, NULL), OK);
    assert_int_equal(report.row_count, 3);
    assert_string_equal(report.rows[0].test, "rand-read-4k"); /* corners in their order */
    char *html = printed(&report, 'h'), *markdown = printed(&report, 'm'),
         *text = printed(&report, 't');
    static const char *const values[] = {"16,36", "32,729",  "508",   "117",
                                         "2.00",  "4.20 ms", "1.50 s"};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        assert_non_null(strstr(html, values[i]));
        assert_non_null(strstr(markdown, values[i]));
        assert_non_null(strstr(text, values[i]));
    }
    /* A table cell carries the exact value. */
    const char *cell = strstr(html, "data-value=\"16364");
    assert_non_null(cell);
    assert_true(strtod(cell + strlen("data-value=\""), NULL) == 16364.5);
    free(html);
    free(markdown);
    free(text);
    report_done(&report);
    bench_document_done(&documents[0]);
    bench_document_done(&documents[1]);
}

/* The page holds the documents as JSON; read again they are the same. */
static void the_page_carries_its_data(void **state) {
    (void)state;
    struct bench_document documents[2], again;
    struct report report;
    two_documents(documents);
    (void)snprintf(documents[0].target.name, sizeof(documents[0].target.name), "%s", hostile);
    assert_int_equal(report_init(documents, 2, &report, NULL), OK);
    char *html = printed(&report, 'h');
    static const char open[] = "<script type=\"application/json\" id=\"results\">";
    char *start = strstr(html, open);
    assert_non_null(start);
    start += strlen(open);
    char *end = strstr(start, "</script>");
    assert_non_null(end);
    json_t *json = json_loadb(start, (size_t)(end - start), 0, NULL);
    assert_int_equal(json_array_size(json), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(bench_document_from_json(json_array_get(json, i), &again, NULL), OK);
        assert_string_equal(again.target.name, documents[i].target.name);
        assert_int_equal(again.result_count, documents[i].result_count);
        for (uint32_t r = 0; r < again.result_count; r++) {
            assert_true(again.results[r].value == documents[i].results[r].value);
            assert_int_equal(again.results[r].bucket_count, 3);
        }
        bench_document_done(&again);
    }
    json_decref(json);
    free(html);
    report_done(&report);
    bench_document_done(&documents[0]);
    bench_document_done(&documents[1]);
}

static void hostile_names_stay_text(void **state) {
    (void)state;
    struct bench_document documents[2];
    struct report report;
    two_documents(documents);
    struct bench_document *d = &documents[0];
    char *const places[] = {d->target.name, d->target.address, d->machine.cpu,    d->machine.kernel,
                            d->when,        d->commit,         d->results[0].test};
    const size_t sizes[] = {sizeof(d->target.name),    sizeof(d->target.address),
                            sizeof(d->machine.cpu),    sizeof(d->machine.kernel),
                            sizeof(d->when),           sizeof(d->commit),
                            sizeof(d->results[0].test)};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        (void)snprintf(places[i], sizes[i], "%s", hostile);
    }
    assert_int_equal(report_init(documents, 2, &report, NULL), OK);
    char *html = printed(&report, 'h'), *markdown = printed(&report, 'm'),
         *text = printed(&report, 't');
    assert_int_equal(count_of(html, "<script"), 1); /* the data */
    assert_int_equal(count_of(html, "</script"), 1);
    assert_null(strstr(html, "<img"));
    assert_non_null(strstr(html, "&lt;script&gt;alert"));
    assert_null(strchr(html, '\x1b'));
    assert_null(strstr(markdown, "<script"));
    assert_null(strstr(markdown, "[x](y)"));
    assert_null(strstr(markdown, "'>|"));
    assert_null(strchr(markdown, '\x1b'));
    assert_null(strchr(text, '\x1b'));
    free(html);
    free(markdown);
    free(text);
    report_done(&report);
    bench_document_done(&documents[0]);
    bench_document_done(&documents[1]);
}

static void the_page_needs_nothing_else(void **state) {
    (void)state;
    struct bench_document documents[2];
    struct report report;
    two_documents(documents);
    assert_int_equal(report_init(documents, 2, &report, NULL), OK);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    report_html(out, &report, "plain");
    (void)fclose(out);
    static const char *const no[] = {"http",  "src=",    "href=", "url(", "@import",
                                     "<link", "<iframe", "nan",   "inf\""};
    for (size_t i = 0; i < ARRAY_COUNT(no); i++) {
        if (strstr(text, no[i]) != NULL) {
            fail_msg("the page contains %s: %.60s", no[i], strstr(text, no[i]));
        }
    }
    assert_int_equal(count_of(text, "<svg"), count_of(text, "</svg>"));
    assert_int_equal(count_of(text, "<g"), count_of(text, "</g>"));
    assert_int_equal(count_of(text, "<td"), count_of(text, "</td>"));
    assert_int_equal(count_of(text, "<div"), count_of(text, "</div>"));
    free(text);
    report_done(&report);
    bench_document_done(&documents[0]);
    bench_document_done(&documents[1]);
}

static void labels_differ_and_limits_hold(void **state) {
    (void)state;
    struct bench_document documents[3] = {document_of("a", "b"), document_of("a", "b"),
                                          document_of("", "")};
    struct report report;
    assert_int_equal(report_init(documents, 0, &report, NULL), ERR_INVALID);
    assert_int_equal(report_init(documents, REPORT_DOCUMENTS_MAX + 1, &report, NULL), ERR_LIMIT);
    assert_int_equal(report_init(documents, 3, &report, NULL), OK);
    assert_string_equal(report.labels[0], "a, b");
    assert_string_equal(report.labels[1], "a, b (2)");
    assert_string_equal(report.labels[2], "model");
    report_done(&report);
    for (int i = 0; i <= REPORT_ROWS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "test%d", i);
        result_add(&documents[0], name, BENCH_IOPS, 1);
    }
    assert_int_equal(report_init(documents, 3, &report, NULL), ERR_LIMIT);
    bench_document_done(&documents[0]);
}

static void numbers_are_written_for_people(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0.00"},         {7.214, "7.21"},  {93.44, "93.4"},        {508, "508"},
                 {16364.4, "16,364"}, {999.6, "1,000"}, {1234567, "1,234,567"}, {-1, "0.00"},
                 {1e300, "1e+300"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[NUMBER_BYTES];
        assert_string_equal(report_number(cases[i].value, text), cases[i].text);
    }
    char text[NUMBER_BYTES];
    assert_string_equal(report_latency(87, text), "87.0 us");
    assert_string_equal(report_latency(4210, text), "4.21 ms");
    assert_string_equal(report_latency(1300000, text), "1.30 s");
}

/* ---- the matrix ---- */

/* raid6 on 6 disks is published as 17,173, 2,563, 870, 114.06, 116.37. */
static void cells_are_judged(void **state) {
    (void)state;
    static const char address[] = "6x hdd-7200-2tb, raid6 over 1x1gbe";
    struct bench_document documents[5] = {
        document_of("Holdfast", address), document_of("classic array", address),
        document_of("bare disks", address), document_of("Holdfast", "6x sata-ssd, raid6 over tape"),
        document_of("Holdfast", "7x hdd-7200-2tb, raid6 over 1x1gbe")};
    const double ours[] = {30000, 1500, 1000, 60, 117};
    for (int i = 0; i < MODEL_CORNERS; i++) {
        result_add(&documents[0], model_test_name((enum model_test)i),
                   i < 3 ? BENCH_IOPS : BENCH_MB_S, ours[i]);
    }
    result_add(&documents[1], "rand-write-4k", BENCH_IOPS, 600);
    result_add(&documents[2], "rand-read-4k", BENCH_IOPS, 1600);
    struct matrix matrix;
    matrix_of(documents, 5, &matrix);
    assert_int_equal(matrix.row_count, 1); /* the others are in no published row */
    const struct matrix_cell *cells = matrix.rows[0].cells;
    assert_true(cells[MODEL_SEQ_READ_512B].better);
    assert_false(cells[MODEL_SEQ_READ_512B].cache);
    assert_true(cells[MODEL_RAND_READ_4K].cache && !cells[MODEL_RAND_READ_4K].better);
    assert_non_null(strstr(cells[MODEL_RAND_READ_4K].why, "came from memory"));
    assert_non_null(strstr(cells[MODEL_RAND_READ_4K].why, "1,600"));
    assert_true(cells[MODEL_RAND_WRITE_4K].cache && cells[MODEL_RAND_WRITE_4K].better);
    assert_string_equal(cells[MODEL_RAND_WRITE_4K].why, "");
    assert_false(cells[MODEL_SEQ_WRITE_512K].better);
    assert_non_null(strstr(cells[MODEL_SEQ_WRITE_512K].why, "before it is acknowledged"));
    assert_true(cells[MODEL_SEQ_READ_512K].better);
    for (int markdown = 0; markdown < 2; markdown++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        matrix_text(out, &matrix, markdown == 1);
        (void)fclose(out);
        assert_non_null(strstr(text, "3 of 5 cells are better"));
        assert_non_null(strstr(text, "2,563"));
        assert_non_null(strstr(text, "came from memory"));
        free(text);
    }
    matrix_done(&matrix);
    for (int i = 0; i < 5; i++) {
        bench_document_done(&documents[i]);
    }
}

/* Every published row over iSCSI is there, once. */
static void published_rows_are_complete(void **state) {
    (void)state;
    uint32_t iscsi = 0;
    for (uint32_t i = 0; i < reference_raid_count; i++) {
        const struct reference_raid *r = &reference_raids[i];
        iscsi += strcmp(r->protocol, "iSCSI") == 0;
        assert_true(profile_min_disks(r->profile) <= r->disks);
        for (uint32_t j = 0; j < i; j++) {
            assert_false(strcmp(r->protocol, reference_raids[j].protocol) == 0 &&
                         r->profile == reference_raids[j].profile &&
                         r->disks == reference_raids[j].disks);
        }
    }
    assert_int_equal(iscsi, 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back_from_every_form),
        cmocka_unit_test(the_page_carries_its_data),
        cmocka_unit_test(hostile_names_stay_text),
        cmocka_unit_test(the_page_needs_nothing_else),
        cmocka_unit_test(labels_differ_and_limits_hold),
        cmocka_unit_test(numbers_are_written_for_people),
        cmocka_unit_test(cells_are_judged),
        cmocka_unit_test(published_rows_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
