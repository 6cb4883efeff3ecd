// SPDX-License-Identifier: MPL-2.0
/* Stream sockets of a loop. Memory handed to a read or write stays the caller's and must live until
 * the completion. At most one read and one write of a stream are outstanding at a time. */
#ifndef HOLDFAST_ENV_NET_H
#define HOLDFAST_ENV_NET_H

#include <stdint.h>
#include <sys/uio.h>

#include "env/env.h"

struct net_listener;
struct net_stream;

/* Listens on "ADDR:PORT", "[ADDR6]:PORT" or a unix socket path ("/run/…"). accepted() gets a
 * stream it then owns. ERR_BUSY (address in use), ERR_INVALID, ERR_PERMISSION. */
HF_MUST_CHECK int net_listen(struct env *env, const char *address,
                             void (*accepted)(void *owner, struct net_stream *stream), void *owner,
                             struct net_listener **ret_listener, struct errmsg *reterr);
/* The address really bound ("127.0.0.1:40123" when port 0 was asked for). */
const char *net_listener_address(const struct net_listener *listener);
void net_listener_close(struct net_listener *listener);

/* "10.0.0.7:51234", "[fe80::1]:51234". Valid for the stream's life. */
const char *net_stream_peer(const struct net_stream *stream);
const char *net_stream_local(const struct net_stream *stream);

/* Reads at least one byte, at most the iovec. done(owner, bytes > 0 | 0 at end of stream | error).
 * The iovec array is copied. */
void net_stream_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                      void (*done)(void *owner, int64_t result), void *owner);
/* Writes all of the iovec. done(owner, OK or error). The iovec array is copied (≤ 1024 elements).
 */
void net_stream_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                       void (*done)(void *owner, int64_t result), void *owner);
/* Ends the stream: outstanding calls complete with ERR_CANCELLED first (from the loop), then
 * closed(owner) runs and the stream is gone. */
void net_stream_close(struct net_stream *stream, void (*closed)(void *owner), void *owner);

#endif
