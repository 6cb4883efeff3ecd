// SPDX-License-Identifier: MPL-2.0
/* The way between client and array of `holdfast bench model`: an initiator, simulated cables, and
 * the real target, in front of a volume in memory. What comes through must be what was sent. */
#include "unit.h"

#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/initiator.h"
#include "bench/link.h"
#include "env/sim/net.h"
#include "env/sim/sim.h"
#include "memory_volume.h"
#include "volume_client.h"

enum { VOLUME_BYTES = 16 << 20, CLIENTS = 200 };

struct world {
    struct env *env;
    struct memory_volume volume;
    struct link *link;
    void (*main)(struct world *w);
    uint32_t clients_left, running;
    struct fiber_queue ended;
    bool done;
};

static void world_fiber(void *arg) {
    struct world *w = arg;
    w->main(w);
    w->done = true;
}

static bool world_is_done(void *ctx) {
    return ((const struct world *)ctx)->done;
}

static void run(void (*main)(struct world *w)) {
    struct world *w = MEM_NEW(struct world);
    struct mem_scope scope;
    mem_scope_init(&scope);
    w->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    struct mem_scope *outer = mem_scope_enter(&scope);
    memory_volume_init(&w->volume, w->env, VOLUME_BYTES, 512);
    w->main = main;
    fiber_queue_init(&w->ended);
    fiber_start(w->env, world_fiber, w);
    assert_int_equal(env_sim_run_until(w->env, 1000 * NS_PER_S, world_is_done, w), SIM_DONE);
    memory_volume_done(&w->volume);
    mem_scope_enter(outer);
    assert_true(list_is_empty(&scope.allocations)); /* whoever ends leaves nothing */
    env_sim_free(w->env);
    mem_free(w);
}

static void link_up(struct world *w, const char *text) {
    struct link_options options;
    struct errmsg why = {0};
    assert_int_equal(link_parse(text, &options, NULL), OK);
    if (link_new(&w->volume.door, w->volume.info.id, VOLUME_BYTES, &options, &w->link, &why) !=
        OK) {
        fail_msg("%s", why.text);
    }
}

/* ---- content ---- */

/* Each has a part of the volume for itself, and writes and reads pieces of any length there. */
static void client(void *arg) {
    struct world *w = arg;
    struct rng rng;
    uint32_t index = --w->clients_left;
    uint64_t part = VOLUME_BYTES / CLIENTS / 512 * 512;
    uint8_t *model = MEM_NEW_ARRAY(uint8_t, part), *data = mem_alloc(part);
    rng_init(&rng, index);
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t from = rng_below(&rng, part / 512) * 512;
        uint64_t bytes = rng_between(&rng, 1, (part - from) / 512) * 512;
        bool writes = rng_chance(&rng, 1, 2);
        if (writes) {
            rng_fill(&rng, model + from, bytes);
            memcpy(data, model + from, bytes);
        } else {
            memset(data, 0xee, bytes);
        }
        assert_int_equal(volume_run(link_door(w->link), w->volume.info.id,
                                    writes ? VOLUME_WRITE : VOLUME_READ, index * part + from, bytes,
                                    data),
                         OK);
        assert_memory_equal(data, model + from, bytes);
    }
    assert_memory_equal(w->volume.data + index * part, model, part);
    mem_free(model);
    mem_free(data);
}

static void client_fiber(void *arg) {
    struct world *w = arg;
    client(w);
    if (--w->running == 0) {
        fiber_queue_wake_all(&w->ended);
    }
}

static void content_over(struct world *w, const char *text) {
    w->volume.delay_ns = 200000;
    w->volume.disorder = 3;
    link_up(w, text);
    w->clients_left = w->running = CLIENTS; /* more than a session has command numbers */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        fiber_start(w->env, client_fiber, w);
    }
    while (w->running > 0) {
        fiber_queue_wait(&w->ended);
    }
    link_free(w->link);
}

static void one_path(struct world *w) {
    content_over(w, "1gbe");
}

static void three_paths(struct world *w) {
    content_over(w, "3x10gbe");
}

static void no_path(struct world *w) {
    content_over(w, "local");
}

static void what_comes_is_what_was_sent(void **state) {
    (void)state;
    run(one_path);
    run(three_paths);
    run(no_path);
}

