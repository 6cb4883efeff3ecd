// SPDX-License-Identifier: MPL-2.0
/* holdfast disk add, remove, replace, spare, return, locate. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/size.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "control/schema.h"

extern char **environ;

static uint64_t uint_of(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* POOL/DISK: behind the first slash a number, a path, the last part of it, or a uuid. */
static int split(const char *operand, char ret_pool[64], const char **ret_disk,
                 struct errmsg *reterr) {
    const char *slash = strchr(operand, '/');
    char pool[64] = "";
    if (slash != NULL && slash - operand < (long)sizeof(pool)) {
        memcpy(pool, operand, (size_t)(slash - operand));
    }
    if (slash == NULL || slash[1] == '\0' || !schema_name_is_valid(pool)) {
        return errmsg_set(
            reterr, ERR_INVALID,
            "\"%.130s\" is not of the form POOL/DISK, the disk by its number, path or "
            "uuid",
            operand);
    }
    memcpy(ret_pool, pool, sizeof(pool));
    *ret_disk = slash + 1;
    return OK;
}

static json_t *paths_of(const char *path) {
    struct args one = {.list[OPT_DISK] = {1, {path}}};
    return client_paths(&one, OPT_DISK);
}

static void set_flags(json_t *body, const struct args *args) {
    if (args->given[OPT_FORCE]) {
        (void)json_object_set_new(body, "force", json_true());
    }
    if (args->given[OPT_DRY_RUN]) {
        (void)json_object_set_new(body, "dry_run", json_true());
    }
}

/* ---- what it does to the room there is ---- */

static void print_change(const json_t *answer, const char *done) {
    char before[24], after[24], used[24], moves[24];
    size_format(uint_of(answer, "usable_before_bytes"), before, sizeof(before));
    size_format(uint_of(answer, "usable_after_bytes"), after, sizeof(after));
    size_format(uint_of(answer, "used_bytes"), used, sizeof(used));
    size_format(uint_of(answer, "move_bytes"), moves, sizeof(moves));
    bool dry = json_is_true(json_object_get(answer, "dry_run"));
    (void)printf("%s%s\n", dry ? "would be: " : "", done);
    (void)printf("  usable now    %s\n  usable then   %s\n  used          %s\n", before, after,
                 used);
    if (uint_of(answer, "move_bytes") > 0) {
        (void)printf("  to be moved   %s, in the background (holdfast pool status)\n", moves);
    }
    if (uint_of(answer, "lost_bytes") > 0) {
        char lost[24];
        size_format(uint_of(answer, "lost_bytes"), lost, sizeof(lost));
        (void)printf("  lost          %s\n", lost);
    }
    if (json_is_false(json_object_get(answer, "protected"))) {
        (void)printf("  too few disks for the profile of some volume: less protection\n");
    }
}

