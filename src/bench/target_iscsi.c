// SPDX-License-Identifier: MPL-2.0
/* LUNs, through libiscsi: one session a path, commands go to them in turn.
 *
 * A connection that is lost is not made again: what is measured is gone, and has to be said.
 * Statuses that only ask for patience (unit attention, busy, task set full) are answered by sending
 * the command again, within its latency.
 *
 * Built so that <iscsi/…> is libiscsi's and not this tree's (meson.build). */
#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/clock.h"
#include "bench/kinds.h"

enum { RETRIES_MAX = 10000 };

struct session {
    struct iscsi_context *iscsi;
    struct iscsi_url *url;
    char portal[MAX_STRING_SIZE + 1]; /* the url goes before the last commands end */
    bool is_connected;                /* logged in, and the LUN answered */
    int status;                       /* of the login; -1: under way */
    char why[256]; /* the words of the library when it failed; later ones say less */
};

struct lun {
    uint32_t count, next;
    struct session sessions[TARGET_PATHS_MAX + 1];
    uint32_t waiting_count; /* to be sent again */
    struct bench_io *waiting[TARGET_DEPTH_MAX];
};

/* What an I/O keeps in bench_io.own. */
struct own {
    struct scsi_iovec iov; /* the library keeps a pointer to it */
    uint32_t session, retries;
};
_Static_assert(sizeof(struct own) <= sizeof(((struct bench_io *)NULL)->own), "own");

static struct own *own_of(struct bench_io *io) {
    return (struct own *)(void *)io->own;
}

/* ---- logging in ---- */

static void keep_words(struct session *session) {
    if (session->why[0] == '\0') {
        (void)snprintf(session->why, sizeof(session->why), "%s", iscsi_get_error(session->iscsi));
    }
}

static void connected(struct iscsi_context *iscsi, int status, void *data, void *private_data) {
    (void)iscsi;
    (void)data;
    struct session *session = private_data;
    session->status = status;
    if (status != SCSI_STATUS_GOOD) {
        keep_words(session);
    }
}

/* Turns the wheel until `session` has logged in or `deadline` passes. */
static void wait_for_login(struct session *session, uint64_t deadline) {
    while (session->status < 0 && bench_now_ns() < deadline) {
        struct pollfd fd = {.fd = iscsi_get_fd(session->iscsi),
                            .events = (short)iscsi_which_events(session->iscsi)};
        if (fd.fd < 0 || (poll(&fd, 1, 100) < 0 && errno != EINTR) ||
            iscsi_service(session->iscsi, fd.revents) != 0) {
            keep_words(session);
            session->status = session->status < 0 ? SCSI_STATUS_ERROR : session->status;
        }
    }
}

/* The library's words, without line ends and the stop at the end. */
static int refuse(struct session *session, int error, const char *what, struct errmsg *reterr) {
    keep_words(session);
    char *text = session->why;
    for (char *c = text; *c != '\0'; c++) {
        *c = *c < ' ' || *c > '~' ? ' ' : *c;
    }
    for (size_t end = strlen(text); end > 0 && strchr(" .", text[end - 1]) != NULL; end--) {
        text[end - 1] = '\0';
    }
    return errmsg_set(reterr, error, "%s%s%s", what, text[0] != '\0' ? ": " : "", text);
}

/* The library says it in words only. */
static int login_failed(struct session *session, struct errmsg *reterr) {
    static const struct {
        const char *text;
        int error;
        const char *what;
    } known[] = {{"uthentication", ERR_PERMISSION, "the login was refused"},
                 {"uthorization", ERR_PERMISSION, "the login was refused"},
                 {"CHAP", ERR_PERMISSION, "the login was refused"},
                 {"Target not found", ERR_NOT_FOUND, "there is no such target"},
                 {"LOGICAL_UNIT", ERR_NOT_FOUND, "there is no such LUN"},
                 {"resolv", ERR_NOT_FOUND, "there is no such host"},
                 {"socket", ERR_NOT_FOUND, "nothing answers there"}};
    if (session->status < 0) {
        return errmsg_set(reterr, ERR_TIMEOUT,
                          "does not answer within %d s as an iSCSI target does", TARGET_CONNECT_S);
    }
    keep_words(session);
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (strstr(session->why, known[i].text) != NULL) {
            return refuse(session, known[i].error, known[i].what, reterr);
        }
    }
    if (strstr(session->why, "reconnect") != NULL) {
        return errmsg_set(reterr, ERR_PROTOCOL, "what answers there is no iSCSI target");
    }
    return refuse(session, ERR_CLOSED, "cannot be logged in to", reterr);
}

