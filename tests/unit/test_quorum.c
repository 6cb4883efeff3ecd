// SPDX-License-Identifier: MPL-2.0
/* Who may import: the table of quorums against a predicate written another way, and importers on
 * two hosts that get random disks and lose power at random writes. Invariant 13. */
#include "pool_rig.h"

#include "base/sabotage.h"

/* ---- a host whose program comes and goes; its records stay ---- */

struct host {
    struct fake_record records[FAKE_RECORDS_MAX];
    uint32_t record_count;
    uint64_t boots, now_ns;
    struct fake_env env;
    struct mem_scope scope;
    struct mem_scope *outer;
};

static void host_up(struct host *h, struct rig *rig, uint64_t seed) {
    mem_scope_init(&h->scope);
    h->outer = mem_scope_enter(&h->scope);
    fake_init(&h->env, &rig->world, seed * 1000 + h->boots++);
    memcpy(h->env.records, h->records, sizeof(h->records));
    h->env.record_count = h->record_count;
    h->env.now_ns = MAX(h->now_ns, h->env.now_ns);
}

/* Whether it lost power or was stopped makes no difference here. */
static void host_down(struct host *h) {
    memcpy(h->records, h->env.records, sizeof(h->records));
    h->record_count = h->env.record_count;
    h->now_ns = h->env.now_ns;
    fake_power_cut(&h->env);
    mem_scope_enter(h->outer);
    mem_scope_drop(&h->scope);
    h->env.world->cut = false;
    h->env.world->cut_at = 0;
}

static void host_forget(struct host *h, const char *prefix) {
    for (uint32_t i = 0; i < h->record_count; i++) {
        if (strncmp(h->records[i].name, prefix, strlen(prefix)) == 0) {
            h->records[i] = h->records[--h->record_count];
            return;
        }
    }
}

/* Only looks, or takes the pool and writes a superblock. */
static int import_once(struct host *h, struct rig *rig, bool take) {
    host_up(h, rig, 1);
    struct call c = call_on(&h->env, rig);
    c.force_host = true;
    int error = take ? run_open_and_take(&c) : run(&c, do_open);
    if (take && error == OK) {
        assert_int_equal(run(&c, do_commit), OK);
    }
    host_down(h);
    return error;
}

/* ---- the table ---- */

enum witness_kind {
    FRESH,   /* of the newest mount */
    BEHIND,  /* of this host, which lost power before it could write the newest */
    STALE,   /* of a mount before, by a host that has not been the last one */
    NEWER,   /* knows more than the disks */
    UNKNOWN, /* none */
    WITNESS_KINDS
};

/* A side of a split decides iff it outweighs the other, or weighs the same and has the witness, or
 * there is nobody on the other side. */
static bool side_decides(uint32_t members, uint32_t mine, bool witness) {
    uint32_t here = mine + (witness ? 1 : 0), there = members - mine + (witness ? 0 : 1);
    return mine != 0 && (mine == members || here > there || (here == there && witness));
}

static int expected(uint32_t members, uint32_t mine, enum witness_kind kind, uint32_t copies) {
    bool witness = kind == FRESH || kind == BEHIND;
    assert_false(side_decides(members, mine, witness) &&
                 side_decides(members, members - mine, !witness));
    return mine == 0                               ? ERR_NOT_FOUND
           : kind == NEWER                         ? ERR_STALE
           : !side_decides(members, mine, witness) ? ERR_QUORUM
           : members - mine >= copies              ? ERR_DATA_LOSS
                                                   : OK;
}

struct table_world {
    struct rig rig;
    struct host kinds[WITNESS_KINDS];
    uint8_t *image[RIG_DISKS_MAX];
};

static void table_setup(struct table_world *w, uint32_t members, uint32_t copies) {
    memset(w, 0, sizeof(*w));
    rig_init(&w->rig, members);
    struct host *a = &w->kinds[FRESH], *b = &w->kinds[STALE];
    host_up(a, &w->rig, 1);
    struct call c = call_on(&a->env, &w->rig);
    c.meta_copies = copies;
    assert_int_equal(run(&c, do_create), OK);
    host_down(a);
    host_up(b, &w->rig, 2);
    struct call d = call_on(&b->env, &w->rig);
    assert_int_equal(run_open_and_take(&d), OK);
    host_down(b);
    w->kinds[BEHIND] = *a;
    assert_int_equal(import_once(a, &w->rig, true), OK);
    for (uint32_t i = 0; i < members; i++) {
        w->image[i] = malloc(RIG_DISK_BYTES);
        memcpy(w->image[i], w->rig.world.media[i].bytes, RIG_DISK_BYTES);
    }
    w->kinds[UNKNOWN] = *a;
    host_forget(&w->kinds[UNKNOWN], "pool-");
    w->kinds[NEWER] = *a;
    assert_int_equal(import_once(&w->kinds[NEWER], &w->rig, true), OK);
}

