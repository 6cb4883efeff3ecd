// SPDX-License-Identifier: MPL-2.0
/* What the files of the target share.
 *
 *     server ── portals, targets
 *        └─ loops ── data buffers
 *             └─ connections ── rx machine, tx queue, login or text negotiation
 *                    └─ session (after login; one connection each) ── SCSI nexus, CmdSN window
 *                          └─ commands ── SCSI task, buffers, R2Ts
 *
 * Loops. A connection lives on one loop, with its session, its commands and their buffers: only
 * that loop touches them, and the path of a command takes no lock here. What loops share is the
 * server's: portals, targets with their access lists, and the register of connections, in which a
 * login looks for the session it replaces, limits are counted and sessions are listed. That is
 * guarded by the server's lock; which fields of a connection and its session others may read under
 * it is said there, and their own loop changes these under the lock only. Nobody reaches into a
 * connection of another loop: it gets an *order* (order.c). Locks are taken in the order server,
 * SCSI target, events; none of them is held while a connection is closed or anything is waited for.
 *
 * Who frees what. A connection is freed when its stream has reported that it is closed; nothing is
 * read into or written from anybody's memory after that. A command is counted by reference, because
 * four parties may still need its buffer when the others have long forgotten it: the session, the
 * SCSI task (until the volume lets go), the data segment being received, and the PDUs being sent.
 */
#ifndef HOLDFAST_ISCSI_INTERNAL_H
#define HOLDFAST_ISCSI_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/mem.h"
#include "env/net.h"
#include "iscsi/access.h"
#include "iscsi/iscsi.h"
#include "iscsi/keys.h"
#include "iscsi/pdu.h"

/* ---- data buffers (memory.c) ---- */

enum { BUFFER_CLASSES = 7 }; /* 4 KiB · 4^n: 4K 16K 64K 256K 1M 4M 16M */

/* What a connection holds. Outlives it as long as buffers of dropped commands count on it. */
struct memory_account {
    uint64_t bytes;
    bool closed;
};

struct iscsi_buffer {
    struct list in_free;
    struct mem_pages *pages;
    uint32_t class_index;
    struct memory_account *account;
};

/* What all loops have handed out together, and one loop's store. */
struct memory_total {
    uint64_t limit_bytes, cached_bytes_max; /* of one loop */
    atomic_uint_fast64_t used_bytes;
    atomic_uint waiting_loops; /* whose commands wait for some */
};

struct iscsi_memory {
    struct memory_total *total;
    uint64_t cached_bytes;
    struct list free[BUFFER_CLASSES];
};

void memory_init(struct iscsi_memory *memory, struct memory_total *total);
void memory_done(struct iscsi_memory *memory);
/* NULL when the limits of limits.h do not allow it now. 1 ≤ bytes ≤ SCSI_TRANSFER_BYTES_MAX. */
struct iscsi_buffer *memory_get(struct iscsi_memory *memory, struct memory_account *account,
                                uint64_t bytes);
void memory_put(struct iscsi_memory *memory, struct iscsi_buffer *buffer);
void memory_account_close(struct memory_account *account);

/* ---- the server ---- */

struct iscsi_portal {
    struct list in_server;
    struct iscsi_loop *loop;
    struct net_listener *listener; /* its loop only */
    uint16_t tag;                  /* portal group tag and relative target port: 1 … */
    char given[128], bound[128];
};

struct iscsi_target {
    struct list in_server;
    uint32_t users; /* sessions, and being in the list */
    char iqn[ISCSI_NAME_BYTES_MAX + 1];
    struct scsi_target *scsi;
    struct access *access; /* NULL: everybody */
};

/* What belongs to one loop, and is touched by it alone but where it says otherwise. */
struct iscsi_loop {
    struct iscsi_server *server;
    struct env *env;
    struct list connections; /* by in_loop */
    struct iscsi_memory memory;
    struct list memory_waiters; /* commands, by in_waiters */
    atomic_bool has_waiters;    /* any thread looks */
    atomic_bool retry_queued;   /* any thread: whoever sets it posts the task */
    struct env_task retry_task, stop_task, deadline_task;
    uint32_t command_count; /* alive in memory, dropped ones included */
};

