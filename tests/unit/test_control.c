// SPDX-License-Identifier: MPL-2.0
/* The management plane: validation, routes, settings, records; and a whole service over the engine
 * in memory (tests/fake), asked through its socket. */
#include "control_world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "bench/result.h"
#include "control/answer.h"
#include "control/lun.h"
#include "control/routes.h"

/* ---- answers ---- */

static void every_code_has_a_status_and_a_body(void **state) {
    (void)state;
    for (int i = 1; i < ERROR_INDEX_COUNT; i++) {
        unsigned status = answer_status(-i);
        assert_true(status >= 400 && status <= 599);
        struct errmsg why = {0}, back = {0};
        (void)errmsg_set(&why, -i, "something happened to thing %d", i);
        json_t *body = answer_error(-i, &why);
        assert_int_equal(answer_read_error(body, &back), -i);
        assert_string_equal(back.text, why.text);
        json_decref(body);
    }
    assert_int_equal(answer_status(OK), 200);
    assert_int_equal(answer_status(ERR_NO_SPACE), 507);
    assert_int_equal(answer_status(ERR_NOT_FOUND), 404);
    assert_int_equal(answer_status(12345), 500);
}

static void error_bodies_are_always_json(void **state) {
    (void)state;
    struct errmsg why = {.code = ERR_IO, .text = "disk \xff\xfe\x01 broke"}; /* no UTF-8 */
    json_t *body = answer_error(ERR_IO, &why);
    const json_t *error = json_object_get(body, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), "IO");
    assert_string_equal(json_string_value(json_object_get(error, "message")), "disk ??? broke");
    json_decref(body);
    body = answer_error(ERR_NO_SPACE, NULL);
    error = json_object_get(body, "error");
    assert_string_equal(json_string_value(json_object_get(error, "message")),
                        error_text(ERR_NO_SPACE));
    json_decref(body);
    body = json_pack("{s:{s:s}}", "error", "code", "IO");
    assert_int_equal(answer_read_error(body, NULL), ERR_PROTOCOL);
    json_decref(body);
}

/* ---- routes and bodies ---- */

static int parse(const char *method, const char *path, const char *body,
                 struct api_request *ret_request, struct errmsg *why) {
    memset(why, 0, sizeof(*why));
    return routes_parse(method, path, body, strlen(body), ret_request, why);
}

static void routes_are_found_and_names_taken(void **state) {
    (void)state;
    struct api_request request;
    struct errmsg why;
    assert_int_equal(parse("GET", "/v1/version", "", &request, &why), OK);
    assert_int_equal(request.route->id, ROUTE_VERSION);
    api_request_done(&request);
    assert_int_equal(parse("DELETE", "/v1/pools/tank/volumes/vm-1.a", "", &request, &why), OK);
    assert_int_equal(request.route->id, ROUTE_VOLUME_DELETE);
    assert_string_equal(request.pool, "tank");
    assert_string_equal(request.name, "vm-1.a");
    api_request_done(&request);
    assert_int_equal(parse("GET", "/v1/pools/import", "", &request, &why), OK); /* a pool's name */
    assert_int_equal(request.route->id, ROUTE_POOL_STATUS);
    api_request_done(&request);
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        assert_int_equal(routes[i].id, i);
    }
}

static void wrong_paths_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *text;
        int error;
    } cases[] = {
        {"GET", "", "nothing at", ERR_NOT_FOUND},
        {"GET", "/", "nothing at", ERR_NOT_FOUND},
        {"GET", "/v1/version/", "nothing at", ERR_NOT_FOUND},
        {"GET", "//v1/version", "nothing at", ERR_NOT_FOUND},
        {"GET", "/v2/version", "nothing at", ERR_NOT_FOUND},
        {"GET", "/v1/pools/a/volumes/b/c", "nothing at", ERR_NOT_FOUND},
        {"PUT", "/v1/pools", "knows GET, POST", ERR_NOT_FOUND},
        {"get", "/v1/pools", "knows", ERR_NOT_FOUND},
        {"GET", "/v1/pools/", "does not name a pool", ERR_INVALID},
        {"GET", "/v1/pools/..", "does not name a pool", ERR_INVALID},
        {"GET", "/v1/pools/1st", "does not name a pool", ERR_INVALID},
        {"GET", "/v1/pools/a b", "does not name a pool", ERR_INVALID},
        {"GET", "/v1/pools/a/volumes/", "does not name a volume", ERR_INVALID},
        {"DELETE", "/v1/pools/a/luns/%", "does not name a LUN", ERR_INVALID},
        {"GET", "/v1/pools/abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl",
         "does not name a pool", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request request;
        struct errmsg why;
        assert_int_equal(parse(cases[i].method, cases[i].path, "", &request, &why), cases[i].error);
        assert_non_null(strstr(why.text, cases[i].text));
    }
}

