"""Connections, routing, forms of answers, caps of bodies: sections 1.1 to 1.5, A01 to A16."""

import json
import socket

from api import read_answers
from cases import Skipped, case, check, equal, table, wait_until

MIB = 1 << 20


@case("A01")
def it_is_healthy(c):
    equal(c.api.get("/healthz").expect(200).json, {"status": "ok"}, "health")


@case("A02")
def it_is_ready(c):
    equal(c.api.get("/readyz").expect(200).json["status"], "ready", "readiness")


@case("A03")
def an_unknown_path_is_plain_text(c):
    c.api.get("/v1/nope").router(404)


@case("A04")
def a_wrong_method_names_the_right_ones(c):
    answer = c.api.put("/v1/topics", {}).router(405)
    equal(answer.header("Allow"), "GET, HEAD, POST", "Allow")


@case("A07")
def what_is_no_json(c):
    c.api.post("/v1/topics", b"{not json}").expect(400, has="invalid json")


@case("A08")
def an_unknown_member_creates_nothing(c):
    topic = c.missing()
    body = {"name": topic.name, "garbage": "nope"}
    c.api.post("/v1/topics", body).expect(400, has='unknown field "garbage"')
    c.api.get(topic.path).expect(404)


@case("A11")
def a_body_above_the_cap(c):
    body = json.dumps({"name": "x", "pad": "p" * (1049600 - 24)}).encode()
    check(len(body) >= 1049600, "the body is large")
    c.api.post("/v1/topics", body).expect(413, error="request body too large")


@case("A13")
def metrics_are_text(c):
    answer = c.api.get("/metrics").expect(200)
    check(answer.header("Content-Type").startswith("text/plain"), "text")
    check(b"narad_" in answer.body, "names")


@case("A16")
def a_chunked_body_is_a_body(c):
    topic = c.topic()
    topic.produce([b'{"v"', b":1}"], "?partition=0", chunked=True).expect(202)
    answer = topic.arrives("?partition=0&wait=5s")
    check(b'"payload":{"v":1}' in answer.body, f"the bytes: {answer.body}")


# --- 1.1: connections and framing ---

def raw_produce(c, topic, head, body=b""):
    """The one answer, behind which the connection ends."""
    sent = f"POST {topic.path}/produce?partition=0 HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + body
    return c.api.raw(sent, closes=True, form=False)[0]


@case("1.1/http-1.0")
def http_1_0_is_served_and_closed(c):
    c.api.raw(b"GET /healthz HTTP/1.0\r\n\r\n", closes=True)[0].expect(200)


@case("1.1/keep-alive")
def a_connection_serves_many_requests(c):
    with c.api.open() as wire:
        for _ in range(3):
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            read_answers(wire, b"keep-alive")[0].expect(200)


@case("1.1/pipelining")
def requests_sent_ahead_are_answered_in_order(c):
    paths = ["/healthz", "/v1/nope", "/readyz", "/healthz"]
    sent = "".join(f"GET {p} HTTP/1.1\r\nHost: x\r\n\r\n" for p in paths).encode()
    answers = c.api.raw(sent, answers=4)
    equal([a.status for a in answers], [200, 404, 200, 200], "statuses")
    check(b"ready" in answers[2].body, "in order")


@case("1.1/connection-close")
def a_client_that_asks_for_the_end_gets_it(c):
    c.api.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", closes=True)[0].expect(200)


@case("1.1/expect-100")
def a_client_may_ask_before_it_sends(c):
    topic = c.topic()
    head = (f"POST {topic.path}/produce?partition=0 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            "Content-Length: 7\r\n\r\n").encode()
    with c.api.open() as wire:
        wire.sendall(head)
        told = b""
        while not told.endswith(b"\r\n\r\n"):
            part = wire.recv(1)
            check(part, f"closed after {told!r}")
            told += part
        equal(told.split()[1], b"100", "the interim answer")
        wire.sendall(b'{"v":1}')
        read_answers(wire, head)[0].expect(202)


@case("1.1/expect-100-too-large")
def a_body_that_is_announced_too_large_is_not_asked_for(c):
    topic = c.topic()
    raw_produce(c, topic, f"Expect: 100-continue\r\nContent-Length: {2 * MIB}\r\n").expect(413, error="request body too large")


@case("1.1/head-too-large")
def a_head_above_64_kib_is_431(c):
    c.api.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * 70000 + b"\r\n\r\n")[0].expect(431)


