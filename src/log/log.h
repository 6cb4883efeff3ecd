// SPDX-License-Identifier: MPL-2.0
/* The log: what makes an operation durable.
 *
 * Each in-sync disk has a ring of log rows. A row is written, whole and durably, to as many disks
 * as the pool's metadata has copies, those that are least busy. Rows are numbered consecutively
 * over all rings (LSN = mount generation << 32 | counter); an entry is committed, in LSN order,
 * when its row and all rows below are durable on their disks (invariant 1). Group commit: entries
 * gather while rows are under way; at most LOG_ROWS_IN_FLIGHT are. The entry's effect on memory is
 * applied at the commit, in LSN order, before anybody is told.
 *
 * A copy that fails goes to another disk and its disk is expelled. A copy that is slow (by what its
 * disk's peers take, disk.h) goes to another disk as well, while it is still waited for: the first
 * ones that come count. Disks that are to be avoided get rows only if there are no others. A copy
 * that is late (LOG_LATE_NS) is given up and goes to another disk; only if there is none, the late
 * disk is expelled. A ring with a late write outstanding takes no more rows until that write has
 * come back: it could land on a newer row.
 *
 * A row is torn or whole by its checksum, which is seeded with a secret of the superblock, so that
 * data written by a guest can never pass for a row. Replay reads every ring, takes the valid rows
 * of the recorded generation, sorts, removes duplicates, and stops at the first gap. All rows of
 * one replay are of one mount, because an import checkpoints before it serves.
 *
 * On disk: struct log_row_phys, then records, each struct log_record_phys, header, data, all padded
 * to 8 bytes; the row is padded to whole blocks and does not wrap around the end of the ring.
 *
 * Owned by the engine thread. */
#ifndef HOLDFAST_LOG_LOG_H
#define HOLDFAST_LOG_LOG_H

#include "pool/pool.h"

enum {
    LOG_ROWS_IN_FLIGHT = 3,
    LOG_ROW_BYTES_MAX = 1 << 20,
    LOG_HEADER_BYTES_MAX = 32 << 10, /* of one record's header */
    LOG_COPIES_MAX = 4,
};
#define LOG_LATE_NS (1000 * (uint64_t)NS_PER_MS)
#define LOG_PATIENCE_NS (25 * (uint64_t)NS_PER_MS) /* three turns of a disk */

struct log_row_phys {
    struct header_phys header; /* length: bytes in use; seed: the superblock's log_seed */
    struct uuid pool;
    uint64_t generation;
    uint64_t lsn;
    uint64_t acknowledged; /* highest committed LSN when this row was closed */
    uint32_t blocks;
    uint32_t records;
};
_Static_assert(sizeof(struct log_row_phys) == 64, "on disk");

struct log_record_phys {
    uint16_t type;
    uint16_t header_bytes;
    uint32_t data_bytes;
};
_Static_assert(sizeof(struct log_record_phys) == 8, "on disk");

struct log;

/* One record on its way. The caller's memory until committed. */
struct log_entry {
    uint16_t type;
    const void *header;
    uint16_t header_bytes;
    const struct iovec *iov; /* data, copied when the row is closed */
    uint32_t iov_count;
    uint32_t data_bytes;
    bool patient; /* may wait for others that are expected (log_expect) */
    /* At the commit, in LSN order, from the loop; must not park. `row` holds the data at
     * data_offset (a reference is to be taken if it is kept). Not called on failure. */
    void (*apply)(struct log_entry *entry, struct buf *row, size_t data_offset);
    void *owner;
    /* private */
    struct list link;
    struct fiber *waiter;
    size_t data_offset;
    int result;
    bool done;
};

struct log_options {
    struct pool *pool;
    uint64_t generation; /* of this mount */
    uint64_t seed;
    uint64_t ring_heads[POOL_DISKS_MAX];  /* where each ring goes on (ring blocks) */
    void (*want_checkpoint)(void *owner); /* a ring is filling up */
    void *owner;
};

