// SPDX-License-Identifier: MPL-2.0
/* The protocol model: one seed is one world of initiators of ours that speak to the real target
 * (src/iscsi over src/scsi) over simulated links, walk through the states of logins and tasks at
 * random, break whatever can be broken, and judge every byte that comes back.
 *
 * A *host* is an initiator port (name and ISID). It has a connection that it works with, a session
 * when it has logged in, and commands in hand. Host 0 behaves, has a target for itself, and must
 * never notice what the others do. The rest share a target, and reset each other.
 *
 *     protocol.c        the world: server, targets, hosts, faults from outside, the end
 *     protocol_volume.c a volume that is slow, refuses, or never answers
 *     protocol_wire.c   PDUs of a host: sending, receiving, what must hold of every one
 *     protocol_login.c  logins: keys, stages, CHAP, right and wrong; reinstatement
 *     protocol_task.c   commands: data, answers, task management
 *     protocol_host.c   what a host does next
 *
 * What the judge holds true:
 * - every command is answered once, or what ended it is known: its own abort, reset or clear (then
 *   no answer follows), somebody else's on the same unit, or the end of its connection;
 * - StatSN, ExpCmdSN, MaxCmdSN, DataSN and R2TSN count as RFC 7143 has them, and when nothing is in
 *   hand the window is wholly open;
 * - reads return what the oracle of the volume (oracle.h) allows, aborted writes included;
 * - task management is answered within 2 s of virtual time, whatever the volume does;
 * - a connection ends only when there is a reason that the world knows;
 * - the limits of iscsi/limits.h hold, and at the end no memory is left. */
#ifndef HOLDFAST_SIM_PROTOCOL_H
#define HOLDFAST_SIM_PROTOCOL_H

#include "base/mem.h"
#include "base/rng.h"
#include "env/fiber.h"
#include "env/sim/net.h"
#include "env/sim/sim.h"
#include "iscsi/internal.h"
#include "oracle.h"
#include "protocol_stats.h"

enum {
    HOSTS_MAX = 5,
    HOST_COMMANDS_MAX = 24,
    HOST_R2TS_MAX = 16,
    LUN_SECTORS = 8192, /* 4 MiB */
    COMMAND_SECTORS_MAX = 512,
    PDU_BYTES_MAX = 64 << 10, /* the longest data segment a host declares */
};

#define PROTOCOL_PORTAL "192.0.2.%u:3260"
#define MANAGEMENT_NS (2 * NS_PER_S)
#define ANSWER_NS (8 * NS_PER_S) /* beyond what a volume that answers takes */

struct protocol_options {
    uint64_t seed;
    bool trace;
};

struct protocol_result {
    bool failed;
    char why[1000];
    uint64_t virtual_ns, trace_hash, ops; /* ops: what hosts have done */
    struct protocol_stats stats;
};

/* Never fails itself; what the judge saw is in the result. */
void protocol_run(const struct protocol_options *options, struct protocol_result *ret_result);

/* ---- the volume ---- */

struct protocol_volume {
    struct volume_door door;
    struct volume_info info;
    struct protocol_world *world;
    uint8_t *data;
    struct list pending;
    uint64_t hangs_until_ns; /* requests that come before are not answered before */
    uint32_t delay_us_max;
    uint32_t errors; /* one in so many reads and writes fails; 0: none */
    struct oracle_volume oracle;
};

void protocol_volume_init(struct protocol_volume *volume, struct protocol_world *world,
                          uint64_t id);
void protocol_volume_done(struct protocol_volume *volume);
void protocol_volume_let_go(struct protocol_volume *volume); /* answers all that is kept */

/* ---- hosts ---- */

enum chap_user { USER_NONE, USER_RIGHT, USER_WRONG_SECRET, USER_UNKNOWN, USER_ABSENT };

struct host_r2t {
    uint32_t ttt, offset, length, sent, data_sn;
};

/* A command in hand. */
struct host_command {
    bool used, is_write, is_read, in_limbo; /* limbo: its connection has ended, its fate is open */
    bool may_vanish;                        /* somebody else's reset may take it */
    bool refused;                           /* we sent it so that it must fail */
    bool immediate;
    uint32_t itt, cmd_sn;
    uint64_t sector, count;
    uint32_t version, submitted; /* oracle */
    uint64_t sent_ns;
    uint32_t expected_bytes;
    uint8_t *data; /* of a write: what it writes; of a read: what came */
    uint32_t unsolicited_left, unsolicited_sent, unsolicited_sn;
    uint32_t r2t_sn, asked_bytes; /* by R2Ts and unsolicited */
    struct host_r2t r2ts[HOST_R2TS_MAX];
    uint32_t r2t_count;
    uint32_t data_in_sn, data_in_bytes, burst_bytes;
};

struct host_parameters {
    bool header_digest, data_digest, initial_r2t, immediate_data;
    uint32_t our_segment_bytes, their_segment_bytes, max_burst, first_burst, max_r2t;
};

enum conn_state { CONN_LOGIN, CONN_FULL, CONN_LOGOUT, CONN_ENDED };

struct host;

struct host_conn {
    struct host *host;
    struct net_stream *stream;
    enum conn_state state;
    enum protocol_place login_place; /* where in the login it is */
    struct host_parameters now;      /* in force */
    bool ended;                      /* the stream has ended: ended_how says how */
    int64_t ended_how;
    bool closing, closed;
    const char *may_end; /* a reason why the target may end it; NULL: it may not */
    bool cut;            /* it is broken, or will be some bytes later … */
    bool silent;         /* … and nobody is told */
    bool may_reject, is_discovery;
    uint32_t exp_stat_sn;
    bool knows_stat_sn;
    /* Receiving and sending. */
    uint8_t rx[4096];
    uint8_t *in;
    uint32_t in_bytes, in_room;
    uint8_t *out, *writing;
    uint32_t out_bytes, out_room;
    bool is_writing;
    /* The last login response, text response, management response, …: for who waits. */
    struct fiber_queue waiters;
    uint8_t bhs[BHS_BYTES];
    uint8_t *data;
    uint32_t data_bytes;
    bool has_pdu;
};

