// SPDX-License-Identifier: MPL-2.0
/* What the files of the device server share. The target's lock is held in all of it but where it
 * says otherwise; see target.c. */
#ifndef HOLDFAST_SCSI_INTERNAL_H
#define HOLDFAST_SCSI_INTERNAL_H

#include "base/lock.h"
#include "scsi/bytes.h"
#include "scsi/scsi.h"

enum { UA_QUEUE_MAX = 16 };

/* Unit attentions of one nexus at one unit, oldest first. A condition that is already queued is not
 * queued again (SAM-5 §5.14: one report of it is enough). */
struct ua_queue {
    enum scsi_sense_code codes[UA_QUEUE_MAX];
    uint32_t count;
};

/* ---- reservations (reservation.c, persistent.c) ---- */

enum { REGISTRANTS_MAX = 256 }; /* of one unit */

enum reservation_type { /* SPC-4 §6.15.3.4; 0: nothing is reserved */
                        WRITE_EXCLUSIVE = 1,
                        EXCLUSIVE_ACCESS = 3,
                        WRITE_EXCLUSIVE_REGISTRANTS = 5,
                        EXCLUSIVE_ACCESS_REGISTRANTS = 6,
                        WRITE_EXCLUSIVE_ALL = 7,
                        EXCLUSIVE_ACCESS_ALL = 8,
};

/* Under which reservations a command is refused to those they shut out. */
enum {
    CONFLICT_WRITE_EXCLUSIVE = 1,
    CONFLICT_EXCLUSIVE_ACCESS = 2,
    CONFLICT_RESERVE = 4, /* of SPC-2 */
};

struct registrant {
    char initiator[SCSI_NAME_BYTES_MAX]; /* port */
    uint64_t hash;                       /* of it */
    uint16_t port;                       /* relative target port identifier */
    uint64_t key;
    bool holder; /* never set for the types of all registrants */
    /* What the change under way means for it. */
    enum scsi_sense_code tell;
    bool abort;
};

struct reservations {
    uint32_t generation;
    bool persists; /* APTPL */
    uint32_t type;
    uint32_t count, room;
    struct registrant registrants[];
};

/* A change that is being stored, and those that wait for it. */
struct reservation_change {
    struct list waiting; /* tasks */
    struct scsi_task *task;
    const struct scsi_nexus *requester; /* NULL: gone since */
    struct reservations *next;
    bool in_volume; /* the unit cannot be freed */
    struct volume_request request;
    struct iovec iov;
    uint8_t record[VOLUME_RECORD_BYTES_MAX];
};

/* A question about space under way; see provisioning.c. */
struct space_check {
    bool in_volume; /* the unit cannot be freed */
    struct volume_request request;
    struct iovec iov;
    struct volume_space answer;
};

struct scsi_target {
    struct env *env;
    struct lock lock;
    uint32_t holders; /* tasks, units, and who has made it: frees it when there are none */
    bool freed;
    uint16_t ports[SCSI_PORTS_MAX];
    uint32_t port_count;
    struct scsi_lun *luns[SCSI_LUNS_MAX];
    struct list nexuses;
    struct list removed_luns; /* still with tasks */
    struct list copies;       /* under way */
};

struct scsi_lun {
    struct scsi_target *target;
    struct list in_removed;
    uint32_t number;
    bool removed;
    struct env *env; /* the target's: of requests that are nobody's task */
    struct volume_door *door;
    struct volume_info info;
    uint32_t block_bytes, block_shift;
    uint64_t blocks;
    /* Control mode page: what initiators may change. */
    bool descriptor_sense, software_write_protect;

    enum { UNIT_RECALLING, UNIT_READY, UNIT_UNKNOWN } readiness;
    struct reservations *reservations;
    struct reservation_change change;
    const struct scsi_nexus *reserved_by; /* RESERVE of SPC-2 */
    bool group_was_set;                   /* SET TARGET PORT GROUPS has been seen */

    struct space_check space_check;
    struct volume_space space; /* as last told; zeros: not known */
    uint64_t unchecked_bytes;  /* written since */
    bool threshold_passed;

