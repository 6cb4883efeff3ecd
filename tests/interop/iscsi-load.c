// SPDX-License-Identifier: MPL-2.0
/* iscsi-load URL SEED [SPAN_BYTES] : a load over iSCSI that knows what must be on the LUN.
 *
 * Every sector of 512 bytes that it writes says which write it belongs to (LBA, sequence number,
 * seed, and bytes drawn from them). For each sector this process remembers the last acknowledged
 * write, and the one that was under way when the connection went: after that, the sector must hold
 * one of these two, and whichever it holds it must hold for ever. Two commands that touch one
 * sector are never under way together, so there is no third possibility. The LUN must be new (all
 * zeroes).
 *
 * Commands come on stdin, one a line, each answered by one line on stdout:
 *
 *   load SECONDS    random writes (aligned and not, small and large), UNMAPs, flushes and reads,
 *                   which are compared; ends early when the connection is lost
 *     -> load: W written, R read, E errors, B bad, U uncertain, longest wait M ms, alive|lost
 *   verify SECONDS  connects (tries for so long) and reads and compares the whole span
 *     -> verify: S sectors, B bad
 *   quit
 *
 * Each bad sector and each error is described on stderr. Exits 1 if there was any of either. */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math.h"
#include "base/rng.h"

enum {
    SECTOR = 512,
    DEPTH = 16,
    BUFFER_BYTES = 1 << 20,
    VERIFY_SECTORS = 256,
    SPAN_DEFAULT = 256 << 20,
    TIMEOUT_S = 60,
    COMPLAINTS_MAX = 20,
};

#define ZEROED 0x80000000u /* in a sequence number: the sector reads as zeroes */

enum kind { KIND_READ, KIND_WRITE, KIND_UNMAP, KIND_FLUSH };

struct slot {
    struct scsi_task *task;
    enum kind kind;
    uint32_t sequence;
    uint64_t sector, sectors;
    uint64_t began_ms;
    uint8_t *buffer;
    struct scsi_iovec iov; /* the library keeps a pointer to it */
    bool busy;
};

static struct slot slots[DEPTH];
static uint32_t in_flight;

/* By sector. */
static uint32_t *acknowledged; /* 0: never written */
static uint32_t *uncertain;    /* 0: nothing */
static uint8_t *taken;         /* by a command that is under way */
static uint64_t span;

static struct iscsi_context *iscsi;
static struct iscsi_url *url;
static const char *url_text;
static uint32_t block_bytes;
static bool lost;

static uint64_t seed;
static struct rng rng;
static uint32_t next_sequence = 1;
static uint64_t written, was_read, errors, bad, not_sure, longest_ms;
static uint64_t all_errors, all_bad;

static uint64_t now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- what a sector holds ---- */

struct sector {
    char magic[8];
    uint64_t number, seed;
    uint32_t sequence, reserved;
    uint64_t noise[(SECTOR - 32) / 8];
};
_Static_assert(sizeof(struct sector) == SECTOR, "a sector");

static void sector_fill(struct sector *s, uint64_t number, uint32_t sequence) {
    if (sequence == 0 || (sequence & ZEROED)) {
        memset(s, 0, sizeof(*s));
        return;
    }
    memcpy(s->magic, "HF-LOAD", 8);
    s->number = number;
    s->seed = seed;
    s->sequence = sequence;
    s->reserved = 0;
    uint64_t x = seed ^ (number * 0x9e3779b97f4a7c15u) ^ ((uint64_t)sequence << 32);
    for (unsigned i = 0; i < ARRAY_COUNT(s->noise); i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        s->noise[i] = x;
    }
}

static bool sector_is(const uint8_t *data, uint64_t number, uint32_t sequence) {
    struct sector want;
    sector_fill(&want, number, sequence);
    return memcmp(data, &want, SECTOR) == 0;
}

static void complain(uint64_t number, const uint8_t *data) {
    if (bad++ + all_bad >= COMPLAINTS_MAX) {
        return;
    }
    struct sector found;
    memcpy(&found, data, SECTOR);
    char what[128];
    if (memcmp(found.magic, "HF-LOAD", 8) == 0) {
        (void)snprintf(what, sizeof(what), "%swrite %u of sector %llu%s",
                       sector_is(data, found.number, found.sequence) ? "" : "a torn ",
                       found.sequence, (unsigned long long)found.number,
                       found.seed == seed ? "" : " of another run");
    } else {
        bool zero = sector_is(data, number, 0);
        (void)snprintf(what, sizeof(what), zero ? "zeroes" : "something else");
    }
    (void)fprintf(stderr, "iscsi-load: sector %llu holds %s, not write %u%s",
                  (unsigned long long)number, what, acknowledged[number] & ~ZEROED,
                  acknowledged[number] == 0       ? " (never written)"
                  : acknowledged[number] & ZEROED ? " (an unmap)"
                                                  : "");
    if (uncertain[number]) {
        (void)fprintf(stderr, " nor the uncertain %u%s", uncertain[number] & ~ZEROED,
                      uncertain[number] & ZEROED ? " (an unmap)" : "");
    }
    (void)fprintf(stderr, "\n");
}

