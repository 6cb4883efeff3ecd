// SPDX-License-Identifier: MPL-2.0
/* What the files of env/sim share. All of it belongs to the thread that runs the simulation.
 *
 * An I/O's way: submitted (disk.c; the content of a write is copied then, so nothing later can
 * change it) → waits until the disk's queue has room → admitted → served (rotation.c or flash.c
 * say when it ends) → its event fires: content moves, `done` runs.
 *
 * Where content is (store.c). `stable` is the medium. Above it each block has a chain of versions
 * in the volatile cache, newest first, numbered in the order in which their writes were answered
 * (so that a flush covers exactly what was answered before it was submitted). A read sees the
 * newest. Destaging or a flush moves versions to the medium; a power cut keeps any subset. */
#ifndef HOLDFAST_ENV_SIM_PRIVATE_H
#define HOLDFAST_ENV_SIM_PRIVATE_H

#include "base/list.h"
#include "env/backend.h"
#include "env/sim/sim.h"

enum { SIM_BLOCK_BYTES = 4096, SIM_LEAF_BLOCKS = 512, SIM_SECTOR_BYTES = 512, SIM_ZONES = 24 };

struct sim;

/* ---- events (events.c): a heap by (time, sequence) ---- */

struct sim_event {
    uint64_t at_ns;
    uint64_t sequence;
    uint32_t heap_index; /* 0: not scheduled */
    void (*fire)(struct sim_event *event);
};

void sim_schedule(struct sim *sim, struct sim_event *event, uint64_t at_ns); /* moves it too */
void sim_unschedule(struct sim *sim, struct sim_event *event);
struct sim_event *sim_first_event(const struct sim *sim); /* NULL: none */

/* ---- content (store.c) ---- */

struct sim_block { /* NULL stands for zeros */
    uint32_t refs;
    struct sim_block *next_free;
    uint8_t data[SIM_BLOCK_BYTES];
};

struct sim_version {
    struct sim_version *older;
    struct sim_block *content;
    uint64_t sequence;
    uint32_t index, count; /* this block's place in its write, and that write's blocks */
    bool answered;         /* false only during a power cut: it was still on its way */
};

struct sim_leaf {
    struct sim_block *stable[SIM_LEAF_BLOCKS];
    struct sim_version *newest[SIM_LEAF_BLOCKS];
    uint64_t dirty[SIM_LEAF_BLOCKS / 64];  /* has versions */
    uint64_t latent[SIM_LEAF_BLOCKS / 64]; /* cannot be read from the medium */
    uint32_t dirty_count;
};

struct sim_faulty { /* a block that does not hold what was written last */
    uint64_t block;
    uint64_t sequence; /* of the write whose content `good` is */
    struct sim_block *good;
};

struct sim_fifo_entry {
    uint64_t block, sequence;
};

struct sim_store {
    struct sim *sim;
    uint64_t blocks, leaf_count;
    struct sim_leaf **leaves;
    uint64_t *leaf_dirty; /* bit: the leaf has dirty blocks */
    uint64_t versions;
    struct sim_fifo_entry *fifo; /* of versions, oldest first; stale entries are skipped */
    uint64_t fifo_head, fifo_count, fifo_capacity;
    struct sim_faulty *faulty;
    uint32_t faulty_count, faulty_capacity;
};

struct sim_block *sim_block_new(struct sim *sim); /* one reference, content undefined */
struct sim_block *sim_block_ref(struct sim_block *block);
void sim_block_unref(struct sim *sim, struct sim_block *block);

void store_init(struct sim_store *store, struct sim *sim, uint64_t blocks);
void store_done(struct sim_store *store);
const struct sim_block *store_visible(const struct sim_store *store, uint64_t block);
/* Takes over the reference to `content`. */
void store_put(struct sim_store *store, uint64_t block, struct sim_block *content,
               uint64_t sequence, uint32_t index, uint32_t count, bool answered);
void store_land(struct sim_store *store, uint64_t block, struct sim_block *content,
                uint64_t sequence);
/* Moves the newest version ≤ `sequence` of the block to the medium. */
void store_destage(struct sim_store *store, uint64_t block, uint64_t sequence);
/* The oldest version's sequence; UINT64_MAX: the cache is empty. */
uint64_t store_oldest(struct sim_store *store, uint64_t *ret_block);
/* First dirty block ≥ from, going round; UINT64_MAX: none. */
uint64_t store_next_dirty(const struct sim_store *store, uint64_t from);
bool store_is_dirty(const struct sim_store *store, uint64_t block);
bool store_is_latent(const struct sim_store *store, uint64_t block);
void store_set_latent(struct sim_store *store, uint64_t block);
/* First block ≥ from, going round, whose medium is not zeros and has no versions above it. */
uint64_t store_next_written(const struct sim_store *store, uint64_t from);
/* Takes over `good`. Sequence 0: damage to what lies there, whose landing was some time before. */
void store_mark_faulty(struct sim_store *store, uint64_t block, struct sim_block *good,
                       uint64_t sequence);
struct sim_faulty *store_faulty(struct sim_store *store, uint64_t block);
void store_heal(struct sim_store *store);
struct sim_version *store_take_versions(struct sim_store *store, uint64_t block);
struct sim_block *store_stable(const struct sim_store *store, uint64_t block);

/* ---- disks ---- */

