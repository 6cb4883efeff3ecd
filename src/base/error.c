// SPDX-License-Identifier: MPL-2.0
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *text;
    int parent;
} errors[ERROR_INDEX_COUNT] = {[ERROR_INDEX_OK] = {"OK", "success", 0},
#define X(name, parent, text) [ERROR_INDEX_##name] = {#name, text, parent},
                               HF_ERRORS(X)
#undef X
};

static int error_known(int code) {
    return code <= 0 && code > -(int)ERROR_INDEX_COUNT;
}

const char *error_name(int code) {
    return error_known(code) ? errors[-code].name : "UNKNOWN";
}

const char *error_text(int code) {
    return error_known(code) ? errors[-code].text : "unknown error";
}

int error_errno(int code) {
    return error_known(code) ? errors[-code].parent : EIO;
}

int error_from_errno(int errnum) {
    if (errnum < 0) {
        errnum = -errnum;
    }
    for (int i = 0; i < ERROR_INDEX_COUNT; i++) {
        if (errors[i].parent == errnum) {
            return -i;
        }
    }
    switch (errnum) {
    case EPERM:
        return ERR_PERMISSION;
    case ENXIO:
        return ERR_DISK_GONE;
    case ECONNRESET:
        return ERR_CLOSED;
    default:
        return ERR_IO;
    }
}

int errmsg_set(struct errmsg *e, int code, const char *fmt, ...) {
    if (e == NULL || e->code != 0) {
        return code;
    }
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);
    e->code = code;
    return code;
}

int errmsg_prefix(struct errmsg *e, const char *fmt, ...) {
    if (e == NULL) {
        return ERR_IO;
    }
    char old[sizeof(e->text)];
    memcpy(old, e->text, sizeof(old));
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(e->text)) {
        (void)snprintf(e->text + used, sizeof(e->text) - (size_t)used, "%s", old);
    }
    return e->code;
}
