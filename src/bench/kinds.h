// SPDX-License-Identifier: MPL-2.0
/* The kinds of targets that this program was built with. */
#ifndef HOLDFAST_BENCH_KINDS_H
#define HOLDFAST_BENCH_KINDS_H

#include "bench/target.h"

extern const struct bench_target_ops bench_file_ops, bench_iscsi_ops, bench_nfs_ops, bench_nbd_ops,
    bench_volume_ops;

#define BENCH_FILE (&bench_file_ops)
#define BENCH_VOLUME (&bench_volume_ops)
#ifdef HOLDFAST_LIBISCSI
#define BENCH_ISCSI (&bench_iscsi_ops)
#else
#define BENCH_ISCSI NULL
#endif
#ifdef HOLDFAST_LIBNFS
#define BENCH_NFS (&bench_nfs_ops)
#else
#define BENCH_NFS NULL
#endif
#ifdef HOLDFAST_LIBNBD
#define BENCH_NBD (&bench_nbd_ops)
#else
#define BENCH_NBD NULL
#endif

#endif
