// SPDX-License-Identifier: MPL-2.0
/* Simulated disks: opening, the way of an I/O through the queue, and what it does when it ends.
 *
 * A write is answered either when its content is in the volatile cache (plain write, cache on) or
 * when it is on the medium. Content always moves at the moment of the answer, in one step; what a
 * power cut makes of I/Os that had not been answered is decided in cut.c. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "env/sim/private.h"

enum { GONE_NS = 20000 };

/* ---- adding ---- */

int env_sim_disk_add(struct env *env, const struct sim_disk_options *options,
                     struct sim_disk **ret_disk, struct errmsg *reterr) {
    struct sim *sim = sim_of(env);
    const struct sim_model *model =
        options->custom != NULL ? options->custom : sim_model_find(options->model);
    if (model == NULL) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "there is no disk model \"%s\"", options->model);
    }
    for (uint32_t i = 0; i < sim->disk_count; i++) {
        if (strcmp(sim->disks[i]->path, options->path) == 0) {
            return errmsg_set(reterr, ERR_EXISTS, "there is already a disk at %s", options->path);
        }
    }
    struct sim_disk *disk = sim_alloc(sizeof(*disk));
    disk->sim = sim;
    disk->index = sim->disk_count;
    disk->model = model;
    disk->slow_factor = 1;
    uint32_t scale = MAX(1u, options->scale);
    uint64_t bytes = options->size_bytes != 0 ? options->size_bytes : model->capacity_bytes / scale;
    disk->size_bytes = round_down(bytes, SIM_BLOCK_BYTES);
    disk->cache_on = !options->cache_off && model->cache_bytes > 0;
    disk->cache_limit_blocks = MAX(16u, model->cache_bytes / scale / SIM_BLOCK_BYTES);
    sim_disk_set_path(disk, options->path);
    rng_init(&disk->rng, rng_next(&sim->rng));
    struct list *lists[] = {&disk->handles, &disk->outstanding,  &disk->waiting, &disk->queue,
                            &disk->flushes, &disk->room_waiters, &disk->parked};
    for (uint32_t i = 0; i < ARRAY_COUNT(lists); i++) {
        list_init(lists[i]);
    }
    store_init(&disk->store, sim, disk->size_bytes / SIM_BLOCK_BYTES);
    if (model->rotational) {
        rotation_init(disk);
    }
    sim->disks = sim_realloc(sim->disks, (sim->disk_count + 1) * sizeof(struct sim_disk *));
    sim->disks[sim->disk_count++] = disk;
    *ret_disk = disk;
    return OK;
}

void sim_disk_free(struct sim_disk *disk) {
    store_done(&disk->store);
    mem_free(disk);
}

void sim_disk_set_path(struct sim_disk *disk, const char *path) {
    (void)snprintf(disk->path, sizeof(disk->path), "%s", path);
}

const char *sim_disk_path(const struct sim_disk *disk) {
    return disk->path;
}

uint64_t sim_disk_size_bytes(const struct sim_disk *disk) {
    return disk->size_bytes;
}

bool sim_disk_rotates(const struct sim_disk *disk) {
    return disk->model->rotational;
}

uint32_t sim_disk_outstanding(const struct sim_disk *disk) {
    uint32_t count = 0;
    LIST_FOR_EACH(it, &disk->outstanding) {
        count++;
    }
    return count;
}

uint64_t sim_disk_last_durable_ns(const struct sim_disk *disk) {
    return disk->last_durable_ns;
}

/* ---- handles ---- */

static struct sim_handle *handle_of(const struct env_disk *base) {
    return CONTAINER_OF((struct env_disk *)(uintptr_t)base, struct sim_handle, base);
}

static bool is_held(const struct sim_disk *disk, bool exclusive) {
    LIST_FOR_EACH(it, &disk->handles) {
        const struct sim_handle *other = CONTAINER_OF(it, struct sim_handle, link);
        if (!other->closed && (exclusive || other->exclusive)) {
            return true;
        }
    }
    return false;
}

static void info_fill(struct sim_handle *handle, uint64_t length_bytes) {
    const struct sim_disk *disk = handle->disk;
    struct env_disk_info *info = &handle->info;
    info->kind = ENV_DISK_SIMULATED;
    info->size_bytes = round_down(length_bytes, SIM_BLOCK_BYTES);
    info->rotational = disk->model->rotational;
    info->discards = !disk->model->rotational;
    (void)snprintf(info->path, sizeof(info->path), "%s", disk->path);
    (void)snprintf(info->model, sizeof(info->model), "simulated %s", disk->model->name);
    (void)snprintf(info->serial, sizeof(info->serial), "SIM%05u", disk->index);
    (void)snprintf(info->wwn, sizeof(info->wwn), "0x5f1d5100000%05x", disk->index);
}

