// SPDX-License-Identifier: MPL-2.0
/* What others measured, to hold predictions and measurements against.
 *
 * By RAID level: one box with six bays and 7200 rpm SATA disks, an IOmeter run each, over iSCSI and
 * NFS. The source prints it twice, under the names of two boxes; the two agree in all rows but
 * RAID 5 on six disks, where the other table has 15,768, 951, 159, 60.41, 114.08 (iSCSI) and
 * nothing (NFS). By system: small boxes and local disks of 2009 to 2013, same corners.
 *
 * Spans were about 5 GB, with some 16 requests under way, as far as is known. Some values cannot
 * come from the disks for such a span; the report of `bench model --matrix` marks them. Values over
 * 118 MB/s went over more than one gigabit path. */
#include "bench/reference.h"

#include "base/math.h"

/* 512 B sequential reads, 4 KiB random reads, 4 KiB random writes a second; 512 KiB sequential
 * write, read, MB/s. */
const struct reference_raid reference_raids[] = {
    {"iSCSI", PROFILE_SINGLE, 1, {16364, 508, 225, 117.15, 101.11}},
    {"iSCSI", PROFILE_RAID1, 2, {17440, 717, 300, 116.19, 116.91}},
    {"iSCSI", PROFILE_RAID10, 4, {17205, 2210, 629, 115.27, 107.75}},
    {"iSCSI", PROFILE_RAID10, 6, {17899, 936, 925, 43.75, 151.94}},
    {"iSCSI", PROFILE_RAID5, 3, {17458, 793, 342, 112.29, 116.34}},
    {"iSCSI", PROFILE_RAID5, 4, {18133, 776, 498, 45.49, 149.27}},
    {"iSCSI", PROFILE_RAID5, 5, {17256, 1501, 400, 115.15, 116.12}},
    {"iSCSI", PROFILE_RAID5, 6, {18022, 1941, 1065, 52.64, 149.1}},
    {"iSCSI", PROFILE_RAID0, 2, {17498, 1373, 740, 116.44, 116.22}},
    {"iSCSI", PROFILE_RAID0, 3, {18191, 1463, 1382, 50.01, 151.83}},
    {"iSCSI", PROFILE_RAID0, 4, {18132, 771, 767, 52.41, 151.05}},
    {"iSCSI", PROFILE_RAID0, 5, {17692, 897, 837, 56.01, 114.35}},
    {"iSCSI", PROFILE_RAID0, 6, {18010, 1078, 1014, 50.87, 151.47}},
    {"iSCSI", PROFILE_RAID6, 6, {17173, 2563, 870, 114.06, 116.37}},
    {"NFS", PROFILE_SINGLE, 1, {16146, 403, 151, 62.39, 115.03}},
    {"NFS", PROFILE_RAID1, 2, {15998, 625, 138, 63.82, 96.83}},
    {"NFS", PROFILE_RAID10, 4, {15924, 874, 157, 65.52, 115.45}},
    {"NFS", PROFILE_RAID10, 6, {16161, 4371, 754, 65.87, 229.52}},
    {"NFS", PROFILE_RAID5, 3, {16062, 646, 137, 63.2, 115.15}},
    {"NFS", PROFILE_RAID5, 4, {16173, 3103, 612, 65.19, 114.76}},
    {"NFS", PROFILE_RAID5, 5, {15718, 1013, 162, 59.26, 116.1}},
    {"NFS", PROFILE_RAID5, 6, {16161, 1081, 201, 63.85, 114.63}},
    {"NFS", PROFILE_RAID0, 2, {15920, 614, 183, 66.19, 114.85}},
    {"NFS", PROFILE_RAID0, 3, {15823, 757, 244, 64.98, 114.6}},
    {"NFS", PROFILE_RAID0, 4, {16258, 3769, 1043, 66.17, 114.64}},
    {"NFS", PROFILE_RAID0, 5, {16083, 4228, 1054, 66.06, 114.91}},
    {"NFS", PROFILE_RAID0, 6, {16226, 4793, 1105, 65.54, 115.27}},
    {"NFS", PROFILE_RAID6, 6, {15915, 1069, 157, 64.33, 114.94}},
};

const uint32_t reference_raid_count = ARRAY_COUNT(reference_raids);

const struct reference_system reference_systems[] = {
    {"local SSD RAID0",
     "2 x Kingston \"SSD Now V-series\" SNV425",
     {10400, 2690, 3391, 63.9, 350.6}},
    {"ix2 SSD CIFS", "2 x Kingston \"SSD Now V-series\" SNV425", {3376, 891, 308, 25.7, 40.4}},
    {"ix2 SSD iSCSI", "2 x Kingston \"SSD Now V-series\" SNV425", {4032, 664, 313, 29.4, 38.5}},
    {"local 7200 RPM SATA RAID1", "2 x Western Digital WD1001FALS", {7242, 167, 357, 94.3, 98.1}},
    {"ix4 7200RPM CIFS",
     "4 x Hitachi H3D200-series; jumbo frames enabled",
     {2283, 133, 138, 32.5, 39.4}},
    {"ix2 7200RPM CIFS", "2 x Hitachi H3D200-series", {2362, 125, 98, 9.81, 9.2}},
    {"ix2 7200RPM iSCSI", "2 x Hitachi H3D200-series", {2425, 123, 104, 9.35, 9.64}},
    {"ix4 7200RPM iSCSI",
     "4 x Hitachi H3D200-series; jumbo frames enabled",
     {4687, 117, 122, 37.4, 40.8}},
    {"ix4a stock CIFS", "4 x Seagate ST32000542AS", {2705, 112, 113, 24, 27.8}},
    {"ix4 stock iSCSI", "4 x Seagate ST31000520AS", {1768, 109, 96, 34.5, 41.7}},
    {"ix4a stock iSCSI",
     "4 x Seagate ST32000542AS; 3 switch \"hops\" with no storage optimization introduce "
     "additional latency",
     {408, 107, 89, 24.2, 27.2}},
    {"ix2 stock CIFS", "2 x Seagate ST31000542AS", {2300, 107, 85, 9.85, 9.35}},
    {"ix2 stock iSCSI", "2 x Seagate ST31000542AS", {2265, 102, 84, 9.32, 9.66}},
    {"ix4 stock CIFS", "4 x Seagate ST31000520AS", {4407, 81, 81, 32.1, 37}},
    {"DROBO PRO (iSCSI)",
     "6 x Seagate ST31500341AS + 2 x Western Digital WD1001FALS; jumbo frames",
     {1557, 71, 68, 33.1, 40.5}},
    {"DROBO USB",
     "2 x Seagate ST31000333AS + 2 x Western Digital WD3200JD",
     {790, 63, 50, 11.2, 15.8}},
    {"DS2413+ 7200RPM RAID1/0 iSCSI",
     "2 x Hitachi HDS722020ALA330 + 6 x HDS723020BLA642",
     {12173, 182, 194, 63.53, 17.36}},
    {"DS2413+ SSD RAID5 iSCSI", "4 x Crucial M4", {19238, 1187, 434, 69.79, 123.97}},
};

const uint32_t reference_system_count = ARRAY_COUNT(reference_systems);
