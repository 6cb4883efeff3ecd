// SPDX-License-Identifier: MPL-2.0
/* iscsi_bench [OPTION VALUE]… URL… : one figure of any iSCSI target, with libiscsi.
 *
 * Each URL is one session; commands go to the sessions in turn, each of which has `--depth` of them
 * under way. One thread serves all sessions, as one initiator with several paths does. Prints one
 * line of JSON; `"limit": "client"` where this process used a whole core, so that the figure says
 * more about it than about the target.
 *
 *   --test randread|randwrite|read|write   [randread]
 *   --bytes N      a command (sequential tests: 512K)   [4096]
 *   --depth N      commands under way a session         [32]
 *   --seconds N    after a tenth of it to warm up       [5]
 *   --span BYTES   the part of the LUN that is used     [all of it]
 *
 * Writes destroy what the LUN holds. */
#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/math.h"
#include "base/rng.h"

enum { SESSIONS_MAX = 64, DEPTH_MAX = 256, BYTES_MAX = 4 << 20, TIMEOUT_S = 30 };

/* Latencies in buckets of a sixteenth of their power of two. */
enum { BUCKET_BITS = 4, BUCKETS = (64 - BUCKET_BITS + 1) << BUCKET_BITS };

struct slot {
    struct session *session;
    uint64_t began_ns;
    uint8_t *buffer;
    struct scsi_iovec iov; /* the library keeps a pointer to it */
};

struct session {
    struct iscsi_context *iscsi;
    struct iscsi_url *url;
    struct slot slots[DEPTH_MAX];
};

static struct options {
    const char *test;
    uint64_t bytes, depth, seconds, span;
} options = {"randread", 4096, 32, 5, 0};

static struct session sessions[SESSIONS_MAX];
static uint32_t session_count;
static struct rng rng;
static uint32_t block_bytes;
static uint64_t next_offset; /* sequential tests: one stream over all sessions */
static bool is_write, is_random, is_measuring, is_ending;
static uint64_t done_count, in_flight, buckets[BUCKETS], longest_ns;

static uint64_t now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "iscsi_bench: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

/* ---- latencies ---- */

static uint32_t bucket_of(uint64_t ns) {
    if (ns < 1u << BUCKET_BITS) {
        return (uint32_t)ns;
    }
    uint32_t top = 63 - (uint32_t)__builtin_clzll(ns);
    return ((top - BUCKET_BITS + 1) << BUCKET_BITS) +
           (uint32_t)(ns >> (top - BUCKET_BITS) & ((1u << BUCKET_BITS) - 1));
}

static uint64_t bucket_start(uint32_t bucket) {
    uint32_t top = bucket >> BUCKET_BITS, low = bucket & ((1u << BUCKET_BITS) - 1);
    return top == 0 ? low : (uint64_t)(low + (1u << BUCKET_BITS)) << (top - 1);
}

static double quantile_us(double part) {
    uint64_t seen = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        seen += buckets[i];
        if (seen > 0 && (double)seen >= part * (double)done_count) {
            return (double)bucket_start(i) / 1e3;
        }
    }
    return 0;
}

/* ---- commands ---- */

static void start(struct slot *slot);

static void finished(struct iscsi_context *iscsi, int status, void *data, void *private_data) {
    struct scsi_task *task = data;
    struct slot *slot = private_data;
    if (status == SCSI_STATUS_CHECK_CONDITION && task->sense.key == SCSI_SENSE_UNIT_ATTENTION) {
        scsi_free_scsi_task(task); /* something is told, such as a pool that fills up: once more */
        in_flight--;
        start(slot);
        return;
    }
    if (status != SCSI_STATUS_GOOD) {
        die("%s: a command failed with status %#x: %s", slot->session->url->target, status,
            iscsi_get_error(iscsi));
    }
    scsi_free_scsi_task(task);
    in_flight--;
    if (is_measuring) {
        uint64_t ns = now_ns() - slot->began_ns;
        buckets[bucket_of(ns)]++;
        longest_ns = MAX(longest_ns, ns);
        done_count++;
    }
    if (!is_ending) {
        start(slot);
    }
}

