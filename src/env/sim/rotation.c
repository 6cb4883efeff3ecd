// SPDX-License-Identifier: MPL-2.0
/* Timing of rotational disks.
 *
 * Geometry. The surface is cut into zones of equal radius; within a zone the rate, and so the bytes
 * a track, is constant, falling from the outer to the inner figure. A byte's angle is its place in
 * its track, so an access that starts where the last one ended waits for nothing, and one that
 * comes just too late waits a whole turn. At a scale of s there are s times fewer tracks of the
 * same length, and a seek depends on the fraction of the stroke: so seek, rotation and transfer are
 * those of the full disk.
 *
 * Seek. t(d) = track + a·√d + b·d for the fraction d of the stroke (Ruemmler and Wilkes 1994 fit
 * this shape), with a and b such that t(1) is the full-stroke figure and the mean over random
 * pairs, where E[√d] = 8/15 and E[d] = 1/3, is the data sheet's average.
 *
 * Choice. Of the commands in the queue (32) the one that can begin first is served, seek and
 * rotation together; one that has waited too long goes first. Writes in the volatile cache are
 * written back in the order of the surface when nothing waits, or in turn with the queue when the
 * cache is half full or a flush waits for it. After a read the disk reads on into its buffer until
 * it has something else to do. */
#include <math.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/private.h"

enum {
    STARVED_NS = 400 * NS_PER_MS,
    DESTAGE_BLOCKS_MAX = 256,
    DESTAGE_CANDIDATES = 4,
    ANGLE_SLACK_NS = 3000, /* rounding must not cost a turn */
};

struct access {
    uint64_t begin_ns, end_ns; /* of the transfer */
};

/* ---- geometry ---- */

static void stall_ends(struct sim_event *event) {
    rotation_kick(CONTAINER_OF(event, struct sim_disk, stall_end));
}

void rotation_init(struct sim_disk *disk) {
    const struct sim_model *m = disk->model;
    disk->stall_end.fire = stall_ends;
    disk->rotation_ns = 60e9 / m->rpm;
    double full = (m->seek_full_us - m->seek_track_us) * 1e3;
    double mean = (m->seek_mean_us - m->seek_track_us) * 1e3;
    disk->seek_root_ns = (mean - full / 3) / (8.0 / 15 - 1.0 / 3);
    disk->seek_linear_ns = full - disk->seek_root_ns;
    double outer = m->outer_mb_s / 1e3, inner = m->inner_mb_s / 1e3; /* bytes a ns */
    double sum = 0;
    for (int z = 0; z < SIM_ZONES; z++) {
        disk->zone_rate[z] = outer - (outer - inner) * (z + 0.5) / SIM_ZONES;
        sum += disk->zone_rate[z];
    }
    double at = 0;
    for (int z = 0; z < SIM_ZONES; z++) {
        disk->zone_start[z] =
            (uint64_t)(at / sum * (double)disk->size_bytes) / SIM_BLOCK_BYTES * SIM_BLOCK_BYTES;
        at += disk->zone_rate[z];
    }
    disk->zone_start[SIM_ZONES] = disk->size_bytes;
}

