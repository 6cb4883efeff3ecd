// SPDX-License-Identifier: MPL-2.0
/* The device server, driven with CDBs written out from SPC-4 and SBC-3. */
#include "scsi_world.h"

/* ---- the table ---- */

static void the_table_is_sound(void **state) {
    (void)state;
    for (uint32_t i = 0; i < scsi_command_count; i++) {
        const struct scsi_command *c = &scsi_commands[i];
        static const uint8_t lengths[8] = {6, 10, 10, 0, 16, 12, 0, 0};
        assert_int_equal(c->cdb_bytes, lengths[c->opcode >> 5]);
        assert_int_equal(c->usage[0], c->opcode);
        assert_ptr_equal(scsi_command_find((uint8_t[16]){c->opcode, (uint8_t)c->service_action}),
                         c);
        assert_int_equal(c->usage[c->cdb_bytes - 1], 0); /* the control byte */
        assert_false((c->flags & COMMAND_IN) && (c->flags & COMMAND_OUT));
        for (uint32_t j = c->cdb_bytes; j < SCSI_CDB_BYTES_MAX; j++) {
            assert_int_equal(c->usage[j], 0);
        }
        for (uint32_t j = 0; j < c->length_bytes; j++) {
            assert_int_equal(c->usage[c->length_at + j], 0xff);
        }
        for (uint32_t j = 0; j < i; j++) {
            assert_true(scsi_commands[j].opcode < c->opcode ||
                        (scsi_commands[j].opcode == c->opcode &&
                         scsi_commands[j].service_action < c->service_action));
        }
    }
}

/* Every bit that a command does not look at is refused, with a pointer to it. */
static void stray_bits_are_pointed_at(void **state) {
    struct world *w = *state;
    for (uint32_t i = 0; i < scsi_command_count; i++) {
        const struct scsi_command *c = &scsi_commands[i];
        for (uint32_t byte = 1; byte < c->cdb_bytes - 1u; byte++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                uint8_t cdb[16] = {c->opcode, (uint8_t)c->service_action};
                cdb[byte] |= (uint8_t)(1 << bit);
                if ((c->usage[byte] >> bit & 1) != 0 || scsi_command_find(cdb) != c) {
                    continue;
                }
                assert_int_equal(run(w, cdb, 16, NULL, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
                assert_int_equal(last.sense[15], 0xc8 | bit);
                assert_int_equal(get_be16(last.sense + 16), byte);
            }
        }
    }
    assert_int_equal(run(w, CDB(0, 0, 0, 0, 0, 4), NULL, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run(w, CDB(0xff, 0, 0, 0, 0, 0), NULL, 0, 0), SENSE_INVALID_OPCODE);
    assert_int_equal(run(w, CDB(0x9e, 0x11), NULL, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
}

static void supported_opcodes(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0), 4096), 0);
    assert_int_equal(get_be32(answer), scsi_command_count * 8);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 16, 0, 0, 0), 4096), 0);
    assert_int_equal(get_be32(answer), scsi_command_count * 20);
    /* READ(10) alone */
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 1, 0x28, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(last.transfer_bytes, 14);
    assert_int_equal(answer[1], 3);
    assert_int_equal(answer[3], 10);
    assert_memory_equal(answer + 4, "\x28\x18\xff\xff\xff\xff\x1f\xff\xff\x00", 10);
    /* one that is not there; one with service actions asked for without; the reverse */
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 1, 0xfe, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(answer[1], 1);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 1, 0x9e, 0, 0, 0, 0, 1, 0, 0, 0), 256),
                     SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 2, 0x28, 0, 0, 0, 0, 1, 0, 0, 0), 256),
                     SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0c, 2, 0x9e, 0, 0x10, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(answer[1], 3);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(last.transfer_bytes, 4);
}

/* ---- identity ---- */