static void bodies_are_checked_strictly(void **state) {
    (void)state;
    static const struct {
        const char *body, *text;
        int error;
    } cases[] = {
        {"{\"name\":\"vm\",\"size_bytes\":1048576}", NULL, OK},
        {"{\"name\":\"vm\",\"size_bytes\":70368744177664,\"profile\":\"raid1-3\",\"thick\":true,"
         "\"block_bytes\":4096,\"sync_standard\":false}",
         NULL, OK},
        {"", "\"name\" is missing", ERR_INVALID},
        {"{}", "\"name\" is missing", ERR_INVALID},
        {"{\"name\":\"vm\"}", "\"size_bytes\" is missing", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1048575}", "between 1.00 MiB and 64.0 TiB", ERR_RANGE},
        {"{\"name\":\"vm\",\"size_bytes\":70368744177665}", "between", ERR_RANGE},
        {"{\"name\":\"vm\",\"size_bytes\":-1}", "whole number of bytes", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1e9}", "whole number of bytes", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":\"1T\"}", "whole number of bytes", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":99999999999999999999}", "is not JSON", ERR_INVALID},
        {"{\"name\":7,\"size_bytes\":1048576}", "\"name\" must be a name", ERR_INVALID},
        {"{\"name\":\"a/b\",\"size_bytes\":1048576}", "must be a name", ERR_INVALID},
        {"{\"name\":\"a\\u0000b\",\"size_bytes\":1048576}", "is not JSON", ERR_INVALID},
        {"{\"name\":\"\",\"size_bytes\":1048576}", "must be a name", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1048576,\"thick\":1}", "true or false", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1048576,\"profile\":\"raid7\"}", "one of single",
         ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1048576,\"colour\":\"red\"}",
         "\"colour\" is not known here; known: name, size_bytes", ERR_INVALID},
        {"{\"name\":\"vm\",\"name\":\"vn\",\"size_bytes\":1048576}", "is not JSON", ERR_INVALID},
        {"{\"name\":\"vm\",\"size_bytes\":1048576} x", "is not JSON", ERR_INVALID},
        {"[1]", "must be a JSON object", ERR_INVALID},
        {"null", "is not JSON", ERR_INVALID},
        {"{", "line 1", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request request;
        struct errmsg why;
        assert_int_equal(parse("POST", "/v1/pools/tank/volumes", cases[i].body, &request, &why),
                         cases[i].error);
        if (cases[i].error == OK) {
            api_request_done(&request);
        } else {
            assert_non_null(strstr(why.text, cases[i].text));
        }
    }
    struct api_request request;
    struct errmsg why;
    assert_int_equal(parse("GET", "/v1/version", "{\"a\":1}", &request, &why), ERR_INVALID);
    char *large = mem_alloc(ROUTE_BODY_MAX + 1);
    memset(large, ' ', ROUTE_BODY_MAX + 1);
    assert_int_equal(routes_parse("POST", "/v1/pools", large, ROUTE_BODY_MAX + 1, &request, &why),
                     ERR_LIMIT);
    mem_free(large);
}

static void lists_of_paths_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int error;
    } cases[] = {
        {"{\"paths\":[\"/dev/sdb\",\"mem:a:1G\"]}", OK}, {"{\"paths\":[]}", ERR_RANGE},
        {"{\"paths\":\"/dev/sdb\"}", ERR_INVALID},       {"{\"paths\":[\"dev/sdb\"]}", ERR_INVALID},
        {"{\"paths\":[\"/a\",\"/a\"]}", ERR_INVALID},    {"{\"paths\":[\"/a\",7]}", ERR_INVALID},
        {"{\"paths\":[\"/a\",null]}", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_request request;
        struct errmsg why;
        assert_int_equal(parse("POST", "/v1/importable", cases[i].body, &request, &why),
                         cases[i].error);
        if (cases[i].error == OK) {
            api_request_done(&request);
        }
    }
}

/* "/v1/pools/{pool}/luns" as mdoc writes it: "/v1/pools/ Ns Ar pool Ns /luns". */
static void route_as_mdoc(const struct route *route, char *ret_text, size_t bytes) {
    size_t used = (size_t)snprintf(ret_text, bytes, ".It %s ", route->method);
    for (const char *p = route->path; *p != '\0' && used + 16 < bytes; p++) {
        if (*p == '{') {
            used += (size_t)snprintf(ret_text + used, bytes - used, " Ns Ar ");
        } else if (*p == '}') {
            used += (size_t)snprintf(ret_text + used, bytes - used, p[1] == '\0' ? "" : " Ns ");
        } else {
            ret_text[used++] = *p;
            ret_text[used] = '\0';
        }
    }
    (void)snprintf(ret_text + used, bytes - used, "\n");
}

static void the_manual_knows_every_route(void **state) {
    (void)state;
    static char text[32 << 10];
    FILE *file = fopen(MAN_DIR "/holdfast-api.7", "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    (void)fclose(file);
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        char entry[256];
        route_as_mdoc(&routes[i], entry, sizeof(entry));
        const char *at = strstr(text, entry);
        if (at == NULL) {
            fail_msg("holdfast-api(7) lacks %s", entry);
            return;
        }
        const char *next = strstr(at + strlen(entry), "\n.It ");
        for (const struct field *f = routes[i].fields; f->name != NULL; f++) {
            (void)snprintf(entry, sizeof(entry), "%s%s", f->name, f->required ? "*" : "");
            const char *mention = strstr(at, entry);
            assert_non_null(mention);
            assert_true(next == NULL || mention < next);
        }
    }
}

/* ---- settings ---- */

static int parse_config(const char *text, struct config *config, struct errmsg *why) {
    memset(why, 0, sizeof(*why));
    config_init(config);
    return config_parse(config, "/etc/test.conf", text, why);
}

static void settings_are_read(void **state) {
    (void)state;
    struct config *config = MEM_NEW(struct config);
    struct errmsg why;
    assert_int_equal(parse_config("# a comment\n"
                                  "\n"
                                  "  socket=/run/a.sock  \r\n"
                                  "listen = 10.0.0.7 [fe80::1]:3261\n"
                                  "listen = 192.0.2.1:860,3 [::]  [::1],65535\n"
                                  "search = /srv/a /dev/sdb\n"
                                  "pools = tank b\n"
                                  "iscsi-threads = 16\n"
                                  "read-cache = 1.5G",
                                  config, &why),
                     OK);
    config_finish(config);
    assert_string_equal(config->socket, "/run/a.sock");
    assert_string_equal(config->state_dir, CONFIG_STATE_DEFAULT);
    assert_int_equal(config->listen.count, 5);
    assert_string_equal(config->listen.values[0], "10.0.0.7:3260");
    assert_string_equal(config->listen.values[1], "[fe80::1]:3261");
    assert_string_equal(config->listen.values[2], "192.0.2.1:860,3");
    assert_string_equal(config->listen.values[3], "[::]:3260");
    assert_string_equal(config->listen.values[4], "[::1]:3260,65535");
    assert_int_equal(config->search.count, 2);
    assert_string_equal(config->pools.values[1], "b");
    assert_int_equal(config->read_cache_bytes, 3ull << 29);
    assert_int_equal(config->iscsi_threads, 16);
    assert_int_equal(parse_config("", config, &why), OK);
    config_finish(config);
    assert_string_equal(config->socket, CONFIG_SOCKET_DEFAULT);
    assert_string_equal(config->listen.values[0], CONFIG_LISTEN_DEFAULT);
    mem_free(config);
}

