// SPDX-License-Identifier: MPL-2.0
/* Reservations, old and persistent: SPC-4 §5.12, driven by CDBs. */
#include "scsi_world.h"

#define A "iqn.2025-01.org.example:a,i,0x800000000001"
#define B "iqn.2025-01.org.example:b,i,0x800000000002"
#define C "iqn.2025-01.org.example:c,i,0x800000000003"

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, IGNORE, MOVE };
enum { APTPL = 1, ALL_TG_PT = 4, SPEC_I_PT = 8 };
enum { WE = 1, EA = 3, WERO = 5, EARO = 6, WEAR = 7, EAAR = 8 };

/* ---- how they are sent ---- */

static const uint8_t *prout_cdb(uint32_t action, uint32_t type, uint32_t bytes) {
    static uint8_t cdb[10];
    memset(cdb, 0, sizeof(cdb));
    cdb[0] = 0x5f;
    cdb[1] = (uint8_t)action;
    cdb[2] = (uint8_t)type;
    put_be32(cdb + 5, bytes);
    return cdb;
}

/* The status, or the sense code where there is one. */
static uint32_t outcome(uint32_t code) {
    return code != 0 ? code : last.status;
}

static uint32_t prout(struct world *w, struct scsi_nexus *nexus, uint32_t action, uint32_t type,
                      uint64_t key, uint64_t action_key, uint8_t flags) {
    uint8_t list[24] = {0};
    put_be64(list, key);
    put_be64(list + 8, action_key);
    list[20] = flags;
    return outcome(run_as(w, nexus, prout_cdb(action, type, 24), 10, list, 24, 0));
}

static void prin(struct world *w, uint32_t action) {
    const uint8_t cdb[10] = {0x5e, (uint8_t)action, 0, 0, 0, 0, 0, 0xff, 0xff};
    assert_int_equal(run_as(w, w->a, cdb, 10, NULL, 0, 0xffff), 0);
    assert_int_equal(last.status, SCSI_GOOD);
}

static uint32_t key_count(struct world *w) {
    prin(w, 0);
    return get_be32(answer + 4) / 8;
}

static uint32_t generation(struct world *w) {
    prin(w, 0);
    return get_be32(answer);
}

/* Type of the reservation there is, with its key. */
static uint32_t held(struct world *w, uint64_t *ret_key) {
    prin(w, 1);
    *ret_key = get_be64(answer + 8);
    return get_be32(answer + 4) == 0 ? 0 : answer[21];
}

static void expect_held(struct world *w, uint32_t type, uint64_t key) {
    uint64_t is = 0;
    assert_int_equal(held(w, &is), type);
    if (type != 0) {
        assert_int_equal(is, key);
    }
}

static uint32_t write_as(struct world *w, struct scsi_nexus *nexus) {
    static const uint8_t data[512];
    return outcome(run_as(w, nexus, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0), data, 512, 0));
}

static uint32_t read_as(struct world *w, struct scsi_nexus *nexus) {
    return outcome(run_as(w, nexus, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), NULL, 0, 512));
}

static void told_once(struct world *w, struct scsi_nexus *nexus, uint32_t code) {
    assert_int_equal(test_unit_ready(w, nexus), code);
    assert_int_equal(test_unit_ready(w, nexus), 0);
}

/* ---- registering ---- */

static void registration(void **state) {
    struct world *w = *state;
    assert_int_equal(generation(w), 0);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 5, 1, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 0, 0), SCSI_GOOD);
    assert_int_equal(key_count(w), 0);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 0xa1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 0xa2, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0xa1, 0xa2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, IGNORE, 0, 77, 0xb1, 0), SCSI_GOOD);
    assert_int_equal(generation(w), 3);
    assert_int_equal(key_count(w), 2);
    assert_int_equal(get_be64(answer + 8), 0xa2);
    assert_int_equal(get_be64(answer + 16), 0xb1);
    prin(w, 3);
    assert_int_equal(get_be32(answer + 4), 2 * (24 + 48));
    assert_int_equal(get_be16(answer + 8 + 18), 1);
    assert_int_equal(answer[8 + 12], 0);
    assert_int_equal(answer[8 + 24], 0x45);
    assert_string_equal((char *)answer + 8 + 28, A);
    prin(w, 2);
    assert_memory_equal(answer, "\x00\x08\x1d\x90\xea\x01\x00\x00", 8);
    /* cut to the allocation length, the true length stays */
    assert_int_equal(run_in(w, CDB(0x5e, 0, 0, 0, 0, 0, 0, 0, 12, 0), 64), 0);
    assert_int_equal(last.transfer_bytes, 12);
    assert_int_equal(get_be32(answer + 4), 16);
    /* unregistered by a key of zero */
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0xa2, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, IGNORE, 0, 0, 0, 0), SCSI_GOOD);
    assert_int_equal(key_count(w), 0);
    assert_int_equal(run_in(w, CDB(0x5e, 4, 0, 0, 0, 0, 0, 0, 64, 0), 64),
                     SENSE_INVALID_FIELD_IN_CDB);
}

