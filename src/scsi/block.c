// SPDX-License-Identifier: MPL-2.0
/* Commands that reach the medium (SBC-3 §5).
 *
 * check() turns the CDB into a range of bytes, an operation and lengths of data. run() picks the
 * step function; each step submits the next volume request or ends the task:
 *
 *   transfer   READ, WRITE, COMPARE AND WRITE: the data as they are, in pieces
 *   range      VERIFY, WRITE SAME of zeros: no data, one request
 *   compare    VERIFY with BYTCHK: reads pieces into scratch memory and compares them
 *   pattern    WRITE SAME of anything else: writes a scratch full of the block, repeatedly
 *   unmap      the list of descriptors, one after another
 *
 * Unmapped blocks must read as zero (LBPRZ), also when a range begins or ends inside one of the
 * 4 KiB blocks that the volume can give back. So the edges are written with zeros. In a full pool
 * that may fail; then they stay as they were, mapped, which SBC-3 §4.7.3.4 allows, and the rest of
 * the range is given back all the same. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

enum { SCRATCH_BYTES = 256 << 10, UNIT_BYTES = 4096 };

/* WRITE SAME bits of byte 1; VERIFY's BYTCHK. */
enum { NDOB = 0x01, UNMAP_BIT = 0x08, ANCHOR = 0x10, FUA = 0x08 };

/* ---- the range of a CDB ---- */

struct range {
    uint64_t lba, blocks;
    uint32_t lba_at, blocks_at; /* where the fields lie, for sense data */
};

static struct range cdb_range(const uint8_t *cdb) {
    switch (cdb[0] >> 5) {
    case 0: /* 6 bytes; 0 blocks means 256 */
        return (struct range){get_be24(cdb + 1) & 0x1fffff, cdb[4] == 0 ? 256 : cdb[4], 1, 4};
    case 1:
    case 2:
        return (struct range){get_be32(cdb + 2), get_be16(cdb + 7), 2, 7};
    case 5:
        return (struct range){get_be32(cdb + 2), get_be32(cdb + 6), 2, 6};
    default:
        return (struct range){get_be64(cdb + 2), get_be32(cdb + 10), 2, 10};
    }
}

static bool take_range(struct scsi_task *task, const struct range *range, uint64_t bytes_max) {
    const struct scsi_lun *lun = task->lun;
    if (!range_is_within(range->lba, range->blocks, lun->blocks)) {
        scsi_fail(task, SENSE_LBA_OUT_OF_RANGE);
        return false;
    }
    if (range->blocks > bytes_max >> lun->block_shift) {
        scsi_fail_cdb(task, range->blocks_at, NO_BIT);
        return false;
    }
    task->start_bytes = range->lba << lun->block_shift;
    task->cursor_bytes = task->start_bytes;
    task->end_bytes = task->start_bytes + (range->blocks << lun->block_shift);
    return true;
}

static uint64_t range_bytes(const struct scsi_task *task) {
    return task->end_bytes - task->start_bytes;
}

/* ---- checks ---- */

void read_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    if (!take_range(task, &range, SCSI_TRANSFER_BYTES_MAX)) {
        return;
    }
    task->op = VOLUME_READ;
    /* FUA of a read wants what is on the medium: with a write cache, write that out first. */
    task->flush_first =
        task->cdb[0] != 0x08 && (task->cdb[1] & FUA) != 0 && !task->lun->info.sync_always;
    task->transfer_bytes = range_bytes(task);
    task->data_in_bytes = (uint32_t)range_bytes(task);
}

static void take_write(struct scsi_task *task) {
    task->op = VOLUME_WRITE;
    task->transfer_bytes = range_bytes(task);
    task->data_out_bytes = (uint32_t)range_bytes(task);
}

void write_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    if (take_range(task, &range, SCSI_TRANSFER_BYTES_MAX)) {
        task->fua = task->cdb[0] != 0x0a && (task->cdb[1] & FUA) != 0;
        take_write(task);
    }
}

