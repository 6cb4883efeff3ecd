#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
# The same seed gives the same trace hash, in two processes (so with other addresses), and another
# seed another one. The traces themselves are compared line by line.
set -eu
sim=$1
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for seed in 3 17 42; do
    "$sim" --seed $seed --trace >"$folder/one"
    "$sim" --seed $seed --trace >"$folder/two"
    cmp "$folder/one" "$folder/two"
    grep -o 'trace [0-9a-f]*' "$folder/one" >>"$folder/hashes"
done
[ "$(sort -u "$folder/hashes" | wc -l)" = 3 ]
