// SPDX-License-Identifier: MPL-2.0
/* Job files: a common subset of fio's format, docs/BENCH.md, "Job files". Files come from anywhere;
 * what would make a job measure something else than the file says is refused, by key and line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/job.h"

enum { FILE_BYTES_MAX = 1 << 20, LINE_BYTES_MAX = 1024 };

struct parser {
    struct bench_plan *plan;
    struct bench_job global, *job; /* job: the one whose section it is; NULL: [global] or none */
    bool is_global, global_wall;
    struct errmsg *reterr;
};

/* The job that a key is about. */
static struct bench_job *subject(struct parser *p) {
    return p->job != NULL ? p->job : &p->global;
}

/* ---- values ---- */

static int wrong(struct parser *p, const char *key, const char *value, const char *wanted) {
    return errmsg_set(p->reterr, ERR_INVALID, "%s=%.40s: that is not %s", key, value, wanted);
}

static int number_between(struct parser *p, const char *key, const char *value, uint64_t low,
                          uint64_t high, uint32_t *ret) {
    char *end;
    unsigned long long number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || number < low || number > high) {
        char wanted[64];
        (void)snprintf(wanted, sizeof(wanted), "a number from %llu to %llu",
                       (unsigned long long)low, (unsigned long long)high);
        return wrong(p, key, value, wanted);
    }
    *ret = (uint32_t)number;
    return OK;
}

static int set_rw(struct parser *p, const char *key, const char *value) {
    static const struct {
        const char *name;
        enum bench_operation operation;
        bool is_random;
    } known[] = {{"read", JOB_READ, false},    {"write", JOB_WRITE, false},
                 {"randread", JOB_READ, true}, {"randwrite", JOB_WRITE, true},
                 {"rw", JOB_MIXED, false},     {"readwrite", JOB_MIXED, false},
                 {"randrw", JOB_MIXED, true}};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (strcmp(known[i].name, value) == 0) {
            subject(p)->operation = known[i].operation;
            subject(p)->is_random = known[i].is_random;
            return OK;
        }
    }
    return wrong(p, key, value, "read, write, randread, randwrite, rw or randrw");
}

static int set_block(struct parser *p, const char *key, const char *value) {
    uint64_t bytes = 0;
    if (size_parse(value, &bytes) != OK || bytes < 512 || bytes > JOB_BLOCK_MAX ||
        bytes % 512 != 0) {
        return wrong(p, key, value, "a size from 512 to 16M in sectors of 512");
    }
    subject(p)->block_bytes = (uint32_t)bytes;
    return OK;
}

static int set_depth(struct parser *p, const char *key, const char *value) {
    return number_between(p, key, value, 1, JOB_DEPTH_MAX, &subject(p)->depth);
}

static int set_threads(struct parser *p, const char *key, const char *value) {
    return number_between(p, key, value, 1, JOB_THREADS_MAX, &subject(p)->threads);
}

static int set_mix_read(struct parser *p, const char *key, const char *value) {
    return number_between(p, key, value, 0, 100, &subject(p)->read_percent);
}

static int set_mix_write(struct parser *p, const char *key, const char *value) {
    uint32_t percent = 0;
    int error = number_between(p, key, value, 0, 100, &percent);
    if (error == OK) {
        subject(p)->read_percent = 100 - percent;
    }
    return error;
}

static int parse_extent(struct parser *p, const char *key, const char *value,
                        struct bench_extent *ret) {
    char *end;
    unsigned long percent = strtoul(value, &end, 10);
    if (isdigit((unsigned char)value[0]) && strcmp(end, "%") == 0 && percent <= 100) {
        *ret = (struct bench_extent){0, (uint32_t)percent};
        return OK;
    }
    *ret = (struct bench_extent){0, 0};
    return size_parse(value, &ret->bytes) == OK ? OK
                                                : wrong(p, key, value, "a size or a percentage");
}

static int set_size(struct parser *p, const char *key, const char *value) {
    return parse_extent(p, key, value, &subject(p)->size);
}

