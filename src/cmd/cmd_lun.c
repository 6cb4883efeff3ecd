// SPDX-License-Identifier: MPL-2.0
/* holdfast lun …, holdfast chap …: what is served over iSCSI, and to whom. */
#include <errno.h>
#include <string.h>

#include "base/size.h"
#include "cmd/client.h"
#include "cmd/commands.h"
#include "cmd/table.h"
#include "codec/digest.h"
#include "control/answer.h"
#include "control/chap.h"

/* ---- LUNs ---- */

static struct table *lun_table(void) {
    static const char *const heads[] = {"LUN",    "VOLUME", ">SIZE",   "TARGET", ">NUMBER",
                                        "SERVED", "FOR",    "PORTALS", NULL};
    return table_new(heads);
}

/* "anybody", "nobody", or who: name@address as user. */
static void describe_access(const json_t *lun, char *ret_text, size_t text_bytes) {
    const json_t *access = json_object_get(lun, "access"), *rule;
    size_t index, used = 0;
    bool open = json_is_true(json_object_get(lun, "open"));
    (void)snprintf(ret_text, text_bytes, "%s", open ? "anybody" : "nobody");
    json_array_foreach((json_t *)access, index, rule) {
        const char *initiator = client_text_of(rule, "initiator");
        const char *address = client_text_of(rule, "address");
        const char *user = client_text_of(rule, "user");
        int length = snprintf(
            ret_text + used, text_bytes - used, "%s%s%s%s%s%s", index > 0 ? ", " : "", initiator,
            address[0] != 0 ? "@" : "", address,
            user[0] != 0 ? (initiator[0] != 0 || address[0] != 0 ? " as " : "as ") : "", user);
        used += (size_t)length < text_bytes - used ? (size_t)length : text_bytes - used - 1;
    }
}

static void join_texts(const json_t *texts, char *ret_text, size_t text_bytes) {
    json_t *text;
    size_t index;
    json_array_foreach(texts, index, text) {
        size_t used = strlen(ret_text);
        (void)snprintf(ret_text + used, text_bytes - used, "%s%s", index > 0 ? " " : "",
                       json_string_value(text));
    }
}

static void add_lun(struct table *table, const json_t *lun) {
    char name[160], portals[256] = "", access[4096];
    (void)snprintf(name, sizeof(name), "%s/%s", client_text_of(lun, "pool"),
                   client_text_of(lun, "name"));
    join_texts(json_object_get(lun, "portals"), portals, sizeof(portals));
    table_text(table, name);
    table_json_text(table, lun, "volume");
    table_json_size(table, lun, "size_bytes");
    table_json_text(table, lun, "target");
    table_json_number(table, lun, "lun");
    table_text(table, json_is_true(json_object_get(lun, "served")) ? "yes" : "NO");
    describe_access(lun, access, sizeof(access));
    table_text(table, access);
    table_text(table, portals);
}

static int show_lun(const struct args *args, json_t *lun) {
    if (args->given[OPT_JSON]) {
        client_print_json(lun);
    } else {
        struct table *table = lun_table();
        add_lun(table, lun);
        table_print(table, "");
    }
    json_decref(lun);
    return OK;
}

