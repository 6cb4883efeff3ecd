// SPDX-License-Identifier: MPL-2.0
/* Who may use which unit of a target. access.c has the rules. */
#ifndef HOLDFAST_ISCSI_ACCESS_H
#define HOLDFAST_ISCSI_ACCESS_H

#include "iscsi/iscsi.h"

/* An address, or the network of all that begin with the same `bits` bits; IPv4 as ::ffff:a.b.c.d.
 */
struct net_prefix {
    uint8_t bytes[16];
    uint32_t bits; /* 0 to 128 */
};

/* "192.0.2.7", "192.0.2.0/24", "2001:db8::/32". ERR_INVALID. */
HF_MUST_CHECK int prefix_parse(const char *text, struct net_prefix *ret_prefix);
/* "192.0.2.7:51234", "[2001:db8::7]:51234", as streams name their peers. */
HF_MUST_CHECK int prefix_of_peer(const char *peer, struct net_prefix *ret_address);
bool prefix_holds(const struct net_prefix *prefix, const struct net_prefix *address);

struct access_rule {
    uint32_t lun;
    char *initiator; /* NULL: any */
    bool has_address;
    struct net_prefix address;
    char *user; /* NULL: nobody has to prove who he is */
};

struct access_user {
    char *name, *secret;
    char *mutual_name, *mutual_secret; /* NULL: we prove nothing to him */
};

struct access {
    char *realm;
    struct access_rule *rules;
    uint32_t rule_count;
    struct access_user *users;
    uint32_t user_count;
};

/* Checks and copies. ERR_INVALID (a name, an address, a secret), ERR_NOT_FOUND (a rule's user),
 * ERR_LIMIT. */
HF_MUST_CHECK int access_new(const struct iscsi_access *given, struct access **ret_access,
                             struct errmsg *reterr);
void access_free(struct access *access); /* NULL is allowed; wipes secrets */

/* Who asks. */
struct access_peer {
    const char *initiator;
    struct net_prefix address;
    const char *realm, *user; /* proven by CHAP; NULL: nothing was */
};

/* Ways of authenticating that lead to something; bits. NULL access: everybody may use all. */
enum { ACCESS_NONE = 1 << 0, ACCESS_CHAP = 1 << 1 };
uint32_t access_methods(const struct access *access, const struct access_peer *peer);
/* Numbers of units the peer may use, a bit each; whether there are any. */
bool access_numbers(const struct access *access, const struct access_peer *peer,
                    uint8_t ret_numbers[SCSI_LUNS_MAX / 8]);
/* Whether discovery shows the target to him. */
bool access_shows(const struct access *access, const struct access_peer *peer);
/* The user of this name, if a rule would let the peer in as him; else NULL. */
const struct access_user *access_user_of(const struct access *access,
                                         const struct access_peer *peer, const char *name);

#endif
