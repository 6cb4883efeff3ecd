// SPDX-License-Identifier: MPL-2.0
/* holdfast bench compare and report: results that are there already, side by side. */
#include <string.h>

#include "base/mem.h"
#include "bench/report.h"
#include "cmd/bench_files.h"
#include "cmd/client.h"
#include "cmd/commands.h"

/* All documents of all files, in the order given. */
static int read_files(const struct args *args, struct bench_document **ret_documents,
                      uint32_t *ret_count, struct errmsg *reterr) {
    struct bench_document *all = NULL;
    uint32_t count = 0, files = args->rest_count + 1;
    for (uint32_t i = 0; i < files; i++) {
        const char *path = i == 0 ? args->operands[0] : args->rest[i - 1];
        struct bench_document *documents;
        uint32_t more;
        int error = bench_documents_read(path, &documents, &more, reterr);
        if (error != OK) {
            bench_files_free(all, count);
            return error;
        }
        all = mem_realloc(all, (count + more) * sizeof(all[0]));
        memcpy(all + count, documents, more * sizeof(all[0]));
        count += more;
        mem_free(documents);
    }
    *ret_documents = all;
    *ret_count = count;
    return OK;
}

static int with_report(const struct args *args, struct errmsg *reterr,
                       int (*show)(const struct args *args, const struct report *report,
                                   struct errmsg *reterr)) {
    struct bench_document *documents;
    struct report report;
    uint32_t count;
    int error = read_files(args, &documents, &count, reterr);
    if (error != OK) {
        return error;
    }
    error = report_init(documents, count, &report, reterr);
    if (error == OK) {
        error = show(args, &report, reterr);
        report_done(&report);
    }
    bench_files_free(documents, count);
    return error;
}

static int show_side_by_side(const struct args *args, const struct report *report,
                             struct errmsg *reterr) {
    (void)reterr;
    if (args->given[OPT_JSON]) {
        json_t *json = bench_files_json(report->documents, report->document_count);
        client_print_json(json);
        json_decref(json);
    } else if (args->given[OPT_MARKDOWN]) {
        report_markdown(stdout, report);
    } else {
        report_text(stdout, report);
    }
    return OK;
}

static int show_page(const struct args *args, const struct report *report, struct errmsg *reterr) {
    const char *title = args->given[OPT_TITLE] ? args->text[OPT_TITLE] : "holdfast bench";
    if (args->given[OPT_REPORT]) {
        return bench_files_write(args->text[OPT_REPORT], report, title, reterr);
    }
    report_html(stdout, report, title);
    return OK;
}

int cmd_bench_compare(const struct args *args, struct errmsg *reterr) {
    return with_report(args, reterr, show_side_by_side);
}

int cmd_bench_report(const struct args *args, struct errmsg *reterr) {
    return with_report(args, reterr, show_page);
}
