// SPDX-License-Identifier: MPL-2.0
/* The table of modelled disks, in two parts.
 *
 * Of a class: figures that makers print for it (a 2 TB 7200 rpm SATA disk: 8.5 ms average read
 * seek, 4.16 ms average latency, 150 MB/s at the outer edge; a SATA SSD: 540/500 MB/s, 95k/85k
 * IOPS; a TLC NVMe disk: 3.4/2.5 GB/s, 500k IOPS; one with capacitors needs no flush). The
 * simulator's worlds use them: a changed figure is another world for every seed.
 *
 * Of a product: the data sheet named in `source`. `holdfast bench model` predicts with them. To add
 * one: its entry here. test_bench_model goes through them and fails when random reads over the
 * whole disk, one at a time, are further than 10 % from what the data sheet implies.
 *
 * Where makers are silent (track-to-track and full stroke, the inner rate, retries, the tail of
 * flash) it is what reviewers measure of the class. How a rotating disk's time is made of seek,
 * turn and transfer is in rotation.c, flash in flash.c.
 *
 * Where the models are generous: flash collects no garbage beyond its tail of slow commands, so it
 * writes at random as fast as in order, for ever; no disk grows slower as it fills. */
#include "env/sim/sim.h"

#include <string.h>

#include "base/math.h"

#define SHEET_HDD(seek_ms, rpm) (1000 / ((seek_ms) + 30000.0 / (rpm)))

static const struct sim_model models[] = {
    {
        .name = "hdd",
        .what = "2 TB, 7200 rpm, SATA",
        .rotational = true,
        .capacity_bytes = 2000398934016,
        .queue_depth = 32,
        .command_ns = 50000,
        .bus_mb_s = 300,
        .cache_bytes = 64 << 20,
        .error_retry_ms = 2000,
        .rpm = 7200,
        .seek_track_us = 800,
        .seek_mean_us = 8500,
        .seek_full_us = 16000,
        .outer_mb_s = 150,
        .inner_mb_s = 75,
        .read_ahead_bytes = 2 << 20,
    },
    {
        .name = "hdd-large",
        .what = "8 TB, 7200 rpm, SATA, nearline",
        .rotational = true,
        .capacity_bytes = 8001563222016,
        .queue_depth = 32,
        .command_ns = 50000,
        .bus_mb_s = 550,
        .cache_bytes = 256 << 20,
        .error_retry_ms = 1000,
        .rpm = 7200,
        .seek_track_us = 600,
        .seek_mean_us = 8000,
        .seek_full_us = 15000,
        .outer_mb_s = 230,
        .inner_mb_s = 110,
        .read_ahead_bytes = 4 << 20,
    },
    {
        .name = "ssd",
        .what = "1 TB, SATA, TLC",
        .capacity_bytes = 1000204886016,
        .queue_depth = 32,
        .command_ns = 2500,
        .bus_mb_s = 550,
        .cache_bytes = 32 << 20,
        .error_retry_ms = 20,
        .channels = 10,
        .read_us = 90,
        .write_us = 35,
        .flush_us = 1200,
        .read_mb_s = 540,
        .write_mb_s = 500,
        .slow_per_10k = 20,
        .slow_factor = 20,
    },
    {
        .name = "nvme",
        .what = "1 TB, NVMe, TLC",
        .capacity_bytes = 1000204886016,
        .queue_depth = 128,
        .command_ns = 1200,
        .bus_mb_s = 3500,
        .cache_bytes = 16 << 20,
        .error_retry_ms = 5,
        .channels = 48,
        .read_us = 80,
        .write_us = 15,
        .flush_us = 700,
        .read_mb_s = 3400,
        .write_mb_s = 2500,
        .slow_per_10k = 10,
        .slow_factor = 25,
    },
    {
        .name = "nvme-plp",
        .what = "1.9 TB, NVMe, with capacitors: its cache is not volatile",
        .capacity_bytes = 1920383410176,
        .queue_depth = 128,
        .command_ns = 1000,
        .bus_mb_s = 3500,
        .cache_bytes = 0,
        .error_retry_ms = 5,
        .channels = 64,
        .read_us = 85,
        .write_us = 12,
        .flush_us = 15,
        .read_mb_s = 3300,
        .write_mb_s = 2000,
        .slow_per_10k = 2,
        .slow_factor = 10,
    },
    {
        .name = "hdd-7200-2tb",
        .what = "2 TB, 7200 rpm, SATA, of about 2010",
        .source = "Hitachi Deskstar 7K2000 (HDS722020ALA330): 7200 rpm, 8.2 ms average seek, "
                  "32 MB buffer, 3 Gbit/s",
        .sheet_read_iops = SHEET_HDD(8.2, 7200),
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
        .read_ahead_bytes = 2 << 20,
    },
    {
        .name = "hdd-7200-1tb",
        .what = "1 TB, 7200 rpm, SATA, of about 2008",
        .source = "WD Caviar Black 1 TB (WD1001FALS): 7200 rpm, 8.9 ms read seek, 32 MB buffer, "
                  "106 MB/s sustained",
        .sheet_read_iops = SHEET_HDD(8.9, 7200),
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
        .read_ahead_bytes = 1 << 20,
    },
    {
        .name = "hdd-7200-8tb",
        .what = "8 TB, 7200 rpm, SATA, nearline",
        .source = "HGST Ultrastar He8 (HUH728080ALE600): 7200 rpm, 8.0 ms read seek, 128 MB "
                  "buffer, 205 MB/s sustained",
        .sheet_read_iops = SHEET_HDD(8.0, 7200),
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
        .read_ahead_bytes = 4 << 20,
    },
    {
        .name = "sata-ssd",
        .what = "1 TB, SATA, TLC",
        .source = "Samsung 850 EVO 1 TB: 540/520 MB/s; 4 KiB reads 10,000 at depth 1, 98,000 at "
                  "32; writes 90,000 at 32",
        .sheet_read_iops = 10000,
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
        .slow_factor = 20,
    },
    {
        .name = "nvme-1tb",
        .what = "1 TB, NVMe, TLC",
        .source = "Samsung 970 EVO 1 TB: 3,400/2,500 MB/s; 4 KiB reads 15,000 at depth 1, 500,000 "
                  "at 32 with four threads",
        .sheet_read_iops = 15000,
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
        .slow_factor = 25,
    },
    {
        .name = "nvme-plp-2tb",
        .what = "2 TB, NVMe, with capacitors: its cache is not volatile",
        .source = "Intel SSD DC P4510 2 TB: 3,200/2,000 MB/s; 637,000 reads a second; typical "
                  "latency 77 us read, 18 us write; capacitors",
        .sheet_read_iops = 1e6 / 77,
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
        .slow_factor = 10,
    },
};

const struct sim_model *sim_model_find(const char *name) {
    for (uint32_t i = 0; i < ARRAY_COUNT(models); i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

const struct sim_model *sim_model_at(uint32_t index) {
    return index < ARRAY_COUNT(models) ? &models[index] : NULL;
}
