#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# The Linux kernel's initiator (open-iscsi, multipath-tools) in a guest that runs as a process: mutual
# CHAP, digests, two portals; a path that is cut, the service killed, and stopped and started, all
# under a verifying load; a LUN that grows, space that comes back, LUNs that come and go.
# Takes 4 minutes, and 5 more the first time (kclient/image). Needs root.
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
in_guest() { { echo "set -e"; cat; } | guest exec; } # a script on standard input
mkdir "$work/disks"
disks=$work/disks
try "a network of its own" guest net up || finish
listen="10.77.0.1 10.77.1.1" serve_in="ip netns exec $netns"
serve && make_pool "$disks" 1G 512M || finish
echo alices-own-secret >"$work/secret"
echo the-arrays-secret >"$work/mutual"
me=iqn.2026-01.org.holdfast.test:guest
try "a CHAP user for both directions" hf chap set tank/alice --secret-file "$work/secret" \
    --mutual-name array --mutual-secret-file "$work/mutual"
try "the LUN is for her and this host" hf lun map tank/vm --initiator "$me" --user alice
try "the guest boots" guest start || finish

# Logins.
try "discovery finds both portals, and no login without a proof" in_guest <<'END'
iscsid
iscsiadm -m discovery -t st -p 10.77.0.1 | tee /tmp/found
grep -q '^10.77.0.1:3260,1 ' /tmp/found
grep -q '^10.77.1.1:3260,2 ' /tmp/found
iscsiadm -m node -o update -n node.session.timeo.replacement_timeout -v 120
iscsiadm -m node -o update -n node.session.initial_login_retry_max -v 1
iscsiadm -m node -o update -n "node.conn[0].timeo.noop_out_interval" -v 1
iscsiadm -m node -o update -n "node.conn[0].timeo.noop_out_timeout" -v 3
! iscsiadm -m node -L all
END
login() { # SECRET ALGORITHMS
    in_guest <<END
set_all() { iscsiadm -m node -o update -n "\$1" -v "\$2"; }
set_all node.session.auth.authmethod CHAP
set_all node.session.auth.username alice
set_all node.session.auth.password "$1"
set_all node.session.auth.username_in array
set_all node.session.auth.password_in "${3:-the-arrays-secret}"
set_all node.session.auth.chap_algs "$2"
set_all "node.conn[0].iscsi.HeaderDigest" CRC32C
set_all "node.conn[0].iscsi.DataDigest" CRC32C
iscsiadm -m node -L all
END
}
logout() { in_guest <<<"iscsiadm -m node -U all"; }
deny "with a wrong secret it is refused" login no-secret-of-hers MD5
deny "it refuses an array with a wrong secret" login alices-own-secret MD5 no-secret-of-ours
for algorithm in MD5 SHA1 SHA256 SHA3-256; do
    try "mutual CHAP with $algorithm" login alices-own-secret $algorithm && logout >"$work/logout"
