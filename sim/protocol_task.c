// SPDX-License-Identifier: MPL-2.0
/* Commands of the protocol model: what is sent with them, what is asked for, what comes back, and
 * what becomes of them when they are aborted. A host has its own part of a volume, so that the
 * oracle knows every write that can have reached what a read returns. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "protocol.h"

enum kind { KIND_READ, KIND_WRITE, KIND_READY, KIND_INQUIRY, KIND_FLUSH, KIND_WRONG };

enum function {
    ABORT_TASK = 1,
    ABORT_TASK_SET = 2,
    CLEAR_ACA = 3,
    CLEAR_TASK_SET = 4,
    LUN_RESET = 5,
    WARM_RESET = 6,
    COLD_RESET = 7,
    REASSIGN = 8,
};

/* ---- the oracle's side ---- */

void tasks_oldest_read(struct protocol_world *w) {
    w->oracle.oldest_read = UINT32_MAX;
    for (uint32_t i = 0; i < w->host_count; i++) {
        for (uint32_t j = 0; j < HOST_COMMANDS_MAX; j++) {
            const struct host_command *command = &w->hosts[i].commands[j];
            if (command->used && command->is_read) {
                w->oracle.oldest_read = MIN(w->oracle.oldest_read, command->submitted);
            }
        }
    }
}

static void task_end(struct host *host, struct host_command *command, enum oracle_outcome outcome) {
    if (command->is_write && command->count != 0) {
        oracle_write_end(&host->volume->oracle, command->sector, command->count, command->submitted,
                         outcome, true);
    }
    mem_free(command->data);
    *command = (struct host_command){0};
    host->in_hand--;
    tasks_oldest_read(host->world);
}

/* Data that were never sent whole cannot have been written. */
void task_forget(struct host *host, struct host_command *command) {
    if (host->attention_due) { /* it may have taken it, and kept it to itself */
        host->attention_due = false;
        host->attention_possible = true;
    }
    bool whole = command->unsolicited_left == 0 && command->r2t_count == 0 &&
                 command->asked_bytes == command->expected_bytes;
    task_end(host, command, whole ? ORACLE_UNKNOWN : ORACLE_NOTHING);
}

void tasks_forget(struct host *host) {
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        if (host->commands[i].used) {
            task_forget(host, &host->commands[i]);
        }
    }
}

enum protocol_task_state task_state(const struct host_command *command) {
    if (command->unsolicited_left != 0) {
        return TASK_unsolicited;
    }
    if (command->r2t_count != 0) {
        return TASK_asked;
    }
    if (command->is_write && command->asked_bytes < command->expected_bytes) {
        return TASK_unasked;
    }
    return command->data_in_bytes != 0 ? TASK_answering : TASK_running;
}

static void cover(struct host *host, const struct host_command *command,
                  enum protocol_task_event event) {
    host->world->result->stats.tasks[task_state(command)][event]++;
}

void tasks_cover(struct host *host, enum protocol_task_event event) {
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        if (host->commands[i].used && !host->commands[i].in_limbo) {
            cover(host, &host->commands[i], event);
        }
    }
}

void tasks_to_limbo(struct host *host) {
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        host->commands[i].in_limbo = host->commands[i].used;
    }
}

struct host_command *task_any(struct host *host) {
    uint32_t at = (uint32_t)rng_below(&host->rng, HOST_COMMANDS_MAX);
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        struct host_command *command = &host->commands[(at + i) % HOST_COMMANDS_MAX];
        if (command->used && !command->in_limbo) {
            return command;
        }
    }
    return NULL;
}

static struct host_command *task_find(struct host *host, uint32_t itt) {
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        if (host->commands[i].used && !host->commands[i].in_limbo && host->commands[i].itt == itt) {
            return &host->commands[i];
        }
    }
    return NULL;
}

/* ---- sending ---- */

static struct host_command *task_new(struct host *host) {
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        struct host_command *command = &host->commands[i];
        if (!command->used) {
            *command = (struct host_command){
                .used = true,
                .itt = ++host->itt,
                .sent_ns = env_now_ns(host->world->env),
                .may_vanish = host->world->resets_open != 0 && !host->behaves,
            };
            host->in_hand++;
            return command;
        }
    }
    return NULL;
}

