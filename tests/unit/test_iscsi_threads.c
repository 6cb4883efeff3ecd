// SPDX-License-Identifier: MPL-2.0
/* A target on several loops with real threads and sockets: hosts read, write, reserve, preempt,
 * abort and reset on one unit through portals of different loops, and take their sessions from one
 * loop to another, while access lists change, a unit comes and goes and sessions are listed. Small
 * enough for ThreadSanitizer.
 *
 * What must hold, whatever meets: a write that was acknowledged is what is read until it is written
 * again, also when an older write of the place was dropped under way; task management is answered;
 * nobody gets a status that nobody may get. And everything must have happened. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "control/loop.h"
#include "env/fiber.h"
#include "iscsi/iscsi.h"
#include "iscsi/pdu.h"
#include "memory_volume.h"

#define TARGET "iqn.2025-01.org.example:threads"
#define HOST "iqn.2025-01.org.example:host-%d"

enum { LOOPS = 3, HOSTS = 4, STEPS = 200, PORTALS = 4, BLOCKS_EACH = 16, BLOCK = 4096 };
enum { DEPTH = 4, QUESTION_MS = 20, ANSWER_S = 10 };

struct world {
    struct loop loops[LOOPS], disk;
    struct memory_volume volume, other;
    struct scsi_target *scsi;
    struct iscsi_server *server;
    int ports[PORTALS];
    uint32_t added;
    uint32_t events; /* the server calls one at a time */
    bool stopped;
};

/* What must have happened in the end. */
struct tally {
    uint32_t writes, checks, conflicts, attentions, aborts, resets, cleared, preempted;
    uint32_t dropped, reinstated, moved, refused, lost;
};

struct host {
    struct world *w;
    int number;
    struct rng rng;
    pthread_t thread;
    int fd; /* -1: not connected */
    uint16_t tsih;
    uint32_t cmd_sn, itt;
    uint8_t bhs[BHS_BYTES], data[64 << 10];
    uint8_t value[BLOCKS_EACH]; /* acknowledged last; 0: not known */
    uint8_t next_value;
    struct tally did;
    char problem[128];
};

static void problem(struct host *h, const char *text, uint32_t detail) {
    if (h->problem[0] == '\0') {
        (void)snprintf(h->problem, sizeof(h->problem), "host %d: %s (%#x)", h->number, text,
                       detail);
    }
}

/* ---- the wire ---- */

static void hang_up(struct host *h) {
    if (h->fd >= 0) {
        (void)close(h->fd);
    }
    h->fd = -1;
}

static bool take(int fd, void *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        ssize_t got = recv(fd, (uint8_t *)bytes + at, length - at, 0);
        if (got <= 0) {
            return false;
        }
        at += (size_t)got;
    }
    return true;
}

/* False: the connection has gone. */
static bool receive(struct host *h) {
    if (h->fd < 0) {
        return false;
    }
    errno = 0;
    if (!take(h->fd, h->bhs, BHS_BYTES)) {
        if (errno == EAGAIN) {
            problem(h, "no answer", 0);
        }
        h->did.lost++;
        hang_up(h);
        return false;
    }
    uint32_t bytes = bhs_data_bytes(h->bhs);
    bytes += pad_bytes(bytes);
    if (bytes > sizeof(h->data) || !take(h->fd, h->data, bytes)) {
        hang_up(h);
        return false;
    }
    return true;
}

static void send_pdu(struct host *h, uint8_t *bhs, const void *data, uint32_t bytes) {
    uint8_t pdu[BHS_BYTES + 2 * BLOCK] = {0};
    put_be24(bhs + AT_DATA_LENGTH, bytes);
    memcpy(pdu, bhs, BHS_BYTES);
    if (bytes != 0) {
        memcpy(pdu + BHS_BYTES, data, bytes);
    }
    size_t length = BHS_BYTES + bytes + pad_bytes(bytes);
    if (h->fd >= 0 && send(h->fd, pdu, length, MSG_NOSIGNAL) != (ssize_t)length) {
        hang_up(h);
    }
}

