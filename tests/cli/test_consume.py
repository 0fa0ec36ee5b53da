#!/usr/bin/python3
"""narad consume, ack and replay."""

import base64
import json
import re
import time
import unittest

from command import Case, PATIENCE, wait_until


class Consume(Case):
    def produce(self, topic, payload, *options):
        self.run_ok("produce", topic, *options, stdin=payload)

    def take(self, topic, *options):
        return self.run_ok("consume", topic, *options, "--json").json()

    def test_a_message_is_printed_for_people(self):
        topic = self.topic()
        self.produce(topic, b"hello", "--partition", "2", "--key", "k1")
        self.produce(topic, b"\x00\xff", "--partition", "2", "--key", "k2")
        result = self.run_ok("consume", topic)
        self.assertRegex(result.out, r"^\[p2 @0\] key=k1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ hello\n$")
        handle = re.fullmatch(r"receipt handle: (2:0:\d+)\n", result.err).group(1)
        self.assertEqual(self.run_ok("ack", topic, "--handle", handle).err, "acked\n")
        result = self.run_ok("consume", topic, "--ack")
        self.assertRegex(result.out, r"^\[p2 @1\] key=k2 \S+ hex:00ff\n$")
        self.assertEqual(result.err, "")
        self.assertEqual(self.command("consume", topic).status, 3)

    def test_nothing_is_exit_3(self):
        topic = self.topic()
        result = self.command("consume", topic, "--json")
        self.assertEqual((result.status, result.out, result.err), (3, "", ""))
        start = time.monotonic()
        self.assertEqual(self.command("consume", topic, "--wait", "300ms").status, 3)
        self.assertGreaterEqual(time.monotonic() - start, 0.3)
        self.assertEqual(self.command("consume", topic, "--offset", "0", "--partition", "0").status, 3)

    def test_wait_ends_with_the_first_message(self):
        topic = self.topic()
        waiting = self.open("consume", topic, "--wait", "30s", "--raw", "--ack", stdout=-1, stderr=-1)
        self.produce(topic, b"at last")
        start = time.monotonic()
        out, err = waiting.communicate(timeout=PATIENCE)
        self.assertEqual((waiting.returncode, out, err), (0, b"at last\n", b""))
        self.assertLess(time.monotonic() - start, 25)
        self.fails(1, "consume", topic, "--wait", "31s", text="at most 30000")
        self.fails(1, "consume", topic, "--wait", "5s", "--timeout", "5s", text="must be below --timeout")
        self.fails(1, "consume", topic, "--wait", "5", text="a duration such as")

    def test_max_takes_up_to_so_many(self):
        topic = self.topic()
        self.run_ok("produce", topic, "--lines", "--partition", "0", stdin=b"a\nb\nc\n")
        self.assertEqual(self.run_ok("consume", topic, "--max", "2", "--raw", "--ack").out, "a\nb\n")
        self.assertEqual(self.run_ok("consume", topic, "--max", "1000", "--raw", "--ack").out, "c\n")
        self.assertEqual(self.command("consume", topic).status, 3)
        stats = self.run_ok("topics", "get", topic, "--json").json()["partition_stats"][0]
        self.assertEqual((stats["frontier"], stats["in_flight"]), (3, 0))
        self.fails(1, "consume", topic, "--max", "1001", text="at most 1000")

    def test_only_the_partition_asked_for(self):
        topic = self.topic()
        self.produce(topic, b"one", "--partition", "1")
        self.assertEqual(self.command("consume", topic, "--partition", "0").status, 3)
        self.assertEqual(self.take(topic, "--partition", "1")["partition"], 1)
        self.fails(1, "consume", topic, "--partition", "3", text="partition out of range: 3")
        self.fails(1, "consume", "missing", text="NOT_FOUND")

    def test_an_offset_is_read_without_a_lease(self):
        topic = self.topic()
        self.run_ok("produce", topic, "--lines", "--partition", "0", stdin=b"a\nb\nc\n")
        for _ in range(2):
            message = self.take(topic, "--partition", "0", "--offset", "1")
            self.assertEqual((message["offset"], message["payload"]), (1, "b"))
            self.assertNotIn("receipt_handle", message)
        self.fails(1, "consume", topic, "--offset", "1", text="--offset needs --partition")

    def test_members_and_their_types(self):
        topic = self.topic()
        before = int(time.time())
        self.produce(topic, b"text, not JSON", "--partition", "1", "--key", "k")
        message = self.take(topic)
        self.assertLessEqual(abs(message.pop("timestamp") - before), 120)
        self.assertRegex(message.pop("receipt_handle"), r"^1:0:[1-9]\d*$")
        self.assertEqual(message, {"topic": topic, "partition": 1, "offset": 0, "key": "k",
                                   "payload": "text, not JSON", "delivery_attempt": 1})

    def test_a_json_payload_stays_as_it_was_spelled(self):
        topic = self.topic()
        spelled = ['{"b":1.0,"a":[1e2,123456789012345678901234567890],"b":"\\u00e9\\" {"}', "42", '"hi"',
                   "null", "0.1"]
        for text in spelled:
            self.produce(topic, text.encode(), "--partition", "0")
        for text in spelled:
            printed = self.run_ok("consume", topic, "--ack", "--json").out
            self.assertIn('"payload": ' + text + ",\n", printed)
            json.loads(printed)
        self.produce(topic, b' { "a" :\n [ 1 , "x y" ] } \n', "--partition", "0")
        self.assertIn('"payload": {"a":[1,"x y"]},', self.run_ok("consume", topic, "--json").out)

    def test_text_and_bytes_that_are_not_json(self):
        topic = self.topic()
        cases = {b'{"a":': '{"a":', "grüße\n".encode(): "grüße\n", b"a\x00b": "a\x00b", b"1 2": "1 2"}
        for payload, expected in cases.items():
            self.produce(topic, payload, "--partition", "0")
            message = self.take(topic, "--ack")
            self.assertEqual(message["payload"], expected)
            self.assertNotIn("payload_encoding", message)
        for payload in (b"\xff", b"\xff\xfe", b"\x80abc", b'"\xff"', bytes(range(256))):
            self.produce(topic, payload, "--partition", "0")
            message = self.take(topic, "--ack")
            self.assertEqual(message["payload_encoding"], "base64")
            self.assertEqual(base64.b64decode(message["payload"], validate=True), payload)
            self.assertEqual(list(message)[3:5], ["payload", "payload_encoding"])

    def test_a_key_that_is_not_text_is_base64(self):
        topic = self.topic()
        self.produce(topic, b"x", "--key", b"\xff\x01")
        message = self.take(topic)
        self.assertEqual((message["key"], message["key_encoding"]), ("/wE=", "base64"))


