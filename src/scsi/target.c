// SPDX-License-Identifier: MPL-2.0
/* Targets, logical units, I_T nexuses, unit attentions.
 *
 * Loops. Sessions of several loops share units, reservations, task sets. A target has one lock, and
 * the device server is a monitor: every function of scsi.h, every completion and every step of a
 * command takes the lock on the way in and gives it back on the way out, so what is in between
 * reads as on one loop. Outside of the lock are
 *
 *   - the transport: done() and dropped() are called without it;
 *   - what a step has decided: its request goes to the volume when the lock has been given back;
 *   - what takes long and is the task's alone: comparing, filling, or-ing (scsi_step_pause()).
 *
 * A task belongs to its loop: its steps, its end and its callbacks happen there and nowhere else.
 * Others can do two things to it, both under the lock: let it go on (a request that waited, a
 * change of reservations that was its turn: posted), and drop it (scsi_drop()). A task that is
 * dropped is marked, out of its nexus and task set, and among those later requests must not
 * overtake. Whatever its loop is about to do with it meanwhile finds the mark. Word of it is posted
 * to the loop, and only when that has arrived the task may end, so that its memory is there for so
 * long. Hence a task management function is answered at once, and no status of what it dropped
 * follows the answer.
 *
 * A removed unit leaves the table at once. Its tasks hold it alive: it moves to the target's list
 * of removed units and is freed by whichever of its tasks ends last. A target that is freed stays
 * in memory until the last of its units and tasks has gone. Unit attentions live in the nexus, in a
 * queue for each number, so that they come and go with it (SAM-5 §5.14.1: an I_T nexus loss clears
 * them). */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

/* ---- unit attentions ---- */

void ua_push(struct ua_queue *queue, enum scsi_sense_code code) {
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->codes[i] == code) {
            return;
        }
    }
    /* There are fewer conditions than places, so this never happens; if it did, the newest is what
     * the initiator can do without: it is told to look again anyway. */
    if (queue->count < UA_QUEUE_MAX) {
        queue->codes[queue->count++] = code;
    }
}

enum scsi_sense_code ua_pop(struct ua_queue *queue) {
    if (queue->count == 0) {
        return SENSE_NONE;
    }
    enum scsi_sense_code code = queue->codes[0];
    ua_remove(queue, code);
    return code;
}

void ua_remove(struct ua_queue *queue, enum scsi_sense_code code) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->codes[i] != code) {
            queue->codes[kept++] = queue->codes[i];
        }
    }
    queue->count = kept;
}

void ua_establish(struct scsi_lun *lun, enum scsi_sense_code code,
                  const struct scsi_nexus *except) {
    if (lun->removed) {
        return;
    }
    LIST_FOR_EACH(it, &lun->target->nexuses) {
        struct scsi_nexus *nexus = CONTAINER_OF(it, struct scsi_nexus, in_target);
        if (nexus != except && nexus_may_use(nexus, lun->number)) {
            ua_push(&nexus->attentions[lun->number], code);
        }
    }
}

static void inventory_changed(struct scsi_target *target, uint32_t except_number) {
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        if (target->luns[i] != NULL && i != except_number) {
            ua_establish(target->luns[i], SENSE_REPORTED_LUNS_CHANGED, NULL);
        }
    }
}

/* ---- targets ---- */

static void lun_remove(struct scsi_lun *lun);

void scsi_lock(struct scsi_target *target) {
    lock_take(&target->lock);
}

void scsi_unlock(struct scsi_target *target) {
    bool last = target->holders == 0;
    lock_release(&target->lock);
    if (last) {
        lock_done(&target->lock);
        mem_free(target);
    }
}

struct scsi_target *scsi_target_new(struct env *env) {
    struct scsi_target *target = MEM_NEW(struct scsi_target);
    target->env = env;
    target->holders = 1;
    lock_init(&target->lock);
    list_init(&target->nexuses);
    list_init(&target->removed_luns);
    list_init(&target->copies);
    return target;
}

void scsi_target_free(struct scsi_target *target) {
    if (target == NULL) {
        return;
    }
    scsi_lock(target);
    ASSERT(list_is_empty(&target->nexuses));
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        if (target->luns[i] != NULL) {
            lun_remove(target->luns[i]);
        }
    }
    target->holders--;
    scsi_unlock(target);
}

