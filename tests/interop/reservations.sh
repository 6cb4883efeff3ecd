#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Persistent reservations of two hosts on one LUN, across a crash and a clean stop of the array, and
# a copy from LUN to LUN (EXTENDED COPY). What no initiator here does by itself, iscsi-reserve does.
# The hosts come by portals of two protocol threads.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/disks"
two_paths=yes settings="iscsi-threads = 2"
disks=$work/disks
serve && make_pool "$disks" 512M 256M || finish

host() { # WHO COMMAND.. : what is answered
    local who=$1
    shift
    local path=$lun
    [[ $who == a ]] || path=${lun/127.0.0.1/127.0.0.2}
    printf '%s\n' "$*" quit | "$build/tests/interop/iscsi-reserve" "$path" "$who" 2>&1
}
is() { # ANSWER WHO COMMAND..
    local wanted=$1 got
    shift
    got=$(host "$@")
    [[ $got == "$wanted" ]] || { echo "answered: $got, not: $wanted"; return 1; }
}

try "host a registers, to outlive a loss of power" is GOOD a register 0 a1 1
try "and reserves: write exclusive" is GOOD a reserve a1 1
try "host b may not write" is CONFLICT b write 0 1
try "but read" is "read: 0" b read 0
end "$server" KILL
serve
try "after a crash it is served again" served
try "the key is there" is "keys: a1" b keys
try "and the reservation" is "held: a1 1" b held
try "host b may not write" is CONFLICT b write 0 1
try "host a, in a new session, may" is GOOD a write 0 7
stop
serve
try "after a clean stop, too" served
try "host b may not write" is CONFLICT b write 0 1
try "it registers" is GOOD b register 0 b1 1
try "and takes the reservation over" is GOOD b preempt b1 a1 5
try "host a is registered no more" is "keys: b1" a keys
try "and may not write" is CONFLICT a write 0 1
end "$server" KILL
serve
try "served" served
try "as the last change left it" is "held: b1 5" a held
try "host b gives it up" is GOOD b clear b1
end "$server" KILL
serve
try "served" served
try "and it stays given up" is "held: nothing" a held
try "host a writes" is GOOD a write 0 9
try "a LUN that is deleted takes its reservations along: registered" is GOOD a register 0 a1 1
try "reserved" is GOOD a reserve a1 3
hf lun delete tank/vm --yes >/dev/null
hf lun create tank/vm >/dev/null
try "created again, it has none" is "held: nothing" b held

hf volume create tank/second --size 64M >/dev/null && hf lun create tank/second --lun 9 >/dev/null
try "a copy from LUN to LUN" is GOOD a xcopy 9 0 1000 800
lun=${lun%/*}/9
try "has arrived" is "read: 9" a read 800
try "and what was not written is zero" is "read: 0" a read 801
stop
check_clean "holdfast check is clean"
finish