static void table_check(struct table_world *w, uint32_t members, uint32_t copies, uint32_t mask,
                        enum witness_kind kind) {
    for (uint32_t i = 0; i < members; i++) {
        memcpy(w->rig.world.media[i].bytes, w->image[i], RIG_DISK_BYTES);
    }
    rig_present(&w->rig, mask);
    struct host host = w->kinds[kind];
    int error = import_once(&host, &w->rig, true);
    int want = expected(members, (uint32_t)__builtin_popcount(mask), kind, copies);
    if (error != want) {
        fail_msg("%u members, %x present, witness %d: %s instead of %s", members, mask, (int)kind,
                 error_name(error), error_name(want));
    }
    if (want == OK) { /* and then what was left out is out, and the rest needs nobody */
        rig_present(&w->rig, ~mask);
        assert_true(mask + 1 == 1u << members || import_once(&host, &w->rig, false) == ERR_STALE);
        rig_present(&w->rig, mask);
        assert_int_equal(import_once(&w->kinds[UNKNOWN], &w->rig, false), OK);
        rig_present(&w->rig, ~0u);
        assert_int_equal(import_once(&w->kinds[UNKNOWN], &w->rig, false), OK);
    }
}

static void quorum_table(void **state) {
    (void)state;
    for (uint32_t members = 1; members <= 6; members++) {
        for (uint32_t copies = MIN(members, 2u); copies <= MIN(members, 4u); copies += 2) {
            struct table_world *w = malloc(sizeof(*w));
            table_setup(w, members, copies);
            for (uint32_t mask = 0; mask < 1u << members; mask++) {
                for (int kind = 0; kind < WITNESS_KINDS; kind++) {
                    table_check(w, members, copies, mask, (enum witness_kind)kind);
                }
            }
            for (uint32_t i = 0; i < members; i++) {
                free(w->image[i]);
            }
            rig_done(&w->rig);
            free(w);
        }
    }
}

/* ---- two hosts, random disks, power cuts ---- */

/* What the pool may hold: a number hung on the superblock. `values` are what a correct import may
 * find: the last one known durable, and those whose commit was cut off since. */
struct register_model {
    uint64_t values[64];
    uint32_t count;
};

static bool model_allows(const struct register_model *m, uint64_t value) {
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->values[i] == value) {
            return true;
        }
    }
    return false;
}

static uint32_t imports, refusals, cuts, losses, stuck;

/* One host comes up, sees the disks of `mask`, tries to import and to write `value`, and perhaps
 * loses power on the way. True if it had the pool. */
static bool importer(struct host *h, struct rig *rig, uint32_t mask, uint64_t cut_after,
                     uint64_t value, struct register_model *model) {
    rig_present(rig, mask);
    host_up(h, rig, value);
    if (cut_after != 0) {
        rig->world.cut_at = rig->world.writes + cut_after;
        rig->world.cut_keep = (int)rng_below(&rig->world.rng, 4);
    }
    bool imported = false;
    struct call c = call_on(&h->env, rig);
    c.force_host = true;
    c.roots.log_start = value;
    c.error = ERR_AGAIN;
    bool up = fake_run(&h->env, do_open, &c);
    if (up && c.error == OK && (up = fake_run(&h->env, do_take, &c)) && c.error == OK) {
        uint64_t found = c.pool->super.roots.log_start;
        losses += !model_allows(model, found);
        imports++;
        *model = (struct register_model){{found}, 1};
        model->values[model->count++] = value;
        up = fake_run(&h->env, do_commit, &c);
        if (up && c.error == OK) {
            *model = (struct register_model){{value}, 1};
        }
        imported = true;
    } else if (up) {
        refusals++;
        losses += c.error != ERR_QUORUM && c.error != ERR_STALE && c.error != ERR_DATA_LOSS &&
                  c.error != ERR_NOT_FOUND;
    }
    cuts += !up;
    host_down(h);
    return imported;
}

