#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Every verb against a running service: tables, JSON, exit codes (1 failed, 2 usage, 3 not found, 4 no
# service), what travels with a pool, and what is refused.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks" "$work/more"
disks=$work/disks

exits() { # CODE COMMAND...
    local code=0
    "${@:2}" >"$work/exits.out" 2>&1 || code=$?
    [[ $code -eq $1 ]] || { echo "exit code $code"; cat "$work/exits.out"; return 1; }
}
says() { # TEXT COMMAND...: exits 0 and prints TEXT
    "${@:2}" >"$work/says.out" 2>&1 && grep -qF -- "$1" "$work/says.out" ||
        { cat "$work/says.out"; return 1; }
}
complains() { # CODE TEXT COMMAND...
    exits "$1" "${@:3}" && grep -qF -- "$2" "$work/exits.out" || { cat "$work/exits.out"; return 1; }
}
field() { # PYTHON_EXPRESSION_ON_j EXPECTED COMMAND...
    local got
    got=$("${@:3}" --json | python3 -c "import json, sys; j = json.load(sys.stdin); print($1)") &&
        [[ $got == "$2" ]] || { echo "got: $got"; return 1; }
}
served() { says "yes" hf lun list tank; }

# Without a service.
try "no service: exit code 4 and how to start it" complains 4 "holdfast serve" hf pool list
try "version needs none" says "holdfast 0." hf version
try "nor does help" says "volume create" hf help
try "help on a verb" says "--profile PROFILE" hf help volume create
try "and --help" says "--profile PROFILE" hf volume create --help
try "no verb: exit code 2" exits 2 hf
try "an unknown verb: exit code 2" complains 2 'no verb "explode"' hf pool explode
try "an unknown option: exit code 2" complains 2 "is not known here" hf pool list --colour
try "completion is valid bash" bash -n <(hf completion)
echo 'sockt = /tmp/x' >"$work/wrong.conf"
try "a wrong setting names line and key" complains 1 'line 1: "sockt"' hf serve --config "$work/wrong.conf"

serve || finish
try "a second service is refused" complains 1 "another holdfast serves" \
    hf serve --config "$work/holdfast.conf"
try "no pools yet" says "no pools" hf pool list
try "no such pool: exit code 3" complains 3 "no pool tank" hf pool status tank
try "health is ok" field 'j["health"]' ok hf health

# Pools.
try "files of no size are refused" complains 1 "--file-size" hf pool create tank --file "$disks"/d1
deny "a pool without disks is refused" hf pool create tank
try "a pool of six files" says "tank: ok" hf pool create tank --file "$disks"/d{1..6} --file-size 512M
deny "its name is taken" hf pool create tank --file "$disks"/f{1..3} --file-size 512M
try "a refusal leaves no files" test ! -e "$disks/f1"
deny "its disks are taken" hf pool create other --disk "$disks"/d1 "$disks"/d2
truncate -s 128M "$disks/foreign"
mke2fs -q -t ext4 -L precious "$disks/foreign"
try "a file with a file system is refused, by name" complains 1 "precious" \
    hf pool create other --disk "$disks/foreign"
try "force wants a yes" complains 1 "give --yes" hf pool create other --disk "$disks/foreign" --force
try "and then overwrites" says "other: ok" \
    hf pool create other --disk "$disks/foreign" --force --yes
try "it is destroyed again" says "destroyed" hf pool destroy other --yes
try "status lists the disks" says "$disks/d6" hf pool status tank
try "and as JSON" field 'len(j["disks"])' 6 hf pool status tank
try "list shows it" says "tank" hf pool list
try "disk list shows its members" says "$disks/d3" hf disk list

# Volumes.
try "a thin RAID 6 volume" says "raid6" hf volume create tank/vm --size 256M --profile raid6
try "a 4Kn volume" field 'j["block_bytes"]' 4096 hf volume create tank/k4 --size 64M --block-size 4096
try "a thick volume" field 'j["thick"]' True hf volume create tank/thick --size 64M --profile raid5 --thick
deny "the same name again" hf volume create tank/vm --size 1G
deny "too small" hf volume create tank/tiny --size 1K
deny "a block of 1024" hf volume create tank/odd --size 64M --block-size 1024
deny "an unknown profile" hf volume create tank/odd --size 64M --profile raid7
deny "thick, larger than the pool" hf volume create tank/huge --size 1T --thick
try "a pool that is not there: exit code 3" exits 3 hf volume create tonk/vm --size 1G
try "no size: not done" exits 1 hf volume create tank/none
try "list shows all three" field 'len(j["volumes"])' 3 hf volume list tank
try "resize" field 'j["size_bytes"]' $((512 << 20)) hf volume resize tank/vm --size 512M
deny "not smaller" hf volume resize tank/vm --size 64M
try "a dry run says what another profile takes" field 'j["to"], j["dry_run"]' "raid5 True" \
    hf volume set tank/vm --profile raid5 --dry-run
try "and changes nothing" field 'j["volumes"][0]["profile"]' raid6 hf volume list tank
try "another profile" field 'j["from"], j["to"]' "raid6 raid5" hf volume set tank/vm --profile raid5
deny "an unknown profile" hf volume set tank/vm --profile raid7
# (It holds so little that it may be in order before the answer is written.)
try "a volume is put in order" field 'j["reordering"] in (True, False)' True hf volume reorder tank/vm
try "or no more" field 'j["reordering"]' False hf volume reorder tank/vm --stop
try "and back" field 'j["to"]' raid6 hf volume set tank/vm --profile raid6

# LUNs.
try "a LUN" says "yes" hf lun create tank/vm
try "a second one has the next number" field 'j["lun"]' 1 hf lun create tank/k4
try "one with its own target and number" field 'j["target"], j["lun"]' "iqn.2026-01.org.example:x 7" \
    hf lun create tank/thick --name other --target iqn.2026-01.org.example:x --lun 7
