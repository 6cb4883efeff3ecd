// SPDX-License-Identifier: MPL-2.0
/* The catalogue of modelled disks. A figure comes from the data sheet named in `source`; where
 * makers are silent (track-to-track and full stroke, the inner rate, retries, the tail of flash) it
 * is what reviewers measure of the class. How a rotating disk's time is made of seek, turn and
 * transfer is in env/sim/rotation.c, flash in env/sim/flash.c.
 *
 * To add a disk: its entry here. The test of the models (tests/sim/test_bench_model.c) goes through
 * this table and fails when random reads over the whole disk, one at a time, are further than 10 %
 * from what the data sheet implies.
 *
 * Where the models are generous: flash collects no garbage beyond its tail of slow commands, so it
 * writes at random as fast as in order, for ever; no disk grows slower as it fills. */
#include "bench/disks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

#define SHEET_HDD(seek_ms, rpm) (1000 / ((seek_ms) + 30000.0 / (rpm)))

static const struct bench_disk catalogue[] = {
    {
        .source = "Hitachi Deskstar 7K2000 (HDS722020ALA330): 7200 rpm, 8.2 ms average seek, "
                  "32 MB buffer, 3 Gbit/s",
        .sheet_read_iops = SHEET_HDD(8.2, 7200),
        .model = {.name = "hdd-7200-2tb",
                  .what = "2 TB, 7200 rpm, SATA, of about 2010",
                  .rotational = true,
                  .capacity_bytes = 2000398934016,
                  .queue_depth = 32,
                  .command_ns = 50000,
                  .bus_mb_s = 280,
                  .cache_bytes = 32 << 20,
                  .error_retry_ms = 2000,
                  .rpm = 7200,
                  .seek_track_us = 800,
                  .seek_mean_us = 8200,
                  .seek_full_us = 15500,
                  .outer_mb_s = 134,
                  .inner_mb_s = 65,
                  .read_ahead_bytes = 2 << 20},
    },
    {
        .source = "WD Caviar Black 1 TB (WD1001FALS): 7200 rpm, 8.9 ms read seek, 32 MB buffer, "
                  "106 MB/s sustained",
        .sheet_read_iops = SHEET_HDD(8.9, 7200),
        .model = {.name = "hdd-7200-1tb",
                  .what = "1 TB, 7200 rpm, SATA, of about 2008",
                  .rotational = true,
                  .capacity_bytes = 1000204886016,
                  .queue_depth = 32,
                  .command_ns = 50000,
                  .bus_mb_s = 280,
                  .cache_bytes = 32 << 20,
                  .error_retry_ms = 2000,
                  .rpm = 7200,
                  .seek_track_us = 1000,
                  .seek_mean_us = 8900,
                  .seek_full_us = 17000,
                  .outer_mb_s = 106,
                  .inner_mb_s = 55,
                  .read_ahead_bytes = 1 << 20},
    },
    {
        .source = "HGST Ultrastar He8 (HUH728080ALE600): 7200 rpm, 8.0 ms read seek, 128 MB "
                  "buffer, 205 MB/s sustained",
        .sheet_read_iops = SHEET_HDD(8.0, 7200),
        .model = {.name = "hdd-7200-8tb",
                  .what = "8 TB, 7200 rpm, SATA, nearline",
                  .rotational = true,
                  .capacity_bytes = 8001563222016,
                  .queue_depth = 32,
                  .command_ns = 50000,
                  .bus_mb_s = 550,
                  .cache_bytes = 128 << 20,
                  .error_retry_ms = 1000,
                  .rpm = 7200,
                  .seek_track_us = 600,
                  .seek_mean_us = 8000,
                  .seek_full_us = 15000,
                  .outer_mb_s = 205,
                  .inner_mb_s = 95,
                  .read_ahead_bytes = 4 << 20},
    },
    {
        .source = "Samsung 850 EVO 1 TB: 540/520 MB/s; 4 KiB reads 10,000 at depth 1, 98,000 at "
                  "32; writes 90,000 at 32",
        .sheet_read_iops = 10000,
        .model = {.name = "sata-ssd",
                  .what = "1 TB, SATA, TLC",
                  .capacity_bytes = 1000204886016,
                  .queue_depth = 32,
                  .command_ns = 2500,
                  .bus_mb_s = 550,
                  .cache_bytes = 32 << 20,
                  .error_retry_ms = 20,
                  .channels = 10,
                  .read_us = 93,
                  .write_us = 35,
                  .flush_us = 1200,
                  .read_mb_s = 540,
                  .write_mb_s = 520,
                  .slow_per_10k = 20,
                  .slow_factor = 20},
    },
    {
        .source = "Samsung 970 EVO 1 TB: 3,400/2,500 MB/s; 4 KiB reads 15,000 at depth 1, 500,000 "
                  "at 32 with four threads",
        .sheet_read_iops = 15000,
        .model = {.name = "nvme-1tb",
                  .what = "1 TB, NVMe, TLC",
                  .capacity_bytes = 1000204886016,
                  .queue_depth = 128,
                  .command_ns = 1200,
                  .bus_mb_s = 3500,
                  .cache_bytes = 16 << 20,
                  .error_retry_ms = 5,
                  .channels = 48,
                  .read_us = 64,
                  .write_us = 15,
                  .flush_us = 700,
                  .read_mb_s = 3400,
                  .write_mb_s = 2500,
                  .slow_per_10k = 10,
                  .slow_factor = 25},
    },
    {
        .source = "Intel SSD DC P4510 2 TB: 3,200/2,000 MB/s; 637,000 reads a second; typical "
                  "latency 77 us read, 18 us write; capacitors",
        .sheet_read_iops = 1e6 / 77,
        .model = {.name = "nvme-plp-2tb",
                  .what = "2 TB, NVMe, with capacitors: its cache is not volatile",
                  .capacity_bytes = 2000398934016,
                  .queue_depth = 128,
                  .command_ns = 1000,
                  .bus_mb_s = 3500,
                  .error_retry_ms = 5,
                  .channels = 64,
                  .read_us = 77,
                  .write_us = 17,
                  .flush_us = 15,
                  .read_mb_s = 3200,
                  .write_mb_s = 2000,
                  .slow_per_10k = 2,
                  .slow_factor = 10},
    },
};