/* What is read settles what was uncertain. */
static void compare(const uint8_t *data, uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = first + i;
        const uint8_t *at = data + i * SECTOR;
        if (uncertain[number] && sector_is(at, number, uncertain[number])) {
            acknowledged[number] = uncertain[number];
        } else if (!sector_is(at, number, acknowledged[number])) {
            complain(number, at);
            continue; /* stays uncertain: it may be asked about again */
        }
        uncertain[number] = 0;
    }
}

/* ---- commands under way ---- */

static void settle(struct slot *slot, bool good) {
    for (uint64_t i = slot->sector; i < slot->sector + slot->sectors; i++) {
        taken[i] = 0;
        if (slot->kind != KIND_WRITE && slot->kind != KIND_UNMAP) {
            continue;
        }
        if (good) {
            acknowledged[i] = slot->sequence;
        } else {
            uncertain[i] = slot->sequence;
            not_sure++;
        }
    }
}

static void completed(struct iscsi_context *context, int status, void *command_data, void *owner) {
    (void)context, (void)command_data;
    struct slot *slot = owner;
    uint64_t took = now_ms() - slot->began_ms;
    longest_ms = MAX(longest_ms, took);
    bool good = status == SCSI_STATUS_GOOD;
    if (good && slot->kind == KIND_READ &&
        slot->task->residual_status == SCSI_RESIDUAL_NO_RESIDUAL) {
        compare(slot->buffer, slot->sector, slot->sectors);
        was_read++;
    } else if (good && slot->kind != KIND_READ) {
        written++;
    } else if (status == SCSI_STATUS_CANCELLED) {
        lost = true;
    } else if (!lost) {
        if (errors++ + all_errors < COMPLAINTS_MAX) {
            (void)fprintf(stderr,
                          "iscsi-load: command %d at sector %llu (%llu): status %#x, sense "
                          "%#x/%#06x after %llu ms\n",
                          slot->kind, (unsigned long long)slot->sector,
                          (unsigned long long)slot->sectors, (unsigned)status,
                          (unsigned)slot->task->sense.key, (unsigned)slot->task->sense.ascq,
                          (unsigned long long)took);
        }
    }
    settle(slot, good);
    if (slot->task) {
        scsi_free_scsi_task(slot->task);
    }
    slot->task = NULL;
    slot->busy = false;
    in_flight--;
}

/* A free range of that many sectors, or false after some tries. */
static bool choose(struct slot *slot, uint64_t sectors, uint64_t align) {
    for (int tries = 0; tries < 20; tries++) {
        uint64_t places = (span - sectors) / align + 1;
        /* Half of all commands meet in an eighth of the span, so that blocks are written often. */
        uint64_t first =
            rng_below(&rng, rng_chance(&rng, 1, 2) ? MAX(places / 8, 1u) : places) * align;
        bool free_range = true;
        for (uint64_t i = first; i < first + sectors && free_range; i++) {
            free_range = !taken[i] && !uncertain[i];
        }
        if (free_range) {
            memset(taken + first, 1, sectors);
            slot->sector = first;
            slot->sectors = sectors;
            return true;
        }
    }
    return false;
}

static bool draw(struct slot *slot) {
    uint64_t unit = block_bytes / SECTOR;
    uint64_t roll = rng_below(&rng, 100);
    if (roll < 50) {
        slot->kind = KIND_WRITE;
        return choose(slot, 8 * rng_between(&rng, 1, 8), 8);
    }
    if (roll < 62) {
        slot->kind = KIND_WRITE; /* of any sectors */
        return choose(slot, unit * rng_between(&rng, 1, 15), unit);
    }
    if (roll < 70) {
        slot->kind = KIND_WRITE; /* whole rows */
        return choose(slot, 128 * rng_between(&rng, 1, 16), 128);
    }
    if (roll < 75) {
        slot->kind = KIND_UNMAP;
        return choose(slot, 8 * rng_between(&rng, 1, 64), 8);
    }
    slot->sectors = 0;
    if (roll < 77) {
        slot->kind = KIND_FLUSH;
        return true;
    }
    slot->kind = KIND_READ;
    return choose(slot, unit * rng_between(&rng, 1, 128 / unit), unit);
}

