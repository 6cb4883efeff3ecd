// SPDX-License-Identifier: MPL-2.0
/* The real environment: its loop, disks and state records, each with a ring and without. */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "env/fiber.h"
#include "env/linux/linux.h"

enum { FILE_BYTES = 16 << 20, PAGE_BYTES = 4096 };

static char folder[128];
static struct env *env;
static enum env_linux_ring modes[] = {ENV_LINUX_RING_AUTO, ENV_LINUX_RING_OFF};

static void path_of(const char *name, char *ret_path, size_t bytes) {
    assert_true((size_t)snprintf(ret_path, bytes, "%s/%s", folder, name) < bytes);
}

static int setup(void **state) {
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%s/holdfast-env-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    enum env_linux_ring *mode = *state;
    struct env_linux_options options = {
        .ring = *mode, .queue_depth = 8, .disk_workers = 4, .state_dir = folder};
    return env_linux_new(&options, &env, NULL);
}

static int teardown(void **state) {
    (void)state;
    env_linux_free(env);
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(dir);
    return rmdir(folder);
}

/* ---- a fiber that is the test ---- */

static void (*body)(void);

static void body_main(void *arg) {
    (void)arg;
    body();
    env_stop(env);
}

static void run_as_fiber(void (*fn)(void)) {
    body = fn;
    fiber_start(env, body_main, NULL);
    env_run(env);
}

struct io {
    struct env_io io;
    struct iovec iov[8];
    struct fiber *waiter;
    bool is_done;
};

static void io_done(struct env_io *io) {
    struct io *it = io->owner;
    it->is_done = true;
    fiber_wake(it->waiter);
}

static void io_begin(struct io *it, struct env_disk *disk, enum env_io_op op, uint64_t offset_bytes,
                     void *data, uint64_t length_bytes) {
    memset(it, 0, sizeof(*it));
    it->waiter = fiber_self();
    it->io = (struct env_io){.op = op,
                             .offset_bytes = offset_bytes,
                             .length_bytes = length_bytes,
                             .iov = it->iov,
                             .iov_count = 1,
                             .done = io_done,
                             .owner = it};
    it->iov[0] = (struct iovec){data, length_bytes};
    env_disk_submit(disk, &it->io);
    assert_false(it->is_done); /* never from inside */
}

static int io_wait(struct io *it) {
    while (!it->is_done) {
        fiber_park();
    }
    return it->io.result;
}

static int io_do(struct env_disk *disk, enum env_io_op op, uint64_t offset_bytes, void *data,
                 uint64_t length_bytes) {
    struct io it;
    io_begin(&it, disk, op, offset_bytes, data, length_bytes);
    return io_wait(&it);
}

static struct env_disk *disk_open_ok(const char *path, bool exclusive) {
    struct env_disk_options options = {.exclusive = exclusive};
    struct env_disk *disk = NULL;
    struct errmsg e = {0};
    int error = env_disk_open(env, path, &options, &disk, &e);
    if (error != OK) {
        fail_msg("%s: %s", path, e.text);
    }
    return disk;
}

