// SPDX-License-Identifier: MPL-2.0
/* Streams and listeners, against plain sockets in another thread. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "env/linux/linux.h"
#include "env/net.h"

static struct env *env;
static enum env_linux_ring modes[] = {ENV_LINUX_RING_AUTO, ENV_LINUX_RING_OFF};

static int setup(void **state) {
    enum env_linux_ring *mode = *state;
    struct env_linux_options options = {.ring = *mode};
    return env_linux_new(&options, &env, NULL);
}

static int teardown(void **state) {
    (void)state;
    env_linux_free(env);
    return 0;
}

static int connect_to(const char *address) {
    struct sockaddr_storage sa;
    memset(&sa, 0, sizeof(sa));
    socklen_t length = 0;
    const char *port = strrchr(address, ':');
    if (address[0] == '/') {
        struct sockaddr_un *un = (void *)&sa;
        un->sun_family = AF_UNIX;
        (void)snprintf(un->sun_path, sizeof(un->sun_path), "%s", address);
        length = sizeof(*un);
    } else if (address[0] == '[') {
        struct sockaddr_in6 *in6 = (void *)&sa;
        *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                     .sin6_port = htons((uint16_t)atoi(port + 1)),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        length = sizeof(*in6);
    } else {
        struct sockaddr_in *in = (void *)&sa;
        *in = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)atoi(port + 1)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        length = sizeof(*in);
    }
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int small = 8192; /* so that transfers come in pieces */
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    if (connect(fd, (struct sockaddr *)&sa, length) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static void stop_run(struct env_task *task) {
    (void)task;
    env_stop(env);
}

/* Lets the closed ones be freed. */
static void settle(void) {
    struct env_task stop = {NULL, stop_run};
    env_defer(env, &stop);
    env_run(env);
}

/* ---- an echo server ---- */

enum { ECHO_BYTES = 4 << 20, CLIENTS = 4 };

struct echo {
    struct net_stream *stream;
    uint8_t bytes[20000];
};

static struct net_listener *listener;
static uint32_t echoes_open, echoes_seen;
static const char *echo_word; /* expected in the peer's address */

static void echo_read(struct echo *echo);

static void echo_closed(void *owner) {
    mem_free(owner);
    echoes_open--;
    if (echoes_open == 0 && echoes_seen == CLIENTS) {
        net_listener_close(listener);
        env_stop(env);
    }
}

static void echo_written(void *owner, int64_t result) {
    assert_int_equal(result, OK);
    echo_read(owner);
}

static void echo_came(void *owner, int64_t result) {
    struct echo *echo = owner;
    if (result <= 0) {
        assert_int_equal(result, 0);
        net_stream_close(echo->stream, echo_closed, echo);
        return;
    }
    /* In three pieces, one of them empty. */
    size_t half = (size_t)result / 2;
    struct iovec iov[3] = {
        {echo->bytes, half}, {echo->bytes, 0}, {echo->bytes + half, (size_t)result - half}};
    net_stream_writev(echo->stream, iov, 3, echo_written, echo);
    memset(iov, 0xff, sizeof(iov)); /* the array was copied */
}

static void echo_read(struct echo *echo) {
    struct iovec iov[2] = {{echo->bytes, 5000}, {echo->bytes + 5000, sizeof(echo->bytes) - 5000}};
    net_stream_readv(echo->stream, iov, 2, echo_came, echo);
}

static void echo_accepted(void *owner, struct net_stream *stream) {
    assert_ptr_equal(owner, &listener);
    assert_non_null(strstr(net_stream_peer(stream), echo_word));
    assert_string_equal(net_stream_local(stream), net_listener_address(listener));
    struct echo *echo = MEM_NEW(struct echo);
    echo->stream = stream;
    echoes_open++;
    echoes_seen++;
    echo_read(echo);
}

struct client {
    pthread_t reader, writer;
    int fd;
    uint64_t seed;
};

static void *client_write(void *arg) {
    struct client *client = arg;
    struct rng rng, sizes;
    rng_init(&rng, client->seed);
    rng_init(&sizes, client->seed + 1);
    uint8_t bytes[16384];
    size_t sent = 0;
    while (sent < ECHO_BYTES) {
        size_t piece = MIN((size_t)rng_between(&sizes, 1, 2048) * 8, ECHO_BYTES - sent);
        rng_fill(&rng, bytes, piece);
        for (size_t at = 0; at < piece;) {
            ssize_t put = send(client->fd, bytes + at, piece - at, MSG_NOSIGNAL);
            assert_true(put > 0);
            at += (size_t)put;
        }
        sent += piece;
    }
    assert_int_equal(shutdown(client->fd, SHUT_WR), 0);
    return NULL;
}

static void *client_read(void *arg) {
    struct client *client = arg;
    struct rng rng;
    rng_init(&rng, client->seed);
    size_t got = 0;
    uint8_t bytes[8192], expected[8192];
    for (;;) {
        ssize_t n = recv(client->fd, bytes, sizeof(bytes), MSG_WAITALL);
        assert_true(n >= 0);
        if (n == 0) {
            break;
        }
        assert_int_equal(n % 8, 0);
        rng_fill(&rng, expected, (size_t)n);
        assert_memory_equal(bytes, expected, n);
        got += (size_t)n;
    }
    assert_int_equal(got, ECHO_BYTES);
    (void)close(client->fd);
    return NULL;
}

static void echo_over(const char *address, const char *word) {
    echoes_open = echoes_seen = 0;
    echo_word = word;
    struct errmsg e = {0};
    if (net_listen(env, address, echo_accepted, &listener, &listener, &e) != OK) {
        fail_msg("%s", e.text);
    }
    struct client clients[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].seed = 100 + i * 10;
        clients[i].fd = connect_to(net_listener_address(listener));
        assert_true(clients[i].fd >= 0);
        assert_int_equal(pthread_create(&clients[i].writer, NULL, client_write, &clients[i]), 0);
        assert_int_equal(pthread_create(&clients[i].reader, NULL, client_read, &clients[i]), 0);
    }
    env_run(env);
    settle();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].writer, NULL), 0);
        assert_int_equal(pthread_join(clients[i].reader, NULL), 0);
    }
}

