#!/usr/bin/python3
"""What HTTP clients are told of a broker that refuses, hangs, goes away or is not ready: every row of 421, 429, 5xx
in the tables of docs/HTTP_API.md. A stand-in for a broker gives each answer to `narad gateway`; what real nodes
come to is below it."""

import concurrent.futures
import json
import os
import re
import threading
import unittest

import grpc
import small_disk
from faults import FDATASYNC, SUBMIT, Faults
from nodes import CODE, OPTIONS, Node, admin_pb2, broker_pb2, health_pb2, wait_until
from test_gateway import Gateway, Http, http_address

# Every route that asks the broker: how its failures are named, and what it answers when the broker's answer got lost.
ROUTES = {
    "create": ("POST", "/v1/topics", b'{"name":"t"}', "create topic", 503),
    "list": ("GET", "/v1/topics", None, "list topics", 503),
    "get": ("GET", "/v1/topics/t", None, "get topic", 503),
    "get-one": ("GET", "/v1/topics/t?partition=1", None, "get topic", 503),
    "alter": ("PATCH", "/v1/topics/t", b'{"partitions":9}', "alter topic", 503),
    "delete": ("DELETE", "/v1/topics/t", None, "delete topic", 503),
    "produce": ("POST", "/v1/topics/t/produce", b"x", "produce", 503),
    "batch": ("POST", "/v1/topics/t/produce/batch", b'{"messages":[{"payload":1}]}', "produce", 503),
    "consume": ("GET", "/v1/topics/t/consume?wait=1s", None, "consume", 503),
    "replay": ("GET", "/v1/topics/t/consume?partition=0&offset=0", None, "consume", 502),
    "ack": ("POST", "/v1/topics/t/ack?receipt_handle=0:0:1", None, "ack", 502),
    "extend": ("POST", "/v1/topics/t/ack?receipt_handle=0:0:1&extend=true", None, "extend ack", 502),
    "nack": ("POST", "/v1/topics/t/ack?receipt_handle=0:0:1&extend=0", None, "nack", 502),
    "ack-batch": ("POST", "/v1/topics/t/ack", b'{"receipt_handles":["0:0:1"]}', "ack", 502),
    "create-user": ("POST", "/v1/users", b'{"username":"u","password":"p"}', "create user", 503),
    "list-users": ("GET", "/v1/users", None, "list users", 503),
    "get-user": ("GET", "/v1/users/u", None, "get user", 503),
    "delete-user": ("DELETE", "/v1/users/u", None, "delete user", 503),
    "grants": ("PUT", "/v1/users/u/grants", b'{"grants":[]}', "set grants", 503),
    "password": ("PUT", "/v1/users/u/password", b'{"new_password":"p"}', "set password", 503),
    "no-route": ("GET", "/v1/nowhere", None, "access check", 503),
}
# Of these the outcome is not in doubt when nothing comes: they change nothing.
ASKS = {"list", "get", "get-one", "consume", "list-users", "get-user", "no-route"}
SHARED = {"produce": "ProduceStream", "batch": "ProduceStream", "consume": "ConsumeStream", "ack": "AckStream",
          "extend": "AckStream", "nack": "AckStream", "ack-batch": "AckStream"}
SAID = "said by the broker"
# The broker's word: reason, gRPC status, HTTP status; the text is the broker's (None), or that.
REASONS = [
    ("NOT_OWNER", CODE.UNAVAILABLE, 421, "this node does not own the requested partition"),
    ("LIMITED", CODE.RESOURCE_EXHAUSTED, 429, None),
    ("THROTTLED", CODE.RESOURCE_EXHAUSTED, 429, "too many failed authentication attempts"),
    ("OVERLOADED", CODE.RESOURCE_EXHAUSTED, 503, None),
    ("NO_SPACE", CODE.RESOURCE_EXHAUSTED, 503, None),
    ("NO_MEMORY", CODE.RESOURCE_EXHAUSTED, 503, None),
    ("UNAVAILABLE", CODE.UNAVAILABLE, 503, None),
    ("NOT_LEADER", CODE.UNAVAILABLE, 503, None),
    ("DEADLINE", CODE.DEADLINE_EXCEEDED, 503, "{name}: " + SAID),
    ("CANCELLED", CODE.CANCELLED, 503, "{name}: " + SAID),
    ("UNSUPPORTED", CODE.UNIMPLEMENTED, 501, None),
    ("UNKNOWN_OUTCOME", CODE.UNAVAILABLE, "lost", "no answer from the broker, the outcome is unknown: " + SAID),
    ("IO", CODE.INTERNAL, 500, "{name} failed"),
    ("INTERNAL", CODE.INTERNAL, 500, "{name} failed"),
    ("CORRUPT", CODE.DATA_LOSS, 500, "{name} failed"),
    ("NEWER_THAN_WE", CODE.INTERNAL, 500, "{name} failed"),  # a name that this release does not know
]


