// SPDX-License-Identifier: MPL-2.0
/* Measuring, without a target: the histogram against exact sorting, medians, results as JSON and
 * back, job files, where extents lie, what is never overwritten. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/content.h"
#include "bench/histogram.h"
#include "bench/job.h"
#include "bench/run.h"

/* ---- histogram ---- */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Latencies as they are: most about one size, some far away. */
static uint64_t draw(struct rng *rng) {
    uint32_t bits = (uint32_t)rng_between(rng, 0, rng_chance(rng, 1, 50) ? 45 : 17);
    return rng_below(rng, 1ull << bits) + rng_below(rng, 3);
}

static void percentiles_are_those_of_sorted_values(void **state) {
    (void)state;
    static const double parts[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    enum { COUNT = 20000 };
    uint64_t *values = MEM_NEW_ARRAY(uint64_t, COUNT);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct bench_histogram *h = MEM_NEW(struct bench_histogram);
        struct bench_histogram *half = MEM_NEW(struct bench_histogram);
        struct rng rng;
        uint64_t sum = 0;
        rng_init(&rng, seed);
        for (int i = 0; i < COUNT; i++) {
            values[i] = draw(&rng);
            sum += values[i];
            bench_histogram_add(i % 2 == 0 ? h : half, values[i]);
        }
        bench_histogram_merge(h, half);
        qsort(values, COUNT, sizeof(values[0]), by_value);
        assert_int_equal(h->count, COUNT);
        assert_int_equal(h->sum_ns, sum);
        assert_int_equal(h->worst_ns, values[COUNT - 1]);
        for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
            double rank = parts[i] * COUNT;
            uint64_t exact = values[rank < 1 ? 0 : (int)(rank + 0.999999) - 1];
            uint64_t got = bench_histogram_quantile_ns(h, parts[i]);
            assert_true(got >= exact);
            assert_true(got - exact <= exact / 128 + 1);
        }
        mem_free(h);
        mem_free(half);
    }
    mem_free(values);
}

static void buckets_hold_everything(void **state) {
    (void)state;
    static const uint64_t values[] = {0, 1, 127, 128, 129, 255, 256, 1ull << 40, UINT64_MAX};
    struct bench_histogram *h = MEM_NEW(struct bench_histogram);
    struct bench_result result = {0};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        struct bench_histogram *one = MEM_NEW(struct bench_histogram);
        bench_histogram_add(one, values[i]);
        assert_int_equal(bench_histogram_quantile_ns(one, 0.5), values[i]);
        mem_free(one);
        bench_histogram_add(h, values[i]);
    }
    bench_histogram_report(h, &result);
    uint64_t count = 0;
    for (uint32_t i = 0; i < result.bucket_count; i++) {
        count += result.buckets[i].count;
        assert_true(i == 0 || result.buckets[i].upper_us > result.buckets[i - 1].upper_us);
    }
    assert_int_equal(count, ARRAY_COUNT(values));
    assert_int_equal(bench_histogram_quantile_ns(h, 1), UINT64_MAX);
    mem_free(result.buckets);
    memset(h, 0, sizeof(*h));
    assert_int_equal(bench_histogram_quantile_ns(h, 0.99), 0);
    mem_free(h);
}

/* ---- figures ---- */

static void medians_and_spreads(void **state) {
    (void)state;
    assert_true(bench_median((double[]){7}, 1) == 7);
    assert_true(bench_median((double[]){9, 1}, 2) == 5);
    assert_true(bench_median((double[]){30, 10, 20}, 3) == 20);
    assert_true(bench_median((double[]){4, 1, 3, 2}, 4) == 2.5);
    struct bench_result result = {
        .unit = BENCH_MB_S, .block_bytes = 500000, .run_count = 3, .runs = {90, 110, 100}};
    bench_result_settle(&result);
    assert_true(result.value == 100 && result.mb_s == 100 && result.iops == 200);
    assert_true(result.spread > 0.1999 && result.spread < 0.2001);
    assert_true(bench_steadiness((double[]){5}, 1) == 1);
    assert_true(bench_steadiness((double[]){100, 100, 50, 100}, 4) == 0.5);
    assert_true(bench_steadiness((double[]){0, 0}, 2) == 0);
}