struct log *log_new(const struct log_options *options);
/* Parks until rows under way have ended (committed or failed). Fiber. */
void log_quiesce(struct log *log);
void log_free(struct log *log); /* log_quiesce() first; the pool may be gone by now */

/* Largest data_bytes of an entry with a header of `header_bytes`. */
uint32_t log_data_max(const struct log *log, uint32_t header_bytes);

/* Parks until the entry is committed (and applied): OK; or the log has failed: ERR_IO, ERR_QUORUM.
 * Fiber. */
HF_MUST_CHECK int log_append(struct log *log, struct log_entry *entry);
/* The same in two steps, for several entries at once. Their order is kept. */
void log_start(struct log *log, struct log_entry *entry);
/* So many patient entries more (or fewer) will come soon. On rotating disks the patient ones wait
 * for them, for LOG_PATIENCE_NS at most, unless an entry that is not patient comes first. */
void log_expect(struct log *log, int32_t change);
HF_MUST_CHECK int log_wait(struct log *log, struct log_entry *entry);

uint64_t log_committed_lsn(const struct log *log); /* all up to here is applied */
/* Rows below `lsn` are not needed any more: their space is free. */
void log_trim(struct log *log, uint64_t lsn);
/* Ring block of the oldest row ≥ lsn on each ring (or of the head): for the superblock. */
void log_tails(const struct log *log, uint64_t lsn, uint64_t *ret_tails);
uint32_t log_ring_used_pct(const struct log *log); /* of the fullest ring in use */

/* A member has joined; and: it holds no row that a replay needs, and none is on its way. */
void log_member_added(struct log *log, uint32_t member);
bool log_member_is_idle(const struct log *log, uint32_t member);

struct log_counters {
    uint64_t rows, bytes, entries, wraps, late_copies, failed_copies, waits_for_space;
    uint64_t slow_copies; /* that another ring was given a copy beside */
};
const struct log_counters *log_counters(const struct log *log);
/* A member was expelled (it may have been the last one that a row waited for), or the pool's
 * number of copies was raised: rows that are not committed yet get as many. */
void log_reconsider(struct log *log);

/* Everything appended later fails with `error`. The log does this by itself, too, when rows cannot
 * be made durable any more; the owner is told by want_checkpoint(). */
void log_fail(struct log *log, int error);
int log_error(const struct log *log); /* OK: it has not failed */
/* There will be no more checkpoints: whoever waits for room on the rings, now or later, gets
 * `error`. What has room goes on. */
void log_no_room(struct log *log, int error);

/* ---- replay ---- */

struct log_replay {
    struct pool *pool;
    uint64_t generation, start_lsn, acknowledged_lsn, seed;
    /* For each record, in order. May park. An error ends the replay. */
    int (*record)(void *ctx, uint16_t type, const void *header, uint16_t header_bytes,
                  struct buf *row, size_t data_offset, uint32_t data_bytes);
    void (*progress)(void *ctx, uint32_t percent); /* may be NULL */
    void *ctx;
    /* results */
    uint64_t rows, records, bytes;
    uint64_t end_lsn;      /* one past the last row replayed */
    uint64_t promised_lsn; /* highest LSN that some row or the superblock says was acknowledged */
    uint64_t ring_heads[POOL_DISKS_MAX];
    uint64_t bad_copies; /* rows found damaged on a ring although another ring had them */
};

/* What could be replayed was, but, ERR_DATA_LOSS: it ended below promised_lsn; ERR_TIMEOUT: so many
 * disks did not answer that acknowledged rows may be on them only. Fiber. */
HF_MUST_CHECK int log_replay(struct log_replay *replay);

/* Validates a row as read (fuzz target): header, checksum, records. */
HF_MUST_CHECK int log_row_validate(const void *bytes, size_t room_bytes, const struct uuid *pool,
                                   uint64_t seed);

#endif
