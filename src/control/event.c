// SPDX-License-Identifier: MPL-2.0
#include "control/event.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "control/answer.h"
#include "control/config.h"
#include "control/schema.h"
#include "env/env.h"

enum {
    RING_SESSIONS = EVENT_SEVERITIES, /* beside one for each severity */
    RINGS,
    FILE_LINES_MAX = 2 * RINGS * EVENTS_KEPT,
    FILE_BYTES_MAX = 16 << 20, /* nothing of ours is larger */
    BATCH_MS = 200,
    SAVE_MS = 1000,
};

static const struct {
    const char *name;
    enum event_severity severity;
    const char *advice;
} kinds[EVENT_KINDS] = {
#define X(kind, name, severity, advice) [EVENT_##kind] = {name, EVENT_##severity, advice},
    EVENT_LIST(X)
#undef X
};

static const char *const severities[EVENT_SEVERITIES] = {"info", "warning", "error"};

struct kept {
    uint64_t number;
    int64_t at_ns; /* since 1970 */
    enum event_kind kind;
    char pool[64];
    char *text;
};

struct ring {
    uint64_t count; /* ever; the n-th is at n % EVENTS_KEPT */
    struct kept kept[EVENTS_KEPT];
};

/* One process, one log. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t noted; /* CLOCK_REALTIME; waits are short and repeated */
    uint64_t last;        /* number */
    struct ring rings[RINGS];
    bool hushed;

    /* of the file */
    bool open, closing, unsaved_said;
    uint64_t hurry;         /* up to this number, at once */
    pthread_cond_t written; /* CLOCK_REALTIME */
    char folder[CONFIG_VALUE_MAX];
    pthread_t writer;
    uint64_t saved; /* up to this number */
    uint64_t lines;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .noted = PTHREAD_COND_INITIALIZER,
            .written = PTHREAD_COND_INITIALIZER};

const char *event_severity_name(enum event_severity severity) {
    return severities[severity];
}

bool event_severity_parse(const char *name, enum event_severity *ret_severity) {
    for (int i = 0; i < EVENT_SEVERITIES; i++) {
        if (strcmp(name, severities[i]) == 0) {
            *ret_severity = (enum event_severity)i;
            return true;
        }
    }
    return false;
}

/* ---- what is kept; all with the lock held ---- */

static struct ring *ring_of(enum event_kind kind) {
    switch (kind) {
    case EVENT_LOGIN:
    case EVENT_LOGIN_REFUSED:
    case EVENT_CONNECTION_ENDED:
    case EVENT_SESSION_LOST:
        return &events.rings[RING_SESSIONS];
    default:
        return &events.rings[kinds[kind].severity];
    }
}

static void keep(uint64_t number, int64_t at_ns, enum event_kind kind, const char *pool,
                 const char *text) {
    struct ring *ring = ring_of(kind);
    struct kept *kept = &ring->kept[ring->count++ % EVENTS_KEPT];
    mem_free(kept->text);
    *kept = (struct kept){number, at_ns, kind, "", mem_strdup(text)};
    (void)snprintf(kept->pool, sizeof(kept->pool), "%s", pool);
    events.last = number;
}

static void forget_all(void) {
    for (int r = 0; r < RINGS; r++) {
        for (int i = 0; i < EVENTS_KEPT; i++) {
            mem_free(events.rings[r].kept[i].text);
        }
        memset(&events.rings[r], 0, sizeof(events.rings[r]));
    }
    events.last = events.saved = events.lines = 0;
}

/* A walk over all that is kept, in order of number. */
struct walk {
    uint64_t at[RINGS];
};

static struct walk walk_begin(void) {
    struct walk walk;
    for (int r = 0; r < RINGS; r++) {
        uint64_t count = events.rings[r].count;
        walk.at[r] = count > EVENTS_KEPT ? count - EVENTS_KEPT : 0;
    }
    return walk;
}

static const struct kept *walk_next(struct walk *walk) {
    const struct kept *next = NULL;
    int from = 0;
    for (int r = 0; r < RINGS; r++) {
        const struct ring *ring = &events.rings[r];
        const struct kept *kept = &ring->kept[walk->at[r] % EVENTS_KEPT];
        if (walk->at[r] < ring->count && (next == NULL || kept->number < next->number)) {
            next = kept;
            from = r;
        }
    }
    walk->at[from] += next != NULL;
    return next;
}

