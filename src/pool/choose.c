// SPDX-License-Identifier: MPL-2.0
/* Theory. After any crash, and after any way in which disks went and came back, the disks found
 * carry several different superblocks. This file decides which one is the pool's.
 *
 * A superblock is named by (mount_id, sequence): within a mount each write, also a failed one,
 * takes the next sequence. It is written to all members that it lists as in sync, and only after
 * all of these have the one before (its parent, named by parent_mount_id and sequence - 1). So a
 * member that is in sync for superblock X carries X or X's parent; one that carries anything else
 * has gone another way or was set back (an old image), and has no vote for X.
 *
 * Every different superblock found is a candidate. To be chosen, X has to win two elections:
 *
 *   current   its in-sync members, of which those with a vote for X count, and its witness;
 *   settled   the members of the last configuration that X knows to have been settled, i.e. on all
 *             its members and in the witness of the host that made it. X itself may be the remains
 *             of an import or expulsion that failed half-way, and whoever did not hear of it may
 *             have gone on since. Here count those that carry X, its parent, or nothing newer than
 *             the settled configuration; pool_take() tells them, also those it leaves out, so that
 *             they cannot vote for the settled configuration any more. When X is settled itself
 *             (by what it says, or by the witness), this is the same as the first.
 *
 * A member that was admitted later than the settled configuration has no vote in the second
 * election; it was told of the superblock before the one that admits it, so that it has a vote in
 * the first (member.c).
 *
 * (This is the joint consensus of Ongaro's Raft, §4.3, with superblocks for log entries.) The
 * witness of a configuration is the record of the mount that settled it; for the current election
 * it is also that of the host that wrote X, which may have lost power before it could record it.
 * Two sides never both win the settled election, and whoever won it holds members that block every
 * older candidate. The newest candidate (config epoch, sequence) among the winners is taken.
 *
 * The exception is made by force: when two candidates win that each know nothing of the other, both
 * sides were used apart, and no rule can tell which one to lose: refused.
 *
 * Superblock X may be on one disk only (a power cut during its write). Choosing it is right, as is
 * choosing its parent when that disk is absent: nothing that depends on X was done before X was on
 * all its members. pool_take() first completes X on all voters. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "pool/internal.h"

struct candidate {
    const struct super_phys *super;
    struct electorate current, settled;
    struct settled_point point;
    uint64_t voters, here;
    bool quorum;
};

bool quorum_reached(uint32_t in_sync, uint32_t present, bool witness) {
    if (present == 0) {
        return false;
    }
    if (present == in_sync) {
        return true;
    }
    uint32_t votes = present + (witness ? 1 : 0), all = in_sync + 1;
    return 2 * votes > all || (2 * votes == all && witness);
}

bool electorate_decides(const struct electorate *e, uint64_t here) {
    return quorum_reached((uint32_t)__builtin_popcountll(e->members),
                          (uint32_t)__builtin_popcountll(e->members & here), e->witness);
}

/* Appends to a text of limited room; what does not fit is cut off. */
static void HF_PRINTF(3, 4) text_add(char *text, size_t room, const char *fmt, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text + used, room - used, fmt, args);
    va_end(args);
}

/* ---- votes ---- */

static bool is_same(const struct super_phys *a, const struct super_phys *b) {
    return a->mount_id == b->mount_id && a->sequence == b->sequence;
}

static bool is_parent(const struct super_phys *parent, const struct super_phys *child) {
    return parent->sequence + 1 == child->sequence && parent->mount_id == child->parent_mount_id;
}

static bool is_usable(const struct probe *p) {
    return p->problem.code == OK && p->super != NULL;
}

/* Whether the probed disk is member `label.member` of this superblock at all. */
static bool is_member(const struct probe *p, const struct super_phys *s) {
    const struct member_phys *m = &s->members[p->label.member];
    return p->label.member < s->member_count && m->state != MEMBER_NONE &&
           uuid_equal(&m->disk, &p->label.disk);
}

static bool has_vote(const struct probe *p, const struct super_phys *s) {
    return is_usable(p) && is_member(p, s) && s->members[p->label.member].state == MEMBER_IN_SYNC &&
           p->label.disk_blocks == s->members[p->label.member].disk_blocks &&
           memcmp(&p->label.geometry, &s->geometry, sizeof(s->geometry)) == 0 &&
           (is_same(p->super, s) || is_parent(p->super, s));
}

struct witness_view {
    bool known;
    struct witness_phys record;
    const char *host;
};

