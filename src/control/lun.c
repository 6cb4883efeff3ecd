// SPDX-License-Identifier: MPL-2.0
#include "control/lun.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "control/schema.h"

enum { RECORD_VERSION = 2, RECORD_VERSION_OPEN = 1 };

static const struct field rule_fields[] = {{"initiator", FIELD_IQN, false},
                                           {"address", FIELD_ADDRESS, false},
                                           {"user", FIELD_USER, false},
                                           {NULL}};

static const struct field fields[] = {
    {"version", FIELD_UINT, true, 1, UINT32_MAX},
    {"volume", FIELD_NAME, true},
    {"target", FIELD_IQN, true},
    {"lun", FIELD_UINT, true, 0, LUN_NUMBER_MAX},
    {"access", FIELD_OBJECTS, false, 0, LUN_RULES_MAX, rule_fields},
    {NULL}};

/* ---- rules ---- */

struct lun_rule lun_rule_of(const json_t *object) {
    struct lun_rule rule = {0};
    (void)snprintf(rule.initiator, sizeof(rule.initiator), "%s",
                   schema_text(object, "initiator", ""));
    (void)snprintf(rule.address, sizeof(rule.address), "%s", schema_text(object, "address", ""));
    (void)snprintf(rule.user, sizeof(rule.user), "%s", schema_text(object, "user", ""));
    return rule;
}

static bool rules_are_equal(const struct lun_rule *a, const struct lun_rule *b) {
    return strcmp(a->initiator, b->initiator) == 0 && strcmp(a->address, b->address) == 0 &&
           strcmp(a->user, b->user) == 0;
}

bool lun_record_is_equal(const struct lun_record *a, const struct lun_record *b) {
    bool equal = strcmp(a->name, b->name) == 0 && strcmp(a->volume, b->volume) == 0 &&
                 strcmp(a->target, b->target) == 0 && a->number == b->number &&
                 a->open == b->open && a->rule_count == b->rule_count;
    for (uint32_t i = 0; equal && i < a->rule_count; i++) {
        equal = rules_are_equal(&a->rules[i], &b->rules[i]);
    }
    return equal;
}

bool lun_rule_is_empty(const struct lun_rule *rule) {
    return rule->initiator[0] == '\0' && rule->address[0] == '\0' && rule->user[0] == '\0';
}

uint32_t lun_rule_find(const struct lun_record *record, const struct lun_rule *rule) {
    uint32_t at = 0;
    while (at < record->rule_count && !rules_are_equal(&record->rules[at], rule)) {
        at++;
    }
    return at;
}

static void set_if_given(json_t *object, const char *key, const char *value) {
    if (value[0] != '\0') {
        (void)json_object_set_new(object, key, json_string(value));
    }
}

json_t *lun_rules_json(const struct lun_record *record) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < record->rule_count; i++) {
        json_t *rule = json_object();
        set_if_given(rule, "initiator", record->rules[i].initiator);
        set_if_given(rule, "address", record->rules[i].address);
        set_if_given(rule, "user", record->rules[i].user);
        (void)json_array_append_new(list, rule);
    }
    return list;
}

/* ---- records ---- */

char *lun_record_encode(const struct lun_record *record) {
    json_t *object = json_pack(
        "{s:i, s:s, s:s, s:i}", "version", record->open ? RECORD_VERSION_OPEN : RECORD_VERSION,
        "volume", record->volume, "target", record->target, "lun", (int)record->number);
    ASSERT(object != NULL); /* names and targets were checked: ASCII */
    if (!record->open) {
        (void)json_object_set_new(object, "access", lun_rules_json(record));
    }
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
    const json_t *access = json_object_get(object, "access");
    bool fits = object != NULL && schema_name_is_valid(name) &&
                schema_check(fields, object, &why) == OK &&
                (access != NULL) == (version > RECORD_VERSION_OPEN);
    if (!fits) {
        json_decref(object);
        return errmsg_set(
            reterr, ERR_CORRUPT,
            "the record of LUN %.64s is malformed (%s); delete it and create it again", name,
            why.text[0] != '\0' ? why.text : "not a JSON object");
    }
    struct lun_record record = {.number = (uint32_t)schema_uint(object, "lun", 0),
                                .open = access == NULL,
                                .rule_count = (uint32_t)json_array_size(access)};
    for (uint32_t i = 0; i < record.rule_count; i++) {
        record.rules[i] = lun_rule_of(json_array_get(access, i));
    }
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
