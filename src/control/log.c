// SPDX-License-Identifier: MPL-2.0
#include "control/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void log_line(const char *fmt, ...) {
    static const char prefix[] = "holdfast: ";
    enum { PREFIX = sizeof(prefix) - 1 };
    char line[1200];
    va_list args;
    (void)snprintf(line, sizeof(line), "%s", prefix);
    va_start(args, fmt);
    int length = vsnprintf(line + PREFIX, sizeof(line) - PREFIX - 1, fmt, args);
    va_end(args);
    if (length < 0) {
        return;
    }
    size_t used = PREFIX + (size_t)length;
    if (used > sizeof(line) - 2) {
        used = sizeof(line) - 2;
    }
    for (size_t i = 0; i < used; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[used++] = '\n';
    for (size_t at = 0; at < used;) {
        ssize_t wrote = write(STDERR_FILENO, line + at, used - at);
        if (wrote <= 0) {
            return; /* nobody to tell */
        }
        at += (size_t)wrote;
    }
}
