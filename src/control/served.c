// SPDX-License-Identifier: MPL-2.0
/* See served.h for who may do what from which thread. The stages:
 *
 *   IMPORTING ──► RUNNING ──► CLOSING ──► CLOSED
 *       └───────► FAILED
 *
 * The engine pointer is set by the import fiber and cleared by the close fiber, both on the loop;
 * it is valid for every fiber and task of the loop while the stage is RUNNING. */
#include "control/served.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "control/event.h"
#include "control/loop.h"
#include "control/smart.h"
#include "control/watch.h"

struct served {
    char name[64];
    struct loop own; /* does not run where `env` is another's */
    struct env *env;
    struct served_import_options import; /* paths are ours */
    atomic_uint refs;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    enum served_stage stage;
    char progress[64];
    uint32_t percent;
    bool begun; /* the import: before that, IMPORTING means waiting for its turn */
    struct errmsg failure;
    struct served_snapshot *latest;
    bool look_pending; /* the look task is queued or running */
    uint64_t looks;    /* finished */
    bool changing;
    char changing_what[96];
    uint64_t changing_since_ns;
    bool close_exported;
    uint64_t close_deadline_ns;

    /* the loop's alone */
    struct engine *engine;
    struct watch *watch;
    struct served_snapshot *noted; /* what changed up to it is known */
    uint32_t space_level;          /* the threshold that was passed last */
    struct env_timer tick;
    struct env_task import_task, look_task, close_task;
};

uint64_t served_now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Waits on `changed` with the lock held; false when `at_ns` has passed. */
static bool wait_until(struct served *served, uint64_t at_ns) {
    struct timespec ts = {.tv_sec = (time_t)(at_ns / NS_PER_S),
                          .tv_nsec = (long)(at_ns % NS_PER_S)};
    return pthread_cond_timedwait(&served->changed, &served->lock, &ts) == 0 ||
           served_now_ns() < at_ns;
}

static void set_stage(struct served *served, enum served_stage stage,
                      const struct errmsg *failure) {
    pthread_mutex_lock(&served->lock);
    served->stage = stage;
    if (failure != NULL) {
        served->failure = *failure;
    }
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
}

/* ---- snapshots ---- */

static void snapshot_unref(struct served_snapshot *snapshot) {
    if (snapshot != NULL && atomic_fetch_sub(&snapshot->refs, 1) == 1) {
        mem_free(snapshot->volumes);
        mem_free(snapshot->luns);
        chap_records_free(snapshot->users, snapshot->user_count);
        mem_free(snapshot);
    }
}

static void note_bad_record(struct served_snapshot *snapshot, const struct errmsg *why) {
    size_t used = strlen(snapshot->bad_records);
    (void)snprintf(snapshot->bad_records + used, sizeof(snapshot->bad_records) - used, "%s%s",
                   used > 0 ? "; " : "", why->text);
}

static void collect_lun(void *ctx, const char *kind, const char *id, const void *blob,
                        uint32_t bytes) {
    struct served_snapshot *snapshot = ctx;
    (void)kind;
    struct lun_record record;
    struct errmsg why = {0};
    if (lun_record_decode(id, blob, bytes, &record, &why) != OK) {
        note_bad_record(snapshot, &why);
        return;
    }
    size_t count = snapshot->lun_count + 1;
    snapshot->luns = mem_realloc(snapshot->luns, count * sizeof(record));
    snapshot->luns[snapshot->lun_count++] = record;
}

static void collect_user(void *ctx, const char *kind, const char *id, const void *blob,
                         uint32_t bytes) {
    struct served_snapshot *snapshot = ctx;
    (void)kind;
    struct chap_record record;
    struct errmsg why = {0};
    if (chap_record_decode(id, blob, bytes, &record, &why) != OK) {
        note_bad_record(snapshot, &why);
        return;
    }
    /* Not realloc(): it would leave secrets behind in what it frees. */
    struct chap_record *users = MEM_NEW_ARRAY(struct chap_record, snapshot->user_count + 1);
    for (uint32_t i = 0; i < snapshot->user_count; i++) {
        users[i] = snapshot->users[i];
    }
    users[snapshot->user_count] = record;
    chap_records_free(snapshot->users, snapshot->user_count);
    snapshot->users = users;
    snapshot->user_count++;
}

