// SPDX-License-Identifier: MPL-2.0
/* What the worlds have met. The names are stable: `make check` asks that none that is marked 1 is
 * 0 over its range of seeds, so that a case which silently stops occurring is noticed. */
#ifndef HOLDFAST_SIM_STATS_H
#define HOLDFAST_SIM_STATS_H

#include <stdbool.h>
#include <stdint.h>

/*        name                     must occur   what it counts */
#define SIM_STATS(X)                                                                               \
    X(worlds, 1, "worlds run")                                                                     \
    X(worlds_cramped, 1, "… with small rows, full most of the time")                               \
    X(ops, 1, "volume requests answered")                                                          \
    X(ops_read, 1, "reads")                                                                        \
    X(ops_write, 1, "writes")                                                                      \
    X(ops_write_fua, 1, "writes with FUA")                                                         \
    X(ops_write_unaligned, 1, "writes that begin or end within a block")                           \
    X(ops_flush, 1, "flushes")                                                                     \
    X(ops_unmap, 1, "unmaps")                                                                      \
    X(ops_write_zeroes, 1, "write zeroes")                                                         \
    X(ops_compare_and_write, 1, "compare and writes that matched")                                 \
    X(ops_miscompare, 1, "compare and writes that did not match")                                  \
    X(ops_verify, 1, "verifies")                                                                   \
    X(ops_refused, 1, "requests out of range, refused as they must be")                            \
    X(crashes, 1, "power cuts")                                                                    \
    X(crash_serving, 1, "… while serving")                                                         \
    X(crash_checkpoint, 1, "… during a checkpoint")                                                \
    X(crash_import, 1, "… during an import")                                                       \
    X(crash_close, 1, "… during a close")                                                          \
    X(crash_volume_change, 1, "… while a volume was made, changed or deleted")                     \
    X(crash_config, 1, "… while a configuration record was written")                               \
    X(crash_create, 1, "… while the pool was created")                                             \
    X(crash_again, 1, "… with less than 200 I/O boundaries since the last one")                    \
    X(cut_checkpoint_merge, 1, "power cuts while a checkpoint wrote data and merged trees")        \
    X(cut_checkpoint_clean, 1, "… while the cleaner moved blocks")                                 \
    X(cut_checkpoint_map, 1, "… while the map was merged")                                         \
    X(cut_checkpoint_tables, 1, "… while the segment table was written")                           \
    X(cut_checkpoint_flush, 1, "… while the disks were flushed")                                   \
    X(cut_checkpoint_commit, 1, "… while the superblocks were written")                            \
    X(cut_checkpoint_release, 1, "… after them, while chunks were discarded")                      \
    X(checkpoints, 1, "checkpoints")                                                               \
    X(ring_wraps, 1, "log rings begun again from their start")                                     \
    X(log_waits_for_space, 1, "log rows that waited for a checkpoint to free a ring")              \
    X(trees_of_height_3, 1, "looks at an engine with a volume tree of three levels or more")       \
    X(trees_of_2_levels, 1, "looks at an engine with a delta run in a volume tree")                \
    X(replays, 1, "imports after a power cut")                                                     \
    X(imports_clean, 1, "imports after a close")                                                   \
    X(imports_exported, 1, "imports after an export")                                              \
    X(imports_disk_absent, 1, "imports with disks absent")                                         \
    X(imports_paths_shuffled, 1, "imports with the paths in another order")                        \
    X(refusals_quorum, 1, "imports refused because too little was there")                          \
    X(refusals_stale, 1, "imports refused because only stale disks were there")                    \
    X(volumes_created, 1, "volumes created")                                                       \
    X(volumes_deleted, 1, "volumes deleted")                                                       \
    X(volumes_resized, 1, "volumes resized")                                                       \
    X(reorders, 1, "volumes told to put their blocks in order")                                    \
    X(profiles_set, 1, "volumes told to take another profile")                                     \
    X(profiles_changed, 1, "… that have moved to it wholly")                                       \
    X(relocated_blocks, 1, "blocks moved by either")                                               \
    X(config_set, 1, "configuration records set")                                                  \
    X(config_deleted, 1, "configuration records deleted")                                          \
    X(out_of_space, 1, "requests that found no space")                                             \
    X(out_of_space_left, 1, "writes that found space again after a deletion or unmap")             \
    X(lost_when_full, 1, "disks expelled from pools that had no space to do without")              \
    X(degraded_segments, 0, "segments written degraded, for want of room elsewhere")               \
    X(crash_disk_change, 1, "power cuts while a disk was added, removed, replaced or kept")        \
    X(disks_added, 1, "disks added")                                                               \
    X(removals_begun, 1, "disks that began to leave")                                              \
    X(disks_removed, 1, "disks that were empty and left")                                          \
    X(disks_replaced, 1, "disks replaced")                                                         \
    X(disks_kept, 1, "removals ended before they were over")                                       \
    X(disks_returned, 1, "missing disks taken back")                                               \
    X(disks_set_back, 1, "… and old copies of such disks, which must not be")                      \
    X(spares_used, 1, "spares that took the place of a lost disk")                                 \
    X(columns_evacuated, 1, "columns of segments copied from leaving disks")                       \
    X(columns_rebuilt, 1, "columns of segments rebuilt on other disks")                            \
    X(segments_restriped, 1, "segments written again on the disks that are left")                  \
    X(rebuilds_finished, 1, "times that a pool was whole again")                                   \
    X(losses_after_rebuild, 1, "disks expelled after what others had held was rebuilt")            \
    X(reconstructions, 1, "blocks reconstructed")                                                  \
    X(reconstructions_one_lost, 1, "… in rows with one column lost")                               \
    X(reconstructions_two_lost, 1, "… in rows with two columns lost")                              \
    X(checksum_errors, 1, "checksum errors noticed")                                               \
    X(repairs, 1, "blocks repaired in place")                                                      \
    X(late_columns, 1, "I/Os past their deadline")                                                 \
    X(late_log_copies, 1, "copies of log rows that came late")                                     \
    X(failed_log_copies, 1, "copies of log rows that failed")                                      \
    X(degraded_writes, 1, "writes answered with a disk bad")                                       \
    X(disks_expelled, 1, "disks expelled")                                                         \
    X(cleaner_moved_blocks, 1, "blocks moved by the cleaner")                                      \
    X(cleaner_ahead_blocks, 1, "… ahead of need, while nobody asked for anything")                 \
    X(cleaner_freed_segments, 1, "segments freed by the cleaner")                                  \
    X(errors_beyond_redundancy, 1, "errors answered where the faults exceeded the profile")        \
    X(nodes_destroyed, 1, "nodes of a volume's tree destroyed beyond redundancy")                  \
    X(volumes_damaged, 1, "looks at an engine with a damaged volume")                              \
    X(volumes_broken, 0, "looks at an engine with a broken volume")                                \
    X(volumes_healed, 1, "damaged volumes that were merged again")                                 \
    X(reads_of_harmed, 1, "reads answered rightly by volumes that had seen more than they bear")   \
    X(harmed_volumes_deleted, 1, "volumes deleted that had seen more than their profile bears")    \
    X(swept_blocks, 1, "blocks of deleted, damaged volumes found by a sweep")                      \
    X(checks_clean, 1, "pools checked at rest and found clean")                                    \
    X(fault_latent_error, 1, "latent errors")                                                      \
    X(fault_bit_rot, 1, "bits flipped")                                                            \
    X(fault_lost_write, 1, "lost writes")                                                          \
    X(fault_misdirected_write, 1, "misdirected writes")                                            \
    X(fault_late_io, 1, "late I/Os")                                                               \
    X(fault_stall, 1, "stalls")                                                                    \
    X(fault_vanish, 1, "disks that vanished")                                                      \
    X(fault_return, 1, "disks that came back")                                                     \
    X(fault_read_error, 1, "read errors")                                                          \
    X(fault_write_error, 1, "write errors")                                                        \
    X(fault_flush_error, 1, "flush errors")                                                        \
    X(fault_flush_lie, 0, "flushes answered and not done (lying disks)")                           \
    X(fault_slow, 1, "disks that became slow")                                                     \
    X(worlds_slow, 1, "worlds in which nothing happens but a disk that becomes slow, or none")     \
    X(slow_none, 1, "… none, under as much load as it bears")                                      \
    X(slow_all, 1, "… all, equally")                                                               \
    X(slow_10_times, 1, "… one, ten times slower")                                                 \
    X(slow_100_times, 1, "… a hundred times")                                                      \
    X(slow_1_s, 1, "… answering after 1 s")                                                        \
    X(slow_5_s, 1, "… after 5 s")                                                                  \
    X(slow_30_s, 1, "… after 30 s")                                                                \
    X(slow_300_s, 1, "… after 300 s")                                                              \
    X(slow_never, 1, "… never")                                                                    \
    X(slow_for_a_moment, 1, "… for some seconds")                                                  \
    X(slow_errors_bare, 1, "… requests without redundancy that were answered with an error")       \
    X(slow_held, 0, "… that stayed, because data would be lost without it")                        \
    X(hedged, 1, "reads tried around a disk that was late")                                        \
    X(hedges_won, 1, "… that were answered sooner for it")                                         \
    X(detoured, 1, "reads that went around a suspect")                                             \
    X(slow_log_copies, 1, "log rows that got another copy, because one was slow")                  \
    X(late_rows, 1, "rows written elsewhere, because a column was late")                           \
    X(disks_suspected, 1, "disks that became suspects")                                            \
    X(suspects_cleared, 1, "suspects that were cleared")                                           \
    X(disks_expelled_slow, 1, "suspects that were expelled")                                       \
    X(scrubs, 1, "scrubs that came to their end")                                                  \
    X(scrub_repairs, 1, "blocks that scrubs put right")                                            \
    X(scrubs_proven, 1, "checks that found nothing after a scrub of pools that had been damaged")  \
    X(fault_torn_write, 1, "blocks torn by a power cut")                                           \
    X(fault_dropped_write, 1, "unflushed writes lost in a power cut")

enum sim_stat {
#define X(name, must, what) STAT_##name,
    SIM_STATS(X)
#undef X
        SIM_STAT_COUNT
};

struct sim_stats {
    uint64_t count[SIM_STAT_COUNT];
};

void stats_add(struct sim_stats *total, const struct sim_stats *part);
void stats_print(const struct sim_stats *stats);
/* Names each count that is 0 and must not be; false if there is one. */
bool stats_require(const struct sim_stats *stats);

#endif