static void inquiry(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x12, 0, 0, 0, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 96);
    assert_int_equal(answer[0], 0);
    assert_memory_equal(answer + 8, "HOLDFASTVirtual Disk    0001", 28);
    assert_int_equal(run_in(w, CDB(0x12, 0, 1, 0, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
    /* cut to the allocation length */
    assert_int_equal(run_in(w, CDB(0x12, 0, 0, 0, 5, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 5);

    assert_int_equal(run_in(w, CDB(0x12, 1, 0, 0, 255, 0), 255), 0);
    assert_memory_equal(answer, "\x00\x00\x00\x08\x00\x80\x83\x86\x8f\xb0\xb1\xb2", 12);
    for (uint32_t i = 4; i < 12; i++) {
        uint8_t pages[8];
        memcpy(pages, "\x00\x80\x83\x86\x8f\xb0\xb1\xb2", 8);
        assert_int_equal(run_in(w, CDB(0x12, 1, pages[i - 4], 4, 0, 0), 1024), 0);
        assert_int_equal(answer[1], pages[i - 4]);
        assert_int_equal(last.transfer_bytes, 4u + get_be16(answer + 2));
    }
    assert_int_equal(run_in(w, CDB(0x12, 1, 0xb0, 0, 255, 0), 255), 0);
    assert_int_equal(get_be16(answer + 6), 8);
    assert_int_equal(get_be32(answer + 8), SCSI_TRANSFER_BYTES_MAX / 512);
    assert_int_equal((1 << 20) % (get_be32(answer + 28) * 512), 0);
    assert_int_equal(run_in(w, CDB(0x12, 1, 0xc0, 0, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
}

static void designators(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x12, 1, 0x83, 4, 0, 0), 1024), 0);
    uint32_t kinds = 0;
    for (uint32_t at = 4; at < last.transfer_bytes; at += 4u + answer[at + 3]) {
        kinds |= 1u << (answer[at + 1] & 15);
        if ((answer[at + 1] & 0x3f) == 3) {
            assert_int_equal(answer[at + 3], 16);
            assert_int_equal(answer[at + 4] >> 4, 6);
            assert_memory_equal(answer + at + 12, w->volume.info.uuid.bytes + 8, 8);
        } else if ((answer[at + 1] & 0x3f) == 0x18) {
            assert_int_equal(answer[at], 0x53);
            assert_string_equal((char *)answer + at + 4, "iqn.2025-01.org.example:t,t,0x0001");
        }
    }
    assert_int_equal(kinds, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8);
}

static void no_unit_at_this_number(void **state) {
    struct world *w = *state;
    struct call *call = start(w, w->a, 9, CDB(0, 0, 0, 0, 0, 0), NULL, 0, 0);
    assert_int_equal(sense_code(&call->task), SENSE_LUN_NOT_SUPPORTED);
    call_free(call);
    call = start(w, w->a, 9, CDB(0x12, 0, 0, 0, 96, 0), NULL, 0, 96);
    assert_int_equal(call->task.status, SCSI_GOOD);
    assert_int_equal(call->in[0], 0x7f);
    call_free(call);
    call = start(w, w->a, 9, CDB(0x03, 0, 0, 0, 18, 0), NULL, 0, 18);
    assert_int_equal(call->task.status, SCSI_GOOD);
    assert_int_equal(call->in[2], 5);
    assert_int_equal(call->in[12], 0x25);
    call_free(call);
    call = start(w, w->a, 9, CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), NULL, 0, 256);
    assert_int_equal(get_be32(call->in), 8);
    assert_int_equal(call->in[9], 3);
    call_free(call);
}

static void capacity(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0), 8), 0);
    assert_int_equal(get_be32(answer), BLOCKS - 1);
    assert_int_equal(get_be32(answer + 4), 512);
    assert_int_equal(run_in(w, CDB(0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0), 32), 0);
    assert_int_equal(get_be64(answer), BLOCKS - 1);
    assert_int_equal(answer[13], 3);
    assert_int_equal(answer[14], 0xc0);

    const uint8_t status[16] = {0x9e, 0x12, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 24};
    assert_int_equal(run_in(w, status, 16, 24), 0);
    assert_int_equal(get_be32(answer), 20);
    assert_int_equal(get_be64(answer + 8), BLOCKS - 1);
    assert_int_equal(get_be32(answer + 16), 1);
    assert_int_equal(run_in(w, CDB(0x9e, 0x12, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 24), 24),
                     SENSE_LBA_OUT_OF_RANGE);

    struct world *four = world_new(4096);
    clear_attentions(four);
    assert_int_equal(run_in(four, CDB(0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0), 32),
                     0);
    assert_int_equal(get_be64(answer), LUN_BYTES / 4096 - 1);
    assert_int_equal(get_be32(answer + 8), 4096);
    assert_int_equal(answer[13], 0);
    world_free(four);
}

/* ---- modes ---- */

