// SPDX-License-Identifier: MPL-2.0
/* The life of a task: checks on the way in, dispatch, volume requests, ends and aborts.
 *
 * A task is counted by its unit from begin() until done() or, when it is dropped, until the volume
 * has let go of it. Multi-step commands (large transfers, patterns, comparisons, lists of ranges)
 * are one volume request after another: step() looks where the cursor stands and submits the next
 * one or ends the task. So at most one request of a task is ever in the volume, and an abort only
 * has to stop the stepping.
 *
 * A step decides, its caller acts: when the step has returned and the lock has been given back the
 * request goes to the volume, or done() is called (settle()).
 *
 * Overlap with dropped tasks. The volume may still carry out what a dropped task asked for. Every
 * request is compared with the ranges of the unit's dropped tasks (there are none in normal life)
 * and waits for those it overlaps, unless both only read. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "scsi/internal.h"

/* ---- results ---- */

void scsi_fail_sense(struct scsi_task *task, const struct scsi_sense *sense) {
    bool descriptors = task->lun != NULL && task->lun->descriptor_sense;
    task->failed = true;
    task->status = SCSI_CHECK_CONDITION;
    task->sense_bytes = scsi_sense_encode(sense, descriptors, task->sense);
    task->data_in_ready_bytes = 0;
}

void scsi_fail(struct scsi_task *task, enum scsi_sense_code code) {
    scsi_fail_sense(task, &(struct scsi_sense){.code = code});
}

void scsi_fail_status(struct scsi_task *task, enum scsi_status status) {
    task->failed = true;
    task->status = (uint8_t)status;
    task->data_in_ready_bytes = 0;
}

void scsi_fail_cdb(struct scsi_task *task, uint32_t byte, uint32_t bit) {
    scsi_fail_sense(task, &(struct scsi_sense){.code = SENSE_INVALID_FIELD_IN_CDB,
                                               .field_valid = true,
                                               .field_in_cdb = true,
                                               .field = (uint16_t)byte,
                                               .bit_valid = bit != NO_BIT,
                                               .bit = (uint8_t)bit});
}

void scsi_fail_parameter(struct scsi_task *task, uint32_t byte, uint32_t bit) {
    scsi_fail_sense(task, &(struct scsi_sense){.code = SENSE_INVALID_FIELD_IN_PARAMETERS,
                                               .field_valid = true,
                                               .field = (uint16_t)byte,
                                               .bit_valid = bit != NO_BIT,
                                               .bit = (uint8_t)bit});
}

void scsi_fail_error(struct scsi_task *task, int error) {
    const struct scsi_error *entry = scsi_error_find(error);
    if (task->lun != NULL) {
        task->lun->errors += error != ERR_MISCOMPARE;
    }
    if (entry->status != SCSI_CHECK_CONDITION) {
        scsi_fail_status(task, entry->status);
        return;
    }
    bool writes = (task->command->flags & COMMAND_WRITES) != 0 || task->request.op == VOLUME_FLUSH;
    struct scsi_sense sense = {.code = writes ? entry->write_code : entry->read_code};
    if (entry->info == SCSI_INFO_LBA) {
        sense.info_valid = true;
        sense.info =
            (task->request.offset_bytes + task->request.error_bytes) >> task->lun->block_shift;
    } else if (entry->info == SCSI_INFO_OFFSET) {
        sense.info_valid = true;
        sense.info = task->request.error_bytes;
    }
    scsi_fail_sense(task, &sense);
}

/* ---- the end ---- */

static void wake_waiting(struct scsi_lun *lun);

/* Nothing of it is under way any more, and nobody has still to hear of it. */
static bool is_over(const struct scsi_task *task) {
    return task->state == SCSI_TASK_ENDED && !task->in_volume && !task->queued &&
           (!task->aborted || task->told);
}

