// SPDX-License-Identifier: MPL-2.0
/* Breaking disks, exactly as much as the pool must bear.
 *
 * The budget. A disk is *bad* while anything about it cannot be relied on: the engine has given it
 * up, and has not said since that it has rebuilt what was on it (*lost*), it is gone or hangs, a
 * block of it is not what was written last and has not been rewritten or healed, a fault is armed
 * on it, or it has had one that may have made the engine give it up and we have not yet seen
 * whether it did (*suspect*). At most `tolerance` disks are bad at once: what the strongest volume
 * tolerates, and never less than one where there are two disks, because the pool's own metadata has
 * that many copies more. Faults on a disk that is bad already cost nothing. A volume whose profile
 * tolerates fewer is *harmed*, from then on until it is deleted: it may answer errors, but never
 * wrong data.
 *
 * So the engine must neither fail a request of a volume that is not harmed, nor give up a disk that
 * we have not touched. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "world.h"

/* When a fault has had all its consequences: the disk layer's deadline and the engine's reaction.
 */
static const uint64_t CONSEQUENCE_NS = 45 * NS_PER_S;

/* Few pools lose a disk when the others could not hold all volumes in full protection: in cramped
 * worlds only. Such a pool has no space for anything new; but it must take deletions, and all that
 * it has acknowledged, and it must be possible to import it. */
static const double SPACE_LEFT = 0.9;

enum { ROT_ROUNDS = 40 };

static bool may_be_lost(struct world *w, uint32_t bad) {
    return w->cramped || workload_space_need_without(w, bad) < SPACE_LEFT;
}

static bool is_armed(const struct sim_disk *disk) {
    static const enum sim_fault kinds[] = {SIM_FAULT_LOST,        SIM_FAULT_MISDIRECTED,
                                           SIM_FAULT_LATE,        SIM_FAULT_READ_ERROR,
                                           SIM_FAULT_WRITE_ERROR, SIM_FAULT_FLUSH_ERROR};
    for (uint32_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (sim_disk_is_armed(disk, kinds[i])) {
            return true;
        }
    }
    return false;
}

uint32_t faults_bad(struct world *w) {
    uint32_t bad = w->lost | w->suspect;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        const struct sim_disk *disk = w->disks[i];
        if ((w->missing >> i & 1) != 0) {
            continue; /* whatever it does now, nothing depends on it */
        }
        if (sim_disk_is_gone(disk) || sim_disk_is_stalled(disk) || sim_disk_is_slow(disk) ||
            sim_disk_faulty_blocks(disk) > 0 || is_armed(disk)) {
            bad |= 1u << i;
        }
    }
    return bad;
}

/* Also volumes that were just deleted: requests to them may be on their way. */
static void harm(struct world *w, uint32_t bad) {
    for (uint32_t i = 0; i < WORLD_VOLUMES_MAX; i++) {
        struct world_volume *v = &w->volumes[i];
        bool created_degraded = v->created_bad != 0 && (bad & ~v->created_bad) != 0;
        bool too_many = (uint32_t)__builtin_popcount(bad) > world_volume_losses(v);
        v->harmed |= created_degraded || too_many;
    }
}

static bool within_budget(struct world *w, uint32_t bad) {
    uint32_t left = w->disk_count - (uint32_t)__builtin_popcount((w->missing | w->idle) & ~w->lost);
    left = MAX(left, 1u);
    return (uint32_t)__builtin_popcount(bad) <= MIN(w->tolerance, left - 1);
}

/* A disk that may be broken (further), or -1. Bad ones are preferred half the time: several faults
 * on one disk. */
static int victim_among(struct world *w, uint32_t disks) {
    uint32_t bad = faults_bad(w);
    uint32_t from = (uint32_t)rng_below(&w->rng, w->disk_count);
    for (uint32_t i = 0; i < w->disk_count; i++) {
        uint32_t at = (from + i) % w->disk_count;
        uint32_t then = bad | 1u << at;
        if ((disks & ~(w->missing & ~w->lost)) >> at & 1 && within_budget(w, then) &&
            !sim_disk_is_gone(w->disks[at]) && may_be_lost(w, then)) {
            return (int)at;
        }
    }
    return -1;
}

static int victim(struct world *w) {
    return victim_among(w, UINT32_MAX);
}

/* ---- one fault ---- */

