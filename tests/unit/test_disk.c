// SPDX-License-Identifier: MPL-2.0
/* Deadlines, late I/O, counters, events, closing. */
#include "unit.h"

#include "base/mem.h"
#include "disk/disk.h"
#include "env_fake.h"

enum { SIZE = 1 << 20 };

struct fixture {
    struct fake_world world;
    struct fake_env fake;
    struct fake_media *media;
    struct disk *disk;
    uint64_t memory_before;
};

static void begin(struct fixture *f, uint64_t deadline_ns, uint64_t late_limit) {
    memset(f, 0, sizeof(*f));
    f->memory_before = mem_in_use_bytes();
    f->media = fake_media_add(&f->world, "a", SIZE);
    fake_init(&f->fake, &f->world, 1);
    struct disk_options options = {.deadline_ns = deadline_ns, .late_bytes_limit = late_limit};
    assert_int_equal(disk_open(&f->fake.env, "a", &options, &f->disk, NULL), OK);
}

static void end(struct fixture *f) {
    disk_close(f->disk);
    fake_settle(&f->fake);
    assert_int_equal(f->media->opened, 0);
    fake_power_cut(&f->fake);
    fake_world_done(&f->world);
    assert_int_equal(mem_in_use_bytes(), f->memory_before);
}

struct noted {
    struct disk_io io;
    uint32_t done;
    struct noted *after; /* which must be done when this one is */
};

static void note_done(struct disk_io *io) {
    struct noted *n = CONTAINER_OF(io, struct noted, io);
    n->done++;
    if (n->after != NULL) {
        assert_int_equal(n->after->done, 1);
    }
}

static struct noted noted(enum env_io_op op, uint64_t offset, uint64_t length, struct buf *buf) {
    return (struct noted){.io = {.op = op,
                                 .offset_bytes = offset,
                                 .length_bytes = length,
                                 .buf = buf,
                                 .done = note_done}};
}

static void reads_what_it_wrote(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 0, 0);
    f.media->delay_ns = 1000;
    struct buf *b = buf_new(16384);
    memset(b->data, 0x5a, 16384);
    struct noted w = noted(ENV_IO_WRITE, 8192, 8192, b);
    w.io.buf_offset = 4096;
    disk_submit(f.disk, &w.io);
    assert_int_equal(w.done, 0); /* never from inside submit */
    assert_int_equal(disk_in_flight(f.disk), 1);
    fake_advance(&f.fake, f.fake.now_ns + 1000);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.io.result, OK);
    assert_int_equal(w.io.latency_ns, 1000);
    memset(b->data, 0, 16384);
    struct noted r = noted(ENV_IO_READ, 4096, 16384, b);
    disk_submit(f.disk, &r.io);
    fake_advance(&f.fake, f.fake.now_ns + 1000);
    assert_int_equal(r.io.result, OK);
    assert_int_equal(b->data[4095], 0);
    assert_int_equal(b->data[4096], 0x5a);
    assert_int_equal(b->data[12287], 0x5a);
    assert_int_equal(b->data[12288], 0);
    const struct disk_counters *c = disk_counters(f.disk);
    assert_int_equal(c->reads, 1);
    assert_int_equal(c->read_bytes, 16384);
    assert_int_equal(c->writes, 1);
    assert_int_equal(c->write_bytes, 8192);
    assert_int_equal(c->event_count, 0);
    buf_unref(b);
    end(&f);
}

static void a_deadline_cuts_off_and_keeps_the_buffer(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 2 * NS_PER_S, 0);
    f.media->hang = true;
    struct buf *b = buf_new(8192);
    struct noted r = noted(ENV_IO_READ, 0, 8192, b);
    uint64_t start = f.fake.now_ns;
    disk_submit(f.disk, &r.io);
    buf_unref(b); /* the disk layer has its own */
    fake_advance(&f.fake, start + 2 * NS_PER_S - 1);
    assert_int_equal(r.done, 0);
    fake_advance(&f.fake, start + 2 * NS_PER_S);
    assert_int_equal(r.done, 1);
    assert_int_equal(r.io.result, ERR_TIMEOUT);
    const struct disk_counters *c = disk_counters(f.disk);
    assert_int_equal(c->late_bytes, 8192);
    assert_int_equal(c->errors[DISK_ERROR_TIMEOUT], 1);
    assert_string_equal(c->events[0].text, "read of 8.00 KiB at byte 0: deadline passed");
    assert_int_equal(disk_in_flight(f.disk), 0);
    f.media->hang = false;
    fake_release(&f.fake); /* writes into the buffer: ASan would see it freed */
    fake_settle(&f.fake);
    assert_int_equal(r.done, 1);
    assert_int_equal(c->late_bytes, 0);
    end(&f);
}

