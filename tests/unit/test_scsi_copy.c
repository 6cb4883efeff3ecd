// SPDX-License-Identifier: MPL-2.0
/* EXTENDED COPY between units of a target, as hosts clone virtual disks with it. */
#include "scsi_world.h"

enum { SECOND_BYTES = 32 << 20, LIST_MAX = 4104 };

/* A second unit, of 4096-byte blocks, number 5. */
struct two {
    struct world *w;
    struct memory_volume other;
};

static int ready_two(void **state) {
    struct two *t = MEM_NEW(struct two);
    t->w = world_new(512);
    memory_volume_init(&t->other, &t->w->fake.env, SECOND_BYTES, 4096);
    t->other.info.id = 9;
    t->other.info.uuid.bytes[15] = 0x77;
    assert_int_equal(scsi_lun_add(t->w->target, 5, &t->other.door, &t->other.info, NULL), OK);
    fake_env_settle(&t->w->fake);
    while (test_unit_ready(t->w, t->w->a) != 0 || test_unit_ready(t->w, t->w->b) != 0) {
    }
    *state = t;
    return 0;
}

static int done_two(void **state) {
    struct two *t = *state;
    memory_volume_let_go(&t->other);
    world_free(t->w);
    memory_volume_done(&t->other);
    mem_free(t);
    return 0;
}

#define IN_TWO(f) cmocka_unit_test_setup_teardown(f, ready_two, done_two)

/* ---- lists ---- */

struct list_of {
    uint8_t bytes[LIST_MAX + 256];
    uint32_t cscds, segments, used;
};

static void begin(struct list_of *l, uint8_t id, uint8_t usage) {
    memset(l, 0, sizeof(*l));
    l->bytes[0] = id;
    l->bytes[1] = (uint8_t)(usage << 3);
    l->used = 16;
}

static void add_unit(struct list_of *l, const struct volume_info *info) {
    uint8_t *at = l->bytes + l->used;
    struct scsi_lun lun = {.info = *info};
    at[0] = 0xe4;
    at[4] = 1;
    at[5] = 3;
    at[7] = 16;
    scsi_lun_naa(&lun, at + 8);
    put_be24(at + 29, info->block_bytes);
    l->used += 32;
    l->cscds++;
}

static void add_segment(struct list_of *l, uint16_t from, uint16_t to, uint16_t blocks,
                        uint64_t from_lba, uint64_t to_lba, bool dc) {
    uint8_t *at = l->bytes + l->used;
    at[0] = 0x02;
    at[1] = dc ? 2 : 0;
    put_be16(at + 2, 24);
    put_be16(at + 4, from);
    put_be16(at + 6, to);
    put_be16(at + 10, blocks);
    put_be64(at + 12, from_lba);
    put_be64(at + 20, to_lba);
    l->used += 28;
    l->segments++;
}

static const uint8_t *finish(struct list_of *l) {
    static uint8_t cdb[16];
    memset(cdb, 0, sizeof(cdb));
    cdb[0] = 0x83;
    put_be16(l->bytes + 2, (uint16_t)(l->cscds * 32));
    put_be32(l->bytes + 8, l->segments * 28);
    put_be32(cdb + 10, l->used);
    return cdb;
}

static uint32_t copy(struct two *t, struct list_of *l) {
    uint32_t code = run(t->w, finish(l), 16, l->bytes, l->used, 0);
    return code != 0 ? code : last.status;
}

static uint32_t results(struct two *t, uint8_t action, uint8_t id) {
    return run_in(t->w, CDB(0x84, action, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), 256);
}

static void fill(uint8_t *data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(seed + i * 7 + i / 509) | 1;
    }
}

/* ---- copying ---- */