/* ---- noting ---- */

static int64_t wall_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * (int64_t)NS_PER_S + ts.tv_nsec;
}

/* Written at once, so that lines of several threads never mix. */
static void print_line(enum event_kind kind, const char *pool, const char *text) {
    char line[EVENT_TEXT_MAX + 512];
    const char *advice = kinds[kind].severity == EVENT_INFO ? "" : kinds[kind].advice;
    int length =
        snprintf(line, sizeof(line) - 1, "holdfast: %s%s%s%s%s%s", pool[0] != '\0' ? "pool " : "",
                 pool, pool[0] != '\0' ? ": " : "", text, advice[0] != '\0' ? "; " : "", advice);
    size_t used = length < (int)sizeof(line) - 1 ? (size_t)length : sizeof(line) - 2;
    line[used++] = '\n';
    for (size_t at = 0; at < used;) {
        ssize_t wrote = write(STDERR_FILENO, line + at, used - at);
        if (wrote <= 0) {
            return; /* nobody to tell */
        }
        at += (size_t)wrote;
    }
}

void event_note(enum event_kind kind, const char *pool, const char *fmt, ...) {
    char text[EVENT_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (length < 0) {
        return;
    }
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    pool = pool != NULL ? pool : "";
    print_line(kind, pool, text);
    pthread_mutex_lock(&events.lock);
    keep(events.last + 1, wall_ns(), kind, pool, text);
    pthread_cond_broadcast(&events.noted);
    pthread_mutex_unlock(&events.lock);
}

/* ---- listing ---- */

static json_t *event_json(const struct kept *kept) {
    char at[40];
    struct tm tm;
    time_t seconds = (time_t)(kept->at_ns / (int64_t)NS_PER_S);
    (void)gmtime_r(&seconds, &tm);
    size_t used = strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(at + used, sizeof(at) - used, ".%03dZ",
                   (int)(kept->at_ns % (int64_t)NS_PER_S / (int64_t)NS_PER_MS));
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:o, s:s}", "number", (json_int_t)kept->number,
                     "time", at, "severity", severities[kinds[kept->kind].severity], "kind",
                     kinds[kept->kind].name, "pool", kept->pool, "text", answer_text(kept->text),
                     "advice", kinds[kept->kind].advice);
}

static bool fits(const struct event_filter *filter, const struct kept *kept) {
    return kept->number > filter->after && kinds[kept->kind].severity >= filter->least &&
           kept->at_ns / (int64_t)NS_PER_S >= filter->since_unix_s &&
           (filter->pool == NULL || strcmp(filter->pool, kept->pool) == 0);
}

json_t *event_list(const struct event_filter *filter, uint32_t wait_s) {
    json_t *list = json_array();
    int64_t end_ns = wall_ns() + (int64_t)wait_s * (int64_t)NS_PER_S;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / (int64_t)NS_PER_S)};
    pthread_mutex_lock(&events.lock);
    for (int errnum = 0;;) {
        struct walk walk = walk_begin();
        const struct kept *kept;
        while ((kept = walk_next(&walk)) != NULL) {
            if (fits(filter, kept)) {
                (void)json_array_append_new(list, event_json(kept));
            }
        }
        if (json_array_size(list) > 0 || wait_s == 0 || events.hushed || errnum != 0) {
            break;
        }
        errnum = pthread_cond_timedwait(&events.noted, &events.lock, &end);
    }
    pthread_mutex_unlock(&events.lock);
    return list;
}

uint64_t event_last(void) {
    pthread_mutex_lock(&events.lock);
    uint64_t last = events.last;
    pthread_mutex_unlock(&events.lock);
    return last;
}

/* ---- the file ---- */

struct text {
    char *bytes;
    size_t used;
    uint64_t lines, last; /* the number of the last one */
};