struct host {
    struct protocol_world *world;
    uint32_t index;
    struct rng rng;
    bool behaves;
    char name[64], address[32];
    uint8_t isid[6];
    const char *target;
    uint32_t lun;
    struct protocol_volume *volume;
    uint64_t first_sector, sectors; /* its part of the volume */
    struct host_conn *conn;
    bool in_session;
    bool session_uncertain; /* whether the target still has it */
    struct host_parameters of_session;
    uint16_t tsih, cid;
    uint32_t cmd_sn, itt;
    uint32_t exp_cmd_sn, max_cmd_sn; /* as told last */
    struct host_command commands[HOST_COMMANDS_MAX];
    uint32_t in_hand;
    /* What is waited for: one management function, text exchange, ping or logout at a time. */
    uint32_t waited_itt;
    uint8_t ping[64];
    uint32_t ping_bytes;
    bool attention_due;           /* the first command of a session must get a unit attention */
    bool attention_possible;      /* somebody has reset the unit … */
    uint64_t attention_caused_ns; /* … at that time, for the last time */
    uint32_t actions;
    bool is_running;
};

struct protocol_world {
    struct env *env;
    struct rng rng;
    struct mem_scope scope;
    struct protocol_result *result;
    struct sim_link *link;
    struct iscsi_server *server;
    struct scsi_target *shared, *own; /* of the others; of host 0 */
    struct protocol_volume volumes[2];
    struct oracle oracle;
    uint32_t next_version;
    struct host hosts[HOSTS_MAX];
    uint32_t host_count, hosts_running, hosts_left;
    bool stopping, stopped;
    uint32_t resets_open, cold_resets_open;
    uint32_t hangs_left;
    uint64_t hung_ns; /* up to when the shared volume has answered nobody */
    uint32_t portal_count;
    uint32_t commands_max;
    uint64_t memory_bytes;
    char event[512];
};

/* The world has failed: the first reason counts, and everything stops. */
void protocol_fail(struct protocol_world *w, const char *format, ...) HF_PRINTF(2, 3);
bool protocol_has_failed(const struct protocol_world *w);
void protocol_check_limits(struct protocol_world *w);
#define COUNT(w, name) ((w)->result->stats.count[PSTAT_##name]++)

/* Every connection of the shared target may be ended now, or its commands taken. */
void protocol_reset_begins(struct protocol_world *w, const struct host *by, bool ends_sessions);
void protocol_reset_ended(struct protocol_world *w, bool ends_sessions);

struct protocol_reset {
    struct env_timer timer;
    struct protocol_world *world;
    bool ends_sessions;
};

/* ---- wire ---- */

struct host_conn *conn_new(struct host *host);
/* Closes it and frees it when it is closed. Parks. */
void conn_free(struct host_conn *conn);
void conn_send(struct host_conn *conn, uint8_t *bhs, const void *data, uint32_t bytes);
/* Waits for the next PDU that is no answer to a command; false: the connection has ended, or
 * nothing came for so long. Parks. */
bool conn_receive(struct host_conn *conn, uint64_t patience_ns);
/* Waits until the connection ends. Parks. */
bool conn_wait_end(struct host_conn *conn, uint64_t patience_ns);
/* Breaks it: at once, or when so many more bytes have gone one way or the other. */
void conn_break(struct host_conn *conn, enum protocol_break how, uint64_t bytes);

/* ---- login ---- */

enum login_aim {
    LOGIN_SESSION,    /* a new session, in the place of an old one if there is one */
    LOGIN_CONNECTION, /* connection reinstatement */
    LOGIN_DISCOVERY,
    LOGIN_WRONG, /* something is wrong with it: it must be refused */
};

/* True: logged in, and host->conn is the new connection. Parks. */
bool host_login(struct host *host, enum login_aim aim);

/* ---- tasks ---- */

void task_received(struct host_conn *conn, const uint8_t *bhs, const uint8_t *data, uint32_t bytes);
/* Starts a read, write or other command. */
void task_start(struct host *host);
/* Sends some of the data that somebody waits for; false: nothing is to be sent. */
bool task_feed(struct host *host, bool wrongly);
/* Whether a command whose data came wrongly has not been answered yet. */
bool task_is_refused(const struct host *host);
enum protocol_task_state task_state(const struct host_command *command);
struct host_command *task_any(struct host *host);
/* What a task that gets no answer any more has done is not known. */
void task_forget(struct host *host, struct host_command *command);
/* All commands of the host's connection: it has ended (their fate is open until the next login). */
void tasks_to_limbo(struct host *host);
void tasks_forget(struct host *host);
/* A task management function of any kind; judges the answer. `command` (of ABORT TASK): whom it
 * means; NULL: one that there is not. Parks. */
void task_manage(struct host *host, uint32_t function, struct host_command *command);
void tasks_cover(struct host *host, enum protocol_task_event event);
/* Commands that wait too long are aborted, or have failed the world. Parks. */
void tasks_look_after(struct host *host);
void tasks_oldest_read(struct protocol_world *w);

/* ---- a host ---- */

void host_main(void *arg);
/* Breaks the connection some time: now, or some bytes later. */
void host_break_later(struct host_conn *conn);
/* A login that should have succeeded did not: right only if there was a reason. What became of the
 * host's session is not known then. */
void host_login_failed(struct host *host, struct host_conn *conn, enum login_aim aim,
                       uint32_t status);

#endif