static bool submit(struct slot *slot) {
    uint64_t lba = slot->sector * SECTOR / block_bytes;
    uint32_t bytes = (uint32_t)slot->sectors * SECTOR;
    slot->began_ms = now_ms();
    if (slot->kind == KIND_WRITE) {
        slot->sequence = next_sequence++;
        for (uint64_t i = 0; i < slot->sectors; i++) {
            sector_fill((struct sector *)(void *)(slot->buffer + i * SECTOR), slot->sector + i,
                        slot->sequence);
        }
        slot->task = iscsi_write16_task(iscsi, url->lun, lba, slot->buffer, bytes, (int)block_bytes,
                                        0, 0, 0, 0, 0, completed, slot);
    } else if (slot->kind == KIND_UNMAP) {
        slot->sequence = next_sequence++ | ZEROED;
        struct unmap_list range = {.lba = lba, .num = bytes / block_bytes};
        slot->task = iscsi_unmap_task(iscsi, url->lun, 0, 0, &range, 1, completed, slot);
    } else if (slot->kind == KIND_FLUSH) {
        slot->task = iscsi_synchronizecache10_task(iscsi, url->lun, 0, 0, 0, 0, completed, slot);
    } else {
        memset(slot->buffer, 0xee, bytes); /* so that what is not transferred is noticed */
        slot->iov = (struct scsi_iovec){.iov_base = slot->buffer, .iov_len = bytes};
        slot->task = iscsi_read16_iov_task(iscsi, url->lun, lba, bytes, (int)block_bytes, 0, 0, 0,
                                           0, 0, completed, slot, &slot->iov, 1);
    }
    if (!slot->task) {
        settle(slot, false);
        lost = true;
        return false;
    }
    slot->busy = true;
    in_flight++;
    return true;
}

/* ---- the connection ---- */

static void disconnect(void) {
    if (iscsi) {
        lost = true; /* what is still under way is called back as cancelled: no errors */
        iscsi_destroy_context(iscsi);
    }
    iscsi = NULL;
    for (unsigned i = 0; i < DEPTH; i++) {
        if (slots[i].busy) { /* a session that ended before it was logged in calls nobody back */
            completed(NULL, SCSI_STATUS_CANCELLED, NULL, &slots[i]);
        }
    }
}

static bool learn_block_size(void) {
    struct scsi_task *task = iscsi_readcapacity16_sync(iscsi, url->lun);
    struct scsi_readcapacity16 *capacity =
        task && task->status == SCSI_STATUS_GOOD ? scsi_datain_unmarshall(task) : NULL;
    bool good = false;
    if (capacity && capacity->block_length >= SECTOR && capacity->block_length <= 4096) {
        block_bytes = capacity->block_length;
        uint64_t sectors = (capacity->returned_lba + 1) * block_bytes / SECTOR;
        good = sectors >= span;
        if (!good) {
            (void)fprintf(stderr, "iscsi-load: the LUN is smaller than the span\n");
        }
    }
    if (task) {
        scsi_free_scsi_task(task);
    }
    return good;
}

static bool connect_once(void) {
    iscsi = iscsi_create_context("iqn.2026-01.org.holdfast.test:load");
    if (!iscsi) {
        return false;
    }
    if (url) {
        iscsi_destroy_url(url);
    }
    url = iscsi_parse_full_url(iscsi, url_text);
    if (!url) {
        (void)fprintf(stderr, "iscsi-load: %s\n", iscsi_get_error(iscsi));
        exit(2);
    }
    iscsi_set_targetname(iscsi, url->target);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_timeout(iscsi, TIMEOUT_S);
    lost = false;
    if (iscsi_full_connect_sync(iscsi, url->portal, url->lun) == 0 && learn_block_size()) {
        return true;
    }
    disconnect();
    return false;
}

static void turn(void) {
    struct pollfd p = {.fd = iscsi_get_fd(iscsi), .events = (short)iscsi_which_events(iscsi)};
    if (poll(&p, 1, 100) < 0 || iscsi_service(iscsi, p.revents) != 0 ||
        (p.revents & (POLLERR | POLLHUP | POLLNVAL))) {
        lost = true;
    }
}

static struct scsi_task *probe;
static bool probe_good;