int sim_disk_open(struct env *env, const char *path, const struct env_disk_options *options,
                  struct env_disk **ret_disk, struct errmsg *reterr) {
    struct sim *sim = sim_of(env);
    struct sim_disk *disk = NULL;
    for (uint32_t i = 0; i < sim->disk_count; i++) {
        if (strcmp(sim->disks[i]->path, path) == 0) {
            disk = sim->disks[i];
        }
    }
    if (disk == NULL || disk->gone) {
        return errmsg_set(reterr, ERR_NOT_FOUND, "%s: no such disk", path);
    }
    if (is_held(disk, options->exclusive)) {
        return errmsg_set(reterr, ERR_BUSY, "%s: in use", path);
    }
    if (options->offset_bytes >= disk->size_bytes ||
        options->length_bytes > disk->size_bytes - options->offset_bytes) {
        return errmsg_set(reterr, ERR_INVALID, "%s: the window lies outside the disk", path);
    }
    struct sim_handle *handle = sim_alloc(sizeof(*handle));
    handle->base.env = env;
    handle->disk = disk;
    handle->plugged = disk->plugged;
    handle->offset_bytes = options->offset_bytes;
    handle->exclusive = options->exclusive;
    handle->read_only = options->read_only;
    info_fill(handle, options->length_bytes != 0 ? options->length_bytes
                                                 : disk->size_bytes - options->offset_bytes);
    list_append(&disk->handles, &handle->link);
    *ret_disk = &handle->base;
    return OK;
}

static void handle_free_if_idle(struct sim_handle *handle) {
    if (handle->closed && handle->outstanding == 0) {
        list_remove(&handle->link);
        mem_free(handle);
    }
}

void sim_disk_close(struct env_disk *base) {
    struct sim_handle *handle = handle_of(base);
    ASSERT(!handle->closed);
    handle->closed = true;
    handle_free_if_idle(handle);
}

const struct env_disk_info *sim_disk_info(const struct env_disk *base) {
    return &handle_of(base)->info;
}

int sim_disk_probe(struct env_disk *base, struct errmsg *reterr) {
    const struct sim_handle *handle = handle_of(base);
    if (handle->disk->gone || handle->plugged != handle->disk->plugged) {
        return errmsg_set(reterr, ERR_DISK_GONE, "%s: the disk is gone", handle->info.path);
    }
    return OK;
}

/* ---- memory of the caller ---- */

static bool is_zero(const uint8_t *data) {
    uint64_t first;
    memcpy(&first, data, sizeof(first));
    return first == 0 && memcmp(data, data + sizeof(first), SIM_BLOCK_BYTES - sizeof(first)) == 0;
}

/* Calls for each block of the iovec; elements are whole blocks. */
#define FOR_EACH_BLOCK(io_, at_, index_)                                                           \
    for (uint32_t v_ = 0, index_ = 0; v_ < (io_)->iov_count; v_++)                                 \
        for (uint8_t *at_ = (io_)->iov[v_].iov_base, *end_ = at_ + (io_)->iov[v_].iov_len;         \
             at_ < end_; at_ += SIM_BLOCK_BYTES, index_++)

static void content_capture(struct sim_io *sio) {
    sio->content = sim_alloc(sio->count * sizeof(struct sim_block *));
    if (sio->op == ENV_IO_DISCARD) {
        return; /* zeros */
    }
    FOR_EACH_BLOCK(sio->io, at, i) {
        if (!is_zero(at)) {
            sio->content[i] = sim_block_new(sio->disk->sim);
            memcpy(sio->content[i]->data, at, SIM_BLOCK_BYTES);
        }
    }
}

/* Memory handed to a write must stay as it was until the answer: a real disk reads it any time. */
static void content_check(const struct sim_io *sio) {
    FOR_EACH_BLOCK(sio->io, at, i) {
        const struct sim_block *block = sio->content[i];
        ASSERT(block == NULL ? is_zero(at) : memcmp(block->data, at, SIM_BLOCK_BYTES) == 0);
    }
}

static void content_read(const struct sim_io *sio) {
    FOR_EACH_BLOCK(sio->io, at, i) {
        const struct sim_block *block = store_visible(&sio->disk->store, sio->block + i);
        if (block == NULL) {
            memset(at, 0, SIM_BLOCK_BYTES);
        } else {
            memcpy(at, block->data, SIM_BLOCK_BYTES);
        }
    }
}

void io_free(struct sim_io *sio) {
    for (uint64_t i = 0; sio->content != NULL && i < sio->count; i++) {
        sim_block_unref(sio->disk->sim, sio->content[i]);
    }
    mem_free(sio->content);
    mem_free(sio);
}

/* ---- the end of an I/O ---- */

