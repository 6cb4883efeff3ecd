// SPDX-License-Identifier: MPL-2.0
/* Simulated networks: bytes arrive whole and in order however they are cut up, links have the speed
 * they are said to have, and ends break where and how they are told to. */
#include "unit.h"

#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "env/sim/net.h"
#include "env/sim/sim.h"

#define ADDRESS "192.0.2.1:3260"
#define FROM "198.51.100.7:40000"

enum { PIECE_BYTES = 32 << 10 };

/* One end of a connection: reads all the time unless it is told not to, and counts. */
struct end {
    struct net_stream *stream;
    uint8_t piece[PIECE_BYTES];
    uint64_t read_bytes;
    uint64_t read_max; /* reads no more than that; 0: all */
    int64_t ended;     /* the last read's result, when it was no data */
    bool has_ended, wrong, closed, written;
    int64_t write_result;
};

struct world {
    struct env *env;
    struct sim_link *link;
    struct net_listener *listener;
    struct end client, server;
    uint32_t accepted;
    bool reads;
};

/* What the n-th byte of any stream of these tests is. */
static uint8_t byte_at(uint64_t n) {
    return (uint8_t)(n * 131 + (n >> 8) * 7);
}

static void end_read(struct end *end);

static void end_came(void *owner, int64_t result) {
    struct end *end = owner;
    if (result <= 0) {
        end->has_ended = true;
        end->ended = result;
        return;
    }
    for (int64_t i = 0; i < result; i++) {
        end->wrong |= end->piece[i] != byte_at(end->read_bytes++);
    }
    end_read(end);
}

static void end_read(struct end *end) {
    if (end->read_max == 0 || end->read_bytes < end->read_max) {
        struct iovec iov[3] = {{end->piece, 100}, {end->piece + 100, 0}, {end->piece + 100, 30000}};
        net_stream_readv(end->stream, iov, 3, end_came, end);
    }
}

static void end_written(void *owner, int64_t result) {
    struct end *end = owner;
    end->written = true;
    end->write_result = result;
}

static void end_write(struct end *end, uint8_t *bytes, size_t length) {
    end->written = false;
    struct iovec iov[3] = {{bytes, length / 3}, {bytes + length / 3, length - length / 3}, {0, 0}};
    net_stream_writev(end->stream, iov, 3, end_written, end);
}

static void end_closed(void *owner) {
    ((struct end *)owner)->closed = true;
}

static void on_accepted(void *owner, struct net_stream *stream) {
    struct world *w = owner;
    w->accepted++;
    w->server.stream = stream;
    assert_string_equal(net_stream_peer(stream), FROM);
    assert_string_equal(net_stream_local(stream), ADDRESS);
    if (w->reads) {
        end_read(&w->server);
    }
}

static struct world *world_new(uint64_t seed, const struct sim_link_options *options) {
    struct world *w = MEM_NEW(struct world);
    w->env = env_sim_new(&(struct env_sim_options){.seed = seed});
    w->link = env_sim_link_add(w->env, options);
    w->reads = true;
    assert_int_equal(net_listen(w->env, ADDRESS, on_accepted, w, &w->listener, NULL), OK);
    w->client.stream = env_sim_connect(w->env, w->link, ADDRESS, FROM);
    return w;
}

static void settle(struct world *w) {
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, NULL, NULL), SIM_IDLE);
}

static void advance(struct world *w, uint64_t ns) {
    (void)env_sim_run_until(w->env, env_now_ns(w->env) + ns, NULL, NULL);
}

/* Whoever is still open is closed; nothing may be left. */
static void world_free(struct world *w) {
    settle(w);
    struct end *ends[] = {&w->client, &w->server};
    for (int i = 0; i < 2; i++) {
        if (ends[i]->stream != NULL && !ends[i]->closed) {
            net_stream_close(ends[i]->stream, end_closed, ends[i]);
        }
    }
    settle(w);
    assert_true(w->client.closed && (w->accepted == 0 || w->server.closed));
    assert_false(w->client.wrong || w->server.wrong);
    net_listener_close(w->listener);
    env_sim_free(w->env);
    mem_free(w);
    assert_int_equal(mem_in_use_bytes(), 0);
}

static uint8_t *pattern(size_t length) {
    uint8_t *bytes = mem_alloc(length);
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(i);
    }
    return bytes;
}

/* ---- bytes ---- */

