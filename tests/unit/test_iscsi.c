// SPDX-License-Identifier: MPL-2.0
/* The target over a stream in memory, driven with PDUs written out from RFC 7143: data, the window,
 * task management, life and end. Logins are test_iscsi_login.c's. */
#include "iscsi_host.h"

/* ---- tests: data ---- */

static void reads_in_bursts(void **state) {
    struct world *w = *state;
    struct host h;
    login_with(&h, w, 1,
               TEXT(NAMES "MaxRecvDataSegmentLength=4096\0MaxBurstLength=10240\0"
                          "HeaderDigest=CRC32C\0DataDigest=CRC32C"));
    h.digests = true;
    ready(&h);
    fill(w->volume.data, 1 << 20, 9);
    uint32_t itt = send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 3, 0, 0, 50, 0), 25600, NULL, 0);
    uint32_t at = 0, in_burst = 0;
    for (uint32_t data_sn = 0; at < 25600; data_sn++) {
        receive(&h, OP_DATA_IN);
        assert_int_equal(get_be32(h.bhs + AT_ITT), itt);
        assert_int_equal(get_be32(h.bhs + AT_DATA_SN), data_sn);
        assert_int_equal(get_be32(h.bhs + AT_BUFFER_OFFSET), at);
        assert_true(h.data_bytes <= 4096);
        assert_memory_equal(h.data, w->volume.data + 3 * 512 + at, h.data_bytes);
        at += h.data_bytes;
        in_burst += h.data_bytes;
        bool ends = in_burst == 10240 || at == 25600;
        assert_int_equal((h.bhs[AT_FLAGS] & BHS_FINAL) != 0, ends);
        assert_int_equal((h.bhs[AT_FLAGS] & DATA_IN_STATUS) != 0, at == 25600);
        in_burst = ends ? 0 : in_burst;
    }
    assert_false(try_receive(&h));
    host_free(&h);
}

static void writes_in_every_way(void **state) {
    struct world *w = *state;
    static uint8_t data[64 << 10];
    fill(data, sizeof(data), 3);
    for (uint32_t fragment = 0; fragment < 3; fragment++) {
        struct host h;
        login_with(&h, w, 1,
                   TEXT(NAMES "InitialR2T=No\0FirstBurstLength=8192\0MaxBurstLength=16384\0"
                              "MaxOutstandingR2T=2\0DataDigest=CRC32C\0HeaderDigest=CRC32C"));
        h.digests = true;
        h.peer.read_bytes_max = fragment == 0 ? 0 : fragment * 37;
        ready(&h);
        memset(w->volume.data, 0, sizeof(data));
        /* 4096 immediate, 4096 unsolicited, the rest asked for, two sequences at a time */
        uint32_t itt = send_command(&h, WRITES_MORE, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 128, 0),
                                    sizeof(data), data, 4096);
        assert_false(try_receive(&h));
        send_data_out(&h, itt, ISCSI_TAG_NONE, 0, 4096, data + 4096, 4096, true);
        uint32_t next = 8192;
        for (uint32_t r2t_sn = 0; next < sizeof(data);) {
            uint32_t ttt[2], offset[2], length[2], count = 0;
            while (try_receive(&h)) {
                assert_int_equal(bhs_opcode(h.bhs), OP_R2T);
                assert_int_equal(get_be32(h.bhs + AT_DATA_SN), r2t_sn++);
                ttt[count] = get_be32(h.bhs + AT_TTT);
                offset[count] = get_be32(h.bhs + AT_BUFFER_OFFSET);
                length[count] = get_be32(h.bhs + AT_R2T_LENGTH);
                assert_int_equal(offset[count], next);
                assert_true(length[count] <= 16384);
                next += length[count];
                count++;
                assert_true(count <= 2);
            }
            assert_true(count > 0);
            for (uint32_t i = 0; i < count; i++) {
                uint32_t half = length[i] / 2;
                send_data_out(&h, itt, ttt[i], 0, offset[i], data + offset[i], half, false);
                send_data_out(&h, itt, ttt[i], 1, offset[i] + half, data + offset[i] + half,
                              length[i] - half, true);
            }
        }
        receive(&h, OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
        assert_int_equal(h.bhs[AT_FLAGS], BHS_FINAL);
        assert_memory_equal(w->volume.data, data, sizeof(data));
        host_free(&h);
    }
}

