// SPDX-License-Identifier: MPL-2.0
/* holdfast-sim: runs seeds, each a world of its own, against the oracle.
 *
 * Workers are processes: a world that crashes (an assert, a signal, a sanitizer) takes only its
 * worker with it, counts as a failure of its seed, and the run goes on with a new worker. What a
 * worker prints to standard error is kept in memory, and the telling line of it is the reason. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/sabotage.h"
#include "protocol.h"
#include "world.h"

enum { JOBS_MAX = 256, WATCHDOG_S = 120, EXIT_FAILED = 1, EXIT_MISSED = 2, EXIT_USAGE = 3 };

struct options {
    uint64_t first, last; /* seeds */
    bool one;             /* --seed */
    bool trace, cramped, slow, protocol, stats, require, stop;
    uint64_t ops;
    uint32_t jobs, watchdog_s;
};

struct worker {
    pid_t pid;
    int errors; /* memory file of its standard error */
    _Atomic uint64_t seed;
    _Atomic bool busy;
    struct sim_stats stats;
    struct protocol_stats protocol;
};

struct shared { /* between the processes */
    _Atomic uint64_t next, passed, failed;
    struct worker workers[JOBS_MAX];
};

/* ---- sabotage ---- */

static const struct {
    const char *name, *what;
} sabotages[] = {
#define X(name, what) {#name, what},
    HF_SABOTAGES(X)
#undef X
};

static int sabotage_choose(const char *name, struct options *options) {
    if (strcmp(name, "list") == 0) {
        for (uint32_t i = 0; i < ARRAY_COUNT(sabotages); i++) {
            printf("%-20s %s\n", sabotages[i].name, sabotages[i].what);
        }
        exit(0);
    }
#ifdef HOLDFAST_SABOTAGE
    for (uint32_t i = 0; i < ARRAY_COUNT(sabotages); i++) {
        if (strcmp(name, sabotages[i].name) == 0) {
            sabotage_on = (enum sabotage)(i + 1);
            options->protocol |= strncmp(name, "iscsi_", 6) == 0;
            return 0;
        }
    }
    (void)fprintf(stderr, "holdfast-sim: there is no sabotage \"%s\"; see --sabotage list\n", name);
#else
    (void)options;
    (void)fprintf(stderr,
                  "holdfast-sim: sabotage \"%s\" is not compiled into this build; configure one "
                  "with -Dsabotage=true\n",
                  name);
#endif
    return EXIT_USAGE;
}

/* ---- one seed ---- */

/* Of either kind of world: both are told about in the same words. */
static void seed_run(const struct options *options, uint64_t seed, struct world_result *ret_result,
                     struct protocol_stats *ret_protocol) {
    if (!options->protocol) {
        world_run(&(struct world_options){.seed = seed,
                                          .ops = options->ops,
                                          .trace = options->trace,
                                          .cramped = options->cramped,
                                          .slow = options->slow},
                  ret_result);
        return;
    }
    static struct protocol_result result;
    protocol_run(&(struct protocol_options){.seed = seed, .trace = options->trace}, &result);
    *ret_result = (struct world_result){.failed = result.failed,
                                        .virtual_ns = result.virtual_ns,
                                        .ops = result.ops,
                                        .trace_hash = result.trace_hash};
    memcpy(ret_result->why, result.why, sizeof(result.why));
    *ret_protocol = result.stats;
}

static void stats_tell(const struct options *options, const struct sim_stats *stats,
                       const struct protocol_stats *protocol) {
    if (options->stats && options->protocol) {
        protocol_stats_print(protocol);
    } else if (options->stats) {
        stats_print(stats);
    }
}

static void result_print(uint64_t seed, const struct world_result *result) {
    printf("seed %" PRIu64 ": %s (at %.6f s, op %" PRIu64 ")\n", seed, result->why,
           (double)result->virtual_ns / 1e9, result->ops);
    (void)fflush(stdout);
}

static int run_one(const struct options *options) {
    static struct world_result result;
    static struct protocol_stats protocol;
    seed_run(options, options->first, &result, &protocol);
    if (result.failed) {
        result_print(options->first, &result);
    }
    printf("seed %" PRIu64 ": %" PRIu64 " ops, %.6f s of virtual time, trace %016" PRIx64 "\n",
           options->first, result.ops, (double)result.virtual_ns / 1e9, result.trace_hash);
    stats_tell(options, &result.stats, &protocol);
    printf("%d passed, %d failed\n", !result.failed, result.failed);
    return result.failed ? EXIT_FAILED : 0;
}

/* ---- workers ---- */

static off_t errors_length(const struct worker *worker) {
    return lseek(worker->errors, 0, SEEK_END);
}

