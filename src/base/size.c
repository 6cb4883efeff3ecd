// SPDX-License-Identifier: MPL-2.0
#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"

static const char units[] = "BKMGTPE";

int size_parse(const char *text, uint64_t *ret_bytes) {
    uint64_t whole = 0, fraction = 0, fraction_unit = 1;
    const char *p = text;
    if (!isdigit((unsigned char)*p)) {
        return ERR_INVALID;
    }
    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole)) {
            return ERR_RANGE;
        }
    }
    if (*p == '.') {
        for (p++; isdigit((unsigned char)*p); p++) {
            if (fraction_unit < 1000000) { /* further digits do not change a byte */
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                fraction_unit *= 10;
            }
        }
    }
    while (*p == ' ') {
        p++;
    }
    unsigned shift = 0;
    if (*p != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*p));
        if (unit == NULL) {
            return ERR_INVALID;
        }
        shift = (unsigned)(unit - units) * 10;
        p++;
        if (shift > 0 && strcmp(p, "iB") != 0 && strcmp(p, "B") != 0 && *p != '\0') {
            return ERR_INVALID;
        }
        if (shift == 0 && *p != '\0') {
            return ERR_INVALID;
        }
    }
    uint128 bytes = (uint128)whole << shift;
    bytes += ((uint128)fraction << shift) / fraction_unit;
    if (bytes > UINT64_MAX) {
        return ERR_RANGE;
    }
    *ret_bytes = (uint64_t)bytes;
    return OK;
}

void size_format(uint64_t bytes, char *ret_text, size_t text_bytes) {
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && units[unit + 1] != '\0') {
        value /= 1024;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(ret_text, text_bytes, "%u B", (unsigned)bytes);
    } else {
        int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
        (void)snprintf(ret_text, text_bytes, "%.*f %ciB", digits, value, units[unit]);
    }
}