static void from_unit_to_unit(void **state) {
    struct two *t = *state;
    struct list_of l;
    fill(t->w->volume.data + (1 << 20), 5 << 20, 3);
    memset(t->other.data, 0xee, 16 << 20);
    begin(&l, 7, 0);
    add_unit(&l, &t->w->volume.info);
    add_unit(&l, &t->other.info);
    add_segment(&l, 0, 1, 10240, 2048, 256, false); /* 5 MiB: in three pieces */
    add_segment(&l, 0, 1, 16, 2048, 2000, true);    /* counted in blocks over there */
    add_segment(&l, 1, 0, 0, 0, 0, false);          /* nothing */
    add_segment(&l, 0, 0, 8, 2048, 65536, false);   /* within one unit */
    assert_int_equal(copy(t, &l), SCSI_GOOD);
    assert_memory_equal(t->other.data + (1 << 20), t->w->volume.data + (1 << 20), 5 << 20);
    assert_int_equal(t->other.data[(1 << 20) - 1], 0xee);
    assert_int_equal(t->other.data[6 << 20], 0xee);
    assert_memory_equal(t->other.data + 2000 * 4096, t->w->volume.data + (1 << 20), 16 * 4096);
    assert_int_equal(t->other.data[2016 * 4096], 0xee);
    assert_memory_equal(t->w->volume.data + (32 << 20), t->w->volume.data + (1 << 20), 4096);
    assert_int_equal(results(t, 0, 7), 0);
    assert_int_equal(get_be32(answer), 8);
    assert_int_equal(answer[4], 1);
    assert_int_equal(get_be16(answer + 5), 4);
    assert_int_equal(answer[7], 1);
    assert_int_equal(get_be32(answer + 8), (5 << 10) + 64 + 4);
    assert_int_equal(results(t, 4, 7), 0);
    assert_int_equal(get_be32(answer), 0);
    assert_int_equal(results(t, 0, 8), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(results(t, 4, 8), SENSE_INVALID_FIELD_IN_CDB);
}

/* What is not there is not read, and takes no room over there. */
static void holes_stay_holes(void **state) {
    struct two *t = *state;
    struct list_of l;
    memset(t->other.data, 0xee, SECOND_BYTES);
    fill(t->w->volume.data + (4 << 20), 4096, 5);
    fill(t->w->volume.data + (12 << 20), 4096, 6);
    begin(&l, 1, 0);
    add_unit(&l, &t->w->volume.info);
    add_unit(&l, &t->other.info);
    add_segment(&l, 0, 1, 32768, 0, 0, false);
    assert_int_equal(copy(t, &l), SCSI_GOOD);
    assert_memory_equal(t->other.data, t->w->volume.data, 16 << 20);
    assert_int_equal(t->other.data[16 << 20], 0xee);
    assert_int_equal(t->w->volume.counts[VOLUME_READ], 2);
    assert_int_equal(t->other.counts[VOLUME_WRITE], 2);
    assert_int_equal(t->other.counts[VOLUME_WRITE_ZEROES], 3);
    /* a volume that cannot tell is read */
    t->w->volume.fail_op = VOLUME_QUERY;
    t->w->volume.fail_status = ERR_BUSY;
    assert_int_equal(copy(t, &l), SCSI_GOOD);
    assert_int_equal(t->w->volume.counts[VOLUME_READ], 2 + 8);
    assert_memory_equal(t->other.data, t->w->volume.data, 16 << 20);
}

static void parameters(void **state) {
    struct two *t = *state;
    assert_int_equal(results(t, 3, 0), 0);
    assert_int_equal(get_be32(answer) + 4, last.transfer_bytes);
    assert_int_equal(get_be16(answer + 8), 16);
    assert_int_equal(get_be16(answer + 10), 100);
    assert_int_equal(get_be32(answer + 12), 16 * 32 + 100 * 28);
    assert_int_equal(answer[43], 2);
    assert_memory_equal(answer + 44, "\x02\xe4", 2);
    assert_int_equal(run_in(t->w, CDB(0x12, 0, 0, 0, 96, 0), 96), 0);
    assert_int_equal(answer[5] & 8, 8);
    assert_int_equal(run_in(t->w, CDB(0x12, 1, 0x8f, 4, 0, 0), 1024), 0);
    uint32_t at = 4, kinds = 0;
    for (; at < last.transfer_bytes; at += 4u + get_be16(answer + at + 2)) {
        assert_int_equal(get_be16(answer + at + 2) % 4, 0);
        kinds++;
    }
    assert_int_equal(at, last.transfer_bytes);
    assert_int_equal(kinds, 4);
}

/* ---- lists that are refused ---- */

static void bad_lists(void **state) {
    struct two *t = *state;
    struct list_of l;
    begin(&l, 0, 3);
    assert_int_equal(copy(t, &l), SCSI_GOOD); /* empty */
    assert_int_equal(run(t->w, CDB(0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), NULL, 0, 0),
                     0);
    begin(&l, 1, 3); /* no identifier, but one */
    assert_int_equal(copy(t, &l), SENSE_INVALID_FIELD_IN_PARAMETERS);
    begin(&l, 1, 1);
    assert_int_equal(copy(t, &l), SENSE_INVALID_FIELD_IN_PARAMETERS);
    begin(&l, 1, 0);
    l.bytes[15] = 1; /* inline data */
    assert_int_equal(copy(t, &l), SENSE_INLINE_DATA_LENGTH);
    begin(&l, 1, 0);
    for (uint32_t i = 0; i < 17; i++) {
        add_unit(&l, &t->w->volume.info);
    }
    assert_int_equal(copy(t, &l), SENSE_TOO_MANY_CSCDS);
    begin(&l, 1, 0);
    for (uint32_t i = 0; i < 101; i++) {
        add_segment(&l, 0, 0, 1, 0, 8, false);
    }
    assert_int_equal(copy(t, &l), SENSE_TOO_MANY_SEGMENTS);
    begin(&l, 1, 0);
    add_unit(&l, &t->w->volume.info);
    l.bytes[16] = 0xe3;
    assert_int_equal(copy(t, &l), SENSE_UNSUPPORTED_CSCD);
    l.bytes[16] = 0xe4;
    l.bytes[17] = 1; /* a tape */
    assert_int_equal(copy(t, &l), SENSE_INVALID_FIELD_IN_PARAMETERS);
    l.bytes[17] = 0;
    uint8_t numbers[SCSI_LUNS_MAX / 8];
    memset(numbers, 0xff, sizeof(numbers));
    begin(&l, 1, 0);
    add_unit(&l, &t->other.info);
    add_segment(&l, 0, 0, 1, 0, 8, false);
    assert_int_equal(copy(t, &l), SCSI_GOOD);
    numbers[0] = 0xdf; /* the other one is not */
    scsi_nexus_show(t->w->a, numbers);
    assert_int_equal(test_unit_ready(t->w, t->w->a), SENSE_REPORTED_LUNS_CHANGED);
    assert_int_equal(copy(t, &l), SENSE_COPY_UNREACHABLE);
    numbers[0] = 0xff;
    scsi_nexus_show(t->w->a, numbers);
    assert_int_equal(test_unit_ready(t->w, t->w->a), SENSE_REPORTED_LUNS_CHANGED);
    begin(&l, 1, 0);
    add_unit(&l, &t->w->volume.info);
    l.bytes[30] ^= 1; /* nobody's designator */
    assert_int_equal(copy(t, &l), SENSE_COPY_UNREACHABLE);
    l.bytes[30] ^= 1;
    put_be24(l.bytes + 16 + 29, 4096);
    assert_int_equal(copy(t, &l), SENSE_INVALID_FIELD_IN_PARAMETERS);
    for (uint32_t bytes = 1; bytes < 16 + 32 + 28; bytes++) {
        begin(&l, 1, 0);
        add_unit(&l, &t->w->volume.info);
        add_segment(&l, 0, 0, 1, 0, 8, false);
        uint8_t cdb[16];
        memcpy(cdb, finish(&l), 16);
        put_be32(cdb + 10, bytes);
        assert_int_equal(run(t->w, cdb, 16, l.bytes, bytes, 0), SENSE_PARAMETER_LIST_LENGTH);
    }
}

static uint32_t one_segment(struct two *t, uint16_t from, uint16_t to, uint16_t blocks,
                            uint64_t from_lba, uint64_t to_lba) {
    struct list_of l;
    begin(&l, 3, 0);
    add_unit(&l, &t->w->volume.info);
    add_unit(&l, &t->other.info);
    add_segment(&l, 0, 1, 0, 0, 0, false);
    add_segment(&l, from, to, blocks, from_lba, to_lba, false);
    return copy(t, &l);
}

static void bad_segments(void **state) {
    struct two *t = *state;
    struct list_of l;
    assert_int_equal(one_segment(t, 0, 2, 8, 0, 0), SENSE_COPY_UNREACHABLE);
    assert_int_equal(get_be32(last.sense + 3), 1); /* the second segment */
    assert_int_equal(one_segment(t, 0, 1, 9, 0, 0), SENSE_COPY_INEXACT);
    assert_int_equal(one_segment(t, 0, 1, 8, BLOCKS - 7, 0), SENSE_COPY_ABORTED);
    assert_int_equal(one_segment(t, 0, 1, 8, 0, SECOND_BYTES / 4096), SENSE_COPY_ABORTED);
    assert_int_equal(one_segment(t, 0, 1, 8, UINT64_MAX, 0), SENSE_COPY_ABORTED);
    assert_int_equal(one_segment(t, 0, 0, 8, 0, 7), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(one_segment(t, 0, 0, 8, 7, 0), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(one_segment(t, 0, 0, 8, 8, 0), SCSI_GOOD);
    begin(&l, 3, 0);
    add_unit(&l, &t->w->volume.info);
    add_segment(&l, 0, 0, 8, 0, 64, false);
    l.bytes[16 + 32] = 0x03;
    assert_int_equal(copy(t, &l), SENSE_UNSUPPORTED_SEGMENT);
    l.bytes[16 + 32] = 0x02;
    l.bytes[16 + 32 + 3] = 25;
    assert_int_equal(copy(t, &l), SENSE_INVALID_FIELD_IN_PARAMETERS);
    assert_int_equal(t->other.counts[VOLUME_WRITE], 0);
    /* failed details tell what became of it */
    assert_int_equal(one_segment(t, 0, 1, 9, 0, 0), SENSE_COPY_INEXACT);
    assert_int_equal(results(t, 0, 3), 0);
    assert_int_equal(answer[4], 2);
    assert_int_equal(results(t, 4, 3), 0);
    assert_int_equal(get_be32(answer), 56 + 18);
    assert_int_equal(answer[56], SCSI_CHECK_CONDITION);
    assert_int_equal(get_be16(answer + 58), 18);
    assert_int_equal(answer[62], 0x0a);
}

static void reservations_and_protection_hold(void **state) {
    struct two *t = *state;
    const uint8_t reserve[6] = {0x16};
    struct call *call = start(t->w, t->w->b, 5, reserve, 6, NULL, 0, 0);
    if (sense_code(&call->task) != 0) { /* the unit's first word to it */
        call_free(call);
        call = start(t->w, t->w->b, 5, reserve, 6, NULL, 0, 0);
    }
    assert_int_equal(call->task.status, SCSI_GOOD);
    call_free(call);
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(one_segment(t, 1, 0, 1, 0, 0), SCSI_RESERVATION_CONFLICT);
    assert_int_equal(t->other.counts[VOLUME_WRITE_ZEROES], 0);
    assert_int_equal(scsi_manage(t->w->b, SCSI_LUN_RESET, (uint8_t[8]){0, 5}), OK);
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SCSI_GOOD);
}

static void errors_in_the_middle(void **state) {
    struct two *t = *state;
    fill(t->w->volume.data, 1 << 20, 9);
    t->other.fail_op = VOLUME_WRITE;
    t->other.fail_status = ERR_NO_SPACE;
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SENSE_SPACE_ALLOCATION_FAILED);
    t->other.fail_status = ERR_AGAIN;
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SCSI_BUSY);
    t->other.fail_status = ERR_IO;
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SENSE_COPY_DEVICE_FAILURE);
    assert_int_equal(get_be32(last.sense + 3), 1);
    t->other.fail_status = OK;
    t->w->volume.fail_op = VOLUME_READ;
    t->w->volume.fail_status = ERR_CHECKSUM;
    assert_int_equal(one_segment(t, 0, 1, 8, 0, 0), SENSE_COPY_DEVICE_FAILURE);
}

