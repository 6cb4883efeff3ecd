// SPDX-License-Identifier: MPL-2.0
/* The files of faultfs: what has reached the backing file and what has not.
 *
 * A file behaves like a disk with a volatile write cache. A write goes to a list in memory, in
 * order; a flush applies the list to the backing file and empties it; a durable write goes to the
 * backing file alone, and cuts what older unflushed writes hold of its range. Reads see the backing
 * file with the list laid over it. At a "power cut" (store_drop) each unflushed write, or each of
 * its sectors, is kept or lost at random: what is kept is applied in order, so that a sector may
 * end up as the newest, an older, or the flushed version.
 *
 * The backing file is written through the host's page cache and never synced: the host does not
 * fail, only the simulated disk does.
 *
 * Nothing here is thread-safe: the caller holds one lock around all of it. */
#ifndef FAULTFS_STORE_H
#define FAULTFS_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/list.h"

enum { FILES_MAX = 256, SECTOR = 512 };

enum file_op { OP_READ, OP_WRITE, OP_FLUSH, OP_DISCARD, OP_COUNT };

enum fault_kind { FAULT_NONE, FAULT_FAIL, FAULT_DELAY, FAULT_HANG };

struct fault {
    enum fault_kind kind;
    uint64_t count; /* how many more requests it hits; UINT64_MAX: all */
    uint64_t delay_ms;
};

struct file {
    uint64_t ino; /* ours; index in the table + FILES_FIRST_INO */
    char name[256];
    int fd;             /* the backing file, or -1: not in use */
    struct list writes; /* struct unflushed, oldest first */
    uint64_t cached_bytes;
    uint64_t
        cache_limit_bytes; /* beyond it the oldest writes reach the backing file by themselves */
    bool ignore_flush;     /* flushes and durable writes are acknowledged and do nothing */
    struct fault faults[OP_COUNT];
    uint64_t counts[OP_COUNT], durable_writes, faulted, dropped_writes, kept_writes;
};

enum { FILES_FIRST_INO = 2 };

/* All return 0 or a positive errno. */

/* Finds or opens the file of that name in the backing folder. */
int store_file(int folder, const char *name, uint64_t cache_limit_bytes, struct file **ret_file);
struct file *store_by_ino(uint64_t ino);     /* NULL: no such file */
struct file *store_next(struct file *after); /* NULL begins and ends */
void store_forget_name(struct file *file);   /* unlinked: open handles go on */

uint64_t file_size(const struct file *file);
int file_read(const struct file *file, uint64_t offset, uint8_t *ret_data, size_t bytes,
              size_t *ret_bytes);
int file_write(struct file *file, uint64_t offset, const uint8_t *data, size_t bytes, bool durable);
int file_discard(struct file *file, uint64_t offset, uint64_t bytes);
int file_flush(struct file *file);      /* as a program asks for it: may be ignored */
int file_write_back(struct file *file); /* whatever ignore_flush says */
int file_truncate(struct file *file, uint64_t size);
int file_flip(struct file *file, uint64_t offset, uint8_t mask);
/* The power cut. Keeps keep_pct of 100 writes, or of their sectors. */
int file_drop(struct file *file, uint64_t seed, unsigned keep_pct, bool by_sector);

#endif
