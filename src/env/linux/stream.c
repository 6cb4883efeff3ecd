// SPDX-License-Identifier: MPL-2.0
/* Streams.
 *
 * A socket is put into the loop's epoll set once, edge-triggered, and we remember whether it is
 * readable and writable. A call tries its system call if the socket is ready as far as we know,
 * else when an event says so; so a busy stream costs one system call a read or write and none to
 * rearm anything. Writes are made in the loop's next turn. Reads wait until it has done what it has
 * in hand, or for SOCKETS_NS (loop.c): so what came in together goes through the steps of its work
 * together, and shares log rows and answers, instead of following each other one by one.
 *
 * After a short read the socket is empty: reading again would only be told so (epoll(7)), and what
 * arrives later raises a new event. Unless the peer has hung up: that event has been and gone, and
 * the end of the stream is still to be read. So `has_hung_up` is remembered too. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/linux/net_internal.h"

enum {
    KEEPALIVE_IDLE_S = 30, /* a peer that lost its power is gone within a minute and a half */
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_COUNT = 6,
};

/* One direction of a stream. */
struct transfer {
    void (*done)(void *owner, int64_t result); /* NULL: none outstanding */
    void *owner;
    struct iovec *iov; /* a copy; kept from call to call */
    uint32_t iov_capacity;
    uint32_t iov_count; /* what is left */
    uint32_t iov_first;
};

struct linux_stream {
    struct net_stream base;
    struct epoll_client client;
    struct env_task task;
    int fd;
    bool task_is_queued, may_read;
    struct list in_readers;
    bool is_readable, is_writable, has_hung_up;
    bool is_closing;
    struct transfer read, write;
    void (*closed)(void *owner);
    void *closed_owner;
};

static struct linux_stream *linux_stream_of(struct net_stream *stream) {
    return CONTAINER_OF(stream, struct linux_stream, base);
}

/* ---- addresses ---- */

void net_address_format(const struct sockaddr_storage *address, socklen_t length, char *ret_text) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        (void)snprintf(ret_text, NET_ADDRESS_MAX, "%s:%u", host, ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        (void)snprintf(ret_text, NET_ADDRESS_MAX, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_un *un = (const void *)address;
        bool is_named = length > offsetof(struct sockaddr_un, sun_path) && un->sun_path[0] == '/';
        int bytes = is_named ? (int)(length - offsetof(struct sockaddr_un, sun_path)) : 0;
        (void)snprintf(ret_text, NET_ADDRESS_MAX, "%.*s", is_named ? bytes : 4,
                       is_named ? un->sun_path : "unix");
    }
}

/* ---- birth ---- */

static void stream_notify(struct epoll_client *client, uint32_t events);
static void stream_run(struct env_task *task);

static void set_tcp_options(int fd) {
    static const struct {
        int level, name, value;
    } settings[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1}, /* answers are written whole; waiting only costs */
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
    };
    for (size_t i = 0; i < ARRAY_COUNT(settings); i++) {
        (void)setsockopt(fd, settings[i].level, settings[i].name, &settings[i].value,
                         sizeof(settings[i].value));
    }
}

struct net_stream *linux_stream_new(struct env *env, int fd, const char *local) {
    struct linux_stream *s = MEM_NEW(struct linux_stream);
    s->client.notify = stream_notify;
    s->base.env = env;
    s->task.run = stream_run;
    list_init(&s->in_readers);
    s->fd = fd;
    s->is_writable = true; /* it is new; the first event will say the same */
    struct sockaddr_storage address;
    memset(&address, 0, sizeof(address));
    socklen_t length = sizeof(address);
    (void)getpeername(fd, (struct sockaddr *)&address, &length);
    net_address_format(&address, length, s->base.peer);
    if (address.ss_family == AF_UNIX) {
        (void)snprintf(s->base.local, sizeof(s->base.local), "%s", local);
    } else {
        length = sizeof(address);
        (void)getsockname(fd, (struct sockaddr *)&address, &length);
        net_address_format(&address, length, s->base.local);
        set_tcp_options(fd);
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = &s->client};
    if (epoll_ctl(linux_env_of(env)->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        (void)close(fd);
        mem_free(s);
        return NULL;
    }
    return &s->base;
}

/* ---- transfers ---- */

static void stream_queue(struct linux_stream *s) {
    if (!s->task_is_queued) {
        s->task_is_queued = true;
        env_defer(s->base.env, &s->task);
    }
}

static void stream_queue_read(struct linux_stream *s) {
    if (!s->may_read && list_is_empty(&s->in_readers)) {
        list_append(&linux_env_of(s->base.env)->readers, &s->in_readers);
    }
}

void streams_read(struct linux_env *l) {
    struct list *node;
    while ((node = list_pop(&l->readers)) != NULL) {
        struct linux_stream *s = CONTAINER_OF(node, struct linux_stream, in_readers);
        s->may_read = true;
        stream_queue(s);
    }
}

static void stream_notify(struct epoll_client *client, uint32_t events) {
    struct linux_stream *s = CONTAINER_OF(client, struct linux_stream, client);
    s->has_hung_up |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    s->is_readable |= s->has_hung_up || (events & EPOLLIN) != 0;
    s->is_writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    if (s->is_readable && s->read.done != NULL) {
        stream_queue_read(s);
    }
    if (s->is_writable && s->write.done != NULL) {
        stream_queue(s);
    }
}

static void transfer_begin(struct linux_stream *s, struct transfer *t, const struct iovec *iov,
                           uint32_t iov_count, void (*done)(void *owner, int64_t result),
                           void *owner) {
    ASSERT(t->done == NULL && !s->is_closing);
    if (iov_count > t->iov_capacity) {
        mem_free(t->iov);
        t->iov_capacity = iov_count < 8 ? 8 : iov_count;
        t->iov = MEM_NEW_ARRAY(struct iovec, t->iov_capacity);
    }
    memcpy(t->iov, iov, iov_count * sizeof(*iov));
    t->iov_first = 0;
    t->iov_count = iov_count;
    t->done = done;
    t->owner = owner;
}

void linux_stream_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                        void (*done)(void *owner, int64_t result), void *owner) {
    struct linux_stream *s = linux_stream_of(stream);
    transfer_begin(s, &s->read, iov, iov_count, done, owner);
    if (s->is_readable) {
        stream_queue_read(s);
    }
}