class Broker(grpc.GenericRpcHandler):
    """Answers every method alike: with `error` (reason, status), or never, until it ends. In the items of streams when
    `items`, else as the end of calls and streams."""

    RESULTS = {"ProduceStream": (broker_pb2.ProduceStreamRequest, broker_pb2.ProduceStreamResponse),
               "ConsumeStream": (broker_pb2.ConsumeStreamRequest, broker_pb2.ConsumeStreamResponse),
               "AckStream": (broker_pb2.AckStreamRequest, broker_pb2.AckStreamResponse)}

    def __init__(self, address="127.0.0.1:0"):
        self.error, self.items, self.retry_ms, self.serving = None, False, 0, False
        self.lock, self.seen = threading.Condition(), []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(64), [self], options=OPTIONS)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        self.server.start()

    def note(self, method):
        with self.lock:
            self.seen.append(method)

    def count(self):
        with self.lock:
            return len(self.seen)

    def refuse(self, context):
        reason, code = self.error
        context.set_trailing_metadata([("narad-reason", reason), ("narad-retry-after-ms", str(self.retry_ms))])
        context.abort(code, SAID)

    def hang(self, context):
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait()

    def unary(self, method, request, context):
        self.note(method)
        if method == "Check":
            states = health_pb2.HealthCheckResponse
            status = states.SERVING if self.serving else states.NOT_SERVING
            return states(status=status).SerializeToString()
        if method == "Metrics":
            return admin_pb2.MetricsResponse().SerializeToString()
        if self.error is None:
            self.hang(context)
            return b""
        self.refuse(context)

    def stream(self, method, requests, context):
        ask, tell = self.RESULTS[method]
        for message in requests:
            request = ask.FromString(message)
            items = request.polls if method == "ConsumeStream" else request.items
            self.note(method)
            if self.error is None:
                self.hang(context)
                return
            if not self.items:
                self.refuse(context)
            response = tell()
            for item in items:
                response.results.add(id=item.id, code=self.error[1].value[0], error=SAID, reason=self.error[0],
                                     **({} if method == "AckStream" else {"retry_after_ms": self.retry_ms}))
            yield response.SerializeToString()

    def service(self, details):
        method = details.method.rsplit("/", 1)[1]
        if method in self.RESULTS:
            return grpc.stream_stream_rpc_method_handler(lambda r, c: self.stream(method, r, c))
        return grpc.unary_unary_rpc_method_handler(lambda r, c: self.unary(method, r, c))

    def end(self):
        """At once: what is open breaks off."""
        self.server.stop(0).wait()


def ask(address, route):
    method, path, body = ROUTES[route][:3]
    call = Http(address)
    try:
        return call(method, path, body)
    finally:
        call.close()


