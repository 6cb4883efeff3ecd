// SPDX-License-Identifier: MPL-2.0
/* See matrix.h. What a cell is judged by:
 *
 * The bound of a read at random is what the bare disks do, simulated, with as many requests under
 * way and over the same link, no memory in between. The bound of a write at random is what the
 * classic array does, which sorts 256 MiB of them: nobody writes faster in place. Of the rest it is
 * the outer rate of the disks that hold data, and the link.
 *
 * A published value more than a tenth beyond the bound of the disks did not come from them: the
 * span or a good part of it lay in memory. */
#include "bench/matrix.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "bench/report.h"

enum { SLACK_PCT = 10, FULL_PCT = 92 };

/* More than this went over a second path: one of 1 Gbit/s carries 118 MB/s. */
static const double one_path_mb_s = 118;

/* ---- running ---- */

static int run_one(const struct model_options *options, enum model_system system,
                   struct bench_document *documents, uint32_t *count, struct errmsg *reterr) {
    int error = model_run(options, system, &documents[*count], reterr);
    *count += error == OK;
    return error;
}

static int run_row(const struct model_options *base, const struct reference_raid *published,
                   struct bench_document *documents, uint32_t *count, struct errmsg *reterr) {
    struct model_options o = *base;
    char text[80];
    const double *corners = published->corners;
    bool two = corners[MODEL_SEQ_WRITE_512K] > one_path_mb_s ||
               corners[MODEL_SEQ_READ_512K] > one_path_mb_s;
    (void)snprintf(text, sizeof(text), "%" PRIu32 "x %s", published->disks,
                   base->disks.disks[0]->name);
    o.profile = published->profile;
    int error = bench_disk_list_parse(text, &o.disks, reterr);
    error = error == OK ? link_parse(two ? "2x1gbe" : "1x1gbe", &o.link, reterr) : error;
    error = error == OK ? run_one(&o, MODEL_HOLDFAST, documents, count, reterr) : error;
    error = error == OK ? run_one(&o, MODEL_CLASSIC, documents, count, reterr) : error;
    o.tests = 1u << MODEL_RAND_READ_4K;
    return error == OK ? run_one(&o, MODEL_BARE, documents, count, reterr) : error;
}

int matrix_run(const struct model_options *options, struct bench_document **ret_documents,
               uint32_t *ret_count, struct errmsg *reterr) {
    uint32_t count = 0;
    struct bench_document *documents =
        MEM_NEW_ARRAY(struct bench_document, 3 * (size_t)reference_raid_count);
    int error = OK;
    for (uint32_t i = 0; i < reference_raid_count && error == OK; i++) {
        if (strcmp(reference_raids[i].protocol, "iSCSI") != 0) {
            continue; /* files are not served yet */
        }
        if (options->progress != NULL) {
            char what[64];
            (void)snprintf(what, sizeof(what), "%s on %" PRIu32 " disks",
                           profile_name(reference_raids[i].profile), reference_raids[i].disks);
            options->progress(options->progress_owner, what);
        }
        error = run_row(options, &reference_raids[i], documents, &count, reterr);
    }
    if (error != OK) {
        for (uint32_t i = 0; i < count; i++) {
            bench_document_done(&documents[i]);
        }
        mem_free(documents);
        return error;
    }
    *ret_documents = documents;
    *ret_count = count;
    return OK;
}

/* ---- finding rows in documents ---- */

/* "6x hdd-7200-2tb, raid5 over 1x1gbe", as model.c writes it. */
static bool address_parse(const char *address, struct bench_disk_list *ret_disks,
                          enum profile *ret_profile, struct link_options *ret_link) {
    char text[512];
    (void)snprintf(text, sizeof(text), "%s", address);
    char *comma = strstr(text, ", "), *over = comma == NULL ? NULL : strstr(comma, " over ");
    if (over == NULL) {
        return false;
    }
    *comma = *over = '\0';
    return bench_disk_list_parse(text, ret_disks, NULL) == OK &&
           profile_parse(comma + 2, ret_profile) == OK &&
           link_parse(over + 6, ret_link, NULL) == OK;
}

static struct matrix_row *row_for(struct matrix *matrix, const struct matrix_row *wanted) {
    for (uint32_t i = 0; i < matrix->row_count; i++) {
        if (matrix->rows[i].published == wanted->published &&
            strcmp(matrix->rows[i].disks.text, wanted->disks.text) == 0 &&
            strcmp(matrix->rows[i].link.text, wanted->link.text) == 0) {
            return &matrix->rows[i];
        }
    }
    matrix->rows = mem_realloc(matrix->rows, (matrix->row_count + 1) * sizeof(*wanted));
    matrix->rows[matrix->row_count] = *wanted;
    return &matrix->rows[matrix->row_count++];
}

static void row_take(struct matrix *matrix, const struct bench_document *d) {
    struct matrix_row wanted = {0};
    enum profile profile;
    if (strcmp(d->target.kind, "model") != 0 ||
        !address_parse(d->target.address, &wanted.disks, &profile, &wanted.link)) {
        return;
    }
    for (uint32_t i = 0; i < reference_raid_count; i++) {
        const struct reference_raid *r = &reference_raids[i];
        if (strcmp(r->protocol, "iSCSI") == 0 && r->profile == profile &&
            r->disks == wanted.disks.count) {
            wanted.published = r;
        }
    }
    if (wanted.published == NULL) {
        return;
    }
    struct matrix_row *row = row_for(matrix, &wanted);
    const struct bench_document **at = strcmp(d->target.name, "Holdfast") == 0 ? &row->holdfast
                                       : strcmp(d->target.name, "classic array") == 0
                                           ? &row->classic
                                           : &row->bare;
    *at = d;
}

