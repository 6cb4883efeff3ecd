// SPDX-License-Identifier: MPL-2.0
/* Simulated links, listeners and streams: what owners of ends ask for, and how ends come and go.
 * net_private.h says how bytes move, net_wire.c moves them.
 *
 * A close is like TCP's: what was written still goes out, then the end of the stream; unless
 * something was never read, then the connection is broken off, and what the other end writes
 * afterwards breaks it off, too. A connection is freed when neither end has an owner any more. All
 * memory lies outside every mem scope. */
#include "env/sim/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/net_private.h"

enum { BUFFER_BYTES = 256 << 10, FIRST_PORT = 40000 };

/* ---- bytes ---- */

void sim_bytes_put(struct sim_bytes *bytes, const uint8_t *data, uint32_t length) {
    if (bytes->data == NULL) {
        bytes->data = sim_alloc(bytes->capacity);
    }
    ASSERT_LE(length, bytes->capacity - bytes->used);
    uint32_t at = (bytes->start + bytes->used) % bytes->capacity;
    uint32_t first = MIN(length, bytes->capacity - at);
    memcpy(bytes->data + at, data, first);
    memcpy(bytes->data, data + first, length - first);
    bytes->used += length;
}

void sim_bytes_take(struct sim_bytes *bytes, uint8_t *ret_data, uint32_t length) {
    ASSERT_LE(length, bytes->used);
    uint32_t first = MIN(length, bytes->capacity - bytes->start);
    memcpy(ret_data, bytes->data + bytes->start, first);
    memcpy(ret_data + first, bytes->data, length - first);
    bytes->start = (bytes->start + length) % bytes->capacity;
    bytes->used -= length;
}

/* ---- links ---- */

struct sim_link *env_sim_link_add(struct env *env, const struct sim_link_options *options) {
    struct sim *sim = sim_of(env);
    struct sim_link *link = sim_alloc(sizeof(*link));
    link->sim = sim;
    link->options = *options;
    if (link->options.buffer_bytes == 0) {
        link->options.buffer_bytes = BUFFER_BYTES;
    }
    (void)snprintf(link->name, sizeof(link->name), "%s",
                   options->name != NULL ? options->name : "link");
    link->options.name = link->name;
    sim_wire_init(&link->wires[0], link);
    sim_wire_init(&link->wires[1], link);
    list_append(&sim->links, &link->in_sim);
    return link;
}

void sim_link_set_down(struct sim_link *link, bool down) {
    env_sim_note(&link->sim->env, down, "%s is %s", link->name, down ? "down" : "up");
    link->down = down;
    LIST_FOR_EACH(it, &link->sim->connections) {
        struct sim_connection *connection = CONTAINER_OF(it, struct sim_connection, in_sim);
        if (connection->link == link) {
            sim_connection_speak(connection);
        }
    }
}

uint64_t sim_link_carried_bytes(const struct sim_link *link, uint32_t direction) {
    return link->wires[direction].carried_bytes;
}

uint64_t sim_link_busy_ns(const struct sim_link *link, uint32_t direction) {
    return link->wires[direction].busy_ns;
}

/* ---- listeners ---- */

/* Whether somebody who listens on `bound` is who is meant by `address`. */
static bool listens_on(const char *bound, const char *address) {
    const char *port = strrchr(bound, ':'), *wanted = strrchr(address, ':');
    bool any = strncmp(bound, "0.0.0.0:", 8) == 0 || strncmp(bound, "[::]:", 5) == 0;
    return strcmp(bound, address) == 0 ||
           (any && wanted != NULL && (bound[0] == '[') == (address[0] == '[') &&
            strcmp(port, wanted) == 0);
}

struct sim_listener *sim_listener_find(struct sim *sim, const char *address) {
    LIST_FOR_EACH(it, &sim->listeners) {
        struct sim_listener *listener = CONTAINER_OF(it, struct sim_listener, in_sim);
        if (listens_on(listener->base.address, address)) {
            return listener;
        }
    }
    return NULL;
}

