// SPDX-License-Identifier: MPL-2.0
/* Timing of flash disks: `channels` commands are worked on at once, each for a latency that varies
 * by a quarter, with a tail (the disk collecting garbage); all data passes one interface, whose
 * bandwidth is the data sheet's sequential rate. Writes are answered from the cache or, without a
 * volatile one, when programmed or safe behind capacitors; the figures of the model say which. */
#include "base/math.h"
#include "env/sim/private.h"

static uint64_t latency_ns(struct sim_disk *disk, uint32_t mean_us) {
    uint64_t mean_ns = (uint64_t)mean_us * NS_PER_US;
    uint64_t ns = mean_ns * 3 / 4 + rng_below(&disk->rng, mean_ns / 2 + 1);
    if (rng_chance(&disk->rng, disk->model->slow_per_10k, 10000)) {
        ns *= disk->model->slow_factor;
    }
    return ns * disk->slow_factor;
}

static uint64_t *first_free_channel(struct sim_disk *disk) {
    uint64_t *best = &disk->channel_free_ns[0];
    for (uint32_t i = 1; i < disk->model->channels; i++) {
        if (disk->channel_free_ns[i] < *best) {
            best = &disk->channel_free_ns[i];
        }
    }
    return best;
}

void flash_serve(struct sim_io *io) {
    struct sim_disk *disk = io->disk;
    const struct sim_model *model = disk->model;
    uint64_t now_ns = disk->sim->now_ns;
    if (io->op == ENV_IO_FLUSH) {
        io_ends_at(io, now_ns + latency_ns(disk, model->flush_us));
        return;
    }
    bool write = io->op == ENV_IO_WRITE;
    uint64_t *channel = first_free_channel(disk);
    uint64_t start_ns = MAX(*channel, now_ns);
    uint64_t worked_ns = start_ns + latency_ns(disk, write ? model->write_us : model->read_us);
    uint64_t bytes = io->op == ENV_IO_DISCARD ? 0 : io->count * SIM_BLOCK_BYTES;
    uint32_t rate_mb_s = write ? model->write_mb_s : model->read_mb_s;
    disk->bus_free_ns =
        MAX(disk->bus_free_ns, now_ns) +
        (model->command_ns + sim_transfer_ns(bytes, MIN(rate_mb_s, model->bus_mb_s))) *
            disk->slow_factor;
    uint64_t end_ns = MAX(worked_ns, disk->bus_free_ns);
    if (write && io->durable && disk->cache_on && !disk->lies) {
        end_ns += latency_ns(disk, model->flush_us) / 2; /* program time of the write itself */
    }
    for (uint64_t i = 0; io->op == ENV_IO_READ && i < io->count; i++) {
        if (store_is_latent(&disk->store, io->block + i)) {
            end_ns += (uint64_t)model->error_retry_ms * NS_PER_MS;
            break;
        }
    }
    *channel = end_ns;
    io_ends_at(io, end_ns);
}
