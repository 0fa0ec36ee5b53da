#!/usr/bin/env bash
# Every build and every test. Each step's output goes to build/check/<step>.log and is shown only when the
# step fails. A failed build stops the run; a failed test does not, so one run shows them all.
# The last line is the sum over all test runs: "N passed, N failed".
#
#   release  gcc      every test
#   dev      gcc      ASan + UBSan: unit, sim, integration
#   tsan     gcc      ThreadSanitizer: unit and sim, without those that link gRPC or try every byte
#   fuzz     clang    compiled without a warning, thread-safety annotations checked; libFuzzer with ASan + UBSan:
#                     the kept inputs, then a fixed number of new ones
set -uo pipefail
cd "$(dirname "$0")/.."

logs=build/check
rm -rf "$logs"
mkdir -p "$logs"
started=$SECONDS
unset NARAD_SERVER # a developer's own setting must not aim a test at a real node

# step <name> <command...>: run it quietly; stop everything if it fails.
step() {
    local name=$1 log=$logs/$1.log from=$SECONDS
    shift
    if ! "$@" > "$log" 2>&1 < /dev/null; then
        tail -n 150 "$log"
        echo "check: $name failed after $((SECONDS - from)) s: $*" >&2
        exit 1
    fi
    echo "  $name: done in $((SECONDS - from)) s"
}

# tests <preset> <ctest arguments...>: run them all; failures are shown now and counted at the end.
tests() {
    local preset=$1 log=$logs/$1-tests.log from=$SECONDS
    shift
    if ! ctest --test-dir "build/$preset" --output-on-failure --output-junit "$PWD/$logs/$preset.xml" \
        -j "$(nproc)" "$@" > "$log" 2>&1 < /dev/null; then
        python3 .ci/count.py --show-failed "$logs/$preset.xml"
        touch "$logs/failed"
    fi
    echo "  $preset tests: done in $((SECONDS - from)) s"
}

build() {
    step "$1-configure" cmake --preset "$1"
    step "$1-build" cmake --build --preset "$1"
}

build release
tests release
build dev
tests dev -L '^(unit|sim|integration)$'
build tsan
tests tsan -L '^(unit|sim)$' -LE '^(grpc|one_thread)$'
build fuzz
tests fuzz -L '^fuzz$'

echo "check: $((SECONDS - started)) s in all; logs are in $logs"
python3 .ci/count.py "$logs"/*.xml && [ ! -e "$logs/failed" ]
