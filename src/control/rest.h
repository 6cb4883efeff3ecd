// SPDX-License-Identifier: MPL-2.0
/* HTTP on a unix socket, by libmicrohttpd: one thread a connection, so that a request that waits
 * for a pool holds up nobody else. */
#ifndef HOLDFAST_CONTROL_REST_H
#define HOLDFAST_CONTROL_REST_H

#include "control/serve.h"

struct rest;

/* Takes over a socket that nobody answers; ERR_BUSY when somebody does. Its folder is made when
 * only the last part is missing. Whoever may write the socket (its owner) may do everything.
 * Clients may connect from now on; they are answered after rest_start(). */
HF_MUST_CHECK int rest_open(const char *socket, struct rest **ret_rest, struct errmsg *reterr);
HF_MUST_CHECK int rest_start(struct rest *rest, struct serve *serve, struct errmsg *reterr);
/* Accepts no connection any more; requests under way go on. */
void rest_quiesce(struct rest *rest);
/* Waits for requests under way. NULL is allowed. */
void rest_stop(struct rest *rest);

#endif
