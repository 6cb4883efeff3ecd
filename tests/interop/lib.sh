# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# What the scripts of this folder share; sourced first. Gives each a folder of its own ($work), which
# goes at the end with everything that was started and mounted; counts what passed and failed, and
# closes with `N passed, N failed`.
#
#   try TEXT COMMAND...      one check: passes if the command succeeds (output shown if not)
#   deny TEXT COMMAND...     passes if it fails
#   within SECONDS COMMAND.. repeats it until it succeeds
#   start NAME COMMAND...    in the background, output to $work/NAME.log; its pid in $started
#   before_end               a function that a script may define: runs first when it ends
#   end PID [SIGNAL]         ends one that was started, and waits for it; after 30 s with SIGKILL
#   mount_faultfs BACKING    shows BACKING in $mount through faultfs; `fault COMMAND...` commands it
#
# A service of its own, whose pools lie in one folder ($disks):
#
#   serve                    starts it; returns when it answers. Its pid is in $server
#   hf VERB...               the program as its client
#                            ($settings: more lines of its configuration; $listen: its portals, if
#                            not one on 127.0.0.1; $two_paths: one on 127.0.0.2 as well, then
#                            $other_path is the LUN by that; $serve_in: a command to run the service with)
#   served                   returns when $lun answers, as initiators wait for after a restart
#   stop                     ends it as an administrator would; `end "$server" KILL` as a crash would
#   make_pool FOLDER SIZE LUN_SIZE   in FOLDER: pool `tank` of six sparse files d1..d6, RAID 6, one LUN;
#                            its address is in $lun
#   check_clean TEXT [PATH..]  `holdfast check` of the stopped pool finds nothing
#   load_start SEED SPAN     a load client (iscsi-load) on $lun; `ask COMMAND` -> its answer in $answer

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
build=${BUILD:-build}
export LC_ALL=C
umask 077
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-$(basename "$0" .sh).XXXXXX")
passed=0 failed=0
running=()
mount=

cleanup() {
    local pid
    trap - EXIT
    ! declare -F before_end >/dev/null || before_end
    for pid in "${running[@]}"; do
        kill -TERM "$pid" 2>/dev/null
    done
    if [[ -n $mount ]]; then
        fault heal '*' 2>/dev/null
        fusermount3 -u -z "$mount" 2>/dev/null
    fi
    for pid in "${running[@]}"; do
        within 5 gone "$pid"
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    if [[ -n ${KEEP:-} ]]; then
        echo "kept: $work"
    else
        rm -rf --one-file-system "$work"
    fi
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

ok() {
    passed=$((passed + 1))
    echo "ok   $*"
}

bad() {
    failed=$((failed + 1))
    echo "FAIL $*"
}

try() {
    local text=$1
    shift
    if "$@" >"$work/try.out" 2>&1; then
        ok "$text"
    else
        local code=$?
        bad "$text (exit code $code of: $*)"
        tail -n 20 "$work/try.out" | sed 's/^/     | /'
        return 1
    fi
}

deny() {
    local text=$1
    shift
    if "$@" >"$work/try.out" 2>&1; then
        bad "$text (succeeded: $*)"
        tail -n 20 "$work/try.out" | sed 's/^/     | /'
        return 1
    fi
    ok "$text"
}

within() {
    local seconds=$1 deadline
    deadline=$((SECONDS + seconds))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

start() {
    local name=$1
    shift
    "$@" </dev/null >>"$work/$name.log" 2>&1 &
    started=$!
    running+=("$started")
}

gone() {
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)
    [[ -z $state || $state == Z ]]
}

end() {
    local pid=$1 i
    kill "-${2:-TERM}" "$pid" 2>/dev/null
    if ! within 30 gone "$pid"; then
        echo "process $pid does not end" >&2
        kill -KILL "$pid" 2>/dev/null
    fi
    wait "$pid" 2>/dev/null
    local code=$?
    for i in "${!running[@]}"; do
        [[ ${running[i]} != "$pid" ]] || unset "running[i]"
    done
    running=("${running[@]}")
    return "$code"
}

mount_faultfs() {
    mount=$work/mount
    mkdir -p "$mount"
    start faultfs "$build/tests/interop/faultfs/faultfs" "$1" "$mount"
    faultfs_pid=$started
    if ! within 10 test -e "$mount/.faultfs"; then
        bad "faultfs cannot be mounted: $(tail -n 3 "$work/faultfs.log")"
        finish
    fi
}

fault() {
    echo "$*" >"$mount/.faultfs"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

export HOLDFAST_SOCKET=$work/socket
hf() {
    "$build/holdfast" "$@"
}

serve() {
    if [[ -z ${port:-} ]]; then
        port=$(free_port)
        mkdir -p "$work/state"
        cat >"$work/holdfast.conf" <<END
socket = $work/socket
state-dir = $work/state
listen = ${listen:-127.0.0.1:$port${two_paths:+ 127.0.0.2:$port,1}}
search = $disks
${settings:-}
END
    fi
    # shellcheck disable=SC2086 # a command and its arguments
    start holdfast ${serve_in:-} "$build/holdfast" serve --config "$work/holdfast.conf"
    server=$started
    # "busy" until the pools served last are imported and the portals are open
    answers() { kill -0 "$server" 2>/dev/null && hf health 2>&1 | grep -Eqx 'ok|degraded|failed'; }
    if ! within 30 answers; then
        bad "holdfast serve does not answer"
        tail -n 20 "$work/holdfast.log" | sed 's/^/     | /'
        return 1
    fi
}

served() {
    try "the LUN is served" within 60 iscsi-readcapacity16 -s "$lun"
}

stop() {
    try "the service ends cleanly" end "$server" TERM
}

make_pool() {
    local folder=$1 size=$2 lun_size=$3
    rm -f "$folder"/d{1..6}
    try "a pool of six files is made" hf pool create tank --file "$folder"/d{1..6} \
        --file-size "$size" --yes &&
        hf volume create tank/vm --profile raid6 --size "$lun_size" >/dev/null &&
        hf lun create tank/vm >/dev/null || return 1
    lun=iscsi://127.0.0.1:$port/$(hf lun list --json | python3 -c '
import json, sys
luns = json.load(sys.stdin)
luns = luns if isinstance(luns, list) else luns["luns"]
print("%s/%d" % (luns[0]["target"], luns[0]["lun"]))')
    other_path=${lun/127.0.0.1/127.0.0.2} # shellcheck disable=SC2034
}

check_clean() {
    local text=$1
    shift
    [[ $# -gt 0 ]] || set -- "$disks"/d*
    try "$text" "$build/holdfast" check tank --disk "$@"
}

load_start() {
    coproc LOAD { exec "$build/tests/interop/iscsi-load" "$lun" "$1" "$2" 2>>"$work/load.log"; }
    load_pid=$LOAD_PID
    running+=("$load_pid")
    # Copies, which outlive the coprocess's own array.
    exec {load_in}>&"${LOAD[1]}" {load_out}<&"${LOAD[0]}"
}

tell() {
    echo "$*" >&"$load_in"
}

hear() {
    read -r -t 300 answer <&"$load_out" || answer="no answer from the load client"
}

ask() {
    tell "$@"
    hear
}

load_end() {
    tell quit
    exec {load_in}>&- {load_out}<&-
    end "$load_pid" CONT
}

finish() {
    cleanup
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 && $passed -gt 0 ]]
    exit
}
