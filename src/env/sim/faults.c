// SPDX-License-Identifier: MPL-2.0
/* What goes wrong with simulated disks, and the count of it. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "env/sim/private.h"

static const char *const fault_names[SIM_FAULTS] = {
    [SIM_FAULT_LATENT] = "latent_error",
    [SIM_FAULT_ROT] = "bit_rot",
    [SIM_FAULT_LOST] = "lost_write",
    [SIM_FAULT_MISDIRECTED] = "misdirected_write",
    [SIM_FAULT_LATE] = "late_io",
    [SIM_FAULT_STALL] = "stall",
    [SIM_FAULT_VANISH] = "vanish",
    [SIM_FAULT_RETURN] = "return",
    [SIM_FAULT_READ_ERROR] = "read_error",
    [SIM_FAULT_WRITE_ERROR] = "write_error",
    [SIM_FAULT_FLUSH_ERROR] = "flush_error",
    [SIM_FAULT_LIE] = "flush_lie",
    [SIM_FAULT_TORN] = "torn_write",
    [SIM_FAULT_DROPPED] = "dropped_write",
    [SIM_FAULT_CUT] = "power_cut",
    [SIM_FAULT_SLOW] = "slow",
};

const char *sim_fault_name(enum sim_fault fault) {
    ASSERT_LT(fault, SIM_FAULTS);
    return fault_names[fault];
}

uint64_t sim_disk_fault_count(const struct sim_disk *disk, enum sim_fault fault) {
    ASSERT_LT(fault, SIM_FAULTS);
    return disk->counts[fault];
}

/* ---- armed: they hit an I/O to come ---- */

void sim_disk_arm(struct sim_disk *disk, enum sim_fault fault, uint32_t skip, uint32_t count,
                  uint64_t argument_ns) {
    ASSERT(fault == SIM_FAULT_LOST || fault == SIM_FAULT_MISDIRECTED || fault == SIM_FAULT_LATE ||
           fault == SIM_FAULT_READ_ERROR || fault == SIM_FAULT_WRITE_ERROR ||
           fault == SIM_FAULT_FLUSH_ERROR);
    disk->armed[fault] = (struct sim_armed){skip, count, argument_ns};
}

bool sim_disk_is_armed(const struct sim_disk *disk, enum sim_fault fault) {
    return disk->armed[fault].count > 0;
}

bool fault_hits(struct sim_disk *disk, enum sim_fault fault) {
    struct sim_armed *armed = &disk->armed[fault];
    if (armed->count == 0) {
        return false;
    }
    if (armed->skip > 0) {
        armed->skip--;
        return false;
    }
    armed->count--;
    disk->counts[fault]++;
    return true;
}

void faults_on_submit(struct sim_io *io) {
    struct sim_disk *disk = io->disk;
    if (fault_hits(disk, SIM_FAULT_LATE)) {
        io->late_ns = disk->armed[SIM_FAULT_LATE].argument_ns;
    }
    switch (io->op) {
    case ENV_IO_READ:
        if (fault_hits(disk, SIM_FAULT_READ_ERROR)) {
            io->result = ERR_IO;
        }
        break;
    case ENV_IO_WRITE:
        if (fault_hits(disk, SIM_FAULT_WRITE_ERROR)) {
            io->result = ERR_IO;
        } else if (fault_hits(disk, SIM_FAULT_LOST)) {
            io->lost = true;
        } else if (io->count < disk->store.blocks && fault_hits(disk, SIM_FAULT_MISDIRECTED)) {
            io->misdirected = true;
        }
        break;
    case ENV_IO_FLUSH:
        if (fault_hits(disk, SIM_FAULT_FLUSH_ERROR)) {
            io->result = ERR_IO;
        }
        break;
    case ENV_IO_DISCARD:
        break;
    }
}

/* ---- at once ---- */

static bool block_shows(const struct sim_disk *disk, uint64_t block) {
    return block < disk->store.blocks && store_stable(&disk->store, block) != NULL &&
           !store_is_dirty(&disk->store, block);
}

bool sim_disk_make_latent(struct sim_disk *disk, uint64_t offset_bytes) {
    uint64_t block = offset_bytes / SIM_BLOCK_BYTES;
    if (!block_shows(disk, block) || store_is_latent(&disk->store, block)) {
        return false;
    }
    store_set_latent(&disk->store, block);
    store_mark_faulty(&disk->store, block, sim_block_ref(store_stable(&disk->store, block)), 0);
    disk->counts[SIM_FAULT_LATENT]++;
    return true;
}

