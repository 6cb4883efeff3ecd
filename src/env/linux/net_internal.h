// SPDX-License-Identifier: MPL-2.0
/* Between stream.c and listener.c. */
#ifndef HOLDFAST_ENV_LINUX_NET_INTERNAL_H
#define HOLDFAST_ENV_LINUX_NET_INTERNAL_H

#include <sys/socket.h>

#include "env/linux/internal.h"
#include "env/net.h"

/* "10.0.0.7:51234", "[fe80::1]:51234", "/run/x.sock", "unix" (a socket without a name). */
void net_address_format(const struct sockaddr_storage *address, socklen_t length, char *ret_text);

/* Takes over a connected, non-blocking socket. NULL (and the socket closed): no room for it. */
struct net_stream *linux_stream_new(struct env *env, int fd, const char *local);
void linux_stream_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                        void (*done)(void *owner, int64_t result), void *owner);
void linux_stream_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                         void (*done)(void *owner, int64_t result), void *owner);
void linux_stream_close(struct net_stream *stream, void (*closed)(void *owner), void *owner);

#endif
