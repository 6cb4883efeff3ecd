// SPDX-License-Identifier: MPL-2.0
/* Slow disks: found by comparing each with its peers, avoided at once, expelled if they stay so.
 *
 * A disk is only ever compared with its peers: the members in sync that are no suspects, of the
 * same kind (rotating or not) and, if there are some, of the same model. Others may be what they
 * are by nature, so against them the margins are four times as wide. A disk that does not rotate
 * may have rotating ones for peers, if it has no others. Disks that are equally slow, because all
 * are busy or something they share is, are each other's yardstick, and none is an outlier.
 *
 *   in order ──(an outlier for a second)──> suspect ──(fails the experiment for 10 s)──> expelled
 *       ^                                      │
 *       └──────(passes it for 4 s)─────────────┘
 *
 * Becoming a suspect. Four times a second each disk gets a yardstick (disk.h): what the median of
 * its peers takes, by kind and size of I/O, in the last seconds. What a disk completed since then,
 * and what it has outstanding, is held against it: too many I/Os that are slow (more than half,
 * above four times the peers' median) or late (more than an eighth, above four times the peers'
 * 99th percentile), and many times as many as its peers have; or one that is outstanding for half a
 * second, while they answer. What a row showed (row.c: one column late, while the others came)
 * makes a suspect at once. That a disk which is given more to do than its peers takes longer is
 * reckoned with by its model (disk.h).
 *
 * A suspect is avoided: reads go around it, log rows and new segments to others (detour.h, log.c,
 * segment.h), wherever redundancy lets them. So a wrong suspicion costs little, and a true one
 * costs nobody the time that the rest takes.
 *
 * The experiment. As nothing much is asked of a suspect any more, its I/Os prove nothing. So while
 * there is one, all disks get the same small read, at a random place, four times a second.
 * The peers are under load and the suspect is not: one that is well again answers sooner than they.
 * A window of two seconds in which its median is worse by half, or its worst many times theirs,
 * counts against it, any other for it.
 *
 * Expelling. Never more than redundancy bears: a disk stays, suspect, where something that lives on
 * it would be lost with it; that is shown. A disk that fails outright is none of this file's
 * business: writes that pass their deadline expel, as ever. */
#include "engine/slow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "engine/private.h"

enum {
    WINDOW_TICKS = 8, /* of an experiment; and how often what is known fades */
    SCORE_SUSPECT = 4,
    SCORE_MOST = 8,
    PROBES_OUT_MAX = 2,
    LEAST_KNOWN = 16, /* I/Os */
    SAMPLES_MAX = WINDOW_TICKS + PROBES_OUT_MAX,
    STRANGERS = 4, /* margins against disks of another model */
    PENALTY_FIRST = 4,
    PENALTY_STEP = 2,
    PENALTY_EXPELS = 14,
};
#define HANGS_NS (500 * (uint64_t)NS_PER_MS)

/* Below these nothing is slow or late, whatever the peers take: noise, and what caches do. */
struct floors {
    uint64_t hedge_read_ns, slow_read_ns, late_read_ns;
    uint64_t hedge_write_ns, slow_write_ns, late_write_ns, late_flush_ns;
    uint64_t unknown_hedge_ns; /* nobody knows what peers take */
    uint64_t noise_ns;         /* of a median of the experiment */
    uint64_t tail_ns;
};

static const struct floors floors_of[2] = {
    {.hedge_read_ns = 1 * NS_PER_MS,
     .slow_read_ns = 500 * NS_PER_US,
     .late_read_ns = 20 * NS_PER_MS,
     .hedge_write_ns = 2 * NS_PER_MS,
     .slow_write_ns = NS_PER_MS,
     .late_write_ns = 100 * NS_PER_MS,
     .late_flush_ns = NS_PER_S,
     .unknown_hedge_ns = 100 * NS_PER_MS,
     .noise_ns = 300 * NS_PER_US,
     .tail_ns = 50 * NS_PER_MS},
    {.hedge_read_ns = 15 * NS_PER_MS,
     .slow_read_ns = 60 * NS_PER_MS,
     .late_read_ns = 100 * NS_PER_MS,
     .hedge_write_ns = 15 * NS_PER_MS,
     .slow_write_ns = 60 * NS_PER_MS,
     .late_write_ns = 300 * NS_PER_MS,
     .late_flush_ns = 2 * NS_PER_S,
     .unknown_hedge_ns = 300 * NS_PER_MS,
     .noise_ns = 5 * NS_PER_MS,
     .tail_ns = 250 * NS_PER_MS},
};

