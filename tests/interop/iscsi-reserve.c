// SPDX-License-Identifier: MPL-2.0
/* iscsi-reserve URL WHO : one initiator port (name and ISID follow from the number WHO, the same in
 * each run), for what libiscsi's own programs cannot do: hold reservations across restarts of the
 * array, and copy between LUNs. Commands come on stdin, one a line; each is answered by one line on
 * stdout: GOOD, CONFLICT, BUSY, or SENSE KKAAQQ.
 *
 *   register OLD NEW FLAGS     keys; FLAGS: 1 APTPL, 4 ALL_TG_PT
 *   reserve KEY TYPE | release KEY TYPE | clear KEY | preempt KEY OTHER TYPE
 *   keys                       -> keys: K...
 *   held                       -> held: KEY TYPE | held: nothing
 *   write BLOCK VALUE          one block full of the byte
 *   read BLOCK                 -> read: VALUE (of its first byte)
 *   xcopy TO_LUN BLOCK BLOCKS TO_BLOCK   by EXTENDED COPY, from this LUN to another of the target
 *   quit
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_MAX = 4096, WORDS_MAX = 8, NAA_BYTES = 16 };

static struct iscsi_context *iscsi;
static int lun;
static uint32_t block_bytes;

static void answer_status(struct scsi_task *task) {
    if (task == NULL) {
        printf("LOST\n");
    } else if (task->status == SCSI_STATUS_GOOD) {
        printf("GOOD\n");
    } else if (task->status == SCSI_STATUS_RESERVATION_CONFLICT) {
        printf("CONFLICT\n");
    } else if (task->status == SCSI_STATUS_BUSY) {
        printf("BUSY\n");
    } else {
        printf("SENSE %02x%04x\n", (unsigned)task->sense.key, (unsigned)task->sense.ascq);
    }
    scsi_free_scsi_task(task);
}

static struct scsi_task *prout(int action, int type, uint64_t key, uint64_t other, int flags) {
    struct scsi_persistent_reserve_out_basic basic = {.reservation_key = key,
                                                      .service_action_reservation_key = other,
                                                      .all_tg_pt = (uint8_t)(flags >> 2 & 1),
                                                      .aptpl = (uint8_t)(flags & 1)};
    return iscsi_persistent_reserve_out_sync(iscsi, lun, action, 0, type, &basic);
}

static void keys(void) {
    struct scsi_task *task = iscsi_persistent_reserve_in_sync(iscsi, lun, 0, 4096);
    struct scsi_persistent_reserve_in_read_keys *list =
        task != NULL ? scsi_datain_unmarshall(task) : NULL;
    printf("keys:");
    for (int i = 0; list != NULL && i < list->num_keys; i++) {
        printf(" %llx", (unsigned long long)list->keys[i]);
    }
    printf("\n");
    scsi_free_scsi_task(task);
}

static void held(void) {
    struct scsi_task *task = iscsi_persistent_reserve_in_sync(iscsi, lun, 1, 4096);
    struct scsi_persistent_reserve_in_read_reservation *one =
        task != NULL ? scsi_datain_unmarshall(task) : NULL;
    if (one != NULL && one->reserved) {
        printf("held: %llx %d\n", (unsigned long long)one->reservation_key, (int)one->pr_type);
    } else {
        printf("held: nothing\n");
    }
    scsi_free_scsi_task(task);
}

static void read_block(uint32_t block) {
    struct scsi_task *task =
        iscsi_read10_sync(iscsi, lun, block, block_bytes, (int)block_bytes, 0, 0, 0, 0, 0);
    if (task != NULL && task->status == SCSI_STATUS_GOOD && task->datain.size > 0) {
        printf("read: %u\n", task->datain.data[0]);
        scsi_free_scsi_task(task);
        return;
    }
    answer_status(task);
}

/* The NAA designator of page 83h. */
static bool find_naa(int of_lun, uint8_t *ret_naa) {
    struct scsi_task *task = iscsi_inquiry_sync(iscsi, of_lun, 1, 0x83, 1024);
    bool found = false;
    for (int at = 4; task != NULL && !found && at + 4 < task->datain.size;
         at += 4 + task->datain.data[at + 3]) {
        const uint8_t *d = task->datain.data + at;
        found = (d[1] & 0x3f) == 3 && d[3] == NAA_BYTES && at + 4 + NAA_BYTES <= task->datain.size;
        if (found) {
            memcpy(ret_naa, d + 4, NAA_BYTES);
        }
    }
    scsi_free_scsi_task(task);
    return found;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
    while (bytes-- > 0) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static void xcopy(int to_lun, uint64_t block, uint64_t blocks, uint64_t to_block) {
    uint8_t list[16 + 2 * 32 + 28] = {1};
    list[3] = 64;
    list[11] = 28;
    for (int i = 0; i < 2; i++) {
        uint8_t *unit = list + 16 + 32 * (size_t)i;
        memcpy(unit, "\xe4\0\0\0\1\3\0\x10", 8);
        put(unit + 29, block_bytes, 3);
        if (!find_naa(i == 0 ? lun : to_lun, unit + 8)) {
            printf("no designator\n");
            return;
        }
    }
    uint8_t *segment = list + 16 + 64;
    memcpy(segment, "\2\0\0\x18\0\0\0\1", 8);
    put(segment + 10, blocks, 2);
    put(segment + 12, block, 8);
    put(segment + 20, to_block, 8);
    struct iscsi_data data = {.size = sizeof(list), .data = list};
    struct scsi_task *task = calloc(1, sizeof(*task)); /* freed by the library */
    task->cdb_size = 16;
    task->cdb[0] = 0x83;
    task->cdb[13] = sizeof(list);
    task->xfer_dir = SCSI_XFER_WRITE;
    task->expxferlen = sizeof(list);
    answer_status(iscsi_scsi_command_sync(iscsi, lun, task, &data));
}

static void run(char *line) {
    char *word[WORDS_MAX] = {NULL};
    uint64_t n[WORDS_MAX] = {0};
    int count = 0;
    for (char *w = strtok(line, " \n"); w != NULL && count < WORDS_MAX; w = strtok(NULL, " \n")) {
        word[count] = w;
        n[count++] = strtoull(w, NULL, 16);
    }
    uint8_t block[BLOCK_MAX];
    const char *command = count > 0 ? word[0] : "";
    if (strcmp(command, "register") == 0) {
        answer_status(prout(0, 0, n[1], n[2], (int)n[3]));
    } else if (strcmp(command, "reserve") == 0) {
        answer_status(prout(1, (int)n[2], n[1], 0, 0));
    } else if (strcmp(command, "release") == 0) {
        answer_status(prout(2, (int)n[2], n[1], 0, 0));
    } else if (strcmp(command, "clear") == 0) {
        answer_status(prout(3, 0, n[1], 0, 0));
    } else if (strcmp(command, "preempt") == 0) {
        answer_status(prout(4, (int)n[3], n[1], n[2], 0));
    } else if (strcmp(command, "keys") == 0) {
        keys();
    } else if (strcmp(command, "held") == 0) {
        held();
    } else if (strcmp(command, "read") == 0) {
        read_block((uint32_t)n[1]);
    } else if (strcmp(command, "write") == 0) {
        memset(block, (int)n[2], sizeof(block));
        answer_status(iscsi_write10_sync(iscsi, lun, (uint32_t)n[1], block, block_bytes,
                                         (int)block_bytes, 0, 0, 0, 0, 0));
    } else if (strcmp(command, "xcopy") == 0) {
        xcopy((int)n[1], n[2], n[3], n[4]);
    } else {
        printf("what?\n");
    }
}

/* Connects, and takes what the unit has to say to a new nexus. */
static bool begin(const char *url_text, uint32_t who) {
    char name[64];
    snprintf(name, sizeof(name), "iqn.2025-01.org.example:reserve-%x", who);
    iscsi = iscsi_create_context(name);
    struct iscsi_url *url = iscsi != NULL ? iscsi_parse_full_url(iscsi, url_text) : NULL;
    if (url == NULL) {
        return false;
    }
    lun = url->lun;
    (void)iscsi_set_isid_random(iscsi, who, 1);
    (void)iscsi_set_targetname(iscsi, url->target);
    (void)iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    (void)iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
    if (iscsi_full_connect_sync(iscsi, url->portal, lun) != 0) {
        fprintf(stderr, "%s\n", iscsi_get_error(iscsi));
        return false;
    }
    for (int i = 0; i < 20; i++) {
        struct scsi_task *task = iscsi_readcapacity16_sync(iscsi, lun);
        struct scsi_readcapacity16 *capacity =
            task != NULL && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
        block_bytes = capacity != NULL ? capacity->block_length : 0;
        scsi_free_scsi_task(task);
        if (block_bytes != 0 && block_bytes <= BLOCK_MAX) {
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    char line[256];
    if (argc != 3 || !begin(argv[1], (uint32_t)strtoul(argv[2], NULL, 16))) {
        fprintf(stderr, "usage: iscsi-reserve URL WHO (and the URL must be there)\n");
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL && strncmp(line, "quit", 4) != 0) {
        run(line);
        fflush(stdout);
    }
    (void)iscsi_logout_sync(iscsi);
    (void)iscsi_destroy_context(iscsi);
    return 0;
}