def ask_all(address, routes):
    """At the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(routes)) as pool:
        return dict(zip(routes, pool.map(lambda route: ask(address, route), routes)))


class StandIn(unittest.TestCase):
    def setUp(self):
        self.broker = Broker()
        self.addCleanup(self.broker.end)
        self.gateway = Gateway(self.broker.address)
        self.addCleanup(self.gateway.close)
        self.address = self.gateway.address

    def expected(self, route, reason):
        _, _, status, text = reason
        name, lost = ROUTES[route][3:]
        if reason[0] == "CORRUPT" and route == "replay":
            return 410, "receipt handle no longer matches an active reservation: offset 0 is not readable"
        return lost if status == "lost" else status, SAID if text is None else text.format(name=name)

    def each(self, items, routes):
        self.broker.items = items
        for reason in REASONS:
            self.broker.error, self.broker.retry_ms = reason[:2], 2500 if reason[0] == "LIMITED" else 0
            for route in routes:
                with self.subTest(reason=reason[0], route=route):
                    answer = ask(self.address, route)
                    self.assertEqual((answer[0], answer[1]["error"]), self.expected(route, reason))
                    # Acks are not limited, their items say nothing of it.
                    after = "1" if items and SHARED[route] == "AckStream" else "3"
                    self.assertEqual(answer[2]["Retry-After"], after if reason[0] == "LIMITED" else None)
                    self.assertIsNone(answer[2]["WWW-Authenticate"])

    def test_what_ends_a_call_or_a_stream(self):
        self.each(False, ROUTES)

    def test_what_refuses_an_item_of_a_shared_stream(self):
        self.each(True, SHARED)
        with self.broker.lock:
            self.assertEqual({m for m in self.broker.seen if m.endswith("Stream")}, set(SHARED.values()))

    def test_a_broker_that_is_not_ready(self):
        self.broker.error = ("UNAVAILABLE", CODE.UNAVAILABLE)
        call = Http(self.address)
        self.assertEqual(call("GET", "/readyz")[:2], (503, {"error": "not ready"}))
        self.assertEqual(call("GET", "/healthz")[:2], (200, {"status": "ok"}))  # of this process
        self.broker.serving = True
        self.assertEqual(call("GET", "/readyz")[:2], (200, {"status": "ready"}))
        call.close()

    def lost(self, answers, texts):
        for route, answer in answers.items():
            with self.subTest(route=route):
                status, error, _ = answer
                self.assertEqual(status, 503 if route in ASKS else ROUTES[route][4])
                self.assertRegex(error["error"], texts)
                if route not in ASKS:
                    self.assertRegex(error["error"], "^no answer from the broker, the outcome is unknown: ")

    def test_a_broker_that_ends_before_it_answers(self):
        """It has the requests, and may have done them."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answers = pool.submit(ask_all, self.address, list(ROUTES))
            # Those of one shared stream may be one message.
            wait_until(lambda: {"ProduceStream", "ConsumeStream", "AckStream", "Replay", "CreateTopic", "ListTopics", "AlterTopic",
                                "DeleteTopic", "CreateUser", "ListUsers", "GetUser", "DeleteUser", "SetGrants",
                                "SetPassword"} <= set(self.broker.seen) and self.broker.seen.count("GetTopic") == 2 and
                       self.broker.seen.count("CheckAccess") >= 2, "it has them all")
            wait_until(lambda: self.open_requests() == len(ROUTES) + 1, "all are under way")
            self.broker.end()
            self.lost(answers.result(), ".")
        self.assertEqual(Http(self.address)("GET", "/readyz")[0], 503)

    def open_requests(self):
        text = Http(self.address)("GET", "/metrics")[1].decode()
        return float(re.search(r"^narad_http_requests_in_flight ([0-9.e+]+)$", text, re.MULTILINE)[1])

    def test_a_broker_that_hangs(self):
        """After 30 s, and what a poll may wait besides; nothing waits for ever."""
        self.lost(ask_all(self.address, list(ROUTES)), "in time|[Dd]eadline")

    def test_nobody_listens(self):
        """Nothing was sent to anybody: not done, for sure."""
        self.broker.end()
        wait_until(lambda: ask(self.address, "list")[0] == 503, "the gateway has seen it")
        for route, (status, error, headers) in ask_all(self.address, list(ROUTES)).items():
            with self.subTest(route=route):
                self.assertIn(status, (503, ROUTES[route][4]))
                self.assertNotEqual(error["error"], "")
        broker = Broker(self.broker.address)
        self.addCleanup(broker.end)
        broker.error = ("IO", CODE.INTERNAL)
        wait_until(lambda: ask(self.address, "produce")[1]["error"] == "produce failed", "it finds the broker again")


