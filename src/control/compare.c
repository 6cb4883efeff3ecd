// SPDX-License-Identifier: MPL-2.0
#include "control/compare.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/mem.h"
#include "control/answer.h"
#include "control/event.h"
#include "control/serve.h"

struct difference {
    struct list link;
    char pool[64]; /* empty: of the node */
    char object[CONFIG_VALUE_MAX + 16];
    char text[640];
    bool seen; /* in the look that goes on */
};

struct compare {
    struct serve *serve;
    pthread_t thread;
    pthread_mutex_t looking; /* one look at a time; taken before `lock` */
    pthread_mutex_t lock;    /* of what follows */
    pthread_cond_t wake;
    bool stopping, listening;
    struct list differences;
};

/* ---- differences; a look covers all of one pool, or all of the node ---- */

static void look_begin(struct compare *compare, const char *pool) {
    pthread_mutex_lock(&compare->lock);
    LIST_FOR_EACH(it, &compare->differences) {
        struct difference *difference = CONTAINER_OF(it, struct difference, link);
        if (strcmp(difference->pool, pool) == 0) {
            difference->seen = false;
        }
    }
    pthread_mutex_unlock(&compare->lock);
}

/* Told once, and again when the reason is another one. */
static void report(struct compare *compare, enum event_kind kind, const char *pool,
                   const char *object, const char *text) {
    struct difference *found = NULL;
    pthread_mutex_lock(&compare->lock);
    LIST_FOR_EACH(it, &compare->differences) {
        struct difference *difference = CONTAINER_OF(it, struct difference, link);
        if (strcmp(difference->pool, pool) == 0 && strcmp(difference->object, object) == 0) {
            found = difference;
        }
    }
    if (found == NULL) {
        found = MEM_NEW(struct difference);
        list_init(&found->link);
        (void)snprintf(found->pool, sizeof(found->pool), "%s", pool);
        (void)snprintf(found->object, sizeof(found->object), "%s", object);
        list_append(&compare->differences, &found->link);
    }
    bool news = strncmp(found->text, text, sizeof(found->text) - 1) != 0 && !compare->stopping;
    (void)snprintf(found->text, sizeof(found->text), "%s", text);
    found->seen = true;
    pthread_mutex_unlock(&compare->lock);
    if (news) {
        event_note(kind, pool, "%s", text);
    }
}

static void look_end(struct compare *compare, const char *pool) {
    pthread_mutex_lock(&compare->lock);
    LIST_FOR_EACH_SAFE(it, &compare->differences) {
        struct difference *difference = CONTAINER_OF(it, struct difference, link);
        if (strcmp(difference->pool, pool) != 0 || difference->seen) {
            continue;
        }
        if (!compare->stopping) {
            event_note(EVENT_AS_CONFIGURED, pool, "%s: is served as it is configured again",
                       difference->object);
        }
        list_remove(&difference->link);
        mem_free(difference);
    }
    pthread_mutex_unlock(&compare->lock);
}

void compare_forget(struct compare *compare, const char *pool) {
    pthread_mutex_lock(&compare->lock);
    LIST_FOR_EACH_SAFE(it, &compare->differences) {
        struct difference *difference = CONTAINER_OF(it, struct difference, link);
        if (strcmp(difference->pool, pool) == 0) {
            list_remove(&difference->link);
            mem_free(difference);
        }
    }
    pthread_mutex_unlock(&compare->lock);
}

json_t *compare_list(struct compare *compare) {
    json_t *list = json_array();
    pthread_mutex_lock(&compare->lock);
    LIST_FOR_EACH(it, &compare->differences) {
        const struct difference *difference = CONTAINER_OF(it, struct difference, link);
        (void)json_array_append_new(list, json_pack("{s:s, s:o}", "pool", difference->pool, "text",
                                                    answer_text(difference->text)));
    }
    pthread_mutex_unlock(&compare->lock);
    return list;
}

/* ---- a pool's LUNs and users ---- */

static const struct volume_info *find_volume(const struct served_snapshot *snapshot,
                                             const char *name) {
    for (uint32_t i = 0; i < snapshot->volume_count; i++) {
        if (strcmp(snapshot->volumes[i].name, name) == 0) {
            return &snapshot->volumes[i];
        }
    }
    return NULL;
}

