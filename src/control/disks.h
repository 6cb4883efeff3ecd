// SPDX-License-Identifier: MPL-2.0
/* The block devices of this host, as /sys and libblkid describe them. Reads only what the kernel
 * has at hand, but for the probe of what a disk holds, which reads a few of its blocks: so a dying
 * disk may make it slow, and it runs on the caller's thread, never on a loop. */
#ifndef HOLDFAST_CONTROL_DISKS_H
#define HOLDFAST_CONTROL_DISKS_H

#include <jansson.h>

/* Whole disks: an array of objects {path, size_bytes, rotational, model, serial, wwn, in_use,
 * holds, problem}; `holds` says what is on it, in words, empty when nothing is; `problem` why it
 * cannot be looked at. Never NULL. */
json_t *disks_list(void);

/* Their paths only; touches no disk. */
json_t *disks_paths(void);

#endif
