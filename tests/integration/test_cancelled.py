#!/usr/bin/python3
"""A produce whose client cancels it, hangs up, or dies: each batch is stored whole or not at all, once, in its order;
what was answered is there; what never arrived whole is not; and the node goes on (I-6, I-16).

    test_cancelled.py [--rounds 40]     (1000: the long form)
"""

import argparse
import random
import subprocess
import sys
import unittest

from nodes import CODE, PATIENCE, Node, admin_pb2, broker_pb2, broker_pb2_grpc, grpc, types_pb2, wait_until
import rude

PARTITIONS = 3
BATCH = 6  # records: two in each partition
PATH = b"/narad.v1.Broker/Produce"
sizes = argparse.Namespace(rounds=40)


def batch(name):
    records = [types_pb2.Record(payload=b"%s %d" % (name.encode(), i), partition=i % PARTITIONS)
               for i in range(BATCH)]
    return broker_pb2.ProduceRequest(topic="t", records=records)


class Cancelled(unittest.TestCase):
    def setUp(self):
        self.node = Node()
        self.addCleanup(self.node.close)
        self.node.create("t", partitions=PARTITIONS)
        self.dice = random.Random(6)
        self.count = 0

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def quiet(self):
        def calls():
            text = self.node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
            line = [l for l in text.splitlines() if l.startswith("narad_grpc_requests_in_flight")][0]
            return float(line.split()[-1])
        wait_until(lambda: calls() <= 1, "all calls are over")

    def end(self):
        return sum(p.high_watermark for p in self.node.stats("t"))

    def stored(self):
        """The names of the batches that are stored: each is whole, once, in order. A client that is gone may have left
        a request that arrives only now: looked at is what did not change meanwhile."""
        def unchanged():
            before = self.end()
            places = self.read()
            return self.end() == before and [places]

        places, = wait_until(unchanged, "nothing arrives while it is read")
        for name, found in places.items():
            self.assertEqual(sorted(i for i, _, _ in found), list(range(BATCH)), f"batch {name} is not whole")
            for partition in range(PARTITIONS):
                offsets = [offset for _, p, offset in sorted(found) if p == partition]
                self.assertEqual(offsets, list(range(offsets[0], offsets[0] + len(offsets))), name)
        return set(places)

    def read(self):
        places = {}
        for partition in range(PARTITIONS):
            stream = self.node.broker.Replay(broker_pb2.ReplayRequest(topic="t", partition=partition),
                                             timeout=PATIENCE)
            for message in (m for response in stream for m in response.messages):
                name, index = bytes(message.payload).decode().split(" ")
                places.setdefault(name, []).append((int(index), partition, message.offset))
        return places

    def goes_on(self, there=(), absent=()):
        """What there is holds, now and after a crash, and the node works."""
        self.quiet()
        stored = self.stored()
        self.assertLessEqual(set(there), stored)
        self.assertFalse(set(absent) & stored)
        self.node.kill()
        self.node.start()
        after = self.stored()
        self.assertLessEqual(stored, after)  # one more may have arrived before the end
        self.assertFalse(set(absent) & after)
        name = self.name("after")
        self.node.broker.Produce(batch(name), timeout=PATIENCE)
        self.assertEqual(self.stored(), after | {name})
        return after

    def test_calls_that_are_cancelled_at_any_moment(self):
        answered, cancelled = set(), set()
        for _ in range(sizes.rounds):
            calls = {}
            for _ in range(16):
                name = self.name("call")
                calls[name] = self.node.broker.Produce.future(batch(name), timeout=PATIENCE)
            names = list(calls)
            self.dice.shuffle(names)
            keep = self.dice.randrange(4)  # the others are cancelled when these are answered
            for name in names[:keep]:
                calls[name].result()
            for name in names[keep:]:
                calls[name].cancel()
            for name, call in calls.items():
                code = call.code()  # waits
                self.assertIn(code, (CODE.OK, CODE.CANCELLED))
                (answered if code == CODE.OK else cancelled).add(name)
        self.assertTrue(cancelled)
        self.goes_on(there=answered)

    def test_one_cancelled_call_is_stored_and_one_is_not(self):
        """Both happen; so the other tests look at both."""
        seen = set()

        def look():
            name, before = self.name("look"), self.end()
            call = self.node.broker.Produce.future(batch(name), timeout=PATIENCE)
            if self.dice.randrange(2):
                wait_until(lambda: call.done() or self.end() > before, "it is there or answered")
            call.cancel()
            if call.code() == CODE.CANCELLED:
                self.quiet()
                seen.add(name in self.stored())
            return len(seen) == 2

        wait_until(look, "a cancelled call was stored, and another one was not")
        self.goes_on()

    def test_requests_that_break_off_store_nothing(self):
        name = self.name("cut")
        whole = rude.request(PATH, batch(name).SerializeToString())
        step = max(1, len(whole) * 2 // max(2, sizes.rounds))
        cuts = list(range(len(whole) - 1, 0, -step))
        for at in cuts:
            connection = rude.connect(self.node.address)
            connection.sendall(whole[:at])
            rude.reset(connection) if self.dice.randrange(2) else connection.close()
        self.goes_on(absent=[name])

    def test_clients_that_hang_up_after_the_request(self):
        names = []
        for i in range(sizes.rounds):
            names.append(self.name("gone"))
            message = batch(names[-1]).SerializeToString()
            connection = rude.connect(self.node.address)
            connection.sendall(rude.request(PATH, message, end=i % 2 == 0) + (rude.cancel() if i % 3 == 0 else b""))
            rude.reset(connection) if i % 5 else connection.close()
        self.goes_on()

    def test_client_processes_that_are_killed(self):
        for _ in range(max(2, sizes.rounds // 10)):
            prefix = self.name("process") + "-"
            client = subprocess.Popen([sys.executable, __file__, "--client", self.node.address, prefix],
                                      stdout=subprocess.PIPE, text=True)
            lines = [client.stdout.readline() for _ in range(20 + self.dice.randrange(50))]
            client.kill()
            lines += client.stdout.readlines()
            client.wait()
            client.stdout.close()
            confirmed = {line.strip() for line in lines if line.endswith("\n")}
            self.assertGreater(len(confirmed), 0)
            stored = self.goes_on(there=confirmed)
            self.assertLessEqual(len(confirmed), len([n for n in stored if n.startswith(prefix)]))


def client(address, prefix):
    """Produces, 16 at a time, by unary calls and on a stream, and prints what is confirmed; until it is killed."""
    broker = broker_pb2_grpc.BrokerStub(grpc.insecure_channel(address))
    items = (broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
        id=i, topic="t", records=batch(f"{prefix}s{i}").records)]) for i in range(1000000))
    confirmed = broker.ProduceStream(items)
    count = 0
    while True:
        names = [f"{prefix}u{count + i}" for i in range(16)]
        count += len(names)
        calls = [broker.Produce.future(batch(name)) for name in names]
        for name, call in zip(names, calls):
            call.result()
            print(name, flush=True)
        for result in next(confirmed).results:
            assert result.code == 0, result
            print(f"{prefix}s{result.id}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client(*sys.argv[2:])
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=int, default=sizes.rounds)
    sizes, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