/* BYTCHK (SBC-3 §5.32): 0 verify, 1 compare with as much data, 3 compare with one block. */
static bool take_byte_check(struct scsi_task *task) {
    uint32_t check = task->cdb[1] >> 1 & 3;
    if (check == 2) {
        scsi_fail_cdb(task, 1, 2);
        return false;
    }
    task->compare = check != 0;
    return true;
}

void write_and_verify_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    if ((task->cdb[1] >> 1 & 3) == 3) {
        scsi_fail_cdb(task, 1, 2);
        return;
    }
    if (take_byte_check(task) && take_range(task, &range, SCSI_TRANSFER_BYTES_MAX)) {
        task->fua = true;
        task->verify_after = true;
        take_write(task);
    }
}

void verify_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    if (!take_byte_check(task) || !take_range(task, &range, SCSI_TRANSFER_BYTES_MAX)) {
        return;
    }
    task->op = VOLUME_VERIFY;
    if (task->compare && range_bytes(task) != 0) {
        bool one_block = (task->cdb[1] >> 1 & 3) == 3;
        task->data_out_bytes = one_block ? task->lun->block_bytes : (uint32_t)range_bytes(task);
        task->transfer_bytes = task->data_out_bytes;
    }
}

/* For commands whose data cannot be cut: an initiator that holds another amount ready means
 * something else than its CDB says. */
static void take_exact_data(struct scsi_task *task, uint32_t bytes, uint32_t field_at) {
    if (task->expected_out_bytes != bytes) {
        scsi_fail_cdb(task, field_at, NO_BIT);
        return;
    }
    task->data_out_bytes = bytes;
    task->transfer_bytes = bytes;
}

void compare_and_write_check(struct scsi_task *task) {
    struct range range = {get_be64(task->cdb + 2), task->cdb[13], 2, 13};
    uint64_t bytes_max = (uint64_t)scsi_compare_blocks_max(task->lun) << task->lun->block_shift;
    if (take_range(task, &range, bytes_max)) {
        task->op = VOLUME_COMPARE_AND_WRITE;
        task->fua = (task->cdb[1] & FUA) != 0;
        take_exact_data(task, 2 * (uint32_t)range_bytes(task), range.blocks_at);
    }
}

void write_same_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    bool no_data = task->cdb[0] == 0x93 && (task->cdb[1] & NDOB) != 0;
    if (task->cdb[1] & ANCHOR) {
        scsi_fail_cdb(task, 1, 4);
        return;
    }
    if (range.blocks == 0) {
        scsi_fail_cdb(task, range.blocks_at, NO_BIT);
        return;
    }
    if (take_range(task, &range, WRITE_SAME_BYTES_MAX)) {
        task->op = VOLUME_WRITE_ZEROES;
        take_exact_data(task, no_data ? 0 : task->lun->block_bytes, range.blocks_at);
    }
}

void synchronize_check(struct scsi_task *task) {
    struct range range = cdb_range(task->cdb);
    if (take_range(task, &range, UINT64_MAX)) {
        task->op = VOLUME_FLUSH;
    }
}

/* ---- steps ---- */

static void count_transfer(struct scsi_task *task) {
    struct scsi_lun *lun = task->lun;
    uint64_t bytes = task->cursor_bytes - task->start_bytes;
    lun->latency_ns += env_now_ns(task->env) - task->began_ns;
    if (task->op == VOLUME_READ) {
        lun->reads++;
        lun->read_bytes += bytes;
    } else if (task->op == VOLUME_WRITE || task->op == VOLUME_COMPARE_AND_WRITE) {
        lun->writes++;
        lun->write_bytes += bytes;
    }
}

static void verify_start(struct scsi_task *task);

static void transfer_step(struct scsi_task *task) {
    if (task->cursor_bytes == task->end_bytes) {
        count_transfer(task);
        if (task->verify_after) {
            verify_start(task);
            return;
        }
        if (task->op == VOLUME_READ) {
            task->data_in_ready_bytes = (uint32_t)MIN(range_bytes(task), task->expected_in_bytes);
        }
        scsi_task_end(task);
        return;
    }
    uint64_t at = task->cursor_bytes;
    uint64_t bytes = MIN(task->end_bytes - at, (uint64_t)VOLUME_REQUEST_BYTES_MAX);
    uint8_t *data = task->op == VOLUME_READ ? task->data_in : task->data_out;
    uint64_t data_bytes = task->op == VOLUME_COMPARE_AND_WRITE ? 2 * bytes : bytes;
    task->cursor_bytes += bytes;
    scsi_volume_submit(task, task->op, at, bytes, data + (at - task->start_bytes), data_bytes);
}