static uint64_t both_ways(uint64_t seed) {
    enum { BYTES = 60000 };
    struct sim_link_options options = {.mbit_s = seed % 2 == 0 ? 100 : 0,
                                       .latency_ns = 50 * NS_PER_US,
                                       .jitter_ns = 30 * NS_PER_US,
                                       .buffer_bytes = 1000 + 999 * (uint32_t)(seed % 7),
                                       .pieces = 2};
    struct world *w = world_new(seed, &options);
    uint8_t *bytes = pattern(BYTES);
    end_write(&w->client, bytes, BYTES);
    end_read(&w->client);
    advance(w, NS_PER_MS);
    assert_non_null(w->server.stream);
    end_write(&w->server, bytes, BYTES);
    settle(w);
    assert_true(w->client.written && w->server.written);
    assert_int_equal(w->client.write_result, OK);
    assert_int_equal(w->server.read_bytes, BYTES);
    assert_int_equal(w->client.read_bytes, BYTES);
    assert_int_equal(sim_link_carried_bytes(w->link, 0), BYTES);
    net_stream_close(w->client.stream, end_closed, &w->client);
    settle(w);
    assert_true(w->server.has_ended);
    assert_int_equal(w->server.ended, 0);
    uint64_t hash = env_sim_trace_hash(w->env);
    mem_free(bytes);
    world_free(w);
    return hash;
}

static void test_both_ways_in_pieces(void **state) {
    (void)state;
    uint64_t first = both_ways(1), different = 0;
    for (uint64_t seed = 2; seed < 14; seed++) {
        different += both_ways(seed) != first;
    }
    assert_int_equal(different, 12);
    assert_int_equal(both_ways(1), first);
}

/* ---- speed ---- */

/* Sends as much as the link takes in a fifth of a second; returns decimal megabytes a second. */
static double megabytes_a_second(struct sim_link_options options) {
    enum { BYTES = 40000000, PART = 5 };
    struct world *w = world_new(1, &options);
    uint8_t *bytes = mem_alloc(BYTES);
    w->server.wrong = false;
    end_write(&w->client, bytes, BYTES);
    advance(w, NS_PER_S / PART);
    double megabytes = (double)w->server.read_bytes * PART / 1e6;
    double busy = (double)sim_link_busy_ns(w->link, 0) * PART / NS_PER_S;
    assert_true(busy <= 1.001 && (options.latency_ns > NS_PER_MS || busy > 0.95));
    w->server.wrong = false; /* the content is zeros here */
    sim_stream_reset(w->client.stream);
    net_stream_close(w->client.stream, end_closed, &w->client);
    settle(w);
    w->server.wrong = false;
    mem_free(bytes);
    world_free(w);
    return megabytes;
}

static void test_rates(void **state) {
    (void)state;
    struct sim_link_options gigabit = {.mbit_s = 1000, .latency_ns = 30 * NS_PER_US};
    double rate = megabytes_a_second(gigabit);
    assert_true(rate > 116 && rate < 118); /* 125 × 1448 / 1538 */
    gigabit.mtu_bytes = 9000;
    rate = megabytes_a_second(gigabit);
    assert_true(rate > 122 && rate < 124);
    /* A window of 256 KiB and a round trip of 20 ms: 13 MB/s, whatever the rate. */
    gigabit.latency_ns = 10 * NS_PER_MS;
    rate = megabytes_a_second(gigabit);
    assert_true(rate > 9 && rate < 14);
}

struct second {
    struct end end;
};

static void second_accepted(void *owner, struct net_stream *stream) {
    struct second *second = owner;
    second->end.stream = stream;
    end_read(&second->end);
}

static void test_connections_share_a_link(void **state) {
    (void)state;
    enum { BYTES = 5000000 };
    struct world *w = world_new(1, &(struct sim_link_options){.mbit_s = 1000});
    struct second other_server = {0};
    struct net_listener *listener;
    assert_int_equal(
        net_listen(w->env, "0.0.0.0:860", second_accepted, &other_server, &listener, NULL), OK);
    struct end other = {.stream = env_sim_connect(w->env, w->link, "192.0.2.9:860", FROM)};
    uint8_t *bytes = pattern(BYTES);
    end_write(&w->client, bytes, BYTES);
    end_write(&other, bytes, BYTES);
    advance(w, NS_PER_S / 20);
    double share = (double)w->server.read_bytes / (double)other_server.end.read_bytes;
    assert_true(share > 0.95 && share < 1.05);
    settle(w);
    assert_int_equal(other_server.end.read_bytes, BYTES);
    assert_false(other_server.end.wrong);
    net_stream_close(other.stream, end_closed, &other);
    settle(w);
    net_stream_close(other_server.end.stream, end_closed, &other_server.end);
    net_listener_close(listener);
    mem_free(bytes);
    world_free(w);
}

