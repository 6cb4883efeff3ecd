#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# faultfs does what it says: what is not flushed can be lost, what is flushed or durably written
# cannot, and each fault hits the file it is meant for and no other.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

backing=$work/backing
mkdir "$backing"
truncate -s 8M "$backing/a" "$backing/b"
mount_faultfs "$backing"

# put FILE BLOCK VALUE [dd flags]: one block of 4 KiB of that byte
put() {
    head -c 4096 /dev/zero | tr '\0' "$3" |
        dd of="$mount/$1" bs=4096 seek="$2" conv=notrunc"${4:+,$4}" ${5:+oflag=$5} status=none
}
holds() { # FILE BLOCK VALUE
    cmp -s <(head -c 4096 /dev/zero | tr '\0' "$3") \
        <(dd if="$mount/$1" bs=4096 skip="$2" count=1 iflag=direct status=none)
}
reached() { # as holds, in the backing file
    cmp -s <(head -c 4096 /dev/zero | tr '\0' "$3") \
        <(dd if="$backing/$1" bs=4096 skip="$2" count=1 status=none)
}
rwf_dsync() { # FILE BLOCK VALUE: pwritev2(RWF_DSYNC) on a descriptor opened without O_DSYNC
    python3 - "$mount/$1" "$2" "$3" <<'END'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
page.write(sys.argv[3].encode() * 4096)
assert os.pwritev(fd, [page], int(sys.argv[2]) * 4096, os.RWF_DSYNC) == 4096
END
}
status() { # FILE COLUMN
    awk -v f="$1" -v c="$2" 'NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i } $1 == f { print $n[c] }' \
        "$mount/.faultfs"
}
is() { [[ $(status "$1" "$2") == "$3" ]]; }

put a 0 x
try "an unflushed write is read back" holds a 0 x
deny "and has not reached the backing file" reached a 0 x
try "it is dropped" fault drop a 1 0 sector
deny "and then gone" holds a 0 x
try "which is counted" is a dropped 1

put a 1 x fdatasync
try "a flushed write has reached the backing file" reached a 1 x
fault drop a 1 0 sector
try "and stays" holds a 1 x

put a 2 x notrunc dsync
try "an O_DSYNC write is durable" reached a 2 x
try "a RWF_DSYNC write succeeds with O_DIRECT" rwf_dsync a 3 x
try "and is durable" reached a 3 x
try "both are counted" is a durable 2

put a 4 x
rwf_dsync a 4 y
fault sync a
try "an older unflushed write does not come back over a durable one" reached a 4 y
put a 5 x
rwf_dsync a 6 y
deny "a durable write takes no other write with it" reached a 5 x
fault drop a 1 100 sector
try "what a power cut keeps is there" reached a 5 x

for block in {16..31}; do put a "$block" x; done
fault drop a 7 50 sector
kept=$(dd if="$backing/a" bs=4096 skip=16 count=16 status=none | tr -d '\0' | wc -c)
try "a power cut keeps about half of the sectors" test "$kept" -gt 16384 -a "$kept" -lt 49152
try "in whole sectors" test $((kept % 512)) -eq 0

fault ignore-flush b on
put b 0 x fdatasync
rwf_dsync b 1 x
deny "an ignored flush does nothing" reached b 0 x
deny "nor does a durable write then" reached b 1 x
fault drop b 1 0 write
deny "so data is lost" holds b 0 x
fault ignore-flush b off

fault fail a write 1
deny "a failing write fails" put a 8 x
try "as often as asked" put a 8 x
fault fail a flush
deny "a failing flush fails" put a 8 x fdatasync
fault heal a
fault fail a read
deny "a failing read fails" holds a 1 x
try "another file does not mind" holds b 5 '\0'
fault heal a
try "a healed file is read" holds a 1 x

began=${EPOCHREALTIME/./}
fault delay a read 300
holds a 1 x
try "a delayed read comes late" test $((${EPOCHREALTIME/./} - began)) -ge 290000
fault heal a

fault hang a all
start hung dd if="$mount/a" of="$work/read" bs=4096 skip=1 count=1 iflag=direct
hung=$started
try "another file is served while one hangs" holds b 5 '\0'
try "names are served" test "$(stat -c %s "$mount/a")" -eq $((8 << 20))
try "a hung read hangs" kill -0 "$hung"
fault heal a
try "and ends when healed" within 5 test -s "$work/read"
end "$hung"
fault hang a read
before=$(status a faulted)
hit() { [[ $(status a faulted) -gt $before ]]; }
start hung dd if="$mount/a" of=/dev/null bs=4096 count=1 iflag=direct
hung=$started
within 5 hit
kill -KILL "$hung"
try "a program can be killed while it hangs" within 5 gone "$hung"
end "$hung"
fault heal a

fault sync a
cp "$backing/a" "$work/before"
fault flip a $((4096 + 100)) 2
try "a flip changes one byte, by its mask" test \
    "$(cmp -l "$mount/a" "$work/before" | tr -s ' ')" = " 4197 172 170"
fault truncate b 4096
try "a truncated file is short" test "$(stat -c %s "$mount/b")" -eq 4096
put a 40 x
fallocate -p -o $((40 * 4096)) -l 4096 "$mount/a"
try "a hole reads as zeroes" holds a 40 '\0'
deny "a wrong command is refused" fault explode a
deny "so is an unknown file" fault heal nothing
rm "$mount/b"
deny "an unlinked file is gone" test -e "$mount/b"

# Many, because what the kernel lines up it lines up by a hash.
truncate -s 1M "$backing"/f{1..50}
stat "$mount"/f{1..50} >/dev/null
try "writes to files that hang stand in no other file's way" \
    "$build/tests/interop/hung-files" "$mount" 50 8
fault give-up '*'

put a 50 x
end "$faultfs_pid"
try "a clean end writes what is unflushed" reached a 50 x
finish