/* Longer than a burst: several R2Ts, and Data-In of several segments; in pieces of memory. */
static void long_requests(struct world *w) {
    struct rng rng;
    uint32_t bytes = 3 << 20;
    uint8_t *data = mem_alloc(bytes), *back = mem_alloc(bytes);
    rng_init(&rng, 5);
    rng_fill(&rng, data, bytes);
    link_up(w, "2x1gbe");
    for (uint32_t writes = 0; writes < 2; writes++) {
        uint8_t *at = writes == 0 ? data : back;
        struct iovec iov[3] = {{at, 1000}, {at + 1000, 300000}, {at + 301000, bytes - 301000}};
        struct volume_wait wait = {.request = {.client = w->env,
                                               .door = link_door(w->link),
                                               .volume_id = w->volume.info.id,
                                               .op = writes == 0 ? VOLUME_WRITE : VOLUME_READ,
                                               .offset_bytes = 512,
                                               .length_bytes = bytes,
                                               .iov = iov,
                                               .iov_count = 3,
                                               .done = volume_wait_done},
                                   .fiber = fiber_self()};
        volume_submit(&wait.request);
        while (!wait.done) {
            fiber_park();
        }
        assert_int_equal(wait.request.status, OK);
    }
    assert_memory_equal(data, back, bytes);
    assert_memory_equal(w->volume.data + 512, data, bytes);
    mem_free(data);
    mem_free(back);
    link_free(w->link);
}

static void long_requests_come_whole(void **state) {
    (void)state;
    run(long_requests);
}

/* ---- time ---- */

static uint64_t took_ns(struct world *w, enum volume_op op, uint32_t bytes) {
    uint8_t *data = MEM_NEW_ARRAY(uint8_t, bytes);
    uint64_t from = env_now_ns(w->env);
    assert_int_equal(volume_run(link_door(w->link), 7, op, 0, bytes, data), OK);
    mem_free(data);
    return env_now_ns(w->env) - from;
}

static void latencies(struct world *w) {
    link_up(w, "1gbe");
    (void)took_ns(w, VOLUME_READ, 512); /* the unit attention of a new session */
    /* 30 us there (138 bytes), 31 us of work, 650 bytes and 30 us back. */
    uint64_t read_ns = took_ns(w, VOLUME_READ, 512);
    assert_true(read_ns > 91000 + 138 * 8 + 650 * 8 - 2000);
    assert_true(read_ns < 91000 + 138 * 8 + 650 * 8 + 2000);
    /* Within the first burst: one way. Beyond it is asked for: another way there and back. */
    uint64_t short_ns = took_ns(w, VOLUME_WRITE, 256 << 10);
    uint64_t long_ns = took_ns(w, VOLUME_WRITE, 512 << 10);
    uint64_t bits_ns = (uint64_t)(256 << 10) * 8 * 1538 / 1448;
    assert_in_range(short_ns, bits_ns + 91000, bits_ns + 91000 + 150000);
    assert_in_range(long_ns - short_ns, bits_ns + 60000 - 5000, bits_ns + 60000 + 150000);
    link_free(w->link);
}

static void a_command_takes_its_way(void **state) {
    (void)state;
    run(latencies);
}

/* ---- what goes wrong ---- */

static void errors(struct world *w) {
    uint8_t data[4096];
    link_up(w, "2x1gbe");
    struct volume_door *door = link_door(w->link);
    w->volume.fail_op = VOLUME_READ;
    w->volume.fail_status = ERR_CHECKSUM;
    assert_int_equal(volume_run(door, 7, VOLUME_READ, 0, 4096, data), ERR_IO);
    w->volume.fail_op = VOLUME_WRITE;
    w->volume.fail_status = ERR_NO_SPACE;
    assert_int_equal(volume_run(door, 7, VOLUME_WRITE, 0, 4096, data), ERR_NO_SPACE);
    w->volume.fail_status = OK;
    assert_int_equal(volume_run(door, 7, VOLUME_WRITE, 0, 4096, data), OK);
    assert_int_equal(volume_run(door, 7, VOLUME_READ, VOLUME_BYTES, 4096, data), ERR_IO);
    assert_int_equal(volume_run(door, 7, VOLUME_FLUSH, 0, 0, NULL), ERR_UNSUPPORTED);
    assert_int_equal(volume_run(door, 7, VOLUME_READ, 100, 512, data), ERR_UNSUPPORTED);
    link_free(w->link);
}

/* A target made of a script: it answers whatever comes with what it was told to. */
struct liar {
    struct net_listener *listener;
    struct net_stream *stream;
    const uint8_t *answers[4];
    uint32_t answered, bytes[4];
    uint8_t in[8192];
    bool closed;
};

static void liar_read(struct liar *liar);

static void liar_wrote(void *owner, int64_t result) {
    (void)owner;
    (void)result;
}

static void liar_came(void *owner, int64_t result) {
    struct liar *liar = owner;
    if (result <= 0) {
        return;
    }
    if (liar->answers[liar->answered] != NULL) {
        struct iovec iov = {(void *)(uintptr_t)liar->answers[liar->answered],
                            liar->bytes[liar->answered]};
        liar->answered++;
        net_stream_writev(liar->stream, &iov, 1, liar_wrote, liar);
    }
    liar_read(liar);
}

