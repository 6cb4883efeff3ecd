// SPDX-License-Identifier: MPL-2.0
/* A file for `config import`: what is accepted makes a plan whose steps are requests, each with its
 * text, for an empty pool; a pool that is already as the file says takes none. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/plan.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void check_steps(const json_t *steps) {
    const json_t *step;
    size_t index;
    require(json_is_array(steps));
    json_array_foreach(steps, index, step) {
        require(json_string_length(json_object_get(step, "text")) > 0);
        if (!json_is_true(json_object_get(step, "problem"))) {
            require(json_string_value(json_object_get(step, "method")) != NULL);
            const char *path = json_string_value(json_object_get(step, "path"));
            require(path != NULL && strncmp(path, "/v1/pools/", 10) == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *file = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    struct errmsg why = {0};
    if (file == NULL) {
        return 0;
    }
    int error = plan_check_file(file, &why);
    require(error == OK || (why.code == error && why.text[0] != '\0'));
    json_t *pool;
    size_t index;
    json_array_foreach(error == OK ? json_object_get(file, "pools") : NULL, index, pool) {
        json_t *empty = json_pack("{s:O,s:[],s:[],s:[]}", "name", json_object_get(pool, "name"),
                                  "volumes", "users", "luns");
        json_t *steps = plan_pool(pool, empty);
        check_steps(steps);
        json_decref(steps);
        steps = plan_pool(pool, pool);
        require(json_array_size(steps) == 0);
        json_decref(steps);
        json_decref(empty);
    }
    json_decref(file);
    return 0;
}
