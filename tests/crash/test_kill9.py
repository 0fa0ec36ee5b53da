#!/usr/bin/python3
"""kill -9 in a loop under load. Producers (unary and stream) and consumers (unary and subscribe, who ack, nack,
extend and let leases run out) work through every death; then all that is left is drained and the ledger is checked.

    test_kill9.py [--kills 16] [--seconds 60] [--seed 1] [--aging]      (--kills 1000 --seconds 300: the long form)

--aging: the node's wall clock goes on by 15 minutes with a death, so that retention (an hour) takes records beside
all that. What is older than that may be gone; all else is held to its promise.
After so many seconds a slow machine may stop short of all kills, but not of a few.
"""

import argparse
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from nodes import Node, Outgoing, admin_pb2, broker_pb2, grpc, types_pb2, wait_until  # noqa: E402
from faults import Faults  # noqa: E402
from ledger import Ledger  # noqa: E402

TOPIC = "ledger"
VISIBILITY_MS = 1500
RETENTION_MS = 3600 * 1000
AGING_MS = 900 * 1000  # of the wall clock, a death
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

    def payloads(self, count):
        names = [f"{self.number}-{self.count + i}" for i in range(count)]
        self.count += count
        self.ledger.sending(names)
        size = self.dice.choice((10, 200, 3000, 40000))
        return names, [n.encode() + b" " + b"." * self.dice.randrange(size) for n in names]


class UnaryProducer(Worker):
    def turn(self, node):
        names, payloads = self.payloads(self.dice.choice((1, 1, 5, 50)))
        for name, p in zip(names, node.produce(TOPIC, *payloads)):
            self.ledger.confirm(name, (p.partition, p.offset))


class StreamProducer(Worker):
    def turn(self, node):
        out = Outgoing()
        waiting = {}

        def send():
            names, payloads = self.payloads(self.dice.choice((1, 3)))
            number = self.count
            waiting[number] = names
            out.send(broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
                id=number, topic=TOPIC, records=[types_pb2.Record(payload=p, key=b"%d" % (number % 7))
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
                            self.ledger.confirm(name, (p.partition, p.offset))
                    send()
                if self.test.stopping.is_set():
                    return
        finally:
            call.cancel()
            out.close()


class UnaryConsumer(Worker):
    def turn(self, node):
        asked = self.ledger.now()
        messages = node.consume(TOPIC, most=self.dice.choice((1, 20)), wait_ms=200)
        places = {}
        for m in messages:
            places[m.receipt_handle] = (name_of(m.payload), (m.partition, m.offset))
            self.ledger.deliver(*places[m.receipt_handle], asked)
        kept = [h for h in places if self.dice.random() < 0.9]
        others = [h for h in places if h not in kept]
        action = self.dice.choice((node.nack, node.extend, None))  # given back, kept longer, left to run out
        if others and action is not None:
            action(TOPIC, *others)
        if not kept:
            return
        self.ledger.acking([places[h][0] for h in kept])
        for handle, result in zip(kept, node.ack(TOPIC, *kept)):
            if result.code == 0:
                self.ledger.ack(*places[handle])


class Subscriber(Worker):
    def turn(self, node):
        out = Outgoing(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=TOPIC, max_outstanding=64)))
        call = node.broker.Subscribe(iter(out), timeout=20)
        settling = []
        try:
            for response in call:
                for result in response.results:
                    name, place = settling.pop(0)
                    if result.code == 0:
                        self.ledger.ack(name, place)
                settles = []
                for m in response.messages:
                    settling.append((name_of(m.payload), (m.partition, m.offset)))
                    self.ledger.deliver(*settling[-1], 0)
                    settles.append(broker_pb2.Settle(receipt_handle=m.receipt_handle))
                if settles:
                    self.ledger.acking([name_of(m.payload) for m in response.messages])
                    out.send(broker_pb2.SubscribeRequest(settles=settles))
                if self.test.stopping.is_set():
                    return
        finally:
            call.cancel()
            out.close()