static void deadlines_expire_in_their_order(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, 5 * NS_PER_S, 0);
    f.media->hang = true;
    struct buf *b = buf_new(4096);
    struct noted n[4];
    static const uint64_t seconds[4] = {0, 3, 1, 2}; /* 0: the default, 5 */
    uint64_t start = f.fake.now_ns;
    for (int i = 0; i < 4; i++) {
        n[i] = noted(ENV_IO_READ, 0, 4096, b);
        n[i].io.deadline_ns = seconds[i] != 0 ? start + seconds[i] * NS_PER_S : 0;
        disk_submit(f.disk, &n[i].io);
    }
    static const int by_time[4] = {2, 3, 1, 0};
    static const uint64_t when[4] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        fake_advance(&f.fake, start + when[i] * NS_PER_S - 1);
        assert_int_equal(n[by_time[i]].done, 0);
        fake_advance(&f.fake, start + when[i] * NS_PER_S);
        assert_int_equal(n[by_time[i]].done, 1);
        assert_int_equal(n[by_time[i]].io.latency_ns, when[i] * NS_PER_S);
    }
    f.media->hang = false;
    fake_release(&f.fake);
    buf_unref(b);
    end(&f);
}

static void a_disk_that_holds_too_much_answers_at_once(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, NS_PER_S, 8192);
    f.media->hang = true;
    struct buf *b = buf_new(4096);
    struct noted n[4];
    for (int i = 0; i < 3; i++) {
        n[i] = noted(ENV_IO_WRITE, 0, 4096, b);
        disk_submit(f.disk, &n[i].io);
    }
    fake_advance(&f.fake, f.fake.now_ns + NS_PER_S);
    assert_int_equal(disk_counters(f.disk)->late_bytes, 3 * 4096);
    n[3] = noted(ENV_IO_FLUSH, 0, 0, NULL);
    disk_submit(f.disk, &n[3].io);
    assert_int_equal(n[3].done, 0);
    fake_settle(&f.fake);
    assert_int_equal(n[3].done, 1);
    assert_int_equal(n[3].io.result, ERR_TIMEOUT);
    f.media->hang = false;
    fake_release(&f.fake);
    fake_settle(&f.fake);
    n[3].done = 0;
    disk_submit(f.disk, &n[3].io); /* it came back: goes on */
    fake_settle(&f.fake);
    assert_int_equal(n[3].io.result, OK);
    buf_unref(b);
    end(&f);
}

static void nothing_waits_for_an_abandoned_disk(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, NS_PER_S, 0);
    f.media->hang = true;
    struct buf *b = buf_new(4096);
    struct noted a = noted(ENV_IO_WRITE, 0, 4096, b), c = noted(ENV_IO_READ, 0, 4096, b);
    disk_submit(f.disk, &a.io);
    disk_abandon(f.disk);
    assert_int_equal(a.done, 0); /* from the loop */
    disk_submit(f.disk, &c.io);
    fake_settle(&f.fake);
    assert_int_equal(a.done + c.done, 2);
    assert_int_equal(a.io.result, ERR_DISK_GONE);
    assert_int_equal(c.io.result, ERR_DISK_GONE);
    assert_int_equal(disk_counters(f.disk)->late_changes, 1); /* it may still be carried out */
    assert_int_equal(disk_counters(f.disk)->event_count, 0);
    f.media->hang = false;
    fake_release(&f.fake);
    fake_settle(&f.fake);
    assert_int_equal(disk_counters(f.disk)->late_changes, 0);
    assert_int_equal(a.done, 1);
    buf_unref(b);
    end(&f);
}

