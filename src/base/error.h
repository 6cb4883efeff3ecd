// SPDX-License-Identifier: MPL-2.0
/* One vocabulary of errors.
 *
 * Every function that can fail returns 0 or a negative code from the list below, and is
 * HF_MUST_CHECK. Each code has a parent errno (for callers that speak POSIX) and one line of text.
 * SCSI sense, HTTP status and exit codes are derived from these codes by one table each, at the
 * edge. Where a person will read the failure, the function also fills a `struct errmsg`: what
 * happened, to which object, and what to do next.
 */
#ifndef HOLDFAST_BASE_ERROR_H
#define HOLDFAST_BASE_ERROR_H

#define HF_MUST_CHECK __attribute__((warn_unused_result))
#define HF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/*        name          errno         text */
#define HF_ERRORS(X)                                                                               \
    X(IO, EIO, "input/output error")                                                               \
    X(CHECKSUM, EBADMSG, "checksum mismatch")                                                      \
    X(NO_SPACE, ENOSPC, "no space left in the pool")                                               \
    X(NO_MEMORY, ENOMEM, "out of memory")                                                          \
    X(INVALID, EINVAL, "invalid argument")                                                         \
    X(RANGE, ERANGE, "outside the allowed range")                                                  \
    X(NOT_FOUND, ENOENT, "not found")                                                              \
    X(EXISTS, EEXIST, "already exists")                                                            \
    X(BUSY, EBUSY, "in use")                                                                       \
    X(TIMEOUT, ETIMEDOUT, "deadline passed")                                                       \
    X(DISK_GONE, ENODEV, "disk is gone")                                                           \
    X(STALE, ESTALE, "older than the rest of the pool")                                            \
    X(FOREIGN, EMEDIUMTYPE, "belongs to something else")                                           \
    X(CORRUPT, EUCLEAN, "malformed content")                                                       \
    X(UNSUPPORTED, EOPNOTSUPP, "not supported")                                                    \
    X(QUORUM, ENOLCK, "not enough of the pool is present")                                         \
    X(DATA_LOSS, ENODATA, "data is lost beyond redundancy")                                        \
    X(CANCELLED, ECANCELED, "cancelled")                                                           \
    X(MISCOMPARE, EILSEQ, "content differs from what was expected")                                \
    X(SHUTDOWN, ESHUTDOWN, "shutting down")                                                        \
    X(READ_ONLY, EROFS, "read-only")                                                               \
    X(LIMIT, E2BIG, "a limit was reached")                                                         \
    X(AGAIN, EAGAIN, "try again")                                                                  \
    X(PERMISSION, EACCES, "permission denied")                                                     \
    X(PROTOCOL, EPROTO, "the peer broke the protocol")                                             \
    X(CLOSED, EPIPE, "connection closed")

enum error_index {
    ERROR_INDEX_OK = 0,
#define X(name, parent, text) ERROR_INDEX_##name,
    HF_ERRORS(X)
#undef X
        ERROR_INDEX_COUNT
};

enum {
    OK = 0,
#define X(name, parent, text) ERR_##name = -ERROR_INDEX_##name,
    HF_ERRORS(X)
#undef X
};

/* The symbolic name ("NO_SPACE"), the one-line text, and the parent errno (positive) of a code.
 * Any int is accepted; an unknown code has name "UNKNOWN" and errno EIO. Any thread. */
const char *error_name(int code);
const char *error_text(int code);
int error_errno(int code);

/* The nearest code for an errno (positive or negative): ERR_IO when nothing is nearer. */
int error_from_errno(int errnum);

/* A failure as a person reads it. Owned by the caller, plain data, no destructor. */
struct errmsg {
    int code;
    char text[512];
};

/* Fills `e` (NULL is allowed) and returns `code`, so that `return errmsg_set(e, ERR_…, "…")` works.
 * The first message set wins: an outer layer may add context with errmsg_prefix(). */
int errmsg_set(struct errmsg *e, int code, const char *fmt, ...) HF_PRINTF(3, 4);
int errmsg_prefix(struct errmsg *e, const char *fmt, ...) HF_PRINTF(2, 3);

#endif
