#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# A machine that boots from a LUN: a disk with a boot loader, a Debian kernel and a small RAM disk is
# copied to a LUN, and QEMU (no KVM needed) boots it over iscsi:// with its own initiator. The guest
# reads its whole disk, writes, syncs and powers off; the service is killed; what the guest read and
# wrote must be there. Takes 40 s, and 30 MB from a Debian mirror the first time (boot/image).
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
tools/deps boot || finish
try "the guest's disk is made" tests/interop/boot/image "$work/disk" || finish
mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 1G 128M || finish
try "it is copied to a LUN" qemu-img convert -n -f raw -O raw "$work/disk" "$lun"

boots() {
    timeout 300 qemu-system-x86_64 -accel tcg -cpu max -m 256 -nodefaults -display none -monitor none \
        -no-reboot -serial "file:$work/console" \
        -drive "file=$lun,format=raw,if=virtio,cache=none" || return 1
    cat "$work/console"
    grep -q 'GUEST has booted' "$work/console"
}
try "a guest boots from it and powers off" boots || finish
said() { grep -q "GUEST $1 $2 " "$work/console" || { grep GUEST "$work/console"; return 1; }; }
sum() { md5sum | cut -d' ' -f1; }
try "it has read the disk that was copied" said read "$(sum <"$work/disk")"
seq 10000000 12000000 | head -c 16777216 >"$work/numbers"
echo "written by the guest" |
    dd of="$work/numbers" bs=1 seek=$((70000001 - (64 << 20))) conv=notrunc status=none
try "and reads what it has written" said wrote "$(sum <"$work/numbers")"
end "$server" KILL
serve && served || finish
cp --sparse=always "$work/disk" "$work/expected"
dd if="$work/numbers" of="$work/expected" bs=1M seek=64 status=none
truncate -s 128M "$work/expected"
try "after a kill -9 the LUN holds just that" qemu-img compare -f raw -F raw "$work/expected" "$lun"
stop
check_clean "holdfast check is clean"
finish
