// SPDX-License-Identifier: MPL-2.0
/* MODE SENSE and MODE SELECT (SPC-4 §6.9 to 6.12, §7.5; SBC-3 §6.5).
 *
 * Initiators may change two bits, both of the control page, both for all initiators and until the
 * next reset of the unit: D_SENSE and SWP. Everything else must be sent back as it was read. WCE
 * follows the volume's `sync`; a host that could switch it off would believe its writes durable
 * while the volume goes on as before. */
#include <string.h>

#include "base/math.h"
#include "scsi/internal.h"

enum { CURRENT, CHANGEABLE, DEFAULT, SAVED };
enum { ALL_PAGES = 0x3f, ALL_SUBPAGES = 0xff, DPOFUA = 0x10, WP = 0x80, SUBPAGE_FORMAT = 0x40 };

/* ---- pages: each fills its bytes behind the two of the header ---- */

static void page_recovery(const struct scsi_lun *lun, uint32_t control, uint8_t *page) {
    if (control != CHANGEABLE) {
        page[2] = 0xc0; /* AWRE, ARRE: bad places are repaired without being asked */
        page[7] = lun->info.thick ? 0x00 : 0x80; /* LBPERE: thresholds are reported */
    }
}

static void page_caching(const struct scsi_lun *lun, uint32_t control, uint8_t *page) {
    if (control != CHANGEABLE) {
        page[2] = lun->info.sync_always ? 0x00 : 0x04; /* WCE */
    }
}

static void page_control(const struct scsi_lun *lun, uint32_t control, uint8_t *page) {
    if (control == CHANGEABLE) {
        page[2] = 0x04; /* D_SENSE */
        page[4] = 0x08; /* SWP */
        return;
    }
    if (control == CURRENT) {
        page[2] = lun->descriptor_sense ? 0x04 : 0x00;
        page[4] = lun->software_write_protect ? 0x08 : 0x00;
    }
    page[3] = 0x10;             /* QUEUE ALGORITHM MODIFIER: unrestricted reordering */
    put_be16(page + 8, 0xffff); /* busy timeout: unlimited */
}

static void page_exceptions(const struct scsi_lun *lun, uint32_t control, uint8_t *page) {
    (void)lun;
    if (control != CHANGEABLE) {
        page[2] = 0x08; /* DEXCPT: exceptions are reported in other ways */
    }
}

/* Logical block provisioning (SBC-3 §6.5.7): one threshold, told to every nexus (SITUA 0). */
static void page_provisioning(const struct scsi_lun *lun, uint32_t control, uint8_t *page) {
    if (control != CHANGEABLE) {
        uint8_t *threshold = page + THRESHOLD_DESCRIPTOR_AT;
        threshold[0] = 0x80; /* ENABLED; soft; armed decreasing */
        threshold[1] = 0x01; /* of what is available */
        put_be32(threshold + 4, provisioning_sets(provisioning_threshold_bytes(lun)));
    }
}

static const struct {
    uint8_t code, subpage, bytes;
    bool of_thin; /* units only */
    void (*make)(const struct scsi_lun *lun, uint32_t control, uint8_t *page);
} pages[] = {
    {0x01, 0, 12, false, page_recovery},
    {0x08, 0, 20, false, page_caching},
    {0x0a, 0, 12, false, page_control},
    {0x1c, 0, 12, false, page_exceptions},
    {0x1c, 2, THRESHOLD_DESCRIPTOR_AT + 8, true, page_provisioning},
};

static uint32_t put_page(const struct scsi_lun *lun, uint32_t index, uint32_t control,
                         uint8_t *bytes) {
    memset(bytes, 0, pages[index].bytes);
    bytes[0] = pages[index].code;
    bytes[1] = (uint8_t)(pages[index].bytes - 2);
    if (pages[index].subpage != 0) {
        bytes[0] |= SUBPAGE_FORMAT;
        bytes[1] = pages[index].subpage;
        put_be16(bytes + 2, (uint16_t)(pages[index].bytes - 4));
    }
    pages[index].make(lun, control, bytes);
    return pages[index].bytes;
}

