// SPDX-License-Identifier: MPL-2.0
/* CHAP users as configuration records of a pool: kind "chap", id = the user's name, blob = JSON
 *
 *   {"version": 1, "secret": "…", "mutual_name": "…", "mutual_secret": "…"}     (the last two: or
 * not)
 *
 * They travel with the pool and are as secret as its disks: whoever can read those can read them.
 * Nothing that answers, lists or logs shows a secret. */
#ifndef HOLDFAST_CONTROL_CHAP_H
#define HOLDFAST_CONTROL_CHAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "iscsi/iscsi.h"

#define CHAP_RECORD_KIND "chap"

struct chap_record {
    char name[ISCSI_USER_BYTES_MAX + 1];
    char secret[ISCSI_SECRET_BYTES_MAX + 1];
    char mutual_name[ISCSI_USER_BYTES_MAX + 1]; /* empty: we prove nothing */
    char mutual_secret[ISCSI_SECRET_BYTES_MAX + 1];
};

/* Letters, digits and ".:_@-": initiators' names are users' names, too. */
bool chap_name_is_valid(const char *name);

/* As the iSCSI server takes it; points into the record. */
struct iscsi_user chap_user(const struct chap_record *record);

/* The blob as text; the caller frees it with chap_text_free(). */
char *chap_record_encode(const struct chap_record *record);
void chap_text_free(char *text); /* wipes; NULL is allowed */

/* ERR_CORRUPT, ERR_UNSUPPORTED (a later version). */
HF_MUST_CHECK int chap_record_decode(const char *name, const void *blob, size_t bytes,
                                     struct chap_record *ret_record, struct errmsg *reterr);

/* Wipes and frees an array of them. */
void chap_records_free(struct chap_record *records, uint32_t count);

#endif