@case("1.1/head-of-60-kib")
def a_head_below_the_limit_passes(c):
    c.api.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * 60000 + b"\r\n\r\n")[0].expect(200)


@case("1.1/content-encoding")
def an_encoding_of_a_message_is_not_looked_at(c):
    topic = c.topic()
    topic.produce(b"\x1f\x8b not gzip", "?partition=0", headers={"Content-Encoding": "gzip"}).expect(202)
    equal(topic.take()["payload_encoding"], "base64", "the bytes as they were sent")


@table("1.1/content-type", [("form", "application/x-www-form-urlencoded"), ("text", "text/plain"),
                            ("none", None), ("strange", "a/b; c=\"d")])
def the_type_of_a_body_is_not_looked_at(c, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    c.api.post("/v1/topics", json.dumps({"name": c.fresh()}).encode(), headers=headers).expect(201)


@case("1.1/no-cors")
def other_origins_get_no_leave(c):
    answer = c.api.get("/v1/topics", headers={"Origin": "http://x.example"}).expect(200)
    check(not [n for n in answer.headers if n.lower().startswith("access-control")], "no such header")
    answer = c.api.send("OPTIONS", "/v1/topics", headers={"Origin": "http://x.example"}).router(405)
    equal(answer.header("Allow"), "GET, HEAD, POST", "Allow")


AMBIGUOUS = [
    ("two-lengths", "Content-Length: 7\r\nContent-Length: 8\r\n"),
    ("two-equal-lengths", "Content-Length: 7\r\nContent-Length: 7\r\n"),
    ("length-and-chunked", "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n"),
    ("gzip-chunked", "Transfer-Encoding: gzip, chunked\r\n"),
    ("identity", "Transfer-Encoding: identity\r\nContent-Length: 7\r\n"),
    ("blank-in-a-name", "Content-Length : 7\r\n"),
    ("length-of-letters", "Content-Length: seven\r\n"),
    ("negative-length", "Content-Length: -7\r\n"),
]


@table("1.1/ambiguous", AMBIGUOUS)
def a_request_whose_end_is_in_doubt_is_refused(c, head):
    topic = c.topic()
    raw_produce(c, topic, head, b'{"v":1}').expect(400)
    equal(topic.visible(), 0, "records")


# --- 1.2: routing ---

# Path of the server, methods that it has. {t} is a topic, {u} a user.
ROUTES = [
    ("/v1/topics", "GET HEAD POST"),
    ("/v1/topics/{t}", "DELETE GET HEAD PATCH"),
    ("/v1/topics/{t}/produce", "POST"),
    ("/v1/topics/{t}/produce/batch", "POST"),
    ("/v1/topics/{t}/ack", "POST"),
    ("/v1/users", "GET HEAD POST"),
    ("/v1/users/{u}", "DELETE GET HEAD"),
    ("/v1/users/{u}/grants", "PUT"),
    ("/v1/users/{u}/password", "PUT"),
    ("/healthz", "GET HEAD"),
    ("/readyz", "GET HEAD"),
    ("/metrics", "GET HEAD"),
]
METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE".split()
WRONG = [(f"{path.strip('/')}-{method}", path, method, allowed) for path, allowed in ROUTES
         for method in METHODS if method not in allowed.split()]


@table("1.2/405", WRONG)
def the_methods_of_a_path_are_told(c, path, method, allowed):
    answer = c.api.send(method, path.format(t="t", u="u")).router(405)
    equal(answer.header("Allow"), ", ".join(allowed.split()), "Allow")


@table("1.2/405-consume", [(method, method) for method in "POST PUT PATCH DELETE OPTIONS".split()])
def consume_is_get(c, method):
    # HEAD is answered like GET or is no method of this path; both are fine.
    answer = c.api.send(method, "/v1/topics/t/consume").router(405)
    check(answer.header("Allow") in ("GET, HEAD", "GET"), f"Allow: {answer.header('Allow')}")


@table("1.2/404", [
    ("root", "/"), ("v1", "/v1"), ("v1-slash", "/v1/"), ("no-topic", "/v1/topics/"), ("no-user", "/v1/users/"),
    ("other-case", "/V1/topics"), ("deeper", "/v1/topics/t/produce/batch/more"), ("behind", "/healthz/x"),
    ("slash-behind", "/healthz/"), ("purge", "/v1/topics/t/purge"), ("cluster", "/v1/cluster"),
    ("no-consume", "/v1/topics//consume"), ("double-slash", "//v1/topics"), ("dots", "/v1/../v1/topics"),
    ("dot", "/v1/./topics"), ("remotes", "/v1/remotes"),
])
def a_path_that_is_not_there(c, path):
    answer = c.api.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())[0]
    if answer.status not in (301, 307):  # of an uncleaned path
        answer.router(404)


