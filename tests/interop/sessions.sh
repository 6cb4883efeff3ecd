#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# What logged-in sessions notice of the daemon: a LUN that grows under them, and a stop with many of
# them and I/O under way, which is clean and takes at most 10 s; on two protocol threads.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
two_paths=yes settings="iscsi-threads = 2"
disks=$work/disks
client=$build/tests/interop/iscsi-sessions
serve && make_pool "$disks" 512M 64M || finish

# Growing online.
other=$work/other
start other "$client" grow "$other_path" "until [ -e $other ]; do sleep 0.1; done"
bystander=$started
within 10 grep -q capacity "$work/other.log" || bad "the other session does not log in"
"$client" grow "$lun" "$build/holdfast volume resize tank/vm --size 96M >/dev/null" >"$work/grow.out" 2>&1
expected() { # FILE
    diff - "$1" <<END
capacity $((64 << 20))
sense 6 2a09
good
capacity $((96 << 20))
END
}
try "a session hears once that its LUN has grown, and reads the new size" expected "$work/grow.out"
touch "$other"
wait "$bystander"
try "and so does another" expected "$work/other.log"
load_start 5 $((90 << 20)) # beyond the old end
ask load 2
try "the new part is written and read: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
load_end

# A stop with 50 sessions, and reads and writes under way.
mkfifo "$work/hold"
start hold bash -c "exec '$client' hold '$lun' 50 <'$work/hold'"
exec {hold}>"$work/hold"
within 20 grep -q '50 logged in' "$work/hold.log" || bad "no 50 sessions: $(cat "$work/hold.log")"
start bench "$build/tests/perf/iscsi_bench" --test randwrite --seconds 60 "$lun" "$other_path" "$lun" "$other_path"
started_bench=$started
busy() {
    hf top --once --json | python3 -c '
import json, sys
sys.exit(0 if json.load(sys.stdin)["pools"][0]["writes_per_s"] > 10 else 1)'
}
try "54 sessions, and writes under way" within 20 busy
[[ $(hf lun sessions --json | grep -c '"initiator"') -ge 54 ]] || bad "not all are listed"
from=$(date +%s%N)
stop
took_ms=$((($(date +%s%N) - from) / 1000000))
try "within 10 s: $took_ms ms" test "$took_ms" -le 10000
try "the log says so" grep -q 'holdfast: stopped$' "$work/holdfast.log"
exec {hold}>&-
end "$started_bench" TERM 2>/dev/null
check_clean "holdfast check is clean"
serve || finish
served
try "the next start finds a clean stop" bash -c "! '$build/holdfast' events | grep -q 'without a stop'"
stop
finish