static void make_file(const char *name, off_t bytes, char *ret_path, size_t path_bytes) {
    path_of(name, ret_path, path_bytes);
    int fd = open(ret_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    (void)close(fd);
}

/* ---- disks ---- */

static void read_back(struct env_disk *disk, uint8_t *data, uint8_t *back) {
    uint64_t size_bytes = env_disk_info(disk)->size_bytes;
    /* One element, durable. */
    struct io it;
    memset(&it, 0, sizeof(it));
    assert_int_equal(io_do(disk, ENV_IO_WRITE, 8 * PAGE_BYTES, data, 4 * PAGE_BYTES), OK);
    it = (struct io){.waiter = fiber_self()};
    it.io = (struct env_io){.op = ENV_IO_WRITE,
                            .durable = true,
                            .offset_bytes = size_bytes - 3 * PAGE_BYTES,
                            .length_bytes = 3 * PAGE_BYTES,
                            .iov = it.iov,
                            .iov_count = 2,
                            .done = io_done,
                            .owner = &it};
    it.iov[0] = (struct iovec){data + 5 * PAGE_BYTES, PAGE_BYTES};
    it.iov[1] = (struct iovec){data, 2 * PAGE_BYTES};
    env_disk_submit(disk, &it.io);
    assert_int_equal(io_wait(&it), OK);
    assert_int_equal(io_do(disk, ENV_IO_FLUSH, 0, NULL, 0), OK);

    assert_int_equal(io_do(disk, ENV_IO_READ, 8 * PAGE_BYTES, back, 4 * PAGE_BYTES), OK);
    assert_memory_equal(back, data, 4 * PAGE_BYTES);
    it.is_done = false;
    it.io.op = ENV_IO_READ;
    it.io.durable = false;
    it.iov[0] = (struct iovec){back + 3 * PAGE_BYTES, PAGE_BYTES};
    it.iov[1] = (struct iovec){back, 2 * PAGE_BYTES};
    env_disk_submit(disk, &it.io);
    assert_int_equal(io_wait(&it), OK);
    assert_memory_equal(back + 3 * PAGE_BYTES, data + 5 * PAGE_BYTES, PAGE_BYTES);
    assert_memory_equal(back, data, 2 * PAGE_BYTES);
}

static void discards_and_bounds(struct env_disk *disk, uint8_t *data, uint8_t *back) {
    uint64_t size_bytes = env_disk_info(disk)->size_bytes;
    assert_true(env_disk_info(disk)->discards);
    assert_int_equal(io_do(disk, ENV_IO_DISCARD, 8 * PAGE_BYTES, NULL, 2 * PAGE_BYTES), OK);
    assert_int_equal(io_do(disk, ENV_IO_READ, 8 * PAGE_BYTES, back, 4 * PAGE_BYTES), OK);
    static const uint8_t zeroes[2 * PAGE_BYTES];
    assert_memory_equal(back, zeroes, 2 * PAGE_BYTES);
    assert_memory_equal(back + 2 * PAGE_BYTES, data + 2 * PAGE_BYTES, 2 * PAGE_BYTES);
    assert_int_equal(io_do(disk, ENV_IO_READ, size_bytes - PAGE_BYTES, back, 2 * PAGE_BYTES),
                     ERR_IO);
    assert_int_equal(io_do(disk, ENV_IO_WRITE, UINT64_MAX - PAGE_BYTES + 1, data, PAGE_BYTES),
                     ERR_IO);
    assert_int_equal(io_do(disk, ENV_IO_DISCARD, size_bytes, NULL, PAGE_BYTES), ERR_IO);
}

enum { BURST = 200 };

/* More at once than the queue of 8 and the 4 workers take. */
static void burst(struct env_disk *disk, uint8_t *data, uint8_t *back) {
    struct io *ios = MEM_NEW_ARRAY(struct io, BURST);
    for (uint32_t i = 0; i < BURST; i++) {
        io_begin(&ios[i], disk, ENV_IO_WRITE, (uint64_t)i * 2 * PAGE_BYTES,
                 data + (i % 60) * PAGE_BYTES, PAGE_BYTES);
    }
    for (uint32_t i = 0; i < BURST; i++) {
        assert_int_equal(io_wait(&ios[i]), OK);
    }
    for (uint32_t i = 0; i < BURST; i++) {
        assert_int_equal(io_do(disk, ENV_IO_READ, (uint64_t)i * 2 * PAGE_BYTES, back, PAGE_BYTES),
                         OK);
        assert_memory_equal(back, data + (i % 60) * PAGE_BYTES, PAGE_BYTES);
    }
    mem_free(ios);
}

static void exercise(struct env_disk *disk) {
    struct mem_pages *data = mem_pages_new(64 * PAGE_BYTES), *back = mem_pages_new(64 * PAGE_BYTES);
    env_random(env, data->data, data->bytes);
    read_back(disk, data->data, back->data);
    discards_and_bounds(disk, data->data, back->data);
    burst(disk, data->data, back->data);
    mem_pages_free(data);
    mem_pages_free(back);
}

static void file_disk_body(void) {
    char path[256];
    make_file("disk", FILE_BYTES + 100, path, sizeof(path));
    struct env_disk *disk = disk_open_ok(path, false);
    assert_int_equal(env_disk_info(disk)->kind, ENV_DISK_FILE);
    assert_int_equal(env_disk_info(disk)->size_bytes, FILE_BYTES);
    assert_string_equal(env_disk_info(disk)->path, path);
    exercise(disk);
    assert_int_equal(env_disk_probe(disk, NULL), OK);
    env_disk_close(disk);
}

static void a_file_is_a_disk(void **state) {
    (void)state;
    run_as_fiber(file_disk_body);
}

static void memory_disk_body(void) {
    struct env_disk *disk = disk_open_ok("mem:test:16M", false);
    assert_int_equal(env_disk_info(disk)->kind, ENV_DISK_MEMORY);
    assert_int_equal(env_disk_info(disk)->size_bytes, FILE_BYTES);
    exercise(disk);
    struct mem_pages *page = mem_pages_new(PAGE_BYTES);
    memset(page->data, 0x5a, PAGE_BYTES);
    assert_int_equal(io_do(disk, ENV_IO_WRITE, 0, page->data, PAGE_BYTES), OK);
    assert_int_equal(env_disk_probe(disk, NULL), OK);
    assert_int_equal(env_linux_memory_disk_drop("test"), ERR_BUSY);
    env_disk_close(disk);
    memset(page->data, 0, PAGE_BYTES);
    disk = disk_open_ok("mem:test:16M", true); /* the content is still there */
    assert_int_equal(io_do(disk, ENV_IO_READ, 0, page->data, PAGE_BYTES), OK);
    assert_int_equal(((uint8_t *)page->data)[17], 0x5a);
    struct env_disk_options options = {0};
    struct env_disk *other;
    assert_int_equal(env_disk_open(env, "mem:test:16M", &options, &other, NULL), ERR_BUSY);
    env_disk_close(disk);
    assert_int_equal(env_disk_open(env, "mem:test:8M", &options, &other, NULL), ERR_INVALID);
    assert_int_equal(env_disk_open(env, "mem::8M", &options, &other, NULL), ERR_INVALID);
    assert_int_equal(env_disk_open(env, "mem:x:1", &options, &other, NULL), ERR_INVALID);
    assert_int_equal(env_linux_memory_disk_drop("test"), OK);
    assert_int_equal(env_linux_memory_disk_drop("test"), ERR_NOT_FOUND);
    mem_pages_free(page);
}

static void memory_is_a_disk(void **state) {
    (void)state;
    run_as_fiber(memory_disk_body);
}

static void block_disk_body(void) {
    const char *path = getenv("HOLDFAST_TEST_BLOCK");
    struct env_disk *disk = disk_open_ok(path, true);
    assert_int_equal(env_disk_info(disk)->kind, ENV_DISK_BLOCK);
    struct env_disk_options options = {.exclusive = true};
    struct env_disk *second;
    assert_int_equal(env_disk_open(env, path, &options, &second, NULL), ERR_BUSY);
    exercise(disk);
    assert_int_equal(env_disk_probe(disk, NULL), OK);
    env_disk_close(disk);
    env_disk_close(disk_open_ok(path, true));
}

/* HOLDFAST_TEST_BLOCK names a device of 16 MiB or more whose content may go. */
static void a_block_device_is_a_disk(void **state) {
    (void)state;
    if (getenv("HOLDFAST_TEST_BLOCK") == NULL) {
        skip();
    }
    run_as_fiber(block_disk_body);
}

static void window_body(void) {
    char path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    struct mem_pages *page = mem_pages_new(PAGE_BYTES);
    memset(page->data, 7, PAGE_BYTES);
    struct env_disk_options options = {.offset_bytes = 1 << 20, .length_bytes = 2 << 20};
    struct env_disk *disk;
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), OK);
    assert_int_equal(env_disk_info(disk)->size_bytes, 2 << 20);
    assert_int_equal(io_do(disk, ENV_IO_WRITE, PAGE_BYTES, page->data, PAGE_BYTES), OK);
    assert_int_equal(io_do(disk, ENV_IO_WRITE, 2 << 20, page->data, PAGE_BYTES), ERR_IO);
    env_disk_close(disk);
    disk = disk_open_ok(path, false);
    memset(page->data, 0, PAGE_BYTES);
    assert_int_equal(io_do(disk, ENV_IO_READ, (1 << 20) + PAGE_BYTES, page->data, PAGE_BYTES), OK);
    assert_int_equal(((uint8_t *)page->data)[4095], 7);
    env_disk_close(disk);
    options = (struct env_disk_options){.offset_bytes = FILE_BYTES - PAGE_BYTES,
                                        .length_bytes = 2 * PAGE_BYTES};
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), ERR_INVALID);
    options = (struct env_disk_options){.offset_bytes = FILE_BYTES};
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), ERR_INVALID);
    options = (struct env_disk_options){.offset_bytes = 512};
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), ERR_INVALID);
    mem_pages_free(page);
}

