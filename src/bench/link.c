// SPDX-License-Identifier: MPL-2.0
/* See link.h.
 *
 *     link_door() ─> initiator ═ cables ═> iSCSI ─> SCSI ─> processor ─> inner door
 *
 * The fixed figures. 30 us each way is what an idle gigabit network with default interrupt
 * moderation and a client's stack cost. 31 us a command is what Holdfast's own iSCSI target took on
 * the machine of docs/PERFORMANCE.md with one thread (32,000 commands a second); the classic array
 * is given the same, so that only what lies behind the door differs. Ends have buffers of four
 * times what is on its way in a round trip, as TCP that tunes itself would give them. */
#include "bench/link.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/math.h"
#include "base/mem.h"
#include "bench/initiator.h"
#include "env/fiber.h"
#include "env/sim/net.h"
#include "iscsi/iscsi.h"

#define TARGET_NAME "iqn.2026-01.io.holdfast:model"

enum {
    LATENCY_NS = 30000,
    COMMAND_NS = 31000,
    PATHS_MAX = INITIATOR_SESSIONS_MAX,
    PDU_BYTES = 48, /* a basic header segment, RFC 7143 §11.2 */
    SEGMENT_BYTES = 1448 /* of TCP with timestamps in a frame of 1500 */,
    FRAME_BYTES = 90, /* of each: preamble, Ethernet, gap, IP, TCP with timestamps */
    BUFFER_BYTES_MIN = 256 << 10,
    STOP_S = 2,
};

/* The processor that all commands of the array go through. */
struct processor {
    struct volume_door door, *inner;
    uint64_t command_ns, free_ns;
};

struct work {
    struct env_timer timer;
    struct processor *processor;
    struct volume_request *request;
};

struct link {
    struct processor processor;
    struct scsi_target *target; /* NULL: there are no paths */
    struct iscsi_server *server;
    struct initiator *initiator;
    bool stopped;
    struct fiber_queue changed;
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

/* Bytes on the wire of so many bytes of data in one direction. */
static uint64_t wire_bytes(uint64_t data_bytes) {
    uint64_t bytes = data_bytes + PDU_BYTES;
    return bytes + div_round_up(bytes, SEGMENT_BYTES) * FRAME_BYTES;
}

double link_mb_s(const struct link_options *options, uint64_t request_bytes) {
    double share = (double)request_bytes / (double)wire_bytes(request_bytes);
    return (double)options->paths * (double)options->bits_per_s / 8e6 * share;
}

/* ---- the processor ---- */

static void work_done(struct env_timer *timer) {
    struct work *work = CONTAINER_OF(timer, struct work, timer);
    struct volume_request *request = work->request;
    request->door = work->processor->inner;
    mem_free(work);
    request->door->dispatch(request->door, request);
}

static void processor_dispatch(struct volume_door *door, struct volume_request *request) {
    struct processor *p = CONTAINER_OF(door, struct processor, door);
    struct work *work = MEM_NEW(struct work);
    work->processor = p;
    work->request = request;
    work->timer.fire = work_done;
    p->free_ns = MAX(p->free_ns, env_now_ns(door->env)) + p->command_ns;
    env_timer_arm(door->env, &work->timer, p->free_ns);
}

/* ---- the link ---- */

static int serve(struct link *link, const struct volume_info *info, struct errmsg *reterr) {
    struct env *env = link->processor.door.env;
    link->target = scsi_target_new(env);
    link->server = iscsi_server_new(env, &(struct iscsi_options){0});
    int error = scsi_lun_add(link->target, 0, &link->processor.door, info, reterr);
    return error == OK ? iscsi_target_add(link->server, TARGET_NAME, link->target, NULL, reterr)
                       : error;
}

/* A cable with a portal at one end and a session at the other. */
static int add_path(struct link *link, uint32_t index, const struct link_options *options,
                    struct errmsg *reterr) {
    struct env *env = link->processor.door.env;
    char portal[32], from[32], name[16];
    (void)snprintf(portal, sizeof(portal), "192.0.2.%u:3260", index + 1);
    (void)snprintf(from, sizeof(from), "198.51.100.%u:40000", index + 1);
    (void)snprintf(name, sizeof(name), "path%u", index);
    uint64_t round_trip_bytes = options->bits_per_s / 8 * 2 * options->latency_ns / NS_PER_S;
    struct sim_link *cable = env_sim_link_add(
        env, &(struct sim_link_options){.name = name,
                                        .mbit_s = (uint32_t)(options->bits_per_s / 1000000),
                                        .latency_ns = options->latency_ns,
                                        .buffer_bytes = MAX((uint32_t)(4 * round_trip_bytes),
                                                            (uint32_t)BUFFER_BYTES_MIN)});
    int error = iscsi_portal_add(link->server, portal, reterr);
    return error == OK ? initiator_add_session(link->initiator,
                                               env_sim_connect(env, cable, portal, from), reterr)
                       : error;
}

int link_new(struct volume_door *inner, uint64_t id, uint64_t size_bytes,
             const struct link_options *options, struct link **ret_link, struct errmsg *reterr) {
    struct link *link = MEM_NEW(struct link);
    ASSERT_LE(options->paths, PATHS_MAX);
    link->processor =
        (struct processor){.door = {.env = inner->env, .dispatch = processor_dispatch},
                           .inner = inner,
                           .command_ns = options->command_ns};
    fiber_queue_init(&link->changed);
    struct volume_info info = {.id = id,
                               .name = "model",
                               .size_bytes = size_bytes,
                               .block_bytes = 512,
                               .sync_always = true};
    memset(info.uuid.bytes, 1, sizeof(info.uuid.bytes));
    int error = OK;
    if (options->paths > 0) {
        error = serve(link, &info, reterr);
        link->initiator = initiator_new(inner->env, TARGET_NAME);
    }
    for (uint32_t i = 0; i < options->paths && error == OK; i++) {
        error = add_path(link, i, options, reterr);
    }
    if (error != OK) {
        link_free(link);
        return error;
    }
    *ret_link = link;
    return OK;
}

static void stopped(void *owner) {
    struct link *link = owner;
    link->stopped = true;
    fiber_queue_wake_all(&link->changed);
}

void link_free(struct link *link) {
    if (link->initiator != NULL) {
        struct env *env = link->processor.door.env;
        initiator_free(link->initiator);
        iscsi_server_stop(link->server, env_now_ns(env) + STOP_S * NS_PER_S, stopped, link);
        while (!link->stopped) {
            fiber_queue_wait(&link->changed);
        }
        iscsi_server_free(link->server);
        scsi_target_free(link->target);
    }
    mem_free(link);
}

struct volume_door *link_door(struct link *link) {
    return link->initiator != NULL ? initiator_door(link->initiator) : &link->processor.door;
}
