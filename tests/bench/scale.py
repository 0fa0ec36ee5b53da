#!/usr/bin/python3
"""What a node costs when there is much of everything: topics, partitions, connections, streams, load. Measured,
never asserted: each case prints its figures beside the bar it is held against.

    tests/bench/scale.py [--narad BIN] [--load BIN] [--data-dir DIR] [--seconds S] [--json] CASE...

    idle        1,000 topics of 3 partitions that nobody uses: memory and descriptors after a start
    start       10,000 topics and --gib of segments: from exec to ready after kill -9
    crowd       1,000 connections, 5,000 subscriptions, 5,000 parked polls: memory of each
    spread      1,000 partitions with one message a second each: refusals, device time of the flusher
    partitions  the rate with 3,000 partitions in use, beside the rate with 3, in turn
    overload    twice what the node can do: throughput, deliveries, memory

BIN are Release binaries (build/release/bin/narad, build/release/bin/bench_load). DIR must be on the disk in
question; everything is made in a directory below it that is removed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--narad", default=os.path.join(ROOT, "build/release/bin/narad"))
parser.add_argument("--load", default=os.path.join(ROOT, "build/release/bin/bench_load"))
parser.add_argument("--data-dir", default=os.environ.get("TMPDIR", "/tmp"))
parser.add_argument("--seconds", type=float, default=8)
parser.add_argument("--gib", type=float, default=10)
parser.add_argument("--json", action="store_true")
parser.add_argument("cases", nargs="+", metavar="CASE")
options = parser.parse_args()

os.environ["NARAD_BIN"] = os.path.abspath(options.narad)
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from nodes import Node, admin_pb2, broker_pb2, types_pb2, wait_until  # noqa: E402

MIB = 1 << 20
figures = []


def say(case, what, value, unit, bar=""):
    figures.append({"case": case, "what": what, "value": value, "unit": unit, "bar": bar})
    if not options.json:
        print(f"{case:<11}{what:<62}{value:>12.2f} {unit:<10}{bar}", flush=True)


class Scratch(Node):
    """A node whose data lies where it is measured."""

    def __init__(self, config=None, **env):
        directory = tempfile.mkdtemp(prefix="narad-scale-", dir=options.data_dir)
        flags = ["--log-level", "warn"]
        if config:
            path = os.path.join(directory, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            flags += ["--config", path]
        super().__init__(directory, flags, **env)
        self.own = True

    def status(self, member):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(member + ":"):
                    return int(line.split()[1])
        raise AssertionError(member)

    def rss_mib(self):
        return self.status("VmRSS") / 1024

    def peak_mib(self):
        return self.status("VmHWM") / 1024

    def descriptors(self, below=""):
        folder = f"/proc/{self.process.pid}/fd"
        links = []
        for name in os.listdir(folder):
            try:
                links.append(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                pass
        return sum(1 for link in links if below in link)

    def metric(self, name):
        text = self.admin.Metrics(admin_pb2.MetricsRequest(), timeout=60).text
        values = [float(line.split()[-1]) for line in text.splitlines()
                  if line.split("{")[0].split(" ")[0] == name]
        return sum(values)

    def restart(self, kill):
        """Seconds from exec to ready."""
        self.channel.close()
        if kill:
            self.kill()
        else:
            self.terminate()
            self.process.wait()
        began = time.monotonic()
        self.start()
        return time.monotonic() - began

    def create_many(self, prefix, count, **members):
        open_calls = threading.Semaphore(200)
        calls = []
        for i in range(count):
            open_calls.acquire()
            call = self.admin.CreateTopic.future(
                admin_pb2.CreateTopicRequest(name=f"{prefix}-{i}", **members), timeout=600)
            call.add_done_callback(lambda _: open_calls.release())
            calls.append(call)
        for call in calls:
            call.result()

    def produce_each(self, prefix, count, payload=b"x" * 256):
        """One record to every partition of every topic."""
        open_calls = threading.Semaphore(200)
        calls = []
        for i in range(count):
            open_calls.acquire()
            records = [types_pb2.Record(payload=payload, partition=p) for p in range(3)]
            call = self.broker.Produce.future(
                broker_pb2.ProduceRequest(topic=f"{prefix}-{i}", records=records), timeout=600)
            call.add_done_callback(lambda _: open_calls.release())
            calls.append(call)
        for call in calls:
            call.result()


def load_command(node, topic, **flags):
    command = [options.load, "--server", node.address, "--topic", topic]
    for name, value in flags.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    return command


def load(node, topic, **flags):
    flags.setdefault("seconds", options.seconds)
    run = subprocess.run(load_command(node, topic, **flags), stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, check=False)
    if run.returncode != 0 or not run.stdout:
        raise AssertionError(run.stderr)
    result = json.loads(run.stdout)
    result["complaint"] = run.stderr.strip()
    return result


class Holding:
    """A load that only waits, until the end of the block."""

    def __init__(self, node, topic, **flags):
        self.process = subprocess.Popen(load_command(node, topic, hold=1, **flags), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "up\n"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def idle():
    with Scratch() as node:
        began = time.monotonic()
        empty = node.rss_mib()
        node.create_many("idle", 1000, partitions=3)
        say("idle", "1,000 topics made", time.monotonic() - began, "s")
        node.produce_each("idle", 1000)
        say("idle", "memory with a record in each of their partitions", node.rss_mib(), "MiB")
        for how, kill in (("a stop", False), ("kill -9", True)):
            if kill:
                node.produce_each("idle", 1000)
            took = node.restart(kill)
            say("idle", f"ready after {how}", took, "s")
            say("idle", f"memory after {how}", node.rss_mib(), "MiB", "<= 40")
            say("idle", f"descriptors below topics/ after {how}", node.descriptors("/topics/"), "", "0")
        wait_until(lambda: node.metric("narad_tail_memory_bytes") == 0, "the tails are flushed", 300)
        say("idle", "memory when the tails were flushed", node.rss_mib(), "MiB", "<= 40")
        say("idle", "memory of a node without topics", empty, "MiB")


def start():
    with Scratch() as node:
        node.create_many("start", 10000, partitions=3)
        node.produce_each("start", 10000)
        written, rest = 0, options.gib * (1 << 30)
        while written < rest:
            topics = 400
            result = load(node, "start", topics=topics, producers=2, connections=2, batch=10, payload=8192,
                          in_flight=200, warm=0, seconds=10)
            if result["produced_per_s"] == 0:
                raise AssertionError(result)
            written += result["produced_per_s"] * 10 * 8192
        used = int(subprocess.run(["du", "-sb", node.path("data")], capture_output=True, text=True,
                                  check=True).stdout.split()[0])
        say("start", "records written", written / (1 << 30), "GiB")
        say("start", "data directory", used / (1 << 30), "GiB")
        for i in range(3):
            say("start", f"ready after kill -9, warm cache ({i + 1})", node.restart(True), "s", "<= 2")
        try:
            node.kill()
            with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
                os.sync()
                file.write("3")
            began = time.monotonic()
            node.start()
            say("start", "ready after kill -9, cold cache", time.monotonic() - began, "s", "<= 2")
        except OSError as error:
            print("start: no cold cache:", error, file=sys.stderr)
            node.start()
        say("start", "memory", node.rss_mib(), "MiB")
        say("start", "ready after a stop", node.restart(False), "s")


def in_flight(node):
    return node.metric("narad_grpc_requests_in_flight")


def crowd():
    """Each kind on a node of its own, twice: the second round shows what the first left behind."""
    kinds = (("a connection with one subscription", "<= 34", {"connections": 1000, "idle_streams": 1000}, 1000),
             ("a subscription", "<= 14", {"connections": 10, "idle_streams": 5000}, 5000),
             ("a parked poll", "<= 14", {"connections": 10, "parked": 5000}, 5000))
    for what, bar, flags, count in kinds:
        with Scratch() as node:
            node.create("crowd")
            load(node, "crowd", producers=2, seconds=1)
            node.take_all("crowd")
            base, files = node.rss_mib(), node.descriptors()
            for round_number in (1, 2):
                with Holding(node, "crowd", **flags):
                    wait_until(lambda: in_flight(node) >= count, "all are there", 120)
                    held = (node.rss_mib() - base) * 1024 / count
                    if round_number == 1:
                        say("crowd", what, held, "KiB", bar)
                    else:
                        say("crowd", "  the second time, beyond that", held - first, "KiB", "0")
                    first = held
                wait_until(lambda: in_flight(node) <= 1, "they are gone", 120)
                wait_until(lambda: node.descriptors() <= files + 2, "sockets are closed", 120)


def spread():
    config = {"topic": {"max_partitions": 4096}}
    seconds = max(options.seconds, 130)  # tails are 60 s old when they are flushed
    with Scratch(config) as node:
        node.create("spread", partitions=1000)
        before = node.metric("narad_storage_fsync_duration_seconds_sum")
        rounds = node.metric("narad_storage_flush_duration_seconds_sum")
        result = load(node, "spread", producers=1, rate=1000, in_flight=1000, warm=1, seconds=seconds)
        syncs = node.metric("narad_storage_fsync_duration_seconds_sum") - before
        rounds = node.metric("narad_storage_flush_duration_seconds_sum") - rounds
        say("spread", "messages", result["produced_per_s"], "/s", "1000")
        say("spread", "refused", result["refused_per_s"] + result["failed"], "/s", "0")
        say("spread", "confirmation p50", result["p50_us"], "us")
        say("spread", "confirmation p99", result["p99_us"], "us")
        say("spread", "the flusher's syncs", syncs / seconds * 100, "% of time", "< 10")
        say("spread", "the flusher's rounds, all of it", rounds / seconds * 100, "% of time")


def partitions():
    config = {"topic": {"max_partitions": 4096}}
    with Scratch(config) as node:
        node.create("few", partitions=3)
        node.create("many", partitions=3000)
        node.create_many("topics", 1000, partitions=3)
        totals = {"few": [], "many": [], "topics": [], "few-1": [], "many-1": []}
        for _ in range(3):
            for name in ("few", "many"):
                run = load(node, name, producers=2, in_flight=64, batch=100, seconds=options.seconds / 2)
                totals[name].append(run["produced_per_s"])
                run = load(node, name, producers=2, in_flight=1024, seconds=options.seconds / 2)
                totals[name + "-1"].append(run["produced_per_s"])
            run = load(node, "topics", topics=1000, producers=2, in_flight=64, batch=100,
                       seconds=options.seconds / 2)
            totals["topics"].append(run["produced_per_s"])
        middle = {name: sorted(values)[1] for name, values in totals.items()}
        say("partitions", "batches of 100, a topic of 3", middle["few"], "/s")
        say("partitions", "batches of 100, a topic of 3,000", middle["many"], "/s")
        say("partitions", "batches of 100, 1,000 topics of 3", middle["topics"], "/s")
        say("partitions", "single messages, a topic of 3", middle["few-1"], "/s")
        say("partitions", "single messages, a topic of 3,000", middle["many-1"], "/s")
        say("partitions", "batches: 3,000 / 3", middle["many"] / middle["few"], "", ">= 0.8")
        say("partitions", "batches: 1,000 topics / 3", middle["topics"] / middle["few"], "", ">= 0.8")
        say("partitions", "single: 3,000 / 3", middle["many-1"] / middle["few-1"], "", ">= 0.8")
        say("partitions", "refusals", node.metric("narad_errors_total"), "")


class Memory(threading.Thread):
    """The largest RSS while it looks."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.stop, self.most = node, threading.Event(), 0

    def run(self):
        while not self.stop.wait(0.05):
            self.most = max(self.most, self.node.rss_mib())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        self.join()


