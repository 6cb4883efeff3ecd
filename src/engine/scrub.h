// SPDX-License-Identifier: MPL-2.0
/* Scrub: see scrub.c. Owned by the engine thread. */
#ifndef HOLDFAST_ENGINE_SCRUB_H
#define HOLDFAST_ENGINE_SCRUB_H

#include "engine/engine.h"

struct scrub;

struct scrub *scrub_new(struct engine *e);
void scrub_free(struct scrub *scrub);
void scrub_begin(struct scrub *scrub); /* the pool is served: starts its fiber */
bool scrub_is_gone(const struct scrub *scrub);
void scrub_wake(struct scrub *scrub); /* the engine's state has changed */
/* A read has met a block that no redundancy brings back. */
void scrub_note_lost(struct scrub *scrub, uint64_t volume, uint64_t block);
/* Blocks of the volume that are known to be lost. */
uint64_t scrub_lost_blocks(const struct scrub *scrub, uint64_t volume);

#endif
