// SPDX-License-Identifier: MPL-2.0
/* Looking at disks, by content and never by name.
 *
 * A path is a disk as it is, or holds a partition table with one partition of ours, which then is
 * the disk (read through a window, so that partition nodes are not needed). Label and superblocks
 * have copies at both ends; every copy is read on its own, so that one unreadable place costs only
 * the copy that lies there. Where the end is, is told by the label at the front; without it the
 * sizes that pool_create() would have chosen are tried. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "pool/gpt.h"
#include "pool/internal.h"

static const uint64_t MIB = 1 << 20;

uint64_t usable_blocks(uint64_t size_bytes) {
    uint64_t unit = size_bytes > 4096 * MIB ? 64 * MIB : MIB;
    return round_down(size_bytes, unit) / BLOCK_BYTES;
}

static bool is_zero(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* ---- labels ---- */

static enum copy_state copy_state_of(int decode_error) {
    return decode_error == OK                ? COPY_GOOD
           : decode_error == ERR_UNSUPPORTED ? COPY_UNSUPPORTED
                                             : COPY_DAMAGED;
}

static int label_read(struct probe *p, uint64_t block, struct buf *buf,
                      struct label_phys *ret_label) {
    int error = disk_read(p->disk, block * BLOCK_BYTES, BLOCK_BYTES, buf, 0);
    return error != OK ? error : label_decode(buf->data, BLOCK_BYTES, block, ret_label);
}

/* Without the label at the front. */
static int label_search(struct probe *p, struct buf *buf) {
    uint64_t size = disk_info(p->disk)->size_bytes;
    const uint64_t ends[] = {usable_blocks(size), size / BLOCK_BYTES};
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
        struct label_phys label;
        if (ends[i] > TAIL_BLOCKS && label_read(p, ends[i] - 1, buf, &label) == OK &&
            label.disk_blocks == ends[i]) {
            p->label = label;
            p->label_copies[1] = COPY_GOOD;
            p->labelled = true;
            return OK;
        }
    }
    return ERR_NOT_FOUND;
}

static void read_labels(struct probe *p, struct buf *buf) {
    if (disk_info(p->disk)->size_bytes < (RING_START + TAIL_BLOCKS) * BLOCK_BYTES) {
        errmsg_set(&p->problem, ERR_FOREIGN, "%s is too small to be a disk of any pool", p->path);
        return;
    }
    int error = label_read(p, LABEL_BLOCK, buf, &p->label);
    p->label_copies[0] = copy_state_of(error);
    if (error == ERR_UNSUPPORTED) {
        errmsg_set(&p->problem, ERR_UNSUPPORTED,
                   "%s carries a Holdfast label of a newer version; use a newer holdfast for it",
                   p->path);
        return;
    }
    if (error == ERR_TIMEOUT || error == ERR_DISK_GONE) {
        errmsg_set(&p->problem, error, "%s does not answer (%s); check the disk and its cable",
                   p->path, error_text(error));
        return;
    }
    if (error != OK) {
        p->label_copies[1] = COPY_DAMAGED;
        if (label_search(p, buf) != OK) {
            errmsg_set(&p->problem, ERR_FOREIGN,
                       error == ERR_CHECKSUM
                           ? "%s carries a Holdfast label that is damaged in both copies"
                           : "%s carries no Holdfast label: it is not a disk of any pool",
                       p->path);
            return;
        }
        disk_note(p->disk, DISK_ERROR_CHECKSUM, 0, BLOCK_BYTES,
                  "the label at the front is damaged; its copy is used");
        return;
    }
    p->labelled = true;
    uint64_t size = disk_info(p->disk)->size_bytes;
    if (size / BLOCK_BYTES < p->label.disk_blocks) {
        char is[16], was[16];
        size_format(size, is, sizeof(is));
        size_format(p->label.disk_blocks * BLOCK_BYTES, was, sizeof(was));
        errmsg_set(&p->problem, ERR_CORRUPT,
                   "%s (disk %" PRIu32 " of pool %s) is cut off: its label says %s, it has %s; "
                   "give it back its size, or leave it out and replace it",
                   p->path, p->label.member, p->label.pool_name, was, is);
        return;
    }
    struct label_phys copy;
    uint64_t block = p->label.disk_blocks - 1;
    error = label_read(p, block, buf, &copy);
    p->label_copies[1] = copy_state_of(error);
    if (error != OK || !uuid_equal(&copy.disk, &p->label.disk) ||
        !uuid_equal(&copy.pool, &p->label.pool)) {
        p->label_copies[1] = COPY_DAMAGED;
        disk_note(p->disk, DISK_ERROR_CHECKSUM, block * BLOCK_BYTES, BLOCK_BYTES,
                  "the copy of the label is damaged; the label at the front is used");
    }
}