static void touch_blocks(struct world *w, struct sim_disk *disk, bool latent) {
    uint32_t count = (uint32_t)rng_between(&w->rng, 1, rng_chance(&w->rng, 1, 2) ? 6 : 60);
    uint64_t size_bytes = sim_disk_size_bytes(disk);
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!sim_disk_find_written(disk, rng_below(&w->rng, size_bytes), &at)) {
            return;
        }
        if (latent) {
            (void)sim_disk_make_latent(disk, at);
        } else {
            (void)sim_disk_rot(disk, at, (uint32_t)rng_next(&w->rng));
        }
    }
}

bool faults_rot(struct world *w) {
    uint32_t index = (uint32_t)rng_below(&w->slow_rng, w->disk_count), touched = 0;
    for (uint32_t i = 0; i < w->disk_count && (w->missing >> index & 1) != 0; i++) {
        index = (index + 1) % w->disk_count;
    }
    if (faults_bad(w) != 0 || (w->missing >> index & 1) != 0 || !within_budget(w, 1u << index)) {
        return false;
    }
    struct sim_disk *disk = w->disks[index];
    uint64_t start = layout_chunk_start(&w->geometry) * BLOCK_BYTES, at = 0;
    uint64_t end = start + (sim_disk_size_bytes(disk) - start) / 2;
    w->excused |= 1u << index;
    for (int i = 0; i < 200; i++) { /* of what is in chunks: labels and superblocks are no rows */
        if (sim_disk_find_written(disk, start + rng_below(&w->slow_rng, end - start), &at) &&
            at >= start && at < end) {
            touched +=
                i % 2 == 0 ? sim_disk_rot(disk, at, (uint32_t)i) : sim_disk_make_latent(disk, at);
        }
    }
    harm(w, faults_bad(w));
    return touched > 0;
}

static void arm(struct world *w, struct sim_disk *disk, enum sim_fault fault) {
    uint64_t late_ns = rng_between(&w->rng, 500, 20000) * NS_PER_MS;
    sim_disk_arm(disk, fault, (uint32_t)rng_below(&w->rng, 20),
                 (uint32_t)rng_between(&w->rng, 1, 3), late_ns);
}

static void disk_breaks(struct world *w, uint32_t index) {
    static const enum sim_fault kinds[] = {
        SIM_FAULT_LATENT,      SIM_FAULT_LATENT,      SIM_FAULT_LATENT, SIM_FAULT_ROT,
        SIM_FAULT_ROT,         SIM_FAULT_ROT,         SIM_FAULT_LOST,   SIM_FAULT_LOST,
        SIM_FAULT_MISDIRECTED, SIM_FAULT_MISDIRECTED, SIM_FAULT_LATE,   SIM_FAULT_READ_ERROR,
        SIM_FAULT_WRITE_ERROR, SIM_FAULT_FLUSH_ERROR, SIM_FAULT_STALL,  SIM_FAULT_VANISH,
    };
    struct sim_disk *disk = w->disks[index];
    enum sim_fault fault = kinds[rng_below(&w->rng, ARRAY_COUNT(kinds))];
    uint64_t now_ns = env_now_ns(w->env);
    env_sim_note(w->env, fault, "fault: %s on disk %u", sim_fault_name(fault), index);
    w->excused |= 1u << index;
    w->suspect |= 1u << index;
    w->suspect_until_ns[index] = now_ns + CONSEQUENCE_NS;
    switch (fault) {
    case SIM_FAULT_LATENT:
    case SIM_FAULT_ROT:
        touch_blocks(w, disk, fault == SIM_FAULT_LATENT);
        break;
    case SIM_FAULT_STALL:
        sim_disk_stall(disk, rng_chance(&w->rng, 1, 4)
                                 ? UINT64_MAX
                                 : now_ns + rng_between(&w->rng, 100, 30000) * NS_PER_MS);
        break;
    case SIM_FAULT_VANISH:
        sim_disk_vanish(disk, rng_chance(&w->rng, 1, 2));
        break;
    default:
        arm(w, disk, fault);
        break;
    }
    harm(w, faults_bad(w));
}

/* A disk that has nothing to be compared with is slow for as long as it likes. */
static bool has_peer(struct world *w, uint32_t index) {
    uint32_t like = 0, mine = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        bool counts = i != index && (faults_bad(w) >> i & 1) == 0;
        like += counts && sim_disk_rotates(w->disks[i]);
        mine += counts;
    }
    return sim_disk_rotates(w->disks[index]) ? like > 0 : mine > 0;
}

/* Not by seconds that are less than the deadline: a disk that the pool cannot do without would stay
 * so for good, and each row of a long write would take as long. */
