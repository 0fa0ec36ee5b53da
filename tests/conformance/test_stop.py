#!/usr/bin/python3
"""What clients see of a node that stops: polls end empty, what was begun is finished, nobody new is let in.

usage: test_stop.py NARAD
"""

import os
import re
import signal
import sys
import unittest

from api import PATIENCE, Api, read_answers
from cases import Case, Entry, wait_until
from node import PROFILES, HttpNode

class Stop(unittest.TestCase):
    narad = None

    def refused(self, api):
        """Nobody listens there any more."""
        try:
            with api.open():
                return False
        except ConnectionRefusedError:
            return True

    def open_requests(self, api):
        text = api.get("/metrics").expect(200).body.decode()
        return float(re.search(r"^narad_http_requests_in_flight ([0-9.e+]+)$", text, re.MULTILINE)[1])

    def stop_and_look(self, alone):
        with HttpNode(self.narad, PROFILES["OPEN"], alone) as node:
            case = Case(Entry("stop", "OPEN", None, False), Api(node.base_url), node)
            topic = case.topic()
            poll = f"GET {topic.path}/consume?wait=5s HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            # A produce of which the last byte is missing.
            head = f"POST {topic.path}/produce?partition=0 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx".encode()
            # Who asks for the health of one that stops comes over a connection that stood before.
            asked = [f"GET {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n".encode()
                     for path in ("/healthz", "/readyz")]
            with case.api.open() as begun, case.api.open() as waiting, case.api.open() as health, case.api.open() as ready:
                begun.sendall(head)
                waiting.sendall(poll)
                for connection, request in zip((health, ready), asked):
                    connection.sendall(request)
                wait_until(lambda: self.open_requests(case.api) >= 5, "all are under way, and the question itself")
                stopped = node.processes[-1]
                stopped.process.send_signal(signal.SIGTERM)
                wait_until(lambda: self.refused(case.api), "new connections are refused")
                for connection, request, body in zip((health, ready), asked, ({"status": "shutting down"}, {"error": "not ready"})):
                    connection.sendall(b"x")
                    answer = read_answers(connection, request)[0]
                    self.assertEqual((answer.status, answer.json), (503, body))
                begun.sendall(b"y")
                # In time before the grace is over, or told to try elsewhere.
                self.assertIn(read_answers(begun, head)[0].status, (202, 503))
                self.assertEqual(read_answers(waiting, poll)[0].status, 204)
            self.assertEqual(stopped.process.wait(PATIENCE), 0, stopped.log())
            if alone:
                self.assertEqual(node.processes[0].process.poll(), None)

    def test_a_node(self):
        self.stop_and_look(alone=False)

    def test_a_gateway_alone(self):
        self.stop_and_look(alone=True)


if __name__ == "__main__":
    Stop.narad = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ["NARAD_BIN"]
    unittest.main()
