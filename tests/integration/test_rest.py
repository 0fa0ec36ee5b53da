#!/usr/bin/python3
"""What is known of partitions that nobody touched since the start, and that looking leaves them closed."""

import os
import unittest

from nodes import PATIENCE, Node, admin_pb2, wait_until


class Rest(unittest.TestCase):
    def gauge(self, node, name):
        text = node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
        for line in text.splitlines():
            if line.split(" ")[0] == "narad_" + name:
                return float(line.split()[-1])
        raise AssertionError("no " + name)

    def segments(self, node):
        """Segment files that the process has open."""
        folder = f"/proc/{node.process.pid}/fd"
        links = []
        for fd in os.listdir(folder):
            try:
                links.append(os.readlink(os.path.join(folder, fd)))
            except FileNotFoundError:
                pass  # closed meanwhile
        return [link for link in links if "/topics/" in link]

    def facts(self, node, topic):
        return [(p.high_watermark, p.frontier, p.oldest_offset, p.acked_ahead, p.segments,
                 p.oldest_segment_at) for p in node.stats(topic)]

    def test_statistics_survive_a_restart_and_open_nothing(self):  # I-46
        with Node() as node:
            node.create("r", partitions=3)
            for i in range(30):
                node.produce("r", b"x" * 1000, partition=i % 3)
            held = []
            while len(held) < 30:  # what is on disk already comes frame by frame
                held += node.consume("r", most=30 - len(held))
            taken = [m for m in held if m.offset in (0, 1, 4)]
            node.ack("r", *[m.receipt_handle for m in taken])
            node.stop()  # what it held is in segments now
            node.start()
            before = self.facts(node, "r")
            self.assertEqual([f[:4] for f in before], [(10, 2, 0, 1)] * 3)
            self.assertEqual([f[4] for f in before], [1] * 3)
            self.assertTrue(all(p.size_bytes > 4096 for p in node.stats("r")))
            self.assertTrue(all(f[5] > 0 for f in before))
            for _ in range(5):
                self.assertEqual(self.facts(node, "r"), before)
            self.assertEqual(self.segments(node), [])
            self.assertEqual(self.gauge(node, "open_partition_logs"), 0)
            # The first use opens it, and only then.
            self.assertEqual(len(node.take_all("r")), 21)
            wait_until(lambda: self.gauge(node, "open_partition_logs") == 3, "the logs are open")
            self.assertEqual([f[:4] for f in self.facts(node, "r")], [(10, 10, 0, 0)] * 3)

    def test_a_changed_retention_is_taken_and_one_below_an_hour_refused(self):
        with Node() as node:
            node.create("a", retention_ms=7200000)
            node.produce("a", b"kept")
            node.admin.AlterTopic(admin_pb2.AlterTopicRequest(name="a", retention_ms=3600000),
                                  timeout=PATIENCE)
            self.assertEqual(len(node.take_all("a")), 1)  # what is young stays
            with self.assertRaisesRegex(Exception, "minimum of 3600000"):
                node.admin.AlterTopic(admin_pb2.AlterTopicRequest(name="a", retention_ms=3599999),
                                      timeout=PATIENCE)


if __name__ == "__main__":
    unittest.main()
