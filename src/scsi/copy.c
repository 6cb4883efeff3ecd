// SPDX-License-Identifier: MPL-2.0
/* EXTENDED COPY (LID1) and RECEIVE COPY RESULTS (SPC-4 §6.4, §6.17 to 6.21; the model is §5.16).
 *
 * The copy manager is inside the target: it copies between units of it, which are named by the NAA
 * designators of their page 83h, or within one. A copy is one command, answered when it is done:
 *
 *     for each segment (block to block, 02h)
 *         ask the source's volume which parts hold something ── unmapped ──> zeros over there
 *              │ mapped
 *         read a piece ──> write it
 *
 * So holes stay holes. One request at a time, one buffer of COPY_BYTES a copy, COPIES_MAX copies a
 * target: what a copy holds is bounded whatever its length; more copies are BUSY. Everything about
 * the list is checked before anything is copied, but for errors of the medium.
 *
 * A copy keeps its units alive while it runs. A list identifier names it for its I_T nexus: for
 * COPY STATUS and COPY OPERATION ABORT while it runs, and for what became of it afterwards; each
 * nexus remembers its last COPY_RESULTS. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

enum { COPY_BYTES = 2 << 20, ZEROES_BYTES = 256 << 20, COPIES_MAX = 16 };
enum { HEADER_BYTES = 16, CSCD_BYTES = 32, SEGMENT_BYTES = 28 };
enum { CSCDS_MAX = 16, SEGMENTS_MAX = 100, SEGMENT_BLOCKS_MAX = 0xffff };
enum {
    DESCRIPTOR_BYTES_MAX = CSCDS_MAX * CSCD_BYTES + SEGMENTS_MAX * SEGMENT_BYTES,
    SEGMENT_DATA_BYTES_MAX = SEGMENT_BLOCKS_MAX * 4096,
};
_Static_assert(HEADER_BYTES + DESCRIPTOR_BYTES_MAX <= SCSI_PARAMETER_BYTES_MAX, "lists arrive");
enum { CSCD_IDENTIFICATION = 0xe4, BLOCK_TO_BLOCK = 0x02, DC = 0x02 };
enum { USAGE_RESERVED = 1, USAGE_NONE = 3 };
enum { IN_PROGRESS = 0, DONE = 1, DONE_BADLY = 2 };

struct scsi_copy {
    struct list in_target;
    struct scsi_task *task;
    uint8_t list_id;
    bool has_id, cancelled;
    struct scsi_lun *units[CSCDS_MAX];
    uint32_t unit_count;
    const uint8_t *segments;
    uint32_t segment_count, segments_done;
    uint64_t transferred_bytes;
    /* The segment under way. */
    struct scsi_lun *from, *to;
    uint64_t from_bytes, to_bytes, left_bytes;
    struct volume_run runs[64];
    uint32_t run;
    uint64_t piece_bytes;
    enum { COPY_ASKS, COPY_READS, COPY_WRITES } doing;
};

/* ---- the list ---- */

static void refuse(struct scsi_copy *copy, enum scsi_sense_code code) {
    scsi_fail(copy->task, code);
}

/* COPY ABORTED, with the number of the segment (SPC-4 §5.16.7.4). */
static void refuse_segment(struct scsi_copy *copy, enum scsi_sense_code code) {
    scsi_fail_sense(copy->task, &(struct scsi_sense){
                                    .code = code, .info_valid = true, .info = copy->segments_done});
}

/* What the nexus may not see it may not copy either. */
static struct scsi_lun *find_unit(const struct scsi_nexus *nexus, const uint8_t *naa) {
    for (uint32_t i = 0; i < SCSI_LUNS_MAX; i++) {
        uint8_t own[SCSI_NAA_BYTES];
        struct scsi_lun *lun = nexus_lun(nexus, i);
        if (lun != NULL && lun->readiness == UNIT_READY) {
            scsi_lun_naa(lun, own);
            if (memcmp(own, naa, sizeof(own)) == 0) {
                return lun;
            }
        }
    }
    return NULL;
}

