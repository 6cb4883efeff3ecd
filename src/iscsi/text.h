// SPDX-License-Identifier: MPL-2.0
/* Text keys (RFC 7143 §6): "Key=Value" pairs, each ended by a zero byte. */
#ifndef HOLDFAST_ISCSI_TEXT_H
#define HOLDFAST_ISCSI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "iscsi/limits.h"

/* ---- reading ---- */

struct text_pair {
    char key[ISCSI_KEY_BYTES_MAX + 1];
    char value[ISCSI_BINARY_TEXT_BYTES_MAX + 1];
};

/* Takes the next pair from bytes[*at, length); *at moves behind it. OK, ERR_NOT_FOUND at the end,
 * ERR_PROTOCOL for anything that is not a pair within the limits: no '=', an empty or ill-formed
 * key, something too long (of the value: longer than any may be), no zero at the end. A few stray
 * zero bytes between pairs are skipped. */
HF_MUST_CHECK int text_next(const uint8_t *bytes, size_t length, size_t *at,
                            struct text_pair *ret_pair);

/* RFC 7143 §6.1: decimal or 0x… constants. ERR_INVALID, ERR_RANGE (above 2^32 - 1). */
HF_MUST_CHECK int text_number(const char *value, uint32_t *ret_number);

/* ---- writing ---- */

struct text_buffer {
    uint8_t *bytes;
    size_t length, room;
    bool overflow; /* something did not fit: the whole is not to be sent */
};

void text_put(struct text_buffer *text, const char *key, const char *value);
void text_put_number(struct text_buffer *text, const char *key, uint32_t number);

#endif
