// SPDX-License-Identifier: MPL-2.0
/* Sockets for tests: env/net.h over plain memory. The test is the other end of every stream: it
 * feeds bytes in pieces of any size, and takes what was written. */
#ifndef HOLDFAST_TESTS_FAKE_NET_H
#define HOLDFAST_TESTS_FAKE_NET_H

#include "env/net.h"

struct fake_peer {
    struct net_stream *stream; /* NULL once it has been closed by the code under test */
    uint8_t *memory;           /* everything written … */
    size_t memory_bytes;
    uint8_t *out; /* … and what of it has not been taken */
    size_t out_bytes;
    size_t read_bytes_max; /* what one read returns at most; 0: no limit */
    bool stalled;          /* writes do not complete */
    const char *from;      /* the address it comes from */
    bool closed;
};

/* Connects to the listener of this address. The peer is the caller's memory. */
void fake_net_connect(struct env *env, const char *address, struct fake_peer *peer);
void fake_net_connect_from(struct env *env, const char *address, const char *from,
                           struct fake_peer *peer);
void fake_peer_feed(struct fake_peer *peer, const void *bytes, size_t length);
void fake_peer_hang_up(struct fake_peer *peer); /* the initiator closes */
void fake_peer_unstall(struct fake_peer *peer);
void fake_peer_take(struct fake_peer *peer, size_t bytes); /* drops from the front of out */
void fake_peer_free(struct fake_peer *peer);

#endif
