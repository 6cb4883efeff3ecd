#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# holdfast bench: on a local file, on a LUN of our own service (one path and two, with CHAP and
# without), on an export of qemu-nbd; what it refuses to overwrite; Ctrl-C; and what goes wrong, each
# with one sentence, a code that is not zero, and nothing left behind.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks" "$work/folder"
disks=$work/disks

bench() { timeout -k 5 60 "$build/holdfast" bench "$@"; }
brief=(--seconds 1 --ramp 0 --runs 1 --queue-depth 4 --span 16M)
fails() { # CODE TEXT COMMAND...: ends with one sentence with TEXT
    local code=0
    "${@:3}" >"$work/fails.out" 2>"$work/fails.err" || code=$?
    [[ $code -eq $1 && $(grep -c ^holdfast: "$work/fails.err") -eq 1 ]] && tail -n 1 "$work/fails.err" | grep -qF -- "$2" ||
        { echo "exit code $code"; cat "$work/fails.out" "$work/fails.err"; return 1; }
}
document() { # PYTHON_EXPRESSION_ON_j COMMAND...: what a measurement found
    "${@:2}" --json >"$work/document.json" 2>"$work/document.err" &&
        python3 -c "
import json, sys
j = json.load(open('$work/document.json'))
sys.exit(not ($1))" || { head -c 3000 "$work/document.json"; cat "$work/document.err"; return 1; }
}
empty() { [[ -z $(ls -A "$work/folder") ]]; }

# Local files.
sound='j["format"] == "holdfast-bench" and j["settings"]["complete"] and all(
    r["value"] > 0 and r["p50_us"] <= r["p99_us"] <= r["worst_us"]
    and r["histogram"][-1][0] == r["worst_us"]
    and abs(sum(c for _, c in r["histogram"]) - r["iops"]) < 0.02 * r["iops"] + 2
    for r in j["results"])'
try "a folder is measured" document "$sound and len(j['results']) == 2
    and j['settings']['prepared'] and j['target']['size_bytes'] == 16 << 20" \
    bench oltp "$work/folder" "${brief[@]}"
try "and nothing is left" empty
cat >"$work/job.fio" <<'END'
[global]
bs=4k
runtime=1
ramp_time=0
[readers]
rw=randread
iodepth=4
numjobs=2
[writer]
rw=randwrite
size=50%
[after]
stonewall
rw=read
bs=128k
END
try "a job file: jobs at once, then one" document "$sound and [r['test'] for r in j['results']] ==
    ['readers', 'writer', 'after'] and j['results'][0]['queue_depth'] == 4" \
    bench job "$work/job.fio" "$work/folder" --span 16M --runs 1
filled() { bench fill "$work/folder/new" --span 32M --csv 2>/dev/null | grep -q 'fill-512k",32,524288,mb_s,'; }
try "fill, as CSV" filled
try "backup: a synthetic full is copied" document "$sound and len(j['results']) == 2" \
    bench backup "$work/folder" "${brief[@]}"
try "and nothing is left" empty

# What is not overwritten.
truncate -s 32M "$work/ext4" "$work/blank"
mke2fs -q -t ext4 -L precious "$work/ext4"
cp "$work/ext4" "$work/ext4.before"
try "a file system is refused, by name" fails 1 'ext4 file system "precious"' \
    bench corners "$work/ext4" "${brief[@]}"
try "and is as it was" cmp "$work/ext4" "$work/ext4.before"
try "--read-only reads it" document "$sound and not j['settings']['prepared']" \
    bench seeks "$work/ext4" "${brief[@]}" --read-only
try "and changes nothing" cmp "$work/ext4" "$work/ext4.before"
try "--destroy-data overwrites it" document "$sound" bench mixed "$work/ext4" "${brief[@]}" --destroy-data
try "which is to be seen" fails 1 "holds data" bench mixed "$work/ext4" "${brief[@]}"
try "a file of zeroes is free" document "$sound" bench seeks "$work/blank" "${brief[@]}"

# Ctrl-C: what was measured so far, and no file.
start stopped "$build/holdfast" bench corners "$work/folder" --span 16M --runs 1 --ramp 0 \
    --seconds 60 --queue-depth 1 --json