static void range_step(struct scsi_task *task) {
    if (task->cursor_bytes == task->end_bytes) {
        scsi_task_end(task);
        return;
    }
    uint64_t at = task->cursor_bytes;
    task->cursor_bytes = task->end_bytes;
    scsi_volume_submit(task, task->op, at, task->end_bytes - at, NULL, 0);
}

static void flush_first_step(struct scsi_task *task) {
    task->step = transfer_step;
    transfer_step(task);
}

/* Compares the piece before the cursor, which lies in the scratch, with what the initiator sent:
 * as many bytes, or one block against each. Without the lock. */
static bool piece_is_equal(struct scsi_task *task, uint32_t block_bytes) {
    uint64_t piece = task->request.length_bytes;
    uint64_t offset = task->cursor_bytes - piece - task->start_bytes;
    const uint8_t *medium = task->scratch->data;
    for (uint64_t i = 0; i < piece; i += block_bytes) {
        uint64_t at = (offset + i) % task->data_out_bytes;
        const uint8_t *sent = task->data_out + at;
        if (memcmp(medium + i, sent, block_bytes) == 0) {
            continue;
        }
        uint32_t byte = 0;
        while (medium[i + byte] == sent[byte]) {
            byte++;
        }
        task->request.error_bytes = at + byte;
        return false;
    }
    return true;
}

static void compare_step(struct scsi_task *task) {
    bool first = task->cursor_bytes == task->start_bytes, equal = true;
    if (!first) {
        uint32_t block_bytes = task->lun->block_bytes;
        scsi_step_pause(task);
        equal = piece_is_equal(task, block_bytes);
        if (!scsi_step_resume(task)) {
            return;
        }
    }
    if (!equal) {
        scsi_fail_error(task, ERR_MISCOMPARE);
        scsi_task_end(task);
        return;
    }
    if (task->cursor_bytes == task->end_bytes) {
        scsi_task_end(task);
        return;
    }
    uint64_t at = task->cursor_bytes;
    uint64_t bytes = MIN(task->end_bytes - at, (uint64_t)SCRATCH_BYTES);
    task->cursor_bytes += bytes;
    scsi_volume_submit(task, VOLUME_READ, at, bytes, task->scratch->data, bytes);
}

static void verify_start(struct scsi_task *task) {
    task->cursor_bytes = task->start_bytes;
    task->op = VOLUME_VERIFY;
    task->step = range_step;
    if (task->compare && range_bytes(task) != 0) {
        uint64_t bytes = MIN(range_bytes(task), (uint64_t)SCRATCH_BYTES);
        task->scratch = mem_pages_new(bytes);
        task->step = compare_step;
    }
    task->step(task);
}

static void pattern_step(struct scsi_task *task) {
    if (task->cursor_bytes == task->end_bytes) {
        scsi_task_end(task);
        return;
    }
    uint64_t at = task->cursor_bytes;
    uint64_t bytes = MIN(task->end_bytes - at, (uint64_t)SCRATCH_BYTES);
    task->cursor_bytes += bytes;
    scsi_volume_submit(task, VOLUME_WRITE, at, bytes, task->scratch->data, bytes);
}

static void write_same_start(struct scsi_task *task) {
    uint32_t block = task->lun->block_bytes;
    bool zero = true;
    for (uint32_t i = 0; i < task->data_out_bytes && zero; i++) {
        zero = task->data_out[i] == 0;
    }
    task->step = range_step;
    if (!zero) {
        uint64_t bytes = MIN(range_bytes(task), (uint64_t)SCRATCH_BYTES);
        task->scratch = mem_pages_new(bytes);
        scsi_step_pause(task);
        for (uint64_t i = 0; i < bytes; i += block) {
            memcpy((uint8_t *)task->scratch->data + i, task->data_out, block);
        }
        if (!scsi_step_resume(task)) {
            return;
        }
        task->step = pattern_step;
    }
    task->step(task);
}

