// SPDX-License-Identifier: MPL-2.0
/* The table that people used to collect in weeks: every RAID level on so many disks, for Holdfast,
 * for a classic array and as published, side by side (`holdfast bench model --matrix`).
 *
 * A matrix is made of documents of models: three a row (Holdfast, classic array, bare disks). So it
 * can be kept as JSON and shown again. */
#ifndef HOLDFAST_BENCH_MATRIX_H
#define HOLDFAST_BENCH_MATRIX_H

#include "bench/model.h"
#include "bench/reference.h"

struct matrix_cell {
    double published, holdfast, classic;
    double bound;  /* what disks and link allow for this span and depth; 0: not known */
    bool cache;    /* the published value is beyond what the disks do: it came from memory */
    bool better;   /* Holdfast's is better than the published one */
    char why[224]; /* not better: why */
};

struct matrix_row {
    const struct reference_raid *published;
    const struct bench_document *holdfast, *classic, *bare; /* NULL: missing */
    struct bench_disk_list disks;
    struct link_options link;
    struct matrix_cell cells[MODEL_CORNERS];
};

/* Fewer are shown as results side by side. */
enum { MATRIX_ROWS_MIN = 2 };

struct matrix {
    struct matrix_row *rows;
    uint32_t row_count;
};

/* Runs all models of the table with so many disks of `options->disks.disks[0]`. Each row has as
 * many links of 1 Gbit/s as its published figures went over. *ret_documents is mem_alloc'd.
 * `options` gives the disk, span, memory, depth, factor, seconds. */
HF_MUST_CHECK int matrix_run(const struct model_options *options,
                             struct bench_document **ret_documents, uint32_t *ret_count,
                             struct errmsg *reterr);

/* The rows that are in the documents; row_count 0: there are none, these are something else.
 * Documents outlive the matrix. */
void matrix_of(const struct bench_document *documents, uint32_t count, struct matrix *ret_matrix);
void matrix_done(struct matrix *matrix);

/* "raid5, 6 disks". */
void matrix_row_title(const struct matrix_row *row, char *ret_text, size_t bytes);

void matrix_text(FILE *out, const struct matrix *matrix, bool markdown);
void matrix_html(FILE *out, const struct matrix *matrix); /* sections of a page */

#endif
