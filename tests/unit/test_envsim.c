// SPDX-License-Identifier: MPL-2.0
/* The simulated environment: content, cache and power cuts, faults, determinism. What the models
 * say about speed is in tests/sim/test_models.c. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/sim.h"

enum { BLOCK = 4096, SECTOR = 512 };

struct world {
    struct env *env;
    struct sim_disk *disk;
    struct env_disk *handle;
};

static void world_plug(struct world *w) {
    struct env_disk_options options = {.exclusive = true};
    assert_int_equal(env_disk_open(w->env, "d0", &options, &w->handle, NULL), OK);
}

static struct world world_new(uint64_t seed, const char *model, bool cache_off) {
    struct world w = {.env = env_sim_new(&(struct env_sim_options){.seed = seed})};
    struct sim_disk_options options = {
        .model = model, .path = "d0", .size_bytes = 16 << 20, .cache_off = cache_off};
    assert_int_equal(env_sim_disk_add(w.env, &options, &w.disk, NULL), OK);
    world_plug(&w);
    return w;
}

struct job {
    struct env_io io;
    struct iovec iov;
    bool done;
    uint64_t ended_ns;
    struct env *env;
};

static void job_done(struct env_io *io) {
    struct job *job = CONTAINER_OF(io, struct job, io);
    assert_false(job->done);
    job->done = true;
    job->ended_ns = env_now_ns(job->env);
}

static bool job_is_done(void *ctx) {
    return ((struct job *)ctx)->done;
}

static struct buf *filled(uint32_t blocks, uint8_t value) {
    struct buf *buf = buf_new((size_t)blocks * BLOCK);
    memset(buf->data, value, buf->bytes);
    return buf;
}

static void job_start(struct world *w, struct job *job, enum env_io_op op, uint64_t block,
                      struct buf *buf, bool durable) {
    *job = (struct job){.env = w->env};
    job->io = (struct env_io){.op = op,
                              .durable = durable,
                              .offset_bytes = block * BLOCK,
                              .length_bytes = buf == NULL ? 0 : buf->bytes,
                              .iov = &job->iov,
                              .iov_count = buf == NULL ? 0 : 1,
                              .done = job_done};
    if (buf != NULL) {
        job->iov = (struct iovec){buf->data, buf->bytes};
    }
    env_disk_submit(w->handle, &job->io);
    assert_false(job->done); /* never from inside submit */
}

static int run(struct world *w, enum env_io_op op, uint64_t block, struct buf *buf, bool durable) {
    struct job job;
    job_start(w, &job, op, block, buf, durable);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, job_is_done, &job), SIM_DONE);
    return job.io.result;
}

static int write_value(struct world *w, uint64_t block, uint32_t blocks, uint8_t value,
                       bool durable) {
    struct buf *buf = filled(blocks, value);
    int result = run(w, ENV_IO_WRITE, block, buf, durable);
    buf_unref(buf);
    return result;
}

/* The value of one sector as the medium (or the cache above it) has it. */
static uint8_t peek(const struct world *w, uint64_t block, uint32_t sector) {
    uint8_t data[BLOCK];
    sim_disk_peek(w->disk, block * BLOCK, data);
    return data[sector * SECTOR];
}

static const char *const all_models[] = {"hdd", "hdd-large", "ssd", "nvme", "nvme-plp"};

static void test_round_trip(void **state) {
    (void)state;
    for (uint32_t m = 0; m < ARRAY_COUNT(all_models); m++) {
        struct world w = world_new(1, all_models[m], false);
        assert_int_equal(write_value(&w, 10, 3, 0x11, false), OK);
        assert_int_equal(write_value(&w, 11, 1, 0x22, true), OK);
        struct buf *buf = filled(5, 0xff);
        assert_int_equal(run(&w, ENV_IO_READ, 9, buf, false), OK);
        uint8_t expected[] = {0, 0x11, 0x22, 0x11, 0};
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(buf->data[i * BLOCK + 77], expected[i]);
        }
        buf_unref(buf);
        assert_int_equal(run(&w, ENV_IO_FLUSH, 0, NULL, false), OK);
        env_sim_free(w.env);
    }
    assert_int_equal(mem_in_use_bytes(), 0);
}

