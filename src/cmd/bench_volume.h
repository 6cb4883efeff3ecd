// SPDX-License-Identifier: MPL-2.0
/* A volume as a target: "volume:POOL/NAME", or "volume:NAME" where only one pool has it. It is
 * measured by the service, which has its pool; this side asks how far it is. */
#ifndef HOLDFAST_CMD_BENCH_VOLUME_H
#define HOLDFAST_CMD_BENCH_VOLUME_H

#include "bench/run.h"
#include "cmd/verbs.h"

bool bench_volume_is_target(const char *target);
/* As bench_run(), with --during. `job_file`: of `bench job`; NULL: the verb's name is the workload.
 * `watcher` has no `prepared`. */
HF_MUST_CHECK int bench_volume_run(const struct args *args, const char *target,
                                   const struct bench_options *options, const char *job_file,
                                   const struct bench_watcher *watcher,
                                   struct bench_document *ret_document, struct errmsg *reterr);

#endif
