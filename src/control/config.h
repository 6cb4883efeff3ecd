// SPDX-License-Identifier: MPL-2.0
/* /etc/holdfast/holdfast.conf: what belongs to this node. What belongs to a pool travels with it.
 *
 *   # comment
 *   key = value
 *
 * A key that takes a list may be given several times, and takes several values separated by blanks.
 * Keys are listed by the table in config.c and described in holdfast.conf(5). */
#ifndef HOLDFAST_CONTROL_CONFIG_H
#define HOLDFAST_CONTROL_CONFIG_H

#include <stdint.h>

#include "base/error.h"

#define CONFIG_SOCKET_DEFAULT "/run/holdfast/holdfast.sock"
#define CONFIG_FILE_DEFAULT "/etc/holdfast/holdfast.conf"
#define CONFIG_STATE_DEFAULT "/var/lib/holdfast"
/* This machine only: a LUN is for everybody until it is mapped. */
#define CONFIG_LISTEN_DEFAULT "127.0.0.1:3260"

enum { CONFIG_LIST_MAX = 64, CONFIG_VALUE_MAX = 256 };

struct config_list {
    uint32_t count;
    char values[CONFIG_LIST_MAX][CONFIG_VALUE_MAX];
};

struct config {
    char socket[CONFIG_VALUE_MAX];    /* of the REST API */
    char state_dir[CONFIG_VALUE_MAX]; /* this node's own records */
    struct config_list listen;        /* iSCSI portals, ADDR[:PORT] */
    struct config_list pools;         /* to import at start, besides those remembered */
    struct config_list search;        /* folders and disks in which pools are looked for */
    uint64_t iscsi_threads;           /* 0: one a core */
    uint64_t read_cache_bytes, node_cache_bytes, dirty_bytes; /* of each pool; 0: default */
    uint64_t rebuild_grace_s, rebuild_share_pct;              /* 0: default */
};

/* Large: allocate it. Everything empty, what has a default has it after config_finish(). */
void config_init(struct config *config);

/* One setting, as from the file or from an option of the command line. */
HF_MUST_CHECK int config_set(struct config *config, const char *key, const char *value,
                             struct errmsg *reterr);

/* The text of a file; `path` is for messages, which name line and key. */
HF_MUST_CHECK int config_parse(struct config *config, const char *path, const char *text,
                               struct errmsg *reterr);

/* Reads `path`, or the default file, which may be missing, when it is NULL. */
HF_MUST_CHECK int config_load(struct config *config, const char *path, struct errmsg *reterr);

/* Fills in defaults. */
void config_finish(struct config *config);

/* Empties a list, so that an option replaces what the file says. */
void config_clear(struct config_list *list);

#endif
