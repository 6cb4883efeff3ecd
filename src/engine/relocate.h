// SPDX-License-Identifier: MPL-2.0
/* A volume's blocks in new places, in the order of the volume: see relocate.c for the theory.
 * Engine thread. */
#ifndef HOLDFAST_ENGINE_RELOCATE_H
#define HOLDFAST_ENGINE_RELOCATE_H

#include "engine/private.h"

struct relocated { /* one block: read, and still what the volume has there */
    uint64_t key;
    struct tree_extent old;
    struct buf *buf;
    uint32_t at;  /* block of buf */
    bool changed; /* written or unmapped since it was looked up */
};

struct relocation { /* of one window of one volume */
    struct volume *volume;
    uint64_t sets;       /* of the volume, when the window was begun */
    uint64_t start, end; /* blocks; end: where the next window begins */
    struct relocated *item;
    uint64_t count, room;
    bool ready;  /* all of it is in memory: the next checkpoint takes it */
    bool taken;  /* by the checkpoint under way */
    bool done;   /* … which has merged it */
    bool failed; /* … which could not: a node is lost */
    bool last;   /* of its pass */
};

/* A fiber: for as long as the engine runs. */
void relocate_loop(void *engine);

/* For checkpoints. What has just been frozen is not what was read; whether this checkpoint takes
 * the window. */
void relocate_freeze(struct engine *e);
/* What the window holds of `v`, if it is of `v` and taken, into *root. */
HF_MUST_CHECK int relocate_merge(struct volume *v, struct tree_root_phys *root);
/* The old places are free, when nobody needs them to stay where they are any more. */
void relocate_apply_frees(struct engine *e);
/* Chunks of each disk that are for the rest of the checkpoint, and that a window leaves to it: on
 * disks of which one has less room than the others it lies in narrower segments at last. */
uint32_t relocate_keep_free(const struct engine *e);

bool volume_is_relocating(const struct volume *v);
/* Shares of the pool that a block of the volume is charged with: while it moves from one profile to
 * another, those of the dearer one. */
uint64_t volume_share(const struct engine *e, const struct volume *v);

#endif