static void extents_lie_within_the_span(void **state) {
    (void)state;
    uint64_t at = 0, bytes = 0;
    const struct bench_extent none = {0}, tenth = {.percent = 10}, most = {.percent = 90};
    const struct bench_extent much = {.bytes = UINT64_MAX}, odd = {.bytes = 5000};
    assert_int_equal(bench_extent_place(&none, &none, 1 << 20, 4096, &at, &bytes), OK);
    assert_true(at == 0 && bytes == 1 << 20);
    assert_int_equal(bench_extent_place(&most, &tenth, 10 << 20, 4096, &at, &bytes), OK);
    assert_true(at % 4096 == 0 && at <= 9 << 20 && at + bytes <= 10 << 20 && bytes > 1000000);
    assert_int_equal(bench_extent_place(&odd, &much, 1 << 20, 4096, &at, &bytes), OK);
    assert_true(at == 4096 && at + bytes == 1 << 20);
    assert_int_equal(bench_extent_place(&much, &none, 1 << 20, 4096, &at, &bytes), ERR_RANGE);
    assert_int_equal(bench_extent_place(&none, &odd, 1 << 20, 8192, &at, &bytes), ERR_RANGE);
}

/* ---- results ---- */

static struct bench_document sample_document(void) {
    struct bench_document document = {.when = "2026-11-30T20:51:07Z", .commit = "abc"};
    (void)snprintf(document.target.kind, sizeof(document.target.kind), "iscsi");
    (void)snprintf(document.target.name, sizeof(document.target.name), "bad \xff name, \"x\"");
    document.target.size_bytes = 1ull << 41;
    document.settings.span_bytes = 1 << 30;
    document.settings.complete = true;
    struct bench_result *result = bench_document_add(&document);
    struct bench_histogram *h = MEM_NEW(struct bench_histogram);
    (void)snprintf(result->test, sizeof(result->test), "rand-read-4k");
    *result = (struct bench_result){.test = "rand-read-4k",
                                    .queue_depth = 32,
                                    .block_bytes = 4096,
                                    .run_count = 3,
                                    .runs = {100, 300, 200},
                                    .client_limited = true,
                                    .steady = 0.75};
    bench_result_settle(result);
    for (uint64_t i = 1; i <= 1000; i++) {
        bench_histogram_add(h, i * 1000);
    }
    bench_histogram_report(h, result);
    mem_free(h);
    return document;
}

static void results_survive_json(void **state) {
    (void)state;
    struct bench_document document = sample_document(), again = {0};
    struct errmsg why = {0};
    json_t *json = bench_document_json(&document);
    assert_int_equal(bench_document_from_json(json, &again, &why), OK);
    json_t *second = bench_document_json(&again);
    assert_true(json_equal(json, second));
    const struct bench_result *r = &again.results[0];
    assert_true(r->value == 200 && r->client_limited && r->steady == 0.75 && r->run_count == 3);
    assert_true(r->bucket_count > 100 && r->worst_us == 1000 && again.settings.complete);
    assert_int_equal(again.target.size_bytes, 1ull << 41);
    json_decref(json);
    json_decref(second);
    bench_document_done(&document);
    bench_document_done(&again);
}

static void wrong_results_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key, *json, *says;
    } wrong[] = {
        {"format", "\"fio\"", "not results"},
        {"version", "2", "later version"},
        {"version", "\"1\"", "not results"},
        {"target", "[]", "target"},
        {"target", "{\"kind\": 3}", "kind"},
        {"settings", "{\"span_bytes\": -1}", "span_bytes"},
        {"settings", "{\"seconds\": 99999999999}", "seconds"},
        {"settings", "{\"complete\": 1}", "complete"},
        {"results", "{}", "results"},
        {"results", "[{\"test\": \"a\", \"value\": 1, \"unit\": \"mbit\"}]", "unit"},
        {"results", "[{\"test\": \"a\", \"value\": \"1\"}]", "value"},
        {"results", "[{\"value\": 1, \"unit\": \"iops\"}]", "test"},
        {"results", "[{\"test\": \"a\", \"value\": 1, \"unit\": \"iops\", \"runs\": [true]}]",
         "runs"},
        {"results",
         "[{\"test\": \"a\", \"value\": 1, \"unit\": \"iops\","
         " \"histogram\": [[2, 1], [1, 1]]}]",
         "rise"},
        {"results", "[{\"test\": \"a\", \"value\": 1, \"unit\": \"iops\", \"histogram\": [7]}]",
         "histogram"}};
    struct bench_document document = sample_document();
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct bench_document out = {0};
        struct errmsg why = {0};
        json_t *json = bench_document_json(&document);
        json_t *value = json_loads(wrong[i].json, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        (void)json_object_set_new(json, wrong[i].key, value);
        assert_true(bench_document_from_json(json, &out, &why) < 0);
        if (strstr(why.text, wrong[i].says) == NULL) {
            fail_msg("%s: %s", wrong[i].json, why.text);
        }
        assert_int_equal(out.result_count, 0);
        json_decref(json);
    }
    bench_document_done(&document);
}

