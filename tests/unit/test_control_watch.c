// SPDX-License-Identifier: MPL-2.0
/* What people are told without asking for it: events, and alarms where what is served is not what
 * is configured. */
#include "control_world.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "control/compare.h"
#include "control/event.h"

/* ---- events ---- */

static size_t count_events(const struct event_filter *filter, json_t **ret_list) {
    json_t *list = event_list(filter, 0);
    size_t count = json_array_size(list);
    if (ret_list != NULL) {
        *ret_list = list;
    } else {
        json_decref(list);
    }
    return count;
}

static const char *event_text(const json_t *list, size_t index, const char *key) {
    return json_string_value(json_object_get(json_array_get(list, index), key));
}

static void events_are_kept_by_severity(void **state) {
    (void)state;
    char folder[] = "/tmp/holdfast-events.XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    event_open(folder);
    event_note(EVENT_DISK_LOST, "tank", "disk 3 (/dev/x\x01) is missing");
    for (int i = 0; i < EVENTS_KEPT + 7; i++) {
        event_note(EVENT_LOGIN_REFUSED, NULL, "stranger %d", i);
    }
    event_note(EVENT_POOL_OK, "tank", "ok");
    /* the many do not push out the one that matters */
    struct event_filter filter = {.least = EVENT_ERROR};
    json_t *list;
    assert_int_equal(count_events(&filter, &list), 1);
    assert_string_equal(event_text(list, 0, "text"), "disk 3 (/dev/x?) is missing");
    assert_string_equal(event_text(list, 0, "kind"), "disk-lost");
    assert_string_equal(event_text(list, 0, "pool"), "tank");
    assert_non_null(strstr(event_text(list, 0, "advice"), "cables"));
    assert_int_equal(strlen(event_text(list, 0, "time")), 24);
    json_decref(list);
    filter = (struct event_filter){.least = EVENT_WARNING, .pool = ""};
    assert_int_equal(count_events(&filter, &list), EVENTS_KEPT);
    assert_string_equal(event_text(list, 0, "text"), "stranger 7");
    json_decref(list);
    filter = (struct event_filter){.pool = "tank"};
    assert_int_equal(count_events(&filter, NULL), 2);
    filter = (struct event_filter){.since_unix_s = (int64_t)time(NULL) + 100};
    assert_int_equal(count_events(&filter, NULL), 0);
    filter = (struct event_filter){.after = event_last()};
    assert_int_equal(count_events(&filter, NULL), 0);
    filter.after--;
    assert_int_equal(count_events(&filter, &list), 1);
    json_decref(list);
    event_close();
    (void)snprintf(path, sizeof(path), "%s/events", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void events_outlive_the_process(void **state) {
    (void)state;
    char folder[] = "/tmp/holdfast-events.XXXXXX", path[64];
    struct event_filter all = {0};
    struct stat st;
    json_t *list;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/events", folder);
    event_open(folder);
    assert_int_equal(count_events(&all, NULL), 0);
    event_note(EVENT_STARTED, NULL, "starting");
    event_note(EVENT_VOLUME_BROKEN, "tank", "volume \"vm\" \xff is broken");
    event_close();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* a line cut off by a crash, and lines of nobody's */
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    (void)fputs("{\"n\":9,\"at\":1,\"kind\":\"later-kind\",\"pool\":\"\",\"text\":\"\"}\n"
                "rubbish\n{\"n\":10,\"at\":1,\"kind\":\"disk-lost\",\"pool\":\"\",\"te",
                file);
    assert_int_equal(fclose(file), 0);
    event_open(folder); /* it was not stopped, which is an event too */
    assert_int_equal(count_events(&all, &list), 3);
    assert_string_equal(event_text(list, 1, "text"), "volume \"vm\" ? is broken");
    assert_string_equal(event_text(list, 2, "kind"), "not-stopped");
    json_decref(list);
    event_note(EVENT_STARTED, NULL, "starting");
    event_note(EVENT_STOPPED, NULL, "stopped");
    event_close();
    event_open(folder); /* the cut off line has not swallowed the next one */
    assert_int_equal(count_events(&all, &list), 5);
    assert_string_equal(event_text(list, 4, "kind"), "stopped");
    json_decref(list);
    /* the file does not grow for ever */
    for (int turn = 0; turn < 6; turn++) {
        for (int i = 0; i < EVENTS_KEPT + 100; i++) {
            event_note(EVENT_LOGIN, NULL, "host %d", i);
            event_note(EVENT_DISK_ERROR, "tank", "error %d", i);
        }
        event_close();
        event_open(folder);
    }
    uint64_t last = event_last();
    event_close();
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 1 << 20);
    event_open(folder);
    assert_int_equal(event_last(), last);
    /* all but the warning of the first crash, which newer ones pushed out */
    assert_int_equal(count_events(&all, &list), 2 * EVENTS_KEPT + 4);
    json_decref(list);
    event_close();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void every_kind_says_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *name, *advice;
        enum event_severity severity;
    } kinds[] = {
#define X(kind, name, severity, advice) {name, advice, EVENT_##severity},
        EVENT_LIST(X)
#undef X
    };
    for (int i = 0; i < EVENT_KINDS; i++) {
        assert_true(kinds[i].severity == EVENT_INFO || kinds[i].advice[0] != '\0');
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(kinds[i].name, kinds[k].name);
        }
    }
}