static _Noreturn void worker_main(struct shared *shared, struct worker *worker,
                                  const struct options *options) {
    if (dup2(worker->errors, STDERR_FILENO) < 0) {
        _exit(EXIT_USAGE);
    }
    for (;;) {
        uint64_t seed = atomic_fetch_add(&shared->next, 1);
        if (seed > options->last || (options->stop && atomic_load(&shared->failed) > 0)) {
            break;
        }
        atomic_store(&worker->seed, seed);
        atomic_store(&worker->busy, true);
        (void)alarm(options->watchdog_s);
        static struct world_result result;
        static struct protocol_stats protocol;
        seed_run(options, seed, &result, &protocol);
        (void)alarm(0);
        stats_add(&worker->stats, &result.stats);
        protocol_stats_add(&worker->protocol, &protocol);
        /* A sanitizer that only prints must fail the seed as well. */
        if (!result.failed && errors_length(worker) > 0) {
            _exit(EXIT_FAILED);
        }
        if (result.failed) {
            result_print(seed, &result);
        }
        atomic_store(&worker->busy, false);
        (void)atomic_fetch_add(result.failed ? &shared->failed : &shared->passed, 1);
    }
    (void)fflush(stdout);
    _exit(0);
}

static void worker_start(struct shared *shared, struct worker *worker,
                         const struct options *options) {
    (void)fflush(stdout);
    worker->errors = memfd_create("stderr", MFD_CLOEXEC);
    pid_t pid = fork();
    if (worker->errors < 0 || pid < 0) {
        perror("holdfast-sim: cannot start a worker");
        exit(EXIT_USAGE);
    }
    if (pid == 0) {
        worker_main(shared, worker, options);
    }
    worker->pid = pid; /* in the parent only: the memory is shared */
}

/* The line of a dead worker's standard error that says why. */
static void errors_tell(const struct worker *worker, char *ret_line, size_t bytes) {
    static char text[64 << 10];
    ssize_t length = pread(worker->errors, text, sizeof(text) - 1, 0);
    text[MAX(length, 0)] = '\0';
    const char *told = NULL;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        bool tells = strstr(line, "holdfast:") != NULL || strstr(line, "runtime error") != NULL ||
                     strstr(line, "SUMMARY:") != NULL;
        if (told == NULL || tells) {
            told = line;
        }
        if (tells) {
            break;
        }
    }
    (void)snprintf(ret_line, bytes, "%s", told == NULL ? "" : told);
}

static void worker_died(struct shared *shared, struct worker *worker, int status) {
    char line[500];
    errors_tell(worker, line, sizeof(line));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        (void)snprintf(line, sizeof(line), "took too long on the clock");
    }
    printf("seed %" PRIu64 ": crashed (%s %d): %s\n", (uint64_t)atomic_load(&worker->seed),
           WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), line);
    (void)atomic_fetch_add(&shared->failed, 1);
    atomic_store(&worker->busy, false);
}

static int run_many(const struct options *options) {
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("holdfast-sim");
        return EXIT_USAGE;
    }
    atomic_store(&shared->next, options->first);
    for (uint32_t i = 0; i < options->jobs; i++) {
        worker_start(shared, &shared->workers[i], options);
    }
    int status;
    for (pid_t pid = wait(&status); pid > 0; pid = wait(&status)) {
        for (uint32_t i = 0; i < options->jobs; i++) {
            struct worker *worker = &shared->workers[i];
            if (worker->pid != pid) {
                continue;
            }
            bool died = atomic_load(&worker->busy);
            if (died) {
                worker_died(shared, worker, status);
            }
            (void)close(worker->errors);
            if (died && !options->stop && atomic_load(&shared->next) <= options->last) {
                worker_start(shared, worker, options);
            }
        }
    }
    static struct sim_stats total;
    static struct protocol_stats protocol;
    for (uint32_t i = 0; i < options->jobs; i++) {
        stats_add(&total, &shared->workers[i].stats);
        protocol_stats_add(&protocol, &shared->workers[i].protocol);
    }
    stats_tell(options, &total, &protocol);
    bool complete = !options->require ||
                    (options->protocol ? protocol_stats_require(&protocol) : stats_require(&total));
    uint64_t failed = atomic_load(&shared->failed);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", (uint64_t)atomic_load(&shared->passed),
           failed);
    return failed > 0 ? EXIT_FAILED : complete ? 0 : EXIT_MISSED;
}

/* ---- arguments ---- */