static int zone_of(const struct sim_disk *disk, uint64_t offset_bytes) {
    int low = 0, high = SIM_ZONES - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (disk->zone_start[middle] <= offset_bytes) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* 0 at the outer edge, 1 at the inner. */
static double radius_of(const struct sim_disk *disk, int zone, uint64_t offset_bytes) {
    double start = (double)disk->zone_start[zone];
    double length = (double)disk->zone_start[zone + 1] - start;
    double within = length > 0 ? ((double)offset_bytes - start) / length : 0;
    return (zone + within) / SIM_ZONES;
}

static double angle_ns(const struct sim_disk *disk, int zone, uint64_t offset_bytes) {
    double track_bytes = disk->zone_rate[zone] * disk->rotation_ns;
    double place = fmod((double)(offset_bytes - disk->zone_start[zone]), track_bytes);
    return place / disk->zone_rate[zone];
}

static double seek_ns(const struct sim_disk *disk, uint64_t from_bytes, uint64_t to_bytes) {
    int from_zone = zone_of(disk, from_bytes), to_zone = zone_of(disk, to_bytes);
    uint64_t distance = from_bytes > to_bytes ? from_bytes - to_bytes : to_bytes - from_bytes;
    if ((double)distance < disk->zone_rate[to_zone] * disk->rotation_ns) {
        return 0; /* the same or the next track of the same cylinder */
    }
    double fraction =
        fabs(radius_of(disk, from_zone, from_bytes) - radius_of(disk, to_zone, to_bytes));
    return disk->model->seek_track_us * 1e3 + disk->seek_root_ns * sqrt(fraction) +
           disk->seek_linear_ns * fraction;
}

/* What an access would take if the head started for it at `start_ns`. */
static struct access access_cost(const struct sim_disk *disk, uint64_t start_ns,
                                 uint64_t offset_bytes, uint64_t length_bytes) {
    int zone = zone_of(disk, MIN(offset_bytes, disk->size_bytes - 1));
    double arrive = (double)start_ns + seek_ns(disk, disk->head.offset_bytes, offset_bytes);
    double turn = disk->rotation_ns;
    double wait = fmod(angle_ns(disk, zone, offset_bytes) - fmod(arrive, turn) + 2 * turn, turn);
    if (wait > turn - ANGLE_SLACK_NS) {
        wait = 0;
    }
    struct access access = {.begin_ns = (uint64_t)(arrive + wait)};
    access.end_ns = access.begin_ns + (uint64_t)((double)length_bytes / disk->zone_rate[zone]);
    return access;
}

/* ---- the read-ahead buffer ---- */

static uint64_t ahead_end_now(const struct sim_disk *disk) {
    const struct sim_head *head = &disk->head;
    if (!head->reading_ahead) {
        return head->ahead_end_bytes;
    }
    double rate = disk->zone_rate[zone_of(disk, MIN(head->offset_bytes, disk->size_bytes - 1))];
    uint64_t read_on = (uint64_t)((double)(disk->sim->now_ns - head->at_ns) * rate);
    uint64_t most = head->ahead_start_bytes + disk->model->read_ahead_bytes;
    uint64_t reached = MIN(head->offset_bytes + read_on, most);
    reached = MAX(head->offset_bytes, reached);
    return MIN(reached, disk->size_bytes);
}

static void ahead_freeze(struct sim_disk *disk) {
    uint64_t end_bytes = ahead_end_now(disk);
    if (disk->head.reading_ahead) {
        disk->head.offset_bytes = MIN(end_bytes, disk->size_bytes - 1);
        disk->head.at_ns = disk->sim->now_ns;
    }
    disk->head.ahead_end_bytes = end_bytes;
    disk->head.reading_ahead = false;
}

/* Served from the buffer, or from the head that is about to pass: true. */
static bool ahead_serves(struct sim_disk *disk, struct sim_io *io) {
    uint64_t start = io->block * SIM_BLOCK_BYTES, end = start + io->count * SIM_BLOCK_BYTES;
    uint64_t have = ahead_end_now(disk);
    struct sim_head *head = &disk->head;
    if (io->op != ENV_IO_READ || start < head->ahead_start_bytes || start > have ||
        (end > have && !head->reading_ahead)) {
        return false;
    }
    uint64_t now_ns = disk->sim->now_ns;
    uint64_t ready_ns = now_ns;
    if (end > have) {
        double rate = disk->zone_rate[zone_of(disk, start)];
        ready_ns += (uint64_t)((double)(end - have) / rate);
        head->offset_bytes = end;
        head->at_ns = ready_ns;
    } else if (head->reading_ahead) {
        head->offset_bytes = have;
        head->at_ns = now_ns;
    }
    head->ahead_start_bytes = start;
    uint64_t sent_ns =
        now_ns + disk->model->command_ns + sim_transfer_ns(end - start, disk->model->bus_mb_s);
    list_remove(&io->link);
    io_ends_at(io, now_ns + (MAX(ready_ns, sent_ns) - now_ns) * disk->slow_factor);
    return true;
}

/* ---- serving ---- */

static void mechanism_fires(struct sim_event *event);

static void mechanism_start(struct sim_disk *disk, struct access access, uint64_t end_bytes) {
    access.end_ns += (access.end_ns - disk->sim->now_ns) * (disk->slow_factor - 1);
    disk->mechanism_busy = true;
    disk->head.offset_bytes = MIN(end_bytes, disk->size_bytes - 1);
    disk->head.at_ns = access.end_ns;
    disk->mechanism.fire = mechanism_fires;
    sim_schedule(disk->sim, &disk->mechanism, access.end_ns);
}

static uint64_t start_ns_of(const struct sim_disk *disk, const struct sim_io *io) {
    return MAX(disk->sim->now_ns, io->admitted_ns + disk->model->command_ns);
}

static struct sim_io *queue_pick(struct sim_disk *disk) {
    struct sim_io *best = NULL;
    uint64_t best_ns = UINT64_MAX;
    LIST_FOR_EACH(it, &disk->queue) {
        struct sim_io *io = CONTAINER_OF(it, struct sim_io, link);
        if (disk->sim->now_ns - io->admitted_ns > STARVED_NS) {
            return io;
        }
        struct access access = access_cost(disk, start_ns_of(disk, io), io->block * SIM_BLOCK_BYTES,
                                           io->count * SIM_BLOCK_BYTES);
        if (access.begin_ns < best_ns) {
            best_ns = access.begin_ns;
            best = io;
        }
    }
    return best;
}

static void queue_serve(struct sim_disk *disk, struct sim_io *io) {
    ahead_freeze(disk);
    bool moves_data = io->op == ENV_IO_READ || io->op == ENV_IO_WRITE;
    uint64_t length_bytes = moves_data ? io->count * SIM_BLOCK_BYTES : 0;
    uint64_t offset_bytes = io->block * SIM_BLOCK_BYTES;
    struct access access = access_cost(disk, start_ns_of(disk, io), offset_bytes, length_bytes);
    for (uint64_t i = 0; io->op == ENV_IO_READ && i < io->count; i++) {
        if (store_is_latent(&disk->store, io->block + i)) {
            access.end_ns += (uint64_t)disk->model->error_retry_ms * NS_PER_MS;
            break;
        }
    }
    list_remove(&io->link);
    disk->serving = io;
    disk->destaged_last = false;
    mechanism_start(disk, access, offset_bytes + length_bytes);
    if (io->op == ENV_IO_READ) {
        disk->head.reading_ahead = true;
        disk->head.ahead_start_bytes = offset_bytes;
    }
}

/* A run of dirty blocks from `block` on. */
static uint64_t dirty_run(const struct sim_disk *disk, uint64_t block) {
    uint64_t count = 1;
    while (count < DESTAGE_BLOCKS_MAX && block + count < disk->store.blocks &&
           store_is_dirty(&disk->store, block + count)) {
        count++;
    }
    return count;
}

static bool destage_serve(struct sim_disk *disk) {
    uint64_t from = disk->head.offset_bytes / SIM_BLOCK_BYTES;
    uint64_t best = UINT64_MAX, best_ns = UINT64_MAX, best_count = 0;
    for (int i = 0; i < DESTAGE_CANDIDATES; i++) {
        uint64_t block = store_next_dirty(&disk->store, from);
        if (block == UINT64_MAX || block == best) {
            break;
        }
        uint64_t count = dirty_run(disk, block);
        struct access access =
            access_cost(disk, disk->sim->now_ns, block * SIM_BLOCK_BYTES, count * SIM_BLOCK_BYTES);
        if (access.begin_ns < best_ns) {
            best = block;
            best_ns = access.begin_ns;
            best_count = count;
        }
        from = block + count;
        if (from >= disk->store.blocks) {
            from = 0;
        }
    }
    if (best == UINT64_MAX) {
        return false;
    }
    ahead_freeze(disk);
    disk->serving = NULL;
    disk->destaged_last = true;
    disk->destage_block = best;
    disk->destage_count = best_count;
    disk->destage_sequence = disk->sim->write_sequence;
    mechanism_start(
        disk,
        access_cost(disk, disk->sim->now_ns, best * SIM_BLOCK_BYTES, best_count * SIM_BLOCK_BYTES),
        (best + best_count) * SIM_BLOCK_BYTES);
    return true;
}

/* Cached writes are taken as long as there is room; what is on its way in counts. */
static void room_give(struct sim_disk *disk) {
    uint64_t taken = disk->store.versions;
    LIST_FOR_EACH_SAFE(it, &disk->room_waiters) {
        struct sim_io *io = CONTAINER_OF(it, struct sim_io, link);
        if (taken > 0 && taken + io->count > disk->cache_limit_blocks && io->op == ENV_IO_WRITE) {
            break;
        }
        taken += io->count;
        list_remove(&io->link);
        uint64_t bytes = io->op == ENV_IO_WRITE ? io->count * SIM_BLOCK_BYTES : 0;
        disk->bus_free_ns = MAX(disk->bus_free_ns, disk->sim->now_ns) +
                            sim_transfer_ns(bytes, disk->model->bus_mb_s) * disk->slow_factor;
        io_ends_at(io, disk->bus_free_ns + disk->model->command_ns * disk->slow_factor);
    }
}

static void flushes_end(struct sim_disk *disk) {
    uint64_t block;
    LIST_FOR_EACH_SAFE(it, &disk->flushes) {
        struct sim_io *io = CONTAINER_OF(it, struct sim_io, link);
        if (disk->lies || store_oldest(&disk->store, &block) > io->sequence) {
            list_remove(&io->link);
            io_ends_at(io, disk->sim->now_ns + disk->model->command_ns);
        }
    }
}

void rotation_kick(struct sim_disk *disk) {
    room_give(disk);
    flushes_end(disk);
    if (disk->sim->now_ns < disk->stalled_until_ns) {
        return; /* sim_disk_stall() kicks when it ends */
    }
    LIST_FOR_EACH_SAFE(it, &disk->queue) {
        if (!disk->mechanism_busy) {
            (void)ahead_serves(disk, CONTAINER_OF(it, struct sim_io, link));
        }
    }
    if (disk->mechanism_busy) {
        return;
    }
    bool urgent = !list_is_empty(&disk->flushes) || !list_is_empty(&disk->room_waiters) ||
                  disk->store.versions > disk->cache_limit_blocks / 2;
    if (urgent && !disk->destaged_last && destage_serve(disk)) {
        return;
    }
    struct sim_io *io = queue_pick(disk);
    if (io != NULL) {
        queue_serve(disk, io);
    } else {
        (void)destage_serve(disk);
    }
}

static void mechanism_fires(struct sim_event *event) {
    struct sim_disk *disk = CONTAINER_OF(event, struct sim_disk, mechanism);
    disk->mechanism_busy = false;
    struct sim_io *io = disk->serving;
    disk->serving = NULL;
    if (io != NULL) {
        io_ends_at(io, disk->sim->now_ns);
    } else {
        for (uint64_t i = 0; i < disk->destage_count; i++) {
            store_destage(&disk->store, disk->destage_block + i, disk->destage_sequence);
        }
        disk->destage_count = 0;
    }
    rotation_kick(disk);
}

void rotation_reset(struct sim_disk *disk) {
    sim_unschedule(disk->sim, &disk->mechanism);
    disk->mechanism_busy = false;
    disk->serving = NULL;
    disk->destage_count = 0;
    disk->bus_free_ns = 0;
    disk->head = (struct sim_head){.offset_bytes = disk->head.offset_bytes};
}
