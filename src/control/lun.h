// SPDX-License-Identifier: MPL-2.0
/* LUNs as configuration records of a pool: kind "lun", id = the LUN's name, blob = JSON
 *
 *   {"version": 1, "volume": "vm1", "target": "iqn.…", "lun": 0}
 *
 * They travel with the pool and are served again after an import on any host. */
#ifndef HOLDFAST_CONTROL_LUN_H
#define HOLDFAST_CONTROL_LUN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"

#define LUN_RECORD_KIND "lun"

enum { LUN_NUMBER_MAX = 255 };

struct lun_record {
    char name[64]; /* of the LUN, unique in its pool */
    char volume[64];
    char target[224];
    uint32_t number;
};

/* The blob as text; the caller frees it with mem_free(). */
char *lun_record_encode(const struct lun_record *record);

/* ERR_CORRUPT, ERR_UNSUPPORTED (a later version): what is not understood is reported and left
 * alone, never guessed. */
HF_MUST_CHECK int lun_record_decode(const char *name, const void *blob, size_t bytes,
                                    struct lun_record *ret_record, struct errmsg *reterr);

/* iqn.2026-01.local.holdfast:POOL, in the letters RFC 3722 leaves. */
void lun_default_target(const char *pool, char ret_target[224]);

#endif