static void mode_pages(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x1a, 0, 0x3f, 0, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4 + 8 + 12 + 20 + 12 + 12);
    assert_int_equal(answer[0] + 1u, last.transfer_bytes);
    assert_int_equal(answer[2], 0x10);
    assert_int_equal(answer[12 + 12 + 2], 0); /* WCE off: every write is durable */
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x08, 0, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 24);
    struct volume_info info = w->volume.info;
    info.sync_always = false;
    assert_int_equal(scsi_lun_update(w->target, 3, &info, NULL), OK);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_MODE_PARAMETERS_CHANGED);
    assert_int_equal(run_in(w, CDB(0x5a, 8, 0x08, 0, 0, 0, 0, 0, 255, 0), 255), 0);
    assert_int_equal(answer[8 + 2], 4);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0xc8, 0, 255, 0), 255), SENSE_SAVING_NOT_SUPPORTED);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x02, 0, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x08, 1, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
}

static uint32_t select_control(struct world *w, uint8_t byte2, uint8_t byte4) {
    uint8_t list[16] = {0, 0, 0, 0, 0x0a, 10, byte2, 0x10, byte4, 0, 0, 0, 0xff, 0xff, 0, 0};
    return run(w, CDB(0x15, 0x10, 0, 0, 16, 0), list, 16, 0);
}

