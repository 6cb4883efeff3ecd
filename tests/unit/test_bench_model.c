// SPDX-License-Identifier: MPL-2.0
/* Modelled disks, links and arrays against what is known of them. Virtual time is exact, so figures
 * can be tests. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/inplace.h"
#include "bench/model.h"
#include "bench/model_load.h"
#include "env/fiber.h"

static void expect(double value, double low, double high) {
    if (!(value >= low && value <= high)) {
        print_error("%.2f is not within [%.2f, %.2f]\n", value, low, high);
        fail();
    }
}

static void within(double value, double wanted, double pct) {
    expect(value, wanted * (1 - pct / 100), wanted * (1 + pct / 100));
}

static struct model_options options_of(const char *disks, enum profile profile, const char *link) {
    struct model_options o = {.profile = profile,
                              .span_bytes = 5000000000,
                              .memory_bytes = 1 << 30,
                              .depth = 16,
                              .tests = 1u << MODEL_RAND_READ_4K};
    assert_int_equal(bench_disk_list_parse(disks, &o.disks, NULL), OK);
    assert_int_equal(link_parse(link, &o.link, NULL), OK);
    return o;
}

static double figure_of(const struct model_options *o, enum model_system system,
                        enum model_test test) {
    struct bench_document document;
    struct errmsg why = {0};
    int error = model_run(o, system, &document, &why);
    if (error != OK) {
        fail_msg("%s", why.text);
    }
    const struct bench_result *result = model_result(&document, test);
    assert_non_null(result);
    double value = result->value;
    assert_true(result->p50_us > 0 && result->p99_us >= result->p50_us &&
                result->worst_us >= result->p9999_us);
    bench_document_done(&document);
    return value;
}

/* ---- disks ---- */

/* The whole disk, one at a time: the data sheet. */
static void every_disk_is_like_its_data_sheet(void **state) {
    (void)state;
    for (uint32_t i = 0; bench_disk_at(i) != NULL; i++) {
        const struct sim_model *disk = bench_disk_at(i);
        struct model_options o = options_of(disk->name, PROFILE_SINGLE, "local");
        o.link.command_ns = 0;
        o.depth = 1;
        o.factor = 256;
        o.seconds = disk->rotational ? 60 : 1;
        o.span_bytes = disk->capacity_bytes;
        within(figure_of(&o, MODEL_BARE, MODEL_RAND_READ_4K), disk->sheet_read_iops, 10);
        assert_ptr_equal(bench_disk_find(disk->name), disk);
    }
    assert_null(bench_disk_find("hdd"));
}

/* 5 GB, 16 at a time, over one gigabit: 403 (NFS) to 508 (iSCSI) were published. */
static void a_short_span_is_as_published(void **state) {
    (void)state;
    struct model_options o = options_of("hdd-7200-2tb", PROFILE_SINGLE, "1gbe");
    expect(figure_of(&o, MODEL_BARE, MODEL_RAND_READ_4K), 403 * 0.75, 508 * 1.25);
    expect(figure_of(&o, MODEL_HOLDFAST, MODEL_RAND_READ_4K), 403 * 0.75, 508 * 1.25);
    /* Four times as near to the real thing, and still. */
    o.factor = 4;
    expect(figure_of(&o, MODEL_BARE, MODEL_RAND_READ_4K), 403 * 0.75, 508 * 1.25);
}

static void lists_of_disks(void **state) {
    (void)state;
    static const struct {
        const char *text, *written;
    } good[] = {{"6x hdd-7200-2tb", "6x hdd-7200-2tb"},
                {"6xhdd-7200-2tb", "6x hdd-7200-2tb"},
                {"sata-ssd", "1x sata-ssd"},
                {" 2x  sata-ssd +4xhdd-7200-8tb ", "2x sata-ssd + 4x hdd-7200-8tb"}};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct bench_disk_list list;
        assert_int_equal(bench_disk_list_parse(good[i].text, &list, NULL), OK);
        assert_string_equal(list.text, good[i].written);
    }
    static const char *const bad[] = {
        "",
        "6x",
        "x sata-ssd",
        "0x sata-ssd",
        "6 sata-ssd",
        "6x tape",
        "6x sata-ssd+",
        "25x sata-ssd",
        "99999999999999999999x sata-ssd",
        "1x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct bench_disk_list list;
        struct errmsg why = {0};
        assert_int_not_equal(bench_disk_list_parse(bad[i], &list, &why), OK);
        assert_true(why.text[0] != '\0');
    }
}

