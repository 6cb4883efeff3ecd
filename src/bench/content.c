// SPDX-License-Identifier: MPL-2.0
/* The two ends of a target are put into a file in memory of the target's size, with nothing
 * between, and that is looked at as pool_host_content() looks at disks. */
#include "bench/content.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "pool/host.h"

enum { STEP_BYTES = 128 << 10 }; /* more than some targets take at once is not asked for */

static int put(int fd, const uint8_t *data, uint64_t bytes, uint64_t offset) {
    for (uint64_t at = 0; at < bytes;) {
        ssize_t done = pwrite(fd, data + at, bytes - at, (off_t)(offset + at));
        if (done <= 0) {
            return done == 0 ? ERR_IO : error_from_errno(errno);
        }
        at += (uint64_t)done;
    }
    return OK;
}

int bench_content_name(const uint8_t *front, uint64_t front_bytes, const uint8_t *back,
                       uint64_t back_bytes, uint64_t size_bytes, char *ret_text, size_t room,
                       struct errmsg *reterr) {
    char path[64];
    int fd = memfd_create("holdfast-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size_bytes) != 0) {
        int error = errmsg_set(reterr, error_from_errno(errno),
                               "what it holds cannot be looked at: %s", strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return error;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int error = put(fd, front, front_bytes, 0);
    if (error == OK) {
        error = put(fd, back, back_bytes, size_bytes - back_bytes);
    }
    error = error == OK ? pool_host_content(path, ret_text, room, reterr)
                        : errmsg_set(reterr, error, "what it holds cannot be looked at: %s",
                                     error_text(error));
    (void)close(fd);
    return error;
}

static int read_range(struct bench_target *target, uint64_t offset, uint8_t *data, uint64_t bytes,
                      struct errmsg *reterr) {
    int error = OK;
    for (uint64_t at = 0; error == OK && at < bytes; at += STEP_BYTES) {
        error = bench_target_transfer(target, false, offset + at, data + at,
                                      (uint32_t)MIN(bytes - at, (uint64_t)STEP_BYTES), reterr);
    }
    return error;
}

static bool is_zero(const uint8_t *data, uint64_t bytes) {
    return bytes == 0 || (data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0);
}

static int judge(struct bench_target *target, const uint8_t *front, uint64_t front_bytes,
                 const uint8_t *back, uint64_t back_bytes, struct errmsg *reterr) {
    char text[256] = "";
    int error = bench_content_name(front, front_bytes, back, back_bytes, target->size_bytes, text,
                                   sizeof(text), reterr);
    if (error != OK) {
        (void)errmsg_prefix(reterr, "%s: ", target->address);
        return error;
    }
    if (text[0] == '\0' && target->is_file &&
        !(is_zero(front, front_bytes) && is_zero(back, back_bytes))) {
        (void)snprintf(text, sizeof(text), "data");
    }
    return text[0] == '\0' ? OK
                           : errmsg_set(reterr, ERR_EXISTS,
                                        "%s holds %s; --destroy-data would overwrite it, "
                                        "--read-only measures reads alone",
                                        target->address, text);
}

int bench_content_refuse(struct bench_target *target, struct errmsg *reterr) {
    if (target->is_own_file) {
        return OK;
    }
    uint64_t front_bytes = MIN((uint64_t)CONTENT_FRONT_BYTES, target->size_bytes);
    uint64_t back_bytes = MIN((uint64_t)CONTENT_BACK_BYTES, target->size_bytes);
    struct mem_pages *pages = mem_pages_new(CONTENT_FRONT_BYTES + CONTENT_BACK_BYTES);
    uint8_t *front = pages->data, *back = front + CONTENT_FRONT_BYTES;
    int error = read_range(target, 0, front, front_bytes, reterr);
    if (error == OK) {
        error = read_range(target, target->size_bytes - back_bytes, back, back_bytes, reterr);
    }
    if (error == OK) {
        error = judge(target, front, front_bytes, back, back_bytes, reterr);
    }
    if (target->in_flight == 0) {
        mem_pages_free(pages); /* or else it is still read into */
    }
    return error;
}
