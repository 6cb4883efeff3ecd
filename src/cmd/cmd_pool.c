// SPDX-License-Identifier: MPL-2.0
/* holdfast pool … */
#include <string.h>
#include <time.h>

#include "base/size.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/table.h"

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static uint64_t uint_of(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void print_size_line(const char *what, uint64_t bytes) {
    char size[24];
    size_format(bytes, size, sizeof(size));
    (void)printf("  %-9s %s\n", what, size);
}

static void print_disks(const json_t *disks) {
    static const char *const heads[] = {"DISK",      "STATE",      ">SIZE",     ">USED",
                                        ">READ ERR", ">WRITE ERR", ">CHECKSUM", ">REPAIRED",
                                        "PROBLEM",   NULL};
    struct table *table = table_new(heads);
    json_t *disk;
    size_t index;
    json_array_foreach(disks, index, disk) {
        const json_t *errors = json_object_get(disk, "errors");
        bool absent = json_is_false(json_object_get(disk, "present"));
        table_json_text(table, disk, "path");
        const char *role = text_of(disk, "role");
        bool plain = absent || strcmp(role, "normal") == 0 || role[0] == '\0';
        table_text(table, absent ? "absent" : plain ? text_of(disk, "state") : role);
        table_json_size(table, disk, "size_bytes");
        table_json_size(table, disk, "used_bytes");
        table_number(table, uint_of(errors, "read") + uint_of(errors, "timeout"));
        table_number(table, uint_of(errors, "write") + uint_of(errors, "flush"));
        table_json_number(table, errors, "checksum");
        table_json_number(table, errors, "repaired");
        table_json_text(table, disk, "problem");
    }
    table_print(table, "  no disks");
}

static void print_events(const json_t *disks) {
    json_t *disk, *event;
    size_t i, k;
    bool any = false;
    json_array_foreach(disks, i, disk) {
        json_array_foreach(json_object_get(disk, "events"), k, event) {
            time_t at = (time_t)(uint_of(event, "at_unix_ns") / 1000000000u);
            struct tm tm;
            char when[32] = "";
            if (localtime_r(&at, &tm) != NULL) {
                (void)strftime(when, sizeof(when), "%F %T", &tm);
            }
            (void)printf("%s%s  %s  %s: %s\n", any ? "" : "\nLast errors\n", when,
                         text_of(disk, "path"), text_of(event, "kind"), text_of(event, "text"));
            any = true;
        }
    }
}

static void print_ranges(const char *what, const json_t *ranges) {
    json_t *range;
    size_t i;
    json_array_foreach(ranges, i, range) {
        const char *volume = text_of(range, "volume"), *disk = text_of(range, "disk");
        if (volume[0] == '\0') {
            (void)printf("    %s: parity or metadata%s%s\n", what, disk[0] != '\0' ? " on " : "",
                         disk);
            continue;
        }
        (void)printf("    %s: %s, %llu bytes from %llu on%s%s\n", what, volume,
                     (unsigned long long)uint_of(range, "length_bytes"),
                     (unsigned long long)uint_of(range, "offset_bytes"),
                     disk[0] != '\0' ? ", on " : "", disk);
    }
}

static void print_scrub(const json_t *scrub) {
    unsigned long long wrong = uint_of(scrub, "wrong_blocks"), lost = uint_of(scrub, "lost_blocks");
    time_t at = (time_t)uint_of(scrub, "started_unix");
    struct tm tm;
    char when[32] = "";
    if (at != 0 && localtime_r(&at, &tm) != NULL) {
        (void)strftime(when, sizeof(when), "%F %T", &tm);
    }
    if (json_is_true(json_object_get(scrub, "running"))) {
        (void)printf("\nScrub: %u %% done, about %llu minutes to go",
                     (unsigned)uint_of(scrub, "percent"),
                     (unsigned long long)uint_of(scrub, "remaining_seconds") / 60 + 1);
    } else if (when[0] != '\0') {
        (void)printf("\nLast scrub: %s", when);
    } else if (json_array_size(json_object_get(scrub, "lost")) == 0) {
        return;
    } else {
        (void)printf("\nLost beyond redundancy");
    }
    (void)printf("; %llu blocks were wrong, %llu repaired, %llu lost\n", wrong,
                 (unsigned long long)uint_of(scrub, "repaired_blocks"), lost);
    unsigned long long skipped = uint_of(scrub, "skipped_columns");
    unsigned long long unread = uint_of(scrub, "lost_headers") + uint_of(scrub, "lost_metadata");
    if (skipped > 0) {
        (void)printf("  NOT looked at: %llu columns, on disks that are missing or did not answer\n",
                     skipped);
    }
    if (unread > 0) {
        (void)printf("  NOT readable on any disk: %llu row headers or pieces of metadata\n",
                     unread);
    }
    print_ranges("repaired", json_object_get(scrub, "touched"));
    print_ranges("LOST", json_object_get(scrub, "lost"));
}

/* How far it is, and what it waits for. */
static void print_rebuild(const json_t *rebuild) {
    uint64_t left = uint_of(rebuild, "left_bytes"), rate = uint_of(rebuild, "bytes_per_second");
    uint64_t seconds = uint_of(rebuild, "seconds_left"), grace = uint_of(rebuild, "grace_seconds");
    char size[24], done[24], speed[24];
    if (left == 0) {
        return;
    }
    size_format(left, size, sizeof(size));
    size_format(uint_of(rebuild, "done_bytes"), done, sizeof(done));
    size_format(rate, speed, sizeof(speed));
    (void)printf("  %-9s %s left, %s done", "rebuild", size, done);
    if (json_is_true(json_object_get(rebuild, "waiting")) && grace > 0) {
        (void)printf("; begins in %u min, if the disk does not come back",
                     (unsigned)(grace / 60 + 1));
    } else if (rate > 0) {
        (void)printf(", %s/s, about %u min", speed, (unsigned)(seconds / 60 + 1));
    }
    (void)puts("");
}

static void print_status(const json_t *pool) {
    const char *advice = text_of(pool, "advice");
    (void)printf("%s: %s%s%s\n", text_of(pool, "name"), text_of(pool, "health"),
                 advice[0] != '\0' ? ". " : "", advice);
    if (json_is_true(json_object_get(pool, "stale"))) {
        (void)printf("  (as of %u s ago)\n", (unsigned)(uint_of(pool, "age_ms") / 1000));
    }
    if (json_object_get(pool, "disks") == NULL) {
        return;
    }
    print_size_line("usable", uint_of(pool, "usable_bytes"));
    print_size_line("used", uint_of(pool, "used_bytes"));
    print_size_line("free", uint_of(pool, "free_bytes"));
    unsigned volumes = (unsigned)uint_of(pool, "volume_count");
    unsigned luns = (unsigned)uint_of(pool, "lun_count");
    print_rebuild(json_object_get(pool, "rebuild"));
    (void)printf("  %-9s %u volume%s, %u LUN%s\n\n", "holds", volumes, volumes == 1 ? "" : "s",
                 luns, luns == 1 ? "" : "s");
    print_disks(json_object_get(pool, "disks"));
    print_scrub(json_object_get(pool, "scrub"));
    print_events(json_object_get(pool, "disks"));
}

static int show_pool(const struct args *args, json_t *answer) {
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        print_status(answer);
    }
    json_decref(answer);
    return OK;
}

