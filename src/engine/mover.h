// SPDX-License-Identifier: MPL-2.0
/* Emptying segments: see mover.c for the theory, and victims.h for who is chosen. Engine thread; in
 * a checkpoint, between its merges and its map. */
#ifndef HOLDFAST_ENGINE_MOVER_H
#define HOLDFAST_ENGINE_MOVER_H

#include "engine/private.h"

struct mover_options {
    /* Asked before each row is read; false: no more is read, and what has been is still moved.
     * NULL: all of it. */
    bool (*go_on)(void *ctx);
    void *ctx;
};

/* Moves all that is live in the victims (sealed data segments, of any profiles, without pending
 * rows) into new rows of their profiles. What cannot be moved stays. Fails only if the checkpoint
 * must. Parks. */
HF_MUST_CHECK int mover_run(struct engine *e, struct segment *const *victims, uint32_t count,
                            const struct mover_options *options);

/* Remembers where the run is, before it is moved to `to`. */
void mover_note(struct engine *e, const struct map_run *run, const struct segment *to);
/* Runs go back to where they were if a disk was lost that the new place needs. False: none did. */
bool mover_take_back(struct engine *e);

#endif