struct probe {
    struct list link;
    struct disk_io io;
    struct slow *slow;
    uint32_t member;
    uint64_t sent_ns;
    struct buf *buf;
};

/* I/Os of the last ticks, those of long ago for less: in units of 1 / TALLY_ONE. */
struct tally {
    uint32_t done, late;
    struct {
        uint32_t done, slow;
    } of[LATENCY_KINDS];
};
enum { TALLY_ONE = 16 };

struct slow_disk {
    bool in; /* in sync: it counts */
    uint32_t score;
    bool suspect, held; /* held: it stays although it should be expelled */
    uint64_t suspect_since_ns;
    uint32_t penalty;
    uint32_t probes_out;
    uint64_t sample_ns[WINDOW_TICKS];
    uint32_t samples;
    struct disk_window window; /* of the last tick */
    struct tally tally;
    uint64_t median_ns[LATENCY_KINDS][LATENCY_CLASSES]; /* 0: not known */
    uint64_t tail_ns[LATENCY_KINDS][LATENCY_CLASSES];
    struct engine_disk_slow evidence; /* of the last suspicion */
};

struct slow {
    struct engine *e;
    uint32_t ticks, suspects;
    uint64_t random;
    struct list probes;
    struct slow_disk of[POOL_DISKS_MAX];
};

struct slow *slow_new(struct engine *e) {
    struct slow *slow = MEM_NEW(struct slow);
    slow->e = e;
    slow->random = 1;
    list_init(&slow->probes);
    return slow;
}

static void probe_free(struct probe *p) {
    list_remove(&p->link);
    buf_unref(p->buf);
    mem_free(p);
}

void slow_stop(struct slow *slow) {
    while (slow != NULL && !list_is_empty(&slow->probes)) {
        struct probe *p = CONTAINER_OF(slow->probes.next, struct probe, link);
        disk_leave(&p->io);
        probe_free(p);
    }
}

void slow_free(struct slow *slow) {
    ASSERT(slow == NULL || list_is_empty(&slow->probes));
    mem_free(slow);
}

/* ---- peers ---- */

static const struct env_disk_info *info_of(const struct slow *slow, uint32_t m) {
    return disk_info(slow->e->pool->disks[m]);
}

struct peers {
    uint32_t member[POOL_DISKS_MAX];
    uint32_t count;
    uint64_t margin; /* on top of the usual: of disks of another model */
    const struct floors *floors;
};

/* The same model; the same kind; or, for one that does not rotate, any. */
enum likeness { SAME_MODEL, SAME_KIND, SLOWER_KIND, LIKENESSES };

static bool is_like(const struct env_disk_info *peer, const struct env_disk_info *mine,
                    enum likeness likeness) {
    switch (likeness) {
    case SAME_MODEL:
        return peer->rotational == mine->rotational && strcmp(peer->model, mine->model) == 0;
    case SAME_KIND:
        return peer->rotational == mine->rotational;
    default:
        return !mine->rotational;
    }
}