@case("1.2/404-methods")
def whatever_the_method(c):
    for method in METHODS:
        c.api.send(method, "/v1/nope/nope").router(404)


@case("1.2/decoded-segments")
def a_segment_is_decoded_after_matching(c):
    topic = c.topic()
    coded = "".join(f"%{b:02x}" for b in topic.name.encode())
    equal(c.api.get("/v1/topics/" + coded).expect(200).json["name"], topic.name, "name")
    c.api.get("/v1/topics/a%2Fb").expect(404, error="topic not found")
    c.api.get("/v1/topics/a%2Fconsume").expect(404, error="topic not found")


@case("1.2/head")
def head_is_get_without_the_body(c):
    topic = c.topic()
    for path in ["/healthz", "/readyz", "/metrics", "/v1/topics", topic.path, "/v1/users"]:
        answer = c.api.head(path).expect(200)
        equal(answer.body, b"", f"HEAD {path}")
        equal(answer.header("Content-Type"), c.api.get(path).header("Content-Type"), f"HEAD {path}")
    c.api.head(c.missing().path).expect(404)


@case("1.2/head-consume")
def head_of_consume_is_get_or_refused(c):
    topic = c.topic()
    topic.put(partition=0)
    answer = c.api.head(f"{topic.path}/consume?partition=0&offset=0")
    check(answer.status in (200, 405), f"HEAD consume: {answer.status}")
    equal(answer.body, b"", "no body")


# --- 1.3: forms of answers; every answer is checked for the rest ---

@case("1.3/json")
def json_is_one_line_with_its_length(c):
    answer = c.api.get("/v1/topics?limit=1").expect(200)
    equal(answer.header("Content-Type"), "application/json", "type")
    equal(int(answer.header("Content-Length")), len(answer.body), "length")
    equal(answer.body.count(b"\n"), 1, "lines")


@case("1.3/202")
def a_produce_is_answered_with_nothing(c):
    answer = c.topic().produce().expect(202)
    equal((answer.body, answer.header("Content-Length"), answer.header("Content-Type")), (b"", "0", None), "answer")


# --- 1.4: errors ---

@table("1.4", [("not-utf8", "%FF%FE"), ("control", "%01%1F"), ("quote", "%22%5C"), ("nul", "%00"),
               ("delete", "%7F"), ("half-a-pair", "%ED%A0%80")])
def an_error_is_json_whatever_it_quotes(c, value):
    topic = c.topic()
    topic.consume("?partition=" + value).expect(400, has="invalid partition: ")
    topic.produce(b"x", "?partition=" + value).expect(400, has="invalid partition: ")
    topic.consume("?wait=" + value).expect(400, has="invalid wait: ")


# --- 1.5: caps ---

