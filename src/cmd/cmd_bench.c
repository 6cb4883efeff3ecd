// SPDX-License-Identifier: MPL-2.0
/* holdfast bench corners, seeks, mixed, oltp, backup, fill, job: measuring targets. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/run.h"
#include "cmd/bench_show.h"
#include "cmd/bench_volume.h"
#include "cmd/client.h"
#include "cmd/commands.h"

enum { THREADS_MAX = 64, SECRET_MAX = 256 };

static atomic_bool stop;

/* The first asks to end in good order; the next one ends the process. */
static void on_signal(int signal) {
    (void)signal;
    atomic_store(&stop, true);
}

static void watch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++) {
        (void)sigaction(signals[i], &action, NULL);
    }
    /* A connection that breaks is an error of that connection. */
    (void)signal(SIGPIPE, SIG_IGN);
}

/* ---- options ---- */

static int take_depths(const struct args *args, struct bench_options *options,
                       struct errmsg *reterr) {
    const char *text = args->text[OPT_QUEUE_DEPTH];
    options->depth_count = 0;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long depth = strtoul(at, &end, 10);
        if (end == at || depth < 1 || depth > JOB_DEPTH_MAX || (*end != '\0' && *end != ',') ||
            options->depth_count == BENCH_DEPTHS_MAX) {
            return errmsg_set(reterr, ERR_INVALID,
                              "--queue-depth: up to %d numbers from 1 to %d, such as 1,32",
                              (int)BENCH_DEPTHS_MAX, (int)JOB_DEPTH_MAX);
        }
        options->depths[options->depth_count++] = (uint32_t)depth;
        if (*end == '\0') {
            return OK;
        }
        at = end;
    }
}

static int take_number(const struct args *args, enum option_id id, uint64_t low, uint64_t high,
                       uint32_t *number, struct errmsg *reterr) {
    if (!args->given[id]) {
        return OK;
    }
    if (args->number[id] < low || args->number[id] > high) {
        return errmsg_set(reterr, ERR_RANGE, "--%s: between %" PRIu64 " and %" PRIu64,
                          option_spec(id)->name, low, high);
    }
    *number = (uint32_t)args->number[id];
    return OK;
}

static int take_numbers(const struct args *args, struct bench_options *options,
                        struct errmsg *reterr) {
    const struct {
        enum option_id id;
        uint64_t low, high;
        uint32_t *number;
    } numbers[] = {{OPT_SECONDS, 1, JOB_SECONDS_MAX, &options->seconds},
                   {OPT_RAMP, 0, JOB_SECONDS_MAX, &options->ramp_seconds},
                   {OPT_RUNS, 1, BENCH_RUNS_MAX, &options->runs},
                   {OPT_STREAMS, 1, 256, &options->streams},
                   {OPT_JOBS, 1, THREADS_MAX, &options->threads}};
    int error = OK;
    for (size_t i = 0; error == OK && i < ARRAY_COUNT(numbers); i++) {
        error = take_number(args, numbers[i].id, numbers[i].low, numbers[i].high, numbers[i].number,
                            reterr);
    }
    if (error == OK && args->given[OPT_SPAN]) {
        options->span_bytes = args->number[OPT_SPAN] / (1 << 20) * (1 << 20);
        if (options->span_bytes == 0) {
            error = errmsg_set(reterr, ERR_RANGE, "--span: at least 1M");
        }
    }
    return error;
}

/* The first line of a file, or of standard input. */
static int read_secret(const char *path, char *ret_secret, struct errmsg *reterr) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    bool read = file != NULL && fgets(ret_secret, SECRET_MAX, file) != NULL;
    if (file != NULL && file != stdin) {
        (void)fclose(file);
    }
    ret_secret[read ? strcspn(ret_secret, "\r\n") : 0] = '\0';
    return ret_secret[0] != '\0'
               ? OK
               : errmsg_set(reterr, ERR_INVALID, "--secret-file: there is no secret in %s", path);
}

