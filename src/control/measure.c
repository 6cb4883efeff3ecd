// SPDX-License-Identifier: MPL-2.0
/* See measure.h. The lock covers what REST threads look at; the job's thread alone owns the rest.
 */
#include "control/measure.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "bench/run.h"
#include "control/answer.h"
#include "control/event.h"
#include "control/routes.h"
#include "control/schema.h"
#include "control/serve.h"

enum { NOTES_MAX = 64, RETURN_TRIES = 3 };

/* For how long a disk is waited for that was taken out of a pool that is to stay degraded. */
#define HOLD_NS ((uint64_t)JOB_SECONDS_MAX * NS_PER_S)

struct job {
    struct measure *measure;
    struct served *served;
    struct bench_volume volume;
    struct bench_options options;
    struct bench_plan plan;
    char address[160], during[16];
    /* Of the disk that is out. */
    bool is_out;
    uint32_t member;
    char path[256];
};

struct measure {
    struct serve *serve;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_known, runs, is_joinable;
    pthread_t thread;
    atomic_bool stop;
    uint64_t asked_ns; /* when somebody looked last */
    uint64_t number;   /* of the job */
    char pool[64], volume[64];
    json_t *notes;
    struct bench_progress progress; /* its texts are these: */
    char phase[32], test[64];
    json_t *result; /* NULL: nothing was measured */
    int error;
    struct errmsg failure;
};

/* ---- what people hear of it ---- */

static void note(void *owner, const char *text) {
    struct measure *m = ((struct job *)owner)->measure;
    pthread_mutex_lock(&m->lock);
    if (json_array_size(m->notes) < NOTES_MAX) {
        (void)json_array_append_new(m->notes, answer_text(text));
    }
    pthread_mutex_unlock(&m->lock);
}

static void progress(void *owner, const struct bench_progress *p) {
    struct measure *m = ((struct job *)owner)->measure;
    pthread_mutex_lock(&m->lock);
    m->progress = *p;
    (void)snprintf(m->phase, sizeof(m->phase), "%s", p->phase);
    (void)snprintf(m->test, sizeof(m->test), "%s", p->test);
    bool gone = served_now_ns() > m->asked_ns + MEASURE_PATIENCE_S * NS_PER_S;
    pthread_mutex_unlock(&m->lock);
    if (gone && !atomic_exchange(&m->stop, true)) {
        note(owner, "nobody asks about it any more: stopped");
    }
}

/* ---- a disk that is out ---- */

struct change {
    struct job *job;
    uint64_t wait_ns;
    struct errmsg *reterr;
    int result;
};

static void fail_on_loop(struct engine *engine, void *arg) {
    struct change *c = arg;
    c->result = engine_disk_fail(engine, c->job->member, c->wait_ns, c->reterr);
}

static void return_on_loop(struct engine *engine, void *arg) {
    struct change *c = arg;
    c->result = engine_disk_return(engine, c->job->member, c->job->path, c->reterr);
}

static int change(struct job *job, const char *what, void (*fn)(struct engine *engine, void *arg),
                  uint64_t wait_ns, struct errmsg *reterr) {
    struct change c = {.job = job, .wait_ns = wait_ns, .reterr = reterr};
    int error = served_change_begin(job->served, what, reterr);
    if (error != OK) {
        return error;
    }
    served_change(job->served, fn, &c);
    served_change_end(job->served);
    return c.result;
}

/* The member that holds most: its loss is felt most. */
static int choose_disk(struct job *job, struct errmsg *reterr) {
    struct served_view view;
    uint64_t most = 0;
    served_look(job->served, &view);
    uint32_t count = view.snapshot == NULL ? 0 : view.snapshot->status.disk_count;
    for (uint32_t i = 0; i < count && i < POOL_DISKS_MAX; i++) {
        const struct engine_disk_status *disk = &view.snapshot->status.disks[i];
        if (disk->state == MEMBER_IN_SYNC && disk->role == MEMBER_NORMAL &&
            disk->used_bytes > most) {
            most = disk->used_bytes;
            job->member = disk->member;
            (void)snprintf(job->path, sizeof(job->path), "%s", disk->path);
        }
    }
    served_view_done(&view);
    return most > 0 ? OK
                    : errmsg_set(reterr, ERR_INVALID, "no disk of pool %s holds anything",
                                 served_name(job->served));
}