/* Where block `index` of a write really goes. A misdirected write goes to a place of the same
 * alignment elsewhere on the disk, as a whole. */
static uint64_t misdirect(struct sim_io *sio) {
    uint64_t blocks = sio->disk->store.blocks;
    uint64_t room = blocks - sio->count;
    uint64_t to = room == 0 ? 0 : rng_below(&sio->disk->rng, room);
    return to == sio->block ? (to + 1) % (room + 1) : to;
}

static struct sim_block *visible_ref(struct sim_disk *disk, uint64_t block) {
    return sim_block_ref((struct sim_block *)(uintptr_t)store_visible(&disk->store, block));
}

static void write_lands_wrongly(struct sim_io *sio) {
    struct sim_disk *disk = sio->disk;
    uint64_t to = sio->misdirected ? misdirect(sio) : sio->block;
    for (uint64_t i = 0; i < sio->count; i++) {
        if (sio->misdirected) {
            struct sim_block *victim = visible_ref(disk, to + i);
            store_land(&disk->store, to + i, sim_block_ref(sio->content[i]), 0);
            store_mark_faulty(&disk->store, to + i, victim, 0);
        }
    }
    for (uint64_t i = 0; i < sio->count; i++) {
        store_mark_faulty(&disk->store, sio->block + i, sim_block_ref(sio->content[i]),
                          sio->sequence);
    }
}

static void write_lands(struct sim_io *sio) {
    struct sim_disk *disk = sio->disk;
    sio->sequence = ++disk->sim->write_sequence;
    if (sio->lost || sio->misdirected) {
        write_lands_wrongly(sio);
        return;
    }
    for (uint64_t i = 0; i < sio->count; i++) {
        struct sim_block *content = sim_block_ref(sio->content[i]);
        if (sio->cached) {
            store_put(&disk->store, sio->block + i, content, sio->sequence, (uint32_t)i,
                      (uint32_t)sio->count, true);
        } else {
            store_land(&disk->store, sio->block + i, content, sio->sequence);
        }
    }
}

/* A write that fails has landed as far as the head got. */
static void write_fails(struct sim_io *sio) {
    uint64_t landed = rng_below(&sio->disk->rng, sio->count + 1);
    uint64_t sequence = ++sio->disk->sim->write_sequence;
    for (uint64_t i = 0; i < landed; i++) {
        store_land(&sio->disk->store, sio->block + i, sim_block_ref(sio->content[i]), sequence);
    }
}

static void flush_takes(struct sim_io *sio) {
    struct sim_disk *disk = sio->disk;
    if (disk->lies) {
        disk->counts[SIM_FAULT_LIE] += disk->store.versions > 0;
        return;
    }
    uint64_t block;
    for (uint64_t oldest = store_oldest(&disk->store, &block); oldest <= sio->sequence;
         oldest = store_oldest(&disk->store, &block)) {
        store_destage(&disk->store, block, sio->sequence);
    }
}

static void io_take_effect(struct sim_io *sio) {
    switch (sio->op) {
    case ENV_IO_READ:
        for (uint64_t i = 0; i < sio->count && sio->result == OK; i++) {
            if (store_is_latent(&sio->disk->store, sio->block + i)) {
                sio->result = ERR_IO;
            }
        }
        if (sio->result == OK) {
            content_read(sio);
        }
        break;
    case ENV_IO_WRITE:
        content_check(sio);
        if (sio->result == OK) {
            write_lands(sio);
            sio->disk->last_durable_ns =
                sio->durable ? sio->disk->sim->now_ns : sio->disk->last_durable_ns;
        } else if (sio->result == ERR_IO) {
            write_fails(sio);
        }
        break;
    case ENV_IO_DISCARD:
        if (sio->result == OK) {
            write_lands(sio);
        }
        break;
    case ENV_IO_FLUSH:
        if (sio->result == OK) {
            flush_takes(sio);
        }
        break;
    }
}

static void disk_admit(struct sim_disk *disk);

static void cache_make_room(struct sim_disk *disk) {
    struct sim_store *store = &disk->store;
    uint64_t block;
    /* Flash disks empty their caches by themselves, oldest first, in no time of ours. */
    while (!disk->model->rotational && store->versions > disk->cache_limit_blocks) {
        uint64_t oldest = store_oldest(store, &block);
        if (oldest == UINT64_MAX) {
            break;
        }
        store_destage(store, block, oldest);
    }
}

static void io_answer(struct sim_io *sio) {
    struct sim_disk *disk = sio->disk;
    struct env_io *io = sio->io;
    io->result = sio->result;
    list_remove(&sio->link);
    list_remove(&sio->outstanding);
    disk->admitted -= sio->admitted;
    sio->handle->outstanding--;
    handle_free_if_idle(sio->handle);
    io_free(sio);
    cache_make_room(disk);
    disk_admit(disk);
    io->done(io);
}

