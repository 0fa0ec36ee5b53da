#!/usr/bin/python3
"""Every field out of its range, and bytes that are no message: the right status, a text that helps, and a
node that goes on."""

import random
import unittest

from nodes import (CODE, PATIENCE, Node, admin_pb2, broker_pb2, status_of, types_pb2)

BAD, NONE, FULL = CODE.INVALID_ARGUMENT, CODE.NOT_FOUND, CODE.RESOURCE_EXHAUSTED
UNIMPLEMENTED, GONE = CODE.UNIMPLEMENTED, CODE.OUT_OF_RANGE
LONG = "n" * 256


def record(payload=b"x", **members):
    return types_pb2.Record(payload=payload, **members)


def produce(topic="t", *records):
    return broker_pb2.ProduceRequest(topic=topic, records=records)


def header(name, value=b"v"):
    return types_pb2.Header(name=name, value=value)


PRODUCE = [
    (produce("t"), BAD, "1 to 1000 are allowed"),
    (produce("", record()), BAD, "topic: a name is required"),
    (produce("missing", record()), NONE, 'topic not found: "missing"'),
    (produce("a b", record()), BAD, "^[A-Za-z0-9._-]{1,255}$"),
    (produce(LONG, record()), BAD, "{1,255}"),
    (produce("..", record()), BAD, '".."'),
    (produce("t", record(b"")), BAD, "1 to 1048576 bytes are allowed"),
    (produce("t", record(), record(b"")), BAD, "record 1: message required"),
    (produce("t", record(b"p" * (1048577))), BAD, "at most 1048576"),
    (produce("t", record(key=b"k" * 8193)), BAD, "at most 8192"),
    (produce("t", record(partition=3)), BAD, "partition out of range: 3, the topic has partitions 0 to 2"),
    (produce("t", record(partition=4294967295)), BAD, "partition out of range"),
    (produce("t", record(headers=[header("a")] * 65)), BAD, "65 given, at most 64"),
    (produce("t", record(headers=[header("")])), BAD, "[a-z0-9-]{1,64}"),
    (produce("t", record(headers=[header("Upper")])), BAD, "header 0: the name must match"),
    (produce("t", record(headers=[header("a" * 65)])), BAD, "[a-z0-9-]{1,64}"),
    (produce("t", record(headers=[header("ok"), header("a_b")])), BAD, "header 1"),
    (produce("t", record(headers=[header("a", b"v" * 16384)])), BAD, "16384"),
    (produce("t", *[record()] * 1001), BAD, "1001 given, at most 1000"),
    (produce("t", *[record(b"p" * 1048576)] * 17), BAD, "at most 16777216"),
    (produce("t", *[record(b"p" * 1048576)] * 21), FULL, ""),
]

CONSUME = [
    (dict(topic=""), BAD, "topic: a name is required"),
    (dict(topic="missing"), NONE, '"missing"'),
    (dict(topic="t", max_messages=1001), BAD, "max_messages is 1001: at most 1000"),
    (dict(topic="t", wait_ms=30001), BAD, "wait_ms is 30001: at most 30000"),
    (dict(topic="t", partition=3), BAD, "partition out of range: 3"),
    (dict(topic="t", partition=4294967295), BAD, "partition out of range"),
]

REPLAY = [
    (dict(topic=""), BAD, "topic"),
    (dict(topic="missing"), NONE, '"missing"'),
    (dict(topic="t", partition=3), BAD, "partition out of range"),
    (dict(topic="t", partition=4294967295), BAD, "partition out of range"),
]

