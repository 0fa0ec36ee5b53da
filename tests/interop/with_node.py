#!/usr/bin/python3
"""Run a command against a fresh node: with_node.py <narad> <command...>

The node serves a temporary data directory on a free port; the command finds the address in NARAD_SERVER.
The result is the command's, or 1 when the node did not start or did not stop cleanly; then its log is
shown.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

READY_SECONDS = 120
STOP_SECONDS = 120


def wait_ready(node, ready_file):
    """The node's address, or None when it ended or is not ready in time."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with open(ready_file, encoding="utf-8") as file:
                return json.load(file)["grpc_addr"]
        except (FileNotFoundError, ValueError):
            pass
        try:
            node.wait(timeout=0.02)
            return None
        except subprocess.TimeoutExpired:
            continue
    return None


def stop(node):
    """Ask it to stop; True when it did, and cleanly."""
    node.send_signal(signal.SIGTERM)
    try:
        return node.wait(timeout=STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
        return False


def main():
    narad, command = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="narad-interop-") as directory:
        ready_file = os.path.join(directory, "ready.json")
        log_path = os.path.join(directory, "log")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NARAD_")}
        with open(log_path, "wb") as log:
            node = subprocess.Popen(
                [narad, "serve", "--dev", "--data-dir", os.path.join(directory, "data"),
                 "--grpc-addr", "127.0.0.1:0", "--addr", "127.0.0.1:0",
                 "--ready-file", ready_file],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        address = wait_ready(node, ready_file)
        result = 1
        if address is not None:
            environment["NARAD_SERVER"] = address
            result = subprocess.run(command, env=environment, check=False).returncode
        else:
            print("the node did not become ready", file=sys.stderr)
        clean = stop(node)
        if not clean:
            print(f"the node did not stop cleanly: exit code {node.returncode}", file=sys.stderr)
        if result not in (0, 77) or not clean:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                sys.stderr.write("--- the node's log, its end ---\n" + log.read()[-20000:])
    return result if clean or result != 0 else 1


if __name__ == "__main__":
    sys.exit(main())
