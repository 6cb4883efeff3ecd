// SPDX-License-Identifier: MPL-2.0
/* PERSISTENT RESERVE IN and OUT (SPC-4 §6.15, §6.16; the model is §5.12). reservation.c has the
 * state, its record in the pool, and when a change takes effect.
 *
 * A service action is a function over a `struct change`: it sees the old state, changes a copy of
 * it, and leaves marks in the old one about who is to be told. A registration is taken out by
 * setting its key to zero; the copy is packed at the end, so indices are the same in both until
 * then. */
#include <ctype.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

enum {
    REGISTER = 0,
    RESERVE = 1,
    RELEASE = 2,
    CLEAR = 3,
    PREEMPT = 4,
    PREEMPT_AND_ABORT = 5,
    REGISTER_AND_IGNORE = 6,
    REGISTER_AND_MOVE = 7,
};
enum { READ_KEYS = 0, READ_RESERVATION = 1, REPORT_CAPABILITIES = 2, READ_FULL_STATUS = 3 };
enum { LIST_BYTES = 24, SPEC_I_PT = 0x08, ALL_TG_PT = 0x04, APTPL = 0x01, UNREG = 0x02 };

/* ---- TransportID (SPC-4 §7.6.4.6): an iSCSI initiator port, "name,i,0xISID" ---- */

enum { TRANSPORT_ISCSI = 5, FORMAT_PORT = 0x40, TRANSPORT_ID_BYTES_MIN = 24 };

static uint32_t put_transport_id(uint8_t *bytes, const char *initiator) {
    uint32_t length = (uint32_t)round_up(strlen(initiator) + 1, 4);
    length = MAX(length, TRANSPORT_ID_BYTES_MIN - 4u);
    memset(bytes, 0, 4 + length);
    bytes[0] = TRANSPORT_ISCSI | (strstr(initiator, ",i,0x") != NULL ? FORMAT_PORT : 0);
    put_be16(bytes + 2, (uint16_t)length);
    memcpy(bytes + 4, initiator, strlen(initiator));
    return 4 + length;
}

/* Whether the text ends in ",i,0x" and the 12 hexadecimal digits of an ISID. */
static bool has_isid(const char *initiator) {
    size_t length = strlen(initiator);
    return length > 17 && memcmp(initiator + length - 17, ",i,0x", 5) == 0 &&
           strspn(initiator + length - 12, "0123456789abcdef") == 12;
}

/* Takes one from `room` bytes; returns its length, 0 when it is none we can know. A name without an
 * ISID (format 00b) means a device with all its ports, which cannot be registered. */
static uint32_t take_transport_id(const uint8_t *bytes, uint32_t room, char *ret_initiator) {
    if (room < TRANSPORT_ID_BYTES_MIN || bytes[0] != (TRANSPORT_ISCSI | FORMAT_PORT)) {
        return 0;
    }
    uint32_t length = get_be16(bytes + 2);
    if (length % 4 != 0 || length < TRANSPORT_ID_BYTES_MIN - 4 || length > room - 4) {
        return 0;
    }
    size_t text = strnlen((const char *)bytes + 4, length);
    if (text == length || text >= SCSI_NAME_BYTES_MAX) {
        return 0;
    }
    for (size_t i = 0; i <= text; i++) {
        ret_initiator[i] = (char)tolower(bytes[4 + i]);
    }
    return has_isid(ret_initiator) ? 4 + length : 0;
}

/* ---- PERSISTENT RESERVE IN ---- */

static uint32_t read_keys(const struct reservations *state, uint8_t *bytes) {
    for (uint32_t i = 0; i < state->count; i++) {
        put_be64(bytes + 8 + 8 * i, state->registrants[i].key);
    }
    return 8 + 8 * state->count;
}

static uint32_t read_reservation(const struct reservations *state, uint8_t *bytes) {
    if (state->type == 0) {
        return 8;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        if (state->registrants[i].holder) { /* of all registrants: the key is zero */
            put_be64(bytes + 8, state->registrants[i].key);
        }
    }
    bytes[21] = (uint8_t)state->type;
    return 24;
}

