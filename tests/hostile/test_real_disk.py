#!/usr/bin/python3
"""Damage at rest under the real process, sampled: bits of every file flipped, files cut and zeroed, Raft's among
them. Each time the directory is checked with `narad verify`, the file shown with `narad dump`, and a node started.

Either it starts: then nothing is lost but records of the segment that was hit (or of the last group of the log), and
what comes is what was sent. Or it refuses and names the file, and verify has found the damage.

    test_real_disk.py [--starts 40] [--seed 7]

So many damages are tried, each file's turn coming as often as another's; `--starts 0` tries all that were drawn.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))

import grpc  # noqa: E402
from nodes import NARAD, PATIENCE, Node, admin_pb2, environment, wait_until  # noqa: E402

BITS = 4  # flips drawn for each file
TOPICS = ["orders", "clicks"]
CONFIG = {"storage": {"wal_file_bytes": 1 << 20},
          "cluster": {"raft_snapshot_threshold": 8, "raft_trailing_logs": 4}}


class Sample(Node):
    """A node that may refuse to start: `refused` has its log then."""

    refused = None

    def wait_ready(self):
        try:
            wait_until(lambda: self.process.poll() is not None or os.path.exists(self.path("ready.json")),
                       "the node is ready or ends")
        except AssertionError:
            sys.stderr.write(self.log())
            raise
        if self.process.poll() is not None:
            self.refused = self.log()
            return "127.0.0.1:1"
        return super().wait_ready()


def write_config(directory):
    path = os.path.join(directory, "narad.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    return ["--config", path]


def make_store(directory):
    """Topics through a snapshot of Raft, records in segments and in the log, acks. Returns what must be kept."""
    flags = write_config(directory)
    with Node(directory, flags=flags) as node:
        for topic in TOPICS + [f"other-{i}" for i in range(10)]:
            node.create(topic)
        for topic in TOPICS:
            for i in range(40):
                node.produce(topic, b"%s-%d-" % (topic.encode(), i) + b"x" * 300)
        node.stop()
        node.start()
        left = {}
        for topic in TOPICS:
            taken = node.consume(topic, most=10)
            node.ack(topic, *[m.receipt_handle for m in taken])
            acked = {m.payload for m in taken}
            left[topic] = {b"%s-%d-" % (topic.encode(), i) + b"x" * 300 for i in range(40)} - acked
            for i in range(40, 50):
                payload = b"%s-%d-" % (topic.encode(), i)
                node.produce(topic, payload)
                left[topic].add(payload)
        node.kill()
    return left


def files_of(data):
    found = []
    for directory, _, names in os.walk(data):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and os.path.getsize(path) > 0 and not name.endswith((".spare", "ballast")):
                found.append(os.path.relpath(path, data))
    return sorted(found)


def content_end(path):
    with open(path, "rb") as file:
        return len(file.read().rstrip(b"\0")) or 1


def damages_of(path, dice):
    """(what, function of the bytes) of one file, in any order."""
    end = content_end(path)
    damages = []
    for _ in range(BITS):
        at, bit = dice.randrange(end), dice.randrange(8)
        damages.append((f"bit {bit} of byte {at} flipped", lambda b, at=at, bit=bit: (
            b[:at] + bytes([b[at] ^ 1 << bit]) + b[at + 1:])))
    cut = dice.randrange(end)
    damages += [(f"cut at {cut}", lambda b: b[:cut]), ("zeroed", lambda b: bytes(len(b)))]
    dice.shuffle(damages)
    return damages


def draw(data, files, dice, starts):
    """(path, what, function) of the damages to try: one of each file, then another of each, in turn."""
    each = {path: damages_of(os.path.join(data, path), dice) for path in files}
    turns = [(path, *each[path][turn]) for turn in range(BITS + 2) for path in files]
    return turns[:starts] if starts else turns


def run(*command):
    return subprocess.run([NARAD, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=PATIENCE * 4, env=environment())


def check_tools(data, path, what):
    """Verify's findings."""
    checked = run("verify", data, "--json")
    assert checked.returncode in (0, 1), (path, what, checked)
    lines = [json.loads(line) for line in checked.stdout.splitlines()]
    assert lines[-1]["kind"] == "summary", lines
    damages = [line for line in lines if line["kind"] == "damage"]
    assert (checked.returncode == 1) == bool(damages), (path, what, lines)
    shown = run("dump", os.path.join(data, path), "--json", "--records")
    assert shown.returncode in (0, 1), (path, what, shown)
    for line in shown.stdout.splitlines():
        json.loads(line)
    return damages


def check_started(node, left, path, what, damages, last_log):
    topics = {t.name for t in node.admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=PATIENCE).topics}
    assert topics >= set(TOPICS), (path, what, "topics are gone", topics)
    lossy = False
    for topic in TOPICS:
        try:
            taken = [m.payload for m in node.take_all(topic)]
        except grpc.RpcError as error:
            assert path.endswith("/state") and damages, (path, what, error)
            continue
        assert len(taken) == len(set(taken)), (path, what, "delivered twice")
        assert set(taken) <= left[topic], (path, what, "wrong bytes, or acked", set(taken) - left[topic])
        missing = left[topic] - set(taken)
        lossy = lossy or bool(missing)
        assert not missing or path.endswith(".log") or path == last_log, (path, what, missing)
        node.produce(topic, b"alive")
        assert [m.payload for m in node.take_all(topic)] == [b"alive"], (path, what)
    assert not lossy or damages or path == last_log, (path, what, "lost, and verify finds nothing")


def try_one(work, damaged, change, left, last_log, counts):
    """One damage of a copy of the store in `work`; `damaged`: (path, what)."""
    path, what = damaged
    target = os.path.join(work, "data", path)
    with open(target, "rb") as file:
        before = file.read()
    with open(target, "wb") as file:
        file.write(change(before))
    damages = check_tools(os.path.join(work, "data"), path, what)
    counts["found"] += bool(damages)
    node = Sample(work, flags=write_config(work))
    try:
        if node.refused is None:
            counts["started"] += 1
            check_started(node, left, path, what, damages, last_log)
            return
        counts["refused"] += 1
        # Raft's library names its directory only.
        name = "metastore/raft" if "/raft/" in path else os.path.basename(path)
        assert name in node.refused, (path, what, node.refused)
        # The content of Raft's snapshots is compressed by its library and not opened by ours.
        assert damages or "/raft/snapshot-" in path, (path, what, node.refused)
    finally:
        if node.process.poll() is None:
            node.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    counts = {"started": 0, "refused": 0, "found": 0}
    with tempfile.TemporaryDirectory(prefix="narad-hostile-") as top:
        base, work = os.path.join(top, "base"), os.path.join(top, "work")
        os.mkdir(base)
        left = make_store(base)
        data = os.path.join(base, "data")
        files = files_of(data)
        checked = run("verify", data)
        assert checked.returncode == 0, checked
        last_log = [f for f in files if f.endswith(".wal")][-1]
        for path, what, change in draw(data, files, dice, options.starts):
            print(f"{path}: {what}", flush=True)
            shutil.copytree(data, os.path.join(work, "data"), ignore=shutil.ignore_patterns("*.sock"))
            try_one(work, (path, what), change, left, last_log, counts)
            shutil.rmtree(work)
    print(f"{len(files)} files, {counts['started'] + counts['refused']} starts: {counts['refused']} refused, "
          f"verify found {counts['found']}")
    assert counts["refused"] > 0 and counts["found"] > 0


if __name__ == "__main__":
    main()
