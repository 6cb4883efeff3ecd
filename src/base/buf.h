// SPDX-License-Identifier: MPL-2.0
/* A reference-counted piece of page-aligned memory: what disks read into and write from.
 *
 * Whoever starts an I/O gives it a reference; the disk layer keeps that reference until the kernel
 * is done with the memory, even when the I/O has long been given up (its deadline passed). So a
 * caller may drop its own reference at any time. The count is atomic: buffers cross threads. */
#ifndef HOLDFAST_BASE_BUF_H
#define HOLDFAST_BASE_BUF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct buf {
    struct mem_pages pages; /* first: one allocation for both */
    atomic_uint refs;
    uint8_t *data; /* aligned to 4096 */
    size_t bytes;  /* whole pages */
};

struct buf *buf_new(size_t bytes); /* one reference; contents undefined */
struct buf *buf_ref(struct buf *b);
void buf_unref(struct buf *b); /* NULL is allowed */

#endif
