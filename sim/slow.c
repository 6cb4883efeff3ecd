// SPDX-License-Identifier: MPL-2.0
/* Worlds in which nothing happens but that a disk becomes slow, or that none does.
 *
 * A pool of disks that are alike (or, in some worlds, are not) is loaded: first as much as it
 * bears, for a few seconds, which tells what that is; then at half of it, or, in worlds without a
 * fault, as much as it bears to the end. At some moment a disk becomes slow: ten or a hundred
 * times, or it answers after 1, 5, 30 or 300 s, or never, or it is slow for a few seconds only; or
 * all of them are slow alike; or none is. Then this must hold:
 *
 * - From two seconds after that on no request takes more than five seconds. Requests of a volume
 *   without redundancy may fail within these, those of others may not.
 * - The disk is expelled within 30 s. Where a volume without redundancy has data on it, it may
 * stay, and is shown as a suspect.
 * - No other disk is ever expelled, and none that is slow like all others, or for seconds only: one
 *   that is well again is no suspect any more in the end. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "world.h"

enum {
    LOAD_DEPTH = WORLD_DEPTH_MAX,
    MEASURE_S = 4,
    RATE_MOST = 400,   /* requests a second: flash could take so many that no seed would ever end */
    HEAVY_OPS = 24000, /* of a world; enough for rotating disks, and a second of flash */
    AFTER_S = 36,
    EXPELLED_S = 30,
    ROTTEN_BLOCKS = 400,
    SLOW_VOLUME_BYTES = 24 << 20,
};
#define ANSWER_NS (5 * NS_PER_S)
#define GRACE_NS (2 * NS_PER_S)

static const struct {
    const char *name;
    enum sim_stat stat;
    uint32_t factor;
    uint64_t delay_ms;
    bool never, all, passes; /* passes: well again after a few seconds */
} kinds[] = {
    {"none", STAT_slow_none, 1, 0, false, false, false},
    {"none", STAT_slow_none, 1, 0, false, false, false},
    {"all alike", STAT_slow_all, 4, 0, false, true, false},
    {"10 times", STAT_slow_10_times, 10, 0, false, false, false},
    {"100 times", STAT_slow_100_times, 100, 0, false, false, false},
    {"1 s", STAT_slow_1_s, 1, 1000, false, false, false},
    {"5 s", STAT_slow_5_s, 1, 5000, false, false, false},
    {"30 s", STAT_slow_30_s, 1, 30000, false, false, false},
    {"300 s", STAT_slow_300_s, 1, 300000, false, false, false},
    {"never", STAT_slow_never, 1, 0, true, false, false},
    {"for a moment", STAT_slow_for_a_moment, 6, 0, false, false, true},
};

struct slow_world {
    struct world *w;
    struct rng rng;
    uint32_t kind, victim;
    bool alike, heavy, bare; /* bare: there is a volume without redundancy */
    uint32_t read_pct;
    uint64_t window_bytes;
    uint64_t heavy_ops; /* what is left of them */
    bool rot;           /* another disk holds wrong content: the volume bears two losses */
};

static uint32_t kind_of(uint64_t seed) {
    struct rng rng;
    rng_init(&rng, seed ^ 0x6b696e64u);
    return (uint32_t)rng_below(&rng, ARRAY_COUNT(kinds));
}

static bool is_fault(uint32_t kind) {
    return kinds[kind].stat != STAT_slow_none && !kinds[kind].all;
}

/* Drawn apart, so that it changes nothing for the others. */
bool slow_seed(uint64_t seed) {
    struct rng rng;
    rng_init(&rng, seed ^ 0x736c6f77u);
    return rng_chance(&rng, 1, 12);
}