static void ask_witness(struct env *env, const struct choose_options *options,
                        struct witness_view *ret_view) {
    ret_view->host = options->host;
    ret_view->known = witness_read(env, &options->pool, &ret_view->record) == OK;
}

static bool witness_knows_newer(const struct witness_view *w, const struct super_phys *s) {
    if (SABOTAGE(witness_ignored)) {
        return false;
    }
    return w->known && (w->record.config_epoch > s->config_epoch ||
                        w->record.mount_generation > s->mount_generation);
}

static bool witness_is_of_mount(const struct witness_view *w, uint64_t generation,
                                uint64_t mount_id) {
    return w->known && w->record.mount_generation == generation && w->record.mount_id == mount_id;
}

static struct settled_point settled_of(const struct super_phys *s, const struct witness_view *w) {
    if (witness_is_of_mount(w, s->mount_generation, s->mount_id) &&
        w->record.config_epoch >= s->settled_epoch) {
        return (struct settled_point){w->record.config_epoch, s->mount_generation, s->mount_id,
                                      true};
    }
    bool witness = witness_is_of_mount(w, s->settled_generation, s->settled_mount_id);
    return (struct settled_point){s->settled_epoch, s->settled_generation, s->settled_mount_id,
                                  witness};
}

/* Whether the disk carries nothing that was agreed on after the settled point, unless it is `s`. */
static bool can_be_told(const struct probe *p, const struct super_phys *s,
                        const struct settled_point *point) {
    return is_usable(p) && is_member(p, s) &&
           (is_same(p->super, s) || is_parent(p->super, s) ||
            (p->super->config_epoch <= point->epoch &&
             p->super->mount_generation <= point->generation));
}

static void evaluate(struct candidate *c, struct probe *const *probes, uint32_t count,
                     const struct witness_view *w) {
    const struct super_phys *s = c->super;
    const struct settled_point point = c->point = settled_of(s, w);
    for (uint32_t m = 0; m < s->member_count; m++) {
        uint64_t bit = 1ull << m;
        bool in_sync = s->members[m].state == MEMBER_IN_SYNC;
        bool was = s->members[m].state == MEMBER_MISSING && s->members[m].state_epoch > point.epoch;
        /* One that was admitted since was not in the configuration that is settled. */
        bool joined = in_sync && s->members[m].state_epoch > point.epoch;
        c->current.members |= in_sync ? bit : 0;
        c->settled.members |= (in_sync && !joined) || was ? bit : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bit = 1ull << probes[i]->label.member;
        if (has_vote(probes[i], s)) {
            c->voters |= bit;
        }
        c->here |= can_be_told(probes[i], s, &point) ? bit : 0;
    }
    bool newer = witness_knows_newer(w, s);
    bool same_host = w->host[0] != '\0' && w->known && strcmp(w->host, s->host) == 0;
    bool same_mount = witness_is_of_mount(w, s->mount_generation, s->mount_id);
    c->current.witness = !newer && (same_mount || same_host);
    c->settled.witness = !newer && point.witness;
    if (SABOTAGE(witness_ignored)) {
        c->current.witness = c->settled.witness = true;
    }
    bool settled = point.epoch == s->config_epoch && point.mount_id == s->mount_id;
    if (settled) {
        c->settled = c->current;
        c->here |= c->voters;
    }
    c->quorum = electorate_decides(&c->current, c->voters) &&
                (settled || electorate_decides(&c->settled, c->here));
}

static bool is_before(const struct candidate *a, const struct candidate *b) {
    if (a->quorum != b->quorum) {
        return a->quorum;
    }
    if ((a->voters != 0) != (b->voters != 0)) { /* by force, something that can be had */
        return a->voters != 0;
    }
    if (a->super->config_epoch != b->super->config_epoch) {
        return a->super->config_epoch > b->super->config_epoch;
    }
    if (a->super->sequence != b->super->sequence) {
        return a->super->sequence > b->super->sequence;
    }
    if (a->voters != b->voters) {
        return __builtin_popcountll(a->voters) > __builtin_popcountll(b->voters);
    }
    return a->super->mount_id > b->super->mount_id; /* any rule, but the same everywhere */
}