    struct list tasks;   /* begun or running; dropped ones are not in it */
    struct list dropped; /* dropped while in the volume */
    struct list waiting; /* running, but a dropped task overlaps them (in_waiting) */
    uint32_t task_count, dropped_count;
    uint32_t users; /* copies that may still need it */
    uint64_t reads, writes, read_bytes, write_bytes, errors, latency_ns;
};

/* What became of an EXTENDED COPY with a list identifier. */
enum { COPY_RESULTS = 8 };
struct copy_result {
    bool used, failed;
    uint8_t list_id, status;
    uint16_t segments_done;
    uint64_t transferred_bytes;
    uint32_t sense_bytes;
    uint8_t sense[SCSI_SENSE_BYTES_MAX];
};

struct scsi_nexus {
    struct scsi_target *target;
    struct env *env;
    struct list in_target;
    struct list tasks;
    struct scsi_port port;
    uint64_t initiator_hash;
    struct copy_result results[COPY_RESULTS];
    uint32_t next_result;
    uint8_t hidden[SCSI_LUNS_MAX / 8]; /* a bit for each number it may not use */
    struct ua_queue attentions[SCSI_LUNS_MAX];
};

static inline bool nexus_may_use(const struct scsi_nexus *nexus, uint32_t number) {
    return (nexus->hidden[number / 8] >> number % 8 & 1) == 0;
}

/* The unit of this number as this nexus sees it: NULL when there is none for it. */
static inline struct scsi_lun *nexus_lun(const struct scsi_nexus *nexus, uint32_t number) {
    return nexus_may_use(nexus, number) ? nexus->target->luns[number] : NULL;
}

/* ---- commands ---- */

enum {
    COMMAND_ANY_LUN = 1 << 0,         /* also for a number that has no unit */
    COMMAND_KEEPS_ATTENTION = 1 << 1, /* neither reports nor clears unit attentions */
    COMMAND_IN = 1 << 2,              /* moves data to the initiator */
    COMMAND_OUT = 1 << 3,             /* moves data from it */
    COMMAND_WRITES = 1 << 4,          /* changes the medium */
    COMMAND_SERVICE_ACTION = 1 << 5,
};

struct scsi_command {
    uint8_t opcode;
    uint8_t cdb_bytes;
    uint16_t service_action;
    uint32_t flags;
    uint8_t conflicts; /* CONFLICT_…: SPC-4 table 67, SBC-3 table 14 */
    const char *name;
    uint8_t usage[SCSI_CDB_BYTES_MAX]; /* SPC-4 §6.35.3 CDB usage data: bits that are looked at */
    /* Of commands that answer with parameter data: where the ALLOCATION LENGTH lies; of those that
     * take some: the PARAMETER LIST LENGTH. 0 bytes wide: neither, check() sets the lengths. */
    uint8_t length_at, length_bytes;
    /* Validates the CDB and sets what run() needs; scsi_fail…() refuses. May be NULL. */
    void (*check)(struct scsi_task *task);
    /* Starts; ends the task at once or later with scsi_task_end(). Like every step it runs on the
     * task's loop. */
    void (*run)(struct scsi_task *task);
};

extern const struct scsi_command scsi_commands[];
extern const uint32_t scsi_command_count;
/* Whether the opcode has service actions here; -1: it is not supported at all. */
int scsi_opcode_has_service_actions(uint8_t opcode);

/* ---- the lock ---- */

void scsi_lock(struct scsi_target *target);
void scsi_unlock(struct scsi_target *target); /* frees the target if that was the last of it */
/* Around what takes long in a step and touches nothing but the task's own memory. False: the task
 * was dropped meanwhile; the step must return. */
void scsi_step_pause(struct scsi_task *task);
HF_MUST_CHECK bool scsi_step_resume(struct scsi_task *task);

/* ---- ending tasks ---- */

void scsi_fail(struct scsi_task *task, enum scsi_sense_code code);
void scsi_fail_status(struct scsi_task *task, enum scsi_status status);
void scsi_fail_sense(struct scsi_task *task, const struct scsi_sense *sense);
/* ILLEGAL REQUEST with a field pointer; bit 8: no bit pointer. */
enum { NO_BIT = 8 };
void scsi_fail_cdb(struct scsi_task *task, uint32_t byte, uint32_t bit);
void scsi_fail_parameter(struct scsi_task *task, uint32_t byte, uint32_t bit);
void scsi_fail_error(struct scsi_task *task, int error);
/* The task is over (good unless it failed before); done() follows from the loop. */
void scsi_task_end(struct scsi_task *task);
/* Parameter data for the initiator, cut to the allocation length; ends the task. */
void scsi_respond(struct scsi_task *task, const void *bytes, uint32_t length);

