#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Who may use what, as real initiators see it (libiscsi's tools, QEMU): access lists by name, address
# and CHAP user, over IPv4 and IPv6; what discovery shows; changes under load; secrets that appear
# nowhere.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
disks=$work/disks

port=$(free_port)
mkdir -p "$work/state"
cat >"$work/holdfast.conf" <<END
socket = $work/socket
state-dir = $work/state
listen = 127.0.0.1:$port [::1]:$port
search = $disks
END
serve || finish
try "a pool" hf pool create tank --file "$disks"/d{1..3} --file-size 512M --yes
for name in one two three; do
    hf volume create "tank/$name" --size 64M --profile raid5 >/dev/null &&
        hf lun create "tank/$name" >/dev/null || bad "LUN $name"
done
target=iqn.2026-01.local.holdfast:tank
v4=127.0.0.1:$port v6="[::1]:$port"
me=iqn.2026-01.org.example:me other=iqn.2026-01.org.example:other
# libiscsi takes secrets from its URLs as they stand there.
echo alices-own-secret >"$work/secret"
echo the-arrays-secret >"$work/mutual"
echo alices-new-secret >"$work/new"

# Units that NAME sees through the portal ADDRESS, as "0 2"; "-": none.
sees() { # EXPECTED NAME ADDRESS
    local got
    got=$(iscsi-ls -i "$2" -s "iscsi://$3/" 2>"$work/sees.err" | awk -v portal="Portal:$3," '
        /^Target:/ { here = index($0, portal) }
        /^Lun:/ && here { sub("Lun:", ""); printf "%s%s", sep, $1; sep = " " }')
    [[ ${got:--} == "$1" ]] || { echo "sees: ${got:--}"; cat "$work/sees.err"; return 1; }
}
finds() { iscsi-ls -i "$1" "iscsi://$2/" 2>&1 | grep -q "Target:$target"; }
reads() { # NAME URL
    iscsi-inq -i "$1" "$2" >"$work/inq.out" 2>&1 && grep -q HOLDFAST "$work/inq.out" ||
        { cat "$work/inq.out"; return 1; }
}

told() { hf events | grep -qF -e "$1"; }
try "without lists everybody sees all" sees "0 1 2" "$me" "$v4"
try "over IPv6, too" sees "0 1 2" "$me" "$v6"
try "discovery shows both portals" bash -c "iscsi-ls 'iscsi://$v4/' | grep -F 'Portal:127.0.0.1:$port,1' &&
    iscsi-ls 'iscsi://$v4/' | grep -F 'Portal:[::1]:$port,2'"

# Names and addresses.
try "one is mapped to a name" hf lun map tank/one --initiator "$me"
try "two to an address" hf lun map tank/two --address ::1
try "three to a network and another name" hf lun map tank/three --address 127.0.0.0/8 --initiator "$other"
try "the name sees one" sees "0" "$me" "$v4"
try "and two over IPv6" sees "0 1" "$me" "$v6"
try "the other sees three" sees "2" "$other" "$v4"
try "and two over IPv6" sees "1" "$other" "$v6"
try "what is not seen is not there" bash -c "! iscsi-inq -i $other iscsi://$v4/$target/0"
try "a stranger is refused" sees "-" iqn.2026-01.org.example:stranger "$v4"
deny "and finds nothing" finds iqn.2026-01.org.example:stranger "$v4"
try "although he would over IPv6" finds iqn.2026-01.org.example:stranger "$v6"

# CHAP.
try "a CHAP user" hf chap set tank/alice --secret-file "$work/secret"
try "one is mapped to her" hf lun map tank/one --user alice
try "the plain entry goes" hf lun unmap tank/one --initiator "$me"
deny "it goes only once" hf lun unmap tank/one --initiator "$me"
deny "without a proof it is refused" reads "$me" "iscsi://$v4/$target/0"
try "with the proof it is not" reads "$me" "iscsi://alice%alices-own-secret@$v4/$target/0"
deny "with another secret it is" reads "$me" "iscsi://alice%the-arrays-secret@$v4/$target/0"
try "events say why" told "its CHAP user is not known or its secret is wrong"
deny "or another name" reads "$me" "iscsi://bob%alices-own-secret@$v4/$target/0"
deny "an anonymous stranger finds nothing" finds "$me" "$v4"
try "alice does" finds "$me" "alice%alices-own-secret@$v4"
url="iscsi://alice%alices-own-secret@$v4/$target/0"
try "QEMU writes with it" qemu-io -f raw -c "write -P 0x5a 1M 1M" "$url"
try "and reads" qemu-io -f raw -c "read -P 0x5a 1M 1M" "$url"
mutual="?target_user=array&target_password=the-arrays-secret"
deny "mutual: none is set up" reads "$me" "$url$mutual"
try "it is set up" hf chap set tank/alice --secret-file "$work/secret" --mutual-name array \
    --mutual-secret-file "$work/mutual"
try "mutual: both prove themselves" reads "$me" "$url$mutual"
try "one way is still possible" reads "$me" "$url"
deny "an array with another secret is refused" reads "$me" "$url?target_user=array&target_password=wrong-wrong-wrong"
deny "the user is not deleted under the LUN" hf chap delete tank/alice --yes
deny "a secret for both directions" hf chap set tank/bob --secret-file "$work/mutual"
deny "a short one" hf chap set tank/bob --secret-file <(echo short)

# Changes take effect at once, and disturb nobody else: a load on three while one goes.
try "three for everybody" hf lun map tank/three --anybody
lun=iscsi://$v4/$target/2
load_start 7 $((16 << 20))
tell load 4
sleep 0.5
hold=iscsi://alice%alices-own-secret@$v4/$target/0
start holder qemu-io -f raw -c "sleep 20000" "$hold"
holder=$started
within 10 bash -c "'$build/holdfast' lun sessions | grep -q alice" || bad "no session of alice"
try "sessions are listed, with the user" bash -c "'$build/holdfast' lun sessions | grep -q alice"
try "one is for nobody" hf lun unmap tank/one --all
# alice's session ends only when nothing is left for her: three is everybody's
try "three is still seen" sees "2" "$me" "$v4"
try "three is closed to all but the load" hf lun map tank/three --initiator iqn.2026-01.org.holdfast.test:load
gone_alice() { ! hf lun sessions | grep -q alice; }
try "her session has ended" within 5 gone_alice
try "new secrets count from the next login on" hf chap set tank/alice --secret-file "$work/new"
hear
echo "     $answer"
try "the load noticed nothing" bash -c "[[ '$answer' == 'load: '*' 0 errors, 0 bad, '*alive ]]"
load_end
end "$holder" KILL 2>/dev/null

# A restart keeps it all.
stop
serve || finish
try "one for alice" hf lun map tank/one --user alice
deny "with her old secret: no" reads "$me" "$url"
try "with the new one: yes" reads "$me" "iscsi://alice%alices-new-secret@$v4/$target/0"
try "two is still for its address" sees "1" iqn.2026-01.org.example:stranger "$v6"
stop
nowhere() { ! grep -aqF -e alices-own-secret -e the-arrays-secret -e alices-new-secret "$@"; }
hf lun list >"$work/lists" 2>&1
try "no secret is in the log" nowhere "$work/holdfast.log"
serve || finish
{ hf lun list; hf chap list; hf lun list --json; hf chap list --json; hf pool status tank --json; hf events; } >"$work/lists"
try "or in any list" nowhere "$work/lists"
try "the pool's files are their owner's" bash -c "[[ \$(stat -c %a '$disks'/d1) == 600 ]]"
stop
check_clean "holdfast check is clean"
finish
