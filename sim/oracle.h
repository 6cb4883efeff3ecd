// SPDX-License-Identifier: MPL-2.0
/* What a volume may hold: the plain model that the engine is held against.
 *
 * Every write of the world has a version number; what it writes to a sector is generated from
 * (volume, sector, version), so the model keeps numbers only, and zeros are version 0. A sector
 * that can only hold one thing is just that number. Otherwise it has a list of candidates:
 *
 * - A write is a candidate from its submission on. When it is answered OK, it kills every candidate
 *   that had been answered before it was submitted (they are overwritten for certain).
 * - A read must return a candidate that was not dead before the read began. And what was answered
 *   before the read began and is not what it returned is dead from now on: it was overwritten
 *   before, so no later read may return it (no flapping, also after a crash).
 * - A kill is final once the killer is durable: at its answer (sync=always, FUA), or by a flush
 *   submitted after its answer. A crash brings back what was killed by writes that were not
 *   durable, and makes candidates of all writes on their way.
 * - After a crash the engine has settled on one of the candidates; the first read tells which. */
#ifndef HOLDFAST_SIM_ORACLE_H
#define HOLDFAST_SIM_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORACLE_SECTOR_BYTES = 512, ORACLE_PAGE_SECTORS = 1024 };

struct oracle_node {
    uint32_t next; /* index + 1; 0: the last */
    uint32_t version;
    uint32_t submitted, answered; /* sequence numbers; answered UINT32_MAX: on its way */
    uint32_t dead;                /* sequence number; UINT32_MAX: alive */
    uint32_t killer;              /* `submitted` of the one a read saw after it; UINT32_MAX: none */
    bool done, durable;           /* answered OK; and durable with that */
};

struct oracle_page {
    uint64_t index; /* page number within the volume */
    struct oracle_page *next_in_bucket;
    uint32_t open;                               /* sectors with a list */
    uint32_t sector[ORACLE_PAGE_SECTORS];        /* version, or OPEN | node index */
    uint64_t used[ORACLE_PAGE_SECTORS / 8 / 64]; /* bit a block of 4096: may take space */
};

struct oracle { /* one a world */
    uint32_t sequence;
    uint32_t oldest_read; /* submission of the oldest read on its way; UINT32_MAX: none */
    struct oracle_node *nodes;
    uint32_t node_count, node_capacity, free_node;
};

enum { ORACLE_BUCKETS = 256 };

struct oracle_volume {
    struct oracle *oracle;
    uint64_t identity; /* mixed into the content: differs for each volume ever created */
    bool sync_always;
    uint32_t flushed; /* answered before this: durable */
    uint64_t used_blocks;
    struct oracle_page *buckets[ORACLE_BUCKETS];
};

void oracle_init(struct oracle *oracle);
void oracle_done(struct oracle *oracle);
void oracle_volume_init(struct oracle_volume *volume, struct oracle *oracle, uint64_t identity,
                        bool sync_always);
void oracle_volume_done(struct oracle_volume *volume);

/* What `version` of a sector looks like. */
void oracle_fill(const struct oracle_volume *volume, uint64_t sector, uint32_t version,
                 void *ret_bytes);

/* The sequence number of this moment. */
uint32_t oracle_tick(struct oracle *oracle);

/* A write of `version` begins; the answer is its identity for the end. */
uint32_t oracle_write_begin(struct oracle_volume *volume, uint64_t sector, uint64_t count,
                            uint32_t version);
enum oracle_outcome {
    ORACLE_DONE,    /* answered OK */
    ORACLE_UNKNOWN, /* failed: it may have happened, in part or whole, or not */
    ORACLE_NOTHING, /* refused: it has not happened */
};
void oracle_write_end(struct oracle_volume *volume, uint64_t sector, uint64_t count,
                      uint32_t submitted, enum oracle_outcome outcome, bool durable);
/* A flush submitted at `submitted` was answered OK. */
void oracle_flushed(struct oracle_volume *volume, uint32_t submitted);

/* A read submitted at `submitted` returned `bytes`. True if it may; else says what is wrong with
 * the first bad sector. */
bool oracle_read(struct oracle_volume *volume, uint64_t sector, uint64_t count, uint32_t submitted,
                 const void *bytes, char *ret_why, size_t why_bytes);
/* As if a read had just returned that; false: not known to be one thing only. */
bool oracle_known(const struct oracle_volume *volume, uint64_t sector, uint32_t *ret_version);

/* Power cut, or (clean) the end of an engine that closed in order: all that was answered stays. */
void oracle_restart(struct oracle_volume *volume, bool clean);

/* Calls visit for every run of sectors that was ever touched, in no particular order. */
void oracle_each_page(struct oracle_volume *volume, void (*visit)(void *ctx, uint64_t sector),
                      void *ctx);

#endif
