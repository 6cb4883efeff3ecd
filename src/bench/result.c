// SPDX-License-Identifier: MPL-2.0
#include "bench/result.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"

static const char format_name[] = "holdfast-bench";

const char *bench_unit_name(enum bench_unit unit) {
    return unit == BENCH_IOPS ? "iops" : "mb_s";
}

const char *bench_unit_text(enum bench_unit unit) {
    return unit == BENCH_IOPS ? "IOPS" : "MB/s";
}

struct bench_result *bench_document_add(struct bench_document *document) {
    document->results =
        mem_realloc(document->results, (document->result_count + 1) * sizeof(document->results[0]));
    struct bench_result *result = &document->results[document->result_count++];
    *result = (struct bench_result){0};
    return result;
}

void bench_document_done(struct bench_document *document) {
    for (uint32_t i = 0; i < document->result_count; i++) {
        mem_free(document->results[i].buckets);
    }
    mem_free(document->results);
    document->results = NULL;
    document->result_count = 0;
}

/* ---- medians ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(const double *values, uint32_t count) {
    double *sorted = MEM_NEW_ARRAY(double, count);
    memcpy(sorted, values, count * sizeof(values[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare_doubles);
    double median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    mem_free(sorted);
    return median;
}

void bench_result_settle(struct bench_result *result) {
    double low = result->run_count > 0 ? result->runs[0] : 0, high = low;
    for (uint32_t i = 0; i < result->run_count; i++) {
        low = MIN(low, result->runs[i]);
        high = MAX(high, result->runs[i]);
    }
    result->value = result->run_count > 0 ? bench_median(result->runs, result->run_count) : 0;
    result->spread = result->value > 0 ? (high - low) / result->value : 0;
    double a_mb = result->block_bytes > 0 ? 1e6 / result->block_bytes : 0;
    result->iops = result->unit == BENCH_IOPS ? result->value : result->value * a_mb;
    result->mb_s = result->unit == BENCH_MB_S ? result->value : a_mb > 0 ? result->value / a_mb : 0;
}

/* ---- members by table ---- */

enum kind { KIND_TEXT, KIND_U32, KIND_U64, KIND_REAL, KIND_BOOL };

struct member {
    const char *key;
    enum kind kind;
    size_t at, room; /* room: of texts */
    bool required;
};