done
try "multipath starts" in_guest <<<multipathd
try "both paths log in" login alices-own-secret SHA256,MD5 || finish
sessions() { hf lun sessions --json | python3 -c '
import json, sys
s = json.load(sys.stdin)["sessions"]
good = [x for x in s if x["user"] == "alice" and x["header_digest"] and x["data_digest"]]
print(len(good))'; }
has_sessions() { [[ $(sessions) == "$1" ]]; }
try "two sessions of alice, with digests" has_sessions 2
both_paths() {
    in_guest <<'END'
for i in $(seq 300); do
    n=$(multipathd show paths raw format '%m %t %o' | grep -c 'mpatha active running' || true)
    [ -b /dev/mapper/mpatha ] && [ "$n" = 2 ] && break
    sleep 0.1
done
multipathd show paths raw format '%d %m %t %o'
multipath -ll
[ "$n" = 2 ]
END
}
try "multipath has one disk with two paths" both_paths || finish
try "an XFS file system" in_guest <<'END'
mkfs.xfs -q -f /dev/mapper/mpatha
mkdir /mnt/t
mount /dev/mapper/mpatha /mnt/t
END

# Under a verifying load. What a request waited for at most is printed.
load() { # SECONDS
    rm -f "$run/share/going" "$run/share/fio"
    in_guest >"$work/load.out" 2>&1 <<END &
(sleep 3; : >/hf/going; sync /hf/going) &
fio --name=v --filename=/mnt/t/f --size=64m --rw=randwrite --bsrange=4k-64k --direct=1 \
    --ioengine=libaio --iodepth=8 --verify=crc32c --verify_backlog=64 --time_based \
    --runtime=$1 --output-format=json --output=/hf/fio
sync /hf/fio
END
    load_job=$!
    within 60 test -e "$run/share/going"
}
loaded() {
    wait "$load_job" && python3 - "$run/share/fio" >"$work/load.out" 2>&1 <<'END'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
wait = max(job[way]["lat_ns"]["max"] for way in ("read", "write"))
print("     %d writes, %d reads verified, the longest wait %.1f s" % (
    job["write"]["total_ios"], job["read"]["total_ios"], wait / 1e9))
sys.exit(job["error"] != 0 or job["read"]["total_ios"] == 0)
END
    local code=$?
    cat "$work/load.out"
    return $code
}
report() { cat "$work/load.out"; }

load 15
guest unplug 0
try "a path is cut: one session is left" within 20 has_sessions 1
guest plug 0
try "the load noticed nothing" loaded
report
try "both paths are back" both_paths
load 15
end "$server" KILL
sleep 1
serve || finish
try "the service is killed and started: the load noticed nothing" loaded
report
try "both paths are back" both_paths
load 15
stop
serve || finish
try "it is stopped and started: the load noticed nothing" loaded
report
try "both paths are back" both_paths

# What changes while it is in use.
try "the LUN grows" hf volume resize tank/vm --size 768M
try "the host and its file system grow with it" in_guest <<'END'
iscsiadm -m node -R >/dev/null
multipathd resize map mpatha
[ "$(blockdev --getsize64 /dev/mapper/mpatha)" = $((768 << 20)) ]
xfs_growfs /mnt/t
[ "$(df -m --output=size /mnt/t | tail -1)" -gt 600 ]
END
allocated() { hf volume list tank --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["volumes"][0]["allocated_bytes"] >> 20)'; }
try "a file of 200 MiB" in_guest <<<"dd if=/dev/urandom of=/mnt/t/big bs=1M count=200 conv=fsync"
full() { [[ $(allocated) -gt 250 ]]; }
empty() { [[ $(allocated) -lt 150 ]]; }
try "takes its space" within 40 full
try "is deleted and trimmed" in_guest <<<"rm /mnt/t/big; sync; fstrim -v /mnt/t"
try "and the space comes back within a minute" within 60 empty
try "a second LUN for this host" bash -c "'$build/holdfast' volume create tank/two --size 64M &&
    '$build/holdfast' lun create tank/two --initiator $me"
try "appears beside the first" in_guest <<'END'
iscsiadm -m node -R >/dev/null
for i in $(seq 100); do [ "$(lsblk -dno SIZE | grep -c 64M)" -ge 2 ] && break; sleep 0.1; done
[ "$(lsblk -dno SIZE | grep -c 64M)" -ge 2 ]
END
load 6
try "it is taken away" hf lun unmap tank/two --all
try "the first one noticed nothing" loaded
report
try "the file system is sound, and everything ends in order" in_guest <<'END'
umount /mnt/t
xfs_repair -n /dev/mapper/mpatha
multipathd show maps raw format '%n' | while read -r map; do
    multipath -R 5 -f "$map" || dmsetup remove --force --retry "$map"
done
iscsiadm -m node -U all
END
try "no session is left" within 10 has_sessions 0
stop
check_clean "holdfast check is clean"
finish
