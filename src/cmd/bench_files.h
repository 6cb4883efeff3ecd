// SPDX-License-Identifier: MPL-2.0
/* Files of results and reports. */
#ifndef HOLDFAST_CMD_BENCH_FILES_H
#define HOLDFAST_CMD_BENCH_FILES_H

#include "bench/report.h"

void bench_files_free(struct bench_document *documents, uint32_t count); /* NULL is allowed */

/* An array of documents; the caller's to json_decref(). */
json_t *bench_files_json(const struct bench_document *documents, uint32_t count);

/* HTML, Markdown or JSON, by the end of the name: .html (.htm), .md, anything else. */
HF_MUST_CHECK int bench_files_write(const char *path, const struct report *report,
                                    const char *title, struct errmsg *reterr);

#endif
