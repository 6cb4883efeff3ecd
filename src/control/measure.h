// SPDX-License-Identifier: MPL-2.0
/* `holdfast bench … volume:POOL/NAME`: a measurement as a job inside the service, one at a time.
 *
 * It runs on threads of its own (bench/run.h) through the volume's door, and ends when it is done,
 * when somebody stops it, when the service stops, and when nobody has asked about it for
 * MEASURE_PATIENCE_S: whoever wanted it is gone then. What it found stays until the next one
 * begins.
 *
 * With `during` a disk of the pool is taken out when the span is filled, and taken back whatever
 * ends the job: only where the pool is fully redundant and can spare it (engine_disk_fail()). If
 * the service dies meanwhile, the next import takes the disk back. A pool is not exported, and a
 * volume not deleted, while it is measured. */
#ifndef HOLDFAST_CONTROL_MEASURE_H
#define HOLDFAST_CONTROL_MEASURE_H

#include <jansson.h>

#include "control/served.h"

enum { MEASURE_PATIENCE_S = 10 };

struct measure;
struct serve;

struct measure *measure_new(struct serve *serve);
/* Stops what runs and waits for it. NULL is allowed. */
void measure_free(struct measure *measure);
/* Stops what runs, and waits for it until then. */
void measure_quiesce(struct measure *measure, uint64_t deadline_ns);

/* `wish`: the checked body of the request. The measurement has begun when this returns OK.
 * ERR_BUSY: another one runs, or initiators use the volume that is to be written to; ERR_NOT_FOUND,
 * ERR_INVALID. Any thread that may wait. */
HF_MUST_CHECK int measure_start(struct measure *measure, struct served *served, const char *volume,
                                const json_t *wish, struct errmsg *reterr);
/* Asks the one that runs to end in good order. ERR_NOT_FOUND: none does. */
HF_MUST_CHECK int measure_stop(struct measure *measure, struct errmsg *reterr);
/* How far the one that runs is, or what the last one found; the caller's. ERR_NOT_FOUND: there was
 * none. */
HF_MUST_CHECK int measure_look(struct measure *measure, json_t **ret_answer, struct errmsg *reterr);
/* `volume` NULL: any of the pool. */
bool measure_uses(struct measure *measure, const char *pool, const char *volume);

#endif