/* Best first. Returns their number. */
static uint32_t collect(struct probe *const *probes, uint32_t count, const struct witness_view *w,
                        struct candidate *ret_candidates) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_usable(probes[i])) {
            continue;
        }
        uint32_t j = 0;
        while (j < found && !is_same(ret_candidates[j].super, probes[i]->super)) {
            j++;
        }
        if (j == found) {
            ret_candidates[found++] = (struct candidate){.super = probes[i]->super};
        }
    }
    for (uint32_t i = 0; i < found; i++) {
        evaluate(&ret_candidates[i], probes, count, w);
        for (uint32_t j = i; j > 0 && is_before(&ret_candidates[j], &ret_candidates[j - 1]); j--) {
            struct candidate swap = ret_candidates[j];
            ret_candidates[j] = ret_candidates[j - 1];
            ret_candidates[j - 1] = swap;
        }
    }
    return found;
}

/* ---- refusals ---- */

static int refuse_clones(struct probe *const *probes, uint32_t count, struct errmsg *reterr) {
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            /* (Of two paths to one disk one is busy: we hold it by the other.) */
            if (uuid_equal(&probes[i]->label.disk, &probes[j]->label.disk) && !probes[i]->busy &&
                !probes[j]->busy) {
                return errmsg_set(reterr, ERR_FOREIGN,
                                  "pool %s: %s and %s are the same disk twice (a clone, or two "
                                  "paths to one disk); leave one of them out",
                                  probes[i]->label.pool_name, probes[j]->path, probes[i]->path);
            }
        }
    }
    return OK;
}

static int refuse_newer_versions(struct probe *const *probes, uint32_t count,
                                 const struct choose_options *options, struct errmsg *reterr) {
    for (uint32_t i = 0; i < count; i++) {
        if (probes[i]->problem.code == ERR_UNSUPPORTED) {
            return errmsg_set(reterr, ERR_UNSUPPORTED, "%s", probes[i]->problem.text);
        }
        if (is_usable(probes[i]) && !options->read_only &&
            (probes[i]->super->features_ro_compat & ~(uint64_t)SUPER_RO_COMPAT_KNOWN) != 0) {
            return errmsg_set(reterr, ERR_UNSUPPORTED,
                              "%s (pool %s) uses features of a newer holdfast; this one can only "
                              "read the pool",
                              probes[i]->path, probes[i]->label.pool_name);
        }
    }
    return OK;
}

bool super_went_on(const struct super_phys *other, const struct member_phys *m) {
    return other->mount_generation > m->state_generation ||
           (other->mount_generation == m->state_generation && other->mount_id != m->state_mount_id);
}

/* Another candidate that was used by a mount which the best one knows nothing of. A mount serves
 * nobody before it has written a superblock that says it is settled (invariant 4). */
static int refuse_two_sides(const struct candidate *candidates, uint32_t found,
                            struct probe *const *probes, uint32_t count, struct errmsg *reterr) {
    const struct super_phys *best = candidates[0].super;
    if (!candidates[0].quorum && best->settled_mount_id != best->mount_id) {
        return OK; /* the remains of something that failed, and refused for that */
    }
    for (uint32_t i = 1; i < found; i++) {
        const struct super_phys *other = candidates[i].super;
        if (other->settled_mount_id != other->mount_id || is_parent(other, best)) {
            continue;
        }
        for (uint32_t j = 0; j < count; j++) {
            const struct member_phys *m = &best->members[probes[j]->label.member];
            if (is_usable(probes[j]) && is_same(probes[j]->super, other) &&
                is_member(probes[j], best) && m->state == MEMBER_MISSING &&
                super_went_on(other, m)) {
                return errmsg_set(reterr, ERR_FOREIGN,
                                  "pool %s was used apart on two sides: by %s (without %s) and by "
                                  "%s (with %s); import with the disks of one side only, the "
                                  "writes of the other are lost",
                                  best->name, best->host, probes[j]->path, other->host,
                                  probes[j]->path);
            }
        }
    }
    return OK;
}

/* ---- the choice ---- */

/* Who the disks are that were looked at (`all`, and those of this pool among them), to tell why. */
struct looked {
    struct probe *const *probes;
    uint32_t count;
    const struct probe *all;
    uint32_t all_count;
};

static void explain_absent(const struct member_phys *m, const struct looked *looked,
                           char *ret_why) {
    for (uint32_t i = 0; i < looked->all_count; i++) {
        const struct probe *p = &looked->all[i];
        bool unread = !p->labelled && p->problem.code != OK && p->problem.code != ERR_NOT_FOUND &&
                      p->problem.code != ERR_FOREIGN; /* a disk of something else lies there now */
        if (unread && strcmp(p->path, m->path_hint) == 0) {
            text_add(ret_why, WHY_BYTES, "%s", p->problem.text);
            return;
        }
    }
    text_add(ret_why, WHY_BYTES, "not found; last seen as %s",
             m->path_hint[0] != '\0' ? m->path_hint : "(unknown)");
}