/* On the loop, engine there. */
static void take_snapshot(struct served *served) {
    struct served_snapshot *snapshot = MEM_NEW(struct served_snapshot);
    atomic_init(&snapshot->refs, 1);
    engine_status(served->engine, &snapshot->status);
    engine_scrub_status(served->engine, &snapshot->scrub);
    engine_volume_list(served->engine, &snapshot->volumes, &snapshot->volume_count);
    engine_config_each(served->engine, LUN_RECORD_KIND, collect_lun, snapshot);
    engine_config_each(served->engine, CHAP_RECORD_KIND, collect_user, snapshot);
    for (uint32_t i = 0; i < snapshot->status.disk_count && i < POOL_DISKS_MAX; i++) {
        watch_problem(served->watch, snapshot->status.disks[i].path, snapshot->probe[i],
                      sizeof(snapshot->probe[i]));
    }
    snapshot->at_ns = served_now_ns();
    pthread_mutex_lock(&served->lock);
    struct served_snapshot *previous = served->latest;
    served->latest = snapshot;
    pthread_mutex_unlock(&served->lock);
    snapshot_unref(previous);
}

static void look_run(struct env_task *task) {
    struct served *served = CONTAINER_OF(task, struct served, look_task);
    if (served->engine != NULL) {
        take_snapshot(served);
    }
    pthread_mutex_lock(&served->lock);
    served->look_pending = false;
    served->looks++;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
}

void served_look(struct served *served, struct served_view *ret_view) {
    uint64_t deadline = served_now_ns() + (uint64_t)SERVED_LOOK_WAIT_MS * NS_PER_MS;
    memset(ret_view, 0, sizeof(*ret_view));
    pthread_mutex_lock(&served->lock);
    if (served->stage == SERVED_RUNNING) {
        /* A look that runs right now began after whatever this thread did last on the loop: the
         * loop does one thing at a time. So it is fresh enough. */
        uint64_t before = served->looks;
        if (!served->look_pending) {
            served->look_pending = true;
            env_post(served->env, &served->look_task);
        }
        while (served->looks == before && wait_until(served, deadline)) {
        }
        ret_view->stale = served->looks == before;
    }
    memcpy(ret_view->name, served->name, sizeof(ret_view->name));
    ret_view->stage = served->stage;
    memcpy(ret_view->progress, served->progress, sizeof(ret_view->progress));
    ret_view->percent = served->percent;
    ret_view->failure = served->failure;
    if (served->latest != NULL) {
        ret_view->snapshot = served->latest;
        atomic_fetch_add(&served->latest->refs, 1);
        ret_view->age_ms = (served_now_ns() - served->latest->at_ns) / NS_PER_MS;
    }
    pthread_mutex_unlock(&served->lock);
}

void served_view_done(struct served_view *view) {
    snapshot_unref(view->snapshot);
    view->snapshot = NULL;
}

/* ---- what changed is an event, once ---- */

static const char *state_text(const struct engine_disk_status *disk) {
    return disk->state == MEMBER_NONE      ? "removed"
           : disk->state == MEMBER_MISSING ? "missing"
           : !disk->present                ? "absent"
           : disk->role == MEMBER_LEAVING  ? "in sync, and being removed"
           : disk->role == MEMBER_SPARE    ? "a spare"
                                           : "in sync";
}

/* Errors the disk has had: the last three in words, the others counted. */
static void note_disk_errors(const struct served *served, const struct engine_disk_status *now,
                             uint64_t seen) {
    uint64_t count = now->counters.event_count; /* it begins anew for a disk that returns */
    uint64_t fresh = count > seen ? count - seen : 0, told = fresh > 3 ? 3 : fresh;
    if (fresh > told) {
        event_note(EVENT_DISK_ERROR, served->name,
                   "disk %u (%s): %llu more errors or repairs (holdfast pool status counts them), "
                   "and then:",
                   now->member, now->path, (unsigned long long)(fresh - told));
    }
    for (uint64_t k = fresh - told; k < fresh; k++) {
        const struct disk_event *event = &now->counters.events[(seen + k) % DISK_EVENTS_KEPT];
        event_note(event->kind == DISK_ERROR_REPAIRED ? EVENT_DISK_REPAIRED : EVENT_DISK_ERROR,
                   served->name, "disk %u (%s): %s", now->member, now->path, event->text);
    }
}

