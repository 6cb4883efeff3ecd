// SPDX-License-Identifier: MPL-2.0
#include "control/serve.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "control/compare.h"
#include "control/event.h"
#include "control/loop.h"
#include "control/measure.h"
#include "control/rest.h"
#include "control/schema.h"
#include "control/smart.h"
#include "env/fiber.h"
#include "pool/host.h"

struct starter { /* imports one pool at the start of the service */
    pthread_t thread;
    struct serve *serve;
    struct served *served;
    atomic_bool ended;
};

struct serve {
    struct config *config;
    struct loop node;
    struct targets *targets;
    struct rest *rest;
    struct compare *compare;
    struct measure *measure;
    atomic_bool ready;
    json_t *remembered; /* {"pools": [{"name", "paths"}]}; under the lock */
    struct starter starters[SERVE_POOLS_MAX];
    uint32_t starter_count;

    pthread_mutex_t lock; /* of the list and of what is remembered */
    struct served *pools[SERVE_POOLS_MAX];
    uint32_t pool_count;
    bool disks_taken; /* see serve_disks_lock() */
    pthread_cond_t disks_free;
};

const struct config *serve_config(const struct serve *serve) {
    return serve->config;
}

struct targets *serve_targets(struct serve *serve) {
    return serve->targets;
}

struct compare *serve_compare(struct serve *serve) {
    return serve->compare;
}

struct measure *serve_measure(struct serve *serve) {
    return serve->measure;
}

struct node_call {
    struct env *env;
    void (*fn)(struct env *env, void *arg);
    void *arg;
};

static void node_fiber(void *arg) {
    struct node_call *call = arg;
    call->fn(call->env, call->arg);
}

void serve_node_call(struct serve *serve, void (*fn)(struct env *env, void *arg), void *arg) {
    struct node_call call = {.env = serve->node.env, .fn = fn, .arg = arg};
    fiber_call(serve->node.env, node_fiber, &call);
}

int serve_disks_lock(struct serve *serve, bool patient, struct errmsg *reterr) {
    uint64_t at_ns = served_now_ns() + (uint64_t)SERVED_CHANGE_WAIT_MS * NS_PER_MS;
    const struct timespec at = {.tv_sec = (time_t)(at_ns / NS_PER_S),
                                .tv_nsec = (long)(at_ns % NS_PER_S)};
    pthread_mutex_lock(&serve->lock);
    int errnum = 0;
    while (serve->disks_taken && errnum == 0) {
        errnum = patient ? pthread_cond_wait(&serve->disks_free, &serve->lock)
                         : pthread_cond_timedwait(&serve->disks_free, &serve->lock, &at);
    }
    int error = OK;
    if (serve->disks_taken) {
        error = errmsg_set(reterr, ERR_BUSY,
                           "the disks are being looked at just now (a pool is "
                           "being imported or created); try again");
    }
    serve->disks_taken = true;
    pthread_mutex_unlock(&serve->lock);
    return error;
}

void serve_disks_unlock(struct serve *serve) {
    pthread_mutex_lock(&serve->lock);
    ASSERT(serve->disks_taken);
    serve->disks_taken = false;
    pthread_cond_signal(&serve->disks_free);
    pthread_mutex_unlock(&serve->lock);
}

/* ---- the list of pools ---- */

struct served *serve_find(struct serve *serve, const char *name, struct errmsg *reterr) {
    struct served *found = NULL;
    pthread_mutex_lock(&serve->lock);
    for (uint32_t i = 0; i < serve->pool_count; i++) {
        if (strcmp(served_name(serve->pools[i]), name) == 0) {
            found = served_ref(serve->pools[i]);
        }
    }
    pthread_mutex_unlock(&serve->lock);
    if (found == NULL) {
        (void)errmsg_set(reterr, ERR_NOT_FOUND,
                         "no pool %s is served here (holdfast pool list shows which are, holdfast "
                         "pool import which could be)",
                         name);
    }
    return found;
}

uint32_t serve_list(struct serve *serve, struct served *ret_pools[SERVE_POOLS_MAX]) {
    pthread_mutex_lock(&serve->lock);
    uint32_t count = serve->pool_count;
    for (uint32_t i = 0; i < count; i++) {
        ret_pools[i] = served_ref(serve->pools[i]);
    }
    pthread_mutex_unlock(&serve->lock);
    return count;
}

static void list_remove_pool(struct serve *serve, struct served *served) {
    bool found = false;
    pthread_mutex_lock(&serve->lock);
    for (uint32_t i = 0; i < serve->pool_count; i++) {
        if (serve->pools[i] == served) {
            serve->pools[i] = serve->pools[--serve->pool_count];
            found = true;
            break;
        }
    }
    pthread_mutex_unlock(&serve->lock);
    if (found) {
        served_unref(served);
    }
}