static int dial(int port) {
    const struct timeval patience = {.tv_sec = ANSWER_S};
    const int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        (void)close(fd);
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* Logs in on a portal of any loop; with `tsih` the session moves there. The login's status. */
static uint32_t log_in(struct host *h, uint16_t tsih) {
    char keys[256];
    uint8_t bhs[BHS_BYTES] = {OP_LOGIN | BHS_IMMEDIATE, 0x87};
    int length = snprintf(keys, sizeof(keys),
                          "InitiatorName=" HOST "%cTargetName=" TARGET "%cSessionType=Normal%c",
                          h->number, 0, 0, 0);
    h->fd = dial(h->w->ports[rng_below(&h->rng, PORTALS)]);
    bhs[AT_ISID] = 0x80;
    bhs[AT_ISID + 5] = (uint8_t)h->number;
    put_be16(bhs + AT_TSIH, tsih);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    send_pdu(h, bhs, keys, (uint32_t)length);
    if (!receive(h)) {
        return UINT32_MAX;
    }
    if (bhs_opcode(h->bhs) != OP_LOGIN_RESPONSE) {
        problem(h, "not a login response", h->bhs[0]);
    }
    uint32_t status = get_be16(h->bhs + AT_LOGIN_STATUS);
    if (status != 0) {
        hang_up(h);
    }
    h->tsih = get_be16(h->bhs + AT_TSIH);
    return status;
}

/* ---- commands ---- */

static void send_command(struct host *h, uint8_t flags, const uint8_t *cdb, const void *data,
                         uint32_t bytes) {
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, flags};
    put_be32(bhs + AT_ITT, h->itt);
    put_be32(bhs + AT_COMMAND_LENGTH, bytes);
    put_be32(bhs + AT_CMDSN, h->cmd_sn++);
    memcpy(bhs + AT_CDB, cdb, SCSI_CDB_BYTES_MAX);
    h->itt++;
    send_pdu(h, bhs, data, data != NULL ? bytes : 0);
}

static bool is_status(const uint8_t *bhs) {
    return bhs_opcode(bhs) == OP_SCSI_RESPONSE ||
           (bhs_opcode(bhs) == OP_DATA_IN && (bhs[AT_FLAGS] & DATA_IN_STATUS) != 0);
}

/* Looks at a status that has come: those that may be. */
static uint32_t judge(struct host *h) {
    uint32_t status = h->bhs[AT_STATUS];
    if (status == SCSI_RESERVATION_CONFLICT) {
        h->did.conflicts++;
    } else if (status == SCSI_CHECK_CONDITION) {
        uint32_t key = h->data[4] & 15, asc = get_be16(h->data + 14);
        h->did.attentions += key == 6;
        h->did.cleared += asc == 0x2f00 || asc == 0x2903;
        h->did.preempted += asc == 0x2a05 || asc == 0x2a03;
        bool taken = h->number == 0 && asc == 0x2500; /* its access; the session ends, too */
        if (key != 6 && !taken) {
            problem(h, "sense", key << 16 | asc);
        }
    } else if (status != SCSI_GOOD && status != SCSI_BUSY) {
        problem(h, "status", status);
    }
    return status;
}

static bool is_silent(const struct host *h) {
    struct pollfd fd = {.fd = h->fd, .events = POLLIN};
    return h->fd >= 0 && poll(&fd, 1, QUESTION_MS) == 0;
}

/* The answer of a command, GOOD or not; TASK ABORTED when another host has had it dropped, of which
 * nobody is told but by an attention for the next command: so whoever hears nothing asks. BUSY: the
 * connection has gone. */
static uint32_t answer_of(struct host *h, uint32_t itt) {
    static const uint8_t test_unit_ready[SCSI_CDB_BYTES_MAX];
    for (int questions = 0; questions < ANSWER_S * 1000 / QUESTION_MS;) {
        if (is_silent(h)) {
            send_command(h, BHS_FINAL, test_unit_ready, NULL, 0);
            questions++;
            continue;
        }
        if (!receive(h)) {
            return SCSI_BUSY;
        }
        if (!is_status(h->bhs)) {
            continue;
        }
        uint32_t cleared = h->did.cleared, status = judge(h);
        uint32_t of = get_be32(h->bhs + AT_ITT);
        if (of == itt) {
            return status;
        }
        if (h->did.cleared != cleared && serial_is_before(itt, of)) {
            h->did.dropped++;
            return SCSI_TASK_ABORTED;
        }
    }
    problem(h, "no answer", itt);
    return SCSI_BUSY;
}

/* One command, again while there is an attention. */
static uint32_t run(struct host *h, uint8_t flags, const uint8_t *cdb, const void *data,
                    uint32_t bytes) {
    uint32_t status = SCSI_CHECK_CONDITION;
    for (int i = 0; i < 20 && status == SCSI_CHECK_CONDITION; i++) {
        uint32_t itt = h->itt;
        send_command(h, flags, cdb, data, bytes);
        status = answer_of(h, itt);
    }
    return status;
}

