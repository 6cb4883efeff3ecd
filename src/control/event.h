// SPDX-License-Identifier: MPL-2.0
/* What happens: the service's log and the events that `holdfast events` shows are one thing.
 *
 * Each kind of event is a line of EVENT_LIST: how bad it is, and what to do about it. What is noted
 * goes to stderr at once, as a plain line, where journald, containers and terminals expect it, and
 * is kept: the last EVENTS_KEPT of each severity, and as many comings and goings of initiators,
 * which are many and must not push out the rest. With event_open() they are also kept over
 * restarts, in the file "events" of the node's state: a line of JSON an event, appended by a thread
 * of its own (whoever notes something never waits for a disk) and rewritten when it has grown to
 * twice what is kept. A line that a crash cut off is left out.
 *
 * Texts name objects and reasons, never secrets. */
#ifndef HOLDFAST_CONTROL_EVENT_H
#define HOLDFAST_CONTROL_EVENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum event_severity { EVENT_INFO, EVENT_WARNING, EVENT_ERROR, EVENT_SEVERITIES };

/* X(kind, name, severity, what to do) */
#define EVENT_LIST(X)                                                                              \
    X(STARTED, "started", INFO, "")                                                                \
    X(READY, "ready", INFO, "")                                                                    \
    X(STOPPING, "stopping", INFO, "")                                                              \
    X(STOPPED, "stopped", INFO, "")                                                                \
    X(NOT_STOPPED, "not-stopped", WARNING,                                                         \
      "nothing acknowledged is lost; look in the journal for a crash, a kill or a power cut")      \
    X(STOP_INCOMPLETE, "stop-incomplete", ERROR,                                                   \
      "look for a disk that does not answer: holdfast pool status after the next start")           \
    X(STATE_UNSAVED, "state-unsaved", ERROR,                                                       \
      "make room in the folder of the node's state, or make it writable")                          \
    X(PORTAL_OPEN, "portal-open", INFO, "")                                                        \
    X(PORTAL_FOR_ALL, "portal-for-all", INFO,                                                      \
      "holdfast lun list shows for whom each LUN is, holdfast lun map changes it")                 \
    X(PORTAL_CLOSED, "portal-closed", ERROR,                                                       \
      "give this host the address, or free the port; it is tried again every few seconds")         \
    X(LOGIN, "login", INFO, "")                                                                    \
    X(LOGIN_REFUSED, "login-refused", WARNING,                                                     \
      "if the host should be let in: holdfast lun list shows for whom each LUN is, holdfast chap " \
      "list the users")                                                                            \
    X(CONNECTION_ENDED, "connection-ended", INFO, "")                                              \
    X(SESSION_LOST, "session-lost", WARNING,                                                       \
      "look at the host and the network between; it logs in again by itself")                      \
    X(POOL_SERVED, "pool-served", INFO, "")                                                        \
    X(POOL_EXPORTED, "pool-exported", INFO, "")                                                    \
    X(POOL_NOT_IMPORTED, "pool-not-imported", ERROR,                                               \
      "bring back what is missing, then: holdfast pool import POOL")                               \
    X(POOL_OK, "pool-ok", INFO, "")                                                                \
    X(POOL_DEGRADED, "pool-degraded", WARNING, "holdfast pool status shows the disks and errors")  \
    X(POOL_FAILED, "pool-failed", ERROR,                                                           \
      "holdfast pool status shows the disks; restart the service to import the pool again")        \
    X(POOL_FILLING, "pool-filling", WARNING,                                                       \
      "delete or unmap what is not needed, or move something to a leaner profile (volume set)")    \
    X(POOL_ROOM, "pool-room", INFO, "")                                                            \
    X(DISK_OK, "disk-ok", INFO, "")                                                                \
    X(DISK_LOST, "disk-lost", ERROR,                                                               \
      "check its cables and power; data with redundancy is served from the other disks")           \
    X(DISK_SUSPECT, "disk-suspect", WARNING,                                                       \
      "nothing waits for it where there is redundancy; it is expelled if it stays so: have "       \
      "another at hand")                                                                           \
    X(DISK_PATH, "disk-path", ERROR,                                                               \
      "bring back what the path named before the service is stopped")                              \
    X(DISK_ERROR, "disk-error", WARNING,                                                           \
      "one may be chance; if they repeat, check the cable and replace the disk")                   \
    X(DISK_REPAIRED, "disk-repaired", WARNING,                                                     \
      "nothing was lost; if it repeats, replace the disk")                                         \
    X(VOLUME_OK, "volume-ok", INFO, "")                                                            \
    X(VOLUME_MOVED, "volume-moved", INFO, "")                                                      \
    X(VOLUME_DAMAGED, "volume-damaged", ERROR,                                                     \
      "bring back missing disks and import the pool again, or copy what can be read and delete "   \
      "the volume")                                                                                \
    X(VOLUME_BROKEN, "volume-broken", ERROR, "restore it from a backup and delete it")             \
    X(SCRUB_BEGAN, "scrub-began", INFO, "")                                                        \
    X(SCRUB_ENDED, "scrub-ended", INFO, "")                                                        \
    X(SCRUB_LOSS, "scrub-loss", ERROR,                                                             \
      "holdfast pool status lists what is lost of which volumes: restore these ranges")            \
    X(LUN_NOT_SERVED, "lun-not-served", ERROR,                                                     \
      "remove the cause, or delete the LUN; it is tried again every few seconds")                  \
    X(RECORD_BAD, "record-bad", ERROR,                                                             \
      "make the LUN or CHAP user again, or serve the pool with the version that wrote it")         \
    X(AS_CONFIGURED, "as-configured", INFO, "")

enum event_kind {
#define X(kind, name, severity, advice) EVENT_##kind,
    EVENT_LIST(X)
#undef X
        EVENT_KINDS
};

enum { EVENTS_KEPT = 400, EVENT_TEXT_MAX = 900, EVENT_WAIT_S_MAX = 30 };

/* One event. `pool` NULL or empty: of the node. Control characters in the text (names come from
 * devices) become '?'. Any thread; waits for nothing. */
void event_note(enum event_kind kind, const char *pool, const char *fmt, ...) HF_PRINTF(3, 4);

const char *event_severity_name(enum event_severity severity);
/* false: no such name. */
bool event_severity_parse(const char *name, enum event_severity *ret_severity);

struct event_filter { /* zeroes: everything */
    const char *pool;
    enum event_severity least;
    int64_t since_unix_s;
    uint64_t after; /* a number */
};

/* What fits the filter, oldest first: an array of {"number", "time", "severity", "kind", "pool",
 * "text", "advice"}. Numbers count from 1, over restarts too; times are RFC 3339, UTC. Waits up to
 * `wait_s` for the first one when there is none. The caller's to json_decref. Any thread that may
 * wait. */
json_t *event_list(const struct event_filter *filter, uint32_t wait_s);
/* The number of the newest event, 0: none. */
uint64_t event_last(void);

/* Takes over what a file of events holds, in place of all that is known; what is no event of ours
 * is left out. For event_open(), and for tests. Not while it is open. */
void event_recall(const char *text, size_t bytes);
/* Takes over what earlier runs kept, and keeps from now on. Once until event_close(). */
void event_open(const char *state_dir);
/* Waits until what has been noted is written, at most a second: what a crash must not hide. */
void event_save(void);
/* Nobody waits in event_list() any more, until event_open(). */
void event_hush(void);
/* Writes out what is not yet written. Harmless when it is not open. */
void event_close(void);

#endif
