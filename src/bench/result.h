// SPDX-License-Identifier: MPL-2.0
/* What a measurement (or a prediction) found, and its form as JSON and CSV: docs/BENCH.md, "Results
 * as JSON". Files come from people and from other versions: the reader takes members it does not
 * know, and refuses what is of a wrong type, too long, or not a number. */
#ifndef HOLDFAST_BENCH_RESULT_H
#define HOLDFAST_BENCH_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum { BENCH_VERSION = 1, BENCH_RUNS_MAX = 100, BENCH_RESULTS_MAX = 4096 };

enum bench_unit { BENCH_IOPS, BENCH_MB_S };

/* Values up to and including upper_us, and above the bucket before. */
struct bench_bucket {
    double upper_us;
    uint64_t count;
};

struct bench_result {
    char test[64];
    enum bench_unit unit;
    uint32_t queue_depth;
    uint32_t block_bytes; /* 0: not known */
    double value;         /* the median of `runs` */
    uint32_t run_count;
    double runs[BENCH_RUNS_MAX];
    double spread; /* (highest - lowest) / median */
    double iops, mb_s;
    double mean_us, p50_us, p99_us, p999_us, p9999_us, worst_us;
    uint32_t bucket_count;
    struct bench_bucket *buckets; /* mem_alloc'd; NULL: none */
    double cpu_percent;
    bool client_limited;
    double steady;   /* slowest second / median second */
    uint32_t factor; /* of a model: how many times smaller it was than the real thing; else 0 */
};

struct bench_settings {
    char workload[64];
    char during[16]; /* "degraded", "rebuild": what the pool went through; else empty */
    uint64_t span_bytes, read_ahead_bytes;
    uint32_t seconds, ramp_seconds, runs, jobs, streams, paths;
    bool prepared; /* the span was filled before */
    bool complete; /* false: stopped before the end */
};

struct bench_document {
    char when[32]; /* 2026-11-30T20:51:07Z */
    char commit[48];
    struct {
        char cpu[128], kernel[128];
        uint32_t cores;
        uint64_t memory_bytes;
    } machine;
    struct {
        char kind[16], address[512], name[128];
        uint64_t size_bytes;
        uint32_t block_bytes;
    } target;
    struct bench_settings settings;
    uint32_t result_count;
    struct bench_result *results; /* mem_alloc'd */
};

const char *bench_unit_name(enum bench_unit unit); /* "iops", "mb_s" */
const char *bench_unit_text(enum bench_unit unit); /* "IOPS", "MB/s" */

/* Appends a result, zeroed; valid until the next one is added. */
struct bench_result *bench_document_add(struct bench_document *document);
/* Frees what it holds, not itself. */
void bench_document_done(struct bench_document *document);

/* The median of `count` ≥ 1 values, which are left as they are; the mean of the middle two where
 * there are two. */
double bench_median(const double *values, uint32_t count);
/* Sets value, spread and the other of iops and mb_s from `runs` and block_bytes. */
void bench_result_settle(struct bench_result *result);

/* The caller's to json_decref. */
json_t *bench_document_json(const struct bench_document *document);
/* `ret` is done with bench_document_done(). ERR_INVALID, ERR_UNSUPPORTED (a later version). */
HF_MUST_CHECK int bench_document_from_json(const json_t *json, struct bench_document *ret,
                                           struct errmsg *reterr);
/* A file of one document or an array of them. *ret_documents is mem_alloc'd; each is the caller's
 * to bench_document_done(). Messages name the file. */
HF_MUST_CHECK int bench_documents_read(const char *path, struct bench_document **ret_documents,
                                       uint32_t *ret_count, struct errmsg *reterr);

void bench_csv_heading(FILE *out);
void bench_csv_print(FILE *out, const struct bench_document *document);

#endif