static void draw_range(struct host *host, struct host_command *command) {
    uint32_t bits = (uint32_t)rng_below(&host->rng, 10);
    command->count = MIN(rng_between(&host->rng, 1, 1ull << bits), (uint64_t)COMMAND_SECTORS_MAX);
    command->sector =
        host->first_sector + rng_below(&host->rng, host->sectors - command->count + 1);
    command->expected_bytes = (uint32_t)command->count * ORACLE_SECTOR_BYTES;
}

static void put_range(uint8_t *cdb, uint8_t opcode10, uint8_t opcode16, bool is16, uint64_t sector,
                      uint64_t count) {
    cdb[0] = is16 ? opcode16 : opcode10;
    if (is16) {
        put_be64(cdb + 2, sector);
        put_be32(cdb + 10, (uint32_t)count);
    } else {
        put_be32(cdb + 2, (uint32_t)sector);
        put_be16(cdb + 7, (uint16_t)count);
    }
}

static void prepare_write(struct host *host, struct host_command *command) {
    struct protocol_world *w = host->world;
    const struct oracle_volume *oracle = &host->volume->oracle;
    command->is_write = true;
    draw_range(host, command);
    command->version = ++w->next_version;
    command->data = mem_alloc(command->expected_bytes);
    for (uint64_t i = 0; i < command->count; i++) {
        oracle_fill(oracle, command->sector + i, command->version,
                    command->data + i * ORACLE_SECTOR_BYTES);
    }
    command->submitted = oracle_write_begin(&host->volume->oracle, command->sector, command->count,
                                            command->version);
}

/* What goes with the command: returns the immediate bytes. */
static uint32_t plan_unsolicited(struct host *host, struct host_command *command, bool *ret_final) {
    const struct host_parameters *now = &host->conn->now;
    uint32_t most = MIN(command->expected_bytes, now->first_burst), immediate = 0;
    *ret_final = true;
    if (now->immediate_data && rng_chance(&host->rng, 2, 3)) {
        immediate = MIN(most, now->their_segment_bytes);
        if (rng_chance(&host->rng, 1, 3)) {
            immediate = (uint32_t)rng_between(&host->rng, 0, immediate);
        }
    }
    if (immediate != 0) {
        COUNT(host->world, writes_immediate);
    }
    command->unsolicited_sent = immediate;
    command->asked_bytes = immediate;
    if (!now->initial_r2t && immediate < most && rng_chance(&host->rng, 2, 3)) {
        *ret_final = false;
        command->unsolicited_left = most - immediate;
        command->asked_bytes = most;
        COUNT(host->world, writes_unsolicited);
    }
    return immediate;
}

/* ---- a command that moves data reads or writes; the others are there for what they disturb ----
 */

static enum kind draw_kind(struct host *host) {
    static const enum kind kinds[] = {KIND_READ,    KIND_READ,  KIND_READ,  KIND_READ,  KIND_WRITE,
                                      KIND_WRITE,   KIND_WRITE, KIND_WRITE, KIND_WRITE, KIND_READY,
                                      KIND_INQUIRY, KIND_FLUSH, KIND_WRONG};
    return host->attention_due ? KIND_READY : kinds[rng_below(&host->rng, ARRAY_COUNT(kinds))];
}

static uint8_t prepare(struct host *host, struct host_command *command, enum kind kind,
                       uint8_t *cdb) {
    bool is16 = rng_chance(&host->rng, 1, 2);
    switch (kind) {
    case KIND_READ:
        command->is_read = true;
        draw_range(host, command);
        command->submitted = oracle_tick(&host->world->oracle);
        tasks_oldest_read(host->world);
        put_range(cdb, 0x28, 0x88, is16, command->sector, command->count);
        if (rng_chance(&host->rng, 1, 8)) { /* room for more than comes */
            command->expected_bytes += 4 * (uint32_t)rng_between(&host->rng, 1, 300);
        }
        command->data = mem_alloc(command->expected_bytes);
        return COMMAND_READ;
    case KIND_WRITE:
        prepare_write(host, command);
        put_range(cdb, 0x2a, 0x8a, is16, command->sector, command->count);
        return COMMAND_WRITE;
    case KIND_INQUIRY:
        cdb[0] = 0x12;
        cdb[4] = 96;
        command->expected_bytes = 96;
        return COMMAND_READ;
    case KIND_FLUSH:
        cdb[0] = 0x35;
        return 0;
    case KIND_WRONG: /* beyond the end, or no command at all */
        command->refused = true;
        if (is16) {
            put_range(cdb, 0x28, 0x88, true, LUN_SECTORS, 8);
            command->expected_bytes = 8 * ORACLE_SECTOR_BYTES;
            return COMMAND_READ;
        }
        cdb[0] = 0xe5;
        return 0;
    case KIND_READY:
    default:
        return 0;
    }
}

