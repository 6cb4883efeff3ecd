// SPDX-License-Identifier: MPL-2.0
/* Authentication in the security stage of a login (RFC 7143 §12, §9.2.1).
 *
 *     open ── AuthMethod ──┬─ None ──────────────────────────────────────────────> done
 *        │                 └─ CHAP ─> chosen ── CHAP_A ─> challenged ── CHAP_N,R ──> done
 *        └─ nothing of the kind: as with None                        [CHAP_I,C: we answer N,R]
 *
 * The first method of the offer that the access lists have a use for is taken. A login is done with
 * authentication before it leaves the security stage.
 *
 * A challenge is random, as long as the digest, and used for one response. What an attacker could
 * have us do for him is refused: a challenge of his that equals one we are waiting for (reflection,
 * on whatever connection), and a proof before his own. The secrets of the two directions differ
 * (iscsi_user_check()). Unknown users take as long, and are told the same, as wrong secrets. */
#include <string.h>

#include "base/sabotage.h"
#include "iscsi/internal.h"

struct access_peer connection_peer(const struct iscsi_connection *connection) {
    const struct iscsi_login *login = &connection->login;
    return (struct access_peer){
        .initiator = connection->keys.parameters.initiator_name,
        .address = connection->address,
        .realm = login->realm,
        .user = login->user[0] != 0 ? login->user : NULL,
    };
}

/* The targets this login is about: one, or in a discovery session all. */
static bool concerns(const struct iscsi_connection *connection, const struct iscsi_target *target) {
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    return parameters->discovery ||
           server_find_target(connection->server, parameters->target_name) == target;
}

static uint32_t methods_of(const struct iscsi_connection *connection) {
    struct access_peer peer = connection_peer(connection);
    uint32_t methods = connection->keys.parameters.discovery ? ACCESS_NONE : 0;
    server_lock(connection->server);
    LIST_FOR_EACH(it, &connection->server->targets) {
        const struct iscsi_target *target = CONTAINER_OF(it, struct iscsi_target, in_server);
        if (concerns(connection, target)) {
            methods |= access_methods(target->access, &peer);
        }
    }
    server_unlock(connection->server);
    return methods;
}

