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
#   end PID [SIGNAL]         ends one that was started, and waits for it
#   mount_faultfs BACKING    shows BACKING in $mount through faultfs; `fault COMMAND...` commands it

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
    for pid in "${running[@]}"; do
        kill -TERM "$pid" 2>/dev/null
    done
    if [[ -n $mount ]]; then
        fault heal '*' 2>/dev/null
        fusermount3 -u -z "$mount" 2>/dev/null
    fi
    for pid in "${running[@]}"; do
        for _ in {1..50}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
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

end() {
    local pid=$1 i
    kill "-${2:-TERM}" "$pid" 2>/dev/null
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

finish() {
    cleanup
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 && $passed -gt 0 ]]
    exit
}