static void start(struct slot *slot) {
    struct session *s = slot->session;
    uint64_t offset = next_offset, units = options.span / options.bytes;
    if (is_random) {
        offset = rng_below(&rng, units) * options.bytes;
    } else {
        next_offset = (next_offset + options.bytes) % (units * options.bytes);
    }
    uint32_t length = (uint32_t)options.bytes;
    slot->began_ns = now_ns();
    slot->iov = (struct scsi_iovec){slot->buffer, length};
    struct scsi_task *task =
        is_write
            ? iscsi_write16_iov_task(s->iscsi, s->url->lun, offset / block_bytes, NULL, length,
                                     (int)block_bytes, 0, 0, 0, 0, 0, finished, slot, &slot->iov, 1)
            : iscsi_read16_iov_task(s->iscsi, s->url->lun, offset / block_bytes, length,
                                    (int)block_bytes, 0, 0, 0, 0, 0, finished, slot, &slot->iov, 1);
    if (task == NULL) {
        die("cannot send a command: %s", iscsi_get_error(s->iscsi));
    }
    in_flight++;
}

/* ---- sessions ---- */

static void log_in(struct session *s, const char *text, uint32_t index) {
    char name[64];
    (void)snprintf(name, sizeof(name), "iqn.2026-01.io.holdfast:bench");
    s->iscsi = iscsi_create_context(name);
    s->url = s->iscsi != NULL ? iscsi_parse_full_url(s->iscsi, text) : NULL;
    if (s->url == NULL) {
        die("%s: %s", text, s->iscsi != NULL ? iscsi_get_error(s->iscsi) : "no memory");
    }
    (void)iscsi_set_targetname(s->iscsi, s->url->target);
    (void)iscsi_set_session_type(s->iscsi, ISCSI_SESSION_NORMAL);
    (void)iscsi_set_isid_random(s->iscsi, index + 1, 0); /* each session is a path of its own */
    (void)iscsi_set_timeout(s->iscsi, TIMEOUT_S);
    if (iscsi_full_connect_sync(s->iscsi, s->url->portal, s->url->lun) != 0) {
        die("%s: %s", text, iscsi_get_error(s->iscsi));
    }
}

static void learn_capacity(struct session *s) {
    struct scsi_task *task = iscsi_readcapacity16_sync(s->iscsi, s->url->lun);
    struct scsi_readcapacity16 *capacity =
        task != NULL && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
    if (capacity == NULL) {
        die("READ CAPACITY(16): %s", iscsi_get_error(s->iscsi));
    }
    block_bytes = capacity->block_length;
    uint64_t all = (capacity->returned_lba + 1) * block_bytes;
    options.span = options.span == 0 ? all : MIN(options.span, all);
    scsi_free_scsi_task(task);
    if (options.bytes % block_bytes != 0 || options.span < options.bytes) {
        die("commands of %llu bytes do not suit a LUN of %llu in blocks of %u",
            (unsigned long long)options.bytes, (unsigned long long)all, block_bytes);
    }
}

static void start_all(struct session *s) {
    for (uint32_t i = 0; i < options.depth; i++) {
        s->slots[i].session = s;
        s->slots[i].buffer = malloc(options.bytes);
        if (s->slots[i].buffer == NULL) {
            die("no memory");
        }
        for (uint64_t b = 0; b + 8 <= options.bytes; b += 8) { /* nothing that compresses */
            uint64_t noise = rng_next(&rng);
            memcpy(s->slots[i].buffer + b, &noise, 8);
        }
    }
}