#define TEXT(type, name, wanted)                                                                   \
    { #name, KIND_TEXT, offsetof(type, name), sizeof(((type *)NULL)->name), wanted }
#define FIELD(type, name, kind)                                                                    \
    { #name, kind, offsetof(type, name), 0, false }

static const struct member document_members[] = {
    TEXT(struct bench_document, when, false),
    TEXT(struct bench_document, commit, false),
};

#define MACHINE(name, kind, bytes)                                                                 \
    { #name, kind, offsetof(struct bench_document, machine.name), bytes, false }
static const struct member machine_members[] = {
    MACHINE(cpu, KIND_TEXT, 128),
    MACHINE(cores, KIND_U32, 0),
    MACHINE(memory_bytes, KIND_U64, 0),
    MACHINE(kernel, KIND_TEXT, 128),
};

#define TARGET(name, kind, bytes, wanted)                                                          \
    { #name, kind, offsetof(struct bench_document, target.name), bytes, wanted }
static const struct member target_members[] = {
    TARGET(kind, KIND_TEXT, 16, true),       TARGET(address, KIND_TEXT, 512, false),
    TARGET(name, KIND_TEXT, 128, false),     TARGET(size_bytes, KIND_U64, 0, false),
    TARGET(block_bytes, KIND_U32, 0, false),
};

static const struct member setting_members[] = {
    TEXT(struct bench_settings, workload, false),
    TEXT(struct bench_settings, during, false),
    FIELD(struct bench_settings, span_bytes, KIND_U64),
    FIELD(struct bench_settings, seconds, KIND_U32),
    FIELD(struct bench_settings, ramp_seconds, KIND_U32),
    FIELD(struct bench_settings, runs, KIND_U32),
    FIELD(struct bench_settings, jobs, KIND_U32),
    FIELD(struct bench_settings, streams, KIND_U32),
    FIELD(struct bench_settings, paths, KIND_U32),
    FIELD(struct bench_settings, read_ahead_bytes, KIND_U64),
    FIELD(struct bench_settings, prepared, KIND_BOOL),
    FIELD(struct bench_settings, complete, KIND_BOOL),
};

static const struct member result_members[] = {
    TEXT(struct bench_result, test, true),
    FIELD(struct bench_result, queue_depth, KIND_U32),
    FIELD(struct bench_result, block_bytes, KIND_U32),
    {"value", KIND_REAL, offsetof(struct bench_result, value), 0, true},
    FIELD(struct bench_result, spread, KIND_REAL),
    FIELD(struct bench_result, iops, KIND_REAL),
    FIELD(struct bench_result, mb_s, KIND_REAL),
    FIELD(struct bench_result, mean_us, KIND_REAL),
    FIELD(struct bench_result, p50_us, KIND_REAL),
    FIELD(struct bench_result, p99_us, KIND_REAL),
    FIELD(struct bench_result, p999_us, KIND_REAL),
    FIELD(struct bench_result, p9999_us, KIND_REAL),
    FIELD(struct bench_result, worst_us, KIND_REAL),
    FIELD(struct bench_result, cpu_percent, KIND_REAL),
    FIELD(struct bench_result, client_limited, KIND_BOOL),
    FIELD(struct bench_result, steady, KIND_REAL),
    FIELD(struct bench_result, factor, KIND_U32),
};

/* ---- writing ---- */

/* Three decimals: what is below a nanosecond says nothing, and makes files long. */
static json_t *real_json(double value) {
    bool small = isfinite(value * 1e3);
    return json_real(small ? round(value * 1e3) / 1e3 : isfinite(value) ? value : 0);
}

/* Names come from devices, and need not be UTF-8. */
static json_t *text_json(const char *text) {
    json_t *json = json_string(text);
    if (json == NULL) {
        char plain[1024];
        (void)snprintf(plain, sizeof(plain), "%s", text);
        for (char *c = plain; *c != '\0'; c++) {
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        }
        json = json_string(plain);
    }
    return json;
}

static json_t *member_json(const struct member *member, const void *from) {
    const void *at = (const char *)from + member->at;
    switch (member->kind) {
    case KIND_TEXT:
        return text_json(at);
    case KIND_U32:
        return json_integer(*(const uint32_t *)at);
    case KIND_U64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case KIND_REAL:
        return real_json(*(const double *)at);
    case KIND_BOOL:
    default:
        return json_boolean(*(const bool *)at);
    }
}

static void write_members(json_t *object, const void *from, const struct member *members,
                          size_t count) {
    for (size_t i = 0; i < count; i++) {
        (void)json_object_set_new(object, members[i].key, member_json(&members[i], from));
    }
}

static json_t *result_json(const struct bench_result *result) {
    json_t *object = json_object(), *runs = json_array(), *buckets = json_array();
    write_members(object, result, result_members, ARRAY_COUNT(result_members));
    (void)json_object_set_new(object, "unit", json_string(bench_unit_name(result->unit)));
    for (uint32_t i = 0; i < result->run_count; i++) {
        (void)json_array_append_new(runs, real_json(result->runs[i]));
    }
    (void)json_object_set_new(object, "runs", runs);
    for (uint32_t i = 0; i < result->bucket_count; i++) {
        json_t *pair = json_array();
        (void)json_array_append_new(pair, real_json(result->buckets[i].upper_us));
        (void)json_array_append_new(pair, json_integer((json_int_t)result->buckets[i].count));
        (void)json_array_append_new(buckets, pair);
    }
    (void)json_object_set_new(object, "histogram", buckets);
    return object;
}

json_t *bench_document_json(const struct bench_document *document) {
    json_t *object = json_pack("{s:s, s:i}", "format", format_name, "version", BENCH_VERSION);
    json_t *machine = json_object(), *target = json_object(), *settings = json_object();
    json_t *results = json_array();
    write_members(object, document, document_members, ARRAY_COUNT(document_members));
    write_members(machine, document, machine_members, ARRAY_COUNT(machine_members));
    write_members(target, document, target_members, ARRAY_COUNT(target_members));
    write_members(settings, &document->settings, setting_members, ARRAY_COUNT(setting_members));
    for (uint32_t i = 0; i < document->result_count; i++) {
        (void)json_array_append_new(results, result_json(&document->results[i]));
    }
    (void)json_object_set_new(object, "machine", machine);
    (void)json_object_set_new(object, "target", target);
    (void)json_object_set_new(object, "settings", settings);
    (void)json_object_set_new(object, "results", results);
    return object;
}

/* ---- reading ---- */

static int read_text(const struct member *member, const json_t *value, char *ret,
                     struct errmsg *reterr) {
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) != json_string_length(value) || strlen(text) >= member->room) {
        return errmsg_set(reterr, ERR_INVALID, "\"%s\" is not a text of less than %zu bytes",
                          member->key, member->room);
    }
    (void)snprintf(ret, member->room, "%s", text);
    return OK;
}

static int read_number(const struct member *member, const json_t *value, void *ret,
                       struct errmsg *reterr) {
    double number = json_number_value(value);
    bool real = member->kind == KIND_REAL;
    if (!(real ? json_is_number(value) : json_is_integer(value)) || !isfinite(number) ||
        number < 0 || (member->kind == KIND_U32 && number > UINT32_MAX)) {
        return errmsg_set(reterr, ERR_INVALID, "\"%s\" is not a number that it could be",
                          member->key);
    }
    if (real) {
        *(double *)ret = number;
    } else if (member->kind == KIND_U32) {
        *(uint32_t *)ret = (uint32_t)json_integer_value(value);
    } else {
        *(uint64_t *)ret = (uint64_t)json_integer_value(value);
    }
    return OK;
}

static int read_members(const json_t *object, const char *what, void *ret,
                        const struct member *members, size_t count, struct errmsg *reterr) {
    if (!json_is_object(object)) {
        return errmsg_set(reterr, ERR_INVALID, "\"%s\" is missing, or not an object", what);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, members[i].key);
        void *at = (char *)ret + members[i].at;
        int error = OK;
        if ((value == NULL || json_is_null(value)) && !members[i].required) {
            continue;
        }
        if (members[i].kind == KIND_TEXT) {
            error = read_text(&members[i], value, at, reterr);
        } else if (members[i].kind != KIND_BOOL) {
            error = read_number(&members[i], value, at, reterr);
        } else if (json_is_boolean(value)) {
            *(bool *)at = json_is_true(value);
        } else {
            error = errmsg_set(reterr, ERR_INVALID, "\"%s\" is not true or false", members[i].key);
        }
        if (error != OK) {
            return error;
        }
    }
    return OK;
}

static int read_runs(const json_t *runs, struct bench_result *result, struct errmsg *reterr) {
    const json_t *run;
    size_t index;
    if (runs != NULL && (!json_is_array(runs) || json_array_size(runs) > BENCH_RUNS_MAX)) {
        return errmsg_set(reterr, ERR_INVALID, "\"runs\" is not a list of at most %d numbers",
                          BENCH_RUNS_MAX);
    }
    json_array_foreach(runs, index, run) {
        const struct member one = {"runs", KIND_REAL, 0, 0, true};
        int error = read_number(&one, run, &result->runs[index], reterr);
        if (error != OK) {
            return error;
        }
        result->run_count++;
    }
    return OK;
}

static int read_histogram(const json_t *histogram, struct bench_result *result,
                          struct errmsg *reterr) {
    static const struct member upper = {"histogram", KIND_REAL, 0, 0, true},
                               count = {"histogram", KIND_U64, 0, 0, true};
    size_t size = json_array_size(histogram), index;
    const json_t *pair;
    if (histogram != NULL && (!json_is_array(histogram) || size > 65536)) {
        return errmsg_set(reterr, ERR_INVALID, "\"histogram\" is not a list of buckets");
    }
    result->buckets = size > 0 ? MEM_NEW_ARRAY(struct bench_bucket, size) : NULL;
    double before = -1;
    json_array_foreach(histogram, index, pair) {
        struct bench_bucket *bucket = &result->buckets[index];
        int error = read_number(&upper, json_array_get(pair, 0), &bucket->upper_us, reterr);
        if (error == OK) {
            error = read_number(&count, json_array_get(pair, 1), &bucket->count, reterr);
        }
        if (error == OK && bucket->upper_us <= before) {
            error = errmsg_set(reterr, ERR_INVALID, "the histogram's buckets do not rise");
        }
        if (error != OK) {
            return error;
        }
        before = bucket->upper_us;
        result->bucket_count++;
    }
    return OK;
}

static int read_result(const json_t *json, struct bench_result *result, struct errmsg *reterr) {
    int error =
        read_members(json, "results", result, result_members, ARRAY_COUNT(result_members), reterr);
    if (error != OK) {
        return error;
    }
    const char *unit = json_string_value(json_object_get(json, "unit"));
    if (unit == NULL || (strcmp(unit, "iops") != 0 && strcmp(unit, "mb_s") != 0)) {
        return errmsg_set(reterr, ERR_INVALID, "\"unit\" is neither iops nor mb_s");
    }
    result->unit = strcmp(unit, "iops") == 0 ? BENCH_IOPS : BENCH_MB_S;
    error = read_runs(json_object_get(json, "runs"), result, reterr);
    return error == OK ? read_histogram(json_object_get(json, "histogram"), result, reterr) : error;
}

static int read_results(const json_t *results, struct bench_document *document,
                        struct errmsg *reterr) {
    const json_t *json;
    size_t index;
    if (!json_is_array(results) || json_array_size(results) > BENCH_RESULTS_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "\"results\" is not a list of at most %d results",
                          BENCH_RESULTS_MAX);
    }
    json_array_foreach(results, index, json) {
        int error = read_result(json, bench_document_add(document), reterr);
        if (error != OK) {
            (void)errmsg_prefix(reterr, "result %zu: ", index + 1);
            return error;
        }
    }
    return OK;
}

