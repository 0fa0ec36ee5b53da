#!/usr/bin/python3
"""narad produce --lines: every line once, in order, and the truth about what was confirmed."""

import os
import re
import signal
import subprocess
import threading
import unittest

from command import Case, Node, PATIENCE, wait_until

MIB = 1 << 20
REPORT = re.compile(r"(\d+) of (\d+) lines confirmed in [0-9.]+ s \(\d+/s\)")


class Lines(Case):
    def report(self, result):
        found = REPORT.search(result.err)
        self.assertIsNotNone(found, result)
        return int(found.group(1)), int(found.group(2))

    def test_every_line_is_a_message(self):
        topic = self.topic()
        lines = [b"line %d" % i for i in range(3000)]
        result = self.run_ok("produce", topic, self.file(b"\n".join(lines)), "--lines")
        self.assertEqual(self.report(result), (3000, 3000))
        partitions = self.stored(topic)
        self.assertEqual(sorted(sum(partitions.values(), [])), sorted(lines))
        self.assertTrue(all(partitions.values()), "without a key they spread")

    def test_a_key_keeps_their_order(self):
        topic = self.topic()
        lines = [b"%d" % i for i in range(2000)]
        self.run_ok("produce", topic, "--lines", "--key", "customer-42", stdin=b"\n".join(lines) + b"\n")
        self.assertEqual(self.stored(topic), {0: [], 1: lines, 2: []})

    def test_batches_keep_their_order(self):
        topic = self.topic()
        lines = [b"%d" % i for i in range(2550)]
        answer = self.run_ok("produce", topic, "--lines", "--batch", "100", "--partition", "2", "--json",
                             stdin=b"\n".join(lines)).json()
        self.assertEqual((answer["read"], answer["confirmed"]), (2550, 2550))
        self.assertGreater(answer["per_s"], 0)
        self.assertEqual(self.stored(topic)[2], lines)

    def test_empty_lines_are_skipped_and_counted(self):
        topic = self.topic()
        text = b"\na\n\n b\r\n\n\nc"
        result = self.run_ok("produce", topic, "--lines", "--partition", "0", stdin=text)
        self.assertEqual(self.report(result), (3, 3))
        self.assertIn("4 empty lines skipped", result.err)
        self.assertEqual(self.stored(topic)[0], [b"a", b" b\r", b"c"])
        answer = self.run_ok("produce", topic, "--lines", "--json").json()
        self.assertEqual((answer["read"], answer["confirmed"], answer["empty_lines_skipped"]), (0, 0, 0))

    def test_the_longest_line(self):
        topic = self.topic()
        longest = b"l" * MIB
        for batch in ("1", "1000"):
            self.run_ok("produce", topic, "--lines", "--partition", "0", "--batch", batch,
                        stdin=b"first\n" + longest + b"\nlast\n")
        self.assertTrue(self.stored(topic)[0] == [b"first", longest, b"last"] * 2)
        result = self.fails(1, "produce", topic, "--lines", "--partition", "1",
                            stdin=b"first\n\n" + longest + b"l\nlast\n",
                            text="line 3 has more than 1048576 bytes")
        self.assertEqual(self.report(result), (1, 1))
        self.assertEqual(self.stored(topic)[1], [b"first"])

    def test_input_that_cannot_be_read(self):
        topic = self.topic()
        self.fails(1, "produce", topic, os.path.join(self.scratch, "nowhere"), "--lines",
                   text="No such file or directory")
        self.fails(1, "produce", topic, self.scratch, "--lines", text="Is a directory")
        self.fails(1, "produce", "missing", "--lines", stdin=b"a\nb\n", text="NOT_FOUND: topic not found")

    def test_an_interrupt_says_what_was_confirmed(self):
        topic = self.topic()
        process = self.open("produce", topic, "--lines", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
        process.stdin.write(b"".join(b"%d\n" % i for i in range(1000)))
        process.stdin.flush()
        wait_until(lambda: self.count(topic) >= 1000, "a thousand lines are stored")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE), 1)
        told = process.stderr.read().decode()
        self.assertIn("1000 of 1000 lines confirmed", told)
        self.assertIn("narad: produce: interrupted after line 1000\n", told)


class Broken(Case):
    """The node dies in the middle."""

    def setUp(self):
        super().setUp()
        self.node = Node()
        self.addCleanup(self.node.stop)

    @staticmethod
    def write(pipe, stop):
        number = 0
        try:
            while not stop.is_set():
                pipe.write(b"".join(b"%d\n" % (number + i) for i in range(1, 51)))
                pipe.flush()
                number += 50
        except BrokenPipeError:
            pass

    def test_what_was_confirmed_is_there_after_kill_9(self):
        topic = self.topic()
        process = self.open("produce", topic, "--lines", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
        stop = threading.Event()
        writer = threading.Thread(target=self.write, args=(process.stdin, stop))
        writer.start()
        try:
            # The client sends 4096 lines ahead of their confirmations and not one more.
            wait_until(lambda: self.count(topic) >= 6000, "six thousand lines are stored")
            self.node.kill()
            self.assertEqual(process.wait(timeout=PATIENCE), 1)
        finally:
            stop.set()
            if process.poll() is None:
                process.kill()
            writer.join()
        told = process.stderr.read().decode()
        found = REPORT.search(told)
        self.assertIsNotNone(found, told)
        confirmed, read = int(found.group(1)), int(found.group(2))
        first = re.search(r"UNAVAILABLE: .*\(line (\d+) is the first that is not confirmed\)", told)
        self.assertIsNotNone(first, told)
        self.assertGreaterEqual(confirmed, 6000 - 4096)
        self.assertLess(confirmed, read)
        self.assertEqual(int(first.group(1)), confirmed + 1)
        self.node.restart()
        stored = sum(self.stored(topic).values(), [])
        self.assertEqual(len(stored), len(set(stored)), "no line twice")
        missing = {b"%d" % i for i in range(1, confirmed + 1)} - set(stored)
        self.assertEqual(missing, set())
        self.assertLessEqual(len(stored), read)


if __name__ == "__main__":
    unittest.main()
