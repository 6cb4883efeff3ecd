// SPDX-License-Identifier: MPL-2.0
#include "cmd/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cmd/client.h"
#include "control/answer.h"
#include "control/lun.h"
#include "control/schema.h"

#define MIB (1ull << 20)
#define TIB (1ull << 40)

enum { OBJECTS_MAX = 10000 };

static const struct field volume_fields[] = {{"name", FIELD_NAME, true},
                                             {"size_bytes", FIELD_SIZE, true, 1 * MIB, 64 * TIB},
                                             {"profile", FIELD_PROFILE, true},
                                             {"block_bytes", FIELD_UINT, false, 512, 4096},
                                             {"thick", FIELD_BOOL, false},
                                             {"sync_standard", FIELD_BOOL, false},
                                             {NULL}};

#define SECRET ISCSI_SECRET_BYTES_MIN, ISCSI_SECRET_BYTES_MAX

static const struct field user_fields[] = {{"name", FIELD_USER, true},
                                           {"secret", FIELD_TEXT, false, SECRET},
                                           {"mutual_name", FIELD_USER, false},
                                           {"mutual_secret", FIELD_TEXT, false, SECRET},
                                           {NULL}};

static const struct field rule_fields[] = {{"initiator", FIELD_IQN, false},
                                           {"address", FIELD_ADDRESS, false},
                                           {"user", FIELD_USER, false},
                                           {NULL}};

static const struct field lun_fields[] = {
    {"name", FIELD_NAME, true},
    {"volume", FIELD_NAME, true},
    {"target", FIELD_IQN, true},
    {"lun", FIELD_UINT, true, 0, LUN_NUMBER_MAX},
    {"open", FIELD_BOOL, true},
    {"access", FIELD_OBJECTS, true, 0, LUN_RULES_MAX, rule_fields},
    {NULL}};

static const struct field pool_fields[] = {
    {"name", FIELD_NAME, true},
    {"volumes", FIELD_OBJECTS, true, 0, OBJECTS_MAX, volume_fields},
    {"users", FIELD_OBJECTS, true, 0, OBJECTS_MAX, user_fields},
    {"luns", FIELD_OBJECTS, true, 0, OBJECTS_MAX, lun_fields},
    {NULL}};

static const struct field file_fields[] = {{"version", FIELD_UINT, true, 1, UINT32_MAX},
                                           {"pools", FIELD_OBJECTS, true, 0, 64, pool_fields},
                                           {NULL}};

int plan_check_file(const json_t *file, struct errmsg *reterr) {
    if (schema_uint(file, "version", 0) > PLAN_VERSION) {
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "the file was written by a later version of holdfast");
    }
    return schema_check(file_fields, file, reterr);
}

/* ---- steps ---- */

struct plan {
    json_t *steps;
    const char *pool;
};

static HF_PRINTF(2, 3) void problem(struct plan *plan, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)json_array_append_new(plan->steps,
                                json_pack("{s:o, s:b}", "text", answer_text(text), "problem", 1));
}

/* `rest` is the path behind the pool's; takes `body` over. */
static HF_PRINTF(6, 7) void step(struct plan *plan, const char *method, const char *rest,
                                 json_t *body, bool takes, const char *fmt, ...) {
    char text[600], path[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)snprintf(path, sizeof(path), "/v1/pools/%s/%s", plan->pool, rest);
    (void)json_array_append_new(plan->steps, json_pack("{s:o, s:s, s:s, s:o, s:b}", "text",
                                                       answer_text(text), "method", method, "path",
                                                       path, "body", body, "takes", (int)takes));
}