static int check_format(const json_t *json, struct errmsg *reterr) {
    const char *format = json_string_value(json_object_get(json, "format"));
    const json_t *version = json_object_get(json, "version");
    if (format == NULL || strcmp(format, format_name) != 0 || !json_is_integer(version) ||
        json_integer_value(version) < 1) {
        return errmsg_set(reterr, ERR_INVALID, "these are not results of holdfast bench");
    }
    if (json_integer_value(version) > BENCH_VERSION) {
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "these results are of a later version of holdfast; update this one");
    }
    return OK;
}

int bench_document_from_json(const json_t *json, struct bench_document *ret,
                             struct errmsg *reterr) {
    struct bench_document document = {.settings.complete = true};
    int error = check_format(json, reterr);
    if (error == OK) {
        error = read_members(json, "results", &document, document_members,
                             ARRAY_COUNT(document_members), reterr);
    }
    if (error == OK && json_object_get(json, "machine") != NULL) {
        error = read_members(json_object_get(json, "machine"), "machine", &document,
                             machine_members, ARRAY_COUNT(machine_members), reterr);
    }
    if (error == OK) {
        error = read_members(json_object_get(json, "target"), "target", &document, target_members,
                             ARRAY_COUNT(target_members), reterr);
    }
    if (error == OK) {
        error = read_members(json_object_get(json, "settings"), "settings", &document.settings,
                             setting_members, ARRAY_COUNT(setting_members), reterr);
    }
    if (error == OK) {
        error = read_results(json_object_get(json, "results"), &document, reterr);
    }
    if (error != OK) {
        bench_document_done(&document);
        return error;
    }
    *ret = document;
    return OK;
}