static int call(const struct args *args, const char *pool, const char *what, json_t *body,
                const char *done, struct errmsg *reterr) {
    char path[160];
    json_t *answer;
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/disks%s", pool, what);
    int error = client_call(args, "POST", path, body, &answer, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else if (done != NULL) {
        print_change(answer, done);
    }
    json_decref(answer);
    return OK;
}

/* ---- verbs ---- */

static int confirm_force(const struct args *args, const char *word, struct errmsg *reterr) {
    return args->given[OPT_FORCE] && !args->given[OPT_DRY_RUN]
               ? client_confirm(args, "Everything on the disk given will be lost", word, reterr)
               : OK;
}

static int add(const struct args *args, bool spare, struct errmsg *reterr) {
    char pool[64];
    int error = client_pool_name(args->operands[0], pool, reterr);
    if (error == OK) {
        error = confirm_force(args, pool, reterr);
    }
    if (error != OK) {
        return error;
    }
    json_t *body = json_pack("{s:o}", "paths", paths_of(args->operands[1]));
    if (spare) {
        (void)json_object_set_new(body, "spare", json_true());
    }
    set_flags(body, args);
    return call(args, pool, "", body, spare ? "added as a spare" : "added", reterr);
}

int cmd_disk_add(const struct args *args, struct errmsg *reterr) {
    return add(args, false, reterr);
}

int cmd_disk_spare(const struct args *args, struct errmsg *reterr) {
    return add(args, true, reterr);
}

int cmd_disk_replace(const struct args *args, struct errmsg *reterr) {
    char pool[64];
    const char *disk = "";
    int error = split(args->operands[0], pool, &disk, reterr);
    if (error == OK) {
        error = confirm_force(args, pool, reterr);
    }
    if (error != OK) {
        return error;
    }
    json_t *body = json_pack("{s:o, s:s}", "paths", paths_of(args->operands[1]), "disk", disk);
    set_flags(body, args);
    return call(args, pool, "/replace", body, "added; the old disk leaves when it is empty",
                reterr);
}

/* What it would do is asked for first, so that a person can be told what will be lost. */
static int confirm_remove(const struct args *args, const char *pool, const char *disk,
                          struct errmsg *reterr) {
    char path[160], loss[256], lost[24];
    json_t *answer;
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/disks/remove", pool);
    json_t *body = json_pack("{s:s, s:b, s:b}", "disk", disk, "dry_run", 1, "force",
                             (int)args->given[OPT_FORCE]);
    int error = client_call(args, "POST", path, body, &answer, reterr);
    if (error != OK) {
        return error;
    }
    size_format(uint_of(answer, "lost_bytes"), lost, sizeof(lost));
    bool loses = uint_of(answer, "lost_bytes") > 0;
    bool weakens = json_is_false(json_object_get(answer, "protected"));
    json_decref(answer);
    if (!loses && !weakens) {
        return OK;
    }
    (void)snprintf(loss, sizeof(loss),
                   loses ? "%s of data that only disk %.60s of pool %s holds will be lost for good"
                         : "%sVolumes will have less protection without disk %.60s of pool %s",
                   loses ? lost : "", disk, pool);
    return client_confirm(args, loss, pool, reterr);
}

int cmd_disk_remove(const struct args *args, struct errmsg *reterr) {
    char pool[64];
    const char *disk = "";
    int error = split(args->operands[0], pool, &disk, reterr);
    if (error == OK && args->given[OPT_CANCEL]) {
        error = call(args, pool, "/keep", json_pack("{s:s}", "disk", disk), NULL, reterr);
        if (error == OK && !args->given[OPT_JSON]) {
            (void)printf("kept %s\n", disk);
        }
        return error;
    }
    if (error == OK && !args->given[OPT_DRY_RUN]) {
        error = confirm_remove(args, pool, disk, reterr);
    }
    if (error != OK) {
        return error;
    }
    json_t *body = json_pack("{s:s}", "disk", disk);
    set_flags(body, args);
    return call(args, pool, "/remove", body, "being removed", reterr);
}

int cmd_disk_return(const struct args *args, struct errmsg *reterr) {
    char pool[64];
    const char *disk = "";
    int error = split(args->operands[0], pool, &disk, reterr);
    if (error != OK) {
        return error;
    }
    json_t *body = json_pack("{s:s}", "disk", disk);
    if (args->operands[1] != NULL) {
        (void)json_object_set_new(body, "paths", paths_of(args->operands[1]));
    }
    error = call(args, pool, "/return", body, NULL, reterr);
    if (error == OK && !args->given[OPT_JSON]) {
        (void)printf("taken back %s\n", disk);
    }
    return error;
}

/* ---- locate ---- */

/* 0, or the error of the start; -1: it ran and failed. */
static int run_ledctl(const char *device, bool on) {
    char argument[300];
    (void)snprintf(argument, sizeof(argument), "%s=%s", on ? "locate" : "locate_off", device);
    char program[] = "ledctl";
    char *const argv[] = {program, argument, NULL};
    pid_t pid;
    int status, error = posix_spawnp(&pid, program, NULL, NULL, argv, environ);
    if (error != 0) {
        return error;
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0
                                                                                            : -1;
}

static const json_t *find_listed(const json_t *list, const char *path) {
    json_t *disk;
    size_t index;
    json_array_foreach(list, index, disk) {
        if (strcmp(client_text_of(disk, "path"), path) == 0) {
            return disk;
        }
    }
    return NULL;
}

/* The path of POOL/DISK. */
static int member_path(const struct args *args, const char *operand, char *ret_path, size_t room,
                       struct errmsg *reterr) {
    char pool[64], url[128];
    const char *name;
    json_t *answer, *disk;
    size_t index;
    int error = split(operand, pool, &name, reterr);
    if (error != OK) {
        return error;
    }
    (void)snprintf(url, sizeof(url), "/v1/pools/%s", pool);
    error = client_call(args, "GET", url, NULL, &answer, reterr);
    if (error != OK) {
        return error;
    }
    ret_path[0] = '\0';
    json_array_foreach(json_object_get(answer, "disks"), index, disk) {
        char number[16];
        const char *path = client_text_of(disk, "path"), *base = strrchr(path, '/');
        (void)snprintf(number, sizeof(number), "%u", (unsigned)uint_of(disk, "member"));
        if (strcmp(name, number) == 0 || strcmp(name, path) == 0 ||
            strcmp(name, client_text_of(disk, "uuid")) == 0 ||
            (base != NULL && strcmp(name, base + 1) == 0)) {
            (void)snprintf(ret_path, room, "%s", path);
        }
    }
    json_decref(answer);
    return ret_path[0] != '\0'
               ? OK
               : errmsg_set(reterr, ERR_NOT_FOUND, "pool %s has no disk \"%.100s\"", pool, name);
}

static void say_how(const json_t *disk, const char *path, int error) {
    (void)printf("%s\n", path);
    if (disk == NULL) {
        (void)printf("  a file, or a disk that this host does not see now: it was last there\n");
        return;
    }
    (void)printf("  model   %s\n  serial  %s\n  wwn     %s\n", client_text_of(disk, "model"),
                 client_text_of(disk, "serial"), client_text_of(disk, "wwn"));
    if (error == ENOENT) {
        (void)printf("  its light cannot be switched: ledctl is not installed (package ledmon).\n");
    } else if (error != 0) {
        (void)printf("  its light cannot be switched: ledctl does not know its enclosure.\n");
    }
    if (error != 0) {
        (void)printf("  The serial number is on its label; reading it makes its activity light "
                     "shine:\n  dd if=%s of=/dev/null bs=1M iflag=direct\n",
                     path);
    }
}

int cmd_disk_locate(const struct args *args, struct errmsg *reterr) {
    char path[300];
    json_t *answer;
    int error = OK;
    if (args->operands[0][0] == '/') {
        (void)snprintf(path, sizeof(path), "%s", args->operands[0]);
    } else {
        error = member_path(args, args->operands[0], path, sizeof(path), reterr);
    }
    if (error == OK) {
        error = client_call(args, "GET", "/v1/disks", NULL, &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    const json_t *disk = find_listed(json_object_get(answer, "disks"), path);
    int failed = disk == NULL ? 0 : run_ledctl(path, !args->given[OPT_OFF]);
    if (disk != NULL && failed == 0) {
        (void)printf("%s: its light is %s\n", path,
                     args->given[OPT_OFF] ? "off" : "on; --off switches it off");
    }
    say_how(disk, path, failed);
    json_decref(answer);
    return OK;
}