static void wrong_settings_name_line_and_key(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"\nsockt = /a", "line 2: \"sockt\" is not a setting"},
        {"socket", "line 1: \"socket\" is not of the form key = value"},
        {"socket =", "line 1: socket: a value is missing"},
        {"socket = run/a", "line 1: socket: \"run/a\" is not an absolute path"},
        {"socket = /a\nsocket = /b", "line 2: socket: is set a second time"},
        {"read-cache = 12Q", "line 1: read-cache: \"12Q\" is not a size"},
        {"read-cache = 4K", "line 1: read-cache: \"4K\" is not a size from 1M"},
        {"iscsi-threads = 0",
         "line 1: iscsi-threads: \"0\" is not a number of threads from 1 to 16"},
        {"iscsi-threads = 17", "is not a number of threads from 1 to 16"},
        {"iscsi-threads = 2x", "is not a number of threads from 1 to 16"},
        {"rebuild-share = 101", "is not a number of percent from 1 to 100"},
        {"rebuild-grace = soon", "is not a number of seconds from 1"},
        {"iscsi-threads = 2\niscsi-threads = 2", "line 2: iscsi-threads: is set a second time"},
        {"pools = a/b", "line 1: pools: \"a/b\" is not a name"},
        {"listen = 10.0.0.7:x", "line 1: listen: \"10.0.0.7:x\" is not an address"},
        {"listen = 10.0.0.7:65536", "is not an address"},
        {"listen = 10.0.0.7,0", "is not an address"},
        {"listen = 10.0.0.7,65536", "is not an address"},
        {"listen = 10.0.0.7,", "is not an address"},
        {"listen = 10.0.0.7,1,2", "is not an address"},
        {"listen = fe80::1", "is not an address"},
        {"listen = [fe80::1", "is not an address"},
        {"listen = [fe80::1]x", "is not an address"},
        {"listen = :3260", "is not an address"},
        {"search = /a\n\n\nsearch = b", "line 4: search"},
    };
    struct config *config = MEM_NEW(struct config);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct errmsg why;
        assert_int_not_equal(parse_config(cases[i].text, config, &why), OK);
        assert_non_null(strstr(why.text, "/etc/test.conf, line "));
        assert_non_null(strstr(why.text, cases[i].expected));
    }
    struct errmsg why = {0};
    config_init(config);
    for (int i = 0; i < CONFIG_LIST_MAX; i++) {
        assert_int_equal(config_set(config, "pools", "a", &why), OK);
    }
    assert_int_equal(config_set(config, "pools", "a", &why), ERR_LIMIT);
    assert_int_equal(config_load(config, "/nonexistent/holdfast.conf", NULL), ERR_NOT_FOUND);
    mem_free(config);
}

/* ---- LUN records ---- */

static void lun_records_survive_and_refuse(void **state) {
    (void)state;
    struct lun_record record = {
        .name = "vm", .volume = "vm1", .target = "iqn.2026-01.a.b:c", .number = 7, .open = true};
    struct lun_record back;
    struct errmsg why = {0};
    char *blob = lun_record_encode(&record);
    assert_int_equal(lun_record_decode("vm", blob, strlen(blob), &back, &why), OK);
    assert_string_equal(back.volume, "vm1");
    assert_string_equal(back.target, "iqn.2026-01.a.b:c");
    assert_int_equal(back.number, 7);
    for (size_t cut = 0; cut < strlen(blob); cut++) {
        assert_int_equal(lun_record_decode("vm", blob, cut, &back, NULL), ERR_CORRUPT);
    }
    assert_int_equal(lun_record_decode("v m", blob, strlen(blob), &back, NULL), ERR_CORRUPT);
    mem_free(blob);
    assert_true(back.open && lun_record_is_equal(&record, &back));
    record.open = false; /* an empty list: nobody */
    for (uint32_t rules = 0; rules <= 2; rules++) {
        blob = lun_record_encode(&record);
        assert_int_equal(lun_record_decode("vm", blob, strlen(blob), &back, &why), OK);
        assert_true(lun_record_is_equal(&record, &back));
        assert_int_equal(back.rule_count, rules);
        mem_free(blob);
        record.rules[rules] = (struct lun_rule){"iqn.2026-01.a.b:host", "192.0.2.0/24", "alice"};
        record.rule_count++;
        assert_false(lun_record_is_equal(&record, &back));
    }
    static const char *const odd[] = {
        /* the list belongs to version 2, and only there */
        "{\"version\":1,\"volume\":\"v\",\"target\":\"iqn.2026-01.a.b:c\",\"lun\":0,\"access\":[]}",
        "{\"version\":2,\"volume\":\"v\",\"target\":\"iqn.2026-01.a.b:c\",\"lun\":0}",
        ("{\"version\":2,\"volume\":\"v\",\"target\":\"iqn.2026-01.a.b:c\",\"lun\":0,"
         "\"access\":[{\"address\":\"here\"}]}"),
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        assert_int_equal(lun_record_decode("vm", odd[i], strlen(odd[i]), &back, NULL), ERR_CORRUPT);
    }
    static const char later[] = "{\"version\":3,\"anything\":[]}";
    assert_int_equal(lun_record_decode("vm", later, strlen(later), &back, &why), ERR_UNSUPPORTED);
    static const char wrong[] = "{\"version\":1,\"volume\":\"v\",\"target\":\"IQN.x\",\"lun\":0}";
    assert_int_equal(lun_record_decode("vm", wrong, strlen(wrong), &back, NULL), ERR_CORRUPT);
    char target[224];
    lun_default_target("My_Pool.1", target);
    assert_string_equal(target, "iqn.2026-01.local.holdfast:my-pool.1");
    assert_true(schema_iqn_is_valid(target));
}

