// SPDX-License-Identifier: MPL-2.0
/* A modelled way between a client and an array: a volume door in front of another one.
 *
 * It stands where an initiator, TCP and the target's code stand in reality, and behaves like them
 * only in what decides figures: each direction of each cable carries its bits one after the other,
 * frames and headers of Ethernet, TCP and iSCSI included; a command goes over the next cable in
 * turn; each way takes a fixed time on top; and one processor of the array works on one command at
 * a time. Nothing is lost, congested or reordered. Because it is a door, code that speaks the
 * protocol over a simulated network can take its place without anybody noticing. */
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

/* Bytes on the wire of so many bytes of data in one direction. */
uint64_t link_wire_bytes(uint64_t data_bytes);
/* The most data all paths together carry in one direction; 0: no bound. */
double link_mb_s(const struct link_options *options, uint64_t request_bytes);

struct link;

/* On the loop of `inner`, which outlives it. */
struct link *link_new(struct volume_door *inner, const struct link_options *options);
void link_free(struct link *link); /* nothing may be under way */
struct volume_door *link_door(struct link *link);

#endif