static void peers_find(const struct slow *slow, uint32_t m, struct peers *ret) {
    uint32_t members = slow->e->pool->super.member_count;
    const struct env_disk_info *mine = info_of(slow, m);
    for (int likeness = SAME_MODEL; likeness < LIKENESSES; likeness++) {
        ret->count = 0;
        ret->margin = likeness == SAME_KIND ? STRANGERS : 1;
        for (uint32_t p = 0; p < members; p++) {
            const struct slow_disk *d = &slow->of[p];
            if (p != m && d->in && !d->suspect &&
                is_like(info_of(slow, p), mine, (enum likeness)likeness)) {
                ret->member[ret->count++] = p;
            }
        }
        if (ret->count > 0) {
            ret->floors = &floors_of[info_of(slow, ret->member[0])->rotational];
            return;
        }
    }
    ret->floors = &floors_of[1];
}

/* 0 values are left out; 0: none is left. The lower one of two in the middle. */
static uint64_t median_of(uint64_t *values, uint32_t count) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t v = values[i];
        uint32_t at = n;
        if (v == 0) {
            continue;
        }
        for (; at > 0 && values[at - 1] > v; at--) {
            values[at] = values[at - 1];
        }
        values[at] = v;
        n++;
    }
    return n == 0 ? 0 : values[(n - 1) / 2];
}

/* ---- yardsticks ---- */

static void disk_know(struct slow *slow, uint32_t m) {
    const struct disk_latency *l = disk_latency(slow->e->pool->disks[m]);
    struct slow_disk *d = &slow->of[m];
    for (int k = 0; k < LATENCY_KINDS; k++) {
        for (int c = 0; c < LATENCY_CLASSES; c++) {
            d->median_ns[k][c] = latency_quantile(&l->of[k][c], 500, LEAST_KNOWN);
            d->tail_ns[k][c] = latency_quantile(&l->of[k][c], 990, LEAST_KNOWN);
        }
    }
}

static void yardstick_cell(const struct slow *slow, const struct peers *peers, int k, int c,
                           struct disk_yardstick *y) {
    const struct floors *f = peers->floors;
    uint64_t medians[POOL_DISKS_MAX], tails[POOL_DISKS_MAX];
    for (uint32_t i = 0; i < peers->count; i++) {
        medians[i] = slow->of[peers->member[i]].median_ns[k][c];
        tails[i] = slow->of[peers->member[i]].tail_ns[k][c];
    }
    uint64_t median = median_of(medians, peers->count), tail = median_of(tails, peers->count);
    if (SABOTAGE(peers_ignored)) {
        median = tail = 1;
    }
    bool read = k == LATENCY_READ;
    uint64_t late = read                 ? f->late_read_ns
                    : k == LATENCY_FLUSH ? f->late_flush_ns
                                         : f->late_write_ns;
    y->hedge_ns[k][c] =
        tail == 0 ? f->unknown_hedge_ns
                  : MAX(tail * peers->margin * 5 / 4, read ? f->hedge_read_ns : f->hedge_write_ns);
    y->slow_ns[k][c] =
        median == 0 ? 0
                    : MAX(median * 4 * peers->margin, read ? f->slow_read_ns : f->slow_write_ns);
    y->late_ns[k][c] = tail == 0 ? MAX(late, NS_PER_S) : MAX(tail * 4 * peers->margin, late);
}

static void yardstick_give(struct slow *slow, uint32_t m, const struct peers *peers) {
    struct disk_yardstick y = {0};
    uint64_t busy_ns = 0, units = 0;
    for (uint32_t i = 0; i < peers->count; i++) {
        const struct disk_latency *l = disk_latency(slow->e->pool->disks[peers->member[i]]);
        busy_ns += l->busy_ns;
        units += l->units;
    }
    y.unit_ns = units == 0 ? 0 : busy_ns / units;
    for (int k = 0; k < LATENCY_KINDS && peers->count > 0; k++) {
        for (int c = 0; c < LATENCY_CLASSES; c++) {
            yardstick_cell(slow, peers, k, c, &y);
        }
    }
    disk_set_yardstick(slow->e->pool->disks[m], &y);
}

/* ---- becoming a suspect ---- */

