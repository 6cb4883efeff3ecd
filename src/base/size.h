// SPDX-License-Identifier: MPL-2.0
/* Sizes as people write and read them: binary units, "100G", "1.5T", shown as "1.50 GiB". */
#ifndef HOLDFAST_BASE_SIZE_H
#define HOLDFAST_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* "512", "4K", "1.5T", "100GiB", "2 GB" (all binary) → bytes. ERR_INVALID, ERR_RANGE. */
HF_MUST_CHECK int size_parse(const char *text, uint64_t *ret_bytes);

/* Three significant digits and a binary unit; `text` holds at least 16 characters. */
void size_format(uint64_t bytes, char *ret_text, size_t text_bytes);

#endif