/* Parameter data of commands that answer with little. */
enum { SMALL_RESPONSE_BYTES = 4096 };
/* Drops a task of whatever loop: nothing of it will be answered. If its loop is `own`, dropped() is
 * left to the caller, to whom it goes by in_nexus in `mine`; else it is posted. */
void scsi_drop(struct scsi_task *task, const struct env *own, struct list *mine);
void scsi_tell_dropped(struct list *mine); /* without the lock; their loop */
/* Drops the tasks of a nexus in a unit; it is told unless it is the `requester`. */
void scsi_abort_of(struct scsi_lun *lun, const struct scsi_nexus *nexus,
                   const struct scsi_nexus *requester);
/* All target ports of the target, in ascending order; how many. */
uint32_t scsi_target_port_list(const struct scsi_target *target, uint16_t ret_ids[SCSI_PORTS_MAX]);

/* ---- unit attentions ---- */

void ua_push(struct ua_queue *queue, enum scsi_sense_code code);
enum scsi_sense_code ua_pop(struct ua_queue *queue); /* SENSE_NONE when empty */
void ua_remove(struct ua_queue *queue, enum scsi_sense_code code);
/* To every nexus but `except` (may be NULL). */
void ua_establish(struct scsi_lun *lun, enum scsi_sense_code code, const struct scsi_nexus *except);

/* ERR_RANGE: a form of LUN we do not use, or too large (SAM-5 §4.7.7). */
int scsi_lun_decode(const uint8_t field[8], uint32_t *ret_number);
void scsi_lun_release(struct scsi_lun *lun); /* frees a removed unit that has no task left */

/* ---- reservations ---- */

bool reservation_type_is_valid(uint32_t type);
bool reservation_type_is_for_registrants(uint32_t type); /* registered nexuses may use the unit */
bool reservation_type_is_of_all(uint32_t type);          /* … and hold it */
uint64_t initiator_hash(const char *initiator);
struct reservations *reservations_copy(const struct reservations *from, uint32_t more);
/* Index of a registration, or -1. */
int reservations_find(const struct reservations *state, const char *initiator, uint64_t hash,
                      uint16_t port);
int reservations_find_nexus(const struct reservations *state, const struct scsi_nexus *nexus);
/* Whether a command with these conflicts (CONFLICT_…) is refused to the nexus. */
bool reservations_conflict(const struct scsi_lun *lun, const struct scsi_nexus *nexus,
                           uint32_t conflicts);
uint32_t reservations_record_bytes(const struct reservations *state);
uint32_t reservations_encode(const struct reservations *state, uint64_t volume_id,
                             uint8_t *ret_record);
/* ERR_CORRUPT, ERR_CHECKSUM, ERR_UNSUPPORTED. Zeros: nothing is registered. */
HF_MUST_CHECK int reservations_decode(const uint8_t *record, size_t room, uint64_t volume_id,
                                      struct reservations **ret_state);
/* A running PERSISTENT RESERVE OUT: its turn comes, persistent_out() makes the changed state (NULL:
 * the task has failed), the task ends when that is in force. */
void reservations_change(struct scsi_task *task);
struct reservations *persistent_out(struct scsi_task *task);
void reservations_task_gone(struct scsi_task *task);
void reservations_nexus_gone(struct scsi_lun *lun, const struct scsi_nexus *nexus);
void reservations_init(struct scsi_lun *lun);
void reservations_done(struct scsi_lun *lun);

/* ---- thin provisioning ---- */

uint32_t provisioning_exponent(const struct scsi_lun *lun); /* 2^n blocks are a threshold set */
uint32_t provisioning_sets(uint64_t bytes);
uint64_t provisioning_threshold_bytes(const struct scsi_lun *lun);
enum { THRESHOLD_DESCRIPTOR_AT = 16 }; /* in mode page 1Ch/02h */
void provisioning_refresh(struct scsi_lun *lun);
void provisioning_wrote(struct scsi_lun *lun, uint64_t bytes);

