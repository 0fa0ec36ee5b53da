#!/usr/bin/python3
"""A stock grpcio client against a node: NARAD_SERVER=host:port test_client.py"""

import os
import queue
import sys
import threading
import time
import unittest

try:
    import grpc
    import stubs
    stubs.generate()
except ImportError as error:
    sys.exit(f"{error}: install python3-grpcio and python3-grpc-tools (.ci/packages.sh test)")

from google.protobuf import descriptor_pb2, descriptor_pool
from health.v1 import health_pb2, health_pb2_grpc
from narad.v1 import admin_pb2, admin_pb2_grpc, bench_pb2_grpc, broker_pb2, broker_pb2_grpc, types_pb2
from reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

TARGET = os.environ["NARAD_SERVER"]
PATIENCE = 120
CODE = grpc.StatusCode
MIB = 1 << 20


def fnv1a_32(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


class Outgoing:
    """The sending side of a stream."""

    def __init__(self):
        self.messages = queue.Queue()

    def send(self, message):
        self.messages.put(message)

    def close(self):
        self.messages.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        message = self.messages.get()
        if message is None:
            raise StopIteration
        return message


class ClientTest(unittest.TestCase):
    topics = 0

    @classmethod
    def setUpClass(cls):
        cls.channel = grpc.insecure_channel(
            TARGET, options=[("grpc.max_receive_message_length", 64 * MIB)])
        cls.broker = broker_pb2_grpc.BrokerStub(cls.channel)
        cls.admin = admin_pb2_grpc.AdminStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()

    def topic(self, partitions=3, **options):
        """A new topic of this test's own."""
        ClientTest.topics += 1
        name = f"interop-{ClientTest.topics}"
        self.admin.CreateTopic(
            admin_pb2.CreateTopicRequest(name=name, partitions=partitions, **options),
            timeout=PATIENCE)
        return name

    def produce(self, topic, payloads, key=b""):
        records = [types_pb2.Record(payload=payload, key=key) for payload in payloads]
        return self.broker.Produce(
            broker_pb2.ProduceRequest(topic=topic, records=records), timeout=PATIENCE).placements

    def consume(self, topic, count=1, wait_ms=30000):
        return self.broker.Consume(
            broker_pb2.ConsumeRequest(topic=topic, max_messages=count, wait_ms=wait_ms),
            timeout=PATIENCE).messages

    def settle(self, topic, handles, action=broker_pb2.SETTLE_ACTION_ACK):
        settles = [broker_pb2.Settle(receipt_handle=handle, action=action) for handle in handles]
        return self.broker.Ack(
            broker_pb2.AckRequest(topic=topic, settles=settles), timeout=PATIENCE).results

    def assert_status(self, code, call, *arguments, **options):
        options.setdefault("timeout", PATIENCE)
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()

    # --- topics ---

    def test_topic_is_created_described_altered_listed_and_deleted(self):
        name = self.topic(partitions=4, visibility_timeout_ms=60000)
        topic = self.admin.GetTopic(admin_pb2.GetTopicRequest(name=name), timeout=PATIENCE)
        self.assertEqual((topic.topic.name, topic.topic.partitions), (name, 4))
        self.assertEqual(topic.topic.visibility_timeout_ms, 60000)
        self.assertEqual([stats.index for stats in topic.partition_stats], [0, 1, 2, 3])
        altered = self.admin.AlterTopic(
            admin_pb2.AlterTopicRequest(name=name, retention_ms=0, partitions=5), timeout=PATIENCE)
        self.assertEqual((altered.topic.retention_ms, altered.topic.partitions), (0, 5))
        listed, token = [], ""
        while True:
            page = self.admin.ListTopics(
                admin_pb2.ListTopicsRequest(limit=1, page_token=token), timeout=PATIENCE)
            listed += [topic.name for topic in page.topics]
            token = page.next_page_token
            if not token:
                break
        self.assertIn(name, listed)
        self.assertEqual(listed, sorted(listed))
        self.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name=name), timeout=PATIENCE)
        self.assert_status(CODE.NOT_FOUND, self.admin.GetTopic,
                           admin_pb2.GetTopicRequest(name=name))

    def test_topic_errors_have_their_status(self):
        name = self.topic()
        self.assert_status(CODE.ALREADY_EXISTS, self.admin.CreateTopic,
                           admin_pb2.CreateTopicRequest(name=name))
        for wrong in ("", "..", "a b", "x" * 256):
            self.assert_status(CODE.INVALID_ARGUMENT, self.admin.CreateTopic,
                               admin_pb2.CreateTopicRequest(name=wrong))
        self.assert_status(CODE.INVALID_ARGUMENT, self.admin.CreateTopic,
                           admin_pb2.CreateTopicRequest(name="interop-bad", partitions=2))
        self.assert_status(CODE.NOT_FOUND, self.admin.DeleteTopic,
                           admin_pb2.DeleteTopicRequest(name="interop-none"))

    # --- produce ---

    def test_produce_places_by_key(self):
        name = self.topic()
        for key in (b"a", b"orders", b"customer-42"):
            placements = self.produce(name, [b"1", b"2"], key=key)
            self.assertEqual({p.partition for p in placements}, {fnv1a_32(key) % 3})
            self.assertEqual(placements[1].offset, placements[0].offset + 1)

    def test_produce_to_partition_0_is_not_produce_to_any(self):
        name = self.topic()
        records = [types_pb2.Record(payload=b"x", key=b"orders", partition=0)] * 3
        placements = self.broker.Produce(
            broker_pb2.ProduceRequest(topic=name, records=records), timeout=PATIENCE).placements
        self.assertEqual([(p.partition, p.offset) for p in placements], [(0, 0), (0, 1), (0, 2)])

    def test_produce_errors_have_their_status(self):
        name = self.topic()
        cases = (
            (CODE.NOT_FOUND, "interop-none", [types_pb2.Record(payload=b"x")]),
            (CODE.INVALID_ARGUMENT, name, []),
            (CODE.INVALID_ARGUMENT, name, [types_pb2.Record(payload=b"")]),
            (CODE.INVALID_ARGUMENT, name, [types_pb2.Record(payload=b"x" * (MIB + 1))]),
            (CODE.INVALID_ARGUMENT, name, [types_pb2.Record(payload=b"x", key=b"k" * 8193)]),
            (CODE.INVALID_ARGUMENT, name, [types_pb2.Record(payload=b"x", partition=3)]),
            (CODE.INVALID_ARGUMENT, name, [types_pb2.Record(payload=b"x")] * 1001),
            (CODE.INVALID_ARGUMENT, name,
             [types_pb2.Record(payload=b"x", headers=[types_pb2.Header(name="Bad")])]),
        )
        for code, topic, records in cases:
            details = self.assert_status(
                code, self.broker.Produce,
                broker_pb2.ProduceRequest(topic=topic, records=records))
            self.assertTrue(details)

    def test_produce_of_a_compressed_request(self):
        name = self.topic()
        records = [types_pb2.Record(payload=b"zip" * 10000, partition=1)]
        self.broker.Produce(broker_pb2.ProduceRequest(topic=name, records=records),
                            timeout=PATIENCE, compression=grpc.Compression.Gzip)
        self.assertEqual(self.consume(name)[0].payload, b"zip" * 10000)

    def test_compressed_oversize_is_refused(self):
        records = [types_pb2.Record(payload=b"\0" * (30 * MIB))]
        self.assert_status(CODE.RESOURCE_EXHAUSTED, self.broker.Produce,
                           broker_pb2.ProduceRequest(topic="x", records=records),
                           compression=grpc.Compression.Gzip)

    def test_stream_confirms_5000_in_order_and_all_come_back(self):
        count = 5000
        name = self.topic(max_in_flight_per_partition=10000)
        payloads = [f"line {i}".encode() for i in range(count)]

        def requests():
            for i in range(count):
                item = broker_pb2.ProduceItem(
                    id=i, topic=name if i == 0 else "",
                    records=[types_pb2.Record(payload=payloads[i], key=str(i % 7).encode())])
                yield broker_pb2.ProduceStreamRequest(items=[item])

        results = [result for response in self.broker.ProduceStream(requests(), timeout=PATIENCE)
                   for result in response.results]
        self.assertEqual([result.id for result in results], list(range(count)))
        self.assertEqual({result.code for result in results}, {0})
        self.assertTrue(all(len(result.placements) == 1 for result in results))

        got = []
        while len(got) < count:
            messages = self.consume(name, count=500)
            self.assertTrue(messages, f"only {len(got)} of {count} came")
            got += [message.payload for message in messages]
            settled = self.settle(name, [message.receipt_handle for message in messages])
            self.assertEqual({result.code for result in settled}, {0})
        self.assertEqual(sorted(got), sorted(payloads))
        self.assertFalse(self.consume(name, wait_ms=0))

    def test_stream_refuses_an_item_and_goes_on(self):
        name = self.topic()
        good = [types_pb2.Record(payload=b"x")]
        items = [
            broker_pb2.ProduceItem(id=1, topic=name, records=good),
            broker_pb2.ProduceItem(id=2, topic="interop-none", records=good),
            broker_pb2.ProduceItem(id=3, topic=name, records=[]),
            broker_pb2.ProduceItem(id=4, topic=name, records=good),
        ]
        responses = self.broker.ProduceStream(
            iter([broker_pb2.ProduceStreamRequest(items=items)]), timeout=PATIENCE)
        results = [result for response in responses for result in response.results]
        self.assertEqual([(r.id, r.code) for r in results], [(1, 0), (2, 5), (3, 3), (4, 0)])
        self.assertTrue(results[1].error)

    # --- consume and settle ---

    def test_consumed_message_carries_all_that_was_produced(self):
        name = self.topic()
        record = types_pb2.Record(
            key=b"\0key", payload=b"\xff\0payload", partition=2,
            headers=[types_pb2.Header(name="trace-id", value=b"\1\2")])
        self.broker.Produce(broker_pb2.ProduceRequest(topic=name, records=[record]),
                            timeout=PATIENCE)
        message = self.consume(name)[0]
        self.assertEqual((message.partition, message.offset), (2, 0))
        self.assertEqual((message.key, message.payload), (b"\0key", b"\xff\0payload"))
        self.assertEqual([(h.name, h.value) for h in message.headers], [("trace-id", b"\1\2")])
        self.assertEqual(message.delivery_attempt, 1)
        self.assertGreater(message.timestamp_ms, 1_600_000_000_000)

    def test_nacked_message_comes_again_and_the_old_handle_is_over(self):
        name = self.topic()
        self.produce(name, [b"x"])
        first = self.consume(name)[0]
        self.assertFalse(self.consume(name, wait_ms=0))
        self.assertEqual(self.settle(name, [first.receipt_handle],
                                     broker_pb2.SETTLE_ACTION_NACK)[0].code, 0)
        second = self.consume(name)[0]
        self.assertEqual((second.offset, second.delivery_attempt), (first.offset, 2))
        stale, extended = (self.settle(name, [first.receipt_handle])[0],
                           self.settle(name, [second.receipt_handle],
                                       broker_pb2.SETTLE_ACTION_EXTEND)[0])
        self.assertEqual((stale.code, extended.code), (9, 0))
        self.assertEqual(self.settle(name, [second.receipt_handle])[0].code, 0)
        self.assertEqual(self.settle(name, ["no handle"])[0].code, 3)

    def test_waiting_consume_is_woken_by_a_produce(self):
        name = self.topic()
        waiting = self.broker.Consume.future(
            broker_pb2.ConsumeRequest(topic=name, wait_ms=30000), timeout=PATIENCE)
        self.produce(name, [b"now"])
        self.assertEqual(waiting.result().messages[0].payload, b"now")

    def test_deadline_ends_a_wait(self):
        name = self.topic()
        self.assert_status(CODE.DEADLINE_EXCEEDED, self.broker.Consume,
                           broker_pb2.ConsumeRequest(topic=name, wait_ms=30000), timeout=0.3)
        self.produce(name, [b"x"]) # the poll that ended took nothing with it
        self.assertEqual(len(self.consume(name)), 1)

    def test_cancelled_consume_takes_nothing(self):
        name = self.topic()
        waiting = self.broker.Consume.future(
            broker_pb2.ConsumeRequest(topic=name, wait_ms=30000), timeout=PATIENCE)
        waiting.cancel()
        self.produce(name, [b"x"])
        self.assertEqual(len(self.consume(name)), 1)

    def test_consume_stream_answers_polls_by_id(self):
        name = self.topic()
        outgoing = Outgoing()
        responses = self.broker.ConsumeStream(outgoing, timeout=PATIENCE)
        polls = [broker_pb2.Poll(id=7, topic=name, max_messages=10, wait_ms=30000),
                 broker_pb2.Poll(id=8, topic="interop-none", max_messages=1)]
        outgoing.send(broker_pb2.ConsumeStreamRequest(polls=polls))
        refused = next(responses).results[0]
        self.assertEqual((refused.id, refused.code), (8, 5))
        self.produce(name, [b"x"])
        found = next(responses).results[0]
        self.assertEqual((found.id, found.code, len(found.messages)), (7, 0, 1))
        outgoing.send(broker_pb2.ConsumeStreamRequest(
            polls=[broker_pb2.Poll(id=9, topic=name, max_messages=1, wait_ms=30000)]))
        outgoing.send(broker_pb2.ConsumeStreamRequest(cancel_ids=[9]))
        cancelled = next(responses).results[0]
        self.assertEqual((cancelled.id, len(cancelled.messages)), (9, 0))
        outgoing.close()
        self.assertEqual(list(responses), [])

    # --- subscribe ---

    def test_subscribe_delivers_settles_and_keeps_its_limit(self):
        count, limit = 500, 20
        name = self.topic()
        self.produce(name, [str(i).encode() for i in range(count)])
        outgoing = Outgoing()
        responses = self.broker.Subscribe(outgoing, timeout=PATIENCE)
        outgoing.send(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=name, max_outstanding=limit)))
        payloads, delivered, settled = [], 0, 0
        for response in responses:
            delivered += len(response.messages)
            settled += len(response.results)
            self.assertLessEqual(delivered - settled, limit)
            self.assertEqual({result.code for result in response.results} - {0}, set())
            payloads += [message.payload for message in response.messages]
            if response.messages:
                outgoing.send(broker_pb2.SubscribeRequest(settles=[
                    broker_pb2.Settle(receipt_handle=message.receipt_handle)
                    for message in response.messages]))
            if settled == count:
                outgoing.close()
        self.assertEqual(sorted(payloads), sorted(str(i).encode() for i in range(count)))
        self.assertFalse(self.consume(name, wait_ms=0))

    def test_closed_subscription_gives_its_leases_back(self):
        name = self.topic()
        self.produce(name, [b"x"])
        outgoing = Outgoing()
        responses = self.broker.Subscribe(outgoing, timeout=PATIENCE)
        outgoing.send(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic=name, max_outstanding=5)))
        self.assertEqual(len(next(responses).messages), 1)
        responses.cancel()
        again = self.consume(name, wait_ms=30000)
        self.assertEqual((len(again), again[0].delivery_attempt), (1, 2))

    def test_subscribe_to_nothing_is_refused(self):
        outgoing = Outgoing()
        responses = self.broker.Subscribe(outgoing, timeout=PATIENCE)
        outgoing.send(broker_pb2.SubscribeRequest(
            start=broker_pb2.SubscribeStart(topic="interop-none")))
        self.assert_status(CODE.NOT_FOUND, lambda timeout: next(responses))

    # --- replay ---

    def test_replay_reads_without_taking(self):
        name = self.topic()
        records = [types_pb2.Record(payload=str(i).encode(), partition=1) for i in range(300)]
        self.broker.Produce(broker_pb2.ProduceRequest(topic=name, records=records),
                            timeout=PATIENCE)
        for _ in range(2):
            responses = self.broker.Replay(
                broker_pb2.ReplayRequest(topic=name, partition=1, offset=100), timeout=PATIENCE)
            messages = [message for response in responses for message in response.messages]
            self.assertEqual([message.offset for message in messages], list(range(100, 300)))
            self.assertEqual({message.receipt_handle for message in messages}, {""})
        responses = self.broker.Replay(
            broker_pb2.ReplayRequest(topic=name, partition=1, max_messages=5), timeout=PATIENCE)
        self.assertEqual(sum(len(response.messages) for response in responses), 5)
        self.assertEqual(len(self.consume(name, count=10)), 10)

    def test_replay_errors_have_their_status(self):
        name = self.topic()
        for code, request in (
            (CODE.NOT_FOUND, broker_pb2.ReplayRequest(topic="interop-none")),
            (CODE.INVALID_ARGUMENT, broker_pb2.ReplayRequest(topic=name, partition=3)),
        ):
            self.assert_status(code, lambda timeout, r=request: list(
                self.broker.Replay(r, timeout=timeout)))

    # --- the wire ---

    def test_unknown_methods_are_unimplemented(self):
        for path in ("/narad.v1.Broker/Nope", "/narad.v9.Broker/Produce", "/nonsense"):
            call = self.channel.unary_unary(path)
            details = self.assert_status(CODE.UNIMPLEMENTED, call, b"")
            self.assertIn(path, details)

    def test_garbage_is_an_invalid_argument(self):
        name = self.topic()
        whole = broker_pb2.ProduceRequest(
            topic=name, records=[types_pb2.Record(payload=b"x" * 50)]).SerializeToString()
        for path in ("Broker/Produce", "Broker/Consume", "Broker/Ack", "Admin/CreateTopic"):
            call = self.channel.unary_unary(f"/narad.v1.{path}")
            self.assert_status(CODE.INVALID_ARGUMENT, call, b"\x0a\xff\xff\xff\xff\x0f")
        call = self.channel.unary_unary("/narad.v1.Broker/Produce")
        self.assert_status(CODE.INVALID_ARGUMENT, call, whole[:-10])
        for path in ("ProduceStream", "ConsumeStream", "Subscribe"):
            stream = self.channel.stream_stream(f"/narad.v1.Broker/{path}")
            self.assert_status(CODE.INVALID_ARGUMENT, lambda timeout, s=stream: list(
                s(iter([b"\x0a\xff\xff"]), timeout=timeout)))
        self.assertFalse(self.consume(name, wait_ms=0))

    def test_oversize_is_refused_and_the_connection_lives(self):
        request = admin_pb2.GetTopicRequest(name="x" * (5 * MIB))
        self.assert_status(CODE.RESOURCE_EXHAUSTED, self.admin.GetTopic, request)
        self.assert_status(CODE.RESOURCE_EXHAUSTED, self.broker.Produce,
                           broker_pb2.ProduceRequest(topic="x" * (21 * MIB)))
        self.assertTrue(self.admin.Version(admin_pb2.VersionRequest(), timeout=PATIENCE).version)

    def test_many_calls_at_once(self):
        name = self.topic()
        waiting = [self.broker.Produce.future(
            broker_pb2.ProduceRequest(
                topic=name, records=[types_pb2.Record(payload=str(i).encode())]),
            timeout=PATIENCE) for i in range(1000)]
        self.assertEqual(sum(len(call.result().placements) for call in waiting), 1000)

    def test_client_that_goes_away_leaves_no_lease_behind(self):
        name = self.topic()
        with grpc.insecure_channel(TARGET, options=[("grpc.use_local_subchannel_pool", 1)]) as other:
            stub = broker_pb2_grpc.BrokerStub(other)
            for _ in range(20):
                stub.Consume.future(broker_pb2.ConsumeRequest(topic=name, wait_ms=30000))
        self.wait_alone()
        self.produce(name, [b"x"])
        self.assertEqual(len(self.consume(name)), 1)

    def wait_alone(self):
        """Until the node has no open call but the one that asks."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            text = self.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
            if "\nnarad_grpc_requests_in_flight 1\n" in text:
                return
            threading.Event().wait(0.01)
        self.fail("calls of a client that is gone stay open")

    # --- the node ---

    def test_version_metrics_and_bench(self):
        version = self.admin.Version(admin_pb2.VersionRequest(), timeout=PATIENCE)
        self.assertTrue(version.dev and version.version and version.node_id)
        text = self.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        self.assertIn('narad_grpc_requests_total{method="/narad.v1.Admin/Version",code="0"}', text)
        bench = bench_pb2_grpc.BenchStub(self.channel)
        reply = bench.Produce(broker_pb2.ProduceRequest(
            topic="any", records=[types_pb2.Record(payload=b"x")]), timeout=PATIENCE)
        self.assertIsInstance(reply, broker_pb2.ProduceResponse)

    def test_health_answers_and_watches(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "narad.v1.Broker", "narad.v1.Admin"):
            request = health_pb2.HealthCheckRequest(service=service)
            self.assertEqual(stub.Check(request, timeout=PATIENCE).status, serving)
        self.assert_status(CODE.NOT_FOUND, stub.Check,
                           health_pb2.HealthCheckRequest(service="narad.v1.Nope"))
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        self.assertEqual(next(watch).status, serving)
        watch.cancel()

    def test_reflection_describes_the_services(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        request = reflection_pb2.ServerReflectionRequest
        listed, found, missing = stub.ServerReflectionInfo(iter([
            request(list_services=""),
            request(file_containing_symbol="narad.v1.Broker.Subscribe"),
            request(file_by_filename="narad/v1/nope.proto"),
        ]), timeout=PATIENCE)
        names = {service.name for service in listed.list_services_response.service}
        self.assertLessEqual({"narad.v1.Broker", "narad.v1.Admin", "grpc.health.v1.Health"}, names)
        pool = descriptor_pool.DescriptorPool()
        for data in reversed(found.file_descriptor_response.file_descriptor_proto):
            pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
        service = pool.FindServiceByName("narad.v1.Broker")
        self.assertEqual({method.name for method in service.methods},
                         {method.name for method in
                          broker_pb2.DESCRIPTOR.services_by_name["Broker"].methods})
        self.assertEqual(missing.error_response.error_code, CODE.NOT_FOUND.value[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