static void test_round_trips(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.latency_ns = 5 * NS_PER_MS});
    uint64_t began_ns = env_now_ns(w->env);
    uint8_t byte = byte_at(0);
    end_write(&w->client, &byte, 1);
    (void)env_sim_run_until(w->env, began_ns + 14 * NS_PER_MS, NULL, NULL);
    assert_int_equal(w->accepted, 1);
    assert_int_equal(w->server.read_bytes, 0); /* a round trip to connect, then half of one */
    (void)env_sim_run_until(w->env, began_ns + 15 * NS_PER_MS, NULL, NULL);
    assert_int_equal(w->server.read_bytes, 1);
    world_free(w);
}

/* ---- buffers ---- */

static void test_buffers_fill_up(void **state) {
    (void)state;
    enum { BYTES = 10000 };
    struct world *w = world_new(1, &(struct sim_link_options){.buffer_bytes = 1000});
    w->server.read_max = 1;
    uint8_t *bytes = pattern(BYTES);
    end_write(&w->client, bytes, BYTES);
    advance(w, NS_PER_S);
    assert_false(w->client.written);
    assert_true(w->server.read_bytes >= 1 && w->server.read_bytes <= 1000);
    assert_true(sim_link_carried_bytes(w->link, 0) <= w->server.read_bytes + 1000);
    w->server.read_max = 0;
    end_read(&w->server);
    settle(w);
    assert_true(w->client.written);
    assert_int_equal(w->client.write_result, OK);
    assert_int_equal(w->server.read_bytes, BYTES);
    mem_free(bytes);
    world_free(w);
}

/* ---- ends ---- */

static void test_half_closed(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.latency_ns = NS_PER_MS});
    uint8_t *bytes = pattern(1000);
    end_write(&w->client, bytes, 1000);
    end_read(&w->client);
    settle(w);
    sim_stream_shutdown(w->client.stream);
    settle(w);
    assert_int_equal(w->server.read_bytes, 1000);
    assert_true(w->server.has_ended);
    assert_int_equal(w->server.ended, 0);
    end_write(&w->server, bytes, 1000); /* the other way still is open */
    settle(w);
    assert_int_equal(w->client.read_bytes, 1000);
    assert_false(w->client.has_ended);
    mem_free(bytes);
    world_free(w);
}

static void test_closing_with_something_unread_breaks_off(void **state) {
    (void)state;
    for (int unread = 0; unread < 2; unread++) {
        struct world *w = world_new(1, &(struct sim_link_options){.latency_ns = NS_PER_MS});
        w->reads = !unread;
        uint8_t *bytes = pattern(1000);
        end_read(&w->client);
        end_write(&w->client, bytes, 1000);
        settle(w);
        net_stream_close(w->server.stream, end_closed, &w->server);
        settle(w);
        assert_true(w->client.has_ended);
        assert_int_equal(w->client.ended, unread ? ERR_CLOSED : 0);
        /* Writing to whoever has gone: taken at first, then the connection breaks off. */
        end_write(&w->client, bytes, 1000);
        settle(w);
        assert_int_equal(w->client.write_result, unread ? ERR_CLOSED : OK);
        end_write(&w->client, bytes, 1000);
        settle(w);
        assert_int_equal(w->client.write_result, ERR_CLOSED);
        mem_free(bytes);
        world_free(w);
    }
}

static void test_close_sends_what_was_written(void **state) {
    (void)state;
    struct world *w =
        world_new(1, &(struct sim_link_options){.latency_ns = NS_PER_MS, .buffer_bytes = 60000});
    uint8_t *bytes = pattern(50000);
    end_write(&w->client, bytes, 50000);
    advance(w, 1000); /* it is in the buffer; the connection is not even there */
    assert_true(w->client.written);
    settle(w);
    end_write(&w->client, bytes, 0);
    settle(w);
    net_stream_close(w->client.stream, end_closed, &w->client);
    settle(w);
    assert_int_equal(w->server.read_bytes, 50000);
    assert_int_equal(w->server.ended, 0);
    mem_free(bytes);
    world_free(w);
}

static void test_outstanding_calls_are_cancelled(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.buffer_bytes = 100});
    uint8_t *bytes = pattern(1000);
    w->reads = false;
    settle(w);
    end_read(&w->client);
    end_write(&w->client, bytes, 1000);
    advance(w, NS_PER_S);
    net_stream_close(w->client.stream, end_closed, &w->client);
    assert_false(w->client.closed);
    settle(w);
    assert_true(w->client.closed);
    assert_int_equal(w->client.ended, ERR_CANCELLED);
    assert_int_equal(w->client.write_result, ERR_CANCELLED);
    mem_free(bytes);
    world_free(w);
}

static void test_nobody_listens(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.latency_ns = NS_PER_MS});
    struct end other = {.stream = env_sim_connect(w->env, w->link, "192.0.2.1:99", FROM)};
    end_read(&other);
    settle(w);
    assert_int_equal(other.ended, ERR_CLOSED);
    net_stream_close(other.stream, end_closed, &other);
    settle(w);
    /* Closed before anybody has noticed. */
    other.stream = env_sim_connect(w->env, w->link, ADDRESS, FROM);
    net_stream_close(other.stream, end_closed, &other);
    settle(w);
    assert_int_equal(w->accepted, 1);
    world_free(w);
}

