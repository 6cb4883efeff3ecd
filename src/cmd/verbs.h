// SPDX-License-Identifier: MPL-2.0
/* The command line as a table: every verb with its operands and options.
 *
 * The one table parses, prints --help, writes the shell completion and refuses what it does not
 * know, so the four never disagree. Verbs get what was given as struct args. */
#ifndef HOLDFAST_CMD_VERBS_H
#define HOLDFAST_CMD_VERBS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum { ARGS_VALUES_MAX = 64, ARGS_OPERANDS_MAX = 2, VERB_OPTIONS_MAX = 20 };

enum option_kind {
    OPTION_FLAG,   /* --thick */
    OPTION_TEXT,   /* --name TEXT */
    OPTION_SIZE,   /* --size 2T */
    OPTION_NUMBER, /* --lun 3 */
    OPTION_PATHS, /* --disk PATH…: takes all that follow up to the next option; may be repeated */
    OPTION_TEXTS, /* --listen ADDR, may be repeated */
};

enum option_id {
    OPT_HELP,
    OPT_JSON,
    OPT_SOCKET,
    OPT_CONFIG,
    OPT_LISTEN,
    OPT_STATE_DIR,
    OPT_POOL,
    OPT_SEARCH,
    OPT_DISK,
    OPT_FILE,
    OPT_FILE_SIZE,
    OPT_FORCE,
    OPT_FORCE_QUORUM,
    OPT_FORCE_HOST,
    OPT_FORCE_DATA_LOSS,
    OPT_YES,
    OPT_PROFILE,
    OPT_SIZE,
    OPT_THICK,
    OPT_BLOCK_SIZE,
    OPT_SYNC,
    OPT_NAME,
    OPT_TARGET,
    OPT_LUN,
    OPT_CLOSED,
    OPT_INITIATOR,
    OPT_ADDRESS,
    OPT_USER,
    OPT_ANYBODY,
    OPT_ALL,
    OPT_SECRET_FILE,
    OPT_MUTUAL_NAME,
    OPT_MUTUAL_SECRET_FILE,
    OPT_SINCE,
    OPT_SEVERITY,
    OPT_FOLLOW,
    OPT_ONCE,
    OPT_INTERVAL,
    OPT_OUTPUT,
    OPT_SECRETS,
    OPT_DRY_RUN,
    OPT_STOP,
    OPT_EVERY,
    OPT_CANCEL,
    OPT_OFF,
    OPT_QUEUE_DEPTH,
    OPT_SECONDS,
    OPT_RAMP,
    OPT_RUNS,
    OPT_SPAN,
    OPT_STREAMS,
    OPT_JOBS,
    OPT_PATH,
    OPT_READ_AHEAD,
    OPT_INITIATOR_NAME,
    OPT_QUICK,
    OPT_READ_ONLY,
    OPT_PREPARED,
    OPT_DURING,
    OPT_DESTROY_DATA,
    OPT_RESULTS,
    OPT_CSV,
    OPT_LINK,
    OPT_MEMORY,
    OPT_MODEL_SPAN,
    OPT_MODEL_SECONDS,
    OPT_DEPTH,
    OPT_FACTOR,
    OPT_DEGRADED,
    OPT_REBUILDING,
    OPT_MATRIX,
    OPT_MARKDOWN,
    OPT_TITLE,
    OPT_REPORT,
    OPT_COUNT
};

struct option_spec {
    enum option_id id;
    const char *name; /* without "--" */
    enum option_kind kind;
    const char *value; /* what --help calls it; NULL for flags */
    const char *help;
    const char *choices; /* words, for the completion; NULL: any */
};

struct args;
typedef int verb_fn(const struct args *args, struct errmsg *reterr);

struct verb {
    const char *noun; /* "pool"; NULL: a verb of one word */
    const char *name;
    /* "NAME", "[NAME]", "POOL/VOLUME"; "TARGET…" takes all that follow. */
    const char *operands[ARGS_OPERANDS_MAX];
    const char *summary;
    const char *detail;   /* more, for --help; NULL */
    const char *complete; /* of the first operand: "pools", "volumes", "luns"; NULL */
    bool local;           /* talks to no daemon: no --socket */
    verb_fn *run;
    enum option_id options[VERB_OPTIONS_MAX]; /* OPT_HELP ends the list, and is always known */
};

struct args {
    const struct verb *verb;
    const char *operands[ARGS_OPERANDS_MAX]; /* NULL: not given */
    uint32_t rest_count; /* of an operand that takes all: those after the first */
    const char *rest[ARGS_VALUES_MAX];
    bool given[OPT_COUNT];
    const char *text[OPT_COUNT];
    uint64_t number[OPT_COUNT]; /* of sizes and numbers */
    struct {
        uint32_t count;
        const char *values[ARGS_VALUES_MAX];
    } list[OPT_COUNT];
};

extern const struct verb verbs[];
extern const uint32_t verb_count;
const struct option_spec *option_spec(enum option_id id);

/* argv without the program's name. ERR_INVALID with a sentence; the verb may be known even then
 * (ret_args->verb), for a hint at its --help. Texts point into argv. */
HF_MUST_CHECK int args_parse(int argc, char *const *argv, struct args *ret_args,
                             struct errmsg *reterr);

void help_print(FILE *out);
void help_print_noun(FILE *out, const char *noun);
void help_print_verb(FILE *out, const struct verb *verb);
bool help_is_noun(const char *word);
void completion_print(FILE *out); /* for bash */

#endif