void slow_draw(struct world *w) {
    static const char *const models[] = {"hdd", "ssd", "nvme", "nvme-plp", "hdd-large"};
    struct rng rng;
    rng_init(&rng, w->options.seed ^ 0x64697363u);
    w->geometry = (struct geometry){
        .chunk_blocks = 256, .ring_blocks = 1024, .row_blocks = 32, .node_blocks = 1};
    w->limits = (struct engine_limits){.read_cache_bytes = 256 << 10,
                                       .node_cache_bytes = 256 << 10,
                                       .dirty_bytes = 8 << 20,
                                       .checkpoint_ms = 5000,
                                       .requests = 64,
                                       .disk_deadline_ns = 5 * NS_PER_S};
    w->disk_count = (uint32_t)rng_between(&rng, 5, 8);
    w->slow_alike = rng_chance(&rng, 3, 4);
    const char *model = models[rng_below(&rng, ARRAY_COUNT(models))];
    if (!is_fault(kind_of(w->options.seed)) && rng_chance(&rng, 3, 4)) {
        model = rng_chance(&rng, 1, 2) ? "hdd" : "hdd-large"; /* heavy load that lasts */
        w->slow_alike = true;
    }
    for (uint32_t i = 0; i < w->disk_count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "slot%u", i);
        struct sim_disk_options options = {
            .model = w->slow_alike ? model : models[rng_below(&rng, ARRAY_COUNT(models))],
            .path = path,
            .size_bytes = 96 << 20,
            .scale = 256,
            .cache_off = rng_chance(&rng, 1, 2)};
        ASSERT_EQ(env_sim_disk_add(w->env, &options, &w->disks[i], NULL), OK);
    }
}

/* ---- load ---- */

static bool has_room(void *ctx) {
    return ((struct world *)ctx)->in_flight < LOAD_DEPTH;
}

static bool fill(struct slow_world *s, struct world_volume *v) {
    struct world *w = s->w;
    for (uint64_t at = 0; at < v->size_bytes && world_goes_on(w); at += 256 << 10) {
        workload_submit(w, v, OP_WRITE, at, 256 << 10);
        if (!world_wait(w, has_room, w, env_now_ns(w->env) + 60 * NS_PER_S, false)) {
            return false;
        }
    }
    return world_drain(w);
}

static void submit_one(struct slow_world *s) {
    struct world *w = s->w;
    struct world_volume *v = &w->volumes[s->bare && rng_chance(&s->rng, 1, 8)];
    bool read = rng_below(&s->rng, 100) < s->read_pct;
    uint64_t length = rng_chance(&s->rng, 1, 16) ? 64 << 10 : 4096;
    uint64_t at = rng_below(&s->rng, (s->window_bytes - length) / 4096) * 4096;
    workload_submit(w, v, read ? OP_READ : OP_WRITE, at, length);
}

/* So many requests a second, until then; 0: as many as it bears, as long as a seed bears it. */
static bool load(struct slow_world *s, uint64_t until_ns, uint64_t rate) {
    struct world *w = s->w;
    uint64_t at = env_now_ns(w->env);
    while (world_goes_on(w) && env_now_ns(w->env) < until_ns && (rate > 0 || s->heavy_ops > 0)) {
        s->heavy_ops -= rate == 0;
        if (rate > 0) { /* arrivals do not wait for answers, as long as the hosts' queues last */
            at += 2 * rng_below(&s->rng, NS_PER_S / rate);
            if (!world_wait(w, NULL, NULL, MAX(at, env_now_ns(w->env)), true)) {
                return false;
            }
        } else if (!world_wait(w, has_room, w, env_now_ns(w->env) + 60 * NS_PER_S, false)) {
            return false;
        }
        if (has_room(w)) {
            submit_one(s);
        }
    }
    return world_goes_on(w);
}

/* ---- what must hold ---- */

