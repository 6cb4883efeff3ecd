// SPDX-License-Identifier: MPL-2.0
/* Sessions that are logged in and do nothing much, with libiscsi.
 *
 *   iscsi-sessions hold URL COUNT     logs COUNT sessions in, prints "N logged in", and answers the
 *                                     target's pings until its standard input ends or one is lost
 *   iscsi-sessions grow URL COMMAND   logs in, runs COMMAND (with the shell), and tells what the
 *                                     session notices of it, a line each: the capacity before, the
 *                                     unit attention, the one after it, the capacity now */
#include <errno.h>
#include <inttypes.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SESSIONS_MAX = 256, TIMEOUT_S = 30 };

struct session {
    struct iscsi_context *iscsi;
    struct iscsi_url *url;
};

static int log_in(struct session *session, const char *text, int index) {
    char name[64];
    (void)snprintf(name, sizeof(name), "iqn.2026-01.org.holdfast.test:session-%d", index);
    session->iscsi = iscsi_create_context(name);
    session->url = session->iscsi != NULL ? iscsi_parse_full_url(session->iscsi, text) : NULL;
    if (session->url == NULL) {
        (void)fprintf(stderr, "%s: not a URL of a LUN\n", text);
        return 1;
    }
    (void)iscsi_set_targetname(session->iscsi, session->url->target);
    (void)iscsi_set_session_type(session->iscsi, ISCSI_SESSION_NORMAL);
    (void)iscsi_set_timeout(session->iscsi, TIMEOUT_S);
    iscsi_set_noautoreconnect(session->iscsi, 1);
    if (iscsi_full_connect_sync(session->iscsi, session->url->portal, session->url->lun) != 0) {
        (void)fprintf(stderr, "session %d: %s\n", index, iscsi_get_error(session->iscsi));
        return 1;
    }
    return 0;
}

/* 0: standard input has ended; 1: a session was lost. */
static int serve_all(struct session *sessions, int count) {
    struct pollfd fds[SESSIONS_MAX + 1];
    for (;;) {
        for (int i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = iscsi_get_fd(sessions[i].iscsi),
                                     .events = (short)iscsi_which_events(sessions[i].iscsi)};
        }
        fds[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(fds, (nfds_t)count + 1, -1) < 0 && errno != EINTR) {
            return 1;
        }
        for (int i = 0; i < count; i++) {
            if (fds[i].revents != 0 && iscsi_service(sessions[i].iscsi, fds[i].revents) != 0) {
                (void)fprintf(stderr, "session %d: %s\n", i, iscsi_get_error(sessions[i].iscsi));
                return 1;
            }
        }
        char byte;
        if (fds[count].revents != 0 && read(STDIN_FILENO, &byte, 1) <= 0) {
            return 0;
        }
    }
}

static int hold(const char *url, int count) {
    static struct session sessions[SESSIONS_MAX];
    if (count < 1 || count > SESSIONS_MAX) {
        (void)fprintf(stderr, "between 1 and %d sessions\n", SESSIONS_MAX);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        if (log_in(&sessions[i], url, i) != 0) {
            return 1;
        }
    }
    (void)printf("%d logged in\n", count);
    (void)fflush(stdout);
    return serve_all(sessions, count);
}

/* TEST UNIT READY: prints "good" or key, code and qualifier. */
static void tell_state(struct session *session) {
    struct scsi_task *task = iscsi_testunitready_sync(session->iscsi, session->url->lun);
    if (task == NULL) {
        (void)printf("no answer: %s\n", iscsi_get_error(session->iscsi));
    } else if (task->status == SCSI_STATUS_GOOD) {
        (void)printf("good\n");
    } else {
        (void)printf("sense %x %04x\n", (unsigned)task->sense.key, (unsigned)task->sense.ascq);
    }
    scsi_free_scsi_task(task);
}

static void tell_capacity(struct session *session) {
    struct scsi_task *task = iscsi_readcapacity16_sync(session->iscsi, session->url->lun);
    struct scsi_readcapacity16 *capacity =
        task != NULL && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
    if (capacity != NULL) {
        (void)printf("capacity %" PRIu64 "\n",
                     (capacity->returned_lba + 1) * capacity->block_length);
    } else {
        (void)printf("no capacity: %s\n", iscsi_get_error(session->iscsi));
    }
    scsi_free_scsi_task(task);
}

static int grow(const char *url, const char *command) {
    struct session session;
    if (log_in(&session, url, 0) != 0) {
        return 1;
    }
    tell_capacity(&session);
    (void)fflush(stdout);
    if (system(command) != 0) {
        (void)fprintf(stderr, "%s: failed\n", command);
        return 1;
    }
    tell_state(&session);
    tell_state(&session);
    tell_capacity(&session);
    (void)iscsi_logout_sync(session.iscsi);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "hold") == 0) {
        return hold(argv[2], atoi(argv[3]));
    }
    if (argc == 4 && strcmp(argv[1], "grow") == 0) {
        return grow(argv[2], argv[3]);
    }
    (void)fprintf(stderr, "usage: iscsi-sessions hold URL COUNT | grow URL COMMAND\n");
    return 2;
}
