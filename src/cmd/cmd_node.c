// SPDX-License-Identifier: MPL-2.0
/* holdfast serve, check, disk list, health, version, help, completion. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/table.h"
#include "control/answer.h"
#include "control/loop.h"
#include "control/search.h"
#include "control/serve.h"
#include "engine/engine.h"
#include "env/fiber.h"

/* Options given on the command line replace what the file says. */
static int apply_list(struct config *config, struct config_list *list, const char *key,
                      const struct args *args, enum option_id id, struct errmsg *reterr) {
    if (args->list[id].count > 0) {
        config_clear(list);
    }
    for (uint32_t i = 0; i < args->list[id].count; i++) {
        int error = config_set(config, key, args->list[id].values[i], reterr);
        if (error != OK) {
            return errmsg_prefix(reterr, "--");
        }
    }
    return OK;
}

static int apply_path(struct config *config, const char *key, const struct args *args,
                      enum option_id id, struct errmsg *reterr) {
    if (!args->given[id]) {
        return OK;
    }
    struct args one = {.list[OPT_DISK] = {1, {args->text[id]}}};
    json_t *paths = client_paths(&one, OPT_DISK);
    int error = config_set(config, key, json_string_value(json_array_get(paths, 0)), reterr);
    json_decref(paths);
    return error == OK ? OK : errmsg_prefix(reterr, "--");
}

static int load_config(const struct args *args, struct config *ret_config, struct errmsg *reterr) {
    struct config *config = ret_config;
    config_init(config);
    int error =
        config_load(config, args->given[OPT_CONFIG] ? args->text[OPT_CONFIG] : NULL, reterr);
    if (error == OK) {
        error = apply_path(config, "socket", args, OPT_SOCKET, reterr);
    }
    if (error == OK) {
        error = apply_path(config, "state-dir", args, OPT_STATE_DIR, reterr);
    }
    if (error == OK) {
        error = apply_list(config, &config->listen, "listen", args, OPT_LISTEN, reterr);
    }
    if (error == OK) {
        error = apply_list(config, &config->pools, "pools", args, OPT_POOL, reterr);
    }
    json_t *places = client_paths(args, OPT_SEARCH);
    if (json_array_size(places) > 0) {
        config_clear(&config->search);
    }
    for (size_t i = 0; error == OK && i < json_array_size(places); i++) {
        error = config_set(config, "search", json_string_value(json_array_get(places, i)), reterr);
    }
    json_decref(places);
    config_finish(config);
    return error;
}

int cmd_serve(const struct args *args, struct errmsg *reterr) {
    struct config *config = MEM_NEW(struct config);
    int error = load_config(args, config, reterr);
    if (error == OK) {
        error = serve_run(config, reterr);
    }
    mem_free(config);
    return error;
}

/* ---- check ---- */

struct check {
    struct env *env;
    const char *pool;
    struct path_list list;
    bool json;
    json_t *problems; /* an array of texts, for --json */
    struct engine_check_result result;
    struct errmsg *reterr;
    int error;
};

static void check_problem(void *owner, const char *text) {
    struct check *check = owner;
    if (check->json) {
        (void)json_array_append_new(check->problems, answer_text(text));
    } else {
        (void)printf("problem: %s\n", text);
    }
}

static void check_fiber(void *arg) {
    struct check *check = arg;
    struct errmsg ignored = {0};
    json_t *remembered = search_recall(check->env, &ignored), *pool;
    size_t index;
    json_array_foreach(remembered, index, pool) {
        if (strcmp(json_string_value(json_object_get(pool, "name")), check->pool) == 0) {
            path_list_add_json(&check->list, json_object_get(pool, "paths"));
        }
    }
    json_decref(remembered);
    const struct pool_open_options options = {.name = check->pool,
                                              .paths = (const char *const *)check->list.paths,
                                              .path_count = check->list.count,
                                              .read_only = true};
    check->error =
        engine_check(check->env, &options, check_problem, check, &check->result, check->reterr);
}

