// SPDX-License-Identifier: MPL-2.0
/* What net.c and net_wire.c share: connections, their ends, and what is on its way between them.
 *
 *     writev() ─> out ─ segments ─> wire ─ packets ─> in ─> readv()
 *                  ^                                   │
 *                  └───────────── credit ──────────────┘
 *
 * An end may send what the other has room for (`room`); what a reader takes comes back as credit, a
 * latency later. So a window smaller than rate times round trip costs speed, as it does in TCP.
 * What has left `out` counts as sent: retransmission, loss and congestion are not modelled. */
#ifndef HOLDFAST_ENV_SIM_NET_PRIVATE_H
#define HOLDFAST_ENV_SIM_NET_PRIVATE_H

#include "env/sim/net.h"
#include "env/sim/private.h"

/* Bytes first in, first out. */
struct sim_bytes {
    uint8_t *data; /* a ring; allocated when first needed */
    uint32_t capacity, start, used;
};

/* One direction of an end that its owner has asked for. */
struct sim_transfer {
    void (*done)(void *owner, int64_t result); /* NULL: none outstanding */
    void *owner;
    struct iovec *iov; /* a copy; kept from call to call */
    uint32_t iov_capacity, iov_count, iov_first;
};

struct sim_wire {
    struct sim_link *link;
    struct sim_event free; /* the segment is on its way: the next may go */
    bool busy;
    struct list ready; /* ends that may have something to send, in turn */
    uint64_t carried_bytes, busy_ns;
};

struct sim_link {
    struct list in_sim;
    struct sim *sim;
    struct sim_link_options options;
    char name[32];
    bool down;
    struct sim_wire wires[2]; /* towards the listener; back */
};

struct sim_connection;

struct sim_stream {
    struct net_stream base;
    struct sim_connection *connection;
    struct list in_ready;
    struct env_task task;
    bool task_is_queued;
    struct sim_transfer read, write;
    struct sim_bytes in, out;
    uint64_t room;        /* of the other end's `in`, as far as this end knows */
    uint64_t owed;        /* taken by the reader, not yet told the other end */
    uint64_t break_after; /* bytes; UINT64_MAX: not armed */
    enum sim_break break_how;
    uint64_t last_arrival_ns; /* of what was sent */
    bool is_connected;        /* may send */
    bool ends_writing, end_sent, end_arrived, is_broken;
    bool is_closing, is_gone; /* its owner has closed it; has been told so */
    void (*closed)(void *owner);
    void *closed_owner;
};

enum sim_packet_kind { SIM_SYN, SIM_ACCEPTED, SIM_DATA, SIM_CREDIT, SIM_FIN, SIM_RESET };

struct sim_packet {
    struct sim_event event;
    struct list in_connection; /* its packets, or its held ones */
    struct sim_stream *to;
    enum sim_packet_kind kind;
    uint32_t bytes;
    uint8_t data[];
};

struct sim_connection {
    struct list in_sim;
    struct sim_link *link;
    uint64_t number;
    struct sim_stream ends[2]; /* who connected, who listened */
    struct list packets;
    struct list held; /* said in silence */
    bool silent;
};

struct sim_listener {
    struct net_listener base;
    struct list in_sim;
    void (*accepted)(void *owner, struct net_stream *stream);
    void *owner;
};

/* ---- net.c ---- */

struct sim_listener *sim_listener_find(struct sim *sim, const char *address);
/* Has its owner's calls looked at in the loop's next turn. */
void sim_stream_queue(struct sim_stream *stream);
void sim_bytes_put(struct sim_bytes *bytes, const uint8_t *data, uint32_t length);
void sim_bytes_take(struct sim_bytes *bytes, uint8_t *ret_data, uint32_t length);
void sim_stream_broke(struct sim_stream *stream);
/* Frees it if nobody has an end of it any more. */
void sim_connection_release(struct sim_connection *connection);

/* ---- net_wire.c ---- */

void sim_wire_init(struct sim_wire *wire, struct sim_link *link);
/* It has something new to send, or may send again. */
void sim_stream_push(struct sim_stream *stream);
void sim_send_control(struct sim_stream *from, enum sim_packet_kind kind, uint32_t bytes);
void sim_connection_speak(struct sim_connection *connection); /* its silence is over */
void sim_packet_free(struct sim *sim, struct sim_packet *packet);

static inline struct sim_stream *sim_stream_of(struct net_stream *stream) {
    return CONTAINER_OF(stream, struct sim_stream, base);
}

static inline struct sim_stream *sim_stream_other(struct sim_stream *stream) {
    struct sim_connection *connection = stream->connection;
    return &connection->ends[stream == &connection->ends[0]];
}

static inline struct sim *sim_of_stream(const struct sim_stream *stream) {
    return stream->connection->link->sim;
}

#endif
