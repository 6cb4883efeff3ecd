// SPDX-License-Identifier: MPL-2.0
#include "cmd/client.h"

#include <curl/curl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "control/answer.h"
#include "control/config.h"
#include "control/schema.h"

enum { CONNECT_S = 5, ANSWER_BYTES_MAX = 64 << 20 };

struct received {
    char *text;
    size_t bytes;
};

static size_t receive(char *data, size_t size, size_t count, void *owner) {
    struct received *received = owner;
    size_t bytes = size * count;
    if (bytes > ANSWER_BYTES_MAX - received->bytes) {
        return 0;
    }
    received->text = mem_realloc(received->text, received->bytes + bytes + 1);
    memcpy(received->text + received->bytes, data, bytes);
    received->bytes += bytes;
    received->text[received->bytes] = '\0';
    return bytes;
}

/* --socket, $HOLDFAST_SOCKET, the settings' socket, the default. */
static void socket_path(const struct args *args, char ret_path[CONFIG_VALUE_MAX]) {
    const char *given =
        args->given[OPT_SOCKET] ? args->text[OPT_SOCKET] : getenv("HOLDFAST_SOCKET");
    if (given != NULL && given[0] != '\0') {
        (void)snprintf(ret_path, CONFIG_VALUE_MAX, "%s", given);
        return;
    }
    struct config *config = MEM_NEW(struct config);
    struct errmsg ignored = {0};
    config_init(config);
    if (config_load(config, NULL, &ignored) != OK) {
        config_init(config); /* the service says what is wrong with its settings, not we */
    }
    config_finish(config);
    (void)snprintf(ret_path, CONFIG_VALUE_MAX, "%s", config->socket);
    mem_free(config);
}

static int transfer_failed(CURLcode result, const char *socket, const char *detail,
                           struct errmsg *reterr) {
    if (result == CURLE_COULDNT_CONNECT) {
        if (access(socket, F_OK) == 0 && access(socket, W_OK) != 0) {
            return errmsg_set(reterr, ERR_PERMISSION,
                              "you may not use the service at %s; run this as the user that runs "
                              "the service (root, as a rule)",
                              socket);
        }
        return errmsg_set(reterr, ERR_CLOSED,
                          "the service does not run: nothing answers at %s; start it with "
                          "\"holdfast serve\" (or \"systemctl start holdfast\")",
                          socket);
    }
    return errmsg_set(reterr, ERR_PROTOCOL, "the service at %s broke off: %s", socket,
                      detail[0] != '\0' ? detail : curl_easy_strerror(result));
}

static CURLcode perform(const char *socket, const char *method, const char *path, const char *body,
                        struct received *received, long *ret_status, char *ret_detail) {
    char url[1024];
    (void)snprintf(url, sizeof(url), "http://localhost%s", path);
    CURL *curl = curl_easy_init();
    if (curl == NULL) {
        return CURLE_OUT_OF_MEMORY;
    }
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, received);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, ret_detail);
    if (body != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    }
    CURLcode result = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return result;
}

int client_call(const struct args *args, const char *method, const char *path, json_t *body,
                json_t **ret_answer, struct errmsg *reterr) {
    char socket[CONFIG_VALUE_MAX], detail[CURL_ERROR_SIZE] = "";
    struct received received = {0};
    long status = 0;
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    json_decref(body);
    socket_path(args, socket);
    CURLcode result = perform(socket, method, path, text, &received, &status, detail);
    free(text);
    if (result != CURLE_OK) {
        mem_free(received.text);
        return transfer_failed(result, socket, detail, reterr);
    }
    json_t *answer =
        json_loadb(received.text != NULL ? received.text : "", received.bytes, 0, NULL);
    mem_free(received.text);
    if (!json_is_object(answer)) {
        json_decref(answer);
        return errmsg_set(reterr, ERR_PROTOCOL, "what answers at %s is not Holdfast's service",
                          socket);
    }
    if (status < 200 || status > 299) {
        int error = answer_read_error(answer, reterr);
        json_decref(answer);
        return error;
    }
    *ret_answer = answer;
    return OK;
}

int client_pool_name(const char *operand, char ret_pool[64], struct errmsg *reterr) {
    if (!schema_name_is_valid(operand)) {
        return errmsg_set(
            reterr, ERR_INVALID,
            "\"%.100s\" is not a pool's name: a letter, then up to 62 letters, digits, "
            "'.', '_' or '-'",
            operand);
    }
    (void)snprintf(ret_pool, 64, "%s", operand);
    return OK;
}