static void echo_ipv4(void **state) {
    (void)state;
    echo_over("127.0.0.1:0", "127.0.0.1:");
}

static void echo_ipv6(void **state) {
    (void)state;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has_ipv6 = fd >= 0 && bind(fd, (struct sockaddr *)&in6, sizeof(in6)) == 0;
    (void)close(fd);
    if (!has_ipv6) {
        skip();
    }
    echo_over("[::1]:0", "[::1]:");
}

static char unix_folder[64], unix_path[96];

static void make_unix_folder(void) {
    (void)snprintf(unix_folder, sizeof(unix_folder), "/tmp/holdfast-net-XXXXXX");
    assert_non_null(mkdtemp(unix_folder));
    (void)snprintf(unix_path, sizeof(unix_path), "%s/socket", unix_folder);
}

static void echo_unix(void **state) {
    (void)state;
    make_unix_folder();
    echo_over(unix_path, "unix");
    assert_int_equal(access(unix_path, F_OK), -1); /* gone with its listener */
    assert_int_equal(rmdir(unix_folder), 0);
}

/* ---- closing with calls outstanding ---- */

static char closing_noted[32];
static uint8_t closing_bytes[1 << 20];
static struct net_stream *closing_stream;

static void note(char letter) {
    size_t used = strlen(closing_noted);
    assert_true(used + 1 < sizeof(closing_noted));
    closing_noted[used] = letter;
    closing_noted[used + 1] = 0;
}

static void closing_read(void *owner, int64_t result) {
    (void)owner;
    assert_int_equal(result, ERR_CANCELLED);
    note('r');
}

static void closing_written(void *owner, int64_t result) {
    (void)owner;
    assert_int_equal(result, ERR_CANCELLED);
    note('w');
}

static void closing_closed(void *owner) {
    assert_ptr_equal(owner, closing_bytes);
    note('c');
    env_stop(env);
}

static void closing_fire(struct env_timer *timer) {
    (void)timer;
    net_stream_close(closing_stream, closing_closed, closing_bytes);
    assert_string_equal(closing_noted, ""); /* from the loop only */
}

static struct env_timer closing_timer = {.fire = closing_fire};

static void closing_accepted(void *owner, struct net_stream *stream) {
    struct net_listener **l = owner;
    net_listener_close(*l); /* from its own callback */
    closing_stream = stream;
    static uint8_t byte;
    struct iovec in = {&byte, 1}, out[64];
    for (size_t i = 0; i < ARRAY_COUNT(out); i++) { /* more than the sockets hold */
        out[i] = (struct iovec){closing_bytes, sizeof(closing_bytes)};
    }
    net_stream_readv(stream, &in, 1, closing_read, NULL);
    net_stream_writev(stream, out, ARRAY_COUNT(out), closing_written, NULL);
    env_timer_arm(env, &closing_timer, env_now_ns(env) + 20 * NS_PER_MS);
}