void faults_slow(struct world *w) {
    static const uint32_t factors[] = {3, 10, 30};
    static const uint32_t delays_ms[] = {100, 300, 5000, 30000, 300000};
    faults_poll(w);
    uint32_t from = (uint32_t)rng_below(&w->slow_rng, w->disk_count);
    for (uint32_t i = 0; i < w->disk_count; i++) {
        if (sim_disk_is_slow(w->disks[i])) {
            sim_disk_slow(w->disks[i], 1, 0);
            w->suspect_until_ns[i] = env_now_ns(w->env) + CONSEQUENCE_NS;
            return;
        }
    }
    for (uint32_t i = 0; i < w->disk_count; i++) {
        uint32_t at = (from + i) % w->disk_count, then = faults_bad(w) | 1u << at;
        if (!within_budget(w, then) || sim_disk_is_gone(w->disks[at]) || !may_be_lost(w, then) ||
            !has_peer(w, at)) {
            continue;
        }
        env_sim_note(w->env, SIM_FAULT_SLOW, "fault: slow on disk %u", at);
        w->excused |= 1u << at;
        w->suspect |= 1u << at;
        w->suspect_until_ns[at] = env_now_ns(w->env) + CONSEQUENCE_NS;
        if (rng_chance(&w->slow_rng, 1, 2)) {
            sim_disk_slow(w->disks[at], factors[rng_below(&w->slow_rng, ARRAY_COUNT(factors))], 0);
        } else {
            sim_disk_slow(w->disks[at], 1,
                          delays_ms[rng_below(&w->slow_rng, ARRAY_COUNT(delays_ms))] *
                              (uint64_t)NS_PER_MS);
        }
        harm(w, faults_bad(w));
        return;
    }
}

static void disk_recovers(struct world *w, uint32_t index) {
    struct sim_disk *disk = w->disks[index];
    if (sim_disk_is_gone(disk)) {
        moves_returns(w, index);
        sim_disk_return(disk);
    } else if (sim_disk_is_stalled(disk)) {
        sim_disk_stall(disk, 0);
    } else {
        sim_disk_heal(disk);
    }
    w->suspect_until_ns[index] = env_now_ns(w->env) + CONSEQUENCE_NS;
}

void faults_event(struct world *w) {
    faults_poll(w);
    uint32_t bad = faults_bad(w);
    if (bad != 0 && rng_chance(&w->rng, 1, 3)) {
        uint32_t index = (uint32_t)rng_below(&w->rng, w->disk_count);
        if ((bad >> index & 1) != 0) {
            disk_recovers(w, index);
        }
        return;
    }
    int index = victim(w);
    if (index >= 0) {
        disk_breaks(w, (uint32_t)index);
    }
}

void faults_rot_other(struct world *w, uint32_t except) {
    int index = w->faults ? victim_among(w, ~(1u << except)) : -1;
    if (index < 0) {
        return;
    }
    w->excused |= 1u << index;
    w->suspect |= 1u << index;
    w->suspect_until_ns[index] = env_now_ns(w->env) + CONSEQUENCE_NS;
    for (int i = 0; i < ROT_ROUNDS; i++) {
        touch_blocks(w, w->disks[index], false);
    }
    harm(w, faults_bad(w));
}

bool faults_lose(struct world *w, uint32_t index) {
    if (!w->faults || victim_among(w, 1u << index) != (int)index) {
        return false;
    }
    w->excused |= 1u << index;
    w->suspect |= 1u << index;
    w->suspect_until_ns[index] = env_now_ns(w->env) + CONSEQUENCE_NS;
    sim_disk_vanish(w->disks[index], true);
    harm(w, faults_bad(w));
    return true;
}

uint32_t faults_absent(struct world *w) {
    /* The disk that was the last to answer before the power went, while others were still writing:
     * if it is lost now, what was acknowledged must be on another. */
    uint32_t ahead = w->ahead_at_cut;
    w->ahead_at_cut = 0;
    if (!w->faults || !rng_chance(&w->rng, 1, ahead != 0 ? 3 : 12)) {
        return 0;
    }
    int index = ahead != 0 ? victim_among(w, ahead) : victim(w);
    if (index < 0) {
        return 0;
    }
    uint32_t absent = 1u << index;
    int other = victim(w);
    if (other >= 0 && rng_chance(&w->rng, 1, 2) &&
        within_budget(w, faults_bad(w) | absent | 1u << other) &&
        may_be_lost(w, faults_bad(w) | absent | 1u << other)) {
        absent |= 1u << other;
    }
    w->excused |= absent;
    w->suspect |= absent;
    harm(w, faults_bad(w));
    return absent;
}

