// SPDX-License-Identifier: MPL-2.0
/* NBD exports, through libnbd. */
#include <errno.h>
#include <libnbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/clock.h"
#include "bench/kinds.h"

static int refuse(const char *what, struct errmsg *reterr) {
    int error = nbd_get_errno() != 0 ? error_from_errno(nbd_get_errno()) : ERR_PROTOCOL;
    const char *text = nbd_get_error();
    /* "nbd_aio_connect_uri: getaddrinfo: …": the name of the call says nothing to people. */
    const char *colon = text != NULL ? strstr(text, ": ") : NULL;
    return errmsg_set(reterr, error, "%s: %s", what, colon != NULL ? colon + 2 : "no reason given");
}

static int connect_to(struct nbd_handle *nbd, const char *address, struct errmsg *reterr) {
    uint64_t deadline = bench_now_ns() + (uint64_t)TARGET_CONNECT_S * NS_PER_S;
    if (nbd_aio_connect_uri(nbd, address) != 0) {
        return refuse("cannot be connected to", reterr);
    }
    while (nbd_aio_is_ready(nbd) != 1) {
        if (bench_now_ns() > deadline) {
            return errmsg_set(reterr, ERR_TIMEOUT,
                              "does not answer within %d s as an NBD server does",
                              TARGET_CONNECT_S);
        }
        if (nbd_aio_is_dead(nbd) == 1 || nbd_aio_is_closed(nbd) == 1 || nbd_poll(nbd, 100) < 0) {
            return refuse("cannot be connected to", reterr);
        }
    }
    return OK;
}

static int export_open(struct bench_target *target, struct errmsg *reterr) {
    struct nbd_handle *nbd = target->own = nbd_create();
    if (nbd == NULL) {
        return refuse("cannot be used", reterr);
    }
    if (target->options->path_count > 0) {
        return errmsg_set(reterr, ERR_INVALID, "has one path; --path is for iSCSI");
    }
    int error = connect_to(nbd, target->options->address, reterr);
    if (error != OK) {
        return error;
    }
    int64_t size = nbd_get_size(nbd), block = nbd_get_block_size(nbd, LIBNBD_SIZE_MINIMUM);
    if (size < 0) {
        return refuse("does not say how large it is", reterr);
    }
    target->block_bytes = block <= 512 ? 512 : (uint32_t)MIN(block, 1 << 30);
    target->size_bytes = round_down((uint64_t)size, target->block_bytes);
    target->is_read_only = nbd_is_read_only(nbd) == 1;
    char *description = nbd_get_export_description(nbd);
    (void)snprintf(target->name, sizeof(target->name), "%s",
                   description != NULL ? description : "");
    free(description);
    return OK;
}

static int export_join(struct bench_target *target, struct bench_target *first,
                       struct errmsg *reterr) {
    (void)first;
    return export_open(target, reterr);
}

static int finished(void *data, int *error) {
    struct bench_io *io = data;
    int code = *error == 0 ? OK : error_from_errno(*error);
    if (*error == ESHUTDOWN || *error == ENOTCONN) {
        code = bench_target_fail(io->target, ERR_CLOSED, "the connection was lost");
    } else if (code != OK) {
        (void)bench_target_fail(io->target, code, "a %s failed: %s",
                                io->is_write ? "write" : "read", strerror(*error));
    }
    bench_target_done(io, code);
    return 1; /* nobody asks for the command any more */
}

static int export_submit(struct bench_target *target, struct bench_io *io) {
    struct nbd_handle *nbd = target->own;
    nbd_completion_callback done = {.callback = finished, .user_data = io};
    int64_t cookie = io->is_write ? nbd_aio_pwrite(nbd, io->data, io->length, io->offset, done, 0)
                                  : nbd_aio_pread(nbd, io->data, io->length, io->offset, done, 0);
    if (cookie >= 0) {
        return OK;
    }
    const char *text = nbd_get_error();
    return bench_target_fail(target, ERR_CLOSED, "a %s was not taken: %s",
                             io->is_write ? "write" : "read", text != NULL ? text : "?");
}

static int export_service(struct bench_target *target, uint32_t wait_ms) {
    struct nbd_handle *nbd = target->own;
    if (nbd_aio_is_dead(nbd) == 1 || nbd_aio_is_closed(nbd) == 1) {
        return bench_target_fail(target, ERR_CLOSED, "the connection was lost");
    }
    if (nbd_poll(nbd, (int)wait_ms) < 0 && nbd_get_errno() != EINTR) {
        const char *text = nbd_get_error();
        return bench_target_fail(target, ERR_CLOSED, "the connection was lost: %s",
                                 text != NULL ? text : "?");
    }
    return OK;
}

static int export_flush(struct bench_target *target) {
    struct nbd_handle *nbd = target->own;
    if (nbd_can_flush(nbd) != 1 || nbd_flush(nbd, 0) == 0) {
        return OK;
    }
    return bench_target_fail(target, ERR_IO, "what was written cannot be flushed: %s",
                             nbd_get_error());
}

static void export_close(struct bench_target *target) {
    struct nbd_handle *nbd = target->own;
    if (nbd == NULL) {
        return;
    }
    if (target->in_flight == 0 && nbd_aio_is_ready(nbd) == 1) {
        (void)nbd_aio_disconnect(nbd, 0); /* says goodbye; its answer is not waited for */
        (void)nbd_poll(nbd, 100);
    }
    nbd_close(nbd);
}

const struct bench_target_ops bench_nbd_ops = {.kind = "nbd",
                                               .open = export_open,
                                               .join = export_join,
                                               .submit = export_submit,
                                               .service = export_service,
                                               .flush = export_flush,
                                               .close = export_close};