static void test_zeros_take_no_memory(void **state) {
    (void)state;
    struct world w = world_new(1, "nvme-plp", false);
    assert_int_equal(write_value(&w, 0, 64, 0x11, false), OK);
    assert_int_equal(env_sim_content_bytes(w.env), 64 * BLOCK);
    assert_int_equal(write_value(&w, 0, 63, 0, false), OK);
    assert_int_equal(env_sim_content_bytes(w.env), BLOCK);
    env_sim_free(w.env);
}

/* Writes version 1 and flushes, then version 2 without: after a cut each sector is one of the two,
 * over many seeds both occur, blocks are torn, and nothing else ever changes. */
static void test_cut_keeps_any_subset_of_unflushed(void **state) {
    (void)state;
    uint32_t old = 0, new = 0, torn = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world w = world_new(seed, all_models[seed % 4], false);
        assert_int_equal(write_value(&w, 100, 8, 1, false), OK);
        assert_int_equal(run(&w, ENV_IO_FLUSH, 0, NULL, false), OK);
        assert_int_equal(write_value(&w, 102, 2, 2, false), OK);
        env_sim_power_cut(w.env);
        for (uint64_t block = 100; block < 108; block++) {
            uint32_t twos = 0;
            for (uint32_t s = 0; s < 8; s++) {
                uint8_t value = peek(&w, block, s);
                assert_true(value == 1 || (value == 2 && (block == 102 || block == 103)));
                twos += value == 2;
            }
            if (block == 102 || block == 103) {
                old += twos == 0;
                new += twos == 8;
                torn += twos != 0 && twos != 8;
            }
        }
        env_sim_free(w.env);
    }
    assert_true(old > 40 && new > 40 && torn > 40);
}

static void test_cut_keeps_what_is_durable(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct world w = world_new(seed, all_models[seed % 5], seed % 2 == 0);
        assert_int_equal(write_value(&w, 7, 1, 1, false), OK);
        assert_int_equal(write_value(&w, 7, 1, 2, true), OK);
        if (seed % 2 == 0) { /* no cache: every write is */
            assert_int_equal(write_value(&w, 9, 1, 3, false), OK);
        }
        env_sim_power_cut(w.env);
        for (uint32_t s = 0; s < 8; s++) {
            assert_int_equal(peek(&w, 7, s), 2);
            assert_int_equal(peek(&w, 9, s), seed % 2 == 0 ? 3 : 0);
        }
        env_sim_free(w.env);
    }
}

/* A flush covers what was answered before it was submitted, and not what was still on its way. */
static void test_flush_does_not_cover_what_is_on_its_way(void **state) {
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct world w = world_new(seed, "ssd", false);
        struct buf *buf = filled(1, 5);
        struct job write, flush;
        job_start(&w, &write, ENV_IO_WRITE, 3, buf, false);
        job_start(&w, &flush, ENV_IO_FLUSH, 0, NULL, false);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, job_is_done, &write), SIM_DONE);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, job_is_done, &flush), SIM_DONE);
        env_sim_power_cut(w.env);
        lost += peek(&w, 3, 0) == 0;
        buf_unref(buf);
        env_sim_free(w.env);
    }
    assert_true(lost > 20);
}

static void test_cut_comes_at_every_boundary(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 6; n++) {
        struct world w = world_new(n, "nvme", false);
        env_sim_arm_cut(w.env, n);
        struct buf *buf = filled(1, 9);
        uint64_t answered = 0;
        enum sim_stop stop = SIM_DONE;
        for (uint64_t i = 0; i < 4 && stop == SIM_DONE; i++) {
            struct job job;
            job_start(&w, &job, ENV_IO_WRITE, i, buf, true);
            stop = env_sim_run_until(w.env, UINT64_MAX, job_is_done, &job);
            answered += stop == SIM_DONE;
        }
        assert_int_equal(stop, SIM_CUT);
        assert_int_equal(answered, (n - 1) / 2);
        env_sim_power_cut(w.env);
        for (uint64_t i = 0; i < answered; i++) {
            assert_int_equal(peek(&w, i, 0), 9);
        }
        assert_false(env_sim_is_cut(w.env));
        buf_unref(buf);
        env_sim_free(w.env);
    }
}

static void test_lying_disk_loses_what_it_flushed(void **state) {
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct world w = world_new(seed, "hdd", false);
        sim_disk_set_lies(w.disk, true);
        assert_int_equal(write_value(&w, 7, 1, 2, true), OK);
        assert_int_equal(write_value(&w, 8, 1, 2, false), OK);
        assert_int_equal(run(&w, ENV_IO_FLUSH, 0, NULL, false), OK);
        env_sim_power_cut(w.env);
        lost += peek(&w, 7, 0) == 0 || peek(&w, 8, 0) == 0;
        env_sim_free(w.env);
    }
    assert_true(lost > 5);
}