static void leave(struct scsi_task *task) {
    struct scsi_lun *lun = task->lun;
    list_remove(&task->in_nexus);
    mem_pages_free(task->scratch);
    task->scratch = NULL;
    copy_free(task->copy);
    task->copy = NULL;
    task->target->holders--;
    if (lun != NULL) {
        list_remove(&task->in_lun);
        if (task->aborted) {
            lun->dropped_count--;
        } else {
            lun->task_count--;
        }
        task->lun = NULL;
        wake_waiting(lun);
        scsi_lun_release(lun);
    }
}

/* Gives the lock back and does what has been decided. The task's loop; the task may be gone then.
 */
static void settle(struct scsi_task *task) {
    bool submits = task->submits, over = is_over(task);
    task->submits = false;
    if (over) {
        leave(task);
    }
    scsi_unlock(task->target);
    if (submits) {
        volume_submit(&task->request);
    } else if (over) {
        task->done(task);
    }
}

static void ended(struct env_task *defer) {
    struct scsi_task *task = CONTAINER_OF(defer, struct scsi_task, defer);
    scsi_lock(task->target);
    task->queued = false;
    settle(task);
}

/* From inside a step its caller sees it; from anywhere else it is posted. */
void scsi_task_end(struct scsi_task *task) {
    if (task->aborted) {
        return; /* while the step had paused: word of it is on its way */
    }
    ASSERT(task->state == SCSI_TASK_RUNNING);
    task->state = SCSI_TASK_ENDED;
    if (!task->active) {
        task->queued = true;
        env_post(task->env, &task->defer);
    }
}

void scsi_step_pause(struct scsi_task *task) {
    scsi_unlock(task->target);
}

bool scsi_step_resume(struct scsi_task *task) {
    scsi_lock(task->target);
    return !task->aborted;
}

void scsi_respond(struct scsi_task *task, const void *bytes, uint32_t length) {
    const struct scsi_command *command = task->command;
    uint64_t allocation = 0;
    for (uint32_t i = 0; i < command->length_bytes; i++) {
        allocation = allocation << 8 | task->cdb[command->length_at + i];
    }
    task->transfer_bytes = MIN((uint64_t)length, allocation);
    uint64_t room = MIN((uint64_t)task->data_in_bytes, task->expected_in_bytes);
    task->data_in_ready_bytes = (uint32_t)MIN(task->transfer_bytes, room);
    if (task->data_in_ready_bytes != 0) {
        memcpy(task->data_in, bytes, task->data_in_ready_bytes);
    }
    scsi_task_end(task);
}

/* ---- dropping ---- */

/* dropped() has been called, or will be before the loop comes to anything else of the task. When it
 * is in the volume the completion ends it; when it has ended done() is on its way. */
static void set_told(struct scsi_task *task) {
    task->told = true;
    if (!task->in_volume && !task->queued) {
        task->state = SCSI_TASK_ENDED;
    }
}

static void drop_arrived(struct env_task *drop) {
    struct scsi_task *task = CONTAINER_OF(drop, struct scsi_task, drop);
    task->dropped(task);
    scsi_lock(task->target);
    set_told(task);
    settle(task);
}

static void mark_dropped(struct scsi_task *task) {
    struct scsi_lun *lun = task->lun;
    task->aborted = true;
    task->nexus = NULL;
    list_remove(&task->in_nexus);
    list_remove(&task->in_waiting);
    reservations_task_gone(task);
    copy_gone(task);
    if (lun != NULL) {
        /* It is dropped where its request is. */
        struct scsi_lun *at = task->in_volume ? task->request_lun : lun;
        list_remove(&task->in_lun);
        list_append(&at->dropped, &task->in_lun);
        lun->task_count--;
        at->dropped_count++;
        task->lun = at;
        scsi_lun_release(lun);
    }
}

void scsi_drop(struct scsi_task *task, const struct env *own, struct list *mine) {
    mark_dropped(task);
    if (own == NULL || task->env != own) {
        env_post(task->env, &task->drop);
        return;
    }
    set_told(task);
    if (is_over(task)) { /* done() comes from the loop */
        task->queued = true;
        env_defer(task->env, &task->defer);
    }
    list_append(mine, &task->in_nexus);
}

