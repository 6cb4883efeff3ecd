#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# libiscsi's conformance suite against a served LUN, destructive tests and a second path included.
# What may fail, and why:
#   GetLBAStatus UnmapSingle      asks for the status of LBA i + 1 and expects an answer about
#                                 LBA i + 8, on every unit of 512-byte blocks in 4 KiB physical ones;
#                                 on one of 4096-byte blocks, where i + 1 is meant, it must pass
#   iSCSITMF AbortTaskSimpleAsync an abort that comes after the write has ended is answered
#                                 "function complete", as hosts need it; the suite wants "task does
#                                 not exist". It depends on which of the two is faster.
# What may be skipped, and why: see `skips`.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
two_paths=yes settings="iscsi-threads = 2" # the second path is another thread's
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish

skips() {
    cat <<'END'
WRITEATOMIC16 is not implemented           more than a sector at once is not promised (COMPARE AND WRITE is)
--allow-sanitize flag is not set           SANITIZE is for disks that are sold; volumes are deleted
removable                                  nothing can be taken out
does not support 0-blocks                  WSNZ: WRITE SAME of "all the rest" is refused, as page B0h says
Logical unit is not write-protected        it would need a LUN that is
Skipping NUL bit test                      obsolete since SPC-4
LBPPB < 2                                  asks for logical blocks smaller than physical ones
END
}

conforms() { # FAMILY URL
    timeout 300 iscsi-test-cu --dataloss -n -t "$1" "$2" "${2/127.0.0.1/127.0.0.2}" >"$work/cu.out" 2>&1
    grep -qE '^ *tests +[0-9]+ ' "$work/cu.out" || { tail -20 "$work/cu.out"; return 1; }
    grep -E '^ *tests +[0-9]+ ' "$work/cu.out"
    local bad
    bad=$(grep -E '^Suite .* had failures' "$work/cu.out" |
        grep -vE "${may_fail:-^$}")
    [[ -z $bad ]] || { grep -A4 -E '^Suite .* had failures' "$work/cu.out"; return 1; }
    bad=$(grep -F '[SKIPPED]' "$work/cu.out" | sort -u |
        grep -vFf <(skips | sed 's/   .*//'))
    [[ -z $bad ]] || { echo "skipped for a reason that is not known here: $bad"; return 1; }
}
may_fail='GetLBAStatus, Test UnmapSingle |iSCSITMF, Test AbortTaskSimpleAsync '
try "the SCSI tests of libiscsi" conforms SCSI "$lun"
try "its iSCSI tests" conforms iSCSI "$lun"
may_fail=
hf volume create tank/k4 --size 128M --block-size 4096 >/dev/null &&
    hf lun create tank/k4 --lun 4 >/dev/null
for family in GetLBAStatus Unmap CompareAndWrite ExtendedCopy ProutReserve; do
    try "blocks of 4096 bytes: $family" conforms "SCSI.$family" "${lun%/*}/4"
done
stop
check_clean "holdfast check is clean"
finish
