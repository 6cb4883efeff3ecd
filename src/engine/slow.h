// SPDX-License-Identifier: MPL-2.0
/* Slow disks: see slow.c. Owned by the engine thread. */
#ifndef HOLDFAST_ENGINE_SLOW_H
#define HOLDFAST_ENGINE_SLOW_H

#include "engine/engine.h"

enum { SLOW_TICK_MS = 250 };

struct slow;

struct slow *slow_new(struct engine *e);
void slow_free(struct slow *slow);
/* Nothing of it is under way any more, before the disks are closed. */
void slow_stop(struct slow *slow);
/* Compares the disks; every SLOW_TICK_MS. Parks not. */
void slow_tick(struct slow *slow);
void slow_status(const struct slow *slow, uint32_t member, struct engine_disk_slow *ret_status);

#endif