class Real(unittest.TestCase):
    """Real nodes whose disk is full, fails or hangs."""

    def node(self, *arguments, **env):
        node = Node(*arguments, **env)
        self.addCleanup(node.close)
        return node

    def faults(self):
        faults = Faults()
        self.addCleanup(faults.close)
        return faults

    def needs_submits(self, node, faults):
        """libraft writes so where the file system takes it."""
        faults.arm(SUBMIT, "/raft/open-", nth=1000)
        node.create("first")
        faults.disarm()
        if faults.left() == 1000:
            self.skipTest("libraft writes in another way here")

    def test_a_full_disk_refuses_produces_and_nothing_else(self):
        disk = small_disk.SmallDisk(64)
        self.addCleanup(disk.close)
        directory = os.path.join(disk.path, "node")
        os.mkdir(directory)
        config = os.path.join(disk.directory, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"storage": {"wal_file_bytes": 2 << 20, "wal_keep_bytes": 4 << 20, "disk_reserve_bytes": 4 << 20}}, file)
        self.addCleanup(os.unlink, config)
        node = self.node(directory, ["--config", config])
        node.create("t")
        call = Http(http_address(node))
        self.assertEqual(call("POST", "/v1/topics/t/produce", b"x")[0], 202)
        disk.fill()

        def refused():
            """Free space is looked at once a second."""
            for path, body in (("produce", b"x"), ("produce/batch", b'{"messages":[{"payload":1}]}')):
                status, error, _ = call("POST", "/v1/topics/t/" + path, body)
                if status == 202:
                    return False
                self.assertEqual(status, 503)
                self.assertIn("disk full", error["error"])
            return True
        wait_until(refused, "produce is refused")
        status, message, _ = call("GET", "/v1/topics/t/consume")
        self.assertEqual(status, 200)
        self.assertEqual(call("POST", "/v1/topics/t/ack?receipt_handle=" + message["receipt_handle"])[0], 204)
        self.assertEqual(call("GET", "/readyz")[0], 200)
        disk.empty()
        wait_until(lambda: call("POST", "/v1/topics/t/produce", b"x")[0] == 202, "room heals it")

    def test_what_was_not_written_for_sure_is_503(self):
        """An ack so answered is repeated, and then it counts."""
        faults = self.faults()
        node = self.node(**faults.env)
        node.create("t")
        call = Http(http_address(node))
        produced = []

        def produce():
            produced.append(call("POST", "/v1/topics/t/produce", b"x"))
            return produced[-1][0], produced[-1][1]

        def refused(attempt, good):
            answers = []

            def look():
                faults.arm(FDATASYNC, "/wal/")
                answers.append(attempt())
                return answers[-1][0] != good
            wait_until(look, "it meets the failure")
            faults.disarm()
            return answers[-1]
        status, error = refused(produce, 202)
        self.assertEqual(status, 503, error)
        wait_until(lambda: produce()[0] == 202, "it heals")
        handles = []

        def ack():
            status, message, _ = call("GET", "/v1/topics/t/consume?wait=5s")
            if status != 200:
                self.assertEqual(produce()[0] in (202, 503), True)
                return 204, ""
            handles.append(message["receipt_handle"])
            return call("POST", "/v1/topics/t/ack?receipt_handle=" + handles[-1])[:2]
        status, error = refused(ack, 204)
        self.assertEqual(status, 503, error)
        again = "/v1/topics/t/ack?receipt_handle=" + handles[-1]
        wait_until(lambda: call("POST", again)[0] == 204, "the same ack counts")
        self.assertEqual(call("POST", again)[0], 410)

    def test_a_node_that_has_not_caught_up_is_not_ready(self):
        """Its disk does not take what makes it the leader of its metadata."""
        faults = self.faults()
        node = self.node(**faults.env)
        self.needs_submits(node, faults)
        node.stop()
        faults.arm(SUBMIT, "/raft/open-", error=0)
        slow = Slow(node.directory, **faults.env)
        self.addCleanup(slow.close)
        call = Http(slow.http)
        self.assertEqual(call("GET", "/readyz")[:2], (503, {"error": "not ready"}))
        self.assertEqual(call("GET", "/healthz")[:2], (200, {"status": "ok"}))
        for route in ("list", "create", "alter", "delete"):
            with self.subTest(route=route):
                status, error, _ = ask(slow.http, route)
                self.assertEqual(status, 503, error)
                self.assertIn("caught up", error["error"])
        self.assertGreater(faults.fired(), 0)
        faults.disarm()
        wait_until(lambda: call("GET", "/readyz")[:2] == (200, {"status": "ready"}), "it is ready")
        self.assertEqual(ask(slow.http, "list")[0], 200)

    def test_a_stop_while_a_change_is_stuck(self):
        """The disk under the metadata hangs. Who waits is told before it is over, the stop ends with it, and what is said
        to be in doubt is one or the other."""
        faults = self.faults()
        node = self.node(NARAD_HTTP_SHUTDOWN_GRACE="100ms", NARAD_HTTP_MAX_CONSUME_WAIT="100ms", **faults.env)
        self.needs_submits(node, faults)
        address = http_address(node)
        faults.arm(SUBMIT, "/raft/open-", error=0)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, address, "create")
            wait_until(lambda: faults.fired() > 0, "the change is at the disk")
            node.terminate()
            status, error, _ = answer.result()
        self.assertEqual(status, 503)
        self.assertIn("the outcome is unknown: the gateway is stopping", error["error"])
        self.assertIsNone(node.process.poll())
        wait_until(lambda: "changes still open at stop" in node.log(), "the stop goes on without it")
        faults.disarm()
        self.assertEqual(node.wait(), 0)
        node.start()
        call = Http(http_address(node))
        self.assertEqual(call("GET", "/v1/topics/first")[0], 200)
        self.assertIn(call("GET", "/v1/topics/t")[0], (200, 404))
        self.assertIn(ask(http_address(node), "create")[0], (201, 409))


class Slow(Node):
    """A node that is not waited for: `http` is where it listens already."""

    def start(self):
        self.before = len(self.log())
        return super().start()

    def wait_ready(self):
        def look():
            if self.process.poll() is not None:
                raise AssertionError("the node ended at its start:\n" + self.log())
            started = self.log()[self.before:]
            found = re.search(r"http listening.*? port=(\d+)", started)
            grpc_at = re.search(r"grpc listening.*? addr=(\S+)", started)
            return found and grpc_at and (f"127.0.0.1:{found[1]}", grpc_at[1])
        self.http, address = wait_until(look, "it listens")
        return address


if __name__ == "__main__":
    small_disk.require()
    unittest.main()
