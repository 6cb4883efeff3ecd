// SPDX-License-Identifier: MPL-2.0
/* A table on a terminal or in Markdown: cells are gathered, then printed as wide as they need. */
#ifndef HOLDFAST_BENCH_TEXT_TABLE_H
#define HOLDFAST_BENCH_TEXT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct text_table;

/* The first column is for names and stands to the left, the others for numbers, to the right. */
struct text_table *text_table_new(uint32_t columns);
/* Row after row, left to right; the first row is the heading. */
void text_table_add(struct text_table *table, const char *fmt, ...) HF_PRINTF(2, 3);
/* Prints and frees. Texts are made harmless for where they go. */
void text_table_print(struct text_table *table, FILE *out, bool markdown);

#endif
