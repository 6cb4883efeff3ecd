#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
# sabotage.sh SIM [FIRST]: each deliberate defect is caught within 500 consecutive seeds, which the
# same build passes without it. SIM is holdfast-sim of a build with -Dsabotage=true.
set -u
sim=$1
first=${2:-1}
last=$((first + 499))
failed=0
for name in $("$sim" --sabotage list | cut -d' ' -f1); do
    if line=$("$sim" --sabotage "$name" --seeds "$first..$last" --stop); then
        echo "$name: not caught by seeds $first..$last"
        failed=$((failed + 1))
    else
        echo "$name: $(echo "$line" | head -n 1 | cut -c1-160)"
    fi
done
[ $failed = 0 ]
