#!/usr/bin/env bash
# Narad's main job on real input: start a node, send every line of a text file, take them all back, compare.
#
#   usage: tests/demo/run.sh [FILE]      (make run FILE=...)
#          tests/demo/run.sh --stop      end the node that an earlier run left running
#          tests/demo/run.sh --check     a node of its own on a free port, ended afterwards: the test
#
# FILE defaults to the time zone rules of the tzdata package, which every Debian machine has: 4,600 lines of
# text. An empty line is no message (a payload has at least one byte); they are counted and left out.
#
# Environment: NARAD_BIN (build/release/bin/narad), RUN_DIR (build/run), RUN_ADDR (127.0.0.1:7941), RUN_HTTP_ADDR (127.0.0.1:7942).
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/../.."

file=/usr/share/zoneinfo/tzdata.zi
topic=lines
narad=${NARAD_BIN:-$PWD/build/release/bin/narad}
dir=${RUN_DIR:-$PWD/build/run}
addr=${RUN_ADDR:-127.0.0.1:7941}
http=${RUN_HTTP_ADDR:-127.0.0.1:7942}
keep=true
unset NARAD_SERVER
export LC_ALL=C

say() { printf '\n== %s\n' "$*"; }
die() {
    echo "run.sh: $*" >&2
    exit 1
}

# The node of $dir, if it lives: its pid. A pid file alone proves nothing after a reboot.
node_pid() {
    local pid
    pid=$(cat "$dir/node.pid" 2> /dev/null) || return 1
    tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -- "--data-dir $dir/data" || return 1
    echo "$pid"
}

stop_node() {
    local pid
    pid=$(node_pid) || return 0
    kill -TERM "$pid"
    timeout 30 tail --pid="$pid" -f /dev/null || die "node $pid does not stop; see $dir/node.log"
    rm -f "$dir/node.pid"
    echo "stopped the node with pid $pid"
}

# Wait for the node's own word that it is ready: no polling of ours, and an end when it dies instead.
wait_ready() {
    local pid=$1 line
    exec 3< <(exec timeout 60 tail -n +1 --pid="$pid" -s 0.05 -f "$dir/node.log" 2> /dev/null)
    local tail_pid=$!
    while read -r line <&3; do
        case $line in
            *" ready "*)
                kill "$tail_pid" 2> /dev/null || true
                exec 3<&-
                return 0
                ;;
        esac
    done
    tail -n 20 "$dir/node.log" >&2
    die "the node did not become ready"
}

now() { echo "${EPOCHREALTIME/,/.}"; }
rate() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN { printf "%.2f s, %.0f messages/s", b - a, n / (b - a) }'; }

case ${1:-} in
    --stop) stop_node; exit 0 ;;
    --check) keep=false ;;
    "") ;;
    -*) die "unknown option $1" ;;
    /*) file=$1 ;;
    *) file=$here/$1 ;;
esac
[ -r "$file" ] || die "cannot read $file"
[ -x "$narad" ] || die "$narad is not built (make build)"

stop_node
rm -rf "$dir"
mkdir -p "$dir"
$keep || addr=127.0.0.1:0 http=127.0.0.1:0
lines=$(grep -c "" "$file") || die "$file is empty"
grep -av '^$' "$file" > "$dir/sent.txt" || die "$file has no line that is not empty"
sent=$(wc -l < "$dir/sent.txt")

say "a node"
"$narad" serve --dev --data-dir "$dir/data" --grpc-addr "$addr" --addr "$http" > "$dir/node.log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$dir/node.pid"
$keep || trap stop_node EXIT
wait_ready "$pid"
addr=$(sed -nE 's/.*grpc listening addr=([^ ]+).*/\1/p' "$dir/node.log")
http=${http%:*}:$(sed -nE 's/.*http listening .* port=([0-9]+).*/\1/p' "$dir/node.log")
echo "$addr and http://$http, pid $pid, data in $dir/data, log in $dir/node.log"
cli() { timeout 300 "$narad" "$@" --server "$addr"; }

say "topic '$topic'"
cli topics create "$topic"

say "send $file: $lines lines, $((lines - sent)) of them empty"
from=$(now)
cli produce "$topic" --lines "$dir/sent.txt"
echo "sent $sent messages, each on disk: $(rate "$sent" "$from" "$(now)")"

say "take and ack them all"
from=$(now)
cli sub "$topic" --count "$sent" --raw > "$dir/received.txt"
received=$(wc -l < "$dir/received.txt")
echo "took and acked $received messages: $(rate "$received" "$from" "$(now)")"

say "compare"
# At least once and in no promised order: every line must be there as often as it was sent; more is a repeat.
sort "$dir/sent.txt" > "$dir/sent.sorted"
sort "$dir/received.txt" > "$dir/received.sorted"
missing=$(comm -23 "$dir/sent.sorted" "$dir/received.sorted" | wc -l)
extra=$(comm -13 "$dir/sent.sorted" "$dir/received.sorted" > "$dir/extra.txt"; wc -l < "$dir/extra.txt")
changed=$(sort -u "$dir/extra.txt" | comm -23 - <(uniq "$dir/sent.sorted") | wc -l)
echo "$sent sent, $received received: $missing missing, $changed changed, $((extra - changed)) repeated"
[ "$missing" -eq 0 ] && [ "$changed" -eq 0 ] || die "what came back is not what was sent; see $dir"
status=0
cli consume "$topic" --wait 0s > "$dir/left.txt" 2> /dev/null || status=$?
[ "$status" -eq 3 ] || die "consume ended with $status, not with 3 (nothing to deliver): see $dir/left.txt"
echo "nothing is left to deliver"

if command -v curl > /dev/null; then
    say "the same with curl: a message, and what comes back"
    curl -sSf -d '{"hello": "world"}' "http://$http/v1/topics/$topic/produce?key=a"
    got=$(curl -sSf "http://$http/v1/topics/$topic/consume?wait=5s")
    echo "$got"
    handle=$(printf '%s' "$got" | sed -nE 's/.*"receipt_handle":"([^"]+)".*/\1/p')
    curl -sSf -X POST "http://$http/v1/topics/$topic/ack?receipt_handle=$handle"
    [[ $got == *'"payload":{"hello": "world"}'* ]] || die "that is not what was sent"
fi

say "latency: one message at a time, from its produce to its delivery"
cli bench latency --seconds 2 --topic latency

if $keep; then
    bin=${narad#"$PWD"/}
    cat <<END

== the node goes on running. Try:
  $bin topics list --server $addr
  echo hello | $bin produce $topic --server $addr
  $bin consume $topic --wait 5s --server $addr
  $bin replay $topic --partition 0 --raw --server $addr
  curl -d hello http://$http/v1/topics/$topic/produce
  curl "http://$http/v1/topics/$topic/consume?wait=5s"
  $bin help
  make stop        ends it (SIGTERM to pid $pid)
END
fi
