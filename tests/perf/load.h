// SPDX-License-Identifier: MPL-2.0
/* What the benchmarks share: what an engine did while a load (bench/model_load.h) ran on its loop,
 * and how figures are printed. */
#ifndef HOLDFAST_PERF_LOAD_H
#define HOLDFAST_PERF_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/model_load.h"
#include "engine/engine.h"

/* ---- what the engine did meanwhile ---- */

struct activity {
    uint64_t log_bytes, row_bytes, meta_bytes, cleaned_blocks, disk_written, disk_read;
    uint64_t checkpoints, checkpoint_last_ms, log_waits;
};

void activity_read(struct engine *engine, struct activity *ret_activity);
struct activity activity_since(const struct activity *now, const struct activity *before);

/* ---- printing ---- */

/* One figure: a line for people or, with `json`, an object on one line. `labels` is text for the
 * front of the line, "a=b c=d"; in JSON each becomes a string. */
void figure_print(FILE *out, bool json, const char *labels, const struct model_load_result *result,
                  const struct activity *activity, double cpu_seconds);

#endif
