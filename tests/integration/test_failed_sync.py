#!/usr/bin/python3
"""A sync or a write that fails once, on the log, on a segment, of the whole file system or of the metadata: what
was promised is kept, the node heals without a restart, and it starts again after kill -9 (W5, F2, F3)."""

import errno
import unittest

from faults import FDATASYNC, FSYNC, PWRITE, SYNCFS, Faults
from nodes import CODE, PATIENCE, Node, broker_pb2, status_of, types_pb2, wait_until

UNKNOWN = (CODE.UNKNOWN, CODE.UNAVAILABLE, CODE.ABORTED)


class FailedSync(unittest.TestCase):
    def setUp(self):
        self.faults = Faults()
        self.addCleanup(self.faults.close)
        self.node = Node(**self.faults.env)
        self.addCleanup(self.node.close)
        self.node.create("t")
        self.confirmed, self.sent, self.acked = set(), set(), set()

    def produce(self, count=1, size=100):
        names = [b"%d " % (len(self.sent) + i) for i in range(count)]
        self.sent.update(names)
        code, text = status_of(lambda: self.node.produce("t", *[n.ljust(size, b".") for n in names]))
        if code == CODE.OK:
            self.confirmed.update(names)
        return code, text

    def take(self, most=1000):
        messages = self.node.consume("t", most=most)
        for m in messages:
            name = bytes(m.payload).split(b".")[0]
            self.assertIn(name, self.sent)
            self.assertNotIn(name, self.acked)
        if messages:
            results = self.node.ack("t", *[m.receipt_handle for m in messages])
            for m, result in zip(messages, results):
                if result.code == 0:
                    self.acked.add(bytes(m.payload).split(b".")[0])
        return len(messages)

    def produce_until_fired(self, **how):
        """Until the fault was met; then until produce works again, with the process that was there."""
        process = self.node.process.pid
        outcomes = set()

        def met():
            outcomes.add(self.produce(**how)[0])
            return self.faults.fired() > 0
        wait_until(met, "the fault is met")
        wait_until(lambda: self.produce(**how)[0] == CODE.OK, "produce works again")
        self.assertEqual(self.node.process.pid, process)
        return outcomes - {CODE.OK}

    def check_all(self):
        """After kill -9, too: all that was confirmed is there once, and no more than was sent."""
        for _ in range(2):
            self.node.kill()
            self.node.start()
            self.produce(count=3)
        while self.take():
            pass
        self.assertGreater(len(self.acked), 0)
        self.assertLessEqual(self.confirmed, self.acked)
        self.assertLessEqual(self.acked, self.sent)
        self.assertEqual(self.node.in_flight("t"), 0)

    def test_the_logs_sync(self):
        for _ in range(3):
            self.produce(count=10)
            self.faults.arm(FDATASYNC, "/wal/")
            outcomes = self.produce_until_fired()
            self.assertLessEqual(outcomes, {*UNKNOWN})
            self.take(most=5)
        self.check_all()

    def test_the_logs_write(self):
        for error in (errno.EIO, errno.ENOSPC):
            self.produce(count=10)
            self.faults.arm(PWRITE, "/wal/", error=error)
            self.produce_until_fired()
        self.check_all()

    def test_a_sync_of_acks(self):
        def acks_meet_it():
            """The flusher's checkpoint may meet it before them."""
            self.produce(count=50)
            messages = self.node.consume("t", most=20)
            self.faults.arm(FDATASYNC, "/wal/")
            results = self.node.ack("t", *[m.receipt_handle for m in messages])
            if all(r.code != 0 for r in results):
                return messages
            self.assertEqual({r.code for r in results}, {0})
            self.acked.update(bytes(m.payload).split(b".")[0] for m in messages)
            return None
        messages = wait_until(acks_meet_it, "the acks meet it")
        self.assertGreater(self.faults.fired(), 0)

        def acked():
            again = self.node.ack("t", *[m.receipt_handle for m in messages])
            return all(r.code == 0 for r in again)
        wait_until(acked, "the same leases can be acked")
        for m in messages:
            self.acked.add(bytes(m.payload).split(b".")[0])
        self.check_all()

    def test_a_segments_sync(self):
        self.faults.arm(FDATASYNC, ".log")
        outcomes = self.produce_until_fired(count=20, size=50000)
        self.assertEqual(outcomes, set())  # it is behind: nobody's business
        self.check_all()

    def test_a_segments_write(self):
        for error in (errno.EIO, errno.ENOSPC):
            self.faults.arm(PWRITE, ".log", error=error)
            self.assertEqual(self.produce_until_fired(count=20, size=50000), set())
        self.check_all()

    def test_a_sync_of_the_file_system(self):
        """Where a round opens or writes many logs: it fails, and each is asked for its own."""
        self.node.create("wide", partitions=40)
        records = [types_pb2.Record(payload=b"y" * 60000, partition=p) for p in range(40)]
        self.faults.arm(SYNCFS)
        # In one batch: whichever round takes them, it takes them all.
        self.node.broker.Produce(broker_pb2.ProduceRequest(topic="wide", records=records), timeout=PATIENCE)
        self.node.stop()  # flushes them at the latest
        self.assertEqual(self.faults.fired(), 1)
        self.node.start()
        self.assertEqual(len(self.node.take_all("wide")), 40)
        self.produce(count=10)
        self.check_all()

    def test_the_metadatas_sync(self):
        self.faults.arm(FDATASYNC | FSYNC | PWRITE, "/metastore/")
        made = [0]

        def create():
            made[0] += 1
            return status_of(lambda: self.node.create(f"m-{made[0]}"))[0]
        outcomes = []

        def met():
            outcomes.append(create())
            return self.faults.fired() > 0
        wait_until(met, "the fault is met")
        self.assertEqual(self.produce()[0], CODE.OK)  # the data's way is another
        wait_until(lambda: create() == CODE.OK, "topics can be made again")
        self.check_all()


if __name__ == "__main__":
    unittest.main()
