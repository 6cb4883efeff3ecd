// SPDX-License-Identifier: MPL-2.0
#include "control/disks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/answer.h"
#include "pool/host.h"

/* What never is a disk of an array: memory, loops over files (give the file itself), floppies,
 * optical drives, what device mapper and md make of disks below. */
static const char *const skipped[] = {"loop", "ram", "zram", "fd", "sr", "dm-", "md", "nbd"};

static int read_attribute(const char *name, const char *attribute, char *ret_text, size_t bytes) {
    char path[300];
    (void)snprintf(path, sizeof(path), "/sys/block/%s/%s", name, attribute);
    ret_text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return ERR_NOT_FOUND;
    }
    ssize_t length = read(fd, ret_text, bytes - 1);
    close(fd);
    if (length < 0) {
        return ERR_IO;
    }
    while (length > 0 && isspace((unsigned char)ret_text[length - 1])) {
        length--;
    }
    ret_text[length] = '\0';
    return OK;
}

static void set_attribute(json_t *object, const char *key, const char *name,
                          const char *attribute) {
    char text[256];
    if (read_attribute(name, attribute, text, sizeof(text)) != OK) {
        text[0] = '\0';
    }
    (void)json_object_set_new(object, key, answer_text(text));
}

/* `in_use`: the kernel refuses an exclusive open when a file system, md, LVM or we hold the disk or
 * one of its partitions. */
static json_t *disk_json(const char *name) {
    char path[280], text[256], holds[160] = "";
    (void)snprintf(path, sizeof(path), "/dev/%s", name);
    json_t *object = json_object();
    (void)json_object_set_new(object, "path", answer_text(path));
    uint64_t sectors = 0;
    if (read_attribute(name, "size", text, sizeof(text)) == OK) {
        sectors = strtoull(text, NULL, 10); /* always of 512 bytes */
    }
    (void)json_object_set_new(object, "size_bytes", json_integer((json_int_t)(sectors * 512)));
    int error = read_attribute(name, "queue/rotational", text, sizeof(text));
    (void)json_object_set_new(object, "rotational", json_boolean(error == OK && text[0] == '1'));
    set_attribute(object, "model", name, "device/model");
    set_attribute(object, "serial", name, "device/serial");
    error = read_attribute(name, "wwid", text, sizeof(text)); /* NVMe */
    set_attribute(object, "wwn", name, error == OK ? "wwid" : "device/wwid");
    int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK);
    bool in_use = fd < 0 && errno == EBUSY;
    if (in_use) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    struct errmsg why = {0};
    if (fd < 0) {
        (void)errmsg_set(&why, ERR_IO, "%s", strerror(errno));
    } else {
        close(fd);
        if (pool_host_content(path, holds, sizeof(holds), &why) != OK) {
            holds[0] = '\0';
        }
    }
    (void)json_object_set_new(object, "problem", answer_text(why.text));
    (void)json_object_set_new(object, "in_use", json_boolean(in_use));
    (void)json_object_set_new(object, "holds", answer_text(holds));
    return object;
}

static int is_wanted(const struct dirent *entry) {
    if (entry->d_name[0] == '.') {
        return 0;
    }
    for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++) {
        if (strncmp(entry->d_name, skipped[i], strlen(skipped[i])) == 0) {
            return 0;
        }
    }
    return 1;
}

static json_t *each_disk(json_t *(*make)(const char *name)) {
    json_t *list = json_array();
    struct dirent **entries;
    int count = scandir("/sys/block", &entries, is_wanted, versionsort);
    for (int i = 0; i < count; i++) {
        (void)json_array_append_new(list, make(entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    return list;
}

json_t *disks_list(void) {
    return each_disk(disk_json);
}

static json_t *path_json(const char *name) {
    char path[280];
    (void)snprintf(path, sizeof(path), "/dev/%s", name);
    return answer_text(path);
}

json_t *disks_paths(void) {
    return each_disk(path_json);
}
