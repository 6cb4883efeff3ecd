// SPDX-License-Identifier: MPL-2.0
/* Foreign content is named and kept, partition tables are written and found again: on files, and
 * on loop devices where this host lets us have some. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/fiber.h"
#include "env/linux/linux.h"
#include "pool/gpt.h"
#include "pool/host.h"
#include "pool/pool.h"

enum { SIZE = 32 << 20 };

static char folder[64], file_path[96];

static int setup(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/holdfast-host-XXXXXX");
    (void)snprintf(file_path, sizeof(file_path), "%s/disk", mkdtemp(folder));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void new_file(void) {
    (void)unlink(file_path);
    int fd = open(file_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
    assert_int_equal(close(fd), 0);
}

static void put(const char *path, uint64_t offset, const void *bytes, size_t length) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, length, (off_t)offset), length);
    assert_int_equal(close(fd), 0);
}

static int prepare(const char *path, bool force, struct errmsg *message) {
    *message = (struct errmsg){0};
    const struct pool_host_options options = {
        .paths = &path, .path_count = 1, .force = force, .random = {{1, 2, 3, 4}}};
    return pool_host_prepare(&options, message);
}

static void assert_names(const struct errmsg *message, const char *words) {
    if (strstr(message->text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message->text, words);
    }
}

/* ---- pools, on a loop of their own ---- */

struct pool_call {
    struct env *env;
    const char *path;
    struct pool_options create;
    int error;
    struct errmsg message;
    uint64_t found_blocks;
};

static void create_and_open(void *arg) {
    struct pool_call *c = arg;
    c->create = (struct pool_options){.name = "tank", .paths = &c->path, .path_count = 1};
    c->error = pool_host_name(c->env, &c->message);
    if (c->error == OK) {
        c->error = pool_create(c->env, &c->create, &c->message);
    }
    const struct pool_open_options open_options = {.paths = &c->path, .path_count = 1};
    struct pool *pool = NULL;
    if (c->error == OK) {
        c->error = pool_open(c->env, &open_options, &pool, &c->message);
    }
    if (c->error == OK) {
        c->found_blocks = pool->blocks[0];
        c->error = pool_take(pool, &c->message);
        pool_close(pool);
    }
    env_stop(c->env);
}

static void make_pool(struct pool_call *c, const char *path) {
    const struct env_linux_options options = {.state_dir = folder};
    *c = (struct pool_call){.path = path};
    assert_int_equal(env_linux_new(&options, &c->env, &c->message), OK);
    fiber_start(c->env, create_and_open, c);
    env_run(c->env);
    env_linux_free(c->env);
    if (c->error != OK) {
        fail_msg("%s", c->message.text);
    }
}

/* ---- disks in use ---- */

static void *let_go(void *fd) {
    (void)usleep(500 * 1000);
    (void)close((int)(intptr_t)fd);
    return NULL;
}

static void open_and_close(void *arg) {
    struct pool_call *c = arg;
    const struct pool_open_options options = {.paths = &c->path, .path_count = 1};
    struct pool *pool = NULL;
    c->error = pool_open(c->env, &options, &pool, &c->message);
    pool_close(pool);
    env_stop(c->env);
}

/* Opens the pool on `path`, which the descriptor holds for half a second more. */
static void open_while_held(const char *path, int holder) {
    const struct env_linux_options options = {.state_dir = folder};
    struct pool_call c = {.path = path};
    pthread_t thread;
    assert_true(holder >= 0);
    assert_int_equal(pthread_create(&thread, NULL, let_go, (void *)(intptr_t)holder), 0);
    assert_int_equal(env_linux_new(&options, &c.env, &c.message), OK);
    uint64_t started = env_now_ns(c.env);
    fiber_start(c.env, open_and_close, &c);
    env_run(c.env);
    uint64_t took = env_now_ns(c.env) - started;
    env_linux_free(c.env);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (c.error != OK) {
        fail_msg("%s", c.message.text);
    }
    assert_in_range(took, 400 * (uint64_t)NS_PER_MS, 4 * NS_PER_S);
}

