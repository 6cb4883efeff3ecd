// SPDX-License-Identifier: MPL-2.0
/* What the REST API says when it cannot do what it was asked, and the answers' common form.
 *
 * Every answer is one JSON object. A failure has an HTTP status that follows from its code by the
 * one table in answer.c, and the body {"error":{"code":"NO_SPACE","message":"…"}}: the code is for
 * programs and comes from base/error.h, the message is for people (what happened, to what, what to
 * do). */
#ifndef HOLDFAST_CONTROL_ANSWER_H
#define HOLDFAST_CONTROL_ANSWER_H

#include <jansson.h>

#include "base/error.h"

/* 200 for OK; 500 for what is no code of ours. */
unsigned answer_status(int code);

/* The error body. `message` without a text gets the code's own line. Never NULL. */
json_t *answer_error(int code, const struct errmsg *message);

/* {"error":…} → code and message, as clients need them: ERR_PROTOCOL when it is no such body,
 * otherwise the code it names (ERR_IO for a name this version does not know), with reterr set. */
int answer_read_error(const json_t *body, struct errmsg *reterr);

/* jansson takes UTF-8 only; bytes from disks and devices may be anything. Invalid ones become '?'.
 * Never NULL. */
json_t *answer_text(const char *text);

#endif
