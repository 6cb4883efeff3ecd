// SPDX-License-Identifier: MPL-2.0
/* The catalog: volumes and configuration records. They are resident; a checkpoint writes all of
 * them as one blob; between checkpoints each change is a log record. Replaying a change that the
 * catalog already holds is harmless, so the blob may be newer than the log's start. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "engine/private.h"

enum { CATALOG_VERSION = 1 };

struct catalog_phys {
    struct header_phys header; /* seed: 0; the pointer to it carries a checksum too */
    uint32_t volumes, configs;
    uint64_t volume_id_next;
    /* struct volume_phys[volumes], then (struct config_phys, blob padded to 8)[configs] */
};

/* ---- volumes ---- */

int volume_phys_validate(const struct volume_phys *p) {
    if (p->id == 0 || p->id >= VOLUME_ID_END || p->size_bytes == 0 ||
        p->size_bytes % BLOCK_BYTES != 0 || p->size_bytes > 64ull << 40 ||
        (p->block_bytes != 512 && p->block_bytes != 4096) || p->profile >= PROFILE_COUNT ||
        (p->flags & (VOLUME_FLAG_SWEEPING | VOLUME_FLAG_DELETING)) == VOLUME_FLAG_SWEEPING ||
        p->tree.levels > TREE_LEVELS_MAX || p->former >> PROFILE_COUNT != 0 || p->name[0] == '\0' ||
        memchr(p->name, '\0', sizeof(p->name)) == NULL) {
        return ERR_CORRUPT;
    }
    return OK;
}

struct volume *volume_add(struct engine *e, const struct volume_phys *phys) {
    struct volume *v = MEM_NEW(struct volume);
    v->engine = e;
    v->phys = *phys;
    overlay_init(&v->active);
    overlay_init(&v->frozen);
    list_init(&v->locks);
    fiber_queue_init(&v->lock_waiters);
    volume_store_init(v);
    list_append(&e->volumes, &v->link);
    e->volume_id_next = MAX(e->volume_id_next, phys->id + 1);
    e->catalog_dirty = true;
    return v;
}

void volume_remove(struct volume *v) {
    list_remove(&v->link);
    overlay_clear(&v->active);
    overlay_clear(&v->frozen);
    sweep_free(v);
    mem_free(v);
}

/* ---- configuration records, sorted by (kind, id) ---- */

static int config_compare(const struct config_record *r, const char *kind, const char *id) {
    int order = strcmp(r->phys.kind, kind);
    return order != 0 ? order : strcmp(r->phys.id, id);
}

int config_phys_validate(const struct config_phys *p, uint32_t blob_bytes) {
    if (p->kind[0] == '\0' || memchr(p->kind, '\0', sizeof(p->kind)) == NULL ||
        memchr(p->id, '\0', sizeof(p->id)) == NULL || p->blob_bytes > CONFIG_BLOB_MAX ||
        p->blob_bytes != blob_bytes) {
        return ERR_CORRUPT;
    }
    return OK;
}

void config_put(struct engine *e, const struct config_phys *phys, const void *blob) {
    struct list *at = &e->configs;
    struct config_record *record = NULL;
    LIST_FOR_EACH(link, &e->configs) {
        struct config_record *r = CONTAINER_OF(link, struct config_record, link);
        int order = config_compare(r, phys->kind, phys->id);
        if (order >= 0) {
            record = order == 0 ? r : NULL;
            at = link;
            break;
        }
    }
    if (record == NULL) {
        record = MEM_NEW(struct config_record);
        list_insert_before(at, &record->link);
    }
    record->phys = *phys;
    mem_free(record->blob);
    record->blob = mem_alloc(phys->blob_bytes + 1);
    memcpy(record->blob, blob, phys->blob_bytes);
    e->catalog_dirty = true;
}

static void config_free(struct config_record *r) {
    list_remove(&r->link);
    mem_free(r->blob);
    mem_free(r);
}

void config_remove(struct engine *e, const char *kind, const char *id) {
    LIST_FOR_EACH_SAFE(link, &e->configs) {
        struct config_record *r = CONTAINER_OF(link, struct config_record, link);
        if (config_compare(r, kind, id) == 0) {
            config_free(r);
            e->catalog_dirty = true;
        }
    }
}

