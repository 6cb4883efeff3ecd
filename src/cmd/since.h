// SPDX-License-Identifier: MPL-2.0
/* Points in time as people give them. */
#ifndef HOLDFAST_CMD_SINCE_H
#define HOLDFAST_CMD_SINCE_H

#include <stdint.h>

#include "base/error.h"

/* "90s", "10m", "2h", "3d", "1w" before `now`; "2026-11-30", "2026-11-30T18:30", also with seconds,
 * in local time, or in UTC with a "Z" behind it. Seconds since 1970. ERR_INVALID. */
HF_MUST_CHECK int since_parse(const char *text, int64_t now, int64_t *ret_unix_s,
                              struct errmsg *reterr);

#endif
