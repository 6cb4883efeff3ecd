// SPDX-License-Identifier: MPL-2.0
/* Requests about a volume rather than to its blocks: what a front end keeps beside it.
 *
 * The record is a configuration record like others, kind "front-end", id the volume's number in
 * decimal; it goes with the volume. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

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
