// SPDX-License-Identifier: MPL-2.0
/* What happens between two ends: segments take their turns on the wire, packets arrive.
 *
 * A wire is one direction of a link. It carries one segment (16 KiB at most) at a time, of the ends
 * that have something to send in turn, for as long as the rate says; the segment arrives a latency
 * later. What an end has sent arrives in the order it was sent, whatever the jitter. Word about a
 * connection (credit, its beginning and end) takes a latency and no rate. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/net_private.h"

enum { SEGMENT_BYTES = 16 << 10, MTU_BYTES = 1500, IP_TCP_BYTES = 52, FRAME_BYTES = 38 };

static const char *const kind_names[] = {"syn", "accepted", "data", "credit", "fin", "reset"};

/* ---- packets ---- */

void sim_packet_free(struct sim *sim, struct sim_packet *packet) {
    sim_unschedule(sim, &packet->event);
    list_remove(&packet->in_connection);
    mem_free(packet);
}

/* At the end of what was sent, the client's first packets included: the listener takes it. */
static void syn_arrived(struct sim_stream *to) {
    struct sim_stream *from = sim_stream_other(to);
    struct sim_listener *listener = sim_listener_find(sim_of_stream(to), from->base.peer);
    if (listener == NULL) {
        sim_send_control(to, SIM_RESET, 0);
        return;
    }
    to->is_gone = false;
    to->is_connected = true;
    sim_send_control(to, SIM_ACCEPTED, 0);
    listener->accepted(listener->owner, &to->base);
}

static void data_arrived(struct sim_stream *to, const struct sim_packet *packet) {
    if (to->is_closing || to->is_gone) { /* nobody is there to take it */
        sim_stream_reset(&to->base);
        return;
    }
    if (!to->is_broken) {
        sim_bytes_put(&to->in, packet->data, packet->bytes);
        sim_stream_queue(to);
    }
}

static void packet_arrived(struct sim_event *event) {
    struct sim_packet *packet = CONTAINER_OF(event, struct sim_packet, event);
    struct sim_stream *to = packet->to;
    struct sim_connection *connection = to->connection;
    struct sim *sim = connection->link->sim;
    env_sim_note(&sim->env, connection->number << 40 | (uint64_t)packet->kind << 32 | packet->bytes,
                 "connection %" PRIu64 " %s %s %u", connection->number,
                 to == &connection->ends[1] ? ">" : "<", kind_names[packet->kind], packet->bytes);
    list_remove(&packet->in_connection);
    switch (packet->kind) {
    case SIM_SYN:
        syn_arrived(to);
        break;
    case SIM_ACCEPTED:
        to->is_connected = true;
        sim_stream_push(to);
        break;
    case SIM_DATA:
        data_arrived(to, packet);
        break;
    case SIM_CREDIT:
        to->room += packet->bytes;
        sim_stream_push(to);
        break;
    case SIM_FIN:
        to->end_arrived = true;
        sim_stream_queue(to);
        break;
    case SIM_RESET:
        sim_stream_broke(to);
        break;
    }
    mem_free(packet);
}

static struct sim_packet *packet_new(struct sim_stream *from, enum sim_packet_kind kind,
                                     uint32_t bytes, uint32_t data_bytes) {
    struct sim_packet *packet = sim_alloc(sizeof(*packet) + data_bytes);
    packet->event.fire = packet_arrived;
    packet->to = sim_stream_other(from);
    packet->kind = kind;
    packet->bytes = bytes;
    list_append(&from->connection->packets, &packet->in_connection);
    return packet;
}

static void packet_send(struct sim_stream *from, struct sim_packet *packet, uint64_t leaves_ns) {
    struct sim *sim = sim_of_stream(from);
    const struct sim_link_options *options = &from->connection->link->options;
    uint64_t at_ns = leaves_ns + options->latency_ns;
    if (options->jitter_ns != 0) {
        at_ns += rng_below(&sim->net_rng, options->jitter_ns);
    }
    from->last_arrival_ns = MAX(at_ns, from->last_arrival_ns);
    sim_schedule(sim, &packet->event, from->last_arrival_ns);
}

static bool is_silent(const struct sim_connection *connection) {
    return connection->silent || connection->link->down;
}

void sim_send_control(struct sim_stream *from, enum sim_packet_kind kind, uint32_t bytes) {
    struct sim_packet *packet = packet_new(from, kind, bytes, 0);
    if (is_silent(from->connection)) {
        list_remove(&packet->in_connection);
        list_append(&from->connection->held, &packet->in_connection);
    } else {
        packet_send(from, packet, sim_of_stream(from)->now_ns);
    }
}

void sim_connection_speak(struct sim_connection *connection) {
    struct list *node;
    if (is_silent(connection)) {
        return;
    }
    while ((node = list_pop(&connection->held)) != NULL) {
        struct sim_packet *packet = CONTAINER_OF(node, struct sim_packet, in_connection);
        list_append(&connection->packets, node);
        packet_send(sim_stream_other(packet->to), packet, connection->link->sim->now_ns);
    }
    sim_stream_push(&connection->ends[0]);
    sim_stream_push(&connection->ends[1]);
}

