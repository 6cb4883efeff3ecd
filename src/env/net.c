// SPDX-License-Identifier: MPL-2.0
/* Sockets: the checking wrappers around the backend's operations. One program may hold loops of
 * both environments (a benchmark that models what it is compared with), so a stream is asked whose
 * it is each time. */
#include "env/net.h"

#include "base/assert.h"
#include "env/backend.h"

enum { IOV_COUNT_MAX = 1024 };

static const struct net_ops *ops_of(const struct env *env) {
    ASSERT(env->ops->net != NULL);
    return env->ops->net;
}

/* ---- listeners ---- */

int net_listen(struct env *env, const char *address,
               void (*accepted)(void *owner, struct net_stream *stream), void *owner,
               struct net_listener **ret_listener, struct errmsg *reterr) {
    ASSERT(accepted != NULL);
    return ops_of(env)->listen(env, address, accepted, owner, ret_listener, reterr);
}

const char *net_listener_address(const struct net_listener *listener) {
    return listener->address;
}

void net_listener_close(struct net_listener *listener) {
    if (listener != NULL) {
        ops_of(listener->env)->listener_close(listener);
    }
}

/* ---- streams ---- */

const char *net_stream_peer(const struct net_stream *stream) {
    return stream->peer;
}

const char *net_stream_local(const struct net_stream *stream) {
    return stream->local;
}

void net_stream_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                      void (*done)(void *owner, int64_t result), void *owner) {
    ASSERT(done != NULL && iov_count > 0 && iov_count <= IOV_COUNT_MAX);
    ops_of(stream->env)->readv(stream, iov, iov_count, done, owner);
}

void net_stream_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                       void (*done)(void *owner, int64_t result), void *owner) {
    ASSERT(done != NULL && iov_count > 0 && iov_count <= IOV_COUNT_MAX);
    ops_of(stream->env)->writev(stream, iov, iov_count, done, owner);
}

void net_stream_close(struct net_stream *stream, void (*closed)(void *owner), void *owner) {
    ops_of(stream->env)->stream_close(stream, closed, owner);
}
