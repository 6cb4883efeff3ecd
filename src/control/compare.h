// SPDX-License-Identifier: MPL-2.0
/* What is configured against what is served, all the time.
 *
 * Configured are the LUN and CHAP records of the pools that are served, the portals of the
 * settings, and the pools that are remembered from before. Every COMPARE_MS a thread of its own
 * looks at all of them, tries to serve what is not served as it is configured, and keeps what it
 * could not do as a *difference*, with the reason. A new difference is an event, and so is one that
 * has gone; `health` shows those there are. Imports serve a pool's LUNs by the same function.
 *
 * A pool that another change occupies, or whose loop does not answer, is left for the next look. */
#ifndef HOLDFAST_CONTROL_COMPARE_H
#define HOLDFAST_CONTROL_COMPARE_H

#include <jansson.h>

#include "control/served.h"

enum { COMPARE_MS = 2000 };

struct compare;
struct serve;

struct compare *compare_start(struct serve *serve);
/* The thread ends when it can; nothing is reported any more. */
void compare_stop(struct compare *compare);
/* Waits for it. NULL is allowed. */
void compare_free(struct compare *compare);

/* Opens the portals of the settings that are not open. An error when none of them is. */
HF_MUST_CHECK int compare_listen(struct compare *compare, struct errmsg *reterr);
/* Serves what the records of a pool say. `import`: for the first time; waits for its turn. */
void compare_pool(struct compare *compare, struct served *served, bool import);
/* The pool is not to be served any more. */
void compare_forget(struct compare *compare, const char *pool);

/* The differences: an array of {"pool", "text"}; the caller's to json_decref. Any thread. */
json_t *compare_list(struct compare *compare);

#endif