within 10 grep -qs measuring "$work/stopped.log"
sleep 1.5
deny "Ctrl-C ends it with a failure" end "$started" INT
try "with what was measured until then" grep -q '"complete": false' "$work/stopped.log"
try "of the test that was on" grep -q '"test": "seq-read-512b"' "$work/stopped.log"
try "and nothing left" empty

# iSCSI: our own service.
serve && make_pool "$disks" 256M 64M || finish
try "corners of a LUN" document "$sound and len(j['results']) == 5 and j['target']['kind'] == 'iscsi'" \
    bench corners "$lun" "${brief[@]}"
try "again (its own data is nobody's), over two paths, from two threads" document "$sound and j['settings']['paths'] == 2" \
    bench oltp "$lun" --path "$lun" --jobs 2 "${brief[@]}"

# The same volume from inside the service, where nobody is logged in to its LUN.
volume=volume:tank/vm
is_whole() { hf pool status tank | grep -qx 'tank: ok' && [[ $(hf pool status tank | grep -c 'in sync') -eq 6 ]]; }
try "a volume is measured by the service" document "$sound and len(j['results']) == 5
    and j['target']['kind'] == 'volume' and j['target']['size_bytes'] == 64 << 20" bench corners "$volume" "${brief[@]}"
try "by its name alone, by a job file" document "[r['test'] for r in j['results']] == ['readers', 'writer', 'after']" \
    bench job "$work/job.fio" volume:vm --span 16M --runs 1
try "while a disk is out" document "$sound and j['settings']['during'] == 'degraded'" \
    bench mixed "$volume" "${brief[@]}" --during degraded
try "and is back" within 20 is_whole
try "while it is rebuilt" document "$sound and j['settings']['during'] == 'rebuild'" \
    bench mixed "$volume" "${brief[@]}" --during rebuild
try "and it is back" within 20 is_whole
start inside "$build/holdfast" bench corners "$volume" --span 16M --runs 1 --ramp 0 \
    --seconds 60 --queue-depth 1 --json --during degraded
within 20 grep -qs "measuring" "$work/inside.log"
sleep 1.5
try "the pool says that a disk is out, and why" grep -q "taken out on request" <(hf pool status tank)
try "one measurement at a time" fails 1 "one at a time" bench seeks "$volume" "${brief[@]}"
try "no export meanwhile" fails 1 "is being measured" hf pool export tank --yes
deny "Ctrl-C ends it with a failure" end "$started" INT
try "with what was measured until then" grep -q '"complete": false' "$work/inside.log"
try "and the disk is back" within 20 is_whole
start killed "$build/holdfast" bench corners "$volume" --span 16M --runs 1 --ramp 0 \
    --seconds 60 --queue-depth 1 --during degraded
within 20 grep -qs "measuring" "$work/killed.log"
end "$started" KILL
hf volume create tank/bare --size 16M --profile single >/dev/null
try "nobody asks any more: it ends by itself, and the disk is back" within 45 is_whole
try "no disk leaves a pool that holds what is not redundant" fails 1 "cannot be taken out" \
    bench seeks "$volume" "${brief[@]}" --during degraded
hf volume delete tank/bare --yes >/dev/null
try "no such state" fails 1 "must be degraded or rebuild" bench seeks "$volume" "${brief[@]}" --during lunch
try "--during is for volumes" fails 1 "needs a volume" bench seeks "$work/blank" --during degraded
try "no such volume" fails 3 "has no volume none" bench seeks volume:tank/none "${brief[@]}"
try "a volume of no pool" fails 3 "has a volume none" bench seeks volume:none "${brief[@]}"

