// SPDX-License-Identifier: MPL-2.0
/* The engine alone, in process, on the real environment, pinned to one core with the kernel's
 * workers: what docs/PERFORMANCE.md says about it.
 *
 * Disks are memory (each page touched before anything is measured), or files in a folder of a file
 * system of choice, allocated. They are small, so the log's rings are given the size they would
 * have on larger ones (they hold two checkpoints' worth). A LUN four times the read cache is
 * written from end to end, then each test runs for so many seconds. As the machine may be shared,
 * each figure also says how much of its core the process had, and what that comes to for a second
 * of it. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "env/fiber.h"
#include "env/linux/linux.h"
#include "load.h"
#include "pin.h"

enum { DISKS_MAX = 32, TOUCH_BYTES = 1 << 20 };

struct bench {
    const char *folder; /* NULL: memory */
    const char *tests;
    const char *perf; /* a FIFO on which perf record listens for "enable" and "disable" */
    enum profile profile;
    uint32_t disks;
    uint64_t disk_bytes, ring_bytes, cache_bytes, dirty_bytes, lun_bytes;
    double seconds;
    int cpu;
    bool json;
    struct env *env;
    char state_dir[32];
    char path[DISKS_MAX][256];
    const char *paths[DISKS_MAX];
    struct engine *engine;
    uint64_t volume;
    int status;
};

struct test {
    const char *name;
    enum volume_op op;
    uint32_t request_bytes, depth;
    bool random;
};

static const struct test tests[] = {
    {"randwrite", VOLUME_WRITE, 4096, 32, true},
    {"randread", VOLUME_READ, 4096, 32, true},
    {"seqwrite", VOLUME_WRITE, 512 << 10, 8, false},
    {"seqread", VOLUME_READ, 512 << 10, 8, false},
};

static _Noreturn void die(const char *what, const struct errmsg *e) {
    (void)fprintf(stderr, "engine_bench: %s: %s\n", what, e->text);
    exit(1);
}