void task_start(struct host *host) {
    struct host_conn *conn = host->conn;
    if (serial_is_before(host->max_cmd_sn, host->cmd_sn) ||
        (host->attention_due && host->in_hand != 0)) {
        return; /* the window is closed; or the first command is not answered yet */
    }
    struct host_command *command = task_new(host);
    if (command == NULL) {
        return;
    }
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND};
    enum kind kind = draw_kind(host);
    uint8_t flags = prepare(host, command, kind, bhs + AT_CDB);
    bool final = true;
    uint32_t immediate = command->is_write ? plan_unsolicited(host, command, &final) : 0;
    bhs[AT_FLAGS] = (uint8_t)(flags | (final ? BHS_FINAL : 0));
    bhs[AT_LUN + 1] = (uint8_t)host->lun;
    put_be32(bhs + AT_ITT, command->itt);
    put_be32(bhs + AT_COMMAND_LENGTH, command->expected_bytes);
    if (rng_chance(&host->rng, 1, 30)) {
        bhs[0] |= BHS_IMMEDIATE;
        command->immediate = true;
        put_be32(bhs + AT_CMDSN, host->cmd_sn);
        command->cmd_sn = host->cmd_sn;
    } else {
        command->cmd_sn = host->cmd_sn;
        put_be32(bhs + AT_CMDSN, host->cmd_sn++);
    }
    conn_send(conn, bhs, command->data, immediate);
}

/* Data-Out: the next piece for an R2T, or of what goes unasked. */
static void send_data(struct host *host, struct host_command *command, uint32_t ttt,
                      uint32_t data_sn, uint32_t offset, uint32_t bytes, bool final) {
    uint8_t bhs[BHS_BYTES] = {OP_DATA_OUT, final ? BHS_FINAL : 0};
    bhs[AT_LUN + 1] = (uint8_t)host->lun;
    put_be32(bhs + AT_ITT, command->itt);
    put_be32(bhs + AT_TTT, ttt);
    put_be32(bhs + AT_DATA_SN, data_sn);
    put_be32(bhs + AT_BUFFER_OFFSET, offset);
    command->sent_ns = env_now_ns(host->world->env);
    conn_send(host->conn, bhs, command->data + offset, bytes);
}

/* One thing about the piece is not as agreed: the command must fail, having written nothing. */
static void send_wrong_data(struct host *host, struct host_command *command, uint32_t ttt,
                            uint32_t data_sn, uint32_t offset) {
    cover(host, command, TASK_EVENT_wrong_data);
    bool of_r2t = ttt != ISCSI_TAG_NONE;
    switch (rng_below(&host->rng, 3)) {
    case 0:
        send_data(host, command, ttt, data_sn + 1, offset, 4, false);
        break;
    case 1:
        send_data(host, command, of_r2t ? ttt ^ 0x5000000 : ttt, data_sn + !of_r2t, offset, 4,
                  false);
        break;
    default:
        send_data(host, command, ttt, data_sn, offset != 0 ? 0 : 4, 4, false);
        break;
    }
    command->refused = true;
    command->unsolicited_left = 0;
    command->r2t_count = 0;
    command->asked_bytes = 0; /* it cannot have been written */
}

/* Data that nobody has asked for, of a command whose data are asked for piece by piece. */
static bool send_unasked_data(struct host *host) {
    struct host_command *command = task_any(host);
    if (command == NULL || command->refused || task_state(command) != TASK_unasked) {
        return false;
    }
    send_wrong_data(host, command, ISCSI_TAG_NONE, 0, 0);
    return true;
}