/* ---- plans ---- */

static int parse(const char *text, struct bench_plan *plan, struct errmsg *why) {
    memset(plan, 0, sizeof(*plan));
    memset(why, 0, sizeof(*why));
    return bench_plan_parse(text, strlen(text), plan, why);
}

static void job_files_are_understood(void **state) {
    (void)state;
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    struct errmsg why;
    assert_int_equal(parse("; like many\n[global]\nioengine=libaio\ndirect=1\nbs = 8k\nruntime=2m\n"
                           "filename=/dev/sdx\n\n[one]\nrw=randrw\nrwmixwrite=30\niodepth=16\n"
                           "[two]\r\nrw=write\r\nbs=1M\r\nsize=25%\r\noffset=1G\r\nnumjobs=4\r\n"
                           "[three]\nstonewall\nramp_time=10\nrw=randread",
                           plan, &why),
                     OK);
    assert_int_equal(plan->count, 3);
    const struct bench_job *one = &plan->jobs[0], *two = &plan->jobs[1], *three = &plan->jobs[2];
    assert_string_equal(plan->filename, "/dev/sdx");
    assert_string_equal(one->name, "one");
    assert_true(one->operation == JOB_MIXED && one->is_random && one->read_percent == 70);
    assert_true(one->block_bytes == 8192 && one->depth == 16 && one->seconds == 120);
    assert_true(two->beside && two->operation == JOB_WRITE && !two->is_random);
    assert_true(two->size.percent == 25 && two->offset.bytes == 1 << 30 && two->threads == 4);
    assert_true(two->unit == BENCH_MB_S && one->unit == BENCH_IOPS && two->depth == 1);
    assert_true(!three->beside && three->ramp_seconds == 10 && two->ramp_seconds == -1);
    assert_true(bench_plan_writes(plan));
    assert_int_equal(bench_plan_only_reads(plan, &why), OK);
    assert_true(plan->count == 1 && !plan->jobs[0].beside && !bench_plan_writes(plan));
    mem_free(plan);
}

static void wrong_job_files_are_refused_by_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {{"", "no job"},
                 {"[global]\nbs=4k\n", "no job"},
                 {"rw=read\n", "line 1: \"rw=read\" stands before"},
                 {"[a]\nverify=crc32c\n", "line 2: the key \"verify\""},
                 {"[a]\nbs=4k,8k\n", "line 2: bs=4k,8k"},
                 {"[a]\nbs=0\n", "bs=0"},
                 {"[a]\nbs=1000\n", "bs=1000"},
                 {"[a]\nbs=1T\n", "bs=1T"},
                 {"[a]\nrw=trim\n", "rw=trim"},
                 {"[a]\niodepth=0\n", "from 1 to 1024"},
                 {"[a]\niodepth=-1\n", "iodepth=-1"},
                 {"[a]\niodepth=99999999999999999999\n", "iodepth"},
                 {"[a]\nrwmixread=101\n", "from 0 to 100"},
                 {"[a]\nsize=101%\n", "size=101%"},
                 {"[a]\nruntime=0\n", "runtime"},
                 {"[a]\nruntime=999999999h\n", "runtime"},
                 {"[a]\nfilename=x\n[b]\nfilename=y\n", "line 4: filename"},
                 {"[a\n", "a section is written"},
                 {"[]\n", "a section is written"},
                 {"[a]\nstonewall=maybe\n", "stonewall"},
                 {"[a]\n\x1b[31m\n", "no text"}};
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    struct errmsg why;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        assert_true(parse(wrong[i].text, plan, &why) < 0);
        if (strstr(why.text, wrong[i].says) == NULL) {
            fail_msg("%s: %s", wrong[i].text, why.text);
        }
    }
    char many[JOBS_MAX * 8 + 64] = "";
    for (int i = 0; i <= JOBS_MAX; i++) {
        (void)strcat(many, "[j]\n");
    }
    assert_int_equal(parse(many, plan, &why), ERR_LIMIT);
    mem_free(plan);
}