bool sim_disk_rot(struct sim_disk *disk, uint64_t offset_bytes, uint32_t bit) {
    uint64_t block = offset_bytes / SIM_BLOCK_BYTES;
    if (!block_shows(disk, block)) {
        return false;
    }
    struct sim_block *good = sim_block_ref(store_stable(&disk->store, block));
    struct sim_block *bad = sim_block_new(disk->sim);
    memcpy(bad->data, good->data, SIM_BLOCK_BYTES);
    bit %= SIM_BLOCK_BYTES * 8;
    bad->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    bool latent = store_is_latent(&disk->store, block);
    store_land(&disk->store, block, bad, 0);
    if (latent) {
        store_set_latent(&disk->store, block);
    }
    store_mark_faulty(&disk->store, block, good, 0);
    disk->counts[SIM_FAULT_ROT]++;
    return true;
}

bool sim_disk_find_written(const struct sim_disk *disk, uint64_t offset_bytes,
                           uint64_t *ret_offset_bytes) {
    uint64_t block = store_next_written(&disk->store, offset_bytes / SIM_BLOCK_BYTES);
    if (block == UINT64_MAX) {
        return false;
    }
    *ret_offset_bytes = block * SIM_BLOCK_BYTES;
    return true;
}

void sim_disk_stall(struct sim_disk *disk, uint64_t until_ns) {
    bool stalls = until_ns > disk->sim->now_ns;
    disk->counts[SIM_FAULT_STALL] += stalls;
    disk->stalled_until_ns = stalls ? until_ns : 0;
    if (!stalls || until_ns != UINT64_MAX) {
        sim_disk_unpark(disk);
    }
    if (disk->model->rotational) {
        sim_unschedule(disk->sim, &disk->stall_end);
        if (stalls && until_ns != UINT64_MAX) {
            sim_schedule(disk->sim, &disk->stall_end, until_ns);
        } else if (!stalls) {
            rotation_kick(disk);
        }
    }
}

bool sim_disk_is_stalled(const struct sim_disk *disk) {
    return disk->sim->now_ns < disk->stalled_until_ns;
}

void sim_disk_slow(struct sim_disk *disk, uint32_t factor, uint64_t delay_ns) {
    ASSERT_LT(0, factor);
    disk->slow_factor = factor;
    disk->slow_delay_ns = delay_ns;
    disk->counts[SIM_FAULT_SLOW] += sim_disk_is_slow(disk);
}

bool sim_disk_is_slow(const struct sim_disk *disk) {
    return disk->slow_factor > 1 || disk->slow_delay_ns > 0;
}

void sim_disk_vanish(struct sim_disk *disk, bool cache_lost) {
    if (disk->gone) {
        return;
    }
    disk->gone = true;
    disk->counts[SIM_FAULT_VANISH]++;
    sim_disk_fail_outstanding(disk, ERR_DISK_GONE);
    if (cache_lost) {
        sim_disk_drop_cache(disk);
    }
}

void sim_disk_image(const struct sim_disk *disk, uint8_t *ret_bytes) {
    for (uint64_t at = 0; at < disk->size_bytes; at += SIM_BLOCK_BYTES) {
        sim_disk_peek(disk, at, ret_bytes + at);
    }
}

void sim_disk_set_back(struct sim_disk *disk, const uint8_t *bytes) {
    ASSERT(disk->gone);
    sim_disk_drop_cache(disk);
    for (uint64_t at = 0; at < disk->size_bytes; at += SIM_BLOCK_BYTES) {
        sim_disk_poke(disk, at, bytes + at);
    }
}

void sim_disk_return(struct sim_disk *disk) {
    if (disk->gone) {
        disk->gone = false;
        disk->plugged++;
        disk->stalled_until_ns = 0;
        disk->counts[SIM_FAULT_RETURN]++;
    }
}

bool sim_disk_is_gone(const struct sim_disk *disk) {
    return disk->gone;
}

void sim_disk_set_lies(struct sim_disk *disk, bool lies) {
    disk->lies = lies;
}

uint32_t sim_disk_faulty_blocks(const struct sim_disk *disk) {
    return disk->store.faulty_count;
}

void sim_disk_heal(struct sim_disk *disk) {
    store_heal(&disk->store);
}
