// SPDX-License-Identifier: MPL-2.0
/* The command line: parsing, help and completion from one table. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd/client.h"
#include "cmd/rates.h"
#include "cmd/since.h"
#include "cmd/table.h"
#include "cmd/verbs.h"

enum { WORDS_MAX = 80 };

/* `line` is split at blanks. */
static int parse(const char *line, struct args *args, struct errmsg *why) {
    static char copy[4096];
    static char *words[WORDS_MAX];
    int count = 0;
    (void)snprintf(copy, sizeof(copy), "%s", line);
    char *rest = copy, *word;
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        words[count++] = word;
    }
    memset(why, 0, sizeof(*why));
    return args_parse(count, words, args, why);
}

static void lines_are_understood(void **state) {
    (void)state;
    struct args *args = MEM_NEW(struct args);
    struct errmsg why;
    assert_int_equal(parse("volume create tank/vm --size 1.5T --profile raid6 --thick "
                           "--block-size=4096 --json",
                           args, &why),
                     OK);
    assert_string_equal(args->verb->noun, "volume");
    assert_string_equal(args->operands[0], "tank/vm");
    assert_int_equal(args->number[OPT_SIZE], 3ull << 39);
    assert_int_equal(args->number[OPT_BLOCK_SIZE], 4096);
    assert_string_equal(args->text[OPT_PROFILE], "raid6");
    assert_true(args->given[OPT_THICK] && args->given[OPT_JSON] && !args->given[OPT_YES]);
    assert_int_equal(parse("pool create tank --disk /dev/sdb /dev/sdc --force --disk /dev/sdd "
                           "--file a --file-size 10G",
                           args, &why),
                     OK);
    assert_int_equal(args->list[OPT_DISK].count, 3);
    assert_string_equal(args->list[OPT_DISK].values[2], "/dev/sdd");
    assert_int_equal(args->list[OPT_FILE].count, 1);
    assert_int_equal(parse("pool import", args, &why), OK);
    assert_null(args->operands[0]);
    assert_int_equal(parse("pool import -- tank", args, &why), OK);
    assert_string_equal(args->operands[0], "tank");
    assert_int_equal(parse("serve --listen 127.0.0.1 --listen [::1]:3261", args, &why), OK);
    assert_int_equal(args->list[OPT_LISTEN].count, 2);
    assert_int_equal(parse("bench corners a --quick b --path x c", args, &why), OK);
    assert_string_equal(args->operands[0], "a");
    assert_true(args->rest_count == 2 && strcmp(args->rest[1], "c") == 0);
    assert_int_equal(parse("bench job file", args, &why), OK);
    assert_int_equal(args->rest_count, 0);
    assert_int_equal(parse("check --help", args, &why), OK); /* without its operand */
    assert_true(args->given[OPT_HELP]);
    mem_free(args);
}

static void wrong_lines_are_refused_in_words(void **state) {
    (void)state;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"", "a verb is missing"},
        {"sevre", "knows no verb \"sevre\""},
        {"pool", "needs a verb"},
        {"pool explode", "holdfast pool knows no verb \"explode\""},
        {"pool --json", "needs a verb"},
        {"check", "POOL is missing"},
        {"pool list tank", "\"tank\" is one argument too many"},
        {"volume create tank/vm --size", "--size needs a value: SIZE"},
        {"volume create tank/vm --size --thick", "--size needs a value"},
        {"volume create tank/vm --size=", "--size needs a value"},
        {"volume create tank/vm --size 12Q", "\"12Q\" is not a size"},
        {"volume create tank/vm --size 1G --size 2G", "--size is given twice"},
        {"volume create tank/vm --thick=yes", "--thick takes no value"},
        {"volume create tank/vm --colour red", "--colour is not known here"},
        {"volume list --size 1G", "--size is not known here"},
        {"volume create tank/vm -s", "-s is not known here"},
        {"lun create tank/vm --lun x", "\"x\" is not a number"},
        {"lun create tank/vm --lun -1", "is not a number"},
        {"lun create tank/vm --lun 99999999999999999999", "is not a number"},
        {"serve --socket", "--socket needs a value"},
        {"version --socket /a", "--socket is not known here"},
    };
    struct args *args = MEM_NEW(struct args);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct errmsg why;
        assert_int_not_equal(parse(cases[i].line, args, &why), OK);
        if (strstr(why.text, cases[i].text) == NULL) {
            fail_msg("%s: %s", cases[i].line, why.text);
        }
    }
    char line[1024] = "pool create tank --disk";
    for (int i = 0; i <= ARGS_VALUES_MAX; i++) {
        strcat(line, " /a");
    }
    struct errmsg why;
    assert_int_equal(parse(line, args, &why), ERR_LIMIT);
    mem_free(args);
}

