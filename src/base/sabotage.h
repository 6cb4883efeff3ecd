// SPDX-License-Identifier: MPL-2.0
/* Deliberate defects, to show that the simulator's oracle can fail. In the sabotage build one of
 * them may be switched on by name; everywhere else SABOTAGE(name) is the constant false. */
#ifndef HOLDFAST_BASE_SABOTAGE_H
#define HOLDFAST_BASE_SABOTAGE_H

#include <stdbool.h>

/* Those that begin with iscsi_ are for the protocol model (holdfast-sim --protocol).
 *
 *        name                     what it breaks */
#define HF_SABOTAGES(X)                                                                            \
    X(flush_omitted, "a checkpoint does not flush the disks before its superblock")                \
    X(ref_before_row, "a REF is logged before its row is durable")                                 \
    X(vba_reused, "a mount hands out the vbas of the one before it again")                         \
    X(super_before_rows, "the superblock is written before the rows it points to")                 \
    X(parity_swapped, "P and Q are written to each other's column")                                \
    X(checksum_unchecked, "a block read from disk is not verified")                                \
    X(chunk_freed_early, "a chunk is reused before the checkpoint that freed it commits")          \
    X(log_row_skipped, "replay leaves out every 16th log row")                                     \
    X(ack_one_copy_short, "a log row is acknowledged before its last copy is durable")             \
    X(unmap_forgotten, "the overlay forgets an unmap")                                             \
    X(ack_out_of_order, "a log row is acknowledged before the rows below it")                      \
    X(rmw_unlocked, "a write of part of a block takes no lock")                                    \
    X(free_twice, "a block that was overwritten twice between checkpoints is freed twice")         \
    X(ring_overrun, "the log does not look where its oldest needed row is")                        \
    X(cleaner_drops_block, "the cleaner leaves out the last live block of a run")                  \
    X(fault_half_done, "a merge that a lost node ends clears the live bits it had come to")        \
    X(rebuild_unverified, "what leaves a disk is written elsewhere as it was read")                \
    X(stale_returned, "a disk that was set back is taken back")                                    \
    X(old_chunk_early, "the chunk a column has left is given back before the commit")              \
    X(relocate_overtakes, "what a reordering has read replaces what was written since")            \
    X(pins_ignored, "a chunk is given back while somebody reads it")                               \
    X(witness_ignored, "an import does not ask the witness")                                       \
    X(admission_off, "writes are admitted whatever the space left")                                \
    X(detour_unverified, "what was computed because a disk is slow is not verified")               \
    X(peers_ignored, "a disk is slow by its own account, whatever its peers take")                 \
    X(scrub_skips_parity, "the scrub does not look at parity")                                     \
    X(scrub_skips_unread, "the scrub leaves a column alone that does not come as a whole")         \
    X(reserve_sold, "no chunks are kept for nodes and metadata of checkpoints that free")          \
    X(iscsi_window_stuck, "a command that was aborted keeps its place in the window")              \
    X(iscsi_answer_after_reset, "data of a command are sent behind the answer to its abort")       \
    X(iscsi_data_order_unchecked, "the numbers of Data-Out PDUs are not looked at")                \
    X(iscsi_dropped_overtaken, "a write does not wait for an aborted one that it overlaps")        \
    X(iscsi_secret_unchecked, "whatever an initiator answers to its challenge is right")

#ifdef HOLDFAST_SABOTAGE
enum sabotage {
    SABOTAGE_NONE,
#define X(name, what) SABOTAGE_##name,
    HF_SABOTAGES(X)
#undef X
};
extern enum sabotage sabotage_on; /* set once at start, before any thread */
#define SABOTAGE(name) (sabotage_on == SABOTAGE_##name)
#else
#define SABOTAGE(name) false
#endif

#endif