void catalog_clear(struct engine *e) {
    LIST_FOR_EACH_SAFE(link, &e->configs) {
        config_free(CONTAINER_OF(link, struct config_record, link));
    }
    LIST_FOR_EACH_SAFE(link, &e->volumes) {
        volume_remove(CONTAINER_OF(link, struct volume, link));
    }
}

/* ---- the blob ---- */

static size_t catalog_bytes(const struct engine *e) {
    size_t bytes = sizeof(struct catalog_phys);
    LIST_FOR_EACH(link, &e->volumes) {
        bytes += sizeof(struct volume_phys);
    }
    LIST_FOR_EACH(link, &e->configs) {
        const struct config_record *r = CONTAINER_OF(link, struct config_record, link);
        bytes += sizeof(struct config_phys) + round_up(r->phys.blob_bytes, 8);
    }
    return bytes;
}

struct buf *catalog_encode(const struct engine *e, uint32_t *ret_bytes) {
    size_t bytes = catalog_bytes(e);
    struct buf *buf = buf_new(bytes);
    memset(buf->data, 0, buf->bytes);
    struct catalog_phys *c = (struct catalog_phys *)(void *)buf->data;
    c->volume_id_next = e->volume_id_next;
    uint8_t *at = (uint8_t *)(c + 1);
    LIST_FOR_EACH(link, &e->volumes) {
        memcpy(at, &CONTAINER_OF(link, struct volume, link)->phys, sizeof(struct volume_phys));
        at += sizeof(struct volume_phys);
        c->volumes++;
    }
    LIST_FOR_EACH(link, &e->configs) {
        const struct config_record *r = CONTAINER_OF(link, struct config_record, link);
        memcpy(at, &r->phys, sizeof(r->phys));
        at += sizeof(r->phys);
        memcpy(at, r->blob, r->phys.blob_bytes);
        at += round_up(r->phys.blob_bytes, 8);
        c->configs++;
    }
    phys_seal(c, PHYS_CATALOG, CATALOG_VERSION, (uint32_t)bytes, 0);
    *ret_bytes = (uint32_t)bytes;
    return buf;
}

static int catalog_decode_configs(struct engine *e, const uint8_t *at, size_t left,
                                  uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct config_phys p;
        if (left < sizeof(p)) {
            return ERR_CORRUPT;
        }
        memcpy(&p, at, sizeof(p));
        at += sizeof(p);
        left -= sizeof(p);
        if (config_phys_validate(&p, p.blob_bytes) != OK || round_up(p.blob_bytes, 8) > left) {
            return ERR_CORRUPT;
        }
        config_put(e, &p, at);
        at += round_up(p.blob_bytes, 8);
        left -= round_up(p.blob_bytes, 8);
    }
    return left == 0 ? OK : ERR_CORRUPT;
}

int catalog_decode(struct engine *e, const void *bytes, size_t length) {
    const struct catalog_phys *c = bytes;
    int err = phys_check(c, PHYS_CATALOG, sizeof(*c), length, 0);
    if (err != OK) {
        return err;
    }
    if (c->header.version != CATALOG_VERSION) {
        return ERR_UNSUPPORTED;
    }
    const uint8_t *at = (const uint8_t *)(c + 1);
    size_t left = c->header.length_bytes - sizeof(*c);
    for (uint32_t i = 0; i < c->volumes; i++) {
        struct volume_phys p;
        if (left < sizeof(p)) {
            return ERR_CORRUPT;
        }
        memcpy(&p, at, sizeof(p));
        if (volume_phys_validate(&p) != OK) {
            return ERR_CORRUPT;
        }
        LIST_FOR_EACH(link, &e->volumes) {
            if (CONTAINER_OF(link, struct volume, link)->phys.id == p.id) {
                return ERR_CORRUPT;
            }
        }
        (void)volume_add(e, &p);
        at += sizeof(p);
        left -= sizeof(p);
    }
    if (c->volume_id_next > VOLUME_ID_END) {
        return ERR_CORRUPT;
    }
    e->volume_id_next = MAX(e->volume_id_next, c->volume_id_next);
    err = catalog_decode_configs(e, at, left, c->configs);
    e->catalog_dirty = false;
    return err;
}