struct sim_io {
    struct sim_event event;
    struct list link;        /* in waiting, queue, flushes, room_waiters or parked */
    struct list outstanding; /* in the disk's outstanding, in order of submission */
    struct sim_disk *disk;
    struct sim_handle *handle;
    struct env_io *io;
    enum env_io_op op;
    bool durable;
    uint64_t block;
    uint64_t count;
    struct sim_block **content; /* write: what lands */
    uint64_t sequence;
    uint64_t admitted_ns;
    uint64_t late_ns;
    int result;
    bool admitted, lost, misdirected, cached;
};

struct sim_armed {
    uint32_t skip, count;
    uint64_t argument_ns;
};

struct sim_head { /* of a rotational disk: where it was when, and what it has read ahead */
    uint64_t offset_bytes, at_ns;
    bool reading_ahead;
    uint64_t ahead_start_bytes, ahead_end_bytes;
};

struct sim_disk {
    struct sim *sim;
    uint32_t index;
    char path[256];
    const struct sim_model *model;
    struct sim_store store;
    uint64_t size_bytes;
    bool cache_on, lies, gone;
    uint64_t plugged; /* counts returns: handles of an earlier life stay dead */
    uint64_t stalled_until_ns, last_durable_ns;
    uint32_t slow_factor; /* 1: as fast as it should be */
    uint64_t slow_delay_ns;
    struct list handles;
    struct list outstanding, waiting, queue, flushes, room_waiters, parked;
    uint32_t admitted;
    uint64_t cache_limit_blocks;
    /* rotational */
    struct sim_event mechanism, stall_end;
    bool mechanism_busy, destaged_last;
    struct sim_io *serving; /* NULL while destaging */
    uint64_t destage_block, destage_count, destage_sequence;
    struct sim_head head;
    uint64_t zone_start[SIM_ZONES + 1];
    double zone_rate[SIM_ZONES]; /* bytes a ns */
    double rotation_ns, seek_root_ns, seek_linear_ns;
    /* flash */
    uint64_t channel_free_ns[64];
    uint64_t bus_free_ns;
    struct rng rng;
    struct sim_armed armed[SIM_FAULTS];
    uint64_t counts[SIM_FAULTS];
};

struct sim_handle {
    struct env_disk base;
    struct list link;
    struct sim_disk *disk;
    uint64_t plugged, offset_bytes;
    uint64_t outstanding;
    bool closed, exclusive, read_only;
    struct env_disk_info info;
};

struct sim_record {
    struct list link;
    char name[81];
    size_t length;
    uint8_t bytes[];
};

struct sim {
    struct env env; /* first: the backend's base */
    struct env_sim_options options;
    uint64_t now_ns;
    uint64_t hash;
    uint64_t boundaries, cut_at; /* cut_at 0: no cut is armed */
    bool cut;
    uint64_t write_sequence;
    struct rng rng;    /* of latencies and cuts */
    struct rng random; /* env_random() */
    struct sim_event **heap;
    uint32_t event_count, event_capacity;
    uint64_t event_sequence;
    struct sim_disk **disks;
    uint32_t disk_count;
    struct sim_block *free_blocks;
    uint64_t blocks_in_use;
    struct list records;
    struct list links, listeners, connections; /* net.c */
    uint64_t connections_made;
    uint32_t ports_given;
    struct rng net_rng; /* its own, so that disks do not feel what a network draws */
};

extern const struct net_ops sim_net_ops;
/* Every connection and listener vanishes, telling nobody: a power cut. Links stay. */
void sim_net_drop(struct sim *sim);
void sim_net_done(struct sim *sim);

void *sim_alloc(size_t bytes); /* outside every scope */
void *sim_realloc(void *old, size_t bytes);

struct sim *sim_of(const struct env *env);
/* Passes an I/O boundary; true: the power is cut here. */
bool sim_boundary(struct sim *sim);
void sim_trace(struct sim *sim, const struct sim_disk *disk, char kind, const struct sim_io *io,
               int result);

int sim_disk_open(struct env *env, const char *path, const struct env_disk_options *options,
                  struct env_disk **ret_disk, struct errmsg *reterr);
void sim_disk_close(struct env_disk *handle);
const struct env_disk_info *sim_disk_info(const struct env_disk *handle);
void sim_disk_submit(struct env_disk *handle, struct env_io *io);
int sim_disk_probe(struct env_disk *handle, struct errmsg *reterr);
void sim_disk_power_cut(struct sim_disk *disk);
void sim_disk_free(struct sim_disk *disk);
void sim_disk_drop_cache(struct sim_disk *disk); /* cut.c: any subset of the cache lands */
void sim_disk_unpark(struct sim_disk *disk);
void sim_disk_fail_outstanding(struct sim_disk *disk, int result);

/* A served I/O ends at `at_ns`. */
void io_ends_at(struct sim_io *io, uint64_t at_ns);
void io_free(struct sim_io *io);

void faults_on_submit(struct sim_io *io);
/* True when the armed fault of this kind hits this I/O. */
bool fault_hits(struct sim_disk *disk, enum sim_fault fault);

/* rotation.c */
void rotation_init(struct sim_disk *disk);
void rotation_kick(struct sim_disk *disk);
void rotation_reset(struct sim_disk *disk);
/* flash.c */
void flash_serve(struct sim_io *io);

static inline uint64_t sim_transfer_ns(uint64_t bytes, uint32_t mb_s) {
    return bytes * 1000 / mb_s; /* decimal megabytes */
}

#endif