static int set_offset(struct parser *p, const char *key, const char *value) {
    return parse_extent(p, key, value, &subject(p)->offset);
}

static int parse_seconds(struct parser *p, const char *key, const char *value, uint32_t low,
                         uint32_t *ret) {
    static const struct {
        const char *unit;
        uint32_t seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    unsigned long long number = strtoull(value, &end, 10);
    for (size_t i = 0; isdigit((unsigned char)value[0]) && i < ARRAY_COUNT(units); i++) {
        if (strcmp(end, units[i].unit) == 0 && number <= JOB_SECONDS_MAX / units[i].seconds &&
            number * units[i].seconds >= low) {
            *ret = (uint32_t)number * units[i].seconds;
            return OK;
        }
    }
    return wrong(p, key, value, "a time such as 30, 90s, 2m or 1h");
}

static int set_runtime(struct parser *p, const char *key, const char *value) {
    return parse_seconds(p, key, value, 1, &subject(p)->seconds);
}

static int set_ramp(struct parser *p, const char *key, const char *value) {
    uint32_t seconds = 0;
    int error = parse_seconds(p, key, value, 0, &seconds);
    if (error == OK) {
        subject(p)->ramp_seconds = seconds;
    }
    return error;
}

static int set_filename(struct parser *p, const char *key, const char *value) {
    char *filename = p->plan->filename;
    if (strlen(value) >= sizeof(p->plan->filename) || value[0] == '\0') {
        return wrong(p, key, value, "a path or an address");
    }
    if (filename[0] != '\0' && strcmp(filename, value) != 0) {
        return errmsg_set(p->reterr, ERR_UNSUPPORTED,
                          "filename: all jobs of a file share one target");
    }
    (void)snprintf(filename, sizeof(p->plan->filename), "%s", value);
    return OK;
}

static int set_wall(struct parser *p, const char *key, const char *value) {
    if (strcmp(value, "") != 0 && strcmp(value, "1") != 0 && strcmp(value, "0") != 0) {
        return wrong(p, key, value, "0 or 1");
    }
    bool wall = strcmp(value, "0") != 0;
    if (p->job == NULL) {
        p->global_wall = wall;
    } else {
        p->job->beside = !wall;
    }
    return OK;
}

static int ignore(struct parser *p, const char *key, const char *value) {
    (void)p;
    (void)key;
    (void)value;
    return OK;
}

static const struct {
    const char *key;
    int (*set)(struct parser *p, const char *key, const char *value);
} keys[] = {
    {"rw", set_rw},
    {"readwrite", set_rw},
    {"bs", set_block},
    {"blocksize", set_block},
    {"iodepth", set_depth},
    {"numjobs", set_threads},
    {"rwmixread", set_mix_read},
    {"rwmixwrite", set_mix_write},
    {"size", set_size},
    {"offset", set_offset},
    {"runtime", set_runtime},
    {"ramp_time", set_ramp},
    {"filename", set_filename},
    {"stonewall", set_wall},
    {"wait_for_previous", set_wall},
    {"time_based", ignore},
    {"ioengine", ignore},
    {"direct", ignore},
    {"group_reporting", ignore},
    {"randrepeat", ignore},
    {"norandommap", ignore},
    {"refill_buffers", ignore},
    {"thread", ignore},
    {"invalidate", ignore},
    {"buffer_compress_percentage", ignore},
    {"name", ignore},
    {"description", ignore},
};

/* ---- lines ---- */

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) {
        text++;
    }
    for (size_t end = strlen(text); end > 0 && isspace((unsigned char)text[end - 1]); end--) {
        text[end - 1] = '\0';
    }
    return text;
}

static int begin_section(struct parser *p, char *line) {
    size_t length = strlen(line);
    if (line[length - 1] != ']' || length < 3 || length - 2 >= sizeof(p->job->name)) {
        return errmsg_set(p->reterr, ERR_INVALID,
                          "a section is written [name], of less than 64 characters");
    }
    line[length - 1] = '\0';
    p->is_global = strcmp(line + 1, "global") == 0;
    p->job = NULL;
    if (p->is_global) {
        return OK;
    }
    if (p->plan->count == JOBS_MAX) {
        return errmsg_set(p->reterr, ERR_LIMIT, "there are more than %d jobs", JOBS_MAX);
    }
    p->job = &p->plan->jobs[p->plan->count++];
    *p->job = p->global;
    p->job->beside = p->plan->count > 1 && !p->global_wall;
    (void)snprintf(p->job->name, sizeof(p->job->name), "%s", line + 1);
    return OK;
}