static bool is_over(struct served *served) {
    struct served_view view;
    served_look(served, &view);
    served_view_done(&view);
    return view.stage == SERVED_FAILED || view.stage == SERVED_CLOSED;
}

/* A pool whose import failed at the start, or whose export took too long, stays in the list, so
 * that this shows; a new attempt takes its place. */
static int list_add_pool(struct serve *serve, const char *name,
                         const struct served_import_options *options, struct served **ret_served,
                         struct errmsg *reterr) {
    struct served *old = serve_find(serve, name, NULL);
    if (old != NULL && is_over(old)) {
        list_remove_pool(serve, old);
    }
    served_unref(old);
    struct served *served = NULL;
    int error = OK;
    pthread_mutex_lock(&serve->lock);
    for (uint32_t i = 0; error == OK && i < serve->pool_count; i++) {
        if (strcmp(served_name(serve->pools[i]), name) == 0) {
            error = errmsg_set(reterr, ERR_EXISTS, "a pool %s is served here already", name);
        }
    }
    if (error == OK && serve->pool_count == SERVE_POOLS_MAX) {
        error = errmsg_set(reterr, ERR_LIMIT,
                           "%d pools are served here, which is all one service "
                           "can; export one first",
                           SERVE_POOLS_MAX);
    }
    if (error == OK) {
        struct env *env = serve->pool_count == 0 ? targets_env(serve->targets) : NULL;
        error = served_start(name, serve->config->state_dir, env, options, &served, reterr);
    }
    if (error == OK) {
        serve->pools[serve->pool_count++] = served;
        *ret_served = served_ref(served);
    }
    pthread_mutex_unlock(&serve->lock);
    return error;
}

/* ---- what is remembered between two starts ---- */

struct state_call {
    json_t *pools;
    struct errmsg problem;
    int result;
};

static void read_state_fiber(struct env *env, void *arg) {
    struct state_call *call = arg;
    call->result = pool_host_name(env, &call->problem);
    if (call->result == OK) {
        call->pools = search_recall(env, &call->problem);
    }
}

static void write_state_fiber(struct env *env, void *arg) {
    struct state_call *call = arg;
    call->result = search_remember(env, call->pools);
}

static int recall(struct serve *serve, struct errmsg *reterr) {
    struct state_call call = {0};
    serve_node_call(serve, read_state_fiber, &call);
    if (call.result != OK) {
        json_decref(call.pools);
        return errmsg_set(reterr, call.result, "%s: %s", serve->config->state_dir,
                          call.problem.text[0] != '\0' ? call.problem.text
                                                       : error_text(call.result));
    }
    serve->remembered = call.pools;
    if (call.problem.text[0] != '\0') {
        event_note(EVENT_STATE_UNSAVED, NULL, "%s", call.problem.text);
    }
    return OK;
}

/* `paths` NULL: forget the pool. */
static void remember(struct serve *serve, const char *name, json_t *paths) {
    pthread_mutex_lock(&serve->lock);
    for (size_t i = json_array_size(serve->remembered); i > 0; i--) {
        const json_t *pool = json_array_get(serve->remembered, i - 1);
        if (strcmp(schema_text(pool, "name", ""), name) == 0) {
            (void)json_array_remove(serve->remembered, i - 1);
        }
    }
    if (paths != NULL) {
        (void)json_array_append_new(serve->remembered,
                                    json_pack("{s:s, s:o}", "name", name, "paths", paths));
    }
    struct state_call call = {.pools = json_deep_copy(serve->remembered)};
    pthread_mutex_unlock(&serve->lock);
    serve_node_call(serve, write_state_fiber, &call);
    json_decref(call.pools);
    if (call.result != OK) {
        event_note(EVENT_STATE_UNSAVED, NULL,
                   "cannot record in %s which pools are served (%s): they will have to be imported "
                   "by hand after the next start",
                   serve->config->state_dir, error_text(call.result));
    }
}

static json_t *disk_paths(struct served *served) {
    struct served_view view;
    json_t *paths = json_array();
    served_look(served, &view);
    uint32_t count = view.snapshot == NULL ? 0 : view.snapshot->status.disk_count;
    for (uint32_t i = 0; i < count && i < POOL_DISKS_MAX; i++) {
        const char *path = view.snapshot->status.disks[i].path;
        if (path[0] == '/' || strncmp(path, "mem:", 4) == 0) {
            json_t *text = json_string(path);
            if (text != NULL) {
                (void)json_array_append_new(paths, text);
            }
        }
    }
    served_view_done(&view);
    return paths;
}