static void liar_read(struct liar *liar) {
    struct iovec iov = {liar->in, sizeof(liar->in)};
    net_stream_readv(liar->stream, &iov, 1, liar_came, liar);
}

static void liar_accepted(void *owner, struct net_stream *stream) {
    struct liar *liar = owner;
    liar->stream = stream;
    liar_read(liar);
}

static void liar_closed(void *owner) {
    ((struct liar *)owner)->closed = true;
}

/* What a read and a login get when the answers are these. */
static int meet(struct world *w, const uint8_t *login, const uint8_t *answer, uint32_t bytes) {
    struct liar *liar = MEM_NEW(struct liar);
    uint8_t data[4096];
    liar->answers[0] = login;
    liar->answers[1] = answer;
    liar->bytes[0] = 48;
    liar->bytes[1] = bytes;
    assert_int_equal(
        net_listen(w->env, "192.0.2.9:3260", liar_accepted, liar, &liar->listener, NULL), OK);
    struct sim_link *cable = env_sim_link_add(w->env, &(struct sim_link_options){.mbit_s = 1000});
    struct initiator *initiator = initiator_new(w->env, "iqn.2026-01.io.holdfast:liar");
    struct net_stream *stream =
        env_sim_connect(w->env, cable, "192.0.2.9:3260", "198.51.100.9:40000");
    int error = initiator_add_session(initiator, stream, NULL);
    if (error == OK) {
        error = volume_run(initiator_door(initiator), 7, VOLUME_READ, 0, 4096, data);
        assert_int_equal(volume_run(initiator_door(initiator), 7, VOLUME_READ, 0, 4096, data),
                         error); /* it stays ended */
    }
    initiator_free(initiator);
    net_listener_close(liar->listener);
    if (liar->stream != NULL) {
        net_stream_close(liar->stream, liar_closed, liar);
        while (!liar->closed) {
            fiber_sleep_until(env_now_ns(w->env) + NS_PER_MS);
        }
    }
    mem_free(liar);
    return error;
}

static void lies(struct world *w) {
    static const uint8_t good[48] = {[0] = 0x23, [1] = 0x87, [35] = 32},
                         refused[48] = {[0] = 0x23, [1] = 0x87, [36] = 2, [37] = 1},
                         no_transit[48] = {[0] = 0x23, [1] = 0x04}, no_login[48] = {[0] = 0x20},
                         no_such_tag[48] = {[0] = 0x21, [19] = 1, [35] = 32},
                         too_early[48] = {[0] = 0x25, [1] = 0x81, [35] = 32},
                         too_much[48] = {[0] = 0x25, [1] = 0x80, [6] = 0x20, [35] = 32},
                         elsewhere[48] = {[0] = 0x25, [1] = 0x80, [6] = 2, [42] = 0x10, [35] = 32},
                         asks_a_reader[48] = {[0] = 0x31, [1] = 0x80, [46] = 2, [35] = 32},
                         unknown[48] = {[0] = 0x3e, [35] = 32},
                         additional[48] = {[0] = 0x21, [4] = 1, [35] = 32},
                         huge[48] = {[0] = 0x21, [5] = 0xff, [35] = 32};
    const uint8_t *const bad[] = {no_such_tag,   too_early, too_much,   elsewhere,
                                  asks_a_reader, unknown,   additional, huge};
    assert_int_equal(meet(w, refused, NULL, 0), ERR_PERMISSION);
    assert_int_equal(meet(w, no_transit, NULL, 0), ERR_PROTOCOL);
    assert_int_equal(meet(w, no_login, NULL, 0), ERR_PROTOCOL);
    assert_int_equal(meet(w, NULL, NULL, 0), ERR_TIMEOUT);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(meet(w, good, bad[i], 48), ERR_PROTOCOL);
    }
    /* Nobody listens. */
    struct sim_link *cable = env_sim_link_add(w->env, &(struct sim_link_options){.mbit_s = 1000});
    struct initiator *initiator = initiator_new(w->env, "iqn.2026-01.io.holdfast:nobody");
    struct errmsg why = {0};
    assert_int_equal(initiator_add_session(
                         initiator,
                         env_sim_connect(w->env, cable, "192.0.2.8:3260", "198.51.100.9:40000"),
                         &why),
                     ERR_CLOSED);
    assert_non_null(strstr(why.text, "session ended"));
    initiator_free(initiator);
}

static void errors_come_through_and_lies_do_not(void **state) {
    (void)state;
    run(errors);
    run(lies);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_what_was_sent),
        cmocka_unit_test(long_requests_come_whole),
        cmocka_unit_test(a_command_takes_its_way),
        cmocka_unit_test(errors_come_through_and_lies_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