/* ---- superblocks ---- */

static bool is_newer(const struct super_phys *a, const struct super_phys *b) {
    return a->config_epoch != b->config_epoch ? a->config_epoch > b->config_epoch
                                              : a->sequence > b->sequence;
}

/* The slot's own disk must be the member it says it is. */
static int slot_read(struct probe *p, uint32_t slot, struct buf *buf,
                     struct super_phys *ret_super) {
    uint64_t block = layout_super_block(slot, p->label.disk_blocks);
    int error = disk_read(p->disk, block * BLOCK_BYTES, SUPER_BYTES, buf, 0);
    if (error != OK) {
        p->slots[slot] = COPY_DAMAGED;
        return error;
    }
    if (is_zero(buf->data, SUPER_BYTES)) {
        p->slots[slot] = COPY_EMPTY;
        return ERR_NOT_FOUND;
    }
    error = super_decode(buf->data, SUPER_BYTES, &p->label.disk, block, ret_super);
    if (error == OK && (!uuid_equal(&ret_super->pool, &p->label.pool) ||
                        p->label.member >= ret_super->member_count ||
                        !uuid_equal(&ret_super->members[p->label.member].disk, &p->label.disk) ||
                        (ret_super->sequence & 1) != (slot & 1))) {
        error = ERR_CORRUPT;
    }
    p->slots[slot] = copy_state_of(error);
    return error;
}

static void read_slots(struct probe *p, struct buf *buf) {
    struct super_phys *super = MEM_NEW(struct super_phys);
    for (uint32_t slot = 0; slot < SUPER_SLOTS; slot++) {
        int error = slot_read(p, slot, buf, super);
        if (error == OK) {
            p->slot_sequence[slot] = super->sequence;
            p->slot_mount_id[slot] = super->mount_id;
            if (p->super == NULL) {
                p->super = MEM_NEW(struct super_phys);
                *p->super = *super;
            } else if (is_newer(super, p->super)) {
                *p->super = *super;
            }
        } else if (error == ERR_TIMEOUT || error == ERR_DISK_GONE) {
            errmsg_set(&p->problem, error, "%s does not answer (%s); check the disk and its cable",
                       p->path, error_text(error));
            break;
        } else if (p->slots[slot] == COPY_DAMAGED) {
            char text[96];
            (void)snprintf(text, sizeof(text), "superblock slot %" PRIu32 " is damaged: %s", slot,
                           error_text(error));
            disk_note(p->disk, DISK_ERROR_CHECKSUM,
                      layout_super_block(slot, p->label.disk_blocks) * BLOCK_BYTES, SUPER_BYTES,
                      text);
        } else if (p->slots[slot] == COPY_UNSUPPORTED) {
            errmsg_set(&p->problem, ERR_UNSUPPORTED,
                       "%s (disk %" PRIu32 " of pool %s) was written by a newer holdfast, or "
                       "one of before the format was stable, in a format this one does not read; "
                       "use that version",
                       p->path, p->label.member, p->label.pool_name);
        }
    }
    mem_free(super);
    if (p->super == NULL) {
        errmsg_set(&p->problem, ERR_CORRUPT,
                   "%s (disk %" PRIu32 " of pool %s) has no superblock left that can be read; "
                   "leave it out and replace it",
                   p->path, p->label.member, p->label.pool_name);
    }
}

/* ---- opening ---- */

/* Whether the disk carries our label itself (then nothing in its first block is looked at as a
 * partition table), else whether one of its partitions is ours. */