/* ---- a whole service ---- */

static void disks_of_a_pool(void **state) {
    struct world *world = *state;
    char body[512];
    make_pool(world);
    const char *disks = "/v1/pools/tank/disks";
    expect(world, ERR_NOT_FOUND, "POST", "/v1/pools/tank/disks/remove", "{\"disk\":\"99\"}",
           "has no disk");
    expect(world, ERR_INVALID, "POST", disks, "{\"spare\":true}", "paths");
    expect(world, ERR_INVALID, "POST", "/v1/pools/tank/disks/remove", "{\"disk\":\"0\"}",
           "disk 0 is needed");
    expect(world, OK, "POST", "/v1/pools/tank/disks/remove", "{\"disk\":\"1\",\"dry_run\":true}",
           "\"move_bytes\":1048576");
    expect(world, OK, "POST", "/v1/pools/tank/disks/remove", "{\"disk\":\"1\"}",
           "\"dry_run\":false");
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"role\":\"leaving\"");
    const char *base = strrchr(world->file[1], '/') + 1;
    (void)snprintf(body, sizeof(body), "{\"disk\":\"%s\"}", base);
    expect(world, OK, "POST", "/v1/pools/tank/disks/keep", body, "member");
    expect(world, ERR_INVALID, "POST", "/v1/pools/tank/disks/return", body, "is not missing");
    (void)snprintf(body, sizeof(body), "{\"paths\":[\"%s/new\"]}", world->folder);
    expect(world, ERR_NOT_FOUND, "POST", disks, body, "");
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/new", world->folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 64 << 20) == 0);
    close(fd);
    (void)snprintf(body, sizeof(body), "{\"paths\":[\"%s\"],\"spare\":true}", path);
    expect(world, OK, "POST", disks, body, "usable_after_bytes");
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"role\":\"spare\"");
    (void)unlink(path);
}

static void pools_volumes_and_luns(void **state) {
    struct world *world = *state;
    struct stat st;
    expect(world, OK, "GET", "/v1/version", NULL, "\"api\":1");
    expect(world, OK, "GET", "/v1/pools", NULL, "\"pools\":[]");
    expect(world, OK, "GET", "/v1/disks", NULL, "\"disks\":[");
    expect(world, ERR_NOT_FOUND, "GET", "/v1/pools/tank", NULL, "no pool tank");
    make_pool(world);
    assert_int_equal(stat(world->file[5], &st), 0);
    assert_int_equal(st.st_size, 1 << 30);
    expect(world, ERR_EXISTS, "POST", "/v1/pools", "{\"name\":\"tank\",\"disks\":[\"/dev/null\"]}",
           "already");
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"disks\":[{");
    const char *volumes = "/v1/pools/tank/volumes";
    expect(world, OK, "POST", volumes, "{\"name\":\"vm\",\"size_bytes\":10737418240}",
           "\"profile\":\"raid6\"");
    expect(world, ERR_EXISTS, "POST", volumes, "{\"name\":\"vm\",\"size_bytes\":1048576}",
           "there is a volume vm");
    expect(world, ERR_INVALID, "POST", volumes,
           "{\"name\":\"v2\",\"size_bytes\":1048576,\"block_bytes\":1024}", "512 or 4096");
    expect(world, OK, "PATCH", "/v1/pools/tank/volumes/vm", "{\"size_bytes\":21474836480}",
           "\"size_bytes\":21474836480");
    expect(world, ERR_INVALID, "PATCH", "/v1/pools/tank/volumes/vm", "{\"size_bytes\":1048576}",
           "shrink");
    expect(world, OK, "GET", volumes, NULL, "\"health\":\"ok\"");
    atomic_store(&fake_engine_faults.volume_health, VOLUME_DAMAGED);
    expect(world, OK, "GET", volumes, NULL, "\"health\":\"damaged\"");
    atomic_store(&fake_engine_faults.volume_health, VOLUME_BROKEN);
    expect(world, OK, "GET", "/v1/pools/tank/volumes/vm", NULL, "\"health\":\"broken\"");
    atomic_store(&fake_engine_faults.volume_health, VOLUME_WHOLE);
    const char *luns = "/v1/pools/tank/luns";
    expect(world, ERR_NOT_FOUND, "POST", luns, "{\"volume\":\"none\"}", "no volume none");
    expect(world, OK, "POST", luns, "{\"volume\":\"vm\"}",
           "\"target\":\"iqn.2026-01.local.holdfast:tank\",\"lun\":0");
    expect(world, ERR_EXISTS, "POST", luns, "{\"volume\":\"vm\"}", "has a LUN vm already");
    expect(world, ERR_EXISTS, "POST", luns, "{\"volume\":\"vm\",\"name\":\"x\",\"lun\":0}",
           "has a LUN number 0");
    expect(world, ERR_EXISTS, "POST", luns, "{\"volume\":\"vm\",\"name\":\"x\"}",
           "is LUN vm already");
    expect(world, OK, "POST", volumes, "{\"name\":\"v2\",\"size_bytes\":1048576}", "v2");
    expect(world, OK, "POST", luns, "{\"volume\":\"v2\",\"name\":\"x\"}", "\"lun\":1");
    expect(world, OK, "GET", "/v1/luns", NULL, "\"served\":true");
    expect(world, OK, "GET", "/v1/health", NULL, "\"problems\":[]");
    expect(world, ERR_BUSY, "DELETE", "/v1/pools/tank/volumes/vm", NULL, "delete the LUN first");
    expect(world, OK, "DELETE", "/v1/pools/tank/luns/x", NULL, "deleted");
    expect(world, OK, "DELETE", "/v1/pools/tank/luns/vm", NULL, "deleted");
    expect(world, ERR_NOT_FOUND, "DELETE", "/v1/pools/tank/luns/vm", NULL, "no lun vm");
    expect(world, OK, "DELETE", "/v1/pools/tank/volumes/vm", NULL, "deleted");
    expect(world, OK, "DELETE", "/v1/pools/tank/volumes/v2", NULL, "deleted");
    expect(world, OK, "GET", volumes, NULL, "\"volumes\":[]");
}

