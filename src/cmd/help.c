// SPDX-License-Identifier: MPL-2.0
/* What the table of verbs looks like to people and to shells. */
#include <string.h>

#include "cmd/verbs.h"

bool help_is_noun(const char *word) {
    for (uint32_t i = 0; i < verb_count; i++) {
        if (verbs[i].noun != NULL && strcmp(verbs[i].noun, word) == 0) {
            return true;
        }
    }
    return false;
}

static void print_usage(FILE *out, const struct verb *verb) {
    (void)fprintf(out, "holdfast %s%s%s", verb->noun != NULL ? verb->noun : "",
                  verb->noun != NULL ? " " : "", verb->name);
    for (int i = 0; i < ARGS_OPERANDS_MAX && verb->operands[i] != NULL; i++) {
        (void)fprintf(out, " %s", verb->operands[i]);
    }
}

static void print_line(FILE *out, const struct verb *verb) {
    char usage[64];
    int used = snprintf(usage, sizeof(usage), "%s%s%s", verb->noun != NULL ? verb->noun : "",
                        verb->noun != NULL ? " " : "", verb->name);
    for (int i = 0; i < ARGS_OPERANDS_MAX && verb->operands[i] != NULL; i++) {
        used += snprintf(usage + used, sizeof(usage) - (size_t)used, " %s", verb->operands[i]);
    }
    (void)fprintf(out, "  %-28s %s\n", usage, verb->summary);
}

void help_print(FILE *out) {
    (void)fputs("Usage: holdfast VERB [ARGUMENT…] [--OPTION…]\n\n", out);
    for (uint32_t i = 0; i < verb_count; i++) {
        print_line(out, &verbs[i]);
    }
    (void)fputs("\nEvery verb explains itself with --help, and prints JSON with --json.\n"
                "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 the service does not "
                "run.\n",
                out);
}

void help_print_noun(FILE *out, const char *noun) {
    for (uint32_t i = 0; i < verb_count; i++) {
        if (verbs[i].noun != NULL && strcmp(verbs[i].noun, noun) == 0) {
            print_line(out, &verbs[i]);
        }
    }
}

static void print_option(FILE *out, enum option_id id) {
    const struct option_spec *spec = option_spec(id);
    char name[48];
    (void)snprintf(name, sizeof(name), "--%s%s%s", spec->name, spec->value != NULL ? " " : "",
                   spec->value != NULL ? spec->value : "");
    /* The one character of several bytes that occurs, "…", takes one column and three bytes. */
    int width = strstr(name, "…") != NULL ? 24 : 22;
    (void)fprintf(out, "  %-*s  %s\n", width, name, spec->help);
}

void help_print_verb(FILE *out, const struct verb *verb) {
    (void)fputs("Usage: ", out);
    print_usage(out, verb);
    (void)fprintf(out, " [--OPTION…]\n\n%s.%s%s\n\nOptions:\n", verb->summary,
                  verb->detail != NULL ? " " : "", verb->detail != NULL ? verb->detail : "");
    for (uint32_t i = 0; i < VERB_OPTIONS_MAX && verb->options[i] != OPT_HELP; i++) {
        print_option(out, verb->options[i]);
    }
    if (!verb->local) {
        print_option(out, OPT_SOCKET);
    }
    print_option(out, OPT_JSON);
    print_option(out, OPT_HELP);
}

/* ---- completion ---- */

static void print_words(FILE *out, const char *noun) {
    const char *last = "";
    for (uint32_t i = 0; i < verb_count; i++) {
        const struct verb *verb = &verbs[i];
        if (noun != NULL && verb->noun != NULL && strcmp(noun, verb->noun) == 0) {
            (void)fprintf(out, "%s ", verb->name);
        } else if (noun == NULL && verb->noun == NULL) {
            (void)fprintf(out, "%s ", verb->name);
        } else if (noun == NULL && strcmp(last, verb->noun) != 0) {
            (void)fprintf(out, "%s ", verb->noun);
            last = verb->noun;
        }
    }
}

static void print_verb_case(FILE *out, const struct verb *verb) {
    (void)fprintf(out, "    '%s%s%s') options='", verb->noun != NULL ? verb->noun : "",
                  verb->noun != NULL ? " " : "", verb->name);
    for (uint32_t i = 0; i < VERB_OPTIONS_MAX && verb->options[i] != OPT_HELP; i++) {
        (void)fprintf(out, "--%s ", option_spec(verb->options[i])->name);
    }
    (void)fprintf(out, "%s--json --help'; names='%s' ;;\n", verb->local ? "" : "--socket ",
                  verb->complete != NULL ? verb->complete : "");
}

static const char completion_head[] =
    "# Completion of holdfast for bash; made by `holdfast completion`.\n"
    "_holdfast_names() {\n"
    "    case $1 in\n"
    "    pools) holdfast pool list --json 2>/dev/null |\n"
    "        sed -n 's/^ *\"name\": \"\\([^\"]*\\)\".*/\\1/p' ;;\n"
    "    volumes) holdfast volume list 2>/dev/null | awk 'NR > 1 { print $1 }' ;;\n"
    "    luns) holdfast lun list 2>/dev/null | awk 'NR > 1 { print $1 }' ;;\n"
    "    esac\n"
    "}\n"
    "_holdfast() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local verb=${COMP_WORDS[1]} options= names= first=2\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        mapfile -t COMPREPLY < <(compgen -W '";

static const char completion_tail[] =
    "    esac\n"
    "    if [[ $word == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
    "    elif ((COMP_CWORD == first)) && [[ -n $names ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$(_holdfast_names \"$names\")\" -- \"$word\")\n"
    "    else\n"
    "        compopt -o filenames\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
    "    fi\n"
    "}\n"
    "complete -F _holdfast holdfast\n";

void completion_print(FILE *out) {
    (void)fputs(completion_head, out);
    print_words(out, NULL);
    (void)fputs("' -- \"$word\")\n        return\n    fi\n    case $verb in\n", out);
    const char *last = "";
    for (uint32_t i = 0; i < verb_count; i++) {
        const char *noun = verbs[i].noun;
        if (noun == NULL || strcmp(noun, last) == 0) {
            continue;
        }
        last = noun;
        (void)fprintf(out,
                      "    %s)\n        if ((COMP_CWORD == 2)); then\n"
                      "            mapfile -t COMPREPLY < <(compgen -W '",
                      noun);
        print_words(out, noun);
        (void)fputs("' -- \"$word\")\n            return\n        fi\n"
                    "        verb=\"$verb ${COMP_WORDS[2]}\"\n        first=3 ;;\n",
                    out);
    }
    (void)fputs("    esac\n    case $before in\n", out);
    for (int id = 0; id < OPT_COUNT; id++) {
        const struct option_spec *spec = option_spec((enum option_id)id);
        if (spec->choices != NULL) {
            (void)fprintf(out,
                          "    --%s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$word\"); "
                          "return ;;\n",
                          spec->name, spec->choices);
        }
    }
    (void)fputs("    esac\n    case $verb in\n", out);
    for (uint32_t i = 0; i < verb_count; i++) {
        print_verb_case(out, &verbs[i]);
    }
    (void)fputs(completion_tail, out);
}