/* Members named as the API names them, for those options that were given. */
static void add_given(const struct args *args, json_t *body) {
    static const struct {
        enum option_id id;
        const char *key;
    } texts[] = {
        {OPT_NAME, "name"},       {OPT_TARGET, "target"}, {OPT_INITIATOR, "initiator"},
        {OPT_ADDRESS, "address"}, {OPT_USER, "user"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (args->given[texts[i].id]) {
            (void)json_object_set_new(body, texts[i].key, answer_text(args->text[texts[i].id]));
        }
    }
}

int cmd_lun_create(const struct args *args, struct errmsg *reterr) {
    char pool[64], volume[64], path[128];
    int error = client_split(args->operands[0], "VOLUME", pool, volume, reterr);
    if (error != OK) {
        return error;
    }
    json_t *body = json_pack("{s:s}", "volume", volume), *answer;
    add_given(args, body);
    if (args->given[OPT_CLOSED]) {
        (void)json_object_set_new(body, "closed", json_true());
    }
    if (args->given[OPT_LUN]) {
        (void)json_object_set_new(body, "lun", json_integer((json_int_t)args->number[OPT_LUN]));
    }
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/luns", pool);
    error = client_call(args, "POST", path, body, &answer, reterr);
    return error == OK ? show_lun(args, answer) : error;
}

static int change_access(const struct args *args, const char *verb, enum option_id all,
                         struct errmsg *reterr) {
    char pool[64], name[64], path[200];
    json_t *answer;
    int error = client_split(args->operands[0], "LUN", pool, name, reterr);
    if (error != OK) {
        return error;
    }
    json_t *body = json_object();
    add_given(args, body);
    if (json_object_size(body) == 0 && !args->given[all]) {
        json_decref(body);
        return errmsg_set(reterr, ERR_INVALID, "say who: --initiator, --address, --user, or --%s",
                          option_spec(all)->name);
    }
    if (args->given[all]) {
        (void)json_object_set_new(body, "all", json_true());
    }
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/luns/%s/%s", pool, name, verb);
    error = client_call(args, "POST", path, body, &answer, reterr);
    return error == OK ? show_lun(args, answer) : error;
}

int cmd_lun_map(const struct args *args, struct errmsg *reterr) {
    return change_access(args, "map", OPT_ANYBODY, reterr);
}

int cmd_lun_unmap(const struct args *args, struct errmsg *reterr) {
    return change_access(args, "unmap", OPT_ALL, reterr);
}

int cmd_lun_list(const struct args *args, struct errmsg *reterr) {
    char name[64], path[128] = "/v1/luns";
    json_t *answer, *lun;
    size_t index;
    int error = OK;
    if (args->operands[0] != NULL) {
        error = client_pool_name(args->operands[0], name, reterr);
        if (error == OK) {
            (void)snprintf(path, sizeof(path), "/v1/pools/%s/luns", name);
        }
    }
    if (error == OK) {
        error = client_call(args, "GET", path, NULL, &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        struct table *table = lun_table();
        json_array_foreach(json_object_get(answer, "luns"), index, lun) {
            add_lun(table, lun);
        }
        table_print(table, "no LUNs (holdfast lun create POOL/VOLUME makes one)");
    }
    json_decref(answer);
    return OK;
}

int cmd_lun_delete(const struct args *args, struct errmsg *reterr) {
    char pool[64], name[64], path[200];
    json_t *answer;
    int error = client_split(args->operands[0], "LUN", pool, name, reterr);
    if (error == OK) {
        error = client_confirm(args,
                               "Initiators that use this LUN lose their disk at once (its "
                               "volume and data stay)",
                               name, reterr);
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/luns/%s", pool, name);
        error = client_call(args, "DELETE", path, NULL, &answer, reterr);
    }
    return error == OK ? client_print_deleted(args, answer, args->operands[0]) : error;
}

int cmd_lun_sessions(const struct args *args, struct errmsg *reterr) {
    static const char *const heads[] = {"INITIATOR", "USER",      "ADDRESS", "PORTAL",   "TARGET",
                                        "DIGESTS",   ">COMMANDS", ">READ",   ">WRITTEN", NULL};
    json_t *answer, *session;
    size_t index;
    int error = client_call(args, "GET", "/v1/sessions", NULL, &answer, reterr);
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        struct table *table = table_new(heads);
        json_array_foreach(json_object_get(answer, "sessions"), index, session) {
            bool header = json_is_true(json_object_get(session, "header_digest"));
            bool data = json_is_true(json_object_get(session, "data_digest"));
            const char *target = client_text_of(session, "target");
            table_json_text(table, session, "initiator");
            table_json_text(table, session, "user");
            table_json_text(table, session, "address");
            table_json_text(table, session, "portal");
            table_text(table, target[0] != '\0' ? target : "(discovery)");
            table_text(table, header && data ? "both" : header ? "header" : data ? "data" : "");
            table_json_number(table, session, "commands_total");
            table_json_size(table, session, "read_bytes");
            table_json_size(table, session, "write_bytes");
        }
        table_print(table, "nobody is logged in");
    }
    json_decref(answer);
    return OK;
}

/* ---- CHAP users ---- */

static int split_user(const char *operand, char ret_pool[64], char ret_user[128],
                      struct errmsg *reterr) {
    const char *slash = strchr(operand, '/');
    char pool[64] = "";
    if (slash != NULL && slash - operand < 64) {
        memcpy(pool, operand, (size_t)(slash - operand));
    }
    if (slash == NULL || !chap_name_is_valid(slash + 1)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%.200s\" is not of the form POOL/USER; a user is 1 to 127 letters, "
                          "digits, '.', ':', '_', '@' or '-'",
                          operand);
    }
    (void)snprintf(ret_user, 128, "%s", slash + 1);
    return client_pool_name(pool, ret_pool, reterr);
}

