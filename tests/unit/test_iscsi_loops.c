// SPDX-License-Identifier: MPL-2.0
/* A target on two loops, turned by hand: what happens between them happens here in every order that
 * matters, each loop standing still while the other goes on. (test_iscsi_threads.c is the same with
 * threads and chance.) The volume is on the first loop. */
#include "iscsi_host.h"

#define FAR "192.0.2.2:3260" /* the portal of the second loop, in the same group */

enum { MIB = 1 << 20, LOGIN_NO_SESSION = 0x020a };

struct loops {
    struct world w;
    struct fake_env second;
};

static void settle(struct loops *l) {
    for (int i = 0; i < 6; i++) {
        fake_env_settle(&l->w.fake);
        fake_env_settle(&l->second);
    }
}

static int loops_setup(void **state) {
    struct loops *l = MEM_NEW(struct loops);
    struct world *w = &l->w;
    fake_env_init(&w->fake);
    fake_env_init(&l->second);
    memory_volume_init(&w->volume, &w->fake.env, LUN_BYTES, 512);
    w->scsi = scsi_target_new(&w->fake.env);
    assert_int_equal(scsi_lun_add(w->scsi, 0, &w->volume.door, &w->volume.info, NULL), OK);
    struct env *const others[] = {&l->second.env};
    struct iscsi_options options = {.event = on_event,
                                    .event_owner = w,
                                    .loops = others,
                                    .loop_count = 1,
                                    .memory_bytes = 8 * MIB};
    w->server = iscsi_server_new(&w->fake.env, &options);
    assert_int_equal(iscsi_portal_add(w->server, PORTAL ",1", NULL), OK);
    assert_int_equal(iscsi_portal_add_on(w->server, 1, FAR ",1", NULL), OK);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, NULL), OK);
    settle(l);
    *state = l;
    return 0;
}

static int loops_teardown(void **state) {
    struct loops *l = *state;
    struct world *w = &l->w;
    if (!w->stopped) {
        iscsi_server_stop(w->server, w->fake.now_ns + NS_PER_S, on_stopped, w);
        settle(l);
        fake_env_advance(&w->fake, 2 * NS_PER_S);
        settle(l);
    }
    assert_true(w->stopped);
    memory_volume_let_go(&w->volume);
    settle(l);
    assert_true(scsi_target_is_idle(w->scsi));
    iscsi_server_free(w->server);
    scsi_target_free(w->scsi);
    memory_volume_done(&w->volume);
    fake_env_done(&w->fake);
    fake_env_done(&l->second);
    mem_free(l);
    return 0;
}

static void far_login(struct host *h, struct loops *l, uint8_t isid) {
    host_connect_at(h, &l->w, &l->second, FAR, "192.0.2.8:50000");
    h->isid = isid;
    assert_int_equal(login_status(h, 0x87, TEXT(NAMES)), 0);
    h->tsih = get_be16(h->bhs + AT_TSIH);
    ready(h);
}

static const uint8_t read_cdb[16] = {0x28, 0, 0, 0, 0, 0, 0, 0, 1};

/* A login on the first loop that has to wait for the second. */
static void near_login_waits(struct host *h, struct loops *l, const struct host *other,
                             uint16_t tsih) {
    host_connect(h, &l->w);
    h->isid = other->isid;
    h->tsih = tsih;
    h->cmd_sn = other->cmd_sn;
    send_login(h, 0x87, TEXT(NAMES));
    assert_false(try_receive(h));
}

static uint32_t sessions(struct loops *l) {
    return iscsi_session_list(l->w.server, NULL, 0);
}

/* ---- a session in the way, on the other loop ---- */

