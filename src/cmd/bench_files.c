// SPDX-License-Identifier: MPL-2.0
#include "cmd/bench_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void bench_files_free(struct bench_document *documents, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bench_document_done(&documents[i]);
    }
    mem_free(documents);
}

json_t *bench_files_json(const struct bench_document *documents, uint32_t count) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, bench_document_json(&documents[i]));
    }
    return list;
}

static bool ends_in(const char *path, const char *end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length > wanted && strcasecmp(path + length - wanted, end) == 0;
}

int bench_files_write(const char *path, const struct report *report, const char *title,
                      struct errmsg *reterr) {
    FILE *out = fopen(path, "we");
    if (out == NULL) {
        return errmsg_set(reterr, error_from_errno(errno), "--output: %s cannot be written: %s",
                          path, strerror(errno));
    }
    errno = 0;
    if (ends_in(path, ".html") || ends_in(path, ".htm")) {
        report_html(out, report, title);
    } else if (ends_in(path, ".md")) {
        report_markdown(out, report);
    } else {
        json_t *json = bench_files_json(report->documents, report->document_count);
        (void)json_dumpf(json, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        json_decref(json);
    }
    bool bad = ferror(out) != 0;
    bad = fclose(out) != 0 || bad;
    return bad ? errmsg_set(reterr, ERR_IO, "--output: %s could not be written: %s", path,
                            strerror(errno))
               : OK;
}