static void times_are_understood(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t expected; /* -1: refused */
    } cases[] = {
        {"90s", 1000000 - 90},
        {"10m", 1000000 - 600},
        {"2h", 1000000 - 7200},
        {"3d", 1000000 - 3 * 86400},
        {"1w", 1000000 - 7 * 86400},
        {"1970-01-12T13:46:40Z", 1000000},
        {"1970-01-12T13:46Z", 1000000 - 40},
        {"1970-01-12Z", 11 * 86400},
        {"", -1},
        {"10", -1},
        {"m", -1},
        {"-3d", -1},
        {"10mm", -1},
        {"yesterday", -1},
        {"1970-01-12T13:46:40+1", -1},
        {"9999999999w", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t at = 7;
        struct errmsg why = {0};
        int error = since_parse(cases[i].text, 1000000, &at, &why);
        assert_int_equal(error, cases[i].expected < 0 ? ERR_INVALID : OK);
        assert_int_equal(at, cases[i].expected < 0 ? 7 : cases[i].expected);
        assert_true(error == OK || strstr(why.text, "--since") != NULL);
    }
}

static void rates_are_differences(void **state) {
    (void)state;
    json_t *before = json_loads(
        "{\"at_ns\":1000000000,\"luns\":[{\"pool\":\"a\",\"name\":\"vm\",\"reads\":10,\"writes\":5,"
        "\"read_bytes\":4096,\"write_bytes\":0,\"operations\":15,\"latency_ns\":500,\"queue\":9},"
        "{\"pool\":\"a\",\"name\":\"anew\",\"reads\":100,\"operations\":100,\"latency_ns\":9}]}",
        0, NULL);
    json_t *now = json_loads(
        "{\"at_ns\":3000000000,\"luns\":[{\"pool\":\"a\",\"name\":\"vm\",\"reads\":30,\"writes\":5,"
        "\"read_bytes\":8192,\"write_bytes\":0,\"operations\":35,\"latency_ns\":40000500,"
        "\"queue\":3},{\"pool\":\"a\",\"name\":\"anew\",\"reads\":1,\"operations\":1},"
        "{\"pool\":\"b\",\"name\":\"vm\",\"reads\":7,\"operations\":7,\"queue\":1}],"
        "\"pools\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
        0, NULL);
    assert_non_null(before);
    assert_non_null(now);
    json_t *rates = rates_between(before, now, NULL);
    const json_t *luns = json_object_get(rates, "luns"), *vm = json_array_get(luns, 0);
    assert_int_equal(json_array_size(luns), 3);
    assert_int_equal(json_array_size(json_object_get(rates, "pools")), 2);
    assert_float_equal(json_real_value(json_object_get(rates, "seconds")), 2, 1e-9);
    assert_float_equal(json_real_value(json_object_get(vm, "reads_per_s")), 10, 1e-9);
    assert_float_equal(json_real_value(json_object_get(vm, "writes_per_s")), 0, 1e-9);
    assert_float_equal(json_real_value(json_object_get(vm, "read_bytes_per_s")), 2048, 1e-9);
    assert_float_equal(json_real_value(json_object_get(vm, "latency_ms")), 2, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(vm, "queue")), 3);
    for (size_t i = 1; i < 3; i++) { /* counted anew; new */
        const json_t *other = json_array_get(luns, i);
        assert_float_equal(json_real_value(json_object_get(other, "reads_per_s")), 0, 1e-9);
        assert_true(json_is_null(json_object_get(other, "latency_ms")));
    }
    json_decref(rates);
    rates = rates_between(before, now, "b");
    assert_int_equal(json_array_size(json_object_get(rates, "luns")), 1);
    assert_int_equal(json_array_size(json_object_get(rates, "pools")), 1);
    json_decref(rates);
    json_decref(before);
    json_decref(now);
}