/* The answer of a job that has ended. */
static json_t *measured(struct world *world) {
    json_t *answer = NULL;
    struct errmsg why = {0};
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(client_call(world->args, "GET", "/v1/bench", NULL, &answer, &why), OK);
        if (json_is_false(json_object_get(answer, "running"))) {
            return answer;
        }
        json_decref(answer);
        (void)usleep(10000);
    }
    fail();
    return NULL;
}

static void volumes_are_measured_one_at_a_time(void **state) {
    struct world *world = *state;
    const char *bench = "/v1/pools/tank/volumes/vm/bench";
    static const char brief[] = "{\"workload\":\"mixed\",\"queue_depths\":[{\"depth\":2}],"
                                "\"seconds\":1,\"ramp_seconds\":0,\"runs\":1}";
    make_pool(world);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"vm\",\"size_bytes\":2097152}",
           "vm");
    expect(world, ERR_NOT_FOUND, "GET", "/v1/bench", NULL, "no volume has been measured");
    expect(world, ERR_NOT_FOUND, "POST", "/v1/bench/stop", NULL, "no volume is being measured");
    expect(world, ERR_NOT_FOUND, "POST", "/v1/pools/tank/volumes/no/bench", brief, "no volume no");
    expect(world, ERR_INVALID, "POST", bench, "{\"workload\":\"tea\"}", "workload");
    expect(world, ERR_UNSUPPORTED, "POST", bench,
           "{\"job_lines\":[{\"line\":\"[a]\"},{\"line\":\"x=1\"}]}", "line 2");
    expect(world, ERR_INVALID, "POST", bench, "{\"during\":\"lunch\"}", "degraded or rebuild");
    expect(world, ERR_RANGE, "POST", bench, "{\"queue_depths\":[{\"depth\":0}]}", "depth");

    expect(world, OK, "POST", bench, brief, "\"running\":true");
    expect(world, ERR_BUSY, "POST", bench, brief, "one at a time");
    expect(world, ERR_BUSY, "DELETE", "/v1/pools/tank/volumes/vm", NULL, "being measured");
    expect(world, ERR_BUSY, "POST", "/v1/pools/tank/export", NULL, "being measured");
    json_t *answer = measured(world);
    assert_null(json_object_get(answer, "error"));
    struct bench_document document;
    assert_int_equal(bench_document_from_json(json_object_get(answer, "result"), &document, NULL),
                     OK);
    assert_int_equal(document.result_count, 1);
    assert_true(document.results[0].value > 0 && document.settings.complete);
    assert_string_equal(document.target.address, "volume:tank/vm");
    bench_document_done(&document);
    json_decref(answer);

    /* Stopped; and what cannot be done is told at the end. */
    expect(world, OK, "POST", bench, "{\"seconds\":60,\"destroy_data\":true}", "\"job\":2");
    expect(world, OK, "POST", "/v1/bench/stop", NULL, "\"job\":2");
    answer = measured(world);
    struct errmsg why = {0};
    assert_int_equal(answer_read_error(answer, &why), ERR_CANCELLED);
    json_decref(answer);
    expect(world, OK, "DELETE", "/v1/pools/tank/volumes/vm", NULL, "deleted");
}

static void chap_records_survive_and_refuse(void **state) {
    (void)state;
    struct chap_record record = {"alice", "a secret of alice", "us", "a secret of ours"}, back;
    char *blob = chap_record_encode(&record);
    assert_int_equal(chap_record_decode("alice", blob, strlen(blob), &back, NULL), OK);
    assert_string_equal(back.secret, record.secret);
    assert_string_equal(back.mutual_name, "us");
    assert_string_equal(back.mutual_secret, record.mutual_secret);
    for (size_t cut = 0; cut < strlen(blob); cut++) {
        assert_int_equal(chap_record_decode("alice", blob, cut, &back, NULL), ERR_CORRUPT);
    }
    chap_text_free(blob);
    static const char *const bad[] = {
        "{\"version\":1}",
        "{\"version\":1,\"secret\":\"short\"}",
        "{\"version\":1,\"secret\":\"a secret of alice\",\"mutual_name\":\"us\"}",
        ("{\"version\":1,\"secret\":\"a secret of alice\",\"mutual_name\":\"us\","
         "\"mutual_secret\":\"a secret of alice\"}"),
    };
    struct errmsg why = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(chap_record_decode("alice", bad[i], strlen(bad[i]), &back, &why),
                         ERR_CORRUPT);
        assert_null(strstr(why.text, "secret of"));
    }
    assert_true(chap_name_is_valid("iqn.1998-01.com.vmware:host_1@x"));
    assert_false(chap_name_is_valid("a/b") || chap_name_is_valid("") || chap_name_is_valid("a b"));
}

static void fill_the_list(struct world *world, const char *path) {
    char body[128];
    for (int i = 0; i < LUN_RULES_MAX + 1; i++) {
        (void)snprintf(body, sizeof(body), "{\"address\":\"192.0.2.%d\"}", i);
        expect(world, i < LUN_RULES_MAX ? OK : ERR_LIMIT, "POST", path, body,
               i < LUN_RULES_MAX ? "access" : "stand for many");
    }
}