static void residuals(void **state) {
    struct world *w = *state;
    struct host h;
    uint8_t data[4096];
    fill(data, sizeof(data), 4);
    login(&h, w);
    static const struct {
        uint8_t flags, opcode;
        uint32_t expected, blocks, residual_flag, residual, moved;
    } cases[] = {
        {READS, 0x28, 1024, 2, 0, 0, 1024},
        {READS, 0x28, 2000, 2, RESIDUAL_UNDERFLOW, 976, 1024},
        {READS, 0x28, 700, 2, RESIDUAL_OVERFLOW, 324, 700},
        {READS, 0x28, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {NEITHER, 0x28, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {WRITES, 0x2a, 1024, 2, 0, 0, 1024},
        {WRITES, 0x2a, 2000, 2, RESIDUAL_UNDERFLOW, 976, 1024},
        {WRITES, 0x2a, 700, 2, RESIDUAL_OVERFLOW, 324, 512},
        {WRITES, 0x2a, 0, 2, RESIDUAL_OVERFLOW, 1024, 0},
        {READS, 0x00, 512, 0, RESIDUAL_UNDERFLOW, 512, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(w->volume.data, 0x77, 4096);
        bool writes = cases[i].opcode == 0x2a;
        send_command(&h, cases[i].flags,
                     CDB(cases[i].opcode, 0, 0, 0, 0, 0, 0, 0, (uint8_t)cases[i].blocks, 0),
                     cases[i].expected, data, writes ? cases[i].expected : 0);
        assert_true(try_receive(&h));
        bool data_in = !writes && cases[i].moved != 0;
        assert_int_equal(bhs_opcode(h.bhs), data_in ? OP_DATA_IN : OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
        assert_int_equal(h.bhs[AT_FLAGS] & 6, cases[i].residual_flag);
        assert_int_equal(get_be32(h.bhs + AT_RESIDUAL), cases[i].residual);
        if (data_in) {
            assert_int_equal(h.data_bytes, cases[i].moved);
        }
        if (writes) {
            assert_memory_equal(w->volume.data, data, cases[i].moved);
            assert_int_equal(w->volume.data[cases[i].moved], 0x77);
        }
    }
    host_free(&h);
}

static void data_that_do_not_come_as_agreed(void **state) {
    struct world *w = *state;
    static uint8_t data[128 << 10];
    struct host h;
    login_with(&h, w, 1, TEXT(NAMES "MaxBurstLength=65536")); /* InitialR2T=Yes */
    ready(&h);
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 0, 0, 0, 128};
    /* unsolicited although not allowed; what follows for it is ignored */
    uint32_t itt = send_command(&h, WRITES_MORE, write, 10, 65536, data, 512);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(get_be16(h.data + 2 + 12), 0x0c0c);
    send_data_out(&h, itt, ISCSI_TAG_NONE, 0, 512, data, 512, true);
    assert_false(try_receive(&h));
    static const struct {
        uint32_t data_sn, offset, bytes;
        bool final;
    } bad[] = {
        {1, 0, 512, false},
        {0, 512, 512, false},
        {0, 0, 65540, true},
        {0, 0, 512, true},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        itt = send_command(&h, WRITES, write, 10, 65536, NULL, 0);
        receive(&h, OP_R2T);
        assert_int_equal(get_be32(h.bhs + AT_R2T_LENGTH), 65536);
        send_data_out(&h, itt, get_be32(h.bhs + AT_TTT), bad[i].data_sn, bad[i].offset, data,
                      bad[i].bytes, bad[i].final);
        receive(&h, OP_SCSI_RESPONSE);
        assert_int_equal(h.bhs[AT_STATUS], SCSI_CHECK_CONDITION);
        assert_int_equal(h.data[2 + 2], 0x0b);
    }
    assert_int_equal(w->volume.counts[VOLUME_WRITE], 0);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(h.bhs[AT_STATUS], SCSI_GOOD);
    host_free(&h);
}

static void digest_errors_end_the_connection(void **state) {
    struct world *w = *state;
    for (int kind = 0; kind < 2; kind++) {
        struct host h, other;
        login_with(&other, w, 2, TEXT(NAMES));
        login_with(&h, w, 1, TEXT(NAMES "HeaderDigest=CRC32C\0DataDigest=CRC32C"));
        h.digests = true;
        ready(&h);
        uint8_t pdu[BHS_BYTES + 4 + 512 + 4] = {OP_SCSI_COMMAND, WRITES};
        put_be24(pdu + AT_DATA_LENGTH, 512);
        put_be32(pdu + AT_ITT, 99);
        put_be32(pdu + AT_COMMAND_LENGTH, 512);
        put_be32(pdu + AT_CMDSN, h.cmd_sn);
        pdu[AT_CDB] = 0x2a;
        pdu[AT_CDB + 8] = 1;
        put_digest(pdu + BHS_BYTES, crc32c(pdu, BHS_BYTES) ^ (kind == 0));
        put_digest(pdu + BHS_BYTES + 4 + 512, crc32c(pdu + BHS_BYTES + 4, 512) ^ (kind == 1));
        fake_peer_feed(&h.peer, pdu, sizeof(pdu));
        fake_env_settle(&w->fake);
        assert_true(h.peer.closed && !other.peer.closed);
        assert_int_equal(w->volume.counts[VOLUME_WRITE], 0);
        host_free(&h);
        host_free(&other);
    }
}

/* ---- tests: the window ---- */

static void the_window_holds(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    for (uint32_t i = 0; i < ISCSI_COMMANDS_MAX; i++) {
        send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    }
    assert_int_equal(w->volume.counts[VOLUME_READ], 0);
    struct iscsi_session_status status;
    assert_int_equal(iscsi_session_list(w->server, &status, 1), 1);
    assert_int_equal(status.commands, ISCSI_COMMANDS_MAX);
    /* beyond the window, and behind it: ignored */
    uint32_t next = h.cmd_sn;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    h.cmd_sn = next - 5;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < ISCSI_COMMANDS_MAX; i++) {
        receive(&h, OP_DATA_IN);
        assert_int_equal(get_be32(h.bhs + AT_EXP_CMDSN), next);
    }
    assert_int_equal(get_be32(h.bhs + AT_MAX_CMDSN), next + ISCSI_COMMANDS_MAX - 1);
    assert_false(try_receive(&h));
    /* one left out: that connection ends */
    h.cmd_sn = next + 1;
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    assert_true(h.peer.closed);
    host_free(&h);
}

static void immediate_commands_and_duplicates(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    for (uint32_t i = 0; i <= ISCSI_IMMEDIATE_MAX; i++) {
        uint8_t bhs[BHS_BYTES] = {OP_SCSI_COMMAND | BHS_IMMEDIATE, READS};
        put_be32(bhs + AT_ITT, 1000 + i);
        put_be32(bhs + AT_COMMAND_LENGTH, 512);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        bhs[AT_CDB] = 0x28;
        bhs[AT_CDB + 8] = 1;
        send_pdu(&h, bhs, NULL, 0);
    }
    receive(&h, OP_REJECT);
    assert_int_equal(h.bhs[AT_RESPONSE], REJECT_TOO_MANY_IMMEDIATE);
    h.itt = 1000;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    receive(&h, OP_REJECT);
    assert_int_equal(h.bhs[AT_RESPONSE], REJECT_TASK_IN_PROGRESS);
    assert_int_equal(h.data_bytes, BHS_BYTES);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < ISCSI_IMMEDIATE_MAX; i++) {
        receive(&h, OP_DATA_IN);
    }
    assert_false(try_receive(&h));
    host_free(&h);
}

/* An initiator that takes nothing and asks for ever more holds up only itself. */
static void answers_do_not_pile_up(void **state) {
    struct world *w = *state;
    struct host h, other;
    login(&h, w);
    login_with(&other, w, 2, TEXT(NAMES));
    h.peer.stalled = true;
    uint64_t before = mem_in_use_bytes();
    for (uint32_t i = 0; i < 5 * ISCSI_TX_QUEUE_MAX; i++) {
        uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
        put_be32(bhs + AT_ITT, 7);
        put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        send_pdu(&h, bhs, "ping", 4);
    }
    assert_true(mem_in_use_bytes() - before < 2000 * (sizeof(void *) * 40) + (1 << 20));
    ready(&other);
    fake_peer_unstall(&h.peer);
    fake_env_settle(&w->fake);
    for (uint32_t i = 0; i < 5 * ISCSI_TX_QUEUE_MAX; i++) {
        receive(&h, OP_NOP_IN);
        assert_memory_equal(h.data, "ping", 4);
    }
    host_free(&h);
    host_free(&other);
}

static void commands_wait_for_memory(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    /* 16 MiB each: four fit */
    for (uint32_t i = 0; i < 6; i++) {
        send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0x80, 0, 0), 16 << 20, NULL, 0);
    }
    /* a write whose data are on their way cannot wait */
    uint8_t data[512] = {0};
    send_command(&h, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, data, 512);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(h.bhs[AT_STATUS], SCSI_TASK_SET_FULL);
    w->volume.hold = false;
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    uint32_t finished = 0;
    while (try_receive(&h)) {
        assert_int_equal(bhs_opcode(h.bhs), OP_DATA_IN);
        finished += h.bhs[AT_FLAGS] & DATA_IN_STATUS;
    }
    assert_int_equal(finished, 6);
    host_free(&h);
}

