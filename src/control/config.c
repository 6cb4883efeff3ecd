// SPDX-License-Identifier: MPL-2.0
#include "control/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "control/schema.h"
#include "iscsi/limits.h"

enum key_type {
    KEY_PATH,
    KEY_SIZE,
    KEY_SECONDS,
    KEY_PERCENT,
    KEY_COUNT,
    KEY_PATH_LIST,
    KEY_NAME_LIST,
    KEY_ADDRESS_LIST
};

static const struct config_key {
    const char *name;
    enum key_type type;
    size_t offset;
} keys[] = {
    {"socket", KEY_PATH, offsetof(struct config, socket)},
    {"state-dir", KEY_PATH, offsetof(struct config, state_dir)},
    {"listen", KEY_ADDRESS_LIST, offsetof(struct config, listen)},
    {"pools", KEY_NAME_LIST, offsetof(struct config, pools)},
    {"search", KEY_PATH_LIST, offsetof(struct config, search)},
    {"read-cache", KEY_SIZE, offsetof(struct config, read_cache_bytes)},
    {"node-cache", KEY_SIZE, offsetof(struct config, node_cache_bytes)},
    {"dirty-limit", KEY_SIZE, offsetof(struct config, dirty_bytes)},
    {"rebuild-grace", KEY_SECONDS, offsetof(struct config, rebuild_grace_s)},
    {"rebuild-share", KEY_PERCENT, offsetof(struct config, rebuild_share_pct)},
    {"iscsi-threads", KEY_COUNT, offsetof(struct config, iscsi_threads)},
};

enum { KEYS = sizeof(keys) / sizeof(keys[0]), FILE_MAX = 256 << 10 };
#define SIZE_LEAST (1ull << 20)
#define SIZE_MOST (1ull << 42)
#define SECONDS_MOST (7ull * 24 * 3600)

void config_init(struct config *config) {
    memset(config, 0, sizeof(*config));
}

static int set_size(const char *key, const char *value, uint64_t *ret_bytes,
                    struct errmsg *reterr) {
    uint64_t bytes;
    int error = size_parse(value, &bytes);
    if (error != OK || bytes < SIZE_LEAST || bytes > SIZE_MOST) {
        return errmsg_set(reterr, error != OK ? error : ERR_RANGE,
                          "%s: \"%s\" is not a size from 1M to 4T", key, value);
    }
    *ret_bytes = bytes;
    return OK;
}

static int set_number(const char *key, const char *value, uint64_t most, const char *unit,
                      uint64_t *ret_value, struct errmsg *reterr) {
    char *end;
    uint64_t number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || number < 1 || number > most) {
        return errmsg_set(reterr, ERR_RANGE, "%s: \"%.40s\" is not a number of %s from 1 to %llu",
                          key, value, unit, (unsigned long long)most);
    }
    *ret_value = number;
    return OK;
}

static int set_path(const char *key, const char *value, char ret_path[CONFIG_VALUE_MAX],
                    struct errmsg *reterr) {
    if (value[0] != '/' || strlen(value) >= CONFIG_VALUE_MAX) {
        return errmsg_set(reterr, ERR_INVALID,
                          "%s: \"%.100s\" is not an absolute path of at most %d characters", key,
                          value, CONFIG_VALUE_MAX - 1);
    }
    memcpy(ret_path, value, strlen(value) + 1);
    return OK;
}

/* ADDR, ADDR:PORT, [ADDR6], [ADDR6]:PORT, each with ,TAG or without; the port is 3260 when there is
 * none. Whether there is such an address is found out by listening on it. */
static int normal_address(const char *given, char ret_address[CONFIG_VALUE_MAX]) {
    char value[CONFIG_VALUE_MAX], tag[8] = "";
    const char *comma = strchr(given, ',');
    if (strlen(given) >= sizeof(value)) {
        return ERR_INVALID;
    }
    (void)snprintf(value, sizeof(value), "%.*s",
                   (int)(comma != NULL ? comma - given : (ptrdiff_t)strlen(given)), given);
    if (comma != NULL) {
        char *end;
        unsigned long number = strtoul(comma + 1, &end, 10);
        if (!isdigit((unsigned char)comma[1]) || *end != '\0' || number < 1 || number > 65535) {
            return ERR_INVALID;
        }
        (void)snprintf(tag, sizeof(tag), ",%lu", number);
    }
    size_t length = strlen(value);
    const char *colon = strrchr(value, ':');
    const char *bracket = strrchr(value, ']');
    bool v6 = value[0] == '[';
    if (length == 0 || length > 200 || (v6 && bracket == NULL) ||
        (!v6 && (bracket != NULL || strchr(value, ':') != colon)) ||
        (v6 && bracket[1] != '\0' && bracket[1] != ':')) {
        return ERR_INVALID;
    }
    bool has_port = colon != NULL && (!v6 || colon > bracket);
    unsigned port = 3260;
    if (has_port) {
        char *end;
        unsigned long parsed = strtoul(colon + 1, &end, 10);
        if (!isdigit((unsigned char)colon[1]) || *end != '\0' || parsed > 65535) {
            return ERR_INVALID;
        }
        port = (unsigned)parsed;
        length = (size_t)(colon - value);
    }
    if (length == 0) {
        return ERR_INVALID;
    }
    (void)snprintf(ret_address, CONFIG_VALUE_MAX, "%.*s:%u%s", (int)length, value, port, tag);
    return OK;
}