/* What the disk says of itself belongs to the evidence; it is asked now, and told when it is known.
 */
static void note_suspicion(const struct served *served, const struct engine_disk_status *now,
                           const struct engine_disk_status *then) {
    bool was = then != NULL && then->slow.suspect, held = then != NULL && then->slow.held;
    json_t *smart = smart_look(now->path, now->slow.suspect && !was);
    char *told = smart == NULL ? NULL : json_dumps(smart, JSON_COMPACT);
    if (now->slow.suspect && (!was || (now->slow.held && !held))) {
        event_note(EVENT_DISK_SUSPECT, served->name, "disk %u (%s) is a suspect: %s%s%s%s",
                   now->member, now->path, now->slow.why,
                   now->slow.held ? "; it stays, because data would be lost without it" : "",
                   told != NULL ? "; SMART: " : "", told != NULL ? told : "");
    } else if (was && !now->slow.suspect && now->state == MEMBER_IN_SYNC) {
        event_note(EVENT_DISK_OK, served->name,
                   "disk %u (%s) is as fast as its peers again, and no suspect any more",
                   now->member, now->path);
    }
    free(told);
    json_decref(smart);
}

static void note_disk(const struct served *served, const struct served_snapshot *was,
                      const struct served_snapshot *is, uint32_t i) {
    const struct engine_disk_status *now = &is->status.disks[i];
    const struct engine_disk_status *then =
        was != NULL && i < was->status.disk_count ? &was->status.disks[i] : NULL;
    bool healthy = now->state == MEMBER_NONE || (now->state == MEMBER_IN_SYNC && now->present);
    if (then == NULL ? !healthy || was != NULL
                     : now->state != then->state || now->present != then->present ||
                           now->role != then->role || strcmp(now->why, then->why) != 0) {
        event_note(healthy ? EVENT_DISK_OK : EVENT_DISK_LOST, served->name,
                   "disk %u (%s) is %s%s%s", now->member,
                   now->state == MEMBER_NONE && then != NULL ? then->path : now->path,
                   state_text(now), now->why[0] != '\0' ? ": " : "", now->why);
    }
    note_suspicion(served, now, then);
    const char *probe_then = then != NULL ? was->probe[i] : "";
    if (strcmp(is->probe[i], probe_then) != 0) {
        bool good = is->probe[i][0] == '\0';
        event_note(good ? EVENT_DISK_OK : EVENT_DISK_PATH, served->name, "disk %u: %s", now->member,
                   good ? "its path is as it should be again" : is->probe[i]);
    }
    note_disk_errors(served, now, then == NULL ? 0 : then->counters.event_count);
}

static void note_volumes(const struct served *served, const struct served_snapshot *was,
                         const struct served_snapshot *is) {
    static const struct {
        enum event_kind kind;
        const char *text;
    } healths[] = {
        [VOLUME_WHOLE] = {EVENT_VOLUME_OK, "is whole again"},
        [VOLUME_DAMAGED] = {EVENT_VOLUME_DAMAGED,
                            "is damaged: part of its metadata cannot be read from any disk, so it "
                            "takes no writes"},
        [VOLUME_BROKEN] = {EVENT_VOLUME_BROKEN,
                           "is broken: part of its metadata, and with it writes it had "
                           "acknowledged, are lost"},
    };
    for (uint32_t i = 0; i < is->volume_count; i++) {
        const struct volume_info *now = &is->volumes[i];
        enum volume_health then = VOLUME_WHOLE;
        for (uint32_t k = 0; was != NULL && k < was->volume_count; k++) {
            then = was->volumes[k].id == now->id ? was->volumes[k].health : then;
        }
        if (now->health != then && !now->deleting) {
            event_note(healths[now->health].kind, served->name, "volume %s %s", now->name,
                       healths[now->health].text);
        }
    }
}

