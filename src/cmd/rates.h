// SPDX-License-Identifier: MPL-2.0
/* Rates out of the counters that the API answers. */
#ifndef HOLDFAST_CMD_RATES_H
#define HOLDFAST_CMD_RATES_H

#include <jansson.h>

/* Two answers of /v1/counters → {"seconds", "pools", "luns", "disks"} with, for each object of
 * `now`, reads_per_s, writes_per_s, read_bytes_per_s, write_bytes_per_s, latency_ms (null: nothing
 * was answered) and queue. What `before` does not have, or has more of (it was counted anew), did
 * nothing. `pool` NULL: all of them. The caller's to json_decref. */
json_t *rates_between(const json_t *before, const json_t *now, const char *pool);

#endif
