// SPDX-License-Identifier: MPL-2.0
/* Listeners. Edge-triggered like the streams: an event starts a task that accepts until nobody is
 * left, a bounded number a turn. Where the process has run out of descriptors there will be no new
 * event for those who wait already, so the task comes back a little later by itself. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "env/linux/net_internal.h"

enum {
    BACKLOG = 128,
    ACCEPTS_A_TURN = 16,
    RETRY_NS = 100 * NS_PER_MS,
    UNIX_MODE = 0660,
};

struct linux_listener {
    struct net_listener base;
    struct epoll_client client;
    struct env_task task;
    struct env_timer retry;
    int fd;
    bool task_is_queued, is_closed;
    bool is_unix;
    dev_t device; /* of the unix socket's name: is it still ours? */
    ino_t inode;
    void (*accepted)(void *owner, struct net_stream *stream);
    void *owner;
};

/* ---- addresses ---- */

static int bad_address(const char *address, struct errmsg *reterr) {
    return errmsg_set(reterr, ERR_INVALID,
                      "%s is no address to listen on: write ADDRESS:PORT, [ADDRESS6]:PORT or the "
                      "path of a unix socket",
                      address);
}

static int parse_unix(const char *address, struct sockaddr_storage *ret_address,
                      socklen_t *ret_length, struct errmsg *reterr) {
    struct sockaddr_un *un = (void *)ret_address;
    un->sun_family = AF_UNIX;
    if ((size_t)snprintf(un->sun_path, sizeof(un->sun_path), "%s", address) >=
        sizeof(un->sun_path)) {
        return errmsg_set(reterr, ERR_INVALID,
                          "%s: the path of a unix socket has at most %zu bytes", address,
                          sizeof(un->sun_path) - 1);
    }
    *ret_length = sizeof(*un);
    return OK;
}

static int parse_inet(const char *address, struct sockaddr_storage *ret_address,
                      socklen_t *ret_length, struct errmsg *reterr) {
    char host[NET_ADDRESS_MAX];
    if ((size_t)snprintf(host, sizeof(host), "%s", address) >= sizeof(host)) {
        return bad_address(address, reterr);
    }
    char *port = strrchr(host, ':'), *name = host;
    if (port == NULL || port[1] < '0' || port[1] > '9') {
        return bad_address(address, reterr);
    }
    *port++ = 0;
    size_t length = strlen(host);
    struct addrinfo hints = {.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = 0;
        name = host + 1;
        hints.ai_family = AF_INET6;
    }
    struct addrinfo *found = NULL;
    if (*name == 0 || getaddrinfo(name, port, &hints, &found) != 0) {
        return bad_address(address, reterr);
    }
    memcpy(ret_address, found->ai_addr, found->ai_addrlen);
    *ret_length = found->ai_addrlen;
    freeaddrinfo(found);
    return OK;
}

/* ---- binding ---- */

static int bind_error(const char *address, int errnum, struct errmsg *reterr) {
    switch (errnum) {
    case EADDRINUSE:
        return errmsg_set(reterr, ERR_BUSY, "cannot listen on %s: the address is in use", address);
    case EACCES:
    case EPERM:
        return errmsg_set(reterr, ERR_PERMISSION, "cannot listen on %s: no permission", address);
    case EADDRNOTAVAIL:
        return errmsg_set(reterr, ERR_INVALID,
                          "cannot listen on %s: this host does not have that address", address);
    default:
        return errmsg_set(reterr, error_from_errno(errnum), "cannot listen on %s: %s", address,
                          strerror(errnum));
    }
}