static void test_latent_error_until_rewritten(void **state) {
    (void)state;
    struct world w = world_new(3, "hdd", true);
    assert_false(sim_disk_make_latent(w.disk, 5 * BLOCK)); /* nothing there to fail */
    assert_int_equal(write_value(&w, 4, 4, 1, false), OK);
    assert_true(sim_disk_make_latent(w.disk, 5 * BLOCK));
    assert_int_equal(sim_disk_faulty_blocks(w.disk), 1);
    struct buf *buf = filled(4, 0);
    assert_int_equal(run(&w, ENV_IO_READ, 4, buf, false), ERR_IO);
    assert_int_equal(write_value(&w, 5, 1, 2, false), OK);
    assert_int_equal(sim_disk_faulty_blocks(w.disk), 0);
    assert_int_equal(run(&w, ENV_IO_READ, 4, buf, false), OK);
    assert_int_equal(buf->data[BLOCK], 2);
    assert_int_equal(sim_disk_fault_count(w.disk, SIM_FAULT_LATENT), 1);
    buf_unref(buf);
    env_sim_free(w.env);
}

static void test_silent_faults_and_healing(void **state) {
    (void)state;
    for (uint32_t m = 0; m < ARRAY_COUNT(all_models); m++) {
        struct world w = world_new(4 + m, all_models[m], false);
        assert_int_equal(write_value(&w, 20, 4, 1, true), OK);
        assert_true(sim_disk_rot(w.disk, 20 * BLOCK, 6));
        assert_int_equal(peek(&w, 20, 0), 1 ^ 1 << 6);
        sim_disk_arm(w.disk, SIM_FAULT_LOST, 1, 1, 0);
        assert_int_equal(write_value(&w, 21, 1, 7, true), OK);
        assert_int_equal(write_value(&w, 22, 1, 8, true), OK); /* this one */
        assert_int_equal(peek(&w, 21, 0), 7);
        assert_int_equal(peek(&w, 22, 0), 1);
        sim_disk_arm(w.disk, SIM_FAULT_MISDIRECTED, 0, 1, 0);
        assert_int_equal(write_value(&w, 23, 1, 9, true), OK);
        assert_int_equal(peek(&w, 23, 0), 1);
        assert_int_equal(sim_disk_faulty_blocks(w.disk), 4);
        sim_disk_heal(w.disk);
        uint8_t expected[] = {1, 7, 8, 9, 0};
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(peek(&w, 20 + i, 0), expected[i]);
        }
        assert_int_equal(sim_disk_faulty_blocks(w.disk), 0);
        env_sim_free(w.env);
    }
}

/* Damage upon damage: what is healed is what was written, not what the first damage left. */
static void test_healing_after_several_faults(void **state) {
    (void)state;
    struct world w = world_new(4, "nvme-plp", false);
    assert_int_equal(write_value(&w, 20, 2, 1, true), OK);
    assert_true(sim_disk_rot(w.disk, 20 * BLOCK, 6));
    assert_true(sim_disk_rot(w.disk, 20 * BLOCK, 7));
    assert_true(sim_disk_make_latent(w.disk, 20 * BLOCK));
    assert_true(sim_disk_rot(w.disk, 20 * BLOCK, 5));
    assert_int_equal(sim_disk_faulty_blocks(w.disk), 1);
    sim_disk_arm(w.disk, SIM_FAULT_LOST, 0, 1, 0);
    assert_int_equal(write_value(&w, 21, 1, 7, true), OK);
    assert_true(sim_disk_rot(w.disk, 21 * BLOCK, 3));
    sim_disk_heal(w.disk);
    assert_int_equal(sim_disk_faulty_blocks(w.disk), 0);
    assert_int_equal(peek(&w, 20, 0), 1);
    assert_int_equal(peek(&w, 21, 0), 7);
    struct buf *buf = filled(1, 0);
    assert_int_equal(run(&w, ENV_IO_READ, 20, buf, false), OK);
    buf_unref(buf);
    env_sim_free(w.env);
}

