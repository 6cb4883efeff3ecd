// SPDX-License-Identifier: MPL-2.0
/* Runs a fuzz target without a fuzzer: every file named (or lying in a folder named) is given to it
 * as it is, and then in damaged copies: cut short at many lengths, and with a few bits or bytes
 * changed, removed or repeated. The damage is drawn from the file's own content, so each run does
 * the same. Inputs are handed over in a block of exactly their size, so that AddressSanitizer sees
 * the first byte read too far. A target that dislikes an input aborts. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"

enum { DAMAGED_COPIES = 2000, CUTS_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static unsigned files_run;
static unsigned long inputs_run;

static void give(const uint8_t *data, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact) {
        abort();
    }
    memcpy(exact, data, bytes);
    (void)LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
    inputs_run++;
}

/* Changes `data` (room for twice `bytes`) and returns the new length. */
static size_t damage(struct rng *rng, uint8_t *data, size_t bytes) {
    for (uint64_t times = rng_between(rng, 1, 4); times > 0 && bytes > 0; times--) {
        size_t at = rng_below(rng, bytes);
        size_t span = 1 + rng_below(rng, bytes - at < 16 ? bytes - at : 16);
        switch (rng_below(rng, 6)) {
        case 0:
            data[at] ^= (uint8_t)(1u << rng_below(rng, 8));
            break;
        case 1:
            data[at] = (uint8_t)rng_next(rng);
            break;
        case 2:
            memset(data + at, rng_chance(rng, 1, 2) ? 0xff : 0, span);
            break;
        case 3: /* remove */
            memmove(data + at, data + at + span, bytes - at - span);
            bytes -= span;
            break;
        case 4: /* repeat; four times 16 bytes fit beside anything: see the caller */
            memmove(data + at + span, data + at, bytes - at);
            bytes += span;
            break;
        default: /* a number that is one too large or too small */
            data[at] = (uint8_t)(data[at] + (rng_chance(rng, 1, 2) ? 1 : -1));
            break;
        }
    }
    return bytes;
}

static void run_bytes(const uint8_t *data, size_t bytes) {
    uint64_t seed = bytes;
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 31 + data[i];
    }
    struct rng rng;
    rng_init(&rng, seed);
    give(data, bytes);
    size_t step = bytes / CUTS_MAX + 1;
    for (size_t cut = 0; cut < bytes; cut += step) {
        give(data, cut);
    }
    uint8_t *copy = malloc(bytes + 64);
    if (!copy) {
        abort();
    }
    for (unsigned i = 0; i < DAMAGED_COPIES; i++) {
        memcpy(copy, data, bytes);
        give(copy, damage(&rng, copy, bytes));
    }
    free(copy);
}

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (!file || fstat(fileno(file), &st) != 0) {
        perror(path);
        return 1;
    }
    uint8_t *data = malloc((size_t)st.st_size + 1);
    size_t bytes = data ? fread(data, 1, (size_t)st.st_size, file) : 0;
    (void)fclose(file);
    if (!data || bytes != (size_t)st.st_size) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        return 1;
    }
    run_bytes(data, bytes);
    free(data);
    files_run++;
    return 0;
}

static int run_folder(const char *folder) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) {
        return run_file(folder);
    }
    int bad = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            bad |= run_file(path);
        }
        free(entries[i]);
    }
    free((void *)entries);
    return bad;
}

int main(int argc, char **argv) {
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        bad |= run_folder(argv[i]);
    }
    printf("%u files, %lu inputs\n", files_run, inputs_run);
    return bad || files_run == 0;
}