static void two_hosts(uint64_t seed) {
    struct host *hosts = calloc(2, sizeof(*hosts));
    struct rig rig;
    struct rng rng;
    rng_init(&rng, seed);
    rig_init(&rig, (uint32_t)rng_between(&rng, 1, 6));
    rng_init(&rig.world.rng, seed);
    host_up(&hosts[0], &rig, seed);
    struct call c = call_on(&hosts[0].env, &rig);
    c.meta_copies = MIN(rig.count, 4u);
    assert_int_equal(run(&c, do_create), OK);
    host_down(&hosts[0]);
    struct register_model model = {{0}, 1};
    const uint32_t all = (1u << rig.count) - 1;
    for (uint64_t step = 1; step <= 10; step++) {
        uint32_t mask = rng_chance(&rng, 1, 2) ? all & ~(1u << rng_below(&rng, rig.count))
                                               : (uint32_t)rng_between(&rng, 1, all);
        uint64_t cut = rng_chance(&rng, 2, 3) ? rng_between(&rng, 1, 6 * rig.count) : 0;
        importer(&hosts[rng_below(&rng, 2)], &rig, mask, cut, step, &model);
    }
    /* With every disk there one of the hosts can go on, whatever happened, and then both can. */
    bool first = importer(&hosts[0], &rig, all, 0, 11, &model);
    bool second = importer(&hosts[1], &rig, all, 0, 12, &model);
    stuck += !first && !second;
    stuck += (first || second) && !importer(&hosts[0], &rig, all, 0, 13, &model);
    stuck += (first || second) && !importer(&hosts[1], &rig, all, 0, 14, &model);
    rig_done(&rig);
    free(hosts);
}

static void importers_on_two_hosts(void **state) {
    (void)state;
    const char *text = getenv("HOLDFAST_SEEDS"); /* for longer runs */
    uint64_t seeds = text != NULL ? strtoull(text, NULL, 10) : 400;
    imports = refusals = cuts = losses = stuck = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        two_hosts(seed);
        if (losses != 0 || stuck != 0) {
            fail_msg("seed %lu: %s", (unsigned long)seed,
                     losses != 0 ? "a committed value was lost" : "no host can import");
        }
    }
    assert_true(imports > 1000 && refusals > 500 && cuts > 500); /* it did meet all of them */
}

#ifdef HOLDFAST_SABOTAGE
/* The test above can fail. */
static void an_ignored_witness_is_caught(void **state) {
    (void)state;
    sabotage_on = SABOTAGE_witness_ignored;
    losses = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        two_hosts(seed);
    }
    sabotage_on = SABOTAGE_NONE;
    assert_true(losses != 0);
}
#endif

/* ---- by force ---- */

static void two_forced_sides_are_not_merged(void **state) {
    (void)state;
    struct rig rig;
    struct host a = {0}, b = {0};
    rig_init(&rig, 2);
    host_up(&a, &rig, 1);
    struct call c = call_on(&a.env, &rig);
    assert_int_equal(run(&c, do_create), OK);
    assert_int_equal(run_open_and_take(&c), OK);
    host_down(&a);
    rig_present(&rig, 1);
    assert_int_equal(import_once(&a, &rig, true), OK); /* with the witness */
    rig_present(&rig, 2);
    assert_int_equal(import_once(&b, &rig, true), ERR_QUORUM);
    host_up(&b, &rig, 2);
    c = call_on(&b.env, &rig);
    c.force_host = true;
    c.force_quorum = true;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(run(&c, do_commit), OK);
    host_down(&b);
    rig_present(&rig, 3);
    host_up(&a, &rig, 1);
    c = call_on(&a.env, &rig);
    c.force_host = true;
    assert_int_equal(run(&c, do_open), ERR_FOREIGN);
    assert_says(&c, "used apart on two sides");
    assert_says(&c, "d1");
    host_down(&a);
    rig_present(&rig, 1);
    assert_int_equal(import_once(&a, &rig, true), OK); /* one side goes on */
    rig_done(&rig);
}

static void force_fences_those_left_out(void **state) {
    (void)state;
    struct rig rig;
    struct host a = {0};
    rig_init(&rig, 4);
    host_up(&a, &rig, 1);
    struct call c = call_on(&a.env, &rig);
    assert_int_equal(run(&c, do_create), OK);
    host_down(&a);
    rig_present(&rig, 1);
    assert_int_equal(import_once(&a, &rig, true), ERR_QUORUM);
    host_up(&a, &rig, 2);
    c = call_on(&a.env, &rig);
    c.force_quorum = true;
    assert_int_equal(run_open_and_take(&c), OK);
    assert_int_equal(pool_in_sync_count(c.pool), 1);
    host_down(&a);
    rig_present(&rig, 15);
    host_up(&a, &rig, 3);
    c = call_on(&a.env, &rig);
    assert_int_equal(run_open_and_take(&c), OK); /* the forced side, not the three */
    assert_int_equal(pool_in_sync_count(c.pool), 1);
    host_down(&a);
    rig_done(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quorum_table),
        cmocka_unit_test(importers_on_two_hosts),
#ifdef HOLDFAST_SABOTAGE
        cmocka_unit_test(an_ignored_witness_is_caught),
#endif
        cmocka_unit_test(two_forced_sides_are_not_merged),
        cmocka_unit_test(force_fences_those_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