static int take_options(const struct args *args, struct bench_options *options, char *secret,
                        struct errmsg *reterr) {
    bench_options_init(options, args->given[OPT_QUICK]);
    int error = args->given[OPT_QUEUE_DEPTH] ? take_depths(args, options, reterr) : OK;
    if (error == OK) {
        error = take_numbers(args, options, reterr);
    }
    if (error == OK && args->given[OPT_SECRET_FILE]) {
        error = read_secret(args->text[OPT_SECRET_FILE], secret, reterr);
        options->target.secret = secret;
    }
    if (error == OK && args->list[OPT_PATH].count > TARGET_PATHS_MAX) {
        error = errmsg_set(reterr, ERR_LIMIT, "--path: more than %d paths", TARGET_PATHS_MAX);
    }
    if (error == OK && args->given[OPT_JSON] && args->given[OPT_CSV]) {
        error = errmsg_set(reterr, ERR_INVALID, "--json and --csv are two forms; give one");
    }
    options->target.paths = args->list[OPT_PATH].values;
    options->target.path_count = args->list[OPT_PATH].count;
    options->target.initiator =
        args->given[OPT_INITIATOR_NAME] ? args->text[OPT_INITIATOR_NAME] : NULL;
    options->target.read_ahead_bytes = args->number[OPT_READ_AHEAD];
    options->read_only = args->given[OPT_READ_ONLY];
    options->prepared = args->given[OPT_PREPARED];
    options->destroy_data = args->given[OPT_DESTROY_DATA];
    return error;
}

/* ---- results ---- */

/* Before an hour is spent: could the results be written there? */
static int check_output(const char *path, struct errmsg *reterr) {
    bool exists = access(path, F_OK) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errmsg_set(reterr, ERR_INVALID, "--output: %s cannot be written: %s", path,
                          strerror(errno));
    }
    (void)close(fd);
    if (!exists) {
        (void)unlink(path);
    }
    return OK;
}

/* One document, or an array when several targets were asked for. */
static json_t *results_json(const struct bench_document *documents, uint32_t count, bool several) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, bench_document_json(&documents[i]));
    }
    if (several) {
        return list;
    }
    json_t *one = json_incref(json_array_get(list, 0));
    json_decref(list);
    return one;
}

static int give_results(const struct args *args, const struct bench_document *documents,
                        uint32_t count, bool several, struct errmsg *reterr) {
    int error = OK;
    if (count == 0) {
        return OK;
    }
    json_t *json = results_json(documents, count, several);
    if (args->given[OPT_JSON]) {
        client_print_json(json);
    } else if (args->given[OPT_CSV]) {
        bench_csv_heading(stdout);
    }
    for (uint32_t i = 0; i < count && !args->given[OPT_JSON]; i++) {
        if (args->given[OPT_CSV]) {
            bench_csv_print(stdout, &documents[i]);
        } else {
            (void)printf("%s", i > 0 ? "\n" : "");
            bench_show_results(&documents[i]);
        }
    }
    if (args->given[OPT_RESULTS] && json_dump_file(json, args->text[OPT_RESULTS],
                                                   JSON_INDENT(1) | JSON_REAL_PRECISION(12)) != 0) {
        error = errmsg_set(reterr, ERR_IO, "--output: %s cannot be written: %s",
                           args->text[OPT_RESULTS], strerror(errno));
    }
    json_decref(json);
    return error;
}

/* ---- running ---- */

/* All targets in turn. One that fails does not keep the others from being measured; the first
 * failure is returned, the others are said at once. */
