// SPDX-License-Identifier: MPL-2.0
/* Where pools are looked for, with and without a running service. */
#ifndef HOLDFAST_CONTROL_SEARCH_H
#define HOLDFAST_CONTROL_SEARCH_H

#include <jansson.h>
#include <stdint.h>

#include "control/config.h"
#include "env/env.h"

struct path_list {
    char **paths;
    uint32_t count;
};

void path_list_add(struct path_list *list, const char *path); /* once */
/* A folder stands for the files and block devices in it; its subfolders are not looked into. */
void path_list_add_place(struct path_list *list, const char *place);
void path_list_add_json(struct path_list *list, const json_t *paths); /* an array of places */
void path_list_free(struct path_list *list);

/* The places that the settings name; all whole disks of this host when they name none. */
void search_configured(const struct config *config, struct path_list *list);

/* Pools served before, from the node's state: an array of checked {"name", "paths"}, never NULL.
 * What is damaged is left out, with a sentence in reterr. On the loop. */
json_t *search_recall(struct env *env, struct errmsg *reterr);
HF_MUST_CHECK int search_remember(struct env *env, const json_t *pools);

#endif