/* ORWRITE (SBC-3 §5.7). Read, OR, write: the write is a comparison with what was read, so that
 * nobody's write in between is lost; if there was one, it begins again. The scratch holds what was
 * read and, behind it, what it becomes. */
enum { OR_BYTES = 64 << 10, OR_ATTEMPTS_MAX = 1000 };

static void or_write_step(struct scsi_task *task);

static void or_read(struct scsi_task *task) {
    uint64_t bytes = MIN(task->end_bytes - task->cursor_bytes, (uint64_t)OR_BYTES);
    scsi_volume_submit(task, VOLUME_READ, task->cursor_bytes, bytes, task->scratch->data, bytes);
}

static void or_write_step(struct scsi_task *task) {
    uint64_t bytes = task->request.length_bytes;
    if (task->request.status != OK && task->request.status != ERR_MISCOMPARE) {
        scsi_fail_error(task, task->request.status);
        scsi_task_end(task);
        return;
    }
    if (task->request.op == VOLUME_READ) {
        uint8_t *was = task->scratch->data, *becomes = was + bytes;
        const uint8_t *sent = task->data_out + (task->cursor_bytes - task->start_bytes);
        scsi_step_pause(task);
        for (uint64_t i = 0; i < bytes; i++) {
            becomes[i] = was[i] | sent[i];
        }
        if (!scsi_step_resume(task)) {
            return;
        }
        scsi_volume_submit(task, VOLUME_COMPARE_AND_WRITE, task->cursor_bytes, bytes, was,
                           2 * bytes);
        return;
    }
    if (task->request.status == OK) {
        task->cursor_bytes += bytes;
        task->descriptor = 0;
    } else if (++task->descriptor == OR_ATTEMPTS_MAX) {
        scsi_fail_status(task, SCSI_BUSY);
        task->end_bytes = task->cursor_bytes;
    }
    if (task->cursor_bytes == task->end_bytes) {
        count_transfer(task);
        scsi_task_end(task);
        return;
    }
    or_read(task);
}

/* ---- starts ---- */

/* What an initiator that expects to move less than the command wants has given us: whole blocks of
 * it are carried out, the residual tells it the rest (SAM-5 §5.4.3). */
static void cut_to_expected(struct scsi_task *task) {
    uint64_t have = task->op == VOLUME_READ ? task->data_in_bytes : task->data_out_bytes;
    uint64_t blocks_bytes = round_down(have, task->lun->block_bytes);
    task->end_bytes = MIN(task->end_bytes, task->start_bytes + blocks_bytes);
}

void medium_run(struct scsi_task *task) {
    bool short_data = task->data_out_bytes < task->transfer_bytes;
    switch (task->op) {
    case VOLUME_READ:
    case VOLUME_WRITE:
        cut_to_expected(task);
        if (task->flush_first && task->end_bytes > task->start_bytes) {
            task->step = flush_first_step;
            scsi_volume_submit(task, VOLUME_FLUSH, 0, 0, NULL, 0);
            return;
        }
        task->step = transfer_step;
        break;
    case VOLUME_VERIFY:
    case VOLUME_COMPARE_AND_WRITE:
    case VOLUME_WRITE_ZEROES:
        /* A part of a comparison or of a pattern means nothing. */
        if (short_data) {
            scsi_fail(task, SENSE_INVALID_FIELD_IN_UNIT);
            scsi_task_end(task);
            return;
        }
        if (task->op == VOLUME_VERIFY) {
            verify_start(task);
            return;
        }
        if (task->op == VOLUME_WRITE_ZEROES) {
            write_same_start(task);
            return;
        }
        task->step = transfer_step;
        break;
    default:
        ASSERT(false);
    }
    task->step(task);
}

void or_write_run(struct scsi_task *task) {
    cut_to_expected(task);
    if (task->end_bytes == task->start_bytes) {
        scsi_task_end(task);
        return;
    }
    task->scratch = mem_pages_new(2 * (size_t)OR_BYTES);
    task->takes_errors = true;
    task->step = or_write_step;
    or_read(task);
}

