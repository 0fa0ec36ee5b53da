#!/usr/bin/env bash
# Give a fuzz target its seeds and then RUNS inputs of a fixed seed. What it finds is thrown away, except the
# input that ends it: that goes to $ND_FUZZ_KEEP (default: the directory that the program lies in).
#   run.sh PROGRAM RUNS
#   run.sh PROGRAM SECONDSs      for as long, from a random seed; new inputs are kept in $ND_FUZZ_KEEP/<target>
set -euo pipefail

program=$1
amount=$2
target=$(basename "$program" | sed 's/^fuzz_//')
seeds=$(dirname "$(readlink -f "$0")")/corpus/$target
keep=${ND_FUZZ_KEEP:-$(dirname "$program")}
common=(-max_len=8192 -timeout=300 -rss_limit_mb=2048 "-artifact_prefix=$keep/$target-")

if [[ $amount == *s ]]; then
    mkdir -p "$keep/$target"
    exec "$program" "${common[@]}" "-max_total_time=${amount%s}" "$keep/$target" "$seeds"
fi
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
"$program" "${common[@]}" "-runs=$amount" -seed=1 "$found" "$seeds"