/* A session that ends takes no registration with it, and one of the same names finds it. */
static void registrations_belong_to_names(void **state) {
    struct world *w = *state;
    struct scsi_nexus *c = nexus_open(w, C, 1);
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(prout(w, c, REGISTER, 0, 0, 0xc1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, c, RESERVE, EA, 0xc1, 0, 0), SCSI_GOOD);
    scsi_nexus_close(c);
    assert_int_equal(read_as(w, w->a), SCSI_RESERVATION_CONFLICT);
    c = nexus_open(w, C, 2); /* through another port it is somebody else */
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(read_as(w, c), SCSI_RESERVATION_CONFLICT);
    scsi_nexus_close(c);
    c = nexus_open(w, C, 1);
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(read_as(w, c), SCSI_GOOD);
    assert_int_equal(prout(w, c, RELEASE, EA, 0xc1, 0, 0), SCSI_GOOD);
    scsi_nexus_close(c);
}

static void reserving_and_releasing(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, RESERVE, WE, 0, 0, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, WE, 9, 0, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, RESERVE, 2, 1, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(prout(w, w->a, RESERVE, 0x10 | WE, 1, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    uint32_t before = generation(w);
    assert_int_equal(prout(w, w->a, RESERVE, WE, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, WE, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, EA, 1, 0, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->b, RESERVE, WE, 2, 0, 0), SCSI_RESERVATION_CONFLICT);
    expect_held(w, WE, 1);
    assert_int_equal(prout(w, w->b, RELEASE, WE, 2, 0, 0), SCSI_GOOD);
    expect_held(w, WE, 1);
    assert_int_equal(prout(w, w->a, RELEASE, EA, 1, 0, 0), SENSE_INVALID_RELEASE);
    assert_int_equal(prout(w, w->a, RELEASE, WE, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RELEASE, WE, 1, 0, 0), SCSI_GOOD);
    expect_held(w, 0, 0);
    assert_int_equal(generation(w), before); /* neither counts */
    assert_int_equal(test_unit_ready(w, w->b), 0);
    /* registrants are told when what they shared is released */
    assert_int_equal(prout(w, w->a, RESERVE, WERO, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RELEASE, WERO, 1, 0, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_RESERVATIONS_RELEASED);
    assert_int_equal(prout(w, w->a, RESERVE, EARO, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 1, 0, 0), SCSI_GOOD); /* unregistering releases */
    told_once(w, w->b, SENSE_RESERVATIONS_RELEASED);
    expect_held(w, 0, 0);
    /* of all registrants: every one holds it, and the last one to go releases it */
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, WEAR, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, RESERVE, WEAR, 2, 0, 0), SCSI_GOOD);
    expect_held(w, WEAR, 0);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 1, 0, 0), SCSI_GOOD);
    expect_held(w, WEAR, 0);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 2, 0, 0), SCSI_GOOD);
    expect_held(w, 0, 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
}

/* ---- who may do what ---- */

/* SPC-4 table 67, SBC-3 table 14, and SPC-2 table 10 for RESERVE: commands that are let through.
 * W: under write exclusive; E: under exclusive access; R: under RESERVE of another. */
enum { W = 1, E = 2, R = 4 };
static const struct {
    uint8_t opcode, service_action, let_through;
} let[] = {
    {0x00, 0, W | E},     /* TEST UNIT READY */
    {0x03, 0, W | E | R}, /* REQUEST SENSE */
    {0x08, 0, W},         /* READ(6) */
    {0x12, 0, W | E | R}, /* INQUIRY */
    {0x16, 0, W | E},     /* RESERVE: has rules of its own */
    {0x17, 0, W | E | R}, /* RELEASE */
    {0x1a, 0, W},         /* MODE SENSE */
    {0x1e, 0, W | E},     /* PREVENT ALLOW that allows */
    {0x25, 0, W | E | R}, /* READ CAPACITY */
    {0x34, 0, W},
    {0x37, 0, W},
    {0x90, 0, W},
    {0xb7, 0, W}, /* PRE-FETCH, READ DEFECT DATA */
    {0x84, 0, W},
    {0x84, 3, W},
    {0x84, 4, W},            /* RECEIVE COPY RESULTS */
    {0x4d, 0, W | E | R},    /* LOG SENSE */
    {0xa3, 0x0a, W | E | R}, /* REPORT TARGET PORT GROUPS */
    {0x28, 0, W},
    {0x2f, 0, W},
    {0x56, 0, W | E},
    {0x57, 0, W | E | R},
    {0x5a, 0, W},
    {0x5e, 0, W | E | R},
    {0x5e, 1, W | E | R},
    {0x5e, 2, W | E | R},
    {0x5e, 3, W | E | R},
    {0x5f, 0, W | E | R},
    {0x5f, 1, W | E | R},
    {0x5f, 2, W | E | R},
    {0x5f, 3, W | E | R},
    {0x5f, 4, W | E | R},
    {0x5f, 5, W | E | R},
    {0x5f, 6, W | E | R},
    {0x5f, 7, W | E | R},
    {0x88, 0, W},
    {0x8f, 0, W},
    {0x9e, 0x10, W | E | R}, /* READ CAPACITY(16) */
    {0x9e, 0x12, W},         /* GET LBA STATUS */
    {0xa0, 0, W | E | R},    /* REPORT LUNS */
    {0xa3, 0x0c, W},
    {0xa3, 0x0d, W},
    {0xa8, 0, W},
    {0xaf, 0, W},
};