static void access_lists_and_chap(void **state) {
    struct world *world = *state;
    const char *luns = "/v1/pools/tank/luns", *chap = "/v1/pools/tank/chap";
    const char *map = "/v1/pools/tank/luns/vm/map", *unmap = "/v1/pools/tank/luns/vm/unmap";
    make_pool(world);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"vm\",\"size_bytes\":1048576}",
           "vm");
    expect(world, OK, "POST", luns, "{\"volume\":\"vm\"}", "\"open\":true,\"access\":[]");
    expect(world, ERR_NOT_FOUND, "POST", map, "{\"user\":\"alice\"}",
           "holdfast chap set tank/alice");
    expect(world, ERR_INVALID, "POST", map, "{}", "say who");
    expect(world, ERR_INVALID, "POST", map, "{\"address\":\"here\"}", "192.0.2.0/24");
    expect(world, ERR_INVALID, "POST", map, "{\"all\":true,\"address\":\"192.0.2.7\"}", "say who");
    expect(world, ERR_NOT_FOUND, "POST", unmap, "{\"address\":\"192.0.2.7\"}", "everybody may");
    /* users: no answer shows a secret */
    expect(world, OK, "GET", chap, NULL, "\"users\":[]");
    expect(world, ERR_INVALID, "POST", chap, "{\"name\":\"alice\",\"secret\":\"short\"}",
           "12 to 128");
    expect(world, ERR_INVALID, "POST", chap,
           "{\"name\":\"alice\",\"secret\":\"a secret of alice\",\"mutual_name\":\"us\","
           "\"mutual_secret\":\"a secret of alice\"}",
           "must not have the same secret");
    expect(world, ERR_INVALID, "POST", chap,
           "{\"name\":\"alice\",\"secret\":\"a secret of alice\",\"mutual_name\":\"us\"}",
           "needs a name and a secret");
    expect(world, OK, "POST", chap,
           "{\"name\":\"alice\",\"secret\":\"a secret of alice\",\"mutual_name\":\"us\","
           "\"mutual_secret\":\"a secret of ours\"}",
           "{\"pool\":\"tank\",\"name\":\"alice\",\"mutual_name\":\"us\",\"luns\":[]}");
    expect(world, ERR_INVALID, "POST", chap, "{\"name\":\"bob\",\"secret\":\"a secret of ours\"}",
           "choose different");
    expect(world, OK, "POST", map, "{\"user\":\"alice\",\"address\":\"192.0.2.0/24\"}",
           "\"served\":true,\"open\":false,\"access\":[{\"address\":\"192.0.2.0/"
           "24\",\"user\":\"alice\"}]");
    expect(world, OK, "GET", chap, NULL, "\"luns\":[\"vm\"]");
    expect(world, ERR_BUSY, "DELETE", "/v1/pools/tank/chap/alice", NULL, "take it off first");
    expect(world, ERR_NOT_FOUND, "DELETE", "/v1/pools/tank/chap/carol", NULL, "no CHAP user carol");
    /* what cannot be recorded is not in force either */
    atomic_store(&fake_engine_faults.change_error, ERR_IO);
    expect(world, ERR_IO, "POST", unmap, "{\"all\":true}", "refuses");
    atomic_store(&fake_engine_faults.change_error, OK);
    expect(world, OK, "GET", luns, NULL, "\"served\":true,\"open\":false,\"access\":[{");
    expect(world, OK, "GET", "/v1/health", NULL, "\"problems\":[]");
    /* over a restart */
    struct errmsg why = {0};
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    world_start(world);
    expect(world, OK, "GET", luns, NULL,
           "\"served\":true,\"open\":false,\"access\":[{\"address\":\"192.0.2.0/"
           "24\",\"user\":\"alice\"}]");
    expect(world, OK, "POST", map, "{\"initiator\":\"iqn.2026-01.a.b:host\"}", "},{\"initiator\"");
    expect(world, OK, "POST", map, "{\"initiator\":\"iqn.2026-01.a.b:host\"}", "a.b:host\"}]");
    expect(world, OK, "POST", unmap, "{\"user\":\"alice\",\"address\":\"192.0.2.0/24\"}",
           "\"access\":[{\"initiator\":\"iqn.2026-01.a.b:host\"}]");
    expect(world, OK, "DELETE", "/v1/pools/tank/chap/alice", NULL, "deleted");
    expect(world, OK, "POST", unmap, "{\"all\":true}", "\"open\":false,\"access\":[]");
    expect(world, OK, "POST", map, "{\"all\":true}", "\"open\":true,\"access\":[]");
    expect(world, OK, "POST", "/v1/pools/tank/volumes",
           "{\"name\":\"other\",\"size_bytes\":1048576}", "other");
    expect(world, OK, "POST", luns, "{\"volume\":\"other\",\"name\":\"shut\",\"closed\":true}",
           "\"open\":false,\"access\":[]");
    expect(world, OK, "GET", "/v1/sessions", NULL, "\"sessions\":[]");
    expect(world, OK, "GET", "/v1/events", NULL, "\"text\":\"served, 1 LUN\"");
    fill_the_list(world, "/v1/pools/tank/luns/shut/map");
}

static void configurations_have_secrets_only_when_asked(void **state) {
    struct world *world = *state;
    const char *config = "/v1/pools/tank/config";
    make_pool(world);
    expect(world, OK, "GET", config, NULL, "\"volumes\":[],\"users\":[],\"luns\":[]");
    expect(world, OK, "POST", "/v1/pools/tank/volumes",
           "{\"name\":\"vm\",\"size_bytes\":1048576,\"profile\":\"raid5\",\"thick\":true}", "vm");
    expect(world, OK, "POST", "/v1/pools/tank/chap",
           "{\"name\":\"alice\",\"secret\":\"a secret of alice\",\"mutual_name\":\"us\","
           "\"mutual_secret\":\"a secret of ours\"}",
           "alice");
    expect(world, OK, "POST", "/v1/pools/tank/luns", "{\"volume\":\"vm\",\"user\":\"alice\"}",
           "vm");
    expect(world, OK, "GET", config, NULL,
           "{\"name\":\"vm\",\"size_bytes\":1048576,\"profile\":\"raid5\",\"block_bytes\":512,"
           "\"thick\":true,\"sync_standard\":false}");
    expect(world, OK, "GET", config, NULL, "[{\"name\":\"alice\",\"mutual_name\":\"us\"}]");
    expect(world, OK, "POST", config, "{}", "[{\"name\":\"alice\",\"mutual_name\":\"us\"}]");
    expect(world, OK, "POST", config, "{\"secrets\":true}",
           "\"secret\":\"a secret of alice\",\"mutual_secret\":\"a secret of ours\"");
    expect(world, OK, "GET", config, NULL,
           "\"lun\":0,\"open\":false,\"access\":[{\"user\":\"alice\"}]");
    expect(world, ERR_NOT_FOUND, "GET", "/v1/pools/tonk/config", NULL, "no pool tonk");
}

