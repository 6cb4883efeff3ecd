// SPDX-License-Identifier: MPL-2.0
/* holdfast volume … */
#include <string.h>

#include "base/size.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/table.h"

static uint64_t uint_of(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* ---- volumes ---- */

static struct table *volume_table(void) {
    static const char *const heads[] = {"VOLUME", ">SIZE", ">ALLOCATED", "PROFILE", ">BLOCK",
                                        "KIND",   "SYNC",  ">EXTENT",    "HEALTH",  NULL};
    return table_new(heads);
}

static void add_volume(struct table *table, const json_t *volume) {
    char name[160];
    (void)snprintf(name, sizeof(name), "%s/%s", client_text_of(volume, "pool"),
                   client_text_of(volume, "name"));
    bool deleting = json_is_true(json_object_get(volume, "deleting"));
    table_text(table, name);
    table_json_size(table, volume, "size_bytes");
    table_json_size(table, volume, "allocated_bytes");
    table_json_text(table, volume, "profile");
    table_json_number(table, volume, "block_bytes");
    table_text(table, deleting                                         ? "being deleted"
                      : json_is_true(json_object_get(volume, "thick")) ? "thick"
                                                                       : "thin");
    table_text(table, json_is_true(json_object_get(volume, "sync_always")) ? "always" : "standard");
    uint64_t extents = uint_of(volume, "extents_per_gib");
    char text[48];
    size_format(extents == 0 ? 0 : (1ull << 30) / extents, text, sizeof(text));
    table_text(table, extents == 0 ? "-" : text);
    const char *health = client_text_of(volume, "health");
    if (uint_of(volume, "lost_bytes") > 0 && strcmp(health, "ok") == 0) {
        health = "data lost";
    }
    bool moves = json_object_get(volume, "profile_former") != NULL;
    if (moves || json_is_true(json_object_get(volume, "reordering"))) {
        (void)snprintf(text, sizeof(text), "%s, %s%s: %u %%", health,
                       moves ? "moving from " : "reordering",
                       moves ? client_text_of(volume, "profile_former") : "",
                       (unsigned)uint_of(volume, "moved_pct"));
        health = text;
    }
    table_text(table, health);
}

static int show_volume(const struct args *args, json_t *volume) {
    if (args->given[OPT_JSON]) {
        client_print_json(volume);
    } else {
        struct table *table = volume_table();
        add_volume(table, volume);
        table_print(table, "");
    }
    json_decref(volume);
    return OK;
}

int cmd_volume_create(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[128];
    int error = client_split(args->operands[0], "VOLUME", pool, name, reterr);
    if (error != OK) {
        return error;
    }
    if (!args->given[OPT_SIZE]) {
        return errmsg_set(reterr, ERR_INVALID, "--size is missing: how large is the volume to be?");
    }
    if (args->given[OPT_SYNC] && strcmp(args->text[OPT_SYNC], "always") != 0 &&
        strcmp(args->text[OPT_SYNC], "standard") != 0) {
        return errmsg_set(reterr, ERR_INVALID, "--sync must be always or standard");
    }
    json_t *body =
        json_pack("{s:s, s:I}", "name", name, "size_bytes", (json_int_t)args->number[OPT_SIZE]);
    if (args->given[OPT_PROFILE]) {
        (void)json_object_set_new(body, "profile", json_string(args->text[OPT_PROFILE]));
    }
    if (args->given[OPT_BLOCK_SIZE]) {
        (void)json_object_set_new(body, "block_bytes",
                                  json_integer((json_int_t)args->number[OPT_BLOCK_SIZE]));
    }
    if (args->given[OPT_THICK]) {
        (void)json_object_set_new(body, "thick", json_true());
    }
    if (args->given[OPT_SYNC] && strcmp(args->text[OPT_SYNC], "standard") == 0) {
        (void)json_object_set_new(body, "sync_standard", json_true());
    }
    json_t *answer;
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes", pool);
    error = client_call(args, "POST", path, body, &answer, reterr);
    return error == OK ? show_volume(args, answer) : error;
}

int cmd_volume_list(const struct args *args, struct errmsg *reterr) {
    static const struct client_listing listing = {
        "volumes", "volumes", volume_table, add_volume,
        "no volumes (holdfast volume create POOL/VOLUME --size SIZE makes one)"};
    return client_list(args, &listing, reterr);
}

int cmd_volume_resize(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[200];
    json_t *answer;
    int error = client_split(args->operands[0], "VOLUME", pool, name, reterr);
    if (error == OK && !args->given[OPT_SIZE]) {
        error = errmsg_set(reterr, ERR_INVALID, "--size is missing: the size it is to have");
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes/%s", pool, name);
        error = client_call(args, "PATCH", path,
                            json_pack("{s:I}", "size_bytes", (json_int_t)args->number[OPT_SIZE]),
                            &answer, reterr);
    }
    return error == OK ? show_volume(args, answer) : error;
}

int cmd_volume_delete(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[200], loss[300], size[24];
    json_t *answer;
    int error = client_split(args->operands[0], "VOLUME", pool, name, reterr);
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes/%s", pool, name);
        error = client_call(args, "GET", path, NULL, &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    size_format(uint_of(answer, "allocated_bytes"), size, sizeof(size));
    json_decref(answer);
    (void)snprintf(loss, sizeof(loss), "Everything in volume %s/%s will be lost: %s", pool, name,
                   size);
    error = client_confirm(args, loss, name, reterr);
    if (error == OK) {
        error = client_call(args, "DELETE", path, NULL, &answer, reterr);
    }
    return error == OK ? client_print_deleted(args, answer, args->operands[0]) : error;
}

static void print_change(const json_t *c) {
    static const struct {
        const char *key, *text;
    } lines[] = {{"raw_before_bytes", "the volume takes, of all disks"},
                 {"raw_after_bytes", "it will take"},
                 {"free_before_bytes", "free for volumes of the new profile"},
                 {"free_meanwhile_bytes", "while it moves"},
                 {"free_after_bytes", "when it has moved"}};
    printf("from %s to %s%s\n", client_text_of(c, "from"), client_text_of(c, "to"),
           json_is_true(json_object_get(c, "dry_run")) ? " (nothing was changed)" : "");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char size[24];
        size_format(uint_of(c, lines[i].key), size, sizeof(size));
        printf("  %-40s %s\n", lines[i].text, size);
    }
}

int cmd_volume_set(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[200];
    json_t *answer;
    int error = client_split(args->operands[0], "VOLUME", pool, name, reterr);
    if (error == OK && !args->given[OPT_PROFILE]) {
        error = errmsg_set(reterr, ERR_INVALID, "--profile is missing: the one it is to have");
    }
    if (error == OK) {
        json_t *body = json_pack("{s:s, s:b}", "profile", args->text[OPT_PROFILE], "dry_run",
                                 (int)args->given[OPT_DRY_RUN]);
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes/%s/profile", pool, name);
        error = client_call(args, "POST", path, body, &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        print_change(answer);
    }
    json_decref(answer);
    return OK;
}

int cmd_volume_reorder(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[200];
    json_t *answer;
    int error = client_split(args->operands[0], "VOLUME", pool, name, reterr);
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes/%s/reorder", pool, name);
        error =
            client_call(args, "POST", path, json_pack("{s:b}", "stop", (int)args->given[OPT_STOP]),
                        &answer, reterr);
    }
    return error == OK ? show_volume(args, answer) : error;
}