static uint8_t let_through(const struct scsi_command *command) {
    for (size_t i = 0; i < sizeof(let) / sizeof(let[0]); i++) {
        if (let[i].opcode == command->opcode && let[i].service_action == command->service_action) {
            return let[i].let_through;
        }
    }
    return 0;
}

/* Begins every command of the table as `nexus`, and compares with whether it is let through. */
static void try_all(struct world *w, struct scsi_nexus *nexus, uint8_t mask, bool everything) {
    for (uint32_t i = 0; i < scsi_command_count; i++) {
        const struct scsi_command *c = &scsi_commands[i];
        struct call call = {.task = {.nexus = nexus, .lun_field = {0, 3}}};
        struct scsi_task *task = &call.task;
        task->cdb[0] = c->opcode;
        task->cdb[1] = (uint8_t)c->service_action;
        task->owner = &call;
        task->done = on_done;
        task->dropped = on_dropped;
        bool begun = scsi_task_begin(task);
        bool refused = !begun && task->status == SCSI_RESERVATION_CONFLICT;
        bool should = !everything && (let_through(c) & mask) == 0;
        if (refused != should) {
            fail_msg("%s is %s", c->name, refused ? "refused" : "let through");
        }
        if (begun) {
            scsi_task_abort(task);
            fake_env_settle(&w->fake);
        }
    }
}

static void every_command_against_every_type(void **state) {
    struct world *w = *state;
    static const uint8_t types[] = {WE, EA, WERO, EARO, WEAR, EAAR};
    struct scsi_nexus *c = nexus_open(w, C, 1);
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, c, REGISTER, 0, 0, 3, 0), SCSI_GOOD);
    for (size_t i = 0; i < sizeof(types); i++) {
        uint8_t mask = types[i] % 2 == 1 && types[i] != EA ? W : E;
        bool shared = types[i] >= WERO;
        assert_int_equal(prout(w, w->a, RESERVE, types[i], 1, 0, 0), SCSI_GOOD);
        try_all(w, w->a, mask, true);
        try_all(w, w->b, mask, false);
        try_all(w, c, mask, shared);
        assert_int_equal(prout(w, w->a, RELEASE, types[i], 1, 0, 0), SCSI_GOOD);
        if (shared) {
            told_once(w, c, SENSE_RESERVATIONS_RELEASED);
        }
    }
    assert_int_equal(prout(w, w->a, CLEAR, 0, 1, 0, 0), SCSI_GOOD);
    told_once(w, c, SENSE_RESERVATIONS_PREEMPTED);
    assert_int_equal(run(w, CDB(0x16, 0, 0, 0, 0, 0), NULL, 0, 0), 0);
    try_all(w, w->a, R, true);
    try_all(w, w->b, R, false);
    scsi_nexus_close(c);
}

static void start_and_allow_have_a_harmless_form(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, EA, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(outcome(run_as(w, w->b, CDB(0x1b, 0, 0, 0, 1, 0), NULL, 0, 0)), SCSI_GOOD);
    assert_int_equal(outcome(run_as(w, w->b, CDB(0x1b, 0, 0, 0, 0, 0), NULL, 0, 0)),
                     SCSI_RESERVATION_CONFLICT);
    assert_int_equal(outcome(run_as(w, w->b, CDB(0x1e, 0, 0, 0, 0, 0), NULL, 0, 0)), SCSI_GOOD);
    assert_int_equal(outcome(run_as(w, w->b, CDB(0x1e, 0, 0, 0, 1, 0), NULL, 0, 0)),
                     SCSI_RESERVATION_CONFLICT);
}