static void probed(struct iscsi_context *context, int status, void *command_data, void *owner) {
    (void)context, (void)command_data, (void)owner;
    probe_good = status == SCSI_STATUS_GOOD;
    scsi_free_scsi_task(probe);
    probe = NULL;
}

/* A connection that went while nothing was under way is noticed here. (Not with a synchronous
 * command: on a dead connection that returns before its callback has come, which then writes to
 * where the caller's stack was.) */
static bool is_alive(void) {
    probe_good = false;
    probe = iscsi && !lost ? iscsi_testunitready_task(iscsi, url->lun, probed, NULL) : NULL;
    while (probe && !lost) {
        turn();
    }
    return probe_good && !lost;
}

static bool connect_within(uint64_t seconds) {
    uint64_t until = now_ms() + seconds * 1000;
    while (!is_alive()) {
        disconnect();
        if (!connect_once()) {
            if (now_ms() >= until) {
                return false;
            }
            struct timespec pause = {.tv_nsec = 100000000};
            (void)nanosleep(&pause, NULL);
        }
    }
    return true;
}

static void drain(void) {
    while (in_flight > 0 && !lost) {
        turn();
    }
    if (lost) {
        disconnect();
    }
}

/* ---- the commands of stdin ---- */

static void load(uint64_t seconds) {
    uint64_t until = now_ms() + seconds * 1000;
    written = was_read = errors = bad = not_sure = longest_ms = 0;
    bool connected = connect_within(10);
    while (connected && !lost && now_ms() < until) {
        for (unsigned i = 0; i < DEPTH && !lost; i++) {
            if (!slots[i].busy && draw(&slots[i])) {
                (void)submit(&slots[i]);
            }
        }
        turn();
    }
    bool was_lost = !connected || lost;
    drain();
    all_errors += errors;
    all_bad += bad;
    printf(
        "load: %llu written, %llu read, %llu errors, %llu bad, %llu uncertain, longest wait %llu "
        "ms, %s\n",
        (unsigned long long)written, (unsigned long long)was_read, (unsigned long long)errors,
        (unsigned long long)bad, (unsigned long long)not_sure, (unsigned long long)longest_ms,
        was_lost || lost ? "lost" : "alive");
}

static void verify(uint64_t seconds) {
    errors = bad = was_read = 0;
    bool complete = connect_within(seconds);
    for (uint64_t at = 0; complete && (at < span || in_flight > 0) && !lost;) {
        for (unsigned i = 0; i < DEPTH && at < span && !lost; i++) {
            if (!slots[i].busy) {
                slots[i].kind = KIND_READ;
                slots[i].sector = at;
                slots[i].sectors = MIN((uint64_t)VERIFY_SECTORS, span - at);
                at += slots[i].sectors;
                (void)submit(&slots[i]);
            }
        }
        turn();
    }
    drain();
    complete = complete && !lost && errors == 0;
    all_errors += errors + !complete;
    all_bad += bad;
    printf("verify: %llu sectors, %llu bad%s\n", (unsigned long long)span, (unsigned long long)bad,
           complete ? "" : ", incomplete");
}

int main(int argc, char **argv) {
    if (argc < 3) {
        (void)fprintf(stderr, "usage: iscsi-load URL SEED [SPAN_BYTES]\n");
        return 2;
    }
    url_text = argv[1];
    seed = strtoull(argv[2], NULL, 0);
    span = (argc > 3 ? strtoull(argv[3], NULL, 0) : SPAN_DEFAULT) / SECTOR;
    rng_init(&rng, seed);
    acknowledged = calloc(span, sizeof(*acknowledged));
    uncertain = calloc(span, sizeof(*uncertain));
    taken = calloc(span, 1);
    bool enough = acknowledged && uncertain && taken && span >= BUFFER_BYTES / SECTOR;
    for (unsigned i = 0; i < DEPTH; i++) {
        slots[i].buffer = malloc(BUFFER_BYTES);
        enough = enough && slots[i].buffer;
    }
    if (!enough) {
        (void)fprintf(stderr, "iscsi-load: no memory, or a span below 1 MiB\n");
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    char line[128];
    unsigned seconds = 0;
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n") != 0) {
        if (sscanf(line, "load %u", &seconds) == 1) {
            load(seconds);
        } else if (sscanf(line, "verify %u", &seconds) == 1) {
            verify(seconds);
        } else {
            printf("error: load SECONDS, verify SECONDS or quit\n");
        }
    }
    disconnect();
    return all_bad || all_errors;
}