static void mode_select(void **state) {
    struct world *w = *state;
    assert_int_equal(select_control(w, 0, 0), 0);
    assert_int_equal(test_unit_ready(w, w->b), 0); /* nothing changed: nobody is told */
    assert_int_equal(select_control(w, 0x02, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(get_be16(last.sense + 16), 6);
    assert_int_equal(last.sense[15], 0x89);
    assert_int_equal(select_control(w, 0, 8), 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_MODE_PARAMETERS_CHANGED);
    assert_int_equal(run(w, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0), answer, 512, 0),
                     SENSE_SOFTWARE_WRITE_PROTECTED);
    assert_int_equal(select_control(w, 4, 0), 0);
    assert_int_equal(run_in(w, CDB(0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0), 512),
                     SENSE_LBA_OUT_OF_RANGE);
    assert_int_equal(last.sense[0], 0x72);
    assert_int_equal(select_control(w, 0, 0), 0);
    /* lists that end in the middle */
    for (uint8_t length = 1; length < 16; length++) {
        uint8_t list[16] = {0, 0, 0, 0, 0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0};
        if (length != 4) {
            assert_int_equal(run(w, CDB(0x15, 0x10, 0, 0, length, 0), list, length, 0),
                             SENSE_PARAMETER_LIST_LENGTH);
        }
    }
    assert_int_equal(run(w, CDB(0x15, 0x11, 0, 0, 16, 0), answer, 16, 0),
                     SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_MODE_PARAMETERS_CHANGED);
}

/* ---- the medium ---- */

static void fill(uint8_t *bytes, size_t length, uint32_t seed) {
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static void reads_and_writes_of_every_length(void **state) {
    struct world *w = *state;
    static uint8_t data[9 << 20];
    fill(data, sizeof(data), 1);
    assert_int_equal(run(w, CDB(0x0a, 0, 0, 5, 2, 0), data, 1024, 0), 0);
    assert_int_equal(run_in(w, CDB(0x08, 0, 0, 5, 2, 0), 1024), 0);
    assert_memory_equal(answer, data, 1024);
    assert_int_equal(w->volume.fua_count, 0);
    assert_int_equal(run(w, CDB(0x2a, 8, 0, 0, 1, 0, 0, 0, 3, 0), data + 7, 1536, 0), 0);
    assert_int_equal(w->volume.fua_count, 1);
    assert_int_equal(run_in(w, CDB(0x28, 8, 0, 0, 1, 0, 0, 0, 3, 0), 1536), 0);
    assert_memory_equal(answer, data + 7, 1536);
    assert_int_equal(run(w, CDB(0xaa, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0), data + 9, 512, 0), 0);
    assert_int_equal(run_in(w, CDB(0xa8, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0), 512), 0);
    assert_memory_equal(answer, data + 9, 512);
    /* 9 MiB: more than one request of a volume */
    assert_int_equal(
        run(w, CDB(0x8a, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0x48, 0, 0, 0), data, sizeof(data), 0),
        0);
    assert_memory_equal(w->volume.data + 0x4001 * 512, data, sizeof(data));
    assert_int_equal(
        run_in(w, CDB(0x88, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0x48, 0, 0, 0), sizeof(data)), 0);
    assert_memory_equal(answer, data, sizeof(data));
    assert_int_equal(w->volume.counts[VOLUME_READ], 5);
    /* 0 blocks of READ(6) are 256, of the others none */
    assert_int_equal(run_in(w, CDB(0x08, 0, 0, 0, 0, 0), 256 * 512), 0);
    assert_int_equal(last.transfer_bytes, 256 * 512);
    assert_int_equal(run_in(w, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0), 0);
    assert_int_equal(last.transfer_bytes, 0);
}

static void ranges_are_checked(void **state) {
    struct world *w = *state;
    static const struct {
        uint8_t cdb[16];
        uint32_t code;
    } cases[] = {
        {{0x28, 0, 0, 1, 0xff, 0xff, 0, 0, 1}, 0},
        {{0x28, 0, 0, 1, 0xff, 0xff, 0, 0, 2}, SENSE_LBA_OUT_OF_RANGE},
        {{0x28, 0, 0, 2, 0, 1, 0, 0, 0}, SENSE_LBA_OUT_OF_RANGE},
        {{0x28, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 1}, SENSE_LBA_OUT_OF_RANGE},
        {{0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2},
         SENSE_LBA_OUT_OF_RANGE},
        {{0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1}, SENSE_INVALID_FIELD_IN_CDB},
        {{0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, SENSE_INVALID_FIELD_IN_CDB},
        {{0x93, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, SENSE_INVALID_FIELD_IN_CDB},
        {{0x28, 0x20, 0, 0, 0, 0, 0, 0, 1}, SENSE_INVALID_FIELD_IN_CDB},
        {{0x91, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1}, SENSE_LBA_OUT_OF_RANGE},
        {{0x2f, 4, 0, 0, 0, 0, 0, 0, 1}, SENSE_INVALID_FIELD_IN_CDB},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(run_in(w, cases[i].cdb, 16, 0), cases[i].code);
    }
}

/* The initiator expects less, or more, than the command moves. */
static void expected_lengths(void **state) {
    struct world *w = *state;
    uint8_t data[2048];
    fill(data, sizeof(data), 5);
    memset(w->volume.data, 0xee, 4096);
    /* 2 blocks, 1 sent: one is written */
    assert_int_equal(run(w, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0), data, 512, 0), 0);
    assert_int_equal(last.transfer_bytes, 1024);
    assert_memory_equal(w->volume.data, data, 512);
    assert_int_equal(w->volume.data[512], 0xee);
    /* less than a block: none */
    assert_int_equal(run(w, CDB(0x2a, 0, 0, 0, 0, 1, 0, 0, 1, 0), data, 200, 0), 0);
    assert_int_equal(w->volume.data[512], 0xee);
    /* 2 blocks, 2000 bytes sent: no more taken than needed */
    assert_int_equal(run(w, CDB(0x2a, 0, 0, 0, 0, 1, 0, 0, 2, 0), data, 2000, 0), 0);
    assert_int_equal(last.data_out_bytes, 1024);
    /* a read with room for 200 bytes */
    assert_int_equal(run_in(w, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0), 200), 0);
    assert_int_equal(last.data_in_ready_bytes, 200);
    assert_int_equal(last.transfer_bytes, 1024);
    assert_memory_equal(answer, data, 200);
    assert_int_equal(run_in(w, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0), 0), 0);
    assert_int_equal(last.data_in_ready_bytes, 0);
    /* directions that do not agree */
    assert_int_equal(run(w, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0), data, 1024, 0), 0);
    assert_int_equal(last.data_in_ready_bytes, 0);
    assert_int_equal(run(w, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0), NULL, 0, 1024),
                     SENSE_INVALID_FIELD_IN_UNIT);
}

