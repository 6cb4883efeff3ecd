// SPDX-License-Identifier: MPL-2.0
/* Theory. A GPT is a header and an array of partition entries, both at the front (header in sector
 * 1, array from sector 2 on) and again at the end (array, then the header in the last sector). Each
 * header carries CRC-32 of itself and of its array. Sector 0 holds a protective MBR that claims the
 * whole disk. All numbers are little-endian, and GUIDs are stored with their first three fields
 * little-endian. The sector size is that of the device, so a reader tries both. */
#include "pool/gpt.h"

#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>

#include "base/math.h"

enum {
    ENTRIES = 128,
    ENTRY_BYTES = 128,
    ARRAY_BYTES = ENTRIES * ENTRY_BYTES,
    HEADER_BYTES = 92,
    NAME_CHARS = 36,
};

const char *const gpt_type_text = "3f6d9c42-8a1e-4b7d-9e25-c0a7f15b84d3";
static const uint8_t gpt_type[16] = {0x42, 0x9c, 0x6d, 0x3f, 0x1e, 0x8a, 0x7d, 0x4b,
                                     0x9e, 0x25, 0xc0, 0xa7, 0xf1, 0x5b, 0x84, 0xd3};

struct gpt_header {
    uint8_t signature[8];
    uint32_t revision;
    uint32_t header_bytes;
    uint32_t header_crc;
    uint32_t reserved;
    uint64_t my_lba, other_lba;
    uint64_t first_usable_lba, last_usable_lba;
    uint8_t disk_guid[16];
    uint64_t array_lba;
    uint32_t entry_count, entry_bytes;
    uint32_t array_crc;
    uint32_t padding;
};
_Static_assert(offsetof(struct gpt_header, padding) == HEADER_BYTES, "UEFI 2.10 table 5.5");

struct gpt_entry {
    uint8_t type[16], guid[16];
    uint64_t first_lba, last_lba;
    uint64_t attributes;
    uint16_t name[NAME_CHARS];
};
_Static_assert(sizeof(struct gpt_entry) == ENTRY_BYTES, "UEFI 2.10 table 5.6");

static uint32_t gpt_crc(const void *bytes, size_t length) {
    return crc32_gzip_refl(0, bytes, length);
}

/* ---- writing ---- */

static void encode_mbr(uint8_t *sector, uint64_t sectors) {
    uint8_t *p = sector + 446;
    uint32_t span = sectors - 1 > UINT32_MAX ? UINT32_MAX : (uint32_t)(sectors - 1);
    static const uint8_t start[8] = {0x00, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff};
    static const uint8_t first[4] = {1, 0, 0, 0};
    memcpy(p, start, sizeof(start));
    memcpy(p + 8, first, sizeof(first));
    memcpy(p + 12, &span, sizeof(span));
    sector[510] = 0x55;
    sector[511] = 0xaa;
}

static void seal_header(struct gpt_header *h, uint8_t *ret_sector) {
    h->header_crc = 0;
    h->header_crc = gpt_crc(h, HEADER_BYTES);
    memcpy(ret_sector, h, HEADER_BYTES);
}

int gpt_encode(uint64_t disk_bytes, uint32_t sector_bytes, const struct uuid *disk_guid,
               const struct uuid *partition_guid, uint8_t *ret_front, uint8_t *ret_back,
               struct gpt_window *ret_window) {
    uint64_t sectors = disk_bytes / sector_bytes, array_sectors = ARRAY_BYTES / sector_bytes;
    if ((sector_bytes != 512 && sector_bytes != 4096) || disk_bytes < 4ull * GPT_ALIGN_BYTES) {
        return ERR_RANGE;
    }
    struct gpt_window window = {.offset_bytes = GPT_ALIGN_BYTES};
    window.length_bytes =
        round_down(disk_bytes - GPT_AREA_BYTES, GPT_ALIGN_BYTES) - GPT_ALIGN_BYTES;
    memset(ret_front, 0, GPT_AREA_BYTES);
    memset(ret_back, 0, GPT_AREA_BYTES);
    encode_mbr(ret_front, sectors);

    struct gpt_entry entry = {.first_lba = window.offset_bytes / sector_bytes};
    entry.last_lba = entry.first_lba + window.length_bytes / sector_bytes - 1;
    memcpy(entry.type, gpt_type, sizeof(gpt_type));
    memcpy(entry.guid, partition_guid->bytes, sizeof(entry.guid));
    for (uint32_t i = 0; i < sizeof("holdfast") - 1; i++) {
        entry.name[i] = (uint8_t) "holdfast"[i];
    }
    uint8_t *front_array = ret_front + 2 * (size_t)sector_bytes;
    uint8_t *back_header =
        ret_back + GPT_AREA_BYTES - (disk_bytes - sectors * sector_bytes) - sector_bytes;
    uint8_t *back_array = back_header - ARRAY_BYTES;
    memcpy(front_array, &entry, sizeof(entry));
    memcpy(back_array, &entry, sizeof(entry));

    struct gpt_header h = {.revision = 0x00010000,
                           .header_bytes = HEADER_BYTES,
                           .my_lba = 1,
                           .other_lba = sectors - 1,
                           .first_usable_lba = 2 + array_sectors,
                           .last_usable_lba = sectors - 2 - array_sectors,
                           .array_lba = 2,
                           .entry_count = ENTRIES,
                           .entry_bytes = ENTRY_BYTES,
                           .array_crc = gpt_crc(front_array, ARRAY_BYTES)};
    memcpy(h.signature, "EFI PART", sizeof(h.signature));
    memcpy(h.disk_guid, disk_guid->bytes, sizeof(h.disk_guid));
    seal_header(&h, ret_front + sector_bytes);
    h.my_lba = sectors - 1;
    h.other_lba = 1;
    h.array_lba = sectors - 1 - array_sectors;
    seal_header(&h, back_header);
    *ret_window = window;
    return OK;
}

