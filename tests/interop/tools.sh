#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# The small programs of libiscsi against a served LUN: discovery, inquiry pages, capacity, and a short
# run of its load generator.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish
target=${lun#iscsi://*/}
target=${target%/*}

has() { # TEXT COMMAND...: its output contains TEXT
    local text=$1
    shift
    "$@" >"$work/has.out" 2>&1 && grep -qF -- "$text" "$work/has.out" || { cat "$work/has.out"; return 1; }
}
try "iscsi-ls finds the target" has "$target" iscsi-ls "iscsi://127.0.0.1:$port/"
try "and its LUN" has "Lun:0" iscsi-ls -s "iscsi://127.0.0.1:$port/"
try "iscsi-inq reads the standard data" has "Vendor:" iscsi-inq "$lun"
for page in 0 128 131 176 177 178; do # supported, serial, designators, limits, device, provisioning
    try "and page $(printf '%#x' "$page")" iscsi-inq -e 1 -c "$page" "$lun"
done
deny "a page that does not exist is refused" iscsi-inq -e 1 -c 191 "$lun"
try "iscsi-readcapacity16 sees the size" has "$((256 << 20))" iscsi-readcapacity16 -s "$lun"
try "and 4 KiB physical blocks" has "EXPONENT:3" iscsi-readcapacity16 "$lun"
deny "a LUN that does not exist is refused" iscsi-readcapacity16 "${lun%/*}/77"
deny "so is a target that does not exist" iscsi-readcapacity16 "iscsi://127.0.0.1:$port/iqn.2026-01.none:x/0"
# It reads until it is told to stop.
perf() {
    timeout -s INT 4 iscsi-perf -m 16 -b 8 "$@" "$lun" >"$work/perf.out" 2>&1
    local code=$?
    [[ $code -eq 0 || $code -eq 124 ]] && grep -qi 'iops' "$work/perf.out" || { cat "$work/perf.out"; return 1; }
}
try "iscsi-perf reads in sequence" perf
try "iscsi-perf reads at random" perf -r
stop
check_clean "holdfast check is clean"
finish