static const json_t *find(const json_t *pool, const char *list, const char *name) {
    json_t *entry;
    size_t index;
    json_array_foreach(json_object_get(pool, list), index, entry) {
        if (strcmp(client_text_of(entry, "name"), name) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* ---- volumes ---- */

static void plan_volume(struct plan *plan, const json_t *wanted, const json_t *present) {
    const char *name = client_text_of(wanted, "name");
    uint64_t size = schema_uint(wanted, "size_bytes", 0);
    char size_text[24], rest[128];
    size_format(size, size_text, sizeof(size_text));
    (void)snprintf(rest, sizeof(rest), "volumes/%s", name);
    if (present == NULL) {
        step(plan, "POST", "volumes", json_deep_copy(wanted), false,
             "create volume %s/%s, %s, %s%s", plan->pool, name, size_text,
             client_text_of(wanted, "profile"), schema_bool(wanted, "thick") ? ", thick" : "");
        return;
    }
    uint64_t is = schema_uint(present, "size_bytes", 0);
    if (size > is) {
        step(plan, "PATCH", rest, json_pack("{s:I}", "size_bytes", (json_int_t)size), false,
             "resize volume %s/%s to %s", plan->pool, name, size_text);
    } else if (size < is) {
        problem(plan, "volume %s/%s is larger than %s, and volumes do not shrink", plan->pool, name,
                size_text);
    }
    if (strcmp(client_text_of(wanted, "profile"), client_text_of(present, "profile")) != 0 ||
        schema_uint(wanted, "block_bytes", 512) != schema_uint(present, "block_bytes", 512) ||
        schema_bool(wanted, "thick") != schema_bool(present, "thick") ||
        schema_bool(wanted, "sync_standard") != schema_bool(present, "sync_standard")) {
        problem(plan,
                "volume %s/%s has another profile, block size, thickness or sync than the file "
                "says, which cannot be changed; delete it to have it made again",
                plan->pool, name);
    }
}

/* ---- users ---- */

static void plan_user(struct plan *plan, const json_t *wanted, const json_t *present) {
    static const char *const keys[] = {"secret", "mutual_name", "mutual_secret"};
    const char *name = client_text_of(wanted, "name");
    bool same = present != NULL;
    if (json_object_get(wanted, "secret") == NULL) {
        if (present == NULL) {
            problem(plan,
                    "CHAP user %s/%s is not there and the file has no secrets; make him first "
                    "(holdfast chap set %s/%s --secret-file FILE)",
                    plan->pool, name, plan->pool, name);
        }
        return;
    }
    for (size_t i = 0; same && i < sizeof(keys) / sizeof(keys[0]); i++) {
        same = strcmp(client_text_of(wanted, keys[i]), client_text_of(present, keys[i])) == 0;
    }
    if (!same) {
        step(plan, "POST", "chap", json_deep_copy(wanted), false, "%s CHAP user %s/%s",
             present == NULL ? "create" : "change the secrets of", plan->pool, name);
    }
}

/* ---- LUNs ---- */

static bool has_rule(const json_t *list, const json_t *rule) {
    json_t *entry;
    size_t index;
    json_array_foreach((json_t *)list, index, entry) {
        if (json_equal(entry, rule)) {
            return true;
        }
    }
    return false;
}

static void rule_text(const json_t *rule, char ret_text[420]) {
    static const char *const keys[] = {"initiator", "address", "user"};
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *value = client_text_of(rule, keys[i]);
        if (value[0] != '\0' && used < 400) {
            used += (size_t)snprintf(ret_text + used, 420 - used, "%s%s %s", used > 0 ? ", " : "",
                                     keys[i], value);
        }
    }
}

/* First who is let in, then who is not any more: nobody who stays is cut off between. */
static void plan_access(struct plan *plan, const json_t *wanted, const json_t *present,
                        bool was_open) {
    const char *name = client_text_of(wanted, "name");
    const json_t *want = json_object_get(wanted, "access"),
                 *is = json_object_get(present, "access");
    char map[128], unmap[128], text[420];
    json_t *rule;
    size_t index;
    (void)snprintf(map, sizeof(map), "luns/%s/map", name);
    (void)snprintf(unmap, sizeof(unmap), "luns/%s/unmap", name);
    if (schema_bool(wanted, "open")) {
        if (!was_open) {
            step(plan, "POST", map, json_pack("{s:b}", "all", 1), false,
                 "open LUN %s/%s for everybody", plan->pool, name);
        }
        return;
    }
    json_array_foreach((json_t *)want, index, rule) {
        if (!has_rule(is, rule)) {
            rule_text(rule, text);
            step(plan, "POST", map, json_deep_copy(rule), was_open && index == 0,
                 "let %s use LUN %s/%s%s", text, plan->pool, name,
                 was_open && index == 0 ? ", and nobody else any more" : "");
        }
    }
    if (was_open && json_array_size(want) == 0) {
        step(plan, "POST", unmap, json_pack("{s:b}", "all", 1), true,
             "close LUN %s/%s to everybody", plan->pool, name);
    }
    json_array_foreach((json_t *)is, index, rule) {
        if (!has_rule(want, rule)) {
            rule_text(rule, text);
            step(plan, "POST", unmap, json_deep_copy(rule), true, "no longer let %s use LUN %s/%s",
                 text, plan->pool, name);
        }
    }
}

static void plan_lun(struct plan *plan, const json_t *wanted, const json_t *present) {
    const char *name = client_text_of(wanted, "name");
    if (present == NULL) {
        bool open = schema_bool(wanted, "open");
        json_t *body =
            json_pack("{s:O, s:O, s:O, s:O}", "name", json_object_get(wanted, "name"), "volume",
                      json_object_get(wanted, "volume"), "target",
                      json_object_get(wanted, "target"), "lun", json_object_get(wanted, "lun"));
        (void)(open ? 0 : json_object_set_new(body, "closed", json_true()));
        step(plan, "POST", "luns", body, false, "create LUN %s/%s, volume %s, %s, number %u%s",
             plan->pool, name, client_text_of(wanted, "volume"), client_text_of(wanted, "target"),
             (unsigned)schema_uint(wanted, "lun", 0), open ? ", for everybody" : "");
        plan_access(plan, wanted, NULL, open);
    } else if (!json_equal(json_object_get(wanted, "volume"), json_object_get(present, "volume")) ||
               !json_equal(json_object_get(wanted, "target"), json_object_get(present, "target")) ||
               !json_equal(json_object_get(wanted, "lun"), json_object_get(present, "lun"))) {
        problem(plan,
                "LUN %s/%s has another volume, target or number than the file says; delete the LUN "
                "(its volume stays) to have it made again",
                plan->pool, name);
    } else {
        plan_access(plan, wanted, present, schema_bool(present, "open"));
    }
}

json_t *plan_pool(const json_t *wanted, const json_t *present) {
    static const struct {
        const char *list;
        void (*plan)(struct plan *plan, const json_t *wanted, const json_t *present);
    } parts[] = {{"volumes", plan_volume}, {"users", plan_user}, {"luns", plan_lun}};
    struct plan plan = {.steps = json_array(), .pool = client_text_of(wanted, "name")};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_t *entry;
        size_t index;
        json_array_foreach(json_object_get(wanted, parts[i].list), index, entry) {
            parts[i].plan(&plan, entry,
                          find(present, parts[i].list, client_text_of(entry, "name")));
        }
    }
    return plan.steps;
}
