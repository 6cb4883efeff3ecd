// SPDX-License-Identifier: MPL-2.0
/* The way between a client and an array, in a simulated environment: a volume door in front of
 * another one.
 *
 * Between the two runs what runs in reality: an initiator with a session for each path
 * (initiator.h), simulated cables (env/sim/net.h), the iSCSI target and the SCSI device server
 * unchanged (src/iscsi, src/scsi). Code takes no time in a simulation; so one processor of the
 * array is given a fixed time for each command, one after the other. Nothing is lost or reordered.
 */
#ifndef HOLDFAST_BENCH_LINK_H
#define HOLDFAST_BENCH_LINK_H

#include "volume/volume.h"

struct link_options {
    uint32_t paths;      /* 0: none, the client is on the array itself */
    uint64_t bits_per_s; /* of one path */
    uint64_t latency_ns; /* each way: cable, switch, interrupts, and the client's own code */
    uint64_t command_ns; /* of the array's processor, each command, paths or not */
    char text[32];       /* "2x1gbe", "local" */
};

/* "1gbe", "2x1gbe", "4x10gbe", "1x2.5gbe", "local". ERR_INVALID with a sentence. */
HF_MUST_CHECK int link_parse(const char *text, struct link_options *ret_options,
                             struct errmsg *reterr);

/* The most data all paths together carry in one direction, as requests of so many bytes; 0: no
 * bound. */
double link_mb_s(const struct link_options *options, uint64_t request_bytes);

struct link;

/* To the volume `id` of so many bytes behind `inner`, whose environment is a simulated one and
 * which outlives the link. Fiber: parks until the client has logged in. Errors of
 * initiator_add_session().
 */
HF_MUST_CHECK int link_new(struct volume_door *inner, uint64_t id, uint64_t size_bytes,
                           const struct link_options *options, struct link **ret_link,
                           struct errmsg *reterr);
/* Fiber: logs out by hanging up, and parks until the target has stopped. Nothing may be under way.
 */
void link_free(struct link *link);
/* Takes reads and writes. */
struct volume_door *link_door(struct link *link);

#endif