/* Lines of what is kept behind `after`. With the lock held. */
static struct text lines_after(uint64_t after) {
    struct text text = {.last = after};
    struct walk walk = walk_begin();
    const struct kept *kept;
    while ((kept = walk_next(&walk)) != NULL) {
        if (kept->number <= after) {
            continue;
        }
        json_t *object = json_pack("{s:I, s:I, s:s, s:s, s:o}", "n", (json_int_t)kept->number, "at",
                                   (json_int_t)kept->at_ns, "kind", kinds[kept->kind].name, "pool",
                                   kept->pool, "text", answer_text(kept->text));
        char *line = json_dumps(object, JSON_COMPACT);
        size_t length = line != NULL ? strlen(line) : 0;
        json_decref(object);
        text.bytes = mem_realloc(text.bytes, text.used + length + 1);
        memcpy(text.bytes + text.used, line != NULL ? line : "", length);
        text.used += length;
        text.bytes[text.used++] = '\n';
        text.lines++;
        text.last = kept->number;
        free(line);
    }
    return text;
}

static bool write_all(int fd, const struct text *text) {
    for (size_t at = 0; at < text->used;) {
        ssize_t wrote = write(fd, text->bytes + at, text->used - at);
        if (wrote <= 0) {
            errno = wrote == 0 ? ENOSPC : errno;
            return false;
        }
        at += (size_t)wrote;
    }
    return fdatasync(fd) == 0;
}

/* Appends, or writes the file anew. No lock: only the writer does this. */
static bool save(const char *folder, const struct text *text, bool anew) {
    char path[CONFIG_VALUE_MAX + 16], aside[CONFIG_VALUE_MAX + 16];
    (void)snprintf(path, sizeof(path), "%s/events", folder);
    (void)snprintf(aside, sizeof(aside), "%s/events~", folder);
    (void)mkdir(folder, 0750);
    int fd = open(anew ? aside : path, O_WRONLY | O_CREAT | O_CLOEXEC | (anew ? O_TRUNC : O_APPEND),
                  0600);
    if (fd < 0) {
        return false;
    }
    bool good = write_all(fd, text);
    int errnum = errno;
    good = close(fd) == 0 && good;
    good = good && (!anew || rename(aside, path) == 0);
    errno = good ? 0 : errnum;
    return good;
}

static struct timespec ms_from_now(int64_t ms) {
    int64_t at_ns = wall_ns() + ms * (int64_t)NS_PER_MS;
    return (struct timespec){.tv_sec = (time_t)(at_ns / (int64_t)NS_PER_S),
                             .tv_nsec = (long)(at_ns % (int64_t)NS_PER_S)};
}

static void wait_batch(void) {
    const struct timespec at = ms_from_now(BATCH_MS);
    while (!events.closing && events.saved >= events.hurry &&
           pthread_cond_timedwait(&events.noted, &events.lock, &at) == 0) {
    }
}

static void *writer_run(void *arg) {
    (void)arg;
    pthread_mutex_lock(&events.lock);
    while (!events.closing || events.saved < events.last) {
        if (events.saved == events.last) {
            (void)pthread_cond_wait(&events.noted, &events.lock);
            continue;
        }
        wait_batch(); /* what goes wrong goes wrong in heaps */
        bool anew = events.lines > FILE_LINES_MAX;
        struct text text = lines_after(anew ? 0 : events.saved);
        char folder[sizeof(events.folder)];
        memcpy(folder, events.folder, sizeof(folder));
        pthread_mutex_unlock(&events.lock);
        bool good = save(folder, &text, anew);
        int errnum = errno;
        pthread_mutex_lock(&events.lock);
        events.lines = (anew ? 0 : events.lines) + text.lines;
        pthread_cond_broadcast(&events.written);
        events.saved = text.last; /* tried once: what cannot be kept is in the log */
        mem_free(text.bytes);
        bool say = !good && !events.unsaved_said;
        events.unsaved_said = !good;
        if (say) {
            pthread_mutex_unlock(&events.lock);
            event_note(EVENT_STATE_UNSAVED, NULL, "events cannot be kept in %s: %s", folder,
                       strerror(errnum));
            pthread_mutex_lock(&events.lock);
        }
    }
    pthread_mutex_unlock(&events.lock);
    return NULL;
}

