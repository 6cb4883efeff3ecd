// SPDX-License-Identifier: MPL-2.0
/* A thing to measure: something of a size that is read and written at offsets, many at once.
 *
 * bench_target_open() finds the kind by how the address begins; each kind is a table of operations
 * over the library that speaks its protocol. A target is one queue, used by one thread at a time;
 * bench_target_join() makes another queue to the same thing for another thread.
 *
 * I/Os complete within bench_target_service() only. One that failed has said why in the target's
 * `why`, of which the first sentence stays; after that the target is good for closing only. */
#ifndef HOLDFAST_BENCH_TARGET_H
#define HOLDFAST_BENCH_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    TARGET_DEPTH_MAX = 1024,
    TARGET_PATHS_MAX = 16,
    TARGET_CONNECT_S = 15, /* until a target has to be there */
    TARGET_COMMAND_S = 60, /* until a command has to be answered */
};

struct bench_target;

struct bench_io {
    bool is_write;
    uint64_t offset;
    uint32_t length;
    uint8_t *data; /* aligned to 4096; the caller's until done */
    void (*done)(struct bench_io *io, int error);
    uint64_t done_ns; /* when it completed: before `done` is called */
    /* The target's. */
    struct bench_target *target;
    struct bench_io *next;
    int error;
    uint64_t own[4];
};

struct volume_door;

/* A volume of a pool that this process has: what "volume:POOL/NAME" stands for. */
struct bench_volume {
    struct volume_door *door; /* outlives the target */
    uint64_t id, size_bytes;
    uint32_t block_bytes;
    const char *profile;
};

struct bench_target_options {
    const char *address;
    const struct bench_volume *volume; /* of "volume:…"; else NULL */
    const char *const *paths;          /* more addresses of the same LUN */
    uint32_t path_count;
    const char *initiator;     /* iSCSI name to log in with; NULL: one of this program's */
    const char *secret;        /* CHAP secret, when the address has none; NULL */
    uint64_t file_bytes;       /* size of a file that is made on a file system */
    bool file_bytes_wanted;    /* it was asked for: refuse rather than make a smaller one */
    uint64_t read_ahead_bytes; /* NFS; 0: none */
    bool writes;               /* false: it is only read, and nothing is made */
};

struct bench_target_ops {
    const char *kind;
    /* Opens, logs in, learns sizes and name. Fills *target, which is zeroed but for ops, options
     * and address; on failure it is closed by the caller. */
    int (*open)(struct bench_target *target, struct errmsg *reterr);
    /* The same for another queue to what `first` has opened. */
    int (*join)(struct bench_target *target, struct bench_target *first, struct errmsg *reterr);
    /* ERR_…: not begun. */
    int (*submit)(struct bench_target *target, struct bench_io *io);
    /* Waits up to wait_ms for something to complete, and completes it. */
    int (*service)(struct bench_target *target, uint32_t wait_ms);
    /* Everything that was written is durable; nothing is under way. */
    int (*flush)(struct bench_target *target);
    /* I/Os that are still under way are not completed any more; their memory may still be used by
     * the kernel: see bench_target_close(). Removes a file that was made. */
    void (*close)(struct bench_target *target);
};

struct bench_target {
    const struct bench_target_ops *ops;
    const struct bench_target_options *options; /* the caller's */
    char address[512];                          /* without user and secret */
    const char *kind;                           /* ops->kind, or finer */
    char name[128];                             /* what it calls itself */
    uint64_t size_bytes;
    uint32_t block_bytes; /* 512 or 4096: what offsets and lengths are multiples of */
    bool is_read_only;
    bool is_own_file; /* made for this, and removed at the end */
    bool is_file;     /* a file of somebody's */
    uint32_t in_flight;
    struct bench_io *ended, **ended_tail; /* whose `done` is still to be called, in order */
    struct errmsg why;
    void *own; /* mem_alloc'd by open and join, freed by close */
};

/* ERR_NOT_FOUND (no such path, host, target or LUN), ERR_PERMISSION (login refused), ERR_BUSY,
 * ERR_TIMEOUT, ERR_UNSUPPORTED, …, always with a sentence that begins with the address. */
HF_MUST_CHECK int bench_target_open(const struct bench_target_options *options,
                                    struct bench_target **ret_target, struct errmsg *reterr);
HF_MUST_CHECK int bench_target_join(struct bench_target *first, struct bench_target **ret_target,
                                    struct errmsg *reterr);
HF_MUST_CHECK int bench_target_submit(struct bench_target *target, struct bench_io *io);
HF_MUST_CHECK int bench_target_service(struct bench_target *target, uint32_t wait_ms);
HF_MUST_CHECK int bench_target_flush(struct bench_target *target, struct errmsg *reterr);
/* Waits a little for I/Os under way. False: some did not end, and memory they use must not be
 * freed. NULL is allowed. */
bool bench_target_close(struct bench_target *target);

/* One I/O, waited for; nothing else is under way. `data` is aligned to 4096, and must not be freed
 * while target->in_flight is not zero. */
HF_MUST_CHECK int bench_target_transfer(struct bench_target *target, bool is_write, uint64_t offset,
                                        uint8_t *data, uint32_t length, struct errmsg *reterr);

/* For the kinds: notes why (the first stays), and returns code. */
int bench_target_fail(struct bench_target *target, int code, const char *fmt, ...) HF_PRINTF(3, 4);
/* An I/O has ended. It is only noted: its `done` is called when the kind's function has returned,
 * for not every library can be called from its own callbacks. */
void bench_target_done(struct bench_io *io, int error);
/* Puts '?' for control characters: names and reasons come from devices and peers, and terminals
 * obey such characters. */
void bench_text_tame(char *text);
/* `address` without what stands between "//" and '@'. */
void bench_address_plain(const char *address, char *ret_text, size_t room);

#endif
