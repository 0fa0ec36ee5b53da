#!/usr/bin/python3
"""narad produce: one message, any bytes, where it was asked to go."""

import os
import unittest

from command import Case

MIB = 1 << 20


class Produce(Case):
    def where(self, topic, *options, payload=b"x"):
        answer = self.run_ok("produce", topic, *options, "--json", stdin=payload).json()
        self.assertEqual(answer["accepted"], 1)
        return answer["partition"], answer["offset"]

    def test_standard_input_and_a_file_are_stored(self):
        topic = self.topic()
        result = self.run_ok("produce", topic, "--partition", "0", stdin=b"from a pipe")
        self.assertEqual((result.out, result.err), ("", "accepted (11 bytes)\n"))
        self.run_ok("produce", topic, self.file(b"from a file"), "--partition", "0")
        self.run_ok("produce", topic, "-", "--partition", "0", stdin=b"from a dash")
        self.assertEqual(self.stored(topic)[0], [b"from a pipe", b"from a file", b"from a dash"])

    def test_a_key_chooses_its_partition(self):
        topic = self.topic()
        self.assertEqual(self.where(topic, "--key", "k"), (0, 0))
        self.assertEqual(self.where(topic, "-k", "customer-42"), (1, 0))
        self.assertEqual(self.where(topic, "--key=k"), (0, 1))
        message = self.run_ok("consume", topic, "--partition", "1", "--json").json()
        self.assertEqual(message["key"], "customer-42")

    def test_a_partition_wins_over_a_key(self):
        topic = self.topic()
        self.assertEqual(self.where(topic, "--partition", "2", "--key", "k"), (2, 0))
        message = self.run_ok("consume", topic, "--json").json()
        self.assertEqual((message["partition"], message["key"]), (2, "k"))
        self.fails(1, "produce", topic, "--partition", "3", stdin=b"x", text="partition out of range: 3")

    def test_headers_travel(self):
        topic = self.topic()
        self.run_ok("produce", topic, "--header", "trace=a=b", "--header", "twice=1", "--header", "twice=",
                    stdin=b"x")
        message = self.run_ok("consume", topic, "--json").json()
        self.assertEqual(message["headers"], [{"name": "trace", "value": "a=b"},
                                              {"name": "twice", "value": "1"},
                                              {"name": "twice", "value": ""}])
        self.fails(1, "produce", topic, "--header", "novalue", stdin=b"x", text="must be NAME=VALUE")
        self.fails(1, "produce", topic, "--header", "=v", stdin=b"x", text="must be NAME=VALUE")
        self.fails(1, "produce", topic, "--header", "Upper=v", stdin=b"x", text="[a-z0-9-]{1,64}")
        self.fails(1, "produce", topic, *["--header=a=b"] * 65, stdin=b"x", text="at most 64 times")

    def test_any_bytes_up_to_one_mebibyte(self):
        topic = self.topic()
        every = bytes(range(256)) * (MIB // 256)
        self.run_ok("produce", topic, "--partition", "0", stdin=every)
        taken = self.run_ok("consume", topic, "--raw", "--ack").bytes
        self.assertTrue(taken == every + b"\n", "the bytes changed")
        self.fails(1, "produce", topic, stdin=every + b"x", text="larger than 1048576 bytes")
        self.fails(1, "produce", topic, self.file(every + b"x"), text="larger than 1048576 bytes")
        self.fails(1, "produce", topic, text="message required")
        self.assertEqual(self.count(topic), 1)

    def test_what_cannot_be_stored_is_said(self):
        self.fails(1, "produce", "missing", stdin=b"x", text='NOT_FOUND: topic not found: "missing"')
        self.fails(1, "produce", "t", os.path.join(self.scratch, "nowhere"), text="No such file or directory")
        self.fails(1, "produce", "t", self.scratch, text="Is a directory")
        self.fails(1, "produce", text="missing argument: TOPIC [FILE]")
        self.fails(1, "produce", "t", "--batch", "0", text="--batch 0: must be 1 to 1000")


if __name__ == "__main__":
    unittest.main()
