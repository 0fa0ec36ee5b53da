#!/usr/bin/python3
"""Replay of what retention has removed, on a node whose hours pass in seconds.

usage: test_aged.py NARAD_WITH_A_FAST_CLOCK
"""

import os
import sys
import time
import unittest

from api import Api, Failed
from cases import Case, Entry, wait_until
from node import PROFILES, HttpNode

SPEED = 600


def clock():
    """Fast from now on."""
    starts = [time.clock_gettime_ns(which) for which in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME)]
    return {"ND_TEST_CLOCK": " ".join(map(str, [SPEED, *starts]))}


def insist(ask, what):
    """Until it succeeds: a deadline of 30 s is a twentieth of a second here, and may pass on a slow machine."""
    def attempt():
        try:
            return ask()
        except Failed:
            return None

    return wait_until(attempt, what)


class Aged(unittest.TestCase):
    narad = None

    def test_replay_below_the_oldest_offset_is_gone(self):
        with HttpNode(self.narad, {**PROFILES["OPEN"], **clock()}) as node:
            case = Case(Entry("M2/410/aged", "OPEN", None, False), Api(node.base_url), node)
            topic = insist(lambda: case.topic(retention_ms=3600000), "a topic is made")

            def aged():
                topic.produce(b"x", "?partition=0").expect(202)
                return topic.stats()[0]["oldest_offset"]

            oldest = insist(aged, "retention removes something")
            self.assertGreater(oldest, 0)
            answer = insist(lambda: topic.consume("?partition=0&offset=0").expect(410), "what was removed is gone")
            # Meanwhile it may have removed more.
            self.assertRegex(answer.json["error"], r"^receipt handle no longer matches an active reservation: "
                                                   r"offset 0 aged out of retention \(oldest retained: [1-9][0-9]*\)$")
            self.assertGreaterEqual(int(answer.json["error"].split(": ")[-1].rstrip(")")), oldest)
            # The queue gives what is left, and from its beginning.
            message = insist(topic.take, "there is something to take")
            self.assertGreaterEqual(message["offset"], oldest)


if __name__ == "__main__":
    Aged.narad = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ["NARAD_BIN"]
    unittest.main()
