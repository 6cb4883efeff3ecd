#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# libiscsi's conformance suite against a served LUN, destructive tests and a second path included.
# What may fail, and why:
#   GetLBAStatus UnmapSingle      asks for the status of LBA i + 1 and expects an answer about
#                                 LBA i + 8, on every unit of 512-byte blocks in 4 KiB physical ones
#   iSCSITMF AbortTaskSimpleAsync an abort that comes after the write has ended is answered
#                                 "function complete", as hosts need it; the suite wants "task does
#                                 not exist". It depends on which of the two is faster.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish

conforms() { # FAMILY
    timeout 300 iscsi-test-cu --dataloss -n -t "$1" "$lun" "$lun" >"$work/cu.out" 2>&1
    grep -qE '^ *tests +[0-9]+ ' "$work/cu.out" || { tail -20 "$work/cu.out"; return 1; }
    grep -E '^ *tests +[0-9]+ ' "$work/cu.out"
    local bad
    bad=$(grep -E '^Suite .* had failures' "$work/cu.out" |
        grep -vE 'GetLBAStatus, Test UnmapSingle |iSCSITMF, Test AbortTaskSimpleAsync ')
    [[ -z $bad ]] || { grep -A4 -E '^Suite .* had failures' "$work/cu.out"; return 1; }
}
try "the SCSI tests of libiscsi" conforms SCSI
try "its iSCSI tests" conforms iSCSI
stop
check_clean "holdfast check is clean"
finish
