// SPDX-License-Identifier: MPL-2.0
/* What has to be done so that a pool is configured as a file says.
 *
 * Things are made and changed, never taken away: volumes, LUNs and users that the file does not
 * name stay. What cannot be changed (a volume's profile, a LUN's number) is a problem, not a step.
 */
#ifndef HOLDFAST_CMD_PLAN_H
#define HOLDFAST_CMD_PLAN_H

#include <jansson.h>

#include "base/error.h"

enum { PLAN_VERSION = 1 };

/* A whole file: {"version", "pools": [what /v1/pools/{pool}/config answers]}. ERR_INVALID,
 * ERR_RANGE, ERR_UNSUPPORTED (a later version). */
HF_MUST_CHECK int plan_check_file(const json_t *file, struct errmsg *reterr);

/* One pool of the file against what it is now (both with secrets, as far as known): an array of
 * {"text", "method", "path", "body", "takes"} in the order to do them, "takes" true where somebody
 * loses access; and {"text", "problem": true}. No text has a secret. The caller's to json_decref.
 */
json_t *plan_pool(const json_t *wanted, const json_t *present);

#endif