/* Descriptors of units: a disk, by its NAA designator (§6.4.5.2). */
static void take_unit(struct scsi_copy *copy, uint32_t at) {
    const uint8_t *descriptor = copy->task->data_out + at;
    if (descriptor[0] != CSCD_IDENTIFICATION) {
        refuse(copy, SENSE_UNSUPPORTED_CSCD);
        return;
    }
    if ((descriptor[1] & 0x1f) != 0) { /* not a disk; SPC-4 wants the other bits ignored */
        scsi_fail_parameter(copy->task, at + 1, 4);
        return;
    }
    bool naa = (descriptor[4] & 0x0f) == 1 && (descriptor[5] & 0x3f) == 3 &&
               descriptor[7] == SCSI_NAA_BYTES;
    struct scsi_lun *unit = naa ? find_unit(copy->task->nexus, descriptor + 8) : NULL;
    if (unit == NULL) {
        refuse(copy, SENSE_COPY_UNREACHABLE);
        return;
    }
    uint32_t block = get_be24(descriptor + 29);
    if (block != unit->block_bytes && block != 0) {
        scsi_fail_parameter(copy->task, at + 29, NO_BIT);
        return;
    }
    unit->users++;
    copy->units[copy->unit_count++] = unit;
}

/* Where a segment's data come from and go to; refuses what cannot be. */
static void segment_begin(struct scsi_copy *copy) {
    const uint8_t *segment = copy->segments + (size_t)copy->segments_done * SEGMENT_BYTES;
    uint32_t from = get_be16(segment + 4), to = get_be16(segment + 6);
    if (from >= copy->unit_count || to >= copy->unit_count) {
        refuse_segment(copy, SENSE_COPY_UNREACHABLE);
        return;
    }
    copy->from = copy->units[from];
    copy->to = copy->units[to];
    const struct scsi_lun *counted = segment[1] & DC ? copy->to : copy->from;
    uint64_t bytes = (uint64_t)get_be16(segment + 10) << counted->block_shift;
    uint64_t from_lba = get_be64(segment + 12), to_lba = get_be64(segment + 20);
    if (bytes % copy->from->block_bytes != 0 || bytes % copy->to->block_bytes != 0) {
        refuse_segment(copy, SENSE_COPY_INEXACT);
        return;
    }
    if (!range_is_within(from_lba, bytes >> copy->from->block_shift, copy->from->blocks) ||
        !range_is_within(to_lba, bytes >> copy->to->block_shift, copy->to->blocks)) {
        refuse_segment(copy, SENSE_COPY_ABORTED);
        return;
    }
    copy->from_bytes = from_lba << copy->from->block_shift;
    copy->to_bytes = to_lba << copy->to->block_shift;
    copy->left_bytes = bytes;
    copy->runs[0].length_bytes = 0;
    copy->run = 0;
    if (copy->from == copy->to && copy->from_bytes < copy->to_bytes + bytes &&
        copy->to_bytes < copy->from_bytes + bytes) {
        /* What would come of it depends on the order, which nobody promises. */
        scsi_fail_parameter(copy->task, (uint32_t)(segment - copy->task->data_out) + 20, NO_BIT);
    }
}

static void check_segments(struct scsi_copy *copy) {
    const struct scsi_nexus *nexus = copy->task->nexus;
    for (uint32_t i = 0; i < copy->segment_count && !copy->task->failed; i++) {
        copy->segments_done = i;
        segment_begin(copy);
        if (copy->task->failed) {
            break;
        }
        if (reservations_conflict(copy->from, nexus,
                                  CONFLICT_EXCLUSIVE_ACCESS | CONFLICT_RESERVE) ||
            reservations_conflict(copy->to, nexus,
                                  CONFLICT_WRITE_EXCLUSIVE | CONFLICT_EXCLUSIVE_ACCESS |
                                      CONFLICT_RESERVE)) {
            scsi_fail_status(copy->task, SCSI_RESERVATION_CONFLICT);
        } else if (copy->to->software_write_protect) {
            refuse_segment(copy, SENSE_COPY_WRITE_PROTECTED);
        }
    }
    copy->segments_done = 0;
}