/* ---- judging ---- */

static double value_of(const struct bench_document *document, enum model_test test) {
    const struct bench_result *result = document == NULL ? NULL : model_result(document, test);
    return result == NULL ? 0 : result->value;
}

static double link_bound(const struct matrix_row *row, enum model_test test) {
    static const uint32_t bytes[MODEL_CORNERS] = {512, 4096, 4096, 512 << 10, 512 << 10};
    double mb_s = link_mb_s(&row->link, bytes[test]);
    double command_s = 1e9 / (double)row->link.command_ns;
    bool iops = test <= MODEL_RAND_WRITE_4K;
    return iops ? MIN(mb_s * 1e6 / bytes[test], command_s) : mb_s;
}

/* What the disks allow; 0: no bound is known. */
static double disk_bound(const struct matrix_row *row, enum model_test test) {
    struct shape shape = profile_shape(row->published->profile, row->disks.count);
    double rate = row->disks.disks[0]->outer_mb_s;
    switch (test) {
    case MODEL_RAND_READ_4K:
        return value_of(row->bare, test);
    case MODEL_RAND_WRITE_4K:
        return row->classic == NULL ? 0 : value_of(row->classic, test);
    case MODEL_SEQ_WRITE_512K:
        return rate * shape.data;
    case MODEL_SEQ_READ_512K: /* copies and the places of parity help reading */
        return rate * shape_columns(shape);
    default:
        return 0;
    }
}

/* What keeps Holdfast from what disks and link would allow. */
static const char *const own_cost[MODEL_CORNERS] = {
    [MODEL_SEQ_READ_512B] = "the engine's own cost; the link would allow",
    [MODEL_RAND_READ_4K] = "the engine's own cost; disks and link would allow",
    [MODEL_RAND_WRITE_4K] = "the engine's own cost; in place, the disks take",
    [MODEL_SEQ_WRITE_512K] =
        "on the disks and in a log elsewhere before it is acknowledged; from memory it could be",
    [MODEL_SEQ_READ_512K] = "the engine reads row by row; disks and link would allow",
};

static void judge(struct matrix_row *row, enum model_test test) {
    struct matrix_cell *cell = &row->cells[test];
    char bound[NUMBER_BYTES];
    double disks = disk_bound(row, test), link = link_bound(row, test);
    cell->published = row->published->corners[test];
    cell->holdfast = value_of(row->holdfast, test);
    cell->classic = value_of(row->classic, test);
    cell->bound = disks > 0 ? MIN(disks, link) : link;
    cell->cache = disks > 0 && cell->published > disks * (100 + SLACK_PCT) / 100;
    cell->better = cell->holdfast > cell->published;
    cell->why[0] = '\0';
    if (cell->better || row->holdfast == NULL) {
        return;
    }
    (void)report_number(cell->bound, bound);
    const char *why = own_cost[test];
    if (cell->cache) {
        why = test == MODEL_RAND_WRITE_4K
                  ? "the published value came from memory; written in place, the disks take"
                  : "the published value came from memory; for this span the disks give";
    } else if (cell->published > link) {
        why = "the published value is more than the modelled link carries, which is";
    } else if (cell->holdfast * 100 >= link * FULL_PCT) {
        why = "the link, or the target's processor, is full at";
    } else if (test == MODEL_RAND_READ_4K && cell->holdfast * 100 >= disks * FULL_PCT) {
        why = "as fast as the bare disks, which do";
    }
    (void)snprintf(cell->why, sizeof(cell->why), "%s %s", why, bound);
    double reordered = value_of(row->holdfast, MODEL_READ_REORDERED);
    if (test == MODEL_SEQ_READ_512K && reordered > cell->holdfast) {
        size_t used = strlen(cell->why);
        (void)report_number(reordered, bound);
        (void)snprintf(cell->why + used, sizeof(cell->why) - used,
                       "; put in order (volume reorder) it reads %s", bound);
    }
}

void matrix_of(const struct bench_document *documents, uint32_t count, struct matrix *ret_matrix) {
    struct matrix matrix = {0};
    for (uint32_t i = 0; i < count; i++) {
        row_take(&matrix, &documents[i]);
    }
    for (uint32_t i = 0; i < matrix.row_count; i++) {
        for (int test = 0; test < MODEL_CORNERS; test++) {
            judge(&matrix.rows[i], (enum model_test)test);
        }
    }
    *ret_matrix = matrix;
}

void matrix_done(struct matrix *matrix) {
    mem_free(matrix->rows);
    *matrix = (struct matrix){0};
}

void matrix_row_title(const struct matrix_row *row, char *ret_text, size_t bytes) {
    (void)snprintf(ret_text, bytes, "%s, %" PRIu32 " %s", profile_name(row->published->profile),
                   row->published->disks, row->published->disks == 1 ? "disk" : "disks");
}
