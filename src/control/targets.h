// SPDX-License-Identifier: MPL-2.0
/* The iSCSI side of a node: some loops, one server, its portals, its targets with their LUNs.
 *
 * All functions may be called from any thread but the iSCSI loops'; they run there and return when
 * done. Nothing on those loops waits for a disk, so none of them takes longer than its deadline. */
#ifndef HOLDFAST_CONTROL_TARGETS_H
#define HOLDFAST_CONTROL_TARGETS_H

#include <jansson.h>

#include "control/chap.h"
#include "control/config.h"
#include "control/lun.h"
#include "volume/volume.h"

struct targets;

/* Everything but the portals: nobody can connect yet. `threads` loops; 0: one a core. */
HF_MUST_CHECK int targets_start(const char *state_dir, uint64_t threads,
                                struct targets **ret_targets, struct errmsg *reterr);
/* The loop that the first pool is to live on; NULL: one of its own. */
struct env *targets_env(struct targets *targets);
/* Listens on the address `index` of `listen`, if that is not open yet: then ret_opened is set. Its
 * portal group tag, where the list names none, depends on the list alone: initiators and
 * reservations know a portal by it, whichever of them could be opened before. */
HF_MUST_CHECK int targets_listen(struct targets *targets, const struct config_list *listen,
                                 uint32_t index, bool *ret_opened, struct errmsg *reterr);
/* The address really bound for the entry `index` of the list; empty: it is not open. */
void targets_portal(struct targets *targets, uint32_t index, char ret_address[CONFIG_VALUE_MAX]);
/* Ends all sessions, lets running commands finish until `deadline_ns`; then none of them touches a
 * volume any more, or it says ERR_TIMEOUT and everything stays as it is. */
HF_MUST_CHECK int targets_quiesce(struct targets *targets, uint64_t deadline_ns);
/* After targets_quiesce() said OK: ends the loops. */
void targets_free(struct targets *targets);

/* Serves a LUN. A target belongs to one pool. ERR_EXISTS when it is another pool's, or has that
 * number already; errors of the SCSI and iSCSI layers. */
HF_MUST_CHECK int targets_add(struct targets *targets, const char *pool,
                              const struct lun_record *record, const struct volume_info *volume,
                              struct volume_door *door, struct errmsg *reterr);
/* Takes over a changed access list, at once (iscsi_target_set_access()). OK too when the LUN is not
 * served. ERR_NOT_FOUND: a rule's CHAP user; then nothing has changed. */
HF_MUST_CHECK int targets_map(struct targets *targets, const char *pool,
                              const struct lun_record *record, struct errmsg *reterr);
/* The CHAP users of a pool from now on; copied. Errors of iscsi_target_set_access(). */
HF_MUST_CHECK int targets_users(struct targets *targets, const char *pool,
                                const struct chap_record *users, uint32_t count,
                                struct errmsg *reterr);
/* Gone for the next command; those under way end on their own. Harmless when it is not served. */
void targets_remove(struct targets *targets, const char *pool, const char *lun);
/* All LUNs and targets of a pool; waits until no command is under way, so that the pool may be
 * closed. ERR_TIMEOUT at `deadline_ns`: the LUNs are gone but the pool must stay. */
HF_MUST_CHECK int targets_remove_pool(struct targets *targets, const char *pool,
                                      uint64_t deadline_ns);
/* Initiators are told of the volume's new size. */
void targets_resized(struct targets *targets, const char *pool, const struct volume_info *volume);

enum targets_state { TARGETS_NOT_SERVED, TARGETS_OTHERWISE, TARGETS_AS_RECORDED };
/* Whether a LUN is served, and as its record says. */
enum targets_state targets_state(struct targets *targets, const char *pool,
                                 const struct lun_record *record);
bool targets_serves(struct targets *targets, const char *pool, const struct lun_record *record);
/* Who is logged in: an array of objects, the caller's to json_decref. */
json_t *targets_sessions(struct targets *targets);
/* What has been done to each served LUN: an array of {"pool", "name", "volume", "reads", "writes",
 * "read_bytes", "write_bytes", "operations", "latency_ns", "queue"}, the caller's to
 * json_decref. */
json_t *targets_counters(struct targets *targets);
/* Addresses really listened on: an array of texts, the caller's to json_decref. */
json_t *targets_portals(struct targets *targets);

#endif