static void block_cdb(const struct host *h, uint8_t opcode, uint32_t block, uint8_t *cdb) {
    memset(cdb, 0, SCSI_CDB_BYTES_MAX);
    cdb[0] = opcode;
    put_be32(cdb + 2, ((uint32_t)h->number * BLOCKS_EACH + block) * (BLOCK / 512));
    put_be16(cdb + 7, BLOCK / 512);
}

static uint8_t new_value(struct host *h) {
    h->next_value += h->next_value == UINT8_MAX ? 2 : 1;
    return h->next_value;
}

static void write_and_check(struct host *h) {
    uint32_t block = (uint32_t)rng_below(&h->rng, BLOCKS_EACH);
    uint8_t cdb[SCSI_CDB_BYTES_MAX], data[BLOCK], value = new_value(h);
    memset(data, value, sizeof(data));
    block_cdb(h, 0x2a, block, cdb);
    uint32_t status = run(h, BHS_FINAL | COMMAND_WRITE, cdb, data, BLOCK);
    h->value[block] = status == SCSI_GOOD                   ? value
                      : status == SCSI_RESERVATION_CONFLICT ? h->value[block]
                                                            : 0;
    h->did.writes += status == SCSI_GOOD;
    block = rng_chance(&h->rng, 1, 2) ? block : (uint32_t)rng_below(&h->rng, BLOCKS_EACH);
    block_cdb(h, 0x28, block, cdb);
    if (h->fd >= 0 && run(h, BHS_FINAL | COMMAND_READ, cdb, NULL, BLOCK) == SCSI_GOOD &&
        h->value[block] != 0) {
        memset(data, h->value[block], sizeof(data));
        h->did.checks++;
        if (memcmp(h->data, data, BLOCK) != 0) {
            problem(h, "wrong data", (uint32_t)h->data[0] << 8 | h->value[block]);
        }
    }
}

/* Some writes at once; what they have written is not known until they are answered. */
static void start_some(struct host *h) {
    uint8_t cdb[SCSI_CDB_BYTES_MAX], data[BLOCK];
    for (int i = 0; i < DEPTH; i++) {
        uint32_t block = (uint32_t)rng_below(&h->rng, BLOCKS_EACH);
        memset(data, new_value(h), sizeof(data));
        h->value[block] = 0;
        block_cdb(h, 0x2a, block, cdb);
        send_command(h, BHS_FINAL | COMMAND_WRITE, cdb, data, BLOCK);
    }
}

enum { ABORT_TASK = 1, ABORT_TASK_SET = 2, CLEAR_TASK_SET = 4, LUN_RESET = 5, NO_SUCH_LUN = 2 };

/* A function about the unit, or the newest task; the answers that come before its own are looked
 * at. */
static void ask(struct host *h, uint8_t function) {
    uint8_t bhs[BHS_BYTES] = {OP_TASK_MANAGEMENT | BHS_IMMEDIATE, (uint8_t)(BHS_FINAL | function)};
    put_be32(bhs + AT_ITT, h->itt++);
    put_be32(bhs + AT_REFERENCED_TASK, h->itt - 2);
    put_be32(bhs + AT_CMDSN, h->cmd_sn);
    put_be32(bhs + AT_REF_CMDSN, h->cmd_sn - 1);
    send_pdu(h, bhs, NULL, 0);
    do {
        if (!receive(h)) {
            return;
        }
        if (is_status(h->bhs)) {
            (void)judge(h);
        }
    } while (bhs_opcode(h->bhs) != OP_TASK_MANAGEMENT_RESPONSE);
    bool taken = h->number == 0 && h->bhs[AT_RESPONSE] == NO_SUCH_LUN; /* as in judge() */
    if (h->bhs[AT_RESPONSE] != 0 && !taken) {
        problem(h, "task management", h->bhs[AT_RESPONSE]);
    }
    h->did.aborts += function != LUN_RESET;
    h->did.resets += function == LUN_RESET;
}

/* Nothing of the host is under way then but what was dropped. */
static void manage(struct host *h) {
    static const uint8_t functions[] = {ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET};
    uint8_t function = functions[rng_below(&h->rng, sizeof(functions))];
    start_some(h);
    ask(h, function);
    if (function == ABORT_TASK) {
        ask(h, ABORT_TASK_SET);
    }
    write_and_check(h);
}

enum { REGISTER = 0, RESERVE = 1, RELEASE = 2, CLEAR = 3, PREEMPT_AND_ABORT = 5, IGNORING = 6 };

