#!/usr/bin/env bash
# What HTTP costs: a node of its own with its gateway, `bench_http` in every mode, and the same gateway in front of a
# broker that answers without storing. It asserts no times.
#
#   tests/bench/http.sh [--seconds N] [BUILD]
#
# BUILD is a Release build (build/release). The limits of open files are raised for the parked polls as far as they go.
set -euo pipefail

die() {
    echo "http.sh: $*" >&2
    exit 1
}

cd "$(dirname "$0")/../.."
build=build/release
seconds=4
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option $1 (see --help)" ;;
    *) build=$1; shift ;;
    esac
done
for program in narad bench_http null_broker; do
    [ -x "$build/bin/$program" ] || die "$build/bin/$program is not there: cmake --preset release && cmake --build --preset release"
done
ulimit -n "$(ulimit -Hn)"

dir=$(mktemp -d "${TMPDIR:-/tmp}/narad-http-XXXXXX")
pids=()
finish() {
    for pid in "${pids[@]}"; do
        kill "$pid" 2> /dev/null || true
        wait "$pid" 2> /dev/null || true
    done
    rm -rf -- "$dir"
}
trap finish EXIT

# VALUE FILE: a member of a ready file.
member() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"
}
# FILE PID: until the file is there.
wait_file() {
    until [ -e "$1" ]; do
        kill -0 "$2" 2> /dev/null || { cat "$dir"/*.log >&2; die "a program did not start"; }
        read -rt 0.05 < <(:) || true
    done
}
# NAME ADDR OPTIONS...
load() {
    local name=$1 addr=$2
    shift 2
    printf '%-34s %s\n' "$name" "$("$build/bin/bench_http" --addr "$addr" --topic bench --seconds "$seconds" "$@")"
}

# node NAME FLAGS...: starts one; $http and $grpc are its addresses, $node its pid.
node() {
    local name=$1
    shift
    "$build/bin/narad" serve --data-dir "$dir/$name" --grpc-addr 127.0.0.1:0 --addr 127.0.0.1:0 \
        --ready-file "$dir/$name.json" --log-level warn "$@" > "$dir/$name.log" 2>&1 < /dev/null &
    node=$!
    pids+=("$node")
    wait_file "$dir/$name.json" "$node"
    http=$(member http_addr "$dir/$name.json")
    grpc=$(member grpc_addr "$dir/$name.json")
}

mkdir "$dir/disk"
printf '%-34s %s\n' disk "$("$build/bin/narad" bench disk --dir "$dir/disk" --seconds "$seconds" --json)"
export NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY=0 NARAD_HTTP_MAX_CONNECTIONS=0 NARAD_HTTP_MAX_CONSUME_WAIT=25s NARAD_HTTP_SHUTDOWN_GRACE=25s
node open --dev
"$build/bin/narad" topics create --server "$grpc" bench > /dev/null
load 'produce, 16 connections' "$http" --mode produce --connections 16
load 'produce, 64 connections' "$http" --mode produce --connections 64
load 'produce, 250 connections' "$http" --mode produce --connections 250
load 'batches of 100, 16 connections' "$http" --mode batch --batch 100 --connections 16
load 'consume and ack, 64 connections' "$http" --mode pairs --connections 64

# With passwords and without, in turn.
open=$http
export NARAD_ADMIN_PASSWORD=bench-password
node secured
until "$build/bin/narad" topics create --server "$grpc" --user admin --password-stdin bench \
    <<< "$NARAD_ADMIN_PASSWORD" > /dev/null 2> "$dir/create.txt"; do # until there is a first account
    kill -0 "$node" 2> /dev/null || die "the node with passwords ended"
    read -rt 0.1 < <(exec sleep 0.1) || true
done
for round in 1 2 3; do
    load "security off, 64 connections ($round)" "$open" --mode produce --connections 64
    load "security on, 64 connections ($round)" "$http" --mode produce --connections 64 \
        --header "Authorization: Basic $(printf 'admin:%s' "$NARAD_ADMIN_PASSWORD" | base64)"
done
unset NARAD_ADMIN_PASSWORD

"$build/bin/null_broker" "unix:$dir/null.sock" > "$dir/null.log" 2>&1 < <(exec sleep 3600) &
pids+=("$!")
wait_file "$dir/null.sock" "${pids[-1]}"
"$build/bin/narad" gateway --broker "unix:$dir/null.sock" --addr 127.0.0.1:0 --ready-file "$dir/alone.json" \
    > "$dir/alone.log" 2>&1 < /dev/null &
pids+=("$!")
wait_file "$dir/alone.json" "${pids[-1]}"
alone=$(member http_addr "$dir/alone.json")
load 'storing nothing, 16 connections' "$alone" --mode produce --connections 16
# The same disk while both cores are as busy as above: what a produce waits for is this, not the idle disk.
"$build/bin/narad" bench disk --dir "$dir/disk" --seconds "$seconds" --json > "$dir/disk.json" < /dev/null &
busy=$!
pids+=("$busy")
load '  beside a disk that syncs' "$alone" --mode produce --connections 16
wait "$busy"
printf '%-34s %s\n' '  the disk beside that' "$(cat "$dir/disk.json")"
load 'storing nothing, 64 connections' "$alone" --mode produce --connections 64

node parked --dev # one whose memory is not that of the runs before
"$build/bin/narad" topics create --server "$grpc" bench > /dev/null
parked=$(($(ulimit -n) / 2 - 100))
[ "$parked" -le 10000 ] || parked=10000
load "parked polls, $parked" "$http" --mode park --connections "$parked" --warm 8 --rounds 200 > "$dir/park.txt" &
polls=$!
pids+=("$polls")
while kill -0 "$polls" 2> /dev/null; do # the half of the samples is while all are parked; the highest when all leave
    awk '$1 == "VmRSS:" { print int($2 / 1024) }' "/proc/$node/status" >> "$dir/resident.txt"
    read -rt 1 < <(exec sleep 1) || true
done
wait "$polls"
cat "$dir/park.txt"
resident=$(sort -n "$dir/resident.txt" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] " MiB, at most " v[NR] " MiB" }')
printf '%-34s %s\n' '  the node meanwhile' "$resident, $(cat "/proc/$node/task/"*/comm | grep -c '^http-') threads of the gateway's loops"