static void failed_creation_leaves_nothing(void **state) {
    struct world *world = *state;
    char body[512];
    (void)snprintf(body, sizeof(body),
                   "{\"name\":\"tank\",\"files\":[\"%s\"],\"disks\":[\"/nonexistent/disk\"],"
                   "\"file_size_bytes\":1073741824}",
                   world->file[0]);
    expect(world, ERR_NOT_FOUND, "POST", "/v1/pools", body, "/nonexistent/disk");
    assert_int_not_equal(access(world->file[0], F_OK), 0);
    (void)snprintf(body, sizeof(body), "{\"name\":\"tank\",\"files\":[\"%s\"]}", world->file[0]);
    expect(world, ERR_INVALID, "POST", "/v1/pools", body, "give a size");
    expect(world, ERR_INVALID, "POST", "/v1/pools", "{\"name\":\"tank\"}", "needs 1 to");
    make_pool(world);
    atomic_store(&fake_engine_faults.change_error, ERR_NO_SPACE);
    expect(world, ERR_NO_SPACE, "POST", "/v1/pools/tank/volumes",
           "{\"name\":\"vm\",\"size_bytes\":1048576}", "refuses");
    atomic_store(&fake_engine_faults.change_error, OK);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"vm\",\"size_bytes\":1048576}",
           "vm");
    atomic_store(&fake_engine_faults.change_error, ERR_IO);
    expect(world, ERR_IO, "POST", "/v1/pools/tank/luns", "{\"volume\":\"vm\"}", "refuses");
    assert_false(serves(world, "vm"));
}

static void restart_serves_the_same(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    make_pool(world);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"vm\",\"size_bytes\":1048576}",
           "vm");
    expect(world, OK, "POST", "/v1/pools/tank/luns", "{\"volume\":\"vm\",\"lun\":9}", "\"lun\":9");
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    world->serve = NULL;
    json_t *answer;
    assert_int_equal(call(world, "GET", "/v1/version", NULL, &answer, &why), ERR_CLOSED);
    assert_non_null(strstr(why.text, "start it with"));
    world_start(world);
    expect(world, OK, "GET", "/v1/luns", NULL, "\"lun\":9");
    assert_true(serves(world, "vm"));
    expect(world, OK, "POST", "/v1/pools/tank/export", NULL, "exported");
    assert_false(serves(world, "vm"));
    expect(world, ERR_NOT_FOUND, "GET", "/v1/pools/tank", NULL, "no pool tank");
    atomic_store(&fake_engine_faults.import_error, ERR_QUORUM);
    expect(world, ERR_QUORUM, "POST", "/v1/pools/tank/import", NULL, "refuses");
    atomic_store(&fake_engine_faults.import_error, OK);
    expect(world, OK, "GET", "/v1/pools", NULL, "\"pools\":[]");
    expect(world, OK, "POST", "/v1/pools/tank/import", NULL, "\"lun_count\":1");
    assert_true(serves(world, "vm"));
    expect(world, ERR_EXISTS, "POST", "/v1/pools/tank/import", NULL, "already");
    expect(world, ERR_INVALID, "DELETE", "/v1/pools/tank", "{\"confirm\":\"tnk\"}", "must repeat");
}

static void a_pool_that_fails_at_the_start_says_so(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    make_pool(world);
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    atomic_store(&fake_engine_faults.import_error, ERR_QUORUM);
    world_start(world);
    expect(world, OK, "GET", "/v1/health", NULL, "not imported: pool tank: the fake engine");
    expect(world, ERR_NOT_FOUND, "POST", "/v1/pools/tank/volumes",
           "{\"name\":\"vm\",\"size_bytes\":1048576}", "could not be imported");
    atomic_store(&fake_engine_faults.import_error, OK);
    expect(world, OK, "POST", "/v1/pools/tank/import", NULL, "\"health\":\"ok\"");
}

static void management_answers_while_the_engine_hangs(void **state) {
    struct world *world = *state;
    make_pool(world);
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"stale\":false");
    atomic_store(&fake_engine_faults.loop_hang_ms, 2500);
    uint64_t before = served_now_ns();
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"stale\":true");
    expect(world, OK, "GET", "/v1/version", NULL, "holdfast");
    assert_true(served_now_ns() - before < 2000 * (uint64_t)NS_PER_MS);
    expect(world, OK, "GET", "/v1/health", NULL, "has not answered");
    (void)usleep(1500000);
    expect(world, OK, "GET", "/v1/health", NULL, "\"health\":\"ok\"");
}

struct parallel {
    struct world *world;
    int result;
};

static void *create_slowly(void *arg) {
    struct parallel *parallel = arg;
    json_t *answer = NULL;
    struct errmsg why;
    parallel->result = call(parallel->world, "POST", "/v1/pools/tank/volumes",
                            "{\"name\":\"slow\",\"size_bytes\":1048576}", &answer, &why);
    json_decref(answer);
    return NULL;
}

