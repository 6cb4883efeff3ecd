// SPDX-License-Identifier: MPL-2.0
#include "control/answer.h"

#include <string.h>

#include "base/assert.h"

/* The one table from our errors to HTTP (RFC 9110 §15, RFC 4918 §11.5 for 507). */
static const struct {
    int code;
    unsigned status;
} statuses[] = {
    {OK, 200},
    {ERR_IO, 500},
    {ERR_CHECKSUM, 500},
    {ERR_NO_SPACE, 507},
    {ERR_NO_MEMORY, 503},
    {ERR_INVALID, 400},
    {ERR_RANGE, 400},
    {ERR_NOT_FOUND, 404},
    {ERR_EXISTS, 409},
    {ERR_BUSY, 409},
    {ERR_TIMEOUT, 504},
    {ERR_DISK_GONE, 500},
    {ERR_STALE, 409},
    {ERR_FOREIGN, 409},
    {ERR_CORRUPT, 500},
    {ERR_UNSUPPORTED, 501},
    {ERR_QUORUM, 409},
    {ERR_DATA_LOSS, 409}, /* refused unless forced */
    {ERR_CANCELLED, 503},
    {ERR_MISCOMPARE, 409},
    {ERR_SHUTDOWN, 503},
    {ERR_READ_ONLY, 403},
    {ERR_LIMIT, 413},
    {ERR_AGAIN, 503},
    {ERR_PERMISSION, 403},
    {ERR_PROTOCOL, 400},
    {ERR_CLOSED, 503},
};
_Static_assert(sizeof(statuses) / sizeof(statuses[0]) == ERROR_INDEX_COUNT,
               "every code of base/error.h has its HTTP status");

unsigned answer_status(int code) {
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i].code == code) {
            return statuses[i].status;
        }
    }
    return 500;
}

json_t *answer_text(const char *text) {
    json_t *value = json_string(text);
    if (value != NULL) {
        return value;
    }
    char clean[1024];
    size_t length = strnlen(text, sizeof(clean));
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        clean[i] = c < 0x20 || c > 0x7e ? '?' : (char)c;
    }
    value = json_stringn(clean, length);
    ASSERT(value != NULL);
    return value;
}

json_t *answer_error(int code, const struct errmsg *message) {
    const char *text = message != NULL && message->text[0] != '\0' ? message->text : NULL;
    json_t *body = json_pack("{s:{s:s, s:o}}", "error", "code", error_name(code), "message",
                             answer_text(text != NULL ? text : error_text(code)));
    ASSERT(body != NULL);
    return body;
}

int answer_read_error(const json_t *body, struct errmsg *reterr) {
    const json_t *error = json_object_get(body, "error");
    const char *name = json_string_value(json_object_get(error, "code"));
    const char *text = json_string_value(json_object_get(error, "message"));
    if (name == NULL || text == NULL) {
        return errmsg_set(reterr, ERR_PROTOCOL, "the answer is not one of Holdfast's API");
    }
    int code = ERR_IO;
    for (int i = 1; i < ERROR_INDEX_COUNT; i++) {
        if (strcmp(error_name(-i), name) == 0) {
            code = -i;
        }
    }
    return errmsg_set(reterr, code, "%s", text);
}
