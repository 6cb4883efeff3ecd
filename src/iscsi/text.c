// SPDX-License-Identifier: MPL-2.0
#include "iscsi/text.h"

#include <stdio.h>
#include <string.h>

/* RFC 7143 §6.1: letters, digits, '.', '-', '+', '@', '_', and '#' for X# keys. */
static bool is_key_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr(".-+@_#/", c) != NULL);
}

int text_next(const uint8_t *bytes, size_t length, size_t *at, struct text_pair *ret_pair) {
    size_t start = *at;
    while (start < length && bytes[start] == 0) {
        start++;
    }
    if (start >= length) {
        *at = length;
        return ERR_NOT_FOUND;
    }
    const uint8_t *end = memchr(bytes + start, 0, length - start);
    if (end == NULL) {
        return ERR_PROTOCOL;
    }
    const uint8_t *equal = memchr(bytes + start, '=', (size_t)(end - (bytes + start)));
    if (equal == NULL) {
        return ERR_PROTOCOL;
    }
    size_t key_bytes = (size_t)(equal - (bytes + start));
    size_t value_bytes = (size_t)(end - equal) - 1;
    if (key_bytes == 0 || key_bytes > ISCSI_KEY_BYTES_MAX ||
        value_bytes > ISCSI_BINARY_TEXT_BYTES_MAX) {
        return ERR_PROTOCOL;
    }
    for (size_t i = 0; i < key_bytes; i++) {
        if (!is_key_character((char)bytes[start + i])) {
            return ERR_PROTOCOL;
        }
    }
    memcpy(ret_pair->key, bytes + start, key_bytes);
    ret_pair->key[key_bytes] = 0;
    memcpy(ret_pair->value, equal + 1, value_bytes);
    ret_pair->value[value_bytes] = 0;
    *at = (size_t)(end - bytes) + 1;
    return OK;
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return 99;
}

int text_number(const char *value, uint32_t *ret_number) {
    uint64_t number = 0;
    int base = 10;
    if (value[0] == '0' && (value[1] == 'x' || value[1] == 'X')) {
        base = 16;
        value += 2;
    }
    if (value[0] == 0) {
        return ERR_INVALID;
    }
    for (; *value != 0; value++) {
        int digit = digit_value(*value);
        if (digit >= base) {
            return ERR_INVALID;
        }
        number = number * (uint64_t)base + (uint64_t)digit;
        if (number > UINT32_MAX) {
            return ERR_RANGE;
        }
    }
    *ret_number = (uint32_t)number;
    return OK;
}

void text_put(struct text_buffer *text, const char *key, const char *value) {
    size_t key_bytes = strlen(key), value_bytes = strlen(value);
    size_t total = key_bytes + 1 + value_bytes + 1;
    if (total > text->room - text->length) {
        text->overflow = true;
        return;
    }
    uint8_t *at = text->bytes + text->length;
    memcpy(at, key, key_bytes);
    at[key_bytes] = '=';
    memcpy(at + key_bytes + 1, value, value_bytes + 1);
    text->length += total;
}

void text_put_number(struct text_buffer *text, const char *key, uint32_t number) {
    char value[16];
    snprintf(value, sizeof(value), "%u", number);
    text_put(text, key, value);
}