static bool find_window(struct probe *p, struct gpt_window *ret_window) {
    uint64_t size = disk_info(p->disk)->size_bytes;
    if (size < 2 * GPT_AREA_BYTES) {
        return false;
    }
    bool found = false;
    struct buf *front = buf_new(GPT_AREA_BYTES), *back = buf_new(GPT_AREA_BYTES);
    if (disk_read(p->disk, 0, GPT_AREA_BYTES, front, 0) == OK) {
        const struct header_phys *h = (const struct header_phys *)(const void *)front->data;
        if (h->type != PHYS_LABEL &&
            disk_read(p->disk, size - GPT_AREA_BYTES, GPT_AREA_BYTES, back, 0) == OK) {
            found = gpt_find(front->data, back->data, size, ret_window) == OK;
        }
    }
    buf_unref(front);
    buf_unref(back);
    return found;
}

/* The disk, or the partition of it that is ours. */
static int open_path(struct env *env, struct probe *p, const struct disk_options *options) {
    int error = disk_open(env, p->path, options, &p->disk, &p->problem);
    if (error != OK) {
        return errmsg_set(&p->problem, error, "%s: %s", p->path, error_text(error));
    }
    struct gpt_window window;
    if (options->env.length_bytes != 0 || options->env.offset_bytes != 0 ||
        !find_window(p, &window)) {
        return OK;
    }
    disk_close(p->disk);
    p->disk = NULL;
    struct disk_options inner = *options;
    inner.env.offset_bytes = window.offset_bytes;
    inner.env.length_bytes = window.length_bytes;
    error = disk_open(env, p->path, &inner, &p->disk, &p->problem);
    return error == OK ? OK : errmsg_set(&p->problem, error, "%s: %s", p->path, error_text(error));
}

struct probe_job {
    struct env *env;
    struct probe *probe;
    struct disk_options options;
    struct fiber_group *group;
};

/* Who holds it may be reading it just now, or be another service. Whether it is a disk of a pool
 * that somebody wants to open can be seen all the same. */
static void look_at_busy(struct env *env, struct probe *p, const struct disk_options *options,
                         struct buf *buf) {
    struct disk_options look = *options;
    look.env.exclusive = false;
    look.env.read_only = true;
    p->busy = true;
    if (open_path(env, p, &look) == OK) { /* `problem` stays what it is: the first one counts */
        read_labels(p, buf);
        disk_close(p->disk);
        p->disk = NULL;
    }
}

static void probe_fiber(void *arg) {
    struct probe_job *job = arg;
    struct probe *p = job->probe;
    struct buf *buf = buf_new(SUPER_BYTES);
    int error = open_path(job->env, p, &job->options);
    if (error == OK) {
        read_labels(p, buf);
        if (p->problem.code == OK) {
            read_slots(p, buf);
        }
    } else if (error == ERR_BUSY) {
        look_at_busy(job->env, p, &job->options, buf);
    }
    buf_unref(buf);
    fiber_group_done(job->group, OK);
    mem_free(job);
}

static void probe_start(struct env *env, struct probe *p, const struct disk_options *options,
                        bool read_only, struct fiber_group *group) {
    struct probe_job *job = MEM_NEW(struct probe_job);
    *job = (struct probe_job){.env = env, .probe = p, .options = *options, .group = group};
    job->options.env.exclusive = true;
    job->options.env.read_only = read_only;
    fiber_group_add(group);
    fiber_start(env, probe_fiber, job);
}

struct probe *probe_paths(struct env *env, const char *const *paths, uint32_t count,
                          const struct disk_options *options, bool read_only) {
    struct probe *probes = MEM_NEW_ARRAY(struct probe, count + 1);
    struct fiber_group group = FIBER_GROUP_INIT;
    for (uint32_t i = 0; i < count; i++) {
        probes[i].path = mem_strdup(paths[i]);
        probe_start(env, &probes[i], options, read_only, &group);
    }
    int ignored = fiber_group_wait(&group); /* each probe has its own problem */
    (void)ignored;
    return probes;
}

void probe_again(struct env *env, struct probe *probes, uint32_t count,
                 const struct disk_options *options, bool read_only) {
    struct fiber_group group = FIBER_GROUP_INIT;
    for (uint32_t i = 0; i < count; i++) {
        if (probes[i].busy) {
            probes[i] = (struct probe){.path = probes[i].path}; /* it has no disk, no superblock */
            probe_start(env, &probes[i], options, read_only, &group);
        }
    }
    int ignored = fiber_group_wait(&group);
    (void)ignored;
}

void probes_free(struct probe *probes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        disk_close(probes[i].disk);
        mem_free(probes[i].super);
        mem_free(probes[i].path);
    }
    mem_free(probes);
}