void scsi_target_set_ports(struct scsi_target *target, const uint16_t *ids, uint32_t count) {
    scsi_lock(target);
    target->port_count = MIN(count, (uint32_t)SCSI_PORTS_MAX);
    memcpy(target->ports, ids, target->port_count * sizeof(*ids));
    scsi_unlock(target);
}

static void port_insert(uint16_t *ids, uint32_t *count, uint16_t id) {
    uint32_t at = 0;
    while (at < *count && ids[at] < id) {
        at++;
    }
    if (*count < SCSI_PORTS_MAX && (at == *count || ids[at] != id)) {
        memmove(ids + at + 1, ids + at, (*count - at) * sizeof(*ids));
        ids[at] = id;
        (*count)++;
    }
}

/* A port that has gone while somebody still uses it is one as well. */
uint32_t scsi_target_port_list(const struct scsi_target *target, uint16_t ret_ids[SCSI_PORTS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < target->port_count; i++) {
        port_insert(ret_ids, &count, target->ports[i]);
    }
    LIST_FOR_EACH(it, &target->nexuses) {
        port_insert(ret_ids, &count,
                    CONTAINER_OF(it, struct scsi_nexus, in_target)->port.relative_id);
    }
    return count;
}

/* ---- logical units ---- */

int scsi_lun_decode(const uint8_t field[8], uint32_t *ret_number) {
    for (uint32_t i = 2; i < 8; i++) {
        if (field[i] != 0) {
            return ERR_RANGE;
        }
    }
    uint32_t number = 0;
    switch (field[0] >> 6) {
    case 0: /* peripheral device addressing, bus 0 */
        if (field[0] != 0) {
            return ERR_RANGE;
        }
        number = field[1];
        break;
    case 1: /* flat space addressing */
        number = (uint32_t)(field[0] & 0x3f) << 8 | field[1];
        break;
    default:
        return ERR_RANGE;
    }
    if (number >= SCSI_LUNS_MAX) {
        return ERR_RANGE;
    }
    *ret_number = number;
    return OK;
}

static int check_volume(const struct volume_info *info, struct errmsg *reterr) {
    if (info->block_bytes != 512 && info->block_bytes != 4096) {
        return errmsg_set(reterr, ERR_INVALID,
                          "volume %s has blocks of %u bytes; a LUN needs 512 or 4096", info->name,
                          info->block_bytes);
    }
    if (info->size_bytes == 0 || info->size_bytes % 4096 != 0) {
        return errmsg_set(reterr, ERR_INVALID,
                          "volume %s has a size that is not a multiple of 4096 bytes", info->name);
    }
    return OK;
}

static void take_over(struct scsi_lun *lun, const struct volume_info *info) {
    lun->info = *info;
    lun->block_bytes = info->block_bytes;
    lun->block_shift = info->block_bytes == 512 ? 9 : 12;
    lun->blocks = info->size_bytes >> lun->block_shift;
}

static void lun_add(struct scsi_target *target, uint32_t number, struct volume_door *door,
                    const struct volume_info *info) {
    struct scsi_lun *lun = MEM_NEW(struct scsi_lun);
    target->holders++;
    lun->target = target;
    lun->number = number;
    lun->env = target->env;
    lun->door = door;
    list_init(&lun->in_removed);
    list_init(&lun->tasks);
    list_init(&lun->dropped);
    list_init(&lun->waiting);
    take_over(lun, info);
    target->luns[number] = lun;
    reservations_init(lun);
    LIST_FOR_EACH(it, &target->nexuses) {
        CONTAINER_OF(it, struct scsi_nexus, in_target)->attentions[number].count = 0;
    }
    ua_establish(lun, SENSE_POWER_ON, NULL);
    inventory_changed(target, number);
}

int scsi_lun_add(struct scsi_target *target, uint32_t number, struct volume_door *door,
                 const struct volume_info *info, struct errmsg *reterr) {
    if (number >= SCSI_LUNS_MAX) {
        return errmsg_set(reterr, ERR_RANGE, "LUN %u is above the highest number, %u", number,
                          SCSI_LUNS_MAX - 1);
    }
    int error = check_volume(info, reterr);
    if (error != OK) {
        return error;
    }
    scsi_lock(target);
    if (target->luns[number] != NULL) {
        error = errmsg_set(reterr, ERR_EXISTS, "LUN %u is already volume %s", number,
                           target->luns[number]->info.name);
    } else {
        lun_add(target, number, door, info);
    }
    scsi_unlock(target);
    return error;
}

