#!/usr/bin/python3
"""The HTTP gateway in front of a real node: in its process, and alone before one that comes and goes. What each
route answers is tests/conformance's; here is what needs several processes, many clients, or clients that leave."""

import base64
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

import grpc
from nodes import CODE, NARAD, OPTIONS, PATIENCE, Node, admin_pb2, broker_pb2, environment, status_of, wait_until

FOREVER_MS = 43_200_000  # a lease that lasts longer than any test: what is lost with it does not come back


def more_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Http:
    """One kept connection. `source`: another address of this machine's to come from."""

    def __init__(self, address, context=None, source=None):
        kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
        more = {} if context is None else {"context": context}
        more.update({} if source is None else {"source_address": (source, 0)})
        self.connection = kind(address, timeout=PATIENCE, **more)

    def __call__(self, method, path, body=None, **headers):
        self.connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = self.connection.getresponse()
        text = answer.read()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, json.loads(text) if kind == "application/json" else text, answer.headers

    def close(self):
        self.connection.close()


def http_address(node):
    with open(node.path("ready.json"), encoding="utf-8") as file:
        return json.load(file)["http_addr"]


def gauge(node, name):
    text = node.admin.Metrics(admin_pb2.MetricsRequest(), timeout=PATIENCE).text
    values = [float(line.split()[-1]) for line in text.splitlines() if line.split(" ")[0] == "narad_" + name]
    return sum(values)


def park(address, path, count):
    """Connections whose long poll has been sent."""
    host, port = address.rsplit(":", 1)
    sockets = [socket.create_connection((host, int(port)), timeout=PATIENCE) for _ in range(count)]
    for each in sockets:
        each.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return sockets


def read_answer(parked):
    answer = http.client.HTTPResponse(parked)
    answer.begin()
    body = answer.read()
    parked.close()
    return answer.status, body


class FewFiles(Node):
    program = ["/bin/sh", "-c", 'ulimit -n 256; exec "$0" "$@"', NARAD]


