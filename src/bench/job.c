// SPDX-License-Identifier: MPL-2.0
#include "bench/job.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"

enum { KIB = 1 << 10, OLTP = 67 };

#define JOB .ramp_seconds = -1
static const struct {
    const char *workload;
    struct bench_job job;
} table[] = {
    {"corners",
     {"seq-read-512b", JOB_READ, false, BENCH_IOPS, 0, 512, .block_is_least = true, JOB}},
    {"corners", {"rand-read-4k", JOB_READ, true, BENCH_IOPS, 0, 4 * KIB, JOB}},
    {"corners", {"rand-write-4k", JOB_WRITE, true, BENCH_IOPS, 0, 4 * KIB, JOB}},
    {"corners", {"seq-write-512k", JOB_WRITE, false, BENCH_MB_S, 0, 512 * KIB, JOB}},
    {"corners", {"seq-read-512k", JOB_READ, false, BENCH_MB_S, 0, 512 * KIB, JOB}},
    {"seeks", {"seeks", JOB_READ, true, BENCH_IOPS, 0, 512, .block_is_least = true, JOB}},
    {"mixed", {"mixed-70-30-4k", JOB_MIXED, true, BENCH_IOPS, 70, 4 * KIB, JOB}},
    {"oltp",
     {"oltp-data-8k", JOB_MIXED, true, BENCH_IOPS, OLTP, 8 * KIB, .size = {.percent = 90}, JOB}},
    {"oltp",
     {"oltp-log-4k", JOB_WRITE, false, BENCH_IOPS, 0, 4 * KIB, .depth = 1, .threads = 1,
      .offset = {.percent = 90}, .beside = true, JOB}},
    {"backup", {"backup-write-512k", JOB_WRITE, false, BENCH_MB_S, 0, 512 * KIB, JOB}},
    {"backup", {"synthetic-full-512k", JOB_COPY, false, BENCH_MB_S, 0, 512 * KIB, JOB}},
    {"fill", {"fill-512k", JOB_WRITE, false, BENCH_MB_S, 0, 512 * KIB, .once = true, JOB}},
};
#undef JOB

int bench_plan_workload(const char *name, struct bench_plan *ret_plan) {
    struct bench_plan plan = {.prepare = strcmp(name, "fill") != 0};
    (void)snprintf(plan.workload, sizeof(plan.workload), "%s", name);
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        if (strcmp(table[i].workload, name) == 0) {
            plan.jobs[plan.count++] = table[i].job;
        }
    }
    if (plan.count == 0) {
        return ERR_NOT_FOUND;
    }
    *ret_plan = plan;
    return OK;
}

bool bench_plan_writes(const struct bench_plan *plan) {
    bool writes = false;
    for (uint32_t i = 0; i < plan->count; i++) {
        writes |= plan->jobs[i].operation != JOB_READ;
    }
    return writes;
}

int bench_plan_only_reads(struct bench_plan *plan, struct errmsg *reterr) {
    uint32_t kept = 0;
    bool follows = false; /* the job before, if it was kept, runs beside this one */
    for (uint32_t i = 0; i < plan->count; i++) {
        struct bench_job job = plan->jobs[i];
        follows = follows && job.beside;
        if (job.operation == JOB_READ) {
            job.beside = follows;
            follows = true;
            plan->jobs[kept++] = job;
        }
    }
    plan->count = kept;
    plan->prepare = false;
    return kept > 0 ? OK
                    : errmsg_set(reterr, ERR_INVALID,
                                 "--read-only: everything in %s writes, so nothing is left",
                                 plan->workload);
}