static int take_line(struct parser *p, char *line) {
    line = trim(line);
    if (line[0] == '\0' || line[0] == '#' || line[0] == ';') {
        return OK;
    }
    if (line[0] == '[') {
        return begin_section(p, line);
    }
    if (p->job == NULL && !p->is_global) {
        return errmsg_set(p->reterr, ERR_INVALID, "\"%.40s\" stands before the first section",
                          line);
    }
    char *equals = strchr(line, '=');
    const char *value = equals != NULL ? trim(equals + 1) : "";
    if (equals != NULL) {
        *equals = '\0';
    }
    const char *key = trim(line);
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (strcmp(keys[i].key, key) == 0) {
            return keys[i].set(p, key, value);
        }
    }
    return errmsg_set(p->reterr, ERR_UNSUPPORTED,
                      "the key \"%.40s\" is not known here (docs/BENCH.md lists those that are)",
                      key);
}

/* What names come to is printed on terminals. */
static bool is_text(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c < ' ' && c != '\t' && c != '\r') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static int take_lines(struct parser *p, const char *text, size_t bytes) {
    for (size_t at = 0, number = 1; at < bytes; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        char line[LINE_BYTES_MAX];
        int error = ERR_INVALID;
        if (length >= sizeof(line) || !is_text(text + at, length)) {
            (void)errmsg_set(p->reterr, error, "this is no text, or longer than %d characters",
                             LINE_BYTES_MAX - 1);
        } else {
            memcpy(line, text + at, length);
            line[length] = '\0';
            error = take_line(p, line);
        }
        if (error != OK) {
            (void)errmsg_prefix(p->reterr, "line %zu: ", number);
            return error;
        }
        at += length + 1;
    }
    return OK;
}

int bench_plan_parse(const char *text, size_t bytes, struct bench_plan *ret_plan,
                     struct errmsg *reterr) {
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    struct errmsg why = {0}; /* also when nobody asks: prefixes want one */
    struct parser p = {.plan = plan,
                       .global = {.operation = JOB_READ,
                                  .read_percent = 50,
                                  .block_bytes = 4096,
                                  .depth = 1,
                                  .threads = 1,
                                  .ramp_seconds = -1},
                       .reterr = &why};
    plan->prepare = true;
    plan->fixed_depths = true;
    (void)snprintf(plan->workload, sizeof(plan->workload), "job file");
    int error = take_lines(&p, text, bytes);
    if (error == OK && plan->count == 0) {
        error = errmsg_set(&why, ERR_INVALID, "there is no job in it");
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        struct bench_job *job = &plan->jobs[i];
        job->unit = job->block_bytes >= 64 << 10 ? BENCH_MB_S : BENCH_IOPS;
    }
    if (error == OK) {
        *ret_plan = *plan;
    } else {
        (void)errmsg_set(reterr, error, "%s", why.text);
    }
    mem_free(plan);
    return error;
}

int bench_plan_read(const char *path, struct bench_plan *ret_plan, struct errmsg *reterr) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "%s: the job file cannot be read: %m", path);
    }
    char *text = mem_alloc(FILE_BYTES_MAX + 1);
    size_t bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
    int error = OK;
    if (ferror(file) || bytes > FILE_BYTES_MAX) {
        error = errmsg_set(reterr, ERR_INVALID, "%s is not a job file", path);
    }
    (void)fclose(file);
    if (error == OK) {
        error = bench_plan_parse(text, bytes, ret_plan, reterr);
        if (error != OK) {
            (void)errmsg_prefix(reterr, "%s, ", path);
        }
    }
    mem_free(text);
    return error;
}