static void io_fires(struct sim_event *event) {
    struct sim_io *sio = CONTAINER_OF(event, struct sim_io, event);
    struct sim_disk *disk = sio->disk;
    if (disk->sim->now_ns < disk->stalled_until_ns && sio->result != ERR_DISK_GONE) {
        list_remove(&sio->link);
        list_append(&disk->parked, &sio->link);
        if (disk->stalled_until_ns != UINT64_MAX) {
            sim_schedule(disk->sim, &sio->event, disk->stalled_until_ns);
        }
        return;
    }
    if (sim_boundary(disk->sim)) {
        return; /* the power went before it was answered */
    }
    io_take_effect(sio);
    sim_trace(disk->sim, disk, '<', sio, sio->result);
    io_answer(sio);
}

void io_ends_at(struct sim_io *sio, uint64_t at_ns) {
    sio->event.fire = io_fires;
    bool slow = sio->result != ERR_DISK_GONE;
    sim_schedule(sio->disk->sim, &sio->event,
                 at_ns + sio->late_ns + (slow ? sio->disk->slow_delay_ns : 0));
}

void sim_disk_unpark(struct sim_disk *disk) {
    LIST_FOR_EACH(it, &disk->parked) {
        struct sim_io *sio = CONTAINER_OF(it, struct sim_io, link);
        sim_schedule(disk->sim, &sio->event, disk->sim->now_ns);
    }
}

void sim_disk_fail_outstanding(struct sim_disk *disk, int result) {
    LIST_FOR_EACH(it, &disk->outstanding) {
        struct sim_io *sio = CONTAINER_OF(it, struct sim_io, outstanding);
        list_remove(&sio->link);
        sio->result = result;
        sio->late_ns = 0;
        io_ends_at(sio, disk->sim->now_ns + GONE_NS);
    }
    disk->serving = NULL;
}

/* ---- the beginning ---- */

static void io_admit(struct sim_io *sio) {
    struct sim_disk *disk = sio->disk;
    sio->admitted = true;
    sio->admitted_ns = disk->sim->now_ns;
    disk->admitted++;
    sio->cached = disk->cache_on && (!sio->durable || disk->lies) &&
                  (sio->op == ENV_IO_WRITE || sio->op == ENV_IO_DISCARD);
    if (disk->lies && disk->cache_on && sio->durable) {
        disk->counts[SIM_FAULT_LIE]++;
    }
    if (!disk->model->rotational) {
        flash_serve(sio);
        return;
    }
    list_append(sio->op == ENV_IO_FLUSH ? &disk->flushes
                : sio->cached           ? &disk->room_waiters
                                        : &disk->queue,
                &sio->link);
}

static void disk_admit(struct sim_disk *disk) {
    while (disk->admitted < disk->model->queue_depth && !list_is_empty(&disk->waiting)) {
        io_admit(CONTAINER_OF(list_pop(&disk->waiting), struct sim_io, link));
    }
    if (disk->model->rotational) {
        rotation_kick(disk);
    }
}

void sim_disk_submit(struct env_disk *base, struct env_io *io) {
    struct sim_handle *handle = handle_of(base);
    struct sim_disk *disk = handle->disk;
    struct sim *sim = disk->sim;
    ASSERT(!handle->closed);
    ASSERT(range_is_within(io->offset_bytes, io->length_bytes, handle->info.size_bytes));
    ASSERT(io->op == ENV_IO_READ || !handle->read_only);
    if (sim->cut) {
        return; /* no more of this engine's life happens */
    }
    struct sim_io *sio = sim_alloc(sizeof(*sio));
    list_init(&sio->link);
    sio->disk = disk;
    sio->handle = handle;
    sio->io = io;
    sio->op = io->op;
    sio->durable = io->durable;
    sio->block = (handle->offset_bytes + io->offset_bytes) / SIM_BLOCK_BYTES;
    sio->count = io->op == ENV_IO_FLUSH ? 0 : io->length_bytes / SIM_BLOCK_BYTES;
    sio->sequence = sim->write_sequence;
    handle->outstanding++;
    list_append(&disk->outstanding, &sio->outstanding);
    if (sio->op == ENV_IO_WRITE || sio->op == ENV_IO_DISCARD) {
        content_capture(sio);
    }
    sim_trace(sim, disk, '>', sio, OK);
    if (sim_boundary(sim)) {
        return;
    }
    if (disk->gone || handle->plugged != disk->plugged) {
        sio->result = ERR_DISK_GONE;
        io_ends_at(sio, sim->now_ns + GONE_NS);
        return;
    }
    faults_on_submit(sio);
    list_append(&disk->waiting, &sio->link);
    disk_admit(disk);
}
