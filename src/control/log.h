// SPDX-License-Identifier: MPL-2.0
/* The service's log: plain lines on stderr, where journald, containers and terminals expect them.
 */
#ifndef HOLDFAST_CONTROL_LOG_H
#define HOLDFAST_CONTROL_LOG_H

#include "base/error.h"

/* One line, written at once, so that lines of several threads never mix. Control characters in it
 * (names come from devices) become '?'. Any thread. */
void log_line(const char *fmt, ...) HF_PRINTF(1, 2);

#endif