/* ---- preempting ---- */

static void preempting(void **state) {
    struct world *w = *state;
    struct scsi_nexus *c = nexus_open(w, C, 1);
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, c, REGISTER, 0, 0, 3, 0), SCSI_GOOD);
    /* nothing reserved: registrations go */
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 99, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 0, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 2, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_REGISTRATIONS_PREEMPTED);
    assert_int_equal(test_unit_ready(w, c), 0);
    expect_held(w, 0, 0);
    assert_int_equal(key_count(w), 2);
    /* the holder's key: the reservation changes hands, and its type */
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, RESERVE, WERO, 2, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, PREEMPT, EA, 1, 2, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_REGISTRATIONS_PREEMPTED);
    told_once(w, c, SENSE_RESERVATIONS_RELEASED);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    expect_held(w, EA, 1);
    assert_int_equal(write_as(w, w->b), SCSI_RESERVATION_CONFLICT);
    /* another key: only that registration */
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 3, 0), SCSI_GOOD);
    told_once(w, c, SENSE_REGISTRATIONS_PREEMPTED);
    expect_held(w, EA, 1);
    /* one's own: a new type; the same type tells nobody */
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 1, 0), SCSI_GOOD);
    expect_held(w, WE, 1);
    assert_int_equal(key_count(w), 1);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    assert_int_equal(prout(w, w->a, CLEAR, 0, 1, 0, 0), SCSI_GOOD);
    expect_held(w, 0, 0);
    scsi_nexus_close(c);
}

static void preempting_all_registrants(void **state) {
    struct world *w = *state;
    struct scsi_nexus *c = nexus_open(w, C, 1);
    assert_int_equal(test_unit_ready(w, c), SENSE_POWER_ON);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, c, REGISTER, 0, 0, 3, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, RESERVE, WEAR, 2, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, PREEMPT, WE, 1, 2, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_REGISTRATIONS_PREEMPTED);
    expect_held(w, WEAR, 0);
    assert_int_equal(prout(w, w->a, PREEMPT, EARO, 1, 0, 0), SCSI_GOOD); /* key 0: all others */
    told_once(w, c, SENSE_REGISTRATIONS_PREEMPTED);
    expect_held(w, EARO, 1);
    assert_int_equal(key_count(w), 1);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    scsi_nexus_close(c);
}

static void preempt_and_abort(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, RESERVE, WE, 2, 0, 0), SCSI_GOOD);
    w->volume.hold = true;
    static const uint8_t data[512];
    struct call *b = start(w, w->b, 3, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0), data, 512, 0);
    struct call *a = start(w, w->a, 3, CDB(0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0), NULL, 0, 512);
    assert_int_equal(prout(w, w->a, PREEMPT_ABORT, WE, 1, 2, 0), SCSI_GOOD);
    assert_true(b->dropped && !a->dropped);
    /* one for the commands, one for the registration, and no more */
    assert_int_equal(test_unit_ready(w, w->b), SENSE_COMMANDS_CLEARED);
    told_once(w, w->b, SENSE_REGISTRATIONS_PREEMPTED);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_int_equal(a->task.status, SCSI_GOOD);
    call_free(a);
    call_free(b);
    expect_held(w, WE, 1);
    /* without commands to abort there is no word of them */
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, PREEMPT_ABORT, WE, 1, 2, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_REGISTRATIONS_PREEMPTED);
}

/* ---- lists with transport identifiers ---- */

static uint32_t put_id(uint8_t *bytes, const char *name) {
    uint32_t length = (uint32_t)(strlen(name) / 4 + 1) * 4;
    memset(bytes, 0, 4 + length);
    bytes[0] = 0x45;
    put_be16(bytes + 2, (uint16_t)length);
    memcpy(bytes + 4, name, strlen(name));
    return 4 + length;
}

static uint32_t move(struct world *w, struct scsi_nexus *nexus, uint64_t key, uint64_t new_key,
                     uint16_t port, const char *to, uint8_t flags) {
    uint8_t list[24 + 256] = {0};
    put_be64(list, key);
    put_be64(list + 8, new_key);
    list[17] = flags;
    put_be16(list + 18, port);
    uint32_t length = put_id(list + 24, to);
    put_be32(list + 20, length);
    return outcome(run_as(w, nexus, prout_cdb(MOVE, 0, 24 + length), 10, list, 24 + length, 0));
}