/* ---- wires ---- */

/* How long the wire is busy with so much payload. */
static uint64_t wire_ns(const struct sim_link_options *options, uint32_t bytes) {
    if (options->mbit_s == 0) {
        return 0;
    }
    uint64_t mtu = options->mtu_bytes != 0 ? options->mtu_bytes : MTU_BYTES;
    uint64_t frames = div_round_up(bytes, mtu - IP_TCP_BYTES);
    return (bytes + frames * (IP_TCP_BYTES + FRAME_BYTES)) * 8000 / options->mbit_s;
}

static uint32_t sendable_bytes(const struct sim_stream *stream) {
    if (!stream->is_connected || stream->is_broken || stream->end_sent ||
        is_silent(stream->connection)) {
        return 0;
    }
    uint64_t bytes = MIN((uint64_t)stream->out.used, stream->room);
    /* A little room is waited out, as in TCP (RFC 9293 §3.8.6.2.1), or a slow reader would be sent
     * byte after byte. It grows: readers tell when they have taken all there was. */
    uint64_t worth_bytes = MIN((uint64_t)MTU_BYTES, (uint64_t)stream->out.capacity / 4);
    if (bytes < stream->out.used && bytes < worth_bytes && bytes < stream->break_after) {
        return 0;
    }
    bytes = MIN(bytes, stream->break_after);
    return (uint32_t)MIN(bytes, (uint64_t)SEGMENT_BYTES);
}

/* The byte has come at which it was to break. */
static void break_now(struct sim_stream *stream) {
    stream->break_after = UINT64_MAX;
    switch (stream->break_how) {
    case SIM_BREAK_RESET:
        sim_stream_reset(&stream->base);
        break;
    case SIM_BREAK_SILENCE:
        stream->connection->silent = true;
        break;
    case SIM_BREAK_SHUTDOWN:
        stream->out.used = 0;
        stream->ends_writing = true;
        break;
    }
}

/* When all has been sent that was to be. */
static void send_end(struct sim_stream *stream) {
    if (stream->ends_writing && stream->out.used == 0 && !stream->end_sent && !stream->is_broken &&
        stream->is_connected) {
        stream->end_sent = true;
        sim_send_control(stream, SIM_FIN, 0);
        sim_stream_queue(stream);
    }
}

/* Puts a segment on the wire; returns how long that takes. */
static uint64_t segment_send(struct sim_stream *stream, uint32_t bytes) {
    struct sim *sim = sim_of_stream(stream);
    const struct sim_link_options *options = &stream->connection->link->options;
    if (options->pieces != 0 && rng_chance(&sim->net_rng, 1, options->pieces)) {
        bytes = (uint32_t)rng_between(&sim->net_rng, 1, bytes);
    }
    uint64_t busy_ns = wire_ns(options, bytes);
    struct sim_packet *packet = packet_new(stream, SIM_DATA, bytes, bytes);
    sim_bytes_take(&stream->out, packet->data, bytes);
    stream->room -= bytes;
    packet_send(stream, packet, sim->now_ns + busy_ns);
    if (stream->break_after != UINT64_MAX) {
        stream->break_after -= bytes;
    }
    struct sim_wire *wire =
        &stream->connection->link->wires[stream == &stream->connection->ends[1]];
    wire->carried_bytes += bytes;
    wire->busy_ns += busy_ns;
    return busy_ns;
}

static void wire_pump(struct sim_wire *wire) {
    struct list *node;
    while (!wire->busy && (node = list_pop(&wire->ready)) != NULL) {
        struct sim_stream *stream = CONTAINER_OF(node, struct sim_stream, in_ready);
        uint32_t bytes = sendable_bytes(stream);
        if (bytes == 0) {
            continue;
        }
        uint64_t busy_ns = segment_send(stream, bytes);
        if (stream->break_after == 0) {
            break_now(stream);
        }
        send_end(stream);
        if (stream->write.done != NULL) {
            sim_stream_queue(stream);
        }
        if (sendable_bytes(stream) != 0) {
            list_append(&wire->ready, &stream->in_ready);
        }
        if (busy_ns != 0) {
            wire->busy = true;
            sim_schedule(wire->link->sim, &wire->free, wire->link->sim->now_ns + busy_ns);
        }
    }
}

static void wire_free(struct sim_event *event) {
    struct sim_wire *wire = CONTAINER_OF(event, struct sim_wire, free);
    wire->busy = false;
    wire_pump(wire);
}

void sim_wire_init(struct sim_wire *wire, struct sim_link *link) {
    wire->link = link;
    wire->free.fire = wire_free;
    list_init(&wire->ready);
}

void sim_stream_push(struct sim_stream *stream) {
    struct sim_connection *connection = stream->connection;
    struct sim_wire *wire = &connection->link->wires[stream == &connection->ends[1]];
    if (stream->break_after == 0 && stream->is_connected && !stream->is_broken) {
        break_now(stream);
    }
    send_end(stream);
    if (sendable_bytes(stream) != 0 && list_is_empty(&stream->in_ready)) {
        list_append(&wire->ready, &stream->in_ready);
    }
    wire_pump(wire);
}