void serve_remember_disks(struct serve *serve, struct served *served) {
    remember(serve, served_name(served), disk_paths(served));
}

/* ---- where to look ---- */

void serve_search_paths(struct serve *serve, const json_t *also, struct path_list *ret_list) {
    path_list_add_json(ret_list, also);
    search_configured(serve->config, ret_list);
    pthread_mutex_lock(&serve->lock);
    for (size_t i = 0; i < json_array_size(serve->remembered); i++) {
        path_list_add_json(ret_list,
                           json_object_get(json_array_get(serve->remembered, i), "paths"));
    }
    pthread_mutex_unlock(&serve->lock);
}

/* ---- import and export ---- */

static int finish_import(struct serve *serve, struct served *served, bool patient,
                         struct errmsg *reterr) {
    int error = serve_disks_lock(serve, patient, reterr);
    if (error == OK) {
        served_open(served);
        serve_disks_unlock(serve);
        error = served_wait_import(served, reterr);
    }
    if (error == OK) {
        compare_pool(serve->compare, served, true);
        remember(serve, served_name(served), disk_paths(served));
    }
    return error;
}

int serve_import(struct serve *serve, const char *name, const struct served_import_options *options,
                 struct served **ret_served, struct errmsg *reterr) {
    struct served *served;
    int error = list_add_pool(serve, name, options, &served, reterr);
    if (error != OK) {
        return error;
    }
    error = finish_import(serve, served, false, reterr);
    if (error != OK) {
        list_remove_pool(serve, served);
        served_unref(served);
        return error;
    }
    *ret_served = served;
    return OK;
}

int serve_export(struct serve *serve, struct served *served, struct errmsg *reterr) {
    uint64_t deadline = served_now_ns() + (uint64_t)SERVE_STOP_S * NS_PER_S;
    const char *name = served_name(served);
    if (measure_uses(serve->measure, name, NULL)) {
        return errmsg_set(reterr, ERR_BUSY,
                          "a volume of pool %s is being measured (holdfast bench); stop that first",
                          name);
    }
    int error = targets_remove_pool(serve->targets, name, deadline);
    if (error != OK) {
        return errmsg_set(reterr, ERR_BUSY,
                          "pool %s still has commands of initiators under way, which do not end; "
                          "its LUNs are no longer served; try again",
                          name);
    }
    error = served_close(served, true, deadline + NS_PER_S, reterr);
    if (error != ERR_TIMEOUT) {
        list_remove_pool(serve, served);
        remember(serve, name, NULL);
        compare_forget(serve->compare, name);
        event_note(EVENT_POOL_EXPORTED, name, "exported");
    }
    return error;
}

/* ---- start ---- */

static void *starter_run(void *arg) {
    struct starter *starter = arg;
    struct errmsg why = {0};
    const char *name = served_name(starter->served);
    if (finish_import(starter->serve, starter->served, true, &why) != OK) {
        event_note(EVENT_POOL_NOT_IMPORTED, name, "not imported: %s", why.text);
    }
    atomic_store(&starter->ended, true);
    return NULL;
}

static void start_pool(struct serve *serve, const char *name) {
    struct path_list list = {0};
    serve_search_paths(serve, NULL, &list);
    const struct served_import_options options = {
        .paths = (const char *const *)list.paths,
        .path_count = list.count,
        .limits = {.read_cache_bytes = serve->config->read_cache_bytes,
                   .node_cache_bytes = serve->config->node_cache_bytes,
                   .dirty_bytes = serve->config->dirty_bytes,
                   .rebuild_grace_ms = (uint32_t)serve->config->rebuild_grace_s * 1000,
                   .rebuild_share_pct = (uint32_t)serve->config->rebuild_share_pct},
    };
    struct errmsg why = {0};
    struct starter *starter = &serve->starters[serve->starter_count];
    int error = serve->starter_count == SERVE_POOLS_MAX
                    ? errmsg_set(&why, ERR_LIMIT, "too many pools")
                    : list_add_pool(serve, name, &options, &starter->served, &why);
    if (error == OK) {
        starter->serve = serve;
        int errnum = pthread_create(&starter->thread, NULL, starter_run, starter);
        ASSERT(errnum == 0);
        serve->starter_count++;
    } else if (error != ERR_EXISTS) { /* named twice */
        event_note(EVENT_POOL_NOT_IMPORTED, name, "not imported: %s", why.text);
    }
    path_list_free(&list);
}