static void a_window_of_a_disk(void **state) {
    (void)state;
    run_as_fiber(window_body);
}

static void opening_refuses(void **state) {
    (void)state;
    char path[256], other_path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    make_file("empty", 100, other_path, sizeof(other_path));
    struct env_disk_options options = {.exclusive = true};
    struct env_disk *disk, *second;
    struct errmsg e = {0};
    assert_int_equal(env_disk_open(env, "/nowhere/at/all", &options, &disk, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "/nowhere/at/all"));
    assert_int_equal(env_disk_open(env, folder, &options, &disk, NULL), ERR_INVALID);
    assert_int_equal(env_disk_open(env, "/dev/null", &options, &disk, NULL), ERR_INVALID);
    assert_int_equal(env_disk_open(env, other_path, &options, &disk, NULL), ERR_INVALID);
    int fd = open(path, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), ERR_BUSY);
    (void)close(fd);
    /* Closing is done by a thread; opening at once works all the same. */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), OK);
        assert_int_equal(env_disk_open(env, path, &options, &second, NULL), ERR_BUSY);
        env_disk_close(disk);
    }
}

static void read_only_body(void) {
    char path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    assert_int_equal(chmod(path, 0400), 0);
    struct env_disk_options options = {.read_only = true};
    struct env_disk *disk;
    assert_int_equal(env_disk_open(env, path, &options, &disk, NULL), OK);
    struct mem_pages *page = mem_pages_new(PAGE_BYTES);
    memset(page->data, 1, PAGE_BYTES);
    assert_int_equal(io_do(disk, ENV_IO_WRITE, 0, page->data, PAGE_BYTES), ERR_IO);
    assert_int_equal(io_do(disk, ENV_IO_READ, 0, page->data, PAGE_BYTES), OK);
    assert_int_equal(((uint8_t *)page->data)[0], 0);
    env_disk_close(disk);
    mem_pages_free(page);
}