/* Reorderings and changes of profile that have come to their end. */
static void note_moves(const struct served *served, const struct served_snapshot *was,
                       const struct served_snapshot *is) {
    for (uint32_t i = 0; i < is->volume_count; i++) {
        const struct volume_info *now = &is->volumes[i];
        for (uint32_t k = 0; was != NULL && k < was->volume_count; k++) {
            const struct volume_info *then = &was->volumes[k];
            if (then->id == now->id && then->reordering && !now->reordering) {
                event_note(EVENT_VOLUME_MOVED, served->name,
                           "volume %s is no longer being put in order", now->name);
            }
            if (then->id == now->id && then->profile_moves && !now->profile_moves) {
                event_note(EVENT_VOLUME_MOVED, served->name, "all of volume %s is in %s now",
                           now->name, profile_name(now->profile));
            }
        }
    }
}

/* Crossing a threshold upwards is said once, and that it is below again when it is so clearly. */
static void note_space(struct served *served, const struct served_snapshot *is) {
    static const uint32_t thresholds_pct[] = {0, 80, 90, 95, 99};
    enum { CLEARLY_PCT = 2 };
    const struct engine_status *st = &is->status;
    uint64_t pct = st->usable_bytes == 0 ? 0 : st->used_bytes * 100 / st->usable_bytes;
    uint32_t level = 0, lowest = 0;
    for (uint32_t i = 1; i < ARRAY_COUNT(thresholds_pct); i++) {
        level = pct >= thresholds_pct[i] ? i : level;
        lowest = pct + CLEARLY_PCT >= thresholds_pct[i] ? i : lowest;
    }
    if (level > served->space_level) {
        event_note(EVENT_POOL_FILLING, served->name,
                   "%" PRIu64 " %% of the space that may be used is used", pct);
        served->space_level = level;
    } else if (lowest < served->space_level) {
        event_note(EVENT_POOL_ROOM, served->name, "less than %u %% of the space is used again",
                   thresholds_pct[served->space_level]);
        served->space_level = level;
    }
}

static void note_scrub(const struct served *served, const struct served_snapshot *was,
                       const struct served_snapshot *is) {
    const struct engine_scrub_status *now = &is->scrub;
    bool ran = was != NULL && was->scrub.running;
    uint64_t then_lost = was != NULL ? was->scrub.lost_count : 0;
    if (was != NULL && !ran && now->running) {
        event_note(EVENT_SCRUB_BEGAN, served->name, "a scrub has begun");
    } else if (ran && !now->running) {
        event_note(now->lost_blocks > 0 ? EVENT_SCRUB_LOSS : EVENT_SCRUB_ENDED, served->name,
                   "the scrub %s: %llu wrong blocks, %llu repaired, %llu lost beyond redundancy",
                   now->complete ? "has ended" : "was stopped", (unsigned long long)now->wrong,
                   (unsigned long long)now->repaired, (unsigned long long)now->lost_blocks);
    } else if (!now->running && now->lost_count > then_lost) {
        event_note(EVENT_SCRUB_LOSS, served->name,
                   "blocks of volumes cannot be read from any disk: %u ranges", now->lost_count);
    }
}

/* Everything between the last time and the newest snapshot. On the loop, which alone replaces
 * `latest`: its lock need not be held to read it. */