static void verify_compares(void **state) {
    struct world *w = *state;
    static uint8_t data[600 << 10];
    fill(data, sizeof(data), 3);
    memcpy(w->volume.data, data, sizeof(data));
    assert_int_equal(run(w, CDB(0x2f, 0, 0, 0, 0, 0, 0, 4, 0, 0), NULL, 0, 0), 0);
    assert_int_equal(w->volume.counts[VOLUME_VERIFY], 1);
    uint64_t blocks = sizeof(data) / 512;
    assert_int_equal(run(w, CDB(0x2f, 2, 0, 0, 0, 0, 0, (uint8_t)(blocks >> 8), (uint8_t)blocks, 0),
                         data, sizeof(data), 0),
                     0);
    data[300001] ^= 1;
    assert_int_equal(run(w, CDB(0x2f, 2, 0, 0, 0, 0, 0, (uint8_t)(blocks >> 8), (uint8_t)blocks, 0),
                         data, sizeof(data), 0),
                     SENSE_MISCOMPARE_DURING_VERIFY);
    assert_int_equal(get_be32(last.sense + 3), 300001);
    assert_int_equal(last.sense[0], 0xf0);
    /* one block against many */
    memset(w->volume.data, 0x42, 8192);
    memset(data, 0x42, 512);
    assert_int_equal(run(w, CDB(0x8f, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0), data, 512, 0),
                     0);
    w->volume.data[8191] = 0;
    assert_int_equal(run(w, CDB(0x8f, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0), data, 512, 0),
                     SENSE_MISCOMPARE_DURING_VERIFY);
    /* write and verify: durable, then looked at */
    uint64_t fua = w->volume.fua_count;
    assert_int_equal(run(w, CDB(0x2e, 2, 0, 0, 0, 9, 0, 0, 2, 0), data, 1024, 0), 0);
    assert_int_equal(w->volume.fua_count, fua + 1);
    assert_memory_equal(w->volume.data + 9 * 512, data, 1024);
}

static void compare_and_write(void **state) {
    struct world *w = *state;
    uint8_t data[1024];
    memset(data, 0, 512);
    memset(data + 512, 7, 512);
    const uint8_t cdb[16] = {0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1};
    assert_int_equal(run(w, cdb, 16, data, 1024, 0), 0);
    assert_int_equal(w->volume.data[4 * 512], 7);
    w->volume.data[4 * 512] = 0;
    assert_int_equal(run(w, cdb, 16, data, 1024, 0), SENSE_MISCOMPARE_DURING_VERIFY);
    assert_int_equal(get_be32(last.sense + 3), 1);
    assert_int_equal(run(w, cdb, 16, data, 512, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run(w, cdb, 16, data, 1536, 0), SENSE_INVALID_FIELD_IN_CDB);
}

static void write_same(void **state) {
    struct world *w = *state;
    uint8_t data[512];
    fill(data, sizeof(data), 8);
    assert_int_equal(run(w, CDB(0x41, 0, 0, 0, 0, 3, 0, 4, 0, 0), data, 512, 0), 0);
    for (uint32_t i = 0; i < 1024; i++) {
        assert_memory_equal(w->volume.data + (3 + i) * 512, data, 512);
    }
    assert_int_equal(w->volume.data[2 * 512], 0);
    assert_int_equal(w->volume.data[1027 * 512], 0);
    assert_int_equal(w->volume.counts[VOLUME_WRITE_ZEROES], 0);
    /* without data, and with zeros: no data are written */
    uint64_t writes = w->volume.counts[VOLUME_WRITE];
    assert_int_equal(run(w, CDB(0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0), NULL, 0, 0),
                     0);
    assert_int_equal(w->volume.data[4 * 512], 0);
    assert_memory_equal(w->volume.data + 5 * 512, data, 512);
    memset(data, 0, sizeof(data));
    assert_int_equal(
        run(w, CDB(0x93, 0x08, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0), data, 512, 0), 0);
    assert_int_equal(w->volume.data[6 * 512], 0);
    assert_int_equal(w->volume.counts[VOLUME_WRITE], writes);
}

static void put_unmap(uint8_t *list, uint32_t count, const uint64_t *ranges) {
    memset(list, 0, 8 + 16 * count);
    put_be16(list, (uint16_t)(6 + 16 * count));
    put_be16(list + 2, (uint16_t)(16 * count));
    for (uint32_t i = 0; i < count; i++) {
        put_be64(list + 8 + 16 * i, ranges[2 * i]);
        put_be32(list + 16 + 16 * i, (uint32_t)ranges[2 * i + 1]);
    }
}

static void unmap(void **state) {
    struct world *w = *state;
    uint8_t list[8 + 16 * 3];
    memset(w->volume.data, 0xaa, 1 << 20);
    /* unaligned at both ends; nothing; within one 4 KiB block */
    put_unmap(list, 3, (uint64_t[]){3, 30, 0, 0, 65, 2});
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 56, 0), list, 56, 0), 0);
    for (uint32_t i = 0; i < 80; i++) {
        bool gone = (i >= 3 && i < 33) || i == 65 || i == 66;
        assert_int_equal(w->volume.data[i * 512], gone ? 0 : 0xaa);
        assert_int_equal(w->volume.data[i * 512 + 511], gone ? 0 : 0xaa);
    }
    assert_int_equal(w->volume.counts[VOLUME_UNMAP], 1);
    assert_int_equal(w->volume.counts[VOLUME_WRITE_ZEROES], 3);
    /* in a full pool the edges stay and the rest goes */
    memset(w->volume.data, 0xaa, 1 << 20);
    w->volume.fail_op = VOLUME_WRITE_ZEROES;
    w->volume.fail_status = ERR_NO_SPACE;
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 56, 0), list, 56, 0), 0);
    assert_int_equal(w->volume.data[8 * 512], 0);
    assert_int_equal(w->volume.data[3 * 512], 0xaa);
    w->volume.fail_status = OK;
    put_unmap(list, 2, (uint64_t[]){0, 8, BLOCKS - 1, 2});
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0), list, 40, 0),
                     SENSE_LBA_OUT_OF_RANGE);
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0), NULL, 0, 0), 0);
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 7, 0), list, 7, 0),
                     SENSE_PARAMETER_LIST_LENGTH);
    assert_int_equal(run(w, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0), list, 24, 0),
                     SENSE_PARAMETER_LIST_LENGTH);
    assert_int_equal(run(w, CDB(0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0), list, 24, 0),
                     SENSE_INVALID_FIELD_IN_CDB);
}