static void prout(struct host *h, uint8_t action, uint64_t key, uint64_t action_key) {
    uint8_t cdb[SCSI_CDB_BYTES_MAX] = {0x5f, action, 5 /* write exclusive, registrants only */};
    uint8_t list[24] = {0};
    put_be32(cdb + 5, sizeof(list));
    put_be64(list, key);
    put_be64(list + 8, action_key);
    list[20] = rng_chance(&h->rng, 1, 2) && action != PREEMPT_AND_ABORT; /* APTPL: it is stored */
    (void)run(h, BHS_FINAL | COMMAND_WRITE, cdb, list, sizeof(list));
}

static void reserve(struct host *h) {
    uint64_t own = (uint64_t)h->number + 1, victim = rng_below(&h->rng, HOSTS) + 1;
    prout(h, IGNORING, 0, own);
    prout(h, RESERVE, own, 0);
    if (rng_chance(&h->rng, 1, 2)) {
        prout(h, PREEMPT_AND_ABORT, own, victim);
    }
    write_and_check(h);
    prout(h, rng_chance(&h->rng, 1, 2) ? CLEAR : RELEASE, own, 0);
}

/* Another connection of the same session, or of a new one in its place; the old one is still there
 * and has commands under way. */
static void come_again(struct host *h) {
    int old = h->fd;
    uint16_t tsih = rng_chance(&h->rng, 1, 2) ? h->tsih : 0;
    if (old >= 0 && rng_chance(&h->rng, 1, 2)) {
        start_some(h);
        old = h->fd;
    }
    h->fd = -1;
    uint32_t status = log_in(h, old >= 0 ? tsih : 0);
    if (old >= 0) {
        h->did.reinstated += status == 0 && tsih == 0;
        h->did.moved += status == 0 && tsih != 0;
        (void)close(old);
    }
    h->did.refused += status == 0x0202;
    /* By another one's wish it may not be allowed now, or its session has gone before. */
    if (status != 0 && status != 0x0202 && status != 0x020a && status != UINT32_MAX) {
        problem(h, "login", status);
    }
}

static void *host_run(void *arg) {
    struct host *h = arg;
    for (int i = 0; i < STEPS && h->problem[0] == '\0'; i++) {
        uint64_t dice = rng_below(&h->rng, 10);
        if (h->fd < 0 || dice == 0) {
            come_again(h);
        } else if (dice < 3) {
            manage(h);
        } else if (dice < 5) {
            reserve(h);
        } else {
            write_and_check(h);
        }
    }
    return NULL;
}

/* ---- the target's side ---- */

static void on_event(void *owner, enum iscsi_event kind, const char *text) {
    (void)kind;
    (void)text;
    ((struct world *)owner)->events++;
}

static void start_server(void *arg) {
    struct world *w = arg;
    struct env *const others[LOOPS - 1] = {w->loops[1].env, w->loops[2].env};
    struct iscsi_options options = {
        .loops = others, .loop_count = LOOPS - 1, .event = on_event, .event_owner = w};
    w->scsi = scsi_target_new(w->loops[0].env);
    w->server = iscsi_server_new(w->loops[0].env, &options);
    assert_int_equal(scsi_lun_add(w->scsi, 0, &w->volume.door, &w->volume.info, NULL), OK);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, NULL), OK);
}

/* The portals share a portal group, so that a session can go from one to the other. */
static void add_portal(void *arg) {
    struct world *w = arg;
    uint32_t i = w->added;
    assert_int_equal(iscsi_portal_add_on(w->server, i % LOOPS, "127.0.0.1:0,7", NULL), OK);
    w->ports[i] = atoi(strrchr(iscsi_portal_address(w->server, i), ':') + 1);
    w->added++;
}

/* The control plane, once: host 0 may not, and may again; the other unit comes, grows and goes. */
static void meddle(void *arg) {
    struct world *w = arg;
    struct iscsi_rule rules[HOSTS];
    char names[HOSTS][64];
    for (int i = 0; i < HOSTS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), HOST, i);
        rules[i] = (struct iscsi_rule){.initiator = names[i]};
    }
    const struct iscsi_access access = {.rules = rules + 1, .rule_count = HOSTS - 1};
    struct iscsi_session_status status[HOSTS];
    struct volume_info larger = w->other.info;
    larger.size_bytes += 1 << 20;
    assert_int_equal(iscsi_target_set_access(w->server, TARGET, &access, NULL), OK);
    assert_int_equal(scsi_lun_add(w->scsi, 1, &w->other.door, &w->other.info, NULL), OK);
    fiber_sleep_until(env_now_ns(w->loops[0].env) + 5 * NS_PER_MS);
    assert_true(iscsi_session_list(w->server, status, HOSTS) <= HOSTS);
    assert_int_equal(iscsi_target_set_access(w->server, TARGET, NULL, NULL), OK);
    assert_int_equal(scsi_lun_update(w->scsi, 1, &larger, NULL), OK);
    assert_int_equal(scsi_lun_remove(w->scsi, 1, NULL), OK);
    struct scsi_lun_status luns[2];
    assert_int_equal(scsi_lun_list(w->scsi, luns, 2), 1);
}