bool task_feed(struct host *host, bool wrongly) {
    struct host_command *command = NULL;
    if (wrongly && rng_chance(&host->rng, 1, 2) && send_unasked_data(host)) {
        return true;
    }
    uint32_t at = (uint32_t)rng_below(&host->rng, HOST_COMMANDS_MAX);
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX && command == NULL; i++) {
        struct host_command *it = &host->commands[(at + i) % HOST_COMMANDS_MAX];
        if (it->used && !it->in_limbo && (it->unsolicited_left != 0 || it->r2t_count != 0)) {
            command = it;
        }
    }
    if (command == NULL) {
        return false;
    }
    uint32_t segment = host->conn->now.their_segment_bytes;
    bool unasked = command->unsolicited_left != 0;
    struct host_r2t *r2t = &command->r2ts[0];
    if (!unasked && rng_chance(&host->rng, 1, 3)) { /* R2Ts need not be answered in order */
        r2t = &command->r2ts[rng_below(&host->rng, command->r2t_count)];
    }
    uint32_t left = unasked ? command->unsolicited_left : r2t->length - r2t->sent;
    uint32_t offset = unasked ? command->unsolicited_sent : r2t->offset + r2t->sent;
    uint32_t bytes = MIN(left, segment);
    if (bytes > 4 && rng_chance(&host->rng, 1, 4)) {
        bytes = (uint32_t)rng_between(&host->rng, 1, bytes / 4) * 4;
    }
    uint32_t data_sn = unasked ? command->unsolicited_sn : r2t->data_sn;
    uint32_t ttt = unasked ? ISCSI_TAG_NONE : r2t->ttt;
    if (wrongly && command->expected_bytes >= 8) {
        send_wrong_data(host, command, ttt, data_sn, offset);
        return true;
    }
    send_data(host, command, ttt, data_sn, offset, bytes, bytes == left);
    if (unasked) {
        command->unsolicited_sent += bytes;
        command->unsolicited_left -= bytes;
        command->unsolicited_sn++;
        return true;
    }
    r2t->sent += bytes;
    r2t->data_sn++;
    if (r2t->sent == r2t->length) {
        memmove(r2t, r2t + 1,
                (size_t)(&command->r2ts[command->r2t_count] - (r2t + 1)) * sizeof(*r2t));
        command->r2t_count--;
    }
    return true;
}

bool task_is_refused(const struct host *host) {
    bool is = false;
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX; i++) {
        const struct host_command *command = &host->commands[i];
        is |= command->used && command->refused && command->is_write && !command->in_limbo &&
              !command->may_vanish;
    }
    return is;
}

/* ---- receiving ---- */

static void r2t_received(struct host_conn *conn, struct host_command *command, const uint8_t *bhs) {
    struct host *host = conn->host;
    uint32_t offset = get_be32(bhs + AT_BUFFER_OFFSET), length = get_be32(bhs + AT_R2T_LENGTH);
    if (command->refused) {
        return; /* it was under way when the data went wrong */
    }
    if (!command->is_write || command->unsolicited_left != 0 || offset != command->asked_bytes ||
        length == 0 || length > conn->now.max_burst ||
        !range_is_within(offset, length, command->expected_bytes) ||
        get_be32(bhs + AT_DATA_SN) != command->r2t_sn || command->r2t_count >= conn->now.max_r2t) {
        protocol_fail(host->world,
                      "host %u: R2T %u for [%u, +%u), where %u of %u bytes were asked for and %u "
                      "R2Ts are open",
                      host->index, get_be32(bhs + AT_DATA_SN), offset, length, command->asked_bytes,
                      command->expected_bytes, command->r2t_count);
        return;
    }
    if (command->r2t_sn++ == 0) {
        COUNT(host->world, writes_asked);
    }
    command->asked_bytes += length;
    command->r2ts[command->r2t_count++] =
        (struct host_r2t){.ttt = get_be32(bhs + AT_TTT), .offset = offset, .length = length};
}