static void write_cache_and_flush(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0), 0);
    assert_int_equal(w->volume.counts[VOLUME_FLUSH], 0);
    struct volume_info info = w->volume.info;
    info.sync_always = false;
    assert_int_equal(scsi_lun_update(w->target, 3, &info, NULL), OK);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_MODE_PARAMETERS_CHANGED);
    assert_int_equal(run_in(w, CDB(0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0), 0), 0);
    assert_int_equal(w->volume.counts[VOLUME_FLUSH], 1);
    assert_int_equal(run_in(w, CDB(0x28, 8, 0, 0, 0, 0, 0, 0, 1, 0), 512), 0);
    assert_int_equal(w->volume.counts[VOLUME_FLUSH], 2);
    assert_int_equal(w->volume.counts[VOLUME_READ], 1);
}

/* ---- errors ---- */

static void errors_become_sense(void **state) {
    struct world *w = *state;
    static const struct {
        int error;
        enum volume_op op;
        uint8_t status;
        uint32_t code;
        bool info;
    } cases[] = {
        {ERR_NO_SPACE, VOLUME_WRITE, SCSI_CHECK_CONDITION, 0x072707, false},
        {ERR_IO, VOLUME_READ, SCSI_CHECK_CONDITION, 0x031100, true},
        {ERR_CHECKSUM, VOLUME_READ, SCSI_CHECK_CONDITION, 0x031100, true},
        {ERR_DATA_LOSS, VOLUME_READ, SCSI_CHECK_CONDITION, 0x031100, true},
        {ERR_IO, VOLUME_WRITE, SCSI_CHECK_CONDITION, 0x030c00, true},
        {ERR_TIMEOUT, VOLUME_READ, SCSI_BUSY, 0, false},
        {ERR_AGAIN, VOLUME_WRITE, SCSI_BUSY, 0, false},
        {ERR_LIMIT, VOLUME_WRITE, SCSI_TASK_SET_FULL, 0, false},
        {ERR_SHUTDOWN, VOLUME_READ, SCSI_CHECK_CONDITION, 0x020400, false},
        {ERR_NOT_FOUND, VOLUME_READ, SCSI_CHECK_CONDITION, 0x052500, false},
        {ERR_READ_ONLY, VOLUME_WRITE, SCSI_CHECK_CONDITION, 0x072700, false},
        {ERR_INVALID, VOLUME_READ, SCSI_CHECK_CONDITION, 0x044400, false},
    };
    uint8_t data[8192] = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        w->volume.fail_op = cases[i].op;
        w->volume.fail_status = cases[i].error;
        w->volume.fail_error_bytes = 1024;
        uint32_t code = cases[i].op == VOLUME_READ
                            ? run_in(w, CDB(0x28, 0, 0, 0, 1, 0, 0, 0, 16, 0), 8192)
                            : run(w, CDB(0x2a, 0, 0, 0, 1, 0, 0, 0, 16, 0), data, 8192, 0);
        assert_int_equal(code, cases[i].code);
        assert_int_equal(last.status, cases[i].status);
        assert_int_equal(last.data_in_ready_bytes, 0);
        if (code != 0) {
            assert_int_equal(last.sense[0] >> 7, cases[i].info);
            assert_int_equal(get_be32(last.sense + 3), cases[i].info ? 0x102 : 0);
        }
    }
}