static void a_locked_file_is_waited_for(void **state) {
    (void)state;
    struct pool_call call;
    new_file();
    make_pool(&call, file_path);
    int holder = open(file_path, O_RDONLY | O_CLOEXEC);
    assert_true(holder >= 0 && flock(holder, LOCK_EX) == 0);
    open_while_held(file_path, holder);
}

/* ---- content ---- */

static void foreign_content_is_named_and_kept(void **state) {
    (void)state;
    static const char luks[8] = "LUKS\xba\xbe\0\1";
    struct errmsg message;
    new_file();
    assert_int_equal(prepare(file_path, false, &message), OK); /* empty */
    put(file_path, 0, luks, sizeof(luks));
    assert_int_equal(prepare(file_path, false, &message), ERR_EXISTS);
    assert_names(&message, "crypto_LUKS encrypted volume");
    assert_names(&message, "--force");
    char text[128];
    assert_int_equal(pool_host_content(file_path, text, sizeof(text), NULL), OK);
    assert_string_equal(text, "crypto_LUKS encrypted volume"); /* still there */
    assert_int_equal(prepare(file_path, true, &message), OK);
    assert_int_equal(pool_host_content(file_path, text, sizeof(text), NULL), OK);
    assert_string_equal(text, "");
}

static void what_partitions_hold_is_named(void **state) {
    (void)state;
    static const char luks[8] = "LUKS\xba\xbe\0\1";
    uint8_t mbr[512] = {0};
    static const uint8_t entry[16] = {0, 0, 2, 0, 0x83, 0xff, 0xff, 0xff,
                                      0, 8, 0, 0, 0,    0x40, 0,    0};
    memcpy(mbr + 446, entry, sizeof(entry)); /* from sector 2048, 16384 sectors */
    mbr[510] = 0x55;
    mbr[511] = 0xaa;
    struct errmsg message;
    new_file();
    put(file_path, 0, mbr, sizeof(mbr));
    put(file_path, 1 << 20, luks, sizeof(luks));
    assert_int_equal(prepare(file_path, false, &message), ERR_EXISTS);
    assert_names(&message, "dos partition table with 1 partition (crypto_LUKS encrypted volume)");
}

static void a_pools_disk_is_named(void **state) {
    (void)state;
    struct errmsg message;
    struct pool_call call;
    new_file();
    make_pool(&call, file_path);
    assert_int_equal(call.found_blocks, SIZE / 4096);
    assert_int_equal(prepare(file_path, false, &message), ERR_EXISTS);
    assert_names(&message, "disk 0 of the Holdfast pool tank");
    assert_int_equal(prepare(file_path, true, &message), OK);
}

static void refusals_change_nothing(void **state) {
    (void)state;
    static const char luks[8] = "LUKS\xba\xbe\0\1";
    struct errmsg message = {0};
    char second[128], text[128];
    (void)snprintf(second, sizeof(second), "%s/nowhere", folder);
    new_file();
    put(file_path, 0, luks, sizeof(luks));
    const char *paths[] = {file_path, second};
    const struct pool_host_options options = {.paths = paths, .path_count = 2, .force = true};
    assert_int_equal(pool_host_prepare(&options, &message), ERR_NOT_FOUND);
    assert_names(&message, "nowhere");
    assert_int_equal(pool_host_content(file_path, text, sizeof(text), NULL), OK);
    assert_string_not_equal(text, "");
    assert_int_equal(prepare("/dev/null", true, &message), ERR_INVALID);
}

/* ---- tables ---- */