def chunks(size):
    return (b"x" * 65536 for _ in range(size // 65536))


@case("1.5/cap/declared")
def what_is_declared_too_large_is_refused_unread(c):
    topic = c.topic()
    raw_produce(c, topic, f"Content-Length: {1 << 40}\r\n").expect(413, error="request body too large")


@case("1.5/cap/closes")
def a_body_above_the_cap_ends_the_connection(c):
    answer = c.topic().produce(b"x" * (MIB + 1)).expect(413, error="request body too large")
    equal(answer.header("Connection"), "close", "Connection")


@case("1.5/cap/chunked")
def a_chunked_body_is_capped_as_well(c):
    topic = c.topic()
    topic.produce(chunks(MIB + 65536), chunked=True).expect(413, error="request body too large")
    equal(topic.visible(), 0, "records")


@case("1.5/cap/chunked-without-end")
def a_chunked_body_without_an_end_is_cut(c):
    topic = c.topic()
    head = f"POST {topic.path}/produce HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with c.api.open() as wire:
        sent = 0
        try:
            wire.sendall(head)
            while sent < 64 * MIB:
                wire.sendall(chunk)
                sent += 65536
        except OSError:
            pass
        check(sent < 64 * MIB, "the server reads without an end")


@table("1.5/cap/at", [("create", "POST", "/v1/topics", 413, "request body too large"),
                      ("alter", "PATCH", "/v1/topics/missing-x", 413, "request body too large"),
                      ("ack-batch", "POST", "{t}/ack", 413, "request body too large"),
                      ("user", "POST", "/v1/users", 400, "invalid json: http: request body too large"),
                      ("grants", "PUT", "/v1/users/x/grants", 400, "invalid json: http: request body too large"),
                      ("password", "PUT", "/v1/users/x/password", 400,
                       "invalid json: http: request body too large")])
def each_route_has_its_cap(c, method, path, status, text):
    path = path.format(t=c.topic().path)
    c.api.send(method, path, b" " * (MIB + 1)).expect(status, error=text)


@case("1.5/cap/at/create-exactly")
def a_body_of_exactly_the_cap_is_read(c):
    body = json.dumps({"name": c.fresh()}).encode()
    c.api.post("/v1/topics", body + b" " * (MIB - len(body))).expect(201)


@case("1.5/cap/ack-batch-64-kib")
def a_list_of_handles_is_at_most_64_kib(c):
    topic = c.topic()
    body = json.dumps({"receipt_handles": ["0:0:1"]}).encode()
    c.api.post(f"{topic.path}/ack", body + b" " * (65536 - len(body))).expect(200)
    c.api.post(f"{topic.path}/ack", body + b" " * (65537 - len(body))).expect(413, error="request body too large")


@case("1.1/half-closed")
def a_client_that_closes_its_side_still_gets_its_answer(c):
    if c.api.tls:
        raise Skipped("TLS ends both sides")
    with c.api.open() as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wire.shutdown(socket.SHUT_WR)
        # A server may also take the closed side for a client that left.
        data = b"".join(iter(lambda: wire.recv(65536), b""))
        check(data == b"" or data.startswith(b"HTTP/1.1 200"), f"{data[:80]!r}")


# --- 10: metrics of the API ---

def series(c):
    """Sample names with their labels, as they stand."""
    lines = c.api.get("/metrics").expect(200).body.decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}


@table("10/route", [("topic", "GET", "/v1/topics/x.y", 'route="GET /v1/topics/{topic}",method="GET",status="404"'),
                    ("produce", "POST", "/v1/topics/x.y/produce", 'route="POST /v1/topics/{topic}/produce",method="POST",status="400"'),
                    ("unknown", "GET", "/v1/x.y", 'route="unmatched",method="GET",status="404"'),
                    ("method", "PUT", "/v1/topics", 'route="unmatched",method="PUT",status="405"')])
def a_route_is_its_template(c, method, path, labels):
    c.api.send(method, path)
    wanted = dict(part.split("=", 1) for part in labels.split('",') for part in [part.rstrip('"') + '"'])

    def counted():
        found = [name for name in series(c) if name.startswith("narad_http_requests_total{")
                 and all(f"{key}={value}" in name for key, value in wanted.items())]
        return found

    wait_until(counted, f"a request is counted as {labels}")
    check(not any("x.y" in name for name in series(c)), "a path as it was sent is a label")


@case("10/format")
def metrics_are_prometheus_text(c):
    answer = c.api.get("/metrics").expect(200)
    equal(answer.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8", "type")
    for name in ("http_requests_total", "http_request_duration_seconds", "http_requests_in_flight", "topics_total"):
        wait_until(lambda name=name: any(s.startswith("narad_" + name) for s in series(c)), f"{name} is there")


@case("10/once")
def no_metric_is_told_twice(c):
    lines = c.api.get("/metrics").expect(200).body.decode().splitlines()
    for kind in ("# TYPE", "# HELP"):
        names = [line.split(" ")[2] for line in lines if line.startswith(kind)]
        equal(sorted(set(names)), sorted(names), kind)
    samples = [line.rsplit(" ", 1)[0] for line in lines if line and line[0] != "#"]
    equal(len(set(samples)), len(samples), "samples")