int client_split(const char *operand, const char *what, char ret_pool[64], char ret_name[64],
                 struct errmsg *reterr) {
    const char *slash = strchr(operand, '/');
    char pool[64] = "";
    if (slash != NULL && slash - operand < 64) {
        memcpy(pool, operand, (size_t)(slash - operand));
    }
    if (slash == NULL || !schema_name_is_valid(pool) || !schema_name_is_valid(slash + 1)) {
        return errmsg_set(reterr, ERR_INVALID, "\"%.130s\" is not of the form POOL/%s", operand,
                          what);
    }
    memcpy(ret_pool, pool, sizeof(pool));
    (void)snprintf(ret_name, 64, "%s", slash + 1);
    return OK;
}

void client_print_json(const json_t *answer) {
    (void)json_dumpf(answer, stdout, JSON_INDENT(2));
    (void)putchar('\n');
}

int client_confirm(const struct args *args, const char *loss, const char *word,
                   struct errmsg *reterr) {
    if (args->given[OPT_YES]) {
        return OK;
    }
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        return errmsg_set(reterr, ERR_INVALID, "%s; give --yes if that is what you want", loss);
    }
    char line[128];
    (void)fprintf(stderr, "%s.\nType %s to go on: ", loss, word);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        line[0] = '\0';
    }
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, word) == 0
               ? OK
               : errmsg_set(reterr, ERR_CANCELLED, "not confirmed: nothing was changed");
}

json_t *client_paths(const struct args *args, enum option_id id) {
    json_t *paths = json_array();
    for (uint32_t i = 0; i < args->list[id].count; i++) {
        const char *path = args->list[id].values[i];
        char folder[PATH_MAX], full[2 * PATH_MAX];
        if (path[0] == '/' || strncmp(path, "mem:", 4) == 0 ||
            getcwd(folder, sizeof(folder)) == NULL) {
            (void)json_array_append_new(paths, answer_text(path));
            continue;
        }
        while (strncmp(path, "./", 2) == 0) {
            path += 2;
        }
        (void)snprintf(full, sizeof(full), "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, path);
        (void)json_array_append_new(paths, answer_text(full));
    }
    return paths;
}

const char *client_text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

int client_print_deleted(const struct args *args, json_t *answer, const char *what) {
    if (args->given[OPT_JSON]) {
        client_print_json(answer);
    } else {
        (void)printf("deleted %s\n", what);
    }
    json_decref(answer);
    return OK;
}

int client_wanted_pools(const struct args *args, json_t **ret_names, struct errmsg *reterr) {
    json_t *names = json_array(), *list, *pool;
    size_t index;
    char name[64];
    int error;
    if (args->operands[0] != NULL) {
        error = client_pool_name(args->operands[0], name, reterr);
        (void)json_array_append_new(names, json_string(error == OK ? name : ""));
    } else {
        error = client_call(args, "GET", "/v1/pools", NULL, &list, reterr);
        if (error == OK) {
            json_array_foreach(json_object_get(list, "pools"), index, pool) {
                (void)json_array_append(names, json_object_get(pool, "name"));
            }
            json_decref(list);
        }
    }
    if (error != OK) {
        json_decref(names);
        return error;
    }
    *ret_names = names;
    return OK;
}

static int collect(const struct args *args, const struct client_listing *listing, json_t *all,
                   struct errmsg *reterr) {
    json_t *names, *name, *answer;
    size_t index;
    int error = client_wanted_pools(args, &names, reterr);
    if (error != OK) {
        return error;
    }
    json_array_foreach(names, index, name) {
        char path[128];
        (void)snprintf(path, sizeof(path), "/v1/pools/%s/%s", json_string_value(name),
                       listing->path);
        error = client_call(args, "GET", path, NULL, &answer, reterr);
        if (error != OK) {
            break;
        }
        (void)json_array_extend(all, json_object_get(answer, listing->key));
        json_decref(answer);
    }
    json_decref(names);
    return error;
}

int client_list(const struct args *args, const struct client_listing *listing,
                struct errmsg *reterr) {
    json_t *all = json_array(), *one;
    size_t index;
    int error = collect(args, listing, all, reterr);
    if (error == OK && args->given[OPT_JSON]) {
        json_t *object = json_pack("{s:O}", listing->key, all);
        client_print_json(object);
        json_decref(object);
    } else if (error == OK) {
        struct table *table = listing->new_table();
        json_array_foreach(all, index, one) {
            listing->add(table, one);
        }
        table_print(table, listing->nothing);
    }
    json_decref(all);
    return error;
}
