// SPDX-License-Identifier: MPL-2.0
#include "bench/target.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/clock.h"
#include "bench/kinds.h"

/* How addresses of each kind begin. What fits none is a local path. */
static const struct {
    const char *scheme;
    const struct bench_target_ops *ops;
    const char *library; /* that is missing, where ops is NULL */
} kinds[] = {
    {"iscsi://", BENCH_ISCSI, "libiscsi"},  {"nfs://", BENCH_NFS, "libnfs"},
    {"nbd://", BENCH_NBD, "libnbd"},        {"nbd+unix://", BENCH_NBD, "libnbd"},
    {"nbds://", BENCH_NBD, "libnbd"},       {"nbds+unix://", BENCH_NBD, "libnbd"},
    {"iser://", NULL, "an RDMA transport"}, {"volume:", BENCH_VOLUME, ""},
};

void bench_address_plain(const char *address, char *ret_text, size_t room) {
    const char *host = strstr(address, "://");
    host = host != NULL ? host + 3 : address;
    /* iSCSI secrets may hold a '/', iSCSI names no '@'. */
    size_t authority = strncmp(address, "iscsi:", 6) == 0 ? strlen(host) : strcspn(host, "/");
    const char *at = host != address ? memrchr(host, '@', authority) : NULL;
    (void)snprintf(ret_text, room, "%.*s%s", (int)(host - address), address,
                   at != NULL ? at + 1 : host);
}

void bench_text_tame(char *text) {
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

static int find_kind(const char *address, const struct bench_target_ops **ret_ops,
                     struct errmsg *reterr) {
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (strncmp(address, kinds[i].scheme, strlen(kinds[i].scheme)) == 0) {
            *ret_ops = kinds[i].ops;
            return *ret_ops != NULL ? OK
                                    : errmsg_set(reterr, ERR_UNSUPPORTED,
                                                 "%s: this holdfast was built without %s",
                                                 kinds[i].scheme, kinds[i].library);
        }
    }
    const char *scheme = strstr(address, "://");
    if (scheme != NULL && strcspn(address, "/") > (size_t)(scheme - address)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%.*s://\" is no kind of target; there are iscsi://, nfs://, nbd://, "
                          "volume: and paths",
                          (int)MIN(scheme - address, 40), address);
    }
    *ret_ops = BENCH_FILE;
    return OK;
}

static struct bench_target *target_new(const struct bench_target_ops *ops,
                                       const struct bench_target_options *options) {
    struct bench_target *target = MEM_NEW(struct bench_target);
    target->ops = ops;
    target->kind = ops->kind;
    target->options = options;
    target->block_bytes = 512;
    target->ended_tail = &target->ended;
    bench_address_plain(options->address, target->address, sizeof(target->address));
    return target;
}

static int check_sizes(const struct bench_target *target, struct errmsg *reterr) {
    if (target->block_bytes != 512 && target->block_bytes != 4096) {
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "has blocks of %u bytes; only 512 and 4096 can be measured",
                          target->block_bytes);
    }
    if (target->size_bytes < 1 << 20) {
        return errmsg_set(reterr, ERR_RANGE, "is smaller than 1 MiB");
    }
    if (target->is_read_only && target->options->writes) {
        return errmsg_set(reterr, ERR_READ_ONLY,
                          "can only be read; with --read-only reads are measured alone");
    }
    return OK;
}

static int refuse(struct bench_target *target, int error, struct errmsg *reterr) {
    bench_text_tame(reterr->text);
    (void)errmsg_prefix(reterr, "%s: ", target->address);
    (void)bench_target_close(target);
    return error;
}

int bench_target_open(const struct bench_target_options *options, struct bench_target **ret_target,
                      struct errmsg *reterr) {
    const struct bench_target_ops *ops;
    int error = find_kind(options->address, &ops, reterr);
    if (error != OK) {
        return error;
    }
    struct bench_target *target = target_new(ops, options);
    error = ops->open(target, reterr);
    if (error == OK) {
        error = check_sizes(target, reterr);
    }
    if (error != OK) {
        return refuse(target, error, reterr);
    }
    bench_text_tame(target->name);
    *ret_target = target;
    return OK;
}

