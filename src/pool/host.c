// SPDX-License-Identifier: MPL-2.0
/* Looking at foreign disks and partitioning them. All paths are opened and looked at before the
 * first is changed, so that a refusal leaves everything as it was; they stay open, exclusively,
 * from the look to the change. */
#include "pool/host.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "format/super.h"
#include "pool/gpt.h"

enum { CONTENT_BYTES = 256, PARTITIONS_NAMED = 8 };

struct target {
    const char *path;
    int fd;
    bool whole_device; /* a block device that is no partition */
    uint64_t size_bytes;
    uint32_t sector_bytes;
};

/* ---- opening ---- */

static bool is_partition(dev_t device) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(device),
                   minor(device));
    return access(path, F_OK) == 0;
}

static int refuse_errno(const char *path, const char *what, struct errmsg *reterr) {
    int error = error_from_errno(errno);
    return errmsg_set(reterr, error, "%s: %s: %s", path, what, strerror(errno));
}

static int target_measure(struct target *t, const struct stat *st, struct errmsg *reterr) {
    t->sector_bytes = SECTOR_BYTES;
    t->size_bytes = (uint64_t)st->st_size;
    if (S_ISREG(st->st_mode)) {
        return OK;
    }
    int sector = 0;
    uint64_t size = 0;
    if (ioctl(t->fd, BLKGETSIZE64, &size) != 0 || ioctl(t->fd, BLKSSZGET, &sector) != 0) {
        return refuse_errno(t->path, "cannot read its size", reterr);
    }
    t->size_bytes = size;
    t->sector_bytes = (uint32_t)sector;
    t->whole_device = !is_partition(st->st_rdev);
    if (sector != 512 && sector != 4096) {
        return errmsg_set(reterr, ERR_UNSUPPORTED,
                          "%s has sectors of %d bytes; Holdfast uses disks of 512 and 4096",
                          t->path, sector);
    }
    return OK;
}

static int target_open(struct target *t, const char *path, int flags, struct errmsg *reterr) {
    struct stat st;
    *t = (struct target){.path = path, .fd = -1};
    if (stat(path, &st) != 0) {
        return refuse_errno(path, "cannot be used", reterr);
    }
    if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode)) {
        return errmsg_set(reterr, ERR_INVALID, "%s is neither a block device nor a file", path);
    }
    int exclusive = S_ISBLK(st.st_mode) && (flags & O_ACCMODE) != O_RDONLY ? O_EXCL : 0;
    t->fd = open(path, flags | exclusive | O_CLOEXEC | O_NONBLOCK);
    if (t->fd < 0 && errno == EBUSY) {
        return errmsg_set(reterr, ERR_BUSY,
                          "%s is in use: it, or a partition on it, is mounted or part of a RAID, "
                          "LVM or another pool; free it first",
                          path);
    }
    return t->fd < 0 ? refuse_errno(path, "cannot be opened", reterr)
                     : target_measure(t, &st, reterr);
}

static void target_close(struct target *t) {
    if (t->fd >= 0) {
        (void)close(t->fd);
        t->fd = -1;
    }
}

/* ---- what is on it ---- */

static void HF_PRINTF(3, 4) add(char *text, size_t room, const char *fmt, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text + used, room - used, fmt, args);
    va_end(args);
}

static const char *value_of(blkid_probe probe, const char *name) {
    const char *value = NULL;
    return blkid_probe_lookup_value(probe, name, &value, NULL) == 0 ? value : NULL;
}

/* One signature, in words. False: none. */
static bool describe_content(blkid_probe probe, char *text, size_t room) {
    const char *type = value_of(probe, "TYPE"), *label = value_of(probe, "LABEL");
    const char *usage = value_of(probe, "USAGE");
    if (type == NULL) {
        return false;
    }
    const char *kind = usage == NULL                      ? "signature"
                       : strcmp(usage, "filesystem") == 0 ? "file system"
                       : strcmp(usage, "raid") == 0       ? "RAID or volume manager member"
                       : strcmp(usage, "crypto") == 0     ? "encrypted volume"
                                                          : "signature";
    add(text, room, "%s %s", type, kind);
    if (label != NULL && label[0] != '\0') {
        add(text, room, " \"%s\"", label);
    }
    return true;
}

/* What lies in [offset, offset + bytes), superblocks only. */
static bool describe_part(int fd, uint64_t offset, uint64_t bytes, char *text, size_t room) {
    blkid_probe probe = blkid_new_probe();
    bool found = false;
    if (probe != NULL &&
        blkid_probe_set_device(probe, fd, (blkid_loff_t)offset, (blkid_loff_t)bytes) == 0) {
        (void)blkid_probe_enable_superblocks(probe, 1);
        (void)blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
                                                           BLKID_SUBLKS_USAGE);
        found = blkid_do_probe(probe) == 0 && describe_content(probe, text, room);
    }
    blkid_free_probe(probe);
    return found;
}

