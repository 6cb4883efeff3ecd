// SPDX-License-Identifier: MPL-2.0
/* Making a pool. In this order, each step durable on all disks before the next begins, so that a
 * half-made pool is either nothing or can be made again:
 *   1. what a disk held is wiped where labels, superblocks and the head of the log will be;
 *   2. the first superblock (sequence 1, mount generation 0, no roots, free for any host);
 *   3. the labels.
 * What other programs may have on a disk is looked at by those who may call libblkid (host.c). */
#include <inttypes.h>
#include <stdio.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/size.h"
#include "pool/internal.h"

enum {
    CHUNKS_WANTED = 64, /* on each disk */
    CHUNK_BLOCKS_LEAST = 32,
    CHUNK_BLOCKS_SMALL = 4096,  /* 16 MiB */
    CHUNK_BLOCKS_LARGE = 16384, /* 64 MiB */
    RING_BLOCKS_LEAST = 64,
    RING_BLOCKS_MOST = 131072, /* 512 MiB */
    RING_SHARE = 64,
    ROW_BLOCKS = 64,
    NODE_BLOCKS = 4,
    WIPE_BLOCKS = 256, /* from the start of a disk */
};

#define TIB_BLOCKS (1ull << (40 - BLOCK_SHIFT))

static void geometry_complete(struct geometry *g, uint64_t smallest_blocks) {
    if (g->ring_blocks == 0) {
        uint64_t ring = smallest_blocks / RING_SHARE;
        ring = MIN(MAX(ring, (uint64_t)RING_BLOCKS_LEAST), (uint64_t)RING_BLOCKS_MOST);
        g->ring_blocks = (uint32_t)ring;
    }
    if (g->chunk_blocks == 0) {
        g->chunk_blocks = CHUNK_BLOCKS_SMALL;
        while (g->chunk_blocks < CHUNK_BLOCKS_LARGE && smallest_blocks >= TIB_BLOCKS) {
            g->chunk_blocks *= 2;
            smallest_blocks /= 4; /* 32 MiB from 1 TiB on, 64 MiB from 4 TiB on */
        }
        while (g->chunk_blocks > CHUNK_BLOCKS_LEAST &&
               layout_chunk_count(g, smallest_blocks) < CHUNKS_WANTED) {
            g->chunk_blocks /= 2;
        }
    }
    if (g->row_blocks == 0) {
        g->row_blocks = MIN((uint32_t)ROW_BLOCKS, g->chunk_blocks);
    }
    if (g->node_blocks == 0) {
        g->node_blocks = NODE_BLOCKS;
    }
}

static int check_options(const struct pool_options *o, struct errmsg *reterr) {
    if (o->name == NULL || pool_name_validate(o->name) != OK) {
        return errmsg_set(reterr, ERR_INVALID,
                          "\"%s\" is no name for a pool: a letter, then up to 62 letters, digits, "
                          "'_', '.' or '-'",
                          o->name != NULL ? o->name : "");
    }
    if (o->path_count == 0 || o->path_count > POOL_DISKS_MAX) {
        return errmsg_set(reterr, ERR_RANGE, "a pool has 1 to %d disks, not %" PRIu32,
                          POOL_DISKS_MAX, o->path_count);
    }
    if (o->meta_copies > MIN(o->path_count, (uint32_t)DIRECT_COPIES)) {
        return errmsg_set(reterr, ERR_RANGE,
                          "%" PRIu32 " copies of the metadata need as many disks (at most %d)",
                          o->meta_copies, DIRECT_COPIES);
    }
    for (uint32_t i = 0; i < o->path_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(o->paths[i], o->paths[j]) == 0) {
                return errmsg_set(reterr, ERR_INVALID, "%s is named twice", o->paths[i]);
            }
        }
    }
    return OK;
}

static int check_disks(const struct pool_options *o, const struct probe *probes,
                       struct errmsg *reterr) {
    for (uint32_t i = 0; i < o->path_count; i++) {
        const struct probe *p = &probes[i];
        if (p->disk == NULL) {
            return errmsg_set(reterr, p->problem.code, "%s", p->problem.text);
        }
        if (o->force) {
            continue;
        }
        if (p->labelled) {
            return errmsg_set(reterr, ERR_EXISTS,
                              "%s is disk %" PRIu32 " of pool %s; --force destroys what it holds",
                              p->path, p->label.member, p->label.pool_name);
        }
        if (p->problem.code == ERR_UNSUPPORTED || p->label_copies[0] == COPY_UNSUPPORTED) {
            return errmsg_set(reterr, ERR_EXISTS,
                              "%s belongs to a pool of a newer holdfast; --force destroys it",
                              p->path);
        }
        if (p->problem.code != ERR_FOREIGN) { /* that is: no label, but readable */
            return errmsg_set(reterr, p->problem.code, "%s", p->problem.text);
        }
    }
    return OK;
}

