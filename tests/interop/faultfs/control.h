// SPDX-License-Identifier: MPL-2.0
/* The control file of faultfs: MOUNT/.faultfs takes commands, one a line, and reads as a table of
 * what each file has seen. FILE is a name or `*`; OP is read, write, flush, discard or all.
 *
 *   fail FILE OP [COUNT]            EIO for the next COUNT requests (all of them)
 *   delay FILE OP MS [COUNT]        each answered so much later
 *   hang FILE OP [COUNT]            not answered until heal or give-up
 *   heal FILE                       no faults any more; what hung is carried out
 *   give-up FILE                    what hangs is answered with EIO; the fault stays
 *   ignore-flush FILE on|off        flushes and durable writes are acknowledged and do nothing
 *   drop FILE SEED KEEP_PCT sector|write   the power cut: unflushed writes are kept or lost
 *   sync FILE                       all unflushed writes reach the backing file
 *   flip FILE OFFSET [MASK]         changes one byte, by exclusive or (1)
 *   truncate FILE SIZE
 */
#ifndef FAULTFS_CONTROL_H
#define FAULTFS_CONTROL_H

#include <stddef.h>

#define CONTROL_NAME ".faultfs"

struct file;

/* What the file system does for commands that end waiting. */
struct control_hooks {
    void (*release)(struct file *file, int error); /* 0: carry out what hangs; else answer so */
};

/* Runs the commands in text[bytes], under the lock. 0 or a positive errno of the first that failed;
 * says on stderr which and why. */
int control_run(const char *text, size_t bytes, const struct control_hooks *hooks);
/* The table, under the lock: allocated, the caller's. */
char *control_status(void);

#endif
