// SPDX-License-Identifier: MPL-2.0
/* What hosts ask a unit about: target port groups, log and mode pages, provisioning; and the small
 * commands of the medium. */
#include "scsi_world.h"

enum { SET_BYTES = 16 << 20 }; /* a threshold set */

/* ---- target port groups ---- */

static void port_groups(void **state) {
    struct world *w = *state;
    static const uint16_t ids[] = {1, 2, 4, 5};
    scsi_target_set_ports(w->target, (uint16_t[]){1, 2, 5}, 3);
    struct scsi_nexus *c = nexus_open(w, "iqn.2025-01.org.example:c,i,0x1", 4);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(get_be32(answer), 8 + 4 * 4);
    assert_int_equal(last.transfer_bytes, 4 + 8 + 4 * 4);
    assert_int_equal(answer[4], 0); /* active/optimized */
    assert_int_equal(answer[5], 1);
    assert_int_equal(get_be16(answer + 6), 1);
    assert_int_equal(answer[9], 0);
    assert_int_equal(answer[11], 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(get_be16(answer + 12 + 4 * i + 2), ids[i]);
    }
    scsi_nexus_close(c);
    /* the extended form */
    assert_int_equal(run_in(w, CDB(0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(get_be32(answer), 4 + 8 + 3 * 4);
    assert_int_equal(answer[4], 0x10);
    assert_int_equal(get_be16(answer + 10), 1);
    assert_int_equal(run_in(w, CDB(0xa3, 0x4a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256),
                     SENSE_INVALID_FIELD_IN_CDB);
    /* INQUIRY says so, and page 83h names the group of the port */
    assert_int_equal(run_in(w, CDB(0x12, 0, 0, 0, 255, 0), 255), 0);
    assert_int_equal(answer[5] & 0x30, 0x30);
}

static uint32_t set_group(struct world *w, uint8_t access, uint16_t group, uint32_t bytes) {
    uint8_t list[12] = {0};
    list[4] = access;
    put_be16(list + 6, group);
    const uint8_t cdb[12] = {0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, (uint8_t)bytes};
    return run(w, cdb, 12, list, bytes, 0);
}

static void setting_port_groups(void **state) {
    struct world *w = *state;
    assert_int_equal(set_group(w, 0, 1, 0), 0);
    assert_int_equal(set_group(w, 1, 1, 8), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(set_group(w, 0, 2, 8), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(set_group(w, 0, 1, 7), SENSE_PARAMETER_LIST_LENGTH);
    assert_int_equal(set_group(w, 0, 1, 3), SENSE_PARAMETER_LIST_LENGTH);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(answer[9], 0);
    assert_int_equal(set_group(w, 0, 1, 8), 0);
    assert_int_equal(run_in(w, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256), 0);
    assert_int_equal(answer[9], 1); /* by SET TARGET PORT GROUPS */
}

/* ---- log pages ---- */

static uint32_t log_page(struct world *w, uint8_t page, uint8_t subpage, uint8_t from) {
    return run_in(w, CDB(0x4d, 0, page, subpage, 0, 0, from, 1, 0, 0), 256);
}

static void log_pages(void **state) {
    struct world *w = *state;
    assert_int_equal(log_page(w, 0x40, 0, 0), 0);
    assert_memory_equal(answer, "\x00\x00\x00\x03\x00\x0c\x2f", 7);
    assert_int_equal(log_page(w, 0x40, 0xff, 0), 0);
    assert_memory_equal(answer, "\x40\xff\x00\x08\x00\x00\x00\xff\x0c\x00\x2f\x00", 12);
    assert_int_equal(log_page(w, 0x6f, 0, 0), 0);
    assert_memory_equal(answer, "\x2f\x00\x00\x08\x00\x00\x03\x04\x00\x00\xff\x00", 12);
    w->volume.space = (struct volume_space){3ull * SET_BYTES, 5ull * SET_BYTES, 64ull * SET_BYTES};
    assert_int_equal(log_page(w, 0x4c, 0, 0), 0);
    assert_memory_equal(answer,
                        "\x0c\x00\x00\x18"
                        "\x00\x01\x03\x08\x00\x00\x00\x05\x02\x00\x00\x00"
                        "\x00\x02\x03\x08\x00\x00\x00\x03\x01\x00\x00\x00",
                        28);
    assert_int_equal(log_page(w, 0x4c, 0, 2), 0);
    assert_memory_equal(answer, "\x0c\x00\x00\x0c\x00\x02", 6);
    assert_int_equal(log_page(w, 0x4c, 0, 3), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(log_page(w, 0x4d, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(log_page(w, 0x4c, 1, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0x4d, 1, 0x40, 0, 0, 0, 0, 1, 0, 0), 256),
                     SENSE_INVALID_FIELD_IN_CDB); /* nothing is saved */
    w->volume.fail_op = VOLUME_SPACE;
    w->volume.fail_status = ERR_SHUTDOWN;
    assert_int_equal(log_page(w, 0x4c, 0, 0), SENSE_NOT_READY_CAUSE_UNKNOWN);
}

/* ---- thin provisioning ---- */

static uint32_t write_much(struct world *w) {
    static uint8_t data[SET_BYTES];
    return run(w, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0x80, 0, 0), data, SET_BYTES, 0);
}

static void thresholds(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x12, 1, 0xb2, 0, 255, 0), 255), 0);
    assert_int_equal(512u << answer[4], SET_BYTES);
    w->volume.space = (struct volume_space){0, 20ull * SET_BYTES, 100ull * SET_BYTES};
    assert_int_equal(write_much(w), 0);
    /* each nexus once, with a pointer to the threshold */
    for (int i = 0; i < 2; i++) {
        struct scsi_nexus *nexus = i == 0 ? w->a : w->b;
        assert_int_equal(run_as(w, nexus, CDB(0, 0, 0, 0, 0, 0), NULL, 0, 0), SENSE_THIN_THRESHOLD);
        assert_int_equal(last.sense[0], 0xf0);
        assert_int_equal(get_be32(last.sense + 3), 16);
        assert_int_equal(test_unit_ready(w, nexus), 0);
    }
    assert_int_equal(write_much(w), 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    /* the mode page says what the threshold is; it is there in the page with subpages only */
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x1c, 2, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4 + 24);
    assert_memory_equal(answer + 4, "\x5c\x02\x00\x14", 4);
    assert_memory_equal(answer + 4 + 16, "\x80\x01\x00\x00\x00\x00\x00\x14", 8);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x1c, 0, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4 + 12);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x1c, 0xff, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4 + 12 + 24);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x3f, 0xff, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4 + 12 + 20 + 12 + 12 + 24);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x1c, 1, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x01, 0, 255, 0), 255), 0);
    assert_int_equal(answer[4 + 7], 0x80); /* LBPERE */
    /* a little more room does not arm it again, more does */
    w->volume.space.free_bytes = 21ull * SET_BYTES;
    assert_int_equal(write_much(w), 0);
    w->volume.space.free_bytes = 19ull * SET_BYTES;
    assert_int_equal(write_much(w), 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    w->volume.space.free_bytes = 30ull * SET_BYTES;
    assert_int_equal(write_much(w), 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    w->volume.space.free_bytes = 19ull * SET_BYTES;
    assert_int_equal(write_much(w), 0);
    assert_int_equal(test_unit_ready(w, w->b), SENSE_THIN_THRESHOLD);
    assert_int_equal(test_unit_ready(w, w->b), 0);
}

static void thick_units_have_no_threshold(void **state) {
    struct world *w = *state;
    struct volume_info info = w->volume.info;
    info.thick = true;
    assert_int_equal(scsi_lun_update(w->target, 3, &info, NULL), OK);
    w->volume.space.free_bytes = 0;
    assert_int_equal(write_much(w), 0);
    assert_int_equal(test_unit_ready(w, w->a), 0);
    assert_int_equal(log_page(w, 0x4c, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(log_page(w, 0x40, 0, 0), 0);
    assert_int_equal(get_be16(answer + 2), 2);
    assert_int_equal(run_in(w, CDB(0x1a, 8, 0x1c, 2, 255, 0), 255), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_in(w, CDB(0x12, 1, 0xb2, 0, 255, 0), 255), 0);
    assert_int_equal(answer[4], 0);
    assert_int_equal(answer[6], 1);
}

static void lba_status(void **state) {
    struct world *w = *state;
    memset(w->volume.data + 8192, 1, 4096);
    memset(w->volume.data + 20480, 1, 512);
    const uint8_t all[16] = {0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 16, 0};
    assert_int_equal(run_in(w, all, 16, 4096), 0);
    static const struct {
        uint32_t lba, blocks, status;
    } runs[] = {{17, 7, 0}, {24, 16, 1}, {40, 8, 0}, {48, BLOCKS - 48, 1}};
    assert_int_equal(get_be32(answer), 4 + 16 * 4);
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *at = answer + 8 + 16 * i;
        assert_int_equal(get_be64(at), runs[i].lba);
        assert_int_equal(get_be32(at + 8), runs[i].blocks);
        assert_int_equal(at[12], runs[i].status);
    }
    /* no room for a descriptor, for one, for two and a half */
    for (uint32_t room = 0; room < 60; room++) {
        const uint8_t cdb[16] = {0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, (uint8_t)room};
        assert_int_equal(run_in(w, cdb, 16, 4096), 0);
        uint32_t descriptors = room < 40 ? 1 : (room - 8) / 16;
        assert_int_equal(last.transfer_bytes, MIN(room, 8 + 16 * descriptors));
        assert_true(room < 4 || get_be32(answer) == 4 + 16 * descriptors);
    }
    w->volume.fail_op = VOLUME_QUERY;
    w->volume.fail_status = ERR_BUSY;
    assert_int_equal(run_in(w, all, 16, 4096), 0);
    assert_int_equal(last.status, SCSI_BUSY);
}

/* ---- the medium ---- */

static void or_write(void **state) {
    struct world *w = *state;
    static uint8_t data[256 << 10];
    uint64_t at = 7 * 512;
    for (uint32_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(1u << (i % 8));
        w->volume.data[at + i] = (uint8_t)(i / 7);
    }
    w->volume.data[at - 1] = w->volume.data[at + sizeof(data)] = 0x55;
    const uint8_t cdb[16] = {0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 0};
    assert_int_equal(run(w, cdb, 16, data, sizeof(data), 0), 0);
    for (uint32_t i = 0; i < sizeof(data); i++) {
        assert_int_equal(w->volume.data[at + i], (uint8_t)(i / 7) | data[i]);
    }
    assert_int_equal(w->volume.data[at - 1], 0x55);
    assert_int_equal(w->volume.data[at + sizeof(data)], 0x55);
    assert_int_equal(w->volume.fua_count, w->volume.counts[VOLUME_COMPARE_AND_WRITE]);
    /* less data than blocks: what there is */
    assert_int_equal(run(w, cdb, 16, data, 1000, 0), 0);
    assert_int_equal(last.transfer_bytes, sizeof(data));
    assert_int_equal(run(w, CDB(0x8b, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1), data, 512, 0),
                     SENSE_LBA_OUT_OF_RANGE);
    assert_int_equal(run(w, CDB(0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), NULL, 0, 0), 0);
}

/* Somebody writes between the reading and the writing. */
static void or_write_loses_nothing(void **state) {
    struct world *w = *state;
    uint8_t data[512];
    memset(data, 0x01, sizeof(data));
    memset(w->volume.data, 0x10, sizeof(data));
    w->volume.hold = true;
    const uint8_t cdb[16] = {0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    struct call *call = start(w, w->a, 3, cdb, 16, data, 512, 0);
    memory_volume_let_go(&w->volume);
    w->volume.hold = true; /* it has read; its comparison is held */
    fake_env_settle(&w->fake);
    assert_false(call->done);
    memset(w->volume.data, 0x20, sizeof(data));
    memory_volume_let_go(&w->volume);
    fake_env_settle(&w->fake);
    assert_true(call->done);
    assert_int_equal(call->task.status, SCSI_GOOD);
    assert_int_equal(w->volume.data[5], 0x21);
    assert_int_equal(w->volume.counts[VOLUME_COMPARE_AND_WRITE], 2);
    call_free(call);
    /* without end: busy, not for ever */
    w->volume.fail_op = VOLUME_COMPARE_AND_WRITE;
    w->volume.fail_status = ERR_MISCOMPARE;
    assert_int_equal(run(w, cdb, 16, data, 512, 0), 0);
    assert_int_equal(last.status, SCSI_BUSY);
}

static void hints_and_defects(void **state) {
    struct world *w = *state;
    assert_int_equal(run_in(w, CDB(0x34, 2, 0, 0, 0, 9, 0, 0, 8, 0), 0), 0);
    assert_int_equal(run_in(w, CDB(0x34, 0, 0, 2, 0, 0, 0, 0, 1, 0), 0), SENSE_LBA_OUT_OF_RANGE);
    assert_int_equal(run_in(w, CDB(0x90, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0), 0), 0);
    assert_int_equal(run_in(w, CDB(0x90, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0), 0),
                     SENSE_LBA_OUT_OF_RANGE);
    assert_int_equal(run_in(w, CDB(0x37, 0, 0x1d, 0, 0, 0, 0, 0, 255, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 4);
    assert_memory_equal(answer, "\x00\x1d\x00\x00", 4);
    assert_int_equal(run_in(w, CDB(0xb7, 0x08, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0), 255), 0);
    assert_int_equal(last.transfer_bytes, 8);
    assert_memory_equal(answer, "\x00\x08\x00\x00\x00\x00\x00\x00", 8);
    assert_int_equal(run_in(w, CDB(0x37, 0, 0x07, 0, 0, 0, 0, 0, 255, 0), 255),
                     SENSE_INVALID_FIELD_IN_CDB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_WORLD(port_groups), IN_WORLD(setting_port_groups),           IN_WORLD(log_pages),
        IN_WORLD(thresholds),  IN_WORLD(thick_units_have_no_threshold), IN_WORLD(lba_status),
        IN_WORLD(or_write),    IN_WORLD(or_write_loses_nothing),        IN_WORLD(hints_and_defects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
