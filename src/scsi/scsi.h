// SPDX-License-Identifier: MPL-2.0
/* The SCSI device server: SAM-5, SPC-4, SBC-3 over volumes. It knows nothing of the transport.
 *
 * A *target* holds logical units: number → volume. A transport opens an *I_T nexus* for each of its
 * sessions and sends tasks through it. A nexus lives on a loop, the target's or another one: its
 * tasks begin, run and end there, and so do their callbacks. Functions about the target, its units
 * and its state are for the target's loop but where they say otherwise. What the loops share is
 * guarded inside (target.c); nothing here waits.
 *
 * Life of a task (memory is the transport's):
 *
 *     scsi_task_begin() ── false ──> ended at once: status and sense are filled in, no callback
 *          │ true: in the task set; says how much memory it needs for data
 *     transport collects the data, allocates room for the answer
 *     scsi_task_run() ──────────────> done(), once, from the loop
 *          │ scsi_task_abort(), or a task management function of any nexus
 *     dropped() at once, on another loop as soon as it gets there: no status will follow, the
 *     initiator sees nothing of it any more;
 *     done() later, from the loop, when the volume has let go of the memory
 *
 * So an abort is answered without waiting for disks. What the volume still does to the medium on
 * behalf of a dropped task cannot be called back; a later write, read or unmap that overlaps it
 * waits until it is over, so that it can never be overtaken by what it was meant to replace.
 *
 * Logical units come, go and grow at any time. Tasks of a removed unit run to their end on their
 * own; the others notice a unit attention only. */
#ifndef HOLDFAST_SCSI_SCSI_H
#define HOLDFAST_SCSI_SCSI_H

#include "base/list.h"
#include "scsi/sense.h"
#include "volume/volume.h"

enum {
    SCSI_LUNS_MAX = 256,                /* numbers 0 .. 255 */
    SCSI_LUN_TASKS_MAX = 2048,          /* in one unit's task set; more get TASK SET FULL */
    SCSI_LUN_DROPPED_MAX = 1024,        /* dropped but still in the volume; more get BUSY */
    SCSI_TRANSFER_BYTES_MAX = 16 << 20, /* MAXIMUM TRANSFER LENGTH */
    SCSI_RESPONSE_BYTES_MAX = 64 << 10, /* of any command that does not read the medium */
    SCSI_UNMAP_DESCRIPTORS_MAX = 256,
    SCSI_PARAMETER_BYTES_MAX = 8 + 16 * SCSI_UNMAP_DESCRIPTORS_MAX,
    SCSI_CDB_BYTES_MAX = 16,
    SCSI_NAME_BYTES_MAX = 256,
    SCSI_PORTS_MAX = 64, /* target ports of one target */
};

enum scsi_status {
    SCSI_GOOD = 0x00,
    SCSI_CHECK_CONDITION = 0x02,
    SCSI_BUSY = 0x08,
    SCSI_RESERVATION_CONFLICT = 0x18,
    SCSI_TASK_SET_FULL = 0x28,
    SCSI_TASK_ABORTED = 0x40,
};

/* ---- targets and logical units ---- */

struct scsi_target;

struct scsi_target *scsi_target_new(struct env *env);
/* All target ports there are now, also those without a nexus: ids in ascending order, at most
 * SCSI_PORTS_MAX. Persistent reservations and target port groups name them. Any thread. */
void scsi_target_set_ports(struct scsi_target *target, const uint16_t *ids, uint32_t count);
/* No nexus may be left. Units that are left are removed. Tasks that have not ended keep what they
 * need. */
void scsi_target_free(struct scsi_target *target);

/* ERR_RANGE (number), ERR_EXISTS, ERR_INVALID (block size, size). `info` is copied. The unit is
 * BUSY until it has recalled its reservations through the door. */
HF_MUST_CHECK int scsi_lun_add(struct scsi_target *target, uint32_t number,
                               struct volume_door *door, const struct volume_info *info,
                               struct errmsg *reterr);
/* The unit is gone for the next command. ERR_NOT_FOUND. */
HF_MUST_CHECK int scsi_lun_remove(struct scsi_target *target, uint32_t number,
                                  struct errmsg *reterr);
/* Takes over a changed size or sync of the same volume; initiators are told. ERR_NOT_FOUND,
 * ERR_INVALID. */
HF_MUST_CHECK int scsi_lun_update(struct scsi_target *target, uint32_t number,
                                  const struct volume_info *info, struct errmsg *reterr);

struct scsi_lun_status {
    uint32_t number;
    uint64_t volume_id;
    char volume_name[64];
    uint64_t size_bytes;
    uint32_t block_bytes;
    uint32_t tasks, dropped_tasks;
    uint64_t reads, writes, read_bytes, write_bytes, errors;
    uint64_t latency_ns; /* the sum of what reads and writes took, from scsi_task_run() on */
};
/* Fills at most `room` entries in order of number; returns how many units there are. */
uint32_t scsi_lun_list(struct scsi_target *target, struct scsi_lun_status *ret_luns, uint32_t room);
/* Tasks the volumes have not given back yet, dropped ones included, removed units too. */
uint32_t scsi_target_outstanding(struct scsi_target *target);
/* No such task is left, and no nexus. */
bool scsi_target_is_idle(struct scsi_target *target);

/* ---- I_T nexuses ---- */

/* The two ends of a nexus. The target port is for the designators of VPD page 83h (SPC-4 §7.8.6);
 * the initiator port is whom reservations belong to, also when the nexus is gone. */