void scsi_tell_dropped(struct list *mine) {
    struct list *node;
    while ((node = list_pop(mine)) != NULL) {
        struct scsi_task *task = CONTAINER_OF(node, struct scsi_task, in_nexus);
        task->dropped(task);
    }
}

void scsi_task_abort(struct scsi_task *task) {
    struct list mine;
    list_init(&mine);
    scsi_lock(task->target);
    if (!task->aborted) {
        scsi_drop(task, task->env, &mine);
    }
    scsi_unlock(task->target);
    scsi_tell_dropped(&mine);
}

/* ---- requests to the volume ---- */

static bool op_reads_only(enum volume_op op) {
    return op != VOLUME_WRITE && op != VOLUME_UNMAP && op != VOLUME_WRITE_ZEROES &&
           op != VOLUME_COMPARE_AND_WRITE;
}

static bool overlaps_dropped(const struct scsi_task *task) {
    const struct volume_request *want = &task->request;
    LIST_FOR_EACH(it, &task->request_lun->dropped) {
        const struct scsi_task *other = CONTAINER_OF(it, struct scsi_task, in_lun);
        const struct volume_request *old = &other->request;
        if (!other->in_volume || (op_reads_only(old->op) && op_reads_only(want->op))) {
            continue;
        }
        if (want->offset_bytes < old->offset_bytes + old->length_bytes &&
            old->offset_bytes < want->offset_bytes + want->length_bytes) {
            return true;
        }
    }
    return false;
}

static void request_done(struct volume_request *request) {
    struct scsi_task *task = request->owner;
    /* The edges of an unmapped range may stay mapped (see block.c). */
    bool edge = task->op == VOLUME_UNMAP && request->op == VOLUME_WRITE_ZEROES;
    bool failed =
        request->status != OK && !task->takes_errors && !(edge && request->status == ERR_NO_SPACE);
    scsi_lock(task->target);
    task->in_volume = false;
    if (task->aborted) {
        task->state = SCSI_TASK_ENDED;
        settle(task);
        return;
    }
    task->active = true;
    if (failed) {
        scsi_fail_error(task, request->status);
        scsi_task_end(task);
    } else {
        if (!op_reads_only(request->op)) {
            provisioning_wrote(task->request_lun, request->length_bytes);
        }
        task->step(task);
    }
    task->active = false;
    settle(task);
}

void scsi_volume_submit(struct scsi_task *task, enum volume_op op, uint64_t offset_bytes,
                        uint64_t length_bytes, void *data, uint64_t data_bytes) {
    scsi_volume_submit_to(task, task->lun, op, offset_bytes, length_bytes, data, data_bytes);
}

void scsi_volume_submit_to(struct scsi_task *task, struct scsi_lun *lun, enum volume_op op,
                           uint64_t offset_bytes, uint64_t length_bytes, void *data,
                           uint64_t data_bytes) {
    ASSERT(!task->in_volume && task->state == SCSI_TASK_RUNNING && !task->aborted && task->active);
    task->request_lun = lun;
    task->iov = (struct iovec){data, data_bytes};
    task->request = (struct volume_request){
        .client = task->env,
        .door = lun->door,
        .volume_id = lun->info.id,
        .op = op,
        .fua = task->fua && !op_reads_only(op),
        .offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
        .iov = data != NULL ? &task->iov : NULL,
        .iov_count = data != NULL ? 1 : 0,
        .done = request_done,
        .owner = task,
    };
    if (!list_is_empty(&lun->dropped) && overlaps_dropped(task) &&
        !SABOTAGE(iscsi_dropped_overtaken)) {
        list_append(&lun->waiting, &task->in_waiting);
        return;
    }
    task->in_volume = true;
    task->submits = true;
}

static void wake_waiting(struct scsi_lun *lun) {
    LIST_FOR_EACH_SAFE(it, &lun->waiting) {
        struct scsi_task *task = CONTAINER_OF(it, struct scsi_task, in_waiting);
        if (!overlaps_dropped(task)) {
            list_remove(&task->in_waiting);
            task->in_volume = true;
            volume_submit(&task->request); /* of another loop perhaps: its done() finds its way */
        }
    }
}

