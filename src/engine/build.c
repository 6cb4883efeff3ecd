// SPDX-License-Identifier: MPL-2.0
/* Rows under construction.
 *
 * A checkpoint (and the cleaner) hands blocks to builders; each gives them vbas and checksums at
 * once, so that trees can be built before anything is on disk. Full rows become jobs; a few writer
 * fibers place them in segments, write them, and enter them into the map. A row that cannot be
 * written whole is written elsewhere. */
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/mem.h"
#include "base/sabotage.h"
#include "codec/crc.h"
#include "engine/mover.h"
#include "engine/relocate.h"

enum { WRITERS_MAX = 16, MOVES_MAX = 16 };

void builders_init(struct engine *e) {
    for (int p = 0; p < PROFILE_COUNT; p++) {
        e->builders[p][0] = (struct builder){.profile = (enum profile)p, .kind = ROW_OWNER_DATA};
        e->builders[p][1] = (struct builder){.profile = (enum profile)p, .kind = ROW_OWNER_NODE};
        e->cold_builders[p] =
            (struct builder){.profile = (enum profile)p, .kind = ROW_OWNER_DATA, .cold = true};
        e->relocate_builders[p] = e->cold_builders[p];
        e->relocate_builders[p].relocates = true;
    }
}

/* Nodes of volumes without redundancy have two copies where there are two disks. */
enum profile node_profile(const struct engine *e, enum profile profile) {
    if (profile_losses(profile) > 0) {
        return profile;
    }
    return pool_storing_count(e->pool) >= 2 ? PROFILE_RAID1 : PROFILE_SINGLE;
}

/* An expelled disk is no longer used at once, but segment_member_lost() is called from the loop: a
 * fiber that wants room before that must not get it on that disk, again and again. */
static void seal_if_disk_lost(struct engine *e, const struct segment *s) {
    for (uint32_t c = 0; c < shape_columns(s->shape); c++) {
        if (!pool_member_in_sync(e->pool, s->column[c].disk)) {
            segment_member_lost(&e->table, s->column[c].disk);
        }
    }
}

/* The protection that is wanted; or, for a checkpoint (keep_free is 0) that cannot have it, what
 * the older segments still have since members are missing: as if those were there, without their
 * columns. */
static struct shape stream_shape(const struct engine *e, enum segment_kind kind,
                                 enum profile profile, uint32_t keep_free) {
    if (kind == SEGMENT_META) {
        profile = meta_profile(e);
    }
    struct shape shape = {0};
    if (!e->short_of_space || keep_free > 0) {
        shape = segment_shape(&e->table, profile, keep_free, profile_losses(profile));
    }
    return shape.data > 0 || keep_free > 0
               ? shape
               : segment_shape(&e->table, profile, 0, segment_losses_least(&e->table, profile));
}

/* A checkpoint that loses a disk on its way may not have room for full protection any more, though
 * it had when it began. What it wrote already counts as unwritten here: rather degraded than not at
 * all. */
static void reckon_again_after_loss(struct engine *e) {
    uint32_t disks = pool_in_sync_count(e->pool);
    if (e->checkpoint_running && disks < e->short_for_disks) {
        e->short_for_disks = disks;
        e->short_of_space |= space_is_short(e);
    }
}