struct scsi_port {
    uint16_t relative_id;                  /* 1 .. 65535 */
    uint16_t group;                        /* target port group */
    char port_name[SCSI_NAME_BYTES_MAX];   /* SCSI name string: "iqn…,t,0x0001" */
    char device_name[SCSI_NAME_BYTES_MAX]; /* SCSI name string of the target device: "iqn…" */
    /* Name of the initiator port, not empty, in lower case: "iqn…,i,0x" and the ISID. */
    char initiator_port[SCSI_NAME_BYTES_MAX];
    struct env *env; /* the loop of the nexus; NULL: the target's */
};

struct scsi_nexus;

/* Every unit reports a unit attention (29h/00h) to it first. The port is copied. Any thread. */
struct scsi_nexus *scsi_nexus_open(struct scsi_target *target, const struct scsi_port *port);
/* It lives on this loop from now on. It must have no task. */
void scsi_nexus_move(struct scsi_nexus *nexus, struct env *env);
/* Which numbers it may use from now on (bit n % 8 of byte n / 8); at first all. Units that it loses
 * abort its tasks and are as if they did not exist; the others hear that the inventory changed. Any
 * thread, as long as the nexus is not closed meanwhile. */
void scsi_nexus_show(struct scsi_nexus *nexus, const uint8_t numbers[SCSI_LUNS_MAX / 8]);
/* Aborts what is left of its tasks. */
void scsi_nexus_close(struct scsi_nexus *nexus);

/* ---- tasks ---- */

struct scsi_command;
struct scsi_copy;
struct scsi_lun;

struct scsi_task {
    /* Set by the transport before scsi_task_begin(). */
    struct scsi_nexus *nexus;
    uint8_t lun_field[8]; /* SAM-5 §4.7 */
    uint8_t cdb[SCSI_CDB_BYTES_MAX];
    uint64_t expected_out_bytes; /* what the initiator holds ready to send … */
    uint64_t expected_in_bytes;  /* … and has room for; at most one is not 0 */
    void (*done)(struct scsi_task *task);
    void (*dropped)(struct scsi_task *task);
    void *owner;

    /* Set by scsi_task_begin(): data to collect and room to provide, never more than expected
     * (rounded up to a logical block for the room). */
    uint32_t data_out_bytes, data_in_bytes;

    /* Set by the transport before scsi_task_run(); stays the transport's memory until done(). */
    uint8_t *data_out, *data_in;

    /* The result. */
    bool aborted;
    uint8_t status;
    uint8_t sense[SCSI_SENSE_BYTES_MAX];
    uint32_t sense_bytes;
    uint32_t data_in_ready_bytes; /* of data_in, to be sent; at most expected_in_bytes */
    uint64_t transfer_bytes; /* what the command moves by itself; the residual is its difference
                                to what was expected */

    /* Private to the device server. */
    struct scsi_target *target;
    struct env *env; /* its loop */
    struct list in_lun, in_nexus;
    struct list in_waiting; /* for dropped tasks, or for its turn to change reservations */
    struct env_task defer;  /* ends it, from its loop */
    struct env_task drop;   /* brings word of dropped() to its loop */
    struct scsi_lun *lun;
    const struct scsi_command *command;
    enum { SCSI_TASK_BEGUN, SCSI_TASK_RUNNING, SCSI_TASK_ENDED } state;
    bool in_volume, failed;
    bool active;  /* a step of it runs, on its loop */
    bool submits; /* … and has a request for the volume */
    bool queued;  /* `defer` is */
    bool told;    /* dropped() has been called */
    void (*step)(struct scsi_task *task);
    struct volume_request request;
    struct iovec iov;
    uint64_t began_ns;
    uint64_t start_bytes, cursor_bytes, end_bytes;
    uint32_t descriptor;
    enum volume_op op;
    bool fua, flush_first, verify_after, compare;
    bool takes_errors; /* step() sees how the request ended */
    struct mem_pages *scratch;
    struct volume_space space;
    struct scsi_lun *request_lun; /* where the request goes: another unit's volume for copies */
    struct scsi_copy *copy;
};

HF_MUST_CHECK bool scsi_task_begin(struct scsi_task *task);
void scsi_task_run(struct scsi_task *task);
/* Begun or running only; dropped() is called from inside. */
void scsi_task_abort(struct scsi_task *task);
/* Ends a begun task that will not run with CHECK CONDITION: the transport could not deliver its
 * data. Status and sense are filled in; no callback. False: somebody has dropped it; the callbacks
 * are on their way. */
HF_MUST_CHECK bool scsi_task_refuse(struct scsi_task *task, enum scsi_sense_code code);

/* ---- task management (SAM-5 §7) ---- */

enum scsi_function {
    SCSI_ABORT_TASK_SET, /* tasks of this nexus in the unit */
    SCSI_CLEAR_TASK_SET, /* tasks of all nexuses in the unit */
    SCSI_LUN_RESET,
    SCSI_TARGET_RESET, /* every unit; lun_field is not looked at */
};
/* OK or ERR_NOT_FOUND (no such unit). When it returns no task concerned will be answered any more;
 * those of the loop of the nexus have been told. */
HF_MUST_CHECK int scsi_manage(struct scsi_nexus *nexus, enum scsi_function function,
                              const uint8_t lun_field[8]);

/* ---- the table of commands, for tests and documentation ---- */

const struct scsi_command *scsi_command_find(const uint8_t *cdb);

#endif
