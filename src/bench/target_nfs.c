// SPDX-License-Identifier: MPL-2.0
/* A file of our own in a folder of an NFS export, through libnfs.
 *
 * It is opened O_SYNC, so that a write is durable when it is answered, as hypervisors ask for.
 * It is removed when its first queue is closed. */
#include <errno.h>
#include <fcntl.h>
#include <nfsc/libnfs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/clock.h"
#include "bench/kinds.h"

struct share {
    struct nfs_context *nfs;
    struct nfs_url *url;
    struct nfsfh *file;
    char name[64];
    bool is_made; /* by this queue, which removes it */
};

static int refuse(struct share *share, int result, const char *what, struct errmsg *reterr) {
    char text[300];
    const char *why = share->nfs != NULL ? nfs_get_error(share->nfs) : NULL;
    (void)snprintf(text, sizeof(text), "%s", why != NULL ? why : "no reason given");
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, "nfs_service failed") == 0) {
        (void)snprintf(text, sizeof(text), "no NFS server answers there");
    }
    return errmsg_set(reterr, result < 0 ? error_from_errno(result) : ERR_INVALID, "%s: %s", what,
                      text);
}

static int mount_share(struct bench_target *target, struct share *share, struct errmsg *reterr) {
    share->nfs = nfs_init_context();
    share->url =
        share->nfs != NULL ? nfs_parse_url_dir(share->nfs, target->options->address) : NULL;
    if (share->url == NULL || share->url->server == NULL || share->url->path == NULL) {
        return errmsg_set(reterr, ERR_INVALID, "is not written nfs://host/path[?version=3|4]");
    }
    nfs_set_autoreconnect(share->nfs, 0);
    nfs_set_timeout(share->nfs, TARGET_CONNECT_S * 1000);
    if (target->options->read_ahead_bytes > 0) {
        nfs_set_readahead(share->nfs, (uint32_t)MIN(target->options->read_ahead_bytes, 1u << 30));
    }
    int result = nfs_mount(share->nfs, share->url->server, share->url->path);
    return result == 0 ? OK : refuse(share, result, "cannot be mounted", reterr);
}

static int choose_size(struct bench_target *target, struct share *share, struct errmsg *reterr) {
    const struct bench_target_options *options = target->options;
    struct statvfs fs;
    char want[24], have[24];
    uint64_t size = options->file_bytes;
    int result = nfs_statvfs(share->nfs, "/", &fs);
    if (result != 0) {
        return refuse(share, result, "its free space cannot be read", reterr);
    }
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (!options->file_bytes_wanted) {
        size = round_down(MIN(size, available / 2), 1 << 20);
    }
    if (size > available || size < 1 << 20) {
        size_format(MAX(size, 1ull << 20), want, sizeof(want));
        size_format(available, have, sizeof(have));
        return errmsg_set(reterr, ERR_NO_SPACE,
                          "%s are wanted and %s are free; give a smaller --span", want, have);
    }
    target->size_bytes = size;
    return OK;
}

/* libnfs 4 reads over NFS version 4, but cannot put a write into words. */
static int try_write(struct share *share, struct errmsg *reterr) {
    static const char block[4096];
    int result = nfs_pwrite(share->nfs, share->file, 0, sizeof(block), block);
    if (result == (int)sizeof(block)) {
        return OK;
    }
    if (strstr(nfs_get_error(share->nfs), "Failed to encode") != NULL) {
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "the libnfs of this machine cannot write over this version of NFS; try "
                          "?version=3");
    }
    return refuse(share, result, "a file in it cannot be written", reterr);
}

static int share_open(struct bench_target *target, struct errmsg *reterr) {
    struct share *share = target->own = MEM_NEW(struct share);
    if (target->options->path_count > 0) {
        return errmsg_set(reterr, ERR_INVALID, "has one path; --path is for iSCSI");
    }
    if (!target->options->writes) {
        return errmsg_set(reterr, ERR_INVALID,
                          "cannot be measured with --read-only: a file is made in it first");
    }
    int error = mount_share(target, share, reterr);
    if (error == OK) {
        error = choose_size(target, share, reterr);
    }
    if (error != OK) {
        return error;
    }
    (void)snprintf(share->name, sizeof(share->name), "/.holdfast-bench.%d.%08x", (int)getpid(),
                   (unsigned)bench_now_ns());
    int result =
        nfs_open2(share->nfs, share->name, O_RDWR | O_CREAT | O_EXCL | O_SYNC, 0600, &share->file);
    if (result != 0) {
        return refuse(share, result, "a file in it cannot be made", reterr);
    }
    share->is_made = true;
    result = nfs_ftruncate(share->nfs, share->file, target->size_bytes);
    if (result != 0) {
        return refuse(share, result, "a file in it cannot be given its size", reterr);
    }
    error = try_write(share, reterr);
    if (error != OK) {
        return error;
    }
    nfs_set_timeout(share->nfs, TARGET_COMMAND_S * 1000);
    target->is_own_file = true;
    return OK;
}