static int run_targets(const struct args *args, struct bench_options *options,
                       const struct bench_plan *plan, const char *job_file,
                       const char *const *targets, uint32_t count, struct errmsg *reterr) {
    struct bench_document *documents = MEM_NEW_ARRAY(struct bench_document, count);
    struct bench_show show;
    uint32_t done = 0;
    int error = OK;
    bench_show_init(&show);
    const struct bench_watcher watcher = {
        .note = bench_show_note, .progress = bench_show_progress, .owner = &show, .stop = &stop};
    watch_signals();
    for (uint32_t i = 0; i < count && !atomic_load(&stop); i++) {
        struct errmsg why = {0};
        options->target.address = targets[i];
        int failed = bench_volume_is_target(targets[i])
                         ? bench_volume_run(args, targets[i], options, job_file, &watcher,
                                            &documents[done], &why)
                         : bench_run(options, plan, &watcher, &documents[done], &why);
        bench_show_done(&show);
        done += documents[done].result_count > 0;
        if (failed != OK && error == OK) {
            error = errmsg_set(reterr, failed, "%s", why.text);
        } else if (failed != OK) {
            (void)fprintf(stderr, "holdfast: %s\n", why.text);
        }
    }
    struct errmsg why = {0};
    int unwritten = give_results(args, documents, done, count > 1, &why);
    if (error == OK && unwritten != OK) {
        error = errmsg_set(reterr, unwritten, "%s", why.text);
    }
    for (uint32_t i = 0; i < count; i++) {
        bench_document_done(&documents[i]);
    }
    mem_free(documents);
    return error;
}

/* A disk can be taken out of a pool whose volume is measured, and of no other. */
static int check_during(const struct args *args, const char *const *targets, uint32_t count,
                        struct errmsg *reterr) {
    for (uint32_t i = 0; i < count && args->given[OPT_DURING]; i++) {
        if (!bench_volume_is_target(targets[i])) {
            return errmsg_set(reterr, ERR_INVALID,
                              "--during needs a volume of a pool of this host (volume:POOL/NAME), "
                              "not %.200s",
                              targets[i]);
        }
    }
    return OK;
}

static int bench_targets(const struct args *args, const struct bench_plan *plan,
                         const char *job_file, const char *const *targets, uint32_t count,
                         struct errmsg *reterr) {
    struct bench_options options;
    char secret[SECRET_MAX] = "";
    int error = take_options(args, &options, secret, reterr);
    if (plan->jobs[0].once && !args->given[OPT_QUEUE_DEPTH]) { /* not twice */
        options.depths[0] = options.depths[--options.depth_count];
    }
    error = error == OK ? check_during(args, targets, count, reterr) : error;
    if (error == OK && args->given[OPT_RESULTS]) {
        error = check_output(args->text[OPT_RESULTS], reterr);
    }
    if (error == OK) {
        error = run_targets(args, &options, plan, job_file, targets, count, reterr);
    }
    /* That code is for the service of this host. */
    return error == ERR_CLOSED ? ERR_IO : error;
}

/* The operand at `first` and all that follow it. */
static uint32_t operands_from(const struct args *args, uint32_t first, const char **ret_words) {
    uint32_t count = 0;
    for (uint32_t i = first; i < ARGS_OPERANDS_MAX && args->operands[i] != NULL; i++) {
        ret_words[count++] = args->operands[i];
    }
    for (uint32_t i = 0; i < args->rest_count; i++) {
        ret_words[count++] = args->rest[i];
    }
    return count;
}

int cmd_bench(const struct args *args, struct errmsg *reterr) {
    const char *targets[ARGS_OPERANDS_MAX + ARGS_VALUES_MAX];
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    uint32_t count = operands_from(args, 0, targets);
    int error = bench_plan_workload(args->verb->name, plan);
    if (error == OK) {
        error = bench_targets(args, plan, NULL, targets, count, reterr);
    }
    mem_free(plan);
    return error;
}

int cmd_bench_job(const struct args *args, struct errmsg *reterr) {
    const char *targets[ARGS_OPERANDS_MAX + ARGS_VALUES_MAX];
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    uint32_t count = operands_from(args, 1, targets);
    int error = bench_plan_read(args->operands[0], plan, reterr);
    if (error == OK && count == 0) {
        targets[count++] = plan->filename;
    }
    if (error == OK && targets[0][0] == '\0') {
        error = errmsg_set(reterr, ERR_INVALID,
                           "%s names no target (filename=…); give one after it", args->operands[0]);
    }
    if (error == OK) {
        error = bench_targets(args, plan, args->operands[0], targets, count, reterr);
    }
    mem_free(plan);
    return error;
}
