// SPDX-License-Identifier: MPL-2.0
/* Strict checking of JSON objects that come from people, programs or a pool's own records.
 *
 * A schema is a table of fields. An object fits when it has every required field, no field that the
 * table does not list, and each value has the type and lies in the range stated. After that the
 * handlers read values without further checks. */
#ifndef HOLDFAST_CONTROL_SCHEMA_H
#define HOLDFAST_CONTROL_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum field_type {
    FIELD_NAME,    /* [A-Za-z][A-Za-z0-9_.-]{0,62} */
    FIELD_TEXT,    /* min..max bytes, printable */
    FIELD_IQN,     /* an iSCSI name: iqn.…, eui.… or naa.…, ≤ 223 bytes */
    FIELD_UINT,    /* min..max */
    FIELD_SIZE,    /* bytes, min..max; only the message differs */
    FIELD_BOOL,    /* true, false */
    FIELD_PROFILE, /* a name profile_parse() knows */
    FIELD_PATHS,   /* array of min..max absolute paths (or mem:NAME:SIZE), no two alike */
    FIELD_USER,    /* of CHAP: chap_name_is_valid() */
    FIELD_ADDRESS, /* an IP address or network: iscsi_address_check() */
    FIELD_OBJECTS, /* array of min..max objects that fit the table `of` */
};

struct field {
    const char *name; /* NULL ends a table */
    enum field_type type;
    bool required;
    uint64_t min, max;
    const struct field *of;
};

/* ERR_INVALID or ERR_RANGE, naming the field. */
HF_MUST_CHECK int schema_check(const struct field *fields, const json_t *object,
                               struct errmsg *reterr);

/* Bytes → a checked object; no bytes at all are the empty object. The caller's to json_decref. */
HF_MUST_CHECK int schema_parse(const struct field *fields, const char *bytes, size_t length,
                               json_t **ret_object, struct errmsg *reterr);

bool schema_name_is_valid(const char *name);
bool schema_iqn_is_valid(const char *name);

/* Of a checked object: the value, or what stands for its absence. */
const char *schema_text(const json_t *object, const char *name, const char *otherwise);
uint64_t schema_uint(const json_t *object, const char *name, uint64_t otherwise);
bool schema_bool(const json_t *object, const char *name);

#endif