void faults_end(struct world *w) {
    static const enum sim_fault kinds[] = {SIM_FAULT_LOST,        SIM_FAULT_MISDIRECTED,
                                           SIM_FAULT_LATE,        SIM_FAULT_READ_ERROR,
                                           SIM_FAULT_WRITE_ERROR, SIM_FAULT_FLUSH_ERROR};
    for (uint32_t i = 0; i < w->disk_count; i++) {
        for (uint32_t k = 0; k < ARRAY_COUNT(kinds); k++) {
            sim_disk_arm(w->disks[i], kinds[k], 0, 0, 0);
        }
        sim_disk_return(w->disks[i]);
        sim_disk_stall(w->disks[i], 0);
        sim_disk_slow(w->disks[i], 1, 0);
        sim_disk_heal(w->disks[i]);
    }
}

/* ---- what the engine says ---- */

static void judge_lost(struct world *w, uint32_t index, const struct engine_disk_status *d) {
    uint32_t bit = 1u << index;
    w->missing |= bit;
    w->lost |= bit;
    w->given_up_ns[index] = env_now_ns(w->env);
    world_count(w, STAT_disks_expelled, 1);
    world_count(w, STAT_losses_after_rebuild, w->missing != w->lost);
    world_count(w, STAT_lost_when_full, workload_space_need_without(w, 0) > SPACE_LEFT);
    env_sim_note(w->env, index, "disk %u given up: %s", index, d->why);
    if (((w->excused | w->asked_to_leave) & bit) == 0) {
        world_fail(w, "disk %u (member %u) was given up without a reason: %s", index, d->member,
                   d->why);
    }
}

static void judge_members(struct world *w) {
    for (uint32_t i = 0; i < w->status.disk_count; i++) {
        const struct engine_disk_status *d = &w->status.disks[i];
        uint32_t index;
        if (!moves_member(w, d, &index)) {
            continue;
        }
        uint32_t bit = 1u << index;
        bool was_missing = (w->missing & bit) != 0;
        if (d->state == MEMBER_MISSING && !was_missing) {
            judge_lost(w, index, d);
        } else if (d->state == MEMBER_IN_SYNC && was_missing) {
            moves_came(w, index, d);
        } else if (d->state == MEMBER_IN_SYNC && env_now_ns(w->env) > w->suspect_until_ns[index] &&
                   d->counters.late_bytes == 0) {
            w->suspect &= ~bit;
        }
        moves_role(w, index, d);
    }
    if (w->status.rebuild.whole && w->lost != 0) {
        env_sim_note(w->env, w->lost, "what was on disks %x is rebuilt", w->lost);
        w->lost = 0;
    }
}

static uint64_t timeouts_of(const struct engine_status *status) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < status->disk_count; i++) {
        sum += status->disks[i].counters.errors[DISK_ERROR_TIMEOUT];
    }
    return sum;
}

