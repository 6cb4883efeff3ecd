// SPDX-License-Identifier: MPL-2.0
/* Files of results, as people hand them over: whatever is accepted has to be shown in every form,
 * and to come out of the HTML page unchanged. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/report.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

/* The page has one script element, the data, and that is what went in. */
static void check_page(const char *html, const struct bench_document *document) {
    static const char open[] = "<script type=\"application/json\" id=\"results\">";
    const char *start = strstr(html, open);
    require(start != NULL && strstr(html, "<script") == start);
    start += strlen(open);
    const char *end = strstr(start, "</script>");
    require(end != NULL && strstr(end + strlen("</script>"), "<script") == NULL);
    json_t *json = json_loadb(start, (size_t)(end - start), 0, NULL);
    struct bench_document again;
    require(json_array_size(json) == 2);
    struct errmsg why = {0};
    if (bench_document_from_json(json_array_get(json, 1), &again, &why) == OK) {
        require(strcmp(again.target.name, document->target.name) == 0);
        require(again.result_count == document->result_count);
        bench_document_done(&again);
    } else { /* buckets closer to each other than the nanosecond that is written */
        require(strstr(why.text, "do not rise") != NULL);
    }
    json_decref(json);
}

static void show(const struct bench_document *documents) {
    struct report report;
    if (report_init(documents, 2, &report, NULL) != OK) {
        return;
    }
    void (*const forms[])(FILE *, const struct report *) = {report_text, report_markdown};
    for (int form = 0; form < 3; form++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        if (form < 2) {
            forms[form](out, &report);
        } else {
            report_html(out, &report, documents[0].target.name);
        }
        (void)fclose(out);
        require(strlen(text) == bytes && strchr(text, '\x1b') == NULL);
        if (form == 2) {
            check_page(text, &documents[1]);
        }
        free(text);
    }
    report_done(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *json = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    struct bench_document documents[2];
    struct errmsg why = {0};
    if (json == NULL) {
        return 0;
    }
    int error = bench_document_from_json(json, &documents[0], &why);
    require(error == OK || (why.code == error && why.text[0] != '\0'));
    if (error == OK) {
        require(bench_document_from_json(json, &documents[1], NULL) == OK);
        show(documents);
        bench_document_done(&documents[0]);
        bench_document_done(&documents[1]);
    }
    json_decref(json);
    return 0;
}
