// SPDX-License-Identifier: MPL-2.0
/* Small records that belong to this node: one file each in the state directory. A write goes to a
 * file aside (its name has a character that no record's has), which is synced and renamed over the
 * old one, and then the directory is synced: after a power cut the record is the old or the new
 * one, whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/linux/internal.h"

enum { STATE_PATH_MAX = 400 };

static int state_error(int errnum) {
    int error = error_from_errno(errnum);
    return errnum == ENOTDIR ? ERR_INVALID : error;
}

int linux_state_read(struct env *env, const char *name, void *ret_bytes, size_t bytes,
                     size_t *ret_length) {
    char path[STATE_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", linux_env_of(env)->state_dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return state_error(errno);
    }
    size_t length = 0;
    int error = OK;
    while (length < bytes) {
        ssize_t got = read(fd, (uint8_t *)ret_bytes + length, bytes - length);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            error = got < 0 ? state_error(errno) : OK;
            break;
        }
        length += (size_t)got;
    }
    (void)close(fd);
    if (error == OK) {
        *ret_length = length;
    }
    return error;
}

static int write_all(int fd, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        ssize_t put = write(fd, bytes, length);
        if (put < 0 && errno != EINTR) {
            return state_error(errno);
        }
        if (put > 0) {
            bytes += put;
            length -= (size_t)put;
        }
    }
    return fdatasync(fd) == 0 ? OK : state_error(errno);
}

static int write_aside(const char *aside, const void *bytes, size_t length) {
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return state_error(errno);
    }
    int error = write_all(fd, bytes, length);
    if (close(fd) != 0 && error == OK) {
        error = state_error(errno);
    }
    return error;
}

static int sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return state_error(errno);
    }
    int error = fsync(fd) == 0 ? OK : state_error(errno);
    (void)close(fd);
    return error;
}

int linux_state_write(struct env *env, const char *name, const void *bytes, size_t length) {
    const char *dir = linux_env_of(env)->state_dir;
    char path[STATE_PATH_MAX], aside[STATE_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)snprintf(aside, sizeof(aside), "%s/%s~%ld", dir, name, (long)gettid());
    if (mkdir(dir, 0750) != 0 && errno != EEXIST) {
        return state_error(errno);
    }
    int error = write_aside(aside, bytes, length);
    if (error == OK && rename(aside, path) != 0) {
        error = state_error(errno);
    }
    if (error != OK) {
        (void)unlink(aside);
        return error;
    }
    return sync_directory(dir);
}