static int log_in(const struct bench_target_options *options, struct session *session,
                  const char *address, struct errmsg *reterr) {
    static atomic_uint made; /* each session is a path of its own, so each needs its own ISID */
    session->iscsi = iscsi_create_context(
        options->initiator != NULL ? options->initiator : "iqn.2026-01.local.holdfast:bench");
    session->url = session->iscsi != NULL ? iscsi_parse_full_url(session->iscsi, address) : NULL;
    if (session->url == NULL) {
        return errmsg_set(reterr, ERR_INVALID,
                          "is not written iscsi://[user[%%secret]@]host[:port]/target-name/lun");
    }
    (void)snprintf(session->portal, sizeof(session->portal), "%s", session->url->portal);
    if (options->secret != NULL) { /* the user is in the address; the library wants both there */
        char user[MAX_STRING_SIZE + 1];
        const char *from = address + strlen("iscsi://");
        (void)snprintf(user, sizeof(user), "%.*s", (int)strcspn(from, "%@/"), from);
        if (strchr(from, '@') == NULL || user[0] == '\0') {
            return errmsg_set(reterr, ERR_INVALID,
                              "names no user for the secret: iscsi://user@host…");
        }
        (void)iscsi_set_initiator_username_pwd(session->iscsi, user, options->secret);
    }
    (void)iscsi_set_targetname(session->iscsi, session->url->target);
    (void)iscsi_set_session_type(session->iscsi, ISCSI_SESSION_NORMAL);
    (void)iscsi_set_header_digest(session->iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
    (void)iscsi_set_isid_random(session->iscsi, (uint32_t)getpid() & 0xffffff,
                                atomic_fetch_add(&made, 1) & 0xffff);
    iscsi_set_noautoreconnect(session->iscsi, 1);
    (void)iscsi_set_timeout(session->iscsi, TARGET_CONNECT_S);
    session->status = -1;
    if (iscsi_full_connect_async(session->iscsi, session->url->portal, session->url->lun, connected,
                                 session) != 0) {
        session->status = SCSI_STATUS_ERROR;
    }
    wait_for_login(session, bench_now_ns() + (uint64_t)TARGET_CONNECT_S * NS_PER_S);
    if (session->status != SCSI_STATUS_GOOD) {
        return login_failed(session, reterr);
    }
    session->is_connected = true;
    return OK;
}

/* ---- what it is ---- */

static void *answer_of(struct scsi_task *task) {
    return task != NULL && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
}

static void trim(char *text) {
    for (size_t end = strlen(text); end > 0 && text[end - 1] == ' '; end--) {
        text[end - 1] = '\0';
    }
}

static int read_identity(struct session *session, struct bench_target *target,
                         struct errmsg *reterr) {
    struct scsi_task *task = iscsi_inquiry_sync(session->iscsi, session->url->lun, 0, 0, 96);
    const struct scsi_inquiry_standard *inquiry = answer_of(task);
    int error = OK;
    if (inquiry == NULL) {
        error = refuse(session, ERR_PROTOCOL, "does not say what it is (INQUIRY)", reterr);
    } else if (inquiry->device_type != SCSI_INQUIRY_PERIPHERAL_DEVICE_TYPE_DIRECT_ACCESS) {
        error = errmsg_set(reterr, ERR_UNSUPPORTED, "is not a disk but a SCSI device of type %d",
                           (int)inquiry->device_type);
    } else {
        char vendor[16], product[32];
        (void)snprintf(vendor, sizeof(vendor), "%s", inquiry->vendor_identification);
        (void)snprintf(product, sizeof(product), "%s", inquiry->product_identification);
        trim(vendor);
        trim(product);
        (void)snprintf(target->name, sizeof(target->name), "%s%s%s", vendor,
                       vendor[0] != '\0' ? " " : "", product);
    }
    if (task != NULL) {
        scsi_free_scsi_task(task);
    }
    return error;
}

static int read_capacity(struct session *session, uint64_t *ret_bytes, uint32_t *ret_block,
                         struct errmsg *reterr) {
    struct scsi_task *task = iscsi_readcapacity16_sync(session->iscsi, session->url->lun);
    const struct scsi_readcapacity16 *capacity = answer_of(task);
    int error = OK;
    if (capacity == NULL || capacity->block_length == 0 ||
        capacity->returned_lba >= UINT64_MAX / capacity->block_length) {
        error =
            refuse(session, ERR_PROTOCOL, "does not say how large it is (READ CAPACITY)", reterr);
    } else {
        *ret_block = capacity->block_length;
        *ret_bytes = (capacity->returned_lba + 1) * capacity->block_length;
    }
    if (task != NULL) {
        scsi_free_scsi_task(task);
    }
    return error;
}

/* The unit's serial number; empty when it has none. */
static void read_serial(struct session *session, char *ret_text, size_t room) {
    struct scsi_task *task = iscsi_inquiry_sync(session->iscsi, session->url->lun, 1,
                                                SCSI_INQUIRY_PAGECODE_UNIT_SERIAL_NUMBER, 252);
    const struct scsi_inquiry_unit_serial_number *serial = answer_of(task);
    (void)snprintf(ret_text, room, "%s", serial != NULL && serial->usn != NULL ? serial->usn : "");
    if (task != NULL) {
        scsi_free_scsi_task(task);
    }
}

/* Another path must lead to the same LUN: it is going to be overwritten. */
static int add_path(struct bench_target *target, struct session *session, const char *address,
                    const char *serial, struct errmsg *reterr) {
    char plain[300], other[256];
    uint64_t size = 0;
    uint32_t block = 0;
    bench_address_plain(address, plain, sizeof(plain));
    int error = log_in(target->options, session, address, reterr);
    if (error == OK) {
        error = read_capacity(session, &size, &block, reterr);
    }
    if (error == OK) {
        read_serial(session, other, sizeof(other));
    }
    if (error == OK && (size != target->size_bytes || block != target->block_bytes ||
                        strcmp(serial, other) != 0)) {
        error = errmsg_set(reterr, ERR_INVALID, "it leads to another LUN");
    }
    if (error != OK) {
        (void)errmsg_prefix(reterr, "the path %s: ", plain);
    }
    return error;
}

static int lun_open(struct bench_target *target, struct errmsg *reterr) {
    const struct bench_target_options *options = target->options;
    struct lun *lun = target->own = MEM_NEW(struct lun);
    char serial[256];
    lun->count = 1;
    int error = log_in(options, &lun->sessions[0], options->address, reterr);
    if (error == OK) {
        error = read_identity(&lun->sessions[0], target, reterr);
    }
    if (error == OK) {
        error = read_capacity(&lun->sessions[0], &target->size_bytes, &target->block_bytes, reterr);
    }
    if (error == OK) {
        read_serial(&lun->sessions[0], serial, sizeof(serial));
    }
    for (uint32_t i = 0; error == OK && i < options->path_count; i++) {
        lun->count++;
        error = add_path(target, &lun->sessions[i + 1], options->paths[i], serial, reterr);
    }
    for (uint32_t i = 0; error == OK && i < lun->count; i++) {
        (void)iscsi_set_timeout(lun->sessions[i].iscsi, TARGET_COMMAND_S);
    }
    return error;
}

static int lun_join(struct bench_target *target, struct bench_target *first,
                    struct errmsg *reterr) {
    (void)first;
    return lun_open(target, reterr);
}

/* ---- I/O ---- */

static int send(struct bench_target *target, struct bench_io *io);

/* What a target says that people should hear in other words (SPC-4 Annex D). */
static int sense_failed(struct bench_target *target, const char *what,
                        const struct scsi_sense *sense) {
    static const struct {
        int ascq, error;
        const char *text;
    } known[] = {{0x2500, ERR_DISK_GONE, "the LUN is not there any more"},
                 {0x2700, ERR_READ_ONLY, "the LUN is write-protected"},
                 {0x2707, ERR_NO_SPACE, "the target has no space left for this LUN"}};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (sense->ascq == known[i].ascq) {
            return bench_target_fail(target, known[i].error, "%s", known[i].text);
        }
    }
    const char *more = scsi_sense_ascq_str(sense->ascq);
    return bench_target_fail(target, ERR_IO, "a %s failed: %s, %s (%04x)", what,
                             scsi_sense_key_str((int)sense->key), more != NULL ? more : "code",
                             (unsigned)sense->ascq);
}