/* ---- links ---- */

static void links_carry_what_they_can(void **state) {
    (void)state;
    static const char *const bad[] = {"", "0x1gbe", "17x1gbe", "2x", "2x3gbe", "x1gbe", "2 1gbe"};
    struct link_options o;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(link_parse(bad[i], &o, NULL), ERR_INVALID);
    }
    assert_int_equal(link_parse("4x10gbe", &o, NULL), OK);
    assert_string_equal(o.text, "4x10gbe");
    assert_int_equal(o.paths, 4);
    /* A gigabit carries 117 to 118 MB/s of data in full frames. */
    assert_int_equal(link_parse("1gbe", &o, NULL), OK);
    expect(link_mb_s(&o, 512 << 10), 117, 118);
    static const struct {
        const char *link;
        double mb_s;
    } links[] = {{"1gbe", 117.7}, {"2x1gbe", 235.4}, {"2.5gbe", 294.2}};
    for (size_t i = 0; i < ARRAY_COUNT(links); i++) {
        struct model_options m = options_of("8x nvme-1tb", PROFILE_RAID0, links[i].link);
        m.tests = 1u << MODEL_SEQ_READ_512K;
        m.seconds = 2;
        within(figure_of(&m, MODEL_BARE, MODEL_SEQ_READ_512K), links[i].mb_s, 1);
    }
}

/* ---- the classic array ---- */

struct world {
    struct env *env;
    struct inplace *array;
    struct model_load load;
    struct model_load_result result;
    enum profile profile;
    uint32_t disks;
    bool lose, done;
    char path[8][16];
    const char *paths[8];
};

enum { VOLUME_BYTES = 192 << 20 };

static void world_fiber(void *arg) {
    struct world *w = arg;
    struct inplace_options options = {.paths = w->paths,
                                      .path_count = w->disks,
                                      .profile = w->profile,
                                      .size_bytes = VOLUME_BYTES,
                                      .write_back_bytes = 8 << 20,
                                      .read_cache_bytes = 1 << 20};
    assert_int_equal(inplace_new(w->env, &options, &w->array, NULL), OK);
    if (w->lose) {
        assert_int_equal(inplace_lose(w->array, 0, NULL), OK);
        assert_int_equal(inplace_lose(w->array, 1, NULL), ERR_RANGE);
    }
    w->load.door = inplace_door(w->array);
    w->load.span_bytes = VOLUME_BYTES;
    model_load_run(&w->load, &w->result);
    inplace_settle(w->array);
    w->done = true;
}

static bool world_is_done(void *ctx) {
    return ((const struct world *)ctx)->done;
}

/* Disk I/Os of `load` on an array, counted in blocks a block of the load. */
static void world_run(struct world *w, double *ret_read, double *ret_written) {
    w->env = env_sim_new(&(struct env_sim_options){.seed = 1});
    for (uint32_t i = 0; i < w->disks; i++) {
        struct sim_disk *disk;
        struct sim_disk_options o = {
            .model = "nvme-plp", .path = w->path[i], .size_bytes = 256 << 20};
        (void)snprintf(w->path[i], sizeof(w->path[i]), "d%u", i);
        w->paths[i] = w->path[i];
        assert_int_equal(env_sim_disk_add(w->env, &o, &disk, NULL), OK);
    }
    fiber_start(w->env, world_fiber, w);
    assert_int_equal(env_sim_run_until(w->env, UINT64_MAX, world_is_done, w), SIM_DONE);
    struct inplace_counters c;
    inplace_counters(w->array, &c);
    assert_int_equal(w->result.failed, 0);
    *ret_read = (double)c.disk_read_bytes / (double)w->result.bytes;
    *ret_written = (double)c.disk_write_bytes / (double)w->result.bytes;
    inplace_free(w->array);
    env_sim_free(w->env);
}