/* The span is filled. */
static int take_disk(void *owner, struct errmsg *reterr) {
    struct job *job = owner;
    if (job->during[0] == '\0') {
        return OK;
    }
    bool rebuild = strcmp(job->during, "rebuild") == 0;
    int error = choose_disk(job, reterr);
    if (error == OK) {
        error = change(job, "take a disk out for a measurement", fail_on_loop,
                       rebuild ? 0 : HOLD_NS, reterr);
    }
    if (error == OK) {
        char text[400];
        job->is_out = true;
        (void)snprintf(text, sizeof(text), "disk %" PRIu32 " (%s) is out until the end%s",
                       job->member, job->path, rebuild ? ", and what it held is rebuilt" : "");
        note(job, text);
    }
    return error;
}

/* Whatever ended the job. A pool that is being closed fetches its disk at the next import. */
static void give_back_disk(struct job *job) {
    struct errmsg why = {0};
    char text[sizeof(why.text) + 200];
    struct served_view view;
    int error = ERR_BUSY;
    if (!job->is_out) {
        return;
    }
    served_look(job->served, &view);
    if (strcmp(job->during, "rebuild") == 0 && view.snapshot != NULL &&
        view.snapshot->status.rebuild.whole) {
        note(job, "the rebuild was over before the measurement was: what was measured last was "
                  "measured without it");
    }
    served_view_done(&view);
    for (uint32_t i = 0; i < RETURN_TRIES && error == ERR_BUSY; i++) {
        why = (struct errmsg){0};
        error = change(job, "take a disk back after a measurement", return_on_loop, 0, &why);
    }
    if (error == OK || error == ERR_SHUTDOWN) {
        (void)snprintf(text, sizeof(text), "disk %" PRIu32 " %s", job->member,
                       error == OK ? "is back" : "comes back at the next import");
    } else {
        (void)snprintf(text, sizeof(text),
                       "disk %" PRIu32
                       " could not be taken back (%s): holdfast disk return %s/%" PRIu32,
                       job->member, why.text, served_name(job->served), job->member);
        event_note(EVENT_DISK_LOST, served_name(job->served), "%s", text);
    }
    note(job, text);
}

/* ---- the job ---- */

