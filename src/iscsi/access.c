// SPDX-License-Identifier: MPL-2.0
/* Access lists.
 *
 * A rule lets somebody use one unit. What it names must all hold of him: the initiator's name, the
 * address he comes from, the user he has proven to be with CHAP. What it does not name may be
 * anything. A unit with no rule is nobody's; a target without a list is everybody's.
 *
 * An initiator's name is a claim, and an address is as good as the network: only a user is proven.
 * So
 *   - a login that proved nothing gets the units of rules without a user, one that did gets those
 *     of his rules too;
 *   - discovery shows a target to who could log in to it as far as he has said who he is: where a
 *     rule names an initiator or an address, these must fit, and the user may still be proven at
 *     the login. A rule that names a user only shows nothing to those that are not him.
 *
 * Users belong to a realm (a pool): the same name in another realm is somebody else. */
#include "iscsi/access.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "codec/digest.h"

/* ---- addresses ---- */

enum { MAPPED_BITS = 96 };

static int address_parse(const char *text, struct net_prefix *ret_address) {
    struct net_prefix address = {.bits = 128};
    if (inet_pton(AF_INET6, text, address.bytes) != 1) {
        memset(address.bytes + 10, 0xff, 2);
        if (inet_pton(AF_INET, text, address.bytes + 12) != 1) {
            return ERR_INVALID;
        }
    }
    *ret_address = address;
    return OK;
}

static bool is_mapped(const struct net_prefix *address) {
    static const uint8_t head[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(address->bytes, head, sizeof(head)) == 0;
}

static void clear_host_bits(struct net_prefix *prefix) {
    for (uint32_t bit = prefix->bits; bit < 128; bit++) {
        prefix->bytes[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
    }
}

int prefix_parse(const char *text, struct net_prefix *ret_prefix) {
    char copy[64];
    size_t length = strlen(text);
    if (length >= sizeof(copy)) {
        return ERR_INVALID;
    }
    memcpy(copy, text, length + 1);
    char *slash = strchr(copy, '/');
    if (slash != NULL) {
        *slash++ = 0;
    }
    struct net_prefix prefix = {0};
    int error = address_parse(copy, &prefix);
    if (error != OK || slash == NULL) {
        *ret_prefix = prefix;
        return error;
    }
    bool v4 = is_mapped(&prefix) && strchr(copy, ':') == NULL;
    unsigned long bits = 0;
    size_t digits = strspn(slash, "0123456789");
    if (digits == 0 || digits > 3 || slash[digits] != 0) {
        return ERR_INVALID;
    }
    bits = strtoul(slash, NULL, 10);
    if (bits > (v4 ? 32u : 128u)) {
        return ERR_INVALID;
    }
    prefix.bits = (uint32_t)bits + (v4 ? MAPPED_BITS : 0);
    clear_host_bits(&prefix);
    *ret_prefix = prefix;
    return OK;
}

int prefix_of_peer(const char *peer, struct net_prefix *ret_address) {
    char copy[64];
    const char *start = peer[0] == '[' ? peer + 1 : peer;
    size_t length = strcspn(start, peer[0] == '[' ? "]%" : ":");
    if (length >= sizeof(copy)) {
        return ERR_INVALID;
    }
    memcpy(copy, start, length);
    copy[length] = 0;
    return address_parse(copy, ret_address);
}

bool prefix_holds(const struct net_prefix *prefix, const struct net_prefix *address) {
    struct net_prefix cut = *address;
    cut.bits = prefix->bits;
    clear_host_bits(&cut);
    return memcmp(cut.bytes, prefix->bytes, sizeof(cut.bytes)) == 0;
}

int iscsi_address_check(const char *text, struct errmsg *reterr) {
    struct net_prefix prefix;
    if (prefix_parse(text, &prefix) != OK) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%.64s\" is no address or network such as 192.0.2.7, 192.0.2.0/24 or "
                          "2001:db8::/32",
                          text);
    }
    return OK;
}

/* ---- lists ---- */

static void secret_free(char *secret) {
    if (secret != NULL) {
        secret_wipe(secret, strlen(secret));
    }
    mem_free(secret);
}

