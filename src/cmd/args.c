// SPDX-License-Identifier: MPL-2.0
/* Parses a command line by the table of verbs: words that name a verb, then options and operands in
 * any order; "--" ends the options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cmd/verbs.h"

static bool verb_knows(const struct verb *verb, enum option_id id) {
    if (id == OPT_HELP || id == OPT_JSON || (id == OPT_SOCKET && !verb->local)) {
        return true;
    }
    for (uint32_t i = 0; i < VERB_OPTIONS_MAX && verb->options[i] != OPT_HELP; i++) {
        if (verb->options[i] == id) {
            return true;
        }
    }
    return false;
}

static const struct option_spec *find_option(const struct verb *verb, const char *name,
                                             size_t length) {
    for (int id = 0; id < OPT_COUNT; id++) {
        const struct option_spec *spec = option_spec((enum option_id)id);
        if (strlen(spec->name) == length && strncmp(spec->name, name, length) == 0 &&
            verb_knows(verb, spec->id)) {
            return spec;
        }
    }
    return NULL;
}

/* The words that name a verb, one or two; NULL with a sentence. */
static const struct verb *find_verb(int argc, char *const *argv, int *ret_words,
                                    struct errmsg *reterr) {
    if (argc == 0) {
        (void)errmsg_set(reterr, ERR_INVALID, "a verb is missing; see holdfast help");
        return NULL;
    }
    for (uint32_t i = 0; i < verb_count; i++) {
        const struct verb *verb = &verbs[i];
        if (verb->noun == NULL && strcmp(argv[0], verb->name) == 0) {
            *ret_words = 1;
            return verb;
        }
        if (verb->noun != NULL && argc > 1 && strcmp(argv[0], verb->noun) == 0 &&
            strcmp(argv[1], verb->name) == 0) {
            *ret_words = 2;
            return verb;
        }
    }
    if (help_is_noun(argv[0]) && argc > 1 && argv[1][0] != '-') {
        (void)errmsg_set(reterr, ERR_INVALID,
                         "holdfast %s knows no verb \"%.40s\"; see holdfast "
                         "help %s",
                         argv[0], argv[1], argv[0]);
    } else if (help_is_noun(argv[0])) {
        (void)errmsg_set(reterr, ERR_INVALID, "holdfast %s needs a verb; see holdfast help %s",
                         argv[0], argv[0]);
    } else {
        (void)errmsg_set(reterr, ERR_INVALID, "holdfast knows no verb \"%.40s\"; see holdfast help",
                         argv[0]);
    }
    return NULL;
}

static int parse_number(const struct option_spec *spec, const char *text, uint64_t *ret_number,
                        struct errmsg *reterr) {
    char *end;
    if (spec->kind == OPTION_SIZE) {
        int error = size_parse(text, ret_number);
        return error == OK ? OK
                           : errmsg_set(reterr, error,
                                        "--%s: \"%.40s\" is not a size such as 512M, 100G or 1.5T",
                                        spec->name, text);
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return errmsg_set(reterr, ERR_INVALID, "--%s: \"%.40s\" is not a number", spec->name, text);
    }
    *ret_number = value;
    return OK;
}

static int list_add(struct args *args, const struct option_spec *spec, const char *value,
                    struct errmsg *reterr) {
    if (args->list[spec->id].count == ARGS_VALUES_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "--%s: more than %d values", spec->name,
                          ARGS_VALUES_MAX);
    }
    args->list[spec->id].values[args->list[spec->id].count++] = value;
    return OK;
}

/* One option at argv[0]; how many words it took, or an error. */
static int parse_option(struct args *args, int argc, char *const *argv, int *ret_words,
                        struct errmsg *reterr) {
    const char *name = argv[0] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct option_spec *spec = find_option(args->verb, name, length);
    if (spec == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "the option %.40s is not known here", argv[0]);
    }
    bool is_list = spec->kind == OPTION_PATHS || spec->kind == OPTION_TEXTS;
    if (args->given[spec->id] && !is_list && spec->kind != OPTION_FLAG) {
        return errmsg_set(reterr, ERR_INVALID, "--%s is given twice", spec->name);
    }
    args->given[spec->id] = true;
    *ret_words = 1;
    if (spec->kind == OPTION_FLAG) {
        return equals == NULL ? OK
                              : errmsg_set(reterr, ERR_INVALID, "--%s takes no value", spec->name);
    }
    const char *value = equals != NULL ? equals + 1 : argc > 1 ? argv[1] : NULL;
    if (value == NULL || value[0] == '\0' || (equals == NULL && strncmp(value, "--", 2) == 0)) {
        return errmsg_set(reterr, ERR_INVALID, "--%s needs a value: %s", spec->name, spec->value);
    }
    *ret_words = equals != NULL ? 1 : 2;
    args->text[spec->id] = value;
    if (spec->kind == OPTION_SIZE || spec->kind == OPTION_NUMBER) {
        return parse_number(spec, value, &args->number[spec->id], reterr);
    }
    int error = is_list ? list_add(args, spec, value, reterr) : OK;
    /* A list of paths goes on to the next option: what the shell made of --disk /dev/sd[b-g]. */
    while (error == OK && spec->kind == OPTION_PATHS && equals == NULL && *ret_words < argc &&
           strncmp(argv[*ret_words], "--", 2) != 0) {
        error = list_add(args, spec, argv[(*ret_words)++], reterr);
    }
    return error;
}

static int check_operands(const struct args *args, struct errmsg *reterr) {
    for (int i = 0; i < ARGS_OPERANDS_MAX; i++) {
        const char *wanted = args->verb->operands[i];
        if (wanted != NULL && wanted[0] != '[' && args->operands[i] == NULL) {
            return errmsg_set(reterr, ERR_INVALID, "%s is missing", wanted);
        }
    }
    return OK;
}

static int take_operand(struct args *args, int *operands, const char *word, struct errmsg *reterr) {
    const char *const *wanted = args->verb->operands;
    bool more = *operands < ARGS_OPERANDS_MAX && wanted[*operands] != NULL;
    bool rest = *operands > 0 && strstr(wanted[*operands - 1], "…") != NULL;
    if (rest && args->rest_count < ARGS_VALUES_MAX) {
        args->rest[args->rest_count++] = word;
        return OK;
    }
    if (rest || !more) {
        return errmsg_set(reterr, ERR_INVALID, "\"%.100s\" is one argument too many", word);
    }
    args->operands[(*operands)++] = word;
    return OK;
}

int args_parse(int argc, char *const *argv, struct args *ret_args, struct errmsg *reterr) {
    struct args *args = ret_args;
    int at = 0, operands = 0;
    memset(args, 0, sizeof(*args));
    args->verb = find_verb(argc, argv, &at, reterr);
    if (args->verb == NULL) {
        return ERR_INVALID;
    }
    bool only_operands = false;
    while (at < argc) {
        int words = 1, error = OK;
        if (!only_operands && strcmp(argv[at], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && strcmp(argv[at], "-h") == 0) {
            args->given[OPT_HELP] = true;
        } else if (!only_operands && strncmp(argv[at], "--", 2) == 0) {
            error = parse_option(args, argc - at, argv + at, &words, reterr);
        } else if (!only_operands && argv[at][0] == '-') {
            error = errmsg_set(reterr, ERR_INVALID, "the option %.40s is not known here", argv[at]);
        } else {
            error = take_operand(args, &operands, argv[at], reterr);
        }
        if (error != OK) {
            return error;
        }
        at += words;
    }
    return args->given[OPT_HELP] ? OK : check_operands(args, reterr);
}
