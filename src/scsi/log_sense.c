// SPDX-License-Identifier: MPL-2.0
/* LOG SENSE (SPC-4 §6.7, §7.3; SBC-3 §6.4.5).
 *
 * A virtual disk has no temperature, no start-stop cycles and no error counters of its own: what
 * happens to the array's disks is the array's business, and is told to its administrator. What is
 * left is what a host can act on: how much room a thin unit has (0Ch), and that nothing is to be
 * expected (2Fh), which is what health tools ask for. Nothing is saved, nothing can be set. */
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "scsi/internal.h"

enum { PAGE_SUPPORTED = 0x00, PAGE_PROVISIONING = 0x0c, PAGE_EXCEPTIONS = 0x2f };
enum { ALL_SUBPAGES = 0xff, HEADER_BYTES = 4, BINARY_LIST = 0x03, TEMPERATURE_UNKNOWN = 0xff };
enum { AVAILABLE = 0x0001, USED = 0x0002, SCOPE_UNIT = 1, SCOPE_SHARED = 2 };

static const uint8_t pages[] = {PAGE_SUPPORTED, PAGE_PROVISIONING, PAGE_EXCEPTIONS};

static bool has_page(const struct scsi_lun *lun, uint32_t index) {
    return pages[index] != PAGE_PROVISIONING || !lun->info.thick;
}

void log_sense_check(struct scsi_task *task) {
    uint32_t code = task->cdb[2] & 0x3f, subpage = task->cdb[3];
    /* Nothing beyond the last parameter can be asked for. */
    uint32_t last = code == PAGE_PROVISIONING ? USED : 0;
    bool known = false;
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        known |= pages[i] == code && has_page(task->lun, i);
    }
    if (!known) {
        scsi_fail_cdb(task, 2, 5);
    } else if (subpage != 0 && !(code == PAGE_SUPPORTED && subpage == ALL_SUBPAGES)) {
        scsi_fail_cdb(task, 3, NO_BIT);
    } else if (get_be16(task->cdb + 5) > last) {
        scsi_fail_cdb(task, 5, NO_BIT);
    }
}

static uint32_t put_supported(const struct scsi_lun *lun, bool subpages, uint8_t *bytes) {
    uint32_t at = HEADER_BYTES;
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        if (!has_page(lun, i)) {
            continue;
        }
        bytes[at++] = pages[i];
        at += subpages;
        if (subpages && pages[i] == PAGE_SUPPORTED) {
            bytes[at] = PAGE_SUPPORTED;
            bytes[at + 1] = ALL_SUBPAGES;
            at += 2;
        }
    }
    return at;
}

static uint32_t put_count(uint8_t *bytes, uint16_t code, uint64_t count_bytes, uint8_t scope) {
    put_be16(bytes, code);
    bytes[2] = BINARY_LIST;
    bytes[3] = 8;
    put_be32(bytes + 4, provisioning_sets(count_bytes));
    bytes[8] = scope;
    return 12;
}

static uint32_t put_provisioning(const struct scsi_task *task, uint8_t *bytes) {
    uint32_t at = HEADER_BYTES;
    uint32_t first = get_be16(task->cdb + 5);
    if (first <= AVAILABLE) {
        at += put_count(bytes + at, AVAILABLE, task->space.free_bytes, SCOPE_SHARED);
    }
    return at + put_count(bytes + at, USED, task->space.used_bytes, SCOPE_UNIT);
}

static uint32_t put_exceptions(uint8_t *bytes) {
    bytes[6] = BINARY_LIST;
    bytes[7] = 4;
    bytes[10] = TEMPERATURE_UNKNOWN;
    return HEADER_BYTES + 8;
}

static void log_sense_step(struct scsi_task *task) {
    uint8_t bytes[256] = {0};
    uint32_t code = task->cdb[2] & 0x3f, length;
    if (code == PAGE_PROVISIONING) {
        length = put_provisioning(task, bytes);
    } else if (code == PAGE_EXCEPTIONS) {
        length = put_exceptions(bytes);
    } else {
        length = put_supported(task->lun, task->cdb[3] != 0, bytes);
    }
    bytes[0] = (uint8_t)(code | (task->cdb[3] != 0 ? 0x40 : 0)); /* SPF */
    bytes[1] = task->cdb[3];
    put_be16(bytes + 2, (uint16_t)(length - HEADER_BYTES));
    scsi_respond(task, bytes, length);
}

void log_sense_run(struct scsi_task *task) {
    if ((task->cdb[2] & 0x3f) != PAGE_PROVISIONING) {
        log_sense_step(task);
        return;
    }
    task->step = log_sense_step;
    scsi_volume_submit(task, VOLUME_SPACE, 0, 0, &task->space, sizeof(task->space));
}
