// SPDX-License-Identifier: MPL-2.0
/* The machine that measures, and the program: what a figure has to be read with. */
#ifndef HOLDFAST_BENCH_MACHINE_H
#define HOLDFAST_BENCH_MACHINE_H

#include "bench/result.h"

/* Fills when, commit and machine. Not the host's name: results are passed on. */
void bench_document_stamp(struct bench_document *document);
const char *bench_commit(void); /* of the tree this was built from, or "unknown" */

#endif