static struct scsi_copy *find_copy(const struct scsi_nexus *nexus, uint32_t list_id) {
    LIST_FOR_EACH(it, &nexus->target->copies) {
        struct scsi_copy *copy = CONTAINER_OF(it, struct scsi_copy, in_target);
        if (copy->task->nexus == nexus && copy->has_id && copy->list_id == list_id) {
            return copy;
        }
    }
    return NULL;
}

static bool header_is_good(struct scsi_task *task) {
    const uint8_t *list = task->data_out;
    uint32_t length = task->data_out_bytes;
    uint32_t usage = length >= HEADER_BYTES ? list[1] >> 3 & 3 : 0;
    if (length != task->transfer_bytes || length < HEADER_BYTES) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
        return false;
    }
    uint32_t cscds = get_be16(list + 2), segments = get_be32(list + 8);
    if (usage == USAGE_RESERVED || (usage == USAGE_NONE && list[0] != 0)) {
        scsi_fail_parameter(task, usage == USAGE_RESERVED ? 1 : 0, NO_BIT);
    } else if (usage != USAGE_NONE && find_copy(task->nexus, list[0]) != NULL) {
        scsi_fail(task, SENSE_COPY_IN_PROGRESS);
    } else if (cscds + segments > DESCRIPTOR_BYTES_MAX || segments > length) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
    } else if (cscds > CSCDS_MAX * CSCD_BYTES) {
        scsi_fail(task, SENSE_TOO_MANY_CSCDS);
    } else if (segments > SEGMENTS_MAX * SEGMENT_BYTES) {
        scsi_fail(task, SENSE_TOO_MANY_SEGMENTS);
    } else if (get_be32(list + 12) != 0) {
        scsi_fail(task, SENSE_INLINE_DATA_LENGTH);
    } else if (cscds % CSCD_BYTES != 0 || HEADER_BYTES + cscds + segments != length) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
    }
    return !task->failed;
}

/* All segments must be of the one kind, before they can be told apart by their lengths. */
static bool segments_are_known(struct scsi_copy *copy, uint32_t at, uint32_t bytes) {
    const uint8_t *list = copy->task->data_out;
    for (uint32_t i = at; i < at + bytes; i += SEGMENT_BYTES) {
        if (list[i] != BLOCK_TO_BLOCK) {
            refuse(copy, SENSE_UNSUPPORTED_SEGMENT);
            return false;
        }
        if (at + bytes - i < SEGMENT_BYTES) {
            refuse(copy, SENSE_PARAMETER_LIST_LENGTH);
            return false;
        }
        if (get_be16(list + i + 2) != SEGMENT_BYTES - 4) {
            scsi_fail_parameter(copy->task, i + 2, NO_BIT);
            return false;
        }
    }
    return true;
}

static void take_list(struct scsi_copy *copy) {
    const uint8_t *list = copy->task->data_out;
    uint32_t cscds = get_be16(list + 2), segments = get_be32(list + 8);
    copy->list_id = list[0];
    copy->has_id = (list[1] >> 3 & 3) != USAGE_NONE;
    for (uint32_t at = HEADER_BYTES; at < HEADER_BYTES + cscds; at += CSCD_BYTES) {
        if (list[at] != CSCD_IDENTIFICATION) {
            refuse(copy, SENSE_UNSUPPORTED_CSCD);
            return;
        }
    }
    if (!segments_are_known(copy, HEADER_BYTES + cscds, segments)) {
        return;
    }
    for (uint32_t at = HEADER_BYTES; at < HEADER_BYTES + cscds && !copy->task->failed;
         at += CSCD_BYTES) {
        take_unit(copy, at);
    }
    copy->segments = list + HEADER_BYTES + cscds;
    copy->segment_count = segments / SEGMENT_BYTES;
    if (!copy->task->failed) {
        check_segments(copy);
    }
}

