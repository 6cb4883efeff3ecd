// SPDX-License-Identifier: MPL-2.0
#include "control/lun.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "control/schema.h"

enum { RECORD_VERSION = 1 };

static const struct field fields[] = {{"version", FIELD_UINT, true, 1, UINT32_MAX},
                                      {"volume", FIELD_NAME, true},
                                      {"target", FIELD_IQN, true},
                                      {"lun", FIELD_UINT, true, 0, LUN_NUMBER_MAX},
                                      {NULL}};

char *lun_record_encode(const struct lun_record *record) {
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:i}", "version", RECORD_VERSION, "volume", record->volume,
                  "target", record->target, "lun", (int)record->number);
    ASSERT(object != NULL); /* names and targets were checked: ASCII */
    char *dumped = json_dumps(object, JSON_COMPACT);
    ASSERT(dumped != NULL);
    char *text = mem_strdup(dumped);
    free(dumped);
    json_decref(object);
    return text;
}

int lun_record_decode(const char *name, const void *blob, size_t bytes,
                      struct lun_record *ret_record, struct errmsg *reterr) {
    struct errmsg why = {0};
    json_error_t where;
    json_t *object = json_loadb(blob, bytes, JSON_REJECT_DUPLICATES, &where);
    uint64_t version = object != NULL ? schema_uint(object, "version", 0) : 0;
    if (version > RECORD_VERSION) {
        json_decref(object);
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "LUN %s was written by a later version of holdfast; it is not served "
                          "until this host is upgraded",
                          name);
    }
    if (object == NULL || !schema_name_is_valid(name) || schema_check(fields, object, &why) != OK) {
        json_decref(object);
        return errmsg_set(
            reterr, ERR_CORRUPT,
            "the record of LUN %.64s is malformed (%s); delete it and create it again", name,
            why.text[0] != '\0' ? why.text : "not a JSON object");
    }
    struct lun_record record = {.number = (uint32_t)schema_uint(object, "lun", 0)};
    (void)snprintf(record.name, sizeof(record.name), "%s", name);
    (void)snprintf(record.volume, sizeof(record.volume), "%s", schema_text(object, "volume", ""));
    (void)snprintf(record.target, sizeof(record.target), "%s", schema_text(object, "target", ""));
    json_decref(object);
    *ret_record = record;
    return OK;
}

void lun_default_target(const char *pool, char ret_target[224]) {
    (void)snprintf(ret_target, 224, "iqn.2026-01.local.holdfast:%s", pool);
    for (char *c = ret_target; *c != '\0'; c++) {
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    }
}
