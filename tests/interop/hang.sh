#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# hang.sh [SECONDS] : memory stays bounded while a disk hangs, and neither a check nor a start waits for
# it for long. One of six disks stops answering
# under a load that writes and reads for SECONDS (20), and the resident memory of the service is
# looked at ten times a second. It may be what it was before the load, and on top of that what the
# settings and limits allow: the caches, the dirty data, what a disk may owe (64 MiB, disk.h), what one
# connection may hold (16 commands of 1 MiB by the load client), and a quarter of all that for the
# allocator's sake. More than that is written meanwhile, so that whatever is kept would show.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
seconds=${1:-20}
mib=$((1 << 20))
read_cache=16 node_cache=8 dirty=16 owed=64 connection=16
settings="read-cache = ${read_cache}M
node-cache = ${node_cache}M
dirty-limit = ${dirty}M"

mkdir "$work/backing"
mount_faultfs "$work/backing"
disks=$mount

resident() { # KiB
    sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$server/status"
}

written() { # MiB, to the disks
    hf pool status tank --json | python3 -c '
import json, sys
print(sum(d["write_bytes"] for d in json.load(sys.stdin)["disks"]) >> 20)'
}

# The largest resident memory, in MiB, of the load that has been told to begin.
watch_load() {
    local now peak=0
    until read -r -t 0.1 answer <&"$load_out"; do
        now=$(resident)
        ((now <= peak)) || peak=$now
    done
    largest=$((peak / 1024))
}

serve && make_pool "$mount" 512M 512M || finish
before=$(($(resident) / 1024))
limit=$((before + (read_cache + node_cache + dirty + owed + connection) * 5 / 4))
load_start 7 $((96 * mib))
tell load 3
watch_load
calm=$largest
try "before: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
already=$(written)
tell load "$seconds"
sleep 0.5
fault hang d3 all
watch_load
hung=$largest
try "with a disk that hangs: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
more=$(($(written) - already))
echo "resident: $before MiB before the load, $calm at most under it, $hung at most with a disk hung" \
    "(limit: $limit); $more MiB went to the disks meanwhile"
try "memory is bounded ($hung of $limit MiB)" test "$hung" -le "$limit"
try "more was written than that" test "$more" -gt "$limit"
try "the disk owes answers, or was given up" grep -q degraded <(hf pool status tank)
fault heal '*'
try "the load client saw no error" load_end
stop
check_clean "holdfast check is clean"

# Neither a check nor a start waits for such a disk for long.
fault hang d4 all
timeout 60 "$build/holdfast" check tank --disk "$mount"/d* >"$work/check.out" 2>&1
code=$?
try "a check with a disk that hangs ends in time" test "$code" -eq 1
try "and names it" grep -q 'd4 does not answer' "$work/check.out"
serve && try "a start does, too" grep -q degraded <(hf pool status tank)
fault heal '*'
stop
finish
