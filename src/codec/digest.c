// SPDX-License-Identifier: MPL-2.0
#include "codec/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/assert.h"

static const struct {
    const EVP_MD *(*method)(void);
    uint32_t bytes;
} digests[DIGEST_COUNT] = {
    [DIGEST_MD5] = {EVP_md5, 16},
    [DIGEST_SHA1] = {EVP_sha1, 20},
    [DIGEST_SHA256] = {EVP_sha256, 32},
    [DIGEST_SHA3_256] = {EVP_sha3_256, 32},
};

uint32_t digest_bytes(enum digest digest) {
    ASSERT(digest < DIGEST_COUNT);
    return digests[digest].bytes;
}

int digest_compute(enum digest digest, const struct iovec *pieces, uint32_t count,
                   uint8_t ret_result[DIGEST_RESULT_BYTES_MAX]) {
    ASSERT(digest < DIGEST_COUNT);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ASSERT(context != NULL);
    bool good = EVP_DigestInit_ex(context, digests[digest].method(), NULL) == 1;
    for (uint32_t i = 0; good && i < count; i++) {
        good = EVP_DigestUpdate(context, pieces[i].iov_base, pieces[i].iov_len) == 1;
    }
    good = good && EVP_DigestFinal_ex(context, ret_result, NULL) == 1;
    EVP_MD_CTX_free(context);
    return good ? OK : ERR_UNSUPPORTED;
}

bool secret_is_equal(const void *a, const void *b, size_t bytes) {
    return CRYPTO_memcmp(a, b, bytes) == 0;
}

void secret_wipe(void *bytes, size_t length) {
    OPENSSL_cleanse(bytes, length);
}