static void on_stopped(void *owner) {
    ((struct world *)owner)->stopped = true;
}

static void stop_server(void *arg) {
    struct world *w = arg;
    struct env *env = w->loops[0].env;
    uint64_t began_ns = env_now_ns(env);
    iscsi_server_stop(w->server, began_ns + 5 * NS_PER_S, on_stopped, w);
    while (!w->stopped || !scsi_target_is_idle(w->scsi)) {
        fiber_sleep_until(env_now_ns(env) + NS_PER_MS);
    }
    assert_true(env_now_ns(env) - began_ns < 6 * NS_PER_S);
    iscsi_server_free(w->server);
    scsi_target_free(w->scsi);
}

static void set_up(struct world *w) {
    struct errmsg e = {0};
    assert_int_equal(loop_start(&w->disk, "disk", "/tmp", &e), OK);
    for (int i = 0; i < LOOPS; i++) {
        assert_int_equal(loop_start(&w->loops[i], "iscsi", "/tmp", &e), OK);
    }
    memory_volume_init(&w->volume, w->disk.env, HOSTS * BLOCKS_EACH * BLOCK, 512);
    memory_volume_init(&w->other, w->disk.env, 1 << 20, 512);
    w->volume.delay_ns = 200 * NS_PER_US; /* so that commands are under way when they are met */
    w->volume.disorder = 12;
    fiber_call(w->loops[0].env, start_server, w);
    for (int i = 0; i < PORTALS; i++) {
        fiber_call(w->loops[i % LOOPS].env, add_portal, w);
    }
}

static void tear_down(struct world *w) {
    fiber_call(w->loops[0].env, stop_server, w);
    for (int i = 0; i < LOOPS; i++) {
        loop_end(&w->loops[i]);
    }
    loop_end(&w->disk);
    for (int i = 0; i < LOOPS; i++) {
        loop_free(&w->loops[i]);
    }
    loop_free(&w->disk);
    memory_volume_done(&w->volume);
    memory_volume_done(&w->other);
}

static void hosts_meet_on_several_loops(void **state) {
    (void)state;
    static struct world w;
    static struct host hosts[HOSTS];
    struct tally did = {0};
    set_up(&w);
    for (int i = 0; i < HOSTS; i++) {
        hosts[i] = (struct host){.w = &w, .number = i, .fd = -1, .cmd_sn = 1, .itt = 1};
        rng_init(&hosts[i].rng, (uint64_t)i + 1);
        assert_int_equal(pthread_create(&hosts[i].thread, NULL, host_run, &hosts[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        const struct timespec while_ = {.tv_nsec = 20 * NS_PER_MS};
        fiber_call(w.loops[0].env, meddle, &w);
        (void)nanosleep(&while_, NULL);
    }
    for (int i = 0; i < HOSTS; i++) {
        assert_int_equal(pthread_join(hosts[i].thread, NULL), 0);
        uint32_t *sum = (uint32_t *)&did;
        for (size_t k = 0; k < sizeof(did) / sizeof(*sum); k++) {
            sum[k] += ((const uint32_t *)&hosts[i].did)[k];
        }
    }
    tear_down(&w); /* their sessions are still there */
    for (int i = 0; i < HOSTS; i++) {
        hang_up(&hosts[i]);
        if (hosts[i].problem[0] != '\0') {
            fail_msg("%s", hosts[i].problem);
        }
    }
    print_message("writes %u checks %u conflicts %u attentions %u aborts %u resets %u cleared %u "
                  "preempted %u dropped %u reinstated %u moved %u refused %u lost %u\n",
                  did.writes, did.checks, did.conflicts, did.attentions, did.aborts, did.resets,
                  did.cleared, did.preempted, did.dropped, did.reinstated, did.moved, did.refused,
                  did.lost);
    assert_true(did.writes > 100 && did.checks > 100 && did.conflicts > 0 && did.aborts > 10);
    assert_true(did.resets > 0 && did.attentions > 10 && did.preempted > 0 && did.dropped > 0);
    assert_true(did.reinstated > 0 && did.moved > 0 && w.events > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hosts_meet_on_several_loops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