static void start_pools(struct serve *serve) {
    char names[SERVE_POOLS_MAX + CONFIG_LIST_MAX][64];
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(serve->remembered) && i < SERVE_POOLS_MAX; i++) {
        const json_t *pool = json_array_get(serve->remembered, i);
        (void)snprintf(names[count++], 64, "%s", schema_text(pool, "name", ""));
    }
    for (uint32_t i = 0; i < serve->config->pools.count; i++) {
        (void)snprintf(names[count++], 64, "%.63s", serve->config->pools.values[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        start_pool(serve, names[i]);
    }
}

static void warn_open_portals(const struct config *config) {
    for (uint32_t i = 0; i < config->listen.count; i++) {
        const char *address = config->listen.values[i];
        if (strncmp(address, "127.", 4) != 0 && strncmp(address, "[::1]", 5) != 0) {
            event_note(EVENT_PORTAL_FOR_ALL, NULL,
                       "iSCSI on %s: whoever reaches it can use the LUNs that have no access list",
                       address);
        }
    }
}

static void serve_free(struct serve *serve) {
    rest_stop(serve->rest);
    measure_free(serve->measure);
    for (uint32_t i = 0; i < serve->pool_count; i++) {
        served_unref(serve->pools[i]);
    }
    loop_stop(&serve->node);
    json_decref(serve->remembered);
    (void)pthread_mutex_destroy(&serve->lock);
    (void)pthread_cond_destroy(&serve->disks_free);
    mem_free(serve->config);
    mem_free(serve);
}

int serve_start(const struct config *config, struct serve **ret_serve, struct errmsg *reterr) {
    struct serve *serve = MEM_NEW(struct serve);
    serve->config = MEM_NEW(struct config);
    serve->measure = measure_new(serve);
    *serve->config = *config;
    ASSERT(pthread_mutex_init(&serve->lock, NULL) == 0);
    pthread_condattr_t attributes;
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&serve->disks_free, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    int error = rest_open(config->socket, &serve->rest, reterr); /* first: who is the second? */
    if (error == OK) {
        error = loop_start(&serve->node, "node", config->state_dir, reterr);
    }
    if (error == OK) {
        error = targets_start(config->state_dir, config->iscsi_threads, &serve->targets, reterr);
    }
    if (error == OK) {
        event_open(config->state_dir);
        smart_start();
        error = recall(serve, reterr);
    }
    if (error == OK) {
        serve->compare = compare_start(serve);
        error = rest_start(serve->rest, serve, reterr);
    }
    if (error != OK) {
        compare_free(serve->compare);
        if (serve->targets != NULL && targets_quiesce(serve->targets, 0) == OK) {
            targets_free(serve->targets);
        }
        smart_stop();
        event_close();
        serve_free(serve);
        return error;
    }
    event_note(EVENT_STARTED, NULL, "holdfast " HOLDFAST_VERSION " is starting");
    event_save(); /* a run that is killed was there */
    warn_open_portals(config);
    start_pools(serve);
    *ret_serve = serve;
    return OK;
}

bool serve_is_settled(struct serve *serve) {
    for (uint32_t i = 0; i < serve->starter_count; i++) {
        if (!atomic_load(&serve->starters[i].ended)) {
            return false;
        }
    }
    return true;
}

/* One portal that cannot be had is an alarm and tried again; none at all is a wrong setting. */
int serve_listen(struct serve *serve, struct errmsg *reterr) {
    int error = compare_listen(serve->compare, reterr);
    atomic_store(&serve->ready, error == OK);
    return error;
}

bool serve_remembers(struct serve *serve, uint32_t index, char ret_name[64]) {
    pthread_mutex_lock(&serve->lock);
    const json_t *pool = json_array_get(serve->remembered, index);
    (void)snprintf(ret_name, 64, "%s", schema_text(pool, "name", ""));
    pthread_mutex_unlock(&serve->lock);
    return pool != NULL;
}

bool serve_is_ready(struct serve *serve) {
    return atomic_load(&serve->ready);
}

/* ---- stop ---- */

struct closer {
    pthread_t thread;
    struct served *served;
    uint64_t deadline_ns;
    struct errmsg failure;
    int result;
};

static void *closer_run(void *arg) {
    struct closer *closer = arg;
    closer->result = served_close(closer->served, false, closer->deadline_ns, &closer->failure);
    return NULL;
}

/* All pools at once, for each may take as long as the deadline allows. */
static int close_pools(struct serve *serve, uint64_t deadline_ns, struct errmsg *reterr) {
    struct served *pools[SERVE_POOLS_MAX];
    struct closer *closers = MEM_NEW_ARRAY(struct closer, SERVE_POOLS_MAX);
    uint32_t count = serve_list(serve, pools);
    int result = OK;
    for (uint32_t i = 0; i < count; i++) {
        closers[i].served = pools[i];
        closers[i].deadline_ns = deadline_ns;
        int errnum = pthread_create(&closers[i].thread, NULL, closer_run, &closers[i]);
        ASSERT(errnum == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(pthread_join(closers[i].thread, NULL) == 0);
        if (closers[i].result != OK && result != ERR_TIMEOUT) {
            (void)errmsg_set(reterr, closers[i].result, "%s", closers[i].failure.text);
            result = closers[i].result;
        }
        if (closers[i].result != ERR_TIMEOUT) {
            served_unref(pools[i]);
        }
    }
    mem_free(closers);
    return result;
}

static int stop(struct serve *serve, uint32_t seconds, struct errmsg *reterr) {
    uint64_t now = served_now_ns(), allowed = seconds * NS_PER_S;
    event_hush();
    rest_quiesce(serve->rest);
    compare_stop(serve->compare);
    measure_quiesce(serve->measure, now + allowed / 4);
    /* Initiators first, so that nothing submits to a pool that is closing. */
    if (targets_quiesce(serve->targets, now + allowed / 2) != OK) {
        return errmsg_set(reterr, ERR_TIMEOUT,
                          "commands of initiators did not end; nothing acknowledged is lost: the "
                          "logs are replayed at the next start");
    }
    int error = close_pools(serve, now + allowed, reterr);
    if (error == ERR_TIMEOUT) {
        return error;
    }
    for (uint32_t i = 0; i < serve->starter_count; i++) {
        ASSERT(pthread_join(serve->starters[i].thread, NULL) == 0);
        served_unref(serve->starters[i].served);
    }
    rest_stop(serve->rest); /* requests under way saw their pools closing */
    serve->rest = NULL;
    compare_free(serve->compare);
    targets_free(serve->targets);
    serve_free(serve);
    return error;
}

int serve_stop(struct serve *serve, uint32_t seconds, struct errmsg *reterr) {
    struct errmsg why = {0};
    int error = stop(serve, seconds, &why);
    if (error == OK) {
        event_note(EVENT_STOPPED, NULL, "stopped");
    } else {
        event_note(EVENT_STOP_INCOMPLETE, NULL, "stopped, but: %s", why.text);
        (void)errmsg_set(reterr, error, "%s", why.text);
    }
    smart_stop();
    event_close();
    return error;
}

/* ---- run ---- */

/* Tells systemd (Type=notify), if it is systemd that started us. sd_notify(3). */
static void notify_ready(void) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') ||
        strlen(path) >= sizeof(address.sun_path)) {
        return;
    }
    size_t length = strlen(path);
    memcpy(address.sun_path, path, length + 1);
    if (path[0] == '@') {
        address.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)!sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
        close(fd);
    }
}