/* A socket's name outlives a process that was killed. Nobody answers there: it may go. */
static bool remove_stale(const struct sockaddr_storage *address, socklen_t length) {
    const struct sockaddr_un *un = (const void *)address;
    struct stat st;
    if (lstat(un->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, length) != 0 &&
                    errno == ECONNREFUSED;
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_stale && unlink(un->sun_path) == 0;
}

static int bind_unix(struct linux_listener *l, const struct sockaddr_storage *address,
                     socklen_t length) {
    const struct sockaddr_un *un = (const void *)address;
    /* The mode of the unbound socket becomes that of the name, less the umask: never wider than
     * wanted, not even for a moment. Then the umask's share is given back. */
    (void)fchmod(l->fd, UNIX_MODE);
    int errnum = bind(l->fd, (const struct sockaddr *)address, length) == 0 ? 0 : errno;
    if (errnum == EADDRINUSE && remove_stale(address, length)) {
        errnum = bind(l->fd, (const struct sockaddr *)address, length) == 0 ? 0 : errno;
    }
    if (errnum != 0) {
        return errnum;
    }
    struct stat st;
    if (chmod(un->sun_path, UNIX_MODE) != 0 || lstat(un->sun_path, &st) != 0) {
        return errno;
    }
    l->is_unix = true;
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return 0;
}

static int bind_inet(struct linux_listener *l, const struct sockaddr_storage *address,
                     socklen_t length) {
    const int on = 1;
    (void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->ss_family == AF_INET6) { /* what is written is what is served */
        (void)setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    return bind(l->fd, (const struct sockaddr *)address, length) == 0 ? 0 : errno;
}

static int listener_open(struct linux_listener *l, const char *address, struct errmsg *reterr) {
    struct sockaddr_storage sa;
    memset(&sa, 0, sizeof(sa));
    socklen_t length = 0;
    bool is_unix = address[0] == '/';
    int error = is_unix ? parse_unix(address, &sa, &length, reterr)
                        : parse_inet(address, &sa, &length, reterr);
    if (error != OK) {
        return error;
    }
    l->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) {
        return bind_error(address, errno, reterr);
    }
    int errnum = is_unix ? bind_unix(l, &sa, length) : bind_inet(l, &sa, length);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &l->client};
    if (errnum == 0 &&
        (listen(l->fd, BACKLOG) != 0 ||
         epoll_ctl(linux_env_of(l->base.env)->epoll_fd, EPOLL_CTL_ADD, l->fd, &event) != 0)) {
        errnum = errno;
    }
    if (errnum != 0) {
        return bind_error(address, errnum, reterr);
    }
    length = sizeof(sa);
    (void)getsockname(l->fd, (struct sockaddr *)&sa, &length);
    net_address_format(&sa, length, l->base.address);
    return OK;
}

/* ---- accepting ---- */

static void listener_queue(struct linux_listener *l) {
    if (!l->task_is_queued) {
        l->task_is_queued = true;
        env_defer(l->base.env, &l->task);
    }
}

static void listener_notify(struct epoll_client *client, uint32_t events) {
    (void)events;
    listener_queue(CONTAINER_OF(client, struct linux_listener, client));
}

static void listener_retry(struct env_timer *timer) {
    listener_queue(CONTAINER_OF(timer, struct linux_listener, retry));
}

static void listener_run(struct env_task *task) {
    struct linux_listener *l = CONTAINER_OF(task, struct linux_listener, task);
    l->task_is_queued = false;
    if (l->is_closed) {
        mem_free(l);
        return;
    }
    for (int i = 0; i < ACCEPTS_A_TURN && !l->is_closed; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            struct net_stream *stream = linux_stream_new(l->base.env, fd, l->base.address);
            if (stream != NULL) {
                l->accepted(l->owner, stream);
            }
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            env_timer_arm(l->base.env, &l->retry, env_now_ns(l->base.env) + RETRY_NS);
            return;
        } /* else that one connection has failed before it was taken: the next */
    }
    listener_queue(l); /* others may be waiting, or it was closed and is to be freed */
}

/* ---- birth and death ---- */

static void listener_shut(struct linux_listener *l) {
    struct stat st;
    if (l->is_unix && lstat(l->base.address, &st) == 0 && st.st_dev == l->device &&
        st.st_ino == l->inode) {
        (void)unlink(l->base.address);
    }
    if (l->fd >= 0) {
        (void)epoll_ctl(linux_env_of(l->base.env)->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
        (void)close(l->fd);
    }
}

static int linux_listen(struct env *env, const char *address,
                        void (*accepted)(void *owner, struct net_stream *stream), void *owner,
                        struct net_listener **ret_listener, struct errmsg *reterr) {
    struct linux_listener *l = MEM_NEW(struct linux_listener);
    l->client.notify = listener_notify;
    l->base.env = env;
    l->task.run = listener_run;
    l->retry.fire = listener_retry;
    l->fd = -1;
    l->accepted = accepted;
    l->owner = owner;
    int error = listener_open(l, address, reterr);
    if (error != OK) {
        if (l->is_unix) {
            (void)snprintf(l->base.address, sizeof(l->base.address), "%s", address);
        }
        listener_shut(l);
        mem_free(l);
        return error;
    }
    *ret_listener = &l->base;
    return OK;
}

static void linux_listener_close(struct net_listener *listener) {
    struct linux_listener *l = CONTAINER_OF(listener, struct linux_listener, base);
    listener_shut(l);
    l->is_closed = true;
    env_timer_cancel(l->base.env, &l->retry);
    listener_queue(l); /* from its own accepted() perhaps: freed by the task */
}

const struct net_ops linux_net_ops = {
    .listen = linux_listen,
    .listener_close = linux_listener_close,
    .readv = linux_stream_readv,
    .writev = linux_stream_writev,
    .stream_close = linux_stream_close,
};