static void tables_are_found_by_either_end(void **state) {
    (void)state;
    static const uint32_t sectors[] = {512, 4096};
    uint8_t *front = malloc(GPT_AREA_BYTES), *back = malloc(GPT_AREA_BYTES);
    const struct uuid a = {{1}}, b = {{2}};
    for (size_t i = 0; i < 2; i++) {
        struct gpt_window made, found;
        assert_int_equal(gpt_encode(SIZE, sectors[i], &a, &b, front, back, &made), OK);
        assert_int_equal(made.offset_bytes, 1 << 20);
        assert_int_equal(made.length_bytes, SIZE - (2 << 20));
        assert_int_equal(gpt_find(front, back, SIZE, &found), OK);
        assert_memory_equal(&made, &found, sizeof(made));
        front[sectors[i] + 40] ^= 1; /* the header at the front */
        assert_int_equal(gpt_find(front, back, SIZE, &found), OK);
        assert_memory_equal(&made, &found, sizeof(made));
        back[GPT_AREA_BYTES - sectors[i] - 128 * 128 + 50] ^= 1; /* the array at the back */
        assert_int_equal(gpt_find(front, back, SIZE, &found), ERR_NOT_FOUND);
    }
    struct gpt_window window;
    assert_int_equal(gpt_encode(1 << 20, 512, &a, &b, front, back, &window), ERR_RANGE);
    free(front);
    free(back);
}

/* ---- loop devices ---- */

struct loop {
    char path[32];
    int fd, backing;
};

/* False where there are none to be had (containers). */
static bool loop_open(struct loop *loop, uint32_t sector_bytes) {
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) {
        return false;
    }
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    (void)close(control);
    (void)snprintf(loop->path, sizeof(loop->path), "/dev/loop%d", number);
    loop->fd = number < 0 ? -1 : open(loop->path, O_RDWR | O_CLOEXEC);
    if (loop->fd < 0) {
        return false;
    }
    new_file();
    loop->backing = open(file_path, O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)loop->backing,
                                 .block_size = sector_bytes,
                                 .info.lo_flags =
                                     LO_FLAGS_AUTOCLEAR}; /* also when this test dies */
    if (ioctl(loop->fd, LOOP_CONFIGURE, &config) != 0) {
        (void)close(loop->backing);
        (void)close(loop->fd);
        return false;
    }
    return true;
}

static void loop_close(struct loop *loop) {
    (void)close(loop->backing);
    (void)close(loop->fd);
}

static void use_device(const struct loop *loop) {
    struct errmsg message;
    struct pool_call call;
    assert_int_equal(prepare(loop->path, false, &message), OK);
    assert_int_equal(prepare(loop->path, false, &message), OK); /* ours, and still empty */
    char text[128], command[160];
    (void)snprintf(command, sizeof(command), "sgdisk --verify %s 2>&1 | grep -q 'No problems'",
                   loop->path);
    if (system("command -v sgdisk >/dev/null 2>&1") == 0) {
        assert_int_equal(system(command), 0);
    }
    make_pool(&call, loop->path);
    assert_int_equal(call.found_blocks, (SIZE - (2 << 20)) / 4096);
    int error = prepare(loop->path, false, &message);
    for (int i = 0; i < 500 && error == ERR_BUSY;
         i++) { /* the loop closes in a thread of its own */
        (void)usleep(10000);
        error = prepare(loop->path, false, &message);
    }
    assert_int_equal(error, ERR_EXISTS);
    assert_names(&message, "disk 0 of the Holdfast pool tank");
    int holder = open(loop->path, O_RDWR | O_EXCL | O_CLOEXEC);
    assert_true(holder >= 0);
    assert_int_equal(prepare(loop->path, true, &message), ERR_BUSY);
    assert_names(&message, "is in use");
    open_while_held(loop->path, holder);
    assert_int_equal(pool_host_content(loop->path, text, sizeof(text), NULL), OK);
    assert_string_equal(text, "disk 0 of the Holdfast pool tank");
}

static void whole_devices_get_a_table(void **state) {
    (void)state;
    static const uint32_t sectors[] = {512, 4096};
    for (size_t i = 0; i < 2; i++) {
        struct loop loop;
        if (!loop_open(&loop, sectors[i])) {
            skip();
        }
        use_device(&loop);
        loop_close(&loop);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_locked_file_is_waited_for),
        cmocka_unit_test(foreign_content_is_named_and_kept),
        cmocka_unit_test(what_partitions_hold_is_named),
        cmocka_unit_test(a_pools_disk_is_named),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(tables_are_found_by_either_end),
        cmocka_unit_test(whole_devices_get_a_table),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