try "a file system on the LUN" qemu-img convert -n -f raw -O raw "$work/ext4.before" "$lun"
try "is refused, too" fails 1 'ext4 file system "precious"' bench corners "$lun" "${brief[@]}"
try "by the service, too" fails 1 'ext4 file system "precious"' bench corners "$volume" "${brief[@]}"
try "which reads it when asked" document "$sound" bench seeks "$volume" "${brief[@]}" --read-only
start session qemu-io -f raw -c "sleep 20000" "$lun"
within 10 grep -q iqn <(hf lun sessions)
try "a volume whose LUN is used is refused" fails 1 "is in use" bench corners "$volume" "${brief[@]}" --destroy-data
end "$started"
try "no such LUN" fails 3 "there is no such" bench corners "${lun%/*}/77" "${brief[@]}"
try "no such target" fails 3 "there is no such" bench corners "iscsi://127.0.0.1:$port/iqn.2026-01.x:no/0"
hf volume create tank/thin --size 4G --profile raid6 >/dev/null && hf lun create tank/thin --lun 9 >/dev/null
try "a thin LUN whose pool is full" fails 1 "the target has no space left" bench fill "${lun%/*}/9" --span 4G
hf lun delete tank/thin --yes >/dev/null && hf volume delete tank/thin --yes >/dev/null
echo "a secret of the right length" >"$work/secret"
echo "another of the right length" >"$work/other"
hf chap set tank/host --secret-file "$work/secret" >/dev/null && hf lun map tank/vm --user host >/dev/null
try "without CHAP the login is refused" fails 1 "refused" bench seeks "$lun" "${brief[@]}"
guest=iscsi://host@${lun#iscsi://}
try "with a wrong secret, too" fails 1 "refused" \
    bench seeks "$guest" --secret-file "$work/other" "${brief[@]}" --destroy-data
try "with the right one it is measured" document "$sound and 'host@' not in j['target']['address']" \
    bench seeks "$guest" --secret-file "$work/secret" "${brief[@]}" --destroy-data
start vanishing "$build/holdfast" bench seeks "$guest" --secret-file "$work/secret" --destroy-data \
    --span 16M --seconds 30 --ramp 0
within 10 grep -qs measuring "$work/vanishing.log"
sleep 0.5
end "$server" KILL
try "a target that vanishes under way ends it" within 10 gone "$started"
try "with a sentence" grep -q "the connection to .* was lost" "$work/vanishing.log"

try "a disk of a pool is refused" fails 1 "of the Holdfast pool tank" bench seeks "$disks/d1" "${brief[@]}"

# NBD: qemu's server.
truncate -s 32M "$work/nbd"
start nbd qemu-nbd -f raw -t -e 8 -k "$work/nbd.sock" "$work/nbd"
within 10 test -S "$work/nbd.sock"
nbd="nbd+unix:///?socket=$work/nbd.sock"
try "an NBD export, from two threads" document "$sound and j['target']['kind'] == 'nbd'" \
    bench mixed "$nbd" "${brief[@]}" --jobs 2
end "$started" TERM
try "a server that is gone" fails 3 "cannot be connected to" bench corners "$nbd"

# NFS: where a server in user space runs already.
if [[ -n ${NFS_URL:-} ]]; then
    try "corners of an NFS export" document "$sound and len(j['results']) == 5" bench corners "$NFS_URL" "${brief[@]}"
fi

# Answers that are no protocol, and other wrong targets.
for kind in noise text; do
    start "garbage-$kind" python3 tests/interop/garbage.py "$kind"
    within 5 test -s "$work/garbage-$kind.log"
    garbage=127.0.0.1:$(head -n 1 "$work/garbage-$kind.log")
    try "$kind is no iSCSI target" fails 1 "no iSCSI target" bench corners "iscsi://$garbage/iqn.2026-01.x:y/0"
    try "$kind is no NBD server" fails 1 "cannot be connected to" bench corners "nbd://$garbage/"
    try "$kind is no NFS server" fails 1 "cannot be mounted" \
        bench corners "nfs://127.0.0.1/x?nfsport=${garbage#*:}&mountport=${garbage#*:}"
done
try "nobody listens" fails 3 "nothing answers there" bench corners iscsi://127.0.0.1:9/iqn.2026-01.x:y/0
try "no such folder" fails 3 "no such file" bench corners "$work/nowhere/file"
try "no such kind" fails 1 "no kind of target" bench corners smb://host/share
try "no space for what is asked for" fails 1 "are free on the file system" bench corners "$work/folder" --span 8000T
try "and nothing left" empty
try "a wrong job file names the line" fails 1 "line 2: the key" bench job <(printf '[a]\nverify=crc32c\n') "$work/folder"
try "results that cannot be written are said first" fails 1 "--output" \
    bench corners "$work/folder" --output "$work/nowhere/file"
finish
