// SPDX-License-Identifier: MPL-2.0
/* Sizes as people type them: whatever is accepted must be shown, and what is shown must be
 * accepted again and come close (three digits). */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[256];
    if (bytes >= sizeof(text)) {
        return 0;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    uint64_t size = 0;
    if (size_parse(text, &size) != OK) {
        return 0;
    }
    if (size > UINT64_MAX / 64 * 63) {
        return 0; /* is shown rounded up, as 16 EiB, which is one more than there can be */
    }
    char shown[32];
    uint64_t again = 0;
    size_format(size, shown, sizeof(shown));
    if (size_parse(shown, &again) != OK) {
        abort();
    }
    uint64_t apart = again > size ? again - size : size - again;
    if (apart > size / 100) {
        abort();
    }
    return 0;
}
