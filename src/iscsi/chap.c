// SPDX-License-Identifier: MPL-2.0
#include "iscsi/chap.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"

/* Numbers of the PPP authentication algorithms registry that RFC 7143 §12.1.3 points to. All hosts
 * know 5; open-iscsi knows the others. */
static const struct {
    uint32_t number;
    enum digest digest;
} algorithms[] = {
    {5, DIGEST_MD5},
    {6, DIGEST_SHA1},
    {7, DIGEST_SHA256},
    {8, DIGEST_SHA3_256},
};

static bool is_available(enum digest digest) {
    uint8_t result[DIGEST_RESULT_BYTES_MAX];
    return digest_compute(digest, NULL, 0, result) == OK;
}

int chap_choose(const char *list, enum digest *ret_digest, uint32_t *ret_number) {
    const char *at = list;
    while (*at != 0) {
        size_t digits = strspn(at, "0123456789");
        char end = at[digits];
        if (digits == 0 || digits > 3 || (end != 0 && end != ',')) {
            return ERR_UNSUPPORTED;
        }
        uint32_t number = (uint32_t)strtoul(at, NULL, 10);
        for (uint32_t i = 0; i < ARRAY_COUNT(algorithms); i++) {
            if (algorithms[i].number == number && is_available(algorithms[i].digest)) {
                *ret_digest = algorithms[i].digest;
                *ret_number = number;
                return OK;
            }
        }
        at += digits + (end == ',');
    }
    return ERR_UNSUPPORTED;
}

static struct iovec piece(const void *bytes, size_t length) {
    union {
        const void *given;
        void *taken;
    } base = {.given = bytes};
    return (struct iovec){base.taken, length};
}

int chap_response(enum digest digest, uint8_t id, const char *secret, const uint8_t *challenge,
                  size_t challenge_bytes, uint8_t ret_response[DIGEST_RESULT_BYTES_MAX]) {
    const struct iovec pieces[] = {piece(&id, 1), piece(secret, strlen(secret)),
                                   piece(challenge, challenge_bytes)};
    return digest_compute(digest, pieces, ARRAY_COUNT(pieces), ret_response);
}

bool chap_is_right(enum digest digest, uint8_t id, const char *secret, const uint8_t *challenge,
                   size_t challenge_bytes, const uint8_t *response, size_t response_bytes) {
    uint8_t right[DIGEST_RESULT_BYTES_MAX];
    return chap_response(digest, id, secret, challenge, challenge_bytes, right) == OK &&
           response_bytes == digest_bytes(digest) &&
           secret_is_equal(right, response, response_bytes);
}

/* ---- binary values ---- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int base64_value(char c) {
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != 0 ? strchr(alphabet, c) : NULL;
    return at != NULL ? (int)(at - alphabet) : -1;
}

/* An odd number of digits has a zero in front of it. */
static int hex_decode(const char *text, uint8_t *ret_bytes, size_t room, size_t *ret_length) {
    size_t digits = strlen(text), length = (digits + 1) / 2;
    if (digits == 0) {
        return ERR_INVALID;
    }
    if (length > room) {
        return ERR_LIMIT;
    }
    memset(ret_bytes, 0, length);
    for (size_t i = 0; i < digits; i++) {
        int value = hex_value(text[digits - 1 - i]);
        if (value < 0) {
            return ERR_INVALID;
        }
        ret_bytes[length - 1 - i / 2] |= (uint8_t)(value << (i % 2 != 0 ? 4 : 0));
    }
    *ret_length = length;
    return OK;
}

static int base64_decode(const char *text, uint8_t *ret_bytes, size_t room, size_t *ret_length) {
    size_t length = strlen(text), padding = 0;
    while (length > 0 && padding < 2 && text[length - 1] == '=') {
        length--;
        padding++;
    }
    if (length == 0 || (length + padding) % 4 != 0) {
        return ERR_INVALID;
    }
    size_t bytes = length * 6 / 8, at = 0;
    if (bytes > room) {
        return ERR_LIMIT;
    }
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return ERR_INVALID;
        }
        held = held << 6 | (uint32_t)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            ret_bytes[at++] = (uint8_t)(held >> bits);
        }
    }
    *ret_length = bytes;
    return OK;
}

int chap_binary(const char *text, uint8_t *ret_bytes, size_t room, size_t *ret_length) {
    if (text[0] != '0' || text[1] == 0) {
        return ERR_INVALID;
    }
    switch (text[1] | 0x20) {
    case 'x':
        return hex_decode(text + 2, ret_bytes, room, ret_length);
    case 'b':
        return base64_decode(text + 2, ret_bytes, room, ret_length);
    default:
        return ERR_INVALID;
    }
}

void chap_binary_text(const uint8_t *bytes, size_t length, char *ret_text) {
    static const char digits[] = "0123456789abcdef";
    *ret_text++ = '0';
    *ret_text++ = 'x';
    for (size_t i = 0; i < length; i++) {
        *ret_text++ = digits[bytes[i] >> 4];
        *ret_text++ = digits[bytes[i] & 15];
    }
    *ret_text = 0;
}
