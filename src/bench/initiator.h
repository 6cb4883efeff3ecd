// SPDX-License-Identifier: MPL-2.0
/* A small iSCSI initiator: sessions over streams, and a volume door in front of them.
 *
 * It does what a host with several paths does, and no more: each session logs in over its stream,
 * without digests or authentication; reads and writes go to the sessions in turn, each as one SCSI
 * command; a session that has used up its window of command numbers lets them wait. Written data
 * goes with the command as far as the first burst allows, the rest when it is asked for. Unit
 * attentions and a busy unit are tried again. A session that breaks, or whose target breaks the
 * protocol, is not mended: what it has to do fails, and so does what is submitted afterwards. */
#ifndef HOLDFAST_BENCH_INITIATOR_H
#define HOLDFAST_BENCH_INITIATOR_H

#include "env/net.h"
#include "volume/volume.h"

enum { INITIATOR_SESSIONS_MAX = 16, INITIATOR_IOV_MAX = 16 };

struct initiator;

/* Unit 0 of the target `iqn`. */
struct initiator *initiator_new(struct env *env, const char *iqn);
/* Takes the stream and logs in over it. Fiber: parks until the target has answered. ERR_PROTOCOL,
 * ERR_PERMISSION, ERR_CLOSED. After a failure the initiator is good for freeing only. */
HF_MUST_CHECK int initiator_add_session(struct initiator *initiator, struct net_stream *stream,
                                        struct errmsg *reterr);
/* Takes VOLUME_READ and VOLUME_WRITE, of at most INITIATOR_IOV_MAX pieces, of a unit whose logical
 * blocks are of 512 bytes. */
struct volume_door *initiator_door(struct initiator *initiator);
/* Fiber: parks until the streams are closed. Nothing may be under way. */
void initiator_free(struct initiator *initiator);

#endif