static void tally_add(struct tally *t, const struct disk_window *w) {
    t->done = t->done / 8 * 7 + (w->done + w->late_out) * TALLY_ONE;
    t->late = t->late / 8 * 7 + (w->late + w->late_out) * TALLY_ONE;
    for (int k = 0; k < LATENCY_KINDS; k++) {
        t->of[k].done = t->of[k].done / 8 * 7 + w->of[k].done * TALLY_ONE;
        t->of[k].slow = t->of[k].slow / 8 * 7 + w->of[k].slow * TALLY_ONE;
    }
}

/* Most of what it does of one kind is slow, and it is not so with its peers. Reads, and what the
 * log writes: a disk may see nothing but that, as long as what is read lies elsewhere. */
static bool is_mostly_slow(const struct tally *t, const struct tally *peers) {
    static const enum latency_kind kinds[] = {LATENCY_READ, LATENCY_DURABLE};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        uint32_t done = t->of[kinds[i]].done, slow = t->of[kinds[i]].slow;
        uint32_t peers_done = peers->of[kinds[i]].done, peers_slow = peers->of[kinds[i]].slow;
        if (done >= 4 * TALLY_ONE && slow * 2ull > done && peers_done >= 8 * TALLY_ONE &&
            (uint64_t)slow * peers_done > 4ull * peers_slow * done) {
            return true;
        }
    }
    return false;
}

/* How much speaks against it now: 0, 1 or 2. */
static uint32_t against(const struct slow *slow, uint32_t m, const struct peers *peers) {
    const struct disk_window *w = &slow->of[m].window;
    const struct tally *t = &slow->of[m].tally;
    struct tally p = {0};
    uint64_t oldest[POOL_DISKS_MAX];
    for (uint32_t i = 0; i < peers->count; i++) {
        const struct slow_disk *peer = &slow->of[peers->member[i]];
        p.done += peer->tally.done;
        p.late += peer->tally.late;
        for (int k = 0; k < LATENCY_KINDS; k++) {
            p.of[k].done += peer->tally.of[k].done;
            p.of[k].slow += peer->tally.of[k].slow;
        }
        oldest[i] = peer->window.oldest_ns;
    }
    if (SABOTAGE(peers_ignored)) {
        return t->late > 0 || t->of[LATENCY_READ].slow > 0;
    }
    if (w->late_out > 0 && w->oldest_ns >= HANGS_NS &&
        median_of(oldest, peers->count) * 4 < w->oldest_ns) {
        return 2;
    }
    bool often_late = t->late >= 2 * TALLY_ONE && t->late * 8ull >= t->done &&
                      (uint64_t)t->late * p.done > 4ull * p.late * t->done;
    return p.done > 0 && (often_late || is_mostly_slow(t, &p));
}

static void suspect_begin(struct slow *slow, uint32_t m) {
    struct slow_disk *d = &slow->of[m];
    d->suspect = true;
    d->suspect_since_ns = env_now_ns(slow->e->env);
    d->penalty = PENALTY_FIRST;
    d->held = false;
    slow->suspects++;
    slow->e->disks_suspected++;
    if (slow->suspects == 1) { /* the experiment begins */
        slow->ticks = 0;
        for (uint32_t i = 0; i < POOL_DISKS_MAX; i++) {
            slow->of[i].samples = 0;
        }
    }
    disk_set_suspect(slow->e->pool->disks[m], true);
    (void)snprintf(d->evidence.why, sizeof(d->evidence.why),
                   "it takes much longer than its peers do; it is avoided and examined");
}

static void suspect_end(struct slow *slow, uint32_t m) {
    struct slow_disk *d = &slow->of[m];
    if (d->suspect) {
        d->suspect = d->held = false;
        d->score = 0;
        d->tally = (struct tally){0};
        slow->suspects--;
        disk_set_suspect(slow->e->pool->disks[m], false);
        disk_shun(slow->e->pool->disks[m], 0);
    }
}