/* ---- tests: task management ---- */

static void aborts_are_answered_at_once(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    uint8_t data[1024] = {1};
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 0, 0, 0, 2};
    uint32_t cmd_sn = h.cmd_sn;
    uint32_t itt = send_command(&h, WRITES, write, 10, 1024, data, 1024);
    assert_int_equal(send_management(&h, 1, itt, cmd_sn), 0);
    /* again: it has ended; one that has not been sent yet: there is none */
    assert_int_equal(send_management(&h, 1, itt, cmd_sn), 0);
    assert_int_equal(send_management(&h, 1, 4711, h.cmd_sn + 3), 1);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_false(try_receive(&h)); /* no answer to the write */
    /* waiting for data: dropped, and the data that come are ignored */
    itt = send_command(&h, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 4, 0, 0), 1024 * 512, NULL, 0);
    receive(&h, OP_R2T);
    uint32_t ttt = get_be32(h.bhs + AT_TTT);
    assert_int_equal(send_management(&h, 1, itt, h.cmd_sn - 1), 0);
    send_data_out(&h, itt, ttt, 0, 0, data, 1024, false);
    assert_false(try_receive(&h));
    assert_int_equal(send_management(&h, 8, itt, 0), 4); /* TASK REASSIGN */
    assert_int_equal(send_management(&h, 3, itt, 0), 5); /* CLEAR ACA */
    assert_int_equal(send_management(&h, 77, itt, 0), 255);
    host_free(&h);
}

