// SPDX-License-Identifier: MPL-2.0
/* `holdfast serve`: this node's service. It owns
 *
 *   main thread   signals; start and stop
 *   node loop     looking for pools, creating them, host state; no pool's data
 *   iSCSI loop    portals, sessions, SCSI (targets.h)
 *   pool loops    one a pool (served.h)
 *   REST threads  one a connection, made by libmicrohttpd (rest.h); they may wait, loops may not
 *
 * Which pools it serves is remembered in the node's state ("served-pools": name and where its disks
 * were), so that they are imported again at the next start, wherever they lie. */
#ifndef HOLDFAST_CONTROL_SERVE_H
#define HOLDFAST_CONTROL_SERVE_H

#include "control/config.h"
#include "control/search.h"
#include "control/served.h"
#include "control/targets.h"

#define HOLDFAST_VERSION "0.1.0"

enum { SERVE_POOLS_MAX = 16, SERVE_STOP_S = 8, SERVE_SETTLE_S = 60 };

struct serve;

/* The API answers, and the imports of the pools have been started. Nobody can connect over iSCSI
 * yet: an initiator that comes back after a crash and is told that its target does not exist gives
 * up, while one that is not answered tries again. `config` is copied. */
HF_MUST_CHECK int serve_start(const struct config *config, struct serve **ret_serve,
                              struct errmsg *reterr);
/* Whether the imports have ended, well or not. */
bool serve_is_settled(struct serve *serve);
/* Opens the portals. What cannot be opened is an alarm (compare.h); an error when it is all of
 * them. */
HF_MUST_CHECK int serve_listen(struct serve *serve, struct errmsg *reterr);
/* Whether it has. Any thread. */
bool serve_is_ready(struct serve *serve);
/* Ends service within `seconds` + 2. ERR_TIMEOUT: a loop did not answer; the process should end
 * without ado, for its threads still run (the first problem is in reterr). */
HF_MUST_CHECK int serve_stop(struct serve *serve, uint32_t seconds, struct errmsg *reterr);

/* serve_start(), serve_listen() once settled or after SERVE_SETTLE_S, wait for SIGINT or SIGTERM,
 * serve_stop(). Signals are blocked in the calling thread and all it starts. */
HF_MUST_CHECK int serve_run(const struct config *config, struct errmsg *reterr);

/* ---- for the handlers of the API: any thread that may wait ---- */

const struct config *serve_config(const struct serve *serve);
struct targets *serve_targets(struct serve *serve);
struct compare *serve_compare(struct serve *serve);
struct measure *serve_measure(struct serve *serve);

/* A reference, or NULL with ERR_NOT_FOUND said. */
struct served *serve_find(struct serve *serve, const char *name, struct errmsg *reterr);
/* The names of the pools that are to be served after the next start, one after the other; false:
 * no more. */
bool serve_remembers(struct serve *serve, uint32_t index, char ret_name[64]);
/* References to all; returns how many. */
uint32_t serve_list(struct serve *serve, struct served *ret_pools[SERVE_POOLS_MAX]);

/* Imports and serves, LUNs and all; waits until it is done. A reference. */
HF_MUST_CHECK int serve_import(struct serve *serve, const char *name,
                               const struct served_import_options *options,
                               struct served **ret_served, struct errmsg *reterr);
/* Inside a change: ends its LUNs, closes it, forgets it. */
HF_MUST_CHECK int serve_export(struct serve *serve, struct served *served, struct errmsg *reterr);

/* Notes where its disks are now, for the next start. */
void serve_remember_disks(struct serve *serve, struct served *served);

/* Looking for pools opens disks exclusively, so that at any time only one may look, create, or
 * erase: an import that finds a disk in use takes it for missing. `patient`: waits without limit;
 * otherwise ERR_BUSY after SERVED_CHANGE_WAIT_MS. */
HF_MUST_CHECK int serve_disks_lock(struct serve *serve, bool patient, struct errmsg *reterr);
void serve_disks_unlock(struct serve *serve);

/* Runs fn(env, arg) as a fiber of the node loop. */
void serve_node_call(struct serve *serve, void (*fn)(struct env *env, void *arg), void *arg);

/* Where pools are looked for: `also`, the configured places, what is remembered.
 * path_list_free() afterwards. */
void serve_search_paths(struct serve *serve, const json_t *also, struct path_list *ret_list);

#endif