def overload():
    """Capacity: the highest rate of produce at which the same number is delivered and acked as well."""
    mixed = {"connections": 4, "producers": 2, "subscribers": 2, "outstanding": 1024, "in_flight": 65536}
    with Scratch() as node:
        def offer(**flags):
            """On a topic of its own: the backlog of a run is no part of the next."""
            node.create("over", partitions=3)
            run = load(node, "over", **flags)
            node.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="over"), timeout=60)
            return run

        flat = offer(connections=2, producers=2, in_flight=4096)["produced_per_s"]
        say("overload", "produce alone, closed loop", flat, "/s")
        low, high, best = 0, 4 * flat, None
        for _ in range(6):
            rate = (low + high) / 2
            run = offer(rate=int(rate), **mixed)
            if min(run["produced_per_s"], run["acked_per_s"]) >= 0.95 * rate:
                low, best = rate, run
            else:
                high = rate
        if best is None:
            raise AssertionError("no rate at which consumers keep up")
        capacity = low
        say("overload", "capacity: produced, delivered and acked", capacity, "/s")
        say("overload", "confirmation p50 at capacity", best["p50_us"] / 1000, "ms")
        with Memory(node) as memory:
            runs = [(offer(rate=int(capacity), **mixed), offer(rate=int(2 * capacity), **mixed))
                    for _ in range(3)]
        even, twice = sorted(runs, key=lambda pair: pair[1]["acked_per_s"] / pair[0]["acked_per_s"])[1]
        say("overload", "offered 1 x: confirmed", even["produced_per_s"], "/s")
        say("overload", "offered 1 x: delivered and acked", even["acked_per_s"], "/s")
        say("overload", "offered 2 x: confirmed", twice["produced_per_s"], "/s")
        say("overload", "offered 2 x: refused", twice["refused_per_s"], "/s")
        say("overload", "offered 2 x: delivered and acked", twice["acked_per_s"], "/s")
        say("overload", "offered 2 x: confirmation p50", twice["p50_us"] / 1000, "ms")
        say("overload", "offered 2 x: confirmation p99", twice["p99_us"] / 1000, "ms")
        say("overload", "throughput / at capacity", twice["produced_per_s"] / even["produced_per_s"], "", ">= 0.9")
        say("overload", "deliveries / at capacity", twice["acked_per_s"] / even["acked_per_s"], "", ">= 0.8")
        # 64 MiB, the tails' 128, the cache's 32, and the budgets of requests: 24 (64 at most) + 8 (12).
        say("overload", "largest memory", memory.most, "MiB", "<= 256 (300)")


CASES = {"idle": idle, "start": start, "crowd": crowd, "spread": spread, "partitions": partitions,
         "overload": overload}
for name in options.cases:
    if name not in CASES:
        parser.error(f"unknown case {name}")
for name in options.cases:
    CASES[name]()
if options.json:
    json.dump(figures, sys.stdout, indent=1)
    print()