static void test_late_write_lands_when_it_is_answered(void **state) {
    (void)state;
    struct world w = world_new(5, "hdd", true);
    sim_disk_arm(w.disk, SIM_FAULT_LATE, 0, 1, 7 * NS_PER_S);
    struct buf *first = filled(1, 1), *second = filled(1, 2);
    struct job late, soon;
    job_start(&w, &late, ENV_IO_WRITE, 3, first, false);
    job_start(&w, &soon, ENV_IO_WRITE, 3, second, false);
    assert_int_equal(env_sim_run_until(w.env, 6 * NS_PER_S, job_is_done, &late), SIM_DEADLINE);
    assert_true(soon.done);
    assert_int_equal(peek(&w, 3, 0), 2);
    assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, job_is_done, &late), SIM_DONE);
    assert_true(late.ended_ns >= 8 * NS_PER_S);
    assert_int_equal(peek(&w, 3, 0), 1);
    buf_unref(first);
    buf_unref(second);
    env_sim_free(w.env);
}

static void test_stall(void **state) {
    (void)state;
    for (uint32_t m = 0; m < ARRAY_COUNT(all_models); m++) {
        struct world w = world_new(6, all_models[m], false);
        struct buf *buf = filled(1, 1);
        struct job job;
        job_start(&w, &job, ENV_IO_READ, 3, buf, false);
        sim_disk_stall(w.disk, 20 * NS_PER_S);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, job_is_done, &job), SIM_DONE);
        assert_true(job.ended_ns >= 20 * NS_PER_S && job.ended_ns < 21 * NS_PER_S);
        sim_disk_stall(w.disk, UINT64_MAX);
        job_start(&w, &job, ENV_IO_READ, 1000, buf, false);
        assert_int_equal(env_sim_run_until(w.env, 90 * NS_PER_S, job_is_done, &job), SIM_DEADLINE);
        sim_disk_stall(w.disk, 0);
        assert_int_equal(env_sim_run_until(w.env, 91 * NS_PER_S, job_is_done, &job), SIM_DONE);
        buf_unref(buf);
        env_sim_free(w.env);
    }
}

static void test_vanish_and_return(void **state) {
    (void)state;
    for (uint32_t m = 0; m < ARRAY_COUNT(all_models); m++) {
        struct world w = world_new(7, all_models[m], false);
        assert_int_equal(write_value(&w, 1, 1, 1, true), OK);
        struct buf *buf = filled(1, 3);
        struct job job;
        job_start(&w, &job, ENV_IO_WRITE, 1, buf, true);
        sim_disk_vanish(w.disk, false);
        assert_int_equal(env_sim_run_until(w.env, UINT64_MAX, job_is_done, &job), SIM_DONE);
        assert_int_equal(job.io.result, ERR_DISK_GONE);
        assert_int_equal(env_disk_probe(w.handle, NULL), ERR_DISK_GONE);
        struct env_disk_options options = {0};
        struct env_disk *other;
        assert_int_equal(env_disk_open(w.env, "d0", &options, &other, NULL), ERR_NOT_FOUND);
        sim_disk_return(w.disk);
        assert_int_equal(run(&w, ENV_IO_READ, 1, buf, false), ERR_DISK_GONE); /* an old handle */
        env_disk_close(w.handle);
        world_plug(&w);
        assert_int_equal(run(&w, ENV_IO_READ, 1, buf, false), OK);
        assert_int_equal(buf->data[0], 1);
        buf_unref(buf);
        env_sim_free(w.env);
    }
}

static void test_errors_on_demand(void **state) {
    (void)state;
    struct world w = world_new(8, "nvme", false);
    sim_disk_arm(w.disk, SIM_FAULT_WRITE_ERROR, 0, 1, 0);
    sim_disk_arm(w.disk, SIM_FAULT_FLUSH_ERROR, 0, 1, 0);
    sim_disk_arm(w.disk, SIM_FAULT_READ_ERROR, 1, 1, 0);
    assert_int_equal(write_value(&w, 1, 1, 1, false), ERR_IO);
    assert_int_equal(write_value(&w, 1, 1, 1, false), OK);
    assert_int_equal(run(&w, ENV_IO_FLUSH, 0, NULL, false), ERR_IO);
    assert_int_equal(run(&w, ENV_IO_FLUSH, 0, NULL, false), OK);
    struct buf *buf = filled(1, 3);
    assert_int_equal(run(&w, ENV_IO_READ, 1, buf, false), OK);
    assert_int_equal(run(&w, ENV_IO_READ, 1, buf, false), ERR_IO);
    assert_int_equal(run(&w, ENV_IO_READ, 1, buf, false), OK);
    buf_unref(buf);
    env_sim_free(w.env);
}

