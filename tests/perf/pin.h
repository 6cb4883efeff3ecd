// SPDX-License-Identifier: MPL-2.0
/* One core for a benchmark, the kernel's io_uring workers included. */
#ifndef HOLDFAST_PERF_PIN_H
#define HOLDFAST_PERF_PIN_H

/* Before anything else is started. `cpu` < 0: the last one this process may use. The core. */
int pin_thread(int cpu);
/* Workers of io_uring do not inherit an affinity: tells every ring of this process, from the thread
 * that owns it, after its loop has begun to run. */
void pin_kernel_workers(int cpu);

#endif