static void a_login_waits_for_the_session_in_its_way(void **state) {
    struct loops *l = *state;
    struct host a, b;
    far_login(&a, l, 1);
    l->w.volume.hold = true;
    send_command(&a, READS, read_cdb, 10, 512, NULL, 0);
    fake_env_settle(&l->w.fake);
    near_login_waits(&b, l, &a, 0);
    /* What it sends meanwhile is not looked at. */
    uint8_t ping[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
    put_be32(ping + AT_ITT, 5);
    put_be32(ping + AT_TTT, ISCSI_TAG_NONE);
    put_be32(ping + AT_CMDSN, b.cmd_sn);
    send_pdu(&b, ping, NULL, 0);
    assert_false(try_receive(&b));
    assert_false(a.peer.closed);
    fake_env_settle(&l->second);
    assert_true(a.peer.closed);
    assert_false(try_receive(&b));
    assert_int_equal(sessions(l), 0);
    fake_env_settle(&l->w.fake);
    receive(&b, OP_LOGIN_RESPONSE);
    assert_int_equal(get_be16(b.bhs + AT_LOGIN_STATUS), 0);
    receive(&b, OP_NOP_IN);
    assert_int_equal(sessions(l), 1);
    ready(&b);
    memory_volume_let_go(&l->w.volume);
    settle(l);
    assert_false(try_receive(&b));
    host_free(&a);
    host_free(&b);
}

static void a_session_goes_to_the_other_loop(void **state) {
    struct loops *l = *state;
    struct host a, b;
    struct iscsi_session_status status;
    far_login(&a, l, 1);
    l->w.volume.hold = true;
    send_command(&a, READS, read_cdb, 10, 512, NULL, 0);
    near_login_waits(&b, l, &a, a.tsih);
    settle(l);
    assert_true(a.peer.closed);
    receive(&b, OP_LOGIN_RESPONSE);
    assert_int_equal(get_be16(b.bhs + AT_LOGIN_STATUS), 0);
    assert_int_equal(get_be16(b.bhs + AT_TSIH), a.tsih);
    memory_volume_let_go(&l->w.volume);
    settle(l);
    assert_false(try_receive(&b));
    send_command(&b, NEITHER, CDB(0), 0, NULL, 0); /* no attention: it is the same nexus */
    receive(&b, OP_SCSI_RESPONSE);
    assert_int_equal(b.bhs[AT_STATUS], SCSI_GOOD);
    send_command(&b, READS, read_cdb, 10, 512, NULL, 0);
    receive(&b, OP_DATA_IN);
    assert_int_equal(iscsi_session_list(l->w.server, &status, 1), 1);
    assert_int_equal(status.read_bytes, 512);
    assert_int_equal(status.commands, 0);
    host_free(&a);
    host_free(&b);
    assert_int_equal(sessions(l), 0);
}

/* Whoever waits gives up at his deadline; what was given up for him ends. */
static void who_waits_may_go(void **state) {
    struct loops *l = *state;
    for (int moves = 0; moves < 2; moves++) {
        struct host a, b;
        far_login(&a, l, 1);
        near_login_waits(&b, l, &a, moves ? a.tsih : 0);
        fake_env_advance(&l->w.fake, (ISCSI_LOGIN_S + 1) * NS_PER_S);
        assert_true(b.peer.closed);
        assert_non_null(strstr(l->w.event, "the login took too long"));
        settle(l);
        assert_true(a.peer.closed);
        assert_int_equal(sessions(l), 0);
        assert_true(scsi_target_is_idle(l->w.scsi));
        host_free(&a);
        host_free(&b);
    }
}

/* The session ends by itself before the order arrives. */
static void the_session_may_have_gone(void **state) {
    struct loops *l = *state;
    for (int moves = 0; moves < 2; moves++) {
        struct host a, b;
        far_login(&a, l, 1);
        near_login_waits(&b, l, &a, moves ? a.tsih : 0);
        fake_peer_hang_up(&a.peer);
        settle(l);
        receive(&b, OP_LOGIN_RESPONSE);
        assert_int_equal(get_be16(b.bhs + AT_LOGIN_STATUS), moves ? LOGIN_NO_SESSION : 0);
        host_free(&a);
        host_free(&b);
    }
}

/* A third one with the same name is quicker: the first who waited begins again with it. */
static void another_may_be_quicker(void **state) {
    struct loops *l = *state;
    struct host a, b, c;
    far_login(&a, l, 1);
    near_login_waits(&b, l, &a, 0);
    fake_env_settle(&l->second); /* a is closed; b has still to hear of it */
    host_connect_at(&c, &l->w, &l->second, FAR, "192.0.2.9:50000");
    assert_int_equal(login_status(&c, 0x87, TEXT(NAMES)), 0);
    fake_env_settle(&l->w.fake);
    assert_false(try_receive(&b));
    settle(l);
    receive(&b, OP_LOGIN_RESPONSE);
    assert_int_equal(get_be16(b.bhs + AT_LOGIN_STATUS), 0);
    assert_true(c.peer.closed);
    assert_int_equal(sessions(l), 1);
    host_free(&a);
    host_free(&b);
    host_free(&c);
}

/* While a session is between two loops its target goes, or it may not use it any more. */
static void what_it_was_for_may_go(void **state) {
    struct loops *l = *state;
    const struct iscsi_rule nobody = {.initiator = "iqn.2025-01.org.example:somebody"};
    const struct iscsi_access access = {.rules = &nobody, .rule_count = 1};
    for (int round = 0; round < 2; round++) {
        struct host a, b;
        far_login(&a, l, 1);
        near_login_waits(&b, l, &a, a.tsih);
        fake_env_settle(&l->second); /* given up */
        if (round == 0) {
            assert_int_equal(iscsi_target_set_access(l->w.server, TARGET, &access, NULL), OK);
        } else {
            assert_int_equal(iscsi_target_remove(l->w.server, TARGET, NULL), OK);
        }
        settle(l);
        receive(&b, OP_LOGIN_RESPONSE);
        assert_int_equal(get_be16(b.bhs + AT_LOGIN_STATUS), round == 0 ? 0x0202 : LOGIN_NO_SESSION);
        assert_int_equal(sessions(l), 0);
        assert_true(scsi_target_is_idle(l->w.scsi));
        host_free(&a);
        host_free(&b);
        assert_int_equal(round == 0 ? iscsi_target_set_access(l->w.server, TARGET, NULL, NULL) : OK,
                         OK);
    }
}

static void a_stop_ends_it_all(void **state) {
    struct loops *l = *state;
    struct host a, b, c;
    far_login(&a, l, 1);
    near_login_waits(&b, l, &a, a.tsih);
    far_login(&c, l, 2);
    l->w.volume.hold = true;
    send_command(&c, READS, read_cdb, 10, 512, NULL, 0);
    iscsi_server_stop(l->w.server, l->w.fake.now_ns + NS_PER_S, on_stopped, &l->w);
    settle(l);
    assert_true(a.peer.closed && b.peer.closed && !c.peer.closed && !l->w.stopped);
    fake_env_advance(&l->w.fake, 2 * NS_PER_S);
    assert_false(c.peer.closed); /* its loop has not turned */
    settle(l);
    assert_true(c.peer.closed && l->w.stopped);
    assert_int_equal(scsi_target_outstanding(l->w.scsi), 1);
    host_free(&a);
    host_free(&b);
    host_free(&c);
}

/* ---- what is done to the sessions of the other loop ---- */

static void access_is_lost_at_once(void **state) {
    struct loops *l = *state;
    const struct iscsi_rule nobody = {.initiator = "iqn.2025-01.org.example:somebody"};
    const struct iscsi_access access = {.rules = &nobody, .rule_count = 1};
    struct host a;
    far_login(&a, l, 1);
    l->w.volume.hold = true;
    send_command(&a, READS, read_cdb, 10, 512, NULL, 0);
    assert_int_equal(iscsi_target_set_access(l->w.server, TARGET, &access, NULL), OK);
    uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND, NEITHER}; /* it is there before the order */
    put_be32(bhs + AT_ITT, a.itt++);
    put_be32(bhs + AT_CMDSN, a.cmd_sn++);
    send_pdu(&a, bhs, NULL, 0);
    assert_true(a.peer.closed);
    assert_int_equal(sessions(l), 0);
    assert_int_equal(l->w.volume.counts[VOLUME_READ], 0);
    host_free(&a);
}

