// SPDX-License-Identifier: MPL-2.0
/* P and Q parity over GF(2^8), polynomial 0x11d, generator 2 (Anvin, "The mathematics of RAID-6"),
 * by ISA-L. Columns are `bytes` long, a multiple of 32, and aligned to 32. */
#ifndef HOLDFAST_CODEC_PARITY_H
#define HOLDFAST_CODEC_PARITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PARITY_COLUMNS_MAX = 32 };

/* columns[0 .. data) are read, columns[data .. data + parity) written. parity is 1 or 2. */
void parity_generate(uint32_t data, uint32_t parity, size_t bytes, void *const *columns);

/* Computes the columns whose bit is set in `missing` from the others (at most `parity` of them).
 * All columns[] point at memory; the missing ones are written. ERR_DATA_LOSS when too many are
 * missing. */
HF_MUST_CHECK int parity_reconstruct(uint32_t data, uint32_t parity, size_t bytes,
                                     void *const *columns, uint64_t missing);

#endif
