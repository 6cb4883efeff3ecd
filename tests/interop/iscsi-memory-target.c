// SPDX-License-Identifier: MPL-2.0
/* Serves LUNs in plain memory through the real SCSI and iSCSI code, so that initiators nobody here
 * wrote can be run against it without an engine:
 *
 *     iscsi-memory-target [--listen ADDR:PORT] [--size-mib N] [--luns N] [--block N] [--cache]
 *                         [--delay-us N]
 *
 * prints the portal and the target's name, and serves until SIGINT or SIGTERM, which stop it the
 * way the daemon is stopped. Events go to stderr. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "env/linux/linux.h"
#include "iscsi/iscsi.h"
#include "memory_volume.h"

#define TARGET "iqn.2025-01.org.example:memory"

enum { LUNS_MAX = 8 };

struct program {
    struct env *env;
    struct iscsi_server *server;
    struct env_task stop_task;
};

static struct program program;

static void event(void *owner, enum iscsi_event kind, const char *text) {
    (void)kind;
    (void)owner;
    (void)fprintf(stderr, "%s\n", text);
}

static void stopped(void *owner) {
    (void)owner;
    env_stop(program.env);
}

static void stop(struct env_task *task) {
    (void)task;
    iscsi_server_stop(program.server, env_now_ns(program.env) + 5 * NS_PER_S, stopped, NULL);
}

static void on_signal(int number) {
    static volatile sig_atomic_t once;
    (void)number;
    if (!once) {
        once = 1;
        program.stop_task.run = stop;
        env_post(program.env, &program.stop_task);
    }
}

static uint64_t number_of(const char *text) {
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

int main(int argc, char **argv) {
    const char *listen = "127.0.0.1:3260";
    uint64_t size_bytes = 256ull << 20, delay_ns = 0;
    uint32_t luns = 1, block_bytes = 512;
    bool cache = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--cache") == 0) {
            cache = true;
            continue;
        }
        if (strcmp(argv[i], "--listen") == 0 && value != NULL) {
            listen = value;
        } else if (strcmp(argv[i], "--size-mib") == 0) {
            size_bytes = number_of(value) << 20;
        } else if (strcmp(argv[i], "--luns") == 0) {
            luns = (uint32_t)number_of(value);
        } else if (strcmp(argv[i], "--block") == 0) {
            block_bytes = (uint32_t)number_of(value);
        } else if (strcmp(argv[i], "--delay-us") == 0) {
            delay_ns = number_of(value) * NS_PER_US;
        } else {
            (void)fprintf(stderr, "unknown argument %s\n", argv[i]);
            return 2;
        }
        i++;
    }
    luns = luns < LUNS_MAX ? luns : LUNS_MAX;

    struct errmsg message = {0};
    if (env_linux_new(NULL, &program.env, &message) != OK) {
        (void)fprintf(stderr, "%s\n", message.text);
        return 1;
    }
    static struct memory_volume volumes[LUNS_MAX];
    struct scsi_target *target = scsi_target_new(program.env);
    program.server = iscsi_server_new(program.env, &(struct iscsi_options){.event = event});
    int error = OK;
    for (uint32_t i = 0; i < luns && error == OK; i++) {
        memory_volume_init(&volumes[i], program.env, size_bytes, block_bytes);
        volumes[i].delay_ns = delay_ns;
        volumes[i].info.sync_always = !cache;
        volumes[i].info.uuid.bytes[15] = (uint8_t)i;
        error = scsi_lun_add(target, i, &volumes[i].door, &volumes[i].info, &message);
    }
    if (error != OK || iscsi_target_add(program.server, TARGET, target, NULL, &message) != OK ||
        iscsi_portal_add(program.server, listen, &message) != OK) {
        (void)fprintf(stderr, "%s\n", message.text);
        return 1;
    }
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    (void)printf("%s %s\n", iscsi_portal_address(program.server, 0), TARGET);
    (void)fflush(stdout);
    env_run(program.env);
    iscsi_server_free(program.server);
    scsi_target_free(target);
    for (uint32_t i = 0; i < luns; i++) {
        memory_volume_done(&volumes[i]);
    }
    env_linux_free(program.env);
    return 0;
}
