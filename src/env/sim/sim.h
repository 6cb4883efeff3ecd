// SPDX-License-Identifier: MPL-2.0
/* The simulated environment: virtual time, modelled disks, faults, power cuts, from one seed.
 *
 * Virtual time stands still while code runs and jumps to the next event when nothing is ready, so
 * hours of an array pass in milliseconds and the same seed gives the same run: the trace hash is
 * taken over every disk I/O (disk, operation, place, result, time), at its start and at its end.
 *
 * Whoever owns the simulation drives it with env_sim_run_until(). All memory of the environment
 * lies outside every mem scope, so that disks and host records outlive a dropped engine.
 *
 * A power cut: env_sim_run_until() returns SIM_CUT (or the owner simply decides that now is the
 * moment), the owner calls env_sim_power_cut() and drops the engine's scope. What was written but
 * not flushed, and what was on its way, is then on the disks or not, in any subset. */
#ifndef HOLDFAST_ENV_SIM_SIM_H
#define HOLDFAST_ENV_SIM_SIM_H

#include "base/rng.h"
#include "env/env.h"

/* ---- disk models (models.c) ---- */

struct sim_model {
    const char *name, *what;
    /* Of a product: whose data sheet, and what it says; NULL: figures of a class. And the 4 KiB
     * random reads a second over the whole disk, one at a time, that follow from it: of a rotating
     * disk, from average seek and half a turn. */
    const char *source;
    double sheet_read_iops;
    bool rotational;
    uint64_t capacity_bytes; /* of the real thing; see sim_disk_options.scale */
    uint32_t queue_depth;    /* commands the disk sees at once; others wait in front of it */
    uint32_t command_ns;     /* of each command, whatever it does */
    uint32_t bus_mb_s;       /* interface, decimal */
    uint64_t cache_bytes;    /* volatile write cache; 0: none (or protected by capacitors) */
    uint32_t error_retry_ms; /* how long it tries before it gives a read error */
    /* Rotational. */
    uint32_t rpm;
    uint32_t seek_track_us, seek_mean_us, seek_full_us; /* mean: over random pairs */
    uint32_t outer_mb_s, inner_mb_s;
    uint64_t read_ahead_bytes;
    /* Flash. */
    uint32_t channels; /* commands it really works on at once */
    uint32_t read_us, write_us, flush_us;
    uint32_t read_mb_s, write_mb_s;
    uint32_t slow_per_10k, slow_factor; /* the tail: garbage collection inside the disk */
};

const struct sim_model *sim_model_find(const char *name); /* NULL: no such model */
const struct sim_model *sim_model_at(uint32_t index);     /* NULL beyond the last */

/* ---- the environment ---- */

struct env_sim_options {
    uint64_t seed;
    /* NULL, or called with one line of text for each traced event. */
    void (*trace)(void *owner, const char *line);
    void *trace_owner;
};

struct env *env_sim_new(const struct env_sim_options *options);
void env_sim_free(struct env *env); /* drops everything that is left */

enum sim_stop {
    SIM_DONE,     /* the predicate became true */
    SIM_DEADLINE, /* the deadline passed (it is then exactly `deadline_ns`) */
    SIM_IDLE,     /* nothing is ready, armed or on its way: nothing would ever happen */
    SIM_CUT,      /* the armed power cut came; call env_sim_power_cut() */
};

/* Runs the loop until `until(ctx)` (looked at after every turn; NULL: never), the deadline, or a
 * cut. env_stop() also ends it, as SIM_DONE. */
enum sim_stop env_sim_run_until(struct env *env, uint64_t deadline_ns, bool (*until)(void *ctx),
                                void *ctx);

uint64_t env_sim_trace_hash(const struct env *env);
/* Mixes a fact of the owner's world into the trace (and its text, when traced). */
void env_sim_note(struct env *env, uint64_t value, const char *fmt, ...) HF_PRINTF(3, 4);
/* I/O boundaries passed so far: every submission and completion, every host record written. */
uint64_t env_sim_boundaries(const struct env *env);

/* Cuts the power at the n-th I/O boundary from now (1: the next); 0 disarms. */
void env_sim_arm_cut(struct env *env, uint64_t boundaries);
bool env_sim_is_cut(const struct env *env);
/* Applies the cut to all disks, forgets tasks, timers and fibers. Not from inside the loop. */
void env_sim_power_cut(struct env *env);

/* Host records: the witness lives there. Forgetting all of them is moving the disks to another
 * host. */
void env_sim_state_forget(struct env *env);

/* ---- disks ---- */

struct sim_disk;

struct sim_disk_options {
    const char *model;
    const struct sim_model *custom; /* instead of one of the table; outlives the disk */
    const char *path;
    uint64_t size_bytes; /* 0: the model's capacity / scale */
    uint32_t scale;      /* 0: 1 */
    bool cache_off;      /* volatile write cache switched off */
};

/* ERR_NOT_FOUND: no such model; ERR_EXISTS: the path is taken. */
HF_MUST_CHECK int env_sim_disk_add(struct env *env, const struct sim_disk_options *options,
                                   struct sim_disk **ret_disk, struct errmsg *reterr);