struct iscsi_server {
    struct env *env;
    struct iscsi_options options;
    struct iscsi_loop loops[ISCSI_LOOPS_MAX]; /* the first is the server's own */
    uint32_t loop_count;
    struct memory_total memory;
    /* Who needs it: whoever made it, loops with commands, posted tasks. It goes with the last. */
    atomic_uint holders;

    struct lock lock; /* of what follows */
    struct list portals, closed_portals, targets;
    struct list connections; /* the register, by in_server, oldest first */
    uint32_t portal_count, target_count, session_count, login_count;
    uint32_t orders; /* under way */
    uint16_t last_tsih;
    uint32_t stops_pending; /* loops that have still to do their part of it */
    bool stopped_called;
    atomic_bool stopping; /* set under the lock, read by all */

    struct lock events_lock;
    uint64_t events_since_ns;
    uint32_t event_count;

    struct env_timer stop_timer;
    struct env_task stopped_task;
    void (*stopped)(void *owner);
    void *stopped_owner;
};

/* ---- sending ---- */

enum stat_sn { STAT_NONE, STAT_CURRENT, STAT_ADVANCE };

struct iscsi_command;

/* One PDU to send, or the run of Data-In PDUs of a read. */
struct iscsi_tx {
    struct list in_queue;
    uint8_t bhs[BHS_BYTES];
    enum stat_sn stat_sn;
    bool is_data_in;
    bool starts_digests; /* the last login response: what was negotiated holds behind it */
    bool is_own_memory;  /* free it, and `payload`, when sent */
    uint8_t *payload;    /* mem_alloc'ed, or NULL */
    const uint8_t *data;
    uint32_t data_bytes, sent_bytes; /* sent: handed to the stream */
    uint32_t data_sn, burst_sent_bytes;
    struct iscsi_command *command; /* counted reference, or NULL */
    bool ends_command;             /* carries the status: the CmdSN window opens */
};

enum { TX_SLOTS = 32, TX_BATCH_BYTES = 2 << 20 };

struct tx_slot {
    uint8_t header[BHS_BYTES + DIGEST_BYTES];
    uint8_t trailer[3 + DIGEST_BYTES];
    struct iscsi_tx *finished;     /* the item this PDU completes */
    struct iscsi_command *command; /* counted reference: its buffer is being sent */
};

/* ---- connections ---- */

enum { RX_BUFFER_BYTES = 32 << 10, RX_BUFFER_BYTES_MAX = 128 << 10, LOGIN_SEGMENT_BYTES = 8192 };

enum rx_stage { RX_HEADER, RX_DATA, RX_TAIL };

struct iscsi_rx {
    uint8_t *buffer;
    uint32_t buffer_bytes;
    uint32_t start, end; /* what has been read and not yet taken */
    enum rx_stage stage;
    bool reading;
    uint64_t arrived_ns; /* when it was read, or looked at again */
    bool fills;          /* the last read took all the room there was */
    uint8_t bhs[BHS_BYTES];
    /* The data segment: `wanted` bytes go to `dest`, the rest to `surplus`. */
    uint8_t *dest, *surplus; /* surplus: allocated when first needed */
    uint32_t segment_bytes, wanted_bytes, got_bytes;
    uint8_t *small;                /* owned: segments of everything but SCSI data */
    struct iscsi_command *command; /* counted reference while its data arrive */
    bool ignored;                  /* take the PDU off the wire, do nothing */
};

enum connection_stage { CONNECTION_LOGIN, CONNECTION_FULL, CONNECTION_CLOSING };

enum login_status { /* RFC 7143 §11.13.5 */
                    LOGIN_GOOD = 0x0000,
                    LOGIN_INITIATOR_ERROR = 0x0200,
                    LOGIN_AUTHENTICATION_FAILURE = 0x0201,
                    LOGIN_FORBIDDEN = 0x0202,
                    LOGIN_NOT_FOUND = 0x0203,
                    LOGIN_UNSUPPORTED_VERSION = 0x0205,
                    LOGIN_TOO_MANY_CONNECTIONS = 0x0206,
                    LOGIN_MISSING_PARAMETER = 0x0207,
                    LOGIN_NO_SUCH_SESSION = 0x020a,
                    LOGIN_INVALID_REQUEST = 0x020b,
                    LOGIN_UNAVAILABLE = 0x0301,
                    LOGIN_OUT_OF_RESOURCES = 0x0302,