static void data_received(struct host_conn *conn, struct host_command *command, const uint8_t *bhs,
                          const uint8_t *data, uint32_t bytes) {
    struct host *host = conn->host;
    bool final = (bhs[AT_FLAGS] & BHS_FINAL) != 0;
    command->burst_bytes += bytes;
    if (command->is_write || get_be32(bhs + AT_DATA_SN) != command->data_in_sn++ ||
        get_be32(bhs + AT_BUFFER_OFFSET) != command->data_in_bytes ||
        command->data_in_bytes + bytes > command->expected_bytes ||
        command->burst_bytes > conn->now.max_burst ||
        (command->burst_bytes == conn->now.max_burst && !final)) {
        protocol_fail(host->world, "host %u: Data-In %u of [%u, +%u) behind %u of %u bytes",
                      host->index, get_be32(bhs + AT_DATA_SN), get_be32(bhs + AT_BUFFER_OFFSET),
                      bytes, command->data_in_bytes, command->expected_bytes);
        return;
    }
    if (command->is_read) {
        memcpy(command->data + command->data_in_bytes, data, bytes);
    }
    command->data_in_bytes += bytes;
    if (final) {
        command->burst_bytes = 0;
    }
}

static void judge_read(struct host *host, struct host_command *command, const uint8_t *bhs) {
    struct protocol_world *w = host->world;
    char why[300];
    uint32_t due = (uint32_t)command->count * ORACLE_SECTOR_BYTES;
    uint32_t residual = command->expected_bytes - due;
    if (command->data_in_bytes != due || get_be32(bhs + AT_RESIDUAL) != residual ||
        ((bhs[AT_FLAGS] & RESIDUAL_UNDERFLOW) != 0) != (residual != 0)) {
        protocol_fail(w, "host %u: a read of %u bytes brings %u, and a residual of %u (of %u)",
                      host->index, due, command->data_in_bytes, get_be32(bhs + AT_RESIDUAL),
                      residual);
    } else if (!oracle_read(&host->volume->oracle, command->sector, command->count,
                            command->submitted, command->data, why, sizeof(why))) {
        protocol_fail(w, "host %u: %s", host->index, why);
    }
    w->result->stats.count[PSTAT_residuals] += residual != 0;
    COUNT(w, reads);
}

static void good(struct host *host, struct host_command *command, const uint8_t *bhs) {
    struct protocol_world *w = host->world;
    if (command->refused || host->attention_due) {
        protocol_fail(w, "host %u: a command that must fail is answered with GOOD", host->index);
        return;
    }
    if (command->is_read) {
        judge_read(host, command, bhs);
        if (w->resets_open == 0 && command->sent_ns > host->attention_caused_ns) {
            host->attention_possible = false; /* it would have come with this one */
        }
    } else if (command->is_write) {
        if (task_state(command) != TASK_running || get_be32(bhs + AT_RESIDUAL) != 0) {
            protocol_fail(w, "host %u: a write is done in state %u, with a residual of %u",
                          host->index, task_state(command), get_be32(bhs + AT_RESIDUAL));
            return;
        }
        COUNT(w, writes);
    } else {
        COUNT(w, others);
    }
    task_end(host, command, ORACLE_DONE);
}

/* CHECK CONDITION: what was wrong must have been known to the world. */
static void condition(struct host *host, struct host_command *command, const uint8_t *data,
                      uint32_t bytes) {
    struct protocol_world *w = host->world;
    uint32_t key = bytes >= 16 ? data[2 + 2] & 0x0f : 0xff;
    uint32_t code = bytes >= 16 ? get_be16(data + 2 + 12) : 0;
    bool moves = command->is_read || command->is_write;
    if (key == 6) { /* UNIT ATTENTION: nothing was done */
        if (!host->attention_due && !host->attention_possible) {
            protocol_fail(w, "host %u: a unit attention (0x%04x) without reason", host->index,
                          code);
        }
        host->attention_due = false;
        COUNT(w, attentions);
        task_end(host, command, ORACLE_NOTHING);
        return;
    }
    bool expected = command->refused ? key == 5 || key == 0x0b : moves && (key == 3 || key == 4);
    if (!expected || (!command->refused && host->volume->errors == 0)) {
        protocol_fail(w, "host %u: a command fails with sense %x/%04x", host->index, key, code);
        return;
    }
    if (command->refused && command->is_write) {
        COUNT(w, wrong_data);
    } else if (command->refused) {
        COUNT(w, conditions);
    } else {
        COUNT(w, volume_errors);
    }
    task_end(host, command, command->refused ? ORACLE_NOTHING : ORACLE_UNKNOWN);
}