int cmd_pool_create(const struct args *args, struct errmsg *reterr) {
    char name[64];
    int error = client_pool_name(args->operands[0], name, reterr);
    if (error != OK) {
        return error;
    }
    if (!args->given[OPT_DISK] && !args->given[OPT_FILE]) {
        return errmsg_set(reterr, ERR_INVALID,
                          "give the pool's disks (--disk /dev/sdb /dev/sdc …) "
                          "or files (--file a b … --file-size 10G)");
    }
    if (args->given[OPT_FORCE]) {
        error = client_confirm(args, "Everything on the disks given will be lost", name, reterr);
        if (error != OK) {
            return error;
        }
    }
    json_t *body = json_pack("{s:s}", "name", name);
    if (args->given[OPT_DISK]) {
        (void)json_object_set_new(body, "disks", client_paths(args, OPT_DISK));
    }
    if (args->given[OPT_FILE]) {
        (void)json_object_set_new(body, "files", client_paths(args, OPT_FILE));
    }
    if (args->given[OPT_FILE_SIZE]) {
        (void)json_object_set_new(body, "file_size_bytes",
                                  json_integer((json_int_t)args->number[OPT_FILE_SIZE]));
    }
    if (args->given[OPT_FORCE]) {
        (void)json_object_set_new(body, "force", json_true());
    }
    json_t *answer;
    error = client_call(args, "POST", "/v1/pools", body, &answer, reterr);
    return error == OK ? show_pool(args, answer) : error;
}

