#!/usr/bin/python3
"""kill -9 in a loop under load. Producers (unary and stream) and consumers (unary and subscribe: ack, nack, extend,
or forget) work through every death; then all that is left is drained and the ledger is checked.

    test_kill9.py [--kills 16] [--seconds 60] [--seed 1] [--speed 600]      minutes: --kills 100000 --seconds 300

--speed: for narad_fast_clock, whose clock is so many times as fast (fast_clock.c). Retention (an hour), its walk over
closed partitions and the closing of idle ones then run all the time, and some deaths last another quarter of an hour.
What is older than retention may be gone; all else is held to its promise.
After so many seconds a slow machine may stop short of all kills, but not of a few.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from nodes import Node, Outgoing, admin_pb2, broker_pb2, grpc, types_pb2, wait_until  # noqa: E402
from ledger import Ledger  # noqa: E402

VISIBILITY = 0.5  # seconds: some leases run out between two deaths
RETENTION_MS = 3600 * 1000  # the shortest there is
DEAD_MS = 900 * 1000  # how long some deaths last, on a fast clock
BUSY = ["ledger", "ledger", "aging"]
QUIET = [f"quiet-{i}" for i in range(6)]  # now and then somebody comes
TOPICS = ["ledger", "aging"] + QUIET
AGING = ["aging"] + QUIET[::2]  # the others keep everything
CONFIG = {"storage": {"idle_log_eviction_ms": 60000, "cold_retention_walk_ms": 60000}}
COUNTERS = {"closed": "idle_logs_evicted_total", "walked": "cold_retention_swept_total",
            "aged": "storage_retention_messages_deleted_total"}
FEW_KILLS = 10  # on a machine so slow that more do not fit into the time
DRAIN_SECONDS = 300


def name_of(payload):
    return bytes(payload).split(b" ", 1)[0].decode()


class Worker(threading.Thread):
    """Does `turn` until told to stop; a broken connection is what it is for."""

    def __init__(self, test, number):
        super().__init__(daemon=True)
        self.test, self.ledger, self.number = test, test.ledger, number
        self.dice = random.Random(test.seed * 1000 + number)
        self.count = 0
        self.error = None

    def run(self):
        while not self.test.stopping.is_set():
            node = self.test.up()
            if node is None:
                continue
            try:
                self.turn(node)
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED,
                                        grpc.StatusCode.DEADLINE_EXCEEDED):
                    self.ledger.problem(f"{type(self).__name__}: {error.code()} {error.details()}")
            except ValueError:
                pass  # the channel was closed under us: the node is being replaced
            except Exception as error:  # pylint: disable=broad-except
                self.error = error
                raise

    def payloads(self, topic, count):
        names = [f"{self.number}-{self.count + i}" for i in range(count)]
        self.count += count
        self.ledger.sending(topic, names)
        size = self.dice.choice((10, 200, 3000, 40000))
        return names, [n.encode() + b" " + b"." * self.dice.randrange(size) for n in names]

    def produce(self, node, topic, count):
        names, payloads = self.payloads(topic, count)
        for name, p in zip(names, node.produce(topic, *payloads)):
            self.ledger.confirm(name, (topic, p.partition, p.offset))

    def consume(self, node, topic, most, wait):
        """handle -> (name, place), in the ledger."""
        asked, life, began = self.ledger.now(), self.test.life, time.monotonic()
        messages = node.consume(topic, most=most, wait_ms=min(self.test.clock.node_ms(wait), 30000))
        lease = (life, began + VISIBILITY) if life == self.test.life else None
        places = {}
        for m in messages:
            places[m.receipt_handle] = (name_of(m.payload), (topic, m.partition, m.offset))
            self.ledger.deliver(*places[m.receipt_handle], asked, lease)
        return places

    def settle(self, node, topic, places):
        """Most are acked, some of them after an extend; some are nacked, some forgotten."""
        fates = {h: self.dice.choices(("ack", "extend", "nack", "forget"), (80, 10, 7, 3))[0] for h in places}
        extended, nacked = ([h for h in places if fates[h] == fate] for fate in ("extend", "nack"))
        acked = [h for h in places if fates[h] == "ack"
                 or fates[h] == "extend" and self.dice.random() < 0.5]
        if extended:
            life, began = self.test.life, time.monotonic()
            for handle, result in zip(extended, node.extend(topic, *extended)):
                if result.code == 0:
                    self.ledger.extend(places[handle][0], life, began + VISIBILITY)
        for handle in nacked:
            self.ledger.nacking(places[handle][0])
        if nacked:
            node.nack(topic, *nacked)
        if acked:
            self.ledger.acking([places[h][0] for h in acked])
            for handle, result in zip(acked, node.ack(topic, *acked)):
                self.ledger.ack(*places[handle], result.code)


class UnaryProducer(Worker):
    def turn(self, node):
        self.produce(node, self.dice.choice(BUSY), self.dice.choice((1, 1, 5, 50)))


class StreamProducer(Worker):
    def turn(self, node):
        out = Outgoing()
        topic = self.dice.choice(BUSY)
        waiting = {}

        def send():
            names, payloads = self.payloads(topic, self.dice.choice((1, 3)))
            number = self.count
            waiting[number] = names
            out.send(broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
                id=number, topic=topic, records=[types_pb2.Record(payload=p, key=b"%d" % (number % 7))
                                                 for p in payloads])]))

        call = node.broker.ProduceStream(iter(out), timeout=20)
        try:
            for _ in range(8):
                send()
            for response in call:
                for result in response.results:
                    names = waiting.pop(result.id)
                    if result.code == 0:
                        for name, p in zip(names, result.placements):
                            self.ledger.confirm(name, (topic, p.partition, p.offset))
                    send()
                if self.test.stopping.is_set():
                    return
        finally:
            call.cancel()
            out.close()


class UnaryConsumer(Worker):
    def turn(self, node):
        topic = self.dice.choice(BUSY)
        self.settle(node, topic, self.consume(node, topic, self.dice.choice((1, 20)), 0.04))


class Subscriber(Worker):
    def turn(self, node):
        topic = self.dice.choice(BUSY)
        out = Outgoing(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=topic, max_outstanding=64)))
        call = node.broker.Subscribe(iter(out), timeout=self.dice.uniform(0.5, 5))
        settling = []
        try:
            for response in call:
                for result in response.results:
                    name, place, action = settling.pop(0)
                    if action == broker_pb2.SETTLE_ACTION_ACK:
                        self.ledger.ack(name, place, result.code)
                settles = []
                for m in response.messages:
                    name, place = name_of(m.payload), (topic, m.partition, m.offset)
                    self.ledger.deliver(name, place, 0)
                    for action in self.fate(name):
                        settling.append((name, place, action))
                        settles.append(broker_pb2.Settle(receipt_handle=m.receipt_handle, action=action))
                if settles:
                    out.send(broker_pb2.SubscribeRequest(settles=settles))
                if self.test.stopping.is_set():
                    return
        finally:
            call.cancel()
            out.close()

    def fate(self, name):
        dice = self.dice.random()
        if dice < 0.1:
            self.ledger.nacking(name)
            return [broker_pb2.SETTLE_ACTION_NACK]
        self.ledger.acking([name])
        return ([broker_pb2.SETTLE_ACTION_EXTEND] if dice < 0.2 else []) + [broker_pb2.SETTLE_ACTION_ACK]


class Visitor(Worker):
    """Leaves a topic alone for long enough that it is closed, with records in it and acks of some."""

    def turn(self, node):
        topic = self.dice.choice(QUIET)
        if self.dice.random() < 0.6:
            self.produce(node, topic, self.dice.choice((1, 3)))
        else:
            self.settle(node, topic, self.consume(node, topic, 5, 0))
        self.test.stopping.wait(self.dice.uniform(0, 0.2))


class Watcher(Worker):
    """What the node says it did, over all its lives."""

    def __init__(self, test, number):
        super().__init__(test, number)
        self.seen = {}  # (life, what) -> most

    def turn(self, node):
        life = self.test.life
        text = node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=20).text
        for what, counter in COUNTERS.items():
            found = re.findall(rf"^\w*{counter}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
            self.seen[life, what] = sum(map(float, found))
        self.test.stopping.wait(0.1)

    def totals(self):
        return {what: round(sum(n for (_, w), n in list(self.seen.items()) if w == what)) for what in COUNTERS}


class Clock:
    """The node's clock."""

    def __init__(self, speed):
        self.speed = speed
        self.starts = [time.clock_gettime_ns(c) for c in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        self.wall_ns = time.time_ns()  # of the node, at the start

    def boot_ns(self):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def now_ms(self):
        return (self.wall_ns + (self.boot_ns() - self.starts[1]) * self.speed) / 1e6

    def skip(self, milliseconds):
        self.wall_ns += milliseconds * 1000000

    def freeze(self):
        """From now on it hardly moves."""
        now_ms = self.now_ms()
        self.starts = [time.clock_gettime_ns(c) for c in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        self.wall_ns = round(now_ms * 1e6)
        self.speed = 1

    def node_ms(self, seconds):
        return round(seconds * 1000 * self.speed)

    def text(self):
        """For fast_clock.c."""
        return " ".join(str(n) for n in (self.speed, *self.starts, self.wall_ns))


class Kill9:
    def __init__(self, options):
        self.seed = options.seed
        self.options = options
        self.fast = options.speed > 1
        self.clock = Clock(options.speed)
        self.ledger = Ledger(self.clock.now_ms)
        self.stopping = threading.Event()
        self.lock = threading.Condition()
        self.alive = False
        self.life = 0
        self.directory = tempfile.mkdtemp(prefix="narad-kill9-")
        config = os.path.join(self.directory, "narad.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        self.node = Node(self.directory, flags=["--config", config], ND_TEST_CLOCK=self.clock.text())
        for topic in TOPICS:
            self.node.create(topic, visibility_timeout_ms=self.clock.node_ms(VISIBILITY),
                             retention_ms=RETENTION_MS if topic in AGING else 0)

    def up(self):
        """The node once it lives; None after a while, to look at `stopping`."""
        with self.lock:
            self.lock.wait_for(lambda: self.alive, timeout=0.5)
            return self.node if self.alive else None

    def set_alive(self, alive):
        with self.lock:
            self.alive = alive
            self.lock.notify_all()

    def kills(self):
        """Let it work for a random while, kill it, start it again; returns how often."""
        dice = random.Random(self.seed)
        deadline = time.monotonic() + self.options.seconds
        pause = threading.Event()
        done = 0
        while done < self.options.kills and (time.monotonic() < deadline or done < FEW_KILLS):
            pause.wait(dice.uniform(0.05, 1.2))
            self.set_alive(False)
            self.node.kill()
            self.life += 1
            done += 1
            if self.fast and dice.random() < 0.25:
                self.clock.skip(DEAD_MS)
                self.node.env["ND_TEST_CLOCK"] = self.clock.text()
            if dice.random() < 0.3:  # and once more, in the recovery
                self.kill_in_recovery(dice, pause)
                done += 1
            self.node.start()
            self.set_alive(True)
        return done

    def kill_in_recovery(self, dice, pause):
        node = self.node
        ready = node.wait_ready
        node.wait_ready = lambda: (pause.wait(dice.uniform(0.0, 0.15)), node.address)[1]
        try:
            node.start()
        finally:
            node.wait_ready = ready
        node.kill()

    def freeze(self):
        """One more death; the next life goes on from the same time, which now hardly moves: nothing ages."""
        self.set_alive(False)
        self.node.kill()
        self.clock.freeze()
        self.node.env["ND_TEST_CLOCK"] = self.clock.text()
        self.node.start()

    def may_be_gone(self, name):
        topic, sent_ms = self.ledger.sent[name]
        return topic in AGING and self.clock.now_ms() - sent_ms > RETENTION_MS

    def drain(self, topic):
        """Until nothing is left. Nothing is leased: the leases were the dead node's."""
        node = self.node
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            asked = self.ledger.now()
            messages = node.consume(topic, most=1000)
            if not messages:
                if node.in_flight(topic) > 0:
                    self.ledger.problem(f"{topic}: a lease outlived the node")
                return
            places = [(name_of(m.payload), (topic, m.partition, m.offset)) for m in messages]
            for place in places:
                self.ledger.deliver(*place, asked)
            for place, r in zip(places, node.ack(topic, *[m.receipt_handle for m in messages])):
                self.ledger.ack(*place, r.code)
        self.ledger.problem(f"{topic} never ran dry")

    def replay(self):
        """Everything that is stored, once each, where it was confirmed. Returns how many."""
        stored = {}
        for topic in TOPICS:
            for partition in self.node.stats(topic):
                self.replay_partition(topic, partition, stored)
        for name, place in self.ledger.confirmed.items():
            if stored.get(name) != place and (name in stored or not self.may_be_gone(name)):
                self.ledger.problem(f"{name} was confirmed at {place} and is at {stored.get(name)}")
        for name in stored:
            if name not in self.ledger.sent:
                self.ledger.problem(f"{name} is stored and was never sent")
        return len(stored)

    def replay_partition(self, topic, partition, stored):
        expected = partition.oldest_offset
        request = broker_pb2.ReplayRequest(topic=topic, partition=partition.index, offset=expected)
        if expected > 0 and topic not in AGING:
            self.ledger.problem(f"{topic} p{partition.index}: begins at {expected}")
        for response in self.node.broker.Replay(request, timeout=DRAIN_SECONDS):
            for m in response.messages:
                if m.offset != expected:
                    self.ledger.problem(f"{topic} p{partition.index}: offset {m.offset} follows {expected - 1}")
                expected = m.offset + 1
                name = name_of(m.payload)
                if name in stored:
                    self.ledger.problem(f"{name} is stored twice")
                stored[name] = (topic, m.partition, m.offset)
        if expected != partition.high_watermark:
            self.ledger.problem(f"{topic} p{partition.index}: ends at {expected}, not {partition.high_watermark}")

    def load(self):
        """All that happens while the node dies; returns (kills, what the node says it did)."""
        workers = [kind(self, i) for i, kind in enumerate(
            (UnaryProducer, StreamProducer, StreamProducer, UnaryConsumer, UnaryConsumer, Subscriber, Visitor,
             Visitor, Watcher))]
        watcher = workers[-1]
        self.set_alive(True)
        for worker in workers:
            worker.start()
        kills = self.kills()
        wait_until(self.ledger.says_enough, "enough is confirmed, acked, nacked and extended", DRAIN_SECONDS)
        if self.fast:
            wait_until(lambda: all(watcher.totals().values()), "partitions are closed and records age",
                       DRAIN_SECONDS)
        self.stopping.set()
        for worker in workers:
            worker.join(timeout=DRAIN_SECONDS)
            if worker.is_alive() or worker.error:
                self.ledger.problem(f"{type(worker).__name__} broke: {worker.error}")
        return kills, watcher.totals()

    def run(self):
        kills, did = self.load()
        self.freeze()
        for topic in TOPICS:
            self.drain(topic)
        stored = self.replay()
        ledger = self.ledger
        for names, what in ((ledger.missing(), "never delivered"), (ledger.unsettled(), "never settled")):
            for name in names:
                if not self.may_be_gone(name):
                    ledger.problem(f"{name} was confirmed and {what}")
        print(f"kills={kills} sent={len(ledger.sent)} confirmed={len(ledger.confirmed)} stored={stored} "
              f"deliveries={ledger.deliveries} acked={len(ledger.acked)} nacked={ledger.nacked} "
              f"extended={ledger.extended} leases_judged={ledger.leases_judged} "
              + " ".join(f"{what}={n}" for what, n in did.items()) + f" problems={len(ledger.problems)}")
        return ledger.problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--speed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    test = Kill9(options)
    try:
        with test.node:
            problems = test.run()
            for text in problems[:20]:
                print(text)
            if problems:
                print(test.node.log()[-6000:])
                sys.exit(1)
    finally:
        shutil.rmtree(test.directory)


if __name__ == "__main__":
    main()