static void answered(struct host *host, struct host_command *command, const uint8_t *bhs,
                     const uint8_t *data, uint32_t bytes) {
    uint8_t status = bhs[AT_STATUS];
    if (status == SCSI_GOOD) {
        good(host, command, bhs);
    } else if (status == SCSI_CHECK_CONDITION && bhs_opcode(bhs) == OP_SCSI_RESPONSE) {
        condition(host, command, data, bytes);
    } else if (status == SCSI_TASK_SET_FULL && command->is_write &&
               host->world->memory_bytes != 0) {
        COUNT(host->world, full);
        task_end(host, command, ORACLE_NOTHING);
    } else {
        protocol_fail(host->world, "host %u: a command ends with status 0x%02x", host->index,
                      status);
    }
}

void task_received(struct host_conn *conn, const uint8_t *bhs, const uint8_t *data,
                   uint32_t bytes) {
    struct host *host = conn->host;
    uint32_t itt = get_be32(bhs + AT_ITT);
    struct host_command *command = task_find(host, itt);
    uint8_t opcode = bhs_opcode(bhs);
    if (command == NULL) {
        protocol_fail(host->world, "host %u: opcode 0x%02x for task %x, which has been answered",
                      host->index, opcode, itt);
        return;
    }
    if (opcode == OP_R2T) {
        r2t_received(conn, command, bhs);
        return;
    }
    if (opcode == OP_DATA_IN) {
        data_received(conn, command, bhs, data, bytes);
        if ((bhs[AT_FLAGS] & DATA_IN_STATUS) == 0 || protocol_has_failed(host->world)) {
            return;
        }
    }
    answered(host, command, bhs, data, bytes);
}

/* ---- task management ---- */

static enum protocol_task_event event_of(uint32_t function) {
    switch (function) {
    case ABORT_TASK_SET:
        return TASK_EVENT_abort_task_set;
    case CLEAR_TASK_SET:
        return TASK_EVENT_clear_task_set;
    case LUN_RESET:
        return TASK_EVENT_lun_reset;
    case WARM_RESET:
        return TASK_EVENT_warm_reset;
    case COLD_RESET:
        return TASK_EVENT_cold_reset;
    default:
        return TASK_EVENT_abort_task;
    }
}

/* Sends it; true: the answer is `*ret_response`. */
static bool manage(struct host *host, uint32_t function, uint32_t itt, uint32_t ref_cmd_sn,
                   uint8_t *ret_response) {
    struct protocol_world *w = host->world;
    struct host_conn *conn = host->conn;
    uint64_t began_ns = env_now_ns(w->env);
    uint8_t bhs[BHS_BYTES] = {OP_TASK_MANAGEMENT | BHS_IMMEDIATE, (uint8_t)(0x80 | function)};
    host->waited_itt = ++host->itt;
    bhs[AT_LUN + 1] = (uint8_t)host->lun;
    put_be32(bhs + AT_ITT, host->waited_itt);
    put_be32(bhs + AT_REFERENCED_TASK, itt);
    put_be32(bhs + AT_CMDSN, host->cmd_sn);
    put_be32(bhs + AT_REF_CMDSN, ref_cmd_sn);
    conn_send(conn, bhs, NULL, 0);
    if (!conn_receive(conn, MANAGEMENT_NS)) {
        if (!conn->cut && !conn->ended && !protocol_has_failed(w)) {
            protocol_fail(w, "host %u: task management function %u is not answered for %u s",
                          host->index, function, (uint32_t)(MANAGEMENT_NS / NS_PER_S));
        }
        return false;
    }
    if (bhs_opcode(conn->bhs) != OP_TASK_MANAGEMENT_RESPONSE) {
        protocol_fail(w, "host %u: opcode 0x%02x answers task management", host->index,
                      bhs_opcode(conn->bhs));
        return false;
    }
    COUNT(w, aborts);
    w->result->stats.count[PSTAT_aborts_hung] += host->volume->hangs_until_ns > began_ns;
    *ret_response = conn->bhs[AT_RESPONSE];
    return true;
}