static double cpu_seconds(void) {
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* ---- disks ---- */

static void file_allocate(const char *path, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int rc = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (rc != 0) {
        (void)fprintf(stderr, "engine_bench: %s: %s\n", path, strerror(rc));
        exit(1);
    }
    (void)close(fd);
}

/* Memory that was never written is slower by far: the kernel gives it out page by page. */
static void disk_touch(struct bench *b, const char *path) {
    struct disk_options options = {0};
    struct disk *disk;
    struct errmsg e = {0};
    if (disk_open(b->env, path, &options, &disk, &e) != OK) {
        die("a disk cannot be opened", &e);
    }
    struct buf *buf = buf_new(TOUCH_BYTES);
    memset(buf->data, 0x5a, TOUCH_BYTES);
    for (uint64_t at = 0; at < b->disk_bytes; at += TOUCH_BYTES) {
        if (disk_write(disk, at, TOUCH_BYTES, buf, 0, false) != OK) {
            (void)fprintf(stderr, "engine_bench: %s cannot be written\n", path);
            exit(1);
        }
    }
    if (disk_flush(disk) != OK) {
        exit(1);
    }
    buf_unref(buf);
    disk_close(disk);
}

static void disks_make(struct bench *b) {
    for (uint32_t i = 0; i < b->disks; i++) {
        if (b->folder == NULL) {
            (void)snprintf(b->path[i], sizeof(b->path[i]), "mem:bench-%s-%u:%" PRIu64,
                           profile_name(b->profile), i, b->disk_bytes);
        } else {
            (void)snprintf(b->path[i], sizeof(b->path[i]), "%s/holdfast-bench-%d-%u", b->folder,
                           (int)getpid(), i);
            file_allocate(b->path[i], b->disk_bytes);
        }
        b->paths[i] = b->path[i];
        disk_touch(b, b->path[i]);
    }
}

static void disks_remove(struct bench *b) {
    for (uint32_t i = 0; i < b->disks && b->folder != NULL; i++) {
        (void)unlink(b->path[i]);
    }
}

/* ---- runs ---- */

static struct model_load load_of(struct bench *b, const struct test *t) {
    return (struct model_load){.door = engine_door(b->engine),
                               .volume_id = b->volume,
                               .span_bytes = b->lun_bytes,
                               .op = t->op,
                               .request_bytes = t->request_bytes,
                               .depth = t->depth,
                               .random = t->random,
                               .noise = true};
}

static void perf_tell(const struct bench *b, const char *what) {
    int fd = b->perf == NULL ? -1 : open(b->perf, O_WRONLY);
    if (fd >= 0) {
        (void)!write(fd, what, strlen(what));
        (void)close(fd);
        (void)usleep(100000); /* it takes effect when perf has read it */
    }
}

static void test_run(struct bench *b, const struct test *t) {
    struct model_load o = load_of(b, t);
    struct model_load_result *r = MEM_NEW(struct model_load_result);
    struct activity before, after;
    char labels[160];
    o.time_ns = (uint64_t)(b->seconds * 1e9);
    activity_read(b->engine, &before);
    perf_tell(b, "enable\n");
    double cpu = cpu_seconds();
    model_load_run(&o, r);
    cpu = cpu_seconds() - cpu;
    perf_tell(b, "disable\n");
    activity_read(b->engine, &after);
    after = activity_since(&after, &before);
    (void)snprintf(labels, sizeof(labels), "test=%s profile=%s disks=%s size=%u depth=%u", t->name,
                   profile_name(b->profile), b->folder == NULL ? "memory" : b->folder,
                   t->request_bytes, t->depth);
    figure_print(stdout, b->json, labels, r, &after, cpu);
    b->status |= r->failed > 0;
    mem_free(r);
}

static bool is_chosen(const struct bench *b, const char *name) {
    char list[256], wanted[64];
    (void)snprintf(list, sizeof(list), ",%s,", b->tests);
    (void)snprintf(wanted, sizeof(wanted), ",%s,", name);
    return strcmp(b->tests, "all") == 0 || strstr(list, wanted) != NULL;
}

static void bench_fiber(void *arg) {
    struct bench *b = arg;
    struct errmsg e = {0};
    struct pool_options create = {
        .name = "bench",
        .paths = b->paths,
        .path_count = b->disks,
        .force = true,
        .geometry = {.ring_blocks = (uint32_t)(b->ring_bytes / BLOCK_BYTES)}};
    struct engine_import_options import = {
        .pool = {.paths = b->paths, .path_count = b->disks},
        .limits = {.read_cache_bytes = b->cache_bytes, .dirty_bytes = b->dirty_bytes}};
    struct volume_options volume = {
        .name = "lun", .size_bytes = b->lun_bytes, .profile = b->profile};
    disks_make(b);
    if (engine_create_pool(b->env, &create, &e) != OK ||
        engine_import(b->env, &import, NULL, NULL, &b->engine, &e) != OK ||
        engine_volume_create(b->engine, &volume, &b->volume, &e) != OK) {
        die("no pool", &e);
    }
    pin_kernel_workers(b->cpu);
    struct model_load fill = load_of(b, &tests[2]);
    struct model_load_result *filled = MEM_NEW(struct model_load_result);
    fill.requests = b->lun_bytes / fill.request_bytes;
    model_load_run(&fill, filled);
    if (filled->failed > 0 || engine_checkpoint(b->engine) != OK) {
        (void)fprintf(stderr, "engine_bench: filling the LUN: %s\n",
                      error_text(filled->first_error));
        exit(1);
    }
    mem_free(filled);
    for (size_t i = 0; i < ARRAY_COUNT(tests); i++) {
        if (is_chosen(b, tests[i].name)) {
            test_run(b, &tests[i]);
        }
    }
    if (engine_close(b->engine, true, env_now_ns(b->env) + 60 * NS_PER_S, &e) != OK) {
        die("close", &e);
    }
    env_stop(b->env);
}

/* ---- options ---- */

static const char usage[] =
    "engine_bench [--profile P] [--tests all|randwrite,randread,seqwrite,seqread] [--seconds S]\n"
    "             [--disks N] [--disk-size SIZE] [--dir FOLDER (files there; else memory)]\n"
    "             [--ring SIZE] [--cache SIZE] [--dirty SIZE] [--lun SIZE (4 x cache)] [--cpu N] "
    "[--json]\n";

static uint64_t size_or_exit(const char *text) {
    uint64_t bytes = 0;
    if (size_parse(text, &bytes) != OK) {
        (void)fprintf(stderr, "engine_bench: %s is not a size\n%s", text, usage);
        exit(2);
    }
    return bytes;
}

static void options_read(struct bench *b, int argc, char **argv) {
    static const struct option options[] = {
        {"profile", required_argument, NULL, 'p'},   {"tests", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 's'},   {"disks", required_argument, NULL, 'n'},
        {"disk-size", required_argument, NULL, 'z'}, {"dir", required_argument, NULL, 'd'},
        {"cache", required_argument, NULL, 'c'},     {"dirty", required_argument, NULL, 'y'},
        {"ring", required_argument, NULL, 'r'},      {"lun", required_argument, NULL, 'l'},
        {"cpu", required_argument, NULL, 'u'},       {"json", no_argument, NULL, 'j'},
        {"perf", required_argument, NULL, 'f'},      {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'p':
            if (profile_parse(optarg, &b->profile) != OK) {
                (void)fprintf(stderr, "engine_bench: there is no profile %s\n", optarg);
                exit(2);
            }
            break;
        case 't':
            b->tests = optarg;
            break;
        case 's':
            b->seconds = strtod(optarg, NULL);
            break;
        case 'n':
            b->disks = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'z':
            b->disk_bytes = size_or_exit(optarg);
            break;
        case 'd':
            b->folder = optarg;
            break;
        case 'c':
            b->cache_bytes = size_or_exit(optarg);
            break;
        case 'y':
            b->dirty_bytes = size_or_exit(optarg);
            break;
        case 'r':
            b->ring_bytes = size_or_exit(optarg);
            break;
        case 'l':
            b->lun_bytes = size_or_exit(optarg);
            break;
        case 'u':
            b->cpu = (int)strtol(optarg, NULL, 10);
            break;
        case 'f':
            b->perf = optarg;
            break;
        case 'j':
            b->json = true;
            break;
        default:
            (void)fprintf(stderr, "%s", usage);
            exit(2);
        }
    }
    if (optind < argc || b->disks == 0 || b->disks > DISKS_MAX || b->seconds <= 0) {
        (void)fprintf(stderr, "%s", usage);
        exit(2);
    }
}

int main(int argc, char **argv) {
    struct bench *b = MEM_NEW(struct bench);
    struct errmsg e = {0};
    *b = (struct bench){.tests = "all",
                        .profile = PROFILE_SINGLE,
                        .disks = 6,
                        .disk_bytes = 1ull << 30,
                        .ring_bytes = 128 << 20,
                        .cache_bytes = 256 << 20,
                        .seconds = 30,
                        .cpu = -1};
    options_read(b, argc, argv);
    b->lun_bytes = b->lun_bytes != 0 ? b->lun_bytes : 4 * b->cache_bytes;
    b->cpu = pin_thread(b->cpu);
    (void)snprintf(b->state_dir, sizeof(b->state_dir), "/tmp/holdfast-bench-XXXXXX");
    if (mkdtemp(b->state_dir) == NULL) {
        (void)fprintf(stderr, "engine_bench: %s: %s\n", b->state_dir, strerror(errno));
        return 1;
    }
    struct env_linux_options options = {.state_dir = b->state_dir};
    if (env_linux_new(&options, &b->env, &e) != OK) {
        die("no event loop", &e);
    }
    fiber_start(b->env, bench_fiber, b);
    env_run(b->env);
    disks_remove(b);
    env_linux_free(b->env);
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", b->state_dir);
    (void)!system(command);
    int status = b->status;
    mem_free(b);
    return status;
}