static int list_add(const char *key, enum key_type type, const char *value,
                    struct config_list *list, struct errmsg *reterr) {
    if (list->count == CONFIG_LIST_MAX) {
        return errmsg_set(reterr, ERR_LIMIT, "%s: more than %d values", key, CONFIG_LIST_MAX);
    }
    char *entry = list->values[list->count];
    int error = OK;
    if (type == KEY_PATH_LIST) {
        error = set_path(key, value, entry, reterr);
    } else if (type == KEY_NAME_LIST) {
        if (!schema_name_is_valid(value)) {
            error = errmsg_set(reterr, ERR_INVALID, "%s: \"%.100s\" is not a name", key, value);
        } else {
            memcpy(entry, value, strlen(value) + 1);
        }
    } else if (normal_address(value, entry) != OK) {
        error = errmsg_set(reterr, ERR_INVALID,
                           "%s: \"%.100s\" is not an address such as 192.0.2.7:3260 or "
                           "[2001:db8::7]:3260, with a portal group tag (,2) or without",
                           key, value);
    }
    if (error == OK) {
        list->count++;
    }
    return error;
}

static int set_list(const char *key, enum key_type type, const char *value,
                    struct config_list *list, struct errmsg *reterr) {
    char *copy = mem_strdup(value), *rest = copy, *word;
    int error = OK;
    while (error == OK && (word = strtok_r(rest, " \t", &rest)) != NULL) {
        error = list_add(key, type, word, list, reterr);
    }
    mem_free(copy);
    return error;
}

int config_set(struct config *config, const char *key, const char *value, struct errmsg *reterr) {
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, key) != 0) {
            continue;
        }
        void *where = (char *)config + keys[i].offset;
        if (value[0] == '\0') {
            return errmsg_set(reterr, ERR_INVALID, "%s: a value is missing", key);
        }
        switch (keys[i].type) {
        case KEY_PATH:
            return set_path(key, value, where, reterr);
        case KEY_SIZE:
            return set_size(key, value, where, reterr);
        case KEY_SECONDS:
            return set_number(key, value, SECONDS_MOST, "seconds", where, reterr);
        case KEY_PERCENT:
            return set_number(key, value, 100, "percent", where, reterr);
        case KEY_COUNT:
            return set_number(key, value, ISCSI_LOOPS_MAX, "threads", where, reterr);
        default:
            return set_list(key, keys[i].type, value, where, reterr);
        }
    }
    return errmsg_set(
        reterr, ERR_INVALID,
        "\"%.64s\" is not a setting; known: socket, state-dir, listen, pools, search, "
        "read-cache, node-cache, dirty-limit, rebuild-grace, rebuild-share, iscsi-threads",
        key);
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

static int parse_line(struct config *config, char *line, uint32_t *seen, struct errmsg *reterr) {
    line = trim(line);
    if (line[0] == '\0' || line[0] == '#') {
        return OK;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "\"%.64s\" is not of the form key = value", line);
    }
    *equals = '\0';
    char *key = trim(line);
    for (size_t i = 0; i < KEYS; i++) {
        bool single = keys[i].type < KEY_PATH_LIST;
        if (single && strcmp(keys[i].name, key) == 0) {
            if ((*seen & (1u << i)) != 0) {
                return errmsg_set(reterr, ERR_INVALID, "%s: is set a second time", key);
            }
            *seen |= 1u << i;
        }
    }
    return config_set(config, key, trim(equals + 1), reterr);
}

int config_parse(struct config *config, const char *path, const char *text, struct errmsg *reterr) {
    char *copy = mem_strdup(text), *rest = copy, *line;
    uint32_t seen = 0;
    int error = OK;
    for (unsigned number = 1; error == OK && (line = strsep(&rest, "\n")) != NULL; number++) {
        error = parse_line(config, line, &seen, reterr);
        if (error != OK) {
            (void)errmsg_prefix(reterr, "%s, line %u: ", path, number);
        }
    }
    mem_free(copy);
    return error;
}

int config_load(struct config *config, const char *path, struct errmsg *reterr) {
    const char *name = path != NULL ? path : CONFIG_FILE_DEFAULT;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (path == NULL && errno == ENOENT) {
            return OK;
        }
        return errmsg_set(reterr, error_from_errno(errno), "cannot read %s: %s", name,
                          strerror(errno));
    }
    char *text = mem_alloc(FILE_MAX + 1);
    size_t used = 0;
    ssize_t got;
    while ((got = read(fd, text + used, FILE_MAX + 1 - used)) > 0) {
        used += (size_t)got;
    }
    int error = OK;
    if (got < 0) {
        error = errmsg_set(reterr, error_from_errno(errno), "cannot read %s: %s", name,
                           strerror(errno));
    } else if (used > FILE_MAX || strlen(text) != used) {
        error = errmsg_set(reterr, ERR_INVALID, "%s is not a text file of at most %d KiB", name,
                           FILE_MAX >> 10);
    } else {
        error = config_parse(config, name, text, reterr);
    }
    close(fd);
    mem_free(text);
    return error;
}

void config_finish(struct config *config) {
    if (config->socket[0] == '\0') {
        memcpy(config->socket, CONFIG_SOCKET_DEFAULT, sizeof(CONFIG_SOCKET_DEFAULT));
    }
    if (config->state_dir[0] == '\0') {
        memcpy(config->state_dir, CONFIG_STATE_DEFAULT, sizeof(CONFIG_STATE_DEFAULT));
    }
    if (config->listen.count == 0) {
        config->listen.count = 1;
        memcpy(config->listen.values[0], CONFIG_LISTEN_DEFAULT, sizeof(CONFIG_LISTEN_DEFAULT));
    }
}

void config_clear(struct config_list *list) {
    list->count = 0;
}