struct segment *stream_segment(struct engine *e, struct stream *s, enum segment_kind kind,
                               enum profile profile, uint32_t keep_free, int *ret_error) {
    const struct geometry *g = &e->pool->super.geometry;
    reckon_again_after_loss(e);
    if (s->segment != NULL && s->segment->state == SEGMENT_OPEN) {
        seal_if_disk_lost(e, s->segment);
    }
    if (s->segment != NULL &&
        (s->segment->state != SEGMENT_OPEN || s->segment->used_blocks >= g->chunk_blocks)) {
        segment_seal(&e->table, s->segment);
        s->segment = NULL;
    }
    if (s->segment != NULL && segment_has_better(&e->table, s->segment)) {
        segment_seal(&e->table, s->segment);
        s->segment = NULL;
    }
    if (s->segment != NULL && s->segment->degraded) { /* only for as long as it must be */
        struct shape now = stream_shape(e, kind, profile, keep_free);
        if (now.data == 0 && keep_free > 0) {
            *ret_error = ERR_NO_SPACE;
            return NULL;
        }
        if (shape_losses(now) > shape_losses(s->segment->shape)) {
            segment_seal(&e->table, s->segment);
            s->segment = NULL;
        }
    }
    if (s->segment == NULL) {
        struct shape shape = stream_shape(e, kind, profile, keep_free);
        *ret_error = segment_open(&e->table, kind, profile, shape, keep_free, &s->segment);
        if (*ret_error != OK) {
            s->segment = NULL;
            return NULL;
        }
        profile = kind == SEGMENT_META ? meta_profile(e) : profile;
        e->degraded_segments +=
            shape_losses(shape) < MIN(profile_losses(profile), pool_storing_count(e->pool) - 1);
    }
    return s->segment;
}

static void job_free(struct row_job *job) {
    for (uint32_t i = 0; i < job->hold_count; i++) {
        buf_unref(job->hold[i]);
    }
    mem_free(job->moved);
    mem_free(job);
}

/* ---- writing jobs ---- */

/* Nodes die sooner than data, and all at once when a merge writes them anew: in segments of their
 * own they need no cleaner. One more open segment is for pools that have chunks to spare. */
static struct stream *stream_of(struct engine *e, enum profile p, enum row_owner_kind kind,
                                bool cold) {
    struct stream *nodes = &e->nodes[p];
    if (cold || kind != ROW_OWNER_NODE) {
        return cold ? &e->cold[p] : &e->hot[p];
    }
    if (segment_shape(&e->table, p, cleaner_asks(e), profile_losses(p)).data > 0) {
        return nodes;
    }
    if (nodes->segment != NULL) {
        segment_seal(&e->table, nodes->segment);
        nodes->segment = NULL;
    }
    return &e->hot[p];
}

static struct stream *job_stream(struct engine *e, const struct row_job *job) {
    return stream_of(e, job->profile, job->kind, job->cold);
}

/* Chunks of each disk that a new segment for the job leaves to others. A window of a relocation was
 * found to fit in front of them; should that have been wrong, the checkpoint comes first. */
static uint32_t job_keeps_free(const struct engine *e, const struct row_job *job) {
    if (job->moved != NULL) {
        return e->meta_keep;
    }
    uint32_t keep = job->relocates ? relocate_keep_free(e) : 0;
    return stream_shape(e, SEGMENT_DATA, job->profile, keep).data > 0 ? keep : 0;
}

/* A segment with room for `blocks` blocks of data and `runs` runs. */
static int job_place(struct engine *e, struct row_job *job, struct row **row) {
    for (int attempt = 0; attempt < 3; attempt++) {
        int err = OK;
        struct segment *s = stream_segment(e, job_stream(e, job), SEGMENT_DATA, job->profile,
                                           job_keeps_free(e, job), &err);
        if (s == NULL) {
            return err;
        }
        err = *row == NULL ? row_new(&e->table, s, job->blocks, job->run_count,
                                     e->pool->super.mount_generation, row)
                           : row_move(*row, s);
        if (err != ERR_NO_SPACE) {
            return err;
        }
        segment_seal(&e->table, s); /* its rest is too small for this row */
    }
    return ERR_NO_SPACE;
}

static void job_enter_into_map(struct engine *e, struct row_job *job, const struct row *row) {
    uint32_t index = row->header_blocks;
    if (job->moved == NULL) {
        (void)map_add(&e->map, job->block[0].vba & ~(uint64_t)(RUN_BLOCKS - 1), row->segment,
                      row->offset, row->height, index, job->blocks);
        for (uint32_t i = 0; i < job->blocks; i++) {
            map_set_live(&e->map, job->block[i].vba);
        }
        return;
    }
    for (uint32_t r = 0; job->moved[r].run != NULL; r++) {
        uint32_t count = 0;
        for (int w = 0; w < 4; w++) {
            count += (uint32_t)__builtin_popcountll(job->moved[r].bits[w]);
        }
        mover_note(e, job->moved[r].run, row->segment);
        map_move(&e->map, job->moved[r].run, job->moved[r].bits, row->segment, row->offset,
                 row->height, index);
        index += count;
        e->cleaner_moved_blocks += count;
    }
}

