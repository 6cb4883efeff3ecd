// SPDX-License-Identifier: MPL-2.0
/* A measurement as people see it: how far it is, and what it found. */
#ifndef HOLDFAST_CMD_BENCH_SHOW_H
#define HOLDFAST_CMD_BENCH_SHOW_H

#include "bench/run.h"

struct bench_show {
    bool terminal;     /* standard error is one: a line that is written over; else lines of a log */
    bool line_is_open; /* the cursor stands in it */
    char last[160];    /* the line of a log that was printed last */
    uint64_t next_tick; /* of the log: when to say again where it is, in seconds */
};

void bench_show_init(struct bench_show *show);
/* For struct bench_watcher; owner is the struct bench_show. Both go to standard error. */
void bench_show_note(void *owner, const char *text);
void bench_show_progress(void *owner, const struct bench_progress *progress);
/* Ends the live line. */
void bench_show_done(struct bench_show *show);
/* The table of one target, to standard output. */
void bench_show_results(const struct bench_document *document);

#endif