CREATE = [
    (dict(name=""), BAD, "name required"),
    (dict(name="."), BAD, 'topic name must not be "."'),
    (dict(name=".."), BAD, '".."'),
    (dict(name="a/b"), BAD, "topic name must match ^[A-Za-z0-9._-]{1,255}$"),
    (dict(name=LONG), BAD, "{1,255}"),
    (dict(name="t"), CODE.ALREADY_EXISTS, 'topic already exists: "t"'),
    (dict(name="n", partitions=1), BAD, "partitions must be >= 3 (0 = use default)"),
    (dict(name="n", partitions=109), BAD, "partitions (109) exceeds topic.max_partitions (108)"),
    (dict(name="n", partitions=4294967295), BAD, "exceeds topic.max_partitions"),
    (dict(name="n", retention_ms=1800000), BAD,
     "retention_ms (1800000) is below the minimum of 3600000 (1 hour)"),
    (dict(name="n", visibility_timeout_ms=43200001), BAD, "exceeds the maximum of 43200000"),
    (dict(name="n", visibility_timeout_ms=2**64 - 1), BAD, "exceeds the maximum"),
    (dict(name="n", max_in_flight_per_partition=1000001), BAD, "max_in_flight_per_partition (1000001)"),
    (dict(name="n", max_acked_ahead_per_partition=1000001), BAD, "max_acked_ahead_per_partition"),
]

ALTER = [
    (dict(name="t"), BAD, "at least one of partitions, retention_ms"),
    (dict(name=""), BAD, "name required"),
    (dict(name="missing", retention_ms=7200000), NONE, 'topic not found: "missing"'),
    (dict(name="missing", retention_ms=1), BAD, "below the minimum"),
    (dict(name="t", retention_ms=1), BAD, "retention_ms (1) is below"),
    (dict(name="t", partitions=3), BAD, "must be greater than current (3)"),
    (dict(name="t", partitions=2), BAD, "new partition count (2) must be greater than current (3)"),
    (dict(name="t", partitions=109), BAD, "exceeds topic.max_partitions (108)"),
    (dict(name="t", max_in_flight_per_partition=1000001), BAD, "max_in_flight_per_partition"),
    (dict(name="t", max_acked_ahead_per_partition=1000001), BAD, "max_acked_ahead_per_partition"),
]

GET = [
    (dict(name=""), BAD, "topic: a name is required"),
    (dict(name="missing"), NONE, '"missing"'),
    (dict(name="t", partition=3), BAD, "partition out of range"),
]

HANDLES = ["", "x", "0:0", "0:0:0:0", "0:0:0", "-1:0:1", "0:-1:1", "0:0:-1", " 0:0:1", "0:0:1 ", "0x1:0:1",
           "0:0:9223372036854775808", "0:9223372036854775808:1", "99999999999:0:1", "0::1", "٠:0:1", "é"]

