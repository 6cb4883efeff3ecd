// SPDX-License-Identifier: MPL-2.0
#include "control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "store.h"

enum { WORDS_MAX = 6 };

struct command {
    char *words[WORDS_MAX];
    unsigned count;
    const struct control_hooks *hooks;
};

static const char *const op_names[OP_COUNT] = {"read", "write", "flush", "discard"};

static int number(const struct command *c, unsigned word, uint64_t otherwise, uint64_t *ret) {
    if (word >= c->count) {
        *ret = otherwise;
        return 0;
    }
    char *end = NULL;
    errno = 0;
    *ret = strtoull(c->words[word], &end, 0);
    return errno || *end || c->words[word][0] == '-' ? EINVAL : 0;
}

static int set_fault(struct file *file, const char *op, struct fault fault) {
    bool known = false;
    for (unsigned i = 0; i < OP_COUNT; i++) {
        if (strcmp(op, "all") == 0 || strcmp(op, op_names[i]) == 0) {
            file->faults[i] = fault;
            known = true;
        }
    }
    return known ? 0 : EINVAL;
}

static int do_fault(const struct command *c, struct file *file) {
    struct fault fault = {0};
    bool delays = strcmp(c->words[0], "delay") == 0;
    fault.kind = delays ? FAULT_DELAY : strcmp(c->words[0], "hang") == 0 ? FAULT_HANG : FAULT_FAIL;
    if (c->count < (delays ? 4u : 3u) || (delays && number(c, 3, 0, &fault.delay_ms)) ||
        number(c, delays ? 4 : 3, UINT64_MAX, &fault.count)) {
        return EINVAL;
    }
    return set_fault(file, c->words[2], fault);
}

static int do_heal(const struct command *c, struct file *file) {
    (void)set_fault(file, "all", (struct fault){0});
    c->hooks->release(file, 0);
    return 0;
}

static int do_give_up(const struct command *c, struct file *file) {
    c->hooks->release(file, EIO);
    return 0;
}

static int do_ignore_flush(const struct command *c, struct file *file) {
    if (c->count != 3 || (strcmp(c->words[2], "on") && strcmp(c->words[2], "off"))) {
        return EINVAL;
    }
    file->ignore_flush = strcmp(c->words[2], "on") == 0;
    return 0;
}

static int do_drop(const struct command *c, struct file *file) {
    uint64_t seed = 0, keep = 0;
    if (c->count != 5 || number(c, 2, 0, &seed) || number(c, 3, 0, &keep) || keep > 100 ||
        (strcmp(c->words[4], "sector") && strcmp(c->words[4], "write"))) {
        return EINVAL;
    }
    /* Each file its own sequence, though `*` gives them one seed. */
    return file_drop(file, seed ^ (file->ino << 32), (unsigned)keep,
                     strcmp(c->words[4], "sector") == 0);
}

static int do_sync(const struct command *c, struct file *file) {
    (void)c;
    return file_write_back(file);
}

static int do_flip(const struct command *c, struct file *file) {
    uint64_t offset = 0, mask = 1;
    if (c->count < 3 || number(c, 2, 0, &offset) || number(c, 3, 1, &mask) || mask == 0 ||
        mask > 255) {
        return EINVAL;
    }
    return file_flip(file, offset, (uint8_t)mask);
}

static int do_truncate(const struct command *c, struct file *file) {
    uint64_t size = 0;
    return c->count != 3 || number(c, 2, 0, &size) ? EINVAL : file_truncate(file, size);
}

static const struct {
    const char *name;
    int (*run)(const struct command *c, struct file *file);
} commands[] = {
    {"fail", do_fault},        {"delay", do_fault},     {"hang", do_fault},
    {"heal", do_heal},         {"give-up", do_give_up}, {"ignore-flush", do_ignore_flush},
    {"drop", do_drop},         {"sync", do_sync},       {"flip", do_flip},
    {"truncate", do_truncate},
};

static int run_line(char *line, const struct control_hooks *hooks) {
    struct command c = {.hooks = hooks};
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        if (c.count == WORDS_MAX) {
            return EINVAL;
        }
        c.words[c.count++] = word;
    }
    if (c.count == 0) {
        return 0;
    }
    for (unsigned i = 0; c.count >= 2 && i < ARRAY_COUNT(commands); i++) {
        if (strcmp(commands[i].name, c.words[0]) != 0) {
            continue;
        }
        int error = ENOENT; /* unless some file is meant */
        for (struct file *file = store_next(NULL); file; file = store_next(file)) {
            if (strcmp(c.words[1], "*") == 0 || strcmp(c.words[1], file->name) == 0) {
                int this_error = commands[i].run(&c, file);
                error = error == ENOENT || this_error ? this_error : error;
            }
        }
        return error;
    }
    return EINVAL;
}

int control_run(const char *text, size_t bytes, const struct control_hooks *hooks) {
    char *copy = strndup(text, bytes);
    if (!copy) {
        return ENOMEM;
    }
    int error = 0;
    char *rest = NULL;
    for (char *line = strtok_r(copy, "\n", &rest); line && !error;
         line = strtok_r(NULL, "\n", &rest)) {
        char *said = strdup(line);
        error = run_line(line, hooks);
        if (error) {
            (void)fprintf(stderr, "faultfs: %s: %s\n", said ? said : "?", strerror(error));
        }
        free(said);
    }
    free(copy);
    return error;
}

char *control_status(void) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) {
        return NULL;
    }
    (void)fprintf(out,
                  "file reads writes durable flushes discards cached_bytes faulted dropped kept"
                  " ignore_flush\n");
    for (struct file *f = store_next(NULL); f; f = store_next(f)) {
        (void)fprintf(out,
                      "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                      " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n",
                      f->name, f->counts[OP_READ], f->counts[OP_WRITE], f->durable_writes,
                      f->counts[OP_FLUSH], f->counts[OP_DISCARD], f->cached_bytes, f->faulted,
                      f->dropped_writes, f->kept_writes, f->ignore_flush);
    }
    (void)fclose(out);
    return text;
}