static int sim_listen(struct env *env, const char *address,
                      void (*accepted)(void *owner, struct net_stream *stream), void *owner,
                      struct net_listener **ret_listener, struct errmsg *reterr) {
    struct sim *sim = sim_of(env);
    const char *port = strrchr(address, ':');
    if (address[0] != '/' && (port == NULL || port[1] < '0' || port[1] > '9')) {
        return errmsg_set(reterr, ERR_INVALID, "%s is no address to listen on", address);
    }
    struct sim_listener *listener = sim_alloc(sizeof(*listener));
    listener->base.env = env;
    if (port != NULL && strcmp(port, ":0") == 0) {
        (void)snprintf(listener->base.address, sizeof(listener->base.address), "%.*s:%u",
                       (int)(port - address), address, FIRST_PORT + sim->ports_given++);
    } else {
        (void)snprintf(listener->base.address, sizeof(listener->base.address), "%s", address);
    }
    if (sim_listener_find(sim, listener->base.address) != NULL) {
        mem_free(listener);
        return errmsg_set(reterr, ERR_BUSY, "cannot listen on %s: the address is in use", address);
    }
    listener->accepted = accepted;
    listener->owner = owner;
    list_append(&sim->listeners, &listener->in_sim);
    *ret_listener = &listener->base;
    return OK;
}

static void sim_listener_close(struct net_listener *base) {
    struct sim_listener *listener = CONTAINER_OF(base, struct sim_listener, base);
    list_remove(&listener->in_sim);
    mem_free(listener);
}

/* ---- transfers ---- */

static void stream_run(struct env_task *task);

void sim_stream_queue(struct sim_stream *stream) {
    if (!stream->task_is_queued && !stream->is_gone) {
        stream->task_is_queued = true;
        env_defer(stream->base.env, &stream->task);
    }
}

static void transfer_begin(struct sim_stream *stream, struct sim_transfer *transfer,
                           const struct iovec *iov, uint32_t iov_count,
                           void (*done)(void *owner, int64_t result), void *owner) {
    ASSERT(transfer->done == NULL && !stream->is_closing);
    if (iov_count > transfer->iov_capacity) {
        transfer->iov_capacity = MAX(iov_count, 8u);
        transfer->iov = sim_realloc(transfer->iov, transfer->iov_capacity * sizeof(*iov));
    }
    memcpy(transfer->iov, iov, iov_count * sizeof(*iov));
    transfer->iov_first = 0;
    transfer->iov_count = iov_count;
    transfer->done = done;
    transfer->owner = owner;
    sim_stream_queue(stream);
}

static void transfer_end(struct sim_transfer *transfer, int64_t result) {
    void (*done)(void *owner, int64_t result) = transfer->done;
    transfer->done = NULL;
    done(transfer->owner, result);
}

/* The next piece of the iovec, at most `bytes`, stepped over; NULL: there is no more. */
static uint8_t *transfer_piece(struct sim_transfer *transfer, uint32_t bytes, uint32_t *ret_bytes) {
    while (transfer->iov_count > 0) {
        struct iovec *iov = &transfer->iov[transfer->iov_first];
        if (iov->iov_len == 0) {
            transfer->iov_first++;
            transfer->iov_count--;
            continue;
        }
        uint8_t *piece = iov->iov_base;
        *ret_bytes = (uint32_t)MIN((size_t)bytes, iov->iov_len);
        iov->iov_base = piece + *ret_bytes;
        iov->iov_len -= *ret_bytes;
        return piece;
    }
    return NULL;
}

static void sim_readv(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                      void (*done)(void *owner, int64_t result), void *owner) {
    struct sim_stream *s = sim_stream_of(stream);
    transfer_begin(s, &s->read, iov, iov_count, done, owner);
}

static void sim_writev(struct net_stream *stream, const struct iovec *iov, uint32_t iov_count,
                       void (*done)(void *owner, int64_t result), void *owner) {
    struct sim_stream *s = sim_stream_of(stream);
    transfer_begin(s, &s->write, iov, iov_count, done, owner);
}

/* What a reader has taken is told when it is much, or all there was. */
static void give_credit(struct sim_stream *stream, uint32_t bytes) {
    stream->owed += bytes;
    if (stream->in.used == 0 || stream->owed >= stream->in.capacity / 4) {
        sim_send_control(stream, SIM_CREDIT, (uint32_t)stream->owed);
        stream->owed = 0;
    }
}