/* What holds a unit alive and its volume busy. */
static uint32_t lun_outstanding(const struct scsi_lun *lun) {
    return lun->task_count + lun->dropped_count + lun->change.in_volume +
           lun->space_check.in_volume;
}

static int lun_find(const struct scsi_target *target, uint32_t number, struct errmsg *reterr,
                    struct scsi_lun **ret_lun) {
    if (number >= SCSI_LUNS_MAX || target->luns[number] == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no LUN %u", number);
    }
    *ret_lun = target->luns[number];
    return OK;
}

void scsi_lun_release(struct scsi_lun *lun) {
    if (lun->removed && lun_outstanding(lun) == 0 && lun->users == 0) {
        list_remove(&lun->in_removed);
        reservations_done(lun);
        lun->target->holders--;
        mem_free(lun);
    }
}

static void lun_remove(struct scsi_lun *lun) {
    struct scsi_target *target = lun->target;
    target->luns[lun->number] = NULL;
    lun->removed = true;
    list_append(&target->removed_luns, &lun->in_removed);
    inventory_changed(target, lun->number);
    scsi_lun_release(lun);
}

int scsi_lun_remove(struct scsi_target *target, uint32_t number, struct errmsg *reterr) {
    struct scsi_lun *lun = NULL;
    scsi_lock(target);
    int error = lun_find(target, number, reterr, &lun);
    if (error == OK) {
        lun_remove(lun);
    }
    scsi_unlock(target);
    return error;
}

static int lun_update(struct scsi_lun *lun, const struct volume_info *info, struct errmsg *reterr) {
    if (info->id != lun->info.id || info->block_bytes != lun->block_bytes) {
        return errmsg_set(reterr, ERR_INVALID, "LUN %u is volume %s, not %s", lun->number,
                          lun->info.name, info->name);
    }
    bool resized = info->size_bytes != lun->info.size_bytes;
    bool cache_changed = info->sync_always != lun->info.sync_always;
    take_over(lun, info);
    if (resized) {
        ua_establish(lun, SENSE_CAPACITY_CHANGED, NULL);
    }
    if (cache_changed) {
        ua_establish(lun, SENSE_MODE_PARAMETERS_CHANGED, NULL);
    }
    return OK;
}

int scsi_lun_update(struct scsi_target *target, uint32_t number, const struct volume_info *info,
                    struct errmsg *reterr) {
    struct scsi_lun *lun = NULL;
    scsi_lock(target);
    int error = lun_find(target, number, reterr, &lun);
    if (error == OK) {
        error = check_volume(info, reterr);
    }
    if (error == OK) {
        error = lun_update(lun, info, reterr);
    }
    scsi_unlock(target);
    return error;
}

uint32_t scsi_lun_list(struct scsi_target *target, struct scsi_lun_status *ret_luns,
                       uint32_t room) {
    uint32_t count = 0;
    scsi_lock(target);
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        const struct scsi_lun *lun = target->luns[i];
        if (lun == NULL) {
            continue;
        }
        if (count < room) {
            struct scsi_lun_status *status = &ret_luns[count];
            *status = (struct scsi_lun_status){
                .number = i,
                .volume_id = lun->info.id,
                .size_bytes = lun->info.size_bytes,
                .block_bytes = lun->block_bytes,
                .tasks = lun->task_count,
                .dropped_tasks = lun->dropped_count,
                .reads = lun->reads,
                .writes = lun->writes,
                .read_bytes = lun->read_bytes,
                .write_bytes = lun->write_bytes,
                .errors = lun->errors,
                .latency_ns = lun->latency_ns,
            };
            memcpy(status->volume_name, lun->info.name, sizeof(status->volume_name));
        }
        count++;
    }
    scsi_unlock(target);
    return count;
}

static uint32_t outstanding(const struct scsi_target *target) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        if (target->luns[i] != NULL) {
            count += lun_outstanding(target->luns[i]);
        }
    }
    LIST_FOR_EACH(it, &target->removed_luns) {
        count += lun_outstanding(CONTAINER_OF(it, struct scsi_lun, in_removed));
    }
    return count;
}

