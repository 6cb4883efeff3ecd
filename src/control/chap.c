// SPDX-License-Identifier: MPL-2.0
#include "control/chap.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "codec/digest.h"
#include "control/schema.h"

enum { RECORD_VERSION = 1 };

static const struct field fields[] = {
    {"version", FIELD_UINT, true, 1, UINT32_MAX},
    {"secret", FIELD_TEXT, true, ISCSI_SECRET_BYTES_MIN, ISCSI_SECRET_BYTES_MAX},
    {"mutual_name", FIELD_USER, false},
    {"mutual_secret", FIELD_TEXT, false, ISCSI_SECRET_BYTES_MIN, ISCSI_SECRET_BYTES_MAX},
    {NULL}};

bool chap_name_is_valid(const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr(".:_@-", name[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length <= ISCSI_USER_BYTES_MAX;
}

struct iscsi_user chap_user(const struct chap_record *record) {
    bool mutual = record->mutual_secret[0] != '\0';
    return (struct iscsi_user){record->name, record->secret, mutual ? record->mutual_name : NULL,
                               mutual ? record->mutual_secret : NULL};
}

char *chap_record_encode(const struct chap_record *record) {
    json_t *object = json_pack("{s:i, s:s}", "version", RECORD_VERSION, "secret", record->secret);
    ASSERT(object != NULL); /* checked: printable ASCII */
    if (record->mutual_secret[0] != '\0') {
        (void)json_object_set_new(object, "mutual_name", json_string(record->mutual_name));
        (void)json_object_set_new(object, "mutual_secret", json_string(record->mutual_secret));
    }
    char *dumped = json_dumps(object, JSON_COMPACT);
    ASSERT(dumped != NULL);
    char *text = mem_strdup(dumped);
    secret_wipe(dumped, strlen(dumped));
    free(dumped);
    json_decref(object);
    return text;
}

void chap_text_free(char *text) {
    if (text != NULL) {
        secret_wipe(text, strlen(text));
    }
    mem_free(text);
}

int chap_record_decode(const char *name, const void *blob, size_t bytes,
                       struct chap_record *ret_record, struct errmsg *reterr) {
    json_t *object = json_loadb(blob, bytes, JSON_REJECT_DUPLICATES, NULL);
    uint64_t version = object != NULL ? schema_uint(object, "version", 0) : 0;
    if (version > RECORD_VERSION) {
        json_decref(object);
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "CHAP user %s was written by a later version of holdfast", name);
    }
    struct chap_record record = {0};
    bool good =
        object != NULL && chap_name_is_valid(name) && schema_check(fields, object, NULL) == OK;
    if (good) {
        (void)snprintf(record.name, sizeof(record.name), "%s", name);
        (void)snprintf(record.secret, sizeof(record.secret), "%s",
                       schema_text(object, "secret", ""));
        (void)snprintf(record.mutual_name, sizeof(record.mutual_name), "%s",
                       schema_text(object, "mutual_name", ""));
        (void)snprintf(record.mutual_secret, sizeof(record.mutual_secret), "%s",
                       schema_text(object, "mutual_secret", ""));
        struct iscsi_user user = chap_user(&record);
        good = (record.mutual_name[0] != '\0') == (record.mutual_secret[0] != '\0') &&
               iscsi_user_check(&user, NULL) == OK;
    }
    json_decref(object);
    if (!good) {
        secret_wipe(&record, sizeof(record));
        return errmsg_set(reterr, ERR_CORRUPT,
                          "the record of CHAP user %.127s is malformed; set it again", name);
    }
    *ret_record = record;
    secret_wipe(&record, sizeof(record));
    return OK;
}

void chap_records_free(struct chap_record *records, uint32_t count) {
    if (records != NULL) {
        secret_wipe(records, count * sizeof(records[0]));
    }
    mem_free(records);
}
