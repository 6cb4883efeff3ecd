// SPDX-License-Identifier: MPL-2.0
/* Whether a target holds anything that must not be overwritten unasked. */
#ifndef HOLDFAST_BENCH_CONTENT_H
#define HOLDFAST_BENCH_CONTENT_H

#include "bench/target.h"

/* What is read of a target to tell: its first 4 MiB (VMFS has its mark at 2 MiB, LVM, partition
 * tables, file systems and a Holdfast label within the first) and its last MiB (RAID, the second
 * partition table). */
enum { CONTENT_FRONT_BYTES = 4 << 20, CONTENT_BACK_BYTES = 1 << 20 };

/* ERR_EXISTS, with a sentence that says what is there: anything that libblkid knows or a Holdfast
 * label; of a file, anything but zeroes. Nothing is ever found in a file of our own. */
HF_MUST_CHECK int bench_content_refuse(struct bench_target *target, struct errmsg *reterr);

/* The same, of the two ends themselves. `text` is empty when nothing is known. */
HF_MUST_CHECK int bench_content_name(const uint8_t *front, uint64_t front_bytes,
                                     const uint8_t *back, uint64_t back_bytes, uint64_t size_bytes,
                                     char *ret_text, size_t room, struct errmsg *reterr);

#endif
