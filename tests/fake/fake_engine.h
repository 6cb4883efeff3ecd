// SPDX-License-Identifier: MPL-2.0
/* A stand-in for the engine: everything of engine/engine.h in memory, so that the management plane
 * can be tested alone, and shown an engine that is slow, hung or refuses. Pools live as long as the
 * process. */
#ifndef HOLDFAST_TESTS_FAKE_ENGINE_H
#define HOLDFAST_TESTS_FAKE_ENGINE_H

#include <stdatomic.h>

struct fake_engine_faults {
    atomic_int import_error;  /* of the next imports */
    atomic_int change_error;  /* of changes of volumes and records */
    atomic_uint change_ms;    /* a change parks its fiber for so long: the loop goes on */
    atomic_uint loop_hang_ms; /* the next status blocks the loop for so long */
    atomic_int close_error;
    atomic_uint disk_lost;    /* a bit a disk: shown as missing */
    atomic_int volume_health; /* enum volume_health: shown of all volumes */
};
extern struct fake_engine_faults fake_engine_faults;

void fake_engine_forget(void); /* every pool, none of which may be imported */

#endif