static void sense_formats(void **state) {
    (void)state;
    uint8_t bytes[SCSI_SENSE_BYTES_MAX];
    struct scsi_sense sense = {.code = 0x031100, .info_valid = true, .info = 1ull << 33};
    assert_int_equal(scsi_sense_encode(&sense, false, bytes), 18);
    assert_int_equal(bytes[0], 0x70); /* does not fit: not valid */
    assert_int_equal(scsi_sense_encode(&sense, true, bytes), 20);
    assert_int_equal(bytes[0], 0x72);
    assert_int_equal(bytes[7], 12);
    assert_int_equal(get_be64(bytes + 12), 1ull << 33);
}

/* ---- unit attentions ---- */

static void attentions_come_once_each(void **state) {
    struct world *w = *state;
    struct memory_volume other;
    memory_volume_init(&other, &w->fake.env, 1 << 20, 512);
    struct volume_info info = w->volume.info;
    info.size_bytes /= 2;
    assert_int_equal(scsi_lun_update(w->target, 3, &info, NULL), OK);
    assert_int_equal(scsi_lun_update(w->target, 3, &info, NULL), OK);
    assert_int_equal(scsi_lun_add(w->target, 4, &other.door, &other.info, NULL), OK);
    assert_int_equal(scsi_lun_add(w->target, 4, &other.door, &other.info, NULL), ERR_EXISTS);
    /* INQUIRY leaves them, REQUEST SENSE takes one */
    assert_int_equal(run_in(w, CDB(0x12, 0, 0, 0, 255, 0), 255), 0);
    assert_int_equal(run_in(w, CDB(0x03, 0, 0, 0, 18, 0), 18), 0);
    assert_int_equal(answer[2], 6);
    assert_int_equal(get_be16(answer + 12), 0x2a09);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_REPORTED_LUNS_CHANGED);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    /* REPORT LUNS answers what the other attention asks for */
    assert_int_equal(test_unit_ready(w, w->b), SENSE_CAPACITY_CHANGED);
    struct call *call = start(w, w->b, 3, CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), NULL, 0, 256);
    assert_int_equal(get_be32(call->in), 16);
    call_free(call);
    assert_int_equal(test_unit_ready(w, w->b), 0);
    /* the new unit has one of its own */
    call = start(w, w->b, 4, CDB(0, 0, 0, 0, 0, 0), NULL, 0, 0);
    assert_int_equal(sense_code(&call->task), SENSE_POWER_ON);
    call_free(call);
    assert_int_equal(scsi_lun_remove(w->target, 4, NULL), OK);
    assert_int_equal(scsi_lun_remove(w->target, 4, NULL), ERR_NOT_FOUND);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_REPORTED_LUNS_CHANGED);
    fake_env_settle(&w->fake);
    memory_volume_done(&other);
}

/* ---- tasks that end otherwise ---- */

static void a_removed_unit_lives_until_its_tasks_end(void **state) {
    struct world *w = *state;
    w->volume.hold = true;
    struct call *call = start(w, w->a, 3, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), NULL, 0, 512);
    assert_int_equal(scsi_lun_remove(w->target, 3, NULL), OK);
    assert_int_equal(scsi_target_outstanding(w->target), 1);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_LUN_NOT_SUPPORTED);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_int_equal(call->task.status, SCSI_GOOD);
    assert_int_equal(scsi_target_outstanding(w->target), 0);
    call_free(call);
}

static void an_abort_does_not_wait(void **state) {
    struct world *w = *state;
    uint8_t old[1024], new[1024];
    memset(old, 1, sizeof(old));
    memset(new, 2, sizeof(new));
    w->volume.hold = true;
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 8, 0, 0, 2};
    struct call *first = start(w, w->a, 3, write, 10, old, 1024, 0);
    scsi_task_abort(&first->task);
    assert_true(first->dropped);
    fake_env_settle(&w->fake);
    assert_false(first->done); /* the volume has its memory */
    /* A later write of the same place waits for it; one elsewhere does not. */
    w->volume.hold = false;
    struct call *second = start(w, w->a, 3, write, 10, new, 1024, 0);
    struct call *third = start(w, w->a, 3, CDB(0x2a, 0, 0, 0, 0, 10, 0, 0, 1, 0), new, 512, 0);
    assert_true(third->done);
    assert_false(second->done);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_true(first->done && second->done && !second->dropped);
    assert_int_equal(w->volume.data[8 * 512], 2);
    call_free(first);
    call_free(second);
    call_free(third);
}

