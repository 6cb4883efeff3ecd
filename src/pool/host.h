// SPDX-License-Identifier: MPL-2.0
/* What the array needs of its host before a pool is made: that nobody's data is destroyed unasked,
 * and that whole block devices carry a partition table that says whose they are. Calls the kernel
 * and libblkid and may wait for slow disks: for threads of the management plane, never a loop. */
#ifndef HOLDFAST_POOL_HOST_H
#define HOLDFAST_POOL_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "env/env.h"
#include "format/phys.h"

struct pool_host_options {
    const char *const *paths;
    uint32_t path_count;
    bool force;         /* destroy what the disks hold */
    struct uuid random; /* by env_random(), on its loop: GUIDs are made from it */
};

/* To be called before pool_create() with the same paths. First looks at all of them and changes
 * nothing: refuses what is in use (ERR_BUSY, whatever `force`), and, unless forced, what holds
 * anything that libblkid knows (a file system, RAID, LVM, encryption, a partition table and what
 * is in its partitions) or a Holdfast label (ERR_EXISTS; the message names it). Then wipes the
 * signatures found, and on whole block devices writes a GPT with one partition of Holdfast's type,
 * which pool_create() and pool_open() find by content. Partitions and files are used as they are.
 */
HF_MUST_CHECK int pool_host_prepare(const struct pool_host_options *options, struct errmsg *reterr);

/* What is on the disk or file at `path`, in words ("ext4 file system \"backup\""); empty when
 * nothing is. Reads a few blocks. */
HF_MUST_CHECK int pool_host_content(const char *path, char *ret_text, size_t room,
                                    struct errmsg *reterr);

/* Gives this host its name in pools (state record "host": the host name and a random number), if
 * it has none yet. On the loop. */
HF_MUST_CHECK int pool_host_name(struct env *env, struct errmsg *reterr);

#endif