class InTheNode(unittest.TestCase):
    def test_a_message_goes_round(self):
        with Node() as node:
            call = Http(http_address(node))
            status, topic, _ = call("POST", "/v1/topics", '{"name":"t"}')
            self.assertEqual((status, topic["partitions"]), (201, 3))
            self.assertEqual(call("POST", "/v1/topics/t/produce?key=k", b'{"v": 1.0}', X_Narad_Header_Trace="abc")[:2],
                             (202, b""))
            status, message, headers = call("GET", "/v1/topics/t/consume?wait=5s")
            self.assertEqual((status, message["key"], message["payload"]), (200, "k", {"v": 1.0}))
            self.assertEqual(headers["X-Narad-Header-Trace"], "abc")
            handle = message["receipt_handle"].replace(":", "%3A")
            self.assertEqual(call("POST", f"/v1/topics/t/ack?receipt_handle={handle}")[0], 204)
            self.assertEqual(call("POST", f"/v1/topics/t/ack?receipt_handle={handle}")[0], 410)
            status, message, _ = call("GET", "/v1/topics/t/consume?partition=0&offset=0")
            self.assertEqual((status, "receipt_handle" in message), (200, False))
            # The same record over gRPC: headers are headers there.
            replay = node.broker.Replay(broker_pb2.ReplayRequest(topic="t", partition=0, offset=0), timeout=PATIENCE)
            self.assertEqual([(h.name, h.value) for h in next(iter(replay)).messages[0].headers], [("trace", b"abc")])
            self.assertEqual(call("DELETE", "/v1/topics/t")[0], 204)
            self.assertEqual(call("GET", "/v1/topics/t")[:2], (404, {"error": "topic not found"}))

    def test_record_headers_that_are_none_are_refused_or_left_out(self):
        with Node() as node:
            call = Http(http_address(node))
            node.create("t")
            status, error, _ = call("POST", "/v1/topics/t/produce", b"x", **{"X_Narad_Header_A.b": "1"})
            self.assertEqual(status, 400)
            self.assertIn("[a-z0-9-]{1,64}", error["error"])
            node.produce("t", b"x", headers=[{"name": "good", "value": b"1"}, {"name": "line", "value": b"a\r\nSet-Cookie: b"}])
            status, _, headers = call("GET", "/v1/topics/t/consume")
            self.assertEqual((status, headers["X-Narad-Header-Good"], headers["X-Narad-Header-Line"], headers["Set-Cookie"]),
                             (200, "1", None, None))

    def test_who_leaves_while_parked_leaves_nothing_leased(self):
        count = 50
        with Node() as node:
            node.create("t", visibility_timeout_ms=FOREVER_MS)
            parked = park(http_address(node), "/v1/topics/t/consume?wait=10s", count)
            wait_until(lambda: gauge(node, "http_requests_in_flight") == count, "all are parked")
            for each in parked:
                each.close()
            wait_until(lambda: gauge(node, "http_requests_in_flight") == 0, "all are gone")
            node.produce("t", *[b"%d" % i for i in range(count)])
            taken = []
            wait_until(lambda: taken.extend(node.consume("t", most=1000)) or len(taken) >= count, "all are there to take")
            self.assertEqual(sorted(int(m.payload) for m in taken), list(range(count)))

    def test_who_leaves_as_it_is_served_leaves_nothing_leased(self):
        """Deliveries cross the hang-up: what nobody got is given back."""
        with Node() as node:
            node.create("t", visibility_timeout_ms=FOREVER_MS)
            address, total = http_address(node), 0
            for _ in range(20):
                parked = park(address, "/v1/topics/t/consume?wait=10s", 5)
                for each in parked:
                    each.close()
                node.produce("t", *[b"x"] * 5)
                total += 5
                wait_until(lambda: gauge(node, "http_requests_in_flight") == 0, "all are gone")
            taken = node.take_all("t", acked=False)
            # What was written to a socket before its end was seen is lost until the lease is over: how much of it there
            # is, the machine decides. The rest was given back, and can be taken at once.
            self.assertEqual(node.in_flight("t"), total)
            self.assertGreater(len(taken), 0)

    def test_a_thousand_parked_polls_get_a_message_each(self):
        count = 1000
        if more_files() < 3 * count:
            self.skipTest("too few files are allowed")
        with Node() as node:
            node.create("t", visibility_timeout_ms=FOREVER_MS)
            parked = park(http_address(node), "/v1/topics/t/consume?wait=10s", count)
            wait_until(lambda: gauge(node, "http_requests_in_flight") == count, "all are parked")
            for start in range(0, count, 500):
                node.produce("t", *[b"%d" % i for i in range(start, start + 500)])
            answers = [read_answer(each) for each in parked]
            served = [json.loads(body) for status, body in answers if status == 200]
            # A slow machine may let some waits end before.
            self.assertTrue(all(status in (200, 204) for status, _ in answers))
            self.assertGreater(len(served), 0)
            self.assertEqual(len({m["receipt_handle"] for m in served}), len(served))
            rest = node.take_all("t", acked=False)
            self.assertEqual(sorted([m["payload"] for m in served] + [int(m.payload) for m in rest]), list(range(count)))

    def test_a_stop_answers_what_is_parked(self):
        with Node() as node:
            node.create("t")
            parked = park(http_address(node), "/v1/topics/t/consume?wait=10s", 10)
            wait_until(lambda: gauge(node, "http_requests_in_flight") == 10, "all are parked")
            node.terminate()
            self.assertEqual([read_answer(each) for each in parked], [(204, b"")] * 10)
            self.assertEqual(node.wait(), 0)
            self.assertIn("http listening", node.log())

    def test_it_needs_no_socket_of_the_operators(self):
        directory = tempfile.mkdtemp(prefix="n" * 120)
        try:
            for flags in (("--grpc-socket", "none"), ("--data-dir", os.path.join(directory, "d"))):
                with Node(flags=flags) as node:
                    call = Http(http_address(node))
                    self.assertEqual(call("POST", "/v1/topics", '{"name":"t"}')[0], 201)
                    node.stop()
                    self.assertFalse(os.path.exists(node.path("data/gateway.sock")))
        finally:
            shutil.rmtree(directory)

    def test_a_thousand_connections_leave_descriptors_for_the_rest(self):
        if more_files() < 1100:
            self.skipTest("too few files are allowed")
        with FewFiles(NARAD_HTTP_READ_TIMEOUT="10m", NARAD_HTTP_IDLE_TIMEOUT="10m") as node:
            host, port = http_address(node).rsplit(":", 1)
            held, statuses = [socket.create_connection((host, int(port)), timeout=PATIENCE) for _ in range(1000)], []
            for each in held:
                try:
                    each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    statuses.append(int(each.recv(12).split()[1]))
                except (IndexError, ConnectionError):
                    statuses.append(503)  # it was told, and reset before it looked
            self.assertEqual((statuses.count(200), statuses.count(503)), (128, 872))
            for number in range(20):
                name = f"t{number}"
                node.create(name)
                node.produce(name, b"x" * 1000)
                self.assertEqual(len(node.take_all(name)), 1)
            for each in held:
                each.close()

    def test_it_can_be_left_out(self):
        with Node(NARAD_GATEWAY_ENABLED="false") as node:
            self.assertEqual(http_address(node), "")
            self.assertNotIn("http listening", node.log())

    def test_a_taken_port_refuses_the_start(self):
        with Node() as node:
            again = run("serve", "--dev", "--grpc-addr", "127.0.0.1:0", "--addr", http_address(node))
            self.assertEqual(again.returncode, 1)
            self.assertIn("http.addr", again.stderr)