void sim_disk_set_path(struct sim_disk *disk, const char *path); /* plugged in elsewhere */
const char *sim_disk_path(const struct sim_disk *disk);
uint64_t sim_disk_size_bytes(const struct sim_disk *disk);
bool sim_disk_rotates(const struct sim_disk *disk);

uint32_t sim_disk_outstanding(const struct sim_disk *disk);     /* I/Os that have not come back */
uint64_t sim_disk_last_durable_ns(const struct sim_disk *disk); /* a durable write was answered */

/* ---- faults (faults.c) ---- */

enum sim_fault {
    SIM_FAULT_LATENT,      /* a block gives read errors until it is written again */
    SIM_FAULT_ROT,         /* one bit of a block on the medium flips */
    SIM_FAULT_LOST,        /* a write is answered OK and never lands */
    SIM_FAULT_MISDIRECTED, /* a write lands elsewhere on the same disk */
    SIM_FAULT_LATE,        /* an I/O takes seconds; a write lands only then */
    SIM_FAULT_STALL,       /* the whole disk hangs, for a time or for ever */
    SIM_FAULT_VANISH,      /* the disk is gone: all I/O fails, it cannot be opened */
    SIM_FAULT_RETURN,      /* and is back, as it was */
    SIM_FAULT_READ_ERROR,  /* one read fails; the next would not */
    SIM_FAULT_WRITE_ERROR, /* one write fails, having landed in part or not */
    SIM_FAULT_FLUSH_ERROR, /* one flush fails */
    SIM_FAULT_LIE,         /* a flush or durable write that was answered without being done */
    SIM_FAULT_TORN,        /* a power cut left a write in part */
    SIM_FAULT_DROPPED,     /* a power cut took an answered, unflushed write (allowed) */
    SIM_FAULT_CUT,         /* power cuts */
    SIM_FAULT_SLOW,        /* the whole disk takes longer than it should */
    SIM_FAULTS
};

const char *sim_fault_name(enum sim_fault fault);
/* How often each kind has come true on this disk; CUT, TORN, DROPPED too. */
uint64_t sim_disk_fault_count(const struct sim_disk *disk, enum sim_fault fault);

/* Arms LOST, MISDIRECTED, LATE (of `argument_ns`), READ_ERROR, WRITE_ERROR or FLUSH_ERROR: after
 * `skip` more eligible I/Os of this disk the next `count` are hit. Replaces what was armed of that
 * kind; count 0 disarms. */
void sim_disk_arm(struct sim_disk *disk, enum sim_fault fault, uint32_t skip, uint32_t count,
                  uint64_t argument_ns);
bool sim_disk_is_armed(const struct sim_disk *disk, enum sim_fault fault);

/* At once. False when the block holds nothing a fault would show on (never written, or its newest
 * content is still in the volatile cache or on its way). */
bool sim_disk_make_latent(struct sim_disk *disk, uint64_t offset_bytes);
bool sim_disk_rot(struct sim_disk *disk, uint64_t offset_bytes, uint32_t bit);
/* A block that holds something, for the two above: the first at or after `offset_bytes`, going
 * round. False: the disk is empty. */
bool sim_disk_find_written(const struct sim_disk *disk, uint64_t offset_bytes,
                           uint64_t *ret_offset_bytes);
void sim_disk_stall(struct sim_disk *disk, uint64_t until_ns); /* UINT64_MAX: for ever; 0: ends */
/* From now on everything takes `factor` times as long as it should, and each answer comes another
 * `delay_ns` later, however many are on their way. (1, 0): it is well again. */
void sim_disk_slow(struct sim_disk *disk, uint32_t factor, uint64_t delay_ns);
bool sim_disk_is_slow(const struct sim_disk *disk);
/* Outstanding I/Os fail. `cache_lost`: it lost power as well. */
void sim_disk_vanish(struct sim_disk *disk, bool cache_lost);
void sim_disk_return(struct sim_disk *disk);
/* All that a disk holds now, its size in bytes, into memory of the caller; and a disk that is gone
 * gets it back: an old copy of it will return. */
void sim_disk_image(const struct sim_disk *disk, uint8_t *ret_bytes);
void sim_disk_set_back(struct sim_disk *disk, const uint8_t *bytes);
bool sim_disk_is_gone(const struct sim_disk *disk);
bool sim_disk_is_stalled(const struct sim_disk *disk);
/* From now on flushes and durable writes are answered like plain cached ones. */
void sim_disk_set_lies(struct sim_disk *disk, bool lies);

/* Blocks that do not hold what was written to them last (rot, lost, misdirected, latent) and have
 * not been written again since: what counts against redundancy. */
uint32_t sim_disk_faulty_blocks(const struct sim_disk *disk);
/* Puts what was written last into every such block. */
void sim_disk_heal(struct sim_disk *disk);

/* ---- for tests: what a read would return, without an I/O ---- */

void sim_disk_peek(const struct sim_disk *disk, uint64_t offset_bytes, void *ret_block);
void sim_disk_poke(struct sim_disk *disk, uint64_t offset_bytes, const void *block);

/* Bytes of content held for all disks. */
uint64_t env_sim_content_bytes(const struct env *env);

#endif
