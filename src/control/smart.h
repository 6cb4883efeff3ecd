// SPDX-License-Identifier: MPL-2.0
/* What disks say of themselves (SMART), through smartctl, if it is installed.
 *
 * A disk that is dying may take minutes to answer that, too, and smartctl with it. So a thread of
 * its own asks, one disk after the other, gives each SMART_WAIT_S, and nobody waits for it: a look
 * shows what is known, and asks for more if that is older than SMART_FRESH_S. Only block devices
 * are asked. Any thread. */
#ifndef HOLDFAST_CONTROL_SMART_H
#define HOLDFAST_CONTROL_SMART_H

#include <jansson.h>

enum { SMART_WAIT_S = 20, SMART_FRESH_S = 600 };

void smart_start(void);
void smart_stop(void); /* does not wait for a disk either */

/* {"passed", "power_on_hours", "temperature_celsius", "reallocated", "pending", "uncorrectable",
 * "media_errors", "percentage_used", "asked_unix"} as far as the disk tells; NULL: nothing is known
 * (yet). `ask`: anew, whatever its age. The caller's. */
json_t *smart_look(const char *path, int ask);

#endif
