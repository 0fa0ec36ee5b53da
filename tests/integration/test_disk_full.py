#!/usr/bin/python3
"""A disk that is full, of others' bytes or of ours: produce says so, consume and ack go on, and room heals the
node without a restart (W6)."""

import json
import os
import tempfile
import unittest

import small_disk
from nodes import CODE, PATIENCE, Node, admin_pb2, status_of, wait_until

MIB = 1 << 20
RESERVE = 4 * MIB
CONFIG = {"storage": {"wal_file_bytes": 2 * MIB, "wal_keep_bytes": 4 * MIB, "disk_reserve_bytes": RESERVE,
                      "tail_memory_bytes": 64 * MIB, "codec": "none"}}


class DiskFull(unittest.TestCase):
    def setUp(self):
        self.disk = small_disk.SmallDisk(64)
        self.addCleanup(self.disk.close)
        self.config = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(self.config.close)
        json.dump(CONFIG, self.config)
        self.config.flush()
        directory = os.path.join(self.disk.path, "node")
        os.mkdir(directory)
        self.node = Node(directory, ["--config", self.config.name])
        self.addCleanup(self.node.close)
        self.node.create("t")

    def produce(self, size=1000, count=1):
        return status_of(lambda: self.node.produce("t", *[b"x" * size] * count))

    def expect_refused(self):
        """Free space is looked at once a second."""
        def refused():
            code, text = self.produce()
            if code == CODE.OK:
                return False
            self.assertEqual(code, CODE.RESOURCE_EXHAUSTED, text)
            self.assertIn("disk full", text)
            return True
        wait_until(refused, "produce is refused")

    def expect_healed(self):
        wait_until(lambda: self.produce()[0] == CODE.OK, "produce is taken again")

    def take_and_ack(self, count):
        messages = self.node.consume("t", most=count)
        self.assertGreater(len(messages), 0)
        for result in self.node.ack("t", *[m.receipt_handle for m in messages]):
            self.assertEqual(result.code, 0, result.error)
        return len(messages)

    def test_produce_is_refused_and_the_rest_goes_on(self):
        for _ in range(10):
            self.assertEqual(self.produce(count=20)[0], CODE.OK)
        self.disk.fill()
        self.expect_refused()

        taken = sum(self.take_and_ack(10) for _ in range(10))

        self.assertEqual(self.produce()[0], CODE.RESOURCE_EXHAUSTED)
        self.disk.empty()
        self.expect_healed()
        # What was acked stays acked, also over a death with a full disk.
        self.disk.fill()
        self.expect_refused()
        taken += self.take_and_ack(10)
        self.node.kill()
        self.disk.empty()
        self.node.start()
        while True:
            messages = self.node.consume("t", most=1000)
            if not messages:
                break
            taken += len(messages)
            self.node.ack("t", *[m.receipt_handle for m in messages])
        self.assertEqual(taken, sum(p.high_watermark for p in self.node.stats("t")))

    def test_the_flusher_meets_it_first(self):
        # More in memory than the disk has room for beside the log: flushes fail, nothing is lost.
        self.disk.fill(leave=RESERVE + 8 * MIB)
        sent = 0
        while True:
            code, text = self.produce(size=100000, count=10)
            if code != CODE.OK:
                self.assertEqual(code, CODE.RESOURCE_EXHAUSTED, text)
                break
            sent += 10
        self.assertGreater(sent, 0)
        self.disk.fill()
        taken = self.take_and_ack(5)
        self.disk.empty()

        self.expect_healed()

        self.assertEqual(self.produce(size=100000, count=10)[0], CODE.OK)
        # The flusher takes what it could not: all but what each partition may still keep in memory.
        wait_until(lambda: self.stored() >= (sent + 10) * 100000 - 3 * (2 << 20), "segments are written")
        taken += len(self.node.take_all("t"))
        self.assertEqual(taken, sum(p.high_watermark for p in self.node.stats("t")))

    def stored(self):
        """Bytes in segments."""
        return sum(os.stat(os.path.join(folder, name)).st_size
                   for folder, _, names in os.walk(self.node.path("data/topics"))
                   for name in names if name.endswith(".log"))

    def test_ours_fill_it_and_a_deleted_topic_frees_it(self):
        self.node.create("big")
        def fill():
            return status_of(lambda: self.node.produce("big", *[b"x" * 100000] * 10))
        while (refusal := fill())[0] == CODE.OK:
            pass
        self.assertEqual(refusal[0], CODE.RESOURCE_EXHAUSTED, refusal[1])
        self.node.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="big"), timeout=PATIENCE)
        self.expect_healed()
        self.take_and_ack(1)

    def test_metadata_meets_it_first(self):
        self.disk.fill()
        made = 0

        def create():
            return status_of(lambda: self.node.create(f"more-{made}", partitions=100))
        while made < 200 and (refusal := create())[0] == CODE.OK:
            made += 1
        if made < 200:  # else all of it found room in what the metadata had allocated
            self.assertIn(refusal[0], (CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE), refusal[1])
            self.assertNotEqual(refusal[1], "")
        self.assertEqual(self.node.in_flight("t"), 0)  # it answers
        self.disk.empty()
        wait_until(lambda: create()[0] in (CODE.OK, CODE.ALREADY_EXISTS), "topics can be made again")
        self.expect_healed()
        self.node.kill()
        self.node.start()
        for i in range(0, made, 37):
            self.assertEqual(self.node.in_flight(f"more-{i}"), 0)


if __name__ == "__main__":
    small_disk.require()
    unittest.main()