static int job_write(struct engine *e, struct row_job *job) {
    struct row *row = NULL;
    int err = job_place(e, job, &row);
    if (err != OK) {
        return err;
    }
    memcpy(row->runs, job->run, job->run_count * sizeof(job->run[0]));
    for (uint32_t i = 0; i < job->blocks; i++) {
        row->crc[i] = job->block[i].crc;
        row->vba[i] = job->block[i].vba;
        memcpy(row_block(row, i), job->block[i].data, BLOCK_BYTES);
    }
    row_finish(row);
    (void)fiber_pace();
    err = row_write(row, false);
    for (int moves = 0; err != OK && moves < MOVES_MAX; moves++) {
        err = job_place(e, job, &row);
        if (err != OK) {
            break;
        }
        err = row_write(row, false);
    }
    if (err == OK) {
        e->bytes_rows += row->buf->bytes * row->segment->shape.copies;
        if (!job->cold) {
            *(job->kind == ROW_OWNER_NODE ? &e->node_blocks : &e->data_blocks) += job->blocks;
        }
        job_enter_into_map(e, job, row);
    }
    row_free(row);
    return err;
}

static void writer_fiber(void *arg) {
    struct engine *e = arg;
    struct list *link;
    while ((link = list_pop(&e->jobs)) != NULL) {
        struct row_job *job = CONTAINER_OF(link, struct row_job, link);
        e->job_count--;
        fiber_queue_wake_one(&e->job_room);
        int err = e->job_error == OK ? job_write(e, job) : e->job_error;
        if (err == ERR_NO_SPACE && job->moved != NULL) {
            err = OK; /* what the cleaner finds no place for stays where it is */
        }
        if (err != OK && e->job_error == OK) {
            e->job_error = err;
        }
        job_free(job);
    }
    e->writers--;
    fiber_group_done(&e->writer_group, OK);
}

static void job_submit(struct engine *e, struct row_job *job) {
    list_append(&e->jobs, &job->link);
    e->job_count++;
    if (e->writers < WRITERS_MAX) {
        e->writers++;
        fiber_group_add(&e->writer_group);
        fiber_start(e->env, writer_fiber, e);
    }
}

/* ---- filling ---- */

static uint32_t builder_capacity(struct engine *e, const struct builder *b) {
    struct stream *s = stream_of(e, b->profile, b->kind, b->cold);
    struct segment fresh = {
        .shape = stream_shape(e, SEGMENT_DATA, b->profile, b->cold ? e->meta_keep : 0)};
    bool many_runs = b->kind == ROW_OWNER_DATA; /* at worst each block has its own owner entry */
    uint32_t capacity = 0;
    if (s->segment != NULL && s->segment->state == SEGMENT_OPEN) {
        capacity = row_capacity(&e->table, s->segment, many_runs, true);
    }
    if (capacity < e->pool->super.geometry.node_blocks && fresh.shape.data > 0) {
        capacity = row_capacity(&e->table, &fresh, many_runs, true);
    }
    return capacity;
}

static void builder_close(struct engine *e, struct builder *b) {
    if (b->job != NULL) {
        struct row_job *job = b->job;
        b->job = NULL;
        job_submit(e, job);
    }
}

static int builder_open(struct engine *e, struct builder *b) {
    b->room = builder_capacity(e, b);
    if (b->room < e->pool->super.geometry.node_blocks) {
        return ERR_NO_SPACE;
    }
    b->job = MEM_NEW(struct row_job);
    b->job->profile = b->profile;
    b->job->kind = b->kind;
    b->job->cold = b->cold;
    b->job->relocates = b->relocates;
    list_init(&b->job->link);
    return OK;
}

