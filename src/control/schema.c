// SPDX-License-Identifier: MPL-2.0
#include "control/schema.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "control/chap.h"
#include "format/profile.h"

enum { NAME_MAX_BYTES = 63, IQN_MAX_BYTES = 223, PATH_MAX_BYTES = 255 };

bool schema_name_is_valid(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX_BYTES || !isalpha((unsigned char)name[0])) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("_.-", name[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* RFC 7143 §4.2.7 after RFC 3722 mapping: lower case letters, digits, '-', '.', ':'. */
bool schema_iqn_is_valid(const char *name) {
    size_t length = strlen(name);
    if (length < 5 || length > IQN_MAX_BYTES ||
        (strncmp(name, "iqn.", 4) != 0 && strncmp(name, "eui.", 4) != 0 &&
         strncmp(name, "naa.", 4) != 0)) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (!islower(c) && !isdigit(c) && strchr("-.:", (char)c) == NULL) {
            return false;
        }
    }
    return true;
}

static int refuse(struct errmsg *reterr, int code, const char *field, const char *wanted) {
    return errmsg_set(reterr, code, "\"%s\" must be %s", field, wanted);
}

static int check_text(const struct field *field, const json_t *value, struct errmsg *reterr) {
    const char *text = json_string_value(value);
    size_t length = text == NULL ? 0 : json_string_length(value);
    bool printable = text != NULL && strlen(text) == length;
    for (size_t i = 0; printable && i < length; i++) {
        printable = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    }
    if (!printable || length < field->min || length > field->max) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%s\" must be a text of %" PRIu64 " to %" PRIu64
                          " printable characters",
                          field->name, field->min, field->max);
    }
    return OK;
}

static int check_uint(const struct field *field, const json_t *value, struct errmsg *reterr) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return refuse(reterr, ERR_INVALID, field->name,
                      field->type == FIELD_SIZE ? "a whole number of bytes" : "a whole number");
    }
    uint64_t number = (uint64_t)json_integer_value(value);
    if (number >= field->min && number <= field->max) {
        return OK;
    }
    if (field->type == FIELD_UINT) {
        return errmsg_set(reterr, ERR_RANGE,
                          "\"%s\" must lie between %" PRIu64 " and %" PRIu64 ", not %" PRIu64,
                          field->name, field->min, field->max, number);
    }
    char low[16], high[16];
    size_format(field->min, low, sizeof(low));
    size_format(field->max, high, sizeof(high));
    return errmsg_set(reterr, ERR_RANGE, "\"%s\" must lie between %s and %s, not %" PRIu64 " bytes",
                      field->name, low, high, number);
}

static bool path_is_valid(const char *path, size_t length) {
    return path != NULL && strlen(path) == length && length <= PATH_MAX_BYTES &&
           (path[0] == '/' || strncmp(path, "mem:", 4) == 0);
}

static int check_paths(const struct field *field, const json_t *value, struct errmsg *reterr) {
    if (!json_is_array(value)) {
        return refuse(reterr, ERR_INVALID, field->name, "a list of paths");
    }
    size_t count = json_array_size(value);
    if (count < field->min || count > field->max) {
        return errmsg_set(reterr, ERR_RANGE,
                          "\"%s\" must list %" PRIu64 " to %" PRIu64 " paths, not %zu", field->name,
                          field->min, field->max, count);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *element = json_array_get(value, i);
        const char *path = json_string_value(element);
        if (!path_is_valid(path, path == NULL ? 0 : json_string_length(element))) {
            return errmsg_set(reterr, ERR_INVALID,
                              "\"%s\": entry %zu is not an absolute path of at most %d characters",
                              field->name, i + 1, PATH_MAX_BYTES);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(path, json_string_value(json_array_get(value, j))) == 0) {
                return errmsg_set(reterr, ERR_INVALID, "\"%s\" lists %s twice", field->name, path);
            }
        }
    }
    return OK;
}

static int check_objects(const struct field *field, const json_t *value, struct errmsg *reterr) {
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count < field->min || count > field->max) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%s\" must be a list of %" PRIu64 " to %" PRIu64 " objects",
                          field->name, field->min, field->max);
    }
    for (size_t i = 0; i < count; i++) {
        int error = schema_check(field->of, json_array_get(value, i), reterr);
        if (error != OK) {
            return error;
        }
    }
    return OK;
}

