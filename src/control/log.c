// SPDX-License-Identifier: MPL-2.0
#include "control/log.h"

#include "control/answer.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 1000 };

/* One process, one log. */
static struct {
    pthread_mutex_t lock;
    uint64_t count; /* ever said */
    struct {
        struct timespec at;
        char text[TEXT_BYTES];
    } kept[LOG_KEPT_MAX]; /* line n at n % LOG_KEPT_MAX */
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(const char *text, size_t length) {
    pthread_mutex_lock(&said.lock);
    uint64_t place = said.count++ % LOG_KEPT_MAX;
    (void)clock_gettime(CLOCK_REALTIME, &said.kept[place].at);
    (void)snprintf(said.kept[place].text, TEXT_BYTES, "%.*s", (int)length, text);
    pthread_mutex_unlock(&said.lock);
}

json_t *log_events(void) {
    json_t *list = json_array();
    pthread_mutex_lock(&said.lock);
    uint64_t first = said.count > LOG_KEPT_MAX ? said.count - LOG_KEPT_MAX : 0;
    for (uint64_t n = first; n < said.count; n++) {
        uint64_t place = n % LOG_KEPT_MAX;
        char at[40];
        struct tm tm;
        (void)gmtime_r(&said.kept[place].at.tv_sec, &tm);
        size_t used = strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &tm);
        (void)snprintf(at + used, sizeof(at) - used, ".%03ldZ",
                       said.kept[place].at.tv_nsec / 1000000);
        (void)json_array_append_new(list, json_pack("{s:I, s:s, s:o}", "number",
                                                    (json_int_t)(n + 1), "time", at, "text",
                                                    answer_text(said.kept[place].text)));
    }
    pthread_mutex_unlock(&said.lock);
    return list;
}

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
    keep(line + PREFIX, used - PREFIX);
    line[used++] = '\n';
    for (size_t at = 0; at < used;) {
        ssize_t wrote = write(STDERR_FILENO, line + at, used - at);
        if (wrote <= 0) {
            return; /* nobody to tell */
        }
        at += (size_t)wrote;
    }
}
