// SPDX-License-Identifier: MPL-2.0
/* Labels, superblocks and the witness record: checksums and the check of every field.
 *
 * A decoder is the only way in for these bytes, so whoever holds a decoded struct may index with
 * its fields: members[] by any member number in it, chunks and blocks within a disk, strings that
 * end. What a newer program wrote is refused before its fields are looked at, because their meaning
 * may have changed. */
#include "format/super.h"

#include <stdio.h>

#include "base/math.h"

enum {
    RING_BLOCKS_LEAST = 64,
    RING_BLOCKS_MOST = 1 << 18, /* 1 GiB */
    CHUNK_BLOCKS_LEAST = 32,
    CHUNK_BLOCKS_MOST = 1 << 16,
    ROW_BLOCKS_MOST = 64,
    TREE_HEIGHT_MOST = 32,
};

#define DISK_BLOCKS_MOST (1ull << 40) /* 4 PiB */

static bool text_ends(const char *text, size_t bytes) {
    return memchr(text, '\0', bytes) != NULL;
}

static bool uuid_is_zero(const struct uuid *uuid) {
    static const struct uuid zero;
    return uuid_equal(uuid, &zero);
}

void uuid_format(const struct uuid *uuid, char *ret_text) {
    const uint8_t *b = uuid->bytes;
    (void)snprintf(ret_text, UUID_TEXT_BYTES,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int pool_name_validate(const char *name) {
    if (!is_letter(name[0])) {
        return ERR_INVALID;
    }
    size_t length = 1;
    for (; name[length] != '\0'; length++) {
        char c = name[length];
        if (length == POOL_NAME_MAX ||
            !(is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-')) {
            return ERR_INVALID;
        }
    }
    return OK;
}

int geometry_validate(const struct geometry *g) {
    bool good = g->chunk_blocks >= CHUNK_BLOCKS_LEAST && g->chunk_blocks <= CHUNK_BLOCKS_MOST &&
                g->ring_blocks >= RING_BLOCKS_LEAST && g->ring_blocks <= RING_BLOCKS_MOST &&
                g->row_blocks >= 1 && g->row_blocks <= ROW_BLOCKS_MOST &&
                (g->node_blocks == 1 || g->node_blocks == 2 || g->node_blocks == 4);
    return good ? OK : ERR_RANGE;
}

static bool disk_blocks_fit(const struct geometry *g, uint64_t disk_blocks) {
    return disk_blocks <= DISK_BLOCKS_MOST &&
           disk_blocks >= layout_chunk_start(g) + TAIL_BLOCKS + g->chunk_blocks;
}

void label_seal(struct label_phys *label, uint64_t block) {
    phys_seal(label, PHYS_LABEL, LABEL_VERSION, sizeof(*label), block);
}

int label_decode(const void *bytes, size_t room_bytes, uint64_t block,
                 struct label_phys *ret_label) {
    int error = phys_check(bytes, PHYS_LABEL, sizeof(struct header_phys), room_bytes, block);
    if (error != OK) {
        return error;
    }
    struct label_phys label;
    memcpy(&label.header, bytes, sizeof(label.header));
    if (label.header.version != LABEL_VERSION) {
        return ERR_UNSUPPORTED;
    }
    if (label.header.length_bytes != sizeof(label)) {
        return ERR_CORRUPT;
    }
    memcpy(&label, bytes, sizeof(label));
    if (uuid_is_zero(&label.pool) || uuid_is_zero(&label.disk) || label.member >= POOL_DISKS_MAX ||
        geometry_validate(&label.geometry) != OK ||
        !disk_blocks_fit(&label.geometry, label.disk_blocks) ||
        !text_ends(label.pool_name, sizeof(label.pool_name)) ||
        pool_name_validate(label.pool_name) != OK) {
        return ERR_CORRUPT;
    }
    *ret_label = label;
    return OK;
}

static bool member_is_good(const struct super_phys *s, uint32_t index) {
    const struct member_phys *m = &s->members[index];
    if (m->state == MEMBER_NONE) {
        return true;
    }
    if (m->state > MEMBER_MISSING || m->role > MEMBER_SPARE || m->device_class > 1 ||
        uuid_is_zero(&m->disk) || !disk_blocks_fit(&s->geometry, m->disk_blocks) ||
        m->chunks == 0 || m->chunks > layout_chunk_count(&s->geometry, m->disk_blocks) ||
        m->ring_tail > RING_START + (uint64_t)s->geometry.ring_blocks ||
        m->state_epoch > s->config_epoch || !text_ends(m->path_hint, sizeof(m->path_hint))) {
        return false;
    }
    for (uint32_t i = 0; i < index; i++) {
        if (s->members[i].state != MEMBER_NONE && uuid_equal(&s->members[i].disk, &m->disk)) {
            return false;
        }
    }
    return true;
}

static bool members_are_good(const struct super_phys *s) {
    if (s->member_count == 0 || s->member_count > POOL_DISKS_MAX) {
        return false;
    }
    uint32_t in_sync = 0;
    for (uint32_t i = 0; i < POOL_DISKS_MAX; i++) {
        if (i >= s->member_count && s->members[i].state != MEMBER_NONE) {
            return false;
        }
        if (!member_is_good(s, i)) {
            return false;
        }
        in_sync += s->members[i].state == MEMBER_IN_SYNC;
    }
    return in_sync != 0;
}

/* A place of length 0 is "nothing there yet". */
static bool direct_is_good(const struct super_phys *s, const struct direct_phys *d) {
    if (d->length_bytes == 0) {
        return true;
    }
    uint32_t copies = 0;
    for (uint32_t i = 0; i < DIRECT_COPIES; i++) {
        if (d->disk[i] == 0xffff) {
            continue;
        }
        if (d->disk[i] >= s->member_count || s->members[d->disk[i]].state == MEMBER_NONE ||
            d->chunk_copy[i] >= s->members[d->disk[i]].chunks) {
            return false;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (d->disk[j] == d->disk[i]) { /* invariant 12: copies on distinct disks */
                return false;
            }
        }
        copies++;
    }
    return copies != 0 &&
           range_is_within(d->offset_blocks, div_round_up(d->length_bytes, BLOCK_BYTES),
                           s->geometry.chunk_blocks);
}

static bool roots_are_good(const struct super_phys *s) {
    const struct tree_root_phys *map = &s->roots.map;
    if (map->levels > TREE_LEVELS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < map->levels; i++) {
        if (map->level[i].height > TREE_HEIGHT_MOST) {
            return false;
        }
    }
    return s->roots.vba_next <= COUNTER_END && s->roots.log_generation <= s->mount_generation &&
           s->roots.log_start < COUNTER_END && s->roots.log_acknowledged < COUNTER_END &&
           direct_is_good(s, &s->roots.directory) && direct_is_good(s, &s->roots.catalog);
}

int super_validate(const struct super_phys *s) {
    bool good = text_ends(s->name, sizeof(s->name)) && pool_name_validate(s->name) == OK &&
                text_ends(s->host, sizeof(s->host)) && !uuid_is_zero(&s->pool) &&
                s->sequence >= 1 && s->sequence < COUNTER_END && s->config_epoch >= 1 &&
                s->config_epoch < COUNTER_END && s->mount_generation < GENERATION_END &&
                s->settled_epoch <= s->config_epoch &&
                s->settled_generation <= s->mount_generation && s->checkpoint < COUNTER_END &&
                geometry_validate(&s->geometry) == OK && s->meta_copies >= 1 &&
                s->meta_copies <= DIRECT_COPIES && members_are_good(s) && roots_are_good(s);
    return good ? OK : ERR_CORRUPT;
}

static uint64_t super_seed(const struct uuid *disk, uint64_t block) {
    uint64_t first;
    memcpy(&first, disk->bytes, sizeof(first));
    return first ^ block;
}

void super_seal(struct super_phys *super, const struct uuid *disk, uint64_t block) {
    phys_seal(super, PHYS_SUPER, SUPER_VERSION, sizeof(*super), super_seed(disk, block));
}

int super_decode(const void *bytes, size_t room_bytes, const struct uuid *disk, uint64_t block,
                 struct super_phys *ret_super) {
    const struct super_phys *s = bytes;
    size_t least = offsetof(struct super_phys, pool); /* up to and with the features */
    int error = phys_check(bytes, PHYS_SUPER, (uint32_t)least, room_bytes, super_seed(disk, block));
    if (error != OK) {
        return error;
    }
    if (s->header.version != SUPER_VERSION || s->features_incompat != SUPER_INCOMPAT_KNOWN) {
        return ERR_UNSUPPORTED;
    }
    if (s->header.length_bytes != sizeof(*s) || super_validate(s) != OK) {
        return ERR_CORRUPT;
    }
    memcpy(ret_super, s, sizeof(*s));
    return OK;
}

void witness_seal(struct witness_phys *witness) {
    phys_seal(witness, PHYS_WITNESS, WITNESS_VERSION, sizeof(*witness), 0);
}

int witness_decode(const void *bytes, size_t length_bytes, const struct uuid *pool,
                   struct witness_phys *ret_witness) {
    int error = phys_check(bytes, PHYS_WITNESS, sizeof(struct witness_phys), length_bytes, 0);
    if (error != OK) {
        return error;
    }
    struct witness_phys witness;
    memcpy(&witness, bytes, sizeof(witness));
    if (witness.header.version != WITNESS_VERSION) {
        return ERR_UNSUPPORTED;
    }
    if (!uuid_equal(&witness.pool, pool) || witness.config_epoch >= COUNTER_END ||
        witness.mount_generation >= GENERATION_END) {
        return ERR_CORRUPT;
    }
    *ret_witness = witness;
    return OK;
}