static void a_reset_reaches_all_sessions(void **state) {
    struct world *w = *state;
    struct host a, b;
    login(&a, w);
    login_with(&b, w, 2, TEXT(NAMES));
    ready(&b);
    w->volume.hold = true;
    const uint8_t read[10] = {0x28, 0, 0, 0, 0, 0, 0, 0, 1};
    send_command(&a, READS, read, 10, 512, NULL, 0);
    send_command(&b, READS, read, 10, 512, NULL, 0);
    assert_int_equal(send_management(&a, 5, ISCSI_TAG_NONE, 0), 0);
    w->volume.hold = false;
    ready(&a); /* the attention, then good */
    ready(&b);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_false(try_receive(&a) || try_receive(&b));
    /* cold: everybody has to come again */
    assert_int_equal(send_management(&a, 7, ISCSI_TAG_NONE, 0), 0);
    assert_true(a.peer.closed && b.peer.closed);
    host_free(&a);
    host_free(&b);
}

/* The connection goes in the middle of everything; the volume answers later. */
static void a_cut_at_any_byte(void **state) {
    struct world *w = *state;
    static uint8_t data[8192];
    for (uint32_t cut = 0; cut < 3 * BHS_BYTES + 8192; cut += 41) {
        struct host h;
        login(&h, w);
        w->volume.hold = true;
        uint8_t pdus[3 * BHS_BYTES + 8192] = {OP_SCSI_COMMAND, READS};
        put_be32(pdus + AT_ITT, 50);
        put_be32(pdus + AT_COMMAND_LENGTH, 512);
        put_be32(pdus + AT_CMDSN, h.cmd_sn);
        pdus[AT_CDB] = 0x28;
        pdus[AT_CDB + 8] = 1;
        uint8_t *write = pdus + BHS_BYTES;
        write[0] = OP_SCSI_COMMAND;
        write[1] = WRITES;
        put_be24(write + AT_DATA_LENGTH, 8192);
        put_be32(write + AT_ITT, 51);
        put_be32(write + AT_COMMAND_LENGTH, 16384);
        put_be32(write + AT_CMDSN, h.cmd_sn + 1);
        write[AT_CDB] = 0x2a;
        write[AT_CDB + 8] = 32;
        memcpy(write + BHS_BYTES, data, 8192);
        uint8_t *management = write + BHS_BYTES + 8192;
        management[0] = OP_TASK_MANAGEMENT | BHS_IMMEDIATE;
        management[1] = 0x85;
        put_be32(management + AT_CMDSN, h.cmd_sn + 2);
        fake_peer_feed(&h.peer, pdus, cut);
        fake_env_settle(&w->fake);
        h.peer.out_bytes = 0;
        host_free(&h);
        memory_volume_let_go(&w->volume);
        fake_env_settle(&w->fake);
        assert_int_equal(scsi_target_outstanding(w->scsi), 0);
    }
}

