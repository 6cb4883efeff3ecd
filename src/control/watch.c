// SPDX-License-Identifier: MPL-2.0
#include "control/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/layout.h"

struct watch {
    struct env *env;
    uint32_t count;
    struct watched {
        struct env_disk *disk;
        char path[256];
        char problem[160];
    } watched[POOL_DISKS_MAX];
};

struct watch *watch_new(struct env *env) {
    struct watch *watch = MEM_NEW(struct watch);
    watch->env = env;
    return watch;
}

void watch_free(struct watch *watch) {
    for (uint32_t i = 0; watch != NULL && i < watch->count; i++) {
        if (watch->watched[i].disk != NULL) {
            env_disk_close(watch->watched[i].disk);
        }
    }
    mem_free(watch);
}

static void note(struct watched *watched, const struct errmsg *why) {
    (void)snprintf(watched->problem, sizeof(watched->problem), "%.*s",
                   (int)sizeof(watched->problem) - 1,
                   why->text[0] != '\0' ? why->text : "what its path names is gone");
}

void watch_add(struct watch *watch, const char *path) {
    if (watch->count == POOL_DISKS_MAX || strncmp(path, "mem:", 4) == 0) {
        return; /* memory has no path that could be lost */
    }
    struct watched *watched = &watch->watched[watch->count++];
    (void)snprintf(watched->path, sizeof(watched->path), "%s", path);
    const struct env_disk_options options = {.read_only = true};
    struct errmsg why = {0};
    if (env_disk_open(watch->env, path, &options, &watched->disk, &why) != OK) {
        note(watched, &why);
    }
}

void watch_probe(struct watch *watch) {
    for (uint32_t i = 0; i < watch->count; i++) {
        struct watched *watched = &watch->watched[i];
        struct errmsg why = {0};
        if (watched->disk == NULL) {
            continue; /* it could not be opened, which has been said */
        }
        if (env_disk_probe(watched->disk, &why) == OK) {
            watched->problem[0] = '\0';
        } else {
            note(watched, &why);
        }
    }
}

void watch_problem(const struct watch *watch, const char *path, char *ret_text, size_t text_bytes) {
    ret_text[0] = '\0';
    for (uint32_t i = 0; watch != NULL && i < watch->count; i++) {
        if (strcmp(watch->watched[i].path, path) == 0) {
            (void)snprintf(ret_text, text_bytes, "%s", watch->watched[i].problem);
        }
    }
}