static int failed(struct bench_io *io, struct session *session, int status,
                  const struct scsi_task *task) {
    struct bench_target *target = io->target;
    const char *what = io->is_write ? "write" : "read";
    switch (status) {
    case SCSI_STATUS_CHECK_CONDITION:
        return sense_failed(target, what, &task->sense);
    case SCSI_STATUS_TIMEOUT:
        return bench_target_fail(target, ERR_TIMEOUT, "a %s was not answered within %d s", what,
                                 TARGET_COMMAND_S);
    case SCSI_STATUS_RESERVATION_CONFLICT:
        return bench_target_fail(target, ERR_BUSY, "the LUN is reserved by another initiator");
    case SCSI_STATUS_CANCELLED:
    case SCSI_STATUS_ERROR:
        return bench_target_fail(target, ERR_CLOSED, "the connection to %s was lost",
                                 session->portal);
    default:
        return bench_target_fail(target, ERR_IO, "a %s failed with SCSI status %#x", what,
                                 (unsigned)status);
    }
}

static void finished(struct iscsi_context *iscsi, int status, void *data, void *private_data) {
    struct scsi_task *task = data;
    struct bench_io *io = private_data;
    struct bench_target *target = io->target;
    struct lun *lun = target->own;
    struct session *session = &lun->sessions[own_of(io)->session];
    (void)iscsi;
    bool again =
        status == SCSI_STATUS_BUSY || status == SCSI_STATUS_TASK_SET_FULL ||
        (status == SCSI_STATUS_CHECK_CONDITION && task->sense.key == SCSI_SENSE_UNIT_ATTENTION);
    int error = OK;
    if (again && own_of(io)->retries++ < RETRIES_MAX && target->why.code == 0) {
        scsi_free_scsi_task(task);
        lun->waiting[lun->waiting_count++] = io;
        return;
    }
    if (status != SCSI_STATUS_GOOD) {
        error = failed(io, session, status, task);
    } else if (!io->is_write && task->residual_status == SCSI_RESIDUAL_UNDERFLOW &&
               task->residual > 0) {
        error = bench_target_fail(target, ERR_IO, "a read came back short");
    }
    if (task != NULL) {
        scsi_free_scsi_task(task);
    }
    bench_target_done(io, error);
}