static void reset(struct host *h) {
    assert_int_equal(send_management(h, 5, ISCSI_TAG_NONE, 0), 0);
}

/* A reset is answered at once, while the other loop stands still; nothing of what it dropped there
 * is answered then, in whatever state it was. */
static void a_reset_reaches_the_other_loop(void **state) {
    struct loops *l = *state;
    struct host a, b;
    uint8_t data[4096];
    const uint8_t write_cdb[16] = {0x2a, 0, 0, 0, 0, 8, 0, 0, 8};
    memset(data, 0x5a, sizeof(data));
    far_login(&a, l, 1);
    login_with(&b, &l->w, 2, TEXT(NAMES));
    ready(&b);
    l->w.volume.hold = true;
    send_command(&a, READS, read_cdb, 10, 512, NULL, 0);                   /* in the volume */
    uint32_t itt = send_command(&a, WRITES, write_cdb, 10, 4096, NULL, 0); /* waits for its data */
    receive(&a, OP_R2T);
    uint32_t ttt = get_be32(a.bhs + AT_TTT);
    fake_env_settle(&l->w.fake);
    reset(&b);
    l->w.volume.hold = false;
    /* The data come before the loop has heard of it. */
    send_data_out(&a, itt, ttt, 0, 0, data, sizeof(data), true);
    memory_volume_let_go(&l->w.volume);
    settle(l);
    assert_false(try_receive(&a));
    assert_int_equal(l->w.volume.counts[VOLUME_WRITE], 0);
    send_command(&a, NEITHER, CDB(0), 0, NULL, 0);
    receive(&a, OP_SCSI_RESPONSE);
    assert_int_equal(get_be16(a.data + 2 + 12), 0x2903);
    /* One that has been carried out, but whose loop has not turned since. */
    send_command(&a, READS, read_cdb, 10, 512, NULL, 0);
    fake_env_settle(&l->w.fake);
    reset(&b);
    settle(l);
    assert_false(try_receive(&a));
    assert_int_equal(scsi_target_outstanding(l->w.scsi), 0);
    host_free(&a);
    host_free(&b);
}

