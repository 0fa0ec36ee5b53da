"""The gateway's HTTP server under raw bytes: what ends a request, what is refused, who is cut, who is noticed.

It runs against http/http_fixture.c, which has handlers of its own. `narad` with a real broker behind it is
tested by tests/conformance.
"""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from waiting import PATIENCE, wait_until  # noqa: E402

FIXTURE = os.environ["ND_HTTP_FIXTURE"]
MIB = 1 << 20
HOST = b"Host: narad\r\n"


class Server:
    def __init__(self, limit=None, **options):
        def fewer_descriptors():
            if limit:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        patient = {f"{what}_timeout_ms": PATIENCE * 1000 for what in ("read", "write", "idle")}
        arguments = [f"{name}={value}" for name, value in {**patient, **options}.items()]
        self.process = subprocess.Popen([FIXTURE] + arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=fewer_descriptors)
        ports = self.process.stdout.readline().split()
        if not ports:
            raise AssertionError(self.process.communicate()[1])
        self.port, self.metrics_port = map(int, ports)
        self.said = []
        self.listener = threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True)
        self.listener.start()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        last = self.process.stdout.read()
        code = self.process.wait(PATIENCE)
        self.listener.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        if code != 0 or "stopped" not in last:
            raise AssertionError(f"exit {code}\n" + "".join(self.said))

    def connect(self, port=None, small_buffers=False):
        sock = socket.socket()
        if small_buffers:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(("127.0.0.1", port or self.port))
        except BaseException:
            sock.close()
            raise
        return sock

    def get(self, path, port=None):
        with Conn(self.connect(port)) as conn:
            conn.send(f"GET {path} HTTP/1.1\r\nAuthorization: x\r\n".encode() + HOST + b"\r\n")
            return conn.answer()

    def counts(self):
        return json.loads(self.get("/v1/counts").body)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def error(self):
        return json.loads(self.body)["error"]