/* ---- results ---- */

static struct copy_result *find_result(struct scsi_nexus *nexus, uint32_t list_id) {
    for (uint32_t i = 0; i < COPY_RESULTS; i++) {
        if (nexus->results[i].used && nexus->results[i].list_id == list_id) {
            return &nexus->results[i];
        }
    }
    return NULL;
}

static void remember(struct scsi_copy *copy) {
    struct scsi_task *task = copy->task;
    struct scsi_nexus *nexus = task->nexus;
    if (!copy->has_id) {
        return;
    }
    struct copy_result *result = find_result(nexus, copy->list_id);
    if (result == NULL) {
        result = &nexus->results[nexus->next_result++ % COPY_RESULTS];
    }
    *result = (struct copy_result){.used = true,
                                   .list_id = copy->list_id,
                                   .failed = task->failed,
                                   .status = task->status,
                                   .segments_done = (uint16_t)copy->segments_done,
                                   .transferred_bytes = copy->transferred_bytes,
                                   .sense_bytes = task->failed ? task->sense_bytes : 0};
    memcpy(result->sense, task->sense, sizeof(result->sense));
}

/* ---- copying ---- */

void copy_gone(struct scsi_task *task) {
    if (task->copy != NULL) {
        list_remove(&task->copy->in_target);
    }
}

void copy_free(struct scsi_copy *copy) {
    for (uint32_t i = 0; copy != NULL && i < copy->unit_count; i++) {
        copy->units[i]->users--;
        scsi_lun_release(copy->units[i]);
    }
    mem_free(copy);
}

static void copy_end(struct scsi_copy *copy) {
    remember(copy);
    copy_gone(copy->task);
    scsi_task_end(copy->task);
}

/* What is left of the run under way; 0: the volume must be asked. */
static uint64_t run_left(const struct scsi_copy *copy) {
    return copy->run < ARRAY_COUNT(copy->runs) ? copy->runs[copy->run].length_bytes : 0;
}

static void move_on(struct scsi_copy *copy) {
    struct volume_run *run = &copy->runs[copy->run];
    copy->from_bytes += copy->piece_bytes;
    copy->to_bytes += copy->piece_bytes;
    copy->left_bytes -= copy->piece_bytes;
    copy->transferred_bytes += copy->piece_bytes;
    run->length_bytes -= copy->piece_bytes;
    copy->run += run->length_bytes == 0;
}

/* The next request, or the end. */
static void copy_next(struct scsi_copy *copy) {
    struct scsi_task *task = copy->task;
    while (copy->left_bytes == 0) {
        if (copy->segments_done == copy->segment_count) {
            copy_end(copy);
            return;
        }
        segment_begin(copy);
        if (task->failed) { /* a unit has changed its size meanwhile */
            copy_end(copy);
            return;
        }
        copy->segments_done += copy->left_bytes == 0;
    }
    uint64_t left = run_left(copy);
    if (left == 0) {
        memset(copy->runs, 0, sizeof(copy->runs));
        copy->run = 0;
        copy->doing = COPY_ASKS;
        scsi_volume_submit_to(task, copy->from, VOLUME_QUERY, copy->from_bytes, copy->left_bytes,
                              copy->runs, sizeof(copy->runs));
    } else if (copy->runs[copy->run].mapped) {
        copy->piece_bytes = MIN(left, (uint64_t)COPY_BYTES);
        copy->doing = COPY_READS;
        scsi_volume_submit_to(task, copy->from, VOLUME_READ, copy->from_bytes, copy->piece_bytes,
                              task->scratch->data, copy->piece_bytes);
    } else {
        copy->piece_bytes = MIN(left, (uint64_t)ZEROES_BYTES);
        copy->doing = COPY_WRITES;
        scsi_volume_submit_to(task, copy->to, VOLUME_WRITE_ZEROES, copy->to_bytes,
                              copy->piece_bytes, NULL, 0);
    }
}

