// SPDX-License-Identifier: MPL-2.0
/* What is to be measured: jobs, from the tables of this program or from a file of fio's form. */
#ifndef HOLDFAST_BENCH_JOB_H
#define HOLDFAST_BENCH_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bench/result.h"

enum {
    JOBS_MAX = 64,
    JOB_THREADS_MAX = 64,
    JOB_DEPTH_MAX = 1024,
    JOB_BLOCK_MAX = 16 << 20,
    JOB_SECONDS_MAX = 7 * 24 * 3600,
};

enum bench_operation {
    JOB_READ,
    JOB_WRITE,
    JOB_MIXED,
    JOB_COPY, /* read at random in the first half, write in order to the second */
};

/* A part of the span: bytes, or percent of it. 0 and 0: from its start; all that is left. */
struct bench_extent {
    uint64_t bytes;
    uint32_t percent;
};

struct bench_job {
    char name[64];
    enum bench_operation operation;
    bool is_random;
    enum bench_unit unit;
    uint32_t read_percent; /* of JOB_MIXED */
    uint32_t block_bytes;
    bool block_is_least; /* the smallest block that the target takes, if that is larger */
    uint32_t depth;      /* 0: as the options say */
    uint32_t threads;    /* 0: as the options say */
    struct bench_extent offset, size;
    uint32_t seconds;     /* 0: as the options say */
    int64_t ramp_seconds; /* -1: as the options say */
    bool once;            /* its part of the target once, however long that takes */
    bool beside;          /* runs at once with the job before it */
};

struct bench_plan {
    char workload[64];
    bool prepare;      /* the span is filled first */
    bool fixed_depths; /* every job says its depth */
    uint32_t count;
    struct bench_job jobs[JOBS_MAX];
    char filename[512]; /* of a job file; may be empty */
};

/* "corners", "seeks", "mixed", "oltp", "backup", "fill"; ERR_NOT_FOUND. */
HF_MUST_CHECK int bench_plan_workload(const char *name, struct bench_plan *ret_plan);

/* A file of fio's form, as docs/BENCH.md says. Messages name the line. ERR_INVALID,
 * ERR_UNSUPPORTED (a key that is not known), ERR_RANGE, ERR_LIMIT. */
HF_MUST_CHECK int bench_plan_parse(const char *text, size_t bytes, struct bench_plan *ret_plan,
                                   struct errmsg *reterr);
/* Reads it first; messages name the file. */
HF_MUST_CHECK int bench_plan_read(const char *path, struct bench_plan *ret_plan,
                                  struct errmsg *reterr);

/* Whether anything of it writes. */
bool bench_plan_writes(const struct bench_plan *plan);
/* Leaves only jobs that read. ERR_INVALID when none is left. */
HF_MUST_CHECK int bench_plan_only_reads(struct bench_plan *plan, struct errmsg *reterr);

#endif
