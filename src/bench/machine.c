// SPDX-License-Identifier: MPL-2.0
#include "bench/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* "model name : …" on x86; other machines call it otherwise, or nothing. */
static void read_cpu(char *ret_text, size_t room) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    while (file != NULL && ret_text[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && (strncmp(line, "model name", 10) == 0 ||
                              strncmp(line, "Model", 5) == 0 || strncmp(line, "cpu\t", 4) == 0)) {
            colon += 1 + strspn(colon + 1, " ");
            (void)snprintf(ret_text, room, "%.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

void bench_document_stamp(struct bench_document *document) {
    struct utsname system;
    struct sysinfo info;
    struct tm tm;
    time_t now = time(NULL);
    (void)strftime(document->when, sizeof(document->when), "%Y-%m-%dT%H:%M:%SZ",
                   gmtime_r(&now, &tm));
    (void)snprintf(document->commit, sizeof(document->commit), "%s", bench_commit());
    read_cpu(document->machine.cpu, sizeof(document->machine.cpu));
    if (uname(&system) == 0) {
        (void)snprintf(document->machine.kernel, sizeof(document->machine.kernel), "%s %s",
                       system.sysname, system.release);
        if (document->machine.cpu[0] == '\0') {
            (void)snprintf(document->machine.cpu, sizeof(document->machine.cpu), "%s",
                           system.machine);
        }
    }
    document->machine.cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (sysinfo(&info) == 0) {
        document->machine.memory_bytes = (uint64_t)info.totalram * info.mem_unit;
    }
}
