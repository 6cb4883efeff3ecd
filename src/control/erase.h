// SPDX-License-Identifier: MPL-2.0
/* Takes a disk of a destroyed pool apart again. */
#ifndef HOLDFAST_CONTROL_ERASE_H
#define HOLDFAST_CONTROL_ERASE_H

#include "env/env.h"
#include "format/phys.h"

/* Overwrites labels, superblocks and Holdfast's partition table at `path` with zeroes, so that
 * nothing takes the disk for one of the pool any more; data stays where it was. Refuses a disk
 * that is not one of `pool` (ERR_FOREIGN) or is in use (ERR_BUSY). Fiber. */
HF_MUST_CHECK int erase_disk(struct env *env, const char *path, const struct uuid *pool,
                             struct errmsg *reterr);

#endif