                    LOGIN_WAITS = 0x10000, /* none of the standard: another loop is asked first */
};

enum auth_stage { AUTH_OPEN, AUTH_CHOSEN, AUTH_CHALLENGED, AUTH_DONE };

struct iscsi_login {
    uint8_t stage; /* CSG expected next: 0 security, 1 operational; 0xff: nothing seen yet */
    bool leading_done;
    uint8_t isid[6];
    uint16_t tsih, cid;
    uint32_t itt, cmd_sn, pdu_count;

    enum auth_stage auth;
    enum digest digest;
    uint8_t chap_id, challenge[DIGEST_RESULT_BYTES_MAX];
    size_t challenge_bytes;                /* 0: none is open */
    char user[ISCSI_USER_BYTES_MAX + 1];   /* proven; empty: nobody */
    char realm[ISCSI_REALM_BYTES_MAX + 1]; /* his */

    /* The last request, while another loop gives up the session in its way. */
    bool waits;
    uint8_t *answer;
    uint32_t answer_bytes, last_stage;
};

struct iscsi_text {
    uint8_t *request; /* collected over continued PDUs */
    uint32_t request_bytes;
    uint8_t *answer; /* being sent in pieces */
    uint32_t answer_bytes, answer_sent;
    uint32_t itt, ttt;
};

struct iscsi_session;

struct iscsi_connection {
    /* Others may read these under the server's lock; what is not marked never changes. (And, as
     * long as there is a session, the names of the stream's ends.) */
    struct list in_server;
    struct iscsi_server *server;
    struct iscsi_loop *loop;
    uint16_t portal_tag;
    struct net_prefix address; /* the peer's */
    uint64_t since_ns;
    bool logging_in;               /* changes */
    struct iscsi_session *session; /* changes */
    uint32_t pins;                 /* changes: orders that know it */
    bool gone;                     /* changes: freed with the last pin */

    struct list in_loop;
    struct net_stream *stream;
    enum connection_stage stage;

    struct keys_negotiation keys;
    struct iscsi_login login;
    struct iscsi_text text;
    bool header_digest, data_digest; /* in force: from the end of the login on */
    uint32_t segment_bytes_max;      /* what we accept now */

    struct iscsi_rx rx;
    struct list tx_queue;
    uint32_t tx_count;
    struct env_task tx_task;
    bool tx_task_queued, closed; /* closed: gone with the task */
    bool writing, close_when_sent, reads_no_more;
    uint64_t writing_since_ns;
    bool no_new_commands; /* the server stops: only data of running commands are taken */
    bool is_dismissed;    /* its session has ended, and it is to be told so */
    uint32_t last_max_cmd_sn;
    struct tx_slot slots[TX_SLOTS];
    uint32_t slots_used;
    uint32_t stat_sn, next_ttt;

    struct env_timer timer; /* login deadline, then keep-alive */
    uint64_t heard_ns;
    bool ping_sent;
    uint32_t ping_ttt;

    struct memory_account *memory;
};

/* ---- sessions ---- */

/* A number that one loop counts and others look at now and then. */
typedef atomic_uint_fast64_t counter;