static void describe_partitions(blkid_probe probe, int fd, char *text, size_t room) {
    blkid_partlist list = blkid_probe_get_partitions(probe);
    int count = list == NULL ? 0 : blkid_partlist_numof_partitions(list);
    add(text, room, " with %d partition%s", count, count == 1 ? "" : "s");
    const char *separator = " (";
    for (int i = 0; i < count && i < PARTITIONS_NAMED; i++) {
        blkid_partition part = blkid_partlist_get_partition(list, i);
        char inside[96] = "";
        uint64_t start = (uint64_t)blkid_partition_get_start(part) * SECTOR_BYTES;
        uint64_t bytes = (uint64_t)blkid_partition_get_size(part) * SECTOR_BYTES;
        if (describe_part(fd, start, bytes, inside, sizeof(inside))) {
            add(text, room, "%s%s", separator, inside);
            separator = ", ";
        }
    }
    if (separator[0] == ',') {
        add(text, room, ")");
    }
}

static void describe_foreign(int fd, char *text, size_t room) {
    blkid_probe probe = blkid_new_probe();
    if (probe == NULL || blkid_probe_set_device(probe, fd, 0, 0) != 0) {
        blkid_free_probe(probe);
        return;
    }
    (void)blkid_probe_enable_superblocks(probe, 1);
    (void)blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
                                                       BLKID_SUBLKS_USAGE);
    (void)blkid_probe_enable_partitions(probe, 1);
    int found;
    while ((found = blkid_do_probe(probe)) == 0) {
        char one[192] = "";
        const char *table = value_of(probe, "PTTYPE");
        if (describe_content(probe, one, sizeof(one))) {
            add(text, room, "%s%s", text[0] != '\0' ? ", " : "", one);
        } else if (table != NULL) {
            add(one, sizeof(one), "%s partition table", table);
            describe_partitions(probe, fd, one, sizeof(one));
            add(text, room, "%s%s", text[0] != '\0' ? ", " : "", one);
        }
    }
    blkid_free_probe(probe);
}

/* Where our own partition is, if there is one; else the whole. */
static bool find_window(const struct target *t, struct gpt_window *ret_window) {
    *ret_window = (struct gpt_window){0, t->size_bytes};
    if (t->size_bytes < 2 * (uint64_t)GPT_AREA_BYTES) {
        return false;
    }
    uint64_t size = t->size_bytes / BLOCK_BYTES * BLOCK_BYTES;
    uint8_t *areas = calloc(2, GPT_AREA_BYTES);
    bool found = areas != NULL && pread(t->fd, areas, GPT_AREA_BYTES, 0) == GPT_AREA_BYTES &&
                 pread(t->fd, areas + GPT_AREA_BYTES, GPT_AREA_BYTES,
                       (off_t)(size - GPT_AREA_BYTES)) == GPT_AREA_BYTES &&
                 gpt_find(areas, areas + GPT_AREA_BYTES, size, ret_window) == OK;
    free(areas);
    return found;
}

/* Our label at the start of the window. True also for one of a newer version or a damaged one. */
static bool describe_label(const struct target *t, uint64_t offset, char *text, size_t room) {
    _Alignas(8) uint8_t block[BLOCK_BYTES];
    struct label_phys label;
    if (pread(t->fd, block, sizeof(block), (off_t)offset) != (ssize_t)sizeof(block)) {
        return false;
    }
    int error = label_decode(block, sizeof(block), LABEL_BLOCK, &label);
    if (error == OK) {
        add(text, room, "disk %" PRIu32 " of the Holdfast pool %s", label.member, label.pool_name);
    } else if (((const struct header_phys *)(const void *)block)->type == PHYS_LABEL) {
        add(text, room, "a Holdfast label that cannot be read");
    }
    return text[0] != '\0';
}

static void describe(const struct target *t, char *text, size_t room) {
    struct gpt_window window;
    text[0] = '\0';
    bool ours = find_window(t, &window);
    if (describe_label(t, window.offset_bytes, text, room) || ours) {
        return; /* an empty partition of ours is nobody's: prepared, and never made a pool of */
    }
    describe_foreign(t->fd, text, room);
}

int pool_host_content(const char *path, char *ret_text, size_t room, struct errmsg *reterr) {
    struct target target;
    int error = target_open(&target, path, O_RDONLY, reterr);
    if (error == OK) {
        describe(&target, ret_text, room);
    }
    target_close(&target);
    return error;
}

/* ---- changing it ---- */

/* Removes every signature that libblkid finds, also backups of partition tables. */
static int wipe_signatures(const struct target *t, struct errmsg *reterr) {
    blkid_probe probe = blkid_new_probe();
    int error = OK;
    if (probe == NULL || blkid_probe_set_device(probe, t->fd, 0, 0) != 0) {
        blkid_free_probe(probe);
        return refuse_errno(t->path, "cannot look for what it holds", reterr);
    }
    (void)blkid_probe_enable_superblocks(probe, 1);
    (void)blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE);
    (void)blkid_probe_enable_partitions(probe, 1);
    (void)blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
    while (error == OK && blkid_do_probe(probe) == 0) {
        if (blkid_do_wipe(probe, 0) != 0) {
            error = refuse_errno(t->path, "cannot wipe what it holds", reterr);
        }
    }
    blkid_free_probe(probe);
    return error;
}