static void stream_read(struct sim_stream *stream) {
    struct sim *sim = sim_of_stream(stream);
    uint32_t bytes = stream->in.used, taken = 0;
    if (bytes == 0) {
        if (stream->is_broken || stream->end_arrived) {
            transfer_end(&stream->read, stream->is_broken ? ERR_CLOSED : 0);
        }
        return;
    }
    uint32_t pieces = stream->connection->link->options.pieces;
    if (pieces != 0 && rng_chance(&sim->net_rng, 1, pieces)) {
        bytes = (uint32_t)rng_between(&sim->net_rng, 1, bytes);
    }
    uint32_t step;
    uint8_t *piece;
    while (taken < bytes && (piece = transfer_piece(&stream->read, bytes - taken, &step)) != NULL) {
        sim_bytes_take(&stream->in, piece, step);
        taken += step;
    }
    ASSERT(taken > 0);
    if (!stream->is_broken) {
        give_credit(stream, taken);
    }
    transfer_end(&stream->read, taken);
}

static void stream_write(struct sim_stream *stream) {
    uint32_t step;
    uint8_t *piece;
    if (stream->is_broken || stream->ends_writing) {
        transfer_end(&stream->write, ERR_CLOSED);
        return;
    }
    while (stream->out.used < stream->out.capacity) {
        piece = transfer_piece(&stream->write, stream->out.capacity - stream->out.used, &step);
        if (piece == NULL) {
            break;
        }
        sim_bytes_put(&stream->out, piece, step);
    }
    /* Empty elements at the end are no reason to wait for room. */
    while (stream->write.iov_count > 0 && stream->write.iov[stream->write.iov_first].iov_len == 0) {
        stream->write.iov_first++;
        stream->write.iov_count--;
    }
    bool all = stream->write.iov_count == 0;
    sim_stream_push(stream);
    if (all) {
        transfer_end(&stream->write, OK);
    }
}

/* ---- ends ---- */

static void stream_end(struct sim_stream *stream) {
    if (stream->read.done != NULL) {
        transfer_end(&stream->read, ERR_CANCELLED);
    }
    if (stream->write.done != NULL) {
        transfer_end(&stream->write, ERR_CANCELLED);
    }
    void (*closed)(void *owner) = stream->closed;
    void *owner = stream->closed_owner;
    stream->is_gone = true;
    if (!stream->is_broken) { /* the end, behind what is still to be sent */
        stream->ends_writing = true;
        sim_stream_push(stream);
    }
    sim_connection_release(stream->connection);
    if (closed != NULL) {
        closed(owner);
    }
}

static void stream_run(struct env_task *task) {
    struct sim_stream *stream = CONTAINER_OF(task, struct sim_stream, task);
    stream->task_is_queued = false;
    if (stream->is_closing) {
        stream_end(stream);
        return;
    }
    if (stream->write.done != NULL) {
        stream_write(stream);
    }
    if (!stream->is_closing && stream->read.done != NULL) {
        stream_read(stream);
    }
}

static void sim_stream_close(struct net_stream *base, void (*closed)(void *owner), void *owner) {
    struct sim_stream *stream = sim_stream_of(base);
    ASSERT(!stream->is_closing);
    stream->is_closing = true;
    stream->closed = closed;
    stream->closed_owner = owner;
    if (stream->in.used != 0) {
        sim_stream_reset(base);
    }
    sim_stream_queue(stream);
}

void sim_stream_broke(struct sim_stream *stream) {
    stream->is_broken = true;
    stream->out.used = 0;
    list_remove(&stream->in_ready);
    sim_stream_queue(stream);
}

void sim_stream_shutdown(struct net_stream *base) {
    struct sim_stream *stream = sim_stream_of(base);
    ASSERT(stream->write.done == NULL);
    stream->ends_writing = true;
    sim_stream_push(stream);
}

