// SPDX-License-Identifier: MPL-2.0
/* One pool this node serves: its thread, its loop, its engine, and what is known about it.
 *
 * Who may do what from which thread
 *   The pool's loop owns the engine; every engine function runs there. Other threads (those that
 *   answer REST requests, the main thread) reach it in two ways:
 *   - A change (create a volume, …) is a fiber_call() between served_change_begin() and _end(): one
 *     at a time for each pool, so a pool whose disks are slow holds up at most one caller in the
 *     engine; a second one is told BUSY, with what is under way, after CHANGE_WAIT_MS.
 *   - A look (status, volumes, LUNs) is served_look(): a task copies everything into a snapshot on
 *     the loop, without a fiber and without disks. If the loop does not answer within LOOK_WAIT_MS
 *     the last snapshot is used and marked stale. So management answers even when the engine
 *     does not. The loop also takes a snapshot every TICK_MS.
 *   The fields of struct served are private to served.c and protected by its lock, save those the
 *   loop alone uses. */
#ifndef HOLDFAST_CONTROL_SERVED_H
#define HOLDFAST_CONTROL_SERVED_H

#include <stdatomic.h>

#include "control/chap.h"
#include "control/lun.h"
#include "engine/engine.h"

enum { SERVED_TICK_MS = 4000, SERVED_LOOK_WAIT_MS = 1000, SERVED_CHANGE_WAIT_MS = 10000 };

enum served_stage {
    SERVED_IMPORTING, /* the engine replays; nothing but looking is possible */
    SERVED_RUNNING,
    SERVED_CLOSING,
    SERVED_CLOSED, /* over; the loop has ended or is about to */
    SERVED_FAILED, /* import failed; failure says why */
};

struct served_snapshot {
    atomic_uint refs;
    uint64_t at_ns; /* CLOCK_MONOTONIC */
    struct engine_status status;
    char probe[POOL_DISKS_MAX][160]; /* what is wrong with what the path names; empty: nothing */
    struct volume_info *volumes;
    uint32_t volume_count;
    struct lun_record *luns;
    uint32_t lun_count;
    struct chap_record *users;
    uint32_t user_count;
    struct engine_scrub_status scrub;
    char bad_records[512]; /* LUN and CHAP records that cannot be understood */
};

/* A look at a pool, plain data but for the snapshot. */
struct served_view {
    char name[64];
    enum served_stage stage;
    char progress[64]; /* importing: what it does */
    uint32_t percent;
    struct errmsg failure;
    bool stale; /* the loop did not answer in time */
    uint64_t age_ms;
    struct served_snapshot *snapshot; /* NULL: none yet */
};

struct served_import_options {
    const char *const *paths; /* copied */
    uint32_t path_count;
    bool force_quorum, force_host, force_data_loss;
    struct engine_limits limits;
};

struct served;

/* Starts the pool's thread, or with `env` makes it a guest of a loop that outlives its service. One
 * reference, the caller's. */
HF_MUST_CHECK int served_start(const char *name, const char *state_dir, struct env *env,
                               const struct served_import_options *options,
                               struct served **ret_served, struct errmsg *reterr);
/* Starts the import and waits until it has opened the pool's disks and let go of all others, or has
 * ended. Once. */
void served_open(struct served *served);
struct served *served_ref(struct served *served);
void served_unref(struct served *served); /* the last one waits for the thread */

/* After served_open(): waits until the import has ended, however it did. */
HF_MUST_CHECK int served_wait_import(struct served *served, struct errmsg *reterr);

const char *served_name(const struct served *served);

/* served_view_done() afterwards. */
void served_look(struct served *served, struct served_view *ret_view);
void served_view_done(struct served_view *view);

HF_MUST_CHECK int served_change_begin(struct served *served, const char *what,
                                      struct errmsg *reterr);
/* As served_change_begin(), but does not wait for another change. */
HF_MUST_CHECK int served_change_try(struct served *served, const char *what);
void served_change_end(struct served *served);
/* Inside a change: runs fn(engine, arg) as a fiber of the pool's loop. */
void served_change(struct served *served, void (*fn)(struct engine *engine, void *arg), void *arg);
struct volume_door *served_door(struct served *served); /* inside a change */
/* Inside a change: sets a configuration record of the pool, or with `text` NULL deletes it. Durable
 * when OK; the errors of engine_config_set() and engine_config_delete(). */
HF_MUST_CHECK int served_record(struct served *served, const char *kind, const char *name,
                                const char *text, struct errmsg *reterr);

/* Ends service: engine_close() with a deadline, on the loop. An export happens inside a change;
 * otherwise (the end of the process) a change under way is waited for. ERR_TIMEOUT when the loop
 * has not answered a second after the deadline: then the thread still hangs on to the pool, whose
 * log will be replayed. */
HF_MUST_CHECK int served_close(struct served *served, bool exported, uint64_t deadline_ns,
                               struct errmsg *reterr);

/* CLOCK_MONOTONIC, which is also what env_now_ns() of the real environment tells. */
uint64_t served_now_ns(void);

#endif