static void job_hold(struct row_job *job, struct buf *hold) {
    if (hold != NULL && (job->hold_count == 0 || job->hold[job->hold_count - 1] != hold)) {
        job->hold[job->hold_count++] = buf_ref(hold);
    }
}

int builder_add(struct engine *e, struct builder *b, const void *data, struct buf *hold,
                uint64_t volume, uint64_t offset, uint32_t count, uint64_t *ret_vba,
                uint32_t *ret_crcs) {
    if (b->job != NULL && b->job->blocks + count > b->room) {
        builder_close(e, b);
    }
    if (b->job == NULL) {
        int err = builder_open(e, b);
        if (err != OK) {
            return err;
        }
        b->vba_next = engine_take_vba_run(e);
        if (b->vba_next == 0) {
            return ERR_LIMIT;
        }
    }
    struct row_job *job = b->job;
    struct row_run_phys *run = job->run_count > 0 ? &job->run[job->run_count - 1] : NULL;
    if (run != NULL && run->volume == volume && run->kind == b->kind && b->kind == ROW_OWNER_DATA &&
        run->offset + run->count == offset) {
        run->count = (uint16_t)(run->count + count);
    } else {
        job->run[job->run_count++] = (struct row_run_phys){.vba = b->vba_next,
                                                           .offset = offset,
                                                           .volume = (uint32_t)volume,
                                                           .count = (uint16_t)count,
                                                           .kind = (uint16_t)b->kind};
    }
    job_hold(job, hold);
    *ret_vba = b->vba_next;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *block = (const uint8_t *)data + (size_t)i * BLOCK_BYTES;
        ret_crcs[i] = crc32c_seeded(b->vba_next, block, BLOCK_BYTES);
        job->block[job->blocks++] =
            (struct build_block){.data = block, .vba = b->vba_next++, .crc = ret_crcs[i]};
    }
    return OK;
}

int builder_add_moved(struct engine *e, struct builder *b, struct map_run *run, struct buf *data,
                      const struct row_check *checks, uint32_t count, const uint64_t bits[4],
                      const struct row_run_phys *owners, uint32_t owner_count) {
    struct shape shape = segment_shape(&e->table, b->profile, 0, 0);
    if (!row_fits(&e->table, shape, count)) {
        return ERR_LIMIT; /* written when segments were wider */
    }
    if (b->job != NULL && b->job->blocks + count > b->room) {
        builder_close(e, b);
    }
    if (b->job == NULL) {
        int err = builder_open(e, b);
        if (err != OK) {
            return err;
        }
        b->job->moved = mem_alloc((ROW_DATA_MAX + 1) * sizeof(*b->job->moved));
    }
    struct row_job *job = b->job;
    uint32_t at = 0;
    while (job->moved[at].run != NULL) {
        at++;
    }
    job->moved[at].run = run;
    memcpy(job->moved[at].bits, bits, sizeof(job->moved[at].bits));
    memcpy(&job->run[job->run_count], owners, owner_count * sizeof(*owners));
    job->run_count += owner_count;
    job_hold(job, data);
    for (uint32_t i = 0; i < count; i++) {
        job->block[job->blocks++] =
            (struct build_block){.data = data->data + (size_t)i * BLOCK_BYTES,
                                 .vba = checks[i].vba,
                                 .crc = checks[i].crc};
    }
    return OK;
}

int builders_flush(struct engine *e) {
    for (int p = 0; p < PROFILE_COUNT; p++) {
        builder_close(e, &e->builders[p][0]);
        builder_close(e, &e->builders[p][1]);
        builder_close(e, &e->cold_builders[p]);
        builder_close(e, &e->relocate_builders[p]);
    }
    int err = fiber_group_wait(&e->writer_group);
    return err != OK ? err : e->job_error;
}

void builders_drop(struct engine *e) {
    for (int p = 0; p < PROFILE_COUNT; p++) {
        struct builder *all[] = {&e->builders[p][0], &e->builders[p][1], &e->cold_builders[p],
                                 &e->relocate_builders[p]};
        for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
            if (all[i]->job != NULL) {
                job_free(all[i]->job);
                all[i]->job = NULL;
            }
        }
    }
}
