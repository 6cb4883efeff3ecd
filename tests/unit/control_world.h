// SPDX-License-Identifier: MPL-2.0
/* A whole service over the engine in memory (tests/fake), asked through its socket as the verbs do.
 */
#ifndef HOLDFAST_TESTS_CONTROL_WORLD_H
#define HOLDFAST_TESTS_CONTROL_WORLD_H

#include "unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd/client.h"
#include "control/api.h"
#include "control/config.h"
#include "control/serve.h"
#include "fake_engine.h"

struct world {
    char folder[64], socket[96], file[6][96];
    struct config *config;
    struct serve *serve;
    struct args *args;
};

static inline void world_start(struct world *world) {
    struct errmsg why = {0};
    int error = serve_start(world->config, &world->serve, &why);
    for (int i = 0; error == OK && i < 500 && !serve_is_settled(world->serve); i++) {
        (void)usleep(10000);
    }
    if (error == OK) {
        error = serve_listen(world->serve, &why);
    }
    if (error != OK) {
        print_error("%s\n", why.text);
    }
    assert_int_equal(error, OK);
}

static inline int world_setup(void **state) {
    struct world *world = MEM_NEW(struct world);
    (void)snprintf(world->folder, sizeof(world->folder), "/tmp/holdfast-control.XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    (void)snprintf(world->socket, sizeof(world->socket), "%s/run/socket", world->folder);
    for (int i = 0; i < 6; i++) {
        (void)snprintf(world->file[i], sizeof(world->file[i]), "%s/d%d", world->folder, i);
    }
    memset(&fake_engine_faults, 0, sizeof(fake_engine_faults));
    world->config = MEM_NEW(struct config);
    config_init(world->config);
    char state_dir[96];
    (void)snprintf(state_dir, sizeof(state_dir), "%s/state", world->folder);
    assert_int_equal(mkdir(state_dir, 0700), 0);
    assert_int_equal(config_set(world->config, "socket", world->socket, NULL), OK);
    assert_int_equal(config_set(world->config, "state-dir", state_dir, NULL), OK);
    assert_int_equal(config_set(world->config, "search", world->folder, NULL), OK);
    assert_int_equal(config_set(world->config, "listen", "127.0.0.1:0", NULL), OK);
    config_finish(world->config);
    world->args = MEM_NEW(struct args);
    world->args->given[OPT_SOCKET] = true;
    world->args->text[OPT_SOCKET] = world->socket;
    *state = world;
    world_start(world);
    return 0;
}

static inline int world_teardown(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    char command[128];
    if (world->serve != NULL) {
        assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    }
    assert_int_not_equal(access(world->socket, F_OK), 0);
    fake_engine_forget();
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", world->folder);
    assert_int_equal(system(command), 0);
    mem_free(world->config);
    mem_free(world->args);
    mem_free(world);
    return 0;
}

/* Over the socket, as the verbs do. */
static inline int call(struct world *world, const char *method, const char *path, const char *body,
                       json_t **ret_answer, struct errmsg *ret_why) {
    json_t *object = body == NULL ? NULL : json_loads(body, 0, NULL);
    memset(ret_why, 0, sizeof(*ret_why));
    return client_call(world->args, method, path, object, ret_answer, ret_why);
}

static inline void expect(struct world *world, int error, const char *method, const char *path,
                          const char *body, const char *text) {
    json_t *answer = NULL;
    struct errmsg why;
    int result = call(world, method, path, body, &answer, &why);
    char *dump = answer == NULL ? NULL : json_dumps(answer, JSON_COMPACT);
    if (result != error || strstr(error == OK ? dump : why.text, text) == NULL) {
        fail_msg("%s %s: %s, not %s: %s", method, path, error_name(result), error_name(error),
                 dump != NULL ? dump : why.text);
    }
    free(dump);
    json_decref(answer);
}

/* Whether the LUN is served, whatever its record says. */
static inline bool serves(struct world *world, const char *lun) {
    json_t *answer = NULL, *entry;
    struct errmsg why;
    size_t index;
    bool served = false;
    if (call(world, "GET", "/v1/luns", NULL, &answer, &why) == OK) {
        json_array_foreach(json_object_get(answer, "luns"), index, entry) {
            served |= strcmp(json_string_value(json_object_get(entry, "name")), lun) == 0 &&
                      json_is_true(json_object_get(entry, "served"));
        }
    }
    json_decref(answer);
    return served;
}

static inline void make_pool(struct world *world) {
    char body[1024];
    (void)snprintf(body, sizeof(body),
                   "{\"name\":\"tank\",\"files\":[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",\"%s\"],"
                   "\"file_size_bytes\":1073741824}",
                   world->file[0], world->file[1], world->file[2], world->file[3], world->file[4],
                   world->file[5]);
    expect(world, OK, "POST", "/v1/pools", body, "\"health\":\"ok\"");
}

#define SERVICE_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