/* ---- reading ---- */

/* `area` is GPT_AREA_BYTES of the disk from `area_at` on; the header is looked for at `header_at`
 * (both in bytes on the disk). */
static bool decode(const uint8_t *area, uint64_t area_at, uint64_t header_at, uint64_t disk_bytes,
                   uint32_t sector_bytes, struct gpt_window *ret_window) {
    struct gpt_header h;
    if (header_at < area_at || !range_is_within(header_at - area_at, sizeof(h), GPT_AREA_BYTES)) {
        return false;
    }
    memcpy(&h, area + (header_at - area_at), sizeof(h));
    uint32_t crc = h.header_crc;
    h.header_crc = 0;
    if (memcmp(h.signature, "EFI PART", sizeof(h.signature)) != 0 ||
        h.header_bytes != HEADER_BYTES || gpt_crc(&h, HEADER_BYTES) != crc ||
        h.my_lba != header_at / sector_bytes || h.entry_bytes != ENTRY_BYTES ||
        h.entry_count == 0 || h.entry_count > ENTRIES || h.array_lba > disk_bytes / sector_bytes ||
        h.array_lba * sector_bytes < area_at) {
        return false;
    }
    uint64_t at = h.array_lba * sector_bytes - area_at;
    uint64_t array_bytes = (uint64_t)h.entry_count * ENTRY_BYTES;
    if (!range_is_within(at, array_bytes, GPT_AREA_BYTES) ||
        gpt_crc(area + at, array_bytes) != h.array_crc) {
        return false;
    }
    uint32_t found = 0;
    struct gpt_window window = {0};
    for (uint32_t i = 0; i < h.entry_count; i++) {
        struct gpt_entry e;
        memcpy(&e, area + at + (size_t)i * ENTRY_BYTES, sizeof(e));
        if (memcmp(e.type, gpt_type, sizeof(gpt_type)) != 0) {
            continue;
        }
        uint64_t last_lba = disk_bytes / sector_bytes;
        if (e.first_lba < 2 || e.last_lba < e.first_lba || e.last_lba >= last_lba ||
            e.first_lba * sector_bytes % BLOCK_BYTES != 0) {
            return false;
        }
        window.offset_bytes = e.first_lba * sector_bytes;
        window.length_bytes =
            round_down((e.last_lba - e.first_lba + 1) * sector_bytes, BLOCK_BYTES);
        found++;
    }
    if (found != 1 || window.length_bytes == 0) {
        return false;
    }
    *ret_window = window;
    return true;
}

int gpt_find(const uint8_t *front, const uint8_t *back, uint64_t disk_bytes,
             struct gpt_window *ret_window) {
    static const uint32_t sizes[] = {512, 4096};
    if (disk_bytes < 2 * GPT_AREA_BYTES) {
        return ERR_NOT_FOUND;
    }
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        if (decode(front, 0, sizes[i], disk_bytes, sizes[i], ret_window)) {
            return OK;
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        uint64_t last = round_down(disk_bytes, sizes[i]) - sizes[i];
        if (decode(back, disk_bytes - GPT_AREA_BYTES, last, disk_bytes, sizes[i], ret_window)) {
            return OK;
        }
    }
    return ERR_NOT_FOUND;
}
