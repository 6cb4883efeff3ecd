// SPDX-License-Identifier: MPL-2.0
/* SCSI commands: from the command PDU to the status (RFC 7143 §11.3, §11.4, §11.7, §11.8).
 *
 *     header ─ begin() ─┬─ refused ───────────────────────────────┐
 *                       └─ memory ─ data: immediate, unsolicited, │
 *                          then R2Ts ─ run() ─ done() ────────────┴─ Data-In or response ─ leaves
 *
 * Data. `wanted` is what the device server takes; an initiator may send more unasked, which is read
 * and thrown away, and is asked for no more than that. Data arrive in order (DataPDUInOrder and
 * DataSequenceInOrder are Yes), so counters are all the bookkeeping there is. Data that do not come
 * as agreed fail the command, not the connection; what still arrives for it is ignored.
 *
 * Memory. A command that finds none waits, if nothing of its data can be on the way yet; otherwise
 * it is answered TASK SET FULL.
 *
 * Dropping (abort, reset, end of the session) forgets the command at once: it leaves the session,
 * its queued PDUs are withdrawn, and references see to it that buffers stay as long as the volume
 * or the stream uses them. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "iscsi/internal.h"

static void command_respond(struct iscsi_command *command);

/* ---- references ---- */

void command_unref(struct iscsi_command *command) {
    ASSERT(command->refs > 0);
    if (--command->refs != 0) {
        return;
    }
    struct iscsi_loop *loop = command->loop;
    if (command->buffer != NULL) {
        memory_put(&loop->memory, command->buffer);
        server_memory_freed(loop->server);
    }
    mem_free(command);
    server_command_gone(loop);
}

struct iscsi_command *command_find(struct iscsi_session *session, uint32_t itt) {
    LIST_FOR_EACH(it, &session->by_itt[itt % COMMAND_BUCKETS]) {
        struct iscsi_command *command = CONTAINER_OF(it, struct iscsi_command, in_bucket);
        if (command->itt == itt) {
            return command;
        }
    }
    return NULL;
}

bool command_is_stalled(const struct iscsi_command *command, uint64_t before_ns) {
    bool waits = command->task_open && !command->ran && list_is_empty(&command->in_waiters) &&
                 (command->unsolicited_open || command->arrived_bytes < command->asked_bytes);
    return waits && command->data_ns < before_ns;
}

static void leave_session(struct iscsi_command *command) {
    struct iscsi_session *session = command->session;
    if (command->immediate) {
        session->immediate_count--;
    } else if (!SABOTAGE(iscsi_window_stuck) || !command->task_open) {
        session->command_count--;
    }
    counter_add(&session->commands_ended, 1);
    list_remove(&command->in_session);
    list_remove(&command->in_bucket);
    list_remove(&command->in_waiters);
    command->session = NULL;
}

void command_leaves(struct iscsi_command *command) {
    leave_session(command);
    command_unref(command);
}

static void forget(struct iscsi_command *command) {
    struct iscsi_connection *connection = command->session->connection;
    leave_session(command);
    tx_withdraw(connection, command);
}

void command_drop(struct iscsi_command *command) {
    if (command->session == NULL) {
        return;
    }
    forget(command);
    if (command->task_open) {
        scsi_task_abort(&command->task);
    }
    command_unref(command);
}

/* The device server drops it, for a management function of anybody. */
static void task_dropped(struct scsi_task *task) {
    struct iscsi_command *command = task->owner;
    if (command->session != NULL) {
        forget(command);
        command_unref(command);
    }
}

static void task_done(struct scsi_task *task) {
    struct iscsi_command *command = task->owner;
    command->task_open = false;
    if (command->session != NULL) {
        command_respond(command);
    }
    command_unref(command);
}

/* ---- the answer ---- */

