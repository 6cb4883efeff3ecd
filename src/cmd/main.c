// SPDX-License-Identifier: MPL-2.0
/* holdfast: the one program. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 the
 * service does not run. */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "control/answer.h"

enum { EXIT_USAGE = 2, EXIT_NOT_FOUND = 3, EXIT_NOT_RUNNING = 4 };

static int exit_code(int error) {
    switch (error) {
    case OK:
        return EXIT_SUCCESS;
    case ERR_NOT_FOUND:
        return EXIT_NOT_FOUND;
    case ERR_CLOSED:
        return EXIT_NOT_RUNNING;
    default:
        return EXIT_FAILURE;
    }
}

static int usage(const struct args *args, const struct errmsg *why) {
    (void)fprintf(stderr, "holdfast: %s\n", why->text);
    if (args->verb != NULL) {
        (void)fprintf(stderr, "Try: holdfast %s%s%s --help\n",
                      args->verb->noun != NULL ? args->verb->noun : "",
                      args->verb->noun != NULL ? " " : "", args->verb->name);
    }
    return EXIT_USAGE;
}

static bool asks_for_help(int argc, char **argv) {
    return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

static int run(int argc, char **argv, struct args *args) {
    struct errmsg why = {0};
    if (argc < 2 || asks_for_help(argc, argv)) {
        help_print(argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : EXIT_SUCCESS;
    }
    if (argc == 3 && help_is_noun(argv[1]) && asks_for_help(argc - 1, argv + 1)) {
        help_print_noun(stdout, argv[1]);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        argv[1] = (char[]){"version"};
        return run(argc, argv, args);
    }
    if (args_parse(argc - 1, argv + 1, args, &why) != OK) {
        return usage(args, &why);
    }
    if (args->given[OPT_HELP]) {
        help_print_verb(stdout, args->verb);
        return EXIT_SUCCESS;
    }
    int error = args->verb->run(args, &why);
    if (error == OK) {
        return EXIT_SUCCESS;
    }
    if (args->given[OPT_JSON]) {
        json_t *body = answer_error(error, &why);
        client_print_json(body);
        json_decref(body);
    } else {
        (void)fflush(stdout);
        (void)fprintf(stderr, "holdfast: %s\n", why.text[0] != '\0' ? why.text : error_text(error));
    }
    if (args->verb->run == cmd_serve && error == ERR_TIMEOUT) {
        /* A service that could not end in time leaves threads behind; nothing of theirs may run
         * while the process is taken down. */
        _exit(exit_code(error));
    }
    return exit_code(error);
}

int main(int argc, char **argv) {
    struct args *args = MEM_NEW(struct args);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    int code = run(argc, argv, args);
    if (fflush(stdout) != 0 && code == EXIT_SUCCESS) {
        (void)fprintf(stderr, "holdfast: cannot write to standard output\n");
        code = EXIT_FAILURE;
    }
    curl_global_cleanup();
    mem_free(args);
    return code;
}