/* One document, or an array of them. */
static int read_all(const json_t *json, struct bench_document **ret_documents, uint32_t *ret_count,
                    struct errmsg *reterr) {
    bool list = json_is_array(json);
    size_t count = list ? json_array_size(json) : 1;
    if (count == 0 || count > BENCH_RESULTS_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "there are no results in it");
    }
    struct bench_document *documents = MEM_NEW_ARRAY(struct bench_document, count);
    for (size_t i = 0; i < count; i++) {
        int error =
            bench_document_from_json(list ? json_array_get(json, i) : json, &documents[i], reterr);
        if (error != OK) {
            while (i > 0) {
                bench_document_done(&documents[--i]);
            }
            mem_free(documents);
            return error;
        }
    }
    *ret_documents = documents;
    *ret_count = (uint32_t)count;
    return OK;
}

int bench_documents_read(const char *path, struct bench_document **ret_documents,
                         uint32_t *ret_count, struct errmsg *reterr) {
    json_error_t why;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (json == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "%s, line %d: %s", path, why.line, why.text);
    }
    int error = read_all(json, ret_documents, ret_count, reterr);
    json_decref(json);
    if (error != OK) {
        (void)errmsg_prefix(reterr, "%s: ", path);
    }
    return error;
}

/* ---- CSV (RFC 4180) ---- */

void bench_csv_heading(FILE *out) {
    (void)fputs("target,test,queue_depth,block_bytes,unit,value,iops,mb_s,spread,mean_us,p50_us,"
                "p99_us,p999_us,p9999_us,worst_us,cpu_percent,client_limited,steady,span_bytes\n",
                out);
}

static void csv_text(FILE *out, const char *text) {
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        (void)fprintf(out, "%s%c", *text == '"' ? "\"" : "", *text);
    }
    (void)fputs("\",", out);
}

void bench_csv_print(FILE *out, const struct bench_document *document) {
    for (uint32_t i = 0; i < document->result_count; i++) {
        const struct bench_result *r = &document->results[i];
        csv_text(out, document->target.address);
        csv_text(out, r->test);
        (void)fprintf(out,
                      "%" PRIu32 ",%" PRIu32 ",%s,%.3f,%.3f,%.3f,%.4f,%.3f,%.3f,%.3f,%.3f,%.3f,"
                      "%.3f,%.1f,%s,%.3f,%" PRIu64 "\n",
                      r->queue_depth, r->block_bytes, bench_unit_name(r->unit), r->value, r->iops,
                      r->mb_s, r->spread, r->mean_us, r->p50_us, r->p99_us, r->p999_us, r->p9999_us,
                      r->worst_us, r->cpu_percent, r->client_limited ? "true" : "false", r->steady,
                      document->settings.span_bytes);
    }
}