static void put_residual(const struct iscsi_command *command, uint8_t *bhs) {
    const struct scsi_task *task = &command->task;
    uint64_t expected = command->reads || command->writes ? command->expected_bytes : 0;
    bool failed_read = task->status != SCSI_GOOD && !command->writes;
    uint64_t moved = failed_read ? 0 : task->transfer_bytes;
    if (moved > expected) {
        bhs[AT_FLAGS] |= RESIDUAL_OVERFLOW;
        put_be32(bhs + AT_RESIDUAL, (uint32_t)MIN(moved - expected, (uint64_t)UINT32_MAX));
    } else if (moved < expected) {
        bhs[AT_FLAGS] |= RESIDUAL_UNDERFLOW;
        put_be32(bhs + AT_RESIDUAL, (uint32_t)(expected - moved));
    }
}

static void command_respond(struct iscsi_command *command) {
    struct scsi_task *task = &command->task;
    bool data = task->status == SCSI_GOOD && task->data_in_ready_bytes != 0;
    struct iscsi_tx *tx = data ? &command->data_in : &command->response;
    list_init(&tx->in_queue);
    tx->stat_sn = STAT_ADVANCE;
    tx->command = command;
    tx->ends_command = true;
    tx->is_data_in = data;
    command->refs++;
    put_be32(tx->bhs + AT_ITT, command->itt);
    tx->bhs[AT_STATUS] = task->status;
    if (data) {
        tx->bhs[0] = OP_DATA_IN;
        tx->bhs[AT_FLAGS] = DATA_IN_STATUS;
        put_be32(tx->bhs + AT_TTT, ISCSI_TAG_NONE);
        tx->data = task->data_in;
        tx->data_bytes = task->data_in_ready_bytes;
        counter_add(&command->session->read_bytes, task->data_in_ready_bytes);
    } else {
        tx->bhs[0] = OP_SCSI_RESPONSE;
        tx->bhs[AT_FLAGS] = BHS_FINAL;
        put_be32(tx->bhs + AT_DATA_SN, command->r2t_sn); /* ExpDataSN: R2Ts sent */
        if (task->sense_bytes != 0) {
            put_be16(command->sense, (uint16_t)task->sense_bytes);
            memcpy(command->sense + 2, task->sense, task->sense_bytes);
            tx->data = command->sense;
            tx->data_bytes = 2 + task->sense_bytes;
        }
    }
    put_residual(command, tx->bhs);
    tx_queue(command->session->connection, tx);
}

/* A begun command whose data did not come as agreed, or for which there is no memory. If somebody
 * of another loop has dropped it, that is on its way. */
static void command_refuse(struct iscsi_command *command, enum scsi_sense_code code,
                           enum scsi_status status) {
    if (!scsi_task_refuse(&command->task, code)) {
        return;
    }
    if (status != SCSI_CHECK_CONDITION) {
        command->task.status = (uint8_t)status;
        command->task.sense_bytes = 0;
    }
    command->task.transfer_bytes = 0;
    command->task_open = false;
    list_remove(&command->in_waiters);
    command_respond(command);
    command_unref(command);
}

/* ---- collecting data ---- */

static void send_r2t(struct iscsi_command *command, struct iscsi_r2t *r2t) {
    struct iscsi_connection *connection = command->session->connection;
    const struct iscsi_parameters *parameters = &connection->keys.parameters;
    *r2t = (struct iscsi_r2t){
        .active = true,
        .ttt = connection_new_ttt(connection),
        .offset_bytes = command->asked_bytes,
        .length_bytes =
            MIN(command->task.data_out_bytes - command->asked_bytes, parameters->max_burst_bytes),
    };
    command->data_ns = env_now_ns(connection->loop->env);
    command->asked_bytes += r2t->length_bytes;
    struct iscsi_tx *tx = tx_new(OP_R2T, BHS_FINAL);
    tx->stat_sn = STAT_CURRENT;
    tx->command = command;
    command->refs++;
    memcpy(tx->bhs + AT_LUN, command->task.lun_field, 8);
    put_be32(tx->bhs + AT_ITT, command->itt);
    put_be32(tx->bhs + AT_TTT, r2t->ttt);
    put_be32(tx->bhs + AT_DATA_SN, command->r2t_sn++);
    put_be32(tx->bhs + AT_BUFFER_OFFSET, r2t->offset_bytes);
    put_be32(tx->bhs + AT_R2T_LENGTH, r2t->length_bytes);
    tx_queue(connection, tx);
}

