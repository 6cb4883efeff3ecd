#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# One byte is changed in one structure of each kind on the disks of a stopped RAID 6 pool. `holdfast
# check` must report it; served with the damage in place, the pool must return what was written, or an
# error, never anything else. Rows of the log are damaged in a pool that was killed and is still to be
# replayed.
# A structure found on disk may be an old one that nothing refers to, whose damage is nobody's business:
# up to $tries of each kind are tried, and one must be reported.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
seed=${SEED:-$RANDOM}
tries=16
echo "seed $seed"
scan=tests/interop/poolscan.py

mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish
# Random content, each block of it written once: all of it stays live.
head -c $((24 << 20)) /dev/urandom >"$work/content"
truncate -s 256M "$work/content"
try "content is written" qemu-img convert -n -f raw -O raw "$work/content" "$lun"
stop
check_clean "before any damage the pool is clean"
cp -a --sparse=always "$disks" "$work/disks.rest"
cp -a "$work/state" "$work/state.rest"
cp "$work/content" "$work/content.rest"

serve && served || finish
# Small writes, so that they lie in the log, and then no checkpoint.
head -c $((1 << 20)) /dev/urandom |
    dd of="$work/content" bs=4096 iflag=fullblock conv=notrunc status=none
for ((i = 0; i < 256; i++)); do
    echo "write -s $work/content.part.$i $((i * 4096)) 4096"
    dd if="$work/content" of="$work/content.part.$i" bs=4096 skip="$i" count=1 status=none
done >"$work/writes"
try "small writes" qemu-io -f raw "$lun" <"$work/writes"
end "$server" KILL
cp -a --sparse=always "$disks" "$work/disks.log"
cp -a "$work/state" "$work/state.log"
cp "$work/content" "$work/content.log"

restore() { # rest|log
    rm -rf "$disks" "$work/state"
    cp -a --sparse=always "$work/disks.$1" "$disks"
    cp -a "$work/state.$1" "$work/state"
}

damage() { # KIND rest|log: sets $place, when check has reported it
    local kind=$1 path at n=0
    restore "$2"
    while read -r path at && ((n++ < tries)); do
        python3 "$scan" flip "$path" "$at"
        if ! "$build/holdfast" check tank --disk "$disks"/d* >"$work/check.out" 2>&1; then
            place="$(basename "$path") at $at"
            return 0
        fi
        python3 "$scan" flip "$path" "$at" # back
    done < <(python3 "$scan" "$kind" "$seed" "$work/content.$2" "$disks"/d*)
    echo "none of $n places of kind $kind was reported" >&2
    return 1
}

for kind in label super row node table-page directory catalog data parity log-row; do
    state=rest
    [[ $kind != log-row ]] || state=log
    if ! damage "$kind" "$state" 2>"$work/damage.out"; then
        bad "$kind: $(cat "$work/damage.out")"
        continue
    fi
    ok "$kind: check reports the damage ($place): $(grep -v '^$' "$work/check.out" | head -n 1)"
    serve && served || continue
    try "$kind: with the damage in place the content is right" \
        qemu-img compare -f raw -F raw "$work/content.$state" "$lun"
    stop
done
finish
