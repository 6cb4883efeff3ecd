// SPDX-License-Identifier: MPL-2.0
#include "control/erase.h"

#include <string.h>

#include "disk/disk.h"
#include "format/super.h"
#include "pool/gpt.h"

enum { AREA_BYTES = GPT_AREA_BYTES }; /* also holds the label and both front superblocks */
_Static_assert((int)AREA_BYTES >= (int)RING_START * (int)BLOCK_BYTES, "front");
_Static_assert((int)AREA_BYTES >= (int)TAIL_BLOCKS * (int)BLOCK_BYTES, "back");

static int zero(struct disk *disk, struct buf *buf, uint64_t offset_bytes, uint64_t length_bytes) {
    memset(buf->data, 0, AREA_BYTES);
    return disk_write(disk, offset_bytes, length_bytes, buf, 0, true);
}

/* The window of the device that the pool used, and the label in it. */
static int find_label(struct disk *disk, struct buf *front, struct buf *back,
                      struct gpt_window *ret_window, bool *ret_table,
                      struct label_phys *ret_label) {
    uint64_t size = disk_info(disk)->size_bytes;
    struct gpt_window window = {0, size};
    if (size < 2 * (uint64_t)AREA_BYTES) {
        return ERR_RANGE;
    }
    int error = disk_read(disk, 0, AREA_BYTES, front, 0);
    if (error == OK) {
        error = disk_read(disk, size - AREA_BYTES, AREA_BYTES, back, 0);
    }
    if (error != OK) {
        return error;
    }
    *ret_table = gpt_find(front->data, back->data, size, &window) == OK;
    if (*ret_table) {
        error = disk_read(disk, window.offset_bytes, BLOCK_BYTES, front, 0);
    }
    if (error == OK) {
        error = phys_check(front->data, PHYS_LABEL, sizeof(*ret_label), BLOCK_BYTES, LABEL_BLOCK);
    }
    if (error == OK) {
        memcpy(ret_label, front->data, sizeof(*ret_label));
        *ret_window = window;
    }
    return error;
}

static int erase(struct disk *disk, const char *path, const struct uuid *pool, struct buf *front,
                 struct buf *back, struct errmsg *reterr) {
    struct gpt_window window;
    struct label_phys label;
    bool table = false;
    int error = find_label(disk, front, back, &window, &table, &label);
    if (error != OK || memcmp(label.pool.bytes, pool->bytes, sizeof(pool->bytes)) != 0) {
        return errmsg_set(reterr, ERR_FOREIGN,
                          "%s does not carry the pool's label (any more); it was left as it is",
                          path);
    }
    uint64_t used = label.disk_blocks * BLOCK_BYTES;
    if (label.disk_blocks <= TAIL_BLOCKS || used > window.length_bytes) {
        used = window.length_bytes;
    }
    /* The back first: as long as the front label is there, this can be done again. */
    error = zero(disk, back, window.offset_bytes + used - (uint64_t)TAIL_BLOCKS * BLOCK_BYTES,
                 (uint64_t)TAIL_BLOCKS * BLOCK_BYTES);
    if (error == OK) {
        error = zero(disk, back, window.offset_bytes, (uint64_t)RING_START * BLOCK_BYTES);
    }
    if (error == OK && table) {
        error = zero(disk, back, disk_info(disk)->size_bytes - AREA_BYTES, AREA_BYTES);
    }
    if (error == OK && table) {
        error = zero(disk, back, 0, AREA_BYTES);
    }
    if (error == OK) {
        error = disk_flush(disk);
    }
    return error == OK ? OK
                       : errmsg_set(reterr, error, "cannot erase the label of %s: %s", path,
                                    error_text(error));
}

int erase_disk(struct env *env, const char *path, const struct uuid *pool, struct errmsg *reterr) {
    const struct disk_options options = {.env = {.exclusive = true}};
    struct disk *disk;
    int error = disk_open(env, path, &options, &disk, reterr);
    if (error != OK) {
        return error;
    }
    struct buf *front = buf_new(AREA_BYTES), *back = buf_new(AREA_BYTES);
    error = erase(disk, path, pool, front, back, reterr);
    buf_unref(front);
    buf_unref(back);
    disk_close(disk);
    return error;
}
