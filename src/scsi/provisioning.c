// SPDX-License-Identifier: MPL-2.0
/* Thin provisioning (SBC-3 §4.7): what is mapped, how much room is left, and who is told when there
 * is little.
 *
 * Room is counted in *threshold sets* of 16 MiB. A thin unit has one threshold, of the soft kind,
 * armed when what is available decreases: a fifth of what the pool can hold in the volume's
 * profile. It is looked at after so much has been written to the unit (nothing else takes room as
 * far as the unit's hosts are concerned), by a question to the volume beside the initiators'
 * requests. When it is passed, every I_T nexus is told once (38h/07h); the threshold is armed again
 * when clearly more room is available. */
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

enum { SET_SHIFT = 24, CHECK_BYTES = 1 << SET_SHIFT, THRESHOLD_PERCENT = 20, REARM_PERCENT = 22 };

uint32_t provisioning_exponent(const struct scsi_lun *lun) {
    return SET_SHIFT - lun->block_shift;
}

uint32_t provisioning_sets(uint64_t bytes) {
    return (uint32_t)MIN(bytes >> SET_SHIFT, (uint64_t)UINT32_MAX);
}

uint64_t provisioning_threshold_bytes(const struct scsi_lun *lun) {
    return lun->space.total_bytes / 100 * THRESHOLD_PERCENT;
}

/* ---- the threshold ---- */

static void space_known(struct scsi_lun *lun) {
    uint64_t total = lun->space.total_bytes, left = lun->space.free_bytes;
    if (lun->removed || lun->info.thick || total == 0) {
        return;
    }
    if (left > total / 100 * REARM_PERCENT) {
        lun->threshold_passed = false;
    } else if (left <= provisioning_threshold_bytes(lun) && !lun->threshold_passed &&
               !list_is_empty(&lun->target->nexuses)) {
        lun->threshold_passed = true;
        ua_establish(lun, SENSE_THIN_THRESHOLD, NULL);
    }
}

static void space_answered(struct volume_request *request) {
    struct scsi_lun *lun = request->owner;
    struct scsi_target *target = lun->target;
    scsi_lock(target);
    lun->space_check.in_volume = false;
    if (request->status == OK) {
        lun->space = lun->space_check.answer;
        space_known(lun);
    }
    scsi_lun_release(lun);
    scsi_unlock(target);
}

void provisioning_refresh(struct scsi_lun *lun) {
    struct space_check *check = &lun->space_check;
    if (check->in_volume || lun->removed) {
        return;
    }
    lun->unchecked_bytes = 0;
    check->in_volume = true;
    check->iov = (struct iovec){&check->answer, sizeof(check->answer)};
    check->request = (struct volume_request){.client = lun->env,
                                             .door = lun->door,
                                             .volume_id = lun->info.id,
                                             .op = VOLUME_SPACE,
                                             .iov = &check->iov,
                                             .iov_count = 1,
                                             .done = space_answered,
                                             .owner = lun};
    volume_submit(&check->request);
}

void provisioning_wrote(struct scsi_lun *lun, uint64_t bytes) {
    lun->unchecked_bytes += bytes;
    if (lun->unchecked_bytes >= CHECK_BYTES && !lun->info.thick) {
        provisioning_refresh(lun);
    }
}

/* ---- GET LBA STATUS (SBC-3 §5.4) ---- */

enum { STATUS_HEADER_BYTES = 8, STATUS_BYTES = 16, RUNS_MAX = 255, DEALLOCATED = 1 };

void lba_status_check(struct scsi_task *task) {
    if (get_be64(task->cdb + 2) >= task->lun->blocks) {
        scsi_fail(task, SENSE_LBA_OUT_OF_RANGE);
    }
}

static void lba_status_step(struct scsi_task *task) {
    const struct volume_run *runs = task->scratch->data;
    uint8_t bytes[STATUS_HEADER_BYTES + RUNS_MAX * STATUS_BYTES] = {0};
    uint64_t lba = get_be64(task->cdb + 2);
    uint32_t at = STATUS_HEADER_BYTES;
    for (uint32_t i = 0; i < task->descriptor && runs[i].length_bytes != 0; i++) {
        uint64_t blocks = runs[i].length_bytes >> task->lun->block_shift;
        put_be64(bytes + at, lba);
        put_be32(bytes + at + 8, (uint32_t)MIN(blocks, (uint64_t)UINT32_MAX));
        bytes[at + 12] = runs[i].mapped ? 0 : DEALLOCATED;
        at += STATUS_BYTES;
        lba += blocks;
        if (blocks > UINT32_MAX) {
            break; /* one descriptor cannot say more; the rest is asked for again */
        }
    }
    put_be32(bytes, at - 4);
    scsi_respond(task, bytes, at);
}

/* As many runs as the initiator has room for, at least one. */
void lba_status_run(struct scsi_task *task) {
    uint64_t offset = get_be64(task->cdb + 2) << task->lun->block_shift;
    uint64_t room = get_be32(task->cdb + 10);
    uint64_t runs = room > STATUS_HEADER_BYTES ? (room - STATUS_HEADER_BYTES) / STATUS_BYTES : 0;
    task->descriptor = (uint32_t)MIN(MAX(runs, (uint64_t)1), (uint64_t)RUNS_MAX);
    uint64_t bytes = task->descriptor * sizeof(struct volume_run);
    task->scratch = mem_pages_new(bytes);
    task->step = lba_status_step;
    scsi_volume_submit(task, VOLUME_QUERY, offset, task->lun->info.size_bytes - offset,
                       task->scratch->data, bytes);
}