static void weigh(struct slow *slow, uint32_t m, const struct peers *peers) {
    struct slow_disk *d = &slow->of[m];
    if (d->suspect || peers->count == 0) {
        return;
    }
    uint32_t weight = against(slow, m, peers);
    if (weight > 0) {
        d->score = MIN(d->score + weight, (uint32_t)SCORE_MOST);
    } else if (d->window.done > 0 && d->score > 0) {
        d->score--;
    }
    if (d->score >= SCORE_SUSPECT || disk_is_avoided(slow->e->pool->disks[m])) {
        suspect_begin(slow, m);
    }
}

/* ---- the experiment ---- */

static void probe_done(struct disk_io *io) {
    struct probe *p = CONTAINER_OF(io, struct probe, io);
    struct slow_disk *d = &p->slow->of[p->member];
    d->probes_out--;
    if ((io->result == OK || io->result == ERR_TIMEOUT) && d->samples < WINDOW_TICKS) {
        d->sample_ns[d->samples++] = MAX(io->latency_ns, (uint64_t)1);
    }
    probe_free(p);
}

static uint64_t random_next(struct slow *slow) {
    slow->random = slow->random * 6364136223846793005u + 1442695040888963407u;
    return slow->random >> 24;
}

/* Some block of the disk that holds something: of a chunk in use, or else its label. One that
 * rotates is told of nothing that is not in use, and seeks for any block; and of a suspect little
 * may be in use, so little that its cache has it. */
static uint64_t place_to_read(struct slow *slow, uint32_t m) {
    const struct segment_table *t = &slow->e->table;
    if (info_of(slow, m)->rotational && !info_of(slow, m)->discards && t->chunk_count[m] > 0) {
        uint32_t chunk = (uint32_t)(random_next(slow) % t->chunk_count[m]);
        const struct geometry *g = &slow->e->pool->super.geometry;
        return layout_chunk_block(g, chunk) + random_next(slow) % g->chunk_blocks;
    }
    uint32_t from = t->slot_count == 0 ? 0 : (uint32_t)(random_next(slow) % t->slot_count);
    for (uint32_t i = 0; i < t->slot_count; i++) {
        const struct segment *s = t->slots[(from + i) % t->slot_count];
        for (uint32_t c = 0; s != NULL && s->used_blocks > 0 && c < shape_columns(s->shape); c++) {
            if (s->column[c].disk == m) {
                return segment_column_block(t, s, c,
                                            (uint32_t)(random_next(slow) % s->used_blocks));
            }
        }
    }
    return LABEL_BLOCK;
}

static void probe_send(struct slow *slow, uint32_t m) {
    struct slow_disk *d = &slow->of[m];
    if (!d->in || d->probes_out >= PROBES_OUT_MAX) {
        return;
    }
    struct probe *p = MEM_NEW(struct probe);
    p->slow = slow;
    p->member = m;
    p->sent_ns = env_now_ns(slow->e->env);
    p->buf = buf_new(BLOCK_BYTES);
    p->io = (struct disk_io){.op = ENV_IO_READ,
                             .offset_bytes = place_to_read(slow, m) * BLOCK_BYTES,
                             .length_bytes = BLOCK_BYTES,
                             .buf = p->buf,
                             .done = probe_done};
    list_append(&slow->probes, &p->link);
    d->probes_out++;
    disk_submit(slow->e->pool->disks[m], &p->io);
}

struct outcome {
    uint64_t median_ns, worst_ns;
    uint32_t count;
};

/* What has not come yet counts as what it has taken so far, if that is more than a tick. */
static struct outcome outcome_of(const struct slow *slow, uint32_t m) {
    const struct slow_disk *d = &slow->of[m];
    uint64_t values[SAMPLES_MAX], now = env_now_ns(slow->e->env);
    struct outcome o = {0};
    for (; o.count < d->samples; o.count++) {
        values[o.count] = d->sample_ns[o.count];
    }
    LIST_FOR_EACH(link, &slow->probes) {
        const struct probe *p = CONTAINER_OF(link, struct probe, link);
        if (p->member == m && now - p->sent_ns > SLOW_TICK_MS * (uint64_t)NS_PER_MS &&
            o.count < SAMPLES_MAX) {
            values[o.count++] = now - p->sent_ns;
        }
    }
    for (uint32_t i = 0; i < o.count; i++) {
        o.worst_ns = MAX(o.worst_ns, values[i]);
    }
    o.median_ns = median_of(values, o.count);
    return o;
}