static void names_are_split(void **state) {
    (void)state;
    char pool[64], name[64];
    assert_int_equal(client_split("tank/vm1", "VOLUME", pool, name, NULL), OK);
    assert_string_equal(pool, "tank");
    assert_string_equal(name, "vm1");
    static const char *const wrong[] = {"tank",   "/vm",     "tank/", "tank/a/b",
                                        "t nk/a", "tank/..", ""};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct errmsg why = {0};
        assert_int_equal(client_split(wrong[i], "VOLUME", pool, name, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "POOL/VOLUME"));
    }
    assert_int_equal(client_pool_name("..", pool, NULL), ERR_INVALID);
}

static void paths_become_absolute(void **state) {
    (void)state;
    struct args *args = MEM_NEW(struct args);
    struct errmsg why;
    char folder[512], expected[600];
    assert_int_equal(parse("pool create tank --file a ./b /c mem:x:1G", args, &why), OK);
    assert_non_null(getcwd(folder, sizeof(folder)));
    json_t *paths = client_paths(args, OPT_FILE);
    assert_int_equal(json_array_size(paths), 4);
    (void)snprintf(expected, sizeof(expected), "%s/a", folder);
    assert_string_equal(json_string_value(json_array_get(paths, 0)), expected);
    (void)snprintf(expected, sizeof(expected), "%s/b", folder);
    assert_string_equal(json_string_value(json_array_get(paths, 1)), expected);
    assert_string_equal(json_string_value(json_array_get(paths, 2)), "/c");
    assert_string_equal(json_string_value(json_array_get(paths, 3)), "mem:x:1G");
    json_decref(paths);
    mem_free(args);
}

static void loss_wants_a_yes(void **state) {
    (void)state;
    struct args *args = MEM_NEW(struct args);
    struct errmsg why;
    assert_int_equal(parse("pool destroy tank", args, &why), OK);
    int saved = dup(STDIN_FILENO);
    assert_non_null(freopen("/dev/null", "r", stdin)); /* no terminal to ask on */
    assert_int_equal(client_confirm(args, "All is lost", "tank", &why), ERR_INVALID);
    assert_string_equal(why.text, "All is lost; give --yes if that is what you want");
    assert_int_equal(dup2(saved, STDIN_FILENO), STDIN_FILENO);
    close(saved);
    assert_int_equal(parse("pool destroy tank --yes", args, &why), OK);
    assert_int_equal(client_confirm(args, "All is lost", "tank", &why), OK);
    mem_free(args);
}

/* What a printer prints. */
static char *printed(void (*print)(FILE *out)) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    print(out);
    (void)fclose(out);
    return text;
}

static const struct verb *printed_verb;
static void print_one(FILE *out) {
    help_print_verb(out, printed_verb);
}

static void help_and_completion_know_every_verb(void **state) {
    (void)state;
    char *overview = printed(help_print), *completion = printed(completion_print);
    for (uint32_t i = 0; i < verb_count; i++) {
        const struct verb *verb = &verbs[i];
        char words[64], entry[128];
        (void)snprintf(words, sizeof(words), "%s%s%s", verb->noun != NULL ? verb->noun : "",
                       verb->noun != NULL ? " " : "", verb->name);
        (void)snprintf(entry, sizeof(entry), "    '%s') options='", words);
        assert_non_null(strstr(overview, words));
        assert_non_null(strstr(completion, entry));
        printed_verb = verb;
        char *text = printed(print_one);
        assert_non_null(strstr(text, verb->summary));
        for (uint32_t o = 0; o < VERB_OPTIONS_MAX && verb->options[o] != OPT_HELP; o++) {
            (void)snprintf(entry, sizeof(entry), "  --%s", option_spec(verb->options[o])->name);
            assert_non_null(strstr(text, entry));
        }
        free(text);
    }
    for (int id = 0; id < OPT_COUNT; id++) {
        assert_int_equal(option_spec((enum option_id)id)->id, id);
    }
    free(overview);
    free(completion);
}

