#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# QEMU's own iSCSI initiator: a real image (a file system with files in it) is converted to a LUN,
# compared, read back, checked and mounted from; the service is killed and started, and it is compared
# again; patterns are written, zeroed, discarded and read with qemu-io.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
disks=$work/disks
serve && make_pool "$disks" 1G 512M || finish
url=$lun

# The image: this source tree as an ext4 file system, and an XFS one behind it.
mkdir "$work/tree"
cp -r src docs tests "$work/tree"
truncate -s 256M "$work/ext4.img"
try "an ext4 image is made" mke2fs -q -t ext4 -d "$work/tree" "$work/ext4.img"
truncate -s 512M "$work/image"
dd if="$work/ext4.img" of="$work/image" conv=notrunc,sparse bs=1M status=none

info() { qemu-img info -f raw "$url" | grep -q 'virtual size: 512 MiB'; }
try "qemu-img info sees the size" info
try "qemu-img convert writes the image" qemu-img convert -n -f raw -O raw "$work/image" "$url"
try "qemu-img compare finds it equal" qemu-img compare -f raw -F raw "$work/image" "$url"
try "qemu-img convert reads it back" qemu-img convert -f raw -O raw "$url" "$work/back"
try "cmp finds it equal" cmp "$work/image" "$work/back"
truncate -s 256M "$work/back"
try "e2fsck finds the file system sound" e2fsck -fn "$work/back"
mkdir "$work/out"
try "the files can be taken out of it" debugfs -R "rdump / $work/out" "$work/back"
try "and are the same" diff -r "$work/tree" "$work/out" --exclude=lost+found

end "$server" KILL
serve && served || finish
try "after a kill -9 the image is still equal" qemu-img compare -f raw -F raw "$work/image" "$url"

io() { # COMMAND...: qemu-io reports a wrong pattern in words, not by its exit code
    local arguments=() c
    for c in "$@"; do
        arguments+=(-c "$c")
    done
    qemu-io -f raw "${arguments[@]}" "$url" >"$work/io.out" 2>&1 &&
        ! grep -qiE 'fail|error|verification' "$work/io.out" || { cat "$work/io.out"; return 1; }
}
try "patterns are written and read" io "write -P 0xa5 256M 1M" "write -P 0x5a 256M 4k" "flush" \
    "read -P 0x5a 256M 4k" "read -P 0xa5 $(((256 << 20) + 4096)) 1020k"
try "odd sectors, over block boundaries" io "write -P 0x11 300M 64k" \
    "write -P 0x22 $(((300 << 20) + 3584)) 1024" "read -P 0x11 300M 3584" \
    "read -P 0x22 $(((300 << 20) + 3584)) 1024" "read -P 0x11 $(((300 << 20) + 4608)) 4k"
try "zeroes are written" io "write -z 256M 512k" "read -P 0 256M 512k" \
    "read -P 0xa5 $(((256 << 20) + (512 << 10))) 512k"
try "a discarded range reads as zeroes" io "write -P 0x77 320M 1M" "discard 320M 1M" \
    "read -P 0 320M 1M"
try "many at once" io "aio_write -P 0x31 330M 1M" "aio_write -P 0x32 331M 1M" \
    "aio_write -P 0x33 332M 1M" "aio_flush" "read -P 0x31 330M 1M" "read -P 0x32 331M 1M" \
    "read -P 0x33 332M 1M"
deny "a wrong pattern would be noticed" io "read -P 0x44 330M 1M"
deny "a read beyond the end fails" io "read 512M 4k"

truncate -s 400M "$work/xfs.img"
try "an XFS file system is made and written" mkfs.xfs -q "$work/xfs.img"
try "qemu-img convert over older content" qemu-img convert -n -f raw -O raw -S 0 "$work/xfs.img" "$url"
try "and read back" qemu-img convert -f raw -O raw "$url" "$work/back"
truncate -s 400M "$work/back"
try "it is equal" cmp "$work/xfs.img" "$work/back"
try "xfs_repair finds it sound" xfs_repair -n "$work/back"
stop
check_clean "holdfast check is clean"
finish
