// SPDX-License-Identifier: MPL-2.0
/* A power cut at every write of create, take, commit and expulsion, with the write under the cut
 * lost, torn in several ways, or complete: the pool that is found afterwards is the one before or
 * the one after, has all its members, and goes on. */
#include "pool_rig.h"

enum { DISKS = 3, KEEPS = 4, TRIES = 3 };

enum step { CREATE, TAKE, COMMIT, EXPEL, STEPS };

struct run_once {
    struct rig rig;
    struct fake_env host;
    struct mem_scope scope, *outer;
};

static void power_on(struct run_once *r, uint64_t seed) {
    struct fake_record records[FAKE_RECORDS_MAX];
    uint32_t count = r->host.record_count;
    memcpy(records, r->host.records, sizeof(records));
    mem_scope_init(&r->scope);
    r->outer = mem_scope_enter(&r->scope);
    fake_init(&r->host, &r->rig.world, seed);
    memcpy(r->host.records, records, sizeof(records));
    r->host.record_count = count;
}

static void power_off(struct run_once *r) {
    fake_power_cut(&r->host);
    mem_scope_enter(r->outer);
    mem_scope_drop(&r->scope);
    r->rig.world.cut = false;
    r->rig.world.cut_at = 0;
}

static void expel_and_settle(void *arg) {
    struct call *c = arg;
    pool_expel(c->pool, 1, "for the test");
    c->error = pool_settle(c->pool);
}

/* Runs up to the step under test and then the step; true if it ended before the cut. */
static bool run_step(struct run_once *r, enum step step, uint64_t cut, int keep, uint64_t seed) {
    struct call c = call_on(&r->host, &r->rig);
    if (step != CREATE) {
        assert_int_equal(run(&c, do_create), OK);
        assert_int_equal(run(&c, do_open), OK);
    }
    if (step > TAKE) {
        assert_int_equal(run(&c, do_take), OK);
        c.roots.log_start = 1;
        assert_int_equal(run(&c, do_commit), OK);
    }
    rng_init(&r->rig.world.rng, seed);
    r->rig.world.cut_at = r->rig.world.writes + cut;
    r->rig.world.cut_keep = keep;
    c.roots.log_start = 2;
    static void (*const steps[STEPS])(void *) = {do_create, do_take, do_commit, expel_and_settle};
    bool ended = fake_run(&r->host, steps[step], &c);
    assert_true(!ended || c.error == OK);
    return ended;
}

static void look(struct run_once *r, enum step step) {
    struct call c = call_on(&r->host, &r->rig);
    int error = run(&c, do_open);
    if (step == CREATE && error != OK) { /* half-made: nothing, or in need of its missing labels */
        assert_true(error == ERR_NOT_FOUND || error == ERR_QUORUM || error == ERR_DATA_LOSS ||
                    error == ERR_BUSY);
        c.force = true;
        assert_int_equal(run(&c, do_create), OK);
        assert_int_equal(run(&c, do_open), OK);
    }
    uint64_t found = c.pool->super.roots.log_start;
    assert_true(step == COMMIT  ? found == 1 || found == 2
                : step == EXPEL ? found == 1
                                : found == 0);
    uint32_t in_sync = pool_in_sync_count(c.pool);
    if (step == EXPEL) {
        assert_true(in_sync == DISKS || (in_sync == DISKS - 1 && !pool_member_in_sync(c.pool, 1)));
    } else if (step != CREATE) {
        assert_int_equal(in_sync, DISKS);
        for (uint32_t i = 0; i < DISKS; i++) {
            assert_non_null(c.pool->disks[i]);
        }
    }
    assert_int_equal(run(&c, do_take), OK);
    if (step != CREATE) {
        assert_int_equal(pool_in_sync_count(c.pool), in_sync);
    }
    c.roots.log_start = 3;
    assert_int_equal(run(&c, do_commit), OK);
    run_close(&c);
    assert_int_equal(run(&c, do_open), OK);
    assert_int_equal(c.pool->super.roots.log_start, 3);
    run_close(&c);
}

static void cut_everywhere(enum step step) {
    uint64_t cuts = 0;
    bool ended = false;
    for (uint64_t cut = 1; !ended; cut++) {
        for (int keep = 0; keep < KEEPS; keep++) {
            for (uint64_t seed = 1; seed <= TRIES; seed++) {
                struct run_once *r = calloc(1, sizeof(*r));
                rig_init(&r->rig, DISKS);
                power_on(r, seed);
                ended = run_step(r, step, cut, keep, seed * 100 + cut);
                cuts += !ended;
                power_off(r);
                power_on(r, seed + 50);
                look(r, step);
                power_off(r);
                rig_done(&r->rig);
                free(r);
            }
        }
    }
    assert_true(cuts >= 4ull * KEEPS * TRIES); /* each step has at least four writes */
}

static void power_cuts_while_creating(void **state) {
    (void)state;
    cut_everywhere(CREATE);
}

static void power_cuts_while_taking(void **state) {
    (void)state;
    cut_everywhere(TAKE);
}

static void power_cuts_while_committing(void **state) {
    (void)state;
    cut_everywhere(COMMIT);
}

static void power_cuts_while_expelling(void **state) {
    (void)state;
    cut_everywhere(EXPEL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_cuts_while_creating),
        cmocka_unit_test(power_cuts_while_taking),
        cmocka_unit_test(power_cuts_while_committing),
        cmocka_unit_test(power_cuts_while_expelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