void slow_judge(struct world *w, const struct world_volume *v, uint64_t started_ns, int status) {
    uint64_t took = env_now_ns(w->env) - started_ns;
    bool counts = w->slow_at_ns != 0 && started_ns >= w->slow_at_ns + GRACE_NS;
    if (counts && took > ANSWER_NS) {
        world_fail(w, "a request of %s (%s) took %.3f s, sent %.3f s after a disk became slow",
                   v->name, profile_name(v->profile), (double)took / 1e9,
                   (double)(started_ns - w->slow_at_ns) / 1e9);
    }
    if (counts && status != OK && profile_losses(v->profile) == 0) {
        world_count(w, STAT_slow_errors_bare, 1);
    }
}

static const struct engine_disk_status *status_of(const struct world *w, uint32_t index) {
    for (uint32_t i = 0; i < w->status.disk_count; i++) {
        if (w->member_disk[w->status.disks[i].member] == index) {
            return &w->status.disks[i];
        }
    }
    return NULL;
}

static void judge_end(struct slow_world *s) {
    struct world *w = s->w;
    const struct engine_disk_status *d = status_of(w, s->victim);
    bool gone = d->state == MEMBER_MISSING;
    if (!is_fault(s->kind) || kinds[s->kind].passes) {
        for (uint32_t i = 0; i < w->status.disk_count; i++) {
            if (w->status.disks[i].state == MEMBER_MISSING) {
                world_fail(w, "disk %u was expelled (%s): slow %s", i, w->status.disks[i].why,
                           kinds[s->kind].name);
            } else if (w->status.disks[i].slow.suspect && kinds[s->kind].passes) {
                world_fail(w, "disk %u is still a suspect: %s", i, w->status.disks[i].slow.why);
            }
        }
        return;
    }
    /* Ten times a flash disk's time is still very little: it takes some reads to see it. */
    bool shows = s->alike && (kinds[s->kind].factor != 10 || s->window_bytes == SLOW_VOLUME_BYTES);
    if (shows && !gone && !(s->bare && d->slow.suspect)) {
        world_fail(w, "disk %u (slow %s) was not expelled within %u s%s", s->victim,
                   kinds[s->kind].name, AFTER_S, d->slow.suspect ? ", though a suspect" : "");
    }
    world_count(w, STAT_slow_held, s->bare && d->slow.suspect && d->slow.held);
}

/* What is computed because a disk is slow must be verified: a peer may lie. */
static void begin_rot(struct slow_world *s) {
    struct sim_disk *disk = s->w->disks[(s->victim + 1) % s->w->disk_count];
    uint64_t at = 0;
    for (int i = 0; i < ROTTEN_BLOCKS; i++) {
        if (sim_disk_find_written(disk, rng_below(&s->rng, sim_disk_size_bytes(disk)), &at)) {
            (void)sim_disk_rot(disk, at, (uint32_t)rng_next(&s->rng));
        }
    }
}

static void begin_fault(struct slow_world *s) {
    struct world *w = s->w;
    uint32_t bit = 1u << s->victim;
    world_count(w, kinds[s->kind].stat, 1);
    env_sim_note(w->env, s->kind, "slow: %s, disk %u", kinds[s->kind].name, s->victim);
    for (uint32_t i = 0; i < w->disk_count && kinds[s->kind].all; i++) {
        sim_disk_slow(w->disks[i], kinds[s->kind].factor, 0);
    }
    if (!is_fault(s->kind)) {
        return;
    }
    if (kinds[s->kind].never) {
        sim_disk_stall(w->disks[s->victim], UINT64_MAX);
    } else {
        sim_disk_slow(w->disks[s->victim], kinds[s->kind].factor,
                      kinds[s->kind].delay_ms * NS_PER_MS);
    }
    w->slow_at_ns = env_now_ns(w->env);
    if (s->rot) {
        begin_rot(s);
    }
    w->excused |= kinds[s->kind].passes ? 0 : bit;
    w->suspect |= bit;
    w->suspect_until_ns[s->victim] = UINT64_MAX;
}

