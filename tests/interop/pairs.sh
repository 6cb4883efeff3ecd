#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# pairs.sh [COUNT] : RAID 6 survives the loss of any two of six disks. For COUNT (15: all) of the 15
# pairs: both disks fail, or hang, while the pool serves a verified load, which goes on without an
# error; and, with a fresh pool, both are absent when it starts.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
count=${1:-15}
span=$((64 << 20))

pairs=()
for a in {1..6}; do
    for ((b = a + 1; b <= 6; b++)); do
        pairs+=("$a $b")
    done
done
step=$((${#pairs[@]} / (count < 1 ? 1 : count > 15 ? 15 : count)))

mkdir "$work/backing" "$work/aside"
mount_faultfs "$work/backing"
disks=$mount

fresh() { # SEED: a pool with some verified content, under a load client
    serve && make_pool "$mount" 512M 512M || return 1
    load_start "$1" "$span"
    ask load 2
    try "loaded: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
}

verified() { # TEXT
    ask verify 60
    try "$1: $answer" grep -qx 'verify: [0-9]* sectors, 0 bad' <<<"$answer" ||
        tail -n 5 "$work/load.log"
}

put_away() {
    try "the load client saw no error" load_end
    stop
    check_clean "disks $a and $b: holdfast check is clean"
    hf_forget
}

# The service forgets the pool: the next one is another.
hf_forget() {
    fault heal '*'
    rm -rf "$work/state" "$mount"/d*
    mkdir "$work/state"
}

while_serving() { # KIND
    fresh "$((a * 10 + b))" || return
    tell load 8
    sleep 1
    fault "$1" "d$a" all
    fault "$1" "d$b" all
    hear
    try "disks $a and $b $1 under load: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
    verified "disks $a and $b $1"
    try "the pool says that it is degraded" grep -qi degraded <(hf pool status tank)
    # What hung fails from now on: the service has expelled both, and must not be asked to wait.
    fault fail "d$a" all
    fault fail "d$b" all
    fault give-up "d$a"
    fault give-up "d$b"
    put_away
}

at_start() {
    fresh "$((a * 10 + b))" || return
    stop
    mv "$work/backing/d$a" "$work/backing/d$b" "$work/aside"
    serve || return
    verified "disks $a and $b absent at start"
    ask load 2
    try "and written to: $answer" grep -q ' 0 errors, 0 bad, .* alive$' <<<"$answer"
    verified "and read again"
    put_away
    rm "$work/aside"/*
}

for ((i = 0; i < ${#pairs[@]}; i += step)); do
    read -r a b <<<"${pairs[i]}"
    while_serving "$([[ $((i % 2)) -eq 0 ]] && echo fail || echo hang)"
    at_start
done
finish
