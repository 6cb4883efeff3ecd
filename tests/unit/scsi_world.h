// SPDX-License-Identifier: MPL-2.0
/* A target with one unit in memory and two initiators, driven without a transport: what the tests
 * of the device server share. */
#ifndef HOLDFAST_TESTS_SCSI_WORLD_H
#define HOLDFAST_TESTS_SCSI_WORLD_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "fake_env.h"
#include "memory_volume.h"
#include "scsi/bytes.h"
#include "scsi/internal.h"
#include "scsi/scsi.h"

enum { LUN_BYTES = 64 << 20, BLOCKS = LUN_BYTES / 512, BUFFER_BYTES = 20 << 20 };

struct world {
    struct fake_env fake;
    struct memory_volume volume;
    struct scsi_target *target;
    struct scsi_nexus *a, *b;
};

/* A task with its memory, as a transport would have it. */
struct call {
    struct scsi_task task;
    uint8_t *in, *out;
    bool begun, done, dropped;
};

static void on_done(struct scsi_task *task) {
    struct call *call = task->owner;
    assert_false(call->done);
    call->done = true;
}

static void on_dropped(struct scsi_task *task) {
    struct call *call = task->owner;
    assert_false(call->dropped);
    call->dropped = true;
}

static struct scsi_nexus *nexus_open(struct world *w, const char *initiator_port,
                                     uint16_t port_id) {
    struct scsi_port port = {port_id, 1, "iqn.2025-01.org.example:t,t,0x0001",
                             "iqn.2025-01.org.example:t", ""};
    strcpy(port.initiator_port, initiator_port);
    return scsi_nexus_open(w->target, &port);
}

static struct world *world_new(uint32_t block_bytes) {
    struct world *w = MEM_NEW(struct world);
    fake_env_init(&w->fake);
    memory_volume_init(&w->volume, &w->fake.env, LUN_BYTES, block_bytes);
    w->target = scsi_target_new(&w->fake.env);
    assert_int_equal(scsi_lun_add(w->target, 3, &w->volume.door, &w->volume.info, NULL), OK);
    w->a = nexus_open(w, "iqn.2025-01.org.example:a,i,0x800000000001", 1);
    w->b = nexus_open(w, "iqn.2025-01.org.example:b,i,0x800000000002", 1);
    fake_env_settle(&w->fake); /* it recalls its reservations */
    return w;
}

static void world_free(struct world *w) {
    scsi_nexus_close(w->a);
    scsi_nexus_close(w->b);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_int_equal(scsi_target_outstanding(w->target), 0);
    scsi_target_free(w->target);
    memory_volume_done(&w->volume);
    fake_env_done(&w->fake);
    mem_free(w);
}

static struct call *start(struct world *w, struct scsi_nexus *nexus, uint32_t lun,
                          const uint8_t *cdb, size_t cdb_bytes, const void *out, uint64_t out_bytes,
                          uint64_t in_bytes) {
    struct call *call = MEM_NEW(struct call);
    struct scsi_task *task = &call->task;
    task->nexus = nexus;
    task->lun_field[1] = (uint8_t)lun;
    memcpy(task->cdb, cdb, cdb_bytes);
    task->expected_out_bytes = out_bytes;
    task->expected_in_bytes = in_bytes;
    task->done = on_done;
    task->dropped = on_dropped;
    task->owner = call;
    call->begun = scsi_task_begin(task);
    if (!call->begun) {
        return call;
    }
    assert_true(task->data_out_bytes <= out_bytes);
    call->out = mem_alloc(task->data_out_bytes + 1);
    call->in = mem_alloc(task->data_in_bytes + 1);
    if (out != NULL) {
        memcpy(call->out, out, task->data_out_bytes);
    }
    task->data_out = call->out;
    task->data_in = call->in;
    scsi_task_run(task);
    assert_false(call->done); /* never from inside */
    fake_env_settle(&w->fake);
    return call;
}

static void call_free(struct call *call) {
    assert_true(call->done || !call->begun);
    mem_free(call->in);
    mem_free(call->out);
    mem_free(call);
}

static uint32_t sense_code(const struct scsi_task *task) {
    if (task->sense_bytes == 0) {
        return 0;
    }
    if (task->sense[0] == 0x72) {
        return (uint32_t)task->sense[1] << 16 | get_be16(task->sense + 2);
    }
    return (uint32_t)(task->sense[2] & 15) << 16 | get_be16(task->sense + 12);
}

#define CDB(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

/* Runs to the end; returns the sense code, 0 when good. Data come back in a static buffer. */
static uint8_t answer[BUFFER_BYTES];
static struct scsi_task last;

/* Runs to the end, not necessarily well. */
static uint32_t run_as(struct world *w, struct scsi_nexus *nexus, const uint8_t *cdb,
                       size_t cdb_bytes, const void *out, uint64_t out_bytes, uint64_t in_bytes) {
    struct call *call = start(w, nexus, 3, cdb, cdb_bytes, out, out_bytes, in_bytes);
    assert_true(call->done || !call->begun);
    last = call->task;
    if (call->begun) {
        memcpy(answer, call->in, last.data_in_ready_bytes);
    }
    uint32_t code = sense_code(&last);
    assert_true((code != 0) == (last.status == SCSI_CHECK_CONDITION));
    call_free(call);
    return code;
}

static inline uint32_t run(struct world *w, const uint8_t *cdb, size_t cdb_bytes, const void *out,
                           uint64_t out_bytes, uint64_t in_bytes) {
    return run_as(w, w->a, cdb, cdb_bytes, out, out_bytes, in_bytes);
}

static inline uint32_t run_in(struct world *w, const uint8_t *cdb, size_t cdb_bytes,
                              uint64_t in_bytes) {
    return run(w, cdb, cdb_bytes, NULL, 0, in_bytes);
}

static inline uint32_t test_unit_ready(struct world *w, struct scsi_nexus *nexus) {
    struct call *call = start(w, nexus, 3, CDB(0, 0, 0, 0, 0, 0), NULL, 0, 0);
    uint32_t code = sense_code(&call->task);
    call_free(call);
    return code;
}

static inline void clear_attentions(struct world *w) {
    assert_int_equal(test_unit_ready(w, w->a), SENSE_POWER_ON);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_POWER_ON);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    assert_int_equal(test_unit_ready(w, w->b), 0);
}

static inline int ready_world(void **state) {
    struct world *w = world_new(512);
    clear_attentions(w);
    *state = w;
    return 0;
}

static inline int done_world(void **state) {
    world_free(*state);
    return 0;
}

#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, ready_world, done_world)

#endif
