#!/usr/bin/env bash
# Installs the Debian packages that are missing.   usage: .ci/packages.sh product|test...
#
# product  what building and running Narad needs
# test     what `make check` needs besides: the second compiler, the checkers, stock gRPC clients
#
# Nothing is downloaded when all are there. To add a library: its -dev package here, its one home in
# tests/tidy/layers.py.
set -euo pipefail

product=(
    gcc libc6-dev make cmake ninja-build pkg-config
    libgrpc-dev                                              # proto/rpc: the gRPC C core
    protobuf-compiler libprotobuf-dev libprotoc-dev          # proto: protoc and descriptor.proto
    protobuf-c-compiler libprotobuf-c-dev                    # proto: messages in C
    libzstd-dev                                              # storage: compressed frames
    libraft-dev libuv1-dev                                   # cluster: Raft and its loop
    libjansson-dev                                           # server/config, clients/cli: JSON
    libssl-dev                                               # TLS files of the listeners; HMAC
    libcrypt-dev                                             # server/security: bcrypt
    libmicrohttpd-dev libgnutls28-dev                        # gateway: HTTP and its TLS
    tzdata                                                   # the text that `make run` sends
)
test=(
    libcmocka-dev git openssl
    clang libclang-rt-14-dev clang-format-14 clang-tidy-14
    python3 python3-grpcio python3-grpc-tools                # a stock client
    python3-yaml curl                                        # docs/openapi.yaml, the README's session
)
# The second stock client. Whoever has a Node.js of another origin keeps it: Debian's npm would not go with it.
command -v npm > /dev/null || test+=(nodejs npm)

wanted=()
for list in "$@"; do
    case $list in
        product) wanted+=("${product[@]}") ;;
        test) wanted+=("${test[@]}") ;;
        *) echo "packages.sh: no list '$list' (product, test)" >&2; exit 2 ;;
    esac
done
if ! command -v dpkg-query > /dev/null; then
    echo "packages.sh: this is not Debian; install what is listed in $0 by hand" >&2
    exit 1
fi

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

echo "installing ${#missing[@]} packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
# A mirror that stumbles is asked again; another apt that runs is waited for.
options=(-q -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600)
"${as_root[@]}" apt-get "${options[@]}" update
"${as_root[@]}" apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}"