/* What the initiator can act on is passed on as it is; the rest is trouble of a third party. */
static void copy_failed(struct scsi_copy *copy, int error) {
    const struct scsi_error *entry = scsi_error_find(error);
    copy->to->errors++;
    if (entry->status != SCSI_CHECK_CONDITION) {
        scsi_fail_status(copy->task, entry->status);
    } else if (error == ERR_NO_SPACE) {
        scsi_fail(copy->task, SENSE_SPACE_ALLOCATION_FAILED);
    } else {
        refuse_segment(copy, SENSE_COPY_DEVICE_FAILURE);
    }
}

static void copy_step(struct scsi_task *task) {
    struct scsi_copy *copy = task->copy;
    int status = task->request.status;
    if (copy->doing == COPY_ASKS && (status != OK || copy->runs[0].length_bytes == 0)) {
        /* To know the holes only saves work. */
        copy->runs[0] = (struct volume_run){.length_bytes = copy->left_bytes, .mapped = true};
        status = OK;
    }
    if (status != OK) {
        copy_failed(copy, status);
    } else if (copy->cancelled) {
        refuse_segment(copy, SENSE_COPY_ABORTED);
    }
    if (task->failed) {
        copy_end(copy);
        return;
    }
    if (copy->doing == COPY_READS) {
        copy->doing = COPY_WRITES;
        scsi_volume_submit_to(task, copy->to, VOLUME_WRITE, copy->to_bytes, copy->piece_bytes,
                              task->scratch->data, copy->piece_bytes);
        return;
    }
    if (copy->doing == COPY_WRITES) {
        copy->to->writes++;
        copy->to->write_bytes += copy->piece_bytes;
        move_on(copy);
        copy->segments_done += copy->left_bytes == 0;
    }
    copy_next(copy);
}

static uint32_t copy_count(const struct scsi_target *target) {
    uint32_t count = 0;
    LIST_FOR_EACH(it, &target->copies) {
        count++;
    }
    return count;
}

void extended_copy_run(struct scsi_task *task) {
    /* No list at all: nothing to do, and no error (§6.4.1). */
    if (task->transfer_bytes == 0 || !header_is_good(task)) {
        scsi_task_end(task);
        return;
    }
    if (copy_count(task->nexus->target) >= COPIES_MAX) {
        scsi_fail_status(task, SCSI_BUSY);
        scsi_task_end(task);
        return;
    }
    struct scsi_copy *copy = MEM_NEW(struct scsi_copy);
    task->copy = copy;
    copy->task = task;
    list_append(&task->nexus->target->copies, &copy->in_target);
    take_list(copy);
    if (task->failed) {
        copy_end(copy);
        return;
    }
    copy->left_bytes = 0;
    task->scratch = mem_pages_new(COPY_BYTES);
    task->takes_errors = true;
    task->step = copy_step;
    copy_next(copy);
}

/* COPY OPERATION ABORT (§6.3): the copy ends as soon as its request comes back. */
void copy_abort_run(struct scsi_task *task) {
    uint32_t list_id = get_be32(task->cdb + 2);
    struct scsi_copy *copy = find_copy(task->nexus, list_id);
    if (copy == NULL) {
        scsi_fail_cdb(task, 2, NO_BIT);
    } else {
        copy->cancelled = true;
    }
    scsi_task_end(task);
}

/* ---- RECEIVE COPY RESULTS ---- */