static void changes_wait_for_each_other_and_looks_do_not(void **state) {
    struct world *world = *state;
    struct parallel parallel = {.world = world};
    pthread_t thread;
    make_pool(world);
    atomic_store(&fake_engine_faults.change_ms, 1000);
    assert_int_equal(pthread_create(&thread, NULL, create_slowly, &parallel), 0);
    (void)usleep(300000);
    atomic_store(&fake_engine_faults.change_ms, 0);
    uint64_t before = served_now_ns();
    expect(world, OK, "GET", "/v1/pools/tank/volumes", NULL, "\"volumes\":[]");
    assert_true(served_now_ns() - before < 500 * (uint64_t)NS_PER_MS);
    expect(world, OK, "POST", "/v1/pools/tank/volumes", "{\"name\":\"b\",\"size_bytes\":1048576}",
           "\"name\":\"b\"");
    assert_true(served_now_ns() - before > 400 * (uint64_t)NS_PER_MS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(parallel.result, OK);
}

static void lost_files_and_disks_show(void **state) {
    struct world *world = *state;
    make_pool(world);
    expect(world, OK, "GET", "/v1/health", NULL, "\"health\":\"ok\"");
    assert_int_equal(unlink(world->file[2]), 0);
    json_t *answer = NULL;
    struct errmsg why;
    bool seen = false;
    for (int i = 0; i < 100 && !seen; i++) { /* ≤ 10 s */
        (void)usleep(100000);
        assert_int_equal(call(world, "GET", "/v1/health", NULL, &answer, &why), OK);
        seen = strcmp(json_string_value(json_object_get(answer, "health")), "degraded") == 0;
        json_decref(answer);
    }
    assert_true(seen);
    expect(world, OK, "GET", "/v1/health", NULL, world->file[2]);
    atomic_store(&fake_engine_faults.disk_lost, 1);
    expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"state\":\"missing\"");
}

/* Raw bytes to the socket; what comes back starts with `expected`; empty: it may also just end. */
static void expect_raw(struct world *world, const char *request, size_t bytes,
                       const char *expected) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", world->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    for (size_t at = 0; at < bytes;) {
        ssize_t sent = send(fd, request + at, bytes - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            break;
        }
        at += (size_t)sent;
    }
    char answer[256] = "";
    ssize_t got = recv(fd, answer, sizeof(answer) - 1, 0);
    assert_true(got > 0 || (got == 0 && expected[0] == '\0'));
    answer[got] = '\0';
    if (strncmp(answer, expected, strlen(expected)) != 0) {
        fail_msg("%s", answer);
    }
    close(fd);
}

static void malformed_http_ends_only_itself(void **state) {
    struct world *world = *state;
    static const char garbage[] = "\x01\x02\x03\r\n\r\n";
    expect_raw(world, garbage, sizeof(garbage) - 1, "");
    static const char query[] = "GET /v1/version?a=b HTTP/1.1\r\nHost: x\r\n\r\n";
    expect_raw(world, query, sizeof(query) - 1, "HTTP/1.1 400");
    static const char escaped[] = "GET /v1/pools/%00%ff HTTP/1.1\r\nHost: x\r\n\r\n";
    expect_raw(world, escaped, sizeof(escaped) - 1, "HTTP/1.1 400");
    static const char head[] =
        "POST /v1/pools HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    char *large = mem_alloc(sizeof(head) - 1 + 100000);
    memcpy(large, head, sizeof(head) - 1);
    memset(large + sizeof(head) - 1, ' ', 100000);
    expect_raw(world, large, sizeof(head) - 1 + 100000, "HTTP/1.1 413");
    mem_free(large);
    expect(world, OK, "GET", "/v1/version", NULL, "holdfast");
}

static void a_second_service_is_refused(void **state) {
    struct world *world = *state;
    struct serve *second;
    struct errmsg why = {0};
    assert_int_equal(serve_start(world->config, &second, &why), ERR_BUSY);
    assert_non_null(strstr(why.text, "another holdfast"));
    expect(world, OK, "GET", "/v1/version", NULL, "holdfast");
}

static void a_failed_close_is_told(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
    make_pool(world);
    atomic_store(&fake_engine_faults.close_error, ERR_IO);
    assert_int_equal(serve_stop(world->serve, 8, &why), ERR_IO);
    assert_non_null(strstr(why.text, "pool tank: the last checkpoint failed"));
    world->serve = NULL;
}

/* In a process of its own, for the hung loop's thread stays. */
static void a_hung_engine_does_not_keep_the_service(void **state) {
    struct world *world = *state;
    struct errmsg why = {0};
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer allows no threads after a fork */
#endif
    assert_int_equal(serve_stop(world->serve, 8, &why), OK);
    world->serve = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        world->config->iscsi_threads = 1; /* the pool has a loop of its own, however few cores */
        world_start(world);
        make_pool(world);
        atomic_store(&fake_engine_faults.loop_hang_ms, 60000);
        expect(world, OK, "GET", "/v1/pools/tank", NULL, "\"stale\":true");
        uint64_t before = served_now_ns();
        bool timed_out = serve_stop(world->serve, 1, &why) == ERR_TIMEOUT;
        bool in_time = served_now_ns() - before < 3 * (uint64_t)NS_PER_S;
        _exit(timed_out && in_time && strstr(why.text, "pool tank did not close") != NULL ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(world->socket), -1); /* it was not left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_status_and_a_body),
        cmocka_unit_test(error_bodies_are_always_json),
        cmocka_unit_test(routes_are_found_and_names_taken),
        cmocka_unit_test(wrong_paths_are_refused),
        cmocka_unit_test(bodies_are_checked_strictly),
        cmocka_unit_test(lists_of_paths_are_checked),
        cmocka_unit_test(the_manual_knows_every_route),
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(wrong_settings_name_line_and_key),
        cmocka_unit_test(lun_records_survive_and_refuse),
        cmocka_unit_test(chap_records_survive_and_refuse),
        SERVICE_TEST(pools_volumes_and_luns),
        SERVICE_TEST(volumes_are_measured_one_at_a_time),
        SERVICE_TEST(disks_of_a_pool),
        SERVICE_TEST(access_lists_and_chap),
        SERVICE_TEST(configurations_have_secrets_only_when_asked),
        SERVICE_TEST(failed_creation_leaves_nothing),
        SERVICE_TEST(restart_serves_the_same),
        SERVICE_TEST(a_pool_that_fails_at_the_start_says_so),
        SERVICE_TEST(management_answers_while_the_engine_hangs),
        SERVICE_TEST(changes_wait_for_each_other_and_looks_do_not),
        SERVICE_TEST(lost_files_and_disks_show),
        SERVICE_TEST(malformed_http_ends_only_itself),
        SERVICE_TEST(a_second_service_is_refused),
        SERVICE_TEST(a_failed_close_is_told),
        SERVICE_TEST(a_hung_engine_does_not_keep_the_service),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
