// SPDX-License-Identifier: MPL-2.0
/* Labels and superblocks.
 *
 * The label says which disk of which pool this is; it is written once, and again only when the disk
 * is given a new role. The superblock is the one root of everything: a checkpoint, a change of
 * membership and a mount each write a new one to all in-sync members, alternating between slots
 * (sequence & 1, front and back), so that a torn write always leaves the one before. */
#ifndef HOLDFAST_FORMAT_SUPER_H
#define HOLDFAST_FORMAT_SUPER_H

#include <stdbool.h>
#include <string.h>

#include "format/layout.h"
#include "format/phys.h"

enum { LABEL_VERSION = 1, SUPER_VERSION = 1 };

struct label_phys {
    struct header_phys header; /* seed: block address of this copy */
    struct uuid pool, disk;
    uint32_t member; /* index in the superblock's members[] */
    uint32_t reserved;
    uint64_t disk_blocks; /* the size in use; the device may be larger */
    uint64_t created_wall_ns;
    struct geometry geometry;
    char pool_name[64];
};
_Static_assert(sizeof(struct label_phys) == 152, "on disk");

enum member_state { /* on disk */
                    MEMBER_NONE = 0,
                    MEMBER_IN_SYNC = 1,
                    MEMBER_MISSING =
                        2, /* expelled or not there at an import: its rings are not read, nothing
                              new goes to it, its columns of sealed segments stay valid */
};

enum member_role { /* on disk: what a member is used for; independent of its state */
                   MEMBER_NORMAL = 0,
                   MEMBER_LEAVING = 1, /* to be removed: nothing new goes to it, what it holds is
                                          written elsewhere; missing: it is not taken back */
                   MEMBER_SPARE = 2,   /* holds nothing until a disk is lost */
};

struct member_phys {
    struct uuid disk;
    uint8_t state;
    uint8_t device_class;   /* 0 rotational, 1 flash */
    uint8_t failure_domain; /* 0: the disk itself */
    uint8_t role;           /* enum member_role */
    uint32_t chunks;
    uint64_t disk_blocks;
    uint64_t ring_tail;   /* ring block of the oldest row that replay needs */
    uint64_t state_epoch; /* config epoch in which the state was set */
    /* MISSING: the mount whose superblock it had last, as far as those who left it out know. A
     * superblock of a later mount on such a disk was written by another side. */
    uint64_t state_generation, state_mount_id;
    uint64_t state_sequence; /* … and the last superblock that it certainly has */
    char path_hint[56];      /* where it was last seen, for messages only */
};
_Static_assert(sizeof(struct member_phys) == 128, "on disk");

/* A place spelled out, so that reading it needs no segment table: up to four copies. */
enum { DIRECT_COPIES = 4 };
struct direct_phys {
    uint16_t disk[DIRECT_COPIES]; /* member; 0xffff: no such copy */
    uint32_t chunk_copy[DIRECT_COPIES];
    uint32_t offset_blocks; /* within each chunk */
    uint32_t length_bytes;
    uint32_t segment;    /* slot of the segment that holds it */
    uint32_t crc;        /* of the bytes */
    uint64_t checkpoint; /* that wrote it */
};
_Static_assert(sizeof(struct direct_phys) == 48, "on disk");

struct tree_ptr_phys {
    uint64_t address; /* vba of the first block, or segment slot << 32 | offset */
    uint32_t crc;
    uint32_t reserved;
};

enum { TREE_LEVELS_MAX = 8 };
struct tree_level_phys {
    struct tree_ptr_phys root;
    uint32_t height; /* 0: the root is a leaf */
    uint32_t present;
    uint64_t items;
    uint64_t nodes;
};
struct tree_root_phys { /* newest level first; the last one is the base */
    uint32_t levels;
    uint32_t reserved;
    struct tree_level_phys level[TREE_LEVELS_MAX];
};
_Static_assert(sizeof(struct tree_root_phys) == 328, "on disk");