/* ---- the beginning ---- */

/* Bits of the CDB that no field of the command covers must be zero. Of the control byte only NACA
 * is looked at: the standard leaves the rest to vendors. */
static bool cdb_is_clean(struct scsi_task *task) {
    const struct scsi_command *command = task->command;
    uint32_t last = command->cdb_bytes - 1u;
    for (uint32_t i = 1; i < last; i++) {
        uint8_t extra = task->cdb[i] & (uint8_t)~command->usage[i];
        if (extra != 0) {
            scsi_fail_cdb(task, i, 31u - (uint32_t)__builtin_clz(extra));
            return false;
        }
    }
    if (task->cdb[last] & 0x04) {
        scsi_fail_cdb(task, last, 2);
        return false;
    }
    return true;
}

/* Two commands are let through in the harmless one of their forms (SBC-3 table 14). */
static uint32_t conflicts_of(const struct scsi_task *task) {
    bool starts = task->cdb[0] == 0x1b && (task->cdb[4] & 0xf1) == 0x01;
    bool allows = task->cdb[0] == 0x1e && (task->cdb[4] & 0x03) == 0;
    return starts || allows ? task->command->conflicts & CONFLICT_RESERVE
                            : task->command->conflicts;
}

static bool lun_accepts(struct scsi_task *task) {
    struct scsi_lun *lun = task->lun;
    uint32_t flags = task->command->flags;
    if (lun == NULL) {
        if ((flags & COMMAND_ANY_LUN) == 0) {
            scsi_fail(task, SENSE_LUN_NOT_SUPPORTED);
        }
        return (flags & COMMAND_ANY_LUN) != 0;
    }
    if ((flags & COMMAND_KEEPS_ATTENTION) == 0 && lun->readiness != UNIT_READY) {
        /* Its reservations are not known yet, or cannot be known (reservation.c). */
        if (lun->readiness == UNIT_RECALLING) {
            scsi_fail_status(task, SCSI_BUSY);
        } else {
            scsi_fail(task, SENSE_NOT_READY_INTERVENTION);
        }
        return false;
    }
    if ((flags & COMMAND_KEEPS_ATTENTION) == 0) {
        enum scsi_sense_code code = ua_pop(&task->nexus->attentions[lun->number]);
        if (code != SENSE_NONE) {
            /* INFORMATION of a threshold: where its descriptor lies (SBC-3 §4.7.3.7.6) */
            scsi_fail_sense(task, &(struct scsi_sense){.code = code,
                                                       .info_valid = code == SENSE_THIN_THRESHOLD,
                                                       .info = THRESHOLD_DESCRIPTOR_AT});
            return false;
        }
    }
    if (lun->task_count >= SCSI_LUN_TASKS_MAX || lun->dropped_count >= SCSI_LUN_DROPPED_MAX) {
        scsi_fail_status(task,
                         lun->task_count >= SCSI_LUN_TASKS_MAX ? SCSI_TASK_SET_FULL : SCSI_BUSY);
        return false;
    }
    if (reservations_conflict(lun, task->nexus, conflicts_of(task))) {
        scsi_fail_status(task, SCSI_RESERVATION_CONFLICT);
        return false;
    }
    if ((flags & COMMAND_WRITES) != 0 && lun->software_write_protect) {
        scsi_fail(task, SENSE_SOFTWARE_WRITE_PROTECTED);
        return false;
    }
    return true;
}

/* Lengths of commands with parameter data, from the table. */
static void parameter_lengths(struct scsi_task *task) {
    const struct scsi_command *command = task->command;
    uint64_t length = 0;
    for (uint32_t i = 0; i < command->length_bytes; i++) {
        length = length << 8 | task->cdb[command->length_at + i];
    }
    if (command->flags & COMMAND_IN) {
        task->data_in_bytes = (uint32_t)MIN(length, (uint64_t)SCSI_RESPONSE_BYTES_MAX);
    } else if (command->flags & COMMAND_OUT) {
        task->data_out_bytes = (uint32_t)MIN(length, (uint64_t)SCSI_PARAMETER_BYTES_MAX);
        task->transfer_bytes = length;
    }
}

