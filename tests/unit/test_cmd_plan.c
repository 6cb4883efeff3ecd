// SPDX-License-Identifier: MPL-2.0
/* What `config import` would do: files that are refused, and the steps from what is to what shall
 * be. */
#include "unit.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cmd/plan.h"

#define VM                                                                                         \
    "{'name':'vm','size_bytes':1073741824,'profile':'raid6','block_bytes':512,"                    \
    "'thick':false,'sync_standard':false}"
#define ALICE "{'name':'alice','secret':'a secret of alice'}"
#define LUN(OPEN, ACCESS)                                                                          \
    "{'name':'l','volume':'vm','target':'iqn.2026-01.a.b:c','lun':3,'open':" OPEN                  \
    ",'access':[" ACCESS "]}"
#define POOL(VOLUMES, USERS, LUNS)                                                                 \
    "{'name':'tank','volumes':[" VOLUMES "],'users':[" USERS "],'luns':[" LUNS "]}"
#define HOST "{'initiator':'iqn.2026-01.a.b:host'}"
#define NET "{'address':'192.0.2.0/24','user':'alice'}"

/* ' stands for ". */
static json_t *parse(const char *text) {
    char copy[4096];
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *c = copy; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *object = json_loads(copy, 0, NULL);
    assert_non_null(object);
    return object;
}

static void files_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *file, *text;
        int error;
    } cases[] = {
        {"{'version':1,'pools':[]}", NULL, OK},
        {"{'version':1,'pools':[" POOL(VM, ALICE, LUN("false", NET)) "]}", NULL, OK},
        {"{'version':2,'pools':[],'more':1}", "later version", ERR_UNSUPPORTED},
        {"{'pools':[]}", "\"version\" is missing", ERR_INVALID},
        {"{'version':1}", "\"pools\" is missing", ERR_INVALID},
        {"{'version':1,'pools':[{'name':'tank'}]}", "is missing", ERR_INVALID},
        {"{'version':1,'pools':[" POOL("{'name':'vm'}", "", "") "]}", "is missing", ERR_INVALID},
        {"{'version':1,'pools':[" POOL("", "{'name':'a','secret':'short'}", "") "]}",
         "\"secret\" must be", ERR_INVALID},
        {"{'version':1,'pools':[" POOL("", "", LUN("true", "{'address':'here'}")) "]}",
         "\"address\" must be", ERR_INVALID},
        {"[]", "object", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct errmsg why = {0};
        json_t *file = parse(cases[i].file);
        assert_int_equal(plan_check_file(file, &why), cases[i].error);
        if (cases[i].error != OK && strstr(why.text, cases[i].text) == NULL) {
            fail_msg("%s: %s", cases[i].file, why.text);
        }
        json_decref(file);
    }
}

/* The texts of the steps, one a line; '!' before problems, '-' where somebody loses access. */
static void assert_plan(const char *wanted, const char *present, const char *expected) {
    json_t *want = parse(wanted), *is = parse(present), *steps = plan_pool(want, is), *step;
    char text[4096] = "";
    size_t index;
    json_array_foreach(steps, index, step) {
        bool problem = json_is_true(json_object_get(step, "problem"));
        bool takes = json_is_true(json_object_get(step, "takes"));
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, "%s%s\n",
                       problem ? "!"
                       : takes ? "-"
                               : "",
                       json_string_value(json_object_get(step, "text")));
        assert_true(problem || json_string_value(json_object_get(step, "path")) != NULL);
    }
    assert_string_equal(text, expected);
    assert_null(strstr(text, "a secret"));
    json_decref(steps);
    json_decref(want);
    json_decref(is);
}

static void what_is_missing_is_made(void **state) {
    (void)state;
    const char *all = POOL(VM, ALICE, LUN("false", NET "," HOST)), *none = POOL("", "", "");
    assert_plan(all, none,
                "create volume tank/vm, 1.00 GiB, raid6\n"
                "create CHAP user tank/alice\n"
                "create LUN tank/l, volume vm, iqn.2026-01.a.b:c, number 3\n"
                "let address 192.0.2.0/24, user alice use LUN tank/l\n"
                "let initiator iqn.2026-01.a.b:host use LUN tank/l\n");
    assert_plan(POOL("", "", LUN("true", "")), none,
                "create LUN tank/l, volume vm, iqn.2026-01.a.b:c, number 3, for everybody\n");
    assert_plan(POOL("", "", LUN("false", "")), none,
                "create LUN tank/l, volume vm, iqn.2026-01.a.b:c, number 3\n");
    assert_plan(all, all, "");
    assert_plan(none, all, ""); /* nothing is taken away */
}

static void what_differs_is_changed_or_named(void **state) {
    (void)state;
    assert_plan(POOL("{'name':'vm','size_bytes':2147483648,'profile':'raid6'}", "", ""),
                POOL(VM, "", ""), "resize volume tank/vm to 2.00 GiB\n");
    assert_plan(POOL("{'name':'vm','size_bytes':1048576,'profile':'raid5'}", "", ""),
                POOL(VM, "", ""),
                "!volume tank/vm is larger than 1.00 MiB, and volumes do not shrink\n"
                "!volume tank/vm has another profile, block size, thickness or sync than the file "
                "says, which cannot be changed; delete it to have it made again\n");
    assert_plan(POOL("", "{'name':'alice','secret':'a secret of hers'}", ""), POOL("", ALICE, ""),
                "change the secrets of CHAP user tank/alice\n");
    assert_plan(POOL("", "{'name':'alice'}", ""), POOL("", ALICE, ""), "");
    assert_plan(POOL("", "{'name':'alice'}", ""), POOL("", "", ""),
                "!CHAP user tank/alice is not there and the file has no secrets; make him first "
                "(holdfast chap set tank/alice --secret-file FILE)\n");
    assert_plan(POOL("", "", LUN("true", "")),
                POOL("", "",
                     "{'name':'l','volume':'vm','target':'iqn.2026-01.a.b:c','lun':4,'open':true,"
                     "'access':[]}"),
                "!LUN tank/l has another volume, target or number than the file says; delete the "
                "LUN (its volume stays) to have it made again\n");
}

static void access_is_given_before_it_is_taken(void **state) {
    (void)state;
    assert_plan(POOL("", "", LUN("false", HOST)), POOL("", "", LUN("false", NET)),
                "let initiator iqn.2026-01.a.b:host use LUN tank/l\n"
                "-no longer let address 192.0.2.0/24, user alice use LUN tank/l\n");
    assert_plan(POOL("", "", LUN("false", HOST "," NET)), POOL("", "", LUN("true", "")),
                "-let initiator iqn.2026-01.a.b:host use LUN tank/l, and nobody else any more\n"
                "let address 192.0.2.0/24, user alice use LUN tank/l\n");
    assert_plan(POOL("", "", LUN("false", "")), POOL("", "", LUN("true", "")),
                "-close LUN tank/l to everybody\n");
    assert_plan(POOL("", "", LUN("true", "")), POOL("", "", LUN("false", NET)),
                "open LUN tank/l for everybody\n");
    assert_plan(POOL("", "", LUN("false", NET "," HOST)), POOL("", "", LUN("false", HOST "," NET)),
                ""); /* the order of entries says nothing */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_checked),
        cmocka_unit_test(what_is_missing_is_made),
        cmocka_unit_test(what_differs_is_changed_or_named),
        cmocka_unit_test(access_is_given_before_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