/* What the engine hangs on the superblock: meaningful from the first checkpoint on. */
struct roots_phys {
    struct direct_phys directory; /* of segment table pages */
    struct direct_phys catalog;   /* volumes and configuration records */
    struct tree_root_phys map;    /* run of vbas -> place */
    uint64_t vba_next;            /* highest vba handed out + 1: for the counter's life only */
    uint64_t log_generation;      /* whose rows are to be replayed, from … */
    uint64_t log_start;           /* … this LSN on */
    uint64_t log_acknowledged;    /* highest LSN known acknowledged when this was written */
    uint64_t live_blocks;         /* of all segments, for the import's own check */
    uint64_t log_seed;            /* random, per mount: seeds the checksums of log rows, so that
                                     nobody who can write data can write what passes for a row */
};
_Static_assert(sizeof(struct roots_phys) == 472, "on disk");

/* One bit of features_incompat for each revision of the format that this program reads. Until the
 * format is declared stable a change takes the next bit and forgets the one before. */
enum { SUPER_INCOMPAT_KNOWN = 4, SUPER_RO_COMPAT_KNOWN = 0 };

enum { SUPER_FLAG_EXPORTED = 1, SUPER_FLAG_CLEAN = 2 /* log empty: nothing to replay */ };

struct super_phys {
    struct header_phys header; /* seed: disk uuid's first 8 bytes ^ block address of the slot */
    uint64_t features_compat, features_ro_compat, features_incompat;
    struct uuid pool;
    char name[64];
    uint64_t sequence;         /* of this superblock */
    uint64_t config_epoch;     /* of the membership */
    uint64_t mount_generation; /* of the mount that wrote it: the fencing term */
    uint64_t checkpoint;       /* number */
    uint64_t wall_ns;
    uint64_t flags;
    char host[64]; /* that wrote it */
    struct geometry geometry;
    uint32_t meta_copies;  /* of log rows, segment table and map: 1 + most losses tolerated,
                              at least 2 where there are two disks */
    uint32_t member_count; /* slots of members[] in use, holes included */
    struct roots_phys roots;
    uint64_t mount_id;        /* random, one a mount: with `sequence` it names a superblock */
    uint64_t parent_mount_id; /* of the superblock (sequence - 1) that this one was made from */
    /* The newest configuration and mount known to be settled when this was written: on all its
     * members and in its host's witness. What came after it may never have been agreed on. */
    uint64_t settled_epoch, settled_generation, settled_mount_id;
    uint8_t reserved[216];
    struct member_phys members[POOL_DISKS_MAX];
};
_Static_assert(sizeof(struct super_phys) <= SUPER_BYTES, "fits its slot");
_Static_assert(sizeof(struct super_phys) % 8 == 0, "on disk");

/* The host's witness: a state record of the host, not of a disk (docs/FORMAT.md, "Witness"). */
enum { WITNESS_VERSION = 1 };
struct witness_phys {
    struct header_phys header; /* seed: 0 */
    struct uuid pool;
    uint64_t config_epoch;
    uint64_t mount_generation;
    uint64_t mount_id;
};
_Static_assert(sizeof(struct witness_phys) == 56, "on the host");

/* Encoding and decoding. Decoders take untrusted bytes, check every field against its limits, and
 * leave ret_… untouched on failure: ERR_CORRUPT (no such structure, or fields that make no sense),
 * ERR_CHECKSUM (damaged), ERR_UNSUPPORTED (written by a version that this one does not know).
 * `block` is where the structure lies on its disk. */
HF_MUST_CHECK int pool_name_validate(const char *name); /* ERR_INVALID */
HF_MUST_CHECK int geometry_validate(const struct geometry *geometry);
void label_seal(struct label_phys *label, uint64_t block);
HF_MUST_CHECK int label_decode(const void *bytes, size_t room_bytes, uint64_t block,
                               struct label_phys *ret_label);
/* The checks of super_decode() that are not about the checksum. */
HF_MUST_CHECK int super_validate(const struct super_phys *super);
void super_seal(struct super_phys *super, const struct uuid *disk, uint64_t block);
HF_MUST_CHECK int super_decode(const void *bytes, size_t room_bytes, const struct uuid *disk,
                               uint64_t block, struct super_phys *ret_super);
void witness_seal(struct witness_phys *witness);
HF_MUST_CHECK int witness_decode(const void *bytes, size_t length_bytes, const struct uuid *pool,
                                 struct witness_phys *ret_witness);

static inline bool uuid_equal(const struct uuid *a, const struct uuid *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}
enum { UUID_TEXT_BYTES = 37 };
void uuid_format(const struct uuid *uuid, char *ret_text); /* UUID_TEXT_BYTES */

#endif
