// SPDX-License-Identifier: MPL-2.0
/* The verbs' side of the REST API, over libcurl. */
#ifndef HOLDFAST_CMD_CLIENT_H
#define HOLDFAST_CMD_CLIENT_H

#include <jansson.h>

#include "cmd/table.h"
#include "cmd/verbs.h"

/* Sends one request and waits for its answer, however long that takes. `body` may be NULL; it is
 * taken over. ERR_CLOSED when no service answers at the socket; the API's own error otherwise. */
HF_MUST_CHECK int client_call(const struct args *args, const char *method, const char *path,
                              json_t *body, json_t **ret_answer, struct errmsg *reterr);

/* "POOL" or "POOL/NAME" → names that are names. ERR_INVALID. */
HF_MUST_CHECK int client_split(const char *operand, const char *what, char ret_pool[64],
                               char ret_name[64], struct errmsg *reterr);
HF_MUST_CHECK int client_pool_name(const char *operand, char ret_pool[64], struct errmsg *reterr);

/* Prints the answer as it came. */
void client_print_json(const json_t *answer);

/* Before something is lost: with --yes nothing happens; on a terminal it says `loss` and wants
 * `word` typed; otherwise ERR_INVALID. */
HF_MUST_CHECK int client_confirm(const struct args *args, const char *loss, const char *word,
                                 struct errmsg *reterr);

/* Makes a path absolute, for the service has another working directory. */
json_t *client_paths(const struct args *args, enum option_id id);

/* A member's text; empty when it has none. */
const char *client_text_of(const json_t *object, const char *key);
/* Of a DELETE; the answer is freed. OK. */
int client_print_deleted(const struct args *args, json_t *answer, const char *what);

/* What a verb lists of each pool: "/v1/pools/POOL/PATH" answers with an array named `key`. */
struct client_listing {
    const char *path, *key;
    struct table *(*new_table)(void);
    void (*add)(struct table *table, const json_t *one);
    const char *nothing; /* said where there is none */
};

/* Lists it for the pool given as the first operand, or for all. */
HF_MUST_CHECK int client_list(const struct args *args, const struct client_listing *listing,
                              struct errmsg *reterr);

/* Names of the pools asked for: the one given as the first operand, or all. The caller's to
 * json_decref. */
HF_MUST_CHECK int client_wanted_pools(const struct args *args, json_t **ret_names,
                                      struct errmsg *reterr);

#endif