static void test_listeners(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.pieces = 0});
    struct net_listener *listener;
    struct errmsg message = {0};
    assert_int_equal(net_listen(w->env, ADDRESS, on_accepted, w, &listener, &message), ERR_BUSY);
    assert_int_equal(net_listen(w->env, "nonsense", on_accepted, w, &listener, NULL), ERR_INVALID);
    assert_int_equal(net_listen(w->env, "[::1]:0", on_accepted, w, &listener, NULL), OK);
    assert_string_not_equal(net_listener_address(listener), "[::1]:0");
    net_listener_close(listener);
    world_free(w);
}

/* ---- breaking ---- */

/* Client sends BYTES and breaks after `at` of them: exactly so many arrive, and what follows is
 * what was asked for. */
static void break_at(uint64_t at, enum sim_break how) {
    enum { BYTES = 40 };
    struct world *w =
        world_new(at, &(struct sim_link_options){.latency_ns = NS_PER_MS, .pieces = 3});
    uint8_t *bytes = pattern(BYTES);
    sim_stream_break_after(w->client.stream, at, how);
    end_read(&w->client);
    end_write(&w->client, bytes, BYTES);
    settle(w);
    assert_int_equal(w->server.read_bytes, at);
    assert_int_equal(w->server.has_ended, how != SIM_BREAK_SILENCE);
    assert_int_equal(w->server.ended, how == SIM_BREAK_RESET ? ERR_CLOSED : 0);
    assert_int_equal(w->client.has_ended, how == SIM_BREAK_RESET);
    if (how == SIM_BREAK_SILENCE) {
        end_write(&w->server, bytes, BYTES);
        settle(w);
        assert_int_equal(w->client.read_bytes, 0);
        sim_stream_silence(w->server.stream, false); /* it was only away */
        settle(w);
        assert_int_equal(w->client.read_bytes, BYTES);
        assert_int_equal(w->server.read_bytes, at == 0 ? BYTES : at + (BYTES - at));
    }
    mem_free(bytes);
    world_free(w);
}

static void test_breaks_at_every_byte(void **state) {
    (void)state;
    for (uint64_t at = 0; at <= 40; at++) {
        break_at(at, SIM_BREAK_RESET);
        break_at(at, SIM_BREAK_SHUTDOWN);
        break_at(at, SIM_BREAK_SILENCE);
    }
}

static void test_a_cable_is_pulled(void **state) {
    (void)state;
    enum { BYTES = 100000 };
    struct world *w = world_new(1, &(struct sim_link_options){.mbit_s = 100});
    uint8_t *bytes = pattern(BYTES);
    end_write(&w->client, bytes, BYTES);
    advance(w, 2 * NS_PER_MS);
    uint64_t before = w->server.read_bytes;
    assert_true(before > 0 && before < BYTES);
    sim_link_set_down(w->link, true);
    advance(w, 60 * NS_PER_S);
    assert_true(w->server.read_bytes <= before + (16 << 10) && !w->server.has_ended);
    sim_link_set_down(w->link, false);
    settle(w);
    assert_int_equal(w->server.read_bytes, BYTES);
    mem_free(bytes);
    world_free(w);
}

static void test_power_cut(void **state) {
    (void)state;
    struct world *w = world_new(1, &(struct sim_link_options){.latency_ns = NS_PER_MS});
    uint8_t *bytes = pattern(1000);
    end_write(&w->client, bytes, 1000);
    advance(w, 2 * NS_PER_MS);
    env_sim_power_cut(w->env); /* streams and listener are gone, with what was under way */
    settle(w);
    assert_int_equal(w->server.read_bytes, 0);
    assert_int_equal(net_listen(w->env, ADDRESS, on_accepted, w, &w->listener, NULL), OK);
    w->client = (struct end){.stream = env_sim_connect(w->env, w->link, ADDRESS, FROM)};
    w->server = (struct end){0};
    end_write(&w->client, bytes, 1000);
    settle(w);
    assert_int_equal(w->server.read_bytes, 1000);
    mem_free(bytes);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_in_pieces),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_connections_share_a_link),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_buffers_fill_up),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_closing_with_something_unread_breaks_off),
        cmocka_unit_test(test_close_sends_what_was_written),
        cmocka_unit_test(test_outstanding_calls_are_cancelled),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_listeners),
        cmocka_unit_test(test_breaks_at_every_byte),
        cmocka_unit_test(test_a_cable_is_pulled),
        cmocka_unit_test(test_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
