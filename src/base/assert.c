// SPDX-License-Identifier: MPL-2.0
#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void assert_failed(const char *file, int line, const char *what) {
    (void)fprintf(stderr, "holdfast: %s:%d: assertion failed: %s\n", file, line, what);
    abort();
}

_Noreturn void assert_compare_failed(const char *file, int line, const char *what, uint64_t a,
                                     uint64_t b) {
    (void)fprintf(stderr,
                  "holdfast: %s:%d: assertion failed: %s (%" PRIu64 " against %" PRIu64 ")\n", file,
                  line, what, a, b);
    abort();
}