static int share_join(struct bench_target *target, struct bench_target *first,
                      struct errmsg *reterr) {
    struct share *share = target->own = MEM_NEW(struct share);
    int error = mount_share(target, share, reterr);
    if (error != OK) {
        return error;
    }
    int result =
        nfs_open(share->nfs, ((struct share *)first->own)->name, O_RDWR | O_SYNC, &share->file);
    nfs_set_timeout(share->nfs, TARGET_COMMAND_S * 1000);
    return result == 0 ? OK : refuse(share, result, "the file in it cannot be opened", reterr);
}

static void finished(int result, struct nfs_context *nfs, void *data, void *private_data) {
    struct bench_io *io = private_data;
    const char *what = io->is_write ? "write" : "read";
    int error = OK;
    (void)nfs;
    if (result < 0) {
        error = bench_target_fail(io->target, error_from_errno(result), "a %s failed: %s", what,
                                  data != NULL ? (const char *)data : strerror(-result));
    } else if ((uint32_t)result != io->length) {
        error = bench_target_fail(io->target, ERR_IO, "a %s ended early", what);
    } else if (!io->is_write) {
        memcpy(io->data, data, io->length);
    }
    bench_target_done(io, error);
}

static int share_submit(struct bench_target *target, struct bench_io *io) {
    struct share *share = target->own;
    int result = io->is_write ? nfs_pwrite_async(share->nfs, share->file, io->offset, io->length,
                                                 io->data, finished, io)
                              : nfs_pread_async(share->nfs, share->file, io->offset, io->length,
                                                finished, io);
    return result == 0
               ? OK
               : bench_target_fail(target, ERR_CLOSED, "a %s was not taken: %s",
                                   io->is_write ? "write" : "read", nfs_get_error(share->nfs));
}

static int share_service(struct bench_target *target, uint32_t wait_ms) {
    struct share *share = target->own;
    struct pollfd fd = {.fd = nfs_get_fd(share->nfs),
                        .events = (short)nfs_which_events(share->nfs)};
    if (fd.fd < 0) {
        return bench_target_fail(target, ERR_CLOSED, "the connection was lost");
    }
    if (poll(&fd, 1, (int)wait_ms) < 0 && errno != EINTR) {
        return bench_target_fail(target, ERR_IO, "poll failed: %s", strerror(errno));
    }
    if (nfs_service(share->nfs, fd.revents) < 0) {
        return bench_target_fail(target, ERR_CLOSED, "the connection was lost");
    }
    return OK;
}

static int share_flush(struct bench_target *target) {
    struct share *share = target->own;
    return nfs_fsync(share->nfs, share->file) == 0
               ? OK
               : bench_target_fail(target, ERR_IO, "what was written cannot be flushed: %s",
                                   nfs_get_error(share->nfs));
}

/* After an error the connection may be of no use; the file is then removed over another. */
static void remove_file(struct bench_target *target, struct share *share) {
    if (nfs_unlink(share->nfs, share->name) == 0) {
        return;
    }
    struct share again = {0};
    struct errmsg ignored = {0};
    if (mount_share(target, &again, &ignored) == OK) {
        (void)nfs_unlink(again.nfs, share->name);
    }
    if (again.url != NULL) {
        nfs_destroy_url(again.url);
    }
    if (again.nfs != NULL) {
        nfs_destroy_context(again.nfs);
    }
}

static void share_close(struct bench_target *target) {
    struct share *share = target->own;
    if (share == NULL) {
        return;
    }
    if (share->nfs != NULL) {
        nfs_set_timeout(share->nfs, 5000);
    }
    if (share->file != NULL && target->why.code == 0) {
        (void)nfs_close(share->nfs, share->file);
    }
    if (share->is_made) {
        remove_file(target, share);
    }
    if (share->url != NULL) {
        nfs_destroy_url(share->url);
    }
    if (share->nfs != NULL) {
        nfs_destroy_context(share->nfs);
    }
    mem_free(share);
}

const struct bench_target_ops bench_nfs_ops = {.kind = "nfs",
                                               .open = share_open,
                                               .join = share_join,
                                               .submit = share_submit,
                                               .service = share_service,
                                               .flush = share_flush,
                                               .close = share_close};
