// SPDX-License-Identifier: MPL-2.0
/* Task management (RFC 7143 §11.5, §11.6).
 *
 * Every function is answered at once: what a task still has in the volume is left behind (see
 * scsi.h). A task that is not known any more has ended, since on the single connection of a session
 * nothing can be still under way; ABORT TASK then answers "function complete", as §11.6.1 asks for
 * what lies inside the window. Hosts that were told "task does not exist" instead have been seen to
 * escalate to resets. */
#include <string.h>

#include "base/sabotage.h"
#include "iscsi/internal.h"

enum function {
    ABORT_TASK = 1,
    ABORT_TASK_SET = 2,
    CLEAR_ACA = 3,
    CLEAR_TASK_SET = 4,
    LOGICAL_UNIT_RESET = 5,
    TARGET_WARM_RESET = 6,
    TARGET_COLD_RESET = 7,
    TASK_REASSIGN = 8,
};

enum response {
    FUNCTION_COMPLETE = 0,
    NO_SUCH_TASK = 1,
    NO_SUCH_LUN = 2,
    REASSIGN_NOT_SUPPORTED = 4,
    FUNCTION_NOT_SUPPORTED = 5,
    FUNCTION_REJECTED = 255,
};

static enum response abort_task(struct iscsi_session *session, const uint8_t *bhs) {
    struct iscsi_command *command = command_find(session, get_be32(bhs + AT_REFERENCED_TASK));
    if (command != NULL) {
        command_drop(command);
        return FUNCTION_COMPLETE;
    }
    uint32_t ref_cmd_sn = get_be32(bhs + AT_REF_CMDSN);
    return serial_is_before(ref_cmd_sn, session->exp_cmd_sn) ? FUNCTION_COMPLETE : NO_SUCH_TASK;
}

/* For the device server a task has ended when its status is known; for the initiator when it has
 * the status, and after this answer it knows the task no more (RFC 7143 §4.2.3.3). So what is still
 * to be sent of the session's own tasks stays unsent. */
static void drop_answers(struct iscsi_session *session, enum scsi_function function,
                         const uint8_t *lun_field) {
    LIST_FOR_EACH_SAFE(it, &session->commands) {
        struct iscsi_command *command = CONTAINER_OF(it, struct iscsi_command, in_session);
        if (function == SCSI_TARGET_RESET || memcmp(command->task.lun_field, lun_field, 8) == 0) {
            command_drop(command);
        }
    }
}

static enum response manage(struct iscsi_session *session, enum scsi_function function,
                            const uint8_t *bhs) {
    if (scsi_manage(session->nexus, function, bhs + AT_LUN) != OK) {
        return NO_SUCH_LUN;
    }
    if (!SABOTAGE(iscsi_answer_after_reset)) {
        drop_answers(session, function, bhs + AT_LUN);
    }
    return FUNCTION_COMPLETE;
}

/* RFC 7143 §11.5.1: a cold reset also ends all sessions of the target. */
static void cold_reset(struct iscsi_connection *connection) {
    struct iscsi_server *server = connection->server;
    const struct iscsi_target *target = connection->session->target;
    struct list orders;
    list_init(&orders);
    server_lock(server);
    LIST_FOR_EACH(it, &server->connections) {
        struct iscsi_connection *other = CONTAINER_OF(it, struct iscsi_connection, in_server);
        if (other != connection && other->session != NULL && other->session->target == target) {
            order_add(&orders, order_close(other, "the target was reset"));
        }
    }
    server_unlock(server);
    orders_go(&orders, connection->loop);
    connection_flush_and_close(connection);
}

void management_request(struct iscsi_connection *connection) {
    struct iscsi_session *session = connection->session;
    const uint8_t *bhs = connection->rx.bhs;
    enum function function = bhs[AT_FLAGS] & 0x7f;
    enum response response = FUNCTION_REJECTED;
    if (session->nexus == NULL) {
        connection_reject(connection, REJECT_PROTOCOL_ERROR);
        return;
    }
    switch (function) {
    case ABORT_TASK:
        response = abort_task(session, bhs);
        break;
    case ABORT_TASK_SET:
        response = manage(session, SCSI_ABORT_TASK_SET, bhs);
        break;
    case CLEAR_TASK_SET:
        response = manage(session, SCSI_CLEAR_TASK_SET, bhs);
        break;
    case LOGICAL_UNIT_RESET:
        response = manage(session, SCSI_LUN_RESET, bhs);
        break;
    case TARGET_WARM_RESET:
    case TARGET_COLD_RESET:
        response = manage(session, SCSI_TARGET_RESET, bhs);
        break;
    case TASK_REASSIGN:
        response = REASSIGN_NOT_SUPPORTED;
        break;
    case CLEAR_ACA:
        response = FUNCTION_NOT_SUPPORTED;
        break;
    }
    struct iscsi_tx *tx = tx_new(OP_TASK_MANAGEMENT_RESPONSE, BHS_FINAL);
    tx->bhs[AT_RESPONSE] = (uint8_t)response;
    memcpy(tx->bhs + AT_ITT, bhs + AT_ITT, 4);
    tx_queue(connection, tx);
    if (function == TARGET_COLD_RESET) {
        cold_reset(connection);
    }
}