static void test_open(void **state) {
    (void)state;
    struct world w = world_new(9, "ssd", false);
    struct env_disk_options options = {0};
    struct env_disk *other = NULL;
    assert_int_equal(env_disk_open(w.env, "d0", &options, &other, NULL), ERR_BUSY);
    env_disk_close(w.handle);
    assert_int_equal(env_disk_open(w.env, "d1", &options, &other, NULL), ERR_NOT_FOUND);
    options.offset_bytes = 1 << 20;
    options.length_bytes = 2 << 20;
    assert_int_equal(env_disk_open(w.env, "d0", &options, &w.handle, NULL), OK);
    assert_int_equal(env_disk_info(w.handle)->size_bytes, 2 << 20);
    assert_int_equal(write_value(&w, 0, 1, 4, true), OK);
    assert_int_equal(peek(&w, 256, 0), 4);
    sim_disk_set_path(w.disk, "d7");
    assert_int_equal(env_disk_open(w.env, "d7", &(struct env_disk_options){0}, &other, NULL), OK);
    env_disk_close(other);
    env_sim_free(w.env);
}

static void test_host_records(void **state) {
    (void)state;
    uint32_t old = 0, new = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct env *env = env_sim_new(&(struct env_sim_options){.seed = seed});
        char text[16] = "";
        size_t length = 0;
        assert_int_equal(env_state_read(env, "pool-x", text, sizeof(text), &length), ERR_NOT_FOUND);
        assert_int_equal(env_state_write(env, "pool-x", "one", 4), OK);
        env_sim_arm_cut(env, 1);
        assert_int_equal(env_state_write(env, "pool-x", "two", 4), OK);
        assert_int_equal(env_sim_run_until(env, UINT64_MAX, NULL, NULL), SIM_CUT);
        env_sim_power_cut(env);
        assert_int_equal(env_state_read(env, "pool-x", text, sizeof(text), &length), OK);
        assert_int_equal(length, 4);
        old += strcmp(text, "one") == 0;
        new += strcmp(text, "two") == 0;
        env_sim_state_forget(env);
        assert_int_equal(env_state_read(env, "pool-x", text, sizeof(text), &length), ERR_NOT_FOUND);
        env_sim_free(env);
    }
    assert_true(old > 5 && new > 5 && old + new == 40);
}

static uint64_t hash_of(uint64_t seed, const char *model) {
    struct world w = world_new(seed, model, false);
    struct rng rng;
    rng_init(&rng, 5);
    struct buf *out = filled(4, 3), *in = filled(4, 0);
    struct job jobs[16];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 16; i++) {
            job_start(&w, &jobs[i], i % 2 == 0 ? ENV_IO_WRITE : ENV_IO_READ, rng_below(&rng, 4000),
                      i % 2 == 0 ? out : in, rng_chance(&rng, 1, 4));
        }
        (void)env_sim_run_until(w.env, env_now_ns(w.env) + NS_PER_S, NULL, NULL);
        if (round % 5 == 4) {
            env_sim_power_cut(w.env);
            world_plug(&w);
        }
    }
    uint64_t hash = env_sim_trace_hash(w.env);
    buf_unref(out);
    buf_unref(in);
    env_sim_free(w.env);
    return hash;
}

static void test_same_seed_same_trace(void **state) {
    (void)state;
    for (uint32_t m = 0; m < ARRAY_COUNT(all_models); m++) {
        assert_int_equal(hash_of(1, all_models[m]), hash_of(1, all_models[m]));
    }
    assert_int_not_equal(hash_of(1, "ssd"), hash_of(2, "ssd")); /* other latencies */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_zeros_take_no_memory),
        cmocka_unit_test(test_cut_keeps_any_subset_of_unflushed),
        cmocka_unit_test(test_cut_keeps_what_is_durable),
        cmocka_unit_test(test_flush_does_not_cover_what_is_on_its_way),
        cmocka_unit_test(test_cut_comes_at_every_boundary),
        cmocka_unit_test(test_lying_disk_loses_what_it_flushed),
        cmocka_unit_test(test_latent_error_until_rewritten),
        cmocka_unit_test(test_silent_faults_and_healing),
        cmocka_unit_test(test_healing_after_several_faults),
        cmocka_unit_test(test_late_write_lands_when_it_is_answered),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_vanish_and_return),
        cmocka_unit_test(test_errors_on_demand),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_host_records),
        cmocka_unit_test(test_same_seed_same_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