static void print_check(const struct check *check) {
    const struct engine_check_result *r = &check->result;
    if (check->json) {
        json_t *object = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "pool", check->pool, "blocks_read",
            (json_int_t)r->blocks_read, "nodes_read", (json_int_t)r->nodes_read, "rows_read",
            (json_int_t)r->rows_read, "segments", (json_int_t)r->segments, "log_rows",
            (json_int_t)r->log_rows, "problem_count", (json_int_t)r->problems, "repairable_count",
            (json_int_t)r->repairable, "problems", check->problems);
        client_print_json(object);
        json_decref(object);
        return;
    }
    (void)printf("%s: %" PRIu64 " segments, %" PRIu64 " rows, %" PRIu64 " blocks, %" PRIu64
                 " nodes, %" PRIu64 " log rows read\n",
                 check->pool, r->segments, r->rows_read, r->blocks_read, r->nodes_read,
                 r->log_rows);
    if (r->problems == 0) {
        (void)printf("%s: no problems\n", check->pool);
    } else {
        (void)printf("%s: %" PRIu64 " problems, of which %" PRIu64
                     " are repaired from redundancy when the pool is served\n",
                     check->pool, r->problems, r->repairable);
    }
}

static int run_check(struct check *check, const struct config *config) {
    struct loop loop = {0};
    int error = loop_start(&loop, "check", config->state_dir, check->reterr);
    if (error != OK) {
        return error;
    }
    check->env = loop.env;
    fiber_call(loop.env, check_fiber, check);
    loop_stop(&loop);
    return check->error;
}

/* A pool that a service has open is not at rest: what is read would be half of one checkpoint and
 * half of the next. (A service that cannot be asked holds its disks; opening them then fails.) */
static int refuse_served(const struct args *args, const char *pool, const json_t *given,
                         struct errmsg *reterr) {
    char path[128];
    struct errmsg ignored = {0};
    json_t *answer, *disk, *wanted;
    size_t i, k;
    (void)snprintf(path, sizeof(path), "/v1/pools/%s", pool);
    if (client_call(args, "GET", path, NULL, &answer, &ignored) != OK) {
        return OK;
    }
    bool ours = json_array_size(given) == 0;
    json_array_foreach(json_object_get(answer, "disks"), i, disk) {
        json_array_foreach(given, k, wanted) {
            ours |= json_equal(json_object_get(disk, "path"), wanted) != 0;
        }
    }
    ours = ours && json_object_get(answer, "disks") != NULL;
    json_decref(answer);
    return ours ? errmsg_set(reterr, ERR_BUSY,
                             "pool %s is served just now; export it (holdfast pool export %s) or "
                             "stop the service first",
                             pool, pool)
                : OK;
}

int cmd_check(const struct args *args, struct errmsg *reterr) {
    char pool[64];
    struct config *config = MEM_NEW(struct config);
    struct check check = {.pool = pool, .json = args->given[OPT_JSON], .reterr = reterr};
    int error = client_pool_name(args->operands[0], pool, reterr);
    if (error == OK) {
        error = load_config(args, config, reterr);
    }
    if (error == OK) {
        check.problems = json_array();
        json_t *given = client_paths(args, OPT_DISK);
        path_list_add_json(&check.list, given);
        if (json_array_size(given) == 0) {
            search_configured(config, &check.list);
        }
        error = refuse_served(args, pool, given, reterr);
        json_decref(given);
        if (error == OK) {
            error = run_check(&check, config);
        }
    }
    if (error == OK) {
        print_check(&check);
        if (check.result.problems > 0) {
            error = errmsg_set(reterr, ERR_CORRUPT, "pool %s has problems, listed above", pool);
        }
    }
    path_list_free(&check.list);
    json_decref(check.problems);
    mem_free(config);
    return error;
}

/* ---- disk list, health ---- */