static void workloads_are_as_published(void **state) {
    (void)state;
    struct bench_plan *plan = MEM_NEW(struct bench_plan);
    struct errmsg why = {0};
    assert_int_equal(bench_plan_workload("corners", plan), OK);
    assert_true(plan->count == 5 && plan->prepare && plan->jobs[0].block_bytes == 512);
    assert_int_equal(bench_plan_only_reads(plan, &why), OK);
    assert_int_equal(plan->count, 3);
    assert_int_equal(bench_plan_workload("fill", plan), OK);
    assert_true(!plan->prepare && plan->jobs[0].once);
    assert_int_equal(bench_plan_only_reads(plan, &why), ERR_INVALID);
    assert_int_equal(bench_plan_workload("edges", plan), ERR_NOT_FOUND);
    struct bench_options options;
    bench_options_init(&options, false);
    assert_true(options.seconds == 60 && options.ramp_seconds == 15 && options.runs == 3);
    assert_true(options.depth_count == 2 && options.depths[0] == 1 && options.depths[1] == 32);
    mem_free(plan);
}

/* ---- what is never overwritten ---- */

/* The checksum of LVM's labels: CRC-32 with a start of its own and no end. */
static uint32_t lvm_crc(const uint8_t *data, size_t bytes) {
    uint32_t crc = 0xf597a6cf;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
        }
    }
    return crc;
}

static void put_lvm(uint8_t *front) {
    uint8_t *label = front + 512;
    uint32_t crc, start = 32;
    memcpy(label, "LABELONE\1\0\0\0\0\0\0\0", 16);
    memcpy(label + 20, &start, sizeof(start));
    memcpy(label + 24, "LVM2 001", 8);
    memset(label + 32, 'u', 32); /* the volume's id */
    crc = lvm_crc(label + 20, 512 - 20);
    memcpy(label + 16, &crc, sizeof(crc));
}

static void put_table(uint8_t *front) {
    static const uint8_t entry[16] = {0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0};
    memcpy(front + 446, entry, sizeof(entry));
    memcpy(front + 510, "\x55\xaa", 2);
}

static void put_vmfs_member(uint8_t *front) {
    memcpy(front + 0x100000, "\x0d\xd0\x01\xc0", 4);
}

static void put_vmfs(uint8_t *front) {
    memcpy(front + 0x200000, "\x5e\xf1\xab\x2f", 4);
}

static void put_btrfs(uint8_t *front) {
    memcpy(front + 65536 + 64, "_BHRfS_M", 8);
}

/* What stands on disks, and how it is called. */
static const struct {
    void (*put)(uint8_t *front);
    const char *says;
} marks[] = {{put_vmfs_member, "VMFS_volume_member"},
             {put_vmfs, "VMFS file system"},
             {put_btrfs, "btrfs file system"},
             {put_lvm, "LVM2_member"},
             {put_table, "dos partition table with 1 partition"}};

static void what_is_known_is_named(void **state) {
    (void)state;
    enum { FRONT = CONTENT_FRONT_BYTES, BACK = CONTENT_BACK_BYTES };
    const uint64_t size = 64ull << 30;
    uint8_t *front = mem_alloc(FRONT), *back = mem_alloc(BACK);
    char text[256] = "x";
    assert_int_equal(bench_content_name(front, FRONT, back, BACK, size, text, sizeof(text), NULL),
                     OK);
    assert_string_equal(text, "");
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        memset(front, 0, FRONT);
        marks[i].put(front);
        int error = bench_content_name(front, FRONT, back, BACK, size, text, sizeof(text), NULL);
        assert_int_equal(error, OK);
        if (strstr(text, marks[i].says) == NULL) {
            fail_msg("%s: \"%s\"", marks[i].says, text);
        }
    }
    mem_free(front);
    mem_free(back);
}

static void addresses_lose_their_secrets(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"iscsi://me%my/se@cret@host:3260/iqn.x:y/0", "iscsi://host:3260/iqn.x:y/0"},
        {"iscsi://host/iqn.x:y/0", "iscsi://host/iqn.x:y/0"},
        {"nbd://user@host/name@x", "nbd://host/name@x"},
        {"nbd+unix:///x?socket=/tmp/a@b", "nbd+unix:///x?socket=/tmp/a@b"},
        {"/dev/disk/by-id/a@b", "/dev/disk/by-id/a@b"}};
    char text[512];
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        bench_address_plain(pairs[i][0], text, sizeof(text));
        assert_string_equal(text, pairs[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_those_of_sorted_values),
        cmocka_unit_test(buckets_hold_everything),
        cmocka_unit_test(medians_and_spreads),
        cmocka_unit_test(extents_lie_within_the_span),
        cmocka_unit_test(results_survive_json),
        cmocka_unit_test(wrong_results_are_refused),
        cmocka_unit_test(job_files_are_understood),
        cmocka_unit_test(wrong_job_files_are_refused_by_line),
        cmocka_unit_test(workloads_are_as_published),
        cmocka_unit_test(what_is_known_is_named),
        cmocka_unit_test(addresses_lose_their_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
