// SPDX-License-Identifier: MPL-2.0
#include "control/smart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { ASKED_MAX = 128, ANSWER_MAX = 256 << 10 };

extern char **environ;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stopping;
    struct asked {
        char path[256];
        bool wanted;
        int64_t at; /* asked last; CLOCK_MONOTONIC, seconds */
        json_t *known;
    } asked[ASKED_MAX];
    int count;
} smart = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int64_t now_s(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

/* ---- smartctl ---- */

static pid_t spawn(const char *path, int *ret_fd) {
    int ends[2];
    pid_t pid = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    char *const argv[] = {"smartctl", "--json", "--health", "--attributes", (char *)(uintptr_t)path,
                          NULL};
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, "smartctl", &actions, NULL, argv, environ) != 0) {
        pid = -1;
        (void)close(ends[0]);
    } else {
        *ret_fd = ends[0];
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    return pid;
}

/* All that it prints, until it ends, takes too long, or nobody wants to know any more. */
static size_t listen_to(int fd, char *text) {
    size_t length = 0;
    for (int64_t until = now_s() + SMART_WAIT_S; now_s() < until && length < ANSWER_MAX;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        pthread_mutex_lock(&smart.lock);
        bool stopping = smart.stopping;
        pthread_mutex_unlock(&smart.lock);
        if (stopping) {
            return 0;
        }
        if (poll(&p, 1, 200) <= 0) {
            continue;
        }
        ssize_t n = read(fd, text + length, ANSWER_MAX - length);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return n == 0 ? length : 0;
        }
        length += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A process that hangs in the kernel cannot be killed; init inherits it when this one ends. */
static void reap(pid_t pid, bool ended) {
    if (!ended) {
        (void)kill(pid, SIGKILL);
    }
    for (int i = 0; i < 10 && waitpid(pid, NULL, WNOHANG) == 0; i++) {
        (void)poll(NULL, 0, 20);
    }
}

/* ---- its answer ---- */

static void take(json_t *to, const char *key, const json_t *value) {
    if (json_is_integer(value) || json_is_boolean(value)) {
        (void)json_object_set(to, key, (json_t *)(uintptr_t)value);
    }
}

static void take_attributes(json_t *to, const json_t *answer) {
    static const struct {
        int id;
        const char *key;
    } wanted[] = {{5, "reallocated"}, {197, "pending"}, {198, "uncorrectable"}};
    const json_t *table = json_object_get(json_object_get(answer, "ata_smart_attributes"), "table");
    size_t i;
    json_t *line;
    json_array_foreach(table, i, line) {
        for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++) {
            if (json_integer_value(json_object_get(line, "id")) == wanted[k].id) {
                take(to, wanted[k].key, json_object_get(json_object_get(line, "raw"), "value"));
            }
        }
    }
}

static json_t *understand(const char *text, size_t length) {
    json_t *answer = json_loadb(text, length, 0, NULL), *known = json_object();
    const json_t *nvme = json_object_get(answer, "nvme_smart_health_information_log");
    take(known, "passed", json_object_get(json_object_get(answer, "smart_status"), "passed"));
    take(known, "power_on_hours",
         json_object_get(json_object_get(answer, "power_on_time"), "hours"));
    take(known, "temperature_celsius",
         json_object_get(json_object_get(answer, "temperature"), "current"));
    take(known, "media_errors", json_object_get(nvme, "media_errors"));
    take(known, "percentage_used", json_object_get(nvme, "percentage_used"));
    take_attributes(known, answer);
    json_decref(answer);
    if (json_object_size(known) == 0) {
        json_decref(known);
        return NULL;
    }
    (void)json_object_set_new(known, "asked_unix", json_integer((json_int_t)time(NULL)));
    return known;
}

static json_t *ask_disk(const char *path) {
    int fd = -1;
    pid_t pid = spawn(path, &fd);
    if (pid < 0) {
        return NULL;
    }
    char *text = mem_alloc(ANSWER_MAX);
    size_t length = listen_to(fd, text);
    (void)close(fd);
    reap(pid, length > 0);
    json_t *known = understand(text, length);
    mem_free(text);
    return known;
}

/* ---- the thread ---- */

static struct asked *next_wanted(void) {
    for (int i = 0; i < smart.count; i++) {
        if (smart.asked[i].wanted) {
            return &smart.asked[i];
        }
    }
    return NULL;
}

static void *run(void *arg) {
    (void)arg;
    pthread_mutex_lock(&smart.lock);
    while (!smart.stopping) {
        struct asked *a = next_wanted();
        if (a == NULL) {
            (void)pthread_cond_wait(&smart.changed, &smart.lock);
            continue;
        }
        char path[sizeof(a->path)];
        (void)snprintf(path, sizeof(path), "%s", a->path);
        a->wanted = false;
        a->at = now_s();
        pthread_mutex_unlock(&smart.lock);
        json_t *known = ask_disk(path);
        pthread_mutex_lock(&smart.lock);
        if (known != NULL) {
            json_decref(a->known);
            a->known = known;
        }
    }
    pthread_mutex_unlock(&smart.lock);
    return NULL;
}

void smart_start(void) {
    pthread_mutex_lock(&smart.lock);
    smart.stopping = false;
    smart.running = pthread_create(&smart.thread, NULL, run, NULL) == 0;
    pthread_mutex_unlock(&smart.lock);
}

void smart_stop(void) {
    pthread_mutex_lock(&smart.lock);
    bool running = smart.running;
    smart.stopping = true;
    pthread_cond_signal(&smart.changed);
    pthread_mutex_unlock(&smart.lock);
    if (running) {
        (void)pthread_join(smart.thread, NULL);
    }
    pthread_mutex_lock(&smart.lock);
    smart.running = false;
    for (int i = 0; i < smart.count; i++) {
        json_decref(smart.asked[i].known);
    }
    memset(smart.asked, 0, sizeof(smart.asked));
    smart.count = 0;
    pthread_mutex_unlock(&smart.lock);
}

static struct asked *find(const char *path) {
    for (int i = 0; i < smart.count; i++) {
        if (strcmp(smart.asked[i].path, path) == 0) {
            return &smart.asked[i];
        }
    }
    struct stat st; /* of the node in /dev, not of what is behind it */
    if (smart.count == ASKED_MAX || strncmp(path, "/dev/", 5) != 0 || stat(path, &st) != 0 ||
        !S_ISBLK(st.st_mode)) {
        return NULL;
    }
    struct asked *a = &smart.asked[smart.count++];
    (void)snprintf(a->path, sizeof(a->path), "%s", path);
    a->at = now_s() - 2 * SMART_FRESH_S;
    return a;
}

json_t *smart_look(const char *path, int ask) {
    json_t *known = NULL;
    pthread_mutex_lock(&smart.lock);
    struct asked *a = smart.running && !smart.stopping ? find(path) : NULL;
    if (a != NULL) {
        if (ask || now_s() - a->at > SMART_FRESH_S) {
            a->wanted = true;
            pthread_cond_signal(&smart.changed);
        }
        known = json_deep_copy(a->known);
    }
    pthread_mutex_unlock(&smart.lock);
    return known;
}
