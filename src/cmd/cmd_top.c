// SPDX-License-Identifier: MPL-2.0
/* holdfast top: rates, as differences of two looks at the counters. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/rates.h"
#include "cmd/table.h"

enum { INTERVAL_S_MAX = 3600 };

/* ---- rates ---- */

static json_int_t counter(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static const json_t *find_same(const json_t *list, const json_t *wanted) {
    const json_t *entry;
    size_t index;
    json_array_foreach((json_t *)list, index, entry) {
        if (strcmp(client_text_of(entry, "pool"), client_text_of(wanted, "pool")) == 0 &&
            strcmp(client_text_of(entry, "name"), client_text_of(wanted, "name")) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* What came to it; nothing when it was counted anew meanwhile. */
static double grown(const json_t *before, const json_t *now, const char *key) {
    json_int_t then = counter(before, key), is = counter(now, key);
    return before != NULL && is > then ? (double)(is - then) : 0;
}

static json_t *rate_of(const json_t *before, const json_t *now, double seconds) {
    double operations = grown(before, now, "operations");
    json_t *rate =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:I}", "name", client_text_of(now, "name"),
                  "reads_per_s", grown(before, now, "reads") / seconds, "writes_per_s",
                  grown(before, now, "writes") / seconds, "read_bytes_per_s",
                  grown(before, now, "read_bytes") / seconds, "write_bytes_per_s",
                  grown(before, now, "write_bytes") / seconds, "queue", counter(now, "queue"));
    (void)json_object_set_new(rate, "latency_ms",
                              operations > 0
                                  ? json_real(grown(before, now, "latency_ns") / operations / 1e6)
                                  : json_null());
    if (json_object_get(now, "pool") != NULL) {
        (void)json_object_set(rate, "pool", json_object_get(now, "pool"));
    }
    return rate;
}

json_t *rates_between(const json_t *before, const json_t *now, const char *pool) {
    static const char *const lists[] = {"pools", "luns", "disks"};
    double seconds = (double)(counter(now, "at_ns") - counter(before, "at_ns")) / 1e9;
    json_t *rates = json_pack("{s:f}", "seconds", seconds);
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        json_t *list = json_array(), *entry;
        size_t index;
        json_array_foreach(json_object_get(now, lists[k]), index, entry) {
            const char *of = client_text_of(entry, k == 0 ? "name" : "pool");
            if (pool == NULL || strcmp(pool, of) == 0) {
                const json_t *then = find_same(json_object_get(before, lists[k]), entry);
                (void)json_array_append_new(list, rate_of(then, entry, seconds > 0 ? seconds : 1));
            }
        }
        (void)json_object_set_new(rates, lists[k], list);
    }
    return rates;
}

/* ---- for people ---- */

static void cell(struct table *table, int decimals, double value) {
    char text[32];
    (void)snprintf(text, sizeof(text), "%.*f", decimals, value);
    table_text(table, text);
}

static void add_rows(struct table *table, const json_t *rates, const char *key, const char *what) {
    json_t *rate;
    size_t index;
    json_array_foreach(json_object_get(rates, key), index, rate) {
        char name[400];
        const char *pool = client_text_of(rate, "pool");
        bool disk = strcmp(what, "disk") == 0;
        (void)snprintf(name, sizeof(name), "%s %s%s%s", what, disk ? "" : pool,
                       disk || pool[0] == '\0' ? "" : "/", client_text_of(rate, "name"));
        const json_t *latency = json_object_get(rate, "latency_ms");
        table_text(table, name);
        cell(table, 0, json_real_value(json_object_get(rate, "reads_per_s")));
        cell(table, 0, json_real_value(json_object_get(rate, "writes_per_s")));
        cell(table, 1, json_real_value(json_object_get(rate, "read_bytes_per_s")) / 1e6);
        cell(table, 1, json_real_value(json_object_get(rate, "write_bytes_per_s")) / 1e6);
        if (json_is_real(latency)) {
            cell(table, 2, json_real_value(latency));
        } else {
            table_text(table, NULL);
        }
        table_number(table, (uint64_t)counter(rate, "queue"));
    }
}

static void print_rates(const json_t *rates) {
    static const char *const heads[] = {
        "", ">READS/s", ">WRITES/s", ">READ MB/s", ">WRITE MB/s", ">LATENCY ms", ">QUEUE", NULL};
    struct table *table = table_new(heads);
    add_rows(table, rates, "pools", "pool");
    add_rows(table, rates, "luns", "LUN");
    add_rows(table, rates, "disks", "disk");
    table_print(table, "no pools");
}

/* One interval has passed. A terminal is written over, anything else gets a line with the time. */
static void show(const struct args *args, const json_t *rates) {
    bool once = args->given[OPT_ONCE], terminal = isatty(STDOUT_FILENO) != 0;
    char at[32];
    struct tm tm;
    time_t now = time(NULL);
    if (args->given[OPT_JSON] && once) {
        client_print_json(rates);
    } else if (args->given[OPT_JSON]) {
        (void)json_dumpf(rates, stdout, JSON_COMPACT);
        (void)putchar('\n');
    } else {
        if (!once) {
            (void)strftime(at, sizeof(at), "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
            (void)printf("%s%s\n", terminal ? "\033[H\033[J" : "", at);
        }
        print_rates(rates);
    }
}

int cmd_top(const struct args *args, struct errmsg *reterr) {
    char pool[64];
    uint64_t interval = args->given[OPT_INTERVAL] ? args->number[OPT_INTERVAL] : 1;
    json_t *before = NULL, *now = NULL;
    if (interval < 1 || interval > INTERVAL_S_MAX) {
        return errmsg_set(reterr, ERR_RANGE, "--interval: between 1 and %d seconds",
                          INTERVAL_S_MAX);
    }
    bool one = args->operands[0] != NULL;
    int error = one ? client_pool_name(args->operands[0], pool, reterr) : OK;
    if (error == OK) {
        error = client_call(args, "GET", "/v1/counters", NULL, &before, reterr);
    }
    for (bool more = true; error == OK && more;) {
        (void)sleep((unsigned)interval);
        error = client_call(args, "GET", "/v1/counters", NULL, &now, reterr);
        if (error == OK) {
            json_t *rates = rates_between(before, now, one ? pool : NULL);
            if (one && json_array_size(json_object_get(rates, "pools")) == 0) {
                error = errmsg_set(reterr, ERR_NOT_FOUND, "no pool %s is served here", pool);
            } else {
                show(args, rates);
                more = fflush(stdout) == 0 && !args->given[OPT_ONCE];
            }
            json_decref(rates);
            json_decref(before);
            before = now;
        }
    }
    json_decref(before);
    return error;
}