deny "the number is taken" hf lun create tank/vm --name again --lun 0
deny "a name that is no iSCSI name" hf lun create tank/vm --name again --target X
try "a volume that is not there: exit code 3" exits 3 hf lun create tank/nothing
try "initiators find both targets" says "iqn.2026-01.org.example:x" iscsi-ls "iscsi://127.0.0.1:$port/"
try "and the LUN's size" says $((512 << 20)) \
    iscsi-readcapacity16 -s "iscsi://127.0.0.1:$port/iqn.2026-01.local.holdfast:tank/0"
try "a volume that is served is not deleted" complains 1 "delete the LUN first" \
    hf volume delete tank/thick --yes
try "nothing is deleted without a yes" complains 1 "give --yes" hf lun delete tank/other
try "a LUN is deleted" says "deleted" hf lun delete tank/other --yes
try "then its target is gone" bash -c \
    "! iscsi-ls 'iscsi://127.0.0.1:$port/' | grep -q org.example"
try "and the volume goes" says "deleted" hf volume delete tank/thick --yes

# What goes on.
lun=iscsi://127.0.0.1:$port/iqn.2026-01.local.holdfast:tank/0
load_start 3 $((16 << 20))
tell load 4
sleep 1
try "top shows pool, LUN and disks" says "LUN tank/vm" hf top --once
top='(lambda l, d: (l["writes_per_s"] > 0, l["write_bytes_per_s"] > 0, 0 < l["latency_ms"] < 5000,
    d["writes_per_s"] > 0, 0 < d["latency_ms"] < 5000))
    ([l for l in j["luns"] if l["name"] == "vm"][0], j["disks"][0])'
try "with a load there are rates and latencies" field "$(tr '\n' ' ' <<<"$top")" \
    "(True, True, True, True, True)" hf top tank --once
try "no such pool: exit code 3" exits 3 hf top tonk --once
start top "$build/holdfast" top --json --interval 1
top_pid=$started
lines() { [[ $(grep -c '"seconds"' "$work/top.log") -ge 2 ]]; }
try "elsewhere than on a terminal, line after line" within 5 lines
end "$top_pid" TERM 2>/dev/null
hear
echo "     $answer"
load_end

# A second pool in the same folder: at a start both are looked for there.
try "a second pool" says "two: ok" hf pool create two --file "$disks"/e{1..3} --file-size 256M
both() { says "tank  ok" hf pool list && says "two   ok" hf pool list; }

# What is kept: over a clean stop, a kill, and a way to another host's records.
stop
check_clean "check of the stopped pool"
try "check as JSON" field 'j["problem_count"]' 0 "$build/holdfast" check tank --disk "$disks"/d*
serve || finish
try "after a restart the LUNs are served" within 20 served
try "and both pools are whole" both
try "one of them is exported" says "exported" hf pool export two --yes
try "check refuses a pool in use" complains 1 "is served just now" "$build/holdfast" check tank --disk "$disks"/d*
end "$server" KILL
serve || finish
try "after a kill as well" within 20 served
try "export" says "exported" hf pool export tank --yes
try "then it can be imported" says "exported" hf pool import
try "with its name in JSON" field 'j["pools"][0]["name"]' tank hf pool import
try "and is not served" exits 3 hf pool status tank
mv "$disks"/d* "$work/more"
try "elsewhere it is found where one looks" says "tank" hf pool import --disk "$work/more"
try "and imported from there" says "tank: ok" hf pool import tank --disk "$work/more"
try "with its LUNs" served
try "a byte of rubbish to the API harms nobody" bash -c \
    "head -c 4096 /dev/urandom | timeout 5 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(4); s.connect(sys.argv[1])
s.sendall(sys.stdin.buffer.read())
try: s.recv(4096)
except OSError: pass' '$work/socket'; exit 0"
try "the service still answers" says "tank" hf pool list

# A file that goes while it is served is noticed.
noticed() { says "$work/more/d2" hf health; }
rm "$work/more/d2"
try "an unlinked file shows in health within 10 s" within 10 noticed
try "and in the log" grep -q "$work/more/d2" "$work/holdfast.log"

# Events: what has happened is kept over the stop and the kill, with what to do.
try "events tell of it, with what to do" says "to do: bring back what the path named" hf events tank
try "of the kill" says "ended without a stop" hf events
try "no error of a pool that has none" says "nothing of that" hf events two --severity error
try "nothing in a time to come" says "nothing of that" hf events --since 2999-01-01
try "as JSON, by severity" field '{e["severity"] for e in j["events"]}' "{'error'}" \
    hf events tank --since 1h --severity error
deny "an unknown severity" hf events --severity bad
start follow "$build/holdfast" events --follow --json
follower=$started
caught_up() { grep -q '"kind":"disk-path"' "$work/follow.log"; }
try "events are followed" within 5 caught_up
hf pool create third --file "$disks"/g{1..3} --file-size 256M --yes >/dev/null
news() { grep '"pool":"third"' "$work/follow.log" | grep -q '"kind":"pool-served"'; }
try "and told as they happen" within 5 news
hf pool destroy third --yes >/dev/null
end "$follower" TERM 2>/dev/null

try "destroying wants a yes" complains 1 "Everything in pool tank will be lost" hf pool destroy tank
try "destroy" says "destroyed" hf pool destroy tank --yes
try "then only the other one can be imported" field "[p[\"name\"] for p in j[\"pools\"]]" "['two']" \
    hf pool import --disk "$work/more"
try "and the files can be used again" says "new: ok" hf pool create new --disk "$work"/more/d{1,3,4}
stop
finish