static void print_disk_list(const json_t *answer) {
    static const char *const heads[] = {"DISK", ">SIZE", "KIND", "MODEL", "SERIAL", "USE", NULL};
    struct table *table = table_new(heads);
    json_t *disk;
    size_t index;
    json_array_foreach(json_object_get(answer, "disks"), index, disk) {
        const char *pool = json_string_value(json_object_get(disk, "pool"));
        const char *holds = json_string_value(json_object_get(disk, "holds"));
        const char *problem = json_string_value(json_object_get(disk, "problem"));
        char use[256];
        if (pool != NULL && pool[0] != '\0') {
            const char *state = json_string_value(json_object_get(disk, "state"));
            bool odd = state != NULL && state[0] != '\0' && strcmp(state, "in sync") != 0;
            (void)snprintf(use, sizeof(use), "pool %s%s%s", pool, odd ? ", " : "",
                           odd ? state : "");
        } else if (problem != NULL && problem[0] != '\0') {
            (void)snprintf(use, sizeof(use), "cannot be opened: %s", problem);
        } else if (json_is_true(json_object_get(disk, "in_use"))) {
            (void)snprintf(use, sizeof(use), "in use%s%s", holds != NULL && holds[0] ? ": " : "",
                           holds != NULL ? holds : "");
        } else {
            (void)snprintf(use, sizeof(use), "%s%s", holds != NULL && holds[0] ? "holds " : "free",
                           holds != NULL ? holds : "");
        }
        table_json_text(table, disk, "path");
        table_json_size(table, disk, "size_bytes");
        table_text(table, json_is_true(json_object_get(disk, "rotational")) ? "disk" : "flash");
        table_json_text(table, disk, "model");
        table_json_text(table, disk, "serial");
        table_text(table, use);
    }
    json_array_foreach(json_object_get(answer, "members"), index, disk) {
        const char *path = json_string_value(json_object_get(disk, "path"));
        char use[256];
        if (strncmp(path, "/dev/", 5) == 0) {
            continue; /* among the disks above */
        }
        (void)snprintf(use, sizeof(use), "pool %s, %s",
                       json_string_value(json_object_get(disk, "pool")),
                       json_string_value(json_object_get(disk, "state")));
        table_text(table, path);
        table_json_size(table, disk, "size_bytes");
        table_text(table, "file");
        table_text(table, NULL);
        table_text(table, NULL);
        table_text(table, use);
    }
    table_print(table, "no disks");
}

int cmd_disk_list(const struct args *args, struct errmsg *reterr) {
    json_t *answer;
    int error = client_call(args, "GET", "/v1/disks", NULL, &answer, reterr);
    if (error == OK) {
        if (args->given[OPT_JSON]) {
            client_print_json(answer);
        } else {
            print_disk_list(answer);
        }
        json_decref(answer);
    }
    return error;
}

int cmd_health(const struct args *args, struct errmsg *reterr) {
    json_t *answer, *problem;
    size_t index;
    int error = client_call(args, "GET", "/v1/health", NULL, &answer, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        (void)printf("%s\n", json_string_value(json_object_get(answer, "health")));
        json_array_foreach(json_object_get(answer, "problems"), index, problem) {
            const char *pool = json_string_value(json_object_get(problem, "pool"));
            (void)printf("%s%s%s%s\n", pool[0] != '\0' ? "pool " : "", pool,
                         pool[0] != '\0' ? ": " : "",
                         json_string_value(json_object_get(problem, "text")));
        }
    }
    json_decref(answer);
    return OK;
}

/* ---- the rest ---- */

int cmd_version(const struct args *args, struct errmsg *reterr) {
    (void)reterr;
    if (args->given[OPT_JSON]) {
        json_t *object = json_pack("{s:s, s:s}", "name", "holdfast", "version", HOLDFAST_VERSION);
        client_print_json(object);
        json_decref(object);
    } else {
        (void)puts("holdfast " HOLDFAST_VERSION);
    }
    return OK;
}

int cmd_help(const struct args *args, struct errmsg *reterr) {
    const char *first = args->operands[0], *second = args->operands[1];
    for (uint32_t i = 0; first != NULL && i < verb_count; i++) {
        const struct verb *verb = &verbs[i];
        if (second == NULL ? verb->noun == NULL && strcmp(verb->name, first) == 0
                           : verb->noun != NULL && strcmp(verb->noun, first) == 0 &&
                                 strcmp(verb->name, second) == 0) {
            help_print_verb(stdout, verb);
            return OK;
        }
    }
    if (first != NULL && second == NULL && help_is_noun(first)) {
        help_print_noun(stdout, first);
        return OK;
    }
    if (first != NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND,
                          "there is no verb \"%.40s%s%.40s\"; see holdfast "
                          "help",
                          first, second != NULL ? " " : "", second != NULL ? second : "");
    }
    help_print(stdout);
    return OK;
}

int cmd_completion(const struct args *args, struct errmsg *reterr) {
    (void)args;
    (void)reterr;
    completion_print(stdout);
    return OK;
}