const struct bench_disk *bench_disk_at(uint32_t index) {
    return index < ARRAY_COUNT(catalogue) ? &catalogue[index] : NULL;
}

const struct bench_disk *bench_disk_find(const char *name) {
    for (uint32_t i = 0; i < ARRAY_COUNT(catalogue); i++) {
        if (strcmp(catalogue[i].model.name, name) == 0) {
            return &catalogue[i];
        }
    }
    return NULL;
}

static int unknown(const char *text, size_t bytes, struct errmsg *reterr) {
    char names[256] = "";
    for (uint32_t i = 0; i < ARRAY_COUNT(catalogue); i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                       catalogue[i].model.name);
    }
    return errmsg_set(reterr, ERR_INVALID,
                      "\"%.*s\" is not a disk that can be modelled; write for instance \"6x "
                      "hdd-7200-2tb\", there are %s",
                      (int)MIN(bytes, (size_t)60), text, names);
}

/* One "6x name" at text[0..bytes); blanks around it are gone. */
static int group_parse(const char *text, size_t bytes, struct bench_disk_list *list,
                       struct errmsg *reterr) {
    uint64_t count = 1;
    char name[32];
    const char *at = text, *end = text + bytes;
    if (bytes > 0 && isdigit((unsigned char)*at)) {
        char *after;
        count = strtoull(at, &after, 10);
        if (after >= end || *after != 'x') {
            return unknown(text, bytes, reterr);
        }
        at = after + 1;
        while (at < end && *at == ' ') {
            at++;
        }
    }
    if (end - at >= (ptrdiff_t)sizeof(name)) {
        return unknown(text, bytes, reterr);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(end - at), at);
    const struct bench_disk *disk = bench_disk_find(name);
    if (disk == NULL || count == 0) {
        return unknown(text, bytes, reterr);
    }
    if (count > ARRAY_COUNT(list->disks) - list->count) {
        return errmsg_set(reterr, ERR_LIMIT, "at most %zu disks can be modelled",
                          ARRAY_COUNT(list->disks));
    }
    for (uint64_t i = 0; i < count; i++) {
        list->disks[list->count++] = disk;
    }
    size_t used = strlen(list->text);
    (void)snprintf(list->text + used, sizeof(list->text) - used, "%s%ux %s", used > 0 ? " + " : "",
                   (unsigned)count, name);
    return OK;
}

int bench_disk_list_parse(const char *text, struct bench_disk_list *ret_list,
                          struct errmsg *reterr) {
    struct bench_disk_list list = {0};
    const char *at = text;
    for (;;) {
        const char *end = strchr(at, '+');
        const char *next = end == NULL ? NULL : end + 1;
        size_t bytes = end == NULL ? strlen(at) : (size_t)(end - at);
        while (bytes > 0 && *at == ' ') {
            at++;
            bytes--;
        }
        while (bytes > 0 && at[bytes - 1] == ' ') {
            bytes--;
        }
        int error = group_parse(at, bytes, &list, reterr);
        if (error != OK) {
            return error;
        }
        if (next == NULL) {
            *ret_list = list;
            return OK;
        }
        at = next;
    }
}