static uint32_t read_full_status(const struct reservations *state, uint8_t *bytes) {
    uint32_t at = 8;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct registrant *registrant = &state->registrants[i];
        put_be64(bytes + at, registrant->key);
        if (registrant->holder || reservation_type_is_of_all(state->type)) {
            bytes[at + 12] = 0x01; /* R_HOLDER */
            bytes[at + 13] = (uint8_t)state->type;
        }
        put_be16(bytes + at + 18, registrant->port);
        uint32_t length = put_transport_id(bytes + at + 24, registrant->initiator);
        put_be32(bytes + at + 20, length);
        at += 24 + length;
    }
    return at;
}

static uint32_t report_capabilities(const struct reservations *state, uint8_t *bytes) {
    put_be16(bytes, 8);
    /* CRH, SIP_C, ATP_C, PTPL_C: SPC-2 beside them, SPEC_I_PT, ALL_TG_PT, APTPL */
    bytes[2] = 0x10 | 0x08 | 0x04 | 0x01;
    /* TMV; ALLOW COMMANDS 001b: TEST UNIT READY is let through; PTPL_A */
    bytes[3] = (uint8_t)(0x80 | 0x10 | (state->persists ? 0x01 : 0));
    bytes[4] = 0x80 | 0x40 | 0x20 | 0x08 | 0x02;
    bytes[5] = 0x01;
    return 8;
}

/* While the unit is reserved the old way, the new way is refused to all (SPC-2 §5.5.1). */
static bool refused_by_reserve(struct scsi_task *task) {
    if (task->lun->reserved_by != NULL) {
        scsi_fail_status(task, SCSI_RESERVATION_CONFLICT);
    }
    return task->failed;
}

void persistent_in_run(struct scsi_task *task) {
    const struct reservations *state = task->lun->reservations;
    if (refused_by_reserve(task)) {
        scsi_task_end(task);
        return;
    }
    uint8_t *bytes = mem_alloc(8 + 16 + (size_t)state->count * (24 + 8 + SCSI_NAME_BYTES_MAX));
    uint32_t length = 0;
    switch (task->command->service_action) {
    case READ_KEYS:
        length = read_keys(state, bytes);
        break;
    case READ_RESERVATION:
        length = read_reservation(state, bytes);
        break;
    case READ_FULL_STATUS:
        length = read_full_status(state, bytes);
        break;
    default:
        length = report_capabilities(state, bytes);
    }
    if (task->command->service_action != REPORT_CAPABILITIES) {
        put_be32(bytes, state->generation);
        put_be32(bytes + 4, length - 8);
    }
    scsi_respond(task, bytes, length);
    mem_free(bytes);
}

/* ---- PERSISTENT RESERVE OUT ---- */

struct change {
    struct scsi_task *task;
    const uint8_t *list;
    struct reservations *old, *next;
    int self; /* the requester's registration; -1: none */
    uint64_t key, action_key;
    uint32_t type;
};

static void refuse_conflict(struct change *c) {
    scsi_fail_status(c->task, SCSI_RESERVATION_CONFLICT);
}

/* The rest of those that stay registered learn of it. */
static void tell_others(struct change *c, enum scsi_sense_code code) {
    for (uint32_t i = 0; i < c->old->count; i++) {
        if ((int)i != c->self && c->next->registrants[i].key != 0) {
            c->old->registrants[i].tell = code;
        }
    }
}

static void drop_reservation(struct reservations *state) {
    state->type = 0;
    for (uint32_t i = 0; i < state->count; i++) {
        state->registrants[i].holder = false;
    }
}

static bool anybody_is_left(const struct reservations *state) {
    for (uint32_t i = 0; i < state->count; i++) {
        if (state->registrants[i].key != 0) {
            return true;
        }
    }
    return false;
}

