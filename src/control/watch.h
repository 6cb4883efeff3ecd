// SPDX-License-Identifier: MPL-2.0
/* Looks at the paths of a pool's disks from time to time: a file that was unlinked, replaced or
 * truncated, a device that went. The engine learns of a disk only by doing I/O, and an unlinked
 * file goes on working until the process ends, when everything in it is gone: people have to know
 * before.
 *
 * A watch has handles of its own (read-only, taking nothing) and belongs to one loop. */
#ifndef HOLDFAST_CONTROL_WATCH_H
#define HOLDFAST_CONTROL_WATCH_H

#include <stddef.h>

#include "env/env.h"

struct watch;

struct watch *watch_new(struct env *env);
void watch_free(struct watch *watch); /* NULL is allowed */
void watch_add(struct watch *watch, const char *path);
void watch_probe(struct watch *watch);
/* What the last probe found wrong with `path`; empty when nothing. NULL watch: nothing. */
void watch_problem(const struct watch *watch, const char *path, char *ret_text, size_t text_bytes);

#endif