int disk_check_size(const struct geometry *g, const struct probe *probe, uint32_t chunks,
                    struct errmsg *reterr) {
    if (chunks >= CHUNKS_LEAST) {
        return OK;
    }
    uint64_t least = layout_chunk_start(g) + TAIL_BLOCKS + (uint64_t)CHUNKS_LEAST * g->chunk_blocks;
    char is[16], needs[16];
    size_format(disk_info(probe->disk)->size_bytes, is, sizeof(is));
    size_format(round_up(least * BLOCK_BYTES, 1 << 20), needs, sizeof(needs));
    return errmsg_set(reterr, ERR_RANGE, "%s is too small (%s); it needs at least %s", probe->path,
                      is, needs);
}

static int choose_sizes(const struct pool_options *o, const struct probe *probes,
                        struct super_phys *s, struct errmsg *reterr) {
    uint64_t smallest = UINT64_MAX;
    for (uint32_t i = 0; i < o->path_count; i++) {
        s->members[i].disk_blocks = usable_blocks(disk_info(probes[i].disk)->size_bytes);
        smallest = MIN(smallest, s->members[i].disk_blocks);
    }
    s->geometry = o->geometry;
    geometry_complete(&s->geometry, smallest);
    if (geometry_validate(&s->geometry) != OK) {
        return errmsg_set(reterr, ERR_RANGE,
                          "chunks of %" PRIu32 ", a ring of %" PRIu32 ", rows of %" PRIu32
                          ", nodes of %" PRIu32 " blocks are outside what a pool can have",
                          s->geometry.chunk_blocks, s->geometry.ring_blocks, s->geometry.row_blocks,
                          s->geometry.node_blocks);
    }
    for (uint32_t i = 0; i < o->path_count; i++) {
        s->members[i].chunks = layout_chunk_count(&s->geometry, s->members[i].disk_blocks);
        int error = disk_check_size(&s->geometry, &probes[i], s->members[i].chunks, reterr);
        if (error != OK) {
            return error;
        }
    }
    return OK;
}

static void fill_super(struct env *env, const struct pool_options *o, const struct probe *probes,
                       const char *host, struct super_phys *s) {
    s->features_incompat = SUPER_INCOMPAT_KNOWN;
    env_random(env, &s->pool, sizeof(s->pool));
    (void)snprintf(s->name, sizeof(s->name), "%s", o->name);
    (void)snprintf(s->host, sizeof(s->host), "%s", host);
    s->sequence = 1;
    s->config_epoch = 1;
    s->wall_ns = env_wall_ns(env);
    s->flags = SUPER_FLAG_EXPORTED | SUPER_FLAG_CLEAN;
    s->meta_copies = o->meta_copies != 0 ? o->meta_copies : MIN(o->path_count, 2u);
    s->member_count = o->path_count;
    env_random(env, &s->mount_id, sizeof(s->mount_id));
    s->mount_id |= 1; /* never 0 */
    s->settled_epoch = s->config_epoch;
    s->settled_mount_id = s->mount_id;
    for (uint32_t i = 0; i < o->path_count; i++) {
        struct member_phys *m = &s->members[i];
        env_random(env, &m->disk, sizeof(m->disk));
        m->state = MEMBER_IN_SYNC;
        m->state_epoch = 1;
        m->device_class = disk_info(probes[i].disk)->rotational ? 0 : 1;
        (void)snprintf(m->path_hint, sizeof(m->path_hint), "%.55s", probes[i].path);
    }
}

/* ---- writing ---- */

struct create_job {
    const struct super_phys *super;
    struct probe *probe;
    uint32_t member;
    struct fiber_group *group;
    int (*step)(const struct create_job *job);
    int error;
};

int disk_wipe(struct disk *disk, uint64_t blocks) {
    struct buf *buf = buf_new(WIPE_BLOCKS * BLOCK_BYTES);
    memset(buf->data, 0, buf->bytes);
    uint64_t front = MIN(blocks, (uint64_t)WIPE_BLOCKS);
    int error = disk_write(disk, 0, front * BLOCK_BYTES, buf, 0, true);
    if (error == OK) {
        error = disk_write(disk, (blocks - TAIL_BLOCKS) * BLOCK_BYTES, TAIL_BLOCKS * BLOCK_BYTES,
                           buf, 0, true);
    }
    buf_unref(buf);
    return error;
}