/* §5.12.11.2.2: a holder that unregisters releases what it holds. */
static void unregister(struct change *c, int index) {
    struct registrant *registrant = &c->next->registrants[index];
    registrant->key = 0;
    if (reservation_type_is_of_all(c->next->type)) {
        if (!anybody_is_left(c->next)) {
            drop_reservation(c->next);
        }
    } else if (registrant->holder) {
        if (reservation_type_is_for_registrants(c->next->type)) {
            tell_others(c, SENSE_RESERVATIONS_RELEASED);
        }
        drop_reservation(c->next);
    }
}

/* Makes or changes a registration; grows the copy. Returns its index, -1 when there is no room. */
static int enroll(struct change *c, const char *initiator, uint16_t port, uint64_t key) {
    uint64_t hash = initiator_hash(initiator);
    int index = reservations_find(c->next, initiator, hash, port);
    if (index < 0) {
        if (c->next->count == c->next->room) {
            struct reservations *larger = reservations_copy(c->next, 16);
            mem_free(c->next);
            c->next = larger;
        }
        index = (int)c->next->count++;
        struct registrant *fresh = &c->next->registrants[index];
        *fresh = (struct registrant){.hash = hash, .port = port};
        memcpy(fresh->initiator, initiator, strlen(initiator) + 1);
    }
    c->next->registrants[index].key = key;
    if (c->next->count > REGISTRANTS_MAX ||
        reservations_record_bytes(c->next) > VOLUME_RECORD_BYTES_MAX) {
        scsi_fail(c->task, SENSE_NO_REGISTRATION_RESOURCES);
        return -1;
    }
    return index;
}

/* The new key of one initiator port, through one target port or through all. */
static void register_port(struct change *c, const char *initiator, uint16_t port, bool all_ports) {
    uint16_t ports[SCSI_PORTS_MAX] = {port};
    uint32_t count = all_ports ? scsi_target_port_list(c->task->nexus->target, ports) : 1;
    for (uint32_t i = 0; i < count && !c->task->failed; i++) {
        if (c->action_key != 0) {
            (void)enroll(c, initiator, ports[i], c->action_key);
            continue;
        }
        int index = reservations_find(c->next, initiator, initiator_hash(initiator), ports[i]);
        if (index >= 0) {
            unregister(c, index);
        }
    }
}

/* The further initiator ports of SPEC_I_PT: all of them or none. */
static void register_listed(struct change *c, uint16_t port, bool all_ports) {
    uint32_t bytes = c->task->data_out_bytes;
    uint32_t length = bytes >= 28 ? get_be32(c->list + LIST_BYTES) : UINT32_MAX;
    if (length > bytes - 28) {
        scsi_fail(c->task, SENSE_PARAMETER_LIST_LENGTH);
        return;
    }
    for (uint32_t at = 28; at < 28 + length && !c->task->failed;) {
        char initiator[SCSI_NAME_BYTES_MAX];
        uint32_t used = take_transport_id(c->list + at, 28 + length - at, initiator);
        if (used == 0 ||
            reservations_find(c->next, initiator, initiator_hash(initiator), port) >= 0) {
            scsi_fail_parameter(c->task, at, NO_BIT); /* not an initiator port, or known already */
            return;
        }
        register_port(c, initiator, port, all_ports);
        at += used;
    }
}

static void register_action(struct change *c) {
    bool ignores = c->task->command->service_action == REGISTER_AND_IGNORE;
    bool spec_i_pt = (c->list[20] & SPEC_I_PT) != 0;
    bool all_ports = (c->list[20] & ALL_TG_PT) != 0;
    const struct scsi_port *port = &c->task->nexus->port;
    uint64_t held = c->self >= 0 ? c->old->registrants[c->self].key : 0;
    if (!ignores && c->key != held) {
        refuse_conflict(c);
        return;
    }
    if (spec_i_pt && (ignores || c->self >= 0)) {
        scsi_fail_parameter(c->task, 20, 3);
        return;
    }
    c->next->persists = (c->list[20] & APTPL) != 0;
    if (c->self < 0 && c->action_key == 0 && !spec_i_pt) {
        return; /* nothing to register, nothing to unregister */
    }
    register_port(c, port->initiator_port, port->relative_id, all_ports);
    if (spec_i_pt && !c->task->failed) {
        register_listed(c, port->relative_id, all_ports);
    }
    c->next->generation++;
}

