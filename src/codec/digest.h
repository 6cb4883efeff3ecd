// SPDX-License-Identifier: MPL-2.0
/* Cryptographic digests (libcrypto), for authentication. Checksums of data are codec/crc.h. */
#ifndef HOLDFAST_CODEC_DIGEST_H
#define HOLDFAST_CODEC_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum digest { DIGEST_MD5, DIGEST_SHA1, DIGEST_SHA256, DIGEST_SHA3_256, DIGEST_COUNT };
enum { DIGEST_RESULT_BYTES_MAX = 32 };

uint32_t digest_bytes(enum digest digest);
/* Of the pieces, one after another. ERR_UNSUPPORTED: the library was built or configured without
 * it (MD5 under FIPS rules). */
HF_MUST_CHECK int digest_compute(enum digest digest, const struct iovec *pieces, uint32_t count,
                                 uint8_t ret_result[DIGEST_RESULT_BYTES_MAX]);

/* In a time that depends on `bytes` only. */
bool secret_is_equal(const void *a, const void *b, size_t bytes);
/* Overwrites, and the compiler may not leave it out. */
void secret_wipe(void *bytes, size_t length);

#endif