static int step_wipe(const struct create_job *job) {
    return disk_wipe(job->probe->disk, job->super->members[job->member].disk_blocks);
}

int disk_label(struct disk *disk, const struct super_phys *s, uint32_t member) {
    const struct member_phys *m = &s->members[member];
    struct label_phys label = {.pool = s->pool,
                               .disk = m->disk,
                               .member = member,
                               .disk_blocks = m->disk_blocks,
                               .created_wall_ns = s->wall_ns,
                               .geometry = s->geometry};
    memcpy(label.pool_name, s->name, sizeof(label.pool_name));
    const uint64_t at[] = {m->disk_blocks - 1, LABEL_BLOCK};
    int error = OK;
    for (size_t i = 0; i < ARRAY_COUNT(at) && error == OK; i++) {
        struct buf *buf = buf_new(BLOCK_BYTES);
        memset(buf->data, 0, BLOCK_BYTES);
        label_seal(&label, at[i]);
        memcpy(buf->data, &label, sizeof(label));
        error = disk_write(disk, at[i] * BLOCK_BYTES, BLOCK_BYTES, buf, 0, true);
        buf_unref(buf);
    }
    return error;
}

static int step_label(const struct create_job *job) {
    return disk_label(job->probe->disk, job->super, job->member);
}

static void create_fiber(void *arg) {
    struct create_job *job = arg;
    job->error = job->step(job);
    fiber_group_done(job->group, job->error);
}

/* One step on all disks at once. */
static int on_all(struct env *env, const struct super_phys *super, struct probe *probes,
                  int (*step)(const struct create_job *job), struct errmsg *reterr) {
    struct create_job *jobs = MEM_NEW_ARRAY(struct create_job, super->member_count);
    struct fiber_group group = FIBER_GROUP_INIT;
    for (uint32_t m = 0; m < super->member_count; m++) {
        jobs[m] = (struct create_job){
            .super = super, .probe = &probes[m], .member = m, .group = &group, .step = step};
        fiber_group_add(&group);
        fiber_start(env, create_fiber, &jobs[m]);
    }
    int error = fiber_group_wait(&group);
    for (uint32_t m = 0; m < super->member_count; m++) {
        if (jobs[m].error != OK) {
            errmsg_set(reterr, jobs[m].error, "%s: writing to it failed: %s", probes[m].path,
                       error_text(jobs[m].error));
        }
    }
    mem_free(jobs);
    return error;
}

static int write_first_super(const struct super_phys *super, struct probe *probes,
                             struct errmsg *reterr) {
    struct disk *disks[POOL_DISKS_MAX] = {0};
    uint8_t copies[POOL_DISKS_MAX] = {0};
    uint64_t failed;
    for (uint32_t m = 0; m < super->member_count; m++) {
        disks[m] = probes[m].disk;
        copies[m] = 3;
    }
    super_write_copies(disks, super, copies, &failed);
    if (failed != 0) {
        return errmsg_set(reterr, ERR_IO, "%s: writing the superblock failed",
                          probes[__builtin_ctzll(failed)].path);
    }
    return OK;
}

static int create_on(struct env *env, const struct pool_options *options, struct probe *probes,
                     struct super_phys *super, struct errmsg *reterr) {
    char host[HOST_BYTES];
    int error = check_disks(options, probes, reterr);
    if (error != OK || (error = choose_sizes(options, probes, super, reterr)) != OK) {
        return error;
    }
    if ((error = host_ensure(env, host)) != OK) {
        return errmsg_set(reterr, error, "this host cannot keep its state (%s)", error_text(error));
    }
    fill_super(env, options, probes, host, super);
    if ((error = on_all(env, super, probes, step_wipe, reterr)) != OK ||
        (error = write_first_super(super, probes, reterr)) != OK ||
        (error = on_all(env, super, probes, step_label, reterr)) != OK) {
        return error;
    }
    error = witness_write(env, super);
    return error == OK ? OK
                       : errmsg_set(reterr, error, "this host cannot keep its state (%s)",
                                    error_text(error));
}

int pool_create(struct env *env, const struct pool_options *options, struct errmsg *reterr) {
    int error = check_options(options, reterr);
    if (error != OK) {
        return error;
    }
    struct probe *probes =
        probe_paths(env, options->paths, options->path_count, &options->disk, false);
    struct super_phys *super = MEM_NEW(struct super_phys);
    error = create_on(env, options, probes, super, reterr);
    mem_free(super);
    probes_free(probes, options->path_count);
    return error;
}
