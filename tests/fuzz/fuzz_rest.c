// SPDX-License-Identifier: MPL-2.0
/* What comes in from people and from a pool's records: a request of the REST API ("METHOD PATH\n"
 * and the body), the settings file, a LUN's record. Whatever is accepted has to be what the tables
 * promise the handlers; a record that is accepted has to be written and read again unchanged. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "control/chap.h"
#include "control/config.h"
#include "control/lun.h"
#include "control/routes.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void request(const uint8_t *data, size_t bytes) {
    char method[16], path[1200];
    const uint8_t *blank = memchr(data, ' ', bytes);
    const uint8_t *end = memchr(data, '\n', bytes);
    if (blank == NULL || end == NULL || end < blank || (size_t)(blank - data) >= sizeof(method) ||
        (size_t)(end - blank) >= sizeof(path)) {
        return;
    }
    memcpy(method, data, (size_t)(blank - data));
    method[blank - data] = '\0';
    memcpy(path, blank + 1, (size_t)(end - blank - 1));
    path[end - blank - 1] = '\0';
    struct api_request parsed;
    struct errmsg why = {0};
    int error = routes_parse(method, path, (const char *)end + 1, bytes - (size_t)(end + 1 - data),
                             &parsed, &why);
    require(error == OK || (why.code == error && why.text[0] != '\0'));
    if (error != OK) {
        return;
    }
    require(json_is_object(parsed.body));
    require(parsed.pool[0] == '\0' || schema_name_is_valid(parsed.pool));
    require(parsed.name[0] == '\0' || schema_name_is_valid(parsed.name) ||
            chap_name_is_valid(parsed.name));
    require(schema_check(parsed.route->fields, parsed.body, NULL) == OK);
    api_request_done(&parsed);
}

static void settings(const uint8_t *data, size_t bytes) {
    char *text = mem_alloc(bytes + 1);
    struct config *config = MEM_NEW(struct config);
    struct errmsg why = {0};
    memcpy(text, data, bytes);
    config_init(config);
    int error = config_parse(config, "fuzz", text, &why);
    require(error == OK || strstr(why.text, "fuzz, line ") != NULL);
    config_finish(config);
    require(config->socket[0] == '/' && config->listen.count > 0);
    mem_free(config);
    mem_free(text);
}

static void record(const uint8_t *data, size_t bytes) {
    struct lun_record first, second;
    if (lun_record_decode("fuzz", data, bytes, &first, NULL) != OK) {
        return;
    }
    char *blob = lun_record_encode(&first);
    require(lun_record_decode("fuzz", blob, strlen(blob), &second, NULL) == OK);
    require(lun_record_is_equal(&first, &second));
    mem_free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    request(data, bytes);
    settings(data, bytes);
    record(data, bytes);
    return 0;
}
