// SPDX-License-Identifier: MPL-2.0
/* INQUIRY and the vital product data pages (SPC-4 §6.6, §7.8; SBC-3 §6.6).
 *
 * Identity. A unit is known by its volume's UUID: it survives renames, moves between targets and
 * hosts, and is never given out again. From it come the serial number (page 80h), a vendor
 * specific designator "HOLDFAST" + UUID, and a 16-byte NAA designator (page 83h). NAA 6 needs an
 * OUI; ours is 02-48-46, one with the "locally administered" bit set ("HF" behind it), so that it
 * can collide with no vendor's. The 100 bits behind it are bits of the UUID that are random. */
#include <string.h>

#include "base/math.h"
#include "scsi/internal.h"

#define VENDOR "HOLDFAST"
#define PRODUCT "Virtual Disk    "
#define REVISION "0001"

enum {
    PAGE_SUPPORTED = 0x00,
    PAGE_SERIAL = 0x80,
    PAGE_DESIGNATORS = 0x83,
    PAGE_EXTENDED = 0x86,
    PAGE_COPIES = 0x8f,
    PAGE_BLOCK_LIMITS = 0xb0,
    PAGE_BLOCK_CHARACTERISTICS = 0xb1,
    PAGE_PROVISIONING = 0xb2,
};

enum { OUI = 0x024846, UUID_TEXT_BYTES = 32 };

static void uuid_text(const struct scsi_lun *lun, uint8_t *ret_text) {
    static const char digits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < 16; i++) {
        ret_text[2 * i] = (uint8_t)digits[lun->info.uuid.bytes[i] >> 4];
        ret_text[2 * i + 1] = (uint8_t)digits[lun->info.uuid.bytes[i] & 15];
    }
}

uint32_t scsi_compare_blocks_max(const struct scsi_lun *lun) {
    return MIN((uint32_t)VOLUME_COMPARE_BYTES_MAX >> lun->block_shift,
               (uint32_t)COMPARE_BLOCKS_MAX);
}

/* ---- page 83h ---- */

enum {
    CODE_BINARY = 1,
    CODE_ASCII = 2,
    CODE_UTF8 = 3,
    ABOUT_UNIT = 0x00,
    ABOUT_PORT = 0x10,
    ABOUT_DEVICE = 0x20,
    TYPE_T10 = 1,
    TYPE_NAA = 3,
    TYPE_RELATIVE_PORT = 4,
    TYPE_PORT_GROUP = 5,
    TYPE_NAME = 8,
};

enum { PROTOCOL_ISCSI = 0x50, PIV = 0x80 };

static uint32_t put_designator(uint8_t *bytes, uint8_t code, uint8_t about_type,
                               const uint8_t *content, uint32_t content_bytes) {
    bool of_port = (about_type & 0x30) != ABOUT_UNIT;
    bytes[0] = (uint8_t)(code | (of_port ? PROTOCOL_ISCSI : 0));
    bytes[1] = (uint8_t)(about_type | (of_port ? PIV : 0));
    bytes[3] = (uint8_t)content_bytes;
    memcpy(bytes + 4, content, content_bytes);
    return 4 + content_bytes;
}

/* SCSI name string: UTF-8, ended by a zero, padded with zeros to a multiple of 4. */
static uint32_t put_name(uint8_t *bytes, uint8_t about, const char *name) {
    uint8_t padded[SCSI_NAME_BYTES_MAX] = {0};
    uint32_t length = (uint32_t)strnlen(name, sizeof(padded) - 4);
    memcpy(padded, name, length);
    return put_designator(bytes, CODE_UTF8, about | TYPE_NAME, padded,
                          (uint32_t)round_up(length + 1, 4));
}