void linux_stream_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                         void (*done)(void *owner, int64_t result), void *owner) {
    struct linux_stream *s = linux_stream_of(stream);
    transfer_begin(s, &s->write, iov, iov_count, done, owner);
    if (s->is_writable) {
        stream_queue(s);
    }
}

/* The callback may start the next transfer, or close the stream. */
static void transfer_end(struct transfer *t, int64_t result) {
    void (*done)(void *owner, int64_t result) = t->done;
    t->done = NULL;
    done(t->owner, result);
}

static void stream_read(struct linux_stream *s) {
    size_t asked_bytes = 0;
    for (uint32_t i = 0; i < s->read.iov_count; i++) {
        asked_bytes += s->read.iov[i].iov_len;
    }
    ssize_t got;
    do {
        got = readv(s->fd, s->read.iov, (int)s->read.iov_count);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        s->is_readable = false;
        return;
    }
    s->is_readable = s->has_hung_up || got < 0 || (size_t)got == asked_bytes;
    transfer_end(&s->read, got < 0 ? error_from_errno(errno) : got);
}

/* Steps over what was sent, empty elements too. True when nothing is left. */
static bool transfer_advance(struct transfer *t, size_t bytes) {
    while (t->iov_count > 0) {
        struct iovec *iov = &t->iov[t->iov_first];
        if (bytes < iov->iov_len) {
            iov->iov_base = (uint8_t *)iov->iov_base + bytes;
            iov->iov_len -= bytes;
            return false;
        }
        bytes -= iov->iov_len;
        t->iov_first++;
        t->iov_count--;
    }
    return true;
}

static void stream_write(struct linux_stream *s) {
    for (;;) {
        struct msghdr message = {.msg_iov = s->write.iov + s->write.iov_first,
                                 .msg_iovlen = s->write.iov_count};
        ssize_t put = sendmsg(s->fd, &message, MSG_NOSIGNAL);
        if (put >= 0) {
            if (transfer_advance(&s->write, (size_t)put)) {
                transfer_end(&s->write, OK);
                return;
            }
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            s->is_writable = false;
            return;
        } else if (errno != EINTR) {
            transfer_end(&s->write, error_from_errno(errno));
            return;
        }
    }
}

/* ---- death ---- */

static void stream_end(struct linux_stream *s) {
    if (s->read.done != NULL) {
        transfer_end(&s->read, ERR_CANCELLED);
    }
    if (s->write.done != NULL) {
        transfer_end(&s->write, ERR_CANCELLED);
    }
    void (*closed)(void *owner) = s->closed;
    void *owner = s->closed_owner;
    (void)close(s->fd);
    mem_free(s->read.iov);
    mem_free(s->write.iov);
    mem_free(s);
    if (closed != NULL) {
        closed(owner);
    }
}

static void stream_run(struct env_task *task) {
    struct linux_stream *s = CONTAINER_OF(task, struct linux_stream, task);
    s->task_is_queued = false;
    if (s->is_closing) {
        stream_end(s);
        return;
    }
    if (s->write.done != NULL && s->is_writable) {
        stream_write(s);
    }
    /* The callback may have closed it: then the task is queued again, and the stream lives. */
    if (!s->is_closing && s->may_read && s->read.done != NULL && s->is_readable) {
        s->may_read = false;
        stream_read(s);
    }
}

void linux_stream_close(struct net_stream *stream, void (*closed)(void *owner), void *owner) {
    struct linux_stream *s = linux_stream_of(stream);
    ASSERT(!s->is_closing);
    s->is_closing = true;
    s->closed = closed;
    s->closed_owner = owner;
    (void)epoll_ctl(linux_env_of(s->base.env)->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    list_remove(&s->in_readers);
    stream_queue(s);
}