/* ---- expelling ---- */

/* Nothing that lives on it would be lost with it: nor what only the log has, nor, until the running
 * checkpoint commits, what only the root before it needs. */
static bool may_lose(const struct engine *e, uint32_t member) {
    bool any_missing = segment_members_missing(&e->table) > 0;
    if (rebuild_log_is_thin(e) ||
        (e->checkpoint_running && (any_missing || rebuild_relies_on(e, member)))) {
        return false;
    }
    for (uint32_t i = 0; i < e->table.slot_count; i++) {
        const struct segment *s = e->table.slots[i];
        if (s == NULL || (s->live_blocks == 0 && s->pending == 0 && !e->checkpoint_running)) {
            continue;
        }
        uint32_t lost = 0;
        bool on_it = false;
        for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
            bool here = s->column[c].disk == member && ((s->lost >> c) & 1) == 0;
            on_it |= here;
            lost += here || segment_column_disk(&e->table, s, c) == NULL;
        }
        if (on_it && lost > shape_losses(s->shape)) {
            return false;
        }
    }
    return pool_in_sync_count(e->pool) >= 2 && pool_is_settled(e->pool);
}

static void evidence_take(struct slow *slow, uint32_t m, const struct peers *peers) {
    struct engine_disk_slow *v = &slow->of[m].evidence;
    const struct disk_latency *mine = disk_latency(slow->e->pool->disks[m]);
    v->at_wall_ns = env_wall_ns(slow->e->env);
    memset(v->own, 0, sizeof(v->own));
    memset(v->peers, 0, sizeof(v->peers));
    for (int c = 0; c < LATENCY_CLASSES; c++) {
        for (int b = 0; b < LATENCY_BUCKETS; b++) {
            v->own[b] += mine->of[LATENCY_READ][c].count[b] / LATENCY_ONE;
            for (uint32_t i = 0; i < peers->count; i++) {
                const struct disk_latency *l = disk_latency(slow->e->pool->disks[peers->member[i]]);
                v->peers[b] += l->of[LATENCY_READ][c].count[b] / LATENCY_ONE;
            }
        }
    }
}

static void expel(struct slow *slow, uint32_t m, const struct outcome *own, uint64_t peers_ns) {
    struct slow_disk *d = &slow->of[m];
    const struct disk_counters *c = disk_counters(slow->e->pool->disks[m]);
    uint64_t seconds = (env_now_ns(slow->e->env) - d->suspect_since_ns) / NS_PER_S;
    (void)snprintf(d->evidence.why, sizeof(d->evidence.why),
                   "it is slow: for %" PRIu64 " s a read of 4 KiB has taken it %.1f ms, its peers "
                   "%.1f ms; %" PRIu64 " late I/Os, %" PRIu64 " errors, %" PRIu64 " timeouts",
                   seconds, (double)own->median_ns / 1e6, (double)peers_ns / 1e6, c->slow_ios,
                   c->errors[DISK_ERROR_READ] + c->errors[DISK_ERROR_WRITE] +
                       c->errors[DISK_ERROR_FLUSH],
                   c->errors[DISK_ERROR_TIMEOUT]);
    if (!may_lose(slow->e, m)) {
        d->held = true;
        return;
    }
    slow->e->disks_expelled_slow++;
    suspect_end(slow, m);
    d->evidence.expelled = true;
    pool_expel(slow->e->pool, m, d->evidence.why);
}