void scsi_lun_naa(const struct scsi_lun *lun, uint8_t ret_naa[SCSI_NAA_BYTES]) {
    const uint8_t *uuid = lun->info.uuid.bytes;
    put_be64(ret_naa, 6ull << 60 | (uint64_t)OUI << 36 | (uint64_t)get_be32(uuid) << 4 |
                          (uint64_t)(uuid[4] >> 4));
    memcpy(ret_naa + 8, uuid + 8, 8);
}

static uint32_t page_designators(const struct scsi_task *task, uint8_t *page) {
    const struct scsi_lun *lun = task->lun;
    const struct scsi_port *port = &task->nexus->port;
    uint32_t length = 4;

    uint8_t naa[SCSI_NAA_BYTES];
    scsi_lun_naa(lun, naa);
    length += put_designator(page + length, CODE_BINARY, ABOUT_UNIT | TYPE_NAA, naa, sizeof(naa));

    uint8_t vendor[8 + UUID_TEXT_BYTES];
    memcpy(vendor, VENDOR, 8);
    uuid_text(lun, vendor + 8);
    length +=
        put_designator(page + length, CODE_ASCII, ABOUT_UNIT | TYPE_T10, vendor, sizeof(vendor));

    uint8_t number[4] = {0};
    put_be16(number + 2, port->relative_id);
    length += put_designator(page + length, CODE_BINARY, ABOUT_PORT | TYPE_RELATIVE_PORT, number,
                             sizeof(number));
    put_be16(number + 2, port->group);
    length += put_designator(page + length, CODE_BINARY, ABOUT_PORT | TYPE_PORT_GROUP, number,
                             sizeof(number));
    if (port->port_name[0] != 0) {
        length += put_name(page + length, ABOUT_PORT, port->port_name);
    }
    if (port->device_name[0] != 0) {
        length += put_name(page + length, ABOUT_DEVICE, port->device_name);
    }
    return length;
}

/* ---- the other pages; each returns its length with the 4 bytes of its header ---- */

static uint32_t page_supported(const struct scsi_task *task, uint8_t *page);

static uint32_t page_serial(const struct scsi_task *task, uint8_t *page) {
    uuid_text(task->lun, page + 4);
    return 4 + UUID_TEXT_BYTES;
}

static uint32_t page_extended(const struct scsi_task *task, uint8_t *page) {
    bool cache = !task->lun->info.sync_always;
    page[5] = 0x01;                /* SIMPSUP: simple tasks; no promise is made about order */
    page[6] = cache ? 0x01 : 0x00; /* V_SUP: there is a volatile cache */
    page[7] = 0x01;                /* LUICLR: attentions of a nexus loss are cleared per unit */
    return 64;
}

static uint32_t page_copies(const struct scsi_task *task, uint8_t *page) {
    (void)task;
    return 4 + copy_page(page + 4);
}

static uint32_t page_block_limits(const struct scsi_task *task, uint8_t *page) {
    const struct scsi_lun *lun = task->lun;
    uint32_t shift = lun->block_shift;
    page[4] = 0x01; /* WSNZ: WRITE SAME of 0 blocks is refused */
    page[5] = (uint8_t)scsi_compare_blocks_max(lun);
    put_be16(page + 6, (uint16_t)(4096 >> shift));        /* optimal transfer granularity */
    put_be32(page + 8, SCSI_TRANSFER_BYTES_MAX >> shift); /* maximum transfer length */
    put_be32(page + 12, (1u << 20) >> shift);             /* optimal transfer length */
    put_be32(page + 20, UNMAP_BYTES_MAX >> shift);
    put_be32(page + 24, SCSI_UNMAP_DESCRIPTORS_MAX);
    put_be32(page + 28, 4096u >> shift); /* optimal unmap granularity */
    put_be32(page + 32, 0x80000000);     /* UGAVALID, aligned at LBA 0 */
    put_be64(page + 36, WRITE_SAME_BYTES_MAX >> shift);
    return 64;
}