static void read_only_disks(void **state) {
    (void)state;
    run_as_fiber(read_only_body);
}

/* ---- what becomes of a disk ---- */

static void expect_gone(struct env_disk *disk, const char *word) {
    struct errmsg e = {0};
    int error = OK;
    for (int i = 0; error == OK && i < 200; i++) { /* a thread looks; this machine may be slow */
        error = env_disk_probe(disk, &e);
    }
    assert_int_equal(error, ERR_DISK_GONE);
    assert_non_null(strstr(e.text, word));
    env_disk_close(disk);
}

static void probe_body(void) {
    char path[256], other_path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    make_file("other", FILE_BYTES, other_path, sizeof(other_path));
    struct env_disk *disk = disk_open_ok(path, true);
    assert_int_equal(truncate(path, FILE_BYTES / 2), 0);
    struct mem_pages *page = mem_pages_new(PAGE_BYTES);
    assert_int_equal(io_do(disk, ENV_IO_READ, FILE_BYTES / 2, page->data, PAGE_BYTES), ERR_IO);
    mem_pages_free(page);
    expect_gone(disk, "truncated");
    assert_int_equal(truncate(path, FILE_BYTES), 0);
    disk = disk_open_ok(path, true);
    assert_int_equal(env_disk_probe(disk, NULL), OK);
    char linked[256];
    path_of("linked", linked, sizeof(linked));
    assert_int_equal(link(path, linked), 0);
    assert_int_equal(rename(other_path, path), 0);
    expect_gone(disk, "replaced");
    disk = disk_open_ok(path, true);
    assert_int_equal(unlink(path), 0);
    expect_gone(disk, "gone");
}

static void a_probe_notices(void **state) {
    (void)state;
    run_as_fiber(probe_body);
}

static void close_body(void) {
    char path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    const char *paths[] = {path, "mem:close:1M"};
    struct mem_pages *page = mem_pages_new(PAGE_BYTES);
    for (size_t p = 0; p < ARRAY_COUNT(paths); p++) {
        struct env_disk *disk = disk_open_ok(paths[p], true);
        struct io ios[20];
        for (uint32_t i = 0; i < ARRAY_COUNT(ios); i++) {
            io_begin(&ios[i], disk, ENV_IO_WRITE, i * PAGE_BYTES, page->data, PAGE_BYTES);
        }
        env_disk_close(disk); /* only marks it */
        for (uint32_t i = 0; i < ARRAY_COUNT(ios); i++) {
            assert_int_equal(io_wait(&ios[i]), OK);
        }
        fiber_yield();
        env_disk_close(disk_open_ok(paths[p], true));
    }
    assert_int_equal(env_linux_memory_disk_drop("close"), OK);
    mem_pages_free(page);
}

