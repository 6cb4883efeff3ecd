// SPDX-License-Identifier: MPL-2.0
#include "fake_net.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"

struct net_listener {
    struct list in_all;
    char address[128];
    void (*accepted)(void *owner, struct net_stream *stream);
    void *owner;
};

struct call {
    void (*done)(void *owner, int64_t result);
    void *owner;
    struct iovec iov[1024];
    uint32_t iov_count;
};

struct net_stream {
    struct env *env;
    struct fake_peer *peer;
    struct env_task task;
    bool queued, hung_up, closing;
    uint8_t *in;
    size_t in_bytes;
    struct call read, write;
    void (*closed)(void *owner);
    void *closed_owner;
};

static struct list listeners = {&listeners, &listeners};

int net_listen(struct env *env, const char *address,
               void (*accepted)(void *owner, struct net_stream *stream), void *owner,
               struct net_listener **ret_listener, struct errmsg *reterr) {
    (void)env;
    LIST_FOR_EACH(it, &listeners) {
        if (strcmp(CONTAINER_OF(it, struct net_listener, in_all)->address, address) == 0) {
            return errmsg_set(reterr, ERR_BUSY, "%s is in use", address);
        }
    }
    struct net_listener *listener = MEM_NEW(struct net_listener);
    (void)snprintf(listener->address, sizeof(listener->address), "%s", address);
    listener->accepted = accepted;
    listener->owner = owner;
    list_append(&listeners, &listener->in_all);
    *ret_listener = listener;
    return OK;
}

const char *net_listener_address(const struct net_listener *listener) {
    return listener->address;
}

void net_listener_close(struct net_listener *listener) {
    list_remove(&listener->in_all);
    mem_free(listener);
}

const char *net_stream_peer(const struct net_stream *stream) {
    (void)stream;
    return stream->peer->from;
}

const char *net_stream_local(const struct net_stream *stream) {
    (void)stream;
    return "192.0.2.1:3260";
}

static void finish(struct call *call, int64_t result) {
    void (*done)(void *owner, int64_t result) = call->done;
    call->done = NULL;
    done(call->owner, result);
}

static void run_read(struct net_stream *stream) {
    size_t room = stream->peer->read_bytes_max != 0 ? stream->peer->read_bytes_max : SIZE_MAX;
    size_t taken = 0;
    for (uint32_t i = 0; i < stream->read.iov_count; i++) {
        const struct iovec *iov = &stream->read.iov[i];
        size_t bytes = MIN(iov->iov_len, stream->in_bytes - taken);
        bytes = MIN(bytes, room - taken);
        if (bytes == 0) {
            break;
        }
        memcpy(iov->iov_base, stream->in + taken, bytes);
        taken += bytes;
    }
    stream->in_bytes -= taken;
    if (taken != 0) {
        memmove(stream->in, stream->in + taken, stream->in_bytes);
    }
    if (taken != 0 || stream->hung_up) {
        finish(&stream->read, (int64_t)taken);
    }
}

static void peer_append(struct fake_peer *peer, const struct iovec *iov) {
    size_t start = peer->out_bytes != 0 ? (size_t)(peer->out - peer->memory) : 0;
    if (start + peer->out_bytes + iov->iov_len > peer->memory_bytes) {
        peer->memory_bytes = 2 * (start + peer->out_bytes + iov->iov_len);
        peer->memory = mem_realloc(peer->memory, peer->memory_bytes);
    }
    peer->out = peer->memory + start;
    memcpy(peer->out + peer->out_bytes, iov->iov_base, iov->iov_len);
    peer->out_bytes += iov->iov_len;
}

static void run_write(struct net_stream *stream) {
    for (uint32_t i = 0; i < stream->write.iov_count; i++) {
        peer_append(stream->peer, &stream->write.iov[i]);
    }
    finish(&stream->write, OK);
}