static inline uint64_t counter_get(const counter *c) {
    return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_add(counter *c, uint64_t n) {
    atomic_store_explicit(c, counter_get(c) + n, memory_order_relaxed);
}

/* Initiators count their task tags up, so that a bucket for each of a window holds one or two. */
enum { COMMAND_BUCKETS = 128 };

struct iscsi_session {
    /* Others may read these under the server's lock; what is not marked never changes. */
    struct iscsi_server *server;
    struct iscsi_target *target; /* NULL: discovery */
    struct scsi_nexus *nexus;
    uint8_t isid[6];
    uint16_t tsih, cid;
    char initiator[ISCSI_NAME_BYTES_MAX + 1];
    char user[ISCSI_USER_BYTES_MAX + 1], realm[ISCSI_REALM_BYTES_MAX + 1];
    bool header_digest, data_digest; /* change: with the connection */
    counter commands_total, commands_ended, read_bytes, write_bytes;

    struct iscsi_connection *connection; /* NULL: between two of them */
    uint32_t exp_cmd_sn;
    struct list commands;
    struct list by_itt[COMMAND_BUCKETS];     /* the same, by in_bucket */
    uint32_t command_count, immediate_count; /* in the window; beside it */
};

/* ---- commands ---- */

struct iscsi_r2t {
    bool active;
    uint32_t ttt, offset_bytes, length_bytes, received_bytes, data_sn;
};

struct iscsi_command {
    struct list in_session, in_bucket, in_waiters;
    uint32_t refs;
    struct iscsi_loop *loop;
    struct iscsi_session *session; /* NULL: forgotten; nothing more is sent */
    struct scsi_task task;
    bool task_open; /* begun and done() has not been called */
    bool immediate, ran, no_memory;
    uint32_t itt, expected_bytes;
    bool reads, writes;
    struct iscsi_buffer *buffer;

    /* Collecting data: what has arrived, and up to where it has come or has been asked for. */
    bool unsolicited_open;
    uint32_t unsolicited_bytes, unsolicited_limit, unsolicited_sn;
    uint32_t asked_bytes, arrived_bytes;
    uint64_t data_ns; /* when data were asked for or came last */
    uint32_t r2t_sn;
    struct iscsi_r2t r2ts[ISCSI_R2T_MAX];
    enum scsi_sense_code delivery_error; /* data could not be delivered */

    struct iscsi_tx data_in, response;
    uint8_t sense[2 + SCSI_SENSE_BYTES_MAX];
};

/* ---- server.c ---- */

void server_lock(struct iscsi_server *server);
void server_unlock(struct iscsi_server *server);
void server_hold(struct iscsi_server *server);
void server_release(struct iscsi_server *server);
void server_event(struct iscsi_server *server, enum iscsi_event kind, const char *format, ...)
    HF_PRINTF(3, 4);
/* With the lock. */
struct iscsi_target *server_find_target(const struct iscsi_server *server, const char *iqn);
void server_target_unref(struct iscsi_target *target); /* with the lock */
/* A connection, or an order, has gone: is that the end of a stop? */
void server_something_gone(struct iscsi_server *server);
/* Tells the initiator that all connections of its session will be dropped (RFC 7143 §11.9), and
 * drops this one when it has been told. */
void server_say_goodbye(struct iscsi_connection *connection);
/* A stopping server says goodbye to a session that has nothing in hand any more. */
void server_session_idle(struct iscsi_connection *connection);
/* Answers SendTargets for this connection; `which`: "All", a name, or "". */
void server_send_targets(struct iscsi_connection *connection, const char *which,
                         struct text_buffer *answer);
/* Memory was given back: whoever waits for some, on whatever loop, tries again. */
void server_memory_freed(struct iscsi_server *server);
void server_command_new(struct iscsi_loop *loop);
void server_command_gone(struct iscsi_loop *loop);

/* ---- order.c ---- */

struct iscsi_order;

/* To close a connection, with the lock; order_go() when it has been given back: at once if the
 * connection is of `own` loop. `why` is a constant. */
struct iscsi_order *order_close(struct iscsi_connection *to, const char *why);
/* To make way for a login: to close the connection, or, with `takes`, to give up its session first.
 * login_resume() follows, on the loop of `by`, which waits. With the lock. */
struct iscsi_order *order_give_way(struct iscsi_connection *to, struct iscsi_connection *by,
                                   bool takes, const char *why);
void order_go(struct iscsi_order *order, const struct iscsi_loop *own);
/* Many of them, collected under the lock. */
void order_add(struct list *orders, struct iscsi_order *order);
void orders_go(struct list *orders, const struct iscsi_loop *own);

/* ---- connection.c ---- */

void connection_accept(struct iscsi_portal *portal, struct net_stream *stream,
                       const struct net_prefix *address);
void connection_unpin(struct iscsi_connection *connection);
/* Ends it; everything it runs is dropped. Harmless twice. `why` NULL: nothing to tell. */
void connection_close(struct iscsi_connection *connection, const char *why);
/* Ends its session at once, for a reason that is not the initiator's; the connection when he has
 * been told, or has not listened for ISCSI_FAREWELL_S. */
void connection_dismiss(struct iscsi_connection *connection, const char *why);
/* A PDU that breaks the protocol so that this connection cannot go on. */
void connection_broken(struct iscsi_connection *connection, const char *why);
struct iscsi_tx *tx_new(uint8_t opcode, uint8_t flags);
void tx_queue(struct iscsi_connection *connection, struct iscsi_tx *tx);
/* Takes what is queued for a command out of the queue. */
void tx_withdraw(struct iscsi_connection *connection, struct iscsi_command *command);
void connection_reject(struct iscsi_connection *connection, enum reject_reason reason);
void connection_flush_and_close(struct iscsi_connection *connection);
void connection_rx_resume(struct iscsi_connection *connection);
/* A target transfer tag: not the last one again, and never ISCSI_TAG_NONE. */
uint32_t connection_new_ttt(struct iscsi_connection *connection);

/* ---- auth.c ---- */

/* Who is logging in, as far as is known. Valid while the connection is. */
struct access_peer connection_peer(const struct iscsi_connection *connection);
/* Answers what a request said about authentication. A login status; not good: *ret_why says why. */
uint32_t auth_request(struct iscsi_connection *connection, struct text_buffer *answer,
                      const char **ret_why);
/* The security stage ends, or was left out: is what was proven enough? Only when nothing is open
 * (login.auth is AUTH_OPEN or AUTH_DONE). */
uint32_t auth_leave(struct iscsi_connection *connection, const char **ret_why);

/* ---- login.c ---- */

void login_request(struct iscsi_connection *connection);
/* The session in the way is gone; or it is here, without a connection, to be taken over. */
void login_resume(struct iscsi_connection *connection, struct iscsi_session *session,
                  const struct iscsi_parameters *parameters);

/* ---- session.c ---- */

/* The connection whose session a login with a TSIH means (connection reinstatement): of the same
 * initiator, ISID and target. NULL: there is none. With the lock. */
struct iscsi_connection *session_meant(const struct iscsi_connection *connection);
/* Leaves the login: makes the session, or takes over the one that is meant. Returns the login
 * status (class << 8 | detail), 0 good; LOGIN_WAITS: login_resume() comes. */
uint32_t session_open(struct iscsi_connection *connection, uint32_t cmd_sn);
/* The end of that: the session was given up by its old connection, which had these parameters. It
 * is closed if it cannot go on. */
uint32_t session_take_over(struct iscsi_connection *connection, struct iscsi_session *session,
                           const struct iscsi_parameters *was, uint32_t cmd_sn);
/* Takes the session from its connection; its commands are dropped. */
struct iscsi_session *session_give_up(struct iscsi_connection *connection);
/* On the loop of its connection, or of whoever has got it. */
void session_close(struct iscsi_session *session);
/* The access list has changed: shows what the session may use now. False: nothing any more. With
 * the lock, any loop. */
bool session_recheck(const struct iscsi_connection *connection);
/* A header has arrived: sets where its data go. */
void session_header(struct iscsi_connection *connection);
/* The whole PDU has arrived. */
void session_pdu(struct iscsi_connection *connection);
uint32_t session_max_cmd_sn(const struct iscsi_session *session);

/* ---- text.c of the full feature phase: discovery.c ---- */

void text_request(struct iscsi_connection *connection);
void text_reset(struct iscsi_connection *connection);

/* ---- command.c ---- */

void command_header(struct iscsi_connection *connection, bool in_window);
void command_arrived(struct iscsi_connection *connection);
void data_out_header(struct iscsi_connection *connection);
void data_out_arrived(struct iscsi_connection *connection);
struct iscsi_command *command_find(struct iscsi_session *session, uint32_t itt);
void command_unref(struct iscsi_command *command);
/* Whether it has waited for data since before this time. */
bool command_is_stalled(const struct iscsi_command *command, uint64_t before_ns);
/* Whatever state it is in: no response will be sent. */
void command_drop(struct iscsi_command *command);
/* A response leaves: the window opens. */
void command_leaves(struct iscsi_command *command);
void command_retry_memory(struct iscsi_command *command);

/* ---- management.c ---- */

void management_request(struct iscsi_connection *connection);

#endif
