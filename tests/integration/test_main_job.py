#!/usr/bin/python3
"""What a broker is for: produce, consume, ack, replay, over the unary calls."""

import unittest


from nodes import CODE, PATIENCE, Node, admin_pb2, broker_pb2, status_of, types_pb2


def fnv1a_32(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


class MainJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node()

    @classmethod
    def tearDownClass(cls):
        cls.node.close()

    def test_every_record_comes_back_unchanged_and_once(self):
        self.node.create("all")
        sent = {b"%d-" % i + bytes([i % 256]) * (i % 700 + 1) for i in range(3000)}
        batch = sorted(sent)
        for at in range(0, len(batch), 100):
            placements = self.node.produce("all", *batch[at:at + 100])
            self.assertEqual(len(placements), 100)

        taken = self.node.take_all("all")

        self.assertEqual(sorted(m.payload for m in taken), batch)
        self.assertEqual(self.node.in_flight("all"), 0)
        for p in self.node.stats("all"):
            self.assertEqual(p.frontier, p.high_watermark)

    def test_offsets_are_dense_and_times_never_decrease(self):
        self.node.create("dense")
        for i in range(60):
            self.node.produce("dense", b"x%d" % i)

        taken = self.node.take_all("dense")

        for partition in range(3):
            mine = [m for m in taken if m.partition == partition]
            self.assertEqual([m.offset for m in mine], list(range(len(mine))))
            times = [m.timestamp_ms for m in mine]
            self.assertEqual(times, sorted(times))
        self.assertEqual(sum(p.high_watermark for p in self.node.stats("dense")), 60)

    def test_key_headers_and_pins_are_kept(self):
        self.node.create("kept", partitions=4)
        headers = [types_pb2.Header(name="trace-id", value=b"\x00\xff"), types_pb2.Header(name="e")]
        keyed = self.node.produce("kept", b"1", key=b"customer-42", headers=headers)[0]
        pinned = self.node.produce("kept", b"2", key=b"customer-42", partition=3)[0]
        binary = self.node.produce("kept", bytes(range(256)), key=b"\x00\xfe")[0]

        self.assertEqual(keyed.partition, fnv1a_32(b"customer-42") % 4)
        self.assertEqual(pinned.partition, 3)
        self.assertEqual(binary.partition, fnv1a_32(b"\x00\xfe") % 4)
        by_payload = {m.payload: m for m in self.node.take_all("kept")}
        self.assertEqual(by_payload[b"1"].key, b"customer-42")
        self.assertEqual([(h.name, h.value) for h in by_payload[b"1"].headers],
                         [("trace-id", b"\x00\xff"), ("e", b"")])
        self.assertEqual(by_payload[b"2"].partition, 3)
        self.assertIn(bytes(range(256)), by_payload)

    def test_sizes_at_the_limits_pass(self):
        self.node.create("limits")
        headers = [types_pb2.Header(name="h%02d" % i, value=b"v" * 253) for i in range(64)]
        self.assertEqual(sum(len(h.name) + len(h.value) for h in headers), 16384)
        self.node.produce("limits", b"p" * (1 << 20), key=b"k" * 8192, headers=headers)
        self.node.produce("limits", *[b"x"] * 1000)

        taken = self.node.take_all("limits")

        self.assertEqual(len(taken), 1001)
        large = max(taken, key=lambda m: len(m.payload))
        self.assertEqual((len(large.payload), len(large.key), len(large.headers)), (1 << 20, 8192, 64))

    def test_lease_extend_nack_and_attempts(self):
        self.node.create("lease")
        self.node.produce("lease", b"one")
        first = self.node.consume("lease")[0]
        self.assertEqual(first.delivery_attempt, 1)
        self.assertEqual(len(self.node.consume("lease")), 0)
        self.assertEqual(self.node.extend("lease", first.receipt_handle)[0].code, 0)

        self.assertEqual(self.node.nack("lease", first.receipt_handle)[0].code, 0)
        second = self.node.consume("lease")[0]

        self.assertEqual(second.delivery_attempt, 2)
        self.assertNotEqual(first.receipt_handle, second.receipt_handle)
        for stale in (self.node.ack, self.node.nack, self.node.extend):
            self.assertEqual(stale("lease", first.receipt_handle)[0].code,
                             CODE.FAILED_PRECONDITION.value[0])
        self.assertEqual(self.node.ack("lease", second.receipt_handle)[0].code, 0)
        self.assertEqual(self.node.ack("lease", second.receipt_handle)[0].code,
                         CODE.FAILED_PRECONDITION.value[0])

    def test_an_expired_lease_is_delivered_again(self):
        self.node.create("expire", visibility_timeout_ms=200)
        self.node.produce("expire", b"one")
        first = self.node.consume("expire")[0]

        second = self.node.consume("expire", wait_ms=30000)[0]

        self.assertEqual((second.offset, second.delivery_attempt), (first.offset, 2))
        self.assertEqual(self.node.ack("expire", first.receipt_handle)[0].code,
                         CODE.FAILED_PRECONDITION.value[0])

    def test_a_waiting_poll_wakes_on_a_produce_and_on_a_nack(self):
        self.node.create("wake")
        waiting = self.node.broker.Consume.future(
            broker_pb2.ConsumeRequest(topic="wake", wait_ms=30000), timeout=PATIENCE)
        self.node.produce("wake", b"one")
        first = waiting.result().messages[0]
        waiting = self.node.broker.Consume.future(
            broker_pb2.ConsumeRequest(topic="wake", wait_ms=30000), timeout=PATIENCE)
        self.node.nack("wake", first.receipt_handle)
        self.assertEqual(waiting.result().messages[0].payload, b"one")

    def test_replay_reads_settled_records_and_leases_nothing(self):
        self.node.create("replay")
        for i in range(50):
            self.node.produce("replay", b"%d" % i, partition=1)
        self.node.take_all("replay")

        def replay(**members):
            request = broker_pb2.ReplayRequest(topic="replay", partition=1, **members)
            return [m for r in self.node.broker.Replay(request, timeout=PATIENCE) for m in r.messages]

        self.assertEqual([m.payload for m in replay()], [b"%d" % i for i in range(50)])
        self.assertEqual([m.offset for m in replay(offset=40, max_messages=5)], list(range(40, 45)))
        self.assertEqual(replay(offset=50), [])
        self.assertEqual({m.receipt_handle for m in replay()}, {""})
        self.assertEqual(self.node.in_flight("replay"), 0)

    def test_topics_page_alter_and_go(self):
        for name in ("pg-c", "pg-a", "pg-b"):
            self.node.create(name)

        def page(token):
            return self.node.admin.ListTopics(
                admin_pb2.ListTopicsRequest(limit=1, page_token=token), timeout=PATIENCE)

        first = page("pg-")
        second = page(first.next_page_token)
        self.assertEqual([first.topics[0].name, second.topics[0].name], ["pg-a", "pg-b"])
        self.assertEqual(second.next_page_token, "pg-b")
        altered = self.node.admin.AlterTopic(admin_pb2.AlterTopicRequest(
            name="pg-a", retention_ms=7200000, max_in_flight_per_partition=5, partitions=6), timeout=PATIENCE)
        self.assertEqual((altered.topic.retention_ms, altered.topic.partitions,
                          altered.topic.max_in_flight_per_partition,
                          altered.topic.max_acked_ahead_per_partition), (7200000, 6, 5, 1024))
        self.assertEqual(len(self.node.stats("pg-a")), 6)

    def test_a_deleted_name_starts_anew(self):
        old = self.node.create("again").topic
        self.node.produce("again", b"old", partition=0)
        self.node.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="again"), timeout=PATIENCE)
        gone = status_of(lambda: self.node.consume("again"))
        new = self.node.create("again").topic

        placement = self.node.produce("again", b"new", partition=0)[0]

        self.assertEqual(gone[0], CODE.NOT_FOUND)
        self.assertNotEqual(old.id, new.id)
        self.assertEqual(placement.offset, 0)
        self.assertEqual([m.payload for m in self.node.take_all("again")], [b"new"])

    def test_caps_hold_deliveries_back(self):
        self.node.create("caps", max_in_flight_per_partition=2)
        for i in range(5):
            self.node.produce("caps", b"%d" % i, partition=0)
        held = self.node.consume("caps", most=10)

        self.assertEqual(len(held), 2)
        self.assertEqual(len(self.node.consume("caps", most=10)), 0)
        self.node.ack("caps", held[0].receipt_handle)
        self.assertEqual(len(self.node.consume("caps", most=10)), 1)

    def test_metrics_and_version_speak(self):
        self.node.create("seen")
        self.node.produce("seen", b"123", partition=2)
        text = self.node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        version = self.node.admin.Version(admin_pb2.VersionRequest(), timeout=PATIENCE)

        self.assertIn('narad_messages_produced_total{topic="seen",partition="2"} 1', text)
        self.assertIn("narad_grpc_requests_total", text)
        self.assertIn("process_open_fds", text)
        self.assertTrue(version.dev)
        self.assertRegex(version.version, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