static bool is_holder(const struct change *c) {
    return c->old->type != 0 &&
           (c->old->registrants[c->self].holder || reservation_type_is_of_all(c->old->type));
}

static void hold(struct change *c) {
    c->next->type = c->type;
    c->next->registrants[c->self].holder = !reservation_type_is_of_all(c->type);
}

static void reserve_action(struct change *c) {
    if (c->old->type == 0) {
        hold(c);
    } else if (!is_holder(c) || c->type != c->old->type) {
        refuse_conflict(c);
    }
}

static void release_action(struct change *c) {
    if (c->old->type == 0 || !is_holder(c)) {
        return;
    }
    if (c->type != c->old->type) {
        scsi_fail(c->task, SENSE_INVALID_RELEASE);
        return;
    }
    if (reservation_type_is_for_registrants(c->old->type)) {
        tell_others(c, SENSE_RESERVATIONS_RELEASED);
    }
    drop_reservation(c->next);
}

static void clear_action(struct change *c) {
    tell_others(c, SENSE_RESERVATIONS_PREEMPTED);
    drop_reservation(c->next);
    c->next->count = 0;
    c->next->generation++;
}

/* Takes out the registrations with the key (0: all), never the requester's own unless `own_too`.
 * Returns how many had it. */
static uint32_t remove_registrations(struct change *c, uint64_t key, bool own_too) {
    bool aborts = c->task->command->service_action == PREEMPT_AND_ABORT;
    uint32_t found = 0;
    for (uint32_t i = 0; i < c->old->count; i++) {
        struct registrant *registrant = &c->old->registrants[i];
        if (key != 0 && registrant->key != key) {
            continue;
        }
        found++;
        if ((int)i == c->self && !own_too) {
            continue;
        }
        c->next->registrants[i].key = 0;
        if ((int)i != c->self) {
            registrant->tell = SENSE_REGISTRATIONS_PREEMPTED;
            registrant->abort = aborts;
        }
    }
    return found;
}

/* §5.12.11.2.4, §5.12.11.2.5: whom the key names decides what is preempted. */
static void preempt_action(struct change *c) {
    uint32_t old_type = c->old->type;
    bool of_all = reservation_type_is_of_all(old_type);
    uint64_t holder_key = 0;
    for (uint32_t i = 0; i < c->old->count; i++) {
        holder_key = c->old->registrants[i].holder ? c->old->registrants[i].key : holder_key;
    }
    bool takes_reservation =
        old_type != 0 && (of_all ? c->action_key == 0 : c->action_key == holder_key);
    if (c->action_key == 0 && !takes_reservation) {
        scsi_fail_parameter(c->task, 8, NO_BIT);
        return;
    }
    uint32_t found = remove_registrations(c, c->action_key, !takes_reservation);
    if (found == 0) {
        refuse_conflict(c);
        return;
    }
    c->next->generation++;
    if (takes_reservation) {
        drop_reservation(c->next);
        hold(c);
        if (c->type != old_type) { /* those that stay must learn it; the others do anyway */
            tell_others(c, SENSE_RESERVATIONS_RELEASED);
        }
    } else if (!anybody_is_left(c->next)) {
        drop_reservation(c->next);
    }
}