METHODS = {
    "/narad.v1.Broker/Produce": "unary", "/narad.v1.Broker/Consume": "unary",
    "/narad.v1.Broker/Ack": "unary", "/narad.v1.Broker/Replay": "server",
    "/narad.v1.Broker/ProduceStream": "bidi", "/narad.v1.Broker/ConsumeStream": "bidi",
    "/narad.v1.Broker/AckStream": "bidi",
    "/narad.v1.Broker/Subscribe": "bidi", "/narad.v1.Admin/CreateTopic": "unary",
    "/narad.v1.Admin/GetTopic": "unary", "/narad.v1.Admin/ListTopics": "unary",
    "/narad.v1.Admin/AlterTopic": "unary", "/narad.v1.Admin/DeleteTopic": "unary",
    "/narad.v1.Admin/Metrics": "unary", "/narad.v1.Admin/Version": "unary",
    "/narad.v1.Bench/Produce": "unary", "/narad.v1.Bench/ProduceStream": "bidi",
    "/grpc.health.v1.Health/Check": "unary",
}


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node()
        cls.node.create("t")

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def check(self, call, request, code, part):
        got, text = status_of(lambda: call(request, timeout=PATIENCE))
        shown = str(request)[:200]
        self.assertEqual(got, code, f"{shown}: {text}")
        self.assertIn(part, text, shown)

    def table(self, call, kind, rows):
        for members, code, part in rows:
            self.check(call, kind(**members), code, part)

    def test_produce(self):
        for request, code, part in PRODUCE:
            self.check(self.node.broker.Produce, request, code, part)
        self.assertEqual(sum(p.high_watermark for p in self.node.stats("t")), 0)

    def test_consume(self):
        self.table(self.node.broker.Consume, broker_pb2.ConsumeRequest, CONSUME)

    def test_replay(self):
        self.table(self.node.broker.Replay, broker_pb2.ReplayRequest, REPLAY)

    def test_create(self):
        self.table(self.node.admin.CreateTopic, admin_pb2.CreateTopicRequest, CREATE)

    def test_alter(self):
        self.table(self.node.admin.AlterTopic, admin_pb2.AlterTopicRequest, ALTER)

    def test_alter_keeps_what_came_before_the_failure(self):
        self.node.create("part")
        self.check(self.node.admin.AlterTopic, admin_pb2.AlterTopicRequest(
            name="part", retention_ms=7200000, partitions=2), BAD, "must be greater")
        topic = self.node.admin.GetTopic(admin_pb2.GetTopicRequest(name="part"), timeout=PATIENCE).topic
        self.assertEqual((topic.retention_ms, topic.partitions), (7200000, 3))

    def test_get_and_delete(self):
        self.table(self.node.admin.GetTopic, admin_pb2.GetTopicRequest, GET)
        self.check(self.node.admin.DeleteTopic, admin_pb2.DeleteTopicRequest(), BAD, "name required")
        self.check(self.node.admin.DeleteTopic, admin_pb2.DeleteTopicRequest(name="missing"), NONE,
                   'topic not found: "missing"')

    def test_ack(self):
        self.check(self.node.broker.Ack, broker_pb2.AckRequest(topic="t"), BAD,
                   "settles: 0 given, 1 to 1000")
        many = [broker_pb2.Settle(receipt_handle="0:0:1")] * 1001
        self.check(self.node.broker.Ack, broker_pb2.AckRequest(topic="t", settles=many), BAD,
                   "settles: 1001 given")
        self.check(self.node.broker.Ack, broker_pb2.AckRequest(topic="missing", settles=many[:1]), NONE,
                   '"missing"')
        results = self.node.ack("t", *HANDLES)
        for handle, result in zip(HANDLES, results):
            self.assertEqual(result.code, 3, handle)
            self.assertIn("receipt handle is malformed", result.error)
        for handle in ("0:0:1", "2:7:5", "3:0:1", "2147483647:0:1", "0:9223372036854775807:9223372036854775807"):
            for settle in (self.node.ack, self.node.nack, self.node.extend):
                self.assertEqual(settle("t", handle)[0].code, CODE.FAILED_PRECONDITION.value[0], handle)
        result = self.node.settle("t", 7, "0:0:1")[0]
        self.assertEqual((result.code, result.error),
                         (BAD.value[0], "unknown action: 0 (ACK), 1 (EXTEND) and 2 (NACK) are allowed"))

    def test_a_handle_of_another_topic_is_stale(self):
        self.node.create("other")
        self.node.produce("other", b"x")
        message = self.node.consume("other")[0]
        self.assertEqual(self.node.ack("t", message.receipt_handle)[0].code,
                         CODE.FAILED_PRECONDITION.value[0])
        self.assertEqual(self.node.ack("other", message.receipt_handle)[0].code, 0)

    def test_unknown_methods(self):
        for path in ("/narad.v1.Broker/Nothing", "/narad.v1.Nobody/Produce", "/", "/x", "/narad.v1.Broker/"):
            call = self.node.channel.unary_unary(path)
            self.assertEqual(status_of(lambda: call(b"", timeout=PATIENCE))[0], UNIMPLEMENTED, path)
            stream = self.node.channel.stream_stream(path)
            self.assertEqual(status_of(lambda: stream(iter([b""]), timeout=PATIENCE))[0],
                             UNIMPLEMENTED, path)

    def raw(self, path, kind, data):
        if kind == "unary":
            return status_of(lambda: self.node.channel.unary_unary(path)(data, timeout=PATIENCE))
        if kind == "server":
            return status_of(lambda: self.node.channel.unary_stream(path)(data, timeout=PATIENCE))
        return status_of(lambda: self.node.channel.stream_stream(path)(iter([data]), timeout=PATIENCE))

    def test_bytes_that_are_no_message(self):
        for path, kind in METHODS.items():
            for data in (b"\xff", b"\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab", b"\x0b", b"\x08" * 11):
                code, text = self.raw(path, kind, data)
                self.assertEqual(code, BAD, f"{path} {data}: {text}")
                if "Health" not in path:
                    self.assertIn("not a valid narad.v1.", text)

    def test_a_nul_in_a_text_is_refused(self):
        """Else "t" would be meant by "t", a NUL and more."""
        name, broker, admin = "t\0x", broker_pb2, admin_pb2
        for method, message in (
                ("Broker/Produce", produce(name, record())),
                ("Broker/Consume", broker.ConsumeRequest(topic=name)),
                ("Broker/Ack", broker.AckRequest(topic=name, settles=[broker.Settle(receipt_handle="0:0:1")])),
                ("Broker/Ack", broker.AckRequest(topic="t", settles=[broker.Settle(receipt_handle="0:0:1\0")])),
                ("Broker/Replay", broker.ReplayRequest(topic=name)),
                ("Broker/Subscribe", broker.SubscribeRequest(start=broker.SubscribeStart(topic=name))),
                ("Broker/ConsumeStream", broker.ConsumeStreamRequest(polls=[broker.Poll(id=300, topic=name)])),
                ("Admin/CreateTopic", admin.CreateTopicRequest(name="n\0x")),
                ("Admin/GetTopic", admin.GetTopicRequest(name=name)),
                ("Admin/ListTopics", admin.ListTopicsRequest(page_token=name)),
                ("Admin/AlterTopic", admin.AlterTopicRequest(name=name)),
                ("Admin/DeleteTopic", admin.DeleteTopicRequest(name=name))):
            path = "/narad.v1." + method
            code, text = self.raw(path, METHODS[path], message.SerializeToString())
            self.assertEqual(code, BAD, f"{path}: {text}")
        self.node.admin.GetTopic(admin.GetTopicRequest(name="t"), timeout=PATIENCE)

    def test_truncated_and_random_messages_never_hurt(self):
        dice = random.Random(20261130)
        settles = [broker_pb2.Settle(receipt_handle="0:0:1", action=2)]
        samples = {
            "/narad.v1.Broker/Produce": produce("t", record(key=b"k", headers=[header("a")], partition=1)),
            "/narad.v1.Broker/Consume": broker_pb2.ConsumeRequest(topic="t", max_messages=3, partition=1),
            "/narad.v1.Broker/Ack": broker_pb2.AckRequest(topic="t", settles=settles),
            "/narad.v1.Broker/Replay": broker_pb2.ReplayRequest(topic="t", partition=1, offset=3),
            "/narad.v1.Broker/ProduceStream": broker_pb2.ProduceStreamRequest(items=[
                broker_pb2.ProduceItem(id=1, topic="t", records=[record()])]),
            "/narad.v1.Broker/ConsumeStream": broker_pb2.ConsumeStreamRequest(
                polls=[broker_pb2.Poll(id=1, topic="t")], cancel_ids=[1]),
            "/narad.v1.Broker/AckStream": broker_pb2.AckStreamRequest(
                items=[broker_pb2.AckItem(id=1, topic="t", settles=settles)]),
            "/narad.v1.Broker/Subscribe": broker_pb2.SubscribeRequest(
                start=broker_pb2.SubscribeStart(topic="missing"), settles=settles),
            "/narad.v1.Admin/GetTopic": admin_pb2.GetTopicRequest(name="t", partition=1),
            "/narad.v1.Admin/ListTopics": admin_pb2.ListTopicsRequest(limit=3, page_token="x"),
        }
        expected = {CODE.OK, BAD, NONE, GONE, CODE.ALREADY_EXISTS, UNIMPLEMENTED, FULL,
                    CODE.DEADLINE_EXCEEDED}
        for path, sample in samples.items():
            data = sample.SerializeToString()
            tries = [data[:i] for i in range(len(data))]
            for _ in range(60):
                changed = bytearray(data)
                for _ in range(dice.randint(1, 4)):
                    changed[dice.randrange(len(changed))] = dice.randrange(256)
                tries.append(bytes(changed))
                tries.append(dice.randbytes(dice.randint(0, 60)))
            for attempt in tries:
                # A wait that the dice chose is not waited for.
                kind = METHODS[path]
                if kind == "unary":
                    got = status_of(lambda: self.node.channel.unary_unary(path)(attempt, timeout=2))
                else:
                    got = self.raw(path, kind, attempt)
                self.assertIn(got[0], expected, f"{path} {attempt}: {got}")
        self.assertEqual(len(self.node.stats("t")), 3)

    def test_a_message_beyond_the_transport_limit_is_refused(self):
        for path, kind in METHODS.items():
            if "Health" in path:
                continue
            code, _ = self.raw(path, kind, b"\x12" + b"\x00" * (21 << 20))
            self.assertEqual(code, FULL, path)
        admin = self.node.channel.unary_unary("/narad.v1.Admin/CreateTopic")
        data = admin_pb2.CreateTopicRequest(name="n" * (2 << 20)).SerializeToString()
        self.assertEqual(status_of(lambda: admin(data, timeout=PATIENCE))[0], FULL)

    def test_a_message_of_a_stream_holds_so_many_items(self):
        """Each item is answered: without a bound small messages would make answers of any size."""
        start = broker_pb2.SubscribeStart(topic="t")
        for method, what, make in (
                ("Bench/ProduceStream", "items", lambda n: broker_pb2.ProduceStreamRequest(
                    items=[broker_pb2.ProduceItem()] * n)),
                ("Broker/ProduceStream", "items", lambda n: broker_pb2.ProduceStreamRequest(
                    items=[broker_pb2.ProduceItem()] * n)),
                ("Broker/ConsumeStream", "polls", lambda n: broker_pb2.ConsumeStreamRequest(
                    polls=[broker_pb2.Poll()] * n)),
                ("Broker/AckStream", "items", lambda n: broker_pb2.AckStreamRequest(
                    items=[broker_pb2.AckItem()] * n)),
                ("Broker/Subscribe", "settles", lambda n: broker_pb2.SubscribeRequest(
                    start=start, settles=[broker_pb2.Settle()] * n))):
            path = "/narad.v1." + method
            code, text = self.raw(path, "bidi", make(10001).SerializeToString())
            self.assertEqual((code, text), (BAD, f"{what}: 10001 given, at most 10000 are allowed in one message"))
            code, text = self.raw(path, "bidi", make(10000).SerializeToString())
            self.assertEqual(code, CODE.OK, f"{method}: {text}")
        # A gateway whose clients all leave at once cancels more, and a cancel that finds no poll has no answer.
        many = broker_pb2.ConsumeStreamRequest(cancel_ids=range(70000)).SerializeToString()
        self.assertEqual(self.raw("/narad.v1.Broker/ConsumeStream", "bidi", many), (CODE.OK, ""))

    def test_an_oversize_message_ends_a_stream_with_work_under_way(self):
        self.node.create("oversize")
        item = broker_pb2.ProduceItem(id=1, topic="oversize", records=[record()])
        small = broker_pb2.ProduceStreamRequest(items=[item] * 500).SerializeToString()
        stream = self.node.channel.stream_stream("/narad.v1.Broker/ProduceStream")
        for _ in range(20):
            code, _ = status_of(lambda: stream(iter([small, b"\x12" + b"\x00" * (21 << 20)]),
                                               timeout=PATIENCE))
            self.assertEqual(code, FULL)
        self.node.produce("oversize", b"after")


if __name__ == "__main__":
    unittest.main()