static void note_changes(struct served *served) {
    struct served_snapshot *was = served->noted, *is = served->latest;
    const char *health_then = was == NULL ? "ok" : was->status.health;
    const char *advice_then = was == NULL ? "" : was->status.advice;
    if (strcmp(is->status.health, health_then) != 0 ||
        strcmp(is->status.advice, advice_then) != 0) {
        event_note(strcmp(is->status.health, "ok") == 0         ? EVENT_POOL_OK
                   : strcmp(is->status.health, "degraded") == 0 ? EVENT_POOL_DEGRADED
                                                                : EVENT_POOL_FAILED,
                   served->name, "%s%s%s", is->status.health,
                   is->status.advice[0] != '\0' ? ": " : "", is->status.advice);
    }
    if (is->bad_records[0] != '\0' &&
        (was == NULL || strcmp(was->bad_records, is->bad_records) != 0)) {
        event_note(EVENT_RECORD_BAD, served->name, "%s", is->bad_records);
    }
    for (uint32_t i = 0; i < is->status.disk_count && i < POOL_DISKS_MAX; i++) {
        note_disk(served, was, is, i);
    }
    note_volumes(served, was, is);
    note_moves(served, was, is);
    note_space(served, is);
    note_scrub(served, was, is);
    atomic_fetch_add(&is->refs, 1);
    served->noted = is;
    snapshot_unref(was);
}

/* Every SERVED_TICK_MS on the loop: looks whether the disks' paths are still what they were. */
static void tick_run(struct env_timer *timer) {
    struct served *served = CONTAINER_OF(timer, struct served, tick);
    watch_probe(served->watch);
    take_snapshot(served);
    note_changes(served);
    env_timer_arm(served->env, &served->tick,
                  env_now_ns(served->env) + (uint64_t)SERVED_TICK_MS * NS_PER_MS);
}

/* ---- import ---- */

static void import_progress(void *owner, const char *stage, uint32_t percent) {
    struct served *served = owner;
    pthread_mutex_lock(&served->lock);
    (void)snprintf(served->progress, sizeof(served->progress), "%s", stage);
    served->percent = percent;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
}

static void import_fiber(void *arg) {
    struct served *served = arg;
    const struct served_import_options *import = &served->import;
    struct engine_import_options options = {
        .pool = {.name = served->name,
                 .paths = import->paths,
                 .path_count = import->path_count,
                 .force_quorum = import->force_quorum,
                 .force_host = import->force_host},
        .limits = import->limits,
        .force_data_loss = import->force_data_loss,
    };
    struct engine *engine = NULL;
    struct errmsg failure = {0};
    int error = engine_import(served->env, &options, import_progress, served, &engine, &failure);
    if (error != OK) {
        (void)errmsg_set(&failure, error, "%s", error_text(error));
        set_stage(served, SERVED_FAILED, &failure);
        return;
    }
    served->engine = engine;
    served->watch = watch_new(served->env);
    take_snapshot(served);
    struct served_snapshot *first = served->latest;
    for (uint32_t i = 0; i < first->status.disk_count && i < POOL_DISKS_MAX; i++) {
        if (first->status.disks[i].present) {
            watch_add(served->watch, first->status.disks[i].path);
        }
    }
    note_changes(served);
    env_timer_arm(served->env, &served->tick,
                  env_now_ns(served->env) + (uint64_t)SERVED_TICK_MS * NS_PER_MS);
    set_stage(served, SERVED_RUNNING, NULL);
}

static void import_run(struct env_task *task) {
    struct served *served = CONTAINER_OF(task, struct served, import_task);
    fiber_start(served->env, import_fiber, served);
}

static void copy_paths(struct served_import_options *import) {
    const char **paths = MEM_NEW_ARRAY(const char *, import->path_count + 1);
    for (uint32_t i = 0; i < import->path_count; i++) {
        paths[i] = mem_strdup(import->paths[i]);
    }
    import->paths = paths;
}

static void close_run(struct env_task *task);

int served_start(const char *name, const char *state_dir, struct env *env,
                 const struct served_import_options *options, struct served **ret_served,
                 struct errmsg *reterr) {
    struct served *served = MEM_NEW(struct served);
    atomic_init(&served->refs, 1);
    (void)snprintf(served->name, sizeof(served->name), "%s", name);
    served->import = *options;
    copy_paths(&served->import);
    pthread_condattr_t attributes;
    ASSERT(pthread_mutex_init(&served->lock, NULL) == 0);
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&served->changed, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    served->import_task.run = import_run;
    served->look_task.run = look_run;
    served->close_task.run = close_run;
    served->tick.fire = tick_run;
    if (env == NULL) {
        char thread_name[16];
        (void)snprintf(thread_name, sizeof(thread_name), "pool-%.10s", name);
        int error = loop_start(&served->own, thread_name, state_dir, reterr);
        if (error != OK) {
            served_unref(served);
            return error;
        }
        env = served->own.env;
    }
    served->env = env;
    (void)snprintf(served->progress, sizeof(served->progress), "waiting for its turn");
    *ret_served = served;
    return OK;
}