static int check_value(const struct field *field, const json_t *value, struct errmsg *reterr) {
    const char *text = json_string_value(value);
    if (text != NULL && strlen(text) != json_string_length(value)) {
        return refuse(reterr, ERR_INVALID, field->name, "a text without NUL characters");
    }
    enum profile profile;
    switch (field->type) {
    case FIELD_NAME:
        return text != NULL && schema_name_is_valid(text)
                   ? OK
                   : refuse(reterr, ERR_INVALID, field->name,
                            "a name: a letter, then up to 62 letters, digits, '.', '_' or '-'");
    case FIELD_IQN:
        return text != NULL && schema_iqn_is_valid(text)
                   ? OK
                   : refuse(reterr, ERR_INVALID, field->name,
                            "an iSCSI name such as iqn.2026-01.org.example:disk (lower case, at "
                            "most 223 characters)");
    case FIELD_PROFILE:
        return text != NULL && profile_parse(text, &profile) == OK
                   ? OK
                   : refuse(reterr, ERR_INVALID, field->name,
                            "one of single, raid0, raid1, raid1-3, raid10, raid5, raid6");
    case FIELD_BOOL:
        return json_is_boolean(value) ? OK
                                      : refuse(reterr, ERR_INVALID, field->name, "true or false");
    case FIELD_TEXT:
        return check_text(field, value, reterr);
    case FIELD_UINT:
    case FIELD_SIZE:
        return check_uint(field, value, reterr);
    case FIELD_PATHS:
        return check_paths(field, value, reterr);
    case FIELD_USER:
        return text != NULL && chap_name_is_valid(text)
                   ? OK
                   : refuse(reterr, ERR_INVALID, field->name,
                            "a CHAP user: 1 to 127 letters, digits, '.', ':', '_', '@' or '-'");
    case FIELD_ADDRESS:
        return text != NULL && iscsi_address_check(text, NULL) == OK
                   ? OK
                   : refuse(reterr, ERR_INVALID, field->name,
                            "an address or network such as 192.0.2.7, 192.0.2.0/24 or "
                            "2001:db8::/32");
    case FIELD_OBJECTS:
        return check_objects(field, value, reterr);
    }
    return errmsg_set(reterr, ERR_INVALID, "\"%s\" has no known type", field->name);
}

static int refuse_unknown(const struct field *fields, const char *key, struct errmsg *reterr) {
    char known[256] = "";
    size_t used = 0;
    for (const struct field *f = fields; f->name != NULL; f++) {
        size_t length = strlen(f->name);
        if (used + length + 3 > sizeof(known)) {
            break;
        }
        if (used > 0) {
            known[used++] = ',';
            known[used++] = ' ';
        }
        memcpy(known + used, f->name, length + 1);
        used += length;
    }
    return errmsg_set(reterr, ERR_INVALID, "\"%.64s\" is not known here; known: %s", key,
                      used > 0 ? known : "nothing (send no body)");
}

int schema_check(const struct field *fields, const json_t *object, struct errmsg *reterr) {
    if (!json_is_object(object)) {
        return errmsg_set(reterr, ERR_INVALID, "the body must be a JSON object");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const struct field *field = fields;
        while (field->name != NULL && strcmp(field->name, key) != 0) {
            field++;
        }
        int error = field->name == NULL ? refuse_unknown(fields, key, reterr)
                                        : check_value(field, value, reterr);
        if (error != OK) {
            return error;
        }
    }
    for (const struct field *field = fields; field->name != NULL; field++) {
        if (field->required && json_object_get(object, field->name) == NULL) {
            return errmsg_set(reterr, ERR_INVALID, "\"%s\" is missing", field->name);
        }
    }
    return OK;
}

int schema_parse(const struct field *fields, const char *bytes, size_t length, json_t **ret_object,
                 struct errmsg *reterr) {
    json_error_t where;
    json_t *object =
        length == 0 ? json_object() : json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &where);
    if (object == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "the body is not JSON: line %d, column %d: %s",
                          where.line, where.column, where.text);
    }
    int error = schema_check(fields, object, reterr);
    if (error != OK) {
        json_decref(object);
        return error;
    }
    *ret_object = object;
    return OK;
}

const char *schema_text(const json_t *object, const char *name, const char *otherwise) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : otherwise;
}

uint64_t schema_uint(const json_t *object, const char *name, uint64_t otherwise) {
    const json_t *value = json_object_get(object, name);
    return value != NULL ? (uint64_t)json_integer_value(value) : otherwise;
}

bool schema_bool(const json_t *object, const char *name) {
    return json_is_true(json_object_get(object, name));
}
