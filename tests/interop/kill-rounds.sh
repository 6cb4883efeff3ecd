#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# kill-rounds.sh [ROUNDS] : a RAID 6 pool of six files on faultfs under a verified iSCSI load. In each
# round the service is killed (SIGKILL) in mid-write, a random part of what the disks had not flushed
# is lost, the service starts again, and every acknowledged write must still be there. Then the same
# with flushes ignored on purpose, which must lose data: so the test can fail.
# SEED repeats a run's faults (not its timing).
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
rounds=${1:-3}
seed=${SEED:-$RANDOM}
span=$((128 << 20))
echo "seed $seed"
RANDOM=$seed

mkdir "$work/backing"
mount_faultfs "$work/backing"
disks=$mount
# Many checkpoints: what is written but not yet flushed is mostly theirs.
settings="dirty-limit = 2M"

# As the power goes: the process first, then what the caches held. Waits until nobody holds a disk any
# more, so that nothing of the dead process is under way.
power_cut() { # SEED
    end "$server" KILL
    local i
    for i in {1..6}; do
        within 20 flock -n "$mount/d$i" true || bad "disk d$i is still held after the kill"
    done
    fault drop '*' "$1" $((RANDOM % 101)) "$([[ $((RANDOM % 2)) -eq 0 ]] && echo sector || echo write)"
}

pause() { # up to SECONDS
    sleep "$(printf '%d.%03d' $((RANDOM % $1)) $((RANDOM % 1000)))"
}

serve && make_pool "$mount" 1G 1G || finish
load_start "$seed" "$span"
for ((round = 1; round <= rounds; round++)); do
    tell load 60
    pause 4
    power_cut $((seed + round))
    hear
    try "round $round: $answer" grep -q ' 0 errors, 0 bad, .* lost$' <<<"$answer"
    serve || break
    ask verify 60
    try "round $round: after the restart: $answer" grep -qx 'verify: [0-9]* sectors, 0 bad' \
        <<<"$answer" || tail -n 5 "$work/load.log"
done
ask load 2
try "the array goes on: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
try "the load client saw no error" load_end
stop
check_clean "holdfast check is clean"
dropped=$(awk 'NR > 1 { n += $9 } END { print n }' "$mount/.faultfs")
# In a few rounds it may happen that all was flushed; that the test can fail shows below in any case.
[[ $rounds -lt 10 ]] || try "unflushed writes were lost ($dropped)" test "$dropped" -gt 0

# The same, with disks that lie.
loses() {
    local round
    for ((round = 1; round <= 10; round++)); do
        tell load 60
        sleep 2
        end "$server" KILL
        for i in {1..6}; do
            within 20 flock -n "$mount/d$i" true
        done
        fault drop '*' $((seed + 1000 + round)) 50 sector
        hear
        serve || return 0
        # Whatever is not served, and whatever is served and wrong, is lost.
        ask verify 10
        echo "$answer"
        [[ $answer =~ ' 0 bad'$ ]] || return 0
    done
    return 1
}
rm -rf "$work/state" "$mount"/d*
mkdir "$work/state"
serve && make_pool "$mount" 1G 1G || finish
fault ignore-flush '*' on
load_start "$seed" "$span"
before=$failed
if loses >"$work/lying.out" 2>&1; then
    failed=$before
    ok "disks that ignore flushes lose data, and it is seen: $(tail -n 1 "$work/lying.out")"
else
    bad "disks that ignore flushes lost nothing: this test could not fail"
fi
end "$load_pid"
end "$server" KILL
finish