static void *job_run(void *arg) {
    struct job *job = arg;
    struct measure *m = job->measure;
    struct bench_document document;
    struct errmsg why = {0};
    const struct bench_watcher watcher = {
        .note = note, .progress = progress, .prepared = take_disk, .owner = job, .stop = &m->stop};
    int error = bench_run(&job->options, &job->plan, &watcher, &document, &why);
    give_back_disk(job);
    pthread_mutex_lock(&m->lock);
    m->result = document.result_count > 0 ? bench_document_json(&document) : NULL;
    m->error = error;
    m->failure = why;
    pthread_mutex_unlock(&m->lock);
    bench_document_done(&document);
    served_unref(job->served);
    mem_free(job);
    pthread_mutex_lock(&m->lock);
    m->runs = false;
    pthread_cond_broadcast(&m->ended);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- what is wished ---- */

static int take_plan(struct job *job, const json_t *wish, struct errmsg *reterr) {
    const char *workload = schema_text(wish, "workload", "corners");
    const json_t *lines = json_object_get(wish, "job_lines"), *line;
    size_t index, used = 0;
    if (lines == NULL) {
        return bench_plan_workload(workload, &job->plan) == OK
                   ? OK
                   : errmsg_set(reterr, ERR_INVALID, "\"workload\": \"%.40s\" is none", workload);
    }
    char *text = mem_alloc(ROUTE_BODY_MAX + 1); /* they came in one body */
    json_array_foreach(lines, index, line) {
        used += (size_t)snprintf(text + used, ROUTE_BODY_MAX - used, "%s\n",
                                 schema_text(line, "line", ""));
        used = MIN(used, (size_t)ROUTE_BODY_MAX);
    }
    int error = bench_plan_parse(text, used, &job->plan, reterr);
    mem_free(text);
    return error;
}

static int take_options(struct job *job, const json_t *wish, struct errmsg *reterr) {
    struct bench_options *o = &job->options;
    const json_t *depths = json_object_get(wish, "queue_depths"), *depth;
    size_t index;
    bench_options_init(o, false);
    o->target.address = job->address;
    o->target.volume = &job->volume;
    o->seconds = (uint32_t)schema_uint(wish, "seconds", o->seconds);
    o->ramp_seconds = (uint32_t)schema_uint(wish, "ramp_seconds", o->ramp_seconds);
    o->runs = (uint32_t)schema_uint(wish, "runs", o->runs);
    o->threads = (uint32_t)schema_uint(wish, "jobs", o->threads);
    o->streams = (uint32_t)schema_uint(wish, "streams", o->streams);
    o->span_bytes = schema_uint(wish, "span_bytes", 0);
    o->read_only = schema_bool(wish, "read_only");
    o->prepared = schema_bool(wish, "prepared");
    o->destroy_data = schema_bool(wish, "destroy_data");
    if (depths != NULL) {
        o->depth_count = 0;
        json_array_foreach(depths, index, depth) {
            o->depths[o->depth_count++] = (uint32_t)schema_uint(depth, "depth", 1);
        }
    }
    (void)snprintf(job->during, sizeof(job->during), "%s", schema_text(wish, "during", ""));
    o->during = job->during;
    if (job->during[0] != '\0' && strcmp(job->during, "degraded") != 0 &&
        strcmp(job->during, "rebuild") != 0) {
        return errmsg_set(reterr, ERR_INVALID, "\"during\" must be degraded or rebuild");
    }
    return OK;
}

/* A target that an initiator is logged in to: somebody uses the volume. */
static int check_unused(struct measure *m, const struct served_snapshot *snapshot,
                        const char *volume, struct errmsg *reterr) {
    json_t *sessions = targets_sessions(serve_targets(m->serve)), *session;
    size_t index;
    int error = OK;
    for (uint32_t i = 0; i < snapshot->lun_count && error == OK; i++) {
        const struct lun_record *lun = &snapshot->luns[i];
        json_array_foreach(sessions, index, session) {
            if (error == OK && strcmp(lun->volume, volume) == 0 &&
                strcmp(schema_text(session, "target", ""), lun->target) == 0) {
                error = errmsg_set(reterr, ERR_BUSY,
                                   "volume %s is in use: %s is logged in to its LUN %s; "
                                   "--read-only measures reads alone",
                                   volume, schema_text(session, "initiator", ""), lun->name);
            }
        }
    }
    json_decref(sessions);
    return error;
}

static int take_volume(struct job *job, const char *name, struct errmsg *reterr) {
    struct served_view view;
    const struct volume_info *found = NULL;
    served_look(job->served, &view);
    for (uint32_t i = 0; view.snapshot != NULL && i < view.snapshot->volume_count; i++) {
        const struct volume_info *volume = &view.snapshot->volumes[i];
        found = strcmp(volume->name, name) == 0 && !volume->deleting ? volume : found;
    }
    int error = found != NULL ? OK
                              : errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no volume %s",
                                           view.name, name);
    if (error == OK && job->during[0] != '\0' && !view.snapshot->status.rebuild.whole) {
        error =
            errmsg_set(reterr, ERR_INVALID,
                       "pool %s is not fully redundant now: no disk can be taken out", view.name);
    }
    if (error == OK && !job->options.read_only) {
        error = check_unused(job->measure, view.snapshot, name, reterr);
    }
    if (error == OK) {
        job->volume = (struct bench_volume){.id = found->id,
                                            .size_bytes = found->size_bytes,
                                            .block_bytes = found->block_bytes,
                                            .profile = profile_name(found->profile)};
        error = served_change_begin(job->served, "begin a measurement", reterr);
    }
    served_view_done(&view);
    if (error == OK) {
        job->volume.door = served_door(job->served);
        served_change_end(job->served);
    }
    return error;
}

/* ---- beginning and ending ---- */

static int launch(struct measure *m, struct job *job, const char *volume, struct errmsg *reterr) {
    int error = OK;
    pthread_mutex_lock(&m->lock);
    if (m->runs) {
        error = errmsg_set(reterr, ERR_BUSY, "volume %s/%s is being measured; one at a time",
                           m->pool, m->volume);
    } else {
        if (m->is_joinable) {
            ASSERT(pthread_join(m->thread, NULL) == 0);
        }
        json_decref(m->result);
        json_decref(m->notes);
        m->result = NULL;
        m->notes = json_array();
        m->error = OK;
        m->failure = (struct errmsg){0};
        m->progress = (struct bench_progress){0};
        m->phase[0] = m->test[0] = '\0';
        m->asked_ns = served_now_ns();
        m->number++;
        (void)snprintf(m->pool, sizeof(m->pool), "%s", served_name(job->served));
        (void)snprintf(m->volume, sizeof(m->volume), "%s", volume);
        atomic_store(&m->stop, false);
        m->is_known = m->runs = m->is_joinable =
            pthread_create(&m->thread, NULL, job_run, job) == 0;
        error = m->runs ? OK : errmsg_set(reterr, ERR_AGAIN, "no more threads can be had");
    }
    pthread_mutex_unlock(&m->lock);
    return error;
}