static bool memory_is_there(struct iscsi_command *command) {
    const struct scsi_task *task = &command->task;
    uint32_t bytes = MAX(task->data_out_bytes, task->data_in_bytes);
    if (bytes == 0 || command->buffer != NULL) {
        return true;
    }
    struct iscsi_connection *connection = command->session->connection;
    command->buffer = memory_get(&command->loop->memory, connection->memory, bytes);
    return command->buffer != NULL;
}

/* Goes on as far as it can: asks for data, runs when all of it is there. */
static void command_progress(struct iscsi_command *command) {
    struct scsi_task *task = &command->task;
    if (command->ran || command->unsolicited_open || !list_is_empty(&command->in_waiters)) {
        return;
    }
    if (command->arrived_bytes == task->data_out_bytes) {
        command->ran = true;
        task->data_out = task->data_in =
            command->buffer != NULL ? command->buffer->pages->data : NULL;
        counter_add(&command->session->write_bytes, task->data_out_bytes);
        scsi_task_run(task);
        return;
    }
    const struct iscsi_connection *connection = command->session->connection;
    uint32_t places = MIN(connection->keys.parameters.max_outstanding_r2t, (uint32_t)ISCSI_R2T_MAX);
    for (uint32_t i = 0; i < places && command->asked_bytes < task->data_out_bytes; i++) {
        if (!command->r2ts[i].active) {
            send_r2t(command, &command->r2ts[i]);
        }
    }
}

void command_retry_memory(struct iscsi_command *command) {
    if (memory_is_there(command)) {
        list_remove(&command->in_waiters);
        command_progress(command);
    }
}

/* ---- the command PDU ---- */

/* What the header itself gets wrong about data (RFC 7143 §11.4.7.2). */
static enum scsi_sense_code delivery_check(const struct iscsi_command *command,
                                           const struct iscsi_parameters *parameters,
                                           uint32_t immediate_bytes) {
    if (command->reads && command->writes) {
        return SENSE_INVALID_FIELD_IN_UNIT; /* no bidirectional command is known */
    }
    if ((immediate_bytes != 0 && (!command->writes || !parameters->immediate_data)) ||
        (command->unsolicited_open && parameters->initial_r2t)) {
        return SENSE_UNEXPECTED_UNSOLICITED_DATA;
    }
    if (immediate_bytes > command->unsolicited_limit) {
        return SENSE_NOT_ENOUGH_UNSOLICITED_DATA; /* "incorrect amount of data" */
    }
    return SENSE_NONE;
}

static struct iscsi_command *command_new(struct iscsi_connection *connection) {
    struct iscsi_session *session = connection->session;
    const uint8_t *bhs = connection->rx.bhs;
    struct iscsi_command *command = MEM_NEW(struct iscsi_command);
    command->refs = 1;
    command->loop = connection->loop;
    server_command_new(command->loop);
    command->session = session;
    list_init(&command->in_waiters);
    command->data_ns = connection->rx.arrived_ns;
    command->itt = get_be32(bhs + AT_ITT);
    command->immediate = bhs_is_immediate(bhs);
    command->reads = (bhs[AT_FLAGS] & COMMAND_READ) != 0;
    command->writes = (bhs[AT_FLAGS] & COMMAND_WRITE) != 0;
    command->expected_bytes = get_be32(bhs + AT_COMMAND_LENGTH);
    command->unsolicited_open = command->writes && (bhs[AT_FLAGS] & BHS_FINAL) == 0;
    command->unsolicited_limit =
        MIN(command->expected_bytes, connection->keys.parameters.first_burst_bytes);
    struct scsi_task *task = &command->task;
    task->nexus = session->nexus;
    memcpy(task->lun_field, bhs + AT_LUN, 8);
    memcpy(task->cdb, bhs + AT_CDB, SCSI_CDB_BYTES_MAX);
    task->expected_out_bytes = command->writes ? command->expected_bytes : 0;
    task->expected_in_bytes = command->reads ? command->expected_bytes : 0;
    task->done = task_done;
    task->dropped = task_dropped;
    task->owner = command;
    list_append(&session->commands, &command->in_session);
    list_append(&session->by_itt[command->itt % COMMAND_BUCKETS], &command->in_bucket);
    if (command->immediate) {
        session->immediate_count++;
    } else {
        session->command_count++;
    }
    counter_add(&session->commands_total, 1);
    return command;
}