/* A command that would send data to an initiator which means to send some itself has no room for
 * them: it moves nothing. One that wants data from an initiator which means to receive is refused.
 */
static bool directions_agree(struct scsi_task *task) {
    if ((task->command->flags & COMMAND_OUT) != 0 && task->expected_in_bytes != 0 &&
        task->transfer_bytes != 0) {
        scsi_fail(task, SENSE_INVALID_FIELD_IN_UNIT);
        return false;
    }
    return true;
}

static void task_init(struct scsi_task *task) {
    task->target = task->nexus->target;
    task->defer.run = ended;
    task->drop.run = drop_arrived;
    task->active = false;
    task->submits = false;
    task->queued = false;
    task->told = false;
    list_init(&task->in_lun);
    list_init(&task->in_nexus);
    list_init(&task->in_waiting);
    task->data_out_bytes = 0;
    task->data_in_bytes = 0;
    task->aborted = false;
    task->status = SCSI_GOOD;
    task->sense_bytes = 0;
    task->data_in_ready_bytes = 0;
    task->transfer_bytes = 0;
    task->lun = NULL;
    task->state = SCSI_TASK_BEGUN;
    task->in_volume = false;
    task->failed = false;
    task->step = NULL;
    task->descriptor = 0;
    task->fua = false;
    task->op = VOLUME_READ;
    task->flush_first = false;
    task->verify_after = false;
    task->compare = false;
    task->takes_errors = false;
    task->request_lun = NULL;
    task->copy = NULL;
    task->scratch = NULL;
    task->request.error_bytes = 0;
}

/* SPC-4 §4.2.5.2: a service action that the operation code does not have is an invalid field. */
static void refuse_unknown(struct scsi_task *task) {
    if (task->lun == NULL) {
        scsi_fail(task, SENSE_LUN_NOT_SUPPORTED);
    } else if (scsi_opcode_has_service_actions(task->cdb[0]) == 1) {
        scsi_fail_cdb(task, 1, 4);
    } else {
        scsi_fail(task, SENSE_INVALID_OPCODE);
    }
}

static bool task_begin(struct scsi_task *task) {
    uint32_t number = 0;
    task->env = task->nexus->env;
    if (scsi_lun_decode(task->lun_field, &number) == OK) {
        task->lun = nexus_lun(task->nexus, number);
    }
    if (task->command == NULL) {
        refuse_unknown(task);
        return false;
    }
    if (!lun_accepts(task) || !cdb_is_clean(task)) {
        return false;
    }
    parameter_lengths(task);
    if (task->command->check != NULL) {
        task->command->check(task);
    }
    if (task->failed || !directions_agree(task)) {
        task->transfer_bytes = 0;
        return false;
    }
    uint64_t room =
        round_up(task->expected_in_bytes, task->lun != NULL ? task->lun->block_bytes : 512);
    task->data_in_bytes = (uint32_t)MIN((uint64_t)task->data_in_bytes, room);
    task->data_out_bytes = (uint32_t)MIN((uint64_t)task->data_out_bytes, task->expected_out_bytes);
    list_append(&task->nexus->tasks, &task->in_nexus);
    if (task->lun != NULL) {
        task->lun->task_count++;
        list_append(&task->lun->tasks, &task->in_lun);
    }
    task->target->holders++;
    return true;
}

bool scsi_task_begin(struct scsi_task *task) {
    task_init(task);
    task->command = scsi_command_find(task->cdb);
    scsi_lock(task->target);
    bool begun = task_begin(task);
    scsi_unlock(task->target);
    return begun;
}