static uint32_t choose_method(struct iscsi_connection *connection, struct text_buffer *answer,
                              const char **ret_why) {
    struct iscsi_login *login = &connection->login;
    uint32_t methods = methods_of(connection);
    const char *at = connection->keys.security.methods;
    while (at != NULL) {
        size_t length = strcspn(at, ",");
        bool none = length == 4 && strncmp(at, "None", 4) == 0 && (methods & ACCESS_NONE) != 0;
        bool chap = length == 4 && strncmp(at, "CHAP", 4) == 0 && (methods & ACCESS_CHAP) != 0;
        if (none || chap) {
            login->auth = chap ? AUTH_CHOSEN : AUTH_DONE;
            text_put(answer, "AuthMethod", chap ? "CHAP" : "None");
            return LOGIN_GOOD;
        }
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    *ret_why = (methods & ACCESS_CHAP) != 0
                   ? "it has to authenticate itself with CHAP and does not offer to"
                   : "it insists on authentication, and no CHAP user is set up for it";
    return LOGIN_AUTHENTICATION_FAILURE;
}

static uint32_t challenge(struct iscsi_connection *connection, struct text_buffer *answer,
                          const char **ret_why) {
    struct iscsi_login *login = &connection->login;
    char text[2 * DIGEST_RESULT_BYTES_MAX + 3];
    uint32_t number = 0;
    if (chap_choose(connection->keys.security.algorithms, &login->digest, &number) != OK) {
        *ret_why = "it knows no CHAP algorithm that we know";
        return LOGIN_AUTHENTICATION_FAILURE;
    }
    struct env *env = connection->loop->env;
    server_lock(connection->server); /* other logins compare theirs with it */
    login->challenge_bytes = digest_bytes(login->digest);
    env_random(env, login->challenge, login->challenge_bytes);
    server_unlock(connection->server);
    env_random(env, &login->chap_id, sizeof(login->chap_id));
    chap_binary_text(login->challenge, login->challenge_bytes, text);
    text_put_number(answer, "CHAP_A", number);
    text_put_number(answer, "CHAP_I", login->chap_id);
    text_put(answer, "CHAP_C", text);
    login->auth = AUTH_CHALLENGED;
    return LOGIN_GOOD;
}

/* Whoever has this name and the secret that the response proves; NULL. The same name may stand for
 * several users when the login is about several pools. */
static const struct access_user *prove(struct iscsi_connection *connection) {
    struct iscsi_login *login = &connection->login;
    const struct keys_security *said = &connection->keys.security;
    struct access_peer peer = connection_peer(connection);
    const struct access_user *proven = NULL;
    bool tried = false;
    LIST_FOR_EACH(it, &connection->server->targets) {
        const struct iscsi_target *target = CONTAINER_OF(it, struct iscsi_target, in_server);
        const struct access_user *user =
            concerns(connection, target) ? access_user_of(target->access, &peer, said->name) : NULL;
        if (user == NULL || proven != NULL) {
            continue;
        }
        tried = true;
        if (chap_is_right(login->digest, login->chap_id, user->secret, login->challenge,
                          login->challenge_bytes, said->response, said->response_bytes) ||
            SABOTAGE(iscsi_secret_unchecked)) {
            proven = user;
            memcpy(login->realm, target->access->realm, strlen(target->access->realm) + 1);
            memcpy(login->user, user->name, strlen(user->name) + 1);
        }
    }
    if (!tried) {
        (void)chap_is_right(login->digest, login->chap_id, "nobody's secret", login->challenge,
                            login->challenge_bytes, said->response, said->response_bytes);
    }
    return proven;
}

static bool is_reflected(const struct iscsi_connection *connection) {
    const struct keys_security *said = &connection->keys.security;
    LIST_FOR_EACH(it, &connection->server->connections) {
        const struct iscsi_login *login =
            &CONTAINER_OF(it, struct iscsi_connection, in_server)->login;
        if (login->challenge_bytes != 0 && login->challenge_bytes == said->challenge_bytes &&
            memcmp(login->challenge, said->challenge, said->challenge_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Mutual: the initiator asks us to prove that we know the other secret. */
static uint32_t prove_ourselves(struct iscsi_connection *connection, const struct access_user *user,
                                struct text_buffer *answer, const char **ret_why) {
    const struct keys_security *said = &connection->keys.security;
    struct iscsi_login *login = &connection->login;
    uint8_t response[DIGEST_RESULT_BYTES_MAX];
    char text[2 * DIGEST_RESULT_BYTES_MAX + 3];
    if (user->mutual_secret == NULL) {
        *ret_why = "it wants us to authenticate ourselves, and no mutual secret is set";
        return LOGIN_AUTHENTICATION_FAILURE;
    }
    if (is_reflected(connection)) {
        *ret_why = "it sends our own challenge back";
        return LOGIN_AUTHENTICATION_FAILURE;
    }
    if (chap_response(login->digest, (uint8_t)said->id, user->mutual_secret, said->challenge,
                      said->challenge_bytes, response) != OK) {
        *ret_why = "the digest cannot be computed";
        return LOGIN_AUTHENTICATION_FAILURE;
    }
    chap_binary_text(response, digest_bytes(login->digest), text);
    text_put(answer, "CHAP_N", user->mutual_name);
    text_put(answer, "CHAP_R", text);
    return LOGIN_GOOD;
}

static uint32_t take_response(struct iscsi_connection *connection, struct text_buffer *answer,
                              const char **ret_why) {
    struct iscsi_login *login = &connection->login;
    bool mutual = (connection->keys.security.given & GIVEN_CHAP_C) != 0;
    uint32_t status = LOGIN_GOOD;
    server_lock(connection->server); /* as long as we look at users and challenges */
    const struct access_user *user = prove(connection);
    if (user == NULL) {
        *ret_why = "its CHAP user is not known or its secret is wrong";
        status = LOGIN_AUTHENTICATION_FAILURE;
    } else if (mutual) {
        status = prove_ourselves(connection, user, answer, ret_why);
    }
    login->challenge_bytes = 0; /* good for one response */
    server_unlock(connection->server);
    login->auth = status == LOGIN_GOOD ? AUTH_DONE : login->auth;
    return status;
}

static bool has_all(uint32_t given, uint32_t wanted) {
    return (given & wanted) == wanted;
}

/* What was said has its place: the algorithms alone, the response whole, both halves of a
 * challenge, and nothing of CHAP where it was not chosen. */
static bool is_in_order(enum auth_stage stage, uint32_t given) {
    uint32_t chap = given & GIVEN_CHAP;
    switch (stage) {
    case AUTH_CHOSEN:
        return chap == 0 || chap == GIVEN_CHAP_A;
    case AUTH_CHALLENGED:
        return chap == 0 || chap == (GIVEN_CHAP_N | GIVEN_CHAP_R) ||
               chap == (GIVEN_CHAP & ~(uint32_t)GIVEN_CHAP_A);
    case AUTH_OPEN:
    case AUTH_DONE:
        break;
    }
    return chap == 0;
}

uint32_t auth_request(struct iscsi_connection *connection, struct text_buffer *answer,
                      const char **ret_why) {
    struct iscsi_login *login = &connection->login;
    uint32_t given = connection->keys.security.given, status = LOGIN_GOOD;
    if (login->auth == AUTH_OPEN && (given & GIVEN_AUTH_METHOD) != 0) {
        status = choose_method(connection, answer, ret_why);
    }
    if (status == LOGIN_GOOD && !is_in_order(login->auth, given)) {
        *ret_why = "it left the order of CHAP";
        status = LOGIN_INITIATOR_ERROR;
    }
    if (status == LOGIN_GOOD && login->auth == AUTH_CHOSEN && (given & GIVEN_CHAP_A) != 0) {
        status = challenge(connection, answer, ret_why);
    } else if (status == LOGIN_GOOD && login->auth == AUTH_CHALLENGED &&
               has_all(given, GIVEN_CHAP_N | GIVEN_CHAP_R)) {
        status = take_response(connection, answer, ret_why);
    }
    connection->keys.security.given = 0;
    return status;
}

uint32_t auth_leave(struct iscsi_connection *connection, const char **ret_why) {
    struct iscsi_login *login = &connection->login;
    if (login->auth == AUTH_OPEN && (methods_of(connection) & ACCESS_NONE) == 0) {
        *ret_why = "it has to authenticate itself with CHAP and does not offer to";
        return LOGIN_AUTHENTICATION_FAILURE;
    }
    if (login->auth == AUTH_OPEN) {
        login->auth = AUTH_DONE;
    }
    return LOGIN_GOOD;
}
