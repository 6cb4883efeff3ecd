// SPDX-License-Identifier: MPL-2.0
/* What the kernel knows about a block device: /sys/dev/block/MAJOR:MINOR leads to it; a partition's
 * folder is inside its disk's. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "env/linux/internal.h"

enum { SYSFS_PATH_MAX = 256, SYSFS_VALUE_MAX = 256 };

/* Raw content of an attribute; 0 when there is none. */
static size_t attribute(const char *folder, const char *name, char *ret_value, size_t bytes) {
    char path[SYSFS_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t length = read(fd, ret_value, bytes);
    (void)close(fd);
    return length > 0 ? (size_t)length : 0;
}

/* Printable text without the spaces that SCSI pads with. */
static bool set_text(char *ret_text, size_t text_bytes, const char *value, size_t length) {
    while (length > 0 && isspace((unsigned char)*value)) {
        value++;
        length--;
    }
    size_t used = 0;
    for (size_t i = 0; i < length && value[i] != 0 && used + 1 < text_bytes; i++) {
        ret_text[used++] = isprint((unsigned char)value[i]) ? value[i] : ' ';
    }
    while (used > 0 && ret_text[used - 1] == ' ') {
        used--;
    }
    ret_text[used] = 0;
    return used > 0;
}

static bool text_attribute(const char *folder, const char *name, char *ret_text,
                           size_t text_bytes) {
    char value[SYSFS_VALUE_MAX];
    size_t length = attribute(folder, name, value, sizeof(value));
    return length > 0 && set_text(ret_text, text_bytes, value, length);
}

static bool number_is_set(const char *folder, const char *name) {
    char value[SYSFS_VALUE_MAX];
    size_t length = attribute(folder, name, value, sizeof(value));
    return length > 0 && value[0] != '0';
}

/* SPC-4 §7.8.16, unit serial number page: four bytes of header, then text. */
static void scsi_serial(const char *folder, struct env_disk_info *info) {
    char page[SYSFS_VALUE_MAX];
    size_t length = attribute(folder, "device/vpd_pg80", page, sizeof(page));
    if (length > 4) {
        (void)set_text(info->serial, sizeof(info->serial), page + 4, length - 4);
    }
}

void sysfs_describe(uint64_t device, bool is_block, struct env_disk_info *info) {
    char folder[SYSFS_PATH_MAX / 2];
    (void)snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u", major(device), minor(device));
    char partition[sizeof(folder) + 16];
    (void)snprintf(partition, sizeof(partition), "%s/partition", folder);
    if (access(partition, F_OK) == 0) {
        size_t used = strlen(folder);
        (void)snprintf(folder + used, sizeof(folder) - used, "/..");
    }
    info->rotational = number_is_set(folder, "queue/rotational");
    if (!is_block) {
        return;
    }
    info->discards = number_is_set(folder, "queue/discard_max_bytes");
    (void)text_attribute(folder, "device/model", info->model, sizeof(info->model));
    if (!text_attribute(folder, "device/serial", info->serial, sizeof(info->serial)) &&
        !text_attribute(folder, "serial", info->serial, sizeof(info->serial))) {
        scsi_serial(folder, info);
    }
    if (!text_attribute(folder, "wwid", info->wwn, sizeof(info->wwn))) {
        (void)text_attribute(folder, "device/wwid", info->wwn, sizeof(info->wwn));
    }
}