static void move_action(struct change *c) {
    uint16_t port = get_be16(c->list + 18);
    uint32_t length = get_be32(c->list + 20);
    uint16_t ports[SCSI_PORTS_MAX];
    uint32_t count = scsi_target_port_list(c->task->nexus->target, ports);
    char initiator[SCSI_NAME_BYTES_MAX];
    bool known = false;
    for (uint32_t i = 0; i < count; i++) {
        known |= ports[i] == port;
    }
    if (c->old->type == 0 || !c->old->registrants[c->self].holder) {
        refuse_conflict(c); /* nothing to move, or of all registrants, or not ours */
        return;
    }
    if (c->action_key == 0 || !known) {
        scsi_fail_parameter(c->task, c->action_key == 0 ? 8 : 18, NO_BIT);
        return;
    }
    if (length != c->task->data_out_bytes - LIST_BYTES) {
        scsi_fail(c->task, SENSE_PARAMETER_LIST_LENGTH);
        return;
    }
    if (take_transport_id(c->list + LIST_BYTES, length, initiator) != length) {
        scsi_fail_parameter(c->task, LIST_BYTES, NO_BIT);
        return;
    }
    int to = enroll(c, initiator, port, c->action_key);
    if (to < 0) {
        return;
    }
    if (to == c->self) {
        scsi_fail_parameter(c->task, LIST_BYTES, NO_BIT); /* it moves nowhere */
        return;
    }
    c->next->registrants[c->self].holder = false;
    c->next->registrants[to].holder = true;
    if (c->list[17] & UNREG) {
        c->next->registrants[c->self].key = 0;
    }
    c->next->persists = (c->list[17] & APTPL) != 0;
    c->next->generation++;
}

static void pack(struct reservations *state) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < state->count; i++) {
        if (state->registrants[i].key != 0) {
            state->registrants[kept++] = state->registrants[i];
        }
    }
    state->count = kept;
}

static const struct {
    void (*run)(struct change *c);
    bool by_registered; /* the requester must be registered, with the key it gives */
    bool has_type;
} actions[] = {
    [REGISTER] = {register_action, false, false},
    [RESERVE] = {reserve_action, true, true},
    [RELEASE] = {release_action, true, true},
    [CLEAR] = {clear_action, true, false},
    [PREEMPT] = {preempt_action, true, true},
    [PREEMPT_AND_ABORT] = {preempt_action, true, true},
    [REGISTER_AND_IGNORE] = {register_action, false, false},
    [REGISTER_AND_MOVE] = {move_action, true, false},
};

static bool list_is_good(struct scsi_task *task) {
    uint32_t action = task->command->service_action;
    uint64_t length = task->transfer_bytes;
    bool longer =
        action == REGISTER_AND_MOVE || (action == REGISTER && task->data_out_bytes >= LIST_BYTES &&
                                        (task->data_out[20] & SPEC_I_PT) != 0);
    if (task->data_out_bytes != length || length < LIST_BYTES || (length > LIST_BYTES && !longer)) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
    }
    return !task->failed;
}

struct reservations *persistent_out(struct scsi_task *task) {
    uint32_t action = task->command->service_action;
    struct reservations *old = task->lun->reservations;
    if (refused_by_reserve(task)) {
        return NULL;
    }
    struct change c = {.task = task,
                       .list = task->data_out,
                       .old = old,
                       .self = reservations_find_nexus(old, task->nexus),
                       .key = get_be64(task->data_out),
                       .action_key = get_be64(task->data_out + 8),
                       .type = task->cdb[2] & 15};
    if (actions[action].by_registered && (c.self < 0 || old->registrants[c.self].key != c.key)) {
        refuse_conflict(&c);
        return NULL;
    }
    for (uint32_t i = 0; i < old->count; i++) {
        old->registrants[i].tell = SENSE_NONE;
        old->registrants[i].abort = false;
    }
    c.next = reservations_copy(old, 1);
    actions[action].run(&c);
    pack(c.next);
    if (task->failed) {
        mem_free(c.next);
        return NULL;
    }
    return c.next;
}

void persistent_out_check(struct scsi_task *task) {
    if (!actions[task->command->service_action].has_type) {
        return;
    }
    if (task->cdb[2] >> 4 != 0) {
        scsi_fail_cdb(task, 2, 7); /* only the whole unit can be reserved */
    } else if (!reservation_type_is_valid(task->cdb[2] & 15)) {
        scsi_fail_cdb(task, 2, 3);
    }
}

void persistent_out_run(struct scsi_task *task) {
    if (list_is_good(task)) {
        reservations_change(task);
    } else {
        scsi_task_end(task);
    }
}
