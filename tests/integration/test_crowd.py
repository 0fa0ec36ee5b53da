#!/usr/bin/python3
"""Many at once: parked polls, connections, clients that do not read and clients that vanish. Nobody else is held
up, nothing is left behind, and the leases of a stream that closed are free at once.

    test_crowd.py [--polls 1000] [--connections 100] [--vanish 60]     (5000, 1000, 1000: the long form)
"""

import argparse
import os
import socket
import sys
import threading
import unittest

from nodes import CODE, PATIENCE, Node, Outgoing, admin_pb2, broker_pb2, grpc, status_of, wait_until

LEASE_MS = 600000  # a lease that ends in a test was given back, it did not expire
sizes = argparse.Namespace(polls=1000, connections=100, vanish=60)


class Crowd(unittest.TestCase):
    def setUp(self):
        self.node = Node(NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY="0")
        self.addCleanup(self.node.close)
        self.node.create("t", visibility_timeout_ms=LEASE_MS)

    def resident_mib(self):
        with open(f"/proc/{self.node.process.pid}/status", encoding="ascii") as file:
            return [int(line.split()[1]) for line in file if line.startswith("VmRSS:")][0] / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.node.process.pid}/fd"))

    def in_flight_calls(self):
        text = self.node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        line = [l for l in text.splitlines() if l.startswith("narad_grpc_requests_in_flight")][0]
        return int(float(line.split()[-1]))

    def quiet(self):
        wait_until(lambda: self.in_flight_calls() <= 1, "all calls are over")

    def others_work(self, topic="others"):
        """Produce, consume and ack for somebody who has nothing to do with it."""
        self.node.create(topic) if status_of(lambda: self.node.stats(topic))[0] == CODE.NOT_FOUND else None
        for i in range(20):
            self.node.produce(topic, b"%d" % i)
        self.assertEqual(len(self.node.take_all(topic)), 20)

    def subscribe(self, channel, topic="t", outstanding=3):
        stub = channel.stream_stream("/narad.v1.Broker/Subscribe",
                                     request_serializer=broker_pb2.SubscribeRequest.SerializeToString,
                                     response_deserializer=broker_pb2.SubscribeResponse.FromString)
        out = Outgoing(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=topic, max_outstanding=outstanding)))
        return stub(iter(out)), out

    def test_parked_polls_hold_nobody_up_and_each_message_wakes_one(self):
        channels = [self.node.new_channel() for _ in range(10)]
        polls = []
        for i in range(sizes.polls):
            stub = channels[i % 10].unary_unary(
                "/narad.v1.Broker/Consume", request_serializer=broker_pb2.ConsumeRequest.SerializeToString,
                response_deserializer=broker_pb2.ConsumeResponse.FromString)
            polls.append(stub.future(broker_pb2.ConsumeRequest(topic="t", wait_ms=30000), timeout=120))
        wait_until(lambda: self.in_flight_calls() >= sizes.polls, "all are parked")

        self.others_work()
        self.node.produce("t", *[b"x"] * 50)
        wait_until(lambda: self.node.in_flight("t") == 50, "50 got one")
        for channel in channels:
            channel.close()  # cancels the rest, and those who have one keep their lease

        answered = sum(1 for poll in polls if not poll.cancelled() and poll.code() == CODE.OK and
                       len(poll.result().messages) == 1)
        self.assertLessEqual(answered, 50)
        self.quiet()
        self.others_work()
        self.assertEqual(self.node.in_flight("t"), 50)

    def test_many_connections_come_and_go(self):
        self.others_work()
        files = self.descriptors()
        for _ in range(2):
            channels, calls = [], []
            for _ in range(sizes.connections):
                channels.append(self.node.new_channel())
                calls.append(self.subscribe(channels[-1]))
            wait_until(lambda: self.in_flight_calls() >= sizes.connections, "all are there")
            # A few of those before may have been about to go, a log file among them.
            self.assertGreaterEqual(self.descriptors(), files + sizes.connections - 4)
            self.others_work()
            for channel, (_, out) in zip(channels, calls):
                channel.close()
                out.close()
            self.quiet()
            wait_until(lambda: self.descriptors() <= files + 4, "sockets are closed")
        self.others_work()

    def test_who_does_not_read_holds_only_what_the_window_allows(self):
        self.node.create("slow", visibility_timeout_ms=LEASE_MS)
        for _ in range(40):
            self.node.produce("slow", *[b"x" * 50000] * 10)
        before = self.resident_mib()
        channels = [self.node.new_channel() for _ in range(20)]
        streams = [self.subscribe(channel, "slow", 1000) for channel in channels]
        wait_until(lambda: self.node.in_flight("slow") > 0, "somebody got something")

        for _ in range(5):
            self.others_work()

        self.assertLess(self.resident_mib(), before + 128)
        for (call, out), channel in zip(streams, channels):
            call.cancel()
            out.close()
            channel.close()
        wait_until(lambda: self.node.in_flight("slow") == 0, "leases of closed streams are free")
        self.assertEqual(len(self.node.take_all("slow")), 400)

    def vanish(self):
        """A client whose connection breaks in the middle: a proxy's socket is reset under it."""
        proxy = Proxy(self.node.address)
        channel = grpc.insecure_channel(proxy.address, options=[("grpc.use_local_subchannel_pool", 1)])
        call, out = self.subscribe(channel)
        self.assertGreater(len(next(call).messages), 0)
        proxy.reset()
        channel.close()
        out.close()

    def test_clients_that_vanish_leave_their_leases_at_once(self):
        self.node.produce("t", *[b"%d" % i for i in range(9)])
        for _ in range(5):
            self.vanish()
        self.quiet()
        wait_until(lambda: self.node.in_flight("t") == 0, "leases are free")
        before, files = self.resident_mib(), self.descriptors()

        for _ in range(sizes.vanish):
            self.vanish()

        self.quiet()
        wait_until(lambda: self.node.in_flight("t") == 0, "leases are free")
        wait_until(lambda: self.descriptors() <= files + 4, "sockets are closed")
        self.assertLess(self.resident_mib(), before + 32)
        self.assertEqual(len(self.node.take_all("t")), 9)


class Proxy:
    """One TCP connection to the node that can be reset."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.server = socket.create_connection((host, int(port)))
        self.client = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        self.client, _ = self.listener.accept()
        back = threading.Thread(target=self.pump, args=(self.server, self.client), daemon=True)
        back.start()
        self.pump(self.client, self.server)
        back.join()

    @staticmethod
    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass

    def reset(self):
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, 0 s: close sends RST
        for end in (self.server, self.client):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            try:
                end.shutdown(socket.SHUT_RD)  # the thread that reads ends
            except OSError:
                pass
        self.thread.join()
        for end in (self.server, self.client, self.listener):
            end.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    for name, value in vars(sizes).items():
        parser.add_argument("--" + name, type=int, default=value)
    sizes, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