static bool has_page(const struct scsi_lun *lun, uint32_t index) {
    return !pages[index].of_thin || !lun->info.thick;
}

static int page_find(const struct scsi_lun *lun, uint32_t code, uint32_t subpage) {
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        if (pages[i].code == code && pages[i].subpage == subpage && has_page(lun, i)) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- MODE SENSE ---- */

void mode_sense_check(struct scsi_task *task) {
    uint32_t code = task->cdb[2] & 0x3f;
    uint32_t subpage = task->cdb[3];
    if (task->cdb[2] >> 6 == SAVED) {
        scsi_fail(task, SENSE_SAVING_NOT_SUPPORTED);
    } else if (code != ALL_PAGES && page_find(task->lun, code, 0) < 0) {
        scsi_fail_cdb(task, 2, 5);
    } else if (subpage != 0 && subpage != ALL_SUBPAGES &&
               (code == ALL_PAGES || page_find(task->lun, code, subpage) < 0)) {
        scsi_fail_cdb(task, 3, NO_BIT);
    }
}

static uint32_t put_block_descriptor(const struct scsi_lun *lun, bool long_lba, uint8_t *bytes) {
    if (long_lba) {
        put_be64(bytes, lun->blocks);
        put_be32(bytes + 12, lun->block_bytes);
        return 16;
    }
    put_be32(bytes, (uint32_t)MIN(lun->blocks, (uint64_t)UINT32_MAX));
    put_be24(bytes + 5, lun->block_bytes);
    return 8;
}

void mode_sense_run(struct scsi_task *task) {
    const struct scsi_lun *lun = task->lun;
    uint8_t bytes[SMALL_RESPONSE_BYTES] = {0};
    bool ten = task->cdb[0] == 0x5a;
    bool descriptors = (task->cdb[1] & 0x08) == 0;
    bool long_lba = ten && (task->cdb[1] & 0x10) != 0;
    uint32_t header = ten ? 8 : 4;
    uint32_t length = header;
    uint32_t code = task->cdb[2] & 0x3f;
    if (descriptors) {
        length += put_block_descriptor(lun, long_lba, bytes + length);
    }
    uint32_t descriptor_bytes = length - header;
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        bool of_code = code == ALL_PAGES || code == pages[i].code;
        bool of_subpage = task->cdb[3] == ALL_SUBPAGES || task->cdb[3] == pages[i].subpage;
        if (of_code && of_subpage && has_page(lun, i)) {
            length += put_page(lun, i, task->cdb[2] >> 6, bytes + length);
        }
    }
    uint8_t device = (uint8_t)(DPOFUA | (lun->software_write_protect ? WP : 0));
    if (ten) {
        put_be16(bytes, (uint16_t)(length - 2));
        bytes[3] = device;
        bytes[4] = long_lba && descriptors ? 0x01 : 0x00;
        put_be16(bytes + 6, (uint16_t)descriptor_bytes);
    } else {
        bytes[0] = (uint8_t)(length - 1);
        bytes[2] = device;
        bytes[3] = (uint8_t)descriptor_bytes;
    }
    scsi_respond(task, bytes, length);
}

/* ---- MODE SELECT ---- */

void mode_select_check(struct scsi_task *task) {
    if (task->cdb[1] & 0x01) {
        scsi_fail_cdb(task, 1, 0); /* SP: nothing can be saved */
    } else if ((task->cdb[1] & 0x10) == 0) {
        scsi_fail_cdb(task, 1, 4); /* PF: only pages as the standard lays them out */
    }
}