void access_free(struct access *access) {
    if (access == NULL) {
        return;
    }
    for (uint32_t i = 0; i < access->rule_count; i++) {
        mem_free(access->rules[i].initiator);
        mem_free(access->rules[i].user);
    }
    for (uint32_t i = 0; i < access->user_count; i++) {
        mem_free(access->users[i].name);
        mem_free(access->users[i].mutual_name);
        secret_free(access->users[i].secret);
        secret_free(access->users[i].mutual_secret);
    }
    mem_free(access->realm);
    mem_free(access->rules);
    mem_free(access->users);
    mem_free(access);
}

static char *copy_of(const char *text) {
    return text != NULL ? mem_strdup(text) : NULL;
}

static const struct access_user *find_user(const struct access *access, const char *name) {
    for (uint32_t i = 0; i < access->user_count; i++) {
        if (strcmp(access->users[i].name, name) == 0) {
            return &access->users[i];
        }
    }
    return NULL;
}

/* Long enough that guessing from a recorded exchange is hopeless (RFC 7143 §9.2.1: 96 bits). */
static bool secret_is_usable(const char *secret) {
    size_t length = strlen(secret);
    return length >= ISCSI_SECRET_BYTES_MIN && length <= ISCSI_SECRET_BYTES_MAX;
}

int iscsi_user_check(const struct iscsi_user *user, struct errmsg *reterr) {
    size_t length = strlen(user->name);
    if (length == 0 || length > ISCSI_USER_BYTES_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "a CHAP user's name has 1 to %u characters",
                          ISCSI_USER_BYTES_MAX);
    }
    if ((user->mutual_name == NULL) != (user->mutual_secret == NULL)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "CHAP user %s: mutual authentication needs a name and a secret",
                          user->name);
    }
    if (!secret_is_usable(user->secret) ||
        (user->mutual_secret != NULL && !secret_is_usable(user->mutual_secret))) {
        return errmsg_set(reterr, ERR_INVALID,
                          "CHAP user %s: a secret has %u to %u characters (Windows takes 12 to 16)",
                          user->name, ISCSI_SECRET_BYTES_MIN, ISCSI_SECRET_BYTES_MAX);
    }
    if (user->mutual_secret != NULL && strcmp(user->secret, user->mutual_secret) == 0) {
        return errmsg_set(reterr, ERR_INVALID,
                          "CHAP user %s: the two directions must not have the same secret",
                          user->name);
    }
    return OK;
}

static int add_user(struct access *access, const struct iscsi_user *given, struct errmsg *reterr) {
    int error = iscsi_user_check(given, reterr);
    if (error == OK && find_user(access, given->name) != NULL) {
        error = errmsg_set(reterr, ERR_EXISTS, "CHAP user %s is given twice", given->name);
    }
    if (error == OK) {
        access->users[access->user_count++] =
            (struct access_user){mem_strdup(given->name), mem_strdup(given->secret),
                                 copy_of(given->mutual_name), copy_of(given->mutual_secret)};
    }
    return error;
}

static int add_rule(struct access *access, const struct iscsi_rule *given, struct errmsg *reterr) {
    struct access_rule rule = {.lun = given->lun, .has_address = given->address != NULL};
    int error = given->lun < SCSI_LUNS_MAX
                    ? OK
                    : errmsg_set(reterr, ERR_RANGE, "there is no LUN %u", given->lun);
    if (error == OK && given->initiator != NULL) {
        error = iscsi_name_check(given->initiator, reterr);
    }
    if (error == OK && given->address != NULL) {
        error = iscsi_address_check(given->address, reterr);
    }
    if (error == OK && given->address != NULL) {
        error = prefix_parse(given->address, &rule.address);
    }
    if (error == OK && given->user != NULL && find_user(access, given->user) == NULL) {
        error = errmsg_set(reterr, ERR_NOT_FOUND, "there is no CHAP user %s", given->user);
    }
    if (error == OK) {
        rule.initiator = copy_of(given->initiator);
        rule.user = copy_of(given->user);
        access->rules[access->rule_count++] = rule;
    }
    return error;
}

