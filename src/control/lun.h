// SPDX-License-Identifier: MPL-2.0
/* LUNs as configuration records of a pool: kind "lun", id = the LUN's name, blob = JSON
 *
 *   {"version": 1, "volume": "vm1", "target": "iqn.…", "lun": 0}
 *   {"version": 2, …, "access": [{"initiator": "iqn.…", "address": "192.0.2.0/24", "user": "…"},
 * …]}
 *
 * The first is for whoever reaches a portal; the second for whom an entry fits in all that it
 * names. (The version keeps a program that does not know access lists from serving it to
 * everybody.)
 *
 * They travel with the pool and are served again after an import on any host. */
#ifndef HOLDFAST_CONTROL_LUN_H
#define HOLDFAST_CONTROL_LUN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "iscsi/iscsi.h"

#define LUN_RECORD_KIND "lun"

enum { LUN_NUMBER_MAX = 255, LUN_RULES_MAX = 32 };

struct lun_rule { /* empty: any */
    char initiator[ISCSI_NAME_BYTES_MAX + 1];
    char address[64];
    char user[ISCSI_USER_BYTES_MAX + 1];
};

struct lun_record {
    char name[64]; /* of the LUN, unique in its pool */
    char volume[64];
    char target[224];
    uint32_t number;
    bool open; /* no access list: everybody */
    uint32_t rule_count;
    struct lun_rule rules[LUN_RULES_MAX];
};

bool lun_record_is_equal(const struct lun_record *a, const struct lun_record *b);

/* Of a checked object with "initiator", "address", "user". */
struct lun_rule lun_rule_of(const json_t *object);
bool lun_rule_is_empty(const struct lun_rule *rule);
/* The place of an equal rule, or rule_count. */
uint32_t lun_rule_find(const struct lun_record *record, const struct lun_rule *rule);
/* The access list, as in the record; for answers, too. */
json_t *lun_rules_json(const struct lun_record *record);

/* The blob as text; the caller frees it with mem_free(). */
char *lun_record_encode(const struct lun_record *record);

/* ERR_CORRUPT, ERR_UNSUPPORTED (a later version): what is not understood is reported and left
 * alone, never guessed. */
HF_MUST_CHECK int lun_record_decode(const char *name, const void *blob, size_t bytes,
                                    struct lun_record *ret_record, struct errmsg *reterr);

/* iqn.2026-01.local.holdfast:POOL, in the letters RFC 3722 leaves. */
void lun_default_target(const char *pool, char ret_target[224]);

#endif