static void stream_run(struct env_task *task) {
    struct net_stream *stream = CONTAINER_OF(task, struct net_stream, task);
    bool was_closing = stream->closing;
    stream->queued = false;
    if (!stream->closing && stream->read.done != NULL &&
        (stream->in_bytes != 0 || stream->hung_up)) {
        run_read(stream);
    }
    if (!stream->closing && stream->write.done != NULL && !stream->peer->stalled) {
        run_write(stream);
    }
    if (!was_closing) {
        return; /* closed from inside: it is queued again */
    }
    if (stream->read.done != NULL) {
        finish(&stream->read, ERR_CANCELLED);
    }
    if (stream->write.done != NULL) {
        finish(&stream->write, ERR_CANCELLED);
    }
    stream->peer->closed = true;
    stream->peer->stream = NULL;
    stream->closed(stream->closed_owner);
    mem_free(stream->in);
    mem_free(stream);
}

static void stream_queue(struct net_stream *stream) {
    if (!stream->queued) {
        stream->queued = true;
        stream->task.run = stream_run;
        env_defer(stream->env, &stream->task);
    }
}

static void begin(struct net_stream *stream, struct call *call, const struct iovec *iov,
                  uint32_t iov_count, void (*done)(void *owner, int64_t result), void *owner) {
    ASSERT(call->done == NULL && !stream->closing && iov_count > 0 && iov_count <= 1024);
    memcpy(call->iov, iov, iov_count * sizeof(*iov));
    call->iov_count = iov_count;
    call->done = done;
    call->owner = owner;
    stream_queue(stream);
}

void net_stream_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                      void (*done)(void *owner, int64_t result), void *owner) {
    begin(stream, &stream->read, iov, iov_count, done, owner);
}

void net_stream_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                       void (*done)(void *owner, int64_t result), void *owner) {
    begin(stream, &stream->write, iov, iov_count, done, owner);
}

void net_stream_close(struct net_stream *stream, void (*closed)(void *owner), void *owner) {
    ASSERT(!stream->closing);
    stream->closing = true;
    stream->closed = closed;
    stream->closed_owner = owner;
    stream_queue(stream);
}

/* ---- the test's end ---- */

void fake_net_connect(struct env *env, const char *address, struct fake_peer *peer) {
    fake_net_connect_from(env, address, "192.0.2.7:50000", peer);
}

void fake_net_connect_from(struct env *env, const char *address, const char *from,
                           struct fake_peer *peer) {
    *peer = (struct fake_peer){.from = from};
    LIST_FOR_EACH(it, &listeners) {
        struct net_listener *listener = CONTAINER_OF(it, struct net_listener, in_all);
        if (strcmp(listener->address, address) == 0) {
            struct net_stream *stream = MEM_NEW(struct net_stream);
            stream->env = env;
            stream->peer = peer;
            peer->stream = stream;
            listener->accepted(listener->owner, stream);
            return;
        }
    }
    ASSERT(false);
}

void fake_peer_feed(struct fake_peer *peer, const void *bytes, size_t length) {
    struct net_stream *stream = peer->stream;
    if (stream == NULL || length == 0) {
        return;
    }
    stream->in = mem_realloc(stream->in, stream->in_bytes + length);
    memcpy(stream->in + stream->in_bytes, bytes, length);
    stream->in_bytes += length;
    stream_queue(stream);
}

void fake_peer_hang_up(struct fake_peer *peer) {
    if (peer->stream != NULL) {
        peer->stream->hung_up = true;
        stream_queue(peer->stream);
    }
}

void fake_peer_unstall(struct fake_peer *peer) {
    peer->stalled = false;
    if (peer->stream != NULL) {
        stream_queue(peer->stream);
    }
}

void fake_peer_take(struct fake_peer *peer, size_t bytes) {
    ASSERT_LE(bytes, peer->out_bytes);
    peer->out_bytes -= bytes;
    peer->out += bytes;
}

void fake_peer_free(struct fake_peer *peer) {
    ASSERT(peer->stream == NULL);
    mem_free(peer->memory);
    peer->memory = peer->out = NULL;
}