class Ack(Case):
    def leased(self, topic):
        self.run_ok("produce", topic, "--partition", "0", stdin=b"x")
        return self.run_ok("consume", topic, "--json").json()["receipt_handle"]

    def test_a_handle_from_standard_input(self):
        topic = self.topic()
        handle = self.leased(topic)
        self.assertEqual(self.run_ok("ack", topic, stdin=handle.encode() + b"\n").err, "acked\n")
        self.assertEqual(self.command("consume", topic).status, 3)
        self.fails(1, "ack", topic, text="no receipt handle")
        self.fails(1, "ack", topic, stdin=b"\n", text="no receipt handle")

    def test_a_handle_goes_from_consume_to_ack(self):
        topic = self.topic()
        self.run_ok("produce", topic, stdin=b"x")
        taken = self.run_ok("consume", topic, "--raw")
        self.assertEqual(taken.out, "x\n")
        self.run_ok("ack", topic, stdin=taken.err.split()[-1].encode())

    def test_extend_keeps_the_lease(self):
        topic = self.topic()
        handle = self.leased(topic)
        self.assertEqual(self.run_ok("ack", topic, "--handle", handle, "--extend").err, "extended\n")
        self.assertEqual(self.command("consume", topic).status, 3)
        result = self.run_ok("ack", topic, "--handle", handle, "--json")
        self.assertEqual((result.json(), result.err),
                         ({"topic": topic, "receipt_handle": handle, "outcome": "acked"}, ""))

    def test_nack_gives_it_back(self):
        topic = self.topic()
        handle = self.leased(topic)
        self.assertEqual(self.run_ok("ack", topic, "--handle", handle, "--nack").err, "nacked\n")
        again = wait_until(lambda: self.command("consume", topic, "--wait", "5s", "--json").out,
                           "it comes again")
        again = json.loads(again)
        self.assertEqual((again["offset"], again["delivery_attempt"]), (0, 2))
        self.assertNotEqual(again["receipt_handle"], handle)
        self.fails(1, "ack", topic, "--handle", handle, text="FAILED_PRECONDITION")
        self.run_ok("ack", topic, "--handle", again["receipt_handle"])

    def test_what_is_no_handle_is_refused(self):
        topic = self.topic()
        handle = self.leased(topic)
        for garbled in ("x", "0:0", "0:0:0", handle + "x", "é", "0:0:9223372036854775808"):
            self.fails(1, "ack", topic, "--handle", garbled, text="narad: ack: INVALID_ARGUMENT")
        self.fails(1, "ack", "missing", "--handle", handle, text="NOT_FOUND")
        self.fails(1, "ack", topic, "--handle", handle, "--extend", "--nack", text="exclude each other")


class Replay(Case):
    def test_a_range_is_printed_and_nothing_changes(self):
        topic = self.topic()
        self.run_ok("produce", topic, "--lines", "--partition", "1",
                    stdin=b"".join(b"%d\n" % i for i in range(10)))
        result = self.run_ok("replay", topic, "--partition", "1", "--from", "3", "--to", "6", "--raw")
        self.assertEqual(result.out, "3\n4\n5\n")
        self.assertEqual(result.err, "3 message(s) replayed from p1 [3, 6)\n")
        result = self.run_ok("replay", topic, "--partition", "1", "--from", "8")
        self.assertRegex(result.out, r"^\[p1 @8\] \S+ 8\n\[p1 @9\] \S+ 9\n$")
        lines = self.run_ok("replay", topic, "--partition", "1", "--json").out.splitlines()
        self.assertEqual([json.loads(line)["offset"] for line in lines], list(range(10)))
        self.assertNotIn("receipt_handle", lines[0])
        stats = self.run_ok("topics", "get", topic, "--json").json()["partition_stats"][1]
        self.assertEqual((stats["frontier"], stats["in_flight"]), (0, 0))
        result = self.run_ok("replay", topic, "--partition", "0")
        self.assertEqual((result.out, result.err), ("", "0 message(s) replayed from p0\n"))

    def test_outside_of_what_there_is(self):
        topic = self.topic()
        self.fails(1, "replay", topic, text="--partition is required")
        self.fails(1, "replay", topic, "--partition", "0", "--from", "3", "--to", "3",
                   text="--to must be greater than --from")
        self.fails(1, "replay", topic, "--partition", "3", text="partition out of range")
        self.fails(1, "replay", "missing", "--partition", "0", text="NOT_FOUND")
        result = self.run_ok("replay", topic, "--partition", "0", "--from", "5")
        self.assertEqual(result.out, "")


if __name__ == "__main__":
    unittest.main()
