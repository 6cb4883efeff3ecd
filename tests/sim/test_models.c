// SPDX-License-Identifier: MPL-2.0
/* What the disk models say about speed, against the data sheets they were taken from. Virtual time
 * is exact, so these are tests and not benchmarks. Each figure of the rotational disk is taken at
 * two scales: it must not depend on the scale. */
#include "../unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/math.h"
#include "env/sim/sim.h"

enum { BLOCK = 4096, DEPTH_MAX = 64 };

struct load {
    const char *model;
    uint32_t scale;
    bool cache_off, sequential;
    enum env_io_op op;
    uint32_t depth, bytes;
    double from, to; /* part of the disk, by address */
    uint64_t ios;
    double late_ms; /* result: the slowest answer */
};

struct runner {
    struct env *env;
    struct env_disk *handle;
    struct load *load;
    struct rng rng;
    uint64_t low, high; /* blocks */
    uint64_t next, started, ended;
    struct buf *buf;
    struct lane {
        struct env_io io;
        struct iovec iov;
        struct runner *runner;
        uint64_t started_ns;
    } lanes[DEPTH_MAX];
};

static void lane_start(struct lane *lane);

static void lane_done(struct env_io *io) {
    struct lane *lane = CONTAINER_OF(io, struct lane, io);
    struct runner *r = lane->runner;
    assert_int_equal(io->result, OK);
    double ms = (double)(env_now_ns(r->env) - lane->started_ns) / 1e6;
    r->load->late_ms = MAX(r->load->late_ms, ms);
    r->ended++;
    if (r->started < r->load->ios) {
        lane_start(lane);
    }
}

static void lane_start(struct lane *lane) {
    struct runner *r = lane->runner;
    uint64_t blocks = r->load->bytes / BLOCK;
    uint64_t block = r->low + rng_below(&r->rng, r->high - r->low - blocks);
    if (r->load->sequential) {
        block = r->next;
        r->next += blocks;
    }
    lane->iov = (struct iovec){r->buf->data, r->load->bytes};
    lane->io = (struct env_io){.op = r->load->op,
                               .offset_bytes = block * BLOCK,
                               .length_bytes = r->load->bytes,
                               .iov = &lane->iov,
                               .iov_count = 1,
                               .done = lane_done};
    lane->started_ns = env_now_ns(r->env);
    r->started++;
    env_disk_submit(r->handle, &lane->io);
}

static bool load_is_over(void *ctx) {
    const struct runner *r = ctx;
    return r->ended == r->load->ios;
}

/* I/Os a second. */
static double rate_of(struct load *load) {
    struct runner *r = calloc(1, sizeof(*r));
    r->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    r->load = load;
    rng_init(&r->rng, 2);
    r->buf = buf_new(load->bytes);
    memset(r->buf->data, 0, load->bytes);
    struct sim_disk *disk;
    struct sim_disk_options options = {.model = load->model,
                                       .path = "d",
                                       .scale = load->scale == 0 ? 256 : load->scale,
                                       .cache_off = load->cache_off};
    assert_int_equal(env_sim_disk_add(r->env, &options, &disk, NULL), OK);
    assert_int_equal(env_disk_open(r->env, "d", &(struct env_disk_options){0}, &r->handle, NULL),
                     OK);
    double blocks = (double)(sim_disk_size_bytes(disk) / BLOCK);
    r->low = (uint64_t)(blocks * load->from);
    r->high = (uint64_t)(blocks * (load->to == 0 ? 1 : load->to));
    r->next = r->low;
    uint64_t start_ns = env_now_ns(r->env);
    for (uint32_t i = 0; i < load->depth; i++) {
        r->lanes[i].runner = r;
        lane_start(&r->lanes[i]);
    }
    assert_int_equal(env_sim_run_until(r->env, UINT64_MAX, load_is_over, r), SIM_DONE);
    double rate = (double)load->ios / ((double)(env_now_ns(r->env) - start_ns) / 1e9);
    buf_unref(r->buf);
    env_sim_free(r->env);
    free(r);
    return rate;
}

static void expect(double value, double low, double high) {
    if (value < low || value > high) {
        print_error("%.1f is not within [%.1f, %.1f]\n", value, low, high);
        fail();
    }
}

static const uint32_t scales[] = {256, 64};

static void test_hdd_random(void **state) {
    (void)state;
    for (uint32_t s = 0; s < ARRAY_COUNT(scales); s++) {
        struct load one = {"hdd", scales[s], true, false, ENV_IO_READ, 1, 4096, 0, 0, 4000, 0};
        expect(rate_of(&one), 75, 80);
        struct load half = {"hdd", scales[s], true, false, ENV_IO_WRITE, 1, 4096, 0, 0.1, 4000, 0};
        expect(rate_of(&half), 105, 150); /* short strokes */
        struct load queued = {"hdd", scales[s], true, false, ENV_IO_READ, 32, 4096, 0, 0, 8000, 0};
        expect(rate_of(&queued), 160, 260);
        expect(queued.late_ms, 0, 1000); /* nobody starves */
        /* The cache lets the disk sort its writes. */
        struct load cached = {"hdd", scales[s], false, false, ENV_IO_WRITE, 1, 4096,
                              0,     0,         40000, 0};
        expect(rate_of(&cached), 130, 500);
    }
}

static void test_hdd_sequential(void **state) {
    (void)state;
    for (uint32_t s = 0; s < ARRAY_COUNT(scales); s++) {
        enum env_io_op ops[] = {ENV_IO_READ, ENV_IO_WRITE};
        for (uint32_t i = 0; i < 2; i++) {
            /* Writes with the cache off need a queue to follow each other without losing a turn. */
            struct load load = {"hdd",     scales[s], true, true, ops[i], i == 0 ? 1 : 4,
                                512 << 10, 0,         0,    1000, 0};
            expect(rate_of(&load) * 0.524288, 150 * 0.9, 150 * 1.1);
            load.from = 0.95;
            load.ios = 500;
            expect(rate_of(&load) * 0.524288, 75 * 0.9, 75 * 1.1);
        }
        struct load alone = {"hdd", scales[s], true, true, ENV_IO_WRITE, 1, 4096, 0, 0, 500, 0};
        expect(rate_of(&alone), 115, 121); /* one a turn */
    }
}

static void test_flash(void **state) {
    (void)state;
    struct load ssd = {"ssd", 256, false, false, ENV_IO_READ, 32, 4096, 0, 0, 50000, 0};
    expect(rate_of(&ssd), 85000, 105000);
    struct load ssd_one = {"ssd", 256, false, false, ENV_IO_READ, 1, 4096, 0, 0, 20000, 0};
    expect(rate_of(&ssd_one), 9000, 12000);
    struct load ssd_write = {"ssd", 256, false, true, ENV_IO_WRITE, 8, 512 << 10, 0, 0, 2000, 0};
    expect(rate_of(&ssd_write) * 0.524288, 450, 550);
    struct load nvme = {"nvme", 256, false, false, ENV_IO_READ, 64, 4096, 0, 0, 100000, 0};
    expect(rate_of(&nvme), 350000, 600000);
    struct load nvme_read = {"nvme", 256, false, true, ENV_IO_READ, 16, 512 << 10, 0, 0, 2000, 0};
    expect(rate_of(&nvme_read) * 0.524288, 3060, 3740);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hdd_random),
        cmocka_unit_test(test_hdd_sequential),
        cmocka_unit_test(test_flash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