/* Reservations are changed by one loop after the other, in the order of their coming. */
static void reservations_meet(void **state) {
    struct loops *l = *state;
    struct host a, b;
    const uint8_t prout[16] = {0x5f, 6, 0, 0, 0, 0, 0, 0, 24};
    uint8_t list[24] = {[15] = 1, [20] = 1}; /* stored */
    far_login(&a, l, 1);
    login_with(&b, &l->w, 2, TEXT(NAMES));
    ready(&b);
    l->w.volume.hold = true;
    send_command(&a, WRITES, prout, 10, 24, list, 24);
    fake_env_settle(&l->w.fake);
    send_command(&b, WRITES, prout, 10, 24, list, 24);
    settle(l);
    assert_false(try_receive(&a));
    assert_false(try_receive(&b));
    memory_volume_let_go(&l->w.volume);
    settle(l);
    receive(&a, OP_SCSI_RESPONSE);
    assert_int_equal(a.bhs[AT_STATUS], SCSI_GOOD);
    receive(&b, OP_SCSI_RESPONSE);
    assert_int_equal(b.bhs[AT_STATUS], SCSI_GOOD);
    send_command(&a, READS, CDB(0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0), 64, NULL, 0);
    receive(&a, OP_DATA_IN);
    assert_int_equal(get_be32(a.data + 4), 16);
    host_free(&a);
    host_free(&b);
}

/* Memory that one loop gives back goes to who waits on the other. */
static void memory_comes_from_the_other_loop(void **state) {
    struct loops *l = *state;
    struct host a, b;
    const uint8_t big_write[16] = {0x2a, 0, 0, 0, 0, 0, 0, 0x20, 0}; /* 4 MiB */
    const uint8_t big_read[16] = {0x28, 0, 0, 0, 0, 0, 0, 0x08, 0};  /* 1 MiB */
    far_login(&a, l, 1);
    send_command(&a, WRITES, big_write, 10, 4 * MIB, NULL, 0);
    receive(&a, OP_R2T);
    login_with(&b, &l->w, 2, TEXT(NAMES));
    ready(&b);
    l->w.volume.hold = true;
    send_command(&b, READS, big_read, 10, MIB, NULL, 0);
    send_command(&b, READS, big_read, 10, MIB, NULL, 0);
    assert_int_equal(scsi_target_outstanding(l->w.scsi), 3);
    assert_true(l->w.volume.held.next->next == &l->w.volume.held); /* one has no memory */
    host_free(&a);
    fake_env_settle(&l->w.fake);
    assert_true(l->w.volume.held.next->next != &l->w.volume.held);
    host_free(&b);
}

#define ON_LOOPS(f) cmocka_unit_test_setup_teardown(f, loops_setup, loops_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_LOOPS(a_login_waits_for_the_session_in_its_way),
        ON_LOOPS(a_session_goes_to_the_other_loop),
        ON_LOOPS(who_waits_may_go),
        ON_LOOPS(the_session_may_have_gone),
        ON_LOOPS(another_may_be_quicker),
        ON_LOOPS(what_it_was_for_may_go),
        ON_LOOPS(a_stop_ends_it_all),
        ON_LOOPS(access_is_lost_at_once),
        ON_LOOPS(a_reset_reaches_the_other_loop),
        ON_LOOPS(reservations_meet),
        ON_LOOPS(memory_comes_from_the_other_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