/* ---- while it runs ---- */

static struct call *start_copy(struct two *t, struct scsi_nexus *nexus, uint8_t id) {
    struct list_of l;
    begin(&l, id, 0);
    add_unit(&l, &t->w->volume.info);
    add_unit(&l, &t->other.info);
    add_segment(&l, 0, 1, 16, 0, 0, false);
    return start(t->w, nexus, 3, finish(&l), 16, l.bytes, l.used, 0);
}

static void progress_and_abort(void **state) {
    struct two *t = *state;
    fill(t->w->volume.data, 1 << 20, 9);
    t->other.hold = true;
    struct call *call = start_copy(t, t->w->a, 4);
    assert_false(call->done);
    assert_int_equal(results(t, 0, 4), 0);
    assert_int_equal(answer[4], 0);
    /* the same identifier again, by the same nexus and by another */
    struct call *again = start_copy(t, t->w->a, 4);
    assert_int_equal(sense_code(&again->task), SENSE_COPY_IN_PROGRESS);
    call_free(again);
    const uint8_t unknown[16] = {0x83, 0x1c, 0, 0, 0, 5}, known[16] = {0x83, 0x1c, 0, 0, 0, 4};
    assert_int_equal(run(t->w, unknown, 16, NULL, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run_as(t->w, t->w->b, known, 16, NULL, 0, 0), SENSE_INVALID_FIELD_IN_CDB);
    assert_int_equal(run(t->w, known, 16, NULL, 0, 0), 0);
    memory_volume_let_go(&t->other);
    fake_env_settle(&t->w->fake);
    assert_true(call->done);
    assert_int_equal(sense_code(&call->task), SENSE_COPY_ABORTED);
    call_free(call);
    assert_int_equal(results(t, 0, 4), 0);
    assert_int_equal(answer[4], 2);
}

static void so_many_at_once(void **state) {
    struct two *t = *state;
    struct call *calls[17];
    fill(t->w->volume.data, 1 << 20, 9);
    t->other.hold = true;
    for (uint8_t i = 0; i < 17; i++) {
        calls[i] = start_copy(t, i % 2 ? t->w->a : t->w->b, i);
        assert_int_equal(calls[i]->done, i == 16);
    }
    assert_int_equal(calls[16]->task.status, SCSI_BUSY);
    memory_volume_let_go(&t->other);
    fake_env_settle(&t->w->fake);
    for (uint8_t i = 0; i < 17; i++) {
        assert_true(calls[i]->done);
        call_free(calls[i]);
    }
}

/* A dropped copy writes to another unit than it was sent to: who overlaps it there must wait. */
static void a_dropped_copy_is_not_overtaken(void **state) {
    struct two *t = *state;
    fill(t->w->volume.data, 1 << 20, 9);
    t->other.hold = true;
    struct call *call = start_copy(t, t->w->a, 4);
    scsi_task_abort(&call->task);
    assert_true(call->dropped);
    fake_env_settle(&t->w->fake);
    assert_false(call->done);
    assert_int_equal(results(t, 0, 4), SENSE_INVALID_FIELD_IN_CDB);
    t->other.hold = false;
    uint8_t data[4096];
    memset(data, 0x5a, sizeof(data));
    const uint8_t write[10] = {0x2a, 0, 0, 0, 0, 1, 0, 0, 1};
    struct call *later = start(t->w, t->w->a, 5, write, 10, data, sizeof(data), 0);
    if (!later->begun) { /* the unit's first word */
        call_free(later);
        later = start(t->w, t->w->a, 5, write, 10, data, sizeof(data), 0);
    }
    assert_true(later->begun);
    assert_false(later->done);
    memory_volume_let_go(&t->other);
    fake_env_settle(&t->w->fake);
    assert_true(call->done && later->done);
    assert_int_equal(t->other.data[4096], 0x5a);
    assert_memory_equal(t->other.data, t->w->volume.data, 4096);
    call_free(call);
    call_free(later);
}

/* Units that go while a copy needs them live until it has ended; dropped or not. */
static void units_may_go(void **state) {
    struct two *t = *state;
    fill(t->w->volume.data, 1 << 20, 9);
    for (int dropped = 0; dropped < 2; dropped++) {
        t->other.hold = true;
        struct call *call = start_copy(t, t->w->a, 4);
        assert_int_equal(scsi_lun_remove(t->w->target, 5, NULL), OK);
        assert_int_equal(scsi_lun_remove(t->w->target, 3, NULL), OK);
        if (dropped) {
            scsi_task_abort(&call->task);
        }
        fake_env_settle(&t->w->fake);
        assert_int_equal(scsi_target_outstanding(t->w->target), 1);
        memory_volume_let_go(&t->other);
        fake_env_settle(&t->w->fake);
        assert_int_equal(scsi_target_outstanding(t->w->target), 0);
        assert_true(call->done);
        assert_memory_equal(t->other.data, t->w->volume.data, 8192);
        call_free(call);
        assert_int_equal(
            scsi_lun_add(t->w->target, 3, &t->w->volume.door, &t->w->volume.info, NULL), OK);
        assert_int_equal(scsi_lun_add(t->w->target, 5, &t->other.door, &t->other.info, NULL), OK);
        fake_env_settle(&t->w->fake);
        while (test_unit_ready(t->w, t->w->a) != 0) {
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TWO(from_unit_to_unit),    IN_TWO(holes_stay_holes),
        IN_TWO(parameters),           IN_TWO(bad_lists),
        IN_TWO(bad_segments),         IN_TWO(reservations_and_protection_hold),
        IN_TWO(errors_in_the_middle), IN_TWO(progress_and_abort),
        IN_TWO(so_many_at_once),      IN_TWO(a_dropped_copy_is_not_overtaken),
        IN_TWO(units_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