static uint32_t page_block_characteristics(const struct scsi_task *task, uint8_t *page) {
    (void)task;
    put_be16(page + 4, 1); /* non-rotating: hosts need not sort */
    return 64;
}

static uint32_t page_provisioning(const struct scsi_task *task, uint8_t *page) {
    page[4] = (uint8_t)(task->lun->info.thick ? 0 : provisioning_exponent(task->lun));
    page[5] = 0x80 | 0x40 | 0x20 | 0x04;           /* LBPU, LBPWS, LBPWS10, LBPRZ */
    page[6] = task->lun->info.thick ? 0x01 : 0x02; /* resource or thin provisioned */
    return 8;
}

static const struct {
    uint8_t code;
    uint32_t (*make)(const struct scsi_task *task, uint8_t *page);
} pages[] = {
    {PAGE_SUPPORTED, page_supported},
    {PAGE_SERIAL, page_serial},
    {PAGE_DESIGNATORS, page_designators},
    {PAGE_EXTENDED, page_extended},
    {PAGE_COPIES, page_copies},
    {PAGE_BLOCK_LIMITS, page_block_limits},
    {PAGE_BLOCK_CHARACTERISTICS, page_block_characteristics},
    {PAGE_PROVISIONING, page_provisioning},
};

static uint32_t page_supported(const struct scsi_task *task, uint8_t *page) {
    (void)task;
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        page[4 + i] = pages[i].code;
    }
    return 4 + (uint32_t)ARRAY_COUNT(pages);
}

/* ---- the command ---- */

static uint32_t standard_data(const struct scsi_task *task, uint8_t *bytes) {
    static const uint16_t versions[] = {
        0x00a0, /* SAM-5 */
        0x0960, /* iSCSI */
        0x0460, /* SPC-4 */
        0x04c0, /* SBC-3 */
    };
    bytes[0] = task->lun == NULL ? 0x7f : 0x00; /* no unit here; or a disk, connected */
    bytes[2] = 0x06;                            /* SPC-4 */
    bytes[3] = 0x10 | 0x02;                     /* HISUP, response format 2 */
    bytes[4] = 96 - 5;
    bytes[5] = 0x30 | 0x08; /* TPGS: target port groups, implicit and explicit; 3PC: copies */
    bytes[7] = 0x02;        /* CMDQUE */
    memcpy(bytes + 8, VENDOR, 8);
    memcpy(bytes + 16, PRODUCT, 16);
    memcpy(bytes + 32, REVISION, 4);
    for (uint32_t i = 0; i < ARRAY_COUNT(versions); i++) {
        put_be16(bytes + 58 + 2 * i, versions[i]);
    }
    return 96;
}

void inquiry_check(struct scsi_task *task) {
    bool vpd = (task->cdb[1] & 1) != 0;
    if (!vpd) {
        if (task->cdb[2] != 0) {
            scsi_fail_cdb(task, 2, NO_BIT);
        }
        return;
    }
    for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
        /* A number without a unit still lists its pages: none but the list. */
        if (pages[i].code == task->cdb[2] && (task->lun != NULL || i == 0)) {
            return;
        }
    }
    scsi_fail_cdb(task, 2, NO_BIT);
}

void inquiry_run(struct scsi_task *task) {
    uint8_t bytes[SMALL_RESPONSE_BYTES] = {0};
    if ((task->cdb[1] & 1) == 0) {
        scsi_respond(task, bytes, standard_data(task, bytes));
        return;
    }
    uint32_t length = 5;
    bytes[0] = 0x7f;
    if (task->lun != NULL) {
        bytes[0] = 0x00;
        for (uint32_t i = 0; i < ARRAY_COUNT(pages); i++) {
            if (pages[i].code == task->cdb[2]) {
                length = pages[i].make(task, bytes);
            }
        }
    }
    bytes[1] = task->cdb[2];
    put_be16(bytes + 2, (uint16_t)(length - 4));
    scsi_respond(task, bytes, length);
}
