// SPDX-License-Identifier: MPL-2.0
/* Requests about a volume rather than to its blocks.
 *
 * Keep, recall: the record is a configuration record like others, kind "front-end", id the volume's
 * number in decimal; it goes with the volume.
 *
 * Query: the tree and the overlay are looked up window by window into a bit set, of which runs are
 * made. One request looks at so many windows at most: what lies behind them is left for the next.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

enum { WINDOW_BLOCKS = 16384, WINDOWS_MAX = 128 };

_Static_assert((int)VOLUME_RECORD_BYTES_MAX <= (int)CONFIG_BLOB_MAX, "one is stored as the other");

static void record_id(uint64_t volume_id, char ret_id[24]) {
    (void)snprintf(ret_id, 24, "%" PRIu64, volume_id);
}

int about_keep(struct engine *e, struct volume *v, struct volume_request *q) {
    char id[24];
    record_id(v->phys.id, id);
    if (q->length_bytes == 0) {
        return engine_config_delete(e, VOLUME_RECORD_KIND, id, NULL);
    }
    uint8_t *blob = mem_alloc(q->length_bytes);
    uint64_t at = 0;
    for (uint32_t i = 0; i < q->iov_count; i++) {
        memcpy(blob + at, q->iov[i].iov_base, q->iov[i].iov_len);
        at += q->iov[i].iov_len;
    }
    int err = engine_config_set(e, VOLUME_RECORD_KIND, id, blob, (uint32_t)q->length_bytes, NULL);
    mem_free(blob);
    return err;
}

struct recall {
    const char *id;
    struct volume_request *q;
    int result;
};

static void recall_visit(void *ctx, const char *kind, const char *id, const void *blob,
                         uint32_t bytes) {
    struct recall *recall = ctx;
    (void)kind;
    if (strcmp(id, recall->id) != 0) {
        return;
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < recall->q->iov_count && at < bytes; i++) {
        uint64_t n = MIN((uint64_t)recall->q->iov[i].iov_len, bytes - at);
        memcpy(recall->q->iov[i].iov_base, (const uint8_t *)blob + at, n);
        at += n;
    }
    recall->result = at == bytes ? OK : ERR_INVALID; /* it has more than was asked for */
}

int about_recall(struct engine *e, struct volume *v, struct volume_request *q) {
    char id[24];
    struct recall recall = {.id = id, .q = q};
    record_id(v->phys.id, id);
    for (uint32_t i = 0; i < q->iov_count; i++) {
        memset(q->iov[i].iov_base, 0, q->iov[i].iov_len);
    }
    engine_config_each(e, VOLUME_RECORD_KIND, recall_visit, &recall);
    return recall.result;
}

void about_forget(struct engine *e, uint64_t volume_id) {
    char id[24];
    record_id(volume_id, id);
    config_remove(e, VOLUME_RECORD_KIND, id);
}

/* ---- what a volume holds ---- */

struct runs {
    struct volume_run *run;
    uint64_t count, room;
};

/* Adds to the last run if it is alike; false when there is no room for another. */
static bool runs_add(struct runs *runs, uint64_t bytes, bool mapped) {
    if (runs->count > 0 && runs->run[runs->count - 1].mapped == mapped) {
        runs->run[runs->count - 1].length_bytes += bytes;
        return true;
    }
    if (runs->count == runs->room) {
        return false;
    }
    runs->run[runs->count++] = (struct volume_run){.length_bytes = bytes, .mapped = mapped};
    return true;
}

int about_query(struct engine *e, struct volume *v, struct volume_request *q) {
    if (q->iov_count != 1 || q->iov[0].iov_len < sizeof(struct volume_run)) {
        return ERR_INVALID;
    }
    (void)e;
    memset(q->iov[0].iov_base, 0, q->iov[0].iov_len);
    struct runs runs = {.run = q->iov[0].iov_base, .room = q->iov[0].iov_len / sizeof(*runs.run)};
    uint64_t *bits = mem_alloc(WINDOW_BLOCKS / 8);
    uint64_t end = q->offset_bytes + q->length_bytes, at = q->offset_bytes;
    int err = OK;
    bool room = true;
    for (int windows = 0; at < end && room && err == OK && windows < WINDOWS_MAX; windows++) {
        uint64_t first = at / BLOCK_BYTES;
        uint64_t count = MIN(div_round_up(end, BLOCK_BYTES) - first, (uint64_t)WINDOW_BLOCKS);
        err = read_mapped(v, first, count, bits);
        for (uint64_t i = 0; i < count && room && err == OK; i++) {
            uint64_t block_end = MIN((first + i + 1) * BLOCK_BYTES, end);
            room = runs_add(&runs, block_end - at, (bits[i / 64] >> (i % 64) & 1) != 0);
            at = room ? block_end : at;
        }
        fiber_pace();
    }
    mem_free(bits);
    return err;
}

int about_space(struct engine *e, struct volume *v, struct volume_request *q) {
    enum profile p = (enum profile)v->phys.profile;
    if (q->iov_count != 1 || q->iov[0].iov_len != sizeof(struct volume_space)) {
        return ERR_INVALID;
    }
    uint64_t share = e->share[p], sold = space_used_share(e, true);
    uint64_t left = sold < e->limit_share ? e->limit_share - sold : 0;
    uint64_t used = v->phys.allocated_blocks + v->dirty_blocks + v->frozen_blocks;
    struct volume_space space = {
        .used_bytes = MIN(used * BLOCK_BYTES, v->phys.size_bytes),
        .free_bytes = share != 0 ? left / share * BLOCK_BYTES : 0,
        .total_bytes = share != 0 ? e->limit_share / share * BLOCK_BYTES : 0,
    };
    memcpy(q->iov[0].iov_base, &space, sizeof(space));
    return OK;
}
