// SPDX-License-Identifier: MPL-2.0
#include "control/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "control/answer.h"
#include "control/api.h"

enum { CONNECTIONS_MAX = 64, IDLE_S = 30, BACKLOG = 64 };

struct rest {
    struct serve *serve;
    struct MHD_Daemon *daemon;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int lock_fd;
    int listen_fd; /* until the daemon has it */
};

/* A request whose body is being collected. */
struct exchange {
    size_t used;
    bool too_large;
    char *body; /* ROUTE_BODY_MAX */
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, json_t *object) {
    char *text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (text == NULL) {
        return MHD_NO;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", "application/json");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result count_argument(void *owner, enum MHD_ValueKind kind, const char *key,
                                      const char *value) {
    (void)kind;
    (void)key;
    (void)value;
    ++*(unsigned *)owner;
    return MHD_YES;
}

static enum MHD_Result handle(struct rest *rest, struct MHD_Connection *connection,
                              const char *method, const char *url,
                              const struct exchange *exchange) {
    struct errmsg why = {0};
    json_t *object = NULL;
    unsigned status = 0, arguments = 0;
    int error = OK;
    (void)MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, count_argument, &arguments);
    if (arguments > 0) {
        error = errmsg_set(&why, ERR_INVALID, "the API takes no arguments after a '?'");
    } else if (exchange->too_large) {
        error = errmsg_set(&why, ERR_LIMIT, "the body is larger than %d bytes", ROUTE_BODY_MAX);
    } else {
        error = api_answer(rest->serve, method, url, exchange->body, exchange->used, &status,
                           &object, &why);
    }
    if (error != OK) {
        status = answer_status(error);
        object = answer_error(error, &why);
    }
    return answer(connection, status, object);
}

/* libmicrohttpd calls this once with the head, then with each piece of the body, then to have the
 * answer. */
static enum MHD_Result arrived(void *owner, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_size, void **state) {
    struct exchange *exchange = *state;
    (void)version;
    if (exchange == NULL) {
        exchange = MEM_NEW(struct exchange);
        exchange->body = mem_alloc(ROUTE_BODY_MAX);
        *state = exchange;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        if (*upload_size > ROUTE_BODY_MAX - exchange->used) {
            exchange->too_large = true; /* read on and drop it: the answer says why */
        } else {
            memcpy(exchange->body + exchange->used, upload, *upload_size);
            exchange->used += *upload_size;
        }
        *upload_size = 0;
        return MHD_YES;
    }
    return handle(owner, connection, method, url, exchange);
}

static void ended(void *owner, struct MHD_Connection *connection, void **state,
                  enum MHD_RequestTerminationCode code) {
    struct exchange *exchange = *state;
    (void)owner;
    (void)connection;
    (void)code;
    if (exchange != NULL) {
        mem_free(exchange->body);
        mem_free(exchange);
        *state = NULL;
    }
}

static int refuse_socket(struct errmsg *reterr, const char *path, const char *what) {
    int error = error_from_errno(errno);
    return errmsg_set(reterr, error, "cannot %s %s: %s", what, path, strerror(errno));
}

static int make_folder(const char *path, struct errmsg *reterr) {
    char folder[256];
    (void)snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) {
        return OK;
    }
    *slash = '\0';
    if (mkdir(folder, 0755) == 0 || errno == EEXIST) {
        return OK;
    }
    int error = error_from_errno(errno);
    return errmsg_set(reterr, error,
                      "cannot make the folder %s for the socket: %s; run as root, or choose "
                      "another --socket",
                      folder, strerror(errno));
}

/* A lock beside the socket decides who serves it; it goes with the process, so that a socket left
 * behind by a crash is taken over and one in use never is. */
static int take_lock(struct rest *rest, const char *path, struct errmsg *reterr) {
    char lock[sizeof(rest->path) + 8];
    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    int error = make_folder(path, reterr);
    if (error != OK) {
        return error;
    }
    rest->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (rest->lock_fd < 0) {
        return refuse_socket(reterr, lock, "open");
    }
    if (flock(rest->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errmsg_set(reterr, ERR_BUSY,
                          "another holdfast serves %s; stop it, or choose another --socket", path);
    }
    return OK;
}

static int listen_on(struct rest *rest, const char *path, int *ret_fd, struct errmsg *reterr) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "the socket's path is longer than %zu characters: %s",
                          sizeof(address.sun_path) - 1, path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int error = take_lock(rest, path, reterr);
    if (error != OK) {
        return error;
    }
    struct stat st;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode)) {
            return errmsg_set(reterr, ERR_EXISTS,
                              "%s exists and is not a socket; choose another "
                              "--socket",
                              path);
        }
        (void)unlink(path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0177);
    int bound = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof(address));
    int saved = errno;
    (void)umask(mask);
    errno = saved;
    if (bound != 0 || listen(fd, BACKLOG) != 0) {
        error = refuse_socket(reterr, path, "listen on");
        if (fd >= 0) {
            close(fd);
        }
        return error;
    }
    memcpy(rest->path, path, strlen(path) + 1);
    *ret_fd = fd;
    return OK;
}

int rest_open(const char *socket, struct rest **ret_rest, struct errmsg *reterr) {
    struct rest *rest = MEM_NEW(struct rest);
    rest->lock_fd = rest->listen_fd = -1;
    int error = listen_on(rest, socket, &rest->listen_fd, reterr);
    if (error != OK) {
        rest_stop(rest);
        return error;
    }
    *ret_rest = rest;
    return OK;
}

int rest_start(struct rest *rest, struct serve *serve, struct errmsg *reterr) {
    rest->serve = serve;
    rest->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, arrived, rest, MHD_OPTION_LISTEN_SOCKET, rest->listen_fd,
        MHD_OPTION_NOTIFY_COMPLETED, ended, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_END);
    if (rest->daemon == NULL) {
        return errmsg_set(reterr, ERR_IO, "cannot start the API's HTTP server on %s", rest->path);
    }
    rest->listen_fd = -1; /* the daemon's */
    return OK;
}

void rest_quiesce(struct rest *rest) {
    if (rest->path[0] != '\0') {
        (void)unlink(rest->path);
        rest->path[0] = '\0';
    }
    MHD_socket fd = MHD_quiesce_daemon(rest->daemon);
    if (fd != MHD_INVALID_SOCKET) {
        close(fd);
    }
}

void rest_stop(struct rest *rest) {
    if (rest == NULL) {
        return;
    }
    if (rest->daemon != NULL) {
        MHD_stop_daemon(rest->daemon);
    }
    if (rest->listen_fd >= 0) {
        close(rest->listen_fd);
    }
    if (rest->path[0] != '\0') {
        (void)unlink(rest->path);
    }
    if (rest->lock_fd >= 0) {
        close(rest->lock_fd);
    }
    mem_free(rest);
}