static void register_and_move(void **state) {
    struct world *w = *state;
    assert_int_equal(move(w, w->a, 0, 2, 1, B, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(move(w, w->a, 1, 2, 1, B, 0), SCSI_RESERVATION_CONFLICT); /* holds nothing */
    assert_int_equal(prout(w, w->a, RESERVE, WE, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(move(w, w->a, 1, 0, 1, B, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(move(w, w->a, 1, 2, 9, B, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(move(w, w->a, 1, 2, 1, A, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(move(w, w->a, 1, 2, 1, "iqn.x", 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(move(w, w->a, 1, 2, 1, B, 0), SCSI_GOOD);
    expect_held(w, WE, 2);
    assert_int_equal(key_count(w), 2);
    assert_int_equal(write_as(w, w->a), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(write_as(w, w->b), SCSI_GOOD);
    /* back, taking leave; in capitals, which mean the same */
    assert_int_equal(move(w, w->b, 2, 5, 1, "IQN.2025-01.org.example:A,i,0x800000000001", 2),
                     SCSI_GOOD);
    expect_held(w, WE, 5);
    assert_int_equal(key_count(w), 1);
    assert_int_equal(prout(w, w->a, CLEAR, 0, 5, 0, 0), SCSI_GOOD);
    assert_int_equal(test_unit_ready(w, w->b), 0);
}

static uint32_t register_also(struct world *w, uint8_t flags, const char *const *names,
                              uint32_t count) {
    static uint8_t list[SCSI_PARAMETER_BYTES_MAX];
    memset(list, 0, 28);
    put_be64(list + 8, 7);
    list[20] = (uint8_t)(SPEC_I_PT | flags);
    uint32_t at = 28;
    for (uint32_t i = 0; i < count; i++) {
        at += put_id(list + at, names[i]);
    }
    put_be32(list + 24, at - 28);
    return outcome(run_as(w, w->a, prout_cdb(REGISTER, 0, at), 10, list, at, 0));
}

static void registering_for_others(void **state) {
    struct world *w = *state;
    const char *names[] = {B, C};
    const char *bad[] = {B, "iqn.2025-01.org.example:c"};
    const char *twice[] = {B, B};
    assert_int_equal(register_also(w, 0, bad, 2), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(register_also(w, 0, twice, 2), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(key_count(w), 0);
    assert_int_equal(register_also(w, 0, names, 2), SCSI_GOOD);
    assert_int_equal(key_count(w), 3);
    assert_int_equal(prout(w, w->b, RESERVE, EA, 7, 0, 0), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, CLEAR, 0, 7, 0, 0), SCSI_GOOD);
    told_once(w, w->a, SENSE_RESERVATIONS_PREEMPTED);
    /* through all target ports */
    scsi_target_set_ports(w->target, (uint16_t[]){1, 2, 5}, 3);
    assert_int_equal(register_also(w, ALL_TG_PT, names, 1), SCSI_GOOD);
    assert_int_equal(key_count(w), 6);
    struct scsi_nexus *second = nexus_open(w, A, 5);
    assert_int_equal(test_unit_ready(w, second), SENSE_POWER_ON);
    assert_int_equal(prout(w, second, RESERVE, WE, 7, 0, 0), SCSI_GOOD);
    assert_int_equal(write_as(w, w->a), SCSI_RESERVATION_CONFLICT); /* the other port holds it */
    assert_int_equal(prout(w, w->a, IGNORE, 0, 0, 0, ALL_TG_PT), SCSI_GOOD);
    assert_int_equal(key_count(w), 3);
    expect_held(w, 0, 0);
    scsi_nexus_close(second);
}

static void no_more_than_there_is_room_for(void **state) {
    struct world *w = *state;
    char initiator[SCSI_NAME_BYTES_MAX];
    uint32_t count = 0, result = SCSI_GOOD;
    for (; count < 1000; count++) {
        snprintf(initiator, sizeof(initiator), "iqn.2025-01.org.example:%u,i,0x800000000001",
                 count);
        struct scsi_nexus *nexus = nexus_open(w, initiator, 1);
        assert_int_equal(test_unit_ready(w, nexus), SENSE_POWER_ON);
        result = prout(w, nexus, REGISTER, 0, 0, count + 1, APTPL);
        scsi_nexus_close(nexus);
        if (result != SCSI_GOOD) {
            break;
        }
    }
    assert_int_equal(result, SENSE_NO_REGISTRATION_RESOURCES);
    assert_in_range(count, 200, REGISTRANTS_MAX);
    assert_int_equal(key_count(w), count);
    prin(w, 3); /* all of them fit the answer */
    assert_int_equal(get_be32(answer + 4) + 8, last.transfer_bytes);
}

/* ---- what outlives a power cut ---- */

/* The unit as another process would find it. */
static void restart(struct world *w) {
    scsi_nexus_close(w->a);
    scsi_nexus_close(w->b);
    scsi_target_free(w->target);
    fake_env_settle(&w->fake);
    w->target = scsi_target_new(&w->fake.env);
    assert_int_equal(scsi_lun_add(w->target, 3, &w->volume.door, &w->volume.info, NULL), OK);
    w->a = nexus_open(w, A, 1);
    w->b = nexus_open(w, B, 1);
    assert_int_equal(run_as(w, w->a, CDB(0x12, 0, 0, 0, 96, 0), NULL, 0, 96), 0);
    fake_env_settle(&w->fake);
}

static void persistence(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(w->volume.counts[VOLUME_KEEP], 0);
    restart(w);
    clear_attentions(w);
    assert_int_equal(key_count(w), 0);

    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, APTPL), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, APTPL), SCSI_GOOD);
    assert_int_equal(prout(w, w->b, RESERVE, EARO, 2, 0, 0), SCSI_GOOD);
    assert_int_equal(w->volume.counts[VOLUME_KEEP], 3);
    restart(w);
    clear_attentions(w);
    assert_int_equal(key_count(w), 2);
    assert_int_equal(generation(w), 0);
    expect_held(w, EARO, 2);
    prin(w, 2);
    assert_int_equal(answer[3] & 1, 1);
    assert_int_equal(prout(w, w->a, PREEMPT, WEAR, 1, 2, 0), SCSI_GOOD);
    restart(w);
    clear_attentions(w);
    expect_held(w, WEAR, 0);
    assert_int_equal(key_count(w), 1);
    /* given up again: nothing comes back */
    assert_int_equal(prout(w, w->a, IGNORE, 0, 0, 9, 0), SCSI_GOOD);
    restart(w);
    clear_attentions(w);
    assert_int_equal(key_count(w), 0);
}

/* Nobody sees a change before it is durable, and one that cannot be stored is none. */
static void changes_are_durable_first(void **state) {
    struct world *w = *state;
    uint8_t list[24] = {0};
    list[15] = 1;
    list[20] = APTPL;
    w->volume.hold = true;
    struct call *first = start(w, w->a, 3, prout_cdb(REGISTER, 0, 24), 10, list, 24, 0);
    struct call *second = start(w, w->b, 3, prout_cdb(REGISTER, 0, 24), 10, list, 24, 0);
    assert_true(!first->done && !second->done);
    assert_int_equal(key_count(w), 0);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_true(first->done && second->done);
    assert_int_equal(key_count(w), 2);
    call_free(first);
    call_free(second);

    w->volume.fail_op = VOLUME_KEEP;
    static const struct {
        int error;
        uint32_t outcome;
    } failures[] = {{ERR_NO_SPACE, SENSE_NO_REGISTRATION_RESOURCES},
                    {ERR_LIMIT, SENSE_NO_REGISTRATION_RESOURCES},
                    {ERR_IO, SENSE_INTERNAL_TARGET_FAILURE},
                    {ERR_SHUTDOWN, SENSE_NOT_READY_CAUSE_UNKNOWN},
                    {ERR_TIMEOUT, SCSI_BUSY}};
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        w->volume.fail_status = failures[i].error;
        assert_int_equal(prout(w, w->a, CLEAR, 0, 1, 0, 0), failures[i].outcome);
        assert_int_equal(key_count(w), 2);
        assert_int_equal(test_unit_ready(w, w->b), 0);
    }
    w->volume.fail_status = OK;

    /* One that is aborted meanwhile takes effect; the next one waits for it. */
    w->volume.hold = true;
    list[7] = 1;
    first = start(w, w->a, 3, prout_cdb(CLEAR, 0, 24), 10, list, 24, 0);
    second = start(w, w->b, 3, prout_cdb(RESERVE, WE, 24), 10, list, 24, 0);
    struct call *third = start(w, w->b, 3, prout_cdb(RESERVE, WE, 24), 10, list, 24, 0);
    scsi_task_abort(&first->task);
    scsi_task_abort(&third->task);
    fake_env_settle(&w->fake);
    assert_true(first->done && third->done && !second->done);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_int_equal(second->task.status, SCSI_RESERVATION_CONFLICT); /* it was cleared */
    told_once(w, w->b, SENSE_RESERVATIONS_PREEMPTED);
    call_free(first);
    call_free(second);
    call_free(third);
}

static void a_unit_may_go_in_the_middle(void **state) {
    struct world *w = *state;
    uint8_t list[24] = {0};
    list[15] = 1;
    list[20] = APTPL;
    w->volume.hold = true;
    struct call *first = start(w, w->a, 3, prout_cdb(REGISTER, 0, 24), 10, list, 24, 0);
    struct call *second = start(w, w->b, 3, prout_cdb(REGISTER, 0, 24), 10, list, 24, 0);
    assert_int_equal(scsi_lun_remove(w->target, 3, NULL), OK);
    assert_int_equal(scsi_target_outstanding(w->target), 3);
    scsi_nexus_close(w->a);
    w->a = nexus_open(w, A, 1);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_true(first->dropped && first->done && second->done);
    assert_int_equal(sense_code(&second->task), SENSE_LUN_NOT_SUPPORTED);
    assert_int_equal(scsi_target_outstanding(w->target), 0);
    call_free(first);
    call_free(second);
}

/* Unknown reservations are not guessed. */
static void a_bad_record_stops_the_unit(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, APTPL), SCSI_GOOD);
    assert_int_equal(prout(w, w->a, RESERVE, WE, 1, 0, 0), SCSI_GOOD);
    w->volume.record[30] ^= 1;
    restart(w);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_NOT_READY_INTERVENTION);
    assert_int_equal(read_as(w, w->a), SENSE_NOT_READY_INTERVENTION);
    assert_int_equal(run_in(w, CDB(0x12, 0, 0, 0, 96, 0), 96), 0);
    w->volume.record[30] ^= 1;
    w->volume.fail_op = VOLUME_RECALL;
    w->volume.fail_status = ERR_IO;
    restart(w);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_NOT_READY_INTERVENTION);
    w->volume.fail_status = OK;
    restart(w);
    clear_attentions(w);
    expect_held(w, WE, 1);
    /* until it has been read the unit is busy */
    w->volume.hold = true;
    restart(w);
    assert_int_equal(read_as(w, w->a), SCSI_BUSY);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    clear_attentions(w);
    expect_held(w, WE, 1);
}

static void records_are_validated(void **state) {
    (void)state;
    struct reservations *one = reservations_copy(NULL, 2), *back = NULL;
    uint8_t record[VOLUME_RECORD_BYTES_MAX] = {0};
    one->count = 2;
    one->type = WE;
    for (uint32_t i = 0; i < 2; i++) {
        struct registrant *r = &one->registrants[i];
        strcpy(r->initiator, i == 0 ? A : B);
        r->hash = initiator_hash(r->initiator);
        r->key = 5 + i;
        r->port = 1;
        r->holder = i == 1;
    }
    uint32_t bytes = reservations_encode(one, 7, record);
    assert_int_equal(bytes, reservations_record_bytes(one));
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), OK);
    assert_int_equal(back->count, 2);
    assert_true(back->registrants[1].holder && back->persists);
    assert_string_equal(back->registrants[0].initiator, A);
    mem_free(back);
    assert_int_equal(reservations_decode(record, sizeof(record), 8, &back), ERR_CHECKSUM);
    assert_int_equal(reservations_decode(record, bytes - 8, 7, &back), ERR_CORRUPT);
    /* sealed, but senseless */
    one->registrants[0].holder = true; /* two holders */
    (void)reservations_encode(one, 7, record);
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), ERR_CORRUPT);
    one->registrants[0].holder = one->registrants[1].holder = false; /* none */
    (void)reservations_encode(one, 7, record);
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), ERR_CORRUPT);
    one->type = 2;
    (void)reservations_encode(one, 7, record);
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), ERR_CORRUPT);
    one->type = 0;
    one->registrants[1] = one->registrants[0]; /* twice the same */
    (void)reservations_encode(one, 7, record);
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), ERR_CORRUPT);
    one->count = 1;
    one->registrants[0].key = 0;
    (void)reservations_encode(one, 7, record);
    assert_int_equal(reservations_decode(record, sizeof(record), 7, &back), ERR_CORRUPT);
    mem_free(one);
}

