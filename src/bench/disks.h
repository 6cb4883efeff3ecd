// SPDX-License-Identifier: MPL-2.0
/* Disks that can be predicted with (`holdfast bench model`): the models that have a data sheet; and
 * lists of them as people write them. */
#ifndef HOLDFAST_BENCH_DISKS_H
#define HOLDFAST_BENCH_DISKS_H

#include "base/error.h"
#include "env/sim/sim.h"
#include "format/layout.h"

const struct sim_model *bench_disk_at(uint32_t index); /* NULL beyond the last */
const struct sim_model *bench_disk_find(const char *name);

/* Up to 24 disks, in the order given. */
struct bench_disk_list {
    uint32_t count;
    const struct sim_model *disks[24];
    char text[128]; /* the list written the one way: "6x hdd-7200-2tb + 2x sata-ssd" */
};

/* "6x hdd-7200-2tb", "4xsata-ssd", "2x nvme-1tb + 4x hdd-7200-8tb", "sata-ssd". ERR_INVALID with a
 * sentence that names the disks there are. */
HF_MUST_CHECK int bench_disk_list_parse(const char *text, struct bench_disk_list *ret_list,
                                        struct errmsg *reterr);

#endif