int bench_target_join(struct bench_target *first, struct bench_target **ret_target,
                      struct errmsg *reterr) {
    struct bench_target *target = target_new(first->ops, first->options);
    int error = first->ops->join(target, first, reterr);
    if (error != OK) {
        return refuse(target, error, reterr);
    }
    target->kind = first->kind;
    target->size_bytes = first->size_bytes;
    target->block_bytes = first->block_bytes;
    *ret_target = target;
    return OK;
}

int bench_target_fail(struct bench_target *target, int code, const char *fmt, ...) {
    char text[sizeof(target->why.text)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    bench_text_tame(text);
    /* Libraries end their messages with a full stop or a line end; a sentence goes on. */
    for (size_t end = strlen(text); end > 0 && strchr(" .?", text[end - 1]) != NULL; end--) {
        text[end - 1] = '\0';
    }
    return errmsg_set(&target->why, code, "%s", text);
}

int bench_target_submit(struct bench_target *target, struct bench_io *io) {
    ASSERT(range_is_within(io->offset, io->length, target->size_bytes) || target->size_bytes == 0);
    io->target = target;
    int error = target->ops->submit(target, io);
    if (error == OK) {
        target->in_flight++;
    }
    return error;
}

void bench_target_done(struct bench_io *io, int error) {
    struct bench_target *target = io->target;
    if (error != OK) {
        char where[24];
        size_format(io->offset, where, sizeof(where));
        (void)bench_target_fail(target, error, "a %s at %s failed: %s",
                                io->is_write ? "write" : "read", where, error_text(error));
    }
    io->done_ns = bench_now_ns();
    io->error = error;
    io->next = NULL;
    *target->ended_tail = io;
    target->ended_tail = &io->next;
}

/* Of those that have ended by now: what their callers begin may end at once, and is for the next
 * time. */
static void deliver(struct bench_target *target) {
    struct bench_io *io = target->ended;
    target->ended = NULL;
    target->ended_tail = &target->ended;
    while (io != NULL) {
        struct bench_io *next = io->next;
        ASSERT(target->in_flight > 0);
        target->in_flight--;
        io->done(io, io->error);
        io = next;
    }
}

int bench_target_service(struct bench_target *target, uint32_t wait_ms) {
    int error = target->ops->service(target, target->ended != NULL ? 0 : wait_ms);
    deliver(target);
    if (error != OK) {
        (void)bench_target_fail(target, error, "%s", error_text(error));
    }
    return error;
}

static int from_why(struct bench_target *target, int error, struct errmsg *reterr) {
    if (error == OK) {
        return OK;
    }
    return errmsg_set(reterr, error, "%s: %s", target->address,
                      target->why.code != 0 ? target->why.text : error_text(error));
}

int bench_target_flush(struct bench_target *target, struct errmsg *reterr) {
    return from_why(target, target->ops->flush(target), reterr);
}

struct waiting {
    struct bench_io io;
    bool is_done;
    int error;
};

static void waited_for(struct bench_io *io, int error) {
    struct waiting *waiting = CONTAINER_OF(io, struct waiting, io);
    waiting->is_done = true;
    waiting->error = error;
}

int bench_target_transfer(struct bench_target *target, bool is_write, uint64_t offset,
                          uint8_t *data, uint32_t length, struct errmsg *reterr) {
    struct waiting *w = MEM_NEW(struct waiting);
    w->io = (struct bench_io){
        .is_write = is_write, .offset = offset, .length = length, .data = data, .done = waited_for};
    uint64_t deadline = bench_now_ns() + (uint64_t)TARGET_COMMAND_S * NS_PER_S;
    int error = bench_target_submit(target, &w->io);
    while (error == OK && !w->is_done) {
        error = bench_target_service(target, 100);
        if (error == OK && !w->is_done && bench_now_ns() > deadline) {
            error = bench_target_fail(target, ERR_TIMEOUT, "does not answer");
        }
    }
    error = error == OK ? w->error : error;
    if (target->in_flight == 0) {
        mem_free(w); /* or else it is still the target's */
    }
    return from_why(target, error, reterr);
}

bool bench_target_close(struct bench_target *target) {
    if (target == NULL) {
        return true;
    }
    uint64_t deadline = bench_now_ns() + 2ull * NS_PER_S;
    while (target->in_flight > 0 && bench_now_ns() < deadline &&
           target->ops->service(target, 100) == OK) {
    }
    target->ops->close(target);
    deliver(target);
    bool quiet = target->in_flight == 0;
    mem_free(target);
    return quiet;
}