void sim_stream_reset(struct net_stream *base) {
    struct sim_stream *stream = sim_stream_of(base);
    if (!stream->is_broken) {
        sim_stream_broke(stream);
        sim_send_control(stream, SIM_RESET, 0);
    }
}

void sim_stream_silence(struct net_stream *base, bool silent) {
    struct sim_connection *connection = sim_stream_of(base)->connection;
    connection->silent = silent;
    sim_connection_speak(connection);
}

void sim_stream_break_after(struct net_stream *base, uint64_t bytes, enum sim_break how) {
    struct sim_stream *stream = sim_stream_of(base);
    stream->break_after = bytes;
    stream->break_how = how;
    sim_stream_push(stream);
}

struct net_stream *sim_stream_other_end(struct net_stream *base) {
    struct sim_stream *other = sim_stream_other(sim_stream_of(base));
    return other->is_gone || other->is_closing ? NULL : &other->base;
}

/* ---- connections ---- */

static void end_init(struct sim_connection *connection, uint32_t index, struct env *env,
                     const char *local, const char *peer) {
    struct sim_stream *end = &connection->ends[index];
    uint32_t buffer_bytes = connection->link->options.buffer_bytes;
    end->base.env = env;
    end->connection = connection;
    end->task.run = stream_run;
    end->in.capacity = end->out.capacity = buffer_bytes;
    end->room = buffer_bytes;
    end->break_after = UINT64_MAX;
    list_init(&end->in_ready);
    (void)snprintf(end->base.local, sizeof(end->base.local), "%s", local);
    (void)snprintf(end->base.peer, sizeof(end->base.peer), "%s", peer);
}

struct net_stream *env_sim_connect(struct env *env, struct sim_link *link, const char *address,
                                   const char *from) {
    struct sim *sim = sim_of(env);
    struct sim_connection *connection = sim_alloc(sizeof(*connection));
    connection->link = link;
    connection->number = ++sim->connections_made;
    list_init(&connection->packets);
    list_init(&connection->held);
    list_append(&sim->connections, &connection->in_sim);
    end_init(connection, 0, env, from, address);
    end_init(connection, 1, env, address, from);
    connection->ends[1].is_gone = true; /* until somebody accepts it */
    sim_send_control(&connection->ends[0], SIM_SYN, 0);
    return &connection->ends[0].base;
}

static void connection_free(struct sim_connection *connection) {
    struct sim *sim = connection->link->sim;
    LIST_FOR_EACH_SAFE(it, &connection->packets) {
        sim_packet_free(sim, CONTAINER_OF(it, struct sim_packet, in_connection));
    }
    LIST_FOR_EACH_SAFE(it, &connection->held) {
        sim_packet_free(sim, CONTAINER_OF(it, struct sim_packet, in_connection));
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_stream *end = &connection->ends[i];
        list_remove(&end->in_ready);
        mem_free(end->in.data);
        mem_free(end->out.data);
        mem_free(end->read.iov);
        mem_free(end->write.iov);
    }
    list_remove(&connection->in_sim);
    mem_free(connection);
}

void sim_connection_release(struct sim_connection *connection) {
    if (connection->ends[0].is_gone && connection->ends[1].is_gone) {
        connection_free(connection);
    }
}

void sim_net_drop(struct sim *sim) {
    struct list *node;
    while (!list_is_empty(&sim->connections)) {
        connection_free(CONTAINER_OF(sim->connections.next, struct sim_connection, in_sim));
    }
    while ((node = list_pop(&sim->listeners)) != NULL) {
        mem_free(CONTAINER_OF(node, struct sim_listener, in_sim));
    }
}

void sim_net_done(struct sim *sim) {
    struct list *node;
    sim_net_drop(sim);
    while ((node = list_pop(&sim->links)) != NULL) {
        struct sim_link *link = CONTAINER_OF(node, struct sim_link, in_sim);
        sim_unschedule(sim, &link->wires[0].free);
        sim_unschedule(sim, &link->wires[1].free);
        mem_free(link);
    }
}

const struct net_ops sim_net_ops = {
    .listen = sim_listen,
    .listener_close = sim_listener_close,
    .readv = sim_readv,
    .writev = sim_writev,
    .stream_close = sim_stream_close,
};
