// SPDX-License-Identifier: MPL-2.0
/* holdfast bench model: predictions. It runs nothing but this process, so it needs no service and
 * no disk. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "bench/matrix.h"
#include "bench/report.h"
#include "cmd/bench_files.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/table.h"

enum { MATRIX_SECONDS = 10 };

/* The table was measured on a span of about this size. */
static const uint64_t matrix_span_bytes = 5000000000;

static void list_disks(void) {
    static const char *const heads[] = {"NAME", "WHAT", ">4K READS/S", "AFTER", NULL};
    struct table *table = table_new(heads);
    for (uint32_t i = 0; bench_disk_at(i) != NULL; i++) {
        const struct sim_model *disk = bench_disk_at(i);
        table_text(table, disk->name);
        table_text(table, disk->what);
        table_number(table, (uint64_t)disk->sheet_read_iops);
        table_text(table, disk->source);
    }
    table_print(table, "");
}

/* ---- what was asked for ---- */

static int take_number(const struct args *args, enum option_id id, uint64_t high, uint32_t *number,
                       struct errmsg *reterr) {
    if (!args->given[id]) {
        return OK;
    }
    if (args->number[id] < 1 || args->number[id] > high) {
        return errmsg_set(reterr, ERR_RANGE, "--%s: between 1 and %" PRIu64, option_spec(id)->name,
                          high);
    }
    *number = (uint32_t)args->number[id];
    return OK;
}

/* The safest profile that leaves a disk to spare, as for volumes. */
static enum profile profile_for(uint32_t disks) {
    return disks >= 5   ? PROFILE_RAID6
           : disks >= 4 ? PROFILE_RAID5
           : disks >= 2 ? PROFILE_RAID1
                        : PROFILE_SINGLE;
}

static int take_options(const struct args *args, struct model_options *o, struct errmsg *reterr) {
    bool matrix = args->given[OPT_MATRIX];
    const char *disks = args->operands[0] != NULL ? args->operands[0] : "hdd-7200-2tb";
    *o = (struct model_options){.depth = MODEL_DEPTH_DEFAULT,
                                .seconds = matrix ? MATRIX_SECONDS : 0,
                                .state = args->given[OPT_REBUILDING] ? MODEL_REBUILDING
                                         : args->given[OPT_DEGRADED] ? MODEL_DEGRADED
                                                                     : MODEL_WHOLE,
                                .span_bytes = matrix ? matrix_span_bytes
                                                     : (uint64_t)MODEL_SPAN_DEFAULT_GIB << 30,
                                .memory_bytes = (uint64_t)MODEL_MEMORY_DEFAULT_GIB << 30};
    o->span_bytes = args->given[OPT_MODEL_SPAN] ? args->number[OPT_MODEL_SPAN] : o->span_bytes;
    o->memory_bytes = args->given[OPT_MEMORY] ? args->number[OPT_MEMORY] : o->memory_bytes;
    int error = bench_disk_list_parse(disks, &o->disks, reterr);
    if (error == OK && matrix && (args->given[OPT_PROFILE] || args->given[OPT_LINK])) {
        error = errmsg_set(reterr, ERR_INVALID,
                           "--matrix goes through all profiles, each with the "
                           "links of its published figures");
    }
    if (error == OK && args->given[OPT_DEGRADED] && args->given[OPT_REBUILDING]) {
        error = errmsg_set(reterr, ERR_INVALID,
                           "--degraded or --rebuilding: an array that rebuilds is degraded");
    }
    if (error == OK) {
        const char *link = args->given[OPT_LINK] ? args->text[OPT_LINK] : "1x1gbe";
        error = link_parse(link, &o->link, reterr);
    }
    o->profile = profile_for(o->disks.count);
    if (error == OK && args->given[OPT_PROFILE] &&
        profile_parse(args->text[OPT_PROFILE], &o->profile) != OK) {
        error = errmsg_set(reterr, ERR_INVALID, "--profile: \"%.40s\" is not one",
                           args->text[OPT_PROFILE]);
    }
    error = error == OK ? take_number(args, OPT_DEPTH, 1024, &o->depth, reterr) : error;
    error = error == OK ? take_number(args, OPT_FACTOR, 512, &o->factor, reterr) : error;
    return error == OK ? take_number(args, OPT_MODEL_SECONDS, 3600, &o->seconds, reterr) : error;
}

/* ---- running ---- */

struct progress {
    const char *system;
    bool terminal;
};

static void show_progress(void *owner, const char *what) {
    const struct progress *p = owner;
    if (p->terminal) {
        (void)fprintf(stderr, "\r\033[K%s: %s", p->system, what);
    } else {
        (void)fprintf(stderr, "%s: %s\n", p->system, what);
    }
    (void)fflush(stderr);
}

/* Holdfast and, beside it, the classic array. */
static int run_pair(struct model_options *o, struct progress *progress,
                    struct bench_document **ret_documents, uint32_t *ret_count,
                    struct errmsg *reterr) {
    static const enum model_system systems[] = {MODEL_HOLDFAST, MODEL_CLASSIC};
    static const char *const names[] = {"Holdfast", "classic array"};
    struct bench_document *documents = MEM_NEW_ARRAY(struct bench_document, 2);
    for (uint32_t i = 0; i < 2; i++) {
        progress->system = names[i];
        int error = model_run(o, systems[i], &documents[i], reterr);
        if (error != OK) {
            bench_files_free(documents, i);
            return error;
        }
    }
    *ret_documents = documents;
    *ret_count = 2;
    return OK;
}

static int give(const struct args *args, const struct bench_document *documents, uint32_t count,
                struct errmsg *reterr) {
    struct report report;
    int error = report_init(documents, count, &report, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        json_t *json = bench_files_json(documents, count);
        client_print_json(json);
        json_decref(json);
    } else if (args->given[OPT_MARKDOWN]) {
        report_markdown(stdout, &report);
    } else {
        report_text(stdout, &report);
    }
    if (args->given[OPT_REPORT]) {
        error = bench_files_write(args->text[OPT_REPORT], &report, "holdfast bench model", reterr);
    }
    report_done(&report);
    return error;
}

int cmd_bench_model(const struct args *args, struct errmsg *reterr) {
    struct model_options *o = MEM_NEW(struct model_options);
    struct bench_document *documents = NULL;
    uint32_t count = 0;
    struct progress progress = {.system = "matrix", .terminal = isatty(STDERR_FILENO) == 1};
    if (args->operands[0] == NULL && !args->given[OPT_MATRIX]) {
        list_disks();
        mem_free(o);
        return OK;
    }
    int error = take_options(args, o, reterr);
    o->progress = show_progress;
    o->progress_owner = &progress;
    if (error == OK) {
        error = args->given[OPT_MATRIX] ? matrix_run(o, &documents, &count, reterr)
                                        : run_pair(o, &progress, &documents, &count, reterr);
    }
    if (progress.terminal) {
        (void)fprintf(stderr, "\r\033[K");
    }
    error = error == OK ? give(args, documents, count, reterr) : error;
    bench_files_free(documents, count);
    mem_free(o);
    return error;
}
