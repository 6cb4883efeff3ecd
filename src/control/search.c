// SPDX-License-Identifier: MPL-2.0
#include "control/search.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "control/disks.h"
#include "control/schema.h"
#include "format/layout.h"

#define STATE_NAME "served-pools"

enum { STATE_BYTES_MAX = 256 << 10, PATHS_MAX = 4096, FILE_LEAST_BYTES = 1 << 20 };

void path_list_add(struct path_list *list, const char *path) {
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->paths[i], path) == 0) {
            return;
        }
    }
    if (list->count < PATHS_MAX) {
        list->paths = mem_realloc(list->paths, (list->count + 1) * sizeof(list->paths[0]));
        list->paths[list->count++] = mem_strdup(path);
    }
}

void path_list_free(struct path_list *list) {
    for (uint32_t i = 0; i < list->count; i++) {
        mem_free(list->paths[i]);
    }
    mem_free(list->paths);
    *list = (struct path_list){0};
}

void path_list_add_place(struct path_list *list, const char *place) {
    struct dirent **entries;
    struct stat st;
    if (stat(place, &st) != 0 || !S_ISDIR(st.st_mode)) {
        path_list_add(list, place); /* a path that is not there is for the caller to notice */
        return;
    }
    int count = scandir(place, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512];
        int length = snprintf(path, sizeof(path), "%s/%s", place, entries[i]->d_name);
        if (length > 0 && length < 256 && stat(path, &st) == 0 &&
            (S_ISBLK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size >= FILE_LEAST_BYTES))) {
            path_list_add(list, path);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

void path_list_add_json(struct path_list *list, const json_t *paths) {
    for (size_t i = 0; i < json_array_size(paths); i++) {
        path_list_add_place(list, json_string_value(json_array_get(paths, i)));
    }
}

void search_configured(const struct config *config, struct path_list *list) {
    for (uint32_t i = 0; i < config->search.count; i++) {
        path_list_add_place(list, config->search.values[i]);
    }
    if (config->search.count == 0) {
        json_t *paths = disks_paths();
        path_list_add_json(list, paths);
        json_decref(paths);
    }
}

static const struct field pool_fields[] = {
    {"name", FIELD_NAME, true}, {"paths", FIELD_PATHS, true, 0, POOL_DISKS_MAX}, {NULL}};

static json_t *parse(const char *text, size_t length, struct errmsg *reterr) {
    json_t *clean = json_array(), *object = json_loadb(text, length, 0, NULL), *pool;
    size_t index;
    if (!json_is_array(json_object_get(object, "pools"))) {
        (void)errmsg_set(reterr, ERR_CORRUPT,
                         "the record of pools served before (%s) is damaged: import them by hand",
                         STATE_NAME);
    }
    json_array_foreach(json_object_get(object, "pools"), index, pool) {
        struct errmsg why = {0};
        if (schema_check(pool_fields, pool, &why) == OK) {
            (void)json_array_append(clean, pool);
        } else {
            (void)errmsg_set(reterr, ERR_CORRUPT,
                             "the record of pools served before (%s) is damaged, entry %zu: %.300s",
                             STATE_NAME, index + 1, why.text);
        }
    }
    json_decref(object);
    return clean;
}

json_t *search_recall(struct env *env, struct errmsg *reterr) {
    char *text = mem_alloc(STATE_BYTES_MAX);
    size_t length = 0;
    json_t *pools = NULL;
    int error = env_state_read(env, STATE_NAME, text, STATE_BYTES_MAX, &length);
    if (error == OK) {
        pools = parse(text, length, reterr);
    } else if (error != ERR_NOT_FOUND) {
        (void)errmsg_set(reterr, error, "cannot read the record of pools served before (%s): %s",
                         STATE_NAME, error_text(error));
    }
    mem_free(text);
    return pools != NULL ? pools : json_array();
}

int search_remember(struct env *env, const json_t *pools) {
    json_t *object = json_pack("{s:O}", "pools", pools);
    char *text = json_dumps(object, JSON_INDENT(1));
    json_decref(object);
    int error = text == NULL ? ERR_INVALID
                : strlen(text) >= STATE_BYTES_MAX
                    ? ERR_LIMIT
                    : env_state_write(env, STATE_NAME, text, strlen(text));
    free(text);
    return error;
}