static void serve_until(uint64_t end_ns) {
    while (now_ns() < end_ns || (is_ending && in_flight > 0)) {
        struct pollfd fds[SESSIONS_MAX];
        for (uint32_t i = 0; i < session_count; i++) {
            fds[i] = (struct pollfd){.fd = iscsi_get_fd(sessions[i].iscsi),
                                     .events = (short)iscsi_which_events(sessions[i].iscsi)};
        }
        if (poll(fds, session_count, 100) < 0 && errno != EINTR) {
            die("poll: %s", strerror(errno));
        }
        for (uint32_t i = 0; i < session_count; i++) {
            if (iscsi_service(sessions[i].iscsi, fds[i].revents) != 0) {
                die("%s: %s", sessions[i].url->portal, iscsi_get_error(sessions[i].iscsi));
            }
        }
        if (is_ending && in_flight == 0) {
            break;
        }
    }
}

/* ---- the run ---- */

static void measure(void) {
    for (uint32_t i = 0; i < session_count; i++) {
        for (uint32_t d = 0; d < options.depth; d++) {
            start(&sessions[i].slots[d]);
        }
    }
    serve_until(now_ns() + options.seconds * 100000000);
    is_measuring = true;
    uint64_t begin = now_ns();
    double cpu = cpu_seconds();
    serve_until(begin + options.seconds * 1000000000);
    double seconds = (double)(now_ns() - begin) / 1e9;
    cpu = cpu_seconds() - cpu;
    is_measuring = false;
    is_ending = true;
    double iops = (double)done_count / seconds;
    printf("{\"test\": \"%s\", \"bytes\": %llu, \"depth\": %llu, \"sessions\": %u, "
           "\"iops\": %.0f, \"mb_per_s\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
           "\"worst_us\": %.0f, \"client_cores\": %.2f, \"limit\": \"%s\"}\n",
           options.test, (unsigned long long)options.bytes, (unsigned long long)options.depth,
           session_count, iops, iops * (double)options.bytes / 1e6, quantile_us(0.5),
           quantile_us(0.99), (double)longest_ns / 1e3, cpu / seconds,
           cpu / seconds > 0.95 ? "client" : "target");
    serve_until(now_ns() + 5000000000ull);
    for (uint32_t i = 0; i < session_count; i++) {
        (void)iscsi_logout_sync(sessions[i].iscsi);
        (void)iscsi_destroy_context(sessions[i].iscsi);
    }
}

static bool set_option(const char *name, const char *value) {
    static const struct {
        const char *name;
        uint64_t *value, max;
    } numbers[] = {{"--bytes", &options.bytes, BYTES_MAX},
                   {"--depth", &options.depth, DEPTH_MAX},
                   {"--seconds", &options.seconds, 3600},
                   {"--span", &options.span, UINT64_MAX}};
    if (strcmp(name, "--test") == 0) {
        options.test = value;
        return true;
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = strtoull(value, NULL, 0);
            return *numbers[i].value > 0 && *numbers[i].value <= numbers[i].max;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    static const char *const tests[] = {"read", "randread", "write", "randwrite"};
    int first = 1;
    while (first + 1 < argc && argv[first][0] == '-') {
        if (!set_option(argv[first], argv[first + 1])) {
            die("%s %s: no such option, or out of range", argv[first], argv[first + 1]);
        }
        first += 2;
    }
    session_count = (uint32_t)(argc - first);
    uint32_t test = 0;
    while (test < ARRAY_COUNT(tests) && strcmp(tests[test], options.test) != 0) {
        test++;
    }
    if (test == ARRAY_COUNT(tests) || session_count == 0 || session_count > SESSIONS_MAX) {
        die("usage: iscsi_bench [--test read|write|randread|randwrite] [--bytes N] [--depth N] "
            "[--seconds N] [--span BYTES] URL…");
    }
    is_write = test >= 2;
    is_random = test % 2 == 1;
    rng_init(&rng, now_ns());
    for (uint32_t i = 0; i < session_count; i++) {
        log_in(&sessions[i], argv[first + (int)i], i);
        start_all(&sessions[i]);
    }
    learn_capacity(&sessions[0]);
    measure();
    return 0;
}