/* Once more, when everybody can see that we wait: see server_memory_freed(). */
static void wait_for_memory(struct iscsi_command *command) {
    list_append(&command->loop->memory_waiters, &command->in_waiters);
    if (!atomic_exchange(&command->loop->has_waiters, true)) {
        (void)atomic_fetch_add(&command->loop->server->memory.waiting_loops, 1);
    }
    if (memory_is_there(command)) {
        list_remove(&command->in_waiters);
    }
}

void command_header(struct iscsi_connection *connection, bool in_window) {
    struct iscsi_rx *rx = &connection->rx;
    struct iscsi_session *session = connection->session;
    if (!in_window || session->nexus == NULL ||
        command_find(session, get_be32(rx->bhs + AT_ITT)) != NULL ||
        (bhs_is_immediate(rx->bhs) && session->immediate_count >= ISCSI_IMMEDIATE_MAX)) {
        return; /* ignored, or rejected by command_arrived() */
    }
    struct iscsi_command *command = command_new(connection);
    struct scsi_task *task = &command->task;
    rx->command = command;
    command->refs++;
    command->delivery_error =
        delivery_check(command, &connection->keys.parameters, rx->segment_bytes);
    if (command->delivery_error != SENSE_NONE) {
        task->status = SCSI_CHECK_CONDITION;
        struct scsi_sense sense = {.code = command->delivery_error};
        task->sense_bytes = scsi_sense_encode(&sense, false, task->sense);
        return;
    }
    if (!scsi_task_begin(task)) {
        return;
    }
    command->task_open = true;
    command->refs++;
    if (!memory_is_there(command)) {
        if (rx->segment_bytes != 0 || command->unsolicited_open) {
            command->no_memory = true;
        } else {
            wait_for_memory(command);
        }
        return;
    }
    if (task->data_out_bytes != 0 && rx->segment_bytes != 0) {
        rx->dest = command->buffer->pages->data;
        rx->wanted_bytes = MIN(rx->segment_bytes, task->data_out_bytes);
    }
}

static void reject_command(struct iscsi_connection *connection) {
    struct iscsi_session *session = connection->session;
    const uint8_t *bhs = connection->rx.bhs;
    if (session->nexus == NULL) {
        connection_reject(connection, REJECT_PROTOCOL_ERROR);
    } else if (bhs_is_immediate(bhs) && session->immediate_count >= ISCSI_IMMEDIATE_MAX) {
        connection_reject(connection, REJECT_TOO_MANY_IMMEDIATE);
    } else {
        connection_reject(connection, REJECT_TASK_IN_PROGRESS);
    }
}

/* Unsolicited data of `bytes` have arrived; `final` ends them. */
static void take_unsolicited(struct iscsi_command *command, uint32_t bytes, bool final) {
    command->unsolicited_bytes += bytes;
    command->arrived_bytes = MIN(command->unsolicited_bytes, command->task.data_out_bytes);
    command->asked_bytes = command->arrived_bytes;
    if (final || command->unsolicited_bytes == command->unsolicited_limit) {
        command->unsolicited_open = false;
    }
}

void command_arrived(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    struct iscsi_command *command = rx->command;
    if (command == NULL) {
        reject_command(connection);
        return;
    }
    if (command->session == NULL) {
        return; /* dropped while its data came in */
    }
    if (command->no_memory) {
        command_refuse(command, SENSE_NONE, SCSI_TASK_SET_FULL);
    } else if (!command->task_open) {
        command_respond(command);
    } else {
        take_unsolicited(command, rx->segment_bytes, !command->unsolicited_open);
        command_progress(command);
    }
}

/* ---- Data-Out ---- */