static char *read_page(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/holdfast%s%s.8", MAN_DIR, name[0] != '\0' ? "-" : "",
                   name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("%s is missing", path);
        return NULL;
    }
    char *text = calloc(1, 64 << 10);
    assert_true(fread(text, 1, (64 << 10) - 1, file) > 0);
    (void)fclose(file);
    return text;
}

/* The manual page of a verb's group shows the verb and every option of it. */
static void manual_pages_know_every_option(void **state) {
    (void)state;
    for (uint32_t i = 0; i < verb_count; i++) {
        const struct verb *verb = &verbs[i];
        bool own = strcmp(verb->name, "serve") == 0 || strcmp(verb->name, "check") == 0;
        const char *page = verb->noun != NULL                  ? verb->noun
                           : own                               ? verb->name
                           : strcmp(verb->name, "health") == 0 ? "disk"
                                                               : "";
        char *text = read_page(page), wanted[80];
        assert_non_null(strstr(text, verb->name));
        for (uint32_t o = 0; o < VERB_OPTIONS_MAX && verb->options[o] != OPT_HELP; o++) {
            (void)snprintf(wanted, sizeof(wanted), "Fl Fl %s", option_spec(verb->options[o])->name);
            if (strstr(text, wanted) == NULL) {
                fail_msg("holdfast-%s(8) does not mention %s", page, wanted);
            }
        }
        free(text);
    }
}

/* Asks bash what it would offer; `words` is a bash array's content, the last word the one typed. */
static void assert_completes(const char *words, const char *expected) {
    char command[1024], text[2048] = "";
    (void)snprintf(command, sizeof(command),
                   "bash -c 'source /dev/stdin; COMP_WORDS=(%s); "
                   "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _holdfast; echo \"${COMPREPLY[*]}\"' "
                   "> /tmp/holdfast-completion.%d",
                   words, (int)getpid());
    FILE *bash = popen(command, "w");
    assert_non_null(bash);
    completion_print(bash);
    assert_int_equal(pclose(bash), 0);
    (void)snprintf(command, sizeof(command), "/tmp/holdfast-completion.%d", (int)getpid());
    FILE *file = fopen(command, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    (void)unlink(command);
    text[strcspn(text, "\n")] = '\0';
    assert_string_equal(text, expected);
}

static void bash_completes(void **state) {
    (void)state;
    assert_completes("holdfast vol", "volume");
    assert_completes("holdfast pool ex", "export");
    assert_completes("holdfast volume create tank/a --pro", "--profile");
    assert_completes("holdfast volume create tank/a --profile raid1", "raid1 raid1-3 raid10");
    assert_completes("holdfast serve --sta", "--state-dir");
    assert_completes("holdfast version --so", "");
}

static void tables_line_up(void **state) {
    (void)state;
    static const char *const heads[] = {"NAME", ">SIZE", "NOTE", NULL};
    char path[] = "/tmp/holdfast-table.XXXXXX", text[512] = "";
    int file = mkstemp(path), saved = dup(STDOUT_FILENO);
    assert_true(file >= 0 && saved >= 0);
    (void)fflush(stdout);
    assert_int_equal(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    struct table *table = table_new(heads);
    table_text(table, "a\x1b[1mb");
    table_size(table, 3ull << 39);
    table_text(table, "");
    table_text(table, "é…");
    table_size(table, 512);
    table_text(table, "x");
    table_print(table, "none");
    table_print(table_new(heads), "none");
    (void)fflush(stdout);
    (void)dup2(saved, STDOUT_FILENO);
    assert_true(pread(file, text, sizeof(text) - 1, 0) > 0);
    close(file);
    close(saved);
    (void)unlink(path);
    assert_string_equal(text, "NAME        SIZE  NOTE\n"
                              "a?[1mb  1.50 TiB  -\n"
                              "é…         512 B  x\n"
                              "none\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_understood),
        cmocka_unit_test(wrong_lines_are_refused_in_words),
        cmocka_unit_test(times_are_understood),
        cmocka_unit_test(rates_are_differences),
        cmocka_unit_test(names_are_split),
        cmocka_unit_test(paths_become_absolute),
        cmocka_unit_test(loss_wants_a_yes),
        cmocka_unit_test(help_and_completion_know_every_verb),
        cmocka_unit_test(manual_pages_know_every_option),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(tables_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
