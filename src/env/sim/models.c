// SPDX-License-Identifier: MPL-2.0
/* Disk models. Figures are those that makers print on data sheets for the class (a 2 TB 7200 rpm
 * SATA disk: 8.5 ms average read seek, 4.16 ms average latency, 150 MB/s at the outer edge; a SATA
 * SSD: 540/500 MB/s, 95k/85k IOPS; a TLC NVMe disk: 3.4/2.5 GB/s, 500k IOPS; one with capacitors
 * needs no flush), or, where makers are silent (track-to-track, inner rate, retry time, tail), what
 * reviewers measure. */
#include "env/sim/sim.h"

#include <string.h>

#include "base/math.h"

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