/* ---- hostile lists ---- */

static void lists_of_every_length(void **state) {
    struct world *w = *state;
    uint8_t list[128];
    memset(list, 0xff, sizeof(list));
    memset(list, 0, 8);
    for (uint32_t action = REGISTER; action <= MOVE; action++) {
        for (uint32_t bytes = 0; bytes < sizeof(list); bytes++) {
            for (uint32_t spec = 0; spec < 2; spec++) {
                list[20] = spec ? 0xff : 0;
                uint32_t result =
                    outcome(run_as(w, w->a, prout_cdb(action, WE, bytes), 10, list, bytes, 0));
                bool longer = action == MOVE || (action == REGISTER && spec);
                if (bytes < 24 || (bytes > 24 && !longer)) {
                    assert_int_equal(result, SENSE_PARAMETER_LIST_LENGTH);
                }
            }
        }
    }
    /* less sent than the CDB says; more than we take */
    assert_int_equal(outcome(run(w, prout_cdb(REGISTER, 0, 100), 10, list, 60, 0)),
                     SENSE_PARAMETER_LIST_LENGTH);
    assert_int_equal(outcome(run(w, prout_cdb(REGISTER, 0, 1u << 31), 10, list, 60, 0)),
                     SENSE_PARAMETER_LIST_LENGTH);
}