static void resets_reach_everybody(void **state) {
    struct world *w = *state;
    w->volume.hold = true;
    const uint8_t lun[8] = {0, 3};
    const uint8_t read[10] = {0x28, 0, 0, 0, 0, 0, 0, 0, 1};
    struct call *a = start(w, w->a, 3, read, 10, NULL, 0, 512);
    struct call *b = start(w, w->b, 3, read, 10, NULL, 0, 512);
    assert_int_equal(scsi_manage(w->a, SCSI_ABORT_TASK_SET, lun), OK);
    assert_true(a->dropped && !b->dropped);
    assert_int_equal(scsi_manage(w->a, SCSI_CLEAR_TASK_SET, lun), OK);
    assert_true(b->dropped);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_COMMANDS_CLEARED);
    struct call *c = start(w, w->b, 3, read, 10, NULL, 0, 512);
    assert_int_equal(scsi_manage(w->a, SCSI_LUN_RESET, lun), OK);
    assert_true(c->dropped);
    assert_int_equal(test_unit_ready(w, w->a), SENSE_BUS_DEVICE_RESET);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_BUS_DEVICE_RESET);
    assert_int_equal(scsi_manage(w->a, SCSI_LUN_RESET, (uint8_t[8]){0, 9}), ERR_NOT_FOUND);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    call_free(a);
    call_free(b);
    call_free(c);
}

static void a_closing_nexus_drops_its_tasks(void **state) {
    struct world *w = *state;
    w->volume.hold = true;
    struct scsi_port port = {2, 1, "", "", "iqn.2025-01.org.example:c,i,0x800000000003"};
    struct scsi_nexus *nexus = scsi_nexus_open(w->target, &port);
    assert_int_equal(test_unit_ready(w, nexus), SENSE_POWER_ON);
    struct call *call = start(w, nexus, 3, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0), NULL, 0, 512);
    scsi_nexus_close(nexus);
    assert_true(call->dropped && !call->done);
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    call_free(call);
}

static void lun_forms(void **state) {
    (void)state;
    uint32_t number = 99;
    assert_int_equal(scsi_lun_decode((uint8_t[8]){0, 255}, &number), OK);
    assert_int_equal(number, 255);
    assert_int_equal(scsi_lun_decode((uint8_t[8]){0x40, 17}, &number), OK);
    assert_int_equal(number, 17);
    assert_int_equal(scsi_lun_decode((uint8_t[8]){0x41, 17}, &number), ERR_RANGE);
    assert_int_equal(scsi_lun_decode((uint8_t[8]){1, 17}, &number), ERR_RANGE);
    assert_int_equal(scsi_lun_decode((uint8_t[8]){0xc1, 1}, &number), ERR_RANGE);
    assert_int_equal(scsi_lun_decode((uint8_t[8]){0, 1, 0, 1}, &number), ERR_RANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_sound),
        IN_WORLD(stray_bits_are_pointed_at),
        IN_WORLD(supported_opcodes),
        IN_WORLD(inquiry),
        IN_WORLD(designators),
        IN_WORLD(no_unit_at_this_number),
        IN_WORLD(capacity),
        IN_WORLD(mode_pages),
        IN_WORLD(mode_select),
        IN_WORLD(reads_and_writes_of_every_length),
        IN_WORLD(ranges_are_checked),
        IN_WORLD(expected_lengths),
        IN_WORLD(verify_compares),
        IN_WORLD(compare_and_write),
        IN_WORLD(write_same),
        IN_WORLD(unmap),
        IN_WORLD(write_cache_and_flush),
        IN_WORLD(errors_become_sense),
        cmocka_unit_test(sense_formats),
        IN_WORLD(attentions_come_once_each),
        IN_WORLD(a_removed_unit_lives_until_its_tasks_end),
        IN_WORLD(an_abort_does_not_wait),
        IN_WORLD(resets_reach_everybody),
        IN_WORLD(a_closing_nexus_drops_its_tasks),
        cmocka_unit_test(lun_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
