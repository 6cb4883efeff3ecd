// SPDX-License-Identifier: MPL-2.0
/* Reservations of a logical unit: what they forbid, how they change, how they outlive us.
 *
 * Terms (SPC-4 §5.12). An *I_T nexus* is an initiator port seen through a target port. It
 * *registers* with a key; a registered nexus may *hold* the persistent reservation of one of six
 * types. Registrations belong to names, not to sessions: they stay when a session ends, and a
 * session of the same initiator port through the same target port finds them again. The older
 * RESERVE and RELEASE (SPC-2) belong to the session and end with it.
 *
 * All paths share one state: `lun->reservations`. It is replaced as a whole. A PERSISTENT RESERVE
 * OUT makes a changed copy, writes it to the pool first if it is to survive a loss of power
 * (APTPL), and only when that is durable
 *
 *   - the copy becomes the state, which every command from then on is checked against;
 *   - nexuses that lost something are told (marks in the old state say what and whom);
 *   - the command ends.
 *
 * So nobody ever sees a reservation that a power cut would undo. A change that cannot be stored
 * leaves everything as it was. Changes come one after another; those that arrive meanwhile wait.
 * One that is aborted while it is being stored takes effect all the same, as an abort may.
 *
 * After a restart the record is read before the first command: until then the unit is BUSY, and if
 * the record cannot be understood it stays NOT READY, for to serve a unit whose reservations are
 * unknown may cost a cluster its data.
 *
 * The record: struct reservations_phys, then for each registration struct registrant_phys and the
 * name of its initiator port, padded to 8 bytes. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "format/phys.h"
#include "scsi/internal.h"

/* ---- types of persistent reservations ---- */

bool reservation_type_is_valid(uint32_t type) {
    return type == WRITE_EXCLUSIVE || type == EXCLUSIVE_ACCESS ||
           (type >= WRITE_EXCLUSIVE_REGISTRANTS && type <= EXCLUSIVE_ACCESS_ALL);
}

bool reservation_type_is_for_registrants(uint32_t type) {
    return type >= WRITE_EXCLUSIVE_REGISTRANTS;
}

bool reservation_type_is_of_all(uint32_t type) {
    return type == WRITE_EXCLUSIVE_ALL || type == EXCLUSIVE_ACCESS_ALL;
}

static uint8_t type_conflict(uint32_t type) {
    bool lets_read = type == WRITE_EXCLUSIVE || type == WRITE_EXCLUSIVE_REGISTRANTS ||
                     type == WRITE_EXCLUSIVE_ALL;
    return lets_read ? CONFLICT_WRITE_EXCLUSIVE : CONFLICT_EXCLUSIVE_ACCESS;
}

/* ---- the state ---- */

uint64_t initiator_hash(const char *initiator) {
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a: only to compare unequal names quickly */
    for (const char *c = initiator; *c != '\0'; c++) {
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
    }
    return hash;
}

struct reservations *reservations_copy(const struct reservations *from, uint32_t more) {
    uint32_t count = from != NULL ? from->count : 0;
    struct reservations *copy =
        mem_alloc(sizeof(*copy) + (count + more) * sizeof(copy->registrants[0]));
    if (from != NULL) {
        memcpy(copy, from, sizeof(*copy) + count * sizeof(copy->registrants[0]));
    }
    copy->room = count + more;
    return copy;
}