/* ---- tests: life and end ---- */

static void keep_alive(void **state) {
    struct world *w = *state;
    struct host h, dead;
    login(&h, w);
    login_with(&dead, w, 2, TEXT(NAMES));
    for (int round = 0; round < 3; round++) {
        fake_env_advance(&w->fake, (ISCSI_KEEPALIVE_S + 1) * NS_PER_S);
        assert_true(try_receive(&h));
        assert_int_equal(bhs_opcode(h.bhs), OP_NOP_IN);
        h.exp_stat_sn--; /* it does not count */
        uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        memcpy(bhs + AT_TTT, h.bhs + AT_TTT, 4);
        put_be32(bhs + AT_CMDSN, h.cmd_sn);
        send_pdu(&h, bhs, NULL, 0);
        assert_int_equal(dead.peer.closed, round >= 1);
        fake_env_advance(&w->fake, NS_PER_S);
    }
    assert_false(h.peer.closed);
    assert_true(dead.peer.closed);
    host_free(&h);
    host_free(&dead);
}

/* Answers to pings for `seconds`; says whether the connection is still there. */
static bool stays(struct host *h, uint32_t seconds) {
    struct world *w = h->w;
    for (uint32_t s = 0; s < seconds && !h->peer.closed; s += 5) {
        fake_env_advance(&w->fake, 5 * NS_PER_S);
        if (h->peer.closed) {
            break;
        }
        uint8_t bhs[BHS_BYTES] = {OP_NOP_OUT | BHS_IMMEDIATE, BHS_FINAL};
        put_be32(bhs + AT_ITT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_TTT, ISCSI_TAG_NONE);
        put_be32(bhs + AT_CMDSN, h->cmd_sn);
        send_pdu(h, bhs, NULL, 0);
    }
    return !h->peer.closed;
}

/* Alive, but it owes data, or takes no answers: it goes, for others could use what it holds. */
static void initiators_that_stall(void **state) {
    struct world *w = *state;
    struct host owes, slow, deaf;
    static uint8_t data[65536];
    login(&owes, w);
    uint32_t itt =
        send_command(&owes, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0), 131072, NULL, 0);
    receive(&owes, OP_R2T);
    assert_true(stays(&owes, ISCSI_STALL_S - ISCSI_KEEPALIVE_S));
    assert_false(stays(&owes, 2 * ISCSI_KEEPALIVE_S + 10));
    assert_non_null(strstr(w->event, "sends no data"));
    host_free(&owes);
    login(&slow, w); /* a little from time to time is enough */
    itt = send_command(&slow, WRITES, CDB(0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0), 131072, NULL, 0);
    receive(&slow, OP_R2T);
    uint32_t ttt = get_be32(slow.bhs + AT_TTT);
    for (uint32_t i = 0; i < 4; i++) {
        send_data_out(&slow, itt, ttt, i, i * 32768, data, 32768, i == 3);
        assert_int_equal(stays(&slow, ISCSI_STALL_S - ISCSI_KEEPALIVE_S), true);
    }
    receive(&slow, OP_SCSI_RESPONSE);
    assert_true(stays(&slow, 3 * ISCSI_STALL_S)); /* owes nothing any more */
    host_free(&slow);
    login(&deaf, w);
    deaf.peer.stalled = true;
    send_command(&deaf, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0), 4096, NULL, 0);
    assert_true(stays(&deaf, ISCSI_STALL_S - ISCSI_KEEPALIVE_S));
    assert_false(stays(&deaf, 2 * ISCSI_KEEPALIVE_S + 10));
    host_free(&deaf);
}

enum { HOGS = 8 }; /* with 64 MiB each they could hold all there is */

