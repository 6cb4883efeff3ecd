// SPDX-License-Identifier: MPL-2.0
/* What this host remembers by itself: its name ("host"), and of each pool it took the newest
 * configuration and mount ("pool-UUID"), which is the witness of pool.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "pool/internal.h"

enum { RECORD_NAME_BYTES = sizeof("pool-") + UUID_TEXT_BYTES };

static void record_name(const struct uuid *pool, char *ret_name) {
    char text[UUID_TEXT_BYTES];
    uuid_format(pool, text);
    (void)snprintf(ret_name, RECORD_NAME_BYTES, "pool-%s", text);
}

int witness_read(struct env *env, const struct uuid *pool, struct witness_phys *ret_witness) {
    char name[RECORD_NAME_BYTES];
    record_name(pool, name);
    _Alignas(8) uint8_t bytes[256];
    size_t length = 0;
    int error = env_state_read(env, name, bytes, sizeof(bytes), &length);
    if (error != OK) {
        return error;
    }
    return witness_decode(bytes, length, pool, ret_witness) == OK ? OK : ERR_NOT_FOUND;
}

int witness_write(struct env *env, const struct super_phys *super) {
    char name[RECORD_NAME_BYTES];
    record_name(&super->pool, name);
    struct witness_phys witness = {.pool = super->pool,
                                   .config_epoch = super->config_epoch,
                                   .mount_generation = super->mount_generation,
                                   .mount_id = super->mount_id};
    witness_seal(&witness);
    return env_state_write(env, name, &witness, sizeof(witness));
}

void host_read(struct env *env, char *ret_host) {
    char text[HOST_BYTES];
    size_t length = 0;
    ret_host[0] = '\0';
    if (env_state_read(env, "host", text, sizeof(text) - 1, &length) != OK) {
        return;
    }
    length = MIN(length, sizeof(text) - 1);
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '!' || text[i] > '~') {
            return; /* not a name: as good as none */
        }
    }
    memcpy(ret_host, text, length);
    ret_host[length] = '\0';
}

int host_ensure(struct env *env, char *ret_host) {
    host_read(env, ret_host);
    if (ret_host[0] != '\0') {
        return OK;
    }
    uint64_t random;
    env_random(env, &random, sizeof(random));
    char text[HOST_BYTES];
    (void)snprintf(text, sizeof(text), "host-%016" PRIx64, random);
    int error = env_state_write(env, "host", text, strlen(text));
    if (error == OK) {
        memcpy(ret_host, text, sizeof(text));
    }
    return error;
}