static int write_all(const struct target *t, const uint8_t *bytes, uint64_t offset,
                     struct errmsg *reterr) {
    ssize_t done = pwrite(t->fd, bytes, GPT_AREA_BYTES, (off_t)offset);
    if (done >= 0 && done != GPT_AREA_BYTES) {
        errno = EIO;
    }
    return done == GPT_AREA_BYTES ? OK
                                  : refuse_errno(t->path, "cannot write a partition table", reterr);
}

/* The n-th GUID made from one random number (RFC 9562 version 4, stored as GPT does). */
static struct uuid guid_make(const struct uuid *random, uint32_t n) {
    struct uuid guid = *random;
    uint32_t word;
    memcpy(&word, guid.bytes, sizeof(word));
    word += n;
    memcpy(guid.bytes, &word, sizeof(word));
    guid.bytes[7] = (uint8_t)((guid.bytes[7] & 0x0f) | 0x40);
    guid.bytes[8] = (uint8_t)((guid.bytes[8] & 0x3f) | 0x80);
    return guid;
}

static int write_table(const struct target *t, const struct uuid *random, struct errmsg *reterr) {
    const struct uuid disk = guid_make(random, 0), partition = guid_make(random, 1);
    struct gpt_window window;
    uint8_t *areas = calloc(2, GPT_AREA_BYTES);
    int error = areas == NULL ? ERR_NO_MEMORY
                              : gpt_encode(t->size_bytes, t->sector_bytes, &disk, &partition, areas,
                                           areas + GPT_AREA_BYTES, &window);
    if (error != OK) {
        error = errmsg_set(reterr, error, "%s: cannot lay out a partition table: %s", t->path,
                           error_text(error));
    } else if ((error = write_all(t, areas + GPT_AREA_BYTES, t->size_bytes - GPT_AREA_BYTES,
                                  reterr)) == OK &&
               (error = write_all(t, areas, 0, reterr)) == OK && fsync(t->fd) != 0) {
        error = refuse_errno(t->path, "cannot write a partition table", reterr);
    }
    free(areas);
    if (error == OK) {
        (void)ioctl(t->fd, BLKRRPART); /* for others to see; we find the partition by ourselves */
    }
    return error;
}

static int prepare_one(struct target *t, const struct uuid *random, struct errmsg *reterr) {
    struct gpt_window window;
    int error = OK;
    if (t->whole_device && find_window(t, &window)) {
        return OK; /* has our table; pool_create() wipes the partition */
    }
    if ((error = wipe_signatures(t, reterr)) == OK && t->whole_device) {
        error = write_table(t, random, reterr);
    }
    return error;
}

int pool_host_prepare(const struct pool_host_options *options, struct errmsg *reterr) {
    struct target *targets = calloc(options->path_count + 1, sizeof(*targets));
    if (targets == NULL) {
        return errmsg_set(reterr, ERR_NO_MEMORY, "out of memory");
    }
    int error = OK;
    uint32_t opened = 0;
    while (opened < options->path_count && error == OK) {
        struct target *t = &targets[opened];
        char holds[CONTENT_BYTES] = "";
        error = target_open(t, options->paths[opened++], O_RDWR, reterr);
        if (error == OK && !options->force) {
            describe(t, holds, sizeof(holds));
        }
        if (holds[0] != '\0') {
            error =
                errmsg_set(reterr, ERR_EXISTS, "%s holds %s; --force destroys it", t->path, holds);
        }
    }
    for (uint32_t i = 0; i < opened && error == OK; i++) {
        struct uuid random = guid_make(&options->random, 2 * i);
        error = prepare_one(&targets[i], &random, reterr);
    }
    for (uint32_t i = 0; i < opened; i++) {
        target_close(&targets[i]);
    }
    free(targets);
    return error;
}

/* ---- the host's name ---- */

int pool_host_name(struct env *env, struct errmsg *reterr) {
    char name[40] = "", text[64];
    size_t length = 0;
    if (env_state_read(env, "host", text, sizeof(text), &length) == OK && length != 0) {
        return OK;
    }
    if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
        (void)snprintf(name, sizeof(name), "host");
    }
    for (char *p = name; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~') {
            *p = '-';
        }
    }
    uint64_t random;
    env_random(env, &random, sizeof(random));
    (void)snprintf(text, sizeof(text), "%s-%08" PRIx32, name, (uint32_t)random);
    int error = env_state_write(env, "host", text, strlen(text));
    return error == OK ? OK
                       : errmsg_set(reterr, error,
                                    "this host cannot keep its state (%s); check its state folder",
                                    error_text(error));
}
