#!/usr/bin/python3
"""The metadata on a disk that something else fills up (W6): the ballast, and what a start needs."""

import json
import os
import subprocess
import unittest

import small_disk
from nodes import CODE, NARAD, PATIENCE, Node, environment, status_of, wait_until

MIB = 1 << 20
BALLAST = 32 * MIB
SMALL = {"storage": {"wal_file_bytes": 4 * MIB, "wal_keep_bytes": 8 * MIB, "disk_reserve_bytes": 8 * MIB}}


class MetadataRoom(unittest.TestCase):
    def ballast(self, node):
        path = node.path("data/metastore/raft/ballast")
        try:
            return os.stat(path).st_blocks * 512
        except FileNotFoundError:
            return 0

    def refused(self, node, accepted):
        """Is a produce refused? The log looks at the disk now and then, so some may pass before."""
        code, text = status_of(lambda: node.produce("orders", b"one more"))
        if code == CODE.OK:
            accepted.append(b"one more")
            return False
        self.assertEqual((code, text), (CODE.RESOURCE_EXHAUSTED, "disk full"))
        return True

    def disk(self, mib):
        disk = small_disk.SmallDisk(mib)
        self.addCleanup(disk.close)
        return disk

    def test_no_node_stops_for_it_and_freed_room_heals(self):
        disk = self.disk(300)
        config = os.path.join(disk.path, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(SMALL, file)
        directory = os.path.join(disk.path, "node")
        os.mkdir(directory)
        with Node(directory, flags=["--config", config]) as node:
            self.full(node, disk)

    def full(self, node, disk):
        payloads = [b"record %d" % i for i in range(20)]
        node.create("orders")
        node.produce("orders", *payloads)
        wait_until(lambda: self.ballast(node) >= BALLAST, "the ballast is made")
        disk.fill()

        wait_until(lambda: self.refused(node, payloads), "produce is refused")
        node.create("while-full")  # the segment in use has room
        taken = list(node.consume("orders", most=5))
        node.ack("orders", *[m.receipt_handle for m in taken])

        # A start needs a new segment of the metadata log: the ballast gives it.
        node.stop()
        disk.fill()
        node.start()
        self.assertEqual(self.ballast(node), 0)
        node.create("after-start")
        rest = node.take_all("orders")
        self.assertEqual(sorted(m.payload for m in taken + rest), sorted(payloads))

        disk.fill()
        process = node.process.pid
        disk.empty()
        wait_until(lambda: self.ballast(node) >= BALLAST, "the ballast is made again")
        wait_until(lambda: status_of(lambda: node.produce("orders", b"again"))[0] == CODE.OK,
                   "produce is taken again")
        node.create("at-last")
        self.assertEqual([m.payload for m in node.take_all("orders")][-1], b"again")
        self.assertEqual((node.process.pid, node.process.poll()), (process, None))
        wait_until(lambda: node.log().count("ballast made") == 2, "the log says so")
        self.assertEqual(node.log().count("ballast given back to a full disk"), 1)

    def test_a_disk_too_small_for_a_start_is_named_with_what_is_needed(self):
        # Which of the two logs is the first without room depends on the size.
        needed = r"needs \d+ free bytes to start|\d+ bytes are free in .*, \d+ are needed"
        for mib in (2, 4, 7, 24):
            with self.subTest(mib=mib):
                disk = self.disk(mib)
                data = os.path.join(disk.path, "data")
                result = subprocess.run(
                    [NARAD, "serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--data-dir", data],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                    env=environment(), check=False)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(data, result.stderr)
                self.assertRegex(result.stderr, needed)


if __name__ == "__main__":
    small_disk.require()
    unittest.main()