/* ---- RESERVE and RELEASE ---- */

static uint32_t six(struct world *w, struct scsi_nexus *nexus, uint8_t opcode) {
    return outcome(run_as(w, nexus, CDB(opcode, 0, 0, 0, 0, 0), NULL, 0, 0));
}

static void reserve_of_old(void **state) {
    struct world *w = *state;
    assert_int_equal(six(w, w->a, 0x16), SCSI_GOOD);
    assert_int_equal(six(w, w->a, 0x16), SCSI_GOOD);
    assert_int_equal(six(w, w->b, 0x16), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(six(w, w->b, 0x17), SCSI_GOOD); /* and nothing happens */
    assert_int_equal(read_as(w, w->b), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(read_as(w, w->a), SCSI_GOOD);
    /* the new kind is refused to all, the holder too */
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_RESERVATION_CONFLICT);
    (void)run(w, CDB(0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0), NULL, 0, 64);
    assert_int_equal(last.status, SCSI_RESERVATION_CONFLICT);
    assert_int_equal(six(w, w->a, 0x17), SCSI_GOOD);
    assert_int_equal(read_as(w, w->b), SCSI_GOOD);
    /* it ends when the unit is no longer for the holder */
    uint8_t numbers[SCSI_LUNS_MAX / 8] = {0};
    assert_int_equal(six(w, w->a, 0x16), SCSI_GOOD);
    scsi_nexus_show(w->a, numbers);
    assert_int_equal(read_as(w, w->b), SCSI_GOOD);
    memset(numbers, 0xff, sizeof(numbers));
    scsi_nexus_show(w->a, numbers);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_POWER_ON);
    /* with a reset, and with the nexus */
    assert_int_equal(outcome(run(w, CDB(0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0), NULL, 0, 0)), SCSI_GOOD);
    assert_int_equal(scsi_manage(w->b, SCSI_LUN_RESET, (uint8_t[8]){0, 3}), OK);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_BUS_DEVICE_RESET);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_BUS_DEVICE_RESET);
    assert_int_equal(read_as(w, w->b), SCSI_GOOD);
    assert_int_equal(six(w, w->a, 0x16), SCSI_GOOD);
    scsi_nexus_close(w->a);
    assert_int_equal(read_as(w, w->b), SCSI_GOOD);
    w->a = nexus_open(w, A, 1);
}