static void closing_waits_for_outstanding_io(void **state) {
    (void)state;
    run_as_fiber(close_body);
}

/* ---- the loop ---- */

static void sleep_body(void) {
    uint64_t began_ns = env_now_ns(env);
    fiber_sleep_until(began_ns + 20 * NS_PER_MS);
    uint64_t slept_ns = env_now_ns(env) - began_ns;
    assert_true(slept_ns >= 20 * NS_PER_MS);
    assert_true(env_wall_ns(env) > 1700000000 * NS_PER_S);
}

static void timers_wake_the_loop(void **state) {
    enum env_linux_ring *mode = *state;
    assert_true(*mode != ENV_LINUX_RING_OFF || !env_linux_has_ring(env));
    print_message("%s\n", env_linux_has_ring(env) ? "with a ring" : "with threads");
    run_as_fiber(sleep_body);
    run_as_fiber(sleep_body); /* a loop can be run again */
}

enum { CALLERS = 3, CALLS = 300 };

static atomic_uint callers_left;
static uint64_t calls_seen;

static void call_body(void *arg) {
    uint64_t *value = arg;
    calls_seen++; /* the loop's own: no atomics, fibers do not run in parallel */
    if (calls_seen % 3 == 0) {
        fiber_yield();
    }
    if (calls_seen % 50 == 0) {
        fiber_sleep_until(env_now_ns(env) + 100 * NS_PER_US);
    }
    *value += 1;
}

static void stop_body(void *arg) {
    (void)arg;
    env_stop(env);
}

static void *caller(void *arg) {
    (void)arg;
    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t value = i;
        fiber_call(env, call_body, &value);
        assert_int_equal(value, i + 1);
        if (i % 16 == 0) { /* let the loop fall asleep */
            struct timespec ts = {0, 300000};
            (void)nanosleep(&ts, NULL);
        }
    }
    if (atomic_fetch_sub(&callers_left, 1) == 1) {
        fiber_call(env, stop_body, NULL);
    }
    return NULL;
}

struct flood {
    struct env_task tasks[2000];
};

static atomic_uint flood_seen;

static void flood_run(struct env_task *task) {
    (void)task;
    atomic_fetch_add(&flood_seen, 1);
}

static void *flooder(void *arg) {
    struct flood *flood = arg;
    for (size_t i = 0; i < ARRAY_COUNT(flood->tasks); i++) {
        flood->tasks[i].run = flood_run;
        env_post(env, &flood->tasks[i]);
    }
    return caller(NULL);
}

static void threads_post_and_call(void **state) {
    (void)state;
    calls_seen = 0;
    atomic_store(&flood_seen, 0);
    atomic_store(&callers_left, CALLERS);
    struct flood *floods = MEM_NEW_ARRAY(struct flood, CALLERS);
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, flooder, &floods[i]), 0);
    }
    env_run(env);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(calls_seen, CALLERS * CALLS);
    assert_int_equal(atomic_load(&flood_seen), CALLERS * 2000);
    mem_free(floods);
}

static void *run_loop(void *arg) {
    env_run(arg);
    return NULL;
}

static void read_file_call(void *arg) {
    struct env_disk *disk = disk_open_ok(arg, true);
    exercise(disk);
    env_disk_close(disk);
}