void served_open(struct served *served) {
    pthread_mutex_lock(&served->lock);
    if (served->stage == SERVED_IMPORTING && !served->begun) { /* else it was closed meanwhile */
        served->begun = true;
        env_post(served->env, &served->import_task);
    }
    /* The engine's first word beyond 0 % comes when it has its disks. */
    while (served->stage == SERVED_IMPORTING && served->percent == 0) {
        (void)pthread_cond_wait(&served->changed, &served->lock);
    }
    pthread_mutex_unlock(&served->lock);
}

int served_wait_import(struct served *served, struct errmsg *reterr) {
    pthread_mutex_lock(&served->lock);
    while (served->stage == SERVED_IMPORTING) {
        (void)pthread_cond_wait(&served->changed, &served->lock);
    }
    bool over =
        served->stage == SERVED_FAILED || (served->stage == SERVED_CLOSED && !served->begun);
    int error = over ? served->failure.code : OK;
    if (error != OK) {
        (void)errmsg_set(reterr, error, "%s", served->failure.text);
    }
    pthread_mutex_unlock(&served->lock);
    return error;
}

struct served *served_ref(struct served *served) {
    atomic_fetch_add(&served->refs, 1);
    return served;
}

void served_unref(struct served *served) {
    if (served == NULL || atomic_fetch_sub(&served->refs, 1) != 1) {
        return;
    }
    ASSERT(served->engine == NULL);
    loop_stop(&served->own);
    snapshot_unref(served->latest);
    snapshot_unref(served->noted);
    for (uint32_t i = 0; i < served->import.path_count; i++) {
        mem_free((void *)served->import.paths[i]);
    }
    mem_free((void *)served->import.paths);
    (void)pthread_cond_destroy(&served->changed);
    (void)pthread_mutex_destroy(&served->lock);
    mem_free(served);
}

const char *served_name(const struct served *served) {
    return served->name;
}

/* ---- changes ---- */

static int refuse_stage(const struct served *served, struct errmsg *reterr) {
    switch (served->stage) {
    case SERVED_IMPORTING:
        return errmsg_set(reterr, ERR_BUSY,
                          "pool %s is still being imported; try again when its status says so",
                          served->name);
    case SERVED_FAILED:
        return errmsg_set(reterr, ERR_NOT_FOUND, "pool %s could not be imported: %.400s",
                          served->name, served->failure.text);
    default:
        return errmsg_set(reterr, ERR_SHUTDOWN, "pool %s is being closed", served->name);
    }
}

static int change_begin(struct served *served, const char *what, uint64_t deadline,
                        struct errmsg *reterr) {
    pthread_mutex_lock(&served->lock);
    int error = OK;
    while (served->stage == SERVED_RUNNING && served->changing && wait_until(served, deadline)) {
    }
    if (served->stage != SERVED_RUNNING) {
        error = refuse_stage(served, reterr);
    } else if (served->changing) {
        error = errmsg_set(
            reterr, ERR_BUSY,
            "pool %s is occupied with another change (%s, for %u s); try again when it is done",
            served->name, served->changing_what,
            (unsigned)((served_now_ns() - served->changing_since_ns) / NS_PER_S));
    } else {
        served->changing = true;
        served->changing_since_ns = served_now_ns();
        (void)snprintf(served->changing_what, sizeof(served->changing_what), "%s", what);
    }
    pthread_mutex_unlock(&served->lock);
    return error;
}

int served_change_begin(struct served *served, const char *what, struct errmsg *reterr) {
    uint64_t deadline = served_now_ns() + (uint64_t)SERVED_CHANGE_WAIT_MS * NS_PER_MS;
    return change_begin(served, what, deadline, reterr);
}

int served_change_try(struct served *served, const char *what) {
    struct errmsg ignored = {0};
    return change_begin(served, what, 0, &ignored);
}

