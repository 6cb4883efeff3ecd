// SPDX-License-Identifier: MPL-2.0
#include "pin.h"

#include <dirent.h>
#include <liburing.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pin_thread(int cpu) {
    cpu_set_t set;
    if (cpu < 0 && sched_getaffinity(0, sizeof(set), &set) == 0) {
        for (int i = 0; i < CPU_SETSIZE; i++) {
            cpu = CPU_ISSET(i, &set) ? i : cpu;
        }
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
    return cpu;
}

void pin_kernel_workers(int cpu) {
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char target[64] = {0};
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strstr(target, "[io_uring]") != NULL) {
            int fd = (int)strtol(entry->d_name, NULL, 10);
            int rc = io_uring_register((unsigned)fd, IORING_REGISTER_IOWQ_AFF, &set, sizeof(set));
            if (rc < 0) {
                (void)fprintf(stderr, "the kernel's workers are not pinned: %s\n", strerror(-rc));
            }
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}