uint32_t scsi_target_outstanding(struct scsi_target *target) {
    scsi_lock(target);
    uint32_t count = outstanding(target);
    scsi_unlock(target);
    return count;
}

bool scsi_target_is_idle(struct scsi_target *target) {
    scsi_lock(target);
    bool idle = outstanding(target) == 0 && list_is_empty(&target->nexuses);
    scsi_unlock(target);
    return idle;
}

/* ---- nexuses ---- */

struct scsi_nexus *scsi_nexus_open(struct scsi_target *target, const struct scsi_port *port) {
    struct scsi_nexus *nexus = MEM_NEW(struct scsi_nexus);
    nexus->target = target;
    nexus->env = port->env != NULL ? port->env : target->env;
    nexus->port = *port;
    ASSERT(port->initiator_port[0] != '\0' && port->relative_id != 0);
    nexus->initiator_hash = initiator_hash(port->initiator_port);
    list_init(&nexus->tasks);
    scsi_lock(target);
    list_append(&target->nexuses, &nexus->in_target);
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        if (target->luns[i] != NULL) {
            ua_push(&nexus->attentions[i], SENSE_POWER_ON);
        }
    }
    scsi_unlock(target);
    return nexus;
}

void scsi_nexus_move(struct scsi_nexus *nexus, struct env *env) {
    scsi_lock(nexus->target);
    ASSERT(list_is_empty(&nexus->tasks));
    nexus->env = env;
    scsi_unlock(nexus->target);
}

static void nexus_abort(struct scsi_nexus *nexus, const struct scsi_lun *lun) {
    LIST_FOR_EACH_SAFE(it, &nexus->tasks) {
        struct scsi_task *task = CONTAINER_OF(it, struct scsi_task, in_nexus);
        if (task->lun == lun) {
            scsi_drop(task, NULL, NULL);
        }
    }
}

void scsi_nexus_show(struct scsi_nexus *nexus, const uint8_t numbers[SCSI_LUNS_MAX / 8]) {
    bool changed = false;
    scsi_lock(nexus->target);
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        bool shown = (numbers[i / 8] >> i % 8 & 1) != 0;
        struct scsi_lun *lun = nexus->target->luns[i];
        if (shown == nexus_may_use(nexus, i)) {
            continue;
        }
        nexus->hidden[i / 8] ^= (uint8_t)(1u << i % 8);
        nexus->attentions[i].count = 0;
        if (lun == NULL) {
            continue;
        }
        changed = true;
        if (shown) {
            ua_push(&nexus->attentions[i], SENSE_POWER_ON);
        } else {
            nexus_abort(nexus, lun);
            reservations_nexus_gone(lun, nexus);
        }
    }
    for (uint32_t i = 0; changed && i < SCSI_LUNS_MAX; i++) {
        struct ua_queue *queue = &nexus->attentions[i];
        /* Who has still to be told of the power-on knows nothing that could have changed. */
        if (nexus_lun(nexus, i) != NULL &&
            (queue->count == 0 || queue->codes[0] != SENSE_POWER_ON)) {
            ua_push(queue, SENSE_REPORTED_LUNS_CHANGED);
        }
    }
    scsi_unlock(nexus->target);
}

void scsi_nexus_close(struct scsi_nexus *nexus) {
    if (nexus == NULL) {
        return;
    }
    struct scsi_target *target = nexus->target;
    struct list mine;
    list_init(&mine);
    scsi_lock(target);
    while (!list_is_empty(&nexus->tasks)) {
        scsi_drop(CONTAINER_OF(nexus->tasks.next, struct scsi_task, in_nexus), nexus->env, &mine);
    }
    list_remove(&nexus->in_target);
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        if (target->luns[i] != NULL) {
            reservations_nexus_gone(target->luns[i], nexus);
        }
    }
    LIST_FOR_EACH(it, &target->removed_luns) {
        reservations_nexus_gone(CONTAINER_OF(it, struct scsi_lun, in_removed), nexus);
    }
    scsi_unlock(target);
    scsi_tell_dropped(&mine);
    mem_free(nexus);
}