static void judge_response(struct host *host, uint32_t function, uint8_t response, uint8_t due) {
    if (response != due) {
        protocol_fail(host->world,
                      "host %u: task management function %u is answered with %u, not "
                      "%u",
                      host->index, function, response, due);
    }
}

/* ABORT TASK: of one in hand, one that has ended, or one that never was. */
static void abort_one(struct host *host, struct host_command *command) {
    uint8_t response;
    if (command != NULL) {
        uint32_t itt = command->itt, cmd_sn = command->cmd_sn;
        cover(host, command, TASK_EVENT_abort_task);
        /* An immediate one that has ended there has no number of its own to tell it by. */
        bool immediate = command->immediate;
        if (manage(host, ABORT_TASK, itt, cmd_sn, &response)) {
            command = task_find(host, itt); /* it may have been answered before */
            judge_response(host, ABORT_TASK, response, immediate && response == 1 ? 1 : 0);
            if (command != NULL) {
                task_forget(host, command);
            }
        }
        return;
    }
    bool never = rng_chance(&host->rng, 1, 2);
    if (manage(host, ABORT_TASK, 0x7ffffff0, never ? host->cmd_sn + 5 : host->cmd_sn - 1,
               &response)) {
        judge_response(host, ABORT_TASK, response, never ? 1 : 0);
    }
}

void task_manage(struct host *host, uint32_t function, struct host_command *command) {
    struct protocol_world *w = host->world;
    uint8_t response;
    if (function == ABORT_TASK) {
        abort_one(host, command);
        return;
    }
    if (function == CLEAR_ACA || function == REASSIGN) {
        if (manage(host, function, ISCSI_TAG_NONE, 0, &response)) {
            judge_response(host, function, response, function == REASSIGN ? 4 : 5);
        }
        return;
    }
    struct host_conn *conn = host->conn;
    bool others = function != ABORT_TASK_SET;
    tasks_cover(host, event_of(function));
    if (others) {
        protocol_reset_begins(w, host, function == COLD_RESET);
    }
    if (function == COLD_RESET) {
        conn->may_end = "it reset the target";
    }
    bool answered = manage(host, function, ISCSI_TAG_NONE, 0, &response);
    if (others) {
        protocol_reset_ended(w, function == COLD_RESET);
    }
    if (!answered) {
        return;
    }
    judge_response(host, function, response, 0);
    tasks_forget(host);
    if (function == COLD_RESET && !conn_wait_end(conn, NS_PER_S) && !conn->cut &&
        !protocol_has_failed(w)) {
        protocol_fail(w, "host %u: the session goes on after a cold reset", host->index);
    }
}

/* ---- those that wait too long ---- */

void tasks_look_after(struct host *host) {
    struct protocol_world *w = host->world;
    uint64_t now_ns = env_now_ns(w->env);
    for (uint32_t i = 0; i < HOST_COMMANDS_MAX && host->in_session; i++) {
        struct host_command *command = &host->commands[i];
        enum protocol_task_state state = task_state(command);
        bool ours = state == TASK_unsolicited || state == TASK_asked; /* to go on */
        if (!command->used || command->in_limbo || ours || now_ns < command->sent_ns + ANSWER_NS) {
            continue;
        }
        bool hung =
            !host->behaves && w->hung_ns > command->sent_ns && now_ns < w->hung_ns + ANSWER_NS;
        bool excused = command->may_vanish || host->conn->cut || hung || w->memory_bytes != 0;
        if (!excused) {
            protocol_fail(w, "host %u: task %x (state %u) is not answered for %" PRIu64 " s",
                          host->index, command->itt, state,
                          (uint64_t)((now_ns - command->sent_ns) / NS_PER_S));
            return;
        }
        bool vanished = command->may_vanish && !hung && !host->conn->cut;
        abort_one(host, command);
        w->result->stats.count[PSTAT_vanished] += vanished && !command->used;
        if (host->conn->ended) {
            return;
        }
    }
}