void served_change_end(struct served *served) {
    pthread_mutex_lock(&served->lock);
    ASSERT(served->changing);
    served->changing = false;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
}

struct change {
    struct served *served;
    void (*fn)(struct engine *engine, void *arg);
    void *arg;
};

static void change_fiber(void *arg) {
    struct change *change = arg;
    ASSERT(change->served->engine != NULL);
    change->fn(change->served->engine, change->arg);
}

void served_change(struct served *served, void (*fn)(struct engine *engine, void *arg), void *arg) {
    struct change change = {.served = served, .fn = fn, .arg = arg};
    fiber_call(served->env, change_fiber, &change);
}

struct record_change {
    const char *kind, *name, *text;
    struct errmsg *reterr;
    int result;
};

static void change_record(struct engine *engine, void *arg) {
    struct record_change *c = arg;
    c->result = c->text != NULL ? engine_config_set(engine, c->kind, c->name, c->text,
                                                    (uint32_t)strlen(c->text), c->reterr)
                                : engine_config_delete(engine, c->kind, c->name, c->reterr);
}

int served_record(struct served *served, const char *kind, const char *name, const char *text,
                  struct errmsg *reterr) {
    struct record_change change = {.kind = kind, .name = name, .text = text, .reterr = reterr};
    served_change(served, change_record, &change);
    return change.result;
}

static void door_of(struct engine *engine, void *arg) {
    *(struct volume_door **)arg = engine_door(engine);
}

struct volume_door *served_door(struct served *served) {
    struct volume_door *door = NULL;
    served_change(served, door_of, &door);
    return door;
}

/* ---- close ---- */

static void close_fiber(void *arg) {
    struct served *served = arg;
    struct errmsg failure = {0};
    env_timer_cancel(served->env, &served->tick);
    watch_free(served->watch);
    served->watch = NULL;
    struct engine *engine = served->engine;
    served->engine = NULL; /* looks see that there is nothing to see any more */
    int error = engine_close(engine, served->close_exported, served->close_deadline_ns, &failure);
    if (error != OK) {
        (void)errmsg_set(&failure, error, "%s", error_text(error));
    }
    set_stage(served, SERVED_CLOSED, &failure);
}

static void close_run(struct env_task *task) {
    struct served *served = CONTAINER_OF(task, struct served, close_task);
    fiber_start(served->env, close_fiber, served);
}

int served_close(struct served *served, bool exported, uint64_t deadline_ns,
                 struct errmsg *reterr) {
    uint64_t give_up = deadline_ns + NS_PER_S;
    pthread_mutex_lock(&served->lock);
    while (served->stage == SERVED_IMPORTING && served->begun && wait_until(served, give_up)) {
    }
    if (served->stage == SERVED_IMPORTING && !served->begun) {
        served->stage = SERVED_CLOSED;
        (void)errmsg_set(&served->failure, ERR_SHUTDOWN, "closed before its import began");
        pthread_cond_broadcast(&served->changed);
    }
    if (served->stage == SERVED_RUNNING) {
        served->stage = SERVED_CLOSING; /* from here on no change begins */
        served->close_exported = exported;
        served->close_deadline_ns = deadline_ns;
        pthread_cond_broadcast(&served->changed);
        while (!exported && served->changing && wait_until(served, give_up)) {
        }
        if (exported || !served->changing) {
            env_post(served->env, &served->close_task);
        }
    }
    while (served->stage == SERVED_CLOSING && wait_until(served, give_up)) {
    }
    int error = OK;
    if (served->stage == SERVED_CLOSED && served->begun && served->failure.code != OK) {
        error = errmsg_set(reterr, served->failure.code, "pool %s: %s", served->name,
                           served->failure.text);
    } else if (served->stage == SERVED_CLOSING || served->stage == SERVED_IMPORTING) {
        error =
            errmsg_set(reterr, ERR_TIMEOUT,
                       "pool %s did not close in time; nothing acknowledged is lost: its log is "
                       "replayed at the next import",
                       served->name);
    }
    pthread_mutex_unlock(&served->lock);
    return error;
}