static void closing_cancels_first(void **state) {
    (void)state;
    closing_noted[0] = 0;
    struct net_listener *l;
    assert_int_equal(net_listen(env, "127.0.0.1:0", closing_accepted, &l, &l, NULL), OK);
    int fd = connect_to(net_listener_address(l));
    assert_true(fd >= 0);
    env_run(env);
    assert_string_equal(closing_noted, "rwc");
    (void)close(fd);
}

/* ---- a peer that goes ---- */

static int64_t reset_result;

static void reset_closed(void *owner) {
    (void)owner;
    env_stop(env);
}

static void reset_done(void *owner, int64_t result) {
    reset_result = result;
    net_stream_close(owner, reset_closed, NULL);
}

static void reset_accepted(void *owner, struct net_stream *stream) {
    int *fd = owner;
    struct linger linger = {1, 0};
    assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    (void)close(*fd); /* a reset, not an end */
    struct iovec iov = {closing_bytes, sizeof(closing_bytes)};
    net_stream_readv(stream, &iov, 1, reset_done, stream);
}

static void a_reset_is_an_error(void **state) {
    (void)state;
    struct net_listener *l;
    int fd;
    assert_int_equal(net_listen(env, "127.0.0.1:0", reset_accepted, &fd, &l, NULL), OK);
    fd = connect_to(net_listener_address(l));
    assert_true(fd >= 0);
    env_run(env);
    assert_int_equal(reset_result, ERR_CLOSED);
    net_listener_close(l);
    settle();
}

/* The last bytes and the end of the stream came before the first read. */
static uint32_t late_bytes;

static void late_came(void *owner, int64_t result) {
    if (result <= 0) {
        reset_done(owner, result);
        return;
    }
    late_bytes += (uint32_t)result;
    struct iovec iov = {closing_bytes, 100};
    net_stream_readv(owner, &iov, 1, late_came, owner);
}

static struct net_stream *late_stream;

static void late_fire(struct env_timer *timer) {
    (void)timer;
    struct iovec iov = {closing_bytes, 100};
    net_stream_readv(late_stream, &iov, 1, late_came, late_stream);
}

static struct env_timer late_timer = {.fire = late_fire};

static void late_accepted(void *owner, struct net_stream *stream) {
    int *fd = owner;
    assert_int_equal(send(*fd, "0123456789", 10, 0), 10);
    (void)close(*fd);
    late_stream = stream;
    env_timer_arm(env, &late_timer, env_now_ns(env) + 20 * NS_PER_MS);
}

static void the_end_is_seen_after_a_short_read(void **state) {
    (void)state;
    late_bytes = 0;
    reset_result = -1;
    struct net_listener *l;
    int fd;
    assert_int_equal(net_listen(env, "127.0.0.1:0", late_accepted, &fd, &l, NULL), OK);
    fd = connect_to(net_listener_address(l));
    assert_true(fd >= 0);
    env_run(env);
    assert_int_equal(late_bytes, 10);
    assert_int_equal(reset_result, 0);
    net_listener_close(l);
    settle();
}

/* ---- listening ---- */

static void nobody_accepted(void *owner, struct net_stream *stream) {
    (void)owner;
    net_stream_close(stream, NULL, NULL);
}

static void addresses_are_checked(void **state) {
    (void)state;
    static const char *bad[] = {"",
                                "127.0.0.1",
                                "127.0.0.1:",
                                ":3260",
                                "127.0.0.1:http",
                                "[::1:3260",
                                "::1]:3260",
                                "localhost:1",
                                "300.1.1.1:1",
                                "127.0.0.1:-1",
                                "[127.0.0.1]:1",
                                "1.2.3.4:99999",
                                "no path"};
    struct net_listener *l;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct errmsg e = {0};
        if (net_listen(env, bad[i], nobody_accepted, NULL, &l, &e) != ERR_INVALID) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_true(strlen(e.text) > 0);
    }
    char path[256];
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[255] = 0;
    assert_int_equal(net_listen(env, path, nobody_accepted, NULL, &l, NULL), ERR_INVALID);
    assert_int_equal(net_listen(env, "192.0.2.1:1", nobody_accepted, NULL, &l, NULL), ERR_INVALID);
}