int measure_start(struct measure *m, struct served *served, const char *volume, const json_t *wish,
                  struct errmsg *reterr) {
    struct job *job = MEM_NEW(struct job);
    job->measure = m;
    job->served = served_ref(served);
    (void)snprintf(job->address, sizeof(job->address), "volume:%s/%s", served_name(served), volume);
    int error = take_options(job, wish, reterr);
    error = error == OK ? take_plan(job, wish, reterr) : error;
    error = error == OK ? take_volume(job, volume, reterr) : error;
    error = error == OK ? launch(m, job, volume, reterr) : error;
    if (error != OK) {
        served_unref(job->served);
        mem_free(job);
    }
    return error;
}

int measure_stop(struct measure *m, struct errmsg *reterr) {
    pthread_mutex_lock(&m->lock);
    bool runs = m->runs;
    pthread_mutex_unlock(&m->lock);
    atomic_store(&m->stop, true);
    return runs ? OK : errmsg_set(reterr, ERR_NOT_FOUND, "no volume is being measured");
}

static json_t *progress_json(const struct measure *m) {
    const struct bench_progress *p = &m->progress;
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:f, s:f, s:I}", "phase", m->phase, "test",
                     m->test, "queue_depth", (int)p->queue_depth, "run", (int)p->run, "runs",
                     (int)p->runs, "unit", bench_unit_name(p->unit), "rate", p->rate, "done",
                     p->done, "left_seconds", (json_int_t)p->left_seconds);
}

int measure_look(struct measure *m, json_t **ret_answer, struct errmsg *reterr) {
    int error = OK;
    pthread_mutex_lock(&m->lock);
    m->asked_ns = served_now_ns();
    if (!m->is_known) {
        error = errmsg_set(reterr, ERR_NOT_FOUND, "no volume has been measured");
    } else {
        bool shows = m->runs && m->phase[0] != '\0', failed = !m->runs && m->error != OK;
        json_t *failure = failed ? answer_error(m->error, &m->failure) : json_object();
        *ret_answer =
            json_pack("{s:I, s:s, s:s, s:b, s:o, s:o, s:o}", "job", (json_int_t)m->number, "pool",
                      m->pool, "volume", m->volume, "running", (int)m->runs, "notes",
                      json_deep_copy(m->notes), /* they are still added to */
                      "progress", shows ? progress_json(m) : json_null(), "result",
                      m->runs || m->result == NULL ? json_null() : json_deep_copy(m->result));
        (void)json_object_update(*ret_answer, failure);
        json_decref(failure);
    }
    pthread_mutex_unlock(&m->lock);
    return error;
}

bool measure_uses(struct measure *m, const char *pool, const char *volume) {
    pthread_mutex_lock(&m->lock);
    bool uses =
        m->runs && strcmp(m->pool, pool) == 0 && (volume == NULL || strcmp(m->volume, volume) == 0);
    pthread_mutex_unlock(&m->lock);
    return uses;
}

struct measure *measure_new(struct serve *serve) {
    struct measure *m = MEM_NEW(struct measure);
    pthread_condattr_t attributes;
    m->serve = serve;
    ASSERT(pthread_mutex_init(&m->lock, NULL) == 0);
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&m->ended, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    return m;
}

void measure_quiesce(struct measure *m, uint64_t deadline_ns) {
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    atomic_store(&m->stop, true);
    pthread_mutex_lock(&m->lock);
    while (m->runs && pthread_cond_timedwait(&m->ended, &m->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&m->lock);
}

void measure_free(struct measure *m) {
    if (m == NULL) {
        return;
    }
    atomic_store(&m->stop, true);
    if (m->is_joinable) {
        ASSERT(pthread_join(m->thread, NULL) == 0);
    }
    json_decref(m->notes);
    json_decref(m->result);
    (void)pthread_cond_destroy(&m->ended);
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}