static void explain_member(const struct super_phys *s, uint32_t member, const struct looked *looked,
                           char *ret_why) {
    const struct member_phys *m = &s->members[member];
    for (uint32_t i = 0; i < looked->count; i++) {
        const struct probe *p = looked->probes[i];
        if (!uuid_equal(&p->label.disk, &m->disk)) {
            continue;
        }
        if (p->problem.code != OK) {
            text_add(ret_why, WHY_BYTES, "%s", p->problem.text);
        } else if (m->state == MEMBER_MISSING) {
            text_add(ret_why, WHY_BYTES,
                     "%s was shut out of the pool when it failed or was absent, and is older than "
                     "the rest; it is not used: replace it, or wipe it and add it again",
                     p->path);
        } else if (!is_usable(p) || p->label.member != member) {
            text_add(ret_why, WHY_BYTES, "%s contradicts the pool's superblock; replace it",
                     p->path);
        } else {
            text_add(ret_why, WHY_BYTES,
                     "%s is stale: its superblock is number %" PRIu64 " of host %s, the pool's is "
                     "number %" PRIu64 " (an old copy was put back?); replace it",
                     p->path, p->super->sequence, p->super->host, s->sequence);
        }
        return;
    }
    explain_absent(m, looked, ret_why);
}

static void fill_choice(const struct candidate *best, struct probe **probes, uint32_t count,
                        const struct looked *looked, struct choice *choice) {
    const struct super_phys *s = best->super;
    choice->super = s;
    choice->current = best->current;
    choice->settled = best->settled;
    choice->point = best->point;
    choice->voter_mask = best->voters;
    choice->here_mask = best->here;
    for (uint32_t i = 0; i < count; i++) {
        struct probe *p = probes[i];
        uint32_t m = p->label.member;
        if (has_vote(p, s)) {
            choice->voters[m] = p;
        } else if (is_usable(p) && is_member(p, s) &&
                   (p->super->members[m].state == MEMBER_IN_SYNC ||
                    (best->settled.members & (1ull << m)) != 0)) {
            choice->informed[m] = p;
        }
    }
    for (uint32_t m = 0; m < s->member_count; m++) {
        if (s->members[m].state != MEMBER_NONE && choice->voters[m] == NULL) {
            explain_member(s, m, looked, choice->why[m]);
        }
    }
}

static void name_absent(const struct choice *choice, uint64_t wanted, const struct probe *all,
                        uint32_t all_count, char *text, size_t room) {
    const char *separator = "";
    for (uint32_t m = 0; m < choice->super->member_count; m++) {
        if ((wanted & (1ull << m)) != 0 && choice->voters[m] == NULL) {
            text_add(text, room, "%sdisk %" PRIu32 " (%s)", separator, m, choice->why[m]);
            separator = ", ";
        }
    }
    for (uint32_t i = 0; i < all_count; i++) {
        if (all[i].disk == NULL) {
            text_add(text, room, "; could not open %s (%s)", all[i].path,
                     error_text(all[i].problem.code));
        }
    }
}

static int check_quorum(const struct choice *c, const struct probe *all, uint32_t all_count,
                        bool quorum, struct errmsg *reterr) {
    /* Which of the two elections was lost decides what to tell. */
    bool current = electorate_decides(&c->current, c->voter_mask);
    const struct electorate *e = current ? &c->settled : &c->current;
    uint32_t of = (uint32_t)__builtin_popcountll(e->members);
    uint32_t here =
        (uint32_t)__builtin_popcountll(e->members & (current ? c->here_mask : c->voter_mask));
    char names[320] = "";
    name_absent(c, e->members, all, all_count, names, sizeof(names));
    if (c->voter_mask == 0) {
        return errmsg_set(reterr, ERR_QUORUM,
                          "pool %s: the disks that are here were all shut out of it; attach those "
                          "that went on without them: %s",
                          c->super->name, names);
    }
    if (!quorum) {
        return errmsg_set(reterr, ERR_QUORUM,
                          "pool %s: %" PRIu32 " of %" PRIu32 " disks are here, no majority%s. "
                          "Attach the rest, or import with --force-quorum, which shuts it out for "
                          "good. Missing: %s",
                          c->super->name, here, of,
                          e->witness ? "" : " without the witness of the host that used it", names);
    }
    uint64_t absent = c->current.members & ~c->voter_mask;
    uint32_t lost = (uint32_t)__builtin_popcountll(absent);
    if (lost >= c->super->meta_copies) {
        return errmsg_set(reterr, ERR_DATA_LOSS,
                          "pool %s: %" PRIu32 " of %" PRIu32 " disks are absent, more than it can "
                          "lose without losing data. Attach them, or import with --force-quorum to "
                          "save what is left. Missing: %s",
                          c->super->name, lost, (uint32_t)__builtin_popcountll(c->current.members),
                          names);
    }
    return OK;
}

