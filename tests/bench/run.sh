#!/usr/bin/env bash
# What a node costs, measured in one run on one machine: a node of its own, every mode of `narad bench`, and
# the ratios that say more than the figures, for they carry over to other machines. It asserts no times.
#
#   tests/bench/run.sh [--seconds N] [--data-dir DIR] [--out FILE] [NARAD]
#
# NARAD is a Release binary (build/release/bin/narad). DIR is where the node and the disk test write: it should be
# on the disk in question (a new directory under TMPDIR, else /tmp); it must be empty or missing, and is removed.
# FILE gets the reports of all modes, a JSON object a line. The flags of the node may be given in NODE_FLAGS.
set -euo pipefail

die() {
    echo "run.sh: $*" >&2
    exit 1
}

cd "$(dirname "$0")/../.."
narad=build/release/bin/narad
seconds=5
dir=
out=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --data-dir) dir=${2:?--data-dir needs a directory}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option $1 (see --help)" ;;
    *) narad=$1; shift ;;
    esac
done
[ -x "$narad" ] || die "$narad is not there: build it with cmake --preset release && cmake --build --preset release"
command -v python3 > /dev/null || die "python3 makes the table and is missing"

if [ -z "$dir" ]; then
    dir=$(mktemp -d "${TMPDIR:-/tmp}/narad-bench-XXXXXX")
else
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || die "$dir is not empty"
fi
results=$dir/results.jsonl
node=
finish() {
    if [ -n "$node" ]; then
        kill "$node" 2> /dev/null || true
        wait "$node" 2> /dev/null || true
    fi
    rm -rf -- "$dir"
}
trap finish EXIT

# shellcheck disable=SC2086 # NODE_FLAGS is a list of words
"$narad" serve --dev --data-dir "$dir/data" --grpc-addr 127.0.0.1:0 --addr 127.0.0.1:0 --ready-file "$dir/ready.json" \
    --log-level warn ${NODE_FLAGS:-} > "$dir/node.log" 2>&1 < /dev/null &
node=$!
until [ -s "$dir/ready.json" ]; do
    kill -0 "$node" 2> /dev/null || { cat "$dir/node.log" >&2; die "the node did not start"; }
    read -rt 0.05 < <(:) || true
done
server=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["grpc_addr"])' "$dir/ready.json")

# User and system ticks the node has used so far (fields 14 and 15; its name may hold spaces).
node_ticks() {
    local stat
    stat=$(< "/proc/$node/stat")
    # shellcheck disable=SC2086 # split into fields on purpose
    set -- ${stat##*) }
    echo $((${12} + ${13}))
}

# NAME MODE OPTIONS...: run one mode; its report goes to the results with its name and the node's ticks.
measure() {
    local name=$1 before after report
    shift
    printf '%-24s' "$name" >&2
    before=$(node_ticks)
    report=$("$narad" bench "$@" --seconds "$seconds" --server "$server" --json) || die "$name failed"
    after=$(node_ticks)
    printf '{"name":"%s","ticks":%d,"report":%s}\n' "$name" "$((after - before))" "$report" >> "$results"
    echo " done" >&2
}

mkdir "$dir/disk"
measure disk-4k disk --dir "$dir/disk"
measure disk-1m disk --dir "$dir/disk" --payload 1048576
measure rpc-unary-1 rpc-unary --in-flight 1
measure produce-unary-1 produce-unary --in-flight 1 --topic unary
measure rpc-unary-64 rpc-unary --in-flight 64
measure produce-unary-64 produce-unary --in-flight 64 --topic unary
measure rpc-stream-64 rpc-stream --in-flight 64
measure produce-stream-64 produce-stream --in-flight 64 --topic stream
measure rpc-stream-1024 rpc-stream --in-flight 1024
measure produce-stream-1024 produce-stream --in-flight 1024 --topic stream
measure rpc-batch rpc-batch
measure produce-batch produce-batch --topic batch
measure consume-unary consume-unary --topic consume-unary
measure consume-stream consume-stream --topic consume-stream
measure latency latency --topic latency
[ -z "$out" ] || cp -- "$results" "$out"

uname -srm
echo "$(nproc) processors, $("$narad" version), $seconds s a mode, data on $(df --output=source,fstype "$dir" | tail -1)"
python3 - "$results" "$(getconf CLK_TCK)" <<'TABLE'
import json
import sys

runs, ticks_per_s = {}, int(sys.argv[2])
print(f"\n{'':<22}{'messages/s':>12}{'MB/s':>9}{'p50 us':>11}{'p99 us':>11}{'node us/msg':>13}")
for line in open(sys.argv[1], encoding="utf-8"):
    run = json.loads(line)
    report = runs[run["name"]] = run["report"]
    cpu = run["ticks"] / ticks_per_s * 1e6 / max(report["count"], 1)
    column = f"{cpu:>13.2f}" + ("*" if run["name"].startswith("consume") else "")
    print(f"{run['name']:<22}{report['per_s']:>12.0f}{report['mb_s']:>9.1f}{report['p50_us']:>11.1f}"
          f"{report['p99_us']:>11.1f}" + ("            -" if run["name"].startswith("disk") else column))


def say(text, value, unit=""):
    print(f"{text:<76}{value:>12.2f} {unit}")


def per_s(name):
    return runs[name]["per_s"]


disk, rpc, lone = runs["disk-4k"], runs["rpc-unary-1"], runs["produce-unary-1"]
bound = disk["p50_us"] + 150  # what a lone produce may take
batch_bound = min(500000.0, 0.5 * runs["disk-1m"]["mb_s"] * 1e6 / runs["produce-batch"]["payload"])
print()
say("a lone produce p50, less one disk write p50", lone["p50_us"] - disk["p50_us"], "us")
say("a lone produce p50, less one disk write and one bare call, p50 each",
    lone["p50_us"] - disk["p50_us"] - rpc["p50_us"], "us")
say("a lone message from produce to delivery, p99 / (one disk write p50 + 150 us)",
    runs["latency"]["p99_us"] / bound)
for flight in ("1", "64"):
    say(f"produce-unary / rpc-unary, {flight} in flight", per_s(f"produce-unary-{flight}") / per_s(f"rpc-unary-{flight}"))
for flight in ("64", "1024"):
    say(f"produce-stream / rpc-stream, {flight} in flight",
        per_s(f"produce-stream-{flight}") / per_s(f"rpc-stream-{flight}"))
say("consume-unary, pairs of consume and ack / 8000/s", per_s("consume-unary") / 8000)
say("consume-stream, deliveries with durable acks / 40000/s", per_s("consume-stream") / 40000)
say("produce-batch / rpc-batch", per_s("produce-batch") / per_s("rpc-batch"))
say("produce-batch / min(500000/s, half of the disk's 1 MiB bandwidth)", per_s("produce-batch") / batch_bound)
print("\nnode us/msg: processor time of the node for one message, all threads.\n"
      "* with the produces that filled the topic first, more than were consumed")
TABLE
