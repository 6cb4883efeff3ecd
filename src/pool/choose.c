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
 * Every different superblock found is a candidate. Its votes: its in-sync members that carry it or
 * its parent, and the witness. The newest candidate (config epoch, sequence) that reaches its
 * quorum wins. An older one cannot win against a newer one that was ever complete: the members of
 * the newer one no longer vote for the older, and are more than half of it (with the witness).
 * The exception is made by force: when two candidates with quorum each left out members of the
 * other, both sides were used apart, and no rule can tell which one to lose: refused.
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
    uint32_t in_sync, present;
    bool witness, quorum;
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

/* The witness of `s` is the record of the mount that wrote it. When the crash came between the
 * superblocks and the record, the record is older; that it is the right one is then told by the
 * host's name. */
static bool witness_votes(const struct witness_view *w, const struct super_phys *s) {
    if (SABOTAGE(witness_ignored)) {
        return true;
    }
    if (!w->known || witness_knows_newer(w, s)) {
        return false;
    }
    bool same_mount =
        w->record.mount_generation == s->mount_generation && w->record.mount_id == s->mount_id;
    bool same_host = w->host[0] != '\0' && strcmp(w->host, s->host) == 0;
    return same_mount || same_host;
}

static void evaluate(struct candidate *c, struct probe *const *probes, uint32_t count,
                     const struct witness_view *w) {
    for (uint32_t i = 0; i < c->super->member_count; i++) {
        c->in_sync += c->super->members[i].state == MEMBER_IN_SYNC;
    }
    for (uint32_t i = 0; i < count; i++) {
        c->present += has_vote(probes[i], c->super);
    }
    c->witness = witness_votes(w, c->super);
    c->quorum = quorum_reached(c->in_sync, c->present, c->witness);
}

static bool is_before(const struct candidate *a, const struct candidate *b) {
    if (a->quorum != b->quorum) {
        return a->quorum;
    }
    if (a->super->config_epoch != b->super->config_epoch) {
        return a->super->config_epoch > b->super->config_epoch;
    }
    if (a->super->sequence != b->super->sequence) {
        return a->super->sequence > b->super->sequence;
    }
    if (a->present != b->present) {
        return a->present > b->present;
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
            if (uuid_equal(&probes[i]->label.disk, &probes[j]->label.disk)) {
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

/* Two candidates that each have a quorum of their own and shut members of the other out. */
static int refuse_two_sides(const struct candidate *candidates, uint32_t found,
                            struct probe *const *probes, uint32_t count, struct errmsg *reterr) {
    const struct super_phys *best = candidates[0].super;
    for (uint32_t i = 1; i < found; i++) {
        const struct super_phys *other = candidates[i].super;
        if (!candidates[i].quorum || is_parent(other, best)) {
            continue;
        }
        for (uint32_t j = 0; j < count; j++) {
            const struct member_phys *m = &best->members[probes[j]->label.member];
            if (is_usable(probes[j]) && is_same(probes[j]->super, other) &&
                is_member(probes[j], best) && m->state == MEMBER_MISSING &&
                other->config_epoch >= m->state_epoch) {
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

static void explain_member(const struct super_phys *s, uint32_t member, struct probe *const *probes,
                           uint32_t count, char *ret_why) {
    const struct member_phys *m = &s->members[member];
    for (uint32_t i = 0; i < count; i++) {
        const struct probe *p = probes[i];
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
    text_add(ret_why, WHY_BYTES, "not found; last seen as %s",
             m->path_hint[0] != '\0' ? m->path_hint : "(unknown)");
}

static void fill_choice(const struct candidate *best, struct probe **probes, uint32_t count,
                        struct choice *choice) {
    const struct super_phys *s = best->super;
    choice->super = s;
    choice->in_sync = best->in_sync;
    choice->present = best->present;
    choice->witness_votes = best->witness;
    for (uint32_t i = 0; i < count; i++) {
        if (has_vote(probes[i], s)) {
            choice->voters[probes[i]->label.member] = probes[i];
        }
    }
    for (uint32_t m = 0; m < s->member_count; m++) {
        if (s->members[m].state != MEMBER_NONE && choice->voters[m] == NULL) {
            explain_member(s, m, probes, count, choice->why[m]);
        }
    }
}

static void name_absent(const struct choice *choice, const struct probe *all, uint32_t all_count,
                        char *text, size_t room) {
    const char *separator = "";
    for (uint32_t m = 0; m < choice->super->member_count; m++) {
        if (choice->super->members[m].state == MEMBER_IN_SYNC && choice->voters[m] == NULL) {
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
                        struct errmsg *reterr) {
    char names[320] = "";
    name_absent(c, all, all_count, names, sizeof(names));
    if (!quorum_reached(c->in_sync, c->present, c->witness_votes)) {
        return errmsg_set(reterr, ERR_QUORUM,
                          "pool %s: %" PRIu32 " of %" PRIu32 " disks are here, no majority%s. "
                          "Attach the rest, or import with --force-quorum, which shuts it out for "
                          "good. Missing: %s",
                          c->super->name, c->present, c->in_sync,
                          c->witness_votes ? "" : " without the witness of the host that used it",
                          names);
    }
    if (c->in_sync - c->present >= c->super->meta_copies) {
        return errmsg_set(reterr, ERR_DATA_LOSS,
                          "pool %s: %" PRIu32 " of %" PRIu32 " disks are absent, more than it can "
                          "lose without losing data. Attach them, or import with --force-quorum to "
                          "save what is left. Missing: %s",
                          c->super->name, c->in_sync - c->present, c->in_sync, names);
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
                        uint32_t all_count, const struct witness_view *w, struct choice *choice,
                        struct errmsg *reterr) {
    const struct super_phys *s = choice->super;
    if (options->read_only) {
        return OK;
    }
    bool newer = witness_knows_newer(w, s);
    if (newer && !options->force_quorum) {
        char names[256] = "";
        name_absent(choice, all, all_count, names, sizeof(names));
        return errmsg_set(reterr, ERR_STALE,
                          "pool %s: the disks here are older than what this host last used; the "
                          "disks that went on without them are missing. Attach those, or import "
                          "with --force-quorum and lose what was written since. Missing: %s",
                          s->name, names);
    }
    int error = check_quorum(choice, all, all_count, options->force_quorum ? NULL : reterr);
    choice->forced = newer || error != OK;
    if (error != OK && (!options->force_quorum || choice->present == 0)) {
        return error;
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
        fill_choice(&candidates[0], probes, count, choice);
    }
    if ((error = refuse_clones(probes, count, reterr)) == OK &&
        (error = refuse_newer_versions(probes, count, options, reterr)) == OK) {
        if (found == 0) {
            error = errmsg_set(reterr, ERR_CORRUPT, "pool %s: no disk of it can be used: %s",
                               probes[0]->label.pool_name, probes[0]->problem.text);
        } else if ((error = refuse_two_sides(candidates, found, probes, count, reterr)) == OK) {
            error = check_choice(options, all, all_count, &witness, choice, reterr);
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
