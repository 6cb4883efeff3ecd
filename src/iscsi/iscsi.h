// SPDX-License-Identifier: MPL-2.0
/* The iSCSI target (RFC 7143): portals, targets, sessions.
 *
 * A server listens on portals; every target is reachable through every portal. It has a loop of its
 * own (`env`), where its functions are called unless they say otherwise, and may have further ones:
 * each portal lives on one of them, with the connections that come by it. It never logs:
 * noteworthy events are handed to options.event, already in words. docs/ARCHITECTURE.md says how
 * connections, sessions and commands hang together; iscsi/limits.h states what each may hold. */
#ifndef HOLDFAST_ISCSI_ISCSI_H
#define HOLDFAST_ISCSI_ISCSI_H

#include "env/env.h"
#include "iscsi/limits.h"
#include "scsi/scsi.h"

struct iscsi_server;

/* Zero fields take the defaults of limits.h. */
/* What is worth telling. */
enum iscsi_event {
    ISCSI_LOGIN,
    ISCSI_LOGIN_REFUSED,
    ISCSI_CONNECTION_ENDED, /* before it had a session */
    ISCSI_SESSION_ENDED,
    ISCSI_EVENTS_UNTOLD,
};

struct iscsi_options {
    uint32_t sessions_max;
    uint32_t commands_max;       /* CmdSN window of a session */
    uint64_t memory_bytes;       /* data buffers of the whole server */
    uint32_t keepalive_s;        /* silence after which a NOP-In is sent */
    uint32_t keepalive_answer_s; /* no answer for this long ends the connection */
    uint32_t login_s;
    /* Loops besides the server's own: the array is copied. They must run until the server is freed,
     * and none may be freed before all have ended. */
    struct env *const *loops;
    uint32_t loop_count; /* at most ISCSI_LOOPS_MAX - 1 */
    /* Something a person may want to know: a login, a refusal and why, a connection ended and why.
     * From any of the loops, one at a time. May be NULL. */
    void (*event)(void *owner, enum iscsi_event kind, const char *text);
    void *event_owner;
};

struct iscsi_server *iscsi_server_new(struct env *env, const struct iscsi_options *options);
/* Only after iscsi_server_stop() has reported, or when no portal was ever added. Commands that the
 * volume still holds keep what they need until they come back. */
void iscsi_server_free(struct iscsi_server *server);

/* "127.0.0.1:3260", "[::1]:3260,2"; port 0 picks one. The number behind a comma is the portal group
 * tag, and the relative target port; portals may share one. Without it: the lowest that is free.
 * Sessions of one initiator with the same ISID are told apart by it. Errors of net_listen(),
 * ERR_LIMIT. */
HF_MUST_CHECK int iscsi_portal_add(struct iscsi_server *server, const char *address,
                                   struct errmsg *reterr);
/* The same for a portal of loop `loop` (0: the server's own; below 1 + loop_count), and called on
 * that loop. Portals are added one at a time. */
HF_MUST_CHECK int iscsi_portal_add_on(struct iscsi_server *server, uint32_t loop,
                                      const char *address, struct errmsg *reterr);
/* Ends no session. ERR_NOT_FOUND. The address is the one given or the one bound. On the portal's
 * loop. */
HF_MUST_CHECK int iscsi_portal_remove(struct iscsi_server *server, const char *address,
                                      struct errmsg *reterr);
/* Portals in order of their tags. The address really bound, valid as long as the server; NULL
 * beyond the last. */
const char *iscsi_portal_address(struct iscsi_server *server, uint32_t index);
uint16_t iscsi_portal_tag(struct iscsi_server *server, uint32_t index);

/* Who may use one unit: whoever is this initiator, comes from this address or network, and proves
 * to be this user; NULL: whoever. A unit without a rule is nobody's. */
struct iscsi_rule {
    uint32_t lun;
    const char *initiator, *address, *user;
};

/* For CHAP. `secret` is the initiator's, the mutual ones (NULL: none) are our own towards it. */
struct iscsi_user {
    const char *name, *secret;
    const char *mutual_name, *mutual_secret;
};

struct iscsi_access {
    const char *realm; /* users of the same name are the same in the same realm only */
    const struct iscsi_rule *rules;
    uint32_t rule_count;
    const struct iscsi_user *users;
    uint32_t user_count;
};

/* ERR_INVALID (a name; see iscsi_name_check()), ERR_EXISTS, ERR_LIMIT, ERR_NOT_FOUND (a rule's
 * user). `access` (NULL: everybody may use every unit) is copied. The scsi_target stays the
 * caller's and must outlive it here. */
HF_MUST_CHECK int iscsi_target_add(struct iscsi_server *server, const char *iqn,
                                   struct scsi_target *target, const struct iscsi_access *access,
                                   struct errmsg *reterr);
/* Takes effect at once: sessions lose the units they may not use any more, and end when they have
 * none left (those of other loops a moment later); all others notice nothing. A user's new secret
 * counts from the next login on. Errors as above; then all stays as it was. */
HF_MUST_CHECK int iscsi_target_set_access(struct iscsi_server *server, const char *iqn,
                                          const struct iscsi_access *access, struct errmsg *reterr);
/* Ends its sessions, those of other loops a moment later: see scsi_target_is_idle().
 * ERR_NOT_FOUND. */
HF_MUST_CHECK int iscsi_target_remove(struct iscsi_server *server, const char *iqn,
                                      struct errmsg *reterr);

/* RFC 7143 §4.2.7: iqn., eui. and naa. names, in their normal (lower case) form. */
HF_MUST_CHECK int iscsi_name_check(const char *name, struct errmsg *reterr);

/* An address or a network as rules have them; a user with usable secrets. */
HF_MUST_CHECK int iscsi_address_check(const char *text, struct errmsg *reterr);
HF_MUST_CHECK int iscsi_user_check(const struct iscsi_user *user, struct errmsg *reterr);

struct iscsi_session_status {
    char initiator[ISCSI_NAME_BYTES_MAX + 1];
    char user[ISCSI_USER_BYTES_MAX + 1];   /* proven by CHAP; empty: nobody */
    char target[ISCSI_NAME_BYTES_MAX + 1]; /* empty: discovery */
    char peer[64], portal[64];
    uint8_t isid[6];
    uint16_t tsih;
    bool header_digest, data_digest;
    uint32_t commands;
    uint64_t commands_total, read_bytes, write_bytes;
    uint64_t age_ns;
};
/* Fills at most `room`; returns how many sessions there are. */
uint32_t iscsi_session_list(struct iscsi_server *server, struct iscsi_session_status *ret_sessions,
                            uint32_t room);

/* Takes no connection and no command any more, lets running commands finish until `deadline_ns`
 * (absolute), tells initiators, closes. stopped(owner) runs from the loop when all is closed;
 * commands whose volume has not answered by then are dropped, see scsi_target_outstanding(). */
void iscsi_server_stop(struct iscsi_server *server, uint64_t deadline_ns,
                       void (*stopped)(void *owner), void *owner);

#endif