static bool run_fault(struct slow_world *s, uint64_t rate) {
    struct world *w = s->w;
    uint64_t began = env_now_ns(w->env), well_at = began + rng_between(&s->rng, 2, 5) * NS_PER_S;
    uint64_t end = began + AFTER_S * NS_PER_S, gone_at = 0;
    bool passing = kinds[s->kind].passes;
    while (env_now_ns(w->env) < end && world_goes_on(w)) {
        uint64_t now = env_now_ns(w->env);
        if (!load(s, now + NS_PER_S / 2, s->heavy ? 0 : rate)) {
            return false;
        }
        if (s->heavy && s->heavy_ops == 0) {
            break;
        }
        faults_poll(w);
        if (passing && now >= well_at) {
            passing = false;
            sim_disk_slow(w->disks[s->victim], 1, 0);
        }
        if (gone_at == 0 && status_of(w, s->victim)->state == MEMBER_MISSING) {
            gone_at = env_now_ns(w->env);
        }
    }
    if (gone_at > began + EXPELLED_S * NS_PER_S && s->alike && kinds[s->kind].factor != 10) {
        world_fail(w, "disk %u (slow %s) was expelled only after %.1f s", s->victim,
                   kinds[s->kind].name, (double)(gone_at - began) / 1e9);
    }
    return world_goes_on(w);
}

void slow_run(struct world *w) {
    static const enum profile profiles[] = {PROFILE_RAID1, PROFILE_RAID10, PROFILE_RAID5,
                                            PROFILE_RAID6};
    struct slow_world s = {.w = w, .alike = w->slow_alike};
    rng_init(&s.rng, w->options.seed ^ 0x72756eu);
    s.kind = kind_of(w->options.seed);
    s.victim = (uint32_t)rng_below(&s.rng, w->disk_count);
    s.heavy = !is_fault(s.kind) && rng_chance(&s.rng, 3, 4);
    s.heavy_ops = HEAVY_OPS / 4;
    s.bare = rng_chance(&s.rng, 1, 4);
    s.read_pct = (uint32_t)rng_between(&s.rng, 1, 9) * 10;
    s.window_bytes = rng_chance(&s.rng, 1, 4) ? 1 << 20 : SLOW_VOLUME_BYTES; /* hot, or all */
    enum profile profile = profiles[rng_below(&s.rng, ARRAY_COUNT(profiles))];
    s.rot = profile == PROFILE_RAID6 && !s.bare;
    w->tolerance = s.rot ? 2 : 1;
    if (!control_volume(w, 0, profile, SLOW_VOLUME_BYTES) ||
        (s.bare && !control_volume(w, 1, PROFILE_RAID0, SLOW_VOLUME_BYTES)) ||
        !fill(&s, &w->volumes[0]) || (s.bare && !fill(&s, &w->volumes[1]))) {
        return;
    }
    uint64_t before = w->ops_answered, start = env_now_ns(w->env);
    if (!load(&s, start + MEASURE_S * NS_PER_S, 0)) {
        return;
    }
    uint64_t took = MAX(env_now_ns(w->env) - start, (uint64_t)NS_PER_MS);
    double saturating = (double)(w->ops_answered - before) * 1e9 / (double)took;
    uint64_t rate = (uint64_t)MIN(saturating / 2, (double)RATE_MOST);
    rate = MAX(rate, (uint64_t)1);
    if (!world_drain(w) || !load(&s, env_now_ns(w->env) + 4 * NS_PER_S, rate)) {
        return;
    }
    s.heavy_ops = HEAVY_OPS;
    begin_fault(&s);
    if (run_fault(&s, rate)) {
        faults_poll(w);
        judge_end(&s);
    }
    if (world_goes_on(w)) {
        (void)world_drain(w);
    }
    w->slow_at_ns = 0;
    for (uint32_t i = 0; i < w->disk_count; i++) {
        sim_disk_slow(w->disks[i], 1, 0);
    }
}