/* ---- files of commands ---- */

void inquiry_check(struct scsi_task *task);
void inquiry_run(struct scsi_task *task);

void mode_sense_check(struct scsi_task *task);
void mode_sense_run(struct scsi_task *task);
void mode_select_check(struct scsi_task *task);
void mode_select_run(struct scsi_task *task);

void test_unit_ready_run(struct scsi_task *task);
void request_sense_run(struct scsi_task *task);
void read_capacity_10_check(struct scsi_task *task);
void read_capacity_10_run(struct scsi_task *task);
void read_capacity_16_run(struct scsi_task *task);
void prefetch_check(struct scsi_task *task);
void read_defects_check(struct scsi_task *task);
void read_defects_run(struct scsi_task *task);
void log_sense_check(struct scsi_task *task);
void log_sense_run(struct scsi_task *task);
void report_groups_check(struct scsi_task *task);
void report_groups_run(struct scsi_task *task);
void set_groups_run(struct scsi_task *task);
void or_write_run(struct scsi_task *task);
void lba_status_check(struct scsi_task *task);
void lba_status_run(struct scsi_task *task);
void report_luns_check(struct scsi_task *task);
void report_luns_run(struct scsi_task *task);
void start_stop_check(struct scsi_task *task);
void prevent_allow_check(struct scsi_task *task);
void nothing_run(struct scsi_task *task);
void report_opcodes_check(struct scsi_task *task);
void report_opcodes_run(struct scsi_task *task);
void report_functions_run(struct scsi_task *task);
void reserve_run(struct scsi_task *task);
void release_run(struct scsi_task *task);
void persistent_in_run(struct scsi_task *task);
void persistent_out_check(struct scsi_task *task);
void persistent_out_run(struct scsi_task *task);

void read_check(struct scsi_task *task);
void write_check(struct scsi_task *task);
void write_and_verify_check(struct scsi_task *task);
void verify_check(struct scsi_task *task);
void compare_and_write_check(struct scsi_task *task);
void synchronize_check(struct scsi_task *task);
void write_same_check(struct scsi_task *task);
void medium_run(struct scsi_task *task);
void synchronize_run(struct scsi_task *task);
void unmap_check(struct scsi_task *task);
void unmap_run(struct scsi_task *task);

/* Sends task->op for [cursor, cursor + length) to the volume, when the step has returned; step()
 * runs again when it is done, the cursor moved on. `data` NULL: no transfer. */
void scsi_volume_submit(struct scsi_task *task, enum volume_op op, uint64_t offset_bytes,
                        uint64_t length_bytes, void *data, uint64_t data_bytes);

/* The same, to the volume of another unit of the target, which must stay alive. */
void scsi_volume_submit_to(struct scsi_task *task, struct scsi_lun *lun, enum volume_op op,
                           uint64_t offset_bytes, uint64_t length_bytes, void *data,
                           uint64_t data_bytes);

/* ---- copies ---- */

void extended_copy_run(struct scsi_task *task);
void copy_abort_run(struct scsi_task *task);
void copy_status_run(struct scsi_task *task);
void copy_details_run(struct scsi_task *task);
void copy_parameters_run(struct scsi_task *task);
uint32_t copy_page(uint8_t *bytes);     /* VPD page 8Fh behind its header */
void copy_gone(struct scsi_task *task); /* dropped: no list identifier finds it any more */
void copy_free(struct scsi_copy *copy); /* its last request has come back */

/* The unit's designator of VPD page 83h. */
enum { SCSI_NAA_BYTES = 16 };
void scsi_lun_naa(const struct scsi_lun *lun, uint8_t ret_naa[SCSI_NAA_BYTES]);

/* Limits told in VPD page B0h and enforced by the commands. */
enum {
    UNMAP_BYTES_MAX = 512 << 20, /* 1,048,576 blocks of 512 bytes: hosts distrust more */
    WRITE_SAME_BYTES_MAX = SCSI_TRANSFER_BYTES_MAX, /* so that it can be read back in one go */
    COMPARE_BLOCKS_MAX = 255,
};
uint32_t scsi_compare_blocks_max(const struct scsi_lun *lun);

#endif
