// SPDX-License-Identifier: MPL-2.0
/* What one initiator may hold, and what all of them may hold together. Whoever reaches a limit
 * waits, is told so, or loses its own connection; never somebody else's. */
#ifndef HOLDFAST_ISCSI_LIMITS_H
#define HOLDFAST_ISCSI_LIMITS_H

enum {
    ISCSI_NAME_BYTES_MAX = 223, /* RFC 7143 §4.2.7.2 */
    ISCSI_KEY_BYTES_MAX = 63,   /* RFC 7143 §6.1 */
    ISCSI_VALUE_BYTES_MAX = 255,
    ISCSI_KEYS_MAX = 64,                /* in one negotiation */
    ISCSI_TEXT_BYTES_MAX = 16 << 10,    /* one request, its continuations included */
    ISCSI_ANSWER_BYTES_MAX = 256 << 10, /* one text answer: 1,024 targets on 1 portal, or fewer */

    ISCSI_PORTALS_MAX = 32,
    ISCSI_TARGETS_MAX = 256,
    ISCSI_INITIATORS_MAX = 256, /* in one access list */

    ISCSI_SESSIONS_MAX = 256,
    ISCSI_SESSIONS_PER_INITIATOR_MAX = 32, /* of one name, on all targets together */
    ISCSI_LOGINS_MAX = 64, /* connections not logged in yet; the oldest makes room for a new one */
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
};

#endif
