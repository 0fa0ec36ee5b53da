#!/usr/bin/python3
"""A call of the disk that never returns: SIGTERM ends the node all the same, with a line that says which call it was.
Nothing that was confirmed is lost."""

import json
import threading
import unittest

from faults import FDATASYNC, PWRITE, SUBMIT, SYNCFS, Faults
from nodes import PATIENCE, Node, broker_pb2, status_of, types_pb2, wait_until

SETTINGS = {"NARAD_HTTP_SHUTDOWN_GRACE": "1s", "NARAD_HTTP_MAX_CONSUME_WAIT": "1s", "NARAD_LOG_FORMAT": "json"}


class StuckDisk(unittest.TestCase):
    def setUp(self):
        self.faults = Faults()
        self.addCleanup(self.faults.close)
        self.node = Node(**self.faults.env, **SETTINGS)
        self.addCleanup(self.node.close)
        self.node.create("t")

    def in_background(self, call):
        """One that may never be answered. Its outcomes are in the list."""
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.append(status_of(call)[0]))
        thread.start()
        self.addCleanup(thread.join)
        return outcomes

    def stop(self, call, path):
        """It gives up, and says so."""
        self.node.terminate()
        self.assertEqual(self.node.wait(), 1, self.node.log())
        lines = [json.loads(line) for line in self.node.log().splitlines() if line.startswith("{")]
        told = [line for line in lines if line["msg"].startswith("stop given up")]
        self.assertEqual(len(told), 1, self.node.log())
        self.assertEqual(told[0]["level"].lower(), "error")
        self.assertIn(call, told[0]["waits_for"])
        self.assertIn(path, told[0]["waits_for"])
        self.faults.disarm()

    def names(self):
        return [bytes(m.payload) for m in self.node.take_all("t")]

    def test_the_logs_sync(self):
        self.node.produce("t", b"confirmed")
        self.faults.arm(FDATASYNC, "/wal/", error=0)
        outcomes = self.in_background(lambda: self.node.produce("t", b"not confirmed"))
        wait_until(self.faults.fired, "the sync hangs")
        self.assertEqual(outcomes, [])
        self.stop("fdatasync", "/wal/")
        self.node.start()
        found = self.names()
        self.assertEqual(found.count(b"confirmed"), 1)
        self.assertLessEqual(found.count(b"not confirmed"), 1)
        self.assertEqual(len(found), found.count(b"confirmed") + found.count(b"not confirmed"))

    def test_a_segments_write_of_the_stop_itself(self):
        names = [b"%d" % i for i in range(50)]
        self.node.produce("t", *names)
        self.faults.arm(PWRITE, ".log", error=0)
        self.stop("pwrite", "/topics/t/")
        self.assertGreater(self.faults.fired(), 0)
        self.node.start()
        self.assertEqual(sorted(self.names()), sorted(names))

    def test_a_sync_of_the_file_system(self):
        self.node.create("wide", partitions=40)
        records = [types_pb2.Record(payload=b"y" * 1000, partition=p) for p in range(40)]
        self.node.broker.Produce(broker_pb2.ProduceRequest(topic="wide", records=records), timeout=PATIENCE)
        self.faults.arm(SYNCFS, error=0)
        self.stop("syncfs", "/data/")
        self.node.start()
        self.assertEqual(len(self.node.take_all("wide")), 40)

    def test_the_metadata(self):
        self.node.produce("t", b"confirmed")
        self.faults.arm(SUBMIT, "/metastore/", error=0)
        self.in_background(lambda: self.node.create("perhaps"))
        wait_until(self.faults.fired, "a write of the metadata hangs")
        self.node.produce("t", b"confirmed too")  # the data's way is another
        self.stop("the end of", "open gRPC calls")
        self.node.start()
        self.assertEqual(sorted(self.names()), [b"confirmed", b"confirmed too"])


if __name__ == "__main__":
    unittest.main()