/* ---- import ---- */

static void append_import_state(const json_t *pool, char *ret_text, size_t bytes) {
    const char *problem = text_of(pool, "problem"), *missing = text_of(pool, "missing");
    (void)snprintf(ret_text, bytes, "%s%s%s%s",
                   problem[0] != '\0'                                ? problem
                   : json_is_true(json_object_get(pool, "exported")) ? "exported"
                                                                     : "not exported",
                   missing[0] != '\0' ? "; missing: " : "", missing, "");
}

static int list_importable(const struct args *args, struct errmsg *reterr) {
    static const char *const heads[] = {"POOL",   "LAST USED BY", "LAST USED",
                                        ">DISKS", "STATE",        NULL};
    json_t *body =
        args->given[OPT_DISK] ? json_pack("{s:o}", "paths", client_paths(args, OPT_DISK)) : NULL;
    json_t *answer, *pool;
    size_t index;
    int error =
        client_call(args, body != NULL ? "POST" : "GET", "/v1/importable", body, &answer, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
        json_decref(answer);
        return OK;
    }
    struct table *table = table_new(heads);
    json_array_foreach(json_object_get(answer, "pools"), index, pool) {
        char disks[48], state[1024], when[32] = "-";
        time_t at = (time_t)(uint_of(pool, "last_used_unix_ns") / 1000000000u);
        struct tm tm;
        if (localtime_r(&at, &tm) != NULL) {
            (void)strftime(when, sizeof(when), "%F %T", &tm);
        }
        (void)snprintf(disks, sizeof(disks), "%u of %u", (unsigned)uint_of(pool, "present"),
                       (unsigned)uint_of(pool, "members"));
        append_import_state(pool, state, sizeof(state));
        table_json_text(table, pool, "name");
        table_json_text(table, pool, "host");
        table_text(table, when);
        table_text(table, disks);
        table_text(table, state);
    }
    char empty[160];
    (void)snprintf(empty, sizeof(empty),
                   "nothing to import (%u paths looked at; --disk PATH… looks elsewhere)",
                   (unsigned)uint_of(answer, "looked_at"));
    table_print(table, empty);
    json_decref(answer);
    return OK;
}

static const char *force_loss(const struct args *args) {
    return args->given[OPT_FORCE_DATA_LOSS] ? "Writes that were acknowledged will be lost for good"
           : args->given[OPT_FORCE_QUORUM]
               ? "Disks that are missing now will be shut out of the pool; what only they know is "
                 "lost"
               : "If another host still uses this pool, its data will be destroyed";
}

int cmd_pool_import(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128];
    if (args->operands[0] == NULL) {
        return list_importable(args, reterr);
    }
    int error = client_pool_name(args->operands[0], name, reterr);
    bool forced = args->given[OPT_FORCE_QUORUM] || args->given[OPT_FORCE_HOST] ||
                  args->given[OPT_FORCE_DATA_LOSS];
    if (error == OK && forced) {
        error = client_confirm(args, force_loss(args), name, reterr);
    }
    if (error != OK) {
        return error;
    }
    json_t *body = json_object();
    if (args->given[OPT_DISK]) {
        (void)json_object_set_new(body, "paths", client_paths(args, OPT_DISK));
    }
    if (args->given[OPT_FORCE_QUORUM]) {
        (void)json_object_set_new(body, "force_quorum", json_true());
    }
    if (args->given[OPT_FORCE_HOST]) {
        (void)json_object_set_new(body, "force_host", json_true());
    }
    if (args->given[OPT_FORCE_DATA_LOSS]) {
        (void)json_object_set_new(body, "force_data_loss", json_true());
    }
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/import", name);
    json_t *answer;
    error = client_call(args, "POST", path, body, &answer, reterr);
    return error == OK ? show_pool(args, answer) : error;
}

/* ---- export, destroy ---- */

static int finish(const struct args *args, json_t *answer, const char *what, const char *name) {
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        (void)printf("%s %s\n", what, name);
    }
    json_decref(answer);
    return OK;
}

int cmd_pool_export(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128];
    json_t *answer;
    int error = client_pool_name(args->operands[0], name, reterr);
    if (error == OK) {
        error = client_confirm(args, "The pool's LUNs disappear for the initiators that use them",
                               name, reterr);
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/export", name);
        error = client_call(args, "POST", path, NULL, &answer, reterr);
    }
    return error == OK ? finish(args, answer, "exported", name) : error;
}