/* The signal that ends us, or 0 when the pools have settled first. */
static int wait_settled(struct serve *serve, const sigset_t *signals) {
    const struct timespec turn = {.tv_nsec = 20 * NS_PER_MS};
    uint64_t deadline = served_now_ns() + SERVE_SETTLE_S * NS_PER_S;
    while (!serve_is_settled(serve) && served_now_ns() < deadline) {
        int number = sigtimedwait(signals, NULL, &turn);
        if (number > 0) {
            return number;
        }
    }
    return 0;
}

int serve_run(const struct config *config, struct errmsg *reterr) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    (void)signal(SIGPIPE, SIG_IGN);
    struct serve *serve;
    int error = serve_start(config, &serve, reterr);
    if (error != OK) {
        return error;
    }
    int number = wait_settled(serve, &signals);
    if (number == 0) {
        error = serve_listen(serve, reterr);
    }
    if (number == 0 && error == OK) {
        event_note(EVENT_READY, NULL, "ready; the API is at %s", serve->config->socket);
        notify_ready();
        while (sigwait(&signals, &number) != 0) {
        }
    }
    if (number != 0) {
        event_note(EVENT_STOPPING, NULL, "%s: stopping",
                   number == SIGINT ? "interrupted" : "terminated");
    }
    /* Whatever waits for whom: the process ends in time. Nothing acknowledged is lost by it. */
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(SERVE_STOP_S + 2);
    int stop_error = serve_stop(serve, SERVE_STOP_S, reterr);
    return stop_error == ERR_TIMEOUT || error == OK ? stop_error : error;
}