/* The first line of a file, or of standard input ("-"); never an argument, which all users of the
 * host could read. */
static int read_secret(const struct args *args, enum option_id id, char ret_secret[256],
                       struct errmsg *reterr) {
    const char *path = args->text[id];
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (file == NULL) {
        return errmsg_set(reterr, error_from_errno(errno), "--%s: cannot read %s: %s",
                          option_spec(id)->name, path, strerror(errno));
    }
    bool got = fgets(ret_secret, 256, file) != NULL;
    if (file != stdin) {
        (void)fclose(file);
    }
    ret_secret[got ? strcspn(ret_secret, "\r\n") : 0] = '\0';
    return ret_secret[0] != '\0' ? OK
                                 : errmsg_set(reterr, ERR_INVALID, "--%s: %s has no first line",
                                              option_spec(id)->name, path);
}

static struct table *user_table(void) {
    static const char *const heads[] = {"USER", "WE ARE", "LUNS", NULL};
    return table_new(heads);
}

static void add_user(struct table *table, const json_t *user) {
    char name[200], luns[512] = "";
    (void)snprintf(name, sizeof(name), "%s/%s", client_text_of(user, "pool"),
                   client_text_of(user, "name"));
    join_texts(json_object_get(user, "luns"), luns, sizeof(luns));
    table_text(table, name);
    table_json_text(table, user, "mutual_name");
    table_text(table, luns);
}

static int user_body(const struct args *args, const char *user, json_t **ret_body,
                     struct errmsg *reterr) {
    char secret[256] = "", mutual[256] = "";
    if (!args->given[OPT_SECRET_FILE]) {
        return errmsg_set(reterr, ERR_INVALID,
                          "--secret-file is missing: a file that holds the initiator's secret, 12 "
                          "to 128 characters (- is standard input)");
    }
    if (args->given[OPT_MUTUAL_NAME] != args->given[OPT_MUTUAL_SECRET_FILE]) {
        return errmsg_set(reterr, ERR_INVALID,
                          "--mutual-name and --mutual-secret-file belong together");
    }
    int error = read_secret(args, OPT_SECRET_FILE, secret, reterr);
    if (error == OK && args->given[OPT_MUTUAL_SECRET_FILE]) {
        error = read_secret(args, OPT_MUTUAL_SECRET_FILE, mutual, reterr);
    }
    json_t *body = json_object();
    bool good = error == OK && json_object_set_new(body, "name", json_string(user)) == 0 &&
                json_object_set_new(body, "secret", json_string(secret)) == 0;
    if (good && args->given[OPT_MUTUAL_NAME]) {
        good = json_object_set_new(body, "mutual_name", answer_text(args->text[OPT_MUTUAL_NAME])) ==
                   0 &&
               json_object_set_new(body, "mutual_secret", json_string(mutual)) == 0;
    }
    if (good) {
        *ret_body = body;
    } else {
        json_decref(body);
        error = error != OK ? error : errmsg_set(reterr, ERR_INVALID, "a secret is not UTF-8 text");
    }
    secret_wipe(secret, sizeof(secret));
    secret_wipe(mutual, sizeof(mutual));
    return error;
}

int cmd_chap_set(const struct args *args, struct errmsg *reterr) {
    char pool[64], user[128], path[128];
    json_t *body = NULL, *answer;
    int error = split_user(args->operands[0], pool, user, reterr);
    if (error == OK) {
        error = user_body(args, user, &body, reterr);
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/chap", pool);
        error = client_call(args, "POST", path, body, &answer, reterr);
    }
    if (error != OK) {
        return error;
    }
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        struct table *table = user_table();
        add_user(table, answer);
        table_print(table, "");
    }
    json_decref(answer);
    return OK;
}

int cmd_chap_list(const struct args *args, struct errmsg *reterr) {
    static const struct client_listing listing = {
        "chap", "users", user_table, add_user,
        "no CHAP users (holdfast chap set POOL/USER makes one)"};
    return client_list(args, &listing, reterr);
}

int cmd_chap_delete(const struct args *args, struct errmsg *reterr) {
    char pool[64], user[128], path[256];
    json_t *answer;
    int error = split_user(args->operands[0], pool, user, reterr);
    if (error == OK) {
        error = client_confirm(args, "Nobody can log in as this user any more", user, reterr);
    }
    if (error == OK) {
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/chap/%s", pool, user);
        error = client_call(args, "DELETE", path, NULL, &answer, reterr);
    }
    return error == OK ? client_print_deleted(args, answer, args->operands[0]) : error;
}
