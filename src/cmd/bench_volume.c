// SPDX-License-Identifier: MPL-2.0
#include "cmd/bench_volume.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cmd/client.h"
#include "control/answer.h"
#include "control/schema.h"

enum { LOOK_MS = 250, LINE_BYTES = 4096 };

#define SCHEME "volume:"

bool bench_volume_is_target(const char *target) {
    return strncmp(target, SCHEME, strlen(SCHEME)) == 0;
}

/* ---- which volume ---- */

/* Of the only pool that has it. */
static int find_pool(const struct args *args, const char *name, char ret_pool[64],
                     struct errmsg *reterr) {
    json_t *list, *pool, *answer;
    size_t index;
    uint32_t found = 0;
    int error = client_call(args, "GET", "/v1/pools", NULL, &list, reterr);
    if (error != OK) {
        return error;
    }
    json_array_foreach(json_object_get(list, "pools"), index, pool) {
        char path[192];
        struct errmsg ignored = {0};
        (void)snprintf(path, sizeof(path), "/v1/pools/%.63s/volumes/%.63s",
                       client_text_of(pool, "name"), name);
        if (client_call(args, "GET", path, NULL, &answer, &ignored) == OK) {
            (void)snprintf(ret_pool, 64, "%s", client_text_of(pool, "name"));
            json_decref(answer);
            found++;
        }
    }
    json_decref(list);
    return found == 1 ? OK
                      : errmsg_set(reterr, found == 0 ? ERR_NOT_FOUND : ERR_INVALID,
                                   found == 0 ? "no pool that is served here has a volume %.63s"
                                              : "several pools have a volume %.63s; write "
                                                "volume:POOL/NAME",
                                   name);
}

static int resolve(const struct args *args, const char *target, char ret_pool[64],
                   char ret_name[64], struct errmsg *reterr) {
    const char *name = target + strlen(SCHEME);
    if (strchr(name, '/') != NULL) {
        return client_split(name, "VOLUME", ret_pool, ret_name, reterr);
    }
    if (!schema_name_is_valid(name)) {
        return errmsg_set(reterr, ERR_INVALID, "\"%.80s\" is no volume; write volume:POOL/NAME",
                          target);
    }
    (void)snprintf(ret_name, 64, "%s", name);
    return find_pool(args, name, ret_pool, reterr);
}

/* ---- what is wished ---- */

static int add_lines(json_t *body, const char *job_file, struct errmsg *reterr) {
    char line[LINE_BYTES];
    json_t *lines = json_array();
    FILE *file = fopen(job_file, "re");
    (void)json_object_set_new(body, "job_lines", lines);
    if (file == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "%s: %s", job_file, strerror(errno));
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        for (char *tab = line; (tab = strchr(tab, '\t')) != NULL;) {
            *tab = ' ';
        }
        (void)json_array_append_new(lines, json_pack("{s:o}", "line", answer_text(line)));
    }
    (void)fclose(file);
    return OK;
}

static json_t *wish_json(const struct args *args, const struct bench_options *o) {
    json_t *body = json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b}", "seconds",
                             (json_int_t)o->seconds, "ramp_seconds", (json_int_t)o->ramp_seconds,
                             "runs", (json_int_t)o->runs, "jobs", (json_int_t)o->threads, "streams",
                             (json_int_t)o->streams, "read_only", (int)o->read_only, "prepared",
                             (int)o->prepared, "destroy_data", (int)o->destroy_data);
    json_t *depths = json_array();
    for (uint32_t i = 0; i < o->depth_count; i++) {
        (void)json_array_append_new(depths, json_pack("{s:I}", "depth", (json_int_t)o->depths[i]));
    }
    (void)json_object_set_new(body, "queue_depths", depths);
    if (o->span_bytes > 0) {
        (void)json_object_set_new(body, "span_bytes", json_integer((json_int_t)o->span_bytes));
    }
    if (args->given[OPT_DURING]) {
        (void)json_object_set_new(body, "during", answer_text(args->text[OPT_DURING]));
    }
    return body;
}

/* ---- following it ---- */

static json_int_t number_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void show(const json_t *answer, const struct bench_watcher *watcher, size_t *notes) {
    const json_t *list = json_object_get(answer, "notes"), *p = json_object_get(answer, "progress");
    for (; *notes < json_array_size(list); (*notes)++) {
        const char *text = json_string_value(json_array_get(list, *notes));
        watcher->note(watcher->owner, text != NULL ? text : "");
    }
    if (!json_is_object(p)) {
        return;
    }
    const struct bench_progress progress = {
        .phase = client_text_of(p, "phase"),
        .test = client_text_of(p, "test"),
        .queue_depth = (uint32_t)number_of(p, "queue_depth"),
        .run = (uint32_t)number_of(p, "run"),
        .runs = (uint32_t)number_of(p, "runs"),
        .unit = strcmp(client_text_of(p, "unit"), "mb_s") == 0 ? BENCH_MB_S : BENCH_IOPS,
        .rate = json_number_value(json_object_get(p, "rate")),
        .done = json_number_value(json_object_get(p, "done")),
        .left_seconds = (uint64_t)number_of(p, "left_seconds")};
    watcher->progress(watcher->owner, &progress);
}

/* Until it has ended, which is asked for when `stop` is set. *answer is replaced. */
static int follow(const struct args *args, const struct bench_watcher *watcher, json_t **answer,
                  struct errmsg *reterr) {
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    json_int_t job = number_of(*answer, "job");
    bool told = false;
    size_t notes = 0;
    for (;;) {
        show(*answer, watcher, &notes);
        if (!json_is_true(json_object_get(*answer, "running"))) {
            return OK;
        }
        (void)nanosleep(&pause, NULL);
        bool stops = !told && atomic_load(watcher->stop);
        json_t *next;
        struct errmsg why = {0};
        int error = client_call(args, stops ? "POST" : "GET",
                                stops ? "/v1/bench/stop" : "/v1/bench", NULL, &next, &why);
        told |= stops;
        if (error == ERR_NOT_FOUND && stops) { /* it has just ended */
            continue;
        }
        if (error != OK) {
            return errmsg_set(reterr, error, "%s", why.text);
        }
        json_decref(*answer);
        *answer = next;
        if (number_of(next, "job") != job) {
            return errmsg_set(reterr, ERR_BUSY, "another measurement has begun in its place");
        }
    }
}

int bench_volume_run(const struct args *args, const char *target,
                     const struct bench_options *options, const char *job_file,
                     const struct bench_watcher *watcher, struct bench_document *ret_document,
                     struct errmsg *reterr) {
    char pool[64], name[64], path[192];
    json_t *answer = NULL;
    *ret_document = (struct bench_document){0};
    int error = resolve(args, target, pool, name, reterr);
    if (error != OK) {
        return error;
    }
    json_t *body = wish_json(args, options);
    if (job_file != NULL) {
        error = add_lines(body, job_file, reterr);
    } else {
        (void)json_object_set_new(body, "workload", json_string(args->verb->name));
    }
    if (error != OK) {
        json_decref(body);
        return error;
    }
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/volumes/%s/bench", pool, name);
    error = client_call(args, "POST", path, body, &answer, reterr);
    if (error == OK) {
        error = follow(args, watcher, &answer, reterr);
    }
    if (error == OK && json_is_object(json_object_get(answer, "result"))) {
        error = bench_document_from_json(json_object_get(answer, "result"), ret_document, reterr);
    }
    if (error == OK && json_object_get(answer, "error") != NULL) {
        error = answer_read_error(answer, reterr);
    }
    json_decref(answer);
    return error;
}
