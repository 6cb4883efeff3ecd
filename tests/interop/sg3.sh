#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Debian's sg3-utils on the Linux kernel's initiator (see kernel.sh for the guest): the pages decode,
# reservations, copies, unmaps and comparisons do what they say. Takes a minute, and 5 more the first
# time (kclient/image). Needs root.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
tools/deps kernel || finish
try "the guest's image" tests/interop/kclient/image || finish
export netns=hf$$ run=$work/guest
guest() { tests/interop/kclient/guest "$@"; }
before_end() {
    guest stop
    guest net down 2>/dev/null
}
mkdir "$work/disks"
disks=$work/disks
try "a network of its own" guest net up || finish
listen="10.77.0.1" serve_in="ip netns exec $netns"
serve && make_pool "$disks" 1G 256M || finish
try "a second LUN" hf volume create tank/b --size 256M && hf lun create tank/b >/dev/null
try "the guest boots" guest start || finish

# Each script has $a and $b, the two disks, and says(TEXT, COMMAND...): its output has the text.
sg() { # TEXT, script on standard input
    { cat <<'END'; cat; } >"$work/script"
set -e
disk() { # LUN
    local d
    for d in /sys/block/sd*; do
        [[ $(readlink "$d/device") == *:"$1" ]] && echo "/dev/${d##*/}" && return
    done
    return 1
}
says() {
    local text=$1
    shift
    "$@" >/tmp/says 2>&1 || { cat /tmp/says; return 1; }
    grep -qF -- "$text" /tmp/says || { cat /tmp/says; return 1; }
}
END
    try "$1" guest exec <"$work/script"
}
sg "the guest logs in" <<'END'
iscsid
iscsiadm -m discovery -t st -p 10.77.0.1
iscsiadm -m node -L all
udevadm settle
for i in $(seq 100); do
    disk 0 && disk 1 && exit
    sleep 0.1
done
exit 1
END
sg "sg_inq, sg_vpd: identity, target port groups, third-party copies" <<'END'
a=$(disk 0) b=$(disk 1)
says "TPGS=3  3PC=1" sg_inq "$a"
says "designator type: NAA" sg_vpd -p di "$a"
says "Extended copy(LID1)" sg_vpd -p tpc "$a"
says "General copy operations" sg_vpd -p tpc "$a"
says "Unmap granularity alignment: 0" sg_vpd -p bl "$a"
says "thin provisioned" sg_vpd -p lbpv "$a"
END
sg "sg_rtpg, sg_stpg: active/optimized" <<'END'
a=$(disk 0) b=$(disk 1)
says "active/optimized" sg_rtpg -d "$a"
sg_stpg --optimized --tp=1 "$a"
says "SET TARGET PORT GROUPS" sg_rtpg -d "$a"
sg_stpg --standby --tp=1 "$a" 2>&1 | grep "Illegal request" # its exit code is 0
END
sg "sg_logs, sg_modes, sg_opcodes, sg_reassign" <<'END'
a=$(disk 0) b=$(disk 1)
says "Logical block provisioning" sg_logs "$a"
says "Available LBA mapping threshold" sg_logs -p 0xc "$a"
says "temperature = <not available>" sg_logs -p 0x2f "$a"
says "Control, page_control: current" sg_modes -a "$a"
says "Persistent reserve out, register and move" sg_opcodes "$a"
says "Compare and write" sg_opcodes "$a"
says "grown defect list: 0" sg_reassign -g "$a"
sg_sync "$a"
sg_turs -n 3 "$a"
END
sg "sg_persist: registered, reserved, told, cleared" <<'END'
a=$(disk 0) b=$(disk 1)
sg_persist --out --register --param-sark=abc --param-aptpl "$a"
says "0xabc" sg_persist -k "$a"
sg_persist --out --reserve --param-rk=abc --prout-type=5 "$a"
says "Write Exclusive, registrants only" sg_persist -r "$a"
says "holdfast" sg_persist -s "$a"
says "Persist Through Power Loss Active(PTPL_A): 1" sg_persist -c "$a"
sg_persist --out --clear --param-rk=abc "$a"
says "NO registered" sg_persist -k "$a"
END
sg "sg_get_lba_status, sg_xcopy: a copy that keeps holes" <<'END'
a=$(disk 0) b=$(disk 1)
says "deallocated" sg_get_lba_status "$a"
dd if=/dev/urandom of="$a" bs=1M count=8 oflag=direct status=none
says "mapped" sg_get_lba_status "$a"
sg_xcopy if="$a" of="$b" count=65536 bs=512
cmp -n 33554432 "$a" "$b"
says "deallocated" sg_get_lba_status --lba=16384 "$b"
says "Identification descriptor" sg_copy_results -p "$a"
END
sg "sg_unmap, sg_write_same, sg_compare_and_write, sg_verify" <<'END'
a=$(disk 0) b=$(disk 1)
sg_unmap --force --lba=0 --num=2048 "$b"
says "deallocated" sg_get_lba_status "$b"
head -c 512 /dev/zero >/tmp/pair
head -c 512 /dev/urandom >>/tmp/pair
sg_compare_and_write --in=/tmp/pair --lba=0 --num=1 "$b"
! sg_compare_and_write --in=/tmp/pair --lba=0 --num=1 "$b"
sg_verify --16 --lba=0 --count=2048 "$b"
head -c 512 /dev/urandom >/tmp/block
sg_write_same --10 --lba=4096 --num=64 --xferlen=512 --in=/tmp/block "$b"
blockdev --flushbufs "$b"
dd if="$b" bs=512 skip=4159 count=1 iflag=direct status=none | cmp - /tmp/block
END
sg "and the kernel has nothing to complain of" <<'END'
! dmesg | grep -E 'sd [0-9:]+: .*(Sense Key|FAILED|error)' | grep -v 'Miscompare'
iscsiadm -m node -U all
END
guest stop
stop
check_clean "holdfast check is clean"
finish