static bool health_says(struct world *world, const char *text, bool expected) {
    bool found = !expected;
    for (int i = 0; i < 240 && found != expected; i++) { /* ≤ 12 s */
        json_t *answer = NULL;
        struct errmsg why;
        assert_int_equal(call(world, "GET", "/v1/health", NULL, &answer, &why), OK);
        char *dump = json_dumps(answer, JSON_COMPACT);
        found = strstr(dump, text) != NULL;
        free(dump);
        json_decref(answer);
        (void)usleep(found == expected ? 0 : 50000);
    }
    return found == expected;
}

static void lose_volume(struct engine *engine, void *arg) {
    assert_int_equal(engine_volume_delete(engine, arg, NULL), OK);
}

static void what_is_not_served_is_an_alarm(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    char vm[] = "vm";
    make_pool(world);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"vm\",\"size_bytes\":1048576}",
           "vm");
    expect(world, OK, "POST", "/v1/pools/tank/luns", "{\"volume\":\"vm\"}", "\"served\":true");
    /* one that got lost is served again */
    targets_remove(serve_targets(world->serve), "tank", "vm");
    assert_false(serves(world, "vm"));
    for (int i = 0; i < 120 && !serves(world, "vm"); i++) {
        (void)usleep(100000);
    }
    assert_true(serves(world, "vm"));
    /* one that cannot be served is in health, with the reason, and an event */
    struct served *served = serve_find(world->serve, "tank", &why);
    assert_non_null(served);
    assert_int_equal(served_change_begin(served, "test", &why), OK);
    served_change(served, lose_volume, vm);
    targets_remove(serve_targets(world->serve), "tank", "vm");
    served_change_end(served);
    served_unref(served);
    assert_true(health_says(world, "LUN vm is not served: its volume vm is gone", true));
    expect(world, OK, "GET", "/v1/health", NULL, "\"health\":\"degraded\"");
    expect(world, OK, "POST", "/v1/events", "{\"pool\":\"tank\",\"severity\":\"error\"}",
           "\"kind\":\"lun-not-served\"");
    expect(world, OK, "DELETE", "/v1/pools/tank/luns/vm", NULL, "deleted");
    assert_true(health_says(world, "not served", false));
    expect(world, OK, "POST", "/v1/events", "{\"pool\":\"tank\"}", "as it is configured again");
}

static void a_pool_that_is_remembered_and_not_there_is_an_alarm(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    make_pool(world);
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    atomic_store(&fake_engine_faults.import_error, ERR_QUORUM);
    world_start(world);
    expect(world, OK, "POST", "/v1/events", "{\"pool\":\"tank\",\"severity\":\"error\"}",
           "\"kind\":\"pool-not-imported\"");
    expect(world, ERR_QUORUM, "POST", "/v1/pools/tank/import", NULL, "refuses");
    assert_true(health_says(world, "pool tank was served before and is not imported now", true));
    atomic_store(&fake_engine_faults.import_error, OK);
    expect(world, OK, "POST", "/v1/pools/tank/import", NULL, "\"health\":\"ok\"");
    assert_true(health_says(world, "\"problems\":[]", true));
}