static int send(struct bench_target *target, struct bench_io *io) {
    struct lun *lun = target->own;
    struct own *own = own_of(io);
    struct session *session = &lun->sessions[own->session];
    uint64_t lba = io->offset / target->block_bytes;
    int block = (int)target->block_bytes, unit = session->url->lun;
    own->iov = (struct scsi_iovec){io->data, io->length};
    struct scsi_task *task =
        io->is_write ? iscsi_write16_iov_task(session->iscsi, unit, lba, NULL, io->length, block, 0,
                                              0, 0, 0, 0, finished, io, &own->iov, 1)
                     : iscsi_read16_iov_task(session->iscsi, unit, lba, io->length, block, 0, 0, 0,
                                             0, 0, finished, io, &own->iov, 1);
    return task != NULL ? OK
                        : bench_target_fail(target, ERR_CLOSED, "the connection to %s was lost",
                                            session->portal);
}

static int lun_submit(struct bench_target *target, struct bench_io *io) {
    struct lun *lun = target->own;
    own_of(io)->session = lun->next++ % lun->count;
    own_of(io)->retries = 0;
    return send(target, io);
}

static int send_again(struct bench_target *target) {
    struct lun *lun = target->own;
    uint32_t count = lun->waiting_count;
    int error = OK;
    lun->waiting_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        error = error == OK ? send(target, lun->waiting[i]) : error;
        if (error != OK) {
            bench_target_done(lun->waiting[i], error);
        }
    }
    return error;
}