static void look_at_lun(struct compare *compare, struct served *served,
                        const struct served_view *view, const struct lun_record *lun) {
    struct targets *targets = serve_targets(compare->serve);
    enum targets_state state = targets_state(targets, view->name, lun);
    const struct volume_info *volume = find_volume(view->snapshot, lun->volume);
    struct errmsg why = {0};
    if (state == TARGETS_AS_RECORDED) {
        return;
    }
    int error = volume == NULL
                    ? errmsg_set(&why, ERR_NOT_FOUND, "its volume %s is gone", lun->volume)
                : state == TARGETS_OTHERWISE
                    ? targets_map(targets, view->name, lun, &why)
                    : targets_add(targets, view->name, lun, volume, served_door(served), &why);
    if (error != OK) {
        char object[CONFIG_VALUE_MAX], text[640];
        (void)snprintf(object, sizeof(object), "LUN %s", lun->name);
        (void)snprintf(text, sizeof(text), "LUN %s is not served%s: %s", lun->name,
                       state == TARGETS_OTHERWISE ? " as it is configured" : "", why.text);
        report(compare, EVENT_LUN_NOT_SERVED, view->name, object, text);
    }
}

static void look_at_users(struct compare *compare, const struct served_view *view) {
    const struct served_snapshot *snapshot = view->snapshot;
    struct errmsg why = {0};
    if (targets_users(serve_targets(compare->serve), view->name, snapshot->users,
                      snapshot->user_count, &why) != OK) {
        char text[640];
        (void)snprintf(text, sizeof(text), "CHAP users are not as they are recorded: %s", why.text);
        report(compare, EVENT_RECORD_BAD, view->name, "CHAP users", text);
    }
}

void compare_pool(struct compare *compare, struct served *served, bool import) {
    struct errmsg why = {0};
    const char *name = served_name(served);
    int error = import ? served_change_begin(served, "serve LUNs", &why)
                       : served_change_try(served, "compare what is served");
    if (error != OK && import) {
        event_note(EVENT_LUN_NOT_SERVED, name, "its LUNs are not served yet: %s", why.text);
    }
    if (error != OK) {
        return;
    }
    struct served_view view;
    pthread_mutex_lock(&compare->looking);
    served_look(served, &view);
    uint32_t count = view.snapshot == NULL ? 0 : view.snapshot->lun_count;
    if (view.snapshot != NULL && !view.stale && view.stage == SERVED_RUNNING) {
        look_begin(compare, name);
        look_at_users(compare, &view);
        for (uint32_t i = 0; i < count; i++) {
            look_at_lun(compare, served, &view, &view.snapshot->luns[i]);
        }
        look_end(compare, name);
    }
    served_view_done(&view);
    pthread_mutex_unlock(&compare->looking);
    served_change_end(served);
    if (import) {
        event_note(EVENT_POOL_SERVED, name, "served, %u LUN%s", count, count == 1 ? "" : "s");
    }
}

/* ---- the node: portals, pools that should be there ---- */

static int look_at_portals(struct compare *compare, struct errmsg *reterr) {
    const struct config_list *listen = &serve_config(compare->serve)->listen;
    int error = OK;
    uint32_t failed = 0;
    for (uint32_t i = 0; i < listen->count; i++) {
        struct errmsg why = {0};
        bool opened = false;
        int result = targets_listen(serve_targets(compare->serve), listen, i, &opened, &why);
        if (result != OK) {
            char object[CONFIG_VALUE_MAX + 16], text[640];
            (void)snprintf(object, sizeof(object), "iSCSI on %s", listen->values[i]);
            (void)snprintf(text, sizeof(text), "no iSCSI on %s: %.350s", listen->values[i],
                           why.text);
            report(compare, EVENT_PORTAL_CLOSED, "", object, text);
            error = errmsg_set(reterr, result, "%s", why.text);
            failed++;
        } else if (opened) {
            char address[CONFIG_VALUE_MAX];
            targets_portal(serve_targets(compare->serve), i, address);
            event_note(EVENT_PORTAL_OPEN, NULL, "iSCSI on %s", address);
        }
    }
    return failed == listen->count ? error : OK;
}