/* One page as sent must equal the current one but for changeable bits. */
static bool page_is_acceptable(struct scsi_task *task, uint32_t index, uint32_t at) {
    uint8_t current[32], changeable[32];
    uint32_t length = put_page(task->lun, index, CURRENT, current);
    put_page(task->lun, index, CHANGEABLE, changeable);
    for (uint32_t i = 1; i < length; i++) {
        uint8_t fixed =
            i < 4 && (i == 1 || pages[index].subpage != 0) ? 0xff : (uint8_t)~changeable[i];
        uint8_t wrong = (uint8_t)((task->data_out[at + i] ^ current[i]) & fixed);
        if (wrong != 0) {
            scsi_fail_parameter(task, at + i, 31u - (uint32_t)__builtin_clz(wrong));
            return false;
        }
    }
    return true;
}

static void take_page(struct scsi_task *task, const uint8_t *page) {
    struct scsi_lun *lun = task->lun;
    bool descriptor_sense = (page[2] & 0x04) != 0;
    bool write_protect = (page[4] & 0x08) != 0;
    if (page[0] != 0x0a || (descriptor_sense == lun->descriptor_sense &&
                            write_protect == lun->software_write_protect)) {
        return;
    }
    lun->descriptor_sense = descriptor_sense;
    lun->software_write_protect = write_protect;
    ua_establish(lun, SENSE_MODE_PARAMETERS_CHANGED, task->nexus);
}

/* Walks the pages of the list; `apply` false only looks whether all of them may be taken. */
static bool walk_pages(struct scsi_task *task, uint32_t at, uint32_t length, bool apply) {
    while (at < length) {
        const uint8_t *page = task->data_out + at;
        if (length - at < 2) {
            scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
            return false;
        }
        int index =
            page_find(task->lun, page[0] & 0x3f, (page[0] & SUBPAGE_FORMAT) != 0 ? page[1] : 0);
        if (index < 0) {
            scsi_fail_parameter(task, at, 5);
            return false;
        }
        if (length - at < pages[index].bytes) {
            scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
            return false;
        }
        if (apply) {
            take_page(task, task->data_out + at);
        } else if (!page_is_acceptable(task, (uint32_t)index, at)) {
            return false;
        }
        at += pages[index].bytes;
    }
    return true;
}

/* A block descriptor may only repeat what the unit has. */
static bool descriptor_is_acceptable(struct scsi_task *task, uint32_t at, uint32_t bytes) {
    const struct scsi_lun *lun = task->lun;
    uint8_t own[16] = {0};
    if (bytes != 8 && bytes != 16) {
        scsi_fail_parameter(task, at - 1, NO_BIT);
        return false;
    }
    put_block_descriptor(lun, bytes == 16, own);
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t number_bytes = bytes == 16 ? 8 : 4;
        bool is_number = i < number_bytes;
        /* A number of blocks of zero means "as it is". */
        if (task->data_out[at + i] != own[i] && !(is_number && task->data_out[at + i] == 0)) {
            scsi_fail_parameter(task, at + i, NO_BIT);
            return false;
        }
    }
    return true;
}

void mode_select_run(struct scsi_task *task) {
    bool ten = task->cdb[0] == 0x55;
    uint32_t header = ten ? 8 : 4;
    uint32_t length = task->data_out_bytes;
    if (length == 0) {
        scsi_task_end(task);
        return;
    }
    if (length < header || length < task->transfer_bytes) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
        scsi_task_end(task);
        return;
    }
    uint32_t descriptor_bytes = ten ? get_be16(task->data_out + 6) : task->data_out[3];
    if (descriptor_bytes > length - header) {
        scsi_fail(task, SENSE_PARAMETER_LIST_LENGTH);
    } else if (descriptor_bytes == 0 || descriptor_is_acceptable(task, header, descriptor_bytes)) {
        uint32_t at = header + descriptor_bytes;
        /* All or nothing. */
        if (walk_pages(task, at, length, false)) {
            bool taken = walk_pages(task, at, length, true);
            (void)taken;
        }
    }
    scsi_task_end(task);
}