void scsi_task_run(struct scsi_task *task) {
    task->began_ns = env_now_ns(task->env);
    scsi_lock(task->target);
    if (!task->aborted) { /* else word of it is on its way */
        ASSERT(task->state == SCSI_TASK_BEGUN);
        task->state = SCSI_TASK_RUNNING;
        task->active = true;
        task->command->run(task);
        task->active = false;
    }
    if (is_over(task)) { /* done() comes from the loop, never from inside */
        task->queued = true;
        env_defer(task->env, &task->defer);
    }
    settle(task);
}

bool scsi_task_refuse(struct scsi_task *task, enum scsi_sense_code code) {
    scsi_lock(task->target);
    bool refused = !task->aborted;
    if (refused) {
        ASSERT(task->state == SCSI_TASK_BEGUN);
        task->state = SCSI_TASK_ENDED;
        scsi_fail(task, code);
        leave(task);
    }
    scsi_unlock(task->target);
    return refused;
}

/* ---- task management ---- */

/* Who manages: its loop, and those of its tasks to be told when the lock has been given back. */
struct manager {
    const struct scsi_nexus *nexus; /* NULL: whoever; nothing is left to the caller */
    struct list mine;
};

static void abort_tasks(struct scsi_lun *lun, const struct scsi_nexus *of, struct manager *manager,
                        bool tell_others) {
    LIST_FOR_EACH_SAFE(it, &lun->tasks) {
        struct scsi_task *task = CONTAINER_OF(it, struct scsi_task, in_lun);
        if (of != NULL && task->nexus != of) {
            continue;
        }
        if (tell_others && task->nexus != manager->nexus) {
            ua_push(&task->nexus->attentions[lun->number], SENSE_COMMANDS_CLEARED);
        }
        scsi_drop(task, manager->nexus != NULL ? manager->nexus->env : NULL, &manager->mine);
    }
}

/* PREEMPT AND ABORT may come into force on another loop than that of who wanted it. */
void scsi_abort_of(struct scsi_lun *lun, const struct scsi_nexus *nexus,
                   const struct scsi_nexus *requester) {
    LIST_FOR_EACH_SAFE(it, &lun->tasks) {
        struct scsi_task *task = CONTAINER_OF(it, struct scsi_task, in_lun);
        if (task->nexus == nexus) {
            if (nexus != requester) {
                ua_push(&task->nexus->attentions[lun->number], SENSE_COMMANDS_CLEARED);
            }
            scsi_drop(task, NULL, NULL);
        }
    }
}

static void lun_reset(struct scsi_lun *lun, struct manager *manager) {
    abort_tasks(lun, NULL, manager, false);
    lun->descriptor_sense = false;
    lun->software_write_protect = false;
    lun->reserved_by = NULL;
    ua_establish(lun, SENSE_BUS_DEVICE_RESET, NULL);
}

static int manage(struct scsi_nexus *nexus, enum scsi_function function, const uint8_t lun_field[8],
                  struct manager *manager) {
    if (function == SCSI_TARGET_RESET) {
        for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
            if (nexus_lun(nexus, i) != NULL) {
                lun_reset(nexus_lun(nexus, i), manager);
            }
        }
        return OK;
    }
    uint32_t number = 0;
    if (scsi_lun_decode(lun_field, &number) != OK || nexus_lun(nexus, number) == NULL) {
        return ERR_NOT_FOUND;
    }
    struct scsi_lun *lun = nexus_lun(nexus, number);
    switch (function) {
    case SCSI_ABORT_TASK_SET:
        abort_tasks(lun, nexus, manager, false);
        break;
    case SCSI_CLEAR_TASK_SET:
        abort_tasks(lun, NULL, manager, true);
        break;
    case SCSI_LUN_RESET:
    case SCSI_TARGET_RESET:
        lun_reset(lun, manager);
        break;
    }
    return OK;
}

int scsi_manage(struct scsi_nexus *nexus, enum scsi_function function, const uint8_t lun_field[8]) {
    struct manager manager = {.nexus = nexus};
    list_init(&manager.mine);
    scsi_lock(nexus->target);
    int error = manage(nexus, function, lun_field, &manager);
    scsi_unlock(nexus->target);
    scsi_tell_dropped(&manager.mine);
    return error;
}