/* A pool whose import failed stays in the list of those that are served, and says so itself. */
static void look_at_pools(struct compare *compare) {
    char name[64];
    for (uint32_t i = 0; serve_remembers(compare->serve, i, name); i++) {
        struct served *served = serve_find(compare->serve, name, NULL);
        if (served == NULL) {
            char object[CONFIG_VALUE_MAX], text[640];
            (void)snprintf(object, sizeof(object), "pool %s", name);
            (void)snprintf(text, sizeof(text),
                           "pool %s was served before and is not imported now (holdfast pool "
                           "import %s imports it or says why not; export it to forget it)",
                           name, name);
            report(compare, EVENT_POOL_NOT_IMPORTED, "", object, text);
        }
        served_unref(served);
    }
}

static int look_at_node(struct compare *compare, struct errmsg *reterr) {
    pthread_mutex_lock(&compare->looking);
    look_begin(compare, "");
    int error = look_at_portals(compare, reterr);
    look_at_pools(compare);
    look_end(compare, "");
    pthread_mutex_unlock(&compare->looking);
    return error;
}

int compare_listen(struct compare *compare, struct errmsg *reterr) {
    int error = look_at_node(compare, reterr);
    pthread_mutex_lock(&compare->lock);
    compare->listening = error == OK;
    pthread_mutex_unlock(&compare->lock);
    return error;
}

/* ---- the thread ---- */

/* Whether it is time to look; false: to end. */
static bool wait_turn(struct compare *compare, bool *ret_listening) {
    uint64_t at_ns = served_now_ns() + COMPARE_MS * NS_PER_MS;
    const struct timespec at = {.tv_sec = (time_t)(at_ns / NS_PER_S),
                                .tv_nsec = (long)(at_ns % NS_PER_S)};
    pthread_mutex_lock(&compare->lock);
    while (!compare->stopping && pthread_cond_timedwait(&compare->wake, &compare->lock, &at) == 0) {
    }
    bool go_on = !compare->stopping;
    *ret_listening = compare->listening;
    pthread_mutex_unlock(&compare->lock);
    return go_on;
}

static void *compare_run(void *arg) {
    struct compare *compare = arg;
    bool listening;
    while (wait_turn(compare, &listening)) {
        struct served *pools[SERVE_POOLS_MAX];
        struct errmsg ignored = {0};
        uint32_t count = serve_list(compare->serve, pools);
        for (uint32_t i = 0; i < count; i++) {
            compare_pool(compare, pools[i], false);
            served_unref(pools[i]);
        }
        if (listening) { /* before, pools are still being imported */
            (void)!look_at_node(compare, &ignored);
        }
    }
    return NULL;
}

struct compare *compare_start(struct serve *serve) {
    struct compare *compare = MEM_NEW(struct compare);
    compare->serve = serve;
    list_init(&compare->differences);
    ASSERT(pthread_mutex_init(&compare->looking, NULL) == 0);
    ASSERT(pthread_mutex_init(&compare->lock, NULL) == 0);
    pthread_condattr_t attributes;
    ASSERT(pthread_condattr_init(&attributes) == 0);
    ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&compare->wake, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    int errnum = pthread_create(&compare->thread, NULL, compare_run, compare);
    ASSERT(errnum == 0);
    (void)pthread_setname_np(compare->thread, "compare");
    return compare;
}

void compare_stop(struct compare *compare) {
    if (compare != NULL) {
        pthread_mutex_lock(&compare->lock);
        compare->stopping = true;
        pthread_cond_broadcast(&compare->wake);
        pthread_mutex_unlock(&compare->lock);
    }
}

void compare_free(struct compare *compare) {
    if (compare == NULL) {
        return;
    }
    compare_stop(compare);
    ASSERT(pthread_join(compare->thread, NULL) == 0);
    LIST_FOR_EACH_SAFE(it, &compare->differences) {
        struct difference *difference = CONTAINER_OF(it, struct difference, link);
        list_remove(&difference->link);
        mem_free(difference);
    }
    (void)pthread_cond_destroy(&compare->wake);
    (void)pthread_mutex_destroy(&compare->lock);
    (void)pthread_mutex_destroy(&compare->looking);
    mem_free(compare);
}