static const struct field line_fields[] = {{"n", FIELD_UINT, true, 1, INT64_MAX},
                                           {"at", FIELD_UINT, true, 0, INT64_MAX},
                                           {"kind", FIELD_TEXT, true, 1, 64},
                                           {"pool", FIELD_TEXT, true, 0, 63},
                                           {"text", FIELD_TEXT, true, 0, 3 * EVENT_TEXT_MAX},
                                           {NULL}};

/* What is no event of ours, or of no kind that this version knows, is left out. */
static void recall_line(const char *line, size_t length) {
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    if (object != NULL && schema_check(line_fields, object, NULL) == OK) {
        uint64_t number = schema_uint(object, "n", 0);
        const char *name = schema_text(object, "kind", "");
        for (int kind = 0; kind < EVENT_KINDS && number > events.last; kind++) {
            if (strcmp(kinds[kind].name, name) == 0) {
                keep(number, (int64_t)schema_uint(object, "at", 0), (enum event_kind)kind,
                     schema_text(object, "pool", ""), schema_text(object, "text", ""));
            }
        }
    }
    json_decref(object);
}

static void recall(const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes; events.lines++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        recall_line(text + at, length);
        at += length + 1;
    }
    if (bytes > 0 && text[bytes - 1] != '\n') {
        events.lines = FILE_LINES_MAX + 1; /* cut off: nothing is appended to that */
    }
}

void event_recall(const char *text, size_t bytes) {
    pthread_mutex_lock(&events.lock);
    ASSERT(!events.open);
    forget_all();
    recall(text, bytes);
    pthread_mutex_unlock(&events.lock);
}

static void recall_file(void) {
    char path[CONFIG_VALUE_MAX + 16];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/events", events.folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    size_t size = fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= FILE_BYTES_MAX
                      ? (size_t)st.st_size
                      : 0;
    char *text = mem_alloc(size + 1);
    ssize_t got = read(fd, text, size);
    close(fd);
    recall(text, got > 0 ? (size_t)got : 0);
    mem_free(text);
}

/* Whether the last run ended without saying so. */
static bool was_running(void) {
    bool running = false;
    struct walk walk = walk_begin();
    const struct kept *kept;
    while ((kept = walk_next(&walk)) != NULL) {
        running = kept->kind == EVENT_STARTED ||
                  (running && kept->kind != EVENT_STOPPED && kept->kind != EVENT_STOP_INCOMPLETE);
    }
    return running;
}

void event_open(const char *state_dir) {
    pthread_mutex_lock(&events.lock);
    ASSERT(!events.open);
    forget_all();
    (void)snprintf(events.folder, sizeof(events.folder), "%s", state_dir);
    recall_file();
    bool crashed = was_running();
    events.saved = events.hurry = events.last;
    events.open = true;
    events.closing = events.hushed = events.unsaved_said = false;
    int errnum = pthread_create(&events.writer, NULL, writer_run, NULL);
    ASSERT(errnum == 0);
    pthread_mutex_unlock(&events.lock);
    if (crashed) {
        event_note(EVENT_NOT_STOPPED, NULL, "the last run of the service ended without a stop");
    }
}

void event_save(void) {
    pthread_mutex_lock(&events.lock);
    const struct timespec at = ms_from_now(SAVE_MS);
    uint64_t wanted = events.hurry = events.last;
    pthread_cond_broadcast(&events.noted);
    while (events.open && events.saved < wanted &&
           pthread_cond_timedwait(&events.written, &events.lock, &at) == 0) {
    }
    pthread_mutex_unlock(&events.lock);
}

void event_hush(void) {
    pthread_mutex_lock(&events.lock);
    events.hushed = true;
    pthread_cond_broadcast(&events.noted);
    pthread_mutex_unlock(&events.lock);
}

void event_close(void) {
    pthread_mutex_lock(&events.lock);
    bool open = events.open;
    events.closing = true;
    pthread_cond_broadcast(&events.noted);
    pthread_mutex_unlock(&events.lock);
    if (open) {
        ASSERT(pthread_join(events.writer, NULL) == 0);
    }
    pthread_mutex_lock(&events.lock);
    events.open = false;
    pthread_mutex_unlock(&events.lock);
}
