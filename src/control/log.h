// SPDX-License-Identifier: MPL-2.0
/* The service's log: plain lines on stderr, where journald, containers and terminals expect them.
 * The last of them are kept in memory, for those who ask the service (`holdfast events`). */
#ifndef HOLDFAST_CONTROL_LOG_H
#define HOLDFAST_CONTROL_LOG_H

#include <jansson.h>

#include "base/error.h"

/* One line, written at once, so that lines of several threads never mix. Control characters in it
 * (names come from devices) become '?'. Any thread. */
void log_line(const char *fmt, ...) HF_PRINTF(1, 2);

enum { LOG_KEPT_MAX = 500 };
/* What was said last, oldest first: an array of {"number", "time", "text"}; numbers count from 1,
 * times are RFC 3339, UTC. The caller's to json_decref. Any thread. */
json_t *log_events(void);

#endif
