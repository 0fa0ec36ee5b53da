#!/usr/bin/python3
"""narad sub: prints, acks, ends when it should, and outlives its node."""

import json
import signal
import subprocess
import unittest

from command import Case, Node, PATIENCE, wait_until

PIPES = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Sub(Case):
    def fill(self, topic, count, *options):
        self.run_ok("produce", topic, "--lines", *options, stdin=b"".join(b"%d\n" % i for i in range(count)))

    def left(self, topic):
        """Messages that are not acked."""
        details = self.run_ok("topics", "get", topic, "--json").json()
        return sum(stats["high_watermark"] - stats["frontier"] for stats in details["partition_stats"])

    def test_count_takes_so_many_and_acks_them(self):
        topic = self.topic()
        self.fill(topic, 1000)
        result = self.run_ok("sub", topic, "--count", "400", "--raw")
        first = result.out.split()
        self.assertEqual(len(set(first)), 400)
        self.assertIn("400 messages, 400 acked in ", result.err)
        second = self.run_ok("sub", topic, "-n", "600", "--raw", "--max-outstanding", "10").out.split()
        self.assertEqual(sorted(first + second, key=int), [str(i) for i in range(1000)])
        self.assertEqual(self.left(topic), 0)

    def test_idle_ends_it(self):
        topic = self.topic()
        self.fill(topic, 5, "--partition", "1")
        messages = []
        while len(messages) < 5:  # on a slow machine it is idle before the first comes
            lines = self.run_ok("sub", topic, "--idle", "200ms", "--json").out.splitlines()
            messages += [json.loads(line) for line in lines]
        self.assertEqual([message["payload"] for message in messages], [0, 1, 2, 3, 4])
        self.assertEqual(list(messages[0]), ["topic", "partition", "offset", "payload", "timestamp",
                                             "receipt_handle", "delivery_attempt"])
        result = self.run_ok("sub", topic, "--idle", "100ms")
        self.assertIn("0 messages, 0 acked", result.err)
        self.fails(1, "sub", topic, "--idle", "100ms", "--count", "1", text="0 of 1 messages came")

    def test_no_ack_leaves_them_there(self):
        topic = self.topic()
        self.fill(topic, 20, "--partition", "1")
        result = self.run_ok("sub", topic, "--no-ack", "--count", "20")
        self.assertRegex(result.out.splitlines()[0], r"^\[p1 @0\] \S+ 0$")
        self.assertEqual(len(result.out.splitlines()), 20)
        self.assertEqual(self.left(topic), 20)
        self.assertEqual(len(self.run_ok("sub", topic, "--count", "20", "--raw").out.split()), 20)
        self.assertEqual(self.left(topic), 0)

    def test_one_partition_only(self):
        topic = self.topic()
        self.fill(topic, 3, "--partition", "0")
        self.fill(topic, 4, "--partition", "2")
        self.assertEqual(self.run_ok("sub", topic, "--partition", "2", "--count", "4", "--raw").out,
                         "0\n1\n2\n3\n")
        self.assertEqual(self.run_ok("sub", topic, "--partition", "2", "--idle", "1s", "--raw").out, "")
        self.assertEqual(self.left(topic), 3)
        self.fails(1, "sub", topic, "--partition", "3", text="partition out of range: 3")
        asked = self.fails(1, "sub", "missing", text='NOT_FOUND: topic not found: "missing"')
        self.assertEqual(asked.err.count("\n"), 1)  # and nothing about messages

    def test_messages_are_written_as_they_come_and_an_interrupt_ends_it(self):
        for options in ((), ("--json",), ("--raw",), ("--no-ack",)):
            topic = self.topic() if options == () else "other" + options[0]
            if options:
                self.run_ok("topics", "create", topic)
            process = self.open("sub", topic, *options, **PIPES)
            self.run_ok("produce", topic, stdin=b"now")
            self.assertIn(b"now", process.stdout.readline())
            if options != ("--no-ack",):
                wait_until(lambda: self.left(topic) == 0, "it is acked")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=PATIENCE), 0)
            self.assertIn(b"1 messages, ", process.stderr.read())

    def test_what_was_not_printed_is_not_acked(self):
        topic = self.topic()
        self.fill(topic, 3)
        with open("/dev/full", "wb") as full:
            process = self.open("sub", topic, "--count", "3", stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(process.wait(timeout=PATIENCE), 1)
        self.assertIn(b"narad: standard output: ", process.stderr.read())
        self.assertEqual(self.left(topic), 3)
        with open("/dev/full", "wb") as full:
            process = self.open("consume", topic, "--ack", stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(process.wait(timeout=PATIENCE), 1)
        self.assertEqual(self.left(topic), 3)


class Restart(Case):
    """The node goes away and comes back."""

    def setUp(self):
        super().setUp()
        self.node = Node()
        self.addCleanup(self.node.stop)

    def lines(self, first, last):
        return b"".join(b"%d\n" % i for i in range(first, last))

    def test_a_subscription_goes_on(self):
        topic = self.topic()
        path = self.file(b"", "out")
        with open(path, "wb") as out:
            process = self.open("sub", topic, "--raw", "--reconnect", "2m", stdout=out,
                                stderr=subprocess.PIPE)
        self.run_ok("produce", topic, "--lines", stdin=self.lines(0, 500))

        def seen():
            with open(path, "rb") as file:
                return set(file.read().split())

        wait_until(lambda: len(seen()) == 500, "the first five hundred came")
        self.node.kill()
        self.node.restart()
        self.run_ok("produce", topic, "--lines", stdin=self.lines(500, 1000))
        wait_until(lambda: len(seen()) == 1000, "the rest came from the node's second life")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE), 0, process.stderr.read())

    def test_it_gives_up_when_the_node_stays_away(self):
        topic = self.topic()
        process = self.open("sub", topic, "--reconnect", "300ms", **PIPES)
        self.run_ok("produce", topic, stdin=b"one")
        self.assertIn(b"one", process.stdout.readline())
        self.node.kill()
        self.assertEqual(process.wait(timeout=PATIENCE), 1)
        self.assertIn(b"narad: sub: UNAVAILABLE: ", process.stderr.read())
        self.node.restart()


if __name__ == "__main__":
    unittest.main()