/* As in the program: made by one thread, run by another, called by a third. */
static void a_loop_of_another_thread(void **state) {
    (void)state;
    char path[256];
    make_file("disk", FILE_BYTES, path, sizeof(path));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_loop, env), 0);
    fiber_call(env, read_file_call, path);
    fiber_call(env, stop_body, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_spinning_loop_works_too(void **state) {
    enum env_linux_ring *mode = *state;
    env_linux_free(env);
    struct env_linux_options options = {.ring = *mode, .spin_ns = 50 * NS_PER_US};
    assert_int_equal(env_linux_new(&options, &env, NULL), OK);
    run_as_fiber(sleep_body);
    run_as_fiber(file_disk_body);
}

/* Many short waits, which are spun through, and long ones, which must not be. */
static void short_and_long_body(void) {
    struct timespec ts;
    for (int i = 0; i < 200; i++) {
        fiber_sleep_until(env_now_ns(env) + 10 * NS_PER_US);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    uint64_t before_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
    for (int i = 0; i < 4; i++) {
        fiber_sleep_until(env_now_ns(env) + 100 * NS_PER_MS);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    uint64_t used_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec - before_ns;
    assert_true(used_ns < 100 * NS_PER_MS); /* spinning would have used 400 */
}

static void an_idle_loop_does_not_spin(void **state) {
    enum env_linux_ring *mode = *state;
    env_linux_free(env);
    struct env_linux_options options = {.ring = *mode, .spin_ns = NS_PER_MS};
    assert_int_equal(env_linux_new(&options, &env, NULL), OK);
    run_as_fiber(short_and_long_body);
}

/* Long I/Os that the loop does itself let short ones pass, and come to their end. */
static void short_io_body(void) {
    enum { LONGS = 16, LONG_BYTES = 1 << 20 };
    struct env_disk *disk = disk_open_ok("mem:short:16M", false);
    struct io longs[LONGS], brief;
    uint8_t *data = mem_alloc(LONG_BYTES + PAGE_BYTES);
    uint8_t *aligned = data + (PAGE_BYTES - (uintptr_t)data % PAGE_BYTES) % PAGE_BYTES;
    memset(aligned, 7, LONG_BYTES);
    for (int i = 0; i < LONGS; i++) {
        io_begin(&longs[i], disk, ENV_IO_WRITE, (uint64_t)i * LONG_BYTES, aligned, LONG_BYTES);
    }
    io_begin(&brief, disk, ENV_IO_READ, 0, aligned, PAGE_BYTES);
    assert_int_equal(io_wait(&brief), OK);
    int done = 0;
    for (int i = 0; i < LONGS; i++) {
        done += longs[i].is_done;
    }
    assert_true(done < LONGS / 2);
    for (int i = 0; i < LONGS; i++) {
        assert_int_equal(io_wait(&longs[i]), OK);
    }
    mem_free(data);
    env_disk_close(disk);
    assert_int_equal(env_linux_memory_disk_drop("short"), OK);
}

static void short_io_passes_long_io(void **state) {
    (void)state;
    run_as_fiber(short_io_body);
}

/* ---- state records ---- */

static void state_records(void **state) {
    (void)state;
    char back[64];
    size_t length = 0;
    assert_int_equal(env_state_read(env, "pool-a", back, sizeof(back), &length), ERR_NOT_FOUND);
    assert_int_equal(env_state_write(env, "pool-a", "first", 5), OK);
    assert_int_equal(env_state_write(env, "pool-a", "second!", 7), OK);
    assert_int_equal(env_state_read(env, "pool-a", back, sizeof(back), &length), OK);
    assert_int_equal(length, 7);
    assert_memory_equal(back, "second!", 7);
    assert_int_equal(env_state_read(env, "pool-a", back, 3, &length), OK);
    assert_int_equal(length, 3);
    static const char *bad[] = {"", ".", "..", "a/b", "../x", "a b", "x~", "\xc3\xa9"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(env_state_write(env, bad[i], "x", 1), ERR_INVALID);
        assert_int_equal(env_state_read(env, bad[i], back, 1, &length), ERR_INVALID);
    }
    char name[82];
    memset(name, 'n', sizeof(name));
    name[81] = 0;
    assert_int_equal(env_state_write(env, name, "x", 1), ERR_INVALID);
    name[80] = 0;
    assert_int_equal(env_state_write(env, name, "x", 1), OK);
    uint32_t files = 0;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        files += entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    assert_int_equal(files, 2); /* nothing left aside */
}

#define BOTH(name)                                                                                 \
    {#name " (auto)", name, setup, teardown, &modes[0]}, {                                         \
#name " (threads)", name, setup, teardown, &modes[1]                                       \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(timers_wake_the_loop),
        BOTH(a_file_is_a_disk),
        BOTH(a_block_device_is_a_disk),
        BOTH(memory_is_a_disk),
        BOTH(a_window_of_a_disk),
        BOTH(opening_refuses),
        BOTH(read_only_disks),
        BOTH(a_probe_notices),
        BOTH(closing_waits_for_outstanding_io),
        BOTH(threads_post_and_call),
        BOTH(a_loop_of_another_thread),
        BOTH(a_spinning_loop_works_too),
        BOTH(an_idle_loop_does_not_spin),
        BOTH(short_io_passes_long_io),
        BOTH(state_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