static void writing_in_place_costs_what_it_must(void **state) {
    (void)state;
    static const struct {
        enum profile profile;
        uint32_t disks;
        bool lose, random;
        double read, written;
    } cases[] = {
        /* Alone in its row: old data and old parity read, or the others where they are fewer. */
        {PROFILE_RAID5, 6, false, true, 2, 2},
        {PROFILE_RAID5, 3, false, true, 1, 2},
        {PROFILE_RAID6, 6, false, true, 3, 3},
        {PROFILE_RAID10, 4, false, true, 0, 2},
        {PROFILE_SINGLE, 1, false, true, 0, 1},
        {PROFILE_RAID0, 3, false, true, 0, 1},
        /* Whole rows read nothing. */
        {PROFILE_RAID5, 6, false, false, 0, 1.2},
        {PROFILE_RAID6, 6, false, false, 0, 1.5},
        /* Without a disk of six: in 1/6 of all rows it held parity (nothing to read, nothing to
         * write there), in 1/6 what is written (the other four are read, parity written), in 4/6
         * other data (as ever). */
        {PROFILE_RAID5, 6, true, true, 4 / 6.0 * 2 + 4 / 6.0, 4 / 6.0 * 2 + 1 / 6.0 + 1 / 6.0},
        {PROFILE_RAID1, 2, true, true, 0, 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct world *w = MEM_NEW(struct world);
        w->profile = cases[i].profile;
        w->disks = cases[i].disks;
        w->lose = cases[i].lose;
        w->load = (struct model_load){.op = VOLUME_WRITE,
                                      .request_bytes = cases[i].random ? 4096 : 512 << 10,
                                      .depth = 16,
                                      .random = cases[i].random,
                                      /* few, so that hardly two meet in a row */
                                      .requests = cases[i].random ? 1200 : 360};
        double read, written;
        world_run(w, &read, &written);
        expect(read, cases[i].read * 0.93, cases[i].read * 1.07);
        expect(written, cases[i].written * 0.93, cases[i].written * 1.07);
        mem_free(w);
    }
}

static void reading_without_a_disk_reads_all_others(void **state) {
    (void)state;
    struct world *w = MEM_NEW(struct world);
    double read, written;
    w->profile = PROFILE_RAID5;
    w->disks = 6;
    w->lose = true;
    w->load = (struct model_load){
        .op = VOLUME_READ, .request_bytes = 4096, .depth = 16, .random = true, .requests = 3000};
    world_run(w, &read, &written);
    within(read, 5 / 6.0 + 1 / 6.0 * 5, 7);
    assert_true(written == 0);
    mem_free(w);
}

/* ---- whole models ---- */

static char *dump_of(const struct model_options *o, enum model_system system) {
    struct bench_document document;
    assert_int_equal(model_run(o, system, &document, NULL), OK);
    json_t *json = bench_document_json(&document);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    bench_document_done(&document);
    return text;
}

static void models_are_deterministic(void **state) {
    (void)state;
    struct model_options o = options_of("4x hdd-7200-2tb", PROFILE_RAID5, "2x1gbe");
    o.span_bytes = 2ull << 30;
    o.factor = 64;
    o.seconds = 3;
    o.tests = (1u << MODEL_RAND_WRITE_4K) | (1u << MODEL_RAND_READ_4K);
    for (int system = MODEL_HOLDFAST; system <= MODEL_CLASSIC; system++) {
        o.seed = 0;
        char *first = dump_of(&o, (enum model_system)system);
        char *again = dump_of(&o, (enum model_system)system);
        o.seed = 1;
        char *other = dump_of(&o, (enum model_system)system);
        assert_string_equal(first, again);
        assert_string_not_equal(first, other);
        free(first);
        free(again);
        free(other);
    }
}

static void a_lost_disk_costs_reads(void **state) {
    (void)state;
    struct model_options o = options_of("4x sata-ssd", PROFILE_RAID5, "local");
    o.span_bytes = 2ull << 30;
    o.link.command_ns = 0; /* else the processor is what limits */
    o.factor = 32;
    o.seconds = 1;
    for (int system = MODEL_HOLDFAST; system <= MODEL_CLASSIC; system++) {
        o.state = MODEL_WHOLE;
        double whole = figure_of(&o, (enum model_system)system, MODEL_RAND_READ_4K);
        o.state = MODEL_DEGRADED;
        double degraded = figure_of(&o, (enum model_system)system, MODEL_RAND_READ_4K);
        expect(degraded / whole, 0.3, 0.95);
    }
    o.profile = PROFILE_RAID0;
    struct bench_document document;
    struct errmsg why = {0};
    assert_int_equal(model_run(&o, MODEL_HOLDFAST, &document, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "raid0 does not bear"));
}

static double value_of(const struct bench_document *document, enum model_test test) {
    const struct bench_result *result = model_result(document, test);
    assert_non_null(result);
    return result->value;
}

/* A disk is lost and replaced beside each corner: reads go on, slower, and it becomes whole. */
static void a_rebuild_runs_beside_the_corners(void **state) {
    (void)state;
    struct model_options o = options_of("4x hdd-7200-2tb", PROFILE_RAID5, "2x1gbe");
    o.span_bytes = 2ull << 30;
    o.factor = 32;
    o.seconds = 4;
    o.tests = (1u << MODEL_RAND_READ_4K) | (1u << MODEL_SEQ_WRITE_512K) |
              (1u << MODEL_READ_OVERWRITTEN) | (1u << MODEL_WRITE_AGED);
    for (int system = MODEL_HOLDFAST; system <= MODEL_CLASSIC; system++) {
        struct bench_document whole, rebuilding;
        o.state = MODEL_WHOLE;
        o.tests &= ~((1u << MODEL_READ_OVERWRITTEN) | (1u << MODEL_WRITE_AGED));
        assert_int_equal(model_run(&o, (enum model_system)system, &whole, NULL), OK);
        assert_null(model_result(&whole, MODEL_REBUILD));
        o.state = MODEL_REBUILDING;
        o.tests |= (1u << MODEL_READ_OVERWRITTEN) | (1u << MODEL_WRITE_AGED);
        assert_int_equal(model_run(&o, (enum model_system)system, &rebuilding, NULL), OK);
        assert_int_equal(rebuilding.result_count, 3); /* only corners, and how fast it went */
        expect(value_of(&rebuilding, MODEL_RAND_READ_4K) / value_of(&whole, MODEL_RAND_READ_4K),
               0.3, 0.97);
        expect(value_of(&rebuilding, MODEL_REBUILD), 1, 0.5 * 134);
        assert_int_equal(model_result(&rebuilding, MODEL_REBUILD)->run_count, 2);
        assert_non_null(strstr(rebuilding.target.address, ", rebuilding"));
        bench_document_done(&whole);
        bench_document_done(&rebuilding);
    }
    o.profile = PROFILE_RAID0;
    struct bench_document document;
    assert_int_equal(model_run(&o, MODEL_HOLDFAST, &document, NULL), ERR_INVALID);
}

/* What random overwrites cost sequential reads, a reordering gives back. */
static void a_reordering_gives_back_what_overwriting_took(void **state) {
    (void)state;
    struct model_options o = options_of("4x hdd-7200-2tb", PROFILE_RAID5, "2x1gbe");
    struct bench_document document;
    o.span_bytes = 2ull << 30;
    o.factor = 32;
    o.seconds = 2;
    o.tests =
        (1u << MODEL_SEQ_READ_512K) | (1u << MODEL_READ_OVERWRITTEN) | (1u << MODEL_READ_REORDERED);
    assert_int_equal(model_run(&o, MODEL_HOLDFAST, &document, NULL), OK);
    double fresh = value_of(&document, MODEL_SEQ_READ_512K);
    expect(value_of(&document, MODEL_READ_OVERWRITTEN) / fresh, 0.02, 0.7);
    expect(value_of(&document, MODEL_READ_REORDERED) / fresh, 0.85, 1.1);
    bench_document_done(&document);
    assert_int_equal(model_run(&o, MODEL_CLASSIC, &document, NULL), OK);
    assert_null(model_result(&document, MODEL_READ_REORDERED));
    bench_document_done(&document);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    struct bench_document document;
    struct errmsg why = {0};
    struct model_options o = options_of("2x sata-ssd", PROFILE_RAID5, "local");
    assert_int_equal(model_run(&o, MODEL_HOLDFAST, &document, &why), ERR_RANGE);
    assert_non_null(strstr(why.text, "raid5 needs at least 3 disks"));
    o.profile = PROFILE_SINGLE;
    o.span_bytes = 4000000000000; /* more than both hold */
    why = (struct errmsg){0};
    assert_int_not_equal(model_run(&o, MODEL_CLASSIC, &document, &why), OK);
    assert_true(why.text[0] != '\0');
    o.span_bytes = 1 << 20;
    assert_int_equal(model_run(&o, MODEL_HOLDFAST, &document, NULL), ERR_RANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_disk_is_like_its_data_sheet),
        cmocka_unit_test(a_short_span_is_as_published),
        cmocka_unit_test(lists_of_disks),
        cmocka_unit_test(links_carry_what_they_can),
        cmocka_unit_test(writing_in_place_costs_what_it_must),
        cmocka_unit_test(reading_without_a_disk_reads_all_others),
        cmocka_unit_test(models_are_deterministic),
        cmocka_unit_test(a_lost_disk_costs_reads),
        cmocka_unit_test(a_rebuild_runs_beside_the_corners),
        cmocka_unit_test(a_reordering_gives_back_what_overwriting_took),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
