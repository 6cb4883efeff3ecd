// SPDX-License-Identifier: MPL-2.0
/* The device server: a sequence of commands of two initiators, with whatever data, some aborted,
 * some while the volume keeps them. Records of 22 bytes, each followed by its data:
 *
 *     what (1)  LUN (1)  expected out (2)  expected in (2)  CDB (16)
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fake_env.h"
#include "memory_volume.h"
#include "scsi/bytes.h"
#include "scsi/scsi.h"

enum { RECORD_BYTES = 22, TASKS_MAX = 64, VOLUME_BYTES = 1 << 20 };
enum { OF_SECOND = 1, HOLD = 2, ABORT = 4, RESET = 8, LET_GO = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct call {
    struct scsi_task task;
    bool running, done;
    uint8_t *memory;
};

static void need(bool condition) {
    if (!condition) {
        abort();
    }
}

static void on_done(struct scsi_task *task) {
    struct call *call = task->owner;
    need(!call->done);
    call->done = true;
    need(task->data_in_ready_bytes <= task->expected_in_bytes);
    need(task->data_in_ready_bytes <= task->data_in_bytes);
    need((task->status == SCSI_CHECK_CONDITION) == (task->sense_bytes != 0) || task->aborted);
}

static void on_dropped(struct scsi_task *task) {
    (void)task;
}

/* Starts one; returns how much of the input its data took. */
static size_t start(struct call *call, struct scsi_nexus *nexus, const uint8_t *record,
                    const uint8_t *rest, size_t rest_bytes) {
    struct scsi_task *task = &call->task;
    task->nexus = nexus;
    task->lun_field[1] = record[1] & 3;
    task->lun_field[0] = record[1] & 0xc0;
    task->expected_out_bytes = get_be16(record + 2);
    task->expected_in_bytes = task->expected_out_bytes != 0 ? 0 : get_be16(record + 4) * 64ull;
    memcpy(task->cdb, record + 6, SCSI_CDB_BYTES_MAX);
    task->done = on_done;
    task->dropped = on_dropped;
    task->owner = call;
    call->done = true;
    if (!scsi_task_begin(task)) {
        return 0;
    }
    call->done = false;
    call->running = true;
    need(task->data_out_bytes <= task->expected_out_bytes);
    size_t taken = rest_bytes < task->data_out_bytes ? rest_bytes : task->data_out_bytes;
    uint32_t room =
        task->data_out_bytes > task->data_in_bytes ? task->data_out_bytes : task->data_in_bytes;
    call->memory = calloc(1, room != 0 ? room : 1);
    memcpy(call->memory, rest, taken);
    task->data_in = task->data_out = call->memory;
    if (record[0] & ABORT && record[0] & HOLD) {
        scsi_task_abort(task);
        return taken;
    }
    scsi_task_run(task);
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct fake_env fake;
    struct memory_volume volume, second; /* LUNs 0 and 2 */
    static struct call calls[TASKS_MAX];
    struct scsi_nexus *nexuses[2];
    uint32_t count = 0;
    memset(calls, 0, sizeof(calls));
    fake_env_init(&fake);
    memory_volume_init(&volume, &fake.env, VOLUME_BYTES, bytes & 1 ? 4096 : 512);
    volume.info.sync_always = (bytes & 2) != 0;
    memory_volume_init(&second, &fake.env, VOLUME_BYTES, bytes & 1 ? 512 : 4096);
    second.info.id = 9;
    second.info.uuid.bytes[15] = 0x77;
    struct scsi_target *target = scsi_target_new(&fake.env);
    need(scsi_lun_add(target, 0, &volume.door, &volume.info, NULL) == OK);
    need(scsi_lun_add(target, 2, &second.door, &second.info, NULL) == OK);
    struct scsi_port port = {1, 1, "iqn.2025-01.org.example,t,0x0001", "iqn.2025-01.org.example",
                             "iqn.2025-01.org.example:a,i,0x800000000001"};
    nexuses[0] = scsi_nexus_open(target, &port);
    port.initiator_port[24] = 'b';
    nexuses[1] = scsi_nexus_open(target, &port);
    fake_env_settle(&fake);
    while (bytes >= RECORD_BYTES && count < TASKS_MAX) {
        const uint8_t *record = data;
        volume.hold = second.hold = (record[0] & HOLD) != 0;
        data += RECORD_BYTES;
        bytes -= RECORD_BYTES;
        struct call *call = &calls[count++];
        size_t taken = start(call, nexuses[record[0] & OF_SECOND], record, data, bytes);
        data += taken;
        bytes -= taken;
        fake_env_settle(&fake);
        if (record[0] & ABORT && !call->done) {
            scsi_task_abort(&call->task);
        }
        if (record[0] & RESET) {
            (void)!scsi_manage(nexuses[0], (enum scsi_function)(record[0] >> 6),
                               (uint8_t[8]){0, record[1] & 1});
        }
        if (record[0] & LET_GO) {
            memory_volume_let_go(&volume);
            memory_volume_let_go(&second);
        }
        fake_env_settle(&fake);
    }
    scsi_nexus_close(nexuses[0]);
    scsi_nexus_close(nexuses[1]);
    /* A copy that goes on after what it asked of one has come back asks the other. */
    for (int i = 0; i < TASKS_MAX; i++) {
        memory_volume_let_go(&volume);
        memory_volume_let_go(&second);
        fake_env_settle(&fake);
    }
    need(scsi_target_outstanding(target) == 0);
    for (uint32_t i = 0; i < count; i++) {
        need(calls[i].done);
        free(calls[i].memory);
    }
    scsi_target_free(target);
    memory_volume_done(&volume);
    memory_volume_done(&second);
    fake_env_done(&fake);
    need(mem_in_use_bytes() == 0);
    return 0;
}