static void count_progress(struct world *w) {
    const struct engine_status *now = &w->status;
    struct world_counted *last = &w->counted;
    struct engine_counters more, *old = &last->more;
    engine_counters(w->engine, &more);
    world_count(w, STAT_checkpoints, now->checkpoints - last->checkpoints);
    world_count(w, STAT_reconstructions, now->reconstructions - last->reconstructions);
    world_count(w, STAT_checksum_errors, now->checksum_errors - last->checksum_errors);
    world_count(w, STAT_repairs, now->repairs - last->repairs);
    world_count(w, STAT_late_columns, timeouts_of(now) - last->timeouts);
    world_count(w, STAT_ring_wraps, more.ring_wraps - old->ring_wraps);
    world_count(w, STAT_log_waits_for_space, more.log_waits_for_space - old->log_waits_for_space);
    world_count(w, STAT_late_log_copies, more.late_log_copies - old->late_log_copies);
    world_count(w, STAT_failed_log_copies, more.failed_log_copies - old->failed_log_copies);
    world_count(w, STAT_reconstructions_one_lost, more.reconstructed_one - old->reconstructed_one);
    world_count(w, STAT_reconstructions_two_lost, more.reconstructed_two - old->reconstructed_two);
    world_count(w, STAT_cleaner_moved_blocks,
                more.cleaner_moved_blocks - old->cleaner_moved_blocks);
    world_count(w, STAT_cleaner_ahead_blocks,
                more.cleaner_ahead_blocks - old->cleaner_ahead_blocks);
    world_count(w, STAT_cleaner_freed_segments,
                more.cleaner_freed_segments - old->cleaner_freed_segments);
    world_count(w, STAT_relocated_blocks, more.relocated_blocks - old->relocated_blocks);
    world_count(w, STAT_profiles_changed, more.profiles_changed - old->profiles_changed);
    world_count(w, STAT_degraded_segments, more.degraded_segments - old->degraded_segments);
    world_count(w, STAT_columns_rebuilt, more.columns_rebuilt - old->columns_rebuilt);
    world_count(w, STAT_segments_restriped, more.segments_restriped - old->segments_restriped);
    world_count(w, STAT_columns_evacuated, more.columns_evacuated - old->columns_evacuated);
    world_count(w, STAT_rebuilds_finished, more.rebuilds_finished - old->rebuilds_finished);
    world_count(w, STAT_trees_of_height_3, more.tree_height >= 3);
    world_count(w, STAT_trees_of_2_levels, more.tree_levels >= 2);
    world_count(w, STAT_volumes_damaged, more.volumes_damaged > 0);
    world_count(w, STAT_volumes_broken, more.volumes_broken > 0);
    world_count(w, STAT_volumes_healed, more.volumes_healed - old->volumes_healed);
    world_count(w, STAT_swept_blocks, more.swept_blocks - old->swept_blocks);
    world_count(w, STAT_hedged, more.hedged - old->hedged);
    world_count(w, STAT_hedges_won, more.hedges_won - old->hedges_won);
    world_count(w, STAT_detoured, more.detoured - old->detoured);
    world_count(w, STAT_slow_log_copies, more.slow_log_copies - old->slow_log_copies);
    world_count(w, STAT_late_rows, more.late_rows - old->late_rows);
    world_count(w, STAT_disks_suspected, more.disks_suspected - old->disks_suspected);
    world_count(w, STAT_suspects_cleared, more.suspects_cleared - old->suspects_cleared);
    world_count(w, STAT_disks_expelled_slow, more.disks_expelled_slow - old->disks_expelled_slow);
    struct engine_scrub_status *scrub = MEM_NEW(struct engine_scrub_status);
    engine_scrub_status(w->engine, scrub);
    bool ended = scrub->complete && scrub->ended_wall_ns != last->scrub_ended_ns;
    uint64_t scrub_ended_ns = ended ? scrub->ended_wall_ns : last->scrub_ended_ns;
    uint64_t scrub_repaired = scrub->repaired;
    world_count(w, STAT_scrubs, ended);
    world_count(w, STAT_scrub_repairs,
                scrub_repaired > last->scrub_repaired ? scrub_repaired - last->scrub_repaired : 0);
    mem_free(scrub);
    *last = (struct world_counted){.checkpoints = now->checkpoints,
                                   .reconstructions = now->reconstructions,
                                   .checksum_errors = now->checksum_errors,
                                   .repairs = now->repairs,
                                   .timeouts = timeouts_of(now),
                                   .scrub_ended_ns = scrub_ended_ns,
                                   .scrub_repaired = scrub_repaired,
                                   .more = more};
}

void faults_poll(struct world *w) {
    if (w->engine == NULL) {
        return;
    }
    struct mem_scope *outer = mem_scope_enter(&w->scope);
    engine_status(w->engine, &w->status);
    mem_scope_enter(outer);
    count_progress(w);
    judge_members(w);
    moves_poll(w);
    harm(w, faults_bad(w));
    ruin_judge(w);
}

void faults_count(struct world *w) {
    static const struct {
        enum sim_stat stat;
        enum sim_fault fault;
    } map[] = {
        {STAT_fault_latent_error, SIM_FAULT_LATENT},
        {STAT_fault_bit_rot, SIM_FAULT_ROT},
        {STAT_fault_lost_write, SIM_FAULT_LOST},
        {STAT_fault_misdirected_write, SIM_FAULT_MISDIRECTED},
        {STAT_fault_late_io, SIM_FAULT_LATE},
        {STAT_fault_stall, SIM_FAULT_STALL},
        {STAT_fault_slow, SIM_FAULT_SLOW},
        {STAT_fault_vanish, SIM_FAULT_VANISH},
        {STAT_fault_return, SIM_FAULT_RETURN},
        {STAT_fault_read_error, SIM_FAULT_READ_ERROR},
        {STAT_fault_write_error, SIM_FAULT_WRITE_ERROR},
        {STAT_fault_flush_error, SIM_FAULT_FLUSH_ERROR},
        {STAT_fault_flush_lie, SIM_FAULT_LIE},
        {STAT_fault_torn_write, SIM_FAULT_TORN},
        {STAT_fault_dropped_write, SIM_FAULT_DROPPED},
    };
    for (uint32_t i = 0; i < w->disk_count; i++) {
        for (uint32_t k = 0; k < ARRAY_COUNT(map); k++) {
            world_count(w, map[k].stat, sim_disk_fault_count(w->disks[i], map[k].fault));
        }
    }
}
