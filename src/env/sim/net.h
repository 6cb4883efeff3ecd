// SPDX-License-Identifier: MPL-2.0
/* Simulated networks: env/net.h in virtual time, over links that have a rate, a latency and ends
 * with buffers of their own, and that break in every way a peer or a cable can.
 *
 * Both ends of a connection are streams of the same simulated environment: the code under test
 * listens, the owner's world (a scripted initiator, a benchmark's client) connects, and both use
 * env/net.h. Connections of one link share its rate. A world without faults is as exact as its
 * options say; `pieces` and the breaks below make it a hostile one. */
#ifndef HOLDFAST_ENV_SIM_NET_H
#define HOLDFAST_ENV_SIM_NET_H

#include "env/net.h"

struct sim_link;

/* A full-duplex link: rate and latency hold for each direction. */
struct sim_link_options {
    const char *name;      /* for the trace; copied */
    uint32_t mbit_s;       /* line rate, decimal; 0: no limit */
    uint32_t mtu_bytes;    /* 0: 1500. Of each frame 52 bytes are IP and TCP, 38 more the wire's */
    uint64_t latency_ns;   /* one way */
    uint64_t jitter_ns;    /* up to so much more, drawn for each segment; none overtakes another */
    uint32_t buffer_bytes; /* for sending, and for receiving, of each end; 0: 256 KiB */
    uint32_t pieces;       /* one in so many reads and segments is cut short where the seed says; 0:
                              none is */
};

struct sim_link *env_sim_link_add(struct env *env, const struct sim_link_options *options);
/* A cable that is pulled: what is under way still arrives, then nothing does, until it is up. */
void sim_link_set_down(struct sim_link *link, bool down);
/* Bytes carried (direction 0: towards the listeners), and for how long it was busy with them. */
uint64_t sim_link_carried_bytes(const struct sim_link *link, uint32_t direction);
uint64_t sim_link_busy_ns(const struct sim_link *link, uint32_t direction);

/* Connects to whoever listens on `address` (or on all addresses, at its port). `from`
 * ("198.51.100.7:40000") is what the other end sees of us. Returns at once with a stream that may
 * be used: what is written goes when the other end has answered; if nobody listens, the stream
 * breaks off then (ERR_CLOSED). The stream is closed by net_stream_close(), as any. */
struct net_stream *env_sim_connect(struct env *env, struct sim_link *link, const char *address,
                                   const char *from);

/* ---- breaking: streams of either end ---- */

/* Writes no more: when what was written has arrived the other end reads the end of the stream. It
 * may go on writing, and is still read. No write may be outstanding, and none may follow. */
void sim_stream_shutdown(struct net_stream *stream);
/* Breaks the connection off: this end fails at once, the other when it hears of it. What is still
 * to be sent is lost. */
void sim_stream_reset(struct net_stream *stream);
/* Nothing gets through in either direction, though nobody is told: a host that lost its power. */
void sim_stream_silence(struct net_stream *stream, bool silent);

enum sim_break { SIM_BREAK_SHUTDOWN, SIM_BREAK_RESET, SIM_BREAK_SILENCE };

/* After exactly so many more bytes of what this end sends, this happens; what would follow is lost.
 * A write that is not yet sent whole then fails (or, in silence, does not end). */
void sim_stream_break_after(struct net_stream *stream, uint64_t bytes, enum sim_break how);
/* The other end of the connection, to break what that sends. NULL: nobody has it (yet, or any
 * more). */
struct net_stream *sim_stream_other_end(struct net_stream *stream);

#endif
