// SPDX-License-Identifier: MPL-2.0
/* What an array would do on disks that are not there: the real engine (or the classic array of
 * inplace.h, for comparison, or the disks alone) on modelled disks and links, in virtual time.
 *
 * Deterministic: the same options give the same figures on any machine. model.c tells what is
 * modelled and what is not. */
#ifndef HOLDFAST_BENCH_MODEL_H
#define HOLDFAST_BENCH_MODEL_H

#include "bench/disks.h"
#include "bench/link.h"
#include "bench/result.h"

enum model_system {
    MODEL_HOLDFAST,
    MODEL_CLASSIC, /* overwrites in place, acknowledges from memory */
    MODEL_BARE,    /* the disks as the profile lays them out, without memory: only reads */
};

enum model_test {
    MODEL_SEQ_READ_512B,
    MODEL_RAND_READ_4K,
    MODEL_RAND_WRITE_4K,
    MODEL_SEQ_WRITE_512K,
    MODEL_SEQ_READ_512K,
    MODEL_CORNERS,
    /* The two prices of writing nothing in place. */
    MODEL_READ_OVERWRITTEN = MODEL_CORNERS, /* sequential, after each block was overwritten */
    MODEL_READ_REORDERED, /* the same when the volume has been put in order; Holdfast only */
    MODEL_WRITE_AGED,     /* sequential, into a pool 70 % full and overwritten at random */
    MODEL_REBUILD,        /* no load of its own: how fast a disk was rebuilt beside the corners */
    MODEL_TESTS
};

enum model_state {
    MODEL_WHOLE,
    MODEL_DEGRADED,   /* one disk is lost after the span was filled */
    MODEL_REBUILDING, /* before each corner one is lost and replaced; measured until it is rebuilt,
                         or the time is over. The corners only */
};

#define MODEL_ALL_TESTS ((1u << MODEL_TESTS) - 1)

struct model_options {
    struct bench_disk_list disks;
    enum profile profile;
    struct link_options link;
    uint64_t span_bytes, memory_bytes; /* of the real thing; memory: a quarter holds writes */
    uint32_t depth;
    uint32_t factor;  /* everything is so many times smaller; 0: chosen by span */
    uint32_t seconds; /* of virtual time; 0: 20, where all disks are flash 4 */
    uint32_t tests;   /* bits of enum model_test; 0: all that the system knows */
    enum model_state state;
    uint64_t seed;
    /* Now and then; NULL. */
    void (*progress)(void *owner, const char *what);
    void *progress_owner;
};

enum { MODEL_SPAN_DEFAULT_GIB = 16, MODEL_DEPTH_DEFAULT = 16, MODEL_MEMORY_DEFAULT_GIB = 1 };

const char *model_test_name(enum model_test test);
const char *model_test_text(enum model_test test); /* for people */

/* *ret_document is the caller's to bench_document_done(). ERR_RANGE: the disks are too few or too
 * small for profile and span; ERR_INVALID. */
HF_MUST_CHECK int model_run(const struct model_options *options, enum model_system system,
                            struct bench_document *ret_document, struct errmsg *reterr);

/* What a document found for a test; NULL: it was not run. */
const struct bench_result *model_result(const struct bench_document *document,
                                        enum model_test test);

/* Where the model is generous, and where it is not: paragraphs, NULL behind the last. */
extern const char *const model_caveats[];

#endif
