#!/usr/bin/env bash
# The Node.js client against the node at NARAD_SERVER. usage: run.sh <directory for its modules>
# Exit code 77: Node.js or the registry is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
modules=$1

skip() {
    echo "skipped: $1"
    exit 77
}

command -v node > /dev/null && command -v npm > /dev/null || skip "no node and npm on this machine"
[ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 18')" = true ] || skip "node is older than 18"
mkdir -p "$modules"
if ! cmp -s "$here/package-lock.json" "$modules/installed.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$modules/"
    (cd "$modules" && timeout -k 10 90 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries 1 \
        --fetch-timeout 20000) || skip "the modules cannot be installed"
    cp "$here/package-lock.json" "$modules/installed.json"
fi
exec env NODE_PATH="$modules/node_modules" node "$here/client_test.js"