class Kill9:
    def __init__(self, options):
        self.seed = options.seed
        self.options = options
        self.ledger = Ledger()
        self.stopping = threading.Event()
        self.lock = threading.Condition()
        self.alive = False
        self.looks = self.removed = 0
        self.faults = Faults() if options.aging else None
        self.node = Node(**(self.faults.env if options.aging else {}))
        self.node.create(TOPIC, visibility_timeout_ms=VISIBILITY_MS, retention_ms=RETENTION_MS)

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
            done += 1
            if dice.random() < 0.3:  # and once more, in the recovery
                self.kill_in_recovery(dice, pause)
                done += 1
            self.age()
            self.node.start()
            self.look()
            self.set_alive(True)
        return done

    def age(self):
        if self.options.aging:
            self.ledger.age(AGING_MS)
            self.faults.set_clock(self.ledger.ahead_ms)

    def look(self):
        """Retention that changes is acted on at once, not in the next minute."""
        if self.options.aging:
            self.looks += 1
            self.node.admin.AlterTopic(admin_pb2.AlterTopicRequest(
                name=TOPIC, retention_ms=RETENTION_MS + self.looks % 2), timeout=DRAIN_SECONDS)

    def kill_in_recovery(self, dice, pause):
        node = self.node
        ready = node.wait_ready
        node.wait_ready = lambda: (pause.wait(dice.uniform(0.0, 0.15)), node.address)[1]
        try:
            node.start()
        finally:
            node.wait_ready = ready
        node.kill()

    def drain(self):
        """Until nothing is left and nothing is leased: leases of the dead are over by then."""
        node = self.node
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            asked = self.ledger.now()
            messages = node.consume(TOPIC, most=1000, wait_ms=VISIBILITY_MS + 500)
            if not messages and node.in_flight(TOPIC) == 0:
                return
            for m in messages:
                self.ledger.deliver(name_of(m.payload), (m.partition, m.offset), asked)
            if messages:
                for m, r in zip(messages, node.ack(TOPIC, *[m.receipt_handle for m in messages])):
                    if r.code == 0:
                        self.ledger.ack(name_of(m.payload), (m.partition, m.offset))
        self.ledger.problem("the topic never ran dry")

    def first_stored(self, partition):
        if not self.options.aging:
            return 0
        request = broker_pb2.ReplayRequest(topic=TOPIC, partition=partition, max_messages=1)
        try:
            for response in self.node.broker.Replay(request, timeout=DRAIN_SECONDS):
                return response.messages[0].offset
        except grpc.RpcError as error:
            # "... the oldest stored offset is N"
            return int(re.findall(r"\d+", error.details())[-1])
        return 0

    def replay(self):
        """Everything that is stored, once each, where it was confirmed."""
        stored = {}
        for partition in range(3):
            first = self.first_stored(partition)
            request = broker_pb2.ReplayRequest(topic=TOPIC, partition=partition, offset=first)
            expected = first
            self.removed += first
            for response in self.node.broker.Replay(request, timeout=DRAIN_SECONDS):
                for m in response.messages:
                    if m.offset != expected:
                        self.ledger.problem(f"p{partition}: offset {m.offset} follows {expected - 1}")
                    expected = m.offset + 1
                    name = name_of(m.payload)
                    if name in stored:
                        self.ledger.problem(f"{name} is stored twice")
                    stored[name] = (m.partition, m.offset)
        for name, place in self.ledger.confirmed.items():
            if stored.get(name) != place and not (self.ledger.is_old(name) and name not in stored):
                self.ledger.problem(f"{name} was confirmed at {place} and is at {stored.get(name)}")
        for name in stored:
            if name not in self.ledger.sent:
                self.ledger.problem(f"{name} is stored and was never sent")

    def run(self):
        workers = [kind(self, i) for i, kind in enumerate(
            (UnaryProducer, StreamProducer, StreamProducer, UnaryConsumer, UnaryConsumer, Subscriber))]
        self.set_alive(True)
        for worker in workers:
            worker.start()
        kills = self.kills()
        wait_until(self.ledger.says_enough, "enough is confirmed and acked", DRAIN_SECONDS)
        self.stopping.set()
        for worker in workers:
            worker.join(timeout=DRAIN_SECONDS)
            if worker.is_alive() or worker.error:
                self.ledger.problem(f"{type(worker).__name__} broke: {worker.error}")
        self.drain()
        self.replay()
        for name in self.ledger.missing():
            if name not in self.ledger.acks_open and not self.ledger.is_old(name):
                self.ledger.problem(f"{name} was confirmed and never delivered")
        for name in [n for n in self.ledger.unsettled() if not self.ledger.is_old(n)]:
            self.ledger.problem(f"{name} was confirmed and is neither delivered nor settled")
        ledger = self.ledger
        if self.options.aging and kills > FEW_KILLS and self.removed == 0:
            ledger.problem("retention took nothing")
        print(f"removed={self.removed} kills={kills} sent={len(ledger.sent)} confirmed={len(ledger.confirmed)} "
              f"deliveries={ledger.deliveries} acked={len(ledger.acked)} problems={len(ledger.problems)}")
        return ledger.problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--aging", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    test = Kill9(options)
    with test.node:
        problems = test.run()
        for text in problems[:20]:
            print(text)
        if problems:
            print(test.node.log()[-6000:])
            sys.exit(1)


if __name__ == "__main__":
    main()