static void closing_cancels_from_the_loop(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, NS_PER_S, 0);
    f.media->hang = true;
    struct buf *b = buf_new(4096);
    struct noted a = noted(ENV_IO_READ, 0, 4096, b), c = noted(ENV_IO_FLUSH, 0, 0, NULL);
    c.after = &a;
    disk_submit(f.disk, &a.io);
    disk_submit(f.disk, &c.io);
    buf_unref(b);
    disk_close(f.disk);
    assert_int_equal(a.done, 0);
    fake_settle(&f.fake);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.io.result, ERR_CANCELLED);
    assert_int_equal(c.io.result, ERR_CANCELLED);
    assert_int_equal(f.media->opened, 1); /* the kernel still has both */
    f.media->hang = false;
    fake_release(&f.fake);
    fake_settle(&f.fake);
    assert_int_equal(f.media->opened, 0);
    assert_int_equal(a.done, 1);
    fake_power_cut(&f.fake);
    fake_world_done(&f.world);
    assert_int_equal(mem_in_use_bytes(), f.memory_before);
}

struct closer {
    struct disk_io io;
    struct disk *disk;
};

static void close_it(struct disk_io *io) {
    disk_close(CONTAINER_OF(io, struct closer, io)->disk);
}

static void a_callback_may_close_the_disk(void **state) {
    (void)state;
    for (int timeout = 0; timeout < 2; timeout++) {
        struct fixture f;
        begin(&f, NS_PER_S, 0);
        f.media->hang = timeout;
        struct closer c = {.io = {.op = ENV_IO_FLUSH, .done = close_it}, .disk = f.disk};
        struct noted other = noted(ENV_IO_FLUSH, 0, 0, NULL);
        disk_submit(f.disk, &c.io);
        disk_submit(f.disk, &other.io);
        fake_advance(&f.fake, f.fake.now_ns + 2 * NS_PER_S);
        assert_int_equal(other.done, 1);
        f.media->hang = false;
        fake_release(&f.fake);
        fake_settle(&f.fake);
        assert_int_equal(f.media->opened, 0);
        fake_power_cut(&f.fake);
        fake_world_done(&f.world);
        assert_int_equal(mem_in_use_bytes(), f.memory_before);
    }
}

static void errors_are_counted_and_the_last_ten_kept(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, NS_PER_S, 0);
    f.media->fail_writes = ERR_IO;
    struct buf *b = buf_new(4096);
    for (uint64_t i = 0; i < 13; i++) {
        struct noted w = noted(ENV_IO_WRITE, i * 4096, 4096, b);
        disk_submit(f.disk, &w.io);
        fake_settle(&f.fake);
        assert_int_equal(w.io.result, ERR_IO);
    }
    disk_note(f.disk, DISK_ERROR_REPAIRED, 4096, 4096, "a block was written again");
    const struct disk_counters *c = disk_counters(f.disk);
    assert_int_equal(c->errors[DISK_ERROR_WRITE], 13);
    assert_int_equal(c->errors[DISK_ERROR_REPAIRED], 1);
    assert_int_equal(c->event_count, 14);
    assert_string_equal(c->events[12 % DISK_EVENTS_KEPT].text,
                        "write of 4.00 KiB at byte 49152: input/output error");
    assert_string_equal(c->events[13 % DISK_EVENTS_KEPT].text, "a block was written again");
    buf_unref(b);
    end(&f);
}

static void fiber_use(void *arg) {
    struct fixture *f = arg;
    struct buf *b = buf_new(4096);
    b->data[17] = 3;
    assert_int_equal(disk_write(f->disk, 0, 4096, b, 0, true), OK);
    b->data[17] = 0;
    assert_int_equal(disk_flush(f->disk), OK);
    assert_int_equal(disk_read(f->disk, 0, 4096, b, 0), OK);
    assert_int_equal(b->data[17], 3);
    assert_int_equal(disk_discard(f->disk, 4096, 8192), OK);
    f->media->hang = true;
    assert_int_equal(disk_read(f->disk, 0, 4096, b, 0), ERR_TIMEOUT);
    f->media->hang = false;
    fake_release(&f->fake);
    buf_unref(b);
}

static void fibers_park_until_done(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, NS_PER_S, 0);
    f.media->delay_ns = 50;
    assert_true(fake_run(&f.fake, fiber_use, &f));
    fake_settle(&f.fake);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(a_deadline_cuts_off_and_keeps_the_buffer),
        cmocka_unit_test(deadlines_expire_in_their_order),
        cmocka_unit_test(a_disk_that_holds_too_much_answers_at_once),
        cmocka_unit_test(nothing_waits_for_an_abandoned_disk),
        cmocka_unit_test(closing_cancels_from_the_loop),
        cmocka_unit_test(a_callback_may_close_the_disk),
        cmocka_unit_test(errors_are_counted_and_the_last_ten_kept),
        cmocka_unit_test(fibers_park_until_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
