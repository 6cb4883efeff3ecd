// SPDX-License-Identifier: MPL-2.0
/* See link.h. An operation's way: up the cable (with its data, if it writes) → the array's
 * processor → the door behind → down the cable (with its data, if it reads) → done. Each of the
 * three queues is one number: when it will be free.
 *
 * The fixed figures. 30 us each way is what an idle gigabit network with default interrupt
 * moderation and a client's stack cost. 31 us a command is what Holdfast's own iSCSI target took on
 * the machine of docs/PERFORMANCE.md with one thread (32,000 commands a second); the classic array
 * is given the same, so that only what lies behind the door differs. */
#include "bench/link.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"

enum {
    LATENCY_NS = 30000,
    COMMAND_NS = 31000,
    PATHS_MAX = 16,
    PDU_BYTES = 48, /* a basic header segment, RFC 7143 §11.2 */
    SEGMENT_BYTES = 1448 /* of TCP with timestamps in a frame of 1500 */,
    FRAME_BYTES = 90, /* of each: preamble, Ethernet, gap, IP, TCP with timestamps */
};

struct link {
    struct volume_door door; /* what clients see */
    struct volume_door *inner;
    struct link_options options;
    uint32_t next_path, under_way;
    uint64_t up_free_ns[PATHS_MAX], down_free_ns[PATHS_MAX], processor_free_ns;
};

struct link_op {
    struct env_timer timer;
    struct link *link;
    struct volume_request *outer;
    struct volume_request inner;
    uint32_t path;
};

/* ---- what people write ---- */

int link_parse(const char *text, struct link_options *ret_options, struct errmsg *reterr) {
    static const struct {
        const char *name;
        uint64_t bits_per_s;
    } kinds[] = {{"1gbe", 1000000000},    {"2.5gbe", 2500000000}, {"5gbe", 5000000000},
                 {"10gbe", 10000000000},  {"25gbe", 25000000000}, {"40gbe", 40000000000},
                 {"100gbe", 100000000000}};
    struct link_options o = {.latency_ns = LATENCY_NS, .command_ns = COMMAND_NS};
    unsigned long paths = 1;
    const char *kind = text, *x = strchr(text, 'x');
    if (strcmp(text, "local") == 0) {
        o.latency_ns = 0;
        (void)snprintf(o.text, sizeof(o.text), "local");
        *ret_options = o;
        return OK;
    }
    if (x != NULL && isdigit((unsigned char)text[0])) {
        char *end;
        paths = strtoul(text, &end, 10);
        paths = end == x ? paths : 0;
        kind = x + 1;
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(kinds) && paths >= 1 && paths <= PATHS_MAX; i++) {
        if (strcmp(kind, kinds[i].name) == 0) {
            o.paths = (uint32_t)paths;
            o.bits_per_s = kinds[i].bits_per_s;
            (void)snprintf(o.text, sizeof(o.text), "%lux%s", paths, kind);
            *ret_options = o;
            return OK;
        }
    }
    return errmsg_set(reterr, ERR_INVALID,
                      "\"%.40s\" is not a link; write for instance 2x1gbe (up to %d of 1gbe, "
                      "2.5gbe, 5gbe, 10gbe, 25gbe, 40gbe, 100gbe) or local",
                      text, PATHS_MAX);
}

uint64_t link_wire_bytes(uint64_t data_bytes) {
    uint64_t bytes = data_bytes + PDU_BYTES;
    return bytes + div_round_up(bytes, SEGMENT_BYTES) * FRAME_BYTES;
}

double link_mb_s(const struct link_options *options, uint64_t request_bytes) {
    double share = (double)request_bytes / (double)link_wire_bytes(request_bytes);
    return (double)options->paths * (double)options->bits_per_s / 8e6 * share;
}

/* ---- operations ---- */

static uint64_t now_ns(const struct link *link) {
    return env_now_ns(link->door.env);
}

/* When so many bytes, put on a path now, are at its other end. */
static uint64_t carry(struct link *link, uint64_t *free_ns, uint64_t data_bytes) {
    if (link->options.paths == 0) {
        return now_ns(link);
    }
    uint64_t bits = link_wire_bytes(data_bytes) * 8;
    uint64_t took_ns = bits * 1000 / (link->options.bits_per_s / 1000000);
    *free_ns = MAX(*free_ns, now_ns(link)) + took_ns;
    return *free_ns + link->options.latency_ns;
}

static uint64_t data_bytes(const struct volume_request *request, bool up) {
    switch (request->op) {
    case VOLUME_READ:
        return up ? 0 : request->length_bytes;
    case VOLUME_WRITE:
        return up ? request->length_bytes : 0;
    case VOLUME_COMPARE_AND_WRITE:
        return up ? request->length_bytes * 2 : 0;
    default:
        return 0;
    }
}

static void op_is_back(struct env_timer *timer) {
    struct link_op *op = CONTAINER_OF(timer, struct link_op, timer);
    op->link->under_way--;
    volume_complete(op->outer, op->inner.status);
    mem_free(op);
}

static void op_is_answered(struct volume_request *request) {
    struct link_op *op = CONTAINER_OF(request, struct link_op, inner);
    struct link *link = op->link;
    op->outer->error_bytes = request->error_bytes;
    op->timer.fire = op_is_back;
    env_timer_arm(link->door.env, &op->timer,
                  carry(link, &link->down_free_ns[op->path], data_bytes(request, false)));
}

static void op_is_worked_on(struct env_timer *timer) {
    struct link_op *op = CONTAINER_OF(timer, struct link_op, timer);
    volume_submit(&op->inner);
}

static void op_has_arrived(struct env_timer *timer) {
    struct link_op *op = CONTAINER_OF(timer, struct link_op, timer);
    struct link *link = op->link;
    link->processor_free_ns = MAX(link->processor_free_ns, now_ns(link)) + link->options.command_ns;
    op->timer.fire = op_is_worked_on;
    env_timer_arm(link->door.env, &op->timer, link->processor_free_ns);
}

static void link_dispatch(struct volume_door *door, struct volume_request *request) {
    struct link *link = CONTAINER_OF(door, struct link, door);
    struct link_op *op = MEM_NEW(struct link_op);
    op->link = link;
    op->outer = request;
    op->path = link->next_path++ % MAX(1u, link->options.paths);
    op->inner = (struct volume_request){.client = door->env,
                                        .door = link->inner,
                                        .volume_id = request->volume_id,
                                        .op = request->op,
                                        .fua = request->fua,
                                        .offset_bytes = request->offset_bytes,
                                        .length_bytes = request->length_bytes,
                                        .iov = request->iov,
                                        .iov_count = request->iov_count,
                                        .done = op_is_answered};
    link->under_way++;
    op->timer.fire = op_has_arrived;
    env_timer_arm(door->env, &op->timer,
                  carry(link, &link->up_free_ns[op->path], data_bytes(request, true)));
}

struct link *link_new(struct volume_door *inner, const struct link_options *options) {
    struct link *link = MEM_NEW(struct link);
    ASSERT_LE(options->paths, PATHS_MAX);
    link->door = (struct volume_door){.env = inner->env, .dispatch = link_dispatch};
    link->inner = inner;
    link->options = *options;
    return link;
}

void link_free(struct link *link) {
    ASSERT(link == NULL || link->under_way == 0);
    mem_free(link);
}

struct volume_door *link_door(struct link *link) {
    return &link->door;
}