static struct iscsi_r2t *find_r2t(struct iscsi_command *command, uint32_t ttt) {
    for (uint32_t i = 0; i < ISCSI_R2T_MAX; i++) {
        if (command->r2ts[i].active && command->r2ts[i].ttt == ttt) {
            return &command->r2ts[i];
        }
    }
    return NULL;
}

/* Whether this PDU is what was agreed on. */
static enum scsi_sense_code data_out_check(struct iscsi_command *command, const uint8_t *bhs) {
    uint32_t ttt = get_be32(bhs + AT_TTT), data_sn = get_be32(bhs + AT_DATA_SN);
    uint32_t offset = get_be32(bhs + AT_BUFFER_OFFSET), bytes = bhs_data_bytes(bhs);
    if (ttt == ISCSI_TAG_NONE) {
        if (!command->unsolicited_open) {
            return SENSE_UNEXPECTED_UNSOLICITED_DATA;
        }
        if (data_sn != command->unsolicited_sn) {
            return SENSE_PROTOCOL_CRC;
        }
        bool fits = offset == command->unsolicited_bytes &&
                    bytes <= command->unsolicited_limit - command->unsolicited_bytes;
        return fits ? SENSE_NONE : SENSE_NOT_ENOUGH_UNSOLICITED_DATA;
    }
    struct iscsi_r2t *r2t = find_r2t(command, ttt);
    if (r2t == NULL) {
        return SENSE_UNEXPECTED_UNSOLICITED_DATA;
    }
    if (data_sn != r2t->data_sn && !SABOTAGE(iscsi_data_order_unchecked)) {
        return SENSE_PROTOCOL_CRC;
    }
    uint32_t left = r2t->length_bytes - r2t->received_bytes;
    bool fits = offset == r2t->offset_bytes + r2t->received_bytes && bytes <= left;
    bool ends_early = (bhs[AT_FLAGS] & BHS_FINAL) != 0 && bytes < left;
    return fits && !ends_early ? SENSE_NONE : SENSE_NOT_ENOUGH_UNSOLICITED_DATA;
}

void data_out_header(struct iscsi_connection *connection) {
    struct iscsi_rx *rx = &connection->rx;
    struct iscsi_command *command = command_find(connection->session, get_be32(rx->bhs + AT_ITT));
    /* Of a command that was aborted or has failed: what was under way is read and forgotten. */
    if (command == NULL || !command->task_open || command->ran) {
        rx->ignored = true;
        return;
    }
    rx->command = command;
    command->refs++;
    command->delivery_error = data_out_check(command, rx->bhs);
    if (command->delivery_error != SENSE_NONE || command->buffer == NULL) {
        return;
    }
    uint32_t offset = get_be32(rx->bhs + AT_BUFFER_OFFSET);
    if (offset < command->task.data_out_bytes) {
        rx->dest = (uint8_t *)command->buffer->pages->data + offset;
        rx->wanted_bytes = MIN(rx->segment_bytes, command->task.data_out_bytes - offset);
    }
}

void data_out_arrived(struct iscsi_connection *connection) {
    const uint8_t *bhs = connection->rx.bhs;
    struct iscsi_command *command = connection->rx.command;
    uint32_t bytes = bhs_data_bytes(bhs);
    if (command->session == NULL) {
        return;
    }
    if (command->delivery_error != SENSE_NONE) {
        command_refuse(command, command->delivery_error, SCSI_CHECK_CONDITION);
        return;
    }
    command->data_ns = connection->rx.arrived_ns;
    if (get_be32(bhs + AT_TTT) == ISCSI_TAG_NONE) {
        command->unsolicited_sn++;
        take_unsolicited(command, bytes, (bhs[AT_FLAGS] & BHS_FINAL) != 0);
    } else {
        struct iscsi_r2t *r2t = find_r2t(command, get_be32(bhs + AT_TTT));
        ASSERT(r2t != NULL);
        r2t->data_sn++;
        r2t->received_bytes += bytes;
        command->arrived_bytes += bytes;
        r2t->active = r2t->received_bytes < r2t->length_bytes;
    }
    command_progress(command);
}