static void a_portal_that_cannot_be_had_is_an_alarm(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(taken, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(taken, 1), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &length), 0);
    char portal[64], text[96], tagged[80];
    (void)snprintf(portal, sizeof(portal), "127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    world->serve = NULL;
    config_clear(&world->config->listen);
    assert_int_equal(config_set(world->config, "listen", portal, NULL), OK);
    struct serve *serve; /* alone: an error */
    assert_int_equal(serve_start(world->config, &serve, &why), OK);
    assert_int_not_equal(serve_listen(serve, &why), OK);
    assert_int_equal(serve_stop(serve, 8, &why), OK);
    assert_int_equal(config_set(world->config, "listen", "127.0.0.1:0", NULL), OK);
    world_start(world); /* beside another: an alarm */
    (void)snprintf(text, sizeof(text), "no iSCSI on %s", portal);
    assert_true(health_says(world, text, true));
    expect(world, OK, "POST", "/v1/events", "{\"severity\":\"error\"}",
           "\"kind\":\"portal-closed\"");
    close(taken);
    assert_true(health_says(world, text, false));
    json_t *portals = targets_portals(serve_targets(world->serve));
    (void)snprintf(tagged, sizeof(tagged), "%s", json_string_value(json_array_get(portals, 0)));
    assert_int_equal(json_array_size(portals), 2);
    assert_string_equal(tagged, portal); /* the first of the list has the first tag, though late */
    json_decref(portals);
}

struct follower {
    struct world *world;
    json_t *answer;
    uint64_t took_ns;
};

static void *follow(void *arg) {
    struct follower *follower = arg;
    struct errmsg why;
    char body[96];
    uint64_t before = served_now_ns();
    (void)snprintf(body, sizeof(body), "{\"after\":%llu,\"wait_seconds\":10}",
                   (unsigned long long)event_last());
    assert_int_equal(call(follower->world, "POST", "/v1/events", body, &follower->answer, &why),
                     OK);
    follower->took_ns = served_now_ns() - before;
    return NULL;
}

static void events_are_filtered_and_followed(void **state) {
    struct world *world = *state;
    struct follower follower = {.world = world};
    struct errmsg why = {0};
    pthread_t thread;
    expect(world, ERR_INVALID, "POST", "/v1/events", "{\"severity\":\"bad\"}", "info, warning");
    expect(world, ERR_RANGE, "POST", "/v1/events", "{\"wait_seconds\":31}", "wait_seconds");
    expect(world, OK, "GET", "/v1/sessions", NULL, "\"sessions\":[]");
    expect(world, OK, "GET", "/v1/counters", NULL, "\"pools\":[],\"luns\":[],\"disks\":[]");
    expect(world, OK, "POST", "/v1/events", "{\"pool\":\"none\"}", "\"events\":[]");
    assert_int_equal(pthread_create(&thread, NULL, follow, &follower), 0);
    (void)usleep(300000);
    event_note(EVENT_LOGIN, NULL, "somebody logged in");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(follower.took_ns < 5 * (uint64_t)NS_PER_S);
    assert_string_equal(event_text(json_object_get(follower.answer, "events"), 0, "text"),
                        "somebody logged in");
    json_decref(follower.answer);
    /* a stop does not wait for those who follow */
    assert_int_equal(pthread_create(&thread, NULL, follow, &follower), 0);
    (void)usleep(300000);
    uint64_t before = served_now_ns();
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    assert_true(served_now_ns() - before < 5 * (uint64_t)NS_PER_S);
    assert_int_equal(pthread_join(thread, NULL), 0);
    json_decref(follower.answer);
    world_start(world);
    expect(world, OK, "POST", "/v1/events", "{}", "\"kind\":\"stopped\""); /* over the restart */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_kept_by_severity),
        cmocka_unit_test(events_outlive_the_process),
        cmocka_unit_test(every_kind_says_what_to_do),
        SERVICE_TEST(what_is_not_served_is_an_alarm),
        SERVICE_TEST(a_pool_that_is_remembered_and_not_there_is_an_alarm),
        SERVICE_TEST(a_portal_that_cannot_be_had_is_an_alarm),
        SERVICE_TEST(events_are_filtered_and_followed),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