static const char usage[] =
    "usage: holdfast-sim --seeds A..B [--jobs N] [--ops N] [--cramped | --slow] [--stop]\n"
    "                    [--stats [--require]]\n"
    "       holdfast-sim --seed N [--trace] [--ops N] [--cramped | --slow] [--stats]\n"
    "       holdfast-sim --protocol --seeds A..B|--seed N …\n"
    "       holdfast-sim --sabotage NAME|list …\n"
    "\n"
    "  --seeds A..B     run these seeds; one line for each that fails\n"
    "  --seed N         run one, in this process\n"
    "  --trace          print every disk I/O, request and event of it\n"
    "  --ops N          requests a world (drawn from the seed, about 2,600, if not given)\n"
    "  --cramped        worlds of small rows that are full most of the time (one in ten "
    "otherwise)\n"
    "  --slow           worlds in which only disks become slow (one in twelve otherwise)\n"
    "  --protocol       worlds of initiators that speak to the iSCSI target, instead of engines\n"
    "  --stop           start no more seeds when one has failed\n"
    "  --jobs N         workers (all cores if not given)\n"
    "  --timeout S      seconds on the clock that a world may take (120)\n"
    "  --stats          print what the worlds have met, a name and a count a line\n"
    "  --require        fail (exit code 2) if a count that must not be 0 is 0\n"
    "  --sabotage NAME  switch on a deliberate defect of the engine\n";

static bool number(const char *text, uint64_t *ret_value) {
    char *end;
    *ret_value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool range(const char *text, uint64_t *ret_first, uint64_t *ret_last) {
    char *end;
    *ret_first = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && strncmp(end, "..", 2) == 0 &&
           number(end + 2, ret_last) && *ret_first <= *ret_last;
}

enum {
    OPT_SEEDS,
    OPT_SEED,
    OPT_TRACE,
    OPT_OPS,
    OPT_CRAMPED,
    OPT_SLOW,
    OPT_PROTOCOL,
    OPT_STOP,
    OPT_JOBS,
    OPT_TIMEOUT,
    OPT_STATS,
    OPT_REQUIRE,
    OPT_SABOTAGE,
    OPT_HELP
};

static const struct option long_options[] = {
    {"seeds", required_argument, NULL, OPT_SEEDS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"trace", no_argument, NULL, OPT_TRACE},
    {"ops", required_argument, NULL, OPT_OPS},
    {"cramped", no_argument, NULL, OPT_CRAMPED},
    {"slow", no_argument, NULL, OPT_SLOW},
    {"protocol", no_argument, NULL, OPT_PROTOCOL},
    {"stop", no_argument, NULL, OPT_STOP},
    {"jobs", required_argument, NULL, OPT_JOBS},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"stats", no_argument, NULL, OPT_STATS},
    {"require", no_argument, NULL, OPT_REQUIRE},
    {"sabotage", required_argument, NULL, OPT_SABOTAGE},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* 0, or the exit code. */
static int option_take(int option, struct options *options) {
    uint64_t value = 1;
    bool good = true;
    switch (option) {
    case OPT_SEEDS:
        good = range(optarg, &options->first, &options->last);
        break;
    case OPT_SEED:
        good = number(optarg, &options->first);
        options->last = options->first;
        options->one = true;
        break;
    case OPT_TRACE:
        options->trace = true;
        break;
    case OPT_OPS:
        good = number(optarg, &options->ops);
        break;
    case OPT_CRAMPED:
        options->cramped = true;
        break;
    case OPT_SLOW:
        options->slow = true;
        break;
    case OPT_PROTOCOL:
        options->protocol = true;
        break;
    case OPT_STOP:
        options->stop = true;
        break;
    case OPT_JOBS:
        good = number(optarg, &value) && value >= 1 && value <= JOBS_MAX;
        options->jobs = (uint32_t)value;
        break;
    case OPT_TIMEOUT:
        good = number(optarg, &value) && value >= 1 && value < 1 << 20;
        options->watchdog_s = (uint32_t)value;
        break;
    case OPT_STATS:
        options->stats = true;
        break;
    case OPT_REQUIRE:
        options->require = true;
        break;
    case OPT_SABOTAGE:
        return sabotage_choose(optarg, options);
    case OPT_HELP:
        printf("%s", usage);
        exit(0);
    default:
        good = false;
        break;
    }
    if (!good) {
        (void)fprintf(stderr, "%s", usage);
        return EXIT_USAGE;
    }
    return 0;
}

int main(int argc, char **argv) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.first = 1,
                              .last = 0,
                              .jobs = (uint32_t)MIN(MAX(cores, 1L), (long)JOBS_MAX),
                              .watchdog_s = WATCHDOG_S};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        int code = option_take(option, &options);
        if (code != 0) {
            return code;
        }
    }
    if (optind != argc || options.last < options.first || (options.trace && !options.one)) {
        (void)fprintf(stderr, "%s", usage);
        return EXIT_USAGE;
    }
    return options.one ? run_one(&options) : run_many(&options);
}
