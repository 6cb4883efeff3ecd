// SPDX-License-Identifier: MPL-2.0
/* CHAP (RFC 1994, as RFC 7143 §12.1.3 carries it): the arithmetic and the binary text of its keys.
 * Which users there are, and when what is asked for, is login.c's. */
#ifndef HOLDFAST_ISCSI_CHAP_H
#define HOLDFAST_ISCSI_CHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "codec/digest.h"

enum {
    CHAP_CHALLENGE_BYTES_MAX = 1024, /* RFC 7143 §12.1.3 */
    CHAP_LIST_BYTES_MAX = 255,
};

/* The first algorithm of a list such as "7,5" (numbers of the registry of RFC 7143 §12.1.3) that we
 * know, with its number; ERR_UNSUPPORTED: none. */
HF_MUST_CHECK int chap_choose(const char *list, enum digest *ret_digest, uint32_t *ret_number);

/* digest(id, secret, challenge). */
HF_MUST_CHECK int chap_response(enum digest digest, uint8_t id, const char *secret,
                                const uint8_t *challenge, size_t challenge_bytes,
                                uint8_t ret_response[DIGEST_RESULT_BYTES_MAX]);

/* Whether `response` is what somebody with the secret would say; in a time that tells nothing. */
bool chap_is_right(enum digest digest, uint8_t id, const char *secret, const uint8_t *challenge,
                   size_t challenge_bytes, const uint8_t *response, size_t response_bytes);

/* Binary values (RFC 7143 §6.1): 0x and hexadecimal digits, or 0b and base64. ERR_INVALID: neither;
 * ERR_LIMIT: longer than `room` bytes. */
HF_MUST_CHECK int chap_binary(const char *text, uint8_t *ret_bytes, size_t room,
                              size_t *ret_length);
/* As hexadecimal digits; `text` holds 2 * length + 3 characters. */
void chap_binary_text(const uint8_t *bytes, size_t length, char *ret_text);

#endif
