// SPDX-License-Identifier: MPL-2.0
/* The measure for engine_bench on files: one pinned thread of plain io_uring that writes, then
 * reads, files of the same number and size on the same file system, front to back in turn, with so
 * many requests in flight. O_DIRECT where the file system takes it; files allocated and written
 * once before. No checksums, no parity, no log: as fast as this thread could be. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "pin.h"

enum { FILES_MAX = 32, DEPTH_MAX = 256 };

struct plain {
    const char *folder;
    uint32_t files, depth;
    uint64_t file_bytes, request_bytes;
    double seconds;
    int cpu;
    bool json, direct;
    int fd[FILES_MAX];
    char path[FILES_MAX][256];
    struct io_uring ring;
    uint8_t *memory; /* request_bytes for each in flight */
};

static _Noreturn void die(const char *what, int errnum) {
    (void)fprintf(stderr, "plain_io: %s: %s\n", what, strerror(errnum));
    exit(1);
}

static double now(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu_seconds(void) {
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void files_open(struct plain *p) {
    p->direct = true;
    for (uint32_t i = 0; i < p->files; i++) {
        (void)snprintf(p->path[i], sizeof(p->path[i]), "%s/holdfast-plain-%d-%u", p->folder,
                       (int)getpid(), i);
        p->fd[i] = open(p->path[i], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
        if (p->fd[i] < 0 && errno == EINVAL) {
            p->direct = false;
            p->fd[i] = open(p->path[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
        }
        int rc = p->fd[i] < 0 ? errno : posix_fallocate(p->fd[i], 0, (off_t)p->file_bytes);
        if (rc != 0) {
            die(p->path[i], rc);
        }
    }
}

static void request_send(struct plain *p, bool write, uint64_t number, uint32_t slot) {
    uint64_t places = p->file_bytes / p->request_bytes;
    int fd = p->fd[number % p->files];
    uint64_t offset = number / p->files % places * p->request_bytes;
    void *memory = p->memory + slot * p->request_bytes;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&p->ring);
    if (write) {
        io_uring_prep_write(sqe, fd, memory, (unsigned)p->request_bytes, offset);
    } else {
        io_uring_prep_read(sqe, fd, memory, (unsigned)p->request_bytes, offset);
    }
    io_uring_sqe_set_data64(sqe, slot);
}

/* Until so many requests are done and so many seconds have passed. */
static void run(struct plain *p, bool write, uint64_t least, double seconds, bool print) {
    double began = now(), cpu = cpu_seconds();
    uint64_t sent = 0, done = 0;
    while (sent < p->depth) {
        request_send(p, write, sent, (uint32_t)sent);
        sent++;
    }
    while (done < sent) {
        int rc = io_uring_submit_and_wait(&p->ring, 1);
        if (rc < 0 && rc != -EINTR) {
            die("io_uring", -rc);
        }
        bool more = sent < least || now() - began < seconds;
        struct io_uring_cqe *cqe;
        unsigned head, count = 0;
        io_uring_for_each_cqe(&p->ring, head, cqe) {
            if (cqe->res != (int)p->request_bytes) {
                die(write ? "write" : "read", cqe->res < 0 ? -cqe->res : EIO);
            }
            if (more) {
                request_send(p, write, sent++, (uint32_t)cqe->user_data);
            }
            count++;
        }
        io_uring_cq_advance(&p->ring, count);
        done += count;
    }
    double took = now() - began, bytes = (double)done * (double)p->request_bytes;
    cpu = cpu_seconds() - cpu;
    if (print && p->json) {
        printf("{\"test\": \"plain-%s\", \"disks\": \"%s\", \"direct\": %s, \"mb_s\": %.2f, "
               "\"cpu_seconds\": %.3f, \"seconds\": %.3f}\n",
               write ? "write" : "read", p->folder, p->direct ? "true" : "false",
               bytes / 1e6 / took, cpu, took);
    } else if (print) {
        printf("test=plain-%s disks=%s size=%" PRIu64 " depth=%u%s\n    %.1f MB/s in %.1f s; %.1f "
               "MB a second of its core (%.0f %% of it had)\n",
               write ? "write" : "read", p->folder, p->request_bytes, p->depth,
               p->direct ? " O_DIRECT" : "", bytes / 1e6 / took, took, bytes / 1e6 / cpu,
               100 * cpu / took);
    }
}

static const char usage[] =
    "plain_io --dir FOLDER [--files N] [--file-size SIZE] [--request SIZE] [--depth N]\n"
    "         [--seconds S] [--cpu N] [--json]\n";

static uint64_t size_or_exit(const char *text) {
    uint64_t bytes = 0;
    if (size_parse(text, &bytes) != OK || bytes % 4096 != 0) {
        (void)fprintf(stderr, "plain_io: %s is not a size\n%s", text, usage);
        exit(2);
    }
    return bytes;
}

static void options_read(struct plain *p, int argc, char **argv) {
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"files", required_argument, NULL, 'n'},
                                            {"file-size", required_argument, NULL, 'z'},
                                            {"request", required_argument, NULL, 'r'},
                                            {"depth", required_argument, NULL, 'q'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"cpu", required_argument, NULL, 'u'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'd':
            p->folder = optarg;
            break;
        case 'n':
            p->files = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'z':
            p->file_bytes = size_or_exit(optarg);
            break;
        case 'r':
            p->request_bytes = size_or_exit(optarg);
            break;
        case 'q':
            p->depth = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            p->seconds = strtod(optarg, NULL);
            break;
        case 'u':
            p->cpu = (int)strtol(optarg, NULL, 10);
            break;
        case 'j':
            p->json = true;
            break;
        default:
            p->folder = NULL;
            optind = argc;
            break;
        }
    }
    if (p->folder == NULL || p->files == 0 || p->files > FILES_MAX || p->depth == 0 ||
        p->depth > DEPTH_MAX || p->file_bytes < p->request_bytes || p->request_bytes == 0) {
        (void)fprintf(stderr, "%s", usage);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static struct plain p = {.files = 6,
                             .depth = 8,
                             .file_bytes = 1ull << 30,
                             .request_bytes = 512 << 10,
                             .seconds = 10,
                             .cpu = -1};
    options_read(&p, argc, argv);
    p.cpu = pin_thread(p.cpu);
    files_open(&p);
    int rc = io_uring_queue_init(p.depth, &p.ring, 0);
    if (rc < 0) {
        die("io_uring", -rc);
    }
    pin_kernel_workers(p.cpu);
    p.memory = aligned_alloc(4096, p.depth * p.request_bytes);
    if (p.memory == NULL) {
        die("memory", ENOMEM);
    }
    memset(p.memory, 0x5a, p.depth * p.request_bytes);
    run(&p, true, p.files * (p.file_bytes / p.request_bytes), 0, false);
    run(&p, true, 0, p.seconds, true);
    run(&p, false, 0, p.seconds, true);
    for (uint32_t i = 0; i < p.files; i++) {
        (void)unlink(p.path[i]);
    }
    io_uring_queue_exit(&p.ring);
    free(p.memory);
    return 0;
}