int access_new(const struct iscsi_access *given, struct access **ret_access,
               struct errmsg *reterr) {
    if (given->rule_count > ISCSI_RULES_MAX || given->user_count > ISCSI_USERS_MAX) {
        return errmsg_set(reterr, ERR_LIMIT,
                          "at most %u rules and %u CHAP users are possible for a target",
                          ISCSI_RULES_MAX, ISCSI_USERS_MAX);
    }
    if (given->realm != NULL && strlen(given->realm) > ISCSI_REALM_BYTES_MAX) {
        return errmsg_set(reterr, ERR_INVALID, "the realm's name is too long");
    }
    struct access *access = MEM_NEW(struct access);
    access->realm = mem_strdup(given->realm != NULL ? given->realm : "");
    access->rules = MEM_NEW_ARRAY(struct access_rule, given->rule_count + 1);
    access->users = MEM_NEW_ARRAY(struct access_user, given->user_count + 1);
    int error = OK;
    for (uint32_t i = 0; error == OK && i < given->user_count; i++) {
        error = add_user(access, &given->users[i], reterr);
    }
    for (uint32_t i = 0; error == OK && i < given->rule_count; i++) {
        error = add_rule(access, &given->rules[i], reterr);
    }
    if (error != OK) {
        access_free(access);
        return error;
    }
    *ret_access = access;
    return OK;
}

/* ---- questions ---- */

/* Whether the rule fits as far as name and address go. Names are compared without regard to case:
 * their normal form is lower case, and not every initiator brings its own into it. */
static bool rule_fits(const struct access_rule *rule, const struct access_peer *peer) {
    return (rule->initiator == NULL || strcasecmp(rule->initiator, peer->initiator) == 0) &&
           (!rule->has_address || prefix_holds(&rule->address, &peer->address));
}

static bool user_is_proven(const struct access *access, const struct access_rule *rule,
                           const struct access_peer *peer) {
    return rule->user == NULL ||
           (peer->user != NULL && strcmp(peer->user, rule->user) == 0 &&
            strcmp(peer->realm, access->realm) == 0 && find_user(access, rule->user) != NULL);
}

uint32_t access_methods(const struct access *access, const struct access_peer *peer) {
    if (access == NULL) {
        return ACCESS_NONE;
    }
    uint32_t methods = 0;
    for (uint32_t i = 0; i < access->rule_count; i++) {
        const struct access_rule *rule = &access->rules[i];
        if (rule_fits(rule, peer)) {
            methods |= rule->user != NULL ? ACCESS_CHAP : ACCESS_NONE;
        }
    }
    return methods;
}

bool access_numbers(const struct access *access, const struct access_peer *peer,
                    uint8_t ret_numbers[SCSI_LUNS_MAX / 8]) {
    memset(ret_numbers, access == NULL ? 0xff : 0, SCSI_LUNS_MAX / 8);
    bool any = access == NULL;
    for (uint32_t i = 0; access != NULL && i < access->rule_count; i++) {
        const struct access_rule *rule = &access->rules[i];
        if (rule_fits(rule, peer) && user_is_proven(access, rule, peer)) {
            ret_numbers[rule->lun / 8] |= (uint8_t)(1u << rule->lun % 8);
            any = true;
        }
    }
    return any;
}

bool access_shows(const struct access *access, const struct access_peer *peer) {
    for (uint32_t i = 0; access != NULL && i < access->rule_count; i++) {
        const struct access_rule *rule = &access->rules[i];
        bool named = rule->initiator != NULL || rule->has_address;
        if (rule_fits(rule, peer) && (named || user_is_proven(access, rule, peer))) {
            return true;
        }
    }
    return access == NULL;
}

const struct access_user *access_user_of(const struct access *access,
                                         const struct access_peer *peer, const char *name) {
    for (uint32_t i = 0; access != NULL && i < access->rule_count; i++) {
        const struct access_rule *rule = &access->rules[i];
        if (rule->user != NULL && strcmp(rule->user, name) == 0 && rule_fits(rule, peer)) {
            return find_user(access, name);
        }
    }
    return NULL;
}
