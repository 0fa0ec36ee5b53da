#!/usr/bin/python3
"""Thousands of bad, cancelled and broken calls leave neither memory nor descriptors nor leases behind."""

import os
import unittest

from nodes import (CODE, PATIENCE, Node, Outgoing, admin_pb2, broker_pb2, status_of, types_pb2, wait_until)


class Leaks(unittest.TestCase):
    def setUp(self):
        # Under AddressSanitizer freed memory is kept aside: little of it, or it looks like a leak here.
        self.node = Node(ASAN_OPTIONS="quarantine_size_mb=1:thread_local_quarantine_size_kb=64")
        self.addCleanup(self.node.close)
        self.node.create("t")

    def resident_mib(self):
        with open(f"/proc/{self.node.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.node.process.pid}/fd"))

    def bad_calls(self, count):
        broker = self.node.broker
        record = types_pb2.Record(payload=b"x")
        for i in range(count):
            kind = i % 6
            if kind == 0:
                status_of(lambda: broker.Produce(broker_pb2.ProduceRequest(
                    topic="t", records=[types_pb2.Record(payload=b"")] * 100), timeout=PATIENCE))
            elif kind == 1:
                status_of(lambda: broker.Produce(broker_pb2.ProduceRequest(
                    topic="missing", records=[record] * 50), timeout=PATIENCE))
            elif kind == 2:
                call = broker.Consume.future(broker_pb2.ConsumeRequest(topic="t", wait_ms=20000))
                call.cancel()
            elif kind == 3:
                out = Outgoing(broker_pb2.SubscribeRequest(start=broker_pb2.SubscribeStart(topic="t")))
                call = broker.Subscribe(iter(out), timeout=PATIENCE)
                call.cancel()
                out.close()
            elif kind == 4:
                out = Outgoing(broker_pb2.ProduceStreamRequest(items=[broker_pb2.ProduceItem(
                    id=i, topic="t", records=[types_pb2.Record(payload=b"")])] * 20))
                call = broker.ProduceStream(iter(out), timeout=PATIENCE)
                next(call)
                call.cancel()
                out.close()
            else:
                raw = self.node.channel.unary_unary("/narad.v1.Broker/Ack")
                status_of(lambda: raw(os.urandom(60), timeout=PATIENCE))

    def quiet(self):
        def over():
            text = self.node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
            line = [l for l in text.splitlines() if l.startswith("narad_grpc_requests_in_flight")][0]
            return int(float(line.split()[-1])) <= 1
        wait_until(over, "all calls are over")

    def test_bad_calls_leave_nothing(self):
        self.bad_calls(1500)
        self.quiet()
        before, files = self.resident_mib(), self.descriptors()

        self.bad_calls(4500)
        self.quiet()

        self.assertLessEqual(self.resident_mib(), before + 24)
        self.assertLessEqual(self.descriptors(), files + 4)
        self.assertEqual(self.node.in_flight("t"), 0)
        self.assertEqual(sum(p.high_watermark for p in self.node.stats("t")), 0)

    def test_connections_that_break_leave_nothing(self):
        self.node.produce("t", *[b"x"] * 100)

        def connect_and_go():
            channel = self.node.new_channel()
            stub = channel.stream_stream(
                "/narad.v1.Broker/Subscribe",
                request_serializer=broker_pb2.SubscribeRequest.SerializeToString,
                response_deserializer=broker_pb2.SubscribeResponse.FromString)
            out = Outgoing(broker_pb2.SubscribeRequest(
                start=broker_pb2.SubscribeStart(topic="t", max_outstanding=3)))
            call = stub(iter(out))
            self.assertGreater(len(next(call).messages), 0)
            channel.close()
            out.close()

        for _ in range(20):
            connect_and_go()
        self.quiet()
        before, files = self.resident_mib(), self.descriptors()

        for _ in range(200):
            connect_and_go()
        self.quiet()

        wait_until(lambda: self.node.in_flight("t") == 0, "leases are released")
        wait_until(lambda: self.descriptors() <= files + 4, "sockets are closed")
        self.assertLessEqual(self.resident_mib(), before + 24)
        self.assertEqual(len(self.node.take_all("t")), 100)

    def test_topics_that_come_and_go_leave_nothing(self):
        def rounds(count):
            for _ in range(count):
                self.node.create("come")
                self.node.produce("come", b"x")
                self.node.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="come"), timeout=PATIENCE)

        rounds(20)
        before, files = self.resident_mib(), self.descriptors()
        rounds(100)
        self.assertLessEqual(self.resident_mib(), before + 24)
        wait_until(lambda: self.descriptors() <= files + 6, "files are closed")
        code, _ = status_of(lambda: self.node.stats("come"))
        self.assertEqual(code, CODE.NOT_FOUND)


if __name__ == "__main__":
    unittest.main()