int cmd_pool_scrub(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128];
    json_t *answer, *body = json_object();
    int error = client_pool_name(args->operands[0], name, reterr);
    if (args->given[OPT_STOP]) {
        (void)json_object_set_new(body, "stop", json_true());
    } else if (args->given[OPT_EVERY]) {
        (void)json_object_set_new(body, "every_days",
                                  json_integer((json_int_t)args->number[OPT_EVERY]));
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/scrub", name);
        error = client_call(args, "POST", path, body, &answer, reterr);
    }
    json_decref(body);
    return error == OK ? show_pool(args, answer) : error;
}

int cmd_pool_destroy(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128], loss[256];
    json_t *answer;
    int error = client_pool_name(args->operands[0], name, reterr);
    if (error != OK) {
        return error;
    }
    (void)snprintf(path, sizeof(path), "/v1/pools/%s", name);
    error = client_call(args, "GET", path, NULL, &answer, reterr);
    if (error != OK) {
        return error;
    }
    char size[24];
    size_format(uint_of(answer, "used_bytes"), size, sizeof(size));
    (void)snprintf(loss, sizeof(loss),
                   "Everything in pool %s will be lost: %u volumes, %u LUNs, %s of data", name,
                   (unsigned)uint_of(answer, "volume_count"),
                   (unsigned)uint_of(answer, "lun_count"), size);
    json_decref(answer);
    error = client_confirm(args, loss, name, reterr);
    if (error == OK) {
        error =
            client_call(args, "DELETE", path, json_pack("{s:s}", "confirm", name), &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    json_t *left;
    size_t index;
    json_array_foreach(json_object_get(answer, "not_erased"), index, left) {
        (void)fprintf(stderr, "holdfast: not erased: %s\n", text_of(left, "message"));
    }
    return finish(args, answer, "destroyed", name);
}

/* ---- status, list ---- */

int cmd_pool_list(const struct args *args, struct errmsg *reterr) {
    static const char *const heads[] = {"POOL",   "HEALTH",   ">USABLE", ">USED",  ">FREE",
                                        ">DISKS", ">VOLUMES", ">LUNS",   "ADVICE", NULL};
    json_t *answer, *pool;
    size_t index;
    int error = client_call(args, "GET", "/v1/pools", NULL, &answer, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
        json_decref(answer);
        return OK;
    }
    struct table *table = table_new(heads);
    json_array_foreach(json_object_get(answer, "pools"), index, pool) {
        table_json_text(table, pool, "name");
        table_json_text(table, pool, "health");
        table_json_size(table, pool, "usable_bytes");
        table_json_size(table, pool, "used_bytes");
        table_json_size(table, pool, "free_bytes");
        table_json_number(table, pool, "disk_count");
        table_json_number(table, pool, "volume_count");
        table_json_number(table, pool, "lun_count");
        table_json_text(table, pool, "advice");
    }
    table_print(table, "no pools (holdfast pool create makes one, holdfast pool import finds one)");
    json_decref(answer);
    return OK;
}

int cmd_pool_status(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128];
    json_t *answer;
    int error;
    if (args->operands[0] != NULL) {
        error = client_pool_name(args->operands[0], name, reterr);
        if (error == OK) {
            (void)snprintf(path, sizeof(path), "/v1/pools/%s", name);
            error = client_call(args, "GET", path, NULL, &answer, reterr);
        }
        return error == OK ? show_pool(args, answer) : error;
    }
    json_t *list, *pool, *all = json_array();
    size_t index;
    error = client_call(args, "GET", "/v1/pools", NULL, &list, reterr);
    if (error != OK) {
        json_decref(all);
        return error;
    }
    json_array_foreach(json_object_get(list, "pools"), index, pool) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s", text_of(pool, "name"));
        if (client_call(args, "GET", path, NULL, &answer, NULL) == OK) {
            (void)json_array_append_new(all, answer); /* else it went in between */
        }
    }
    json_decref(list);
    if (args->given[OPT_JSON]) {
        json_t *object = json_pack("{s:O}", "pools", all);
        client_print_json(object);
        json_decref(object);
    } else if (json_array_size(all) == 0) {
        (void)puts("no pools (holdfast pool create makes one, holdfast pool import finds one)");
    } else {
        json_array_foreach(all, index, pool) {
            (void)printf("%s", index > 0 ? "\n" : "");
            print_status(pool);
        }
    }
    json_decref(all);
    return OK;
}
