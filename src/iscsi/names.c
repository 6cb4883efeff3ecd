// SPDX-License-Identifier: MPL-2.0
/* Names of initiators and targets (RFC 7143 §4.2.7): iqn.YYYY-MM.domain[:anything], eui.16HEX,
 * naa.16HEX or naa.32HEX. Normal form is lower case; we take nothing else, so that names compare
 * byte by byte. */
#include <string.h>

#include "iscsi/iscsi.h"

static bool is_hex(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        bool digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f') ||
                     (text[i] >= 'A' && text[i] <= 'F');
        if (!digit) {
            return false;
        }
    }
    return true;
}

/* Printable and lower case; bytes of UTF-8 above ASCII pass (they were prepared elsewhere). */
static bool characters_are_good(const char *name) {
    for (; *name != 0; name++) {
        unsigned char c = (unsigned char)*name;
        bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                    c == ':' || c == '_' || c >= 0x80;
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool date_is_good(const char *date) {
    for (size_t i = 0; i < 7; i++) {
        if (i == 4 ? date[i] != '-' : date[i] < '0' || date[i] > '9') {
            return false;
        }
    }
    int month = (date[5] - '0') * 10 + (date[6] - '0');
    return month >= 1 && month <= 12;
}

int iscsi_name_check(const char *name, struct errmsg *reterr) {
    size_t length = strlen(name);
    if (length > ISCSI_NAME_BYTES_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "an iSCSI name has at most %u bytes; this has %zu",
                          ISCSI_NAME_BYTES_MAX, length);
    }
    bool good = false;
    if (strncmp(name, "iqn.", 4) == 0) {
        good = length > 12 && date_is_good(name + 4) && name[11] == '.' && name[12] != ':' &&
               characters_are_good(name);
    } else if (strncmp(name, "eui.", 4) == 0) {
        good = length == 20 && is_hex(name + 4, 16);
    } else if (strncmp(name, "naa.", 4) == 0) {
        good = (length == 20 || length == 36) && is_hex(name + 4, length - 4);
    }
    if (!good) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%s\" is no iSCSI name; it should look like "
                          "iqn.2025-01.org.example:storage, all in lower case",
                          name);
    }
    return OK;
}