/* SPC-4 §5.12.3, compatible reservation handling. */
static void old_beside_new(void **state) {
    struct world *w = *state;
    assert_int_equal(prout(w, w->a, REGISTER, 0, 0, 1, 0), SCSI_GOOD);
    assert_int_equal(six(w, w->a, 0x16), SCSI_RESERVATION_CONFLICT); /* registered, not reserved */
    assert_int_equal(six(w, w->b, 0x16), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, RESERVE, WE, 1, 0, 0), SCSI_GOOD);
    assert_int_equal(six(w, w->a, 0x16), SCSI_GOOD);
    assert_int_equal(six(w, w->a, 0x17), SCSI_GOOD);
    assert_int_equal(six(w, w->b, 0x17), SCSI_RESERVATION_CONFLICT);
    expect_held(w, WE, 1);
    assert_int_equal(prout(w, w->b, REGISTER, 0, 0, 2, 0), SCSI_GOOD);
    assert_int_equal(six(w, w->b, 0x16), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(prout(w, w->a, PREEMPT, WERO, 1, 1, 0), SCSI_GOOD);
    told_once(w, w->b, SENSE_RESERVATIONS_RELEASED);
    assert_int_equal(six(w, w->b, 0x16), SCSI_GOOD); /* it may use the unit anyway */
    assert_int_equal(read_as(w, w->a), SCSI_GOOD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(registration),
        IN_WORLD(registrations_belong_to_names),
        IN_WORLD(reserving_and_releasing),
        IN_WORLD(every_command_against_every_type),
        IN_WORLD(start_and_allow_have_a_harmless_form),
        IN_WORLD(preempting),
        IN_WORLD(preempting_all_registrants),
        IN_WORLD(preempt_and_abort),
        IN_WORLD(register_and_move),
        IN_WORLD(registering_for_others),
        IN_WORLD(no_more_than_there_is_room_for),
        IN_WORLD(persistence),
        IN_WORLD(changes_are_durable_first),
        IN_WORLD(a_unit_may_go_in_the_middle),
        IN_WORLD(a_bad_record_stops_the_unit),
        cmocka_unit_test(records_are_validated),
        IN_WORLD(lists_of_every_length),
        IN_WORLD(reserve_of_old),
        IN_WORLD(old_beside_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