/* A few that hold as much as they may leave room for those that come later. */
static void memory_is_shared(void **state) {
    struct world *w = *state;
    static struct host hogs[HOGS];
    struct host late;
    login_with(&late, w, 1, TEXT(NAMES));
    ready(&late); /* what the unit keeps in the volume has been read */
    w->volume.hold = true;
    for (uint32_t i = 0; i < HOGS; i++) {
        login_with(&hogs[i], w, (uint8_t)(10 + i), TEXT(NAMES));
        hogs[i].exp_stat_sn = 0;
        send_command(&hogs[i], NEITHER, CDB(0), 0, NULL, 0);
        for (uint32_t k = 0; k < 8; k++) { /* 16 MiB each */
            send_command(&hogs[i], READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0x80, 0, 0), 16 << 20, NULL,
                         0);
        }
    }
    assert_true(mem_in_use_bytes() <
                ISCSI_MEMORY_BYTES + ((uint64_t)HOGS * (DATA_MAX + (16 << 20))));
    /* the first it would get anyway, the second not */
    send_command(&late, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0x10, 0, 0), 2 << 20, NULL, 0);
    w->volume.hold = false;
    static uint8_t data[8192];
    send_command(&late, WRITES, CDB(0x2a, 0, 0, 0, 0, 1, 0, 0, 16, 0), 8192, data, 8192);
    receive(&late, OP_SCSI_RESPONSE);
    assert_int_equal(late.bhs[AT_STATUS], SCSI_GOOD);
    memory_volume_let_go(&w->volume);
    for (uint32_t i = 0; i < HOGS; i++) {
        host_free(&hogs[i]);
        memory_volume_let_go(&w->volume);
    }
    host_free(&late);
}

static uint32_t event_count;
static bool untold;

static void count_event(void *owner, enum iscsi_event kind, const char *text) {
    (void)owner;
    event_count++;
    untold |= kind == ISCSI_EVENTS_UNTOLD && strstr(text, "not told") != NULL;
}

/* Somebody who is refused all day long does not fill the log. */
static void events_have_a_limit(void **state) {
    struct world *w = *state;
    struct iscsi_options options = {.event = count_event};
    struct iscsi_server *server = iscsi_server_new(&w->fake.env, &options);
    assert_int_equal(iscsi_portal_add(server, "192.0.2.9:3260", NULL), OK);
    for (uint32_t i = 0; i < 3 * ISCSI_EVENTS_MAX; i++) {
        struct host h = {.w = w, .loop = &w->fake, .isid = 1, .data = mem_alloc(DATA_MAX)};
        fake_net_connect(&w->fake.env, "192.0.2.9:3260", &h.peer);
        assert_int_equal(login_status(&h, 0x87, TEXT(NAMES)), 0x0203);
        host_free(&h);
    }
    assert_int_equal(event_count, ISCSI_EVENTS_MAX);
    fake_env_advance(&w->fake, (ISCSI_EVENTS_S + 1) * NS_PER_S);
    struct host h = {.w = w, .loop = &w->fake, .isid = 1, .data = mem_alloc(DATA_MAX)};
    fake_net_connect(&w->fake.env, "192.0.2.9:3260", &h.peer);
    assert_int_equal(login_status(&h, 0x87, TEXT(NAMES)), 0x0203);
    host_free(&h);
    assert_true(untold);
    assert_int_equal(event_count, ISCSI_EVENTS_MAX + 2);
    struct world stopping = {0};
    iscsi_server_stop(server, w->fake.now_ns + NS_PER_S, on_stopped, &stopping);
    fake_env_settle(&w->fake);
    assert_true(stopping.stopped);
    iscsi_server_free(server);
}