static void verdict(struct slow *slow, uint32_t m) {
    struct slow_disk *d = &slow->of[m];
    struct peers peers;
    uint64_t medians[POOL_DISKS_MAX], worsts[POOL_DISKS_MAX];
    peers_find(slow, m, &peers);
    for (uint32_t i = 0; i < peers.count; i++) {
        struct outcome o = outcome_of(slow, peers.member[i]);
        medians[i] = o.count >= 2 ? o.median_ns : 0;
        worsts[i] = o.count >= 2 ? o.worst_ns : 0;
    }
    const struct floors *f = peers.floors;
    uint64_t median = median_of(medians, peers.count), worst = median_of(worsts, peers.count);
    struct outcome own = outcome_of(slow, m);
    if (own.count < 2 || median == 0) {
        return; /* nothing is known */
    }
    bool worse = own.median_ns > median * peers.margin * 3 / 2 + f->noise_ns ||
                 own.worst_ns > worst * peers.margin * 8 + f->tail_ns;
    if (SABOTAGE(peers_ignored)) {
        worse = own.median_ns > f->slow_read_ns / 8;
    }
    if (worse) {
        d->penalty = MIN(d->penalty + PENALTY_STEP, (uint32_t)PENALTY_EXPELS);
        evidence_take(slow, m, &peers);
    } else {
        d->penalty -= MIN(d->penalty, (uint32_t)PENALTY_STEP);
    }
    if (d->penalty == 0) {
        suspect_end(slow, m);
        slow->e->suspects_cleared++;
    } else if (d->penalty >= PENALTY_EXPELS) {
        expel(slow, m, &own, median);
    }
}

static void experiment(struct slow *slow) {
    uint32_t members = slow->e->pool->super.member_count;
    if (slow->ticks % WINDOW_TICKS == 0 && slow->ticks > 0) {
        for (uint32_t m = 0; m < members; m++) {
            if (slow->of[m].suspect) {
                verdict(slow, m);
            }
        }
        for (uint32_t m = 0; m < members; m++) {
            slow->of[m].samples = 0;
        }
    }
    for (uint32_t m = 0; m < members && slow->suspects > 0; m++) {
        probe_send(slow, m);
    }
}

/* ---- the tick ---- */

void slow_tick(struct slow *slow) {
    struct pool *pool = slow->e->pool;
    uint32_t members = pool->super.member_count;
    for (uint32_t m = 0; m < members; m++) {
        struct slow_disk *d = &slow->of[m];
        bool in = pool_member_in_sync(pool, m) && pool->disks[m] != NULL;
        if (!in && d->suspect) { /* it failed otherwise */
            d->suspect = d->held = false;
            slow->suspects--;
        }
        d->in = in;
        if (in) {
            d->window = disk_window_take(pool->disks[m]);
            tally_add(&d->tally, &d->window);
            disk_know(slow, m);
        }
    }
    for (uint32_t m = 0; m < members; m++) {
        struct peers peers;
        if (slow->of[m].in) {
            peers_find(slow, m, &peers);
            weigh(slow, m, &peers);
            yardstick_give(slow, m, &peers);
        }
    }
    experiment(slow);
    slow->ticks++;
    for (uint32_t m = 0; m < members && slow->ticks % WINDOW_TICKS == 0; m++) {
        if (slow->of[m].in) {
            latency_fade(disk_latency(pool->disks[m]));
        }
    }
}

void slow_status(const struct slow *slow, uint32_t member, struct engine_disk_slow *ret_status) {
    const struct slow_disk *d = &slow->of[member];
    *ret_status = d->evidence;
    ret_status->suspect = d->suspect;
    ret_status->held = d->held;
    ret_status->suspect_ns = d->suspect ? env_now_ns(slow->e->env) - d->suspect_since_ns : 0;
    ret_status->read_median_ns = d->median_ns[LATENCY_READ][LATENCY_SMALL];
    ret_status->read_tail_ns = d->tail_ns[LATENCY_READ][LATENCY_SMALL];
    ret_status->write_median_ns = d->median_ns[LATENCY_DURABLE][LATENCY_SMALL];
    ret_status->write_tail_ns = d->tail_ns[LATENCY_DURABLE][LATENCY_SMALL];
}