int reservations_find(const struct reservations *state, const char *initiator, uint64_t hash,
                      uint16_t port) {
    for (uint32_t i = 0; i < state->count; i++) {
        const struct registrant *registrant = &state->registrants[i];
        if (registrant->hash == hash && registrant->port == port &&
            strcmp(registrant->initiator, initiator) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int reservations_find_nexus(const struct reservations *state, const struct scsi_nexus *nexus) {
    return reservations_find(state, nexus->port.initiator_port, nexus->initiator_hash,
                             nexus->port.relative_id);
}

bool reservations_conflict(const struct scsi_lun *lun, const struct scsi_nexus *nexus,
                           uint32_t conflicts) {
    const struct reservations *state = lun->reservations;
    if ((conflicts & CONFLICT_RESERVE) != 0 && lun->reserved_by != NULL &&
        lun->reserved_by != nexus) {
        return true;
    }
    if (state->type == 0 || (conflicts & type_conflict(state->type)) == 0) {
        return false;
    }
    int index = reservations_find_nexus(state, nexus);
    return index < 0 ||
           !(state->registrants[index].holder || reservation_type_is_for_registrants(state->type));
}

/* ---- the record ---- */

enum { RECORD_VERSION = 1, REGISTRANT_HOLDS = 1 };

struct reservations_phys {
    struct header_phys header; /* seed: the volume's number */
    uint32_t registrants;
    uint8_t type; /* 0: nothing is reserved */
    uint8_t reserved[3];
};
_Static_assert(sizeof(struct reservations_phys) == 24, "on disk");

struct registrant_phys {
    uint64_t key;
    uint16_t port; /* relative target port identifier */
    uint8_t flags;
    uint8_t initiator_bytes;
    uint32_t reserved;
};
_Static_assert(sizeof(struct registrant_phys) == 16, "on disk");

uint32_t reservations_record_bytes(const struct reservations *state) {
    uint64_t bytes = sizeof(struct reservations_phys);
    for (uint32_t i = 0; i < state->count; i++) {
        bytes +=
            sizeof(struct registrant_phys) + round_up(strlen(state->registrants[i].initiator), 8);
    }
    return (uint32_t)bytes;
}

uint32_t reservations_encode(const struct reservations *state, uint64_t volume_id,
                             uint8_t *ret_record) {
    struct reservations_phys *head = (struct reservations_phys *)(void *)ret_record;
    uint8_t *at = ret_record + sizeof(*head);
    *head = (struct reservations_phys){.registrants = state->count, .type = (uint8_t)state->type};
    for (uint32_t i = 0; i < state->count; i++) {
        const struct registrant *registrant = &state->registrants[i];
        size_t length = strlen(registrant->initiator);
        struct registrant_phys p = {.key = registrant->key,
                                    .port = registrant->port,
                                    .flags = registrant->holder ? REGISTRANT_HOLDS : 0,
                                    .initiator_bytes = (uint8_t)length};
        memcpy(at, &p, sizeof(p));
        at += sizeof(p);
        memset(at, 0, round_up(length, 8));
        memcpy(at, registrant->initiator, length);
        at += round_up(length, 8);
    }
    uint32_t bytes = (uint32_t)(at - ret_record);
    phys_seal(ret_record, PHYS_RESERVATIONS, RECORD_VERSION, bytes, volume_id);
    return bytes;
}

/* One registration at `at`; returns its length, 0 if it makes no sense. */
static uint32_t decode_registrant(struct reservations *state, const uint8_t *at, uint32_t left) {
    struct registrant_phys p;
    if (left < sizeof(p)) {
        return 0;
    }
    memcpy(&p, at, sizeof(p));
    uint32_t bytes = (uint32_t)(sizeof(p) + round_up(p.initiator_bytes, 8));
    if (p.key == 0 || p.port == 0 || p.initiator_bytes == 0 || bytes > left ||
        memchr(at + sizeof(p), 0, p.initiator_bytes) != NULL) {
        return 0;
    }
    struct registrant *registrant = &state->registrants[state->count];
    *registrant = (struct registrant){
        .key = p.key, .port = p.port, .holder = (p.flags & REGISTRANT_HOLDS) != 0};
    memcpy(registrant->initiator, at + sizeof(p), p.initiator_bytes);
    registrant->hash = initiator_hash(registrant->initiator);
    if (reservations_find(state, registrant->initiator, registrant->hash, p.port) >= 0) {
        return 0;
    }
    state->count++;
    return bytes;
}

int reservations_decode(const uint8_t *record, size_t room, uint64_t volume_id,
                        struct reservations **ret_state) {
    struct reservations_phys head;
    if (room < sizeof(head)) {
        return ERR_CORRUPT;
    }
    memcpy(&head, record, sizeof(head));
    if (head.header.type == 0 && head.header.length_bytes == 0) {
        *ret_state = reservations_copy(NULL, 0);
        return OK;
    }
    int error = phys_check(record, PHYS_RESERVATIONS, sizeof(head), room, volume_id);
    if (error != OK) {
        return error;
    }
    if (head.header.version != RECORD_VERSION) {
        return ERR_UNSUPPORTED;
    }
    if (head.registrants > REGISTRANTS_MAX ||
        (head.type != 0 && !reservation_type_is_valid(head.type))) {
        return ERR_CORRUPT;
    }
    struct reservations *state = reservations_copy(NULL, head.registrants);
    state->type = head.type;
    state->persists = true;
    uint32_t at = sizeof(head), bytes = 1, holders = 0;
    while (state->count < head.registrants && bytes != 0) {
        bytes = decode_registrant(state, record + at, head.header.length_bytes - at);
        at += bytes;
        holders += bytes != 0 && state->registrants[state->count - 1].holder;
    }
    /* One holds it, or all that are registered do, of whom there must be one. */
    bool held = reservation_type_is_of_all(head.type) ? holders == 0 && state->count > 0
                                                      : holders == (head.type != 0 ? 1u : 0u);
    if (bytes == 0 || at != head.header.length_bytes || !held) {
        mem_free(state);
        return ERR_CORRUPT;
    }
    *ret_state = state;
    return OK;
}

/* ---- changes ---- */

static void record_send(struct scsi_lun *lun, enum volume_op op, uint64_t bytes) {
    struct reservation_change *change = &lun->change;
    change->in_volume = true;
    change->iov = (struct iovec){change->record, bytes};
    change->request.client = lun->env;
    change->request.door = lun->door;
    change->request.volume_id = lun->info.id;
    change->request.op = op;
    change->request.length_bytes = bytes;
    change->request.iov = bytes != 0 ? &change->iov : NULL;
    change->request.iov_count = bytes != 0;
    change->request.owner = lun;
    volume_submit(&change->request);
}

static void tell(struct scsi_lun *lun, const struct registrant *registrant) {
    if (lun->removed || (registrant->tell == SENSE_NONE && !registrant->abort)) {
        return;
    }
    LIST_FOR_EACH_SAFE(it, &lun->target->nexuses) {
        struct scsi_nexus *nexus = CONTAINER_OF(it, struct scsi_nexus, in_target);
        if (nexus == lun->change.requester || nexus->initiator_hash != registrant->hash ||
            nexus->port.relative_id != registrant->port || !nexus_may_use(nexus, lun->number) ||
            strcmp(nexus->port.initiator_port, registrant->initiator) != 0) {
            continue;
        }
        if (registrant->abort) {
            scsi_abort_of(lun, nexus, lun->change.requester);
        }
        if (registrant->tell != SENSE_NONE) {
            ua_push(&nexus->attentions[lun->number], registrant->tell);
        }
    }
}

/* The changed copy becomes the state. */
static void change_commit(struct scsi_lun *lun) {
    struct reservations *old = lun->reservations;
    lun->reservations = lun->change.next;
    lun->change.next = NULL;
    for (uint32_t i = 0; i < old->count; i++) {
        tell(lun, &old->registrants[i]);
    }
    mem_free(old);
}

static void change_end(struct scsi_lun *lun) {
    struct scsi_task *task = lun->change.task;
    mem_free(lun->change.next);
    lun->change.next = NULL;
    lun->change.task = NULL;
    lun->change.requester = NULL;
    if (task != NULL) {
        scsi_task_end(task);
    }
}

/* What a change that could not be stored becomes: never something about the medium. */
static void fail_to_store(struct scsi_task *task, int error) {
    const struct scsi_error *entry = scsi_error_find(error);
    if (error == ERR_NO_SPACE || error == ERR_LIMIT) {
        scsi_fail(task, SENSE_NO_REGISTRATION_RESOURCES);
    } else if (entry->status != SCSI_CHECK_CONDITION) {
        scsi_fail_status(task, entry->status);
    } else {
        scsi_fail(task, entry->info == SCSI_INFO_NONE ? entry->write_code
                                                      : SENSE_INTERNAL_TARGET_FAILURE);
    }
}

static void change_next(struct scsi_lun *lun);

static void change_kept(struct volume_request *request) {
    struct scsi_lun *lun = request->owner;
    struct scsi_target *target = lun->target;
    scsi_lock(target);
    lun->change.in_volume = false;
    if (request->status == OK) {
        change_commit(lun);
    } else if (lun->change.task != NULL) {
        fail_to_store(lun->change.task, request->status);
    }
    change_end(lun);
    change_next(lun);
    scsi_lun_release(lun);
    scsi_unlock(target);
}

static void change_run(struct scsi_lun *lun, struct scsi_task *task) {
    struct reservation_change *change = &lun->change;
    change->task = task;
    change->requester = task->nexus;
    if (lun->removed) {
        scsi_fail(task, SENSE_LUN_NOT_SUPPORTED);
    } else {
        change->next = persistent_out(task);
    }
    if (change->next == NULL) {
        change_end(lun);
        return;
    }
    bool keeps = change->next->persists && change->next->count > 0;
    if (!keeps && !lun->reservations->persists) {
        change_commit(lun);
        change_end(lun);
        return;
    }
    uint64_t bytes = 0;
    if (keeps) {
        memset(change->record, 0, sizeof(change->record));
        bytes = round_up(reservations_encode(change->next, lun->info.id, change->record), 512);
    }
    change->request.done = change_kept;
    record_send(lun, VOLUME_KEEP, bytes);
}

static void change_next(struct scsi_lun *lun) {
    while (!lun->change.in_volume && !list_is_empty(&lun->change.waiting)) {
        struct list *node = list_pop(&lun->change.waiting);
        change_run(lun, CONTAINER_OF(node, struct scsi_task, in_waiting));
    }
}

void reservations_change(struct scsi_task *task) {
    list_append(&task->lun->change.waiting, &task->in_waiting);
    change_next(task->lun);
}

void reservations_task_gone(struct scsi_task *task) {
    if (task->lun != NULL && task->lun->change.task == task) {
        task->lun->change.task = NULL;
    }
}

void reservations_nexus_gone(struct scsi_lun *lun, const struct scsi_nexus *nexus) {
    if (lun->reserved_by == nexus) {
        lun->reserved_by = NULL;
    }
    if (lun->change.requester == nexus) {
        lun->change.requester = NULL;
    }
}

/* ---- the beginning and the end of a unit ---- */

static void recalled(struct volume_request *request) {
    struct scsi_lun *lun = request->owner;
    struct scsi_target *target = lun->target;
    struct reservations *state = NULL;
    scsi_lock(target);
    lun->change.in_volume = false;
    if (request->status == OK && reservations_decode(lun->change.record, sizeof(lun->change.record),
                                                     lun->info.id, &state) == OK) {
        mem_free(lun->reservations);
        lun->reservations = state;
        lun->readiness = UNIT_READY;
        provisioning_refresh(lun);
    } else {
        lun->readiness = UNIT_UNKNOWN;
    }
    scsi_lun_release(lun);
    scsi_unlock(target);
}

void reservations_init(struct scsi_lun *lun) {
    list_init(&lun->change.waiting);
    lun->reservations = reservations_copy(NULL, 0);
    lun->readiness = UNIT_RECALLING;
    lun->change.request.done = recalled;
    record_send(lun, VOLUME_RECALL, sizeof(lun->change.record));
}

void reservations_done(struct scsi_lun *lun) {
    ASSERT(!lun->change.in_volume && lun->change.next == NULL);
    mem_free(lun->reservations);
}

/* ---- RESERVE and RELEASE of SPC-2 ----
 *
 * Beside persistent reservations (SPC-4 §5.12.3): who holds one, or may use the unit by one, is
 * answered GOOD and nothing happens; while anything is registered everybody else is refused. */

static bool is_covered_by_persistent(const struct scsi_lun *lun, const struct scsi_nexus *nexus) {
    const struct reservations *state = lun->reservations;
    int index = reservations_find_nexus(state, nexus);
    return index >= 0 && state->type != 0 &&
           (state->registrants[index].holder || reservation_type_is_for_registrants(state->type));
}

static bool refused_by_registrations(struct scsi_task *task) {
    if (task->lun->reservations->count == 0) {
        return false;
    }
    if (!is_covered_by_persistent(task->lun, task->nexus)) {
        scsi_fail_status(task, SCSI_RESERVATION_CONFLICT);
    }
    return true;
}

void reserve_run(struct scsi_task *task) {
    if (!refused_by_registrations(task)) {
        task->lun->reserved_by = task->nexus;
    }
    scsi_task_end(task);
}

/* From anybody but the holder it does nothing, and is no error. */
void release_run(struct scsi_task *task) {
    if (!refused_by_registrations(task) && task->lun->reserved_by == task->nexus) {
        task->lun->reserved_by = NULL;
    }
    scsi_task_end(task);
}
