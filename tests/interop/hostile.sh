#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# One hostile or dead initiator never costs another one anything: hundreds of them do their worst
# (hostile.py) while a load verifies what it reads, and others log in.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish
hf volume create tank/bait --size 64M >/dev/null
hf lun create tank/bait --target iqn.2026-01.org.holdfast:bait >/dev/null
try "a LUN for the hostile" hf lun list tank

load_start 3 $((32 << 20))
ask load 3
echo "     alone:   $answer"
start hostile python3 tests/interop/hostile.py "$port" iqn.2026-01.org.holdfast:bait 9
hostile=$started
sleep 1
tell load 6
logins=0 slowest=0
for _ in $(seq 10); do
    began=${EPOCHREALTIME/./}
    iscsi-inq "$lun" >/dev/null 2>&1 && logins=$((logins + 1))
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    slowest=$((took > slowest ? took : slowest))
    sleep 0.3
done
hear
echo "     beside:  $answer"
try "the load had no error" bash -c "[[ '$answer' == 'load: '*' 0 errors, 0 bad, '*alive ]]"
try "ten of ten logged in beside them" test "$logins" -eq 10
echo "     the slowest login took $slowest ms"
wait "$hostile"
echo "     $(tail -n 1 "$work/hostile.log")"
try "they got their sessions, up to the limit of an address" \
    grep -q ' 128 sessions of new names' "$work/hostile.log"
memory=$(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$server/status")
try "the service holds less than 1.5 GiB ($memory MiB)" test "$memory" -lt 1536
lines=$(wc -l <"$work/holdfast.log")
try "the log did not fill up ($lines lines)" test "$lines" -lt 2000
left() { [[ $(hf lun sessions --json | python3 -c 'import json, sys
print(len(json.load(sys.stdin)["sessions"]))') -le 1 ]]; }
try "when they have gone, their sessions have too" within 10 left
ask verify 10
try "all data are right" test "${answer##*, }" = "0 bad"
load_end
stop
check_clean "holdfast check is clean"
finish