static int lun_service(struct bench_target *target, uint32_t wait_ms) {
    struct lun *lun = target->own;
    struct pollfd fds[TARGET_PATHS_MAX + 1];
    int error = send_again(target);
    for (uint32_t i = 0; i < lun->count; i++) {
        fds[i] = (struct pollfd){.fd = iscsi_get_fd(lun->sessions[i].iscsi),
                                 .events = (short)iscsi_which_events(lun->sessions[i].iscsi)};
        if (fds[i].fd < 0) {
            return bench_target_fail(target, ERR_CLOSED, "the connection to %s was lost",
                                     lun->sessions[i].portal);
        }
    }
    if (error == OK && poll(fds, lun->count, (int)wait_ms) < 0 && errno != EINTR) {
        return bench_target_fail(target, ERR_IO, "poll failed: %s", strerror(errno));
    }
    for (uint32_t i = 0; error == OK && i < lun->count; i++) {
        if (iscsi_service(lun->sessions[i].iscsi, fds[i].revents) != 0) {
            error = bench_target_fail(target, ERR_CLOSED, "the connection to %s was lost",
                                      lun->sessions[i].portal);
        }
    }
    return error == OK ? target->why.code : error;
}

static int lun_flush(struct bench_target *target) {
    struct session *session = &((struct lun *)target->own)->sessions[0];
    for (int tries = 0;; tries++) {
        struct scsi_task *task =
            iscsi_synchronizecache10_sync(session->iscsi, session->url->lun, 0, 0, 0, 0);
        int status = task != NULL ? task->status : SCSI_STATUS_ERROR;
        int key = task != NULL ? (int)task->sense.key : 0;
        if (task != NULL) {
            scsi_free_scsi_task(task);
        }
        if (status == SCSI_STATUS_GOOD || /* targets without a cache need not know the command */
            (status == SCSI_STATUS_CHECK_CONDITION && key == SCSI_SENSE_ILLEGAL_REQUEST)) {
            return OK;
        }
        if (status != SCSI_STATUS_CHECK_CONDITION || key != SCSI_SENSE_UNIT_ATTENTION ||
            tries == 10) {
            return bench_target_fail(target, ERR_IO, "what was written cannot be flushed: %s",
                                     iscsi_get_error(session->iscsi));
        }
    }
}

static void lun_close(struct bench_target *target) {
    struct lun *lun = target->own;
    for (uint32_t i = 0; lun != NULL && i < lun->count; i++) {
        struct session *session = &lun->sessions[i];
        if (session->is_connected && target->why.code == 0) {
            (void)iscsi_set_timeout(session->iscsi, 5);
            (void)iscsi_logout_sync(session->iscsi);
        }
        if (session->url != NULL) {
            iscsi_destroy_url(session->url);
        }
        if (session->iscsi != NULL) {
            (void)iscsi_destroy_context(session->iscsi);
        }
    }
    mem_free(lun);
}

const struct bench_target_ops bench_iscsi_ops = {.kind = "iscsi",
                                                 .open = lun_open,
                                                 .join = lun_join,
                                                 .submit = lun_submit,
                                                 .service = lun_service,
                                                 .flush = lun_flush,
                                                 .close = lun_close};