static void a_stop_lets_commands_finish(void **state) {
    struct world *w = *state;
    struct host idle, busy, stuck;
    login(&busy, w);
    login_with(&idle, w, 2, TEXT(NAMES));
    login_with(&stuck, w, 3, TEXT(NAMES));
    ready(&stuck);
    w->volume.hold = true;
    send_command(&busy, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    iscsi_server_stop(w->server, w->fake.now_ns + 5 * NS_PER_S, on_stopped, w);
    fake_env_settle(&w->fake);
    receive(&idle, OP_ASYNC);
    assert_int_equal(idle.bhs[AT_ASYNC_EVENT], 3);
    receive(&stuck, OP_ASYNC);
    assert_true(idle.peer.closed && !busy.peer.closed && !w->stopped);
    send_command(&busy, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    receive(&busy, OP_DATA_IN);
    receive(&busy, OP_ASYNC);
    assert_true(busy.peer.closed && w->stopped);
    host_free(&idle);
    host_free(&busy);
    host_free(&stuck);
}

static void a_stop_does_not_wait_for_ever(void **state) {
    struct world *w = *state;
    struct host h;
    login(&h, w);
    w->volume.hold = true;
    send_command(&h, READS, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), 512, NULL, 0);
    iscsi_server_stop(w->server, w->fake.now_ns + 5 * NS_PER_S, on_stopped, w);
    fake_env_advance(&w->fake, 4 * NS_PER_S);
    assert_false(w->stopped);
    fake_env_advance(&w->fake, 2 * NS_PER_S);
    assert_true(w->stopped && h.peer.closed);
    assert_int_equal(scsi_target_outstanding(w->scsi), 1);
    host_free(&h);
}

static void targets_and_portals_come_and_go(void **state) {
    struct world *w = *state;
    struct errmsg message = {0};
    struct host h;
    login(&h, w);
    struct host deaf; /* takes nothing any more */
    login_with(&deaf, w, 2, TEXT(NAMES));
    deaf.peer.stalled = true;
    assert_int_equal(iscsi_portal_add(w->server, PORTAL, &message), ERR_BUSY);
    assert_int_equal(iscsi_portal_add(w->server, "192.0.2.2:3260", NULL), OK);
    assert_string_equal(iscsi_portal_address(w->server, 1), "192.0.2.2:3260");
    assert_null(iscsi_portal_address(w->server, 2));
    assert_int_equal(iscsi_portal_remove(w->server, PORTAL, NULL), OK);
    assert_int_equal(iscsi_portal_remove(w->server, PORTAL, NULL), ERR_NOT_FOUND);
    assert_int_equal(iscsi_target_add(w->server, TARGET, w->scsi, NULL, NULL), ERR_EXISTS);
    assert_int_equal(iscsi_target_add(w->server, "One", w->scsi, NULL, NULL), ERR_INVALID);
    send_command(&h, NEITHER, CDB(0), 0, NULL, 0);
    receive(&h, OP_SCSI_RESPONSE);
    assert_int_equal(iscsi_target_remove(w->server, OTHER, NULL), OK);
    assert_false(h.peer.closed);
    assert_int_equal(iscsi_target_remove(w->server, TARGET, NULL), OK);
    fake_env_settle(&w->fake);
    receive(&h,
            OP_ASYNC); /* it is told that the session has ended, with the numbers as they were */
    assert_int_equal(h.bhs[AT_ASYNC_EVENT], 3);
    assert_int_equal(get_be32(h.bhs + AT_EXP_CMDSN), h.cmd_sn);
    assert_int_equal(get_be32(h.bhs + AT_MAX_CMDSN), h.cmd_sn + ISCSI_COMMANDS_MAX - 1);
    assert_int_equal(iscsi_session_list(w->server, NULL, 0), 0);
    assert_false(deaf.peer.closed);
    fake_env_advance(&w->fake, ISCSI_FAREWELL_S * NS_PER_S);
    assert_true(deaf.peer.closed);
    host_free(&deaf);
    assert_true(h.peer.closed);
    assert_int_equal(iscsi_target_remove(w->server, TARGET, NULL), ERR_NOT_FOUND);
    host_free(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(reads_in_bursts),
        IN_WORLD(writes_in_every_way),
        IN_WORLD(residuals),
        IN_WORLD(data_that_do_not_come_as_agreed),
        IN_WORLD(digest_errors_end_the_connection),
        IN_WORLD(the_window_holds),
        IN_WORLD(immediate_commands_and_duplicates),
        IN_WORLD(answers_do_not_pile_up),
        IN_WORLD(commands_wait_for_memory),
        IN_WORLD(aborts_are_answered_at_once),
        IN_WORLD(a_reset_reaches_all_sessions),
        IN_WORLD(a_cut_at_any_byte),
        IN_WORLD(keep_alive),
        IN_WORLD(initiators_that_stall),
        IN_WORLD(memory_is_shared),
        IN_WORLD(events_have_a_limit),
        IN_WORLD(a_stop_lets_commands_finish),
        IN_WORLD(a_stop_does_not_wait_for_ever),
        IN_WORLD(targets_and_portals_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
