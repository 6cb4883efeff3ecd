// SPDX-License-Identifier: MPL-2.0
/* holdfast config export, import. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/plan.h"

/* What a pool is now. `secrets`: CHAP secrets, too. */
static int fetch_pool(const struct args *args, const char *pool, bool secrets, json_t **ret_config,
                      struct errmsg *reterr) {
    char path[128];
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/config", pool);
    return client_call(args, secrets ? "POST" : "GET", path,
                       secrets ? json_pack("{s:b}", "secrets", 1) : NULL, ret_config, reterr);
}

/* ---- export ---- */

/* Beside the old one, then in its place: never half a file, and nobody else's to read. */
static int write_file(const char *path, const json_t *file, struct errmsg *reterr) {
    char aside[4096];
    int length = snprintf(aside, sizeof(aside), "%s~%ld", path, (long)getpid());
    int fd = length > 0 && length < (int)sizeof(aside)
                 ? open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                 : -1;
    bool good = fd >= 0 && json_dumpfd(file, fd, JSON_INDENT(2)) == 0 && write(fd, "\n", 1) == 1 &&
                fsync(fd) == 0;
    int errnum = errno;
    good = fd >= 0 && close(fd) == 0 && good;
    if (good && rename(aside, path) != 0) {
        errnum = errno;
        good = false;
    }
    if (!good && fd >= 0) {
        (void)unlink(aside);
    }
    return good ? OK
                : errmsg_set(reterr, error_from_errno(errnum), "cannot write %s: %s", path,
                             strerror(errnum));
}

int cmd_config_export(const struct args *args, struct errmsg *reterr) {
    bool secrets = args->given[OPT_SECRETS];
    const char *output = args->given[OPT_OUTPUT] ? args->text[OPT_OUTPUT] : NULL;
    json_t *names, *name, *config, *pools = json_array();
    size_t index;
    if (secrets && output == NULL) {
        json_decref(pools);
        return errmsg_set(reterr, ERR_INVALID,
                          "secrets are not printed; name a file (--output FILE): it will be "
                          "readable for you alone");
    }
    int error = client_wanted_pools(args, &names, reterr);
    if (error != OK) {
        json_decref(pools);
        return error;
    }
    json_array_foreach(names, index, name) {
        error = fetch_pool(args, json_string_value(name), secrets, &config, reterr);
        if (error != OK) {
            break;
        }
        (void)json_array_append_new(pools, config);
    }
    json_t *file = json_pack("{s:i, s:O}", "version", (int)PLAN_VERSION, "pools", pools);
    if (error == OK && output != NULL) {
        error = write_file(output, file, reterr);
    } else if (error == OK) {
        client_print_json(file);
    }
    json_decref(file);
    json_decref(pools);
    json_decref(names);
    return error;
}

/* ---- import ---- */

static int read_file(const char *path, json_t **ret_file, struct errmsg *reterr) {
    json_error_t where;
    FILE *stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (stream == NULL) {
        int errnum = errno;
        return errmsg_set(reterr, error_from_errno(errnum), "cannot read %s: %s", path,
                          strerror(errnum));
    }
    json_t *file = json_loadf(stream, JSON_REJECT_DUPLICATES, &where);
    if (stream != stdin) {
        (void)fclose(stream);
    }
    /* jansson's own text would quote the place, which may be a secret. */
    int error = file == NULL ? errmsg_set(reterr, ERR_INVALID, "%s is not JSON: line %d, column %d",
                                          path, where.line, where.column)
                             : plan_check_file(file, reterr);
    if (error != OK) {
        (void)(file != NULL ? errmsg_prefix(reterr, "not a configuration of holdfast: ") : 0);
        json_decref(file);
        return error;
    }
    *ret_file = file;
    return OK;
}

/* The steps for all pools of the file. */
static int make_plan(const struct args *args, const json_t *file, json_t **ret_steps,
                     struct errmsg *reterr) {
    json_t *steps = json_array(), *wanted, *present;
    size_t index;
    int error = OK;
    json_array_foreach(json_object_get(file, "pools"), index, wanted) {
        error = fetch_pool(args, client_text_of(wanted, "name"), true, &present, reterr);
        if (error != OK) {
            break;
        }
        json_t *more = plan_pool(wanted, present);
        (void)json_array_extend(steps, more);
        json_decref(more);
        json_decref(present);
    }
    if (error != OK) {
        json_decref(steps);
        return error;
    }
    *ret_steps = steps;
    return OK;
}

static bool any(const json_t *steps, const char *key) {
    json_t *step;
    size_t index;
    json_array_foreach((json_t *)steps, index, step) {
        if (json_is_true(json_object_get(step, key))) {
            return true;
        }
    }
    return false;
}

/* One step, told as it is done; what fails does not keep the others. */
static json_t *do_step(const struct args *args, const json_t *step, bool dry, uint32_t *failed) {
    const char *text = client_text_of(step, "text");
    bool problem = json_is_true(json_object_get(step, "problem")), done = false;
    struct errmsg why = {0};
    json_t *answer;
    if (!problem && !dry) {
        done = client_call(args, client_text_of(step, "method"), client_text_of(step, "path"),
                           json_deep_copy(json_object_get(step, "body")), &answer, &why) == OK;
        if (done) {
            json_decref(answer);
        }
    }
    *failed += problem || (!done && !dry);
    if (!args->given[OPT_JSON]) {
        (void)printf("%s%s%s%s\n",
                     problem ? "cannot: "
                     : dry   ? "would "
                     : done  ? "done: "
                             : "failed: ",
                     text, why.text[0] != '\0' ? ": " : "", why.text);
        (void)fflush(stdout);
    }
    json_t *result =
        json_pack("{s:s, s:b, s:b}", "text", text, "problem", (int)problem, "done", (int)done);
    (void)(why.text[0] != '\0' ? json_object_set_new(result, "error", json_string(why.text)) : 0);
    return result;
}

static int do_plan(const struct args *args, const json_t *steps, struct errmsg *reterr) {
    bool dry = args->given[OPT_DRY_RUN];
    json_t *results = json_array(), *step;
    uint32_t failed = 0;
    size_t index;
    if (!dry && any(steps, "takes")) {
        int error = client_confirm(args, "Some hosts lose access to LUNs (--dry-run shows which)",
                                   "yes", reterr);
        if (error != OK) {
            json_decref(results);
            return error;
        }
    }
    json_array_foreach((json_t *)steps, index, step) {
        (void)json_array_append_new(results, do_step(args, step, dry, &failed));
    }
    if (args->given[OPT_JSON] && failed == 0) {
        json_t *object = json_pack("{s:O}", "changes", results);
        client_print_json(object);
        json_decref(object);
    } else if (!args->given[OPT_JSON] && json_array_size(results) == 0) {
        (void)puts("nothing to change");
    }
    json_decref(results);
    return failed == 0 ? OK
                       : errmsg_set(reterr, ERR_INVALID,
                                    "%u of %zu changes %s; holdfast config import --dry-run shows "
                                    "what is left",
                                    failed, json_array_size(steps),
                                    dry ? "cannot be made" : "were not made");
}

int cmd_config_import(const struct args *args, struct errmsg *reterr) {
    json_t *file, *steps;
    int error = read_file(args->operands[0], &file, reterr);
    if (error != OK) {
        return error;
    }
    error = make_plan(args, file, &steps, reterr);
    if (error == OK) {
        error = do_plan(args, steps, reterr);
        json_decref(steps);
    }
    json_decref(file);
    return error;
}
