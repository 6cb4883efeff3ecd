// SPDX-License-Identifier: MPL-2.0
/* Lists of disks as people write them. The disks are those of env/sim/models.c with a data sheet.
 */
#include "bench/disks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

const struct sim_model *bench_disk_at(uint32_t index) {
    const struct sim_model *model;
    for (uint32_t i = 0; (model = sim_model_at(i)) != NULL; i++) {
        if (model->source != NULL && index-- == 0) {
            return model;
        }
    }
    return NULL;
}

const struct sim_model *bench_disk_find(const char *name) {
    const struct sim_model *model = sim_model_find(name);
    return model != NULL && model->source != NULL ? model : NULL;
}

static int unknown(const char *text, size_t bytes, struct errmsg *reterr) {
    char names[256] = "";
    for (uint32_t i = 0; bench_disk_at(i) != NULL; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                       bench_disk_at(i)->name);
    }
    return errmsg_set(reterr, ERR_INVALID,
                      "\"%.*s\" is not a disk that can be modelled; write for instance \"6x "
                      "hdd-7200-2tb\", there are %s",
                      (int)MIN(bytes, (size_t)60), text, names);
}

/* One "6x name" at text[0..bytes); blanks around it are gone. */
static int group_parse(const char *text, size_t bytes, struct bench_disk_list *list,
                       struct errmsg *reterr) {
    uint64_t count = 1;
    char name[32];
    const char *at = text, *end = text + bytes;
    if (bytes > 0 && isdigit((unsigned char)*at)) {
        char *after;
        count = strtoull(at, &after, 10);
        if (after >= end || *after != 'x') {
            return unknown(text, bytes, reterr);
        }
        at = after + 1;
        while (at < end && *at == ' ') {
            at++;
        }
    }
    if (end - at >= (ptrdiff_t)sizeof(name)) {
        return unknown(text, bytes, reterr);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(end - at), at);
    const struct sim_model *disk = bench_disk_find(name);
    if (disk == NULL || count == 0) {
        return unknown(text, bytes, reterr);
    }
    if (count > ARRAY_COUNT(list->disks) - list->count) {
        return errmsg_set(reterr, ERR_LIMIT, "at most %zu disks can be modelled",
                          ARRAY_COUNT(list->disks));
    }
    for (uint64_t i = 0; i < count; i++) {
        list->disks[list->count++] = disk;
    }
    size_t used = strlen(list->text);
    (void)snprintf(list->text + used, sizeof(list->text) - used, "%s%ux %s", used > 0 ? " + " : "",
                   (unsigned)count, name);
    return OK;
}

int bench_disk_list_parse(const char *text, struct bench_disk_list *ret_list,
                          struct errmsg *reterr) {
    struct bench_disk_list list = {0};
    const char *at = text;
    for (;;) {
        const char *end = strchr(at, '+');
        const char *next = end == NULL ? NULL : end + 1;
        size_t bytes = end == NULL ? strlen(at) : (size_t)(end - at);
        while (bytes > 0 && *at == ' ') {
            at++;
            bytes--;
        }
        while (bytes > 0 && at[bytes - 1] == ' ') {
            bytes--;
        }
        int error = group_parse(at, bytes, &list, reterr);
        if (error != OK) {
            return error;
        }
        if (next == NULL) {
            *ret_list = list;
            return OK;
        }
        at = next;
    }
}
