// SPDX-License-Identifier: MPL-2.0
/* What the files of the target share. Everything here belongs to the server's loop.
 *
 *     server ── portals, targets
 *        └─ connections ── rx machine, tx queue, login or text negotiation
 *               └─ session (after login; one connection each) ── SCSI nexus, CmdSN window
 *                     └─ commands ── SCSI task, buffers, R2Ts
 *
 * Who frees what. A connection is freed when its stream has reported that it is closed; nothing is
 * read into or written from anybody's memory after that. A command is counted by reference, because
 * four parties may still need its buffer when the others have long forgotten it: the session, the
 * SCSI task (until the volume lets go), the data segment being received, and the PDUs being sent.
 */
#ifndef HOLDFAST_ISCSI_INTERNAL_H
#define HOLDFAST_ISCSI_INTERNAL_H

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

struct iscsi_memory {
    uint64_t limit_bytes, used_bytes, cached_bytes;
    struct list free[BUFFER_CLASSES];
};

void memory_init(struct iscsi_memory *memory, uint64_t limit_bytes);
void memory_done(struct iscsi_memory *memory);
/* NULL when the limits of limits.h do not allow it now. 1 ≤ bytes ≤ SCSI_TRANSFER_BYTES_MAX. */
struct iscsi_buffer *memory_get(struct iscsi_memory *memory, struct memory_account *account,
                                uint64_t bytes);
void memory_put(struct iscsi_memory *memory, struct iscsi_buffer *buffer);
void memory_account_close(struct memory_account *account);

/* ---- the server ---- */

struct iscsi_portal {
    struct list in_server;
    struct iscsi_server *server;
    struct net_listener *listener;
    uint16_t tag; /* portal group tag and relative target port: 1 … */
    char given[128];
};

struct iscsi_target {
    struct list in_server;
    char iqn[ISCSI_NAME_BYTES_MAX + 1];
    struct scsi_target *scsi;
    struct access *access; /* NULL: everybody */
};

struct iscsi_server {
    struct env *env;
    struct iscsi_options options;
    struct list portals, targets, connections;
    uint32_t portal_count, target_count, session_count, login_count;
    uint16_t last_tsih;
    struct iscsi_memory memory;
    struct list memory_waiters; /* commands, by in_waiters */
    struct env_task waiters_task;
    bool waiters_queued;
    uint64_t events_since_ns;
    uint32_t event_count;
    uint32_t command_count; /* alive in memory, dropped ones included */
    bool freed;             /* goes when the last command does */

    bool stopping, stopped_called;
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

enum { RX_BUFFER_BYTES = 32 << 10, LOGIN_SEGMENT_BYTES = 8192 };

enum rx_stage { RX_HEADER, RX_DATA, RX_TAIL };

struct iscsi_rx {
    uint8_t *buffer;
    uint32_t start, end; /* what has been read and not yet taken */
    enum rx_stage stage;
    bool reading;
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
    struct list in_server; /* oldest first */
    struct iscsi_server *server;
    struct net_stream *stream;
    uint16_t portal_tag;
    struct net_prefix address; /* the peer's */
    enum connection_stage stage;
    uint64_t since_ns;
    struct iscsi_session *session;

    struct keys_negotiation keys;
    struct iscsi_login login;
    struct iscsi_text text;
    bool header_digest, data_digest; /* in force: from the end of the login on */
    uint32_t segment_bytes_max;      /* what we accept now */

    struct iscsi_rx rx;
    struct list tx_queue;
    uint32_t tx_count;
    bool writing, close_when_sent, reads_no_more;
    uint64_t writing_since_ns;
    bool no_new_commands; /* the server stops: only data of running commands are taken */
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

struct iscsi_session {
    struct iscsi_server *server;
    struct iscsi_connection *connection;
    struct iscsi_target *target; /* NULL: discovery */
    struct scsi_nexus *nexus;
    uint8_t isid[6];
    uint16_t tsih, cid;
    char initiator[ISCSI_NAME_BYTES_MAX + 1];
    uint32_t exp_cmd_sn;
    struct list commands;
    uint32_t command_count, immediate_count; /* in the window; beside it */
    uint64_t commands_total, read_bytes, write_bytes;
};

/* ---- commands ---- */

struct iscsi_r2t {
    bool active;
    uint32_t ttt, offset_bytes, length_bytes, received_bytes, data_sn;
};

struct iscsi_command {
    struct list in_session, in_waiters;
    uint32_t refs;
    struct iscsi_server *server;
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

void server_event(struct iscsi_server *server, const char *format, ...) HF_PRINTF(2, 3);
struct iscsi_target *server_find_target(const struct iscsi_server *server, const char *iqn);
void server_connection_gone(struct iscsi_server *server);
/* A stopping server says goodbye to a session that has nothing in hand any more. */
void server_session_idle(struct iscsi_connection *connection);
/* Answers SendTargets for this connection; `which`: "All", a name, or "". */
void server_send_targets(struct iscsi_connection *connection, const char *which,
                         struct text_buffer *answer);
void server_memory_freed(struct iscsi_server *server);
void server_command_gone(struct iscsi_server *server);

/* ---- connection.c ---- */

void connection_accept(struct iscsi_portal *portal, struct net_stream *stream,
                       const struct net_prefix *address);
/* Ends it; everything it runs is dropped. Harmless twice. `why` NULL: nothing to tell. */
void connection_close(struct iscsi_connection *connection, const char *why);
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

/* ---- session.c ---- */

/* The connection whose session a login with a TSIH means (connection reinstatement): of the same
 * initiator, ISID and target. NULL: there is none. */
struct iscsi_connection *session_meant(const struct iscsi_connection *connection);
/* Leaves the login: makes the session, or takes over the one that is meant. Returns the login
 * status (class << 8 | detail), 0 good. */
uint32_t session_open(struct iscsi_connection *connection, uint32_t cmd_sn);
void session_close(struct iscsi_session *session);
/* The access list has changed: shows what the session may use now; ends it if that is nothing. */
void session_recheck(struct iscsi_connection *connection);
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
