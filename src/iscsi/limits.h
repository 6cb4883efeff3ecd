// SPDX-License-Identifier: MPL-2.0
/* What one initiator may hold, and what all of them may hold together. Whoever reaches a limit
 * waits, is told so, or loses its own connection; never somebody else's. */
#ifndef HOLDFAST_ISCSI_LIMITS_H
#define HOLDFAST_ISCSI_LIMITS_H

enum {
    ISCSI_NAME_BYTES_MAX = 223, /* RFC 7143 §4.2.7.2 */
    ISCSI_KEY_BYTES_MAX = 63,   /* RFC 7143 §6.1 */
    ISCSI_VALUE_BYTES_MAX = 255,
    ISCSI_BINARY_TEXT_BYTES_MAX = 2 + 2 * 1024, /* a CHAP challenge, written out (§12.1.3) */
    ISCSI_KEYS_MAX = 64,                        /* in one negotiation */
    ISCSI_TEXT_BYTES_MAX = 16 << 10,            /* one request, its continuations included */
    ISCSI_ANSWER_BYTES_MAX = 768 << 10,         /* one text answer: all targets on all portals */

    ISCSI_LOOPS_MAX = 16, /* of one server */
    ISCSI_PORTALS_MAX = 32,
    ISCSI_TARGETS_MAX = 256,
    ISCSI_RULES_MAX = 4096, /* in one target's access list */
    ISCSI_USERS_MAX = 1024, /* CHAP users of one target */
    ISCSI_USER_BYTES_MAX = 127,
    ISCSI_REALM_BYTES_MAX = 63,
    ISCSI_SECRET_BYTES_MIN = 12, /* RFC 7143 §9.2.1 */
    ISCSI_SECRET_BYTES_MAX = 128,

    ISCSI_SESSIONS_MAX = 256,
    ISCSI_SESSIONS_PER_INITIATOR_MAX = 32, /* of one name, on all targets together */
    ISCSI_SESSIONS_PER_ADDRESS_MAX = 128,
    /* Connections not logged in yet: beyond it the oldest (of that address) makes room for a new
     * one. None holds more than ISCSI_LOGIN_MEMORY_BYTES. */
    ISCSI_LOGINS_MAX = 256,
    ISCSI_LOGINS_PER_ADDRESS_MAX = 32,
    ISCSI_LOGIN_MEMORY_BYTES = 80 << 10,
    ISCSI_LOGIN_S = 15,
    ISCSI_LOGIN_PDUS_MAX = 64, /* requests one login may take */

    ISCSI_COMMANDS_MAX = 128,            /* of one session: its CmdSN window */
    ISCSI_IMMEDIATE_MAX = 16,            /* immediate SCSI commands on top of that */
    ISCSI_R2T_MAX = 8,                   /* outstanding for one command */
    ISCSI_TX_QUEUE_MAX = 1024,           /* answers waiting; beyond it we stop reading */
    ISCSI_SEGMENT_BYTES_MAX = 256 << 10, /* MaxRecvDataSegmentLength that we declare */
    ISCSI_BURST_BYTES_MAX = 1 << 20,     /* MaxBurstLength */
    ISCSI_FIRST_BURST_BYTES_MAX = 256 << 10,

    ISCSI_MEMORY_BYTES = 512 << 20, /* data buffers of all connections */
    ISCSI_CONNECTION_MEMORY_BYTES = 64 << 20,
    ISCSI_CONNECTION_RESERVE_BYTES = 1 << 20, /* granted even when the rest is used up */

    ISCSI_KEEPALIVE_S = 15,
    ISCSI_KEEPALIVE_ANSWER_S = 15,
    /* Whoever has not taken a batch of answers (2 MiB at most), or has sent nothing of the data he
     * was asked for, for so long holds memory that others could use: the connection ends. */
    ISCSI_STALL_S = 60,

    ISCSI_EVENTS_MAX = 200, /* told in one ISCSI_EVENTS_S; of the rest only how many there were */
    ISCSI_EVENTS_S = 10,
};

#endif
