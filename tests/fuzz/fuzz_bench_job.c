// SPDX-License-Identifier: MPL-2.0
/* Job files: whatever is accepted is within the limits that a measurement relies on. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/job.h"

static void check(int good) {
    if (!good) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    struct errmsg why = {0};
    int error = bench_plan_parse((const char *)data, bytes, plan, &why);
    check((error == OK) == (why.text[0] == '\0'));
    check(error != OK || (plan->count >= 1 && plan->count <= JOBS_MAX && !plan->jobs[0].beside));
    for (uint32_t i = 0; error == OK && i < plan->count; i++) {
        const struct bench_job *job = &plan->jobs[i];
        check(memchr(job->name, '\0', sizeof(job->name)) != NULL && job->name[0] != '\0');
        check(job->depth >= 1 && job->depth <= JOB_DEPTH_MAX && job->read_percent <= 100);
        check(job->threads >= 1 && job->threads <= JOB_THREADS_MAX);
        check(job->block_bytes >= 512 && job->block_bytes <= JOB_BLOCK_MAX);
        check(job->block_bytes % 512 == 0 && job->seconds <= JOB_SECONDS_MAX);
        check(job->offset.percent <= 100 && job->size.percent <= 100);
        check(job->ramp_seconds >= -1 && job->ramp_seconds <= JOB_SECONDS_MAX);
    }
    mem_free(plan);
    return 0;
}