class Shares(unittest.TestCase):
    """What one client may do at a time or a second. Without security a client is an address, over HTTP as over gRPC."""

    def refused(self, answer, text):
        status, error, headers = answer
        self.assertEqual((status, error["error"]), (429, text))
        return int(headers["Retry-After"])

    def test_polls_at_a_time(self):
        text = "too many in-flight consume requests for this identity (limit 3 per node)"
        with Node(NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY="3") as node:
            node.create("t")
            address = http_address(node)
            parked = park(address, "/v1/topics/t/consume?wait=10s", 3)
            wait_until(lambda: gauge(node, "http_requests_in_flight") == 3, "all are parked")
            # Credentials are ignored here, they make nobody else of an address.
            for headers in ({}, {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()}):
                answer = Http(address)("GET", "/v1/topics/t/consume?wait=1s", **headers)
                self.assertEqual(self.refused(answer, text), 1)
            # Nor does another way: over gRPC the same address is the same client, for replays, too.
            self.assertEqual(status_of(lambda: node.consume("t")), (CODE.RESOURCE_EXHAUSTED, text))
            self.refused(Http(address)("GET", "/v1/topics/t/consume?partition=0&offset=0"), text)
            self.assertEqual(Http(address, source="127.0.0.2")("GET", "/v1/topics/t/consume")[0], 204)
            for each in parked:
                each.close()
            wait_until(lambda: Http(address)("GET", "/v1/topics/t/consume")[0] == 204, "there is room again")

    def test_messages_a_second(self):
        text = "produce rate limit of this identity exceeded (limit 1 messages per second per node)"
        with Node(NARAD_LIMITS_PRODUCE_MESSAGES_PER_SECOND="1") as node:
            node.create("t")
            first, second = Http(http_address(node)), Http(http_address(node), source="127.0.0.2")
            batch = json.dumps({"messages": [{"payload": 1}] * 100})

            def refusal(path, body):
                """Produce until it is refused: on a slow machine a token comes back in between."""
                answers = []

                def look():
                    answers.append(first("POST", path, body))
                    return answers[-1][0] != 202
                wait_until(look, "it is refused")
                return answers[-1]
            self.assertEqual(self.refused(refusal("/v1/topics/t/produce", b"x"), text), 1)
            self.assertEqual(second("POST", "/v1/topics/t/produce", b"x")[0], 202)
            self.assertEqual(self.refused(refusal("/v1/topics/t/produce/batch", batch), text), 1)
            wait_until(lambda: first("POST", "/v1/topics/t/produce", b"x")[0] == 202, "a token comes back")

    def test_messages_consumed_a_second(self):
        """What a poll took is paid afterwards: a debt of up to a minute, and a Retry-After that says so."""
        text = "consume rate limit of this identity exceeded (limit 1 messages per second per node)"
        with Node(NARAD_LIMITS_CONSUME_MESSAGES_PER_SECOND="1") as node:
            node.create("t")
            node.produce("t", *[b"x"] * 300)
            first, second = Http(http_address(node)), Http(http_address(node), source="127.0.0.2")
            for call in (first, second):
                status, taken, _ = call("GET", "/v1/topics/t/consume?max=100", X_Narad_Client="test")
                self.assertEqual((status, len(taken["messages"])), (200, 100))
                after = self.refused(call("GET", "/v1/topics/t/consume"), text)
                self.assertTrue(2 <= after <= 61, after)
                # Of a call of its own, the same.
                after = self.refused(call("GET", "/v1/topics/t/consume?partition=0&offset=0"), text)
                self.assertTrue(2 <= after <= 61, after)

    def test_messages_at_a_time(self):
        """Produces that wait for the disk."""
        text = "too many in-flight produce requests for this identity (limit 2 per node)"
        with Node(NARAD_HTTP_MAX_PRODUCE_IN_FLIGHT_PER_IDENTITY="2") as node:
            node.create("t")
            batch = json.dumps({"messages": [{"payload": 1}] * 100})
            outcomes = set()

            def many(source):
                call = Http(http_address(node), source=source)
                for _ in range(40):
                    outcomes.add(call("POST", "/v1/topics/t/produce/batch", batch)[0])
            threads = [threading.Thread(target=many, args=(f"127.0.0.{i}",)) for i in range(1, 9)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(outcomes, {202})  # each alone is within it, whatever the others do

            def refused():
                calls = [Http(http_address(node)) for _ in range(8)]
                for call in calls:
                    call.connection.request("POST", "/v1/topics/t/produce/batch", batch)
                answers = [call.connection.getresponse() for call in calls]
                texts = [answer.read() for answer in answers]
                for answer, body in zip(answers, texts):
                    if answer.status == 429:
                        self.assertEqual((answer.headers["Retry-After"], json.loads(body)["error"]), ("1", text))
                return any(answer.status == 429 for answer in answers)
            wait_until(refused, "eight of one client at a time are too many")

    def test_a_gateway_alone_is_one_client(self):
        """Nobody who comes over TCP is believed to speak for others; its polls a gateway counts by address itself."""
        text = "produce rate limit of this identity exceeded (limit 1 messages per second per node)"
        with Node(NARAD_LIMITS_PRODUCE_MESSAGES_PER_SECOND="1") as node:
            node.create("t")
            node.create("empty")
            with Gateway(node.address, NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY="1") as gateway:
                calls = [Http(gateway.address, source=f"127.0.0.{i}") for i in range(1, 6)]
                answers = []

                def look():
                    answers.extend(call("POST", "/v1/topics/t/produce", b"x") for call in calls)
                    return any(answer[0] == 429 for answer in answers)
                wait_until(look, "together they are too many")
                self.refused(next(answer for answer in answers if answer[0] == 429), text)

                def counted():
                    """The second poll may come before the first."""
                    parked = park(gateway.address, "/v1/topics/empty/consume?wait=10s", 1)[0]
                    statuses = [call("GET", "/v1/topics/empty/consume")[0] for call in calls]
                    parked.close()
                    self.assertEqual(set(statuses[1:]), {204})
                    return statuses[0] == 429
                wait_until(counted, "a poll of the same address is counted")
            # Over the broker's own socket it is believed.
            with Gateway("unix:" + node.path("data/narad.sock")) as gateway:
                for i in range(1, 6):
                    call = Http(gateway.address, source=f"127.0.1.{i}")
                    self.assertEqual(call("POST", "/v1/topics/t/produce", b"x")[0], 202)


def run(*arguments, **env):
    return subprocess.run([NARAD, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL, env=environment(**env))


class Gateway:
    """`narad gateway` of its own."""

    def __init__(self, broker, *flags, **env):
        self.directory = tempfile.mkdtemp(prefix="narad-gw-")
        ready = os.path.join(self.directory, "ready.json")
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen([NARAD, "gateway", "--broker", broker, "--addr", "127.0.0.1:0",
                                             "--ready-file", ready, *flags], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment(**env))
        wait_until(lambda: os.path.exists(ready) or self.process.poll() is not None, "the gateway listens")
        try:
            with open(ready, encoding="utf-8") as file:
                self.address = json.load(file)["http_addr"]
        except FileNotFoundError:
            raise AssertionError(self.log())

    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=PATIENCE)
        log = self.log()
        shutil.rmtree(self.directory)
        if status != 0:
            raise AssertionError(f"exit status {status}:\n{log}")


class Alone(unittest.TestCase):
    def test_it_serves_the_api(self):
        with Node() as node, Gateway(node.address) as gateway:
            call = Http(gateway.address)
            self.assertEqual(call("GET", "/healthz")[:2], (200, {"status": "ok"}))
            self.assertEqual(call("GET", "/readyz")[:2], (200, {"status": "ready"}))
            self.assertEqual(call("POST", "/v1/topics", '{"name":"t"}')[0], 201)
            self.assertEqual(call("POST", "/v1/topics/t/produce", b"hello")[0], 202)
            self.assertEqual(call("GET", "/v1/topics/t/consume?wait=5s")[1]["payload"], "hello")
            status, text, _ = call("GET", "/metrics")
            lines = text.decode().splitlines()
            self.assertEqual(status, 200)
            self.assertTrue(any(line.startswith("narad_messages_produced_total") for line in lines), "the broker's")
            self.assertTrue(any("GET /v1/topics/{topic}/consume" in line for line in lines), "its own")
            self.assertEqual(sum(line.startswith("narad_process_") or line.startswith("process_cpu_seconds_total ")
                                 for line in lines), 1, "of the broker's process alone")

    def test_it_heals_when_the_broker_comes_back(self):
        with Node() as node, Gateway("unix:" + node.path("data/narad.sock")) as gateway:
            call = Http(gateway.address)
            node.create("t")
            parked = park(gateway.address, "/v1/topics/t/consume?wait=10s", 5)
            self.assertEqual(call("POST", "/v1/topics/t/produce?partition=1", b"1")[0], 202)
            node.kill()
            for each in parked:
                self.assertIn(read_answer(each)[0], (200, 503))
            self.assertEqual(call("POST", "/v1/topics/t/produce", b"2")[0], 503)
            self.assertEqual(call("GET", "/readyz")[:2], (503, {"error": "not ready"}))
            self.assertEqual(call("GET", "/healthz")[0], 200)
            self.assertEqual(call("GET", "/v1/topics/t/consume?wait=5s")[0], 503)
            self.assertEqual(call("POST", "/v1/topics/t/ack?receipt_handle=0:0:1")[0] in (502, 503), True)
            self.assertIn(b"narad_http_requests_total", call("GET", "/metrics")[1])
            node.start()
            wait_until(lambda: call("GET", "/readyz")[0] == 200, "it finds the broker again")
            self.assertEqual(call("POST", "/v1/topics/t/produce", b"3")[0], 202)

    def test_the_broker_need_not_be_there_first(self):
        with tempfile.TemporaryDirectory() as directory:
            with Gateway("unix:" + os.path.join(directory, "nowhere")) as gateway:
                self.assertEqual(Http(gateway.address)("GET", "/readyz")[0], 503)
                status, error, _ = Http(gateway.address)("GET", "/v1/topics")
                self.assertEqual(status, 503)
                self.assertNotEqual(error["error"], "")

    def test_credentials_go_on_to_the_broker(self):
        with Node(dev=False, NARAD_ADMIN_PASSWORD="root-secret") as node, Gateway(node.address) as gateway:
            call = Http(gateway.address)
            right = "Basic " + base64.b64encode(b"admin:root-secret").decode()
            wrong = "Basic " + base64.b64encode(b"admin:wrong").decode()
            wait_until(lambda: call("GET", "/v1/users", Authorization=right)[0] == 200, "root is there")
            status, error, headers = call("GET", "/v1/topics")
            self.assertEqual((status, error, headers["WWW-Authenticate"]),
                             (401, {"error": "authentication required"}, 'Basic realm="narad"'))
            self.assertEqual(call("GET", "/v1/topics", Authorization=wrong)[0], 401)
            self.assertEqual(call("POST", "/v1/topics", '{"name":"t"}', Authorization=right)[0], 201)
            self.assertEqual(call("POST", "/v1/topics/t/produce", b"x", Authorization=right)[0], 202)
            self.assertEqual(call("POST", "/v1/topics/t/produce?key=a&key=b", b"x")[0], 401)  # not: 400
            self.assertEqual(call("GET", "/v1/nowhere")[0], 401)  # not: 404
            self.assertNotIn("root-secret", gateway.log())
            self.assertEqual(status_of(lambda: node.produce("t", b"x"))[0], CODE.UNAUTHENTICATED)

    def test_bad_arguments_are_named(self):
        cases = [
            ((), "--broker HOST:PORT (or NARAD_BROKER) is missing"),
            (("--broker",), "--broker needs a value"),
            (("--broker", "nowhere"), "--broker must be HOST:PORT"),
            (("--broker", "a:1", "--cert-file", "x"), "--cert-file and --key-file must be given together"),
            (("--broker", "a:1", "--data-dir", "x"), "--data-dir is for narad serve"),
            (("--broker", "a:1", "--dev"), "--dev is for narad serve"),
            (("--broker", "a:1", "--nonsense", "x"), "unknown flag --nonsense"),
            (("--broker", "a:1", "--addr", "x"), "http.addr must be host:port"),
            (("--broker", "a:1", "--ca-file", "/nowhere/ca.pem"), "/nowhere/ca.pem"),
        ]
        for arguments, text in cases:
            with self.subTest(arguments=arguments):
                result = run("gateway", *arguments)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(text, result.stderr)
        self.assertIn("NARAD_TLS", run("gateway", "--broker", "a:1", NARAD_TLS="maybe").stderr)
        shown = run("gateway", "--help")
        self.assertEqual(shown.returncode, 0)
        for word in ("--broker", "NARAD_BROKER", "http.max_consume_wait", "NARAD_HTTP_ADDR", "--tls"):
            self.assertIn(word, shown.stdout)
        for word in ("storage.data_dir", "gateway.enabled", "http.metrics_unauthenticated", "http.max_produce"):
            self.assertNotIn(word, shown.stdout)  # what a gateway alone does not do


class Encrypted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="narad-tls-")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "certificates.sh")
        subprocess.run(["sh", script, cls.directory], check=True, capture_output=True)
        cls.context = ssl.create_default_context(cafile=cls.file("ca.pem"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    @classmethod
    def file(cls, name):
        return os.path.join(cls.directory, name)

    def test_http_in_the_node(self):
        with Node(NARAD_HTTP_TLS_CERT_FILE=self.file("server.pem"), NARAD_HTTP_TLS_KEY_FILE=self.file("server.key")) as node:
            self.assertEqual(Http(http_address(node), self.context)("GET", "/readyz")[0], 200)

    def test_a_gateway_alone_tells_until_when_its_certificate_is_good(self):
        name = b'narad_tls_cert_not_after_seconds{listener="http"} '
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        with Node() as node, tempfile.TemporaryDirectory() as directory:
            files = [shutil.copy(self.file(name), directory) for name in ("server.pem", "server.key")]
            settings = {"NARAD_HTTP_TLS_CERT_FILE": files[0], "NARAD_HTTP_TLS_KEY_FILE": files[1]}
            with Gateway(node.address, **settings) as gateway:
                def told():
                    text = Http(gateway.address, anyone)("GET", "/metrics")[1]
                    return [float(line[len(name):]) for line in text.splitlines() if line.startswith(name)]

                def expiry(path):
                    text = subprocess.run(["openssl", "x509", "-noout", "-enddate", "-in", path], check=True,
                                          capture_output=True, text=True).stdout
                    return ssl.cert_time_to_seconds(text.strip().split("=")[1])
                # The file holds the authority's as well, and what ends first counts.
                before = min(expiry(files[0]), expiry(self.file("ca.pem")))
                self.assertEqual(told(), [before])
                self.assertIn("certificate in use", gateway.log())
                for source, target in zip(("expired.pem", "expired.key"), files):
                    shutil.copy(self.file(source), target)
                self.assertEqual(told(), [before])
                gateway.process.send_signal(signal.SIGHUP)
                wait_until(lambda: told() == [expiry(files[0])], "the new one is told of")
                self.assertIn("certificate has expired", gateway.log())

    def test_from_the_gateway_to_the_broker(self):
        files = {"NARAD_GRPC_TLS_CERT_FILE": self.file("server.pem"), "NARAD_GRPC_TLS_KEY_FILE": self.file("server.key")}
        with Secret(self.file("ca.pem"), **files) as node:
            with Gateway(node.address, "--ca-file", self.file("ca.pem")) as gateway:
                self.assertEqual(Http(gateway.address)("POST", "/v1/topics", '{"name":"t"}')[0], 201)
            for flags in (("--ca-file", self.file("other-ca.pem")), ()):  # not its authority; in clear
                with Gateway(node.address, *flags) as gateway:
                    self.assertEqual(Http(gateway.address)("GET", "/v1/topics")[0], 503)


class Secret(Node):
    """A node whose gRPC speaks TLS."""

    def __init__(self, authority, **env):
        with open(authority, "rb") as file:
            self.authority = file.read()
        super().__init__(**env)

    def new_channel(self):
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self.authority), options=OPTIONS)


if __name__ == "__main__":
    unittest.main()