class Conn:
    """Reads answers one by one; HEAD's have no body."""

    def __init__(self, sock):
        self.sock, self.left = sock, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        data = self.sock.recv(65536)
        self.left += data
        return data != b""

    def head(self):
        while b"\r\n\r\n" not in self.left:
            if not self.more():
                raise EOFError(f"ended with {self.left!r}")
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            assert name not in headers, head
            headers[name] = value
        return int(lines[0].split()[1]), headers

    def answer(self, method="GET"):
        status, headers = self.head()
        if status == 100:
            return Answer(status, headers, b"")
        size = 0 if method == "HEAD" else int(headers.get("Content-Length", 0))
        while len(self.left) < size:
            if not self.more():
                raise EOFError(f"a body of {len(self.left)} of {size} bytes")
        body, self.left = self.left[:size], self.left[size:]
        return Answer(status, headers, body)

    def ended(self):
        """No byte comes any more."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        return self.left == b""


def request(method, path, *fields, body=b"", version=b"HTTP/1.1"):
    head = b"%s %s %s\r\n" % (method.encode(), path.encode(), version)
    return head + HOST + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def post(path, body, *fields):
    return request("POST", path, b"Content-Length: %d" % len(body), *fields, body=body)


def chunked(path, body, size, *fields):
    data = b"".join(b"%x\r\n%s\r\n" % (len(body[at:at + size]), body[at:at + size])
                    for at in range(0, len(body), size))
    return request("POST", path, b"Transfer-Encoding: chunked", *fields, body=data + b"0\r\n\r\n")


# Sent behind a request whose end is in doubt: were it read as one, "smuggled" would come back.
SMUGGLED = b"GET /v1/show/smuggled HTTP/1.1\r\nHost: narad\r\n\r\n"


class HttpTest(unittest.TestCase):
    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(**cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def conn(self, **how):
        conn = Conn(self.server.connect(**how))
        self.addCleanup(conn.sock.close)
        return conn

    def one(self, data, method="GET"):
        conn = self.conn()
        conn.send(data)
        return conn.answer(method)


class Framing(HttpTest):
    def ours(self, answer, data):
        """It looks as all our answers do, and says that the connection ends."""
        self.assertEqual(answer.headers.get("Connection"), "close", data)
        if answer.status == 431:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; charset=utf-8", data)
            self.assertEqual(answer.body, b"request header fields too large\n", data)
        else:
            self.assertEqual(answer.headers["Content-Type"], "application/json", data)
            self.assertTrue(answer.error(), data)
            self.assertTrue(answer.body.endswith(b"}\n"), data)
        self.assertIn("Date", answer.headers)

    def test_what_the_library_refuses_by_itself_is_answered_as_all_the_rest(self):
        line, chunks = b"GET /v1/show/x HTTP/1.1\r\n", b"Transfer-Encoding: chunked"
        tail = HOST + b"\r\n"
        for data, status in (
                # The request line.
                (b"GET /v1/show/x HTTP/2.0\r\n" + tail, 505), (b"GET /v1/show/x HTTP/0.9\r\n" + tail, 505),
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505), (b"GET /v1/show/x\r\n" + tail, 400),
                (b"GET /v1/show/x http/1.1\r\n" + tail, 400), (b"GET /v1/show/x HTTP/1.10\r\n" + tail, 400),
                (b"GET /v1/show/x HTTP/1.1 \r\n" + tail, 400), (b"GET \r\n" + tail, 400),
                (b"GET /v1/show/" + b"a" * 100000 + b" HTTP/1.1\r\n" + tail, 431),
                (b"GET /v1/show/x?" + b"a" * 200000 + b" HTTP/1.1\r\n" + tail, 431),
                (b"a" * 100000 + b"\r\n" + tail, 431),
                # Headers.
                (line + b"no colon\r\n" + tail, 400), (line + HOST + b"no colon\r\n\r\n", 400),
                (line + b"X: " + b"a" * 200000 + b"\r\n" + tail, 431), (line + b"X: a\r\n" * 20000 + tail, 431),
                (line + b"X: a\r\n" + b" b\r\n" * 30000 + tail, 431), (line + b"a" * 200000 + b"\r\n" + tail, 431),
                (line + b"Cookie: " + b"a" * 45000 + b"\r\n" + tail, 431),
                (line + b"Cookie: " + b"a;" * 20000 + b"\r\n" + tail, 431),
                (line + b"Cookie: " + b"a;" * 20000 + b"\r\nContent-Length: x\r\n" + tail, 431),
                # Lengths.
                *((request("POST", "/v1/echo", b"Content-Length: " + length, body=b"hello"), status)
                  for length, status in ((b"x", 400), (b"-1", 400), (b"", 400), (b"5 5", 400), (b"0x5", 400),
                                         (b"18446744073709551616", 413), (b"9" * 1000, 413))),
                # Chunks.
                *((request("POST", "/v1/echo", chunks, body=body), status)
                  for body, status in ((b"z\r\n", 400), (b"5\r\nhelloXY", 400), (b"ffffffffffffffffff\r\n", 413),
                                       (b"0\r\nno colon\r\n\r\n", 400), (b"0\r\nX: " + b"a" * 200000, 431),
                                       (b"0\r\nA: b\r\nno colon\r\n\r\n", 400)))):
            for before in (b"", request("GET", "/healthz")):
                conn = self.conn()
                try:
                    conn.send(before + data)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                with self.subTest(data=data[:100], before=before[:3]):
                    if before:
                        self.assertEqual(conn.answer().status, 200)
                    answer = conn.answer()
                    self.assertEqual(answer.status, status)
                    self.ours(answer, data[:100])
                    self.assertTrue(conn.ended(), conn.left)

    def test_a_query_of_many_parts_is_read_as_it_is(self):
        for query in ("a&" * 20000, "=" * 60000, "&" * 60000, "%zz;" * 15000, "a?b", ""):
            conn = self.conn()
            conn.send(request("GET", "/v1/show/x?" + query) + request("GET", "/v1/show/y?z"))
            self.assertEqual(json.loads(conn.answer().body), ["GET", "x", query, "127.0.0.1"])
            self.assertEqual(json.loads(conn.answer().body), ["GET", "y", "z", "127.0.0.1"])

    def test_credentials_that_are_given_twice_are_refused(self):
        for fields in ((b"Authorization: a", b"Authorization: b"), (b"Authorization: a", b"authorization: a"),
                       (b"Authorization:", b"Authorization: a")):
            conn = self.conn()
            conn.send(request("GET", "/v1/show/x", *fields))
            answer = conn.answer()
            self.assertEqual((answer.status, answer.error()), (400, "bad request: more than one Authorization"))
            self.assertTrue(conn.ended())

    def refused(self, data, status=(400,)):
        """One answer of that status, then the end: nothing behind it is taken for a request."""
        conn = self.conn()
        try:
            conn.send(data + SMUGGLED)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            answer = conn.answer()
        except (EOFError, ConnectionResetError):
            self.assertIn(None, status, data)
            return
        self.assertIn(answer.status, status, data)
        self.ours(answer, data)
        self.assertTrue(conn.ended(), (data, conn.left)) # nothing behind it: no second head, nothing smuggled

    def test_a_head_that_two_servers_could_read_differently_is_refused(self):
        post_head = b"POST /v1/echo HTTP/1.1\r\n" + HOST
        get_head = b"GET /v1/show/x HTTP/1.1\r\n" + HOST
        heads = [
            # Two lengths, or a length and an encoding.
            post_head + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            post_head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            post_head + b"content-length: 0\r\nCONTENT-LENGTH: 5\r\n\r\nhello",
            post_head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
            # Lengths that are no number.
            post_head + b"Content-Length: +5\r\n\r\nhello",
            post_head + b"Content-Length: -5\r\n\r\nhello",
            post_head + b"Content-Length: 5, 5\r\n\r\nhello",
            post_head + b"Content-Length: 5 5\r\n\r\nhello",
            post_head + b"Content-Length: 0x5\r\n\r\nhello",
            post_head + b"Content-Length: 5a\r\n\r\nhello",
            post_head + b"Content-Length:\r\n\r\nhello",
            post_head + b"Content-Length: \"5\"\r\n\r\nhello",
            post_head + b"Content-Length: 5\x0b\r\n\r\nhello",
            # Encodings other than chunked.
            post_head + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chunked\x0b\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
            post_head.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            # A blank in a name, or a name that is none.
            post_head + b"Content-Length : 5\r\n\r\nhello",
            post_head + b"Content Length: 5\r\n\r\nhello",
            post_head + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
            post_head + b": 5\r\n\r\n",
            post_head + b"X\x00Y: 5\r\n\r\n",
            post_head + b"X\x01Y: 5\r\n\r\n",
            post_head + b"X(Y): 5\r\n\r\n",
            post_head + b"X\xe9: 5\r\n\r\n",
            post_head + b"no colon\r\n\r\n",
            # Lines that do not end with CR LF.
            get_head + b"X: a\nY: b\r\n\r\n",
            get_head + b"X: a\r\n\n",
            get_head + b"X: a\n\r\n",
            get_head + b"X: a\n\n",
            b"GET /v1/show/x HTTP/1.1\nHost: narad\r\n\r\n",
            b"GET /v1/show/x HTTP/1.1\r\nHost: narad\n\r\n",
            get_head + b"X: a\nContent-Length: 48\r\n\r\n",
            get_head + b"X: a\nTransfer-Encoding: chunked\r\n\r\n",
            # A bare CR.
            get_head + b"X: a\rY: b\r\n\r\n",
            get_head + b"X: a\rContent-Length: 48\r\n\r\n",
            get_head + b"X: a\r\r\n\r\n",
            get_head + b"X\r: a\r\n\r\n",
            # A value that goes on in the next line.
            get_head + b"X: a\r\n b\r\n\r\n",
            get_head + b"X: a\r\n\tContent-Length: 48\r\n\r\n",
            post_head + b"Content-Length:\r\n 48\r\n\r\n",
            post_head + b"Content-Length: 4\r\n 8\r\n\r\n",
            post_head + b"Content-Length: 0\r\nX: y\r\n z\r\n\r\n",
            post_head + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
            post_head + b"Transfer-Encoding: chun\r\n ked\r\n\r\n0\r\n\r\n",
            b"GET /v1/show/x HTTP/1.1\r\n Host: narad\r\n\r\n",
            # NULs and other control bytes in values.
            post_head + b"Content-Length: 5\x00 0\r\n\r\nhello",
            post_head + b"Content-Length: 5\r\nX: a\x00b\r\n\r\nhello",
            post_head + b"Transfer-Encoding: chunked\x00, gzip\r\n\r\n0\r\n\r\n",
            get_head + b"X: \x7f\r\n\r\n",
            # The Host.
            b"GET /v1/show/x HTTP/1.1\r\n\r\n",
            get_head + HOST + b"\r\n",
            b"GET /v1/show/x HTTP/1.1\r\nX-Host: narad\r\n\r\n",
            # Blanks and control bytes in the request line.
            b"GET /v1/show/x y HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET  /v1/show/x  HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /v1/show/x HTTP/1.1 \r\n" + HOST + b"\r\n",
            b"GET\t/v1/show/x\tHTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /v1/show/\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /v1/show/x\x00y HTTP/1.1\r\n" + HOST + b"\r\n",
            b"G(T /v1/show/x HTTP/1.1\r\n" + HOST + b"\r\n",
            # Escapes that are none, and a NUL in a name.
            b"GET /v1/show/%ZZ HTTP/1.1\r\n" + HOST + b"\r\n",
            b"GET /v1/show/a%00b HTTP/1.1\r\n" + HOST + b"\r\n",
        ]
        self.assertGreater(len(heads), 60)
        for head in heads:
            # None: the library closes at once what has no version, no method or no path.
            self.refused(head, (400, None))
        self.refused(post_head + b"Content-Length: 99999999999999999999\r\n\r\n", (400, 413))

    def test_versions_that_are_not_spoken_are_refused(self):
        for line in (b"GET /v1/show/x HTTP/2.0", b"GET /v1/show/x HTTP/0.9", b"GET /v1/show/x http/1.1",
                     b"GET /v1/show/x HTTP/1.10", b"GET /v1/show/x", b"PRI * HTTP/2.0"):
            self.refused(line + b"\r\n" + HOST + b"\r\n", (400, 505, None))

    def test_chunks_that_are_none_are_refused(self):
        for body in (b"z\r\nhello\r\n0\r\n\r\n", b"-1\r\n\r\n0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n",
                     b"0x5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\nhello", b"\r\nhello\r\n0\r\n\r\n",
                     b"5 \r\nhello\r\n0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n"):
            self.refused(request("POST", "/v1/echo", b"Transfer-Encoding: chunked", body=body), (400, 413))

    def test_a_line_before_a_chunk_that_fits_no_memory_is_refused(self):
        for before in (b"", b"%x\r\n" % MIB + b"x" * MIB + b"\r\n"):
            for line in (b"5;" + b"x" * 200000, b"0" * 200000, b"5;a=\"" + b"b" * 200000, b"5;" + b"x" * 80000):
                self.refused(request("POST", "/v1/echo", b"Transfer-Encoding: chunked", body=before + line))
        # Where the head takes most of the memory, a shorter one does not fit either.
        self.refused(request("POST", "/v1/echo", b"Transfer-Encoding: chunked", b"X: " + b"y" * 60000,
                             body=b"5;" + b"x" * 16000))

    def test_nothing_behind_a_chunked_body_is_a_request(self):
        # What ends a chunk's line is forgiven by the library, unseen: so its connection ends with the answer.
        for body in (b"5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"5;x\nhello\r\n0\r\n\r\n",
                     b"5;a=\"b\"\r\nhello\r\n0\r\nX-Trailer: y\r\n\r\n",
                     b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n"):
            conn = self.conn()
            conn.send(request("POST", "/v1/echo", b"Transfer-Encoding: chunked", body=body) + SMUGGLED)
            answer = conn.answer()
            self.assertEqual(answer.status, 200, body)
            self.assertEqual(json.loads(answer.body)["size"], 5, body)
            self.assertEqual(answer.headers["Connection"], "close")
            self.assertTrue(conn.ended())

    def test_what_is_plain_is_taken(self):
        for head, shown in (
                (b"GET /v1/show/x?q=%20 HTTP/1.1\r\nHost:narad\r\n\r\n", ["GET", "x", "q=%20", "127.0.0.1"]),
                (b"\r\nGET /v1/show/x HTTP/1.1\r\nHost: narad\r\n\r\n", ["GET", "x", "", "127.0.0.1"]),
                (b"GET /v1/show/x HTTP/1.1\r\nHost:\t narad\r\nX-A:\r\nX-B: \t b c \r\n\r\n",
                 ["GET", "x", "", "127.0.0.1", "X-A", "", "X-B", "b c "]),
                (b"GET http://narad/v1/show/x?y HTTP/1.1\r\nHost: narad\r\n\r\n", ["GET", "x", "y", "127.0.0.1"]),
                (b"GET /v1/show/a%2Fb+c HTTP/1.1\r\nHost: narad\r\n\r\n", ["GET", "a/b+c", "", "127.0.0.1"]),
                (b"GET /v1/show/x HTTP/1.0\r\n\r\n", ["GET", "x", "", "127.0.0.1"])):
            conn = self.conn()
            conn.send(head)
            self.assertEqual(json.loads(conn.answer().body), shown, head)

    def test_a_head_in_single_bytes_is_the_same(self):
        conn = self.conn()
        for byte in post("/v1/echo", b"hello", b"X-A: b"):
            conn.send(bytes([byte]))
        self.assertEqual(json.loads(conn.answer().body)["size"], 5)

    def test_pipelined_requests_are_answered_in_order(self):
        conn = self.conn()
        parts = [(request("GET", "/v1/show/a"), "GET", 200), (post("/v1/echo", b"x" * 70000), "POST", 200),
                 (post("/v1/async", b"abc"), "POST", 200), (request("HEAD", "/healthz"), "HEAD", 200),
                 (post("/v1/drop", b"y" * 1000), "POST", 204), (request("PUT", "/healthz"), "PUT", 405),
                 (post("/v1/async", b""), "POST", 200), (post("/v1/accept", b"z"), "POST", 202),
                 (request("GET", "/v1/show/last"), "GET", 200)]
        conn.send(b"".join(part[0] for part in parts * 20))
        for _, method, status in parts * 20:
            self.assertEqual(conn.answer(method).status, status)
        self.assertEqual(conn.left, b"")

    def test_a_half_closed_client_is_answered(self):
        for data, method in ((request("GET", "/v1/show/x"), "GET"), (post("/v1/async", b"abc"), "POST"),
                             (request("GET", "/v1/show/x") * 3, "GET")):
            conn = self.conn()
            conn.send(data)
            conn.sock.shutdown(socket.SHUT_WR)
            self.assertEqual(conn.answer(method).status, 200)

    def test_a_client_that_leaves_in_the_middle_leaves_nothing(self):
        before = self.server.descriptors()
        for data in (b"", b"GET", b"GET /v1/show/x HTTP/1.1\r\nHo", request("GET", "/v1/show/x")[:-2],
                     post("/v1/echo", b"x" * 1000)[:-500], post("/v1/batch", b"x" * 2 * MIB)[:MIB],
                     request("POST", "/v1/echo", b"Transfer-Encoding: chunked", body=b"5\r\nhel")) * 5:
            self.conn().send(data)
        self.doCleanups()
        wait_until(lambda: self.server.descriptors() <= before, "descriptors come back")


class Answers(HttpTest):
    def test_json_has_its_length_and_nothing_more(self):
        answer = self.one(request("GET", "/healthz"))
        self.assertEqual(answer.status, 200)
        self.assertEqual(set(answer.headers), {"Date", "Content-Type", "Content-Length"})
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertEqual(answer.body, b'{"status":"ok"}\n')

    def test_head_is_a_get_without_its_body(self):
        conn = self.conn()
        conn.send(request("HEAD", "/healthz") + request("GET", "/healthz"))
        head, get = conn.answer("HEAD"), conn.answer()
        self.assertEqual(head.headers["Content-Length"], str(len(get.body)))
        self.assertEqual(head.headers["Content-Type"], get.headers["Content-Type"])
        self.assertEqual(self.one(request("HEAD", "/v1/park/x", b"Authorization: x"), "HEAD").status, 405)

    def test_202_and_204_have_no_type(self):
        accepted, none = self.one(post("/v1/accept", b"x")), self.one(post("/v1/drop", b"x"))
        self.assertEqual((accepted.status, accepted.body), (202, b""))
        self.assertEqual(set(accepted.headers), {"Date", "Content-Length"})
        self.assertEqual(none.status, 204)
        self.assertEqual(set(none.headers), {"Date"})

    def test_no_route_is_plain_text_for_who_may_know(self):
        known = b"Authorization: x"
        for path in ("/", "/v1/nope", "/v1/show/", "/v1//show/x", "//healthz", "/v1/show/./x", "/v1/show/../x",
                     "/v1/show/..", "*", "/healthz/"):
            answer = self.one(request("GET", path, known))
            self.assertEqual((answer.status, answer.body), (404, b"404 page not found\n"), path)
            self.assertEqual(answer.headers["Content-Type"], "text/plain; charset=utf-8")
            self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(self.one(request("GET", path)).status, 401)
        answer = self.one(request("PUT", "/v1/show/x", known))
        self.assertEqual((answer.status, answer.body), (405, b"Method Not Allowed\n"))
        self.assertEqual(answer.headers["Allow"], "GET, HEAD, POST")
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")

    def test_open_paths_need_no_credentials_whatever_the_method(self):
        answer = self.one(post("/healthz", b"body"))
        self.assertEqual((answer.status, answer.headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(self.one(request("GET", "/metrics")).status, 200)

    def test_errors_are_json_whatever_is_in_them(self):
        answer = self.one(request("GET", "/v1/error"))
        self.assertEqual(answer.error(), 'not "good"\n\x01\ufffd')
        self.assertTrue(answer.body.endswith(b"}\n"))

    def test_http_1_0_closes_unless_asked_to_keep(self):
        conn = self.conn()
        conn.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.assertEqual(conn.answer().headers["Connection"].lower(), "keep-alive")
        conn.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        self.assertEqual(conn.answer().status, 200)
        self.assertTrue(conn.ended())

    def test_connection_close_closes(self):
        conn = self.conn()
        conn.send(request("GET", "/healthz", b"Connection: close"))
        self.assertEqual(conn.answer().headers["Connection"], "close")
        self.assertTrue(conn.ended())

    def test_heads_up_to_the_limit(self):
        fill = 65536 - len(request("GET", "/healthz", b"X: "))
        self.assertEqual(self.one(request("GET", "/healthz", b"X: " + b"a" * fill)).status, 200)
        conn = self.conn()
        conn.send(request("GET", "/healthz", b"X: " + b"a" * (fill + 1)))
        answer = conn.answer()
        self.assertEqual(answer.status, 431)
        self.assertEqual(answer.headers["Content-Type"], "text/plain; charset=utf-8")
        self.assertTrue(conn.ended())
        for head in (request("GET", "/healthz", b"X: " + b"a" * 200000),
                     request("GET", "/healthz", *[b"X: a"] * 20000),
                     request("GET", "/v1/show/" + "a" * 100000)):
            conn = self.conn()
            try:
                conn.send(head)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = conn.answer()
            self.assertEqual((answer.status, answer.body), (431, b"request header fields too large\n"))
            self.assertTrue(conn.ended())

    def test_only_100_continue_is_expected(self):
        self.assertEqual(self.one(request("GET", "/healthz", b"Expect: a-miracle")).status, 417)

    def test_requests_are_counted_by_route(self):
        self.one(request("GET", "/v1/show/counted"))
        self.one(request("GET", "/v1/nope"))
        self.one(request("BREW", "/v1/nope", b"Authorization: x"))

        def text():
            return self.server.get("/metrics").body.decode()

        wait_until(lambda: 'narad_http_requests_total{route="GET /v1/show/{name}",method="GET",status="200"}' in text(),
                   "a matched request counts by its template")
        wait_until(lambda: 'narad_http_requests_total{route="unmatched",method="GET",status="401"}' in text(),
                   "a 401 counts as unmatched")
        wait_until(lambda: 'narad_http_requests_total{route="unmatched",method="OTHER",status="404"}' in text(),
                   "unknown methods count as one")
        self.assertNotIn("show/counted", text())
        wait_until(lambda: "narad_http_requests_in_flight 1\n" in text(), "only the one that asks is open")


class Bodies(HttpTest):
    OPTIONS = {"large_bytes_max": 20 * MIB}

    def test_sizes_around_every_buffer(self):
        conn = self.conn()
        for edge in (1, 4096, 32768, 36864, 65536, 73728, MIB):
            for size in (edge - 1, edge, edge + 1):
                if size > MIB:
                    continue
                body = os.urandom(size)
                conn.send(post("/v1/echo", body))
                first = json.loads(conn.answer().body)
                self.assertEqual(first["size"], size)
                if size > 0:
                    again = json.loads(self.one(chunked("/v1/echo", body, 5000)).body)
                    self.assertEqual(again, first)

    def test_a_declared_size_above_the_cap_is_answered_unread(self):
        for size in (MIB + 1, 1 << 40, (1 << 63) - 1):
            conn = self.conn()
            conn.send(request("POST", "/v1/echo", b"Content-Length: %d" % size))
            answer = conn.answer()
            self.assertEqual((answer.status, answer.error()), (413, "request body too large"))
            self.assertEqual(answer.headers["Connection"], "close")
            self.assertTrue(conn.ended())

    def test_the_answer_survives_what_the_client_still_sends(self):
        conn = self.conn()
        conn.send(post("/v1/echo", b"x" * (MIB + 1024)) + SMUGGLED)
        self.assertEqual(conn.answer().status, 413)
        self.assertTrue(conn.ended())

    def test_a_chunked_body_above_the_cap_is_read_for_another_mebibyte(self):
        for path, cap in (("/v1/small", 65536), ("/v1/echo", MIB), ("/v1/batch", 16 * MIB), ("/v1/guarded", 16 * MIB)):
            for size, status in ((cap, 200), (cap + 1, 413), (cap + MIB, 413), (cap + MIB + 1, None)):
                for piece in (size, 70001):
                    conn = self.conn()
                    body = chunked(path, b"x" * size, piece, b"Authorization: now")
                    try:
                        conn.send(body + SMUGGLED)
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                    if status is None: # cut, without an answer
                        self.assertTrue(conn.ended(), (path, size, conn.left))
                    else:
                        self.assertEqual(conn.answer().status, status, (path, size, piece))
                        self.assertTrue(conn.ended())

    def test_a_chunked_body_that_does_not_matter_is_read_for_a_mebibyte(self):
        for path in ("/v1/drop", "/v1/echo?drop"):
            self.assertIn(self.one(chunked(path, b"x" * MIB, 70001)).status, (200, 204))
            conn = self.conn()
            try:
                conn.send(chunked(path, b"x" * (MIB + 1), 70001))
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertTrue(conn.ended(), conn.left)

    def test_an_endless_chunked_body_ends(self):
        conn = self.conn()
        conn.send(request("POST", "/v1/echo", b"Transfer-Encoding: chunked"))
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            while True:
                conn.send(b"ffff\r\n" + b"x" * 0xffff + b"\r\n")

    def test_a_body_that_does_not_matter_is_dropped(self):
        conn = self.conn()
        for path in ("/v1/drop", "/v1/echo?drop", "/v1/show/x"):
            for size in (0, 1, 70000, MIB):
                conn.send(post(path, b"x" * size))
                self.assertIn(conn.answer().status, (200, 204))
        conn.send(post("/v1/drop", b"x" * (MIB + 1)))
        self.assertEqual(conn.answer().status, 204)
        self.assertTrue(conn.ended())

    def test_a_get_may_have_a_body(self):
        conn = self.conn()
        conn.send(request("GET", "/v1/show/x", b"Content-Length: 5", body=b"hello") + request("GET", "/v1/show/y"))
        self.assertEqual(json.loads(conn.answer().body)[1], "x")
        self.assertEqual(json.loads(conn.answer().body)[1], "y")

    def test_100_continue_comes_when_the_body_is_wanted(self):
        conn = self.conn()
        conn.send(request("POST", "/v1/echo", b"Content-Length: 5", b"Expect: 100-continue"))
        self.assertEqual(conn.answer().status, 100)
        conn.send(b"hello")
        self.assertEqual(json.loads(conn.answer().body)["size"], 5)
        conn.send(request("POST", "/v1/echo", b"Content-Length: %d" % (MIB + 1), b"Expect: 100-Continue"))
        self.assertEqual(conn.answer().status, 413)
        self.assertTrue(conn.ended())

    def upload(self, size, *fields, path="/v1/batch", of=16 * MIB):
        """A request that has sent `size` bytes of a body of `of`."""
        conn = self.conn()
        conn.send(request("POST", path, b"Content-Length: %d" % of, *fields) + b"x" * size)
        return conn

    def held(self, size):
        """Until there is no room left for a body of that size."""
        def status():
            with Conn(self.server.connect()) as conn:
                conn.send(request("POST", "/v1/batch", b"Content-Length: %d" % size, b"Expect: 100-continue"))
                return conn.answer().status

        wait_until(lambda: status() == 503, "the room is taken")

    def test_large_bodies_share_a_budget(self):
        body = os.urandom(12 * MIB)
        self.assertEqual(json.loads(self.one(post("/v1/batch", body)).body)["size"], len(body))
        self.assertEqual(json.loads(self.one(chunked("/v1/batch", body, 100000)).body)["size"], len(body))
        holder = self.conn()
        holder.send(post("/v1/batch", body)[:-1]) # all but its last byte
        self.held(9 * MIB)
        conn = self.conn()
        conn.send(request("POST", "/v1/batch", b"Content-Length: %d" % (9 * MIB)))
        answer = conn.answer()
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))
        self.assertIn("limit", answer.error())
        self.assertEqual(self.one(post("/v1/batch", b"x" * MIB)).status, 200) # no large one
        holder.send(body[-1:])
        self.assertEqual(holder.answer().status, 200)
        self.assertEqual(self.one(post("/v1/batch", body[:9 * MIB])).status, 200) # given back with the answer

    def test_who_sends_nothing_takes_no_room(self):
        silent = [self.upload(size) for size in (0, 0, 1, 65536, 65537, MIB)]
        answer = self.one(post("/v1/batch", b"x" * (12 * MIB)))
        self.assertEqual(json.loads(answer.body)["size"], 12 * MIB)
        self.assertEqual(len(silent), 6)

    def test_one_that_finds_no_room_on_its_way_is_told_at_once(self):
        late = self.upload(2 * MIB, b"Authorization: now-a", path="/v1/guarded")
        early = self.upload(16 * MIB - 1, b"Authorization: now-b", path="/v1/guarded")
        self.held(2 * MIB + 1) # 18 are taken
        try:
            late.send(b"x" * (14 * MIB - 1)) # its end never comes
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = late.answer()
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))
        self.assertIn("limit", answer.error())
        self.assertTrue(late.ended())
        early.send(b"x")
        self.assertEqual(early.answer().status, 200)


class Guarded(HttpTest):
    """Bodies above 1 MiB where the caller is asked for first."""

    OPTIONS = {"large_bytes_max": 40 * MIB}

    def upload(self, who, size, of=16 * MIB, *fields):
        conn = self.conn()
        known = (b"Authorization: " + who,) if who else ()
        conn.send(request("POST", "/v1/guarded", b"Content-Length: %d" % of, *known, *fields) + b"x" * size)
        return conn

    def asking(self, count):
        wait_until(lambda: self.server.counts()["asking"] == count, "they are asked for")

    def decide(self, word):
        return int(self.one(post("/v1/decide/" + word, b"")).body)

    def test_strangers_are_refused_without_their_body(self):
        for conn in [self.upload(b"", 0) for _ in range(8)] + [self.upload(b"", 5000)]:
            answer = conn.answer()
            self.assertEqual((answer.status, answer.headers["Connection"]), (401, "close"))
            self.assertEqual(answer.headers["WWW-Authenticate"], 'Basic realm="narad"')
            self.assertTrue(conn.ended())

    def test_nobody_takes_room_before_the_word_is_there(self):
        waiting = [self.upload(b"ask", MIB // 2) for _ in range(6)]
        self.asking(6)
        self.assertEqual(self.one(post("/v1/guarded", b"x" * (16 * MIB), b"Authorization: now")).status, 200)
        self.assertEqual(self.decide("no"), 6)
        for conn in waiting:
            answer = conn.answer()
            self.assertEqual((answer.status, answer.error()), (403, "not allowed"))
            self.assertTrue(conn.ended())

    def test_who_may_goes_on_with_its_body_and_its_connection(self):
        body = os.urandom(3 * MIB)
        for who in (b"now", b"later", b"ask"):
            conn = self.conn()
            for _ in range(2):
                conn.send(post("/v1/guarded", body, b"Authorization: " + who)[:MIB])
                if who == b"ask":
                    self.asking(1)
                    self.decide("yes")
                conn.send(post("/v1/guarded", body, b"Authorization: " + who)[MIB:])
                self.assertEqual(json.loads(conn.answer().body)["size"], len(body))
            conn.send(post("/v1/echo", b"abc"))
            self.assertEqual(json.loads(conn.answer().body)["size"], 3)

    def test_bodies_up_to_a_mebibyte_ask_nobody(self):
        for data in (post("/v1/guarded", b"x" * MIB), chunked("/v1/guarded", b"x" * MIB, 70001)):
            self.assertEqual(json.loads(self.one(data).body)["size"], MIB)

    def test_100_continue_waits_for_the_word(self):
        expect = b"Expect: 100-continue"
        conn = self.upload(b"ask", 0, 2 * MIB, expect)
        self.asking(1)
        conn.sock.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            conn.more()
        conn.sock.settimeout(PATIENCE)
        self.decide("yes")
        self.assertEqual(conn.answer().status, 100)
        conn.send(b"x" * (2 * MIB))
        self.assertEqual(json.loads(conn.answer().body)["size"], 2 * MIB)
        for who, word, status in ((b"", None, 401), (b"ask", "no", 403)):
            conn = self.upload(who, 0, 2 * MIB, expect)
            if word:
                self.asking(1)
                self.decide(word)
            self.assertEqual(conn.answer().status, status)
            self.assertTrue(conn.ended())

    def test_a_chunked_body_asks_when_it_passes_a_mebibyte(self):
        for who, status in ((b"now", 200), (b"later", 200)):
            for size in (MIB + 1, 2 * MIB, 16 * MIB):
                for piece in (size, 70001):
                    answer = self.one(chunked("/v1/guarded", b"x" * size, piece, b"Authorization: " + who))
                    self.assertEqual((answer.status, json.loads(answer.body)["size"]), (status, size))
        data = chunked("/v1/guarded", b"x" * (2 * MIB - 70001), 70001, b"Authorization: ask")
        for word, status in (("yes", 200), ("no", 403)):
            conn = self.conn()
            conn.send(data[:MIB + 200000])
            self.asking(1)
            self.decide(word)
            conn.send(data[MIB + 200000:])
            self.assertEqual(conn.answer().status, status)
            self.assertTrue(conn.ended())

    def test_a_line_before_a_chunk_that_fits_no_memory_is_refused_after_the_word(self):
        # The library does not see the end of such a connection: it is over when none but ours is in flight.
        for word in ("yes", "no"):
            for line in (b"5;" + b"x" * 200000, b"0" * 80000):
                conn = self.conn()
                conn.send(request("POST", "/v1/guarded", b"Transfer-Encoding: chunked", b"Authorization: ask",
                                  body=b"%x\r\n" % (MIB + 5) + b"x" * (MIB + 5) + b"\r\n"))
                self.asking(1)
                self.decide(word)
                try:
                    conn.send(line)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.assertEqual(conn.answer().status, 400)
                self.assertTrue(conn.ended())
        wait_until(lambda: b"narad_http_requests_in_flight 1\n" in self.server.get("/metrics").body, "they are over")

    def test_a_chunked_body_of_a_stranger_is_read_for_another_mebibyte(self):
        for size, status in ((MIB + 1, 401), (2 * MIB - 70001, 401), (4 * MIB, None)):
            conn = self.conn()
            try:
                conn.send(chunked("/v1/guarded", b"x" * size, 70001))
            except (BrokenPipeError, ConnectionResetError):
                pass
            if status:
                self.assertEqual(conn.answer().status, status)
            self.assertTrue(conn.ended(), conn.left)

    def test_who_leaves_while_it_is_asked_for_leaves_nothing(self):
        before = self.server.descriptors()
        for word in ("yes", "no"):
            for _ in range(5):
                self.upload(b"ask", MIB // 2)
                conn = self.conn()
                conn.send(chunked("/v1/guarded", b"x" * (2 * MIB), 70001, b"Authorization: ask")[:MIB + 200000])
            self.asking(10)
            self.doCleanups()
            self.assertEqual(self.decide(word), 10)
            self.doCleanups() # that one's
            wait_until(lambda: self.server.descriptors() <= before, "descriptors come back")
        self.assertEqual(self.one(post("/v1/guarded", b"x" * (16 * MIB), b"Authorization: now")).status, 200)

    def test_nobody_keeps_all_others_out(self):
        held = [self.upload(b"now-slow", 0, 16 * MIB, b"Expect: 100-continue") for _ in range(2)]
        for conn in held:
            self.assertEqual(conn.answer().status, 100)
        for conn in held:
            conn.send(b"x" * (10 * MIB)) # together its half of 40 MiB
        wait_until(lambda: self.upload(b"now-slow", 0, 2 * MIB, b"Expect: 100-continue").answer().status == 503,
                   "it has no room for another")
        answer = self.one(post("/v1/guarded", b"x" * (16 * MIB), b"Authorization: now-other"))
        self.assertEqual(json.loads(answer.body)["size"], 16 * MIB)
        held[0].send(b"x" * MIB) # one MiB too many
        self.assertEqual(held[0].answer().status, 503)
        self.assertTrue(held[0].ended())
        held[1].send(b"x" * (6 * MIB))
        self.assertEqual(held[1].answer().status, 200)


class Secrets(HttpTest):
    def found(self, text):
        """Is it anywhere in what the process can write to?"""
        process = f"/proc/{self.server.process.pid}"
        with open(process + "/maps", encoding="utf-8") as maps, open(process + "/mem", "rb", 0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                start, end = (int(part, 16) for part in span.split("-"))
                if not rights.startswith("rw") or end - start > 1 << 30: # larger: a sanitizer's tables
                    continue
                for at in range(start, end, MIB):
                    try:
                        memory.seek(at)
                        if text in memory.read(min(MIB + len(text), end - at)):
                            return True
                    except OSError:
                        pass # what cannot be read
        return False

    def test_a_body_with_secrets_leaves_none_in_memory(self):
        text = os.urandom(16).hex().encode()
        before = self.server.descriptors()
        for size in (100, 5000, 65536):
            body = (text * (size // len(text) + 1))[:size]
            parked = self.conn() # so that memory is in use, and freed in between
            parked.send(request("GET", "/v1/park/secret"))
            for data in (post("/v1/small", body), chunked("/v1/small", body, 777), post("/v1/small", body + b"x" * MIB),
                         chunked("/v1/small", body + b"x" * 65536, 777)):
                with Conn(self.server.connect()) as conn:
                    conn.send(data)
                    self.assertIn(conn.answer().status, (200, 413))
            self.one(post("/v1/release/secret", b""))
            self.assertEqual(parked.answer().status, 200)
        self.doCleanups()
        wait_until(lambda: self.server.descriptors() <= before, "all are closed") # and the library's memory is gone
        wait_until(lambda: not self.found(text), "nothing is left")

    def test_a_body_with_secrets_that_comes_behind_its_answer_leaves_none_either(self):
        text = os.urandom(16).hex().encode()
        conn = self.conn()
        conn.send(request("POST", "/v1/small", b"Content-Length: %d" % (16 * MIB)))
        self.assertEqual(conn.answer().status, 413)
        try:
            conn.send(text * 1000)
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.assertTrue(conn.ended())
        self.assertFalse(self.found(text))


class Waiting(HttpTest):
    def park(self, name, count=1):
        before = self.server.counts()["parked"]
        conns = []
        for _ in range(count):
            conn = self.conn()
            conn.send(request("GET", f"/v1/park/{name}"))
            conns.append(conn)
        wait_until(lambda: self.server.counts()["parked"] == before + count, "they wait")
        return conns

    def test_a_parked_request_is_answered_from_another_thread(self):
        conns = self.park("a", 50)
        others = self.park("b", 1)
        self.assertEqual(int(self.one(post("/v1/release/a", b"")).body), 50)
        for conn in conns:
            self.assertEqual(conn.answer().status, 200)
        for conn in conns: # and its connection goes on
            conn.send(request("GET", "/healthz"))
            self.assertEqual(conn.answer().status, 200)
        self.one(post("/v1/release/b", b""))
        self.assertEqual(others[0].answer().status, 200)

    def test_a_client_that_hangs_up_while_it_waits_is_noticed(self):
        def leave(conn):
            conn.sock.close()

        def half_close(conn):
            conn.sock.shutdown(socket.SHUT_WR)

        def reset(conn):
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            conn.sock.close()

        for end in (leave, half_close, reset):
            gone = self.server.counts()["gone"]
            conns = self.park("gone", 20)
            for conn in conns:
                end(conn)
            all_gone = {"parked": 0, "asking": 0, "gone": gone + 20}
            wait_until(lambda want=all_gone: self.server.counts() == want, "all are noticed")

    def test_a_half_closed_client_that_is_slow_costs_nothing(self):
        def wakes():
            folder, total = f"/proc/{self.server.process.pid}/task", 0
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/status") as file:
                    total += next(int(line.split()[1]) for line in file if line.startswith("voluntary"))
            return total

        conn = self.conn(small_buffers=True) # its answer does not fit
        conn.send(request("GET", "/v1/big"))
        conn.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(conn.head()[0], 200)
        before, pause = wakes(), threading.Event()
        pause.wait(2)
        self.assertLess(wakes() - before, 60) # one each 10 ms would be 200

    def test_hang_ups_and_releases_cross(self):
        for _ in range(10):
            conns = self.park("cross", 20)
            leavers = threading.Thread(target=lambda: [conn.sock.close() for conn in conns[:10]])
            leavers.start()
            self.one(post("/v1/release/cross", b""))
            leavers.join()
            for conn in conns[10:]:
                self.assertEqual(conn.answer().status, 200)
        wait_until(lambda: self.server.counts()["parked"] == 0, "none is left")

    def test_a_request_sent_behind_one_that_waits_comes_after_it(self):
        conn = self.park("behind")[0]
        conn.send(request("GET", "/v1/show/next"))
        self.one(post("/v1/release/behind", b""))
        self.assertEqual(conn.answer().status, 200)
        self.assertEqual(json.loads(conn.answer().body)[1], "next")

    def test_answers_race_with_their_handlers_return(self):
        def hammer():
            conn = Conn(self.server.connect())
            for _ in range(20):
                conn.send(post("/v1/async", b"abc") * 10)
                for _ in range(10):
                    answers.append(conn.answer().body)
            conn.sock.close()

        answers = []
        threads = [threading.Thread(target=hammer) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [b"3\n"] * 1600)

    def test_128_and_its_multiples_ready_at_once(self):
        for count in (128, 256):
            conns = [self.conn() for _ in range(count)]
            for _ in range(3):
                for conn in conns:
                    conn.send(post("/v1/async", b"abc"))
                for conn in conns:
                    self.assertEqual(conn.answer().status, 200)
            self.doCleanups()


class Limits(unittest.TestCase):
    def server(self, **options):
        server = Server(**options)
        self.addCleanup(server.close)
        return server

    def conn(self, server, **how):
        conn = Conn(server.connect(**how))
        self.addCleanup(conn.sock.close)
        return conn

    def drip(self, conn, data):
        """Single bytes until the server ends the connection; the seconds it took."""
        started = time.monotonic()
        pause = threading.Event()
        try:
            for byte in data:
                conn.send(bytes([byte]))
                pause.wait(0.1)
        except (BrokenPipeError, ConnectionResetError):
            return time.monotonic() - started
        raise AssertionError("all of it was taken")

    def test_a_request_that_only_drips_in_is_cut(self):
        server = self.server(read_timeout_ms=2000)
        slow = b"GET /v1/show/x HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 20000
        self.assertGreater(self.drip(self.conn(server), slow), 0.5)
        body = post("/v1/echo", b"x" * 20000)
        conn = self.conn(server)
        conn.send(body[:-19900])
        self.assertGreater(self.drip(conn, body[-19900:]), 0.5)
        silent = self.conn(server)
        self.assertTrue(silent.ended())
        again = self.conn(server) # the same for the second request of a connection
        again.send(request("GET", "/healthz"))
        again.answer()
        again.send(b"GET /healthz HTTP/1.1\r\n")
        self.assertTrue(again.ended())
        self.assertIn(b"narad_http_connections_cut_total 4", server.get("/metrics").body)

    def test_who_holds_room_and_stops_sending_is_cut(self):
        server = self.server(read_timeout_ms=8000, large_bytes_max=20 * MIB)
        started = time.monotonic()
        small, large = self.conn(server), self.conn(server)
        small.send(request("POST", "/v1/batch", b"Content-Length: 9000000") + b"x" * MIB)
        large.send(request("POST", "/v1/batch", b"Content-Length: 9000000") + b"x" * (5 * MIB))
        self.assertTrue(large.ended()) # after a quarter of the time for a request
        between = time.monotonic() - started
        self.assertTrue(small.ended()) # it holds none
        self.assertLess(between + 1, time.monotonic() - started)

    def test_an_idle_connection_is_closed(self):
        server = self.server(idle_timeout_ms=500)
        conn = self.conn(server)
        conn.send(request("GET", "/healthz"))
        self.assertEqual(conn.answer().status, 200)
        self.assertTrue(conn.ended())

    def test_a_parked_request_is_not_idle(self):
        server = self.server(idle_timeout_ms=2000, read_timeout_ms=2000, write_timeout_ms=2000)
        conn = self.conn(server)
        conn.send(request("GET", "/v1/park/long"))
        for _ in range(2): # these two pass its time limits, one after the other
            self.assertTrue(self.conn(server).ended())
        self.assertEqual(self.one(server, post("/v1/release/long", b"")).body, b"1\n")
        self.assertEqual(conn.answer().status, 200)

    def test_an_answer_that_nobody_reads_is_cut(self):
        server = self.server(write_timeout_ms=500)
        before = server.descriptors()
        conn = self.conn(server, small_buffers=True)
        conn.send(request("GET", "/v1/big"))
        wait_until(lambda: server.descriptors() > before, "it is being sent")
        wait_until(lambda: server.descriptors() <= before, "it is given up")

    def test_connections_beyond_the_cap_are_told_so(self):
        server = self.server(connections_max=10)
        held = [self.conn(server) for _ in range(10)]
        for conn in held:
            conn.send(request("GET", "/healthz"))
            conn.answer()
        conn = self.conn(server)
        answer = conn.answer()
        self.assertEqual((answer.status, answer.error()), (503, "too many connections"))
        self.assertTrue(conn.ended())
        held[0].sock.close()
        wait_until(lambda: server.get("/healthz").status == 200, "a place came free")

    def test_a_thousand_connections_with_256_descriptors(self):
        server = self.server(limit=256)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        conns, served, told = [self.conn(server) for _ in range(1000)], 0, 0
        for conn in conns:
            try:
                conn.send(request("GET", "/healthz"))
                status = conn.answer().status
            except (EOFError, ConnectionResetError, BrokenPipeError):
                status = 503 # it was told, and reset before it looked
            served += status == 200
            told += status == 503
        self.assertEqual((served, told), (128, 872))
        self.assertLess(server.descriptors(), 200) # the rest is the storage's
        before, pause = server.cpu_seconds(), threading.Event()
        pause.wait(2)
        self.assertLess(server.cpu_seconds() - before, 0.5) # it does not spin

    def test_without_a_descriptor_nothing_spins_and_those_who_wait_come_later(self):
        server = self.server(limit=256)
        self.assertEqual(server.tell(f"eat {256 - server.descriptors() - 40}"), "eaten")
        conns = [self.conn(server) for _ in range(60)]
        for conn in conns:
            conn.send(request("GET", "/healthz"))
        served = [conn for conn in conns[:30] if conn.answer().status == 200]
        wait_until(lambda: any("cannot accept" in line for line in server.said), "it has run out")
        before, pause = server.cpu_seconds(), threading.Event()
        pause.wait(2)
        self.assertLess(server.cpu_seconds() - before, 0.5)
        for conn in served:
            conn.sock.close()
        for conn in conns[30:]:
            self.assertEqual(conn.answer().status, 200)

    def test_connections_at_rest_give_memory_back(self):
        server = self.server()
        conns = [self.conn(server) for _ in range(400)] # 72 KiB each, once cleared
        for conn in conns:
            conn.send(request("GET", "/healthz"))
            conn.answer()
        before = server.resident_kib()
        for round_of in range(2):
            for conn in conns:
                conn.send(request("GET", "/v1/park/rest"))
            wait_until(lambda: server.counts()["parked"] == 400, "they wait")
            wait_until(lambda: server.resident_kib() < before + 4096, "what they do not use is given back")
            self.one(server, post("/v1/release/rest", b""))
            for conn in conns:
                self.assertEqual(conn.answer().status, 200)
        wait_until(lambda: server.resident_kib() < before + 4096, "idle ones do the same")

    def test_what_came_early_outlasts_a_rest(self):
        server = self.server()
        for blanks in (b"", b"\r\n", b"\r\n" * 3000):
            for behind in (b"", request("GET", "/v1/show/behind", b"X-A: " + b"b" * 30000), b"GET /v1/show/be"):
                conn = self.conn(server)
                conn.send(request("GET", "/healthz"))
                conn.answer()
                conn.send(blanks + request("GET", "/v1/park/early", b"X-B: " + b"c" * 9000) + behind)
                wait_until(lambda: server.counts()["parked"] == 1, "it waits")
                threading.Event().wait(1.2) # long enough to be trimmed
                self.one(server, post("/v1/release/early", b""))
                self.assertEqual(conn.answer().status, 200)
                if not behind:
                    conn.send(request("GET", "/v1/show/behind"))
                elif behind[-1:] != b"\n":
                    conn.send(request("GET", "/v1/show/behind")[len(behind):])
                self.assertEqual(json.loads(conn.answer().body)[1], "behind")

    def one(self, server, data):
        with Conn(server.connect()) as conn:
            conn.send(data)
            return conn.answer()

    def test_metrics_move_to_their_own_address(self):
        server = self.server(metrics_addr="127.0.0.1:0")
        self.assertEqual(server.get("/metrics").status, 404)
        self.assertEqual(server.get("/metrics", server.metrics_port).status, 200)
        self.assertEqual(server.get("/healthz", server.metrics_port).status, 404)

    def test_addresses(self):
        for addr in ("127.0.0.1:0", "localhost:0", ":0"):
            self.assertEqual(self.server(addr=addr).get("/healthz").status, 200)
        for addr, text in (("", "want"), ("7942", "want"), (":x", "want"), (":70000", "want"), ("::1:80", "want"),
                           ("no.such.host.invalid:1", "no.such.host.invalid")):
            with self.assertRaises(AssertionError) as caught:
                Server(addr=addr)
            self.assertIn(text, str(caught.exception))


class Ending(unittest.TestCase):
    def test_a_drain_closes_what_is_idle_and_ends_the_rest_with_its_answer(self):
        server = Server()
        idle, waits = Conn(server.connect()), Conn(server.connect())
        idle.send(request("GET", "/healthz"))
        idle.answer()
        waits.send(request("GET", "/v1/park/x"))
        wait_until(lambda: server.counts()["parked"] == 1, "it waits")
        helper = Conn(server.connect())
        helper.send(request("POST", "/v1/release/x", b"Content-Length: 2", body=b"x")) # one byte is missing
        wait_until(lambda: b"narad_http_requests_in_flight 3\n" in server.get("/metrics").body, "three are open")
        self.assertEqual(server.tell("drain"), "drained")
        self.assertTrue(idle.ended())
        with self.assertRaises(ConnectionRefusedError):
            server.connect()
        self.assertEqual(server.tell("wait 10"), "open")
        helper.send(b"x") # the wait is over: no handler is called any more
        self.assertTrue(helper.ended())
        for conn in (idle, helper):
            conn.sock.close()
        server.close() # answers what is parked, and does not hang
        waits.sock.close()

    def test_a_drain_lets_what_is_open_finish(self):
        server = Server()
        waits, helper = Conn(server.connect()), Conn(server.connect())
        waits.send(request("GET", "/v1/park/x"))
        wait_until(lambda: server.counts()["parked"] == 1, "it waits")
        helper.send(request("POST", "/v1/release/x", b"Content-Length: 1"))
        wait_until(lambda: b"narad_http_requests_in_flight 3\n" in server.get("/metrics").body, "three are open")
        self.assertEqual(server.tell("drain"), "drained")
        helper.send(b"x")
        self.assertEqual(helper.answer().headers["Connection"], "close")
        self.assertEqual(waits.answer().headers["Connection"], "close")
        self.assertEqual(server.tell(f"wait {PATIENCE * 1000}"), "empty")
        for conn in (waits, helper):
            self.assertTrue(conn.ended())
            conn.sock.close()
        server.close()

    def test_a_stop_answers_who_is_asked_for(self):
        server = Server()
        conns = [Conn(server.connect()) for _ in range(10)]
        for conn in conns[:5]:
            conn.send(request("POST", "/v1/guarded", b"Content-Length: 2000000", b"Authorization: ask"))
        for conn in conns[5:]:
            conn.send(chunked("/v1/guarded", b"x" * (2 * MIB), 70001, b"Authorization: ask")[:MIB + 200000])
        wait_until(lambda: server.counts()["asking"] == 10, "they are asked for")
        server.close()
        for conn in conns:
            conn.sock.close()

    def test_a_stop_under_load_ends(self):
        def hammer():
            try:
                while True:
                    with Conn(server.connect()) as conn:
                        conn.send(post("/v1/async", b"abc") * 3 + request("GET", "/v1/park/x"))
                        for _ in range(3):
                            conn.answer()
            except (OSError, EOFError):
                pass

        server = Server()
        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.counts()["gone"] > 20, "it is busy")
        server.close()
        for thread in threads:
            thread.join()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="narad-http-tls-")
        for name in ("one", "two", "client"):
            cls.certificate(name, cls.path(name))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.directory.name, name)

    @classmethod
    def certificate(cls, common_name, path):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={common_name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path + ".key",
                "-out", path + ".crt")

    def client(self, server, trusted, certificate=None, version=ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.path(trusted) + ".crt")
        context.maximum_version = version
        if certificate:
            context.load_cert_chain(self.path(certificate) + ".crt", self.path(certificate) + ".key")
        conn = Conn(context.wrap_socket(server.connect(), server_hostname="127.0.0.1"))
        self.addCleanup(conn.sock.close)
        return conn

    def use(self, name, files):
        for end in (".crt", ".key"):
            with open(self.path(name) + end) as source, open(files + end, "w") as target:
                target.write(source.read())

    def test_tls_1_3_and_nothing_older(self):
        server = Server(tls_cert_file=self.path("one") + ".crt", tls_key_file=self.path("one") + ".key")
        self.addCleanup(server.close)
        conn = self.client(server, "one")
        body = os.urandom(MIB)
        for size in (5, 16384, 16385, MIB):
            conn.send(post("/v1/echo", body[:size]))
            self.assertEqual(json.loads(conn.answer().body)["size"], size)
        conn.send(request("GET", "/v1/big"))
        self.assertEqual(len(conn.answer().body), 8 * MIB)
        conn.send(post("/v1/async", b"abc") * 5)
        for _ in range(5):
            self.assertEqual(conn.answer().status, 200)
        conn.send(request("POST", "/v1/echo", b"Content-Length: 9000000"))
        self.assertEqual(conn.answer().status, 413)
        for data, status in ((post("/v1/guarded", body * 2, b"Authorization: later"), 200),
                             (chunked("/v1/guarded", body * 2, 70001, b"Authorization: later"), 200),
                             (request("POST", "/v1/guarded", b"Content-Length: 9000000"), 401),
                             (request("POST", "/v1/echo", b"Content-Length: x", body=b"hello"), 400),
                             (request("GET", "/v1/show/x", b"X: " + b"a" * 100000), 431),
                             (b"GET /v1/show/x HTTP/2.0\r\n\r\n", 505)):
            conn = self.client(server, "one")
            conn.send(data)
            self.assertEqual(conn.answer().status, status)
            if status != 200:
                self.assertTrue(conn.ended(), conn.left)
        with self.assertRaises((ssl.SSLError, ConnectionResetError)):
            self.client(server, "one", version=ssl.TLSVersion.TLSv1_2)
        plain = Conn(server.connect())
        plain.send(request("GET", "/healthz"))
        plain.ended()
        plain.sock.close()
        self.assertNotIn(b"200 OK", plain.left)

    def test_a_reload_disturbs_no_connection(self):
        files = self.path("current")
        self.use("one", files)
        server = Server(tls_cert_file=files + ".crt", tls_key_file=files + ".key")
        self.addCleanup(server.close)
        old = self.client(server, "one")
        old.send(request("GET", "/healthz"))
        old.answer()
        self.use("two", files)
        self.assertEqual(server.tell("reload"), "ok")
        fresh = self.client(server, "two")
        with self.assertRaises(ssl.SSLError):
            self.client(server, "one")
        with open(files + ".crt", "w") as file:
            file.write("no certificate")
        self.assertIn(files + ".crt", server.tell("reload"))
        for conn in (old, fresh, self.client(server, "two")):
            conn.send(request("GET", "/healthz"))
            self.assertEqual(conn.answer().status, 200)

    def test_clients_show_a_certificate_where_authorities_are_named(self):
        server = Server(tls_cert_file=self.path("one") + ".crt", tls_key_file=self.path("one") + ".key",
                        tls_client_ca_file=self.path("client") + ".crt")
        self.addCleanup(server.close)
        good = self.client(server, "one", "client")
        good.send(request("GET", "/healthz"))
        self.assertEqual(good.answer().status, 200)
        for shown in (None, "two"):
            with self.assertRaises((ssl.SSLError, ConnectionResetError, EOFError, BrokenPipeError)):
                bad = self.client(server, "one", shown)
                bad.send(request("GET", "/healthz"))
                bad.answer()

    def test_bad_files_are_named(self):
        good = self.path("one")
        for cert, key in ((good + ".crt", self.path("two") + ".key"), (self.path("none"), good + ".key"),
                          (good + ".key", good + ".key")):
            with self.assertRaises(AssertionError) as caught:
                Server(tls_cert_file=cert, tls_key_file=key)
            self.assertIn(cert, str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