static int check_host(const struct super_phys *s, const struct choose_options *options,
                      struct errmsg *reterr) {
    if ((s->flags & SUPER_FLAG_EXPORTED) != 0 || strcmp(s->host, options->host) == 0 ||
        options->force_host) {
        return OK;
    }
    return errmsg_set(reterr, ERR_BUSY,
                      "pool %s was last used by host %s and not exported; export it there, or, "
                      "when that host is down for good, import with --force",
                      s->name, s->host);
}

static int check_choice(const struct choose_options *options, const struct probe *all,
                        uint32_t all_count, const struct witness_view *w, bool quorum,
                        struct choice *choice, struct errmsg *reterr) {
    const struct super_phys *s = choice->super;
    if (options->read_only) {
        return OK;
    }
    bool newer = witness_knows_newer(w, s);
    if (newer && !options->force_quorum) {
        char names[256] = "";
        name_absent(choice, choice->current.members, all, all_count, names, sizeof(names));
        return errmsg_set(reterr, ERR_STALE,
                          "pool %s: the disks here are older than what this host last used; the "
                          "disks that went on without them are missing. Attach those, or import "
                          "with --force-quorum and lose what was written since. Missing: %s",
                          s->name, names);
    }
    struct errmsg message = {0};
    int error = check_quorum(choice, all, all_count, quorum, &message);
    choice->forced = newer || error != OK;
    if (error != OK && (!options->force_quorum || choice->voter_mask == 0)) {
        return errmsg_set(reterr, error, "%s", message.text);
    }
    return check_host(s, options, reterr);
}

static void raise_floors(struct probe *const *probes, uint32_t count, const struct witness_view *w,
                         struct choice *choice) {
    for (uint32_t i = 0; i < count; i++) {
        const struct super_phys *s = probes[i]->super;
        if (s != NULL) {
            choice->epoch_floor = MAX(choice->epoch_floor, s->config_epoch);
            choice->generation_floor = MAX(choice->generation_floor, s->mount_generation);
        }
    }
    if (w->known) {
        choice->epoch_floor = MAX(choice->epoch_floor, w->record.config_epoch);
        choice->generation_floor = MAX(choice->generation_floor, w->record.mount_generation);
    }
}

static int choose_among(struct env *env, struct probe **probes, uint32_t count,
                        const struct probe *all, uint32_t all_count,
                        const struct choose_options *options, struct choice *choice,
                        struct errmsg *reterr) {
    struct witness_view witness = {0};
    ask_witness(env, options, &witness);
    raise_floors(probes, count, &witness, choice);
    struct candidate *candidates = MEM_NEW_ARRAY(struct candidate, count);
    uint32_t found = collect(probes, count, &witness, candidates);
    int error = OK;
    if (found != 0) {
        const struct looked looked = {probes, count, all, all_count};
        fill_choice(&candidates[0], probes, count, &looked, choice);
    }
    if ((error = refuse_clones(probes, count, reterr)) == OK &&
        (error = refuse_newer_versions(probes, count, options, reterr)) == OK) {
        if (found == 0) {
            error = errmsg_set(reterr, ERR_CORRUPT, "pool %s: no disk of it can be used: %s",
                               probes[0]->label.pool_name, probes[0]->problem.text);
        } else if ((error = refuse_two_sides(candidates, found, probes, count, reterr)) == OK) {
            error = check_choice(options, all, all_count, &witness, candidates[0].quorum, choice,
                                 reterr);
        }
    }
    mem_free(candidates);
    return error;
}

int choose(struct env *env, struct probe *probes, uint32_t count,
           const struct choose_options *options, struct choice *ret_choice, struct errmsg *reterr) {
    struct probe **group = MEM_NEW_ARRAY(struct probe *, count + 1);
    uint32_t members = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (probes[i].labelled && uuid_equal(&probes[i].label.pool, &options->pool)) {
            group[members++] = &probes[i];
        }
    }
    ASSERT_LT(0, members);
    int error = choose_among(env, group, members, probes, count, options, ret_choice, reterr);
    mem_free(group);
    return error;
}