static void flushed_step(struct scsi_task *task) {
    scsi_task_end(task);
}

/* SYNCHRONIZE CACHE. With IMMED the flush could be left to its own; answering only when it is
 * durable is allowed and safer. Nothing to do when every write is durable anyway. */
void synchronize_run(struct scsi_task *task) {
    if (task->lun->info.sync_always) {
        scsi_task_end(task);
        return;
    }
    task->step = flushed_step;
    scsi_volume_submit(task, VOLUME_FLUSH, 0, 0, NULL, 0);
}

/* ---- UNMAP (SBC-3 §5.28) ---- */

void unmap_check(struct scsi_task *task) {
    task->op = VOLUME_UNMAP;
    if (task->cdb[1] & 0x01) {
        scsi_fail_cdb(task, 1, 0);
    }
}

/* The next part of the range at the cursor: up to the next 4 KiB boundary, whole 4 KiB blocks, or
 * the rest. */
static uint64_t unmap_part(const struct scsi_task *task, enum volume_op *ret_op) {
    uint64_t first = round_up(task->cursor_bytes, UNIT_BYTES);
    uint64_t last = round_down(task->end_bytes, UNIT_BYTES);
    if (task->cursor_bytes == first && last > first) {
        *ret_op = VOLUME_UNMAP;
        return last;
    }
    *ret_op = VOLUME_WRITE_ZEROES;
    return first > task->cursor_bytes ? MIN(first, task->end_bytes) : task->end_bytes;
}

static void unmap_step(struct scsi_task *task) {
    const struct scsi_lun *lun = task->lun;
    while (task->cursor_bytes == task->end_bytes) {
        uint32_t at = 8 + 16 * task->descriptor;
        if (at + 16 > task->data_out_bytes || at + 16 > 8u + get_be16(task->data_out + 2)) {
            scsi_task_end(task);
            return;
        }
        const uint8_t *descriptor = task->data_out + at;
        task->cursor_bytes = get_be64(descriptor) << lun->block_shift;
        task->end_bytes =
            task->cursor_bytes + ((uint64_t)get_be32(descriptor + 8) << lun->block_shift);
        task->descriptor++;
    }
    enum volume_op op;
    uint64_t from = task->cursor_bytes;
    task->cursor_bytes = unmap_part(task, &op);
    scsi_volume_submit(task, op, from, task->cursor_bytes - from, NULL, 0);
}

static bool unmap_list_is_good(struct scsi_task *task) {
    const struct scsi_lun *lun = task->lun;
    uint32_t length = task->data_out_bytes;
    if (length < 8 || length < task->transfer_bytes) {
        if (task->transfer_bytes > SCSI_PARAMETER_BYTES_MAX) {
            scsi_fail_cdb(task, 7, NO_BIT);
        } else {
            scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
        }
        return false;
    }
    uint32_t descriptor_bytes = get_be16(task->data_out + 2);
    if (descriptor_bytes > length - 8) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
        return false;
    }
    uint64_t total = 0;
    for (uint32_t at = 8; at + 16 <= 8 + descriptor_bytes; at += 16) {
        uint64_t lba = get_be64(task->data_out + at);
        uint64_t blocks = get_be32(task->data_out + at + 8);
        if (!range_is_within(lba, blocks, lun->blocks)) {
            scsi_fail(task, SENSE_LBA_OUT_OF_RANGE);
            return false;
        }
        total += blocks;
    }
    if (total > (uint64_t)UNMAP_BYTES_MAX >> lun->block_shift) {
        scsi_fail_parameter(task, 16, NO_BIT);
        return false;
    }
    return true;
}

void unmap_run(struct scsi_task *task) {
    /* A parameter list of length zero is no error (SBC-3 §5.28.1). */
    if (task->transfer_bytes != 0 && !unmap_list_is_good(task)) {
        scsi_task_end(task);
        return;
    }
    task->start_bytes = task->cursor_bytes = task->end_bytes = 0;
    task->step = unmap_step;
    if (task->transfer_bytes == 0) {
        scsi_task_end(task);
        return;
    }
    unmap_step(task);
}
