#!/usr/bin/python3
"""Large bodies before a real node: who may not send them takes no room, and who sends nothing neither."""

import base64
import http.client
import json
import socket
import unittest

from nodes import PATIENCE, Node
from people import ROOT_PASSWORD, SecureNode, grant

MIB = 1 << 20


def credentials(username, password="pw"):
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    return f"Authorization: Basic {token}\r\n"


def address_of(node):
    with open(node.path("ready.json"), encoding="utf-8") as file:
        host, port = json.load(file)["http_addr"].rsplit(":", 1)
    return host, int(port)


def batch(size):
    """A body of about that many bytes, in messages of 512 KiB."""
    message = json.dumps({"payload": "x" * (512 << 10)})
    return ('{"messages":[' + ",".join([message] * max(1, size // len(message))) + "]}").encode()


class Guard(unittest.TestCase):
    def announce(self, node, size, who="", body=b"", path="/v1/topics/t/produce/batch", more=""):
        """A POST that announces a body, and what of it is sent."""
        conn = socket.create_connection(address_of(node), timeout=PATIENCE)
        self.addCleanup(conn.close)
        conn.sendall(f"POST {path} HTTP/1.1\r\nHost: n\r\n{who}{more}Content-Length: {size}\r\n\r\n".encode() + body)
        return conn

    def answer(self, conn):
        answer = http.client.HTTPResponse(conn)
        answer.begin()
        text = answer.read()
        return answer.status, json.loads(text), answer

    def produce(self, node, who, body):
        return self.answer(self.announce(node, len(body), who, body))[:2]

    def test_who_may_not_produce_takes_no_room(self):
        with SecureNode(NARAD_HTTP_READ_TIMEOUT="60s") as node:
            node.create("t")
            node.add("may", grant("produce", "t"))
            node.add("may-not", grant("consume", "t"))
            may = credentials("may")
            body = batch(2 * MIB)
            # As many as would fill all of the room, and more.
            refused = [(self.announce(node, 16 * MIB, who), status, text)
                       for who, status, text in (("", 401, "authentication required"),
                                                 (credentials("nobody"), 401, "authentication required"),
                                                 (credentials("may", "wrong"), 401, "authentication required"),
                                                 (credentials("may-not"), 403, "produce not allowed on this topic"))
                       for _ in range(6)]
            self.assertEqual(self.produce(node, may, body), (202, {"accepted": 3}))
            for conn, status, text in refused:
                got, error, answer = self.answer(conn)
                self.assertIn((got, error["error"]), ((status, text), (429, "too many failed authentication attempts")))
                self.assertEqual(answer.headers["Connection"], "close")
                self.assertEqual(conn.recv(1), b"")

    def test_who_may_and_sends_nothing_takes_no_room(self):
        with SecureNode(NARAD_HTTP_READ_TIMEOUT="60s") as node:
            node.create("t")
            node.add("may", grant("produce", "t"))
            node.add("slow", grant("produce", "t"))
            body = batch(15 * MIB)
            silent = [self.announce(node, 16 * MIB, credentials("slow"), b" " * size)
                      for size in (0, 0, 0, 1000, MIB, MIB, MIB)]
            for who in ("may", "slow"):
                self.assertEqual(self.produce(node, credentials(who), body)[0], 202)
            self.assertEqual(len(silent), 7)

    def test_a_chunked_batch_is_asked_for_too(self):
        with SecureNode() as node:
            node.create("t")
            node.add("may", grant("produce", "t"))
            body = batch(2 * MIB)
            for who, sent, status in ((credentials("may"), body, 202), ("", body[:MIB + 9], 401)):
                conn = socket.create_connection(address_of(node), timeout=PATIENCE)
                self.addCleanup(conn.close)
                conn.sendall(("POST /v1/topics/t/produce/batch HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n"
                              f"{who}\r\n").encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(sent), sent))
                self.assertEqual(self.answer(conn)[0], status)

    def test_without_security_nobody_is_refused(self):
        with Node() as node:
            node.create("t")
            for who in ("", credentials("any")):
                self.assertEqual(self.produce(node, who, batch(3 * MIB))[0], 202)

    def test_each_limit_of_a_body_is_exact(self):
        with Node() as node:
            node.create("t")
            for method, path, cap, status in (("POST", "/v1/topics", MIB, 413), ("PATCH", "/v1/topics/t", MIB, 413),
                                              ("POST", "/v1/topics/t/produce", MIB, 413), ("POST", "/v1/users", MIB, 400),
                                              ("PUT", "/v1/users/u/grants", MIB, 400),
                                              ("PUT", "/v1/users/u/password", MIB, 400),
                                              ("POST", "/v1/topics/t/ack", 64 << 10, 413),
                                              ("POST", "/v1/topics/t/produce/batch", 16 * MIB, 413)):
                for size in (cap, cap + 1, cap + MIB, cap + MIB + 1):
                    conn = socket.create_connection(address_of(node), timeout=PATIENCE)
                    self.addCleanup(conn.close)
                    try:
                        conn.sendall(f"{method} {path} HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                                     + b"%x\r\n%s\r\n0\r\n\r\n" % (size, b" " * size))
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                    with self.subTest(path=path, over=size - cap):
                        if size > cap + MIB: # cut, without an answer
                            self.assertRaises((ConnectionResetError, http.client.RemoteDisconnected), self.answer, conn)
                            continue
                        answer = http.client.HTTPResponse(conn)
                        answer.begin()
                        over = b"too large" in answer.read()
                        self.assertEqual(over, size > cap)
                        if over:
                            self.assertEqual(answer.status, status)

    def test_a_batch_takes_no_headers_of_messages(self):
        with SecureNode() as node:
            node.create("t")
            root = credentials("admin", ROOT_PASSWORD)
            body = b'{"messages":[{"payload":1}]}'
            for header in ("X-Narad-Header-Trace: a\r\n", "x-narad-header-: \r\n"):
                status, error, _ = self.answer(self.announce(node, len(body), root, body, more=header))
                self.assertEqual(status, 400)
                self.assertIn("a batch takes no headers", error["error"])
                # The right comes first, as everywhere.
                self.assertEqual(self.answer(self.announce(node, len(body), "", body, more=header))[0], 401)
            self.assertEqual(self.produce(node, root, body), (202, {"accepted": 1}))

    def test_credentials_given_twice_are_refused(self):
        with SecureNode() as node:
            root = credentials("admin", ROOT_PASSWORD)
            for second in (root, credentials("other")):
                status, error, _ = self.answer(self.announce(node, 2, root + second, b"{}", "/v1/topics"))
                self.assertEqual((status, error["error"]), (400, "bad request: more than one Authorization"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
