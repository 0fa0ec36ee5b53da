#!/usr/bin/env bash
# A node beside Redis Streams that is as durable (`appendfsync always`: an XADD is answered after its fsync), in
# one run on one machine and one disk, in turn, so that the ratios stand whatever else the machine does. 256-byte
# payloads over loopback: 1, 64 and 1024 single messages in flight, and batches of 100 (Redis: MULTI, 100 XADDs,
# EXEC), 16 of them in flight. Ours go over one stream of one connection. Redis gets the same in flight over one
# connection and over as many as help it (up to 64), and the better of the two counts. It asserts no times.
#
#   tests/bench/compare.sh [--seconds N] [--rounds N] [--data-dir DIR] [BUILD]
#
# BUILD is a Release build (build/release). Needs redis-server (Debian package of that name) and python3. DIR is where
# both write (a new directory under TMPDIR, else /tmp); it must be empty or missing, and is removed.
set -euo pipefail

die() {
    echo "compare.sh: $*" >&2
    exit 1
}

cd "$(dirname "$0")/../.."
build=build/release
seconds=4
rounds=3
dir=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --data-dir) dir=${2:?--data-dir needs a directory}; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option $1 (see --help)" ;;
    *) build=$1; shift ;;
    esac
done
narad=$build/bin/narad
client=$build/bin/redis_stream
[ -x "$narad" ] && [ -x "$client" ] || die "$narad or $client is not there: build narad and redis_stream there"
command -v redis-server > /dev/null || die "redis-server is missing (apt-get install redis-server)"
command -v python3 > /dev/null || die "python3 makes the table and is missing"

if [ -z "$dir" ]; then
    dir=$(mktemp -d "${TMPDIR:-/tmp}/narad-compare-XXXXXX")
else
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || die "$dir is not empty"
fi
node=
redis=
finish() {
    for pid in $node $redis; do
        kill "$pid" 2> /dev/null || true
        wait "$pid" 2> /dev/null || true
    done
    rm -rf -- "$dir"
}
trap finish EXIT

"$narad" serve --dev --data-dir "$dir/narad" --grpc-addr 127.0.0.1:0 --addr 127.0.0.1:0 --ready-file "$dir/ready.json" \
    --log-level warn > "$dir/narad.log" 2>&1 < /dev/null &
node=$!
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$dir/redis"
# No snapshots and no rewrite of the append-only file in the run: both would only slow Redis down.
redis-server --port "$port" --bind 127.0.0.1 --dir "$dir/redis" --appendonly yes --appendfsync always --save "" \
    --auto-aof-rewrite-percentage 0 --daemonize no > "$dir/redis.log" 2>&1 < /dev/null &
redis=$!
until [ -s "$dir/ready.json" ] && redis-cli -p "$port" ping > /dev/null 2>&1; do
    kill -0 "$node" 2> /dev/null || { cat "$dir/narad.log" >&2; die "the node did not start"; }
    kill -0 "$redis" 2> /dev/null || { cat "$dir/redis.log" >&2; die "redis-server did not start"; }
    read -rt 0.05 < <(:) || true
done
server=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["grpc_addr"])' "$dir/ready.json")

# NAME MODE IN_FLIGHT BATCH: ours, then theirs.
measure() {
    local report connections
    report=$("$narad" bench "$2" --in-flight "$3" --batch "$4" --payload 256 --seconds "$seconds" --server "$server" \
        --topic "$1" --json) || die "narad bench $2 failed"
    printf '{"name":"%s","narad":%s,' "$1" "$report" >> "$dir/results.jsonl"
    for connections in 1 $(($3 < 64 ? $3 : 64)); do
        report=$("$client" 127.0.0.1 "$port" "$connections" "$3" "$4" 256 "$seconds") || die "redis_stream failed"
        printf '"redis-%s":%s,' "$((connections > 1))" "$report" >> "$dir/results.jsonl"
        redis-cli -p "$port" del bench > /dev/null # its memory is no subject here
    done
    printf '"end":0}\n' >> "$dir/results.jsonl"
}
for ((round = 1; round <= rounds; round++)); do
    echo "round $round of $rounds" >&2
    measure single-1 produce-stream 1 1
    measure single-64 produce-stream 64 1
    measure single-1024 produce-stream 1024 1
    measure batch-100 produce-batch 16 100
done

uname -srm
echo "$(nproc) processors, $("$narad" version), $(redis-server --version | cut -d' ' -f1-3)," \
    "$rounds rounds of $seconds s, data on $(df --output=source,fstype "$dir" | tail -1)"
python3 - "$dir/results.jsonl" << 'TABLE'
import json
import sys

rows = {}
for line in open(sys.argv[1], encoding="utf-8"):
    row = json.loads(line)
    row["redis"] = max((row[k] for k in ("redis-0", "redis-1") if k in row), key=lambda r: r["per_s"])
    rows.setdefault(row["name"], []).append(row)


def middle(values):
    return sorted(values)[len(values) // 2]


print(f"\nmedians{'':<13}{'narad/s':>11}{'redis/s':>11}{'ratio':>8}{'goal':>7}   p50, p99 us: narad"
      f"{'':<10}redis")
for name, goal in (("single-1", 0), ("single-64", 1), ("single-1024", 1), ("batch-100", 10)):
    runs = rows[name]
    ours, theirs = (middle([r[who]["per_s"] for r in runs]) for who in ("narad", "redis"))
    ratio = middle([r["narad"]["per_s"] / r["redis"]["per_s"] for r in runs])
    times = [middle([r[who][what] for r in runs]) for who in ("narad", "redis") for what in ("p50_us", "p99_us")]
    print(f"{name:<20}{ours:>11.0f}{theirs:>11.0f}{ratio:>8.2f}{goal or '-':>7}   "
          f"{times[0]:>10.0f}{times[1]:>10.0f}{times[2]:>12.0f}{times[3]:>10.0f}")
TABLE