static void a_port_is_taken_once(void **state) {
    (void)state;
    struct net_listener *first, *second;
    assert_int_equal(net_listen(env, "127.0.0.1:0", nobody_accepted, NULL, &first, NULL), OK);
    assert_int_equal(
        net_listen(env, net_listener_address(first), nobody_accepted, NULL, &second, NULL),
        ERR_BUSY);
    net_listener_close(first);
    settle();
}

static void stale_unix_sockets_are_replaced(void **state) {
    (void)state;
    make_unix_folder();
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", unix_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    (void)close(fd); /* as a killed process leaves it */
    struct net_listener *l, *second;
    mode_t mask = umask(077);
    assert_int_equal(net_listen(env, unix_path, nobody_accepted, NULL, &l, NULL), OK);
    umask(mask);
    struct stat st;
    assert_int_equal(stat(unix_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_int_equal(net_listen(env, unix_path, nobody_accepted, NULL, &second, NULL), ERR_BUSY);
    net_listener_close(l);
    settle();
    FILE *file = fopen(unix_path, "w"); /* a file of somebody's: not ours to remove */
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(net_listen(env, unix_path, nobody_accepted, NULL, &l, NULL), ERR_BUSY);
    assert_int_equal(unlink(unix_path), 0);
    assert_int_equal(rmdir(unix_folder), 0);
}

static void counted_accepted(void *owner, struct net_stream *stream) {
    net_stream_close(stream, NULL, NULL);
    if (--*(int *)owner == 0) {
        env_stop(env);
    }
}

static void restore_run(struct env_timer *timer) {
    (void)timer;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 1024 ? limit.rlim_max : 1024;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void accepting_survives_a_lack_of_descriptors(void **state) {
    (void)state;
    int left = 3, fds[3];
    struct net_listener *l;
    assert_int_equal(net_listen(env, "127.0.0.1:0", counted_accepted, &left, &l, NULL), OK);
    for (int i = 0; i < 3; i++) {
        fds[i] = connect_to(net_listener_address(l));
        assert_true(fds[i] >= 0);
    }
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 3; /* less than is open already: none to be had */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct env_timer restore = {.fire = restore_run};
    env_timer_arm(env, &restore, env_now_ns(env) + 30 * NS_PER_MS);
    env_run(env);
    settle();
    for (int i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
    net_listener_close(l);
    settle();
}

/* ---- reads, while the loop has always something to do ---- */

struct busy {
    struct env_task task;
    struct net_listener *listener;
    struct net_stream *stream;
    uint64_t until_ns;
    uint8_t bytes[16];
    int64_t got;
};

static void busy_run(struct env_task *task) {
    struct busy *busy = CONTAINER_OF(task, struct busy, task);
    if (busy->got != 0 || env_now_ns(env) >= busy->until_ns) {
        env_stop(env);
    } else {
        env_defer(env, task);
    }
}

static void busy_read(void *owner, int64_t result) {
    struct busy *busy = owner;
    busy->got = result;
}

static void busy_accepted(void *owner, struct net_stream *stream) {
    struct busy *busy = owner;
    struct iovec iov = {busy->bytes, sizeof(busy->bytes)};
    busy->stream = stream;
    net_stream_readv(stream, &iov, 1, busy_read, busy);
    env_defer(env, &busy->task);
}

static void a_busy_loop_reads(void **state) {
    (void)state;
    struct busy busy = {.task.run = busy_run, .until_ns = env_now_ns(env) + 10 * NS_PER_S};
    assert_int_equal(net_listen(env, "127.0.0.1:0", busy_accepted, &busy, &busy.listener, NULL),
                     OK);
    int fd = connect_to(net_listener_address(busy.listener));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "hello", 5), 5);
    env_run(env);
    assert_int_equal(busy.got, 5);
    assert_memory_equal(busy.bytes, "hello", 5);
    net_stream_close(busy.stream, NULL, NULL);
    net_listener_close(busy.listener);
    settle();
    (void)close(fd);
}

#define BOTH(name)                                                                                 \
    {#name " (auto)", name, setup, teardown, &modes[0]}, {                                         \
#name " (epoll)", name, setup, teardown, &modes[1]                                         \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(echo_ipv4),
        BOTH(echo_ipv6),
        BOTH(echo_unix),
        BOTH(closing_cancels_first),
        BOTH(a_reset_is_an_error),
        BOTH(the_end_is_seen_after_a_short_read),
        BOTH(addresses_are_checked),
        BOTH(a_port_is_taken_once),
        BOTH(stale_unix_sockets_are_replaced),
        BOTH(a_busy_loop_reads),
        BOTH(accepting_survives_a_lack_of_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