void copy_status_run(struct scsi_task *task) {
    uint8_t bytes[12] = {0};
    struct scsi_nexus *nexus = task->nexus;
    const struct scsi_copy *copy = find_copy(nexus, task->cdb[2]);
    const struct copy_result *result = find_result(nexus, task->cdb[2]);
    uint64_t transferred = 0;
    put_be32(bytes, sizeof(bytes) - 4);
    bytes[7] = 1; /* in KiB */
    if (copy != NULL) {
        bytes[4] = IN_PROGRESS;
        put_be16(bytes + 5, (uint16_t)copy->segments_done);
        transferred = copy->transferred_bytes;
    } else if (result != NULL) {
        bytes[4] = result->failed ? DONE_BADLY : DONE;
        put_be16(bytes + 5, result->segments_done);
        transferred = result->transferred_bytes;
    } else {
        scsi_fail_cdb(task, 2, NO_BIT);
        scsi_task_end(task);
        return;
    }
    put_be32(bytes + 8, (uint32_t)MIN(transferred >> 10, (uint64_t)UINT32_MAX));
    scsi_respond(task, bytes, sizeof(bytes));
}

void copy_details_run(struct scsi_task *task) {
    uint8_t bytes[60 + SCSI_SENSE_BYTES_MAX] = {0};
    const struct copy_result *result = find_result(task->nexus, task->cdb[2]);
    if (result == NULL) {
        scsi_fail_cdb(task, 2, NO_BIT);
        scsi_task_end(task);
        return;
    }
    uint32_t length = 4;
    if (result->failed) {
        bytes[56] = result->status;
        put_be16(bytes + 58, (uint16_t)result->sense_bytes);
        memcpy(bytes + 60, result->sense, result->sense_bytes);
        length = 60 + result->sense_bytes;
    }
    put_be32(bytes, length - 4);
    scsi_respond(task, bytes, length);
}

void copy_parameters_run(struct scsi_task *task) {
    uint8_t bytes[46] = {0};
    put_be32(bytes, sizeof(bytes) - 4);
    bytes[4] = 0x01; /* SNLID: lists without an identifier are taken */
    put_be16(bytes + 8, CSCDS_MAX);
    put_be16(bytes + 10, SEGMENTS_MAX);
    put_be32(bytes + 12, DESCRIPTOR_BYTES_MAX);
    put_be32(bytes + 16, SEGMENT_DATA_BYTES_MAX);
    put_be16(bytes + 34, COPIES_MAX);
    bytes[36] = COPIES_MAX;
    bytes[37] = 9; /* 2^n bytes */
    bytes[43] = 2;
    bytes[44] = BLOCK_TO_BLOCK;
    bytes[45] = CSCD_IDENTIFICATION;
    scsi_respond(task, bytes, sizeof(bytes));
}

/* ---- page 8Fh (§7.8.17): the same once more, for those that look there ---- */

static uint32_t put_head(uint8_t *bytes, uint16_t type, uint32_t content_bytes) {
    uint32_t length = (uint32_t)round_up(content_bytes, 4);
    put_be16(bytes, type);
    put_be16(bytes + 2, (uint16_t)length);
    return 4 + length;
}

uint32_t copy_page(uint8_t *bytes) {
    static const uint8_t commands[] = {9, 0x83, 2, 0x00, 0x1c, 0x84, 3, 0x00, 0x03, 0x04};
    uint32_t at = 0;
    memcpy(bytes + 4, commands, sizeof(commands));
    at += put_head(bytes, 0x0001, sizeof(commands)); /* supported commands */

    put_be16(bytes + at + 8, CSCDS_MAX);
    put_be16(bytes + at + 10, SEGMENTS_MAX);
    put_be32(bytes + at + 12, DESCRIPTOR_BYTES_MAX);
    at += put_head(bytes + at, 0x0004, 28); /* parameter data */

    bytes[at + 4] = 2;
    bytes[at + 5] = BLOCK_TO_BLOCK;
    bytes[at + 6] = CSCD_IDENTIFICATION;
    at += put_head(bytes + at, 0x0008, 4); /* supported descriptors */

    put_be32(bytes + at + 4, COPIES_MAX);
    put_be32(bytes + at + 8, COPIES_MAX);
    put_be32(bytes + at + 12, SEGMENT_DATA_BYTES_MAX);
    bytes[at + 16] = 9;
    at += put_head(bytes + at, 0x8001, 32); /* general copy operations */
    return at;
}
