// SPDX-License-Identifier: MPL-2.0
/* holdfast events. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/since.h"

enum { WAIT_S = 20 }; /* of a request that follows */

/* "90s", "10m", "2h", "3d", "1w": so long ago. */
static bool parse_ago(const char *text, int64_t now, int64_t *ret_unix_s) {
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
    char *end;
    long value = strtol(text, &end, 10);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (text[0] >= '0' && text[0] <= '9' && value < 100000 && end[0] == units[i].unit &&
            end[1] == '\0') {
            *ret_unix_s = now - value * units[i].seconds;
            return true;
        }
    }
    return false;
}

int since_parse(const char *text, int64_t now, int64_t *ret_unix_s, struct errmsg *reterr) {
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
    if (parse_ago(text, now, ret_unix_s)) {
        return OK;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &tm);
        bool utc = end != NULL && strcmp(end, "Z") == 0;
        if (end != NULL && (end[0] == '\0' || utc)) {
            time_t at = utc ? timegm(&tm) : mktime(&tm);
            *ret_unix_s = at > 0 ? at : 0;
            return OK;
        }
    }
    return errmsg_set(
        reterr, ERR_INVALID,
        "--since: \"%.40s\" is neither a time ago such as 90s, 10m, 2h, 3d nor a time "
        "such as 2026-11-30 or 2026-11-30T18:30 (local; with Z behind it UTC)",
        text);
}

static void print_event(const json_t *event) {
    const char *pool = client_text_of(event, "pool"), *advice = client_text_of(event, "advice");
    const char *severity = client_text_of(event, "severity");
    (void)printf("%.19sZ  %-7s  %s%s%s%s\n", client_text_of(event, "time"), severity,
                 pool[0] != '\0' ? "pool " : "", pool, pool[0] != '\0' ? ": " : "",
                 client_text_of(event, "text"));
    if (advice[0] != '\0' && strcmp(severity, "info") != 0) {
        (void)printf("%31sto do: %s\n", "", advice);
    }
}

/* With --json an object a line, for programs that read along. */
static int follow(const struct args *args, json_t *body, json_int_t after, struct errmsg *reterr) {
    json_t *answer, *event;
    size_t index;
    (void)json_object_set_new(body, "wait_seconds", json_integer(WAIT_S));
    for (;;) {
        (void)json_object_set_new(body, "after", json_integer(after));
        int error = client_call(args, "POST", "/v1/events", json_deep_copy(body), &answer, reterr);
        if (error != OK) {
            return error;
        }
        json_array_foreach(json_object_get(answer, "events"), index, event) {
            if (args->given[OPT_JSON]) {
                (void)json_dumpf(event, stdout, JSON_COMPACT);
                (void)putchar('\n');
            } else {
                print_event(event);
            }
        }
        after = json_integer_value(json_object_get(answer, "last"));
        json_decref(answer);
        if (fflush(stdout) != 0) {
            return OK; /* nobody reads along any more; main() says so */
        }
    }
}

int cmd_events(const struct args *args, struct errmsg *reterr) {
    json_t *answer, *event, *body = json_object();
    size_t index;
    char pool[64];
    int error = OK;
    if (args->operands[0] != NULL) {
        error = client_pool_name(args->operands[0], pool, reterr);
        (void)json_object_set_new(body, "pool", json_string(error == OK ? pool : ""));
    }
    if (args->given[OPT_SEVERITY]) {
        (void)json_object_set_new(body, "severity", json_string(args->text[OPT_SEVERITY]));
    }
    if (error == OK && args->given[OPT_SINCE]) {
        int64_t since = 0;
        error = since_parse(args->text[OPT_SINCE], (int64_t)time(NULL), &since, reterr);
        (void)json_object_set_new(body, "since_unix", json_integer(since > 0 ? since : 0));
    }
    if (error == OK && args->given[OPT_FOLLOW]) {
        error = follow(args, body, 0, reterr);
    } else if (error == OK) {
        error = client_call(args, "POST", "/v1/events", json_incref(body), &answer, reterr);
        if (error == OK && args->given[OPT_JSON]) {
            client_print_json(answer);
        } else if (error == OK) {
            const json_t *events = json_object_get(answer, "events");
            json_array_foreach(events, index, event) {
                print_event(event);
            }
            (void)fputs(json_array_size(events) == 0 ? "nothing of that has happened\n" : "",
                        stdout);
        }
        if (error == OK) {
            json_decref(answer);
        }
    }
    json_decref(body);
    return error;
}
